"""The score test on released examples, valid whatever the strength of identification, and that strength."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.special import ndtr

from privinf.errors import ArgumentError, ConvergenceError, NotAvailableError, NotPositiveDefiniteError
from privinf.inference.estimate import is_positive_definite, upper_quantile
from privinf.inference.linear_scores import CHI_SQUARE, kept_columns
from privinf.inference.score_sets import COLLINEAR_SCORES, Restriction
from privinf.inference.score_test import THRESHOLD, Identification, ScoreTestResult
from privinf.iwp.equation import ExampleScores
from privinf.iwp.newton import newton
from privinf.typing import Flags, Floats
from privinf.validation import check_array

# The scores of the exponential corrections have a lognormal factor; the mean of n of them is normal enough
# for a test only while its skewness, that of one over root n, is small.
LARGEST_SKEWNESS = 0.1
LARGEST_EXPONENT = 700.0  # largest number whose exponential is a double
# The conditional score fades as theta'S theta grows: about 2 Phi(-root(s)/2) of the records keep a residual.
# Nuisance coefficients are estimated from those; few of them cost level (simulated with an intercept
# and a covariate: 5.2% at 1,360, 5.6% at 1,010, 6.3% at 630, 6.6% at 260).
FEWEST_RECORDS = 500.0
# Without nuisance coefficients the test errs on the safe side; below this number it can hardly reject.
FEWEST_ALONE = 5.0
_STEP = 1e-5  # length of the central differences, relative to 1 + the largest coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class NullPoint:
    """A null hypothesis with its nuisance coefficients solved.

    Attributes
    ----------
    theta : (p,) array
        All coefficients.
    score : (k,) array
        Mean score of the tested ones.
    slope : (k, k) array
        Its bread, the others concentrated out.
    projection, lift : (k, p) and (p, k) arrays
        From scores to influence, ``psi_b - J_bz J_zz^-1 psi_z``; from changes in the tested coefficients
        to changes in all.
    meat : (k, k) array
        Of the influence.
    """

    theta: Floats
    score: Floats
    slope: Floats
    projection: Floats
    lift: Floats
    meat: Floats

    def statistic(self, n: int) -> float:
        """Return ``n psi' meat^-1 psi``."""
        return float(n * self.score @ np.linalg.solve(self.meat, self.score))


def score_test(
    system: ExampleScores, null: ArrayLike | None = None, *, tested: ArrayLike | None = None
) -> ScoreTestResult:
    r"""Test coefficients jointly, without an estimate.

    Parameters
    ----------
    system : ExampleScores
    null : (k,) array, optional
        Values of the tested coefficients, in the units of the system; default zero.
    tested : (p,) bool array, optional
        Parameters under test: all of columns that have noise (the default), and any others.

    Raises
    ------
    ArgumentError
        For a null of the wrong length, or if a parameter with noise is not tested.
    ConvergenceError
        If the nuisance coefficients have no root under the null.
    NotAvailableError
        For the truncated series and the naive fit, whose scores are biased at the truth; at a null where
        the noise leaves no usable central limit.
    NotPositiveDefiniteError
        If the scores are linearly dependent at the null.

    Notes
    -----
    The nuisance coefficients z, noise-free, solve their own rows under the null; then with
    ``psi* = psi_b - J_bz J_zz^-1 psi_z``, J the derivative there,

    .. math:: T = n \bar\psi^{*\prime} Cov(\psi^*)^{-1} \bar\psi^* \sim \chi^2_k

    at the true b. J_bb is never inverted: the test holds its level where theta is not estimable.
    Exponential and Poisson losses carry the factor ``e^(t'noise - s/2)``, s = theta'S theta, of relative
    variance ``e^s - 1``: the test is refused where its skewness over root n exceeds 0.1. Conditional
    scores fade as s grows: the test is refused where fewer than 5 records, ``2 n Phi(-root(s)/2)``, keep a
    residual; with nuisance coefficients 500.

    **Privacy.** Post-processing.

    References
    ----------
    Stock, J. H. and Wright, J. H. (2000), Econometrica 68, 1055-1096; Boos, D. D. (1992), American
    Statistician 46, 327-333 (generalized score tests).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (20_000, 1))
    >>> codes = rng.random(20_000) < 1 / (1 + np.exp(-2 * x[:, 0]))
    >>> noisy = x + 3.0 * rng.standard_normal(x.shape)
    >>> system = ExampleScores(noisy, codes, [9.0], loss="logistic", correction="conditional")
    >>> bool(score_test(system).pvalue < 1e-4), bool(score_test(system, [2.0]).pvalue > 0.05)
    (True, True)
    """
    under_test = parameters_under_test(system, tested)
    df = int(under_test.sum())
    values = np.zeros(df) if null is None else check_array(null, "null", ndim=1)
    if values.shape != (df,):
        raise ArgumentError(
            f"null= must have {df} values, one for each tested parameter, got shape {values.shape}"
        )
    return _tested(system, null_point(system, values, under_test), values)


