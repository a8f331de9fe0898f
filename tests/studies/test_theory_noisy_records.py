"""Bias of the risk, variance of the gradient and error of one pass: theorems 4.2, 5.3 and 5.5 of paper 4."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.iwp.equation import ExampleScores
from privinf.iwp.example_sgd import fit_sgd
from privinf.iwp.noise import LabelNoise
from studies.theory.noisy_gradients import (
    gradient_constant,
    gradient_variance,
    largest_gradient_variance,
    printed_variance_bound,
    sgd_error_bound,
)
from studies.theory.noisy_risk import risk_bias

LOSSES = {
    "quadratic": lambda z: (z - 1.0) ** 2 / 2.0,
    "exponential": lambda z: np.exp(-z),
    "logistic": lambda z: np.log1p(np.exp(-z)),
}
THETA, NOISE = np.array([0.8, -0.5, 0.3]), np.array([0.6, 1.1, 0.0])


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.0, 1.0, (n, 3)), rng.choice([-1.0, 1.0], n)


@pytest.mark.parametrize("loss", LOSSES)
def test_bias_is_that_of_noisy_copies(loss):
    """Against noisy copies of the same records, label by label: the three parts and their sum."""
    X, y = records(100_000)
    rng, epsilon = np.random.default_rng(1), 1.2
    noisy = X + np.sqrt(NOISE) * rng.standard_normal(X.shape)
    turned = rng.random(len(y)) < expit(-epsilon)
    f = LOSSES[loss]
    clean, there = y * (X @ THETA), y * (noisy @ THETA)
    found = risk_bias(THETA, X, y, loss=loss, noise=NOISE, epsilon_y=epsilon)
    parts = {
        "label": expit(-epsilon) * (f(-clean) - f(clean)),
        "features": expit(epsilon) * (f(there) - f(clean)),
        "interaction": expit(-epsilon) * (f(-there) - f(-clean)),
        "total": f(np.where(turned, -there, there)) - f(clean),
    }
    for name, draws in parts.items():
        error = abs(getattr(found, name) - draws.mean())
        assert error <= 4.0 * draws.std() / math.sqrt(len(y)) + 1e-12, name


def test_bias_without_noise_is_none_and_example_1_is_closed():
    X, y = records(50)
    for loss in LOSSES:
        assert risk_bias(THETA, X, y, loss=loss, noise=np.zeros(3)).total == pytest.approx(0.0, abs=1e-12)
    z, s, keep = y * (X @ THETA), float(THETA @ (NOISE * THETA)), expit(0.7)
    noisy = math.exp(s / 2) * (keep * np.exp(-z).mean() + (1 - keep) * np.exp(z).mean())
    found = risk_bias(THETA, X, y, loss="exponential", noise=NOISE, epsilon_y=0.7)
    assert found.total == pytest.approx(noisy - np.exp(-z).mean(), rel=1e-12)


@pytest.mark.parametrize("loss", ["quadratic", "exponential"])
@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_gradient_variance_is_that_of_the_package_scores(loss, epsilon, y):
    """By quadrature over noise and response, scores by `ExampleScores`; NOISE has a column without noise."""
    x, keep = np.array([0.4, -0.9, 0.7]), float(expit(epsilon))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    first, second = (part.ravel() for part in np.meshgrid(nodes, nodes))
    weight = np.outer(weights, weights).ravel() / (2.0 * math.pi)
    noisy = x + np.sqrt(NOISE) * np.column_stack([first, second, np.zeros_like(first)])
    true = (y + 1.0) / 2.0
    rows, codes = np.vstack([noisy, noisy]), np.repeat([true, 1.0 - true], len(noisy))
    chance = np.concatenate([keep * weight, (1.0 - keep) * weight])
    label = LabelNoise(2, keep, 1.0 - keep) if keep < 1.0 else 0.0
    system = ExampleScores(rows, codes, NOISE, loss=loss, correction="exact", label=label)
    scores = system.scores(THETA)
    clean = -y * x * (-math.exp(-y * (x @ THETA)) if loss == "exponential" else y * (x @ THETA) - 1.0)
    np.testing.assert_allclose(chance @ scores, clean, rtol=1e-9)
    expected = chance @ (scores**2).sum(axis=1) - clean @ clean
    found = gradient_variance(THETA, x[None], [y], loss=loss, noise=NOISE, epsilon_y=epsilon)[0]
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("loss", ["quadratic", "exponential"])
@pytest.mark.parametrize("epsilon", [math.inf, 0.8])
def test_largest_variance_and_constant_are_suprema(loss, epsilon):
    """No record and no coefficients inside the balls are above them, and the worst ones attain them."""
    B, R, p, noise = 0.7, 1.3, 3, 0.9
    of = {"loss": loss, "theta_radius": B, "feature_norm": R, "dimension": p}
    largest = largest_gradient_variance(**of, noise_variance=noise, epsilon_y=epsilon)
    rng = np.random.default_rng(5)
    spread = []
    for _ in range(60):
        theta = rng.standard_normal(p)
        theta *= B * rng.random() ** 0.2 / np.linalg.norm(theta)
        X = rng.standard_normal((40, p))
        X *= R * rng.random((40, 1)) ** 0.2 / np.linalg.norm(X, axis=1)[:, None]
        X[0] = -R * theta / np.linalg.norm(theta)
        how = {"loss": loss, "noise": np.full(p, noise), "epsilon_y": epsilon}
        spread.append(gradient_variance(theta, X, np.ones(40), **how).max())
    assert max(spread) <= largest * (1 + 1e-12)
    theta, x = np.array([B, 0.0, 0.0]), np.array([[-R, 0.0, 0.0]])
    there = gradient_variance(theta, x, [1.0], loss=loss, noise=np.full(p, noise), epsilon_y=epsilon)[0]
    assert there == pytest.approx(largest)
    # Equation (17) on a grid: x = (a, b) along theta and across it, s the variance so far.
    s, a, q = np.meshgrid(np.linspace(0, noise, 7), np.linspace(-R, R, 41), np.linspace(0, B, 9))
    z, square = a * q, R**2
    if loss == "quadratic":
        mixed = square * q**2 + 2 * z * (z - 1) + p * (z - 1) ** 2
        slope = square * (z - 1) ** 2
    else:
        e = np.exp(-2 * z - s * q**2)
        mixed = e * (p + square * q**2 + s**2 * q**4 - 2 * z - 2 * s * q**2 + 2 * s * z * q**2)
        slope = np.exp(-2 * z) * square
    assert gradient_constant(**of) == pytest.approx(math.sqrt(max(mixed.max(), slope.max())))


def test_the_printed_bound_is_below_the_truth_with_clear_labels():
    """By sigma^4 (p + 1) B^2 at the worst record, however small sigma is; the term of 5.5 is even zero."""
    B, R, p = 1.0, 1.0, 4
    of = {"loss": "quadratic", "theta_radius": B, "feature_norm": R, "dimension": p}
    constant = gradient_constant(**of)
    for noise in (0.01, 1.0, 30.0):
        truth = largest_gradient_variance(**of, noise_variance=noise)
        printed = printed_variance_bound(constant, noise_variance=noise)
        assert truth - printed == pytest.approx(noise**2 * (p + 1) * B**2)
        assert printed_variance_bound(constant, noise_variance=noise, theorem="5.5") == 0.0


@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_one_pass_from_the_optimum_stays_below_its_bound(epsilon):
    """Quadratic loss, x uniform on [-1, 1]^2, 1,000 passes side by side; a fiftieth of A is not enough."""
    n, passes, noise, step = 600, 1_000, 0.5, 0.01
    slopes = np.array([0.5, -0.3])
    rng = np.random.default_rng(7)
    private = largest_gradient_variance(
        loss="quadratic",
        theta_radius=1.0,
        feature_norm=math.sqrt(2.0),
        dimension=2,
        noise_variance=noise,
        epsilon_y=epsilon,
    )
    variance, curvature = private + 2.0 * (math.sqrt(2.0) + 1.0) ** 2, 1.0 / 3.0
    lie, weight = expit(-epsilon), 1.0 / (1.0 - 2.0 * expit(-epsilon))
    theta = np.tile(slopes, (passes, 1))
    for _ in range(n):
        x = rng.uniform(-1.0, 1.0, (passes, 2))
        y = np.where(rng.random(passes) < (1.0 + x @ slopes) / 2.0, 1.0, -1.0)
        sent = weight * np.where(rng.random(passes) < lie, -y, y)
        noisy = x + math.sqrt(noise) * rng.standard_normal(x.shape)
        theta -= step * (noisy * ((noisy * theta).sum(axis=1) - sent)[:, None] - noise * theta)
        theta /= np.maximum(1.0, np.linalg.norm(theta, axis=1))[:, None]
    error = float(((theta - slopes) ** 2).sum(axis=1).mean())
    of = {"step": step, "convexity": curvature, "smoothness": curvature, "distance": 0.0}
    little, enough = (sgd_error_bound(n, **of, variance=part * variance) for part in (0.02, 1.0))
    assert little < error <= enough
    start = sgd_error_bound(n, **of | {"distance": 1.0}, variance=0.0)
    assert start == pytest.approx((1.0 - step / 3.0) ** n)


def test_bad_arguments_are_refused():
    good = {"loss": "quadratic", "noise": [1.0]}
    for theta, X, y in (([1.0, 1.0], [[1.0]], [1.0]), ([1.0], [[1.0]], [0.0]), ([1.0], [[1.0]], [1.0, 1.0])):
        with pytest.raises(ArgumentError):
            risk_bias(theta, X, y, **good)
    with pytest.raises(ArgumentError, match="variances >= 0"):
        gradient_variance([1.0], [[1.0]], [1.0], loss="quadratic", noise=[-1.0])
    with pytest.raises(ArgumentError, match="loss"):
        gradient_variance([1.0], [[1.0]], [1.0], loss="logistic", noise=[1.0])
    with pytest.raises(ArgumentError, match=r"1/\(2 smoothness\)"):
        sgd_error_bound(10, step=1.0, convexity=1.0, smoothness=1.0, distance=1.0, variance=1.0)
    with pytest.raises(ArgumentError, match="convexity"):
        sgd_error_bound(10, step=0.1, convexity=2.0, smoothness=1.0, distance=1.0, variance=1.0)


def test_the_steps_of_the_theorem_are_those_of_fit_sgd():
    """Batches of one, quadratic loss, a label under response: the update that the tables simulate."""
    rng, step, noise, epsilon = np.random.default_rng(9), 0.05, 0.5, 1.0
    keep = float(expit(epsilon))
    noisy, codes = rng.standard_normal((80, 2)), rng.integers(0, 2, 80)
    system = ExampleScores(
        noisy,
        codes,
        [noise, noise],
        loss="quadratic",
        correction="exact",
        label=LabelNoise(2, keep, 1.0 - keep),
    )
    theta = np.zeros(2)
    for x, sent in zip(noisy, (2.0 * codes - 1.0) / (2.0 * keep - 1.0), strict=True):
        theta = theta - step * (x * (x @ theta - sent) - noise * theta)
        theta /= max(1.0, float(np.linalg.norm(theta)))
    path = fit_sgd(system, theta_radius=1.0, batch=1, step=step).path
    np.testing.assert_allclose(path.last, theta, rtol=1e-9)
