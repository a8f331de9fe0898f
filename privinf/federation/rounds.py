"""Rounds between one server and its sites: the roster of sites that answer, the order of queries, one round.

A query leaves by `Rounds.ask`, goes over `Federation.ask` to `Site.handle`, and comes back as one `Reply` of
each site.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal
from uuid import uuid4

from privinf import errors
from privinf.accounting import LedgerEntry, Loss
from privinf.accounting.losses import noise_free
from privinf.error_boundary import bare
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    NotAvailableError,
    PrivinfError,
    SiteConnectionError,
    UnforeseenError,
)
from privinf.federation.local import LocalSites
from privinf.federation.messages import LONGEST_ERROR, Federation, Query, Reply, check_alike
from privinf.federation.planned import Args
from privinf.federation.policy import StatedPolicy
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import exact_bits
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp
from privinf.schema import Design
from privinf.typing import Missing
from privinf.validation import check_choice, shown, shown_name
from privinf.wire import Requests

MissingSites = Literal["raise", "continue"]
SAME_VERSION = "check that all sites have the same version of privinf"
OWN_NAMES = "check that every site has its own name, and that the federation does not change the sites' names"
CHECK_SITES = "check that the sites run and can be reached"
CHECK_TLS = "check the TLS certificates of the server and the sites"

# Reasons of failed connections for which the system gives no number.
READABLE: Mapping[type[BaseException], str] = {
    TimeoutError: "no answer within the timeout",
    ConnectionRefusedError: "connection refused",
    ConnectionResetError: "the other end closed the connection",
    ConnectionAbortedError: "the connection was aborted",
    BrokenPipeError: "the other end closed the connection",
}


class Rounds:
    """Rounds of queries from one server to its sites, in one session.

    Parameters
    ----------
    federation : Federation
    design : Design or None
        Sent to the sites first.
    missing : {"raise", "continue"}

    Attributes
    ----------
    session : str
        Name of the session, random.
    rows : dict of str to int
        Number of rows of each site that answers, public.
    imputed : {"raise", "impute-public", "drop"}
        Rule for missing values: "impute-public" if any of the sites imputes, "drop" if any drops rows.
    design : Design
        Design (public columns and bounds), which is the same at every site.
    rosters : dict of str to str or None
        Digest of the public keys that each site has pinned; None without any.
    policies : dict of str to StatedPolicy
        Rules that each site states.

    Raises
    ------
    AlignmentError
        A site does not answer, or its columns or bounds differ from those of the other sites. The message
        names the site.
    NotAvailableError
        A site refuses the query. The message names the site.

    Notes
    -----
    **Privacy.** Sends queries; what is released of the replies is the server's to decide.
    """

    def __init__(self, federation: Federation, design: Design | None, missing: MissingSites) -> None:
        self.missing: MissingSites = check_choice(missing, MissingSites, "missing")
        self.federation = federation
        self.session = str(uuid4())
        self.sequence = 0
        names = list(federation.sites)
        self.rows = dict.fromkeys(names, 0)
        query = (
            Query(Requests.DESCRIBE)
            if design is None
            else Query(Requests.DESIGN, args={"design": design.to_dict()})
        )
        replies = self.ask(query, names)
        check_alike({reply.site: reply.facts for reply in replies})
        self.rows = {reply.site: reply.rows for reply in replies}
        if empty := [name for name, rows in self.rows.items() if rows < 1]:
            raise AlignmentError(f"site {empty[0]!r} has no rows")
        self.rosters: dict[str, str | None] = {reply.site: reply.facts.get("roster") for reply in replies}
        self.policies = {reply.site: StatedPolicy.from_facts(reply.facts) for reply in replies}
        self.imputed: Missing = imputed_at(replies)
        self.design = _described(replies[0], design)
        self._digest = self.design.digest

    def check(
        self, op: str, args: Args, sites: Sequence[str] | None
    ) -> tuple[SiteOp, RecordSensitivity, list[str]]:
        """Check everything that can be checked before a charge.

        Returns
        -------
        tuple (SiteOp, RecordSensitivity, list of str)
            The statistic, its sensitivity, and the names of the sites, by default all.

        Raises
        ------
        ArgumentError
            There is no such statistic or site, or an argument of the statistic is wrong.
        """
        if not isinstance(op, str) or op not in SITE_OPS:
            raise ArgumentError(
                f"there is no statistic named {shown(op)}; the available statistics are {', '.join(SITE_OPS)}"
            )
        names = self._available(sites)
        if "bits" in args:
            raise ArgumentError("args= must not contain 'bits', which the server chooses; omit it")
        plain = Query(op, args=args).args  # refuses values that no transport carries
        plain = {**plain, "bits": exact_bits(self.count(names))}
        largest = max(self.rows[name] for name in names)
        sensitivity = SITE_OPS[op].record_sensitivity(plain, len(self.design.names), largest)
        return SITE_OPS[op], sensitivity, names

    def check_policies(self, names: Iterable[str], *, secure: bool, colluding: int | None) -> None:
        """Raise NotAvailableError, before any charge, if a policy forbids the noise, or the kind of sums.

        Parameters
        ----------
        names : iterable of str
            Sites that are asked.
        secure : bool
            Whether the noise is secure.
        colluding : int or None
            Number of sites that may collude in a secure sum; None if the server adds the noise.
        """
        queried = sorted(self.rows.keys() & set(names))
        for name in queried:
            with refusing(name):
                self.policies[name].check(secure=secure, colluding=colluding, sites=len(queried))

    def check_release(
        self, names: Iterable[str], query: Query, record_sensitivity: RecordSensitivity
    ) -> None:
        """Raise NotAvailableError, before any charge, if a policy forbids the statistic or its price."""
        if isinstance(self.federation, LocalSites):  # the caller's own rows, which no policy restricts
            return
        for name in sorted(self.rows.keys() & set(names)):
            with refusing(name):
                self.policies[name].check_release(query, record_sensitivity)

    def _available(self, sites: Sequence[str] | None) -> list[str]:
        """Return the names of the sites of a query, by default of all; ArgumentError unless all answer."""
        if isinstance(sites, str):
            raise ArgumentError("sites= must be a list of site names, not one string")
        names = list(self.rows) if sites is None else list(dict.fromkeys(sites))
        for name in names:
            if name not in self.rows:
                raise ArgumentError(
                    f"there is no available site named {shown_name(name)}; check the name, and that the "
                    "site is running"
                )
        if not names:
            raise ArgumentError("sites= must list at least one site")
        return names

    def next_query(
        self,
        op: SiteOp,
        args: Args,
        bits: int,
        entries: Sequence[LedgerEntry],
        *,
        reservation: str,
        purpose: str,
        masking: Mapping[str, Any] | None = None,
    ) -> Query:
        """Return the query of a sum at the next position of the session."""
        self.sequence += 1
        return Query(
            op.name,
            args={**args, "bits": bits},
            version=op.version,
            design=self._digest,
            session=self.session,
            sequence=self.sequence,
            charges=tuple(entry.to_dict() for entry in entries),
            masking={} if masking is None else masking,
            reservation=reservation,
            purpose=purpose,
        )

    def ask(self, query: Query, names: Sequence[str]) -> list[Reply]:
        """Return the replies; refusals are raised, silence by the rule for missing sites."""
        replies = answers_of(self.federation, query, names)
        silent = [name for name in names if name not in {reply.site for reply in replies}]
        if silent and (self.missing == "raise" or not replies):
            raise SiteConnectionError(
                f"{_sites_named(self.federation, silent)} did not answer; check that every site is running"
            )
        self.leave_out(silent)
        return replies

    def leave_out(self, silent: Iterable[str]) -> None:
        """Query some sites no more."""
        for name in silent:
            self.rows.pop(name, None)

    def count(self, names: Iterable[str]) -> int:
        """Return the number of rows of some sites."""
        return sum(self.rows[name] for name in names)

    def skip(self, to: int | None = None) -> None:
        """Skip the positions up to `to`, by default the next one, which an earlier server has used."""
        self.sequence = max(self.sequence, self.sequence + 1 if to is None else to)


class FitReservation:
    """The reservation of one fit at all sites: at most one at a time.

    Parameters
    ----------
    rounds : Rounds
        Of the sites. Nothing is reserved for the caller's own rows, which others do not limit.
    """

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self.name = ""
        self._may_be_held = False  # whether a site may hold an amount that was not given back

    def begin(self, losses: Sequence[Loss], name: str, position: int, purpose: str = "") -> None:
        """Reserve privacy losses under a name at all sites; if one site refuses, nothing is reserved.

        `purpose` describes the fit for the people who run the sites.

        Releases without noise fit no limit and are not reserved.
        """
        if isinstance(self._rounds.federation, LocalSites) or any(map(noise_free, losses)):
            return
        self.name = name
        self._may_be_held = True
        lines = tuple(loss.to_dict() for loss in losses)
        try:
            self._rounds.ask(
                Query(Requests.RESERVE, session=name, sequence=position, charges=lines, purpose=purpose),
                list(self._rounds.rows),
            )
        except PrivinfError:
            self.give_back(position + 1)
            raise

    def give_back(self, position: int, name: str = "") -> bool:
        """Free the uncharged amounts of a reservation at the sites; sites that do not answer keep them.

        `name` is that of an earlier reservation, by default the current one. Returns whether no site may
        still hold an amount of the current one.
        """
        if (name or self.name) and not isinstance(self._rounds.federation, LocalSites):
            query = Query(Requests.END, session=name or self.name, sequence=position)
            with suppress(PrivinfError):
                replies = replies_of(self._rounds.federation, query, list(self._rounds.rows))
                freed = {reply.site for reply in replies if isinstance(reply, Reply) and not reply.error}
                if not name:
                    self._may_be_held = not freed >= self._rounds.rows.keys()
        if not name:
            self.name = ""
        return not self._may_be_held


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Name the site in a refusal by its policy."""
    problem = ""
    try:
        yield
        return
    except NotAvailableError as error:
        problem = str(error)
    raise NotAvailableError(f"site {name!r}: {problem}")


