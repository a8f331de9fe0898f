"""Frames: encoding of messages for a socket. A small header comes first and describes the body.

    magic, bytes of the header, bytes of the body | JSON header | arrays, then the text

The header names the site, the length of the text, and the kind and shape of every array. It is checked in
one pass, against limits and against the size of the body, before a byte of the body is read. Never a pickle.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from mmap import mmap
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privinf.errors import ArgumentError, StorageError
from privinf.federation.messages import Message
from privinf.wire import Keys

MAGIC = Keys.FRAME
HEAD = struct.Struct(">8sIQ")  # magic, bytes of the header, bytes of the body
ITEM_BYTES = {"|b1": 1, "<i8": 8, "<f8": 8, "<u8": 8}
CHUNK = 1 << 20  # bytes up to which the parts of a message are sent as one
PAGED = 1 << 16  # bytes from which on a body has pages of its own
MOST_HEADER = 1 << 16  # bytes of a header
MOST_SIGNS = 2_000  # values in a header
MOST_ARRAYS = 64  # arrays of a header
MOST_NAME = 1_000  # characters of a name, or of a further text, in a header
MOST_DIMENSIONS = 8  # of an array
# Bytes of a query's text: the objects that Python makes of it need about fifty times as many.
MOST_TEXT_BYTES = 1 << 22
MOST_VALUES = 1 << 17  # values in a query's text
LARGEST = 1 << 28  # bytes of a reply's body
Body: TypeAlias = bytes | bytearray | mmap
FOREIGN = "the message was cut or changed on the way, or was not written by privinf; send it again"


@dataclass(frozen=True, slots=True)
class Header:
    """Contents of a header.

    Attributes
    ----------
    fields : mapping of str to str
        Further texts, such as the name of the site.
    text : int
        Bytes of the text.
    arrays : tuple of (str, str, tuple of int)
        Name, kind and shape of every array, in their order.
    size : int
        Bytes of the body.
    """

    fields: Mapping[str, str]
    text: int
    arrays: tuple[tuple[str, str, tuple[int, ...]], ...]
    size: int


def frame(message: Message, **fields: str) -> list[bytes]:
    """Return a message as bytes, part by part; `fields` holds further texts.

    Raises
    ------
    ArgumentError
        It has more arrays, or longer names, than a header holds.
    """
    text, arrays = message
    little = {
        name: np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        for name, array in arrays.items()
    }
    content = text.encode()
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in little.items()]
    head = json.dumps({**fields, "text": len(content), "arrays": shapes}).encode()
    if len(head) > MOST_HEADER or len(arrays) > MOST_ARRAYS:
        raise ArgumentError(f"a message can have at most {MOST_ARRAYS} arrays, with short names")
    size = len(content) + sum(array.nbytes for array in little.values())
    return [HEAD.pack(MAGIC, len(head), size), head, *(array.tobytes() for array in little.values()), content]


def read_header(content: bytes, size: int) -> Header:
    """Return the parsed header of a body of `size` bytes; StorageError if it does not fit."""
    if _signs(content) > MOST_SIGNS:
        raise StorageError(FOREIGN)
    try:
        fields = json.loads(content)
        text = fields.pop("text")
        arrays = fields.pop("arrays")
        if len(arrays) <= MOST_ARRAYS and _short(fields) and _is_count(text, size):
            listed = tuple((name, kind, tuple(shape)) for name, kind, shape in arrays)
            if len({name for name, _, _ in listed}) == len(listed):
                total = text + sum(_bytes(*array, size) for array in listed)
                if total == size and isinstance(arrays, list):
                    return Header(fields, text, listed, size)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        pass
    raise StorageError(FOREIGN)


def _short(fields: Mapping[str, Any]) -> bool:
    return all(isinstance(text, str) and len(text) <= MOST_NAME for pair in fields.items() for text in pair)


def _is_count(number: Any, limit: int) -> bool:
    return type(number) is int and 0 <= number <= limit


def _bytes(name: Any, kind: Any, shape: tuple[Any, ...], limit: int) -> int:
    """Return the bytes of an array; ValueError if they are more than `limit`, or it is none."""
    if not isinstance(name, str) or len(name) > MOST_NAME or len(shape) > MOST_DIMENSIONS:
        raise ValueError
    count = ITEM_BYTES[kind]
    for length in sorted(shape):
        if not _is_count(length, limit) or count > limit:
            raise ValueError
        count *= length
    return count


def unframe(header: Header, body: Body) -> Message:
    """Return the message whose header and body these are; StorageError if it is none."""
    arrays: dict[str, NDArray[Any]] = {}
    view = memoryview(body)
    start = 0
    try:
        for name, kind, shape in header.arrays:
            stop = start + _bytes(name, kind, shape, header.size)
            arrays[name] = _array(view[start:stop], kind, shape)
            start = stop
        return str(view[start:], "utf-8"), arrays
    except ValueError:
        raise StorageError(FOREIGN) from None


def _array(content: memoryview, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
    array: NDArray[Any] = np.frombuffer(content, kind).reshape(shape)
    # A flag of 2 would count twice in a sum.
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ValueError
    return np.require(array.astype(array.dtype.newbyteorder("="), copy=False), requirements="A")


def check_values(header: Header, body: Body) -> None:
    """Raise StorageError if the text of a body has more values than a query needs."""
    text = memoryview(body)[header.size - header.text :]
    # Piece by piece: a worker's copy of a whole text would stay in its thread's memory.
    if sum(_signs(bytes(text[at : at + PAGED])) for at in range(0, len(text), PAGED)) > MOST_VALUES:
        raise StorageError(
            f"a query or reply contains more than {MOST_VALUES} values, the largest number allowed: "
            "use fewer columns"
        )


def _signs(text: bytes) -> int:
    """Return how many values a JSON text has at most."""
    return sum(text.count(sign) for sign in (b",", b"[", b"{"))


def send(connection: socket.socket, message: Message, timeout: float, **fields: str) -> None:
    """Send a message within the time; OSError if it is not taken."""
    end = time.monotonic() + timeout
    parts = frame(message, **fields)
    if sum(map(len, parts)) <= CHUNK:
        parts = [b"".join(parts)]
    for part in filter(None, parts):  # a complete message ends the connection: nothing more may be sent
        connection.settimeout(_seconds_left(end))
        connection.sendall(part)


def receive(connection: socket.socket, timeout: float, largest: int) -> tuple[Mapping[str, str], Message]:
    """Return a message that arrives within the time: OSError if none does, StorageError if it is not one."""
    end = time.monotonic() + timeout
    header = receive_header(connection, end, largest)
    return header.fields, unframe(header, receive_body(connection, header, end))


def receive_header(connection: socket.socket, end: float, largest: int, most_text: int = LARGEST) -> Header:
    """Return a header that arrives until `end`; OSError, StorageError as for `receive`."""
    magic, head, body = HEAD.unpack(_exactly(connection, HEAD.size, end))
    if magic != MAGIC:
        raise StorageError(FOREIGN)
    if head > MOST_HEADER:
        raise StorageError(
            f"the header of the message is larger than {MOST_HEADER} bytes, the largest size allowed: use "
            "fewer arrays in the query"
        )
    if body > largest:
        raise StorageError(f"the message is larger than {largest} bytes, the largest size allowed")
    header = read_header(bytes(_exactly(connection, head, end)), body)
    if header.text > most_text:
        raise StorageError(
            f"the text of the message is larger than {most_text} bytes, the largest size allowed"
        )
    return header


def receive_body(connection: socket.socket, header: Header, end: float) -> Body:
    """Return the body that a header has announced, if it arrives until `end`; else OSError."""
    return _exactly(connection, header.size, end)


def _exactly(connection: socket.socket, size: int, end: float) -> Body:
    """Return a buffer; large ones have pages of their own, which are returned to the system when freed."""
    if size == 0:
        return bytearray()
    received: Body = bytearray(size) if size <= PAGED else mmap(-1, size)
    position = 0
    with memoryview(received) as view:
        while position < size:
            connection.settimeout(_seconds_left(end))
            part = connection.recv_into(view[position:])
            if not part:
                raise ConnectionResetError("the connection ended")
            position += part
    return received


def _seconds_left(end: float) -> float:
    seconds = end - time.monotonic()
    if seconds <= 0.0:
        raise TimeoutError("too late")
    return seconds
