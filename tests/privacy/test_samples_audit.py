"""Sums over samples, groups, cells and pairs: proved sensitivities, reached; what is drawn; and mutants."""

import math
import pickle
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from math import comb

import numpy as np
import pandas as pd
import pytest
from mutation import Mutant
from scipy.spatial.distance import pdist

import privinf as pi
from privinf.accounting import Budget, Ledger
from privinf.errors import AlignmentError, BudgetExceededError, NotAvailableError, SchemaError
from privinf.mechanisms import samples
from privinf.mechanisms.passes import ColumnPasses
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.samples import ColumnBins, Price, SampleQuery, SampleTotals, release_sample
from privinf.mechanisms.statistics.samples import (
    PAIR_WEIGHTS,
    SAMPLE_STATISTICS,
    EntrySums,
    Sample,
    Weighted,
    weighted_sums,
)
from studies.audit import audit_mechanism, gaussian_log_ratio

COLUMNS = {"one sample": 1, "groups": 1, "share": 1, "cells": 0, "pairs": 2}
CELLS = {"one sample": 1, "groups": 2, "share": 1, "cells": 2, "pairs": 1}
RANKED = {"two ranked": 2, "many ranked": 3, "signed ranks": 1}
NORMS = [(kind, norm) for kind in COLUMNS for norm in ("l2", "l1") if getattr(SAMPLE_STATISTICS[kind], norm)]
SCHEMA = pi.Schema({"x": (-1.0, 1.0), "z": (-1.0, 1.0), "g": ["a", "b"]})


def one_record(values, cell, cells):
    return Sample(np.array([values]).reshape(1, -1), np.array([cell]), cells)


def summed(statistic, weighted, sample):
    """Return the exact sums of steps of 2^-20."""
    sums = EntrySums(statistic, weighted, sample.cells)
    sums.update(Sample(np.floor(sample.values * 2.0**20 + 0.5), sample.codes, sample.cells))
    return sums.floats()


def farthest(kind, norm, statistic=None, add=summed):
    """Return how far replacing a record moves the sum, over many pairs of records, far ones among them."""
    statistic = SAMPLE_STATISTICS[kind] if statistic is None else statistic
    root = 3.0 - math.sqrt(5.0)  # |u + v| where the parabola is critical
    values = np.concatenate([np.linspace(-1.0, 1.0, 21), [-9.0, 9.0, 1.0 - root, root - 1.0]])
    weighted = getattr(statistic, norm)
    found = [
        add(statistic, weighted, one_record(record, cell, CELLS[kind]))
        for record in product(values, repeat=COLUMNS[kind])
        for cell in range(CELLS[kind])
    ]
    return pdist(np.array(found).reshape(len(found), -1), "euclidean" if norm == "l2" else "cityblock").max()


@pytest.mark.parametrize("add", [summed, weighted_sums])
@pytest.mark.parametrize(("kind", "norm"), NORMS)
def test_the_stated_sensitivity_is_reached_and_never_passed(kind, norm, add):
    stated = getattr(SAMPLE_STATISTICS[kind], norm).sensitivity
    assert stated * (1.0 - 1e-9) <= farthest(kind, norm, add=add) <= stated * (1.0 + 1e-12)


@pytest.fixture(scope="module")
def every_small_table():
    """All tables of n records, values -1, 0 or 1 about ties, in each of some groups, and their neighbours."""

    def of(kind, norm, n=4):
        statistic, groups = SAMPLE_STATISTICS[kind], RANKED[kind]
        records = [*product((-1.0, 0.0, 1.0) if groups > 1 else (-2.0, -1.0, 0.0, 1.0, 2.0), range(groups))]
        weighted = getattr(statistic, norm)

        def total(table):
            values, codes = np.array([[v] for v, _ in table]), np.array([g for _, g in table])
            return weighted_sums(statistic, weighted, Sample(values, codes, groups)).ravel()

        sums = {table: total(table) for table in product(records, repeat=n)}
        power = 2 if norm == "l2" else 1
        return max(
            np.linalg.norm(found - sums[(other, *table[1:])], power)
            for table, found in sums.items()
            for other in records
        )

    return of


