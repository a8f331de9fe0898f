"""Options, plan and prices of a debiased lasso: what a fit spends on what, checked before any row is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from privinf.accounting import calibrate_mu, epsilon_to_rho
from privinf.accounting.budget import ROUNDING
from privinf.accounting.shares import check_shares, part_of_rho
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.model import NO_LEVEL
from privinf.inference.estimate import upper_quantile
from privinf.lasso.radii import GRAM_ROOM
from privinf.lasso.rows import LassoFamily, LassoRows
from privinf.mechanisms.gaussian import warn_of_large_delta
from privinf.typing import CovWord, Multipliers, Precision, RngLike, ScoreTarget, Trust, Variant
from privinf.validation import check_choice, check_count, check_number, check_positive, reporting_delta, shown

SITE_NEIGHBORS = 4  # of every target, by default, where sites have parts of their own
MEANS_SHARE = 0.04  # of the total budget, where means are released
RESPONSE_SHARE = 0.2  # of the means' price, for the mean of the response
# Of the total budget, for the number of complete rows where the others are dropped. Its sd is about 50 rows
# at epsilon 1, and the smaller rest of the budget makes intervals wider by half a percent at most.
COMPLETE_SHARE = 0.01
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
PRODUCT_CLIP = 1.5  # of products for selections, and of residuals in a step, in units of the residuals' scale
BLOCKS = 3  # of selections, where their number is given (`block_sizes`)
GRAM_SHARE = 0.25  # share of a fit's price for its Gram matrix
CHEAP_FITS = 0.25  # share of the price of all fits for those between blocks


Targets = Sequence[int | str] | Literal["selected", "all"]
Accounting = Literal["joint", "per-interval"]
Center = Literal["declared", "released"]
FitKind = Literal[
    "joint", "heterogeneous", "paper", "secure", "binomial", "secure-binomial", "heterogeneous-binomial"
]
OPTIONS: Mapping[FitKind, set[str]] = {
    "joint": {
        "max_sparsity",
        "iterations",
        "clip",
        "center",
        "bootstrap_draws",
        "bootstrap_multipliers",
        "restricted_eigenvalues",
        "noise_variance",
        "bias_bound",
        "extra_shares",
        "target",
    },
    "heterogeneous": {"shared_sparsity", "accounting", "precision", "center", "target"},
    "paper": {"shared_sparsity", "accounting", "iterations", "clip", "refit", "paper_options", "target"},
    "secure": {
        "max_sparsity",
        "iterations",
        "clip",
        "center",
        "noise_variance",
        "extra_shares",
        "max_colluding",
        "target",
    },
    "binomial": {"max_sparsity", "iterations", "clip"},
    "secure-binomial": {"max_sparsity", "iterations", "clip", "max_colluding"},
    "heterogeneous-binomial": {"shared_sparsity", "precision", "iterations", "clip"},
}
# Options that every kind of fit has.
OF_EVERY_FIT = {
    "sparsity",
    "targets",
    "variant",
    "heterogeneous",
    "epsilon",
    "delta",
    "mu",
    "rho",
    "rng",
    "precision_sparsity",
    "shares",
    "cov_type",
}
WORDS: Mapping[FitKind, str] = {
    "joint": "family='gaussian', variant='default', heterogeneous=False and trust='central' or 'server'",
    "heterogeneous": "variant='default' and heterogeneous=True",
    "paper": "variant='paper'",
    "secure": "trust='secure-sum'",
    "binomial": "family='binomial'",
    "secure-binomial": "family='binomial' and trust='secure-sum'",
    "heterogeneous-binomial": "family='binomial' and heterogeneous=True",
}
# Kinds of fit whose intervals, at a site or of all rows, come from one release.
ONE_RELEASE: frozenset[FitKind] = frozenset(
    {"joint", "binomial", "secure-binomial", "heterogeneous-binomial"}
)
# Kinds of fit on secure sums, all of whose noise is Gaussian.
SECURE: frozenset[FitKind] = frozenset({"secure", "secure-binomial"})
# The logistic kind of each linear one, without secure sums.
LOGISTIC: Mapping[FitKind, FitKind] = {"joint": "binomial", "heterogeneous": "heterogeneous-binomial"}
NOT_GAUSSIAN = (
    "mu= is not available with a trusted server, because the noise of the selection of "
    "columns is not Gaussian: pass epsilon= with delta=, or rho=. With trust='secure-sum', "
    "mu= is accepted"
)
PAPER_LEVEL = (
    "the paper's algorithms divide an epsilon and a delta: pass epsilon= and delta=, not mu= or rho="
)
NO_MEAN = (
    "target='mean' is not available with {}: pass target='robust'. Or keep target='mean', and pass targets= "
    "as names of columns or 'selected', with variant='default' and heterogeneous=False"
)
# Probability that any column without signal stands out of its error.
FALSE_SELECTION_RATE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LassoOptions:
    """Options of `DebiasedLasso.fit`, which describes them."""

    sparsity: int | Literal["auto"] = "auto"
    targets: Targets = "selected"
    variant: Variant = "default"
    heterogeneous: bool = False
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    rho: float | None = None
    rng: RngLike = None
    precision_sparsity: int | None = None
    shares: Mapping[str, float] | None = None
    max_sparsity: int | None = None
    shared_sparsity: int | None = None
    accounting: Accounting = "joint"
    precision: Precision = "pooled"
    iterations: int | None = None
    clip: float | None = None
    refit: bool | None = None
    center: Center | None = None
    target: ScoreTarget | None = None
    bootstrap_draws: int | None = None
    bootstrap_multipliers: Multipliers = "rademacher"
    restricted_eigenvalues: bool = False
    noise_variance: bool = False
    bias_bound: bool = False
    extra_shares: Mapping[str, float] | None = None
    paper_options: Mapping[str, Any] | None = None
    max_colluding: int = 0
    cov_type: CovWord | None = None

    @property
    def all_targets(self) -> bool:
        """Whether all columns are targets."""
        return isinstance(self.targets, str) and self.targets == "all"

    @property
    def score_target(self) -> ScoreTarget:
        """Target of the scores; by default the mean, where it is available."""
        return self.target or ("robust" if self.all_targets else "mean")

    def kind(self, trust: Trust, family: LassoFamily) -> FitKind:
        """Return which kind of fit is requested.

        Raises
        ------
        ArgumentError, NotAvailableError
            An option does not go with this kind of fit: nothing is accepted and ignored.
        """
        check_choice(self.accounting, Accounting, "accounting")
        check_choice(self.precision, Precision, "precision")
        paper = check_choice(self.variant, Variant, "variant") == "paper"
        kind: FitKind = "paper" if paper else "heterogeneous" if self.heterogeneous else "joint"
        if family == "binomial":
            check_logistic("targets='all'" if self.all_targets else "variant='paper'" if paper else "")
            kind = LOGISTIC[kind]
            if trust == "secure-sum":
                kind = self._secure(kind)
        elif trust == "secure-sum":
            kind = self._secure(kind)
        check_level(kind, epsilon=self.epsilon, mu=self.mu, rho=self.rho)
        if self.target is not None and check_choice(self.target, ScoreTarget, "target") == "mean":
            alone = "targets='all'" if self.all_targets else WORDS[kind]
            if self.all_targets or kind in ("heterogeneous", "paper"):
                raise NotAvailableError(NO_MEAN.format(alone))
        if kind in ONE_RELEASE and self.accounting == "per-interval":
            raise NotAvailableError(
                "accounting='per-interval' is available only with family='gaussian' and heterogeneous=True, "
                "or with variant='paper': in other fits, all intervals come from the same release"
            )
        for option in [candidate for candidate in fields(self) if candidate.name not in OF_EVERY_FIT]:
            if getattr(self, option.name) != option.default and option.name not in OPTIONS[kind]:
                homes = ", or with ".join(
                    WORDS[home] for home, names in OPTIONS.items() if option.name in names
                )
                raise ArgumentError(
                    f"{option.name}= cannot be used in a fit with {WORDS[kind]}: use it with {homes}"
                )
        return kind

    def _secure(self, kind: FitKind) -> FitKind:
        """Return the kind of fit on secure sums, if there is one."""
        if kind not in ("joint", "binomial"):
            raise NotAvailableError(
                f"a fit with {WORDS[kind]} requires a trusted server, which selects columns from sums "
                "without noise. trust='secure-sum' is available with variant='default' and "
                "heterogeneous=False"
            )
        self._check_named_targets()
        return "secure" if kind == "joint" else "secure-binomial"

    def _check_named_targets(self) -> None:
        """Refuse targets that depend on the data (ArgumentError)."""
        if isinstance(self.targets, str):
            raise ArgumentError(
                f"targets={shown(self.targets)} is not available with trust='secure-sum': pass a list "
                "of columns that was chosen before the data are seen"
            )


def check_level(kind: FitKind, *, epsilon: float | None, mu: float | None, rho: float | None) -> None:
    """Refuse no level, two, and one that means nothing for this kind of fit."""
    levels = {"epsilon": epsilon, "mu": mu, "rho": rho}
    names = [name for name, level in levels.items() if level is not None]
    if not names:
        raise ArgumentError(NO_LEVEL)
    if len(names) > 1:
        raise ArgumentError(f"pass exactly one of epsilon=, mu= and rho=, not {' and '.join(names)}")
    if kind == "paper" and epsilon is None:
        raise ArgumentError(PAPER_LEVEL)
    if kind not in SECURE and mu is not None:
        raise ArgumentError(NOT_GAUSSIAN)


def check_logistic(refused: str) -> None:
    """Raise NotAvailableError where a logistic fit cannot have `refused`."""
    if refused:
        raise NotAvailableError(
            f"family='binomial' cannot be used with {refused}: pass variant='default', "
            "and targets='selected' or a list of columns"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseFitPrices:
    """Prices in zCDP of one sparse fit; a part that a model does not release costs 0.

    Attributes
    ----------
    selection : float
        All selections of columns.
    refit : float
        All fits of selected columns.
    sizes : float
        Sizes of columns.
    scales : float
        All residual scales, of linear models.
    rate : float
        Rate of the response, of logistic models.
    """

    selection: float
    refit: float
    sizes: float
    scales: float = 0.0
    rate: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DebiasingPrices:
    """Prices in zCDP of the debiasing of a sparse fit; a part that a model does not release costs 0.

    Attributes
    ----------
    neighbors : float
        Neighbors of the targets.
    gram : float
        Nodewise regressions, or the Gram matrix of targets and neighbors.
    sizes : float
        Sizes of columns.
    slopes : float
        Slopes of the scores: of linear models with their variances, of logistic ones the secant matrix.
    score : float
        Debiasing scores.
    center : float
        Mean of the residuals, of linear models.
    candidate, meat : float
        The candidate for an omitted column, and squares of the scores, of logistic models.
    """

    neighbors: float
    gram: float
    sizes: float
    slopes: float
    score: float
    center: float = 0.0
    candidate: float = 0.0
    meat: float = 0.0


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
class LogisticSiteShares:
    """Shares of rho of a logistic fit by site; they sum to one. A site's rows pay for all of them.

    Attributes
    ----------
    rate : float
        The rate of the response, of all rows and of the site.
    selection, refit : float
        Selection of the shared columns, and their fit to all rows.
    sizes : float
        Sizes of columns.
    own_selection, own_refit : float
        Selection of the site's own columns, and the fit of all its columns.
    neighbours, gram, secant, meat, score : float
        Debiasing of the site's targets, as of `LogisticShares`.
    """

    rate: float = 0.03
    selection: float = 0.05
    refit: float = 0.05
    sizes: float = 0.02
    own_selection: float = 0.10
    own_refit: float = 0.20
    neighbours: float = 0.05
    gram: float = 0.14
    secant: float = 0.06
    meat: float = 0.02
    score: float = 0.28

    @classmethod
    def from_mapping(cls, shares: Mapping[str, float] | None) -> LogisticSiteShares:
        """Return the default shares, or those given: all of them, which sum to 1 (ArgumentError)."""
        return cls() if shares is None else cls(**check_shares(shares, [field.name for field in fields(cls)]))

    def shared_fit(self, rho: float) -> SparseFitPrices:
        """Return the prices of the fit to all rows."""
        rho *= ROUNDING
        return SparseFitPrices(
            selection=self.selection * rho,
            refit=self.refit * rho,
            sizes=self.sizes * rho / 3.0,
            rate=self.rate * rho / 2.0,
        )

    def own_fit(self, rho: float) -> SparseFitPrices:
        """Return the prices of a site's fit."""
        rho *= ROUNDING
        return SparseFitPrices(
            selection=self.own_selection * rho,
            refit=self.own_refit * rho,
            sizes=self.sizes * rho / 3.0,
            rate=self.rate * rho / 2.0,
        )

    def debiasing(self, rho: float) -> DebiasingPrices:
        """Return the prices of the debiasing of a site's targets."""
        rho *= ROUNDING
        return DebiasingPrices(
            neighbors=self.neighbours * rho,
            gram=self.gram * rho,
            sizes=self.sizes / 3.0 * rho,
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
    delta : float or None
        At which epsilon is reported; None if the call has none.
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
    count : float
        Price of the number of complete rows, which is a part of `rho`; 0 where no rows are dropped.
    open_sparsity : bool
        Whether `sparsity` is the default for the number of rows.
    """

    rho: float
    delta: float | None
    sparsity: int
    neighbors: int | None
    targets: tuple[int, ...] | None
    all_targets: bool
    automatic: bool
    blocks: int
    clip: float
    shares: LassoShares
    extras: Mapping[str, float]
    count: float = 0.0
    open_sparsity: bool = False

    def after_count(self) -> LassoPlan:
        """Return the plan of what follows the number of complete rows, with the rest of the price."""
        return replace(self, rho=self.rho - self.count) if math.isfinite(self.rho) and self.count else self

    @property
    def site_neighbors(self) -> int:
        """Neighbors of every target where sites have parts of their own."""
        return SITE_NEIGHBORS if self.neighbors is None else self.neighbors

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

    def threshold(self, columns: int) -> float:
        """Return the errors from zero from which on coefficients are kept; 0 where their number is given."""
        return upper_quantile(FALSE_SELECTION_RATE / 2.0 / columns) if self.automatic else 0.0

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


def plan_of(rows: LassoRows, options: LassoOptions, *, gaussian: bool = False) -> LassoPlan:
    """Return the plan; at the same level, Gaussian releases alone are cheaper than other releases in zCDP."""
    delta = reporting_delta(options.epsilon, options.delta, rows.total)
    warn_of_large_delta(options.delta, rows.total)
    if gaussian:
        mu = calibrate_mu(epsilon=options.epsilon, mu=options.mu, rho=options.rho, delta=delta)
        rho = mu * mu / 2.0
    elif options.rho is not None:
        rho = check_positive(options.rho, "rho", infinite=True)
    else:
        epsilon = check_number(options.epsilon, "epsilon", low=0.0, open_low=True, infinite=True)
        rho = math.inf if math.isinf(epsilon) else epsilon_to_rho(epsilon, delta)
    released = options.all_targets and "means" in (options.shares or ("means",))
    center: Center = options.center or ("released" if released else "declared")
    open_sparsity = options.max_sparsity is None and options.sparsity == "auto" and not gaussian
    largest = default_sparsity(rows, rows.total, rho) if open_sparsity else options.max_sparsity
    plan = check_plan(
        replace(options, center=center, max_sparsity=largest),
        rho=rho,
        delta=delta,
        names=rows.names,
        constant=rows.constant,
    )
    count = part_of_rho(rho, COMPLETE_SHARE) if rows.missing == "drop" else 0.0
    return replace(plan, delta=options.delta, count=count, open_sparsity=open_sparsity)


def default_sparsity(rows: LassoRows, count: int, rho: float) -> int:
    """Return the default maximal sparsity of a fit of `count` rows."""
    largest = largest_sparsity(count, rho, len(rows.names) - (rows.constant is not None))
    return min(largest, MOST_LOGISTIC) if rows.family == "binomial" else largest


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
