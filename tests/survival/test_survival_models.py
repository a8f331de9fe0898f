"""Kaplan-Meier curves, cumulated hazards and log-rank tests from arrays, tables, sites and federations."""

from __future__ import annotations

import json
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import privinf as pi
from privinf.errors import (
    ArgumentError,
    BudgetExceededError,
    NotAvailableError,
    SchemaError,
    SensitivityError,
    StorageError,
)
from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.mechanisms.rows import Rows
from privinf.storage.containers import read_container, write_container
from privinf.survival.comparison import holm

SCHEMA = pi.Schema({"months": (0, 60), "state": ["alive", "dead"], "arm": ["a", "b"]})
EDGES = np.arange(1.0, 61.0)
BUDGET = {"epsilon": 1.0, "delta": 1e-6, "rng": 0}
NONE = {"epsilon": math.inf}


def people(n=4000, seed=0, *, whole=True):
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, 2, n)
    event = rng.exponential(30.0 / (1.0 + 0.7 * arm))
    end = rng.uniform(10.0, 80.0, n)
    time = np.minimum(event, end)
    return pd.DataFrame(
        {
            "months": np.ceil(time) if whole else time,
            "state": np.where(event <= end, "dead", "alive"),
            "arm": np.where(arm == 1, "b", "a"),
            "hospital": rng.choice(["x", "y", "z"], n),
        }
    )


@pytest.fixture(scope="module")
def table():
    return people()


@pytest.fixture(scope="module")
def fitted(table):
    return pi.survival.KaplanMeier("months", "state", event="dead", by="arm", data=table, schema=SCHEMA).fit(
        **BUDGET
    )


def model(data, **options):
    return pi.survival.KaplanMeier(
        "months", "state", event="dead", by="arm", data=data, schema=SCHEMA, **options
    )


# ---- without noise


def test_with_every_time_and_no_noise_it_is_statsmodels(table):
    exact = model(table, grid=EDGES, discrete=True).fit(**NONE)
    hazard = exact.nelson_aalen().table
    time, dead = table["months"].to_numpy(), (table["state"] == "dead").to_numpy() & (table["months"] <= 60)
    for arm in "ab":
        mine = exact.table.loc[arm]
        at = (table["arm"] == arm).to_numpy()
        reference = sm.SurvfuncRight(np.minimum(time[at], 60.5), dead[at])
        common = mine.index.isin(reference.surv_times)
        expected = pd.Series(reference.surv_prob, reference.surv_times)[mine.index[common]]
        risk = pd.Series(reference.n_risk, reference.surv_times)[mine.index[common]]
        events = pd.Series(reference.n_events, reference.surv_times)[mine.index[common]]
        assert np.abs(mine.loc[common, "survival"] - expected).max() < 1e-8
        assert (mine.loc[common, "at risk"] == risk).all()
        assert np.abs(hazard.loc[arm].loc[common, "cumulated hazard"] - (events / risk).cumsum()).max() < 1e-8
        assert exact.median().loc[arm, "estimate"] == reference.quantile(0.5)
    cut = np.minimum(time, 60.5), dead
    for weights, words in (
        ("logrank", {}),
        ("gehan", {"weight_type": "gb"}),
        ("fleming-harrington", {"weight_type": "fh", "fh_p": 1.0}),
    ):
        statistic, pvalue = sm.duration.survdiff(*cut, table["arm"], **words)
        test = exact.logrank(weights)
        assert test.statistic == pytest.approx(statistic, rel=1e-8)
        assert test.pvalue == pytest.approx(pvalue, rel=1e-6)


def test_the_restricted_mean_is_the_area_below_the_steps(table):
    exact = model(table, grid=EDGES, discrete=True).fit(**NONE)
    means = exact.restricted_mean(24.0)
    S = exact.table["survival"].loc["a"].to_numpy()
    assert means.loc["a", "estimate"] == pytest.approx(1.0 + S[:23].sum(), rel=1e-12)
    reference = sm.SurvfuncRight(table["months"], table["state"] == "dead")
    assert means["std err"].max() < 0.5
    assert reference.quantile(0.5) > 0


def test_in_continuous_time_the_actuarial_curve_is_near_that_of_every_time():
    rows = people(20_000, 3, whole=False)
    curve = model(rows, horizon=48.0).fit(**NONE)
    for arm in "ab":
        at = rows["arm"] == arm
        reference = sm.SurvfuncRight(rows.loc[at, "months"], rows.loc[at, "state"] == "dead")
        times = curve.times
        place = np.searchsorted(reference.surv_times, times, side="right") - 1
        off = curve.table.loc[arm, "survival"].to_numpy() - reference.surv_prob[place]
        assert (np.abs(off) < 0.15 * curve.table.loc[arm, "std err"]).all()


