"""Results of the debiased lasso where parties have parts of their own: one table, results by party."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.errors import ArgumentError
from privinf.lasso.results import LassoResults


@dataclass(frozen=True, slots=True, eq=False)
class MachineResults:
    """Results of a fit in which every party has a part of its own.

    Attributes
    ----------
    labels : tuple
        Parties.
    shared_params : Series of p
        The part that all parties share, user units; without intervals.
    privacy : PrivacyReport
        The joint cost of everything that was released, however the noise was calibrated.
    interval_epsilon : float
        What one interval alone uses: the shared part, the party's part, its precision column, its score.
    results : mapping
        `LassoResults` by label.
    differs : Series, optional
        How far every party's slopes stand off the others', as a standard normal number: a large one says
        that its columns have another law, and that pooled precision columns do not fit it.

    Notes
    -----
    **Privacy.** Post-processing of releases.
    """

    labels: tuple[Any, ...]
    shared_params: pd.Series[float]
    privacy: PrivacyReport
    interval_epsilon: float
    results: Mapping[Any, LassoResults]
    differs: pd.Series[float] | None = None

    def machine(self, label: Any) -> LassoResults:
        """Return the results of one party, by its label (ArgumentError if there is none)."""
        if label not in self.results:
            raise ArgumentError(
                f"no party is called {label!r}; there are {', '.join(map(repr, self.labels))}"
            )
        return self.results[label]

    def to_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return one line a party: rows, columns selected, scale of residuals, lengths of intervals."""
        lines = []
        for label in self.labels:
            one = self.results[label]
            limits = one.conf_int(alpha).to_numpy()
            length = limits[:, 1] - limits[:, 0]
            lines.append([int(one.nobs), len(one.selected), one.residual_scale, length.min(), length.max()])
        columns = ["rows", "selected", "residual scale", "narrowest", "widest"]
        found = pd.DataFrame(lines, pd.Index(self.labels, name="party"), columns)
        return found if self.differs is None else found.assign(**{"differs (z)": self.differs.to_numpy()})

    def summary(self, alpha: float = 0.05) -> str:
        """Return a table of the parties, with the joint epsilon and that of one interval."""
        shared = ", ".join(self.shared_params.index[self.shared_params != 0.0])
        lines = [
            f"Debiased lasso, {len(self.labels)} parties with parts of their own",
            f"Joint epsilon {self.privacy.epsilon():.4g} at delta {self.privacy.default_delta:g}; "
            f"of one interval alone {self.interval_epsilon:.4g}",
            f"Shared part: {shared}",
            f"Lengths of {1.0 - alpha:.0%} intervals, by party:",
            self.to_frame(alpha).to_string(float_format=lambda value: f"{value:.4g}"),
        ]
        notes = {note for one in self.results.values() for note in one.notes}
        return "\n".join(lines + sorted(notes))

    def __repr__(self) -> str:
        joint = f"joint epsilon {self.privacy.epsilon():.4g} at delta {self.privacy.default_delta:g}"
        alone = f"{self.interval_epsilon:.4g} for one interval"
        return f"<MachineResults of {len(self.labels)} parties: {joint}, {alone}>"
