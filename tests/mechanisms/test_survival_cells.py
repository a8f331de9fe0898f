"""The cells of events and censored records: where a record is counted, and how they are released."""

from __future__ import annotations

import numpy as np
import pytest

from privinf.errors import ArgumentError
from privinf.inference.survival import CellEstimate, CellNoise
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.summands import root_matrix
from privinf.mechanisms.statistics.survival import suffix_root

OP = SITE_OPS["survival.cells"]
EDGES = np.array([1.0, 2.0, 4.0])


def block(time, status, *marks):
    features = np.column_stack([status, *marks]).astype(float)
    k = features.shape[1]
    return SiteBlock(
        features=features,
        response=np.asarray(time, dtype=float),
        low=np.zeros(k),
        high=np.ones(k),
        response_low=0.0,
        response_high=4.0,
    )


def cells_of(rows, args, n):
    values = OP.function(rows, args)
    groups = 1 + len(args.get("groups", ()))
    noise = CellNoise(
        scale=0.0, root=suffix_root(len(EDGES) + 1), groups=groups, counted=args.get("counted", 0)
    )
    return CellEstimate.from_release(values, noise, n)


def test_records_are_counted_where_the_docstring_says():
    time = [0.0, 1.0, 1.5, 2.0, 4.0, 4.0, 9.0, 9.0, -3.0, 1.0]
    status = [1, 1, 1, 0, 1, 0, 1, 0, 0, 0]
    cells = cells_of(block(time, status), {"edges": EDGES, "status": 0}, 10)
    assert cells.D[0] == pytest.approx([2.0, 1.0, 1.0], abs=1e-12)
    # censored at t_3 or later, and events after it, are still followed at t_3
    assert cells.C[0] == pytest.approx([2.0, 1.0, 0.0, 3.0], abs=1e-12)
    assert cells.at_risk[0] == pytest.approx([10.0, 6.0, 4.0], abs=1e-12)


def test_groups_and_the_number_of_records():
    rng = np.random.default_rng(0)
    time, status, group = rng.uniform(0.0, 5.0, 300), rng.integers(0, 2, 300), rng.integers(0, 3, 300)
    args = {"edges": EDGES, "status": 0, "groups": [1, 2], "counted": True}
    rows = block(time, status, group == 1, group == 2)
    cells = cells_of(rows, args, -1)
    assert cells.total == pytest.approx(300.0)
    for g in range(3):
        own = cells_of(
            block(time[group == g], status[group == g]), {"edges": EDGES, "status": 0}, sum(group == g)
        )
        assert cells.D[g] == pytest.approx(own.D[0], abs=1e-9)
        assert cells.C[g] == pytest.approx(own.C[0], abs=1e-9)
    sums = OP.sums(rows, args)
    sums.update(rows)
    assert np.array_equal(sums.floats(), OP.function(rows, args))


def test_negative_times_count_in_the_first_interval_and_apart():
    rng = np.random.default_rng(1)
    time, status = rng.uniform(0.0, 5.0, 300), rng.integers(0, 2, 300)
    group = rng.integers(0, 2, 300)
    coded = np.where(np.arange(300) < 40, -9.0, time)
    args = {"edges": EDGES, "status": 0, "groups": [1], "counted": True}
    rows = block(coded, status, group)
    plain = OP.function(block(np.maximum(coded, 0.0), status, group), args)
    values = OP.function(rows, args | {"negative": True})
    assert values[:-1] == pytest.approx(plain, abs=1e-12)
    assert values[-1] == 20.0  # half of them
    sums = OP.sums(rows, args | {"negative": True})
    sums.update(rows)
    assert np.array_equal(sums.floats(), values)
    of_zeros = OP.function(block(np.maximum(coded, 0.0), status, group), args | {"negative": True})
    assert of_zeros[-1] == 0.0


@pytest.mark.parametrize("more", [{}, {"groups": [1]}, {"counted": True}, {"groups": [1], "counted": True}])
def test_the_number_of_negative_times_is_free(more):
    for intervals in (2, 3, 64):
        args = {"edges": np.arange(1.0, intervals + 1.0), "status": 0} | more
        counted, alone = OP.record_sensitivity(args | {"negative": True}, 2), OP.record_sensitivity(args, 2)
        assert counted.l2 == pytest.approx(alone.l2, rel=1e-6)  # but for rounding
        negative = OP.function(block([-1.0], [0], [0]), args | {"negative": True})
        for time, status, group in ((9.0, 0, 1), (9.0, 0, 0), (intervals, 1, 1), (0.5, 1, 0)):
            other = OP.function(block([time], [status], [group]), args | {"negative": True})
            assert np.linalg.norm(negative - other) <= counted.l2 * (1.0 + 1e-12)
        if "counted" in more:  # a record that lacks its value
            assert np.linalg.norm(negative) <= counted.l2


def test_the_root_is_that_of_other_counts():
    assert np.array_equal(suffix_root(20), root_matrix(20)[0])
    U = root_matrix(6)
    assert np.abs(U @ U - np.triu(np.ones((6, 6)))).max() < 1e-6


@pytest.mark.parametrize(
    "change",
    [
        {"edges": [1.0, 1.0]},
        {"edges": [0.0, 1.0]},
        {"edges": []},
        {"status": 7},
        {"groups": [9]},
        {"counted": 2},
        {"negative": 2},
        {"edges": [1.0], "negative": True},
    ],
)
def test_arguments_that_do_not_fit_are_refused(change):
    args = {"edges": EDGES, "status": 0, "groups": [1]} | change
    with pytest.raises(ArgumentError):
        OP.record_sensitivity(args, 2)