@pytest.mark.parametrize("intervals", [7, 10, 12, 28, 100])
def test_edges_of_a_default_grid_are_the_numbers_that_people_write(intervals):
    """A time of 0.7 is at the edge 0.7: an edge one rounding unit below would move its event on."""
    written = np.array([float(repr(k / intervals)) for k in range(1, intervals + 1)])
    rows = pd.DataFrame({"time": written, "status": np.ones(intervals)})
    schema = pi.Schema({"time": (0.0, 1.0), "status": [0, 1]})
    curve = pi.survival.KaplanMeier("time", "status", data=rows, schema=schema, grid=intervals).fit(**NONE)
    assert curve.table["events"].tolist() == [1.0] * intervals


@pytest.mark.parametrize(
    "edges", [np.linspace(0.0, 0.7, 8), np.linspace(0.0, 1.4, 15), np.arange(1, 13) * 0.1]
)
def test_rounding_of_edges_that_are_computed_moves_no_record(edges):
    """np.linspace(0, 0.7, 8) has the edge 0.09999999999999999: a time written 0.1 is at it."""
    written = np.array([float(f"{edge:.6g}") for edge in edges if edge > 0.0])
    assert (written != edges[edges > 0.0]).any()
    K = len(written)
    time, status = np.tile(written, 3), np.repeat([1.0, 0.0, 1.0], K)
    status[2 * K :] = 0.0
    time[2 * K :] = written[-1] * (1.0 - 2.0**-53)  # censored at the horizon, but for rounding
    curve = pi.survival.KaplanMeier(time, status, grid=edges, bounds=(0.0, 2.0), discrete=True).fit(**NONE)
    assert curve.table["events"].tolist() == [1.0] * K
    assert curve.table["at risk"].tolist() == [3.0 * K - 2.0 * k for k in range(K)]
    np.testing.assert_array_equal(curve.at_risk(written), curve.at_risk(edges[edges > 0.0]))
    later = time * (1.0 + 1e-8)
    moved = pi.survival.KaplanMeier(later, status, grid=edges, bounds=(0.0, 2.0), discrete=True).fit(**NONE)
    assert moved.table["events"].tolist() == [0.0] + [1.0] * (K - 1)


# ---- with noise


def test_intervals_and_bands_contain_the_curve(fitted, table):
    exact = model(table).fit(**NONE)
    columns = fitted.table
    truth = exact.table["survival"]
    inside = (columns["[0.025"] <= truth) & (truth <= columns["0.975]"])
    assert inside.mean() > 0.95
    assert ((columns["band low"] <= truth) & (truth <= columns["band high"])).all()
    for arm in "ab":
        shown = columns.loc[arm, "survival"].dropna()
        assert (np.diff(shown) <= 0.0).all()
        assert (np.diff(columns.loc[arm, "at risk"]) <= 0.0).all()
        assert (columns.loc[arm, "at risk"] >= 0.0).all()
    medians = fitted.median()
    assert (medians["[0.025"] <= medians["estimate"]).all()
    assert (medians["estimate"] <= medians["0.975]"]).all()


def test_a_test_and_a_ratio_come_from_the_same_release(fitted):
    test = fitted.logrank()
    assert test.release is fitted.release
    assert test.pvalue < 1e-6
    ratio = test.hazard_ratio
    assert ratio.low < 1.7 < ratio.high
    assert ratio.low < ratio.estimate < ratio.high
    assert "hazard ratio, b to a" in str(test.summary())
    again = pi.survival.logrank(
        "months", "state", "arm", event="dead", data=people(), schema=SCHEMA, **BUDGET
    )
    assert again.statistic == test.statistic
    of_logarithm = "The standard error of the hazard ratio is that of its logarithm."
    assert of_logarithm in " ".join(str(test.summary()).split())
    assert of_logarithm in test.to_latex()
    weighted = fitted.logrank("gehan")
    assert of_logarithm not in weighted.to_latex()
    assert weighted.tidy()["conf_low"].isna().all()
    with pytest.raises(ArgumentError, match="two groups and weights='logrank'"):
        _ = weighted.hazard_ratio


def test_other_levels_and_the_hazard_cost_nothing(fitted):
    wide = fitted.intervals(0.99)
    assert wide.release is fitted.release
    assert (wide.table["[0.005"] <= fitted.table["[0.025"] + 1e-12).all()
    hazard = fitted.nelson_aalen()
    assert hazard.table["cumulated hazard"].dropna().to_numpy() == pytest.approx(
        -np.log(fitted.table["survival"].dropna().to_numpy())
    )
    assert hazard.kaplan_meier().table.equals(fitted.table)


def test_arrays_and_tables_give_the_same_release(fitted, table):
    arrays = pi.survival.KaplanMeier(
        table["months"].to_numpy(),
        (table["state"] == "dead").to_numpy() * 1,
        by=table["arm"].to_numpy(),
        levels=["a", "b"],
        horizon=60.0,
    ).fit(**BUDGET)
    assert np.array_equal(arrays.release.values, fitted.release.values)
    coded = pi.Schema({"months": (0, 60), "state": [1, 2], "arm": (0, 1)})
    numbers = table.assign(state=np.where(table["state"] == "dead", 2, 1), arm=(table["arm"] == "b") * 1)
    result = pi.survival.KaplanMeier("months", "state", by="arm", data=numbers, schema=coded).fit(**BUDGET)
    assert np.array_equal(result.release.values, fitted.release.values)
    assert result.groups == ("0", "1")