def _tested(system: ExampleScores, point: NullPoint, null: Floats) -> ScoreTestResult:
    statistic = point.statistic(system.n)
    df = len(null)
    return ScoreTestResult(
        statistic=statistic,
        pvalue=CHI_SQUARE.pvalue(statistic, df),
        df=df,
        null=null,
        law=CHI_SQUARE,
    )


def parameters_under_test(system: ExampleScores, tested: ArrayLike | None) -> Flags:
    """Return the mask of tested parameters.

    Raises
    ------
    ArgumentError
        If a parameter with noise is left out.
    NotAvailableError
        For scores that are biased at the truth.
    """
    if system.correction in {"series", "none"} and not system.noise_free.all():
        raise NotAvailableError(
            "the score test needs scores that are unbiased at the true coefficients, but those of "
            f"correction={system.correction!r} are biased: use correction='exact' or 'conditional'"
        )
    return kept_columns(tested, system.noise_free)


def null_point(
    system: ExampleScores, values: Floats, tested: Flags, *, start: Floats | None = None
) -> NullPoint:
    """Return scores, influence and meat at a null, the nuisance coefficients at their root.

    Raises
    ------
    ConvergenceError
        If there is no such root.
    NotAvailableError
        Where the noise leaves no usable central limit.
    NotPositiveDefiniteError
        If the scores are linearly dependent.
    """
    theta = np.zeros(system.p)
    theta[tested] = values
    null = Restriction.columns(theta, tested)
    return restricted_point(system, null, None if start is None else start[~tested])


@np.errstate(over="ignore", invalid="ignore")  # coefficients without a root may run away; none is used
def restricted_point(system: ExampleScores, null: Restriction, free: Floats | None = None) -> NullPoint:
    """Return `null_point` of any linear restrictions; `free` is where the free coefficients start (zero)."""
    c = np.zeros(null.free.shape[1]) if free is None else free
    reason = no_central_limit(system, null.at(c), nuisances=len(c) > 0)
    if reason:
        raise NotAvailableError(reason)
    if len(c):
        path = newton(_Nuisances(system, null), c)
        if path.reason:
            raise ConvergenceError(
                "with the tested coefficients at their null values, no solution was found for the other "
                "coefficients: test all coefficients jointly, or use a less extreme null value"
            )
        c = path.point
    theta = null.at(c)
    score, slope = system.score_and_jacobian(theta)
    projection = null.projection(slope)
    lift = null.direction(slope)
    meat = projection @ system.meat(theta) @ projection.T
    if not is_positive_definite(meat):
        raise NotPositiveDefiniteError(COLLINEAR_SCORES)
    return NullPoint(
        theta=theta,
        score=projection @ score,
        slope=projection @ slope @ lift,
        projection=projection,
        lift=lift,
        meat=meat,
    )


def restricted_score_test(system: ExampleScores, R: Floats, q: Floats, *, near: Floats) -> ScoreTestResult:
    """Test ``R theta = q`` as `privinf.inference.score_sets` does; errors are those of `score_test`.

    The coefficients that are left free are sought from those of `near`, shape (p,), then from zero.
    """
    parameters_under_test(system, np.ones(system.p, dtype=np.bool_))
    null = Restriction.from_arrays(R, q)
    try:
        point = restricted_point(system, null, null.free.T @ (near - null.start))
    except ConvergenceError:
        point = restricted_point(system, null)
    return _tested(system, point, q)


