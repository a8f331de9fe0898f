"""Frames that no caller of good will sends to a daemon, by kind (`KINDS`), made of a seed."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi
from privinf.accounting import GaussianLoss, LedgerEntry, Sensitivity
from privinf.federation import Query, Site, SitePolicy
from privinf.federation.frames import HEAD, MAGIC, MOST_HEADER, MOST_VALUES, frame
from privinf.mechanisms.catalogue import SITE_OPS

NAME = "north"
COLUMNS = tuple("abcdefghij")
SCHEMA = pi.Schema({"y": (-3.0, 3.0), **dict.fromkeys(COLUMNS, (-1.0, 1.0))})
DESIGN = pi.Design.from_formula("y ~ " + " + ".join(COLUMNS), SCHEMA)
POLICY = SitePolicy(trusted_server=True)
ARGS = {"columns": list(range(1, 11)), "clip": 1.0, "residual_clip": 1.0, "bits": 30}


def site_of(rows: int) -> Site:
    """Return a site of so many rows and ten columns."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.uniform(-1, 1, (rows, len(COLUMNS))), columns=list(COLUMNS))
    return Site(frame.assign(y=rng.uniform(-3, 3, rows)), SCHEMA, policy=POLICY)


def question(number: int, session: str = "honest") -> Query:
    """Return an honest question, priced as it should be."""
    record_sensitivity = SITE_OPS["clipped_score"].record_sensitivity(ARGS, len(DESIGN.names), 1)
    charge = LedgerEntry(
        mechanism="gaussian",
        label="score",
        unit="record",
        relation="replace-one",
        trust="server",
        sensitivity=Sensitivity("l2", record_sensitivity.l2, "clips"),
        loss=GaussianLoss(1e-3),
        noise={"law": "discrete gaussian", "scale": record_sensitivity.l2 / 1e-3},
        source="lattice",
        secure=True,
        assumptions=("n is public",),
    ).to_dict()
    charge |= {"id": f"{session} {number}", "time": "2026-11-24T00:00:00+00:00"}  # the same every time
    version = SITE_OPS["clipped_score"].version
    return Query(
        "clipped_score",
        args=ARGS,
        version=version,
        design=DESIGN.digest,
        session=session,
        sequence=number,
        charges=(charge,),
    )


def framed(query: Query, to: str = NAME) -> bytes:
    """Return a question as bytes."""
    return b"".join(frame(query.pack(), to=to))


def _raw(head: bytes, body: bytes = b"") -> bytes:
    return HEAD.pack(MAGIC, len(head), len(body)) + head + body


def _header(arrays: Any, body: bytes, text: str = "{}") -> bytes:
    content = text.encode()
    return _raw(json.dumps({"to": NAME, "text": len(content), "arrays": arrays}).encode(), body + content)


def _truncated(rng: Any, kept: bytes) -> bytes:
    return kept[: int(rng.integers(len(kept)))]


def _random(rng: Any, kept: bytes) -> bytes:
    content = rng.bytes(int(rng.integers(1, 5_000)))
    return (
        content if rng.uniform() < 0.3 else HEAD.pack(MAGIC, len(content) // 2, len(content) // 2) + content
    )


def _flipped(rng: Any, kept: bytes) -> bytes:
    """A frame whose head or header was changed: another text may be another question, honestly priced."""
    content, end = bytearray(kept), HEAD.size + HEAD.unpack(kept[: HEAD.size])[1]
    for place in rng.integers(end, size=int(rng.integers(1, 4))):
        content[place] ^= 1 << int(rng.integers(8))
    return bytes(content)


def _quadratic(rng: Any, kept: bytes) -> bytes:
    match int(rng.integers(5)):
        case 0:
            return _header([[f"a{k}", "<f8", [0] * 8] for k in range(1_500)], b"")
        case 1:
            return _header([["a", "<f8", [10**4000] * 8]], b"")
        case 2:
            return _raw(b"[" * (MOST_HEADER - 1))
        case 3:
            return _header([["a", "<f8", [1] * 20_000]], bytes(8))
        case _:
            return _raw(b'{"to": "north", "text": 0, "arrays": [' + b"[]," * 21_000 + b"[]]}")


def _lengths(rng: Any, kept: bytes) -> bytes:
    head = int(rng.choice([0, 1, MOST_HEADER, MOST_HEADER + 1, 2**32 - 1]))
    return HEAD.pack(MAGIC, head, int(rng.choice([0, 2**23 + 1, 2**40, 2**63]))) + bytes(100)


def _replayed(rng: Any, kept: bytes) -> bytes:
    return kept


def _valued(rng: Any, kept: bytes) -> bytes:
    many = MOST_VALUES // 2 - 10 if rng.uniform() < 0.7 else 400_000
    inner = str(rng.choice(["{}", "[]", '{"a":1}', "1e9", '"xy"'])) + ","
    text = '{"op": "describe", "args": {"a": [' + inner * (many // 2) + "1]}}"
    return _header([], b"", text)


def _large(rng: Any, kept: bytes) -> bytes:
    size = int(rng.integers(1, 1 << 20))
    text = json.dumps({"op": "clipped_score", "args": {"clip": 1.0}, "charges": [], "design": DESIGN.digest})
    return _header([["columns", str(rng.choice(["<f8", "<i8"])), [size]]], bytes(8 * size), text)


def _priced(rng: Any, kept: bytes) -> bytes:
    """A question about rows whose price does not cover it."""
    query = question(1, "hostile")
    charge = dict(query.charges[0])
    charge["noise"] = {"scale": 1e-6}
    return framed(query.charged(charge))


def _designed(rng: Any, kept: bytes) -> bytes:
    content = DESIGN.to_dict()
    wide = int(rng.choice([10, 999, 1001, 2000]))
    term = str(rng.choice(["np.exp(a) * b", "a", "(a + b) ** 2", "-" * 40 + "a", "(" * 40 + "a" + ")" * 40]))
    pieces = [{"expression": f"I({term} + {k})"} for k in range(wide)]
    if rng.uniform() < 0.3:
        content["columns"] = [{"name": "x", "pieces": pieces}]
    else:
        content["columns"] = [{"name": f"x{k}", "pieces": [piece]} for k, piece in enumerate(pieces)]
    return framed(Query("design", args={"design": content}))


KINDS: dict[str, tuple[float, Callable[[Any, bytes], bytes]]] = {
    "truncated": (0.25, _truncated),
    "random": (0.2, _random),
    "bits flipped": (0.2, _flipped),
    "quadratic headers": (0.12, _quadratic),
    "huge lengths": (0.12, _lengths),
    "replays": (0.08, _replayed),
    "underpriced": (0.02, _priced),
    "as many values as fit": (0.004, _valued),
    "large bodies": (0.004, _large),
    "large designs": (0.002, _designed),
}


SHARES = np.cumsum([share for share, _ in KINDS.values()]) / sum(share for share, _ in KINDS.values())


def hostile(rng: Any, kept: bytes) -> tuple[str, bytes]:
    """Return one hostile frame and its kind; `kept` is an honest frame that was answered before."""
    kind = list(KINDS)[int(np.searchsorted(SHARES, rng.uniform()))]
    return kind, KINDS[kind][1](rng, kept)


def put(path: str, content: bytes, patience: float = 60.0, wait: float = 0.0) -> bytes:
    """Send bytes to a daemon, wait, and return what comes back until it hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience)
        found = b""
        with contextlib.suppress(OSError):
            connection.connect(path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(content)
            time.sleep(wait)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                found += part
    return found
