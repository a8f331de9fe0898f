"""Slopes beside absorbed effects, ``y ~ x + z | firm``, and clustered by a schema's unit: coverage, flags.

    python benchmarks/effects.py      # about 9 minutes of one core

Simulated: x goes with the effects (half of its variance is between firms), errors are of unequal variance for
OLS, which does not assume otherwise, and of equal variance for MomentOLS, whose default does.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm

import privinf as pi
from privinf.errors import PrivinfError

OUT = Path(__file__).parent / "results" / "effects.md"
FITS, DELTA, LEVEL = 500, 1e-6, 0.95
SLOPES = {"x": 0.5, "z": -0.3}
CELLS = (
    (pi.OLS, 10, 5_000, 1.0, {}),
    (pi.OLS, 10, 15_000, 1.0, {}),
    (pi.MomentOLS, 10, 20_000, 1.0, {}),
)
# Firms of shares from 1 to 10, x that hardly varies within firms.
HARDER = (
    (pi.OLS, 10, 15_000, 1.0, {"unequal": True}),
    (pi.MomentOLS, 10, 15_000, 2.0, {"unequal": True}),
    (pi.MomentOLS, 10, 15_000, 2.0, {"within": 0.15}),
)
HARDER_FITS = 150
# Persons with five rows each, x and errors shared by most of a person's rows.
PEOPLE, ROWS, DRAWS = 400, 5, 2_000
# Of totals: persons, most rows, correlation of errors within a person, whether errors are skewed, epsilon.
TOTALS = {
    "4 rows each, normal, .4": (2_500, 4, 0.4, False, 4.0),
    "the same, more budget": (2_500, 4, 0.4, False, 16.0),
    "1 to 5 rows, skewed, .5": (3_000, 5, 0.5, True, 16.0),
    "the same, few persons": (600, 5, 0.5, True, 16.0),
}
TOTAL_DRAWS = 1_000


def sample(rng, levels, n, *, equal, unequal=False, within=0.5):
    """Return rows of firms whose effects go with x."""
    shares = np.geomspace(1.0, 10.0, levels)
    firm = rng.choice(levels, n, p=shares / shares.sum()) if unequal else rng.integers(0, levels, n)
    effect = np.linspace(-1.0, 1.0, levels)[rng.permutation(levels)]
    x = np.clip(0.5 * effect[firm] + rng.uniform(-within, within, n), -1, 1)
    z = rng.uniform(-1, 1, n)
    spread = 0.3 if equal else 0.15 + 0.3 * np.abs(z)
    y = 1.0 + SLOPES["x"] * x + SLOPES["z"] * z + effect[firm] + spread * rng.uniform(-1.7, 1.7, n)
    return pd.DataFrame({"y": y, "x": x, "z": z, "firm": [f"f{k:03d}" for k in firm]})


def cell(model, levels, n, epsilon, design, fits=FITS):
    """Return one row of the table."""
    names = [f"f{k:03d}" for k in range(levels)]
    firm = pi.Factor(names, public=True)
    schema = pi.Schema({"y": (-4.0, 6.0), "x": (-1.0, 1.0), "z": (-1.0, 1.0), "firm": firm})
    rng, held, width, flagged, none = np.random.default_rng(levels + n), [], [], 0, 0
    equal = model is pi.MomentOLS
    for seed in range(fits):
        data = sample(rng, levels, n, equal=equal, **design)
        try:
            r = model.from_formula("y ~ x + z | firm", data, schema=schema).fit(
                epsilon=epsilon, delta=DELTA, rng=seed
            )
            ends = r.conf_int(1.0 - LEVEL)
        except PrivinfError:
            none += 1
            continue
        if r.identification.weak or r.identification.steep:
            flagged += 1
            continue
        held.append([ends.loc[name, 0] <= value <= ends.loc[name, 1] for name, value in SLOPES.items()])
        if seed < 20:
            X = pd.get_dummies(data.firm, dtype=float)[names].assign(x=data.x, z=data.z)
            theirs = sm.OLS(data.y, X).fit(cov_type="nonrobust" if equal else "HC0").bse[["x", "z"]]
            width.append(r.bse / theirs)
    share = np.mean(held, axis=0) if held else [math.nan] * 2
    wide = pd.DataFrame(width).median()
    covered = ", ".join(f"{one:.3f}" for one in share) if held else "-"
    return [
        model.__name__,
        str(levels),
        ", ".join(design) or "-",
        f"{n:,}",
        f"{epsilon:g}",
        str(len(held)),
        str(flagged),
        str(none),
        covered,
        f"{wide['x']:.1f}, {wide['z']:.1f}" if width else "-",
    ]


def people(rng):
    """Return rows of persons, most of whose variation is between persons."""
    who = np.repeat(np.arange(PEOPLE), ROWS)
    own, rest = rng.uniform(-0.8, 0.8, PEOPLE), rng.uniform(-0.2, 0.2, PEOPLE * ROWS)
    shared, alone = rng.uniform(-0.8, 0.8, PEOPLE), rng.uniform(-0.3, 0.3, PEOPLE * ROWS)
    x = own[who] + rest
    return pd.DataFrame({"who": who, "x": x, "y": 0.5 * x + shared[who] + alone})


def clusters(model, options, mu, *, grouped):
    """Return one row of the table of clusters: with the unit declared, or, as if rows were persons, without."""
    unit = {"unit": "who", "max_rows": ROWS} if grouped else {}
    schema = pi.Schema({"x": (-1.0, 1.0), "y": (-2.0, 2.0)}, **unit)
    rng, held, flagged = np.random.default_rng(1), [], 0
    for seed in range(DRAWS):
        made = model.from_formula("y ~ x", people(rng), schema=schema, **options)
        r = made.fit(mu=mu, rng=seed, cov_type="cluster" if grouped else None)
        if r.estimate.cov is None or r.identification.weak or r.identification.steep:
            flagged += 1
            continue
        low, high = r.conf_int(1.0 - LEVEL).loc["x"]
        held.append(low <= 0.5 <= high)
    told = ", ".join([model.__name__, *options.values()])
    kind = "cluster" if grouped else "none, no unit declared"
    return [told, f"{mu:g}", kind, str(len(held)), str(flagged), f"{np.mean(held):.3f}"]


def persons(rng, count, most, shared, skewed):
    """Return rows of persons whose errors correlate so much; x is half a person's, z goes from row to row."""
    sizes = rng.integers(1, most + 1, count) if skewed else np.full(count, most)
    who, n = np.repeat(np.arange(count), sizes), int(sizes.sum())
    x = 0.7 * rng.uniform(-1, 1, count)[who] + 0.3 * rng.uniform(-1, 1, n)
    z = rng.uniform(-1, 1, n)
    draw = (lambda k: rng.gamma(4.0, 0.5, k) - 2.0) if skewed else rng.standard_normal
    e = math.sqrt(shared) * draw(count)[who] + math.sqrt(1.0 - shared) * draw(n)
    y = SLOPES["x"] * x + SLOPES["z"] * z + 0.5 * e
    return pd.DataFrame({"who": who, "x": x, "z": z, "y": y})


