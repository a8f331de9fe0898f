"""The noisy distribution function: its matrix, its sensitivity, its noise, and what it refuses."""

import itertools

import numpy as np
import pandas as pd
import pytest

from privinf.accounting import Ledger
from privinf.errors import AlignmentError, ArgumentError, SchemaError
from privinf.mechanisms.distribution import (
    NoisyCDF,
    OpenColumns,
    cell_counts,
    noisy_prefixes,
)
from privinf.mechanisms.gaussian import Spending
from privinf.mechanisms.statistics.prefixes import prefix_sensitivity, root, undoing
from privinf.noise import SimulationNoise

ROWS = pd.DataFrame({"x": np.arange(100.0), "t": "a", "k": np.repeat(np.arange(50), 2)})


def lower(first):
    """Return the lower triangle with the same numbers along each diagonal."""
    size = len(first)
    return np.array([[first[t - s] if t >= s else 0.0 for s in range(size)] for t in range(size)])


@pytest.mark.parametrize(("cells", "published"), [(64, 1.912), (256, 2.131), (1024, 2.329)])
def test_sensitivities_are_the_published_ones(cells, published):
    assert prefix_sensitivity(cells) == pytest.approx(published, abs=5e-4)


@pytest.mark.parametrize("cells", [2, 3, 7, 40])
def test_no_pair_of_cells_is_farther_apart_than_the_sensitivity_and_one_is_as_far(cells):
    columns = lower(root(cells)).T
    pairs = [np.linalg.norm(a - b) for a, b in itertools.combinations(columns, 2)]
    assert max(pairs) == pytest.approx(prefix_sensitivity(cells), rel=1e-14)
    grouped = np.vstack([np.hstack([columns, 0 * columns]), np.hstack([0 * columns, columns])])
    across = [np.linalg.norm(a - b) for a, b in itertools.combinations(grouped, 2)]
    assert max(across) == pytest.approx(prefix_sensitivity(cells, 2), rel=1e-14)


def test_the_square_root_of_prefix_sums_and_what_undoes_it():
    whole = np.tril(np.ones((30, 30)))
    assert np.allclose(lower(root(30)) @ lower(root(30)), whole, atol=1e-5)
    assert np.allclose(lower(undoing(30)) @ lower(root(30)), whole, atol=1e-13)


def test_without_noise_the_counts_are_the_counts():
    edges = np.array([-0.5, 0.0, 9.0, 50.5])
    found = NoisyCDF.from_counts(
        edges, noisy_prefixes(cell_counts(ROWS.x, edges), 0.0, SimulationNoise(0)), 0.0, 100
    )
    assert np.allclose(found.counts, [0.0, 1.0, 10.0, 51.0], atol=1e-9)
    assert (found.sds == 0.0).all()


@pytest.mark.audit
def test_counts_are_unbiased_and_their_sds_are_the_stated_ones():
    edges, source = np.linspace(5.0, 95.0, 31), SimulationNoise(1)
    cells = cell_counts(ROWS.x.to_numpy(), edges)
    drawn = [NoisyCDF.from_counts(edges, noisy_prefixes(cells, 3.0, source), 3.0, 100) for _ in range(4000)]
    counts, sds = np.array([one.counts for one in drawn]), drawn[0].sds
    assert np.abs((counts.mean(axis=0) - np.cumsum(cells)[:-1]) / sds).max() < 4.5 / np.sqrt(4000)
    assert np.abs(counts.std(axis=0) / sds - 1.0).max() < 0.05


def test_what_the_noise_is_added_to_is_exact_in_any_order():
    edges, rng = np.linspace(-3.0, 3.0, 511), np.random.default_rng(0)
    x = rng.standard_normal(20_000)
    exact = noisy_prefixes(cell_counts(x, edges), 0.0, SimulationNoise(0))
    assert (exact * 2.0**22 == np.rint(exact * 2.0**22)).all()
    h = cell_counts(rng.permutation(x), edges).astype(np.float64)
    assert (lower(root(512)) @ h == exact).all()


def test_a_release_is_charged_before_and_says_what_it_is():
    ledger = Ledger()
    held = OpenColumns(ROWS, ["x"], unit="k", max_rows=2)
    found, lines = held.cdf(
        "x", np.array([10.0, 90.0]), 0.25, Spending.from_options({"mu": 2.0}, ledger), "median"
    )
    (line,) = ledger.entries
    assert lines == (line,)
    assert found.n == 100
    assert line.loss.mu == pytest.approx(1.0)
    assert line.sensitivity.value == pytest.approx(2.0 * prefix_sensitivity(3), rel=1e-5)
    assert (line.label, line.unit, line.secure) == ("median, distribution of x", "k", True)


@pytest.mark.parametrize("edges", [[], [1.0, 1.0], [2.0, 1.0], [0.0, np.inf], [[1.0]]])
def test_edges_are_public_increasing_numbers(edges):
    ledger = Ledger()
    with pytest.raises(ArgumentError):
        OpenColumns(ROWS, ["x"]).cdf(
            "x", np.array(edges), 1.0, Spending.from_options({"mu": 1.0}, ledger), "q"
        )
    assert not ledger.entries


def test_columns_are_checked_when_they_are_opened():
    with pytest.raises(SchemaError, match="numbers"):
        OpenColumns(ROWS, ["t"])
    with pytest.raises(SchemaError, match="missing values"):
        OpenColumns(ROWS.assign(x=np.nan), ["x"])
    with pytest.raises(AlignmentError, match="max_rows"):
        OpenColumns(ROWS, ["x"], unit="k")
    with pytest.raises(SchemaError, match="between 2"):
        OpenColumns(ROWS[:1], ["x"])
    with pytest.raises(TypeError, match="pickled"):
        OpenColumns(ROWS, ["x"]).__reduce__()
