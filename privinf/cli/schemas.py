"""``privinf schema`` and ``completion``: preparations before rows are fitted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict, Unpack

import click
from click.shell_completion import get_completion_class

from privinf.bounds import find_bounds
from privinf.cli.groups import Refusal
from privinf.cli.inputs import open_ledger, read_schema_file, spending_of, spending_options
from privinf.cli.outputs import (
    FILE,
    NEW_FILE,
    NO_LEDGER,
    check_free,
    ledger_line,
    overwrite_option,
    report_line,
)
from privinf.cli.undeclared import UndeclaredValues
from privinf.errors import ArgumentError, SchemaError, StorageError
from privinf.mechanisms.reading import open_rows
from privinf.mechanisms.sources import Source, require_columns
from privinf.mechanisms.tables import source_of
from privinf.schema import Design, Schema
from privinf.schema.arrays import kinds_of
from privinf.schema.declared import DAYS, Blank
from privinf.validation import columns_phrase

# Share of rows that bounds may leave out, where a budget is spent on them and --clip is not given.
CLIP = 0.01
NOT_CHECKED = (
    "not checked: missing values, and values outside the bounds or levels, because both are private; pass "
    "--undeclared if you hold the rows"
)
WRONG_KINDS = (
    "{}: text or dates are in {}, but the schema declares numbers: declare levels, or correct the table"
)
LISTED_BY = "; the person who holds the rows can list the values with --undeclared"
UNREADABLE = (
    "{}: {} must hold numbers or dates, as the schema declares: correct the values listed above, or "
    "declare levels"
)
SHELLS = ("bash", "zsh", "fish")
DATA = click.Path(exists=True, path_type=Path)


class SuggestOptions(TypedDict):
    """Options of ``privinf schema suggest``, as click reads them."""

    data: Path
    columns: tuple[str, ...]
    unit: str | None
    max_rows: int
    clip: float | None
    missing_codes: tuple[str, ...]
    epsilon: float | None
    delta: float | None
    mu: float | None
    rho: float | None
    seed: int | None
    ledger_file: Path | None
    out: Path
    overwrite: bool


@click.group("schema")
def schema_group() -> None:
    """Write and check a schema: the public bounds and levels of a table's columns."""


@schema_group.command("suggest")
@click.argument("data", type=DATA)
@click.option(
    "--column",
    "columns",
    multiple=True,
    help="Name of a column to include. May be given several times. Default: all columns.",
)
@click.option(
    "--unit", help="Name of the column that identifies a person, if a person can have several rows."
)
@click.option(
    "--max-rows",
    type=int,
    default=1,
    show_default=True,
    help="Largest number of rows that one person can have.",
)
@click.option(
    "--clip",
    type=float,
    help=(
        f"Share of rows that may be outside the bounds that are found; only with --epsilon. Default: {CLIP}."
    ),
)
@click.option(
    "--missing-code",
    "missing_codes",
    multiple=True,
    metavar="COLUMN=CODE",
    help=(
        "Column and a public code of missing values in it, such as sbp=-9; the search leaves these values "
        "out. May be given several times; only with --epsilon."
    ),
)
@spending_options
@click.option(
    "--ledger", "ledger_file", type=NEW_FILE, help="File of the budget ledger to charge; only with --epsilon."
)
@click.option("--out", type=NEW_FILE, required=True, help="File to write, such as schema.toml.")
@overwrite_option
def suggest_command(**options: Unpack[SuggestOptions]) -> None:
    """Write a schema of a table's columns, with blanks to fill in, or with bounds found privately.

    Without --epsilon, the schema has only the names and types of the columns, and no value of a row. Fill in
    bounds and levels from prior knowledge, such as a code book, before you use it. With --epsilon, the
    bounds of numeric columns are found by noisy releases, which are charged to the ledger if --ledger is
    passed. Common levels of a text column are found, at a part of the budget, only if --column names the
    column and --ledger is not passed: noisy counts can reveal a level that only one person has, with
    probability delta, and the limit of a ledger does not allow this.

    \b
    Example without a budget:
      privinf schema suggest rows.csv --out schema.toml

    \b
    Example with a budget:
      privinf schema suggest rows.csv --out schema.toml --epsilon 0.2 --delta 1e-6 --ledger study.ledger
    """  # noqa: D301
    check_free(options["out"], options["overwrite"])
    bought = any(options[word] is not None for word in ("epsilon", "mu", "rho"))
    if bought:
        schema = _bought(options)
    elif options["missing_codes"] or any(
        options[word] is not None for word in ("ledger_file", "delta", "seed", "clip")
    ):
        raise ArgumentError(
            "--ledger, --delta, --seed, --clip and --missing-code are only for finding bounds privately, "
            "which spends a privacy budget; pass --epsilon too, or omit these options"
        )
    else:
        schema = _blank(options)
    try:
        schema.save(options["out"], overwrite=options["overwrite"])
    except StorageError as problem:
        raise Refusal(
            f"{problem}{'; the bounds that were found are charged and lost' if bought else ''}"
        ) from None
    blanks = f"; fill in the bounds or levels of {', '.join(map(repr, schema.blank))}" if schema.blank else ""
    click.echo(f"written: {options['out']}{blanks}")


