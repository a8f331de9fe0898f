"""Tests of linear restrictions as statsmodels shows them, each with its own degrees of freedom and bias."""

from __future__ import annotations

import math
import warnings
from typing import TypeAlias

import numpy as np
import pandas as pd
from statsmodels.base.model import LikelihoodModelResults, Model
from statsmodels.stats.contrast import ContrastResults
from statsmodels.tools.sm_exceptions import ValueWarning

from privinf.inference.estimate import Estimate
from privinf.inference.intervals import JointLaw, Precision, joint_law, precision_of
from privinf.typing import Floats

Restrictions: TypeAlias = Floats | tuple[Floats, Floats]


class BoundedContrasts(ContrastResults):  # type: ignore[misc]
    """Tests of restrictions one by one: t with each row's degrees of freedom, the worst over a bias.

    Parameters
    ----------
    given : ContrastResults
        What statsmodels made with one law for all rows.
    precision : Precision
        Of the k rows.
    """

    def __init__(self, given: ContrastResults, precision: Precision) -> None:
        self.__dict__.update(given.__dict__)
        self._precision = precision
        self.pvalue = np.squeeze(precision.pvalues(np.ravel(given.statistic)))
        if self.distribution == "t":
            df = np.broadcast_to(precision.df, np.shape(precision.se))
            self.df_denom = float(df[0]) if (df == df[0]).all() else df
            self.dist_args = (self.df_denom,)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of level ``1 - alpha`` for ``R b``, shape (k, 2)."""
        half, effect = self._precision.half_length(alpha), np.ravel(self.effect)
        return np.column_stack([effect - half, effect + half])


class JointContrast(ContrastResults):  # type: ignore[misc]
    """A joint test of restrictions, by the law at its worst: chi-square or F, noncentral where biased.

    Parameters
    ----------
    given : ContrastResults
        The statistic as statsmodels has it.
    law : JointLaw
    """

    def __init__(self, given: ContrastResults, law: JointLaw) -> None:
        self.__dict__.update(given.__dict__)
        self.noncentrality = law.noncentrality
        if self.distribution == "F":
            self.df_denom, self.dist_args = law.df, (self.df_num, law.df)
            self.pvalue = np.float64(law.pvalue(float(np.squeeze(self.statistic)) * law.k))
        else:
            self.pvalue = np.float64(law.pvalue(float(np.squeeze(self.statistic))))


class SchemaResults(LikelihoodModelResults):  # type: ignore[misc]
    """statsmodels' results of an estimate on made-up rows, the unit vectors.

    Parameters
    ----------
    estimate : Estimate
    df_model, df_resid : int

    Raises
    ------
    NotAvailableError
        The estimate has no covariance.
    """

    def __init__(self, estimate: Estimate, df_model: int, df_resid: int) -> None:
        covariance = np.array(estimate.covariance)
        rows = pd.DataFrame(np.eye(len(estimate.params)), columns=list(estimate.names))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ValueWarning)
            model = Model(pd.Series(np.zeros(len(rows)), name="y"), rows, hasconst=False)
        super().__init__(model, np.array(estimate.params), normalized_cov_params=covariance, scale=1.0)
        self._estimate = estimate
        self._one_law = math.isinf(estimate.df_resid) and estimate.bias is None
        self.use_t = math.isfinite(estimate.df) or math.isfinite(estimate.df_resid)
        self.nobs, self.df_model, self.df_resid = estimate.nobs, df_model, df_resid

    def t_test(
        self, r_matrix: Restrictions, cov_p: Floats | None = None, use_t: bool | None = None
    ) -> ContrastResults:
        """Test restrictions one by one; see `WaldResults.t_test`."""
        given = super().t_test(r_matrix, cov_p, use_t)
        if self._one_law:
            return given
        return BoundedContrasts(given, precision_of(self._estimate, _matrix(r_matrix)))

    def wald_test(
        self,
        r_matrix: Restrictions,
        cov_p: Floats | None = None,
        invcov: Floats | None = None,
        use_f: bool | None = None,
        df_constraints: int | None = None,
        scalar: bool = True,
    ) -> ContrastResults:
        """Test restrictions jointly; see `WaldResults.wald_test`."""
        given = super().wald_test(r_matrix, cov_p, invcov, use_f, df_constraints, scalar)
        if self._one_law:
            return given
        law = joint_law(self._estimate, _matrix(r_matrix))
        if given.distribution == "F" and not self.use_t:
            law = JointLaw(law.k, float(self.df_resid), law.noncentrality)
        return JointContrast(given, law)


def _matrix(r_matrix: Restrictions) -> Floats:
    R = r_matrix[0] if isinstance(r_matrix, tuple) else r_matrix
    return np.atleast_2d(np.asarray(R, dtype=np.float64))