def noise_inflation(system: ExampleScores, theta: Floats) -> float:
    r"""Return ``exp(theta'S theta) - 1``: relative variance of the factor that corrects an exponential.

    Parameters
    ----------
    system : ExampleScores
    theta : (p,) array

    Returns
    -------
    float
        The largest over the classes of a multinomial model.

    Notes
    -----
    The exponential and Poisson losses multiply each record by e^(theta'u - s/2), u its noise and
    s = theta'S theta: mean one, variance e^s - 1. Where that is large their variances are too.

    **Privacy.** Post-processing.
    """
    return math.expm1(min(_exponent(system, theta), LARGEST_EXPONENT))


def noise_inflation_interval(
    system: ExampleScores, theta: Floats, cov: Floats, alpha: float = 0.05
) -> tuple[float, float]:
    r"""Return an interval of level ``1 - alpha`` for ``exp(theta'S theta) - 1``.

    Parameters
    ----------
    system : ExampleScores
    theta : (p,) array
    cov : (p, p) array
        Covariance of theta.
    alpha : float

    Returns
    -------
    (float, float)

    Notes
    -----
    With ``g = sqrt(theta'S theta)``, the standard error of g is ``sqrt(d'cov d)`` with the gradient
    ``d = S theta / g``. The ends are those of g plus and minus its normal quantile, at least 0, in the place
    of g. At theta = 0, where g has no gradient, d is the root of S of the column with the largest error.

    **Privacy.** Post-processing.
    """
    noise = system.data.noise
    size = math.sqrt(float(noise @ theta**2))
    if size > 0.0:
        gradient = noise * theta / size
        error = math.sqrt(max(float(gradient @ cov @ gradient), 0.0))
    else:
        error = math.sqrt(max(float((noise * np.diag(cov)).max()), 0.0))
    half = float(upper_quantile(alpha / 2.0)) * error
    low, high = max(size - half, 0.0), size + half
    return math.expm1(min(low**2, LARGEST_EXPONENT)), math.expm1(min(high**2, LARGEST_EXPONENT))


def no_central_limit(system: ExampleScores, theta: Floats, *, nuisances: bool) -> str:
    """Return why the scores at theta have no usable central limit; empty where they have one."""
    if system.correction == "exact" and system.loss in {"exponential", "poisson"}:
        variance = noise_inflation(system, theta)
        if (variance + 3.0) * math.sqrt(variance) > LARGEST_SKEWNESS * math.sqrt(system.n):
            return (
                f"loss={system.loss!r}: at these coefficients, the noise multiplies the term of each record "
                f"by a random factor with mean 1 and variance {variance:.3g}. This is too large for a normal "
                f"approximation with {system.n} records: test smaller coefficients, or use more records or "
                "less noise"
            )
    if system.correction == "conditional":
        records = 2.0 * system.n * float(ndtr(-math.sqrt(_exponent(system, theta)) / 2.0))
        if records < (FEWEST_RECORDS if nuisances else FEWEST_ALONE):
            need = (
                f"a test of some of the coefficients needs {FEWEST_RECORDS:g}: test all coefficients "
                "jointly, or use more records"
                if nuisances
                else f"a test needs {FEWEST_ALONE:g}: use more records"
            )
            return (
                f"with loss={system.loss!r} at these coefficients, the number of records that are "
                f"informative despite the noise is about {records:.3g} of {system.n}, but {need}"
            )
    return ""


def _exponent(system: ExampleScores, theta: Floats) -> float:
    """Return the largest theta'S theta, over classes and their differences."""
    classes = np.vstack([np.zeros(len(system.data.noise)), theta.reshape(-1, len(system.data.noise))])
    contrasts = classes[:, None] - classes
    with np.errstate(over="ignore", invalid="ignore"):
        largest = float(((contrasts**2) @ system.data.noise).max())
    return math.inf if math.isnan(largest) else largest


