"""``privinf survival``: curves and a log-rank test of a table of rows, charged to a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args

import click
import numpy as np

import privinf as pi
from privinf.accounting import Ledger
from privinf.cli.fits import PICTURES, RENDERERS, rendered
from privinf.cli.inputs import event_level, open_ledger, read_schema_file, spending_of, spending_options
from privinf.cli.outputs import (
    ALPHA_HELP,
    FILE,
    NEW_FILE,
    NO_LEDGER,
    check_outputs,
    check_release_name,
    ledger_line,
    overwrite_option,
)
from privinf.errors import ArgumentError
from privinf.mechanisms.reading import open_rows
from privinf.storage.checksummed import save_text
from privinf.survival.rows import DEFAULT_INTERVALS
from privinf.typing import LogRankWeights, Missing
from privinf.validation import check_count, check_fraction

if TYPE_CHECKING:
    from privinf.results.rendering import PrivateSummary
    from privinf.schema import Schema
    from privinf.survival import SurvivalResult

NO_GROUPS = "{} compares groups: pass --by too, with the name of the column of the groups"
EVERY_TIME = (
    "--every-time needs --grid, the number of times at which events can occur: for whole months up to {0}, "
    "pass --grid {0}"
)


class CurveOptions(TypedDict):
    """Options of ``privinf survival``, as click reads them."""

    time: str
    status: str
    event: str | None
    file: Path
    schema_file: Path
    by: str | None
    horizon: float | None
    grid: int | None
    every_time: bool
    at: tuple[float, ...]
    weights: LogRankWeights | None
    missing: Missing
    ledger_file: Path | None
    name: str | None
    epsilon: float | None
    delta: float | None
    mu: float | None
    rho: float | None
    seed: int | None
    alpha: float
    out: Path | None
    json_file: Path | None
    summary: Path | None
    plot_file: Path | None
    quiet: bool
    overwrite: bool


@click.command("survival")
@click.argument("time")
@click.argument("status")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--schema",
    "schema_file",
    type=FILE,
    required=True,
    help="Schema file with the bounds of the time and the levels of status and groups, such as schema.toml.",
)
@click.option("--event", help="Level of the status that is the event, if its levels are texts, such as dead.")
@click.option("--by", help="Column of the groups: one curve for each group, and a test of equal hazards.")
@click.option(
    "--horizon", type=float, help="Public end of the follow-up. Default: the upper bound of the time."
)
@click.option(
    "--grid",
    type=int,
    show_default=str(DEFAULT_INTERVALS),
    help="Number of intervals of equal length up to the horizon; with --every-time, number of times.",
)
@click.option(
    "--every-time",
    is_flag=True,
    help="The end of an interval is the only time at which events can occur in it. Needs --grid, such as "
    "--grid 60 for whole months up to 60.",
)
@click.option(
    "--at", type=float, multiple=True, help="Also print the curves at this time. May be passed several times."
)
@click.option(
    "--weights",
    type=click.Choice(get_args(LogRankWeights)),
    help="Weights of the test: logrank (default), or more weight early (fleming-harrington, gehan).",
)
@click.option(
    "--missing",
    type=click.Choice(["raise", "drop"]),
    default="raise",
    show_default=True,
    help=(
        "Treatment of missing values: stop with an error, or drop the rows that lack a time, status or "
        "group, whose number stays private."
    ),
)
@spending_options
@click.option(
    "--ledger",
    "ledger_file",
    type=NEW_FILE,
    help="File of the budget ledger to charge, made by 'privinf ledger create'.",
)
@click.option("--name", help="Name of the release in the ledger, which 'privinf ledger show' prints.")
@click.option("--alpha", type=float, default=0.05, show_default=True, help=ALPHA_HELP)
@click.option(
    "--out", type=NEW_FILE, help="Save the curves to an .npz file, which SurvivalResult.load reads."
)
@click.option("--json", "json_file", type=NEW_FILE, help="Write the curves to a JSON file.")
@click.option(
    "--summary", type=NEW_FILE, help="Write the summary to a file that ends in .html, .txt, .csv or .tex."
)
@click.option("--plot", "plot_file", type=NEW_FILE, help="Plot the curves to a .png, .svg or .pdf file.")
@click.option("--quiet", is_flag=True, help="Print only errors and warnings.")
@overwrite_option
def survival_command(**options: Unpack[CurveOptions]) -> None:
    """Estimate survival curves and medians of a table of rows, and compare groups.

    TIME and STATUS are columns of FILE. The time has public bounds in the schema, and the status two levels,
    of which the second is the event. If the levels are texts, --event names the event. One noisy release of
    counts serves curves, medians, the log-rank test and the hazard ratio. All arguments are checked before
    the ledger is charged, and the ledger is charged before any result is computed from rows.

    \b
    Example:
      privinf survival months state trial.csv --event dead --by arm --schema schema.toml \\
          --at 12 --at 24 --epsilon 1 --delta 1e-6 --ledger study.ledger --plot curves.png
    """  # noqa: D301
    level = 1.0 - check_fraction(options["alpha"], "--alpha")
    _check(options)
    schema = read_schema_file(options["schema_file"])
    words: dict[str, Any] = spending_of(options)
    account = options["ledger_file"]
    ledger = Ledger() if account is None else open_ledger(account)
    model = pi.survival.KaplanMeier(
        options["time"],
        options["status"],
        event=event_level(schema, options["status"], options["event"]),
        by=options["by"],
        data=open_rows(options["file"], progress=False if options["quiet"] else None),
        schema=schema,
        missing=options["missing"],
        ledger=ledger if options["name"] is None else ledger.named(options["name"]),
        **_grid(options, schema),
    )
    result = model.fit(confidence_level=level, **words)
    tables = [result.summary()]
    if options["by"] is not None:
        tables.append(result.logrank(options["weights"] or "logrank").summary())
    if not options["quiet"]:
        texts = [table.as_text() for table in tables]
        if options["at"]:
            texts.append(result.at(list(options["at"])).to_string(na_rep="", float_format="{:.4f}".format))
        click.echo("\n\n".join(texts))
        click.echo(NO_LEDGER if account is None else ledger_line(ledger, account), err=True)
    _write(options, result, tables)


def _check(options: CurveOptions) -> None:
    """Raise ArgumentError, before any work, for options that do not fit."""
    files = {"--out": options["out"], "--json": options["json_file"], "--summary": options["summary"]}
    check_outputs(files | {"--plot": options["plot_file"]}, options["overwrite"])
    for option, path, endings in (
        ("--summary", options["summary"], tuple(RENDERERS)),
        ("--plot", options["plot_file"], PICTURES),
    ):
        if path is not None and path.suffix.lower() not in endings:
            raise ArgumentError(
                f"{option} {path} must be a file name that ends in one of {', '.join(endings)}"
            )
    if options["out"] is not None:
        check_release_name(options["out"])
    if options["weights"] is not None and options["by"] is None:
        raise ArgumentError(NO_GROUPS.format("--weights"))
    if options["name"] is not None and options["ledger_file"] is None:
        raise ArgumentError("--name is the name of a release in a ledger; pass --ledger too, or omit --name")


def _grid(options: CurveOptions, schema: Schema) -> dict[str, Any]:
    """Return the arguments of the grid: intervals of equal length, or every time that can occur."""
    end = options["horizon"]
    if end is None:
        end = getattr(schema[options["time"]], "high", None)
    if end is None:
        raise ArgumentError(
            f"{options['time']} has no upper bound in the schema; declare it, or pass --horizon"
        )
    if any(not 0.0 <= time <= end for time in options["at"]):
        raise ArgumentError(f"--at must be a time from 0 to {end:g}, the public end of the follow-up")
    grid = options["grid"]
    if not options["every_time"]:
        return {"grid": DEFAULT_INTERVALS if grid is None else grid, "horizon": options["horizon"]}
    if grid is None:
        raise ArgumentError(EVERY_TIME.format(f"{end:g}"))
    intervals = check_count(grid, "--grid")
    return {"grid": np.linspace(0.0, end, intervals + 1)[1:], "discrete": True}


def _write(options: CurveOptions, result: SurvivalResult, tables: Sequence[PrivateSummary]) -> None:
    """Write the requested files."""
    overwrite = options["overwrite"]
    if options["out"] is not None:
        result.save(options["out"], overwrite=overwrite)
    if options["json_file"] is not None:
        result.to_json(options["json_file"], overwrite=overwrite)
    if (summary := options["summary"]) is not None:
        title = f"{options['time']}, {options['status']}"
        save_text(summary, rendered(tables, summary.suffix.lower(), title), overwrite=overwrite)
    if options["plot_file"] is not None:
        picture: Any = result.plot().figure
        picture.savefig(options["plot_file"], bbox_inches="tight")
    for path in (options["out"], options["json_file"], options["summary"], options["plot_file"]):
        if path is not None and not options["quiet"]:
            click.echo(f"\nwritten: {path}")
