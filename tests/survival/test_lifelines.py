"""Without noise: curves, tests and Cox's regression of lifelines, whose numbers are in lifelines.json.

privinf does not depend on lifelines. `make_lifelines` has the table and the commands that made the file.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from make_lifelines import COLUMNS, FIXTURE, HORIZON, RANKS, people

import privinf as pi

THEIRS = json.loads(FIXTURE.read_text(encoding="utf-8"))
ARMS = ["a", "b", "c"]
EDGES = np.arange(1.0, HORIZON + 1.0)
NONE = {"epsilon": math.inf}


def curve_of(rows, arms):
    schema = pi.Schema({"whole": (0, HORIZON), "died": (0, 1), "arm": arms})
    model = pi.survival.KaplanMeier(
        "whole", "died", by="arm", data=rows, schema=schema, grid=EDGES, discrete=True
    )
    return model.fit(**NONE)


@pytest.fixture(scope="module")
def curve():
    return curve_of(people(), ARMS)


def test_the_table_is_no_easy_one():
    """Ties, deaths after the horizon, and an arm with no last death: a median of every arm."""
    rows = people()
    assert rows["whole"].nunique() < 100 < rows["months"].nunique()
    assert ((rows["died"] == 1.0) & (rows["whole"] > HORIZON)).any()
    assert all(math.isfinite(THEIRS["curves"][arm]["median"]) for arm in ARMS)


@pytest.mark.parametrize("arm", ARMS)
def test_curves(curve, arm):
    theirs, hazard = THEIRS["curves"][arm], curve.nelson_aalen().table.loc[arm]
    mine = curve.table.loc[arm]
    assert mine.index.tolist() == EDGES.tolist()
    np.testing.assert_allclose(mine["survival"], theirs["survival"], rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(hazard["cumulated hazard"], theirs["cumulated hazard"], rtol=0.0, atol=1e-8)
    assert mine["at risk"].tolist() == theirs["at risk"]
    assert curve.median().loc[arm, "estimate"] == theirs["median"]
    mean = curve.restricted_mean(48.0).loc[arm, "estimate"]
    assert mean == pytest.approx(theirs["restricted mean to 48"], rel=0.0, abs=1e-8)


@pytest.mark.parametrize("weights", list(RANKS))
def test_log_rank_tests(curve, weights):
    rows = people()
    two = curve_of(rows[rows["arm"] != "c"], ARMS[:2])
    for fitted, name in ((curve, "three"), (two, "a and b")):
        test = fitted.logrank(weights)
        np.testing.assert_allclose([test.statistic, test.pvalue], THEIRS["tests"][weights][name], rtol=1e-8)


def test_coxs_regression_at_16_intervals():
    rows = people().assign(b=lambda table: (table["arm"] == "b").astype(float))
    schema = pi.Schema(
        {"months": (0, HORIZON), "died": (0, 1), "age": (40, 90), "treated": (0, 1), "b": (0, 1)}
    )
    formula = "months ~ " + " + ".join(COLUMNS)
    model = pi.PHReg.from_formula(formula, rows, status="died", schema=schema, intervals=16)
    fit = model.fit(**NONE)
    assert list(fit.names) == COLUMNS
    theirs, errors = np.array(THEIRS["cox"]["coef"]), np.array(THEIRS["cox"]["robust std err"])
    assert (np.abs(fit.params - theirs) < 0.1 * errors).all()
    np.testing.assert_allclose(fit.bse, errors, rtol=0.05)
