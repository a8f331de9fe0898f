"""DebiasedLasso on secure sums: the trusted fit without noise, coverage, ledgers, what is refused."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf import federation
from privinf.accounting import compose
from privinf.errors import (
    ArgumentError,
    BudgetExceededError,
    ChangedTargetWarning,
    NotAvailableError,
    WeakIdentificationWarning,
)
from privinf.lasso.results import building
from studies.simulation import binomial_limits

N, P = 12_000, 40
TARGETS = [2, 9, 30]
COMMON = {"x_bound": 4.0, "y_bounds": (-5, 5)}


def draw(seed, n=N, p=P, sd=0.5):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 1:] = 0.5 * X[:, :-1] + np.sqrt(0.75) * X[:, 1:]
    beta = np.zeros(p)
    beta[[2, 9, 20]] = 0.6, -0.5, 0.5
    return X @ beta + sd * rng.standard_normal(n), X, beta


def parties(y, X, count=3):
    return [(y[k::count], X[k::count]) for k in range(count)]


def secure(y, X, count=3, **options):
    return pi.DebiasedLasso.from_arrays(parties(y, X, count), trust="secure-sum", **COMMON | options)


def sites_of(model):
    return model._rows.federation._sites


@pytest.fixture(scope="module")
def fitted():
    y, X, _ = draw(0)
    model = secure(y, X)
    return model, model.fit(epsilon=2.0, delta=1e-5, sparsity=3, targets=TARGETS, rng=1)


def same(first, second):
    assert np.allclose(first.params, second.params, rtol=0, atol=1e-9)
    assert np.allclose(first.bse, second.bse, rtol=1e-7)
    assert np.allclose(first.cov_params(), second.cov_params(), rtol=1e-7)
    assert np.allclose(first.sparse_params, second.sparse_params, rtol=0, atol=1e-9)


@pytest.mark.audit
@pytest.mark.parametrize("options", [{}, {"center": "released", "noise_variance": True}, {"iterations": 1}])
def test_without_noise_it_is_the_trusted_fit(options):
    y, X, _ = draw(3, n=2_000, p=60)
    labels = np.arange(len(y)) % 3
    fits = [
        pi.DebiasedLasso(y, X, sites=labels, trust=trust, **COMMON | {"y_bounds": (-6, 7)}).fit(
            epsilon=np.inf, sparsity=3, targets=TARGETS, **options
        )
        for trust in ("server", "secure-sum")
    ]
    same(*fits)
    assert fits[0].residual_scale == pytest.approx(fits[1].residual_scale, rel=1e-9)
    if "noise_variance" in options:
        assert fits[1].noise_variance.value == pytest.approx(fits[0].noise_variance.value, rel=1e-6)


@pytest.mark.audit
def test_a_federation_of_tables_and_a_constant():
    y, X, _ = draw(11, n=3_000, p=30)
    names = [f"a{j}" for j in range(30)]
    data = pd.DataFrame(X, columns=names).clip(-4, 4).assign(y=y + 0.7, clinic=np.arange(len(y)) % 2)
    schema = pi.Schema(dict.fromkeys(names, pi.Numeric(-4, 4)) | {"y": pi.Numeric(-5, 5)})
    formula = "y ~ " + " + ".join(names)
    keys, roster = federation.pinned_keys(["0", "1"])
    sites = {
        str(name): federation.Site(
            part,
            schema,
            policy=federation.SitePolicy(secure_sums=True, simulation=True),
            key=keys[str(name)],
            roster=roster,
        )
        for name, part in data.groupby("clinic")
    }
    options = {"epsilon": np.inf, "sparsity": 3, "targets": ["a2", "a15"]}
    trusted = pi.DebiasedLasso.from_formula(formula, data, schema=schema).fit(**options)
    for source, column in [(data, "clinic"), (federation.InProcessFederation(sites), None)]:
        model = pi.DebiasedLasso.from_formula(
            formula, source, schema=schema, sites=column, trust="secure-sum"
        )
        same(model.fit(**options), trusted)
    noisy = model.fit(epsilon=4.0, delta=0.5 / len(data), sparsity=3, targets=["a2"])
    assert noisy.params["a2"] == pytest.approx(0.6, abs=5 * noisy.bse["a2"])
    assert all(entry.secure for entry in noisy.privacy.entries)
    assert noisy.selected == ("Intercept", "a2", "a9", "a20")
    noisy.conf_int()  # without a warning: the constant was never to be picked


@pytest.mark.audit
def test_nobody_peels(fitted):
    _, fit = fitted
    assert {entry.mechanism for entry in fit.privacy.entries} == {"gaussian"}
    assert {entry.trust for entry in fit.privacy.entries} == {"secure-sum"}
    assert fit.selected == ("x3", "x10", "x21")
    assert fit.method == "debiased lasso"
    assert fit.simultaneous(0.05, rng=0).critical_value > 1.96


def test_the_report_is_the_budget_and_every_sites_ledger(fitted):
    model, fit = fitted
    assert fit.privacy.epsilon(1e-5) == pytest.approx(2.0, rel=1e-6)
    assert fit.privacy.epsilon(1e-5) <= 2.0
    for site in sites_of(model).values():
        assert [entry.label for entry in site.ledger.entries] == [
            entry.label for entry in fit.privacy.entries
        ]
        spent = compose([entry.loss for entry in site.ledger.entries]).epsilon(1e-5)
        assert spent == pytest.approx(fit.privacy.epsilon(1e-5), rel=1e-9)


def test_what_picks_could_find_is_shown(fitted):
    _, fit = fitted
    looks = fit.picks_from
    suspect, near = "the most suspicious column", "neighbours of the targets"
    assert list(looks.index) == ["selection"] * 3 + [suspect, near]
    assert list(looks["entries"]) == [P, P, P, P, 3 * P]
    text = " ".join(str(fit.summary(notes="all")).split())
    assert "with all 40 columns" in text
    assert f"{looks.loc[near, 'found_from']:.3g} on" in text
    again = pickle.loads(pickle.dumps(fit))
    assert again.picks_from.equals(looks)
    y, X, _ = draw(0, n=2_000)
    trusted = pi.DebiasedLasso(y, X, **COMMON).fit(
        epsilon=9.0, delta=0.5 / 2_000, sparsity=3, targets=[2], rng=0
    )
    with pytest.raises(NotAvailableError, match="trusted server"):
        trusted.picks_from


# One of twenty fits finds a column that was not missed, and says so.
@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
def test_coverage_of_three_targets():
    hits = []
    for rep in range(15):
        y, X, beta = draw(500 + rep, n=9_000)
        fit = secure(y, X).fit(epsilon=1.5, delta=1e-5, sparsity=3, targets=TARGETS, rng=rep)
        assert fit.bse_privacy.min() > 0.1 * fit.bse.max()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ChangedTargetWarning)  # a noisy share beyond the bounds
            ends = fit.conf_int().to_numpy()
        hits += list((ends[:, 0] < beta[TARGETS]) & (beta[TARGETS] < ends[:, 1]))
    low, high = binomial_limits(0.95, len(hits), level=0.99)
    assert low <= np.mean(hits) <= high


@pytest.mark.audit
def test_too_few_rows_for_so_many_columns_end_in_a_warning():
    """Signals that the noise hides: half of the intervals without the warning would be wrong."""
    y, X, _ = draw(4, n=4_000, p=600)
    fit = secure(y, X).fit(epsilon=1.0, delta=0.5 / 4_000, sparsity=3, targets=TARGETS, rng=0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit.conf_int()
    assert any("may have been missed" in str(one.message) for one in found)
    assert all(one.category is WeakIdentificationWarning for one in found)
    assert "If as many columns matter as sparsity= allows" in " ".join(str(fit.summary()).split())
    assert fit._context.settings["sight"]["unseen"] > 0


@pytest.mark.audit
def test_a_gram_matrix_lost_in_noise_ends_in_a_warning():
    y, X, _ = draw(7, n=6_000)
    fit = secure(y, X).fit(epsilon=1.0, delta=1e-5, sparsity=10, targets=[2], rng=0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit.conf_int()
    assert any("as large as its smallest eigenvalue" in str(one.message) for one in found)


@pytest.mark.audit
def test_an_overstated_sparsity_is_said_where_it_may_matter_and_only_there():
    y, X, _ = draw(5)
    fit = secure(y, X).fit(epsilon=4.0, delta=0.5 / N, sparsity=5, targets=TARGETS, rng=0)
    assert fit._context.settings["sight"]["unseen"] == 2
    assert len(fit.selected) == 5
    with pytest.warns(WeakIdentificationWarning, match="2 of them may have been missed"):
        fit.conf_int()
    automatic = secure(y, X).fit(
        epsilon=4.0, delta=0.5 / N, sparsity="auto", max_sparsity=3, targets=TARGETS, rng=0
    )
    assert automatic.selected == ("x3", "x10", "x21")
    automatic.conf_int()


@pytest.mark.audit
def test_an_understated_sparsity_is_said():
    y, X, _ = draw(5)
    fit = secure(y, X).fit(epsilon=4.0, delta=0.5 / N, sparsity=2, targets=TARGETS, rng=0)
    with pytest.warns(WeakIdentificationWarning) as said:
        fit.conf_int()
    texts = [str(one.message) for one in said]
    assert any("more columns stand out from the noise than sparsity" in text for text in texts)
    assert fit.missed_column_test.standing_out > 0
    assert "others are correlated with it" in " ".join(str(fit.summary(notes="all")).split())


@pytest.mark.audit
def test_colluding_sites_are_paid_for_with_noise():
    y, X, _ = draw(6, n=6_000)
    fits = {}
    for colluding in (0, 3):
        model = secure(y, X, count=4)
        fits[colluding] = model.fit(
            epsilon=3.0, delta=0.5 / 6_000, sparsity=3, targets=TARGETS, max_colluding=colluding, rng=0
        )
        assert {entry.noise["colluding"] for entry in fits[colluding].privacy.entries} == {colluding}
    ratio = fits[3].picks_from["sd"] / fits[0].picks_from["sd"]
    # Four times the noise's variance, beside the sampling error.
    assert ((ratio > 1.2) & (ratio <= 2.0)).all()
    with pytest.raises(ArgumentError, match="less than the number of sites"):
        model.fit(epsilon=3.0, delta=0.5 / 6_000, sparsity=3, targets=TARGETS, max_colluding=4, rng=0)


def refusals():
    return {
        "selected": ({"targets": "selected"}, ArgumentError, "list of columns"),
        "all": ({"targets": "all"}, ArgumentError, "chosen before the data are seen"),
        "machines": ({"heterogeneous": True}, NotAvailableError, "trusted"),
        "paper": ({"variant": "paper"}, NotAvailableError, "trusted"),
        "bootstrap": ({"bootstrap_draws": 39}, ArgumentError, "bootstrap_draws= cannot be used"),
        "eigenvalues": ({"restricted_eigenvalues": True}, ArgumentError, "cannot be used"),
        "bias": ({"bias_bound": True}, ArgumentError, "cannot be used"),
        "outside": ({"targets": [99]}, ArgumentError, "target 99 is not a column"),
        "too sparse": ({"sparsity": 99}, ArgumentError, "larger than"),
        "colluders": ({"max_colluding": -1}, ArgumentError, "max_colluding"),
    }


@pytest.mark.parametrize("name", refusals())
def test_what_needs_a_trusted_server_is_refused_and_nothing_is_spent(name):
    change, error, match = refusals()[name]
    y, X, _ = draw(0, n=300, p=24)
    model = secure(y, X)
    options = {"epsilon": 1.0, "delta": 0.5 / 300, "sparsity": 2, "targets": [2], "rng": 0} | change
    with pytest.raises(error, match=match):
        model.fit(**options)
    assert len(model.ledger) == 0
    assert not any(len(site.ledger) for site in sites_of(model).values())


def test_doors_and_budget():
    y, X, _ = draw(0, n=300, p=24)
    with pytest.raises(ArgumentError, match="at least two sites"):
        pi.DebiasedLasso(y, X, trust="secure-sum", **COMMON)
    with pytest.raises(ArgumentError, match="trust"):
        pi.DebiasedLasso(y, X, trust="nobody", **COMMON)
    with pytest.raises(ArgumentError, match="trust='secure-sum'"):
        pi.DebiasedLasso(y, X, **COMMON).fit(
            epsilon=1.0, delta=0.5 / 300, sparsity=2, targets=[2], max_colluding=1
        )
    small = secure(y, X, ledger=pi.Ledger(pi.Budget(epsilon=0.5, delta=1e-3)))
    with pytest.raises(BudgetExceededError):
        small.fit(epsilon=1.0, delta=1e-3, sparsity=2, targets=[2], rng=0)
    assert len(small.ledger) == 0


def test_all_gaussian_releases_get_more_noise_free_than_a_conversion(fitted):
    """The exact curve of Gaussian releases: more budget than zCDP's bound leaves for the same epsilon."""
    _, fit = fitted
    trusted = pi.accounting.epsilon_to_rho(2.0, 1e-5)
    assert compose([entry.loss for entry in fit.privacy.entries]).rho > 1.02 * trusted


