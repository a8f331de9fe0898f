"""Predicted means of new rows, labelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError, SchemaError
from privinf.inference.prediction import MeanPrediction
from privinf.schema import Design
from privinf.typing import Floats, Names
from privinf.validation import check_array


@dataclass(frozen=True, slots=True)
class Prediction:
    """Means predicted for new rows, with standard errors.

    The error is that of the estimated mean x'b, sampling and privacy noise together; the scatter of a
    single new observation around it is not included.

    Attributes
    ----------
    mean : MeanPrediction
    index : pandas Index of the new rows
    """

    mean: MeanPrediction
    index: pd.Index[Any]

    @property
    def predicted_mean(self) -> pd.Series[float]:
        """Predicted means."""
        return pd.Series(self.mean.mean, self.index, name="mean")

    @property
    def se_mean(self) -> pd.Series[float]:
        """Standard errors of the predicted means."""
        return pd.Series(self.mean.se, self.index, name="mean_se")

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha`` for the means, columns 0 and 1."""
        return pd.DataFrame(self.mean.conf_int(alpha), self.index)

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return mean, mean_se, mean_ci_lower and mean_ci_upper of each row."""
        interval = self.mean.conf_int(alpha)
        return pd.DataFrame(
            {
                "mean": self.mean.mean,
                "mean_se": self.mean.se,
                "mean_ci_lower": interval[:, 0],
                "mean_ci_upper": interval[:, 1],
            },
            self.index,
        )


def prediction_rows(
    exog: Any, names: Names, design: Design | None, *, transform: bool
) -> tuple[Floats, pd.Index[Any]]:
    """Return the design matrix of new rows, shape (rows, p), and their labels.

    A frame is read by column names, never by position; an array must have the p columns in order.
    """
    if isinstance(exog, pd.Series):
        exog = exog.to_frame().T if set(exog.index) >= set(names) else exog.to_frame()
    index = exog.index if isinstance(exog, pd.DataFrame) else None
    if transform and design is not None and design.schema is not None:
        rows = design.matrix(exog, extrapolate=True)
    elif isinstance(exog, pd.DataFrame):
        missing = [name for name in names if name not in exog.columns]
        if missing:
            raise SchemaError(f"the new rows lack the column {missing[0]!r}")
        rows = check_array(exog[list(names)], "exog", ndim=2)
    else:
        rows = np.atleast_2d(check_array(exog, "exog", ndim=np.ndim(exog)))
    if rows.shape[1:] != (len(names),):
        raise ArgumentError(
            f"exog of shape {rows.shape} does not fit {len(names)} coefficients: {', '.join(names)}"
        )
    return rows, pd.RangeIndex(len(rows)) if index is None else index