def test_a_file_is_read_by_passes(fitted, table, tmp_path):
    path = tmp_path / "people.csv"
    table.to_csv(path, index=False)
    from_file = model(path).fit(**BUDGET)
    assert np.array_equal(from_file.release.values, fitted.release.values)


def test_secure_noise_repeats_nothing(table):
    first, second = (model(table).fit(epsilon=1.0, delta=1e-6) for _ in range(2))
    assert not np.array_equal(first.release.values, second.release.values)
    assert first.privacy.stamp == ""
    assert first.privacy.epsilon() == pytest.approx(1.0, rel=1e-6)


# ---- single times, differences, pairs of groups


@pytest.fixture(scope="module")
def three(table):
    rows = people(6000, 5)
    rows["arm"] = np.where(np.random.default_rng(2).random(len(rows)) < 0.3, "c", rows["arm"])
    schema = pi.Schema({"months": (0, 60), "state": ["alive", "dead"], "arm": ["a", "b", "c"]})
    return pi.survival.KaplanMeier("months", "state", event="dead", by="arm", data=rows, schema=schema)


def test_the_curve_is_known_at_any_time(fitted):
    edge = fitted.times[20]
    at_edge = fitted.at(edge)
    for arm in "ab":
        assert at_edge.loc[arm].iloc[0].to_numpy() == pytest.approx(
            fitted.table.loc[arm].iloc[20, :4].to_numpy()
        )
    between = fitted.at([0.0, edge + 0.2]).loc["a"]
    assert between.iloc[0].tolist() == [1.0, 0.0, 1.0, 1.0]
    near = fitted.table.loc["a", "survival"].iloc[[20, 21]]
    assert near.iloc[1] <= between["survival"].iloc[1] <= near.iloc[0]
    hazard = fitted.nelson_aalen().at(edge + 0.2).loc["a"]
    assert hazard.iloc[0, 0] == pytest.approx(-math.log(between["survival"].iloc[1]))
    for wrong in (-1.0, 61.0, [[1.0]], "a"):
        with pytest.raises(ArgumentError, match="times"):
            fitted.at(wrong)


def test_a_full_grid_has_steps(table):
    exact = model(table, grid=EDGES, discrete=True).fit(**NONE)
    assert exact.at([12.0, 12.7]).loc["a", "survival"].nunique() == 1
    whole, part = (exact.restricted_mean(until).loc["a", "estimate"] for until in (24.0, 24.5))
    assert part - whole == pytest.approx(0.5 * exact.at(24.0).loc["a"].iloc[0, 0])


def test_restricted_means_end_at_any_time(fitted):
    edge = float(fitted.times[30])
    middle = fitted.restricted_mean(edge + 0.1)
    before, after = fitted.restricted_mean(edge), fitted.restricted_mean(float(fitted.times[31]))
    assert (before["estimate"] < middle["estimate"]).all()
    assert (middle["estimate"] < after["estimate"]).all()
    with pytest.raises(ArgumentError, match="until="):
        fitted.restricted_mean(0.0)


def test_differences_and_ratios_of_pairs_hold_together(three):
    result = three.fit(**BUDGET)
    joint, single = result.difference(20.0), result.difference(20.0, simultaneous=False)
    assert list(joint.index) == ["b - a", "c - a", "c - b"]
    assert (joint["0.975]"] > single["0.975]"]).all()
    assert joint["estimate"].tolist() == single["estimate"].tolist()
    assert joint.loc["c - b", "estimate"] == pytest.approx(
        joint.loc["c - a", "estimate"] - joint.loc["b - a", "estimate"]
    )
    test = result.logrank()
    pairs, alone = test.pairwise(), test.pairwise(simultaneous=False)
    assert list(pairs.table.index) == ["b to a", "c to a", "c to b"]
    assert (pairs.table["0.975]"] > alone.table["0.975]"]).all()
    assert (pairs.pvalues >= alone.pvalues).all()
    assert pairs.table["pvalue"].tolist() == pairs.tidy()["p_value"].tolist() == pairs.pvalues.tolist()
    assert test.pairwise(0.8).table.shape == (3, 5)
    for ratios, jointly in ((pairs, True), (alone, False)):
        assert ("hold jointly" in " ".join(str(ratios.summary()).split())) == jointly
        assert ("joint interval" in ratios.to_latex()) == jointly
        assert "p-value" in ratios.to_latex()
        assert "3 pairs" in repr(ratios)
        assert ratios.to_dict()["test"]["p_value"] is None
    with pytest.raises(NotAvailableError, match="pvalues has the p-value of each pair"):
        _ = pairs.pvalue
    assert any("pairwise" in note for note in test.notes)
    with pytest.raises(ArgumentError, match=r"pairwise\(\)"):
        _ = test.hazard_ratio
    with pytest.raises(ArgumentError, match="weights='logrank'"):
        result.logrank("gehan").pairwise()


