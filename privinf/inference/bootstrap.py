"""Bootstrap of an estimate: multiplier and pairs on released records, parametric on the covariance alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privinf.errors import ArgumentError
from privinf.progress import step
from privinf.typing import ArrayLike, Floats, Integers, Multipliers, RngLike
from privinf.validation import as_generator, check_array, check_choice, check_count, check_fraction

BootstrapInterval = Literal["percentile", "studentized"]
Resolve = Callable[[Floats], tuple[Floats, Floats]]

# A draw of n records has about .63 n different ones. Of 5 coefficients from 30, 20, 12 and 8 mixed rows, 95%
# intervals by pairs were 1.1, 1.1, 1.8 and 40 times as wide as by t: below three rows a coefficient, none.
FEWEST_PER_COEFFICIENT = 3

# Multipliers held at once: bounds the memory of a bootstrap by O(draws * p + BLOCK), for any n.
BLOCK = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapDraws:
    """Draws from the estimated sampling distribution of an estimate.

    Attributes
    ----------
    params, bse : ndarray, shape (p,)
        The estimate and the standard errors that studentized intervals rest on.
    draws : ndarray, shape (B, p)
        Replicates of `params`.
    pivots : ndarray, shape (B, p)
        ``(replicate - params) / standard error in that replicate``.
    failed : int
        Replicates left out because their moments were singular.
    """

    params: Floats
    bse: Floats
    draws: Floats
    pivots: Floats
    failed: int = 0

    @property
    def cov(self) -> Floats:
        """Covariance of the replicates, shape (p, p)."""
        return np.atleast_2d(np.cov(self.draws, rowvar=False))

    def conf_int(self, alpha: float = 0.05, kind: BootstrapInterval = "studentized") -> Floats:
        """Return intervals of level ``1 - alpha``, shape (p, 2).

        "percentile" takes quantiles of the replicates; "studentized" inverts the bootstrap distribution of
        the t statistic, which adapts to its skewness. Quantiles of B draws are their
        ``(B + 1) q``-th smallest, interpolated: a new draw of the same distribution lies below with
        probability q at every B.
        """
        check_fraction(alpha, "alpha")
        check_choice(kind, BootstrapInterval, "kind")
        if (len(self.draws) + 1) * alpha < 2.0:
            least = np.ceil(2.0 / alpha) - 1.0
            raise ArgumentError(
                f"{len(self.draws)} draws are too few for alpha={alpha:g}: pass draws= of at least {least:g}"
            )
        levels = [alpha / 2.0, 1.0 - alpha / 2.0]
        if kind == "percentile":
            return np.asarray(np.quantile(self.draws, levels, axis=0, method="weibull").T)
        low, high = np.quantile(self.pivots, levels, axis=0, method="weibull")
        return np.column_stack([self.params - high * self.bse, self.params - low * self.bse])


def multiplier_bootstrap(
    params: ArrayLike,
    influence: ArrayLike,
    *,
    draws: int = 999,
    multipliers: Multipliers = "rademacher",
    groups: Integers | None = None,
    rng: RngLike = None,
) -> BootstrapDraws:
    """Bootstrap by multiplying each record's influence with an independent variable of mean 0, variance 1.

    Parameters
    ----------
    params : array_like, shape (p,)
    influence : array_like, shape (n, p)
        ``influence_i = bread^-1 scores_i``; centered here.
    draws : int
    multipliers : {"rademacher", "gaussian"}
    groups : ndarray of int, shape (n,), optional
        Records of one unit share a multiplier.
    rng : None, int or Generator

    Notes
    -----
    **Privacy.** Post-processing of released records: no cost.

    The replicate is ``params + mean(w_i influence_i)``; its squared standard error, from which the pivots
    come, is ``(sum (w_i influence_i)^2 / n - mean(w_i influence_i)^2) / n`` and for Rademacher signs needs
    no second pass, as then ``w_i^2 = 1``. Gaussian multipliers have, given the records, exactly the
    distribution N(0, mean of squares / n): they are drawn from it, and their pivots have a fixed standard
    error.
    """
    generator = as_generator(rng)
    count = check_count(draws, "draws", least=2)
    units = unit_influence(influence, groups)
    center = check_array(params, "params", ndim=1)
    n = len(units)
    bse = np.sqrt(np.einsum("ij,ij->j", units, units)) / n
    shifts = multiplier_sums(units, draws=count, multipliers=multipliers, rng=generator) / n
    spread = np.broadcast_to(bse, shifts.shape)
    if multipliers == "rademacher":
        spread = np.sqrt(np.maximum(spread**2 - shifts**2 / n, np.finfo(float).tiny))
    return BootstrapDraws(params=center, bse=bse, draws=center + shifts, pivots=shifts / spread)


def pairs_bootstrap(
    params: ArrayLike,
    bse: ArrayLike,
    resolve: Resolve,
    *,
    n: int,
    draws: int = 999,
    groups: Integers | None = None,
    rng: RngLike = None,
) -> BootstrapDraws:
    """Bootstrap by drawing records (or whole groups) with replacement and solving again.

    Parameters
    ----------
    params, bse : array_like, shape (p,)
    resolve : callable
        ``resolve(weights) -> (params, bse)`` for counts of shape (n,): the estimate and its standard errors
        with record i counted ``weights[i]`` times. LinAlgError marks the draw as failed.
    n : int
        Number of records.
    groups : ndarray of int, shape (n,), optional

    Raises
    ------
    ArgumentError
        There are fewer than three records (groups) a coefficient: a draw has too few different ones. Or more
        than a tenth of the draws failed: the estimate is too weakly identified for this method.

    Notes
    -----
    **Privacy.** Post-processing of released records: no cost. Memory O(n + draws * p).
    """
    generator = as_generator(rng)
    count = check_count(draws, "draws", least=2)
    center = check_array(params, "params", ndim=1)
    spread = check_array(bse, "bse", ndim=1)
    labels = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    units = int(labels.max()) + 1
    fewest = FEWEST_PER_COEFFICIENT * len(center)
    if units < fewest:
        raise ArgumentError(
            f"the pairs bootstrap needs at least {fewest} units (records, or clusters of records) "
            f"for {len(center)} coefficients, and there are {units}: pass method='multiplier'"
        )
    replicates = []
    pivots = []
    for _ in range(count):
        step()
        counts = np.bincount(generator.integers(units, size=units), minlength=units)
        try:
            beta, error = resolve(counts[labels].astype(np.float64))
        except np.linalg.LinAlgError:
            continue
        if np.isfinite(error).all() and (error > 0.0).all():
            replicates.append(beta)
            pivots.append((beta - center) / error)
    failed = count - len(replicates)
    if failed > count // 10:
        raise ArgumentError(
            f"{failed} of {count} resamples have no estimate with finite standard errors, too many for the "
            "pairs bootstrap; pass method='multiplier', or use the score intervals"
        )
    return BootstrapDraws(
        params=center, bse=spread, draws=np.array(replicates), pivots=np.array(pivots), failed=failed
    )


def parametric_bootstrap(
    params: ArrayLike, cov: ArrayLike, *, draws: int = 999, rng: RngLike = None
) -> BootstrapDraws:
    """Draw from ``N(params, cov)``, shape (p,) and (p, p): needs no records; `cov` may be singular."""
    center = check_array(params, "params", ndim=1)
    covariance = check_array(cov, "cov", ndim=2)
    root = covariance_root(covariance)
    count = check_count(draws, "draws", least=2)
    shifts = as_generator(rng).standard_normal((count, root.shape[1])) @ root.T
    bse = np.sqrt(np.diag(covariance))
    pivots = np.divide(shifts, bse, out=np.zeros_like(shifts), where=bse > 0.0)
    return BootstrapDraws(params=center, bse=bse, draws=center + shifts, pivots=pivots)


def covariance_root(cov: Floats) -> Floats:
    """Return R, shape (p, rank), with ``R R' = cov``; eigenvalues that rounding made negative count as 0."""
    values, vectors = np.linalg.eigh((cov + cov.T) / 2.0)
    tolerance = max(float(values[-1]), 0.0) * len(values) * np.finfo(float).eps
    if values[0] < -1e3 * tolerance:
        raise ArgumentError("cov has a negative eigenvalue and is therefore not a covariance matrix")
    positive = values > tolerance
    return np.asarray(vectors[:, positive] * np.sqrt(values[positive]), dtype=np.float64)


