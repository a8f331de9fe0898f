"""Files as sources, by their endings: CSV, Parquet, and folders of either.

Nothing is learnt from the rows: columns are read as the schema declares them, and errors name files and
columns, never a value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from privinf.errors import FileMissingError, NotAvailableError, StorageError
from privinf.mechanisms import sources
from privinf.mechanisms.csv_files import CsvSource
from privinf.mechanisms.sources import FileSource, Source, Types, require_columns
from privinf.validation import check_path

CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")
READ_AHEAD = 2  # batches that a thread decodes while the caller works on the one before them
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ParquetSource(FileSource):
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
        """Yield Arrow batches; a thread decodes the next ones of a file that has several."""
        with _opened_parquet(self.path) as table:
            batches = _decoded(self.name, table, columns)
            yield from batches if table.metadata.num_rows <= sources.ROWS else read_ahead(batches)

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


def _decoded(name: str, table: Any, columns: Sequence[str]) -> Generator[Any, None, None]:
    chosen = {"batch_size": sources.ROWS, "columns": list(columns), "use_threads": False}
    batches = _parquet(name, lambda: table.iter_batches(**chosen))
    while (batch := _parquet(name, lambda: next(batches, None))) is not None:
        yield batch


def read_ahead(items: Generator[R, None, None]) -> Iterator[R]:
    """Yield the items of a generator, none of them None; a thread makes up to `READ_AHEAD` in advance.

    An error of the generator is raised here, in its turn. When the caller stops early, the thread ends after
    the item that it makes, and the generator is closed.
    """
    thread = ThreadPoolExecutor(1, "privinf reads ahead")
    pending = deque[Future[R | None]]()

    def request() -> bool:
        try:
            pending.append(thread.submit(next, items, None))
        except RuntimeError:  # no thread can be started: the process ends, or has too many of them
            return False
        return True

    try:
        threaded = all(request() for _ in range(READ_AHEAD))
        while pending:
            if (item := pending.popleft().result()) is None:
                return
            threaded = threaded and request()
            yield item
        yield from items
    finally:
        with suppress(RuntimeError):  # the thread cannot wait for itself where it collects this generator
            thread.shutdown(cancel_futures=True)
            items.close()


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
