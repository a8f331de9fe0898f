"""NegativeBinomial: coverage and width of coefficients, coverage of alpha.

    python benchmarks/negative_binomial.py --fits 500       (-> benchmarks/results/negative_binomial.md)

`--store FOLDER` keeps single fits, so that a run goes on where it was interrupted; `--part 0/2` and `--part 1/2` run
half of the cells each. `--page` writes the page from the stored fits.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.stats import binom

import privinf as pi

PAGE = Path(__file__).parent / "results" / "negative_binomial.md"
SLOPES = np.array([0.5, -0.3, 0.2])
CONSTANT = 0.5
TOP = 500.0  # public upper bound of the counts
VISITS = "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea + hlthg + hlthf + hlthp"
VISITS_BOUNDS = {
    "mdvis": (0, 100),
    "lncoins": (0, 5),
    "idp": [0, 1],
    "lpi": (0, 8),
    "fmde": (0, 9),
    "physlm": (0, 1),
    "disea": (0, 60),
    "hlthg": [0, 1],
    "hlthf": [0, 1],
    "hlthp": [0, 1],
}
HEAD = """# Negative binomial regression

Made by `python benchmarks/negative_binomial.py --fits {fits}`; rows of a fit by the seed (number of the fit, name of the cell),
noise by the number of the fit. 95% intervals, delta 1e-6. Simulated cells have three slopes (0.5, -0.3, 0.2), columns uniform in
[-1, 1] with these bounds, a constant of 0.5 and counts with the bounds 0 and 500, unless a cell states otherwise. `visits` are
20,000 rows drawn with replacement from the RAND health insurance experiment (statsmodels, 20,190 rows, 9 slopes); the truth there is
the fit to the table without noise. The column of fits states how many a cell has; those with another name than alpha and a
number have 70 to 200.

- **Coverage** of the worst coefficient, the constant included, and of all coefficients together. Fits without intervals and
  weakly identified coefficients are left out. Below the 99% limits of a true 0.95 a cell is marked; the limits of the worst
  coefficient allow for the number of coefficients. The last column has the limits of one interval.
- **Width**: median width over that of statsmodels' `NegativeBinomial` fitted without privacy, median over slopes; and the same of
  the constant.
- **alpha**: coverage of its interval, and median half-length. Without a number, counts are not negative binomial.

What fails, at epsilon 1:

- Counts of mean 0.2 with bounds of 500, 2,500 times as far. The first release then says little of the rate, most fits have no
  intervals, and those that have them miss the constant. With bounds of 20 the same counts are covered.
- Slopes of 1.5, -0.9 and 0.6: a fit in twenty has no intervals.
- The interval of the constant is wider than those of slopes, up to 2.0 times that without privacy at 20,000 rows. What a clip
  takes from the scores of large counts has one sign and moves the constant first, and its interval allows for most of it.

| cell | n | epsilon | fits with intervals | worst coefficient | all coefficients | width | width, constant | alpha: coverage | half-length | 99% limits |
|---|---|---|---|---|---|---|---|---|---|---|
"""


PARTS = """
## Parts of the width

20,000 rows, epsilon 1. Medians over fits, in standard errors of statsmodels without privacy: the sampling error, the noise of the
score and of the Hessian, and the error bound of the tail that is extrapolated beyond the clip (a bias). The first three add up as
squares; an interval of width 1 has the sampling error alone. Left the median slope, right the constant.

The noise of the score is most of what privacy adds, and the clip that it grows with is bought by that bias: a longer tail (a larger
alpha) needs a clip farther out. Of mu squared the score has 0.60, all counts 0.10, the start and two rounds 0.16, the dispersion 0.07,
the Hessian 0.05 and the meat 0.03. In the first edition the score had 0.48, the Hessian 0.12 and each round 0.085, the clip was
chosen with twice the weight on the bias, and the bound of the bias was the same in all directions: widths of slopes were 1.35, 1.42,
1.55 and 1.77 for alpha 0.5, 1, 2 and 5.

