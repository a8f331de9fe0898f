"""Score tests, identification and score intervals on released examples."""

from __future__ import annotations

import numpy as np
import pytest
from example_designs import clean_labels, mixed_design, plain_design, released

from privinf.errors import ArgumentError, NotAvailableError, NotPositiveDefiniteError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.score_sets import score_sets
from privinf.inference.score_test import score_test as linear_score_test
from privinf.iwp.equation import ExampleScores
from privinf.iwp.interval import score_interval
from privinf.iwp.root import Root, solve_root
from privinf.iwp.score_test import identification, noise_inflation, score_test


def with_intercept(rng, n, p, variance):
    design = plain_design(rng, n, p, variance)
    design.X = np.column_stack([np.ones(n), design.X])
    design.noise = np.append(0.0, design.noise)
    return design


def linear_pair(rng, n, variance):
    design = with_intercept(rng, n, 2, variance)
    y = clean_labels(rng, "squared", design.X, np.array([0.3, 1.0, -0.5]))
    X = design.sent(rng)
    system = ExampleScores(X, y, design.noise, loss="squared", correction="exact")
    return system, CorrectedLeastSquares(X, y, np.diag(design.noise))


@pytest.mark.audit
@pytest.mark.parametrize("variance", [0.3, 2.0, 9.0])
def test_squared_loss_gives_the_score_test_and_sets_of_the_linear_system(variance):
    system, linear = linear_pair(np.random.default_rng(0), 3000, variance)
    for null, tested in [(None, None), ([1.0, -0.5], None), ([0.2, 1.0, -0.5], np.ones(3, dtype=bool))]:
        ours, theirs = (
            f(s, null, tested=tested) for f, s in ((score_test, system), (linear_score_test, linear))
        )
        assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-9)
        assert (ours.df, ours.pvalue) == (theirs.df, pytest.approx(theirs.pvalue))
    root = solve_root(system)
    for column in range(3):
        ours, theirs = score_interval(system, root, column), score_sets(linear, [column])[0]
        assert ours.df == theirs.df
        np.testing.assert_allclose(ours.hull, theirs.hull, rtol=1e-3, atol=2e-4)
    assert ours.bounded == (variance < 9.0)


@pytest.mark.audit
@pytest.mark.parametrize(("loss", "variance"), [("quadratic", 9.0), ("logistic", 6.0)])
def test_size_where_the_release_is_weak(loss, variance):
    """1,000 tests at 5%, about half of the draws without a root; 99.98% binomial limits."""
    rng = np.random.default_rng(1)
    theta = np.array([0.3, 0.45, -0.3])
    target = theta
    if loss == "quadratic":
        big = with_intercept(rng, 500_000, 2, 0.0)
        target = solve_root(released(rng, loss, big, clean_labels(rng, loss, big.X, theta))).params
    rejected, weak = 0, 0
    for i in range(1000):
        design = with_intercept(rng, 1000, 2, variance)
        system = released(rng, loss, design, clean_labels(rng, loss, design.X, theta))
        rejected += score_test(system, target[1:]).pvalue < 0.05
        if i < 60:
            root = solve_root(system)
            weak += not root.converged or identification(system, root.params).weak
    assert 25 <= rejected <= 78
    assert weak > 30


@pytest.mark.audit
@pytest.mark.parametrize("loss", ["multinomial", "poisson", "exponential"])
def test_global_null_is_held_and_rejected_when_false(loss):
    rng = np.random.default_rng(2)
    design = mixed_design(rng, 3000)
    size = 14 if loss == "multinomial" else 7
    null, alternative = (np.resize([0.3, *slopes], size) for slopes in ([0.0] * 6, [0.9] * 3 + [0.0] * 3))
    system = released(rng, loss, design, clean_labels(rng, loss, design.X, null))
    result = score_test(system)
    assert result.df == (10 if loss == "multinomial" else 5)
    assert result.pvalue > 0.01
    other = released(rng, loss, design, clean_labels(rng, loss, design.X, alternative))
    assert score_test(other).pvalue < 1e-4
    every = score_test(system, tested=np.ones(size, dtype=bool))
    assert every.df == size


def test_where_there_is_no_central_limit_the_test_is_refused():
    rng = np.random.default_rng(3)
    design = with_intercept(rng, 1000, 2, 9.0)
    labels = clean_labels(rng, "logistic", design.X, np.array([0.3, 1.5, -1.0]))
    exponential = released(rng, "exponential", design, labels)
    with pytest.raises(NotAvailableError, match="random factor"):
        score_test(exponential, [1.5, -1.0])
    assert noise_inflation(exponential, np.array([0.3, 0.2, 0.1])) == pytest.approx(np.expm1(9 * 0.05))
    assert identification(exponential, np.array([0.3, 1.5, -1.0])).weak
    conditional = released(rng, "logistic", design, labels)
    with pytest.raises(NotAvailableError, match="informative despite the noise"):
        score_test(conditional, [1.5, -1.0])
    assert score_test(conditional, [0.3, 1.5, -1.0], tested=np.ones(3, dtype=bool)).df == 3
    for options in ({"correction": "none"}, {"correction": "series", "truncation": 1}):
        biased = released(rng, "logistic", design, labels, **options)
        with pytest.raises(NotAvailableError, match="unbiased"):
            score_test(biased)
        with pytest.raises(NotAvailableError, match="unbiased"):
            score_interval(biased, solve_root(biased), 1)


