"""Tables that change between the passes over them: of every kind of source, by what a price counts on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from support.tables import of_library, written

import privinf as pi
from privinf.errors import PrivinfError
from privinf.glm.dome.rounds import _OptimizerRounds
from privinf.mechanisms.passes import RowPasses

N = 400
SCHEMA = pi.Schema({"y": (-3, 3), "x": (-1, 1), "q": (0, 2)})
PUBLIC = pi.Schema({"y": (-3, 3), "x": (-1, 1), "q": pi.Numeric(0, 2, public=True)})
ROUNDS = pi.DPSGD(epochs=2, batches=4)
MOVED = "or their order"
BEYOND = "larger than the maximum of the first reading"


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, N)
    return pd.DataFrame({"y": 0.8 * x + rng.normal(0, 0.3, N), "x": x, "q": rng.uniform(0, 1, N)})


@dataclass
class Moving:
    """A table that can be written anew while it is read.

    Attributes
    ----------
    data : table, or a pair (y, X)
    write : callable (DataFrame)
        Puts other rows in the place of those that are there.
    """

    data: Any
    write: Callable[[pd.DataFrame], None]


def _file(name: str) -> Callable[[pd.DataFrame, Path], Moving]:
    def made(rows: pd.DataFrame, folder: Path) -> Moving:
        path = folder / name
        written(rows, path)
        return Moving(path, lambda other: written(other, path))

    return made


def _over_file(library: str, opened: Callable[[Any, Path], Any]) -> Callable[[pd.DataFrame, Path], Moving]:
    """A source of a library over a Parquet file, of one size whatever its numbers: it looks at it once."""
    plain = {"compression": None, "use_dictionary": False, "write_statistics": False}

    def made(rows: pd.DataFrame, folder: Path) -> Moving:
        path = folder / "t.parquet"
        rows.to_parquet(path, **plain)
        return Moving(opened(of_library(library), path), lambda other: other.to_parquet(path, **plain))

    return made


def _folder(rows: pd.DataFrame, folder: Path) -> Moving:
    def write(other: pd.DataFrame) -> None:
        for part, name in enumerate(("a.parquet", "b.parquet")):
            written(other[part * N // 2 : (part + 1) * N // 2], folder / name)

    write(rows)
    return Moving(folder, write)


def _arrays(rows: pd.DataFrame, folder: Path) -> Moving:
    y, X = rows["y"].to_numpy().copy(), rows[["x", "q"]].to_numpy().copy()

    def write(other: pd.DataFrame) -> None:
        y[:], X[:] = other["y"], other[["x", "q"]]

    return Moving((y, X), write)


def _frame(rows: pd.DataFrame, folder: Path) -> Moving:
    columns = {name: rows[name].to_numpy().copy() for name in rows}

    def write(other: pd.DataFrame) -> None:
        for name, column in columns.items():
            column[:] = other[name]

    return Moving(pd.DataFrame(columns, copy=False), write)


def _dask(rows: pd.DataFrame, folder: Path) -> Moving:
    dask, frames = of_library("dask"), of_library("dask.dataframe")
    held = [rows]
    parts = [
        dask.delayed(lambda start: held[0].iloc[start : start + N // 2], pure=False)(start)
        for start in (0, N // 2)
    ]
    made = frames.from_delayed(parts, meta=rows.iloc[:0], verify_meta=False)
    return Moving(made, lambda other: held.__setitem__(0, other))


SOURCES: dict[str, Callable[[pd.DataFrame, Path], Moving]] = {
    "CSV file": _file("t.csv"),
    "packed CSV file": _file("t.csv.gz"),
    "Parquet file": _file("t.parquet"),
    "Parquet folder": _folder,
    "arrays": _arrays,
    "pandas": _frame,
    "pyarrow Dataset": _over_file("pyarrow.dataset", lambda library, path: library.dataset(path)),
    "polars LazyFrame": _over_file("polars", lambda library, path: library.scan_parquet(path)),
    "duckdb relation": _over_file("duckdb", lambda library, path: library.sql(f"select * from '{path}'")),
    "dask frame": _dask,
}
# Of these the places of rows are their own, so that batches can be made of them.
PLACED = (
    "CSV file",
    "packed CSV file",
    "Parquet file",
    "Parquet folder",
    "arrays",
    "pandas",
    "pyarrow Dataset",
)


def fitted(moving: Moving, ledger: pi.Ledger, trust: str | None = None) -> Any:
    """Fit by batches."""
    if isinstance(moving.data, tuple):
        y, X = moving.data
        model = pi.GLM(
            y, X, family="gaussian", bounds=[(-1, 1), (0, 2)], y_bounds=(-3, 3), ledger=ledger, trust=trust
        )
    else:
        model = pi.GLM.from_formula(
            "y ~ x + q - 1", moving.data, schema=SCHEMA, family="gaussian", ledger=ledger, trust=trust
        )
    return model.fit(mu=1.0, optimizer=ROUNDS, rng=3).params.to_numpy()


def between_rounds(monkeypatch: Any, change: Callable[[int], None]) -> None:
    """Do something before every round of a descent but the first."""
    direction = _OptimizerRounds.direction

    def changed(self: Any, sums: Any, theta: Any, price: float, number: int) -> Any:
        if number:
            change(number)
        return direction(self, sums, theta, price, number)

    monkeypatch.setattr(_OptimizerRounds, "direction", changed)


def after_public_sizes(monkeypatch: Any, change: Callable[[], None]) -> None:
    """Do something once the largest public columns are known."""
    sizes = RowPasses.public_sizes

    def changed(self: Any) -> Any:
        found = sizes(self)
        change()
        return found

    monkeypatch.setattr(RowPasses, "public_sizes", changed)


def complaints_of_batches(name: str, folder: Path, monkeypatch: Any, trust: str | None = None) -> list[str]:
    """Return what is wrong with a fit by batches of rows that are turned round before every round."""
    still = fitted(SOURCES[name](frame(), _new(folder, "still")), pi.Ledger(), trust)
    moving, ledger = SOURCES[name](frame(), _new(folder, "moving")), pi.Ledger()
    between_rounds(monkeypatch, lambda number: moving.write(frame()[:: -1 if number % 2 else 1]))
    try:
        params = fitted(moving, ledger, trust)
    except PrivinfError as error:
        spent = len(ledger.entries)
        refused = MOVED in str(error) and spent <= 1 + (
            "the charge is kept" in str(error) or "the charge stands" in str(error)
        )
        return [] if refused else [f"{error} ({spent} lines)"]
    return [] if np.array_equal(params, still) else ["rows of other batches were summed"]


def complaints_of_public_sizes(name: str, folder: Path, monkeypatch: Any, **options: Any) -> list[str]:
    """Return what is wrong with moments of public columns of which one grows between two passes."""
    moving, ledger = SOURCES[name](frame(), _new(folder, "moving")), pi.Ledger()
    after_public_sizes(
        monkeypatch, lambda: moving.write(frame().assign(q=np.where(np.arange(N) == 7, 2.0, 0.5)))
    )
    try:
        moments_of(moving, ledger, **options)
    except PrivinfError as error:
        return [] if BEYOND in str(error) and not ledger.entries else [str(error)]
    return ["a row beyond the public maximum was summed"]


def moments_of(moving: Moving, ledger: pi.Ledger, **options: Any) -> Any:
    """Release second moments beside a public column."""
    if isinstance(moving.data, tuple):
        design = pi.Design.from_arrays(["x", "q"], bounds=[(-1, 1)], public=["q"], y_bounds=(-3, 3))
        return pi.Moments(design).release(moving.data, mu=1.0, rng=2, ledger=ledger, **options)
    return pi.Moments(PUBLIC, "y ~ x + q").release(moving.data, mu=1.0, rng=2, ledger=ledger, **options)


def _new(folder: Path, name: str) -> Path:
    (made := folder / name).mkdir()
    return made
