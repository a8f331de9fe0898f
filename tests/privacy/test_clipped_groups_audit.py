"""Audit of groups compared on a clip that noisy counts chose: the worst pair of records, and mutants."""

import warnings

import numpy as np
import pytest
from mutation import Mutant
from record_replay import audit

import privinf as pi
from privinf.errors import ChangedTargetWarning

RNG = np.random.default_rng(0)
X, G = RNG.normal(0.5, 0.1, 200), np.repeat(["a", "b"], 100)
HERE = "stats.quantiles"


def of_test():
    """Record and replay a test; one record lies far below, in a, or far above, in b."""
    worlds = [(np.append(X, value), np.append(G, group)) for value, group in ((-1.0, "a"), (2.0, "b"))]

    def run(world, ledger):
        values, groups = worlds[world]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ChangedTargetWarning)
            r = pi.stats.anova_oneway(
                values, groups, levels=["a", "b"], bounds=(-1, 2), clip="auto", mu=2.0, ledger=ledger
            )
        return r.release, r.clip, r.privacy, str(r), str(r.pairwise())

    return audit(run)


def test_neighbours_differ_in_their_releases_alone_and_within_what_is_charged():
    found = of_test()
    assert found.complaints == []
    assert not found.refused
    assert found.releases == 2
    assert found.ledger.total().mu == pytest.approx(2.0)
    assert found.share > 0.5


MUTANTS = {
    "the clip from the rows": Mutant(
        HERE,
        "clipped_release",
        "clip = choose(distribution, ",
        "clip = choose(replace(distribution, counts=np.cumsum(np.histogram("
        "column.columns._passes._reader.number(name), 1024, (-1.0, 2.0))[0])[:-1].astype(float)), ",
    ),
    "values outside of the clip": Mutant(
        "mechanisms.statistics.samples",
        "_parts",
        "np.clip(sample.values[part], -scale, scale)",
        "1.2 * sample.values[part]",
    ),
    "the first look uncharged": Mutant(
        "mechanisms.distribution", "OpenColumns.release", "spending.ledger.spend(entry)", "()"
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name):
    with MUTANTS[name].applied():
        assert of_test().complaints


def test_the_whole_budget_for_the_second_look_is_seen():
    with Mutant(HERE, "clipped_release", "math.sqrt(1.0 - CLIP_SHARE)", "1.0").applied():
        assert of_test().ledger.total().mu > 2.0 * 1.05
