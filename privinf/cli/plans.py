"""``privinf plan``: write the public plan of a study, and report its cost and feasibility."""

from __future__ import annotations

import csv
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack, get_args

import click

from privinf.cli.outputs import DELTA_HELP, FILE, NEW_FILE, check_free, overwrite_option
from privinf.errors import ArgumentError, PrivinfError, SchemaError
from privinf.mechanisms.blocks import read_roster
from privinf.mechanisms.mixing.party import PartyPlan
from privinf.mechanisms.mixing.plan import MixingPlan
from privinf.mechanisms.mixing.theory import DEFAULT_RSQUARED
from privinf.schema import Factor, Numeric, Schema
from privinf.storage.checksummed import parse_json, read_text, save_text
from privinf.typing import Calibration, DiameterChoice, MixingKind, MixingMethod, RowsRule

Declared = Numeric | Factor
Lines = list[tuple[str, str, Declared]]  # party, column, bounds or levels
# Of the table of columns from which a plan can be made.
CSV_FIELDS = ("party", "column", "low", "high", "levels")


class NewOptions(TypedDict):
    """Options of ``privinf plan new``, as click reads them."""

    columns: Path | None
    specs: tuple[str, ...]
    n: int | None
    epsilon: float
    delta: float
    party_epsilon: tuple[str, ...]
    id_: str | None
    roster: Path | None
    k: str
    label: str | None
    rsquared: float
    kind: MixingKind
    seed: int | None
    method: MixingMethod
    intercept: bool | None
    diameter: DiameterChoice
    calibration: Calibration
    out: Path
    overwrite: bool


@click.group("plan")
def plan_group() -> None:
    """Make or check the public plan that all parties follow.

    A plan contains no data. It lists the parties, the number of people, the columns with their bounds, and
    the privacy budget of each release. It is public.
    """


@plan_group.command("new")
@click.option(
    "--columns",
    type=FILE,
    help="File of all columns: CSV with the header party,column,low,high,levels and | between "
    'levels; or JSON of the form {"party": {"column": [low, high]}}, with a list of levels '
    "for a categorical column.",
)
@click.option(
    "--column",
    "specs",
    multiple=True,
    metavar="PARTY:COLUMN:LOW:HIGH",
    help=(
        "Party, name and bounds of one column; for a categorical column, "
        "PARTY:COLUMN:LEVEL|LEVEL. May be given several times, with or without --columns."
    ),
)
@click.option("--n", type=int, help="Number of people in the study; not needed with --roster.")
@click.option(
    "--epsilon", type=float, required=True, help="epsilon of the privacy budget of each party's release."
)
@click.option(
    "--delta",
    type=float,
    required=True,
    help=DELTA_HELP,
)
@click.option(
    "--party-epsilon",
    multiple=True,
    metavar="PARTY=EPSILON",
    help=("epsilon of the named party's release, instead of --epsilon. May be given several times."),
)
@click.option(
    "--id",
    "id_",
    metavar="COLUMN",
    help=("Name of the column that identifies a person at all parties; the parties' rows are matched by it."),
)
@click.option(
    "--roster",
    type=FILE,
    help=("CSV or Parquet file with the ids of all people of the study, in the column that --id names."),
)
@click.option(
    "--k",
    default="auto",
    show_default=True,
    help=(
        "Number of random sums over people that each party releases; auto chooses it, and paper is the rule "
        "of the paper, sqrt(n)/sigma."
    ),
)
@click.option(
    "--label",
    help=(
        "Name of the column that will be the response of regressions, for a better choice of "
        "the number of sums (--k auto)."
    ),
)
@click.option(
    "--rsquared",
    type=float,
    default=DEFAULT_RSQUARED,
    show_default=True,
    help=("Guess of the regression's R-squared, for --k auto and for the forecast of accuracy."),
)
@click.option(
    "--kind",
    type=click.Choice(get_args(MixingKind)),
    default="countsketch",
    show_default=True,
    help=("Type of the random weights in the sums over people; all types are equally accurate."),
)
@click.option(
    "--seed",
    type=int,
    help="Seed of the random weights in the sums over people. It is public. Default: random.",
)
@click.option(
    "--method",
    type=click.Choice(get_args(MixingMethod)),
    default="random-mixing",
    show_default=True,
    help=(
        "Release random sums over people (random-mixing), or the row of each person, which "
        "needs much more noise."
    ),
)
@click.option(
    "--intercept/--no-intercept",
    default=None,
    help=("Whether regressions have an intercept. Default: yes for --method random-mixing, otherwise no."),
)
@click.option(
    "--diameter",
    type=click.Choice(get_args(DiameterChoice)),
    default="own",
    show_default=True,
    help=(
        "Basis of each party's noise: the width of its own bounds (own), or the largest width "
        "of all parties (largest)."
    ),
)
@click.option(
    "--calibration",
    type=click.Choice(get_args(Calibration)),
    default="exact",
    show_default=True,
    help=(
        "Formula for the standard deviation of Gaussian noise: exact, or the classic bound, "
        "which gives more noise."
    ),
)
@click.option("--out", type=NEW_FILE, required=True, help="File to write, such as plan.json.")
@overwrite_option
def new_command(**options: Unpack[NewOptions]) -> None:
    """Make a plan; print its privacy guarantee and whether its noise is small enough for a regression.

    Bounds are public and must come from prior knowledge, not from the data. Values outside the bounds are
    clipped to the bounds.

    \b
    Example for two parties:
      privinf plan new --column clinic_a:age:18:90 --column "clinic_a:sex:f|m" \\
          --column clinic_b:glucose:50:250 --n 250000 --id patient \\
          --epsilon 1 --delta 1e-6 --out plan.json
    """  # noqa: D301
    check_free(options["out"], options["overwrite"])
    plan = _plan_of(options)
    report = _described(plan, options["rsquared"])
    save_text(options["out"], plan.to_json() + "\n", overwrite=options["overwrite"])
    click.echo(report)
    click.echo(f"written: {options['out']}")


