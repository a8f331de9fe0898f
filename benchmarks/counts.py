"""Counts, margins and numbers by group: ``python benchmarks/counts.py [DRAWS]``.

Noise is drawn as in releases of `privinf.stats`, at delta = 1e-6, and the intervals are the 95% intervals of its results. "Gaussian" is the noise of releases that share a ledger, and "Laplace" is the noise of a single release. The coverage of the count of a
cell is computed from the distribution of the noise; all other numbers are simulated. The number of draws is above each table.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import sys
import time
from collections.abc import Callable, Iterable

import numpy as np
from scipy import signal, stats
from tables import RESULTS

from privinf.accounting import calibrate_mu
from privinf.inference.counts import (
    count_intervals,
    estimate_table,
    joint_level,
    laplace_share_intervals,
    noise_half,
    on_simplex,
    with_margins,
)
from privinf.inference.quantiles import quantile_interval
from privinf.mechanisms.distribution import group_distributions
from privinf.mechanisms.statistics.prefixes import prefix_sensitivity, root
from privinf.stats.groups import GroupModel, score_interval
from privinf.stats.totals import TotalModel

DELTA, LEVEL = 1e-6, 0.95
EPSILONS = (0.1, 0.5, 1.0, 4.0)
COUNTS = (0, 1, 5, 50, 5000)
SHAPES = ((3, 4), (16, 16), (50, 20))
SIZES = (20, 180, 1800, 18_000)
CELLS = 1024
# Values of groups within [-1, 1]: a law, and its mean and median.
LAWS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float, float]] = {
    "normal, sd 0.25": (lambda r, n: 0.25 * r.standard_normal(n), 0.0, 0.0),
    "exponential, sd 0.2": (lambda r, n: 0.2 * r.exponential(size=n) - 0.8, -0.6, -0.8 + 0.2 * math.log(2.0)),
    "two points, 10%": (lambda r, n: np.where(r.random(n) < 0.1, 1.0, -1.0), -0.8, -1.0),
}


def mu_of(epsilon: float) -> float:
    """Return the mu of an epsilon at `DELTA`."""
    return calibrate_mu(epsilon=epsilon, delta=DELTA)


def sds_of(epsilon: float) -> dict[str, tuple[float, bool]]:
    """Return the sd of a cell's noise, and whether it is Laplace noise."""
    return {
        "Gaussian": (math.sqrt(2.0) / mu_of(epsilon), False),
        "Laplace": (math.sqrt(2.0) * 2.0 / epsilon, True),
    }


def noise(rng: np.random.Generator, sd: float, laplace: bool, size: tuple[int, ...]) -> np.ndarray:
    """Draw noise of a sd."""
    return rng.laplace(0.0, sd / math.sqrt(2.0), size) if laplace else rng.normal(0.0, sd, size)


