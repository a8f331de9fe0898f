"""Observation weights: public, declared, bounded; weighted least squares without noise."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import privinf as pi


def data(n=600):
    rng = np.random.default_rng(0)
    w = rng.uniform(0.5, 2.0, n)
    x = rng.uniform(-1, 1, n)
    return pd.DataFrame({"w": w, "x": x, "y": np.clip(0.3 + 0.5 * x + 0.3 * rng.standard_normal(n), -2, 2)})


SCHEMA = pi.Schema({"x": (-1, 1), "y": (-2, 2), "w": pi.Numeric(0.25, 2.5, public=True)})
MODELS = {
    "modulated": (pi.ModulatedOLS, {}, {}, "HC0"),
    "pooled": (
        pi.ModulatedOLS,
        {"amplitude": 0.0},
        {"method": "iterative", "rounds": 2, "estimator": "pooled"},
        "HC0",
    ),
    "local": (pi.MomentOLS, {"trust": "local"}, {}, "HC0"),
    "central": (pi.MomentOLS, {"trust": "central"}, {}, "nonrobust"),
    "central-HC0": (pi.MomentOLS, {"trust": "central"}, {"cov_type": "HC0"}, "HC0"),
}


@pytest.mark.parametrize("name", MODELS)
def test_noise_free_limit_is_statsmodels_wls(name):
    model, mechanism, options, cov_type = MODELS[name]
    frame = data()
    ours = model.from_formula("y ~ x", frame, schema=SCHEMA, weights="w", **mechanism).fit(
        epsilon=math.inf, **options
    )
    wls = sm.WLS.from_formula("y ~ x", frame, weights=frame.w)
    theirs = wls.fit(cov_type=cov_type)
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-8)
    np.testing.assert_allclose(ours.bse, theirs.bse, rtol=1e-8)
    np.testing.assert_allclose(ours.rsquared, theirs.rsquared, rtol=1e-8)


def test_a_total_pays_for_the_largest_weight():
    frame = data()
    scales = [
        pi.MomentOLS.from_formula("y ~ x", frame, schema=SCHEMA, **options)
        .release(mu=1.0, rng=0)
        .noise_model["scale"]
        for options in ({}, {"weights": "w"})
    ]
    assert scales[1] / scales[0] == pytest.approx(2.5, rel=1e-9)
    local = [
        pi.MomentOLS.from_formula("y ~ x", frame, schema=SCHEMA, trust="local", **options)
        .release(mu=1.0, rng=0)
        .noise_model["scale"]
        for options in ({}, {"weights": "w"})
    ]
    assert local[0] == local[1]  # each record's noise is its own; the analyst applies the public weight


@pytest.mark.parametrize("model", [pi.ModulatedOLS, pi.MomentOLS])
@pytest.mark.parametrize(
    ("declared", "weights"),
    [
        (pi.Numeric(0.25, 2.5), "w"),
        (pi.Numeric(0.0, 2.5, public=True), "w"),
        (pi.Numeric(0.25, 2.5, public=True), "v"),
        (pi.Numeric(0.25, 2.5, public=True), np.ones(600)),
    ],
)
def test_undeclared_weights_are_refused_with_the_reason(model, declared, weights):
    schema = pi.Schema({"x": (-1, 1), "y": (-2, 2), "w": declared})
    with pytest.raises(pi.errors.NotAvailableError, match="must be bounded and public"):
        model.from_formula("y ~ x", data(), schema=schema, weights=weights)
