"""Predictions of the debiased lasso: all of the mean or none, and the sparse fit's under its own name."""

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, SchemaError

P, N = 12, 4000
NAMES = [f"v{j}" for j in range(P)]
SIGNALS = {"v0": 1.5, "v4": -1.0}


def skewed(constant=True, seed=0):
    """Return rows with an intercept of 3; columns are skewed, their means not where bounds centre them."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(np.minimum(rng.exponential(0.6, (N, P)), 4.0), columns=NAMES)
    y = 3.0 + sum(b * X[name] for name, b in SIGNALS.items()) + 0.3 * rng.standard_normal(N)
    return y.to_numpy(), pi.add_constant(X) if constant else X


def model_of(constant=True, bounds=(-2.0, 4.0), **options):
    y, X = skewed(constant)
    return pi.DebiasedLasso(y, X, bounds=dict.fromkeys(NAMES, bounds), y_bounds=(-8.0, 18.0), **options)


def noisy(constant=True, **options):
    given = {"epsilon": 8.0, "delta": 1e-5, "sparsity": 2, "rng": 0} | options
    return model_of(constant).fit(**given)


def refused(fit, words):
    rows = skewed()[1][:3]
    for ask in (fit.predict, fit.get_prediction):
        with pytest.raises(NotAvailableError, match=words):
            ask(rows)
        with pytest.raises(NotAvailableError, match="predict_sparse"):
            ask(rows[list(fit.names)].to_numpy())


@pytest.mark.audit
@pytest.mark.parametrize("targets", [["v0", "v4"], ["v0", "v7"], "selected", NAMES])
def test_means_without_the_constant_and_other_columns_are_refused(targets):
    """They had intervals that never held the mean: the intercept of 3 was left out."""
    refused(noisy(targets=targets), "const")


@pytest.mark.audit
def test_centred_columns_have_an_intercept_that_no_coefficient_is():
    refused(noisy(constant=False, targets="all", center="declared"), "centered")
    refused(noisy(constant=False, targets="all", center="released"), "centered")
    refused(noisy(constant=False, targets=["v0"]), "'v1', 'v2', 'v3' and 8 more")


@pytest.mark.audit
def test_a_regression_through_the_origin_predicts_as_least_squares():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-1, 1, (N, 4)), columns=list("abcd"))
    y = X.to_numpy() @ [1.0, -1.0, 0.0, 0.5] + 0.3 * rng.standard_normal(N)
    model = pi.DebiasedLasso(y, X, x_bound=1.0, y_bounds=(-4, 4))
    exact = model.fit(epsilon=np.inf, sparsity=3, targets="all", center="declared")
    least = np.linalg.lstsq(X.to_numpy(), y, rcond=None)[0]
    np.testing.assert_allclose(exact.predict(X[:5]), X[:5].to_numpy() @ least, atol=1e-8)
    robust = model.fit(epsilon=8.0, delta=1e-5, sparsity=3, targets="all", center="declared", rng=0)
    with pytest.raises(NotAvailableError, match="robust center"):
        robust.get_prediction(X[:5])
    fit = model.fit(epsilon=8.0, delta=1e-5, sparsity=3, targets=list("abcd"), rng=0)
    with pytest.raises(NotAvailableError, match="constant"):  # it is centred at released means
        fit.predict(X[:5])


def least_squares(X, y):
    return X.to_numpy() @ np.linalg.lstsq(X.to_numpy(), y, rcond=None)[0]


@pytest.mark.audit
def test_the_sparse_fit_predicts_with_its_intercept():
    """Of columns that were picked and dropped again the intercept keeps the mean: they are skewed."""
    y, X = skewed()
    exact = model_of().fit(epsilon=np.inf, sparsity=2, targets=["v0"])
    slopes = exact.sparse_params[list(SIGNALS)]
    assert set(exact.selected) == {"const", *SIGNALS}
    intercept = y.mean() - X[list(SIGNALS)].mean() @ slopes
    assert exact.sparse_params["const"] == pytest.approx(intercept, abs=1e-8)
    found = exact.predict_sparse(X)
    np.testing.assert_allclose(found, intercept + X[list(SIGNALS)] @ slopes, atol=1e-8)
    assert found.name == "sparse_mean"
    assert list(found.index) == list(X.index)
    np.testing.assert_allclose(exact.predict_sparse(X.drop(columns="const")[NAMES[::-1]]), found)
    np.testing.assert_allclose(exact.predict_sparse(X.to_numpy()), found)
    every = model_of().fit(epsilon=np.inf, sparsity=P, targets=["v0"])
    np.testing.assert_allclose(every.predict_sparse(X), least_squares(X, y), atol=1e-8)
    fit = noisy(targets=["v0"])
    truth = 3.0 + X[list(SIGNALS)].to_numpy() @ list(SIGNALS.values())
    assert np.abs(fit.predict_sparse(X) - truth).mean() < 0.3
    with pytest.raises(SchemaError, match="v3"):
        fit.predict_sparse(X.drop(columns="v3"))
    with pytest.raises(ArgumentError, match="but the model has 13"):
        fit.predict_sparse(X.to_numpy()[:, :3])


@pytest.mark.parametrize("center", ["declared", "released"])
def test_without_a_constant_the_centres_are_the_intercept(center):
    """At the released means that is least squares with a constant, wherever columns start."""
    y, X = skewed(constant=False)
    middle, top = X.mean(), y.mean()
    every, exact = (
        model_of(constant=False).fit(epsilon=np.inf, sparsity=k, targets=["v0"], center=center)
        for k in (P, 2)
    )
    moved = X - middle
    np.testing.assert_allclose(every.predict_sparse(X), top + least_squares(moved, y - top), atol=1e-8)
    assert len(exact.selected) == 2
    mean = top + moved.to_numpy() @ exact.sparse_params.to_numpy()
    np.testing.assert_allclose(exact.predict_sparse(X), mean, atol=1e-8)


@pytest.mark.audit
def test_secure_sums_and_parties_of_their_own_say_the_same(tmp_path):
    y, X = skewed()
    parties = {"one": (y[::2], X[::2]), "two": (y[1::2], X[1::2])}
    options = {"bounds": dict.fromkeys(NAMES, (-2.0, 4.0)), "y_bounds": (-8.0, 18.0)}
    secure = pi.DebiasedLasso.from_arrays(parties, trust="secure-sum", **options)
    exact = secure.fit(epsilon=np.inf, sparsity=P, targets=["v0"])
    refused(exact, "const")
    np.testing.assert_allclose(exact.predict_sparse(X), least_squares(X, y), atol=1e-8)
    plain = X.drop(columns="const")
    each = {
        label: (response, columns.drop(columns="const")) for label, (response, columns) in parties.items()
    }
    for center, top, middle in (("declared", 5.0, 1.0), ("released", y.mean(), plain.mean())):
        own = pi.DebiasedLasso.from_arrays(each, **options).fit(
            epsilon=np.inf,
            sparsity=3,
            shared_sparsity=2,
            heterogeneous=True,
            targets=["v0", "v4"],
            center=center,
        )
        for label in own.labels:
            fit = own.site(label)
            refused(fit, "'v1', 'v2', 'v3'")
            mean = top + (plain - middle).to_numpy() @ fit.sparse_params.to_numpy()
            np.testing.assert_allclose(fit.predict_sparse(plain), mean, atol=1e-8)
    paper = pi.DebiasedLasso.from_arrays(each, **options).fit(
        epsilon=np.inf, sparsity=2, targets=["v0"], variant="paper", refit=True
    )
    refused(paper, "'v1', 'v2', 'v3'")
    mean = 5.0 + (plain - 1.0).to_numpy() @ paper.sparse_params.to_numpy()
    np.testing.assert_allclose(paper.predict_sparse(plain), mean, atol=1e-8)
    fit = noisy(targets=["v0"])
    fit.save(tmp_path / "lasso.privinf")
    again = pi.load_results(tmp_path / "lasso.privinf")
    pd.testing.assert_series_equal(again.predict_sparse(X[:4]), fit.predict_sparse(X[:4]))
    refused(again, "const")
