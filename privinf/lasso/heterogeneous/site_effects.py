"""Site effects: columns selected in blocks on a site's residuals, and clipped steps on their coefficients.

Columns are selected by clipped products with a small clip, nearly signs, which suits weak signals. A signal
of correlation c with the residual has the sum 2/pi asin(c) n: once some are fitted the residual is smaller, c
is larger and the others stand out further, so half are selected, fitted cheaply, then the rest. The shared
part is held fixed. `SiteGrams` releases the correlations that refits and nodewise regressions need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privinf.lasso.coordinates import Score
from privinf.lasso.precision import correlations, floored
from privinf.lasso.radii import norm_moments, relative_variance, residual_moments, scale_of_squares
from privinf.lasso.sums import SparseSums
from privinf.lasso.thresholding import DIVERGED, GRAM_ROOM, MIN_CLEARANCE, NOT_CONVERGED, block_sizes
from privinf.typing import Floats
from privinf.wire import Labels

COLUMN_CLIP = 1.0  # bound of a column in Gram matrices of all columns, in units of its size
SHARED_PART = 0.12  # share of the matrices' price for the shared part, where matrices are separate
OWN_PART = 0.20  # the same for the sites' own parts; the rest is for the nodewise regressions
SMALL_CLIP = 0.1  # of products for selections, in units of the residuals' scale: own parts are small
BLOCKS = 2  # in which a site's own columns are selected
FIRST_STEP = 0.25  # share of the refit for the steps before the last block
LAST_STEPS = (0.2, 0.55)  # shares of the refit for the two steps after the last block
# Grid of residual clips among which the one with the least variance is chosen.
_RESIDUALS = np.geomspace(0.2, 1.75, 24)


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
    """

    support: list[int]
    beta: Floats
    cov: Floats
    scale: float
    response: float
    diverged: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SiteEffects:
    """One site's released fit: shared columns first, then all of its own that were selected.

    Attributes
    ----------
    support : list of int
    beta : ndarray
    kept : list of int
        Positions in `support` of the columns that a sparse fit keeps.
    error_cov : ndarray
        Covariance of the error of `beta`.
    scale : float
        Typical size of the site's residuals.
    diverged : bool
        Whether the steps diverged, here or in the shared part.
    """

    support: list[int]
    beta: Floats
    kept: list[int]
    error_cov: Floats
    scale: float
    diverged: bool


@dataclass(frozen=True, slots=True, eq=False)
class ClippedStep:
    """Coefficients after a clipped step, in whitened coordinates its variance, noise (an sd) and length."""

    beta: Floats
    variance: float
    noise: float
    length: float


def diverged(steps: Sequence[ClippedStep], size: int, scale: float, response: float, root: Whitening) -> bool:
    """Return whether the steps of a fit diverged, by the criteria of a homogeneous fit (`thresholding`).

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
    tolerance = NOT_CONVERGED * math.sqrt(size) * math.sqrt(before.noise**2 + last.variance)
    noisy = last.noise > 0.0 and (last.length > tolerance or root.clearance < MIN_CLEARANCE)
    return scale > DIVERGED * response or noisy


def own_fits(
    sites: Mapping[str, SparseSums],
    grams: SiteGrams,
    shared: SharedPart,
    selection: float,
    refit: float,
    scale_prices: tuple[float, float],
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
    sparsity, extra : int
        Columns kept, and selected beyond the sparsity.

    Notes
    -----
    **Privacy.** Spends these prices at every site: their rows are disjoint. Between steps the sites use
    the median of their scales.
    """
    shared_count = len(shared.support)
    sizes = block_sizes(
        min(sparsity + extra, len(next(iter(sites.values())).units.scale) - shared_count), BLOCKS
    )
    support = {name: list(shared.support) for name in sites}
    beta = {name: shared.beta.copy() for name in sites}
    roots: dict[str, Whitening] = {}
    steps_of: dict[str, list[ClippedStep]] = {name: [] for name in sites}
    scale = dict.fromkeys(sites, shared.scale)
    plan = [(FIRST_STEP / (len(sizes) - 1),)] * (len(sizes) - 1) + [LAST_STEPS]
    total = sum(sum(steps) for steps in plan)
    for size, steps in zip(sizes, plan, strict=True):
        for name, sums in sites.items():
            _select(sums, support[name], beta, name, scale[name], size, selection * size / sum(sizes))
            roots[name] = grams.own_root(name, support[name][shared_count:], 1.0 / len(sizes))
        for step, share in enumerate(steps):
            for name, sums in sites.items():
                steps_of[name].append(
                    clipped_step(
                        sums,
                        support[name],
                        beta[name],
                        range(shared_count, len(support[name])),
                        roots[name].values,
                        scale[name],
                        refit * share / total,
                    )
                )
                beta[name] = steps_of[name][-1].beta
            if steps is not LAST_STEPS or step < len(steps) - 1:
                scale = _common_scale(sites, support, beta, scale, scale_prices[0] / len(sizes))
    fits = {}
    for name, sums in sites.items():
        end = _scale(sums, support[name], beta[name], scale[name], scale_prices[1])
        fits[name] = _fit(shared, support[name], steps_of[name], roots[name], end, sparsity)
    return fits


