"""The largest public columns that a first pass over rows has seen, to which later passes are held.

A sensitivity that counts on them holds for no row beyond them. Rows may come in any order, and others below
them may come too: what a query gives need not be the same rows in every pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privinf.errors import AlignmentError
from privinf.typing import Floats

ROWS_BEYOND = (
    "the table has changed since it was first read: some values of public columns are larger "
    "than the maximum of the first reading. Start again with a table that nobody writes to"
)


@dataclass(frozen=True, slots=True)
class PublicSizes:
    """Largest absolute value of each public column, and largest squared norm of a row of them.

    Norms are added up column by column, so that equal rows have equal norms in every block.

    Attributes
    ----------
    columns : ndarray, shape (k,)
    norm2 : float
    """

    columns: Floats
    norm2: float

    @classmethod
    def from_array(cls, public: Floats) -> PublicSizes:
        """Return the sizes of some rows, shape (n, k)."""
        norms = np.zeros(len(public))
        for column in public.T:
            norms += column * column
        return cls(np.abs(public).max(axis=0, initial=0.0), float(norms.max(initial=0.0)))

    def joined(self, other: PublicSizes) -> PublicSizes:
        """Return the sizes of the rows of both."""
        return PublicSizes(np.maximum(self.columns, other.columns), max(self.norm2, other.norm2))

    def check(self, public: Floats) -> None:
        """Raise AlignmentError if one of some rows, shape (n, k), is larger."""
        sizes = PublicSizes.from_array(public)
        if sizes.norm2 > self.norm2 or (sizes.columns > self.columns).any():
            raise AlignmentError(ROWS_BEYOND)
