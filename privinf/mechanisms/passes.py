"""Passes over a holder's rows, block by block, checked on reading; and the sums of a pass.

A pass reads all rows once: `RowPasses` as blocks of a design for sums, `ColumnPasses` a few columns for means
and tests, `RecordBlocks` encoded rows for releases of one message per row. Blocks of rows in memory are views
of arrays where that is possible. Any other table is read again, block by block. A database or a cluster makes
the sums where the rows are. Defects of a row are found where it is read, by the first pass, and reported as
by `encode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

import numpy as np
import pandas as pd

from privinf.errors import AlignmentError, NotAvailableError, SensitivityError
from privinf.mechanisms.rows import (
    EACH_ROW,
    MESSAGES,
    NO_COUNT,
    DesignRows,
    EncodedRows,
    PublicSizes,
    Rows,
    check_constant,
    check_enough,
    check_levels,
    encode,
    gaps_as_nan,
    inputs_outside,
    needed,
    numeric_names,
    once_complete,
    read_rows,
    refuse_dropping,
    refuse_unordered,
    response_of,
    unit_codes,
)
from privinf.mechanisms.sources import Source, Types, no_rows
from privinf.mechanisms.statistics.block import Args, SiteBlock
from privinf.mechanisms.statistics.gridded import MomentSums
from privinf.mechanisms.statistics.moments import MOMENT_OPS, MomentLayout
from privinf.mechanisms.statistics.ops import Accumulator, PlainSums, RecordSensitivity, SiteOp
from privinf.mechanisms.sums import BLOCK_ROWS, FULL_SCALE, block_rows
from privinf.schema import Design, Schema
from privinf.schema.reading import Reader, as_frame
from privinf.typing import Floats, Integers
from privinf.validation import READ_ROWS, even_parts

T = TypeVar("T")


NO_PUBLIC = (
    "missing='drop' cannot be combined with public= columns or weights=, because the number of complete rows "
    "is private: declare these columns as protected and leave weights= out, or remove the rows with missing "
    "values. The number of remaining rows then counts as public"
)


def refuse_public(design: Design, weights: str | None) -> None:
    """Raise NotAvailableError unless the constant is the one public column, where rows are dropped."""
    if weights is not None or (~design.private).sum() > (design.constant is not None):
        raise NotAvailableError(NO_PUBLIC)
    if design.constant is None:
        raise NotAvailableError(NO_COUNT)


class Passes:
    """Raw rows of one holder that are read in passes: each reads all rows, and counts as many as the first.

    Notes
    -----
    **Privacy.** Holds raw rows: never leaves the mechanisms, is neither pickled nor shown.
    """

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count: int | None = None

    @property
    def n(self) -> int:
        """Number of rows, once there was a pass."""
        assert self._count is not None
        return self._count

    def counted(self, n: int) -> None:
        """Take the number of rows of a whole pass; AlignmentError if an earlier one had other rows."""
        if self._count not in (None, n):
            raise AlignmentError(
                "the table has changed since it was first read: start again with a table that nobody "
                "writes to"
            )
        self._count = n

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, rows not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("raw rows cannot be pickled: pickle the release or the result instead")


def _read(
    source: Source, design: Design, columns: Sequence[str], names: Sequence[str] | None, height: int
) -> Iterator[Floats | pd.DataFrame]:
    """Yield the rows of a table that is read again.

    They are arrays of response and design, of at most `height` rows, where `names` are the columns of numbers
    of a design with a constant and a block has nothing else; frames of `columns` otherwise.
    """
    from privinf.mechanisms.reading import checked_blocks, number_blocks

    types: Types = design.schema or "guessed"
    if names is None or design.constant is None:
        return checked_blocks(source, columns, types)
    return number_blocks(source, names, types, height, constant=design.constant + 1)


# ---- rows of a design


class RowPasses(Passes):
    """Rows of one holder as blocks of a design with a protected response.

    Parameters
    ----------
    design : Design
    rows : Rows
        Of a table that is not in memory every pass reads it. Tables whose schema names a unit are collected.
    weights : str, optional
        Column of public observation weights.
    passes : int
        How many sums there will be.
    together : bool
        Whether blocks hold the rows of whole units, side by side, of a schema that has some.
    stream : int, optional
        Blocks have all columns side by side, as a site's, and its stream of public random numbers.
    public : PublicSizes, optional
        Bounds of the public columns of all rows, from an earlier pass.

    Attributes
    ----------
    read : int
        How many passes there were.
    seen : set of str
        Columns of which a declared level was seen.

    Raises
    ------
    AlignmentError
        Lengths differ, there are fewer rows than coefficients, or a unit has more rows than declared; a table
        has another number of rows than in the pass before; after `public_sizes`, public columns of a row are
        larger than any were then. Here, or by a pass.
    SchemaError
        A column is absent, has a type or a level that differs from its declaration, or has missing values
        that are not imputed. The error appears here or in the first pass.

    Notes
    -----
    With ``missing="drop"`` blocks hold complete rows alone, while `n` counts all rows. The number of complete
    rows is private, so the constant is then one of the private columns, all ones.

    **Privacy.** Holds raw rows: never leaves the mechanisms, is neither pickled nor shown.
    """

    __slots__ = (
        "_alone",
        "_codes",
        "_design",
        "_height",
        "_names",
        "_ones",
        "_plain",
        "_private",
        "_public",
        "_rows",
        "_stream",
        "_weights",
        "read",
        "seen_levels",
    )

    def __init__(
        self,
        design: Design,
        rows: Rows,
        weights: str | None = None,
        *,
        passes: int = 1,
        together: bool = False,
        stream: int | None = None,
        public: PublicSizes | None = None,
    ) -> None:
        super().__init__()
        self._design = design
        self._weights = weights
        self._stream = stream
        self.read = 0
        self._codes: Integers | None = None
        self._height = 0
        private = np.flatnonzero(design.private)
        self._alone = len(private) + (design.constant is not None) == self.width  # the constant is
        if rows.missing == "drop" and stream is None:
            refuse_public(design, weights)
            private = np.arange(self.width)
        adjacent = private[-1] - private[0] == len(private) - 1
        self._private = slice(int(private[0]), int(private[-1]) + 1) if adjacent else private
        self._names = numeric_names(design) if weights is None else None
        self._ones = np.broadcast_to(1.0, (BLOCK_ROWS, 1))
        self.seen_levels: set[str] = set()
        self._plain = False
        self._public = public
        schema = design.schema
        streamed = not rows.in_memory and rows.response is None and schema is not None and schema.unit is None
        if streamed:
            if passes + (not self._alone) > 1:
                rows.refuse_once()
            self._rows = rows
            return
        columns = needed(design, weights)
        table = rows if schema is None or schema.unit is None else rows.copied(columns)
        self._hold(table.opened(columns, schema), together)

    def _hold(self, rows: Rows, together: bool) -> None:
        """Take rows that are in memory; those of a unit are brought together."""
        design = self._design
        if rows.missing == "drop":
            rows = gaps_as_nan(rows)
        features = rows.features
        response = rows.response
        matrix = isinstance(features, np.ndarray) and features.ndim == 2
        if not (matrix or isinstance(features, pd.DataFrame)):
            features = design.released(features, missing=once_complete(rows.missing))
        if response is not None and not isinstance(response, np.ndarray):
            response = response_of(design, rows)
        self._rows = Rows(features, response, rows.missing)
        n = self._height = len(features)
        if response is not None and response.shape[:1] != (n,):
            responses = len(response_of(design, rows))
            raise AlignmentError(
                f"the response has {responses} rows and the features have {n}: pass the same rows in both"
            )
        self.counted(n)
        codes = unit_codes(design.schema, rows)
        if codes is not None and together:
            order = np.argsort(codes, kind="stable")
            response = None if response is None else response_of(design, rows)[order]
            features = features.iloc[order]
            self._rows = Rows(features, response, rows.missing)
            self._codes = codes[order]
        self._plain = (
            design.reading.is_matrix(features) and isinstance(response, np.ndarray) and self._weights is None
        )
        self._plain = self._plain and response.dtype == np.float64 and response.ndim == 1

    @property
    def _dropping(self) -> bool:
        """Whether rows with missing values are dropped."""
        return self._rows.missing == "drop"

    @property
    def n(self) -> int:
        """Number of rows, counted by a pass where it is not known."""
        source = self._rows.features
        if self._count is None and self.adds(exact=False):
            from privinf.mechanisms.pushdown.queries import counted_rows

            self.counted(counted_rows(self._rows, self._design))
        elif self._count is None and not self._rows.in_memory:
            self._count = source.count() if source.spreads else source.known()
        if self._count == 0:
            raise no_rows(self._rows.features.name)
        if self._count is None:
            for _ in self.blocks():
                pass
        assert self._count is not None
        return self._count

    def adds(self, *, exact: bool) -> bool:
        """Whether sums are made where the rows are: in a database all, on a cluster exact ones."""
        source = self._rows.features
        return not self._rows.in_memory and (source.pushes or (exact and source.spreads))

    @property
    def width(self) -> int:
        """Number of columns of the design."""
        return len(self._design.columns)

    @property
    def ordered(self) -> bool:
        """Whether rows have places of their own."""
        return self._rows.ordered

    def counted(self, n: int) -> None:
        """Take the number of rows of a whole pass; AlignmentError also if they are too few for a fit."""
        super().counted(n)
        check_enough(n, self._design)

    def blocks(self) -> Iterator[SiteBlock]:
        """Yield all rows, at most 8,192 at a time: private columns, public ones in addition, in user units.

        A block is valid until the next one.

        Raises
        ------
        SchemaError
            A row does not fit the design. The message names the column and holds no value.
        """
        self.read += 1
        if self._rows.in_memory:
            yield from (self._block(self._rows_of(part), part) for part in self._slices())
            if not self._plain:
                outcome = self._design.outcome.column.inputs if self._rows.response is None else ()
                names = dict.fromkeys((*outcome, *self._design.inputs))
                check_levels(self._design.schema, names, self.seen_levels)
            return
        self._height = 0
        yield from self.part()
        self.counted(self._height)
        check_levels(self._design.schema, needed(self._design), self.seen_levels)

    def part(self) -> Iterator[SiteBlock]:
        """Yield the rows of a table that is not in memory, be it a part of one: whose rows can be few."""
        start = 0
        for part in self._parts():
            self._height = start + len(part)
            place = slice(start, self._height)
            if isinstance(part, np.ndarray):  # the response, and the columns of the design
                yield self._block(DesignRows(matrix=part[:, 1:], response=part[:, 0]), place)
            else:
                rows = self._checked(part)
                block = self._block(rows, place)
                yield block if self._stream is None else self._with_inputs(block, part, rows)
            start = self._height

    def _with_inputs(self, block: SiteBlock, table: pd.DataFrame, rows: DesignRows) -> SiteBlock:
        """Return a block of a site with the marks of inputs that lie outside their bounds."""
        reader = Reader(table, self._design.schema, self._rows.missing, seen_levels=self.seen_levels)
        marks = inputs_outside(self._design, reader)
        return block if marks is None else replace(block, inputs=rows.select(marks))

    def _slices(self) -> Iterator[slice]:
        """Yield the ends of blocks, none of them inside a unit's adjacent rows."""
        start = 0
        codes = self._codes
        while start < self._height:
            end = min(start + BLOCK_ROWS, self._height)
            if codes is not None and end < self._height:
                end = int(np.searchsorted(codes, codes[end]))
            yield slice(start, end)
            start = end

    def push(self, queries: Sequence[tuple[SiteOp, Args]], *, exact: bool = True) -> list[Accumulator]:
        """Return exact sums over all rows, made where these are; errors as for `RemoteSums.sums`."""
        from privinf.mechanisms.pushdown import RemoteSums

        remote = RemoteSums(
            rows=self._rows,
            design=self._design,
            empty=self.empty,
            weights=self._weights,
            stream=self._stream,
            public=self._public,
            passes=type(self),
        )
        sums, counts = remote.sums(queries, exact=exact)
        for n in counts:
            self.counted(n)
        self.read += 1
        return sums

    @property
    def empty(self) -> SiteBlock:
        """A block without rows."""
        return self._block(DesignRows(matrix=np.empty((0, self.width)), response=np.empty(0)), slice(0, 0))

    def _parts(self) -> Iterator[Floats | pd.DataFrame]:
        """Yield the rows of a table that is read again: arrays of its numbers, or frames."""
        block_size = block_rows(self.width)
        columns = needed(self._design, self._weights)
        blocks = _read(self._rows.features, self._design, columns, self._names, block_size)
        for block in blocks:
            if isinstance(block, np.ndarray):
                yield block
            else:
                yield from (block.iloc[part] for part in even_parts(len(block), block_size))

    def _block(self, rows: DesignRows, part: slice) -> SiteBlock:
        """Return the block of the rows of a part."""
        design = self._design
        assert design.y_low is not None
        assert design.y_high is not None
        columns = self._private if self._stream is None else slice(None)
        return SiteBlock(
            features=rows.matrix[:, columns],
            response=rows.response,
            low=design.low[columns],
            high=design.high[columns],
            response_low=design.y_low,
            response_high=design.y_high,
            start=part.start,
            stream=self._stream or 0,
            clear=self._public_columns(rows.matrix),
            weights=rows.weights,
            ordered=self.ordered,
            finite=True,
            units=None if self._codes is None else rows.select(self._codes[part]),
        )

    def _public_columns(self, matrix: Floats) -> Floats | None:
        """Return the public columns of some rows, where blocks have them apart."""
        if self._stream is not None or self._dropping:
            return None
        if self._alone:  # a constant, which is one, as was checked
            return None if self._design.constant is None else self._ones[: len(matrix)]
        public = matrix[:, ~self._design.private]
        if self._public is not None:
            self._public.check(public)
        return public

    def _rows_of(self, part: slice) -> DesignRows:
        """Return some rows in memory: views of the holder's arrays where they are finite."""
        X, y = self._rows.features, self._rows.response
        if self._plain and np.isfinite((matrix := X[part]).sum()) and np.isfinite(y[part].sum()):
            check_constant(self._design, matrix)
            return DesignRows(matrix=matrix, response=y[part])
        table = X.iloc[part] if isinstance(X, pd.DataFrame) else X[part]
        return self._checked(table, None if y is None else y[part])

    def _checked(self, table: Floats | pd.DataFrame, response: Floats | None = None) -> DesignRows:
        """Return some rows, checked; without the incomplete ones where these are dropped."""
        rows = Rows(table, response, self._rows.missing)
        return read_rows(self._design, rows, self._weights, seen_levels=self.seen_levels)

    def public_sizes(self) -> tuple[Floats, float]:
        """Return the largest size of each public column, and the squared norm of their rows on the grid.

        Only a constant is known without reading rows. Others are public as they are; rounding them to the
        grid lengthens a row by half a unit of each at most. No row of a later pass may be larger: the price
        counts on it.
        """
        public = np.flatnonzero(~self._design.private)
        if self._dropping:
            return np.empty(0), 0.0
        if self._alone:
            return np.ones(len(public)), float(len(public))
        sizes = PublicSizes(np.zeros(len(public)), 0.0)
        norm2 = 0.0
        for block in self.blocks():
            assert block.clear is not None
            sizes = sizes.joined(PublicSizes.from_array(block.clear))
            norm2 = max(norm2, float(np.einsum("ij,ij->i", block.clear, block.clear).max()))
        self._public = sizes
        record_sensitivity = np.where(sizes.columns == 0.0, 1.0, sizes.columns)
        rounding = 0.5 * np.linalg.norm(record_sensitivity[public != self._design.constant]) / FULL_SCALE
        return record_sensitivity, float((np.sqrt(norm2) + rounding) ** 2)


