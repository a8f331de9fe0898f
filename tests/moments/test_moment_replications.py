"""Many fits at once are the single fits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import privinf as pi
from privinf.errors import ArgumentError, SchemaError, SensitivityError
from studies.replications import replicate_moments
from studies.simulation import binomial_limits


def tables(replications=6, n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.2, 1.2, (replications, n, d))
    y = X @ np.resize([0.5, -0.3, 0.2], d) + 0.3 * rng.standard_normal((replications, n))
    return y, X


def assert_single_fits(fits, y, X, seeds, options, spending):
    for r, seed in enumerate(seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = pi.MomentOLS(y[r], X[r], **options).fit(rng=seed, **spending)
        np.testing.assert_allclose(fits.params[r], one.params, rtol=0, atol=1e-10)
        assert fits.weak[r] == one.identification.weak
        assert np.isnan(fits.bse[r]).all() == (one.estimate.cov is None)
        if one.estimate.cov is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                np.testing.assert_allclose(fits.bse[r], one.estimate.bse, rtol=1e-10)
                if fits.weak[r]:  # a single fit has score intervals of each coefficient then
                    continue
                np.testing.assert_allclose(fits.conf_int(0.1)[r], one.conf_int(0.1), rtol=1e-9, atol=1e-10)
                np.testing.assert_allclose(fits.pvalues[r], one.pvalues, rtol=1e-7, atol=1e-12)
    assert fits.names == tuple(one.names)
    assert fits.nobs == one.nobs


BOX = {"bounds": [(-1.0, 1.0)] * 3, "y_bounds": (-1.5, 2.0)}


@pytest.mark.parametrize(
    "spending", [{"epsilon": 1.0, "delta": 1e-6}, {"mu": 30.0}, {"rho": 1e-4}, {"epsilon": np.inf}]
)
def test_numbers_are_those_of_single_fits(spending):
    y, X = tables()
    seeds = [3, 1, 4, 15, 9, 2]
    fits = replicate_moments(y, X, seeds=seeds, **BOX, **spending)
    assert_single_fits(fits, y, X, seeds, BOX, spending)


def test_so_much_noise_that_some_fits_have_no_errors():
    y, X = tables(12, n=100)
    fits = replicate_moments(y, X, seeds=5, **BOX, mu=0.3)
    assert_single_fits(fits, y, X, range(5, 17), BOX, {"mu": 0.3})
    missing = np.isnan(fits.bse[:, 0])
    assert missing.any()
    assert not missing.all()
    assert fits.weak.any()
    assert not fits.covers([0.5, -0.3, 0.2])[missing].any()


@pytest.mark.parametrize("constant", [True, False])
def test_public_columns_and_balls(constant):
    y, X = tables(4)
    X[:, :, 0] = 1.0 if constant else np.sin(np.arange(4 * 300)).reshape(4, 300) + 2.0
    options = {"radius": 1.0, "y_bounds": (-2, 2), "public": (0,), "response_weight": 0.6}
    fits = replicate_moments(y, X, seeds=0, **options, mu=2.0)
    assert_single_fits(fits, y, X, range(4), options, {"mu": 2.0})


def test_intervals_cover():
    y, X = tables(400, n=400, d=2)
    fits = replicate_moments(y, np.clip(X, -1, 1), bounds=[(-1, 1)] * 2, y_bounds=(-2, 2), mu=1.0)
    low, high = binomial_limits(0.95, 800, 0.9999)
    y_true = np.einsum("rni,rn->ri", np.clip(X, -1, 1), y)  # the target is the regression on clipped columns
    target = np.linalg.solve(
        np.einsum("rni,rnj->ij", np.clip(X, -1, 1), np.clip(X, -1, 1)), y_true.sum(axis=0)
    )
    assert low <= fits.covers(target).mean() <= high
    assert not low <= fits.covers(target + 0.1).mean() <= high


def test_what_does_not_fit_is_refused():
    y, X = tables(3)
    for bad in ({"y": y[:2]}, {"y": y[0]}, {"X": X[:, :, 0]}, {"seeds": [1, 2]}, {"seeds": -1}, {"rng": 1}):
        with pytest.raises(ArgumentError):
            replicate_moments(**({"y": y, "X": X, "mu": 1.0} | BOX | bad))
    with pytest.raises(ArgumentError, match="differ from table to table"):
        replicate_moments(y, X, bounds="data", y_bounds=(-2, 2), mu=1.0)
    with pytest.raises(SchemaError):
        replicate_moments(y, X, bounds=BOX["bounds"], mu=1.0)
    with pytest.raises(SensitivityError):
        replicate_moments(y, X, y_bounds=(-2, 2), mu=1.0)
    with pytest.raises(ArgumentError, match="truth"):
        replicate_moments(y, X, **BOX, mu=1.0).covers([0.5])