@pytest.mark.audit
@pytest.mark.parametrize(
    ("kind", "norm"),
    [("two ranked", "l2"), ("two ranked", "l1"), ("many ranked", "l1"), ("signed ranks", "l1")],
)
def test_no_neighbour_of_a_small_table_is_farther_by_ranks_than_is_stated(kind, norm, every_small_table):
    """The order of the records does not matter, so the first one alone is replaced."""
    stated = getattr(SAMPLE_STATISTICS[kind], norm).sensitivity
    least = 2.0 / 3.0 if kind == "many ranked" else 1.0  # (n - 2)/(n - 1): two of a group, around the others
    assert least * stated * (1.0 - 1e-9) <= every_small_table(kind, norm) <= stated * (1.0 + 1e-12)


def test_a_heavier_count_beside_ranks_is_caught(monkeypatch, every_small_table):
    one = SAMPLE_STATISTICS["two ranked"]
    heavier = replace(one, l2=Weighted((1.0, 1.0), 1.0), l1=Weighted((1.0, 0.7), 1.0))
    monkeypatch.setitem(SAMPLE_STATISTICS, "two ranked", heavier)
    assert every_small_table("two ranked", "l2") > 1.05
    assert every_small_table("two ranked", "l1") > 1.05


def test_heavier_pure_pairs_than_are_proved_are_caught():
    one = SAMPLE_STATISTICS["pairs"]
    assert farthest("pairs", "l1", replace(one, l1=replace(one.l1, weights=(0.4, 0.4, 0.6, 0.6, 1.0)))) > 2.9


@pytest.mark.parametrize(
    ("kind", "weights"), [("one sample", (1.0, 1.7)), ("pairs", (0.7, 0.7, 1.45, 1.45, 1.0))]
)
def test_heavier_weights_than_are_proved_are_caught(kind, weights):
    one = SAMPLE_STATISTICS[kind]
    heavier = replace(one, l2=replace(one.l2, weights=weights))
    assert farthest(kind, "l2", heavier) > one.l2.sensitivity * 1.001


def test_values_outside_of_their_bounds_are_caught_where_nothing_clips(monkeypatch):
    def unclipped(sample, one):
        yield sample.values, sample.codes

    monkeypatch.setattr("privinf.mechanisms.statistics.samples._parts", unclipped)
    assert farthest("one sample", "l2") > 2.1
    assert farthest("one sample", "l2", add=weighted_sums) > 2.1


def test_steps_end_at_the_bounds_whatever_the_value():
    """Mutant: a grid that is not held at its ends."""
    values = np.array([-1e308, -1.5, -1.0 - 2e-16, -1.0, 0.3, 1.0, 1.0 + 3e-16, 7.0, 1e308])
    rows = Rows(pd.DataFrame({"x": np.concatenate([values, 5.0 * values[1:-1]])}))
    for low, high in ((-1.0, 1.0), (0.0, 3.0), (1e11, 1e11 + 0.3), (-1e-300, 2e-300)):
        asked = SampleTotals(pi.Schema({"x": (low, high)}), QUESTIONS["one sample"])
        (reader,) = ColumnPasses(rows, ["x"]).readers()
        steps = asked.sample(reader, exact=True).values
        assert (np.abs(steps) <= 2.0**20).all()
        assert (steps == np.rint(steps)).all()
        assert (steps.min(), steps.max()) == (-(2.0**20), 2.0**20)
    unheld = Mutant("mechanisms.statistics.loops", "on_grid", "out.clip(-largest, largest, out=out)", "out")
    with unheld.applied():
        asked = SampleTotals(SCHEMA, QUESTIONS["one sample"])
        assert np.abs(asked.sample(reader, exact=True).values).max() > 2.0**20


# ---- pairs, in exact arithmetic


