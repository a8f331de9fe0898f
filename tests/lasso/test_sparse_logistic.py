"""DebiasedLasso(family="binomial"): Logit without noise, coverage with it, what is spent, refused, marked."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit
from support.variance import terms_add_up

import privinf as pi
from privinf.errors import (
    ArgumentError,
    BudgetExceededError,
    ConvergenceError,
    NotAvailableError,
    SchemaError,
    WeakIdentificationWarning,
)
from privinf.federation import TrustedServer
from privinf.lasso.logistic import sparse_logistic
from privinf.lasso.omitted import LogisticSearch, screen_omitted
from privinf.lasso.plan import LogisticShares, SparseFitPrices
from privinf.lasso.radii import Spread, curvature_bound, weights_of
from privinf.lasso.sums import LogisticSums, SparseSums
from studies.simulation import binomial_limits

N, P, TRUE = 12_000, 40, {2: 0.6, 9: -0.5, 20: 0.5}
TARGETS = [2, 9, 30]


def draw(seed, n=N, p=P, level=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 1:] = 0.5 * X[:, :-1] + np.sqrt(0.75) * X[:, 1:]
    eta = level + sum(b * X[:, j] for j, b in TRUE.items())
    return (rng.random(n) < expit(eta)).astype(float), X


def model(seed=0, n=N, p=P, level=0.0, **options):
    y, X = draw(seed, n, p, level)
    return pi.DebiasedLasso(y, X, x_bound=4.0, family="binomial", **options)


@pytest.fixture(scope="module")
def fitted():
    return model().fit(epsilon=2.0, delta=1e-5, sparsity=3, targets=TARGETS, rng=1)


def test_named_terms(fitted):
    assert list(terms_add_up(fitted).noise) == ["score noise", "Hessian noise", "precision columns"]


@pytest.mark.parametrize("constant", [False, True])
def test_without_noise_and_with_all_columns_it_is_logit(constant):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, (600, 4)) + np.array([1.0, 0.0, 2.0, 0.0])
    y = (rng.random(600) < expit(X @ [0.8, -1.0, 0.0, 0.5] - 1.0)).astype(float)
    logit = sm.Logit(y, sm.add_constant(X, prepend=False)).fit(disp=0, cov_type="HC0", tol=1e-12)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(4)])
    if constant:
        frame = pi.add_constant(frame)
    bounds = {"x0": (0, 2), "x1": (-1, 1), "x2": (1, 3), "x3": (-1, 1)}
    wanted = ["x3", "x0", "x1", "x2"]
    fit = pi.DebiasedLasso(y, frame, bounds=bounds, family="binomial").fit(
        epsilon=np.inf, sparsity=4, targets=wanted
    )
    order = [3, 0, 1, 2]
    np.testing.assert_allclose(fit.params, logit.params[order], atol=1e-8)
    np.testing.assert_allclose(
        fit.sparse_params[frame.columns.drop("const", errors="ignore")], logit.params[:4], atol=1e-8
    )
    np.testing.assert_allclose(fit.bse, logit.bse[order], rtol=1e-6)
    np.testing.assert_allclose(fit.predict_sparse(frame), logit.predict(), atol=1e-8)


def test_without_noise_a_debiased_target_is_the_oracle_up_to_its_neighbours():
    y, X = draw(5, n=4_000, p=150)
    fit = pi.DebiasedLasso(y, X, x_bound=6.0, family="binomial").fit(
        epsilon=np.inf, sparsity=3, targets=[2, 9, 50], precision_sparsity=4
    )
    near = [1, 2, 3, 8, 9, 10, 20, 49, 50, 51]
    oracle = sm.Logit(y, sm.add_constant(X[:, near], prepend=False)).fit(disp=0)
    for target in (2, 9, 50):
        place = near.index(target)
        assert abs(fit.params[f"x{target + 1}"] - oracle.params[place]) < 0.6 * oracle.bse[place]
        assert fit.bse[f"x{target + 1}"] == pytest.approx(oracle.bse[place], rel=0.1)


def test_a_column_that_joins_moves_the_fit_towards_the_likelihoods_maximum():
    y, X = draw(6, n=8_000, p=30)
    fit = pi.DebiasedLasso(y, X, x_bound=6.0, family="binomial")
    sums = LogisticSums(
        SparseSums(server=TrustedServer(fit._rows.federation, rng=0), units=fit._rows.units(), n=len(y))
    )
    budget = SparseFitPrices(selection=math.inf, refit=math.inf, sizes=math.inf, rate=math.inf)
    first = sparse_logistic(sums, 3, budget, clip=1.5, blocks=1, excluded=[9])
    assert 9 not in first.point.support
    search = LogisticSearch(
        sums=sums.sparse, test_price=math.inf, scores_price=math.inf, keep=True, excluded=[], clip=1.5
    )
    wider, suspects = screen_omitted(search, first)
    assert suspects.found == (9,)
    columns = wider.point.support
    logit = sm.Logit(y, sm.add_constant(X[:, columns])).fit(disp=0)
    ours = wider.point.beta / sums.sparse.units.scale[columns]
    # One Newton step from 0 along what the other columns leave of it.
    assert ours[-1] == pytest.approx(logit.params[-1], abs=2.5 * logit.bse[-1])
    assert np.abs(ours - logit.params[1:]).max() < 3.0 * logit.bse.max()
    assert wider.kept_positions[-1] == len(columns) - 1
    covariance = wider.root @ wider.root.T / len(y)
    np.testing.assert_allclose(
        np.sqrt(np.diag(covariance))[1:] / sums.sparse.units.scale[columns], logit.bse[1:], rtol=0.1
    )


@pytest.mark.slow
@pytest.mark.parametrize(("n", "level"), [(N, 0.0), (4 * N, -2.5)])
def test_intervals_cover_at_two_sizes_and_rates(n, level):
    """And the standard errors are those of the estimates: the formula of the variance, by simulation."""
    truth = np.array([TRUE.get(j, 0.0) for j in TARGETS])
    z = []
    for seed in range(40):
        fit = model(seed, n=n, level=level).fit(
            epsilon=2.0, delta=0.5 / n, sparsity=3, targets=TARGETS, rng=seed
        )
        z.append((fit.params.to_numpy() - truth) / fit.bse.to_numpy())
    low, high = binomial_limits(0.95, np.size(z))
    assert low <= (np.abs(z) < 1.96).mean() <= high
    assert 0.8 < np.std(z) < 1.2


def test_by_default_the_number_of_columns_is_chosen():
    fit = model(2).fit(epsilon=3.0, delta=0.5 / N, targets=[2], rng=2)
    assert set(fit.selected) == {"x3", "x10", "x21"}
    assert "auto, 3 of at most 10" in str(fit.summary())


def test_results_have_the_facade_of_the_lasso(fitted):
    assert fitted.selected == ("x3", "x10", "x21")
    assert "binomial" in str(fitted.summary())
    assert "logistic" in str(fitted.summary())
    assert "Outlying rows have less weight" in " ".join(str(fitted.summary()).split())
    odds, ends = fitted.odds_ratios(0.1), fitted.conf_int(0.1)
    np.testing.assert_allclose(odds["odds ratio"], np.exp(fitted.params))
    np.testing.assert_allclose(odds.iloc[:, 1:], np.exp(ends))
    joint = fitted.simultaneous(rng=0)
    assert (joint.conf_int()[0] < ends[0]).all()
    assert fitted.max_test(rng=0).rejected == ("x3", "x10")
    with pytest.raises(NotAvailableError, match="intercept"):
        fitted.predict(np.zeros((1, P)))
    with pytest.raises(NotAvailableError, match="releases no residual scale"):
        _ = fitted.residual_scale


def test_it_is_stored_and_loaded(fitted, tmp_path):
    fitted.save(tmp_path / "fit.json")
    again = pi.load_results(tmp_path / "fit.json")
    assert again.family == "binomial"
    pd.testing.assert_frame_equal(again.odds_ratios(), fitted.odds_ratios())
    rows = draw(9, n=5)[1]
    pd.testing.assert_series_equal(again.predict_sparse(rows), fitted.predict_sparse(rows))


def test_everything_is_charged_and_nothing_more(fitted):
    assert fitted.privacy.epsilon(1e-5) == pytest.approx(2.0, rel=1e-6)
    assert fitted.privacy.epsilon(1e-5) <= 2.0


@pytest.mark.audit
def test_targets_keep_their_order_and_selected_ones_are_said():
    fit = model().fit(epsilon=2.0, delta=0.5 / N, sparsity=3, targets=["x10", "x3"], rng=1)
    assert list(fit.params.index) == ["x10", "x3"]
    chosen = model().fit(epsilon=2.0, delta=0.5 / N, sparsity="auto", max_sparsity=6, rng=1)
    assert {"x3", "x10", "x21"} <= set(chosen.selected)
    assert "selected on the same rows" in str(chosen.summary())


@pytest.mark.audit
def test_responses_of_two_levels_are_one_model():
    y, X = draw(0)
    X = X[:, [2, 9, 20, 30]]
    names = [f"x{j}" for j in range(4)]
    frame, fits = pd.DataFrame(X, columns=names), []
    declared = dict.fromkeys(names, (-4.0, 4.0))
    for response, levels in ((y, (0, 1)), (np.where(y, "yes", "no"), ["no", "yes"])):
        schema = pi.Schema({**declared, "y": levels})
        built = pi.DebiasedLasso.from_formula(
            "y ~ x0 + x1 + x2 + x3", frame.assign(y=response), schema=schema, family="binomial"
        )
        fits.append(built.fit(epsilon=3.0, delta=0.5 / N, sparsity=1, targets=["x2"], rng=2))
    for response in (y, y.astype(bool)):
        arrays = pi.DebiasedLasso(response, frame, x_bound=4.0, family="binomial")
        fits.append(arrays.fit(epsilon=3.0, delta=0.5 / N, sparsity=1, targets=["x2"], rng=2))
    for one, other in (fits[:2], fits[2:]):
        np.testing.assert_allclose(one.params, other.params)


@pytest.mark.audit
def test_sites_that_trust_a_server_give_the_same_fit():
    y, X = draw(0)
    words = {"epsilon": 2.0, "delta": 0.5 / N, "sparsity": 3, "targets": TARGETS, "rng": 4}
    one = pi.DebiasedLasso(y, X, x_bound=4.0, family="binomial").fit(**words)
    two = pi.DebiasedLasso(y, X, x_bound=4.0, family="binomial", sites=np.arange(N) % 2).fit(**words)
    np.testing.assert_allclose(one.params, two.params, rtol=1e-6)
    assert two.summary().plain_facts["Trust model"] == "server"


REFUSED = [
    ({"heterogeneous": True}, ArgumentError, "requires shared_sparsity="),
    ({"variant": "paper"}, NotAvailableError, "cannot be used with"),
    ({"targets": "all"}, NotAvailableError, "or a list of columns"),
    ({"bootstrap_draws": 50}, ArgumentError, "cannot be used in a fit"),
    ({"center": "released"}, ArgumentError, "cannot be used in a fit"),
    ({"shares": {"score": 1.0}}, ArgumentError, "shares= must be a mapping"),
    ({"sparsity": P + 1}, ArgumentError, "larger than the number of columns"),
]


@pytest.mark.parametrize(("words", "error", "says"), REFUSED)
def test_what_is_not_offered_is_refused_before_anything_is_spent(words, error, says):
    ledger = pi.Ledger()
    with pytest.raises(error, match=says):
        model(ledger=ledger).fit(
            **({"epsilon": 1.0, "delta": 0.5 / N, "sparsity": 3, "targets": [2]} | words)
        )
    assert len(ledger) == 0


def test_other_responses_are_refused_and_secure_sums_without_named_targets():
    y, X = draw(0)
    with pytest.raises(ArgumentError, match="0 or 1"):
        pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(0, 1), family="binomial")
    schema = pi.Schema({"x0": (-4, 4), "y": (0, 2)})
    with pytest.raises(SchemaError, match="must be 0 or 1"):
        pi.DebiasedLasso.from_formula(
            "y ~ x0", pd.DataFrame({"x0": X[:, 0], "y": y}), schema=schema, family="binomial"
        )
    secure = pi.DebiasedLasso(
        y, X, x_bound=4.0, family="binomial", sites=np.arange(N) % 3, trust="secure-sum"
    )
    with pytest.raises(ArgumentError, match="targets='selected' is not available with trust='secure-sum'"):
        secure.fit(epsilon=1.0, delta=0.5 / N, sparsity=3)
    with pytest.raises(ArgumentError, match="requires max_sparsity="):
        secure.fit(epsilon=1.0, delta=0.5 / N, targets=[2])
    with pytest.raises(NotAvailableError, match="requires a trusted server"):
        secure.fit(epsilon=1.0, delta=0.5 / N, sparsity=3, targets=[2], heterogeneous=True)
    with pytest.raises(ArgumentError, match="center= cannot be used in a fit with family='binomial' and"):
        secure.fit(epsilon=1.0, delta=0.5 / N, sparsity=3, targets=[2], center="released")


def test_a_linear_fit_has_no_odds_ratios():
    y, X = draw(0)
    fit = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(0, 1)).fit(
        epsilon=2.0, delta=0.5 / N, sparsity=3, targets=[2], rng=0
    )
    with pytest.raises(NotAvailableError, match="this fit is linear"):
        fit.odds_ratios()


def test_too_few_rows_are_refused_before_anything_is_spent_and_too_few_positives_after_their_number():
    ledger = pi.Ledger()
    with pytest.raises(NotAvailableError, match="too few"):
        model(n=500, ledger=ledger).fit(epsilon=0.5, delta=0.5 / 500, sparsity=3, targets=[2], rng=0)
    assert len(ledger) == 0
    rare = model(n=6_000, level=-6.0, ledger=ledger).fit(
        epsilon=1.0, delta=0.5 / 6_000, sparsity=3, targets=[2], rng=0
    )
    assert len(ledger) == 1
    assert rare.names == rare.selected == ()  # nothing is shown that was not estimated
    assert rare.hidden_targets == ("x3",)
    assert not rare.sparse_params.any()
    assert rare.privacy.epsilon() < 0.2
    for ask in (rare.conf_int, rare.odds_ratios, lambda: rare.bse):
        with pytest.raises(
            NotAvailableError, match=r"(too few|too rare).*no coefficient of x3 was estimated"
        ):
            ask()
    with pytest.raises(BudgetExceededError):
        model(ledger=pi.Ledger(pi.Budget(rho=0.001))).fit(epsilon=1.0, delta=0.5 / N, sparsity=3, targets=[2])


@pytest.mark.audit
def test_separated_rows_are_said():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 10))
    y = (X[:, 3] > 0.0).astype(float)
    split = pi.DebiasedLasso(y, X, x_bound=4.0, family="binomial")
    fit = split.fit(epsilon=4.0, delta=0.5 / N, sparsity=1, targets=[3], rng=0)
    with pytest.warns(WeakIdentificationWarning, match="not reliable"):
        fit.conf_int()
    assert "not reliable" in str(fit.summary())
    with pytest.raises(ConvergenceError):
        split.fit(epsilon=math.inf, sparsity=1, targets=[3])


@pytest.mark.audit
def test_a_column_that_was_missed_is_said_and_none_is_missed_where_none_was(fitted):
    text = " ".join(str(fitted.summary(notes="all")).split())
    assert "Test for omitted columns" in text
    assert "detected with probability 0.8" in text
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P))
    y = (rng.random(N) < expit(0.4 * X[:, 5:12].sum(axis=1))).astype(float)
    dense = pi.DebiasedLasso(y, X, x_bound=4.0, family="binomial")
    few = dense.fit(epsilon=4.0, delta=0.5 / N, sparsity=1, targets=[30], rng=3)
    with pytest.warns(WeakIdentificationWarning, match="columns outside the \\d+ kept ones matter"):
        few.conf_int()
    assert few.missed_column_test.rejects
    assert few.missed_column_test.column in {f"x{j + 1}" for j in range(5, 12)}
    assert not fitted.missed_column_test.rejects


@pytest.mark.slow
@pytest.mark.parametrize(("n", "level"), [(N, 0.0), (4 * N, -2.5)])
def test_the_test_that_no_column_was_missed_has_its_size(n, level):
    marked = 0
    for seed in range(40):
        fit = model(100 + seed, n=n, level=level).fit(
            epsilon=2.0, delta=0.5 / n, sparsity=3, targets=[30], rng=seed
        )
        marked += fit.missed_column_test.rejects
    assert marked <= 6  # of 40 at 5%: 1 in 100


# ---- weights


@pytest.mark.parametrize(("rate", "sd"), [(0.5, 0.0), (0.5, 1.5), (0.03, 1.0)])
def test_weights_are_those_of_the_law_that_they_are_chosen_for(rate, sd):
    """The slope and the square of the weighted score, and the share of rows within K, by simulation."""
    size, spread, rng = 5, Spread(rate, sd), np.random.default_rng(0)
    weights = weights_of(spread, size, 50_000, 0.005)
    m = expit(spread.level + sd * rng.standard_normal(400_000))
    assert abs(m.mean() - rate) < 5e-3 * max(rate, 0.2)
    c, v2 = m * (1.0 - m), rng.chisquare(size, 400_000) / spread.curvature
    q, k = np.sqrt(v2) * np.maximum(m, 1.0 - m), c * v2
    w = np.minimum(1.0, np.minimum(weights.score / q, weights.curvature / k))
    assert (w * k).mean() / size == pytest.approx(weights.slope, rel=0.02)
    assert (w**2 * k).mean() / size == pytest.approx(weights.square, rel=0.02)
    assert (k < curvature_bound(spread, size, 0.9)).mean() == pytest.approx(0.9, abs=0.01)


def test_shares_sum_to_one_and_prices_to_the_budget():
    shares = LogisticShares()
    first, then = shares.sparse_fit(1.0), shares.debiasing(1.0)
    spent = first.rate + first.selection + first.refit + first.sizes
    spent += then.neighbors + then.gram + then.sizes + then.candidate + then.slopes + then.meat + then.score
    assert spent == pytest.approx(1.0, abs=1e-9)
    assert spent <= 1.0
