"""Rows without a value in sums over samples: proved sensitivities, reached; what is drawn; and mutants."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from mutation import Mutant
from scipy.spatial.distance import pdist

import privinf as pi
from privinf.accounting import Budget, Ledger
from privinf.errors import BudgetExceededError, NotAvailableError
from privinf.mechanisms import samples
from privinf.mechanisms.distribution import OpenColumns, PrefixSums
from privinf.mechanisms.gaussian import Spending
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.samples import Price, SampleQuery, SampleTotals, release_sample
from privinf.mechanisms.statistics.samples import (
    COMPLETE_KINDS,
    PAIR_COUNT_WEIGHT,
    PAIR_WEIGHTS,
    SAMPLE_STATISTICS,
    EntrySums,
    Sample,
    Weighted,
    weighted_sums,
    with_gaps,
)
from studies.audit import audit_mechanism, gaussian_log_ratio

SCHEMA = pi.Schema({"x": (-1.0, 1.0), "z": (-1.0, 1.0), "g": ["a", "b"], "h": ["a", "b", "c"]})
QUESTIONS = {
    "complete sample": SampleQuery(kind="one sample", values=("x",)),
    "complete groups": SampleQuery(kind="groups", values=("x",), by=("g",)),
    "complete share": SampleQuery(kind="share", values=("x",)),
    "complete cells": SampleQuery(kind="cells", by=("g",)),
    "complete pairs": SampleQuery(kind="pairs", values=("x", "z")),
    "complete two ranked": SampleQuery(kind="two ranked", values=("x",), by=("g",)),
    "complete many ranked": SampleQuery(kind="many ranked", values=("x",), by=("h",)),
    "complete signed ranks": SampleQuery(kind="signed ranks", values=("x",)),
}
ADDED = [kind for kind in QUESTIONS if SAMPLE_STATISTICS[kind].whole is None]
RANKED = [kind for kind in QUESTIONS if SAMPLE_STATISTICS[kind].whole is not None]
GROUPS = {"complete groups": 2, "complete cells": 2, "complete two ranked": 2, "complete many ranked": 3}


def summed(statistic, weighted, sample):
    """Return the exact sums of steps of 2^-20, of the rows without a value too."""
    sums = EntrySums(statistic, weighted, sample.cells)
    sums.update(Sample(np.floor(sample.values * 2.0**20 + 0.5), sample.codes, sample.cells))
    sums.add_gaps(len(sample) + sample.gaps)
    return sums.floats()


def in_doubles(statistic, weighted, sample):
    """Return the sums as they are without noise."""
    n = len(sample) + sample.gaps
    return with_gaps(statistic, weighted, weighted_sums(statistic, weighted, sample), n)


def farthest(kind, statistic=None, add=summed):
    """Return how far records are apart, one without a value among them."""
    statistic = SAMPLE_STATISTICS[kind] if statistic is None else statistic
    columns, groups = len(QUESTIONS[kind].values), GROUPS.get(kind, 1)
    values = np.concatenate(
        [np.linspace(-1.0, 1.0, 21), [-9.0, 9.0, math.sqrt(5.0) - 2.0, 2.0 - math.sqrt(5.0)]]
    )
    cells = groups + statistic.gaps
    found = [
        add(statistic, statistic.l2, Sample(np.array([record]).reshape(1, -1), np.array([cell]), cells))
        for record in product(values, repeat=columns)
        for cell in range(groups)
    ]
    nothing = Sample(np.empty((0, columns)), np.empty(0, dtype=np.int64), cells, 1)
    found.append(add(statistic, statistic.l2, nothing))
    return pdist(np.array(found).reshape(len(found), -1)).max(), max(
        np.linalg.norm(one - found[-1]) for one in found
    )


@pytest.mark.parametrize("add", [summed, in_doubles])
@pytest.mark.parametrize("kind", ADDED)
def test_the_stated_sensitivity_is_reached_and_never_passed(kind, add):
    stated = SAMPLE_STATISTICS[kind].l2.sensitivity
    between, to_nothing = farthest(kind, add=add)
    assert stated * (1.0 - 1e-9) <= between <= stated * (1.0 + 1e-12)
    assert to_nothing <= stated * (1.0 + 1e-12)


def test_counts_are_as_heavy_as_they_can_be_for_nothing():
    """N is free, and a heavier N is not."""
    for kind, heavier in (("complete sample", 1.12), ("complete share", 0.88), ("complete pairs", 1.53)):
        one = SAMPLE_STATISTICS[kind]
        assert farthest(kind)[1] > 0.998 * one.l2.sensitivity
        weights = (heavier, *one.l2.weights[1:])
        more = replace(one, l2=Weighted(weights, one.l2.sensitivity))
        assert farthest(kind, more)[1] > one.l2.sensitivity * 1.0005


def test_the_three_corners_of_the_proof_for_pairs():
    (a, b), d = PAIR_WEIGHTS, PAIR_COUNT_WEIGHT
    corners = (d**2 + 2.0 * b**2, d**2 + a**2 + b**2, d**2 + 2.0 * a**2 + 1.0)
    assert max(corners) < 4.0 * (1.0 + a**2)


def test_a_row_that_adds_one_entry_though_it_lacks_a_value_is_caught():
    """Mutants: rows without a value that are counted in a cell as well, or twice in their own."""
    for old, new in (
        ("numbers[-1, 0] = n", "numbers[0, 0] = numbers[-1, 0] = n"),
        (
            "n * int(unit) - self._total.integers()[:, 0].sum()",
            "2 * (n * int(unit) - self._total.integers()[:, 0].sum())",
        ),
    ):
        with Mutant("mechanisms.statistics.samples", "EntrySums.add_gaps", old, new).applied():
            assert farthest("complete cells")[0] > 1.1 * math.sqrt(2.0)


@pytest.mark.audit
@pytest.mark.parametrize("kind", RANKED)
def test_no_neighbour_of_a_small_table_is_farther_by_ranks_than_is_stated(kind, monkeypatch):
    """All tables of four records, some without a value; the order of the records does not matter."""

    def most(statistic, n=4):
        groups = GROUPS.get(kind, 1)
        values = (-1.0, 0.0, 1.0) if groups > 1 else (-2.0, -1.0, 0.0, 1.0, 2.0)
        records = [None, *product(values, range(groups))]

        def total(table):
            there = [record for record in table if record is not None]
            u, codes = np.array([[u] for u, _ in there]).reshape(-1, 1), [g for _, g in there]
            sample = Sample(u, np.array(codes, dtype=np.int64), groups, n - len(there))
            return weighted_sums(statistic, statistic.l2, sample).ravel()

        sums = {table: total(table) for table in product(records, repeat=n)}
        return max(
            np.linalg.norm(found - sums[(other, *table[1:])])
            for table, found in sums.items()
            for other in records
        )

    statistic = SAMPLE_STATISTICS[kind]
    stated = statistic.l2.sensitivity
    assert 0.8 * stated <= most(statistic) <= stated * (1.0 + 1e-12)
    weights = (1.3 * statistic.l2.weights[0], *statistic.l2.weights[1:])
    assert most(replace(statistic, l2=Weighted(weights, stated))) > stated * 1.01


@pytest.mark.audit
def test_ranks_over_the_private_number_of_records_are_caught():
    """Mutant: N - 1 in place of n - 1, so that a record that lacks its value rescales all other ranks."""
    statistic = SAMPLE_STATISTICS["complete two ranked"]
    codes, n = np.array([0] * 20 + [1] * 20), 400
    u = np.where(codes == 0, 1.0, -1.0)[:, None]

    def moved():
        one, other = (
            weighted_sums(statistic, statistic.l2, Sample(u[k:], codes[k:], 2, n - 40 + k)) for k in (0, 1)
        )
        return np.linalg.norm(one - other)

    assert moved() <= 1.0
    with Mutant(
        "mechanisms.statistics.samples", "_complete_two_ranked", "len(sample) + sample.gaps - 1.0", "1.0"
    ).applied():
        assert moved() > 1.0


# ---- what is drawn

# The pair of records that attains the sensitivity; in `LACKS` the second record lacks a value.
PAIRS = {
    "complete sample": ({"x": -1.0}, {"x": 1.0}),
    "complete groups": ({"x": -1.0, "g": "a"}, {"x": 1.0, "g": "b"}),
    "complete share": ({"x": -1.0}, {"x": 1.0}),
    "complete cells": ({"g": "a"}, {"g": "b"}),
    "complete pairs": ({"x": 1.0, "z": 1.0}, {"x": 1.0, "z": -1.0}),
    "complete two ranked": ({"x": -1.0, "g": "a"}, {"x": -1.0, "g": "b"}),
    "complete signed ranks": ({"x": -1.0}, {"x": 1.0}),
}
LACKS = {kind: (first, dict.fromkeys(first, None)) for kind, (first, _) in PAIRS.items()}
LACKS["complete sample"] = LACKS["complete share"] = ({"x": 0.0}, {"x": np.nan})


def rows_of(pair, world):
    first = {"x": 0.3, "z": 0.1, "g": "b", "h": "c"} | pair[world]
    others = [
        {"x": 0.1, "z": -0.4, "g": "a", "h": "a"},
        {"x": 0.5, "z": np.nan, "g": "b", "h": "b"},
        {"x": 0.4, "z": 0.2, "g": "b"},
    ]
    frame = pd.DataFrame([first, *others])
    return Rows(frame.astype({"x": float, "z": float}), missing="drop")


def audited(kind, pair, count=6000, seeded=True):
    """Audit what the entry point draws for a pair of records."""
    query = replace(QUESTIONS[kind], kind=kind)
    statistic = SAMPLE_STATISTICS[kind]
    asked = SampleTotals(SCHEMA, query)
    worlds = [asked.over(rows_of(pair, world), statistic.l2, exact=True)[0] for world in (0, 1)]
    means = [(total if isinstance(total, np.ndarray) else total.floats()).ravel() for total in worlds]
    distance = float(np.linalg.norm(means[0] - means[1]))
    assert distance <= statistic.l2.sensitivity * (1.0 + 1e-12)
    scores = []
    for world, sample in enumerate(worlds):
        words = {"mu": 3.0} | ({"rng": np.random.default_rng((5, world))} if seeded else {})
        price = Price.from_options(statistic, words, "auto", None)
        scale = price.calibrated("sums", statistic, asked.cells, "record")[0]
        drawn = np.array([samples._noised(price, sample, scale).ravel() for _ in range(count)])
        scores.append(gaussian_log_ratio(drawn, *means, statistic.l2.sensitivity / 3.0))
    exact = 3.0 * distance / statistic.l2.sensitivity
    return audit_mechanism(
        lambda world, size, rng: scores[world], lambda x: x, draws=count, rng=0, mu=3.0, exact_mu=exact
    )


@pytest.mark.parametrize("kind", PAIRS)
def test_gaussian_releases_on_their_worst_pair(kind):
    assert audited(kind, PAIRS[kind]).passed


@pytest.mark.audit
@pytest.mark.parametrize("kind", LACKS)
def test_gaussian_releases_where_one_record_lacks_a_value(kind):
    assert audited(kind, LACKS[kind]).passed


def test_half_the_gaussian_noise_is_caught(monkeypatch):
    real = samples.Line.calibrated

    def half(line, source):
        scale, entry = real(line, source)
        return scale / 2.0, entry

    monkeypatch.setattr(samples.Line, "calibrated", half)
    assert audited("complete groups", PAIRS["complete groups"]).exceeded


# ---- distribution functions


@pytest.mark.parametrize("cells", [2, 9, 64])
def test_a_record_that_lacks_its_value_moves_prefix_sums_by_no_more_than_is_stated(cells):
    frame = pd.DataFrame({"x": np.linspace(0.0, 1.0, cells + 1)})
    edges = np.linspace(0.0, 1.0, cells + 1)[1:-1]
    schema = pi.Schema({"x": (0.0, 1.0)})

    def counted(values):
        opened = OpenColumns(Rows(frame.assign(x=values), missing="drop"), ["x"], schema=schema)
        return opened, opened.cells({"x": edges})["x"].counts

    opened, before = counted(frame["x"].to_numpy())
    spending = Spending.from_options({"mu": 1.0}, None)
    line = opened._line("label", len(before), 1.0, spending)

    worst = 0.0
    for place in range(len(frame)):
        values = frame["x"].to_numpy().copy()
        values[place] = np.nan
        _, after = counted(values)
        assert after.sum() == before.sum() == len(frame)
        worst = max(worst, float(np.linalg.norm(PrefixSums(after).floats() - PrefixSums(before).floats())))
    assert worst <= line.sensitivity * (1.0 + 1e-12)


# ---- the entry point


def test_the_ledger_is_charged_before_rows_are_read_and_as_without_dropping():
    ledger = Ledger(Budget(mu=0.1))
    with pytest.raises(BudgetExceededError):
        release_sample(
            Rows({"x": ["no number"]}, None, "drop"),
            SCHEMA,
            QUESTIONS["complete share"],
            {"mu": 0.2},
            ledger=ledger,
        )
    assert len(ledger) == 0
    for kind, question in QUESTIONS.items():
        lines = [
            release_sample(
                replace(rows_of(PAIRS["complete groups"], 0), missing=missing), SCHEMA, question, {"mu": 1.0}
            ).entries[0]
            for missing in ("drop", "impute-public")
        ]
        assert lines[0].loss == lines[1].loss
        assert lines[0].sensitivity.value == pytest.approx(lines[1].sensitivity.value, rel=1e-5), kind


@pytest.mark.parametrize(
    "words", [{"epsilon": 1.0, "delta": 0}, {"epsilon": 1.0, "delta": 1e-6, "noise": "laplace"}]
)
@pytest.mark.parametrize("kind", COMPLETE_KINDS.values())
def test_pure_epsilon_is_refused_before_anything_is_spent(kind, words):
    ledger, words = Ledger(), dict(words)
    noise = words.pop("noise", "auto")
    with pytest.raises(NotAvailableError, match="missing='drop' always adds Gaussian noise"):
        release_sample(
            rows_of(PAIRS["complete groups"], 0), SCHEMA, QUESTIONS[kind], words, noise=noise, ledger=ledger
        )
    assert len(ledger) == 0
