"""DebiasedLasso with missing="drop": sums over complete rows, and their estimated number replaces n."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.completeness import CompleteRows
from privinf.errors import NotAvailableError
from privinf.lasso.plan import COMPLETE_SHARE
from privinf.lasso.sums import SparseSums

N, P = 3000, 12
SPENT = {"epsilon": 8.0, "delta": 1e-6}
NO_NOISE = {"epsilon": np.inf, "delta": 1e-6}
pytestmark = pytest.mark.filterwarnings("ignore")


def rows(n=N, *, family="gaussian", seed=0, share=0.4):
    """Return (y, X) of which a share of the rows lack a value, and which rows are complete."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P))
    X[:, 1] = 0.6 * X[:, 0] + 0.8 * X[:, 1]
    eta = X[:, 0] - X[:, 5]
    y = eta + 0.5 * rng.standard_normal(n)
    if family == "binomial":
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    lacking = rng.random(n) < share
    column = rng.integers(0, 3, n)
    y[lacking & (column == 0)] = np.nan
    X[lacking & (column == 1), 3] = np.nan
    X[lacking & (column == 2), 1] = np.nan
    return y, X, ~lacking


def fitted(y, X, missing="drop", *, family="gaussian", sites=None, trust=None, **options):
    bounds = {"y_bounds": (-6.0, 6.0)} if family == "gaussian" else {}
    model = pi.DebiasedLasso(
        y, X, x_bound=4.0, family=family, sites=sites, trust=trust, missing=missing, **bounds
    )
    options = {"sparsity": 2, "targets": [0, 7], "rng": 0} | options
    return model.fit(**options)


