"""`DebiasedLasso` on rows of which some lack values: ``python benchmarks/missing_lasso.py [FITS] [--part I/K]``.

Fits with ``missing="drop"``, delta = 1e-6, are compared with two others on the same rows: of all rows before values
were removed (*whole*), and of the complete rows with a public number (*told*, the first fits alone). Thirty normal
columns, the correlation of neighbors being 0.4, have effects of 1, -1 and 0.5 in columns 0, 5 and 9; the targets are
columns 0 and 12, and of 5,000 rows at epsilon 1 column 0 alone. Errors are normal, their size depending on column 0;
the logistic response has half of these effects. Values are missing in the response, in column 9 or in column 20, each in a third of the incomplete rows: at
random, or more often where column 0 is large (*by x*).

Single fits are stored in benchmarks/results/missing_lasso_fits.csv as they end, and another run goes on with what is
stored. Parts I of K make every K-th fit, each with a store of its own, for processes that run at once. The page
benchmarks/results/missing_lasso.md is written at the end; with FITS = 0 from the stored fits alone.
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

import privinf as pi
from privinf.errors import NotAvailableError
from studies.simulation import binomial_limits

RESULTS = Path(__file__).parent / "results"
STORE = RESULTS / "missing_lasso_fits.csv"
PAGE = RESULTS / "missing_lasso.md"
COLUMNS = 30
CORRELATION = 0.4
EFFECTS = {0: 1.0, 5: -1.0, 9: 0.5}
TARGETS = (0, 12)
BOUND = 5.0  # of columns: no value lies outside
FAMILIES = ("gaussian", "binomial")
SIZES = [(5_000, 4.0), (20_000, 1.0), (20_000, 4.0), (5_000, 1.0)]
GAPS = [(0.05, "at random"), (0.2, "by x"), (0.5, "at random"), (0.5, "by x")]
FITS = 300  # by default
TOLD = 30  # fits of which the widths are compared with those of fits that know the number of complete rows


def effects(family: str) -> np.ndarray:
    """Return the true coefficients."""
    beta = np.zeros(COLUMNS)
    beta[list(EFFECTS)] = list(EFFECTS.values())
    return beta if family == "gaussian" else 0.5 * beta


def targets_of(cell: tuple[str, int, float]) -> tuple[int, ...]:
    """Return the targets of the fits of so many rows at this epsilon."""
    return TARGETS[:1] if cell[1:] == (5_000, 1.0) else TARGETS


def rows(rng: np.random.Generator, n: int, family: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the response and the columns of complete rows."""
    noise = rng.standard_normal((n, COLUMNS))
    noise[:, 1:] *= np.sqrt(1.0 - CORRELATION**2)
    X = np.clip(lfilter([1.0], [1.0, -CORRELATION], noise, axis=1), -BOUND, BOUND)
    eta = X @ effects(family)
    if family == "binomial":
        return (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float), X
    return eta + (0.4 + 0.4 * np.minimum(np.abs(X[:, 0]), 3.0)) * rng.standard_normal(n), X


