r"""A sparse logistic fit: peeled columns, and Newton steps on the weighted score.

1. The rate of the response is released; the model of a constant alone has its logit as intercept.
2. Half of the columns are selected by peeling ``|sum clip(x_j, B / q) e|``
   (`privinf.mechanisms.statistics.regression`), B = 1.5 sd(y); |y - m| <= 1 needs no scale of residuals.
3. They are fitted cheaply, and the other half is selected on the residuals.
4. All are fitted, and the `sparsity` largest of slightly more columns are kept.

A fit takes one noisy matrix H = L L' of the curvature on (1, x_S), v = L^-1 (1, x_S), and steps

    theta <- theta + L^-T mean[w v e] / (A1 h),

A1 the slope of weighted scores and h the mean curvature now over that where H was taken
(`privinf.lasso.radii`). The end solves E w v e = 0, whose root is the model's truth for any weights
in x: the noise of H changes the way there, not the place. A step's sensitivity is 2 B before L^-T. Around the
end a coefficient's error has the covariance (q / n + t^2) H^-1, q = A2 / A1^2 the price of the weights and t
the noise of the last step. Without noise H is computed again at every step until convergence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privinf.errors import ConvergenceError, NotAvailableError
from privinf.lasso.fit import (
    MIN_CLEARANCE,
    BlockedFit,
    ColumnStep,
    block_sizes,
    error_variance,
    fit_blocks,
    largest_positions,
    still_moving,
)
from privinf.lasso.plan import SparseFitPrices
from privinf.lasso.precision import clearance, whitening
from privinf.lasso.radii import MOST_ROWS, UNCLIPPED, WIDEST, Spread, curvature_bound, weights_of
from privinf.lasso.sums import Directions, HiddenByNoise, LogisticSums, NoisyMean, Point
from privinf.typing import Floats
from privinf.wire import Labels

PEELS = 2  # blocks in which columns are selected, with a fit after each: halves (step 2 above)
SPARE = 2  # columns selected beyond `sparsity`, of which the largest are kept (step 4 above)
FIRST_MATRIX_SHARE = 0.3  # share of a matrix's price for its first release
SMALLEST_VALUE = 0.01  # eigenvalues of the first release are at least this share of their mean
LEAST_ENERGY = 0.25  # smallest share of |v|^2 that is assumed to remain after the first release
MATRIX_SHARE = 0.25  # share of a fit's price for its matrix; the rest is for its steps
STEP_SHARES = (0.15, 0.25, 0.6)  # of the steps' price in the last fit; the last step decides the noise
CHEAP_STEP_SHARES = (0.4, 0.6)  # of the steps' price in the fits between blocks
CHEAP_FIT = 0.25  # share of the price of all fits for those between blocks
LARGEST_MOVE = 2.0  # of the predictor in one step, root mean square
MOST_STEPS = 100  # Newton steps without noise
SMALLEST_CHANGE = 1e-10  # of any coefficient; below it Newton's method without noise has converged
FEWEST_SDS = 8.0  # fewer responses of the rarer kind than this many sds of their number's noise are too few
SHAKY = 0.6  # a fit is marked if noise of its last step moves the predictor by more, root mean square
HOPELESS = 1.2  # the fit is refused beyond this: one step cannot repair a distant start
TOO_FEW = (
    "{} for {} columns: the noise of the last step alone would move the linear predictor "
    "by {:.1f} (root mean square). Keep fewer columns, or increase the budget"
)
TOO_RARE = (
    "one of the two outcomes is too rare for this budget (the noisy rate of the response is {:.2g}, and its "
    "noise has standard deviation {:.2g}): increase the budget, or use more rows"
)
SHAKY_SIGN = "the noise of the last step moves the linear predictor by {:.1f} (root mean square)"
UNSETTLED_SIGN = "the iterations did not converge (the last step was large)"
WEAK_MATRIX = "the noise of the Gram matrix of the selected columns is as large as the matrix"
WIDE_SIGN = "the selected columns nearly separate the two outcomes"


def last_step_price(prices: SparseFitPrices, blocks: int = PEELS) -> float:
    """Return the price of the last step."""
    return full_fit_price(prices, blocks) * (1.0 - MATRIX_SHARE) * STEP_SHARES[-1]


def full_fit_price(prices: SparseFitPrices, blocks: int) -> float:
    """Return the price of the fit of all selected columns."""
    return prices.refit * (1.0 - CHEAP_FIT if blocks > 1 else 1.0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SharedStart:
    """Where the fit of a site starts: at the kept columns of a fit of all rows.

    Attributes
    ----------
    point : Point
    spread : Spread
        Rate of the response in all rows, and sd of the predictor.
    """

    point: Point
    spread: Spread

    @classmethod
    def from_fit(cls, fit: LogisticFit) -> SharedStart:
        """Return the start at the kept columns of a fit, whose intercept takes up the dropped ones."""
        point = Point(fit.support, fit.point.beta[fit.kept_positions], fit.intercept_of_selected)
        return cls(point=point, spread=fit.spread)

    def at_rate(self, rate: float) -> LogisticState:
        """Return the point at a site's rate of the response, which moves the intercept alone."""
        spread = Spread(rate, self.spread.sd)
        return LogisticState(
            point=replace(self.point, intercept=self.point.intercept + spread.level - self.spread.level),
            spread=spread,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogisticFit:
    """A released sparse fit, in the units of its sums.

    Attributes
    ----------
    point : Point
        Of all selected columns: where debiasing starts.
    kept_positions : list of int
        Positions in its support of the columns that are kept.
    spread : Spread
    step_sd : float
        Noise of the last step in whitened coordinates.
    efficiency : float
        q.
    root : ndarray, shape (1 + picked, 1 + picked)
        L^-T.
    signs : tuple of str
        Warning signs of the fit.
    """

    point: Point
    kept_positions: list[int]
    spread: Spread
    step_sd: float
    efficiency: float
    root: Floats
    signs: tuple[str, ...] = ()

    @property
    def scale(self) -> float:
        """1: the curvature has the size of the residuals."""
        return 1.0

    @property
    def selected(self) -> list[int]:
        """All selected columns."""
        return self.point.support

    def joined(self, column: int, step: ColumnStep, *, keep: bool) -> LogisticFit:
        """Return the fit with one more column after a step: among the kept columns too if `keep`."""
        theta = np.append(self.point.all_coefficients, 0.0) + step.change
        sd = math.hypot(self.spread.sd, step.length / math.sqrt(self.spread.curvature))
        return replace(
            self,
            point=Point([*self.selected, column], theta[1:], float(theta[0])),
            kept_positions=[*self.kept_positions, len(self.selected)] if keep else self.kept_positions,
            spread=Spread(self.spread.rate, min(sd, WIDEST)),
            step_sd=max(self.step_sd, step.noise),
            root=step.root(self.root),
        )

    @property
    def support(self) -> list[int]:
        """Kept columns."""
        return [self.point.support[i] for i in self.kept_positions]

    def ratios(self, n: int) -> dict[int, float]:
        """Return the ratios of coefficients to standard errors of all selected columns."""
        return dict(zip(self.point.support, (np.abs(self.point.beta) / self.errors(n)).tolist(), strict=True))

    @property
    def intercept_of_selected(self) -> float:
        """The intercept, plus the curvature-weighted mean of the dropped columns."""
        weights = np.linalg.inv(self.root @ self.root.T)[0]
        dropped = np.setdiff1d(np.arange(len(self.point.beta)), self.kept_positions)
        return float(self.point.intercept + weights[1 + dropped] @ self.point.beta[dropped] / weights[0])

    def errors(self, n: int) -> Floats:
        """Return the standard errors of the coefficients of all selected columns."""
        return np.asarray(np.sqrt(np.diag(error_variance(self, n) * (self.root @ self.root.T)))[1:])


def sparse_logistic(
    sums: LogisticSums,
    sparsity: int,
    budget: SparseFitPrices,
    *,
    clip: float,
    blocks: int = PEELS,
    threshold: float = 0.0,
    targets: Sequence[int] = (),
    excluded: Sequence[int] = (),
    shared: SharedStart | None = None,
) -> LogisticFit:
    """Return a sparse logistic fit.

    Parameters
    ----------
    sums : LogisticSums
    sparsity : int
        Number of columns kept, in addition to those of `shared`.
    budget : SparseFitPrices
    clip : float
        B of the products in multiples of the response's sd.
    blocks : int
        Number of blocks in which columns are selected.
    threshold : float
        Columns are kept if their coefficients are more than this many standard errors from zero.
    targets : sequence of int
        Columns that are in the last fit, selected or not: a debiasing step from 0 would be long.
    excluded : sequence of int
        Columns that may not be selected, such as one of ones.
    shared : SharedStart, optional
        Where the fit starts, and columns that are in it; default: a constant alone.

    Raises
    ------
    TooRareResponse
        The response is too rare for the noise; nothing but its rate was released.

    Notes
    -----
    **Privacy.** Spends the prices in `budget`.
    """
    fixed = [] if shared is None else shared.point.support
    selections = min(sparsity + SPARE, int(sums.sparse.all_but([*fixed, *excluded]).sum()))
    return fit_blocks(
        LogisticBlocks(
            sums=sums,
            sizes=block_sizes(selections, blocks),
            sparsity=sparsity,
            budget=budget,
            clip=clip,
            threshold=threshold,
            targets=targets,
            excluded=excluded,
            shared=shared,
        )
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogisticState:
    """A logistic fit between blocks, and the distribution of its predictor with the response's rate."""

    point: Point
    spread: Spread


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogisticBlocks(BlockedFit[LogisticState, LogisticFit]):
    """The fit of a logistic model in blocks of `sizes`, with the arguments of `sparse_logistic`."""

    sums: LogisticSums
    sizes: list[int]
    sparsity: int
    budget: SparseFitPrices
    clip: float
    threshold: float
    targets: Sequence[int]
    excluded: Sequence[int]
    shared: SharedStart | None

    @property
    def fixed(self) -> int:
        """Number of columns that the fit starts with."""
        return 0 if self.shared is None else len(self.shared.point.support)

    @property
    def blocks(self) -> Sequence[int]:
        """Number of columns in each block."""
        return self.sizes

    def start(self) -> LogisticState:
        """Return the fit of a constant alone, or of the shared columns; releases the rate of the response."""
        spread = Spread(_rate(self.sums, self.budget.rate))
        columns = self.fixed + sum(self.sizes) + len(self.targets)
        price = last_step_price(self.budget, len(self.sizes))
        if reason := too_noisy(spread, self.sums.n, columns, price):
            raise TooRareResponse(reason, spread.rate)
        if self.shared is not None:
            return self.shared.at_rate(spread.rate)
        return LogisticState(point=Point([], np.empty(0), spread.level), spread=spread)

    def cheaply_fitted(self, state: LogisticState, block: int) -> LogisticState:
        """Return the cheap fit of all previous blocks."""
        price = CHEAP_FIT * self.budget.refit / max(len(self.sizes) - 1, 1)
        fit = _fitted(self.sums, state.point, state.spread, price, CHEAP_STEP_SHARES)
        return replace(state, point=fit.point, spread=fit.spread)

    def selected(self, state: LogisticState, block: int) -> LogisticState:
        """Return the fit with the columns of a block."""
        sums = self.sums
        budget = self.budget
        size = self.sizes[block]
        selections = sum(self.sizes)
        allowed = sums.sparse.all_but([*state.point.support, *self.excluded])
        price = budget.selection * size / selections
        rate = state.spread.rate
        bound = self.clip * math.sqrt(rate * (1.0 - rate))
        new, _ = sums.select(state.point, bound, size, allowed, price)
        sums.sparse.size_columns(new, budget.sizes / len(self.sizes) / 2.0)
        return replace(state, point=state.point.joined(new))

    def fitted(self, state: LogisticState) -> LogisticFit:
        """Return the full fit of all selected columns and the targets."""
        at = state.point.joined([j for j in self.targets if j not in state.point.support])
        self.sums.sparse.size_columns(at.support, self.budget.sizes / 2.0)
        price = full_fit_price(self.budget, len(self.sizes))
        fit = _fitted(self.sums, at, state.spread, price, STEP_SHARES)
        least = self.threshold * fit.errors(self.sums.n)
        largest = largest_positions(fit.point.beta, self.sparsity, self.fixed, least=least)
        return replace(fit, kept_positions=[*range(self.fixed), *largest])


def predictor_noise(spread: Spread, n: int, columns: int, rho: float) -> float:
    """Return what the noise of a step of price `rho` moves the predictor by, root mean square."""
    if math.isinf(rho):
        return 0.0
    weights = weights_of(spread, columns + 1, n, rho)
    noise = 2.0 * weights.score / (n * math.sqrt(2.0 * rho) * weights.slope)
    return noise * math.sqrt((columns + 1) / spread.curvature)


def check_room(n: int, columns: int, budget: SparseFitPrices, blocks: int) -> None:
    """Raise NotAvailableError where not even a rate of one half would leave a fit: of public numbers."""
    if math.isfinite(budget.rate) and n * math.sqrt(2.0 * budget.rate) < 2.0 * FEWEST_SDS:
        raise NotAvailableError(
            f"{n} rows are too few for this budget: use more rows, or increase the budget"
        )
    if reason := too_noisy(Spread(0.5), n, columns, last_step_price(budget, blocks)):
        raise NotAvailableError(reason)


def too_noisy(spread: Spread, n: int, columns: int, rho: float) -> str:
    """Return why the noise of the last step leaves no fit; empty where it leaves one."""
    moved = predictor_noise(spread, n, columns, rho)
    if moved <= HOPELESS:
        return ""
    positives = n * min(spread.rate, 1.0 - spread.rate)
    return TOO_FEW.format(f"about {positives:.0f} rows of the rarer response are too few", columns, moved)


class TooRareResponse(HiddenByNoise):
    """One of the two responses is too rare; the `rate` of the response is all that was released."""

    def __init__(self, reason: str, rate: float) -> None:
        super().__init__(reason)
        self.rate = rate


def _rate(sums: LogisticSums, rho: float) -> float:
    """Release the rate of the response."""
    release = sums.rate(rho)
    rate = float(release.mean[0])
    lowest = max(FEWEST_SDS * release.sd, 1.0 / sums.n)
    if not lowest < rate < 1.0 - lowest:
        end = 1.0 / max(sums.n, 2)  # a site can have one row
        raise TooRareResponse(TOO_RARE.format(rate, release.sd), min(max(rate, end), 1.0 - end))
    return rate


def _fitted(sums: LogisticSums, at: Point, spread: Spread, rho: float, steps: Sequence[float]) -> LogisticFit:
    """Return the fit of the columns of a point, from that point."""
    if math.isinf(rho):
        return _converged(sums, at, spread)
    size = 1 + len(at.support)
    root, clearance_of_hessian, spread, before = _whitened(sums, at, spread, MATRIX_SHARE * rho)
    noise = moved = 0.0
    for share in steps:
        last = noise
        price = (1.0 - MATRIX_SHARE) * share * rho
        weights = weights_of(spread, size, sums.n, price)
        slope = weights.slope * spread.curvature / before
        score = sums.score(at, Directions(at.support, root), weights, price, Labels.STEP_OF_REFIT)
        move = score.mean / slope
        noise = score.sd / slope
        moved = float(np.linalg.norm(move))
        longest = LARGEST_MOVE * math.sqrt(spread.curvature)
        theta = at.all_coefficients + root @ move * min(1.0, longest / max(moved, longest))
        at = Point(at.support, theta[1:], float(theta[0]))
        spread = _spread(at, spread, root)
    signs = [UNSETTLED_SIGN] * still_moving(moved, size, math.hypot(last, noise))
    signs += [WEAK_MATRIX] * (clearance_of_hessian < MIN_CLEARANCE) + [WIDE_SIGN] * (spread.sd >= WIDEST)
    shaken = noise * math.sqrt(size / spread.curvature)
    signs += [SHAKY_SIGN.format(shaken)] * (shaken > SHAKY)
    efficiency = weights.square / weights.slope**2
    return LogisticFit(
        point=at,
        kept_positions=[],
        spread=spread,
        step_sd=noise,
        efficiency=efficiency,
        root=root,
        signs=tuple(signs),
    )


def _whitened(
    sums: LogisticSums, at: Point, spread: Spread, rho: float
) -> tuple[Floats, float, Spread, float]:
    """Return L^-T of the noisy H at a point, its clearance, the spread and the mean curvature there."""
    first, noisy = two_stage_hessian(sums, at, at.support, spread, rho, Labels.MATRIX_OF_SELECTION)
    root = first @ whitening(noisy.mean)
    spread = _spread(at, spread, root)
    return root, clearance(noisy.mean, noisy.sd), spread, spread.curvature


def two_stage_hessian(
    sums: LogisticSums, at: Point, columns: list[int], spread: Spread, rho: float, label: str
) -> tuple[Floats, NoisyMean]:
    """Return F and the noisy mean of w c v v', v = F'z: F whitens z by a first release of its Hessian.

    Eigenvalues below the edge of the first release's noise are raised to it: these directions have less than
    their share of |v|^2, and K of the second release is that much lower.
    """
    size = 1 + len(columns)
    plain = Directions(columns, np.eye(size))
    if math.isinf(rho):
        return plain.matrix, sums.hessian(at, plain, UNCLIPPED, rho, label)
    top = curvature_bound(spread, size, MOST_ROWS)
    rough = sums.hessian(
        at, plain, top * spread.curvature, FIRST_MATRIX_SHARE * rho, Labels.ITS_FIRST_LOOK.format(label=label)
    )
    values, vectors = np.linalg.eigh(rough.mean)
    raised = np.maximum(values, max(rough.sd * math.sqrt(2.0 * size), SMALLEST_VALUE * float(values.mean())))
    whitening = np.asarray(vectors / np.sqrt(raised))
    share = float(np.clip((values / raised).mean(), LEAST_ENERGY, 1.0))
    second = Directions(columns, whitening)
    return whitening, sums.hessian(at, second, share * top, (1.0 - FIRST_MATRIX_SHARE) * rho, label)


def _spread(at: Point, spread: Spread, root: Floats) -> Spread:
    """Return the spread of the predictor at a point, by the covariance of its columns in H."""
    inverse = (root @ root.T)[1:, 1:]
    if not len(inverse):
        return spread
    variance = float(at.beta @ np.linalg.solve(inverse, at.beta)) / spread.curvature
    return Spread(spread.rate, min(math.sqrt(max(variance, 0.0)), WIDEST))


def _converged(sums: LogisticSums, at: Point, spread: Spread) -> LogisticFit:
    """Return the maximum of the likelihood on the columns of a point, without noise."""
    none = weights_of(spread, 1, sums.n, math.inf)
    size = 1 + len(at.support)
    plain = Directions(at.support, np.eye(size))
    for _ in range(MOST_STEPS):
        hessian = sums.hessian(at, plain, none.curvature, math.inf, Labels.MATRIX_OF_SELECTION).mean
        score = sums.score(at, plain, none, math.inf, Labels.STEP_OF_REFIT).mean
        try:
            root = np.asarray(np.linalg.inv(np.linalg.cholesky(hessian)).T)
        except np.linalg.LinAlgError:
            break
        move = root.T @ score
        longest = LARGEST_MOVE * math.sqrt(spread.curvature)
        moved = float(np.linalg.norm(move))
        change = root @ move * min(1.0, longest / max(moved, longest))
        theta = at.all_coefficients + change
        at = Point(at.support, theta[1:], float(theta[0]))
        if np.abs(change).max() < SMALLEST_CHANGE:
            return LogisticFit(
                point=at,
                kept_positions=[],
                spread=_spread(at, spread, root),
                step_sd=0.0,
                efficiency=1.0,
                root=root,
            )
    raise ConvergenceError(
        f"Newton's method did not converge in {MOST_STEPS} rounds: the coefficients may be infinite"
    )
