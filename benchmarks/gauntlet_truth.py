"""Targets of the gauntlet's cells, what intervals without privacy would measure, and the predicted ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import statsmodels.api as sm
from gauntlet_cells import DELTA, Cell
from patsy import dmatrix
from scipy.special import expit

import privinf as pi

NORMAL = 1.959963984540054
NUMBERS = 3_000_000  # that the draws of a law hold in all


@dataclass(frozen=True, slots=True)
class Reference:
    """What is true of a population.

    Attributes
    ----------
    names : tuple of str
        Coefficients, the constant first.
    target : array, shape (p,)
    sd : array, shape (p,)
        Standard errors times sqrt n, without privacy: HC0, or Logit's own.
    gram : array, shape (p - 1, p - 1)
        Of the columns that are not the constant, about their mean, in units in which bounds are +-1; of
        binary responses weighted by 4 p(1 - p).
    """

    names: tuple[str, ...]
    target: np.ndarray
    sd: np.ndarray
    gram: np.ndarray

    @staticmethod
    def length(sd: float, n: int) -> float:
        """Return the length of an interval without privacy."""
        return 2.0 * NORMAL * sd / math.sqrt(n)


def reference_of(cell: Cell) -> Reference:
    """Return what is true of a cell's population under its bounds."""
    key = cell.population, cell.family, cell.loose_x, cell.loose_y
    if key not in _KEPT:
        _KEPT[key] = _computed(cell)
    return _KEPT[key]


# Cells of one population and the same bounds share what is true of it.
_KEPT: dict[tuple[object, ...], Reference] = {}


def clipped(frame: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """Return rows inside their bounds."""
    inside = frame.copy()
    for name, limits in cell.declared().items():
        if isinstance(limits, tuple):
            inside[name] = inside[name].clip(*limits)
    return inside


def model_columns(frame: pd.DataFrame, cell: Cell) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    Z = dmatrix(cell.population.formula.partition(" ~ ")[2], frame, return_type="dataframe")
    return Z.to_numpy(), frame[cell.response].to_numpy(), tuple(Z.columns)


def _computed(cell: Cell) -> Reference:
    if cell.population.whole is not None:
        frame = cell.population.whole()
        Z, y, names = model_columns(clipped(frame, cell), cell)
        target = _solved(Z, y, cell.family)
    else:
        rows = NUMBERS // len(cell.population.declared)
        frame = cell.population.draw(rows, np.random.default_rng(1))
        Z, y, names = model_columns(clipped(frame, cell), cell)
        target = np.asarray(cell.population.params)
        if cell.family == "gaussian":
            free, plain, _ = model_columns(frame, cell)
            moved = Z.T @ (y - Z @ target) - free.T @ (plain - free @ target)
            target = target + np.linalg.solve(Z.T @ Z, moved)
    return Reference(names, target, _sd(Z, y, target, cell.family), _gram(Z, names, target, cell))


def _solved(Z: np.ndarray, y: np.ndarray, family: str) -> np.ndarray:
    if family == "binomial":
        return np.asarray(sm.Logit(y, Z).fit(disp=0, maxiter=100).params)
    if family == "poisson":
        return np.asarray(sm.GLM(y, Z, family=sm.families.Poisson()).fit(tol=1e-12).params)
    return np.linalg.lstsq(Z, y, rcond=None)[0]


def score_terms(
    Z: np.ndarray, y: np.ndarray, params: np.ndarray, family: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return residuals, and the inverse of the mean Hessian of the negative log-likelihood."""
    linear = Z @ params
    if family == "gaussian":
        mean, curvature = linear, np.ones(len(y))
    elif family == "poisson":
        mean = curvature = np.exp(linear)
    else:
        mean = expit(linear)
        curvature = mean * (1.0 - mean)
    return y - mean, np.linalg.inv((Z * curvature[:, None]).T @ Z / len(y))


def robust_sd(Z: np.ndarray, residual: np.ndarray, bread: np.ndarray) -> np.ndarray:
    """Return HC0 standard errors times sqrt n."""
    return np.sqrt(np.diag(bread @ ((Z * residual[:, None] ** 2).T @ Z / len(Z)) @ bread))


def _sd(Z: np.ndarray, y: np.ndarray, target: np.ndarray, family: str) -> np.ndarray:
    if not np.isfinite(target).all():
        return np.ones(len(target))
    residual, bread = score_terms(Z, y, target, family)
    return np.sqrt(np.diag(bread)) if family == "binomial" else robust_sd(Z, residual, bread)


def _gram(Z: np.ndarray, names: tuple[str, ...], target: np.ndarray, cell: Cell) -> np.ndarray:
    design = _design(cell)
    assert design.names == names, (design.names, names)
    own = [j for j, name in enumerate(names) if name != "Intercept"]
    scaled = (Z[:, own] - design.center[own]) / design.scale[own]
    weight = np.ones(len(Z))
    if cell.family == "binomial" and np.isfinite(target).all():
        mean = expit(Z @ target)
        weight = 4.0 * mean * (1.0 - mean)
    about = scaled - (weight @ scaled) / weight.sum()
    return (about * weight[:, None]).T @ about / len(Z)


def _model(cell: Cell) -> pi.MomentOLS:
    few = cell.population.draw(50, np.random.default_rng(0))
    return pi.MomentOLS.from_formula(cell.population.formula, few, schema=pi.Schema(cell.declared()))


def _design(cell: Cell) -> pi.Design:
    return _model(cell).mechanism.design


@cache
def predicted_ratio(cell: Cell) -> float:
    """Return the smallest eigenvalue of the Gram over the noise of a mean of moments that has all of mu."""
    release = _model(cell).release(epsilon=cell.epsilon, delta=DELTA, rng=0)
    smallest = float(np.linalg.eigvalsh(reference_of(cell).gram)[0])
    return smallest * cell.n / float(release.noise_model["scale"])
