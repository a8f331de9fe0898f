"""Bases with public parameters: B-splines (bs), natural cubic splines (cr), Legendre's polynomials (poly)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from privinf.errors import SchemaError
from privinf.schema.declared import finite_number
from privinf.schema.intervals import ROOM, Interval
from privinf.typing import Floats
from privinf.validation import check_choice

CLOSEST = 2.0**-30  # knots closer than this share of their range leave a basis without digits
FARTHEST = 1e60  # knots of larger sizes do so, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """A spline basis that learns nothing: knots and boundary knots are public numbers.

    Parameters
    ----------
    kind : {"bs", "cr"}
        B-splines, or cardinal natural cubic splines (one function a knot).
    knots : tuple of float
        Inner knots.
    lower, upper : float
        Boundary knots; the argument is clipped to them.
    degree : int
        Degree of the B-splines; cr is always cubic.
    include_intercept : bool
        Whether bs keeps its first function.

    Raises
    ------
    SchemaError
        If the knots are not strictly between the boundary knots and increasing, two are closer than a
        billionth of their range, or the degree is not a whole number from 0 to 5.
    """

    kind: Literal["bs", "cr"]
    knots: tuple[float, ...]
    lower: float
    upper: float
    degree: int = 3
    include_intercept: bool = False

    def __post_init__(self) -> None:
        check_choice(self.kind, ("bs", "cr"), "kind")
        object.__setattr__(self, "knots", tuple(finite_number(knot, "each knot") for knot in self.knots))
        for name in ("lower", "upper"):
            object.__setattr__(self, name, finite_number(getattr(self, name), f"the {name} boundary knot"))
        ladder = np.array([self.lower, *self.knots, self.upper], dtype=np.float64)
        if not (np.abs(ladder) <= FARTHEST).all():
            raise SchemaError(f"all knots must be between {-FARTHEST:g} and {FARTHEST:g}")
        closest = max(CLOSEST * (self.upper - self.lower), 1.0 / FARTHEST)
        if not (np.diff(ladder) > closest).all():
            raise SchemaError(
                "knots= must be in increasing order, without repeats, between lower_bound and upper_bound"
            )
        if not isinstance(self.include_intercept, bool):
            raise SchemaError("include_intercept= must be True or False")
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or not 0 <= self.degree <= 5:
            raise SchemaError("degree= of bs() must be a whole number from 0 to 5")

    @property
    def size(self) -> int:
        """Number of functions."""
        if self.kind == "cr":
            return len(self.knots) + 2
        return len(self.knots) + self.degree + (1 if self.include_intercept else 0)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return asdict(self) | {"knots": list(self.knots)}


def values(basis: Basis, argument: Floats) -> Floats:
    """Return the basis at `argument`, shape (n, basis.size)."""
    inside = np.clip(argument, basis.lower, basis.upper)
    return np.asarray(_functions(basis)(inside), dtype=np.float64)


@lru_cache(maxsize=128)
def intervals(basis: Basis) -> tuple[Interval, ...]:
    """Return the bounds of each function: B-splines lie in [0, 1]; cubic pieces turn where slopes vanish."""
    if basis.kind == "bs":
        return tuple(Interval(0.0, 1.0) for _ in range(basis.size))
    from scipy.interpolate import PPoly

    spline = _functions(basis)
    bounds = []
    for column in range(basis.size):
        piece = PPoly(spline.c[:, :, column], spline.x)
        turns = piece.derivative().roots(extrapolate=False)
        heights = piece(np.concatenate([spline.x, turns[np.isfinite(turns)]]))
        bounds.append(Interval(float(heights.min()), float(heights.max())))
    return tuple(bounds)


@lru_cache(maxsize=128)
def _functions(basis: Basis) -> Any:
    from scipy.interpolate import BSpline, CubicSpline

    inner = list(basis.knots)
    if basis.kind == "cr":
        ladder = np.array([basis.lower, *inner, basis.upper])
        return CubicSpline(ladder, np.eye(len(ladder)), bc_type="natural")
    ends = basis.degree + 1
    knots = np.array([basis.lower] * ends + inner + [basis.upper] * ends)
    weights = np.eye(len(knots) - ends)
    return BSpline(knots, weights if basis.include_intercept else weights[:, 1:], basis.degree)


# ---- Legendre's polynomials

HIGHEST = 10  # degree


def legendre(degree: int, argument: Floats) -> Floats:
    """Return Legendre's polynomial by its recursion, exactly 1 at 1: orthogonal to the others on [-1, 1]."""
    before = np.ones_like(argument)
    current = np.asarray(argument)
    for k in range(1, degree):
        before, current = current, ((2 * k + 1) * argument * current - k * before) / (k + 1)
    return current


@lru_cache(maxsize=128)
def legendre_interval(degree: int, low: float, high: float) -> Interval:
    """Return bounds of Legendre's polynomial on [low, high]: at the ends, and where its slope vanishes."""
    turns = np.polynomial.Legendre.basis(degree).deriv().roots().real
    inside = legendre(degree, turns[(turns > low) & (turns < high)])
    room = 4.0 * ROOM * np.abs(inside)
    heights = np.concatenate([legendre(degree, np.array([low, high])), inside - room, inside + room])
    return Interval(float(heights.min()), float(heights.max()))
