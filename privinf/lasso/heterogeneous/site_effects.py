"""Site effects: columns selected in blocks on a site's residuals, and clipped steps on their coefficients.

Columns are selected by clipped products with a small clip, nearly signs, which suits weak signals. A signal
of correlation c with the residual has the sum 2/pi asin(c) n: once some are fitted the residual is smaller, c
is larger and the others stand out further, so half are selected, fitted cheaply, then the rest. The shared
part is held fixed. `SiteGrams` releases the correlations that refits and nodewise regressions need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privinf.lasso.fit import (
    DIVERGED,
    MIN_CLEARANCE,
    BlockedFit,
    ClippedStep,
    block_sizes,
    clipped_step,
    fit_blocks,
    largest_positions,
    still_moving,
)
from privinf.lasso.heterogeneous.centering import move_constants
from privinf.lasso.heterogeneous.own_columns import (
    OWN_MEANS,
    SiteCenter,
    precise_centers,
    scaled,
    site_centers,
    with_sizes,
)
from privinf.lasso.precision import Correlations, correlations, whitening
from privinf.lasso.radii import best_step_radii, gram_norm, scale_of_squares
from privinf.lasso.sums import SparseSums
from privinf.typing import Floats
from privinf.wire import Labels

COLUMN_CLIP = 1.0  # bound of a column in Gram matrices of all columns, in units of its size
SHARED_PART = 0.12  # share of the matrices' price for the shared part, where matrices are separate
OWN_PART = 0.20  # the same for the sites' own parts; the rest is for the nodewise regressions
SMALL_CLIP = 0.1  # of products for selections, in units of the residuals' scale: own parts are small
BLOCKS = 2  # in which a site's own columns are selected
FIRST_STEP = 0.25  # share of the refit for the steps before the last block
LAST_STEPS = (0.2, 0.55)  # shares of the refit for the two steps after the last block


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SharedPart:
    """The shared part, from all rows.

    Attributes
    ----------
    support : list of int
    beta : ndarray
    cov : ndarray
        Covariance of the error of `beta`.
    scale, response : float
        Typical size of the residuals, and of the response.
    diverged : bool
        Whether the steps diverged.
    moving : float
        Squared length of the last step beyond its noise.
    """

    support: list[int]
    beta: Floats
    cov: Floats
    scale: float
    response: float
    diverged: bool
    moving: float = 0.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SiteEffects:
    """One site's released fit: shared columns first, then all of its own that were selected.

    Attributes
    ----------
    support : list of int
    beta : ndarray
    kept_positions : list of int
        Positions in `support` of the columns that a sparse fit keeps.
    error_cov : ndarray
        Covariance of the error of `beta`.
    scale : float
        Typical size of the site's residuals.
    diverged : bool
        Whether the steps diverged, here or in the shared part.
    moving : float
        Squared length of the last steps, here and in the shared part, beyond their noise.
    """

    support: list[int]
    beta: Floats
    kept_positions: list[int]
    error_cov: Floats
    scale: float
    diverged: bool
    moving: float = 0.0

    @property
    def error_square(self) -> float:
        """Expected squared length of the error of `beta`.

        Where means of columns differ between sites, the correlations that direct the steps hold more than the
        covariances within sites, and steps are too short: an error of about the last step is left.
        """
        return float(np.trace(self.error_cov)) + self.moving


def diverged(steps: Sequence[ClippedStep], size: int, scale: float, response: float, root: Whitening) -> bool:
    """Return whether the steps of a fit diverged, by the criteria of a homogeneous fit.

    One of three signs: the residuals are larger than the response; the last step is much longer than the
    noise of the previous step and the stated error of the fit explain; or the noise of the correlations that
    direct the steps is as large as they are.

    Parameters
    ----------
    steps : sequence of ClippedStep
        On one support; the last two are tested.
    size : int
        Columns that they move.
    scale, response : float
        Typical sizes of the residuals in the end, and of the response.
    root : Whitening

    Notes
    -----
    **Privacy.** Post-processing.
    """
    before, last = steps[-2:]
    moving = still_moving(last.length, size, math.sqrt(before.noise**2 + last.variance))
    noisy = last.noise > 0.0 and (moving or root.clearance < MIN_CLEARANCE)
    return scale > DIVERGED * response or noisy


def moving(steps: Sequence[ClippedStep], root: Whitening) -> float:
    """Return the squared length of the last of some steps on one support, less that of its noise; at least 0.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    before, last = steps[-2:]
    noise = (before.noise**2 + last.variance) * float(np.square(root.values).sum())
    return max(0.0, float(np.square(last.beta - before.beta).sum()) - noise)


