"""What a private debiased lasso is compared with: no privacy, and machines that work alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from privinf.errors import ArgumentError
from privinf.typing import ArrayLike, Floats, Integers
from privinf.validation import check_array, check_choice, check_fraction, check_number
from studies.lasso_solver import lasso, scaled_lasso

CovType = Literal["HC0", "nonrobust"]
Fit = TypeVar("Fit")
_BLOCK = 1 << 13  # rows at a time


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DebiasedFit:
    """A debiased lasso without privacy.

    Attributes
    ----------
    params, bse : ndarray, shape (k,)
        Of the targets.
    targets : ndarray of int, shape (k,)
    sparse_params : ndarray, shape (p,)
        The lasso itself.
    precision : ndarray, shape (k, p)
        Approximate rows of the precision matrix.
    scale : float
        Residual standard deviation.
    nobs : int
    """

    params: Floats
    bse: Floats
    targets: Integers
    sparse_params: Floats
    precision: Floats
    scale: float
    nobs: int

    @property
    def selected(self) -> Integers:
        """Features with a coefficient in the lasso."""
        return np.asarray(np.flatnonzero(self.sparse_params), dtype=np.int64)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return normal intervals, shape (k, 2)."""
        from scipy.special import ndtri

        half = -float(ndtri(check_fraction(alpha, "alpha") / 2.0)) * self.bse
        return np.column_stack([self.params - half, self.params + half])


def debiased_lasso(
    y: ArrayLike,
    X: Any,
    *,
    targets: ArrayLike | None = None,
    penalty: float | None = None,
    node_penalty: float | None = None,
    cov_type: CovType = "HC0",
) -> DebiasedFit:
    r"""Fit the lasso and correct its bias in the targets by one nodewise lasso each.

    Parameters
    ----------
    y : array_like, shape (n,)
    X : array_like, shape (n, p)
        Centred features; no constant is added. float32 is read as it is.
    targets : sequence of int, optional
        Features whose coefficients are debiased. Default: all.
    penalty, node_penalty : float, optional
        Of ``||y - Xb||^2/(2n) + penalty ||b||_1`` and of the regressions among features. Default: scaled
        lasso at level sqrt(2 log(p)/n).
    cov_type : {"HC0", "nonrobust"}

    Returns
    -------
    DebiasedFit

    Raises
    ------
    ArgumentError
        Shapes do not match, a target is not a feature, or a penalty is negative.
    ConvergenceError

    Notes
    -----
    **Privacy.** None: it is what a private fit is compared with.

    With g the lasso of x_j on the other features, t^2 = x_j'(x_j - X_{-j} g)/n and w = (1, -g)/t^2 the
    estimate is ``b_j + w'X'(y - Xb)/n``, of variance ``mean((w'x r)^2)/n`` (HC0) or ``s^2 w'Gw/n``.

    References
    ----------
    Zhang and Zhang (2014); van de Geer, Bühlmann, Ritov and Dezeure (2014).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((400, 50))
    >>> fit = debiased_lasso(X[:, 0] - X[:, 1] + rng.standard_normal(400), X, targets=[0, 1, 2])
    >>> bool((abs(fit.params - [1.0, -1.0, 0.0]) < 4 * fit.bse).all()), fit.selected[:2].tolist()
    (True, [0, 1])
    """
    y, X = check_array(y, "y", ndim=1), _features(X)
    n, p = X.shape
    if len(y) != n:
        raise ArgumentError(f"y has {len(y)} entries and X {n} rows")
    check_choice(cov_type, CovType, "cov_type")
    chosen = _targets(targets, p)
    level = math.sqrt(2.0 * math.log(max(p, 2)) / n)
    gram, cross = _moments(y, X)
    b, scale = _estimate(gram, cross, float(y @ y) / n, level, penalty, "penalty", without=None)
    rows = np.array([_precision_row(gram, int(j), level, node_penalty) for j in chosen]).reshape(-1, p)
    bread = np.einsum("kj,jl,kl->k", rows, gram, rows)
    meat = scale**2 * bread if cov_type == "nonrobust" else _meat(y, X, b, rows)
    params = b[chosen] + rows @ (cross - gram @ b)
    return DebiasedFit(
        params=params,
        bse=np.sqrt(meat / n),
        targets=chosen,
        sparse_params=b,
        precision=rows,
        scale=scale,
        nobs=n,
    )


