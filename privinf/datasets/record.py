"""Dataset: a frame, its response, and everything about it that was public beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from privinf.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

WheelTable = Literal["co2", "fair", "modechoice", "randhie"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dataset:
    """A data set ready for a private regression of one column on all others.

    Attributes
    ----------
    name : str
    data : DataFrame, shape (n, d + 1)
        float64, no missing values; the columns of `schema`, in its order.
    response : str
    schema : Schema
        Public bounds from the codebook, never from the rows.
    description, source, licence : str
    """

    name: str
    data: pd.DataFrame
    response: str
    schema: Schema
    description: str
    source: str
    licence: str

    @property
    def features(self) -> list[str]:
        """Names of the d other columns."""
        return [name for name in self.data.columns if name != self.response]

    @property
    def X(self) -> pd.DataFrame:
        """The features, shape (n, d), without a constant."""
        return self.data[self.features]

    @property
    def y(self) -> pd.Series:
        """The response, shape (n,)."""
        return self.data[self.response]

    @property
    def formula(self) -> str:
        """The response on every feature, with an intercept."""
        return f"{self.response} ~ {' + '.join(self.features)}"

    def __repr__(self) -> str:
        n, columns = self.data.shape
        return f"<Dataset {self.name}: {self.response} on {columns - 1} features, {n} rows>"


def wheel_table(name: WheelTable) -> pd.DataFrame:
    """Return a table that lies in the statsmodels wheel."""
    data: pd.DataFrame = import_module(f"statsmodels.datasets.{name}").load_pandas().data
    return data


def record(name: str, data: pd.DataFrame, response: str, columns: Mapping[str, Any], **texts: str) -> Dataset:
    """Return the record of `data`, cut to the declared columns and put in their order."""
    return Dataset(name, data[list(columns)].astype("float64"), response, Schema(columns), **texts)