def test_without_noise_a_pair_is_that_of_statsmodels(three):
    rows = people(6000, 5)
    exact = three.fit(**NONE)
    arms = np.where(np.random.default_rng(2).random(len(rows)) < 0.3, "c", rows["arm"])
    two = arms != "a"
    _, pvalue = sm.duration.survdiff(
        np.minimum(rows["months"][two], 60.5), (rows["state"] == "dead")[two] * 1, arms[two]
    )
    assert exact.logrank().pairwise(simultaneous=False).pvalues["c to b"] == pytest.approx(pvalue, abs=0.02)


def test_two_groups_have_one_pair(fitted):
    ratio = fitted.logrank().hazard_ratio
    pair = fitted.logrank().pairwise()
    assert pair.table.drop(columns="pvalue").iloc[0].tolist() == pytest.approx(list(ratio[1:]))
    assert pair.pvalue == pytest.approx(fitted.logrank().pvalue)
    one = pi.survival.KaplanMeier("months", "state", event="dead", data=people(), schema=SCHEMA).fit(**BUDGET)
    with pytest.raises(ArgumentError, match="at least two groups"):
        one.difference(12.0)


def test_holm_adjusts_in_order():
    assert holm(np.array([0.01, 0.04, 0.03, np.nan])).tolist()[:3] == [0.04, 0.09, 0.09]


# ---- sites


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_sites_have_the_sums_of_one_table(table, trust):
    one = model(table).fit(**NONE)
    several = model(table, sites="hospital", trust=trust).fit(**NONE)
    assert np.abs(several.release.values - one.release.values).max() < 1e-8
    assert several.release.sites == 3
    assert several.release.trust == trust
    noisy = model(table, sites="hospital", trust=trust).fit(epsilon=1.0, delta=1e-6)
    assert noisy.release.scale >= one.release.scale
    assert abs(noisy.median().loc["a", "estimate"] - one.median().loc["a", "estimate"]) < 5.0
    assert "Sites:" in str(noisy.summary())


def test_a_federation_of_tables(table):
    policy = SitePolicy(trusted_server=True, simulation=True)
    sites = {
        name: Site(Rows(part.drop(columns="hospital")), SCHEMA, policy=policy)
        for name, part in table.groupby("hospital")
    }
    result = model(InProcessFederation(sites)).fit(**NONE)
    assert np.abs(result.release.values - model(table).fit(**NONE).release.values).max() < 1e-8
    with pytest.raises(ArgumentError, match="only for rows in one place"):
        model(InProcessFederation(sites), trust="central")
    with pytest.raises(ArgumentError, match="max_colluding"):
        model(table).fit(epsilon=1.0, delta=1e-6, max_colluding=1)


# ---- missing values


def test_rows_with_missing_values_are_dropped_and_counted(table):
    rng = np.random.default_rng(1)
    gaps = table.copy()
    for name in ("months", "state", "arm"):
        gaps.loc[rng.random(len(gaps)) < 0.1, name] = None
    complete = gaps.dropna()
    with pytest.raises(SchemaError):
        model(gaps)
    exact = model(gaps, missing="drop").fit(**NONE)
    assert exact.complete.rows == len(complete)
    of_complete = model(complete).fit(**NONE).table
    assert exact.table.to_numpy() == pytest.approx(of_complete.to_numpy(), rel=1e-6, abs=1e-9, nan_ok=True)
    noisy = model(gaps, missing="drop").fit(**BUDGET)
    low, high = noisy.complete.interval
    assert low - 10 <= len(complete) <= high + 10
    assert f"{noisy.nobs:d}" in str(noisy.summary())
    assert noisy.to_dict()["complete"]["of"] == len(table)
    assert noisy.release.scale == pytest.approx(model(table).fit(**BUDGET).release.scale, rel=1e-6)


# ---- what is refused


def test_ledgers_refuse_before_anything_is_read(table):
    ledger = pi.Ledger(pi.Budget(epsilon=0.5, delta=1e-6))
    with pytest.raises(BudgetExceededError):
        model(table, ledger=ledger).fit(**BUDGET)
    assert len(ledger.entries) == 0
    ledger = pi.Ledger(pi.Budget(epsilon=2.0, delta=1e-5))
    result = model(table, ledger=ledger).fit(**BUDGET)
    assert len(ledger.entries) == 1
    assert result.release.entries == tuple(ledger.entries)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"grid": 0}, ArgumentError, "grid"),
        ({"grid": 5000}, ArgumentError, "grid"),
        ({"grid": [3.0, 2.0]}, ArgumentError, "grid"),
        ({"grid": [1.0, 2.0], "horizon": 2.0}, ArgumentError, "horizon"),
        ({"horizon": 90.0}, ArgumentError, "horizon"),
        ({"discrete": True}, ArgumentError, "discrete"),
        ({"bounds": (0, 60)}, ArgumentError, "bounds"),
        ({"missing": "impute-public"}, NotAvailableError, "imputed times"),
        ({"trust": "local"}, ArgumentError, "trust"),
    ],
)
def test_options_that_do_not_fit_are_refused(table, options, error, text):
    with pytest.raises(error, match=text):
        model(table, **options)


