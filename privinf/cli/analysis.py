"""``privinf join`` and ``privinf fit``: the analyst's commands, which read releases only."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Literal

import click

from privinf.accounting import PrivacyReport
from privinf.cli.outputs import FILE, NEW_FILE, check_free, overwrite_option, write_text
from privinf.errors import AlignmentError, ArgumentError
from privinf.mechanisms.mixing.plan import MixingPlan
from privinf.mixing.joined import JOINED
from privinf.mixing.results import MixingResults
from privinf.models import BGMOLS, DGMOLS, RMGMOLS, join
from privinf.releases import Release, load_release
from privinf.results.rendering import PrivateSummary

JoinedTarget = Literal["population", "sample"]

SUMMARIES = (".txt", ".html", ".csv", ".tex")
RELEASES = click.argument("files", type=FILE, nargs=-1, required=True)


@click.command("join")
@RELEASES
@click.option("--plan", "plan_file", type=FILE, help="Insist that the files follow this plan, all parties.")
@click.option("--out", type=NEW_FILE, required=True, help="File to write, .npz.")
@overwrite_option
def join_command(files: tuple[Path, ...], plan_file: Path | None, out: Path, overwrite: bool) -> None:
    """Put the releases of all parties into one file, once they are seen to belong together.

    \b
    privinf join clinic_a.npz clinic_b.npz clinic_c.npz --plan plan.json --out joined.npz

    Prints what the files reveal together about one person, and what each party's file reveals alone.
    """  # noqa: D301
    check_free(out, overwrite)
    joined = _joined(files)
    if plan_file is not None:
        _check_plan(joined, MixingPlan.load(plan_file))
    joined.save(out)
    click.echo(str(PrivacyReport.of(joined.entries, delta=joined.law["delta"])))
    click.echo(f"\nwritten: {out}")


@click.command("fit")
@click.argument("formula")
@RELEASES
@click.option("--plain", is_flag=True, help="Plain least squares on the noisy rows: biased, no intervals.")
@click.option("--shrink", is_flag=True, help="Coefficients for prediction: shrunk, no intervals.")
@click.option("--target", type=click.Choice(["population", "sample"]), default="population",
              show_default=True, help="Intervals for the population, or for these very people.")  # fmt: skip
@click.option("--alpha", type=float, default=0.05, show_default=True, help="1 - level of the intervals.")
@click.option("--summary", type=NEW_FILE,
              help="Write the summary to a file that ends in .html, .txt, .csv or .tex.")  # fmt: skip
@overwrite_option
def fit_command(
    formula: str,
    files: tuple[Path, ...],
    plain: bool,
    shrink: bool,
    target: JoinedTarget,
    alpha: float,
    summary: Path | None,
    overwrite: bool,
) -> None:
    """Regress one released column on others; costs no further privacy, as often as you like.

    \b
    privinf fit "glucose ~ age + bmi" clinic_a.npz clinic_b.npz --summary out.html
    privinf fit "bmi ~ age + sex" joined.npz

    FILES are the releases of the parties, or one joined file. The default fit is corrected for the noise, and
    its standard errors hold sampling and privacy noise together.
    """  # noqa: D301
    if plain and shrink:
        raise ArgumentError("--plain and --shrink are different fits: choose one")
    if summary is not None:
        check_free(summary, overwrite)
        if summary.suffix.lower() not in SUMMARIES:
            raise ArgumentError(f"{summary}: a summary ends in {', '.join(SUMMARIES)}")
    result = _fitted(_joined(files), formula, plain=plain, shrink=shrink, target=target)
    made = result.summary(alpha=alpha)
    click.echo(made.as_text())
    if summary is not None:
        write_text(summary, _rendered(made, summary.suffix.lower(), formula))
        click.echo(f"\nwritten: {summary}")


def _joined(files: tuple[Path, ...]) -> Release:
    found = [load_release(path) for path in files]
    if len(found) == 1 and found[0].kind.startswith(JOINED):
        return found[0]
    return join(found)


def _check_plan(joined: Release, plan: MixingPlan) -> None:
    if joined.law["plan"] != plan.digest:
        raise AlignmentError("the files were made from another plan than the one given")
    missing = [name for name in plan.parties if name not in joined.law["parties"]]
    if missing:
        raise AlignmentError(f"the file(s) of {', '.join(missing)} are missing: the plan names them")


def _fitted(
    joined: Release, formula: str, *, plain: bool, shrink: bool, target: JoinedTarget
) -> MixingResults:
    if joined.law["method"] == "random-mixing":
        model: RMGMOLS | DGMOLS = RMGMOLS.from_release(joined)
    else:
        model = (BGMOLS if plain else DGMOLS).from_release(joined)
    return model.regress(formula, debias=not plain, shrink=shrink, target=target)


def _rendered(made: PrivateSummary, suffix: str, title: str) -> str:
    if suffix == ".html":
        head = (
            f'<!doctype html>\n<html><head><meta charset="utf-8"><title>{html.escape(title)}</title></head>'
        )
        return f"{head}<body>\n{made.as_html()}\n</body></html>\n"
    render = {".txt": made.as_text, ".csv": made.as_csv, ".tex": made.as_latex}[suffix]
    return render() + "\n"
