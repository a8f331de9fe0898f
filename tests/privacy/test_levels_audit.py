"""Audit of levels by noisy counts, in its three kinds of neighbours, with mutants."""

import math

import numpy as np
import pandas as pd
import pytest
from mutation import Mutant
from scipy.stats import binom

from privinf.accounting import Ledger
from privinf.mechanisms.distribution import OpenLabels
from privinf.mechanisms.gaussian import Spending

HERE = "mechanisms.distribution"
MU, DELTA, DRAWS = 2.0, 0.2, 300
COMMON = ["a"] * 40 + ["b"] * 40


def release(labels, ledger):
    held = OpenLabels(pd.DataFrame({"g": labels}), "g")
    return held.levels(1.0, DELTA, Spending.from_options({"mu": MU}, ledger), "audit")[0]


def moved():
    """Return the distance of the counts of neighbours with the same labels, over the noise that is drawn."""
    sds, counts = [], []
    for labels in ([*COMMON, "a"], [*COMMON, "b"]):
        ledger = Ledger()
        found = release(labels, ledger)
        assert found.labels == ("a", "b")
        sds.append(found.sd)
        counts.append(np.unique(labels, return_counts=True)[1])
    (line,) = ledger.entries
    assert line.noise["scale"] == sds[0]
    return float(np.linalg.norm(counts[0] - counts[1])) / sds[0], line.loss


def shares():
    """Return how often a label of one record alone is shown, and the counts of one that 10,000 have."""
    shown, seen = 0, []
    for _ in range(DRAWS):
        found = release([*COMMON, "mine"], Ledger())
        shown += "mine" in found.labels
        seen.append(found.counts[0] - 40.0)
    return shown, np.array(seen), found.sd


def complaints():
    found, loss = [], moved()
    if loss[0] > loss[1].mu * (1.0 + 1e-9) or not math.isclose(loss[1].mu, MU):
        found.append("counts move by more than is charged")
    shown, seen, sd = shares()
    if binom.sf(shown - 1, DRAWS, loss[1].delta) < 1e-4:
        found.append("a record's own label is shown too often")
    if abs(seen.std() / sd - 1.0) > 5.0 / math.sqrt(2 * DRAWS) or abs(seen.mean()) > 5.0 * sd / math.sqrt(
        DRAWS
    ):
        found.append("the noise is not the stated one")
    return found


def test_levels_keep_to_their_line():
    assert complaints() == []
    shown = shares()[0]
    assert binom.cdf(shown, DRAWS, DELTA) > 1e-4  # nor is delta wasted


MUTANTS = {
    "one count in place of two": Mutant(HERE, "OpenLabels.levels", "sensitivity=ROOT_TWO", "sensitivity=1.0"),
    "a threshold without the record": Mutant(HERE, "show_above", "1.0 + sd", "0.0 + sd"),
    "no threshold for one record's label": Mutant(
        HERE, "OpenLabels.levels", "noisy > threshold", "noisy > 0.0"
    ),
    "delta not in the line": Mutant(
        HERE, "OpenLabels.levels", "ThresholdLoss(mu, delta)", "ThresholdLoss(mu, delta / 9)"
    ),
    "the counts themselves": Mutant(
        HERE, "OpenLabels.levels", "counts=noisy[passing]", "counts=counts[passing]"
    ),
}


QUICK = "no threshold for one record's label"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == QUICK else pytest.mark.audit) for name in MUTANTS],
)
def test_mutants_are_caught(name):
    with MUTANTS[name].applied():
        assert complaints()
