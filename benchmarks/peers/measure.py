"""Other tools beside privinf, and audits of their claims: ``python benchmarks/peers/measure.py FOLDER``.

FOLDER is what `install.py` filled. Every tool gets the same tables, the same public bounds and (1, 1e-5) or,
if it offers pure privacy only, epsilon 1. The audits bound a tool's loss on one pair of neighbours from
below.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from install import import_paths, interpreter, versions
from scipy.special import expit

import privinf as pi
from privinf.noise import LatticeNoise
from privinf.typing import Floats
from studies.audit import audit_mechanism
from studies.audit.likelihood import binomial_bounds

sys.path.insert(0, str(Path(__file__).parents[1]))
from tables import RESULTS, cell

EPSILON, DELTA = 1.0, 1e-5
WORKER = Path(__file__).with_name("worker.py")
BETA = np.array([0.5, -0.3, 0.2])
LOGIT_BETA = np.array([0.3, 0.8, -0.5, 0.4])
ERROR_SD = 0.3
FAIR = {"age": (17.0, 45.0), "children": (0.0, 6.0), "religious": (1.0, 4.0)}
MARRIED = (0.0, 25.0)
CONFIDENCE = 0.999


@dataclass(frozen=True)
class Design:
    """Tables of one kind: features (tables, n, d) within [-1, 1], responses, the truth."""

    name: str
    X: Floats
    y: Floats
    truth: Floats
    intercept: bool
    y_bounds: tuple[float, float]
    logistic: bool = False

    @property
    def tables(self) -> int:
        return len(self.X)

    def first(self, tables: int) -> Design:
        """Return the design with its first tables only."""
        return replace(self, X=self.X[:tables], y=self.y[:tables])


@dataclass(frozen=True)
class Fits:
    """Coefficients (tables, p), intervals (tables, p, 2; nan without), share of fits that warn."""

    params: Floats
    intervals: Floats
    warned: float | str = ""


def linear_design(name: str, tables: int, beta: Floats, rng: np.random.Generator, intercept: bool) -> Design:
    """Return uniform features, normal errors, responses clipped at 2."""
    X = rng.uniform(-1.0, 1.0, (tables, 5_000, len(beta)))
    y = np.clip(X @ beta + ERROR_SD * rng.standard_normal(X.shape[:2]), -2.0, 2.0)
    return Design(
        name=name, X=X, y=y, truth=np.r_[[0.0] * intercept, beta], intercept=intercept, y_bounds=(-2.0, 2.0)
    )


def logistic_design(tables: int, rng: np.random.Generator) -> Design:
    """Return uniform features and a yes/no response."""
    X = rng.uniform(-1.0, 1.0, (tables, 5_000, len(LOGIT_BETA) - 1))
    y = (rng.uniform(size=X.shape[:2]) < expit(LOGIT_BETA[0] + X @ LOGIT_BETA[1:])).astype(float)
    return Design(
        name="logistic, 3 features, n = 5,000",
        X=X,
        y=y,
        truth=LOGIT_BETA,
        intercept=True,
        y_bounds=(0.0, 1.0),
        logistic=True,
    )


def fair_design(tables: int, rng: np.random.Generator) -> Design:
    """Return bootstrap samples of statsmodels' Fair data; the truth is least squares on all its rows."""
    rows = sm.datasets.fair.load_pandas().data

    def unit(values: pd.Series, bounds: tuple[float, float]) -> Floats:
        return np.asarray(2.0 * (values - bounds[0]) / (bounds[1] - bounds[0]) - 1.0)

    X = np.column_stack([unit(rows[name], bounds) for name, bounds in FAIR.items()])
    y = unit(rows["yrs_married"], MARRIED)
    truth = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X]), y, rcond=None)[0]
    picks = rng.integers(0, len(X), (tables, len(X)))
    return Design(
        name="Fair's years married, n = 6,366",
        X=X[picks],
        y=y[picks],
        truth=truth,
        intercept=True,
        y_bounds=(-1.0, 1.0),
    )


