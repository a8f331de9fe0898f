"""What a debiased lasso fit will spend on what: checked before any row is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from privinf.accounting.budget import ROUNDING
from privinf.accounting.shares import check_shares, part_of_rho
from privinf.errors import ArgumentError, NotAvailableError
from privinf.lasso.fit import (
    BLOCKS,
    CHEAP_FITS,
    GRAM_ROOM,
    GRAM_SHARE,
    PRODUCT_CLIP,
)
from privinf.lasso.options import Center, LassoOptions, Targets
from privinf.lasso.prices import DebiasingPrices, SparseFitPrices
from privinf.validation import check_choice, check_count, check_positive, shown

NEIGHBORS = 4  # of every target, by default, where sites have parts of their own
MEANS_SHARE = 0.04  # of the total budget, where means are released
RESPONSE_SHARE = 0.2  # of the means' price, for the mean of the response
MISSED_SHARE = 0.05  # of the total budget, for the test of columns outside the fit; free if all are targets
EDGE_ROOM = 0.25  # largest noise of the Gram matrix of selected columns, by default (`largest_sparsity`)
MAX_SELECTIONS = 50  # columns that are selected by default
MOST_LOGISTIC = 10  # the same of a logistic fit, which selects all of them, and pays for each
# With all columns as targets most goes to the scores; products with the selection replace neighbors.
ALL_SHARES = {
    "selection": 0.12,
    "refit": 0.16,
    "scales": 0.04,
    "neighbours": 0.14,
    "gram": 0.03,
    "slopes": 0.09,
    "score": 0.42,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LassoShares:
    """Shares of rho of a linear fit; they sum to one.

    Attributes
    ----------
    selection : float
        All selections of columns.
    refit : float
        Gram matrices of the selection and clipped steps.
    scales : float
        Sizes of residuals and of columns, half each; where columns are centered as they come into play a
        third, a half with their means, and a sixth for the means of response and residuals.
    neighbours : float
        Neighbors of the targets; for all columns their products with the selected ones.
    gram : float
        Nodewise regressions of the targets: their regressions on the neighbors and what these explain.
    slopes : float
        Slopes and variances of the scores.
    score : float
        Debiasing scores.
    """

    selection: float = 0.14
    refit: float = 0.20
    scales: float = 0.06
    neighbours: float = 0.07
    gram: float = 0.15
    slopes: float = 0.04
    score: float = 0.34

    @classmethod
    def from_options(
        cls, shares: Mapping[str, float] | None, all_targets: bool, extras: Mapping[str, float]
    ) -> tuple[LassoShares, dict[str, float]]:
        """Return the default shares, those of `all_targets`, or those given, and the shares of extras.

        By default the extras cost the shares in `extras`, and the others divide the rest.

        Raises
        ------
        ArgumentError
            A name is unknown or missing, a share is not positive, or they do not sum to one.
        """
        names = [field.name for field in fields(cls)]
        if shares is None:
            basic = cls(**ALL_SHARES) if all_targets else cls()
            rest = 1.0 - sum(extras.values())
            return cls(**{name: rest * getattr(basic, name) for name in names}), dict(extras)
        checked = check_shares(shares, [*names, *extras])
        return cls(**{name: checked[name] for name in names}), {name: checked[name] for name in extras}

    def sparse_fit(self, rho: float, *, all_targets: bool = False) -> SparseFitPrices:
        """Return the prices of the sparse fit."""
        rho *= ROUNDING
        residuals = self.scales / (2.0 if all_targets else 3.0)
        # The sizes of the columns that join later, as targets, are a quarter of all.
        return SparseFitPrices(
            selection=self.selection * rho,
            refit=self.refit * rho,
            sizes=self.scales * rho * 0.375,
            scales=residuals * rho,
        )

    def debiasing(self, rho: float, *, all_targets: bool = False) -> DebiasingPrices:
        """Return the prices of the debiasing."""
        return DebiasingPrices(
            neighbors=part_of_rho(rho, self.neighbours),
            gram=part_of_rho(rho, self.gram),
            sizes=part_of_rho(rho, self.scales * 0.125),
            slopes=part_of_rho(rho, self.slopes),
            score=part_of_rho(rho, self.score),
            center=0.0 if all_targets else part_of_rho(rho, self.scales / 12.0),
        )

    def response(self, rho: float) -> float:
        """Return the price of the mean of the response, where not every column is a target."""
        return part_of_rho(rho, self.scales / 12.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticShares:
    """Shares of rho of a logistic fit; they sum to one.

    Attributes
    ----------
    rate : float
        The rate of the response.
    selection : float
        Selections of columns.
    refit : float
        Matrices of the selection and steps.
    sizes : float
        Sizes of columns.
    neighbours : float
        Neighbors of the targets.
    gram : float
        Gram matrix of targets and neighbors, in two releases.
    suspect : float
        The column outside the fit that is most suspicious.
    secant, meat : float
        Slopes and squares of the scores.
    score : float
        Debiasing scores.
    """

    rate: float = 0.02
    selection: float = 0.12
    refit: float = 0.20
    sizes: float = 0.02
    neighbours: float = 0.07
    gram: float = 0.15
    suspect: float = 0.05
    secant: float = 0.02
    meat: float = 0.02
    score: float = 0.33

    @classmethod
    def from_mapping(cls, shares: Mapping[str, float] | None) -> LogisticShares:
        """Return the default shares, or those given: all of them, which sum to 1 (ArgumentError)."""
        return cls() if shares is None else cls(**check_shares(shares, [field.name for field in fields(cls)]))

    def sparse_fit(self, rho: float) -> SparseFitPrices:
        """Return the prices of the sparse fit."""
        rho *= ROUNDING
        return SparseFitPrices(
            selection=self.selection * rho,
            refit=self.refit * rho,
            sizes=self.sizes * rho / 2.0,
            rate=self.rate * rho,
        )

    def debiasing(self, rho: float) -> DebiasingPrices:
        """Return the prices of the debiasing."""
        rho *= ROUNDING
        return DebiasingPrices(
            neighbors=self.neighbours * rho,
            gram=self.gram * rho,
            sizes=self.sizes / 2.0 * rho,
            candidate=self.suspect * rho,
            slopes=self.secant * rho,
            meat=self.meat * rho,
            score=self.score * rho,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LassoPlan:
    """A checked request.

    Attributes
    ----------
    rho : float
        Total price, zCDP; infinite for no noise.
    delta : float
        At which epsilon is reported.
    sparsity : int
    neighbors : int or None
        Of every target; None: as many as budget and rows allow.
    targets : tuple of int, or None
        None: the columns that the fit selects.
    all_targets : bool
        Whether the targets are all columns.
    automatic : bool
        Whether columns that do not stand out of the noise are dropped from the `sparsity` columns.
    blocks : int
    clip : float
    shares : LassoShares
    extras : mapping of str to float
        Shares of the requested extras.
    """

    rho: float
    delta: float
    sparsity: int
    neighbors: int | None
    targets: tuple[int, ...] | None
    all_targets: bool
    automatic: bool
    blocks: int
    clip: float
    shares: LassoShares
    extras: Mapping[str, float]

    @property
    def site_neighbors(self) -> int:
        """Neighbors of every target where sites have parts of their own."""
        return NEIGHBORS if self.neighbors is None else self.neighbors

    @property
    def response_price(self) -> float:
        """Price of the mean of the response."""
        return RESPONSE_SHARE * self.means_price + (
            0.0 if self.all_targets else self.shares.response(self.rho)
        )

    @property
    def means_price(self) -> float:
        """Price of the means of columns and response before the fit; "all" pays it again after it."""
        return self.price("means") / (2.0 if self.all_targets else 1.0) if "means" in self.extras else 0.0

    def sparsity_text(self, selected: Sequence[int], constant: int | None) -> str:
        """Return the sparsity for the summary; a constant among the selected columns does not count."""
        count = len(set(selected) - {constant})
        return f"auto, {count} of at most {self.sparsity}" if self.automatic else str(self.sparsity)

    def price(self, extra: str) -> float:
        """Return the price of an extra, zCDP."""
        return part_of_rho(self.rho, self.extras[extra])


def check_plan(
    options: LassoOptions, *, rho: float, delta: float, names: Sequence[str], constant: int | None
) -> LassoPlan:
    """Return the plan of a fit, or raise ArgumentError for an invalid request; reads no rows."""
    all_targets = options.all_targets
    extras = {} if all_targets else {"missed": MISSED_SHARE}
    if check_choice(options.center or "declared", Center, "center") == "released":
        extras["means"] = MEANS_SHARE
    parts, extra_shares = LassoShares.from_options(options.shares, all_targets, extras)
    columns = len(names) - (constant is not None)
    sparsity, automatic = _sparsity(options.sparsity, options.max_sparsity, columns)
    if all_targets and constant is not None:
        raise NotAvailableError(
            "targets='all' cannot be used with a constant in the regression: leave the constant out, or pass "
            "a list of columns as targets="
        )
    neighbors = options.precision_sparsity
    if all_targets and neighbors:
        raise ArgumentError(
            "precision_sparsity= cannot be used with targets='all', whose nodewise regressions "
            "select no neighbors: leave it out"
        )
    if neighbors is not None:
        check_count(neighbors, "precision_sparsity", least=0)
    targets = tuple(range(len(names))) if all_targets else target_positions(options.targets, names, constant)
    blocks = BLOCKS if options.iterations is None else check_count(options.iterations, "iterations")
    return LassoPlan(
        rho=rho,
        delta=delta,
        sparsity=sparsity,
        neighbors=neighbors,
        targets=targets,
        all_targets=all_targets,
        automatic=automatic,
        blocks=blocks,
        clip=PRODUCT_CLIP if options.clip is None else check_positive(options.clip, "clip"),
        shares=parts,
        extras=extra_shares,
    )


def largest_sparsity(rows: int, rho: float, columns: int) -> int:
    """Return the default maximal sparsity of a fit of `rows` rows and `columns` columns.

    Parameters
    ----------
    rows : int
    rho : float
        The fit's total price, zCDP; the refit has its default share.
    columns : int

    Notes
    -----
    **Privacy.** A function of public numbers.

    The Gram matrix of k columns, vectors shrunk to |x|^2 <= 1.4 k, has noise with eigenvalues of up to
    ``2 1.4 k^(3/2) / (n sqrt(2 rho_G))``, rho_G its part of the price. k is the most that keeps this below
    `EDGE_ROOM` of a column's mean square; two of them are selected beyond the sparsity.

    Examples
    --------
    >>> [largest_sparsity(n, 0.03, 800) for n in (2_000, 10_000, 40_000)]
    [2, 10, 28]
    """
    if math.isinf(rho):
        return min(columns, MAX_SELECTIONS)
    gram = (1.0 - CHEAP_FITS) * GRAM_SHARE * LassoShares().refit * rho
    selections = (EDGE_ROOM * rows * math.sqrt(2.0 * gram) / (2.0 * GRAM_ROOM)) ** (2.0 / 3.0)
    return max(min(int(selections) - 2, columns, MAX_SELECTIONS), 1)


def _sparsity(sparsity: int | str, max_sparsity: int | None, columns: int) -> tuple[int, bool]:
    """Return the number of columns to keep, and whether it is only the most."""
    automatic = isinstance(sparsity, str)
    if automatic:
        if sparsity != "auto":
            raise ArgumentError(f"sparsity={shown(sparsity)} must be a number or 'auto'")
        if max_sparsity is None:
            raise ArgumentError(
                "sparsity='auto' with trust='secure-sum' requires max_sparsity=, the number of columns "
                "that are selected"
            )
    elif max_sparsity is not None:
        raise ArgumentError("max_sparsity= can be used only with sparsity='auto'")
    name = "max_sparsity" if automatic else "sparsity"
    count = check_count(max_sparsity if automatic else sparsity, name)
    if count > columns:
        raise ArgumentError(f"{name}={count} is larger than the number of columns, {columns}")
    return count, automatic


def target_positions(targets: Targets, names: Sequence[str], constant: int | None) -> tuple[int, ...] | None:
    """Return the positions of targets given by name or position; None for those that the fit selects.

    Raises
    ------
    ArgumentError
        One is not among the columns, is the constant, or is named twice; or there is none.
    """
    if isinstance(targets, str):
        if targets != "selected":
            raise ArgumentError(f"targets={shown(targets)} must be 'selected', 'all' or a list of columns")
        return None
    try:
        listed = list(targets)
    except TypeError:
        raise ArgumentError("targets= must be 'selected', 'all' or a list of columns") from None
    positions = tuple(_position(target, names) for target in listed)
    if not positions or len(set(positions)) < len(positions):
        raise ArgumentError("targets= must name at least one column, and no column twice")
    if constant in positions:
        raise ArgumentError("targets= must not contain the constant, which is fitted but not debiased")
    return positions


def _position(target: Any, names: Sequence[str]) -> int:
    if isinstance(target, str) and target in names:
        return list(names).index(target)
    is_integer = hasattr(target, "__index__") and not isinstance(target, bool)
    if is_integer and 0 <= int(target) < len(names):
        return int(target)
    raise ArgumentError(
        f"target {shown(target)} is not a column: pass the name of a column, or an index from 0 "
        f"to {len(names) - 1}"
    )
