"""Passes over a holder's rows, block by block, checked as they are read; and what a pass sums.

Whoever sums over rows asks for `RowPasses.blocks` as often as it needs to: every pass yields all rows once,
in blocks that are views of arrays where that is possible. What is wrong with a row is found where it is
read, by the first pass, and told as `encode` tells it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.errors import AlignmentError, SchemaError
from privinf.mechanisms.rows import Rows, needed, observation_weights, response_of, unit_codes
from privinf.mechanisms.statistics.block import Args, SiteBlock
from privinf.mechanisms.statistics.gridded import MomentSums
from privinf.mechanisms.statistics.moments import MOMENT_OPS, MomentLayout
from privinf.mechanisms.statistics.ops import Reach, SiteOp
from privinf.mechanisms.sums import BLOCK_ROWS, FULL_SCALE
from privinf.schema import Design, Factor, Numeric
from privinf.schema.declared import DAYS
from privinf.schema.reading import NO_DECLARED_LEVEL
from privinf.typing import Floats


class RowPasses:
    """Rows of one holder as blocks of a design with a protected response.

    Parameters
    ----------
    design : Design
    rows : Rows
        Of a table that is not in memory every pass reads it. What can be read once and needs more passes, and
        tables in which a unit has several rows, are collected.
    weights : str, optional
        Column of public observation weights.
    passes : int
        How many sums there will be.

    Raises
    ------
    AlignmentError
        Lengths differ, there are fewer rows than coefficients, or a unit has more rows than declared; a table
        has another number of rows than in the pass before. Here, or by a pass.
    SchemaError
        As for `encode`; here, or by the first pass.

    Notes
    -----
    **Privacy.** Holds raw rows: never leaves the mechanisms, is not pickled and not shown.
    """

    __slots__ = ("_count", "_design", "_kept", "_names", "_plain", "_rows", "_seen", "_weights")

    def __init__(self, design: Design, rows: Rows, weights: str | None = None, *, passes: int = 1) -> None:
        self._design, self._weights = design, weights
        private = np.flatnonzero(design.private)
        together = private[-1] - private[0] == len(private) - 1
        self._kept = slice(int(private[0]), int(private[-1]) + 1) if together else private
        self._names = _numeric_names(design) if weights is None else None
        self._seen: set[str] = set()
        self._count: int | None = None
        self._plain = False
        schema = design.schema
        streamed = not rows.in_memory and rows.response is None and schema is not None and schema.unit is None
        if streamed and (rows.features.repeatable or passes + (not self._constant_alone) == 1):
            self._rows = rows
            return
        self._hold(rows.opened(needed(design, weights), design.schema))

    def _hold(self, rows: Rows) -> None:
        """Take rows that are in memory."""
        design = self._design
        features, response = rows.features, rows.response
        if not (
            isinstance(features, pd.DataFrame) or (isinstance(features, np.ndarray) and features.ndim == 2)
        ):
            features = design.released(features, missing=rows.missing)
        if response is not None and not isinstance(response, np.ndarray):
            response = response_of(design, rows)
        self._rows = Rows(features, response, rows.missing)
        n = len(features)
        if response is not None and response.shape[:1] != (n,):
            given = len(response_of(design, rows))
            raise AlignmentError(f"the response has {given} rows and the features have {n}")
        self._counted(n)
        unit_codes(design.schema, rows)
        self._plain = design.is_matrix(features) and isinstance(response, np.ndarray)
        self._plain = self._plain and self._weights is None
        self._plain = self._plain and response.dtype == np.float64 and response.ndim == 1

    @property
    def n(self) -> int:
        """Number of rows, once a pass has counted them."""
        assert self._count is not None
        return self._count

    def _counted(self, n: int) -> None:
        """Take the number of rows of a whole pass."""
        if self._count not in (None, n):
            raise AlignmentError("the table has other rows than when it was read first: start again")
        if n < (p := len(self._design.columns)):
            raise AlignmentError(f"{n} rows cannot identify {p} coefficients: the rows are too few")
        self._count = n

    def blocks(self) -> Iterator[SiteBlock]:
        """Yield all rows, at most 8,192 at a time: private columns, public ones beside them, in user units.

        A block is valid until the next one.

        Raises
        ------
        SchemaError
            A row is not what the design says. The message names the column and holds no value.
        """
        if self._rows.in_memory:
            for start in range(0, self.n, BLOCK_ROWS):
                yield self._block(*self._read(slice(start, start + BLOCK_ROWS)), start)
            return
        start = 0
        for part in self._parts():
            if isinstance(part, np.ndarray):
                yield self._of_numbers(part, start)
            else:
                yield self._block(*self._evaluated(part, None, self._seen), start)
            start += len(part)
        self._counted(start)
        self._check_levels()

    def _parts(self) -> Iterator[Floats | pd.DataFrame]:
        """Yield the rows of a table that is read anew: arrays of its numbers, or frames."""
        from privinf.mechanisms.reading import checked_blocks, number_blocks

        source, schema = self._rows.features, self._design.schema
        assert schema is not None
        if self._names is not None:
            blocks = number_blocks(source, self._names, schema, BLOCK_ROWS)
        else:
            blocks = checked_blocks(source, needed(self._design, self._weights), schema)
        for block in blocks:
            for start in range(0, len(block), BLOCK_ROWS):
                part = slice(start, start + BLOCK_ROWS)
                yield block[part] if isinstance(block, np.ndarray) else block.iloc[part]

    def _of_numbers(self, numbers: Floats, start: int) -> SiteBlock:
        """Return response and private columns, as `_names` orders them, with the constant beside them."""
        return self._site_block(numbers[:, 1:], numbers[:, 0], np.ones((len(numbers), 1)), None, start)

    def _block(self, matrix: Floats, response: Floats, weights: Floats | None, start: int) -> SiteBlock:
        clear = ~self._design.private
        public = matrix[:, clear] if clear.any() else None
        return self._site_block(matrix[:, self._kept], response, public, weights, start)

    def _site_block(
        self, x: Floats, y: Floats, clear: Floats | None, weights: Floats | None, start: int
    ) -> SiteBlock:
        design = self._design
        assert design.y_low is not None
        assert design.y_high is not None
        return SiteBlock(
            x, y, design.low[self._kept], design.high[self._kept], design.y_low, design.y_high, start,
            clear=clear, weights=weights, finite=True,
        )  # fmt: skip

    def _check_levels(self) -> None:
        """Refuse a factor of whose declared levels no part of the table had any."""
        schema = self._design.schema
        assert schema is not None
        for name in needed(self._design):
            declared = schema[name]
            if isinstance(declared, Factor) and declared.other is not None and name not in self._seen:
                raise SchemaError(NO_DECLARED_LEVEL.format(name))

    def _read(self, part: slice) -> tuple[Floats, Floats, Floats | None]:
        """Return matrix, response and weights of some rows: views of the holder's arrays where they do."""
        X, y = self._rows.features, self._rows.response
        if self._plain and _finite(matrix := X[part]) and _finite(y[part]):
            return self._with_ones(matrix), y[part], None
        taken = X.iloc[part] if isinstance(X, pd.DataFrame) else X[part]
        return self._evaluated(taken, None if y is None else y[part], None)

    def _evaluated(
        self, table: Floats | pd.DataFrame, y: Floats | None, seen: set[str] | None
    ) -> tuple[Floats, Floats, Floats | None]:
        """Return matrix, response and weights of some rows."""
        design, rows = self._design, Rows(table, y, self._rows.missing)
        matrix = self._with_ones(design.released(table, missing=rows.missing, seen=seen))
        return matrix, response_of(design, rows, seen), observation_weights(design, rows, self._weights)

    def _with_ones(self, matrix: Floats) -> Floats:
        """Return the matrix, whose declared constant is one."""
        constant = self._design.constant
        if constant is not None and not (matrix[:, constant] == 1.0).all():
            name = self._design.names[constant]
            raise SchemaError(f"column {name!r} is declared as the constant but is not all ones")
        return matrix

    @property
    def _constant_alone(self) -> bool:
        """Whether no column is public but the constant."""
        return int((~self._design.private).sum()) == (self._design.constant is not None)

    def public_sizes(self) -> tuple[Floats, float]:
        """Return the largest size of each public column, and of their rows on the grid the squared norm.

        A constant alone is known without a look. Others are public as they are; rounding them to the grid
        lengthens a row by half a unit of each at most.
        """
        public = np.flatnonzero(~self._design.private)
        if self._constant_alone:
            return np.ones(len(public)), float(len(public))
        reach, norm2 = np.zeros(len(public)), 0.0
        for block in self.blocks():
            assert block.clear is not None
            reach = np.maximum(reach, np.abs(block.clear).max(axis=0))
            norm2 = max(norm2, float(np.einsum("ij,ij->i", block.clear, block.clear).max()))
        reach[reach == 0.0] = 1.0
        rounding = 0.5 * np.linalg.norm(reach[public != self._design.constant]) / FULL_SCALE
        return reach, float((np.sqrt(norm2) + rounding) ** 2)

    def __repr__(self) -> str:
        return "<RowPasses, rows not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("raw rows are not pickled: pickle the release or the result instead")