def table(title: str, note: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a table with its title."""
    columns = list(head)
    lines = [f"\n## {title}\n", f"{note}\n", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    return lines


# ---- counts of this table, shares of the population


def exact_coverage(count: int, sd: float, laplace: bool) -> tuple[float, float]:
    """Return the probability that the interval has the count, and half of the interval's length."""
    law = stats.laplace(scale=sd / math.sqrt(2.0)) if laplace else stats.norm(scale=sd)
    half = float(noise_half(np.asarray(sd), LEVEL, 1 if laplace else None))
    points = law.ppf((np.arange(400_000) + 0.5) / 400_000)
    low, high = count_intervals(count + points, np.full(points.shape, half), 10**7)
    return float(np.mean((low <= count) & (count <= high))), half


def counts_of_table() -> list[str]:
    """Coverage of every count, by the noise's distribution."""
    rows = []
    for epsilon in EPSILONS:
        for name, (sd, laplace) in sds_of(epsilon).items():
            found = [exact_coverage(count, sd, laplace) for count in COUNTS]
            rows.append([f"{epsilon:g}", name, f"{found[0][1]:.1f}", *(f"{cover:.4f}" for cover, _ in found)])
    return table(
        "One cell: coverage of this table's count",
        "Computed from the distribution of the noise. Columns: true count.",
        ["epsilon", "noise", "half-length", *map(str, COUNTS)],
        rows,
    )


def shares(draws: int) -> list[str]:
    """Coverage of the population's share by score intervals; of Wald's intervals beside it."""
    rng, rows = np.random.default_rng(1), []
    for epsilon in (1.0, 4.0):
        for name, (sd, laplace) in sds_of(epsilon).items():
            for n in (1000, 20_000):
                row = [f"{epsilon:g}", name, f"{n:,}"]
                for p in (0.0005, 0.01, 0.1, 0.5):
                    size = draws // 20 if laplace else draws
                    x = rng.binomial(n, p, size) + noise(rng, sd, laplace, (size,))
                    low, high = (
                        laplace_share_intervals(x, n, np.full(size, sd), LEVEL, 1)
                        if laplace
                        else score_interval(x, n, sd, LEVEL)
                    )
                    at = np.clip(x / n, 0.0, 1.0)
                    wald = 1.96 * np.sqrt(at * (1.0 - at) / n + (sd / n) ** 2)
                    covered = np.mean((low <= p) & (p <= high)), np.mean(np.abs(x / n - p) <= wald)
                    row.append("; ".join(f"{share:.3f}" for share in covered))
                rows.append(row)
    return table(
        "One cell: coverage of the population's share",
        f"{draws:,} draws, {draws // 20:,} with Laplace noise. Score interval; Wald's interval. Columns: share.",
        ["epsilon", "noise", "n", "0.0005", "0.01", "0.1", "0.5"],
        rows,
    )


def together(draws: int) -> list[str]:
    """Coverage of all counts at once."""
    rng, rows = np.random.default_rng(2), []
    for epsilon in (1.0, 4.0):
        for name, (sd, laplace) in sds_of(epsilon).items():
            row = [f"{epsilon:g}", name]
            for cells in (10, 100, 1000):
                level = joint_level(LEVEL, cells)
                scale = sd if laplace else sd * math.sqrt(1.0 - 1.0 / cells)
                half = noise_half(np.asarray(scale), level, 1 if laplace else None)
                covered = 0
                for _ in range(draws // 10):
                    e = noise(rng, sd, laplace, (cells,))
                    x = 20.0 + (e if laplace else e - e.mean())
                    low, high = count_intervals(x, np.broadcast_to(half, x.shape), 10**6)
                    covered += bool(((low <= 20) & (high >= 20)).all())
                row.append(f"{covered / (draws // 10):.3f} ({float(half):.1f})")
            rows.append(row)
    return table(
        "All cells at once (Sidak)",
        f"{draws // 10:,} draws. Coverage of all counts (half-length), after conditioning on n with Gaussian "
        "noise. Columns: number of cells.",
        ["epsilon", "noise", "10", "100", "1,000"],
        rows,
    )


# ---- margins


def of_margins(draws: int) -> list[str]:
    """Errors and coverage of cells and margins, and what is displayed, at epsilon 1."""
    rows, sd, n = [], math.sqrt(2.0) / mu_of(1.0), 20_000
    for shape in SHAPES:
        for name, shares_of in (("cells alone", (1.0,)), (".6 .2 .2", (0.6, 0.2, 0.2))):
            rows.append([f"{shape[0]} x {shape[1]}", name, *margin_row(shape, shares_of, sd, n, draws)])
    return table(
        "Cells and margins, epsilon 1, Gaussian noise",
        f"{draws} draws of n = 20,000, shares of cells from a Dirichlet distribution with 0.3. The columns are the root mean squared error of cells, rows and columns, the lowest coverage of these three, and the number of displayed cells. The last two are the largest distance of displayed margins from the projection of the estimated margins, and the mean shift of the largest row if its cells are projected without margins.",
        ["table", "release", "cell", "row", "column", "coverage", "shown cell", "distance", "shift"],
        rows,
    )


def margin_row(
    shape: tuple[int, int], shares_of: tuple[float, ...], sd: float, n: int, draws: int
) -> list[str]:
    """Return the entries of one table and one release."""
    rng = np.random.default_rng(math.prod(shape))
    errors, covered = [[], [], []], [[], [], []]
    shown_errors, distances, shifts = [], [], []
    own = [sd / math.sqrt(share) for share in shares_of]
    for _ in range(draws):
        cells = rng.multinomial(n, rng.dirichlet(np.full(math.prod(shape), 0.3))).reshape(shape)
        truth = cells, cells.sum(axis=1), cells.sum(axis=0)
        noisy = [count + rng.normal(0.0, s, count.shape) for count, s in zip(truth, own, strict=False)]
        more = (
            {"rows": noisy[1], "columns": noisy[2], "margin_sds": (own[1], own[2])} if len(noisy) > 1 else {}
        )
        found = estimate_table(noisy[0], n, own[0], **more)
        parts = (found.cells, found.cell_sds), (found.rows, found.row_sds), (found.columns, found.column_sds)
        for place, ((x, sds), count) in enumerate(zip(parts, truth, strict=True)):
            errors[place].append(np.mean((x - count) ** 2))
            low, high = count_intervals(x, noise_half(sds, LEVEL), n)
            covered[place].append(np.mean((low <= count) & (count <= high)))
        margins = on_simplex(found.rows, n), on_simplex(found.columns, n)
        shown = with_margins(found.cells, *margins)
        shown_errors.append(np.mean((shown - cells) ** 2))
        distances += [np.abs(shown.sum(axis=1 - k) - margins[k]).max() for k in (0, 1)]
        alone = on_simplex(found.cells.ravel(), n).reshape(shape)
        first = int(np.argmax(truth[1]))
        shifts.append(alone.sum(axis=1)[first] - found.rows[first])
    rmse = [math.sqrt(np.mean(one)) for one in errors]
    return [
        *(f"{error:.1f}" for error in rmse),
        f"{min(np.mean(one) for one in covered):.3f}",
        f"{math.sqrt(np.mean(shown_errors)):.1f}",
        f"{max(distances):.1e}",
        f"{np.mean(shifts):.1f}",
    ]


def suppression(draws: int) -> list[str]:
    """Shares of intervals of shown cells that miss, plain and at the corrected level."""
    rng, rows = np.random.default_rng(5), []
    sd, cells = math.sqrt(2.0) / mu_of(1.0), 200
    truth = np.zeros(cells)
    truth[:20] = np.linspace(0.5, 20.0, 20) * sd // 1
    for tau in (1.0, 2.0, 4.0):
        missed, shown_cells = [[], []], []
        for _ in range(draws):
            x = truth + rng.normal(0.0, sd, cells)
            shown = x >= tau * sd
            if not shown.any():
                continue
            shown_cells.append(shown.sum())
            corrected = 1.0 - (1.0 - LEVEL) * shown.sum() / cells
            for place, level in enumerate((LEVEL, corrected)):
                low, high = count_intervals(x[shown], noise_half(np.full(shown.sum(), sd), level), 10**6)
                missed[place].append(np.mean((low > truth[shown]) | (high < truth[shown])))
        rows.append([f"{tau:g}", f"{np.mean(shown_cells):.0f}", *(f"{np.mean(one):.3f}" for one in missed)])
    return table(
        "Suppression: 180 of 200 cells are empty",
        f"{draws} draws at epsilon 1. The table shows the share of the intervals of displayed cells that miss.",
        ["threshold in sds of the noise", "cells shown", "plain", "corrected level"],
        rows,
    )


# ---- groups


def by_group(draws: int) -> list[str]:
    """Coverage of means, sums and medians of groups of very different sizes, and widths."""
    rows = []
    for epsilon in (1.0, 4.0):
        for name in LAWS:
            found, widths = group_draws(name, mu_of(epsilon) / math.sqrt(2.0), draws)
            for quantity, cover in found.items():
                shown = [f"{share:.3f}" for share in np.mean(cover, axis=0)]
                width = [f"{value / 2.0:.2g}" for value in np.median(widths[quantity], axis=0)]
                rows.append(
                    [f"{epsilon:g}", name, quantity, *(map("; ".join, zip(shown, width, strict=True)))]
                )
    return table(
        "Groups of 20, 180, 1,800 and 18,000",
        f"{draws} draws of 20,000 rows in [-1, 1]; half of mu^2 for the sums of groups and half for their "
        "distribution functions. Coverage; median half-length. Sums over 20,000. Sizes of groups are drawn, with these means.",
        ["epsilon", "values", "interval of", *(f"{size:,}" for size in SIZES)],
        rows,
    )


def group_draws(
    name: str, mu: float, draws: int
) -> tuple[dict[str, list[np.ndarray]], dict[str, list[np.ndarray]]]:
    """Return coverage and widths of the intervals of one law, draw by draw."""
    draw, mean, median = LAWS[name]
    rng, n, k = np.random.default_rng(7), sum(SIZES), len(SIZES)
    a = 2.0 / mu
    edges = np.linspace(-1.0, 1.0, CELLS + 1)[1:-1]
    scale = prefix_sensitivity(CELLS, k) / mu
    p = np.array(SIZES) / n
    covered: dict[str, list[np.ndarray]] = {}
    widths: dict[str, list[np.ndarray]] = {}

    def keep(quantity: str, ends: tuple[np.ndarray, np.ndarray], truth: np.ndarray | float) -> None:
        covered.setdefault(quantity, []).append((ends[0] <= truth) & (truth <= ends[1]))
        widths.setdefault(quantity, []).append(ends[1] - ends[0])

    for _ in range(draws):
        sizes = rng.multinomial(n, p)
        values = [np.clip(draw(rng, size), -1.0, 1.0) for size in sizes]
        sums = np.array([u.sum() for u in values])
        squares = np.array([(1.0 - u * u).sum() for u in values])
        noisy = [one + rng.normal(0.0, a, k) for one in (sizes, sums, squares)]
        model = GroupModel.from_sums(*noisy, n, (a, a))
        keep("population mean", model.mean_sets(LEVEL), mean)
        keep("this table's mean", model.mean_sets(LEVEL, sampling=False), sums / np.maximum(sizes, 1))
        total = TotalModel(
            totals=model.S,
            count_sds=np.zeros(k),
            sum_sds=np.full(k, a),
            sampling=np.maximum(model.N - model.P - model.S**2 / n, 0.0),
            laplace=False,
        )
        for label, sampling, truth in (("this table's", False, sums), ("population's", True, n * p * mean)):
            half = total.half_lengths(LEVEL, sampling=sampling)
            keep(f"{label} sum", ((model.S - half) / n, (model.S + half) / n), truth / n)
        counts = np.array(
            [np.bincount(np.searchsorted(edges, u, side="left"), minlength=CELLS) for u in values]
        )
        released = signal.lfilter(root(CELLS), [1.0], counts, axis=-1) + rng.normal(0.0, scale, counts.shape)
        distributions = group_distributions(released, edges, scale, n, 0.5)
        for label, sampling, at in (
            ("population median", True, np.full(k, median)),
            ("this table's median", False, np.array([np.median(u) for u in values])),
        ):
            ends = np.array(
                [
                    quantile_interval(one, 0.5, 1.959964, -1.0, 1.0, sampling=sampling)[1:]
                    for one in distributions
                ]
            )
            keep(label, (ends[:, 0], ends[:, 1]), at)
    return covered, widths


def main(draws: int = 600) -> None:
    """Write all tables."""
    start = time.time()
    parts = [
        *counts_of_table(),
        *shares(draws * 60),
        *together(draws * 60),
        *of_margins(draws),
        *suppression(draws * 5),
        *by_group(draws),
    ]
    note = (__doc__ or "").partition(".\n")[2].strip()
    (RESULTS / "counts.md").write_text(
        f"# Counts, margins and numbers by group\n\nMade by `python benchmarks/counts.py {draws}` in "
        f"{time.time() - start:.0f} s.\n\n{note}\n" + "\n".join(parts) + "\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 600)
