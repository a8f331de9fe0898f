"""What a per-record statistic is: a named function of a block of rows, and how far one record can move it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privinf.accounting.scopes import scope_component
from privinf.errors import ArgumentError, NotAvailableError
from privinf.mechanisms.site_rows import Args, SiteBlock, blocks_of, check_bits, check_common
from privinf.typing import Floats, Relation

COMMON = ("center", "scale", "intercept", "support", "beta", "bits")


@dataclass(frozen=True, slots=True)
class Reach:
    """How far replacing one record can move a sum.

    Attributes
    ----------
    shape : tuple of int
        Shape of the sum.
    l2, linf : float
        Replace-one sensitivities of the whole sum and of its entries.
    bound : float
        Largest absolute entry that one record can add.
    derivation : str
    norm : float or None
        Largest l2 norm of what one record adds: how far the sum moves if it contributes nothing. None where
        that is not derived.
    """

    shape: tuple[int, ...]
    l2: float
    linf: float
    bound: float
    derivation: str
    norm: float | None = None

    def sensitivity(self, relation: Relation) -> float:
        """Return the l2 sensitivity under a neighbouring relation.

        Raises
        ------
        NotAvailableError
            It is not derived.
        """
        if relation == "replace-one":
            return self.l2
        if relation == "zero-out" and self.norm is not None:
            return self.norm
        raise NotAvailableError(f"no sensitivity of this statistic under the relation {relation!r} is known")

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @classmethod
    def box(cls, shape: tuple[int, ...], bound: float, derivation: str) -> Reach:
        """Return the reach of vectors with every entry in [-bound, bound]."""
        norm = bound * math.sqrt(math.prod(shape))
        return cls(shape, 2.0 * norm, 2.0 * bound, bound, derivation, norm)

    @classmethod
    def positive_box(cls, shape: tuple[int, ...], bound: float, derivation: str) -> Reach:
        """Return the reach of vectors with every entry in [0, bound]."""
        norm = bound * math.sqrt(math.prod(shape))
        return cls(shape, norm, bound, bound, derivation, norm)

    @classmethod
    def ball(cls, shape: tuple[int, ...], radius: float, derivation: str) -> Reach:
        """Return the reach of vectors of norm at most `radius`."""
        return cls(shape, 2.0 * radius, 2.0 * radius, radius, derivation, radius)


@dataclass(frozen=True, slots=True)
class SiteOp:
    """A statistic that a site may be asked for.

    Attributes
    ----------
    name : str
    function : callable (block, args) -> ndarray
        The sum over the block; a function of the rows, one at a time, and of public arguments.
    sensitivity : callable (args, columns) -> Reach
        Exact replace-one sensitivity of the sum; checks the arguments.
    arguments : tuple of str
        Names that `args` may hold: plain arrays, numbers and texts.
    version : int
        Raised whenever `function` or `sensitivity` changes.
    wide : bool
        Whether it works on all columns number by number, which is faster in small blocks.
    partition : callable (args) -> (str, str) or None, optional
        Name of a public partition of the records of one site, and of the class that the sum is over; None
        where it is over all.

    Notes
    -----
    **Privacy.** `total` reads every row and returns an un-noised sum: it never leaves the mechanisms and a
    site that trusts the server.
    """

    name: str
    function: Callable[[SiteBlock, Args], Floats]
    sensitivity: Callable[[Args, int], Reach]
    arguments: tuple[str, ...]
    version: int = 1
    wide: bool = False
    partition: Callable[[Args], tuple[str, str] | None] | None = None

    def scope(self, args: Args, site: str) -> tuple[str, ...]:
        """Return the scope of a release in the ledger of one site: sums over other classes are parallel.

        Partitions are drawn by the site's name, and so named after it.
        """
        found = None if self.partition is None else self.partition(args)
        return () if found is None else (scope_component(found[1], f"{found[0]} at {site}"),)

    def reach(self, args: Args, columns: int) -> Reach:
        """Return how far one of the records can move the sum, after checking `args`.

        Raises
        ------
        ArgumentError
            An argument is missing, unknown, of the wrong shape or out of range.
        """
        unknown = sorted(set(args) - set(self.arguments))
        if unknown:
            raise ArgumentError(f"{self.name} takes no argument {', '.join(map(repr, unknown))}")
        check_common(args, columns)
        return self.sensitivity(args, columns)

    def total(self, rows: SiteBlock, args: Args) -> Floats:
        """Return the sum over all rows, block by block."""
        reach = self.reach(args, rows.features.shape[1])
        check_bits(args, len(rows))
        total = np.zeros(reach.size)
        for block in blocks_of(rows, wide=self.wide):
            total += self.function(block, args).ravel()
        return total.reshape(reach.shape)


def named(*ops: SiteOp) -> dict[str, SiteOp]:
    """Return the ops by name."""
    return {op.name: op for op in ops}
