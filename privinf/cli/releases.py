"""``privinf release``, ``join`` and ``fit``: from a holder's rows to a file, and from files to a regression.

``release`` is the one command of these that reads rows, at their holder; ``join`` and ``fit`` are the
analyst's, and read releases only.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import click
import pandas as pd
from tqdm import tqdm

from privinf.accounting import Budget, Ledger, PrivacyReport
from privinf.accounting.files import LedgerFile
from privinf.cli.outputs import FILE, NEW_FILE, Refusal, check_free, overwrite_option, write_text
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, StorageError
from privinf.mechanisms.blocks import TableRows, open_table
from privinf.mechanisms.mixing.plan import MixingPlan
from privinf.mixing.joined import JOINED
from privinf.mixing.results import MixingResults
from privinf.models import BGMOLS, DGMOLS, RMGMOLS, join
from privinf.releases import Release, load_release
from privinf.results.rendering import PrivateSummary
from privinf.typing import Integers, Missing

NO_LEDGER = (
    "Note: without --ledger nothing remembers this release; a second one of the same people would add to "
    "what is known about them."
)


@click.command("release")
@click.option("--plan", "plan_file", type=FILE, required=True, help="The public plan, plan.json.")
@click.option("--party", required=True, help="Which party of the plan you are.")
@click.option("--data", type=click.Path(path_type=Path), required=True,
              help="Your rows: CSV (.csv, .tsv, .gz) or Parquet, one row a person.")  # fmt: skip
@click.option("--out", type=NEW_FILE, required=True, help="The file that may leave the house, .npz.")
@click.option("--ledger", "ledger_file", type=NEW_FILE,
              help="Account of all that was ever released about these people.")  # fmt: skip
@click.option("--budget-epsilon", type=float, help="Limit of a new ledger: epsilon of all releases together.")
@click.option("--budget-delta", type=float, help="The delta of that limit; default: the plan's.")
@click.option("--roster", type=FILE, help="File whose id column lists the people: says how many are missing.")
@click.option("--missing", type=click.Choice(get_args(Missing)), default="raise", show_default=True,
              help="Missing values: refuse, or put in the middle of the public bounds.")  # fmt: skip
@click.option("--seed", type=int, help="Simulation only: noise that whoever knows the seed can remove.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors and warnings.")
@overwrite_option
def release_command(
    plan_file: Path,
    party: str,
    data: Path,
    out: Path,
    ledger_file: Path | None,
    budget_epsilon: float | None,
    budget_delta: float | None,
    roster: Path | None,
    missing: Missing,
    seed: int | None,
    quiet: bool,
    overwrite: bool,
) -> None:
    """Turn your rows into one file of noisy sums that may leave the house.

    \b
    privinf release --plan plan.json --party clinic_b --data rows.parquet \\
        --ledger clinic_b.ledger --budget-epsilon 2 --out clinic_b.npz

    Runs on your own machine and sends nothing. Rows are aligned by the plan's id column; people who are
    missing, too many or there twice are refused. First everything is checked and the rows are read; then the
    ledger is charged, or refuses; then noise is drawn and the file is written.
    """  # noqa: D301
    check_free(out, overwrite)
    plan = MixingPlan.load(plan_file)
    schema = plan.party(party).schema
    if math.isinf(plan.party(party).total_mu(plan.calibration)):
        raise NotAvailableError("the plan gives this party epsilon=inf: a release without noise is no file")
    ledger = _ledger(ledger_file, budget_epsilon, budget_delta, plan, party)
    ledger.check(plan.losses(party))
    if roster is not None and plan.id is None:
        raise ArgumentError("--roster needs an id column, and the plan has none")
    rows = open_table(data, schema, id=plan.id, n=plan.n, ids_sha256=plan.ids_sha256, roster=roster)
    release = _released(plan, party, rows, ledger, missing=missing, seed=seed, quiet=quiet)
    try:
        release.save(out, overwrite=overwrite)
    except StorageError as problem:
        raise Refusal(
            f"{out} cannot be written ({problem}); the release is charged to the ledger and lost"
        ) from None
    if not quiet:
        click.echo(_privacy_line(plan, party, release))
        click.echo(_ledger_line(ledger, ledger_file) if ledger_file else NO_LEDGER)
        click.echo(f"written: {out}")


def _released(
    plan: MixingPlan,
    party: str,
    rows: TableRows,
    ledger: Ledger,
    *,
    missing: Missing,
    seed: int | None,
    quiet: bool,
) -> Release:
    mechanism = plan.mechanism(party, missing=missing)
    if rows.ids_sha256:  # so that the join sees whether all parties hold the same people
        mechanism.labels = dataclasses.replace(mechanism.labels, ids=rows.ids_sha256)
    spending: dict[str, Any] = plan.party(party).spending
    return mechanism.release(
        _ShownRows(rows, quiet), **spending, calibration=plan.calibration, ledger=ledger, rng=seed
    )


class _ShownRows:
    """Rows with a progress bar on stderr."""

    def __init__(self, rows: TableRows, quiet: bool) -> None:
        self._rows, self._quiet = rows, quiet

    def __len__(self) -> int:
        return len(self._rows)

    def blocks(self) -> Iterator[tuple[int | Integers, pd.DataFrame]]:
        with tqdm(total=len(self), unit=" rows", unit_scale=True, disable=self._quiet or None) as bar:
            for position, block in self._rows.blocks():
                yield position, block
                bar.update(len(block))


def _ledger(
    path: Path | None, epsilon: float | None, delta: float | None, plan: MixingPlan, party: str
) -> Ledger:
    if epsilon is None and delta is not None:
        raise ArgumentError("--budget-delta belongs to --budget-epsilon")
    if path is None:
        if epsilon is not None:
            raise ArgumentError("--budget-epsilon is the limit of a ledger: name its file, --ledger")
        return Ledger()
    if epsilon is None:
        if not path.exists():
            raise ArgumentError(f"there is no ledger at {path}: give its limit, --budget-epsilon")
        return LedgerFile(path)
    stated = plan.party(party).delta if delta is None else delta
    if not stated:
        raise ArgumentError("the limit needs a delta: --budget-delta")
    return LedgerFile(path, Budget(epsilon=epsilon, delta=stated))


def _privacy_line(plan: MixingPlan, party: str, release: Release) -> str:
    report = PrivacyReport.of(release.entries, delta=release.law["delta"])
    check = plan.check()
    noise = f"{release.noise_source} noise, secure" if release.secure else release.stamp
    width = release.arrays["rows"].shape[1]
    return (
        f"privacy of {party}: epsilon {report.epsilon():.4g} at delta {report.default_delta:g} "
        f"(mu {report.mu:.4g}) for one person's row of {width} column(s), {release.nobs} people; {noise}\n"
        f"privacy of one person over all {len(plan.parties)} parties of the plan: epsilon "
        f"{check.epsilon:.4g} at delta {check.delta:g}"
    )


def _ledger_line(ledger: Ledger, path: Path) -> str:
    assert ledger.budget is not None  # a ledger file has a limit
    delta = ledger.budget.delta
    spent = PrivacyReport.of(ledger.entries, delta=delta)
    return (
        f"ledger {path}: {len(ledger)} release(s), epsilon {spent.epsilon():.4g} of "
        f"{ledger.budget.epsilon(spent.default_delta):.4g} at delta {spent.default_delta:g}"
    )


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
    joined.save(out, overwrite=overwrite)
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
