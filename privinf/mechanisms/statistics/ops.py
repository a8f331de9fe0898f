"""Per-record statistics: named functions of a block of rows, with the sensitivity to one record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from privinf.accounting.scopes import scope_component
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, SensitivityError
from privinf.mechanisms.statistics.block import (
    Args,
    SiteBlock,
    blocks_of,
    check_bits,
    check_common,
    check_sizes,
    clip_norms,
    cut,
    digits,
    made_finite,
    positive,
    unit_of,
    whole_number,
    with_constant,
)
from privinf.mechanisms.statistics.places import BatchDigests, BatchPass
from privinf.typing import Floats, Integers, Relation
from privinf.wire import Derivations, Places

T = TypeVar("T")

# Arguments of statistics of columns and residuals, each of which may take some.
COMMON = ("center", "scale", "intercept", "response", "support", "beta", "bits")
# Of statistics of residuals: numbers of sites, and what is added to the intercept at each of them.
CONSTANTS = ("streams", "intercepts")
# Of statistics with sites as units: number of rows of a site, and clipping threshold of its total.
CLIENTS = ("client_rows", "client_clip")
# Numbers that one sum may hold.
MOST_NUMBERS = 1 << 24
# Rounding of a sum of doubles, in shares of its bound.
SUM_ROUNDING = 1e-9
# Digits below a record's largest entry to which an exact sum is rounded at a site: sums over more than 268
# million rows have fewer, and are charged for it.
SUM_DIGITS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSensitivity:
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
        Largest l2 norm of one record's contribution: the change of the sum if it contributes nothing. None
        where that is not derived.
    unit : {"record", "client"}
        Replaced unit: a record, or all records of a site together.
    entry : float
        Largest absolute entry of one record, whose digits a sum over a site has; 0: `bound` is that.
    """

    shape: tuple[int, ...]
    l2: float
    linf: float
    bound: float
    derivation: str
    norm: float | None = None
    unit: str = "record"
    entry: float = 0.0

    def units(self, rows: int) -> int:
        """Return the number of units of a site by its number of rows."""
        return 1 if self.unit == "client" else rows

    def largest_sum(self, rows: Iterable[int]) -> float:
        """Return the largest size of an entry of a sum over sites with so many rows each."""
        return sum(map(self.units, rows)) * self.bound

    def of_clients(self, rows: int, clip: float) -> RecordSensitivity:
        """Return the sensitivity if the unit is a site of at most `rows` records.

        Replacing a site replaces its records one after the other; and two totals in a ball of radius C are
        at most 2C apart.
        """
        norm = None if self.norm is None else min(rows * self.norm, clip)
        derivation = Derivations.OF_SITE.format(rows=rows, derivation=self.derivation)
        if 2.0 * clip < rows * self.l2:
            derivation = Derivations.CLIPPED_SITE.format(clip=clip)
        return RecordSensitivity(
            shape=self.shape,
            l2=min(rows * self.l2, 2.0 * clip),
            linf=min(rows * self.linf, 2.0 * clip),
            bound=min(rows * self.bound, clip),
            derivation=derivation,
            norm=norm,
            unit="client",
            entry=self.bound,
        )

    def times(self, factor: float) -> RecordSensitivity:
        """Return the sensitivity if the unit has several records, or weighted records."""
        return replace(
            self,
            l2=self.l2 * factor,
            linf=self.linf * factor,
            bound=self.bound * factor,
            norm=None if self.norm is None else self.norm * factor,
        )

    def sensitivity(self, relation: Relation) -> float:
        """Return the l2 sensitivity under a neighboring relation.

        Raises
        ------
        NotAvailableError
            It is not derived.
        """
        if relation == "replace-one":
            return self.l2
        if relation == "zero-out" and self.norm is not None:
            return self.norm
        raise NotAvailableError(
            f"the sensitivity of this statistic is not available for the neighboring relation {relation!r}; "
            "use 'replace-one'"
        )

    def rounded(self, bits: int) -> RecordSensitivity:
        """Return the sensitivity of a sum rounded to a number of digits below a record's largest entry."""
        unit = unit_of(self.bound, bits)
        apart = unit * math.sqrt(self.size)
        return replace(
            self,
            l2=self.l2 + apart,
            linf=min(self.linf + unit, self.l2 + apart),
            norm=None if self.norm is None else self.norm + apart,
        )

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


