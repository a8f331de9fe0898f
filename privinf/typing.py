"""Type aliases shared by every room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
RngLike: TypeAlias = int | np.random.Generator | None
Names: TypeAlias = Sequence[str]
Json: TypeAlias = Mapping[str, Any]

Calibration = Literal["exact", "classic"]
Relation = Literal["replace-one", "metric", "zero-out"]
TrustModel = Literal["local", "central", "distributed", "per-party"]
Missing = Literal["raise", "impute-public"]

__all__ = [
    "ArrayLike",
    "Calibration",
    "Flags",
    "Floats",
    "Integers",
    "Json",
    "Missing",
    "Names",
    "Relation",
    "RngLike",
    "TrustModel",
]
