"""Sums over records from which least squares are made, with their replace-one sensitivities.

z = (1, x, c y), the 1 only with a constant: x the other columns in scaled units, shrunk to |x| <= R, and |c
y| <= k, both enforced on the very record that is summed. Entries are isometric: sqrt 2 above the diagonal.

- ``moments.total``: sum z z' without its public 1. The l2 sensitivity is `second_moment_sensitivity`, not
  twice the largest norm R^2 + k^2 + 1;
- ``moments.residual``: sum clip(e, E)^2 x x', e = y - x'b at public b, x with its 1: sqrt 2 E^2 (R^2 + 1).

A curator makes the same query about its own rows, with other public columns of norm q beside x in place of
the 1, weights w and several records a person: sums of w z z' and of w^2 clip(e, E)^2 x x', whose
sensitivities are multiplied by the largest weight (squared) and by the cap on a person's records.

**Of units** (``unit_norm`` = C, a holder's own rows): sum over units of s s', s the sum of w clip(e, E) x
over the rows of one, shrunk to |s| <= C. Whatever rows a unit has, it adds one matrix of norm C^2 at most,
and two such are sqrt 2 C^2 apart at most, at orthogonal s: neither the cap m on rows nor the weights multiply
that. Without the norm s could be as long as m E sqrt(R^2 + q^2): m times the sensitivity of sums over rows.

**On the grid.** Where sums must be exact, every column of z is put on its grid once (`gridded`) and the
sums of products are integers (`sums`), so that the sensitivity is that of records on the grid:

- x keeps |x| <= R, by its box or by its ball; k is 2^20 units, so |c y| <= k; the 1 is 2^20 units;
- a holder's public columns are rounded to the nearest, which the norm q that it states must allow for;
  weights multiply z by sqrt(w / W), W the largest, which makes no integer larger, and the sum by W;
- of units, the integers of a unit's rows are added exactly, shrunk to C, divided by the cap m and cut
  toward zero: none passes 2^20, and no norm passes C;
- residual moments have the factors u = clip(e, E)/E x, rounded again: |u_j| <= |x_j| in every column, so
  that |u| keeps to sqrt(R^2 + q^2); e is a function of the record on its grid and of public numbers.

So both formulas hold as they are: they are bounds over all vectors of these norms, wherever the vectors
stand. The total alone is rounded after that, to the grid of the holder's own noise, which its ledger line
charges, or at a site to ``bits`` digits below a record's largest entry: two totals are moved apart by one
such unit an entry at most, which is charged (`RecordSensitivity.rounded`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import (
    SMALLEST,
    Args,
    SiteBlock,
    clip_norms,
    clipped,
    positive,
    positive_vector,
    unit_sums,
    vector,
    whole_number,
)
from privinf.mechanisms.statistics.gridded import MomentSums
from privinf.mechanisms.statistics.isometric import pair_products
from privinf.mechanisms.statistics.ops import COMMON, RecordSensitivity, SiteOp, named
from privinf.mechanisms.statistics.summands import stated
from privinf.typing import Floats, Integers
from privinf.validation import check_number
from privinf.wire import Derivations, Statistics

# ---- geometry


def second_moment_sensitivity(x_norm: float, y_norm: float, public_norm2: float = 0.0) -> float:
    """Return the largest ||zz' - ww'||_F over two records (see the module docstring).

    Parameters
    ----------
    x_norm, y_norm : float
        Largest |x| and largest |c y|.
    public_norm2 : float
        Largest squared norm of a record's public columns (1 with a constant alone, 0 without any).

    Notes
    -----
    sqrt 2 (q^2 + rho^2) where an inner product of -q^2 can be had, 2 sqrt 2 q rho where even -rho^2 is
    not that small (rho < q). Attained for d >= 2 private columns on a ball when k^2 <= R^2 + q^2 (as the
    default weight has it); otherwise, for d = 1 and for a box, an upper bound. (2 sqrt 2 R k, sometimes
    given for k > R without a constant, is *not* an upper bound: against the record (0, 0) the distance is
    R^2 + k^2 already.)
    """
    rho2 = x_norm**2 + y_norm**2
    if rho2 < public_norm2:  # a difference of squares would lose a small rho beside q
        return math.sqrt(8.0 * public_norm2 * rho2)
    return math.sqrt(2.0 * (public_norm2 + rho2) ** 2)


def residual_moment_sensitivity(x_norm: float, public_norm2: float = 0.0) -> float:
    """Return the largest Frobenius distance of two matrices r^2 x x', |r| <= 1, x with its public part."""
    return math.sqrt(2.0) * (x_norm**2 + public_norm2)


