"""Common part of servers over sites: roster, order of rounds, ledger, and one round."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid4, uuid5

from privinf import errors
from privinf.accounting import Ledger, LedgerEntry
from privinf.accounting.ledger import check_ledger
from privinf.accounting.scopes import scope_component
from privinf.error_boundary import bare, error_boundaries
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    NotAvailableError,
    PrivinfError,
    SiteConnectionError,
    UnforeseenError,
)
from privinf.federation.messages import (
    LONGEST_ERROR,
    Federation,
    Query,
    Reply,
    check_alike,
    plain_args,
)
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import exact_bits
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp
from privinf.schema import Design
from privinf.typing import Missing, PlainValue, SumRelation
from privinf.validation import check_choice, shown, shown_name
from privinf.wire import ASSUMED_LATER, TRUST_IN_DIGESTS, Places, Requests

MissingSites = Literal["raise", "continue"]
Args = Mapping[str, Any]
SAME_VERSION = "check that all sites have the same version of privinf"
OWN_NAMES = "check that every site has its own name and that the federation passes it on unchanged"

# Reasons of failed connections for which the system gives no number.
READABLE: Mapping[type[BaseException], str] = {
    TimeoutError: "no answer within the timeout",
    ConnectionRefusedError: "connection refused",
    ConnectionResetError: "the other end closed the connection",
    ConnectionAbortedError: "the connection was aborted",
    BrokenPipeError: "the other end closed the connection",
}
# Of a query's digest, in its ledger line: 128 bits.
QUERY_DIGITS = 32


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
        Sd of the noise on every entry; of one site's share of it in a secure sum.
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


@error_boundaries
class Rounds:
    """Sites that answer one server, in one session.

    Parameters
    ----------
    federation : Federation
    ledger : Ledger or None
    design : Design or None
        Sent to the sites first.
    missing : {"raise", "continue"}
    relation : {"replace-one", "zero-out"}

    Raises
    ------
    AlignmentError
        A site does not answer, or has other columns or bounds than the others; the message names it.
    NotAvailableError
        A site refuses; the message names it.

    Notes
    -----
    **Privacy.** Makes queries; subclasses decide what is released.
    """

    def __init__(
        self,
        federation: Federation,
        ledger: Ledger | None,
        design: Design | None,
        missing: MissingSites,
        relation: SumRelation,
    ) -> None:
        self._missing: MissingSites = check_choice(missing, MissingSites, "missing")
        self._relation: SumRelation = check_choice(relation, SumRelation, "relation")
        self._federation = federation
        self._session = str(uuid4())
        self._sequence = 0
        self.ledger = check_ledger(ledger)
        self._rows: dict[str, int] = {}
        self._imputed: Missing = "raise"
        self._design = self._introduce(design)
        self._digest = self._design.digest

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites that answer."""
        return tuple(self._rows)

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each site, public."""
        return dict(self._rows)

    @property
    def imputed(self) -> Missing:
        """Rule for missing values at the sites: "impute-public" if any of them imputes."""
        return self._imputed

    @property
    def nobs(self) -> int:
        """Number of rows of all sites."""
        return sum(self._rows.values())

    @property
    def design(self) -> Design:
        """The public columns and bounds, the same at every site."""
        return self._design

    @property
    def terms(self) -> str:
        """How releases are made and charged, in a few words."""
        return Places.TRUSTED.format(relation=self._relation)

    def shape(self, op: str, args: Args) -> tuple[int, ...]:
        """Return the shape of a sum over all sites.

        Parameters
        ----------
        op : str
            Name of the statistic.
        args : mapping
            Public arguments of the statistic.

        Returns
        -------
        tuple of int
            Shape of the sum.
        """
        return self._prepare(op, args, None)[1].shape

    def _prepare(
        self, op: str, args: Args, sites: Sequence[str] | None
    ) -> tuple[SiteOp, RecordSensitivity, list[str]]:
        """Check everything that can be checked before a charge."""
        if not isinstance(op, str) or op not in SITE_OPS:
            raise ArgumentError(
                f"there is no statistic named {shown(op)}; the available statistics are {', '.join(SITE_OPS)}"
            )
        if isinstance(sites, str):
            raise ArgumentError("sites= must be a list of site names, not one string")
        names = list(self._rows) if sites is None else list(dict.fromkeys(sites))
        for name in names:
            if name not in self._rows:
                raise ArgumentError(
                    f"there is no available site named {shown_name(name)}; check the name, and that the "
                    "site is running"
                )
        if not names:
            raise ArgumentError("sites= must list at least one site")
        if "bits" in args:
            raise ArgumentError("args= must not contain 'bits', which the server chooses; omit it")
        plain = Query(op, args=args).args  # refuses values that no transport carries
        sizes = [self._rows[name] for name in names]
        plain = {**plain, "bits": exact_bits(sum(sizes))}
        return (
            SITE_OPS[op],
            SITE_OPS[op].record_sensitivity(plain, len(self._design.names), max(sizes)),
            names,
        )

    def _spend(
        self, entries: tuple[LedgerEntry, ...], sites: Sequence[str], session: str
    ) -> tuple[LedgerEntry, ...]:
        """Record a release of all rows, or of some sites' rows in their parallel scopes; as recorded."""
        if len(sites) == len(self._rows):
            return self.ledger.spend(*entries)
        lines = [line for entry in entries for line in self._placed(entry, sites, session)]
        self.ledger.spend(*(line for line in lines if self.ledger.find(line) is None))
        return tuple(line for entry in entries for line in self._at_sites(entry, sites, session))

    def _standing(self, planned: PlannedQuery) -> tuple[LedgerEntry, ...]:
        """Return the lines of a release if all of them are in the ledger, unchanged; else nothing."""
        entry = planned.entry
        sites = planned.sites
        complete = self.ledger.find(entry)
        lines = self._at_sites(entry, sites, planned.query.session) if complete is None else (complete,)
        return lines if complete is not None or len(lines) == len(sites) else ()

    def _at_sites(self, entry: LedgerEntry, sites: Sequence[str], session: str) -> tuple[LedgerEntry, ...]:
        """Return the lines of some sites' release that are in the ledger."""
        lines = (self.ledger.find(line) for line in self._placed(entry, sites, session))
        return tuple(line for line in lines if line is not None)

    def _placed(self, entry: LedgerEntry, sites: Sequence[str], session: str) -> Iterator[LedgerEntry]:
        """Yield a release's line at each of some sites, in the parallel scope of that site."""
        for name in sites:
            yield at_site(entry, name).within(
                (scope_component(name, Places.SITES_OF_SESSION.format(session=session)),)
            )

    def _round(self, query: Query, names: list[str]) -> list[Reply]:
        """Return the replies; refusals are raised, silence by the rule for missing sites."""
        replies = answers_of(self._federation, query, names)
        silent = [name for name in names if name not in {reply.site for reply in replies}]
        if silent and (self._missing == "raise" or not replies):
            raise SiteConnectionError(
                f"{_sites_named(self._federation, silent)} did not answer; check that every site is running"
            )
        for name in silent:
            self._rows.pop(name, None)
        return replies

    def _introduce(self, design: Design | None) -> Design:
        """Query the sites for their names and columns."""
        names = list(self._federation.sites)
        self._rows = dict.fromkeys(names, 0)
        query = (
            Query(Requests.DESCRIBE)
            if design is None
            else Query(Requests.DESIGN, args={"design": design.to_dict()})
        )
        replies = self._round(query, names)
        check_alike({reply.site: reply.facts for reply in replies})
        self._rows = {reply.site: reply.rows for reply in replies}
        self._imputed = imputed_at(replies)
        if empty := [name for name, rows in self._rows.items() if rows < 1]:
            raise AlignmentError(f"site {empty[0]!r} has no rows")
        return _described(replies[0], design)

    def _count(self, names: Sequence[str]) -> int:
        return sum(self._rows[name] for name in names)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def skip(self, to: int | None = None) -> None:
        """Skip positions of the session that an earlier server's queries have used.

        Parameters
        ----------
        to : int, optional
            The last position to leave out; by default the next one alone.
        """
        self._sequence = max(self._sequence, self._sequence + 1 if to is None else to)