def test_identification_follows_the_signal():
    rng = np.random.default_rng(4)
    theta = np.array([0.3, 0.8, -0.5])
    statistics = []
    for n in (3000, 12_000, 48_000):
        design = with_intercept(rng, n, 2, 2.0)
        system = released(rng, "logistic", design, clean_labels(rng, "logistic", design.X, theta))
        statistics.append(identification(system, theta).statistic)
    assert statistics[0] < statistics[1] < statistics[2]
    assert statistics[2] / statistics[0] == pytest.approx(4.0, rel=0.5)
    verdict = identification(system, theta)
    assert verdict.threshold == pytest.approx(3.5 / np.sqrt(2))
    assert not verdict.weak
    assert identification(system, theta, threshold=1e6).weak
    free = ExampleScores(design.X, np.zeros(n), np.zeros(3), loss="logistic", correction="conditional")
    assert identification(free, theta).statistic == np.inf


def test_identification_is_that_of_the_linear_system_for_strong_noise():
    from privinf.inference.score_test import identification as linear_identification

    system, linear = linear_pair(np.random.default_rng(5), 20_000, 9.0)
    ours, theirs = identification(system, np.zeros(3)), linear_identification(linear)
    assert ours.smallest_eigenvalue == pytest.approx(theirs.smallest_eigenvalue, rel=1e-8)
    assert ours.noise_edge == pytest.approx(theirs.noise_edge, rel=0.15)


@pytest.mark.audit
def test_intervals_are_the_test_inverted_and_cover():
    rng = np.random.default_rng(6)
    design = with_intercept(rng, 20_000, 1, 0.5)
    labels = clean_labels(rng, "logistic", design.X, np.array([0.3, 1.0]))
    system = released(rng, "logistic", design, labels)
    root = solve_root(system)
    interval = score_interval(system, root, 1, alpha=0.1)
    assert interval.level == pytest.approx(0.9)
    assert interval.df == 1
    for end in interval.hull:
        assert score_test(system, [end]).pvalue == pytest.approx(0.1, abs=1e-3)
    assert root.params[1] in interval
    wider = score_interval(system, root, 1, alpha=0.01).hull
    assert wider[0] < interval.hull[0] < interval.hull[1] < wider[1]
    intercept = score_interval(system, root, 0)
    assert (intercept.df, intercept.bounded, 0.3 in intercept) == (2, True, True)


@pytest.mark.audit
@pytest.mark.parametrize("loss", ["multinomial", "quadratic"])
def test_intervals_of_several_noisy_columns_hold_the_estimate_and_exceed_wald(loss):
    rng = np.random.default_rng(7)
    design = plain_design(rng, 4000, 2, 0.3)
    theta = np.array([1.0, -0.5, 0.4, 0.2]) if loss == "multinomial" else np.array([1.0, -0.5])
    system = released(rng, loss, design, clean_labels(rng, loss, design.X, theta))
    root = solve_root(system)
    bread = np.linalg.inv(system.jacobian(root.params))
    error = np.sqrt(np.diag(bread @ system.meat(root.params) @ bread.T) / system.n)
    interval = score_interval(system, root, 1)
    assert interval.bounded
    assert interval.df == system.p
    width = np.ptp(interval.hull)
    assert width > 2 * 1.96 * error[1]
    critical = {2: 5.99, 4: 9.49}[system.p]
    assert width == pytest.approx(2 * np.sqrt(critical) * error[1], rel=0.15)


def test_weak_releases_have_infinite_ends():
    rng = np.random.default_rng(8)
    unbounded = 0
    for _ in range(10):
        design = plain_design(rng, 500, 1, 25.0)
        labels = clean_labels(rng, "logistic", design.X, np.array([1.0]))
        system = released(rng, "logistic", design, labels)
        unbounded += not score_interval(system, solve_root(system), 0).bounded
    assert unbounded > 5


def test_bad_arguments_are_refused():
    rng = np.random.default_rng(9)
    system, _ = linear_pair(rng, 200, 0.3)
    root = solve_root(system)
    for call in (
        lambda: score_test(system, [1.0]),
        lambda: score_test(system, tested=[True, False, False]),
        lambda: score_test(system, tested=[1, 1, 1]),
        lambda: score_interval(system, root, 3),
        lambda: score_interval(system, root, 0, alpha=1.0),
        lambda: score_interval(system, root, 0, max_distance=0.0),
    ):
        with pytest.raises(ArgumentError):
            call()
    X = np.column_stack([np.ones(50), np.ones(50)])
    collinear = ExampleScores(X, np.arange(50) % 2, [0.0, 0.0], loss="logistic", correction="conditional")
    with pytest.raises(NotPositiveDefiniteError, match="collinear"):
        score_test(collinear, tested=np.ones(2, dtype=bool))
    no_root = Root(
        params=np.array([0.0, 90.0, -90.0]),
        converged=False,
        iterations=1,
        reason="none",
        tried=4,
        start=np.zeros(3),
    )
    assert score_interval(system, no_root, 1).bounded


def test_a_null_at_which_the_conditional_score_has_faded_is_not_tested():
    rng = np.random.default_rng(4)
    design = with_intercept(rng, 2000, 2, 9.0)
    system = released(rng, "logistic", design, clean_labels(rng, "logistic", design.X, np.zeros(3)))
    for null, tested, need in (
        ([9.0, 9.0], None, "a test of some of the coefficients needs"),
        ([0.0, 9.0, 9.0], np.ones(3, dtype=bool), "a test needs"),
    ):
        with pytest.raises(NotAvailableError, match=f"are informative despite the noise.*{need}"):
            score_test(system, null, tested=tested)
    assert score_test(system, [0.0, 0.0]).pvalue > 0.001
