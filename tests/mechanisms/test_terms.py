"""Terms of statistics on their grid: tables of means, sums of 2^40 rows, merged in any order."""

import hashlib
from itertools import product

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import expit

from privinf.errors import NotAvailableError, SensitivityError
from privinf.federation import Query, Site, SitePolicy
from privinf.mechanisms.catalogue import SHIPPED, SITE_OPS
from privinf.mechanisms.statistics import families
from privinf.mechanisms.statistics.block import SiteBlock, unit_of
from privinf.mechanisms.statistics.families import exponential, logistic
from privinf.mechanisms.statistics.terms import PlacedRows, add_together
from privinf.schema import Design

P = 3
MODEL = {
    "theta": np.array([0.8, -0.4, 0.3]),
    "transform": np.eye(P),
    "score_bound": 0.7,
    "curvature_bound": 0.2,
}
SECOND = {
    "response_factor": 0.5,
    "theta": np.array([0.1, 0.2, -0.3]),
    "whitening": np.eye(P) + 0.1,
    "unit": 0.7,
    "low": 0.5,
    "high": 1.5,
    "weight": 1.2,
    "clip": 1.6,
    "thresholds": np.array([0.2, 0.4, 0.9]),
    "quantity": "score",
    "response_weight": 0.8,
    "residual_clip": 1.1,
}
CASES = {
    "curved.step": MODEL | {"family": "binomial", "share": 0.5},
    "curved.score": MODEL | {"family": "poisson", "high": 0.7},
    "curved.meat": MODEL | {"family": "binomial", "high": 0.7},
    "curved.secant": MODEL | {"family": "poisson", "step": np.array([0.3, 0.0, -0.2]), "clip": 0.2},
    "curved.counts": MODEL | {"family": "binomial", "of": "score", "thresholds": np.array([0.1, 0.4])},
    "glm.score": {"family": "binomial", "theta": MODEL["theta"], "radius": 1.5},
    **{name: SECOND for name in SITE_OPS if name.startswith("whitened.") and name != "whitened.columns"},
}
BETA = {"support": np.array([0, 2]), "beta": np.array([0.5, -0.25]), "intercept": 0.1}
SCORE = BETA | {"columns": np.array([0, 1]), "transform": np.array([[1.0, 0.2], [-0.1, 1.0]])}
TARGETS = {"targets": np.array([1, 0]), "weights": np.array([1.0, 0.8])}
SHARES = {"slope_clip": 1.5, "slope_weight": 0.9, "average_clip": 1.2, "average_weight": 0.7}
CASES |= {
    "clipped_score": SCORE | {"clip": 1.5, "residual_clip": 0.8},
    "score_variances": SCORE | {"clip": 1.5, "residual_clip": 0.8},
    "slopes": SCORE | {"clip": 1.5, "residual_clip": 0.8, "targets": np.array([2, 0]), "column_clip": 1.8},
    "union_gram": SCORE | {"bound": 1.0, "norm": 1.3},
    "column_products": {"targets": np.array([2, 0]), "bound": 0.9},
    "column_product_vector": {"targets": np.array([2, 0]), "transform": np.eye(2), "bound": 1.0, "norm": 0.5},
    "paper_variances": SCORE | {"clip": 1.2, "residual_clip": 0.8},
    "quadratic_forms": {**SCORE, "clip": 1.2},
    "form_sums": {**SCORE, "clip": 1.2},
    "target_scores": SCORE | TARGETS | SHARES | {"bound": 0.7},
    "clipped_products": BETA | {"bound": 0.7, "residual_clip": 0.5},
    "logistic_products": BETA | {"bound": 0.7},
    "product_vector": BETA | {"bound": 0.7, "norm": 0.9},
    "columns_outside": {"columns": np.array([0, 2])},
    "survival.cells": {"edges": np.array([0.5, 1.0, 2.0]), "status": 0, "groups": [1, 2], "counted": True},
    **{
        name: {
            "columns": np.array([0, 1]),
            "status": 2,
            "edges": np.array([0.5, 1.0, 2.0]),
            "increments": np.array([0.2, 0.3, 0.1]),
            "blocks": np.array([0.0, 1.0, 1.0]),
            "theta": np.array([0.4, -0.2]),
            "transform": np.array([[1.0, 0.2], [-0.1, 1.0]]),
            "offsets": np.array([[0.4, 0.0], [0.1, 0.3]]),
            "stop": 0.8,
            "score_bound": 1.5,
            "high": 0.9,
            "of": "curvature",
            "thresholds": np.array([0.2, 0.4, 0.9]),
            "step": np.array([0.3, 0.0]),
            "clip": 0.2,
        }
        for name in SITE_OPS
        if name.startswith("hazards.")
    },
    "complete_rows": {},
    "residual_histogram": BETA | {"edges": np.geomspace(0.1, 4.0, 6)},
    "squared_residuals": BETA | {"residual_clip": 0.8},
    "residual_sum": BETA | {"residual_clip": 0.8},
    "column_sums": {"columns": np.array([0, 2]), "bound": 1.5},
    "column_squares": {"columns": np.array([0, 2]), "bound": 1.5},
}
EVERY = pytest.mark.parametrize("name", CASES)