def imputed_at(replies: Iterable[Reply]) -> Missing:
    """Return the rule for missing values: "impute-public" if any site imputes, "drop" if any drops rows.

    Raises
    ------
    NotAvailableError
        Some sites impute and others drop rows; the message names one of each.
    """
    rules = {reply.facts.get("missing", "raise"): reply.site for reply in replies}
    if {"drop", "impute-public"} <= rules.keys():
        raise NotAvailableError(
            f"site {rules['drop']!r} drops rows with missing values, and site {rules['impute-public']!r} "
            "imputes them: agree on one rule for all sites"
        )
    handling: tuple[Missing, ...] = ("drop", "impute-public")
    return next((rule for rule in handling if rule in rules), "raise")


def answers_of(federation: Federation, query: Query, names: Sequence[str]) -> list[Reply]:
    """Query, and return one answer of each queried site; refusals are raised.

    Raises
    ------
    AlignmentError
        A message is not a reply, comes from a site that was not queried, or is a site's second one; the
        message names it.
    PrivinfError
        A site refuses the query. The message names the site.
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
        remedy = CHECK_TLS if isinstance(failed, ssl.SSLError) else CHECK_SITES
        reason = reason_of(failed)
        cause = bare(failed)
    raise SiteConnectionError(
        f"the connection to {_sites_named(federation, names)} failed ({reason}); {remedy}"
    ) from cause


def reason_of(problem: OSError) -> str:
    """Return why a connection failed, in the system's words; its own text is not quoted."""
    if isinstance(problem, ssl.SSLError):
        detail = getattr(problem, "reason", None)
        return f"TLS: {detail.replace('_', ' ').lower()}" if detail else "TLS encryption could not be set up"
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
