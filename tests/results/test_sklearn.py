"""Estimators for scikit-learn: in pipelines and searches every fit is charged, and the limit holds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError, BudgetExceededError, NotAvailableError, PrivinfError, SchemaError
from privinf.sklearn import PrivateClassifier, PrivateRegressor

sklearn = pytest.importorskip("sklearn", reason="the extra privinf[sklearn] is not installed")
from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_validate  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures  # noqa: E402

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (3000, 2))
Y = 0.4 + X @ [0.5, -0.3] + 0.3 * RNG.standard_normal(3000)
B = np.where(RNG.uniform(size=3000) < 1 / (1 + np.exp(-X @ [2.0, -1.0])), "yes", "no")
COUNTS = RNG.poisson(np.exp(X @ [0.5, -0.3]))
PUBLIC = {"bounds": [(-1, 1)] * 2, "y_bounds": (-3, 3)}
SPEND = {"epsilon": 1.0, "delta": 1e-6, "rng": 0}


def ledger(epsilon=100.0):
    return pi.Ledger(pi.Budget(epsilon=epsilon, delta=1e-4))


@pytest.mark.parametrize(
    ("name", "model", "y", "bounds"),
    [
        ("ols", pi.OLS, Y, (-3, 3)),
        ("moments", pi.MomentOLS, Y, (-3, 3)),
        ("poisson", pi.Poisson, COUNTS, (0, 12)),
    ],
)
def test_a_fit_is_the_models_own(name, model, y, bounds):
    account = ledger()
    made = PrivateRegressor(bounds=PUBLIC["bounds"], y_bounds=bounds, ledger=account, model=name, **SPEND)
    fit = made.fit(X, y)
    own = model(y, pi.add_constant(X), bounds=PUBLIC["bounds"], y_bounds=bounds).fit(**SPEND)
    np.testing.assert_array_equal([fit.intercept_, *fit.coef_], own.params)
    new = RNG.uniform(-1, 1, (5, 2))
    np.testing.assert_allclose(fit.predict(new), own.predict(pi.add_constant(new)))
    assert fit.result_.privacy.epsilon(1e-6) == pytest.approx(own.privacy.epsilon(1e-6))
    assert len(account) == len(own.privacy.entries)


def test_frames_keep_their_names_and_the_intercept_is_a_choice():
    frame = pd.DataFrame(X, columns=["a", "b"])
    made = PrivateRegressor(
        bounds={"b": (-1, 1), "a": (-1, 1)}, y_bounds=(-3, 3), ledger=ledger(), fit_intercept=False, **SPEND
    ).fit(frame, Y)
    assert list(made.result_.names) == list(made.feature_names_in_) == ["a", "b"]
    assert made.intercept_ == 0.0
    np.testing.assert_allclose(made.predict(frame[:3]), X[:3] @ made.coef_)


def test_a_classifier_takes_public_labels_and_gives_probabilities():
    made = PrivateClassifier(bounds=[(-1, 1)] * 2, classes=("no", "yes"), ledger=ledger(), **SPEND).fit(X, B)
    own = pi.Logit(B == "yes", pi.add_constant(X), bounds=[(-1, 1)] * 2).fit(**SPEND)
    np.testing.assert_array_equal(made.coef_, own.params[1:])
    shares = made.predict_proba(X[:50])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert set(made.predict(X[:50])) <= {"no", "yes"}
    assert ((shares[:, 1] > 0.5) == (made.predict(X[:50]) == "yes")).all()
    # as a level that a schema does not name
    account = ledger()
    for strange in (np.where(np.arange(3000) == 7, "maybe", B), np.where(B == "yes", np.nan, 0.0)):
        with pytest.raises(SchemaError, match="that is not in classes="):
            PrivateClassifier(bounds=[(-1, 1)] * 2, classes=("no", "yes"), ledger=account, **SPEND).fit(
                X, strange
            )
    assert len(account) == 0
    with pytest.raises(ArgumentError, match="two different public labels"):
        PrivateClassifier(bounds=[(-1, 1)] * 2, classes=("no",), ledger=ledger(), **SPEND).fit(X, B)


def test_params_are_read_set_and_cloned_and_the_account_is_one():
    account = ledger()
    made = PrivateRegressor(**PUBLIC, ledger=account, **SPEND)
    again = clone(made).set_params(epsilon=2.0, model="moments")
    assert again.get_params()["epsilon"] == 2.0
    assert again.get_params()["ledger"] is account
    made.fit(X, Y)
    first = len(account)
    again.fit(X, Y)
    assert len(account) > first
    with pytest.raises(ValueError, match="Invalid parameter"):
        made.set_params(bound=1)


def test_a_pipeline_of_fixed_transformations_fits_and_predicts():
    squares = PolynomialFeatures(degree=2, include_bias=False)
    halves = FunctionTransformer(lambda rows: rows / 2.0)
    last = PrivateRegressor(
        bounds=[(-0.5, 0.5)] * 2 + [(-0.25, 0.25)] * 3, y_bounds=(-3, 3), ledger=ledger(), **SPEND
    )
    fit = make_pipeline(halves, squares, last).fit(X, Y)
    assert fit[-1].n_features_in_ == 5
    assert np.isfinite(fit.predict(X[:4])).all()


@pytest.mark.parametrize("missing", ["ledger", "bounds"])
def test_without_ledger_or_bounds_nothing_is_fitted(missing):
    words = {**PUBLIC, "ledger": ledger(), **SPEND}
    del words[missing]
    with pytest.raises(ArgumentError, match=f"{missing}= is missing"):
        PrivateRegressor(**words).fit(X, Y)
    assert missing == "ledger" or len(words["ledger"]) == 0
    with pytest.raises(NotAvailableError, match="not fitted"):
        PrivateRegressor(**words).predict(X)


def test_a_cross_validation_is_refused_at_the_limit():
    """Folds hold the same people: their charges add up, and the third fit would exceed the limit."""
    account = pi.Ledger(pi.Budget(mu=1.0))
    made = PrivateRegressor(**PUBLIC, ledger=account, mu=0.7, rng=0)
    with pytest.raises(BudgetExceededError):
        cross_validate(made, X, Y, cv=5, scoring="r2", error_score="raise")
    spent = pi.PrivacyReport.from_entries(account.entries).mu
    assert spent == pytest.approx(0.7 * np.sqrt(2.0), rel=1e-6)
    entries = account.entries
    with pytest.raises(BudgetExceededError):
        made.fit(X, Y)
    assert account.entries == entries


def test_a_search_charges_every_fit():
    account = ledger()
    made = PrivateRegressor(**PUBLIC, ledger=account, mu=0.2, rng=0, model="moments")
    search = GridSearchCV(made, {"fit_intercept": [True, False]}, cv=2, scoring="r2").fit(X, Y)
    assert pi.PrivacyReport.from_entries(account.entries).mu == pytest.approx(0.2 * np.sqrt(5.0), rel=1e-6)
    assert search.best_estimator_.ledger is account


@pytest.mark.slow
def test_fits_in_several_processes_need_a_ledger_in_a_file(tmp_path):
    words = {"cv": 2, "scoring": "r2", "n_jobs": 2, "error_score": "raise"}
    with pytest.raises(PrivinfError, match=r"LedgerFile|process|read"):
        cross_validate(PrivateRegressor(**PUBLIC, ledger=ledger(), mu=0.2, rng=0), X, Y, **words)
    filed = pi.LedgerFile(tmp_path / "a.ledger", pi.Budget(mu=5.0))
    cross_validate(PrivateRegressor(**PUBLIC, ledger=filed, mu=0.2, rng=0), X, Y, **words)
    assert pi.PrivacyReport.from_entries(filed.entries).mu == pytest.approx(0.2 * np.sqrt(2.0), rel=1e-6)


@pytest.mark.parametrize("made", [PrivateRegressor, PrivateClassifier])
def test_a_score_of_rows_is_refused(made):
    estimator = made(bounds=[(-1, 1)] * 2, ledger=ledger(), **SPEND)
    with pytest.raises(NotAvailableError, match="statistic of the rows"):
        estimator.score(X, Y)
