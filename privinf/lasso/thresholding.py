r"""Private hard thresholding: a sparse linear fit from blocks of selections and clipped preconditioned steps.

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

whose sum over records has the l2 sensitivity 2 C R before the preconditioner. The end point solves
E[v psi_R(r)] = 0: the noise of G~ changes the path, not the solution. If a response has two values, no
residual is clipped: clipping would affect the rarer value, whose rate depends on x, and shrink coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privinf.lasso.coordinates import Score
from privinf.lasso.precision import clearance, floored
from privinf.lasso.prices import SparseFitPrices
from privinf.lasso.radii import step_efficiency, step_radii, step_slope
from privinf.lasso.sums import RESIDUAL_ROOM, SparseSums
from privinf.typing import Floats, Integers
from privinf.wire import Labels

PRODUCT_CLIP = 1.5  # of products for selections, and of residuals in a step, in units of the residuals' scale
BLOCKS = 3  # of selections, where their number is given (`block_sizes`)
OPEN_BLOCK = 5  # columns in a block, where their number is to be chosen
MIN_NEW_SIGNALS = 3  # selection ends when fewer columns of a block than these stand out
# A Gram matrix shrinks rows to |x|^2 <= 1.4 k: k columns in units of their sizes have |x|^2 = k on average.
GRAM_ROOM = 1.4
STEPS = (0.1, 0.15, 0.25, 0.5)  # shares of the steps' price; the last step decides the noise
CHEAP_STEPS = (0.5, 0.5)  # the same in the fits between blocks
GRAM_SHARE = 0.25  # share of a fit's price for its Gram matrix
CHEAP_GRAM_SHARE = 0.4  # the same in the fits between blocks
CHEAP_FITS = 0.25  # share of the price of all fits for those between blocks
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
    p = len(sums.units.scale)
    allowed = np.ones(p, dtype=bool)
    allowed[[*always, *excluded]] = False
    selections = min(sparsity + extra, int(allowed.sum()))
    open_sizes = [min(OPEN_BLOCK, selections - start) for start in range(0, selections, OPEN_BLOCK)]
    sizes = open_sizes if threshold else block_sizes(selections, blocks)
    joining = targets if len(targets) <= selections else ()
    price = budget.sizes / (len(sizes) + bool(joining))
    parts = _parts(len(sizes), 1.0) if threshold else np.array(sizes) / max(selections, 1)
    cheap = CHEAP_FITS * budget.refit * _parts(len(sizes) - 1, 1.0 if threshold else 0.0)
    scale_price = budget.scales / (len(sizes) + len(STEPS))
    support = list(always)
    beta = np.zeros(len(always))
    unspent = 0.0
    doubtful: Sequence[int] = ()
    scale = first = sums.residual_scale((), np.empty(0), scale_price, Labels.SCALE_OF_RESPONSE)
    far = sums.sizes[-1].far if sums.sizes and math.isfinite(budget.refit) else 0.0
    refit_price = budget.refit * (1.0 - CHEAP_FITS if len(sizes) > 1 else 1.0)
    for block, size in enumerate(sizes):
        if block:
            rho = float(cheap[block - 1])
            beta, errors = _cheap_fit(sums, support, beta, scale, max(clip, far / scale), rho)
            if threshold and (np.abs(beta) > threshold * errors)[-sizes[block - 1] :].sum() < MIN_NEW_SIGNALS:
                doubtful = _doubtful(np.abs(beta) / errors, threshold, support, {*always, *joining})
                refit_price += float(parts[block:].sum()) * budget.selection + float(cheap[block:].sum())
                unspent = (len(sizes) - block) * (price + scale_price)
                break
            scale = sums.residual_scale(support, beta, scale_price, Labels.SCALE_OF_RESIDUALS)
        rho = float(parts[block]) * budget.selection
        new = sums.select(support, beta, clip * scale, size, allowed, rho, Labels.SELECTION)
        sums.size_columns(new, price)
        allowed[new] = False
        support = support + new
        beta = np.append(beta, np.zeros(size))
    new = [j for j in joining if j not in support]
    sums.size_columns(new, price)
    unspent += price if joining and not new else 0.0
    support = support + new
    beta = np.append(beta, np.zeros(len(new)))
    full_fit = _full_fit(
        sums, support, beta, scale, max(clip, far / scale), refit_price, scale_price, doubtful
    )
    fit = _select_largest(full_fit, sums.n, sparsity, threshold, len(always))
    return replace(fit, diverged=full_fit.scale > DIVERGED * first or full_fit.not_converged, unspent=unspent)


def _cheap_fit(
    sums: SparseSums, support: list[int], beta: Floats, scale: float, clip: float, rho: float
) -> tuple[Floats, Floats]:
    """Return the coefficients of a cheap fit, and their standard errors."""
    root = _whitening(selection_gram(sums, support, CHEAP_GRAM_SHARE * rho)[0])
    noise = 0.0
    for share in CHEAP_STEPS:
        beta, noise = step(sums, support, beta, root, scale, clip, (1.0 - CHEAP_GRAM_SHARE) * share * rho)
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


def _full_fit(
    sums: SparseSums,
    support: list[int],
    beta: Floats,
    scale: float,
    clip: float,
    rho: float,
    price: float,
    doubtful: Sequence[int] = (),
) -> _FullFit:
    """Return the fit of the selected columns without those of the `doubtful` that hide the others."""
    noisy, sd = selection_gram(sums, support, GRAM_SHARE * rho)
    positions_above_noise = part_above_noise(noisy, sd, doubtful)
    noisy = noisy[np.ix_(positions_above_noise, positions_above_noise)]
    support = [support[i] for i in positions_above_noise]
    beta = beta[positions_above_noise]
    root = _whitening(noisy)
    gram_clearance = clearance(noisy, sd)
    noise = 0.0
    moved = 0.0
    for share in STEPS:
        before = noise
        start = beta
        beta, noise = step(sums, support, beta, root, scale, clip, (1.0 - GRAM_SHARE) * share * rho)
        moved = float(np.linalg.norm(np.linalg.solve(root, beta - start)))
        scale = sums.residual_scale(support, beta, price, Labels.SCALE_OF_RESIDUALS)
    tolerance = NOT_CONVERGED * math.sqrt(len(support)) * math.hypot(before, noise)
    efficiency = step_efficiency(len(support), clip, rho)
    not_converged = math.isfinite(rho) and (moved > tolerance or gram_clearance < MIN_CLEARANCE)
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
    order = fixed + np.argsort(-np.abs(beta[fixed:]), kind="stable")[:sparsity]
    variance = full.efficiency * full.scale**2 / n + full.step_sd**2
    errors = np.sqrt(variance * (full.root**2).sum(axis=1))
    order = order[np.abs(beta[order]) > threshold * errors[order]]
    places = np.concatenate([np.arange(fixed), np.sort(order)]).astype(int)
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
    norm = math.inf if math.isinf(rho) else math.sqrt(GRAM_ROOM * len(support))
    return sums.gram(support, norm, rho, Labels.GRAM_OF_SELECTION, transform=root)


def _whitening(noisy: Floats) -> Floats:
    """Return R of ``R R' ~ G^-1`` from a noisy Gram matrix G."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(floored(noisy))).T)


def step(
    sums: SparseSums, support: list[int], beta: Floats, root: Floats, scale: float, clip: float, rho: float
) -> tuple[Floats, float]:
    """Return the coefficients after one clipped preconditioned step, and its noise in whitened units."""
    norm, bound = step_radii(len(support), clip, rho)
    score = Score(
        columns=support, transform=root, norm=norm, residual=bound * scale, support=support, beta=beta
    )
    mean, noise = sums.score(score, rho, Labels.STEP_OF_REFIT)
    slope = step_slope(norm, bound, len(support))
    return np.asarray(beta + root @ mean / slope), noise / slope


def error_covariance(inverse: Floats, fit: SparseFit, n: int) -> Floats:
    """Return the covariance of the error of a fit from the inverse Gram matrix of its support."""
    return np.asarray((fit.efficiency * fit.scale**2 / n + fit.step_sd**2) * inverse)


def positions(columns: Sequence[int], union: Sequence[int]) -> Integers:
    """Return the positions of columns in a union."""
    place = {column: position for position, column in enumerate(union)}
    return np.array([place[column] for column in columns], dtype=np.int64)
