"""The debiased lasso where parties have parts of their own: request, fit, results by party."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import ConcentratedLoss, PrivacyReport
from privinf.engines.machine_parts import (
    SIZES,
    MachineBudget,
    MachineFits,
    interval_columns,
    machine_fits,
)
from privinf.engines.machine_scores import MEAN_SHARE
from privinf.engines.sparse_sums import SparseSums, Units
from privinf.errors import ArgumentError
from privinf.inference.estimate import Estimate
from privinf.inference.sparse.joint import joint_covariance, score_correlation
from privinf.models.debiased_lasso_machine_shares import MachineSize, machine_shares
from privinf.models.debiased_lasso_plan import ROUNDING
from privinf.models.debiased_lasso_results import LassoResults
from privinf.validation import check_count, check_positive

# Rows that default shares are made for where the parties' are not given.
TYPICAL_ROWS, TYPICAL_PARTIES = 4000, 15
EXTRA = (1, 2)


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

    Notes
    -----
    **Privacy.** Post-processing of releases.
    """

    labels: tuple[Any, ...]
    shared_params: pd.Series[float]
    privacy: PrivacyReport
    interval_epsilon: float
    results: Mapping[Any, LassoResults]

    def machine(self, label: Any) -> LassoResults:
        """Return the results of one party, by its label (ArgumentError if there is none)."""
        if label not in self.results:
            raise ArgumentError(
                f"no party is called {label!r}; there are {', '.join(map(repr, self.labels))}"
            )
        return self.results[label]

    def __repr__(self) -> str:
        joint = f"joint epsilon {self.privacy.epsilon():.4g} at delta {self.privacy.default_delta:g}"
        alone = f"{self.interval_epsilon:.4g} for one interval"
        return f"<MachineResults of {len(self.labels)} parties: {joint}, {alone}>"


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """A checked request: prices of one interval, and what everything together costs in zCDP."""

    budget: MachineBudget
    shared: int
    own: int
    neighbours: int
    joint: float


def check_machine_plan(
    rho: float,
    *,
    sparsity: int,
    shared_sparsity: int | None,
    neighbours: int,
    shares: Mapping[str, float] | None,
    targets: int,
    p: int,
    rows: Sequence[int] = (TYPICAL_ROWS,) * TYPICAL_PARTIES,
) -> MachinePlan:
    """Return the plan of a heterogeneous fit; ArgumentError says what is wrong with the request.

    `rows` are the parties' numbers of rows, which the default shares depend on.
    """
    if shared_sparsity is None:
        raise ArgumentError("heterogeneous=True needs shared_sparsity=: the part of sparsity that is shared")
    shared = check_count(shared_sparsity, "shared_sparsity")
    if shared >= sparsity:
        raise ArgumentError(f"shared_sparsity={shared} must be less than sparsity={sparsity}")
    if shared + EXTRA[0] + sparsity - shared + EXTRA[1] > p:
        raise ArgumentError(f"sparsity={sparsity} is too much for {p} columns: {sum(EXTRA)} more are picked")
    names = [one.name for one in fields(MachineBudget)]
    given: Mapping[str, float] | None = shares
    if given is None:
        size = MachineSize(
            sum(rows), int(np.median(rows)), p, shared + EXTRA[0], sparsity - shared + EXTRA[1], sparsity,
            neighbours,
        )  # fmt: skip
        given = machine_shares(rho if math.isfinite(rho) else 1.0, size)
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise ArgumentError(f"shares must map each of {', '.join(names)} to its share")
    for name, share in given.items():
        check_positive(share, f"shares[{name!r}]")
    if abs(sum(given.values()) - 1.0) > 1e-9:
        raise ArgumentError(f"shares sum to {sum(given.values()):.6g}: they must sum to one")
    columns = interval_columns(shared, sparsity - shared, EXTRA, neighbours)
    joint = math.inf if math.isinf(rho) else rho * joint_factor(given, targets, p, columns)
    budget = MachineBudget(**{name: share * rho * ROUNDING for name, share in given.items()})
    return MachinePlan(budget, shared, sparsity - shared, neighbours, joint)


def joint_factor(shares: Mapping[str, float], targets: int, p: int, columns: int) -> float:
    """Return what everything together costs where one interval, which uses so many columns, costs 1."""
    many = {
        "neighbours": float(targets),
        "slopes": MEAN_SHARE + (1.0 - MEAN_SHARE) * targets,
        "score": float(targets),
        "gram": (p / columns) ** 2,
        "scales": 1.0 - SIZES + SIZES * p / columns,
    }
    return sum(share * many.get(name, 1.0) for name, share in shares.items())


def fit_machines(server: Any, units: Units, plan: MachinePlan, targets: Sequence[int]) -> MachineFits:
    """Return the engine's fits over a trusted server's sites."""
    parties = {name: SparseSums(server, units, rows, (name,)) for name, rows in server.rows.items()}
    return machine_fits(
        SparseSums(server, units, server.nobs), parties, targets, plan.budget,
        shared_sparsity=plan.shared, own_sparsity=plan.own, neighbours=plan.neighbours, extra=EXTRA,
    )  # fmt: skip


def machine_results(
    fits: MachineFits,
    units: Units,
    targets: Sequence[int],
    names: Sequence[str],
    labels: Mapping[str, Any],
    rows: Mapping[str, int],
    report: PrivacyReport,
    epsilon: float,
) -> MachineResults:
    """Return results by party, in the user's units."""
    shared = np.zeros(len(names))
    shared[fits.shared] = fits.shared_beta / units.scale[fits.shared]
    options = {
        "Accounting": "per interval", "Epsilon of one interval": f"{epsilon:.4g}",
        "Joint epsilon": f"{report.epsilon():.4g}", "Parties": str(len(rows)),
    }  # fmt: skip
    results = {}
    for site, size in rows.items():
        fit, found = fits.own[site], fits.debiased[site]
        unit = units.scale[list(targets)]
        back = np.outer(unit, unit)
        correlation = score_correlation(fits.columns[site], fits.gram)
        sampling = joint_covariance(correlation, found.sampling, np.zeros(len(unit)))
        kept = sorted((fit.support[i], float(fit.beta[i])) for i in fit.kept)
        sparse = {
            "columns": list(names),
            "positions": [j for j, _ in kept],
            "values": [value / float(units.scale[j]) for j, value in kept],
            "scale": fit.scale,
        }
        results[labels[site]] = LassoResults(
            Estimate(
                found.params / unit,
                (sampling + np.diag(found.privacy)) / back,
                tuple(names[j] for j in targets),
                size,
                noise_cov=np.diag(found.privacy / unit**2),
                cov_type="HC0",
            ),
            report=report,
            sampling_cov=sampling / back,
            model="DebiasedLasso",
            method=f"debiased lasso, party {labels[site]}",
            options=options,
            settings={"sparse": sparse},
            notes=(
                "Noise is calibrated for each interval alone: the guarantee for everything released together "
                "is the joint epsilon of the privacy block.",
            ),
        )
    series = pd.Series(shared, list(names), name="shared_params")
    return MachineResults(tuple(results), series, report, epsilon, results)


def joint_loss(plan: MachinePlan) -> ConcentratedLoss:
    """Return what the whole request costs."""
    return ConcentratedLoss(plan.joint)
