"""Results made from an ordinary least squares fit, so that statsmodels is the reference."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from privinf.accounting import GaussianLoss, LedgerEntry, PrivacyReport
from privinf.inference.estimate import Estimate
from privinf.results import Results
from privinf.results.context import Context
from privinf.schema import Design, Schema

FORMULA = "y ~ x1 + x2 + C(g) + x1:x2"


def entry(*, secure=True, mu=0.25, **given):
    return LedgerEntry(
        mechanism="gaussian",
        label="moments",
        unit="record",
        relation="replace-one",
        trust="central",
        loss=GaussianLoss(mu),
        source="lattice" if secure else "simulation",
        secure=secure,
        **given,
    )


@pytest.fixture(scope="session")
def frame():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(-1, 1, (300, 2)), columns=["x1", "x2"])
    data["g"] = rng.choice(["a", "b", "c"], 300)
    data["y"] = 0.5 + data.x1 - 0.5 * data.x2 + 0.3 * (data.g == "b") + 0.4 * rng.standard_normal(300)
    return data


@pytest.fixture(scope="session")
def design():
    return Design.from_formula(
        FORMULA, Schema({"x1": (-1, 1), "x2": (-1, 1), "g": ["a", "b", "c"], "y": (-3, 3)})
    )


@pytest.fixture(scope="session")
def ols(frame):
    return smf.ols(FORMULA, frame).fit(use_t=False)


@pytest.fixture(scope="session")
def results(ols, design):
    cov = np.asarray(ols.cov_params())
    bread = np.linalg.inv(np.asarray(ols.normalized_cov_params)) / ols.nobs
    scores = ols.model.exog * np.asarray(ols.resid)[:, None]
    estimate = Estimate(
        params=np.array(ols.params),
        cov=cov,
        names=tuple(ols.params.index),
        nobs=int(ols.nobs),
        scores=scores,
        bread=bread,
        noise_cov=0.3 * cov,
        cov_type="nonrobust",
    )
    return Results(
        estimate,
        Context(
            report=PrivacyReport.from_entries([entry(assumptions=("n is public",))], delta=1e-5),
            design=design,
            sampling_cov=0.7 * cov,
            model="TestOLS",
            method="least squares",
            options={"Stabilization": "none"},
            rsquared=0.5,
            scale=0.16,
            notes=("A footnote.",),
        ),
    )


@pytest.fixture
def make_entry():
    return entry
