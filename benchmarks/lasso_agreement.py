"""Do the sites agree? Size and power of `SiteResults.agreement` by Monte Carlo, fit by fit.

    python benchmarks/lasso_agreement.py                       (500 fits a cell: 40 minutes of one core)
    python benchmarks/lasso_agreement.py --cells "AR .5, " --fits 40
    python benchmarks/lasso_agreement.py --report              (-> results/lasso_agreement.md, lasso_agreement_power.md)

Fits are appended to benchmarks/results/lasso_agreement.csv as they come; what stands there is not run again. A
fit is seeded by its cell and number. Three targets: a signal that all sites share, a column without effect, and
a column that has an effect at the first site alone. Sites of logistic cells have intercepts of their own too.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
import warnings
import zlib
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit
from tables import RESULTS, write_table

import privinf as pi
from privinf.errors import PrivinfError
from studies.lasso import Errors, Features, LassoDesign
from studies.simulation import binomial_limits

FITS = RESULTS / "lasso_agreement.csv"
COLUMNS = 16
EPSILON = 2.0
LEVEL = 0.05
SHARED, NOTHING, DIFFERS = 1, 12, 14  # columns of the three targets, counted from 0
OWN = 0.5  # coefficient of the column that one site alone has
AGREED = (f"x{SHARED + 1}", f"x{NOTHING + 1}")
APART = f"x{DIFFERS + 1}"
FITS_OF_A_CELL = 500  # by default
EVERY = 10  # fits between two writings of the file


@dataclass(frozen=True)
class Cell:
    """A design, the rows of a site on average, and the effect of the third target at the first site."""

    design: str
    features: Features
    correlation: float
    errors: Errors
    sizes: tuple[float, ...]
    n: int
    effect: float
    intercepts: tuple[float, ...] = ()  # of the sites, in a logistic cell

    @property
    def family(self) -> str:
        return "binomial" if self.intercepts else "gaussian"

    @property
    def name(self) -> str:
        return f"{self.design}, n = {self.n:,}"

    def draw(self, seed: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return response, columns and sites of the rows."""
        rows = [round(size * self.n) for size in self.sizes]
        design = LassoDesign(
            machines=len(rows),
            n=max(rows),
            p=COLUMNS,
            sparsity=3,
            features=self.features,
            correlation=self.correlation,
            errors=self.errors,
        )
        sample = design.draw(np.random.default_rng(seed))
        sites = sample.machines
        y = np.take(self.intercepts, sites) + sample.X @ sample.shared if self.intercepts else sample.y.copy()
        for site in range(len(rows)):
            here = sites == site
            y[here] += OWN * sample.X[here, 4 + site]
        y[sites == 0] += self.effect * sample.X[sites == 0, DIFFERS]
        if self.intercepts:
            y = (np.random.default_rng([*seed, 2]).random(len(y)) < expit(y)).astype(float)
        kept = np.concatenate([np.flatnonzero(sites == site)[:size] for site, size in enumerate(rows)])
        return y[kept], sample.X[kept], sites[kept]


DESIGNS: tuple[tuple[str, Features, float, Errors, tuple[float, ...]], ...] = (
    ("AR .5, normal errors, 4 equal sites", "ar", 0.5, "normal", (1.0,) * 4),
    ("AR .5, errors times a column, 4 equal sites", "ar", 0.5, "heteroskedastic", (1.0,) * 4),
    (
        "common correlation .2, normal errors, 6 unequal sites",
        "equicorrelated",
        0.2,
        "normal",
        (0.4, 0.6, 0.8, 1.2, 1.4, 1.6),
    ),
)
CELLS = {
    cell.name: cell
    for n, effect in ((2_000, 0.08), (8_000, 0.04))
    for cell in (Cell(*design, n, effect) for design in DESIGNS)
}
LOGISTIC = (
    Cell(
        "logistic, AR .5, 4 equal sites",
        "ar",
        0.5,
        "normal",
        (1.0,) * 4,
        4_000,
        0.2,
        (-0.6, -0.2, 0.2, 0.6),
    ),
    Cell(
        "logistic, common correlation .2, 6 unequal sites",
        "equicorrelated",
        0.2,
        "normal",
        (0.6, 0.7, 0.8, 1.2, 1.3, 1.4),
        5_000,
        0.2,
        (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0),
    ),
    Cell(
        "logistic, AR .5, rates 0.15 to 0.29, 4 equal sites",
        "ar",
        0.5,
        "normal",
        (1.0,) * 4,
        10_000,
        0.15,
        (-2.4, -2.0, -1.6, -1.2),
    ),
)
CELLS |= {cell.name: cell for cell in LOGISTIC}


