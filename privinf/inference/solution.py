"""Solving corrected estimating equations: estimate, sandwich covariance, and its part from noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import Estimate, VarianceTerms, is_positive_definite, is_semidefinite
from privinf.inference.linear_scores import LinearScores
from privinf.typing import Floats, Names, Stabilization, Target
from privinf.validation import check_choice, check_number

WEAK_GRAM = (
    "the noise is larger than the variation of the columns in some direction, so the "
    "corrected Gram matrix is not positive definite; use score_test() and "
    "conf_int(method='score'), or less noise"
)
# Share of its own noise below which a variance is a rounding error of residuals that are zero.
EXACT = 1e-6
EXACT_FIT = (
    "the residuals are all zero, because there are no more rows than coefficients; use "
    "fewer columns or more rows"
)
WEAK_NOISE = (
    "the released records are too few to estimate the noise part of the covariance; use score_test() and "
    "conf_int(method='score'), or more rows"
)
WEAK_VARIANCE = (
    "the covariance is not positive definite, for example because the estimated residual variance is "
    "not positive after the correction for noise; use score_test() and "
    "conf_int(method='score'), or less noise"
)
NO_NOISE = (
    "target='sample' is not available, because some linear combination of the coefficients "
    "has no noise in this release"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A solved system, in its own units.

    Attributes
    ----------
    params : (p,) array
        The estimate that `cov` is for; finite even where the system is weak.
    cov, noise_cov : (p, p) arrays or None
        Total covariance and the part that the noise causes; None where weak.
    bread : (p, p) array
        Matrix that was inverted.
    scores : (m, p) array or None
        Scores at `params`, mean zero.
    point : (p,) array
        Reported coefficients: differs from `params` only for ridge with target "population",
        where inference comes from the unpenalized moments.
    sampling_cov : (p, p) array or None
        Covariance that the same rows would have given without noise.
    sampling_kind : str
        "heteroskedastic" or "homoskedastic" (assumed for `sampling_cov`); the reason where it is None.
    cov_type, stabilization, target : str
    weak_reason : str
        Why there is no covariance; empty otherwise.
    nobs : int
    df, df_resid : float
        Of the covariance, or of its sampling part alone; t quantiles where finite.
    terms : VarianceTerms or None
        Of `cov`.
    """

    params: Floats
    cov: Floats | None
    bread: Floats
    noise_cov: Floats | None
    scores: Floats | None
    point: Floats
    sampling_cov: Floats | None
    sampling_kind: str
    cov_type: str
    stabilization: Stabilization
    target: Target
    weak_reason: str
    nobs: int
    df: float
    df_resid: float
    terms: VarianceTerms | None = None

    def estimate(self, names: Names) -> Estimate:
        """Return the Estimate in the system's units."""
        return Estimate(
            params=self.params,
            cov=self.cov,
            names=tuple(names),
            nobs=self.nobs,
            scores=self.scores,
            bread=self.bread,
            noise_cov=self.noise_cov,
            cov_type=self.cov_type,
            weak_reason=self.weak_reason,
            df=self.df,
            df_resid=self.df_resid,
            terms=self.terms,
        )