def block(rows, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(0.0, 0.7, (rows, P)), rng.integers(0, 3, rows).astype(float)
    return SiteBlock(
        features=X,
        response=y,
        low=np.full(P, -2.0),
        high=np.full(P, 2.0),
        response_low=0.0,
        response_high=3.0,
    )


def sums(name, rows):
    op = SITE_OPS[name]
    args = {key: value for key, value in CASES[name].items() if key in op.arguments}
    found = op.sums(rows, args)
    found.update(rows)
    return found


def test_tables_of_means_are_as_far_off_as_said_and_the_same_everywhere():
    eta = np.concatenate([np.linspace(-40.0, 40.0, 400_001), [-1e300, 1e300]])
    tail = logistic(eta, exact=True)
    assert np.abs(tail - expit(-np.abs(eta))).max() <= 2.0**-26.3
    assert (np.diff(tail[:-2][eta[:-2] >= 0.0]) <= 0.0).all()
    z = np.linspace(-63.9, 60.0, 400_001)
    assert np.abs(exponential(z, exact=True) / np.exp(z) - 1.0).max() <= 1.21e-7
    assert exponential(np.array([1e300, -1e300]), exact=True) == pytest.approx([np.exp(60.0), np.exp(-64.0)])
    arrays = (families._logistic_table()[0], *families._exponential_table())
    text = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    assert text.startswith("c9825b5e73a8be6d")


@EVERY
def test_sums_are_merged_in_any_order_to_the_same_integers(name):
    whole, parts = block(3000), list(block(3000).parts(700))
    one = sums(name, parts[-1])
    for part in parts[:-1]:
        one.merge(sums(name, part))
    assert one.rows == 3000
    np.testing.assert_array_equal(one.steps(2.0**-30), sums(name, whole).steps(2.0**-30))


ALIGNED = [name for name in CASES if SITE_OPS[name].aligned]


def records():
    """Return rows of corners, of the middle, of small numbers, and far outside the bounds."""
    rng = np.random.default_rng(4)
    X = np.concatenate(
        [
            np.array(list(product([-2.0, -0.7, 0.3, 2.0], repeat=P))),
            rng.normal(0.0, 1.0, (60, P)),
            1e-3 * rng.normal(0.0, 1.0, (20, P)),
            1e6 * rng.normal(0.0, 1.0, (20, P)),
        ]
    )
    return np.concatenate([X, X]), np.repeat([0.0, 3.0], len(X))


@pytest.mark.parametrize("digits", [10, 11, 13, 20, 31, 40, 48])
@pytest.mark.parametrize("name", ALIGNED)
def test_integers_of_two_records_are_no_farther_apart_than_stated(name, digits):
    """A search over all swaps of many records; a sum is whole steps of the digits, so nothing is rounded."""
    op, (X, y) = SITE_OPS[name], records()
    args = {key: value for key, value in CASES[name].items() if key in op.arguments} | {"bits": digits}
    stated = op.record_sensitivity(args, P)
    rows = SiteBlock(
        features=X,
        response=y,
        low=np.full(P, -2.0),
        high=np.full(P, 2.0),
        response_low=0.0,
        response_high=3.0,
    )
    values = np.array([op.total(one, args, stated).ravel() for one in rows.parts(1)])
    steps = values / unit_of(stated.bound, digits)
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert cdist(values, values).max() <= stated.l2 * (1.0 + 1e-14)
    assert cdist(values, values, "chebyshev").max() <= stated.linf * (1.0 + 1e-14)
    assert np.abs(values).max() <= stated.bound * (1.0 + 1e-14)
    if stated.norm is not None:
        assert np.linalg.norm(values, axis=1).max() <= stated.norm * (1.0 + 1e-14)


def test_older_statistics_are_exact_sums_but_for_those_that_go_by_places():
    assert {name for name in SHIPPED if SITE_OPS[name].sums is None} == {"multiplier_scores"}
    assert {name for name in SHIPPED if SITE_OPS[name].version == 1} == {"multiplier_scores"}
    assert set(ALIGNED) == {name for name in SHIPPED if SITE_OPS[name].aligned}


@pytest.mark.parametrize("name", ALIGNED)
def test_a_query_of_the_version_before_is_refused_by_name_and_charges_nothing(name):
    design = Design.from_arrays(["a", "b", "c"], bounds=[(-2.0, 2.0)] * 3, y_bounds=(0.0, 3.0))
    site = Site((np.ones(9), np.zeros((9, 3))), design, policy=SitePolicy(trusted_server=True))
    query = Query(name, version=1, design=design.digest, session="s", sequence=1)
    with pytest.raises(NotAvailableError, match=f"version 2 of the statistic '{name}'"):
        site.answer(query, "north")
    assert len(site.ledger) == 0


@EVERY
def test_sums_take_as_many_rows_as_said(name):
    rows = block(1024)
    many, once = sums(name, rows), sums(name, rows).floats()
    for _ in range(30):
        many.merge(many)
    assert many.rows == 2**40
    np.testing.assert_array_equal(many.floats(), 2.0**30 * once)
    assert np.abs(many.steps(2.0**-18) / 2.0**48 - once).max() <= 2.0**-48 * max(1.0, np.abs(once).max())
    with pytest.raises(SensitivityError, match=r"2\^40 rows"):
        many.update(rows)


def test_sums_of_one_pass_share_what_their_terms_do_and_nothing_else(monkeypatch):
    """Integers are those of each alone; forms are made once for equal arguments, anew for others."""
    made, forms = [], PlacedRows.forms
    asked = [("whitened.score", {}), ("whitened.meat", {}), ("whitened.hessian", {}), ("whitened.counts", {})]
    asked += [("whitened.meat", {name: -SECOND[name]}) for name in ("theta", "whitening")]
    asked += [("whitened.meat", {"residual_clip": 0.3}), ("whitened.score", {"high": 0.6})]
    questions = [
        (
            SITE_OPS[name],
            {key: value for key, value in {**SECOND, **other}.items() if key in SITE_OPS[name].arguments},
        )
        for name, other in asked
    ]
    rows = block(500)
    together, alone = ([op.sums(rows, args) for op, args in questions] for _ in range(2))
    monkeypatch.setattr(PlacedRows, "forms", lambda rows, a: made.append(len(a)) or forms(rows, a))
    add_together(together, rows)
    assert len(made) == 4
    for one, other in zip(together, alone, strict=True):
        other.update(rows)
        assert (one.steps(2.0**-30) == other.steps(2.0**-30)).all()
    found = [tuple(one.steps(2.0**-30).tolist()) for one in together]
    assert len(set(found)) == len(found) - 1  # directions turned round have the same meat