def default_response_weight(x_norm: float, y_norm: float, public_norm2: float) -> float:
    """Return the public weight c of y: c |y| <= 0.87 sqrt(R^2 + q^2) spends the sensitivity well.

    For small slopes the noise of the estimate is proportional to (q^2 + R^2 + k^2)/k with k = c |y|,
    smallest at k^2 = q^2 + R^2 and flat around it; larger slopes favor a smaller k.
    """
    return 0.87 * math.sqrt(x_norm**2 + public_norm2) / y_norm


@lru_cache(maxsize=1)
def _pairs(size: int, public: int) -> tuple[Integers, Integers, Floats]:
    rows, columns = np.triu_indices(size)
    keep = columns >= public
    rows = rows[keep].astype(np.int64)
    columns = columns[keep].astype(np.int64)
    pairs = rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))
    for array in pairs:
        array.setflags(write=False)
    return pairs


@dataclass(frozen=True, slots=True)
class MomentLayout:
    """Which entries of zz' a moment vector holds.

    Attributes
    ----------
    public, private : int
        Numbers of public and private columns; z has public + private + 1 entries, in this order.
    """

    public: int
    private: int

    @property
    def size(self) -> int:
        """Length of z."""
        return self.public + self.private + 1

    def pairs(self) -> tuple[Integers, Integers, Floats]:
        """Return rows, columns and isometric factors of the entries that are released."""
        return _pairs(self.size, self.public)

    def moved(self, place: int) -> tuple[Integers, Integers, Floats]:
        """Return `pairs` in a triangle in which the last entry of z is at an earlier place."""
        rows, columns, factors = self.pairs()
        old = np.arange(self.size)
        new = np.where(old < place, old, old + 1)
        new[-1] = place
        first, second = np.sort(np.stack([new[rows], new[columns]]), axis=0)
        return first, second, factors

    def matrix(self, moments: Floats, public_moments: Floats) -> Floats:
        """Return the symmetric (size, size) matrix from isometric entries and the public block."""
        rows, columns, factors = self.pairs()
        full = np.zeros((self.size, self.size))
        full[rows, columns] = moments / factors
        full[columns, rows] = full[rows, columns]
        full[: self.public, : self.public] = public_moments
        return full


ROOT2 = math.sqrt(2.0)  # of isometric entries beside the diagonal


def moment_total(block: SiteBlock, args: Args) -> Floats:
    """Return the isometric entries of sum w z z', less those of public columns alone; in doubles."""
    y = block.residual(args) * float(args["response_factor"])
    z = np.vstack([_regressors(block, args), clipped(y, float(args["response_bound"]))])
    weights = np.ones(len(block)) if block.weights is None else block.weights
    public = _public(args)[0]
    return pair_products(z * weights, z, MomentLayout(public, len(z) - public - 1).pairs())


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondMoments:
    """Isometric entries of w z z' without those of public columns alone, z as in the module docstring.

    Attributes
    ----------
    layout : MomentLayout
    x_norm, y_norm : float
        Largest |x| and largest |c y|.
    public_norm2 : float
        Largest squared norm of a record's public columns.
    largest : float
        Most records of one person, times the largest weight.
    """

    layout: MomentLayout
    x_norm: float
    y_norm: float
    public_norm2: float
    largest: float

    def sensitivity(self) -> RecordSensitivity:
        """Return the largest distance of two persons' matrices."""
        l2 = second_moment_sensitivity(self.x_norm, self.y_norm, self.public_norm2)
        public_bound = max(self.x_norm, self.y_norm) * math.sqrt(self.public_norm2)
        product = ROOT2 * self.x_norm * self.y_norm
        bound = max(self.x_norm**2, self.y_norm**2, product, ROOT2 * public_bound)
        size = self.layout.pairs()[0].size
        return _of_one_record(size, l2, bound, Derivations.MOMENTS).times(self.largest)


