r"""Joint inference on many coefficients or contrasts: critical values and p-values of the largest |t|.

**A bias.** Of a quantity whose bias is at most b_k standard errors, the pointwise p-value is the largest that
the bias allows, ``p_k = G_k(|t_k|)`` with ``G_k(c) = P(|T + b_k| > c)``; see
`privinf.inference.intervals.Precision`. Joint inference rejects where p_k is at most a common l. Whatever the
biases are inside their bounds, the chance of any false rejection is at most both

    A(l) = P(some |T_k| + b_k has G_k(|T_k| + b_k) <= l),   and   m l  (Bonferroni).

A moves every |T_k| outward by its bound, at both ends: with a large bias A counts two ends of which the bias
can reach one, so for quantities with little correlation it is up to twice m l. The single-step p-value is
therefore ``min(A(p_k), m p_k)``; it is never above Bonferroni's p-value, and step-down is never above
Holm's. Both are functions of the common l, so their minimum keeps the level. Intervals have the pointwise
level at which the smaller bound is alpha. Without a bias A is the distribution of the largest |T_k|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from privinf.errors import ArgumentError
from privinf.inference.bootstrap import BLOCK, covariance_root, multiplier_sums, unit_influence
from privinf.inference.estimate import two_sided_pvalue, upper_quantile
from privinf.inference.intervals import moved_tails
from privinf.typing import ArrayLike, Floats, Integers, Multipliers, RngLike
from privinf.validation import as_generator, check_array, check_count, check_fraction

TABLE_POINTS = 2048  # of tabulated tails of biased statistics: logarithms are right to 1e-4
TABLE_TAIL = 1e-12  # chance of a statistic beyond the table


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxT:
    """Joint inference by the distribution of the largest |t|.

    Attributes
    ----------
    critical_value : float
        ``estimate +- critical_value * bse`` covers all m quantities jointly with probability 1 - alpha, if
        they have no bias.
    single_step : ndarray, shape (m,)
        Adjusted p-values: the chance that the largest of m null statistics exceeds this one.
    step_down : ndarray, shape (m,)
        Romano-Wolf: as `single_step`, leaving out the hypotheses rejected before; never larger.
    draws : int
    level : float, optional
        Pointwise level at which intervals of biased quantities miss, so that they hold jointly; None without
        a bias.
    """

    critical_value: float
    single_step: Floats
    step_down: Floats
    draws: int
    level: float | None = None


def gaussian_max_t(
    statistics: ArrayLike,
    cov: ArrayLike,
    *,
    alpha: float = 0.05,
    draws: int = 100_000,
    df: float = np.inf,
    bias: Floats | None = None,
    rng: RngLike = None,
) -> MaxT:
    """Joint inference from the covariance alone, by simulating the largest of m correlated normals.

    Parameters
    ----------
    statistics : array_like, shape (m,)
        t statistics of the quantities.
    cov : array_like, shape (m, m)
        Their covariance; it may be singular (dummies summing to zero, more contrasts than coefficients).
    alpha : float
    draws : int
    df : float
        Degrees of freedom of the covariance's scale: finite for the multivariate t distribution.
    bias : ndarray, shape (m,), optional
        Largest absolute biases in standard errors; see the module.
    rng : None, int or Generator

    Raises
    ------
    ArgumentError
        A quantity has variance zero, or `cov` has a negative eigenvalue.

    Notes
    -----
    **Privacy.** Post-processing: no cost.

    Results are held inside Sidak's bounds, ``p <= adjusted <= 1 - (1 - p)^m``, which hold for normal
    and t statistics of any correlation: for m = 1 nothing is left of the simulation, and p-values far below
    1 / draws keep their meaning. With a bias the upper bounds are those of Bonferroni and Holm.
    """
    check_fraction(alpha, "alpha")
    observed = np.abs(check_array(statistics, "statistics", ndim=1))
    root = _correlation_root(check_array(cov, "cov", ndim=2), len(observed))
    count = check_count(draws, "draws")
    blocks = _gaussian_blocks(root, count, df, as_generator(rng))
    if bias is not None:
        return _biased(observed, blocks, count, alpha, bias, df)
    return _inside_sidak(_summarize(observed, blocks, count, alpha), observed, alpha, df)


def multiplier_max_t(
    statistics: ArrayLike,
    influence: ArrayLike,
    *,
    alpha: float = 0.05,
    draws: int = 9_999,
    multipliers: Multipliers = "rademacher",
    groups: Integers | None = None,
    bias: Floats | None = None,
    rng: RngLike = None,
) -> MaxT:
    """Joint inference by the multiplier bootstrap of released records.

    Parameters
    ----------
    statistics : array_like, shape (m,)
    influence : array_like, shape (n, m)
        Influence of each record on each quantity; centered and scaled here.
    groups : ndarray of int, shape (n,), optional
        Records of one unit share a multiplier.
    bias : ndarray, shape (m,), optional
        Largest absolute biases in standard errors; see the module.

    Notes
    -----
    **Privacy.** Post-processing of released records: no cost. Follows Chernozhukov, Chetverikov and Kato
    (2013), whose bound allows m far larger than n.
    """
    check_fraction(alpha, "alpha")
    observed = np.abs(check_array(statistics, "statistics", ndim=1))
    units = unit_influence(influence, groups)
    if units.shape[1] != len(observed):
        raise ArgumentError(
            f"statistics= must have one entry for each of the {units.shape[1]} columns of influence=, "
            f"got {len(observed)}"
        )
    spread = np.sqrt(np.einsum("ij,ij->j", units, units))
    _check_spread(spread)
    count = check_count(draws, "draws")
    sums = multiplier_sums(units / spread, draws=count, multipliers=multipliers, rng=as_generator(rng))
    if bias is not None:
        return _biased(observed, [sums], count, alpha, bias)
    return _summarize(observed, [sums], count, alpha)


def drawn_max_t(
    statistics: ArrayLike, draws: Floats, *, alpha: float = 0.05, bias: Floats | None = None
) -> MaxT:
    """Joint inference from draws of the m statistics under the null, shape (draws, m)."""
    observed = np.abs(check_array(statistics, "statistics", ndim=1))
    check_fraction(alpha, "alpha")
    if bias is not None:
        return _biased(observed, [draws], len(draws), alpha, bias)
    return _summarize(observed, [draws], len(draws), alpha)


def _summarize(observed: Floats, blocks: Iterable[Floats], draws: int, alpha: float) -> MaxT:
    """Fold blocks of null draws, shape (b, m), into critical value and both kinds of p-values.

    Hypotheses are sorted from the largest statistic down; the step-down p-value of the k-th compares it
    with the largest null statistic among those from k on (Romano and Wolf 2005, algorithm 4.1).
    """
    position = math.ceil((1.0 - alpha) * (draws + 1)) - 1
    if position >= draws:
        raise ArgumentError(f"{draws} draws are too few for alpha={alpha:g}: increase draws=")
    order = np.argsort(-observed, kind="stable")
    single = np.zeros(len(observed))
    stepped = np.zeros(len(observed))
    maxima = []
    for block in blocks:
        remaining = np.maximum.accumulate(np.abs(block[:, order[::-1]]), axis=1)[:, ::-1]
        largest = np.sort(remaining[:, 0])
        single += len(largest) - np.searchsorted(largest, observed[order], side="left")
        stepped += (remaining >= observed[order]).sum(axis=0)
        maxima.append(largest)
    critical = np.partition(np.concatenate(maxima), position)[position]
    back = np.argsort(order)
    stepped = np.maximum.accumulate((stepped + 1.0) / (draws + 1.0))
    return MaxT(
        critical_value=float(critical),
        single_step=((single + 1.0) / (draws + 1.0))[back],
        step_down=stepped[back],
        draws=draws,
    )


def _biased(
    observed: Floats, blocks: Iterable[Floats], draws: int, alpha: float, bias: Floats, df: float = np.inf
) -> MaxT:
    """Return joint inference on statistics with biases of at most `bias` standard errors; see the module."""
    pointwise = np.minimum(moved_tails(observed, bias, df), 1.0)
    with np.errstate(divide="ignore"):
        evidence = -np.log(pointwise)
    outward = _outward_evidence(bias, df)
    simulated = _summarize(evidence, map(outward, blocks), draws, alpha)
    count = len(observed)
    order = np.argsort(pointwise, kind="stable")
    single = np.clip(simulated.single_step, pointwise, np.minimum(count * pointwise, 1.0))
    holm = np.minimum(np.arange(count, 0, -1) * pointwise[order], 1.0)
    stepped = np.maximum.accumulate(np.clip(simulated.step_down[order], pointwise[order], holm))
    level = min(max(math.exp(-simulated.critical_value), alpha / count), alpha)
    return MaxT(
        critical_value=upper_quantile(level / 2.0, df),
        single_step=single,
        step_down=np.minimum(stepped[np.argsort(order)], single),
        draws=draws,
        level=level,
    )


def _outward_evidence(bias: Floats, df: float) -> Callable[[Floats], Floats]:
    """Return the function from null draws T, shape (b, m), to ``-log G(|T| + bias)``, by a table."""
    end = upper_quantile(TABLE_TAIL, df)
    sizes = np.expm1(np.linspace(0.0, math.log1p(end), TABLE_POINTS))
    columns = [-np.log(np.minimum(moved_tails(sizes + b, np.full_like(sizes, b), df), 1.0)) for b in bias]

    def evidence(block: Floats) -> Floats:
        return np.column_stack(
            [np.interp(np.abs(draws), sizes, column) for draws, column in zip(block.T, columns, strict=True)]
        )

    return evidence


def _inside_sidak(simulated: MaxT, observed: Floats, alpha: float, df: float) -> MaxT:
    count = len(observed)
    order = np.argsort(-observed, kind="stable")
    pointwise = two_sided_pvalue(observed, df)
    single = np.clip(simulated.single_step, pointwise, _sidak(pointwise, count))
    remaining = np.arange(count, 0, -1)
    stepped = np.clip(simulated.step_down[order], pointwise[order], _sidak(pointwise[order], remaining))
    stepped = np.minimum(np.maximum.accumulate(stepped)[np.argsort(order)], single)
    low = upper_quantile(alpha / 2.0, df)
    high = upper_quantile(-math.expm1(math.log1p(-alpha) / count) / 2.0, df)
    return MaxT(
        critical_value=float(np.clip(simulated.critical_value, low, high)),
        single_step=single,
        step_down=stepped,
        draws=simulated.draws,
    )


def _sidak(pointwise: Floats, count: int | Integers) -> Floats:
    """Return ``1 - (1 - p)^count`` without losing small p."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(count * np.log1p(-np.minimum(pointwise, 1.0))))


