"""Bounds that are bought, then a regression: ``python benchmarks/bought_fits.py [DRAWS]``.

Five tables whose rows are drawn again with replacement (flights: 50,000 of them), epsilon = 1, delta = 1e-6. A tenth of mu^2 buys bounds of all numeric columns with clip 0.01 (0/1 columns are declared), and the rest is for a fit of `privinf.OLS`. The other fit has the bounds of a code book, and all of mu^2. The truth is least squares on the table's rows clipped to the bounds of the fit; "rows as they are" is least squares on
the table itself: bounds that cut a column change the coefficients. The columns show the coverage of the worst coefficient and the mean coverage of slopes and constant. Widths are medians over draws, for the median and for the widest coefficient.

*Warned* is the share of fits with a `ChangedTargetWarning`, among fits whose bounds moved a slope by half of its standard error or more ("moved"), and among the other fits. The last columns are the coverage of the slopes of "rows as they are" in fits without a warning, and the number of these fits.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import sys
import time
import warnings
from functools import lru_cache

import numpy as np
from gauntlet_cells import AIR, GPA, PAY, VISITS, YEARS
from patsy import dmatrices
from tables import RESULTS, write_table

import privinf as pi
from privinf.accounting import calibrate_mu
from privinf.errors import NotAvailableError

TABLES = {"Fair": YEARS, "RAND": VISITS, "gpa2": GPA, "census2000": PAY, "flights": AIR}
EPSILON, DELTA, SHARE, CLIP, MOST = 1.0, 1e-6, 0.1, 0.01, 50_000


def fit(population, rows, schema, mu, seed):
    """Return estimates, intervals of all coefficients, and whether moved slopes were warned of."""
    model = pi.OLS.from_formula(population.formula, rows, schema=schema)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = model.fit(mu=mu, delta=DELTA, rng=seed)
    warned = any("clip the tails" in str(one.message) for one in seen)
    return result.bse.to_numpy(), result.conf_int().to_numpy(), warned


@lru_cache
def whole_of(name):
    """Return the table, and the columns that its formula reads."""
    rows = TABLES[name].whole()
    return rows[[column for column in rows if column in TABLES[name].declared]]


def truth_of(name, bounds):
    """Return the coefficients of the table's rows, clipped to bounds that were bought."""
    rows = whole_of(name).copy()
    for column, known in bounds.items():
        rows[column] = rows[column].clip(known.low, known.high)
    y, X = dmatrices(TABLES[name].formula, rows)
    y, X = np.asarray(y)[:, 0], np.asarray(X)
    return np.linalg.solve(X.T @ X, X.T @ y)


def draw(name, n, seed, mu):
    """Return a fit by bought bounds (None where they are refused) and by declared ones, and the former's truth."""
    population, rng = TABLES[name], np.random.default_rng(seed)
    rows = population.draw(n, rng)
    numbers = [column for column, known in population.declared.items() if not isinstance(known, list)]
    try:
        found = pi.find_bounds(rows, numbers, clip=CLIP, mu=math.sqrt(SHARE) * mu, rng=seed)
    except NotAvailableError:
        return None
    schema = found.fill({name: known for name, known in population.declared.items() if name not in numbers})
    ours = fit(population, rows, schema, math.sqrt(1.0 - SHARE) * mu, seed + 10_000)
    theirs = fit(population, rows, pi.Schema(dict(population.declared)), mu, seed)
    return ours, theirs, truth_of(name, {column: found[column] for column in numbers})


def row_of(name, draws, mu):
    """Return a line of the table."""
    population = TABLES[name]
    n = min(len(whole_of(name)), MOST)
    numbers = sum(not isinstance(known, list) for known in population.declared.values())
    row = {"table": name, "n": n, "n mu a column": round(n * mu * math.sqrt(SHARE / numbers))}
    fits = [draw(name, n, seed, mu) for seed in range(draws)]
    if fits[0] is None:
        return row | {"width": "refused"}
    truth, target = truth_of(name, {}), np.array([one[2] for one in fits])
    ours, theirs = (np.array([one[place][1] for one in fits]) for place in (0, 1))
    se, warned = np.array([one[0][0] for one in fits]), np.array([one[0][2] for one in fits])

    def held(ends, at):
        return (ends[:, :, 0] <= at) & (at <= ends[:, :, 1])

    for label, inside in (
        ("coverage, bought", held(ours, target)),
        ("coverage, declared", held(theirs, truth)),
        ("bought, rows as they are", held(ours, truth)),
    ):
        row[label] = f"{inside.mean(axis=0).min():.3f}; {inside.mean():.3f}"
    widths = np.ptp(ours, axis=2) / np.ptp(theirs, axis=2)
    row["width, bought over declared"] = f"{np.median(widths[:, 1:]):.2f}"
    row["the widest coefficient"] = f"{np.median(widths, axis=0)[1:].max():.2f}"
    moved = (np.abs(target - truth) / se)[:, 1:].max(axis=1) >= 0.5
    for label, chosen in (("warned, moved", moved), ("warned, others", ~moved)):
        row[label] = f"{warned[chosen].sum()} of {chosen.sum()}"
    quiet = held(ours, truth)[~warned, 1:]
    row["slopes, rows as they are, no warning"] = (
        f"{quiet.mean(axis=0).min():.3f}; {quiet.mean():.3f} ({len(quiet)})" if len(quiet) else "-"
    )
    return row


def main(draws: int, names: list[str]) -> None:
    """Write the table."""
    start, mu = time.time(), calibrate_mu(epsilon=EPSILON, delta=DELTA)
    rows = []
    for name in names:
        rows.append(row_of(name, draws, mu))
        print(rows[-1], flush=True)
    note = (__doc__ or "").partition(".\n")[2].strip() + f" {draws} draws."
    write_table(
        RESULTS / "bought_fits.md",
        "Bounds that are bought, then OLS",
        f"benchmarks/bought_fits.py {draws}",
        rows,
        time.time() - start,
        note,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2:] or list(TABLES))
