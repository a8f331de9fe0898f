"""Scores of released examples: noise-free limits, unbiasedness, derivatives, variances, roots, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from example_designs import (
    NOISE,
    RESPONSES,
    TRUTH,
    clean,
    clean_labels,
    correction_of,
    label_law,
    mixed_design,
    plain_design,
    released,
    respond,
    sent_labels,
    wald_cov,
)

from privinf.errors import ArgumentError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.iwp.equation import ExampleScores
from privinf.iwp.noise import LabelNoise, ResponseColumns
from privinf.iwp.root import chosen_truncation, regression_calibration, solve_root

LOSSES = ["squared", "quadratic", "exponential", "logistic", "multinomial", "poisson"]
VARIANTS = [(loss, correction_of(loss), {}) for loss in LOSSES] + [
    ("logistic", "series", {"truncation": 2}),
    ("logistic", "series", {"truncation": 0}),
    ("exponential", "series", {"truncation": 1}),
    ("quadratic", "series", {"truncation": 0}),
    ("quadratic", "series", {"truncation": 1}),
    ("multinomial", "none", {}),
    ("exponential", "none", {}),
]


def truth(loss):
    return np.concatenate([TRUTH, -0.5 * TRUTH]) if loss == "multinomial" else TRUTH


def fitted(system):
    root = solve_root(system)
    assert root.converged, root.reason
    return root.params, wald_cov(system, root.params)


@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson", "multinomial"])
def test_noise_free_limit_is_statsmodels_with_hc0(loss):
    import statsmodels.api as sm

    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(800), rng.uniform(-1, 1, (800, 2)), rng.integers(0, 2, 800)])
    theta = np.array([0.2, 1.0, -0.7, 0.4])
    theta = np.concatenate([theta, -theta]) if loss == "multinomial" else theta
    y = clean_labels(rng, loss, X, theta)
    model = {
        "logistic": lambda: sm.Logit(y, X).fit(disp=0, cov_type="HC0", method="newton", tol=1e-14),
        "squared": lambda: sm.OLS(y, X).fit(cov_type="HC0"),
        "poisson": lambda: sm.GLM(y, X, family=sm.families.Poisson()).fit(cov_type="HC0", tol=1e-14),
        "multinomial": lambda: sm.MNLogit(y, X).fit(disp=0, method="newton", cov_type="HC0"),
    }[loss]()
    law = LabelNoise(3, 1.0, 0.0) if loss == "multinomial" else 0.0
    system = ExampleScores(X, y, np.zeros(4), loss=loss, correction=correction_of(loss), label=law)
    params, cov = fitted(system)
    np.testing.assert_allclose(params, np.asarray(model.params).ravel(order="F"), rtol=1e-8)
    np.testing.assert_allclose(cov, np.asarray(model.cov_params()), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), np.asarray(model.bse).ravel(order="F"), rtol=1e-8)
    np.testing.assert_allclose(system.clean_cov(params), cov, rtol=1e-9)
    np.testing.assert_allclose(system.noise_meat(params), 0.0, atol=1e-12)


@pytest.mark.parametrize(("loss", "correction", "options"), VARIANTS)
def test_parts_agree_and_derivatives_are_those_of_the_score(loss, correction, options):
    rng = np.random.default_rng(1)
    design = mixed_design(rng, 1500)
    labels = clean_labels(rng, loss, design.X, truth(loss))
    penalized = np.arange(7) > 0
    system = released(
        rng, loss, design, labels, correction=correction, ridge=0.2, penalized=penalized, **options
    )
    theta = 0.5 * rng.standard_normal(system.p)
    scores, weights, h = system.scores(theta), rng.standard_normal(1500), 1e-5
    numeric = np.empty((2, system.p, system.p))
    for k in range(system.p):
        e = h * (np.arange(system.p) == k)
        change = (system.scores(theta - e) - system.scores(theta + e)) / (2 * h)
        numeric[:, :, k] = change.mean(axis=0), (change * weights[:, None]).mean(axis=0)
    mean, jacobian = system.score_and_jacobian(theta)
    np.testing.assert_allclose(scores.mean(axis=0), mean, atol=1e-12)
    np.testing.assert_allclose(system.mean_score(theta), mean, atol=1e-12)
    np.testing.assert_allclose(system.meat(theta), np.cov(scores.T, bias=True), atol=1e-10)
    np.testing.assert_allclose(system.jacobian(theta), numeric[0], atol=1e-7)
    np.testing.assert_allclose(jacobian, numeric[0], atol=1e-7)
    np.testing.assert_allclose(system.weighted_jacobian(theta, weights), numeric[1], atol=1e-7)


@pytest.mark.audit
@pytest.mark.parametrize("loss", ["squared", "quadratic", "exponential", "poisson"])
def test_exact_scores_are_unbiased_given_the_rows_and_their_noise_part_is_known(loss):
    rng = np.random.default_rng(2)
    n, copies = 40, 6000
    design = mixed_design(rng, n)
    labels = clean_labels(rng, loss, design.X, TRUTH)
    theta = 0.6 * TRUTH + 0.1
    stacked = mixed_design(rng, n * copies)
    stacked.X = np.tile(design.X, (copies, 1))
    system = released(rng, loss, stacked, np.tile(labels, copies))
    scores = system.scores(theta).reshape(copies, n, 7)
    draws = scores.mean(axis=1)
    error = draws.std(axis=0) / np.sqrt(copies)
    assert (np.abs(draws.mean(axis=0) - clean(loss, design, labels).mean_score(theta)) < 4 * error).all()
    noise = np.einsum("cia,cib->ab", scores - scores.mean(axis=0), scores - scores.mean(axis=0))
    noise /= (copies - 1) * n
    scale = np.sqrt(np.outer(np.diag(noise), np.diag(noise)))
    assert np.abs((system.noise_meat(theta) - noise) / scale).max() < 0.04


@pytest.mark.audit
@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_responses_alone_are_inverted_exactly_whatever_the_model(loss):
    rng = np.random.default_rng(3)
    n, copies = 40, 4000
    design = mixed_design(rng, n, gaussian=False)
    labels = clean_labels(rng, loss, design.X, truth(loss))
    theta = 0.6 * truth(loss) + 0.1
    stacked = mixed_design(rng, n * copies, gaussian=False)
    stacked.X = np.tile(design.X, (copies, 1))
    system = released(rng, loss, stacked, np.tile(labels, copies))
    scores = system.scores(theta).reshape(copies, n, -1)
    draws = scores.mean(axis=1)
    error = draws.std(axis=0) / np.sqrt(copies)
    assert (np.abs(draws.mean(axis=0) - clean(loss, design, labels).mean_score(theta)) < 4 * error).all()
    centred = (scores - scores.mean(axis=0)).reshape(-1, system.p)
    noise = centred.T @ centred / ((copies - 1) * n)
    scale = np.sqrt(np.outer(np.diag(noise), np.diag(noise)))
    assert np.abs((system.noise_meat(theta) - noise) / scale).max() < 0.04
    assert isinstance(system.clean_cov(theta), np.ndarray)


@pytest.mark.audit
@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_conditional_scores_are_unbiased_at_the_truth_and_the_naive_ones_are_not(loss):
    rng = np.random.default_rng(4)
    design = mixed_design(rng, 150_000)
    labels = clean_labels(rng, loss, design.X, truth(loss))
    X, codes = design.sent(rng), sent_labels(rng, labels, label_law(loss))
    options = {"loss": loss, "label": label_law(loss), "responses": RESPONSES}
    z = {}
    for correction in ("conditional", "none"):
        system = ExampleScores(X, codes, NOISE, correction=correction, **options)
        meat = system.meat(truth(loss))
        z[correction] = np.abs(system.mean_score(truth(loss))) / np.sqrt(np.diag(meat) / system.n)
    assert z["conditional"].max() < 3.5
    assert z["none"].max() > 20


def test_squared_loss_is_corrected_least_squares():
    rng = np.random.default_rng(5)
    design = plain_design(rng, 600, 3, 0.4)
    y = clean_labels(rng, "squared", design.X, np.array([1.0, -0.5, 0.2])) + 0.3 * rng.standard_normal(600)
    X, theta = design.sent(rng), rng.standard_normal(3)
    ours = ExampleScores(X, y, design.noise, loss="squared", correction="exact", label=0.09)
    theirs = CorrectedLeastSquares(X, y, np.diag(design.noise), y_noise_var=0.09)
    np.testing.assert_allclose(ours.scores(theta), theirs.scores(theta), atol=1e-12)
    np.testing.assert_allclose(ours.jacobian(theta), theirs.A, atol=1e-12)
    np.testing.assert_allclose(ours.noise_meat(theta), theirs.noise_meat(theta), rtol=1e-9)
    root = solve_root(ours)
    np.testing.assert_allclose(root.params, np.linalg.solve(theirs.A, theirs.g), rtol=1e-10)
    assert (root.iterations, root.tried, root.reason) == (2, 1, "")


def test_squared_closed_form_is_the_sum_over_level_combinations():
    rng = np.random.default_rng(6)
    design = mixed_design(rng, 50)
    y = clean_labels(rng, "squared", design.X, TRUTH)
    system = released(rng, "squared", design, y, law=0.0)
    theta, X = rng.standard_normal(7), system.data.X
    total = np.zeros((50, 7))
    for b in range(2):
        for f in range(3):
            at = X.copy()
            at[:, 4], at[:, 5], at[:, 6] = b, f == 1, f == 2
            weight = RESPONSES[0].weights(X)[:, b] * RESPONSES[1].weights(X)[:, f]
            total += weight[:, None] * (at * (y - at @ theta)[:, None] + NOISE * theta)
    np.testing.assert_allclose(system.scores(theta), total, atol=1e-10)


def test_many_responses_are_free_for_squared_loss_and_refused_beyond_64_combinations():
    rng = np.random.default_rng(7)
    X = rng.integers(0, 2, (4000, 7)).astype(float)
    responses = tuple(ResponseColumns((j,), 0.9, 0.1) for j in range(7))
    sent = np.column_stack([respond(rng, X[:, j].astype(int), responses[j]) for j in range(7)])
    system = ExampleScores(
        sent, X @ np.arange(7.0), np.zeros(7), loss="squared", correction="exact", responses=responses
    )
    root = solve_root(system)
    assert np.abs(root.params - np.arange(7.0)).max() < 5 * np.sqrt(
        np.diag(wald_cov(system, root.params)).max()
    )
    assert system.noise_meat(root.params) is None
    assert "64" in system.clean_cov(root.params)
    with pytest.raises(ArgumentError, match="128 combinations of levels"):
        ExampleScores(
            sent, X[:, 0], np.zeros(7), loss="logistic", correction="conditional", responses=responses
        )


@pytest.mark.audit
@pytest.mark.parametrize("loss", LOSSES)
def test_coverage_with_public_noisy_and_responded_columns(loss):
    """Smoke: 60 fits of 4,000 records (multinomial: 10), wide limits; the cells proper are elsewhere."""
    rng = np.random.default_rng(8)
    theta = truth(loss)
    if loss in {"quadratic", "exponential"}:
        big = mixed_design(rng, 400_000)
        theta = solve_root(clean(loss, big, clean_labels(rng, loss, big.X, TRUTH))).params
    inside = []
    for _ in range(10 if loss == "multinomial" else 60):
        design = mixed_design(rng, 4000)
        labels = clean_labels(rng, loss, design.X, truth(loss))
        system = released(rng, loss, design, labels)
        params, cov = fitted(system)
        inside.append(np.abs(params - theta) < 1.96 * np.sqrt(np.diag(cov)))
    assert 0.90 < np.mean(inside) < 0.985


@pytest.mark.audit
def test_series_is_biased_and_the_exact_logistic_is_not():
    rng = np.random.default_rng(9)
    beta = np.array([1.5, -1.0])
    design = plain_design(rng, 200_000, 2, 0.947)
    labels = clean_labels(rng, "logistic", design.X, beta)
    X, codes = design.sent(rng), respond(rng, labels, LabelNoise(2, 0.982, 0.018))
    fits = {}
    for key, options in {
        "conditional": {"correction": "conditional"},
        "K=1": {"correction": "series", "truncation": 1},
        "K=2": {"correction": "series", "truncation": 2},
        "none": {"correction": "none"},
    }.items():
        system = ExampleScores(
            X, codes, design.noise, loss="logistic", label=LabelNoise(2, 0.982, 0.018), **options
        )
        fits[key] = fitted(system)
    errors = {key: np.abs(params - beta).max() for key, (params, _) in fits.items()}
    assert errors["conditional"] < 4 * np.sqrt(fits["conditional"][1].max())
    np.testing.assert_allclose(fits["K=1"][0], [1.06, -0.69], atol=0.05)
    np.testing.assert_allclose(fits["K=2"][0], [1.32, -0.88], atol=0.07)
    assert errors["none"] > errors["K=1"] > errors["K=2"]
    strong = ExampleScores(X, codes, design.noise, loss="logistic", correction="conditional")
    assert chosen_truncation(strong) in {1, 2, 3}


def test_reasons_why_the_noise_part_is_unknown():
    rng = np.random.default_rng(10)
    design = plain_design(rng, 400, 2, 4.0)
    labels = clean_labels(rng, "logistic", design.X, np.array([1.0, 0.0]))
    fragments = {"conditional": "conditional", "series": "series", "none": "noise is ignored"}
    for correction, fragment in fragments.items():
        options = {"truncation": 1} if correction == "series" else {}
        system = released(rng, "logistic", design, labels, correction=correction, **options)
        assert system.noise_meat(np.zeros(2)) is None
        assert fragment in system.clean_cov(np.zeros(2))
    quadratic = released(rng, "quadratic", design, labels)
    assert "too strong" in quadratic.clean_cov(np.zeros(2))


def test_clean_standard_errors_are_those_of_the_same_rows():
    rng = np.random.default_rng(11)
    design = plain_design(rng, 40_000, 2, 0.05)
    for loss in ("squared", "exponential", "poisson"):
        labels = clean_labels(rng, loss, design.X, np.array([0.7, -0.4]))
        system = released(rng, loss, design, labels, law=None if loss == "exponential" else 0.0)
        params, cov = fitted(system)
        without = fitted(clean(loss, design, labels))[1]
        np.testing.assert_allclose(np.diag(system.clean_cov(params)), np.diag(without), rtol=0.1)
        assert (np.diag(cov) > 1.05 * np.diag(without)).all()


def test_ridge_moves_the_target_of_the_penalized_columns_only():
    rng = np.random.default_rng(12)
    design = plain_design(rng, 3000, 2, 0.0)
    labels = clean_labels(rng, "exponential", design.X, np.array([1.5, -1.0]))
    options = {"loss": "exponential", "correction": "exact", "ridge": 0.5}
    both = ExampleScores(design.X, labels, design.noise, **options)
    one = ExampleScores(design.X, labels, design.noise, penalized=[True, False], **options)
    root = solve_root(both).params
    y = 2.0 * labels - 1.0
    gradient = -(y * np.exp(-y * (design.X @ root))) @ design.X / 3000 + 0.5 * root
    np.testing.assert_allclose(gradient, 0.0, atol=1e-10)
    assert abs(solve_root(one).params[1]) > abs(root[1])


def test_roots_that_do_not_exist_are_reported():
    x = np.linspace(-1.0, 1.0, 200)[:, None]
    separated = ExampleScores(x, x[:, 0] > 0.0, [0.0], loss="logistic", correction="conditional")
    root = solve_root(separated)
    assert not root.converged
    assert "separate" in root.reason
    assert solve_root(
        ExampleScores(x, x[:, 0] > 0, [0.0], loss="logistic", correction="conditional", ridge=0.1)
    ).converged
    rng = np.random.default_rng(13)
    outcomes = []
    for _ in range(30):
        design = plain_design(rng, 300, 2, 25.0)
        labels = clean_labels(rng, "logistic", design.X, np.array([1.5, -1.0]))
        root = solve_root(released(rng, "logistic", design, labels))
        outcomes.append(root.converged)
        assert root.converged == (not root.reason)
        assert np.isfinite(root.params).all()
        assert root.converged or root.tried == 4
    assert not all(outcomes)
    weak = CorrectedLeastSquares(design.sent(rng), labels, np.diag(design.noise))
    system = ExampleScores(weak._X, labels, design.noise, loss="squared", correction="exact")
    indefinite = np.linalg.eigvalsh(weak.A)[0] < 0
    assert solve_root(system).converged == (not indefinite)


def test_the_consistent_root_is_found_from_far_starts():
    rng = np.random.default_rng(14)
    design = plain_design(rng, 20_000, 2, 0.5)
    labels = clean_labels(rng, "logistic", design.X, np.array([1.5, -1.0]))
    system = released(rng, "logistic", design, labels)
    root = solve_root(system)
    np.testing.assert_allclose(solve_root(system, start=[0.0, 0.0]).params, root.params, atol=1e-8)
    np.testing.assert_allclose(solve_root(system, start=[4.0, 3.0]).params, root.params, atol=1e-8)
    np.testing.assert_allclose(root.start, regression_calibration(system))
    assert np.abs(root.start - root.params).max() < 0.5
    limited = solve_root(system, start=[0.0, 0.0], max_steps=1)
    assert not limited.converged
    assert "1 steps" in limited.reason
    with pytest.raises(ArgumentError, match="2 values"):
        solve_root(system, start=[0.0])


GOOD = {"loss": "logistic", "correction": "conditional"}
BAD = {
    "labels outside the levels": ({"labels": [0, 1, 2, 0]}, "integers from 0 to 1"),
    "labels between the levels": ({"labels": [0, 1, 0.5, 0]}, "integers from 0 to 1"),
    "labels of another length": ({"labels": [0, 1]}, "do not match"),
    "rows that are not finite": ({"X": [[1.0], [np.nan], [0.0], [1.0]]}, "nan"),
    "negative variance": ({"noise": [-1.0]}, "negative"),
    "noise of another length": ({"noise": [1.0, 1.0]}, "do not match"),
    "unknown loss": ({"loss": "hinge"}, "hinge"),
    "exact logistic": ({"correction": "exact"}, "conditional"),
    "conditional exponential": ({"loss": "exponential"}, "not available"),
    "series without truncation": ({"correction": "series"}, "truncation"),
    "truncation without series": ({"truncation": 2}, "truncation"),
    "negative truncation": ({"correction": "series", "truncation": -1}, "truncation"),
    "Gaussian label": ({"label": 0.5}, "two levels"),
    "three levels": ({"label": LabelNoise(3, 1.0, 0.0)}, "two levels"),
    "multinomial without levels": ({"loss": "multinomial"}, "declared levels"),
    "negative label variance": ({"loss": "squared", "correction": "exact", "label": -1.0}, "label"),
    "negative ridge": ({"ridge": -1.0}, "ridge"),
    "penalized numbers": ({"penalized": [1.0]}, "booleans"),
    "noise on a response": (
        {"noise": [1.0], "responses": (ResponseColumns((0,), 0.8, 0.2),)},
        "noise= must be 0",
    ),
    "response elsewhere": ({"responses": (ResponseColumns((3,), 0.8, 0.2),)}, "contain column numbers"),
    "response of no indicator": (
        {"X": [[1.0], [0.3], [0.0], [1.0]], "responses": (ResponseColumns((0,), 0.8, 0.2),)},
        "0/1 indicators",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_without_a_value_of_a_row(case):
    changes, match = BAD[case]
    arguments = {"X": [[1.0], [0.0], [1.0], [1.0]], "labels": [0, 1, 1, 0], "noise": [0.0]} | GOOD | changes
    with pytest.raises(ArgumentError, match=match) as error:
        ExampleScores(arguments.pop("X"), arguments.pop("labels"), arguments.pop("noise"), **arguments)
    assert "0.3" not in str(error.value)
    assert "0.5" not in str(error.value) or case == "Gaussian label"


@pytest.mark.parametrize(
    "make",
    [
        lambda: LabelNoise(1, 1.0, 0.0),
        lambda: LabelNoise(2, 0.8, 0.1),
        lambda: LabelNoise(2, 0.4, 0.6),
        lambda: ResponseColumns((), 1.0, 0.0),
        lambda: ResponseColumns((1, 1), 0.8, 0.1),
        lambda: ResponseColumns((1, 2), 0.8, 0.2),
    ],
)
def test_impossible_response_laws_are_refused(make):
    with pytest.raises(ArgumentError):
        make()
