"""What one release of second moments could determine: a yardstick for the coefficients of benchmarks/lottery.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd
from gauntlet_cells import DELTA, Cell
from gauntlet_truth import clipped, model_columns, reference_of
from scipy.special import expit

from privinf.accounting import calibrate_mu


@cache
def mu_of(epsilon: float) -> float:
    """Return mu of Gaussian differential privacy at an epsilon and the lottery's delta."""
    return calibrate_mu(epsilon=epsilon, delta=DELTA)


def moment_strengths(cell: Cell) -> np.ndarray:
    """Return the strengths r of all coefficients after one release of second moments, shape (p,).

    The release spends the whole budget of the cell on the weighted second moments A of the columns. Numbers are
    scaled to [-1, 1] by their bounds, and indicators of factors are 0 or 1; weights are the curvature of the
    model at the target. The squared length of a row is at most R, one for each number, each factor and the
    constant. So the noise has the standard deviation s = sqrt(2) R / (n mu) on the diagonal. With t = A^-1 e_j,
    r_j = t'At / (s |t|^2).
    """
    assert cell.population.whole is not None
    Z, _, names = model_columns(clipped(cell.population.whole(), cell), cell)
    scaled = _scaled(Z, names, cell)
    weights = _weights(Z, reference_of(cell).target, cell.family)
    A = (scaled * weights[:, None]).T @ scaled / len(Z)
    longest = len({name.partition(")[T.")[0] for name in names})
    sd = math.sqrt(2.0) * longest / (cell.n * mu_of(cell.epsilon))
    rows = np.linalg.inv(A)
    return np.asarray(np.diag(rows) / (sd * np.sum(rows**2, axis=1)))


def _scaled(Z: np.ndarray, names: tuple[str, ...], cell: Cell) -> np.ndarray:
    """Return numbers in [-1, 1] by their bounds, and indicators of factors and the constant as they are."""
    declared = cell.declared()
    scaled = Z.astype(float)
    for place, name in enumerate(names):
        if name in declared:
            low, high = min(declared[name]), max(declared[name])
            scaled[:, place] = (2.0 * Z[:, place] - low - high) / (high - low)
    return scaled


def _weights(Z: np.ndarray, target: np.ndarray, family: str) -> np.ndarray:
    """Return weights of rows: four times the variance of a yes or no, or the relative mean of a count."""
    if family == "binomial":
        mean = expit(Z @ target)
        return np.asarray(4.0 * mean * (1.0 - mean))
    if family == "poisson":
        mean = np.exp(Z @ target)
        return np.asarray(mean / mean.mean())
    return np.ones(len(Z))


def with_strengths(cells: pd.DataFrame, cell_of: Mapping[int, Cell]) -> pd.DataFrame:
    """Return the table of cells with a column of `moment_strengths`, which grow with the budget as mu does.

    `cell_of` has a cell of any epsilon for each number of a regression.
    """
    strengths = {number: moment_strengths(cell) / mu_of(cell.epsilon) for number, cell in cell_of.items()}
    places = cells.groupby(["regression", "epsilon"]).cumcount()
    values = [
        float(f"{strengths[int(number)][place] * mu_of(float(epsilon)):.4g}")
        for number, epsilon, place in zip(cells["regression"], cells["epsilon"], places, strict=True)
    ]
    return cells.assign(strength=values)
