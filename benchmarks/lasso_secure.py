"""DebiasedLasso on secure sums: coverage, width against a trusted server's, where it breaks, how it picks.

Every fit goes through the public API, seeded, in one process. Each table stands in
benchmarks/results/lasso_secure_*.md, its single fits in the .csv beside it: a run that was stopped goes on where
it was. ``--only NAME`` makes one table, ``--scale 0.1`` a tenth of the replications, ``--fresh`` forgets what is
stored.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from tables import RESULTS, write_table
from verify_lasso import BOUNDS, response

import privinf as pi
from privinf.errors import NotAvailableError, WeakIdentificationWarning
from privinf.lasso import fit as sparse_fits
from privinf.lasso import running
from privinf.lasso.fit import SparseFit
from privinf.lasso.plan import CHEAP_FITS, SparseFitPrices
from privinf.lasso.radii import residual_moments
from privinf.lasso.sums import SparseSums
from studies.lasso import LassoDesign, lasso_design
from studies.simulation import binomial_limits

NORMAL, EPSILON = 1.959963984540054, 0.8
PER_DRAW = 25
TRUSTED, SECURE = "trusted server", "secure sums"

STATED = {
    "stated": ("AR(.5) normal features, normal errors", lasso_design("normal")),
}
ROBUST = {
    name: (label, lasso_design(name))
    for name, label in {
        "heteroskedastic": "errors times abs(x_7)",
        "chi2": "chi-square features, 3 degrees of freedom",
        "equicorrelated": "correlation .3 between all features",
        "spread": "signals of both signs, far apart",
    }.items()
}
GRID = {
    f"N {machines * n} p {p}": (
        f"N = {machines * n:,}, p = {p}",
        LassoDesign(machines=machines, n=n, p=p, sparsity=15),
    )
    for machines, n, p in [
        (5, 1200, 800),
        (5, 2400, 800),
        (5, 4000, 800),
        (5, 6000, 800),
        (5, 8000, 800),
        (5, 4000, 50),
        (5, 4000, 200),
        (5, 4000, 1600),
    ]
}
ROUNDS = {
    "leading": (
        "AR(.5), neighbouring signals, N = 20,000, p = 400, s = 10",
        LassoDesign(machines=5, n=4000, p=400, sparsity=10),
    ),
    "fewer rows": ("the same, N = 7,500", LassoDesign(machines=5, n=1500, p=400, sparsity=10)),
    "equicorrelated": (
        "correlation .3 between all features, N = 20,000",
        LassoDesign(machines=5, n=4000, p=400, sparsity=10, features="equicorrelated", correlation=0.3),
    ),
}
CELLS = STATED | ROBUST | GRID | {f"rounds {name}": cell for name, cell in ROUNDS.items()}


def targets(design: LassoDesign) -> list[int]:
    """Return three signals (the first, the middle, the last), the null beside one of them, and one far away."""
    support = np.flatnonzero(params_of(design))
    middle, last = int(support[len(support) // 2]), int(support[-1])
    beside = (middle if design.signals == "spread" else last) + 1
    return [int(support[0]), middle, last, beside, design.p // 2 + 7 * (design.signals == "spread")]


def params_of(design: LassoDesign) -> np.ndarray:
    """Return the true coefficients."""
    small = LassoDesign(machines=1, n=1, p=design.p, sparsity=design.sparsity, signals=design.signals)
    return small.draw(0).shared


def pursuit(
    sums: SparseSums,
    sparsity: int,
    budget: SparseFitPrices,
    *,
    extra: int = 2,
    blocks: int = 3,
    clip: float = 1.5,
    threshold: float = 0.0,
    **_: object,
) -> SparseFit:
    """Return the sparse fit by iterative hard thresholding with refits, in place of picks in blocks.

    Each of the rounds releases the products of the residuals with all columns, adds them to the coefficients,
    keeps the largest of the sum, and refits; the last refit is that of the blocks. The same budget.
    """
    p, picks = len(sums.units.scale), sparsity + extra
    scale_count = blocks + len(sparse_fits.STEPS)
    support: list[int] = []
    beta = np.empty(0)
    scale = sums.residual_scale((), np.empty(0), budget.scales / scale_count, "scale of the response")
    cheap = CHEAP_FITS * budget.refit / max(blocks - 1, 1)
    for number in range(blocks):
        if number:
            beta, _ = sparse_fits._cheap_fit(sums, support, beta, scale, clip, cheap)
            scale = sums.residual_scale(support, beta, budget.scales / scale_count, "scale of residuals")
        seen = _products(sums, support, beta, clip * scale, budget.selection / blocks)
        whole = np.zeros(p)
        whole[support] = beta
        support = [int(j) for j in np.argsort(-np.abs(whole + seen))[:picks]]
        sums.size_columns(support, budget.sizes / blocks)
        beta = whole[support]
    left = budget.refit * (1.0 - CHEAP_FITS)
    state = sparse_fits.LinearState(
        support=support, beta=beta, scale=scale, response_scale=scale, far=0.0, refit_price=left
    )
    full = sparse_fits._full_fit(sums, state, clip, budget.scales / scale_count)
    return sparse_fits._select_largest(full, sums.n, sparsity, threshold, 0)


def _products(sums: SparseSums, support: list[int], beta: np.ndarray, bound: float, rho: float) -> np.ndarray:
    """Release the products with the residuals, divided by their slope."""
    kept, original = [], sums.server.server.vector_sum

    def vector_sum(op: str, args: dict, **options: object) -> object:
        kept.append(original(op, args, **options))
        return kept[-1]

    sums.server.server.vector_sum = vector_sum
    try:
        sums.select(support, beta, bound, 1, np.ones(len(sums.units.scale), bool), rho, "selection")
    finally:
        del sums.server.server.vector_sum
    radius = sums.server.releases[-1].radius
    return kept[-1].mean / residual_moments(radius)[0]


@contextmanager
def picking(how: Callable[..., SparseFit]) -> Iterator[None]:
    """Let fits pick their columns in another way."""
    original, running.sparse_fit = running.sparse_fit, how
    try:
        yield
    finally:
        running.sparse_fit = original


def one_fit(
    design: LassoDesign, data: tuple, method: str, seed: np.random.SeedSequence, bound: float
) -> dict:
    """Fit a data set and return errors, standard errors, and whether the results warned or there were none."""
    started, wanted, params = time.process_time(), targets(design), params_of(design)
    y, X = data
    trust = "server" if method == TRUSTED else "secure-sum"
    labels = np.repeat(np.arange(design.machines), design.n)
    model = pi.DebiasedLasso(y, X, x_bound=bound, y_bounds=(-5.0, 5.0), sites=labels, trust=trust)
    options = {"iterations": int(method[-1])} if method[-1].isdigit() else {}
    how = pursuit if method.startswith("thresholding") else running.sparse_fit
    row: dict = {"method": method}
    with picking(how), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", WeakIdentificationWarning)
        try:
            r = model.fit(
                epsilon=EPSILON,
                delta=0.5 / design.nobs,
                sparsity=design.sparsity,
                targets=wanted,
                rng=np.random.default_rng(seed),
                **options,
            )
            r.conf_int()
        except NotAvailableError:
            return row | {"failed": 1, "warned": 1, "found": 0, "seconds": time.process_time() - started}
    if r.hidden_targets:
        return row | {"failed": 1, "warned": 1, "found": 0, "seconds": time.process_time() - started}
    row |= {f"error{j}": v for j, v in enumerate(r.params.to_numpy() - params[wanted])}
    row |= {f"se{j}": v for j, v in enumerate(r.bse.to_numpy())}
    found = np.count_nonzero(r.sparse_params.to_numpy()[params != 0.0])
    return row | {
        "failed": 0,
        "warned": int(bool(warned)),
        "found": int(found),
        "epsilon": r.privacy.epsilon(0.5 / design.nobs),
        "seconds": time.process_time() - started,
    }


def fits_of_draw(cell: str, number: int, count: int, methods: tuple[str, ...]) -> pd.DataFrame:
    """Draw features once, and fit `count` responses by every method."""
    design = CELLS[cell][1]
    first, *seeds = np.random.SeedSequence([21, list(CELLS).index(cell), number]).spawn(1 + PER_DRAW)
    sample = design.draw(np.random.default_rng(first))
    rows = []
    for replication, seed in enumerate(seeds[:count]):
        noise, errors = seed.spawn(2)
        y = response(design, sample.X, sample.shared, np.random.default_rng(errors))
        for method in methods:
            line = {"cell": cell, "draw": number, "replication": replication}
            rows.append(line | one_fit(design, (y, sample.X), method, noise, BOUNDS.get(cell, 3.5)))
    return pd.DataFrame(rows)


def stored(path: Path, cells: list[str], replications: int, methods: tuple[str, ...]) -> pd.DataFrame:
    """Return the fits of some cells; those not stored are made and stored draw by draw."""
    found = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["cell", "draw"])
    for number in range(math.ceil(replications / PER_DRAW)):
        count = min(PER_DRAW, replications - number * PER_DRAW)
        for cell in cells:
            have = (found["cell"] == cell) & (found["draw"] == number)
            if have.sum() >= count * len(methods):
                continue
            new = fits_of_draw(cell, number, count, methods)
            found = pd.concat([found[~have], new] if (~have).any() else [new], ignore_index=True)
            found.to_csv(path, index=False, float_format="%.7g")
            print(f"{time.strftime('%H:%M:%S')} {cell} {number}: {len(found)} fits stored", flush=True)
    return found[found["draw"] * PER_DRAW + found["replication"] < replications]


def held_of(frame: pd.DataFrame) -> np.ndarray:
    """Return which intervals hold the truth, shape (fits, targets)."""
    errors = frame.filter(regex=r"^error\d$").to_numpy(float)
    return np.abs(errors) <= NORMAL * frame.filter(regex=r"^se\d$").to_numpy(float)


def width_of(frame: pd.DataFrame) -> float:
    """Return the mean width of the intervals."""
    return float(2.0 * NORMAL * frame.filter(regex=r"^se\d$").to_numpy(float).mean())


def covered(frame: pd.DataFrame) -> str:
    """Return coverage with its standard error over fits."""
    if len(frame) < 2:
        return "-"
    held = held_of(frame)
    return f"{held.mean():.4f} ± {held.mean(axis=1).std(ddof=1) / math.sqrt(len(held)):.4f}"


def coverage(scale: float) -> None:
    """The stated setting: five named targets under one joint budget."""
    _coverage(
        "coverage",
        "DebiasedLasso on secure sums: 95% intervals of five named targets",
        STATED,
        max(10, int(500 * scale)),
        "homogeneous",
        scale,
    )


def robust(scale: float) -> None:
    """The same sizes under other errors, features and signals."""
    _coverage(
        "robust",
        "DebiasedLasso on secure sums under other errors, features and signals",
        ROBUST,
        max(10, int(50 * scale)),
        "robust",
        scale,
    )


def _coverage(name: str, title: str, cells: dict, replications: int, trusted: str, scale: float) -> None:
    frame = stored(path_of(name), list(cells), replications, (SECURE,))
    peeled = pd.read_csv(RESULTS / f"lasso_{trusted}.csv").replace({"cell": {"normal": "stated"}})
    rows = []
    for cell, (label, design) in cells.items():
        fits, others = _good(frame, cell, SECURE), peeled[peeled["cell"] == cell]
        held = held_of(fits)
        low, high = binomial_limits(0.95, held.size)
        clear = 2.0 * NORMAL * np.sqrt(design.sampling_variance()[targets(design)] / design.nobs).mean()
        rows.append(
            {
                "design": label,
                "fits": len(fits),
                "coverage": covered(fits),
                "99% limits of 0.95": f"{low:.4f} to {high:.4f}",
                "each target": " ".join(f"{c:.3f}" for c in held.mean(axis=0)),
                "width": f"{width_of(fits):.5f}",
                "trusted server": f"{width_of(others):.5f}",
                "ratio": f"{width_of(fits) / width_of(others):.3f}",
                "without privacy": f"{clear:.5f}",
                "all signals picked": f"{(fits['found'] == design.sparsity).mean():.3f}",
                "warned": f"{fits['warned'].mean():.3f}",
                "no interval": int(frame[_of(frame, cell, SECURE)]["failed"].sum()),
                "joint epsilon": f"{fits['epsilon'].max():.4f}",
                "inside": bool(low <= held.mean() <= high),
            }
        )
    write(
        name,
        title,
        rows,
        frame["seconds"].sum(),
        "N = 60,000, p = 800, s = 15 coefficients of 1/sqrt 15, error sd .5, 15 sites, eps = .8, delta = 1/(2N), "
        "everything released counted. Targets: signals 1, 8 and 15, a null beside a signal, a null far away. "
        f"X is drawn again after {PER_DRAW} fits, responses and noise for every fit; standard errors over fits. "
        f"The width for a trusted server is that of the fits in lasso_{trusted}.csv, with the same design and budget. "
        "Its budget is converted from zCDP, and the budget of secure sums is exact, because all their releases are Gaussian.",
        scale,
    )


def breaks(scale: float) -> None:
    """Where too many columns meet too few rows: coverage with and without the warning."""
    replications = max(4, int(50 * scale))
    frame = stored(path_of("breaks"), list(GRID), replications, (TRUSTED, SECURE))
    rows = []
    for cell, (label, _) in GRID.items():
        trusted, fits = _good(frame, cell, TRUSTED), _good(frame, cell, SECURE)
        asked = frame[_of(frame, cell, SECURE)]
        quiet, loud = fits[fits["warned"] == 0], fits[fits["warned"] == 1]
        size = 5 * max(len(quiet), 1)
        low, high = binomial_limits(0.95, size)
        rows.append(
            {
                "setting": label,
                "fits": len(asked),
                "no interval": int(asked["failed"].sum()),
                "with warning": len(loud),
                "without": len(quiet),
                "coverage without warning": covered(quiet),
                "99% limits of 0.95": f"{low:.3f} to {high:.3f}" if len(quiet) else "-",
                "coverage with warning": covered(loud),
                "signals picked, of 15": f"{asked['found'].mean():.1f}",
                "width": f"{width_of(fits):.4f}" if len(fits) else "-",
                "trusted: no interval": int(frame[_of(frame, cell, TRUSTED)]["failed"].sum()),
                "trusted: with warning": int((trusted["warned"] == 1).sum()),
                "trusted: coverage without": covered(trusted[trusted["warned"] == 0]),
                "trusted: coverage with": covered(trusted[trusted["warned"] == 1]),
                "trusted: signals picked": f"{frame[_of(frame, cell, TRUSTED)]['found'].mean():.1f}",
                "trusted: width": f"{width_of(trusted):.4f}" if len(trusted) else "-",
                "right or warned": all(right(one[one["warned"] == 0]) for one in (fits, trusted)),
            }
        )
    write(
        "breaks",
        "DebiasedLasso on secure sums: where the picks break down",
        rows,
        frame["seconds"].sum(),
        "AR(.5) features, s = 15 neighbouring signals of 1/sqrt 15, error sd .5, eps = .8, delta = 1/(2N), 5 "
        "sites, five targets as in the stated setting. A fit warns if columns that may matter do not exceed the noise, or if the refit did not converge (both kinds of trust). A fit without an estimate counts as a fit without an interval."
        " *Right or warned* means that coverage without a warning is not below its binomial limit, for both kinds of trust.",
        scale,
    )


def right(fits: pd.DataFrame) -> bool:
    """Return whether the coverage of some fits is not below its 99% limit."""
    return not len(fits) or held_of(fits).mean() >= binomial_limits(0.95, 5 * len(fits))[0]


def rounds(scale: float) -> None:
    """Picks in one, two or three blocks, and iterative hard thresholding, at the same budget."""
    methods = (TRUSTED, *(f"blocks {k}" for k in (1, 2, 3)), "thresholding 2", "thresholding 3")
    cells = [f"rounds {name}" for name in ROUNDS]
    frame = stored(path_of("rounds"), cells, max(4, int(50 * scale)), methods)
    rows = []
    for cell in cells:
        label, design = CELLS[cell]
        for method in methods:
            fits, asked = _good(frame, cell, method), frame[_of(frame, cell, method)]
            rows.append(
                {
                    "design": label,
                    "picks": method,
                    "fits": len(asked),
                    f"signals picked, of {design.sparsity}": with_se(asked["found"]),
                    "all picked": f"{(asked['found'] == design.sparsity).mean():.2f}",
                    "warned": f"{asked['warned'].mean():.2f}",
                    "coverage": covered(fits),
                    "width": f"{width_of(fits):.4f}",
                }
            )
    write(
        "rounds",
        "Picks of columns on secure sums: blocks against iterative hard thresholding",
        rows,
        frame["seconds"].sum(),
        "eps = .8, delta = 1/(2N), coefficients of 1/sqrt s, error sd .5, 5 sites. Blocks: half of the columns, "
        "a cheap refit, half of what is left on its residuals, and so on, each from one noisy vector of products "
        "at a share of the price. Thresholding: every round looks at all columns at an equal share, may drop "
        "what it had, and refits. The rest of the fit is the same.",
        scale,
    )


def with_se(values: pd.Series) -> str:
    """Return a mean with its standard error."""
    return f"{values.mean():.2f} ± {values.std(ddof=1) / math.sqrt(len(values)):.2f}"


def _of(frame: pd.DataFrame, cell: str, method: str) -> pd.Series:
    return (frame["cell"] == cell) & (frame["method"] == method)


def _good(frame: pd.DataFrame, cell: str, method: str) -> pd.DataFrame:
    return frame[_of(frame, cell, method) & (frame["failed"] == 0)]


def path_of(name: str) -> Path:
    """Return where the fits of a table are stored."""
    return RESULTS / f"lasso_secure_{name}.csv"


def write(name: str, title: str, rows: list[dict], seconds: float, note: str, scale: float) -> None:
    """Write a table with the command that made it."""
    command = f"benchmarks/lasso_secure.py --only {name}" + (f" --scale {scale:g}" if scale != 1.0 else "")
    write_table(RESULTS / f"lasso_secure_{name}.md", title, command, rows, seconds, note)


TABLES = {"coverage": coverage, "breaks": breaks, "rounds": rounds, "robust": robust}


def main() -> None:
    """Make the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--fresh", action="store_true")
    asked = parser.parse_args()
    for name, table in TABLES.items():
        if asked.only in (None, name):
            if asked.fresh:
                path_of(name).unlink(missing_ok=True)
            table(asked.scale)


if __name__ == "__main__":
    main()