def bernstein(a, b, low, high):
    """Return the exact Bernstein coefficients of F(p, q) on a box: F is at most the largest."""
    # F as powers of p and q: see the module docstring of the statistics.
    power = [[Fraction(0)] * 5 for _ in range(5)]
    for i, j, c in [
        (0, 0, 2 * a * a + 2 * b * b + 1),
        (1, 0, -2 * a * a),
        (0, 1, -2 * a * a),
        (2, 0, a * a - 2 * b * b),
        (0, 2, a * a - 2 * b * b),
        (4, 0, b * b),
        (0, 4, b * b),
        (1, 1, -2),
        (2, 2, 1),
    ]:
        power[i][j] += c
    shifted = [[Fraction(0)] * 5 for _ in range(5)]
    (p, q), (dp, dq) = low, (high[0] - low[0], high[1] - low[1])
    for i, j, k, m in product(range(5), repeat=4):
        if k <= i and m <= j and power[i][j]:
            shifted[k][m] += (
                power[i][j] * comb(i, k) * p ** (i - k) * dp**k * comb(j, m) * q ** (j - m) * dq**m
            )
    return [
        sum(
            Fraction(comb(k, i) * comb(m, j), comb(4, i) * comb(4, j)) * shifted[i][j]
            for i in range(k + 1)
            for j in range(m + 1)
        )
        for k, m in product(range(5), repeat=2)
    ]


def largest_bound(a, b, parts):
    ends = [Fraction(2 * i, parts) - 1 for i in range(parts + 1)]
    boxes = product(pairwise(ends), repeat=2)
    return max(max(bernstein(a, b, (p[0], q[0]), (p[1], q[1]))) for p, q in boxes)


def test_the_sensitivity_of_pairs_is_proved_by_exact_bernstein_coefficients():
    a, b = (Fraction(str(weight)) for weight in PAIR_WEIGHTS)
    assert largest_bound(a, b, 8) == 4 * (1 + a * a)
    assert largest_bound(a, Fraction("1.45"), 8) > 4 * (1 + a * a)


def test_the_polynomial_of_the_proof_is_the_squared_distance():
    a, b = (Fraction(str(weight)) for weight in PAIR_WEIGHTS)
    rng = np.random.default_rng(0)
    u, v, du, dv = rng.uniform(-1, 1, 4)
    corner = max(bernstein(a, b, (Fraction(-1), Fraction(1)), (Fraction(-1), Fraction(1))))
    assert corner == 4 * (1 + a * a)
    first, second = np.array([u, v]), np.array([du, dv])
    entries = [np.ravel(SAMPLE_STATISTICS["pairs"].entries(one[None], 1.0)) for one in (first, second)]
    moved = np.sum((np.array(SAMPLE_STATISTICS["pairs"].l2.weights) * (entries[0] - entries[1])) ** 2)
    d, s = np.abs(first - second), np.abs(first + second)
    grown = np.maximum(d, 2.0 - s) - 1.0  # with d + s = 2
    p, q = -grown
    F = lambda p, q: float(  # noqa: E731
        a**2 * Fraction((1 - p) ** 2 + (1 - q) ** 2)
        + b**2 * Fraction((1 - p * p) ** 2 + (1 - q * q) ** 2)
        + Fraction((1 - p * q) ** 2)
    )
    assert moved <= F(p, q) * (1 + 1e-12)
    assert F(p, q) <= float(max(bernstein(a, b, (Fraction(p), Fraction(q)), (Fraction(p), Fraction(q))))) * (
        1 + 1e-9
    )


# ---- what is drawn

