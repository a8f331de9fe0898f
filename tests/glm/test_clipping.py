"""Values outside their public bounds: fits say so, where a noisy release shows it."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import calibrate_mu
from privinf.errors import ChangedTargetWarning, SchemaError
from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.glm.clipping import LABEL, is_detectable, leverages, simultaneous_quantile, threshold
from privinf.inference.ends import at_an_end
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.results.outside_counts import OutsideCounts

N = 6000
SPENT = {"epsilon": 1.0, "delta": 1e-6}
WIDE = {"age": (18.0, 90.0), "y": (40.0, 200.0), "b": (0.0, 1.0), "k": (0.0, 40.0)}


def table() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    age = rng.uniform(18.0, 90.0, N)
    b = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-(age - 50.0) / 10.0))).astype(float)
    y = 82.0 + 0.52 * age + rng.normal(0.0, 5.0, N)
    return pd.DataFrame({"age": age, "y": y, "b": b, "k": rng.poisson(2.0, N).astype(float)})


def fitted(formula, model=pi.OLS, rows=None, bounds=None, **spent):
    schema = pi.Schema(WIDE | (bounds or {}))
    made = model.from_formula(formula, table() if rows is None else rows, schema=schema)
    return made.fit(**(spent or SPENT), rng=0)


def told(fit) -> list[str]:
    return [text for kind, text in fit.cautions if kind == "ChangedTarget"]


@pytest.mark.parametrize(
    ("model", "formula", "bounds", "named"),
    [
        (pi.OLS, "y ~ age", {"y": (1000.0, 2000.0)}, "of 'y'"),
        (pi.OLS, "y ~ age", {"age": (18.0, 40.0)}, "of 'age'"),
        (pi.OLS, "y ~ np.log(age) + k", {"age": (18.0, 40.0)}, "of 'age'"),
        (pi.OLS, "np.log(y) ~ age", {"y": (40.0, 100.0)}, "of 'y'"),
        (pi.Logit, "b ~ age", {"age": (18.0, 40.0)}, "of 'age'"),
        (pi.Poisson, "k ~ age", {"age": (18.0, 40.0)}, "of 'age'"),
    ],
)
def test_a_fit_names_the_column_that_its_bounds_cut(model, formula, bounds, named, tmp_path):
    with pytest.warns(ChangedTargetWarning, match="outside their public bounds"):
        fit = fitted(formula, model, bounds=bounds)
    (text,) = told(fit)
    assert named in text
    assert fit.privacy.epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    assert list(fit.privacy.releases["label"]).count(LABEL) == 1
    assert "not flagged" not in str(fit.summary())
    assert [note.rank for note in fit.summary().ranked_notes if "outside their public" in note.text] == [
        "must-read"
    ]
    fit.save(tmp_path / "fit.npz")
    with pytest.warns(ChangedTargetWarning):
        again = pi.load_results(tmp_path / "fit.npz")
    assert told(again) == [text]


@pytest.mark.parametrize("model", [pi.Logit, pi.OLS])
def test_codes_1_and_2_of_a_column_with_the_bounds_0_and_1_are_named_with_the_remedy(model):
    """A check of the rows would be a release: the noisy count of clipped values shows the codes."""
    coded = table().assign(b=lambda rows: rows["b"] + 1.0)
    with pytest.warns(ChangedTargetWarning, match=r"of 'b' \(.*\) are outside the bounds 0 and 1.*\[1, 2\]"):
        fit = fitted("b ~ age", model, rows=coded)
    assert "declare wider bounds" not in " ".join(told(fit))
    if model is pi.Logit:
        assert "I(b == 2)" in told(fit)[0]
        words = " ".join(str(fit.summary()).split())
        assert "spend more" not in words
        assert "values of the response 'b' other than 0 and 1 were clipped" in words


def test_a_response_with_the_codes_1_and_2_is_fitted_as_the_warning_says():
    coded = table().assign(b=lambda rows: rows["b"] + 1.0)
    schema = pi.Schema({"age": (18, 90), "b": [1, 2]})
    fits = [
        pi.Logit.from_formula("I(b == 2) ~ age", coded, schema=schema),
        pi.Logit.from_formula("b ~ age", table(), schema=pi.Schema({"age": (18, 90), "b": [0, 1]})),
    ]
    first, second = (fit.fit(epsilon=math.inf).params.to_numpy() for fit in fits)
    assert first == pytest.approx(second)
    with pytest.raises(SchemaError, match=r"I\(y == 2\) for the levels \[1, 2\]"):
        pi.Logit.from_formula("b ~ age", coded, schema=schema)


def test_a_column_between_0_and_1_that_is_cut_is_named_with_levels():
    coded = table().assign(b=lambda rows: rows["b"] + 1.0)
    with pytest.warns(
        ChangedTargetWarning, match=r"values of 'b' \(.*\) are outside the bounds 0 and 1.*\[1, 2\]"
    ):
        fitted("y ~ age + b", rows=coded)


def test_nothing_is_said_of_values_inside_their_bounds():
    for formula, model in (("y ~ age", pi.OLS), ("b ~ age", pi.Logit), ("k ~ age", pi.Poisson)):
        fit = fitted(formula, model)
        assert told(fit) == []
        assert LABEL in set(fit.privacy.releases["label"])


def with_codes(share: float, n: int = 40_000) -> pd.DataFrame:
    """Return ages with an undeclared code of missing values, 999, in the first rows, and a response."""
    rng = np.random.default_rng(1)
    age = np.clip(rng.normal(45.0, 14.0, n), 18.0, 90.0)
    y = np.clip(100.0 + 0.2 * age + rng.normal(0.0, 5.0, n), 40.0, 200.0)
    return pd.DataFrame({"age": np.where(np.arange(n) < share * n, 999.0, age), "y": y})


def outside_notes(fit) -> list[tuple[str, str]]:
    return [
        (note.rank, note.text)
        for note in fit.summary(notes="all").ranked_notes
        if "outside their" in note.text
    ]


def test_a_missing_code_in_one_percent_of_the_rows_is_a_warning():
    """The count is above its noise, although the lower confidence limit of the share is below 1%."""
    with pytest.warns(
        ChangedTargetWarning, match=r"about 1\.\d% of the values of 'age' \(\d+ of 40,000, standard"
    ):
        fit = fitted("y ~ age", rows=with_codes(0.0125))
    counts = OutsideCounts.from_settings(fit._context.settings)
    sd = math.sqrt(2.0) / (0.1 * calibrate_mu(**SPENT))
    assert counts.sd == pytest.approx(sd, rel=1e-6)
    assert counts.threshold == pytest.approx(simultaneous_quantile(2, 0.99) * sd, rel=1e-6)
    assert counts.counts["age"] == pytest.approx(500.0, abs=5.0 * sd)
    (main,) = (text for rank, text in outside_notes(fit) if rank == "must-read")
    assert "missing_codes=" in main
    assert "for clipped values" in str(fit.summary())


def test_a_small_share_is_a_warning_if_it_may_move_the_coefficient_and_a_note_otherwise(tmp_path):
    rows = with_codes(0.005, 100_000)
    with pytest.warns(ChangedTargetWarning, match=r"about 0\.\d+% of the values of 'age'"):
        fitted("y ~ age", rows=rows)
    unrelated = rows.assign(y=np.random.default_rng(2).normal(100.0, 5.0, len(rows)))
    fit = fitted("y ~ age", rows=unrelated)
    assert told(fit) == []
    (text,) = (text for rank, text in outside_notes(fit) if rank == "must-read")
    assert "of 100,000, standard error" in text
    words = " ".join(str(fit.summary()).split())
    assert text in words
    assert "Wald intervals: see the notes" in words
    fit.save(tmp_path / "fit.npz")
    again = pi.load_results(tmp_path / "fit.npz")
    assert outside_notes(again) == outside_notes(fit)


def test_counts_within_the_noise_are_printed_on_request():
    fit = fitted("y ~ age + k")
    assert "outside their" not in str(fit.summary())
    ((rank, text),) = outside_notes(fit)
    assert rank == "detail"
    assert all(f"'{name}' " in text for name in ("age", "k", "y"))
    assert "standard error" in text


def test_no_count_stands_out_in_99_percent_of_fits_without_a_value_outside():
    rng = np.random.default_rng(0)
    for k in (1, 3, 10):
        share = (rng.normal(0.0, 5.0, (100_000, k)) > threshold(k, 5.0)).any(axis=1).mean()
        assert share == pytest.approx(0.01, abs=0.0015)
    assert threshold(3, 0.0) == 0.5


def test_the_leverage_is_the_squared_distance_of_the_farther_bound_over_the_variance():
    rows = with_codes(0.0)
    fit = fitted("y ~ age", rows=rows, epsilon=math.inf)
    leverage = OutsideCounts.from_settings(fit._context.settings).leverage["age"]
    expected = (90.0 - rows.age.mean()) ** 2 / rows.age.var(ddof=0)
    assert leverage == pytest.approx(expected, rel=1e-4)
    model = pi.OLS.from_formula("y ~ age", rows, schema=pi.Schema(WIDE))
    hidden = leverages(model._rows, np.zeros(2), np.zeros(2), 0.05)
    assert hidden["age"] == pytest.approx(10.0, rel=0.5)


def test_the_count_is_asked_only_where_five_percent_would_be_seen():
    few = fitted("y ~ age", rows=table().iloc[:1000])
    assert LABEL not in set(few.privacy.releases["label"])
    assert few.privacy.epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    mu = calibrate_mu(**SPENT) / 10.0
    n = next(n for n in range(100, 10**6, 100) if is_detectable(n, 3, mu))
    sd = math.sqrt(3.0) / mu
    assert 0.04 * n >= (simultaneous_quantile(3) + 0.84) * sd > 0.04 * (n - 200)


def test_a_fit_without_noise_counts_exactly():
    with pytest.warns(ChangedTargetWarning):
        fit = fitted("y ~ age", bounds={"age": (18.0, 40.0)}, epsilon=math.inf)
    share = float((table().age > 40.0).mean())
    assert f"about {share:.0%} of the values of 'age'" in told(fit)[0]


def test_sites_are_not_asked_and_their_first_release_tells_of_ends():
    schema = pi.Schema(WIDE | {"y": (1000.0, 2000.0)})
    policy = SitePolicy(trusted_server=True, simulation=True)
    halves = {"north": table().iloc[: N // 2], "south": table().iloc[N // 2 :]}
    federation = InProcessFederation(
        {name: Site(part, schema, policy=policy) for name, part in halves.items()}
    )
    with pytest.warns(ChangedTargetWarning, match="one end"):
        fit = pi.OLS.from_formula("y ~ age", federation, schema=schema).fit(**SPENT, rng=0)
    assert LABEL not in set(fit.privacy.releases["label"])
    assert "of 'y' lie at one end" in told(fit)[0]


@pytest.mark.filterwarnings("ignore")
def test_moments_tell_of_means_at_an_end():
    fit = fitted("y ~ age", pi.MomentOLS, bounds={"y": (1000.0, 2000.0)})
    assert "of 'y' lie at one end" in told(fit)[0]
    assert told(fitted("y ~ age", pi.MomentOLS)) == []
    schema = pi.Schema(WIDE | {"y": (1000.0, 2000.0)})
    release = pi.Moments(schema, columns=["y", "age", "k"]).release(table(), **SPENT, rng=0)
    assert "of 'y' lie at one end" in told(release.regress("y ~ age"))[0]
    pair = pi.stats.pearsonr("age", "y", data=table(), schema=schema, **SPENT, rng=0)
    assert "'y'" in pair.to_dict()["cautions"][0]["text"]


def test_a_mean_is_at_an_end_within_its_noise_where_that_is_small():
    ends = np.full(3, -1.0), np.full(3, 1.0)
    assert at_an_end(np.array([-0.999, 0.97, 0.0]), np.full(3, 0.001), *ends).tolist() == [True, False, False]
    assert not at_an_end(np.array([-0.999]), np.array([0.2]), ends[0][:1], ends[1][:1]).any()
    assert not at_an_end(np.array([-1.0]), np.array([0.001]), np.array([-np.inf]), np.array([np.inf])).any()


def test_marks_are_of_values_beyond_a_bound_and_not_of_those_at_it():
    x = np.array([[0.0, 5.0], [1.0, 7.0], [1.0 + 1e-9, -1.0], [-3.0, 6.0]])
    block = SiteBlock(
        features=x,
        response=np.array([0.0, 2.0, 3.0, -1.0]),
        low=np.zeros(2),
        high=np.array([1.0, 6.0]),
        response_low=0.0,
        response_high=2.0,
    )
    op = SITE_OPS["values_outside"]
    args = {"columns": np.array([0, 1]), "outcome": True, "inputs": 1}
    assert op.total(block, args).tolist() == [1.0, 2.0, 2.0, 0.0]
    assert op.record_sensitivity(args, 2).l2 == pytest.approx(2.0, rel=1e-6)
    exact = op.sums(block, args)
    exact.update(block)
    assert exact.floats().tolist() == [1.0, 2.0, 2.0, 0.0]


@pytest.mark.filterwarnings("ignore")
def test_every_kind_of_table_is_counted_alike(tmp_path):
    pytest.importorskip("pyarrow")
    rows = table()
    rows.to_csv(tmp_path / "rows.csv", index=False, float_format="%.17g")
    rows.to_parquet(tmp_path / "rows.parquet")
    counts = []
    for data in (rows, tmp_path / "rows.csv", tmp_path / "rows.parquet"):
        fit = fitted("y ~ np.log(age) + k", rows=data, bounds={"age": (18.0, 40.0)})
        counts.append(fit._context.settings["clipped"])
    assert counts[0] == pytest.approx(counts[1], rel=1e-6)
    assert counts[0] == pytest.approx(counts[2], rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_database_counts_too():
    duckdb = pytest.importorskip("duckdb")
    rows = table()
    relation = duckdb.connect().from_df(rows)
    here, there = (
        fitted("y ~ age + k", rows=data, bounds={"age": (18.0, 40.0)}) for data in (rows, relation)
    )
    assert here._context.settings["clipped"] == pytest.approx(there._context.settings["clipped"], rel=1e-6)
