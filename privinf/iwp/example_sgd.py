"""IWP-SGD: stochastic gradient descent on released examples, with intervals for averaged iterates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.inference.estimate import is_positive_definite
from privinf.inference.solution import sandwich
from privinf.iwp.equation import ExampleScores
from privinf.iwp.forms import ConditionalForm, ExponentialForm, PoissonForm
from privinf.iwp.newton import has_stable_bread
from privinf.iwp.nonlinear import SIGNED
from privinf.iwp.root import regression_calibration
from privinf.iwp.sgd import BATCH, Gradient, Schedule, SGDPath, default_decay, sgd, theory_step
from privinf.iwp.transforms import series_coefficients
from privinf.typing import Floats, Integers
from privinf.validation import as_generator, check_array

BURN_IN = 0.2  # share of the steps that averages leave out, by default
# The average of iterates that started away from the root is biased; intervals are given while that bias is
# estimated below this many standard errors.
LARGEST_MEMORY = 0.25
LAST_ITERATE = (
    "the last iterate of stochastic gradient descent has no standard errors, because its error "
    "depends on the last steps as much as on the records: use average=True, or method='newton'"
)
PROJECTED = (
    "the iterates were projected onto the ball of radius theta_radius= late in the pass, so their "
    "average has no known covariance; use a larger theta_radius, a smaller step, or "
    "method='newton'"
)
REMEMBERS = (
    "the average still depends on the starting values, because {share:.2g} of their "
    "distance to the solution remains ({bias:.2g} standard errors); use a larger step, a "
    "smaller batch, or method='newton'"
)
SKIPPED = "some gradients were not finite and were ignored: use a smaller theta_radius, or method='newton'"
NOT_PD = (
    "the derivative of the score is not positive definite at the average of the iterates: the noise "
    "leaves too little signal"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExampleSGD:
    """Result of one pass over released examples.

    Attributes
    ----------
    params : (p,) array
        The average of the iterates, or the last one.
    cov : (p, p) array or None
        Covariance of the average; None where there is none.
    reason : str
        Why there is no covariance; empty otherwise.
    path : SGDPath
    schedule : Schedule
    """

    params: Floats
    cov: Floats | None
    reason: str
    path: SGDPath
    schedule: Schedule


def fit_sgd(
    system: ExampleScores,
    *,
    theta_radius: float | None,
    batch: int = BATCH,
    step: float | None = None,
    decay: float | None = None,
    average: bool = False,
    burn_in: float | None = None,
    start: ArrayLike | None = None,
    public_seed: int | None = None,
    keep: int = 0,
) -> ExampleSGD:
    r"""Minimize the corrected loss of released examples in one pass.

    Parameters
    ----------
    system : ExampleScores
        Its ridge penalty is part of the loss.
    theta_radius : float
        Radius of the ball of coefficients, scaled units; required.
    batch : int, default 128
    step : float, optional
        First step; default: the paper's choice from the curvature and variance at the start, see
        `theory_step`.
    decay : float, optional
        Steps fall like t^-decay; default 0, and 0.6 with averaging.
    average : bool
        Average the iterates, with intervals for the average.
    burn_in : float, optional
        Share of the batches that the average leaves out; default 0.2.
    start : (p,) array, optional
        Default zero, the paper's; with averaging regression calibration.
    public_seed : int, optional
        Shuffle the records first. None keeps their order, which must then be independent of their values.
    keep : int
        Keep about this many iterates for a picture of the pass.

    Raises
    ------
    ArgumentError
        For an unbounded ball, or an option out of range.
    ConvergenceError
        No curvature at the start to choose the step by.

    Notes
    -----
    The average of the iterates is asymptotically normal with the covariance of the root of the corrected
    score (Polyak and Juditsky): ``J^-1 Cov(psi) J^-T / n``, n the records behind the average. J and Cov(psi)
    are plugged in at the average, over all records (the plug-in estimator of Chen et al.): the release is
    public, so a second pass costs nothing. The theory neglects how far the start was from the root: hence the
    start near the root and the burn-in, and no covariance where by the curvature at the average its memory of
    the start exceeds a quarter of a standard error.

    **Privacy.** Post-processing.

    References
    ----------
    Paper, Algorithm 1 and theorem 5.5; Polyak, B. T. and Juditsky, A. B. (1992), SIAM Journal on Control and
    Optimization 30, 838-855; Chen, X., Lee, J. D., Tong, X. T. and Zhang, Y. (2020), Annals of Statistics 48,
    251-273.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (100_000, 1))
    >>> noisy = x + 0.5 * rng.standard_normal(x.shape)
    >>> system = ExampleScores(noisy, x[:, 0], [0.25], loss="squared", correction="exact")
    >>> fit = fit_sgd(system, theta_radius=5.0, average=True)
    >>> bool(abs(fit.params[0] - 1.0) < 4 * fit.cov[0, 0] ** 0.5)
    True
    """
    if public_seed is not None:
        system = _shuffled(system, as_generator(public_seed, "public_seed").permutation(system.n))
    if start is None:
        start = regression_calibration(system) if average else np.zeros(system.p)
    point = check_array(start, "start", ndim=1)
    if point.shape != (system.p,):
        raise ArgumentError(
            f"start= must have {system.p} values, one for each coefficient, got {point.size} values"
        )
    if burn_in is None:
        burn_in = BURN_IN if average else 0.0
    if step is None:
        step = theory_step(
            system.jacobian(point),
            system.meat(point),
            n=system.n,
            batch=batch,
            theta_radius=theta_radius,
            decay=default_decay(average) if decay is None else decay,
        )
    schedule = Schedule.checked(step=step, batch=batch, decay=decay, average=average, burn_in=burn_in)
    path = sgd(example_gradient(system), system.n, point, schedule, theta_radius=theta_radius, keep=keep)
    cov = _average_cov(system, path, schedule)
    covariance = None if isinstance(cov, str) else cov
    return ExampleSGD(
        params=path.params,
        cov=covariance,
        reason=cov if isinstance(cov, str) else "",
        path=path,
        schedule=schedule,
    )


def example_gradient(system: ExampleScores) -> Gradient:
    """Return the mean gradient of the corrected, penalized loss over a slice of records.

    Returns
    -------
    function of (theta, slice) to a (p,) array

    Notes
    -----
    Minus the mean score. Losses on one linear predictor without features under response have a short cut
    with the same values: about 10 numpy calls a batch.

    **Privacy.** A function of the release alone.

    Examples
    --------
    >>> system = ExampleScores([[1.0], [3.0]], [0.0, 0.0], [0.0], loss="squared", correction="exact")
    >>> example_gradient(system)(np.array([1.0]), slice(0, 2))
    array([5.])
    """
    penalty = system.ridge * np.tile(system.penalized, system.p // len(system.penalized))
    data = system.effective
    other_series = system.correction == "series" and system.loss != "logistic"
    laplace = data.laplace and system.loss == "logistic"
    if data.responses or system.loss == "multinomial" or other_series or laplace:
        return lambda theta, rows: penalty * theta - system.block_scores(theta, rows).mean(axis=0)
    X = data.X
    noise = data.noise
    form = _form(system)
    labels = _labels(system, signed=form.signed, linear=form.linear)

    def gradient(theta: Floats, rows: slice) -> Floats:
        x = X[rows]
        t = noise * theta
        eta = x @ theta
        s = float(theta @ t)
        factor = np.zeros(len(x))
        shift = 0.0
        for y, weights in labels:
            a, b = form.score(eta, y[rows], s)
            w = 1.0 if weights is None else weights[rows]
            factor += w * a
            shift += float((w * b).sum())
        return np.asarray(penalty * theta - (factor @ x + shift * t) / len(x), dtype=np.float64)

    return gradient


class _ScoreForm(Protocol):
    """Functions of a loss that the closed form needs; see `privinf.iwp.forms`."""

    @property
    def linear(self) -> bool: ...

    @property
    def signed(self) -> bool: ...

    def score(self, eta: Floats, y: Floats | float, s: float) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True, slots=True)
class _SquaresForm:
    """Squared loss, and quadratic with y = -1 or 1."""

    signed: bool
    linear = True

    def score(self, eta: Floats, y: Floats | float, s: float) -> tuple[Floats, Floats]:
        return y - eta, np.ones_like(eta)


class _LogisticSeriesForm:
    """The truncated series of the logistic loss: two polynomials in p = expit(y eta).

    The same values as `SeriesForm`, of which every derivative is a polynomial in p; here they are summed
    over the series before they are evaluated.
    """

    linear = False
    signed = True

    def __init__(self, truncation: int) -> None:
        order = 2 * truncation + 1
        polynomials = np.zeros((order + 1, order + 2))  # row m: derivative m of f, powers of p
        current = np.polynomial.Polynomial([-1.0, 1.0])
        for m in range(1, order + 1):
            polynomials[m, : len(current.coef)] = current.coef
            current = current.deriv() * np.polynomial.Polynomial([0.0, 1.0, -1.0])
        self._odd = polynomials[1::2]
        self._even = polynomials[2::2]

    def score(self, eta: Floats, y: Floats | float, s: float) -> tuple[Floats, Floats]:
        powers = np.empty((self._odd.shape[1], len(eta)))
        powers[0] = 1.0
        powers[1:] = expit(y * eta)
        np.multiply.accumulate(powers, axis=0, out=powers)
        coefficients = series_coefficients(s, len(self._odd) - 1)
        a: Floats = -y * (coefficients @ self._odd @ powers)
        b: Floats = coefficients[:-1] @ self._even @ powers
        return a, b


def _form(system: ExampleScores) -> _ScoreForm:
    gaussian = bool(system.effective.noise.any())
    if system.correction == "series" and gaussian:
        assert system.truncation is not None
        return _LogisticSeriesForm(system.truncation)
    if system.loss == "exponential":
        return ExponentialForm()
    if system.loss == "poisson":
        return PoissonForm()
    if system.loss == "logistic":
        return ConditionalForm(linear=not gaussian)
    return _SquaresForm(signed=system.loss == "quadratic")


def _labels(system: ExampleScores, *, signed: bool, linear: bool) -> list[tuple[Floats, Floats | None]]:
    """Return labels and inverse weights of all records, by level if the score is not linear in y."""
    data = system.effective
    everything = slice(0, system.n)
    levels = SIGNED if signed else None
    if linear or data.unprotected_label:
        return [(data.label_moments(everything, levels)[0], None)]
    weights = data.label_weights(everything)
    values = np.arange(2.0) if levels is None else levels
    return [(np.full(system.n, value), weights[:, k].copy()) for k, value in enumerate(values)]


def _shuffled(system: ExampleScores, order: Integers) -> ExampleScores:
    """Return the system with its records in another order."""
    data = system.data
    return ExampleScores(
        data.X[order],
        data.labels[order],
        data.noise,
        loss=system.loss,
        correction=system.correction,
        label=data.label,
        responses=data.responses,
        truncation=system.truncation,
        ridge=system.ridge,
        penalized=system.penalized,
        distribution=data.distribution,
    )


def _average_cov(system: ExampleScores, path: SGDPath, schedule: Schedule) -> Floats | str:
    """Return the plug-in covariance of the averaged iterates, or why there is none."""
    if path.average is None:
        return LAST_ITERATE
    if path.skipped:
        return SKIPPED
    if path.projected:
        return PROJECTED
    bread = system.jacobian(path.average)
    cov = sandwich(bread, system.meat(path.average), path.averaged) if has_stable_bread(bread) else None
    if cov is None or not is_positive_definite(cov):
        return NOT_PD
    share = _remembered(bread, schedule, path.steps)
    ratio = share / max(1.0 - share, np.finfo(float).eps)
    bias = ratio * np.abs(path.iterates[0] - path.average) / np.sqrt(np.diag(cov))
    if bias.max() > LARGEST_MEMORY:
        return REMEMBERS.format(share=share, bias=float(bias.max()))
    return cov


def _remembered(bread: Floats, schedule: Schedule, steps: int) -> float:
    """Return the share of the distance from start to root that the average keeps, along the flattest axis.

    Without noise an iterate's distance shrinks by 1 - step x curvature at every step.
    """
    lowest = float(np.linalg.eigvalsh((bread + bread.T) / 2.0)[0])
    memory = np.exp(-lowest * np.cumsum(schedule.sizes(steps)))
    return float(memory[min(math.ceil(schedule.burn_in * steps), steps - 1) :].mean())
