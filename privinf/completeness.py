"""How many rows of a table are complete, where rows with missing values are dropped from every sum.

The number N of complete rows is private. A sum over complete rows, divided by the public n, estimates N/n
times a mean. So estimators need N wherever a number of rows does not cancel between two sums. The sum of the
constant, which is released with noise like every other sum, is an unbiased estimate of N.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from privinf.validation import check_count, check_number

# Smallest share of rows that an estimate of complete rows can take, whatever the noise.
LEAST_SHARE = 0.02
NORMAL_95 = 1.959963984540054  # of a two-sided 95% interval


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRows:
    """An estimate of the number N of complete rows, from a noisy sum of ones over these rows.

    Attributes
    ----------
    rows : int
        The estimate, by which sums are divided. It is at most the number of all rows, and at least
        `LEAST_SHARE` of it and more than the number of coefficients.
    sd : float
        Standard deviation of the noise of the sum.
    of : int
        Number of all rows, which is public.

    Notes
    -----
    **Privacy.** A function of a release.
    """

    rows: int
    sd: float
    of: int

    def __post_init__(self) -> None:
        check_count(self.of, "of")
        check_count(self.rows, "rows")
        check_number(self.sd, "sd", low=0.0)

    @classmethod
    def from_sum(cls, total: float, sd: float, n: int, coefficients: int) -> Self:
        """Return the estimate from a noisy sum of ones over the complete rows of n.

        Parameters
        ----------
        total : float
        sd : float
            Standard deviation of its noise.
        n : int
        coefficients : int
            Number of coefficients that are to be estimated from the rows.
        """
        least = min(max(coefficients + 1, math.ceil(LEAST_SHARE * n)), n)
        return cls(rows=round(min(max(float(total), least), n)), sd=float(sd), of=n)

    @classmethod
    def from_count(cls, total: float, sd: float, n: int) -> Self:
        """Return the estimate from a noisy number of complete rows, at least two of the n.

        Parameters
        ----------
        total : float
        sd : float
            Standard deviation of its noise.
        n : int
        """
        return cls(rows=round(min(max(float(total), 2.0), n)), sd=float(sd), of=n)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self | None:
        """Return the estimate that settings of a result hold, or None."""
        stored = settings.get("complete")
        return None if stored is None else cls(**stored)

    def settings(self) -> dict[str, Any]:
        """Return the estimate as settings of a result."""
        return {"missing": "drop", "complete": {"rows": self.rows, "sd": self.sd, "of": self.of}}

    @property
    def is_exact(self) -> bool:
        """Whether the number was counted without noise."""
        return self.sd == 0.0

    @property
    def interval(self) -> tuple[int, int]:
        """95% interval for the number of complete rows."""
        half = NORMAL_95 * self.sd
        return max(math.floor(self.rows - half), 0), min(math.ceil(self.rows + half), self.of)
