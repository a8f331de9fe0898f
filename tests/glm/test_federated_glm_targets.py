"""Named targets: the block's statistics, coverage beside many coefficients, nuisance columns, refusals."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.spatial.distance import cdist
from scipy.special import expit

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.isometric import from_isometric
from studies.simulation import binomial_limits

FAMILIES = {
    "binomial": {"family": "binomial"},
    "gaussian": {"family": "gaussian", "residual_clip": 0.8},
    "poisson": {"family": "poisson", "residual_clip": 2.0, "mean_cap": 3.0},
}
THETA, CHOSEN, R = np.array([0.8, -0.4, 0.3, 0.5]), np.array([2, 0]), 1.2


def rows_of(n, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, n).astype(float), scale * rng.uniform(-1, 1, (n, 4))


def block_of(y, X):
    return SiteBlock(
        features=X,
        response=y,
        low=np.full(4, -2.0),
        high=np.full(4, 2.0),
        response_low=0.0,
        response_high=5.0,
    )


@pytest.mark.audit
@pytest.mark.parametrize("bits", [0, 40], ids=["floats", "exact"])
@pytest.mark.parametrize("op", ["glm.score", "glm.hessian", "glm.meat"])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_record_moves_a_block_further_than_stated(family, op, bits):
    args = FAMILIES[family] | {"theta": 9.0 * THETA, "radius": R, "block": CHOSEN, "bits": bits}
    record_sensitivity = SITE_OPS[op].record_sensitivity(args, 4)
    y, X = rows_of(400, scale=2.0)
    # far outside the block the predictor is free: all residuals and curvatures go with all directions
    X[:, [1, 3]] = np.random.default_rng(1).choice([-2.0, 0.0, 2.0], (400, 2))
    y = 5.0 * y
    values = np.array([SITE_OPS[op].function(block_of(y[i : i + 1], X[i : i + 1]), args) for i in range(400)])
    assert values.shape[1:] == record_sensitivity.shape
    assert cdist(values, values).max() <= record_sensitivity.l2 * (1 + 1e-12)
    assert np.linalg.norm(values, axis=1).max() <= record_sensitivity.norm * (1 + 1e-12)
    if op == "glm.score":
        assert cdist(values, values).max() >= 0.9 * record_sensitivity.l2


def test_a_block_is_part_of_the_whole_where_no_row_is_too_long():
    y, X = rows_of(300)
    args = {"family": "binomial", "theta": THETA, "radius": 5.0}
    for op in ("glm.score", "glm.hessian", "glm.meat"):
        whole, part = (SITE_OPS[op].total(block_of(y, X), args | more) for more in ({}, {"block": CHOSEN}))
        if op == "glm.score":
            np.testing.assert_allclose(part, whole[CHOSEN])
        else:
            np.testing.assert_allclose(
                from_isometric(part), from_isometric(whole)[np.ix_(CHOSEN, CHOSEN)], atol=1e-12
            )
    for wrong in ([], [0, 0], [4]):
        with pytest.raises(ArgumentError):
            SITE_OPS["glm.score"].record_sensitivity(args | {"block": wrong}, 4)


# ---- fits

P, N = 60, 20_000
BETA = np.zeros(P)
BETA[:6] = [0.8, -0.6, 0.5, -0.4, 0.3, 0.2]
NAMES = [f"x{j + 1}" for j in range(P)]


def model_of(seed, n=N, mixed=0.0, **options):
    """Return a logistic model of independent columns; x1 follows x2 by the share `mixed`."""
    rng = np.random.default_rng([3, seed])
    X = rng.uniform(-1.0, 1.0, (n, P))
    X[:, 0] = mixed * X[:, 1] + (1.0 - mixed) * X[:, 0]
    y = (rng.uniform(size=n) < expit(X @ BETA)).astype(float)
    given = {"radius": 1.1 * np.sqrt(P / 3.0)} | options
    return pi.FederatedGLM.from_arrays(
        [(y[i::2], X[i::2]) for i in range(2)], bounds=[(-1, 1)] * P, family="binomial", **given
    )


@pytest.mark.audit
def test_intervals_of_targets_cover_beside_many_coefficients():
    targets, inside = ["x1", "x3", "x6", "x30"], []
    for seed in range(6):
        fit = model_of(seed).fit(epsilon=2.0, delta=1e-6, targets=targets, rng=seed)
        truth = BETA[[NAMES.index(name) for name in targets]]
        inside.append(np.abs(fit.params - truth) < 1.959964 * fit.bse)
    low, high = binomial_limits(0.95, np.size(inside))
    assert low <= np.mean(inside) <= high
    assert list(fit.params.index) == list(fit.names) == targets
    assert fit.privacy.epsilon(1e-6) == pytest.approx(2.0, rel=1e-5)
    final = [line for line in fit.privacy.entries if "final" in line.label or line.label == "meat"]
    assert len(final) == 3
    # four columns in [-1, 1]: their score moves by 2 R, R = 2
    assert final[0].sensitivity.value == pytest.approx(4.0, rel=1e-5)
    assert list(fit.trace.columns) == NAMES
    assert fit.communication["floats_up"].tolist()[-3:] == [4, 10, 10]


def test_columns_that_go_along_with_a_target_must_be_named():
    """A fit that stops early has x2's coefficient wrong: x1 takes its part, unless x2 is in the block."""
    early = pi.DPSGD(epochs=1, batches=1, step=1e-3, final_share=0.9)
    alone, together = (
        model_of(0, mixed=0.7).fit(
            epsilon=4.0, delta=1e-6, targets=["x1"], nuisance=nuisance, optimizer=early, rng=0
        )
        for nuisance in ([], ["x2"])
    )
    assert abs(alone.params["x1"] - 0.8) > 5.0 * alone.bse["x1"]
    # one step from so far away has no interval of its own
    assert abs(together.params["x1"] - 0.8) < 0.2
    assert list(together.names) == ["x1"]
    with pytest.raises(NotAvailableError, match="did not converge"):
        together.conf_int()


