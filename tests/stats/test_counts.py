"""Counts, crosstabs, histograms: pandas' without noise, valid intervals, refusals before a charge."""

import math

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import proportion_confint

import privinf as pi
from privinf.accounting import Ledger
from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.inference.counts import on_simplex
from privinf.stats.counts import CountModel

RNG = np.random.default_rng(11)
N = 3000
ROWS = pd.DataFrame(
    {
        "a": RNG.choice(["p", "q", "r"], N, p=[0.6, 0.395, 0.005]),
        "b": RNG.choice([1, 2, 3, 4, 5, 6], N),
        "hit": RNG.integers(0, 2, N).astype(float),
        "x": RNG.normal(40, 15, N),
        "c": RNG.choice(list("abcdefgh"), N),
    }
)
SCHEMA = pi.Schema(
    {"a": ["p", "q", "r"], "b": [1, 2, 3, 4, 5, 6], "hit": (0, 1), "x": (0, 80), "c": list("abcdefgh")}
)
HOW = {"data": ROWS, "schema": SCHEMA}
CLEAN = HOW | {"epsilon": math.inf}
SPEND = HOW | {"epsilon": 1.0, "delta": 1e-6, "rng": 0}


def test_without_noise_counts_are_pandas():
    assert pi.stats.counts("a", **CLEAN).to_pandas().to_dict() == ROWS["a"].value_counts().to_dict()
    two = pi.stats.counts("a", by="b", **CLEAN).to_pandas()
    assert two.to_dict() == ROWS.groupby(["a", "b"]).size().reindex(two.index, fill_value=0).to_dict()
    three = pi.stats.counts("a", by=["b", "hit"], **CLEAN).to_pandas()
    assert three.index.names == ["a", "b", "hit"]
    assert three["p"].sum() == (ROWS["a"] == "p").sum()
    table = pi.stats.crosstab("a", "b", **CLEAN).to_pandas()
    pd.testing.assert_frame_equal(
        table, pd.crosstab(ROWS["a"], ROWS["b"], margins=True).astype(float), check_names=True
    )
    result = pi.stats.crosstab("a", "b", **CLEAN)
    assert (result.table["[0.025"] == result.table["0.975]"]).all()


def test_arrays_and_frames_agree():
    arrays = pi.stats.crosstab(ROWS["a"], ROWS["b"], levels=(list("pqr"), range(1, 7)), epsilon=math.inf)
    assert arrays.table.equals(pi.stats.crosstab("a", "b", **CLEAN).table)
    one = pi.stats.counts(ROWS["hit"].to_numpy(), levels=[0.0, 1.0], epsilon=math.inf)
    assert one.to_pandas().sum() == N
    assert pi.stats.counts("hit", **CLEAN).to_pandas()[1] == ROWS["hit"].sum()


def test_a_histogram_is_numpys_and_its_last_bin_can_be_open():
    edges = [0, 20, 40, 60, 80]
    clipped = ROWS["x"].clip(0, 80)
    counts = pi.stats.histogram("x", edges, **CLEAN)
    assert counts.to_pandas().tolist() == np.histogram(clipped, edges)[0].tolist()
    assert list(counts.table.index) == ["[0, 20)", "[20, 40)", "[40, 60)", "[60, 80]"]
    five = pi.stats.histogram("x", 5, **CLEAN)
    assert five.to_pandas().tolist() == np.histogram(clipped, 5, (0, 80))[0].tolist()
    whole = pi.stats.histogram(np.array([0.0, 1.0, 1.0, 2.0, 9.0]), [0, 1, 2, np.inf], epsilon=math.inf)
    assert whole.to_pandas().tolist() == [1.0, 2.0, 2.0]
    assert whole.to_pandas().index[-1] == pd.Interval(2.0, np.inf, closed="left")
    by = pi.stats.histogram("x", [-np.inf, 40, np.inf], by="a", **CLEAN).to_pandas()
    assert by["p"].tolist() == [
        ((ROWS["a"] == "p") & (ROWS["x"] < 40)).sum(),
        ((ROWS["a"] == "p") & (ROWS["x"] >= 40)).sum(),
    ]


