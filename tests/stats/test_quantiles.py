"""Quantiles, clipped means and descriptions: what they find, what they cost, what they refuse."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import GaussianLoss, calibrate_mu
from privinf.errors import (
    ArgumentError,
    BudgetExceededError,
    HeavyTailWarning,
    NotAvailableError,
    SchemaError,
    SensitivityError,
)
from privinf.inference.quantiles import (
    mean_clip,
    ordered_intervals,
    quantile_estimate,
    quantile_interval,
    window_edges,
)
from privinf.mechanisms.distribution import NoisyCDF, cell_counts, noisy_prefixes
from privinf.mechanisms.statistics.prefixes import prefix_sensitivity
from privinf.noise import SimulationNoise

N = 10_000
X = np.random.default_rng(5).exponential(size=N)
SMALL = pi.Schema({"x": (0, 9)})
FRAME = pd.DataFrame({"x": X})
ASKED = {"epsilon": 1.0, "delta": 1e-6}
POOR = pi.Ledger(pi.Budget(mu=0.1))
MU = calibrate_mu(**ASKED)


def look(x, edges, mu, source):
    scale = prefix_sensitivity(len(edges) + 1) / mu
    return NoisyCDF.from_counts(edges, noisy_prefixes(cell_counts(x, edges), scale, source), scale, len(x))


@pytest.mark.audit
def test_medians_are_covered_by_intervals_that_are_little_wider_than_without_noise():
    held, widths = 0, []
    for seed in range(150):
        x, source = np.random.default_rng([seed, 1]).exponential(size=N), SimulationNoise(seed)
        first = look(x, np.linspace(0.0, 15.0, 1025)[1:-1], 0.5 * MU, source)
        second = look(x, window_edges(first, 0.5, 1.96, 0.0, 15.0), math.sqrt(0.75) * MU, source)
        middle, low, high = quantile_interval(second, 0.5, 1.96, 0.0, 15.0)
        assert low <= middle <= high
        held += low <= math.log(2.0) <= high
        widths.append(high - low)
    assert held >= 135
    assert np.median(widths) <= 1.2 * 2 * 1.96 * 0.5 / (0.5 * math.sqrt(N))


def test_a_quantile_is_two_releases_of_one_account():
    ledger = pi.Ledger(pi.Budget(**ASKED))
    found = pi.stats.quantile(X, [0.5, 0.95], bounds=(0.0, 50.0), ledger=ledger, **ASKED)
    assert [row.name for row in found.rows] == ["50%", "95%"]
    assert len(ledger.entries) == 3
    assert found.privacy.epsilon(1e-6) == pytest.approx(1.0, rel=1e-4)
    assert ledger.total().epsilon(1e-6) == pytest.approx(1.0, rel=1e-4)
    for which, truth in enumerate([math.log(2.0), math.log(20.0)]):
        low, high = found.confidence_interval(0.999, which=which)
        assert low < truth < high
        assert found.confidence_interval(0.5, which=which).low >= low
    assert "Quantiles" in str(found.summary())
    assert found.nobs == N


def test_a_heap_is_its_own_quantile():
    found = pi.stats.quantile(np.repeat([1.0, 2.0, 3.0], [2000, 6000, 2000]), bounds=(0, 10), **ASKED, rng=0)
    low, high = found.confidence_interval()
    assert 1.9 < low <= 2.0 <= high < 2.1


def test_without_noise_intervals_are_those_of_order_statistics():
    found = pi.stats.quantile(X, 0.5, bounds=(0.0, 20.0), epsilon=math.inf)
    low, high = found.confidence_interval()
    places = np.sort(X)[[int(N / 2 - 98), int(N / 2 + 98)]]
    assert (low, high) == pytest.approx(tuple(places), abs=0.02)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pi.stats.quantile(X, **ASKED), SensitivityError),
        (lambda: pi.stats.quantile(X, 1.0, bounds=(0, 9), **ASKED), ArgumentError),
        (lambda: pi.stats.quantile(X, [], bounds=(0, 9), **ASKED), ArgumentError),
        (lambda: pi.stats.quantile(X, bounds=(0, 9), noise="laplace", **ASKED), ArgumentError),
        (lambda: pi.stats.quantile(X, bounds=(0, 9), ledger=POOR, **ASKED), BudgetExceededError),
        (lambda: pi.stats.mean(X, bounds=(0, 9), clip="none", **ASKED), ArgumentError),
        (lambda: pi.stats.mean(X, bounds=(0, 9), clip="auto", noise="laplace", **ASKED), ArgumentError),
        (lambda: pi.stats.describe(pd.DataFrame({"x": X}), **ASKED), ArgumentError),
        (lambda: pi.stats.describe(FRAME, ["y"], schema=SMALL, **ASKED), SchemaError),
    ],
)
def test_what_cannot_be_asked(call, error):
    with pytest.raises(error):
        call()


def test_rows_of_one_person_are_not_independent():
    rows = pd.DataFrame({"x": X, "p": np.arange(N) // 2})
    schema = pi.Schema({"x": (0, 9)}, unit="p", max_rows=2)
    with pytest.raises(NotAvailableError, match="dependent"):
        pi.stats.quantile("x", data=rows, schema=schema, **ASKED)


# ---- the clip of a mean


def test_a_loose_bound_costs_little_where_the_clip_is_chosen():
    x = np.random.default_rng(2).normal(3.0, 1.0, N)
    half = 1.96 * x.std() / math.sqrt(N)
    with pytest.warns(HeavyTailWarning, match="clipping may have changed"):
        found = [pi.stats.mean(x, bounds=(-40, 40), clip="auto", **ASKED, rng=seed) for seed in range(20)]
    widths = [np.diff(one.confidence_interval())[0] / (2 * half) for one in found]
    assert np.median(widths) <= 1.3
    plain = pi.stats.mean(x, bounds=(-40, 40), noise="gaussian", **ASKED, rng=0)
    assert np.diff(plain.confidence_interval())[0] / (2 * half) > 2.5
    errors = [abs(one.estimate - x.mean()) for one in found]
    assert max(errors) < 3.0 * half
    assert found[0].privacy.epsilon(1e-6) == pytest.approx(1.0, rel=1e-4)
    assert len(found[0].privacy.entries) == 2
    assert "at most" in " ".join(found[0].notes).lower()
    assert found[0].rows[0].low == pytest.approx(found[0].confidence_interval().low)
    assert found[0].ttest(found[0].rows[0].low).pvalue == pytest.approx(0.05)


def test_what_a_clip_may_cut_widens_the_interval_on_its_side():
    x = np.exp(1.25 * np.random.default_rng(3).standard_normal(N))
    with pytest.warns(HeavyTailWarning):
        made = pi.stats.mean(x, bounds=(0, 1000), clip="auto", epsilon=4.0, delta=1e-6, rng=1)
    assert made.clip.high < 1000
    assert made.clip.low == pytest.approx(0.0, abs=1e-9)
    low, high = made.confidence_interval()
    assert high - made.estimate == pytest.approx(made.estimate - low + made.clip.above / N, rel=1e-6)
    assert low < math.exp(1.25**2 / 2) < high


def test_spikes_are_counted_among_what_may_be_cut():
    rng = np.random.default_rng(4)
    x = rng.standard_normal(N) + 20.0 * (rng.random(N) < 0.005)
    for seed in range(20):
        with pytest.warns(HeavyTailWarning, match="extreme values") as seen:
            made = pi.stats.mean(x, bounds=(-60, 60), clip="auto", **ASKED, rng=seed)
        beyond = int((x > made.clip.high).sum())
        assert 30 < beyond <= made.clip.most[1]
        down, up = made.clip.worst(N)
        assert np.mean(x - np.clip(x, made.clip.low, made.clip.high)) < up
        message, notes = str(seen[0].message), " ".join(made.notes)
        assert f"{math.ceil(made.clip.most[1])} values above" in message
        assert f"at most {math.ceil(made.clip.most[1])} may be above the upper limit" in notes
        for text in (message, notes):
            assert f"up by {up:.3g}" in text
            assert (f"down by {down:.3g} or" in text) == (down > 0.0)


def test_a_clip_that_cuts_nothing_is_not_warned_of():
    x = np.random.default_rng(4).uniform(size=300)
    found = pi.stats.mean(x, bounds=(0, 1), clip="auto", **ASKED, rng=0)
    assert (found.clip.worst(300), found.clip.hides(300, 0.0)) == ((0.0, 0.0), False)


def test_what_cannot_be_seen_is_not_clipped():
    edges = np.linspace(-10.0, 10.0, 1025)[1:-1]
    x = np.random.default_rng(0).standard_normal(300)
    hidden = mean_clip(look(x, edges, 0.1, SimulationNoise(0)), -10.0, 10.0, 1.96, 0.2)
    assert (hidden.low, hidden.high, hidden.below, hidden.above) == (-10.0, 10.0, 0.0, 0.0)
    sharp = mean_clip(look(np.tile([0.0, 1.0], 5000), edges, 1.0, SimulationNoise(0)), -10.0, 10.0, 1.96, 1.0)
    assert (sharp.low, sharp.high) == (-10.0, 10.0)
    assert pi.stats.mean(x, bounds=(-10, 10), clip="auto", epsilon=math.inf).estimate == pytest.approx(
        x.mean()
    )


# ---- describe


def test_a_description_is_pandas_without_single_records():
    rows = pd.DataFrame({"x": X, "y": 10.0 * X, "t": "a"})
    schema = pi.Schema({"x": (0, 20), "y": (0, 200)})
    ledger = pi.Ledger()
    found = pi.stats.describe(rows, schema=schema, ledger=ledger, epsilon=2.0, delta=1e-6)
    plain = rows.describe().drop(["min", "max"])
    assert list(found.table.index) == list(plain.index)
    assert np.allclose(found.table, plain, rtol=0.1)
    inside = [
        found.intervals.loc[(row, "low")] <= found.table.loc[row] for row in ("mean", "25%", "50%", "75%")
    ]
    assert all(flags.all() for flags in inside)
    assert len(ledger.entries) == 4
    assert found.privacy.epsilon(1e-6) == pytest.approx(2.0, rel=1e-4)
    assert ledger.total().mu == pytest.approx(calibrate_mu(epsilon=2.0, delta=1e-6), rel=1e-6)
    assert all(isinstance(line.loss, GaussianLoss) for line in ledger.entries)
    assert "NOT PRIVATE" in repr(pi.stats.describe(rows, ["x"], schema=schema, mu=1.0, rng=0))


@pytest.mark.audit
@pytest.mark.parametrize("ties", [False, True])
def test_several_quantiles_and_the_ends_of_their_intervals_are_in_order(ties):
    """Each has noise of its own: of 40 samples of 100 rows some were out of order before (with ties, all)."""
    q, moved = [0.75, 0.25, 0.5], 0
    for seed in range(40):
        x = np.random.default_rng([seed, 3]).normal(50.0, 10.0, 100)
        x = np.full(100, 50.0) if ties else x
        found = pi.stats.quantile(x, q, bounds=(0.0, 100.0), epsilon=1.0, delta=1e-6, rng=seed)
        table = np.array([row[1:] for row in found.rows])[np.argsort(q)]
        assert (np.diff(table[:, [0, 2, 3]], axis=0) >= 0.0).all()
        assert ((table[:, 2] <= table[:, 0]) & (table[:, 0] <= table[:, 3])).all()
        distributions = found.release
        alone = [
            quantile_interval(one, at, 1.959964, 0.0, 100.0)
            for one, at in zip(distributions.distributions, q, strict=True)
        ]
        alone = np.array(alone)[np.argsort(q)]
        moved += (np.diff(alone, axis=0) < 0.0).any()
        assert (table[:, 2] <= alone[:, 1] + 1e-9).all()  # each contains the interval of its own look
        assert (table[:, 3] >= alone[:, 2] - 1e-9).all()
    assert moved >= 3


def test_intervals_that_are_in_order_stay_and_others_grow():
    stay = [(1.0, 0.0, 2.0), (3.0, 1.0, 4.0)]
    np.testing.assert_array_equal(ordered_intervals([0.1, 0.2], stay), stay)
    np.testing.assert_array_equal(ordered_intervals([0.2, 0.1], stay[::-1]), stay[::-1])
    found = ordered_intervals([0.1, 0.2, 0.3], [(3.0, 2.5, 5.0), (1.0, 0.5, 2.0), (4.0, 3.0, 4.5)])
    np.testing.assert_array_equal(found, [[2.0, 0.5, 5.0], [2.0, 0.5, 5.0], [4.0, 3.0, 5.0]])


@pytest.mark.audit
def test_intervals_of_several_quantiles_cover_each_of_them():
    q, held = [0.25, 0.5, 0.75], np.zeros(3)
    truth = -np.log(1.0 - np.array(q))
    for seed in range(150):
        x = np.random.default_rng([seed, 7]).exponential(size=200)
        found = pi.stats.quantile(x, q, bounds=(0.0, 15.0), epsilon=1.0, delta=1e-6, rng=seed)
        ends = np.array([row[3:] for row in found.rows])
        held += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert (held >= 135).all()


# ---- many values at a bound


def costs(seed=0, n=15_000, zeros=0.88):
    """Return costs of which most are 0, the number of claims, and two groups."""
    rng = np.random.default_rng(seed)
    cost = np.where(rng.random(n) < zeros, 0.0, np.minimum(rng.lognormal(7.0, 1.0, n), 50_000.0))
    return pd.DataFrame({"cost": cost, "rating": 10.0 - cost / 5_000.0, "sex": rng.choice(["f", "m"], n)})


COSTS = pi.Schema({"cost": (0, 50_000), "rating": (0, 10), "sex": ["f", "m"]})


def test_quantiles_of_many_values_at_a_bound_are_this_bound():
    """Before, they were quarter points of the first of 1,024 cells: 13.9, 27.7 and 41.6."""
    rows = costs()
    described = pi.stats.describe(rows, ["cost", "rating"], schema=COSTS, rng=0, **ASKED)
    assert described.table.loc[["25%", "50%", "75%"], "cost"].tolist() == [0.0] * 3
    assert described.table.loc[["25%", "50%", "75%"], "rating"].tolist() == [10.0] * 3
    ends = described.intervals["cost"]
    assert [ends[name, "low"] for name in ("25%", "50%", "75%")] == [0.0] * 3
    assert [ends[name, "high"] for name in ("25%", "50%", "75%")] == [50_000 / 1_024] * 3
    groups = pi.stats.quantile("cost", [0.25, 0.5], by="sex", data=rows, schema=COSTS, rng=0, **ASKED)
    assert [row.estimate for row in groups.rows] == [0.0] * 4
    single = pi.stats.median("cost", data=rows, schema=COSTS, rng=0, **ASKED)
    assert single.estimate == 0.0
    assert 0.0 < single.confidence_interval().high < 50_000 / 1_024


def test_quartiles_in_one_cell_have_a_note_and_are_not_recommended():
    described = pi.stats.describe(costs(), ["cost"], schema=COSTS, rng=0, **ASKED)
    assert described.one_cell == {"cost": ("25%", "50%", "75%")}
    text = repr(described)
    assert "'cost': 25%, 50%, 75% (0 to 48.83)" in text
    assert math.isnan(described.table.at["std", "cost"])
    assert "report the quartiles instead" not in text
    groups = pi.stats.median("cost", by="sex", data=costs(), schema=COSTS, rng=0, **ASKED)
    assert any("interval is one cell (48.83 wide)" in note for note in groups.notes)
    smooth = pi.stats.describe(FRAME, schema=SMALL, rng=0, **ASKED)
    assert not smooth.one_cell
    assert "cells" not in repr(smooth)


def test_within_a_cell_at_a_bound_only_more_rows_than_in_the_next_cell_are_at_the_bound():
    """Of 100 rows 60 are in the first cell and 20 in the next, so 40 count as equal to the bound."""
    exact = NoisyCDF(
        edges=np.array([1.0, 2.0, 3.0]), counts=np.array([60.0, 80.0, 90.0]), sds=np.zeros(3), n=100
    )
    estimates = [quantile_estimate(exact, q, 0.0, 4.0) for q in (0.3, 0.4, 0.5, 0.6, 0.7, 0.95)]
    np.testing.assert_allclose(estimates, [0.0, 0.0, 0.5, 1.0, 1.5, 3.5])
    mirrored = NoisyCDF(
        edges=np.array([1.0, 2.0, 3.0]), counts=np.array([10.0, 20.0, 40.0]), sds=np.zeros(3), n=100
    )
    estimates = [quantile_estimate(mirrored, 1.0 - q, 0.0, 4.0) for q in (0.3, 0.4, 0.5, 0.6, 0.7, 0.95)]
    np.testing.assert_allclose(estimates, [4.0, 4.0, 3.5, 3.0, 2.5, 0.5])
    # Cells of different widths: three rows per unit of width.
    uneven = NoisyCDF(edges=np.array([1.0, 4.0]), counts=np.array([13.0, 22.0]), sds=np.zeros(2), n=40)
    assert quantile_estimate(uneven, 0.25, 0.0, 9.0) == 0.0
    assert quantile_estimate(uneven, 11.5 / 40, 0.0, 9.0) == pytest.approx(0.5)


@pytest.mark.audit
@pytest.mark.parametrize("zeros", [0.5, 0.6, 0.88])
def test_intervals_of_medians_contain_an_atom_at_a_bound(zeros):
    """The median is 0; with half of the values at 0 it is the end of a gap in the distribution function."""
    held = 0
    for seed in range(40):
        rows = costs(seed, 4_000, zeros)
        groups = pi.stats.median("cost", by="sex", data=rows, schema=COSTS, rng=seed, **ASKED)
        alone = pi.stats.median("cost", data=rows, schema=COSTS, rng=seed, **ASKED)
        held += sum(row.low == 0.0 for row in (*groups.rows, *alone.rows))
    assert held >= 106  # of 120; 114 are expected at least
