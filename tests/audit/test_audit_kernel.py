"""The audit kernel on mechanisms whose exact loss is known, and on planted faults."""

import dataclasses
import math
import types

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support.instrument import RecordingNoise
from support.leaks import find_raw_values

from privinf.accounting import GaussianLoss, PureLoss, compose
from privinf.errors import ArgumentError
from privinf.noise import LatticeNoise, SimulationNoise
from studies.audit import (
    audit_mechanism,
    binomial_bounds,
    gaussian_log_ratio,
    lower_bounds,
    search_sensitivity,
    tradeoff_mu,
    wave_log_density,
)

DELTA = 1e-5


def gaussian(sigma):
    return lambda world, count, rng: world + sigma * rng.standard_normal(count)


def test_binomial_bounds_are_clopper_pearson():
    k = np.array([0, 3, 50, 99, 100])
    low, high = binomial_bounds(k, 100, 0.0005)
    for hits, a, b in zip(k, low, high, strict=True):
        exact = stats.binomtest(int(hits), 100).proportion_ci(0.999, "exact")
        assert (a, b) == (pytest.approx(exact.low, abs=1e-9), pytest.approx(exact.high, abs=1e-9))


def test_bounds_hold_at_their_confidence():
    """Few draws, confidence 90%: at most 10% of the bounds may exceed the truth."""
    rng = np.random.default_rng(0)
    runs = 400
    misses = np.zeros(2)
    for _ in range(runs):
        found = lower_bounds(rng.normal(size=200), rng.normal(1.0, 1.0, 200), delta=0.1, confidence=0.9)
        truth = compose([GaussianLoss(1.0)]).epsilon(0.1)
        misses += [found.epsilon > truth, found.mu > 1.0]
    assert (misses <= stats.binom.ppf(0.999, runs, 0.1)).all()
    assert misses.sum() > 0  # they are not vacuous either


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
def test_gaussian(mu):
    sigma = 1.0 / mu
    score = lambda x: gaussian_log_ratio(x, [0.0], [1.0], sigma)  # noqa: E731
    options = {"draws": 200_000, "mu": mu, "delta": DELTA, "exact_mu": mu}
    fine = audit_mechanism(gaussian(sigma), score, rng=1, **options)
    assert fine.passed, fine
    assert 0.9 * mu < fine.mu_lower <= mu
    assert fine.epsilon_lower <= fine.epsilon_claim == compose([GaussianLoss(mu)]).epsilon(DELTA)
    for wrong in (sigma / 2.0, sigma / math.sqrt(2.0)):
        caught = audit_mechanism(gaussian(wrong), score, rng=2, **options)
        assert caught.exceeded, caught
    blind = audit_mechanism(gaussian(1.5 * sigma), score, rng=3, **options)
    assert blind.blind
    assert not blind.passed


def test_laplace_and_randomized_response():
    laplace = lambda scale: lambda world, count, rng: world + rng.laplace(0.0, scale, count)  # noqa: E731
    score = lambda x: np.abs(x) - np.abs(x - 1.0)  # noqa: E731
    options = {"draws": 200_000, "epsilon": 1.0, "exact_epsilon": 1.0}
    assert audit_mechanism(laplace(1.0), score, rng=1, **options).passed
    assert audit_mechanism(laplace(1.0 / 1.5), score, rng=1, **options).exceeded

    def response(epsilon):
        lie = 1.0 / (1.0 + math.exp(epsilon))
        return lambda world, count, rng: world ^ (rng.random(count) < lie)

    binary = lambda z: 2.0 * z - 1.0  # noqa: E731
    fine = audit_mechanism(response(1.0), binary, rng=1, **options)
    assert fine.passed
    assert 0.95 < fine.epsilon_lower <= 1.0
    assert audit_mechanism(response(1.5), binary, rng=1, **options).exceeded


def test_a_total_is_a_claim_and_exactly_one_is_needed():
    total = compose([GaussianLoss(1.0), PureLoss(0.5)])
    found = audit_mechanism(gaussian(1.0), lambda x: x, draws=20_000, rng=0, claim=total, delta=DELTA)
    assert found.mu_claim == total.mu
    assert found.epsilon_claim == total.epsilon(DELTA)
    for claims in ({}, {"mu": 1.0, "epsilon": 1.0}):
        with pytest.raises(ArgumentError, match="one claim"):
            audit_mechanism(gaussian(1.0), lambda x: x, draws=100, rng=0, **claims)
    with pytest.raises(ArgumentError, match="nan"):
        audit_mechanism(gaussian(1.0), lambda x: x * np.nan, draws=100, rng=0, mu=1.0)


def test_wave_density_and_exact_mu():
    x = np.linspace(-9.0, 9.0, 20_001)
    log_p = wave_log_density(x, 2.0, 0.7)
    step = x[1] - x[0]
    assert np.exp(log_p).sum() * step == pytest.approx(1.0, abs=1e-9)
    assert (np.exp(log_p) * x**2).sum() * step == pytest.approx(2.0**2 / 2 + 0.7**2, rel=1e-9)
    draws = 2.0 * np.cos(np.random.default_rng(0).uniform(0, 2 * np.pi, 100_000))
    draws += 0.7 * np.random.default_rng(1).standard_normal(100_000)
    cdf = np.cumsum(np.exp(log_p)) * step
    assert stats.kstest(draws, lambda v: np.interp(v, x, cdf)).pvalue > 1e-4
    plain = [stats.norm.logpdf(x, m, 0.5) for m in (0.0, 0.6)]
    assert tradeoff_mu(*plain, np.full(x.size, step)) == pytest.approx(1.2, abs=0.01)
    waved = [wave_log_density(x - m, 1.0, 0.5) for m in (0.0, 0.6)]
    assert tradeoff_mu(*waved, np.full(x.size, step)) == pytest.approx(0.94, abs=0.01)