def _gaussian_blocks(root: Floats, draws: int, df: float, rng: np.random.Generator) -> Iterator[Floats]:
    step = max(1, BLOCK // max(root.shape))
    for start in range(0, draws, step):
        block = rng.standard_normal((min(step, draws - start), root.shape[1])) @ root.T
        if math.isfinite(df):
            block /= np.sqrt(rng.chisquare(df, len(block)) / df)[:, None]
        yield block


def _correlation_root(cov: Floats, count: int) -> Floats:
    if cov.shape != (count, count):
        raise ArgumentError(
            f"cov= must have one row and one column for each of the {count} statistics, got shape {cov.shape}"
        )
    variances = np.diag(cov)
    if (variances < 0.0).any():
        raise ArgumentError("cov= has a negative variance")
    spread = np.sqrt(variances)
    _check_spread(spread)
    root = covariance_root(cov / np.outer(spread, spread))
    # Rows of unit length again: dropping eigenvalues at rounding level shortens them.
    return np.asarray(root / np.linalg.norm(root, axis=1, keepdims=True))


def _check_spread(spread: Floats) -> None:
    if not (spread > 0.0).all():
        place = int(np.flatnonzero(~(spread > 0.0))[0])
        raise ArgumentError(
            f"quantity {place} (counted from 0) has no sampling error: leave it out of the joint inference"
        )