def naive_split(
    y: ArrayLike, X: Any, machines: ArrayLike, fit: Callable[..., Fit], **options: Any
) -> dict[Any, Fit]:
    """Let every machine work alone: return ``fit(y_i, X_i, **options)`` by label.

    Parameters
    ----------
    y, X : array_like, shapes (n,) and (n, p)
    machines : array_like, shape (n,)
        One label a row.
    fit : callable
        `debiased_lasso`, or a private fit; machines hold different people, so each spends the whole budget.

    Raises
    ------
    ArgumentError
        Lengths differ.

    Examples
    --------
    >>> naive_split([1.0, 2.0, 3.0], np.eye(3), ["a", "b", "b"], lambda y, X: float(y.mean()))
    {'a': 1.0, 'b': 2.5}
    """
    y = np.asarray(y)
    X = np.asarray(X)
    labels = np.asarray(machines)
    if not len(y) == len(X) == len(labels):
        raise ArgumentError(f"y, X and machines have {len(y)}, {len(X)} and {len(labels)} rows")
    names = list(dict.fromkeys(labels.tolist()))
    return {name: fit(y[labels == name], X[labels == name], **options) for name in names}


def _features(X: Any) -> np.ndarray[Any, Any]:
    given = np.asarray(X)
    if given.dtype == np.float32 and given.ndim == 2 and np.isfinite(given).all():
        return given
    return check_array(given, "X", ndim=2)


def _targets(targets: ArrayLike | None, p: int) -> Integers:
    chosen = np.arange(p) if targets is None else np.atleast_1d(np.asarray(targets))
    if chosen.dtype.kind not in "iu" or chosen.ndim != 1 or ((chosen < 0) | (chosen >= p)).any():
        raise ArgumentError(f"targets must be whole numbers from 0 to {p - 1}")
    return chosen.astype(np.int64)


def _moments(y: Floats, X: np.ndarray[Any, Any]) -> tuple[Floats, Floats]:
    """Return X'X/n and X'y/n, summed in double precision."""
    n, p = X.shape
    gram = np.zeros((p, p))
    cross = np.zeros(p)
    for start in range(0, n, _BLOCK):
        block = X[start : start + _BLOCK].astype(np.float64)
        gram += block.T @ block
        cross += block.T @ y[start : start + _BLOCK]
    return gram / n, cross / n


def _estimate(
    gram: Floats,
    cross: Floats,
    square: float,
    level: float,
    penalty: float | None,
    name: str,
    *,
    without: int | None,
) -> tuple[Floats, float]:
    """Return a lasso and the sd of its residuals."""
    if penalty is None:
        return scaled_lasso(gram, cross, square, level, without=without)
    b = lasso(gram, cross, check_number(penalty, name, low=0.0), without=without)
    return b, max(square - float(b @ (2.0 * cross - gram @ b)), 0.0) ** 0.5


def _precision_row(gram: Floats, j: int, level: float, penalty: float | None) -> Floats:
    g, _ = _estimate(gram, gram[j], float(gram[j, j]), level, penalty, "node_penalty", without=j)
    row = -g
    row[j] = 1.0
    return row / float(gram[j] @ row)


def _meat(y: Floats, X: np.ndarray[Any, Any], b: Floats, rows: Floats) -> Floats:
    """Return the mean of (w'x)^2 r^2 for each row w."""
    total = np.zeros(len(rows))
    weights = np.vstack([b, rows]).T
    for start in range(0, len(y), _BLOCK):
        here = slice(start, start + _BLOCK)
        product = X[here].astype(np.float64) @ weights
        total += (product[:, 1:] ** 2).T @ (y[here] - product[:, 0]) ** 2
    return total / len(y)