STATUS_CALLS = {
    "KaplanMeier": lambda status, **words: pi.survival.KaplanMeier("months", status, **words),
    "NelsonAalen": lambda status, **words: pi.survival.NelsonAalen("months", status, **words),
    "logrank": lambda status, **words: pi.survival.logrank("months", status, "hospital", **words, **BUDGET),
    "PHReg": lambda status, **words: pi.PHReg.from_formula("months ~ hospital", status=status, **words),
}


@pytest.mark.parametrize("call", STATUS_CALLS)
def test_a_factor_of_texts_is_not_taken_for_a_status(call):
    """Groups that are passed as the status are refused by the schema, before any row is read."""
    schema = pi.Schema(
        {"months": (0, 60), "sex": ["f", "m"], "state": ["alive", "dead"], "hospital": ["x", "y"]}
    )
    unread = pd.DataFrame({name: [None, None] for name in schema.columns})
    words = {"data": unread, "schema": schema}
    with pytest.raises(SchemaError, match=r"status 'sex' has the text levels 'f' and 'm'.*event='m'.*groups"):
        STATUS_CALLS[call]("sex", **words)
    with pytest.raises(SchemaError, match=r"event='alive' is the first level.*declare it as the second"):
        STATUS_CALLS[call]("state", event="alive", **words)
    with pytest.raises(ArgumentError, match="event= must be a level of the status 'state'"):
        STATUS_CALLS[call]("state", event="gone", **words)
    codes = pi.Schema({"months": (0, 60), "died": (0, 1), "hospital": ["x", "y"]})
    with pytest.raises(ArgumentError, match="leave event= out"):
        STATUS_CALLS[call]("died", event="dead", data=unread, schema=codes)


@pytest.mark.parametrize("levels", [[0, 1], [1, 2], [False, True], ["0", "1"]])
def test_levels_that_are_codes_need_no_event(levels):
    rng = np.random.default_rng(0)
    died = rng.integers(0, 2, 500)
    frame = pd.DataFrame({"months": rng.uniform(1.0, 50.0, 500), "died": np.array(levels)[died]})
    schema = pi.Schema({"months": (0, 60), "died": levels})
    plain = pi.survival.KaplanMeier("months", "died", data=frame, schema=schema).fit(**NONE)
    named = pi.survival.KaplanMeier("months", "died", event=levels[1], data=frame, schema=schema).fit(**NONE)
    assert plain.table["events"].sum() == died.sum()
    assert named.table.equals(plain.table)


@pytest.mark.parametrize("name", ["entry", "strata", "exog", "freq_weights"])
def test_what_is_not_available_is_refused_by_name(table, name):
    with pytest.raises(NotAvailableError, match="not available"):
        model(table, **{name: "hospital"})


def test_columns_that_do_not_fit_are_refused(table):
    three = pi.Schema({"months": (0, 60), "state": ["a", "b", "c"], "arm": ["a", "b"]})
    with pytest.raises(SchemaError, match="Competing risks"):
        pi.survival.KaplanMeier("months", "state", data=table, schema=three)
    units = pi.Schema(
        {"months": (0, 60), "state": ["alive", "dead"], "arm": ["a", "b"]}, unit="hospital", max_rows=5
    )
    with pytest.raises(NotAvailableError, match="one row for each person"):
        pi.survival.KaplanMeier("months", "state", event="dead", data=table, schema=units)
    with pytest.raises(SensitivityError, match="schema"):
        pi.survival.KaplanMeier("months", "state", event="dead", data=table)
    with pytest.raises(SensitivityError, match="public end"):
        pi.survival.KaplanMeier(table["months"].to_numpy(), (table["state"] == "dead").to_numpy() * 1)
    with pytest.raises(ArgumentError, match="at least two groups"):
        pi.survival.KaplanMeier("months", "state", event="dead", data=table, schema=SCHEMA).fit(
            **BUDGET
        ).logrank()
    with pytest.raises(ArgumentError, match="different columns"):
        pi.survival.KaplanMeier("months", "state", event="dead", by="state", data=table, schema=SCHEMA)


# ---- plans


def test_a_plan_has_the_power_of_simulated_tests():
    plan = pi.survival.plan_logrank(hazard_ratio=1.35, survival=0.5, dropout=0.3, mu=0.4, grid=16)
    n, draws = 700, 150
    rejected = 0
    for draw in range(draws):
        rng = np.random.default_rng([3, draw])
        group = rng.integers(0, 2, n)
        event = rng.exponential(1.0 / (-math.log(0.5) * np.where(group == 1, 1.35, 1.0)))
        end = rng.exponential(1.0 / -math.log(0.7), n)
        test = pi.survival.logrank(
            np.minimum(event, end),
            (event <= end) * 1,
            group,
            levels=[0, 1],
            horizon=1.0,
            grid=16,
            mu=0.4,
            rng=rng,
        )
        rejected += test.pvalue < 0.05
    power = plan.power(n)
    assert 0.3 < power < 0.95
    assert abs(rejected / draws - power) < 3.0 * math.sqrt(power * (1.0 - power) / draws)
    assert plan.power(plan.n_for(0.8)) == pytest.approx(0.8, abs=0.01)
    low, high = plan.interval(5000)
    assert low < 1.35 < high
    assert plan.n_for(0.9) > plan.n_for(0.8)
    with pytest.raises(ArgumentError, match="level alpha="):
        plan.n_for(0.01)
    with pytest.raises(ArgumentError, match="people"):
        pi.survival.plan_logrank(hazard_ratio=1.0, survival=0.5, mu=1.0).n_for(0.8)


