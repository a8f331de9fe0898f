"""The interface of every table that is read: a source yields blocks of rows, a few columns at a time.

Frames in memory are sources here; `files`, `tables` and `pushdown.databases` have the others. `reading`
checks their blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeGuard

import pandas as pd

from privinf.errors import AlignmentError, SchemaError
from privinf.schema import Schema
from privinf.storage.checksummed import unreadable
from privinf.validation import columns_phrase, spelling_alone

ROWS = 1 << 16  # rows a block
NO_ROWS = "the table has no rows"
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

    def part_kinds(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the kinds of columns that another part of the same table may not contradict."""
        return {}

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.columns)} columns, rows not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("raw rows cannot be pickled: pickle the release or the result instead")


class SpreadSource(Source):
    """A table in parts that the processes of a cluster read, each its own."""

    __slots__ = ()
    spreads = True

    def gathered(
        self,
        columns: Sequence[str],
        work: Callable[[Callable[[], Source]], bytes],
        join: Callable[[Sequence[bytes]], bytes],
    ) -> bytes:
        """Return the results of all parts of the table, joined.

        Parameters
        ----------
        columns : sequence of str
            The columns that `work` reads.
        work : callable (callable () -> Source) -> bytes
            Called where a part is, with a function that opens the part. Errors are part of its result: what
            it raises could show rows in the logs of the cluster.
        join : callable (sequence of bytes) -> bytes
            Joins results of adjacent parts, in their order.
        """
        raise NotImplementedError


def frame_blocks(frame: pd.DataFrame, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield some columns of a frame in blocks of `ROWS` rows, the last one shorter."""
    for start in range(0, len(frame), ROWS):
        yield frame.iloc[start : start + ROWS][list(columns)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FrameSource(Source):
    """A data frame in memory."""

    frame: pd.DataFrame
    name: str = "the data frame"
    ordered: bool = True

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        return list(self.frame.columns)

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Return blocks of rows."""
        return frame_blocks(self.frame, columns)

    def known(self) -> int:
        """Return the number of rows."""
        return len(self.frame)

    def state(self) -> object:
        """Return the number of rows."""
        return len(self.frame)

    def in_memory(self) -> pd.DataFrame:
        """Return the data frame."""
        return self.frame


@dataclass(frozen=True, slots=True)
class FileSource(Source):
    """A file, under its own name or a description."""

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


def are_paths(data: object) -> TypeGuard[Sequence[str | PathLike[str]]]:
    """Return whether data are a list of paths."""
    return (
        isinstance(data, (list, tuple))
        and bool(data)
        and all(isinstance(one, (str, PathLike)) for one in data)
    )


def no_rows(table: str = "") -> AlignmentError:
    """Return the error of a table without rows, which names a file."""
    return AlignmentError(f"{table}: {NO_ROWS}" if table and not table.startswith("the ") else NO_ROWS)


def require_columns(source: Source, columns: Sequence[str]) -> None:
    """Raise SchemaError unless the table has each of these columns exactly once."""
    present = list(source.columns)
    absent = [name for name in columns if name not in present]
    if absent:
        raise SchemaError(f"{source.name} lacks {columns_phrase(absent)}{spelling_alone(absent, present)}")
    twice = [name for name in columns if present.count(name) > 1]
    if twice:
        raise SchemaError(
            f"{source.name} has several columns with the same name, "
            f"{', '.join(dict.fromkeys(twice))}: rename or remove all but one"
        )