def imputed_at(replies: Iterable[Reply]) -> Missing:
    """Return the rule for missing values: "impute-public" if any site imputes."""
    missing: Missing = "impute-public"
    return missing if any(reply.facts.get("missing") == missing for reply in replies) else "raise"


def answers_of(federation: Federation, query: Query, names: Sequence[str]) -> list[Reply]:
    """Query, and return one answer of each queried site; refusals are raised.

    Raises
    ------
    AlignmentError
        A message is not a reply, comes from a site that was not queried, or is a site's second one; the
        message names it.
    PrivinfError
        A site refuses; the message names it.
    SiteConnectionError
        The connection to the sites failed.
    """
    replies = replies_of(federation, query, names)
    answered: set[str] = set()
    for reply in replies:
        if not isinstance(reply, Reply):
            raise AlignmentError(
                f"one of the sites {', '.join(map(repr, names))} sent an invalid reply; {SAME_VERSION}"
            )
        if reply.site not in names:
            raise AlignmentError(
                f"site {shown(reply.site)} sent a reply, but no query was sent to this site; {OWN_NAMES}"
            )
        if reply.site in answered:
            raise AlignmentError(f"site {reply.site!r} answered the same query twice; {OWN_NAMES}")
        answered.add(reply.site)
    for reply in replies:
        if reply.error:
            raise refusal_of(reply)
    return replies


