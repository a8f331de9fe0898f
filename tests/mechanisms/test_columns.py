"""Sums of tests and counts of distributions by passes: exact, from every source, for any number of rows."""

from __future__ import annotations

import itertools
import math
import pickle
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.tables import FURTHER_KINDS, IN_MEMORY, KINDS, STREAMS, written

import privinf as pi
from privinf.errors import AlignmentError, NotAvailableError, SchemaError, SensitivityError
from privinf.mechanisms import blocks, reading, sources
from privinf.mechanisms.distribution import OpenColumns, noisy_prefixes
from privinf.mechanisms.gaussian import check_room
from privinf.mechanisms.passes import ColumnPasses
from privinf.mechanisms.rows import as_rows
from privinf.mechanisms.samples import SampleQuery, SampleTotals, release_sample
from privinf.mechanisms.statistics.prefixes import root
from privinf.mechanisms.statistics.samples import COMPLETE_KINDS, SAMPLE_STATISTICS, EntrySums
from privinf.noise import LatticeNoise, SimulationNoise
from privinf.schema.reading import Reader

SCHEMA = pi.Schema(
    {"y": (0, 10), "x": (-1, 1), "g": pi.Factor(["u", "v", "w"], other="w"), "b": pi.Factor(["n", "m"])}
)
QUESTIONS = {
    "one sample": SampleQuery(kind="one sample", values=("y",)),
    "groups": SampleQuery(kind="groups", values=("x",), by=("g",)),
    "share": SampleQuery(kind="share", values=("b",)),
    "cells": SampleQuery(kind="cells", values=(), by=("b", "g")),
    "pairs": SampleQuery(kind="pairs", values=("y", "x")),
    "two ranked": SampleQuery(kind="two ranked", values=("x",), by=("b",)),
}
SPEND = {"epsilon": 2.0, "delta": 1e-6, "rng": 0}


@pytest.fixture
def frame():
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "y": rng.uniform(-1, 11, 150),
            "x": rng.uniform(-2, 2, 150),
            "g": rng.choice(["u", "v", "elsewhere"], 150),
            "b": rng.choice(["n", "m"], 150),
        }
    )


def summed(kind, data, missing="raise"):
    """Return the exact sums of a question."""
    weighted = SAMPLE_STATISTICS[kind].l2
    sums, n = SampleTotals(SCHEMA, QUESTIONS[kind]).over(as_rows(data, missing), weighted, exact=True)
    return (sums if isinstance(sums, np.ndarray) else sums._total.integers()).tolist(), n


@pytest.mark.audit
@pytest.mark.parametrize("rows", [25, 1 << 16])
def test_one_digest_over_all_sources(rows, frame, tmp_path, monkeypatch):
    """And from tables that are not in memory nothing is collected, but what ranks need."""
    monkeypatch.setattr(sources, "ROWS", rows)
    shuffled = frame.sample(frac=1.0, random_state=1).reset_index(drop=True)
    found = {kind: [summed(kind, shuffled)] for kind in QUESTIONS}
    cells = {"shuffled": OpenColumns(shuffled, ["x"]).cells({"x": np.linspace(-1, 1, 9)})["x"].counts}
    monkeypatch.setattr(reading, "MOST_MEMORY", 1)
    for number, (source, make) in enumerate(KINDS.items()):
        (folder := tmp_path / str(number)).mkdir()
        for place, kind in enumerate(QUESTIONS):
            (folder / str(place)).mkdir()
            found[kind].append(summed(kind, make(frame, folder / str(place))))
        if source not in STREAMS:
            (folder / "cells").mkdir()
            held = OpenColumns(make(frame, folder / "cells"), ["x"])
            cells[source] = held.cells({"x": np.linspace(-1, 1, 9)})["x"].counts
    for kind, sums in found.items():
        assert len(sums) > 10
        assert all(one == sums[0] for one in sums), kind
    assert len({tuple(one.tolist()) for one in cells.values()}) == 1


