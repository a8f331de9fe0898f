"""A site in a process of its own: rows, key and ledger behind a unix socket, away from pushed code.

Anyone who may open the socket may send any bytes (`frames` defines a frame). The server of the standard
library (`socketserver`) accepts connections and gives each a thread, which reads one query and sends its
answer; answers are computed one at a time, in turn of the accounts (`ConnectionLimits`).
"""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import shutil
import socket
import socketserver
import struct
import sys
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, Self

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, StorageError
from privinf.federation.envelope import Envelope, SiteEnvelope
from privinf.federation.frames import (
    MOST_TEXT_BYTES,
    Body,
    Header,
    check_values,
    receive_body,
    receive_header,
    send,
    unframe,
)
from privinf.federation.messages import NAME_RULE, Query, Reply
from privinf.federation.site import Site
from privinf.validation import check_count, check_positive, shown

log = logging.getLogger(__name__)
LONGEST_PATH = 100  # a unix socket's name is part of its address
TICK = 0.1  # seconds until a stop is noticed
LARGEST_QUERY = 1 << 23  # bytes of a query: a square matrix of 1,000 columns fits
PATIENCE = 5.0  # seconds in which a header must arrive
LOGGED = 100  # characters of a caller's text that are logged
REFUSALS = 100  # refusals in a minute that are logged
MOST_CALLERS = 64  # connections at a time
MOST_OF_ONE = 48  # connections of one account at a time
BYTES_HELD = 1 << 24  # bytes of bodies and replies that are under way together
SMALL_BODY = 1 << 16  # bytes of a body up to which it is not counted
GRACE = 0.25  # seconds in which a connection is not closed to make place for another one
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


# A query's reply, and the fields of its envelope.
Sealed = tuple[Reply, dict[str, str]]