def test_sensitivity_search_finds_the_diameter():
    corners = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    base = np.zeros((5, 2))
    total = search_sensitivity(lambda d: np.clip(d, -1, 1).sum(axis=0), base, corners)
    assert total.largest == pytest.approx(2 * math.sqrt(2.0))
    # an unenforced bound is found by leaving the corners
    free = search_sensitivity(lambda d: d.sum(axis=0), base, corners, refine=100)
    assert free.largest > 3.0
    assert search_sensitivity(lambda d: np.clip(d, -1, 1).sum(0), base, corners, refine=100).largest < 2.83


def test_recording_noise_passes_calls_on():
    recorded, plain = RecordingNoise(SimulationNoise(3)), SimulationNoise(3)
    np.testing.assert_array_equal(recorded.perturb(np.ones((4, 2)), 2.5), plain.perturb(np.ones((4, 2)), 2.5))
    np.testing.assert_array_equal(recorded.uniform(3), plain.uniform(3))
    recorded.bernoulli(0.25, (2, 2))
    recorded.integers(5, 7)
    recorded.gaussian_steps(np.zeros(6, dtype=np.int64), 9.0)
    kinds = [(call.kind, call.scale, call.shape) for call in recorded.calls]
    assert kinds == [
        ("perturb", 2.5, (4, 2)),
        ("uniform", 1.0, (3,)),
        ("bernoulli", 0.25, (2, 2)),
        ("integers", 5.0, (7,)),
        ("gaussian_steps", 9.0, (6,)),
    ]
    assert (recorded.name, recorded.secure) == ("simulation", False)
    assert RecordingNoise(LatticeNoise()).secure
    assert recorded.inflation(1.0, 4) == 0.0
    assert [call.shape for call in recorded.of("perturb")] == [(4, 2)]


RAW = pd.DataFrame(
    {
        "x": np.random.default_rng(5).normal(size=40),
        "age": np.random.default_rng(6).integers(18, 90, 40),
        "name": [f"person-{i:03d}" for i in range(40)],
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    inner: object


class TailBias:
    """Keeps its secret out of the instance dictionary: only the pickle shows it."""

    def __reduce__(self):
        return (list, ((float(RAW.x[3]),),))


class Property:
    @property
    def table(self):
        return {"deep": [Slotted((1, {"k": RAW.x.to_numpy()[:2]}))]}


class Raises:
    @property
    def llf(self):
        raise ValueError(f"bad row {RAW.x[7]!r}")


def framed():
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    frame.attrs["source"] = {"rows": RAW.x.tolist()}
    return frame


def view():
    block = np.column_stack([np.zeros(40), RAW.x])
    return block[:, 0]


def closure():
    x = RAW.x.to_numpy()
    return lambda: x.mean()


def chained():
    try:
        try:
            raise ValueError(f"could not convert {RAW.name[4]}")
        except ValueError as inner:
            raise RuntimeError("refused") from inner
    except RuntimeError as error:
        return error


PLANTED = {
    "array": lambda: {"a": [1, (2, np.array([0.0, RAW.x[0]]))]},
    "scalar": lambda: Slotted(Slotted([float(RAW.x[1])])),
    "single precision": lambda: RAW.x.to_numpy(dtype=np.float32),
    "key": lambda: {float(RAW.x[2]): 1},
    "property": Property,
    "attrs": framed,
    "series name": lambda: pd.Series([1.0], name=float(RAW.x[2])),
    "index": lambda: pd.Series(0, index=RAW.x),
    "base of a view": view,
    "closure": closure,
    "pickle": TailBias,
    "text": lambda: Slotted(f"row 3 has x = {RAW.x[3]:.10g}, too large"),
    "property that raises": Raises,
    "chained exception": chained,
    "object array": lambda: np.array([None, RAW.x.to_numpy()], dtype=object),
    "integer column": lambda: Slotted(RAW.age.to_numpy()),
    "sorted integer column": lambda: sorted(RAW.age.tolist()),
    "namespace": lambda: types.SimpleNamespace(rows=RAW),
    "words": lambda: ["row of " + RAW.name[9]],
    "set": lambda: {float(RAW.x[5])},
}


@pytest.mark.parametrize("where", PLANTED)
def test_walk_finds_planted_leaks(where):
    assert find_raw_values(PLANTED[where](), RAW)


def test_walk_finds_the_pickle_alone():
    assert [leak.kind for leak in find_raw_values(TailBias(), RAW)] == ["pickle"]
    assert find_raw_values(TailBias(), RAW, pickled=False) == []


def test_walk_is_silent_about_what_is_public():
    rng = np.random.default_rng(0)
    harmless = {
        "noise": RAW.x.to_numpy() + rng.normal(size=40),
        "ages": [18, 40, 41, 90],
        "mean": float(RAW.x.mean()),
        "text": f"mean {RAW.x.mean():.3f}, 40 rows",
        "frame": pd.DataFrame({"x": [0.0, 1.0]}),
    }
    assert find_raw_values(harmless, RAW) == []
    held = Slotted({"x": RAW.x, "name": "person-003"})
    assert find_raw_values(held, RAW)
    assert find_raw_values(held, RAW, exempt=[RAW.x, RAW.name]) == []
    assert find_raw_values(RAW.age.to_numpy(), RAW, exempt=[RAW.age]) == []
