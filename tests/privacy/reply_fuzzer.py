"""A fuzzer of replies: whatever a site sends, its analyst gets an error that names it, or a release.

Honest replies are changed on their way (`Mutator`): in the message, so that `Reply.unpack` reads it as a
transport does, or in the object that a transport hands over. Every change is one that no honest site makes,
so that each must end in an error of this package which says the site's name; a number that comes out is a
finding, and so is any other exception.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privinf import errors
from privinf.errors import PrivinfError, UnforeseenError
from privinf.federation import (
    InProcessFederation,
    Query,
    Reply,
    SecureServer,
    Site,
    SitePolicy,
    TrustedServer,
    pinned_keys,
)
from privinf.federation.sockets import reply_of
from privinf.schema import Design

NAMES = ("south", "north", "west")  # the first site's design is the one that is used
BAD = "south"
ROWS = 40
DESIGN = Design.from_arrays(["a", "b"], bounds=[(-1.0, 1.0)] * 2, y_bounds=(-2.0, 2.0))
OTHER = Design.from_arrays(["a", "c"], bounds=[(-1.0, 1.0)] * 2, y_bounds=(-2.0, 2.0))
ARGS = {"columns": [0, 1], "clip": 1.0, "residual_clip": 1.0}
POLICY = SitePolicy(trusted_server=True, secure_sums=True, simulation=True)
JUNK: tuple[Any, ...] = (
    None,
    True,
    "x",
    "",
    -1,
    3,
    0,
    2**70,
    1.5,
    math.nan,
    [],
    {},
    [1, [2]],
    {"a": None},
    "\x1b[2J",
)


def sites_of(names: tuple[str, ...] = NAMES) -> dict[str, Site]:
    """Return new sites."""
    keys, roster = pinned_keys(names)
    rng = np.random.default_rng(3)
    return {
        name: Site(
            (rng.uniform(-1, 1, ROWS), rng.uniform(-1, 1, (ROWS, 2))),
            DESIGN,
            policy=POLICY,
            key=keys[name],
            roster=roster,
        )
        for name in names
    }


class Bent(InProcessFederation):
    """A federation in which one site's replies of one kind are changed on their way."""

    def __init__(self, sites: dict[str, Site], change: Any, *, described: bool) -> None:
        super().__init__(sites)
        self.change, self.described, self.changed = change, described, 0

    def ask(self, query: Query, sites: Any = None) -> list[Reply]:
        """Ask, and change."""
        replies = super().ask(query, sites)
        if (query.op in ("describe", "design")) != self.described:
            return replies
        self.changed += 1
        return [one for reply in replies for one in (self.change(reply) if reply.site == BAD else [reply])]


@dataclass
class Findings:
    """What a run has found; the lists are empty if nothing is wrong."""

    foreign: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    asked: int = 0

    def __bool__(self) -> bool:
        return bool(self.foreign or self.used or self.unnamed)


