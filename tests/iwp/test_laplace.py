"""Laplace noise on examples: exact scores of smooth losses, derivatives, variances, and the fit on them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from example_designs import RESPONSES, TRUTH, clean, clean_labels, mixed_design, respond
from scipy.special import expit

import privinf as pi
from privinf import errors
from privinf.iwp.equation import ExampleScores, default_correction
from privinf.iwp.laplace import SmoothMean, derivative_table, signed_symmetric
from privinf.iwp.noise import LabelNoise
from privinf.iwp.root import conditional_start, solve_root
from privinf.iwp.transforms import logistic_derivatives

B = np.array([0.0, 0.4, 0.6, 0.0, 0.0, 0.0, 0.0])  # scales of the noise of the columns of `mixed_design`
LABELS = {"logistic": LabelNoise(2, 0.85, 0.15), "quadratic": LabelNoise(2, 0.85, 0.15), "squared": 0.3}
LOSSES = list(LABELS)


def sent(rng, design, labels, loss, **options):
    """Return the system of a release of a design with Laplace noise on two columns."""
    X = design.sent(rng) + B * rng.laplace(size=design.X.shape)
    law = LABELS[loss]
    y = (
        respond(rng, labels.astype(int), law)
        if isinstance(law, LabelNoise)
        else labels + np.sqrt(law) * rng.standard_normal(len(labels))
    )
    return ExampleScores(
        X,
        y,
        2.0 * B**2,
        loss=loss,
        correction="exact",
        label=law,
        responses=RESPONSES,
        distribution="laplace",
        **options,
    )


def rows_of(loss, n, seed=0):
    rng = np.random.default_rng(seed)
    design = mixed_design(rng, n, gaussian=False)
    return rng, design, clean_labels(rng, loss, design.X, TRUTH)


def simple(rng, n, slopes, b, **options):
    """Return a logistic system of uniform columns with Laplace noise."""
    X = rng.uniform(-1.0, 1.0, (n, len(slopes)))
    y = (rng.random(n) < expit(X @ slopes)).astype(float)
    noise = np.full(len(slopes), 2.0 * b**2)
    return ExampleScores(
        X + rng.laplace(0.0, b, X.shape),
        y,
        noise,
        loss="logistic",
        correction="exact",
        distribution="laplace",
        **options,
    )


def test_the_inverse_of_laplace_noise_is_a_second_derivative():
    """E f(z + Z) - b^2 f''(z + Z) = f(z), by quadrature, for the logistic mean."""
    b, z = 0.8, np.linspace(-2.0, 2.0, 5)
    nodes = np.linspace(-40.0, 40.0, 800_001)
    density = np.exp(-np.abs(nodes) / b)
    density /= density.sum()
    mean = SmoothMean(logistic=True)
    corrected = np.polynomial.Polynomial(mean.transformed(mean.mean, 0, [b**2]))
    values = [float(density @ corrected(mean.variable(point + nodes))) for point in z]
    np.testing.assert_allclose(values, expit(z), atol=1e-6)


def test_derivatives_of_the_logistic_mean_are_those_of_the_loss():
    eta = np.linspace(-6.0, 6.0, 13)
    table = derivative_table((0.5, 0.5), 13, True)
    loss = logistic_derivatives(-eta, 14)
    for order in range(1, 14):
        values = np.polynomial.polynomial.polyval(np.tanh(eta / 2.0), table[order])
        signs = (-1.0) ** (order + 1)
        np.testing.assert_allclose(values, signs * loss[order + 1], atol=1e-6 * np.abs(values).max())
    np.testing.assert_allclose(signed_symmetric([0.5, 2.0, 3.0]), [1.0, -5.5, 8.5, -3.0])


@pytest.mark.parametrize("loss", LOSSES)
def test_parts_agree_and_derivatives_are_those_of_the_score(loss):
    rng, design, labels = rows_of(loss, 1500)
    system = sent(rng, design, labels, loss, ridge=0.2, penalized=np.arange(7) > 0)
    theta = 0.5 * rng.standard_normal(7)
    scores, weights, h = system.scores(theta), rng.standard_normal(1500), 1e-5
    numeric = np.empty((2, 7, 7))
    for k in range(7):
        e = h * (np.arange(7) == k)
        change = (system.scores(theta - e) - system.scores(theta + e)) / (2 * h)
        numeric[:, :, k] = change.mean(axis=0), (change * weights[:, None]).mean(axis=0)
    np.testing.assert_allclose(system.mean_score(theta), scores.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(system.jacobian(theta), numeric[0], atol=1e-7)
    np.testing.assert_allclose(system.weighted_jacobian(theta, weights), numeric[1], atol=1e-7)
    np.testing.assert_allclose(system.meat(theta), np.cov(scores.T, bias=True), atol=1e-9)


@pytest.mark.audit
@pytest.mark.parametrize("loss", LOSSES)
def test_scores_are_unbiased_given_the_rows_and_their_noise_part_is_known(loss):
    n, copies = 40, 6000
    rng, design, labels = rows_of(loss, n, seed=2)
    theta = 0.6 * TRUTH + 0.1
    stacked = mixed_design(rng, n * copies, gaussian=False)
    stacked.X = np.tile(design.X, (copies, 1))
    system = sent(rng, stacked, np.tile(labels, copies), loss)
    scores = system.scores(theta).reshape(copies, n, 7)
    draws = scores.mean(axis=1)
    error = draws.std(axis=0) / np.sqrt(copies)
    expected = clean(loss, design, labels).mean_score(theta)
    assert (np.abs(draws.mean(axis=0) - expected) < 4.5 * error).all()
    noise = np.einsum("cia,cib->ab", scores - scores.mean(axis=0), scores - scores.mean(axis=0))
    noise /= (copies - 1) * n
    scale = np.sqrt(np.outer(np.diag(noise), np.diag(noise)))
    assert np.abs((system.noise_meat(theta) - noise) / scale).max() < 0.05


def test_without_noise_the_fit_is_the_likelihood():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, (2000, 2))
    y = (rng.random(2000) < expit(X @ [1.0, -0.5])).astype(float)
    words = {"loss": "logistic", "label": LabelNoise(2, 1.0, 0.0)}
    exact = ExampleScores(X, y, np.zeros(2), correction="exact", distribution="laplace", **words)
    normal = ExampleScores(X, y, np.zeros(2), correction="conditional", **words)
    np.testing.assert_allclose(solve_root(exact).params, solve_root(normal).params, rtol=1e-9)


@pytest.mark.parametrize(("d", "b", "n"), [(1, 0.5, 4_000), (1, 0.5, 16_000), (2, 0.5, 16_000)])
def test_estimates_are_centered_and_their_errors_are_known(d, b, n):
    """Two sample sizes: bias below a third of a standard error, errors within 15%, by 100 fits each."""
    slopes = np.array([1.0, -0.7])[:d]
    found = []
    for seed in range(100):
        system = simple(np.random.default_rng([7, seed]), n, slopes, b)
        root = solve_root(system)
        assert root.converged
        bread = np.linalg.inv(system.jacobian(root.params))
        found.append((root.params - slopes, np.sqrt(np.diag(bread @ system.meat(root.params) @ bread.T) / n)))
    deviations, ses = map(np.array, zip(*found, strict=True))
    assert np.abs(deviations.mean(axis=0) / ses.mean(axis=0)).max() < 1 / 3
    ratio = ses.mean(axis=0) / deviations.std(axis=0)
    assert (np.abs(np.log(ratio)) < 0.25).all()
    covered = (np.abs(deviations) < 1.96 * ses).mean()
    assert covered > 0.9


def test_the_conditional_score_of_laplace_noise_is_biased_and_where_the_exact_one_starts():
    system = simple(np.random.default_rng(5), 200_000, np.array([1.0]), 0.7)
    start = conditional_start(system)
    root = solve_root(system)
    se = float(np.sqrt(system.meat(root.params)[0, 0] / 200_000) / system.jacobian(root.params)[0, 0])
    assert abs(root.params[0] - 1.0) < 4.0 * se
    assert start[0] - 1.0 > 8.0 * se
    assert root.tried == 1
    np.testing.assert_array_equal(root.start, start)


def test_four_columns_of_few_records_are_flagged():
    data = table(20_000, 4)
    model = pi.IWPGLM.from_formula("y ~ a + b + c + d", data, schema=SCHEMA, noise="laplace")
    fit = model.fit(epsilon_x=4.0, epsilon_y=4.0, rng=3)
    assert fit.identification.weak


# ---- the model

SCHEMA = pi.Schema(
    {
        "y": [0, 1],
        "t": (-3.0, 3.0),
        **{name: (-1.0, 1.0) for name in "abcdef"},
        "z": (0.0, 1.0),
        "g": ["u", "v"],
    }
)


def table(n, d=2, seed=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(-1.0, 1.0, (n, 7)), columns=[*"abcdef", "g7"])
    eta = frame.to_numpy()[:, :d] @ np.array([1.5, -1.0, 0.5, 0.3])[:d]
    return frame.assign(
        y=(rng.random(n) < expit(eta)).astype(int),
        t=np.clip(eta + 0.5 * rng.standard_normal(n), -3, 3),
        z=rng.integers(0, 2, n),
        g=np.resize(["u", "v"], n),
    )


def test_a_logistic_fit_with_pure_epsilon():
    fit = pi.IWPGLM.from_formula("y ~ a + b", table(30_000), schema=SCHEMA, noise="laplace").fit(
        epsilon_x=8.0, epsilon_y=4.0
    )
    assert sum(entry.loss.epsilon for entry in fit.release.entries) == pytest.approx(12.0)
    assert [entry.mechanism for entry in fit.release.entries] == ["laplace", "randomized response"]
    assert fit.release.entries[0].noise["law"] == "discrete laplace"
    assert fit.release.entries[0].sensitivity.norm == "l1"
    assert (np.abs(fit.params - [0.0, 1.5, -1.0]) < 4.5 * fit.bse).all()
    assert "exact" in str(fit.summary())
    again = pi.IWPGLM.from_release(fit.release).fit()
    np.testing.assert_array_equal(again.params, fit.params)


def test_a_squared_fit_with_a_label_under_laplace_noise():
    data = table(20_000)
    model = pi.IWPGLM.from_formula(
        "t ~ a + b + z", data, schema=SCHEMA, loss="squared", binary=["z"], noise="laplace"
    )
    fit = model.fit(epsilon=20.0, rng=2)
    label = fit.release.noise_model["label"]
    assert label["kind"] == "laplace"
    assert label["variance"] == pytest.approx(2.0 * label["scale"] ** 2)
    assert (np.abs(fit.params - [0.0, 1.5, -1.0, 0.0]) < 4.5 * fit.bse).all()
    assert sum(entry.loss.epsilon for entry in fit.release.entries) == pytest.approx(20.0)


def test_the_single_pass_and_the_naive_fit():
    model = pi.IWPGLM.from_formula("y ~ 0 + a + b", table(40_000), schema=SCHEMA, noise="laplace")
    release = model.release(epsilon_x=16.0, epsilon_y=8.0, rng=4)
    newton = pi.IWPGLM.from_release(release).fit()
    single = pi.IWPGLM.from_release(release).fit(method="sgd", theta_radius=4.0, average=True)
    assert (np.abs(single.params - newton.params) < 1.5 * newton.bse).all()
    assert (np.abs(newton.naive) < np.abs(newton.params)).all()


def test_score_tests_and_intervals():
    model = pi.IWPGLM.from_formula("y ~ 0 + a", table(3_000, 1), schema=SCHEMA, noise="laplace")
    fit = model.fit(epsilon_x=8.0, epsilon_y=8.0, rng=5)
    assert fit.score_test([1.5]).pvalue > 1e-3
    assert fit.score_test().pvalue < 1e-6
    low, high = fit.conf_int(method="score").iloc[0]
    assert low < fit.params.iloc[0] < high


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"loss": "poisson"}, "no correction for Laplace noise"),
        ({"loss": "exponential"}, "no correction for Laplace noise"),
        ({"loss": "multinomial"}, "no correction for Laplace noise"),
        ({"binary_mechanism": "gaussian"}, "noise='laplace' excludes"),
        ({"noise": "cauchy"}, "noise='cauchy' is not one of"),
    ],
)
def test_refusals(words, match):
    with pytest.raises(errors.ArgumentError, match=match):
        pi.IWPGLM.from_formula("y ~ a + b", table(100), schema=SCHEMA, **{"noise": "laplace", **words})


def test_more_refusals():
    data = table(100)
    with pytest.raises(errors.ArgumentError, match="there are no such columns: leave noise= out"):
        pi.LocalExamples(SCHEMA, "y ~ C(g)", noise="laplace")
    many = pi.IWPGLM.from_formula("y ~ a + b + c + d + e + f + g7", data, schema=SCHEMA_7, noise="laplace")
    with pytest.raises(errors.ArgumentError, match="at most 6 columns"):
        many.fit(epsilon=9.0)
    model = pi.IWPGLM.from_formula("y ~ a + b", data, schema=SCHEMA, noise="laplace")
    for correction in ("conditional", "series"):
        with pytest.raises(errors.ArgumentError, match="with noise='laplace': choose one of 'exact', 'none'"):
            model.fit(epsilon=9.0, correction=correction)
    with pytest.raises(errors.ArgumentError, match="calibration='classic'"):
        model.fit(epsilon=9.0, calibration="classic")
    release = model.release(epsilon=9.0, rng=1)
    with pytest.raises(errors.ArgumentError, match="no correction for Laplace noise"):
        pi.IWPGLM.from_release(release, loss="exponential")
    gaussian = pi.IWPGLM.from_formula("y ~ a", data, schema=SCHEMA)
    with pytest.raises(errors.ArgumentError, match="correction='exact' is not available for loss='logistic'"):
        gaussian.fit(epsilon=9.0, delta=1e-3, correction="exact")
    assert default_correction("logistic", "laplace") == "exact"


SCHEMA_7 = pi.Schema({"y": [0, 1], **{name: (-1.0, 1.0) for name in "abcdef"}, "g7": (-1.0, 1.0)})
