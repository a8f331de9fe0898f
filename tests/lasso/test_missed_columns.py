"""Was a column missed: size, power, the law of the statistic, what is seen, what results say."""

import math
import warnings

import numpy as np
import pytest

import privinf as pi
from privinf.errors import NotAvailableError, WeakIdentificationWarning
from privinf.federation import TrustedServer
from privinf.lasso import fit as sparse_fits
from privinf.lasso.diagnostics import MissedColumnTest
from privinf.lasso.fit import part_above_noise, sparse_fit
from privinf.lasso.omitted import SELECTION_SHARE, LinearSearch, critical_value, screen_omitted
from privinf.lasso.plan import LassoOptions, SparseFitPrices, check_plan, largest_sparsity
from privinf.lasso.selection import detectable_correlation, selection_clip
from privinf.lasso.sums import SparseSums
from studies.simulation import binomial_limits

P = 40


def draw(seed, n, effect=0.0, skewed=False):
    """Two strong columns, one with `effect` standard errors."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P))
    X[:, 1:] = 0.5 * X[:, :-1] + math.sqrt(0.75) * X[:, 1:]
    e = rng.standard_exponential(n) - 1.0 if skewed else rng.standard_normal(n)
    y = X[:, 0] - X[:, 20] + effect / math.sqrt(0.6 * n) * X[:, 30]
    return y + e, X


def fitted(seed, n=6_000, epsilon=3.0, effect=0.0, skewed=False, **options):
    y, X = draw(seed, n, effect, skewed)
    model = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-6, 6))
    return model.fit(
        **{"epsilon": epsilon, "delta": 0.5 / n, "sparsity": 2, "targets": [0, 10], "rng": seed} | options
    )


@pytest.mark.audit
@pytest.mark.parametrize("skewed", [False, True])
def test_it_rarely_rejects_where_no_column_was_missed(skewed):
    found = [fitted(seed, skewed=skewed).missed_column_test for seed in range(25)]
    assert np.mean([test.rejects for test in found]) <= binomial_limits(0.05, 25)[1]
    assert all(P - 6 <= test.columns <= P - 4 for test in found)


def sums_of(y, X, rng):
    rows = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-6, 6))._rows
    return SparseSums(server=TrustedServer(rows.federation, rng=rng), units=rows.units(), n=rows.total)


def searched(seed, n=6_000, rho=0.3, effect=0.0, targets=(0, 10), **options):
    """A fit of the two strong columns alone, and the suspects outside it."""
    y, X = draw(seed, n, effect)
    sums = sums_of(y, X, seed)
    plan = planned(rho, list(targets), [f"x{j + 1}" for j in range(P)])
    prices = plan.shares.sparse_fit(rho)
    fit = sparse_fit(sums, 2, prices, extra=0)
    assert set(fit.selected) == {0, 20}
    return screen_omitted(LinearSearch.from_plan(sums, fit, plan, None, **options), fit)


def planned(rho, targets, names):
    options = LassoOptions(sparsity=2, targets=targets)
    return check_plan(options, rho=rho, delta=1e-4, names=names, constant=None)


@pytest.mark.audit
@pytest.mark.parametrize(("n", "rho"), [(6_000, 0.4), (12_000, 0.3)])
def test_what_is_seen_is_seen_and_joins(n, rho):
    effect = searched(0, n, rho)[1].detection_limit
    assert 4.0 < effect < 7.0
    found = [searched(seed, n, rho, effect) for seed in range(20)]
    assert np.mean([30 in suspects.found for _, suspects in found]) >= binomial_limits(0.8, 20)[0]
    for fit, suspects in found:
        assert set(fit.selected) == {0, 20, *suspects.found}
        assert suspects.further == pytest.approx(len(suspects.found) * 1.45 * 0.05 * rho, rel=1e-3)


def test_a_column_that_joins_has_the_coefficients_of_least_squares():
    y, X = draw(1, 6_000, 20.0)
    fit, suspects = searched(1, rho=math.inf, effect=20.0)
    assert suspects.found[0] == 30
    ratio = fit.selected_beta / np.linalg.lstsq(X[:, fit.selected], y, rcond=None)[0]
    assert ratio / ratio[0] == pytest.approx(1.0, abs=0.02)  # all columns have one size


def test_targets_are_in_the_last_fit():
    y, X = draw(2, 6_000)
    budget = SparseFitPrices(selection=0.02, refit=0.05, scales=0.01, sizes=0.01)
    few = sparse_fit(sums_of(y, X, 2), 2, budget, extra=0, targets=[30, 0])
    assert set(few.selected) == {0, 20, 30}
    assert set(few.support) == {0, 20}
    many = sparse_fit(sums_of(y, X, 2), 2, budget, extra=0, targets=[30, 31, 32])
    assert set(many.selected) == {0, 20}


@pytest.mark.audit
def test_the_statistic_of_a_column_is_standard_normal():
    """One column is left to be picked, its neighbours are in the fit: no maximum is taken."""
    budget = SparseFitPrices(selection=0.02, refit=0.05, scales=0.01, sizes=0.01)
    plan, found = planned(0.4, [0], list("abcd")), []
    for seed in range(80):
        y, X = draw(seed, 2_000, skewed=True)
        sums = sums_of(y, X[:, 17:21], seed)
        fit = sparse_fit(sums, 3, budget, extra=0, excluded=[1])
        found.append(screen_omitted(LinearSearch.from_plan(sums, fit, plan, None), fit)[1].statistics[1])
    # Half-normal: mean square 1, of which 80 have a standard error of .16.
    assert np.mean(np.square(found)) == pytest.approx(1.0, abs=0.4)


@pytest.mark.parametrize("rho", [0.002, 0.0002])
def test_the_pick_is_made_as_often_as_stated(rho):
    n, columns = 20_000, 100
    bound, effect = selection_clip(n, columns, rho)
    rng = np.random.default_rng(0)
    x, r = rng.standard_normal((2, 400_000))
    products = x * r
    slope = np.mean(x**2 * (np.abs(products) < bound))
    spread = math.sqrt(n * np.mean(np.clip(products, -bound, bound) ** 2))
    noise = 4.0 * bound / math.sqrt(8.0 * rho) * rng.gumbel(size=(4_000, columns))
    sums = spread * rng.standard_normal((4_000, columns))
    sums[:, 0] += effect * slope * math.sqrt(n)
    hits = np.argmax(np.abs(sums) + noise, axis=1) == 0
    assert 0.75 < hits.mean() < 0.9


def test_more_budget_and_rows_see_more():
    assert selection_clip(20_000, 100, 0.01)[1] < selection_clip(20_000, 100, 0.001)[1]
    assert detectable_correlation(20_000, 100, 4, 0.01, 0.7) < detectable_correlation(
        5_000, 100, 4, 0.01, 0.7
    )
    assert detectable_correlation(20_000, 100, 0, 0.01, 0.7) == 1.0
    assert critical_value(100) == pytest.approx(3.48, abs=0.01)


def crowded(kept):
    """Twelve strong columns, of which so many are kept."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6_000, P))
    y = X[:, :12] @ np.resize([0.5, -0.5], 12) + rng.standard_normal(6_000)
    model = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-8, 8))
    return model.fit(epsilon=3.0, delta=0.5 / 6_000, sparsity=kept, targets=[0, 20], rng=0)


