r"""Sums over records of which tests and means are made (sample, groups, cells, pairs); their sensitivities.

A record is a few numbers in [-1, 1] (columns in units of half their public range, about its middle) and
its cell, one of K. A statistic adds a vector of m entries to the row of that cell, so
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
**Margins** of a table of two factors: (a 1, b 1, c 1) in its cell, its row and its column, a^2 + b^2 + c^2 =
    1: a record moves one unit of each weight to another place, or leaves it: l2 sqrt(2 (a^2 + b^2 + c^2)).
**Distributions** of several groups: (1) in a cell of its group, of which the square root of prefix sums is
    released (`privinf.mechanisms.statistics.prefixes`).
**Share** (x), x in [0, 1]: 1 in both norms.
**Pairs** (a u, a v, b u^2, b v^2, u v), a = .7, b = 1.35; l2 is 2 sqrt(1 + a^2), from (1, 1) to (1, -1). With
    u + u' and u - u' for s and d as above, and so for v, the squared distance grows in |d|, |s| of either, so
    it is largest where both pairs add up to 2. With |s| = 1 + p and 1 + q it is there
    F = a^2 ((1 - p)^2 + (1 - q)^2) + b^2 ((1 - p^2)^2 + (1 - q^2)^2) + (1 - p q)^2 on [-1, 1]^2. That F is at
    most F(-1, 1) = 4 (1 + a^2) is proved in exact rational arithmetic: F is at most the largest of its
    Bernstein coefficients on each box of a division of the square (`tests/privacy/test_samples_audit.py`).
    For l1, weights (a, a, 1/2, 1/2, 1), a = 0.4: with D, S the |u - u'|, |u + u'| and E, T those of v, the
    distance is at most a (D + E) + (D S + E T)/2 + (D T + E S)/2, which grows in S and T; at S = 2 - D and
    T = 2 - E it is (a + 2) w - w^2/2, w = D + E, which is at most (a + 2)^2/2.

**Rows without a value** (`missing="drop"`, the "complete" statistics) add zero to every sum, and the number N
    of the other rows is released too. No sensitivity rises. Two complete records are as far apart as above,
    since 1 - u^2 moves as u^2 does. From a complete record to zero the squared distance is convex in u^2:
    *One sample* (a, u, c (1 - u^2)), a^2 = 4 - c^2: a^2 + c^2 = 4 at u = 0 and a^2 + 1 < 4 at |u| = 1.
    *Share* (3^.5/2, u/2), u = 2 x - 1: 3/4 + u^2/4 <= 1.
    *Pairs* (d, a u, a v, b (1 - u^2), b (1 - v^2), u v), d = 1.52: convex in u^2 and in v^2, and
    d^2 + 2 b^2 < 4 (1 + a^2) at (0, 0), d^2 + a^2 + b^2 at (1, 0), d^2 + 2 a^2 + 1 at (1, 1).
    *Groups, cells*: rows without a value are in a cell of their own with the entries (1, 0, 0). In l2 a
    record of a group is at most (2 + 1)^.5 < 2 from that; one of a table moves to another cell, as above.

**Ranks** say nothing of distances: no bounds are paid for. With s(u, v) the sign of u - v, centered ranks of
a
    group add up to R_g = sum s(u_i, u_j)/2 over i in g and j not in g, ties counted half: pairs in a group
    cancel. A pair of records adds s(e_g - e_h)/2 to the vector R, of l1 norm 1 if g and h differ.
    *Two groups*: (R_1/(n - 1), w N_1). A record that stays in its group changes R_1 by 1 at most for each
    record of the other group, n - 1 in all. One that leaves n_1 - 1 others for n_2 had n_2 pairs and has
    n_1 - 1, of 1/2 each: R_1 moves by (n - 1)/2 at most, and N_1 by 1. So l1 is max(1, 1/2 + w) and l2
    max(1, (1/4 + w^2)^.5): w = 1/2 and 3^.5/2 leave 1, **the count is free**.
    *Many groups*: sum |R_g|/(n - 1) moves by the l1 norm of R's change over n - 1 at most, 2.
    *Signed ranks*: T/n, T = sum s(u_i + u_j, 0) over i <= j (Walsh): a record is in n of these: 2.
    *Without a value.* Ranks are those among the N complete records, over the same n - 1 or n, and N is
    released too. A record that comes to lack its value takes at most n - 1 pairs away, and turns no sign.
    *Two groups* (v N, R_1/(n - 1), w (N_1 - N_2)), v = 3/4, w = 3^.5/4: as above, 1 in a group and
    1/4 + 4 w^2 = 1 from one to the other; to zero 1/4 + v^2 + w^2 = 1. *Many groups* and *signed ranks*
    (3^.5 N, as above): to zero the second moves by 1 at most, so that l2 is at most (3 + 1)^.5 = 2.

**On the grid.** Where there is noise, u = k 2^-20 with k the integer of `ColumnGrid`, |k| <= 2^20 whatever
the value: u is in [-1, 1], so all of the above holds of it. Entries are polynomials of u with whole
coefficients, hence integers times 2^-40, which are added up exactly: no order, block or source moves a bit.
Weights multiply the totals, each of which is rounded once to the noise's grid g. Rounding moves one by g/2 at
most, so the distance of two totals by g; a record that leaves its cell touches two cells, 2 m totals in place
of m: that share of the sensitivity, g sqrt(2 m) or in l1 2 m g, is charged with the noise
(`SampleStatistic.touched`, `privinf.noise.solve_scale`). For ranks, the one total of floats is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import scipy  # whose parts are loaded when they are used

from privinf.mechanisms.statistics.prefixes import PrefixSums, prefix_sensitivity
from privinf.mechanisms.sums import BLOCK_ROWS, FULL_SCALE, VALUE_BITS, ExactSum, Wide, added_rows
from privinf.typing import Floats, Integers, SampleKind
from privinf.wire import Derivations

# c, the largest weight at which squares are free in l2, see *One sample*.
PARABOLA_WEIGHT = math.sqrt(((1.0 + math.sqrt(5.0)) / 2.0) ** 5 / 4.0)
PAIR_WEIGHTS = 0.7, 1.35  # a and b of *Pairs*
# a and d of *Rows without a value*: the largest weights of N at which it is free, the second rounded down.
SAMPLE_COUNT_WEIGHT = math.sqrt(4.0 - PARABOLA_WEIGHT**2)
PAIR_COUNT_WEIGHT = 1.52
PURE_PAIR_WEIGHT = 0.4  # a of *Pairs* in l1
# Shares of mu^2 for the cells, the rows and the columns of a table with margins.
MARGIN_SHARES = (0.6, 0.2, 0.2)
# Rows whose entries, at most 2^41 steps, doubles add up exactly.
PART_ROWS = BLOCK_ROWS // 2


@dataclass(frozen=True, slots=True)
class Weighted:
    """Weights of entries before noise of one scale, and the sensitivity of the weighted sum."""

    weights: tuple[float, ...]
    sensitivity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleStatistic:
    """Contribution of a record to the row of its cell: entries in [-1, 1], of values in [-1, 1].

    `entries` of values (rows, columns) and of 1, in whatever unit both are, are m arrays (rows,) in its
    square, times `factor`. `l2` weighs them for Gaussian noise, `l1` for Laplace noise (None where that is
    not derived). `whole`, in place of `entries`, is of all records together, shape (1, m). For counts of
    cells, `totals`, if any, are released instead: it takes the counts, in the shape of the table, and the
    weights. `blocks` is, by that shape, how many totals have each weight, and `sized` the statistic of it.
    With `gaps` the last cell has the rows without a value: their number in its first entry, which is 1 for
    every row, and 0.
    """

    entries: Callable[[Floats, float], Sequence[Floats]] | None
    l2: Weighted
    l1: Weighted | None
    derivation: str
    whole: Callable[[Sample], Floats] | None = None
    factor: float = 1.0
    totals: Callable[[Integers, Weighted], CountTotals] | None = None
    blocks: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
    sized: Callable[[SampleStatistic, tuple[int, ...]], SampleStatistic] | None = None
    most_touched: int | None = None
    gaps: bool = False

    def of_table(self, shape: tuple[int, ...]) -> SampleStatistic:
        """Return the statistic of a table of this shape: some sensitivities depend on it."""
        return self if self.sized is None else self.sized(self, shape)

    def weights(self, weighted: Weighted, shape: tuple[int, ...]) -> Floats:
        """Return the weights of the totals, one per column of (cells, m), or one per row."""
        weights = np.array(weighted.weights)
        return weights if self.blocks is None else np.repeat(weights, self.blocks(shape))[:, None]

    def touched(self, cells: int) -> int:
        """Return the number of totals that one record can change: those of two cells."""
        if self.most_touched is not None:
            return self.most_touched
        return len(self.l2.weights) * (1 if self.whole is not None else min(cells, 2))


@dataclass(frozen=True, slots=True, repr=False)
class Sample:
    """Records as statistics take them: values in [-1, 1], or their steps, (n, columns), and their cells.

    `gaps` is the number of rows without a value, which are left out.
    """

    values: Floats
    codes: Integers
    cells: int
    gaps: int = 0

    @classmethod
    def joined(cls, parts: Sequence[Sample], cells: int) -> Sample:
        """Return the records of several, of which there may be none."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls(np.empty((0, 1)), np.empty(0, dtype=np.int64), cells)
        values, codes = ([getattr(part, name) for part in parts] for name in ("values", "codes"))
        return cls(np.concatenate(values), np.concatenate(codes), cells, sum(part.gaps for part in parts))

    def __len__(self) -> int:
        return len(self.codes)

    def __reduce__(self) -> Any:
        raise TypeError("raw rows cannot be pickled: pickle the result instead")


