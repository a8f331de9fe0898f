"""PHReg: Cox's regression without noise, intervals, storage, sites, messages."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from statsmodels.duration.hazard_regression import PHReg

import privinf as pi
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    BudgetExceededError,
    ChangedTargetWarning,
    MisfitWarning,
    NotAvailableError,
    PrivinfError,
    SchemaError,
)
from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.federation.secure.site import noisy_words
from privinf.glm.hazards.results import _draw_notes, long_steps
from privinf.mechanisms.rows import Rows
from privinf.noise import SimulationNoise
from privinf.results.notes import sentence

SLOPES = {"group[T.b]": -0.5, "treated": 0.4, "age": 0.03}
SCHEMA = pi.Schema(
    {"time": (0.0, 2.0), "event": (0, 1), "treated": (0, 1), "age": (20.0, 90.0), "group": ["a", "b"]}
)
FORMULA = "time ~ treated + age + group"
SPEND = {"epsilon": 4.0, "delta": 1e-6, "rng": 0}


def table(n=8_000, seed=0, scale=0.3):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "treated": (rng.random(n) < 0.4).astype(float),
            "age": rng.uniform(20.0, 90.0, n),
            "group": np.array(["a", "b"], dtype=object)[(rng.random(n) < 0.3).astype(int)],
        }
    )
    eta = 0.4 * frame["treated"] + 0.03 * (frame["age"] - 55.0) - 0.5 * (frame["group"] == "b")
    failure = rng.exponential(size=n) / (scale * np.exp(eta))
    end = rng.uniform(0.5, 3.0, n)
    frame["time"] = np.minimum(np.minimum(failure, end), 2.0)
    frame["event"] = ((failure <= end) & (failure <= 2.0)).astype(float)
    return frame


def fitted(frame=None, **options):
    frame = table() if frame is None else frame
    model = pi.PHReg.from_formula(FORMULA, frame, status="event", schema=SCHEMA)
    return model.fit(**{**SPEND, **options})


@pytest.fixture(scope="module")
def result():
    return fitted()


def test_a_ledger_names_the_status_and_not_as_a_regressor(result):
    ledger = pi.Ledger()
    frame = table(3_000)
    pi.PHReg.from_formula(FORMULA, frame, status="event", schema=SCHEMA, ledger=ledger).fit(**SPEND)
    named = frame.assign(**{"is dead": np.where(frame["event"] == 1, "yes", "no")}).drop(columns="event")
    levels = pi.Schema(
        {**{name: SCHEMA[name] for name in ("time", "treated", "age")}, "is dead": ["no", "yes"]}
    )
    model = pi.PHReg.from_formula(
        "time ~ treated + age", named, status="is dead", event="yes", schema=levels, ledger=ledger
    )
    model.fit(**SPEND)
    X = frame[["treated", "age"]]
    options = {"bounds": [(0, 1), (20, 90)], "horizon": 2.0, "ledger": ledger}
    pi.PHReg(frame["time"], X, status=frame["event"], **options).fit(**SPEND)
    assert [fit.subject for fit in ledger.fits] == [
        f"PHReg: {FORMULA}, status=event",
        "PHReg: time ~ treated + age, status=is dead",
        "PHReg: time ~ treated + age, status=status",
    ]


def test_sites_are_told_which_column_is_the_status():
    frame = table(3_000)
    policy = SitePolicy(simulation=True, trusted_server=True)
    parts = {"north": frame[:1_500], "south": frame[1_500:]}
    sites = {name: Site(Rows(part, None), SCHEMA, policy=policy) for name, part in parts.items()}
    federation = InProcessFederation(sites)
    model = pi.PHReg.from_formula(FORMULA, federation, status="event", schema=SCHEMA)
    model.fit(**SPEND)
    for site in sites.values():
        (charged,) = site.ledger.fits
        assert f'described as "PHReg: {FORMULA}, status=event"' in charged.subject


def test_without_noise_it_is_coxs_regression_with_robust_errors():
    frame = table(3_000)
    fit = fitted(frame, epsilon=math.inf, rng=None)
    columns = np.column_stack([frame["group"] == "b", frame["treated"], frame["age"]]).astype(float)
    model = PHReg(frame["time"], columns, status=frame["event"], ties="breslow")
    reference = model.fit(groups=np.arange(3_000))
    assert list(fit.names) == list(SLOPES)
    assert (np.abs(fit.params.to_numpy() - reference.params) < 0.02 * reference.bse).all()
    np.testing.assert_allclose(fit.bse, reference.bse, rtol=0.05)
    assert math.isinf(fit.follow_up)
    assert fit.events_after_stop == fit.events_after_stop_se == 0.0


def test_intervals_and_ratios(result):
    truth = np.array(list(SLOPES.values()))
    assert (np.abs(result.params - truth) < 4.0 * result.bse).all()
    assert (result.bse > result.bse_sampling).all()
    ends = result.conf_int().to_numpy()
    ratios = result.hazard_ratios()
    np.testing.assert_allclose(ratios["hazard ratio"], np.exp(result.params))
    np.testing.assert_allclose(ratios.to_numpy()[:, 1:], np.exp(ends))
    test = result.t_test("treated = 0")
    assert test.pvalue == pytest.approx(result.pvalues["treated"], rel=0.05)
    assert result.wald_test("treated = age = 0").pvalue < 0.001
    assert result.cov_type == "HC0"
    assert result.simultaneous(rng=0).conf_int().shape == (3, 2)


def test_summary_names_follow_up_status_and_hazard_ratios(result):
    text = str(result.summary())
    assert "PHReg Results" in text
    assert "HR" in text
    assert f"{math.exp(result.params['treated']):.3f}" in text
    assert "event" in text
    assert result.target.startswith("Cox with follow-up to 2, 64")
    assert "Events:" in text
    assert "Family" not in text


def test_a_long_tail_of_hazards_is_cut_and_said():
    """High risks early on: much of what happens, happens after the stop."""
    rng = np.random.default_rng(1)
    n = 4_000
    x = rng.uniform(-1.0, 1.0, (n, 2))
    failure = rng.exponential(size=n) / (2.0 * np.exp(x @ [1.5, 1.0]))
    model = pi.PHReg(np.minimum(failure, 2.0), x, status=failure <= 2.0, bounds=[(-1, 1)] * 2, horizon=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = model.fit(epsilon=1.0, delta=1e-6, rng=0)
    assert fit.events_after_stop > 0.02
    assert 0.001 < fit.events_after_stop_se < 0.1
    assert f"standard error of the noise {fit.events_after_stop_se:.1%}" in fit.target
    assert fit.follow_up <= 3.0
    assert "high-risk records followed up to" in fit.target
    assert "followed up" in str(fit.summary())
    with pytest.warns(MisfitWarning, match="events come later.*an earlier horizon= makes"):
        fit.conf_int()


def test_a_column_with_a_long_tail_is_named():
    rng = np.random.default_rng(2)
    n = 6_000
    tail = np.minimum(np.exp(0.8 * rng.standard_normal(n)), 40.0)
    x = np.column_stack([tail, rng.uniform(-1.0, 1.0, n)])
    failure = rng.exponential(size=n) / (0.5 * tail**0.5 * np.exp(0.5 * x[:, 1]))
    model = pi.PHReg(
        np.minimum(failure, 2.0), x, status=failure <= 2.0, bounds=[(0, 40), (-1, 1)], horizon=2.0
    )
    fit = model.fit(epsilon=2.0, delta=1e-6, rng=0)
    with pytest.warns(MisfitWarning, match="far out in x1 have less weight.*if the effect is linear"):
        fit.conf_int()
    assert "less weight" in " ".join(str(fit.summary()).split())


def test_rare_levels_have_a_remedy_that_levels_have():
    """An indicator has no logarithm and no tighter bounds."""
    rng = np.random.default_rng(1)
    n = 8_000
    rows = pd.DataFrame(
        {
            "arm": rng.choice(["usual", "early"], n),
            "centre": rng.choice(["Lyon", "Porto"], n, p=[0.98, 0.02]),
            "age": rng.uniform(20.0, 90.0, n),
        }
    )
    hazard = 0.02 * np.exp(0.03 * (rows["age"] - 55.0) - 0.4 * (rows["arm"] == "early"))
    failure = rng.exponential(size=n) / hazard
    end = rng.uniform(6.0, 60.0, n)
    rows["months"], rows["dead"] = np.minimum(failure, end), (failure <= end) * 1
    schema = pi.Schema(
        {
            "months": (0, 60),
            "dead": (0, 1),
            "arm": ["usual", "early"],
            "centre": ["Lyon", "Porto"],
            "age": (20, 90),
        }
    )
    for formula, remedy in {
        "months ~ age + arm*centre": r"levels \(pi.Factor.*leave out their interactions",
        "months ~ age + arm + centre": r"levels \(pi.Factor\(\[...\], other=...\)\), add records or budget",
    }.items():
        model = pi.PHReg.from_formula(formula, rows, status="dead", schema=schema)
        fit = model.fit(epsilon=4.0, delta=1e-6, rng=0)
        with pytest.warns(
            MisfitWarning, match=rf"the few records with centre\[T.Porto\].*{remedy}"
        ) as caught:
            fit.conf_int()
        assert not any(word in str(caught[0].message) for word in ("logarithm", "bounds"))


def test_a_long_tail_is_seen_where_noise_hides_the_variance_of_the_column():
    """The Gram's noise is as large as the variance of the column; the final Hessian's is not."""
    rng = np.random.default_rng(2)
    n = 6_000
    tail = np.minimum(rng.exponential(size=n), 20.0)
    x = np.column_stack([tail, rng.uniform(-1.0, 1.0, (n, 3))])
    failure = rng.exponential(size=n) / (0.5 * np.exp(0.3 * np.sqrt(tail) + 0.5 * x[:, 1]))
    bounds = [(0, 20), (-1, 1), (-1, 1), (-1, 1)]
    model = pi.PHReg(np.minimum(failure, 2.0), x, status=failure <= 2.0, bounds=bounds, horizon=2.0)
    with pytest.warns(MisfitWarning, match="far out in x1 have less weight"):
        model.fit(epsilon=1.0, delta=1e-6, rng=0).conf_int()


def test_a_hazard_that_is_steep_at_0_is_named():
    rng = np.random.default_rng(2)
    n = 6_000
    x = rng.uniform(-1.0, 1.0, (n, 2))
    failure = rng.exponential(size=n) / (0.5 * np.exp(0.5 * x[:, 1]))
    event = (failure <= 2.0) & (rng.random(n) < 0.9)
    time = np.where(event, failure, 40.0)
    steep = pi.PHReg(time, x, status=event, bounds=[(-1, 1)] * 2, horizon=40.0)
    with pytest.warns(MisfitWarning, match="first eighth of the follow-up"):
        steep.fit(epsilon=2.0, delta=1e-6, rng=0).conf_int()
    short = pi.PHReg(time, x, status=event, bounds=[(-1, 1)] * 2, horizon=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # times beyond the horizon are censored, not clipped
        short.fit(epsilon=2.0, delta=1e-6, rng=0).conf_int()


def test_following_the_model_follows_less_and_is_narrower():
    rng = np.random.default_rng(1)
    n = 20_000
    x = rng.uniform(-1.0, 1.0, (n, 2))
    failure = rng.exponential(size=n) / (2.0 * np.exp(x @ [1.5, 1.0]))
    model = pi.PHReg(np.minimum(failure, 2.0), x, status=failure <= 2.0, bounds=[(-1, 1)] * 2, horizon=2.0)
    longest = model.fit(epsilon=1.0, delta=1e-6, rng=0)
    short = model.fit(epsilon=1.0, delta=1e-6, rng=0, follow_up="model")
    assert short.follow_up < longest.follow_up
    assert short.bse_privacy.sum() < longest.bse_privacy.sum()
    with pytest.raises(ArgumentError, match="follow_up"):
        model.fit(epsilon=1.0, delta=1e-6, follow_up="short")


def test_the_ledger_holds_the_budget(result):
    assert result.privacy.epsilon() == pytest.approx(4.0, rel=1e-3)
    ledger = pi.Ledger(budget=pi.Budget(epsilon=1.0, delta=1e-6))
    model = pi.PHReg.from_formula(FORMULA, table(), status="event", schema=SCHEMA, ledger=ledger)
    with pytest.raises(BudgetExceededError):
        model.fit(**SPEND)
    assert len(ledger.entries) == 0


def test_results_come_back_from_their_file(result, tmp_path):
    result.save(tmp_path / "fit")
    loaded = pi.load_results(tmp_path / "fit")
    assert type(loaded) is type(result)
    pd.testing.assert_series_equal(loaded.params, result.params)
    pd.testing.assert_frame_equal(loaded.conf_int(), result.conf_int())
    assert str(loaded.summary()) == str(result.summary())
    assert loaded.follow_up == result.follow_up


def test_a_fit_without_noise_comes_back_from_a_file_without_records(tmp_path):
    fit = fitted(table(2_000), epsilon=math.inf, rng=None)
    fit.save(tmp_path / "fit", records=False)
    loaded = pi.load_results(tmp_path / "fit")
    pd.testing.assert_series_equal(loaded.params, fit.params)
    assert loaded.follow_up == fit.follow_up == math.inf
    with pytest.raises(NotAvailableError, match="saved with records=False"):
        loaded.score_test("age = 0")


def test_arrays_and_formulas_are_one_model():
    frame = table()
    columns = frame[["treated", "age"]].assign(b=(frame["group"] == "b").astype(float))
    bounds = [(0, 1), (20, 90), (0, 1)]
    of_arrays = pi.PHReg(frame["time"], columns, status=frame["event"], bounds=bounds, horizon=2.0)
    by_name = pi.PHReg(
        frame["time"], columns.assign(event=frame["event"]), status="event", bounds=bounds, horizon=2.0
    )
    fits = [model.fit(epsilon=math.inf) for model in (of_arrays, by_name)]
    whole = fitted(frame, epsilon=math.inf, rng=None)
    for fit in fits:
        np.testing.assert_allclose(fit.params, whole.params.iloc[[1, 2, 0]], rtol=1e-4)
        np.testing.assert_allclose(fit.bse, whole.bse.iloc[[1, 2, 0]], rtol=1e-4)


def test_sites_are_the_pooled_table():
    frame = table(6_000)
    parts = {"north": frame[:2_500], "south": frame[2_500:]}
    policy = SitePolicy(simulation=True, trusted_server=True)
    held = InProcessFederation(
        {name: Site(Rows(part, None), SCHEMA, policy=policy) for name, part in parts.items()}
    )
    model = pi.PHReg.from_formula(FORMULA, held, status="event", schema=SCHEMA)
    pooled = fitted(frame, epsilon=math.inf, rng=None)
    np.testing.assert_allclose(model.fit(epsilon=math.inf).params, pooled.params, atol=1e-8)
    fit = model.fit(**SPEND)
    assert (np.abs(fit.params - pooled.params) < 5.0 * fit.bse_privacy).all()
    assert fit.privacy.epsilon() == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_arrays_of_sites(trust):
    frame = table(6_000)
    columns = frame[["treated", "age", "event"]]
    sites = {"a": (frame["time"][:3_000], columns[:3_000]), "b": (frame["time"][3_000:], columns[3_000:])}
    model = pi.PHReg.from_arrays(
        sites, status="event", bounds={"treated": (0, 1), "age": (20, 90)}, horizon=2.0, trust=trust
    )
    fit = model.fit(**SPEND)
    assert list(fit.names) == ["treated", "age"]
    assert (np.abs(fit.params - [0.4, 0.03]) < 6.0 * fit.bse).all()


def hospitals(frame):
    """Return a model of masked sums of three hospitals, and one of all rows at one trusted place."""
    named = frame.assign(hospital=np.array(["x", "y", "z"], dtype=object)[np.arange(len(frame)) % 3])
    sites = {
        name: (part["time"], part[["treated", "age", "event"]]) for name, part in named.groupby("hospital")
    }
    options = {"status": "event", "bounds": {"treated": (0, 1), "age": (20, 90)}, "horizon": 2.0}
    masked = pi.PHReg.from_arrays(sites, trust="secure-sum", **options)
    everyone = {"all": (frame["time"], frame[["treated", "age", "event"]])}
    return masked, pi.PHReg.from_arrays(everyone, trust="server", **options)


@pytest.fixture
def site_noise(monkeypatch):
    """Noise of each site in each masked sum, in the order of the sums; the sums stay what they are."""
    found = {}

    def kept(steps, terms, name):
        words = noisy_words(steps, terms, name)
        found.setdefault(name, []).append((words.view(np.int64) - steps) * terms.grid)
        return words

    monkeypatch.setattr("privinf.federation.site.noisy_words", kept)
    return found


def test_masked_sums_without_noise_have_the_coefficients_of_the_pooled_table(site_noise):
    masked, pooled = (model.fit(epsilon=math.inf) for model in hospitals(table(6_000)))
    assert masked.options["Sites"].startswith("3")
    assert len(site_noise) == 3
    assert not any(noise.any() for sums in site_noise.values() for noise in sums)
    np.testing.assert_allclose(masked.params, pooled.params, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(masked.bse, pooled.bse, rtol=0.0, atol=1e-8)


def test_masked_sums_with_the_noise_of_a_pooled_fit_have_its_coefficients(site_noise, monkeypatch):
    """Not to 1e-8: sites cut the numbers of a record to about 2^-20 of their bound; errors are of draws."""
    spend = {"mu": 0.84, "delta": 1e-6, "rng": 0}
    masked, pooled = hospitals(table(6_000))
    by_sites = masked.fit(**spend)
    other = pooled.fit(**spend)
    assert (np.abs(by_sites.params - other.params) > 0.01 * other.bse).any()
    totals = iter([sum(parts) for parts in zip(*site_noise.values(), strict=True)])
    monkeypatch.setattr(SimulationNoise, "perturb", lambda self, values, scale: values + next(totals))
    same = pooled.fit(**spend)
    assert next(totals, None) is None
    assert (np.abs(by_sites.params - same.params) < 1e-4 * same.bse).all()
    np.testing.assert_allclose(by_sites.bse, same.bse, rtol=0.05)


def test_a_file_is_the_table_that_it_holds(tmp_path):
    frame = table(3_000)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model = pi.PHReg.from_formula(FORMULA, str(tmp_path / "rows.csv"), status="event", schema=SCHEMA)
    np.testing.assert_array_equal(model.fit(**SPEND).params, fitted(frame).params)


def test_missing_values_are_refused_or_imputed():
    frame = table(3_000)
    frame.loc[:20, "age"] = np.nan
    with pytest.raises(SchemaError, match="missing values"):
        pi.PHReg.from_formula(FORMULA, frame, status="event", schema=SCHEMA).fit(**SPEND)
    model = pi.PHReg.from_formula(FORMULA, frame, status="event", schema=SCHEMA, missing="impute-public")
    assert "Missing values were replaced" in " ".join(model.fit(**SPEND).notes)


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_records_with_missing_values_are_dropped(epsilon):
    frame = table(8_000)
    rng = np.random.default_rng(3)
    for name, share in (("age", 0.2), ("event", 0.05), ("time", 0.05), ("group", 0.05)):
        frame.loc[rng.random(len(frame)) < share, name] = None
    model = pi.PHReg.from_formula(FORMULA, frame, status="event", schema=SCHEMA, missing="drop")
    spending = {"epsilon": epsilon} | ({} if math.isinf(epsilon) else {"delta": 1e-6, "rng": 0})
    fit = model.fit(**spending)
    complete = pi.PHReg.from_formula(FORMULA, frame.dropna(), status="event", schema=SCHEMA).fit(**spending)
    count = len(frame.dropna())
    if math.isinf(epsilon):
        np.testing.assert_allclose(fit.params, complete.params, rtol=1e-9)
        np.testing.assert_allclose(fit.bse, complete.bse, rtol=1e-9)
        assert fit.nobs == count
    else:
        assert (np.abs(fit.params - complete.params) < 2.0 * complete.bse).all()
        np.testing.assert_allclose(fit.bse, complete.bse, rtol=0.1)
        assert fit.nobs != count
        assert abs(fit.nobs - count) < 100
        assert f"About {fit.nobs:,} of 8,000 rows are complete" in " ".join(str(fit.summary()).split())
    assert "Observations" in str(fit.summary())


def test_sites_drop_records_as_one_table_does():
    frame = table(6_000)
    frame.loc[::7, "age"] = np.nan
    parts = {"a": frame[:2_000], "b": frame[2_000:]}
    policy = SitePolicy(simulation=True, trusted_server=True)
    sites = {name: Site(Rows(part, missing="drop"), SCHEMA, policy=policy) for name, part in parts.items()}
    both = pi.PHReg.from_formula(FORMULA, InProcessFederation(sites), status="event", schema=SCHEMA)
    alone = pi.PHReg.from_formula(FORMULA, frame, status="event", schema=SCHEMA, missing="drop")
    pooled = alone.fit(epsilon=math.inf)
    np.testing.assert_allclose(both.fit(epsilon=math.inf).params, pooled.params, atol=1e-8)
    fit = both.fit(**SPEND)
    assert (np.abs(fit.params - pooled.params) < 5.0 * fit.bse_privacy).all()
    assert "rows are complete" in " ".join(str(fit.summary()).split())


def test_a_status_may_be_a_factor_whose_second_level_is_the_event():
    frame = table(6_000)
    frame["end of it"] = np.where(frame["event"] > 0.5, "died", "alive")
    ranges = {name: SCHEMA[name] for name in ("time", "treated", "age", "group")}
    schema = pi.Schema({**ranges, "end of it": ["alive", "died"]})
    fit = pi.PHReg.from_formula(FORMULA, frame, status="end of it", event="died", schema=schema).fit(**SPEND)
    np.testing.assert_array_equal(fit.params, fitted(frame).params)
    assert "end of it" in str(fit.summary())
    three = pi.Schema({**ranges, "end of it": ["alive", "died", "moved"]})
    with pytest.raises(SchemaError, match="two levels"):
        pi.PHReg.from_formula(FORMULA, frame, status="end of it", schema=three)


# ---- what is refused


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"status": "age"}, SchemaError, "bounds"),
        ({"status": "nothing"}, PrivinfError, "nothing"),
        ({"status": 3}, ArgumentError, "name of a column"),
        ({"horizon": 3.0}, ArgumentError, "at most 2"),
        ({"horizon": -1.0}, ArgumentError, "horizon"),
        ({"intervals": 1}, ArgumentError, "intervals"),
        ({"intervals": 5_000}, ArgumentError, "at most"),
        ({"strata": "group"}, ArgumentError, "strata"),
        ({"entry": "age"}, ArgumentError, "left truncation"),
        ({"trust": "central", "formula": "time ~ 0 + age"}, SchemaError, "baseline"),
        ({"formula": "time ~ 1"}, PrivinfError, "column"),
        ({"formula": "time ~ age + event"}, ArgumentError, "leave it out of the formula"),
        ({"formula": "time ~ age:event"}, ArgumentError, "leave it out of the formula"),
    ],
)
def test_models_that_do_not_fit_are_refused(change, error, text):
    options = {"status": "event", "schema": SCHEMA} | change
    formula = options.pop("formula", FORMULA)
    with pytest.raises(error, match=text):
        pi.PHReg.from_formula(formula, table(400), **options)


def test_too_few_records_are_refused_before_a_charge():
    ledger = pi.Ledger()
    model = pi.PHReg.from_formula(FORMULA, table(150), status="event", schema=SCHEMA, ledger=ledger)
    with pytest.raises(NotAvailableError, match="Nothing was charged"):
        model.fit(epsilon=1.0, delta=1e-6)
    assert len(ledger.entries) == 0
    few = pi.PHReg.from_formula(FORMULA, table(4), status="event", schema=SCHEMA)
    with pytest.raises(AlignmentError, match="too few"):
        few.fit(epsilon=1.0, delta=1e-6)


def test_too_few_events_are_refused_after_their_count():
    ledger = pi.Ledger()
    rare = table(4_000, scale=0.001)
    model = pi.PHReg.from_formula(FORMULA, rare, status="event", schema=SCHEMA, ledger=ledger)
    with pytest.raises(NotAvailableError, match="too few events"):
        model.fit(epsilon=1.0, delta=1e-6, rng=0)
    assert len(ledger.entries) == 1


def test_predictions_are_refused_with_the_reason(result):
    with pytest.raises(NotAvailableError, match="hazard_ratios"):
        result.predict(table(5))
    with pytest.raises(NotAvailableError):
        result.rsquared
    assert "predict" not in dir(result)


def test_a_status_of_another_length_is_refused():
    with pytest.raises(ArgumentError, match="one status per row"):
        pi.PHReg(np.ones(4), np.zeros((4, 1)), status=np.ones(3), bounds=[(0, 1)], horizon=2.0)
    X = pd.DataFrame({"status": np.zeros(4)})
    with pytest.raises(ArgumentError, match="pass status='status'"):
        pi.PHReg(np.ones(4), X, status=np.ones(4), bounds=[(0, 1)], horizon=2.0)


@pytest.mark.parametrize("option", ["cov_type", "groups", "maxiter"])
def test_options_of_statsmodels_are_explained(option):
    model = pi.PHReg.from_formula(FORMULA, table(400), status="event", schema=SCHEMA)
    with pytest.raises(NotAvailableError, match=option):
        model.fit(epsilon=1.0, delta=1e-6, **{option: 1})


def test_models_show_no_rows():
    model = pi.PHReg.from_formula(FORMULA, table(400), status="event", schema=SCHEMA)
    assert repr(model) == "<PHReg: 400 rows x 3 columns, 1 sites (rows not shown)>"


# ---- score tests


def test_score_tests_agree_with_wald_tests_where_the_fit_is_strong_and_are_stored(result, tmp_path):
    test = result.score_test("treated = 0")
    assert test.df == 1
    assert test.statistic == pytest.approx(result.wald_test("treated = 0").statistic, rel=0.1)
    assert result.score_test(list(SLOPES.values())).pvalue > 0.05
    assert result.score_test().df == 3
    ends = result.conf_int(method="score")
    wald = result.conf_int()
    widths = (ends[1] - ends[0]) / (wald[1] - wald[0])
    assert ((widths > 1.2) & (widths < 1.6)).all()  # sqrt(chi2(3) / chi2(1)) is 1.43
    assert result.score_set("age").hull == pytest.approx(tuple(ends.loc["age"]))
    loaded = pi.Results.load(result.save(tmp_path / "fit.npz") or tmp_path / "fit.npz")
    assert loaded.score_test("treated = 0").statistic == test.statistic
    pd.testing.assert_frame_equal(loaded.conf_int(method="score"), ends)


def test_without_noise_score_tests_are_robust_wald_tests():
    fit = fitted(table(3_000), epsilon=math.inf, rng=None)
    for restriction in ("treated = 0", "treated = age = 0", "group[T.b] = treated"):
        expected = fit.wald_test(restriction).statistic
        assert fit.score_test(restriction).statistic == pytest.approx(expected, rel=1e-8)
    assert fit.score_test(fit.params).statistic == pytest.approx(0.0, abs=1e-6)


def test_score_tests_use_no_prior_where_the_fit_is_weak():
    rng = np.random.default_rng(5)
    n = 5_000
    x = np.column_stack([rng.uniform(-1.0, 1.0, n), 0.03 * rng.standard_normal(n)])
    failure = rng.exponential(size=n) / (0.6 * np.exp(0.5 * x[:, 0]))
    model = pi.PHReg(np.minimum(failure, 1.0), x, status=failure <= 1.0, bounds=[(-1, 1)] * 2, horizon=1.0)
    fit = model.fit(epsilon=0.6, delta=1e-6, rng=0)
    assert fit.cov_type == "posterior"
    assert fit.score_test({"x1": 0.5, "x2": 0.0}).pvalue > 0.05
    assert fit.score_test("x2 = 3").pvalue > 0.05
    assert not np.isfinite(fit.conf_int(method="score").loc["x2"]).any()


def test_a_fit_without_intervals_has_no_score_tests():
    rng = np.random.default_rng(1)
    n = 1_200
    x = rng.uniform(-1.0, 1.0, (n, 3))
    failure = rng.exponential(size=n) / (2.0 * np.exp(x @ [2.5, 2.0, 0.0]))
    model = pi.PHReg(np.minimum(failure, 2.0), x, status=failure <= 2.0, bounds=[(-1, 1)] * 3, horizon=2.0)
    fits = [model.fit(epsilon=1.0, delta=1e-6, rng=seed) for seed in range(8)]
    bare = next(fit for fit in fits if fit.cov_type == "none")
    with pytest.raises(NotAvailableError, match="score tests and score intervals are not available"):
        bare.score_test()
    assert "score_test" not in dir(bare)


# ---- codes of the status


def test_other_codes_than_0_and_1_are_noted_with_the_remedy():
    """Values are clipped to their bounds: a row outside them must not decide whether a call fails."""
    coded = table(6_000).assign(event=lambda rows: rows["event"] + 1.0)
    with pytest.warns(ChangedTargetWarning, match="status 'event' are neither 0 nor 1.*as levels"):
        fit = fitted(coded)
    assert "Hardly any record is censored" in " ".join(str(fit.summary()).split())
    with pytest.warns(
        ChangedTargetWarning, match="hardly any record is censored.*as levels, the event second"
    ):
        curve = pi.survival.KaplanMeier("time", "event", data=coded, schema=SCHEMA).fit(**SPEND)
    assert [category for category, _ in curve.cautions] == [ChangedTargetWarning]
    assert "Hardly any record is censored" in " ".join(str(curve.summary()).split())
    coded["group"] = np.arange(len(coded)) % 2
    schema = SCHEMA.fill({"group": [0, 1]})
    with pytest.warns(ChangedTargetWarning, match="hardly any record is censored"):
        test = pi.survival.logrank("time", "event", "group", data=coded, schema=schema, **SPEND)
    for result in (test, test.pairwise()):
        assert [category for category, _ in result.cautions] == [ChangedTargetWarning]
        assert "Hardly any record is censored" in " ".join(str(result.summary()).split())


def test_a_status_with_missing_values_is_not_taken_for_another_code():
    frame = table(6_000)
    frame.loc[::50, "event"] = np.nan
    pi.PHReg.from_formula(FORMULA, frame, status="event", schema=SCHEMA, missing="drop").fit(**SPEND)
    nullable = frame.astype({"event": "Int64"})
    pi.PHReg.from_formula(FORMULA, nullable, status="event", schema=SCHEMA, missing="drop")


def test_codes_1_and_2_are_levels_of_which_the_second_is_the_event():
    frame = table(6_000)
    coded = frame.assign(event=frame["event"].astype(int) + 1)
    schema = pi.Schema({**{name: SCHEMA[name] for name in SCHEMA.columns}, "event": [1, 2]})
    fit = pi.PHReg.from_formula(FORMULA, coded, status="event", schema=schema).fit(**SPEND)
    np.testing.assert_array_equal(fit.params, fitted(frame).params)
    assert "event = 2" in str(fit.summary())


def test_arrays_with_a_named_status_of_other_codes_are_refused():
    frame = table(400)
    X = frame[["treated"]].assign(event=frame["event"] + 1.0)
    with pytest.raises(SchemaError, match="1 and 2 of R"):
        pi.PHReg(frame["time"], X, status="event", bounds={"treated": (0, 1)}, horizon=2.0)


def test_a_status_with_a_blank_in_its_name():
    frame = table(6_000)
    blank = frame.rename(columns={"event": "Vital status", "age": "age at entry"})
    ranges = {name: SCHEMA[name] for name in ("time", "treated", "group")}
    schema = pi.Schema({**ranges, "age at entry": (20.0, 90.0), "Vital status": (0, 1)})
    formula = "time ~ treated + Q('age at entry') + group"
    fit = pi.PHReg.from_formula(formula, blank, status="Vital status", schema=schema).fit(**SPEND)
    np.testing.assert_array_equal(fit.params, fitted(frame).params)
    X = blank[["treated", "age at entry", "Vital status"]]
    bounds = {"treated": (0, 1), "age at entry": (20, 90)}
    named = pi.PHReg(blank["time"], X, status="Vital status", bounds=bounds, horizon=2.0).fit(**SPEND)
    assert list(named.names) == ["treated", "age at entry"]


@pytest.mark.parametrize(("shift", "is_long"), [(0.5, False), (1.3, True)])
def test_a_note_warns_of_a_long_last_step(shift, is_long):
    posterior = SimpleNamespace(length2=4.0, shift=shift, weak=False, converged=True)
    notes = _draw_notes(SimpleNamespace(), SimpleNamespace(), posterior, np.eye(2), False)
    warned = [note for note in notes if "moved linear predictors by 1.3" in note.text]
    assert bool(warned) == is_long
    assert all(note.rank == "must-read" for note in warned)
    assert len(_draw_notes(SimpleNamespace(), SimpleNamespace(), posterior, np.eye(2), True)) == 1
    assert [note.text for note in warned] == [sentence(text) for text in long_steps(posterior)]


def test_intervals_after_a_long_last_step_warn():
    """As everywhere where steps may be long: the summary alone would leave the intervals without a word."""
    rng = np.random.default_rng(4)
    n = 1_500
    x = np.column_stack([rng.random(n) < 0.05, np.clip(0.35 * rng.standard_normal((n, 2)), -1.0, 1.0)])
    failure = rng.exponential(size=n) / (0.62 * np.exp(x @ [0.9, 1.2, -0.9]))
    bounds = [(0, 1), (-1, 1), (-1, 1)]
    model = pi.PHReg(np.minimum(failure, 1.0), x, status=failure <= 1.0, bounds=bounds, horizon=1.0)
    fits = (model.fit(epsilon=0.7, delta=1e-6, rng=seed) for seed in range(20))
    fit = next(fit for fit in fits if "which is long" in " ".join(fit.notes) and fit.cov_type != "none")
    with pytest.warns(MisfitWarning, match="the last step moved linear predictors"):
        fit.conf_int()
