"""Logistic DebiasedLasso on secure sums: the trusted fit without noise, coverage, selection, budget."""

import math

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import GaussianLoss
from privinf.errors import ArgumentError
from privinf.lasso.radii import residual_moments
from privinf.lasso.selection import detectable_sds, logistic_entry_sd, logistic_radius

N, P = 8_000, 30
TRUTH = {2: 1.0, 9: -0.8, 20: 0.6}
TARGETS = [2, 9, 25]


def draw(seed, n=N):
    rng = np.random.default_rng([seed, 11])
    X = np.clip(rng.standard_normal((n, P)), -4.0, 4.0)
    eta = -0.4 + sum(effect * X[:, j] for j, effect in TRUTH.items())
    return (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float), X


def model(seed=0, n=N, trust="secure-sum", **options):
    y, X = draw(seed, n)
    return pi.DebiasedLasso(
        y, X, x_bound=4.0, family="binomial", sites=np.arange(n) % 3, trust=trust, **options
    )


def fitted(seed=0, trust="secure-sum", **words):
    spending = {"epsilon": 2.0, "delta": 1e-6, "sparsity": 3, "targets": TARGETS, "rng": seed}
    return model(seed, trust=trust).fit(**(spending | words))


def test_without_noise_it_is_the_fit_of_a_trusted_server():
    secure, trusted = (fitted(trust=trust, epsilon=math.inf) for trust in ("secure-sum", "server"))
    assert secure.selected == trusted.selected
    np.testing.assert_allclose(secure.params, trusted.params, rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(secure.bse, trusted.bse, rtol=1e-5)


def test_all_noise_is_gaussian_and_costs_the_level():
    ledger = pi.Ledger()
    fit = model(ledger=ledger).fit(mu=0.6, sparsity=3, targets=TARGETS, rng=1, max_colluding=1)
    losses = [entry.loss for entry in fit.privacy.entries]
    assert all(isinstance(loss, GaussianLoss) for loss in losses)
    assert math.hypot(*(loss.mu for loss in losses)) == pytest.approx(0.6, rel=1e-3)
    labels = {entry.label for entry in fit.privacy.entries}
    assert {"selection", "the most suspicious column"} <= labels
    with pytest.raises(ArgumentError, match="mu= is not available with a trusted server"):
        model(trust="server").fit(mu=0.6, sparsity=3, targets=TARGETS, rng=1)


def test_selections_are_reported_with_their_detection_limits():
    fit = fitted()
    assert set(fit.selected) == {"x3", "x10", "x21"}
    releases = fit.picks_from
    selection = releases.loc[["selection"]]
    assert (selection["entries"] == P).all()
    assert selection["found_from"].to_numpy() == pytest.approx(selection["sd"] * detectable_sds(P))
    assert (selection["sd"] > selection["sampling_sd"]).all()
    assert "secure-sum" in str(fit.summary())


def test_the_clip_of_a_selection_minimizes_the_error_of_an_entry():
    columns, n, rho, sd, largest = 100, 20_000, 0.01, 0.3, 0.9
    radius = logistic_radius(columns, n, rho, sd, largest)
    noise = 2.0 * largest * math.sqrt(columns / (2.0 * rho)) / n
    best = logistic_entry_sd(radius, n, sd, noise * radius)
    for other in (0.15, 0.6, 1.5):
        assert logistic_entry_sd(other, n, sd, noise * other) >= best
    assert logistic_radius(columns, n, math.inf, sd, largest) == math.inf


def test_an_entry_has_the_error_that_is_stated():
    """By simulation: covariances of columns without effect with the residuals, clipped, over the slope."""
    rng = np.random.default_rng(0)
    n, clip = 2_000, 0.5
    means = []
    for _ in range(300):
        x = rng.standard_normal(n)
        e = (rng.random(n) < 0.2) - 0.2
        means.append(float(np.mean(np.clip(x, -clip, clip) * e)) / residual_moments(clip)[0])
    stated = logistic_entry_sd(clip, n, 0.4, 0.0)
    assert np.std(means) == pytest.approx(stated, rel=0.15)


@pytest.mark.audit
def test_intervals_cover():
    hits, found = [], []
    for seed in range(60):
        fit = fitted(seed)
        truth = np.array([TRUTH.get(j, 0.0) for j in TARGETS])
        ends = fit.conf_int().to_numpy()
        hits += ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).tolist()
        found.append({"x3", "x10", "x21"} <= set(fit.selected))
    assert 0.90 <= np.mean(hits) <= 0.99
    assert np.mean(found) > 0.9
