"""Results for the library marginaleffects: predictions, comparisons and slopes on the scale of the mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pandas as pd

from privinf.error_boundary import error_boundary, warn
from privinf.errors import ArgumentError, HeavyTailWarning, NotAvailableError
from privinf.results import Results
from privinf.results.cautions import warned_once
from privinf.schema import Design
from privinf.typing import ColumnsLike, Floats, Table

ABSENT = "marginaleffects is not installed: pip install 'privinf[marginaleffects]'"
NO_FORMULA = (
    "this result was not fitted from a formula with one coefficient for every column, so "
    "marginaleffects cannot compute columns from rows: fit with from_formula(). Means, fits of named targets "
    "and fits with several classes are not supported"
)
# The library reads names of columns off a formula; the design has its own, and rows have no response.
RESPONSE = "response"
FIXED = (
    "the covariance must be chosen when fitting, because another covariance needs another release "
    "with its own noise: pass vcov=True, vcov=False, or an array"
)


# Standard errors of bias from which on a 95% interval that leaves it out holds less than 94.3%.
BIAS_SEEN = 0.25
BIASED = (
    "intervals of marginaleffects ignore a possible bias of up to {:.2g} standard errors, which "
    "conf_int() and get_prediction() take into account"
)


@error_boundary
def model_of(result: Results, rows: Table) -> Any:
    """Return a result as a model for the package marginaleffects.

    Parameters
    ----------
    result : Results
        Result of a fit by formula.
    rows : table
        Rows to predict for, such as a grid of values or a public table, with the columns of the formula. They
        are the model's data for marginaleffects. The rows of the fit are not used. Averages are over these
        rows, not over the people of the fit.

    Returns
    -------
    marginaleffects.classes.ModelAbstract
        For ``predictions``, ``comparisons``, ``slopes`` and their averages.

    Raises
    ------
    NotAvailableError
        marginaleffects is not installed; the result has no formula, no covariance, or makes no predictions.
    SchemaError
        The rows lack a column, or have an invalid value.

    Warns
    -----
    WeakIdentificationWarning and others
        The warnings about normal intervals of the result, because those of marginaleffects use the same
        covariance.

    Notes
    -----
    Standard errors are by the delta method from the covariance of the fit, sampling and privacy noise
    together; derivatives are numerical. Intervals are normal, or by t where the result's are.

    **Privacy.** Post-processing: `rows` are not those of the fit, and nothing is charged.
    """
    if not isinstance(result, Results):
        raise ArgumentError(f"result= must be the result of a fit of privinf, got {type(result).__name__}")
    design: Design | None = result._context.design or getattr(result._predictions, "design", None)
    if design is None or design.schema is None:
        raise NotAvailableError(NO_FORMULA)
    with warned_once(result, "marginaleffects"):
        result.cov_params()
        result._predictions.rows(cast("ColumnsLike", rows), True)
    estimate = result.estimate
    if (
        estimate.bias is not None
        and (largest_bias := float(np.max(estimate.bias / estimate.bse))) > BIAS_SEEN
    ):
        warn(BIASED.format(largest_bias), HeavyTailWarning)
    return _model_class()(result, _frame(rows, design))


def _frame(rows: Table, design: Design) -> pd.DataFrame:
    """Return the columns of rows that the design reads; texts as the categories that the schema lists."""
    assert design.schema is not None
    columns = {}
    for name in design.inputs:
        values: Any = rows[name]  # type: ignore[index]
        column = pd.Series(np.asarray(values))
        levels = getattr(design.schema[name], "levels", None)
        columns[name] = column if levels is None else pd.Series(pd.Categorical(column, list(levels)))
    return pd.DataFrame(columns)


@cache
def _model_class() -> Callable[[Results, pd.DataFrame], Any]:
    """Return the subclass, made once the library is wanted."""
    try:
        import polars as pl
        from marginaleffects.classes import ModelAbstract, ModelVault
    except ImportError:
        raise NotAvailableError(ABSENT) from None

    class PrivateModel(ModelAbstract):  # type: ignore[misc]
        """A private result with the interface that marginaleffects requires."""

        def __init__(self, result: Results, rows: pd.DataFrame) -> None:
            vault = ModelVault(
                coef=np.array(result.estimate.params),
                coefnames=np.array(result.names),
                formula=f"{RESPONSE} ~ " + " + ".join(f"`{name}`" for name in rows.columns),
                modeldata=pl.from_pandas(rows),
                package="privinf",
                variable_names=[RESPONSE, *rows.columns],
            )
            super().__init__(result, vault)
            self.df_resid = float(result.df_resid) if result.use_t else np.inf

        def get_vcov(self, vcov: Any = True) -> Floats | None:
            if isinstance(vcov, str):
                raise NotAvailableError(FIXED)
            return np.array(self.model.estimate.covariance) if vcov else None

        def get_exog(self, newdata: Any) -> Floats:
            return np.asarray(self.model._predictions.rows(newdata.to_pandas(), True)[0])

        def get_predict(self, params: Floats, newdata: Any) -> Any:
            exog = newdata if isinstance(newdata, np.ndarray) else self.get_exog(newdata)
            fitted = self.model
            moved = fitted._with(
                replace(fitted.estimate, params=np.asarray(params)), replace(fitted._context, point=None)
            )
            means = moved.predict(exog, transform=False)
            if isinstance(means, pd.Series):
                return pl.DataFrame(
                    {"rowid": np.arange(len(means), dtype=np.int32), "estimate": means.to_numpy()}
                )
            groups = np.repeat([str(name) for name in means.columns], len(means))
            return pl.DataFrame(
                {
                    "rowid": np.tile(np.arange(len(means), dtype=np.int32), means.shape[1]),
                    "group": groups,
                    "estimate": means.to_numpy().T.ravel(),
                }
            )

    return PrivateModel
