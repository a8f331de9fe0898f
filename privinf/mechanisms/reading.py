"""Sources read in blocks: checked as they come, with a bar; collected, or spooled to a file of one's own."""

from __future__ import annotations

import contextlib
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from tqdm import tqdm

from privinf.error_boundary import error_boundary
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    NotAvailableError,
    PrivinfError,
    SchemaError,
    StorageError,
)
from privinf.mechanisms.arrow import ArrowSource, StreamSource, frames_of
from privinf.mechanisms.files import ParquetSource
from privinf.mechanisms.sources import Source, Types, no_rows, require_columns
from privinf.mechanisms.statistics.loops import filled, rooms
from privinf.mechanisms.tables import source_of
from privinf.progress import DELAY, bars_are_hidden
from privinf.schema.reading import kind_of
from privinf.secret_files import check_folder
from privinf.typing import AnyPath, Floats, Table
from privinf.validation import READ_ROWS, check_flag, check_path, even_parts

# Bytes of columns that are collected in memory for models that do not read in blocks.
MOST_MEMORY = 1 << 33
# Arrow's types that become doubles as they do in a data frame.
ARROW_NUMBERS = {"double", "float", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def checked_blocks(source: Source, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
    """Yield all rows of some columns in blocks.

    Raises
    ------
    SchemaError
        A column is absent or there twice; it holds numbers at first and texts later, or the like.
    AlignmentError
        The table was changed while it was read, or has no rows.
    StorageError
        It cannot be read.
    NotAvailableError
        It is a stream that was read before.
    """
    chosen = list(dict.fromkeys(columns))
    require_columns(source, chosen)
    yield from _watched(source, chosen, source.read(chosen, types))


def number_blocks(
    source: Source, columns: Sequence[str], types: Types, height: int, *, constant: int | None = None
) -> Iterator[Floats | pd.DataFrame]:
    """Yield all rows of some columns, where all of a block are doubles as an array of at most `height` rows.

    An array has shape (rows, columns), column by column in memory, one of ones being put in at the position
    `constant`; its numbers are finite, and it is valid until the next one. Errors are those of
    `checked_blocks`.
    """
    chosen = list(dict.fromkeys(columns))
    require_columns(source, chosen)
    batches = source.batches(chosen)
    if batches is None:
        return _watched(source, chosen, source.read(chosen, types))
    room = rooms(height, len(chosen) + (constant is not None))[1]
    places = [at for at in range(room.shape[1]) if at != constant]
    if constant is not None:
        room[:, constant] = 1.0
    return _watched(source, chosen, _numbers(source.name, batches, chosen, room, places))


def _numbers(
    name: str, batches: Iterator[Any], columns: list[str], room: Floats, places: list[int]
) -> Iterator[Floats | pd.DataFrame]:
    """Yield the contents of Arrow batches: arrays of doubles for numbers without gaps, else frames."""
    for batch in batches:
        batch_columns = [batch.column(name) for name in columns]
        if any(str(column.type) not in ARROW_NUMBERS or column.null_count for column in batch_columns):
            yield from frames_of(name, iter([batch]), columns)
            continue
        arrays = [column.to_numpy() for column in batch_columns]
        for part in even_parts(batch.num_rows, len(room)):
            block = room[: part.stop - part.start]
            if filled(block, places, [array[part] for array in arrays]):
                yield block
            else:
                yield from frames_of(name, iter([batch.slice(part.start, len(block))]), columns)


Block = TypeVar("Block", pd.DataFrame, "Floats | pd.DataFrame")


def _watched(source: Source, columns: list[str], blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield blocks, compared with those before them, with a bar."""
    state = source.state()
    kinds = dict[str, str]()
    hidden = None if source.in_memory() is None else True
    with tqdm(
        total=source.known(),
        desc=source.name,
        unit=" rows",
        unit_scale=True,
        delay=DELAY,
        leave=False,
        disable=True if bars_are_hidden() else hidden if source.progress is None else not source.progress,
    ) as bar:
        n = 0
        for block in blocks:
            n += len(block)
            if isinstance(block, pd.DataFrame):
                _compare(source, kinds, block)
            elif not kinds:
                kinds.update(dict.fromkeys(columns, "numbers"))
            yield block
            bar.update(len(block))
    if source.state() != state:
        raise AlignmentError(
            f"{source.name} was changed while it was read: start again with a table that nobody writes to"
        )
    if n == 0 and source.whole:
        raise no_rows(source.name)


def _compare(source: Source, kinds: dict[str, str], block: pd.DataFrame) -> None:
    """Refuse a block whose columns hold something else than those of blocks before it."""
    for name in block.columns:
        kind = kind_of(block[name])
        first = kinds.setdefault(name, kind) if kind else kind
        if kind and first != kind:
            raise SchemaError(
                f"column {name!r} of {source.name} holds {first} at first and {kind} in a later part: "
                "convert the column to one type"
            )


def evened(
    blocks: Iterator[Floats | pd.DataFrame], names: Sequence[str] | None = None
) -> Iterator[Floats | pd.DataFrame]:
    """Yield the same rows in blocks of `READ_ROWS`, the last one shorter: arrays as they are where they fit.

    `names` are the columns of arrays but for the one of ones, their second.
    """
    frames = list[pd.DataFrame]()
    rows = 0
    for block in blocks:
        if isinstance(block, np.ndarray):
            if rows == 0 and len(block) == READ_ROWS:
                yield block
                continue
            frame = pd.DataFrame(np.delete(block, 1, axis=1), columns=list(names or ()))
        else:
            frame = block
        frames.append(frame)
        rows += len(frame)
        while rows >= READ_ROWS:
            joined = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
            yield joined.iloc[:READ_ROWS]
            rows -= READ_ROWS
            frames = [joined.iloc[READ_ROWS:]] if rows else []
    if rows:
        yield pd.concat(frames, ignore_index=True)


def collected(source: Source, columns: Sequence[str] | None, types: Types) -> pd.DataFrame:
    """Return columns of a source as one frame; those that it does not have are left out.

    Raises
    ------
    NotAvailableError
        They take more than `MOST_MEMORY` bytes; or as for `checked_blocks`, with its other errors.
    """
    if (frame := source.in_memory()) is not None:
        return frame
    present = list(source.columns)
    chosen = [name for name in (present if columns is None else columns) if name in present]
    parts = list[pd.DataFrame]()
    size = 0
    for block in checked_blocks(source, chosen, types):
        parts.append(block)
        size += int(block.memory_usage(index=False).sum())
        if size > MOST_MEMORY:
            advice = (
                ""
                if source.repeatable
                else "; if the data are read several times, pass privinf.open_rows(data, spool=True)"
            )
            raise NotAvailableError(
                f"{source.name} needs more than {MOST_MEMORY >> 30} GiB of memory, because this model "
                "reads all rows into memory: use fewer columns, or a model that reads a part of the "
                f"rows at a time (see docs/tables.md){advice}"
            )
    return pd.concat(parts, ignore_index=True)


# ---- a holder's own handle


class OpenedSource(Source):
    """A source with a bar or without, spooled or not; made by `open_rows`."""

    __slots__ = ("__weakref__", "_folder", "_source", "ordered", "progress", "repeatable")

    def __init__(self, source: Source, folder: Path | None, progress: bool | None) -> None:
        self._source = source
        self._folder = folder
        self.ordered = source.ordered
        self.repeatable = folder is not None or source.repeatable
        self.progress = progress

    @property
    def name(self) -> str:
        """Name of the table in messages."""
        return self._source.name

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        return self._source.columns

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows; the first read writes the spool file."""
        self._spool()
        return self._source.read(columns, types)

    def _spool(self) -> None:
        if self._folder is not None and isinstance(self._source, (ArrowSource, StreamSource)):
            path = _spooled(self._source, self._folder)
            weakref.finalize(self, _removed, path)
            self._source = ParquetSource(path, self.name)

    def batches(self, columns: Sequence[str]) -> Iterator[Any] | None:
        """Return Arrow batches, if there are any; the first read writes the spool file."""
        self._spool()
        return self._source.batches(columns)

    def known(self) -> int | None:
        """Return the number of rows, where it is known."""
        return self._source.known()

    def state(self) -> object:
        """Return a fingerprint of the table; a spool file is this handle's own."""
        return None if self._folder is not None else self._source.state()

    def in_memory(self) -> pd.DataFrame | None:
        """Return the data frame that is behind it, if one is."""
        return self._source.in_memory()


@error_boundary
def open_rows(
    data: Table,
    *,
    spool: bool | AnyPath = False,
    progress: bool | None = None,
    push_down: bool = False,
    client: Any = None,
) -> Source:
    """Open a table of any type, to pass it as data to models and releases.

    Parameters
    ----------
    data : table
        Any table that models accept: a data frame, a mapping of arrays, the path of a file, a query or a
        stream.
    spool : bool or path
        Whether to write a stream or a query to a Parquet file (the spool file) when it is first read, so that
        it can be read again. The spool file is in the folder for temporary files, or in the folder that you
        pass. Only your account may read the spool file (mode 0600). The spool file is removed when the
        returned object is deleted, when the process ends normally, or if writing is interrupted. If the
        process is killed, the spool file remains. Data frames and files are not copied.
    progress : bool, optional
        Whether to show a progress bar of the rows that are read. By default the bar appears after two
        seconds, on a terminal only.
    push_down : bool
        Whether to compute sums inside the database of a DuckDB relation, or of an ibis table in DuckDB or
        PostgreSQL. Only integer sums leave the database. The page "Supported data sources" lists the models
        and functions; methods that need rows are refused.
    client : dask.distributed.Client, optional
        Client of a dask cluster. Its workers read the Parquet files of `data` (a path, a list of paths or a
        pattern) and compute the exact sums of `MomentOLS`, `Moments`, `OLS`, `Logit` and `Poisson`. The
        workers must find the files under the same paths as this process. Methods that need rows read the
        files in this process instead.

    Returns
    -------
    handle of rows
        Object to pass to models, statistics and `find_bounds`, which read the rows in blocks.

    Raises
    ------
    ArgumentError
        Raised if `client` is not a synchronous dask client, or the data are not Parquet files.
    StorageError
        Raised if the file does not exist, or if other accounts could replace files in the folder of the spool
        file. When the data are read, the error is also raised if the spool file cannot be written.

    Notes
    -----
    **Privacy.** The returned object is for the holder of the rows only, and a spool file contains raw rows.
    The returned object is not a release. The rows of a spool file are in the order in which the query
    returned them. This order may depend on private values, so privinf does not use the positions of these
    rows. Workers of a dask cluster return sums without noise to this process. Therefore the cluster must be
    on this computer alone or use mutual TLS, and must have no dashboard.

    Examples
    --------
    >>> import pandas as pd, privinf as pi
    >>> rows = pi.open_rows({"y": [0.2, 0.4, 0.1], "x": [1.0, 2.0, 3.0]}, progress=False)
    >>> schema = pi.Schema({"y": (0, 1), "x": (0, 4)})
    >>> pi.MomentOLS.from_formula("y ~ x", rows, schema=schema).fit(mu=1.0).nobs
    3
    """
    bar = None if progress is None else check_flag(progress, "progress")
    if check_flag(push_down, "push_down"):
        if client is not None:
            raise ArgumentError("push_down=True computes sums in a database, so leave out client=")
        if bar is not None or spool is not False:
            raise ArgumentError(
                "spool= and progress= cannot be combined with push_down=True, which reads no rows: "
                "leave them out"
            )
        from privinf.mechanisms.pushdown.databases import pushed_source

        return pushed_source(data)
    if client is not None:
        if bar is not None or spool is not False:
            raise ArgumentError(
                "spool= and progress= cannot be combined with client=, whose workers read the rows: leave "
                "them out"
            )
        from privinf.mechanisms.pushdown.dask_tables import cluster_files

        return cluster_files(data, client)
    if isinstance(spool, bool):
        return OpenedSource(source_of(data), Path(tempfile.gettempdir()) if spool else None, bar)
    folder = check_path(spool, "spool")
    if not folder.is_dir():
        raise StorageError(f"spool={str(folder)!r} is not a folder: create it first")
    check_folder(folder, "the rows", sticky=True)
    return OpenedSource(source_of(data), folder, bar)


def _spooled(source: ArrowSource | StreamSource, folder: Path) -> Path:
    """Write all rows of a source to a Parquet file of mode 0600 and return its path."""
    from pyarrow import parquet

    batches = source.batches(source.columns)
    handle, name = tempfile.mkstemp(".parquet", "privinf-", folder)  # mode 0600
    reason = ""
    complete = False
    try:
        with os.fdopen(handle, "wb") as file:
            first = next(batches, None)
            if first is None:
                raise no_rows(source.name)
            with parquet.ParquetWriter(file, first.schema) as writer:
                writer.write_batch(first)
                for batch in batches:
                    writer.write_batch(batch)
        complete = True
        return Path(name)
    except PrivinfError:
        raise
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno else "unknown cause"
    except Exception:  # of pyarrow: a type that Parquet does not have
        reason = "a column has a type that Parquet cannot store"
    finally:
        if not complete:  # a stopped iteration leaves no rows behind
            _removed(Path(name))
    raise StorageError(
        f"the spool file in {folder} could not be written ({reason}): pass another folder as spool=, "
        "or free disk space"
    )


def _removed(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
