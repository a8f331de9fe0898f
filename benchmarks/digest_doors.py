"""More seeded fits of `digest.py`: least squares and GLMs of one curator, files and databases, fits that were
stopped and went on, `privinf.stats`, and what the command line writes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
from click.testing import CliRunner
from digest_fits import BOUNDS, KEYS, NAMES, POLICY, PUBLIC, ROSTER, SEED, case, table

import privinf as pi
from privinf.cli import main
from privinf.federation import InProcessFederation, Site
from privinf.mechanisms import Rows

SPENDING = {"epsilon": 10.0, "delta": 1e-3, "rng": SEED}
ROWS = 6000
COUNTED = pi.Schema(
    BOUNDS | PUBLIC | {"k": (0.0, 12.0), "z": ["no", "yes"], "t": pi.Numeric(0.5, 4.0, public=True)}
)


def counted(n: int = ROWS) -> pd.DataFrame:
    """Return the table with a count, an answer of two levels, and public times at risk."""
    frame, rng = table(n), np.random.default_rng(7)
    times = rng.uniform(0.5, 4.0, n)
    answers = np.where(frame.y + rng.logistic(0.0, 0.6, n) > 1.0, "yes", "no")
    counts = np.minimum(rng.poisson(0.5 * times * np.exp(0.3 * frame.a)), 12).astype(float)
    return frame.assign(t=times, z=answers, k=counts)


# ---- one curator: least squares, logistic and Poisson regression

RESPONSES = {"OLS": "y", "Logit": "z", "Poisson": "k"}


def curated(
    model: str, name: str, terms: str = "a + b", how: dict[str, Any] | None = None, **options: Any
) -> None:
    """Register a fit of one curator's table."""

    @case(f"{model} {name}")
    def fit() -> Any:
        formula = f"{RESPONSES[model]} ~ {terms}"
        made = getattr(pi, model).from_formula(formula, counted(), schema=COUNTED, **options)
        return made.fit(**(SPENDING | (how or {})))


for each in RESPONSES:
    curated(each, "by default")
    curated(each, "nonrobust, factors", "a + C(g)", {"cov_type": "nonrobust"})
    curated(each, "mu", how={"mu": 2.0, "epsilon": None, "delta": None})
    curated(each, "little to spend", how={"epsilon": 0.2, "intervals": "optional"})
    curated(each, "no noise", "a * b", how={"epsilon": np.inf, "delta": None})
curated("OLS", "HC1", how={"cov_type": "HC1"})
curated("OLS", "robust target", how={"target": "robust"})
curated("OLS", "narrower bounds", how={"adapt_bounds": True})
curated("OLS", "public columns", "a + q")
curated("Logit", "offset", offset="q")
curated("Logit", "weights", weights="w")
curated("Poisson", "exposure", exposure="t")
curated("Poisson", "weights", weights="w")


@case("GLM by default, of arrays, and what it predicts")
def _glm() -> Any:
    frame = counted()
    model = pi.GLM(frame.k, frame[["a", "b"]], bounds=[(-1, 1), (-1, 3)], y_bounds=(0, 12), family="poisson")
    fit = model.fit(**SPENDING)
    return [fit, fit.get_prediction(frame[["a", "b"]].iloc[:3])]


# ---- files, folders, frames of others, databases


def written(folder: Path, kind: str, frame: pd.DataFrame) -> Any:
    """Return a table of this kind with these rows."""
    match kind:
        case "CSV":
            frame.to_csv(folder / "rows.csv", index=False)
            return folder / "rows.csv"
        case "Parquet":
            frame.to_parquet(folder / "rows.parquet", index=False)
            return folder / "rows.parquet"
        case "folder":
            for part in range(3):
                frame.iloc[part * 2000 : (part + 1) * 2000].to_parquet(
                    folder / f"part{part}.parquet", index=False
                )
            return folder
        case "lazy frame":
            return pl.from_pandas(frame).lazy()
        case "polars frame":
            return pl.from_pandas(frame)
        case _:
            frame.to_parquet(folder / "rows.parquet", index=False)
            return duckdb.connect().read_parquet(str(folder / "rows.parquet"))


def from_source(kind: str, model: str, formula: str, **how: Any) -> None:
    """Register a fit of a table that is not a pandas frame."""

    @case(f"{model} of a {kind}")
    def fit() -> Any:
        frame = counted()[["y", "a", "b", "g"]]
        schema = pi.Schema({name: BOUNDS[name] for name in frame})
        with tempfile.TemporaryDirectory() as folder:
            rows = written(Path(folder), kind, frame)
            family = {"family": "gaussian"} if model == "FederatedGLM" else {}
            made = getattr(pi, model).from_formula(formula, rows, schema=schema, **family)
            return made.fit(**(SPENDING | how))


for source in ("CSV", "Parquet", "folder", "lazy frame", "polars frame", "DuckDB relation"):
    from_source(source, "MomentOLS", "y ~ a + C(g)")
for source in ("CSV", "Parquet", "DuckDB relation"):
    from_source(source, "OLS", "y ~ a + b")
from_source("Parquet", "FederatedGLM", "y ~ a + b", optimizer=pi.DPSGD(epochs=2, batches=10))


# ---- fits that were stopped


class Stopped(BaseException):
    """The analyst's process ended."""


