"""Estimators for scikit-learn's pipelines and searches; every fit is charged to a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundary
from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.glm.model import GLM
from privinf.glm.named import OLS, Logit, Poisson
from privinf.glm.negative_binomial import NegativeBinomial
from privinf.moments.model import MomentOLS
from privinf.schema.arrays import CONSTANT, add_constant
from privinf.typing import (
    Bounds,
    ColumnLike,
    ColumnsLike,
    Floats,
    IntervalNeed,
    Pair,
    RngLike,
    SklearnModel,
)
from privinf.validation import check_choice, check_flag

if TYPE_CHECKING:
    from privinf.results import Results

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
except ImportError:  # stated where an estimator is made
    BaseEstimator, ClassifierMixin, RegressorMixin = (type("Absent", (), {}) for _ in range(3))

__all__ = ["PrivateClassifier", "PrivateRegressor"]
REGRESSORS: dict[str, Any] = {
    "ols": OLS,
    "moments": MomentOLS,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
}
NO_SKLEARN = "privinf.sklearn needs scikit-learn: pip install 'privinf[sklearn]'"
LEDGER_MISSING = (
    "ledger= is missing: pipelines and searches fit repeatedly, and every fit is charged. Pass "
    "privinf.Ledger(limit), or privinf.LedgerFile for fits in several processes (n_jobs)"
)
BOUNDS_MISSING = (
    "bounds= is missing: pass public bounds (low, high) for every column of X as this estimator receives "
    "it, after earlier steps of a pipeline; for named columns, pass a mapping from names to bounds"
)
NO_SCORE = (
    "score() is not available, because it would return a statistic of the rows without noise. For "
    "public rows, use a metric of sklearn.metrics (scoring='r2' in a search); for private rows, use "
    "the statistics of the attribute result_"
)
ALWAYS_INTERVALS = (
    'intervals="optional" is available for model="ols" and "poisson" only, because model="moments" '
    'always has intervals, and model="negative-binomial" has no fit without: leave it out'
)
OTHER_CLASSES = (
    "classes= must hold two different public labels: the fit models the probability of the second label"
)


class _PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Common part of both estimators: parameters are stored unchanged, and checked when fitting."""

    def __init__(
        self,
        *,
        bounds: Bounds = None,
        ledger: Ledger | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        fit_intercept: bool = True,
        intervals: IntervalNeed = "required",
        rng: RngLike = None,
    ) -> None:
        if not hasattr(self, "get_params"):
            raise NotAvailableError(NO_SKLEARN)
        self.bounds = bounds
        self.ledger = ledger
        self.fit_intercept = fit_intercept
        self.rng = rng
        self.epsilon = epsilon
        self.delta = delta
        self.mu = mu
        self.rho = rho
        self.intervals = intervals

    def score(self, X: ColumnsLike, y: ColumnLike, sample_weight: None = None) -> float:
        """Refuse (NotAvailableError): a score of rows is a statistic of them, without noise."""
        raise NotAvailableError(NO_SCORE)

    def _fitted(self, model: Any, y: ColumnLike, X: ColumnsLike, words: dict[str, Any]) -> Self:
        """Fit a model on columns, and keep its releases."""
        if not isinstance(self.ledger, Ledger):
            raise ArgumentError(LEDGER_MISSING)
        if self.bounds is None:
            raise ArgumentError(BOUNDS_MISSING)
        spending = {name: getattr(self, name) for name in ("epsilon", "delta", "mu", "rho", "rng")}
        options = {name: value for name, value in spending.items() if value is not None}
        columns = add_constant(X) if check_flag(self.fit_intercept, "fit_intercept") else X
        estimator = model(y, columns, bounds=self.bounds, ledger=self.ledger, **words)
        if isinstance(estimator, GLM) and not isinstance(estimator, NegativeBinomial):
            options["intervals"] = self.intervals
        elif check_choice(self.intervals, IntervalNeed, "intervals") != "required":
            raise ArgumentError(ALWAYS_INTERVALS)
        result: Results = estimator.fit(**options)
        slopes = [name for name in result.names if not (self.fit_intercept and name == CONSTANT)]
        self.result_ = result
        self.n_features_in_ = len(slopes)
        self.coef_: Floats = np.array(result.params[slopes], dtype=np.float64)
        self.intercept_ = float(result.params[CONSTANT]) if self.fit_intercept else 0.0
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array([str(name) for name in X.columns], dtype=object)
        return self

    def _means(self, X: ColumnsLike) -> Floats:
        if not hasattr(self, "result_"):
            raise NotAvailableError(f"{type(self).__name__} is not fitted yet: call fit() first")
        columns = add_constant(X) if self.fit_intercept else X
        return np.asarray(self.result_.predict(columns), dtype=np.float64)


