"""A site's rows, block by block, and the clips that bound a record's contribution to a sum.

Sums that will be noised by a secure source are made exact: every record's number is cut (toward zero, so
that no clip is passed) to ``bits`` binary digits below its bound, and sums of such numbers have no rounding
at all as long as n 2^bits <= 2^53. Neither the order of the records nor the size of the blocks can move them.
The factors of a product get half of the digits each; at so few digits they are rounded to the nearest, and
clips of norms leave room for that.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.opened import OpenedRows
from privinf.mechanisms.statistics.places import COPIED_BYTES, BatchPass
from privinf.mechanisms.sums import EXACT_BITS
from privinf.schema import Design
from privinf.typing import Flags, Floats, Integers
from privinf.validation import check_array, check_number, even_parts

Args: TypeAlias = Mapping[str, Any]

ENTRIES = 1 << 18  # numbers a block: a copy of it stays in the cache where all columns are worked on
NARROW_ENTRIES = 1 << 21  # numbers a block where a few columns are multiplied: larger products are better
# Size of arguments, columns in their units and responses: no product in a statistic passes 1e300.
LARGEST = 1e30
SMALLEST = 1e-30  # least positive argument: no clip falls below the smallest double that is not zero
SEEDS = frozenset({"seed", "probe_seed"})  # arguments that may pass LARGEST


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class SiteBlock:
    """Some consecutive rows of one site, with the public bounds of its columns.

    Attributes
    ----------
    features : ndarray, shape (rows, p)
        As the site holds them: a view, never copied as a whole.
    response : ndarray, shape (rows,)
    low, high : ndarray, shape (p,)
        Public bounds; infinite where there are none.
    response_low, response_high : float
    start : int
        Position of the first row at the site.
    stream : int
        Which public random numbers are the site's: see `stream_of`.
    clear : ndarray, shape (rows, k), or None
        Public columns, which the holder publishes as they are, in addition to the features.
    weights : ndarray, shape (rows,), or None
        Public observation weights. Only sums that a holder makes in its own process have these two.
    ordered : bool
        Whether the rows have places of their own, by which public random numbers go.
    finite : bool
        Whether all numbers are known to be finite.
    units : ndarray, shape (rows,), or None
        Unit of each row, rows of one unit adjacent; None: every row is a unit.
    lent : bool
        Whether the arrays are the caller's own and can change.
    batch : BatchPass or None
        Selects the rows of a batch, and checks that they are those of the first pass.
    inputs : ndarray, shape (rows, m), or None
        Whether an input of derived columns (`Design.clipped_inputs`) lies outside its bounds.
    """

    features: Floats
    response: Floats
    low: Floats
    high: Floats
    response_low: float
    response_high: float
    start: int = 0
    stream: int = 0
    clear: Floats | None = None
    weights: Floats | None = None
    ordered: bool = True
    finite: bool = False
    units: Integers | None = None
    lent: bool = False
    batch: BatchPass | None = None
    inputs: Flags | None = None

    @classmethod
    def from_rows(cls, design: Design, rows: OpenedRows) -> SiteBlock:
        """Return all rows of a site by a design whose response has bounds."""
        assert design.y_low is not None
        assert design.y_high is not None
        return cls(
            features=rows.matrix(design),
            response=rows.response(design),
            low=design.low,
            high=design.high,
            response_low=design.y_low,
            response_high=design.y_high,
            ordered=rows.ordered,
            lent=rows.lends,
            inputs=rows.inputs_outside(design),
        )

    def owned(self) -> SiteBlock:
        """Return the same rows as private copies; large arrays stay `lent`."""
        if not self.lent or self.features.nbytes + self.response.nbytes >= COPIED_BYTES:
            return self
        return replace(self, features=np.array(self.features), response=np.array(self.response), lent=False)

    def __len__(self) -> int:
        return len(self.response)

    def __reduce__(self) -> Any:
        raise TypeError("a site's rows cannot be pickled")

    def parts(self, rows: int) -> Iterator[SiteBlock]:
        """Cut the rows into even blocks of limited size."""
        if len(self) <= rows:
            yield self
            return
        for part in even_parts(len(self), rows):
            yield SiteBlock(
                features=self.features[part],
                response=self.response[part],
                low=self.low,
                high=self.high,
                response_low=self.response_low,
                response_high=self.response_high,
                start=self.start + part.start,
                stream=self.stream,
                clear=None if self.clear is None else self.clear[part],
                weights=None if self.weights is None else self.weights[part],
                ordered=self.ordered,
                finite=self.finite,
                units=None if self.units is None else self.units[part],
                lent=self.lent,
                batch=self.batch,
                inputs=None if self.inputs is None else self.inputs[part],
            )

    def columns(self, args: Args, chosen: Integers | slice | None = None) -> Floats:
        """Return (clip(x, low, high) - center) / scale of all or some columns, a fresh array.

        What passes `LARGEST`, as only columns without bounds can, stops there.
        """
        index = slice(None) if chosen is None else chosen
        x = self.features[:, index]
        fresh = (
            isinstance(chosen, np.ndarray) and x.dtype == np.float64
        )  # a copy: another one costs as much again
        x = np.maximum(x, self.low[index], out=x if fresh else None)  # np.clip is slow with arrays of bounds
        np.minimum(x, self.high[index], out=x)
        if (center := args.get("center")) is not None:
            x -= np.asarray(center)[index]
        if (scale := args.get("scale")) is not None:
            x *= 1.0 / np.asarray(scale)[index]
        if not self._largest_value(args, index) <= LARGEST:
            np.clip(np.nan_to_num(x, copy=False), -LARGEST, LARGEST, out=x)
        return np.asarray(x, dtype=np.float64)

    def _largest_value(self, args: Args, index: Any) -> float:
        """Return how large columns can get by their public bounds."""
        with np.errstate(all="ignore"):
            ends = np.stack([self.low[index], self.high[index]])
            if (center := args.get("center")) is not None:
                ends = ends - np.asarray(center)[index]
            if (scale := args.get("scale")) is not None:
                ends = ends / np.asarray(scale)[index]
        return float(np.abs(ends).max(initial=0.0))

    def outcome(self) -> Floats:
        """Return clip(y), shape (rows,)."""
        return np.clip(self.response, max(self.response_low, -LARGEST), min(self.response_high, LARGEST))

    def residual(self, args: Args, bound: float | None = None) -> Floats:
        """Return clip(y) - intercept - x_S'beta, clipped to [-bound, bound], shape (rows,).

        The column `response`, in its units, has the place of clip(y) if there is one.
        """
        y = self.columns(args, np.array([args["response"]]))[:, 0] if "response" in args else self.outcome()
        r = y - args.get("intercept", 0.0)
        if "support" in args and len(args["support"]):
            r = r - self.columns(args, np.asarray(args["support"])) @ np.asarray(args["beta"])
        return clipped(r, math.inf if bound is None else bound)


def made_up(low: Floats, high: Floats, response_low: float, response_high: float) -> SiteBlock:
    """Return three public rows: at the lower bounds, in the middle, and at the upper bounds."""
    low, high = (np.asarray(ends, dtype=np.float64) for ends in (low, high))
    bottom = np.where(np.isfinite(low), low, -1.0)
    top = np.where(np.isfinite(high), high, 1.0)
    ends = 0.5 * response_low, 0.5 * response_high
    return SiteBlock(
        features=np.stack([bottom, 0.5 * bottom + 0.5 * top, top]),
        response=np.array([response_low, sum(ends), response_high]),
        low=low,
        high=high,
        response_low=response_low,
        response_high=response_high,
    )


def blocks_of(rows_block: SiteBlock, *, wide: bool, draws: int = 0) -> Iterator[SiteBlock]:
    """Cut a site's rows into blocks of about `ENTRIES` numbers, or `NARROW_ENTRIES`.

    `draws` numbers are made for each row in addition to its columns.
    """
    rows = max(64, (ENTRIES if wide else NARROW_ENTRIES) // max(rows_block.features.shape[1], draws, 1))
    yield from rows_block.parts(rows)


def stream_of(name: str) -> int:
    """Return the number of a site's stream of public random numbers: a hash of its name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def number_of(name: str) -> int:
    """Return the number of a site in the argument `streams`: its stream without the last binary digit."""
    return stream_of(name) >> 1


