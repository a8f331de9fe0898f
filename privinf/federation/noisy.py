"""Releases of a trusted server: noisy sums and matrices with their noise models, rankings of sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privinf.accounting import LedgerEntry, Released, ReleasedNumber
from privinf.accounting.released import appended
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError
from privinf.federation.messages import Query
from privinf.federation.rounds import query_digest_of
from privinf.mechanisms.gaussian import Line
from privinf.mechanisms.statistics.isometric import ROOT2_BELOW, from_isometric
from privinf.mechanisms.statistics.ops import RecordSensitivity
from privinf.typing import ArrayLike, Flags, Floats, SumRelation, Trust
from privinf.validation import check_number
from privinf.wire import Assumptions, Derivations, Mechanisms

# Of a sum whose noise is drawn on a grid of integers.
SUM_TOO_LARGE = (
    "the sum is too large relative to its noise, so secure noise cannot be added to it "
    "exactly; pass a smaller privacy budget, which gives larger noise"
)


def sum_line(
    op: str,
    args: Mapping[str, Any],
    record_sensitivity: RecordSensitivity,
    *,
    label: str,
    mu: float,
    trust: Trust,
    relation: SumRelation,
    sites: int = 1,
) -> Line:
    """Return the ledger line, before its noise is calibrated, of one statistic's sum with Gaussian noise."""
    return Line(
        label=label,
        mechanism=Mechanisms.GAUSSIAN,
        sensitivity=record_sensitivity.sensitivity(relation),
        derivation=Derivations.OF_STATISTIC.format(op=op, derivation=record_sensitivity.derivation),
        dimension=record_sensitivity.size,
        mu=mu,
        unit=record_sensitivity.unit,
        trust=trust,
        relation=relation,
        assumptions=assumed(record_sensitivity, relation, sites=sites, seeded="seed" in args),
    )


def assumed(
    record_sensitivity: RecordSensitivity, relation: SumRelation, *, sites: int = 1, seeded: bool = False
) -> tuple[str, ...]:
    """Return the assumptions of the guarantee of a sum.

    Parameters
    ----------
    record_sensitivity : RecordSensitivity
    relation : {"replace-one", "zero-out"}
    sites : int
        How many there are.
    seeded : bool
        Whether records have public random numbers, or batches, by their places.
    """
    if record_sensitivity.unit == "client":
        return (Assumptions.PUBLIC_CLIENTS if relation == "replace-one" else Assumptions.NO_CLIENT,)
    first = [Assumptions.PUBLIC_N if relation == "replace-one" else Assumptions.NOTHING_ADDED]
    return (
        *first,
        *([Assumptions.PUBLIC_SITES] if sites > 1 else ()),
        *([Assumptions.PUBLIC_PLACES] if seeded else ()),
    )


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _NoisyRelease(Released):
    values: Floats
    rows: int
    sites: tuple[str, ...]
    scale: float
    mu: float
    entries: tuple[LedgerEntry, ...]

    def __repr__(self) -> str:
        kind = type(self).__name__
        shape = self.values.shape
        return f"<{kind} {shape} of {self.rows} rows: noise sd {self.scale:.6g}{appended(self.stamp)}>"

    @property
    def mean(self) -> Floats:
        """The noisy sum over the number of rows."""
        return np.asarray(self.values / self.rows)


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class NoisySum(_NoisyRelease):
    """Sum over rows with Gaussian noise.

    Attributes
    ----------
    values : ndarray
        The noisy sum.
    rows : int
        Number of rows summed, public.
    sites : tuple of str
        Sites that answered.
    scale : float
        Sd of the noise on every entry; 0 without noise.
    mu : float
        Price.
    entries : tuple of LedgerEntry
        The lines that paid for it.

    Notes
    -----
    **Privacy.** The sum was released and is public.
    """

    @property
    def mean_sd(self) -> float:
        """Sd of the noise of `mean`."""
        return self.scale / self.rows


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class NoisyGram(_NoisyRelease):
    """Symmetric sum of outer products with Gaussian noise, isotropic in the Frobenius norm.

    Attributes
    ----------
    values : ndarray, shape (k, k)
        The noisy sum, symmetric; it may have negative eigenvalues.
    rows : int
        Number of rows summed, public.
    sites : tuple of str
        Sites that answered.
    mu : float
        Price in Gaussian differential privacy.
    entries : tuple of LedgerEntry
        The ledger lines of the release.
    scale : float
        Sd of the noise on the diagonal; above it, it is less by a factor of sqrt 2 (see `entry_sd`).

    Notes
    -----
    **Privacy.** The matrix was released and is public.
    """

    @classmethod
    def from_sum(cls, release: NoisySum) -> NoisyGram:
        """Return the matrix whose isometric entries were released.

        Parameters
        ----------
        release : NoisySum
            The isometric entries: the diagonal, and the off-diagonal entries times sqrt 2.

        Returns
        -------
        NoisyGram
            The symmetric matrix, with the same noise and ledger lines.
        """
        values = from_isometric(release.values)
        return cls(
            values=values,
            rows=release.rows,
            sites=release.sites,
            scale=release.scale,
            mu=release.mu,
            entries=release.entries,
        )

    @property
    def entry_sd(self) -> Floats:
        """Sd of the noise of every entry of `mean`, shape (k, k)."""
        sd = np.full(self.values.shape, self.scale / ROOT2_BELOW / self.rows)
        np.fill_diagonal(sd, self.scale / self.rows)
        return sd