def unit_influence(influence: ArrayLike, groups: Integers | None = None) -> Floats:
    """Return centered influences, shape (units, p), scaled so that their mean is the mean over records.

    With `groups`, influences are summed within a group and multiplied by ``units / n``.
    """
    values = check_array(influence, "influence", ndim=2)
    centered = np.asarray(values - values.mean(axis=0), dtype=np.float64)
    if groups is None:
        return centered
    if len(groups) != len(values):
        raise ArgumentError(
            f"groups= must have one entry for each of the {len(values)} records, got {len(groups)}"
        )
    labels = np.unique(groups, return_inverse=True)[1]
    units = int(labels.max()) + 1
    sums = np.column_stack([np.bincount(labels, column, minlength=units) for column in centered.T])
    return np.asarray(sums * (units / len(values)), dtype=np.float64)


def multiplier_sums(
    units: Floats, *, draws: int, multipliers: Multipliers, rng: np.random.Generator
) -> Floats:
    """Return ``sum_i w_bi units_i`` for `draws` sets of multipliers, shape (draws, p), in O(BLOCK) memory."""
    check_choice(multipliers, Multipliers, "multipliers")
    if multipliers == "gaussian":
        root = covariance_root(units.T @ units)
        return np.asarray(rng.standard_normal((draws, root.shape[1])) @ root.T, dtype=np.float64)
    step = max(1, BLOCK // draws)
    chosen = np.zeros((draws, units.shape[1]))
    for start in range(0, len(units), step):
        part = units[start : start + step]
        size = draws * len(part)
        bits = np.frombuffer(rng.bytes(math.ceil(size / 8)), dtype=np.uint8)
        heads = np.unpackbits(bits, count=size).reshape(draws, len(part))
        chosen += heads.astype(np.float64) @ part
    return np.asarray(2.0 * chosen - units.sum(axis=0), dtype=np.float64)
