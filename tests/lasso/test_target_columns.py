"""Precision columns of named targets: their noise, neighbours by a public rule, shares, and marks."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import TrustedServer
from privinf.lasso.diagnostics import NodewiseDiagnostics
from privinf.lasso.fit import SparseFit
from privinf.lasso.nodewise import (
    MAX_NEIGHBORS,
    MIN_NEIGHBORS,
    column_regression,
    neighbor_count,
    noise_of_column,
    shrunk,
    target_columns,
)
from privinf.lasso.plan import DebiasingPrices
from privinf.lasso.sums import SparseSums
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import SiteBlock
from studies.simulation import binomial_limits

P = 8
OTHERS = [1, 2, 3, 4, 5]


def sample(n, effects=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P))
    X[:, 1:] = 0.6 * X[:, :-1] + 0.8 * X[:, 1:]
    y = X @ (np.zeros(P) if effects is None else effects) + rng.standard_normal(n)
    return y, X


def sums_of(y, X, rng):
    rows = pi.DebiasedLasso(y, X, x_bound=6.0, y_bounds=(-8, 8), x_scale=1.0)._rows
    return SparseSums(server=TrustedServer(rows.federation, rng=rng), units=rows.units(), n=len(y))


NOTHING = SparseFit(
    support=[],
    beta=np.empty(0),
    selected=[],
    selected_beta=np.empty(0),
    scale=1.0,
    step_sd=0.0,
    efficiency=1.0,
    selected_errors=np.empty(0),
)


@pytest.mark.audit
@pytest.mark.parametrize(("n", "rho"), [(4_000, 0.5), (16_000, 0.02)])
def test_what_the_noise_of_a_regression_does_is_as_stated(n, rho):
    """w'Gd has the variance t^2 d'Gd, and a 68% point of clipped steps is what sums were asked for."""
    y, X = sample(n)
    gram, d, moved, stated = X.T @ X / n, np.array([0.3, -0.2, 0.1, 0.4, 0.2]), [], []
    for seed in range(40):
        found = column_regression(sums_of(y, X, seed), NOTHING, 0, OTHERS, rho)
        form = np.zeros(P)
        form[0], form[OTHERS] = 1.0, -found.coefficients
        moved.append(form @ gram[:, OTHERS] @ d)
        stated.append(found.step_sd**2 * (d @ gram[np.ix_(OTHERS, OTHERS)] @ d))
        assert not found.not_converged
        assert math.sqrt(len(OTHERS)) * found.step_sd == pytest.approx(
            len(OTHERS) * noise_of_column(n, rho) * found.scale, rel=0.5
        )
    assert 0.6 < np.mean(np.square(moved)) / np.mean(stated) < 1.6


def test_without_noise_it_is_least_squares():
    y, X = sample(3_000)
    found = column_regression(sums_of(y, X, 0), NOTHING, 0, OTHERS, math.inf)
    g = np.linalg.lstsq(X[:, OTHERS], X[:, 0], rcond=None)[0]
    assert np.allclose(found.coefficients, g, atol=1e-8)
    assert found.step_sd == 0.0
    assert found.scale == pytest.approx(math.sqrt(np.mean((X[:, 0] - X[:, OTHERS] @ g) ** 2)), rel=1e-8)


@pytest.mark.audit
@pytest.mark.parametrize("n", [4_000, 16_000])
def test_effects_of_neighbours_are_seen_without_bias(n):
    effects = np.zeros(P)
    effects[[1, 3, 4]] = 0.1, -0.1, 0.08
    y, X = sample(n, effects)
    true = effects[OTHERS] @ (X.T @ X / n)[np.ix_(OTHERS, OTHERS)] @ effects[OTHERS]
    rho = 0.5 * (4_000 / n) ** 2
    found = [column_regression(sums_of(y, X, seed), NOTHING, 0, OTHERS, rho) for seed in range(30)]
    seen = np.array([one.effects for one in found])
    room = 4.0 * seen.std() / math.sqrt(len(seen)) + 2.0 * len(OTHERS) / n
    assert abs(seen.mean() - true) < room + 0.1 * true


def test_coefficients_that_are_noise_are_shrunk_and_their_error_is_known():
    rng = np.random.default_rng(0)
    for size in (0.1, 0.4, 2.0):
        g, root, errors, stated = np.full(6, size / math.sqrt(6.0)), np.eye(6), [], []
        for _ in range(2_000):
            kept, sd = shrunk(g + 0.2 * rng.standard_normal(6), root, 0.2)
            errors.append(np.mean((kept - g) ** 2))
            stated.append(sd**2)
        assert np.mean(errors) < 0.04 * 1.1
        assert 0.6 < np.mean(stated) / np.mean(errors) < 2.5
    assert shrunk(g, root, 0.0)[1] == 0.0


def test_the_number_of_neighbours_follows_budget_rows_and_targets():
    budget = DebiasingPrices(neighbors=0.0015, gram=0.0033, sizes=0.0, slopes=0.0, score=0.0)
    one, five = (neighbor_count(budget, 40_000, 300, k, 10) for k in (1, 5))
    assert MIN_NEIGHBORS < five < one <= MAX_NEIGHBORS
    assert neighbor_count(budget, 4_000, 300, 5, 10) == MIN_NEIGHBORS
    assert neighbor_count(replace(budget, gram=math.inf), 100, 300, 5, 10) == MAX_NEIGHBORS


def confounded(count, seed, n=20_000, p=60):
    """The first column is a mean of some others, with an effect of .03 each, and of noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 0] = 0.7 * X[:, 5 : 5 + count].sum(axis=1) / math.sqrt(count) + math.sqrt(0.51) * X[:, 0]
    b = np.zeros(p)
    b[0], b[1], b[2], b[5 : 5 + count] = 0.2, 0.5, -0.5, 0.03
    return X @ b + rng.standard_normal(n), X


