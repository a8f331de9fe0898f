"""A reduced run of benchmarks/lasso_gauntlet.py, and what its judgement rests on."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import gauntlet
import lasso_gauntlet
import lasso_populations


@pytest.mark.audit
@pytest.mark.parametrize("name", lasso_gauntlet.REDUCED)
def test_unmarked_intervals_cover(name):
    lines = lasso_gauntlet.fits((name, 0, 5, ())) + lasso_gauntlet.fits((name, 1, 5, ()))
    assert not [one for one in lines if "failed" in one]
    plain = [one for one in lines if "error" in one and not one["marks"]]
    if plain:
        targets = len(lasso_gauntlet.population_of(name).targets)
        low, alone = lasso_gauntlet.limits_of(targets, len(plain))
        held = lasso_gauntlet.held(plain)
        assert held.mean() >= low
        assert held.mean(axis=0).min() >= alone


def test_cells_have_names_and_targets_of_their_own():
    assert len(lasso_gauntlet.BY_NAME) == len(lasso_gauntlet.CELLS)
    for name in ("skew .5", "blocks", "confounders 50", "decaying", "fair 50"):
        population = lasso_gauntlet.population_of(name)
        assert np.isfinite(population.params).all()
        assert max(population.targets) < len(population.params)


@pytest.mark.audit
def test_the_target_of_labels_is_the_best_linear_predictor():
    law, rng = lasso_populations.labels(30, 0.1), np.random.default_rng(4)
    X, respond = law.draw(200_000, rng)
    y = np.mean([respond(rng) for _ in range(10)], axis=0)
    found = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X]), y, rcond=None)[0]
    assert y.mean() == pytest.approx(0.1, abs=0.003)
    assert np.abs(found[1:] - law.params).max() < 6.0 * 0.3 / np.sqrt(2e6)


def test_a_wrong_interval_is_judged_wrong():
    cell = lasso_gauntlet.BY_NAME["blocks"]
    good = [{"error": [0.0] * 5, "se": [1.0] * 5, "marks": [], "seconds": 1.0}] * 20
    bad = [{**one, "error": [3.0] * 5} for one in good]
    assert lasso_gauntlet.verdict(cell, 20, 0, 0, good) == "yes"
    assert lasso_gauntlet.verdict(cell, 20, 6, 0, good[:14]) == "**no**"
    assert lasso_gauntlet.verdict(cell, 20, 0, 0, bad) == "**no**"


@pytest.mark.audit
def test_a_run_that_was_stopped_is_taken_up(tmp_path):
    out, cells = tmp_path / "fits.jsonl", [lasso_gauntlet.BY_NAME["map 2,000 eps 0.5"]]
    work = lasso_gauntlet.left(cells, 7, out, ())
    assert [one[1:3] for one in work] == [(0, 5), (1, 2)]
    made = lasso_gauntlet.fits(work[0])
    out.write_text("".join(map(gauntlet.line, made)))
    assert lasso_gauntlet.left(cells, 7, out, ()) == work[1:]
    again = lasso_gauntlet.fits(work[0])
    assert [{**one, "seconds": 0.0} for one in again] == [{**one, "seconds": 0.0} for one in made]
