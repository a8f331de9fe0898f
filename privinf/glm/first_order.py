r"""First-order private optimisers on public batches: full gradients, or gradients in a sketch (paper 3).

Every record is in one of B batches, fixed before the data are seen, and once in every epoch: E epochs cost a
record E releases of sensitivity 2C, for any B. A site is in every batch: as the unit of privacy it pays for
E B releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from privinf.accounting.budget import ROUNDING
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError
from privinf.glm.convergence import Round, Trajectory
from privinf.glm.sketch import LearnedSpace, Probes, RunningMoments, Sketch
from privinf.glm.sums import GlmSums
from privinf.registry import studied
from privinf.typing import Floats, Integers
from privinf.validation import check_choice, check_count, check_fraction, check_number, check_positive

OptimizerVariant = Literal["repaired", "paper"]
# Iterates of a step that is far too long stay here, below the largest number that a statistic takes (1e30).
FARTHEST = 1e29


@dataclass(frozen=True, slots=True, kw_only=True)
class DomeVariant:
    """What a variant of `DOME` does in its own way.

    Attributes
    ----------
    moments : bool
        Whether it centers, preconditions and takes Adam's steps where nothing else is requested.
    probes : {"unbiased", "orthonormal"}
    averages : bool
        Whether the last iterates are averaged.
    tracked : callable (sketched, gradient) -> ndarray
        The vector that the learned directions follow.
    rescaled : callable (space, ratio) -> LearnedSpace
        The learned directions in the next round's units, `ratio` of this one's.
    """

    moments: bool
    probes: Probes
    averages: bool
    tracked: Callable[[Floats, Floats], Floats]
    rescaled: Callable[[LearnedSpace, Floats], LearnedSpace]


_VARIANTS: dict[OptimizerVariant, DomeVariant] = {
    "repaired": DomeVariant(
        moments=False,
        probes="unbiased",
        averages=True,
        tracked=lambda sketched, gradient: sketched,
        rescaled=LearnedSpace.rescaled,
    )
}


def register_variant(name: OptimizerVariant, variant: DomeVariant) -> None:
    """Add a variant of `DOME`; studies do this on import."""
    _VARIANTS[name] = variant


def dome_variant(variant: OptimizerVariant) -> DomeVariant:
    """Return what a variant does; "paper" is in studies.

    Raises
    ------
    NotAvailableError
        It is of studies, which cannot be imported here.
    """
    if variant not in _VARIANTS:
        studied(f"{variant}.dome", f"DOME(variant={variant!r})")
    return _VARIANTS[variant]


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class DPSGD:
    """Stochastic gradient ascent on clipped scores of full dimension.

    Parameters
    ----------
    epochs : int
        Times that every record takes part.
    batches : int
        Rounds an epoch; a batch has about n / batches records.
    step : float
        Size of a step, in units in which every bounded column is in [-1, 1].
    clip : float
        C: a record's (sketched) score is shrunk to this norm. The noise grows with it; below the length of a
        typical row in these units the loss is that of a clipped score.
    average : float
        Share of the last iterates that are averaged; 0 for the last one alone.
    final_share : float
        Share of the budget (mu^2) of the final release, where the dimension allows intervals.

    Notes
    -----
    **Privacy.** Public settings. Choosing them by private data costs additional privacy, which no ledger
    counts.
    """

    epochs: int = 5
    batches: int = 20
    step: float = 1.0
    clip: float = 4.0
    average: float = 0.5
    final_share: float = 0.8

    def __post_init__(self) -> None:
        check_count(self.epochs, "epochs")
        check_count(self.batches, "batches")
        check_positive(self.step, "step")
        check_positive(self.clip, "clip")
        check_number(self.average, "average", low=0.0, high=1.0, open_high=True)
        check_fraction(self.final_share, "final_share")


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class DPAdam(DPSGD):
    """Adam on clipped scores of full dimension, its second moment corrected for the noise.

    Parameters
    ----------
    epochs : int
        Number of times that every record takes part.
    batches : int
        Rounds an epoch; a batch has about n / batches records.
    step : float
        Size of a step, in units in which every bounded column is in [-1, 1].
    clip : float
        C: the (sketched) score of a record is shrunk to this norm. The noise grows with it; below the length
        of a typical row in these units the loss is that of a clipped score.
    average : float
        Share of the last iterates that are averaged; 0 for the last one alone.
    final_share : float
        Share of the budget (mu^2) of the final release, where the dimension allows intervals.

    Notes
    -----
    **Privacy.** Public settings. Choosing them by private data costs additional privacy, which no ledger
    counts.
    """

    step: float = 0.02


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSketch(DPSGD):
    """Stochastic gradient ascent in a new random k-dimensional sketch every round (Chen et al. 2022).

    Parameters
    ----------
    k : int
        Numbers that a site sends a round.
    epochs : int
        Number of times that every record takes part.
    batches : int
        Rounds an epoch; a batch has about n / batches records.
    step : float
        Size of a step, in units in which every bounded column is in [-1, 1].
    clip : float
        C: the (sketched) score of a record is shrunk to this norm. The noise grows with it; below the length
        of a typical row in these units the loss is that of a clipped score.
    average : float
        Share of the last iterates that are averaged; 0 for the last one alone.
    final_share : float
        Share of the budget (mu^2) of the final release, where the dimension allows intervals.

    Notes
    -----
    **Privacy.** Public settings. Choosing them by private data costs additional privacy, which no ledger
    counts.
    """

    k: int = 40

    def __post_init__(self) -> None:
        # super() without arguments does not work in slotted dataclasses
        DPSGD.__post_init__(self)
        check_count(self.k, "k")


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class DOME(DPSGD):
    """Gradients in a sketch of directions learned from past releases and random probes.

    Parameters
    ----------
    k : int
        Columns of the sketch: numbers that a site sends a round.
    most_learned : int
        Largest number of learned directions.
    energy : float
        Share of the spectrum of past gradients that they hold.
    variant : {"repaired", "paper"}
        "repaired" scales the probes so that the gradient's estimate is unbiased, neither centers nor
        preconditions, and steps along it. "paper" centers and preconditions with Adam's moments, projects,
        tracks the gradient itself, and takes Adam's steps without averaging: far worse losses. It is one of
        the repository's studies (``studies.paper.dome``), not in the wheel.
    centre, precondition : bool, optional
        Subtract Adam's first moment, divide by the root of its second; default by the variant.
    probes : {"unbiased", "orthonormal"}, optional
        Default by the variant.
    adam : bool, optional
        Adam's steps instead of plain ones; default by the variant.
    epochs : int
        Number of times that every record takes part.
    batches : int
        Rounds an epoch; a batch has about n / batches records.
    step : float
        Size of a step, in units in which every bounded column is in [-1, 1].
    clip : float
        C: the (sketched) score of a record is shrunk to this norm. The noise grows with it; below the length
        of a typical row in these units the loss is that of a clipped score.
    average : float
        Share of the last iterates that are averaged; 0 for the last one alone. The paper variant averages
        nothing.
    final_share : float
        Share of the budget (mu^2) of the final release, where the dimension allows intervals.

    Notes
    -----
    **Privacy.** Public settings: the sketch, and Adam's moments, are functions of past releases. A replaced
    record moves a sum by 2C; the paper counts C, for a record that is left out.

    Where the paper is silent: second moments are corrected for their start at 0, and kept above a tenth of
    the noise's average variance. Sites are sent the learned directions and the probes' seed, not the sketch.

    References
    ----------
    "Communication efficient, differentially private distributed optimization using correlation-aware
    sketching", Algorithms 1 and 2.
    """

    k: int = 40
    most_learned: int = 5
    energy: float = 0.9
    variant: OptimizerVariant = "repaired"
    centre: bool | None = None
    precondition: bool | None = None
    probes: Probes | None = None
    adam: bool | None = None

    def __post_init__(self) -> None:
        DPSGD.__post_init__(self)
        if check_count(self.most_learned, "most_learned", least=0) >= check_count(self.k, "k"):
            raise ArgumentError(
                "most_learned= must be less than k=, so that some probes can find new directions"
            )
        check_fraction(self.energy, "energy")
        variant = dome_variant(check_choice(self.variant, OptimizerVariant, "variant"))
        for name in ("centre", "precondition", "adam"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise ArgumentError(f"{name} must be True or False")
            object.__setattr__(self, name, variant.moments if value is None else value)
        object.__setattr__(self, "probes", check_choice(self.probes or variant.probes, Probes, "probes"))
        if not variant.averages:
            object.__setattr__(self, "average", 0.0)


Optimizer: TypeAlias = DPSGD | DPAdam | RandomSketch | DOME


def optimise(
    sums: GlmSums, start: Floats, mu: float, options: Optimizer, seed: int, watched: Integers | None = None
) -> Trajectory:
    """Run a private optimiser from a public start; the path keeps the iterates at the end of every epoch.

    Parameters
    ----------
    sums : GlmSums
    start : ndarray, shape (d,)
    mu : float
        Price of the run; infinite for no noise.
    options : DPSGD, DPAdam, RandomSketch or DOME
    seed : int
        Public: batches and probes.
    watched : ndarray of int, optional
        Coefficients in which the distributions of the rounds are kept; default: in none.

    Notes
    -----
    **Privacy.** Every epoch costs mu^2 / E: its batches are disjoint, unless sites are the units. The
    result is a function of releases.
    """
    paid = options.epochs * sums.parts(options.batches)
    price = mu if math.isinf(mu) else mu * math.sqrt(ROUNDING / paid)
    rounds = options.epochs * options.batches
    averaged = max(1, math.ceil(options.average * rounds))
    theta = np.array(start)
    path = [start]
    steps = []
    total = np.zeros_like(start)
    state = _OptimizerRounds(options, len(start), seed)
    for number in range(rounds):
        with np.errstate(over="ignore"):
            moved = theta + options.step * state.direction(sums, theta, price, number)
        theta = np.clip(moved, -FARTHEST, FARTHEST)
        if watched is not None:
            steps.append(state.round_distribution(watched))
        if number >= rounds - averaged:
            total += theta
        if (number + 1) % options.batches == 0:
            path.append(theta)
    return Trajectory(params=total / averaged, path=path, length=rounds, rounds=steps, averaged=averaged)


class _OptimizerRounds:
    """What the server keeps from round to round; functions of past releases.

    Of the last round, for the distribution of its error: `gain`, the direction per unit of the score;
    `noise`, the variances of the score's noise; `dilution`, by which a sketch raises the variance of what it
    shows.
    """

    def __init__(self, options: Optimizer, d: int, seed: int) -> None:
        if isinstance(options, (RandomSketch, DOME)) and options.k > d:
            raise ArgumentError(f"k={options.k} is larger than the number of coefficients, {d}")
        self.options = options
        self.seed = seed
        self.moments = RunningMoments.start(d)
        self.space = LearnedSpace.empty(d)
        self.unit: Floats = np.ones(d)
        self.gain: Floats = np.ones(d)
        self.noise: Floats = np.zeros(d)
        self.dilution = 1.0

    def direction(self, sums: GlmSums, theta: Floats, price: float, number: int) -> Floats:
        """Release the score of one batch, update the state, and return the direction of the step."""
        options = self.options
        sketch, arguments = self._sketch(number)
        released, sd = sums.batch(
            theta,
            price,
            clip=options.clip,
            batches=options.batches,
            batch=number % options.batches,
            seed=self.seed,
            **arguments,
        )
        raw = released if sketch is None else sketch.matrix @ released
        spread = np.ones_like(raw) if sketch is None else sketch.noise_diagonal
        gradient = raw * self.unit
        variance = sd**2 * spread * self.unit**2
        self.noise = variance
        self.dilution = len(raw) / len(released)
        if isinstance(options, DOME) and options.centre:
            gradient = gradient + self.moments.first
        adam = isinstance(options, DPAdam) or (isinstance(options, DOME) and bool(options.adam))
        if adam or (isinstance(options, DOME) and (options.centre or options.precondition)):
            self.moments.update(gradient, variance)
        if isinstance(options, DOME):
            self._learn(options, raw, gradient)
        if adam:
            self.gain = 1.0 / self.moments.unit
        return self.moments.direction if adam else gradient

    def round_distribution(self, watched: Integers) -> Round:
        """Return the distribution of the last round in some coefficients."""
        options = self.options
        gain = options.step * self.gain[watched]
        return Round(gain, self.noise[watched], options.batches * self.dilution)

    def _sketch(self, number: int) -> tuple[Sketch | None, dict[str, Any]]:
        options = self.options
        if not isinstance(options, (RandomSketch, DOME)):
            return None, {}
        kind: Probes = options.probes or "unbiased" if isinstance(options, DOME) else "unbiased"
        # The batches' seed keys another stream of the same family.
        sketch = Sketch.from_space(self.space, options.k, self.seed + 1 + number, kind)
        arguments = dict(sketch.arguments)
        if isinstance(options, DOME) and options.centre:
            arguments["moment"] = self.moments.first
        if isinstance(options, DOME) and options.precondition:
            arguments["unit"] = self.unit
        return sketch, arguments

    def _learn(self, options: DOME, raw: Floats, gradient: Floats) -> None:
        """Track the sketched gradient, in the next round's units."""
        variant = dome_variant(options.variant)
        if options.most_learned:
            tracked = variant.tracked(raw, gradient)
            self.space = self.space.track(tracked, limit=options.most_learned, energy=options.energy)
        if options.precondition:
            unit = self.moments.unit
            self.space = variant.rescaled(self.space, self.unit / unit)
            self.unit = unit
