"""Argument checks: each returns the normalised value or raises an error that says what to do."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.typing import Floats, RngLike


def check_choice(value: Any, choices: Any, name: str) -> Any:
    """Return `value` if it is one of `choices` (a ``Literal`` or a sequence), else raise ArgumentError."""
    allowed = get_args(choices) or tuple(choices)
    if value not in allowed:
        raise ArgumentError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")
    return value


def check_number(
    value: Any,
    name: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    infinite: bool = False,
) -> float:
    """Return `value` as a float inside the stated interval; nan is never accepted."""
    if isinstance(value, (bool, str)) or not np.isscalar(value):
        raise ArgumentError(f"{name} must be a number, got {type(value).__name__}")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    below = number <= low if open_low else number < low
    above = number >= high if open_high else number > high
    if math.isnan(number) or (math.isinf(number) and not infinite) or below or above:
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        raise ArgumentError(f"{name}={value!r} must lie in {left}{low:g}, {high:g}{right}")
    return number


def check_positive(value: Any, name: str, *, infinite: bool = False) -> float:
    """Return `value` as a float > 0 (infinity only where `infinite`)."""
    return check_number(value, name, low=0.0, open_low=True, infinite=infinite)


def check_fraction(value: Any, name: str) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    return check_number(value, name, low=0.0, high=1.0, open_low=True, open_high=True)


def check_count(value: Any, name: str, *, least: int = 1) -> int:
    """Return `value` as an int >= `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ArgumentError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ArgumentError(f"{name}={value} must be at least {least}")
    return int(value)


def check_array(value: ArrayLike, name: str, *, ndim: int, finite: bool = True) -> Floats:
    """Return `value` as a float64 array of `ndim` dimensions, finite unless told otherwise."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name} must be numeric") from None
    if array.ndim != ndim:
        raise ArgumentError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    if finite and not np.isfinite(array).all():
        raise ArgumentError(f"{name} has nan or infinite entries")
    return array


def as_generator(rng: RngLike, name: str = "rng") -> np.random.Generator:
    """Return a numpy Generator from None (fresh entropy), a seed >= 0 or a Generator."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None:
        return np.random.default_rng()
    if isinstance(rng, (bool, np.bool_)) or not isinstance(rng, (int, np.integer)) or rng < 0:
        kind = type(rng).__name__
        raise ArgumentError(f"{name} must be None, a seed >= 0 or a numpy Generator, got {kind}")
    return np.random.default_rng(int(rng))