@pytest.mark.audit
def test_the_bound_of_what_was_missed_counts_missed_columns(fitted):
    """Without columns unseen there is no bias, and it grows in proportion to their number."""
    model, _ = fitted
    biases = []
    original = building.detection_of

    def seen(server, fit, plan, *rest):
        for more in (0, 1, 3):
            biases.append(original(server, fit, replace(plan, sparsity=3 + more), *rest).bias)
        return original(server, fit, plan, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("privinf.lasso.results.building.detection_of", seen)
        model.fit(epsilon=2.0, delta=1e-5, sparsity=3, targets=TARGETS, rng=1)
    assert biases[0] == 0.0
    assert biases[2] == pytest.approx(3 * biases[1])
    assert math.isfinite(biases[1])


@pytest.mark.audit
@pytest.mark.parametrize("effects", [2, 8])
def test_columns_that_are_found_later_stand_out_as_much_as_the_picked_ones(effects):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30_000, 30))
    X[:, 1:] = 0.6 * X[:, :-1] + 0.8 * X[:, 1:]
    y = 0.5 * X[:, :effects].sum(axis=1) + rng.standard_normal(len(X))
    model = pi.DebiasedLasso(
        y, X, x_bound=4.0, y_bounds=(-6, 6), sites=np.arange(len(X)) % 2, trust="secure-sum"
    )
    fit = model.fit(epsilon=6.0, delta=0.5 / 30_000, sparsity=1, targets=[0, 12], rng=0)
    found = fit.missed_column_test
    assert (len(found.found), found.exhausted) == ((0, False) if effects == 2 else (4, True))
    assert "more columns stand out" in fit._settings["sight"]["missed"]