def solve(
    system: LinearScores,
    *,
    stabilization: Stabilization = "none",
    ridge: float = 0.0,
    fuller_a: float | None = None,
    target: Target = "population",
) -> Solution:
    r"""Solve ``g - A b = 0`` with covariance ``A^-1 meat(b) A^-T / n``.

    Parameters
    ----------
    system : LinearScores
    stabilization : {"none", "fuller", "ridge"}
        "fuller" replaces A by `fuller_gram`; "ridge" adds `ridge` to the diagonal of the private columns.
    ridge : float
        gamma > 0, in the system's units.
    fuller_a : float, optional
        Fuller's constant; default d + 4.
    target : {"population", "sample", "penalized"}
        "sample": the finite population's coefficient, so that the noise alone is error. "penalized":
        the coefficient that ridge aims at; otherwise ridge changes `point` only.

    Returns
    -------
    Solution
        Never raises for weak systems: `cov` is then None and `weak_reason` states why.

    Raises
    ------
    ArgumentError
        For options that do not go together.
    NotAvailableError
        For Fuller's modification of a system that subtracts no noise covariance.

    Notes
    -----
    **Privacy.** Post-processing.

    Examples
    --------
    >>> from privinf.inference.corrected_features import CorrectedLeastSquares
    >>> x = np.linspace(-1.0, 1.0, 101)[:, None]
    >>> y = 2.0 * x[:, 0] + np.cos(50.0 * x[:, 0])
    >>> solution = solve(CorrectedLeastSquares(x, y, np.zeros((1, 1))))
    >>> solution.estimate(["x"]).names
    ('x',)
    """
    _check_options(stabilization, ridge, fuller_a, target)
    bread = system.fuller_gram(fuller_a) if stabilization == "fuller" else system.A
    penalized = system.A + ridge * np.diag((~system.noise_free).astype(np.float64))
    point = _solve(penalized if stabilization == "ridge" else bread, system.g)
    if target == "penalized":
        bread = penalized
    params = _solve(bread, system.g)
    scores = system.scores(params)
    if scores is not None and (stabilization == "fuller" or target == "penalized"):
        scores -= scores.mean(axis=0)
    if scores is not None:
        scores.flags.writeable = False  # so that estimates need no copy
    cov, noise_cov, weak_reason = _covariances(system, bread, params, scores, target)
    terms = None if cov is None else _terms(system, bread, params, cov, target)
    sampling_cov, sampling_kind = _sampling_covariance(system, bread, params)
    return Solution(
        params=params,
        cov=cov,
        bread=bread,
        noise_cov=noise_cov,
        scores=scores,
        point=point,
        sampling_cov=sampling_cov,
        sampling_kind=sampling_kind,
        cov_type="noise only" if target == "sample" else system.cov_type,
        stabilization=stabilization,
        target=target,
        weak_reason=weak_reason,
        nobs=system.n,
        df=system.df,
        df_resid=np.inf if target == "sample" else system.df_resid,
        terms=terms,
    )


def _check_options(stabilization: str, ridge: float, fuller_a: float | None, target: str) -> None:
    check_choice(stabilization, Stabilization, "stabilization")
    check_choice(target, Target, "target")
    check_number(ridge, "ridge", low=0.0)
    if (stabilization == "ridge") != (ridge > 0.0):
        raise ArgumentError("stabilization='ridge' and ridge > 0 must be passed together")
    if fuller_a is not None and stabilization != "fuller":
        raise ArgumentError("fuller_a can only be combined with stabilization='fuller'")
    if target == "penalized" and stabilization != "ridge":
        raise ArgumentError("target='penalized' needs stabilization='ridge'")


def _solve(gram: Floats, g: Floats) -> Floats:
    if is_positive_definite(gram):
        return np.asarray(np.linalg.solve(gram, g), dtype=np.float64)
    return np.asarray(np.linalg.pinv(gram, hermitian=True) @ g, dtype=np.float64)


def _covariances(
    system: LinearScores, bread: Floats, params: Floats, scores: Floats | None, target: Target
) -> tuple[Floats | None, Floats | None, str]:
    """Return (cov, noise_cov, weak_reason)."""
    if not is_positive_definite(bread):
        return None, None, WEAK_GRAM
    noise_cov = sandwich(bread, system.noise_meat(params), system.n)
    if target == "sample":
        definite = is_positive_definite(noise_cov)
        return (noise_cov, noise_cov, "") if definite else (None, None, NO_NOISE)
    meat = system.meat(params) if scores is None else score_meat(scores, system.n)
    cov = sandwich(bread, meat, system.n)
    if not is_positive_definite(cov):
        return None, None, WEAK_VARIANCE
    if (np.diag(cov) < EXACT * np.diag(noise_cov)).any():
        return None, None, EXACT_FIT
    if not is_semidefinite(noise_cov):  # an estimate from few released records
        return None, None, WEAK_NOISE
    return cov, noise_cov, ""


def _terms(system: LinearScores, bread: Floats, params: Floats, cov: Floats, target: Target) -> VarianceTerms:
    """Return the terms of the covariance: all that noise did not cause is sampling."""
    parts = system.noise_terms(params)
    noise = {name: sandwich(bread, part, system.n) for name, part in parts.items()}
    if target == "sample":
        return VarianceTerms(system.variance_equation, {}, noise)
    return VarianceTerms.dividing(cov, system.variance_equation, noise)


def _sampling_covariance(system: LinearScores, bread: Floats, params: Floats) -> tuple[Floats | None, str]:
    """Return the covariance without noise and its assumption, or None and the reason."""
    if not is_positive_definite(bread):
        return None, WEAK_GRAM
    try:
        meat, kind = system.clean_meat(params)
    except NotAvailableError as error:
        return None, str(error)
    return sandwich(bread, meat, system.n), kind


