"""How well the precision columns of a debiased fit are known, and what its results say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.inference.estimate import upper_quantile
from privinf.typing import Flags, Floats

EXPLAINED_NOTE = (
    "(R2 of x) is the share of a target that the other columns of its precision column explain, a noisy "
    "number: `explained_shares` has its interval."
)
EXHAUSTED = (
    "Not to be trusted for {}: even the smallest quarter of the neighbours explains a part of the target, so "
    "that more columns are likely correlated with it than could be picked. The coefficient takes over a part "
    "of the effect of every such column that was left out. Name fewer targets, spend more, or raise "
    "precision_sparsity=."
)
ASTRAY_COLUMN = (
    "Not to be trusted for {}: the regression on the neighbours did not get there, as the noise of their "
    "Gram matrix is as large as its smallest eigenvalue or the last step was still long. Name fewer targets, "
    "spend more, or lower precision_sparsity=."
)


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourMarks:
    """How well the precision columns of k targets are known.

    Attributes
    ----------
    picked : tuple of int, length k
        Neighbours of each target beside the columns of the fit.
    explained : ndarray, shape (k,)
        Share of the target's mean square that the other columns of its precision column explain.
    explained_sd : ndarray, shape (k,)
        Its noise.
    last : ndarray, shape (k,)
        Share that the smallest quarter of the picked neighbours explains beside the others.
    exhausted, unsettled : ndarray of bool, shape (k,)
        Whether that is material and more than noise; whether the regression did not get there.
    """

    picked: tuple[int, ...]
    explained: Floats
    explained_sd: Floats
    last: Floats
    exhausted: Flags
    unsettled: Flags

    def warning(self, names: Sequence[str]) -> str | None:
        """Return what a reader of the intervals of these targets must know, if anything."""
        texts = []
        for marked, text in ((self.exhausted, EXHAUSTED), (self.unsettled, ASTRAY_COLUMN)):
            if marked.any():
                texts.append(text.format(", ".join(np.array(names)[marked])))
        return " ".join(texts) or None

    def settings(self, names: Sequence[str]) -> dict[str, Any]:
        """Return everything as plain numbers and texts."""
        plain = {
            "neighbours": list(self.picked),
            "explained": self.explained.tolist(),
            "explained_sd": self.explained_sd.tolist(),
            "last": self.last.tolist(),
        }
        warning = self.warning(names)
        return plain if warning is None else plain | {"warning": warning}


def explained_table(settings: Mapping[str, Any], names: Sequence[str], alpha: float) -> pd.DataFrame:
    """Return the shares with intervals of level ``1 - alpha``, a row for each target."""
    share, sd = (np.array(settings[name], dtype=np.float64) for name in ("explained", "explained_sd"))
    reach = upper_quantile(alpha / 2.0) * sd
    table = {
        "neighbours": np.array(settings["neighbours"], dtype=np.int64),
        "explained": np.clip(share, 0.0, 1.0),
        "lower": np.clip(share - reach, 0.0, 1.0),
        "upper": np.clip(share + reach, 0.0, 1.0),
        "last_quarter": np.array(settings["last"], dtype=np.float64),
    }
    return pd.DataFrame(table, list(names))