def replies_of(federation: Federation, query: Query, sites: Sequence[str] | None = None) -> list[Reply]:
    """Query, and return all replies; SiteConnectionError, with the system's reason, on failure."""
    names = list(federation.sites) if sites is None else list(sites)
    try:
        return federation.ask(query, sites)
    except PrivinfError:
        raise
    except (OSError, EOFError) as problem:
        failed = problem if isinstance(problem, OSError) else ConnectionResetError()
        reason = reason_of(failed)
        cause = bare(failed)
    raise SiteConnectionError(
        f"the connection to {_sites_named(federation, names)} failed ({reason}); check that the sites "
        "run and can be reached"
    ) from cause


def reason_of(problem: OSError) -> str:
    """Return why a connection failed, in the system's words; its own text is not quoted."""
    if isinstance(problem, ssl.SSLError):
        return f"TLS: {(getattr(problem, 'reason', None) or 'unknown reason').replace('_', ' ').lower()}"
    if isinstance(problem, socket.gaierror):
        return "unknown host name"
    if isinstance(problem.errno, int):
        return os.strerror(problem.errno)
    return READABLE.get(bare(problem).__class__, "unknown reason")


def _sites_named(federation: Federation, names: Sequence[str]) -> str:
    """Return names of sites, with their addresses where the federation knows them."""
    addresses: Mapping[str, str] = getattr(federation, "addresses", {})
    texts = [f"{name!r} at {addresses[name]}" if name in addresses else repr(name) for name in names]
    return f"site{'s' if len(texts) > 1 else ''} {', '.join(texts)}"


def _described(reply: Reply, sent_design: Design | None) -> Design:
    """Return the design of the queries: by the sites' description, or as it was sent to them."""
    facts = reply.facts["design"]
    if facts is None:
        raise NotAvailableError(
            "the sites have declared only a schema and no design (columns of a regression) yet; pass design="
        )
    problem = ""
    try:
        design = Design.from_dict(facts)
    except PrivinfError as error:
        problem = f"site {reply.site!r} sent an invalid design: {error}"
    else:
        if design.digest != reply.facts["digest"]:
            problem = f"site {reply.site!r} sent a design and a digest that do not belong together"
        elif sent_design is not None and design.digest != sent_design.digest:
            problem = f"site {reply.site!r} uses another design than the server sent"
    if problem:
        raise AlignmentError(problem)
    return design


def refusal_of(reply: Reply) -> PrivinfError:
    """Return a site's error as one of this package's, with the site's name."""
    text = "".join(character if character.isprintable() else " " for character in reply.error[:LONGEST_ERROR])
    kind, _, message = text.partition(": ")
    error = getattr(errors, kind, None)
    usable = isinstance(error, type) and issubclass(error, PrivinfError) and error is not UnforeseenError
    return (error if usable else ArgumentError)(f"site {reply.site!r}: {message or kind}")  # type: ignore[misc]


def at_site(entry: LedgerEntry, name: str) -> LedgerEntry:
    """Return a release's line in one site's scope; the same release has the same line there."""
    return entry.filed(
        str(uuid5(NAMESPACE_URL, Places.LINE_OF_SITE.format(line=entry.id, site=name))), entry.scope
    )


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
    """Return the digest of a planned query; ArgumentError unless its one line names it, and `extra`."""
    query = planned.query
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
