"""Reduced cells of benchmarks/verify_dome.py: noise in a known span, learned sketches, losses and bytes."""

import math
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import calibrate_mu

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import dome_problems
import dome_sketches

D, N, RANK, MU = 300, 20_000, 5, calibrate_mu(epsilon=2.0, delta=20_000**-1.1)


@cache
def problem(features, seed=0):
    return dome_problems.Problem.draw(features, D, N, seed, RANK)


def rows_of(drawn):
    return drawn.z.astype(float) if drawn.span is None else drawn.z @ drawn.span.T


@pytest.mark.parametrize(
    "optimizer",
    [
        pi.DPSGD(step=3.0, clip=4.0, average=0.0, epochs=1),
        pi.RandomSketch(k=8, step=1.0, clip=4.0, average=0.0, epochs=1),
        pi.DOME(k=8, most_learned=3, step=1.0, clip=4.0, average=0.0, epochs=1),
        pi.DOME(k=8, most_learned=3, step=0.01, clip=4.0, variant="paper", epochs=1),
    ],
    ids=["DPSGD", "random", "DOME", "paper"],
)
def test_the_server_over_factors_answers_what_sites_answer(optimizer):
    drawn = dome_problems.Problem.draw("uneven", 40, 3000, 1, RANK)
    shrunk = dome_problems.Problem(
        z=drawn.z / 10.0,
        span=drawn.span,
        y=drawn.y,
        truth=drawn.truth,
        inner=drawn.inner,
        outer=0.0,
        basis=drawn.basis,
    )
    X = rows_of(shrunk)
    assert np.abs(X).max() < 1.0
    parts = list(zip(np.array_split(drawn.y, 3), np.array_split(X, 3), strict=True))
    model = pi.FederatedGLM.from_arrays(parts, bounds=[(-1, 1)] * 40, family="binomial")
    theirs = model.fit(epsilon=np.inf, optimizer=optimizer).trace.iloc[-1]
    ours = dome_problems.fit(shrunk, optimizer, math.inf, sites=3).params
    assert np.linalg.norm(ours) > 0.01
    np.testing.assert_allclose(ours, theirs, atol=1e-10)


@pytest.mark.parametrize(("relation", "reach"), [("zero-out", 1.0), ("replace-one", 2.0)])
def test_its_noise_is_that_of_a_fit(relation, reach):
    d = 400  # beyond intervals: the whole budget is the rounds'
    drawn = dome_problems.Problem.draw("low", d, 2000, 2, RANK)
    model = pi.FederatedGLM.from_arrays(
        [(drawn.y, rows_of(drawn))],
        bounds=[(-1, 1)] * d,
        family="binomial",
    )
    optimizer = pi.DPSGD(epochs=3, batches=2, clip=0.7)
    fit = model.fit(epsilon=1.0, delta=1e-6, optimizer=optimizer, relation=relation, rng=0)
    price = calibrate_mu(epsilon=1.0, delta=1e-6) / math.sqrt(3)
    server = dome_problems.RowsServer(drawn, reach, 1, np.random.default_rng(0))
    asked = {"clip": 0.7, "theta": np.zeros(d), "batches": 2, "batch": 0, "seed": 0}
    ours = server.vector_sum("glm.sketched_score", asked, label="gradient", mu=price).scale
    # The sites' sums are rounded, which is charged.
    assert ours == pytest.approx(fit.privacy.entries[0].noise["scale"], rel=3e-6)
    assert fit.privacy.epsilon(1e-6) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.audit
def test_the_exact_excess_is_the_mean_over_fresh_rows():
    for features in ("uneven", "mixed", "full"):
        drawn = problem(features)
        theta = 0.7 * drawn.truth + 0.02 * np.random.default_rng(3).standard_normal(D)
        X = rows_of(problem(features))
        both = X @ drawn.truth, X @ theta
        mean = 1.0 / (1.0 + np.exp(-both[0]))
        gaps = np.logaddexp(0, both[1]) - np.logaddexp(0, both[0]) - mean * (both[1] - both[0])
        assert drawn.excess(theta) == pytest.approx(gaps.mean(), abs=4.5 * gaps.std() / math.sqrt(N))
        assert drawn.excess(np.zeros(D)) == pytest.approx(0.2311, abs=1e-4)
        assert drawn.excess(drawn.truth) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.audit
def test_noise_in_a_known_span():
    releases = 150
    error = math.sqrt(2.0 / (80 * releases) + 2.0 / (400 * releases))
    assert dome_sketches.known_span(releases, d=400, k=80) == pytest.approx(0.2, rel=4.0 * error)
    full, sketched = dome_sketches.lemma_1(800, d=400, k=80)
    assert (full / 400, sketched / 80) == pytest.approx((1.0, 1.0), rel=0.02)
    clean, raw = dome_sketches.lemma_2(2000, "unbiased", d=60, k=20)
    assert clean == pytest.approx(1.0, rel=0.02)
    assert raw > 1.2


def learned(start, probes, ratio, sequence="new"):
    cell = dome_sketches.Learning(sequence, dome_sketches.RANK, start, probes, ratio)
    return dome_sketches.learn(cell, d=200, k=40, rounds=120)


def test_a_learned_sketch_misses_little_when_warm_and_much_when_cold():
    warm, cold = (learned(start, "orthonormal", 1.0) for start in ("warm", "cold"))
    assert warm["missed by the sketch"] + 0.25 < cold["missed by the sketch"] < 1.0
    for found in (warm, cold):
        # error = share missed + (k/d) x noise
        parts = found["missed by the sketch"] + 40 / 200 * 1.0
        assert found["error / gradient"] == pytest.approx(parts, rel=0.1)
        assert found["floats up"] == 40
        assert 200 < found["floats down"] <= 200 * (1 + dome_sketches.RANK)


def losses(features, optimizer, seeds=2):
    found = [
        dome_problems.fit(problem(features, 0 if features == "full" else seed), optimizer, MU, seed=seed)
        for seed in range(seeds)
    ]
    return np.mean([one.excess for one in found])


@pytest.mark.audit
def test_where_the_sketch_costs_little_and_where_it_costs_much():
    given = {"step": 0.5, "clip": 6.0}
    sketch = {"k": 20, **given}
    full = losses("low", pi.DPSGD(**given))
    assert full < 0.01
    for optimizer in (pi.RandomSketch(**sketch), pi.DOME(**sketch)):
        assert losses("low", optimizer) < 3.0 * full
    assert losses("low", pi.DOME(k=20, step=0.003, clip=6.0, variant="paper")) > 5.0 * full
    # where all directions carry signal, a sketch misses most of it or hears most of the noise
    wide = {"step": 2.0, "clip": 4.0}
    assert losses("full", pi.DOME(k=20, **wide)) > 1.5 * losses("full", pi.DPSGD(**wide))


@pytest.mark.audit
def test_full_dimension_is_as_good_as_the_true_span():
    gaps = []
    for seed in range(8):
        drawn, options = problem("low", seed), pi.DPSGD(step=0.5, clip=6.0)
        full = dome_problems.fit(drawn, options, MU, seed=seed).excess
        gaps.append(full - dome_problems.fit(drawn.in_span(), options, MU, seed=100 + seed).excess)
    assert abs(np.mean(gaps)) < 4.0 * np.std(gaps, ddof=1) / math.sqrt(len(gaps))
