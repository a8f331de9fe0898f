"""Audit of tests by ranks, through their entry points: pairs of records that move ranks most, and mutants."""

import numpy as np
import pytest
from mutation import Mutant
from record_replay import audit

import privinf as pi

HERE = "mechanisms.statistics.samples"
SIZE = 40
INNER = np.linspace(-0.5, 0.5, SIZE)


def of_two(spent=None):
    """The only record of a, below all of b or above."""

    def run(world, ledger):
        words = {"mu": 2.0} if spent is None else spent
        r = pi.stats.mannwhitneyu([(-9.0, 9.0)[world]], INNER, ledger=ledger, **words)
        return r.release, r.privacy, str(r), r.pvalue

    return audit(run)


def of_many():
    """Two records of a: one above all others, the other below them or above."""

    def run(world, ledger):
        x = np.append([(-9.0, 9.0)[world], 8.0], INNER)
        g = ["a", "a"] + ["b", "c", "c", "b"] * (SIZE // 4)
        r = pi.stats.kruskal(x, g, levels=["a", "b", "c"], mu=2.0, ledger=ledger)
        return r.release, r.privacy, str(r), r.pvalue

    return audit(run)


def of_signed():
    """The record farthest from the centre changes its side."""

    def run(world, ledger):
        r = pi.stats.wilcoxon(np.append((-9.0, 9.0)[world], INNER), mu=2.0, ledger=ledger)
        return r.release, r.privacy, str(r), r.pvalue

    return audit(run)


@pytest.mark.parametrize(("run", "share"), [(of_two, 0.999), (of_many, 0.9), (of_signed, 0.999)])
def test_neighbours_differ_in_their_releases_alone_by_what_is_charged(run, share):
    found = run()
    assert found.complaints == []
    assert not found.refused
    assert found.releases == 1
    assert found.ledger.total().mu == pytest.approx(2.0)
    assert found.share > share


MUTANTS = {
    "ranks that are not centred": (
        of_two,
        Mutant(HERE, "_rank_sums", "- 0.5 * (len(sample) + 1)", "* 1.05"),
    ),
    "over fewer records than there are": (
        of_two,
        Mutant(HERE, "_two_ranked", "(len(sample) - 1.0)", "(len(sample) - 5.0)"),
    ),
    "absolute sums at half their price": (of_many, Mutant(HERE, "_many_ranked", "np.abs(", "2.0 * np.abs(")),
    "signed ranks a tenth too large": (
        of_signed,
        Mutant(HERE, "_signed_sum", "rankdata(np.abs(u))", "rankdata(np.abs(u)) * 1.1"),
    ),
    "the charge forgotten": (
        of_signed,
        Mutant("mechanisms.samples", "release_sample", "price.ledger.spend(entry)", "(entry,)"),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name):
    run, mutant = MUTANTS[name]
    with mutant.applied():
        assert run().complaints


def test_laplace_noise_is_charged_as_pure_epsilon():
    found = of_two({"epsilon": 1.5, "delta": 0})
    assert found.complaints == []
    (entry,) = found.ledger.entries
    assert entry.loss.to_dict() == {"kind": "pure", "epsilon": 1.5}
