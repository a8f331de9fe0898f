"""Cost of peeling: from a level of privacy to noise scales and ledger lines. Reads no rows.

*Gumbel* noise of scale b makes a selection the exponential mechanism: P(j) is proportional to exp(|v_j|/b).
The log ratio of two neighboring distributions has a range of at most e0 = 2 lambda/b over j, so a selection
costs e0^2/8 zCDP (and is e0-DP), k selections k e0^2/8. The values of the selected entries are one Gaussian
release with l2 sensitivity sqrt(k) lambda.

*Laplace* noise is the paper's: a selection with scale b is (2 lambda/b)-DP, a value (lambda/b)-DP, and at b =
2 lambda sqrt(3 k log(1/delta))/epsilon the paper claims (epsilon, delta) for all of them.

On a secure source's grid of step g two neighbors' scores differ by lambda + g. Gumbel numbers are rounded to
the grid and ties go to the first: the probability of a selection is that of the ideal distribution times at
most e^(g/b), at least e^(-g/b), so that the range above is at most 2 (lambda + 3 g)/b, which is what is
charged. Discrete Laplace noise has the ratio e^(-g/b) from a step to the next, exactly: 2 (lambda + g)/b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from privinf.accounting import (
    ConcentratedLoss,
    GaussianLoss,
    LedgerEntry,
    Loss,
    PureLoss,
    Sensitivity,
    epsilon_to_rho,
    pure_rho,
)
from privinf.accounting.calibration import exact, float_down, sqrt_down
from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.gaussian import FLOAT_SLACK
from privinf.noise import NoiseSource, grid_step, solve_scale
from privinf.typing import PeelingMethod, TrustModel
from privinf.validation import check_delta, check_fraction, check_positive, is_zero
from privinf.wire import Assumptions, Derivations, Labels, Mechanisms, NoiseLaws, NoiseSources, Norms

PURE_WITHOUT_VALUES = (
    "delta=0 means pure epsilon-differential privacy, which needs values=False (no values "
    "are released) or method='laplace'"
)
GUMBEL_ROUNDINGS = 3.0  # grid steps charged to the sensitivity of a selection by Gumbel noise
LAPLACE_ROUNDINGS = 1.0  # grid steps charged to the sensitivity of a selection by Laplace noise


@dataclass(frozen=True, slots=True)
class PeelingCost:
    """The cost of a peeling, and its noise in units of the sensitivity.

    Attributes
    ----------
    selection_scale : float
        b/lambda of a selection; 0 without noise.
    selection : Loss
        Loss of all selections together.
    values : Loss or None
        Loss of the values; None if they are not released.
    """

    selection_scale: float
    selection: Loss
    values: Loss | None

    @property
    def rho(self) -> float:
        """The price of selections and values in zCDP."""
        return _rho_of(self.selection) + (0.0 if self.values is None else _rho_of(self.values))


def peeling_cost(
    k: int,
    method: PeelingMethod,
    values: bool,
    values_share: float,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
) -> PeelingCost:
    """Return the cost and noise of `NoisyTopK` for a level stated in one of four ways.

    Raises
    ------
    ArgumentError
        Unless exactly one level is given and the method can meet it.
    """
    levels = [name for name, level in (("epsilon", epsilon), ("mu", mu), ("rho", rho)) if level is not None]
    if len(levels) != 1:
        raise ArgumentError(
            f"pass exactly one of epsilon=, mu= and rho=, got {' and '.join(levels) or 'none'}"
        )
    pure = is_zero(delta)
    if delta is not None and not pure:
        check_fraction(delta, "delta")
    if epsilon is not None:
        epsilon = check_positive(epsilon, "epsilon", infinite=True)
        if math.isinf(epsilon):
            return _without_noise(values)
        if pure:
            return _pure_cost(k, method, values, epsilon)
        delta = check_delta(delta, pure=PURE_WITHOUT_VALUES)
        if method == "laplace":
            return _laplace_cost(k, values, 2.0 * math.sqrt(3.0 * k * math.log(1.0 / delta)) / epsilon)
        rho = epsilon_to_rho(epsilon, delta)
    elif pure:
        raise ArgumentError("delta=0 can be used only with epsilon=: leave delta= out with mu= or rho=")
    elif mu is not None:
        mu = check_positive(mu, "mu", infinite=True)
        rho = mu if math.isinf(mu) else float_down(exact(mu) ** 2 / 2)
    rho = check_positive(rho, "rho", infinite=True)
    if math.isinf(rho):
        return _without_noise(values)
    return _gumbel_cost(k, values, values_share, rho) if method == "gumbel" else _laplace_rho(k, values, rho)


def _without_noise(values: bool) -> PeelingCost:
    return PeelingCost(0.0, ConcentratedLoss(math.inf), GaussianLoss(math.inf) if values else None)


def _pure_cost(k: int, method: PeelingMethod, values: bool, epsilon: float) -> PeelingCost:
    if not values:
        return PeelingCost(2.0 * k / epsilon, PureLoss(epsilon), None)
    if method == "gumbel":
        raise ArgumentError(PURE_WITHOUT_VALUES)
    # A selection costs 2 lambda/b and a value lambda/b.
    selection = float_down(exact(epsilon) * 2 / 3)
    rest = float_down(exact(epsilon) - exact(selection))
    return PeelingCost(3.0 * k / epsilon, PureLoss(selection), PureLoss(rest))


def _gumbel_cost(k: int, values: bool, share: float, rho: float) -> PeelingCost:
    """Split rho; k selections of e0 cost k e0^2/8, and b = 2 lambda/e0."""
    selection = float_down(exact(rho) * (1 - exact(share))) if values else rho
    mu = sqrt_down(2 * (exact(rho) - exact(selection))) if values else 0.0
    b = math.sqrt(k / (2.0 * selection))
    return PeelingCost(b, ConcentratedLoss(selection), GaussianLoss(mu) if values else None)


def _laplace_cost(k: int, values: bool, b: float) -> PeelingCost:
    """Return the exact cost of Laplace noise of scale b lambda: k losses of two values each, as zCDP."""
    return PeelingCost(b, _repeated(k, 2.0 / b), _repeated(k, 1.0 / b) if values else None)


def _repeated(k: int, epsilon: float) -> Loss:
    return PureLoss(epsilon) if k == 1 else ConcentratedLoss(k * pure_rho(epsilon))


def _laplace_rho(k: int, values: bool, rho: float) -> PeelingCost:
    """Return the Laplace peeling at a given zCDP cost; its cost decreases in b."""
    from scipy.optimize import brentq  # a third of the import time of the package

    def excess(log_b: float) -> float:
        return math.log(_laplace_cost(k, values, math.exp(log_b)).rho / rho)

    middle = 0.5 * math.log(2.5 * k / rho)
    low = high = middle
    while excess(low) < 0.0:
        low -= 1.0
    while excess(high) > 0.0:
        high += 1.0
    b = math.exp(float(brentq(excess, low, high, xtol=1e-14))) if low < high else math.exp(low)
    while _laplace_cost(k, values, b).rho > rho:
        b *= 1.0 + 2.0**-48
    return _laplace_cost(k, values, b)


def solve_peeling_scale(
    sensitivity: float, selection_scale: float, roundings: float, source: NoiseSource
) -> tuple[float, float]:
    """Return (scale, sensitivity on the grid): scale = selection_scale times (lambda + roundings x step).

    Raises
    ------
    SensitivityError
        The grid's share of the sensitivity would outgrow the budget.
    """
    if selection_scale == 0.0:
        return 0.0, sensitivity
    bare = sensitivity * (1.0 + FLOAT_SLACK)
    scale = selection_scale * bare
    for _ in range(64):
        grid_sensitivity = bare + (roundings * grid_step(scale) if source.secure else 0.0)
        if selection_scale * grid_sensitivity <= scale:
            return scale, scale / selection_scale
        scale = selection_scale * grid_sensitivity * (1.0 + 2.0**-50)
    raise SensitivityError(
        "the privacy budget is so small that privinf cannot draw the noise that it needs: use a "
        "larger budget, or select fewer entries"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeelingLines:
    """Common fields of the ledger lines of one peeling.

    Attributes
    ----------
    method : {"gumbel", "laplace"}
    k : int
        Selections.
    source : NoiseSource
    label, unit, trust, derivation : str
    times : int
        How many vectors are peeled.
    """

    method: PeelingMethod
    k: int
    source: NoiseSource
    label: str
    unit: str
    trust: TrustModel
    derivation: str
    times: int

    def entry(
        self, mechanism: str, loss: Loss, norm: str, grid_sensitivity: float, noise_model: str, scale: float
    ) -> LedgerEntry:
        """Return one line; its noise is `noise_model` at `scale`, none at 0."""
        clear = scale == 0.0
        times = self.times
        secure = self.source.secure and not clear
        noise_model = (
            NoiseLaws.NONE
            if clear
            else NoiseLaws.DISCRETE.format(law=noise_model)
            if secure and noise_model != NoiseLaws.GUMBEL
            else noise_model
        )
        return LedgerEntry(
            mechanism=mechanism,
            label=self.label if times == 1 else Labels.ITS_VECTORS.format(label=self.label, times=times),
            unit=self.unit,
            relation="replace-one",
            trust=self.trust,
            sensitivity=Sensitivity(norm=norm, value=grid_sensitivity, derivation=self.derivation),
            noise={
                "law": noise_model,
                "scale": scale,
                "grid": grid_step(scale) if secure else 0.0,
                "picks": self.k,
                "vectors": times,
            },
            loss=_times(loss, times),
            source=NoiseSources.NONE if clear else self.source.name,
            secure=secure,
            assumptions=(Assumptions.PUBLIC_N,),
        )


def calibrated_peeling(
    lines: PeelingLines, cost: PeelingCost, sensitivity: float
) -> tuple[float, float, tuple[LedgerEntry, ...]]:
    """Return the noise scales of selections and of values (0 if not released), and the ledger lines.

    Raises
    ------
    SensitivityError
        The grid's share of the sensitivity would outgrow the budget.
    """
    scale, selection_line = selection_entry(lines, cost, sensitivity)
    if cost.values is None:
        return scale, 0.0, (selection_line,)
    values_scale, values = values_entry(lines, cost, sensitivity)
    return scale, values_scale, (selection_line, values)


def selection_entry(lines: PeelingLines, cost: PeelingCost, sensitivity: float) -> tuple[float, LedgerEntry]:
    """Return the noise scale and the ledger line of the selections."""
    roundings = GUMBEL_ROUNDINGS if lines.method == "gumbel" else LAPLACE_ROUNDINGS
    scale, total = solve_peeling_scale(sensitivity, cost.selection_scale, roundings, lines.source)
    mechanism = Mechanisms.PEELING.format(method=lines.method)
    return scale, lines.entry(mechanism, cost.selection, Norms.LINF, total, lines.method, scale)


def values_entry(lines: PeelingLines, cost: PeelingCost, sensitivity: float) -> tuple[float, LedgerEntry]:
    """Return the noise scale and the ledger line of the values at the positions selected."""
    loss = cost.values
    k = lines.k
    source = lines.source
    lines = replace(
        lines,
        label=Labels.ITS_VALUES.format(label=lines.label),
        derivation=Derivations.OF_ENTRIES.format(derivation=lines.derivation, k=k),
    )
    assert loss is not None
    if lines.method == "laplace" and cost.selection_scale > 0.0:
        scale, total = solve_peeling_scale(sensitivity, cost.selection_scale, LAPLACE_ROUNDINGS, source)
        return scale, lines.entry(Mechanisms.LAPLACE, loss, Norms.LINF, total, NoiseLaws.LAPLACE, scale)
    assert isinstance(loss, GaussianLoss)
    bare = math.sqrt(k) * sensitivity * (1.0 + FLOAT_SLACK)
    scale, total = (0.0, bare) if math.isinf(loss.mu) else solve_scale(bare, loss.mu, k, source)
    return scale, lines.entry(Mechanisms.GAUSSIAN, loss, Norms.L2, total, NoiseLaws.GAUSSIAN, scale)


def _times(loss: Loss, times: int) -> Loss:
    """Return the loss of several releases of the same kind."""
    if times == 1:
        return loss
    match loss:
        case GaussianLoss(mu):
            return loss if math.isinf(mu) else GaussianLoss(sqrt_down(exact(mu) ** 2 * times))
        case ConcentratedLoss(rho):
            return loss if math.isinf(rho) else ConcentratedLoss(float_down(exact(rho) * times))
        case PureLoss(epsilon):
            return PureLoss(float_down(exact(epsilon) * times))
    raise ArgumentError(f"no repeated {type(loss).__name__}")


def _rho_of(loss: Loss) -> float:
    match loss:
        case GaussianLoss(mu):
            return mu * mu / 2.0
        case PureLoss(epsilon):
            return pure_rho(epsilon)
        case ConcentratedLoss(rho):
            return rho
    raise ArgumentError(f"the privacy guarantee {type(loss).__name__} cannot be converted to zCDP (rho)")