| cell | sampling | score noise | Hessian noise | bias | width | sampling | score noise | Hessian noise | bias | width |
|---|---|---|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One setting."""

    name: str
    n: int
    epsilon: float
    alpha: float | None
    constant: float = CONSTANT
    loose: float = 1.0
    steep: float = 1.0
    lognormal: bool = False
    top: float = TOP

    @property
    def truth(self) -> np.ndarray:
        return np.append(self.constant, self.steep * SLOPES)

    def rows(self, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
        """Return columns and counts."""
        columns = pd.DataFrame(rng.uniform(-1.0, 1.0, (self.n, 3)), columns=list("abc"))
        X = pi.add_constant(columns)
        mean = np.exp(X.to_numpy() @ self.truth)
        if self.lognormal:  # the variance is mu + mu^2, with a longer tail
            sd = np.sqrt(np.log(2.0))
            return X, rng.poisson(mean * np.exp(rng.normal(-(sd**2) / 2.0, sd, self.n))).astype(float)
        if self.alpha is None:  # the variance is 4 times the mean (NB1)
            return X, rng.poisson(rng.gamma(mean / 3.0, 3.0)).astype(float)
        mixed = mean if self.alpha == 0.0 else mean * rng.gamma(1.0 / self.alpha, self.alpha, self.n)
        return X, rng.poisson(mixed).astype(float)

    def model(self, rng: np.random.Generator) -> tuple[pi.NegativeBinomial, np.ndarray, np.ndarray]:
        """Return a model of new rows, with its columns and counts."""
        X, y = self.rows(rng)
        bounds = [(-self.loose, self.loose)] * 3
        return pi.NegativeBinomial(y, X, bounds=bounds, y_bounds=(0.0, self.top)), X.to_numpy(), y


class Visits(Cell):
    """Rows drawn from a table."""

    table = sm.datasets.randhie.load_pandas().data

    @property
    def schema(self) -> pi.Schema:
        return pi.Schema(VISITS_BOUNDS)

    @property
    def truth(self) -> np.ndarray:
        model = pi.NegativeBinomial.from_formula(VISITS, self.table, schema=self.schema)
        return model.fit(epsilon=np.inf).params.to_numpy()

    def model(self, rng: np.random.Generator) -> tuple[pi.NegativeBinomial, np.ndarray, np.ndarray]:
        frame = self.table.iloc[rng.integers(0, len(self.table), self.n)].reset_index(drop=True)
        design = pi.Design.from_formula(VISITS, self.schema)
        model = pi.NegativeBinomial.from_formula(VISITS, frame, schema=self.schema)
        return model, design.matrix(frame), frame["mdvis"].to_numpy(dtype=float)


def cells() -> list[Cell]:
    """Return the cells of the page."""
    grid = [
        Cell(name=f"alpha {alpha:g}", n=n, epsilon=epsilon, alpha=alpha)
        for alpha in (0.0, 0.5, 1.0, 2.0, 5.0)
        for n in (5_000, 20_000, 50_000)
        for epsilon in (1.0, 4.0)
    ]
    for epsilon in (1.0, 4.0):
        options = {"n": 20_000, "epsilon": epsilon}
        grid += [
            Cell(name="variance 4 times the mean", alpha=None, **options),
            Cell(name="lognormal mixture", alpha=None, lognormal=True, **options),
            Cell(name="alpha 1, mean 10", alpha=1.0, constant=2.2, **options),
            Cell(name="alpha 0, mean 10", alpha=0.0, constant=2.2, **options),
            Cell(name="alpha 1, mean 0.2, counts up to 20", alpha=1.0, constant=-1.7, top=20.0, **options),
            Cell(name="alpha 1, mean 0.2", alpha=1.0, constant=-1.7, **options),
            Cell(name="alpha 1, bounds 3 times as wide", alpha=1.0, loose=3.0, **options),
            Cell(name="alpha 1, slopes times 3", alpha=1.0, steep=3.0, **options),
            Visits(name="visits", alpha=None, **options),
        ]
    return grid


def usual_width(cell: Cell) -> np.ndarray:
    """Return median standard errors of statsmodels without privacy, over three tables."""
    errors = []
    for number in range(3):
        _, X, y = cell.model(np.random.default_rng([cell.n, number]))
        if cell.alpha == 0.0:  # maximum likelihood of alpha is at its bound
            errors.append(sm.GLM(y, X, sm.families.Poisson()).fit(cov_type="HC0").bse)
        else:
            errors.append(sm.NegativeBinomial(y, X).fit(disp=0, maxiter=200, cov_type="HC0").bse[:-1])
    return np.median(errors, axis=0)


def one_fit(cell: Cell, truth: np.ndarray, number: int) -> dict:
    """Return what the page needs of one fit, as JSON takes it; without intervals, its number alone."""
    rng = np.random.default_rng([number, *cell.name.encode()])
    result = cell.model(rng)[0].fit(epsilon=cell.epsilon, delta=1e-6, rng=number)
    estimate = result.estimate
    if estimate.cov is None:
        return {"number": number}
    low, high = result.conf_int().to_numpy().T
    hit = ((low <= truth) & (truth <= high)).astype(float)
    hit[[name in result.weakly_identified for name in result.names]] = np.nan
    terms = {} if estimate.terms is None else {**estimate.terms.sampling, **estimate.terms.noise}
    sds = {name: np.sqrt(np.maximum(np.diag(term), 0.0)).tolist() for name, term in terms.items()}
    if estimate.bias is not None:
        sds["bias"] = estimate.bias.tolist()
    return {
        "number": number,
        "params": result.params.tolist(),
        "hit": hit.tolist(),
        "width": (high - low).tolist(),
        "alpha": list(result.alpha_conf_int()),
        "terms": sds,
    }


def fits_of(cell: Cell, fits: int, file: Path | None) -> list[dict]:
    """Return the first fits of a cell; those in the file are not made again, and new ones are added to it."""
    stored = []
    if file is not None and file.exists():
        stored = [json.loads(line) for line in file.read_text().splitlines()]
    truth = cell.truth if len(stored) < fits else None
    for number in range(len(stored), fits):
        stored.append(one_fit(cell, truth, number))
        if file is not None:
            with file.open("a") as lines:
                lines.write(json.dumps(stored[-1]) + "\n")
    return stored[:fits]


def row_of(cell: Cell, fits: list[dict], usual: np.ndarray) -> str:
    """Return the table's row of a cell, whose widths without privacy are `usual`."""
    made = [fit for fit in fits if "hit" in fit]
    hits = np.array([fit["hit"] for fit in made])
    ratio = np.nanmedian([fit["width"] for fit in made], axis=0) / (2.0 * 1.959964 * usual)
    of_alpha = np.array([fit["alpha"] for fit in made])
    counts = np.sum(~np.isnan(hits), axis=0)
    worst = np.nanmean(hits, axis=0)
    limits = binom.ppf(0.005 / hits.shape[1], counts.min(), 0.95) / counts.min()
    alone = binom.interval(0.99, len(hits), 0.95)
    alpha = np.nan
    if cell.alpha is not None:
        alpha = np.mean((of_alpha[:, 0] <= cell.alpha) & (cell.alpha <= of_alpha[:, 1]))
    facts = (
        cell.name,
        f"{cell.n:,}",
        f"{cell.epsilon:g}",
        f"{len(hits)} of {len(fits)}",
        f"{worst.min():.3f}" + " **below**" * bool(worst.min() < limits),
        f"{np.nanmean(hits):.3f}",
        f"{np.median(ratio[1:]):.2f}",
        f"{ratio[0]:.2f}",
        "" if cell.alpha is None else f"{alpha:.3f}" + " **below**" * bool(alpha < alone[0] / len(hits)),
        f"{np.median(of_alpha[:, 1] - of_alpha[:, 0]) / 2.0:.3f}",
        f"{alone[0] / len(hits):.3f} to {alone[1] / len(hits):.3f}",
    )
    return f"| {' | '.join(facts)} |\n"


