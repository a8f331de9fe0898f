"""DebiasedLasso where half of the rows lack a value: sums, coverage, widths, and mutants that are caught."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import privinf as pi
from privinf import completeness
from privinf.lasso import debiasing
from privinf.lasso.sums import SparseSums
from privinf.mechanisms import rows as row_handling
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.opened import OpenedRows
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.schema import Design
from privinf.wire import Statistics

P = 8
TARGETS = (0, 4)
TRUTH = np.array([1.0, 0.0])
FITS = 150
# 99% binomial limit of a coverage of 0.95, of both targets' intervals together.
LOWEST = 0.95 - 2.58 * np.sqrt(0.95 * 0.05 / (2 * FITS))


def rows(seed, n=4000, share=0.5, family="gaussian"):
    """Return (y, X) with gaps, and which rows are complete."""
    rng = np.random.default_rng([seed, 12])
    X = rng.standard_normal((n, P))
    X[:, 1] = 0.6 * X[:, 0] + 0.8 * X[:, 1]
    eta = X[:, 0] - X[:, 2]
    y = eta + 0.5 * rng.standard_normal(n)
    if family == "binomial":
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    lacking = rng.random(n) < share
    X[lacking & (rng.random(n) < 0.5), 3] = np.nan
    y[lacking & ~np.isnan(X[:, 3])] = np.nan
    return y, X, ~lacking


def fitted(seed, y, X, missing, family):
    bounds = {"y_bounds": (-5.0, 5.0)} if family == "gaussian" else {}
    model = pi.DebiasedLasso(y, X, x_bound=4.0, family=family, missing=missing, **bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = model.fit(epsilon=8.0, delta=1e-5, sparsity=2, targets=list(TARGETS), rng=seed)
        return fit, fit.conf_int().to_numpy()


def outcomes(family, fits=FITS):
    """Return coverage, the median width over that of fits that know N, and the mean of N^ / N."""
    covered, widths, known, counts = [], [], [], []
    for seed in range(fits):
        y, X, complete = rows(seed, family=family)
        fit, ends = fitted(seed, y, X, "drop", family)
        covered.append((ends[:, 0] <= TRUTH) & (ends[:, 1] >= TRUTH))
        widths.append(ends[:, 1] - ends[:, 0])
        counts.append(fit.nobs / complete.sum())
        if seed < 30:
            _, ends = fitted(seed, y[complete], X[complete], "raise", family)
            known.append(ends[:, 1] - ends[:, 0])
    return np.mean(covered), float(np.median(widths) / np.median(known)), float(np.mean(counts))


@pytest.mark.audit
@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_intervals_cover_where_half_of_the_rows_are_incomplete(family):
    coverage, width, count = outcomes(family)
    assert coverage >= LOWEST
    assert width == pytest.approx(1.0, abs=0.08)
    assert count == pytest.approx(1.0, abs=0.01)


# ---- mutants: n in the place of N^


def all_rows_counted(patch):
    """Let n have the place of N^ everywhere."""
    original = completeness.CompleteRows.from_sum.__func__

    def of_all(cls, total, sd, n, coefficients):
        return replace(original(cls, total, sd, n, coefficients), rows=n)

    patch.setattr(completeness.CompleteRows, "from_sum", classmethod(of_all))


def means_over_all_rows(patch):
    """Let means be over n while errors are those of N^ rows."""

    def release(self, op, args, rho, label):
        return self.server.vector_sum(op, args, label=label, rho=rho, sites=self.sites)

    patch.setattr(SparseSums, "release", release)


def errors_of_all_rows(patch):
    """Let sampling errors be those of n rows while means are over N^."""
    for name in ("debiased_coordinates", "debiased_jointly"):
        original = getattr(debiasing, name)

        def of_all(start, released, *rest, original=original):
            return original(start, replace(released, n=2 * released.n), *rest)

        patch.setattr(debiasing, name, of_all)


@pytest.mark.audit
@pytest.mark.parametrize("mutant", [all_rows_counted, means_over_all_rows])
def test_n_in_the_place_of_the_number_of_complete_rows_is_caught_by_widths(mutant, monkeypatch):
    mutant(monkeypatch)
    assert outcomes("gaussian", fits=30)[1] > 1.2


@pytest.mark.audit
@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_errors_of_all_rows_are_caught_by_coverage(family, monkeypatch):
    errors_of_all_rows(monkeypatch)
    assert outcomes(family)[0] < LOWEST


# ---- sums


FORMS = {"columns": np.array([0, 3]), "transform": np.array([[1.0], [0.4]]), "support": np.array([2])}
FORMS |= {"beta": np.array([0.5])}
CURVED = {
    "family": "binomial",
    "columns": np.array([0, 2]),
    "theta": np.array([0.2, 0.5]),
    "intercept": -0.3,
    "transform": np.eye(2),
    "offset": np.array([0.4, -0.3]),
    "score_bound": 2.0,
    "curvature_bound": 3.0,
}
QUERIES = {
    Statistics.COMPLETE_ROWS: {},
    Statistics.RESIDUAL_SUM: {"residual_clip": 2.0},
    Statistics.RESIDUAL_HISTOGRAM: {"edges": np.array([0.2, 1.0, 2.0])},
    Statistics.COLUMN_SUMS: {"columns": np.arange(P), "bound": 4.0},
    Statistics.COLUMN_SQUARES: {"columns": np.arange(P), "bound": 4.0},
    Statistics.SHRUNK_SUMS: {"columns": np.arange(P), "norm": 3.0},
    Statistics.COLUMNS_OUTSIDE: {"columns": np.arange(P)},
    Statistics.CLIPPED_PRODUCTS: {"bound": 0.7},
    Statistics.LOGISTIC_PRODUCTS: {"bound": 0.7},
    Statistics.COLUMN_PRODUCTS: {"targets": np.array([0, 3]), "bound": 1.0},
    Statistics.PRODUCT_VECTOR: {"bound": 2.0, "norm": 0.9},
    Statistics.UNION_GRAM: {"columns": np.arange(P), "bound": 4.0, "norm": 3.0},
    Statistics.CLIPPED_SCORE: FORMS | {"clip": 1.5, "residual_clip": 0.8},
    Statistics.SQUARED_RESIDUALS: {"residual_clip": 2.0},
    Statistics.LAYERS_COUNTS: FORMS | {"unit": 0.5, "thresholds": np.array([0.5, 1.0, 2.0])},
    Statistics.LAYERS_SCORE: FORMS | {"unit": 0.5, "low": 0.0, "high": 1.0},
    Statistics.LAYERS_MEAT: FORMS | {"unit": 0.5, "low": 0.5, "high": 1.0, "weight": 1.2},
    Statistics.CURVED_SCORE: CURVED | {"high": 2.0},
    Statistics.CURVED_MEAT: CURVED | {"high": 2.0},
    Statistics.CURVED_SECANT: CURVED | {"clip": 3.0, "step": np.array([0.1, 0.2])},
}


def filled(patch, *, center):
    """Let a row that lacks a value add one entry: its own, with the middle of bounds, or a bound, in gaps."""
    original = row_handling._present
    value = 0.0 if center else 4.0

    def present(matrix, response, complete):
        if complete is not None:
            matrix = np.where(np.isnan(matrix), value, matrix)
            response = np.where(np.isnan(response), value, response)
        return original(matrix, response, None)

    patch.setattr(row_handling, "_present", present)


@pytest.mark.parametrize("mutant", ["none", "center", "bound"])
@pytest.mark.parametrize("op", QUERIES)
def test_sums_of_incomplete_rows_are_zero(op, mutant, monkeypatch):
    y, X, complete = rows(1, n=300)
    design = Design.from_arrays([f"x{j}" for j in range(P)], bounds=[(-4, 4)] * P, y_bounds=(-5, 5))

    def exact_sums(y, X, missing):
        block = SiteBlock.from_rows(design, OpenedRows(Rows(X.copy(), y.copy(), missing), design))
        return SITE_OPS[op].total(block, QUERIES[op] | {"bits": 28}).tolist()

    expected = exact_sums(y[complete], X[complete], "raise")
    if mutant != "none":
        filled(monkeypatch, center=mutant == "center")
    equal = exact_sums(y, X, "drop") == expected
    inside = mutant != "none" and op == Statistics.COLUMNS_OUTSIDE  # no gap is filled beyond its bounds
    assert equal == (mutant == "none" or inside)


@pytest.mark.audit
def test_a_row_that_adds_its_entry_to_the_number_is_caught(monkeypatch):
    filled(monkeypatch, center=True)
    *_, count = outcomes("gaussian", fits=10)
    assert count > 1.9
