r"""Noisy counts of one column: its distribution function, and its common labels.

**Distribution functions** are released by the square root of prefix sums
(`privinf.mechanisms.statistics.prefixes`).

Rows without a value (`missing="drop"`) are in one more cell, the last one, behind the largest values. So the
sensitivity is that above, of one cell more, whatever is missing. The count up to the cell before is the
number N of complete rows; counts are compared with shares of N, whose noise is that of the same release.

**Levels.** Each label that occurs gets its count plus noise of sd sigma = sqrt(2)/mu, and is shown where that
passes

    tau = 1 + sigma z(1 - delta').

Replace one record. (a) Its old and its new label both occur in both tables: two counts move by 1, sqrt(2) in
l2, mu-GDP. (b) The old label is in one table alone, where its count is 1: it is shown with probability
P(1 + noise > tau) <= delta', and but for that the new label's count moves by 1, (mu/sqrt 2)-GDP. (c) Neither
label is in the other table: each table may show one label, with probability delta', and all else is equal.
So delta(eps) is at most the larger of delta_mu(eps) and delta' + delta_(mu/sqrt 2)(eps), not their sum: in
(a) no label appears that the other table could not show (`privinf.accounting.losses.ThresholdLoss`). At
(1, 10^-6) the last term is 5 10^-11: nearly all of delta can be delta'.

The discrete Gaussian on the noise's grid has the Gaussian's tail up to half a step; tau is higher by four.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import scipy  # whose parts are loaded when they are used
from scipy.special import ndtri

from privinf.accounting import GaussianLoss, LedgerEntry, ThresholdLoss
from privinf.completeness import CompleteRows
from privinf.errors import ArgumentError, SchemaError
from privinf.mechanisms.gaussian import (
    Line,
    Spending,
    after_the_charge,
    check_room,
    noisy_total,
    warn_of_large_delta,
)
from privinf.mechanisms.passes import ColumnPasses
from privinf.mechanisms.pushdown.databases import unfit
from privinf.mechanisms.rows import as_rows
from privinf.mechanisms.statistics.prefixes import PrefixSums, prefix_sensitivity, undoing
from privinf.noise import NoiseSource
from privinf.schema import Schema
from privinf.typing import Floats, Integers, Table
from privinf.validation import check_array
from privinf.wire import Assumptions, Derivations, Labels, Mechanisms

CELL_LIMIT = 1 << 14  # edges are fewer than this
MOST_ROWS = 1 << 40  # for which sums are exact, see above
ROOT_TWO = math.sqrt(2.0)  # sensitivity of counts of labels: two of them move by 1
GRID_ROOM = 2.0**-18  # share of the tail that the grid of the noise may take, in sds


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoisyCDF:
    """A released distribution function: how many rows are at or below each of increasing edges.

    Attributes
    ----------
    edges : ndarray, shape (k,)
    counts : ndarray, shape (k,)
        Unbiased where the number of rows is known; neither monotone nor within [0, n].
    sds : ndarray, shape (k,)
        Of the noise of the counts. Counts of neighboring edges share most of it.
    n : int
        Number of rows; where rows with missing values were dropped, the estimate for complete rows.
    complete : CompleteRows or None
        This estimate with its noise, where rows were dropped.
    shared : ndarray, shape (k,), or None
        Covariance of the noise of each count with that of the number of complete rows.
    """

    edges: Floats
    counts: Floats
    sds: Floats
    n: int
    complete: CompleteRows | None = None
    shared: Floats | None = None

    def sds_about(self, q: float) -> Floats:
        """Return the sds of the noise of counts less a share q of the number of rows."""
        if self.complete is None or self.shared is None:
            return self.sds
        variances = self.sds**2 - 2.0 * q * self.shared + (q * self.complete.sd) ** 2
        return np.sqrt(np.maximum(variances, 0.0))

    @classmethod
    def from_counts(
        cls, edges: Floats, noisy: Floats, scale: float, n: int, *, gaps: bool = False
    ) -> NoisyCDF:
        """Return the distribution from L h + N(0, scale^2); the noise is conditioned on the total, n.

        With `gaps` the last cell has the rows without a value.
        """
        g = undoing(len(noisy))
        last = g[::-1] / math.sqrt(float(g @ g))
        counts = scipy.signal.lfilter(g, [1.0], noisy)
        shared = scipy.signal.lfilter(g, [1.0], last)
        counts -= shared * ((counts[-1] - n) / shared[-1])
        variances = np.cumsum(g * g) - shared**2
        sds = scale * np.sqrt(np.maximum(variances[:-1], 0.0))
        if not gaps:
            return cls(edges=edges, counts=counts[:-1], sds=sds, n=n)
        complete = CompleteRows.from_count(float(counts[-2]), float(sds[-1]), n)
        parts = g[:-1]
        lags = np.correlate(parts, parts, "full")[len(parts) - 1 :]
        covariances = scale**2 * (lags[::-1] - shared[:-1] * shared[-2])  # of each count and the last one
        return cls(
            edges=edges,
            counts=counts[:-2],
            sds=sds[:-1],
            n=complete.rows,
            complete=complete,
            shared=covariances[:-1],
        )


def group_distributions(
    released: Floats, edges: Floats, scale: float, n: int, q: float
) -> tuple[NoisyCDF, ...]:
    """Return a distribution function of each group whose q-quantile can be found by its own count.

    Parameters
    ----------
    released : ndarray, shape (groups, cells)
        L h + N(0, scale^2) of every group.
    edges : ndarray, shape (cells - 1,)
    scale : float
    n : int
        Number of all rows, public.
    q : float
        Order of the quantile.

    Notes
    -----
    With F(t) the noisy count of a group up to an edge and N = F(last) that of the group, F(t) - q N has mean
    0 at the quantile, and the variance of both together; sum N = n is conditioned on. The distribution that
    is returned has these numbers, and their sds, about q times a fixed N, which is its number of rows.

    **Privacy.** Post-processing.
    """
    groups, cells = released.shape
    g = undoing(cells)
    F = scipy.signal.lfilter(g, [1.0], released, axis=-1)
    last = float(g @ g)
    with_last = np.correlate(g, g, "full")[cells - 1 :][::-1]  # of F(t) and F(last), over scale^2
    excess = n - float(F[:, -1].sum())
    N = F[:, -1] + excess / groups
    shared = with_last[:-1] - q * last
    D = F[:, :-1] - q * F[:, -1:] + shared * (excess / (groups * last))
    variances = np.cumsum(g * g)[:-1] - 2.0 * q * with_last[:-1] + q**2 * last - shared**2 / (groups * last)
    sds = scale * np.sqrt(np.maximum(variances, 0.0))
    sizes = np.maximum(np.rint(N), 1.0)
    return tuple(
        NoisyCDF(edges=edges, counts=one + q * size, sds=sds, n=int(size))
        for one, size in zip(D, sizes, strict=True)
    )


class OpenColumns:
    """Some columns of numbers of one table, of which distributions are released, by a pass over rows each.

    `schema` declares them where missing values are imputed, or the rows that have them dropped. With `unit`,
    the column with the person of each row it is, one person has up to `max_rows`. Defects of the rows raise a
    SchemaError or AlignmentError, for the holder; a stream, which can be read only once, is refused.

    **Privacy.** Holds raw rows; replace-one, the number of rows is public. A person's rows add up: the
    sensitivity is multiplied by `max_rows`.
    """

    __slots__ = ("_charged", "_gaps", "_max_rows", "_passes", "_unit")

    def __init__(
        self,
        rows: Table,
        names: Sequence[str],
        *,
        schema: Schema | None = None,
        unit: str | None = None,
        max_rows: int = 1,
    ) -> None:
        checked = as_rows(rows)
        self._passes = ColumnPasses(
            checked, names, schema, often=True, unit=unit, max_rows=max_rows, dropping=schema is not None
        )
        self._gaps = checked.missing == "drop"
        self._unit = unit
        self._max_rows = max_rows
        self._charged = False
        if self._passes.known:
            self._check_size()

    def cdf(
        self, name: str, edges: Floats, share: float, spending: Spending, label: str
    ) -> tuple[NoisyCDF, tuple[LedgerEntry, ...]]:
        """Release the distribution function of a column at public edges, for a share of the call's mu^2."""
        return self.release(name, self.cells({name: edges})[name], share, spending, label)

    def cells(self, edges: Mapping[str, Floats]) -> dict[str, CellCounts]:
        """Count the rows in the cells that public edges of columns make, by one pass: for `release`."""
        checked = {name: _checked(column_edges) for name, column_edges in edges.items()}
        counts = after_the_charge(partial(self._count, checked)) if self._charged else self._count(checked)
        self._check_size()
        return {name: CellCounts(column_edges, counts[name]) for name, column_edges in checked.items()}

    def _check_size(self) -> None:
        if not 2 <= self.n <= MOST_ROWS:
            raise SchemaError(
                f"a distribution function needs between 2 and 2**{MOST_ROWS.bit_length() - 1} rows, "
                f"got {self.n:,}"
            )

    def _count(self, edges: dict[str, Floats]) -> dict[str, Integers]:
        if self._passes.pushed is not None:
            from privinf.mechanisms.pushdown import cell_numbers

            counts, n = cell_numbers(self._passes.pushed, self._passes.schema, edges)
            self._passes.counted(n)
            return counts
        counts = {
            name: np.zeros(len(column_edges) + 1 + self._gaps, dtype=np.int64)
            for name, column_edges in edges.items()
        }
        for reader in self._passes.readers():
            for name, column_edges in edges.items():
                values = reader.number(name)
                complete = reader.complete([name]) if reader.drops else None
                counted = cell_counts(values if complete is None else values[complete], column_edges)
                counts[name][: len(counted)] += counted
                if complete is not None:
                    counts[name][-1] += np.count_nonzero(~complete)
        return counts

    @property
    def n(self) -> int:
        """Number of rows, once some were counted."""
        return self._passes.n

    def release(
        self, name: str, cells: CellCounts, share: float, spending: Spending, label: str
    ) -> tuple[NoisyCDF, tuple[LedgerEntry, ...]]:
        """Release the distribution function of counted cells, for a share of the call's mu^2."""
        line = self._line(
            Labels.ITS_DISTRIBUTION.format(label=label, name=name), len(cells.counts), share, spending
        )
        scale, entry = line.calibrated(spending.source)
        check_room(float(self.n), scale, spending.source)
        if not self._charged:
            warn_of_large_delta(spending.delta, self.n)
        recorded = spending.ledger.spend(entry)
        self._charged = True
        noisy = noisy_prefixes(cells.counts, scale, spending.source)
        return NoisyCDF.from_counts(cells.edges, noisy, scale, self.n, gaps=self._gaps), recorded

    def _line(self, label: str, cells: int, share: float, spending: Spending) -> Line:
        return Line(
            label=label,
            mechanism=Mechanisms.GAUSSIAN,
            mu=math.sqrt(share) * spending.mu,
            trust="central",
            sensitivity=self._max_rows * prefix_sensitivity(cells),
            derivation=Derivations.PREFIX_SUMS,
            dimension=cells,
            unit=self._unit or "record",
            assumptions=(Assumptions.PUBLIC_N,)
            if self._unit is None
            else (Assumptions.PUBLIC_N, Assumptions.PUBLIC_ROWS),
        )

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("raw rows cannot be pickled: pickle the release instead")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CellCounts:
    """Un-noised numbers of rows in the cells that increasing edges make; not shown, not pickled."""

    edges: Floats
    counts: Integers

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("counts without noise cannot be pickled: pickle the release instead")


