"""A site in a process of its own: rows, key and ledger behind a unix socket, away from pushed code.

Anyone who may open the socket may send any bytes (`frames` defines a frame). A worker reads each
caller's query; answers are computed one at a time, in turn of the callers' accounts (`callers`).
"""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, Self

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, StorageError
from privinf.federation.callers import SMALL_BODY, Caller, ConnectionLimits, account_of
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


@error_boundaries
class SiteDaemon:
    """Daemon that answers queries to one site at a unix socket.

    Parameters
    ----------
    site : Site
        The site that answers.
    name : str
        Name of the site; queries to another name are refused.
    path : path
        Path of the socket, at most 100 bytes long; its folder must exist.
    group : str, optional
        Group of the operating system whose members may query; by default only the account itself.
    allow_uids : collection of int, optional
        Accounts, by number, that may query; by default all that can open the socket. The list only restricts
        access; it does not change the rights of the socket.
    timeout : float
        Largest number of seconds for a query to arrive, and for a reply to be received.
    largest : int
        Largest number of bytes of a query.

    Raises
    ------
    ArgumentError
        The path is too long or its folder is missing, a file or another daemon is there, or an argument is
        out of range.

    Notes
    -----
    **Privacy.** The site decides on answers and charges; the daemon refuses messages that are not queries.
    Every account that may open the socket may query. Run the daemon under a separate account, which alone can
    read the rows, the key and the ledger, and run foreign code under another account of `group`. If the
    policy of the site lists analysts, queries that none of them signed are refused by their header. Replies
    are signed where the site has a key and a roster with verifying keys (`envelope`).

    **Limits.** 64 connections at the same time, 48 from one account; beyond these the connection that has
    waited longest is closed. A header has at most 64 KiB and must arrive within 5 seconds. A query has at
    most 8 MiB, with a text of 4 MiB and 131,072 values. Queries and replies in transit have at most 16 MiB
    together. Accounts are answered in turn, however many queries one of them has. Log lines are JSON in
    ASCII, with at most 100 characters from a client, and at most 100 refusals per minute.

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
        self._site = site
        self.name = name
        self._end = SiteEnvelope(site, name)
        self._timeout = check_positive(timeout, "timeout")
        self._largest = check_count(largest, "largest")
        self._allowed = None if allow_uids is None else _accounts(allow_uids)
        self._callers = ConnectionLimits()
        self._journal = _LogLines(name)
        self._answerer = ThreadPoolExecutor(1, f"answers of {name}")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.path = Path(path).absolute()
        self._socket = _listening(self.path, group)
        self._inode = self.path.stat().st_ino

    def serve(self) -> None:
        """Answer until `stop` is called from another thread or a signal's handler; then remove the socket."""
        self._socket.settimeout(TICK)
        try:
            while not self._stopping.is_set():
                try:
                    connection, _ = self._socket.accept()
                except TimeoutError:
                    continue
                except OSError as problem:  # such as no more descriptors
                    self._journal.refused("no connection can be accepted", reason=problem.strerror or "")
                    self._stopping.wait(TICK)
                    continue
                self._take(connection)
        finally:
            self._close()
            self._callers.end()
            self._answerer.shutdown()

    def started(self) -> Self:
        """Serve in a thread of this process, for tests; the end of a ``with`` block stops it."""
        self._thread = threading.Thread(target=self.serve, name=f"site {self.name}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop after the current query."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _take(self, connection: socket.socket) -> None:
        """Give a caller a worker, unless the account may not query or has too many workers already."""
        uid = account_of(connection)
        if self._allowed is not None and uid not in self._allowed:
            self._journal.refused("account not in allow_uids", uid=uid)
            connection.close()
            return
        caller = self._callers.enter(connection, uid)
        if caller is None:
            self._journal.refused("too many connections", uid=uid)
            connection.close()
            return
        worker = threading.Thread(target=self._converse, args=(caller,), name=f"caller of {self.name}")
        caller.worker = worker
        worker.daemon = True
        try:
            worker.start()
        except RuntimeError:  # no more threads
            caller.worker = None
            self._callers.leave(caller)

    def _converse(self, caller: Caller) -> None:
        """Read one query and send its answer; a caller who disconnects is dropped."""
        try:
            reply, seal = self._heard(caller)
            send(caller.connection, reply.pack(), self._timeout, **seal)
        except OSError:
            self._journal.refused("hung up", uid=caller.uid)
        except Exception as problem:  # a worker must not end without a word
            self._journal.failed(caller.uid, problem)
        finally:
            self._callers.leave(caller)

    def _heard(self, caller: Caller) -> tuple[Reply, dict[str, str]]:
        """Return the reply to a caller's message, and its envelope; OSError if the caller disconnects."""
        end = time.monotonic() + self._timeout
        envelope = Envelope()
        try:
            first = min(end, time.monotonic() + PATIENCE)
            header = receive_header(caller.connection, first, self._largest, MOST_TEXT_BYTES)
            envelope = self._envelope(header)
            self._end.admitted(envelope)
            if not self._callers.hold(caller, header.size):
                return self._refusal(
                    StorageError("the site's daemon is too busy; send the query again later"),
                    caller,
                    envelope,
                )
            body = receive_body(caller.connection, header, end)
            check_values(header, body)
            with self._callers.turn(caller):
                reply, seal = self._answerer.submit(self._answer, header, body, caller, envelope).result()
                del body
        except (ArgumentError, NotAvailableError, StorageError) as problem:
            return self._refusal(problem, caller, envelope)
        if not self._callers.hold(caller, reply.sums.nbytes + reply.masked.nbytes):
            raise ConnectionAbortedError("the site's daemon has too little memory for the reply")
        return reply, seal

    def _envelope(self, header: Header) -> Envelope:
        """Return the envelope of a query; queries to other sites are refused before the body is read."""
        to = header.fields.get("to")
        if to is None:
            raise StorageError("the message must name the site to which it is sent")
        if to != self.name:
            raise ArgumentError(
                f"the message was sent to site {to[:LOGGED]!r}, but another site received it; check "
                "which socket belongs to which site"
            )
        return Envelope.from_fields({name: text for name, text in header.fields.items() if name != "to"})

    def _answer(
        self, header: Header, body: Body, caller: Caller, envelope: Envelope
    ) -> tuple[Reply, dict[str, str]]:
        """Answer, in the one thread of answers: memory that others have had is not kept for each of them."""
        try:
            query = Query.unpack(*unframe(header, body))
            reply, seal = self._end.answer(envelope, query)
            self._journal.answered(query, reply, caller.uid)
            return reply, seal
        finally:
            if header.size > SMALL_BODY:
                gc.collect(1)  # tracebacks of refusals hold the refused message

    def _refusal(
        self, problem: PrivinfError, caller: Caller, envelope: Envelope
    ) -> tuple[Reply, dict[str, str]]:
        self._journal.refused(str(problem), uid=caller.uid)
        reply = self._site.refused(problem, self.name)
        return reply, self._end.sealed(envelope, reply)

    def _close(self) -> None:
        self._socket.close()
        if self.path.exists() and self.path.stat().st_ino == self._inode:
            self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._close()

    def __repr__(self) -> str:
        return f"<SiteDaemon of site {self.name!r} at {self.path}>"

    def __reduce__(self) -> Any:
        raise TypeError("a daemon holds raw rows and cannot be pickled")


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

    def failed(self, uid: int, problem: Exception) -> None:
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


def _listening(path: Path, group: str | None) -> socket.socket:
    """Return a listening socket at `path` that was closed to others until its permissions were set."""
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise ArgumentError(
            f"the socket's path {path} is too long; choose a path of at most {LONGEST_PATH} bytes"
        )
    if not path.parent.is_dir():
        raise ArgumentError(f"the folder of the daemon's socket, {path.parent}, does not exist; create it")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear(path)
        server.bind(str(path))
        os.chmod(path, 0o600 if group is None else 0o660)
        if group is not None:
            shutil.chown(path, group=group)
        server.listen()
    except (OSError, LookupError) as problem:
        server.close()
        reason = getattr(problem, "strerror", None) or problem
        raise ArgumentError(f"the socket {path} cannot be created ({reason})") from None
    return server


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
    raise FileExistsError("another daemon uses this socket; stop that daemon first")
