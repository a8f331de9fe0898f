"""A site in a process of its own: rows, key and ledger behind a unix socket, away from pushed code.

Messages are lengths, a JSON header with the text, and plain arrays; never a pickle.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import socket
import struct
import threading
import time
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privinf.doors import doors
from privinf.errors import AlignmentError, ArgumentError, StorageError
from privinf.federation.messages import Message, Query, Reply
from privinf.federation.site import NOTHING, Site
from privinf.validation import check_count, check_positive

log = logging.getLogger(__name__)
LONGEST_PATH = 100  # a unix socket's name is part of its address
TICK = 0.1  # seconds until a stop is noticed
MAGIC = b"privinf1"
HEAD = struct.Struct(">8sIQ")  # magic, bytes of the header, bytes of the arrays
ITEM_BYTES = {"|b1": 1, "<i8": 8, "<f8": 8, "<u8": 8}
LARGEST = 1 << 28
CHUNK = 1 << 20
FOREIGN = "the message is not one of privinf"


def frame(message: Message, **header: str) -> list[bytes]:
    """Return a message as bytes, part by part; `header` holds further texts."""
    text, arrays = message
    little = {
        name: np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        for name, array in arrays.items()
    }
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in little.items()]
    head = json.dumps({**header, "text": text, "arrays": shapes}).encode()
    size = sum(array.nbytes for array in little.values())
    return [HEAD.pack(MAGIC, len(head), size), head, *(array.tobytes() for array in little.values())]


def unframe(head: bytes, body: bytes) -> tuple[dict[str, Any], Message]:
    """Return what `frame` wrote, without the lengths: further texts and message; else StorageError."""
    arrays: dict[str, NDArray[Any]] = {}
    start = 0
    try:
        header = json.loads(head)
        text = header.pop("text")
        for name, dtype, shape in header.pop("arrays"):
            if not isinstance(name, str) or name in arrays:
                raise StorageError(FOREIGN)
            if not isinstance(shape, list) or not all(type(one) is int and one >= 0 for one in shape):
                raise StorageError(FOREIGN)
            stop = start + ITEM_BYTES[dtype] * math.prod(shape)
            arrays[name] = _array(body[start:stop], dtype, shape)
            start = stop
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise StorageError(FOREIGN) from None
    if start != len(body) or not all(isinstance(value, str) for value in (text, *header.values())):
        raise StorageError(FOREIGN)
    return header, (text, arrays)


def _array(content: bytes, dtype: str, shape: list[int]) -> NDArray[Any]:
    array: NDArray[Any] = np.frombuffer(content, dtype).reshape(shape)
    # A flag of 2 would count twice in a sum.
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise StorageError(FOREIGN)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def send(connection: socket.socket, message: Message, timeout: float, **header: str) -> None:
    """Send a message within the time; OSError if it is not taken."""
    end = time.monotonic() + timeout
    for part in filter(None, frame(message, **header)):  # who has all hangs up: nothing more may be sent
        connection.settimeout(_left(end))
        connection.sendall(part)


def receive(connection: socket.socket, timeout: float, largest: int) -> tuple[dict[str, Any], Message]:
    """Return a message that arrives within the time: OSError if none does, StorageError if it is no such."""
    end = time.monotonic() + timeout
    magic, head, body = HEAD.unpack(_exactly(connection, HEAD.size, end))
    if magic != MAGIC:
        raise StorageError(FOREIGN)
    if head + body > largest:
        raise StorageError(f"the message is larger than {largest} bytes")
    return unframe(_exactly(connection, head, end), _exactly(connection, body, end))


def _exactly(connection: socket.socket, size: int, end: float) -> bytes:
    received = bytearray()
    while len(received) < size:
        connection.settimeout(_left(end))
        part = connection.recv(min(CHUNK, size - len(received)))
        if not part:
            raise ConnectionResetError("the connection ended")
        received += part
    return bytes(received)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0.0:
        raise TimeoutError("too late")
    return left


@doors
class SiteDaemon:
    """Answers questions to one site at a unix socket, one at a time, until it is stopped.

    Parameters
    ----------
    site : Site
    name : str
        Name of the site; questions to another name are refused.
    path : path
        Where the socket will be, at most 100 bytes long; its folder must exist.
    group : str, optional
        Group of the operating system whose members may ask; by default only the account itself.
    timeout : float
        Seconds that a question may take to arrive, and an answer to be taken.
    largest : int
        Most bytes of a question.

    Raises
    ------
    ArgumentError
        The path is too long or its folder is missing, a file or another daemon is there, or an argument is
        out of range.

    Notes
    -----
    **Privacy.** Adds nothing to what the site answers and charges; what is no question is refused before the
    site sees it. Who may open the socket may ask: run the daemon under an account of its own, which alone
    can read the rows, the key and the ledger, and let code that comes from elsewhere run under another
    account of `group`.

    Examples
    --------
    >>> import tempfile, numpy as np
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
        timeout: float = 30.0,
        largest: int = LARGEST,
    ) -> None:
        if not isinstance(site, Site):
            raise ArgumentError(f"site must be a Site, got {type(site).__name__}")
        if not isinstance(name, str) or not name.strip() or "=" in name:
            raise ArgumentError("a site's name is a non-empty text without '='")
        self._site, self.name = site, name
        self._timeout = check_positive(timeout, "timeout")
        self._largest = check_count(largest, "largest")
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
                with connection:
                    self._converse(connection)
        finally:
            self._close()

    def started(self) -> Self:
        """Serve in a thread of this process, for tests and trials; leaving a ``with`` block stops it."""
        self._thread = threading.Thread(target=self.serve, name=f"site {self.name}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop after the question in hand."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _converse(self, connection: socket.socket) -> None:
        """Take one question and give its answer; a caller who breaks off is let go."""
        try:
            reply = self._answer(receive(connection, self._timeout, self._largest))
        except StorageError as problem:
            reply = self._refusal(problem)
        except OSError:
            log.info("%s: no whole question came", self.name)
            return
        try:
            send(connection, reply.pack(), self._timeout)
        except OSError:
            log.info("%s: the answer was not taken", self.name)

    def _answer(self, message: tuple[dict[str, Any], Message]) -> Reply:
        name, query = _question(message)
        if name != self.name:
            return self._refusal(ArgumentError(f"this is not the site {name!r}"))
        reply = self._site.handle(query, self.name)
        asked, found = ascii(query.op)[1:-1], reply.error or "answered"
        log.info("%s: %s, position %d: %s", self.name, asked, query.sequence, found)
        return reply

    def _refusal(self, problem: Exception) -> Reply:
        log.info("%s: refused", self.name)
        return Reply(self.name, NOTHING, len(self._site), error=f"{type(problem).__name__}: {problem}")

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
        raise TypeError("a daemon holds raw rows: it is not pickled")


@doors
class RemoteSite:
    """The way to a site that a `SiteDaemon` of this machine holds.

    Parameters
    ----------
    path : path
        The daemon's socket.
    timeout : float
        Seconds to wait for an answer.

    Notes
    -----
    **Privacy.** Knows the path and nothing else.
    """

    __slots__ = ("_path", "_timeout")

    def __init__(self, path: str | PathLike[str], *, timeout: float = 60.0) -> None:
        self._path = str(path)
        self._timeout = check_positive(timeout, "timeout")

    def handle(self, query: Query, name: str) -> Reply:
        """Return the answer of the site `name`.

        Raises
        ------
        AlignmentError
            No daemon answers at the path within the time; whether it has charged the question is not known,
            and asking again costs nothing more.
        StorageError
            What came back is no answer.
        """
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout)
                connection.connect(self._path)
                send(connection, query.pack(), self._timeout, to=name)
                _, message = receive(connection, self._timeout, LARGEST)
        except OSError as problem:
            raise AlignmentError(
                f"no answer from the daemon of site {name!r} at {self._path} "
                f"({problem.strerror or 'too late'})"
            ) from None
        return Reply.unpack(*message)

    def __repr__(self) -> str:
        return f"RemoteSite({self._path!r})"


def _question(message: tuple[dict[str, Any], Message]) -> tuple[str, Query]:
    """Return whom the question is for, and the question; StorageError if it is none."""
    header, (text, arrays) = message
    if set(header) != {"to"} or not isinstance(header["to"], str):
        raise StorageError("the message names no site")
    return header["to"], Query.unpack(text, arrays)


def _listening(path: Path, group: str | None) -> socket.socket:
    """Return a listening socket at `path` that nobody could open before its rights were set."""
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise ArgumentError(f"{path}: a socket's path has at most {LONGEST_PATH} bytes")
    if not path.parent.is_dir():
        raise ArgumentError(f"{path.parent} is no folder: make it before the daemon's socket is put there")
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear(path)
        found.bind(str(path))
        os.chmod(path, 0o600 if group is None else 0o660)
        if group is not None:
            shutil.chown(path, group=group)
        found.listen()
    except (OSError, LookupError) as problem:
        found.close()
        raise ArgumentError(f"no socket can be put at {path} ({problem})") from None
    return found


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
    raise FileExistsError("another daemon is there: stop it first")