def cell_counts(values: Floats, edges: Floats) -> Integers:
    """Return how many values lie in each cell; an edge belongs to the cell below it."""
    return np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)


def noisy_prefixes(cells: Integers, scale: float, source: NoiseSource) -> Floats:
    """Return L h + N(0, scale^2)."""
    return noisy_total(PrefixSums(cells), scale, source)


def _checked(edges: Floats) -> Floats:
    array = check_array(edges, "edges", ndim=1)
    if not 1 <= len(array) < CELL_LIMIT or not (np.diff(array) > 0.0).all():
        raise ArgumentError(f"edges= must hold between 1 and {CELL_LIMIT - 1} numbers in increasing order")
    return array


# ---- levels


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoisyLevels:
    """Labels that were shown, in order, their noisy counts, the threshold, the sd of the noise, and n."""

    labels: tuple[str, ...]
    counts: Floats
    threshold: float
    sd: float
    n: int


class OpenLabels:
    """The labels of one column, counted by one pass: texts without gaps (else SchemaError, for the holder).

    **Privacy.** Holds un-noised counts; replace-one, the number of rows is public, one row per person.
    """

    __slots__ = ("_counts", "_labels", "_name", "n")

    def __init__(self, rows: Table, name: str) -> None:
        passes = ColumnPasses(as_rows(rows), [name], numbers=False)
        counts = Counter[str]()
        if passes.pushed is not None:
            raise unfit("levels are found")
        for frame in passes.frames():
            counts.update(_counted(name, frame[name]))
        self._name = name
        self.n = counts.total()
        self._labels = sorted(counts)
        self._counts = np.array([counts[label] for label in self._labels], dtype=np.int64)

    def levels(
        self, share: float, delta: float, spending: Spending, label: str
    ) -> tuple[NoisyLevels, tuple[LedgerEntry, ...]]:
        """Release the labels whose noisy counts pass the threshold, for a share of the call's mu^2.

        `delta` is the largest probability with which the label of one record alone is shown.
        """
        mu = math.sqrt(share) * spending.mu
        line = Line(
            label=Labels.ITS_LEVELS.format(label=label, name=self._name),
            mechanism=Mechanisms.GAUSSIAN,
            sensitivity=ROOT_TWO,
            dimension=2,
            derivation=Derivations.LEVEL_COUNTS,
            mu=mu,
            unit="record",
            trust="central",
            assumptions=(Assumptions.PUBLIC_N,),
            largest=float(self.n),
        )
        scale, entry = line.calibrated(spending.source)
        if isinstance(entry.loss, GaussianLoss) and not math.isinf(mu):
            entry = replace(entry, loss=ThresholdLoss(mu, delta))
        warn_of_large_delta(spending.delta, self.n)
        recorded = spending.ledger.spend(entry)
        counts = self._counts.astype(np.float64)
        noisy = counts if scale == 0.0 else spending.source.perturb(counts, scale)
        threshold = show_above(scale, delta) if scale > 0.0 else 0.0
        passing = np.flatnonzero(noisy > threshold)
        labels = tuple(self._labels[at] for at in passing)
        return NoisyLevels(
            labels=labels, counts=noisy[passing], threshold=threshold, sd=scale, n=self.n
        ), recorded

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("raw rows cannot be pickled: pickle the release instead")


def show_above(sd: float, delta: float) -> float:
    """Return tau: 1 and noise of this sd pass it with probability `delta` at most."""
    return 1.0 + sd * (GRID_ROOM - float(ndtri(delta)))


def _counted(name: str, column: pd.Series) -> dict[str, int]:
    """Return the count of each label in a part of a column."""
    if column.isna().any():
        raise SchemaError(
            f"column {name!r} has missing values: replace them by a label first, or remove the rows in "
            "which it is missing. The number of remaining rows then counts as public"
        )
    values = column.to_numpy(dtype=object)
    if not all(isinstance(value, str) for value in values):
        raise SchemaError(f"column {name!r} must hold only texts, so that its levels can be released")
    return Counter(map(str, values))  # pandas 2 takes texts for the same that differ after a NUL