# ---- results


def test_what_the_noise_hides_is_named():
    few = people(150, 4)
    result = model(few).fit(**BUDGET)
    assert min(result.last_times.values()) < 60.0
    assert "numbers at risk are known well enough" in "".join(result.notes)
    late = result.table.loc["b"].iloc[-1]
    assert math.isnan(late["survival"])
    assert late["[0.025"] == 0.0
    ratio = result.logrank()
    assert ratio.rows[0].high == math.inf or ratio.rows[0].low == 0.0
    assert any("unbounded" in note for note in ratio.notes)
    with pytest.raises(ArgumentError, match="until="):
        result.restricted_mean(60.0)


def test_results_can_be_stored_and_exported(fitted):
    copy = pickle.loads(pickle.dumps(fitted))
    assert copy.table.equals(fitted.table)
    assert pickle.loads(pickle.dumps(fitted.logrank())).pvalue == fitted.logrank().pvalue
    content = json.loads(fitted.to_json())
    assert len(content["estimates"]) == 128
    assert content["table"]["title"] == "Kaplan-Meier Curve"
    assert json.loads(fitted.logrank().to_json())["test"]["df"] == 1.0
    assert "survival up to 60" in str(fitted.summary())
    assert fitted.summary(notes="all").as_html()
    assert "rows not shown" in repr(model(people(100)))
    with pytest.raises(TypeError):
        pickle.dumps(model(people(100)))


def test_results_are_saved_without_pickle(fitted, table, tmp_path):
    for result in (
        fitted,
        fitted.nelson_aalen().intervals(0.9),
        fitted.logrank("fleming-harrington", exponent=0.5),
        fitted.logrank().pairwise(0.8, simultaneous=False),
    ):
        path = tmp_path / f"{result.title} {result.confidence_level}.npz"
        result.save(path, key=b"k" * 16)
        copy = type(result).load(path, key=b"k" * 16)
        assert str(copy.summary(notes="all")) == str(result.summary(notes="all"))
        assert np.array_equal(copy.release.values, fitted.release.values)
        assert copy.privacy.epsilon() == fitted.privacy.epsilon()
        with pytest.raises(ArgumentError, match="already exists"):
            result.save(path)
        with pytest.raises(StorageError, match="key"):
            type(result).load(path)
    path = tmp_path / "plain.npz"
    fitted.save(path)
    with pytest.raises(ArgumentError, match="load it with the class SurvivalResult"):
        pi.survival.LogRankResult.load(path)
    with pytest.raises(StorageError, match=r"load it with privinf\.survival\.SurvivalResult\.load"):
        pi.load_results(path)
    fitted.to_json(tmp_path / "curves.json")
    with pytest.raises(StorageError, match=r"JSON export of a result \(format 'privinf-table'\)"):
        pi.load_results(tmp_path / "curves.json")
    fitted.report(tmp_path / "curves.html")
    page = (tmp_path / "curves.html").read_text()
    assert all(text in page for text in (fitted.title, fitted.privacy.stamp, "Trade-off curve", "<img"))
    with pytest.raises(NotAvailableError, match="must not be saved"):
        model(table).fit(**NONE).save(tmp_path / "exact.npz")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("groups", ["a"]),
        ("groups", ["a", "a"]),
        ("names", ["months"]),
        ("scale", -1.0),
        ("scale", 0.0),
        ("discrete", "no"),
        ("nobs", 1),
        ("trust", "nobody"),
        ("missing", "impute"),
        ("view", {"class": "SurvivalResult", "kind": "area", "confidence_level": 0.95}),
        ("view", []),
        ("report", {}),
    ],
)
def test_files_with_other_content_are_refused(fitted, tmp_path, name, content):
    path = tmp_path / "changed.npz"
    fitted.save(path)
    arrays, header = read_container(path, format="privinf-survival")
    write_container(path, arrays, header | {name: content}, format="privinf-survival")
    with pytest.raises(StorageError, match=r"damaged|describe|not a"):
        pi.survival.SurvivalResult.load(path)


def test_results_are_tables_for_papers(fitted):
    text = fitted.to_latex(digits=2, caption="Survival & more", label="tab:km")
    assert "a: median" in text
    assert r"\caption{Survival \& more}" in text
    assert "epsilon = 1" in text
    test = fitted.logrank().to_latex()
    assert "hazard ratio, b to a" in test
    assert "statistic =" in test
    pages = fitted.to_html(digits=2, caption="Survival & more"), fitted.logrank().to_html()
    assert "<caption>Survival &amp; more</caption>" in pages[0]
    assert pages[0].count('<th scope="row">') == text.split(r"\midrule")[1].count(r"\\")
    for page in pages:
        assert "Differential privacy: epsilon = 1" in page
    assert "hazard ratio, b to a" in pages[1]
    assert "statistic =" in pages[1]


