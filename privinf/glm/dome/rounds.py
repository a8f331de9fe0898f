"""The rounds of a first-order private optimizer: one released batch a round, and what the server keeps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from privinf.accounting.budget import ROUNDING
from privinf.errors import ArgumentError
from privinf.glm.convergence import Round, Trajectory
from privinf.glm.dome.optimizers import DOME, DPAdam, Optimizer, RandomSketch, dome_variant
from privinf.glm.dome.sketch import LearnedSpace, Probes, RunningMoments, Sketch
from privinf.glm.sums import GlmSums
from privinf.typing import Floats, Integers

# Iterates of a step that is far too long stay here, below the largest number that a statistic takes (1e30).
FARTHEST = 1e29


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
            raise ArgumentError(f"k={options.k} must be at most {d}, the number of coefficients")
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
            self.space = variant.learned(self.space, tracked, options.most_learned, options.energy)
        if options.precondition:
            unit = self.moments.unit
            self.space = variant.rescaled(self.space, self.unit / unit)
            self.unit = unit