def parts_of(cell: Cell, fits: list[dict], usual: np.ndarray) -> str:
    """Return the row of the table of parts: median over fits, then over slopes; and of the constant."""
    made = [fit for fit in fits if "hit" in fit and "bias" in fit["terms"]]
    facts = [cell.name]
    for chosen in (slice(1, None), slice(0, 1)):
        for part in ("sampling", "score noise", "Hessian noise", "bias"):
            sizes = np.median([fit["terms"][part] for fit in made], axis=0) / usual
            facts.append(f"{np.median(sizes[chosen]):.2f}")
        widths = np.median([fit["width"] for fit in made], axis=0) / (2.0 * 1.959964 * usual)
        facts.append(f"{np.median(widths[chosen]):.2f}")
    return f"| {' | '.join(facts)} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=500)
    parser.add_argument("--only", default="", help="word that the names of the cells to run contain")
    parser.add_argument("--n", type=int, help="rows of the cells to run")
    parser.add_argument("--epsilon", type=float, help="budget of the cells to run")
    parser.add_argument("--store", type=Path, help="folder of single fits, one file for each cell")
    parser.add_argument("--part", default="0/1", help="I/K runs every K-th cell, from the I-th on")
    parser.add_argument("--page", action="store_true", help="write the page from the stored fits alone")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    first, step = map(int, options.part.split("/"))
    if options.store is not None:
        options.store.mkdir(exist_ok=True, parents=True)
    rows = []
    parts = []
    for place, cell in enumerate(cells()):
        file = None if options.store is None else options.store / f"{cell.name}, {cell.n}, {cell.epsilon:g}"
        chosen = options.n in (None, cell.n) and options.epsilon in (None, cell.epsilon)
        if options.only not in cell.name or not chosen or place % step != first:
            continue
        if options.page and not (file and file.exists()):
            continue
        if options.page:
            fits = fits_of(cell, len(file.read_text().splitlines()), file)[: options.fits]
        else:
            fits = fits_of(cell, options.fits, file)
        usual = usual_width(cell)
        rows.append(row_of(cell, fits, usual))
        print(rows[-1], end="", flush=True)
        if cell.n == 20_000 and cell.epsilon == 1.0 and cell.alpha is not None and cell.name[-1].isdigit():
            parts.append(parts_of(cell, fits, usual))
    if options.page or not (options.only or options.n or options.epsilon or step > 1):
        page = HEAD.format(fits=options.fits) + "".join(rows) + PARTS + "".join(parts)
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
