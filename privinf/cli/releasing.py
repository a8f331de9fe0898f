"""``privinf release``: the one command that reads rows, at their holder."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pandas as pd
from tqdm import tqdm

from privinf.accounting import Budget, Ledger, PrivacyReport
from privinf.accounting.files import LedgerFile
from privinf.cli.outputs import FILE, NEW_FILE, Refusal, check_free, overwrite_option
from privinf.errors import ArgumentError, NotAvailableError, StorageError
from privinf.mechanisms.blocks import TableRows, open_table
from privinf.mechanisms.mixing.plan import MixingPlan
from privinf.releases import Release
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
        release.save(out)
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
        _ShownRows(rows, quiet),
        **spending,
        calibration=plan.calibration,
        ledger=ledger,
        rng=seed,
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
