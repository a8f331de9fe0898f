"""Output of commands: one-line reports, JSON, and files that are never overwritten by default."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

import click
import pandas as pd

from privinf.accounting import Ledger, PrivacyReport
from privinf.accounting.released import appended
from privinf.errors import ArgumentError

Command = TypeVar("Command", bound=Callable[..., Any])
NO_LEDGER = (
    "Note: without --ledger this release is not recorded. Privacy losses of releases about "
    "the same people add up, so the total would be unknown."
)
# Below the table of estimators.
ADVICE_COLUMNS = (
    "width: median width of the intervals over coefficients; times: width divided by the width without "
    "privacy (geometric mean over coefficients); best: whether the estimator has the narrowest intervals for "
    "its trust; verdict: whether its intervals can be used"
)
# Of --delta.
DELTA_HELP = (
    "delta of the (epsilon, delta) guarantee, such as 1e-6; choose it well below 1/n, "
    "where n is the number of people."
)
# Of --alpha.
ALPHA_HELP = "Significance level; intervals have confidence level 1 - alpha."
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)


def overwrite_option(command: Command) -> Command:
    """Give a command the option --overwrite."""
    return click.option("--overwrite", is_flag=True, help="Replace existing output files.")(command)


json_option = click.option("--json", "as_json", is_flag=True, help="Print the output as JSON.")


def say(facts: Mapping[str, Any], as_json: bool, *lines: str) -> None:
    """Print the result of a command: as JSON, or as lines for people."""
    for line in [json.dumps(facts, allow_nan=False)] if as_json else lines:
        click.echo(line)


def check_free(path: Path, overwrite: bool | None) -> None:
    """Raise ArgumentError, before any work, if `path` exists or cannot be written.

    `overwrite` is None where existing files are never replaced.
    """
    if not path.parent.is_dir():
        raise ArgumentError(
            f"the folder {str(path.parent)!r} does not exist; create it, or choose another folder for "
            f"{path.name!r}"
        )
    if not os.access(path.parent, os.W_OK):
        raise ArgumentError(
            f"the folder {path.parent} is not writable; choose another folder for {path.name}"
        )
    if path.exists() and not overwrite:
        replaced = "" if overwrite is None else ", or replace it with --overwrite"
        raise ArgumentError(f"the file {path} already exists; choose another name{replaced}")


def check_outputs(files: Mapping[str, Path | None], overwrite: bool) -> None:
    """Raise ArgumentError, before any work, if a file exists or cannot be written, or two options name it."""
    options: dict[Path, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        check_free(path, overwrite)
        if (other := options.setdefault(path.resolve(), option)) != option:
            raise ArgumentError(f"{other} and {option} name the same file, {path}; choose two names")


def check_release_name(path: Path) -> None:
    """Raise ArgumentError, before any work, unless other commands read a file of this name as a release."""
    if path.suffix.lower() != ".npz":
        raise ArgumentError(f"--out {path} must be a file name that ends in .npz, such as {path.stem}.npz")


def report_line(report: PrivacyReport) -> str:
    """Return the budget spent, in one line, epsilon first."""
    noise = report.stamp or "secure noise"
    spent = f"epsilon {report.epsilon():.4g} at delta {report.default_delta:g}"
    return f"{spent} (neighboring relation {report.relation}, trust model {report.trust}, {noise})"


def ledger_line(ledger: Ledger, path: Path) -> str:
    """Return the total of a ledger, in one line, epsilon first."""
    assert ledger.budget is not None  # a ledger file has a limit
    spent = PrivacyReport.from_entries(ledger.entries, delta=ledger.budget.delta)
    delta = spent.default_delta
    return (
        f"ledger {path}: {ledger.fits.counted} spent epsilon {spent.epsilon():.4g} of "
        f"{ledger.budget.epsilon(delta):.4g} at delta {delta:g}{appended(spent.stamp)}"
    )


def advice_text(frame: pd.DataFrame) -> str:
    """Return the table of estimators, with the assumptions of each or the reason why it is not available."""
    table = frame.drop(columns="reason").to_string(index=False, float_format="{:.4g}".format, na_rep="-")
    lines = [
        f"{name}, {', '.join(rows['trust'])}: {reason}"
        for (name, reason), rows in frame.groupby(["estimator", "reason"], sort=False)
    ]
    lines = [ADVICE_COLUMNS, "", *lines]
    wrapped = (fill(line, 100, subsequent_indent="    ", break_long_words=False) for line in lines)
    return "\n".join([table, "", *wrapped])