PAIRS = {  # the pair of records that attains the sensitivity, beside three others
    "one sample": ({"x": -1.0}, {"x": 1.0}),
    "groups": ({"x": -1.0, "g": "a"}, {"x": 1.0, "g": "b"}),
    "share": ({"x": -1.0}, {"x": 1.0}),
    "cells": ({"g": "a"}, {"g": "b"}),
    "pairs": ({"x": 1.0, "z": 1.0}, {"x": 1.0, "z": -1.0}),
    "two ranked": ({"x": -1.0, "g": "a"}, {"x": -1.0, "g": "b"}),
    "signed ranks": ({"x": -1.0}, {"x": 1.0}),
}
QUESTIONS = {
    "one sample": SampleQuery(kind="one sample", values=("x",)),
    "groups": SampleQuery(kind="groups", values=("x",), by=("g",)),
    "share": SampleQuery(kind="share", values=("x",)),
    "cells": SampleQuery(kind="cells", values=(), by=("g",)),
    "pairs": SampleQuery(kind="pairs", values=("x", "z")),
    "two ranked": SampleQuery(kind="two ranked", values=("x",), by=("g",)),
    "signed ranks": SampleQuery(kind="signed ranks", values=("x",), center=0.0),
}


def rows_of(kind, world):
    first = {"x": 0.3, "z": 0.1, "g": "b"} | PAIRS[kind][world]
    far = 0.5 if kind == "signed ranks" else 7.0
    return Rows(pd.DataFrame([first, {"x": 0.1, "z": -0.4, "g": "a"}, {"x": far, "z": 0.2, "g": "b"}]))


def released(kind, world, count, **words):
    question = QUESTIONS[kind]
    return [release_sample(rows_of(kind, world), SCHEMA, question, words) for _ in range(count)]


def clean(kind, world):
    return release_sample(rows_of(kind, world), SCHEMA, QUESTIONS[kind], {"epsilon": math.inf}).sums.ravel()


def audited(kind, seeded=True, count=5000):
    """Audit what the entry point draws for its worst pair of records, opened once."""
    statistic = SAMPLE_STATISTICS[kind]
    asked = SampleTotals(SCHEMA, QUESTIONS[kind])
    worlds = [asked.over(rows_of(kind, world), statistic.l2, exact=True)[0] for world in (0, 1)]
    means = [clean(kind, world) * np.tile(statistic.l2.weights, CELLS.get(kind, 1)) for world in (0, 1)]
    scores = []
    for world, sample in enumerate(worlds):
        words = {"mu": 3.0} | ({"rng": np.random.default_rng((5, world))} if seeded else {})
        price = Price.from_options(statistic, words, "auto", None)
        scale = price.calibrated("sums", statistic, asked.cells, "record")[0]
        drawn = np.array([samples._noised(price, sample, scale).ravel() for _ in range(count)])
        scores.append(gaussian_log_ratio(drawn, *means, statistic.l2.sensitivity / 3.0))
    return audit_mechanism(
        lambda world, size, rng: scores[world], lambda x: x, draws=count, rng=0, mu=3.0, exact_mu=3.0
    )


@pytest.mark.parametrize("kind", PAIRS)
def test_gaussian_releases_on_their_worst_pair(kind):
    assert audited(kind).passed


@pytest.mark.audit
def test_a_secure_gaussian_release_on_its_worst_pair():
    assert audited("groups", seeded=False, count=5000).passed


def test_half_the_gaussian_noise_is_caught(monkeypatch):
    real = samples.Line.calibrated

    def half(line, source):
        scale, entry = real(line, source)
        return scale / 2.0, entry

    monkeypatch.setattr(samples.Line, "calibrated", half)
    assert audited("groups").exceeded


@pytest.mark.parametrize("kind", ["one sample", "groups", "cells", "share", "signed ranks"])
def test_laplace_noise_has_the_scale_of_its_pure_epsilon(kind):
    """On the grid, P(x) of both worlds differs by exp(epsilon) at most: l1 distance over the scale."""
    release = released(kind, 0, 1, epsilon=1.5, delta=0)[0]
    (entry,) = release.entries
    assert entry.loss.to_dict() == {"kind": "pure", "epsilon": 1.5}
    weights = np.tile(SAMPLE_STATISTICS[kind].l1.weights, CELLS.get(kind, 1))
    moved = np.abs((clean(kind, 0) - clean(kind, 1)) * weights).sum()
    grid, scale = entry.noise["grid"], entry.noise["scale"]
    assert moved + grid * len(SAMPLE_STATISTICS[kind].l1.weights) <= 1.5 * scale * (1 + 1e-9) <= moved * 1.001
    assert release.scale[0] == pytest.approx(math.sqrt(2.0) * scale)
    steps = release.sums.ravel() * weights / grid
    assert np.abs(steps - np.rint(steps)).max() < 1e-6


