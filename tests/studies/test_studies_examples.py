"""Designs for locally private examples: their laws, and their targets against brute force."""

import numpy as np
import pytest
from scipy import optimize

from privinf.errors import ArgumentError
from privinf.schema import add_constant
from studies.examples import (
    LOGIT,
    STAGES,
    classification_design,
    examples_target,
    labelled_examples,
    staged_examples,
)
from studies.simulation import binomial_limits

LEVEL = 1.0 - 0.01 / 40


def expit(x):
    return 1.0 / (1.0 + np.exp(-x))


def shares_agree(indicator, probability, cells=10):
    """Whether the shares of an indicator in cells of equal probability lie inside binomial limits."""
    order = np.argsort(probability, kind="stable")
    for part in np.array_split(order, cells):
        low, high = binomial_limits(float(probability[part].mean()), len(part), LEVEL)
        if not low <= indicator[part].mean() <= high:
            return False
    return True


def test_labels_follow_the_logistic_model():
    sample = labelled_examples(50_000, 1)
    assert list(sample.X) == ["x1", "x2"]
    assert sample.params.to_dict() == {"x1": 1.5, "x2": -1.0} == sample.slopes.to_dict()
    assert (sample.X.abs() <= 1.0).all(axis=None)
    np.testing.assert_allclose(np.cov(sample.X.T), np.eye(2) / 3.0, atol=0.01)
    assert set(sample.y) == {0.0, 1.0}
    eta = sample.X.to_numpy() @ np.array(LOGIT)
    assert shares_agree(sample.y, expit(eta))
    assert not shares_agree(sample.y, expit(0.8 * eta))


def test_terms_have_their_laws_and_effects():
    sample = labelled_examples(60_000, 2, terms=["const", "z", "b", "g"])
    X = sample.X
    assert list(X) == ["const", "x1", "x2", "z", "b", "g"]
    names = ["const", "x1", "x2", "z", "b", "C(g)[T.v]", "C(g)[T.w]"]
    assert list(sample.params.index) == names
    assert set(X.attrs["privinf_public"]) == {"const", "z"}
    assert (X["const"] == 1.0).all()
    rest = X["z"] - X["x1"] / 2.0
    assert rest.abs().max() <= 1.0
    assert abs(np.corrcoef(rest, X["x1"])[0, 1]) < 0.02
    assert shares_agree((X["b"] == 1.0).to_numpy(), (0.45 + 0.2 * X["x1"]).to_numpy())
    assert set(X["b"]) == {0.0, 1.0}
    assert shares_agree((X["g"] == "u").to_numpy(), (0.4 - 0.1 * X["x2"]).to_numpy())
    assert shares_agree((X["g"] == "w").to_numpy(), (0.3 + 0.1 * X["x2"]).to_numpy())
    columns = X.assign(v=X["g"] == "v", w=X["g"] == "w").drop(columns="g").to_numpy(dtype=float)
    eta = columns @ np.array([-0.3, 1.5, -1.0, 0.5, 0.8, 0.6, -0.7])
    np.testing.assert_array_equal(sample.params, [-0.3, 1.5, -1.0, 0.5, 0.8, 0.6, -0.7])
    assert shares_agree(sample.y, expit(eta))
    for wrong in (3, 4, 5, 6):
        assert not shares_agree(sample.y, expit(eta - columns[:, wrong] * sample.params.iloc[wrong]))


@pytest.mark.parametrize("terms", [[], ["const"], ["z"], ["b"], ["g"], ["const", "g"], ["z", "b"]])
def test_every_choice_of_terms(terms):
    sample = labelled_examples(100, 0, terms=terms)
    wide = sum(2 if term == "g" else 1 for term in terms) + 2
    assert len(sample.params) == wide
    assert sample.X.shape == (100, 2 + len(terms))
    assert set(sample.X.attrs.get("privinf_public", ())) == set(terms) & {"const", "z"}
    assert list(sample.slopes.index) == ["x1", "x2"]
    assert add_constant(sample.X[["x1"]]).shape == (100, 2)


