"""Sites behind sockets of this machine: the way to one daemon, and a federation of several."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, fspath
from typing import Any

import numpy as np

from privinf.error_boundary import bare, error_boundaries
from privinf.errors import AlignmentError, ArgumentError, SiteConnectionError, StorageError
from privinf.federation.askers import ClientEnvelope, ReplyVerifier
from privinf.federation.envelope import Fields
from privinf.federation.frames import LARGEST, receive, send
from privinf.federation.messages import NAME_RULE, Message, Query, Reply, check_alike, lasting
from privinf.federation.rounds import refusal_of
from privinf.federation.secure.keys import IdentityKey, Roster
from privinf.validation import check_positive, shown_name
from privinf.wire import Requests

log = logging.getLogger(__name__)
PAUSE = 0.02  # seconds between tries where the daemon's queue is full or it has hung up
TRIES = 5  # times that it may hang up
NO_REASON = "no reply within {:g} seconds"
NO_REPLY = (
    "the message from site {!r} is not a valid reply: it was damaged, or another version of privinf wrote "
    "it; install the same version at the server and the site"
)
MOST_AT_ONCE = 32  # sites that are queried at the same time


@error_boundaries
class RemoteSite:
    """Connection to a site behind a `SiteDaemon` on this computer.

    Parameters
    ----------
    path : path
        The daemon's socket.
    timeout : float
        Number of seconds to wait for an answer.

    Notes
    -----
    **Privacy.** The object stores only the path of the socket, and no data.
    """

    __slots__ = ("_path", "_timeout")

    def __init__(self, path: str | PathLike[str], *, timeout: float = 60.0) -> None:
        self._path = fspath(path)
        self._timeout = check_positive(timeout, "timeout")

    @property
    def path(self) -> str:
        """The daemon's socket."""
        return self._path

    def handle(self, query: Query, name: str) -> Reply:
        """Send a query to the site `name`, and return its reply.

        Parameters
        ----------
        query : Query
            The query.
        name : str
            Name of the site.

        Returns
        -------
        Reply
            The answer.

        Raises
        ------
        SiteConnectionError
            Raised if no daemon answers at the path in time. The daemon may still have charged the query;
            repeating the query costs nothing more.
        StorageError
            Raised if the reply is not valid.
        """
        return self.exchange(query, name, {})[0]

    def exchange(self, query: Query, name: str, envelope: Fields) -> tuple[Reply, Fields]:
        """Send a query with additional fields, and return the reply with its additional fields.

        Parameters
        ----------
        query : Query
            The query.
        name : str
            Name of the site.
        envelope : mapping
            Additional fields that are sent with the query, such as its signature.

        Returns
        -------
        tuple (Reply, dict)
            The reply, and the additional fields that were sent with it.

        Raises
        ------
        SiteConnectionError
            Raised if no daemon answers at the path in time.
        StorageError
            Raised if the answer of the daemon is not a valid reply.
        """
        end = time.monotonic() + self._timeout
        tries = 0
        while True:
            try:
                fields, message = self._exchanged(query.pack(), name, end, envelope)
                break
            except OSError as problem:
                # A daemon that is full hangs up; the same query again is answered once.
                full = isinstance(problem, (ConnectionResetError, BrokenPipeError))
                tries += full
                may_retry = isinstance(problem, BlockingIOError) or (full and tries < TRIES)
                if not may_retry or time.monotonic() + PAUSE >= end:
                    reason = problem.strerror or (
                        NO_REASON.format(self._timeout)
                        if isinstance(problem, TimeoutError)
                        else "connection closed"
                    )
                    raise SiteConnectionError(
                        f"the daemon of site {name!r} at {self._path} did not answer ({reason}); check "
                        "that the site is running"
                    ) from bare(problem)
            except StorageError:
                raise StorageError(NO_REPLY.format(name)) from None
            time.sleep(PAUSE)
        try:
            return Reply.unpack(*message), fields
        except StorageError:
            raise StorageError(NO_REPLY.format(name)) from None

    def _exchanged(self, message: Message, name: str, end: float, envelope: Fields) -> tuple[Fields, Message]:
        """Send a query and return the reply."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(max(end - time.monotonic(), PAUSE))
            connection.connect(self._path)
            try:
                send(connection, message, max(end - time.monotonic(), PAUSE), to=name, **envelope)
            except (BrokenPipeError, ConnectionResetError):
                # The reply may give the reason.
                log.debug("the daemon of site %r closed the connection before the whole query was sent", name)
            return receive(connection, max(end - time.monotonic(), PAUSE), LARGEST)

    def __repr__(self) -> str:
        return f"RemoteSite({self._path!r})"


@error_boundaries
class SocketFederation(ReplyVerifier):
    """Federation of sites behind `SiteDaemon` sockets on this computer, queried in parallel.

    Parameters
    ----------
    paths : mapping of str to path
        Path of the socket of each site's daemon, by the name of the site.
    timeout : float
        Number of seconds to wait for the answers to a query. Later answers are ignored.
    patience : float
        Number of seconds to wait until all daemons answer.
    roster : Roster, optional
        Public keys of all sites. If `roster` is passed, every reply must be signed with the key of its site.
        By default signatures are not checked.
    key : IdentityKey, optional
        Secret key of the analyst, which is needed if the policy of a site lists analysts.
    heads : path, optional
        File that stores, for each site, the last line of its ledger. If a site later uses an older copy of
        its ledger, this line reveals the older copy. By default the last lines are stored in this object, and
        in the `checkpoint` folder of a fit.

    Raises
    ------
    AlignmentError
        Raised if a site does not answer in time, a different site answers at its socket, or sites have
        different columns or bounds. The message names one of the sites.
    ArgumentError
        Raised if there is no site, a name is not a string, a number of seconds is not positive, or the roster
        has no Ed25519 keys or lacks a site.
    StorageError
        Raised if the file with the last lines of the ledgers of sites is damaged. The error is also raised if
        the ledger of a site is older than a ledger that was seen before.
    PrivinfError
        Raised if a site refuses to send its description. The message names the site.

    Notes
    -----
    **Privacy.** The federation only transmits messages. Each site decides by its own policy and ledger which
    queries it answers. Anyone who may open the sockets may query, unless the policies of the sites list
    analysts. Without `roster`, any process that listens at a socket is accepted as the site.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from privinf.federation import Query, Site, SiteDaemon, SocketFederation
    >>> from privinf.schema import Design
    >>> design = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    >>> site = Site((np.zeros(5), np.zeros((5, 1))), design)
    >>> with tempfile.TemporaryDirectory() as folder, SiteDaemon(site, "north", f"{folder}/s").started():
    ...     [reply.rows for reply in SocketFederation({"north": f"{folder}/s"}).ask(Query("describe"))]
    [5]
    """

    def __init__(
        self,
        paths: Mapping[str, str | PathLike[str]],
        *,
        timeout: float = 120.0,
        patience: float = 10.0,
        roster: Roster | None = None,
        key: IdentityKey | None = None,
        heads: str | PathLike[str] | None = None,
    ) -> None:
        if not isinstance(paths, Mapping) or not paths:
            raise ArgumentError(
                "paths= must be a mapping from site names to paths of sockets, with at least one site"
            )
        for name, path in paths.items():
            if not isinstance(name, str) or not name.strip() or "=" in name:
                raise ArgumentError(NAME_RULE)
            if not isinstance(path, (str, PathLike)):
                raise ArgumentError(
                    f"paths= must contain the path of the socket of site {name!r}, as a text or a Path"
                )
        self._remote = {name: RemoteSite(path, timeout=timeout) for name, path in paths.items()}
        self._end = ClientEnvelope(self.sites, roster=roster, key=key, heads=heads)
        self._introduced(check_positive(patience, "patience"))

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(self._remote)

    @property
    def addresses(self) -> dict[str, str]:
        """Path of the socket of each site's daemon."""
        return {name: remote.path for name, remote in self._remote.items()}

    def ask(self, query: Query, sites: Sequence[str] | None = None) -> list[Reply]:
        """Return the replies of the queried sites.

        Parameters
        ----------
        query : Query
            The query.
        sites : sequence of str, optional
            Names of the sites to query; by default all sites.

        Returns
        -------
        list of Reply
            Replies of the sites that answered, in the order of the sites.

        Notes
        -----
        **Privacy.** Each site decides by its own policy and ledger which queries it answers.
        """
        names = self.sites if sites is None else tuple(self._check_name(name) for name in sites)
        answers = self._all(query, names)
        for answer in answers:
            if isinstance(answer, AlignmentError):
                log.warning("%s", answer)
        return [answer for answer in answers if isinstance(answer, Reply)]

    def _all(self, query: Query, names: Sequence[str]) -> list[Reply | AlignmentError]:
        """Query in parallel; return replies, or reasons for their absence, in order."""
        if not names:
            return []
        with ThreadPoolExecutor(min(len(names), MOST_AT_ONCE)) as pool:
            answers = list(pool.map(lambda name: self._ask_site(query, name), names))
        self._end.memory.save()
        return answers

    def _ask_site(self, query: Query, name: str) -> Reply | AlignmentError:
        """Return a site's reply (an error reply if invalid), or the reason why it did not answer."""
        envelope = self._end.envelope_for(query, name)
        try:
            reply, fields = self._remote[name].exchange(query, name, envelope.fields)
            return self._end.checked(envelope, own_reply(reply, name), fields)
        except AlignmentError as problem:
            return problem
        except StorageError:
            return no_reply(name)

    def _introduced(self, patience: float) -> None:
        """Query all daemons for their names until each has answered."""
        end = time.monotonic() + patience
        facts = dict[str, Mapping[str, Any]]()
        while absent := [name for name in self._remote if name not in facts]:
            for reply in self._all(Query(Requests.DESCRIBE), absent):
                if isinstance(reply, AlignmentError):
                    continue
                if reply.error:
                    raise refusal_of(reply)
                self._end.check_roster(reply.site, reply.facts)
                facts[reply.site] = lasting(reply.facts)
            if len(facts) < len(self._remote):
                if time.monotonic() >= end:
                    silent = [name for name in absent if name not in facts]
                    texts = [f"{name!r} at {self._remote[name].path}" for name in silent]
                    raise SiteConnectionError(
                        f"{'site' if len(texts) == 1 else 'sites'} {', '.join(texts)} did not answer within "
                        f"{patience:g} seconds; check that "
                        f"{'it is' if len(texts) == 1 else 'they are'} running"
                    )
                time.sleep(PAUSE)
        check_alike({name: facts[name] for name in self._remote})

    def _check_name(self, name: str) -> str:
        if name not in self._remote:
            names = ", ".join(map(repr, self._remote))
            raise ArgumentError(f"there is no site named {shown_name(name)}; the sites are {names}")
        return name

    def __repr__(self) -> str:
        return f"<SocketFederation of {len(self._remote)} sites, {self._end.description}>"


def reply_of(message: Message, name: str) -> Reply:
    """Return the reply of the queried site, or a reply that states why the message is invalid."""
    try:
        return own_reply(Reply.unpack(*message), name)
    except StorageError:
        return no_reply(name)


def no_reply(name: str) -> Reply:
    """Return the error reply in place of an invalid message."""
    return Reply(
        site=name, sums=np.empty(0), rows=0, error="StorageError: the site's message is not a valid reply"
    )


def own_reply(reply: Reply, name: str) -> Reply:
    """Return the reply of the queried site, or a reply that states that another site answered, or none."""
    if reply.site == name:
        return reply
    if not reply.site:
        return no_reply(name)
    return Reply(
        site=name,
        sums=np.empty(0),
        rows=0,
        error="AlignmentError: the site replied with the name of another site",
    )
