"""Logistic `DebiasedLasso` by secure sums: ``python benchmarks/lasso_secure_logistic.py [FITS] [--part I/K]``.

Columns are normal with correlation 0.4 between neighbors, clipped at 5. Columns 0, 7 and 20 have the effects 1, -0.8 and
0.5; the targets are these, column 8 next to one of them, and column 30. Three sites hold a third of the rows each. The same
rows are fitted by a trusted server in the first fits. delta is 1e-6, and `sparsity` 3.

Fits are stored in benchmarks/results/lasso_secure_logistic_fits.csv as they end, and another run goes on with what is
stored. Parts I of K make every K-th fit, each with a store of its own. The page
benchmarks/results/lasso_secure_logistic.md is written at the end; with FITS = 0 from the stored fits alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.signal import lfilter
from scipy.special import expit

import privinf as pi
from privinf.errors import NotAvailableError
from studies.simulation import binomial_limits

RESULTS = Path(__file__).parent / "results"
STORE = RESULTS / "lasso_secure_logistic_fits.csv"
PAGE = RESULTS / "lasso_secure_logistic.md"
CORRELATION = 0.4
BOUND = 5.0
EFFECTS = {0: 1.0, 7: -0.8, 20: 0.5}
TARGETS = (0, 7, 20, 8, 30)
# Rows, columns, epsilon, intercept.
CELLS = {
    "10,000 rows, 50 columns, epsilon 2": (10_000, 50, 2.0, -0.3),
    "20,000 rows, 200 columns, epsilon 1": (20_000, 200, 1.0, -0.3),
    "20,000 rows, 50 columns, epsilon 2, rate 0.11": (20_000, 50, 2.0, -2.7),
}
FITS = 500  # by default
COMPARED = 50  # fits that a trusted server repeats
SECURE, SERVER = "secure-sum", "server"


def rows(rng: np.random.Generator, n: int, p: int, intercept: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the response and the columns."""
    noise = rng.standard_normal((n, p))
    noise[:, 1:] *= np.sqrt(1.0 - CORRELATION**2)
    X = np.clip(lfilter([1.0], [1.0, -CORRELATION], noise, axis=1), -BOUND, BOUND)
    eta = intercept + sum(effect * X[:, j] for j, effect in EFFECTS.items())
    return (rng.random(n) < expit(eta)).astype(float), X


def fitted(y: np.ndarray, X: np.ndarray, epsilon: float, trust: str, seed: int) -> list[tuple]:
    """Return (target, estimate, standard error, found, marked) of one fit; nan without intervals."""
    model = pi.DebiasedLasso(y, X, x_bound=BOUND, family="binomial", sites=np.arange(len(y)) % 3, trust=trust)
    result = model.fit(epsilon=epsilon, delta=1e-6, sparsity=3, targets=list(TARGETS), rng=seed)
    found = {f"x{j + 1}" for j in EFFECTS} <= set(result.selected)
    marked = bool(result.to_dict()["cautions"])
    try:
        errors = result.bse
    except NotAvailableError:
        errors = pd.Series(dtype=float)
    lines = []
    for j in TARGETS:
        name = f"x{j + 1}"
        known = name in errors.index
        estimate = float(result.params[name]) if known else np.nan
        lines.append((j, estimate, float(errors[name]) if known else np.nan, found, marked))
    return lines


COLUMNS = ["cell", "fit", "trust", "target", "estimate", "se", "found", "marked"]


def stored_fits() -> pd.DataFrame:
    """Return the stored fits of all parts."""
    parts = sorted(RESULTS.glob(f"{STORE.stem}*.csv"))
    return pd.concat([pd.read_csv(part) for part in parts]) if parts else pd.DataFrame(columns=COLUMNS)


