"""Intervals where half of the rows lack a value cover as they state; two mutants do not, and are caught."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf import completeness
from privinf.mechanisms import rows as row_handling
from privinf.mechanisms.passes import RowPasses
from privinf.mechanisms.rows import as_rows
from privinf.schema import Design

N, FITS = 4000, 240
TRUE = np.array([5.0, 2.0, 0.3])
SCHEMA = pi.Schema({"x": (-1, 1), "k": (0, 9), "y": (-4, 14)})
# 99% binomial limits of a coverage of 0.95 of one coefficient.
LOWEST = 0.95 - 2.58 * np.sqrt(0.95 * 0.05 / FITS)
DESIGN = Design.from_formula("y ~ x + k", SCHEMA)


def table(seed: int, share: float, n: int = N) -> pd.DataFrame:
    """Return rows whose x is missing at random for this share."""
    rng = np.random.default_rng([seed, 44])
    x, k = rng.uniform(-1, 1, n), rng.integers(0, 10, n).astype(float)
    y = TRUE[0] + TRUE[1] * x + TRUE[2] * k + rng.normal(0, 1.0, n)
    x[rng.uniform(size=n) < share] = np.nan
    return pd.DataFrame({"x": x, "k": k, "y": y})


def outcomes(model, share: float = 0.5, fits: int = FITS, method: str = "wald", **options):
    """Return the coverage of each coefficient, the mean of s^2, and of the number of rows over the truth."""
    covered, scales, counts = [], [], []
    for seed in range(fits):
        frame = table(seed, share)
        complete_count = frame["x"].notna().sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = model.from_formula("y ~ x + k", frame, schema=SCHEMA, missing="drop").fit(
                epsilon=8.0, delta=1e-6, rng=seed, **options
            )
            ends = fit.conf_int(method=method).to_numpy()
        covered.append((ends[:, 0] <= TRUE) & (ends[:, 1] >= TRUE))
        scales.append(fit.scale if method == "wald" else np.nan)
        counts.append(fit.nobs / complete_count)
    return np.mean(covered, axis=0), float(np.mean(scales)), float(np.mean(counts))


def all_rows_counted(patch):
    """Mutant: n in the place of N^."""
    original = completeness.CompleteRows.from_sum.__func__

    def of_all(cls, total, sd, n, coefficients):
        return replace(original(cls, total, sd, n, coefficients), rows=n)

    patch.setattr(completeness.CompleteRows, "from_sum", classmethod(of_all))


def constants_added(patch):
    """Mutant: a row that lacks a value adds its constant, and nothing else."""
    original = row_handling._present

    def filled(matrix, response, complete):
        if complete is not None:  # in the middle of its bounds a column adds nothing
            middle = 0.5 * (DESIGN.low + DESIGN.high)
            matrix = np.where(complete[:, None], matrix, middle)
            response = np.where(complete, response, DESIGN.outcome.bounds.middle)
        return original(matrix, response, None)

    patch.setattr(row_handling, "_present", filled)


MODELS = {
    "MomentOLS": (pi.MomentOLS, {}),
    "MomentOLS, HC0": (pi.MomentOLS, {"cov_type": "HC0"}),
    "OLS": (pi.OLS, {}),
    "OLS, nonrobust": (pi.OLS, {"cov_type": "nonrobust"}),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", MODELS)
def test_intervals_cover_where_half_of_the_rows_are_incomplete(name):
    model, options = MODELS[name]
    coverage, scale, count = outcomes(model, **options)
    assert coverage.min() >= LOWEST, coverage
    assert scale == pytest.approx(1.0, abs=0.1)
    assert count == pytest.approx(1.0, abs=0.01)


@pytest.mark.audit
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_score_intervals_cover_where_the_constant_carries_noise(share):
    """The statistic is minimized over the constant at no degree of freedom, however few rows are complete."""
    coverage, *_ = outcomes(pi.MomentOLS, share, fits=120, method="score")
    assert coverage.min() >= 0.95 - 2.58 * np.sqrt(0.95 * 0.05 / 120), coverage


@pytest.mark.audit
@pytest.mark.parametrize("name", ["MomentOLS", "OLS, nonrobust"])
def test_n_in_the_place_of_the_number_of_complete_rows_is_caught(name, monkeypatch):
    all_rows_counted(monkeypatch)
    model, options = MODELS[name]
    coverage, scale, count = outcomes(model, fits=120, **options)
    assert scale < 0.7
    assert count > 1.9
    assert coverage.min() < LOWEST


@pytest.mark.parametrize("mutant", [None, constants_added])
def test_sums_of_incomplete_rows_are_zero(mutant, monkeypatch):
    """A row that adds its constant is a row with mean 0, so N^ counts it: integers show it."""
    frame = table(0, 0.5, 400)

    def integers(missing, rows):
        mechanism = pi.Moments(SCHEMA, "y ~ x + k", missing="drop")
        passing = RowPasses(DESIGN, as_rows(rows, missing))
        (query,) = mechanism._queries(1.0, np.empty(0), 0.0, robust=False)
        return query.over(passing, exact=True).steps(2.0**-30).tolist()

    expected = integers("drop", frame.dropna())
    if mutant is not None:
        mutant(monkeypatch)
    assert (integers("drop", frame.copy()) == expected) == (mutant is None)


@pytest.mark.audit
def test_a_row_that_adds_its_constant_is_caught(monkeypatch):
    constants_added(monkeypatch)
    coverage, _, count = outcomes(pi.MomentOLS, fits=120)
    assert count > 1.9
    assert coverage.min() < LOWEST
