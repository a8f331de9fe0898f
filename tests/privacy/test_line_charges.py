"""What peeling and grids charge, reckoned again from the ledger line alone; and mutants that this catches.

Record and replay (`test_mutants`) measures losses on worst pairs. Here the same charges are derived a second
time, for every k, number of vectors and cap on a person's rows.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from mutation import Mutant

import privinf as pi
from privinf.accounting import ConcentratedLoss, GaussianLoss, PureLoss, pure_rho
from privinf.mechanisms import NoisyTopK, noisy_scalar
from privinf.noise import LatticeNoise, SimulationNoise

CAP = 5
TIGHT = 1.0 - 1e-9
LEVELS = {
    "gumbel, rho": ("gumbel", {"rho": 1e-7}),
    "gumbel, mu": ("gumbel", {"mu": 1e-3}),
    "gumbel, epsilon": ("gumbel", {"epsilon": 1e-3, "delta": 1e-6}),
    "gumbel, pure": ("gumbel", {"epsilon": 1e-4, "delta": 0, "values": False}),
    "laplace, rho": ("laplace", {"rho": 1e-7}),
    "laplace, the paper's": ("laplace", {"epsilon": 1e-3, "delta": 1e-6}),
    "laplace, pure": ("laplace", {"epsilon": 1e-4, "delta": 0}),
}


def complaints_of_peeling():
    """Return lines of picks and values that state too little, at budgets so small that grids count."""
    for (name, (method, level)), k, times in product(LEVELS.items(), (1, 7), (1, 3)):
        for source in (LatticeNoise(), SimulationNoise(0)):
            picks, *values = NoisyTopK(k, 1.0, method=method, **level).calibrated(source, times=times).entries
            for entry, needed in ((picks, of_picks), *((line, of_values) for line in values)):
                grid = entry.noise["grid"]
                true = needed(method, 1.0, grid, entry, k, times)
                if true > stated(entry) * (1.0 + 1e-9):
                    yield f"{name}, k={k}, {times} vectors, {entry.label}: {true:.6g} is stated too low"


def of_picks(method, reach, grid, entry, k, times):
    """Return the loss of the picks: rho of k bounded ranges, or the sum of pure losses."""
    moved = reach + (3.0 if method == "gumbel" else 1.0) * grid
    each = 2.0 * moved / entry.noise["scale"]
    if isinstance(entry.loss, PureLoss):
        return k * times * each
    return k * times * (each**2 / 8.0 if method == "gumbel" else pure_rho(each))


def of_values(method, reach, grid, entry, k, times):
    """Return the loss of k values."""
    scale = entry.noise["scale"]
    if method == "gumbel":
        return math.sqrt(k * times) * (reach + grid) / scale
    each = (reach + grid) / scale
    return k * times * (each if isinstance(entry.loss, PureLoss) else pure_rho(each))


def stated(entry):
    match entry.loss:
        case GaussianLoss(mu):
            return mu
        case ConcentratedLoss(rho):
            return rho
        case PureLoss(epsilon):
            return epsilon


def rows(n=30):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(size=(n, 3)), columns=["a", "b", "y"])
    return frame.assign(person=np.arange(n) // CAP, g=np.resize(["u", "v"], n))


def schema(cap):
    bounds = {"y": (0.0, 1.0), "a": (0.0, 1.0), "b": (0.0, 1.0), "g": ["u", "v"]}
    return pi.Schema(bounds, unit="person", max_rows=cap) if cap > 1 else pi.Schema(bounds)


def releases(cap):
    """Return ledger lines, secure and seeded, and how many numbers of the release a person touches."""
    data, public = rows(), schema(cap)
    for trust in ("central", "local"):
        mechanism = pi.Moments(public, "y ~ a + b", trust=trust)
        secure, plain = (mechanism.release(data, mu=1e-3, rng=rng) for rng in (None, 0))
        width = secure.arrays["moments"].shape[-1]
        # A total is an exact sum that is rounded once; locally every row's message is.
        numbers = width * (1 if trust == "central" else cap)
        yield f"moments, {trust}", secure.entries[0], plain.entries[0], numbers
    secure, plain = (pi.Modulation(public, "y ~ a + b").release(data, mu=1e-3, rng=rng) for rng in (None, 0))
    columns = secure.arrays["features"].shape[-1]
    yield "modulated features", secure.entries[0], plain.entries[0], columns * cap
    yield "modulated response", secure.entries[1], plain.entries[1], cap
    mechanism = pi.LocalExamples(public, "g ~ a + b")
    asked = {"epsilon_x": 1e-2, "epsilon_y": 1.0, "delta": 1e-6}
    secure, plain = (mechanism.release(data, **asked, rng=rng).entries[0] for rng in (None, 0))
    assert isinstance(secure.loss, GaussianLoss)
    yield "examples", secure, plain, 2 * cap
    mechanism = pi.LocalExamples(public, "y ~ a + b", noise="laplace")
    asked = {"epsilon_x": 1e-2, "epsilon_y": 1e-2}
    secure, plain = (mechanism.release(data, **asked, rng=rng) for rng in (None, 0))
    yield "pure examples", secure.entries[0], plain.entries[0], 2 * cap
    yield "pure label", secure.entries[1], plain.entries[1], cap
    secure, plain = (noisy_scalar(0.5, 1.0, mu=1e-3, rng=r).entries[0] for r in (None, 0))
    yield "a scalar", secure, plain, 1


def complaints_of_grids():
    """Return the lines whose sensitivity leaves out some of the grid's share."""
    for cap in (1, CAP):
        for name, secure, plain, numbers in releases(cap):
            bare = plain.sensitivity.value
            pure = isinstance(secure.loss, PureLoss)
            needed = bare + secure.noise["grid"] * (numbers if pure else math.sqrt(numbers))
            if secure.sensitivity.value < needed * TIGHT:
                yield f"{name}, {cap} rows a person: {secure.sensitivity.value:.6g} for {needed:.6g}"
            spent = secure.loss.epsilon if pure else secure.loss.mu
            if not math.isclose(spent * secure.noise["scale"], secure.sensitivity.value, rel_tol=1e-9):
                yield f"{name}: the noise is not that of the sensitivity"


