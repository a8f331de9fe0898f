"""Progress bars: shown after two seconds, one at a time, and turned off by ``progress=False``."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf import progress
from privinf.errors import ArgumentError
from privinf.mechanisms import reading
from privinf.progress import bars_are_hidden, progress_bar, step
from privinf.results.resampling import Resampling

SCHEMA = pi.Schema({"x": (-1, 1), "y": (-2, 2)})
KNOWN = pi.Guesses(means={"y": 0}, sds={"y": 0.5, "x": 0.5}, rsquared=0.3)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 2000)})
    return frame.assign(y=(0.5 * frame.x + rng.normal(0, 0.3, 2000)).clip(-2, 2))


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)


def study():
    return pi.plan_study(
        SCHEMA, "y ~ x", 500, guesses=KNOWN, mu=1.0, estimators=["MomentOLS"], progress=False
    )


CALLS = {
    "plan_study": lambda rows, bar: pi.plan_study(
        SCHEMA, "y ~ x", 500, guesses=KNOWN, mu=1.0, estimators=["MomentOLS"], progress=bar
    ),
    "n_for": lambda rows, bar: study().n_for(width=0.5, progress=bar),
    "budget_for": lambda rows, bar: study().budget_for(width=0.5, progress=bar),
    "changes": lambda rows, bar: study().changes(width=0.5, progress=bar),
    "find_bounds": lambda rows, bar: pi.find_bounds(rows, ["x"], mu=1.0, rng=0, progress=bar),
    "fit": lambda rows, bar: pi.OLS.from_formula("y ~ x", rows, schema=SCHEMA).fit(
        mu=1.0, rng=0, progress=bar
    ),
    "general fit": lambda rows, bar: pi.GLM.from_formula("y ~ x", rows, schema=SCHEMA, family="gaussian").fit(
        mu=1.0, rng=0, progress=bar
    ),
    "lasso": lambda rows, bar: pi.DebiasedLasso.from_formula("y ~ x", rows, schema=SCHEMA).fit(
        rho=1.0, targets=["x"], sparsity=1, rng=0, progress=bar
    ),
    "bootstrap": lambda rows, bar: (
        pi.ModulatedOLS.from_formula("y ~ x", rows, schema=SCHEMA)
        .fit(mu=3.0, rng=0)
        .bootstrap(19, "pairs", rng=0, progress=bar)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_slow_call_has_one_bar_that_can_be_turned_off(name, rows, at_once, capsys):
    CALLS[name](rows, True)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 0  # the bar is cleared
    assert "/s]" in shown or "it/s" in shown or "s/" in shown
    CALLS[name](rows, False)
    assert capsys.readouterr().err == ""
    CALLS[name](rows, None)  # no terminal
    assert capsys.readouterr().err == ""


def test_a_fast_call_shows_none(rows, capsys):
    CALLS["fit"](rows, True)
    assert capsys.readouterr().err == ""


def test_only_the_outer_work_has_a_bar(at_once, capsys):
    with progress_bar(True, "outer", total=2):
        assert not bars_are_hidden()
        step()
        with progress_bar(True, "inner"):
            step(5)
            assert bars_are_hidden()
        step()
    shown = capsys.readouterr().err
    assert "inner" not in shown
    assert "outer:   0%|" in shown
    assert "5/2" not in shown
    step()  # nothing runs
    assert not bars_are_hidden()


def test_a_fit_without_a_bar_reads_its_table_without_one(rows, at_once, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "DELAY", 0.0)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    table = pi.open_rows(tmp_path / "rows.csv", progress=True)
    pi.OLS.from_formula("y ~ x", table, schema=SCHEMA).fit(mu=1.0, rng=0)
    assert "rows.csv" in capsys.readouterr().err
    model = pi.OLS.from_formula("y ~ x", table, schema=SCHEMA)
    capsys.readouterr()
    model.fit(mu=1.0, rng=0, progress=False)
    assert capsys.readouterr().err == ""


def test_progress_is_a_flag(rows):
    with pytest.raises(ArgumentError, match="progress"):
        CALLS["fit"](rows, "no")


def test_every_bootstrap_has_the_option():
    kinds = [Resampling]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert "progress" in inspect.signature(kind.bootstrap).parameters
