"""MomentOLS over parties: the pooled fit without noise, a curator's noise with it, refusals with names."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import chi2

import privinf as pi
from privinf.federation import InProcessFederation, Site, SitePolicy, pinned_keys
from privinf.mechanisms.rows import Rows
from studies.simulation import binomial_limits

TRUE = np.array([0.5, -0.3, 0.2])
BOTH = pytest.mark.parametrize("trust", ["secure-sum", "server"])
POLICY = SitePolicy(secure_sums=True, trusted_server=True, simulation=True)
SCHEMA = pi.Schema(
    {"y": (-4.0, 6.0), "a": (-1.0, 1.0), "b": (1990.0, 2020.0), "g": ["u", "v", "w"]}, public=["b"]
)
FORMULA = "y ~ a + b + C(g)"


def cube(n=600, seed=0, errors=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return np.clip(X @ TRUE + errors * rng.standard_normal(n), -2, 2), X


def split(y, X, sites=3):
    return {f"s{i}": (y[i::sites], X[i::sites]) for i in range(sites)}


def model(parts=None, **options):
    given = {"bounds": [(-1, 1)] * 3, "y_bounds": (-2, 2)} | options
    return pi.MomentOLS.from_arrays(split(*cube()) if parts is None else parts, **given)


def central(n=600, **options):
    y, X = cube(n)
    return pi.MomentOLS(y, X, bounds=[(-1, 1)] * 3, y_bounds=(-2, 2), **options)


def table(n=300, seed=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"a": rng.uniform(-1, 1, n), "b": rng.uniform(1990, 2020, n), "g": rng.choice(["u", "v", "w"], n)}
    )
    y = 1.0 + 0.5 * frame.a + 0.04 * (frame.b - 2005) + 0.2 * (frame.g == "v") + rng.normal(0, 0.3, n)
    return frame.assign(y=y.clip(-4, 6))


def federation(frame, policy=POLICY, schema=SCHEMA, ledgers=None, **options):
    names = ["north", "south", "west"]
    keys, roster = pinned_keys(names)
    return InProcessFederation(
        {
            name: Site(
                Rows(frame.iloc[i::3]),
                schema,
                policy=policy,
                key=keys[name],
                roster=roster,
                ledger=(ledgers or {}).get(name),
            )
            for i, name in enumerate(names)
        },
        **options,
    )


def reference(y, X, cov_type):
    return sm.OLS(y, X).fit(cov_type=cov_type, use_t=True)


# ---- without noise


@BOTH
@pytest.mark.parametrize("cov_type", ["nonrobust", "HC0"])
@pytest.mark.parametrize("constant", [False, True])
def test_without_noise_it_is_the_pooled_fit(trust, cov_type, constant):
    y, X = cube()
    y[::40] = np.clip(y[::40] + 1.6, -2, 2)  # residuals far beyond three standard deviations
    X = X * [1.0, 40.0, 0.01] + [0.0, 30.0, 2.0]
    limits = [(-1, 1), (-10, 70), (1.99, 2.01)]
    design = pi.add_constant(X) if constant else X
    parts = [(y[i::8], design[i::8]) for i in range(8)]
    found = model(parts, bounds=limits, trust=trust).fit(epsilon=math.inf, cov_type=cov_type)
    expected = reference(y, np.asarray(design), cov_type)
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.bse, expected.bse, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.conf_int(), expected.conf_int(), rtol=1e-8, atol=1e-8)
    assert found.cov_type == cov_type


@BOTH
def test_a_formula_over_sites_tables_protects_public_columns_too(trust):
    frame = table()
    fed = federation(frame)
    found = pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA, trust=trust).fit(
        epsilon=math.inf, cov_type="HC0"
    )
    expected = sm.OLS.from_formula(FORMULA, frame).fit(cov_type="HC0", use_t=False)
    order = list(found.params.index)
    np.testing.assert_allclose(found.params, expected.params[order], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(found.bse, expected.bse[order], rtol=1e-7, atol=1e-8)
    release = pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA, trust=trust).release(mu=5.0, rng=0)
    assert release.arrays["public_moments"].tolist() == [[300.0]]
    assert "b" in release.design.private_names
    assert release.arrays["moments"].shape == (5 + 4 + 3 + 2 + 1 + 5,)


def test_rows_outside_the_ball_are_projected_as_a_curator_does():
    y, X = cube()
    options = {"bounds": None, "radius": 1.0}
    found = model(**options).fit(epsilon=math.inf)
    expected = pi.MomentOLS(y, X, radius=1.0, y_bounds=(-2, 2)).fit(epsilon=math.inf)
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-10)
    assert abs(found.params - reference(y, X, "nonrobust").params).max() > 0.01


# ---- the noise


@pytest.mark.parametrize(("colluding", "ratio"), [(0, 1.0), (2, 1.25)])
def test_the_noise_is_a_curators_and_honest_sites_alone_carry_it(colluding, ratio):
    y, X = cube()
    secure = model(split(y, X, 10)).release(epsilon=1.0, delta=1e-5, max_colluding=colluding)
    curator = central().release(epsilon=1.0, delta=1e-5)
    assert secure.noise_model["scale"] ** 2 / curator.noise_model["scale"] ** 2 == pytest.approx(
        ratio, rel=1e-4
    )
    assert secure.noise_model["response_weight"] == curator.noise_model["response_weight"]
    assert secure.secure


@pytest.mark.audit
@pytest.mark.parametrize(("trust", "colluding"), [("secure-sum", 0), ("secure-sum", 1), ("server", 0)])
def test_releases_spread_as_the_law_says(trust, colluding):
    found = model(split(*cube(60)), trust=trust)
    exact = found.release(mu=math.inf).arrays["moments"]
    told = {"max_colluding": colluding} if colluding else {}
    rng = np.random.default_rng(5)
    releases = [found.release(mu=1.0, rng=rng, **told) for _ in range(150)]
    noise = np.array([one.arrays["moments"] - exact for one in releases])
    expected = central(60).release(mu=1.0, rng=0).noise_model["scale"] * math.sqrt(3 / (3 - colluding))
    low, high = chi2.ppf([0.0005, 0.9995], noise.size) / noise.size
    assert low < np.mean((noise / expected) ** 2) < high
    assert releases[0].noise_model["scale"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.audit
def test_intervals_cover_over_secure_sums():
    hits = np.zeros(2)
    for seed in range(80):
        y, X = cube(1500, seed, errors=0.6)
        parts = split(y, X, 3)
        for j, cov_type in enumerate(("nonrobust", "HC0")):
            fit = model(parts).fit(epsilon=2.0, delta=1e-5, cov_type=cov_type, max_colluding=1, rng=seed)
            low, high = fit.conf_int().to_numpy()[0]
            hits[j] += low <= TRUE[0] <= high
            if cov_type == "nonrobust":  # the robust estimate of the sampling error is noisy itself
                assert fit.bse_privacy.iloc[0] > fit.bse_sampling.iloc[0]
    low, high = binomial_limits(0.95, 80, 0.99)
    assert (low <= hits / 80).all(), hits
    assert (hits / 80 <= high).all(), hits


@pytest.mark.audit
@BOTH
def test_intervals_that_forget_the_noise_do_not_cover(trust):
    missed, plain = 0, 0.3 * math.sqrt(3 / 1500)
    for seed in range(60):
        y, X = cube(1500, seed)
        fit = model(split(y, X), trust=trust).fit(epsilon=1.0, delta=1e-5, rng=seed)
        missed += abs(fit.params.iloc[0] - TRUE[0]) > 1.96 * plain
    assert missed / 60 > 1.0 - binomial_limits(0.95, 60, 0.999)[0]


def test_weak_answers_are_those_of_a_curator():
    for fit in (model().fit(mu=0.02, rng=1), central().fit(mu=0.02, rng=1)):
        assert fit.identification.weak
        assert 0.0 <= fit.score_test().pvalue <= 1.0
        assert np.isinf(fit.conf_int(method="score").to_numpy()).any()


# ---- what it costs


@BOTH
def test_hc0_is_a_second_round_and_every_sites_ledger_is_the_report(trust):
    fed = federation(table())
    fit = pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA, trust=trust).fit(
        mu=0.8, cov_type="HC0", robust_share=0.4, rng=0
    )
    assert [entry.label for entry in fit.privacy.entries] == ["moments", "residual moments"]
    assert fit.privacy.mu == pytest.approx(0.8, rel=1e-12)
    assert fit.privacy.entries[1].loss.mu ** 2 == pytest.approx(0.4 * 0.64, rel=1e-9)
    for site in fed._sites.values():
        own = [(entry.label, entry.loss) for entry in site.ledger.entries]
        assert own == [(entry.label, entry.loss) for entry in fit.privacy.entries]


@BOTH
def test_a_budget_that_is_spent_at_one_site_refuses_for_all(trust):
    ledgers = {"south": pi.Ledger(pi.Budget(mu=1.0))}
    fed = federation(table(), ledgers=ledgers)
    asked = pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA, trust=trust)
    asked.fit(mu=0.8, rng=0)
    with pytest.raises(pi.errors.BudgetExceededError, match="site 'south'"):
        asked.fit(mu=0.8, rng=0)
    assert len(ledgers["south"].entries) == 1


def test_a_budget_of_the_analyst_refuses_before_anybody_is_asked():
    fed = federation(table())
    asked = pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA, ledger=pi.Ledger(pi.Budget(mu=0.5)))
    with pytest.raises(pi.errors.BudgetExceededError):
        asked.fit(mu=0.8, rng=0)
    assert all(site.ledger.entries == () for site in fed._sites.values())
    assert fed._calls == 0


def test_a_round_is_not_paid_twice_after_a_stop(tmp_path):
    frame = table()
    fed = federation(frame, lost_replies={"west": [3]})
    asked = pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA)
    how = {"mu": 2.0, "cov_type": "HC0", "rng": 3}
    with pytest.raises(pi.errors.AlignmentError, match="'west'"):
        asked.fit(**how, checkpoint=tmp_path / "fit")
    again = pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA, ledger=asked.ledger)
    fit = again.fit(**how, checkpoint=tmp_path / "fit")
    assert fit.privacy.mu == pytest.approx(2.0, rel=1e-12)
    for ledger in (asked.ledger, *(site.ledger for site in fed._sites.values())):
        first, *others = [entry.label for entry in ledger.entries]
        assert first == "moments"
        assert set(others) == {"residual moments"}


# ---- entry points


def test_the_release_travels_and_the_analyst_needs_no_site(tmp_path):
    asked = model()
    release = asked.release(mu=3.0, cov_type="HC0", rng=0, max_colluding=1)
    release.save(tmp_path / "release.npz")
    loaded = pi.load_release(tmp_path / "release.npz")
    fit = pi.MomentOLS.from_release(loaded).fit()
    fit.save(tmp_path / "fit.npz")
    for other in (pi.load_results(tmp_path / "fit.npz"), pickle.loads(pickle.dumps(fit)), loaded.regress()):
        np.testing.assert_array_equal(other.params, fit.params)
        np.testing.assert_allclose(other.bse, fit.bse, rtol=1e-12)
    text = str(fit.summary())
    for words in ("secure-sum", "Sites:", "Colluding"):
        assert words in text
    with pytest.raises(pi.errors.ArgumentError, match="max_colluding"):
        pi.MomentOLS.from_release(loaded).fit(max_colluding=1)
    with pytest.raises(pi.errors.NotAvailableError, match="inf"):
        asked.release(mu=math.inf).save(tmp_path / "rows.npz")


def test_no_row_is_shown_or_pickled():
    asked = model()
    assert "3 sites" in repr(asked)
    assert repr(model(trust="server")).count("server") == 1
    with pytest.raises(TypeError, match="rows"):
        pickle.dumps(asked)


def test_parties_may_come_numbered_and_labelled_alike():
    y, X = cube()
    parts = split(y, X)
    a = model(parts).fit(epsilon=math.inf)
    b = model(list(parts.values())).fit(epsilon=math.inf)
    np.testing.assert_array_equal(a.params, b.params)


FINE = cube(40)


@pytest.mark.parametrize(
    ("party", "error", "words"),
    [
        (
            (FINE[0], FINE[1][:, :2]),
            "ArgumentError",
            "site 's1' has other columns than site 's0'",
        ),
        ((FINE[0][:0], FINE[1][:0]), "ArgumentError", "site 's1': the table has no rows"),
        ((FINE[0][:7], FINE[1]), "ArgumentError", "site 's1': y has 7 rows"),
        ((FINE[0], np.where(FINE[1] > 0.98, np.nan, FINE[1])), "ArgumentError", "site 's1': X has nan"),
        ((np.append(FINE[0][1:], np.inf), FINE[1]), "ArgumentError", "site 's1': y has nan or infinite"),
        ((FINE[0], [["a"] * 3] * 40), "ArgumentError", "site 's1': X must be numeric"),
        ((FINE[0],), "ArgumentError", "site 's1'.*pair"),
        (None, "ArgumentError", "site 's1'.*pair"),
        ((FINE[0], pd.DataFrame(FINE[1], columns=[1, 2, 3])), "SchemaError", "site 's1'.*strings"),
    ],
)
def test_a_bad_party_is_named_and_its_data_are_not(party, error, words):
    with pytest.raises(getattr(pi.errors, error), match=words) as caught:
        model({"s0": FINE, "s1": party, "s2": FINE})
    for value in FINE[0][:3]:
        assert f"{value:.3f}" not in str(caught.value)


def test_a_constant_that_is_none_is_refused_at_its_party():
    y, X = cube(40)
    frame = pi.add_constant(X)
    other = frame.assign(const=2.0)
    with pytest.raises(pi.errors.SchemaError, match="site 'b': column 'const'"):
        model({"a": (y, frame), "b": (y, other)}, bounds=[(-1, 1)] * 3)


@pytest.mark.parametrize(
    ("change", "name", "why"),
    [
        (lambda frame: frame.drop(columns="a"), "a", "lack"),
        (lambda frame: frame.assign(a=np.where(frame.a > 0.9, np.nan, frame.a)), "a", "missing values"),
        (lambda frame: frame.assign(y=np.where(frame.y > 1.5, np.inf, frame.y)), "y", "infinite values"),
        (lambda frame: frame.assign(g="elsewhere"), "g", "outside its declared levels"),
    ],
)
def test_a_bad_table_is_told_to_its_holder_and_its_columns_are_named_to_who_asks(change, name, why):
    frame = table()
    fed = federation(frame)
    pairs = fed._sites["south"]._pairs
    with pytest.warns(pi.errors.UnavailableColumnsWarning, match=f"column {name!r} cannot be used"):
        bad = Site(Rows(change(frame.iloc[1::3])), SCHEMA, policy=POLICY)
    bad._pairs = pairs
    fed._sites["south"] = bad
    assert why in bad.defects[name]
    asked = pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA)
    with pytest.raises(pi.errors.SchemaError, match=f"site 'south'.*{name!r} cannot be used") as caught:
        asked.fit(mu=1.0, rng=0)
    assert "elsewhere" not in str(caught.value)
    assert why not in str(caught.value)
    assert asked.ledger.entries == ()


def test_a_site_with_another_schema_or_policy_is_named():
    other = pi.Schema({"y": (-4.0, 6.0), "a": (-2.0, 1.0), "b": (1990.0, 2020.0), "g": ["u", "v", "w"]})
    fed = federation(table())
    with pytest.raises(pi.errors.AlignmentError, match="site 'north'"):
        pi.MomentOLS.from_formula(FORMULA, fed, schema=other).fit(mu=1.0, rng=0)
    closed = federation(table(), policy=SitePolicy(secure_sums=True))
    with pytest.raises(pi.errors.NotAvailableError, match=r"site 'north'.*sums without noise"):
        pi.MomentOLS.from_formula(FORMULA, closed, schema=SCHEMA, trust="server").fit(mu=1.0)
    with pytest.raises(pi.errors.NotAvailableError, match=r"site 'north'.*seeded"):
        pi.MomentOLS.from_formula(FORMULA, closed, schema=SCHEMA).fit(mu=1.0, rng=0)
    assert pi.MomentOLS.from_formula(FORMULA, closed, schema=SCHEMA).fit(mu=1.0).privacy.secure


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"y_bounds": None}, "SchemaError", "y_bounds"),
        ({"bounds": None}, "SensitivityError", "bounds"),
        ({"trust": "central"}, "ArgumentError", "secure-sum"),
        ({"response_weight": 0.0}, "ArgumentError", "response_weight"),
        ({"parts": []}, "ArgumentError", "at least one pair"),
        ({"parts": [FINE]}, "ArgumentError", "at least two sites"),
        ({"parts": {1: FINE, "1": FINE}}, "ArgumentError", "two sites"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(getattr(pi.errors, error), match=words):
        model(**options)


@pytest.mark.parametrize(
    ("trust", "how", "words"),
    [
        ("secure-sum", {}, "epsilon"),
        ("secure-sum", {"epsilon": 1.0}, "delta"),
        ("secure-sum", {"mu": 1.0, "max_colluding": 3}, "less than the number of sites"),
        ("secure-sum", {"mu": 1.0, "source": "opendp"}, "source"),
        ("secure-sum", {"mu": 1.0, "robust_share": 0.5}, "robust_share"),
        ("secure-sum", {"mu": 1.0, "cov_type": "HC3"}, "HC3"),
        ("secure-sum", {"mu": 1.0, "calibration": "loose"}, "calibration"),
        ("server", {"mu": 1.0, "max_colluding": 1}, "secure-sum"),
    ],
)
def test_bad_requests_cost_nothing(trust, how, words):
    asked = model(trust=trust)
    with pytest.raises(pi.errors.ArgumentError, match=words):
        asked.fit(**how)
    assert asked.ledger.entries == ()


def test_options_of_the_other_doors_are_refused():
    fed, frame = federation(table()), table()
    with pytest.raises(pi.errors.ArgumentError, match="federation"):
        central().fit(mu=1.0, max_colluding=1, rng=0)
    with pytest.raises(pi.errors.ArgumentError, match="federation"):
        pi.MomentOLS.from_formula(FORMULA, frame, schema=SCHEMA, trust="secure-sum")
    with pytest.raises(pi.errors.ArgumentError, match="several sites"):
        pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA, trust="central")
    with pytest.raises(pi.errors.ArgumentError, match="missing"):
        pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA, missing="impute-public")
    with pytest.raises(pi.errors.NotAvailableError, match="weights"):
        pi.MomentOLS.from_formula(FORMULA, fed, schema=SCHEMA, weights="b")
    clear = pi.Schema(SCHEMA.columns, public=["y"])
    with pytest.raises(pi.errors.SchemaError, match="'y' must not be declared public"):
        pi.MomentOLS.from_formula(FORMULA, fed, schema=clear)


def test_too_few_rows_and_too_large_a_delta():
    y, X = cube(2)
    with pytest.raises(pi.errors.AlignmentError, match="2 rows are too few to estimate 3"):
        model({"a": (y[:1], X[:1]), "b": (y[1:], X[1:])}).fit(mu=1.0, rng=0)
    with pytest.warns(pi.errors.LargeDeltaWarning, match="1/n"):
        model().fit(epsilon=1.0, delta=1 / 600, rng=0)


def test_a_constant_alone_has_nothing_to_protect():
    with pytest.raises(pi.errors.SensitivityError, match="nothing to protect"):
        pi.MomentOLS.from_arrays(
            [(np.ones(5), pd.DataFrame({"const": np.ones(5)}))], bounds=[], y_bounds=(0, 2), trust="server"
        )