def totals(name):
    """Return two rows of the table of totals: clustered, and with rows taken as independent."""
    count, most, shared, skewed, epsilon = TOTALS[name]
    schema = pi.Schema({"x": (-1.0, 1.0), "z": (-1.0, 1.0), "y": (-2.5, 3.0)}, unit="who", max_rows=most)
    rows = []
    for cov_type in ("cluster", "HC0"):
        rng, held, width, flagged, n = np.random.default_rng(2), [], [], 0, 0
        for seed in range(TOTAL_DRAWS):
            data = persons(rng, count, most, shared, skewed)
            made = pi.MomentOLS.from_formula("y ~ x + z", data, schema=schema)
            r = made.fit(epsilon=epsilon, delta=DELTA, rng=seed, cov_type=cov_type)
            if r.estimate.cov is None or r.identification.weak or r.identification.steep:
                flagged += 1
                continue
            ends = r.conf_int(1.0 - LEVEL)
            held.append(
                [ends.loc[slope, 0] <= value <= ends.loc[slope, 1] for slope, value in SLOPES.items()]
            )
            n += len(data)
            if seed < 20:
                plain = {"groups": data.who, "use_correction": False}
                X = sm.add_constant(data[["x", "z"]])
                width.append(r.bse / sm.OLS(data.y, X).fit(cov_type="cluster", cov_kwds=plain).bse)
        covered = ", ".join(f"{one:.3f}" for one in np.mean(held, axis=0))
        wide = pd.DataFrame(width).median()
        rows.append(
            [
                name,
                f"{n / len(held):,.0f}",
                f"{epsilon:g}",
                cov_type,
                str(len(held)),
                str(flagged),
                covered,
                f"{wide['x']:.2f}, {wide['z']:.2f}",
            ]
        )
        print(rows[-1], flush=True)
    return rows