def _plan_of(options: NewOptions) -> MixingPlan:
    schemas = read_columns(options["columns"], options["specs"])
    people, digest = _people(options["n"], options["id_"], options["roster"])
    levels = _party_levels(options["party_epsilon"], schemas)
    guessed = options["method"] == "random-mixing" and options["k"] == "auto"
    return MixingPlan.new(
        parties={
            name: PartyPlan(schema, epsilon=levels.get(name, options["epsilon"]), delta=options["delta"])
            for name, schema in schemas.items()
        },
        n=people,
        method=options["method"],
        k=_rows(options["k"]),
        intercept=options["intercept"],
        rsquared=options["rsquared"] if guessed else None,
        label=options["label"],
        kind=options["kind"],
        seed=secrets.randbits(32) if options["seed"] is None else options["seed"],
        id=options["id_"],
        ids_sha256=digest,
        diameter=options["diameter"],
        calibration=options["calibration"],
    )


@plan_group.command("check")
@click.argument("plan", type=FILE)
@click.option(
    "--rsquared",
    type=float,
    default=DEFAULT_RSQUARED,
    show_default=True,
    help="Guess of the regression's R-squared, for the forecast of accuracy.",
)
def check_command(plan: Path, rsquared: float) -> None:
    """Print a plan's privacy guarantee and whether its noise allows a regression; no row is read."""
    click.echo(_described(MixingPlan.load(plan), rsquared))


def _people(n: int | None, id_: str | None, roster: Path | None) -> tuple[int, str | None]:
    """Return the number of people and the digest of their ids."""
    if roster is None:
        if n is None:
            raise ArgumentError("the number of people is missing; pass --n, or --roster with --id")
        return n, None
    if id_ is None:
        raise ArgumentError("--roster needs --id, the name of the column of people's ids in that file")
    people, digest = read_roster(roster, id_)
    if n is not None and n != people:
        raise ArgumentError(
            f"--n {n} differs from the number of people in the --roster file, {people}; omit --n"
        )
    return people, digest


def _rows(k: str) -> int | RowsRule:
    if k == "auto":
        return "auto"
    if k == "paper":
        return "paper"
    try:
        return int(k)
    except ValueError:
        raise ArgumentError(f"--k must be an integer, auto or paper, not {k!r}") from None


def _party_levels(pairs: Iterable[str], parties: Iterable[str]) -> dict[str, float]:
    names = list(parties)
    levels: dict[str, float] = {}
    for pair in pairs:
        name, _, value = pair.rpartition("=")
        if name not in names:
            raise ArgumentError(
                f"--party-epsilon {pair} must be PARTY=EPSILON, where PARTY is one of {', '.join(names)}"
            )
        try:
            levels[name] = float(value)
        except ValueError:
            raise ArgumentError(f"--party-epsilon {pair}: epsilon must be a number") from None
    return levels


