"""Messages as bytes, for streams: lengths, a JSON header with the text, plain arrays; never a pickle."""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privinf.errors import StorageError
from privinf.federation.messages import Message

MAGIC = b"privinf1"
HEAD = struct.Struct(">8sIQ")  # magic, bytes of the header, bytes of the arrays
ITEM_BYTES = {"|b1": 1, "<i8": 8, "<f8": 8, "<u8": 8}
LARGEST = 1 << 28
CHUNK = 1 << 20
FOREIGN = "the message is not one of privinf"


def frame(message: Message, **header: str) -> list[bytes]:
    """Return a message as bytes, part by part; `header` holds further texts."""
    text, arrays = message
    little = {name: _little(array) for name, array in arrays.items()}
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in little.items()]
    head = json.dumps({**header, "text": text, "arrays": shapes}).encode()
    size = sum(array.nbytes for array in little.values())
    return [HEAD.pack(MAGIC, len(head), size), head, *(array.tobytes() for array in little.values())]


def unframe(head: bytes, body: bytes) -> tuple[dict[str, Any], Message]:
    """Return what `frame` wrote, without the lengths: the further texts, and the message.

    Raises
    ------
    StorageError
        The bytes are not that.
    """
    arrays: dict[str, NDArray[Any]] = {}
    start = 0
    try:
        header = json.loads(head)
        text = header.pop("text")
        for name, dtype, shape in header.pop("arrays"):
            if not isinstance(name, str) or name in arrays:
                raise StorageError(FOREIGN)
            stop = start + ITEM_BYTES[dtype] * math.prod(_lengths(shape))
            arrays[name] = _array(body[start:stop], dtype, shape)
            start = stop
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise StorageError(FOREIGN) from None
    if start != len(body) or not all(isinstance(value, str) for value in (text, *header.values())):
        raise StorageError(FOREIGN)
    return header, (text, arrays)


def _little(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _lengths(shape: Any) -> list[int]:
    if not isinstance(shape, list) or not all(type(length) is int and length >= 0 for length in shape):
        raise StorageError(FOREIGN)
    return shape


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
