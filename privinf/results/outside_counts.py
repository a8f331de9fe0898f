"""Noisy counts of values outside their public bounds: which ones stand out of the noise, and their effect.

A count that is above its threshold stands out of the noise: if no value of a fit is outside its bounds, one
of its counts does so with probability 0.01 (`privinf.glm.clipping`). Such a count is always a note of the
summary. It is also a warning if the share is at least 1%, or if the values may move the coefficient of their
column by more than a quarter of its standard error.

Let a share s of the values of a column be at the farther bound, at a distance of D from the mean, although
they belong near the mean. The coefficient b is then too small by about ``s D^2 b / V`` (errors in variables),
with the variance V of the column. D^2/V is the leverage below. The formula neglects correlations with other
columns. It is not available for the response and for derived columns, for which only the share counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privinf.inference.estimate import Estimate
from privinf.results.notes import Note
from privinf.schema import Design

SETTING = "outside_counts"
LARGE_SHARE = 0.01  # share of values outside from which on a visible count is a warning
NOTABLE_MOVE = 0.25  # standard errors of a coefficient
ALL_COUNTS = (
    "Noisy numbers of values outside their bounds, of {:,} values each (standard error {:,.0f}): {}. Noise "
    "can make these numbers negative."
)
EXACT_COUNTS = "Numbers of values outside their bounds, of {:,} values each: {}."


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideCounts:
    """Released numbers of values outside their bounds.

    Attributes
    ----------
    counts : mapping of str to float
        Noisy number of values of each column.
    sd : float
        Of the noise of each number.
    threshold : float
        Numbers above it stand out of the noise.
    rows : int
        Number of rows.
    leverage : mapping of str to float
        Squared distance of the farther bound from the mean of a column, relative to the column's variance.
    """

    counts: Mapping[str, float]
    sd: float
    threshold: float
    rows: int
    leverage: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> OutsideCounts | None:
        """Return the counts of a result; None if its fit released none."""
        stored = settings.get(SETTING)
        return None if stored is None else cls(**stored)

    def settings(self) -> dict[str, Any]:
        """Return the counts as a setting of a result, from which `from_settings` makes them again."""
        return {
            "counts": dict(self.counts),
            "sd": self.sd,
            "threshold": self.threshold,
            "rows": self.rows,
            "leverage": dict(self.leverage),
        }

    @property
    def visible(self) -> dict[str, float]:
        """Shares of values outside, by name, of the counts that stand out of the noise."""
        return {
            name: min(count / self.rows, 1.0) for name, count in self.counts.items() if count > self.threshold
        }

    @property
    def large_shares(self) -> dict[str, float]:
        """The visible shares that are large, by name."""
        return {name: share for name, share in self.visible.items() if share >= LARGE_SHARE}

    def moving(self, design: Design, estimate: Estimate) -> dict[str, float]:
        """Return the visible shares that may move the coefficient of their column notably, by name."""
        if estimate.cov is None:
            return {}
        with np.errstate(divide="ignore", invalid="ignore"):
            sizes = np.abs(estimate.params / estimate.bse)
        ratios = dict(zip(estimate.names, map(float, sizes), strict=True))
        coefficients = {column.inputs[0]: column.name for column in design.columns if column.plain}
        return {
            name: share
            for name, share in self.visible.items()
            if share * self.leverage.get(name, 0.0) * ratios.get(coefficients.get(name, ""), 0.0)
            > NOTABLE_MOVE
        }

    def note(self) -> Note:
        """Return the note with all numbers, which a summary prints on request."""
        listed = ", ".join(f"{name!r} {count:,.0f}" for name, count in self.counts.items())
        if self.sd == 0.0:
            return Note(EXACT_COUNTS.format(self.rows, listed))
        return Note(ALL_COUNTS.format(self.rows, self.sd, listed))
