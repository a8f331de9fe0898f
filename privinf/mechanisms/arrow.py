"""Tables that libraries hand over in Arrow batches, and what reading them may say.

A library's error about a failed read can quote rows, so its text is dropped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import pandas as pd

from privinf.errors import NotAvailableError, PrivinfError, SchemaError, StorageError
from privinf.mechanisms import sources
from privinf.mechanisms.sources import Source, Types

R = TypeVar("R")

ONCE = (
    "{} can be read only once, but this method reads the rows several times: write them to "
    "a Parquet file and pass its path, or pass privinf.open_rows(data, spool=True)"
)
ORDERED = (
    ". Only the first way works for {}, which depends on the order of the rows: a stream has no fixed order"
)
NEEDS_ARROW = "{} need pyarrow: install privinf[parquet], or pass a pandas DataFrame"


class ArrowSource(Source):
    """A table that yields Arrow batches of columns on every request.

    Parameters
    ----------
    name : str
    columns : iterable of str
    batches : callable (columns) -> iterable of RecordBatch
    ordered : bool
    rows : int, optional
        Where the number of rows is known without reading.
    """

    __slots__ = ("_batches", "_rows", "columns", "name", "ordered")

    def __init__(
        self,
        name: str,
        columns: Iterable[Any],
        batches: Callable[[list[str]], Iterable[Any]],
        *,
        ordered: bool,
        rows: int | None = None,
    ) -> None:
        self.name: str = name
        self.columns: Sequence[str] = string_names(columns)
        self.ordered = ordered
        self._batches = batches
        self._rows = rows

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows; StorageError if the library fails."""
        return frames_of(self.name, self.batches(columns), list(columns))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow batches as the library gives them."""
        return drawn(self.name, lambda: iter(self._batches(list(columns))))

    def known(self) -> int | None:
        """Return the number of rows, where it is known without reading."""
        return self._rows

    def state(self) -> object:
        """Return the number of rows, where it is known without reading."""
        return self._rows


class StreamSource(Source):
    """Batches that can be read once; whatever makes them decides on their order."""

    __slots__ = ("_reader", "columns", "name")

    ordered = False
    repeatable = False

    def __init__(self, reader: object, name: str) -> None:
        self._reader = cast(Any, reader)
        self.name: str = name
        self.columns: Sequence[str] = string_names(self._reader.schema.names)

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows, once; NotAvailableError afterwards."""
        return frames_of(self.name, self.batches(columns), list(columns))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow batches, once; NotAvailableError afterwards."""
        if self._reader is None:
            raise read_once(self.name)
        reader = self._reader
        self._reader = None
        return drawn(self.name, lambda: iter(reader))

    def state(self) -> object:
        """Return None: nothing of it is seen before it is read."""
        return None


class ArrowPart(Source):
    """The Arrow batches of one part of a table, which are read once."""

    __slots__ = ("_batches", "_rows", "columns", "name")

    ordered = False
    repeatable = False
    whole = False

    def __init__(self, name: str, batches: Iterator[Any], columns: Sequence[str]) -> None:
        self.name: str = name
        self._batches = batches
        self._rows = 0
        self.columns: Sequence[str] = columns

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows."""
        return frames_of(self.name, self.batches(columns), list(columns))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the Arrow batches."""
        for batch in self._batches:
            self._rows += batch.num_rows
            yield batch

    def count(self) -> int:
        """Return the number of rows that were read."""
        return self._rows

    def state(self) -> object:
        """Return None: it does not change."""
        return None


def read_once(name: str, by_places: str = "") -> NotAvailableError:
    """Return the error of a stream that is read again, possibly by code that uses the places of rows."""
    return NotAvailableError(ONCE.format(name) + (ORDERED.format(by_places) if by_places else ""))


def string_names(columns: Iterable[Any]) -> list[str]:
    """Return names of columns; SchemaError unless all are strings."""
    names = list(columns)
    if any(not isinstance(name, str) for name in names):
        raise SchemaError("all column names must be strings")
    return names


def arrow_library(name: str) -> Any:
    """Return pyarrow; NotAvailableError if it is not installed. `name` is what needs it."""
    try:
        import pyarrow
    except ImportError:
        raise NotAvailableError(NEEDS_ARROW.format(name)) from None
    return pyarrow


def drawn(name: str, start: Callable[[], Iterator[R]]) -> Iterator[R]:
    """Yield the items of a library's iterator; StorageError, without its text, if it fails."""
    items = guarded_read(name, start)
    while (item := guarded_read(name, lambda: next(items, None))) is not None:
        yield item


def frames_of(name: str, batches: Iterator[Any], columns: list[str]) -> Iterator[pd.DataFrame]:
    """Yield frames of `sources.ROWS` rows, the last one shorter, of Arrow batches of any size."""
    arrow = arrow_library("tables of other libraries")
    pending = list[Any]()
    rows = 0
    for batch in batches:
        pending.append(batch.select(columns))
        if pending[-1].schema != pending[0].schema:
            raise SchemaError(
                f"{name} has a column of one type at first and of another type in a later part: convert "
                "the column to one type"
            )
        rows += batch.num_rows
        if rows >= sources.ROWS:
            table = arrow.Table.from_batches(pending)
            for start in range(0, rows - sources.ROWS + 1, sources.ROWS):
                yield _frame(name, table.slice(start, sources.ROWS))
            rest = table.slice(rows - rows % sources.ROWS)
            pending = rest.to_batches()
            rows = rest.num_rows
    if rows:
        yield _frame(name, arrow.Table.from_batches(pending))


def _frame(name: str, table: Any) -> pd.DataFrame:
    frame: pd.DataFrame = guarded_read(name, lambda: table.to_pandas(ignore_metadata=True))
    return frame


def guarded_read(name: str, parse: Callable[[], R]) -> R:
    """Return ``parse()``; errors of libraries may quote values of rows, and so may their warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse()
    except (PrivinfError, MemoryError):
        raise
    except Exception:  # of any library, and of the database or the file behind it
        pass
    raise StorageError(
        f"{name} could not be read completely. The reason is not shown, because it can contain values of "
        "rows; to see it, read the table without privinf"
    )
