"""Smooth functions of the coefficients, labelled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from privinf.inference.delta_method import DeltaMethod
from privinf.inference.normal import two_sided_pvalue, upper_quantile
from privinf.typing import Floats
from privinf.validation import check_fraction


@dataclass(frozen=True, slots=True)
class NonlinearResults:
    """Values of m smooth functions of the coefficients, with first-order inference.

    Attributes
    ----------
    found : DeltaMethod
    df : float
        Degrees of freedom of the t quantiles; infinite: normal.
    """

    found: DeltaMethod
    df: float = np.inf

    @property
    def value(self) -> Floats:
        """Values at the estimate, shape (m,)."""
        return self.found.value

    @property
    def bse(self) -> Floats:
        """Standard errors, shape (m,)."""
        return self.found.bse

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of level ``1 - alpha``, shape (m, 2)."""
        half = upper_quantile(check_fraction(alpha, "alpha") / 2.0, self.df) * self.bse
        return np.column_stack([self.value - half, self.value + half])

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return value, standard error, z (or t) test of zero and interval, one row a function."""
        low, high = self.conf_int(alpha).T
        z = np.divide(self.value, self.bse, out=np.full_like(self.value, np.nan), where=self.bse > 0.0)
        letter = "z" if np.isinf(self.df) else "t"
        return pd.DataFrame(
            {
                "value": self.value,
                "std err": self.bse,
                letter: z,
                f"P>|{letter}|": two_sided_pvalue(z, self.df),
                "Conf. Int. Low": low,
                "Conf. Int. Upp.": high,
            }
        )

    def __repr__(self) -> str:
        return self.summary_frame().to_string(float_format="%.4g")

    def _repr_html_(self) -> str:
        return str(self.summary_frame().to_html(float_format="{:.4g}".format))
