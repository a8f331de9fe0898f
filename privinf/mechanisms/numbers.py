"""A caller's numbers: checked by type before they are paid for, and total afterwards.

What is wrong with the type of an array is said before anything is charged. What is in it is read after the
charge, and then no value may stop the release: whatever is no finite number counts as 0, and what is too
large for the noise's grid is held at its end, which moves no two values apart. A stated sensitivity is that
of the numbers after this.
"""

from __future__ import annotations

import numbers
from decimal import Decimal
from typing import Any

import numpy as np

from privinf.errors import ArgumentError
from privinf.typing import Floats

# The grid of secure noise ends at 2^45 steps, and noise spans at least 2^20 of them.
REACH = 2.0**24
LARGEST = 2.0**1000


def plain_array(given: Any, name: str) -> np.ndarray[Any, Any]:
    """Return an array of numbers, flags or objects as it is; ArgumentError, by type alone, for all else."""
    try:
        array = np.asarray(given)
    except Exception:  # an __array__ of the caller's, or a ragged list: their texts can hold values
        array = None
    if array is None or array.dtype.kind not in "biufO":
        raise ArgumentError(f"{name} must be an array of numbers; texts, dates and ragged lists are none")
    return array


def plain_number(given: Any, name: str) -> Any:
    """Return a number as it is; ArgumentError, by type alone, for all else."""
    if isinstance(given, np.ndarray) and given.shape == () and given.dtype.kind in "biuf":
        return given.item()
    if not isinstance(given, (numbers.Real, Decimal, np.bool_)):
        raise ArgumentError(f"{name} must be one number, got {type(given).__name__}")
    return given


def numbers_of(array: np.ndarray[Any, Any]) -> Floats:
    """Return an array of `plain_array` as float64, shape kept: what is no finite number is 0."""
    with np.errstate(all="ignore"):
        if array.dtype.kind != "O":
            found = array.astype(np.float64)
        else:
            found = np.array([number_of(item) for item in array.ravel()], dtype=np.float64)
    return held(found.reshape(array.shape), 0.0)


def number_of(given: Any) -> float:
    """Return a number as a float; 0 for what is none."""
    if not isinstance(given, (numbers.Real, Decimal, np.bool_)):
        return 0.0
    try:
        return float(given)
    except Exception:  # whatever a caller's __float__ raises, after the charge
        return 0.0


def held(values: Floats, scale: float) -> Floats:
    """Return values as finite numbers, within `REACH` times a noise scale above 0: a public bound."""
    end = min(REACH * scale, LARGEST) if scale > 0.0 else LARGEST
    return np.asarray(np.clip(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), -end, end))
