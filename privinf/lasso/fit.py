r"""Private sparse fits: blocks of selections with cheap fits between them, then a full fit (`fit_blocks`).

Linear fits (`LinearBlocks`), logistic fits (`privinf.lasso.logistic`) and the effects of single sites
(`privinf.lasso.heterogeneous.site_effects`) are such fits. A linear fit, by private hard thresholding:

1. A block of columns is selected by peeling ``|sum clip(x_j r, B)|``, B = 1.5 sd(r): the clipped product has
   a sensitivity of 2 B whatever the bound of x_j, and ranks columns as the product does.
2. The columns selected so far are fitted cheaply and the next block is selected on the residual: halves
   first, then halves of what is left. A selection costs e0^2/8 wherever it is made, so blocks cost nothing
   but the fits.
3. A few extra columns are selected, all are fitted well together with the targets, and the `sparsity` largest
   are kept. (A debiasing step from 0 would be long for a target with an effect: scores of rare levels are
   cut.)

Where the number is to be chosen, blocks are of five columns, up to a public most. The b-th block of
selections, and the b-th cheap fit, has a price in proportion to 1 / b, so that the first ones, which are
always made, are good however many there could be. After each cheap fit the columns of the last block that
stand out of their errors are counted, and selection ends where fewer than three do: a column next to one that
matters is often selected with it, so that some of a block do not stand out although signals remain. Unspent
budget of selections and cheap fits goes to the full fit, and that of sizes and scales to the scores of the
targets: the maximum of each is fixed in advance (zCDP adds up where later prices depend on earlier releases,
as long as their sum does not). Where the Gram matrix of all in the full fit is not above its noise, columns
that did not stand out of the last cheap fit are left out again, the least first, until the rest of the matrix
is above its noise. It is a part of the released matrix and costs nothing; the test for omitted columns finds
a column that matters again. Columns are kept if they stand out of the errors of the full fit.

Fits are steps on the clipped score. With G~ = L L' the noisy Gram matrix and v = L^-1 x shrunk to |v| <= C,

    beta <- beta + L^-T mean[v psi_R(r)] / (A1(C) B1(R)),

whose sum over records has the l2 sensitivity 2 C R before the preconditioner (`clipped_step`). The end point
solves E[v psi_R(r)] = 0: the noise of G~ changes the path, not the solution. If a response has two values, no
residual is clipped: clipping would affect the rarer value, whose rate depends on x, and shrink coefficients.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from privinf.lasso.plan import BLOCKS, CHEAP_FITS, GRAM_SHARE, PRODUCT_CLIP, SparseFitPrices
from privinf.lasso.precision import clearance, positions, whitening
from privinf.lasso.radii import (
    gram_norm,
    norm_moments,
    residual_moments,
    step_efficiency,
    step_radii,
    step_slope,
)
from privinf.lasso.sums import RESIDUAL_ROOM, Score, SparseSums
from privinf.typing import Floats
from privinf.wire import Labels

OPEN_BLOCK = 5  # columns in a block, where their number is to be chosen
MIN_NEW_SIGNALS = 3  # selection ends when fewer columns of a block than these stand out
STEPS = (0.1, 0.15, 0.25, 0.5)  # shares of the steps' price; the last step decides the noise
CHEAP_STEPS = (0.5, 0.5)  # the same in the fits between blocks
CHEAP_GRAM_SHARE = 0.4  # the same in the fits between blocks
DIVERGED = 1.15  # residuals of a fit larger than this many times the response: its steps diverged
# The steps have not converged if the last one exceeds this many times the length that its noise and that of
# the previous step explain.
NOT_CONVERGED = 2.5
# Smallest eigenvalue of the released Gram matrix over the largest of its noise. In simulations steps often
# diverged below it: intervals without a warning covered 0.87 at 0.5 to 0.7, and 0.94 above.
MIN_CLEARANCE = 0.75
SHRINK = 0.7  # residuals' scale after a cheap step relative to before it, instead of a release


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ColumnStep:
    """Step of a fit that one more column joins, along ``w_l / sqrt(w_ll)``, w_l its nodewise regression.

    Attributes
    ----------
    direction : ndarray, shape (size of the wider fit,)
        ``w_l / sqrt(w_ll)``, the new column last.
    length : float
    error, noise : float
        Standard error of the length, and its part due to noise.
    """

    direction: Floats
    length: float
    error: float
    noise: float

    @property
    def change(self) -> Floats:
        """Change of the coefficients."""
        return self.length * self.direction

    def root(self, root: Floats) -> Floats:
        """Return the root of the inverse Gram matrix with the new column, from that without it."""
        wider = bordered(root, 0.0)
        wider[:, -1] = self.direction
        return wider


def bordered(root: Floats, corner: float) -> Floats:
    """Return a square matrix with one more row and column of zeros, and `corner` where they meet."""
    wider = np.zeros((len(root) + 1, len(root) + 1))
    wider[:-1, :-1] = root
    wider[-1, -1] = corner
    return wider


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SparseFit:
    """A released sparse fit, in the units of its sums.

    Attributes
    ----------
    support : list of int
        Kept columns.
    beta : ndarray
        Their coefficients; those of columns in every fit absorb the means of dropped columns.
    selected : list of int
        All selected columns: those kept in `support` and those dropped again.
    selected_beta : ndarray
        Their coefficients before columns were dropped: where debiasing starts.
    scale : float
        Typical size of the residuals.
    step_sd : float
        Noise of the last step in whitened coordinates.
    efficiency : float
        Sampling variance of the clipped end point relative to least squares, under normal errors.
    selected_errors : ndarray
        Standard errors of `selected_beta`.
    diverged : bool
        Whether the steps diverged: the residuals are larger than the response, or the last step is much
        longer than noise explains, or the noise of the Gram matrix is as large as the matrix.
    root : ndarray, shape (size of `selected`, size of `selected`)
        R of the steps: ``R R'`` is about the inverse Gram matrix of the selected columns.
    gram_clearance : float
        Clearance of the Gram matrix of the steps (`privinf.lasso.precision.clearance`).
    unspent : float
        Unspent part of the price of sizes and scales, zCDP.
    """

    support: list[int]
    beta: Floats
    selected: list[int]
    selected_beta: Floats
    scale: float
    step_sd: float
    efficiency: float
    selected_errors: Floats
    diverged: bool = False
    root: Floats = field(default_factory=lambda: np.empty((0, 0)))
    gram_clearance: float = math.inf
    unspent: float = 0.0

    def coefficients(self, p: int) -> Floats:
        """Return the coefficients of all p columns before columns were dropped."""
        dense = np.zeros(p)
        dense[self.selected] = self.selected_beta
        return dense

    def joined(self, column: int, step: ColumnStep, *, keep: bool) -> SparseFit:
        """Return the fit with one more column after a step: among the kept columns too if `keep`."""
        change = step.change
        wider = replace(
            self,
            selected=[*self.selected, column],
            selected_beta=np.append(self.selected_beta, 0.0) + change,
            selected_errors=np.append(self.selected_errors, step.direction[-1] * step.error),
            root=step.root(self.root),
            step_sd=max(self.step_sd, step.noise),
        )
        if not keep:
            return wider
        support_beta = self.beta + change[positions(self.support, self.selected)]
        return replace(wider, support=[*self.support, column], beta=np.append(support_beta, change[-1]))


def block_sizes(selections: int, blocks: int) -> list[int]:
    """Return sizes of blocks that sum to `selections`: half of the rest each time, and the remainder last."""
    sizes: list[int] = []
    while selections > 0 and len(sizes) < blocks - 1:
        sizes.append((selections + 1) // 2)
        selections -= sizes[-1]
    return [*sizes, selections] if selections else sizes


class FitWithError(Protocol):
    """What the error of a sparse fit depends on; attributes as of `SparseFit`."""

    @property
    def efficiency(self) -> float:
        """Sampling variance of the end point relative to that of least squares or maximum likelihood."""

    @property
    def scale(self) -> float:
        """Typical size of the residuals; 1 for a logistic fit, whose curvature has it."""

    @property
    def step_sd(self) -> float:
        """Noise of the last step in whitened coordinates."""


def error_variance(fit: FitWithError, n: int) -> float:
    """Return the variance of the error of a fit in each whitened coordinate: sampling, and the last step.

    The error of the coefficients has the covariance of this many times the inverse Gram matrix of the
    columns, or the inverse Hessian.
    """
    return fit.efficiency * fit.scale**2 / n + fit.step_sd**2


def still_moving(length: float, size: int, error: float) -> bool:
    """Return whether steps of `size` coefficients have not converged: the last is longer than errors explain.

    `error` is the sd of the errors of the last two steps in each whitened coordinate.
    """
    return length > NOT_CONVERGED * math.sqrt(size) * error


State = TypeVar("State")
Fit = TypeVar("Fit")


class BlockedFit(ABC, Generic[State, Fit]):
    """A sparse fit of one loss in blocks of selections, of a curator or of sites: see `fit_blocks`."""

    @property
    @abstractmethod
    def blocks(self) -> Sequence[int]:
        """Number of columns in each block."""

    @abstractmethod
    def start(self) -> State:
        """Return the fit without columns."""

    @abstractmethod
    def cheaply_fitted(self, state: State, block: int) -> State:
        """Return the cheap fit of all previous blocks, before the selection of a further one."""

    def is_complete(self, state: State) -> bool:
        """Return whether no further block is needed."""
        return False

    @abstractmethod
    def selected(self, state: State, block: int) -> State:
        """Return the fit with the columns of a block, whose coefficients are 0."""

    @abstractmethod
    def fitted(self, state: State) -> Fit:
        """Return the full fit of all selected columns."""


def fit_blocks(loss: BlockedFit[State, Fit]) -> Fit:
    """Return a sparse fit: blocks of selections with a cheap fit between them, and a full fit."""
    state = loss.start()
    for block in range(len(loss.blocks)):
        if block:
            state = loss.cheaply_fitted(state, block)
            if loss.is_complete(state):
                break
        state = loss.selected(state, block)
    return loss.fitted(state)


def largest_positions(beta: Floats, count: int, fixed: int = 0, least: Floats | None = None) -> list[int]:
    """Return the positions, in order, of the `count` largest coefficients after the `fixed` first ones.

    With `least`, shape of beta, only of those that exceed it.
    """
    size = np.abs(beta)
    order = fixed + np.argsort(-size[fixed:], kind="stable")[:count]
    return sorted(int(i) for i in order if least is None or size[i] > least[i])


def center_response(sums: SparseSums, rho: float) -> None:
    """Release the mean of the response, twice: its bounds may be far wider than it is."""
    nothing = np.empty(0)
    label = Labels.MEAN_OF_RESPONSE
    sums.center_residual((), nothing, sums.units.y_max_abs, rho / 3.0, label)
    scale = sums.residual_scale((), nothing, rho / 3.0, Labels.FIRST_SCALE_OF_RESPONSE)
    sums.center_residual((), nothing, RESIDUAL_ROOM * scale, rho / 3.0, label)
    sums.sizes.clear()


def sparse_fit(
    sums: SparseSums,
    sparsity: int,
    budget: SparseFitPrices,
    *,
    extra: int = 2,
    blocks: int = BLOCKS,
    clip: float = PRODUCT_CLIP,
    threshold: float = 0.0,
    always: Sequence[int] = (),
    excluded: Sequence[int] = (),
    targets: Sequence[int] = (),
) -> SparseFit:
    """Return a sparse fit of the response.

    Parameters
    ----------
    sums : SparseSums
    sparsity : int
        Number of columns kept, in addition to those of `always`.
    budget : SparseFitPrices
    extra : int
        Extra columns that are selected and dropped again.
    blocks : int
        Number of blocks in which columns are selected.
    clip : float
        Where products and residuals are clipped, in multiples of the residuals' scale.
    threshold : float
        Only columns are kept whose coefficient is more than this many standard errors from zero, and columns
        are selected in blocks until fewer than `MIN_NEW_SIGNALS` of a block are; 0: the number is as stated.
    always, excluded : sequence of int
        Columns in every fit (a constant), and those that may not be selected: public choices.
    targets : sequence of int
        Columns that are in the last fit, selected or not, if they are no more than are selected.

    Notes
    -----
    **Privacy.** Spends the prices in `budget` except for the fit's `unspent`.
    """
    selections = min(sparsity + extra, int(sums.all_but([*always, *excluded]).sum()))
    open_sizes = [min(OPEN_BLOCK, selections - start) for start in range(0, selections, OPEN_BLOCK)]
    joining = targets if len(targets) <= selections else ()
    loss = LinearBlocks(
        sums=sums,
        sizes=open_sizes if threshold else block_sizes(selections, blocks),
        sparsity=sparsity,
        budget=budget,
        clip=clip,
        threshold=threshold,
        always=always,
        excluded=excluded,
        joining=joining,
    )
    return fit_blocks(loss)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LinearState:
    """A linear fit between blocks.

    Attributes
    ----------
    support : list of int
    beta : ndarray
    scale : float
        Typical size of the residuals.
    response_scale : float
        The same of the response.
    far : float
        Residuals are clipped no nearer than here.
    refit_price : float
        Price of the full fit.
    complete : bool
        Whether no further block is needed.
    doubtful : sequence of int
        Places in `support` that may be left out again, the first one first.
    unspent : float
        Unspent part of the price of sizes and scales.
    """

    support: list[int]
    beta: Floats
    scale: float
    response_scale: float
    far: float
    refit_price: float
    complete: bool = False
    doubtful: Sequence[int] = ()
    unspent: float = 0.0

    def joined(self, columns: Sequence[int]) -> LinearState:
        """Return the same fit with more columns, whose coefficients are 0."""
        beta = np.append(self.beta, np.zeros(len(columns)))
        return replace(self, support=[*self.support, *columns], beta=beta)

    def clip(self, least: float) -> float:
        """Return where residuals are clipped, in units of their scale."""
        return max(least, self.far / self.scale)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LinearBlocks(BlockedFit[LinearState, SparseFit]):
    """The fit of a linear model in blocks, with the arguments of `sparse_fit`.

    Attributes
    ----------
    sizes : list of int
        Of the blocks.
    joining : sequence of int
        Targets that are in the last fit.
    """

    sums: SparseSums
    sizes: list[int]
    sparsity: int
    budget: SparseFitPrices
    clip: float
    threshold: float
    always: Sequence[int]
    excluded: Sequence[int]
    joining: Sequence[int]

    @property
    def blocks(self) -> Sequence[int]:
        """Number of columns in each block."""
        return self.sizes

    @property
    def _parts(self) -> Floats:
        """Parts of the price of selections, by block."""
        sizes = self.sizes
        return _parts(len(sizes), 1.0) if self.threshold else np.array(sizes) / max(sum(sizes), 1)

    @property
    def _cheap(self) -> Floats:
        """Prices of the cheap fits."""
        parts = _parts(len(self.sizes) - 1, 1.0 if self.threshold else 0.0)
        return np.asarray(CHEAP_FITS * self.budget.refit * parts)

    @property
    def _size_price(self) -> float:
        """Price of the sizes of the columns of a block."""
        return self.budget.sizes / (len(self.sizes) + bool(self.joining))

    @property
    def _scale_price(self) -> float:
        """Price of one scale of the residuals."""
        return self.budget.scales / (len(self.sizes) + len(STEPS))

    def start(self) -> LinearState:
        """Return the fit without columns but those of `always`; releases the scale of the response."""
        sums = self.sums
        scale = sums.residual_scale((), np.empty(0), self._scale_price, Labels.SCALE_OF_RESPONSE)
        return LinearState(
            support=list(self.always),
            beta=np.zeros(len(self.always)),
            scale=scale,
            response_scale=scale,
            far=sums.sizes[-1].far if sums.sizes and math.isfinite(self.budget.refit) else 0.0,
            refit_price=self.budget.refit * (1.0 - CHEAP_FITS if len(self.sizes) > 1 else 1.0),
        )

    def cheaply_fitted(self, state: LinearState, block: int) -> LinearState:
        """Return the cheap fit of all previous blocks, with the scale of its residuals."""
        price = float(self._cheap[block - 1])
        clip = state.clip(self.clip)
        beta, errors = _cheap_fit(self.sums, state.support, state.beta, state.scale, clip, price)
        last = self.sizes[block - 1]
        stands_out = np.abs(beta) > self.threshold * errors
        if self.threshold and stands_out[-last:].sum() < MIN_NEW_SIGNALS:
            fixed = {*self.always, *self.joining}
            saved = float(self._parts[block:].sum()) * self.budget.selection + float(
                self._cheap[block:].sum()
            )
            return replace(
                state,
                beta=beta,
                complete=True,
                doubtful=_doubtful(np.abs(beta) / errors, self.threshold, state.support, fixed),
                refit_price=state.refit_price + saved,
                unspent=(len(self.sizes) - block) * (self._size_price + self._scale_price),
            )
        scale = self.sums.residual_scale(state.support, beta, self._scale_price, Labels.SCALE_OF_RESIDUALS)
        return replace(state, beta=beta, scale=scale)

    def is_complete(self, state: LinearState) -> bool:
        """Return whether no further block is needed."""
        return state.complete

    def selected(self, state: LinearState, block: int) -> LinearState:
        """Return the fit with the columns of a block."""
        rho = float(self._parts[block]) * self.budget.selection
        allowed = self.sums.all_but([*state.support, *self.excluded])
        size = self.sizes[block]
        bound = self.clip * state.scale
        new = self.sums.select(state.support, state.beta, bound, size, allowed, rho, Labels.SELECTION)
        self.sums.size_columns(new, self._size_price)
        return state.joined(new)

    def fitted(self, state: LinearState) -> SparseFit:
        """Return the full fit of all selected columns and the targets."""
        new = [j for j in self.joining if j not in state.support]
        self.sums.size_columns(new, self._size_price)
        unspent = state.unspent + (self._size_price if self.joining and not new else 0.0)
        state = state.joined(new)
        full_fit = _full_fit(self.sums, state, state.clip(self.clip), self._scale_price)
        fit = _select_largest(full_fit, self.sums.n, self.sparsity, self.threshold, len(self.always))
        diverged = full_fit.scale > DIVERGED * state.response_scale or full_fit.not_converged
        return replace(fit, diverged=diverged, unspent=unspent)


def _cheap_fit(
    sums: SparseSums, support: list[int], beta: Floats, scale: float, clip: float, rho: float
) -> tuple[Floats, Floats]:
    """Return the coefficients of a cheap fit, and their standard errors."""
    root = whitening(selection_gram(sums, support, CHEAP_GRAM_SHARE * rho)[0])
    noise = 0.0
    for share in CHEAP_STEPS:
        after = step(sums, support, beta, root, scale, clip, (1.0 - CHEAP_GRAM_SHARE) * share * rho)
        beta = after.beta
        noise = after.noise
        scale *= SHRINK
    return beta, math.sqrt(scale**2 / sums.n + noise**2) * np.sqrt((root**2).sum(axis=1))


def _parts(count: int, power: float) -> Floats:
    """Return parts of a price that fall as 1, 2^-power, 3^-power, ..., shape (count,)."""
    weights = np.arange(1.0, count + 1) ** -power
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _FullFit:
    """Fit of all selected columns."""

    support: list[int]
    beta: Floats
    root: Floats
    scale: float
    step_sd: float
    efficiency: float
    not_converged: bool
    gram_clearance: float


def _full_fit(sums: SparseSums, state: LinearState, clip: float, scale_price: float) -> _FullFit:
    """Return the fit of the selected columns without the doubtful ones that hide the others."""
    rho = state.refit_price
    noisy, sd = selection_gram(sums, state.support, GRAM_SHARE * rho)
    positions_above_noise = part_above_noise(noisy, sd, state.doubtful)
    noisy = noisy[np.ix_(positions_above_noise, positions_above_noise)]
    support = [state.support[i] for i in positions_above_noise]
    beta = state.beta[positions_above_noise]
    scale = state.scale
    root = whitening(noisy)
    gram_clearance = clearance(noisy, sd)
    noise = 0.0
    moved = 0.0
    for share in STEPS:
        before = noise
        after = step(sums, support, beta, root, scale, clip, (1.0 - GRAM_SHARE) * share * rho)
        beta = after.beta
        noise = after.noise
        moved = after.length
        scale = sums.residual_scale(support, beta, scale_price, Labels.SCALE_OF_RESIDUALS)
    efficiency = step_efficiency(len(support), clip, rho)
    moving = still_moving(moved, len(support), math.hypot(before, noise))
    not_converged = math.isfinite(rho) and (moving or gram_clearance < MIN_CLEARANCE)
    return _FullFit(
        support=support,
        beta=beta,
        root=root,
        scale=scale,
        step_sd=noise,
        efficiency=efficiency,
        not_converged=not_converged,
        gram_clearance=gram_clearance,
    )


def _select_largest(full: _FullFit, n: int, sparsity: int, threshold: float, fixed: int) -> SparseFit:
    """Return the `sparsity` largest significant coefficients, and the fixed ones."""
    beta = full.beta
    support = full.support
    errors = np.sqrt(error_variance(full, n) * (full.root**2).sum(axis=1))
    places = [*range(fixed), *largest_positions(beta, sparsity, fixed, threshold * errors)]
    beta_of_places = beta[places]
    if fixed:
        # A constant that was fitted together with a skewed column lacks its mean once the column is dropped.
        dropped = np.setdiff1d(np.arange(len(beta)), places)
        gram = np.linalg.inv(full.root @ full.root.T)[:fixed]
        beta_of_places[:fixed] += np.linalg.solve(gram[:, :fixed], gram[:, dropped] @ beta[dropped])
    return SparseFit(
        support=[support[i] for i in places],
        beta=beta_of_places,
        selected=list(support),
        selected_beta=beta,
        scale=full.scale,
        step_sd=full.step_sd,
        efficiency=full.efficiency,
        selected_errors=errors,
        root=full.root,
        gram_clearance=full.gram_clearance,
    )


def _doubtful(size: Floats, threshold: float, support: list[int], fixed: set[int]) -> list[int]:
    """Return the places of columns, but the fixed, whose `size` is at most the threshold, the least first."""
    order = np.argsort(size, kind="stable")
    return [int(i) for i in order if size[i] <= threshold and support[i] not in fixed]


def part_above_noise(gram: Floats, sd: float, doubtful: Sequence[int]) -> list[int]:
    """Return the positions in a Gram matrix without the fewest doubtful ones, in order, that hide it.

    Returns all positions if the matrix is above its noise, or if no removal of doubtful ones makes it so.
    """
    places = list(range(len(gram)))
    for out in [None, *doubtful]:
        places = [i for i in places if i != out]
        if not places:
            break
        if clearance(gram[np.ix_(places, places)], sd) >= MIN_CLEARANCE:
            return places
    return list(range(len(gram)))


def selection_gram(
    sums: SparseSums, support: list[int], rho: float, root: Floats | None = None
) -> tuple[Floats, float]:
    """Return the noisy Gram matrix of columns, or of them whitened by a `root`, and its sd."""
    norm = gram_norm(len(support), rho)
    return sums.gram(support, norm, rho, Labels.GRAM_OF_SELECTION, transform=root)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClippedStep:
    """Coefficients after a clipped step; in whitened coordinates its variance, noise (an sd) and length."""

    beta: Floats
    variance: float
    noise: float
    length: float


def step(
    sums: SparseSums, support: list[int], beta: Floats, root: Floats, scale: float, clip: float, rho: float
) -> ClippedStep:
    """Return a clipped preconditioned step of all coefficients, residuals clipped at `clip` scales."""
    radii = step_radii(len(support), clip, rho)
    return clipped_step(sums, support, beta, range(len(support)), root, scale, radii, rho)


def steps(
    sums: SparseSums,
    support: list[int],
    beta: Floats,
    root: Floats,
    scale: float,
    clip: float,
    prices: Sequence[float],
) -> list[ClippedStep]:
    """Return such steps one after the other, each at its price."""
    taken: list[ClippedStep] = []
    for price in prices:
        taken.append(step(sums, support, beta, root, scale, clip, price))
        beta = taken[-1].beta
    return taken


def clipped_step(
    sums: SparseSums,
    support: Sequence[int],
    beta: Floats,
    free: Sequence[int],
    root: Floats,
    scale: float,
    radii: tuple[float, float],
    rho: float,
) -> ClippedStep:
    """Return a clipped preconditioned step of the free coefficients; `radii` are C and R, R in scales."""
    norm, bound = radii
    size = len(free)
    score = Score(
        columns=[support[i] for i in free],
        transform=root,
        norm=norm,
        residual=bound * scale,
        support=support,
        beta=beta,
    )
    mean, noise = sums.score(score, rho, Labels.STEP_OF_REFIT)
    slope = step_slope(norm, bound, size)
    square = norm_moments(norm, size)[1] * residual_moments(bound)[1]
    moved = beta.copy()
    moved[list(free)] += root @ mean / slope
    return ClippedStep(
        beta=moved,
        variance=float((square * scale**2 / sums.n + noise**2) / slope**2),
        noise=noise / slope,
        length=float(np.linalg.norm(mean)) / slope,
    )