def test_without_noise_targets_are_those_of_maximum_likelihood():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"const": 1.0, "a": rng.uniform(-1, 3, 1500), "b": rng.uniform(-1, 1, 1500)})
    y = (rng.uniform(size=1500) < expit(X.to_numpy() @ [0.2, 0.5, -0.5])).astype(float)
    model = pi.FederatedGLM.from_arrays([(y, X)], bounds={"a": (-1, 3), "b": (-1, 1)}, family="binomial")
    fit = model.fit(epsilon=np.inf, targets=["b"], nuisance=["a"])
    pooled = sm.GLM(y, X, family=sm.families.Binomial()).fit(cov_type="HC0", tol=1e-14)
    assert fit.params["b"] == pytest.approx(pooled.params["b"], abs=1e-8)
    assert fit.bse["b"] == pytest.approx(pooled.bse["b"], rel=1e-6)
    alone = model.fit(epsilon=np.inf, targets=["a"])
    assert alone.params["a"] == pytest.approx(pooled.params["a"], abs=1e-8)
    assert alone.bse["a"] == pytest.approx(pooled.bse["a"], rel=0.03)


@pytest.mark.audit
def test_results_of_targets(tmp_path):
    model = model_of(0, trust="secure-sum")
    fit = model.fit(epsilon=2.0, delta=1e-6, targets=["x2", "x1"], rng=0)
    assert "uncorrelated with all other columns" in fit.summary().as_text().replace("\n", " ")
    with pytest.raises(NotAvailableError, match="all coefficients"):
        fit.predict(np.zeros((1, P)))
    assert fit.t_test("x1 = 0.8").pvalue > 1e-4
    fit.save(tmp_path / "targets.privinf")
    again = pi.load_results(tmp_path / "targets.privinf")
    pd.testing.assert_frame_equal(again.trace, fit.trace)
    np.testing.assert_array_equal(again.cov_params(), fit.cov_params())


@pytest.mark.audit
def test_targets_that_noise_hides_have_coefficients_alone():
    fit = model_of(0, mixed=1.0).fit(epsilon=2.0, delta=1e-6, targets=["x1"], nuisance=["x2"], rng=1)
    assert list(fit.names) == ["x1"]
    assert np.isfinite(fit.params["x1"])
    with pytest.raises(NotAvailableError, match="noise hides the Hessian"):
        fit.conf_int()


def test_bad_targets_spend_nothing():
    model = model_of(0)
    for wrong in (
        {"targets": []},
        {"targets": "x1"},
        {"targets": ["z"]},
        {"targets": ["x1", "x1"]},
        {"targets": ["x1"], "nuisance": ["x1"]},
        {"nuisance": ["x1"]},
        {"targets": ["x1"], "nuisance": "x2"},
    ):
        with pytest.raises(ArgumentError):
            model.fit(epsilon=2.0, delta=1e-6, rng=0, **wrong)
    for wrong, reason in (
        ({"epsilon": 0.2, "targets": ["x1"]}, "noise of the other coefficients"),
        ({"epsilon": 2.0, "targets": NAMES[:50]}, "pass fewer columns"),
        ({"epsilon": 2.0, "targets": ["x1"], "optimizer": pi.Newton()}, "hide the Hessian"),
    ):
        with pytest.raises(NotAvailableError, match=reason):
            model.fit(delta=1e-6, rng=0, **wrong)
    with pytest.raises(NotAvailableError, match="noise of the other coefficients"):
        model_of(0, radius=None).fit(epsilon=1.5, delta=1e-6, targets=["x1"], rng=0)
    rng = np.random.default_rng(0)
    linear = pi.FederatedGLM.from_arrays(
        [(rng.normal(size=500), rng.uniform(-1, 1, (500, 40)))],
        bounds=[(-1, 1)] * 40,
        y_bounds=(-3, 3),
        family="gaussian",
    )
    with pytest.raises(NotAvailableError, match="available only for family='binomial'"):
        linear.fit(epsilon=1.0, delta=1e-6, targets=["x1"], rng=0)
    assert len(model.ledger) == len(linear.ledger) == 0