def _select(
    sums: SparseSums,
    support: list[int],
    beta: dict[str, Floats],
    name: str,
    scale: float,
    size: int,
    rho: float,
) -> None:
    """Add columns to a site's fit, with coefficients 0."""
    allowed = np.ones(len(sums.units.scale), dtype=bool)
    allowed[support] = False
    support += sums.select(
        list(support), beta[name], SMALL_CLIP * scale, size, allowed, rho, Labels.SELECTION_OF_OWN_PARTS
    )
    beta[name] = np.append(beta[name], np.zeros(size))


def _fit(
    shared: SharedPart,
    support: list[int],
    steps: Sequence[ClippedStep],
    root: Whitening,
    scale: float,
    sparsity: int,
) -> SiteEffects:
    shared_count = len(shared.support)
    beta = steps[-1].beta
    cov = np.zeros((len(support),) * 2)
    cov[:shared_count, :shared_count] = shared.cov
    cov[shared_count:, shared_count:] = steps[-1].variance * root.values @ root.values.T
    largest = shared_count + np.sort(np.argsort(-np.abs(beta[shared_count:]), kind="stable")[:sparsity])
    lost = diverged(steps, len(support) - shared_count, scale, shared.response, root) or shared.diverged
    return SiteEffects(
        support=support,
        beta=beta,
        kept=[*range(shared_count), *largest.tolist()],
        error_cov=cov,
        scale=scale,
        diverged=lost,
    )


def _common_scale(
    sites: Mapping[str, SparseSums],
    support: Mapping[str, list[int]],
    beta: Mapping[str, Floats],
    scale: Mapping[str, float],
    rho: float,
) -> dict[str, float]:
    scales = [_scale(sums, support[name], beta[name], scale[name], rho) for name, sums in sites.items()]
    return dict.fromkeys(sites, float(np.median(scales)))


def _scale(sums: SparseSums, support: list[int], beta: Floats, guess: float, rho: float) -> float:
    """Return the scale of a site's residuals from their squares, clipped at a guess of it."""
    bound = math.inf if math.isinf(rho) else guess
    mean = sums.squared_residual(support, beta, bound, rho, Labels.SCALE_OF_RESIDUALS)
    return scale_of_squares(mean, bound)


def clipped_step(
    sums: SparseSums,
    support: Sequence[int],
    beta: Floats,
    free: Sequence[int],
    root: Floats,
    scale: float,
    rho: float,
) -> ClippedStep:
    """Return a clipped step in the free coefficients."""
    k = len(free)
    norm, bound = _step_radii(k, sums.n, rho)
    score = Score(
        columns=[support[i] for i in free],
        transform=root,
        norm=norm,
        residual=bound * scale,
        support=support,
        beta=beta,
    )
    mean, noise = sums.score(score, rho, Labels.STEP_OF_REFIT)
    slope = norm_moments(norm, k)[0] * residual_moments(bound)[0]
    square = norm_moments(norm, k)[1] * residual_moments(bound)[1]
    variance = (square * scale**2 / sums.n + noise**2) / slope**2
    moved = beta.copy()
    moved[list(free)] += root @ mean / slope
    return ClippedStep(moved, float(variance), noise / slope, float(np.linalg.norm(mean)) / slope)


