r"""Correlations of columns, for refits and precision columns of parties with parts of their own.

Where every interval has the budget to itself, one Gram matrix of all columns, each clipped at c alone, serves
them all: any m of its columns form a matrix of l2 sensitivity sqrt 2 m c^2, so that what one interval uses of
p columns costs (m / p)^2 of the whole. Under one joint budget that would be far too dear: then the columns
of a refit, and the union of those that the targets' precision columns use, have Gram matrices of their own,
of vectors shrunk to the norm sqrt(1.4 m).

Precision columns are pooled, or a party's own where the laws of the columns differ between parties.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privinf.lasso.precision import correlations, floored
from privinf.lasso.sums import SparseSums
from privinf.lasso.thresholding import GRAM_ROOM
from privinf.typing import Floats

COLUMN_CLIP = 1.0
# Shares of the price for the refits of the shared part and of the own parts, where they are separate.
SHARED_PART, OWN_PART = 0.12, 0.20


@dataclass(frozen=True, slots=True, eq=False)
class Correlations:
    """Correlations (p, p), and variances of their errors; the identity where nothing was released."""

    values: Floats
    variances: Floats


@dataclass(slots=True)
class MachineGrams:
    """Releases of Gram matrices.

    Attributes
    ----------
    pooled : SparseSums
    parties : mapping of str to SparseSums
    price : float
        What one interval uses, zCDP; with `joint` of all there is.
    size : int
        Columns that one interval uses at most.
    joint, machine : bool
        Whether one budget is for everything; whether precision columns are each party's own.

    Notes
    -----
    **Privacy.** Spends `price` times `gram_factor`.
    """

    pooled: SparseSums
    parties: Mapping[str, SparseSums]
    price: float
    size: int
    joint: bool
    machine: bool
    _whole: dict[str, Correlations]

    def shared_root(self, support: Sequence[int]) -> Floats:
        """Return L^-T of the pooled correlations L L' of the columns picked for the shared part."""
        if self.joint or self.machine:
            return whitener(self._part(self.pooled, support, SHARED_PART * self.price).values, support)
        return whitener(self._all("").values, support)

    def own_root(self, name: str, columns: Sequence[int], share: float) -> Floats:
        """Return the same of a party's columns; `share` is that of this refit among all its refits."""
        if self.joint:
            price = OWN_PART * share * self.price
            return whitener(self._part(self.parties[name], columns, price).values, columns)
        return whitener(self._all(name if self.machine else "").values, columns)

    def precision(self, members: Mapping[str, Sequence[int]]) -> dict[str, Correlations]:
        """Return correlations among every party's members: columns of fits, targets, neighbours."""
        if not self.joint:
            return {name: self._all(name if self.machine else "") for name in members}
        price = (1.0 - SHARED_PART - OWN_PART) * self.price
        if self.machine:
            return {name: self._part(self.parties[name], used, price) for name, used in members.items()}
        union = sorted({j for used in members.values() for j in used})
        return dict.fromkeys(members, self._part(self.pooled, union, price))

    def _all(self, name: str) -> Correlations:
        """Return correlations of all columns, of one party or (no name) of all rows; released once."""
        if name not in self._whole:
            sums, p = self.parties.get(name, self.pooled), len(self.pooled.units.scale)
            part = 1.0 - SHARED_PART if self.machine else 1.0
            gram, sd = sums.gram(
                range(p), math.inf, part * self.price * (p / self.size) ** 2, "Gram matrix of all columns",
                bound=COLUMN_CLIP,
            )  # fmt: skip
            self._whole[name] = Correlations(*correlations(gram, sd))
        return self._whole[name]

    def _part(self, sums: SparseSums, columns: Sequence[int], rho: float) -> Correlations:
        norm = math.inf if math.isinf(rho) else math.sqrt(GRAM_ROOM * len(columns))
        gram, sd = sums.gram(columns, norm, rho, "Gram matrix of some columns")
        p, at = len(self.pooled.units.scale), np.ix_(columns, columns)
        found = Correlations(np.eye(p), np.zeros((p, p)))
        found.values[at], found.variances[at] = correlations(gram, sd)
        return found


def machine_grams(
    pooled: SparseSums,
    parties: Mapping[str, SparseSums],
    price: float,
    size: int,
    *,
    joint: bool,
    machine: bool,
) -> MachineGrams:
    """Return the releases of a fit; nothing is released yet."""
    return MachineGrams(pooled, parties, price, size, joint, machine, {})


def gram_factor(p: int, size: int, *, joint: bool, machine: bool) -> float:
    """Return what all Gram matrices cost where one interval, which uses `size` columns, pays 1."""
    if joint:
        return 1.0
    whole = (p / size) ** 2
    return SHARED_PART + (1.0 - SHARED_PART) * whole if machine else whole


def whitener(gram: Floats, support: Sequence[int]) -> Floats:
    """Return L^-T of the correlations L L' of some columns."""
    part = floored(gram[np.ix_(support, support)])
    return np.asarray(np.linalg.inv(np.linalg.cholesky(part)).T)