def test_many_missed_columns_mark_the_intervals_and_are_named():
    fit = crowded(2)
    test = fit.missed_column_test
    assert test.rejects
    assert test.exhausted
    assert set(test.found) <= {f"x{j + 1}" for j in range(12)}
    assert test.standing_out >= 4
    with pytest.warns(WeakIdentificationWarning, match="columns outside the \\d+ kept ones matter"):
        fit.conf_int()
    assert "raise sparsity= to" in " ".join(str(fit.summary()).split())


def test_few_missed_columns_join_the_fit_and_mark_nothing():
    fit = crowded(8)
    test = fit.missed_column_test
    assert test.rejects
    assert not test.exhausted
    assert len(test.found) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeakIdentificationWarning)
        fit.conf_int()
    assert "joined the fit" in " ".join(str(fit.summary(notes="all")).split())


def graded(effects, **more):
    """Columns with these effects; the fit chooses how many it keeps, unless it is told."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6_000, P))
    y = X[:, : len(effects)] @ np.array(effects) + rng.standard_normal(6_000)
    model = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-8, 8))
    return model.fit(epsilon=3.0, delta=0.5 / 6_000, targets=[0, P - 1], rng=0, **more)


@pytest.mark.audit
def test_effects_that_fade_into_the_noise_mark_the_intervals():
    """What was missed is not seen: columns that were kept by luck say that it is there."""
    fading = 0.5 * 0.85 ** np.arange(30) * (-1.0) ** np.arange(30)
    fit = graded(fading)
    test = fit.missed_column_test
    assert not test.exhausted
    assert test.faint >= 3
    with pytest.warns(WeakIdentificationWarning, match=f"kept columns, {test.faint} have .* probably missed"):
        fit.conf_int()
    assert "may not be sparse enough" in " ".join(str(fit.summary()).split())
    assert graded([0.5, -0.5, 0.5]).missed_column_test.faint == 0
    told = graded([0.5, -0.5, 0.5], sparsity=8).missed_column_test
    assert told.faint == 0  # five of the eight are noise, and were asked for
    assert not told.doubtful
    stored = {name: value for name, value in test.settings().items() if name != "faint"}
    assert MissedColumnTest.from_dict(test.settings()) == test
    assert MissedColumnTest.from_dict(stored).faint == 0


def test_nothing_is_marked_where_nothing_was_missed_and_the_summary_says_what_could_be():
    fit = fitted(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeakIdentificationWarning)
        fit.conf_int()
    test, text = fit.missed_column_test, " ".join(str(fit.summary(notes="all")).split())
    assert f"Test for omitted columns: of {test.columns} columns" in text
    assert len(test.bias) == 2
    assert np.allclose(max(np.array(test.bias) / fit.bse), test.bias_in_errors)


def test_where_all_columns_are_targets_it_is_free():
    fit = fitted(3, targets="all")
    assert not any("suspic" in entry.label for entry in fit.privacy.entries)
    assert not fit.missed_column_test.rejects
    assert fitted(3, targets="all", sparsity=1).missed_column_test.rejects


def test_it_is_charged_and_its_price_is_a_share():
    fit = fitted(4)
    lines = {entry.label: entry for entry in fit.privacy.entries}
    select = next(entry for label, entry in lines.items() if label.startswith("the most suspicious column"))
    assert select.loss.rho == pytest.approx(SELECTION_SHARE * 0.05 * fit.privacy.rho, rel=1e-3)


def test_a_fit_that_keeps_all_columns_has_nothing_to_miss():
    y, X = draw(5, 2_000)
    model = pi.DebiasedLasso(y, X[:, :4], x_bound=4.0, y_bounds=(-6, 6))
    fit = model.fit(epsilon=np.inf, sparsity=4, targets=[0])
    with pytest.raises(NotAvailableError, match="missed_column_test"):
        _ = fit.missed_column_test


def test_without_noise_it_is_a_score_test():
    assert fitted(6, epsilon=math.inf).missed_column_test.statistic < 4.0
    assert searched(6, rho=math.inf, effect=8.0)[1].found == (30,)


def test_it_survives_a_file(tmp_path):
    fit = fitted(7)
    fit.save(tmp_path / "fit.zip")
    again = type(fit).load(tmp_path / "fit.zip")
    assert again.missed_column_test == fit.missed_column_test


def picks_of(fit):
    return sum(entry.label.startswith("selection") for entry in fit.privacy.entries)


@pytest.mark.audit
def test_picking_ends_where_columns_no_longer_stand_out_and_the_rest_goes_to_the_full_fit():
    y, X = draw(8, 6_000)
    model = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-6, 6))
    fit = model.fit(epsilon=3.0, delta=0.5 / 6_000, targets=[0, 10], rng=0)
    assert fit.selected == ("x1", "x21")
    assert picks_of(fit) < picks_of(
        model.fit(epsilon=3.0, delta=0.5 / 6_000, targets=[0, 10], rng=0, sparsity=30)
    )
    assert fit.privacy.epsilon(fit.privacy.default_delta) == pytest.approx(3.0, rel=0.03)
    assert fit.privacy.epsilon(fit.privacy.default_delta) <= 3.0
    wide = model.fit(epsilon=3.0, delta=0.5 / 6_000, targets=[0, 10], rng=0, sparsity=2)
    assert fit.bse.mean() < 1.1 * wide.bse.mean()


def test_the_number_is_chosen_up_to_a_public_most():
    y, X = draw(9, 6_000)
    model = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-6, 6))
    fit = model.fit(epsilon=3.0, delta=0.5 / 6_000, targets=[10], rng=0, max_sparsity=1)
    assert len(fit.selected) == 1
    assert largest_sparsity(6_000, math.inf, 7) == 7
    assert largest_sparsity(100, 1e-4, 7) == 1
    assert largest_sparsity(40_000, 0.03, 800) > largest_sparsity(10_000, 0.03, 800)


def in_blocks(seed, n=12_000):
    """Blocks of ten at a correlation of .9; one column of six of them has an effect."""
    rng = np.random.default_rng(seed)
    common = np.repeat(rng.standard_normal((n, 8)), 10, axis=1)
    X = math.sqrt(0.9) * common + math.sqrt(0.1) * rng.standard_normal((n, 80))
    return 0.4 * X[:, :60:10] @ np.array([1, -1, 1, -1, 1, -1]) + rng.standard_normal(n), X


@pytest.mark.audit
def test_columns_that_hide_the_others_are_left_out_again_where_their_number_is_chosen(monkeypatch):
    marked = []
    for mutant in (False, True):
        if mutant:
            monkeypatch.setattr(
                sparse_fits, "part_above_noise", lambda gram, sd, doubtful: list(range(len(gram)))
            )
        found = []
        for seed in range(3):
            y, X = in_blocks(seed)
            model = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-6, 6))
            fit = model.fit(epsilon=2.0, delta=0.5 / 12_000, targets=[0, 1, 75], rng=seed)
            found.append("astray" in fit._settings)
            assert fit.privacy.epsilon(fit.privacy.default_delta) <= 2.0
        marked.append(np.mean(found))
    assert marked[0] < 0.5 < marked[1]


def test_the_fewest_doubtful_places_are_left_out_for_the_rest_to_be_clear():
    gram = np.eye(5)
    gram[1, 2] = gram[2, 1] = 0.95
    gram[3, 4] = gram[4, 3] = 0.95
    sd = 0.2 / math.sqrt(10.0)  # of five: an edge of 0.2
    assert part_above_noise(gram, sd, [2, 0, 3]) == [1, 4]
    assert part_above_noise(gram, sd, [4, 2, 0]) == [0, 1, 3]
    assert part_above_noise(gram, sd, [0, 2]) == [0, 1, 2, 3, 4]
    assert part_above_noise(gram, sd, []) == [0, 1, 2, 3, 4]
    assert part_above_noise(gram, 0.0, [2, 3]) == [0, 1, 2, 3, 4]