def one_fit(cell: Cell, seed: list[int]) -> dict[str, object]:
    """Return the tests of one fit, and the errors of the sites' coefficients."""
    y, X, sites = cell.draw(seed)
    started = time.process_time()
    response = {"y_bounds": (-6, 6)} if cell.family == "gaussian" else {"family": "binomial"}
    model = pi.DebiasedLasso(y, X, x_bound=4.5, x_scale=1.0, sites=sites, **response)
    options = {"sparsity": 4, "shared_sparsity": 3, "heterogeneous": True}
    options |= {"targets": [SHARED, NOTHING, DIFFERS], "epsilon": EPSILON, "delta": 0.5 / len(y)}
    try:
        fit = model.fit(**options, rng=np.random.default_rng([*seed, 1]))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fit.conf_int()
            agreed, apart = fit.agreement(list(AGREED)), fit.agreement(APART)
    except PrivinfError:
        return {"state": "refused"}
    row: dict[str, object] = {"state": "marked" if told else "plain", "joint": agreed.pvalue}
    frame = agreed.summary_frame()
    truth = dict(zip(AGREED, (3.0**-0.5, 0.0), strict=True))
    for column in AGREED:
        row[f"p {column}"] = frame.loc[column, "P>Q"]
        row[f"pooled {column}"] = (frame.loc[column, "pooled"] - truth[column]) / frame.loc[column, "std err"]
        for site in fit.labels:
            name = f"{column}[{site}]"
            if name in fit.names:
                row[f"z {column} {site}"] = (fit.params[name] - truth[column]) / fit.bse[name]
        names = [name for name in fit.names if name.startswith(f"{column}[")]
        cov = fit.cov_params().loc[names, names].to_numpy()
        corr = cov / np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
        row[f"corr {column}"] = (corr.sum() - len(corr)) / (len(corr) * (len(corr) - 1))
    row["holm"] = float(agreed.pvalues.min())
    row["deviation"] = float(agreed.deviations.max_t.single_step.min())
    found = apart.summary_frame().iloc[0]
    names = list(apart.columns[APART].names)
    effects = np.array([cell.effect * (name == f"{APART}[0]") for name in names])
    precision = np.linalg.inv(fit.cov_params().loc[names, names].to_numpy())
    pooled = precision.sum(axis=0) @ effects / precision.sum()
    noncentral = float((effects - pooled) @ precision @ (effects - pooled))
    share = noncentral / (noncentral + found["df"])
    row |= {"p apart": found["P>Q"], "I2": found["I2"], "I2 true": share}
    row["I2 inside"] = float(found["I2 low"] <= share <= found["I2 high"])
    first = apart.deviations.summary_frame()["single-step"]
    row["site named"] = float(first.iloc[0] <= LEVEL and names[0] == f"{APART}[0]")
    return row | {"seconds": time.process_time() - started}


def run_cell(cell: Cell, fits: int) -> None:
    """Run what is not yet stored of a cell."""
    stored = pd.read_csv(FITS) if FITS.exists() else pd.DataFrame({"cell": []})
    have = int((stored["cell"] == cell.name).sum())
    seed = zlib.crc32(cell.name.encode())
    fresh = []
    for number in range(have, fits):
        fresh.append({"cell": cell.name, "number": number} | one_fit(cell, [seed, number]))
        if len(fresh) == EVERY or number == fits - 1:
            stored = pd.concat([stored, pd.DataFrame(fresh)])
            partial = FITS.with_suffix(".part")
            stored.to_csv(partial, index=False, float_format="%.5g")
            partial.replace(FITS)
            fresh = []
    print(cell.name, "done", flush=True)