def sandwich(bread: Floats, meat: Floats, n: int) -> Floats:
    """Return ``bread^-1 meat bread^-T / n``, symmetric.

    Parameters
    ----------
    bread : (p, p) array
        Minus the derivative of the mean score, invertible.
    meat : (p, p) array
        n times the covariance of the mean score.
    n : int
        Number of records.
    """
    half = np.linalg.solve(bread, meat)
    cov = np.linalg.solve(bread, half.T) / n
    return (cov + cov.T) / 2


def score_meat(scores: Floats, n: int) -> Floats:
    """Return n times the covariance of the mean of independent scores.

    Parameters
    ----------
    scores : (m, p) array
        One row for each independent unit, scaled so that the mean over rows is the mean over records.
    n : int
        Number of records; equal to m without clusters.

    Notes
    -----
    Centered, divisor m, no small-sample factor: HC0 for records, its clustered form for clusters.
    """
    m = scores.shape[0]
    mean = scores.mean(axis=0)
    return np.asarray(n / m * (scores.T @ scores / m - np.outer(mean, mean)), dtype=np.float64)


def small_sample(estimate: Estimate) -> Estimate:
    """Return the estimate with HC1 for HC0: the sampling part of its covariance times n/(n - p).

    The noise's part is exact and needs no factor; where the rest is not a covariance, the total is
    multiplied.
    """
    n, p = estimate.nobs, len(estimate.params)
    if estimate.cov is None:
        return estimate
    factor = n / max(n - p, 1)
    noise = np.zeros((p, p)) if estimate.noise_cov is None else estimate.noise_cov
    cov = factor * estimate.cov - (factor - 1.0) * noise
    cov = cov if is_positive_definite(cov) else factor * estimate.cov
    terms = estimate.terms
    if terms is not None:
        terms = VarianceTerms.dividing(cov, terms.equation, terms.noise)
    return replace(estimate, cov=cov, cov_type="HC1", terms=terms)


def semidefinite(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix of the same trace, 0 where that is not positive.

    Cutting negative eigenvalues off alone would raise the trace: a noisy meat would come out too large.
    """
    values, vectors = np.linalg.eigh(matrix)
    total = float(values.sum())
    if total <= 0.0:
        return np.zeros_like(matrix)
    # Projection on a simplex: the largest k for which the k-th value stays positive.
    falling = values[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    shift = shifts[np.flatnonzero(falling > shifts)[-1]]
    return np.asarray((vectors * np.maximum(values - shift, 0.0)) @ vectors.T)


# ---- sums that take the noise linearly

TOTALS_EQUATION = """\
cov = A^-1 [ sampling + V_g + V_A(b) ] A^-T / n
b are the coefficients, and n is the number of rows
A are the second moments of the columns, and g their moments with the response
sampling       n times the sampling covariance of psibar(b) = g - A b
score noise    V_g: n times the covariance of the noise in g
Hessian noise  V_A(b): n times the covariance of the noise in A b"""
COMMON_NOISE = "noise of g with that of A"


def totals_noise_terms(form: Callable[[Floats, Floats], Floats], beta: Floats) -> dict[str, Floats]:
    """Return the terms of ``sum_kl w_k w_l K_kl``, w = (b, 1): of the noise in g, in A b, and in both.

    `form` makes ``sum_kl w_k v_l K_kl`` of w and v. Both have noise in common only where columns and response
    share a released entry.
    """
    slopes = np.append(beta, 0.0)
    last_axis = np.append(np.zeros_like(beta), 1.0)
    terms = {"score noise": form(last_axis, last_axis), "Hessian noise": form(slopes, slopes)}
    if (cross := form(slopes, last_axis)).any():
        terms[COMMON_NOISE] = cross + cross.T
    return {name: (term + term.T) / 2.0 for name, term in terms.items()}


def quadratic(tensor: Floats, w: Floats, v: Floats | None = None) -> Floats:
    """Return ``sum_kl w_k v_l C_kl``, shape (p, p); with v = w its symmetric part."""
    matrix: Floats = np.einsum("k,l,klab->ab", w, w if v is None else v, tensor, optimize=True)
    return matrix if v is not None else (matrix + matrix.T) / 2.0
