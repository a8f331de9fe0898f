r"""Parties whose coefficients share a part: u from all rows, v_i from party i's, intervals for each party.

1. Sizes of the columns, and one Gram matrix of all columns on all rows, each clipped at c alone: any m of its
   columns form a matrix of l2 sensitivity sqrt 2 m c^2, so that what an interval uses of it has a price of
   its own (m of p entries of a vector likewise). Scaled to correlations; see `correlations`.
2. u: columns picked and fitted on all rows, the parties' own parts being noise.
3. v_i: columns picked on party i's residuals in blocks, each fitted before the next: `machine_own`.
4. Scores of single targets, their slopes and variances; precision columns from the pooled correlations, with
   the party's picked columns in them: `machine_scores`.

Sizes of residuals only set clips.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privinf.engines.hard_thresholding import PRODUCT_CLIP
from privinf.engines.machine_own import OwnFit, Shared, clipped_step, own_fits, whitener
from privinf.engines.machine_scores import ScorePrices, machine_scores
from privinf.engines.sparse_sums import SparseSums
from privinf.inference.sparse.debiased import Debiased
from privinf.inference.sparse.precision import correlations
from privinf.typing import Floats

COLUMN_CLIP = 1.0
SHARED_STEPS = (0.2, 0.3, 0.5)
# Of the price of all sizes: of columns, of residuals on all rows, on a party's after a block and at the end.
SIZES, POOLED_LOOKS, BLOCK_LOOKS, LAST_LOOK = 0.35, 0.30, 0.10, 0.25


@dataclass(frozen=True, slots=True)
class MachineBudget:
    """Prices, zCDP, of what one interval uses: a party's rows pay for shared and own parts alike."""

    selection: float
    refit: float
    scales: float
    own_selection: float
    own_refit: float
    neighbours: float
    gram: float
    slopes: float
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class MachineFits:
    """Everything released: the shared fit, and per party its fit, its debiased targets, its columns."""

    shared: list[int]
    shared_beta: Floats
    own: Mapping[str, OwnFit]
    debiased: Mapping[str, Debiased]
    columns: Mapping[str, Floats]
    gram: Floats


def machine_fits(
    pooled: SparseSums,
    parties: Mapping[str, SparseSums],
    targets: Sequence[int],
    budget: MachineBudget,
    *,
    shared_sparsity: int,
    own_sparsity: int,
    neighbours: int = 3,
    extra: tuple[int, int] = (1, 2),
) -> MachineFits:
    """Return the fits of all parties.

    Parameters
    ----------
    pooled : SparseSums
        Over all rows; its units, which the parties share, are refined.
    parties : mapping of str to SparseSums
        Over each party's rows.
    targets : sequence of int
    budget : MachineBudget
    shared_sparsity, own_sparsity : int
    neighbours : int
    extra : (int, int)
        Columns picked too many, for the shared and the own parts.

    Notes
    -----
    **Privacy.** Prices are those of one interval: a release of m coordinates at once is charged m times the
    price of one, which is what the ledger shows.
    """
    p = len(pooled.units.scale)
    size = interval_columns(shared_sparsity, own_sparsity, extra, neighbours)
    pooled.size_columns(range(p), SIZES * budget.scales * p / size)
    gram, gram_sd = pooled.gram(
        range(p), math.inf, budget.gram * (p / size) ** 2, "Gram matrix of all columns", bound=COLUMN_CLIP
    )
    gram, spread = correlations(gram, gram_sd)
    shared = _shared(pooled, gram, budget, shared_sparsity, extra[0])
    looks = BLOCK_LOOKS * budget.scales, LAST_LOOK * budget.scales
    own = own_fits(
        parties, gram, shared, budget.own_selection, budget.own_refit, looks, own_sparsity, extra[1]
    )
    near = _neighbours(pooled, targets, shared.support, neighbours, budget.neighbours)
    debiased, columns = machine_scores(
        parties, gram, spread, own, targets, near, ScorePrices.of(budget.slopes, budget.score)
    )
    return MachineFits(shared.support, shared.beta, own, debiased, columns, gram)


def interval_columns(shared: int, own: int, extra: tuple[int, int], neighbours: int) -> int:
    """Return how many columns of the Gram matrix one interval uses at most."""
    return shared + own + sum(extra) + neighbours + 1


def _shared(pooled: SparseSums, gram: Floats, budget: MachineBudget, sparsity: int, extra: int) -> Shared:
    p, look = len(gram), POOLED_LOOKS * budget.scales / 3.0
    scale = pooled.residual_scale((), np.empty(0), look, "scale of the response")
    support = pooled.pick(
        (), np.empty(0), PRODUCT_CLIP * scale, min(sparsity + extra, p), np.ones(p, dtype=bool),
        budget.selection, "selection of the shared part",
    )  # fmt: skip
    root, beta, spread = whitener(gram, support), np.zeros(len(support)), 0.0
    free, last = range(len(support)), len(SHARED_STEPS) - 1
    for place, share in enumerate(SHARED_STEPS):
        beta, spread = clipped_step(pooled, support, beta, free, root, scale, share * budget.refit)
        if place in (0, last):
            scale = pooled.residual_scale(support, beta, look, "scale of residuals")
    kept = np.sort(np.argsort(-np.abs(beta), kind="stable")[:sparsity])
    cov = (spread * root @ root.T)[np.ix_(kept, kept)]
    return Shared([support[i] for i in kept], beta[kept], cov, scale)


def _neighbours(
    pooled: SparseSums, targets: Sequence[int], shared: list[int], count: int, rho: float
) -> list[list[int]]:
    allowed = np.ones((len(targets), len(pooled.units.scale)), dtype=bool)
    allowed[:, shared] = False
    allowed[np.arange(len(targets)), list(targets)] = False
    count = min(count, int(allowed.sum(axis=1).min()))
    if count == 0:
        return [[] for _ in targets]
    return pooled.neighbours(targets, count, allowed, rho * len(targets))