def own_fits(
    sites: Mapping[str, SparseSums],
    grams: SiteGrams,
    shared: SharedPart,
    selection: float,
    refit: float,
    scale_prices: tuple[float, float],
    constant_price: float,
    sparsity: int,
    extra: int,
) -> dict[str, SiteEffects]:
    """Return every site's fit.

    Parameters
    ----------
    sites : mapping of str to SparseSums
    grams : SiteGrams
    shared : SharedPart
    selection, refit : float
        Prices of all selections and of all steps, zCDP.
    scale_prices : (float, float)
        Prices of all releases of the size of residuals between steps, and of the last.
    constant_price : float
        Price of the mean of the residuals, between two steps.
    sparsity, extra : int
        Columns kept, and selected beyond the sparsity.

    Notes
    -----
    **Privacy.** Spends these prices at every site: their rows are disjoint. Between steps the sites use
    the median of their scales.
    """
    columns = len(next(iter(sites.values())).units.scale) - len(shared.support)
    return fit_blocks(
        SiteBlocks(
            sites=sites,
            grams=grams,
            shared=shared,
            selection=selection,
            refit=refit,
            scale_prices=scale_prices,
            constant_price=constant_price,
            sizes=block_sizes(min(sparsity + extra, columns), BLOCKS),
            sparsity=sparsity,
        )
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SiteState:
    """One site's fit between blocks: columns, coefficients, steps, and the whitening of its own columns."""

    support: list[int]
    beta: Floats
    scale: float
    root: Whitening | None = None
    steps: tuple[ClippedStep, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SiteBlocks(BlockedFit[dict[str, SiteState], dict[str, SiteEffects]]):
    """The fits of all sites' own columns in blocks, with the arguments of `own_fits`, by site."""

    sites: Mapping[str, SparseSums]
    grams: SiteGrams
    shared: SharedPart
    selection: float
    refit: float
    scale_prices: tuple[float, float]
    constant_price: float
    sizes: list[int]
    sparsity: int

    @property
    def blocks(self) -> Sequence[int]:
        """Number of columns in each block."""
        return self.sizes

    @property
    def _shares(self) -> list[tuple[float, ...]]:
        """Shares of the steps after every block."""
        cheap = len(self.sizes) - 1
        return [(FIRST_STEP / cheap,)] * cheap + [LAST_STEPS]

    def start(self) -> dict[str, SiteState]:
        """Return the shared part, at every site."""
        shared = self.shared
        return {
            name: SiteState(support=list(shared.support), beta=shared.beta.copy(), scale=shared.scale)
            for name in self.sites
        }

    def selected(self, state: dict[str, SiteState], block: int) -> dict[str, SiteState]:
        """Return the fits with the columns of a block, selected at every site."""
        rho = self.selection * self.sizes[block] / sum(self.sizes)
        return {name: self._selected(name, own, self.sizes[block], rho) for name, own in state.items()}

    def _selected(self, name: str, own: SiteState, size: int, rho: float) -> SiteState:
        sums = self.sites[name]
        allowed = sums.all_but(own.support)
        bound = SMALL_CLIP * own.scale
        label = Labels.SELECTION_OF_OWN_PARTS
        support = own.support + sums.select(own.support, own.beta, bound, size, allowed, rho, label)
        columns = support[len(self.shared.support) :]
        return replace(
            own,
            support=support,
            beta=np.append(own.beta, np.zeros(size)),
            root=self.grams.own_root(name, columns, 1.0 / len(self.sizes)),
        )

    def cheaply_fitted(self, state: dict[str, SiteState], block: int) -> dict[str, SiteState]:
        """Return the fits after a step at every site, with the median of their scales."""
        for share in self._shares[block - 1]:
            state = self._rescaled(self._stepped(state, share))
        return state

    def fitted(self, state: dict[str, SiteState]) -> dict[str, SiteEffects]:
        """Return the fits after the last steps."""
        *shares, last = self._shares[-1]
        for share in shares:
            state = self._rescaled(self._stepped(state, share))
        fits = {}
        for name, own in self._stepped(state, last).items():
            end = _scale(self.sites[name], own.support, own.beta, own.scale, self.scale_prices[1])
            fits[name] = _fit(self.shared, replace(own, scale=end), self.sparsity)
        return fits

    def _stepped(self, state: dict[str, SiteState], share: float) -> dict[str, SiteState]:
        rho = self.refit * share / sum(sum(shares) for shares in self._shares)
        stepped = {}
        for name, own in state.items():
            assert own.root is not None
            free = range(len(self.shared.support), len(own.support))
            radii = best_step_radii(len(free), self.sites[name].n, rho)
            after = clipped_step(
                self.sites[name], own.support, own.beta, free, own.root.values, own.scale, radii, rho
            )
            stepped[name] = replace(own, beta=after.beta, steps=(*own.steps, after))
        return stepped

    def _rescaled(self, state: dict[str, SiteState]) -> dict[str, SiteState]:
        move_constants(self.sites, state, self.constant_price)
        price = self.scale_prices[0] / len(self.sizes)
        scales = [
            _scale(self.sites[name], own.support, own.beta, own.scale, price) for name, own in state.items()
        ]
        return {name: replace(own, scale=float(np.median(scales))) for name, own in state.items()}


def _fit(shared: SharedPart, own: SiteState, sparsity: int) -> SiteEffects:
    """Return the fit of a site from its last state."""
    assert own.root is not None
    shared_count = len(shared.support)
    root = own.root.values
    cov = np.zeros((len(own.support),) * 2)
    cov[:shared_count, :shared_count] = shared.cov
    cov[shared_count:, shared_count:] = own.steps[-1].variance * root @ root.T
    size = len(own.support) - shared_count
    return SiteEffects(
        support=own.support,
        beta=own.beta,
        kept_positions=[*range(shared_count), *largest_positions(own.beta, sparsity, shared_count)],
        error_cov=cov,
        scale=own.scale,
        diverged=diverged(own.steps, size, own.scale, shared.response, own.root) or shared.diverged,
        moving=moving(own.steps, own.root) + shared.moving,
    )


def _scale(sums: SparseSums, support: list[int], beta: Floats, guess: float, rho: float) -> float:
    """Return the scale of a site's residuals from their squares, clipped at a guess of it."""
    bound = math.inf if math.isinf(rho) else guess
    mean = sums.squared_residual(support, beta, bound, rho, Labels.SCALE_OF_RESIDUALS)
    return scale_of_squares(mean, bound)


@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """L^-T of correlations L L', and their smallest eigenvalue over the largest that their noise has.

    Symmetric noise whose variances sum to v in the noisiest row has eigenvalues of up to ``2 sqrt v``: see
    `privinf.lasso.precision.clearance`.
    """

    values: Floats
    clearance: float


@dataclass(slots=True, kw_only=True)
class SiteGrams:
    """Releases of Gram matrices.

    Attributes
    ----------
    pooled : SparseSums
    sites : mapping of str to SparseSums
    price : float
        Price of one interval, zCDP; with `joint` the total price.
    size : int
        Largest number of columns that one interval uses.
    joint, own_precision : bool
        Whether one budget is for everything; whether nodewise regressions are each site's own.
    own_centers : bool
        Whether a site's own matrix is of columns that are centered at their means at the site.
    centers : mapping of str to SiteCenter
        Released means of columns at the sites; empty until they are released.

    Notes
    -----
    **Privacy.** Spends `price` times `gram_factor`.
    """

    pooled: SparseSums
    sites: Mapping[str, SparseSums]
    price: float
    size: int
    joint: bool
    own_precision: bool
    own_centers: bool
    centers: Mapping[str, SiteCenter]
    _site_correlations: dict[str, Correlations]

    def shared_root(self, support: Sequence[int]) -> Whitening:
        """Return the root of the pooled correlations of the columns selected for the shared part."""
        if self.joint or self.own_precision:
            return whitener(self._part(self.pooled, support, SHARED_PART * self.price), support)
        return whitener(self._all(""), support)

    def own_root(self, name: str, columns: Sequence[int], share: float) -> Whitening:
        """Return the same of a site's columns; `share` is that of this refit among all its refits."""
        if self.joint:
            price = OWN_PART * share * self.price
            return whitener(self._part(self._sums(name), columns, price), columns)
        return whitener(self._all(name if self.own_precision else ""), columns)

    def precision(self, members: Mapping[str, Sequence[int]]) -> dict[str, Correlations]:
        """Return correlations among every site's members: columns of fits, targets, neighbors."""
        if not self.joint:
            return {name: self._all(name if self.own_precision else "") for name in members}
        price = self._precision_price
        if self.own_precision:
            price *= self._center(members, price)
            return {name: self._own_part(name, used, price) for name, used in members.items()}
        union = sorted({j for used in members.values() for j in used})
        return dict.fromkeys(members, self._part(self.pooled, union, price))

    def _all(self, name: str) -> Correlations:
        """Return correlations of all columns, of one site or (no name) of all rows; released once."""
        if name not in self._site_correlations:
            p = len(self.pooled.units.scale)
            price = self.price
            if name:
                price = self._precision_price
                price *= self._center(dict.fromkeys(self.sites, range(p)), price)
            price *= (p / self.size) ** 2
            label = Labels.GRAM_OF_ALL_COLUMNS
            gram, sd = self._sums(name).gram(range(p), math.inf, price, label, bound=COLUMN_CLIP)
            released = correlations(gram, sd)
            centered = name in self.centers
            self._site_correlations[name] = (
                scaled(released, self.centers[name].sizes) if centered else released
            )
        return self._site_correlations[name]

    @property
    def _precision_price(self) -> float:
        """Price of the matrices of the nodewise regressions, if there are others."""
        return (1.0 - SHARED_PART - (OWN_PART if self.joint else 0.0)) * self.price

    def center_early(self) -> None:
        """Release the means of all columns at every site, where they are used and precise enough.

        With a budget for each interval all of them are used. Under one budget their noise grows with the
        number of columns: otherwise the means of the columns in nodewise regressions are released later.
        """
        p = len(self.pooled.units.scale)
        rows = min(sums.n for sums in self.sites.values())
        price = self._precision_price
        if not self.joint or precise_centers(p, rows, OWN_MEANS * price):
            self._center(dict.fromkeys(self.sites, range(p)), price)

    def _center(self, members: Mapping[str, Sequence[int]], price: float) -> float:
        """Release the means of columns at every site, once; return the share of the price that is left."""
        if not self.own_centers:
            return 1.0
        if not self.centers:
            times = 1.0 if self.joint else len(self.pooled.units.scale) / self.size
            self.centers = site_centers(self.sites, members, OWN_MEANS * price * times, joint=self.joint)
        return 1.0 - OWN_MEANS

    def _sums(self, name: str) -> SparseSums:
        """Return the sums of a site, centered there if its means are released; of all rows without a name."""
        sums = self.sites.get(name, self.pooled)
        return self.centers[name].centered(sums) if name in self.centers else sums

    def _own_part(self, name: str, columns: Sequence[int], rho: float) -> Correlations:
        gram, sd = self._some_columns(self._sums(name), columns, rho)
        return self._placed(with_sizes(correlations(gram, sd), gram, sd), columns)

    def _part(self, sums: SparseSums, columns: Sequence[int], rho: float) -> Correlations:
        return self._placed(correlations(*self._some_columns(sums, columns, rho)), columns)

    def _some_columns(self, sums: SparseSums, columns: Sequence[int], rho: float) -> tuple[Floats, float]:
        return sums.gram(columns, gram_norm(len(columns), rho), rho, Labels.GRAM_OF_SOME_COLUMNS)

    def _placed(self, released: Correlations, columns: Sequence[int]) -> Correlations:
        """Return correlations of some columns among all, which are uncorrelated otherwise."""
        p = len(self.pooled.units.scale)
        at = np.ix_(columns, columns)
        part = Correlations(np.eye(p), np.zeros((p, p)))
        part.values[at] = released.values
        part.variances[at] = released.variances
        return part


def site_grams(
    pooled: SparseSums,
    sites: Mapping[str, SparseSums],
    price: float,
    size: int,
    *,
    joint: bool,
    own_precision: bool,
    own_centers: bool,
) -> SiteGrams:
    """Return the releases of a fit; nothing is released yet."""
    return SiteGrams(
        pooled=pooled,
        sites=sites,
        price=price,
        size=size,
        joint=joint,
        own_precision=own_precision,
        own_centers=own_centers,
        centers={},
        _site_correlations={},
    )


def gram_factor(p: int, size: int, *, joint: bool, own_precision: bool, own_centers: bool) -> float:
    """Return the price of all Gram matrices relative to one interval, which uses `size` columns.

    Sites' own matrices come with the means of their columns, if columns are centered there (`own_centers`).
    """
    if joint:
        return 1.0
    all_columns = (p / size) ** 2
    if not own_precision:
        return all_columns
    if own_centers:
        all_columns = OWN_MEANS * p / size + (1.0 - OWN_MEANS) * all_columns
    return SHARED_PART + (1.0 - SHARED_PART) * all_columns


def whitener(released: Correlations, support: Sequence[int]) -> Whitening:
    """Return L^-T of the correlations L L' of some columns, and their clearance of the noise."""
    at = np.ix_(support, support)
    part = released.values[at]
    edge = 2.0 * math.sqrt(released.variances[at].sum(axis=1).max())
    ratio = float(np.linalg.eigvalsh(part)[0]) / edge if edge > 0.0 else math.inf
    return Whitening(whitening(part), ratio)
