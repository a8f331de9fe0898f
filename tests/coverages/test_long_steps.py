"""Stored fits give the page of benchmarks/long_steps.py, also those of an older version without the bias."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import long_steps


def cell_named(name):
    return next(cell for cell in long_steps.CELLS if cell.name == name)


@pytest.mark.parametrize("model", ["Logit", "Poisson"])
def test_stored_fits_give_a_page(model, tmp_path, monkeypatch):
    monkeypatch.setattr(long_steps, "PAGE", tmp_path / "page.md")
    cell = cell_named(f"even, {model}, 8,000, 1")
    monkeypatch.setattr(long_steps, "CELLS", [cell])
    for _ in range(2):
        long_steps.add(tmp_path / "fits.jsonl", long_steps.simulated(1))
    (line,) = long_steps.stored(tmp_path / "fits.jsonl")
    assert line["converged"]
    assert line["names"] == ["Intercept", "x1", "x2", "x3", "x4"]
    long_steps.report([tmp_path / "fits.jsonl"])
    page = (tmp_path / "page.md").read_text()
    assert f"| even, {model}, 8,000, 1 | 1 | 0 |" in page
    assert "FINDINGS" not in page


@pytest.mark.filterwarnings("ignore::privinf.errors.MisfitWarning")
def test_intervals_of_the_table_are_those_of_the_fit(tmp_path):
    cell = cell_named("rare, Logit, 8,000, 1")
    lines = [long_steps.fit_of(cell, number) for number in (3, 4)]
    table = long_steps.intervals(lines)
    assert len(table) == 10
    assert (table["longer"].fillna(0.0) >= 0.0).all()
    single = long_steps.single_sets(lines[0])
    ends = np.array(lines[0]["ends"])
    np.testing.assert_allclose((single[:, 1] - single[:, 0]) / (ends[:, 1] - ends[:, 0]), 1.0, atol=0.2)