class EntrySums:
    """Exact weighted sums of a statistic's entries over the records of each cell, shape (cells, m).

    Notes
    -----
    **Privacy.** Holds sums without noise: never leaves the mechanisms, cannot be pickled.
    """

    __slots__ = ("_total", "_units", "rows", "statistic")

    def __init__(self, statistic: SampleStatistic, weighted: Weighted, cells: int) -> None:
        self.statistic = statistic
        self.rows = 0
        self._total = ExactSum((cells, len(weighted.weights)))
        unit = statistic.factor / FULL_SCALE**2
        self._units = np.tile(np.array(weighted.weights) * unit, (cells, 1))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the sums."""
        return self._total.shape

    def update(self, sample: Sample) -> None:
        """Add records, whose values are steps of 2^-20."""
        self.rows = added_rows(self.rows, len(sample))
        for values, codes in _parts(sample, FULL_SCALE):
            self._total.add(self._of(values, codes))

    def _of(self, values: Floats, codes: Integers) -> Floats:
        assert self.statistic.entries is not None
        cells = self._total.shape[0]
        entries = self.statistic.entries(values, FULL_SCALE)
        return np.stack([np.bincount(codes, column, minlength=cells) for column in entries], axis=1)

    def counts(self, shape: tuple[int, ...]) -> Integers:
        """Return the number of records in each cell, of a statistic whose one entry is 1."""
        counts = self._total.integers() >> 2 * VALUE_BITS
        return np.asarray(counts.astype(np.int64).reshape(shape))

    def take(self, rows: int, sums: Wide) -> None:
        """Add records whose sums are known: Python's integers, shape (cells, m)."""
        self.rows = added_rows(self.rows, rows)
        self._total.add_integers(sums)

    def add_gaps(self, n: int) -> None:
        """Count the rows of n that no cell has in the last one, where that is for rows without a value."""
        if self.statistic.gaps:
            unit = FULL_SCALE**2
            numbers = np.zeros(self.shape, dtype=object)
            numbers[-1, 0] = n * int(unit) - self._total.integers()[:, 0].sum()
            self._total.add_integers(numbers)
        self.rows = n

    def merge(self, other: EntrySums) -> None:
        """Add the records of another accumulator of the same query."""
        self.rows = added_rows(self.rows, other.rows)
        self._total.merge(other._total)

    def floats(self) -> Floats:
        """Return the weighted sums, each the double nearest to the exact one."""
        return self._total.floats(self._units)

    def steps(self, grid: float) -> Integers:
        """Return the weighted sums in steps of a grid, a power of two, each rounded once."""
        return self._total.steps(self._units, grid)

    def __repr__(self) -> str:
        return f"<EntrySums of {self.rows} rows, not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("sums without noise cannot be pickled: pickle the release instead")


