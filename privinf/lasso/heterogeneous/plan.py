"""Plan of a fit where sites have coefficients of their own: prices of one interval, checks of a request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from privinf.accounting import ConcentratedLoss
from privinf.accounting.shares import check_shares, part_of_rho
from privinf.errors import ArgumentError
from privinf.lasso.heterogeneous.scores import MEAN_SHARE
from privinf.lasso.heterogeneous.site_effects import gram_factor
from privinf.lasso.plan import Accounting
from privinf.typing import Precision
from privinf.validation import check_choice, check_count, counted

# Factor of (log p)^2 k (k + s/4) / (rho n^2) in the share for k selections; by simulation.
SELECTION_FACTOR = 6.4
ERROR_SHARE = 0.25  # factor of the sparsity s in that rule; found in simulations
NEIGHBOR_FACTOR = 5e4  # share for one neighbor, times rho n^2; found in simulations
REFERENCE = 3e5  # rho n^2 at which shares of Gram matrices and refits were found in simulations
SCALES = 0.025  # share of the price for sizes of columns and residuals
SLOPES = 0.03  # share for slopes and variances of the scores
LEAST_SCORE = 0.25  # share that is left for the scores, however large all others are
SEPARATE_GRAMS = 0.15  # share for Gram matrices where each target or site has its own
SIZES = 0.35  # share of the sizes' price for those of columns
# Shares of the total for means: of all columns, of the columns of the scores, of the response, of residuals.
# The noise of the first is in all fits; half of its share widens joint intervals by a sixth.
COLUMN_MEANS = 0.032
SCORE_COLUMN_MEANS = 0.0055
RESPONSE_MEAN = 0.0055
RESIDUAL_MEANS = 0.012  # at the reference; more where sites are small
# How often a site's constant is moved before the scores: four times in the fit of the shared part, and before
# each of the last two steps of its own part.
EARLIER_CONSTANTS = 6
FORM_MEANS = 0.01  # share of an interval's price, or of a joint one, for the means of the forms w_j'x


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteBudget:
    """Prices, zCDP, of the releases behind one interval: a site's rows pay for shared and own parts."""

    selection: float
    refit: float
    scales: float
    own_selection: float
    own_refit: float
    neighbours: float
    gram: float
    slopes: float
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanPrices:
    """Prices, zCDP, of released means; all are zero where columns stay at the middle of their bounds.

    Attributes
    ----------
    columns : float
        Of the means of all columns.
    score_columns : float
        Of the means of the columns in the scores, in units of their sizes; 0 with a budget for each interval.
    response : float
    residuals : float
        Of the mean of each site's residuals, before its own columns are selected and before its scores.
    forms : float
        Of the means of the forms w_j'x of all targets at each site.
    """

    columns: float = 0.0
    score_columns: float = 0.0
    response: float = 0.0
    residuals: float = 0.0
    forms: float = 0.0

    @classmethod
    def from_rho(cls, rho: float, rows: int, *, joint: bool) -> MeanPrices:
        """Return the prices of an interval of price `rho`, or of a joint budget.

        `rows` is the number of rows of a typical site. Rows are shrunk as a whole for the means of the
        columns in the scores, so that a few of these means can cost as much as all. With a budget for each
        interval they are therefore not released; the means of all columns, each with a bound of its own, are
        precise.
        """
        energy = rho * rows**2
        residuals = _within(RESIDUAL_MEANS * (REFERENCE / energy) ** 0.6, RESIDUAL_MEANS / 2.0, 0.05)
        return cls(
            columns=part_of_rho(rho, COLUMN_MEANS),
            score_columns=part_of_rho(rho, SCORE_COLUMN_MEANS) if joint else 0.0,
            response=part_of_rho(rho, RESPONSE_MEAN),
            residuals=part_of_rho(rho, residuals),
            forms=part_of_rho(rho, FORM_MEANS),
        )

    @property
    def constant(self) -> float:
        """Price of a site's mean residual, each of several times before the scores."""
        return 0.5 * self.residuals / EARLIER_CONSTANTS

    @property
    def last_constant(self) -> float:
        """Price of the mean of a site's residuals before the scores."""
        return 0.5 * self.residuals

    @property
    def total(self) -> float:
        """Price of all means that a site's rows pay for."""
        return self.columns + self.score_columns + self.response + self.residuals + self.forms


