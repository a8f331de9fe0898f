"""``privinf study``, before there are rows; ``privinf fit``, of rows, charged to a ledger, or of releases."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

import click

import privinf as pi
from privinf.accounting import Ledger
from privinf.cli.inputs import (
    event_level,
    open_ledger,
    read_schema_file,
    read_toml,
    spending_of,
    spending_options,
)
from privinf.cli.outputs import (
    ALPHA_HELP,
    FILE,
    NEW_FILE,
    NO_LEDGER,
    advice_text,
    check_free,
    check_outputs,
    ledger_line,
    overwrite_option,
)
from privinf.cli.releases import joined_files
from privinf.errors import ArgumentError, NotAvailableError
from privinf.mechanisms.mixing.release import GaussianRows, RandomMixing
from privinf.mechanisms.reading import open_rows
from privinf.release_kinds import JOINED
from privinf.releases import Release, load_release
from privinf.storage.checksummed import save_text
from privinf.storage.containers import stored_format
from privinf.survival.base import RESULT_CLASSES
from privinf.survival.storage import load_release as load_survival_release
from privinf.typing import CovWord, Missing, StudyFamily, TrustModel
from privinf.validation import check_fraction
from privinf.wire import Formats

if TYPE_CHECKING:
    from privinf.results import Results
    from privinf.results.rendering import PrivateSummary
    from privinf.schema import Schema

JoinedTarget = Literal["population", "sample"]
PICTURES = (".png", ".svg", ".pdf")
SAVED_LEVEL = "--alpha is for fits: {} contains a survival result, which has its own confidence level"
# Methods of a summary, by the suffix of the file that it is written to.
RENDERERS = {".txt": "as_text", ".html": "as_html", ".csv": "as_csv", ".tex": "as_latex"}
# Models of the package for a table of rows.
ROW_MODELS = {
    "ols": "OLS",
    "logit": "Logit",
    "poisson": "Poisson",
    "negative-binomial": "NegativeBinomial",
    "moments": "MomentOLS",
    "phreg": "PHReg",
}
MARGINS_MODELS = ("logit", "poisson", "negative-binomial")  # whose average marginal effects need a release
ROLE_COLUMNS = ("weights", "offset", "exposure")  # options that name a column of the table
OF_TIMES = ("status", "event", "horizon")  # options of --model phreg
# Options that the model of times does not have, and why.
NOT_OF_TIMES = {
    "cov_type": "its standard errors are always robust",
    "coefficients_only": "it has intervals, or is refused before a charge",
    **dict.fromkeys(ROLE_COLUMNS, "every record counts once"),
}
# Options of a fit on rows.
ON_ROWS = (
    "model",
    "epsilon",
    "delta",
    "mu",
    "rho",
    "seed",
    "ledger_file",
    "name",
    "cov_type",
    "coefficients_only",
    "margins",
    *ROLE_COLUMNS,
    *OF_TIMES,
)
ON_RELEASES = ("plain", "shrink")  # options of a fit on the releases of several parties
UNREACHED = "{}. Nothing was charged. {}"
COEFFICIENTS_INSTEAD = "Pass --coefficients-only to estimate coefficients without intervals"
MOMENTS_INSTEAD = (
    "Pass --model moments for score intervals, which are wide at this budget, or "
    "--coefficients-only to estimate coefficients without intervals"
)
POISSON_INSTEAD = (
    "Use --model poisson with --coefficients-only to estimate coefficients of the same mean without intervals"
)
# Remedies of a fit without intervals by model; of others, `COEFFICIENTS_INSTEAD`.
INSTEAD = {"ols": MOMENTS_INSTEAD, "negative-binomial": POISSON_INSTEAD}
OF_PARTIES = (GaussianRows.kind, RandomMixing.kind, JOINED)  # kinds of release that such a fit reads


class FitOptions(TypedDict):
    """Options of ``privinf fit``, as click reads them."""

    formula: str
    files: tuple[Path, ...]
    schema_file: Path | None
    model: str | None
    ledger_file: Path | None
    name: str | None
    epsilon: float | None
    delta: float | None
    mu: float | None
    rho: float | None
    seed: int | None
    cov_type: CovWord | None
    missing: Missing | None
    weights: str | None
    offset: str | None
    exposure: str | None
    status: str | None
    event: str | None
    horizon: float | None
    coefficients_only: bool
    margins: bool
    plain: bool
    shrink: bool
    target: JoinedTarget | None
    alpha: float
    out: Path | None
    json_file: Path | None
    summary: Path | None
    quiet: bool
    overwrite: bool


@click.command("fit")
@click.argument("formula")
@click.argument("files", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True)
@click.option(
    "--schema",
    "schema_file",
    type=FILE,
    help=(
        "Schema file with the bounds and levels of the columns, such as schema.toml. Pass it for a fit to "
        "one table of rows."
    ),
)
@click.option(
    "--model",
    type=click.Choice(list(ROW_MODELS)),
    help=(
        "Model for a table of rows: ols (least squares, the default), logit, poisson, negative-binomial, "
        "moments (least squares computed from noisy sums of products), or phreg (Cox's regression of times "
        "until an event)."
    ),
)
@spending_options
@click.option(
    "--ledger",
    "ledger_file",
    type=NEW_FILE,
    help=("For a table of rows: file of the budget ledger to charge, made by 'privinf ledger create'."),
)
@click.option(
    "--name",
    help="Name of the fit in the ledger, such as 'table 2', which 'privinf ledger show' prints.",
)
@click.option(
    "--cov-type",
    type=click.Choice(get_args(CovWord)),
    help="Type of standard errors, for a fit to a table of rows.",
)
@click.option(
    "--missing",
    type=click.Choice(get_args(Missing)),
    help=(
        "Treatment of missing values in a table of rows: stop with an error (raise, the "
        "default), replace them by the midpoint of the public bounds (impute-public), or drop the rows "
        "that lack a value of the model, whose number stays private (drop)."
    ),
)
@click.option("--weights", help="Name of the column with the weights of the rows.")
@click.option(
    "--offset", help="Name of a column whose coefficient is fixed at 1 (for logit and models of counts)."
)
@click.option(
    "--exposure", help="Name of a column whose logarithm is an offset, such as time at risk (for counts)."
)
@click.option(
    "--status",
    help=(
        "For phreg: name of the column that is 1 if the time ended with the event and 0 if it was censored, "
        "or of a factor with two levels, the second of which is the event."
    ),
)
@click.option(
    "--event",
    help="For phreg: level of the status that is the event, if its levels are texts, such as dead.",
)
@click.option(
    "--horizon",
    type=float,
    help="For phreg: public end of the follow-up. Default: the upper bound of the time in the schema.",
)
@click.option(
    "--coefficients-only",
    is_flag=True,
    help="Estimate coefficients from a table of rows even if no intervals can be computed.",
)
@click.option(
    "--margins",
    is_flag=True,
    help=(
        "Also print average marginal effects (for logit and counts); a tenth of the budget is spent on them."
    ),
)
@click.option(
    "--plain",
    is_flag=True,
    help=(
        "Use least squares without correction for the noise, for releases of several parties. The estimates "
        "are biased, and there are no intervals."
    ),
)
@click.option(
    "--shrink",
    is_flag=True,
    help=(
        "Shrink the coefficients to improve predictions, for releases of several parties. "
        "There are no intervals."
    ),
)
@click.option(
    "--target",
    type=click.Choice(get_args(JoinedTarget)),
    help=(
        "Target of the intervals: the coefficients in the population (default), or those of "
        "the people in the data (sample). Only for releases and for --model moments."
    ),
)
@click.option("--alpha", type=float, default=0.05, show_default=True, help=ALPHA_HELP)
@click.option(
    "--out", type=NEW_FILE, help="Save the result to an .npz file, which privinf.load_results reads."
)
@click.option(
    "--json", "json_file", type=NEW_FILE, help="Write the result to a JSON file, for other programs."
)
@click.option(
    "--summary", type=NEW_FILE, help="Write the summary to a file that ends in .html, .txt, .csv or .tex."
)
@click.option("--quiet", is_flag=True, help="Print only errors and warnings.")
@overwrite_option
def fit_command(**options: Unpack[FitOptions]) -> None:
    """Fit a regression to a table of rows, or to releases.

    A release is a file of noisy sums, made by 'privinf release'. A fit to rows spends a privacy budget; a
    fit to releases spends nothing further, however often it is repeated. Standard errors include both
    sampling error and privacy noise. All arguments are checked before the ledger is charged, and the ledger
    is charged before any result is computed from rows.

    \b
    Example of a fit to rows:
      privinf fit "wage ~ age + sex" rows.parquet --schema schema.toml \\
          --epsilon 1 --delta 1e-6 --ledger study.ledger --out wage.npz

    \b
    Example of a fit to the releases of two parties:
      privinf fit "glucose ~ age + bmi" clinic_a.npz clinic_b.npz --summary out.html
    """  # noqa: D301
    check_fraction(options["alpha"], "--alpha")
    files = {"--out": options["out"], "--json": options["json_file"], "--summary": options["summary"]}
    check_outputs(files, options["overwrite"])
    if options["summary"] is not None and options["summary"].suffix.lower() not in RENDERERS:
        raise ArgumentError(
            f"--summary {options['summary']} must be a file name that ends in one of {', '.join(RENDERERS)}"
        )
    result, ledger_lines = _fit_releases(options) if options["schema_file"] is None else _fit_rows(options)
    tables = [result.summary(alpha=options["alpha"])]
    if options["margins"]:
        tables.append(result.get_margeff().summary(options["alpha"]))
    if not options["quiet"]:
        click.echo("\n\n".join(table.as_text() for table in tables))
        for line in ledger_lines:
            click.echo(line, err=True)
    _write(options, result, tables)


@click.command("report")
@click.argument("result_file", metavar="RESULT", type=FILE)
@click.option("--html", "page", type=NEW_FILE, help="HTML file to write.")
@click.option("--statement", is_flag=True, help="Print the privacy guarantee as sentences for a paper.")
@click.option("--alpha", type=float, help=f"{ALPHA_HELP} Only for fits. Default: 0.05.")
@overwrite_option
def report_command(
    result_file: Path, page: Path | None, statement: bool, alpha: float | None, overwrite: bool
) -> None:
    """Write a saved fit or saved survival curves (.npz) as an HTML page, or print a privacy statement.

    The page has the summary, plots, the trade-off curve of the privacy guarantee (the errors of the best
    test for one person's presence), and the list of all releases that the privacy guarantee covers. The
    statement is also on the page. If the fit was charged to a ledger, the statement covers all releases that
    the ledger had when the fit ended.

    \b
    Example of a page: privinf report wage.npz --html wage.html
    Example of a statement: privinf report wage.npz --statement
    """  # noqa: D301
    if page is None and not statement:
        raise ArgumentError("pass --html with the file to write, or --statement, or both")
    if page is not None:
        check_free(page, overwrite)
    options: dict[str, Any] = {}
    if stored_format(result_file) == Formats.SURVIVAL:
        if alpha is not None:
            raise ArgumentError(SAVED_LEVEL.format(result_file))
        _, view = load_survival_release(result_file)
        name = next((name for name in RESULT_CLASSES if name == view.get("class")), "SurvivalResult")
        result: Any = getattr(pi.survival, name).load(result_file)
    else:
        result = pi.load_results(result_file)
        options["alpha"] = 0.05 if alpha is None else alpha
    if statement:
        click.echo(result.privacy.statement())
    if page is not None:
        result.report(page, overwrite=overwrite, **options)
        click.echo(f"written: {page}")


def _write(options: FitOptions, result: Results, tables: Sequence[PrivateSummary]) -> None:
    """Write the requested files."""
    if options["out"] is not None:
        result.save(
            options["out"], records=math.isfinite(result.privacy.epsilon()), overwrite=options["overwrite"]
        )
    if options["json_file"] is not None:
        result.to_json(options["json_file"], alpha=options["alpha"], overwrite=options["overwrite"])
    if (summary_file := options["summary"]) is not None:
        text = rendered(tables, summary_file.suffix.lower(), options["formula"])
        save_text(summary_file, text, overwrite=options["overwrite"])
    for path in (options["out"], options["json_file"], options["summary"]):
        if path is not None and not options["quiet"]:
            click.echo(f"\nwritten: {path}")


def _fit_rows(options: FitOptions) -> tuple[Results, list[str]]:
    """Return the fit of a table's rows, and the report on the ledger."""
    assert options["schema_file"] is not None
    if len(options["files"]) != 1 or options["files"][0].suffix.lower() == ".npz":
        raise ArgumentError(
            "with --schema, FILES must be one table of rows, that is, a CSV or Parquet file, or a "
            "folder of them; omit --schema to fit releases"
        )
    _refuse(
        options,
        ON_RELEASES,
        (
            "{0} can be used only with releases of several parties, but with --schema, FILES is a table of "
            "rows; omit {0}"
        ),
    )
    path = options["ledger_file"]
    spending = spending_of(options)
    schema = read_schema_file(options["schema_file"])
    if options["name"] is not None and path is None:
        raise ArgumentError("--name is the name of a fit in a ledger; pass --ledger too, or omit --name")
    ledger = Ledger() if path is None else open_ledger(path)
    charged = ledger if options["name"] is None else ledger.named(options["name"])
    columns = {name: options[name] for name in ROLE_COLUMNS}  # type: ignore[literal-required]
    model_options: dict[str, Any] = {name: column for name, column in columns.items() if column is not None}
    if (kind := options["model"] or "ols") == "moments" and model_options.keys() - {"weights"}:
        raise ArgumentError(
            "--offset and --exposure are not available for --model moments; omit them, or use "
            "--model poisson (or logit with --offset)"
        )
    if kind != "moments" and options["target"] is not None:
        raise ArgumentError(
            "--target is available only for a fit to releases and for --model moments; omit it"
        )
    if options["missing"] is not None:
        model_options["missing"] = options["missing"]
    model_options |= _options_of_times(options, kind, schema)
    rows = open_rows(options["files"][0], progress=False if options["quiet"] else None)
    named = getattr(pi, ROW_MODELS[kind])  # the package loads names on request
    model = named.from_formula(options["formula"], rows, schema=schema, ledger=charged, **model_options)
    budget = {name: value for name, value in spending.items() if name != "rng"}
    if (
        kind not in ("moments", "phreg")
        and not options["coefficients_only"]
        and (refusal := model.without_intervals(**budget))
    ):
        instead = INSTEAD.get(kind, COEFFICIENTS_INSTEAD)
        raise NotAvailableError(UNREACHED.format(refusal[0].upper() + refusal[1:], instead))
    chosen: dict[str, Any] = {}
    if options["cov_type"] is not None:
        chosen["cov_type"] = options["cov_type"]
    if options["target"] is not None:
        chosen["target"] = options["target"]
    if options["coefficients_only"]:
        if kind in ("moments", "negative-binomial"):
            raise ArgumentError(f"--coefficients-only is not available for --model {kind}; omit it")
        chosen["intervals"] = "optional"
    if options["margins"]:
        if kind not in MARGINS_MODELS:
            raise ArgumentError(
                "--margins is available only for --model logit and --model poisson: the marginal effects "
                "of a linear model are its coefficients, and phreg has hazard ratios; omit it"
            )
        chosen["margins"] = True
    result = model.fit(**chosen, **spending)
    return result, [NO_LEDGER if path is None else ledger_line(ledger, path)]


def _options_of_times(options: FitOptions, kind: str, schema: Schema) -> dict[str, Any]:
    """Return the options of Cox's regression; ArgumentError for those of other models."""
    if kind != "phreg":
        _refuse(options, OF_TIMES, "{0} is only for --model phreg; omit it, or pass --model phreg")
        return {}
    for name, reason in NOT_OF_TIMES.items():
        _refuse(options, (name,), f"{{0}} is not available for --model phreg, because {reason}; omit it")
    if options["status"] is None:
        raise ArgumentError("--model phreg needs --status, the name of the column that marks events")
    values: dict[str, Any] = {name: options[name] for name in OF_TIMES}  # type: ignore[literal-required]
    values["event"] = event_level(schema, options["status"], options["event"])
    return {name: value for name, value in values.items() if value is not None}


def _fit_releases(options: FitOptions) -> tuple[Results, list[str]]:
    """Return the fit of releases."""
    if rows := [path for path in options["files"] if path.is_dir() or path.suffix.lower() != ".npz"]:
        raise ArgumentError(
            f"{rows[0]} is not a release (.npz). If it is a table of rows, pass --schema with its "
            f"public bounds, from a file made by 'privinf schema suggest {rows[0]}'"
        )
    _refuse(
        options,
        (*ON_ROWS, "missing"),
        "{0} is only for a fit to a table of rows; pass the table's --schema too, or omit {0}",
    )
    if len(options["files"]) > 1 or (release := load_release(options["files"][0])).kind.startswith(
        OF_PARTIES
    ):
        return _fit_parties(joined_files(options["files"]), options), []
    _refuse(
        options,
        ON_RELEASES,
        (
            "{0} can be used only with releases of several parties, but FILES is a release of one table; "
            "omit {0}"
        ),
    )
    return release.regress(options["formula"], target=options["target"] or "population"), []


def _fit_parties(joined: Release, options: FitOptions) -> Results:
    plain = options["plain"]
    shrink = options["shrink"]
    if plain and shrink:
        raise ArgumentError("--plain and --shrink cannot be combined; choose one of them")
    if joined.noise_model["method"] == "random-mixing":
        model: pi.RMGMOLS | pi.DGMOLS = pi.RMGMOLS.from_release(joined)
    else:
        model = (pi.BGMOLS if plain else pi.DGMOLS).from_release(joined)
    return model.regress(
        options["formula"], debias=not plain, shrink=shrink, target=options["target"] or "population"
    )


def _refuse(options: FitOptions, words: tuple[str, ...], reason: str) -> None:
    """Raise ArgumentError for the first of these options that was given."""
    for word in words:
        if options[word] is not None and options[word] is not False:  # type: ignore[literal-required]
            raise ArgumentError(reason.format(f"--{word.removesuffix('_file').replace('_', '-')}"))


def rendered(tables: Sequence[PrivateSummary], suffix: str, title: str) -> str:
    """Return summaries as the text of a file with this suffix."""
    render = methodcaller(RENDERERS[suffix])
    text = "\n\n".join(map(render, tables))
    if suffix == ".html":
        head = (
            f'<!doctype html>\n<html><head><meta charset="utf-8"><title>{html.escape(title)}</title></head>'
        )
        return f"{head}<body>\n{text}\n</body></html>\n"
    return f"{text}\n"


class PlanCommandOptions(TypedDict):
    """Options of ``privinf study``, as click reads them."""

    formula: str
    schema_file: Path
    n: int
    epsilon: float | None
    delta: float | None
    mu: float | None
    rho: float | None
    seed: int | None
    guesses_file: Path | None
    family: StudyFamily
    status: str | None
    exposure: str | None
    trust: TrustModel | None
    party: tuple[str, ...]
    coefficient: str | None
    width: float | None
    effect: float | None
    power: float
    alpha: float
    fits: int | None
    json_file: Path | None
    plot_file: Path | None
    quiet: bool
    overwrite: bool


@click.command("study")
@click.argument("formula")
@click.option(
    "--schema",
    "schema_file",
    type=FILE,
    required=True,
    help="Schema file with the bounds and levels of the columns, such as schema.toml.",
)
@click.option("--n", type=int, required=True, help="Number of people.")
@spending_options
@click.option(
    "--guesses",
    "guesses_file",
    type=FILE,
    help=(
        "TOML file of guesses about the data, such as rsquared = 0.3, with tables [means], "
        "[sds], [shares.COLUMN]."
    ),
)
@click.option(
    "--family",
    type=click.Choice(get_args(StudyFamily)),
    default="gaussian",
    show_default=True,
    help="Distribution family of the response, which determines the regression model.",
)
@click.option(
    "--status",
    help="Column that is 1 if the time ends with the event and 0 if it is censored, for --family hazards.",
)
@click.option(
    "--exposure",
    help="Column of the exposure of each person, such as years at risk, for the families of counts.",
)
@click.option(
    "--trust",
    type=click.Choice(get_args(TrustModel)),
    help=(
        "Trust model, that is, who may see raw rows or sums without noise. Default: compare all trust models."
    ),
)
@click.option(
    "--party",
    multiple=True,
    metavar="NAME=COLUMN,COLUMN",
    help=(
        "Name of a party and the names of its columns, for --trust per-party. Pass this option "
        "once for each party."
    ),
)
@click.option(
    "--coefficient", help="Name of the coefficient to which --width or --effect applies. Default: all slopes."
)
@click.option(
    "--width",
    type=float,
    help=(
        "Target width of the interval. The command prints which budget or number of people "
        "reaches it. Needs --trust."
    ),
)
@click.option(
    "--effect",
    type=float,
    help=("Smallest coefficient that the test should detect, as a target instead of --width. Needs --trust."),
)
@click.option(
    "--power",
    type=float,
    default=0.8,
    show_default=True,
    help="Power that the test for a coefficient of size --effect should have.",
)
@click.option("--alpha", type=float, default=0.05, show_default=True, help=ALPHA_HELP)
@click.option(
    "--fits",
    type=int,
    help="Largest number of simulated fits of each estimator, such as 8 for a quick, less accurate plan.",
)
@click.option("--json", "json_file", type=NEW_FILE, help="Write the table of predictions to a JSON file.")
@click.option(
    "--plot",
    "plot_file",
    type=NEW_FILE,
    help="Plot the predicted intervals to a .png, .svg or .pdf file. Needs --trust.",
)
@click.option("--quiet", is_flag=True, help="Print only errors and warnings.")
@overwrite_option
def study_command(**options: Unpack[PlanCommandOptions]) -> None:
    """Predict a regression's intervals and power before data exist.

    The prediction uses a schema and guesses. No row is read.

    \b
    Example that compares estimators under each trust model:
      privinf study "wage ~ age + sex" --schema schema.toml --n 5000 --epsilon 1 --delta 1e-6

    \b
    Example that prints which budget or number of people gives an interval of width 0.05:
      privinf study "wage ~ age + sex" --schema schema.toml --n 5000 --epsilon 1 --delta 1e-6 \\
          --trust central --guesses guesses.toml --coefficient age --width 0.05
    """  # noqa: D301
    check_outputs({"--json": options["json_file"], "--plot": options["plot_file"]}, options["overwrite"])
    if options["plot_file"] is not None and options["plot_file"].suffix.lower() not in PICTURES:
        raise ArgumentError(
            f"--plot {options['plot_file']} must be a file name that ends in one of {', '.join(PICTURES)}"
        )
    goal = options["width"] is not None or options["effect"] is not None
    if not goal and (options["coefficient"] is not None or options["power"] != 0.8):
        raise ArgumentError("--coefficient and --power need a target; pass --width or --effect too")
    if options["trust"] is None and (goal or options["plot_file"] is not None):
        raise ArgumentError("--width, --effect and --plot need one trust model; pass --trust too")
    schema = read_schema_file(options["schema_file"])
    words = spending_of(options)
    words |= {
        "family": options["family"],
        "status": options["status"],
        "exposure": options["exposure"],
        "trust": options["trust"],
        "alpha": options["alpha"],
        "fits": options["fits"],
    }
    words |= {"progress": False if options["quiet"] else None, "parties": _parties_of(options["party"])}
    if options["guesses_file"] is not None:
        words["guesses"] = pi.Guesses(**read_toml(options["guesses_file"]))
    if options["trust"] is None:
        frame = pi.advise(schema, options["formula"], options["n"], **words)
        text = advice_text(frame)
    else:
        study = pi.plan_study(schema, options["formula"], options["n"], **words)
        frame = study.frame
        text = study.summary()
        if goal:
            changes = study.changes(
                coefficient=options["coefficient"],
                width=options["width"],
                effect=options["effect"],
                power=options["power"],
            )
            text += (
                "\n\nChanges of the plan that reach the target width or "
                f"effect\n{changes.to_string(index=False, na_rep='-')}"
            )
        if options["plot_file"] is not None:
            picture: Any = study.plot().figure
            picture.savefig(options["plot_file"])
    if options["json_file"] is not None:
        save_text(
            options["json_file"], frame.to_json(orient="records", indent=1), overwrite=options["overwrite"]
        )
    if not options["quiet"]:
        click.echo(text)


def _parties_of(texts: tuple[str, ...]) -> dict[str, list[str]] | None:
    """Return the columns of each party."""
    parties = {}
    for text in texts:
        name, equals, columns = text.partition("=")
        if not equals or not name or name in parties:
            raise ArgumentError(
                f"--party {text!r} must have the form NAME=COLUMN,COLUMN, with a different name for "
                "each party"
            )
        parties[name] = columns.split(",")
    return parties or None
