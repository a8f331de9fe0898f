"""Stochastic gradient descent on released examples: the pass itself, its steps, averages and intervals."""

import math

import numpy as np
import pytest

from privinf.errors import ArgumentError, ConvergenceError
from privinf.inference.solution import sandwich
from privinf.iwp.equation import ExampleScores
from privinf.iwp.example_sgd import LAST_ITERATE, NOT_PD, PROJECTED, SKIPPED, example_gradient, fit_sgd
from privinf.iwp.noise import LabelNoise, ResponseColumns
from privinf.iwp.root import regression_calibration, solve_root
from privinf.iwp.sgd import AVERAGED_DECAY, Schedule, checked_radius, sgd, theory_step

SIGMA2 = 0.25
TRUTH = np.array([1.0, -0.5])


def slopes(theta, rows):
    """A gradient that is one everywhere."""
    return np.ones_like(theta)


def constant_step(step=0.5, **options):
    return Schedule.checked(step=step, **options)


def squared(n=20_000, seed=0, ridge=0.0, variance=SIGMA2):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (n, 2))
    y = x @ TRUTH + 0.1 * rng.standard_normal(n)
    noisy = x + math.sqrt(variance) * rng.standard_normal(x.shape)
    return ExampleScores(noisy, y, [variance] * 2, loss="squared", correction="exact", ridge=ridge)


def example(loss="logistic", correction="conditional", *, gaussian=True, response=False, **options):
    """Three columns: a constant, and two with noise; labels under response (Poisson: with Gaussian noise)."""
    rng = np.random.default_rng(3)
    n = 600
    X = np.column_stack([np.ones(n), rng.normal(0.0, 0.8, (n, 2))])
    noise = np.array([0.0, 0.2, 0.3]) if gaussian else np.zeros(3)
    responses = ()
    if response:
        X[:, 2], noise[2] = rng.integers(0, 2, n), 0.0
        responses = (ResponseColumns((2,), 0.8, 0.2),)
    levels = 3 if loss == "multinomial" else 2
    label = LabelNoise(levels, 0.85, 0.15 / (levels - 1))
    labels = rng.integers(0, levels, n).astype(float)
    if loss in ("squared", "poisson"):
        label, labels = 0.4, rng.normal(1.0, 1.0, n)
    return ExampleScores(
        X,
        labels,
        noise,
        loss=loss,
        correction=correction,
        label=label,
        responses=responses,
        ridge=0.7,
        penalized=[False, True, True],
        **options,
    )


CASES = [
    ("squared", "exact", {}),
    ("squared", "none", {}),
    ("squared", "exact", {"response": True}),
    ("quadratic", "exact", {}),
    ("quadratic", "series", {"truncation": 0}),
    ("quadratic", "series", {"truncation": 2}),
    ("exponential", "exact", {}),
    ("exponential", "series", {"truncation": 2}),
    ("exponential", "none", {}),
    ("poisson", "exact", {}),
    ("poisson", "none", {}),
    ("logistic", "conditional", {}),
    ("logistic", "conditional", {"gaussian": False}),
    ("logistic", "conditional", {"response": True}),
    ("logistic", "series", {"truncation": 0}),
    ("logistic", "series", {"truncation": 1}),
    ("logistic", "series", {"truncation": 3}),
    ("logistic", "series", {"truncation": 2, "gaussian": False}),
    ("logistic", "none", {}),
    ("multinomial", "conditional", {}),
]