@error_boundaries
class SiteDaemon:
    """Daemon that answers queries to one site at a Unix socket.

    Parameters
    ----------
    site : Site
        The site that answers.
    name : str
        Name of the site. Queries to a different name are refused.
    path : path
        Path of the socket, at most 100 bytes long. Its folder must exist.
    group : str, optional
        Group of the operating system whose members may query the site. By default only the account that runs
        the daemon may query.
    allow_uids : collection of int, optional
        Numeric ids of the accounts that may query the site. By default all accounts that can open the socket
        may query. The list only restricts access, and does not change the permissions of the socket.
    timeout : float
        Largest number of seconds for receiving a query, and for sending a reply.
    largest : int
        Largest allowed size of a query, in bytes.

    Raises
    ------
    ArgumentError
        Raised if the path is too long, its folder is missing, the path is already used by a file or by a
        different daemon, or an argument is out of range.

    Notes
    -----
    **Privacy.** The site decides which queries it answers. The daemon refuses messages that are not queries.
    By default every account that may open the socket may query. Run the daemon under a separate account,
    which alone may read the rows, the key and the ledger. Run code of other people under a different account,
    which is a member of `group`. If the policy of the site lists analysts, a query without a valid signature
    of an analyst is refused before its body is read. Replies are signed if the site has a key and a roster
    with Ed25519 keys.

    **Limits.** The daemon keeps at most 64 connections at the same time, and at most 48 connections from one
    account. If there are more connections, it closes the connection for which it has waited longest. The
    header of a query has at most 64 KiB and must arrive within 5 seconds. A query has at most 8 MiB, with at
    most 4 MiB of text and at most 131,072 values. Queries and replies in transit have at most 16 MiB
    together. The daemon answers the accounts in turn, with one answer per turn, even if one account has many
    waiting queries. The log has JSON lines in ASCII, each with at most 100 characters from a client, and at
    most 100 refusals per minute are logged.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from privinf.federation import Query, RemoteSite, Site, SiteDaemon
    >>> from privinf.schema import Design
    >>> design = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    >>> site = Site((np.zeros(5), np.zeros((5, 1))), design)
    >>> with tempfile.TemporaryDirectory() as folder, SiteDaemon(site, "north", f"{folder}/s").started():
    ...     RemoteSite(f"{folder}/s").handle(Query("describe"), "north").rows
    5
    """

    def __init__(
        self,
        site: Site,
        name: str,
        path: str | PathLike[str],
        *,
        group: str | None = None,
        allow_uids: Collection[int] | None = None,
        timeout: float = 30.0,
        largest: int = LARGEST_QUERY,
    ) -> None:
        if not isinstance(site, Site):
            raise ArgumentError(f"site must be a Site, got {type(site).__name__}")
        if not isinstance(name, str) or not name.strip() or "=" in name:
            raise ArgumentError(NAME_RULE)
        self.name = name
        self.path = Path(path).absolute()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._server = _SiteServer(
            site,
            name,
            self.path,
            group=group,
            accounts=None if allow_uids is None else _accounts(allow_uids),
            timeout=check_positive(timeout, "timeout"),
            largest=check_count(largest, "largest"),
        )

    def serve(self) -> None:
        """Answer queries until `stop` is called, for example by a signal handler; then remove the socket."""
        try:
            # Not serve_forever(): its shutdown() waits for its end, which a signal's handler must not do.
            while not self._stopping.is_set():
                self._server.handle_request()
        finally:
            self._server.server_close()

    def started(self) -> Self:
        """Answer queries in a thread of this process, for tests, until the end of a ``with`` block."""
        self._thread = threading.Thread(target=self.serve, name=f"site {self.name}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop after the current query."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._server.server_close()

    def __repr__(self) -> str:
        return f"<SiteDaemon of site {self.name!r} at {self.path}>"

    def __reduce__(self) -> Any:
        raise TypeError("a daemon holds raw rows and cannot be pickled")


class _SiteServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """The server behind a daemon's socket: who may connect, how many at a time, and what becomes of errors.

    A connection is a `Caller`, and its address is the account at its other end.
    """

    request_queue_size = 128
    daemon_threads = True

    def __init__(
        self,
        site: Site,
        name: str,
        path: Path,
        *,
        group: str | None,
        accounts: frozenset[int] | None,
        timeout: float,
        largest: int,
    ) -> None:
        if len(os.fsencode(path)) > LONGEST_PATH:
            raise ArgumentError(
                f"the socket's path {path} is too long; choose a path of at most {LONGEST_PATH} bytes"
            )
        if not path.parent.is_dir():
            raise ArgumentError(
                f"the folder of the daemon's socket, {path.parent}, does not exist; create it"
            )
        self.site = site
        self.name = name
        self.envelope = SiteEnvelope(site, name)
        self.answer_timeout = timeout
        self.largest = largest
        self.limits = ConnectionLimits()
        self.log_lines = _LogLines(name)
        self.answerer = ThreadPoolExecutor(1, f"answers of {name}")
        self._path = path
        self._group = group
        self._accounts = accounts
        # As socketserver.UnixStreamServer, which Windows does not have: this module is imported there too.
        self.address_family = socket.AF_UNIX
        super().__init__(str(path), _Conversation, bind_and_activate=False)  # type: ignore[arg-type]
        try:
            self.server_bind()
            self.server_activate()
        except (OSError, LookupError) as problem:
            self.socket.close()
            raise ArgumentError(f"the socket {path} cannot be created{_obstacle(problem, group)}") from None
        self._inode = path.stat().st_ino

    def server_bind(self) -> None:
        """Bind the socket, which is closed to others until its permissions are set."""
        _clear(self._path)
        self.socket.bind(str(self._path))
        self.socket.settimeout(TICK)
        os.chmod(self._path, 0o600 if self._group is None else 0o660)
        if self._group is not None:
            shutil.chown(self._path, group=self._group)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection."""
        try:
            connection, _ = self.socket.accept()
        except TimeoutError:
            raise
        except OSError as problem:  # such as no more descriptors
            self.log_lines.refused("no connection can be accepted", reason=problem.strerror or "")
            time.sleep(TICK)
            raise
        caller = Caller(connection=connection, uid=account_of(connection))
        return caller, caller.uid

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether a caller may query, and whether there is a place for one more of the account."""
        if self._accounts is not None and client_address not in self._accounts:
            self.log_lines.refused("account not in allow_uids", uid=client_address)
            return False
        if not self.limits.enter(request):
            self.log_lines.refused("too many connections", uid=client_address)
            return False
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error that ended a conversation."""
        problem = sys.exception()
        if isinstance(problem, OSError):
            self.log_lines.refused("hung up", uid=client_address)
        elif problem is not None:
            self.log_lines.failed(client_address, problem)

    def shutdown_request(self, request: Any) -> None:
        """Forget a caller and close the connection."""
        self.limits.leave(request)

    def server_close(self) -> None:
        """Remove the socket, unless a successor has made another one, and wait for the last answers."""
        super().server_close()
        if self._path.exists() and self._path.stat().st_ino == self._inode:
            self._path.unlink()
        self.limits.end()
        self.answerer.shutdown()


class _Conversation(socketserver.BaseRequestHandler):
    """One query of a caller and its answer; a caller who disconnects is dropped (OSError)."""

    request: Caller
    server: _SiteServer

    def setup(self) -> None:
        """Start the time in which the query must arrive."""
        self._end = time.monotonic() + self.server.answer_timeout
        self._envelope = Envelope()

    def handle(self) -> None:
        """Read the query and send its answer, or the refusal."""
        try:
            reply, seal = self._answered()
        except (ArgumentError, NotAvailableError, StorageError) as problem:
            reply, seal = self._refusal(problem)
        send(self.request.connection, reply.pack(), self.server.answer_timeout, **seal)

    def _answered(self) -> Sealed:
        """Return the reply to a caller's message, and its envelope; raise what the message is refused for."""
        caller = self.request
        limits = self.server.limits
        first = min(self._end, time.monotonic() + PATIENCE)
        header = receive_header(caller.connection, first, self.server.largest, MOST_TEXT_BYTES)
        self._open_envelope(header)
        self.server.envelope.admitted(self._envelope)
        if not limits.hold(caller, header.size):
            raise StorageError("the site's daemon is too busy; send the query again later")
        body = receive_body(caller.connection, header, self._end)
        check_values(header, body)
        with limits.turn(caller):
            reply, seal = self.server.answerer.submit(self._answer, header, body).result()
            del body
        if not limits.hold(caller, reply.sums.nbytes + reply.masked.nbytes):
            raise ConnectionAbortedError("the site's daemon has too little memory for the reply")
        return reply, seal

    def _open_envelope(self, header: Header) -> None:
        """Read the envelope of a query; queries to other sites are refused before the body is read."""
        to = header.fields.get("to")
        if to is None:
            raise StorageError("the message must name the site to which it is sent")
        if to != self.server.name:
            raise ArgumentError(
                f"the message was sent to site {to[:LOGGED]!r}, but another site received it; check "
                "which socket belongs to which site"
            )
        fields = {name: text for name, text in header.fields.items() if name != "to"}
        self._envelope = Envelope.from_fields(fields)

    def _answer(self, header: Header, body: Body) -> Sealed:
        """Answer, in the one thread of answers: memory that others have had is not kept for each of them."""
        try:
            query = Query.unpack(*unframe(header, body))
            reply, seal = self.server.envelope.answer(self._envelope, query)
            self.server.log_lines.answered(query, reply, self.request.uid)
            return reply, seal
        finally:
            if header.size > SMALL_BODY:
                gc.collect(1)  # tracebacks of refusals hold the refused message

    def _refusal(self, problem: PrivinfError) -> Sealed:
        self.server.log_lines.refused(str(problem), uid=self.request.uid)
        reply = self.server.site.refused(problem, self.server.name)
        return reply, self.server.envelope.sealed(self._envelope, reply)


def account_of(connection: socket.socket) -> int:
    """Return the account at the other end, as the kernel knows it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    uid: int = CREDENTIALS.unpack(credentials)[1]
    return uid


@dataclass(slots=True, eq=False, kw_only=True)
class Caller:
    """One connection: its account, since when it is there, bytes that it holds, and who waits for whom."""

    connection: socket.socket
    uid: int
    since: float = field(default_factory=time.monotonic)
    buffered: int = 0
    waited_for: bool = True
    called: threading.Event = field(default_factory=threading.Event)


class ConnectionLimits:
    """The connections of a daemon, within limits; and the order of answers, in turn of the accounts.

    Notes
    -----
    The daemon disconnects a caller whom it waits for (for a query, or for the answer to be taken) when
    another one needs the place: of the account that has most, the one that came first. Nobody is in his first
    quarter of a second, and nobody whose query is complete.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._present: set[Caller] = set()
        self._conversations: set[Caller] = set()
        self._waiting: OrderedDict[int, deque[Caller]] = OrderedDict()
        self._answering = False

    def enter(self, caller: Caller) -> bool:
        """Take a caller; return whether there is a place, now or after a moment."""
        end = time.monotonic() + 2.0 * GRACE
        with self._changed:
            while not self._place_for(caller.uid):
                if time.monotonic() >= end:
                    return False
                self._changed.wait(GRACE / 10.0)
            caller.since = time.monotonic()
            self._present.add(caller)
            self._conversations.add(caller)
        return True

    def _place_for(self, uid: int) -> bool:
        """Return whether there is a place, after making one if needed."""
        mine = [caller for caller in self._present if caller.uid == uid]
        if len(mine) >= MOST_OF_ONE:
            return self._hang_up(mine)
        if len(self._present) >= MOST_CALLERS:
            busiest, _ = Counter(caller.uid for caller in self._present).most_common(1)[0]
            return self._hang_up([caller for caller in self._present if caller.uid == busiest])
        return True

    def _hang_up(self, among: list[Caller]) -> bool:
        """Disconnect the first of some callers whom the daemon waits for; return whether there was one."""
        late = time.monotonic() - GRACE
        waited = [caller for caller in among if caller.waited_for and caller.since <= late]
        if not waited:
            return False
        first = min(waited, key=lambda caller: caller.since)
        self._remove(first)
        return True

    def _remove(self, caller: Caller) -> None:
        """Take a caller out; the thread of the conversation notices, and ends."""
        self._present.discard(caller)
        with suppress(OSError):
            caller.connection.shutdown(socket.SHUT_RDWR)

    def hold(self, caller: Caller, size: int) -> bool:
        """Change the number of bytes that a caller holds; return whether there is room for them."""
        needed = size if size > SMALL_BODY else 0
        end = time.monotonic() + 2.0 * GRACE
        with self._changed:
            caller.buffered = 0
            caller.since = time.monotonic()
            caller.waited_for = True
            while sum(present.buffered for present in self._present) + needed > BYTES_HELD:
                if time.monotonic() >= end or caller not in self._present:
                    return False
                if not self._hang_up([present for present in self._present if present.buffered]):
                    self._changed.wait(GRACE / 10.0)
            caller.buffered = needed
            return True

    @contextmanager
    def turn(self, caller: Caller) -> Iterator[None]:
        """Wait until it is this caller's turn to be answered."""
        with self._changed:
            caller.waited_for = False
            self._waiting.setdefault(caller.uid, deque()).append(caller)
            self._call()
        caller.called.wait()
        try:
            yield
        finally:
            with self._changed:
                self._answering = False
                self._call()

    def _call(self) -> None:
        """Start the next answer, if none is running."""
        if self._answering or not self._waiting:
            return
        uid, queue = self._waiting.popitem(last=False)
        self._answering = True
        queue.popleft().called.set()
        if queue:
            self._waiting[uid] = queue  # behind the other accounts

    def leave(self, caller: Caller) -> None:
        """Forget a caller and close the connection."""
        with self._changed:
            self._present.discard(caller)
            self._conversations.discard(caller)
            self._changed.notify_all()
        caller.connection.close()

    def end(self) -> None:
        """Hang up on all whom the daemon waits for, and wait for the others' answers."""
        with self._changed:
            for caller in [caller for caller in self._present if caller.waited_for]:
                self._remove(caller)
            self._changed.wait_for(lambda: not self._conversations)


class _LogLines:
    """A daemon's log: a line of JSON in ASCII for every query, and a limited number of refusals a minute."""

    def __init__(self, site: str) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._minute = 0
        self._refused = 0

    def answered(self, query: Query, reply: Reply, uid: int) -> None:
        """Log a query that reached the site."""
        facts = {"op": query.op, "session": query.session, "sequence": query.sequence, "error": reply.error}
        self._write("answered" if not reply.error else "refused by the site", uid=uid, **facts)

    def failed(self, uid: int, problem: BaseException) -> None:
        """Log an unforeseen error, always."""
        self._write("failed", uid=uid, reason=type(problem).__name__)

    def refused(self, event: str, **facts: Any) -> None:
        """Log a refusal before the site, unless there were too many in this minute."""
        minute = int(time.monotonic() // 60.0)
        with self._lock:
            if minute != self._minute:
                left_out = self._refused - REFUSALS
                self._minute = minute
                self._refused = 0
                if left_out > 0:
                    self._write("further refused connections", count=left_out)
            self._refused += 1
            if self._refused > REFUSALS:
                return
        self._write(event, **facts)

    def _write(self, event: str, **facts: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        log.info("%s", log_line({"time": now, "site": self._site, "event": event, **facts}))


def log_line(facts: Mapping[str, Any]) -> str:
    """Return facts as one line of JSON in ASCII, texts shortened: nothing in it can begin another line."""
    short = {name: value[:LOGGED] if isinstance(value, str) else value for name, value in facts.items()}
    return json.dumps(short, ensure_ascii=True)


def _accounts(uids: Collection[int]) -> frozenset[int]:
    if isinstance(uids, str) or not isinstance(uids, Collection):
        raise ArgumentError("allow_uids= must be a list of user ids, which are integers")
    for uid in uids:
        if isinstance(uid, bool) or not isinstance(uid, Integral) or uid < 0:
            raise ArgumentError(
                f"each user id in allow_uids= must be a whole number of at least 0, got {shown(uid)}"
            )
    return frozenset(map(int, uids))


def _obstacle(problem: OSError | LookupError, group: str | None) -> str:
    """Return why a socket cannot be created and what to do: the end of a sentence."""
    if isinstance(problem, FileExistsError):
        return ", because another daemon uses it; stop that daemon, or pass another path"
    if isinstance(problem, LookupError):
        return f", because this computer has no group {group!r}; pass an existing group, or omit it"
    if problem.errno == errno.EADDRINUSE:
        return ", because a file has this path; pass another path"
    return f" ({problem.strerror}); check its folder and the permissions"


def _clear(path: Path) -> None:
    """Remove the socket of a daemon that is gone."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            with suppress(TimeoutError):
                probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise FileExistsError
