r"""The paper's own algorithms for parties whose coefficients are u + v_i.

- Algorithm 8: u by Algorithm 2 on all rows, sparsity s0; then v_i by Algorithm 2 on party i's rows, the
  response being what X_i u leaves of it.
- Algorithm 9: precision columns by Algorithm 3 on all rows (all parties are taken to share one covariance),
  the coordinate of equation 5.1 and its interval with party i's own n_i: score sensitivity 2 R_w R/n_i.
- Algorithm 10: q multiplier draws a party, ``U = PrivateMax_j |n_i^-1/2 sum_rows e w_j'x r|``, e random signs
  that are drawn first and public, so that the sensitivity is 2 R_w R/sqrt n_i.

The paper's sigma^2 is one for all parties: party i's mean squared residual, averaged over the rows of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from privinf.lasso.radii import UNCLIPPED
from privinf.lasso.sums import SparseSums
from privinf.typing import Floats
from studies.paper.engine import (
    PaperBudget,
    PaperCoordinates,
    PaperTuning,
    PeelingServer,
    SparseVector,
    mean_square,
    paper_column,
    paper_debiased,
    paper_fit,
    paper_refit,
    paper_score,
    positive_variance,
)


@dataclass(frozen=True, slots=True)
class PaperSizes:
    """Public sizes of a heterogeneous fit: s0, s - s0, entries of a precision column, multiplier draws."""

    shared: int
    own: int
    precision: int
    draws: int = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PaperMachineFits:
    """Everything released, in the units of the sums.

    Attributes
    ----------
    shared : SparseVector
        u.
    own : mapping of str to SparseVector
        u + v_i by party.
    columns : tuple of SparseVector
        Precision columns of the targets, shared by all parties.
    variance : float
        Of the errors.
    debiased : mapping of str to PaperCoordinates
    draws : mapping of str to ndarray, shape (q,)
        Multiplier draws of the largest score; empty where none were asked for.
    """

    shared: SparseVector
    own: Mapping[str, SparseVector]
    columns: tuple[SparseVector, ...]
    variance: float
    debiased: Mapping[str, PaperCoordinates]
    draws: Mapping[str, Floats]


def paper_machine_fits(
    pooled: SparseSums,
    parties: Mapping[str, SparseSums],
    targets: Sequence[int],
    sizes: PaperSizes,
    budget: PaperBudget,
    tuning: PaperTuning,
    *,
    refit: bool = False,
    robust: bool = False,
    public_seed: int = 0,
) -> PaperMachineFits:
    """Return the fits of all parties.

    Parameters
    ----------
    pooled : SparseSums
        Over all rows.
    parties : mapping of str to SparseSums
        Over each party's rows, which are disjoint.
    targets : sequence of int
    sizes : PaperSizes
    budget : PaperBudget
        Prices of one interval: k coordinates and columns cost k times as much, which the ledger shows.
    tuning : PaperTuning
    refit, robust : bool
        As for one population.
    public_seed : int
        Of the multipliers; draw d has the seed public_seed + d.

    Raises
    ------
    NotAvailableError
        The noise leaves a variance without a sign.

    Notes
    -----
    **Privacy.** Replace-one. Sums over a party's rows are paid by these rows alone.
    """
    shared = paper_fit(pooled, sizes.shared, budget.fit, tuning, label="iterate of the shared part")
    if refit:
        shared = paper_refit(pooled, shared, budget.refit / 2.0, tuning)
    own = {
        name: shared.plus(_own_part(sums, shared, sizes.own, budget, tuning, refit=refit))
        for name, sums in parties.items()
    }
    columns = tuple(paper_column(pooled, j, sizes.precision, budget.precision, tuning) for j in targets)
    squares = [
        sums.n * mean_square(sums, own[name], budget.variance, tuning) for name, sums in parties.items()
    ]
    variance = positive_variance(sum(squares) / sum(sums.n for sums in parties.values()))
    debiased = {
        name: paper_debiased(sums, own[name], columns, targets, variance, budget, tuning, robust=robust)
        for name, sums in parties.items()
    }
    draws = {
        name: multiplier_draws(sums, own[name], columns, sizes.draws, budget.multiplier, tuning, public_seed)
        for name, sums in parties.items()
    }
    return PaperMachineFits(
        shared=shared, own=own, columns=columns, variance=variance, debiased=debiased, draws=draws
    )


def _own_part(
    sums: SparseSums,
    shared: SparseVector,
    sparsity: int,
    budget: PaperBudget,
    tuning: PaperTuning,
    *,
    refit: bool,
) -> SparseVector:
    """Return v_i, u held fixed."""
    found = paper_fit(sums, sparsity, budget.own, tuning, held=shared, label="iterate of own parts")
    return paper_refit(sums, found, budget.refit / 2.0, tuning, held=shared) if refit else found


def multiplier_draws(
    sums: SparseSums,
    fit: SparseVector,
    columns: Sequence[SparseVector],
    draws: int,
    rho: float,
    tuning: PaperTuning,
    public_seed: int,
) -> Floats:
    """Return Algorithm 10's noisy maxima of ``|n^-1/2 sum e w_j'x r|`` over the columns, shape (draws,).

    Notes
    -----
    **Privacy.** One Laplace PrivateMax and its value a draw, of price rho/draws each, replace-one.
    """
    if draws == 0:
        return np.empty(0)
    score = paper_score(fit, columns, tuning)
    args = sums.args(
        score.support,
        score.beta,
        columns=np.asarray(score.columns),
        transform=score.transform,
        clip=min(score.norm, UNCLIPPED),
        residual_clip=min(score.residual, UNCLIPPED),
        draws=1,
        law="rademacher",
    )
    server = cast(PeelingServer, sums.server)
    found = np.empty(draws)
    # One question a draw: several vectors at once would be charged as one pure loss, q^2 times a draw's rho.
    for draw in range(draws):
        largest = server.top_k(
            "multiplier_scores",
            args | {"seed": public_seed + draw},
            1,
            rho=rho / draws,
            values=True,
            method="laplace",
            factor=float(sums.n**-0.5),
            label="multiplier draws",
            sites=sums.sites,
        )
        found[draw] = abs(float(largest.values[0, 0]))
    return found