def _blank(options: SuggestOptions) -> Schema:
    """Return a blank schema of the wanted columns, by the names and types of the table's first rows."""
    source = source_of(options["data"])
    named = options["columns"] or tuple(
        filter(None, source.columns)
    )  # programs write row numbers without a name
    names = [name for name in named if name != options["unit"]]
    if not options["columns"]:
        _refuse_values(source.name, names)
    require_columns(source, [*names, *([] if options["unit"] is None else [options["unit"]])])
    first = next(iter(source.read(names, "guessed")), None)
    if first is None:
        raise SchemaError(
            f"{source.name}: the table has no rows, so the types of its columns cannot be determined"
        )
    return Schema.from_frame_names(first.iloc[:0], unit=options["unit"], max_rows=options["max_rows"])


WRITTEN_NUMBER = r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?"
# A date, or an address: names of columns have neither.
WRITTEN_VALUE = r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?|\S+@\S+\.\S+"
YEARS = range(1800, 2101)  # whole numbers that may be years


def _refuse_values(table: str, names: Sequence[str]) -> None:
    """Raise SchemaError where the line of names seems to hold values: a schema is public."""
    numbers = [name for name in names if re.fullmatch(WRITTEN_NUMBER, name)]
    values = [name for name in names if re.fullmatch(WRITTEN_VALUE, name)]
    if values or (numbers and not _are_names(numbers, alone=len(numbers) == len(names))):
        raise SchemaError(
            f"the first line of {table} has numbers or dates instead of column names. Add a line "
            "with the names; or, if these are the names, pass each of them as --column NAME"
        )


def _are_names(numbers: Sequence[str], *, alone: bool) -> bool:
    """Return whether numbers of a first line are names.

    They are where they count from 0 on; beside words, where they are two or more years, or count to three or
    more from 0 or 1 on.
    """
    if not all(number.isdecimal() for number in numbers):
        return False
    values = [int(number) for number in numbers]
    if alone:
        return values == list(range(len(values)))
    years = all(value in YEARS for value in values) and all(a < b for a, b in pairwise(values))
    counted = values[0] in (0, 1) and values == list(range(values[0], values[0] + len(values)))
    return (years and len(values) > 1) or (counted and len(values) > 2)


def _bought(options: SuggestOptions) -> Schema:
    """Return a schema whose bounds and levels were bought."""
    blank = _blank(options)
    path = options["ledger_file"]
    numbers = [
        name
        for name, declared in blank.columns.items()
        if isinstance(declared, Blank) and declared.kind == "number"
    ]
    ledger = None if path is None else open_ledger(path)
    clip = CLIP if options["clip"] is None else options["clip"]
    schema = find_bounds(
        open_rows(options["data"]),
        options["columns"] or numbers,
        clip=clip,
        unit=options["unit"],
        max_rows=options["max_rows"],
        missing_codes=_codes_by_column(options["missing_codes"], blank) or None,
        ledger=ledger,
        **spending_of(options),
    )
    click.echo(repr(schema))
    click.echo(f"privacy loss of one {schema.privacy.unit}: {report_line(schema.privacy)}", err=True)
    click.echo(NO_LEDGER if ledger is None or path is None else ledger_line(ledger, path), err=True)
    return blank.fill(schema)


def _codes_by_column(pairs: Sequence[str], blank: Schema) -> dict[str, list[Any]]:
    """Return codes of missing values by column, from texts such as sbp=-9."""
    codes: dict[str, list[Any]] = {}
    for pair in pairs:
        name, equals, code = pair.rpartition("=")
        declared = blank.columns.get(name)
        if not equals or declared is None:
            raise ArgumentError(
                f"--missing-code {pair} must be the name of a column, an equals sign and a code, such as "
                "sbp=-9; the column must be one of those in the schema"
            )
        is_number = isinstance(declared, Blank) and declared.kind == "number"
        if is_number and not re.fullmatch(WRITTEN_NUMBER, code):
            raise ArgumentError(
                f"--missing-code {pair}: the column has numbers, so its codes must be numbers"
            )
        codes.setdefault(name, []).append(float(code.replace(",", ".")) if is_number else code)
    return codes