def _described(plan: MixingPlan, rsquared: float) -> str:
    lines = [str(plan.check(rsquared))]
    for name, party in plan.parties.items():
        lines += ["", f"columns of {name}:", *(f"  {line}" for line in repr(party.schema).splitlines()[1:])]
    if plan.id is None:
        lines += ["", "the plan has no id column, so the rows of all parties must be in the same order"]
    else:
        alignment = (
            "the people must be those in the --roster file of the plan"
            if plan.ids_sha256
            else (
                "the plan has no list of people, so 'privinf join' checks that all parties have the "
                "same people"
            )
        )
        lines += ["", f"rows of the parties are matched by the column {plan.id!r}; {alignment}"]
    return "\n".join([*lines, f"digest of the plan: {plan.digest}"])


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
        raise ArgumentError("the plan has no columns; pass --columns FILE or --column PARTY:COLUMN:LOW:HIGH")
    parties: dict[str, dict[str, Declared]] = {}
    for party, column, declared in lines:
        columns = parties.setdefault(party, {})
        if column in columns:
            raise SchemaError(f"column {column!r} of party {party!r} is declared twice")
        columns[column] = declared
    return {party: Schema(columns) for party, columns in parties.items()}


def _from_spec(spec: str) -> tuple[str, str, Declared]:
    parts = [part.strip() for part in spec.split(":")]
    if len(parts) == 4 and all(parts[:2]):
        return parts[0], parts[1], _bounds(parts[2], parts[3], f"--column {spec}")
    if len(parts) == 3 and all(parts):
        return parts[0], parts[1], _levels(parts[2].split("|"), f"--column {spec}")
    raise ArgumentError(f"--column {spec} must be PARTY:COLUMN:LOW:HIGH or PARTY:COLUMN:LEVEL|LEVEL|...")


def _csv_lines(path: Path) -> Lines:
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            records = list(csv.DictReader(stream))
    except (UnicodeDecodeError, csv.Error):
        raise ArgumentError(f"{path} must be a CSV file in UTF-8") from None
    lines: Lines = []
    for number, record in enumerate(records, start=2):
        cells = {str(key).strip(): (value or "").strip() for key, value in record.items() if key is not None}
        unknown = [name for name in cells if name not in CSV_FIELDS]
        if unknown or not {"party", "column"} <= cells.keys():
            raise ArgumentError(f"{path}: the first line must be the header {','.join(CSV_FIELDS)}")
        if not any(cells.values()):
            continue
        place = f"{path}, line {number}"
        if not cells["party"] or not cells["column"]:
            raise ArgumentError(f"{place}: fill in both the party and the column; one of them is empty")
        levels, low, high = (cells.get(name, "") for name in ("levels", "low", "high"))
        if bool(levels) == bool(low or high):
            raise ArgumentError(f"{place}: fill in either both 'low' and 'high', or 'levels' separated by |")
        declared = _levels(levels.split("|"), place) if levels else _bounds(low, high, place)
        lines.append((cells["party"], cells["column"], declared))
    return lines


def _json_lines(path: Path) -> Lines:
    content = parse_json(read_text(path, "a JSON file").removeprefix("\ufeff"), str(path))
    form = (
        'the file must have the form {"party": {"column": [low, high]}}, with a list of levels '
        "for a categorical column"
    )
    if not isinstance(content, dict) or not all(isinstance(columns, dict) for columns in content.values()):
        raise ArgumentError(f"{path}: {form}")
    return [
        (party, column, _from_json(item, f"{path}, column {column!r}", form))
        for party, columns in content.items()
        for column, item in columns.items()
    ]


def _from_json(item: Any, place: str, form: str) -> Declared:
    if isinstance(item, Mapping) and set(item) == {"levels"}:
        return _levels(item["levels"], place)
    if isinstance(item, Mapping) and set(item) == {"low", "high"}:
        return _bounds(item["low"], item["high"], place)
    if isinstance(item, list) and len(item) == 2 and not any(isinstance(x, (str, bool)) for x in item):
        return _bounds(item[0], item[1], place)
    if isinstance(item, list):
        return _levels(item, place)
    raise ArgumentError(f"{place}: {form}")


def _bounds(low: Any, high: Any, place: str) -> Numeric:
    try:
        return Numeric(float(low), float(high))
    except PrivinfError as problem:
        raise SchemaError(f"{place}: {problem}") from None
    except (TypeError, ValueError):
        raise ArgumentError(f"{place}: the bounds low and high must be numbers") from None


def _levels(levels: Any, place: str) -> Factor:
    try:
        return Factor(tuple(level.strip() if isinstance(level, str) else level for level in levels))
    except (PrivinfError, TypeError) as problem:
        raise SchemaError(f"{place}: {problem}") from None