def with_gaps(
    y: np.ndarray, X: np.ndarray, rng: np.random.Generator, share: float, kind: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with missing values in a share of them."""
    tilt = np.clip(1.0 + 0.9 * np.clip(X[:, 0], -1.0, 1.0), 0.0, None) if kind == "by x" else 1.0
    lacking = rng.random(len(y)) < share * tilt
    which = rng.integers(0, 3, len(y))
    y, X = y.copy(), X.copy()
    y[lacking & (which == 0)] = np.nan
    X[lacking & (which == 1), 9] = np.nan
    X[lacking & (which == 2), 20] = np.nan
    return y, X


def fitted(
    cell: tuple[str, int, float], y: np.ndarray, X: np.ndarray, seed: int, **missing: str
) -> tuple[list[tuple[float, float]], float, bool]:
    """Return (covered, width) of each target, nan without an interval; the number of rows; whether it warns."""
    family, _, epsilon = cell
    bounds = {"y_bounds": (-8.0, 8.0)} if family == "gaussian" else {}
    model = pi.DebiasedLasso(y, X, x_bound=BOUND, family=family, **bounds, **missing)
    targets = targets_of(cell)
    result = model.fit(epsilon=epsilon, delta=1e-6, sparsity=3, targets=list(targets), rng=seed)
    truth = effects(family)
    found = []
    try:
        ends = result.conf_int()
    except NotAvailableError:
        ends = pd.DataFrame()
    for target in targets:
        name = f"x{target + 1}"
        if name not in ends.index:
            found.append((np.nan, np.nan))
            continue
        low, high = ends.loc[name]
        found.append((float(low <= truth[target] <= high), float(high - low)))
    return found, float(result.nobs), bool(result.to_dict()["cautions"])


def cells() -> list[tuple[str, int, float]]:
    """Return family, rows and epsilon of all cells."""
    return [(family, n, epsilon) for n, epsilon in SIZES for family in FAMILIES]


def name_of(cell: tuple[str, int, float], share: float, kind: str) -> str:
    """Return the name of a cell and its gaps in the store."""
    family, n, epsilon = cell
    return f"{family}; {n}; {epsilon:g}; {share:g}; {kind}"


def stored_fits() -> pd.DataFrame:
    """Return the stored fits of all parts."""
    parts = sorted(RESULTS.glob(f"{STORE.stem}*.csv"))
    columns = ["cell", "fit"]
    return pd.concat([pd.read_csv(part) for part in parts]) if parts else pd.DataFrame(columns=columns)


def run(fits: int, part: tuple[int, int]) -> None:
    """Make the fits of all cells that are not stored, a fit of every cell at a time."""
    place, parts = part
    store = STORE if parts == 1 else STORE.with_stem(f"{STORE.stem}_{place}")
    stored = stored_fits()
    done = set(zip(stored["cell"], stored["fit"], strict=True))
    for fit in range(place, fits, parts):
        for cell in cells():
            family, n, epsilon = cell
            lines = []
            seed = zlib.crc32(f"lasso {family} {n} {epsilon} {fit}".encode())
            y, X = rows(np.random.default_rng(seed), n, family)
            whole = None
            for share, kind in GAPS:
                name = name_of(cell, share, kind)
                if (name, fit) in done:
                    continue
                lacking_y, lacking_X = with_gaps(y, X, np.random.default_rng([seed, 1]), share, kind)
                complete = ~(np.isnan(lacking_X).any(axis=1) | np.isnan(lacking_y))
                whole = whole or fitted(cell, y, X, seed)
                runs = {"drop": fitted(cell, lacking_y, lacking_X, seed + 1, missing="drop"), "whole": whole}
                if fit < TOLD:
                    runs["told"] = fitted(cell, y[complete], X[complete], seed + 1)
                for position, target in enumerate(targets_of(cell)):
                    line = {"cell": name, "fit": fit, "target": target, "complete": int(complete.sum())}
                    line["count"] = runs["drop"][1]
                    for kind_of_fit, (values, _, warns) in runs.items():
                        line[f"{kind_of_fit} covers"], line[f"{kind_of_fit} width"] = values[position]
                        line[f"{kind_of_fit} warns"] = warns
                    if "told" not in runs:
                        line |= {"told covers": np.nan, "told width": np.nan, "told warns": False}
                    lines.append(line)
            if lines:
                pd.DataFrame(lines).to_csv(store, mode="a", header=not store.exists(), index=False)


def report() -> None:
    """Write the page."""
    fits = stored_fits()
    fits["family"] = fits["cell"].str.rsplit("; ", n=2).str[0]
    text = [
        "# Debiased lasso on rows with missing values that are dropped",
        "",
        'Made by `python benchmarks/missing_lasso.py`, which describes the rows. *Drop* is a fit with `missing="drop"`,',
        "*whole* the fit of the same rows before values were removed, *told* a fit of the complete rows that knows their",
        "number. Coverage of 95% intervals is that of the worst of the targets and of all, and *below* counts targets below",
        "their 99% binomial limit; *warned* is the share of fits with a warning. The width is the median ratio of the first",
        "fits with and without the number, whose noise is drawn independently.",
        "",
        "| loss | rows, epsilon | incomplete | fits | drop: worst | all | below | whole: worst | all | below | told: all | drop: no interval | warned | whole: warned | width over told |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    below_all = {"drop": 0, "whole": 0}
    named = []
    targets = 0
    ratios = []
    names = [name_of(cell, *gaps) for cell in sorted(cells(), reverse=True) for gaps in GAPS]
    for name_of_cell in names:
        part = fits[fits["cell"] == name_of_cell]
        if part.empty:
            continue
        family, n, epsilon, share, kind = name_of_cell.split("; ")
        said = {}
        for name in ("drop", "whole"):
            groups = part.groupby("target")[f"{name} covers"]
            rates, counts = groups.mean(), groups.count()
            limits = [binomial_limits(0.95, max(int(count), 1))[0] for count in counts]
            below = int((rates.to_numpy() < limits).sum())
            below_all[name] += below
            if name == "drop" and below:
                named.append(
                    f"{family}, {int(n):,} rows, epsilon {epsilon}, {float(share):.0%} {kind}: {rates.min():.3f}, "
                    f"with a warning in {part['drop warns'].mean():.0%} of the fits"
                )
            said[name] = f"{rates.min():.3f} | {part[f'{name} covers'].mean():.3f} | {below}"
        targets += part["target"].nunique()
        ratio = float((part["drop width"] / part["told width"]).median())
        ratios.append(ratio)
        text.append(
            f"| {family} | {int(n):,}, {epsilon} | {float(share):.0%} {kind} | {part['fit'].nunique()} | {said['drop']} | "
            f"{said['whole']} | {part['told covers'].mean():.3f} | {part['drop covers'].isna().mean():.0%} | "
            f"{part['drop warns'].mean():.0%} | {part['whole warns'].mean():.0%} | {ratio:.3f} |"
        )
    known = [ratio for ratio in ratios if np.isfinite(ratio)]
    quiet = fits[~fits["drop warns"].astype(bool) & ~fits["told warns"].astype(bool)]
    logs = np.log(quiet["drop width"] / quiet["told width"]).dropna()
    mean, error = float(logs.mean()), float(logs.std() / np.sqrt(len(logs)))
    unwarned = []
    for name in ("drop", "whole", "told"):
        # The fit of whole rows is the same in all cells of one table.
        once = fits.drop_duplicates(["family", "fit", "target"]) if name == "whole" else fits
        covers = once.loc[~once[f"{name} warns"].astype(bool), f"{name} covers"].dropna()
        unwarned.append(f"{name} {covers.mean():.3f} ({len(covers):,})")
    text += [
        "",
        f"Of {targets} targets, {below_all['drop']} are below their 99% limit with dropped rows, and {below_all['whole']} in fits of the rows before values were removed; the number expected by chance is"
        f" {0.005 * targets:.1f}. Widths over those of a fit that knows the number of "
        f"complete rows are {min(known, default=np.nan):.3f} to {max(known, default=np.nan):.3f} by cell, and "
        f"{np.exp(mean):.3f} on (geometric) average over {len(logs)} pairs of intervals without a warning, with a standard "
        f"error of {error:.3f}. Coverage of intervals without a warning (and their number): {', '.join(unwarned)}. Of 5,000 rows at "
        "epsilon 1, of which half are incomplete, nearly all fits warn, with and without the number.",
        "",
        f"The targets below their limit: {'; '.join(named) or 'none'}.",
        "",
    ]
    PAGE.write_text("\n".join(text))
    print(PAGE.read_text())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    arguments = sys.argv[1:]
    part = (0, 1)
    if "--part" in arguments:
        place, parts = arguments.pop(arguments.index("--part") + 1).split("/")
        part = int(place), int(parts)
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    run(numbers[0] if numbers else FITS, part)
    report()
