r"""Paper 2's algorithms as restored, in plain numbers: the paper's constants in the paper's simulation.

`studies.paper.model` is a fit by the same algorithms whose noise is priced in zCDP and charged to a ledger.
Here every constant is the paper's, each can be changed by itself, and nothing is released: a simulation draws
the noise. Our copy of the paper lacks its formulas. They are restored from its proofs and from the earlier
papers that it extends, and cannot be compared with the original.

- Algorithm 1, NoisyHT(v, s, lambda): s times add Laplace(b) to |v_j| and take the largest that is left;
  then v_j + Laplace(b) for those. ``b = 2 lambda sqrt(3 s log(1/delta)) / epsilon``. PrivateMax is s = 1.
- Algorithm 2: T times ``beta <- P_C NoisyHT(beta - (eta/N) X'(X beta - Pi_R(y)))`` at epsilon/T and delta/T,
  ``lambda = 2 eta c_x (R + c_x sqrt(s) C) / N``, ``R = sigma sqrt(2 log N)``, T = log N.
- Algorithm 3: the same with gradient ``X' Pi_Rw(X w)/N - e_j`` and ``lambda = 2 eta c_x R_w / N``.
- Algorithm 4: ``mean Pi_R(y - X beta)^2`` + Gaussian noise of sensitivity R^2/N.
- Algorithm 5: the largest (smallest) of ``mean (x'v_k)^2`` over public s-sparse unit vectors v_k, by
  PrivateMax of sensitivity ``Pi^2/N``, Pi the clip of x'v.
- Equation 4.1 and Algorithm 6: ``beta_j + mean Pi_Rw(w_j'x) Pi_R(y - x'beta) + E_j``, E_j Gaussian of
  sensitivity 2 R R_w/n, with the variance ``sigma^2 w_jj/n + Var E_j``.
- Algorithm 7: q times PrivateMax over j of ``|n^-1/2 sum_i e_i w_j'x_i r_i|`` at epsilon/q, of sensitivity
  ``2 R R_w max|e_i| / sqrt n``, for multipliers e drawn first.
- Theorem 5: intervals are longer by ``(k_max/k_min) s b b_w`` on each side, b and b_w the Laplace scales of
  the last iterates of Algorithms 2 and 3: the constant is the paper's ("scaled to one").
- Algorithm 8: u on all rows with s0 entries, then v_i on the rows of machine i, from y - X u.

Gaussian noise of sensitivity D has sd ``D sqrt(2 log(1.25/delta)) / epsilon``. Each algorithm is given the
whole epsilon and delta, which favours the paper: one interval uses five of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.typing import Floats, Integers
from studies.paper.engine import Form

Rows = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Constants of the algorithms.

    Attributes
    ----------
    epsilon, delta : float
        Of each algorithm.
    rounds : int
        T.
    step : float
        eta.
    clip, precision_clip : float
        R and R_w.
    column_bound, norm_bound, precision_norm : float
        c_x, and C of coefficients and of precision columns.
    form : {"response", "residual"}
        Of Algorithm 2: as restored, or ``-X' Pi_R(y - X beta)``, of sensitivity 2 c_x R.
    split : bool
        Whether the rounds share epsilon and delta, as they must.
    noise, score_noise : float
        Multiples of the Laplace noises, and of E_j: 1 as restored.
    """

    epsilon: float
    delta: float
    rounds: int
    step: float
    clip: float
    precision_clip: float
    column_bound: float
    norm_bound: float
    precision_norm: float
    form: Form = "response"
    split: bool = True
    noise: float = 1.0
    score_noise: float = 1.0

    def laplace(self, sensitivity: float, size: int, parts: int = 1) -> float:
        """Return b of NoisyHT with `size` picks, epsilon and delta divided by `parts`."""
        root = math.sqrt(3.0 * size * math.log(parts / self.delta))
        return self.noise * 2.0 * sensitivity * root * parts / self.epsilon

    def gaussian(self, sensitivity: float) -> float:
        """Return the sd of a Gaussian release."""
        return sensitivity * math.sqrt(2.0 * math.log(1.25 / self.delta)) / self.epsilon

    def fit_scale(self, n: int, sparsity: int) -> float:
        """Return b of Algorithm 2 over n rows."""
        reach = self.column_bound * math.sqrt(sparsity) * self.norm_bound if self.form == "response" else 0.0
        sensitivity = 2.0 * self.step * self.column_bound * (self.clip + reach) / n
        return self.laplace(sensitivity, sparsity, self.rounds if self.split else 1)

    def column_scale(self, n: int, sparsity: int) -> float:
        """Return b of Algorithm 3 over n rows."""
        sensitivity = 2.0 * self.step * self.column_bound * self.precision_clip / n
        return self.laplace(sensitivity, sparsity, self.rounds if self.split else 1)