def ask(folder: Path, **job: object) -> dict[str, Floats]:
    """Send a job to the peers' Python and return its arrays."""
    with tempfile.TemporaryDirectory() as held:
        question, answer = Path(held) / "job.npz", Path(held) / "answer.npz"
        np.savez(question, **{name: np.asarray(value) for name, value in job.items()})
        path = os.pathsep.join(map(str, import_paths(folder)))
        command = [str(interpreter(folder)), str(WORKER), str(question), str(answer)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
        with np.load(answer) as found:
            return {name: found[name] for name in found.files}


def peer_fits(folder: Path, tool: str, design: Design) -> Fits:
    """Return a peer's fits of all tables of a design."""
    found = ask(
        folder,
        task="fits",
        tool=tool,
        X=design.X,
        y=design.y,
        intercept=design.intercept,
        epsilon=EPSILON,
        delta=DELTA,
        y_bounds=design.y_bounds,
    )
    return Fits(found["params"], found["intervals"])


def own_fits(entry_point: Callable[..., pi.Results], design: Design) -> Fits:
    """Return privinf's fits, with seeded noise."""
    params, intervals, warned = [], [], 0
    for i, (X, y) in enumerate(zip(design.X, design.y, strict=True)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = entry_point(design, y, pi.add_constant(X) if design.intercept else X, i)
            params.append(np.asarray(result.params))
            intervals.append(np.asarray(result.conf_int(0.05)))
        warned += bool(seen)
    return Fits(np.array(params), np.array(intervals), warned / design.tables)


def moment_ols(design: Design, y: Floats, X: Floats, seed: int) -> pi.Results:
    model = pi.MomentOLS(
        y, X, bounds=[(-1, 1)] * design.X.shape[2], y_bounds=design.y_bounds, trust="central"
    )
    return model.fit(epsilon=EPSILON, delta=DELTA, rng=seed)


def ols(design: Design, y: Floats, X: Floats, seed: int) -> pi.Results:
    model = pi.OLS(y, X, bounds=[(-1, 1)] * design.X.shape[2], y_bounds=design.y_bounds)
    return model.fit(epsilon=EPSILON, delta=DELTA, rng=seed)


def logit(design: Design, y: Floats, X: Floats, seed: int) -> pi.Results:
    model = pi.Logit(y, X, bounds=[(-1, 1)] * design.X.shape[2])
    return model.fit(epsilon=EPSILON, delta=DELTA, rng=seed)


def clear_fits(design: Design) -> Fits:
    """Return statsmodels' fits without privacy."""
    params, intervals = [], []
    for X, y in zip(design.X, design.y, strict=True):
        held = sm.add_constant(X) if design.intercept else X
        model = sm.Logit(y, held).fit(disp=0) if design.logistic else sm.OLS(y, held).fit(cov_type="HC0")
        params.append(model.params)
        intervals.append(model.conf_int(0.05))
    return Fits(np.array(params), np.array(intervals))


def measured(design: Design, tool: str, promise: str, fits: Fits) -> dict[str, object]:
    """Return one row: error, coverage and width of the slopes."""
    slopes = slice(int(design.intercept), None)
    truth = design.truth[slopes]
    error = np.linalg.norm(fits.params[:, slopes] - truth, axis=1)
    low, high = np.moveaxis(fits.intervals[:, slopes], -1, 0)
    known = np.isfinite(low) & np.isfinite(high)
    covered = ((low <= truth) & (truth <= high))[known]
    return {
        "design": design.name,
        "tool": tool,
        "promise": promise,
        "tables": design.tables,
        "median error of the slopes": float(np.median(error)),
        "coverage of 95% intervals": float(covered.mean()) if known.any() else "none given",
        "± se": float(np.sqrt(0.05 * 0.95 / known.sum())) if known.any() else "",
        "median width": float(np.median((high - low)[known])) if known.any() else "",
        "fits that warn": fits.warned,
    }


NOTES = """
## How to read this

**Tables.** Features are uniform on [-1, 1], coefficients .5, -.3, .2 (the first alone; .3, .8, -.5, .4 with the
constant for the logistic one), errors normal with sd .3, responses clipped at 2. The tables of Fair's survey are
bootstrap samples of all rows: years married on age, children and religious, scaled to [-1, 1] by the code book's
bounds; the truth is least squares on all rows. Error, coverage and width are for the slopes. Pure epsilon 1 is a
stronger promise than (1, 1e-5), and adding or removing a record changes a sum by half of what replacing a record
can. Both differences matter when you compare errors. The column `fits that warn` applies to privinf only.

**Audits.** Both bounds hold with 99.9% confidence; epsilon is at the claim's delta. A claim that is not disproved
was only tested on one pair of neighboring tables, by the stated number of fits. The audits of privinf, with
mutants and the share of the exact loss that they prove, are on the page [audits](audits.md).

**dp-statsmodels.** The package adds noise to sums and requires public bounds. The audit did not disprove its
claim for least squares, and its intervals cover. The documentation lists Logit as planned, but `Session.Logit`
exists and promises (epsilon, delta). The noise of `Session.Logit` has the scale of a noisy solution, 2 |x| / (n
lambda), but is added to the objective and divided by n, so it is too small by a factor of about n lambda. The
standard errors of `Session.Logit` are computed from the rows themselves and lack a division by n, so the
intervals are very wide.

**BinAgg.** One release serves synthetic data and regression, and the intervals cover. Each of the d coordinates
of a bin's sum gets noise for a change of this coordinate alone, but one record changes all coordinates. The sums
therefore cost sqrt(d) times the mu that is charged. The audit uses a favorable pair of tables, which differ by
one record more or less, and reads no count. The released object also contains `true_counts`, and the counts add
up to the exact number of rows.

**diffprivlib.** The package has mechanisms, a budget accountant and the interface of scikit-learn, with pure
epsilon. If no bounds are passed, it takes bounds from the data, with a `PrivacyLeakWarning`. Its LinearRegression
uses the lower bound of a feature twice where the sensitivity of the square needs both bounds. With bounds around
zero, as in the first table, this error has no effect. The mechanism `Snapping` protects the last bits, but the
models of the package do not use it.

**OpenDP.** The library has proofs and exact samplers, and every measurement states its neighboring relation. Its
linear regression has one feature and no intervals ("for now", according to its documentation). The ratio of
probabilities of the low bits of its Laplace noise is bounded, as the library claims.

**The last bits.** A small double has bits below 2^-53, but the sum of 1 and a double has none. So an output with
such bits is impossible for one value and frequent for the other. Noise on a grid, or exact noise that is rounded
at the end, does not have this fault. The noise of the other tools is set for epsilon 1, and the noise of privinf
has standard deviation 1.

Not run: tools in R (DPrivStats, DPpack, PrivacyUnbiased), tools that fit by stochastic gradients on a GPU library
(statsmodels-sgd, Opacus), and code of single papers."""

# Noise, and the delta of its claim.
NOISES = {
    "diffprivlib Laplace": 0.0,
    "dp-statsmodels GaussianMechanism": DELTA,
    "OpenDP make_laplace": 0.0,
    "privinf lattice": DELTA,
}

# What each tool says that it promises, and to which change of the table.
PROMISES = {
    "dp-statsmodels OLS": "(1, 1e-5), add or remove",
    "dp-statsmodels Logit": "(1, 1e-5), change not said",
    "BinAgg": "mu of (1, 1e-5), change not said",
    "diffprivlib LinearRegression": "epsilon 1, change not said",
    "diffprivlib LogisticRegression": "epsilon 1, change not said",
    "OpenDP LinearRegression": "epsilon 1, replace one",
}
OURS = "(1, 1e-5), replace one"


def comparison(folder: Path, tables: int) -> list[dict[str, object]]:
    """Fit every design with every tool that can."""
    rng = np.random.default_rng(2026)
    linear = ["dp-statsmodels OLS", "BinAgg", "diffprivlib LinearRegression"]
    own = {"privinf OLS": ols, "privinf MomentOLS": moment_ols}
    plans = [
        (linear_design("3 features, n = 5,000", tables, BETA, rng, False), linear, own),
        (
            linear_design("1 feature and constant, n = 5,000", tables, BETA[:1], rng, True),
            [*linear, "OpenDP LinearRegression"],
            own,
        ),
        (fair_design(tables, rng), linear, own),
        (
            logistic_design(max(2, tables // 4), rng),
            ["dp-statsmodels Logit", "diffprivlib LogisticRegression"],
            {"privinf Logit": logit},
        ),
    ]
    rows = []
    for design, tools, entry_points in plans:
        rows.append(measured(design, "statsmodels", "none", clear_fits(design)))
        rows += [
            measured(design, name, OURS, own_fits(entry_point, design))
            for name, entry_point in entry_points.items()
        ]
        rows += [measured(design, one, PROMISES[one], peer_fits(folder, one, design)) for one in tools]
        print(pd.DataFrame(rows).to_string(), flush=True)
    return rows


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tables and the claim that an audit tests on them."""

    tool: str
    says: str
    change: str
    null: tuple[Floats, Floats]
    alternative: tuple[Floats, Floats]
    draws: int
    claim: dict[str, float]


def pairs(scale: float) -> list[Pair]:
    """Return the pairs: one record that changes, at a bound."""
    ones, halves = np.ones((400, 1)), np.repeat([0.0, 1.0], 1_000)
    low, near, far = np.full(400, -1.0), np.full((200, 1), 5.0), np.full((200, 1), 5.0)
    far[0] = 100.0
    crowd = np.resize([-1.0, 1.0], (40, 1))
    approximate = {"epsilon": EPSILON, "delta": DELTA}
    found = [
        Pair(
            tool="dp-statsmodels OLS",
            says="(1, 1e-5)",
            change="one response of 400 from -1 to 1",
            null=(ones, low),
            alternative=(ones, changed(low, 1.0)),
            draws=20_000,
            claim=approximate,
        ),
        Pair(
            tool="privinf MomentOLS",
            says="(1, 1e-5)",
            change="one response of 400 from -1 to 1",
            null=(ones, low),
            alternative=(ones, changed(low, 1.0)),
            draws=4_000,
            claim=approximate,
        ),
        Pair(
            tool="dp-statsmodels Logit",
            says="(1, 1e-5)",
            change="one label of 2,000 flipped",
            null=(np.ones((2_000, 1)), halves),
            alternative=(np.ones((2_000, 1)), changed(halves, 1.0)),
            draws=4_000,
            claim=approximate,
        ),
        Pair(
            tool="diffprivlib LinearRegression",
            says="epsilon 1",
            change="one feature of 200 from 5 to 100, bounds (0, 100)",
            null=(near, np.full(200, 0.5)),
            alternative=(far, np.full(200, 0.5)),
            draws=4_000,
            claim={"epsilon": EPSILON},
        ),
        Pair(
            tool="OpenDP LinearRegression",
            says="epsilon 1",
            change="one response of 40 from -1 to 1",
            null=(crowd, low[:40]),
            alternative=(crowd, changed(low[:40], 1.0)),
            draws=3_000,
            claim={"epsilon": EPSILON},
        ),
    ]
    found += [
        Pair(
            tool="BinAgg",
            says="mu 1",
            change=f"one record more at a corner, {d} features, the noisy sums alone",
            null=(np.ones((40, d)), np.ones(40)),
            alternative=(np.ones((41, d)), np.ones(41)),
            draws=draws,
            claim={"mu": 1.0},
        )
        for d, draws in ((3, 20_000), (10, 4_000))
    ]
    return [replace(one, draws=max(200, int(scale * one.draws))) for one in found]


def changed(y: Floats, value: float) -> Floats:
    """Return the responses with another first one."""
    return np.r_[value, y[1:]]


def peer_scores(folder: Path, pair: Pair) -> list[Floats]:
    """Return the number that a peer releases, many times, in both worlds."""
    worlds = ask(
        folder,
        task="releases",
        tool=pair.tool,
        draws=pair.draws,
        **pair.claim,
        X0=pair.null[0],
        y0=pair.null[1],
        X1=pair.alternative[0],
        y1=pair.alternative[1],
    )
    return [worlds["null"], worlds["alternative"]]


def own_scores(pair: Pair) -> list[Floats]:
    """Return the coefficient of MomentOLS, secure noise, in both worlds."""
    worlds = []
    for X, y in (pair.null, pair.alternative):
        model = pi.MomentOLS(y, X, bounds=[(-1, 1)], y_bounds=(-1, 1), trust="central")
        fits = (model.fit(epsilon=EPSILON, delta=DELTA) for _ in range(pair.draws))
        worlds.append(np.array([float(fit.params.iloc[0]) for fit in fits]))
    return worlds


def audits(folder: Path, scale: float) -> list[dict[str, object]]:
    """Bound each tool's loss on its pair from below."""
    rows = []
    for pair in pairs(scale):
        scores = own_scores(pair) if pair.tool.startswith("privinf") else peer_scores(folder, pair)
        found = audit_mechanism(
            lambda world, count, rng, scores=scores: scores[world],
            lambda x: x,
            draws=pair.draws,
            rng=0,
            confidence=CONFIDENCE,
            **pair.claim,
        )
        rows.append(
            {
                "tool": pair.tool,
                "says": pair.says,
                "neighbours": pair.change,
                "fits a world": pair.draws,
                "proved: epsilon": found.epsilon_lower,
                "proved: mu": found.mu_lower,
                "claim": "FAILS" if found.exceeded else "stands",
            }
        )
        print(rows[-1], flush=True)
    return rows


def lattice_noise(draws: int) -> dict[str, Floats]:
    """Return privinf's noise added to 0 and to 1."""
    source = LatticeNoise()
    return {
        name: source.perturb(np.full(draws, value), 1.0)
        for name, value in (("null", 0.0), ("alternative", 1.0))
    }


def floats(folder: Path, scale: float) -> list[dict[str, object]]:
    """Look at the last bits: how often is value plus noise no multiple of 2^-53, for values 0 and 1?"""
    draws, rows = max(1_000, int(100_000 * scale)), []
    for tool, delta in NOISES.items():
        noisy = (
            lattice_noise(draws)
            if tool.startswith("privinf")
            else ask(folder, task="noises", tool=tool, draws=draws)
        )
        hits = [
            int(np.sum(noisy[w] * 2.0**53 != np.rint(noisy[w] * 2.0**53))) for w in ("null", "alternative")
        ]
        low, high = binomial_bounds(np.array(hits), draws, (1.0 - CONFIDENCE) / 2.0)
        proved = float(np.log(max((low[0] - delta) / high[1], 1.0)))
        rows.append(
            {
                "noise of a number of sensitivity 1": tool,
                "draws a value": draws,
                "value 0": hits[0] / draws,
                "value 1": hits[1] / draws,
                "proved": f"epsilon >= {proved:.3g}",
                "claim": "FAILS" if proved > EPSILON else "stands",
            }
        )
        print(rows[-1], flush=True)
    return rows


def markdown(rows: list[dict[str, object]]) -> list[str]:
    """Return a table."""
    head = list(rows[0])
    body = ["| " + " | ".join(cell(row[name]) for name in head) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what install.py filled")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the tables and draws; below 1 writes nothing"
    )
    given = parser.parse_args()
    folder, started = given.folder.resolve(), time.time()
    compared = comparison(folder, max(2, int(400 * given.scale)))
    audited, looked = audits(folder, given.scale), floats(folder, given.scale)
    if given.scale < 1.0:
        return
    lines = [
        "# Other tools, side by side",
        "",
        "This page compares privinf with other tools: error, coverage and width of regressions, and audits.",
        "",
        f"Made by `python benchmarks/peers/measure.py FOLDER` in {time.time() - started:.0f} s, FOLDER filled by "
        f"`python benchmarks/peers/install.py FOLDER`. Versions: {', '.join(versions())}.",
        "",
        "## Error, coverage, width",
        "",
        *markdown(compared),
        "## Audits",
        "",
        *markdown(audited),
        "## The last bits of the noise",
        "",
        *markdown(looked),
        NOTES.strip(),
    ]
    (RESULTS / "peers.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
