"""``privinf release`` and ``join``: a holder's rows become a file, the files of all parties one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast, get_args

import click
import pandas as pd
from tqdm import tqdm

import privinf as pi
from privinf.accounting import PrivacyReport
from privinf.accounting.purposes import charged_for
from privinf.cli.inputs import open_ledger, read_schema_file, spending_of, spending_options
from privinf.cli.outputs import (
    FILE,
    NEW_FILE,
    check_free,
    check_release_name,
    ledger_line,
    overwrite_option,
    report_line,
)
from privinf.cli.pending import StagedLedger, digest_of_arguments, finish, save_charged
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError
from privinf.mechanisms.blocks import TableRows, open_table
from privinf.mechanisms.mixing.plan import MixingPlan
from privinf.mechanisms.moments import Moments
from privinf.mechanisms.reading import open_rows
from privinf.mechanisms.rows import EACH_PARTY, refuse_dropping
from privinf.release_kinds import JOINED
from privinf.releases import Release, load_release
from privinf.typing import Imputation, Integers, Missing


class ReleaseOptions(TypedDict):
    """Options of ``privinf release``, as click reads them."""

    plan_file: Path | None
    party: str | None
    schema_file: Path | None
    formula: str | None
    terms: tuple[str, ...]
    data: Path
    out: Path
    ledger_file: Path | None
    epsilon: float | None
    delta: float | None
    mu: float | None
    rho: float | None
    roster: Path | None
    missing: Missing
    seed: int | None
    quiet: bool
    overwrite: bool


@click.command("release")
@click.option(
    "--plan",
    "plan_file",
    type=FILE,
    help="File of the public plan that all parties follow, such as plan.json.",
)
@click.option("--party", help="Name of your party in the plan.")
@click.option(
    "--schema",
    "schema_file",
    type=FILE,
    help=(
        "Schema file of one table, such as schema.toml, made by 'privinf schema suggest'; use "
        "this instead of --plan."
    ),
)
@click.option("--formula", help="Formula of a regression that the release should allow (only with --schema).")
@click.option(
    "--term",
    "terms",
    multiple=True,
    help=(
        "Column, or term of a formula such as C(column), a:b or I(a**2), that the release "
        "should include (only with --schema). May be given several times."
    ),
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="File of your rows: CSV (.csv, .tsv, .gz) or Parquet, or a folder of such files.",
)
@click.option("--out", type=NEW_FILE, required=True, help="File to write and share, whose name ends in .npz.")
@click.option(
    "--ledger",
    "ledger_file",
    type=NEW_FILE,
    help="File of the budget ledger for all releases about these people (required).",
)
@spending_options
@click.option(
    "--roster",
    type=FILE,
    help=(
        "File with the ids of all people of the study in its id column. Error messages then "
        "state how many people are missing from the data."
    ),
)
@click.option(
    "--missing",
    type=click.Choice(get_args(Missing)),
    default="raise",
    show_default=True,
    help=(
        "Treatment of missing values: stop with an error (raise), replace them by the midpoint of the "
        "public bounds (impute-public), or, with --schema, drop the rows that lack a value (drop). The "
        "number of dropped rows stays private."
    ),
)
@click.option("--quiet", is_flag=True, help="Print only errors and warnings.")
@overwrite_option
def release_command(**options: Unpack[ReleaseOptions]) -> None:
    """Turn your rows into one file of noisy sums that you may share.

    The command runs on your own computer and sends nothing. Create the ledger first, only once, with
    'privinf ledger create'. The ledger is charged after all checks and before the file is written. To finish
    a command that was interrupted, repeat it; this does not charge the ledger again.

    Pass --schema for one table. The file of noisy sums then serves every regression among the table's
    columns. Pass --plan if several parties have different columns of the same people. Then the plan sets the
    budget and the id column by which rows are aligned, and data with missing, additional or duplicated
    people are refused.

    \b
    Example for one table:
      privinf release --schema schema.toml --data rows.parquet --epsilon 1 --delta 1e-6 \\
          --ledger study.ledger --out moments.npz

    \b
    Example for one of several parties:
      privinf release --plan plan.json --party clinic_b --data rows.parquet \\
          --ledger clinic_b.ledger --out clinic_b.npz
    """  # noqa: D301
    if (options["plan_file"] is None) == (options["schema_file"] is None):
        raise ArgumentError("pass either --plan and --party, or --schema for one table, not both")
    path = options["ledger_file"]
    digest = _arguments_digest(options)
    if path is None:
        raise ArgumentError(
            "--ledger is missing; pass the file of the budget ledger of these people. To create "
            "one, run 'privinf ledger create study.ledger --epsilon ... --delta ...'"
        )
    ledger = StagedLedger(open_ledger(path))
    has_folder = options["out"].parent.is_dir()
    if (
        has_folder
        and finish(options["out"], ledger.real, path, digest, overwrite=options["overwrite"]) is not None
    ):
        if not options["quiet"]:
            click.echo(
                f"the release was already charged and written to {options['out']}; nothing was charged again"
            )
        return
    check_free(options["out"], options["overwrite"])
    check_release_name(options["out"])
    release, privacy = _of_party(options, ledger) if options["plan_file"] else _of_table(options, ledger)
    moments = f"second moments of {', '.join(options['terms'] or ()) or 'all columns of the schema'}"
    with charged_for(f"privinf release: {options['party'] or options['formula'] or moments}"):
        save_charged(release, options["out"], ledger.real, path, digest)
    if not options["quiet"]:
        click.echo(privacy)
        click.echo(ledger_line(ledger.real, path))
        click.echo(f"written: {options['out']}")


def _arguments_digest(options: ReleaseOptions) -> str:
    """Return the digest of a request: its public files and all options that change a number."""
    left_out = {"quiet", "overwrite", "ledger_file"}
    words = {name: value for name, value in options.items() if name not in left_out}
    return digest_of_arguments(words, (options["plan_file"], options["schema_file"]))


def _of_party(options: ReleaseOptions, ledger: StagedLedger) -> tuple[Release, str]:
    """Return one party's release and its privacy report."""
    for word in ("formula", "terms", "epsilon", "delta", "mu", "rho"):
        if options[word] is not None and options[word] != ():
            name = "--term" if word == "terms" else f"--{word}"
            raise ArgumentError(
                f"{name} can be used only with --schema, because the plan sets the terms and the "
                f"budget; omit {name}"
            )
    assert options["plan_file"] is not None
    plan = MixingPlan.load(options["plan_file"])
    party = options["party"]
    if party is None:
        raise ArgumentError(f"--party is missing; pass your party's name, one of {', '.join(plan.parties)}")
    schema = plan.party(party).schema
    if math.isinf(plan.party(party).total_mu(plan.calibration)):
        raise NotAvailableError(
            "the plan gives this party epsilon=inf, that is, no noise, and a release without noise "
            "is never written to a file; make a plan with a finite epsilon"
        )
    ledger.check(plan.losses(party))
    if options["roster"] is not None and plan.id is None:
        raise ArgumentError(
            "--roster needs a plan with an id column, and this plan has no id column; omit --roster"
        )
    rows = open_table(
        options["data"], schema, id=plan.id, n=plan.n, ids_sha256=plan.ids_sha256, roster=options["roster"]
    )
    release = _released(plan, party, rows, ledger, options)
    return release, _privacy_line(plan, party, release)


