"""Who holds which column, with its public bounds or levels: from options, a CSV or a JSON file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from privinf.errors import ArgumentError, PrivinfError, SchemaError
from privinf.schema import Factor, Numeric, Schema
from privinf.sealed import parse_json, read_text

Declared = Numeric | Factor
Lines = list[tuple[str, str, Declared]]  # party, column, bounds or levels

CSV_FIELDS = ("party", "column", "low", "high", "levels")


def read_columns(path: Path | None, specs: Iterable[str]) -> dict[str, Schema]:
    """Return the schema of each party, parties and columns in the order in which they are named.

    Parameters
    ----------
    path : Path or None
        CSV with the fields party, column, low, high, levels (levels separated by ``|``), or JSON of the
        form ``{"party": {"column": [low, high] or ["level", "level", ...]}}``.
    specs : iterable of str
        ``PARTY:COLUMN:LOW:HIGH`` or ``PARTY:COLUMN:LEVEL|LEVEL|...``.

    Raises
    ------
    ArgumentError, SchemaError
        Something is not of that form, or a column is declared twice.
    """
    lines: Lines = []
    if path is not None:
        lines += _json_lines(path) if path.suffix.lower() == ".json" else _csv_lines(path)
    lines += [_from_spec(spec) for spec in specs]
    if not lines:
        raise ArgumentError("no column is declared: use --columns FILE or --column PARTY:COLUMN:LOW:HIGH")
    parties: dict[str, dict[str, Declared]] = {}
    for party, column, declared in lines:
        own = parties.setdefault(party, {})
        if column in own:
            raise SchemaError(f"column {column!r} of party {party!r} is declared twice")
        own[column] = declared
    return {party: Schema(own) for party, own in parties.items()}


def _from_spec(spec: str) -> tuple[str, str, Declared]:
    parts = [part.strip() for part in spec.split(":")]
    if len(parts) == 4 and all(parts[:2]):
        return parts[0], parts[1], _bounds(parts[2], parts[3], f"--column {spec}")
    if len(parts) == 3 and all(parts):
        return parts[0], parts[1], _levels(parts[2].split("|"), f"--column {spec}")
    raise ArgumentError(f"--column {spec}: write PARTY:COLUMN:LOW:HIGH or PARTY:COLUMN:LEVEL|LEVEL|...")


def _csv_lines(path: Path) -> Lines:
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            records = list(csv.DictReader(stream))
    except (UnicodeDecodeError, csv.Error):
        raise ArgumentError(f"{path} is not a CSV file in UTF-8") from None
    lines: Lines = []
    for number, record in enumerate(records, start=2):
        cells = {str(key).strip(): (value or "").strip() for key, value in record.items() if key is not None}
        unknown = [name for name in cells if name not in CSV_FIELDS]
        if unknown or not {"party", "column"} <= cells.keys():
            raise ArgumentError(f"{path}: the first line must name the fields {','.join(CSV_FIELDS)}")
        if not any(cells.values()):
            continue
        where = f"{path}, line {number}"
        if not cells["party"] or not cells["column"]:
            raise ArgumentError(f"{where}: name the party and the column")
        levels, low, high = (cells.get(name, "") for name in ("levels", "low", "high"))
        if bool(levels) == bool(low or high):
            raise ArgumentError(f"{where}: give either low and high, or levels separated by |")
        declared = _levels(levels.split("|"), where) if levels else _bounds(low, high, where)
        lines.append((cells["party"], cells["column"], declared))
    return lines


def _json_lines(path: Path) -> Lines:
    content = parse_json(read_text(path, "a JSON file").removeprefix("\ufeff"), str(path))
    form = 'write {"party": {"column": [low, high] or ["level", "level", ...]}}'
    if not isinstance(content, dict) or not all(isinstance(own, dict) for own in content.values()):
        raise ArgumentError(f"{path}: {form}")
    lines: Lines = []
    for party, own in content.items():
        for column, item in own.items():
            lines.append((party, column, _from_json(item, f"{path}, column {column!r}", form)))
    return lines


def _from_json(item: Any, where: str, form: str) -> Declared:
    if isinstance(item, Mapping) and set(item) == {"levels"}:
        return _levels(item["levels"], where)
    if isinstance(item, Mapping) and set(item) == {"low", "high"}:
        return _bounds(item["low"], item["high"], where)
    if isinstance(item, list) and len(item) == 2 and not any(isinstance(x, (str, bool)) for x in item):
        return _bounds(item[0], item[1], where)
    if isinstance(item, list):
        return _levels(item, where)
    raise ArgumentError(f"{where}: {form}")


def _bounds(low: Any, high: Any, where: str) -> Numeric:
    try:
        return Numeric(float(low), float(high))
    except PrivinfError as problem:
        raise SchemaError(f"{where}: {problem}") from None
    except (TypeError, ValueError):
        raise ArgumentError(f"{where}: the bounds low and high must be numbers") from None


def _levels(levels: Any, where: str) -> Factor:
    try:
        return Factor(tuple(level.strip() if isinstance(level, str) else level for level in levels))
    except (PrivinfError, TypeError) as problem:
        raise SchemaError(f"{where}: {problem}") from None