def test_picks_and_values_cost_what_their_lines_say():
    assert not list(complaints_of_peeling())


def test_lines_hold_the_grids_share_of_all_of_a_persons_numbers():
    assert not list(complaints_of_grids())


PEELING = {
    "one pick of k": Mutant("mechanisms.peeling", "_gumbel_cost", "math.sqrt(k /", "math.sqrt(1 /"),
    "one pure pick of k": Mutant("mechanisms.peeling", "_pure_cost", "3.0 * k / epsilon", "3.0 / epsilon"),
    "one Laplace pick of k": Mutant(
        "mechanisms.peeling", "_repeated", "ConcentratedLoss(k * ", "ConcentratedLoss("
    ),
    "one of several vectors": Mutant("mechanisms.peeling", "_times", "exact(rho) * times", "exact(rho)"),
    "one of several pure vectors": Mutant(
        "mechanisms.peeling", "_times", "exact(epsilon) * times", "exact(epsilon)"
    ),
    "values of one of several vectors": Mutant(
        "mechanisms.peeling", "_times", "exact(mu) ** 2 * times", "exact(mu) ** 2"
    ),
    "one value of k": Mutant(
        "mechanisms.peeling", "values_entry", "math.sqrt(k) * sensitivity", "sensitivity"
    ),
    "roundings": Mutant("mechanisms.peeling", "solve_peeling_scale", "roundings * grid_step(scale)", "0.0"),
    "two of three roundings": Mutant(
        "mechanisms.peeling", "solve_peeling_scale", "roundings *", "roundings / 3.0 *"
    ),
    "roundings of values": Mutant("noise.source", "grid_inflation", "grid_step(scale) *", "0.0 *"),
}
GRIDS = {
    "the rounding of a total": Mutant(
        "mechanisms.moments", "Moments._line", "if local else 1)", "if local else 0)"
    ),
    "a person's local rows": Mutant(
        "mechanisms.moments", "Moments._line", "(rows_per_unit if local else", "(1 if local else"
    ),
    "a person's modulated rows": Mutant(
        "mechanisms.local.modulation", "Modulation._plan", "self.columns * rows_per_unit", "self.columns"
    ),
    "a person's modulated responses": Mutant(
        "mechanisms.local.modulation", "Modulation._plan", "dimension=rows_per_unit", "dimension=1"
    ),
    "a person's examples": Mutant(
        "mechanisms.local.examples", "LocalExamples._features_line", "gaussian * rows_per_unit", "gaussian"
    ),
    "a person's examples with Laplace noise": Mutant(
        "mechanisms.local.examples",
        "LocalExamples._laplace_features_line",
        "gaussian * rows_per_unit",
        "gaussian",
    ),
    "a person's labels with Laplace noise": Mutant(
        "mechanisms.local.examples",
        "LocalExamples._laplace_label_line",
        "dimension=rows_per_unit",
        "dimension=1",
    ),
    "the Laplace line's own dimension": Mutant(
        "mechanisms.laplace", "LaplaceLine.calibrated", "float(self.dimension)", "1.0"
    ),
    "all roundings": Mutant("noise.source", "grid_inflation", "math.sqrt(dimension)", "0.0"),
    "roundings of one number": Mutant("noise.source", "grid_inflation", "math.sqrt(dimension)", "1.0"),
    "the line's own dimension": Mutant(
        "mechanisms.gaussian", "Line.calibrated", "self.mu, self.dimension,", "self.mu, 1,"
    ),
}


@pytest.mark.parametrize("name", PEELING)
def test_mutants_of_peeling_are_caught(name):
    with PEELING[name].applied():
        assert any(complaints_of_peeling())


@pytest.mark.parametrize("name", GRIDS)
def test_mutants_of_grids_are_caught(name):
    with GRIDS[name].applied():
        assert any(complaints_of_grids())