class Accumulator(Protocol):
    """An exact sum of a statistic over blocks of rows, in any order; see `privinf.mechanisms.sums`."""

    def update(self, block: SiteBlock) -> None:
        """Add rows."""

    def steps(self, grid: float) -> Integers:
        """Return the sum in steps of a grid, each entry rounded once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOp:
    """A statistic that a site may be queried for.

    Attributes
    ----------
    name : str
    function : callable (block, args) -> ndarray
        The sum over the block; a function of the rows, one at a time, and of public arguments.
    sensitivity : callable (args, columns) -> RecordSensitivity
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
    own : tuple of str
        More names that `args` may hold where a holder queries its rows in its own process. They state
        facts about these rows, which nobody checks, so that no query of others may hold them.
    sums : callable (block, args) -> Accumulator, optional
        The exact sum of records on their grid, for the bounds of a block whose rows are not read. Without it
        `function` cuts to the requested digits.
    aligned : bool
        Whether the numbers of a record are whole steps of the requested digits, so that the exact sum is not
        rounded to them and its sensitivity is that of the records alone.

    Notes
    -----
    **Privacy.** `total` reads every row and returns an un-noised sum: it never leaves the mechanisms and a
    site that trusts the server.
    """

    name: str
    function: Callable[[SiteBlock, Args], Floats]
    sensitivity: Callable[[Args, int], RecordSensitivity]
    arguments: tuple[str, ...]
    version: int = 1
    wide: bool = False
    partition: Callable[[Args], tuple[str, str] | None] | None = None
    own: tuple[str, ...] = ()
    sums: Callable[[SiteBlock, Args], Accumulator] | None = None
    aligned: bool = False

    def scope(self, args: Args, site: str) -> tuple[str, ...]:
        """Return the scope of a release in the ledger of one site: sums over other classes are parallel.

        Partitions are drawn by the site's name, and so named after it. A site as a whole is in every class.
        """
        part = self.part(args)
        return (
            ()
            if part is None
            else (scope_component(part[1], Places.AT_SITE.format(partition=part[0], site=site)),)
        )

    def part(self, args: Args) -> tuple[str, str] | None:
        """Return the names of a partition by the places of records, and of the class that the sum is over.

        None where the sum is over all records, or where sites as a whole, which are in every class, pay.
        """
        return None if self.partition is None or "client_rows" in args else self.partition(args)

    def batch_pass(self, args: Args, digests: BatchDigests) -> BatchPass | None:
        """Return the check that a batch has the rows of the first pass; None for sums over all rows."""
        part = self.part(args)
        return None if part is None else digests.batch(part[0], int(args["batches"]), int(part[1]))

    def record_sensitivity(
        self, args: Args, columns: int, rows: int = 0, *, own: bool = False
    ) -> RecordSensitivity:
        """Return how far one record, or one site of `rows` records, can move the sum; checks `args`.

        `own` marks a query of the holder itself in its own process; a site never sets it for others.

        Raises
        ------
        ArgumentError
            An argument is missing, unknown, of the wrong shape or out of range; the sum would be too long;
            the site has more rows than are counted for one.
        """
        unknown = sorted(set(args) - {*self.arguments, *(self.own if own else ())})
        if refused := [name for name in unknown if name in self.own]:
            named = f"argument{'s' * (len(refused) > 1)} {', '.join(map(repr, refused))}"
            raise ArgumentError(
                f"statistic {self.name!r}: only the site that holds the rows may set the {named}; "
                f"omit {'it' if len(refused) == 1 else 'them'} from the query"
            )
        if unknown:
            raise ArgumentError(f"statistic {self.name!r} has no argument {' or '.join(map(repr, unknown))}")
        return self._tried(lambda: self._record_sensitivity(args, columns, rows))

    def _record_sensitivity(self, args: Args, columns: int, rows: int) -> RecordSensitivity:
        check_sizes(args)
        check_common(args, columns)
        record_sensitivity = self.sensitivity(args, columns)
        if self.sums is not None and not self.aligned and "public" not in args:
            record_sensitivity = record_sensitivity.rounded(
                min(whole_number(args, "bits", default=0) or SUM_DIGITS, SUM_DIGITS)
            )
        if record_sensitivity.size > MOST_NUMBERS:
            raise ArgumentError(f"the query would return more than {MOST_NUMBERS} numbers: use fewer columns")
        if "client_rows" not in args:
            if "client_clip" in args:
                raise ArgumentError(
                    "the arguments 'client_clip' and 'client_rows' of the statistic belong together: pass "
                    "both or neither"
                )
            return record_sensitivity
        client_rows = whole_number(args, "client_rows", minimum=max(rows, 1))
        return record_sensitivity.of_clients(
            client_rows, positive(args, "client_clip") if "client_clip" in args else math.inf
        )

    def checked(
        self, args: Args, public: SiteBlock, rows: int, *, bounded: bool = False
    ) -> RecordSensitivity:
        """Return the sensitivity of a query that `total` will answer, whatever the site's rows contain.

        In addition to the arguments, the digits are checked for the number of rows and the
        statistic is computed once on simulated rows, so that whatever it could raise for its arguments is
        raised here.

        Parameters
        ----------
        args : mapping
        public : SiteBlock
            Simulated rows within the public bounds (`block.made_up`).
        rows : int
            Number of the site's rows.
        bounded : bool
            Whether the sum will be rounded to integers, so that the simulated rows must keep to the bound.

        Raises
        ------
        ArgumentError, SensitivityError
            The arguments do not fit the statistic, its columns or the number of rows; the message is a
            function of public numbers.
        """
        record_sensitivity = self.record_sensitivity(args, public.features.shape[1], rows)
        check_bits(args, rows)
        with np.errstate(all="ignore"):
            total = self._tried(
                lambda: clipped_total(self._sum(public, args, record_sensitivity).ravel(), args)
            )
        if total.size != record_sensitivity.size:
            raise ArgumentError(
                f"the computation of {self.name!r} failed, because the sum does not have the declared length"
            )
        if (
            bounded
            and not (np.abs(total) <= len(public) * record_sensitivity.bound * (1.0 + SUM_ROUNDING)).all()
        ):
            raise SensitivityError(
                f"the sum of statistic {self.name!r} exceeds its declared bound on simulated rows, so "
                "nothing was sent: check the arguments of the statistic"
            )
        return record_sensitivity

    def _tried(self, function: Callable[[], T]) -> T:
        """Return the result of a function of public numbers; its errors become errors of this package."""
        try:
            return function()
        except PrivinfError as error:
            problem = type(error)(str(error))
        except Exception as error:
            problem = ArgumentError(
                f"statistic {self.name!r} cannot be computed with these arguments "
                f"({type(error).__name__}): check their types and shapes"
            )
        raise problem

    def total(
        self, rows: SiteBlock, args: Args, record_sensitivity: RecordSensitivity | None = None
    ) -> Floats:
        """Return the sum over all rows, block by block; finite for any rows.

        Raises only errors of `checked` about the arguments, and none with the sensitivity that it returned.
        """
        record_sensitivity = (
            self.record_sensitivity(args, rows.features.shape[1])
            if record_sensitivity is None
            else record_sensitivity
        )
        check_bits(args, len(rows))
        args = with_constant(args, rows.stream)
        with np.errstate(all="ignore"):
            total = made_finite(clipped_total(self._sum(rows, args, record_sensitivity), args))
        return total.reshape(record_sensitivity.shape)

    def rounded(
        self, sums: Accumulator, args: Args, record_sensitivity: RecordSensitivity, rows: int
    ) -> Floats:
        """Return an exact sum over rows, rounded to digits of a record's entry and kept within its range."""
        unit = unit_of(entry := record_sensitivity.entry or record_sensitivity.bound, digits(args)[0])
        largest_step = math.floor(rows * entry / unit)
        return np.asarray(np.clip(sums.steps(unit), -largest_step, largest_step) * unit, dtype=np.float64)

    def _sum(self, rows: SiteBlock, args: Args, record_sensitivity: RecordSensitivity) -> Floats:
        if self.sums is not None and digits(args)[0]:
            sums = self.sums(rows, args)
            sums.update(rows)
            return self.rounded(sums, args, record_sensitivity, len(rows))
        total = np.zeros(record_sensitivity.size)
        for block in blocks_of(rows, wide=self.wide, draws=int(args.get("draws", 0))):
            total += self.function(block, args).ravel()
        return total


class PlainSums:
    """A statistic's sum over blocks in doubles, for fits without noise."""

    __slots__ = ("_args", "_op", "_total", "public")

    def __init__(self, op: SiteOp, args: Args, record_sensitivity: RecordSensitivity) -> None:
        self._op = op
        self._args = args
        self._total = np.zeros(record_sensitivity.shape)
        self.public = np.zeros([int(args.get("public", 0))] * 2)

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

    def steps(self, grid: float) -> Integers:
        """Return the sum in steps of a grid."""
        return np.rint(self._total / grid).astype(np.int64)


def clipped_total(total: Floats, args: Args) -> Floats:
    """Return a site's total; on request shrunk to the norm `client_clip` and cut to the digits."""
    if "client_clip" not in args:
        return total
    clip = float(args["client_clip"])
    steps, unit = cut(clip_norms(total[None, :].copy(), clip), unit_of(clip, digits(args)[0]))
    return np.asarray(steps[0] * unit)


def named(*ops: SiteOp) -> dict[str, SiteOp]:
    """Return the ops by name."""
    return {op.name: op for op in ops}
