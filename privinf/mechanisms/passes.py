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
from privinf.schema import Design
from privinf.typing import Floats


class RowPasses:
    """Rows of one holder as blocks of a design with a protected response.

    Parameters
    ----------
    design : Design
    rows : Rows
    weights : str, optional
        Column of public observation weights.

    Attributes
    ----------
    n : int
        Number of rows.

    Raises
    ------
    AlignmentError
        Lengths differ, there are fewer rows than coefficients, or a unit has more rows than declared.
    SchemaError
        As for `encode`; here, or by the first pass.

    Notes
    -----
    **Privacy.** Holds raw rows: never leaves the mechanisms, is not pickled and not shown.
    """

    __slots__ = ("_design", "_kept", "_plain", "_rows", "_weights", "n")

    def __init__(self, design: Design, rows: Rows, weights: str | None = None) -> None:
        rows = rows.opened(needed(design, weights), design.schema)
        features, response = rows.features, rows.response
        if not (
            isinstance(features, pd.DataFrame) or (isinstance(features, np.ndarray) and features.ndim == 2)
        ):
            features = design.released(features, missing=rows.missing)
        if response is not None and not isinstance(response, np.ndarray):
            response = response_of(design, rows)
        self._design, self._rows, self._weights = design, Rows(features, response, rows.missing), weights
        self.n, p = len(features), len(design.columns)
        if response is not None and response.shape[:1] != (self.n,):
            given = len(response_of(design, rows))
            raise AlignmentError(f"the response has {given} rows and the features have {self.n}")
        if self.n < p:
            raise AlignmentError(f"{self.n} rows cannot identify {p} coefficients: the rows are too few")
        unit_codes(design.schema, rows)
        private = np.flatnonzero(design.private)
        self._plain = design.is_matrix(features) and isinstance(response, np.ndarray) and weights is None
        self._plain = self._plain and response.dtype == np.float64 and response.ndim == 1
        together = private[-1] - private[0] == len(private) - 1
        self._kept = slice(int(private[0]), int(private[-1]) + 1) if together else private

    def blocks(self) -> Iterator[SiteBlock]:
        """Yield all rows, at most 8,192 at a time: private columns, public ones beside them, in user units.

        Raises
        ------
        SchemaError
            A row is not what the design says. The message names the column and holds no value.
        """
        design = self._design
        low, high, clear = design.low[self._kept], design.high[self._kept], ~design.private
        public = bool(clear.any())
        assert design.y_low is not None
        assert design.y_high is not None
        for start in range(0, self.n, BLOCK_ROWS):
            matrix, response, weights = self._read(slice(start, start + BLOCK_ROWS))
            yield SiteBlock(
                matrix[:, self._kept], response, low, high, design.y_low, design.y_high, start,
                clear=matrix[:, clear] if public else None, weights=weights, finite=True,
            )  # fmt: skip

    def _read(self, part: slice) -> tuple[Floats, Floats, Floats | None]:
        """Return matrix, response and weights of some rows: views of the holder's arrays where they do."""
        design, X, y = self._design, self._rows.features, self._rows.response
        if self._plain and _finite(matrix := X[part]) and _finite(y[part]):
            return self._with_ones(matrix), y[part], None
        taken = X.iloc[part] if isinstance(X, pd.DataFrame) else X[part]
        rows = Rows(taken, None if y is None else y[part], self._rows.missing)
        matrix = self._with_ones(design.released(taken, missing=rows.missing))
        return matrix, response_of(design, rows), observation_weights(design, rows, self._weights)

    def _with_ones(self, matrix: Floats) -> Floats:
        """Return the matrix, whose declared constant is one."""
        constant = self._design.constant
        if constant is not None and not (matrix[:, constant] == 1.0).all():
            name = self._design.names[constant]
            raise SchemaError(f"column {name!r} is declared as the constant but is not all ones")
        return matrix

    def public_sizes(self) -> tuple[Floats, float]:
        """Return the largest size of each public column, and of their rows on the grid the squared norm.

        A constant alone is known without a look. Others are public as they are; rounding them to the grid
        lengthens a row by half a unit of each at most.
        """
        public = np.flatnonzero(~self._design.private)
        if len(public) == (self._design.constant is not None):
            return np.ones(len(public)), float(len(public))
        reach, norm2 = np.zeros(len(public)), 0.0
        for block in self.blocks():
            assert block.clear is not None
            reach = np.maximum(reach, np.abs(block.clear).max(axis=0))
            norm2 = max(norm2, float(np.einsum("ij,ij->i", block.clear, block.clear).max()))
        reach[reach == 0.0] = 1.0
        rounding = 0.5 * np.linalg.norm(reach[public != self._design.constant]) / FULL_SCALE
        return reach, float((np.sqrt(norm2) + rounding) ** 2)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"<RowPasses over {self.n} rows, not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("raw rows are not pickled: pickle the release or the result instead")


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