@dataclass(frozen=True, slots=True)
class OwnSum:
    """A sum of a statistic over the holder's own rows, and how far one person can move it.

    `args` include facts that only the holder may state about its rows; `label` is for the ledger.
    """

    op: SiteOp
    label: str
    args: Args
    record_sensitivity: RecordSensitivity

    @classmethod
    def from_statistic(cls, name: str, label: str, args: Args, layout: MomentLayout) -> OwnSum:
        """Return the query of one of `MOMENT_OPS`; checks the arguments."""
        return cls(op := MOMENT_OPS[name], label, args, op.record_sensitivity(args, layout.private, own=True))

    def over(self, passes: RowPasses, *, exact: bool) -> MomentSums | PlainSums:
        """Return the sum over all rows, exact or for no noise in doubles; SchemaError for wrong ones."""
        if "unit_norm" in self.args and passes._codes is None:
            raise SensitivityError(
                "the rows were opened without their privacy units: declare the unit column with unit= in "
                "the schema, and its largest number of rows with max_rows="
            )
        if passes.adds(exact=exact):
            return cast("MomentSums", passes.push([(self.op, self.args)], exact=exact)[0])
        sums = self.sums(passes.empty) if exact else PlainSums(self.op, self.args, self.record_sensitivity)
        for block in passes.blocks():
            sums.update(block)
        return sums

    def sums(self, block: SiteBlock) -> MomentSums:
        """Return an empty exact accumulator for blocks like this one, whose rows are not read."""
        assert self.op.sums is not None
        return cast("MomentSums", self.op.sums(block, self.args))