@pytest.mark.parametrize("words", [{"mu": 0.4}, {"epsilon": 1.0, "delta": 0}])
@pytest.mark.parametrize("names", [("a", "b"), ("b", "c")])
def test_counts_are_covered(words, names):
    """The intervals of 60 releases, at 99.9% limits for dependent cells."""
    true = pi.stats.crosstab(*names, **CLEAN).table["estimate"].to_numpy()
    covered = []
    for seed in range(30):
        table = pi.stats.crosstab(*names, **HOW, **words, rng=seed).table
        covered.append((table["[0.025"] <= true) & (true <= table["0.975]"]))
    assert np.mean(covered) > 0.93
    joint = [
        (lambda t: ((t["[0.025"] <= true) & (true <= t["0.975]"])).all())(
            pi.stats.crosstab(*names, **HOW, **words, simultaneous=True, rng=seed).table
        )
        for seed in range(60)
    ]
    assert np.mean(joint) > 0.85


def test_margins_are_released_for_large_tables_and_combined():
    small = pi.stats.crosstab("a", "b", **HOW, mu=0.3, rng=1)
    large = pi.stats.crosstab("b", "c", **HOW, mu=0.3, rng=1)
    assert (small.release.query.kind, large.release.query.kind) == ("cells", "margins")
    (entry,) = large.release.entries
    assert entry.sensitivity.value == pytest.approx(math.sqrt(2.0), rel=1e-4)
    assert large.privacy.mu == pytest.approx(0.3)
    assert large.release.scale**-2.0 == pytest.approx(
        np.array([0.6, 0.2, 0.2]) * (0.3 / math.sqrt(2.0)) ** 2, rel=1e-4
    )
    alone = pi.stats.crosstab("b", "c", **HOW, mu=0.3, margins=False, rng=1)
    assert large.table["std err"]["1, All"] < 0.8 * alone.table["std err"]["1, All"]
    assert pi.stats.crosstab("b", "c", **HOW, epsilon=1.0, delta=0, rng=1).release.query.kind == "cells"
    with pytest.raises(NotAvailableError, match="leave it out for Gaussian noise"):
        pi.stats.crosstab("b", "c", **HOW, epsilon=1.0, delta=1e-6, noise="laplace", margins=True)


def test_what_is_shown_is_possible_and_consistent():
    result = pi.stats.crosstab("a", "c", **HOW, mu=0.02, rng=3)
    frame = result.to_pandas()
    assert (frame.to_numpy() >= 0.0).all()
    cells = frame.iloc[:-1, :-1]
    assert cells.sum(axis=1).to_numpy() == pytest.approx(frame["All"].iloc[:-1].to_numpy(), abs=1e-4)
    assert cells.sum().to_numpy() == pytest.approx(frame.loc["All"].iloc[:-1].to_numpy(), abs=1e-4)
    assert frame.loc["All", "All"] == N
    model = CountModel.from_release(result.release)
    rows = on_simplex(model.estimate.rows, N)
    assert frame["All"].iloc[:-1].to_numpy() == pytest.approx(rows, abs=1e-4)
    table = result.table.assign(unprojected=result.unprojected)
    outside = (table["unprojected"] < 0.0).any()
    assert outside
    centered = (table["[0.025"] <= table["unprojected"].clip(0)) & (table["unprojected"] <= table["0.975]"])
    assert centered.all()


def test_shares_of_the_population_allow_for_sampling():
    table = pi.stats.counts("a", **HOW, mu=0.3, rng=0)
    shares = table.intervals(target="population")
    assert shares.to_pandas().sum() == pytest.approx(1.0)
    assert shares.table["std err"]["p"] * N > table.table["std err"]["p"]
    joint = shares.intervals(simultaneous=True)
    assert (joint.table["[0.025"] <= shares.table["[0.025"]).all()
    assert (joint.table["0.975]"] > shares.table["0.975]"]).all()
    narrow = shares.intervals(confidence_level=0.5).table
    assert "[0.25" in narrow.columns
    same = pi.stats.counts("a", target="population", **HOW, mu=0.3, rng=0)
    pd.testing.assert_frame_equal(same.table, shares.table)
    laplace = pi.stats.counts("a", target="population", **SPEND)
    assert laplace.release.noise == "laplace"
    assert (laplace.table["[0.025"] < laplace.table["0.975]"]).all()


def test_suppressed_cells_are_left_out_and_the_level_is_corrected():
    result = pi.stats.crosstab("a", "b", **HOW, mu=0.4, rng=5)
    shown = result.suppress(100.0)
    assert len(shown.rows) == 12 + 9
    assert "Of 18 cells, 6 have unprojected estimates below 100" in " ".join(shown.notes)
    assert "the level 0.9667" in " ".join(shown.notes)
    cells = np.array(result.unprojected[:18])
    rest = N - cells[cells >= 100.0].sum()
    assert f"they have {rest:.6g} records" in " ".join(shown.notes)
    before, after = result.table.loc["p, 1"], shown.table.loc["p, 1"]
    assert after["[0.025"] <= before["[0.025"]
    assert shown.table.loc["p, All"].equals(result.table.loc["p, All"])
    assert shown.to_pandas().iloc[:3, :6].isna().sum().sum() == 6
    assert shown.intervals(target="population").below == 100.0
    assert "all cells are shown" in " ".join(result.suppress(-1e9).notes)
    with pytest.raises(NotAvailableError, match="below="):
        result.suppress(1e9)