def test_the_laplace_noise_drawn_is_the_one_charged():
    drawn = np.array([one.sums[0] for one in released("one sample", 0, 300, epsilon=1.0, delta=0)])
    spread = np.abs(drawn - clean("one sample", 0)).mean(axis=0)  # of Laplace noise its scale
    assert spread == pytest.approx([2.0, 4.0], rel=0.25)


# ---- counts of tables: margins, and distributions of groups

TABLED = pi.Schema({"g": ["a", "b"], "h": ["u", "v", "w"], "x": (-1.0, 1.0)})
BINS = ColumnBins(name="x", cuts=(-0.5, 0.0, 0.5))
TABLES = {
    "margins": SampleQuery(kind="margins", by=("g", "h")),
    "distributions": SampleQuery(kind="distributions", by=("g", "x"), bins=(BINS,)),
}
TABLE_PAIRS = {  # the pair of records that attains the sensitivity
    "margins": ({"g": "a", "h": "u", "x": 0.0}, {"g": "b", "h": "w", "x": 0.0}),
    "distributions": ({"g": "a", "h": "u", "x": -9.0}, {"g": "b", "h": "u", "x": -1.0}),
}


def totals_of(kind, record):
    """Return the un-noised weighted totals of one record and two others, and the statistic."""
    asked = SampleTotals(TABLED, TABLES[kind])
    frame = pd.DataFrame([record, {"g": "a", "h": "v", "x": 0.2}, {"g": "b", "h": "u", "x": 0.7}])
    total, _ = asked.over(Rows(frame), asked.statistic.l2, exact=True)
    return total, asked


@pytest.mark.parametrize("kind", TABLES)
def test_no_two_records_of_a_table_are_farther_than_is_stated(kind):
    records = [{"g": g, "h": h, "x": x} for g in "ab" for h in "uvw" for x in (-9.0, -0.5, 0.0, 0.3, 1.0)]
    found = [totals_of(kind, record)[0].floats().ravel() for record in records]
    stated = totals_of(kind, records[0])[1].statistic.l2.sensitivity
    assert pdist(np.array(found)).max() == pytest.approx(stated, rel=1e-12)
    steps = [totals_of(kind, record)[0].steps(2.0**-20).ravel() * 2.0**-20 for record in records]
    assert np.abs(np.array(steps) - np.array(found)).max() <= 2.0**-21


def audited_table(kind, count=4000):
    worlds = [totals_of(kind, record) for record in TABLE_PAIRS[kind]]
    means = [total.floats().ravel() for total, _ in worlds]
    scores = []
    for world, (total, asked) in enumerate(worlds):
        words = {"mu": 3.0, "rng": np.random.default_rng((9, world))}
        price = Price.from_options(asked.statistic, words, "auto", None)
        scale = price.calibrated("counts", asked.statistic, asked.cells, "record")[0]
        drawn = np.array([samples._noised(price, total, scale).ravel() for _ in range(count)])
        scores.append(gaussian_log_ratio(drawn, *means, float(np.linalg.norm(means[0] - means[1])) / 3.0))
    return audit_mechanism(
        lambda world, size, rng: scores[world], lambda x: x, draws=count, rng=0, mu=3.0, exact_mu=3.0
    )


@pytest.mark.audit
@pytest.mark.parametrize("kind", TABLES)
def test_tables_on_their_worst_pair(kind):
    assert audited_table(kind).passed


