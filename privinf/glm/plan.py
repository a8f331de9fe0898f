"""What a fit of a generalized linear model spends, and on what: checks before a charge, and its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privinf.accounting import calibrate_mu, gaussian_epsilon
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.model import NO_LEVEL
from privinf.glm.convergence import Trajectory
from privinf.glm.curved_sums import enough, least_size
from privinf.glm.dome.optimizers import DPSGD, Optimizer
from privinf.glm.dome.rounds import optimise
from privinf.glm.newton import (
    Block,
    Newton,
    OneStep,
    intervals_possible,
    largest_size_for_intervals,
    newton_path,
    one_step,
)
from privinf.glm.queries import LeastSquaresOptions
from privinf.glm.rows import GlmRows, Unit
from privinf.glm.sums import Clients, GlmSums
from privinf.inference.covariances import sampling_kind
from privinf.typing import (
    AnyPath,
    CovType,
    CovWord,
    FitFamily,
    Floats,
    IntervalNeed,
    ScoreTarget,
    SumRelation,
)
from privinf.validation import check_choice, check_count, check_cov_type, counted, reporting_delta
from privinf.wire import Places, Reasons, readable

LARGEST_SEED = 2**62  # public seeds are below it, so that seed + round stays below 2^63, a site's limit
# By simulation, see benchmarks/verify_federated.py: targets next to 100 coefficients, n = 20,000, epsilon 2.
RADIUS_LIMIT = 0.0075

EPSILON_ENOUGH = "epsilon {} at delta {:g}"
# Where delta is so large that any epsilon has it, or so small that no finite one does.
MU_ENOUGH = "mu {}"
ONE_STEP_FIT_ALONE = (
    'target="robust" and adapt_bounds=True require the default fit of least squares: '
    "optimizer=, radius=, unit= and targets= cannot be combined with them"
)
NO_ONE_STEP_FIT = (
    'target="robust" and adapt_bounds=True are not available for this fit, because the noise would '
    "hide the Hessian of their one-step estimator: use fewer coefficients, a larger "
    "budget, or more rows"
)
NO_MARGINS = (
    "margins=True is available only for a logistic or Poisson model fitted without "
    "optimizer=, unit=, targets= and residual_clip=, and with enough rows and budget for "
    "its coefficients"
)
REFUSED = '{}. Nothing was charged. {}fit(intervals="optional") returns coefficients without intervals'
REFUSED_COUNTS = (
    "{}. Nothing was charged. NegativeBinomial has no fit without intervals: "
    'Poisson(...).fit(intervals="optional") returns coefficients of the same mean'
)
MOMENTS_INSTEAD = "MomentOLS has score intervals at any budget, but they are wide here; "


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPlan:
    """A checked request: prices are mu of Gaussian DP, infinite for no noise.

    Attributes
    ----------
    mu, rounds_mu, final_mu : float
        All, the rounds', and the final release's (0 where there is none).
    delta : float
        At which epsilon is reported.
    optimizer : Newton or Optimizer
    public_seed : int
    clients : Clients or None
        Where sites are the units of privacy.
    robust : bool
        Whether the final release has a meat.
    block : Block or None
        Of the final release; all columns without one.
    weak : str
        Why there will be no intervals; empty where the fit ends with the release that they need.
    least_squares : LeastSquaresOptions or None
        Options of a one-step least-squares fit, which has no rounds.
    curved : bool
        Whether it is one of a logistic or Poisson model in whitened units.
    margins : bool
        Whether a tenth of the budget is for average marginal effects.
    dispersed : bool
        Whether counts are negative binomial.
    """

    mu: float
    rounds_mu: float
    final_mu: float
    delta: float
    optimizer: Newton | Optimizer
    public_seed: int
    clients: Clients | None
    robust: bool = True
    block: Block | None = None
    weak: str = ""
    least_squares: LeastSquaresOptions | None = field(default=None, repr=False)
    curved: bool = field(default=False, repr=False)
    margins: bool = field(default=False, repr=False)
    dispersed: bool = field(default=False, repr=False)

    @property
    def settings(self) -> tuple[object, ...]:
        """Settings that identify a fit in stored files; files of older fits have the first one only."""
        return (
            replace(self, block=None),
            *([] if self.least_squares is None else [self.least_squares]),
            *[Places.CURVED_FIT] * self.curved,
            *[Places.MARGINS_OF_FIT] * self.margins,
            *[Places.DISPERSION_OF_FIT] * self.dispersed,
        )

    def trajectory(self, sums: GlmSums, start: Floats) -> Trajectory:
        """Return the trajectory to where the rounds end."""
        watched = np.arange(0 if self.weak else sums.p) if self.block is None else self.block.columns
        if isinstance(self.optimizer, Newton):
            return newton_path(sums, start, self.rounds_mu, self.optimizer, watched)
        return optimise(sums, start, self.rounds_mu, self.optimizer, self.public_seed, watched)

    def last_step(self, sums: GlmSums, params: Floats) -> OneStep | None:
        """Return the step that ends the fit; None where there are to be no intervals, or can be none."""
        if self.weak:
            return None
        return one_step(sums, params, self.final_mu, robust=self.robust, block=self.block)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """Request of a call of ``fit``; attributes as the parameters of `GLM.fit` and `OLS.fit`."""

    optimizer: Newton | Optimizer | None = None
    public_seed: int = 0
    max_colluding: int = 0
    relation: SumRelation = "replace-one"
    unit: Unit = "record"
    client_clip: float | None = None
    cov_type: CovWord = "HC0"
    targets: Sequence[str] | None = None
    nuisance: Sequence[str] = ()
    checkpoint: AnyPath | None = None
    target: ScoreTarget = "mean"
    adapt_bounds: bool = False
    margins: bool = False
    intervals: IntervalNeed = "required"


def plan_fit(spending: Mapping[str, float], request: FitRequest, rows: GlmRows) -> FitPlan:
    """Return the plan of a fit, or raise ArgumentError for an invalid request; reads no rows.

    `spending` has epsilon, mu or rho, and perhaps delta and calibration.
    """
    if not spending.keys() & {"epsilon", "mu", "rho"}:
        raise ArgumentError(NO_LEVEL)
    delta = reporting_delta(spending.get("epsilon"), spending.get("delta"), rows.total)
    level: dict[str, Any] = {**spending, "delta": delta}
    mu = calibrate_mu(**level)
    optimizer = request.optimizer
    if optimizer is not None and not isinstance(optimizer, (Newton, DPSGD)):
        raise ArgumentError("optimizer= must be Newton(), DPSGD(), DPAdam(), RandomSketch() or DOME()")
    seed = _check_seed(request.public_seed)
    block = rows.block(request.targets, request.nuisance)
    clients = rows.clients(request.unit, request.client_clip)
    share = (Newton() if optimizer is None else optimizer).final_share
    final = mu if math.isinf(mu) else mu * math.sqrt(share)
    robust = sampling_kind(check_cov_type(request.cov_type, CovType)) == "heteroskedastic"
    alone = optimizer is None and clients is None and block is None
    one_step_possible = alone and rows.family == "gaussian" and rows.default_radius
    if not robust and rows.family == "gaussian" and not one_step_possible:
        raise ArgumentError(
            'cov_type="nonrobust" is not available for least squares with optimizer=, unit=, '
            'targets= or radius=: use cov_type="HC0"'
        )
    possible = intervals_possible(rows.p, _units(rows, clients), final)
    check_choice(request.target, ScoreTarget, "target")
    one_step = FitPlan(
        mu=mu,
        rounds_mu=0.0,
        final_mu=mu,
        delta=delta,
        optimizer=Newton(),
        public_seed=seed,
        clients=None,
        robust=robust,
    )
    if one_step_possible and possible:
        return replace(one_step, least_squares=_least_squares(request, rows, robust))
    if request.target != "mean" or request.adapt_bounds:
        raise ArgumentError(NO_ONE_STEP_FIT if one_step_possible else ONE_STEP_FIT_ALONE)
    if alone and rows.family != "gaussian" and rows.rule == "auto" and enough(rows.total, mu, rows.p):
        dispersed = rows.family == "negative-binomial"
        return replace(one_step, curved=True, margins=request.margins, dispersed=dispersed)
    if rows.family == "negative-binomial":
        return replace(one_step, final_mu=0.0, weak=_reason_without_curvature(rows, mu, delta))
    if request.margins:
        raise ArgumentError(NO_MARGINS)
    return _plan_in_rounds(one_step, request, rows, block, clients, share=share, possible=possible)


def _plan_in_rounds(
    whole: FitPlan,
    request: FitRequest,
    rows: GlmRows,
    block: Block | None,
    clients: Clients | None,
    *,
    share: float,
    possible: bool,
) -> FitPlan:
    """Return the plan of a fit in rounds, from one that spends the `whole` budget at the end.

    `share` is that of the final release, and `possible` whether it can have intervals.
    """
    mu = whole.mu
    units = _units(rows, clients)
    optimizer = request.optimizer
    final = mu if math.isinf(mu) else mu * math.sqrt(share)
    if block is not None and not possible:
        # A descent that approaches all coefficients: full batches, unsketched scores, steps of 1/V.
        optimizer = optimizer or DPSGD(epochs=15, batches=1, step=4.0, clip=rows.radius, final_share=0.5)
        final = mu if math.isinf(mu) else mu * math.sqrt(share := optimizer.final_share)
        _check_targets(block, rows, units, mu, final)
    chosen = optimizer or (Newton() if possible else DPSGD())
    _check_optimizer(chosen, clients, rows, possible)
    weak = ""
    if not possible and block is None:
        weak = _reason_without_intervals(rows.p, units, mu, share, whole.delta, clients)
    elif clients is not None and clients.clip is not None and rows.can_bind(clients):
        weak = Reasons.BINDING_CLIP
    rest = mu if math.isinf(mu) or weak else mu * math.sqrt(1.0 - share)
    return replace(
        whole,
        rounds_mu=rest,
        final_mu=0.0 if weak else final,
        optimizer=chosen,
        clients=clients,
        block=block,
        weak=weak,
    )


def _units(rows: GlmRows, clients: Clients | None) -> float:
    """Return the number of units: replacing a site is like replacing its records, one after the other."""
    return rows.total / (1 if clients is None else clients.rows)


def _check_seed(public_seed: int) -> int:
    """Return a valid public seed (ArgumentError if it is invalid)."""
    seed = check_count(public_seed, "public_seed", least=0)
    if seed >= LARGEST_SEED:
        raise ArgumentError("public_seed= must be less than 2^62")
    return seed


def _least_squares(request: FitRequest, rows: GlmRows, robust: bool) -> LeastSquaresOptions:
    """Return the options of a least-squares fit in one step."""
    return LeastSquaresOptions(
        rule=rows.rule,
        clip=rows.stated_clip,
        target=request.target,
        robust=robust,
        adapt_bounds=request.adapt_bounds,
    )


def _reason_without_curvature(rows: GlmRows, mu: float, delta: float) -> str:
    """Return why a negative binomial model is not fitted, and the budget or number of rows that suffices."""
    times = least_size(rows.p) * math.pow(rows.p, 1.5) / (rows.total * mu)
    epsilon = gaussian_epsilon(mu * times, delta)
    enough = MU_ENOUGH.format(_rounded_up(mu * times))
    if 0.0 < epsilon < math.inf:
        enough = EPSILON_ENOUGH.format(_rounded_up(epsilon), delta)
    return Reasons.TOO_MANY_COEFFICIENTS.format(
        coefficients=f"{counted(rows.p, 'coefficient')} in {counted(rows.total, 'record')}",
        enough=enough,
        others=counted(math.ceil(rows.total * times), "record"),
    )


def refuse_without_intervals(plan: FitPlan, request: FitRequest, family: FitFamily) -> None:
    """Raise NotAvailableError for a default fit whose rows and budget are too few for its intervals."""
    check_choice(request.intervals, IntervalNeed, "intervals")
    too_little = plan.weak and plan.weak != Reasons.BINDING_CLIP
    if too_little and request.optimizer is None and request.intervals == "required":
        instead = MOMENTS_INSTEAD if family == "gaussian" else ""
        reason = readable(plan.weak)
        reason = reason[0].upper() + reason[1:]
        if family == "negative-binomial":
            raise NotAvailableError(REFUSED_COUNTS.format(reason))
        raise NotAvailableError(REFUSED.format(reason, instead))


def _reason_without_intervals(
    p: int, units: float, mu: float, share: float, delta: float, clients: Clients | None
) -> str:
    """Return why so many coefficients have no intervals, and the budget or number of rows that suffices."""
    noun = "record" if clients is None else "site"
    times = math.pow(p, 1.5) / largest_size_for_intervals(max(units, 1.0), mu * math.sqrt(share))
    fewer = int(math.pow(largest_size_for_intervals(units, mu * math.sqrt(share)), 2.0 / 3.0))
    epsilon = gaussian_epsilon(mu * times, delta)
    enough = MU_ENOUGH.format(_rounded_up(mu * times))
    if 0.0 < epsilon < math.inf:
        enough = EPSILON_ENOUGH.format(_rounded_up(epsilon), delta)
    return Reasons.TOO_MANY_COEFFICIENTS.format(
        coefficients=f"{counted(p, 'coefficient')} in {counted(math.ceil(units), noun)}",
        enough=enough,
        others=counted(math.ceil(units * times), noun)
        + f", or {counted(fewer, 'coefficient')}" * (fewer > 1),
    )


def _rounded_up(number: float) -> str:
    """Return a positive number, rounded up to two digits."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / step) * step:.3g}"


