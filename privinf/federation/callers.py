"""Connections of a daemon: limits by account, and the order of service."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

MOST_CALLERS = 64  # connections at a time
MOST_OF_ONE = 48  # connections of one account at a time
BYTES_HELD = 1 << 24  # bytes of bodies and replies that are under way together
SMALL_BODY = 1 << 16  # bytes of a body up to which it is not counted
GRACE = 0.25  # seconds in which a connection is not closed to make place for another one
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


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
    worker: threading.Thread | None = None
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
        self._waiting: OrderedDict[int, deque[Caller]] = OrderedDict()
        self._answering = False

    def enter(self, connection: socket.socket, uid: int) -> Caller | None:
        """Take a caller, None if there is no place even after a moment."""
        end = time.monotonic() + 2.0 * GRACE
        with self._changed:
            while not self._place_for(uid):
                if time.monotonic() >= end:
                    return None
                self._changed.wait(GRACE / 10.0)
            caller = Caller(connection=connection, uid=uid)
            self._present.add(caller)
        return caller

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
        """Take a caller out; his worker notices, and ends."""
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
            self._changed.notify_all()
        caller.connection.close()

    def end(self) -> None:
        """Hang up on all whom the daemon waits for, and wait for the others' answers."""
        with self._changed:
            present = list(self._present)
            for caller in present:
                if caller.waited_for:
                    self._remove(caller)
        for caller in present:
            if caller.worker is not None:
                caller.worker.join()