class MarginSums:
    """Counts of the cells of a table of two factors, of its rows and of its columns, each with its weight.

    Notes
    -----
    **Privacy.** As `EntrySums`.
    """

    __slots__ = ("_total", "_units")

    def __init__(self, counts: Integers, weighted: Weighted) -> None:
        margins = [counts.ravel(), counts.sum(axis=1), counts.sum(axis=0)]
        self._total = ExactSum((counts.size + sum(counts.shape), 1))
        self._total.add_integers(np.concatenate(margins).astype(object)[:, None])
        self._units = np.repeat(np.array(weighted.weights), [len(margin) for margin in margins])[:, None]

    def floats(self) -> Floats:
        """Return the weighted counts, each the double nearest to the exact one."""
        return self._total.floats(self._units)

    def steps(self, grid: float) -> Integers:
        """Return the weighted counts in steps of a grid, a power of two, each rounded once."""
        return self._total.steps(self._units, grid)

    def __repr__(self) -> str:
        return "<MarginSums, not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("sums without noise cannot be pickled: pickle the release instead")


# What is released in place of the counts of cells.
CountTotals: TypeAlias = MarginSums | PrefixSums


def weighted_sums(statistic: SampleStatistic, weighted: Weighted, sample: Sample) -> Floats:
    """Return the weighted sum over records, values in [-1, 1], shape (cells, m), in doubles.

    Notes
    -----
    **Privacy.** Reads every record; the un-noised sum never leaves the mechanisms.
    """
    weights = np.array(weighted.weights) * statistic.factor
    if statistic.whole is not None:
        return statistic.whole(sample) * weights
    assert statistic.entries is not None
    sums = np.zeros((sample.cells, len(weights)))
    for values, codes in _parts(sample, 1.0):
        for entry, column in enumerate(statistic.entries(values, 1.0)):
            sums[:, entry] += np.bincount(codes, column, minlength=sample.cells)
    return sums * weights


