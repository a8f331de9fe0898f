"""Generalized linear models over sites: private fit by a trusted server or secure sums, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import NotAvailableError
from privinf.fitting.model import (
    SITES_ELSEWHERE,
    SITES_NOISE,
    SITES_NOW,
    STATSMODELS,
    Model,
    SumModelOptions,
)
from privinf.fitting.rows import Limits, ModelRows
from privinf.glm.dome.optimizers import Optimizer
from privinf.glm.newton import Newton
from privinf.glm.plan import FitRequest
from privinf.glm.results import (
    GLMResults,
)
from privinf.glm.rows import GlmRows, Unit, glm_limits, glm_rows
from privinf.glm.running import run_fit
from privinf.glm.sums import Roles
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
    Family,
    FitFamily,
    IntervalNeed,
    Missing,
    Pair,
    RngLike,
    SitePairs,
    SpendingOptions,
    SumRelation,
    Table,
    Trust,
)
from privinf.validation import check_choice

SPENDING_REFUSALS = {"source": SITES_NOISE}  # spending options of other models, and why no sum has them


@dataclass(frozen=True, slots=True, kw_only=True)
class GLMOptions(SumModelOptions):
    """Arguments of the constructors of `GLM` and of the models of one family, which describe them.

    Attributes
    ----------
    family, radius, residual_clip
        As `GLM` has them.
    offset, exposure, weights : str or None
        Columns that have no coefficients.
    effects : tuple of str
        Terms of a formula whose coefficients are not reported.
    """

    family: FitFamily
    radius: float | None = None
    residual_clip: float | ClipRule | None = None
    offset: str | None = None
    exposure: str | None = None
    weights: str | None = None
    effects: tuple[str, ...] = ()

    @property
    def roles(self) -> Roles:
        """Columns without coefficients; ArgumentError for arrays in place of names."""
        return Roles.new(self.offset, self.exposure, self.weights, effects=self.effects)

    @property
    def without_coefficients(self) -> tuple[str, ...]:
        """Names of the columns of the roles."""
        return self.roles.names

    def limits(self) -> Limits:
        """Return the public bounds of arrays."""
        return glm_limits(self.family, self.bounds, self.y_bounds)

    def read(self, formula: str, schema: Schema) -> tuple[str, GLMOptions]:
        """Return the formula of the design, with the columns of the roles, and the options with its own."""
        check_choice(self.family, FitFamily, "family")
        formula, roles = self.roles.read(formula, schema, self.family)
        roles.check_apart(formula, schema)
        return roles.added(formula), replace(self, offset=roles.offset, effects=roles.effects)


@error_boundaries
class GLM(Model[GLMOptions]):
    r"""Linear, logistic or Poisson regression on one table, or on a federation of sites.

    For the rows of several sites, use `from_arrays`, or pass a federation to `from_formula`.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response. Values outside `y_bounds` are clipped; a binomial response is clipped to [0, 1].
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula. The column that
        `offset` names must be a column of X, and gets no coefficient.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column except the constant, in the order of the columns or by name; values
        outside the bounds are clipped.
    family : {"gaussian", "binomial", "poisson"}
        Distribution of the response: linear, logistic or Poisson regression.
    y_bounds : (low, high), optional
        Public bounds of the response, which the linear and the Poisson model need; values outside the bounds
        are clipped.
    radius : float, optional
        Public number R: a row gets less weight if its norm is above R. The norm is in units in which the
        bounds of every column are [-1, 1]. By default R is the largest norm that the bounds allow, so that
        all rows have the same weight. A smaller R needs less noise.
    residual_clip : {"auto", "bounds"} or float, optional
        Clipping of the residuals of the linear and the Poisson model. With "auto" (default) the clipping
        threshold is chosen from noisy counts. The tail beyond the threshold is extrapolated from these
        counts, and the intervals allow for a bias from this extrapolation. With "bounds", no residual is
        clipped and no assumption about the tail is needed, but the noise is scaled to the full range of the
        response. A number is a clipping threshold in units of y. A threshold that you choose changes the
        target: the coefficients then solve the estimating equation with clipped residuals.
    offset : str, optional
        For the logistic and the Poisson model: name of a column with declared bounds that is added to the
        linear predictor. The column gets no coefficient.
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
    **Privacy.** Neighboring tables differ in one record (replace-one), unless an option of `fit` changes
    this. With ``trust="central"`` a curator holds the rows, and everything that leaves the curator has noise.
    With ``trust="server"``, sites send sums without noise to a server that they trust, and everything that
    leaves the server has noise. With ``trust="secure-sum"`` the sites add the noise themselves and mask their
    sums, so that only the noisy total is revealed (`privinf.federation.SecureServer` states the trust
    assumptions). The privacy report counts all releases of a fit.

    Linear models are fitted by one step from an initial estimate. Logistic and Poisson models are fitted by
    Newton steps in coordinates in which the rows have identity covariance (whitened units). The rest of these
    notes applies to fits with ``optimizer=``, `radius`, ``unit="client"`` or `targets`.

    Let r be the clipped residual of a record with features x, and let w = min(1, R^2/||x||^2) be the weight
    of the record. The weight depends on x alone, so it does not change the coefficients if the model of the
    mean is correct. The estimate solves the equation sum w x r = 0. The estimate is computed in noisy rounds,
    which are followed by one Newton step D. This final step uses the noisy score and the noisy Hessian H at
    the last iterate. The covariance of the estimate is

    .. math:: Cov = H^{-1} [meat/n + \sigma_s^2 I + (\sigma_H^2/2)(\|D\|^2 I + D D')] H^{-1}

    Here sigma_s and sigma_H are the standard deviations of the noise in the score and in the Hessian.
    Residuals are clipped at a public threshold E. By default E is so large that no residual is clipped if the
    response is within its bounds. With a smaller E the fit estimates the root of the score with clipped
    residuals.

    References
    ----------
    "Communication efficient, differentially private distributed optimization using correlation-aware
    sketching", for `DOME`. The intervals of the final Newton step are not from this paper.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 3))
    >>> y = rng.uniform(size=20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0]))
    >>> model = pi.GLM(y, X, bounds=[(-1, 1)] * 3, family="binomial")
    >>> fit = model.fit(epsilon=2.0, delta=1e-6, rng=0)
    >>> bool((abs(fit.params - [1.0, -0.5, 0.0]) < 4 * fit.bse).all())
    True
    """

    _rows: GlmRows
    _trust: Trust

    @refuses(SITES_ELSEWHERE)
    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        bounds: Bounds,
        family: Family,
        y_bounds: Pair | None = None,
        radius: float | None = None,
        residual_clip: float | ClipRule | None = None,
        offset: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        options = GLMOptions(
            bounds=bounds,
            family=check_choice(family, Family, "family"),
            y_bounds=y_bounds,
            radius=radius,
            residual_clip=residual_clip,
            offset=offset,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    @refuses(SITES_ELSEWHERE)
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        family: Family,
        radius: float | None = None,
        residual_clip: float | ClipRule | None = None,
        offset: str | None = None,
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
        family : {"gaussian", "binomial", "poisson"}
            Distribution of the response: linear, logistic or Poisson regression.
        radius : float, optional
            Public number R: a row gets less weight if its norm is above R. The norm is in units in which the
            bounds of every column are [-1, 1]. By default R is the largest norm that the bounds allow, so
            that all rows have the same weight. A smaller R needs less noise.
        residual_clip : {"auto", "bounds"} or float, optional
            Clipping of the residuals of the linear and the Poisson model. With "auto" (default) the clipping
            threshold is chosen from noisy counts. The tail beyond the threshold is extrapolated from these
            counts, and the intervals allow for a bias from this extrapolation. With "bounds", no residual is
            clipped and no assumption about the tail is needed, but the noise is scaled to the full range of
            the response. A number is a clipping threshold in units of y. A threshold that you choose changes
            the target: the coefficients then solve the estimating equation with clipped residuals.
        offset : str, optional
            For the logistic and the Poisson model: name of a column with declared bounds that is added to the
            linear predictor. The column gets no coefficient.
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
        GLM
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError
            Raised if the schema does not declare the bounds of a column that the formula needs.
        """
        options = GLMOptions(
            family=check_choice(family, Family, "family"),
            radius=radius,
            residual_clip=residual_clip,
            offset=offset,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_formula(formula, data, schema, options)

    @classmethod
    @refuses({"parties": SITES_NOW})
    def from_arrays(
        cls,
        sites: SitePairs,
        *,
        bounds: Bounds,
        family: Family,
        y_bounds: Pair | None = None,
        radius: float | None = None,
        residual_clip: float | ClipRule | None = None,
        offset: str | None = None,
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
        family : {"gaussian", "binomial", "poisson"}
            Distribution of the response: linear, logistic or Poisson regression.
        y_bounds : (low, high), optional
            Public bounds of the response, which the linear and the Poisson model need; values outside the
            bounds are clipped.
        radius : float, optional
            Public number R: a row gets less weight if its norm is above R. The norm is in units in which the
            bounds of every column are [-1, 1]. By default R is the largest norm that the bounds allow, so
            that all rows have the same weight. A smaller R needs less noise.
        residual_clip : {"auto", "bounds"} or float, optional
            Clipping of the residuals of the linear and the Poisson model. With "auto" (default) the clipping
            threshold is chosen from noisy counts. The tail beyond the threshold is extrapolated from these
            counts, and the intervals allow for a bias from this extrapolation. With "bounds", no residual is
            clipped and no assumption about the tail is needed, but the noise is scaled to the full range of
            the response. A number is a clipping threshold in units of y. A threshold that you choose changes
            the target: the coefficients then solve the estimating equation with clipped residuals.
        offset : str, optional
            For the logistic and the Poisson model: name of a column with declared bounds that is added to the
            linear predictor. The column gets no coefficient.
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
        GLM
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            Raised if a column does not match its declaration, a bound is missing or invalid, or an argument
            is invalid. The message names the site whose rows cause the error.
        """
        options = GLMOptions(
            bounds=bounds,
            family=check_choice(family, Family, "family"),
            y_bounds=y_bounds,
            radius=radius,
            residual_clip=residual_clip,
            offset=offset,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_sites(sites, options)

    def _set_rows(self, model_rows: ModelRows, options: GLMOptions) -> None:
        """Keep the sites of the rows, with the bounds that the statistics need."""
        assert options.trust is not None
        placed = model_rows.placed(options.trust, zero_out=True, passes=True)
        rows = glm_rows(placed, options.family, options.radius, options.residual_clip, options.roles)
        super()._set_rows(rows, options)
        self._trust = options.trust

    @refuses(SPENDING_REFUSALS)
    @refuses(STATSMODELS, NotAvailableError)
    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        optimizer: Newton | Optimizer | None = None,
        public_seed: int = 0,
        max_colluding: int = 0,
        relation: SumRelation = "replace-one",
        unit: Unit = "record",
        client_clip: float | None = None,
        cov_type: CovWord = "HC0",
        targets: Sequence[str] | None = None,
        nuisance: Sequence[str] = (),
        margins: bool = False,
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
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
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
        optimizer : Newton, DPSGD, DPAdam, RandomSketch or DOME, optional
            Optimizer to use instead of the default, which is a one-step estimator from a private initial
            estimate. `Newton` runs a fixed number of noisy rounds; in a fit without noise, `Newton` runs to
            convergence. The other optimizers use only gradients (scores), and may return coefficients without
            intervals.
        public_seed : int
            Public seed of the batches and of the random probes. Choose it before you see the data.
        max_colluding : int
            Number of sites that may collude with the server in secure sums. The noise of this number of sites
            does not count toward the guarantee.
        relation : {"replace-one", "zero-out"}
            Neighboring tables of the guarantee. Under "replace-one" one record is replaced by any other
            record, and under "zero-out" by a record that contributes nothing. At the same budget the noise
            under "zero-out" is half as large as under "replace-one". The guarantee of "zero-out" is weaker:
            for the replacement of one record by another, mu is twice as large. The ledger and the policies of
            the sites must use the same relation.
        unit : {"record", "client"}
            Unit of privacy: one record, or all records of one site together ("client"). With "client", every
            site has records in every batch, so every round costs budget. Without `client_clip`, the
            sensitivity of a sum is the sensitivity of one record times the number of records of the largest
            site.
        client_clip : float, optional
            C, the largest norm of the summed score of a site, for ``unit="client"``. A longer score is shrunk
            to norm C. Replacing one site then changes a sum by at most 2C. First-order optimizers need
            `client_clip`. To choose C, let a site have n_i records, which are divided over B batches of equal
            size. Near the solution, the norm of the summed score of a batch is about sqrt(n_i/B) times the
            norm of the score of one record.
        cov_type : {"HC0", "HC1", "nonrobust", "cluster"}
            Covariance of the coefficients. The choice "HC0" (default) is valid under heteroskedasticity. With
            "HC1", for the linear model, the sampling part of the covariance is multiplied by n/(n - p). With
            "nonrobust", for the logistic and the Poisson model, the covariance of the scores is taken from
            the Hessian. This choice is valid if the variance function of the model is correct. The choice
            "nonrobust" saves a tenth of the budget of the final step, because the covariance of the scores is
            not released. With "cluster", the rows are clustered by the unit of the schema. These models
            accept only one row per unit, so the result is the same as with "HC0".
        targets : sequence of str, optional
            Names of the coefficients to report. No other coefficient is reported. Named targets can have
            intervals even if there are too many columns to release the Hessian of all coefficients. The final
            step uses only the columns of `targets`, the columns of `nuisance` and the constant. The rule for
            intervals (see the notes below) counts only these columns as p. The final step assumes that
            the column of a target has no partial correlation with an omitted column, given the other columns
            of the final step. This partial correlation is computed with the rows weighted by the curvature
            of the log-likelihood.
        nuisance : sequence of str
            Names of further coefficients, whose columns take part in the final step because they may be
            correlated with the columns of `targets`.
        margins : bool
            Whether to keep a tenth of the budget for average marginal effects (`get_margeff`) of a logistic
            or Poisson model.
        intervals : {"required", "optional"}
            Whether the fit must have intervals. With "required" (default) the fit is refused before anything
            is charged if there are too few rows, or too little budget, for intervals of all coefficients.
            With "optional" such a fit returns coefficients without standard errors. A fit without intervals
            uses the optimizer `DPSGD`. A fit with an `optimizer` other than `Newton` is not refused for a
            lack of intervals.
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

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid; nothing was spent.
        NotAvailableError
            Raised if intervals are required but not possible; nothing was spent.
        BudgetExceededError
            Raised if the fit would exceed the limit of the ledger; nothing was spent.
        ConvergenceError, NotPositiveDefiniteError
            Raised if, in a fit without noise, there is no finite estimate or columns are collinear.
        StorageError
            Raised if the folder of `checkpoint` belongs to a different fit, or if the key of the noise is
            missing from the folder.

        Notes
        -----
        **Privacy.** The privacy report counts all releases of a fit. If you choose settings from the results
        of earlier fits on the same data, these fits cost budget too. Use the same ledger for all fits, so
        that the totals include them.

        Intervals of logistic and Poisson models are quantiles of simulated draws, which account for the
        privacy noise. If the smallest eigenvalue of the Hessian is small relative to the noise of the
        Hessian, the intervals are quantiles of a posterior distribution, and the summary names its prior. The
        rest of these notes applies only to fits with ``optimizer=``. Such a fit has intervals only if ``p^1.5
        <= 0.1 n mu_H``, where p is the number of coefficients, n the number of rows and mu_H the budget (in
        mu) of the final Hessian. If sites are the units of privacy, n is the number of all rows divided by
        the number of rows of the largest site. If p is too large for intervals, the total budget is spent on
        the coefficients, and the fit has no intervals. A fit in which `client_clip` may shrink the score of a
        site has no intervals, because the bias from shrinking is not known. Standard errors treat all rows as
        independent, including rows of the same site.

        A fit has not converged if its last Newton step is too long. The length is measured in standard errors
        of this step (root mean square over the coefficients), and the limit is 1.5. A fit that has not
        converged has coefficients without intervals, unless the error that remains after the last step is
        negligible. Fits may not converge if events are rare, if effects are strong, or if the clipping
        threshold is small relative to the response.
        """
        spending = SpendingOptions(
            epsilon=epsilon, delta=delta, mu=mu, rho=rho, rng=rng, calibration=calibration
        )
        request = FitRequest(
            optimizer=optimizer,
            public_seed=public_seed,
            max_colluding=max_colluding,
            relation=relation,
            unit=unit,
            client_clip=client_clip,
            cov_type=cov_type,
            targets=targets,
            nuisance=nuisance,
            checkpoint=checkpoint,
            margins=margins,
            intervals=intervals,
        )
        with progress_bar(progress, type(self).__name__, unit="sum"):
            return self._fit(request, spending)

    def _fit(self, request: FitRequest, spending: SpendingOptions) -> GLMResults:
        budget: dict[str, Any] = {**spending.spending()}
        return run_fit(self._rows, self._trust, self.ledger, type(self).__name__, request, budget)

    def __repr__(self) -> str:
        size = f"{self._rows.total} rows x {self._rows.p} columns"
        return f"<{type(self).__name__}: {size}, {len(self._rows.rows)} sites (rows not shown)>"

    def __reduce__(self) -> Any:
        raise TypeError("a model with raw rows cannot be pickled: pickle the results instead")


@error_boundaries
class FederatedGLM(GLM):
    """Another name for `GLM`, with the same constructors, methods and results.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response. Values outside `y_bounds` are clipped; a binomial response is clipped to [0, 1].
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula. The column that
        `offset` names must be a column of X, and gets no coefficient.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column except the constant, in the order of the columns or by name; values
        outside the bounds are clipped.
    family : {"gaussian", "binomial", "poisson"}
        Distribution of the response: linear, logistic or Poisson regression.
    y_bounds : (low, high), optional
        Public bounds of the response, which the linear and the Poisson model need; values outside the bounds
        are clipped.
    radius : float, optional
        Public number R: a row gets less weight if its norm is above R. The norm is in units in which the
        bounds of every column are [-1, 1]. By default R is the largest norm that the bounds allow, so that
        all rows have the same weight. A smaller R needs less noise.
    residual_clip : {"auto", "bounds"} or float, optional
        Clipping of the residuals of the linear and the Poisson model. With "auto" (default) the clipping
        threshold is chosen from noisy counts. The tail beyond the threshold is extrapolated from these
        counts, and the intervals allow for a bias from this extrapolation. With "bounds", no residual is
        clipped and no assumption about the tail is needed, but the noise is scaled to the full range of the
        response. A number is a clipping threshold in units of y. A threshold that you choose changes the
        target: the coefficients then solve the estimating equation with clipped residuals.
    offset : str, optional
        For the logistic and the Poisson model: name of a column with declared bounds that is added to the
        linear predictor. The column gets no coefficient.
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

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), unless an option of `fit` changes
    this. With ``trust="server"``, sites send sums without noise to a server that they trust, and everything
    that leaves the server has noise. With ``trust="secure-sum"`` the sites add the noise themselves and mask
    their sums, so that only the noisy total is revealed. The privacy report counts all releases of a fit.
    """
