"""One digest a fit: ``python benchmarks/digest.py [--against FILE]`` (a minute, one core).

Some 200 seeded fits, by every model and entry point, through public names alone, so that the same file runs
on trees that differ in where modules are. A line is ``name numbers summary``: sha256 over the bits of every
number that the fit gives (coefficients, covariances, intervals, p-values, what it released, what it cost) and
over the text of its summary, without its date. A refusal or a number that is not there is part of the digest.
Names of attributes and fields are not, so that they can change.

``results/digest.txt`` has the lines of this tree, as an AMD EPYC with AVX-512 makes them (numpy 2.4,
OpenBLAS of kernel Haswell); on another processor last bits differ, and trees are compared by two runs there.

``--save FILE`` writes the lines, ``--against FILE`` names the fits that differ from such a file and ends with
status 1. ``--save-numbers FILE`` keeps coefficients and standard errors in an npz file; with ``--numbers
FILE`` the largest relative difference from it is reported of every fit that differs.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import hashlib
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import digest_doors
import numpy as np
import pandas as pd
from digest_fits import FITS

import privinf as pi

# Attributes, and methods without arguments, that give numbers; what an object has not is skipped. A name that
# has changed stands with the later ones after it, "old|new": the digest has the first, whichever is there.
ATTRIBUTES = [
    "params",
    "bse",
    "bse_sampling",
    "bse_privacy",
    "tvalues",
    "pvalues",
    "cov_params",
    "conf_int",
    "nobs",
    "df_resid",
    "df_model",
    "rsquared",
    "scale",
    "noise_share",
    "sparse_params",
    "selected",
    "saturated",
    "asked",
    "rate",
    "error",
    "residual_scale",
    "noise_variance",
    "bias_bound",
    "restricted_eigenvalues",
    "bias",
    "naive",
    "variance_inflation",
    "communication",
    "trace",
    "interval_epsilon",
    "shared_params",
    "to_frame",
    "frame",
    "indices",
    "values",
    "statistic",
    "pvalue",
    "mean",
    "se",
    "critical_value",
    "table",
    "predicted_mean",
    "cov",
    "effect",
    "sd",
    "df",
    "max_t",
    "result_frame",
    "differs",
    "lower",
    "upper",
    "support",
    "picks_from",
    "privacy",
]
TABLES = (pd.DataFrame, pd.Series, pd.Index, np.ndarray)
OPAQUE = (str, bytes, bool, type(None))
assert digest_doors.SEED  # its fits stand in FITS too
PASSING = re.compile(r"(Date|Time):\s+.*?(?=\s{2,}|$)", re.MULTILINE)


def leaves(thing: Any) -> Iterator[str]:
    """Yield the bits of every number in a value, and the types of what holds none."""
    if isinstance(thing, OPAQUE):
        yield repr(thing)
    elif isinstance(thing, (int, float, np.number, np.bool_)):
        yield float(thing).hex()
    elif isinstance(thing, TABLES):
        yield str(np.shape(thing))
        yield from (leaf for entry in np.asarray(thing).ravel().tolist() for leaf in leaves(entry))
    elif isinstance(thing, Mapping):
        yield from (leaf for key in sorted(thing, key=str) for leaf in (str(key), *leaves(thing[key])))
    elif isinstance(thing, (Sequence, set, frozenset)):
        parts = sorted(thing, key=str) if isinstance(thing, (set, frozenset)) else thing
        yield from (leaf for part in parts for leaf in leaves(part))
    elif isinstance(thing, pi.PrivacyReport):
        yield from cost(thing)
    elif isinstance(thing, pi.Release):
        yield from leaves(dict(thing.arrays))
        yield from numbers_alone(dict(thing.header()["law"]))
    else:
        yield from members(thing)


def cost(report: pi.PrivacyReport) -> Iterator[str]:
    """Yield what a report says in numbers; the words of its lines may change."""
    for attribute in ("epsilon", "delta", "mu", "rho"):
        yield from member(report, attribute)
    for entry in report.entries:
        yield from numbers_alone([dict(entry.noise), in_order(entry.loss), in_order(entry.sensitivity)])


def numbers_alone(thing: Any) -> Iterator[str]:
    """Yield the bits of the numbers in nested lists and mappings, by key."""
    if isinstance(thing, Mapping):
        yield from (leaf for key in sorted(thing) for leaf in numbers_alone(thing[key]))
    elif isinstance(thing, (list, tuple)):
        yield from (leaf for part in thing for leaf in numbers_alone(part))
    elif isinstance(thing, (int, float)) and not isinstance(thing, bool):
        yield float(thing).hex()


def member(thing: Any, names: str) -> Iterator[str]:
    """Yield one attribute's bits, or that it refuses; the first of its names says which it is."""
    first, *later = names.split("|")
    there = [name for name in (first, *later) if hasattr(type(thing), name) or name in vars_of(thing)]
    if not there:
        return
    try:
        value = getattr(thing, there[0])
        yield first
        yield from leaves(value(1.0) if first == "delta" and callable(value) else called(value))
    except (pi.errors.PrivinfError, NotImplementedError) as refusal:
        yield f"{first}: {type(refusal).__name__}"


def vars_of(thing: Any) -> Mapping[str, Any]:
    return getattr(thing, "__dict__", {})


def in_order(thing: Any) -> list[Any]:
    """Return the values of a dataclass without the names of its fields, dataclasses in it alike."""
    values = (getattr(thing, one.name) for one in fields(thing))
    return [in_order(value) if is_dataclass(value) else value for value in values]