def _check_targets(block: Block, rows: GlmRows, units: float, mu: float, final: float) -> None:
    """Raise NotAvailableError unless a block's step is valid given the number of other coefficients.

    Their noise, of order R/(n mu) each, adds to the linear predictor a variance of order p R^2/(n mu)^2,
    which moves a logistic slope by a like share of itself: RADIUS_LIMIT keeps that at about a twentieth.
    """
    if rows.family != "binomial":
        raise NotAvailableError(
            "in this fit the noise would hide the Hessian of all coefficients, and then targets= is "
            "available only for family='binomial': use more rows, a larger budget or fewer columns"
        )
    if not math.sqrt(rows.p) * rows.radius <= RADIUS_LIMIT * units * mu:
        raise NotAvailableError(
            f"targets= is not available here, because the noise of the other coefficients would bias "
            f"the targets: radius * sqrt(number of coefficients) is {math.sqrt(rows.p) * rows.radius:.3g} "
            f"and must be at most {RADIUS_LIMIT:g} * records * mu = {RADIUS_LIMIT * units * mu:.3g}. "
            "Increase the budget, use more rows, or pass a smaller radius="
        )
    if not intervals_possible(len(block.columns), units, final):
        raise NotAvailableError(
            f"the noise would hide the Hessian of the {len(block.columns)} columns that targets= and "
            "nuisance= name, together with the constant: pass fewer columns"
        )


def _check_optimizer(
    chosen: Newton | Optimizer, clients: Clients | None, rows: GlmRows, possible: bool
) -> None:
    if not possible and isinstance(chosen, Newton):
        raise NotAvailableError(
            f"Newton's method with {rows.p} coefficients and {rows.total} rows is not possible at "
            "this budget, because the noise would hide the Hessian: use DPSGD() or DOME(), more rows or a "
            "larger budget"
        )
    if clients is not None and clients.clip is None and not isinstance(chosen, Newton):
        raise ArgumentError(
            f"{type(chosen).__name__} with unit='client' requires client_clip=, the norm at which "
            "the summed score of a site is clipped"
        )