def model_of(y, X):
    return pi.DebiasedLasso(y, X, x_bound=6.0, y_bounds=(-8, 8), x_scale=1.0)


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore:.*more columns matter:privinf.errors.WeakIdentificationWarning")
def test_double_selection_covers_weak_confounders():
    """Some of the effects are strong enough to be seen, and said: the neighbours are not what is doubted."""
    hits, errors = [], []
    for seed in range(10):
        fit = model_of(*confounded(10, seed)).fit(
            epsilon=4.0, delta=0.5 / 20_000, sparsity=3, targets=[0], rng=seed
        )
        error = float(fit.params.iloc[0]) - 0.2
        hits.append(abs(error) < 1.96 * float(fit.bse.iloc[0]))
        errors.append(error / float(fit.bse.iloc[0]))
        fit.conf_int()
    assert np.mean(hits) >= binomial_limits(0.95, len(hits))[0]
    assert abs(np.mean(errors)) < 1.3


@pytest.mark.audit
def test_more_confounders_than_can_be_picked_are_said():
    y, X = confounded(40, 0)
    fit = model_of(y, X).fit(
        epsilon=8.0, delta=0.5 / len(y), sparsity=3, targets=[0, 50], precision_sparsity=20, rng=0
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit.conf_int()
    texts = " ".join(str(one.message) for one in said)
    assert "for x1, because the nodewise regression probably needs more columns" in texts
    assert "larger precision_sparsity=" in " ".join(str(fit.summary()).split())
    assert fit.explained_shares().last_quarter["x1"] > 0.02 > fit.explained_shares().last_quarter["x51"]
    again = pickle.loads(pickle.dumps(fit))
    assert again.explained_shares().equals(fit.explained_shares())


def test_a_regression_that_did_not_get_there_is_said():
    """Eigenvalues of .02 below the noise of both Gram matrices."""
    rng = np.random.default_rng(0)
    X = math.sqrt(0.98) * rng.standard_normal((3_000, 1)) + math.sqrt(0.02) * rng.standard_normal((3_000, P))
    lost = [
        column_regression(sums_of(X[:, 0], X, s), NOTHING, 0, OTHERS, 0.001).not_converged for s in range(8)
    ]
    assert np.mean(lost) >= 0.75
    nothing, flags = np.zeros(2), np.array([False, True])
    marks = NodewiseDiagnostics(
        selected=(5, 5),
        explained=nothing,
        explained_sd=nothing,
        last=nothing,
        exhausted=flags,
        not_converged=~flags,
        heavy=flags,
    )
    told = marks.warning(["a", "b"])
    assert told is not None
    assert "for b, because the nodewise regression probably needs more columns" in told
    assert "for a, because the nodewise regression did not converge" in told
    assert "for b, because the long tail of this column" in told
    none = ~flags & flags
    assert replace(marks, exhausted=none, not_converged=none, heavy=none).warning(["a", "b"]) is None


def rare(n, seed, *, beside):
    """A rare level that goes along with a product of its neighbours, or nothing rare."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P))
    level = (rng.random(n) < 0.03).astype(float)
    X[:, 2] = X[:, 1] + (0.0 if not beside else 6.0 * level)
    X[:, 0] = 0.6 * X[:, 1] + (4.0 * level * beside) + 0.6 * rng.standard_normal(n)
    return X / X.std(axis=0)


def test_a_tail_that_clips_hide_is_counted():
    tails = {
        beside: [
            column_regression(sums_of(X[:, 0], X, s), NOTHING, 0, [1, 2, 3], 0.05).tail
            for s in range(4)
            for X in [rare(20_000, s, beside=beside)]
        ]
        for beside in (False, True)
    }
    assert max(tails[False]) < 0.01
    assert min(tails[True]) > 0.02


@pytest.mark.parametrize("beside", [False, True])
def test_a_hidden_tail_is_marked_and_widens_where_effects_of_neighbours_are_missed(beside):
    """The fit knows of nothing; the neighbour with the rare level has an effect."""
    X = rare(20_000, 0, beside=beside)
    y = X[:, 2] * 0.4 + np.random.default_rng(1).standard_normal(len(X))
    budget = DebiasingPrices(neighbors=0.05, gram=0.2, sizes=0.02, slopes=0.05, score=0.1)
    found = target_columns(sums_of(y, X, 2), NOTHING, [0], budget, neighbors=3)
    assert found.marks.heavy[0] == beside
    assert (found.noise[0] > 0.5 / len(X)) == beside


@pytest.mark.audit
def test_shares_are_those_of_least_squares_and_their_intervals_hold():
    y, X = sample(20_000)
    gram = np.cov(X.T, bias=True)  # no constant: columns are centred at their means
    true = 1.0 - 1.0 / (np.diag(np.linalg.inv(gram)) * np.diag(gram))
    exact = model_of(y, X).fit(epsilon=np.inf, sparsity=2, targets=[0, 3]).explained_shares()
    assert np.allclose(exact.explained, true[[0, 3]], atol=1e-6)
    assert np.allclose(exact.upper - exact.lower, 0.0)
    held = []
    for seed in range(10):
        found = model_of(y, X).fit(epsilon=3.0, delta=0.5 / len(y), sparsity=2, targets=[0, 3], rng=seed)
        shares = found.explained_shares()
        # Columns with noise in them explain less, by about the share of it.
        held += list((shares.lower - 0.02 <= true[[0, 3]]) & (true[[0, 3]] <= shares.upper + 0.03))
        assert "(R2 of x)" in str(found.summary())
    assert np.mean(held) >= 0.85


def test_shares_are_not_there_for_all_columns():
    y, X = sample(20_000)
    fit = model_of(y, X).fit(epsilon=8.0, delta=0.5 / len(y), sparsity=2, targets="all", rng=0)
    with pytest.raises(NotAvailableError, match="no nodewise regressions"):
        fit.explained_shares()


def test_a_column_in_the_place_of_the_response():
    y, X = sample(50)
    low, high = np.full(P, -6.0), np.full(P, 6.0)
    block = SiteBlock(features=X, response=y, low=low, high=high, response_low=-8.0, response_high=8.0)
    other = SiteBlock(features=X, response=X[:, 2], low=low, high=high, response_low=-8.0, response_high=8.0)
    args = {
        "columns": np.array([0, 1]),
        "clip": 1.0,
        "residual_clip": 0.7,
        "support": np.array([4]),
        "beta": np.array([0.3]),
    }
    op = SITE_OPS["clipped_score"]
    assert np.array_equal(op.total(block, args | {"response": 2}), op.total(other, args))
    for wrong in (P, -1, True, 1.0):
        with pytest.raises(ArgumentError, match="response"):
            op.record_sensitivity(args | {"response": wrong}, P)


def test_a_bound_that_single_precision_rounds_is_no_cut():
    ends = {"low": np.full(3, -0.8), "high": np.array([0.8, 0.92, np.inf])}
    X = np.array([[0.8, 0.92, 9.0], [-0.8, 0.93, -1.0]], dtype=np.float32).astype(float)
    assert X[0, 0] > 0.8
    block = SiteBlock(features=X, response=np.zeros(2), **ends, response_low=0.0, response_high=1.0)
    counted = SITE_OPS["columns_outside"].function(block, {"columns": np.arange(3)})
    assert counted.tolist() == [0.0, 1.0, 1.0]
