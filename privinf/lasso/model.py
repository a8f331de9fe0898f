"""Linear and logistic regression on hundreds of columns: a sparse fit and debiased intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import doors, refuses
from privinf.errors import NotAvailableError
from privinf.federation.charges import stating_charges
from privinf.federation.local import LocalSites
from privinf.fitting.covariances import check_made
from privinf.fitting.model import SITES_NOW, STATSMODELS, HidesRows
from privinf.fitting.rows import (
    ModelRows,
    is_federation,
    rows_of_formula,
    rows_of_pairs,
    rows_of_site,
    trust_of_sums,
)
from privinf.lasso.binomial.fit import fit_logistic
from privinf.lasso.fits import (
    NO_ROW_COUNT,
    REFUSED,
    fit_by_paper,
    fit_heterogeneous,
    fit_jointly,
    fit_securely,
)
from privinf.lasso.heterogeneous.fit import MachineResults
from privinf.lasso.options import Accounting, Center, FitKind, LassoOptions, Targets, Variant
from privinf.lasso.results import LassoResults
from privinf.lasso.rows import LassoFamily, lasso_limits, lasso_rows
from privinf.schema import Schema
from privinf.schema.arrays import check_same_labels
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
)


@doors
class DebiasedLasso(HidesRows):
    r"""Sparse linear or logistic regression with debiased intervals over one or more sites.

    Parameters
    ----------
    y : array_like, shape (n,)
    X : array_like or DataFrame, shape (n, p)
        Read where it is: do not change it before the fit (which checks again that it is finite). A column of
        ones named ``const`` (`privinf.add_constant`) is fitted without being selected or debiased. Without
        one, columns in play and the response are centred at released means, which is what a constant does.
    x_bound : float, optional
        Every column lies in [-x_bound, x_bound]; values outside are clipped.
    bounds : sequence of (low, high), or mapping, optional
        Instead of `x_bound`: one pair a column, or pairs by name.
    y_bounds : (low, high)
        Public bounds of the response: the grid on which sizes of residuals are released.
    family : {"gaussian", "binomial"}
        "binomial": logistic regression of a response of 0 and 1, or of a factor of two levels, without
        `y_bounds`. Arrays are clipped to [0, 1]; a schema that declares other bounds is refused. It always
        has an intercept, which is fitted and not debiased; `trust` is "central" or "server".
    x_scale : float or array_like of p, optional
        Public guesses of the columns' standard deviations, for ranking columns; default: a third of the
        half-width. Sizes of columns that matter are released.
    sites : array_like, shape (n,), optional
        Label of the site of every row, where the rows of several sites are in one place.
    missing : {"raise", "impute-public"}
        Whether missing values are refused, or the middle of the bounds is put in their place.
    trust : {"central", "server", "secure-sum"}
        "central": one curator has all rows (the default without sites). "server" (the default of sites):
        they send un-noised sums to a server that they trust; "secure-sum": they noise them themselves, so
        that nobody sees more than the noisy total: for two sites or more, with named targets.
    ledger : Ledger, optional

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one of one record. With ``trust="central"`` or ``"server"`` the central model: a
    curator has the rows, or sites send un-noised sums to a server that they trust, and everything that
    leaves it is noised. With ``trust="secure-sum"`` the sites noise and mask their sums (who is trusted then:
    `privinf.federation.SecureServer`). The report counts everything that a fit released. The response is not
    cut at `y_bounds` but at 16 times their width: every sum clips its own residuals, so its sensitivity does
    not depend on them, and cutting y would bias the coefficients.

    With the noisy sparse fit b0 and the precision column w_j of target j, the debiased coordinate is
    ``b_j = b0_j + s_j / kappa_j`` (see `privinf.lasso.mean_scores` for s, kappa and the variance).
    The design departs from the paper's constants: one joint clip of the scores, clipped products for
    selection, a preconditioned refit, released slopes; it needs a fifth of their interval length.

    On secure sums all of that is the same but for the picks of columns. Peeling looks at un-noised sums; its
    place is taken by one Gaussian release of the products with all p columns, each record's vector shrunk to
    a length of C = R sigma sqrt(p), of l2 sensitivity 2C, whose largest entries are picked
    (`privinf.lasso.selection`). What it costs is sight: the noise of the picks grows as sqrt(p),
    `LassoResults.picks_from` says what they could find; where one that matters may be missed, results warn.

    With ``family="binomial"`` the sparse fit is by Newton steps and the debiasing by the same idea: one score
    of the targets, orthogonal to constant and other columns in the Gram matrix of the curvature, divided by
    its released secant matrix (`privinf.lasso.binomial.debiasing` has the equation and the variance). As
    abs(y - p) <= 1 no residual is clipped: rows are weighted in x alone, the same in score and curvature, so
    that a right mean keeps its coefficients. A column that is left out although it matters attenuates the
    others, as in every logistic regression.

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
        chosen = trust_of_sums(trust, alone=sites is None)
        check_same_labels(X, sites)
        held = rows_of_site(y, X, lasso_limits(x_bound, bounds, y_bounds, family), missing=missing)
        self._bind(held.split(sites), chosen, y_bounds, x_scale, family, ledger)

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
        """Build the model from one pair (y, X) a site, by label or numbered from 0.

        Raises
        ------
        ArgumentError
            There is no site, one has no rows, or they differ in columns.
        """
        chosen = trust_of_sums(trust, alone=False)
        held = rows_of_pairs(sites, lasso_limits(x_bound, bounds, y_bounds, family), missing=missing)
        return cls.__new__(cls)._bind(held, chosen, y_bounds, x_scale, family, ledger)

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
        """Build the model from a formula and raw rows, or from a federation whose sites hold them.

        Parameters
        ----------
        formula : str
            Its constant is fitted without being selected or debiased; without one columns are centred.
        data : DataFrame, any other table, or Federation
            A federation's sites must have the same schema, and a policy that goes with `trust`.
        schema : Schema
            Bounds of columns and response; the sites cut the response at its.
        sites : str, optional
            Column of a data frame that names the site of every row.
        missing : {"raise", "impute-public"}
            Of a data frame; in a federation every site's `Rows` say it.
        family, x_scale, trust, ledger
            As for the class.

        Raises
        ------
        SchemaError
            The formula needs columns or bounds that the schema does not declare.
        """
        chosen = trust_of_sums(trust, alone=sites is None and not is_federation(data))
        held = rows_of_formula(formula, data, schema, missing=missing).split(sites)
        return cls.__new__(cls)._bind(held, chosen, None, x_scale, family, ledger)

    def _bind(
        self,
        held: ModelRows,
        trust: Trust,
        y_bounds: Pair | None,
        x_scale: ArrayLike | None,
        family: LassoFamily,
        ledger: Ledger | None,
    ) -> Self:
        self._rows = lasso_rows(held, trust, y_bounds, x_scale, family)
        self.ledger = check_ledger(ledger)
        return self

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
    ) -> LassoResults | MachineResults:
        """Fit the sparse model and debias the targets.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Give exactly one
            of `epsilon`, `mu` and `rho`. ``epsilon=inf`` adds no noise. With it the fit is the debiased
            estimate without noise, least squares where the columns are few.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs it wherever the noise
            is Gaussian. With `mu` or `rho` it is the delta at which epsilon is reported.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`. Only on secure sums, where all
            noise is Gaussian.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`. Not for the paper's
            variant.
        rng : None, int or Generator, optional
            None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not
            private; the results are marked as such.
        sparsity : int or "auto"
            Number of columns to keep. "auto" (default) selects columns in blocks of five and fits them
            cheaply, until fewer than three of a block stand out of their errors, or at `max_sparsity`. It
            keeps those that differ from zero at 5% by Bonferroni's rule over all p in the full fit, which has
            the part of the price that the selection did not use (`privinf.lasso.thresholding`). "auto" is not
            for heterogeneous fits and the paper's variant. At small n name one target: its interval is far
            narrower.
        targets : sequence of names or positions, "selected", or "all"
            Coefficients whose intervals are wanted. All of them share a joint budget: name few. "selected"
            (default): the columns that the fit keeps (not heterogeneous). "all": every column. On secure sums
            it is a list.
        variant : {"default", "paper"}
            "paper" runs the algorithms of the paper, for comparison (`studies.paper.model`).
        heterogeneous : bool
            Whether sites have parts of their own: coefficients u + v_i, where u has `shared_sparsity` and v_i
            has ``sparsity - shared_sparsity`` nonzero entries. Results come by site, as `MachineResults`.
        max_sparsity : int, optional
            Largest number of columns for ``sparsity="auto"``. Default: as many as keep the noise of their
            Gram matrix small (`privinf.lasso.plan`), a function of public numbers; with
            ``family="binomial"``, which selects all of them, at most ten. Secure sums need it.
        shared_sparsity : int, optional
            Number of nonzero entries of the shared part u, for ``heterogeneous=True`` and the paper's
            variant.
        accounting : {"joint", "per-interval"}
            "joint" (default): the budget is for all intervals together. "per-interval", for heterogeneous
            fits and the paper's variant, gives every interval the whole budget for what it uses, as the paper
            does. That is not a joint guarantee: ledgers, limits and reports always have the joint cost.
        precision : {"pooled", "machine"}
            Nodewise regressions of heterogeneous fits: from all rows, or from those of each site where the
            columns of sites have different distributions.
        precision_sparsity : int, optional
            Number of neighbors in each nodewise regression, in addition to the selected columns
            (double selection). By default as many, 4 to 40, as budget, rows and the number of targets allow
            (`privinf.lasso.columns.neighbour_count`); 4 with ``heterogeneous=True``, none for all columns of
            a homogeneous fit. `LassoResults.explained_shares` has what they explain, and results warn where
            more would be needed. For the paper's variant it is the number of entries of a column, 5.
        iterations : int, optional
            Number of blocks in which columns are selected, each on the residuals of the last fit; default 3.
            For the paper's variant its T, log N. On secure sums every block is a release at its share of the
            price: one finds more where few rows meet many columns, several find more where all columns are
            correlated.
        clip : float, optional
            Where residuals and products are clipped in selection and refit, in multiples of the released
            scale of the residuals; default 1.5. For the paper's variant its R, in units of y. On secure sums
            products are shrunk as a vector instead.
        refit : bool, optional
            For the paper's variant: whether it ends with least squares on the support. The default variant
            always does.
        center : {"declared", "released"}, optional
            Where columns start: in the middle of their bounds, or at means of all columns that are released
            for a share of the budget (``means``, 0.04), to find columns whose mean is far off, such as rare
            levels. Fits of all columns and heterogeneous ones are centered nowhere else: "released" is their
            default, and "declared" is the regression through the middle of all bounds, as a note states.
        target : {"mean", "robust"}, optional
            "mean" (default for named and selected targets): scores are clipped where noisy counts of their
            tail suggest, in two layers, so that coefficients are those of the mean whatever the errors
            (`privinf.lasso.mean_scores`). "robust", the only one for ``targets="all"``, heterogeneous fits
            and the paper's variant: clipped as is best for normal errors. It is narrower, and not the mean of
            skewed errors.
        bootstrap_draws : int, optional
            Number of draws of the private bootstrap (Algorithm 7), for
            ``simultaneous(method="private-bootstrap")``. The simulation from the released covariance is free.
        bootstrap_multipliers : {"rademacher", "gaussian"}
            Distribution of the multipliers of the private bootstrap.
        restricted_eigenvalues : bool
            Whether to release the restricted eigenvalues too, as an attribute of this name.
        noise_variance : bool
            Whether to release the variance of the errors too, as an attribute of this name.
        bias_bound : bool
            Whether to compute the bound of the bias too, as an attribute of this name; it needs
            `restricted_eigenvalues`.
        shares : mapping, optional
            Shares of the budget; they sum to one. All of selection, refit, scales, neighbours, gram, slopes
            and score (heterogeneous: also own_selection and own_refit), missed (a test for columns outside
            the fit, 0.05, further ones from score; not for ``targets="all"``), and means if they are
            released.
        extra_shares : mapping, optional
            Shares of the total budget for bootstrap (0.15), eigenvalues (0.05) and noise_variance (0.03),
            before `shares` divide the rest.
        paper_options : mapping, optional
            For the paper's variant: any of step, norm_bound, precision_clip, form, variance, multiplier_draws
            and public_seed of `studies.paper.model.fit_paper`.
        max_colluding : int
            Number of sites that may collude with the server in secure sums; their noise does not count
            towards the guarantee.
        cov_type : {"HC0"}, optional
            The only covariance of the debiased coefficients.

        Returns
        -------
        LassoResults or MachineResults
            Debiased coefficients of the targets and the sparse fit; by site for ``heterogeneous=True``.

        Raises
        ------
        ArgumentError, BudgetExceededError
            The request is wrong, or would pass the ledger's limit; nothing was spent.
        SchemaError
            The rows were changed since, and have missing or infinite values; nothing was spent.
        NotAvailableError
            Rows, columns and budget leave no fit; nothing was spent. With ``variant="paper"`` also where the
            noise leaves no estimate, and then what was released stays charged.

        Notes
        -----
        Where the noise hides targets the fit returns what it bought: see `LassoResults.hidden_targets`. If no
        column stands out (``targets="selected"``), or the response of a logistic fit is too rare, the result
        has no coefficients, and what is left of the budget is not spent.
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
        if isinstance(self._rows.federation, LocalSites):
            return self._fitted(kind, options)
        with stating_charges(self.ledger, delta=options.delta, resumable=False):
            return self._fitted(kind, options)

    def _fitted(self, kind: FitKind, options: LassoOptions) -> LassoResults | MachineResults:
        """Return the fit of one kind."""
        if kind == "paper":
            return fit_by_paper(self._rows, self.ledger, options, options.heterogeneous, options.rng)
        if kind == "heterogeneous":
            return fit_heterogeneous(self._rows, self.ledger, options, options.rng)
        fits = {"secure": fit_securely, "binomial": fit_logistic, "joint": fit_jointly}
        return fits[kind](self._rows, self.ledger, options, options.rng)

    def __repr__(self) -> str:
        size = f"{self._rows.total} rows x {len(self._rows.names)} columns"
        return f"<{type(self).__name__}: {size}, {len(self._rows.rows)} sites (rows not shown)>"

    def __reduce__(self) -> Any:
        raise TypeError("the model holds raw rows: pickle the results instead")
