"""Schemas as TOML files, which people write, read and send to one another.

A column is a table of the file: ``low`` and ``high`` (numbers, or dates), or ``levels``; where it is wanted
``public = true``, ``unit``, ``center``, ``scale``, ``other``, ``missing_codes``. ``low = ""``, ``high = ""``
and ``levels = []`` are blanks, which are to be filled in.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import tomli_w

from privinf.errors import PrivinfError, SchemaError
from privinf.schema.declared import Blank, Declaration, Factor, Numeric, as_declaration, date_number
from privinf.storage.checksummed import read_text
from privinf.typing import Json

TOP_LINES = """\
# Public facts about a table{}
# low, high: bounds in the column's own unit (numbers, or dates such as 1990-01-01); values beyond a
# bound are clipped to it. levels: every value that may occur. Blanks ("" and []) are to be filled in.
# For a column of 0 and 1 write levels = [0, 1], or low = 0 and high = 1: a logistic regression takes both as
# response. A text response has two levels, of which the second counts as 1.
# missing_codes: values that mean that a value is missing, as in missing_codes = [-9].
"""
DECLARED = ": they were declared, not read from its rows."
BOUGHT = ", some of them bought with a privacy budget, see [bought]."
NUMBER = ("low", "high", "public", "unit", "center", "scale", "missing_codes")  # keys of a numeric column
LEVELS = ("levels", "public", "unit", "other", "missing_codes")  # keys of a column with levels
TOP_WORDS = ("columns", "unit", "max_rows", "bought")  # keys of the file
BLANKS: dict[str, dict[str, Any]] = {"number": {"low": "", "high": ""}, "levels": {"levels": []}}


def schema_text(content: Json, further: Json) -> str:
    """Return the contents of `Schema.to_dict` as TOML, with further tables after its columns."""
    unit = content["unit"]
    top: dict[str, Any] = {} if unit is None else {"unit": unit, "max_rows": content["max_rows"]}
    columns = {name: _plain(item) for name, item in content["columns"].items()}
    head = TOP_LINES.replace("{}", BOUGHT if further else DECLARED)
    return f"{head}\n{tomli_w.dumps({**top, 'columns': columns, **further})}"


def _plain(item: Json) -> Json:
    """Return one column without its defaults."""
    if "kind" in item:
        return BLANKS[str(item["kind"])]
    silent = {"public": False, "unit": ""}
    return {name: value for name, value in item.items() if silent.get(name) != value}


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """Contents of a file: arguments of `Schema`, and of released bounds (None without them)."""

    columns: dict[str, Declaration | Blank]
    unit: Any
    max_rows: Any
    bought: Any


def read_schema(path: str | PathLike[str]) -> SchemaFile:
    """Return the contents of a schema's file.

    Raises
    ------
    StorageError
        The file does not exist, or is not a text file.
    SchemaError
        The file is not TOML, or has keys that a schema does not have; the message names the column and the
        key.
    """
    text = read_text(path, "a schema")
    reason = ""
    try:
        content = tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as problem:
        place = re.search(r"\(at [^()]*\)$", str(problem))  # the rest quotes the text, which may be rows
        reason = f"the file is not valid TOML {place[0] if place else ''}".rstrip()
    if reason:
        raise SchemaError(f"{path}: {reason}")
    try:
        return _schema(content)
    except PrivinfError as problem:
        reason = str(problem)
    raise SchemaError(f"{path}: {reason}")


def _schema(content: Mapping[str, Any]) -> SchemaFile:
    if unknown := [name for name in content if name not in TOP_WORDS]:
        raise SchemaError(
            f"{unknown[0]!r} is not a key of a schema file: to declare a column, write [columns.{unknown[0]}]"
        )
    columns = content.get("columns")
    if not isinstance(columns, Mapping):
        raise SchemaError(
            "the file declares no columns: write [columns.NAME] with low and high, or with levels"
        )
    declared = {name: _declared(name, item) for name, item in columns.items()}
    return SchemaFile(declared, content.get("unit"), content.get("max_rows", 1), content.get("bought"))


def _check_bound(word: str, value: Any) -> None:
    """Raise SchemaError unless a bound of a file is a finite number or a date."""
    if date_number(value) is not None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SchemaError(f"{word} must be a number without quotes, or a date such as 1990-01-01")
    if not math.isfinite(value):
        raise SchemaError(
            f"{word} must be finite: write the most extreme value that is plausible. Values beyond it are "
            "clipped to it"
        )


def _declared(name: str, item: Any) -> Declaration | Blank:
    allowed = LEVELS if isinstance(item, Mapping) and "levels" in item else NUMBER
    if not isinstance(item, Mapping) or not ({"low", "high"} <= item.keys() or "levels" in item):
        raise SchemaError(
            f"column {name!r} has no bounds and no levels: write low = ... and high = ..., or levels = [...]"
        )
    if unknown := [word for word in item if word not in allowed]:
        raise SchemaError(
            f"column {name!r}: {unknown[0]!r} is not a valid key; the valid keys are {', '.join(allowed)}"
        )
    if item.get("levels") == []:
        return Blank("levels")
    if allowed is NUMBER and item["low"] == item["high"] == "":
        return Blank("number")
    rest = {word: value for word, value in item.items() if word not in ("low", "high", "levels")}
    try:
        if allowed is LEVELS:
            return Factor(item["levels"], **rest)
        for word in ("low", "high"):
            _check_bound(word, item[word])
        ends = as_declaration(name, (item["low"], item["high"]))
        assert isinstance(ends, Numeric)
        return Numeric(ends.low, ends.high, **{"unit": ends.unit, **rest})
    except PrivinfError as problem:
        reason = str(problem).removeprefix(f"column {name!r}: ")
    raise SchemaError(f"column {name!r}: {reason}")
