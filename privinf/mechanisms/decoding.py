"""Numbers of a Parquet file, decoded by polars where that is faster and the same.

pyarrow takes twice as long for columns that may have gaps, as nearly all are declared. It alone compares
checksums of pages, where a file has some, and takes part in processes that were forked: those it reads.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

# Arrow's types that become doubles as they do in a data frame.
ARROW_NUMBERS = {"double", "float", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
LARGE_FILE = 1 << 22  # numbers in a file from which on polars decodes it, if it is loaded
WORTH_LOADING = 1 << 26  # numbers from which on polars is loaded for it, which takes as long as it saves
# The header of a page that has a checksum: type, both sizes and the checksum, each after its mark in Thrift's
# compact protocol.
_CHECKSUM = re.compile(rb"(?:\x15[\x80-\xff]*[\x00-\x7f]){3}\x15", re.DOTALL)
_HEADER = 32  # bytes that hold all these
_LOADING_PROCESS = (
    os.getpid()
)  # process in which this module was loaded: polars does not work in one forked from it


def by_polars(
    path: Path, table: ParquetFile, columns: Sequence[str], rows: int
) -> Callable[[], Iterator[Any]] | None:
    """Return a function that starts decoding columns in Arrow batches of a given size, in order.

    Parameters
    ----------
    path : Path
    table : pyarrow.parquet.ParquetFile
        The same file.
    columns : sequence of str
    rows : int

    Returns
    -------
    callable () -> iterator of pyarrow.RecordBatch, or None
        None where pyarrow is to decode: few numbers, other types, names that polars takes for patterns,
        checksums, no polars, a forked process.
    """
    kinds = [str(table.schema_arrow.field(name).type) for name in columns]
    worthwhile = table.metadata.num_rows * len(kinds) >= (
        LARGE_FILE if "polars" in sys.modules else WORTH_LOADING
    )
    patterns = any(name == "*" or name.startswith("^") for name in columns)  # polars expands them
    if not worthwhile or patterns or not ARROW_NUMBERS.issuperset(kinds) or os.getpid() != _LOADING_PROCESS:
        return None
    try:
        import polars
    except ImportError:
        return None
    if not hasattr(polars.LazyFrame, "collect_batches") or _checked(path, table, columns):
        return None

    from pyarrow import RecordBatchReader

    def batches() -> Iterator[Any]:
        chosen = polars.scan_parquet(path, glob=False, hive_partitioning=False).select(columns)
        for part in chosen.collect_batches(chunk_size=rows, maintain_order=True):
            yield from RecordBatchReader.from_stream(part.rechunk())  # one, whatever the row groups

    return batches


def _checked(path: Path, table: ParquetFile, columns: Sequence[str]) -> bool:
    """Return whether the first page of one of these columns has a checksum, in any row group."""
    file = table.metadata
    first = next(at for at in range(file.num_columns) if file.schema.column(at).path == columns[0])
    with open(path, "rb") as stream:
        for chunk in (file.row_group(at).column(first) for at in range(file.num_row_groups)):
            stream.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
            if _CHECKSUM.match(stream.read(_HEADER)):
                return True
    return False
