"""The search for last bits: formulas whose rows and intervals are computed in two ways that differ by an ulp.

A probe ``sqrt(C - f(g(k - s |x - t|)))``, with C the end of the interval of ``f(g(...))`` as one way of
computing it gives it, is not a number exactly for rows near t where the other way gives one ulp more. What
a caller may see of two neighbouring tables, one with a row at t and one without, must then be the same.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi
from privinf.errors import PrivinfError
from privinf.federation import Query, Site, SitePolicy
from privinf.schema import Interval, expressions

LOW, HIGH = 0.0, 64.0
FUNCTIONS = {name: f"np.{name}({{}})" for name in expressions.FUNCTION_NAMES}
POWERS = {f"**{power}": f"({{}}) ** ({power})" for power in ("2", "3", "0.5", "-1", "1.7", "1/3")}
STEPS = FUNCTIONS | POWERS
MATH: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "log": math.log,
    "log1p": math.log1p,
    "log2": math.log2,
    "log10": math.log10,
    "exp": math.exp,
    "expm1": math.expm1,
    "sqrt": math.sqrt,
    "**2": lambda x: pow(x, 2.0),
    "**3": lambda x: pow(x, 3.0),
    "**0.5": lambda x: pow(x, 0.5),
    "**-1": lambda x: pow(x, -1.0),
    "**1.7": lambda x: pow(x, 1.7),
    "**1/3": lambda x: pow(x, 1 / 3),
}
# Where the inner argument is looked for: where the outer function neither overflows nor leaves its domain.
DOMAIN = (1.25, 6.0)
SHELLS = ("np.sqrt({C!r} - {f})", "({C!r} - {f}) ** 0.5", "np.log({D!r} - {f})", "1 / ({D!r} - {f})")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A formula that may tell the row at `at` from all others, by the last bits of one of its steps."""

    formula: str
    at: float


def chains() -> list[tuple[str, ...]]:
    """Return every function alone and every pair of nested functions, the inner one first."""
    return [(name,) for name in STEPS] + list(itertools.product(STEPS, repeat=2))


def written(chain: tuple[str, ...], inner: str) -> str:
    """Return the expression of a chain of functions over `inner`."""
    for name in chain:
        inner = STEPS[name].format(inner)
    return inner


def _libm(chain: tuple[str, ...], value: float) -> float:
    for name in chain:
        value = MATH[name](value)
    return value


def search(chain: tuple[str, ...], tries: int, keep: int, rng: np.random.Generator) -> list[Candidate]:
    """Return the `keep` candidates, of `tries`, at which numpy's value of a chain passes Python's by most."""
    k = rng.uniform(*DOMAIN, tries)
    source = written(chain, "x")
    with np.errstate(all="ignore"):
        rows = expressions.values(source, lambda _: k)
        ends = np.array([_end(chain, value) for value in k])
        gaps = (rows - ends) / np.spacing(np.abs(ends))
    worst = np.argsort(-np.nan_to_num(gaps, nan=-np.inf), kind="stable")[:keep]
    return [_candidate(chain, float(k[i]), float(ends[i]), rng) for i in worst]


def _end(chain: tuple[str, ...], value: float) -> float:
    try:
        return float(_libm(chain, value))
    except (ValueError, OverflowError, TypeError):
        return math.nan


def _candidate(chain: tuple[str, ...], k: float, end: float, rng: np.random.Generator) -> Candidate:
    t = float(np.round(rng.uniform(LOW + 1.0, HIGH - 1.0), 6))
    # Between k and k less what the farthest row takes away, the argument stays above 1.
    slope = (k - 1.125) / HIGH
    falling = _end(chain, 1.25) > _end(chain, 6.0)
    sign = "+" if falling else "-"
    f = written(chain, f"({k!r} {sign} {slope!r} * abs(x - {t!r}))")
    shell = SHELLS[int(rng.integers(len(SHELLS)))]
    return Candidate(shell.format(C=end, D=float(np.nextafter(end, np.inf)), f=f), t)


def evaluator_differs(candidate: Candidate) -> bool:
    """Return whether a formula leaves its interval, or the finite numbers, on rows in its bounds."""
    from privinf.schema.intervals import Ranged

    bounds = Interval(LOW, HIGH)
    rows = np.append(np.linspace(LOW, HIGH, 9), [candidate.at, np.nextafter(candidate.at, 0.0)])
    try:
        claimed = expressions.interval(candidate.formula, lambda _: bounds)
    except PrivinfError:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = expressions.bounded(candidate.formula, lambda _: Ranged.from_values(rows, bounds))
    return not bool(((found >= claimed.low) & (found <= claimed.high)).all())


def neighbours(candidate: Candidate, n: int = 40) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two tables that differ in one row: at `at` in the first, elsewhere in the second."""
    x = np.linspace(LOW, HIGH, n)
    there, elsewhere = x.copy(), x.copy()
    there[n // 2] = candidate.at
    elsewhere[n // 2] = LOW if candidate.at > HIGH / 2 else HIGH
    y = np.linspace(-1.0, 1.0, n)
    return pd.DataFrame({"x": there, "y": y}), pd.DataFrame({"x": elsewhere, "y": y})


SCHEMA = pi.Schema({"x": (LOW, HIGH), "y": (-1.0, 1.0)})


def reply_of_site(candidate: Candidate, table: pd.DataFrame) -> Any:
    """Return what a site says to the design, for nothing."""
    try:
        design = pi.Design.from_formula(f"y ~ I({candidate.formula})", SCHEMA)
    except PrivinfError as error:
        return str(error)
    site = Site(table, SCHEMA, policy=SitePolicy(trusted_server=True))
    reply = site.handle(Query("design", args={"design": design.to_dict()}), "north")
    return reply.pack()[0], len(site.ledger)


def _released(mechanism: Callable[[], Any], table: pd.DataFrame) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            release = mechanism().release(table, mu=1.0, rng=0)
            said: Any = release.nobs, sorted(release.arrays)
        except PrivinfError as error:
            said = type(error).__name__, str(error)
    return said, [str(one.message) for one in caught]


def reply_of_central(candidate: Candidate, table: pd.DataFrame) -> Any:
    """Return what a curator's release says of itself, but for its noisy numbers."""
    return _released(lambda: pi.Moments(SCHEMA, f"y ~ I({candidate.formula})"), table)


def reply_of_local(candidate: Candidate, table: pd.DataFrame) -> Any:
    """Return what local moments say, but for their noisy numbers."""
    return _released(lambda: pi.Moments(SCHEMA, f"y ~ I({candidate.formula})", trust="local"), table)


def reply_of_modulation(candidate: Candidate, table: pd.DataFrame) -> Any:
    """Return what a modulated release says, but for its noisy numbers."""
    return _released(lambda: pi.Modulation(SCHEMA, f"y ~ I({candidate.formula})"), table)


ENTRY_POINTS: dict[str, Callable[[Candidate, pd.DataFrame], Any]] = {
    "site": reply_of_site,
    "central": reply_of_central,
    "local": reply_of_local,
    "modulated": reply_of_modulation,
}


def differing(
    candidates: list[Candidate], entry_points: dict[str, Any] = ENTRY_POINTS
) -> Iterator[tuple[str, Candidate]]:
    """Yield (entry point, candidate) wherever two neighbours are told apart without a charge."""
    for candidate in candidates:
        first, second = neighbours(candidate)
        for name, entry_point in entry_points.items():
            if entry_point(candidate, first) != entry_point(candidate, second):
                yield name, candidate
