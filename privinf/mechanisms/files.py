"""Tables as their holder has them, read in blocks: a CSV or Parquet file, or a data frame in memory.

Nothing is learnt from the rows: columns are read as the schema declares them, and errors name files and
columns, never a value.
"""

from __future__ import annotations

import csv
import gzip
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

import pandas as pd

from privinf.errors import FileMissingError, NotAvailableError, SchemaError, StorageError
from privinf.mechanisms.roster import MISSING
from privinf.schema import Factor, Schema
from privinf.sealed import unreadable
from privinf.validation import check_path

ROWS = 1 << 16  # rows a block
LONGEST_HEADER = 1 << 24
SEPARATORS = (",", ";", "\t")
CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FrameSource:
    """A data frame in memory."""

    frame: pd.DataFrame
    name: str = "the data frame"

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        return list(self.frame.columns)

    def read(self, columns: Sequence[str], schema: Schema | None) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows."""
        for start in range(0, len(self.frame), ROWS):
            yield self.frame[list(columns)].iloc[start : start + ROWS]

    def state(self) -> object:
        """Return the number of rows."""
        return len(self.frame)


@dataclass(frozen=True, slots=True)
class _FileSource:
    path: Path

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def state(self) -> object:
        """Return size and time of the last change."""
        try:
            status = self.path.stat()
            return status.st_size, status.st_mtime_ns
        except OSError as problem:
            error = unreadable(self.path, problem)
        raise error


@dataclass(frozen=True, slots=True)
class CsvSource(_FileSource):
    """A CSV file, UTF-8, with a line of column names; separated by the commonest of , ; and tab there."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        return _csv(self.name, lambda: _header(self.path))

    def read(self, columns: Sequence[str], schema: Schema | None) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows, numbers as numbers and levels as they are declared."""
        types, gaps = {}, {}
        chosen = list(columns)
        for column in chosen:
            levels = _text_levels(column, schema)
            if levels is not None:
                types[column] = str
            gaps[column] = [text for text in MISSING if text not in (levels or ())]
        with _csv(self.name, lambda: self._blocks(chosen, schema, types, gaps)) as blocks:
            while (block := _csv(self.name, lambda: next(blocks, None))) is not None:
                yield block[chosen]

    def _blocks(self, chosen: list[str], schema: Schema | None, types: Any, gaps: Any) -> Any:
        with _text(self.path) as stream:
            separator = _separator(_first_line(stream))
        # pandas sees that a line has too many fields only where it reads all of them
        return pd.read_csv(
            self.path, sep=separator, usecols=chosen if schema is None else None, dtype=types,
            na_values=gaps, keep_default_na=False, index_col=False, chunksize=ROWS, low_memory=False,
            encoding="utf-8-sig", skipinitialspace=True,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParquetSource(_FileSource):
    """A Parquet file."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        with _opened_parquet(self.path) as table:
            return _parquet(self.name, lambda: list(table.schema_arrow.names))

    def read(self, columns: Sequence[str], schema: Schema | None) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows."""
        with _opened_parquet(self.path) as table:
            blocks = _parquet(
                self.name,
                lambda: table.iter_batches(batch_size=ROWS, columns=list(columns), use_threads=False),
            )
            while (block := _parquet(self.name, lambda: _next_frame(blocks))) is not None:
                yield block


# A table that can be read as often as needed, a few columns at a time, as a schema declares them or as texts.
Source: TypeAlias = FrameSource | CsvSource | ParquetSource


def table_source(data: str | PathLike[str] | pd.DataFrame) -> Source:
    """Return the source of a data frame or, by its ending, of a CSV or Parquet file.

    Raises
    ------
    StorageError
        There is no such file, or it ends in something else.
    """
    if isinstance(data, pd.DataFrame):
        return FrameSource(data)
    path = check_path(data, "data")
    if not path.is_file():
        raise FileMissingError(f"{path}: there is no such file")
    if path.name.lower().endswith(CSV_SUFFIXES):
        return CsvSource(path)
    if path.name.lower().endswith(PARQUET_SUFFIXES):
        return ParquetSource(path)
    known = ", ".join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))
    raise StorageError(f"{path.name} is no table known here: use a file that ends in {known}")


def require_columns(source: Source, wanted: Sequence[str]) -> None:
    """Raise SchemaError unless the table has each of these columns exactly once."""
    present = list(source.columns)
    absent = [name for name in wanted if name not in present]
    if absent:
        raise SchemaError(f"{source.name} lacks the column(s) {', '.join(absent)}")
    twice = [name for name in wanted if present.count(name) > 1]
    if twice:
        raise SchemaError(f"{source.name} has more than one column {', '.join(twice)}")


def _text_levels(column: str, schema: Schema | None) -> tuple[str, ...] | None:
    """Return the levels of a column to be read as text (none of a column that is not declared)."""
    if schema is None or column not in schema:
        return ()
    declared = schema[column]
    if isinstance(declared, Factor) and isinstance(declared.levels[0], str):
        return tuple(map(str, declared.levels))
    return None


def _text(path: Path) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _separator(line: str) -> str:
    return max(SEPARATORS, key=line.count)


def _first_line(stream: IO[str]) -> str:
    """Return the line of names; one without end, as a packed file can pretend, is none."""
    line = stream.readline(LONGEST_HEADER)
    if len(line) == LONGEST_HEADER:
        raise ValueError("a first line without end")
    return line


def _header(path: Path) -> list[str]:
    with _text(path) as stream:
        line = _first_line(stream)
        stream.seek(0)
        return next(csv.reader(stream, delimiter=_separator(line)), [])


def _csv(name: str, read: Callable[[], R]) -> R:
    """Return ``read()``; errors of the reader quote values of rows: say where, not what."""
    where = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return read()
    except pd.errors.ParserError as problem:
        line = re.search(r"line (\d+)", str(problem))
        where = f" near line {line[1]}" if line else ""
    except Exception:  # pandas raises many kinds on damaged text
        pass
    raise StorageError(
        f"{name} cannot be read as CSV{where}: it needs a first line of column names, as many fields in "
        "every other line, and UTF-8 text"
    )


def _opened_parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise NotAvailableError(
            "Parquet files need pyarrow: install privinf[parquet], or save the table as CSV"
        ) from None
    # Buffering ahead would hold the whole file.
    return _parquet(path.name, lambda: parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False))


def _next_frame(batches: Iterator[Any]) -> pd.DataFrame | None:
    batch = next(batches, None)
    return None if batch is None else batch.to_pandas(ignore_metadata=True)  # no column becomes an index


def _parquet(name: str, read: Callable[[], R]) -> R:
    """Return ``read()``; errors of the reader may quote values of rows."""
    try:
        return read()
    except Exception:  # of pyarrow, and of what it calls to make sense of damaged metadata
        pass
    raise StorageError(f"{name} cannot be read as Parquet: it is damaged or another format")