def _of_table(options: ReleaseOptions, ledger: StagedLedger) -> tuple[Release, str]:
    """Return the second moments of one table and their privacy report."""
    for word in ("party", "roster"):
        if options[word] is not None:
            raise ArgumentError(f"--{word} can be used only with --plan; omit it with --schema")
    assert options["schema_file"] is not None
    schema = read_schema_file(options["schema_file"])
    if options["formula"] is not None and options["terms"]:
        raise ArgumentError("--formula and --term cannot be combined; pass one of them")
    terms = None if options["formula"] is not None else list(options["terms"] or schema.columns)
    moments = Moments(schema, options["formula"], columns=terms, missing=options["missing"])
    rows = open_rows(options["data"], progress=False if options["quiet"] else None)
    release = moments.release(rows, ledger=ledger, **spending_of(options))
    report = PrivacyReport.from_entries(release.entries, delta=options["delta"])
    return release, f"privacy loss of one {report.unit}: {report_line(report)}"


def _released(
    plan: MixingPlan, party: str, rows: TableRows, ledger: StagedLedger, options: ReleaseOptions
) -> Release:
    refuse_dropping(options["missing"], EACH_PARTY)
    mechanism = plan.mechanism(party, missing=cast("Imputation", options["missing"]))
    if rows.ids_sha256:  # so that the join sees whether all parties hold the same people
        mechanism.labels = dataclasses.replace(mechanism.labels, ids=rows.ids_sha256)
    spending: dict[str, Any] = plan.party(party).spending
    return mechanism.release(
        _ShownRows(rows, options["quiet"]),
        **spending,
        calibration=plan.calibration,
        ledger=ledger,
        rng=options["seed"],
    )


