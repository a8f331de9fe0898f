"""Tables as their holder has them, read in blocks: files of CSV and Parquet, and folders of them.

Nothing is learnt from the rows: columns are read as the schema declares them, and errors name files and
columns, never a value.
"""

from __future__ import annotations

import csv
import gzip
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, TypeVar, cast

import pandas as pd

from privinf.errors import AlignmentError, FileMissingError, NotAvailableError, SchemaError, StorageError
from privinf.mechanisms.lines import CheckedLines
from privinf.mechanisms.roster import MISSING
from privinf.schema import Factor, Schema
from privinf.storage.checksummed import unreadable
from privinf.validation import blanks_alone, check_path, columns_phrase

ROWS = 1 << 16  # rows a block
# Characters of a CSV file's first line: one that is longer, as a packed file can pretend, is refused.
LONGEST_HEADER = 1 << 24
SEPARATORS = (",", ";", "\t")  # the one that is most frequent in the first line is used
NO_ROWS = "the table has no rows"
CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")
R = TypeVar("R")
# Texts of numbers become the doubles nearest to them: what pandas 3.1 does, and earlier ones on demand.
EXACT_FLOATS: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)
# How columns without types are read: as declared (others as texts), as texts, or by their values.
Types: TypeAlias = Schema | Literal["texts", "guessed"]


class Source:
    """A table that is read in blocks, a few columns at a time.

    Attributes
    ----------
    name : str
        Name of the table in messages.
    columns : sequence of str
    ordered : bool
        Whether every row has a place of its own, as in a file: that of a query can depend on its rows.
    repeatable, pushes, spreads : bool
        Whether it can be read as often as needed, as a stream cannot; whether a database makes the sums, and
        no row is read; whether a cluster makes exact ones.
    whole : bool
        Whether it is a table, which has rows, and not a part of one.
    progress : bool or None
        Whether a bar shows how many rows were read; None: on a terminal.
    """

    __slots__ = ()
    ordered: bool = True
    repeatable: bool = True
    whole: bool = True
    progress: bool | None = None
    pushes = False
    spreads = False

    @property
    def name(self) -> str:
        """Name of the table in messages."""
        raise NotImplementedError

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        raise NotImplementedError

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of `ROWS` rows of these columns; the last one, of every file too, may be shorter.

        Where a table does not state the types of its columns, as CSV, `types` states them.
        """
        raise NotImplementedError

    def known(self) -> int | None:
        """Return the number of rows, where it is known without reading them."""
        return None

    def count(self) -> int:
        """Return the number of rows."""
        rows = self.known()
        return sum(map(len, self.read(self.columns[:1], "texts"))) if rows is None else rows

    def state(self) -> object:
        """Return a fingerprint of the table, as far as it is known without reading rows."""
        raise NotImplementedError

    def in_memory(self) -> pd.DataFrame | None:
        """Return the data frame that it is, if it is one."""
        return None

    def batches(self, columns: Sequence[str]) -> Iterator[Any] | None:
        """Return Arrow batches of these columns, among others maybe; None where it has none."""
        return None


@dataclass(frozen=True, slots=True)
class _FileSource(Source):
    path: Path
    label: str = ""

    @property
    def name(self) -> str:
        """The file's name, or a description in its place."""
        return self.label or self.path.name

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
        return _csv(self.name, lambda: _names_and_separator(self.path))[0]

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows, numbers as numbers and levels as they are declared.

        Every line after that of the names is a row, an empty line of a file of one column too.
        """
        chosen = list(columns)
        present, separator = _csv(self.name, lambda: _names_and_separator(self.path))
        places = sorted(map(present.index, dict.fromkeys(chosen)))
        kinds = {}
        gaps = {}
        for place in places:
            levels = _text_levels(present[place], types)
            if levels is not None:
                kinds[place] = str
            gaps[place] = [text for text in MISSING if text not in (levels or ())]
            if levels is None and types != "guessed":
                gaps[place] += [f" {text}" for text in MISSING]  # beside numbers a blank means nothing
        with _bytes(self.path) as stream:
            lines = CheckedLines(stream, separator, len(present))
            settings = {"usecols": places, "dtype": kinds, "na_values": gaps, "sep": separator}
            with _csv(self.name, lambda: _parsed(lines, len(present), settings), lines) as blocks:
                while (block := _csv(self.name, lambda: next(blocks, None), lines)) is not None:
                    block.columns = pd.Index([present[place] for place in places])
                    yield block[chosen]


def _parsed(lines: CheckedLines, fields: int, settings: Mapping[str, Any]) -> Any:
    """Return a reader of blocks of rows; columns are addressed by position."""
    return pd.read_csv(
        cast(Any, lines),
        names=range(fields),
        header=0,
        index_col=False,
        keep_default_na=False,
        skip_blank_lines=False,
        chunksize=ROWS,
        low_memory=False,
        encoding="utf-8",
        **settings,
        **EXACT_FLOATS,
    )


@dataclass(frozen=True, slots=True)
class ParquetSource(_FileSource):
    """A Parquet file."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        with _opened_parquet(self.path) as table:
            return _parquet(self.name, lambda: list(table.schema_arrow.names))

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows."""
        for batch in self.batches(columns):
            yield _parquet(self.name, partial(batch.to_pandas, ignore_metadata=True))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow batches."""
        with _opened_parquet(self.path) as table:
            chosen = {"batch_size": ROWS, "columns": list(columns), "use_threads": False}
            batches = _parquet(self.name, lambda: table.iter_batches(**chosen))
            while (batch := _parquet(self.name, lambda: next(batches, None))) is not None:
                yield batch

    def known(self) -> int:
        """Return the number of rows, which the file states."""
        with _opened_parquet(self.path) as table:
            return int(_parquet(self.name, lambda: table.metadata.num_rows))


