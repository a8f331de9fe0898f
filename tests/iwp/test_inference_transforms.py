"""Weierstrass and Bernoulli transforms: inverses, derivatives, truncation and variances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.iwp.noise import inverse_weights
from privinf.iwp.transforms import (
    choose_truncation,
    exponential_derivatives,
    logistic_derivatives,
    quadratic_derivatives,
    truncation_bias,
)
from studies.transforms import (
    bernoulli,
    bernoulli_variance,
    cosine,
    derivatives,
    exponential,
    exponential_variance,
    inverse_bernoulli,
    inverse_linear_product,
    inverse_series,
    polynomial,
    quadratic_variance,
    response_variances,
    sine,
)

CLOSED = {
    "polynomial": (polynomial([1.0, -2.0, 0.5, 0.3]), lambda z: 1 - 2 * z + 0.5 * z**2 + 0.3 * z**3),
    "exponential": (exponential(-0.8), lambda z: np.exp(-0.8 * z)),
    "sine": (sine(1.3), lambda z: np.sin(1.3 * z)),
    "cosine": (cosine(1.3), lambda z: np.cos(1.3 * z)),
    "linear sine": (polynomial([0.5, 1.0]) * sine(0.7), lambda z: (0.5 + z) * np.sin(0.7 * z)),
    "linear exponential": (polynomial([0.0, 1.0]) * exponential(0.6), lambda z: z * np.exp(0.6 * z)),
    "damped wave": (
        2.0 * exponential(0.4) * cosine(0.9) + polynomial([0.0, 0.0, 1.0]) * cosine(0.5),
        lambda z: 2 * np.exp(0.4 * z) * np.cos(0.9 * z) + z**2 * np.cos(0.5 * z),
    ),
}
POINTS = np.array([-1.2, 0.0, 0.7])


def expectation(f, z, s2):
    """E f(z + N(0, s2)) by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    return np.array([weights @ f(point + np.sqrt(s2) * nodes) for point in z]) / np.sqrt(2 * np.pi)


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_are_their_functions_and_transforms(name):
    form, f = CLOSED[name]
    np.testing.assert_allclose(form(POINTS), f(POINTS), atol=1e-12)
    np.testing.assert_allclose(form.transform(0.6)(POINTS), expectation(f, POINTS, 0.6), atol=1e-10)
    np.testing.assert_allclose(form.inverse(0.6).transform(0.6)(POINTS), f(POINTS), atol=1e-10)
    np.testing.assert_allclose(expectation(form.inverse(0.6), POINTS, 0.6), f(POINTS), atol=1e-9)
    h = 1e-5
    slope = (f(POINTS + h) - f(POINTS - h)) / (2 * h)
    np.testing.assert_allclose(form.derivative()(POINTS), slope, atol=1e-8)


@pytest.mark.parametrize("name", CLOSED)
def test_inverses_are_unbiased_by_monte_carlo(name):
    form, f = CLOSED[name]
    noise = np.random.default_rng(1).standard_normal(200_000) * np.sqrt(0.4)
    for z in POINTS:
        draws = form.inverse(0.4)(z + noise)
        biased = form(z + noise)
        error = draws.std() / np.sqrt(draws.size)
        assert abs(draws.mean() - f(z)) < 4 * error
        if name == "exponential":
            assert abs(biased.mean() - f(z)) > 10 * error


def test_linear_products_are_unbiased_by_monte_carlo():
    rng = np.random.default_rng(2)
    theta, noise, x = np.array([0.5, -0.8, 0.3]), np.array([0.5, 0.3, 0.0]), np.array([0.4, -0.2, 1.0])
    sent = x + rng.standard_normal((200_000, 3)) * np.sqrt(noise)
    for form, f in CLOSED.values():
        draws = inverse_linear_product(form, sent, theta, noise)
        error = draws.std(axis=0) / np.sqrt(len(draws)) + 1e-12
        assert (np.abs(draws.mean(axis=0) - x * f(x @ theta)) < 4 * error).all()
    with pytest.raises(ArgumentError, match="one entry"):
        inverse_linear_product(sine(1.0), sent, theta, [0.5, 0.3])