def correlation(z: pd.DataFrame) -> float:
    """Return the mean correlation between the sites' standardized errors."""
    corr = z.corr().to_numpy()
    return float((corr.sum() - len(corr)) / (len(corr) * (len(corr) - 1)))


def report() -> None:
    """Write the tables."""
    stored = pd.read_csv(FITS)
    sizes, powers = [], []
    for name, cell in CELLS.items():
        part = stored[stored["cell"] == name]
        if part.empty:
            continue
        plain = part[part["state"] == "plain"]
        z = plain.filter(regex=r"^z ")
        signal, nothing = (z.filter(regex=f"^z {column} ").dropna(axis=1) for column in AGREED)
        if plain.empty:
            continue
        low, high = binomial_limits(LEVEL, len(plain))
        values = z.to_numpy()[~np.isnan(z.to_numpy())]
        sizes.append(
            {
                "design": name,
                "fits": len(part),
                "marked": f"{(part['state'] == 'marked').mean():.2f}",
                "refused": f"{(part['state'] == 'refused').mean():.2f}",
                "shared signal": f"{(plain[f'p {AGREED[0]}'] <= LEVEL).mean():.3f}",
                "no effect": f"{(plain[f'p {AGREED[1]}'] <= LEVEL).mean():.3f}",
                "both, joint": f"{(plain['joint'] <= LEVEL).mean():.3f}",
                "either, Holm": f"{(plain['holm'] <= LEVEL).mean():.3f}",
                "any site apart": f"{(plain['deviation'] <= LEVEL).mean():.3f}",
                "99% limits": f"{low:.3f} to {high:.3f}",
                "sites' intervals cover": f"{(np.abs(values) <= 1.959964).mean():.3f}",
                "pooled intervals cover": f"{(plain.filter(regex='^pooled').abs() <= 1.959964).mean().mean():.3f}",
                "correlation between sites": f"{(correlation(signal) + correlation(nothing)) / 2:.3f}",
                "stated": f"{plain.filter(regex='^corr ').mean().mean():.3f}",
            }
        )
        powers.append(
            {
                "design": name,
                "effect at one site": cell.effect,
                "Wald test rejects": f"{(plain['p apart'] <= LEVEL).mean():.3f}",
                "the site is named": f"{plain['site named'].mean():.3f}",
                "I2 of the truth": f"{plain['I2 true'].mean():.2f}",
                "I2, median": f"{plain['I2'].median():.2f}",
                "its 95% intervals cover": f"{plain['I2 inside'].mean():.3f}",
            }
        )
    note = (
        f"Fits with heterogeneous=True of {COLUMNS} columns, three targets, joint epsilon {EPSILON:g}, delta = "
        "1/(2N); n is the mean number of rows of a site. First table: share of fits in which a test at 5% "
        "rejects equal coefficients although they are equal, among fits that are not marked as unreliable. The "
        "last two columns compare the correlation of the errors of two sites with the one that the covariance "
        "states."
    )
    seconds = float(stored["seconds"].sum())
    count = int(stored.groupby("cell").size().max())
    command = "benchmarks/lasso_agreement.py" + (f" --fits {count}" if count != FITS_OF_A_CELL else "")
    write_table(
        RESULTS / "lasso_agreement.md",
        "Do the sites agree? Size and power",
        command,
        pd.DataFrame(sizes),
        seconds,
        note,
    )
    write_table(
        RESULTS / "lasso_agreement_power.md",
        "Do the sites agree? Power, and intervals for I2",
        command,
        pd.DataFrame(powers),
        seconds,
        "The same fits, without those that are marked. One site has an effect that the others lack. It is named "
        "if its deviation from the pooled estimate is significant at 5%, simultaneously over sites.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", default="", help="cells whose names contain this text")
    parser.add_argument("--fits", type=int, default=FITS_OF_A_CELL)
    parser.add_argument("--report", action="store_true", help="write the tables of what is stored")
    asked = parser.parse_args()
    if not asked.report:
        for name, cell in CELLS.items():
            if asked.cells in name:
                run_cell(cell, asked.fits)
    report()


if __name__ == "__main__":
    main()
