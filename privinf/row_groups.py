"""Arrays of rows in a Parquet file, a row group a block: written as they come, read where they are wanted."""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy as np

from privinf.errors import NotAvailableError, StorageError
from privinf.storage.checksummed import reads, save_bytes
from privinf.storage.containers import HashingWriter
from privinf.validation import READ_ROWS, ReadRows
from privinf.wire import Formats


def write_groups(
    stream: IO[bytes], blocks: Iterable[Mapping[str, np.ndarray[Any, Any]]], kinds: dict[str, Any]
) -> str:
    """Write each block as a row group; return the SHA-256 of all, and the kinds of the arrays in `kinds`.

    A thread of its own hashes and writes a block while the next one is made.

    Parameters
    ----------
    stream : binary file
    blocks : iterable of mapping
        Arrays by name, of the same rows: (rows,) or (rows, width).
    kinds : dict
        Filled: [width, type] of each array, or [type].
    """
    hashing = HashingWriter(stream)
    parquet = row_parquet()
    writer: Any = None
    written: Future[None] | None = None
    import pyarrow

    with ThreadPoolExecutor(1) as executor:
        for block in blocks:
            if not kinds:
                kinds |= {name: [*array.shape[1:], array.dtype.str] for name, array in block.items()}
            columns = dict[str, Any]()
            for name, array in block.items():
                transposed = np.array(array.T, order="C").reshape(
                    -1, len(array)
                )  # the next block takes its memory
                columns |= dict(zip(_columns(name, kinds[name]), transposed, strict=True))
            table = pyarrow.table(columns)
            if written is None:
                # A dictionary for a column that is constant so far, as an intercept: it takes no room then.
                coded = [
                    name for name, column in columns.items() if column.size and (column == column[0]).all()
                ] or False
                # No number is absent: none says so, and each is written with all others of its page.
                schema = pyarrow.schema([field.with_nullable(False) for field in table.schema])
                options = {"use_dictionary": coded, "write_statistics": False, "write_batch_size": READ_ROWS}
                writer = parquet.ParquetWriter(hashing, schema, compression="none", **options)
            else:
                written.result()
            written = executor.submit(writer.write_table, table.cast(schema))
        if written is not None:
            written.result()
            writer.close()
    return hashing.digest.hexdigest()


def write_numbers(path: Path, arrays: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    """Write arrays to a Parquet file, one row per number, and plain content as JSON in its metadata.

    Columns ``array``, ``position``: the number's place in the array read row by row, from 0, and ``value``.
    The metadata's key ``privinf`` holds `header` and ``shapes``, by array.

    Raises
    ------
    NotAvailableError
        The rows stand in a Parquet file already; pyarrow is not installed.
    """
    parquet = row_parquet()
    import pyarrow

    if any(isinstance(array, ReadRows) for array in arrays.values()):
        raise NotAvailableError("the rows of this release are already in a Parquet file: read that file")
    flat = {name: np.asarray(array, dtype=np.float64).ravel() for name, array in arrays.items()}
    columns = {
        "array": np.repeat(list(flat), [array.size for array in flat.values()]),
        "position": np.concatenate([np.arange(array.size) for array in flat.values()]),
        "value": np.concatenate(list(flat.values())),
    }
    shapes = {name: list(np.shape(array)) for name, array in arrays.items()}
    text = json.dumps({**header, "shapes": shapes}, allow_nan=False, ensure_ascii=False).encode()
    table = pyarrow.table(columns).replace_schema_metadata({Formats.PARQUET_KEY: text})
    stream = io.BytesIO()
    parquet.write_table(table, stream)
    save_bytes(path, stream.getvalue(), overwrite=True)


def _columns(name: str, kind: Sequence[Any]) -> list[str]:
    """Return the columns of the file that hold an array: one for each of its columns."""
    return [f"{name}.{place}" for place in range(kind[0])] if len(kind) == 2 else [name]


class _RowGroups:
    """The rows of one array in a Parquet file; the group that was read last is kept."""

    __slots__ = ("_columns", "_file", "_flat", "_last_group", "_path", "_starts", "_type")

    def __init__(self, path: Path, columns: list[str], kind: Sequence[Any]) -> None:
        self._path = path
        self._columns = columns
        self._flat = len(kind) == 1
        self._type = np.dtype(kind[-1])
        self._file = row_parquet().ParquetFile(path)
        sizes = [self._file.metadata.row_group(at).num_rows for at in range(self._file.num_row_groups)]
        self._starts = np.cumsum([0, *sizes]).tolist()
        self._last_group: tuple[int, Any] = (-1, None)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._starts[-1])

    def read(self, start: int, stop: int) -> Any:
        """Return rows ``start .. stop - 1``."""
        parts = []
        while start < stop:
            at = bisect_right(self._starts, start) - 1
            end = min(stop, self._starts[at + 1])
            parts.append(self._group(at)[start - self._starts[at] : end - self._starts[at]])
            start = end
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else self._group(0)[:0]

    def _group(self, at: int) -> Any:
        if self._last_group[0] != at:
            try:
                table = self._file.read_row_group(at, columns=self._columns, use_threads=False)
            except (OSError, ValueError):
                table = None
            if table is None:
                raise StorageError(
                    f"{self._path} was changed or damaged after the release was opened: load the release "
                    "again"
                )
            rows = np.empty((self._starts[at + 1] - self._starts[at], len(self._columns)), self._type)
            for place, column in enumerate(table.columns):
                rows[:, place] = column.to_numpy()
            self._last_group = at, rows[:, 0] if self._flat else rows
        return self._last_group[1]

    def __reduce__(self) -> Any:
        return _RowGroups, (self._path, self._columns, [*[0][self._flat :], self._type.str])


@reads("a release of rows")
def row_arrays(path: Path, kinds: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return the arrays that a Parquet file holds, read where they are wanted."""
    arrays = {}
    for name, kind in kinds.items():
        columns = _columns(name, kind)
        groups = _RowGroups(path, columns, kind)
        if groups.rows != rows:
            raise StorageError(
                f"{path} does not have the number of rows that its release states: ask for the original file"
            )
        arrays[name] = ReadRows((rows, *kind[:-1]), groups.read, kind[-1])
    return arrays


def row_parquet() -> Any:
    """Return pyarrow's module; NotAvailableError without it."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise NotAvailableError(
            "releases of rows in Parquet need pyarrow: install privinf[parquet]"
        ) from None
    return parquet