def _numeric_names(design: Design) -> list[str] | None:
    """Return response and private columns where each is a column of numbers as it is; None elsewhere."""
    schema, columns = design.schema, [design.outcome.column]
    columns += [column for column, private in zip(design.columns, design.private, strict=True) if private]
    alone = int((~design.private).sum()) == (design.constant is not None) == 1
    if schema is None or not alone or not all(column.plain for column in columns):
        return None
    names = [column.inputs[0] for column in columns]
    declared = [schema[name] for name in names if name in schema]
    numbers = [one for one in declared if isinstance(one, Numeric) and one.unit != DAYS]
    return names if len(numbers) == len(set(names)) == len(names) else None


def _finite(values: Floats) -> bool:
    """Whether all are finite; False also for numbers so large that their sum is not."""
    return bool(np.isfinite(values.sum()))


class PlainSums:
    """A statistic's sum over blocks in doubles, for fits without noise."""

    __slots__ = ("_args", "_op", "_total", "public")

    def __init__(self, op: SiteOp, args: Args, reach: Reach) -> None:
        self._op, self._args, self._total = op, args, np.zeros(reach.shape)
        self.public = np.zeros([int(args["public"])] * 2)

    def update(self, block: SiteBlock) -> None:
        """Add rows."""
        with np.errstate(all="ignore"):
            self._total += self._op.function(block, self._args)
        if block.clear is not None:
            clear = block.clear if block.weights is None else block.clear * block.weights[:, None]
            self.public += block.clear.T @ clear

    def floats(self) -> Floats:
        """Return the sum."""
        return self._total