def with_constant(args: Args, stream: int) -> Args:
    """Return arguments whose intercept is that of a site: its public constant in `intercepts` is added."""
    if "streams" not in args:
        return args
    own = np.asarray(args["intercepts"], dtype=np.float64)[np.asarray(args["streams"]) == stream >> 1]
    rest = {name: value for name, value in args.items() if name not in ("streams", "intercepts")}
    return rest | {"intercept": float(args.get("intercept", 0.0)) + float(own.sum())}


def clipped(values: Floats, bound: float) -> Floats:
    """Return values inside [-bound, bound], in place; nan becomes 0."""
    if math.isfinite(bound):
        np.clip(values, -bound, bound, out=values)
    if not np.isfinite(values.sum()):
        np.nan_to_num(values, copy=False)
    return values


def made_finite(values: Floats) -> Floats:
    """Return values, in place, without nan and infinities."""
    if not np.isfinite(values).all():
        np.nan_to_num(values, copy=False)
    return values


def unit_sums(rows: Floats, units: Integers | None) -> Floats:
    """Return the sums (units, m) over the rows (n, m) of each unit; rows of a unit are adjacent."""
    if units is None:
        return rows
    starts = np.concatenate([[0], 1 + np.flatnonzero(np.diff(units))])
    return np.asarray(np.add.reduceat(rows, starts, axis=0), dtype=np.float64)