def test_the_plot_has_steps_bands_and_numbers_at_risk(fitted):
    pytest.importorskip("matplotlib").use("Agg")
    ax = fitted.plot()
    assert len(ax.lines) == 2
    texts = [text.get_text() for text in ax.texts]
    risk = fitted.at_risk()
    assert all(f"{count:d}" in texts for count in risk["a"])
    assert risk.loc[0.0].sum() == pytest.approx(4000, abs=1)
    assert len(fitted.logrank().plot().get_yticklabels()) == len(fitted.logrank().rows)
    assert fitted.nelson_aalen().plot().get_ylabel().startswith("cumulated hazard")
    assert list(fitted.at_risk([0.0, 30.0]).index) == [0.0, 30.0]


def test_an_exponent_is_refused_before_the_charge(table):
    ledger = pi.Ledger()
    with pytest.raises(pi.errors.ArgumentError, match="exponent=-1"):
        pi.survival.logrank(
            "months",
            "state",
            "arm",
            event="dead",
            data=table,
            schema=SCHEMA,
            weights="fleming-harrington",
            exponent=-1,
            ledger=ledger,
            **BUDGET,
        )
    assert not ledger.entries


@pytest.mark.parametrize("code", [lambda s: s + 1, lambda s: 0.3 * s, lambda s: np.where(s, "dead", "alive")])
def test_other_codes_of_a_status_are_refused_before_the_charge(code):
    """Clipped to 1, the statuses 1 and 2 of R would all be events."""
    rng, ledger = np.random.default_rng(0), pi.Ledger()
    time, status = rng.exponential(3.0, 400), rng.integers(0, 2, 400)
    words = {"horizon": 6.0, "ledger": ledger}
    with pytest.raises(SchemaError, match="such as the 1 and 2 of R"):
        pi.survival.KaplanMeier(time, code(status), **words).fit(mu=1.0, rng=0)
    with pytest.raises(SchemaError, match="such as the 1 and 2 of R"):
        pi.PHReg(time, rng.uniform(-1, 1, (400, 1)), status=code(status), bounds=[(-1, 1)], **words)
    assert not ledger.entries
    for good in (status, status > 0, status.astype(float), pd.array(status, dtype="Int64")):
        pi.survival.KaplanMeier(time, good, **words)


@pytest.mark.parametrize("share", [0.0, 0.04])
def test_codes_of_missing_times_are_named(share, tmp_path):
    """They count as times of 0, and the curve is too low."""
    coded = people(8000)
    coded.loc[: share * len(coded) - 1, "months"] = -9.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        curves = model(coded).fit(**BUDGET)
        test = pi.survival.logrank(
            "months", "state", event="dead", by="arm", data=coded, schema=SCHEMA, **BUDGET
        )
    texts = [str(item.message) for item in caught]
    named = "of the times are negative. They count as times of 0"
    assert sum(named in text for text in texts) == (2 if share else 0)
    count, sd = curves.release.negative_times
    assert abs(count - share * len(coded)) < 4.0 * sd
    curves.save(tmp_path / "curves")
    loaded = pi.survival.SurvivalResult.load(tmp_path / "curves")
    assert loaded.release.negative_times == (count, sd)
    for result in (curves, loaded, curves.nelson_aalen(), curves.logrank(), test):
        assert any(named in note for note in result.notes) == bool(share)
        assert (named[:24] in " ".join(str(result.summary()).split())) == bool(share)
    months = pi.Numeric(0, 60, missing_codes=[-9])
    schema = pi.Schema({"months": months, "state": ["alive", "dead"], "arm": ["a", "b"]})
    declared = pi.survival.KaplanMeier(
        "months", "state", event="dead", by="arm", data=coded, schema=schema, missing="drop"
    ).fit(**BUDGET)
    assert not any(named in note for note in declared.notes)


def test_one_interval_has_no_number_of_negative_times():
    rng = np.random.default_rng(0)
    time, status = rng.exponential(3.0, 400), rng.integers(0, 2, 400)
    assert pi.survival.KaplanMeier(time, status, grid=[6.0]).fit(**BUDGET).release.negative_times is None


def test_a_summary_prints_times_at_which_the_curve_is_estimated():
    """Most of the follow-up has hardly anybody at risk: rows there would be blank."""
    rng = np.random.default_rng(8)
    time = np.minimum(rng.exponential(20.0, 600), 240.0)
    result = pi.survival.KaplanMeier(time, time < 240.0, horizon=240.0).fit(epsilon=1.0, delta=1e-6, rng=0)
    shown = [row[0] for row in result._paper_rows() if row[0].startswith("survival at")]
    assert len(shown) >= 2
    assert all(float(name.split()[-1]) <= result.last_times["all"] for name in shown)
    text = " ".join(str(result.summary()).split())
    assert "earlier public horizon=" in text
    longer = pi.survival.KaplanMeier(time, time < 240.0, horizon=30.0).fit(epsilon=1.0, delta=1e-6, rng=0)
    assert [row[0] for row in longer._paper_rows()][-1] == "survival at 30"
    assert "still at risk at 30" in " ".join(str(longer.summary()).split())
    assert "horizon=" not in str(longer.summary(notes="all"))