def _step_radii(k: int, n: int, rho: float) -> tuple[float, float]:
    """Return C = sqrt k and the R that minimizes the variance of a step."""
    if math.isinf(rho):
        return math.inf, math.inf
    norm = math.sqrt(k)
    return norm, float(min(_RESIDUALS, key=lambda bound: relative_variance(norm, bound, k, n, rho)))


@dataclass(frozen=True, slots=True, eq=False)
class Correlations:
    """Correlations (p, p), and variances of their errors; the identity where nothing was released."""

    values: Floats
    variances: Floats


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
            return whitener(self._part(self.sites[name], columns, price), columns)
        return whitener(self._all(name if self.own_precision else ""), columns)

    def precision(self, members: Mapping[str, Sequence[int]]) -> dict[str, Correlations]:
        """Return correlations among every site's members: columns of fits, targets, neighbors."""
        if not self.joint:
            return {name: self._all(name if self.own_precision else "") for name in members}
        price = (1.0 - SHARED_PART - OWN_PART) * self.price
        if self.own_precision:
            return {name: self._part(self.sites[name], used, price) for name, used in members.items()}
        union = sorted({j for used in members.values() for j in used})
        return dict.fromkeys(members, self._part(self.pooled, union, price))

    def _all(self, name: str) -> Correlations:
        """Return correlations of all columns, of one site or (no name) of all rows; released once."""
        if name not in self._site_correlations:
            sums = self.sites.get(name, self.pooled)
            p = len(self.pooled.units.scale)
            part = 1.0 - SHARED_PART if self.own_precision else 1.0
            gram, sd = sums.gram(
                range(p),
                math.inf,
                part * self.price * (p / self.size) ** 2,
                Labels.GRAM_OF_ALL_COLUMNS,
                bound=COLUMN_CLIP,
            )
            self._site_correlations[name] = Correlations(*correlations(gram, sd))
        return self._site_correlations[name]

    def _part(self, sums: SparseSums, columns: Sequence[int], rho: float) -> Correlations:
        norm = math.inf if math.isinf(rho) else math.sqrt(GRAM_ROOM * len(columns))
        gram, sd = sums.gram(columns, norm, rho, Labels.GRAM_OF_SOME_COLUMNS)
        p = len(self.pooled.units.scale)
        at = np.ix_(columns, columns)
        part = Correlations(np.eye(p), np.zeros((p, p)))
        part.values[at], part.variances[at] = correlations(gram, sd)
        return part


def site_grams(
    pooled: SparseSums,
    sites: Mapping[str, SparseSums],
    price: float,
    size: int,
    *,
    joint: bool,
    own_precision: bool,
) -> SiteGrams:
    """Return the releases of a fit; nothing is released yet."""
    return SiteGrams(
        pooled=pooled,
        sites=sites,
        price=price,
        size=size,
        joint=joint,
        own_precision=own_precision,
        _site_correlations={},
    )


def gram_factor(p: int, size: int, *, joint: bool, own_precision: bool) -> float:
    """Return the price of all Gram matrices relative to one interval, which uses `size` columns."""
    if joint:
        return 1.0
    all_columns = (p / size) ** 2
    return SHARED_PART + (1.0 - SHARED_PART) * all_columns if own_precision else all_columns


def whitener(released: Correlations, support: Sequence[int]) -> Whitening:
    """Return L^-T of the correlations L L' of some columns, and their clearance of the noise."""
    at = np.ix_(support, support)
    part = released.values[at]
    edge = 2.0 * math.sqrt(released.variances[at].sum(axis=1).max())
    ratio = float(np.linalg.eigvalsh(part)[0]) / edge if edge > 0.0 else math.inf
    return Whitening(np.asarray(np.linalg.inv(np.linalg.cholesky(floored(part))).T), ratio)