def with_gaps(statistic: SampleStatistic, weighted: Weighted, sums: Floats, n: int) -> Floats:
    """Return sums of `weighted_sums` with the rows of n that no cell has, as `EntrySums.add_gaps`."""
    if not statistic.gaps:
        return sums
    sums = sums.copy()
    sums[-1, 0] = n * weighted.weights[0] - sums[:-1, 0].sum()
    return sums


def _parts(sample: Sample, scale: float) -> Iterator[tuple[Floats, Integers]]:
    for start in range(0, len(sample), PART_ROWS):
        part = slice(start, start + PART_ROWS)
        yield np.clip(sample.values[part], -scale, scale), sample.codes[part]


# ---- the statistics


def _mean(values: Floats, scale: float) -> Sequence[Floats]:
    u = values[:, 0]
    return u * scale, u * u


def _group(values: Floats, scale: float) -> Sequence[Floats]:
    u = values[:, 0]
    return np.ones_like(u) * (scale * scale), u * scale, scale * scale - u * u


def _share(values: Floats, scale: float) -> Sequence[Floats]:
    return (scale * scale + values[:, 0] * scale,)


def _cell(values: Floats, scale: float) -> Sequence[Floats]:
    return (np.full(len(values), scale * scale),)


def _pair(values: Floats, scale: float) -> Sequence[Floats]:
    u, v = values[:, 0], values[:, 1]
    return u * scale, v * scale, u * u, v * v, u * v


