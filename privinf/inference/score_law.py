"""The law of a score statistic under its null hypothesis."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import betaincc, betainccinv, chdtrc, chdtri


@dataclass(frozen=True, slots=True)
class ScoreLaw:
    """Chi-square, or the exact law for a statistic of Gaussian rows.

    Attributes
    ----------
    rows : int or None
        k: the statistic is k R^2 of a regression of k Gaussian rows, whose null law is
        ``k Beta(df/2, (k - q - df)/2)``, q the columns of the regression that are not tested: the F test.
        None: chi-square.
    columns : int
        Columns of that regression, tested or not.
    """

    rows: int | None = None
    columns: int = 0

    def pvalue(self, statistic: float, df: int) -> float:
        """Return the chance of a larger statistic."""
        if self.rows is None:
            return float(chdtrc(df, statistic))
        share = min(max(statistic / self.rows, 0.0), 1.0)
        return float(betaincc(df / 2.0, self._denominator(df) / 2.0, share))

    def critical(self, df: int, alpha: float) -> float:
        """Return the value that the statistic exceeds with probability `alpha`."""
        if self.rows is None:
            return float(chdtri(df, alpha))
        return self.rows * float(betainccinv(df / 2.0, self._denominator(df) / 2.0, alpha))

    @property
    def tail(self) -> str:
        """What a summary calls the p-value."""
        return "P>chi2" if self.rows is None else "P>F"

    def described(self, statistic: float, df: int) -> str:
        """Return the test as a summary prints it: ``chi2(3) = 4.2`` or ``F(3, 96) = 1.3``."""
        if self.rows is None:
            return f"chi2({df}) = {statistic:.4g}"
        left, lower = self.rows - statistic, self._denominator(df)
        ratio = math.inf if left <= 0.0 else statistic / left * lower / df
        return f"F({df}, {lower}) = {ratio:.4g}"

    def _denominator(self, df: int) -> int:
        assert self.rows is not None
        return self.rows - max(self.columns, df)


CHI_SQUARE = ScoreLaw()
