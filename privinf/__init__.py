"""privinf: statistical inference from private data.

Estimators whose ``fit()`` returns coefficients, standard errors, intervals and tests that account for the
noise added for differential privacy, and a report of what the privacy costs.
"""

from privinf.attributes import attach_names
from privinf.version import __version__ as __version__

_COX = "use privinf.PHReg, which is Cox regression"
_WEIGHTED = (
    "use privinf.MomentOLS.from_formula(..., weights='w') for least squares with weights from a public "
    "column, or privinf.OLS without weights"
)
_LOGISTIC = "use privinf.Logit; privinf.sklearn.PrivateClassifier has the interface of scikit-learn"
_LINEAR = "use privinf.OLS; privinf.sklearn.PrivateRegressor has the interface of scikit-learn"
_CLUSTERED = (
    "there is no such model; if a person has several rows, declare the person as unit= of the schema, and "
    "use privinf.MomentOLS, whose standard errors then allow for the dependence of these rows"
)
# Names of statsmodels, lifelines, scikit-learn and R that users may expect here.
_INSTEAD = {
    **dict.fromkeys(("Cox", "CoxPH", "CoxPHFitter", "coxph"), _COX),
    **dict.fromkeys(("WLS", "GLS", "wls"), _WEIGHTED),
    **dict.fromkeys(("LogisticRegression", "logit", "LogisticRegressionCV"), _LOGISTIC),
    **dict.fromkeys(("LinearRegression", "lm"), _LINEAR),
    **dict.fromkeys(("GEE", "MixedLM", "mixedlm"), _CLUSTERED),
    **dict.fromkeys(("Lasso", "LassoCV", "lasso"), "use privinf.DebiasedLasso"),
    **dict.fromkeys(("KaplanMeierFitter", "SurvfuncRight", "survfit"), "use privinf.survival.KaplanMeier"),
    **dict.fromkeys(("logrank_test", "survdiff"), "use privinf.survival.logrank"),
    "NelsonAalenFitter": "use privinf.survival.NelsonAalen",
    "Probit": "there is no probit model; use privinf.Logit",
    "MNLogit": (
        "there is no multinomial model; add a column of 0 and 1 for each level to the table, and use "
        "privinf.Logit for each of these columns"
    ),
    "QuantReg": "there is no quantile regression; privinf.stats.quantile(..., by=) has quantiles of groups",
}
_attribute, __dir__, _names = attach_names(__name__, __file__, _INSTEAD, ("stats", "survival"))
# Named in full, not by *.
_ROOMS = {"datasets", "federation", "models", "plotting", "stats", "survival"}
_IN_CHECKOUT = {"audit", "simulation"}  # modules of former versions that are in `studies` now
__all__ = sorted(set(_names) - _ROOMS - {"__version__"})


def __getattr__(name: str) -> object:
    """Return a public name, imported on first use."""
    if name in _IN_CHECKOUT:
        raise AttributeError(
            f"privinf.{name} is no longer part of the package: it is studies.{name} in a source checkout of "
            "privinf. See CHANGELOG.md under Removed."
        )
    return _attribute(name)