def _with_margins(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of cells, rows and columns."""
    rows, columns = shape
    return rows * columns, rows, columns


def _prefixes(counts: Integers, _: Weighted) -> PrefixSums:
    """Return the prefix sums of every group; the cells of the distribution are the last axis."""
    return PrefixSums(counts.reshape(-1, counts.shape[-1]))


def _of_distributions(statistic: SampleStatistic, shape: tuple[int, ...]) -> SampleStatistic:
    groups, cells = math.prod(shape[:-1]), shape[-1]
    sensitivity = prefix_sensitivity(cells, groups)
    return replace(statistic, l2=Weighted((1.0,), sensitivity), most_touched=min(groups, 2) * cells)


def _complete_share(values: Floats, scale: float) -> Sequence[Floats]:
    u = values[:, 0]
    return np.ones_like(u) * (scale * scale), u * scale


def _complete_pair(values: Floats, scale: float) -> Sequence[Floats]:
    u, v = values[:, 0], values[:, 1]
    unit = scale * scale
    return np.ones_like(u) * unit, u * scale, v * scale, unit - u * u, unit - v * v, u * v


def _rank_sums(sample: Sample) -> Floats:
    """Return the sum of centered ranks of every group, multiples of 1/2, exact."""
    centred = scipy.stats.rankdata(sample.values[:, 0]) - 0.5 * (len(sample) + 1)
    sums = np.bincount(sample.codes, weights=centred, minlength=sample.cells)
    return sums.astype(np.float64)


def _two_ranked(sample: Sample) -> Floats:
    first = float(np.count_nonzero(sample.codes == 0))
    return np.array([[_rank_sums(sample)[0] / (len(sample) - 1.0), first]])


def _many_ranked(sample: Sample) -> Floats:
    return np.array([[np.abs(_rank_sums(sample)).sum() / (len(sample) - 1.0)]])


def _signed_ranks(sample: Sample) -> Floats:
    return np.array([[_signed_sum(sample) / len(sample)]])


def _signed_sum(sample: Sample) -> float:
    u = sample.values[:, 0]
    return float(np.sign(u) @ scipy.stats.rankdata(np.abs(u)))


def _complete_two_ranked(sample: Sample) -> Floats:
    first = 2.0 * np.count_nonzero(sample.codes == 0) - len(sample)
    return np.array([[len(sample), _rank_sums(sample)[0] / (len(sample) + sample.gaps - 1.0), first]])


def _complete_many_ranked(sample: Sample) -> Floats:
    apart = np.abs(_rank_sums(sample)).sum()
    return np.array([[len(sample), apart / (len(sample) + sample.gaps - 1.0)]])


def _complete_signed_ranks(sample: Sample) -> Floats:
    return np.array([[len(sample), _signed_sum(sample) / (len(sample) + sample.gaps)]])


_A, _B = PAIR_WEIGHTS
SAMPLE_STATISTICS: dict[SampleKind, SampleStatistic] = {
    "one sample": SampleStatistic(
        entries=_mean,
        l2=Weighted((1.0, PARABOLA_WEIGHT), 2.0),
        l1=Weighted((1.0, 0.5), 2.0),
        derivation=Derivations.PARABOLA,
    ),
    "groups": SampleStatistic(
        entries=_group,
        l2=Weighted((1.0, 1.0, 1.0), 2.0),
        l1=Weighted((1.0, 1.0, 0.5), 4.0),
        derivation=Derivations.GROUP_SUMS,
    ),
    "share": SampleStatistic(
        entries=_share,
        l2=Weighted((1.0,), 1.0),
        l1=Weighted((1.0,), 1.0),
        derivation=Derivations.SHARE,
        factor=0.5,
    ),
    "cells": SampleStatistic(
        entries=_cell,
        l2=Weighted((1.0,), math.sqrt(2.0)),
        l1=Weighted((1.0,), 2.0),
        derivation=Derivations.CELLS,
    ),
    "margins": SampleStatistic(
        entries=_cell,
        l2=Weighted(
            tuple(math.sqrt(share) for share in MARGIN_SHARES), math.sqrt(2.0 * math.fsum(MARGIN_SHARES))
        ),
        l1=None,
        derivation=Derivations.MARGINS,
        totals=MarginSums,
        blocks=_with_margins,
        most_touched=6,
    ),
    "distributions": SampleStatistic(
        entries=_cell,
        l2=Weighted((1.0,), math.inf),  # of the table's shape
        l1=None,
        derivation=Derivations.GROUP_DISTRIBUTIONS,
        totals=_prefixes,
        sized=_of_distributions,
    ),
    "pairs": SampleStatistic(
        entries=_pair,
        l2=Weighted((_A, _A, _B, _B, 1.0), 2.0 * math.sqrt(1.0 + _A**2)),
        l1=Weighted((PURE_PAIR_WEIGHT,) * 2 + (0.5, 0.5, 1.0), (PURE_PAIR_WEIGHT + 2.0) ** 2 / 2.0),
        derivation=Derivations.PAIRS,
    ),
    "two ranked": SampleStatistic(
        entries=None,
        l2=Weighted((1.0, math.sqrt(0.75)), 1.0),
        l1=Weighted((1.0, 0.5), 1.0),
        derivation=Derivations.TWO_RANKED,
        whole=_two_ranked,
    ),
    "many ranked": SampleStatistic(
        entries=None,
        l2=Weighted((1.0,), 2.0),
        l1=Weighted((1.0,), 2.0),
        derivation=Derivations.MANY_RANKED,
        whole=_many_ranked,
    ),
    "signed ranks": SampleStatistic(
        entries=None,
        l2=Weighted((1.0,), 2.0),
        l1=Weighted((1.0,), 2.0),
        derivation=Derivations.SIGNED_RANKS,
        whole=_signed_ranks,
    ),
    "complete sample": SampleStatistic(
        entries=_group,
        l2=Weighted((SAMPLE_COUNT_WEIGHT, 1.0, PARABOLA_WEIGHT), 2.0),
        l1=None,
        derivation=Derivations.COMPLETE_PARABOLA,
    ),
    "complete groups": SampleStatistic(
        entries=_group,
        l2=Weighted((1.0, 1.0, 1.0), 2.0),
        l1=None,
        derivation=Derivations.COMPLETE_GROUPS,
        gaps=True,
    ),
    "complete share": SampleStatistic(
        entries=_complete_share,
        l2=Weighted((math.sqrt(0.75), 0.5), 1.0),
        l1=None,
        derivation=Derivations.COMPLETE_SHARE,
    ),
    "complete cells": SampleStatistic(
        entries=_cell,
        l2=Weighted((1.0,), math.sqrt(2.0)),
        l1=None,
        derivation=Derivations.COMPLETE_CELLS,
        gaps=True,
    ),
    "complete pairs": SampleStatistic(
        entries=_complete_pair,
        l2=Weighted((PAIR_COUNT_WEIGHT, _A, _A, _B, _B, 1.0), 2.0 * math.sqrt(1.0 + _A**2)),
        l1=None,
        derivation=Derivations.COMPLETE_PAIRS,
    ),
    "complete two ranked": SampleStatistic(
        entries=None,
        l2=Weighted((0.75, 1.0, math.sqrt(0.1875)), 1.0),
        l1=None,
        derivation=Derivations.COMPLETE_TWO_RANKED,
        whole=_complete_two_ranked,
    ),
    "complete many ranked": SampleStatistic(
        entries=None,
        l2=Weighted((math.sqrt(3.0), 1.0), 2.0),
        l1=None,
        derivation=Derivations.COMPLETE_MANY_RANKED,
        whole=_complete_many_ranked,
    ),
    "complete signed ranks": SampleStatistic(
        entries=None,
        l2=Weighted((math.sqrt(3.0), 1.0), 2.0),
        l1=None,
        derivation=Derivations.COMPLETE_SIGNED_RANKS,
        whole=_complete_signed_ranks,
    ),
}
# The statistic of complete rows, where rows with missing values are dropped.
COMPLETE_KINDS: dict[SampleKind, SampleKind] = {
    "one sample": "complete sample",
    "groups": "complete groups",
    "share": "complete share",
    "cells": "complete cells",
    "pairs": "complete pairs",
    "two ranked": "complete two ranked",
    "many ranked": "complete many ranked",
    "signed ranks": "complete signed ranks",
}