class Mutator:
    """Changes that no honest site makes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, values: Any) -> Any:
        """Return one of some values."""
        return values[int(self.rng.integers(len(values)))]

    def changed(self, reply: Reply, *, described: bool, masked: bool) -> tuple[str, list[Reply]]:
        """Return what was done, and what arrives in place of a reply."""
        text, arrays = reply.pack()
        header, arrays = json.loads(text), dict(arrays)
        ways = [self._header, self._rows, self._text, self._arrays, self._error, self._twice, self._object]
        told, arrived = self.one([*ways, *[self._facts] * 5] if described else [*ways, *[self._sums] * 3])(
            header, arrays, reply, masked
        )
        if arrived is None:
            arrived = [reply_of((json.dumps(header), arrays), BAD)]
        return told, arrived

    def _header(self, header: Any, arrays: Any, reply: Reply, masked: bool) -> Any:
        name = self.one(("site", "facts", "error", "more"))
        value = self.one([one for one in JUNK if (one != "" and one != {}) or name == "more"])
        header[name] = value
        if name == "facts" and isinstance(value, dict) and not reply.facts:
            header[name] = [value]
        return f"{name} = {value!r}", None

    def _rows(self, header: Any, arrays: Any, reply: Reply, masked: bool) -> Any:
        described = bool(reply.facts)
        values = [0, -1, True, "x", None, 1.5, 2**49, 2**80, [ROWS], {}] + (
            [] if described else [1, ROWS + 1]
        )
        header["rows"] = self.one(values)
        return f"rows = {header['rows']!r}", None

    def _text(self, header: Any, arrays: Any, reply: Reply, masked: bool) -> Any:
        text = self.one(
            ("", "null", "[]", "3", "{", "[" * 5000, '{"a": ' * 5000, "{}", '{"site": "south"}', "\x00")
        )
        return f"text {text[:20]!r}", [reply_of((text, arrays), BAD)]

    def _arrays(self, header: Any, arrays: Any, reply: Reply, masked: bool) -> Any:
        what = int(self.rng.integers(4))
        if what == 0:
            arrays.pop("sums")
        elif what == 1:
            arrays["more"] = np.zeros(3)
        elif what == 2:
            arrays["sums"] = self.one(
                (np.zeros(2, dtype=np.int64), np.array([True]), np.zeros(1, dtype="U2"))
            )
        else:
            arrays["masked"] = self.one((np.zeros(2), np.zeros(2, dtype=np.int64)))
        return f"arrays {what}", None

    def _error(self, header: Any, arrays: Any, reply: Reply, masked: bool) -> Any:
        kind = self.one(
            [*vars(errors), "KeyError", "SystemExit", "BaseException", "", "x" * 5000, "__name__"]
        )
        header["error"] = f"{kind}: \x1b]0;owned\x07 {'y' * int(self.rng.integers(5000))}"
        return f"error {kind[:20]}", None

    def _twice(self, header: Any, arrays: Any, reply: Reply, masked: bool) -> Any:
        if self.rng.uniform() < 0.5:
            return "twice", [reply, reply]
        other = Reply(
            site="mallory" + BAD, sums=reply.sums, rows=reply.rows, facts=reply.facts, masked=reply.masked
        )
        return "another's too", [reply, other]

    def _object(self, header: Any, arrays: Any, reply: Reply, masked: bool) -> Any:
        value = self.one((None, "south", 3, {"site": BAD}, [reply], object()))
        return f"a {type(value).__name__}", [value]

    def _facts(self, header: Any, arrays: Any, reply: Reply, masked: bool) -> Any:
        facts = header["facts"]
        before = json.dumps(facts, sort_keys=True)
        told = self._bent_facts(facts, masked)
        if before == json.dumps(facts, sort_keys=True):
            facts["digest"] = None
        return told, None

    def _bent_facts(self, facts: Any, masked: bool) -> str:
        match int(self.rng.integers(5)):
            case 0:
                name = self.one(("version", "design", "digest", "schema", "roster"))
                facts[name] = self.one([one for one in JUNK if one is not None])
                if name == "roster" and isinstance(facts[name], str) and not masked:
                    facts["digest"] = None  # a trusted server has no use for the roster
            case 1:
                name = self.one(("version", "design", "digest", "schema"))
                del facts[name]
            case 2:
                facts |= {"design": OTHER.to_dict(), "digest": self.one((OTHER.digest, DESIGN.digest))}
            case 3:
                facts["design"]["columns"] = self.one(JUNK)
            case _:
                name = self.one(sorted(facts["design"]))
                facts["design"][name] = self.one([one for one in JUNK if one is not None])
                facts["digest"] = "0" * 64
                return f"design's {name} = {facts['design'][name]!r}"
        return f"facts { ({n: facts.get(n, 'gone') for n in ('version', 'digest', 'schema', 'roster')}) }"

    def _sums(self, header: Any, arrays: Any, reply: Reply, masked: bool) -> Any:
        name = "masked" if masked else "sums"
        array = arrays[name]
        bad = [
            array[:-1],
            np.concatenate([array] * 2),
            array.reshape(1, -1),
            array[:0],
            array.astype("U8"),
            array.astype(np.float32),
            np.zeros(array.shape, dtype=complex),
        ]
        if masked:
            bad += [array.view(np.int64), array.astype(np.float64)]
        else:
            bad += [
                np.where(np.arange(array.size) == 1, one, array)
                for one in (math.nan, math.inf, -math.inf, 1e300, -1e4, 2.0 * ROWS)
            ]
        arrays[name] = self.one(bad)
        if self.rng.uniform() < 0.5:
            return f"{name} {arrays[name].dtype} {arrays[name].shape}", None
        bent = Reply(
            site=reply.site, sums=arrays["sums"], rows=reply.rows, masked=arrays.get("masked", reply.masked)
        )
        return f"{name} of an object", [bent]


def fuzz(count: int, seed: int) -> Findings:
    """Ask a federation `count` times, one of whose sites sends what no site sends."""
    mutator, found = Mutator(seed), Findings()
    sites = sites_of()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(count):
            _once(sites, mutator, found, masked=bool(number % 2), described=number % 5 == 0)
    return found


def _once(
    sites: dict[str, Site], mutator: Mutator, found: Findings, *, masked: bool, described: bool
) -> None:
    told = ""

    def change(reply: Reply) -> Any:
        nonlocal told
        told, arrived = mutator.changed(reply, described=described, masked=masked)
        return arrived

    try:
        server = (SecureServer if masked else TrustedServer)(Bent(sites, change, described=described), rng=0)
        server.vector_sum("clipped_score", ARGS, mu=1.0, label="score")
    except PrivinfError as error:
        found.refused[type(error).__name__] += 1
        text = str(error)
        if isinstance(error, UnforeseenError):
            found.foreign.append(f"{told}: {error}")
        elif BAD not in text or len(text) > 3_000 or not text.isprintable():
            found.unnamed.append(f"{told}: {text[:200]}")
    except BaseException as error:
        found.foreign.append(f"{told}: {type(error).__name__}")
    else:
        found.used.append(told)
    found.asked += 1