class _ShownRows:
    """Rows with a progress bar on stderr."""

    def __init__(self, rows: TableRows, quiet: bool) -> None:
        self._rows = rows
        self._quiet = quiet

    def __len__(self) -> int:
        return len(self._rows)

    def blocks(self) -> Iterator[tuple[int | Integers, pd.DataFrame]]:
        with tqdm(total=len(self), unit=" rows", unit_scale=True, disable=self._quiet or None) as bar:
            for position, block in self._rows.blocks():
                yield position, block
                bar.update(len(block))


def _privacy_line(plan: MixingPlan, party: str, release: Release) -> str:
    report = PrivacyReport.from_entries(release.entries, delta=release.noise_model["delta"])
    check = plan.check()
    noise = f"{release.noise_source} noise, secure" if release.secure else release.stamp
    width = release.arrays["rows"].shape[1]
    return (
        f"privacy loss of one person by the release of party {party}: epsilon {report.epsilon():.4g} at "
        f"delta {report.default_delta:g} (mu {report.mu:.4g}); {width} column(s), {release.nobs} people, "
        f"{noise}\n"
        f"privacy loss of one person by the releases of all {len(plan.parties)} parties of the plan: epsilon "
        f"{check.epsilon:.4g} at delta {check.delta:g}"
    )


RELEASES = click.argument("files", type=FILE, nargs=-1, required=True)


@click.command("join")
@RELEASES
@click.option(
    "--plan",
    "plan_file",
    type=FILE,
    help=("File of the plan that all parties' releases follow. The releases of all parties are needed."),
)
@click.option("--out", type=NEW_FILE, required=True, help="File to write, whose name ends in .npz.")
@overwrite_option
def join_command(files: tuple[Path, ...], plan_file: Path | None, out: Path, overwrite: bool) -> None:
    """Check the releases of all parties, and join them into one file.

    The command prints the privacy guarantee for one person, for all files together and for each party's file.

    \b
    Example: privinf join clinic_a.npz clinic_b.npz clinic_c.npz --plan plan.json --out joined.npz
    """  # noqa: D301
    check_free(out, overwrite)
    check_release_name(out)
    joined = joined_files(files)
    if plan_file is not None:
        _check_plan(joined, MixingPlan.load(plan_file))
    joined.save(out, overwrite=overwrite)
    click.echo(str(joined.privacy))
    click.echo(f"\nwritten: {out}")


def joined_files(files: tuple[Path, ...]) -> Release:
    """Return the releases of all parties as one."""
    releases = [load_release(path) for path in files]
    if len(releases) == 1 and releases[0].kind.startswith(JOINED):
        return releases[0]
    return pi.join(releases)


def _check_plan(joined: Release, plan: MixingPlan) -> None:
    if joined.noise_model["plan"] != plan.digest:
        raise AlignmentError(
            "the releases were made with a plan that differs from --plan; pass the plan of these releases"
        )
    missing = [name for name in plan.parties if name not in joined.noise_model["parties"]]
    if missing:
        raise AlignmentError(
            "the plan has parties whose releases were not passed: "
            f"{', '.join(map(repr, missing))}; pass their files too"
        )