def _total_summand(args: Args, columns: int) -> SecondMoments:
    public, public_norm2 = _check(args, columns)
    return SecondMoments(
        layout=MomentLayout(public, columns - ("constant" in args)),
        x_norm=float(args["norm"]),
        y_norm=positive(args, "response_bound"),
        public_norm2=public_norm2,
        largest=_largest(args, 1),
    )


def residual_moments(block: SiteBlock, args: Args) -> Floats:
    """Return the isometric entries of sum w^2 clip(e, E)^2 x x'; in doubles."""
    x = _regressors(block, args)
    e = block.residual(args) * float(args["response_factor"]) - np.asarray(args["coefficients"]) @ x
    e = clipped(e, float(args["residual_clip"]))
    if block.weights is not None:
        e *= block.weights
    pairs = MomentLayout(0, len(x) - 1).pairs()
    if "unit_norm" in args:
        scores = clip_norms(unit_sums((x * e).T, block.units), float(args["unit_norm"])).T
        return pair_products(scores, scores, pairs)
    return pair_products(x * np.square(e, out=e), x, pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualMoments:
    """Isometric entries of w^2 r^2 x x', |r| <= `clip`, x with its public columns, `width` in all.

    `largest` is the number of records of one person times the square of the largest weight.
    """

    width: int
    x_norm: float
    public_norm2: float
    clip: float
    largest: float

    def sensitivity(self) -> RecordSensitivity:
        """Return the largest distance of two persons' matrices."""
        l2 = self.clip**2 * residual_moment_sensitivity(self.x_norm, self.public_norm2)
        beside = ROOT2 * self.x_norm * math.sqrt(self.public_norm2)
        bound = self.clip**2 * max(self.x_norm**2, self.public_norm2, beside)
        size = self.width * (self.width + 1) // 2
        return _of_one_record(size, l2, bound, Derivations.RESIDUAL_MOMENTS).times(self.largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitScores:
    """Isometric entries of s s', s the sum of a unit's scores, of `width` entries, shrunk to norm `top`."""

    width: int
    top: float

    def sensitivity(self) -> RecordSensitivity:
        """Return the distance of two orthogonal sums of scores."""
        square = self.top**2
        return RecordSensitivity(
            shape=(self.width * (self.width + 1) // 2,),
            l2=ROOT2 * square,
            linf=ROOT2 * square,
            bound=square,
            derivation=Derivations.UNIT_SCORES,
        )


def _residual_summand(args: Args, columns: int) -> ResidualMoments | UnitScores:
    public, public_norm2 = _check(args, columns)
    width = public + columns - ("constant" in args)
    vector(args, "coefficients", width)
    clip = positive(args, "residual_clip")
    if "unit_norm" in args:
        return UnitScores(width=width, top=positive(args, "unit_norm"))
    return ResidualMoments(
        width=width,
        x_norm=float(args["norm"]),
        public_norm2=public_norm2,
        clip=clip,
        largest=_largest(args, 2),
    )


def _regressors(block: SiteBlock, args: Args) -> Floats:
    """Return the public and the private columns, one row per column, with |x| at most R."""
    norm = float(args["norm"])
    constant = args.get("constant")
    if constant is None:
        x = clip_norms(block.columns(args), norm).T
        return x if block.clear is None else np.vstack([block.clear.T, x])
    private = np.delete(np.arange(block.features.shape[1]), constant)
    return np.vstack([np.ones(len(block)), clip_norms(block.columns(args, private), norm).T])


def _total_sums(block: SiteBlock, args: Args) -> MomentSums:
    return _sums(block, args, residual=False)


def _residual_sums(block: SiteBlock, args: Args) -> MomentSums:
    return _sums(block, args, residual=True)


def _sums(block: SiteBlock, args: Args, *, residual: bool) -> MomentSums:
    """Return the exact sums of one of the two statistics."""
    public, norm2 = _public(args)
    private = block.features.shape[1] - ("constant" in args)
    released = MomentLayout(0, public + private - 1) if residual else MomentLayout(public, private)
    half_ranges = np.asarray(args.get("public_reach", np.full(public, math.sqrt(norm2))), dtype=np.float64)
    pairs = released.pairs() if residual else released.moved(public)
    return MomentSums(block, args, half_ranges, pairs, residual=residual)


def _of_one_record(size: int, l2: float, bound: float, derivation: str) -> RecordSensitivity:
    return RecordSensitivity(
        shape=(size,), l2=l2, linf=min(l2, 2.0 * bound), bound=bound, derivation=derivation
    )


def _public(args: Args) -> tuple[int, float]:
    """Return how many public columns there are, and the largest squared norm of a record's."""
    if "public" in args:
        return int(args["public"]), float(args["public_norm2"])
    return (1, 1.0) if "constant" in args else (0, 0.0)


def _largest(args: Args, power: int) -> float:
    """Return how many records one person has at most, times a power of the largest observation weight."""
    return float(args.get("max_rows", 1) * args.get("weight_bound", 1.0) ** power)


def _check(args: Args, columns: int) -> tuple[int, float]:
    """Check the common arguments of both statistics; return the result of `_public`."""
    positive(args, "response_factor")
    positive(args, "norm")
    if "constant" in args and whole_number(args, "constant") >= columns:
        raise ArgumentError(
            f"argument 'constant' of the statistic must be a column number below {columns}, "
            "the number of columns"
        )
    if "constant" in args and columns < 2:
        raise ArgumentError(
            "argument 'constant' of the statistic needs a regression with at least one other column"
        )
    if "public" in args:
        whole_number(args, "public")
        check_number(args.get("public_norm2"), "public_norm2", low=0.0)
        if "public_reach" in args:
            positive_vector(args, "public_reach", int(args["public"]))
        whole_number(args, "max_rows", default=1, minimum=1)
        check_number(args.get("weight_bound", 1.0), "weight_bound", low=SMALLEST)
        if "constant" in args or "bits" in args:
            raise ArgumentError(
                "argument 'public' of the statistic (number of public columns) cannot be combined with "
                "constant or bits: leave constant and bits out"
            )
    elif any(name in args for name in _UNITS):
        raise ArgumentError(
            "the statistic has arguments about public columns, so it also needs its argument "
            "'public', the number of public columns"
        )
    return _public(args)


# Arguments of every statistic of moments.
_SHARED = (
    *(name for name in COMMON if name not in ("support", "beta")),
    "constant",
    "norm",
    "response_factor",
)
# Of a holder's own sums: number of public columns next to the features, their largest squared norm on the
# grid and largest sizes (by default the norm), the cap on one person's records, and the largest weight.
_OWNER_ARGUMENTS = ("public", "public_norm2", "public_reach", "max_rows", "weight_bound")
_UNITS = (*_OWNER_ARGUMENTS, "unit_norm")  # the last: to what norm a unit's sum of scores is shrunk

MOMENT_OPS: dict[str, SiteOp] = named(
    SiteOp(
        name=Statistics.MOMENTS_TOTAL,
        function=moment_total,
        sensitivity=stated(_total_summand),
        arguments=(*_SHARED, "response_bound"),
        version=2,
        own=_OWNER_ARGUMENTS,
        sums=_total_sums,
    ),
    SiteOp(
        name=Statistics.MOMENTS_RESIDUAL,
        function=residual_moments,
        sensitivity=stated(_residual_summand),
        arguments=(*_SHARED, "coefficients", "residual_clip"),
        version=2,
        own=_UNITS,
        sums=_residual_sums,
    ),
)
