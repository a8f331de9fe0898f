"""Tests of linear restrictions as statsmodels shows them, each with its own degrees of freedom and bias."""

from __future__ import annotations

import html
import math
import textwrap
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd
from statsmodels.base.model import LikelihoodModelResults, Model
from statsmodels.iolib.table import SimpleTable
from statsmodels.stats.contrast import ContrastResults, WaldTestResults
from statsmodels.tools.sm_exceptions import ValueWarning

from privinf.error_boundary import error_boundaries
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import (
    JointDistribution,
    Precision,
    joint_distribution,
    precision_of,
    wald_distribution,
)
from privinf.inference.score_test import NOTABLE_BIAS
from privinf.notebook import html_frame, html_table
from privinf.typing import Alternative, Floats

Restrictions: TypeAlias = Floats | tuple[Floats, Floats]
# What tables call a p-value: the outcomes that count against the null.
TAILS: dict[Alternative, str] = {"two-sided": "P>|{}|", "greater": "P>{}", "less": "P<{}"}


JOINT_CONTRASTS = (
    "result.simultaneous(0.05, which=...).conf_int() of the fit has joint intervals of contrasts, which are "
    "passed as in t_test"
)
EFFECTS_WITH_BIAS = (
    "Intervals and p-values allow for a possible bias of up to {:.2g} standard errors, and the statistics do "
    "not."
)
BIAS_ALLOWED = (
    "The p-values allow for the largest bias that the release cannot rule out, as those of the coefficients "
    "do, so they are larger than p-values of the {} distribution for the same statistics."
)


def _bias_note(distribution: str) -> str:
    """Return the note under tests whose p-values allow for a bias, in lines."""
    return textwrap.fill(BIAS_ALLOWED.format("F" if distribution == "F" else "chi-square"), 80)


@error_boundaries
class Contrasts(ContrastResults):  # type: ignore[misc]
    """Tests of restrictions as statsmodels has them, with a table for notebooks.

    Parameters
    ----------
    contrasts : ContrastResults
        The tests as statsmodels has them.
    """

    _foreign_arguments: ClassVar[Mapping[str, str]] = {"simultaneous": JOINT_CONTRASTS}

    def __init__(self, contrasts: ContrastResults) -> None:
        self.__dict__.update(contrasts.__dict__)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of level ``1 - alpha`` for ``R b``, shape (k, 2)."""
        return np.asarray(super().conf_int(alpha))

    @property
    def bias_bound(self) -> Floats:
        """Largest possible bias of each effect, which intervals allow for, shape (k,); 0 without one."""
        return np.zeros(np.size(self.effect))

    def _repr_html_(self) -> str:
        if self.effect is not None:
            return html_frame(self.summary_frame(), "Tests of restrictions")
        is_f = self.distribution == "F"
        letter = "F" if is_f else "chi2"
        # statsmodels has the degrees of freedom of a chi-square statistic under the name df_denom.
        df = {"df": self.df_num, "df denom": self.df_denom} if is_f else {"df": self.df_denom}
        values = (float(np.squeeze(self.statistic)), float(self.pvalue), *map(float, df.values()))
        heads = (letter, f"P>{letter}", *df)
        return html_table(heads, [[f"{value:.4g}" for value in values]], "Joint test of restrictions")


class TermTests(WaldTestResults):  # type: ignore[misc]
    """Tests of the terms of a formula as statsmodels has them, with a table for notebooks.

    Parameters
    ----------
    tests : WaldTestResults
        The tests as statsmodels has them.
    biased : bool
        Whether p-values allow for a bias, which a note below the table then states.
    """

    def __init__(self, tests: WaldTestResults, *, biased: bool = False) -> None:
        self.__dict__.update(tests.__dict__)
        self.note = _bias_note(self.distribution) if biased else ""

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        return html_frame(self.summary_frame(), "Tests of terms", [self.note] if self.note else [])


@error_boundaries
class BoundedContrasts(Contrasts):
    """Tests of restrictions one by one: t with each row's degrees of freedom, the worst over a bias.

    Parameters
    ----------
    contrasts : ContrastResults
        Table of statsmodels, with one distribution for all rows.
    precision : Precision
        Of the k rows.
    alternative : {"two-sided", "greater", "less"}
    """

    def __init__(
        self, contrasts: ContrastResults, precision: Precision, alternative: Alternative = "two-sided"
    ) -> None:
        super().__init__(contrasts)
        self._precision = precision
        self.alternative = alternative
        self.pvalue = np.squeeze(precision.pvalues(np.ravel(contrasts.statistic), alternative))
        if self.distribution == "t":
            df = np.broadcast_to(precision.df, np.shape(precision.se))
            self.df_denom = float(df[0]) if (df == df[0]).all() else df
            self.dist_args = (self.df_denom,)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of level ``1 - alpha`` for ``R b``, shape (k, 2); one-sided as the tests are."""
        effect = np.ravel(self.effect)
        if self.alternative == "two-sided":
            half = self._precision.half_length(alpha)
            return np.column_stack([effect - half, effect + half])
        half_width = self._precision.half_width(alpha)
        none = np.full_like(effect, np.inf)
        if self.alternative == "greater":
            return np.column_stack([effect - half_width, none])
        return np.column_stack([-none, effect + half_width])

    @property
    def bias_bound(self) -> Floats:
        """Largest possible bias of each effect, which intervals allow for, shape (k,); 0 without one."""
        bias = self._precision.bias
        return super().bias_bound if bias is None else np.asarray(bias, dtype=np.float64)

    def summary(
        self, xname: list[str] | None = None, alpha: float = 0.05, title: str | None = None
    ) -> SimpleTable:
        """Return the table of statsmodels; its heading states the tail of a p-value."""
        table = super().summary(xname, alpha, title)
        for cell in table[0]:
            cell.data = self._renamed(cell.data)
        return table

    @property
    def note(self) -> str:
        """Note below the table on the bias that intervals and p-values allow for; empty for a small one."""
        ratio = float(np.max(self.bias_bound / self._precision.se))
        return EFFECTS_WITH_BIAS.format(ratio) if ratio > NOTABLE_BIAS else ""

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        return super()._repr_html_() + (f"<p>{html.escape(self.note)}</p>" if self.note else "")

    def summary_frame(self, xname: list[str] | None = None, alpha: float = 0.05) -> pd.DataFrame:
        """Return the table as a frame; its heading states the tail of a p-value.

        The columns are the same for every fit. If the fit may have a bias, intervals and p-values allow for
        it, and `bias_bound` has its largest size.
        """
        frame: pd.DataFrame = super().summary_frame(xname, alpha)
        return frame.rename(columns=self._renamed)

    def _renamed(self, name: str) -> str:
        for letter in ("t", "z"):
            if name == TAILS["two-sided"].format(letter):
                return TAILS[self.alternative].format(letter)
        return name