@pytest.mark.parametrize(("loss", "correction", "options"), CASES)
def test_short_cuts_have_the_gradient_of_the_system(loss, correction, options):
    system = example(loss, correction, **options)
    gradient = example_gradient(system)
    penalty = 0.7 * np.tile([0.0, 1.0, 1.0], system.p // 3)
    for seed, rows in ((0, slice(0, 128)), (1, slice(512, 600)), (2, slice(0, 600))):
        theta = np.random.default_rng(seed).normal(0.0, 0.7, system.p)
        expected = penalty * theta - system.block_scores(theta, rows).mean(axis=0)
        np.testing.assert_allclose(gradient(theta, rows), expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(
        gradient(theta, slice(0, 600)), -system.mean_score(theta), rtol=1e-9, atol=1e-11
    )


def test_every_record_is_used_once_in_order_and_the_last_batch_is_shorter():
    seen = []

    def gradient(theta, rows):
        seen.append((rows.start, rows.stop))
        return np.zeros(1)

    path = sgd(gradient, 10, [0.0], constant_step(batch=4), theta_radius=1.0)
    assert seen == [(0, 4), (4, 8), (8, 10)]
    assert path.steps == 3


def test_steps_follow_their_schedule():
    schedule = constant_step(0.5, batch=1, decay=0.75)
    path = sgd(slopes, 4, [0.0], schedule, theta_radius=100.0, keep=4)
    np.testing.assert_allclose(np.diff(path.iterates[:, 0]), -0.5 * np.arange(1.0, 5.0) ** -0.75)
    assert schedule.sizes(3) == pytest.approx([0.5, 0.5 * 2**-0.75, 0.5 * 3**-0.75])
    assert constant_step().decay == 0.0
    assert constant_step(average=True).decay == AVERAGED_DECAY


def test_iterates_stay_in_the_ball_and_late_projections_are_counted():
    path = sgd(slopes, 10, [5.0, 5.0], constant_step(1.0, batch=1), theta_radius=2.0, keep=10)
    assert path.iterates[0] == pytest.approx([math.sqrt(2.0)] * 2)
    assert (np.linalg.norm(path.iterates, axis=1) <= 2.0 + 1e-12).all()
    assert path.last == pytest.approx([-math.sqrt(2.0)] * 2)
    assert path.projected == 5  # of ten steps, those of the second half
    free = sgd(slopes, 10, [5.0, 0.0], constant_step(1.0, batch=1), theta_radius=50.0)
    assert free.projected == 0
    np.testing.assert_allclose(free.last, [-5.0, -10.0])


def test_averages_leave_the_burn_in_out():
    schedule = constant_step(0.5, batch=4, decay=0.7, average=True, burn_in=0.3)
    path = sgd(slopes, 38, [0.0], schedule, theta_radius=100.0, keep=10)
    assert path.steps == 10
    assert path.average == pytest.approx(path.iterates[4:].mean(axis=0))  # the start, and three batches
    assert path.averaged == 38 - 3 * 4
    assert path.params is path.average
    late = sgd(slopes, 38, [0.0], constant_step(average=True, batch=4, burn_in=0.99), theta_radius=100.0)
    assert (late.average == late.last, late.averaged) == (True, 2)
    only = sgd(slopes, 3, [0.0], constant_step(average=True, batch=4, burn_in=0.2), theta_radius=100.0)
    assert (only.average == only.last, only.averaged) == (True, 3)
    last = sgd(slopes, 38, [0.0], constant_step(batch=4), theta_radius=100.0)
    assert last.average is None
    assert last.params is last.last


def test_gradients_that_are_not_finite_leave_the_iterate():
    def gradient(theta, rows):
        return np.full(1, np.nan if rows.start == 2 else 1.0)

    path = sgd(gradient, 6, [0.0], constant_step(1.0, batch=2), theta_radius=10.0, keep=3)
    np.testing.assert_allclose(path.iterates[:, 0], [0.0, -1.0, -1.0, -2.0])
    assert path.skipped == 1


@pytest.mark.parametrize(
    ("keep", "batches"), [(0, [0, 10]), (1, [0, 10]), (2, [0, 5, 10]), (99, list(range(11)))]
)
def test_kept_iterates_are_those_of_their_batches(keep, batches):
    path = sgd(slopes, 20, [0.0], constant_step(1.0, batch=2), theta_radius=99.0, keep=keep)
    assert path.batches.tolist() == batches
    np.testing.assert_allclose(path.iterates[:, 0], -np.array(batches))


def test_step_of_the_papers_theory():
    bread, meat = np.diag([0.5, 0.7]), np.diag([3.0, 5.0])
    options = {"n": 100_000, "batch": 100, "theta_radius": 3.0}
    expected = math.log(0.5**2 * 3.0**2 * 1000 / (8.0 / 100)) / (0.5 * 1000)
    assert theory_step(bread, meat, **options) == pytest.approx(expected)
    falling = np.mean(np.arange(1, 1001) ** -0.6)
    assert theory_step(bread, meat, **options, decay=0.6) == pytest.approx(expected / falling)
    short = theory_step(bread, meat, n=100, batch=100, theta_radius=3.0)
    assert short == pytest.approx(1.0 / (2.0 * 0.7))
    noisy = theory_step(bread, 1e9 * meat, **options)
    assert noisy == pytest.approx(math.log(2.0) / (0.5 * 1000))


def test_the_step_is_the_theorys_unless_given():
    system = squared()
    zero = np.zeros(2)
    for average, start in ((False, zero), (True, regression_calibration(system))):
        expected = theory_step(
            system.jacobian(start),
            system.meat(start),
            n=system.n,
            batch=64,
            theta_radius=4.0,
            decay=AVERAGED_DECAY if average else 0.0,
        )
        fit = fit_sgd(system, theta_radius=4.0, batch=64, average=average)
        assert fit.schedule.step == pytest.approx(expected)
        assert fit.schedule.burn_in == (0.2 if average else 0.0)
        np.testing.assert_array_equal(fit.path.iterates[0], start)
    assert fit_sgd(system, theta_radius=4.0, step=0.03).schedule.step == 0.03
    given = theory_step(
        system.jacobian(zero), system.meat(zero), n=system.n, batch=128, theta_radius=4.0, decay=0.3
    )
    assert fit_sgd(system, theta_radius=4.0, decay=0.3).schedule.step == pytest.approx(given)


def test_one_pass_finds_the_root_of_a_penalised_loss():
    system = squared(200_000, ridge=0.2)
    root = solve_root(system)
    last = fit_sgd(system, theta_radius=5.0)
    assert np.abs(last.params - root.params).max() < 0.1
    assert np.abs(root.params - TRUTH).max() > 0.3  # the penalty is no detail
    assert last.cov is None
    assert last.reason == LAST_ITERATE


def test_intervals_of_the_average_are_those_of_the_root():
    system = squared(200_000)
    root = solve_root(system)
    cov = sandwich(system.jacobian(root.params), system.meat(root.params), system.n)
    fit = fit_sgd(system, theta_radius=5.0, average=True)
    assert fit.path.averaged == pytest.approx(0.8 * system.n, abs=fit.schedule.batch)
    np.testing.assert_allclose(fit.cov, cov * system.n / fit.path.averaged, rtol=0.02, atol=1e-9)
    assert (np.abs(fit.params - root.params) < 1.5 * np.sqrt(np.diag(cov))).all()
    assert (np.abs(fit.params - TRUTH) < 4.0 * np.sqrt(np.diag(fit.cov))).all()
    late = fit_sgd(system, theta_radius=5.0, average=True, burn_in=0.5)
    assert late.path.averaged == pytest.approx(0.5 * system.n, abs=fit.schedule.batch)
    assert (np.diag(late.cov) > 1.4 * np.diag(fit.cov)).all()


def test_an_average_that_remembers_its_start_has_no_intervals():
    system = squared(20_000)
    far = fit_sgd(system, theta_radius=5.0, average=True, start=[0.0, 0.0], step=0.05)
    assert far.cov is None
    assert "depends on the starting values" in far.reason
    off = np.abs(far.params - solve_root(system).params)
    assert off.max() > 0.1  # many standard errors: an interval there would not cover
    assert fit_sgd(system, theta_radius=5.0, average=True, start=[0.0, 0.0], step=3.0).cov is not None
    assert fit_sgd(system, theta_radius=5.0, average=True).cov is not None


def test_public_seeds_shuffle_features_and_labels_together():
    system = squared(3000)
    order = np.random.default_rng(8).permutation(3000)
    data = system.data
    moved = ExampleScores(data.X[order], data.labels[order], data.noise, loss="squared", correction="exact")
    options = {"theta_radius": 5.0, "step": 0.05}
    plain = fit_sgd(system, **options)
    shuffled = fit_sgd(system, **options, public_seed=8)
    np.testing.assert_array_equal(shuffled.params, fit_sgd(moved, **options).params)
    assert not np.array_equal(shuffled.params, plain.params)
    assert not np.array_equal(shuffled.params, fit_sgd(system, **options, public_seed=9).params)


def test_shuffled_passes_keep_everything_of_the_system():
    for loss, correction, options in CASES:
        system = example(loss, correction, **options)
        order = np.random.default_rng(1).permutation(system.n)
        theta = np.linspace(-0.5, 0.5, system.p)
        passed = fit_sgd(system, theta_radius=3.0, step=1e-9, batch=system.n, start=theta, public_seed=1)
        moved = example(loss, correction, **options).block_scores(theta, slice(0, system.n))[order]
        penalty = system.ridge * np.tile([0.0, 1.0, 1.0], system.p // 3)
        expected = theta - 1e-9 * (penalty * theta - moved.mean(axis=0))
        np.testing.assert_allclose(passed.params - theta, expected - theta, rtol=1e-5, atol=1e-14)


def test_kept_iterates_do_not_change_the_pass():
    system = squared(5000)
    plain = fit_sgd(system, theta_radius=5.0, average=True)
    kept = fit_sgd(system, theta_radius=5.0, average=True, keep=10)
    np.testing.assert_array_equal(plain.params, kept.params)
    assert len(plain.path.iterates) == 2
    assert len(kept.path.iterates) == 11


def test_averages_without_a_theory_have_no_intervals_and_say_why():
    small = fit_sgd(squared(), theta_radius=0.3, average=True)
    assert np.linalg.norm(small.path.last) <= 0.3 + 1e-12
    assert (small.cov, small.reason) == (None, PROJECTED)
    weak = fit_sgd(squared(500, variance=400.0), theta_radius=1e6, average=True, step=1e-9)
    assert (weak.cov, weak.reason) == (None, NOT_PD)
    burst = example("exponential", "exact")
    burst.data.X[5, 1] = 1e4
    lost = fit_sgd(burst, theta_radius=3.0, average=True, step=1e-3, batch=10, start=[0.0, -1.0, 0.0])
    assert lost.path.skipped > 0
    assert (lost.cov, lost.reason) == (None, SKIPPED)


BAD = {
    "no ball": ({"theta_radius": None}, "theta_radius"),
    "unbounded": ({"theta_radius": math.inf}, "within a ball of this radius"),
    "empty ball": ({"theta_radius": 0.0}, "theta_radius"),
    "not a number": ({"theta_radius": math.nan}, "theta_radius"),
    "batch": ({"batch": 0}, "batch"),
    "half a batch": ({"batch": 1.5}, "batch"),
    "step": ({"step": 0.0}, "step"),
    "infinite step": ({"step": math.inf}, "step"),
    "decay": ({"decay": -0.1}, "decay"),
    "slow decay": ({"decay": 0.5, "average": True}, "greater than 0.5 and less than 1"),
    "fast decay": ({"decay": 1.0, "average": True}, "greater than 0.5 and less than 1"),
    "burn-in": ({"burn_in": 1.0, "average": True}, "burn_in"),
    "burn-in alone": ({"burn_in": 0.1}, "average=True"),
    "start": ({"start": [0.0]}, "2 values"),
    "infinite start": ({"start": [0.0, math.inf]}, "start"),
    "seed": ({"public_seed": -1}, "public_seed"),
    "keep": ({"keep": -1}, "keep"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    change, words = BAD[case]
    with pytest.raises(ArgumentError, match=words):
        fit_sgd(squared(100), **({"theta_radius": 5.0, "step": 0.1} | change))


def test_without_curvature_a_step_must_be_given():
    weak = squared(500, variance=400.0)
    with pytest.raises(ConvergenceError, match="step= is needed"):
        fit_sgd(weak, theta_radius=5.0)
    assert np.isfinite(fit_sgd(weak, theta_radius=5.0, step=1e-4).params).all()


def test_a_radius_is_a_finite_positive_number():
    assert checked_radius(2.0) == 2.0
    for radius in (None, math.inf, 0.0, -1.0, math.nan):
        with pytest.raises(ArgumentError, match="theta_radius"):
            checked_radius(radius)
