"""Sums, means, medians and shares by group: pandas' without noise, valid intervals with it."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import Ledger
from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.inference.counts import ShareModel
from privinf.mechanisms.distribution import group_distributions
from privinf.mechanisms.statistics.prefixes import root
from privinf.stats.base import JOINT, TABLE_ESTIMATES
from privinf.stats.counts import EXACT, OF_TABLE, SCORE
from privinf.stats.totals import TotalModel, two_laplace_quantile

RNG = np.random.default_rng(21)
N = 4000
G = RNG.choice(["u", "v", "w"], N, p=[0.6, 0.37, 0.03])
X = RNG.gamma(4.0, 2.0 + (G == "v"), N).clip(0, 40)
ROWS = pd.DataFrame(
    {"x": X, "g": G, "h": RNG.integers(0, 2, N).astype(float), "t": np.where(G == "u", "a", "b")}
)
SCHEMA = pi.Schema({"x": (0, 40), "g": ["u", "v", "w"], "h": (0, 1), "t": ["a", "b"]})
HOW = {"data": ROWS, "schema": SCHEMA}
CLEAN = HOW | {"epsilon": math.inf}
GROUPED = ROWS.groupby("g")["x"]


def test_without_noise_sums_and_means_are_pandas():
    for name in ("sum", "mean"):
        found = getattr(pi.stats, name)("x", by="g", **CLEAN)
        assert found.table["estimate"].to_numpy() == pytest.approx(getattr(GROUPED, name)().to_numpy())
        table = getattr(pi.stats, name)("x", by="g", target="table", **CLEAN).table
        assert table["[0.025"].to_numpy() == pytest.approx(table["0.975]"].to_numpy())
        both = getattr(pi.stats, name)("x", by=["g", "h"], **CLEAN).table
        expected = getattr(ROWS.groupby(["g", "h"])["x"], name)()
        assert both["estimate"].to_numpy() == pytest.approx(expected.to_numpy())
        assert both.index[0] == "u, 0"
    assert pi.stats.sum("x", **CLEAN).estimate == pytest.approx(X.sum())
    arrays = pi.stats.sum(X, by=G, levels=["u", "v", "w"], bounds=(0, 40), epsilon=math.inf)
    assert arrays.table.equals(pi.stats.sum("x", by="g", **CLEAN).table)


def test_without_noise_medians_are_within_a_cell():
    table = pi.stats.median("x", by="g", **CLEAN).table
    assert table["estimate"].to_numpy() == pytest.approx(GROUPED.median().to_numpy(), abs=40 / 1024)
    other = pi.stats.quantile("x", [0.9, 0.1], by="g", target="table", **CLEAN)
    assert list(other.table.index[:2]) == ["u, 90%", "u, 10%"]
    expected = GROUPED.quantile([0.9, 0.1]).to_numpy()
    assert other.table["estimate"].to_numpy() == pytest.approx(expected, abs=0.3)
    again = pi.stats.median("x", by="g", **HOW, mu=1.0, rng=0)
    assert again.intervals([0.25, 0.5, 0.75], simultaneous=True).table.shape == (9, 4)
    assert again.intervals().table.equals(again.table)


@pytest.mark.parametrize("words", [{"mu": 0.3}, {"epsilon": 1.0, "delta": 0}])
@pytest.mark.parametrize("name", ["sum", "mean", "median"])
def test_intervals_of_this_table_cover_it(name, words):
    """60 releases, at 99.9% limits for dependent groups."""
    if name == "median" and "delta" in words:
        return
    true = getattr(GROUPED, name)().to_numpy()
    covered, joint = [], []
    for seed in range(60):
        result = getattr(pi.stats, name)("x", by="g", target="table", **HOW, **words, rng=seed)
        table = result.table
        covered.append((table["[0.025"] <= true) & (true <= table["0.975]"]))
        joint.append(np.ptp(table.iloc[:, 2:].to_numpy(), axis=1))
    assert np.mean(covered) > 0.9
    wide = getattr(pi.stats, name)("x", by="g", target="table", simultaneous=True, **HOW, **words, rng=59)
    assert (np.ptp(wide.table.iloc[:, 2:].to_numpy(), axis=1) >= joint[-1]).all()
    population = getattr(pi.stats, name)("x", by="g", target="population", **HOW, **words, rng=59)
    assert (np.ptp(population.table.iloc[:, 2:].to_numpy(), axis=1) >= joint[-1] * 0.999).all()


@pytest.mark.parametrize(("first", "second"), [(1.0, 0.0), (1.0, 0.4), (1.0, 1.0), (2.0, 1.9999)])
def test_quantiles_of_two_laplace_numbers(first, second):
    draws = (RNG.laplace(size=(400_000, 2)) * np.array([first, second]) / math.sqrt(2.0)).sum(axis=1)
    assert np.quantile(np.abs(draws), 0.95) == pytest.approx(
        two_laplace_quantile(0.95, first, second), rel=0.01
    )


def test_totals_have_the_noise_that_is_stated():
    release = pi.stats.sum("x", by="g", **HOW, mu=0.5, rng=0).release
    model = TotalModel.from_release(release)
    a = 2.0 / 0.5
    assert model.noise_sds == pytest.approx(np.full(3, 20.0 * a * math.sqrt(1.0 + 2.0 / 3.0)), rel=1e-6)
    own = GROUPED.apply(lambda x: (x**2).sum()) - GROUPED.sum() ** 2 / N
    assert model.sampling == pytest.approx(own.to_numpy(), rel=0.1, abs=4 * 3919)
    one = TotalModel.from_release(pi.stats.sum("x", **HOW, mu=0.5, rng=0).release)
    assert one.noise_sds == pytest.approx([20.0 * 4.0], rel=1e-6)
    result = pi.stats.sum("x", by="g", **HOW, mu=0.5, rng=0)
    assert result.intervals(target="population").table["std err"]["u"] > result.table["std err"]["u"]
    assert len(result.intervals(confidence_level=0.5, simultaneous=True).rows) == 3


def test_means_by_group_compare_groups_too():
    result = pi.stats.mean("x", by="g", **HOW, mu=0.5, rng=0)
    anova = pi.stats.anova_oneway("x ~ g", ROWS, schema=SCHEMA, mu=0.5, rng=0)
    assert result.table.equals(anova.means().table)
    assert result.pairwise().table.equals(anova.pairwise().table)
    assert "Means of Groups" in str(result)
    two = pi.stats.mean("x", by=["g", "t"], **HOW, mu=0.5, rng=0)
    assert two.groups[0] == ("u", "a")
    assert len(two.pairwise().rows) == 15
    assert two.contrast({("u", "a"): 1, ("v", "b"): -1}).rows[0].name == "+1[u, a] -1[v, b]"
    clipped = pi.stats.mean("x", by="g", clip="auto", **HOW, mu=0.5, rng=0)
    assert clipped.clip is not None
    assert result.means(target="table", simultaneous=True).table.shape == (3, 4)


def test_one_mean_or_median_of_this_table():
    for words in ({"mu": 0.5}, {"epsilon": 1.0, "delta": 0}):
        table = pi.stats.mean("x", target="table", **HOW, **words, rng=0)
        population = pi.stats.mean("x", **HOW, **words, rng=0)
        assert table.estimate == population.estimate
        assert np.ptp(table.rows[0][3:]) < np.ptp(population.rows[0][3:])
        assert table.confidence_interval() == table.rows[0][3:]
    one = pi.stats.median("x", target="table", **HOW, mu=0.5, rng=0)
    both = pi.stats.quantile("x", [0.5], **HOW, mu=0.5, rng=0)
    assert one.estimate == both.estimate
    assert np.ptp(one.rows[0][3:]) <= np.ptp(both.rows[0][3:])
    assert one.confidence_interval() == one.rows[0][3:]


def test_sds_of_group_distributions_are_those_of_the_noise():
    cells, groups, n, q = 16, 3, 900, 0.3
    counts = RNG.multinomial(n, np.full(cells * groups, 1.0 / (cells * groups))).reshape(groups, cells)
    clean = np.array([np.convolve(root(cells), one)[:cells] for one in counts])
    edges = np.arange(cells - 1.0)
    truth = np.cumsum(counts, axis=1)[:, :-1] - q * counts.sum(axis=1, keepdims=True)
    errors = []
    for _ in range(3000):
        found = group_distributions(clean + 5.0 * RNG.standard_normal(clean.shape), edges, 5.0, n, q)
        errors.append([one.counts - q * one.n for one in found] - truth)
    sds = np.std(errors, axis=0)
    assert sds == pytest.approx(np.array([one.sds for one in found]), rel=0.08)
    assert np.abs(np.mean(errors, axis=0)).max() < 0.6
    exact = group_distributions(clean, edges, 0.0, n, q)
    assert [one.n for one in exact] == counts.sum(axis=1).tolist()


def test_one_line_of_the_ledger_pays_for_all_groups():
    for call, sensitivity in (
        (lambda k: pi.stats.sum("x", by="g", **k), 2.0),
        (lambda k: pi.stats.median("x", by="g", **k), math.sqrt(2.0 * float(root(1024) @ root(1024)))),
    ):
        ledger = Ledger()
        call(HOW | {"mu": 0.3, "ledger": ledger})
        (entry,) = ledger.entries
        assert entry.sensitivity.value == pytest.approx(sensitivity, rel=1e-3)
        assert ledger.total().mu == pytest.approx(0.3)


def test_factors_are_described_by_their_shares():
    found = pi.stats.describe(ROWS, schema=SCHEMA, mu=2.0, rng=0)
    assert list(found.table.columns) == ["x", "h"]
    assert list(found.levels.loc["g"].index) == ["u", "v", "w"]
    assert found.levels.loc["g", "count"].sum() == pytest.approx(N)
    assert found.privacy.mu == pytest.approx(2.0)
    assert len(found.privacy.releases) == 6
    shares = found.levels.loc[("g", "u")]
    assert shares["low"] < (G == "u").mean() < shares["high"]
    assert found.tidy().iloc[-1]["term"] == "share of b"
    alone = pi.stats.describe(ROWS, ["g"], schema=SCHEMA, epsilon=1.0, delta=1e-6, rng=0)
    assert alone.nobs == N
    assert "share" in repr(alone)
    assert "Factors" in alone._repr_html_()
    assert found.to_dict()["estimates"][-1]["term"] == "share of b"


def test_proportions_of_a_factor_are_those_of_its_levels():
    for words in ({"mu": 0.5}, {"mu": 0.5, "method": "exact"}, {"epsilon": 1.0, "delta": 0}):
        table = pi.stats.proportion_confint("g", **HOW, **words, rng=0).table
        assert list(table.index) == ["u", "v", "w"]
        assert (table["[0.025"] < table["0.975]"]).all()
        assert table["estimate"].sum() == pytest.approx(1.0)
    arrays = pi.stats.proportion_confint(G, levels=["u", "v", "w"], epsilon=math.inf)
    assert arrays.table["estimate"].to_numpy() == pytest.approx(ROWS["g"].value_counts(normalize=True))
    two = pi.stats.proportion_confint(ROWS["t"], levels=["a", "b"], epsilon=math.inf)
    assert two.estimate == (ROWS["t"] == "b").mean()


def test_two_proportions_are_printed_beside_their_difference():
    result = pi.stats.proportions_ztest("h", "t", **CLEAN)
    shares = ROWS.groupby("t")["h"].mean()
    assert list(result.table.index) == ["a - b", "share of 1 in a", "share of 1 in b"]
    assert result.table["estimate"].to_numpy()[1:] == pytest.approx(shares.to_numpy())
    assert result.estimate == pytest.approx(shares["a"] - shares["b"])
    noisy = pi.stats.proportions_ztest("h", "t", **HOW, mu=0.5, rng=0).table
    assert (noisy["[0.025"] < noisy["estimate"]).all()
    assert (noisy["estimate"] < noisy["0.975]"]).all()


def test_what_is_wrong_is_refused_before_anything_is_spent():
    ledger = Ledger()
    words = {"mu": 0.1, "ledger": ledger}
    for name in ("sum", "mean", "median"):
        call = getattr(pi.stats, name)
        with pytest.raises(ArgumentError, match="by="):
            call("x", simultaneous=True, **HOW, **words)
        with pytest.raises(ArgumentError, match="by="):
            call("x", by=["g", "g"], **HOW, **words)
        with pytest.raises(ArgumentError, match="target"):
            call("x", by="g", target="sample", **HOW, **words)
        with pytest.raises(SchemaError):
            call("x", by="x2", data=ROWS.assign(x2=X), schema=SCHEMA.fill({"x2": (0, 9)}), **words)
    with pytest.raises(ArgumentError, match="not available for quantiles"):
        pi.stats.median("x", by="g", noise="laplace", epsilon=1.0, **HOW, ledger=ledger)
    several = pi.Schema({"x": (0, 40), "g": ["u", "v", "w"]}, unit="person", max_rows=2)
    for name in ("sum", "mean", "median"):
        with pytest.raises(NotAvailableError, match="up to 2 rows"):
            getattr(pi.stats, name)("x", by="g", data=ROWS.assign(person=1), schema=several, **words)
    assert len(ledger) == 0


def test_intervals_for_this_table_are_marked():
    x = np.random.default_rng(3).uniform(0, 10, 400)
    words = {"bounds": (0, 10), "mu": 1.0, "rng": 0}
    groups = {"by": np.resize(["a", "b"], 400), "levels": ["a", "b"]}
    for function in (pi.stats.mean, pi.stats.median):
        for by in ({}, groups):
            assert TABLE_ESTIMATES in function(x, target="table", **by, **words).notes
            assert TABLE_ESTIMATES not in function(x, **by, **words).notes
    means = pi.stats.mean(x, target="table", **groups, **words)
    assert TABLE_ESTIMATES in means.means(target="table").notes
    assert TABLE_ESTIMATES in means.means().notes
    assert TABLE_ESTIMATES not in means.means(target="population").notes + means.pairwise().notes


def test_means_keep_the_options_of_their_result():
    words = {"by": "g", "confidence_level": 0.8, **HOW, "mu": 0.5, "rng": 0}
    result = pi.stats.mean("x", target="table", simultaneous=True, **words)
    assert result.means().table.equals(result.table)
    assert result.means().notes == result.notes
    plain = pi.stats.mean("x", **words)
    assert result.means(target="population", simultaneous=False).table.equals(plain.table)
    assert not plain.table.equals(result.table)


def test_intervals_that_hold_together_have_a_note():
    for name in ("sum", "mean", "median"):
        function = getattr(pi.stats, name)
        joint = function("x", by="g", simultaneous=True, **HOW, mu=0.5, rng=0)
        alone = function("x", by="g", **HOW, mu=0.5, rng=0)
        again = joint.means() if name == "mean" else joint.intervals()
        for result, notes in ((joint, 1), (again, 1), (alone, 0)):
            assert result.notes.count(JOINT.format(3)) == notes
    several = pi.stats.quantile("x", [0.2, 0.7], by="g", simultaneous=True, **HOW, mu=0.5, rng=0)
    assert JOINT.format(6) in several.notes


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ({"epsilon": 1.0, "delta": 1e-6, "method": "exact", "noise": "gaussian"}, EXACT),
        ({"epsilon": 1.0, "delta": 0}, EXACT),
        ({"epsilon": 1.0, "delta": 1e-6, "noise": "gaussian"}, SCORE),
    ],
)
def test_shares_of_levels_keep_their_method(words, note):
    result = pi.stats.proportion_confint("g", **HOW, **words, rng=0)
    assert note in result.notes
    assert result.intervals().table.equals(result.table)
    assert result.intervals().notes == result.notes
    narrow = pi.stats.proportion_confint("g", confidence_level=0.6, **HOW, **words, rng=0)
    assert result.intervals(confidence_level=0.6).table.equals(narrow.table)
    whole = result.suppress(-1e9)
    assert whole.table.equals(result.table)
    assert note in whole.notes
    table = result.intervals(target="table")
    assert OF_TABLE in table.notes
    assert note not in table.notes


def test_exact_intervals_of_levels_use_the_noise_of_their_estimates():
    """Counts that are conditioned on the public total have less noise, unless it is Laplace noise."""
    for words, share in (({"mu": 0.2}, 2.0 / 3.0), ({"epsilon": 0.3, "delta": 0}, 1.0)):
        result = pi.stats.proportion_confint("g", method="exact", **HOW, **words, rng=0)
        sd = float(result.release.scale[0]) * math.sqrt(share)
        for row, estimate in zip(result.rows, result.unprojected, strict=True):
            model = ShareModel(np.float64(N * estimate), N, sd, "delta" in words)
            assert row[3:] == pytest.approx(model.exact_interval(0.95), abs=1e-9)


@pytest.mark.parametrize("kind", ["frame", "file", "database"])
@pytest.mark.parametrize("bad", [{"t": "c"}, {"h": np.nan}])
def test_a_description_finds_every_defect_before_it_charges(tmp_path, kind, bad):
    rows = ROWS.copy()
    for name, value in bad.items():
        rows.loc[7, name] = value
    data = rows
    if kind == "file":
        rows.to_parquet(data := tmp_path / "rows.parquet")
    if kind == "database":
        connection = pytest.importorskip("duckdb").connect()
        connection.register("rows", rows)
        data = pi.open_rows(connection.sql("select * from rows"), push_down=True)
    ledger = Ledger()
    with pytest.raises(SchemaError, match=repr(*bad)):
        pi.stats.describe(data, ["x", "g", *bad], schema=SCHEMA, mu=1.0, ledger=ledger)
    assert len(ledger) == 0


def test_without_noise_standard_errors_of_means_are_those_of_statistics():
    """Twelve rows: the quantile of Student's distribution belongs to the intervals alone."""
    x = np.random.default_rng(5).uniform(0, 10, 24)
    g = np.repeat(["a", "b"], 12)
    words = {"levels": ["a", "b"], "bounds": (0, 10), "epsilon": math.inf}
    result = pi.stats.mean(x, by=g, **words)
    expected = [x[g == level].std(ddof=1) / math.sqrt(12) for level in "ab"]
    assert result.table["std err"].to_numpy() == pytest.approx(expected, rel=1e-6)
    contrast = result.contrast([1, -1])
    assert contrast.bse == pytest.approx(math.hypot(*expected), rel=1e-6)
    low, high = result.rows[0][3:]
    assert (high - low) / 2.0 == pytest.approx(2.200985 * expected[0], rel=1e-5)
    table = pi.stats.mean(x, by=g, target="table", **words)
    assert table.table["std err"].to_numpy() == pytest.approx([0.0, 0.0], abs=1e-7)


@pytest.mark.parametrize(("n", "share", "shares"), [(2000, 0.5, (0.04, 0.07)), (1000, 0.3, (0.9, 0.97))])
def test_intervals_of_cohens_h_of_two_shares(n, share, shares):
    """40 tests at epsilon 1, 99.9% limit; with 150 tests each the coverage was 0.93 to 0.97."""
    schema = pi.Schema({"y": pi.Factor([0, 1]), "g": pi.Factor([0, 1])})
    first, second = (2.0 * math.asin(math.sqrt(p)) for p in shares)
    covered = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        g = (rng.uniform(size=n) < share).astype(int)
        y = (rng.uniform(size=n) < np.where(g == 1, shares[1], shares[0])).astype(int)
        r = pi.stats.proportions_ztest(
            "y", "g", data={"y": y, "g": g}, schema=schema, epsilon=1.0, delta=1e-6, rng=seed
        )
        low, high = r.effect_intervals["Cohen's h"]
        assert -math.pi <= low <= r.effects["Cohen's h"] <= high <= math.pi
        covered += low <= first - second <= high
    assert covered >= 33
