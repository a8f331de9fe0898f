"""One reduced cell of each long simulation of benchmarks/verify_examples.py, judged by binomial limits."""

import math

import numpy as np
import pytest

import privinf as pi
from privinf.iwp.score_test import score_test
from privinf.iwp.solving import example_system
from studies.examples import examples_target, labelled_examples, staged_examples
from studies.simulation import binomial_limits

DELTA, RADIUS, NORMAL = 1e-5, math.sqrt(2.0), 1.959963984540054
STAGES = pi.Schema({"stage": [0, 1, 2], "x1": (-1.0, 1.0), "x2": (-1.0, 1.0)})
SETTINGS = {"truncation": None, "ridge": 0.0}
CORRECTIONS = {"logistic": "conditional", "quadratic": "exact"}


def errors(r, truth):
    """Error over standard error of every coefficient."""
    return (r.params.to_numpy() - np.asarray(truth)) / r.bse.to_numpy()


def covers(z, target=0.95, width=NORMAL):
    """Whether every coefficient's coverage lies inside limits that hold jointly in 99% of runs."""
    reps, p = z.shape
    low, high = binomial_limits(target, reps, 1.0 - 0.01 / (2 * p))
    share = (np.abs(z) <= width).mean(axis=0)
    return bool((share >= low).all() and (share <= high).all())


def held(z):
    """Coverage of single coefficients and of all of them together."""
    pooled = binomial_limits(0.95, z.shape[0], 1.0 - 0.01 / 2)[0]
    assert covers(z)
    assert (np.abs(z) <= 0.75 * NORMAL).mean() < pooled  # a quarter less in width is seen


@pytest.mark.audit
def test_conditional_and_quadratic_cover_and_ignoring_the_noise_does_not():
    reps, rng = 120, np.random.default_rng(1)
    quadratic = examples_target("quadratic")
    z = {name: np.empty((reps, 2)) for name in ("logistic", "quadratic", "naive", "series")}
    for i in range(reps):
        sample = labelled_examples(8_000, rng)
        model = pi.IWPGLM(sample.y, sample.X, radius=RADIUS)
        release = model.release(epsilon_x=24.0, epsilon_y=4.0, delta=DELTA, rng=rng)
        logistic = pi.IWPGLM.from_release(release)
        z["logistic"][i] = errors(logistic.fit(), sample.params)
        z["quadratic"][i] = errors(pi.IWPGLM.from_release(release, loss="quadratic").fit(), quadratic)
        z["naive"][i] = errors(logistic.fit(correction="none"), sample.params)
        z["series"][i] = errors(logistic.fit(correction="series", truncation=1), sample.params)
    held(z["logistic"])
    held(z["quadratic"])
    assert (np.abs(z["naive"]) <= NORMAL).mean(axis=0).max() < 0.02
    assert (np.abs(z["series"]) <= NORMAL).mean(axis=0).max() < 0.75


@pytest.mark.audit
def test_intercept_public_covariate_and_binary_feature_cover():
    reps, rng = 160, np.random.default_rng(2)
    z = np.empty((reps, 5))
    for i in range(reps):
        sample = labelled_examples(8_000, rng, terms=["const", "z", "b"])
        bounds = {"x1": (-1, 1), "x2": (-1, 1), "b": (0, 1)}
        model = pi.IWPGLM(sample.y, sample.X, bounds=bounds, binary=["b"])
        z[i] = errors(model.fit(epsilon_x=24.0, epsilon_y=4.0, delta=DELTA, rng=rng), sample.params)
    held(z)


@pytest.mark.audit
def test_three_levels_cover():
    reps, rng = 80, np.random.default_rng(3)
    z = np.empty((reps, 6))
    for i in range(reps):
        sample = staged_examples(8_000, rng)
        table = sample.X.assign(stage=sample.y.astype(int))
        model = pi.IWPGLM.from_formula(
            "stage ~ x1 + x2", table, schema=STAGES, loss="multinomial", radius=RADIUS
        )
        z[i] = errors(model.fit(epsilon_x=20.0, epsilon_y=5.0, delta=DELTA, rng=rng), sample.params)
    held(z)


@pytest.mark.audit
@pytest.mark.parametrize("loss", ["logistic", "quadratic"])
def test_score_test_keeps_its_size_under_heavy_noise_and_has_power(loss):
    """Labels that know nothing of the features, with a constant to be estimated: 5% are rejected."""
    reps, rng = 400, np.random.default_rng(4)
    rejected = {"null": 0, "alternative": 0}
    for _ in range(reps):
        sample = labelled_examples(2_000, rng, terms=["const"])
        chance = (rng.random(2_000) < 0.35).astype(float)
        for name, y in (("null", chance), ("alternative", sample.y)):
            model = pi.IWPGLM(y, sample.X, bounds=[(-1, 1)] * 2, loss=loss)
            release = model.release(epsilon_x=4.0, epsilon_y=2.0, delta=DELTA, rng=rng)
            system = example_system(release, SETTINGS | {"loss": loss, "correction": CORRECTIONS[loss]})
            rejected[name] += score_test(system, tested=[False, True, True]).pvalue < 0.05
    low, high = binomial_limits(0.05, reps, 1.0 - 0.01 / 2)
    assert low <= rejected["null"] / reps <= high
    assert rejected["alternative"] / reps > 2.0 * high
