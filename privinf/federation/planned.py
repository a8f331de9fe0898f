"""Planned releases: the query, its digest and its ledger lines, before anything is charged or sent.

The digest names the query in its line, and its noise belongs to the digest. So one line pays for one query,
and a query that is repeated has the same noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np

from privinf.accounting import Ledger, LedgerEntry
from privinf.accounting.scopes import scope_component
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation.messages import Query, plain_args
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.gaussian import Line
from privinf.mechanisms.statistics.block import number_of
from privinf.mechanisms.statistics.ops import RecordSensitivity
from privinf.typing import ArrayLike, Flags, Floats, PlainValue, SumRelation, Trust
from privinf.validation import check_number
from privinf.wire import (
    ASSUMED_LATER,
    TRUST_IN_DIGESTS,
    Assumptions,
    Derivations,
    Mechanisms,
    Places,
)

Args = Mapping[str, Any]
# Of a query's digest, in its ledger line: 128 bits.
QUERY_DIGITS = 32
# Of a sum whose noise is drawn on a grid of integers.
SUM_TOO_LARGE = (
    "the sum is too large relative to its noise, so secure noise cannot be added to it "
    "exactly; pass a smaller privacy budget, which gives larger noise"
)


@dataclass(frozen=True, slots=True, eq=False)
class PlannedQuery:
    """A release that has not been charged or queried yet.

    Attributes
    ----------
    query : Query
        The query, with the ledger line of its release.
    sites : tuple of str
        Their names.
    scale : float
        Sd of the noise on every entry. In a secure sum: sd of the share of one site.
    mu : float
        Price.

    Notes
    -----
    **Privacy.** Public.
    """

    query: Query
    sites: tuple[str, ...]
    scale: float
    mu: float

    @property
    def entry(self) -> LedgerEntry:
        """The ledger line."""
        return LedgerEntry.from_dict(self.query.charges[0])


def site_number(name: str) -> int:
    """Return the number of a site in arguments that have a constant for each site."""
    return number_of(name)


# ---- ledger lines of a sum


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


def spend_at_sites(
    ledger: Ledger, entries: Sequence[LedgerEntry], sites: Sequence[str], session: str
) -> tuple[LedgerEntry, ...]:
    """Record a release of some sites' rows in the parallel scopes of these sites; return it as recorded.

    A line that is in the ledger already, of a release that is repeated, is not recorded twice.
    """
    lines = [line for entry in entries for line in lines_of_sites(entry, sites, session)]
    ledger.spend(*(line for line in lines if ledger.find(line) is None))
    return tuple(line for entry in entries for line in _found_lines(ledger, entry, sites, session))


def standing_lines(ledger: Ledger, planned: PlannedQuery) -> tuple[LedgerEntry, ...]:
    """Return the lines of a release if all of them are in the ledger, unchanged; else nothing."""
    complete = ledger.find(planned.entry)
    if complete is not None:
        return (complete,)
    lines = _found_lines(ledger, planned.entry, planned.sites, planned.query.session)
    return lines if len(lines) == len(planned.sites) else ()


def _found_lines(
    ledger: Ledger, entry: LedgerEntry, sites: Sequence[str], session: str
) -> tuple[LedgerEntry, ...]:
    """Return the lines of some sites' release that are in the ledger."""
    lines = (ledger.find(line) for line in lines_of_sites(entry, sites, session))
    return tuple(line for line in lines if line is not None)


def lines_of_sites(entry: LedgerEntry, sites: Sequence[str], session: str) -> Iterator[LedgerEntry]:
    """Yield a release's line at each of some sites, in the parallel scope of that site."""
    for name in sites:
        yield at_site(entry, name).within(
            (scope_component(name, Places.SITES_OF_SESSION.format(session=session)),)
        )


def at_site(entry: LedgerEntry, name: str) -> LedgerEntry:
    """Return a release's line in one site's scope; the same release has the same line there."""
    return entry.filed(
        str(uuid5(NAMESPACE_URL, Places.LINE_OF_SITE.format(line=entry.id, site=name))), entry.scope
    )


# ---- digests


def query_digest_of(query: Query, **extra: PlainValue) -> str:
    """Return the digest of a query and of `extra`, the later use of its sum.

    What names the asking of it is left out: session, reservation, ids and times of lines, digits, and
    fingerprints of keys. So it is the same when a resumed fit repeats the query at its position.
    """
    charges = []
    for charge in query.charges:
        noise = _without(charge.get("noise", {}), "question", "key")
        trust = TRUST_IN_DIGESTS.get(charge.get("trust", ""), charge.get("trust"))
        assumptions = [text for text in charge.get("assumptions", ()) if text not in ASSUMED_LATER]
        charges.append(
            _without(charge, "id", "time") | {"noise": noise, "trust": trust, "assumptions": assumptions}
        )
    args = without_digits(query.args) | plain_args(extra)
    masking = _without(query.masking, "pinned")
    return query.digest_with(args=args, session="", charges=tuple(charges), masking=masking, reservation="")


def _without(record: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


def with_query_digest(query: Query, **extra: PlainValue) -> Query:
    """Return a query whose one line names it, and `extra`: it pays for this query and no other.

    Its id follows from the session and the place in it.
    """
    (charge,) = query.charges
    noise = {**charge["noise"], "question": query_digest_of(query, **extra)[:QUERY_DIGITS]}
    return query.charged({**charge, "id": _line_id(query), "noise": noise})


def verified_digest(planned: PlannedQuery, **extra: PlainValue) -> str:
    """Return the digest of a planned query.

    Raises ArgumentError unless its one line names it, and `extra`; NotAvailableError, before any charge, if
    another version of its statistic planned it.
    """
    query = planned.query
    statistic = SITE_OPS.get(query.op)
    if statistic is not None and statistic.version != query.version:
        raise NotAvailableError(
            f"the release was planned with version {query.version} of the statistic {query.op!r}, but this "
            f"version of privinf has version {statistic.version}; start the fit again in an empty folder"
        )
    digest = query_digest_of(query, **extra)
    named = (planned.entry.id, planned.entry.noise.get("question")) if len(query.charges) == 1 else ()
    if named != (_line_id(query), digest[:QUERY_DIGITS]):
        raise ArgumentError("the planned release was made for another query; plan the release again")
    return digest


def _line_id(query: Query) -> str:
    return str(
        uuid5(NAMESPACE_URL, Places.LINE_OF_QUESTION.format(session=query.session, sequence=query.sequence))
    )


def without_digits(args: Args) -> dict[str, Any]:
    """Return a query's arguments without the digits, which are the server's to choose."""
    return {name: value for name, value in args.items() if name != "bits"}


# ---- selections


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Scores that rank the entries of a sum: ``offset + factor x sum``, with public offset and factor.

    Attributes
    ----------
    offset : ndarray, shape of the sum
    factor : float
        Not 0.
    candidates : ndarray of bool, shape of the sum
        Whether each position may be selected: False excludes a position.
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
