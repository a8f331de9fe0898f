"""Estimate: coefficients, their covariance, and the inputs of both; all results derive from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from privinf.errors import ArgumentError, NotAvailableError, NotPositiveDefiniteError
from privinf.typing import Floats
from privinf.validation import check_array, check_count, kept_array


def upper_tail(z: ArrayLike) -> Floats:
    """Return P(Z > z), accurate far in the tail."""
    return np.asarray(ndtr(-np.asarray(z, dtype=np.float64)), dtype=np.float64)


def two_sided_pvalue(z: ArrayLike, df: float | Floats = np.inf) -> Floats:
    """Return P(abs(Z) > abs(z)), Z normal, or t with finite `df` (one for all, or one for each z)."""
    size = np.abs(np.asarray(z, dtype=np.float64))
    if np.isinf(df).all():
        return 2.0 * upper_tail(size)
    return np.asarray(2.0 * stdtr(df, -size), dtype=np.float64)


@overload
def upper_quantile(p: float, df: float = np.inf) -> float: ...
@overload
def upper_quantile(p: float, df: float | Floats) -> float | Floats: ...
def upper_quantile(p: float, df: float | Floats = np.inf) -> float | Floats:
    """Return z with P(Z > z) = p, Z normal, or t with finite `df`; one for each `df`."""
    quantile = -ndtri(p) if np.isinf(df).all() else -stdtrit(df, p)
    return float(quantile) if np.ndim(quantile) == 0 else np.asarray(quantile, dtype=np.float64)


_SYMMETRY_TOLERANCE = 1e-8  # rounding of a covariance, relative to the product of both standard errors
_ADDING = 1e-6  # rounding of the sum of a variance's terms, relative to the same


# Difference between a covariance estimated from releases and the sum of its named terms.
UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, slots=True)
class VarianceTerms:
    """Named terms of a covariance, which add up to it.

    Attributes
    ----------
    equation : str
        Meaning of the terms.
    sampling, noise : mapping of str to (p, p) array
        Terms due to sampling, or inseparable from it; and terms due to the privacy mechanism. A
        term that is a difference can come out negative where the noise is strong; the sum is positive.
    """

    equation: str
    sampling: Mapping[str, Floats]
    noise: Mapping[str, Floats]

    @classmethod
    def dividing(cls, cov: Floats, equation: str, noise: Mapping[str, Floats]) -> VarianceTerms:
        """Return the terms of a covariance whose parts not due to noise are sampling."""
        return cls(equation, {"sampling": cov - sum(noise.values())}, noise)

    def mapped(self, T: Floats) -> VarianceTerms:
        """Return the terms of T times the coefficients."""
        kinds = ({name: T @ V @ T.T for name, V in kind.items()} for kind in (self.sampling, self.noise))
        return VarianceTerms(self.equation, *kinds)

    def check(self, cov: Floats, noise_cov: Floats | None) -> None:
        """Raise ArgumentError unless the terms add up to `cov`, and those of noise to `noise_cov`."""
        all_terms = {**self.sampling, **self.noise}
        bse = np.sqrt(np.diag(cov))
        for terms, total in ((all_terms, cov), (self.noise, noise_cov)):
            remainder = (
                0.0
                if total is None
                else total
                - sum(_shaped(V, f"term {k!r} of the variance", cov.shape) for k, V in terms.items())
            )
            if not isinstance(self.equation, str) or np.any(np.abs(remainder) > _ADDING * np.outer(bse, bse)):
                raise ArgumentError(
                    "all covariances in terms= must add up to cov=, and those in terms.noise to noise_cov="
                )


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of p coefficients that every table, interval, test and draw derives from.

    Attributes
    ----------
    params : (p,) array
        Point estimate, in the units of `names`.
    cov : (p, p) array or None
        Total covariance, sampling and privacy noise together. None where the release identifies the
        coefficients too weakly for one; `weak_reason` then states why.
    names : tuple of p str
        Labels, without repeats.
    nobs : int
        Number of records.
    scores : (m, p) array or None
        Estimating function of the m independent units (records, or clusters of records) at `params`,
        scaled so that its mean over rows is the average over records.
    bread : (p, p) array or None
        Minus the derivative of the mean score: ``influence_i = bread^-1 scores_i``.
    noise_cov : (p, p) array or None
        Part of `cov` that the privacy noise causes; positive semidefinite.
    cov_type : str
        Kind of covariance of `cov`, as the summary prints it.
    weak_reason : str
        Why `cov` is None; empty otherwise.
    df : float
        Degrees of freedom of all of `cov`: tests and intervals use t quantiles where it is finite.
    df_resid : float
        Degrees of freedom of the sampling part of `cov` alone, n - p, or fewer where that is noisy: where it
        is finite, each contrast has its own t quantile (Satterthwaite, `privinf.inference.intervals`).
    bias : (p,) array or None
        Largest absolute bias of each coefficient that intervals and tests must allow for.
    terms : VarianceTerms or None
        Named terms that add up to `cov`, those of noise to `noise_cov`.

    Raises
    ------
    ArgumentError
        For shapes that do not match, entries that are not finite, matrices that are not symmetric,
        repeated names, a missing covariance without a reason, a negative bound of a bias, both kinds of
        degrees of freedom, or terms that do not add up.
    NotPositiveDefiniteError
        If `cov` is not positive definite or `noise_cov` is not positive semidefinite.

    Notes
    -----
    The sandwich convention is ``cov = bread^-1 Cov(scores) bread^-T / m`` with Cov centered, divisor m.
    Arrays are held as read-only views: an Estimate never changes.

    **Privacy.** All fields are functions of releases; nothing here reads rows or spends budget.

    Examples
    --------
    >>> estimate = Estimate(np.array([1.0, 2.0]), np.diag([0.01, 0.04]), ("a", "b"), 100)
    >>> estimate.bse
    array([0.1, 0.2])
    """

    params: Floats
    cov: Floats | None
    names: tuple[str, ...]
    nobs: int
    _: KW_ONLY
    scores: Floats | None = None
    bread: Floats | None = None
    noise_cov: Floats | None = None
    cov_type: str = "sandwich"
    weak_reason: str = ""
    df: float = np.inf
    df_resid: float = np.inf
    bias: Floats | None = None
    terms: VarianceTerms | None = None

    def __post_init__(self) -> None:
        params = _frozen(check_array(self.params, "params", ndim=1))
        p = params.shape[0]
        _set(self, "params", params)
        _set(self, "names", _checked_names(self.names, p))
        _set(self, "nobs", check_count(self.nobs, "nobs"))
        for name, df in (("df", self.df), ("df_resid", self.df_resid)):
            if not df > 0.0:
                raise ArgumentError(f"{name} must be positive, got {df}")
        if np.isfinite(self.df) and np.isfinite(self.df_resid):
            raise ArgumentError(
                "df= (for cov=) and df_resid= (for the sampling part of cov=) cannot both be finite: "
                "pass one of them"
            )
        if (self.cov is None) != bool(self.weak_reason):
            raise ArgumentError("pass exactly one of cov= and weak_reason=")
        if self.cov is not None:
            _set(self, "cov", _covariance(self.cov, "cov=", p, definite=True))
        if self.noise_cov is not None:
            _set(self, "noise_cov", _covariance(self.noise_cov, "noise_cov=", p, definite=False))
        if self.bread is not None:
            _set(self, "bread", _frozen(_shaped(self.bread, "bread=", (p, p))))
        if self.scores is not None:
            scores = kept_array(self.scores, "scores=", ndim=2)
            _set(self, "scores", _shaped(scores, "scores=", (len(scores), p), copy=False))
        if self.bias is not None:
            bias = _shaped(self.bias, "bias=", (p,))
            if (bias < 0.0).any():
                raise ArgumentError(
                    "bias= must contain upper bounds of absolute biases, which cannot be negative"
                )
            _set(self, "bias", _frozen(bias))
        if self.terms is not None:
            self.terms.check(self.covariance, self.noise_cov)

    @property
    def bse(self) -> Floats:
        """Standard errors, shape (p,); NotAvailableError where `cov` is None."""
        return np.asarray(np.sqrt(np.diag(self.covariance)), dtype=np.float64)

    @property
    def noise_bse(self) -> Floats:
        """Standard errors that the privacy noise alone causes, shape (p,)."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.noise_covariance), 0.0)), dtype=np.float64)

    @property
    def noise_covariance(self) -> Floats:
        """`noise_cov`, or NotAvailableError with the reason why there is none."""
        if self.noise_cov is not None:
            return self.noise_cov
        unknown = (
            "this fit estimated only the total covariance"
            if self.terms is None
            else "this fit estimated only the total covariance, see `variance_formula`"
        )
        reason = self.weak_reason.removeprefix("no intervals: ") or unknown
        raise NotAvailableError(
            f"the noise part of the covariance is not available. {reason[:1].upper()}{reason[1:]}"
        )

    @property
    def covariance(self) -> Floats:
        """`cov`, or NotAvailableError with `weak_reason` where there is none."""
        if self.cov is None:
            raise NotAvailableError(self.weak_reason)
        return self.cov

    @property
    def corr(self) -> Floats:
        """Correlation matrix of the estimates, shape (p, p)."""
        bse = self.bse
        return self.covariance / np.outer(bse, bse)

    @property
    def influence(self) -> Floats:
        """Influence functions ``bread^-1 scores_i``, shape (m, p)."""
        if self.scores is None or self.bread is None:
            raise NotAvailableError(
                "the multiplier bootstrap needs a score of every record, and only sums over "
                "records are available: pass method='gaussian' or 'parametric', which draws from "
                "the normal distribution of such sums"
            )
        return np.asarray(np.linalg.solve(self.bread, self.scores.T).T, dtype=np.float64)

    def linear(self, R: ArrayLike) -> tuple[Floats, Floats]:
        """Estimate and covariance of ``R params`` for a (k, p) matrix R; the covariance may be singular."""
        matrix = _linear_map(R, "R", self.params.shape[0])
        cov = matrix @ self.covariance @ matrix.T
        return matrix @ self.params, (cov + cov.T) / 2

    def transformed(self, T: ArrayLike, *, shift: ArrayLike = 0.0, names: Sequence[str]) -> Estimate:
        """Return the estimate of ``T params + shift``, for instance in the user's units.

        Parameters
        ----------
        T : (k, p) array
            Square and invertible, or k < p independent rows.
        shift : (k,) array or scalar, default 0
            Public constant.
        names : sequence of k str
            Labels of the new coefficients.

        Returns
        -------
        Estimate
            With scores and bread carried along, so that its influence functions are T times the old.

        Raises
        ------
        NotPositiveDefiniteError
            If the rows of T are linearly dependent.
        """
        matrix = _linear_map(T, "T", self.params.shape[0])
        if matrix.shape[0] > matrix.shape[1]:
            raise ArgumentError(
                f"T= has {matrix.shape[0]} rows, but there can be at most {matrix.shape[1]} linear "
                "combinations, the number of coefficients; for more, use linear(R)"
            )
        params = matrix @ self.params + check_array(np.broadcast_to(shift, matrix.shape[0]), "shift", ndim=1)
        scores, bread = self._transformed_scores(matrix)
        cov, noise_cov = (None if V is None else matrix @ V @ matrix.T for V in (self.cov, self.noise_cov))
        bias = None if self.bias is None else np.abs(matrix) @ self.bias
        terms = None if self.terms is None else self.terms.mapped(matrix)
        return replace(
            self,
            params=params,
            cov=cov,
            names=tuple(names),
            scores=scores,
            bread=bread,
            noise_cov=noise_cov,
            bias=bias,
            terms=terms,
        )

    def with_cov(self, cov: ArrayLike, *, cov_type: str, noise_cov: ArrayLike | None = None) -> Estimate:
        """Return the same estimate with another covariance (and the noise part that belongs to it)."""
        noise = None if noise_cov is None else np.asarray(noise_cov, dtype=np.float64)
        return replace(
            self,
            cov=np.asarray(cov, dtype=np.float64),
            noise_cov=noise,
            cov_type=cov_type,
            weak_reason="",
            terms=None,
        )

    def _transformed_scores(self, T: Floats) -> tuple[Floats | None, Floats | None]:
        if self.bread is None or (T.shape[0] < T.shape[1] and self.scores is None):
            return None, None
        if T.shape[0] < T.shape[1]:
            return self.influence @ T.T, np.eye(T.shape[0])
        inverse = np.linalg.inv(T)
        scores = None if self.scores is None else self.scores @ inverse
        if scores is not None:
            scores.flags.writeable = False
        return scores, inverse.T @ self.bread @ inverse


def is_positive_definite(matrix: Floats) -> bool:
    """Whether a symmetric matrix is positive definite, whatever the units of its rows."""
    diagonal = np.diag(matrix)
    if not (np.isfinite(matrix).all() and (diagonal > 0.0).all()):
        return False
    scale = np.sqrt(diagonal)
    try:
        np.linalg.cholesky(matrix / scale / scale[:, None])
    except np.linalg.LinAlgError:
        return False
    return True


def _set(estimate: Estimate, field: str, value: object) -> None:
    object.__setattr__(estimate, field, value)


def _frozen(array: Floats) -> Floats:
    view = array.view()
    view.flags.writeable = False
    return view


def _checked_names(names: Sequence[str], p: int) -> tuple[str, ...]:
    labels = tuple(names)
    if isinstance(names, str) or not all(isinstance(label, str) for label in labels):
        raise ArgumentError("names= must be a sequence of strings")
    if len(labels) != p:
        raise ArgumentError(f"names= must have {p} labels, one for each coefficient, got {len(labels)}")
    if len(set(labels)) != p:
        repeated = dict.fromkeys(repr(label) for label in labels if labels.count(label) > 1)
        raise ArgumentError(f"names= must not repeat a name, but repeats {', '.join(repeated)}")
    return labels


def _shaped(value: ArrayLike, name: str, shape: tuple[int, ...], copy: bool = True) -> Floats:
    array = check_array(value, name, ndim=len(shape), copy=copy)
    if array.shape != shape:
        raise ArgumentError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def _linear_map(value: ArrayLike, name: str, p: int) -> Floats:
    matrix = check_array(value, name, ndim=2)
    if matrix.shape[1] != p:
        raise ArgumentError(f"{name} must have one column for each of the {p} coefficients")
    return matrix


def _covariance(value: ArrayLike, name: str, p: int, *, definite: bool) -> Floats:
    matrix = _shaped(value, name, (p, p))
    scale = np.sqrt(np.abs(np.diag(matrix)))
    if np.any(np.abs(matrix - matrix.T) > _SYMMETRY_TOLERANCE * np.outer(scale, scale)):
        raise ArgumentError(f"{name} must be symmetric")
    matrix = (matrix + matrix.T) / 2
    if definite and not is_positive_definite(matrix):
        raise NotPositiveDefiniteError(
            f"{name} is not positive definite, which happens if columns are collinear or the noise is too "
            "large: leave out collinear columns, or use a larger budget"
        )
    if not definite and not is_semidefinite(matrix):
        raise NotPositiveDefiniteError(
            f"{name} must be a covariance matrix, but one of its eigenvalues is negative"
        )
    return _frozen(matrix)


def is_semidefinite(matrix: Floats) -> bool:
    """Return whether a symmetric matrix is positive semidefinite, up to rounding."""
    scale = np.sqrt(np.abs(np.diag(matrix)))
    unit = np.where(scale > 0.0, scale, 1.0)
    return bool(np.linalg.eigvalsh(matrix / np.outer(unit, unit))[0] >= -_SYMMETRY_TOLERANCE * len(matrix))