@dataclass(frozen=True, slots=True)
class _Nuisances:
    """The scores of the coefficients that a null leaves free."""

    system: ExampleScores
    null: Restriction

    def score_and_jacobian(self, c: Floats) -> tuple[Floats, Floats]:
        score, slope = self.system.score_and_jacobian(self.null.at(c))
        return self.null.free.T @ score, self.null.free.T @ slope @ self.null.free


def identification(
    system: ExampleScores, params: Floats, *, threshold: float | None = None
) -> Identification:
    r"""Return the identification statistic of a system at an estimate.

    Parameters
    ----------
    system : ExampleScores
    params : (p,) array
    threshold : float, optional
        Default 3.5 / sqrt(d), d the number of parameters of noisy columns.

    Notes
    -----
    The smallest eigenvalue of the bread, noise-free parameters partialled out, in the metric of the
    features' noise (Gaussian variances; ``P Q/(P - Q)^2`` and its like under response), over
    ``sqrt(2 d)`` times the standard error of that entry v'Jv: the edge to which sampling and noise spread
    the spectrum of a matrix with nothing in it. What the bread is:

    - squared and quadratic losses: the corrected Gram matrix, as in linear models;
    - logistic and multinomial, conditional: about ``mean w (x x' - S)``, w = p (1 - p), label noise
      included;
    - exponential and Poisson: ``mean e (x - ..)(x - ..)'``-like sums with a factor (`noise_inflation`).

    It is weak too where `score_test` finds no usable central limit at the estimate.

    **Privacy.** Post-processing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (5000, 1))
    >>> codes = rng.random(5000) < 1 / (1 + np.exp(-2 * x[:, 0]))
    >>> noisy = x + 9.0 * rng.standard_normal(x.shape)
    >>> system = ExampleScores(noisy, codes, [81.0], loss="logistic", correction="conditional")
    >>> identification(system, np.zeros(1)).weak
    True
    """
    noisy = ~system.noise_free
    d = int(noisy.sum())
    limit = float(THRESHOLD / np.sqrt(max(d, 1))) if threshold is None else threshold
    if d == 0:
        return Identification(
            statistic=np.inf, threshold=limit, weak=False, smallest_eigenvalue=np.inf, noise_edge=0.0
        )
    bread = system.jacobian(params)
    null = Restriction.columns(np.zeros(system.p), noisy)
    projection = null.projection(bread)
    lift = null.direction(bread)
    reduced = projection @ bread @ lift
    values, vectors = linalg.eigh((reduced + reduced.T) / 2, np.diag(_metric(system)[noisy]))
    direction = vectors[:, 0]
    edge = np.sqrt(2.0 * d) * _entry_error(system, params, direction @ projection, lift @ direction)
    statistic = float(values[0] / edge) if edge > 0.0 else np.inf
    weak = statistic < limit or bool(no_central_limit(system, params, nuisances=True))
    return Identification(
        statistic=statistic,
        threshold=limit,
        weak=weak,
        smallest_eigenvalue=float(values[0]),
        noise_edge=float(edge),
    )


def _metric(system: ExampleScores) -> Floats:
    """Return the noise variance of each parameter's column, responses included."""
    variances = system.data.noise.copy()
    for response in system.data.responses:
        variances[list(response.columns)] = response.variance
    return np.tile(variances, system.p // len(variances))


def _entry_error(system: ExampleScores, theta: Floats, left: Floats, right: Floats) -> float:
    """Return the standard error of ``left' J right``, from central differences of each record's score."""
    step = _STEP * (1.0 + float(np.abs(theta).max())) / float(np.abs(right).max())
    total = 0.0
    square = 0.0
    for rows in system.blocks():
        ahead = system.block_scores(theta + step * right, rows) @ left
        entries = (system.block_scores(theta - step * right, rows) @ left - ahead) / (2.0 * step)
        total += float(entries.sum())
        square += float(entries @ entries)
    mean = total / system.n
    return float(np.sqrt(max(square / system.n - mean**2, 0.0) / system.n))