@pytest.mark.audit
def test_tests_have_the_same_numbers_from_every_source(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    data = {"frame": frame, "path": written(pd.concat([frame]), tmp_path / "t.parquet")}
    for test in (
        lambda d: pi.stats.mean("y", clip="auto", data=d, schema=SCHEMA, mu=5.0, rng=1),
        lambda d: pi.stats.quantile("y", [0.2, 0.5], data=d, schema=SCHEMA, mu=5.0, rng=1),
        lambda d: pi.stats.describe(d, ["y", "x"], schema=SCHEMA, mu=5.0, rng=1),
        lambda d: pi.stats.anova_oneway("y", "g", data=d, schema=SCHEMA, mu=5.0, rng=1),
        lambda d: pi.stats.chi2_contingency("g", "b", data=d, schema=SCHEMA, mu=5.0, rng=1),
        lambda d: pi.find_bounds(d, ["y", "x", "b"], epsilon=200.0, delta=1e-3, rng=1),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert len({repr(test(one)) + str(test(one)) for one in data.values()}) == 1


def test_missing_values_count_alike_in_blocks(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    frame.loc[40:44, ["x", "g", "b"]] = None
    path = written(frame, tmp_path / "t.parquet")
    for kind in QUESTIONS:
        assert summed(kind, path, "impute-public") == summed(kind, frame, "impute-public")


DROPPED = {
    name: replace(question, kind=COMPLETE_KINDS[question.kind]) for name, question in QUESTIONS.items()
}


def dropped(name, data, missing="drop"):
    """Return the exact sums over complete rows of a question."""
    query = DROPPED[name]
    weighted = SAMPLE_STATISTICS[query.kind].l2
    sums, n = SampleTotals(SCHEMA, query).over(as_rows(data, missing), weighted, exact=True)
    return (sums if isinstance(sums, np.ndarray) else sums._total.integers()).tolist(), n


def with_gaps(frame):
    """Return a table that lacks some values of every column."""
    rng = np.random.default_rng(8)
    return frame.mask(rng.uniform(size=frame.shape) < 0.1)


def test_rows_without_a_value_add_zero_alike_in_blocks(frame, tmp_path, monkeypatch):
    """Mutant: a row that adds its entries though it lacks a value."""
    monkeypatch.setattr(sources, "ROWS", 25)
    gaps = with_gaps(frame)
    path = written(gaps, tmp_path / "t.parquet")
    for name, query in DROPPED.items():
        complete = gaps.dropna(subset=[*query.values, *query.by])
        found = dropped(name, gaps)
        assert found == dropped(name, path)
        assert found[1] == len(gaps) > len(complete)
        alone, n = dropped(name, complete, "raise")
        assert n == len(complete)
        if SAMPLE_STATISTICS[query.kind].gaps:
            assert found[0][:-1] == alone[:-1]
            assert (found[0][-1][0], alone[-1][0]) == ((len(gaps) - len(complete)) << 40, 0)
            assert not any(found[0][-1][1:])
        elif SAMPLE_STATISTICS[query.kind].whole is None:
            assert found[0] == alone
        else:  # ranks over the public number of all rows
            ratio = (len(complete) - 1.0) / (len(gaps) - 1.0)
            assert found[0][0][0] == alone[0][0]
            assert found[0][0][1] == pytest.approx(alone[0][1] * ratio)
    monkeypatch.setattr(Reader, "complete", lambda self, names: None)
    for name, query in DROPPED.items():
        complete = gaps.dropna(subset=[*query.values, *query.by])
        assert dropped(name, gaps)[0] != dropped(name, complete, "raise")[0]


@pytest.mark.audit
def test_one_digest_over_all_sources_of_rows_without_a_value(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    gaps = with_gaps(frame).assign(y=frame["y"])  # by which one of the tables is filtered
    edges = np.linspace(-1, 1, 9)
    for number, (source, make) in enumerate(
        (KINDS | {"relation": FURTHER_KINDS["relation that sums"]}).items()
    ):
        for place, name in enumerate(DROPPED):
            if source == "relation" and SAMPLE_STATISTICS[DROPPED[name].kind].whole is not None:
                continue
            (folder := tmp_path / f"{number}-{place}").mkdir()
            assert dropped(name, make(gaps, folder)) == dropped(name, gaps), (source, name)
        if source not in STREAMS:
            (folder := tmp_path / f"{number}-cells").mkdir()
            one, other = (
                OpenColumns(as_rows(data, "drop"), ["x"], schema=SCHEMA).cells({"x": edges})["x"].counts
                for data in (make(gaps, folder), gaps)
            )
            assert one.tolist() == other.tolist(), source
            assert one[-1] == gaps["x"].isna().sum()


def test_rows_that_all_lack_a_value_are_released_as_others_are(frame):
    """The error that there are none would tell how many rows are complete."""
    for gaps in (
        frame.assign(x=np.nan, y=np.nan, g=None, b=None),
        with_gaps(frame)[:2].assign(x=[1.0, np.nan]),
    ):
        for question in QUESTIONS.values():
            for spend in (SPEND, {"epsilon": math.inf}):
                release = release_sample(as_rows(gaps, "drop"), SCHEMA, question, spend)
                assert release.nobs == len(gaps)
                assert 2 <= release.complete.rows <= release.nobs
                assert np.isfinite(release.sums).all()


def test_levels_are_compared_over_the_whole_table(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    frame["g"] = np.where(np.arange(len(frame)) < 60, "elsewhere", "u")
    assert summed("groups", written(frame, tmp_path / "t.parquet")) == summed("groups", frame)
    for data in (frame.assign(g="elsewhere"), written(frame.assign(g="elsewhere"), tmp_path / "o.parquet")):
        with pytest.raises(SchemaError, match="'g' contains none of its declared levels"):
            summed("groups", data)


def test_bounds_are_found_in_three_passes_and_nothing_is_charged_for_a_wrong_table(
    frame, tmp_path, monkeypatch
):
    reads, checked = [], reading.checked_blocks

    def watched(*args):
        reads.append(1)
        return checked(*args)

    for module in (reading, blocks):
        monkeypatch.setattr(module, "checked_blocks", watched)
    ledger = pi.Ledger()
    path = written(pd.concat([frame] * 20), tmp_path / "t.parquet")
    pi.find_bounds(path, ["y", "x"], mu=2.0, ledger=ledger)
    assert len(reads) == 3  # of which one is for the types
    reads.clear()
    with pytest.raises(NotAvailableError, match=r"times mu \(.*\) is .* at least 100"):
        pi.find_bounds(path, ["y", "x"], mu=0.01, ledger=(other := pi.Ledger()))
    assert len(reads) == 2
    with pytest.raises(pi.errors.BudgetExceededError):
        pi.find_bounds(path, ["y"], mu=2.0, ledger=pi.Ledger(pi.Budget(mu=1.0)))
    wrong = frame.assign(y=np.where(np.arange(len(frame)) == 140, np.inf, 1.0))
    with pytest.raises(SchemaError, match="infinite"):
        pi.find_bounds(written(wrong, tmp_path / "w.parquet"), ["x", "y"], mu=9.0, ledger=other)
    assert not other.entries


def test_a_table_that_changes_after_a_look_is_told_with_its_charge(frame, tmp_path):
    path, ledger = written(frame, tmp_path / "t.parquet"), pi.Ledger()
    held, edges = OpenColumns(path, ["x"]), np.linspace(-1.0, 1.0, 9)
    spending = pi.mechanisms.gaussian.Spending.from_options({"mu": 1.0}, ledger)
    held.cdf("x", edges, 0.5, spending, "look")
    written(frame[:100], path)
    with pytest.raises(AlignmentError, match=r"has changed since it was first read.*the charge is kept"):
        held.cdf("x", edges, 0.5, spending, "look")
    assert len(ledger.entries) == 1


# ---- any number of rows


def test_sums_take_2_to_the_40_rows_and_no_more(monkeypatch):
    statistic = SAMPLE_STATISTICS["one sample"]

    def most(weighted):
        """Return the sums of 2^40 records, half of them at either bound."""
        one, other = (EntrySums(statistic, weighted, 1) for _ in range(2))
        one.take(1 << 39, np.array([[1 << 79, 1 << 79]], dtype=object))
        other.take(1 << 39, np.array([[-(1 << 79), 1 << 79]], dtype=object))
        one.merge(other)
        return one

    one = most(statistic.l2)
    assert one.rows == 1 << 40
    assert one.floats()[0] == pytest.approx([0.0, statistic.l2.weights[1] * 2.0**40])
    with pytest.raises(SensitivityError, match=r"2\^40"):
        one.take(1, np.zeros((1, 2), dtype=object))
    monkeypatch.setattr(SampleTotals, "over", lambda self, rows, weighted, exact: (most(weighted), 1 << 40))
    for spend in ({"mu": 1.0}, {"epsilon": 0.5, "delta": 0}):
        release = release_sample(as_rows({"y": [1.0]}), SCHEMA, QUESTIONS["one sample"], spend)
        assert (release.nobs, abs(release.sums[0, 0]) < 100.0) == (1 << 40, True)
        assert release.sums[0, 1] == pytest.approx(2.0**40, rel=1e-9)


def test_counts_of_cells_are_exact_for_2_to_the_40_rows():
    rng = np.random.default_rng(0)
    cells = rng.multinomial(1 << 40, rng.dirichlet(np.ones(40)))
    f = [int(one) for one in np.ldexp(root(40), 22)]
    exact = [sum(f[t - s] * int(cells[s]) for s in range(t + 1)) for t in range(40)]

    class NoNoise(LatticeNoise):
        def gaussian_steps(self, steps, sigma):
            return steps

    found = noisy_prefixes(cells, 2.0**20, NoNoise())  # on a grid of 1
    assert found.tolist() == [(one + (1 << 21)) >> 22 for one in exact]
    assert noisy_prefixes(cells, 0.0, SimulationNoise(0)).tolist() == [one / 2**22 for one in exact]
    for largest in (2.0**40, 2.0**39):
        check_room(largest, 2.0, LatticeNoise())
    with pytest.raises(SensitivityError, match="too small to be represented exactly"):
        check_room(2.0**42, 2.0**-20, LatticeNoise())


def test_both_cells_that_a_record_touches_pay_for_their_rounding():
    """Mutant: a charge for m totals, in place of 2 m: totals that round away from one another pass it."""
    statistic, grid = SAMPLE_STATISTICS["groups"], 2.0**-6
    weights = np.array(statistic.l1.weights)
    entries = np.stack(statistic.entries(np.arange(1.0, 2.0**20)[:, None], 2.0**20), axis=1)
    over = np.fmod(entries[:, 1:] * 2.0**-40 * weights[1:], grid)
    over[over < 2.0**-36] = grid
    record = entries[int(np.argmin(over.sum(axis=1)))]

    def steps(cell):
        """Return totals of two cells, just below the middle of two steps, the record being in one of them."""
        sums = EntrySums(statistic, statistic.l1, 2)
        whole = np.tile(0.5 * grid / weights * 2.0**40 - 1.0, (2, 1))
        whole[cell] += record
        sums.take(9, whole.astype(np.int64).astype(object))
        return sums.steps(grid)

    apart = np.abs(steps(0) - steps(1)).sum() * grid
    true = 2.0 * float(weights @ record) * 2.0**-40
    assert true + grid * len(weights) < apart <= true + grid * statistic.touched(2)
    assert statistic.touched(1) == 3


def test_streams_serve_one_pass(frame, tmp_path):
    for kind, make in STREAMS.items():
        assert summed("pairs", make(frame, tmp_path)) == summed("pairs", frame), kind
        with pytest.raises(NotAvailableError, match=r"open_rows\(data, spool=True\)"):
            OpenColumns(make(frame, tmp_path), ["x"])
        spooled = OpenColumns(pi.open_rows(make(frame, tmp_path), spool=tmp_path), ["x"])
        assert spooled.cells({"x": np.zeros(1)})["x"].counts.sum() == len(frame)


def test_rows_and_sums_are_not_pickled_and_not_shown(frame):
    passes = ColumnPasses(as_rows(frame), ["x"])
    assert "rows not shown" in repr(passes)
    cells = OpenColumns(frame, ["x"]).cells({"x": np.zeros(1)})["x"]
    for held in (passes, cells, EntrySums(SAMPLE_STATISTICS["cells"], SAMPLE_STATISTICS["cells"].l2, 1)):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(held)
        shown = re.sub("0x[0-9a-f]+", "", repr(held))  # an address is no count
        assert not any(str(int(one)) in shown for one in cells.counts)


def test_order_and_merges_move_no_bit(frame):
    asked = SampleTotals(SCHEMA, QUESTIONS["groups"])
    weighted = SAMPLE_STATISTICS["groups"].l2
    parts = [asked.over(as_rows(frame[at : at + 50]), weighted, exact=True)[0] for at in (0, 50, 100)]
    whole = asked.over(as_rows(frame), weighted, exact=True)[0].floats()
    for order in itertools.permutations(range(3)):
        merged = EntrySums(SAMPLE_STATISTICS["groups"], weighted, 3)
        for at in order:
            merged.merge(parts[at])
        assert (merged.floats() == whole).all()
    plain = asked.over(as_rows(frame), weighted, exact=False)[0]
    np.testing.assert_allclose(whole, plain, atol=len(frame) * 2.0**-20)
    assert set(IN_MEMORY) <= set(KINDS)
    assert math.isfinite(whole.sum())
