"""statsmodels' own tests on our results: each is in the class that the committed list says.

The list, and what the classes mean: benchmarks/statsmodels_tests.py, benchmarks/results/statsmodels_tests.md.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from support import statsmodels_models
from support.statsmodels_causes import classified
from support.statsmodels_swap import MODULES, run

LIST = Path(__file__).with_name("statsmodels_tests.toml")
AGAIN = "run benchmarks/statsmodels_tests.py, and look at what it changes"
QUICK = ("base.tests.test_predict", "stats.tests.test_contrast", "formula.tests.test_formula")


def listed(modules):
    causes = tomllib.loads(LIST.read_text(encoding="utf-8"))["cause"]
    names = {name: one["class"] for one in causes for name in one["tests"]}
    return {name: kind for name, kind in names.items() if name.partition("::")[0] in modules}


def check(modules, *, closed=()):
    """Compare classes with the list; `closed` names classes that a test may leave without a word."""
    found = {name: cause.kind for name, cause in classified(run(modules)).items()}
    run_at_all = {name.partition("::")[0] for name in found}  # polars may be absent
    known = listed(run_at_all)
    changed = {
        name: (known.get(name), found.get(name))
        for name in known | found
        if known.get(name) != found.get(name)
    }
    assert not changed, f"{AGAIN}: {changed}"
    assert set(modules) - run_at_all <= {"base.tests.test_polars_compat"}


def test_the_list_holds_no_wrong_number_and_nothing_unexplained():
    kinds = set(listed(MODULES).values())
    assert "passes" in kinds
    assert not kinds & {"wrong", "unexplained"}


@pytest.mark.parametrize(("factor", "kinds"), [(1.0, ["ours"]), (1.001, ["ours", "wrong"])])
def test_a_number_that_is_off_by_a_thousandth_is_a_wrong_one(factor, kinds):
    rng = np.random.default_rng(0)
    X = sm.add_constant(pd.DataFrame({"x": rng.uniform(-1, 1, 50)}))
    theirs = sm.OLS(X["x"] + rng.standard_normal(50), X).fit()
    off = sm.OLS(theirs.model.endog, X).fit()
    off.__dict__.update(bse=factor * theirs.bse, k_constant=1, names=("const", "x"))
    statsmodels_models.LOG.clear()
    shown = statsmodels_models.OurResults(off, theirs, theirs).bse
    np.testing.assert_allclose(shown, factor * theirs.bse)
    assert [event.kind for event in statsmodels_models.LOG] == kinds
    statsmodels_models.LOG.clear()


@pytest.mark.audit
def test_classes_of_statsmodels_tests_are_those_listed():
    check(QUICK, closed=("gap",))


@pytest.mark.slow
def test_classes_of_all_of_statsmodels_tests_are_those_listed():
    check(MODULES)
