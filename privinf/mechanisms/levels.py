r"""The levels of a factor by noisy counts: which labels occur, without naming what a single record has.

Each label that occurs gets its count plus noise of sd sigma = sqrt(2)/mu, and is shown where that passes

    tau = 1 + sigma z(1 - delta').

Replace one record. (a) Its old and its new label both occur in both tables: two counts move by 1, sqrt(2) in
l2, mu-GDP. (b) The old label is in one table alone, where its count is 1: it is shown with probability
P(1 + noise > tau) <= delta', and but for that the new label's count moves by 1, (mu/sqrt 2)-GDP. (c) Neither
label is in the other table: each table may show one label, with probability delta', and all else is equal.
So delta(eps) is at most the larger of delta_mu(eps) and delta' + delta_(mu/sqrt 2)(eps), not their sum: in
(a) no label appears that the other table could not show (`privinf.accounting.losses.ThresholdLoss`). At
(1, 10^-6) the last term is 5 10^-11: nearly all of delta can be delta'.

The discrete Gaussian on the noise's grid has the Gaussian's tail up to half a step; tau is higher by four.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import ndtri

from privinf.accounting import GaussianLoss, LedgerEntry, ThresholdLoss
from privinf.errors import SchemaError
from privinf.mechanisms.gaussian import PUBLIC_N, Line, Spending
from privinf.schema.reading import as_frame
from privinf.typing import Floats, Integers, Table

ROOT_TWO = math.sqrt(2.0)
# Of the sd, what the grid may take of the tail.
GRID_ROOM = 2.0**-18


@dataclass(frozen=True, slots=True, eq=False)
class NoisyLevels:
    """Labels that were shown.

    Attributes
    ----------
    labels : tuple of str
        In alphabetical order.
    counts : ndarray
        Their noisy counts.
    threshold : float
    sd : float
        Of the noise of a count.
    n : int
        All rows.
    """

    labels: tuple[str, ...]
    counts: Floats
    threshold: float
    sd: float
    n: int


class OpenLabels:
    """One column of labels, read and checked once.

    Raises
    ------
    SchemaError
        The column is absent, holds something else than texts, or has missing values. For the holder.

    Notes
    -----
    **Privacy.** Holds raw rows; replace-one, the number of rows is public, one row a person.
    """

    __slots__ = ("_counts", "_labels", "_name", "n")

    def __init__(self, rows: Table, name: str) -> None:
        column = as_frame(rows)[name]
        if column.isna().any():
            raise SchemaError(f"column {name!r} has missing values; clean the rows first")
        values = column.to_numpy(dtype=object)
        if not all(isinstance(value, str) for value in values):
            raise SchemaError(f"column {name!r} must hold texts to have its levels found")
        self._name, self.n = name, len(values)
        self._labels, self._counts = _counted(values)

    def levels(
        self, share: float, delta: float, spending: Spending, label: str
    ) -> tuple[NoisyLevels, tuple[LedgerEntry, ...]]:
        """Release the labels whose noisy counts pass the threshold.

        Parameters
        ----------
        share : float
            Of the call's mu^2.
        delta : float
            Largest probability that a label of one record alone is shown.
        spending : Spending
        label : str

        Returns
        -------
        levels : NoisyLevels
        entries : tuple of LedgerEntry
            As recorded.
        """
        mu = math.sqrt(share) * spending.mu
        line = Line(
            label=f"{label}, levels of {self._name}", mechanism="gaussian", sensitivity=ROOT_TWO, dimension=2,
            derivation="replace-one: two counts move by 1", mu=mu, unit="record", trust="central",
            assumptions=(PUBLIC_N,), reach=float(self.n),
        )  # fmt: skip
        scale, entry = line.calibrated(spending.source)
        if isinstance(entry.loss, GaussianLoss) and not math.isinf(mu):
            entry = replace(entry, loss=ThresholdLoss(mu, delta))
        recorded = spending.ledger.spend(entry)
        counts = self._counts.astype(np.float64)
        noisy = counts if scale == 0.0 else spending.source.perturb(counts, scale)
        threshold = show_above(scale, delta) if scale > 0.0 else 0.0
        shown = np.flatnonzero(noisy > threshold)
        labels = tuple(self._labels[at] for at in shown)
        return NoisyLevels(labels, noisy[shown], threshold, scale, self.n), recorded

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("raw rows are not pickled: pickle what was released instead")


def show_above(sd: float, delta: float) -> float:
    """Return tau: 1 and noise of this sd pass it with probability `delta` at most."""
    return 1.0 + sd * (GRID_ROOM - float(ndtri(delta)))


def _counted(values: np.ndarray) -> tuple[list[str], Integers]:
    codes, labels = pd.factorize(values, sort=True)
    return [str(label) for label in labels], np.bincount(codes, minlength=len(labels)).astype(np.int64)