STATISTICS = "mechanisms.statistics.samples"
ONE_GROUP = Mutant(
    STATISTICS, "_of_distributions", "prefix_sensitivity(cells, groups)", "prefix_sensitivity(cells, 1) / 2.0"
)


@pytest.mark.audit
def test_too_small_a_sensitivity_of_groups_is_caught():
    with ONE_GROUP.applied():
        assert audited_table("distributions").exceeded


@pytest.mark.audit
def test_margins_that_are_not_paid_for_are_caught(monkeypatch):
    one = SAMPLE_STATISTICS["margins"]
    heavier = replace(one, l2=Weighted((1.0, 1.0, 1.0), one.l2.sensitivity))
    monkeypatch.setitem(SAMPLE_STATISTICS, "margins", heavier)
    assert audited_table("margins").exceeded


@pytest.mark.parametrize("kind", TABLES)
def test_tables_without_noise_with_noise_and_in_parts_are_the_same(kind):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"g": rng.choice(["a", "b"], 700), "h": rng.choice(list("uvw"), 700), "x": rng.uniform(-2, 2, 700)}
    )
    exact = release_sample(Rows(frame), TABLED, TABLES[kind], {"epsilon": math.inf})
    noisy = release_sample(Rows(frame), TABLED, TABLES[kind], {"mu": 2000.0})
    assert noisy.sums == pytest.approx(exact.sums, abs=0.02)
    assert not exact.scale.any()
    if kind == "margins":
        counts = pd.crosstab(frame.g, frame.h).to_numpy()
        expected = np.concatenate([counts.ravel(), counts.sum(1), counts.sum(0)])
        assert exact.sums.ravel() == pytest.approx(expected)


def test_totals_of_tables_are_not_pickled_or_shown():
    for kind, pair in TABLE_PAIRS.items():
        total, _ = totals_of(kind, pair[0])
        assert repr(total).endswith("not shown>")
        with pytest.raises(TypeError):
            pickle.dumps(total)


# ---- the entry point


def test_the_ledger_is_charged_before_rows_are_read():
    ledger = Ledger(Budget(mu=0.1))
    with pytest.raises(BudgetExceededError):
        release_sample(Rows({"x": ["no number"]}), SCHEMA, QUESTIONS["share"], {"mu": 0.2}, ledger=ledger)
    assert len(ledger) == 0


def test_the_order_of_the_records_cannot_move_exact_sums(monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 500), "g": rng.choice(["a", "b"], 500)})
    monkeypatch.setattr(
        "privinf.noise.lattice.LatticeNoise.gaussian_steps", lambda self, steps, sigma: np.asarray(steps)
    )
    orders = [frame, frame.iloc[::-1], frame.sample(frac=1.0, random_state=1)]
    found = [release_sample(Rows(one), SCHEMA, QUESTIONS["groups"], {"mu": 1.0}).sums for one in orders]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_a_person_with_several_rows_is_refused_before_anything_is_spent():
    ledger = Ledger()
    grouped = pi.Schema({"x": (-1.0, 1.0)}, unit="person", max_rows=3)
    rows = Rows({"x": [0.1, 0.2], "person": [1, 1]})
    with pytest.raises(NotAvailableError, match="dependent"):
        release_sample(rows, grouped, QUESTIONS["share"], {"mu": 1.0}, ledger=ledger)
    one = pi.Schema({"x": (-1.0, 1.0)}, unit="person")
    with pytest.raises(AlignmentError):
        release_sample(rows, one, QUESTIONS["share"], {"mu": 1.0}, ledger=ledger)
    assert len(ledger) == 0


def test_missing_values_are_treated_as_everywhere():
    rows = {"x": [0.5, np.nan, -0.5]}
    with pytest.raises(SchemaError, match="missing"):
        release_sample(Rows(rows), SCHEMA, QUESTIONS["one sample"], {"mu": 1.0})
    filled = release_sample(
        Rows(rows, None, "impute-public"), SCHEMA, QUESTIONS["one sample"], {"mu": 1.0, "rng": 0}
    )
    assert filled.nobs == 3