def interval_columns(shared: int, own_sparsity: int, extra: tuple[int, int], neighbors: int) -> int:
    """Return how many columns of the Gram matrix one interval uses at most."""
    return shared + own_sparsity + sum(extra) + neighbors + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSize:
    """The size of a request: rows of all sites and of a typical one, columns, columns selected."""

    total: int
    rows: int
    p: int
    shared: int
    own_sparsity: int
    sparsity: int
    neighbors: int


def site_shares(
    rho: float, size: RequestSize, *, targets: int = 1, joint: bool = False, own_precision: bool = False
) -> dict[str, float]:
    """Return the default shares of one interval's rho, or of a joint one; they sum to one.

    Parameters
    ----------
    rho : float
    size : RequestSize
    targets : int
        Whose intervals share a joint budget.
    joint, own_precision : bool
        Whether the budget is joint, and whether neighbors and nodewise regressions are each site's own.

    Notes
    -----
    **Privacy.** A function of public numbers.
    """
    site_energy = rho * size.rows**2
    pooled_energy = rho * size.total**2
    near = (
        NEIGHBOR_FACTOR
        * size.neighbors
        * (targets if joint else 1)
        / (site_energy if own_precision else pooled_energy)
    )
    gram = _within(0.03 * (REFERENCE / site_energy) ** 0.4, 0.02, 0.07)
    shares = {
        "selection": _within(_selection_share(size.shared, size, pooled_energy), 0.015, 0.2),
        "refit": _within(0.1 * (REFERENCE / pooled_energy) ** 0.25, 0.02, 0.12),
        "scales": SCALES,
        "own_selection": _within(_selection_share(size.own_sparsity, size, site_energy), 0.15, 0.33),
        "own_refit": _within(
            0.04 * (REFERENCE / site_energy) ** 0.25 * math.sqrt(size.own_sparsity), 0.08, 0.18
        ),
        "neighbours": _within(near, 0.004, 0.12 if joint or own_precision else 0.05),
        "gram": SEPARATE_GRAMS if joint or own_precision else gram,
        "slopes": SLOPES,
    }
    used = sum(shares.values())
    if used > 1.0 - LEAST_SCORE:
        shares = {name: share * (1.0 - LEAST_SCORE) / used for name, share in shares.items()}
    return shares | {"score": 1.0 - sum(shares.values())}


def _selection_share(selections: int, size: RequestSize, strength: float) -> float:
    return (
        SELECTION_FACTOR
        * selections
        * (selections + ERROR_SHARE * size.sparsity)
        * math.log(size.p) ** 2
        / strength
    )


def _within(share: float, low: float, high: float) -> float:
    return min(max(share, low), high)


