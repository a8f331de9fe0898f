"""Audit of noisy distribution functions: the worst pair of cells, and mutants that it must see."""

import numpy as np
import pandas as pd
import pytest
from mutation import Mutant
from record_replay import audit

import privinf as pi
from privinf.mechanisms.distribution import OpenColumns
from privinf.mechanisms.gaussian import Spending

HERE = "mechanisms.distribution"
ROOTS = "mechanisms.statistics.prefixes"
CELLS = 64
EDGES = np.arange(CELLS - 1) + 0.5


def farthest():
    """Return how many cells apart the farthest two columns of the square root are."""
    k = np.arange(1.0, CELLS)
    f = np.cumprod(np.append(1.0, (2 * k - 1) / (2 * k)))
    squares = [np.sum((f - np.append(np.zeros(d), f[: CELLS - d])) ** 2) for d in range(1, CELLS)]
    return 1 + int(np.argmax(squares))


def of_cdf(rows_of_one=1):
    """Record and replay of one distribution on the worst pair; what it complains of, and the share spent."""
    worlds = [
        pd.DataFrame(
            {
                "x": np.append(np.full(rows_of_one, cell), np.full(60, 3.0)),
                "person": [0] * rows_of_one + [*range(1, 61)],
            }
        )
        for cell in (0.0, float(farthest()))
    ]
    unit = {} if rows_of_one == 1 else {"unit": "person", "max_rows": rows_of_one}

    def run(world, ledger):
        held = OpenColumns(worlds[world], ["x"], **unit)
        return held.cdf("x", EDGES, 0.5, Spending.from_options({"mu": 2.0}, ledger), "audit")

    return audit(run)


def of_bounds():
    """The same of a whole search: two lines or three, and what is shown."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(300)
    worlds = [pd.DataFrame({"x": np.append(x, far), "z": np.append(1000 + x, -far)}) for far in (-1e300, 9.0)]

    def run(world, ledger):
        found = pi.find_bounds(worlds[world], mu=4.0, ledger=ledger)
        return found, repr(found), found.privacy

    return audit(run)


@pytest.mark.parametrize("rows", [1, 3])
def test_the_worst_pair_spends_what_is_charged_and_no_more(rows):
    found = of_cdf(rows)
    assert found.complaints == []
    assert found.share > 0.999


def test_a_search_tells_neighbours_apart_by_its_releases_alone():
    found = of_bounds()
    assert found.complaints == []
    assert not found.refused
    assert found.releases == 5  # z lies within an octave
    assert found.ledger.total().mu == pytest.approx(4.0)


MUTANTS = {
    "the least distance for the largest": Mutant(ROOTS, "prefix_sensitivity", ".max()", ".min()"),
    "columns taken as orthogonal": Mutant(
        ROOTS, "prefix_sensitivity", "- 2.0 * lagged[1:]", "- 2.4 * lagged[1:]"
    ),
    "cells in place of prefixes charged": Mutant(
        ROOTS, "PrefixSums.__init__", "root(cells.shape[-1])", "np.ones(cells.shape[-1])"
    ),
    "a charge forgotten": Mutant(HERE, "OpenColumns.release", "spending.ledger.spend(entry)", "(entry,)"),
    "values in the release": Mutant(
        HERE, "OpenColumns.release", "noisy, scale, self.n, gaps", "noisy, scale, int(cells.counts[0]), gaps"
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name):
    with MUTANTS[name].applied():
        assert of_cdf().complaints


def test_a_persons_rows_that_are_not_counted_are_seen():
    with Mutant(HERE, "OpenColumns._line", "self._max_rows * ", "1 * ").applied():
        assert of_cdf(3).complaints


def test_the_whole_budget_for_every_look_is_seen():
    with Mutant(HERE, "OpenColumns._line", "math.sqrt(share) * ", "1.0 * ").applied():
        assert of_bounds().ledger.total().mu > 4.0 * 1.5
