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

    def limits(self) -> Limits:
        """Return the public bounds of arrays."""
        return glm_limits(self.family, self.bounds, self.y_bounds)

    def read(self, formula: str, schema: Schema) -> tuple[str, GLMOptions]:
        """Return the formula of the design, with the columns of the roles, and the options with its own."""
        check_choice(self.family, FitFamily, "family")
        formula, roles = self.roles.read(formula, schema, self.family)
        return roles.added(formula), replace(self, offset=roles.offset, effects=roles.effects)


@error_boundaries
class GLM(Model[GLMOptions]):
    r"""Linear, logistic or Poisson regression of one table, or of a federation.

    For several sites, use `from_arrays`, or `from_formula` with a federation.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response. Values outside `y_bounds` are clipped; a binomial response is clipped to [0, 1].
    X : array_like or DataFrame, shape (n, p)
        Features, used as they are: add a constant with `privinf.add_constant`, or use a formula. The column
        that `offset` names must be a column of X; it gets no coefficient.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column but the constant, in order or by name; values outside the bounds are
        clipped.
    family : {"gaussian", "binomial", "poisson"}
        Distribution of the response: linear, logistic or Poisson regression.
    y_bounds : (low, high), optional
        Public bounds of the response, which the linear and the Poisson model need; values outside the bounds
        are clipped.
    radius : float, optional
        R, the length above which a row gets less weight, in units in which every bounded column is in [-1,
        1]. Default: the longest row that the bounds allow. A smaller R means less noise.
    residual_clip : {"auto", "bounds"} or float, optional
        Clipping of residuals of the linear and the Poisson model. "auto" (default): noisy counts choose the
        clipping threshold, the tail beyond the threshold is extrapolated from these counts, and intervals
        allow for a bias from this extrapolation. "bounds": no residual is clipped, no assumption about the
        tail is needed, and the noise is scaled to the total range of the response. A number is a clipping
        threshold in units of y. A threshold that you choose changes the target.
    offset : str, optional
        For the logistic and the Poisson model: name of a column with bounds that is added to the linear
        predictor as it is; it has no coefficient.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
        every row that lacks a value of the model. Dropped rows add zero to every sum, so that their number
        stays private.
    trust : {"central", "server"}, optional
        Who is trusted with the rows. "central" (default): one curator, who holds the rows. "server": a
        server, to which the rows are sent. Secure sums need several sites, see `from_arrays`.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        A column does not match its declaration, a bound that the sensitivity needs is missing or invalid, or
        an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), unless an option of `fit` changes
    this. With ``trust="central"`` a curator holds the rows, and everything that leaves the curator has noise.
    With ``trust="server"`` sites send sums without noise to a server that they trust, and everything that
    leaves the server has noise. With ``trust="secure-sum"`` the sites add the noise themselves, so that only
    the noisy total is revealed (`privinf.federation.SecureServer` states the trust assumptions). The privacy
    report counts all releases of a fit.

    Linear models are fitted in one step from an initial estimate, and `privinf.glm.least_squares` has their
    equations and variances. Logistic and Poisson models are fitted in whitened units (`privinf.glm.curved`).
    The following applies to every fit with ``optimizer=``, a `radius`, sites as units or named targets.

    Let r be the clipped residual of a record, and w = min(1, R^2/||x||^2) its weight. The weight depends on
    x alone and does not change a correctly specified mean. The estimate solves sum w x r = 0. The estimate is
    computed in noisy rounds and one final Newton step, whose vector is D. The final step uses the noisy score
    and Hessian H at the last iterate theta_T, and the covariance of the estimate is known:

    .. math:: Cov = H^{-1} [meat/n + \sigma_s^2 I + (\sigma_H^2/2)(\|D\|^2 I + D D')] H^{-1}

    Residuals are clipped at a public threshold E. The default E is so large that no residual of a response
    within its bounds is clipped. If residuals are clipped, the fit estimates the root of the clipped score.

    References
    ----------
    "Communication efficient, differentially private distributed optimization using correlation-aware
    sketching", for `DOME`; the one-step intervals are this package's.

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
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated where the rows
            are, and its bounds follow from the schema. The term ``offset(column)`` in a formula is the same
            as the argument `offset`.
        data : DataFrame, any other table, or Federation
            Raw rows, or the federation whose sites hold them. The sites must have the same schema, and
            policies that allow `trust`.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included.
        family : {"gaussian", "binomial", "poisson"}
            Distribution of the response: linear, logistic or Poisson regression.
        radius : float, optional
            R, the length above which a row gets less weight, in units in which every bounded column is in
            [-1, 1]. Default: the longest row that the bounds allow. A smaller R means less noise.
        residual_clip : {"auto", "bounds"} or float, optional
            Clipping of residuals of the linear and the Poisson model. "auto" (default): noisy counts choose
            the clipping threshold, the tail beyond the threshold is extrapolated from these counts, and
            intervals allow for a bias from this extrapolation. "bounds": no residual is clipped, no
            assumption about the tail is needed, and the noise is scaled to the total range of the response. A
            number is a clipping threshold in units of y. A threshold that you choose changes the target.
        offset : str, optional
            For the logistic and the Poisson model: name of a column with bounds that is added to the linear
            predictor as it is; it has no coefficient.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. Dropped rows add zero to every sum, so that their
            number stays private. In a federation each site decides by the argument `missing` of its `Rows`.
        trust : {"central", "server", "secure-sum"}, optional
            Who is trusted with the rows. For a table: "central" (default), one curator, who holds the rows.
            For a federation: "server" (default), the sites send sums without noise to a server that they
            trust; or "secure-sum", the sites add the noise themselves, under masks, so that only the noisy
            total is revealed.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        GLM
            The model; nothing is released or charged yet.

        Raises
        ------
        SchemaError, SensitivityError
            The schema lacks bounds of a column that the formula needs.
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
        """Build the model from one pair (y, X) per site; a column ``const`` of ones is public.

        Parameters
        ----------
        sites : sequence or mapping of (y, X)
            Response and features of every site, by label or numbered from 0. The sites are simulated in this
            process; for real sites pass a federation to `from_formula`.
        bounds : sequence of (low, high), or mapping
            Public bounds of every column but the constant, in order or by name; values outside the bounds are
            clipped.
        family : {"gaussian", "binomial", "poisson"}
            Distribution of the response: linear, logistic or Poisson regression.
        y_bounds : (low, high), optional
            Public bounds of the response, which the linear and the Poisson model need; values outside the
            bounds are clipped.
        radius : float, optional
            R, the length above which a row gets less weight, in units in which every bounded column is in
            [-1, 1]. Default: the longest row that the bounds allow. A smaller R means less noise.
        residual_clip : {"auto", "bounds"} or float, optional
            Clipping of residuals of the linear and the Poisson model. "auto" (default): noisy counts choose
            the clipping threshold, the tail beyond the threshold is extrapolated from these counts, and
            intervals allow for a bias from this extrapolation. "bounds": no residual is clipped, no
            assumption about the tail is needed, and the noise is scaled to the total range of the response. A
            number is a clipping threshold in units of y. A threshold that you choose changes the target.
        offset : str, optional
            For the logistic and the Poisson model: name of a column with bounds that is added to the linear
            predictor as it is; it has no coefficient.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. Dropped rows add zero to every sum, so that their
            number stays private.
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
            The model; nothing is released or charged yet.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            An error about the rows of one site names the site.
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
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Give exactly one
            of `epsilon`, `mu` and `rho`. ``epsilon=inf`` adds no noise.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta wherever the
            noise is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        rng : None, int or Generator, optional
            None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not
            private; the results are marked as such.
        optimizer : Newton, DPSGD, DPAdam, RandomSketch or DOME, optional
            Default: the one-step estimators of linear (`privinf.glm.least_squares`) and of logistic and
            Poisson models (`privinf.glm.curved`). `Newton` runs a fixed number of noisy rounds; in a fit
            without noise, `Newton` runs to convergence. The other optimizers are of first order, and may
            return coefficients without intervals.
        public_seed : int
            Seed of batches and probes; fixed before the data are seen, and public.
        max_colluding : int
            Number of sites that may collude with the server in secure sums; their noise does not count toward
            the guarantee.
        relation : {"replace-one", "zero-out"}
            Neighboring tables of the guarantee. Under "zero-out" a record is replaced by one that contributes
            nothing. At the same budget the noise under "zero-out" is half as large as under "replace-one".
            The guarantee is weaker: a record that is replaced by another record is protected at twice the mu.
            The ledger and the policies of the sites must use the same relation.
        unit : {"record", "client"}
            What is replaced: a record, or all records of a site together. With "client", every site is in
            every batch, so every round costs budget. Without `client_clip`, the sensitivity of a sum is the
            sensitivity of one record times the number of records of the largest site.
        client_clip : float, optional
            C, the largest norm of the summed score of a site for ``unit="client"``; longer scores are shrunk
            to it. A replaced site then moves a sum by at most 2C. First-order optimizers need `client_clip`.
            Let a site have n_i records in B equal batches. Near the solution, the sum of the scores of a
            batch is about sqrt(n_i/B) times as long as the score of one record.
        cov_type : {"HC0", "HC1", "nonrobust", "cluster"}
            Covariance of the coefficients. "HC0" (default) is robust. "HC1", for the linear model, multiplies
            the sampling part of the covariance by n/(n - p). "nonrobust", for the logistic and the Poisson
            model, uses the Hessian as the meat of the sandwich. "nonrobust" is valid if the variance function
            of the model is correct, and needs no release of a meat, which otherwise takes a tenth of the
            budget of the final step. "cluster" clusters by the unit of the schema. "cluster" equals "HC0",
            because these models accept only one row per unit (`MomentOLS` accepts several).
        targets : sequence of str, optional
            Names of the coefficients to report; no other coefficient is reported. Targets can have intervals
            even if the columns are too many for a Hessian of all coefficients. The final step uses only the
            columns of `targets`, the columns of `nuisance` and the constant, and p in the rule for intervals
            counts these columns. The step assumes that no other column is correlated with the column of a
            target, given these columns and in rows weighted by the curvature.
        nuisance : sequence of str
            Names of further coefficients, whose columns take part in the final step because they may be
            correlated with the columns of `targets`.
        margins : bool
            Whether to keep a tenth of the budget for average marginal effects (`get_margeff`) of a logistic
            or Poisson model.
        intervals : {"required", "optional"}
            "required" (default) refuses a fit that cannot have intervals, because its rows and budget are too
            few for its coefficients, before anything is charged. "optional" returns coefficients without
            standard errors. With "optional" a fit that cannot have intervals uses `DPSGD`. A fit by a named
            `optimizer` is never refused for a lack of intervals.
        checkpoint : path, optional
            Over a federation: folder of this call alone, in which every query and release is stored. If the
            call is stopped, the same call resumes it and pays for no release twice. With ``trust="server"``
            the folder holds the secret key of the noise: protect it as you protect the rows.
        calibration : {"exact", "classic"}, optional
            How `epsilon` and `delta` determine the noise. "exact" (default) is the exact account of Gaussian
            noise. "classic" is the textbook formula, to reproduce published results only.
        progress : bool, optional
            Whether to show a progress bar of the sums that are released; default: on a terminal only, after
            two seconds.

        Returns
        -------
        GLMResults
            Coefficients, covariance, tests, prediction and the privacy report. The class is the same for one
            table and for a federation.

        Raises
        ------
        ArgumentError
            The request is wrong; nothing was spent.
        NotAvailableError
            Intervals are required and not possible; nothing was spent.
        BudgetExceededError
            The fit would exceed the ledger's limit; nothing was spent.
        ConvergenceError, NotPositiveDefiniteError
            Without noise: there is no finite estimate, or columns are collinear.
        StorageError
            The folder of `checkpoint` belongs to a different fit, or lacks the key of the noise of its fit.

        Notes
        -----
        **Privacy.** `privacy` counts every release. Settings that were chosen by private data are not
        charged unless the fits behind that choice are in the same ledger; the summary lists the charges.

        Intervals of logistic and Poisson models are quantiles of draws that account for the noise. If the
        smallest eigenvalue of the Hessian is small relative to the noise of the Hessian, the intervals are
        quantiles of a posterior with a named prior (benchmarks/results/logistic.md). The rest of these notes
        applies to fits with ``optimizer=``, not to the default. Intervals need ``p^1.5 <= 0.1 n mu_H``, where
        mu_H is the budget of the final Hessian. If sites are the units, n is the number of all rows divided
        by the number of rows of the largest site. If p is too large for intervals, the total budget goes to
        the coefficients, and the fit has no intervals. A fit whose `client_clip` may shrink the score of a
        site has no intervals either, because the bias from shrinking is not known. Standard errors treat rows
        as independent, also those of the same site.

        A fit has not converged if its last Newton step has a root mean square above 1.5 in standard errors of
        this step. Such a fit has coefficients only, unless the remaining error is negligible
        (`privinf.glm.convergence`; benchmarks/results/settled.md). Reasons for a lack of convergence are rare
        events, strong signals, and a clip that is small relative to the response.
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
    """Another name of `GLM`, with the same constructors and results.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response. Values outside `y_bounds` are clipped; a binomial response is clipped to [0, 1].
    X : array_like or DataFrame, shape (n, p)
        Features, used as they are: add a constant with `privinf.add_constant`, or use a formula. The column
        that `offset` names must be a column of X; it gets no coefficient.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column but the constant, in order or by name; values outside the bounds are
        clipped.
    family : {"gaussian", "binomial", "poisson"}
        Distribution of the response: linear, logistic or Poisson regression.
    y_bounds : (low, high), optional
        Public bounds of the response, which the linear and the Poisson model need; values outside the bounds
        are clipped.
    radius : float, optional
        R, the length above which a row gets less weight, in units in which every bounded column is in
        [-1, 1]. Default: the longest row that the bounds allow. A smaller R means less noise.
    residual_clip : {"auto", "bounds"} or float, optional
        Clipping of residuals of the linear and the Poisson model. "auto" (default): noisy counts choose the
        clipping threshold, the tail beyond the threshold is extrapolated from these counts, and intervals
        allow for a bias from this extrapolation. "bounds": no residual is clipped, no assumption about the
        tail is needed, and the noise is scaled to the total range of the response. A number is a clipping
        threshold in units of y. A threshold that you choose changes the target.
    offset : str, optional
        For the logistic and the Poisson model: name of a column with bounds that is added to the linear
        predictor as it is; it has no coefficient.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
        every row that lacks a value of the model. Dropped rows add zero to every sum, so that their number
        stays private.
    trust : {"central", "server"}, optional
        Who is trusted with the rows. "central" (default): one curator, who holds the rows. "server": a
        server, to which the rows are sent. Secure sums need several sites, see `from_arrays`.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), unless an option of `fit` changes
    this. With ``trust="server"`` sites send sums without noise to a server that they trust, and everything
    that leaves the server has noise. With ``trust="secure-sum"`` the sites add the noise themselves, so that
    only the noisy total is revealed. The privacy report counts all releases of a fit.
    """
