"""How many rows of a table are complete, where rows with missing values are dropped from every sum.

The number N of complete rows is private. A sum over complete rows, divided by the public n, estimates N/n
times a mean. So estimators need N wherever a number of rows does not cancel between two sums. The sum of the
constant, which is released with noise like every other sum, is an unbiased estimate of N.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
    total : float, optional
        The noisy sum itself, if it is below the least estimate. `interval` is about this number.

    Notes
    -----
    **Privacy.** A function of a release.
    """

    rows: int
    sd: float
    of: int
    total: float | None = None

    def __post_init__(self) -> None:
        check_count(self.of, "of")
        check_count(self.rows, "rows")
        check_number(self.sd, "sd", low=0.0)
        if self.total is not None:
            check_number(self.total, "total")

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
        return cls._at_least(min(max(coefficients + 1, math.ceil(LEAST_SHARE * n)), n), total, sd, n)

    @classmethod
    def _at_least(cls, least: int, total: float, sd: float, n: int) -> Self:
        return cls(
            rows=round(min(max(float(total), least), n)),
            sd=float(sd),
            of=n,
            total=float(total) if total < least else None,
        )

    @classmethod
    def sum_of(cls, sites: Iterable[Self]) -> Self:
        """Return the estimate for the rows of several sites together."""
        parts = list(sites)
        raised = any(part.total is not None for part in parts)
        return cls(
            rows=sum(part.rows for part in parts),
            sd=math.hypot(*(part.sd for part in parts)),
            of=sum(part.of for part in parts),
            total=math.fsum(part._center for part in parts) if raised else None,
        )

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
        return cls._at_least(min(2, n), total, sd, n)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self | None:
        """Return the estimate that settings of a result hold, or None."""
        stored = settings.get("complete")
        return None if stored is None else cls(**stored)

    def settings(self) -> dict[str, Any]:
        """Return the estimate as settings of a result."""
        complete: dict[str, float] = {"rows": self.rows, "sd": self.sd, "of": self.of}
        if self.total is not None:
            complete["total"] = self.total
        return {"missing": "drop", "complete": complete}

    @property
    def is_exact(self) -> bool:
        """Whether the number was counted without noise."""
        return self.sd == 0.0

    @property
    def is_raised(self) -> bool:
        """Whether the noisy number is below the least estimate, which `rows` then is."""
        return self.total is not None

    @property
    def interval(self) -> tuple[int, int]:
        """95% interval for the number of complete rows, about the noisy number itself."""
        half = NORMAL_95 * self.sd
        low = max(math.floor(self._center - half), 0)
        return low, max(min(math.ceil(self._center + half), self.of), low)

    @property
    def _center(self) -> float:
        return self.rows if self.total is None else self.total