class PrivateRegressor(RegressorMixin, _PrivateEstimator):  # type: ignore[misc]
    """Private linear regression, or regression of counts, as a regressor of scikit-learn.

    Parameters
    ----------
    bounds : sequence of (low, high), or mapping
        Public bounds of the columns that reach this step; values outside the bounds are clipped.
    y_bounds : (low, high)
        Public bounds of the response.
    ledger : Ledger or LedgerFile
        Budget ledger, which every `fit` charges. Clones share it; fits in several processes need a
        `LedgerFile`.
    model : {"ols", "moments", "poisson", "negative-binomial"}
        `privinf.OLS`, `privinf.MomentOLS`, `privinf.Poisson` or `privinf.NegativeBinomial`.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee of each `fit`. Pass exactly one of `epsilon`, `mu` and
        `rho`. With ``epsilon=inf`` no noise is added.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. With `mu` or `rho`, epsilon is reported at this
        delta.
    mu : float, optional
        Budget of each `fit` in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget of each `fit` in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    fit_intercept : bool
        Whether the model has a constant.
    intervals : {"required", "optional"}
        Of the models "ols" and "poisson": "required" (default) refuses, before the charge, a fit that can
        have no intervals, whose coefficients are of little use; "optional" accepts it.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.

    Attributes
    ----------
    result_ : Results
        Of the last fit: standard errors, intervals, cautions and cost.
    coef_ : ndarray, shape (p,)
        Slopes of the last fit.
    intercept_ : float
        Constant of the last fit; 0 without one.

    Raises
    ------
    NotAvailableError
        scikit-learn is not installed, or `score` is requested.
    ArgumentError, SensitivityError, BudgetExceededError
        By `fit`: no ledger or no bounds, or the fit would exceed the limit of the ledger.

    Notes
    -----
    **Privacy.** Each `fit` reads every row that it receives and is charged as the model states; folds of a
    cross-validation have the same people, so their charges add up. Steps before this one that are fitted on
    rows (a scaler, an imputer, an encoder that finds levels, a selection of columns) read them without noise
    and are not charged: their output is not private. Use fixed transformations, or bounds in place of a
    scaler. `score` is refused, since it is a statistic of rows without noise.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> from privinf.sklearn import PrivateRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> y = X @ [0.5, -0.3] + 0.3 * rng.standard_normal(5000)
    >>> ledger = pi.Ledger(pi.Budget(epsilon=2.0, delta=1e-6))
    >>> words = {"bounds": [(-1, 1)] * 2, "y_bounds": (-2, 2), "ledger": ledger, "rng": 0}
    >>> fit = PrivateRegressor(epsilon=1.0, delta=1e-6, **words).fit(X, y)  # doctest: +SKIP
    >>> fit.predict([[1.0, 0.0]]).round(1), len(ledger) > 0  # doctest: +SKIP
    (array([0.5]), True)
    """

    def __init__(
        self,
        *,
        bounds: Bounds = None,
        y_bounds: Pair | None = None,
        ledger: Ledger | None = None,
        model: SklearnModel = "ols",
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        fit_intercept: bool = True,
        intervals: IntervalNeed = "required",
        rng: RngLike = None,
    ) -> None:
        super().__init__(
            bounds=bounds,
            ledger=ledger,
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            fit_intercept=fit_intercept,
            intervals=intervals,
            rng=rng,
        )
        self.y_bounds = y_bounds
        self.model = model

    score = _PrivateEstimator.score

    @error_boundary
    def fit(self, X: ColumnsLike, y: ColumnLike) -> Self:
        """Fit the model to rows, and charge the ledger.

        Parameters
        ----------
        X : array_like or table, shape (n, p)
            Features of the rows.
        y : array_like, shape (n,)
            Responses.

        Notes
        -----
        **Privacy.** Reads every row; the ledger is charged before anything is released.
        """
        model = REGRESSORS[check_choice(self.model, SklearnModel, "model")]
        return self._fitted(model, y, X, {"y_bounds": self.y_bounds})

    @error_boundary
    def predict(self, X: ColumnsLike) -> Floats:
        """Return predicted means of new rows.

        Parameters
        ----------
        X : array_like or table, shape (m, p)
            Features of new rows.

        Returns
        -------
        ndarray, shape (m,)
            Predicted means.
        """
        return self._means(X)


