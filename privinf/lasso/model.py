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
    r"""Sparse linear or logistic regression with debiased intervals over one or more sites.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response.
    X : array_like or DataFrame, shape (n, p)
        Features. `X` is not copied: do not change `X` before the fit. The fit checks again that all values
        are finite. A column of ones named ``const`` (`privinf.add_constant`) is fitted without being selected
        or debiased. Without such a column, the response and the columns of the fit are centered at released
        means, which has the same effect as a constant.
    x_bound : float, optional
        Every column lies in [-x_bound, x_bound]; values outside the bounds are clipped. Give it or `bounds`.
    bounds : sequence of (low, high), or mapping, optional
        Public bounds of every column except the constant, in the order of the columns or by name, instead of
        `x_bound`; values outside the bounds are clipped.
    y_bounds : (low, high), optional
        Public bounds of the response, which ``family="gaussian"`` needs. The bounds set the grid on which the
        fit releases the scale of the residuals. The response is clipped only at 16 times the width of the
        bounds.
    family : {"gaussian", "binomial"}
        "binomial": logistic regression of a response of 0 and 1, or of a factor of two levels, without
        `y_bounds`. Arrays are clipped to [0, 1]; a schema that declares other bounds is refused. A binomial
        fit always has an intercept, which is fitted and not debiased.
    x_scale : float or array_like, shape (p,), optional
        Public guesses of the standard deviations of the columns, for ranking columns. Default: a third of the
        half-width of the bounds. The fit releases the scales of the selected columns and of the targets.
    sites : array_like, shape (n,), optional
        Label of the site of every row, where the rows of several sites are in one place. Default: one
        curator.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop the
        rows that lack a value of the model from every sum. A fit with "drop" releases the number of complete
        rows first, for 1% of its budget.
    trust : {"central", "server", "secure-sum"}, optional
        Who is trusted with the rows. With "central" (the default without `sites`) one curator holds the rows.
        With "server" (the default with `sites`) the sites send sums without noise to a server that they
        trust. With "secure-sum" the sites add the noise themselves and mask their sums, so that only the
        noisy total is revealed. Secure sums need two sites or more, and named targets.
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
    **Privacy.** Neighboring tables differ in one record (replace-one). With ``trust="central"`` a curator
    holds the rows, and with ``trust="server"`` sites send sums without noise to a server that they trust.
    Everything that leaves the curator or the server has noise. With ``trust="secure-sum"`` the sites add
    noise to their sums and mask them (`privinf.federation.SecureServer` states the trust assumptions). The
    privacy report counts all releases of a fit. The response is clipped at 16 times the width of `y_bounds`
    and not at `y_bounds`, because clipping at `y_bounds` would bias the coefficients. Residuals are clipped
    in every sum, so the sensitivity of a sum does not depend on `y_bounds`.

    With the noisy sparse fit b0 and the nodewise regression w_j of target j, the debiased coordinate is ``b_j
    = b0_j + s_j / kappa_j`` (see `privinf.lasso.scores` for s, kappa and the variance). This design differs
    from the paper in four points: one joint clip of the scores, clipped products for selection, a
    preconditioned refit, and released slopes. The intervals of this design are 0.3 to 0.4 times as long as
    those of the paper's algorithms.

    Fits by secure sums differ from other fits only in the selection of columns. With ``trust="central"`` or
    ``trust="server"`` columns are selected by peeling, which needs sums without noise. Secure sums instead
    make one Gaussian release of the products with all p columns, and the columns with the largest products
    are selected (`privinf.lasso.selection`). Each record's vector of products is shrunk to a length of C = R
    sigma sqrt(p), so the l2 sensitivity is 2C. The cost is a higher detection limit: the noise of the
    selection grows as sqrt(p), `LassoResults.picks_from` reports this limit, and results warn if a signal may
    be missed. A logistic fit selects from clipped products instead of shrunk vectors, because their clip
    depends on x alone.

    With ``family="binomial"`` the sparse fit uses Newton steps. Debiasing releases one vector, the score of
    the targets. The directions of this score are orthogonal to the constant and to the other columns of the
    fit. The inner product is that of the Gram matrix with rows weighted by the curvature. The score is
    multiplied by the inverse of its released secant matrix. `privinf.lasso.debiasing` has the equation and
    the variance. No residual is clipped, because abs(y - p) <= 1. Rows are weighted by x alone, with the same
    weights in score and curvature, so the weights do not change the coefficients of a correctly specified
    mean. Omitting a relevant column attenuates the coefficients of the other columns, as in every logistic
    regression.

    With ``missing="drop"`` the fit describes the complete rows. The number of complete rows, which is
    private, cancels in coefficients and standard errors. Clips, quantiles and numbers of neighbors use a
    noisy estimate of this number, which results report (`privinf.lasso.sums`). `bootstrap_draws` and the
    paper's variant refuse ``missing="drop"``.

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
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated where the rows
            are, and its bounds follow from the schema. The constant of the formula is fitted without being
            selected or debiased. Without a constant, the columns are centered.
        data : DataFrame, any other table, or Federation
            Raw rows, or the federation whose sites hold them. The sites must have the same schema, and
            policies that allow `trust`.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included. The
            response is clipped to its bounds.
        family : {"gaussian", "binomial"}
            "binomial": logistic regression of a response of 0 and 1, or of a factor of two levels, without
            `y_bounds`. Arrays are clipped to [0, 1]; a schema that declares other bounds is refused. A
            binomial fit always has an intercept, which is fitted and not debiased.
        sites : str, optional
            Name of the column of the table that holds the site of every row. Default: one curator.
        x_scale : float or array_like, shape (p,), optional
            Public guesses of the standard deviations of the columns, for ranking columns. Default: a third of
            the half-width of the bounds. The fit releases the scales of the selected columns and of the
            targets.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            the rows that lack a value of the formula from every sum. A fit with "drop" releases the number of
            complete rows first, for 1% of its budget. In a federation each site decides by the argument
            `missing` of its `Rows`.
        trust : {"central", "server", "secure-sum"}, optional
            Who is trusted with the rows. With "central" (the default for a table without `sites`) one curator
            holds the rows. With "server" (the default for several sites) the sites send sums without noise to
            a server that they trust. With "secure-sum" the sites add the noise themselves and mask their
            sums, so that only the noisy total is revealed. Secure sums need two sites or more, and named
            targets.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        DebiasedLasso
            The model. Building it releases nothing and costs nothing.

        Raises
        ------
        SchemaError
            The formula needs columns or bounds that the schema does not declare.
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
            Response and features of every site, by label or numbered from 0. The sites are simulated in this
            process; for real sites pass a federation to `from_formula`.
        x_bound : float, optional
            Every column lies in [-x_bound, x_bound]; values outside the bounds are clipped. Give it or
            `bounds`.
        bounds : sequence of (low, high), or mapping, optional
            Public bounds of every column except the constant, in the order of the columns or by name, instead
            of `x_bound`; values outside the bounds are clipped.
        y_bounds : (low, high), optional
            Public bounds of the response, which ``family="gaussian"`` needs. The bounds set the grid on which
            the fit releases the scale of the residuals. The response is clipped only at 16 times the width of
            the bounds.
        family : {"gaussian", "binomial"}
            "binomial": logistic regression of a response of 0 and 1, or of a factor of two levels, without
            `y_bounds`. Arrays are clipped to [0, 1]; a schema that declares other bounds is refused. A
            binomial fit always has an intercept, which is fitted and not debiased.
        x_scale : float or array_like, shape (p,), optional
            Public guesses of the standard deviations of the columns, for ranking columns. Default: a third of
            the half-width of the bounds. The fit releases the scales of the selected columns and of the
            targets.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            the rows that lack a value of the model from every sum. A fit with "drop" releases the number of
            complete rows first, for 1% of its budget.
        trust : {"server", "secure-sum"}, optional
            With "server" (default) the sites send sums without noise to a server that they trust. With
            "secure-sum" the sites add the noise themselves and mask their sums, so that only the noisy total
            is revealed; this mode needs the optional dependencies ``privinf[federation]``. Secure sums need
            two sites or more, and named targets.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        DebiasedLasso
            The model. Building it releases nothing and costs nothing.

        Raises
        ------
        ArgumentError
            There is no site, a site has no rows, or the sites have different columns.
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
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Give exactly one
            of `epsilon`, `mu` and `rho`. ``epsilon=inf`` adds no noise. With ``epsilon=inf`` the fit is the
            debiased estimate without noise, or least squares if there are few columns.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta wherever the
            noise is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`. A budget in mu is available only
            for secure sums, where all noise is Gaussian.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`. A budget in rho is
            not available for the paper's variant.
        rng : None, int or Generator, optional
            None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not
            private; the results are marked as such.
        sparsity : int or "auto"
            Number of columns to keep. "auto" (default) selects columns in blocks of five and fits each block
            at a low cost. Selection ends when fewer than three coefficients of a block are large relative to
            their errors, or at `max_sparsity` columns. The full fit then uses the rest of the budget. The
            full fit keeps the columns whose coefficients differ from zero at 5%, by Bonferroni's rule over
            all p (`privinf.lasso.fit`). "auto" is not for heterogeneous fits and the paper's variant. With
            few rows name one target: its interval is far narrower than the intervals of several targets,
            which share the budget.
        targets : sequence of names or positions, "selected", or "all"
            Coefficients whose intervals are wanted. All targets share one budget, so name few targets.
            "selected" (default): the columns that the fit keeps; not for heterogeneous fits. "all": every
            column. On secure sums pass a list of names or positions.
        variant : {"default", "paper"}
            "paper" runs the algorithms of the paper, for comparison (`studies.paper.model`).
        heterogeneous : bool
            Whether coefficients differ between sites: they are u + v_i, where u has `shared_sparsity` and v_i
            has ``sparsity - shared_sparsity`` nonzero entries. The results cover all sites.
        max_sparsity : int, optional
            Largest number of columns for ``sparsity="auto"``. Default: the largest number up to 50 for which
            the noise of the Gram matrix is below a quarter of a column's mean square. It is a function of
            public numbers (`privinf.lasso.plan`). With ``family="binomial"`` the default is at most ten, and
            selection continues until `max_sparsity` columns are selected. Secure sums need `max_sparsity`.
        shared_sparsity : int, optional
            Number of nonzero entries of the shared part u, for ``heterogeneous=True`` and the paper's
            variant.
        accounting : {"joint", "per-interval"}
            "joint" (default): the budget is for all intervals together. "per-interval", for heterogeneous
            fits and the paper's variant, gives every interval the total budget for its own releases, as in
            the paper. A budget per interval is not a joint guarantee: ledgers, limits and reports always have
            the joint cost.
        precision : {"pooled", "machine"}
            For heterogeneous fits: "pooled" (default) fits the nodewise regressions to the rows of all sites.
            "machine" fits them to the rows of each site, for sites whose columns have different
            distributions.
        precision_sparsity : int, optional
            Number of other columns (neighbors) that each nodewise regression uses, in addition to the
            selected columns (double selection). Default: 4 to 40, the largest number that budget, rows and
            the number of targets allow (`privinf.lasso.nodewise.neighbor_count`). Heterogeneous fits have 4
            neighbors by default, and other fits with ``targets="all"`` have none.
            `LassoResults.explained_shares` reports the share of each target's variance that its nodewise
            regression explains, and results warn if more neighbors are needed. For the paper's variant
            `precision_sparsity` is the number of nonzero entries of a column of the precision matrix, 5 by
            default.
        iterations : int, optional
            Number of blocks of columns, which are selected one block after the other; default 3. The columns
            of a block are selected by the residuals of a fit to the columns of all earlier blocks. For the
            paper's variant `iterations` is the T of the paper, by default the logarithm of the total number
            of rows, rounded up. With secure sums, the columns of each block come from a separate release,
            which takes its share of the budget. One block detects more with few rows and many columns, and
            several blocks detect more if all columns are correlated.
        clip : float, optional
            Clip of residuals and products in selection and refit, in multiples of the released scale of the
            residuals; default 1.5. The paper's variant clips at the R of the paper, in units of y. On secure
            sums, products are not clipped one by one: each record's vector of products is shrunk to a norm.
        refit : bool, optional
            For the paper's variant: whether the fit ends with least squares on the support. The default
            variant always does.
        center : {"declared", "released"}, optional
            Initial centers of columns: the middles of their bounds, or released means of all columns.
            Released means take a share of the budget (``means``, 0.04), and help to find columns whose mean
            is far from the middle of the bounds, such as rare levels. With ``targets="all"`` or
            ``heterogeneous=True`` the columns are not centered again later, so "released" is the default.
            With these two options "declared" gives the regression that passes through the point in the middle
            of all bounds, and a note states this.
        target : {"mean", "robust"}, optional
            "mean" (default for named and selected targets): noisy counts of the tail of the scores choose the
            clipping threshold. With "mean" the coefficients describe the mean of the response, for any
            distribution of errors (`privinf.lasso.scores`). "robust": the clipping threshold is optimal for
            normal errors. With "robust" the intervals are narrower than with "mean", but if errors are
            skewed, the coefficients do not describe the mean of the response. Fits with ``targets="all"``,
            heterogeneous fits and the paper's variant are always "robust".
        bootstrap_draws : int, optional
            Number of draws of the private bootstrap (Algorithm 7), for
            ``simultaneous(method="private-bootstrap")``. ``method="simulation"`` draws from the released
            covariance instead, and is free.
        bootstrap_multipliers : {"rademacher", "gaussian"}
            Distribution of the multipliers of the private bootstrap.
        restricted_eigenvalues : bool
            Whether to release the restricted eigenvalues too; the result has them as the attribute
            `restricted_eigenvalues`.
        noise_variance : bool
            Whether to release the variance of the errors too; the result has this variance as the attribute
            `noise_variance`.
        bias_bound : bool
            Whether to compute the bound of the bias too; the result has this bound as the attribute
            `bias_bound`. The bound needs `restricted_eigenvalues`.
        shares : mapping, optional
            Shares of the budget; they sum to one. Give the keys ``selection``, ``refit``, ``scales``,
            ``neighbours``, ``gram``, ``slopes`` and ``score``; for heterogeneous fits also ``own_selection``
            and ``own_refit``; and ``means`` if means are released. The key ``missed`` (0.05) is the share for
            a first test for columns outside the fit; the key ``score`` pays for further such tests.
            ``targets="all"`` has no key ``missed``.
        extra_shares : mapping, optional
            Shares of the total budget for bootstrap (0.15), eigenvalues (0.05) and noise_variance (0.03),
            before `shares` divide the rest.
        paper_options : mapping, optional
            For the paper's variant: any of step, norm_bound, precision_clip, form, variance, multiplier_draws
            and public_seed of `studies.paper.model.fit_paper`.
        max_colluding : int
            Number of sites that may collude with the server in secure sums; their noise does not count toward
            the guarantee.
        cov_type : {"HC0"}, optional
            Covariance of the debiased coefficients; "HC0" is the only one.
        progress : bool, optional
            Whether to show a progress bar of the sums that are released; default: on a terminal only, after
            two seconds.

        Returns
        -------
        LassoResults
            The debiased coefficients of the targets, and the sparse fit. With ``heterogeneous=True`` the call
            returns `SiteResults`: the coefficients of all sites, named ``x3[site]``, with
            ``agreement()`` of the sites and ``site(label)``, the `LassoResults` of one site.

        Raises
        ------
        ArgumentError, BudgetExceededError
            The request is invalid, or would exceed the ledger's limit; nothing was spent.
        SchemaError
            The rows were changed after the model was built, and have missing or infinite values; nothing was
            spent.
        NotAvailableError
            No fit is possible with these rows, columns and budget; nothing was spent. With
            ``variant="paper"`` the error also appears if the noise is too large for an estimate. In this case
            the releases stay charged.

        Notes
        -----
        If the noise is too large for the slopes of some targets, these targets have no intervals, and the fit
        returns its other releases (`LassoResults.hidden_targets`). If no column stands out
        (``targets="selected"``), or the response of a logistic fit is too rare, the result has no
        coefficients, and the rest of the budget is not spent.
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