def run(fits: int, part: tuple[int, int]) -> None:
    """Make the fits that are not stored, a fit of every cell at a time."""
    place, parts = part
    store = STORE if parts == 1 else STORE.with_stem(f"{STORE.stem}_{place}")
    stored = stored_fits()
    done = set(zip(stored["cell"], stored["fit"], stored["trust"], strict=True))
    for fit in range(place, fits, parts):
        lines = []
        for name, (n, p, epsilon, intercept) in CELLS.items():
            seed = zlib.crc32(f"{name} {fit}".encode())
            y, X = rows(np.random.default_rng([seed, 1]), n, p, intercept)
            for trust in (SECURE, SERVER) if fit < COMPARED else (SECURE,):
                if (name, fit, trust) not in done:
                    lines += [(name, fit, trust, *line) for line in fitted(y, X, epsilon, trust, seed)]
        if lines:
            frame = pd.DataFrame(lines, columns=COLUMNS)
            frame.to_csv(store, mode="a", header=not store.exists(), index=False, float_format="%.6g")


HEAD = """# Sparse logistic regression by secure sums

Made by `python benchmarks/lasso_secure_logistic.py`; {fits} fits a cell, {compared} of them repeated by a trusted server on the same
rows. Columns are normal with correlation 0.4 between neighbors. Columns 0, 7 and 20 have the effects 1, -0.8 and 0.5; the other
targets, column 8 and column 30, have none. delta is 1e-6, the sparsity 3, and there are three sites.

- **Coverage** of 95% intervals: of the effects, of the other targets, and of all; fits without intervals are left out. The limits are
  the 99% limits of one coefficient with a true 0.95.
- **Bias / se**: mean error over the mean standard error, of the target where it is largest.
- **Wider**: mean standard error over that of a trusted server.
- **Found**: share of fits that select all three columns; with a trusted server in brackets.
- **Marked**: share of fits with a warning, such as that an effect may be hidden.

| cell | fits | without intervals | effects | other targets | all | 99% limits | bias / se | wider | found | marked |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def write_page() -> None:
    """Write the page from the stored fits."""
    fits = stored_fits().drop_duplicates(["cell", "fit", "trust", "target"])
    fits["error"] = fits["estimate"] - fits["target"].map(EFFECTS).fillna(0.0)
    fits["covered"] = (fits["error"].abs() <= 1.959964 * fits["se"]).astype(float)
    lines = []
    for name in CELLS:
        cell = fits[fits["cell"] == name]
        secure = cell[cell["trust"] == SECURE]
        server = cell[cell["trust"] == SERVER]
        known = secure[secure["se"].notna()]
        effects = known["target"].isin(list(EFFECTS))
        count = secure["fit"].nunique()
        by = known.groupby("target")
        bias = by["error"].mean() / by["se"].mean()
        both = secure[secure["fit"].isin(server["fit"])]
        wider = float(both["se"].mean() / server["se"].mean())
        low, high = binomial_limits(0.95, count)
        lines.append(
            f"| {name} | {count} | {secure['se'].isna().mean():.3g} | {known[effects]['covered'].mean():.4f} "
            f"| {known[~effects]['covered'].mean():.4f} | {known['covered'].mean():.4f} | {low:.4f} to {high:.4f} "
            f"| {bias[bias.abs().idxmax()]:.2f} | {wider:.3f} | {secure['found'].astype(bool).mean():.3f} "
            f"({server['found'].astype(bool).mean():.3f}) | {secure['marked'].astype(bool).mean():.3f} |"
        )
    count = int(fits.groupby("cell")["fit"].nunique().max())
    PAGE.write_text(HEAD.format(fits=count, compared=COMPARED) + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Make fits and the page."""
    words = sys.argv[1:]
    part = (0, 1)
    if "--part" in words:
        place, parts = words[words.index("--part") + 1].split("/")
        part = (int(place), int(parts))
        words = words[: words.index("--part")]
    warnings.simplefilter("ignore")
    run(int(words[0]) if words else FITS, part)
    if part == (0, 1):
        write_page()


if __name__ == "__main__":
    main()