def test_three_levels_follow_the_multinomial_model():
    sample = staged_examples(50_000, 3)
    assert list(sample.params.index) == ["Intercept[v]", "x1[v]", "x2[v]", "Intercept[w]", "x1[w]", "x2[w]"]
    assert list(sample.slopes.index) == ["x1[v]", "x2[v]", "x1[w]", "x2[w]"]
    assert sample.params.tolist() == [*STAGES["v"], *STAGES["w"]]
    assert (sample.X.abs() <= 1.0).all(axis=None)
    linear = np.column_stack([np.ones(50_000), sample.X]) @ sample.params.to_numpy().reshape(2, 3).T
    weights = np.column_stack([np.ones(50_000), np.exp(linear)])
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    for level in range(3):
        assert shares_agree(sample.y == level, probabilities[:, level])
        assert not shares_agree(sample.y == level, probabilities[:, (level + 1) % 3])


@pytest.mark.parametrize("loss", ["squared", "quadratic", "exponential"])
@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_targets_minimise_the_population_loss(loss, ridge):
    """Against a direct minimisation of the loss on a fine grid of midpoints."""
    side = (np.arange(400) + 0.5) / 200.0 - 1.0
    x = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    p = expit(x @ np.array(LOGIT))
    values = {"squared": (0.0, 1.0)}.get(loss, (-1.0, 1.0))

    def risk(theta):
        total = 0.0
        for y, share in zip(values, (1.0 - p, p), strict=True):
            eta = x @ theta
            one = np.exp(-y * eta) if loss == "exponential" else (eta - y) ** 2 / 2.0
            total += float((share * one).mean())
        return total + ridge * float(theta @ theta) / 2.0

    found = optimize.minimize(risk, np.zeros(2), method="BFGS", options={"gtol": 1e-9})
    target = examples_target(loss, ridge=ridge)
    np.testing.assert_allclose(target, found.x, atol=2e-5)
    assert np.abs(target - examples_target(loss, ridge=ridge + 0.1)).max() > 0.01


@pytest.mark.parametrize("p", [2, 4, 10])
def test_classes_as_scikit_learn_draws_them(p):
    sample = classification_design(20_000, p, 5)
    assert sample.X.shape == (20_000, p)
    assert (sample.X.abs() <= 1.0).all(axis=None)
    assert set(sample.y) == {0.0, 1.0}
    low, high = binomial_limits(0.5, 20_000, LEVEL)
    assert low <= sample.y.mean() <= high
    means = [sample.X[sample.y == label].mean() for label in (0.0, 1.0)]
    assert np.abs(means[1] - means[0]).iloc[:2].max() > 0.2
    if p == 10:  # noise columns know nothing of the label
        assert np.abs(means[1] - means[0]).iloc[4:].max() < 0.02
    again = classification_design(20_000, p, 5)
    np.testing.assert_array_equal(sample.X, again.X)
    assert not sample.X.equals(classification_design(20_000, p, 6).X)


def test_redundant_columns_are_combinations_of_the_informative_ones():
    X = classification_design(5000, 4, 1).X.to_numpy()
    inside = (np.abs(X) < 1.0).all(axis=1)
    assert inside.mean() > 0.95
    rest = X[inside, 2:] - X[inside, :2] @ np.linalg.lstsq(X[inside, :2], X[inside, 2:], rcond=None)[0]
    assert np.abs(rest).max() < 1e-12


def test_designs_are_those_of_their_seed():
    for design in (labelled_examples, staged_examples):
        np.testing.assert_array_equal(design(50, 4).X, design(50, np.random.default_rng(4)).X)
        np.testing.assert_array_equal(design(50, 4).y, design(50, 4).y)
        assert not design(50, 4).X.equals(design(50, 5).X)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: labelled_examples(0), "n"),
        (lambda: labelled_examples(10, terms=["age"]), "term"),
        (lambda: staged_examples(0), "n"),
        (lambda: examples_target("logistic"), "loss"),
        (lambda: examples_target("squared", ridge=-1.0), "ridge"),
        (lambda: classification_design(10, 3), "at least 4"),
        (lambda: classification_design(10, 1), "p"),
        (lambda: classification_design(0, 2), "n"),
    ],
)
def test_bad_arguments_are_refused(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()
