r"""Sparse linear models on several machines: the design of paper 2, and harder ones.

All features have mean 0 and variance 1, and the covariance and its inverse are known in closed form. They are
drawn by recursion, in blocks of rows, so that no p x p root is ever taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError
from privinf.typing import Floats, Integers, RngLike
from privinf.validation import as_generator, check_choice, check_count, check_number, check_positive

Features = Literal["ar", "equicorrelated", "chi2"]
Errors = Literal["normal", "heteroskedastic", "skewed"]
Signals = Literal["leading", "spread"]
Precision = Literal["float64", "float32"]

ERROR_COLUMN = 7  # the feature whose size scales the errors that are not plain
CHI2_DF = 3  # degrees of freedom of skewed features
_BLOCK = 512  # rows at a time: a block of 800 features stays in the cache


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LassoSample:
    """One draw of a `LassoDesign`; rows stand machine by machine.

    Attributes
    ----------
    y : ndarray, shape (m n,)
    X : ndarray, shape (m n, p)
        float64, or float32; y is the linear model in these very numbers.
    machines : ndarray of int, shape (m n,)
        0, ..., m - 1.
    params : ndarray, shape (m, p)
        The true coefficients of each machine; all rows are equal in a homogeneous design.
    shared : ndarray, shape (p,)
        Their common part u.
    """

    y: Floats
    X: np.ndarray[Any, Any]
    machines: Integers
    params: Floats
    shared: Floats

    def rows(self, machine: int) -> tuple[Floats, np.ndarray[Any, Any]]:
        """Return (y, X) of one machine, as views."""
        n = len(self.y) // len(self.params)
        here = slice(machine * n, (machine + 1) * n)
        return self.y[here], self.X[here]


@dataclass(frozen=True, slots=True, kw_only=True)
class LassoDesign:
    r"""y = x'(u + v_i) + e on machine i, with u sparse and shared and v_i sparse and the machine's own.

    Parameters
    ----------
    machines, n, p : int
        m machines with n rows each and p features.
    sparsity : int
        s: nonzero coefficients of each machine, each of size 1/sqrt(s), so that their norm is 1.
    shared_sparsity : int, optional
        s0 <= s: how many of them all machines share; the s - s0 others of each machine are drawn from the
        remaining features. Default: s, a homogeneous design.
    features : {"ar", "equicorrelated", "chi2"}
        Normal with covariance r^abs(j - k); normal with common covariance r; or standardised chi-square with
        3 degrees of freedom (sums of squares of normals) with covariance r^abs(j - k).
    correlation : float
        r, in [0, 1). The paper's is lost with its formulas, and its interval lengths contradict each other;
        ours is .5.
    errors : {"normal", "heteroskedastic", "skewed"}
        Standard normal e; normal times abs(x_7), counted from 0; exponential, centred, times abs(x_7).
    error_sd : float
        Of all three.
    signals : {"leading", "spread"}
        The shared features are the first s0, with positive coefficients; or at equal distances, with
        alternating signs.

    Raises
    ------
    ArgumentError
        An argument is out of range, or s0 <= s <= p does not hold.

    References
    ----------
    Paper 2, section 6.

    Examples
    --------
    >>> design = LassoDesign(machines=3, n=200, p=50, sparsity=6, shared_sparsity=4)
    >>> sample = design.draw(0)
    >>> sample.X.shape, sample.params.shape, np.count_nonzero(sample.params, axis=1).tolist()
    ((600, 50), (3, 50), [6, 6, 6])
    >>> round(float(design.precision()[1, 1]), 4)
    1.6667
    """

    machines: int = 15
    n: int = 4000
    p: int = 800
    sparsity: int = 15
    shared_sparsity: int | None = None
    features: Features = "ar"
    correlation: float = 0.5
    errors: Errors = "normal"
    error_sd: float = 0.5
    signals: Signals = "leading"

    def __post_init__(self) -> None:
        for name in ("machines", "n", "p", "sparsity"):
            check_count(getattr(self, name), name)
        if self.shared_sparsity is None:
            object.__setattr__(self, "shared_sparsity", self.sparsity)
        if not check_count(self.shared_sparsity, "shared_sparsity", least=0) <= self.sparsity <= self.p:
            raise ArgumentError(
                f"shared_sparsity={self.shared_sparsity}, sparsity={self.sparsity} and p={self.p} "
                "must not decrease"
            )
        check_choice(self.features, Features, "features")
        check_choice(self.errors, Errors, "errors")
        check_choice(self.signals, Signals, "signals")
        check_number(self.correlation, "correlation", low=0.0, high=1.0, open_high=True)
        check_positive(self.error_sd, "error_sd")
        if self.errors != "normal" and self.p <= ERROR_COLUMN:
            raise ArgumentError(
                f"errors={self.errors!r} need feature {ERROR_COLUMN}, counted from 0: p={self.p}"
            )

    @property
    def nobs(self) -> int:
        """Rows on all machines together."""
        return self.machines * self.n

    def covariance(self) -> Floats:
        """Return the features' covariance, shape (p, p)."""
        if self.features == "equicorrelated":
            return np.full((self.p, self.p), self.correlation) + (1.0 - self.correlation) * np.eye(self.p)
        place = np.arange(self.p)
        return np.asarray(self.correlation ** np.abs(place[:, None] - place), dtype=np.float64)

    def precision(self) -> Floats:
        """Return the inverse of the covariance in closed form, shape (p, p)."""
        r = self.correlation
        p = self.p
        if self.features == "equicorrelated":
            return (np.eye(p) - r / (1.0 + (p - 1) * r)) / (1.0 - r)
        diagonal = np.full(p, 1.0 + r * r)
        diagonal[[0, -1]] = 1.0
        beside = np.full(p - 1, -r)
        result = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        return np.eye(1) if p == 1 else result / (1.0 - r * r)

    def sampling_variance(self) -> Floats:
        r"""Return n times the variance of the debiased estimate without privacy, shape (p,), n its rows.

        Raises
        ------
        NotAvailableError
            The errors depend on chi-square features: no closed form.

        Notes
        -----
        With W the precision: ``(W E[e^2 x x'] W)_jj``, which is sd^2 W_jj for normal errors. Where the errors
        are scaled by abs(x_7), x normal, it is ``sd^2 (W_jj + 2 1{j = 7})``.
        """
        variance = self.error_sd**2 * np.diag(self.precision())
        if self.errors == "normal":
            return variance
        if self.features == "chi2":
            raise NotAvailableError("no closed form of the variance: errors depend on chi-square features")
        variance[ERROR_COLUMN] += 2.0 * self.error_sd**2
        return variance

    def draw(self, rng: RngLike = None, *, dtype: Precision = "float64") -> LassoSample:
        """Draw rows and, where machines differ, their coefficients.

        Parameters
        ----------
        rng : None, int or Generator
        dtype : {"float64", "float32"}
            float32 halves time and memory. It loses nothing: y is computed in double precision from the
            rounded features, so the model holds in them exactly; their own law is off by 1e-7.
        """
        check_choice(dtype, Precision, "dtype")
        generator = as_generator(rng)
        shared, params = self._coefficients(generator)
        X = np.empty((self.nobs, self.p), dtype=dtype)
        y = np.empty(self.nobs)
        for machine, beta in enumerate(params):
            for start in range(machine * self.n, (machine + 1) * self.n, _BLOCK):
                here = slice(start, min(start + _BLOCK, (machine + 1) * self.n))
                X[here] = self._features(here.stop - here.start, generator, dtype).T
                y[here] = self._response(X[here], beta, generator)
        return LassoSample(
            y=y, X=X, machines=np.repeat(np.arange(self.machines), self.n), params=params, shared=shared
        )

    def _coefficients(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return the shared coefficients (p,) and those of each machine (m, p)."""
        common = self.sparsity if self.shared_sparsity is None else self.shared_sparsity
        size = 1.0 / math.sqrt(self.sparsity)
        shared = np.zeros(self.p)
        if self.signals == "leading":
            shared[:common] = size
        else:
            shared[np.arange(common) * self.p // max(common, 1)] = size * (-1.0) ** np.arange(common)
        params = np.tile(shared, (self.machines, 1))
        own = self.sparsity - common
        free = np.flatnonzero(shared == 0.0)
        for row in params:
            chosen = rng.choice(free, own, replace=False)
            row[chosen] = size if self.signals == "leading" else size * (-1.0) ** np.arange(own)
        return shared, params

    def _features(self, rows: int, rng: np.random.Generator, dtype: Precision) -> np.ndarray[Any, Any]:
        """Return a block of features, transposed: shape (p, rows)."""
        if self.features == "equicorrelated":
            return _equicorrelated(self.p, rows, self.correlation, rng, dtype)
        if self.features == "ar":
            return _autoregression(self.p, rows, self.correlation, rng, dtype)
        # Squares of normals with correlation c have correlation c^2.
        root = math.sqrt(self.correlation)
        total = np.zeros((self.p, rows), dtype=dtype)
        for _ in range(CHI2_DF):
            total += _autoregression(self.p, rows, root, rng, dtype) ** 2
        return (total - CHI2_DF) / math.sqrt(2.0 * CHI2_DF)

    def _response(self, X: np.ndarray[Any, Any], beta: Floats, rng: np.random.Generator) -> Floats:
        support = np.flatnonzero(beta)
        mean = X[:, support].astype(np.float64) @ beta[support]
        skewed = self.errors == "skewed"
        error = rng.standard_exponential(len(X)) - 1.0 if skewed else rng.standard_normal(len(X))
        if self.errors != "normal":
            error *= np.abs(X[:, ERROR_COLUMN])
        return np.asarray(mean + self.error_sd * error, dtype=np.float64)


def lasso_design(
    name: Literal["normal", "heteroskedastic", "skewed", "chi2", "equicorrelated", "spread"], **changes: Any
) -> LassoDesign:
    """Return one of the homogeneous designs on which robustness is measured.

    Parameters
    ----------
    name : {"normal", "heteroskedastic", "skewed", "chi2", "equicorrelated", "spread"}
        The paper's, or what is different from it: errors, features (equicorrelation is .3) or signals.
    **changes
        Other fields of `LassoDesign`.

    Raises
    ------
    ArgumentError
        There is no such design.

    Examples
    --------
    >>> lasso_design("equicorrelated", n=100).correlation
    0.3
    """
    fields: dict[str, dict[str, Any]] = {
        "normal": {},
        "heteroskedastic": {"errors": "heteroskedastic"},
        "skewed": {"errors": "skewed"},
        "chi2": {"features": "chi2"},
        "equicorrelated": {"features": "equicorrelated", "correlation": 0.3},
        "spread": {"signals": "spread"},
    }
    return LassoDesign(**fields[check_choice(name, list(fields), "name")] | changes)


def _autoregression(
    p: int, rows: int, r: float, rng: np.random.Generator, dtype: Precision
) -> np.ndarray[Any, Any]:
    """Return (p, rows) normals: along the first axis a stationary autoregression with coefficient r."""
    x = rng.standard_normal((p, rows), dtype=np.dtype(dtype).type)
    innovation = math.sqrt(1.0 - r * r)
    for j in range(1, p):
        x[j] *= innovation
        x[j] += r * x[j - 1]
    return x


def _equicorrelated(
    p: int, rows: int, r: float, rng: np.random.Generator, dtype: Precision
) -> np.ndarray[Any, Any]:
    """Return (p, rows) normals with common correlation r along the first axis."""
    kind = np.dtype(dtype).type
    x = math.sqrt(1.0 - r) * rng.standard_normal((p, rows), dtype=kind)
    x += math.sqrt(r) * rng.standard_normal(rows, dtype=kind)
    return x