def extra_selections(own_sparsity: int) -> tuple[int, int]:
    """Return how many extra columns are selected for the shared part and for own parts of this size."""
    return 1, max(2, own_sparsity // 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """A checked request.

    Attributes
    ----------
    budget : SiteBudget
        Prices of one interval.
    shared, own_sparsity, neighbors : int
    joint : float
        Total price, zCDP.
    interval : float
        Price of one interval.
    accounting, precision : str
    means : MeanPrices
        Of `joint`, for the means of columns, response and residuals.
    count : float
        Of `joint`, for the number of complete rows of each site; 0 where no rows are dropped.
    """

    budget: SiteBudget
    shared: int
    own_sparsity: int
    neighbors: int
    joint: float
    interval: float
    accounting: Accounting
    precision: Precision
    means: MeanPrices = MeanPrices()
    count: float = 0.0


def check_site_plan(
    rho: float,
    *,
    centered: bool = False,
    count: float = 0.0,
    sparsity: int,
    shared_sparsity: int | None,
    neighbors: int,
    shares: Mapping[str, float] | None,
    targets: int,
    p: int,
    rows: Sequence[int],
    accounting: Accounting = "per-interval",
    precision: Precision = "pooled",
) -> SitePlan:
    """Return the plan of a heterogeneous fit, or raise ArgumentError for an invalid request.

    Parameters
    ----------
    rho : float
        Of one interval, or of everything.
    centered : bool
        Whether columns, response and residuals are centered at released means.
    count : float
        Of `rho`, for the number of complete rows of each site.
    sparsity, shared_sparsity, neighbors : int
    shares : mapping, optional
        Of `rho`: all fields of `SiteBudget`. By default from the size of the request.
    targets, p : int
    rows : sequence of int
        Every site's.
    accounting : {"joint", "per-interval"}
    precision : {"pooled", "machine"}
        Nodewise regressions from all rows, which is right where the sites' columns have one distribution, or
        from each site's own.
    """
    check_choice(accounting, Accounting, "accounting")
    check_choice(precision, Precision, "precision")
    shared = _check_selections(shared_sparsity, sparsity, p)
    own_sparsity = sparsity - shared
    extra = extra_selections(own_sparsity)
    joint = accounting == "joint"
    own_precision = precision == "machine"
    full_rho = rho
    typical = int(np.median(rows))
    means = MeanPrices.from_rho(rho, typical, joint=joint) if centered else MeanPrices()
    first = means.total + count
    rho = rho if math.isinf(rho) else rho - first
    if shares is None:
        size = RequestSize(
            total=sum(rows),
            rows=typical,
            p=p,
            shared=shared + extra[0],
            own_sparsity=own_sparsity + extra[1],
            sparsity=sparsity,
            neighbors=neighbors,
        )
        parts: Mapping[str, float] = site_shares(
            rho if math.isfinite(rho) else 1.0,
            size,
            targets=targets,
            joint=joint,
            own_precision=own_precision,
        )
    else:
        parts = check_shares(shares, [field.name for field in fields(SiteBudget)])
    columns = interval_columns(shared, own_sparsity, extra, neighbors)
    own_centers = own_precision and centered
    counts = factors(targets, p, columns, joint=joint, own_precision=own_precision, own_centers=own_centers)
    price = {name: share / (counts[name] if joint else 1.0) for name, share in parts.items()}
    total = sum(price[name] * counts[name] for name in price)
    if not joint:  # an interval pays for its columns, as for their sizes, and for its own form
        means = replace(means, columns=means.columns * p / columns, forms=means.forms * targets)
    return SitePlan(
        budget=SiteBudget(**{name: part_of_rho(rho, part_price) for name, part_price in price.items()}),
        shared=shared,
        own_sparsity=own_sparsity,
        neighbors=neighbors,
        joint=full_rho if joint else total * rho + means.total + count,
        interval=sum(price.values()) * rho + first,
        accounting=accounting,
        precision=precision,
        means=means,
        count=count,
    )


def check_shared(shared_sparsity: int | None, sparsity: int) -> int:
    """Return the sparsity of the shared part (ArgumentError if it is invalid)."""
    if shared_sparsity is None:
        raise ArgumentError(
            "heterogeneous=True requires shared_sparsity=, the number of columns (less than "
            "sparsity=) with effects that all sites share"
        )
    shared = check_count(shared_sparsity, "shared_sparsity")
    if shared >= sparsity:
        raise ArgumentError(f"shared_sparsity={shared} must be less than sparsity={sparsity}")
    return shared


def _check_selections(shared_sparsity: int | None, sparsity: int, p: int) -> int:
    """Return the sparsity of the shared part of a linear fit of p columns (ArgumentError if invalid)."""
    shared = check_shared(shared_sparsity, sparsity)
    extra = extra_selections(sparsity - shared)
    if sparsity + sum(extra) > p:
        smaller = range(shared + 1, sparsity)
        largest = max((s for s in smaller if s + sum(extra_selections(s - shared)) <= p), default=None)
        remedy = "a smaller shared_sparsity= or more columns"
        if largest is not None:
            selections = largest + sum(extra_selections(largest - shared))
            remedy = f"at most sparsity={largest}, with which the fit selects {counted(selections, 'column')}"
        raise ArgumentError(
            f"sparsity={sparsity} is too large for {p} columns, because the fit would select {sum(extra)} "
            f"more than sparsity=, that is, {sparsity + sum(extra)} columns: pass {remedy}"
        )
    return shared


def factors(
    targets: int, p: int, columns: int, *, joint: bool, own_precision: bool, own_centers: bool
) -> dict[str, float]:
    """Return the price of each part relative to one interval, which uses the given number of columns."""
    counts = dict.fromkeys((field.name for field in fields(SiteBudget)), 1.0)
    return counts | {
        "neighbours": float(targets),
        "slopes": MEAN_SHARE + (1.0 - MEAN_SHARE) * targets,
        "score": float(targets),
        "gram": gram_factor(p, columns, joint=joint, own_precision=own_precision, own_centers=own_centers),
        "scales": 1.0 - SIZES + SIZES * p / columns,
    }


def joint_loss(plan: SitePlan) -> ConcentratedLoss:
    """Return the total price of the request."""
    return ConcentratedLoss(plan.joint)