def clip_norms(rows: Floats, bound: float, unit: float = 0.0) -> Floats:
    """Return the rows (n, m) shrunk, in place, to a norm that stays below `bound` once rounded to `unit`."""
    room = bound - 0.5 * unit * math.sqrt(rows.shape[1])
    if room <= 0.0:
        raise SensitivityError(
            f"a clipping norm of {bound:g} is too small for vectors of {rows.shape[1]} entries, since the "
            "entries are rounded: use a larger norm or fewer columns"
        )
    made_finite(rows)
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows *= (room / np.maximum(norms, room))[:, None]
    return rows


def unit_of(bound: float, bits: int) -> float:
    """Return the unit in which a number of size at most `bound` has `bits` digits; 0, no unit, for none."""
    return math.ldexp(1.0, math.frexp(bound)[1] - bits) if bits > 0 else 0.0


def cut(values: Floats, unit: float) -> tuple[Floats, float]:
    """Return (steps, unit) with values = steps x unit up to the cut digits, in place; unit 0 cuts nothing."""
    if unit == 0.0:
        return values, 1.0
    values *= 1.0 / unit
    return np.trunc(values, out=values), unit


def nearest(values: Floats, unit: float) -> tuple[Floats, float]:
    """Return (steps, unit) with the nearest steps, in place; unit 0 rounds nothing."""
    if unit == 0.0:
        return values, 1.0
    values *= 1.0 / unit
    return np.rint(values, out=values), unit


def rounded(values: Floats, unit: float, bound: float) -> tuple[Floats, float]:
    """Return (steps, unit) with the nearest steps that keep to [-bound, bound], in place."""
    if unit == 0.0:
        return values, 1.0
    largest_step = math.floor(bound / unit)
    return np.clip(nearest(values, unit)[0], -largest_step, largest_step, out=values), unit


def digits(args: Args) -> tuple[int, int]:
    """Return the binary digits of a number and of a factor of a product."""
    bits = int(args.get("bits", 0))
    return bits, bits // 2


def exact_bits(rows: int) -> int:
    """Return how many binary digits a record's number may have for the sum over `rows` to be exact."""
    return EXACT_BITS - 1 - max(rows, 1).bit_length()


def check_bits(args: Args, rows: int) -> int:
    """Return the requested digits; SensitivityError if a sum over `rows` would not be exact with them."""
    bits = whole_number(args, "bits", default=0)
    if bits < 0 or (bits > 0 and bits > exact_bits(rows)):
        raise SensitivityError(
            f"bits={bits} is too large: sums over {rows} rows are exact with at most bits={exact_bits(rows)}"
        )
    return bits