class PrivateClassifier(ClassifierMixin, _PrivateEstimator):  # type: ignore[misc]
    """Private logistic regression as a classifier of scikit-learn.

    Parameters
    ----------
    classes : pair of labels
        Public labels of both classes, which are not read from the rows. The model is for the probability of
        the second class.
    bounds : sequence of (low, high), or mapping
        Public bounds of the columns that reach this step; values outside the bounds are clipped.
    ledger : Ledger or LedgerFile
        Budget ledger, which every `fit` charges. Clones share it; fits in several processes need a
        `LedgerFile`.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee of each `fit`. Pass exactly one of `epsilon`, `mu` and
        `rho`. With ``epsilon=inf`` no noise is added.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. With `mu` or `rho`, epsilon is reported at this
        delta.
    mu : float, optional
        Budget of each `fit` in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget of each `fit` in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    fit_intercept : bool
        Whether the model has a constant.
    intervals : {"required", "optional"}
        "required" (default) refuses, before the charge, a fit that can have no intervals, whose coefficients
        are of little use; "optional" accepts it.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.

    Attributes
    ----------
    result_ : Results
        Results of the last fit: standard errors, intervals, cautions and cost.
    coef_ : ndarray, shape (p,)
        Slopes of the last fit, on the log odds.
    intercept_ : float
        Constant of the last fit; 0 without one.
    classes_ : ndarray, shape (2,)
        The classes, as declared.

    Raises
    ------
    NotAvailableError
        scikit-learn is not installed, or `score` is requested.
    SchemaError
        By `fit`: a label is missing, or is neither of `classes`; the message holds no label.
    ArgumentError, SensitivityError, BudgetExceededError
        By `fit`: there is no ledger or there are no bounds, or the fit would exceed the limit of the ledger.

    Notes
    -----
    **Privacy.** Each `fit` of `privinf.Logit` reads every row and is charged; folds of a cross-validation
    have the same people, so their charges add up. Steps before this one that are fitted on rows (a scaler, an
    imputer, an encoder that finds levels, a selection of columns) read them without noise and are not
    charged: their result is not private. Use fixed transformations, or bounds in place of a scaler. `score`
    is refused, since it is a statistic of rows without noise.
    """

    def __init__(
        self,
        *,
        bounds: Bounds = None,
        classes: tuple[Any, Any] = (0, 1),
        ledger: Ledger | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        fit_intercept: bool = True,
        intervals: IntervalNeed = "required",
        rng: RngLike = None,
    ) -> None:
        super().__init__(
            bounds=bounds,
            ledger=ledger,
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            fit_intercept=fit_intercept,
            intervals=intervals,
            rng=rng,
        )
        self.classes = classes

    score = _PrivateEstimator.score

    @error_boundary
    def fit(self, X: ColumnsLike, y: ColumnLike) -> Self:
        """Fit the model to rows, and charge the ledger.

        Parameters
        ----------
        X : array_like or table, shape (n, p)
            Features of the rows.
        y : array_like, shape (n,)
            Labels, each one of `classes`.

        Notes
        -----
        **Privacy.** Reads every row; the ledger is charged before anything is released.
        """
        labels = list(self.classes)
        if len(labels) != 2 or labels[0] == labels[1]:
            raise ArgumentError(OTHER_CLASSES)
        values = np.asarray(y)
        second = values == labels[1]
        is_class = np.isin(values, labels)
        if not is_class.all():
            raise SchemaError("y contains a missing value or a label that is not in classes=")
        self.classes_ = np.array(labels)
        return self._fitted(Logit, second.astype(np.float64), X, {})

    @error_boundary
    def predict_proba(self, X: ColumnsLike) -> Floats:
        """Return the probabilities of both classes for new rows, shape (n, 2)."""
        second = self._means(X)
        return np.column_stack([1.0 - second, second])

    @error_boundary
    def predict(self, X: ColumnsLike) -> Any:
        """Return the likelier class of new rows, shape (n,)."""
        second = self._means(X) > 0.5
        return self.classes_[second.astype(np.int64)]
