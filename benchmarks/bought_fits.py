"""Bounds that are bought, then a regression: ``python benchmarks/bought_fits.py [DRAWS]``.

Five tables whose rows are drawn again with replacement (flights: 50,000 of them), epsilon = 1, delta = 1e-6. A
tenth of mu^2 buys bounds of all numeric columns (0/1 columns are known to be that), clip .01; the rest fits
`privinf.OLS`. The other fit has the bounds that one would declare, and all of mu^2. Truth, as in the gauntlet,
is least squares on the table's rows clipped to the bounds of the fit; the last column takes rows as they are:
bounds that cut a column change the coefficients, which its summary says. Coverage: the worst coefficient's;
the mean's. Widths: medians over draws, of the median and of the widest coefficient.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import sys
import time
import warnings

import numpy as np
import statsmodels.formula.api as smf
from gauntlet_cells import AIR, GPA, PAY, VISITS, YEARS
from tables import RESULTS, write_table

import privinf as pi
from privinf.accounting import calibrate_mu
from privinf.errors import NotAvailableError, PrivinfWarning

TABLES = {"Fair": YEARS, "RAND": VISITS, "gpa2": GPA, "census2000": PAY, "flights": AIR}
EPSILON, DELTA, SHARE, CLIP, MOST = 1.0, 1e-6, 0.1, 0.01, 50_000


def fit(population, rows, schema, mu, seed):
    """Return intervals of all coefficients."""
    model = pi.OLS.from_formula(population.formula, rows, schema=pi.Schema(dict(schema)))
    return model.fit(mu=mu, delta=DELTA, rng=seed).conf_int().to_numpy()


def truth_of(population, bounds):
    """Return the coefficients of the table's rows, clipped to bounds that were bought."""
    rows = population.whole().copy()
    for name, known in bounds.items():
        rows[name] = rows[name].clip(known.low, known.high)
    return smf.ols(population.formula, rows).fit().params.to_numpy()


def draw(population, n, seed, mu):
    """Return the intervals by bought bounds (None where they are refused) and by declared ones."""
    rng = np.random.default_rng(seed)
    rows = population.draw(n, rng)
    numbers = [name for name, known in population.declared.items() if not isinstance(known, list)]
    try:
        found = pi.find_bounds(rows, numbers, clip=CLIP, mu=math.sqrt(SHARE) * mu, rng=seed)
    except NotAvailableError:
        return None, None, None
    schema = {**population.declared, **found.columns}
    ours = fit(population, rows, schema, math.sqrt(1.0 - SHARE) * mu, seed + 10_000)
    return ours, fit(population, rows, population.declared, mu, seed), truth_of(population, found.columns)


def main(draws: int) -> None:
    """Write the table."""
    start, rows, mu = time.time(), [], calibrate_mu(epsilon=EPSILON, delta=DELTA)
    for name, population in TABLES.items():
        if population.missing:
            continue
        whole = population.whole()
        n = min(len(whole), MOST)
        truth = truth_of(population, {})
        numbers = sum(not isinstance(known, list) for known in population.declared.values())
        signal = n * mu * math.sqrt(SHARE / numbers)
        pairs = [draw(population, n, seed, mu) for seed in range(draws)]
        row = {"table": name, "n": n, "columns bought": numbers, "n mu a column": round(signal)}
        if pairs[0][0] is None:
            rows.append(row | {"width": "refused"})
            continue
        targets = {
            "coverage, bought": (0, [pair[2] for pair in pairs]),
            "coverage, declared": (1, [truth] * draws),
            "bought, rows as they are": (0, [truth] * draws),
        }
        for label, (place, targets_of) in targets.items():
            held = np.array(
                [
                    (pair[place][:, 0] <= t) & (t <= pair[place][:, 1])
                    for pair, t in zip(pairs, targets_of, strict=True)
                ]
            )
            row[label] = f"{held.mean(axis=0).min():.2f}; {held.mean():.3f}"
        widths = np.array([np.ptp(a, axis=1) / np.ptp(b, axis=1) for a, b, _ in pairs])
        row["width, bought over declared"] = f"{np.median(widths[:, 1:]):.2f}"
        row["the widest coefficient"] = f"{np.median(widths, axis=0)[1:].max():.2f}"
        rows.append(row)
        print(row, flush=True)
    note = (__doc__ or "").partition(".\n")[2].strip() + f" {draws} draws."
    command = f"benchmarks/bought_fits.py {draws}"
    write_table(
        RESULTS / "bought_fits.md",
        "Bounds that are bought, then OLS",
        command,
        rows,
        time.time() - start,
        note,
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore", PrivinfWarning)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
