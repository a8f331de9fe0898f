"""The private bootstrap: the law of its draws, the correction for the noise of the maximum, its price."""

import math
from dataclasses import replace

import numpy as np
import pytest

from privinf.accounting import Ledger, compose
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.inference.simultaneous import gaussian_max_t
from privinf.lasso.bootstrap import PrivateDraws, bootstrap_draws
from privinf.lasso.debiasing import debias
from privinf.lasso.fit import sparse_fit
from privinf.lasso.plan import DebiasingPrices, SparseFitPrices
from privinf.lasso.rows import SparseUnits
from privinf.lasso.sums import SparseSums
from privinf.schema import Design
from studies.simulation import binomial_limits

P, TARGETS = 8, [1, 4, 6]
POLICY = SitePolicy(trusted_server=True, simulation=True)


def sums_of(seed=0, n=3_000, rng=0, ledger=None):
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((n, P))
    X[:, 1:] = 0.5 * X[:, :-1] + math.sqrt(0.75) * X[:, 1:]
    y = 0.6 * X[:, 1] - 0.4 * X[:, 5] + 0.5 * draw.standard_normal(n)
    design = Design.from_arrays([f"x{j}" for j in range(P)], bounds=[(-6.0, 6.0)] * P, y_bounds=(-9, 9))
    sites = {
        "a": Site((y[: n // 3], X[: n // 3]), design, policy=POLICY),
        "b": Site((y[n // 3 :], X[n // 3 :]), design, policy=POLICY),
    }
    server = TrustedServer(InProcessFederation(sites), rng=rng, ledger=ledger)
    return SparseSums(
        server=server,
        units=SparseUnits(
            center=np.zeros(P),
            scale=np.ones(P),
            max_abs=np.full(P, 6.0),
            intercept=0.0,
            y_max_abs=9.0,
            y_limit=9.0,
        ),
        n=n,
    )


def fitted(rho, targets=TARGETS, score=0.125, **options):
    sums = sums_of(**options)
    fit = sparse_fit(
        sums, 2, SparseFitPrices(selection=rho / 4, refit=rho / 4, scales=rho / 20, sizes=rho / 20)
    )
    prices = DebiasingPrices(
        neighbors=rho / 10, gram=rho / 10, sizes=rho / 100, slopes=rho / 20, score=score * rho
    )
    found = debias(sums, fit, targets, prices, neighbors=3)
    at = [found.union.index(j) for j in targets]
    return sums, fit, found, found.columns / np.sqrt(found.columns[at, np.arange(len(at))])


@pytest.mark.audit
@pytest.mark.parametrize("multipliers", ["rademacher", "gaussian"])
@pytest.mark.parametrize("rho", [math.inf, 1.0])
def test_draws_have_the_law_of_the_debiased_maximum(rho, multipliers):
    """Without noise on the draws, of a fit with and without noise: the noise of the fit is in them."""
    sums, fit, found, transform = fitted(rho, score=0.005)
    if math.isfinite(rho):
        # Enough privacy noise to be seen if it were left out.
        assert (found.coordinates.privacy > 0.3 * found.coordinates.variance).all()
    drawn = bootstrap_draws(
        sums, fit, found, transform, 4_000, math.inf, multipliers=multipliers, public_seed=7
    )
    free = gaussian_max_t(np.zeros(3), found.in_units(np.ones(3)).cov, alpha=0.1, rng=1).critical_value
    low, high = binomial_limits(0.1, 4_000, level=0.999)
    assert low <= np.mean(drawn.inflation * np.array(drawn.values) > free) <= high
    assert drawn.inflation == pytest.approx(1.0, abs=0.03)
    assert not drawn.noisy
    assert drawn.correction(0.1) == (0.0, 1.0)
    assert drawn.critical_value(0.1) == pytest.approx(free, rel=0.06)


@pytest.mark.audit
def test_one_target_is_half_normal_and_needs_no_pick():
    sums, fit, found, transform = fitted(math.inf, [4])
    drawn = bootstrap_draws(sums, fit, found, transform, 4_000, math.inf, public_seed=3)
    low, high = binomial_limits(0.05, 4_000, level=0.999)
    assert low <= np.mean(np.array(drawn.values) > 1.96) <= high
    ledger = Ledger()
    sums, fit, found, transform = fitted(5.0, [4], ledger=ledger)
    noisy = bootstrap_draws(sums, fit, found, transform, 50, 2.0)
    assert noisy.selection_scale == 0.0
    assert noisy.value_sd > 0.0
    assert ledger.entries[-1].label == "bootstrap draws"


@pytest.mark.parametrize("targets", [TARGETS, [4]])
def test_released_draws_have_the_noise_that_is_stated(targets):
    """The same multipliers with and without noise: variances add up."""
    sums, fit, found, transform = fitted(math.inf, targets)
    noisy = bootstrap_draws(sums, fit, found, transform, 3_000, 30.0, public_seed=3)
    if len(targets) == 1:
        # |V + t z| has mean square 1 + t^2: the limits are of a mean of 3,000 squared normals.
        square = np.mean(np.square(noisy.values)) / (1.0 + noisy.value_sd**2)
        assert abs(square - 1.0) < 4.0 * math.sqrt(2.0 / 3_000)
        assert noisy.value_sd > 0.3
    else:
        # A pick is right more often than chance: more than a single noisy target is large.
        alone = np.mean(np.square(noisy.values)) / (1.0 + noisy.value_sd**2)
        assert alone > 1.0 + 4.0 * math.sqrt(2.0 / 3_000)
        assert noisy.selection_scale / noisy.value_sd == pytest.approx(math.sqrt(7 / 3), rel=1e-6)


@pytest.mark.audit
def test_the_price_is_what_was_said():
    ledger = Ledger()
    sums, fit, found, transform = fitted(5.0, ledger=ledger, rng=None)
    before = len(ledger.entries)
    bootstrap_draws(sums, fit, found, transform, 40, 0.3)
    spent = ledger.entries[before:]
    assert compose(entry.loss for entry in spent).rho == pytest.approx(0.3, rel=1e-9)
    labels = [entry.label for entry in spent]
    assert labels.count("variances of the bootstrapped scores") == 2
    assert any(label.startswith("bootstrap draws") for label in labels)


def test_the_seed_is_public_and_the_noise_is_not():
    sums, fit, found, transform = fitted(math.inf)
    first = bootstrap_draws(sums, fit, found, transform, 30, math.inf, public_seed=1)
    assert first == bootstrap_draws(sums, fit, found, transform, 30, math.inf, public_seed=1)
    assert first != bootstrap_draws(sums, fit, found, transform, 30, math.inf, public_seed=2)


def test_variances_hidden_by_noise():
    def shown(seed):
        sums, fit, found, transform = fitted(math.inf, rng=seed)
        try:
            bootstrap_draws(sums, fit, found, transform, 30, 1e-7)
        except NotAvailableError as reason:
            return "bootstrap" not in str(reason)
        return True

    assert not all(shown(seed) for seed in range(12))


def released(rng, count, targets, correlation, select, sd):
    """Return true maxima and what the noisy maximum would release of them."""
    shared = math.sqrt(correlation) * rng.standard_normal((count, 1))
    v = shared + math.sqrt(1.0 - correlation) * rng.standard_normal((count, targets))
    scores = np.abs(v) + (rng.gumbel(0.0, select, v.shape) if select else 0.0)
    chosen = np.take_along_axis(v, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.abs(v).max(axis=1), np.abs(chosen + sd * rng.standard_normal(count))


@pytest.mark.audit
@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize(
    ("select", "sd"), [(0.0, 0.0), (0.1, 0.1), (0.5, 0.05), (0.5, 0.5), (0.0, 1.0), (3.0, 3.0)]
)
@pytest.mark.parametrize("targets", [2, 20])
def test_the_critical_value_is_conservative_for_the_noise(targets, select, sd, correlation, alpha):
    count = 8_000
    truth, noisy = released(np.random.default_rng(5), count, targets, correlation, select, sd)
    drawn = PrivateDraws(
        values=tuple(noisy),
        selection_scale=select,
        value_sd=sd,
        targets=targets,
        inflation=1.0,
        multipliers="rademacher",
    )
    high = binomial_limits(alpha, count, level=0.999)[1]
    assert np.mean(truth > drawn.critical_value(alpha)) <= high
    pvalues = drawn.pvalues(truth[:2_000], alpha)
    assert np.mean(pvalues <= alpha) <= binomial_limits(alpha, 2_000, level=0.999)[1]


def test_leaving_the_noise_of_the_pick_as_it_is_would_not_be():
    alpha, count = 0.05, 20_000
    truth, noisy = released(np.random.default_rng(6), count, 20, 0.0, 0.5, 0.05)
    assert np.mean(truth > np.quantile(noisy, 1.0 - alpha)) > binomial_limits(alpha, count, level=0.999)[1]


def test_pvalues_are_dual_to_the_intervals():
    rng = np.random.default_rng(1)
    drawn = PrivateDraws(
        values=tuple(np.abs(rng.standard_normal(300)) + 0.7),
        selection_scale=0.2,
        value_sd=0.3,
        targets=5,
        inflation=1.07,
        multipliers="rademacher",
    )
    statistics = rng.uniform(-6.0, 6.0, 400)
    for alpha in (0.05, 0.2):
        rejected = drawn.pvalues(statistics, alpha) <= alpha
        assert np.array_equal(rejected, np.abs(statistics) > drawn.critical_value(alpha))
        assert rejected.any()
        assert not rejected.all()


def test_too_few_draws_and_bad_levels():
    few = PrivateDraws(
        values=(1.0,) * 25,
        selection_scale=0.0,
        value_sd=0.0,
        targets=3,
        inflation=1.0,
        multipliers="rademacher",
    )
    assert few.critical_value(0.05) == 1.0
    with pytest.raises(NotAvailableError, match="bootstrap_draws"):
        few.critical_value(0.01)
    with pytest.raises(ArgumentError):
        few.critical_value(1.5)
    assert replace(few, inflation=1.2).critical_value(0.05) == pytest.approx(1.2)