class JointContrast(Contrasts):
    """A joint test of restrictions by a conservative chi-square or F distribution, noncentral if biased.

    Parameters
    ----------
    contrast : ContrastResults
        The statistic as statsmodels has it.
    distribution : JointDistribution
    """

    def __init__(self, contrast: ContrastResults, distribution: JointDistribution) -> None:
        super().__init__(contrast)
        self.noncentrality = distribution.noncentrality
        self.note = _bias_note(self.distribution) if self.noncentrality > 0.0 else ""
        if self.distribution == "F":
            self.df_denom = distribution.df
            self.dist_args = (self.df_num, distribution.df)
            self.pvalue = np.float64(distribution.pvalue(float(np.squeeze(self.statistic)) * distribution.k))
        else:
            self.pvalue = np.float64(distribution.pvalue(float(np.squeeze(self.statistic))))

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        return super()._repr_html_() + (f"<p>{html.escape(self.note)}</p>" if self.note else "")


class SchemaResults(LikelihoodModelResults):  # type: ignore[misc]
    """statsmodels' results of an estimate on simulated rows, the unit vectors.

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
        self._one_distribution = math.isinf(estimate.df_resid) and estimate.bias is None
        self.use_t = math.isfinite(estimate.df) or math.isfinite(estimate.df_resid)
        self.nobs = estimate.nobs
        self.df_model = df_model
        self.df_resid = df_resid

    def t_test(
        self,
        r_matrix: Restrictions,
        cov_p: None = None,
        use_t: bool | None = None,
        alternative: Alternative = "two-sided",
    ) -> ContrastResults:
        """Test restrictions one by one; see `Results.t_test`."""
        contrasts = super().t_test(r_matrix, None, use_t)
        if self._one_distribution and alternative == "two-sided":
            return Contrasts(contrasts)
        precision = precision_of(self._estimate, _matrix(r_matrix))
        if contrasts.distribution != "t":
            precision = Precision(precision.se, np.inf, precision.bias)
        elif not self.use_t:
            precision = Precision(precision.se, float(self.df_resid), precision.bias)
        return BoundedContrasts(contrasts, precision, alternative)

    def wald_test(
        self,
        r_matrix: Restrictions,
        cov_p: None = None,
        invcov: Floats | None = None,
        use_f: bool | None = None,
        df_constraints: int | None = None,
        scalar: bool = True,
    ) -> ContrastResults:
        """Test restrictions jointly; see `Results.wald_test`."""
        contrast = super().wald_test(r_matrix, None, invcov, use_f, df_constraints, scalar)
        if self._one_distribution:
            return Contrasts(contrast)
        R = _matrix(r_matrix)
        distribution = (
            joint_distribution(self._estimate, R)
            if invcov is None
            else wald_distribution(self._estimate, R, invcov)
        )
        df = distribution.df
        if contrast.distribution != "F":
            df = math.inf
        elif not self.use_t:
            df = float(self.df_resid)
        return JointContrast(
            contrast, JointDistribution(df_constraints or distribution.k, df, distribution.noncentrality)
        )

    def wald_test_terms(self, *args: Any, **options: Any) -> WaldTestResults:
        """Test each term of the model; see `Results.wald_test_terms`."""
        biased = self._estimate.bias is not None and bool(np.any(self._estimate.bias > 0.0))
        return TermTests(super().wald_test_terms(*args, **options), biased=biased)


def _matrix(r_matrix: Restrictions) -> Floats:
    R = r_matrix[0] if isinstance(r_matrix, tuple) else r_matrix
    return np.atleast_2d(np.asarray(R, dtype=np.float64))
