"""Inputs of commands: schemas, ledgers, and the options of a budget."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from privinf.accounting.files import LedgerFile
from privinf.bounds import load_schema
from privinf.cli.outputs import DELTA_HELP
from privinf.errors import ArgumentError, FileMissingError, SchemaError
from privinf.schema import Factor, Schema
from privinf.storage.checksummed import parse_json, read_text

Command = TypeVar("Command", bound=Callable[..., Any])
SPENDING = ("epsilon", "delta", "mu", "rho")  # options that state the budget


def spending_options(command: Command) -> Command:
    """Add the options of the budget to a command."""
    for option in (
        click.option(
            "--seed",
            type=int,
            help=("Seed for simulations only (NOT PRIVATE): anyone who knows the seed can remove the noise."),
        ),
        click.option(
            "--rho",
            type=float,
            help=(
                "Privacy budget as the parameter rho of zero-concentrated differential privacy (zCDP); "
                "use this instead of --epsilon."
            ),
        ),
        click.option(
            "--mu",
            type=float,
            help=(
                "Privacy budget as the parameter mu of Gaussian differential privacy; use this instead "
                "of --epsilon."
            ),
        ),
        click.option("--delta", type=float, help=DELTA_HELP),
        click.option(
            "--epsilon",
            type=float,
            help="epsilon of the (epsilon, delta) privacy budget.",
        ),
    ):
        command = option(command)
    return command


def spending_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words of a budget that were given, as models take them."""
    words = {name: options[name] for name in SPENDING if options[name] is not None}
    if not words.keys() - {"delta"}:
        raise ArgumentError("the privacy budget is missing; pass --epsilon with --delta (or --mu, or --rho)")
    return words if options["seed"] is None else words | {"rng": options["seed"]}


def open_ledger(path: Path, remedy: str = "") -> LedgerFile:
    """Open a ledger that is there."""
    try:
        return LedgerFile(path)
    except FileMissingError:
        pass
    raise ArgumentError(
        f"the ledger {str(path)!r} does not exist; create it with 'privinf ledger create {path} "
        f"--epsilon ... --delta ...'{remedy and ', '}{remedy}"
    )


def read_schema_file(path: Path) -> Schema:
    """Read a schema: TOML (`privinf schema`), or the JSON of `Schema.to_dict`."""
    if path.suffix.lower() != ".json":
        return load_schema(path)
    content = parse_json(read_text(path, "a schema"), str(path))
    reason = ""
    defaults = {"unit": None, "max_rows": 1}
    try:
        return Schema.from_dict(defaults | content if isinstance(content, dict) else content)
    except SchemaError as problem:
        reason = str(problem)
    raise SchemaError(f"{path}: {reason}")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file; ArgumentError with the place of a syntax error."""
    text = read_text(path, "a configuration")
    reason = ""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as problem:
        reason = str(problem)
    raise ArgumentError(f"{path} is not a valid TOML file: {reason}")


def event_level(schema: Schema, status: str | None, event: str | None) -> Any:
    """Return the level of a status whose text is the option ``--event``; None without the option."""
    levels: tuple[Any, ...] = ()
    if status is not None and status in schema and isinstance(declared := schema[status], Factor):
        levels = declared.levels
    return next((level for level in levels if str(level) == event), event)