class Stopping(InProcessFederation):
    """Sites of which some rounds are asked, and then the process ends."""

    rounds = 0

    def ask(self, query: Any, sites: Any = None) -> Any:
        """Return the sites' replies, or end."""
        self.rounds -= "." in query.op
        if self.rounds < 0:
            raise Stopped
        return super().ask(query, sites)


def resumed(name: str, model: str, trust: str, rounds: int, **how: Any) -> None:
    """Register a fit that ends after some rounds, and goes on from its folder."""

    @case(f"{model}, stopped: {name}")
    def fit() -> Any:
        frame = table(3000)
        names = ["y", "a", "b"]
        schema = pi.Schema({column: BOUNDS[column] for column in names})
        signing = {"policy": POLICY, "roster": ROSTER}
        sites = {
            site: Site(Rows(frame[names].iloc[at::3]), schema, key=KEYS[site], **signing)
            for at, site in enumerate(NAMES)
        }

        def go_on(held: Any, folder: str) -> Any:
            family = {"family": "gaussian"} if model == "FederatedGLM" else {}
            made = getattr(pi, model).from_formula("y ~ a + b", held, schema=schema, trust=trust, **family)
            return made.fit(**SPENDING, checkpoint=folder, **how)

        stopping = Stopping(sites)
        stopping.rounds = rounds
        with tempfile.TemporaryDirectory() as folder:
            try:
                go_on(stopping, folder)
            except Stopped:
                return go_on(InProcessFederation(sites), folder)
        raise AssertionError("the first fit came to its end")


resumed("second moments", "MomentOLS", "server", 1, cov_type="HC0")
resumed("second moments, masked", "MomentOLS", "secure-sum", 1, cov_type="HC0")
resumed("by default", "OLS", "server", 3)
resumed("masked", "OLS", "secure-sum", 3)
resumed("batches", "FederatedGLM", "server", 7, optimizer=pi.DPSGD(epochs=2, batches=5))


# ---- means, tests, quantiles


def statistic(name: str, ask: Callable[[pd.DataFrame, dict[str, Any]], Any]) -> None:
    """Register a function of `privinf.stats`."""

    @case(f"stats.{name}")
    def run() -> Any:
        return ask(counted(), {"schema": COUNTED, "epsilon": 2.0, "delta": 1e-5, "rng": SEED})


statistic("mean", lambda data, how: pi.stats.mean("y", data=data, **how))
statistic("mean, clipped", lambda data, how: pi.stats.mean("y", clip="auto", data=data, **how))
statistic("quantile", lambda data, how: pi.stats.quantile("b", [0.25, 0.5, 0.75], data=data, **how))
statistic("proportion_confint", lambda data, how: pi.stats.proportion_confint("z", data=data, **how))
statistic("ttest_1samp", lambda data, how: pi.stats.ttest_1samp("y", 1.0, data=data, **how))
statistic("ttest_ind", lambda data, how: pi.stats.ttest_ind("y ~ z", data, **how))
statistic("anova_oneway", lambda data, how: pi.stats.anova_oneway("y ~ g", data, **how))
statistic("chi2_contingency", lambda data, how: pi.stats.chi2_contingency("g", "z", data=data, **how))
statistic("pearsonr", lambda data, how: pi.stats.pearsonr("a", "y", data=data, **how))
statistic("mannwhitneyu", lambda data, how: pi.stats.mannwhitneyu("y ~ z", data=data, **how))
statistic("kruskal", lambda data, how: pi.stats.kruskal("y ~ g", data, **how))
statistic("wilcoxon", lambda data, how: pi.stats.wilcoxon("y", 1.0, data=data, **how))
statistic("describe", lambda data, how: pi.stats.describe(data, ["y", "a"], **how))


# ---- the command line

DECLARED = """
[columns.y]
low = -4.0
high = 6.0
[columns.a]
low = -1.0
high = 1.0
[columns.g]
levels = ["u", "v", "w"]
"""


def command(name: str, *words: str) -> None:
    """Register a command that writes JSON, without its date."""

    @case(f"command line: {name}")
    def run() -> Any:
        runner = CliRunner()
        with runner.isolated_filesystem():
            counted()[["y", "a", "g"]].to_csv("rows.csv", index=False)
            Path("schema.toml").write_text(DECLARED, encoding="utf-8")
            done = runner.invoke(main, [*words, "--json", "out.json", "--quiet"])
            assert done.exit_code == 0, done.output
            return undated(json.loads(Path("out.json").read_text(encoding="utf-8")))


def undated(content: Any) -> Any:
    """Return what a file holds, without dates, versions and identifiers of lines."""
    if isinstance(content, dict):
        passing = ("date", "time", "at", "id", "version", "created")
        return {key: undated(value) for key, value in content.items() if key not in passing}
    return [undated(value) for value in content] if isinstance(content, list) else content


SPENT = ("--schema", "schema.toml", "--epsilon", "4", "--delta", "1e-6", "--seed", "1")
command("fit of rows", "fit", "y ~ a + C(g)", "rows.csv", *SPENT)
command("fit of rows, second moments", "fit", "y ~ a", "rows.csv", "--model", "moments", *SPENT)
command(
    "study", "study", "y ~ a", "--schema", "schema.toml", "--n", "5000", "--epsilon", "1", "--delta", "1e-6"
)