def called(value: Any) -> Any:
    return value() if callable(value) else value


def members(thing: Any) -> Iterator[str]:
    """Yield the numbers of an object of the package."""
    found = [leaf for name in ATTRIBUTES for leaf in member(thing, name)]
    if not found and is_dataclass(thing):
        found = list(leaves(in_order(thing)))
    inner = getattr(thing, "results", None)
    if isinstance(inner, Mapping):
        found += [leaf for label in inner for leaf in leaves(inner[label])]
    if hasattr(thing, "release") and isinstance(thing, pi.Results):
        found += leaves(thing.release)
    if not found:
        raise TypeError(f"a {type(thing).__name__} has no numbers that are known here")
    yield from found


def words(thing: Any) -> str:
    """Return the summary of a result, or of several; the text of anything else that has one."""
    if isinstance(thing, (list, tuple)):
        return "\n".join(map(words, thing))
    if isinstance(thing, Mapping):
        return "\n".join(words(part) for part in thing.values())
    if isinstance(thing, (str, pi.Release, *TABLES)):
        return thing if isinstance(thing, str) else ""
    if hasattr(thing, "summary"):
        return PASSING.sub(r"\1", str(thing.summary()))
    return PASSING.sub(r"\1", str(thing)) if type(thing).__str__ is not object.__str__ else ""


def short(parts: Iterator[str] | list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def plain(thing: Any) -> list[float]:
    """Return coefficients and standard errors of every result in a value, for relative differences."""
    if isinstance(thing, (list, tuple)):
        return [number for part in thing for number in plain(part)]
    if isinstance(thing, Mapping):
        return [number for part in thing.values() for number in plain(part)]
    inner = getattr(thing, "results", None)
    if isinstance(inner, Mapping):
        return plain(inner)
    found = []
    for name in ("params", "bse"):
        try:
            found += np.asarray(getattr(thing, name, []), dtype=float).ravel().tolist()
        except pi.errors.PrivinfError:
            continue
    return found


def run(name: str, fit: Callable[[], Any]) -> tuple[str, str, list[float]]:
    """Return the digests of one fit, and its coefficients and standard errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = fit()
        except pi.errors.PrivinfError as refusal:
            made = f"{type(refusal).__name__}: {refusal}"
            print(f"refused: {name}: {made}", file=sys.stderr)
        return short(leaves(made)), short([words(made)]), plain(made)


def difference(now: Sequence[float], before: Sequence[float]) -> str:
    """Return the largest relative difference of two lists of numbers, in words."""
    if len(now) != len(before):
        return f"{len(before)} numbers before, {len(now)} now"
    a, b = np.asarray(now), np.asarray(before)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "others are infinite"
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    size = np.maximum(np.abs(b), 1e-12 * np.max(np.abs(b), initial=1.0))
    return f"{np.max(np.abs(a - b) / size, initial=0.0):.2g} relative"


def read_lines(path: Path) -> dict[str, tuple[str, str]]:
    """Return the digests of a file by name."""
    rows = [line.rsplit(maxsplit=2) for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: (numbers, summary) for name, numbers, summary in rows if name != "TOTAL"}


def compare(
    now: Mapping[str, tuple[str, str]], before: Mapping[str, tuple[str, str]], far: Callable[[str], str]
) -> int:
    """Print what differs, and return how many fits do in their numbers."""
    lost = [name for name in before if name not in now]
    numbers = [name for name in now if name in before and now[name][0] != before[name][0]]
    summaries = [name for name in now if name in before and now[name][1] != before[name][1]]
    for name in lost:
        print(f"LOST     {name}")
    for name in numbers:
        print(f"NUMBERS  {name}  {far(name)}")
    for name in summaries:
        print(f"SUMMARY  {name}")
    new = sum(name not in before for name in now)
    print(
        f"{len(now)} fits: {len(numbers)} differ in numbers, {len(summaries)} in the summary, "
        f"{len(lost)} lost, {new} new"
    )
    return len(lost) + len(numbers) + len(summaries)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--numbers", type=Path)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--save-numbers", type=Path)
    parser.add_argument("--only", default="", help="fits whose name holds this text")
    parser.add_argument("--times", action="store_true", help="seconds of every fit, on stderr")
    asked = parser.parse_args()
    digests: dict[str, tuple[str, str]] = {}
    figures: dict[str, list[float]] = {}
    for name, fit in FITS.items():
        if asked.only in name:
            begun = time.perf_counter()
            *found, figures[name] = run(name, fit)
            digests[name] = found[0], found[1]
            if asked.times:
                print(f"{time.perf_counter() - begun:6.2f} {name}", file=sys.stderr)
    lines = [f"{name}  {numbers} {summary}" for name, (numbers, summary) in digests.items()]
    total = short([numbers for numbers, _ in digests.values()]), short([text for _, text in digests.values()])
    lines.append(f"TOTAL  {total[0]} {total[1]}")
    if asked.against is None:
        print("\n".join(lines))
    if asked.save is not None:
        asked.save.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if asked.save_numbers is not None:
        np.savez_compressed(
            asked.save_numbers, **{name: np.asarray(found) for name, found in figures.items()}
        )
    if asked.against is None:
        return 0
    kept = {} if asked.numbers is None else dict(np.load(asked.numbers))
    before = {name: pair for name, pair in read_lines(asked.against).items() if asked.only in name}

    def far(name: str) -> str:
        return difference(figures[name], kept[name].tolist()) if name in kept else ""

    return int(compare(digests, before, far) > 0)


if __name__ == "__main__":
    sys.exit(main())
