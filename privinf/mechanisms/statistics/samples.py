r"""Sums over records of which tests and means are made (sample, groups, cells, pairs); their sensitivities.

A record is a few numbers in [-1, 1] (columns in units of half their public range, about its middle) and
the cell in which it stands, one of K. A statistic adds a vector of m entries to the row of that cell, so
a sum has K rows. How far replacing one record, which may move to another cell, moves it is proved here.

**One sample** (u, c u^2), c^2 = phi^5/4 with phi = (1 + sqrt 5)/2; l2 is 2, as of u alone: squares are free.
    With d = |u - v| and s = |u + v|, d + s <= 2 and the squared distance is d^2 (1 + c^2 s^2), which is
    largest at d = 2 - s. It is at most 4 if c^2 <= h(s) = (4 - s)/(s (2 - s)^2) for s in (0, 2); h is
    infinite at both ends and h' = 0 means s^2 - 6 s + 4 = 0, so that h is smallest at s = 3 - sqrt 5, where
    it is phi^5/4. For l1, (u, u^2/2): d + d s/2 <= d (2 - d/2) <= 2.
**Groups** (1, u, 1 - u^2); l2 is 2. The squared norm is 2 - u^2 (1 - u^2) <= 2, so two records in two groups
    are at most sqrt(2 + 2) apart; in one group their squared distance is d^2 (1 + s^2) <= 4, as above, since
    1 < c^2. For l1, (1, u, (1 - u^2)/2): the norm, 3/2 + |u| - u^2/2, is at most 2, so 4 in two groups, and
    at most 2 in one.
**Cells** (1); a record leaves one cell for another: l2 sqrt 2, l1 2.
**Share** (x), x in [0, 1]: 1 in both norms.
**Pairs** (a u, a v, b u^2, b v^2, u v), a = .7, b = 1.35; l2 is 2 sqrt(1 + a^2), from (1, 1) to (1, -1). With
    u + u' and u - u' for s and d as above, and so for v, the squared distance grows in |d|, |s| of either, so
    it is largest where both pairs add up to 2. With |s| = 1 + p and 1 + q it is there
    F = a^2 ((1 - p)^2 + (1 - q)^2) + b^2 ((1 - p^2)^2 + (1 - q^2)^2) + (1 - p q)^2 on [-1, 1]^2. That F is at
    most F(-1, 1) = 4 (1 + a^2) is proved in exact rational arithmetic: F is at most the largest of its
    Bernstein coefficients on each box of a division of the square (`tests/privacy/test_samples_audit.py`).
    For l1, weights (a, a, 1/2, 1/2, 1), a = .4: with D, S the |u - u'|, |u + u'| and E, T those of v, the
    distance is at most a (D + E) + (D S + E T)/2 + (D T + E S)/2, which grows in S and T; at S = 2 - D and
    T = 2 - E it is (a + 2) w - w^2/2, w = D + E, which is at most (a + 2)^2/2.

**Ranks** say nothing of distances: no bounds are paid for. With s(u, v) the sign of u - v, centred ranks of a
    group add up to R_g = sum s(u_i, u_j)/2 over i in g and j not in g, ties counted half: pairs in a group
    cancel. A pair of records adds s(e_g - e_h)/2 to the vector R, of l1 norm 1 if g and h differ.
    *Two groups*: (R_1/(n - 1), w N_1). A record that stays in its group changes R_1 by 1 at most for each
    record of the other group, n - 1 in all. One that leaves n_1 - 1 others for n_2 had n_2 pairs and has
    n_1 - 1, of 1/2 each: R_1 moves by (n - 1)/2 at most, and N_1 by 1. So l1 is max(1, 1/2 + w) and l2
    max(1, (1/4 + w^2)^.5): w = 1/2 and 3^.5/2 leave 1, **the count is free**.
    *Many groups*: sum |R_g|/(n - 1) moves by the l1 norm of R's change over n - 1 at most, 2.
    *Signed ranks*: T/n, T = sum s(u_i + u_j, 0) over i <= j (Walsh): a record is in n of these: 2.

Where noise is on a grid every entry of a record is rounded to it first; that share of the sensitivity is
charged with the noise (`privinf.noise.solve_scale`). Of ranks the sum is rounded: it moves no farther.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from privinf.mechanisms.statistics.block import nearest
from privinf.typing import Floats, Integers, SampleKind

PARABOLA_WEIGHT = math.sqrt(((1.0 + math.sqrt(5.0)) / 2.0) ** 5 / 4.0)
PAIR_WEIGHTS = 0.7, 1.35
PURE_PAIR_WEIGHT = 0.4
CACHED_ROWS = 1 << 15


@dataclass(frozen=True, slots=True)
class Weighted:
    """What entries are multiplied by before noise of one scale, and the sensitivity of the weighted sum."""

    weights: tuple[float, ...]
    sensitivity: float


@dataclass(frozen=True, slots=True)
class SampleStatistic:
    """What a record adds to the row of its cell: entries in [-1, 1], shape (rows, m), of values in [-1, 1].

    `l2` weighs them for Gaussian noise, `l1` for Laplace noise (None where that is not derived). `whole`, in
    place of `entries`, is of all records at once, shape (1, m).
    """

    entries: Callable[[Floats], Floats] | None
    l2: Weighted
    l1: Weighted | None
    derivation: str
    whole: Callable[[Sample], Floats] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Sample:
    """Records as statistics take them: values in [-1, 1], shape (n, columns), and the cell of each."""

    values: Floats
    codes: Integers
    cells: int

    def __len__(self) -> int:
        return len(self.codes)

    def __reduce__(self) -> Any:
        raise TypeError("raw rows are not pickled: pickle the result instead")


def weighted_sums(statistic: SampleStatistic, weighted: Weighted, sample: Sample, grid: float) -> Floats:
    """Return the sum over all records, shape (cells, m), weighted; on a grid (0: none) exact.

    Notes
    -----
    **Privacy.** Reads every record; the un-noised sum never leaves the mechanisms. Every record's entries are
    rounded to the grid by themselves, and sums of integers below 2^53 are exact in doubles, so that the order
    of the records cannot move them.
    """
    if statistic.whole is not None:
        steps, unit = nearest(statistic.whole(sample) * np.array(weighted.weights), grid)
        return steps * unit
    assert statistic.entries is not None
    sums = np.zeros((sample.cells, len(weighted.weights)))
    for values, codes in _parts(sample):
        steps, unit = nearest(statistic.entries(values) * np.array(weighted.weights), grid)
        for entry, column in enumerate(steps.T):
            sums[:, entry] += np.bincount(codes, weights=column, minlength=sample.cells) * unit
    return sums


def _parts(sample: Sample) -> Iterator[tuple[Floats, Integers]]:
    for start in range(0, len(sample), CACHED_ROWS):
        part = slice(start, start + CACHED_ROWS)
        yield np.clip(sample.values[part], -1.0, 1.0), sample.codes[part]


# ---- the statistics


def _one(values: Floats) -> Floats:
    u = values[:, 0]
    return np.column_stack([u, u * u])


def _group(values: Floats) -> Floats:
    u = values[:, 0]
    return np.column_stack([np.ones(len(u)), u, 1.0 - u * u])


def _share(values: Floats) -> Floats:
    return 0.5 + 0.5 * values[:, :1]


def _cell(values: Floats) -> Floats:
    return np.ones((len(values), 1))


def _pair(values: Floats) -> Floats:
    u, v = values.T
    return np.column_stack([u, v, u * u, v * v, u * v])


def _rank_sums(sample: Sample) -> Floats:
    """Return the sum of centred ranks of every group, multiples of 1/2, exact."""
    centred = rankdata(sample.values[:, 0]) - 0.5 * (len(sample) + 1)
    sums = np.bincount(sample.codes, weights=centred, minlength=sample.cells)
    return sums.astype(np.float64)


def _two_ranked(sample: Sample) -> Floats:
    first = float(np.count_nonzero(sample.codes == 0))
    return np.array([[_rank_sums(sample)[0] / (len(sample) - 1.0), first]])


def _many_ranked(sample: Sample) -> Floats:
    return np.array([[np.abs(_rank_sums(sample)).sum() / (len(sample) - 1.0)]])


def _signed_ranks(sample: Sample) -> Floats:
    u = sample.values[:, 0]
    return np.array([[float(np.sign(u) @ rankdata(np.abs(u))) / len(sample)]])


_A, _B = PAIR_WEIGHTS
SAMPLE_STATISTICS: dict[SampleKind, SampleStatistic] = {
    "one sample": SampleStatistic(
        _one,
        Weighted((1.0, PARABOLA_WEIGHT), 2.0),
        Weighted((1.0, 0.5), 2.0),
        "two points of the parabola (u, c u^2), u in [-1, 1], c^2 = phi^5/4",
    ),
    "groups": SampleStatistic(
        _group,
        Weighted((1.0, 1.0, 1.0), 2.0),
        Weighted((1.0, 1.0, 0.5), 4.0),
        "a record (1, u, 1 - u^2), of squared norm at most 2, moves to another group",
    ),
    "share": SampleStatistic(
        _share, Weighted((1.0,), 1.0), Weighted((1.0,), 1.0), "a record counts from 0 to 1"
    ),
    "cells": SampleStatistic(
        _cell, Weighted((1.0,), math.sqrt(2.0)), Weighted((1.0,), 2.0), "a record moves to another cell"
    ),
    "pairs": SampleStatistic(
        _pair,
        Weighted((_A, _A, _B, _B, 1.0), 2.0 * math.sqrt(1.0 + _A**2)),
        Weighted((PURE_PAIR_WEIGHT,) * 2 + (0.5, 0.5, 1.0), (PURE_PAIR_WEIGHT + 2.0) ** 2 / 2.0),
        "two records (a u, a v, b u^2, b v^2, u v), l2 from (1, 1) to (1, -1)",
    ),
    "two ranked": SampleStatistic(
        None,
        Weighted((1.0, math.sqrt(0.75)), 1.0),
        Weighted((1.0, 0.5), 1.0),
        "a record passes all n - 1 others, of the other group, or changes its group",
        _two_ranked,
    ),
    "many ranked": SampleStatistic(
        None,
        Weighted((1.0,), 2.0),
        Weighted((1.0,), 2.0),
        "n - 1 pairs of records, each of which moves two rank sums by 1 at most",
        _many_ranked,
    ),
    "signed ranks": SampleStatistic(
        None, Weighted((1.0,), 2.0), Weighted((1.0,), 2.0), "n signs of Walsh sums, over n", _signed_ranks
    ),
}