KINDS = {
    "gaussian": {},
    "robust": {"target": "robust"},
    "released means": {"center": "released"},
    "a sparsity of its own choice": {"sparsity": "auto", "targets": "selected"},
    "all columns": {"targets": "all"},
    "extras": {"noise_variance": True, "restricted_eigenvalues": True},
    "logistic": {"family": "binomial"},
    "logistic, chosen": {"family": "binomial", "sparsity": "auto", "targets": "selected"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_a_fit_is_that_of_complete_rows(kind):
    options = KINDS[kind]
    y, X, complete = rows(800, family=options.get("family", "gaussian"))
    dropped = fitted(y, X, **NO_NOISE, **options)
    expected = fitted(y[complete], X[complete], "raise", **NO_NOISE, **options)
    assert dropped.nobs == expected.nobs == complete.sum()
    np.testing.assert_allclose(dropped.params, expected.params, rtol=1e-9)
    np.testing.assert_allclose(dropped.bse, expected.bse, rtol=1e-9)
    np.testing.assert_allclose(dropped.sparse_params, expected.sparse_params, rtol=1e-9)
    if dropped._settings.get("missed"):
        tests = [fit.missed_column_test for fit in (dropped, expected)]
        assert tests[0].column == tests[1].column
        assert tests[0].statistic == pytest.approx(tests[1].statistic, rel=1e-6)


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_without_noise_sites_drop_their_rows(trust):
    y, X, complete = rows(900)
    labels = np.arange(900) % 3
    fits = [
        fitted(y[kept], X[kept], missing, sites=labels[kept], trust=trust, **NO_NOISE)
        for kept, missing in ((np.full(900, True), "drop"), (complete, "raise"))
    ]
    assert fits[0].nobs == fits[1].nobs == complete.sum()
    np.testing.assert_allclose(*(fit.params for fit in fits), rtol=1e-6)
    np.testing.assert_allclose(*(fit.bse for fit in fits), rtol=1e-6)


def test_without_noise_every_site_has_the_fit_of_its_complete_rows():
    y, X, complete = rows(1500)
    labels = np.arange(1500) % 3
    words = {"heterogeneous": True, "shared_sparsity": 1, "center": "declared"} | NO_NOISE
    fits = [
        fitted(y[kept], X[kept], missing, sites=labels[kept], **words)
        for kept, missing in ((np.full(1500, True), "drop"), (complete, "raise"))
    ]
    for label in range(3):
        dropped, expected = (fit.site(label) for fit in fits)
        assert dropped.nobs == expected.nobs == complete[labels == label].sum()
        np.testing.assert_allclose(dropped.params, expected.params, rtol=1e-9)
        np.testing.assert_allclose(dropped.bse, expected.bse, rtol=1e-9)


# ---- the number of complete rows


@pytest.mark.parametrize("kind", ["gaussian", "logistic", "secure sums", "shares"])
def test_the_number_is_the_first_release_and_a_hundredth_of_the_price(kind):
    y, X, complete = rows(family="binomial" if kind == "logistic" else "gaussian")
    options = {
        "gaussian": {},
        "logistic": {"family": "binomial"},
        "secure sums": {"sites": np.arange(N) % 2, "trust": "secure-sum"},
        "shares": {
            "shares": {
                "selection": 0.14,
                "refit": 0.2,
                "scales": 0.06,
                "neighbours": 0.07,
                "gram": 0.15,
                "slopes": 0.04,
                "score": 0.29,
                "missed": 0.05,
            }
        },
    }[kind]
    fit = fitted(y, X, **SPENT, **options)
    first = fit.privacy.entries[0]
    total = fit.privacy.rho
    assert first.label == "number of complete rows"
    assert first.sensitivity.value == pytest.approx(1.0, rel=1e-4)
    assert first.loss.mu**2 / 2.0 == pytest.approx(COMPLETE_SHARE * total, rel=0.2)
    assert fit.privacy.epsilon() <= SPENT["epsilon"] * (1 + 1e-9)
    sd = fit._context.complete.sd
    assert sd == pytest.approx(1.0 / first.loss.mu, rel=0.01)
    assert abs(fit.nobs - complete.sum()) < 5.0 * sd


def test_sites_with_effects_of_their_own_have_numbers_of_their_own():
    y, X, complete = rows(6000)
    labels = np.arange(6000) % 3
    fit = fitted(y, X, sites=labels, heterogeneous=True, shared_sparsity=1, epsilon=20.0, delta=1e-6)
    counts = [line for line in fit.privacy.entries if line.label == "number of complete rows"]
    assert len(counts) == 3
    assert fit.privacy.epsilon() <= 20.0 * (1 + 1e-9)
    for label in range(3):
        result = fit.site(label)
        stated = result._context.complete
        assert stated.of == 2000
        assert abs(result.nobs - complete[labels == label].sum()) < 5 * stated.sd
        assert any(note.startswith(f"About {result.nobs:,} of 2,000 rows") for note in result.notes)


def of_another_number(patch, change):
    """Let the estimate of the number of complete rows be off by a share."""
    original = CompleteRows.from_sum.__func__

    def off(cls, total, sd, n, coefficients):
        right = original(cls, total, sd, n, coefficients)
        return replace(right, rows=round(right.rows * (1.0 + change)))

    patch.setattr(CompleteRows, "from_sum", classmethod(off))


@pytest.mark.parametrize("n", [2000, 8000])
@pytest.mark.parametrize("family", ["gaussian", "binomial"])
@pytest.mark.parametrize("change", [-0.05, 0.05])
def test_an_error_of_the_number_cancels(family, n, change, monkeypatch):
    """Without noise an error of 5% moves coefficients and standard errors by far less."""
    y, X, _ = rows(n, family=family)
    right = fitted(y, X, family=family, **NO_NOISE)
    of_another_number(monkeypatch, change)
    wrong = fitted(y, X, family=family, **NO_NOISE)
    assert wrong.nobs == round(right.nobs * (1.0 + change))
    assert np.abs((wrong.params - right.params) / right.bse).max() < 1e-3
    assert np.abs(wrong.bse / right.bse - 1.0).max() < 1e-3
    # The noise of nodewise regressions and of the number is in the test for omitted columns alone.
    statistics = [fit.missed_column_test.statistic for fit in (right, wrong)]
    assert statistics[0] == pytest.approx(statistics[1], rel=1e-3)


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_an_error_of_the_number_hardly_moves_a_fit_with_noise(family, monkeypatch):
    y, X, _ = rows(8000, family=family)
    right = fitted(y, X, family=family, **SPENT)
    of_another_number(monkeypatch, 0.02)
    wrong = fitted(y, X, family=family, **SPENT)
    assert np.abs(wrong.bse / right.bse - 1.0).max() < 0.1
    assert np.abs((wrong.params - right.params) / right.bse).max() < 1.0


def test_errors_of_means_include_that_of_the_number():
    sums = SparseSums(server=None, units=None, n=1000)
    assert sums.count_error == 0.0
    assert sums.with_count(0.3, 5.0) == 0.3
    sums.counted(CompleteRows(rows=500, sd=10.0, of=1000))
    assert (sums.n, sums.count_error) == (500, 0.02)
    assert sums.with_count(0.3, 20.0) == pytest.approx(0.5)


def test_the_default_sparsity_is_that_of_complete_rows():
    y, X, complete = rows(9000, share=0.8)
    X = np.hstack([X, np.random.default_rng(1).standard_normal((9000, 40))])
    most = [
        fitted(part, matrix, missing, sparsity="auto", epsilon=2.0, delta=1e-6)._context.options["Sparsity"]
        for part, matrix, missing in ((y, X, "drop"), (y[complete], X[complete], "raise"))
    ]
    assert most[0].split()[-1] == most[1].split()[-1]


# ---- refusals


def test_what_dropped_rows_do_not_have_is_refused_by_name():
    y, X, _ = rows(200)
    for options, reason in (
        ({"bootstrap_draws": 20}, "bootstrap_draws= cannot be combined with missing='drop'"),
        ({"variant": "paper"}, "missing='drop' is not available with variant='paper'"),
    ):
        model = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-6, 6), missing="drop")
        with pytest.raises(NotAvailableError, match=reason):
            model.fit(**SPENT, targets=[0], sparsity=2, **options)
        assert len(model.ledger) == 0


def test_a_table_without_a_complete_row():
    frame = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (400, 4)), columns=list("abcd"))
    frame["y"] = frame.a
    frame["b"] = np.nan
    schema = pi.Schema(dict.fromkeys("abcd", (-1, 1)) | {"y": (-4, 4)})
    model = pi.DebiasedLasso.from_formula("y ~ a + b + c + d", frame, schema=schema, missing="drop")
    fit = model.fit(**SPENT, targets=["a"], sparsity=1, rng=0)
    assert fit.nobs < 40
    assert fit._context.complete.of == 400
