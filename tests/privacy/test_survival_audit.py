"""Audit of survival curves: the worst pairs of records, record and replay, and mutants that must be seen."""

import numpy as np
import pandas as pd
import pytest
from mutation import Mutant
from record_replay import audit

import privinf as pi
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import SiteBlock

OP = "mechanisms.statistics.survival"
SCHEMA = pi.Schema({"time": (0, 8), "status": (0, 1), "arm": ["a", "b", "c"]})
LAST = {"time": 7.9, "status": 1.0, "arm": "a"}  # an event in the last interval
STAYS = {"time": 8.0, "status": 0.0, "arm": "a"}  # still followed at the end
OTHER = {"time": 99.0, "status": 1.0, "arm": "c"}  # the same in another group, with an event after the end


def table(record, n=80):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "time": rng.uniform(0.0, 9.0, n),
            "status": rng.integers(0, 2, n).astype(float),
            "arm": rng.choice(["a", "b"], n),
        }
    )
    for name, value in record.items():
        frame.loc[7, name] = value
    return frame


def of_curves(records, *, by=None, missing="raise", sites=None, trust=None):
    """Record and replay of one fit, of everything that its result shows."""
    worlds = [table(record) for record in records]

    def run(world, ledger):
        rows = worlds[world]
        labels = None if sites is None else np.arange(len(rows)) % sites
        options = {"by": by, "data": rows, "schema": SCHEMA, "missing": missing, "ledger": ledger}
        model = pi.survival.KaplanMeier("time", "status", grid=16, sites=labels, trust=trust, **options)
        result = model.fit(epsilon=6.0, delta=1e-3)
        test = None if by is None else result.logrank()
        shown = (str(result.summary(notes="all")), result.table, result.median(), result.at_risk())
        return result, repr(result), result.privacy, shown, test, repr(model)

    return audit(run)


PAIRS = {
    "an event that stays": ((LAST, STAYS), {}),
    "another group": ((STAYS, OTHER), {"by": "arm"}),
    "a record that lacks its status": ((STAYS, STAYS | {"status": np.nan}), {"missing": "drop"}),
    "a record that lacks its group": ((STAYS, STAYS | {"arm": None}), {"missing": "drop", "by": "arm"}),
    "far beyond": (({"time": 1e300}, {"time": -1e300}), {"by": "arm"}),
    "sites": ((LAST, STAYS), {"sites": 2, "trust": "server"}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_neighbours_show_the_same_and_cost_no_more(name):
    records, options = PAIRS[name]
    found = of_curves(records, **options)
    assert found.complaints == []
    assert not found.refused
    assert found.releases == 1


@pytest.mark.parametrize("name", ["an event that stays", "another group"])
def test_the_worst_pairs_spend_what_is_charged(name):
    records, options = PAIRS[name]
    assert of_curves(records, **options).share > 0.999


MUTANTS = {
    "the sensitivity of one sequence alone": (
        Mutant(OP, "SurvivalCells.sensitivity", "math.sqrt(longest + other)", "math.sqrt(longest)"),
        "an event that stays",
    ),
    "the factor of groups forgotten": (
        Mutant(OP, "SurvivalCells.sensitivity", "if self.groups > 1", "if self.groups > 99"),
        "another group",
    ),
    "censored records counted twice": (
        Mutant(OP, "_rooted", "sums[::-1]", "sums[::-1] * (1 + (len(sequence) > intervals))"),
        "an event that stays",
    ),
    "cells in place of their roots charged": (
        Mutant(OP, "SurvivalCells.sensitivity", "math.fsum(squares)", "1.0"),
        "an event that stays",
    ),
    "the number of complete records at a higher weight": (
        Mutant(OP, "_rooted", "counts.sum() * root(1)[0]", "counts.sum() * root(1)[0] * 3"),
        "a record that lacks its status",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name):
    mutant, pair = MUTANTS[name]
    records, options = PAIRS[pair]
    with mutant.applied():
        assert of_curves(records, **options).complaints


def test_a_fit_that_spends_more_than_it_is_allowed_is_seen():
    with Mutant("survival.release", "release_cells", "mu=mu)", "mu=2.0 * mu)").applied():
        found = of_curves((LAST, STAYS))
    assert found.ledger.total().epsilon(1e-3) > 6.0 * 1.5


def test_no_pair_of_records_passes_the_sensitivity():
    statistic = SITE_OPS["survival.cells"]
    edges = np.linspace(0.5, 8.0, 16)
    rng = np.random.default_rng(1)
    for groups in ([], [1], [1, 2]):
        args = {"edges": edges, "status": 0, "counted": True} | ({"groups": groups} if groups else {})
        stated = statistic.record_sensitivity(args, 3)

        def sums(time, status, marks, args=args):
            rows = SiteBlock(
                features=np.array([[status, *marks]]),
                response=np.array([time]),
                low=np.zeros(3),
                high=np.ones(3),
                response_low=0.0,
                response_high=8.0,
            )
            return statistic.function(rows, args)

        marks = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
        values = [np.zeros(stated.size)]
        values += [
            sums(float(time), float(rng.integers(0, 2)), marks[rng.integers(0, 3)])
            for time in rng.uniform(0.0, 9.0, 150)
        ]
        values += [sums(7.9, 1.0, mark) for mark in marks] + [sums(8.0, 0.0, mark) for mark in marks]
        values = np.array(values)
        apart = np.sqrt(((values[:, None] - values[None]) ** 2).sum(axis=-1)).max()
        assert 0.99 * stated.l2 < apart <= stated.l2