def constants(n: int, *, epsilon: float, delta: float, error_sd: float, **changes: Any) -> Constants:
    """Return the constants of theorem 3 for n rows in all and columns and coefficients of size one.

    c_x is 3.5, which normal columns pass with a probability of .0005, R_w and the norm of precision columns
    are sqrt(2 log N), eta is 1/2 and C is 1, the norm of the paper's coefficients. `changes` are fields of
    `Constants`.
    """
    growth = math.sqrt(2.0 * math.log(n))
    given: dict[str, Any] = {
        "rounds": math.ceil(math.log(n)),
        "step": 0.5,
        "clip": error_sd * growth,
        "precision_clip": growth,
        "column_bound": 3.5,
        "norm_bound": 1.0,
        "precision_norm": growth,
    }
    return Constants(epsilon=epsilon, delta=delta, **(given | changes))


def noisy_ht(v: Floats, size: int, b: float, rng: np.random.Generator) -> Floats:
    """Return NoisyHT of each row of v, shape (k, p).

    Examples
    --------
    >>> noisy_ht(np.array([[3.0, -5.0, 1.0]]), 2, 0.0, np.random.default_rng(0)).tolist()
    [[3.0, -5.0, 0.0]]
    """
    left = np.abs(v)
    rows = np.arange(len(v))
    kept = np.zeros_like(v)
    for _ in range(size):
        best = np.argmax(left + rng.laplace(0.0, b, left.shape) if b > 0.0 else left, axis=1)
        kept[rows, best] = v[rows, best] + (rng.laplace(0.0, b, len(v)) if b > 0.0 else 0.0)
        left[rows, best] = -np.inf
    return kept


def projected(v: Floats, norm: float) -> Floats:
    """Return rows of v shrunk to a length of at most `norm`."""
    length = np.linalg.norm(v, axis=1, keepdims=True)
    return np.asarray(v * np.minimum(1.0, norm / np.maximum(length, 1e-300)))


def sparse_product(X: Rows, beta: Floats) -> Floats:
    """Return X beta from the columns in which beta, shape (p,) or (p, k), is not zero."""
    here = np.flatnonzero(beta if beta.ndim == 1 else beta.any(axis=1))
    return np.asarray(X[:, here] @ beta[here].astype(X.dtype))


def coefficients(
    X: Rows,
    y: Floats,
    sparsity: int,
    c: Constants,
    rng: np.random.Generator,
    *,
    gram: Floats | None = None,
    noise_rows: int | None = None,
) -> Floats:
    """Return the last iterate of Algorithm 2, shape (p,).

    Parameters
    ----------
    X, y : ndarray, shapes (n, p) and (n,)
        Columns within c_x.
    sparsity : int
    c : Constants
    rng : Generator
    gram : ndarray, shape (p, p), optional
        X'X/n, with which the steps of the form "response" need no rows.
    noise_rows : int, optional
        The rows that the noise is scaled to instead of n, to show what that would do: no guarantee.
    """
    n, p = X.shape
    b = c.fit_scale(noise_rows or n, sparsity)
    beta = np.zeros(p)
    clipped = np.clip(y, -c.clip, c.clip)
    cross = np.asarray(clipped.astype(X.dtype) @ X, dtype=np.float64) / n
    for _ in range(c.rounds):
        if c.form == "residual":
            away = np.clip(y - sparse_product(X, beta), -c.clip, c.clip)
            slope = away.astype(X.dtype) @ X / n
        elif gram is None:
            slope = cross - sparse_product(X, beta).astype(X.dtype) @ X / n
        else:
            slope = cross - sparse_product(gram, beta)
        beta = projected(noisy_ht((beta + c.step * slope)[None], sparsity, b, rng), c.norm_bound)[0]
    return beta


