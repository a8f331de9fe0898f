"""Linear and logistic regression on hundreds of columns: a sparse fit and debiased intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from privinf.accounting import Ledger
from privinf.accounting.purposes import charged_for
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import NotAvailableError
from privinf.federation.charges import stating_charges
from privinf.fitting.covariances import check_made
from privinf.fitting.model import SITES_NOW, STATSMODELS, Model, SumModelOptions
from privinf.fitting.rows import Limits, ModelRows
from privinf.lasso.heterogeneous.results import SiteResults
from privinf.lasso.plan import Accounting, Center, FitKind, LassoOptions, Targets
from privinf.lasso.results import LassoResults
from privinf.lasso.rows import LassoFamily, LassoRows, lasso_limits, lasso_rows
from privinf.lasso.running import (
    NO_ROW_COUNT,
    REFUSED,
    fit_by_paper,
    fit_heterogeneous,
    fit_jointly,
    fit_logistic,
    fit_logistic_by_site,
    fit_logistic_securely,
    fit_securely,
)
from privinf.progress import progress_bar
from privinf.schema import Schema
from privinf.schema.arrays import check_same_labels
from privinf.schema.design import formula_text
from privinf.typing import (
    ArrayLike,
    Bounds,
    ColumnLike,
    ColumnsLike,
    CovWord,
    Missing,
    Multipliers,
    Pair,
    Precision,
    RngLike,
    ScoreTarget,
    SitePairs,
    Table,
    Trust,
    Variant,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LassoModelOptions(SumModelOptions):
    """Arguments of the constructors of `DebiasedLasso`, which describe them."""

    x_bound: float | None = None
    family: LassoFamily = "gaussian"
    x_scale: ArrayLike | None = None

    def limits(self) -> Limits:
        """Return the public bounds of arrays."""
        return lasso_limits(self.x_bound, self.bounds, self.y_bounds, self.family)


@error_boundaries
class DebiasedLasso(Model[LassoModelOptions]):
    r"""Sparse linear or logistic regression with debiased intervals, for the rows of one or more sites.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response.
    X : array_like or DataFrame, shape (n, p)
        Features. `X` is not copied, so do not change it before the fit. The fit checks again that all values
        of `X` are finite. A constant, that is a column of ones named ``const`` (see `privinf.add_constant`),
        is always in the fit; it is not selected or debiased. Without a constant, the response and the columns
        of the fit are centered at released means, which has the same effect.
    x_bound : float, optional
        Public bound of all columns: every column is in [-x_bound, x_bound], and values outside the bounds are
        clipped. Pass either `x_bound` or `bounds`.
    bounds : sequence of (low, high), or mapping, optional
        Public bounds of every column except the constant, in the order of the columns or by name, instead of
        `x_bound`; values outside the bounds are clipped.
    y_bounds : (low, high), optional
        Public bounds of the response, required for ``family="gaussian"`` and not passed otherwise. The bounds
        determine the grid on which the fit releases the scale of the residuals. The response is clipped only
        to an interval that is 16 times as wide as these bounds.
    family : {"gaussian", "binomial"}
        With "gaussian" the regression is linear. With "binomial" the regression is logistic: the response is
        0 or 1, or a factor of two levels. A binomial response in an array is clipped to [0, 1]. A schema that
        declares other bounds for a binomial response is refused. A logistic fit always has an intercept,
        which is not debiased.
    x_scale : float or array_like, shape (p,), optional
        Public guesses of the standard deviations of the columns. These guesses are used to rank columns for
        selection. The default is a sixth of the width of the bounds. The standard deviations of the selected
        columns and of the targets are released by the fit.
    sites : array_like, shape (n,), optional
        Label of the site of every row, if the rows of several sites are in one table. By default all rows
        belong to one curator.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop the
        rows that lack a value of the model from every sum. A fit with "drop" spends 1% of its budget on a
        noisy number of complete rows.
    trust : {"central", "server", "secure-sum"}, optional
        Who is trusted with the rows. With "central" (the default without `sites`) one curator holds the rows.
        With "server" (the default with `sites`) the sites send sums without noise to a server that they
        trust. With "secure-sum" the sites add the noise themselves and mask their sums, so that only the
        noisy total is revealed. Secure sums need at least two sites, and a list of names or positions as
        `targets`.
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
    **Privacy.** Neighboring tables differ in one record (replace-one). With ``trust="central"`` one curator
    holds the rows. With ``trust="server"``, sites send sums without noise to a server that they trust.
    Everything that leaves the curator or the server has noise. With ``trust="secure-sum"`` the sites add
    noise to their sums and mask them (`privinf.federation.SecureServer` states the trust assumptions). The
    privacy report counts all releases of a fit. The response is clipped to an interval 16 times as wide as
    `y_bounds`, because clipping to `y_bounds` itself would bias the coefficients. Residuals are clipped in
    every sum, so the sensitivity of a sum does not depend on `y_bounds`.

    Let b0 be the coefficients of the noisy sparse fit. The debiased coefficient of target j is ``b_j = b0_j +
    s_j / kappa_j``. Here s_j is a noisy sum of clipped scores: residuals of the sparse fit times residuals of
    the nodewise regression of column j. The slope kappa_j of this sum is released too. The estimator differs
    from the paper in four points: the scores of all targets are clipped jointly, columns are selected by
    clipped products, the refit is preconditioned, and the slopes are released. Its intervals are 0.3 to 0.4
    times as long as the intervals of the paper's algorithms.

    Fits with secure sums differ from other fits only in the selection of columns. With
    ``trust="central"`` or ``trust="server"`` columns are selected one by one with noise (peeling), which
    needs access to sums without noise. With secure sums, the fit releases the products of the residual with
    all p columns once, with Gaussian noise. It selects the columns with the largest noisy products. The
    vector of the p products of a record is shrunk to a norm of at most C, so the l2 sensitivity is 2C. C
    grows as sqrt(p). With secure sums the detection limit is higher than in other fits, because the noise of
    the selection grows as sqrt(p). `LassoResults.picks_from` reports this limit, and results warn if a
    relevant column may be missed. In a logistic fit with secure sums, each of the p products is clipped
    separately instead, and their vector is not shrunk.

    With ``family="binomial"`` the sparse fit is computed by Newton steps. For debiasing, one vector is
    released: the score of the targets. The score of a target uses the part of its column that is orthogonal
    to the constant and to the other columns of the fit. Two columns are orthogonal here if their inner
    product is zero when each row is weighted by the curvature of the log-likelihood. The score is multiplied
    by the inverse of a released matrix of secant slopes. The module `privinf.lasso.debiasing` documents the
    equation and the variance. No residual is clipped, because a residual of a logistic regression is at most
    1 in absolute value. The weights of rows depend on x alone and are the same in the score and in the
    curvature, so they do not change the coefficients if the model of the mean is correct. As in every
    logistic regression, omitting a relevant column shrinks the coefficients of other columns toward zero.
    With ``heterogeneous=True`` some columns have the same coefficients at all sites. These shared columns are
    selected on the rows of all sites. Each site then selects columns of its own, fits all columns, and
    debiases its targets on its own rows.

    With ``missing="drop"`` the fit describes the complete rows. The number of complete rows is private; it
    cancels in the coefficients and in the standard errors. Clipping thresholds, quantiles and the numbers of
    neighbors are computed from a noisy number of complete rows, which the results report. Fits with
    `bootstrap_draws` or ``variant="paper"`` refuse ``missing="drop"``.

    References
    ----------
    "Differentially private federated learning: servers trustworthiness, estimation, and statistical
    inference", Algorithms 2-6.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20_000, 40))
    >>> y = X[:, 0] - X[:, 5] + 0.5 * rng.standard_normal(20_000)
    >>> model = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-6, 6))
    >>> fit = model.fit(epsilon=2.0, delta=1e-5, sparsity=2, targets=[0, 5, 9], rng=0)
    >>> fit.selected, bool((abs(fit.params - [1.0, -1.0, 0.0]) < 4 * fit.bse).all())
    (('x1', 'x6'), True)
    """

    _rows: LassoRows
    _needs_independent_columns = False  # a sparse fit selects among columns

    @refuses({"machines": SITES_NOW})
    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        x_bound: float | None = None,
        bounds: Bounds = None,
        y_bounds: Pair | None = None,
        family: LassoFamily = "gaussian",
        x_scale: ArrayLike | None = None,
        sites: ColumnLike | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        check_same_labels(X, sites)
        options = LassoModelOptions(
            x_bound=x_bound,
            bounds=bounds,
            y_bounds=y_bounds,
            family=family,
            x_scale=x_scale,
            sites=sites,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    @refuses({"machines": SITES_NOW})
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        family: LassoFamily = "gaussian",
        sites: str | None = None,
        x_scale: ArrayLike | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a formula and a table, or a federation whose sites hold the rows.

        Parameters
        ----------
        formula : str
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated by the holder of
            the rows, and the bounds of its terms follow from the schema. The constant of the formula is
            always in the fit; it is not selected or debiased. Without a constant, the response and the
            columns are centered at released means.
        data : DataFrame, any other table, or Federation
            Table with the raw rows, or a federation of sites that hold the rows. The sites of a federation
            must have the same schema, and policies that allow the trust model.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included. The
            response is clipped to its bounds.
        family : {"gaussian", "binomial"}
            With "gaussian" the regression is linear. With "binomial" the regression is logistic: the response
            is 0 or 1, or a factor of two levels. A binomial response in an array is clipped to [0, 1]. A
            schema that declares other bounds for a binomial response is refused. A logistic fit always has an
            intercept, which is not debiased.
        sites : str, optional
            Name of the column of the table that holds the site of every row. By default all rows belong to
            one curator.
        x_scale : float or array_like, shape (p,), optional
            Public guesses of the standard deviations of the columns. These guesses are used to rank columns
            for selection. The default is a sixth of the width of the bounds. The standard deviations of the
            selected columns and of the targets are released by the fit.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            the rows that lack a value of the formula from every sum. A fit with "drop" spends 1% of its
            budget on a noisy number of complete rows. In a federation each site chooses its own handling, by
            the argument `missing` of its `Rows`.
        trust : {"central", "server", "secure-sum"}, optional
            Who is trusted with the rows. With "central" (the default for a table without `sites`) one curator
            holds the rows. With "server" (the default for several sites) the sites send sums without noise to
            a server that they trust. With "secure-sum" the sites add the noise themselves and mask their
            sums, so that only the noisy total is revealed. Secure sums need at least two sites, and a list of
            names or positions as `targets`.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        DebiasedLasso
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError
            Raised if the formula needs columns or bounds that the schema does not declare.
        """
        options = LassoModelOptions(
            family=family,
            sites=sites,
            x_scale=x_scale,
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
        x_bound: float | None = None,
        bounds: Bounds = None,
        y_bounds: Pair | None = None,
        family: LassoFamily = "gaussian",
        x_scale: ArrayLike | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from one pair (y, X) per site.

        Parameters
        ----------
        sites : sequence or mapping of (y, X)
            Response and features of every site: a mapping from labels of sites to pairs, or a sequence, whose
            sites are numbered from 0. The sites are simulated in this process; for real sites pass a
            federation to `from_formula`.
        x_bound : float, optional
            Public bound of all columns: every column is in [-x_bound, x_bound], and values outside the bounds
            are clipped. Pass either `x_bound` or `bounds`.
        bounds : sequence of (low, high), or mapping, optional
            Public bounds of every column except the constant, in the order of the columns or by name, instead
            of `x_bound`; values outside the bounds are clipped.
        y_bounds : (low, high), optional
            Public bounds of the response, required for ``family="gaussian"``. The bounds determine the grid
            on which the fit releases the scale of the residuals. The response is clipped only to an interval
            that is 16 times as wide as these bounds.
        family : {"gaussian", "binomial"}
            With "gaussian" the regression is linear. With "binomial" the regression is logistic: the response
            is 0 or 1, or a factor of two levels. A binomial response in an array is clipped to [0, 1]. A
            schema that declares other bounds for a binomial response is refused. A logistic fit always has an
            intercept, which is not debiased.
        x_scale : float or array_like, shape (p,), optional
            Public guesses of the standard deviations of the columns. These guesses are used to rank columns
            for selection. The default is a sixth of the width of the bounds. The standard deviations of the
            selected columns and of the targets are released by the fit.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            the rows that lack a value of the model from every sum. A fit with "drop" spends 1% of its budget
            on a noisy number of complete rows.
        trust : {"server", "secure-sum"}, optional
            With "server" (default) the sites send sums without noise to a server that they trust. With
            "secure-sum" the sites add the noise themselves and mask their sums, so that only the noisy total
            is revealed; this mode needs the optional dependencies ``privinf[federation]``. Secure sums need
            at least two sites, and a list of names or positions as `targets`.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        DebiasedLasso
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        ArgumentError
            Raised if there is no site, if a site has no rows, or if the sites have different columns.
        """
        options = LassoModelOptions(
            x_bound=x_bound,
            bounds=bounds,
            y_bounds=y_bounds,
            family=family,
            x_scale=x_scale,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_sites(sites, options)

    def _set_rows(self, model_rows: ModelRows, options: LassoModelOptions) -> None:
        """Keep the sites of the rows, with the units of their columns."""
        assert options.trust is not None
        divided = model_rows.split(options.sites)
        rows = lasso_rows(divided, options.trust, options.y_bounds, options.x_scale, options.family)
        super()._set_rows(rows, options)

    @refuses(REFUSED)
    @refuses(STATSMODELS, NotAvailableError)
    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        sparsity: int | Literal["auto"] = "auto",
        targets: Targets = "selected",
        variant: Variant = "default",
        heterogeneous: bool = False,
        max_sparsity: int | None = None,
        shared_sparsity: int | None = None,
        accounting: Accounting = "joint",
        precision: Precision = "pooled",
        precision_sparsity: int | None = None,
        iterations: int | None = None,
        clip: float | None = None,
        refit: bool | None = None,
        center: Center | None = None,
        target: ScoreTarget | None = None,
        bootstrap_draws: int | None = None,
        bootstrap_multipliers: Multipliers = "rademacher",
        restricted_eigenvalues: bool = False,
        noise_variance: bool = False,
        bias_bound: bool = False,
        shares: Mapping[str, float] | None = None,
        extra_shares: Mapping[str, float] | None = None,
        paper_options: Mapping[str, Any] | None = None,
        max_colluding: int = 0,
        cov_type: CovWord | None = None,
        progress: bool | None = None,
    ) -> LassoResults | SiteResults:
        """Fit the sparse model and debias the targets.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. A fit without noise is the
            debiased estimate, or least squares if there are few columns.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`. A budget in mu is available only
            for secure sums, where all noise is Gaussian.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`. A budget in rho is
            not available for the paper's variant.
        rng : None, int or Generator, optional
            Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
            simulation noise, which is not private, and the results are marked as NOT PRIVATE.
        sparsity : int or "auto"
            Number of columns in the sparse fit. With "auto" (default) columns are selected in blocks of five,
            and each block is fitted at a low cost. Selection ends when fewer than three coefficients of a
            block are large relative to their errors, or at `max_sparsity` columns. The final fit then uses
            the rest of the budget. The final fit keeps the columns whose coefficients differ from zero at the
            level 5%, with Bonferroni's correction for all p columns. Heterogeneous fits and
            ``variant="paper"`` do not accept "auto". With few rows, name one target in `targets`: its
            interval is far narrower than the intervals of several targets, which share the budget.
        targets : sequence of names or positions, "selected", or "all"
            Coefficients to debias, which get intervals. All targets share one budget, so name few targets.
            With "selected" (default) the targets are the columns of the sparse fit; heterogeneous fits do not
            accept it. With "all" every column is a target. With secure sums, pass a list of names or
            positions.
        variant : {"default", "paper"}
            Variant of the algorithms. The choice "paper" runs the algorithms of the paper, for comparisons;
            it needs the module ``studies.paper.model``.
        heterogeneous : bool
            Whether coefficients may differ between sites. The coefficients of site i are then u + v_i, where
            u has `shared_sparsity` nonzero entries and v_i has ``sparsity - shared_sparsity`` nonzero
            entries. The results cover all sites. With ``family="binomial"`` the intercept may differ between
            sites too.
        max_sparsity : int, optional
            Largest number of columns that ``sparsity="auto"`` may select. The default is the largest number
            up to 50 for which the noise of the Gram matrix is below a quarter of the mean square of a column.
            The default is computed from public numbers. With ``family="binomial"`` the default is at most 10
            columns, and the selection ends only when `max_sparsity` columns are selected. Secure sums need
            `max_sparsity`.
        shared_sparsity : int, optional
            Number of nonzero entries of the part u of the coefficients that all sites share, for
            ``heterogeneous=True`` and for ``variant="paper"``.
        accounting : {"joint", "per-interval"}
            How the budget is divided over intervals. With "joint" (default) the budget is for all intervals
            together. With "per-interval" every interval has the total budget for its own releases, as in the
            paper; only linear heterogeneous fits and ``variant="paper"`` accept it. A budget per interval is
            not a joint guarantee: ledgers and privacy reports always count the joint cost of all intervals.
            It does not count all of the shared releases either: see `SiteResults.interval_epsilon`.
        precision : {"pooled", "machine"}
            Which rows the nodewise regressions of heterogeneous fits use. With "pooled" (default) the
            nodewise regressions are fitted to the rows of all sites. With "machine" they are fitted to the
            rows of each site separately, for sites whose columns have different distributions. The fit then
            releases the means of the columns at each site, and centers the columns there. Logistic fits
            always use the rows of each site, because the weights of the rows depend on the site's
            coefficients.
        precision_sparsity : int, optional
            Number of other columns (neighbors) that each nodewise regression uses, in addition to the
            selected columns (double selection). By default, a linear fit uses the largest number from 4 to 40
            that the budget, the number of rows and the number of targets allow, and a logistic fit uses 2 to
            25. Two kinds of fits have a fixed default: 4 for linear heterogeneous fits, and 0 for other fits
            with ``targets="all"``. `LassoResults.explained_shares` has, for each target, the share of its
            variance that the nodewise regression explains. The results warn if more neighbors are needed.
            With ``variant="paper"``, `precision_sparsity` is the number of nonzero entries in a column of the
            precision matrix (default 5).
        iterations : int, optional
            Number of blocks in which columns are selected, one block after the other. The default is 3, or 2
            with ``family="binomial"``. The columns of a block are selected by their products with the
            residuals of a fit to all earlier blocks. With ``variant="paper"``, `iterations` is T of the
            paper, by default the logarithm of the total number of rows, rounded up. With secure sums, each
            block needs a separate release, which takes its share of the budget. With few rows and many
            columns, a selection in one block detects more of the relevant columns. If all columns are
            correlated, a selection in several blocks detects more of them.
        clip : float, optional
            Clipping threshold of residuals and products in the selection and in the refit, in multiples of
            the released scale of the residuals; default 1.5. With ``variant="paper"`` the threshold is R of
            the paper, in units of y. Linear fits with secure sums do not clip products one by one, but shrink
            the vector of the products of a record to a limited norm.
        refit : bool, optional
            For ``variant="paper"``: whether the sparse fit ends with least squares on the selected columns.
            Other fits always end with least squares.
        center : {"declared", "released"}, optional
            Initial centers of the columns: the middles of their bounds ("declared"), or released means of all
            columns ("released"). Released means take a share of the budget (``means``, 0.04). They help to
            detect columns whose mean is far from the middle of the bounds, such as indicators of rare levels.
            With ``targets="all"`` or ``heterogeneous=True`` the default is "released". Heterogeneous fits
            spend 0.05 to 0.09 of the budget, also for means of the residuals of each site, so that a site may
            have a constant of its own. If you choose "declared" with one of these two options, the fitted
            regression passes through the middle of all bounds, and a note states this.
        target : {"mean", "robust"}, optional
            Target of the coefficients. With "mean" (default for named and selected targets) the clipping
            threshold of the scores is chosen from noisy counts of their tail. The coefficients then describe
            the mean of the response, for any distribution of errors. With "robust" the clipping threshold is
            optimal for normal errors. The intervals of "robust" are narrower, but if errors are skewed, the
            coefficients do not describe the mean of the response. Fits with ``targets="all"`` or
            ``variant="paper"`` and heterogeneous fits always use "robust".
        bootstrap_draws : int, optional
            Number of draws of the private bootstrap (Algorithm 7), for
            ``simultaneous(method="private-bootstrap")``. The alternative,
            ``simultaneous(method="simulation")``, draws from the released covariance and costs nothing.
        bootstrap_multipliers : {"rademacher", "gaussian"}
            Distribution of the multipliers of the private bootstrap.
        restricted_eigenvalues : bool
            Whether the fit also releases the restricted eigenvalues. The result has them as its attribute
            `restricted_eigenvalues`.
        noise_variance : bool
            Whether the fit also releases the variance of the errors. The result has this variance as its
            attribute `noise_variance`.
        bias_bound : bool
            Whether the fit also computes a bound of the bias. The result has this bound as its attribute
            `bias_bound`. The bound needs `restricted_eigenvalues`.
        shares : mapping, optional
            Shares of the budget for the releases of the fit; they add up to 1. The keys are ``selection``,
            ``refit``, ``scales``, ``neighbours``, ``gram``, ``slopes`` and ``score``. Heterogeneous fits also
            need the keys ``own_selection`` and ``own_refit``. Fits that release means also need the key
            ``means``. The share ``missed`` (0.05) pays for a first test for relevant columns outside the fit,
            and the share ``score`` pays for further such tests. ``targets="all"`` has no key ``missed``. With
            ``family="binomial"`` the keys are the attributes of `privinf.lasso.plan.LogisticShares`, or of
            `privinf.lasso.plan.LogisticSiteShares` for heterogeneous fits.
        extra_shares : mapping, optional
            Shares of the total budget for ``bootstrap`` (0.15), ``eigenvalues`` (0.05) and ``noise_variance``
            (0.03). The rest of the budget is divided by `shares`.
        paper_options : mapping, optional
            Options for ``variant="paper"``: any of the arguments step, norm_bound, precision_clip, form,
            variance, multiplier_draws and public_seed of `studies.paper.model.fit_paper`.
        max_colluding : int
            Number of sites that may collude with the server in secure sums. The noise of this number of sites
            does not count toward the guarantee.
        cov_type : {"HC0"}, optional
            Kind of the covariance of the debiased coefficients. The only choice is "HC0", which allows for
            heteroskedasticity.
        progress : bool, optional
            Whether to show a progress bar over the releases of the fit. By default the bar appears after two
            seconds, on a terminal only.

        Returns
        -------
        LassoResults
            Results with the debiased coefficients of the targets and the sparse fit. With
            ``heterogeneous=True`` the method returns `SiteResults`, which have the coefficients of all sites
            under names such as ``x3[site]``. The method ``agreement()`` of these results compares the sites,
            and ``site(label)`` returns the `LassoResults` of one site.

        Raises
        ------
        ArgumentError, BudgetExceededError
            Raised if an argument is invalid, or if the fit would exceed the limit of the ledger; nothing was
            spent.
        SchemaError
            Raised if the rows were changed after the model was built and now have missing or infinite values;
            nothing was spent.
        NotAvailableError
            Raised if no fit is possible with this number of rows and columns and this budget; nothing was
            spent. With ``variant="paper"`` the error is also raised if the noise is too large for an
            estimate. In this case the cost of the releases stays in the ledger.

        Notes
        -----
        If the noise is too large for the slopes of some targets, these targets have no intervals (see
        `LassoResults.hidden_targets`). The fit returns the results of all other targets. The result has no
        coefficients if no column is selected (with ``targets="selected"``) or if the events of a logistic fit
        are too rare. In both cases the rest of the budget is not spent.
        """
        options = LassoOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            sparsity=sparsity,
            targets=targets,
            variant=variant,
            heterogeneous=heterogeneous,
            max_sparsity=max_sparsity,
            shared_sparsity=shared_sparsity,
            accounting=accounting,
            precision=precision,
            precision_sparsity=precision_sparsity,
            iterations=iterations,
            clip=clip,
            refit=refit,
            center=center,
            target=target,
            bootstrap_draws=bootstrap_draws,
            bootstrap_multipliers=bootstrap_multipliers,
            restricted_eigenvalues=restricted_eigenvalues,
            noise_variance=noise_variance,
            bias_bound=bias_bound,
            shares=shares,
            extra_shares=extra_shares,
            paper_options=paper_options,
            max_colluding=max_colluding,
            cov_type=cov_type,
        )
        check_made(options.cov_type, "HC0", refused=NO_ROW_COUNT)
        kind = options.kind(self._rows.trust, self._rows.family)
        bar = progress_bar(progress, type(self).__name__, unit="sum")
        charges = stating_charges(self.ledger, delta=options.delta, resumable=False)
        with bar, charged_for(f"{type(self).__name__}: {formula_text(self._rows.design)}"), charges:
            return self._fitted(kind, options)

    def _fitted(self, kind: FitKind, options: LassoOptions) -> LassoResults | SiteResults:
        """Return the fit of one kind."""
        if kind == "paper":
            return fit_by_paper(self._rows, self.ledger, options, options.heterogeneous, options.rng)
        if kind == "heterogeneous":
            return fit_heterogeneous(self._rows, self.ledger, options, options.rng)
        if kind == "heterogeneous-binomial":
            return fit_logistic_by_site(self._rows, self.ledger, options, options.rng)
        fits = {
            "secure": fit_securely,
            "binomial": fit_logistic,
            "secure-binomial": fit_logistic_securely,
            "joint": fit_jointly,
        }
        return fits[kind](self._rows, self.ledger, options, options.rng)

    def __repr__(self) -> str:
        size = f"{self._rows.total} rows x {len(self._rows.names)} columns"
        return f"<{type(self).__name__}: {size}, {len(self._rows.rows)} sites (rows not shown)>"

    def __reduce__(self) -> Any:
        raise TypeError("a model with raw rows cannot be pickled: pickle the results instead")