@dataclass(frozen=True, slots=True)
class FolderSource(Source):
    """The CSV or the Parquet files of one folder, one after the other by name."""

    path: Path
    files: tuple[CsvSource | ParquetSource, ...]

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns of its first file."""
        return self.files[0].columns

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows; a file shorter than a block ends its own."""
        for file in self.files:
            require_columns(file, columns)
            yield from file.read(columns, types)

    def batches(self, columns: Sequence[str]) -> Iterator[Any] | None:
        """Return the Arrow batches of all files; None of CSV."""
        return None if isinstance(self.files[0], CsvSource) else self._batches(columns)

    def _batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for file in self.files:
            require_columns(file, columns)
            yield from file.batches(columns) or ()

    def state(self) -> object:
        """Return name, size and time of the last change of each file."""
        return tuple((file.name, file.state()) for file in self.files)


def no_rows(table: str = "") -> AlignmentError:
    """Return the error of a table without rows, which names a file."""
    return AlignmentError(f"{table}: {NO_ROWS}" if table and not table.startswith("the ") else NO_ROWS)


def file_source(data: object) -> CsvSource | ParquetSource | FolderSource:
    """Return the source of a file, CSV or Parquet by its ending, or of a folder of such files of one kind.

    Raises
    ------
    StorageError
        There is no such file, or it ends in something else.
    """
    path = check_path(data, "data")
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise FileMissingError(f"{path}: there is no such file or folder")
    return _file(path)


def _file(path: Path) -> CsvSource | ParquetSource:
    if path.name.lower().endswith(CSV_SUFFIXES):
        return CsvSource(path)
    if path.name.lower().endswith(PARQUET_SUFFIXES):
        return ParquetSource(path)
    suffixes = ", ".join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))
    raise StorageError(f"{path.name} is not in a supported format: use a file whose name ends in {suffixes}")


def _folder(path: Path) -> FolderSource:
    """Return the files of a folder; names that begin with . or _ are marks of the programs that wrote it."""
    names = sorted(name for name in path.iterdir() if not name.name.startswith((".", "_")))
    if not names:
        raise StorageError(f"folder {path.name} is empty: it must contain CSV files or Parquet files")
    if within := [name for name in names if name.is_dir()]:
        raise StorageError(
            f"folder {path.name} contains another folder, {within[0].name}: pass the folder that "
            "contains the files, or pass a pyarrow dataset"
        )
    files = tuple(map(_file, names))
    if len({type(file) for file in files}) == 1:
        return FolderSource(path, files)
    raise StorageError(
        f"folder {path.name} contains both CSV files and Parquet files: keep only one kind in a folder"
    )


def require_columns(source: Source, columns: Sequence[str]) -> None:
    """Raise SchemaError unless the table has each of these columns exactly once."""
    present = list(source.columns)
    absent = [name for name in columns if name not in present]
    if absent:
        raise SchemaError(f"{source.name} lacks {columns_phrase(absent)}{blanks_alone(absent, present)}")
    twice = [name for name in columns if present.count(name) > 1]
    if twice:
        raise SchemaError(
            f"{source.name} has several columns with the same name, "
            f"{', '.join(dict.fromkeys(twice))}: rename or remove all but one"
        )


def _text_levels(column: str, types: Types) -> tuple[str, ...] | None:
    """Return the levels of a column to be read as text (none of a column that is not declared)."""
    if types == "guessed":
        return None
    if types == "texts" or column not in types:
        return ()
    declared = types.columns[column]
    if isinstance(declared, Factor) and isinstance(declared.levels[0], str):
        return tuple(map(str, declared.levels))
    return None


def _bytes(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return open(path, "rb")


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
        raise ValueError("the header line with the column names is too long")
    return line


def _names_and_separator(path: Path) -> tuple[list[str], str]:
    with _text(path) as stream:
        separator = _separator(_first_line(stream))
        stream.seek(0)
        return next(csv.reader(stream, delimiter=separator), []), separator


def _csv(name: str, parse: Callable[[], R], lines: CheckedLines | None = None) -> R:
    """Return ``parse()``; the reader's errors quote values of rows, so that ours state the place alone."""
    place = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return parse()
    except pd.errors.ParserError as problem:
        line = re.search(r"line (\d+)", str(problem))
        place = f" near line {line[1]}" if line else ""
    except Exception:  # pandas raises many kinds on damaged text
        pass
    if lines is not None and lines.wrong:
        place = lines.wrong
    raise StorageError(
        f"{name} cannot be read as CSV{place}: it needs a first line of column names, the same number "
        "of fields in every other line, and UTF-8 text"
    )


def _opened_parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise NotAvailableError(
            "Parquet files need pyarrow: install privinf[parquet], or save the table as CSV"
        ) from None
    # Buffering ahead would hold the whole file.
    settings = {"buffer_size": 1 << 15, "pre_buffer": False, "page_checksum_verification": True}
    return _parquet(path.name, lambda: parquet.ParquetFile(path, **settings))


def _parquet(name: str, parse: Callable[[], R]) -> R:
    """Return ``parse()``; errors of the reader may quote values of rows."""
    try:
        return parse()
    except Exception:  # of pyarrow, and of its parsers of damaged metadata
        pass
    raise StorageError(f"{name} cannot be read as Parquet: the file is damaged or has another format")