def test_competing_events_are_refused_with_a_remedy():
    frame = pd.DataFrame({"t": [1.0, 2.0, 3.0], "end": ["alive", "dead", "moved"]})
    schema = pi.Schema({"t": (0, 5), "end": ["alive", "dead", "moved"]})
    with pytest.raises(SchemaError, match="make a column that is 1 for this event"):
        pi.survival.KaplanMeier("t", "end", data=frame, schema=schema)


def test_the_noise_of_numbers_at_risk_and_of_events_is_stated():
    g = np.random.default_rng(0)
    time, status = g.uniform(0.0, 12.0, 500), g.integers(0, 2, 500)
    model = pi.survival.KaplanMeier(time, status, bounds=(0, 12), grid=6)
    exact = model.fit(epsilon=np.inf)
    assert not exact.count_noise.to_numpy().any()
    assert "their noise has standard errors" not in " ".join(exact.notes)
    fits = [model.fit(epsilon=1.0, delta=1e-6, rng=seed) for seed in range(60)]
    noise = fits[0].count_noise
    errors = {
        "at risk": [fit._cells.at_risk[0] - exact._cells.at_risk[0] for fit in fits],
        "events": [fit._cells.D[0] - exact._cells.D[0] for fit in fits],
    }
    for name, draws in errors.items():
        sds = np.sqrt(np.mean(np.square(draws), axis=0))
        assert 0.8 < np.median(sds[1:] / noise[name].to_numpy()[1:]) < 1.25
    assert "their noise has standard errors" in " ".join(fits[0].notes)


# ---- names and arguments of other packages


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("print_summary", r"print\(curves.summary\(\)\)"),
        ("median_survival_time_", r"curves.median\(\)"),
        ("confidence_interval_", "curves.table has intervals and bands"),
        ("survival_function_", r"curves.at\(times\)"),
        ("conf_int", r"curves.intervals\(0.9\)"),
        ("baseline_cumulative_hazard", r"curves.nelson_aalen\(\).table"),
        ("event_table", r"curves.at_risk\(times\)"),
    ],
)
def test_attributes_of_other_packages_have_remedies(fitted, name, remedy):
    assert not hasattr(fitted, name)
    with pytest.raises(NotAvailableError, match=f"{name} is not available: .*{remedy}"):
        getattr(fitted, name)
    assert name not in dir(fitted)
    assert {"median", "table", "logrank"} <= set(dir(fitted))
    test = fitted.logrank()
    assert "p_value" not in dir(test)
    with pytest.raises(NotAvailableError, match=r"result\.pvalue is the p-value"):
        test.p_value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda curves: curves.plot(ci_show=True), "of SurvivalResult.plot: a plot always shows the bands"),
        (lambda curves: curves.median(alpha=0.1), "of SurvivalResult.median: call .*intervals"),
        (lambda curves: curves.intervals(alpha=0.1), "pass confidence_level=, such as 0.95"),
        (lambda curves: curves.at([12], simultaneous=True), "of SurvivalResult.at: bands of curves.table"),
        (lambda curves: pi.survival.KaplanMeier(), r"^KaplanMeier\(\) needs time="),
        (lambda curves: pi.survival.KaplanMeier("a", "b", tme=1), "not an argument of KaplanMeier: did you"),
        (lambda curves: pi.survival.NelsonAalen(durations=1), "of NelsonAalen: pass time=, the times"),
        (lambda curves: pi.PHReg(tme=1), "not an argument of PHReg: did you"),
        (lambda curves: pi.survival.SurvfuncRight, "use KaplanMeier"),
        (lambda curves: pi.survival.CoxPHFitter, "use privinf.PHReg"),
        (lambda curves: pi.SurvfuncRight, "use privinf.survival.KaplanMeier"),
    ],
)
def test_arguments_of_other_packages_name_what_the_user_knows(fitted, call, message):
    with pytest.raises((ArgumentError, AttributeError, TypeError), match=message) as caught:
        call(fitted)
    assert not any(word in str(caught.value) for word in ("_CurveModel", "PortableCurves"))


@pytest.mark.parametrize("by", [None, "arm"])
def test_the_note_on_noise_names_groups_only_if_there_are_groups(table, by):
    curves = pi.survival.KaplanMeier("months", "state", event="dead", by=by, data=table, schema=SCHEMA)
    fitted = curves.fit(**BUDGET)
    note = next(text for text in fitted.notes if "Numbers at risk and of events" in text)
    assert ("in each group" in note) == (by is not None)
    least = float(note.split("standard errors of ")[1].split()[0])
    assert least > 0.01  # the number at risk at time 0 is public, and its noise is rounding
