"""A debiased lasso on secure sums: its server, its budget, and the detection limits of its selections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privinf.accounting import Ledger
from privinf.federation import SecureServer
from privinf.inference.estimate import upper_quantile
from privinf.lasso.debiasing import DebiasedFit
from privinf.lasso.fit import SparseFit
from privinf.lasso.plan import LassoPlan
from privinf.lasso.rows import LassoRows
from privinf.lasso.selection import SelectionRelease, VectorServer, sharpest
from privinf.typing import RngLike
from privinf.wire import Labels, readable

SELECTION = Labels.SELECTION
NEIGHBORS = Labels.NEIGHBOURS
# Probability that any column without signal stands out of its error.
FALSE_SELECTION_RATE = 0.05
HARMLESS_BIAS = 0.5  # a bias of this many standard errors leaves 95% intervals a coverage of 92%

HIDDEN_GRAM = (
    "The intervals are not reliable, because the noise of the selection's Gram matrix is as large as its "
    "smallest eigenvalue; keep fewer columns, increase the budget, or increase the share of the refit with "
    "shares=."
)
FAR_FROM_CONVERGED = "The coefficients may be far from those of a converged fit."
TOO_MANY_STAND_OUT = (
    "The intervals are not reliable, because more columns stand out from the noise than sparsity= allows; "
    "raise sparsity=, or use more rows, a larger budget, fewer columns, or a trusted server."
)
CAUSE_OF_MANY = (
    "Either a column that matters was missed and others are correlated with it, or more columns matter."
)
MAY_BE_MISSED = (
    "The intervals are not reliable if as many columns matter as sparsity= allows. Of these columns, {} may "
    "have been missed, and the interval of a target correlated with one is off by up to {:.2g} standard "
    "errors."
)
DETECTED_FROM = "A column may have been missed where its covariance with the residuals is below {:.3g}."
REMEDY = (
    "Use more rows, a larger budget, fewer columns or a trusted server; if fewer columns matter, pass a "
    "smaller sparsity=."
)
SELECTED_FROM_SUMS = (
    "Without a trusted server, columns were selected from noisy sums of the products of the residuals or "
    "targets with all {} columns."
)
NOISE_GROWS = "The noise of these sums grows with the square root of the number of columns."


def secure_server(rows: LassoRows, ledger: Ledger, rng: RngLike, max_colluding: int) -> SecureServer:
    """Return the server of a fit."""
    design = None if rows.design.schema is None else rows.design
    return SecureServer(rows.federation, max_colluding=max_colluding, ledger=ledger, rng=rng, design=design)


def vector_server(server: SecureServer, rows: LassoRows, clip: float) -> VectorServer:
    """Return the same server with vectors in the place of peeling."""
    design = server.design
    low = rows.center - rows.half
    high = rows.center + rows.half
    assert design.y_low is not None
    assert design.y_high is not None
    largest = max(abs(design.y_low), abs(design.y_high))
    return VectorServer(server=server, n=server.nobs, low=low, high=high, response=largest, clip=clip)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Detection limits of the selections of a secure fit.

    Attributes
    ----------
    releases : tuple of SelectionRelease
        Every release that columns were selected from, in order.
    unseen : int
        Number of the `sparsity` possible signals that do not stand out: this many may be missed.
    bias : float
        Bound on their effect on an interval, in standard errors.
    crowded : bool
        Whether columns other than the kept ones stand out.
    hidden : bool
        Whether the noise of the selection's Gram matrix is as large as its smallest eigenvalue.
    """

    releases: tuple[SelectionRelease, ...]
    unseen: int
    bias: float
    crowded: bool
    hidden: bool

    @property
    def weak(self) -> bool:
        """Whether intervals may be wrong."""
        return self.bias > HARMLESS_BIAS or self.crowded or self.hidden

    def settings(self) -> dict[str, Any]:
        """Return everything as plain numbers and texts."""
        plain = {
            "looks": [asdict(release) for release in self.releases],
            "unseen": self.unseen,
            "bias": self.bias,
        }
        return plain | ({"missed": self.warning} if self.weak else {})

    @property
    def warning(self) -> str:
        """One sentence that a reader of the intervals must know."""
        if self.hidden:
            return HIDDEN_GRAM
        if self.bias <= HARMLESS_BIAS:
            return TOO_MANY_STAND_OUT
        return MAY_BE_MISSED.format(self.unseen, self.bias)

    @property
    def details(self) -> tuple[str, ...]:
        """Further sentences: the cause, and what to do."""
        if self.hidden:
            return (FAR_FROM_CONVERGED,)
        if self.bias <= HARMLESS_BIAS:
            return (CAUSE_OF_MANY,)
        selection = sharpest(self.releases, SELECTION)
        assert selection is not None
        return DETECTED_FROM.format(selection.found_from), REMEDY


def cost_notes(releases: Sequence[SelectionRelease], columns: int) -> tuple[str, ...]:
    """Return sentences on the noise of secure sums from which columns were selected."""
    texts = [SELECTED_FROM_SUMS.format(columns), NOISE_GROWS]
    for label, unit in ((SELECTION, "a covariance with the residuals"), (NEIGHBORS, "a correlation")):
        if (selection := sharpest(releases, label)) is not None:
            title = readable(label).capitalize()
            texts.append(
                f"{title}: {selection.entries} noisy numbers, with noise of standard deviation "
                f"{selection.sd:.3g} in each; {unit} is detected from {selection.found_from:.3g} on."
            )
    return tuple(texts)


def detection_of(
    server: VectorServer,
    fit: SparseFit,
    plan: LassoPlan,
    targets: Sequence[int],
    debiased: DebiasedFit,
    constant: int | None,
) -> Detection:
    """Return the detection limits of the selections; the constant, if there is one, was not selected.

    Notes
    -----
    **Privacy.** Post-processing.

    A column k that was not selected, with a coefficient of b, moves the estimate of target j by
    ``w_j'Sigma_k b``, w_j the nodewise regression: not at all if k is in w_j, else by about w_jj times their
    correlation given the others. A column was missed only if its covariance with the residuals was below
    the detection limit, and it is in no w_j only if the correlation was.

    Columns that stand in for a missed one stand out too: the number that stands out may then equal the
    sparsity, but includes extra columns. Without signal, these have the errors of any column, and were
    selected because of the noise of their release.
    """
    selection = sharpest(server.releases, SELECTION)
    neighbors = sharpest(server.releases, NEIGHBORS)
    assert selection is not None
    selected = np.array(fit.selected) != (-1 if constant is None else constant)
    sizes = np.sort((np.abs(fit.selected_beta) / fit.selected_errors)[selected])[::-1]
    sparsity = plan.sparsity
    critical = upper_quantile(FALSE_SELECTION_RATE / 2.0 / len(server.low))
    spare = max(len(sizes) - sparsity, 1)
    share = selection.sampling_sd / selection.sd
    quiet = min(critical, upper_quantile(FALSE_SELECTION_RATE / 2.0 / spare) + share * critical)
    unseen = max(sparsity - int((sizes > critical).sum()), 0)
    correlation = 1.0 if neighbors is None else min(neighbors.found_from, 1.0)
    at = [debiased.union.index(j) for j in targets]
    precision = debiased.columns[at, np.arange(len(at))] ** 2
    errors = np.sqrt(debiased.coordinates.variance)
    bias = unseen * selection.found_from * correlation * precision / errors
    crowded = bool((sizes[sparsity:] > quiet).any())
    return Detection(
        releases=tuple(server.releases),
        unseen=unseen,
        bias=float(bias.max()),
        crowded=crowded,
        hidden=fit.gram_clearance <= 1.0,
    )