# ---- columns


class ColumnPasses(Passes):
    """Columns of a table, read on every request; every pass checks its rows.

    Parameters
    ----------
    rows : Rows
    names : sequence of str
    schema : Schema, optional
        Declares them; without it they are numbers without gaps.
    numbers : bool
        Whether they are checked against the schema; else as they are, by `frames`.
    often : bool
        Whether more than one pass is needed: sources that can be read only once are refused before reading.
    unit : str, optional
        Column with the person of each row. Such tables are collected.
    max_rows : int
        How many rows one person may have.
    dropping : bool
        Whether rows with missing values may be dropped: whether what reads them leaves them out.

    Raises
    ------
    NotAvailableError
        A stream that is needed again, or rows whose missing values cannot be dropped.
    SchemaError, AlignmentError
        Here, or by a pass: a column differs from its declaration, a person has too many rows, or a table has
        other rows than in the pass before.

    Notes
    -----
    **Privacy.** Holds raw rows: never leaves the mechanisms, is neither pickled nor shown.
    """

    __slots__ = ("_names", "_reader", "_rows", "schema")

    def __init__(
        self,
        rows: Rows,
        names: Sequence[str],
        schema: Schema | None = None,
        *,
        numbers: bool = True,
        often: bool = False,
        unit: str | None = None,
        max_rows: int = 1,
        dropping: bool = False,
    ) -> None:
        super().__init__()
        if not dropping:
            refuse_dropping(rows.missing, "bounds and levels that are found from the rows")
        if often:
            rows.refuse_once()
        if unit is not None:
            columns = list(dict.fromkeys([*names, unit]))
            rows = rows.copied(columns).opened(columns, schema)
            unit_codes(Schema(dict.fromkeys(names, (0.0, 1.0)), unit=unit, max_rows=max_rows), rows)
        self._rows = rows
        self._names = tuple(names)
        self.schema = schema
        self._reader: Reader | None = None
        rows.refuse_empty()
        if rows.in_memory and numbers:
            self._reader = Reader(rows.features, schema, rows.missing)
            self._reader.open(self._names)
            self._count = len(self._reader)

    @property
    def known(self) -> bool:
        """Whether the number of rows is known."""
        return self._count is not None

    @property
    def pushed(self) -> Rows | None:
        """The rows, if a database sums them."""
        return None if self._rows.in_memory or not self._rows.features.pushes else self._rows

    def readers(self) -> Iterator[Reader]:
        """Yield all rows once, in blocks whose columns are checked."""
        if self._reader is not None:
            yield self._reader
            return
        seen_columns = set[str]()
        n = 0
        for frame in self.frames():
            reader = Reader(frame, self.schema, self._rows.missing, seen_levels=seen_columns)
            reader.open(self._names)
            yield reader
            n += len(reader)
        if n:
            check_levels(self.schema, self._names, seen_columns)
        self.counted(n)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield all rows once, as they are."""
        if self._rows.in_memory:
            yield as_frame(self._rows.features)
            return
        from privinf.mechanisms.reading import checked_blocks

        yield from checked_blocks(self._rows.features, self._names, self.schema or "guessed")


# ---- records, each with a message of its own


class RecordBlocks(Passes, Generic[T]):
    """Records of a table that need not fit in memory, for releases of one message per row.

    Parameters
    ----------
    design : Design
    rows : Rows
    columns : sequence of str
        Those that are read.
    encoded : callable (Rows, seen_levels=) -> T
        Makes of some rows what noise is for; `seen_levels` as for `encode`.
    whole : bool
        One block of all rows, in memory.
    numbers : callable (block) -> T, optional
        Makes the same of an array of checked numbers: the response, and the columns of the design.

    Notes
    -----
    **Privacy.** Reads every row once a pass; holds `READ_ROWS` of them, raw: not pickled and not shown.
    Blocks have that many rows, the last one fewer, whatever those of the source have.
    """

    __slots__ = ("_columns", "_design", "_encoded", "_encoded_blocks", "_names", "_numbers", "_rows")

    def __init__(
        self,
        design: Design,
        rows: Rows,
        columns: Sequence[str],
        encoded: Callable[..., T],
        *,
        whole: bool,
        numbers: Callable[[Floats], T] | None = None,
    ) -> None:
        refuse_dropping(rows.missing, EACH_ROW)
        refuse_unordered(rows, MESSAGES)
        rows.refuse_empty()
        super().__init__()
        self._encoded_blocks = list[T]()
        if whole:
            opened = rows.opened(columns, design.schema)
            self._encoded_blocks = [encoded(opened, seen_levels=None)]
            self.counted(len(opened))
        elif design.schema is not None and design.schema.unit is not None:
            raise NotAvailableError(
                "to= cannot be used with a schema that declares unit=: make the release in memory "
                "and write it with save(path)"
            )
        self._design = design
        self._rows = rows
        self._columns = columns
        self._encoded = encoded
        self._numbers = numbers
        self._names = numeric_names(design) if numbers is not None and design.constant == 0 else None

    def checked(self) -> RecordBlocks[T]:
        """Return itself once a pass has checked and counted all rows."""
        for _ in self._pass(lambda block: None) if self._count is None else ():
            pass
        return self

    def __iter__(self) -> Iterator[T]:
        """Yield the messages of each block.

        Raises
        ------
        SchemaError, AlignmentError
            As `encode`; the table has other rows than in the pass before.
        """
        yield from self._encoded_blocks or self._pass(self._numbers)

    def _pass(self, numbers: Callable[[Floats], Any] | None) -> Iterator[Any]:
        """Yield the results of each block; numbers were checked on reading."""
        seen_columns = set[str]()
        n = 0
        for part in self._parts():
            n += len(part)
            if numbers is not None and isinstance(part, np.ndarray):
                yield numbers(part)
            else:
                yield self._encoded(part, seen_levels=seen_columns)
        check_levels(self._design.schema, needed(self._design), seen_columns)
        check_enough(n, self._design)
        self.counted(n)

    def _parts(self) -> Iterator[Rows | Floats]:
        features = self._rows.features
        response = self._rows.response
        if isinstance(features, Source):
            from privinf.mechanisms.reading import evened

            blocks = _read(features, self._design, self._columns, self._names, READ_ROWS)
            for block in evened(blocks, self._names):
                yield block if isinstance(block, np.ndarray) else replace(self._rows, features=block)
            return
        for start in range(0, len(self._rows), READ_ROWS):
            part = slice(start, start + READ_ROWS)
            rows = features.iloc[part] if isinstance(features, pd.DataFrame) else features[part]
            yield replace(self._rows, features=rows, response=None if response is None else response[part])


def encoded_blocks(
    design: Design, rows: Rows, weights: str | None, *, whole: bool
) -> RecordBlocks[EncodedRows]:
    """Return the blocks of `encode`."""
    encode_part = partial(encode, design, weights=weights)
    return RecordBlocks(design, rows, needed(design, weights), encode_part, whole=whole)
