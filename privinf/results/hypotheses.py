"""Wald tests of linear restrictions, with statsmodels' arguments and the distribution of each restriction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from privinf.errors import ArgumentError
from privinf.inference.estimate import Estimate
from privinf.results.constraints import (
    ConstraintLike,
    check_adjustment,
    check_independent,
    left_out,
    linear_constraints,
    pairwise_contrasts,
    terms,
)
from privinf.results.wald import Inference
from privinf.typing import Alternative, ArrayLike, Floats
from privinf.validation import check_array, check_choice, check_count, check_flag, check_fraction, shown

if TYPE_CHECKING:
    from statsmodels.stats.contrast import ContrastResults, MultiCompResult, WaldTestResults

    from privinf.results.contrasts import SchemaResults


class HasInference(Protocol):
    """A result that another one is compared with."""

    @property
    def _inference(self) -> Inference: ...


@dataclass(frozen=True, eq=False)
class LinearTests:
    """Wald tests of linear restrictions on the coefficients of one estimate.

    Statistics are statsmodels'; distributions account for the noise: degrees of freedom by restriction, the
    worst under a bias that the release does not rule out. A covariance that is passed as `cov_p` counts as
    one that sampling gave: it takes `df_resid` degrees of freedom where `use_t`, and the same bias.

    Attributes
    ----------
    inference : Inference
    """

    inference: Inference

    def t_test(
        self,
        r_matrix: ConstraintLike,
        cov_p: ArrayLike | None = None,
        use_t: bool | None = None,
        alternative: Alternative = "two-sided",
    ) -> ContrastResults:
        """Test restrictions one by one.

        Parameters
        ----------
        r_matrix : str, list, mapping, array or (R, q)
            ``"x1 = x2, x3 = 0.5"``, ``"x1 = x2 = 0"``, ``"2*x1 - x2"``, ``["x1", "x2 = 1"]``, R, (R, q).
        cov_p : array_like, shape (p, p), optional
            A covariance of the coefficients to be used in place of the result's own.
        use_t : bool, optional
            t or normal; default: the result's `use_t`.
        alternative : {"two-sided", "greater", "less"}
            Alternative hypothesis: ``R b`` differs from q, is above or below it. Intervals are one-sided on
            the same side. Intervals and p-values allow for a bias in the worse direction.

        Returns
        -------
        ContrastResults of statsmodels; rows show ``R b``, the test is of ``R b = q``.
        """
        check_choice(alternative, Alternative, "alternative")
        restrictions = linear_constraints(r_matrix, self.inference.names)
        result = self._with_covariance(cov_p).t_test(
            (restrictions.R, restrictions.q), use_t=_optional_flag(use_t, "use_t"), alternative=alternative
        )
        result.c_names = list(restrictions.labels)
        return result

    def wald_test(
        self,
        r_matrix: ConstraintLike,
        cov_p: ArrayLike | None = None,
        invcov: ArrayLike | None = None,
        use_f: bool | None = None,
        df_constraints: int | None = None,
        scalar: bool = True,
    ) -> ContrastResults:
        """Test restrictions jointly: chi2, or F where `use_t`.

        Parameters
        ----------
        r_matrix : str, list, mapping, array or (R, q)
            ``"x1 = x2, x3 = 0.5"``, ``"x1 = x2 = 0"``, ``["x1", "x2 = 1"]``, R, (R, q); no restriction may
            follow from the others.
        cov_p : array_like, shape (p, p), optional
            A covariance of the coefficients to be used in place of the result's own.
        invcov : array_like, shape (k, k), optional
            The inverse covariance of ``R b``, instead.
        use_f : bool, optional
            F or chi2; default: the result's `use_t`.
        df_constraints : int, optional
            Degrees of freedom of the numerator; default: the number of restrictions.
        scalar : bool
            Whether the statistic is a number, or an array of shape (1, 1).

        Returns
        -------
        ContrastResults of statsmodels.
        """
        use_f = _optional_flag(use_f, "use_f")
        return self._joint(
            r_matrix,
            cov_p,
            invcov,
            use_f=self.inference.use_t if use_f is None else use_f,
            df_constraints=None if df_constraints is None else check_count(df_constraints, "df_constraints"),
            scalar=check_flag(scalar, "scalar"),
        )

    def f_test(
        self, r_matrix: ConstraintLike, cov_p: ArrayLike | None = None, invcov: ArrayLike | None = None
    ) -> ContrastResults:
        """Test restrictions jointly by the F distribution, `df_resid` in the denominator without noise.

        It is `wald_test` with ``use_f=True``.

        Parameters
        ----------
        r_matrix : str, list, mapping, array or (R, q)
            ``"x1 = x2, x3 = 0.5"``, ``"x1 = x2 = 0"``, ``["x1", "x2 = 1"]``, R, (R, q); no restriction may
            follow from the others.
        cov_p : array_like, shape (p, p), optional
            A covariance of the coefficients to be used in place of the result's own.
        invcov : array_like, shape (k, k), optional
            The inverse covariance of ``R b``, instead.

        Returns
        -------
        ContrastResults of statsmodels.
        """
        return self._joint(r_matrix, cov_p, invcov, use_f=True)

    def compare_f_test(self, restricted: HasInference) -> tuple[float, float, int]:
        """Test this fit against one of some of its columns, made from the same release.

        Parameters
        ----------
        restricted : results
            Of the same response; its columns are among those of this fit.

        Returns
        -------
        statistic, pvalue : float
            Of the Wald test that the other columns' coefficients are zero, as `wald_test` has them: F where
            `use_t`, else chi2.
        df : int
            Number of columns that are left out.

        Raises
        ------
        ArgumentError
            The fits are of other releases or responses, or are not nested.

        Notes
        -----
        The covariance of this fit holds the noise. A difference of residual sums of squares, as statsmodels
        forms it from rows, would have the noise of both fits in it and no F distribution.
        """
        smaller = restricted._inference
        zero = left_out(self.inference.context, self.inference.names, smaller.context, smaller.names)
        test = self.wald_test(np.eye(len(self.inference.names))[zero])
        return float(test.statistic), float(test.pvalue), len(zero)

    def t_test_pairwise(
        self,
        term_name: str,
        method: str | list[str] = "hs",
        alpha: float = 0.05,
        factor_labels: Sequence[str] | None = None,
    ) -> MultiCompResult:
        """Compare all pairs of levels of a factor.

        Parameters
        ----------
        term_name : str
            As in the formula: ``"C(g)"``.
        method : str or list of str
            Adjustments of ``statsmodels.stats.multitest.multipletests``: "hs" (Holm-Sidak), "bonferroni",
            "holm", "fdr_bh", ...
        alpha : float
            Level of the tests that decide which pairs differ.
        factor_labels : sequence of str, optional
            Names of the levels in the rows, in their order; default: the levels.

        Returns
        -------
        MultiCompResult of statsmodels; ``.result_frame`` is the table.

        Raises
        ------
        ArgumentError
            The term is unknown or not the main effect of one factor, `method` is unknown, or
            `factor_labels` has another number of labels than the factor has levels.
        NotAvailableError
            The model has no formula.
        """
        from statsmodels.stats.contrast import MultiCompResult, t_test_multi

        check_adjustment(method)
        inner = self.inner
        contrasts, labels, coding, _ = pairwise_contrasts(
            term_name, self.inference.names, self.inference.context.design, factor_labels
        )
        frame = t_test_multi(inner, contrasts, method, check_fraction(alpha, "alpha"), contrast_names=labels)
        return MultiCompResult(frame, contrasts, term_name, labels, coding)

    def wald_test_terms(
        self,
        skip_single: bool = False,
        extra_constraints: Sequence[tuple[str, ConstraintLike]] | None = None,
        combine_terms: Sequence[str] | None = None,
        scalar: bool = True,
    ) -> WaldTestResults:
        """Test each term of the formula: all its coefficients are zero.

        Parameters
        ----------
        skip_single : bool
            Leave out terms of one coefficient.
        extra_constraints : sequence of (str, restrictions), optional
            More rows: a name, and restrictions in any form that `wald_test` reads.
        combine_terms : sequence of str, optional
            Test jointly all terms whose name contains the string, one more row each.
        scalar : bool
            Whether statistics are numbers, or arrays of shape (1, 1).

        Returns
        -------
        WaldTestResults of statsmodels; ``.table`` has one row per term.

        Notes
        -----
        Tests are chi-square tests, or F tests where `use_t` is True, as in statsmodels. The degrees of
        freedom of an F test belong to the sampling error alone, because the variance of the noise is known.
        By Satterthwaite's formula the denominator therefore has ``df_resid * (V / V_sampling)**2`` degrees of
        freedom, where V is the variance of the tested combination and V_sampling its part without noise. This
        number can be larger than the number of rows, and then the F test is nearly the chi-square test.
        Without noise it is `df_resid`.

        If the fit may have a bias, such as that of clipping, p-values are the largest that it allows, like
        those of the coefficients. They are then larger than p-values of the chi-square or F distribution, and
        the printed result states this.

        **Privacy.** Post-processing.
        """
        grouped = terms(self.inference.names, self.inference.context.design)
        identity = np.eye(len(self.inference.names))
        tested: list[tuple[str, Any]] = [
            (name, identity[at]) for name, at in grouped.items() if not (skip_single and len(at) == 1)
        ]
        for part in combine_terms or ():
            joint = [place for name, at in grouped.items() if part in name for place in at]
            if not joint:
                raise ArgumentError(f"no term contains {shown(part)}; terms are: {', '.join(grouped)}")
            tested.append((part, identity[joint]))
        for name, constraint in extra_constraints or ():
            restrictions = check_independent(linear_constraints(constraint, self.inference.names))
            tested.append((name, (restrictions.R, restrictions.q)))
        return self.inner.wald_test_terms(
            skip_single=True, extra_constraints=tested, scalar=check_flag(scalar, "scalar")
        )

    def _joint(
        self,
        r_matrix: ConstraintLike,
        cov_p: ArrayLike | None,
        invcov: ArrayLike | None,
        **options: Any,
    ) -> ContrastResults:
        restrictions = check_independent(linear_constraints(r_matrix, self.inference.names))
        if invcov is not None:
            k = len(restrictions.R)
            if cov_p is not None:
                raise ArgumentError("cov_p= and invcov= cannot both be passed: use one of them")
            invcov = check_array(np.atleast_2d(np.asarray(invcov)), "invcov", ndim=2)
            if invcov.shape != (k, k):
                raise ArgumentError(f"invcov= must have shape {(k, k)}, got {invcov.shape}")
        return self._with_covariance(cov_p).wald_test(
            (restrictions.R, restrictions.q), invcov=invcov, **options
        )

    def _with_covariance(self, cov_p: ArrayLike | None) -> SchemaResults:
        """Return the object that statsmodels tests, with another covariance where one is passed."""
        if cov_p is None:
            return self.inner
        from privinf.results.contrasts import SchemaResults

        estimate: Estimate = self.inference.estimate
        shape = estimate.covariance.shape  # NotAvailableError where the release leaves none
        covariance: Floats = check_array(np.asarray(cov_p), "cov_p", ndim=2)
        if covariance.shape != shape:
            raise ArgumentError(f"cov_p= must have shape {shape}, got {covariance.shape}")
        return SchemaResults(
            estimate.with_cov(covariance, cov_type="given"), self.inference.df_model, self.inference.df_resid
        )

    @cached_property
    def inner(self) -> SchemaResults:
        """The object that statsmodels tests: the estimate with the attributes of its own results."""
        from privinf.results.contrasts import SchemaResults

        return SchemaResults(self.inference.estimate, self.inference.df_model, self.inference.df_resid)


def _optional_flag(value: object, name: str) -> bool | None:
    return None if value is None else check_flag(value, name)
