"""Regressions by their usual names: OLS, Logit and Poisson, each a `GLM` of one family."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import NotAvailableError
from privinf.fitting.model import SITES_ELSEWHERE, SITES_NOW, STATSMODELS
from privinf.glm.model import GLM, SPENDING_REFUSALS, GLMOptions
from privinf.glm.plan import FitRequest, plan_fit
from privinf.glm.results import GLMResults
from privinf.progress import progress_bar
from privinf.schema import Schema
from privinf.typing import (
    AnyPath,
    Bounds,
    Calibration,
    ClipRule,
    ColumnLike,
    ColumnsLike,
    CovWord,
    FitFamily,
    IntervalNeed,
    Missing,
    Pair,
    RngLike,
    ScoreTarget,
    SitePairs,
    SpendingOptions,
    Table,
    Trust,
)
from privinf.wire import readable

# Arguments of other families, and why `OLS` and `Logit` do not have them.
OF_CURVED_MODELS = "can be used only with the logistic and the Poisson model"
NO_ROLES = {
    "offset": OF_CURVED_MODELS,
    "exposure": "can be used only with the Poisson model",
    "weights": f"{OF_CURVED_MODELS}; for least squares with public weights, use MomentOLS.from_formula()",
}
OF_OTHER_FAMILIES = {
    "exposure": "can be used only with the Poisson model: use offset= with other models",
    "residual_clip": "cannot be used with Logit, whose residuals are at most 1 in absolute value",
    "y_bounds": "cannot be used with Logit, whose response is 0 or 1",
}
# Why `without_intervals` has no rng.
NOTHING_DRAWN = "is not needed, because this method draws no random numbers"


@error_boundaries
class OneFamily(GLM):
    """A regression of one family; see `GLM`."""

    family: ClassVar[FitFamily]

    @refuses({**SPENDING_REFUSALS, "rng": NOTHING_DRAWN})
    def without_intervals(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        calibration: Calibration | None = None,
    ) -> str:
        """Return the reason why a default fit at this budget would have no intervals, if it has none.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.

        Returns
        -------
        str
            The reason, or an empty text.

        Notes
        -----
        **Privacy.** Nothing is charged: the answer depends on numbers of rows and coefficients, and no row is
        read.

        With an empty text, a fit can still fail to converge, because convergence depends on the rows and on
        the noise. In a simulation of 90 tables (8,000 rows, 7 coefficients, 18% of the responses 1, epsilon
        1, delta 1e-6), the fit of `Logit` to one table did not converge, with and without ``margins=True``.
        That option leaves less of the budget for the coefficients.

        Examples
        --------
        >>> import numpy as np
        >>> import privinf as pi
        >>> model = pi.OLS(np.zeros(50), np.zeros((50, 3)), bounds=[(-1, 1)] * 3, y_bounds=(0, 9))
        >>> [model.without_intervals(epsilon=one, delta=1e-6)[:12] for one in (1, 20)]
        ['no intervals', '']
        """
        spending = SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho, calibration=calibration)
        level: dict[str, Any] = {**spending.spending()}
        return readable(plan_fit(level, FitRequest(), self._rows.reported()).weak)


@error_boundaries
class OLS(OneFamily):
    r"""Linear regression on one table, or on a federation of sites, with robust standard errors.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response; values outside `y_bounds` are clipped.
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column except the constant, in the order of the columns or by name; values
        outside the bounds are clipped.
    y_bounds : (low, high)
        Public bounds of the response; values outside the bounds are clipped.
    residual_clip : {"auto", "bounds"} or float, optional
        Clipping of residuals. With "auto" (default) the clipping threshold is chosen from noisy counts. The
        tail beyond the threshold is extrapolated from these counts, and the intervals allow for a bias from
        this extrapolation. With "bounds", no residual is clipped and no assumption about the tail is needed,
        but the noise is scaled to the full range of the response. A number is a clipping threshold in units
        of y. A threshold that you choose changes the target: the coefficients then solve the estimating
        equation with clipped residuals.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
        every row that lacks a value of the model. A dropped row adds zero to every sum, so that the number of
        dropped rows stays private.
    trust : {"central", "server"}, optional
        Who is trusted with the rows. With "central" (default) one curator holds the rows. With "server" the
        rows are sent to a server. Secure sums need several sites; pass the rows of each site to
        `from_arrays`.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if a column does not match its declaration, a bound that the sensitivity needs is missing or
        invalid, or an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record, with its features and its response (replace-one).
    Every release reads every row. The releases are second moments, counts of large residuals, a Hessian, two
    parts of the scores, and the middle matrix ("meat") of the sandwich covariance. Each release depends on
    the earlier releases, and the squares of the mu of all releases add up to at most mu^2.

    By default standard errors are robust (HC0). The estimating equation and its variance are documented in
    `privinf.glm.least_squares`.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = pi.add_constant(rng.uniform(-1, 1, (5000, 2)))
    >>> y = X @ [1.0, 0.5, -0.3] + 0.3 * rng.standard_normal(5000)
    >>> r = pi.OLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-5, 5)).fit(epsilon=1.0, delta=1e-6, rng=0)
    >>> bool((abs(r.params - [1.0, 0.5, -0.3]) < 4 * r.bse).all())
    True
    """

    family = "gaussian"

    @refuses(NO_ROLES)
    @refuses(SITES_ELSEWHERE)
    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        bounds: Bounds,
        y_bounds: Pair | None = None,
        residual_clip: float | ClipRule | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        options = GLMOptions(
            family=self.family,
            bounds=bounds,
            y_bounds=y_bounds,
            residual_clip=residual_clip,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    @refuses(NO_ROLES)
    @refuses(SITES_ELSEWHERE)
    def from_formula(  # type: ignore[override]
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        residual_clip: float | ClipRule | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a formula and a table, or a federation whose sites hold the rows.

        Parameters
        ----------
        formula : str
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated by the holder of
            the rows, and the bounds of its terms follow from the schema. A formula such as ``"y ~ x | firm +
            year"`` absorbs the effects of factors: the effects are fitted, but the results contain neither
            these effects nor the constant. If the schema declares these factors public, `MomentOLS` absorbs
            their effects without noise.
        data : DataFrame, any other table, or Federation
            Table with the raw rows, or a federation of sites that hold the rows. The sites of a federation
            must have the same schema, and policies that allow the trust model.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included.
        residual_clip : {"auto", "bounds"} or float, optional
            Clipping of residuals. With "auto" (default) the clipping threshold is chosen from noisy counts.
            The tail beyond the threshold is extrapolated from these counts, and the intervals allow for a
            bias from this extrapolation. With "bounds", no residual is clipped and no assumption about the
            tail is needed, but the noise is scaled to the full range of the response. A number is a clipping
            threshold in units of y. A threshold that you choose changes the target: the coefficients then
            solve the estimating equation with clipped residuals.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private. In a federation each site chooses its own handling, by the
            argument `missing` of its `Rows`.
        trust : {"central", "server", "secure-sum"}, optional
            Who is trusted with the rows. For a table, the choice is "central" (default): one curator holds
            the rows. For a federation, "server" (default) means that the sites send sums without noise to a
            server that they trust. The choice "secure-sum" means that the sites add the noise themselves and
            mask their sums, so that only the noisy total is revealed.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        OLS
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError
            Raised if the schema does not declare the bounds of a column that the formula needs.
        """
        options = GLMOptions(
            family=cls.family,
            residual_clip=residual_clip,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_formula(formula, data, schema, options)

    @classmethod
    @refuses({"parties": SITES_NOW})
    @refuses(NO_ROLES)
    def from_arrays(  # type: ignore[override]
        cls,
        sites: SitePairs,
        *,
        bounds: Bounds,
        y_bounds: Pair | None = None,
        residual_clip: float | ClipRule | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from one pair (y, X) per site; the column ``const`` is public.

        Parameters
        ----------
        sites : sequence or mapping of (y, X)
            Response and features of every site: a mapping from labels of sites to pairs, or a sequence, whose
            sites are numbered from 0. The sites are simulated in this process; for real sites pass a
            federation to `from_formula`.
        bounds : sequence of (low, high), or mapping
            Public bounds of every column except the constant, in the order of the columns or by name; values
            outside the bounds are clipped.
        y_bounds : (low, high)
            Public bounds of the response; values outside the bounds are clipped.
        residual_clip : {"auto", "bounds"} or float, optional
            Clipping of residuals. With "auto" (default) the clipping threshold is chosen from noisy counts.
            The tail beyond the threshold is extrapolated from these counts, and the intervals allow for a
            bias from this extrapolation. With "bounds", no residual is clipped and no assumption about the
            tail is needed, but the noise is scaled to the full range of the response. A number is a clipping
            threshold in units of y. A threshold that you choose changes the target: the coefficients then
            solve the estimating equation with clipped residuals.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private.
        trust : {"server", "secure-sum"}, optional
            With "server" (default) the sites send sums without noise to a server that they trust. With
            "secure-sum" the sites add the noise themselves and mask their sums, so that only the noisy total
            is revealed; this mode needs the optional dependencies ``privinf[federation]``.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        OLS
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            Raised if a column does not match its declaration, a bound is missing or invalid, or an argument
            is invalid. The message names the site whose rows cause the error.
        """
        options = GLMOptions(
            family=cls.family,
            bounds=bounds,
            y_bounds=y_bounds,
            residual_clip=residual_clip,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_sites(sites, options)

    @refuses(SPENDING_REFUSALS)
    @refuses(STATSMODELS, NotAvailableError)
    def fit(  # type: ignore[override]
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        cov_type: CovWord = "HC0",
        target: ScoreTarget = "mean",
        adapt_bounds: bool = False,
        max_colluding: int = 0,
        intervals: IntervalNeed = "required",
        checkpoint: AnyPath | None = None,
        calibration: Calibration | None = None,
        progress: bool | None = None,
    ) -> GLMResults:
        """Fit the model.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. Without noise the fit is
            ordinary least squares.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        rng : None, int or Generator, optional
            Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
            simulation noise, which is not private, and the results are marked as NOT PRIVATE.
        cov_type : {"HC0", "HC1", "nonrobust", "cluster"}
            Covariance of the coefficients. The choice "HC0" (default) is valid under heteroskedasticity. With
            "HC1" the sampling part of the covariance is multiplied by n/(n - p). The choice "nonrobust"
            assumes that all errors have the same variance. The choice "cluster" gives the same result as
            "HC0", because `OLS` accepts only one row per unit of the schema (`MomentOLS` accepts several).
        target : {"mean", "robust"}
            Target of the fit. With "mean" the target is the least squares coefficients. With "robust" each
            score is clipped at twice the typical norm of a score, and the target is the coefficients at which
            the mean of the clipped scores is zero. A few large errors can change this target only slightly.
            The targets "mean" and "robust" are equal if errors are symmetric.
        adapt_bounds : bool
            Whether to weight rows by min(1, 1/max_j x_j^2), to reduce the noise if the declared bounds are
            far too wide. Here column x_j is in units of narrower bounds, which are computed from noisy
            counts. The option costs 4% of the budget. The target is then weighted least squares with these
            weights, which equals unweighted least squares if the mean is linear in x.
        max_colluding : int
            Number of sites that may collude with the server in secure sums. The noise of this number of sites
            does not count toward the guarantee.
        intervals : {"required", "optional"}
            Whether the fit must have intervals. With "required" (default) the fit is refused before anything
            is charged if there are too few rows, or too little budget, for intervals of all coefficients.
            With "optional" such a fit returns coefficients without standard errors. The method
            `without_intervals` of the result returns the reason.
        checkpoint : path, optional
            Folder in which a fit over a federation stores every query and every release. Use a new folder for
            each fit. If the fit is interrupted, the same call with the same folder continues the fit and pays
            for no release twice. With ``trust="server"`` the folder contains the secret key of the noise, so
            protect the folder as you protect the rows.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        progress : bool, optional
            Whether to show a progress bar over the releases of the fit. By default the bar appears after two
            seconds, on a terminal only.

        Returns
        -------
        GLMResults
            Results with coefficients, covariance, tests, predictions and the privacy report. The results of
            one table and of a federation are of the same class.
        """
        spending = SpendingOptions(
            epsilon=epsilon, delta=delta, mu=mu, rho=rho, rng=rng, calibration=calibration
        )
        request = FitRequest(
            max_colluding=max_colluding,
            checkpoint=checkpoint,
            cov_type=cov_type,
            target=target,
            adapt_bounds=adapt_bounds,
            intervals=intervals,
        )
        with progress_bar(progress, type(self).__name__, unit="sum"):
            return self._fit(request, spending)


@error_boundaries
class Logit(OneFamily):
    """Logistic regression on one table, or on a federation of sites.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response of 0 and 1. Values outside [0, 1] are clipped without a message, because a message would
        reveal information about a row.
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula. Columns that
        `offset` and `weights` name must be columns of X, and get no coefficients.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column except the constant, in the order of the columns or by name; values
        outside the bounds are clipped.
    offset : str, optional
        Name of a column with declared bounds that is added to the linear predictor. The column gets no
        coefficient.
    weights : str, optional
        Name of the column with the weights of the rows; its bounds must not be negative. Robust standard
        errors treat each row as one independent observation, for any weights.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
        every row that lacks a value of the model. A dropped row adds zero to every sum, so that the number of
        dropped rows stays private.
    trust : {"central", "server"}, optional
        Who is trusted with the rows. With "central" (default) one curator holds the rows. With "server" the
        rows are sent to a server. Secure sums need several sites; pass the rows of each site to
        `from_arrays`.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if a column does not match its declaration, a bound that the sensitivity needs is missing or
        invalid, or an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record, with its features and its response (replace-one).
    With ``trust="central"`` one curator holds the rows, and everything that leaves the curator has noise.
    With ``trust="server"``, sites send sums without noise to a server that they trust. With
    ``trust="secure-sum"`` the sites add the noise themselves and mask their sums. The privacy report counts
    all releases of a fit.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 3))
    >>> y = rng.uniform(size=20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0]))
    >>> r = pi.Logit(y, X, bounds=[(-1, 1)] * 3).fit(epsilon=2.0, delta=1e-6, rng=0)
    >>> bool((abs(r.params - [1.0, -0.5, 0.0]) < 4 * r.bse).all())
    True
    """

    family = "binomial"

    @refuses(OF_OTHER_FAMILIES)
    @refuses(SITES_ELSEWHERE)
    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        bounds: Bounds,
        offset: str | None = None,
        weights: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        options = GLMOptions(
            family=self.family,
            bounds=bounds,
            offset=offset,
            weights=weights,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    @refuses(OF_OTHER_FAMILIES)
    @refuses(SITES_ELSEWHERE)
    def from_formula(  # type: ignore[override]
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        offset: str | None = None,
        weights: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a formula and a table, or a federation whose sites hold the rows.

        Parameters
        ----------
        formula : str
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated by the holder of
            the rows, and the bounds of its terms follow from the schema. The term ``offset(column)`` in a
            formula has the same effect as the argument `offset`.
        data : DataFrame, any other table, or Federation
            Table with the raw rows, or a federation of sites that hold the rows. The sites of a federation
            must have the same schema, and policies that allow the trust model.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included.
        offset : str, optional
            Name of a column with declared bounds that is added to the linear predictor. The column gets no
            coefficient.
        weights : str, optional
            Name of the column with the weights of the rows; its bounds must not be negative. Robust standard
            errors treat each row as one independent observation, for any weights.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private. In a federation each site chooses its own handling, by the
            argument `missing` of its `Rows`.
        trust : {"central", "server", "secure-sum"}, optional
            Who is trusted with the rows. For a table, the choice is "central" (default): one curator holds
            the rows. For a federation, "server" (default) means that the sites send sums without noise to a
            server that they trust. The choice "secure-sum" means that the sites add the noise themselves and
            mask their sums, so that only the noisy total is revealed.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        Logit
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError
            Raised if the schema does not declare the bounds of a column that the formula needs.
        """
        options = GLMOptions(
            family=cls.family,
            offset=offset,
            weights=weights,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_formula(formula, data, schema, options)

    @classmethod
    @refuses({"parties": SITES_NOW})
    @refuses(OF_OTHER_FAMILIES)
    def from_arrays(  # type: ignore[override]
        cls,
        sites: SitePairs,
        *,
        bounds: Bounds,
        offset: str | None = None,
        weights: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from one pair (y, X) per site; the column ``const`` is public.

        Parameters
        ----------
        sites : sequence or mapping of (y, X)
            Response and features of every site: a mapping from labels of sites to pairs, or a sequence, whose
            sites are numbered from 0. The sites are simulated in this process; for real sites pass a
            federation to `from_formula`.
        bounds : sequence of (low, high), or mapping
            Public bounds of every column except the constant, in the order of the columns or by name; values
            outside the bounds are clipped.
        offset : str, optional
            Name of a column with declared bounds that is added to the linear predictor. The column gets no
            coefficient.
        weights : str, optional
            Name of the column with the weights of the rows; its bounds must not be negative. Robust standard
            errors treat each row as one independent observation, for any weights.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private.
        trust : {"server", "secure-sum"}, optional
            With "server" (default) the sites send sums without noise to a server that they trust. With
            "secure-sum" the sites add the noise themselves and mask their sums, so that only the noisy total
            is revealed; this mode needs the optional dependencies ``privinf[federation]``.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        Logit
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            Raised if a column does not match its declaration, a bound is missing or invalid, or an argument
            is invalid. The message names the site whose rows cause the error.
        """
        options = GLMOptions(
            family=cls.family,
            bounds=bounds,
            offset=offset,
            weights=weights,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_sites(sites, options)


@error_boundaries
class Poisson(OneFamily):
    """Poisson regression on one table, or on a federation of sites.

    Parameters
    ----------
    y : array_like, shape (n,)
        Counts; values outside `y_bounds` are clipped.
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula. Columns that
        `offset`, `exposure` and `weights` name must be columns of X, and get no coefficients.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column except the constant, in the order of the columns or by name; values
        outside the bounds are clipped.
    y_bounds : (low, high)
        Public bounds of the response; values outside the bounds are clipped.
    residual_clip : {"auto", "bounds"} or float, optional
        Clipping of residuals. With "auto" (default) the clipping threshold is chosen from noisy counts. The
        tail beyond the threshold is extrapolated from these counts, and the intervals allow for a bias from
        this extrapolation. With "bounds", no residual is clipped and no assumption about the tail is needed,
        but the noise is scaled to the full range of the response. A number is a clipping threshold in units
        of y. A threshold that you choose changes the target: the coefficients then solve the estimating
        equation with clipped residuals.
    offset : str, optional
        Name of a column with declared bounds that is added to the linear predictor. The column gets no
        coefficient.
    exposure : str, optional
        Name of a column with positive bounds, such as the time at risk. Its logarithm is added to the linear
        predictor, and the column gets no coefficient.
    weights : str, optional
        Name of the column with the weights of the rows; its bounds must not be negative. Robust standard
        errors treat each row as one independent observation, for any weights.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
        every row that lacks a value of the model. A dropped row adds zero to every sum, so that the number of
        dropped rows stays private.
    trust : {"central", "server"}, optional
        Who is trusted with the rows. With "central" (default) one curator holds the rows. With "server" the
        rows are sent to a server. Secure sums need several sites; pass the rows of each site to
        `from_arrays`.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if a column does not match its declaration, a bound that the sensitivity needs is missing or
        invalid, or an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record, with its features and its response (replace-one).
    With ``trust="central"`` one curator holds the rows, and everything that leaves the curator has noise.
    With ``trust="server"``, sites send sums without noise to a server that they trust. With
    ``trust="secure-sum"`` the sites add the noise themselves and mask their sums. The privacy report counts
    all releases of a fit.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = pi.add_constant(rng.uniform(-1, 1, (20_000, 2)))
    >>> y = rng.poisson(np.exp(X @ [0.0, 0.5, -0.3]))
    >>> r = pi.Poisson(y, X, bounds=[(-1, 1)] * 2, y_bounds=(0, 12)).fit(epsilon=2.0, delta=1e-6, rng=0)
    >>> bool((abs(r.params - [0.0, 0.5, -0.3]) < 4 * r.bse).all())
    True
    """

    family = "poisson"

    @refuses(SITES_ELSEWHERE)
    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        bounds: Bounds,
        y_bounds: Pair | None = None,
        residual_clip: float | ClipRule | None = None,
        offset: str | None = None,
        exposure: str | None = None,
        weights: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        options = GLMOptions(
            family=self.family,
            bounds=bounds,
            y_bounds=y_bounds,
            residual_clip=residual_clip,
            offset=offset,
            exposure=exposure,
            weights=weights,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    @refuses(SITES_ELSEWHERE)
    def from_formula(  # type: ignore[override]
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        residual_clip: float | ClipRule | None = None,
        offset: str | None = None,
        exposure: str | None = None,
        weights: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a formula and a table, or a federation whose sites hold the rows.

        Parameters
        ----------
        formula : str
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated by the holder of
            the rows, and the bounds of its terms follow from the schema. The term ``offset(column)`` in a
            formula has the same effect as the argument `offset`.
        data : DataFrame, any other table, or Federation
            Table with the raw rows, or a federation of sites that hold the rows. The sites of a federation
            must have the same schema, and policies that allow the trust model.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included.
        residual_clip : {"auto", "bounds"} or float, optional
            Clipping of residuals. With "auto" (default) the clipping threshold is chosen from noisy counts.
            The tail beyond the threshold is extrapolated from these counts, and the intervals allow for a
            bias from this extrapolation. With "bounds", no residual is clipped and no assumption about the
            tail is needed, but the noise is scaled to the full range of the response. A number is a clipping
            threshold in units of y. A threshold that you choose changes the target: the coefficients then
            solve the estimating equation with clipped residuals.
        offset : str, optional
            Name of a column with declared bounds that is added to the linear predictor. The column gets no
            coefficient.
        exposure : str, optional
            Name of a column with positive bounds, such as the time at risk. Its logarithm is added to the
            linear predictor, and the column gets no coefficient.
        weights : str, optional
            Name of the column with the weights of the rows; its bounds must not be negative. Robust standard
            errors treat each row as one independent observation, for any weights.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private. In a federation each site chooses its own handling, by the
            argument `missing` of its `Rows`.
        trust : {"central", "server", "secure-sum"}, optional
            Who is trusted with the rows. For a table, the choice is "central" (default): one curator holds
            the rows. For a federation, "server" (default) means that the sites send sums without noise to a
            server that they trust. The choice "secure-sum" means that the sites add the noise themselves and
            mask their sums, so that only the noisy total is revealed.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        Poisson
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError
            Raised if the schema does not declare the bounds of a column that the formula needs.
        """
        options = GLMOptions(
            family=cls.family,
            residual_clip=residual_clip,
            offset=offset,
            exposure=exposure,
            weights=weights,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_formula(formula, data, schema, options)

    @classmethod
    @refuses({"parties": SITES_NOW})
    def from_arrays(  # type: ignore[override]
        cls,
        sites: SitePairs,
        *,
        bounds: Bounds,
        y_bounds: Pair | None = None,
        residual_clip: float | ClipRule | None = None,
        offset: str | None = None,
        exposure: str | None = None,
        weights: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from one pair (y, X) per site; the column ``const`` is public.

        Parameters
        ----------
        sites : sequence or mapping of (y, X)
            Response and features of every site: a mapping from labels of sites to pairs, or a sequence, whose
            sites are numbered from 0. The sites are simulated in this process; for real sites pass a
            federation to `from_formula`.
        bounds : sequence of (low, high), or mapping
            Public bounds of every column except the constant, in the order of the columns or by name; values
            outside the bounds are clipped.
        y_bounds : (low, high)
            Public bounds of the response; values outside the bounds are clipped.
        residual_clip : {"auto", "bounds"} or float, optional
            Clipping of residuals. With "auto" (default) the clipping threshold is chosen from noisy counts.
            The tail beyond the threshold is extrapolated from these counts, and the intervals allow for a
            bias from this extrapolation. With "bounds", no residual is clipped and no assumption about the
            tail is needed, but the noise is scaled to the full range of the response. A number is a clipping
            threshold in units of y. A threshold that you choose changes the target: the coefficients then
            solve the estimating equation with clipped residuals.
        offset : str, optional
            Name of a column with declared bounds that is added to the linear predictor. The column gets no
            coefficient.
        exposure : str, optional
            Name of a column with positive bounds, such as the time at risk. Its logarithm is added to the
            linear predictor, and the column gets no coefficient.
        weights : str, optional
            Name of the column with the weights of the rows; its bounds must not be negative. Robust standard
            errors treat each row as one independent observation, for any weights.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private.
        trust : {"server", "secure-sum"}, optional
            With "server" (default) the sites send sums without noise to a server that they trust. With
            "secure-sum" the sites add the noise themselves and mask their sums, so that only the noisy total
            is revealed; this mode needs the optional dependencies ``privinf[federation]``.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        Poisson
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            Raised if a column does not match its declaration, a bound is missing or invalid, or an argument
            is invalid. The message names the site whose rows cause the error.
        """
        options = GLMOptions(
            family=cls.family,
            bounds=bounds,
            y_bounds=y_bounds,
            residual_clip=residual_clip,
            offset=offset,
            exposure=exposure,
            weights=weights,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_sites(sites, options)