@dataclass(frozen=True, slots=True)
class OwnSum:
    """A sum of a statistic over the holder's own rows, and how far one person can move it.

    What only the holder may say of its rows stands among `args`; `label` is for the ledger.
    """

    op: SiteOp
    label: str
    args: Args
    reach: Reach

    @classmethod
    def of(cls, name: str, label: str, args: Args, layout: MomentLayout) -> OwnSum:
        """Return the question to one of `MOMENT_OPS`; checks the arguments."""
        op = MOMENT_OPS[name]
        return cls(op, label, args, op.reach(args, layout.private, own=True))

    def over(self, passes: RowPasses, *, exact: bool) -> MomentSums | PlainSums:
        """Return the sum over all rows, of records on their grid or, for no noise, in doubles.

        Raises SchemaError for rows that are not what the design says.
        """
        sums: MomentSums | PlainSums | None = None
        for block in passes.blocks():
            if sums is None:
                sums = self.sums(block) if exact else PlainSums(self.op, self.args, self.reach)
            sums.update(block)
        assert sums is not None  # there are at least as many rows as coefficients
        return sums

    def sums(self, block: SiteBlock) -> MomentSums:
        """Return an empty exact accumulator for blocks like this one, whose rows are not read."""
        assert self.op.sums is not None
        sums = self.op.sums(block, self.args)
        assert isinstance(sums, MomentSums)
        return sums
