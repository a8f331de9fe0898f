"""A debiased lasso on secure sums: its server, its budget, and what its picks could not have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privinf.accounting import Ledger, calibrate_mu
from privinf.engines.debiasing import DebiasedFit
from privinf.engines.hard_thresholding import SparseFit
from privinf.engines.secure_picks import Look, VectorServer, sharpest
from privinf.federation import SecureServer
from privinf.models.debiased_lasso_plan import LassoPlan
from privinf.models.debiased_lasso_rows import LassoRows
from privinf.typing import RngLike

SELECTION, NEIGHBOURS = "selection", "neighbours of the targets"
# A bias of so many standard errors leaves 95% intervals 92%.
HARMLESS = 0.5


def secure_plan(plan: LassoPlan, epsilon: float) -> LassoPlan:
    """Return the plan with the budget of Gaussian releases alone, which is more than that of any zCDP."""
    mu = calibrate_mu(epsilon=epsilon, delta=plan.delta)
    return replace(plan, rho=mu * mu / 2.0)


def secure_server(
    rows: LassoRows, ledger: Ledger, rng: RngLike, max_colluding: int, clip: float
) -> tuple[VectorServer, int]:
    """Return the server of a fit, and the number of records."""
    known = None if rows.design.schema is None else rows.design
    server = SecureServer(rows.federation, max_colluding=max_colluding, ledger=ledger, rng=rng, design=known)
    design = server.design
    low, high = np.array(design.low), np.array(design.high)
    if design.constant is not None:
        low[design.constant] = high[design.constant] = 1.0
    assert design.y_low is not None
    assert design.y_high is not None
    most = max(abs(design.y_low), abs(design.y_high))
    return VectorServer(server, server.nobs, low, high, most, clip), server.nobs


@dataclass(frozen=True, slots=True)
class Sight:
    """What the picks of a secure fit could see.

    Attributes
    ----------
    looks : tuple of Look
        Every release that columns were picked from, in order.
    unseen : int
        Of the `sparsity` columns that may matter, those that do not stand out: so many may not be picked.
    bias : float
        Bound of what these can do to an interval, in standard errors.
    """

    looks: tuple[Look, ...]
    unseen: int
    bias: float

    @property
    def weak(self) -> bool:
        """Whether intervals may be wrong."""
        return self.bias > HARMLESS

    def settings(self) -> dict[str, Any]:
        """Return everything as plain numbers and texts."""
        looks = [
            {"release": look.label, "entries": look.entries, "radius": look.radius, "sd": look.sd,
             "found_from": look.found_from} for look in self.looks
        ]  # fmt: skip
        found: dict[str, Any] = {"looks": looks, "unseen": self.unseen, "bias": self.bias}
        return found | ({"missed": self.warning} if self.weak else {})

    @property
    def warning(self) -> str:
        """What a reader of the intervals must know."""
        found = sharpest(self.looks, SELECTION)
        assert found is not None
        return (
            f"Not to be trusted if the sparsity is right: {self.unseen} of the columns that may matter do "
            "not stand out of the noise, and one whose covariance with the residuals is below "
            f"{found.found_from:.3g} may not have been picked. Where such a column is correlated with a "
            f"target the interval is off by up to {self.bias:.2g} standard errors. More rows or budget, "
            "fewer columns or a trusted server see more; if fewer columns matter, say so with sparsity=."
        )


def cost_note(looks: Sequence[Look], columns: int) -> str:
    """Return what the summary says of the price of secure sums."""
    text = [
        f"No trusted server: columns were picked from noisy sums of products with all {columns} columns, "
        "whose noise grows with the square root of their number."
    ]
    for label, unit in ((SELECTION, "a covariance with the residuals"), (NEIGHBOURS, "a correlation")):
        if (look := sharpest(looks, label)) is not None:
            text.append(
                f"{label.capitalize()}: {look.entries} numbers at once, sd {look.sd:.3g}; {unit} is found "
                f"from {look.found_from:.3g} on."
            )
    return " ".join(text)


def refilled(fit: SparseFit, sparsity: int, fixed: int) -> SparseFit:
    """Return the fit with the `sparsity` largest of all coefficients that were picked, and the `fixed`."""
    order = fixed + np.argsort(-np.abs(fit.picked_beta[fixed:]), kind="stable")[:sparsity]
    kept = np.concatenate([np.arange(fixed), np.sort(order)]).astype(int)
    return replace(fit, support=[fit.picked[i] for i in kept], beta=fit.picked_beta[kept])


def sight_of(looks: Sequence[Look], unseen: int, targets: Sequence[int], debiased: DebiasedFit) -> Sight:
    """Return what the picks could see.

    Notes
    -----
    **Privacy.** Post-processing.

    A column k that was not picked, with a coefficient of b, moves the estimate of target j by
    ``w_j'Sigma_k b``, w_j the precision column: not at all if k is in w_j, else by about w_jj times their
    correlation given the others. A column was missed only if its covariance with the residuals was below
    what is found, and it is in no w_j only if the correlation was.
    """
    selection, neighbours = sharpest(looks, SELECTION), sharpest(looks, NEIGHBOURS)
    assert selection is not None
    correlation = 1.0 if neighbours is None else min(neighbours.found_from, 1.0)
    at = [debiased.union.index(j) for j in targets]
    precision = debiased.columns[at, np.arange(len(at))] ** 2
    errors = np.sqrt(debiased.found.variance)
    bias = unseen * selection.found_from * correlation * precision / errors
    return Sight(tuple(looks), unseen, float(bias.max()))