def test_cells_that_cannot_occur_are_zero():
    words = {"structural_zeros": [("r", level) for level in range(1, 7)]} | HOW
    result = pi.stats.crosstab("a", "b", **words, mu=0.3, rng=0)
    table = result.table
    assert (table.loc[["r, 1", "r, All"], ["estimate", "std err", "[0.025", "0.975]"]] == 0.0).all(axis=None)
    assert result.to_pandas().loc["r"].tolist() == [0.0] * 7
    assert result.to_pandas().loc["All", "All"] == N
    assert "6 cells cannot occur" in " ".join(note for note in result.notes)
    assert pi.stats.counts("a", structural_zeros=["r"], **HOW, mu=0.3, rng=0).table["estimate"]["r"] == 0.0
    large = pi.stats.crosstab("b", "c", structural_zeros=[(1, "a"), (2, "b")], **HOW, mu=0.3, rng=0)
    assert large.to_pandas().loc[1, "a"] == large.to_pandas().loc[2, "b"] == 0.0
    with pytest.raises(NotAvailableError, match="every cell can occur"):
        result.independence()
    ledger = Ledger()
    for wrong in (["z"], [("p", 1)], [("p",), ("q",), ("r",)]):
        with pytest.raises(ArgumentError, match="structural_zeros"):
            pi.stats.counts("a", structural_zeros=wrong, **HOW, mu=0.3, ledger=ledger)
    assert len(ledger) == 0


def test_the_test_of_independence_shares_the_release():
    result = pi.stats.crosstab("a", "b", **SPEND)
    test = pi.stats.chi2_contingency("a", "b", **SPEND)
    assert result.independence().statistic == test.statistic
    assert result.independence().pvalue == test.pvalue
    large = pi.stats.crosstab("b", "c", **HOW, mu=0.3, rng=0).independence()
    assert 0.0 < large.pvalue <= 1.0
    with pytest.raises(NotAvailableError):
        pi.stats.counts("a", **SPEND).independence()


def test_results_leave_as_tables_and_pictures():
    result = pi.stats.counts("a", **SPEND)
    assert list(result.tidy()["term"]) == ["p", "q", "r"]
    assert result.to_dict()["test"]["title"] == "Counts"
    assert "counts of a" in str(result.summary())
    pytest.importorskip("matplotlib")
    assert len(result.plot().get_yticklabels()) == 3
    shares = result.intervals(target="population")
    assert "shares of a" in str(shares.summary())
    table = pi.stats.crosstab("a", "b", **SPEND)
    assert "shares of b within a" in str(table.row_shares().summary())
    assert "shares of a within b" in str(table.column_shares().summary())
    ax = table.plot()
    assert len(ax.get_yticklabels()) == len(table.rows) - sum(map(len, table.release.levels))
    assert ax.lines[-1].get_marker() == "|"  # a narrow interval stays in sight


def test_what_is_wrong_is_refused_before_anything_is_spent():
    ledger = Ledger()
    words = {"mu": 0.1, "ledger": ledger}
    with pytest.raises(ArgumentError, match=r"top-coded"):
        pi.stats.histogram("x", [0, 20, 40], **HOW, **words)
    with pytest.raises(ArgumentError, match=r"bins="):
        pi.stats.histogram("x", [0, 80], **HOW, **words)
    with pytest.raises(ArgumentError, match=r"bins="):
        pi.stats.histogram("x", [0, 50, 50, 80], **HOW, **words)
    with pytest.raises(SchemaError, match="counts and groups need levels"):
        pi.stats.counts("x", **HOW, **words)
    with pytest.raises(ArgumentError, match="target"):
        pi.stats.counts("a", target="sample", **HOW, **words)
    with pytest.raises(ArgumentError, match="more different columns"):
        pi.stats.counts("a", by=["a", "b"], **HOW, **words)
    with pytest.raises(ArgumentError, match="pair"):
        pi.stats.counts(ROWS["a"], by=ROWS["b"], levels=[["p"]], **words)
    several = pi.Schema({"a": ["p", "q", "r"]}, unit="person", max_rows=3)
    with pytest.raises(NotAvailableError, match="up to 3 rows"):
        pi.stats.counts("a", data=ROWS.assign(person=1), schema=several, **words)
    for function, columns in (("counts", "a"), ("crosstab", "ab"), ("histogram", "x")):
        with pytest.raises(ArgumentError, match="simultaneous"):
            getattr(pi.stats, function)(*columns, simultaneous="yes", **HOW, **words)
    with pytest.raises(ArgumentError, match="levels= is for groups"):
        pi.stats.histogram(ROWS["x"], bounds=(0, 80), levels=["p"], **words)
    assert len(ledger) == 0


