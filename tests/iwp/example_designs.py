"""Made-up examples, clean and as sent, that the tests of example scores share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from privinf.iwp.equation import ExampleScores
from privinf.iwp.noise import LabelNoise, ResponseColumns

BINARY = {"quadratic", "exponential", "logistic"}
TRUTH = np.array([0.3, 0.8, -0.6, 0.4, 0.5, -0.4, 0.3])
RESPONSES = (ResponseColumns((4,), 0.85, 0.15), ResponseColumns((5, 6), 0.8, 0.1))
NOISE = np.array([0.0, 0.3, 0.2, 0.0, 0.0, 0.0, 0.0])


@dataclass
class Design:
    """Clean columns (constant, two numbers, public, binary, two dummies), the noise law, and how to send."""

    X: np.ndarray
    noise: np.ndarray
    responses: tuple = ()

    def sent(self, rng):
        X = self.X + rng.standard_normal(self.X.shape) * np.sqrt(self.noise)
        for response in self.responses:
            columns = list(response.columns)
            codes = self.X[:, columns] @ np.arange(1, response.levels)
            X[:, columns] = np.eye(response.levels)[respond(rng, codes.astype(int), response)][:, 1:]
        return X


def mixed_design(rng, n, *, gaussian=True):
    X = np.column_stack(
        [
            np.ones(n),
            rng.uniform(-1, 1, (n, 3)),
            rng.integers(0, 2, n),
            np.eye(3)[rng.integers(0, 3, n)][:, 1:],
        ]
    )
    return Design(X, NOISE if gaussian else np.zeros(7), RESPONSES)


def plain_design(rng, n, p, variance):
    return Design(rng.uniform(-1, 1, (n, p)), np.full(p, float(variance)))


def respond(rng, codes, law):
    """k-ary randomized response of integer codes."""
    shifted = (codes + rng.integers(1, law.levels, codes.shape)) % law.levels
    return np.where(rng.random(codes.shape) < law.keep, codes, shifted)


def clean_labels(rng, loss, X, theta):
    """Labels from the model that a loss belongs to (binary losses: logistic)."""
    if loss == "squared":
        return X @ theta + 0.5 * rng.standard_normal(len(X))
    if loss == "poisson":
        return rng.poisson(np.exp(X @ theta)).astype(float)
    if loss == "multinomial":
        eta = np.column_stack([np.zeros(len(X)), X @ theta.reshape(-1, X.shape[1]).T])
        p = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
        return (p.cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
    return (rng.random(len(X)) < expit(X @ theta)).astype(int)


def label_law(loss):
    if loss == "multinomial":
        return LabelNoise(3, 0.8, 0.1)
    return LabelNoise(2, 0.9, 0.1) if loss in BINARY else {"squared": 0.4, "poisson": 0.0}[loss]


def sent_labels(rng, labels, law):
    if isinstance(law, LabelNoise):
        return respond(rng, labels, law)
    return labels + np.sqrt(law) * rng.standard_normal(len(labels))


def correction_of(loss):
    return "conditional" if loss in {"logistic", "multinomial"} else "exact"


def released(rng, loss, design, labels, *, law=None, correction=None, **options):
    """One release of a design and its labels, as a system."""
    law = label_law(loss) if law is None else law
    return ExampleScores(
        design.sent(rng),
        sent_labels(rng, labels, law),
        design.noise,
        loss=loss,
        correction=correction or correction_of(loss),
        label=law,
        responses=design.responses,
        **options,
    )


def clean(loss, design, labels, **options):
    """The same loss on the rows themselves."""
    law = label_law(loss)
    law = LabelNoise(law.levels, 1.0, 0.0) if isinstance(law, LabelNoise) else 0.0
    return ExampleScores(
        design.X,
        labels,
        np.zeros(design.X.shape[1]),
        loss=loss,
        correction=correction_of(loss),
        label=law,
        **options,
    )


def wald_cov(system, params):
    bread = np.linalg.inv(system.jacobian(params))
    return bread @ system.meat(params) @ bread.T / system.n
