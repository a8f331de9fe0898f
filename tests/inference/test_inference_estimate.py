"""Estimate: checks at construction, change of units, weak estimates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privinf.errors import ArgumentError, NotAvailableError, NotPositiveDefiniteError
from privinf.inference.estimate import Estimate, is_positive_definite
from privinf.inference.solution import sandwich, score_meat


def made(seed: int = 0, p: int = 3, n: int = 400) -> Estimate:
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((n, p)) @ rng.standard_normal((p, p))
    scores -= scores.mean(axis=0)
    bread = np.eye(p) + 0.3 * np.ones((p, p))
    cov = sandwich(bread, score_meat(scores, n), n)
    return Estimate(
        params=rng.standard_normal(p),
        cov=cov,
        names=tuple("abc"[:p]),
        nobs=n,
        scores=scores,
        bread=bread,
        noise_cov=cov / 2,
    )


def test_influence_reproduces_the_covariance():
    estimate = made()
    influence = estimate.influence
    np.testing.assert_allclose(influence.T @ influence / 400**2, estimate.cov, rtol=1e-12)
    np.testing.assert_allclose(np.diag(estimate.corr), 1.0)
    np.testing.assert_allclose(estimate.noise_bse, estimate.bse / np.sqrt(2))


@pytest.mark.parametrize("rows", [3, 2])
def test_transformed_carries_everything_along(rows):
    estimate = made()
    T = np.random.default_rng(1).standard_normal((rows, 3))
    moved = estimate.transformed(T, shift=np.arange(rows), names=["x", "y", "z"][:rows])
    np.testing.assert_allclose(moved.params, T @ estimate.params + np.arange(rows))
    np.testing.assert_allclose(moved.influence, estimate.influence @ T.T, atol=1e-12)
    np.testing.assert_allclose(moved.cov, T @ estimate.cov @ T.T, atol=1e-14)
    np.testing.assert_allclose(moved.noise_cov, moved.cov / 2, atol=1e-14)
    np.testing.assert_allclose(
        sandwich(moved.bread, score_meat(moved.scores, 400), 400), moved.cov, atol=1e-12
    )


def test_linear_allows_more_contrasts_than_coefficients():
    estimate = made()
    R = np.array([[1, -1, 0], [0, 1, -1], [1, 0, -1], [1, 1, 1.0]])
    value, cov = estimate.linear(R)
    np.testing.assert_allclose(value, R @ estimate.params)
    np.testing.assert_allclose(cov, R @ estimate.cov @ R.T)
    with pytest.raises(ArgumentError, match="at most 3 linear combinations"):
        estimate.transformed(R, names=list("abcd"))


def test_a_weak_estimate_keeps_its_moments_and_gives_its_reason():
    strong = made()
    weak = Estimate(
        params=strong.params,
        cov=None,
        names=strong.names,
        nobs=400,
        scores=strong.scores,
        bread=strong.bread,
        weak_reason="too noisy",
    )
    for member in ("bse", "corr", "covariance"):
        with pytest.raises(NotAvailableError, match="too noisy"):
            getattr(weak, member)
    assert weak.influence.shape == (400, 3)
    assert weak.transformed(2 * np.eye(3), names=weak.names).weak_reason == "too noisy"
    revived = weak.with_cov(strong.cov, cov_type="bootstrap")
    assert revived.weak_reason == ""
    assert revived.cov_type == "bootstrap"


def test_arrays_are_read_only_views():
    estimate = made()
    with pytest.raises(ValueError, match="read-only"):
        estimate.params[0] = 1.0
    with pytest.raises(AttributeError):
        estimate.nobs = 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": np.array([1.0, np.nan])}, "nan or infinite"),
        ({"names": ("a",)}, "2 labels, one for each coefficient, got 1"),
        ({"names": ("a", "a")}, "not repeat"),
        ({"names": "ab"}, "sequence of strings"),
        ({"nobs": 0}, "nobs"),
        ({"cov": np.array([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
        ({"cov": np.eye(3)}, "shape"),
        ({"cov": None}, "weak_reason"),
        ({"weak_reason": "why"}, "weak_reason"),
        ({"scores": np.zeros((4, 3))}, "scores"),
        ({"bread": np.zeros((2, 3))}, "bread"),
    ],
)
def test_bad_fields_are_refused(change, message):
    fields = {"params": np.zeros(2), "cov": np.eye(2), "names": ("a", "b"), "nobs": 10}
    with pytest.raises(ArgumentError, match=message):
        Estimate(**(fields | change))


def test_definiteness_is_checked_in_correlation_units():
    tiny = np.diag([1e-12, 1e6])
    assert is_positive_definite(tiny)
    Estimate(params=np.zeros(2), cov=tiny, names=("a", "b"), nobs=5)
    with pytest.raises(NotPositiveDefiniteError):
        Estimate(params=np.zeros(2), cov=np.array([[1.0, 2.0], [2.0, 1.0]]), names=("a", "b"), nobs=5)
    with pytest.raises(NotPositiveDefiniteError):
        Estimate(params=np.zeros(2), cov=np.eye(2), names=("a", "b"), nobs=5, noise_cov=-np.eye(2))
    Estimate(params=np.zeros(2), cov=np.eye(2), names=("a", "b"), nobs=5, noise_cov=np.zeros((2, 2)))
    with pytest.raises(NotAvailableError, match="noise part"):
        Estimate(params=np.zeros(2), cov=np.eye(2), names=("a", "b"), nobs=5).noise_bse


def test_scores_are_copied_only_where_others_may_write():
    """They are as large as the data: what is read-only and owns its numbers is kept as it is."""
    given = np.random.default_rng(0).standard_normal((20, 2))
    made = {"params": np.zeros(2), "cov": np.eye(2), "names": ("a", "b"), "nobs": 20, "bread": np.eye(2)}
    found = Estimate(scores=given, **made)
    assert not np.shares_memory(found.scores, given)
    own = given.copy()
    view = own[:]
    own.flags.writeable = False
    assert Estimate(scores=own, **made).scores is own
    assert not np.shares_memory(Estimate(scores=view, **made).scores, own)
    assert replace(found, names=("c", "d")).scores is found.scores
    with pytest.raises(ValueError, match="read-only"):
        found.scores[0, 0] = 1.0
    with pytest.raises(ArgumentError, match="scores= must have shape"):
        Estimate(scores=given[:, :1], **made)