def test_a_level_with_the_name_of_the_margins_keeps_its_row():
    for others, margin in ((["q", "r"], "All levels"), (["q", "All levels"], "All levels, All levels")):
        a = ROWS["a"].replace(dict(zip("pqr", ["All", *others], strict=True))).to_numpy()
        levels = ([1, 2, 3, 4, 5, 6], ["All", *others])
        result = pi.stats.crosstab(ROWS["b"], a, levels=levels, epsilon=math.inf)
        assert result.table.index.is_unique
        assert result.table.loc["1, All", "estimate"] == ((ROWS["b"] == 1) & (ROWS["a"] == "p")).sum()
        assert result.table.loc[f"1, {margin}", "estimate"] == (ROWS["b"] == 1).sum()
        frame = result.to_pandas()
        assert list(frame.columns) == ["All", *others, margin]
        assert frame[margin].iloc[:-1].sum() == frame.loc[margin, margin] == N
    plain = pi.stats.crosstab("a", "hit", **CLEAN).to_pandas()
    assert (plain.columns[-1], plain.index[-1]) == ("All", "All")


def test_intervals_of_a_histogram_are_those_of_its_edges():
    """Labels are rounded to six digits; edges are not."""
    edges = [0.0, 1.0 / 3.0, 1234567.125, 1234567.25, 4e6]
    values = np.array([0.2, 1.0 / 3.0, 1234567.125, 4e6])
    counts = pi.stats.histogram(values, edges, epsilon=math.inf).to_pandas()
    assert counts.index.left.tolist() == edges[:-1]
    assert counts.index.right[:-1].tolist() == edges[1:-1]
    for value in values:
        assert counts[value] == 1.0
    assert 4e6 in counts.index[-1]
    assert np.nextafter(4e6, np.inf) not in counts.index[-1]
    whole = pi.stats.histogram("x", 7, by="a", **CLEAN).to_pandas()
    assert whole.index.get_level_values(1)[0].right == np.linspace(0, 80, 8)[1]


@pytest.mark.filterwarnings("ignore::privinf.errors.LargeDeltaWarning")
@pytest.mark.parametrize(
    ("delta", "noise", "text"), [(1e-6, "laplace", 'with noise="laplace"'), (0.05, "gaussian", "smaller.")]
)
def test_margins_of_a_small_table_state_what_they_cost(delta, noise, text):
    rng = np.random.default_rng(0)
    table = {"a": rng.integers(0, 2, 3000), "b": rng.integers(0, 3, 3000)}
    schema = pi.Schema({"a": [0, 1], "b": [0, 1, 2]})
    spent = {"epsilon": 1.0, "delta": delta, "rng": 0}
    bought = pi.stats.crosstab("a", "b", table, schema=schema, margins=True, **spent)
    (note,) = [note for note in bought.notes if "margins=True" in note]
    assert text in note
    assert "margins=True used part of the budget" in " ".join(str(bought.summary()).split())
    stated = float(note.split("%")[0].split()[-1]) / 100.0
    alone = pi.stats.crosstab("a", "b", table, schema=schema, noise=noise, **spent)
    cells = slice(0, 6)
    ratio = alone.table["std err"].iloc[cells].mean() / bought.table["std err"].iloc[cells].mean()
    assert 1.0 - ratio == pytest.approx(stated, abs=0.006)
    assert not any("margins=True" in note for note in alone.notes)
    large = {"a": rng.integers(0, 6, 3000), "b": rng.integers(0, 6, 3000)}
    levels = pi.Schema({"a": list(range(6)), "b": list(range(6))})
    default = pi.stats.crosstab("a", "b", large, schema=levels, **spent)
    assert not any("margins=True" in note for note in default.notes)


# ---- shares within rows and columns