def histogram_quantile(counts: NoisySum, edges: Floats, level: float) -> ReleasedNumber:
    """Return where the running sum of noisy counts, made nondecreasing, passes `level` times the rows.

    Parameters
    ----------
    counts : NoisySum
        Below the first edge, between edges, and from the last one on.
    edges : ndarray
        Positive and increasing.
    level : float

    Returns
    -------
    ReleasedNumber
        Interpolated geometrically inside a cell. With N the running sum, its noise has to first order the sd
        ``scale sqrt(cells) dlog(q)/dN q``; at the ends of the edges that is unknown, nan.
    """
    reached = np.maximum.accumulate(np.cumsum(counts.values))
    target = level * counts.rows
    cell = int(np.searchsorted(reached, target))
    if cell == 0 or cell >= len(edges):
        return ReleasedNumber(float(edges[0] if cell == 0 else edges[-1]), counts.entries, math.nan)
    width = math.log(edges[cell] / edges[cell - 1])
    inside = reached[cell] - reached[cell - 1]
    value = float(edges[cell - 1] * math.exp(width * (target - reached[cell - 1]) / inside))
    noise = counts.scale * math.sqrt(cell + 1)
    return ReleasedNumber(value, counts.entries, value * width * noise / inside)


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Scores that rank the entries of a sum: ``offset + factor x sum``, with public offset and factor.

    Attributes
    ----------
    offset : ndarray, shape of the sum
    factor : float
        Not 0.
    candidates : ndarray of bool, shape of the sum
        False for positions that must not be selected.
    """

    offset: Floats
    factor: float
    candidates: Flags

    @classmethod
    def for_shape(
        cls, shape: tuple[int, ...], offset: ArrayLike | None, factor: float, candidates: ArrayLike | None
    ) -> Ranking:
        """Return the ranking of sums of a shape; by default without offset, all entries are candidates.

        Raises
        ------
        ArgumentError
            The offset has another shape or is not finite, or the factor is 0.
        """
        factor = check_number(factor, "factor")
        shift = np.zeros(shape) if offset is None else np.asarray(offset, dtype=np.float64)
        allowed = np.broadcast_to(True if candidates is None else np.asarray(candidates, bool), shape)
        if factor == 0.0:
            raise ArgumentError("factor= must not be 0")
        if shift.shape != shape or not np.isfinite(shift).all():
            raise ArgumentError(f"offset= must hold finite numbers and have shape {shape}")
        return cls(shift, factor, allowed)

    def check_count(self, k: int) -> None:
        """Raise ArgumentError unless there are k candidates in every row of the sum."""
        if (most := self.candidates.sum(axis=-1).min()) < k:
            raise ArgumentError(f"k={k} must be at most {most}, the number of candidates")

    def query_digest(self, query: Query, k: int, *, absolute: bool) -> str:
        """Return the digest of a query and of this ranking of its sum, to which its noise belongs."""
        return query_digest_of(
            query,
            peeled_offset=self.offset,
            peeled_factor=self.factor,
            peeled_from=self.candidates,
            peeled_k=k,
            peeled_sizes=absolute,
        )

    def size(self, rows: int, bound: float) -> float:
        """Return the largest size of an entry of a sum over rows, to which a record adds `bound`."""
        return float(np.abs(self.offset).max() + abs(self.factor) * rows * bound)

    def scored(self, total: Floats) -> Floats:
        """Return the scores of a sum."""
        return np.asarray(self.offset + self.factor * total)

    def sensitivity(self, linf: float, size: float) -> float:
        """Return how far a record moves a ranked number of up to `size` if it moves the sum by `linf`."""
        rounding = 2.0**-50 * size  # of the sum's shift and scaling, in doubles
        return abs(self.factor) * linf + rounding

    def line(self, entry: LedgerEntry, assumptions: tuple[str, ...]) -> LedgerEntry:
        """Return a ledger line of the selection, with the factor and the assumptions of its guarantee."""
        noise = {**entry.noise, "factor": abs(self.factor)}
        return replace(entry, noise=noise, assumptions=assumptions)


def of_the_sum(entry: LedgerEntry) -> LedgerEntry:
    """Return the line of a release of ``factor x sum`` in units of the sum, which sites can check."""
    noise = dict(entry.noise)
    sensitivity = entry.sensitivity
    factor = float(noise.pop("factor"))
    assert sensitivity is not None
    noise |= {name: float(noise[name]) / factor for name in ("scale", "grid")}
    return replace(entry, noise=noise, sensitivity=replace(sensitivity, value=sensitivity.value / factor))
