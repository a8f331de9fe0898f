"""missing="drop" in tests and estimates: those of complete rows, whose number is estimated and said."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import calibrate_mu
from privinf.errors import NotAvailableError
from privinf.mechanisms.distribution import NoisyCDF, PrefixSums, prefix_sensitivity
from privinf.mechanisms.statistics.samples import PARABOLA_WEIGHT, SAMPLE_COUNT_WEIGHT
from privinf.stats.association import PairModel, TableModel
from privinf.stats.groups import GroupModel
from privinf.stats.means import CompleteMeanModel
from privinf.stats.proportions import CompleteShareModel

SCHEMA = pi.Schema(
    {"x": (0.0, 10.0), "z": (-4.0, 4.0), "b": (0.0, 1.0), "g": ["a", "b", "c"], "h": ["u", "v"]}
)
EXACT = {"epsilon": math.inf}
NOISY = {"epsilon": 1.0, "delta": 1e-6, "rng": 3}
TESTS = {
    "mean": (lambda **k: pi.stats.mean("x", **k), ["x"]),
    "ttest_1samp": (lambda **k: pi.stats.ttest_1samp("x", 4.9, **k), ["x"]),
    "mean of a factor": (lambda **k: pi.stats.mean("h", **k), ["h"]),
    "ttest_ind": (lambda **k: pi.stats.ttest_ind("x ~ h", **k), ["x", "h"]),
    "anova_oneway": (lambda **k: pi.stats.anova_oneway("x ~ g", **k), ["x", "g"]),
    "chi2_contingency": (lambda **k: pi.stats.chi2_contingency("g", "h", **k), ["g", "h"]),
    "proportion_confint": (lambda **k: pi.stats.proportion_confint("b", **k), ["b"]),
    "proportions_ztest": (lambda **k: pi.stats.proportions_ztest("b", value=0.3, **k), ["b"]),
    "two shares": (lambda **k: pi.stats.proportions_ztest("b", "h", **k), ["b", "h"]),
    "pearsonr": (lambda **k: pi.stats.pearsonr("x", "z", **k), ["x", "z"]),
    "quantile": (lambda **k: pi.stats.quantile("x", [0.25, 0.5, 0.9], **k), ["x"]),
    "mannwhitneyu": (lambda **k: pi.stats.mannwhitneyu("x ~ h", **k), ["x", "h"]),
    "counts": (lambda **k: pi.stats.counts("g", **k), ["g"]),
    "shares of levels": (lambda **k: pi.stats.counts("g", target="population", **k), ["g"]),
    "crosstab": (lambda **k: pi.stats.crosstab("g", "h", **k), ["g", "h"]),
    "histogram": (lambda **k: pi.stats.histogram("x", bins=4, **k), ["x"]),
    "means of groups": (lambda **k: pi.stats.mean("x", by="g", **k), ["x", "g"]),
    "mean of the table": (lambda **k: pi.stats.mean("x", target="table", **k), ["x"]),
    "kruskal": (lambda **k: pi.stats.kruskal("x ~ g", **k), ["x", "g"]),
    "wilcoxon": (lambda **k: pi.stats.wilcoxon("x", 4.9, **k), ["x"]),
}


def table(n=3000):
    rng = np.random.default_rng(1)
    x = rng.normal(5.0, 1.0, n)
    frame = pd.DataFrame(
        {
            "x": x,
            "z": 0.5 * (x - 5.0) + rng.normal(0.0, 1.0, n),
            "b": (rng.uniform(size=n) < 0.3).astype(float),
            "g": rng.choice(["a", "b", "c"], n),
            "h": rng.choice(["u", "v"], n),
        }
    )
    return frame.mask(rng.uniform(size=frame.shape) < 0.15)


@pytest.mark.parametrize("name", TESTS)
def test_without_noise_the_numbers_are_those_of_complete_rows(name):
    test, columns = TESTS[name]
    frame = table()
    complete = frame.dropna(subset=columns)
    found = test(data=frame, schema=SCHEMA, missing="drop", **EXACT)
    alone = test(data=complete, schema=SCHEMA, **EXACT)
    assert found.nobs == found.complete.rows == len(complete)
    assert found.complete.of == len(frame)
    for one, other in zip(found.rows, alone.rows, strict=True):
        assert one.name == other.name
        assert one[1:] == pytest.approx(other[1:], rel=1e-3, abs=2e-3)
    if found.test is not None and name != "kruskal":  # of which W is over the public n - 1
        assert found.pvalue == pytest.approx(alone.pvalue, abs=0.02, nan_ok=True)


@pytest.mark.parametrize("name", TESTS)
def test_a_result_says_how_many_rows_are_complete(name):
    test, columns = TESTS[name]
    frame = table()
    result = test(data=frame, schema=SCHEMA, missing="drop", **NOISY)
    true = len(frame.dropna(subset=columns))
    low, high = result.complete.interval
    assert low - 20 < true < high + 20
    told = result.to_dict()
    assert told["complete"] == {"rows": result.nobs, "low": low, "high": high, "of": len(frame)}
    assert told["test"]["nobs"] == result.nobs
    assert told["test"]["nobs_std_error"] == (0.0 if result.complete is None else result.complete.sd)
    text = f"About {result.nobs:,} of 3,000 rows are complete (95% interval {low:,} to {high:,})"
    assert told["notes"][0].startswith(text)
    assert told["facts"]["Missing values"] == "rows dropped"
    assert "Observations (est.)" in told["facts"]
    assert "does not depend on its values" in told["notes"][1]
    assert not any("replaced" in note for note in told["notes"])
    assert pi.stats.mean("x", data=frame.dropna(), schema=SCHEMA, **NOISY).complete is None


def test_a_description_says_it_column_by_column():
    frame = table()
    result = pi.stats.describe(frame, ["x", "z"], schema=SCHEMA, missing="drop", **NOISY)
    for name in ("x", "z"):
        rows = result.complete[name]
        assert abs(rows.rows - frame[name].notna().sum()) < 4.0 * rows.sd
        assert result.table.loc["count", name] == rows.rows
        assert f"About {rows.rows:,} of 3,000 rows have a value of '{name}'" in repr(result)
    assert set(result.to_dict()["complete"]) == {"x", "z"}
    exact = pi.stats.describe(frame, ["x"], schema=SCHEMA, missing="drop", **EXACT).table["x"]
    assert exact["count"] == frame["x"].notna().sum()
    assert exact["mean"] == pytest.approx(frame["x"].mean(), abs=1e-5)
    assert exact["50%"] == pytest.approx(frame["x"].median(), abs=0.01)


def test_what_else_a_release_gives_is_of_complete_rows_too():
    frame = table()
    words = {"data": frame, "schema": SCHEMA, "missing": "drop", **NOISY}
    complete = frame.dropna(subset=["x", "g"])
    groups = pi.stats.anova_oneway("x ~ g", **words)
    for other in (groups.means(), groups.contrast([1, -1, 0]), groups.pairwise()):
        assert other.nobs == groups.nobs
        assert "Observations (est.)" in other.to_dict()["facts"]
    for row in groups.means().rows:
        assert abs(row.estimate - complete.loc[complete["g"] == row.name, "x"].mean()) < 3.0 * row.bse
    clipped = pi.stats.ttest_1samp("x", 5.0, clip="auto", **words)
    assert clipped.pvalue > 0.001
    low, high = clipped.confidence_interval()
    assert low < frame["x"].mean() < high
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pi.errors.ChangedTargetWarning)
        compared = pi.stats.anova_oneway("x ~ g", clip="auto", **words)
    assert compared.complete.of == len(frame)
    samples = frame["x"].to_numpy()
    two = pi.stats.ttest_ind(samples[:1500], samples[1500:], bounds=(0, 10), missing="drop", **NOISY)
    assert abs(two.nobs - frame["x"].notna().sum()) < 4.0 * two.complete.sd


def test_rows_that_all_lack_a_value_give_results_as_others_do():
    frame = table(200).assign(x=np.nan, z=np.nan, b=np.nan)
    frame[["g", "h"]] = None
    for name, (test, _) in TESTS.items():
        result = test(data=frame, schema=SCHEMA, missing="drop", **NOISY)
        assert 2 <= result.nobs <= 200, name
        # There is no estimate of a correlation whose variances the noise hides.
        numbers = [number for row in result.rows for number in row[1 if name != "pearsonr" else 3 :]]
        assert all(map(math.isfinite, numbers)), name
        assert result.complete.interval[0] < 60, name


def test_exact_tests_are_refused_and_nothing_is_spent():
    ledger = pi.Ledger()
    words = {"data": table(), "schema": SCHEMA, "missing": "drop", "ledger": ledger, **NOISY}
    with pytest.raises(NotAvailableError, match="pass method='score'"):
        pi.stats.proportion_confint("b", method="exact", **words)
    with pytest.raises(NotAvailableError, match="always adds Gaussian noise"):
        pi.stats.mean("x", **words | {"delta": 0})
    for refused, subject, instead in (
        (lambda: pi.stats.sum("x", **words), "sums of values, because", "the mean"),
        (lambda: pi.stats.quantile("x", by="g", **words), "quantiles of groups, because", "means by group"),
        (
            lambda: pi.stats.crosstab("g", "h", margins=True, **words),
            "released margins, because",
            "Leave margins=True out",
        ),
    ):
        with pytest.raises(
            NotAvailableError, match=f"missing='drop' is not available for {subject}"
        ) as raised:
            refused()
        assert instead in str(raised.value)
    assert len(ledger) == 0


@pytest.mark.parametrize(
    "name", ["mean", "anova_oneway", "chi2_contingency", "pearsonr", "quantile", "kruskal"]
)
def test_results_have_the_same_bits_from_every_table(name, tmp_path):
    test, _ = TESTS[name]
    frame = table(400)
    frame.to_parquet(path := tmp_path / "t.parquet")
    arrays = {column: frame[column].to_numpy() for column in frame}
    tables = [frame, arrays, path]
    tables.append(pytest.importorskip("polars").from_pandas(frame))
    if name != "kruskal":
        duckdb = pytest.importorskip("duckdb")
        connection = duckdb.connect()
        connection.register("frame", frame)
        tables.append(pi.open_rows(connection.sql("select * from frame"), push_down=True))
    found = {repr(test(data=data, schema=SCHEMA, missing="drop", **NOISY).rows) for data in tables}
    assert len(found) == 1


# ---- models


def drawn(draws, share, n, seed=0):
    """Return N, S and Q of complete records of normal values about 0.4 in [-1, 1], and generator."""
    rng = np.random.default_rng(seed)
    N = rng.binomial(n, 1.0 - share, draws)
    u = [np.clip(rng.normal(0.4, 0.2, count), -1.0, 1.0) for count in N]
    return rng, N, np.array([v.sum() for v in u]), np.array([(v * v).sum() for v in u])


def covered(share, n=1000, epsilon=1.0, draws=400, *, told=False):
    """Return how often intervals contain the mean; `told` puts n in place of the complete rows."""
    rng, N, S, Q = drawn(draws, share, n)
    sigma = 2.0 / calibrate_mu(epsilon=epsilon, delta=1e-6)
    sds = (sigma / SAMPLE_COUNT_WEIGHT, sigma, sigma / PARABOLA_WEIGHT)
    held = 0
    for sums in zip(N, S, N - Q, strict=True):
        noisy = np.array(sums) + np.array(sds) * rng.normal(size=3)
        model = CompleteMeanModel.from_sums(noisy, n, sds)
        low, high = (replace(model, N=float(n)) if told else model).interval(0.95)
        held += low <= 0.4 <= high
    return held / draws


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_intervals_of_a_mean_cover(share):
    assert 0.91 < covered(share) < 0.985


def test_the_number_of_all_rows_in_place_of_the_complete_ones_is_caught():
    """Mutant: n for N."""
    assert covered(0.2, told=True) < 0.05


def test_intervals_of_a_share_cover_and_n_for_the_complete_rows_is_caught():
    rng = np.random.default_rng(2)
    n, mu, p = 1000, 0.3, 0.3
    held = []
    for _ in range(400):
        N = rng.binomial(n, 0.5)
        X = rng.binomial(N, p)
        noise = np.array([1.0 / math.sqrt(0.75), 2.0]) / mu
        N, S = np.array([N, 2 * X - N]) + noise * rng.normal(size=2)
        one = CompleteShareModel(N, S, *noise).interval(0.95)
        wrong = CompleteShareModel(float(n), S, *noise).interval(0.95)
        held.append([one[0] <= p <= one[1], wrong[0] <= p <= wrong[1]])
    right, wrong = np.mean(held, axis=0)
    assert 0.91 < right < 0.985
    assert wrong < 0.1


@pytest.mark.parametrize("target", ["table", "population"])
def test_intervals_of_counts_and_their_margins_cover(target):
    rng = np.random.default_rng(6)
    p, q = np.array([0.6, 0.3, 0.1]), np.array([0.8, 0.2])
    schema = pi.Schema({"a": [0, 1, 2], "b": [0, 1]})
    held = []
    for _ in range(200):
        frame = pd.DataFrame({"a": rng.choice(3, 1500, p=p), "b": rng.choice(2, 1500, p=q)}).astype(float)
        frame = frame.mask(rng.uniform(size=frame.shape) < 0.2)
        truth = pd.crosstab(frame["a"], frame["b"]).to_numpy() if target == "table" else np.outer(p, q)
        truth = np.concatenate([truth.ravel(), truth.sum(axis=1), truth.sum(axis=0)])
        words = {"data": frame, "schema": schema, "missing": "drop", "mu": 0.3, "rng": rng}
        rows = pi.stats.crosstab("a", "b", target=target, **words).rows
        held.append([row.low <= at <= row.high for row, at in zip(rows, truth, strict=True)])
    rates = np.mean(held, axis=0)
    assert rates.min() > 0.9
    assert 0.94 < rates.mean() < 0.985


def test_counts_of_quantiles_are_compared_with_shares_of_the_complete_rows():
    """Joint noise of F and N: from simulated releases; mutant: that of F alone."""
    rng, h = np.random.default_rng(0), np.array([5, 3, 0, 9, 20, 1, 4, 4, 4, 10, 2, 30])
    scale = prefix_sensitivity(len(h)) / 0.5
    clean, edges, scores = PrefixSums(h).floats(), np.arange(10.0), []
    for _ in range(4000):
        one = NoisyCDF.from_counts(
            edges, clean + scale * rng.normal(size=len(h)), scale, 10_000 + h.sum(), gaps=True
        )
        # With 10,000 more rows without a value the number of complete rows is not cut at an end.
        scores.append(one.counts - 0.4 * one.complete.rows)
    spread = np.std(scores, axis=0)
    assert spread == pytest.approx(one.sds_about(0.4), rel=0.06)
    assert np.abs(spread / one.sds - 1.0).max() > 0.1


def test_simulated_releases_have_the_spread_of_released_ones():
    """Counts of complete rows among them: the spread of N in simulated groups and tables."""
    groups = GroupModel.from_sums(
        np.array([300.0, 500.0]),
        np.array([30.0, 50.0]),
        np.array([200.0, 300.0]),
        1000,
        (10.0, 10.0),
        gaps=np.array([200.0]),
    )
    simulated = groups.simulate()
    assert simulated.gaps.std() == pytest.approx(10.0 * math.sqrt(2.0 / 3.0), rel=0.05)
    assert (simulated.N.sum(axis=-1) + simulated.gaps[:, 0]) == pytest.approx(1000.0)
    F = simulated.equal_means()[0]
    assert F.mean() > 0.0
    counts = TableModel.from_counts(np.full((2, 3), 100.0), 1000, 5.0, gaps=np.array(400.0))
    tables = counts.simulate(2000)
    assert (tables.X.sum(axis=(-2, -1)) + tables.gaps) == pytest.approx(1000.0)
    expected = math.sqrt(1000 * 0.6 * 0.4 + 25.0 * 6.0 / 7.0)
    assert tables.complete.std() == pytest.approx(expected, rel=0.06)


def test_a_correlation_is_that_of_complete_pairs():
    rng = np.random.default_rng(4)
    u = rng.uniform(-1.0, 1.0, 500)
    v = np.clip(0.5 * u + rng.normal(0.0, 0.3, 500), -1.0, 1.0)
    sums = np.array([500, u.sum(), v.sum(), (1 - u**2).sum(), (1 - v**2).sum(), (u * v).sum()])
    model = PairModel.from_complete(sums, 800, np.zeros(6))
    assert float(model.r) == pytest.approx(np.corrcoef(u, v)[0, 1], abs=1e-12)
    assert model.n == 500.0
    plain = PairModel.from_sums(np.array([*sums[1:3], *(500 - sums[3:5]), sums[5]]), 500, 0.0, 0.0, 0.0)
    assert model.interval(0.95) == pytest.approx(plain.interval(0.95))
    # Noise of A less r times the product of spreads, to first order, from simulated releases.
    sds = np.array([2.0, 3.0, 3.0, 2.0, 2.0, 4.0])
    noisy = [PairModel.from_complete(sums + sds * rng.normal(size=6), 800, sds) for _ in range(3000)]
    for r in (0.0, 0.7):
        scores = [float(one.A - r * one.n * one.product) for one in noisy]
        sampling = model.n * float(model.product) ** 2 * (1.0 - r * r) ** 2
        expected = float(PairModel.from_complete(sums, 800, sds).variance(np.array(r))) - sampling
        assert np.var(scores) == pytest.approx(expected, rel=0.08)


def test_complete_rows_are_estimated_from_cells_that_can_occur():
    """With cells that cannot occur: sd of the estimate, its interval, and coverage of shares."""
    frame = table().assign(h=lambda rows: rows["h"].mask(rows["g"] == "c", "u"))
    zeros = [("c", "v"), ("b", "v"), ("a", "v")]
    frame = frame.assign(h=frame["h"].where(frame["h"].isna(), "u"))
    words = {"data": frame, "schema": SCHEMA, "missing": "drop", "structural_zeros": zeros}
    true = len(frame.dropna(subset=["g", "h"]))
    shares = frame.dropna(subset=["g", "h"])["g"].value_counts(normalize=True).loc[list("abc")].to_numpy()
    errors, inside = [], []
    for seed in range(150):
        result = pi.stats.crosstab("g", "h", mu=0.05, rng=seed, **words)
        errors.append(result.complete.rows - true)
        assert result.nobs == result.complete.rows
        low, high = result.complete.interval
        inside.append(low <= true <= high)
    sd = math.sqrt(2.0) / 0.05 * math.sqrt(1.0 - 1.0 / 4.0)
    assert result.complete.sd == pytest.approx(sd, rel=1e-3)
    assert np.std(errors) == pytest.approx(sd, rel=0.18)
    assert np.mean(inside) > 0.89
    assert pi.stats.crosstab("g", "h", epsilon=math.inf, **words).complete.rows == true
    table_shares = pi.stats.crosstab("g", "h", target="population", epsilon=math.inf, **words)
    assert [row.estimate for row in table_shares.rows[0:6:2]] == pytest.approx(shares)
