"""A fuzzer of arguments: valid calls of every public function with one or two arguments changed.

What may come: a result, an error of the tree, bare; Python's own TypeError for a call that does not fit its
signature; MemoryError. Nothing may hold a value of a row, hang, or be refused after it was paid for.
"""

from __future__ import annotations

import datetime
import re
import signal
import tempfile
import time
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from argument_corpus import CASES, CELL, LABEL, SCHEMA, Case, World, result, table
from support.speed import slowness

import privinf as pi
from privinf.errors import PrivinfError, PrivinfWarning, UnforeseenError

LONGEST = 2.0  # seconds of processor time
TOLD = re.compile(r"76543|6543\.?21|sentinel", re.IGNORECASE)
MISFIT = re.compile(
    r"unexpected keyword|required (positional|keyword)|positional argument|multiple values|must be strings"
)


class Evil:
    """An argument whose conversions raise, with a value in their texts."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    def _raise(self, kind: str) -> Any:
        if kind in self.kinds:
            raise ValueError(f"{CELL} {LABEL}")
        raise TypeError(f"no {kind} of {LABEL}")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._raise("array")

    def __float__(self) -> float:
        return self._raise("float")

    def __iter__(self) -> Iterator[Any]:
        return self._raise("iter")

    def __len__(self) -> int:
        return self._raise("len")

    def __bool__(self) -> bool:
        if "bool" in self.kinds:
            raise ValueError(f"{CELL} {LABEL}")
        return True

    def __eq__(self, other: object) -> bool:
        if "eq" in self.kinds:
            raise ValueError(f"{CELL} {LABEL}")
        return self is other

    def __hash__(self) -> int:
        if "hash" in self.kinds:
            raise ValueError(f"{CELL} {LABEL}")
        return 7

    def __repr__(self) -> str:
        if "repr" in self.kinds:
            raise ValueError(f"{CELL} {LABEL}")
        return LABEL


@cache
def nested() -> Any:
    """Return a list in a list, many times."""
    deep: Any = []
    for _ in range(3000):
        deep = [deep]
    return deep


def plain(world: World) -> list[Any]:
    """Return arguments of the wrong kind, range or type."""
    return [
        None,
        np.nan,
        np.inf,
        -np.inf,
        -1,
        0,
        1,
        2,
        3,
        0.0,
        -0.0,
        0.5,
        1.0,
        -2.5,
        1e308,
        -1e308,
        5e-324,
        1e-300,
        10**400,
        -(10**400),
        2**31,
        2**63,
        2**64,
        True,
        False,
        3 + 1j,
        "",
        " ",
        "a",
        "y",
        "é\u0000\ud800",
        "nan",
        "1e5",
        "auto",
        "data",
        "x" * 5000,
        b"",
        b"bytes",
        bytearray(b"a"),
        Decimal("NaN"),
        Decimal(2),
        Fraction(1, 3),
        np.float64("nan"),
        np.float32(0.5),
        np.int64(3),
        np.bool_(True),
        np.str_("a"),
        np.datetime64("2020-01-01"),
        np.longdouble(10) ** 4000,
        datetime.date(2020, 1, 1),
        object(),
        object,
        float,
        len,
        lambda *_: None,
        (item for item in (1, 2)),
        range(3),
        slice(2),
        ...,
        NotImplemented,
        Evil(),
        Evil("array"),
        Evil("float"),
        Evil("iter"),
        Evil("len"),
        Evil("bool"),
        Evil("eq"),
        Evil("hash"),
        Evil("repr"),
        nested(),
        [],
        (),
        {},
        set(),
        [None],
        ["a"],
        ["a", "a"],
        [1, 2, 3],
        [[1, 2], [3]],
        [np.nan],
        [LABEL],
        {"a": 1},
        {1: 2},
        {"a": None},
        {"a": (0, 1)},
        {"a": (1, 0)},
        {"a": (0, np.nan)},
        {"a": (-1e308, 1e308)},
        {"one": ["a"]},
        [(0, 1)],
        [(0, 1)] * 3,
        [(0, "1")],
        (0, 1),
        (1, 0),
        (0, np.inf),
        frozenset({"a"}),
        types.SimpleNamespace(),
        memoryview(b"abc"),
        Path("nowhere"),
        Path("/"),
        "/dev/null",
        np,
        pi,
        pi.Budget(mu=1.0),
        pi.Ledger,
        SCHEMA,
        world.ledger.entries,
        result(),
        result().release,
        table().iterrows(),
        *tables(),
        *arrays(),
    ]


@cache
def arrays() -> list[Any]:
    """Return arrays of the wrong type, shape or content."""
    matrix = table()[["a", "b"]].to_numpy()
    return [
        np.empty(0),
        np.empty((0, 2)),
        np.array(CELL),
        matrix,
        matrix[:, 0],
        matrix[:5],
        matrix.T,
        matrix[None],
        -matrix,
        matrix.astype(str),
        matrix.astype(object),
        matrix.astype(complex),
        matrix.astype(np.float32),
        matrix > 0.5,
        np.where(matrix > 0.5, np.nan, matrix),
        np.where(matrix > 0.5, np.inf, matrix),
        matrix * 1e308,
        (matrix * 1e7).astype(int),
        np.ma.masked_array(matrix, matrix > 0.5),
        matrix[:, 0].astype("datetime64[s]"),
        np.array(["a", None, CELL], dtype=object),
        np.zeros(3, dtype=[("a", float)]),
        np.asfortranarray(matrix)[::2],
        matrix.tolist(),
        matrix[:, 0].tolist(),
        np.full((2, 2), LABEL),
        np.eye(3),
        np.zeros(3),
        np.ones((3, 3)),
        np.array([[1e300, 1e300], [1e300, 1e300]]),
    ]


@cache
def tables() -> list[Any]:
    """Return tables with defects."""
    good = table()
    texts = good.astype({"a": object})
    texts.loc[3, "a"] = LABEL
    levels = good.copy()
    levels.loc[2, "g"] = LABEL
    gaps = good.copy()
    gaps.loc[1, "a"] = np.nan
    endless = good.copy()
    endless.loc[4, ["a", "y"]] = np.inf, -np.inf
    twice = pd.concat([good, good[["a"]]], axis=1)
    several = good.copy()
    several.columns = pd.MultiIndex.from_product([["x"], good.columns])
    nulls = good.astype({"a": "Float64"})
    nulls.loc[5, "a"] = pd.NA
    return [
        good,
        good["a"],
        good["g"],
        good[["a", "b"]],
        texts,
        levels,
        gaps,
        endless,
        twice,
        several,
        nulls,
        good.iloc[:0],
        good.iloc[:1],
        good.drop(columns="a"),
        good[[]],
        good.T,
        good.astype({"g": "category"}),
        good.astype(str),
        good.assign(a=pd.Timestamp("2020-01-01")),
        good.assign(a=good["a"] > 0.5),
        good.assign(a=[[CELL]] * len(good)),
        good.assign(a=good["a"].astype(complex)),
        good.set_axis(range(5), axis=1),
        good.set_index("g"),
        good.iloc[::-1],
        good.set_index(np.zeros(len(good))),
        good.assign(person=None),
        good.assign(person=1),
        good.sample(5, random_state=1),
        good.to_dict("list"),
        good.to_dict("records"),
        good.to_records(),
        good.to_numpy(),
        good.groupby("g"),
        pd.DataFrame(),
        pd.Series(dtype=float),
        good.assign(a=1e308),
        good.assign(a=10**400),
        good.assign(y=CELL, a=CELL, b=CELL),
    ]


FORMULAS = (
    "",
    "y",
    "y ~",
    "~ a",
    "y ~ 0",
    "y ~ 1",
    "y ~ nope",
    "y ~ a + a",
    "y ~ a*b*C(g)",
    "y ~ np.log(a)",
    "y ~ np.exp(900*a)",
    "y ~ a**-1",
    "y ~ __import__('os')",
    "y ~ a.values",
    "y ~ I(a/b)",
    "y ~ C(y)",
    "y ~ C(a)",
    "y ~ bs(a)",
    "g ~ a",
    "y + a ~ b",
    "y ~ bs(a, knots=[0.5], lower_bound=0, upper_bound=1)",
    "y ~ a +" * 40,
    "y ~ " + "(" * 200,
    "y ~ a # b",
    "y ~ é",
    "y ~ person",
    "y ~ a:b:C(g) - 1",
    "y ~ 1e999*a",
    "np.log(y + 1) ~ a",
    "y ~ lambda: a",
    "y ~ " + "+".join(["a"] * 400),
    "C(g) ~ a",
    "y ~ np.sqrt(a - 1)",
)


def changed(value: Any, rng: np.random.Generator, world: World) -> Any:
    """Return a value like the valid one with something inside changed, or one of the wrong kind."""
    wrong = plain(world)
    other = wrong[rng.integers(len(wrong))]
    if rng.uniform() < 0.5:
        return other
    if isinstance(value, str) and "~" in value:
        return FORMULAS[rng.integers(len(FORMULAS))]
    if isinstance(value, str):
        return str(rng.choice([value.upper(), value + " ", value[:-1], value * 2, "\u202e" + value]))
    if isinstance(value, (bool, type(None))):
        return other
    if isinstance(value, int) and abs(value) > 2**1000:
        return other
    if isinstance(value, (int, float)):
        factor = rng.choice([-1.0, 0.0, 1e-12, 1e-3, 1e3, 1e12, np.nan])
        others = [value * factor, str(value), [value], np.array([value, value]), complex(value)]
        return others[rng.integers(5)]
    if isinstance(value, pd.DataFrame):
        known = tables()
        return known[rng.integers(len(known))]
    if isinstance(value, (np.ndarray, pd.Series)):
        known = arrays()
        return known[rng.integers(len(known))]
    if isinstance(value, dict) and value:
        key = list(value)[rng.integers(len(value))]
        how = rng.integers(4)
        if how == 0:
            return {k: v for k, v in value.items() if k != key}
        if how == 1:
            return {**value, "unknown": other}
        return {**value, key: changed(value[key], rng, world)}
    if isinstance(value, (list, tuple)) and value:
        items, at = list(value), int(rng.integers(len(value)))
        how = rng.integers(4)
        items = items[:at] if how == 0 else [*items, items[at]] if how == 1 else items
        if how > 1:
            items[at] = changed(items[at], rng, world)
        return type(value)(items) if type(value) in (list, tuple) else items
    return other


class Hang(BaseException):
    """A call that does not come back."""


@dataclass
class Findings:
    """What came of the calls."""

    outcomes: Counter[str] = field(default_factory=Counter)
    unforeseen: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    slowest: float = 0.0

    @property
    def calls(self) -> int:
        """How many there were."""
        return sum(self.outcomes.values())


def fuzz(calls: int, seed: int = 0, names: list[str] | None = None, *, first: int = 0) -> Findings:
    """Make so many calls, each with a seed of its own; `first` repeats one of them."""
    findings, known = Findings(), list(CASES) if names is None else names
    result()
    for number in range(first, first + calls):
        rng = np.random.default_rng((seed, number))
        with tempfile.TemporaryDirectory(prefix="fuzz") as folder, chdir(folder), small_memory():
            attempt(CASES[known[number % len(known)]], number, rng, World(Path(folder)), findings)
    return findings


def attempt(case: Case, number: int, rng: np.random.Generator, world: World, findings: Findings) -> None:
    """Make one call with one or two arguments changed, and judge it."""
    arguments = case.args(world)
    names = case.names(world)
    touched = []
    for _ in range(1 + (rng.uniform() < 0.2)):
        name = names[rng.integers(len(names))] if rng.uniform() < 0.97 else "unknown_option"
        if name in arguments and rng.uniform() < 0.04:
            del arguments[name]
        else:
            arguments[name] = changed(arguments.get(name), rng, world)
        touched.append(name)
    place = f"call {number}: {case.name}, {' and '.join(touched)} = " + ", ".join(
        type(arguments.get(name)).__name__ for name in touched
    )
    target, before = case.target(world), world.spent()
    start = time.process_time()
    error: BaseException | None = None
    with warnings.catch_warnings(record=True) as caught, alarm():
        warnings.simplefilter("always")
        try:
            made = target(**arguments)
            before = world.spent()
            if case.then is not None:
                case.then(made, world)
        except BaseException as raised:
            error = raised
    took = time.process_time() - start
    findings.slowest = max(findings.slowest, took)
    findings.outcomes["a result" if error is None else type(error).__name__] += 1
    findings.problems += [f"{place}: {text}" for text in judged(error, caught, world.spent() - before, took)]
    if isinstance(error, UnforeseenError):
        findings.unforeseen[f"{case.name}({touched[-1]}={type(arguments.get(touched[-1])).__name__})"] += 1


def judged(
    error: BaseException | None, caught: list[warnings.WarningMessage], spent: int, took: float
) -> Iterator[str]:
    """Return what is wrong with what came of one call."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error
    if took > LONGEST * slowness():
        yield f"took {took:.1f} s"
    for warning in caught:
        if TOLD.search(str(warning.message)):
            yield f"a warning tells a value: {warning.message}"
        if not issubclass(warning.category, PrivinfWarning):
            yield f"a foreign warning: {warning.category.__name__} at {warning.filename}:{warning.lineno}"
    if error is None or isinstance(error, MemoryError):
        return
    misfit = type(error) is TypeError and MISFIT.search(str(error))
    if not (isinstance(error, PrivinfError) or misfit):
        yield f"foreign {type(error).__name__}: {str(error)[:200]}"
    if error.__context__ is not None or error.__cause__ is not None:
        yield f"{type(error).__name__} has a context"
    if TOLD.search(str(error)) or TOLD.search(repr(error)):
        yield f"{type(error).__name__} tells a value: {str(error)[:300]}"
    if not str(error).strip():
        yield f"{type(error).__name__} says nothing"
    if spent:
        yield f"{type(error).__name__} after the charge: {str(error)[:200]}"


@contextmanager
def alarm(seconds: float = 300.0) -> Iterator[None]:
    """Raise `Hang` in what takes longer."""

    def ring(*_: Any) -> None:
        raise Hang

    old = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)


@contextmanager
def small_memory(room: int = 1 << 31) -> Iterator[None]:
    """Let a call that asks for more memory fail at once."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