def precision_columns(
    X: Rows, targets: Integers, sparsity: int, c: Constants, rng: np.random.Generator
) -> Floats:
    """Return the last iterates of Algorithm 3, shape (k, p)."""
    n, p = X.shape
    b = c.column_scale(n, sparsity)
    found = np.zeros((len(targets), p))
    for _ in range(c.rounds):
        forms = np.clip(sparse_product(X, found.T), -c.precision_clip, c.precision_clip)
        moved = found - c.step * np.asarray(forms.T @ X, dtype=np.float64) / n
        moved[np.arange(len(targets)), targets] += c.step
        found = projected(noisy_ht(moved, sparsity, b, rng), c.precision_norm)
    return found


def error_variance(X: Rows, y: Floats, beta: Floats, c: Constants, rng: np.random.Generator) -> float:
    """Return Algorithm 4's variance; it may not be positive."""
    residual = np.clip(y - sparse_product(X, beta), -c.clip, c.clip)
    return float(np.mean(residual**2) + c.gaussian(c.clip**2 / len(y)) * rng.standard_normal())


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """Debiased coordinates of one machine.

    Attributes
    ----------
    params, bse : ndarray, shape (k,)
        bse is nan where the noise leaves the variance no sign.
    scores : ndarray, shape (n, k)
        ``Pi_Rw(w_j'x) Pi_R(r)``.
    """

    params: Floats
    bse: Floats
    scores: Floats


def debiased(
    X: Rows,
    y: Floats,
    beta: Floats,
    targets: Integers,
    columns: Floats,
    variance: float,
    c: Constants,
    rng: np.random.Generator,
) -> Coordinates:
    """Return equation 4.1 and Algorithm 6's standard errors."""
    n = len(y)
    residual = np.clip(y - sparse_product(X, beta), -c.clip, c.clip)
    forms = np.clip(sparse_product(X, columns.T), -c.precision_clip, c.precision_clip)
    scores = np.asarray(forms * residual[:, None], dtype=np.float64)
    sd = c.score_noise * c.gaussian(2.0 * c.clip * c.precision_clip / n)
    params = beta[targets] + scores.mean(axis=0) + sd * rng.standard_normal(len(targets))
    square = variance * columns[np.arange(len(targets)), targets] / n
    bse = np.sqrt(np.where(square > 0.0, square + sd**2, np.nan))
    return Coordinates(params, bse, scores)


def restricted_eigenvalues(
    X: Rows, directions: Floats, c: Constants, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Return Algorithm 5's smallest and largest eigenvalue, and b of its noise; `directions` are (p, n_1)."""
    values = (np.clip(X @ directions.astype(X.dtype), -c.precision_clip, c.precision_clip) ** 2).mean(axis=0)
    b = c.laplace(c.precision_clip**2 / len(X), 1)
    ends = [
        float(values[np.argmax(sign * values + rng.laplace(0.0, b, len(values)))]) for sign in (-1.0, 1.0)
    ]
    smallest, largest = (end + float(rng.laplace(0.0, b)) for end in ends)
    return smallest, largest, b


def bootstrap_quantile(
    scores: Floats, draws: int, alpha: float, c: Constants, rng: np.random.Generator
) -> tuple[float, float]:
    """Return Algorithm 7's 1 - alpha quantile of the largest score, and b of its noise."""
    n = len(scores)
    e = rng.standard_normal((draws, n))
    largest = np.abs(e @ scores) / math.sqrt(n)
    sensitivity = 2.0 * c.clip * c.precision_clip * float(np.abs(e).max()) / math.sqrt(n)
    b = c.laplace(sensitivity, 1, draws)
    selected = noisy_ht(largest, 1, b, rng).sum(axis=1)
    return float(np.quantile(selected, 1.0 - alpha)), b


def slack(ratio: float, sparsity: int, precision_sparsity: int, n: int, own: int, c: Constants) -> float:
    """Return Theorem 5's slack: n rows make the precision columns, `own` rows the coefficients."""
    return ratio * sparsity * c.fit_scale(own, sparsity) * c.column_scale(n, precision_sparsity)