def whole_number(args: Args, name: str, *, default: int | None = None, minimum: int = 0) -> int:
    """Return an argument that is a whole number."""
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise ArgumentError(f"argument {name!r} of the statistic must be an integer, at least {minimum}")
    return int(value)


def positive(args: Args, name: str) -> float:
    """Return an argument that is a positive number, neither below `SMALLEST` nor above `LARGEST`."""
    if name not in args:
        raise ArgumentError(f"{name} is missing")
    return check_number(args[name], name, low=SMALLEST, high=LARGEST)


def positive_vector(args: Args, name: str, size: int) -> Floats:
    """Return an argument that is a vector of positive numbers, none below `SMALLEST`."""
    entries = vector(args, name, size)
    if not (entries >= SMALLEST).all():
        raise ArgumentError(
            f"argument {name!r} of the statistic must hold positive numbers, at least {SMALLEST:g}"
        )
    return entries


def check_sizes(args: Args) -> None:
    """Raise ArgumentError if a number among the arguments is larger than `LARGEST`; seeds may be."""
    for name, value in args.items():
        if name in SEEDS or isinstance(value, (str, bool)):
            continue
        if isinstance(value, (int, float)):
            fits = abs(value) <= LARGEST
        else:
            array = np.asarray(value)
            fits = array.dtype.kind in "biuf" and bool(
                array.max(initial=0) <= LARGEST and array.min(initial=0) >= -LARGEST
            )
        if not fits:
            raise ArgumentError(
                f"argument {name!r} of the statistic must hold numbers of absolute value at most {LARGEST:g}"
            )


def vector(args: Args, name: str, size: int | None = None) -> Floats:
    """Return an argument that is a vector of finite numbers (of a known length)."""
    if name not in args:
        raise ArgumentError(f"{name} is missing")
    entries = check_array(args[name], name, ndim=1)
    if size is not None and len(entries) != size:
        raise ArgumentError(
            f"argument {name!r} of the statistic has {len(entries)} entries, but it needs {size}"
        )
    return entries


def positions(args: Args, name: str, columns: int) -> Integers:
    """Return an argument that is a list of distinct column positions."""
    if name not in args:
        raise ArgumentError(f"{name} is missing")
    indices = np.asarray(args[name])
    if indices.ndim != 1 or indices.size > columns or (indices.size and indices.dtype.kind not in "iu"):
        raise ArgumentError(
            f"argument {name!r} of the statistic must be a list of column numbers, each given once"
        )
    if indices.size and (
        indices.min() < 0 or indices.max() >= columns or len(np.unique(indices)) < indices.size
    ):
        raise ArgumentError(
            f"argument {name!r} of the statistic must hold distinct column numbers between 0 and "
            f"{columns - 1}"
        )
    return indices.astype(np.int64)


def check_common(args: Args, columns: int) -> None:
    """Check the common arguments of statistics: center, scale, intercept, response, support and beta."""
    if args.get("center") is not None:
        vector(args, "center", columns)
    if args.get("scale") is not None:
        positive_vector(args, "scale", columns)
    check_number(args.get("intercept", 0.0), "intercept")
    if "response" in args and whole_number(args, "response") >= columns:
        raise ArgumentError(
            f"argument 'response' of the statistic must be a column number between 0 and {columns - 1}"
        )
    if ("streams" in args) != ("intercepts" in args):
        raise ArgumentError(
            "the arguments 'streams' (numbers of sites) and 'intercepts' (their constants) of the statistic "
            "must be passed together"
        )
    if "streams" in args:
        _check_constants(args)
    if ("support" in args) != ("beta" in args):
        raise ArgumentError(
            "the arguments 'support' (column numbers) and 'beta' (their coefficients) of the statistic must "
            "be passed together"
        )
    if "support" in args:
        vector(args, "beta", len(positions(args, "support", columns)))


def _check_constants(args: Args) -> None:
    """Raise ArgumentError unless `intercepts` has one number for each of the distinct sites in `streams`."""
    streams = np.asarray(args["streams"])
    if streams.ndim != 1 or streams.dtype.kind not in "iu" or len(np.unique(streams)) < streams.size:
        raise ArgumentError("argument 'streams' of the statistic must be a list of distinct integers")
    vector(args, "intercepts", len(streams))