PAGE = """# Absorbed effects, and clusters

    python benchmarks/effects.py

`y ~ x + z | firm`, {fits} fits a row, new rows and new noise each, delta 1e-6; half of the variance of x is between
firms, whose factor is declared public. The column "covers" is the share of the 95% intervals of x and z that contain the true slopes, among fits that are not
flagged. "flagged" is the share of fits with a flag or a warning of a steep direction, and "none" the share of fits
without intervals, with the reason. "width" is the ratio of standard errors to those of statsmodels with all
indicators (medians of 20 fits). The standard error of a coverage of 0.95 in {fits} fits is 0.010. Rows with a design have {harder} fits (0.018): firms of unequal size (1 to 10), x that
varies by .15 within firms in place of .5.

{table}

`y ~ x`, {people} persons with {own} rows each, most of x and of the errors shared by the rows of a person; {draws} draws of
rows and noise a row of the table, 95% intervals of the slope. `OLS` refuses a schema with several rows per unit, with the reason.

{clusters}

`y ~ x + z` by `MomentOLS` of one table, bounds 11 sds of the errors wide: errors of one person are correlated as stated in the design, and half of the variance of x is between persons; {total_draws} draws a row. "HC0" treats rows as independent, and warns. "width" is the ratio of standard errors to clustered standard errors of statsmodels without noise.

{totals}
"""


def main():
    """Measure, and write the page."""
    head = [
        "model",
        "firms",
        "design",
        "n",
        "epsilon",
        "judged",
        "flagged",
        "none",
        "covers (x, z)",
        "width (x, z)",
    ]
    rows = [head, ["---"] * len(head)]
    warnings.simplefilter("ignore")
    for one in CELLS:
        rows.append(cell(*one))
        print(rows[-1], flush=True)
    for one in HARDER:
        rows.append(cell(*one, fits=HARDER_FITS))
        print(rows[-1], flush=True)
    head = ["model", "mu", "cov_type", "judged", "flagged", "covers"]
    more = [head, ["---"] * len(head)]
    local = {"trust": "local"}
    for model, options, mu in ((pi.MomentOLS, local, 60.0), (pi.ModulatedOLS, {}, 60.0)):
        for grouped in (True, False):
            more.append(clusters(model, options, mu, grouped=grouped))
            print(more[-1], flush=True)
    tables = ["\n".join("| " + " | ".join(row) + " |" for row in one) for one in (rows, more)]
    head = ["design", "rows", "epsilon", "cov_type", "judged", "flagged", "covers (x, z)", "width (x, z)"]
    third = [head, ["---"] * len(head)]
    for name in TOTALS:
        third += totals(name)
    tables.append("\n".join("| " + " | ".join(row) + " |" for row in third))
    told = {
        "fits": FITS,
        "harder": HARDER_FITS,
        "people": PEOPLE,
        "own": ROWS,
        "draws": f"{DRAWS:,}",
        "total_draws": f"{TOTAL_DRAWS:,}",
    }
    OUT.write_text(PAGE.format(table=tables[0], clusters=tables[1], totals=tables[2], **told))


if __name__ == "__main__":
    main()
