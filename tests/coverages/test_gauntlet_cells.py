"""A reduced run of benchmarks/gauntlet.py: cells of synthetic laws and of statsmodels' tables."""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import privinf as pi
from studies.simulation import binomial_limits

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import gauntlet
import gauntlet_cells
import gauntlet_report
from gauntlet_estimators import ESTIMATORS, estimators_of, judged
from gauntlet_truth import Reference, predicted_ratio, reference_of

REDUCED = [cell.name for cell in gauntlet_cells.CELLS if cell.reduced]
REPLICATIONS, OF_ALIASES = 40, 20
# Estimators that promise an interval where the predicted ratio is at least 8.
PROMISED = {"OLS", "OLS nonrobust", "Logit", "Logit nonrobust", "Poisson"}
ROWS = [(cell.name, name) for cell in gauntlet_cells.CELLS if cell.reduced for name in estimators_of(cell)]


@cache
def found(cell, estimator):
    number = OF_ALIASES if ESTIMATORS[estimator].few else REPLICATIONS
    return gauntlet_report.judged(gauntlet.fits((cell, (estimator,), 0, number)))


@pytest.mark.audit
@pytest.mark.parametrize(("cell", "estimator"), ROWS)
def test_unflagged_intervals_cover(cell, estimator):
    one = found(cell, estimator)
    assert one.failed == 0
    shown = one.sure.judgeable
    level = 1.0 - 0.01 / (len(ROWS) * len(shown))
    lows = [binomial_limits(0.95, int(n), level)[0] for n in one.sure.trials[shown]]
    assert (one.sure.coverage[shown] >= np.array(lows)).all()
    if one.ratio >= 8.0 and estimator in PROMISED:
        assert one.hidden <= binomial_limits(0.05, one.fits, 1.0 - 0.01 / len(ROWS))[1]


def test_there_are_sixty_cells_with_names_of_their_own():
    cells = (*gauntlet_cells.CELLS, *gauntlet_cells.NAMED, *gauntlet_cells.FOREIGN)
    assert len(gauntlet_cells.CELLS) == 60
    assert len(gauntlet_cells.BY_NAME) == len(cells)
    assert all(set(cell.alone) <= set(ESTIMATORS) for cell in cells)
    assert all(estimators_of(cell) for cell in cells)
    there = {name for name, each in ESTIMATORS.items() if each.entry_point in pi.__all__}
    assert {each for cell in cells for each in estimators_of(cell)} == there


@pytest.mark.audit
@pytest.mark.parametrize("cell", gauntlet_cells.CELLS, ids=lambda cell: cell.name)
def test_every_cell_has_a_target_and_rows(cell):
    if cell.population.missing:
        pytest.skip(f"needs {cell.population.missing}, of the extra `datasets`")
    reference = reference_of(cell)
    assert np.isfinite(reference.target).all()
    assert (reference.sd > 0.0).all()
    assert len(cell.population.draw(20, np.random.default_rng(0))) == 20
    assert set(cell.declared()) == {*cell.population.declared}


@pytest.mark.audit
def test_the_predicted_ratio_grows_with_rows_and_falls_with_bounds():
    ratios = [
        predicted_ratio(gauntlet_cells.BY_NAME[name]) for name in ("flagship 0.5", "flagship 1", "flagship 4")
    ]
    assert ratios == sorted(ratios)
    wide = gauntlet_cells.BY_NAME["flagship all x3"]
    assert predicted_ratio(wide) / 4.0 < ratios[1] / 8.0


@pytest.mark.audit
def test_a_law_that_is_clipped_has_the_target_of_clipped_rows():
    cell = gauntlet_cells.BY_NAME["lognormal 1"]
    rng, Z, sums = np.random.default_rng(3), [], []
    for _ in range(4):
        frame = cell.population.draw(500_000, rng)
        Z = np.column_stack([np.ones(len(frame)), frame[["x1", "x2", "x3"]]])
        sums.append(np.linalg.lstsq(Z, frame["y"].clip(-5.0, 25.0), rcond=None)[0])
    error = np.mean(sums, axis=0) - reference_of(cell).target
    assert (np.abs(error) < 4.0 * reference_of(cell).sd / np.sqrt(2e6)).all()


def test_intervals_that_are_too_short_or_astray_are_seen():
    reference = Reference(("a", "b"), np.array([0.0, 1.0]), np.ones(2), np.eye(1))
    limits = np.array([[-1.0, 1.0], [1.5, 2.5]])
    covered, width = judged(limits, reference, 4)
    assert covered == [1, 0]
    assert width == pytest.approx([1.0204, 0.5102], abs=1e-4)
    hidden = judged(np.array([[np.nan, np.nan], [0.0, 2.0]]), reference, 4)
    assert hidden[0] == [None, 1]


def test_a_run_that_was_stopped_is_taken_up(tmp_path):
    out, cells = tmp_path / "fits.jsonl", [gauntlet_cells.BY_NAME["flagship 1"]]
    wanted = ["MomentOLS", "MomentOLS HC0"]
    work = gauntlet.left(cells, wanted, 12, out)
    assert [one[2:] for one in work] == [(0, 10), (10, 12)]
    made = gauntlet.fits(work[0])
    lines = [gauntlet.line(one) for one in made]
    out.write_text("".join(lines[:-1]) + lines[-1][:30])
    assert gauntlet.left(cells, wanted, 12, out) == [(work[0][0], ("MomentOLS",), 0, 10), work[1]]
    out.write_text("".join([*lines[:-1], lines[-1][:30], lines[-1]]))
    assert list(gauntlet.stored(out)) == made
    assert gauntlet.left(cells, wanted, 12, out) == work[1:]
