"""Bounds that are bought: where they lie, what they say of themselves, and when they are refused."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    BudgetExceededError,
    ChangedTargetWarning,
    NotAvailableError,
    SchemaError,
)

N = 20_000
RNG = np.random.default_rng(3)
ROWS = pd.DataFrame(
    {
        "normal": RNG.standard_normal(N),
        "year": np.floor(1990 + 30 * RNG.random(N)),
        "flag": RNG.random(N) < 0.3,
        "pay": RNG.lognormal(10.0, 0.75, N),
        "name": "a",
        "person": np.arange(N) // 2,
    }
)
ASKED = {"epsilon": 0.5, "delta": 1e-6}


def outside(name, schema):
    return float(((ROWS[name] < schema[name].low) | (ROWS[name] > schema[name].high)).mean())


def width(name, schema):
    usual = np.diff(ROWS[name].astype(float).quantile([0.005, 0.995]))[0]
    return (schema[name].high - schema[name].low) / usual


@pytest.mark.audit
@pytest.mark.parametrize("name", ["normal", "year", "flag", "pay"])
def test_few_rows_lie_outside_of_bounds_that_are_not_much_wider(name):
    found = [pi.find_bounds(ROWS, [name], epsilon=0.2, delta=1e-6, rng=seed) for seed in range(20)]
    assert np.quantile([outside(name, one) for one in found], 0.9) <= 0.035
    assert np.median([width(name, one) for one in found]) <= 1.3
    for one in found:
        assert outside(name, one) <= one.clips.loc[name, "at_most"] <= 0.1


def test_without_noise_the_wanted_share_is_cut():
    found = pi.find_bounds(ROWS, ["normal"], clip=0.1, epsilon=np.inf)
    assert outside("normal", found) == pytest.approx(0.1, abs=0.015)
    assert width("normal", found) == pytest.approx(1.645 / 2.576, abs=0.05)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, np.inf])
def test_a_column_of_0_and_1_gets_the_bounds_that_a_binomial_response_needs(epsilon):
    rng = np.random.default_rng(0)
    rows = {"died": rng.integers(0, 2, N), "share": rng.random(N), "children": rng.poisson(0.5, N)}
    delta = None if epsilon == np.inf else 1e-6
    schema = pi.find_bounds(rows, epsilon=epsilon, delta=delta, rng=None if epsilon == np.inf else 1)
    assert (schema["died"].low, schema["died"].high) == (0.0, 1.0)
    assert schema.clips.at_most["died"] < 0.1
    assert schema["children"].high > 1.5
    assert (schema["share"].low, schema["share"].high) != (0.0, 1.0)
    pi.Logit.from_formula("died ~ share", rows, schema=schema).fit(epsilon=5.0, delta=1e-6, rng=0)


def test_it_is_a_schema_that_says_what_it_cost():
    ledger = pi.Ledger(pi.Budget(epsilon=2.0, delta=1e-6))
    found = pi.find_bounds(ROWS, ["normal", "pay"], **ASKED, ledger=ledger)
    assert isinstance(found, pi.Schema)
    assert found.privacy.epsilon(1e-6) == pytest.approx(0.5, rel=1e-4)
    assert ledger.total().epsilon(1e-6) == pytest.approx(0.5, rel=1e-4)
    assert len(ledger.entries) == 4
    text = repr(found)
    assert "1.0% of the rows were to be outside the bounds" in text
    assert "found with epsilon 0.5" in text
    fit = pi.OLS.from_formula("pay ~ normal", ROWS, schema=found, ledger=ledger).fit(epsilon=1.0, delta=1e-6)
    assert fit.privacy.cumulative.mu == pytest.approx(np.hypot(found.privacy.mu, fit.privacy.mu))


def test_seeded_bounds_say_so_and_all_survives_a_pickle():
    found = pi.find_bounds(ROWS, ["year"], **ASKED, rng=0)
    assert "NOT PRIVATE" in repr(found)
    again = pickle.loads(pickle.dumps(found))
    assert (again, repr(again)) == (found, repr(found))
    assert found == pi.find_bounds(ROWS, ["year"], **ASKED, rng=0)
    assert pi.Schema.from_dict(found.to_dict()) == found


def test_what_is_known_takes_the_place_of_what_was_found():
    found = pi.find_bounds(ROWS, ["year", "pay"], **ASKED, rng=0).fill(
        {"year": (1980.0, 2030.0), "name": ["a", "b"]}
    )
    assert (found["year"].low, found["name"].levels) == (1980.0, ("a", "b"))
    assert list(found.clips.index) == ["pay"]
    assert type(found.fill({"pay": (0.0, 1e6)})) is pi.Schema
    again = pi.Schema({"name": ["a", "b"]}).fill(found)
    assert list(again.clips.index) == ["pay"]
    other = again.fill(pi.find_bounds(ROWS, ["normal"], **ASKED, rng=1))
    assert (list(other.clips.index), len(other.privacy.entries)) == (["pay", "normal"], 7)


def test_a_fit_warns_where_a_bought_clip_can_move_a_slope():
    rng = np.random.default_rng(0)
    x = np.exp(rng.standard_normal(60_000))
    rows = pd.DataFrame({"x": x, "calm": rng.uniform(-1, 1, len(x)), "y": x + rng.standard_normal(len(x))})
    schema = pi.find_bounds(rows, ["x", "y"], mu=0.5, rng=0).fill({"calm": (-1.0, 1.0)})
    with pytest.warns(ChangedTargetWarning, match=r"coefficients of 'x' may be biased") as seen:
        fit = pi.OLS.from_formula("y ~ x + calm", rows, schema=schema).fit(mu=1.0, rng=1)
    assert len([one for one in seen if "clip the tails" in str(one.message)]) == 1
    assert any("coefficients of 'x' may be biased" in note for note in fit.notes)
    assert "for clipped values" in fit.summary().as_text()
    assert "Bounds and levels were found" in fit.summary().as_text()
    known = schema.fill({"x": (0.0, 200.0), "y": (-10.0, 200.0)})
    with warnings.catch_warnings():
        warnings.simplefilter("error", ChangedTargetWarning)
        fit = pi.OLS.from_formula("y ~ x + calm", rows, schema=known).fit(mu=1.0, rng=1)
    assert "for clipped values" not in fit.summary().as_text()


def test_what_bounds_may_do_to_a_slope_is_what_they_do():
    x = np.exp(np.random.default_rng(0).standard_normal(100_000))
    found = pi.find_bounds(pd.DataFrame({"x": x}), clip=0.02, mu=4.0, rng=0)
    kept = np.clip(x, found["x"].low, found["x"].high)
    does = np.cov(kept, x - kept)[0, 1] / kept.var()
    assert 0.6 * does < found.clips.moves["x"] < 1.6 * does


def test_all_columns_of_numbers_are_meant_by_default():
    assert list(pi.find_bounds(ROWS, mu=5.0, rng=0).columns) == ["normal", "year", "flag", "pay", "person"]


def test_too_little_signal_is_refused_before_anything_is_spent():
    ledger = pi.Ledger()
    for rows, columns, options in (
        (ROWS[:1000], ["normal", "pay"], {}),
        (ROWS[:1500], ["normal"], {"unit": "person", "max_rows": 2}),
    ):
        with pytest.raises(NotAvailableError, match="but must be at least 100"):
            pi.find_bounds(rows, columns, **ASKED, ledger=ledger, **options)
    assert not ledger.entries


def test_a_limit_refuses_the_whole_and_not_the_rest():
    ledger = pi.Ledger(pi.Budget(mu=0.1))
    with pytest.raises(BudgetExceededError):
        pi.find_bounds(ROWS, ["normal"], mu=0.11, ledger=ledger)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("columns", "options", "error"),
    [
        (["name"], {"mu": 1.0}, ArgumentError),
        (["absent"], {"mu": 1.0}, SchemaError),
        ("year", {"mu": 1.0}, SchemaError),
        (["year"], {}, ArgumentError),
        (["year"], {"mu": 1.0, "clip": 0.0}, ArgumentError),
        (["year"], {"mu": 1.0, "epsilom": 1.0}, ArgumentError),
        (["year"], {"mu": 1.0, "unit": "person"}, AlignmentError),
        (["year"], {"mu": 1.0, "max_rows": 3}, SchemaError),
    ],
)
def test_what_cannot_be_asked(columns, options, error):
    with pytest.raises(error):
        pi.find_bounds(ROWS, columns, **options)


M = 5000
HALF = np.arange(M) % 2


@pytest.mark.parametrize(
    ("values", "error", "reason"),
    [
        (np.full(M, np.nan), SchemaError, "missing"),
        (np.where(HALF, np.nan, 1.0), SchemaError, "missing"),
        (pd.array([None, *[1] * (M - 1)], dtype="Int64"), SchemaError, "missing"),
        (np.where(HALF, np.inf, 1.0), SchemaError, "infinite"),
        (np.array(["1", 2] * (M // 2), dtype=object), SchemaError, "texts"),
        (np.array([2**70] * M, dtype=object), SchemaError, "texts"),
        (np.array([True, False] * (M // 2), dtype=object), SchemaError, "texts"),
        (HALF + 1j, SchemaError, "texts"),
        (pd.date_range("2000", periods=M, freq="h"), SchemaError, "texts"),
    ],
)
def test_a_column_that_has_no_bounds_is_refused_before_anything_is_spent(values, error, reason):
    ledger = pi.Ledger()
    with pytest.raises(error, match=reason):
        pi.find_bounds(pd.DataFrame({"x": values}), ["x"], **ASKED, rng=0, ledger=ledger)
    assert not ledger.entries


@pytest.mark.parametrize(
    "values",
    [
        RNG.integers(-(2**60), 2**60, M),
        RNG.integers(2**62, 2**64, M, dtype=np.uint64),
        np.full(M, 1e300),
        1e30 * RNG.standard_normal(M),
        np.where(HALF, 2.0**60, 1.0),
    ],
)
def test_values_beyond_all_that_is_searched_are_warned_of_and_what_was_bought_is_returned(values):
    with pytest.warns(ChangedTargetWarning, match=r"'x': at least \d+% .*ends at 2\^43"):
        found = pi.find_bounds(pd.DataFrame({"x": values, "ok": HALF}), mu=1.0, rng=0)
    assert found.clips.at_most["x"] > 0.2
    assert found["ok"].high <= 1.2


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (np.where(np.arange(M) == 0, 2**60, RNG.integers(0, 10, M)), (-1.0, 0.0), (9.0, 12.0)),
        (HALF.astype(bool), (-0.1, 0.0), (1.0, 1.2)),
        (pd.array(HALF.astype(bool), dtype="boolean"), (-0.1, 0.0), (1.0, 1.2)),
        (np.where(HALF, 0.0, 100.0), (-1.0, 0.0), (100.0, 110.0)),
        (np.where(np.arange(M) % 50, 23.0, RNG.uniform(0, 23, M)), (-5.0, 15.0), (23.0, 24.0)),
        (np.where(HALF, -1e9, 1e9), (-1.1e9, -1e9), (1e9, 1.1e9)),
    ],
)
def test_heavy_points_and_odd_types_get_bounds_that_hold_them(values, low, high):
    found = pi.find_bounds(pd.DataFrame({"x": values}), mu=1.0, rng=0)
    assert low[0] <= found["x"].low <= low[1]
    assert high[0] <= found["x"].high <= high[1]
    held = np.asarray(values, dtype=float)
    assert np.mean((held < found["x"].low) | (held > found["x"].high)) <= found.clips.at_most["x"]


def test_texts_that_look_like_numbers_are_levels():
    found = pi.find_bounds(pd.DataFrame({"x": np.where(HALF, "1", "2")}), ["x"], **ASKED, rng=0)
    assert found["x"].levels == ("1", "2")


@pytest.mark.parametrize("value", [0.0, 7.0, -1e12])
def test_a_column_that_does_not_vary_is_said_to_be_one(value):
    rows = pd.DataFrame({"x": np.full(5000, value)})
    with pytest.warns(ChangedTargetWarning, match="the same value"):
        found = pi.find_bounds(rows, mu=1.0, rng=0)
    assert found["x"].low < found["x"].high


def test_a_rare_value_that_noise_hides_is_counted_among_what_may_lie_outside():
    rows = pd.DataFrame({"x": (np.arange(2000) % 20 == 0).astype(float)})
    with pytest.warns(ChangedTargetWarning):
        found = pi.find_bounds(rows, mu=0.06, rng=1)
    assert found.clips.loc["x", "at_most"] > 0.05


def test_a_fit_says_that_its_bounds_were_bought_and_what_they_may_cut(tmp_path):
    schema = pi.find_bounds(ROWS, ["pay", "normal"], **ASKED, rng=0)
    fit = pi.OLS.from_formula("pay ~ normal", ROWS, schema=schema).fit(**ASKED, rng=1)
    (said,) = [note for note in fit.notes if "found by find_bounds" in note]
    assert f"{schema.clips.at_most['pay']:.1%} of pay" in said
    assert "of normal" in said
    fit.save(tmp_path / "fit.npz")
    assert pi.load_results(tmp_path / "fit.npz").notes == fit.notes
    plain = pi.OLS.from_formula("pay ~ normal", ROWS, schema=pi.Schema.from_dict(schema.to_dict()))
    assert not any("found by find_bounds" in note for note in plain.fit(**ASKED, rng=1).notes)


# ---- codes of missing values


def coded(n=20_000, share=0.06):
    rng = np.random.default_rng(8)
    x = rng.normal(120.0, 15.0, n)
    gaps = rng.random(n) < share
    town = rng.choice(["a", "b", "c", "unknown"], n, p=[0.4, 0.3, 0.1, 0.2])
    return pd.DataFrame({"x": np.where(gaps, -9.0, x), "gaps": np.where(gaps, np.nan, x), "town": town})


def test_codes_of_missing_values_are_left_out_of_bounds_and_declared(tmp_path):
    rows = coded()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for table in (rows, tmp_path / "rows.csv"):
        schema = pi.find_bounds(table, ["x"], **ASKED, rng=1, missing_codes={"x": [-9]})
        assert 65.0 < schema["x"].low < 90.0
        assert 150.0 < schema["x"].high < 175.0
        assert schema["x"].missing_codes == (-9.0,)
        assert schema.clips.at["x", "at_most"] < 0.04
    plain = pi.find_bounds(rows, ["x"], **ASKED, rng=1)
    assert plain["x"].low < 0.0
    schema.save(tmp_path / "schema.toml")
    assert pi.load_schema(tmp_path / "schema.toml")["x"].missing_codes == (-9.0,)
    mean = pi.stats.mean("x", data=rows, schema=schema, missing="drop", epsilon=2.0, delta=1e-6, rng=1)
    assert mean.estimate == pytest.approx(120.0, abs=1.0)


def test_gaps_count_as_missing_where_codes_are_passed():
    with pytest.raises(SchemaError, match="missing values"):
        pi.find_bounds(coded(), ["gaps"], **ASKED, rng=1)
    by_gaps = pi.find_bounds(coded(), ["gaps"], **ASKED, rng=1, missing_codes={})
    by_codes = pi.find_bounds(coded(), ["x"], **ASKED, rng=1, missing_codes={"x": [-9]})
    assert by_gaps.clips.loc["gaps"].equals(by_codes.clips.loc["x"])


def test_bounds_with_half_of_the_rows_missing_leave_out_the_wanted_share():
    rows = coded(share=0.5)
    x = rows["x"][rows["x"] != -9.0]
    for seed in range(5):
        schema = pi.find_bounds(rows, ["x"], **ASKED, rng=seed, missing_codes={"x": [-9]})
        share = float(((x < schema["x"].low) | (x > schema["x"].high)).mean())
        assert share <= schema.clips.at["x", "at_most"] < 0.05
        assert schema["x"].high - schema["x"].low < 130.0


def test_a_missing_code_is_no_level_and_not_pooled():
    schema = pi.find_bounds(coded(), ["town"], **ASKED, rng=1, missing_codes={"town": ["unknown"]})
    assert set(schema["town"].levels) == {"a", "b", "c"}
    assert schema["town"].missing_codes == ("unknown",)
    assert schema.clips.at["town", "at_most"] < 0.02
    plain = pi.find_bounds(coded(), ["town"], **ASKED, rng=1)
    assert set(plain["town"].levels) == {"a", "b", "c", "unknown"}
    assert schema.privacy.epsilon() == plain.privacy.epsilon()


def test_the_cost_does_not_depend_on_codes():
    coded_cost, plain_cost = (
        pi.find_bounds(coded(), ["x"], mu=0.5, rng=1, missing_codes=codes).privacy.mu
        for codes in ({"x": [-9, 999]}, None)
    )
    assert coded_cost == plain_cost


@pytest.mark.parametrize(
    ("codes", "kind", "message"),
    [
        ([-9], ArgumentError, r"mapping from columns to lists.*\{'sbp': \[-9\]\}"),
        ({"q": [-9]}, ArgumentError, "'q', which is not among the columns"),
        ({"x": -9}, SchemaError, "column 'x': missing_codes= must be a list"),
        ({"x": ["-9"]}, SchemaError, "column 'x'.*must be a number"),
        ({"town": [9]}, SchemaError, "column 'town'.*type of the levels, which is text"),
        ({"town": 9}, SchemaError, "column 'town': missing_codes= must be a list"),
    ],
)
def test_codes_of_another_form_are_refused_before_the_charge(codes, kind, message):
    ledger = pi.Ledger()
    with pytest.raises(kind, match=message):
        pi.find_bounds(coded(), ["x", "town"], **ASKED, rng=1, ledger=ledger, missing_codes=codes)
    assert len(ledger) == 0


@pytest.mark.filterwarnings("ignore:column 'tiny'")
@pytest.mark.parametrize("epsilon", [0.5, np.inf])
def test_a_column_without_negative_values_gets_the_bound_0_exactly(epsilon):
    rng = np.random.default_rng(5)
    cost = np.where(rng.random(N) < 0.6, 0.0, rng.lognormal(6.0, 1.0, N))
    rows = pd.DataFrame({"cost": cost, "loss": -cost, "tiny": rng.normal(0.0, 1e-7, N)})
    found = pi.find_bounds(rows, epsilon=epsilon, delta=1e-6, rng=1)
    assert found["cost"].low == 0.0 < found["cost"].high
    assert found["loss"].low < 0.0 == found["loss"].high
    assert found["tiny"].low == -found["tiny"].high < 0.0
    assert found.clips.at_most[["cost", "loss"]].max() < 0.1  # the rows at 0 do not count as outside
    assert pi.Design.from_formula("np.log1p(cost) ~ 1", found).names == ("Intercept",)
    assert pi.Design.from_formula("np.sqrt(cost) ~ 1", found).names == ("Intercept",)