def smokers(seed, n=3000):
    rng = np.random.default_rng(seed)
    region = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    smoke = (rng.random(n)[:, None] > np.cumsum(WITHIN, axis=1)[region]).sum(axis=1)
    return region, smoke


WITHIN = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.05, 0.15, 0.8]])
LEVELS = ([0, 1, 2], [0, 1, 2])


def test_row_shares_without_noise_are_wilsons():
    region, smoke = smokers(0)
    table = pi.stats.crosstab(region, smoke, levels=LEVELS, epsilon=math.inf, target="population")
    shares = table.row_shares()
    assert shares.rows[1].name == "1 in 0"
    counts = np.array([[((region == j) & (smoke == k)).sum() for k in range(3)] for j in range(3)])
    low, high = proportion_confint(counts, counts.sum(axis=1, keepdims=True), method="wilson")
    assert [row.low for row in shares.rows] == pytest.approx(low.ravel())
    assert [row.high for row in shares.rows] == pytest.approx(high.ravel())
    columns = table.column_shares().rows
    assert columns[1].estimate == pytest.approx(counts[1, 0] / counts[:, 0].sum())
    exact = table.row_shares(target="table").rows
    assert all(row.low == pytest.approx(row.high, abs=1e-6) for row in exact)


@pytest.mark.parametrize("words", [{"noise": "gaussian"}, {"noise": "laplace"}, {"missing": "drop"}])
@pytest.mark.parametrize("target", ["table", "population"])
def test_row_shares_cover(words, target):
    covered = []
    for seed in range(30):
        region, smoke = smokers(seed)
        smoke = smoke.astype(float)
        levels = (LEVELS[0], [0.0, 1.0, 2.0])
        if "missing" in words:
            smoke[np.random.default_rng(seed + 100).random(len(smoke)) < 0.1] = np.nan
        spend = {"levels": levels, "epsilon": 0.5, "delta": 1e-6, "rng": seed, "target": target, **words}
        rows = pi.stats.crosstab(region, smoke, **spend).row_shares().rows
        assert sum(row.estimate for row in rows) == pytest.approx(3.0, abs=1e-6)
        truth = WITHIN
        if target == "table":
            cells = np.array([[((region == j) & (smoke == k)).sum() for k in range(3)] for j in range(3)])
            truth = cells / cells.sum(axis=1, keepdims=True)
        covered += [row.low <= p <= row.high for row, p in zip(rows, truth.ravel(), strict=True)]
    assert 0.91 <= np.mean(covered) <= 0.99


def test_row_shares_need_a_whole_crosstab():
    region, smoke = smokers(0)
    spend = {"epsilon": 1.0, "delta": 1e-6, "rng": 0}
    with pytest.raises(NotAvailableError, match="need a crosstab"):
        pi.stats.counts(region, levels=LEVELS[0], **spend).row_shares()
    table = pi.stats.crosstab(region, smoke, levels=LEVELS, **spend)
    with pytest.raises(NotAvailableError, match="need a crosstab"):
        table.suppress(below=50).row_shares()
    with pytest.raises(ArgumentError, match=r"normalize= .*row_shares\(\)"):
        pi.stats.crosstab(region, smoke, levels=LEVELS, normalize="index", **spend)
    zeros = pi.stats.crosstab(region, smoke, levels=LEVELS, structural_zeros=[(0, 2)], **spend).row_shares()
    assert zeros.rows[2][1:] == (0.0, 0.0, 0.0, 0.0)
    joint = table.row_shares(simultaneous=True)
    alone = table.row_shares().rows[0]
    assert joint.rows[0].low < alone.low < alone.high < joint.rows[0].high
    assert "95\\% joint interval" in joint.to_latex()
    with pytest.raises(NotAvailableError, match=r"independence\(\) of the crosstab"):
        _ = joint.pvalue


def test_shares_have_the_shape_of_the_crosstab():
    region, smoke = smokers(0)
    table = pi.stats.crosstab(region, smoke, levels=LEVELS, epsilon=math.inf)
    for shares, normalize in ((table.row_shares(), "index"), (table.column_shares(), "columns")):
        frame = shares.to_pandas()
        expected = pd.crosstab(region, smoke, normalize=normalize).loc[list(LEVELS[0]), list(LEVELS[1])]
        np.testing.assert_allclose(frame.to_numpy(), expected.to_numpy(), atol=1e-12)
        assert list(frame.index) == list(LEVELS[0])
        assert list(frame.columns) == list(LEVELS[1])
        assert frame.sum(axis=1 if normalize == "index" else 0).tolist() == pytest.approx([1.0] * 3)