FUNCTIONS = {
    "polynomial": (
        lambda z: 3.0 - 2.0 * z**3 + z * z / 4.0,
        lambda z: (3 - 2 * z**3 + z**2 / 4, -6 * z**2 + z / 2, -12 * z + 0.5),
    ),
    "reciprocal": (lambda z: 1.0 / (z + 2.0), lambda z: ((z + 2) ** -1, -((z + 2) ** -2), 2 * (z + 2) ** -3)),
    "power": (
        lambda z: (2.0 + z) ** 1.5,
        lambda z: ((2 + z) ** 1.5, 1.5 * (2 + z) ** 0.5, 0.75 * (2 + z) ** -0.5),
    ),
    "negative power": (
        lambda z: (2.0 + z) ** -2,
        lambda z: ((2 + z) ** -2, -2 * (2 + z) ** -3, 6 * (2 + z) ** -4),
    ),
    "variable power": (
        lambda z: np.power(2.0, z),
        lambda z: (2.0**z, np.log(2) * 2**z, np.log(2) ** 2 * 2**z),
    ),
    "root": (
        lambda z: np.sqrt(2.0 - z),
        lambda z: ((2 - z) ** 0.5, -0.5 * (2 - z) ** -0.5, -0.25 * (2 - z) ** -1.5),
    ),
    "log": (lambda z: np.log(2.0 + z), lambda z: (np.log(2 + z), (2 + z) ** -1, -((2 + z) ** -2))),
    "log1p": (
        lambda z: np.log1p(np.square(z)),
        lambda z: (np.log(1 + z**2), 2 * z / (1 + z**2), (2 - 2 * z**2) / (1 + z**2) ** 2),
    ),
    "expm1": (lambda z: np.expm1(-z), lambda z: (np.exp(-z) - 1, -np.exp(-z), np.exp(-z))),
    "sine": (lambda z: np.sin(2.0 * z), lambda z: (np.sin(2 * z), 2 * np.cos(2 * z), -4 * np.sin(2 * z))),
    "cosine": (lambda z: np.cos(+z), lambda z: (np.cos(z), -np.sin(z), -np.cos(z))),
    "tanh": (
        lambda z: np.tanh(z),
        lambda z: (np.tanh(z), np.cosh(z) ** -2, -2 * np.tanh(z) * np.cosh(z) ** -2),
    ),
    "expit": (
        lambda z: expit(-z),
        lambda z: (expit(-z), -expit(z) * expit(-z), expit(z) * expit(-z) * np.tanh(z / 2)),
    ),
    "constant": (lambda z: 4.0, lambda z: (4.0 + 0 * z, 0 * z, 0 * z)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_exact(name):
    f, expected = FUNCTIONS[name]
    np.testing.assert_allclose(derivatives(f, POINTS, 2), expected(POINTS), atol=1e-13)


def test_derivatives_of_any_order_and_refusals():
    z = np.linspace(-3, 3, 7).reshape(7, 1)
    automatic = derivatives(lambda t: np.logaddexp(0.0, -t), z, 9)
    np.testing.assert_allclose(automatic, logistic_derivatives(z, 9), atol=1e-9)
    composed = derivatives(lambda t: np.log(1.0 + np.exp(-t)), z, 9)
    np.testing.assert_allclose(composed, automatic, atol=1e-9)
    np.testing.assert_allclose(derivatives(lambda t: np.exp(-t), z, 5), exponential_derivatives(z, 5))
    np.testing.assert_allclose(derivatives(lambda t: (t - 1.0) ** 2 / 2.0, z, 5), quadratic_derivatives(z, 5))
    assert derivatives(np.sin, 0.3, 0).shape == (1,)
    with pytest.raises(ArgumentError, match="arctan"):
        derivatives(np.arctan, 0.0, 2)
    with pytest.raises(ArgumentError, match="order"):
        derivatives(np.sin, 0.0, -1)


def test_series_is_exact_for_polynomials_and_converges_for_waves():
    f = polynomial([1.0, 2.0, 3.0, 4.0, 5.0])
    exact = f.inverse(0.9)(POINTS)
    written = lambda z: 1.0 + 2.0 * z + 3.0 * z**2 + 4.0 * z**3 + 5.0 * z**4  # noqa: E731
    np.testing.assert_allclose(inverse_series(written, POINTS, 0.9, truncation=2), exact, rtol=1e-12)
    errors = [
        np.abs(inverse_series(np.sin, POINTS, 0.9, truncation=k) - sine(1.0).inverse(0.9)(POINTS)).max()
        for k in (1, 3, 9)
    ]
    assert errors[0] > 50 * errors[1]
    assert errors[2] < 1e-9
    with pytest.raises(ArgumentError, match="truncation"):
        inverse_series(np.sin, POINTS, 0.9, truncation=-1)


@pytest.mark.audit
def test_truncation_bias_is_the_bias_by_monte_carlo():
    noise = np.random.default_rng(3).standard_normal(400_000) * np.sqrt(3.0)
    for k in (0, 1, 2):
        worst = truncation_bias(logistic_derivatives, 3.0, truncation=k, bound=1.5)
        bias = []
        for z in np.linspace(-1.5, 1.5, 5):
            draws = inverse_series(lambda t: np.logaddexp(0.0, -t), z + noise, 3.0, truncation=k)
            bias.append(abs(draws.mean() - np.logaddexp(0.0, -z)))
        assert max(bias) == pytest.approx(worst, abs=4 * draws.std() / np.sqrt(noise.size))


def test_the_truncation_of_least_bias_is_chosen():
    assert choose_truncation(quadratic_derivatives, 4.0, bound=2.0) == 1
    wide = [truncation_bias(logistic_derivatives, 200.0, truncation=k, bound=1.0) for k in (1, 2, 3)]
    assert choose_truncation(logistic_derivatives, 200.0, bound=1.0) == 1 + int(np.argmin(wide))
    # A growing function under heavy noise: every further term adds bias.
    fast = lambda z, m: derivatives(lambda t: np.exp(2.0 * t), z, m)  # noqa: E731
    assert choose_truncation(fast, 4.0, bound=1.0) == 1
    assert truncation_bias(logistic_derivatives, 0.0, truncation=1, bound=1.0) == 0.0
    with pytest.raises(ArgumentError, match="at least one"):
        choose_truncation(logistic_derivatives, 1.0, bound=1.0, candidates=())


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_bernoulli_inverse_and_its_variance(levels):
    rng = np.random.default_rng(levels)
    epsilon = 1.3
    other = 1.0 / (np.exp(epsilon) + levels - 1)
    keep = np.exp(epsilon) * other
    g = rng.standard_normal(levels)
    inverse = inverse_bernoulli(g, keep=keep, other=other)
    np.testing.assert_allclose(bernoulli(inverse, keep=keep, other=other), g, atol=1e-12)
    exact = response_variances(g, keep=keep, other=other)
    for level in range(levels):
        law = np.full(levels, other)
        law[level] = keep
        sent = rng.choice(levels, 200_000, p=law / law.sum())
        draws = inverse[sent]
        assert abs(draws.mean() - g[level]) < 4 * draws.std() / np.sqrt(draws.size)
        assert draws.var() == pytest.approx(exact[level], rel=0.02)
        weights = inverse_weights(np.eye(levels)[sent[:9]], keep=keep, other=other)
        np.testing.assert_allclose(weights @ g, draws[:9])
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    if levels == 2:
        np.testing.assert_allclose(exact, bernoulli_variance(g[1] - g[0], epsilon))


def test_lemma_d2_against_simulation_and_the_transform_itself():
    rng = np.random.default_rng(5)
    x, s2, a = np.array([0.3, -0.5]), 0.7, np.array([0.5, -0.4])
    A, b = np.array([[1.0, 0.6], [-0.2, 0.5]]), np.array([0.2, 1.0])
    sent = x + np.sqrt(s2) * rng.standard_normal((400_000, 2))
    quadratic = np.einsum("ij,jk,ik->i", sent, A, sent) / 2 + sent @ b - s2 * np.trace(A) / 2
    assert quadratic.mean() == pytest.approx(x @ A @ x / 2 + x @ b, abs=4 * quadratic.std() / 632)
    assert quadratic.var() == pytest.approx(quadratic_variance(A, b, x, s2), rel=0.02)
    growth = np.exp(sent @ a - s2 * a @ a / 2)
    assert growth.var() == pytest.approx(exponential_variance(a, x, s2), rel=0.02)
    for form, value in [
        (polynomial([0.0, 1.0, 1.5]), quadratic_variance([[3.0]], [1.0], [0.4], 0.6)),
        (exponential(0.9), exponential_variance([0.9], [0.4], 0.6)),
    ]:
        inverse = form.inverse(0.6)
        exact = (inverse * inverse).transform(0.6)(0.4) - form(0.4) ** 2
        assert float(exact) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda: bernoulli([0.0, 1.0], keep=0.7, other=0.2),
        lambda: inverse_bernoulli([0.0, 1.0], keep=0.5, other=0.5),
        lambda: response_variances([0.0, 1.0], keep=0.4, other=0.6),
        lambda: quadratic_variance(np.eye(2), [0.0], [0.0], 1.0),
        lambda: exponential_variance([1.0, 2.0], [0.0], 1.0),
        lambda: exponential_variance([1.0], [0.0], -1.0),
        lambda: bernoulli_variance(1.0, 0.0),
        lambda: polynomial([]),
        lambda: sine(1.0).inverse(-0.1),
        lambda: truncation_bias(logistic_derivatives, 1.0, truncation=1, bound=0.0),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ArgumentError):
        call()


@pytest.mark.parametrize("name", CLOSED)
def test_the_transform_is_its_series_of_derivatives(name):
    """Theorem 3.3: sum_k (s2/2)^k/k! f^(2k)."""
    form, s2 = CLOSED[name][0], 0.6
    total, factor = np.zeros_like(POINTS), 1.0
    for k in range(30):
        total += factor * form.derivative(2 * k)(POINTS)
        factor *= s2 / 2 / (k + 1)
    np.testing.assert_allclose(total, form.transform(s2)(POINTS), rtol=1e-10, atol=1e-12)


def test_the_transform_is_linear_and_increasing():
    """Propositions B.2 and B.3: of f + 2 g, and of a square, which is never below zero."""
    f, g = CLOSED["linear sine"][0], CLOSED["damped wave"][0]
    both = (f + 2.0 * g).transform(0.6)(POINTS)
    np.testing.assert_allclose(both, f.transform(0.6)(POINTS) + 2.0 * g.transform(0.6)(POINTS), rtol=1e-12)
    assert ((f * f).transform(0.6)(np.linspace(-5.0, 5.0, 201)) > 0.0).all()


def test_the_exponential_loss_is_in_the_class():
    """Proposition B.4: e^(|theta| |x|) <= e^(|theta|^2/4a) e^(a x^2), equal at |x| = |theta|/2a."""
    x = np.linspace(0.0, 20.0, 2001)
    for norm, a in ((1.0, 0.05), (3.0, 0.5)):
        gap = norm**2 / (4 * a) + a * x**2 - norm * x
        assert gap.min() >= -1e-9
        assert gap[np.argmin(np.abs(x - norm / (2 * a)))] < 1e-3


@pytest.mark.parametrize("name", ["polynomial", "exponential", "damped wave"])
def test_the_inverse_commutes_with_the_gradient(name):
    """Proposition D.1: the gradient in theta of W^-1[f(x'theta)] is W^-1 of the gradient, equation (16)."""
    form, x = CLOSED[name][0], np.array([0.4, -0.7, 1.2])
    theta, noise = np.array([0.5, 0.2, -0.3]), np.array([0.3, 0.8, 0.0])

    def inverse(point):
        return float(form.inverse(float(point @ (noise * point)))(x @ point))

    steps = 1e-5 * np.eye(3)
    numeric = [(inverse(theta + step) - inverse(theta - step)) / 2e-5 for step in steps]
    found = inverse_linear_product(form.derivative(), x[None], theta, noise)[0]
    np.testing.assert_allclose(found, numeric, rtol=1e-6, atol=1e-8)