@schema_group.command("check")
@click.argument("schema", type=FILE)
@click.option(
    "--formula",
    help=(
        "Formula of a regression; the command also checks that the schema declares bounds for "
        "all its columns."
    ),
)
@click.option(
    "--data",
    type=DATA,
    help=(
        "File of a table; the command also checks that it has the columns of the schema, with "
        "the right types."
    ),
)
@click.option(
    "--undeclared",
    is_flag=True,
    help=(
        "List values in --data that the schema does not declare, values that are not numbers or dates as "
        "declared, the share of values outside the bounds, and the columns with missing values. All are read "
        "from the rows; only the person who holds the rows may use this."
    ),
)
def check_command(schema: Path, formula: str | None, data: Path | None, undeclared: bool) -> None:
    """Print a schema; fail if it has blanks or does not match a formula or a table.

    The command reads only the names and types of the table's columns. It does not look for values outside
    the bounds or for missing values, because both are private. With --undeclared, it reads the rows, and
    prints the values of numeric columns that are not numbers, undeclared values of columns with levels, the
    share of values outside the bounds of numeric columns, and the names of columns with missing values; do
    not share that output. Values that the schema merges into the level other are listed separately.

    \b
    Example: privinf schema check schema.toml --formula "wage ~ age + sex" --data rows.parquet
    """  # noqa: D301
    declared = read_schema_file(schema)
    click.echo(repr(declared))
    if declared.blank and formula is None and not undeclared:
        raise SchemaError(
            f"the schema {schema} is not complete; fill in the bounds or levels of "
            f"{', '.join(map(repr, declared.blank))}"
        )
    if formula is not None:
        click.echo(f"coefficients: {', '.join(Design.from_formula(formula, declared).names)}")
    if undeclared and data is None:
        raise ArgumentError(
            "--undeclared needs --data, the table whose values are compared with the schema; pass --data too"
        )
    if data is not None:
        source = source_of(data)
        wrong = _wrong_kinds(declared, source)
        unreadable = _list_undeclared(declared, source) if undeclared else []
        problems = [UNREADABLE.format(source.name, columns_phrase(unreadable))] if unreadable else []
        if texts := [name for name in wrong if name not in unreadable]:
            advice = "" if undeclared else LISTED_BY
            problems.append(WRONG_KINDS.format(source.name, columns_phrase(texts)) + advice)
        if problems:
            raise SchemaError("; ".join(problems))
        if not undeclared:
            click.echo(NOT_CHECKED)
    if declared.blank:
        click.echo(
            "these columns have no bounds or levels, and cannot be used until they are declared: "
            f"{', '.join(map(repr, declared.blank))}"
        )


def _wrong_kinds(schema: Schema, source: Source) -> list[str]:
    """Return the columns of texts that are declared as numbers; SchemaError if a column is absent."""
    names = list(schema.columns)
    require_columns(source, [*names, *([] if schema.unit is None else [schema.unit])])
    click.echo(f"{source.name} has all {len(names)} columns of the schema")
    first = next(iter(source.read(names, "guessed")), None)
    kinds = {} if first is None else kinds_of(first)
    texts = [name for name, kind in kinds.items() if kind == "levels" and name not in schema.blank]
    return [name for name in texts if not schema[name].categorical and schema[name].unit != DAYS]


def _list_undeclared(schema: Schema, source: Source) -> list[str]:
    """Print the values of a table that a schema does not declare, reading each block of rows once.

    Returns the columns with values that are not numbers or dates, as the schema declares.
    """
    values = UndeclaredValues(schema)
    for block in source.read(list(schema.columns), schema if not schema.blank else "guessed"):
        values.add(block)
    for line in values.lines():
        click.echo(line)
    return values.unreadable


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print shell code that completes privinf's commands when you press the Tab key.

    Append the printed code to the startup file of your shell.

    \b
    Example: privinf completion bash >> ~/.bashrc
    """  # noqa: D301
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    click.echo(shell_class(ctx.find_root().command, {}, "privinf", "_PRIVINF_COMPLETE").source())
