"""Linear and logistic regression on hundreds of columns: a sparse fit and debiased intervals."""

from __future__ import annotations

from typing import Any, Literal, Self, Unpack

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import doors
from privinf.federation.charges import stating_charges
from privinf.federation.local import LocalSites
from privinf.fitting.covariances import check_made
from privinf.fitting.model import HidesRows, spending_of
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
    FitKind,
    LassoOptions,
    LassoWords,
    Variant,
    fit_by_paper,
    fit_heterogeneous,
    fit_jointly,
    fit_securely,
)
from privinf.lasso.heterogeneous.fit import MachineResults
from privinf.lasso.plan import Targets
from privinf.lasso.results import LassoResults
from privinf.lasso.rows import LassoFamily, lasso_limits, lasso_rows
from privinf.schema import Schema
from privinf.schema.arrays import check_same_labels
from privinf.typing import (
    ArrayLike,
    Bounds,
    ColumnLike,
    ColumnsLike,
    Missing,
    Pair,
    RngLike,
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
    machines : array_like, shape (n,), optional
        Site of every row.
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
        machines: ColumnLike | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        chosen = trust_of_sums(trust, alone=machines is None)
        check_same_labels(X, machines)
        held = rows_of_site(y, X, lasso_limits(x_bound, bounds, y_bounds, family), missing=missing)
        self._bind(held.split(machines), chosen, y_bounds, x_scale, family, ledger)

    @classmethod
    def from_arrays(
        cls,
        parties: SitePairs,
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
        held = rows_of_pairs(parties, lasso_limits(x_bound, bounds, y_bounds, family), missing=missing)
        return cls.__new__(cls)._bind(held, chosen, y_bounds, x_scale, family, ledger)

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        family: LassoFamily = "gaussian",
        machines: str | None = None,
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
        machines : str, optional
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
        chosen = trust_of_sums(trust, alone=machines is None and not is_federation(data))
        held = rows_of_formula(formula, data, schema, missing=missing).split(machines)
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

    def fit(
        self,
        *,
        sparsity: int | Literal["auto"] = "auto",
        targets: Targets = "selected",
        variant: Variant = "default",
        heterogeneous: bool = False,
        **words: Unpack[LassoWords],
    ) -> LassoResults | MachineResults:
        """Fit the sparse model and debias the targets.

        Parameters
        ----------
        epsilon, delta : float
            The joint budget of everything released; ``epsilon=inf`` is the non-private debiased estimate,
            least squares where the columns are few. A finite epsilon needs `delta`, at most 1/n.
        rho, mu : float
            Instead of epsilon: the budget in zCDP (not for the paper's variant), or, on secure sums (all
            noise is Gaussian), in Gaussian DP.
        sparsity : int or "auto"
            Columns kept. "auto" (the default): columns are picked in blocks of five and fitted cheaply, until
            fewer than three of a block stand out of their errors, or at `max_sparsity`. Those are kept that
            differ from zero at 5% by Bonferroni's rule over all p in the full fit, which takes what picks
            left of the price of the most (`privinf.lasso.thresholding`). Not for heterogeneous fits and the
            paper's variant. At small n name one target: it is far narrower.
        max_sparsity : int, optional
            Default: as many as keep the noise of their Gram matrix small (`privinf.lasso.plan`), a function
            of public numbers; with ``family="binomial"``, which picks all, at most ten. Secure sums need it.
        targets : sequence of names or positions, "selected", or "all"
            Whose intervals are wanted. All of them share a joint budget: name few. "selected": the columns
            that the fit keeps (not heterogeneous); "all": every column. On secure sums a list.
        variant : {"default", "paper"}
            "paper": the paper's own algorithms, for comparison (`studies.paper.model`).
        heterogeneous : bool
            Whether sites have parts of their own: coefficients u + v_i, u with `shared_sparsity` and v_i
            with ``sparsity - shared_sparsity`` nonzero entries. Results come by site, `MachineResults`.
        shared_sparsity : int, optional
        accounting : {"joint", "per-interval"}
            "per-interval", for heterogeneous fits and the paper's variant, gives every interval the whole
            budget for what it uses, as the paper does. That is not a joint guarantee: ledgers, limits and
            reports always have the joint cost.
        precision : {"pooled", "machine"}
            Precision columns of heterogeneous fits: from all rows, or from each site's own where their
            columns have different laws.
        precision_sparsity : int, optional
            Neighbours in each precision column, beside the columns that were picked (double selection). By
            default as many, 4 to 40, as budget, rows and the number of targets allow
            (`privinf.lasso.columns.neighbour_count`); 4 with ``heterogeneous=True``, none for all columns of
            a homogeneous fit. `LassoResults.explained_shares` says what they explain, and results warn where
            more would be needed. For the paper's variant the entries of a column, 5.
        iterations : int, optional
            Blocks in which columns are picked, each on the residuals of the last fit; 3 by default. For the
            paper's variant its T, log N. On secure sums every block is a release at its share of the price:
            one finds more where few rows meet many columns, several where all columns are correlated.
        clip : float, optional
            Where residuals and products are clipped in selection and refit, in multiples of the residuals'
            released scale; 1.5 by default. For the paper's variant its R, in units of y. On secure sums
            products are shrunk as a vector instead.
        refit : bool, optional
            For the paper's variant: whether least squares on the support end it. The default is such a fit.
        center : {"declared", "released"}, optional
            Where columns start: in the middle of their bounds, or at means of all, released for a share of
            the budget (``means``, .04), to find columns whose mean is far off, such as rare levels. Fits of
            all columns and heterogeneous ones are centred nowhere else: "released" is their default, and
            "declared" the regression through the middle of all bounds, as a note says.
        target : {"mean", "robust"}, optional
            "mean" (the default for named and selected targets): scores are clipped where noisy counts of
            their tail say, in two layers, so that coefficients are those of the mean whatever the errors
            (`privinf.lasso.mean_scores`). "robust", all there is for ``targets="all"``, heterogeneous fits
            and the paper's: clipped as is best for normal errors, narrower; not the mean of skewed errors.
        bootstrap_draws : int, optional
            Draws of the private bootstrap (Algorithm 7), for ``simultaneous(method="private-bootstrap")``;
            the simulation from the released covariance is free.
        bootstrap_multipliers : {"rademacher", "gaussian"}
        restricted_eigenvalues, noise_variance, bias_bound : bool
            Release these too: attributes of the same names. The bias bound needs the eigenvalues.
        shares : mapping, optional
            All of selection, refit, scales, neighbours, gram, slopes and score (heterogeneous: also
            own_selection and own_refit), missed (a look for columns outside the fit, .05, further ones out of
            score; not for ``targets="all"``), and means if they are released; they sum to one.
        extra_shares : mapping, optional
            Of the whole budget, before `shares` divide what is left: bootstrap (.15), eigenvalues (.05),
            noise_variance (.03).
        paper_options : mapping, optional
            Any of step, norm_bound, precision_clip, form, variance, multiplier_draws and public_seed of
            `studies.paper.model.fit_paper`.
        max_colluding : int
            Secure sums: sites that may be in league with the server, whose noise does not count.
        rng : None, int or Generator
            Seeds simulation noise; None: secure noise.
        cov_type : {"HC0"}; calibration, source : None
            There is one covariance; the prices are exact, and the noise is the federation's.

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
        given = spending_of(words, REFUSED, LassoWords.__annotations__)
        check_made(given.pop("cov_type", None), "HC0", refused=NO_ROW_COUNT)
        rng: RngLike = given.pop("rng", None)
        options = LassoOptions(sparsity=sparsity, targets=targets, **given)
        kind = options.kind(variant, heterogeneous, self._rows.trust, self._rows.family)
        if isinstance(self._rows.federation, LocalSites):
            return self._fitted(kind, options, rng, heterogeneous=heterogeneous)
        with stating_charges(self.ledger, delta=options.delta, resumable=False):
            return self._fitted(kind, options, rng, heterogeneous=heterogeneous)

    def _fitted(
        self, kind: FitKind, options: LassoOptions, rng: RngLike, *, heterogeneous: bool
    ) -> LassoResults | MachineResults:
        """Return the fit of one kind."""
        if kind == "paper":
            return fit_by_paper(self._rows, self.ledger, options, heterogeneous, rng)
        if kind == "heterogeneous":
            return fit_heterogeneous(self._rows, self.ledger, options, rng)
        fits = {"secure": fit_securely, "binomial": fit_logistic, "joint": fit_jointly}
        return fits[kind](self._rows, self.ledger, options, rng)

    def __repr__(self) -> str:
        size = f"{self._rows.total} rows x {len(self._rows.names)} columns"
        return f"<{type(self).__name__}: {size}, {len(self._rows.rows)} parties (rows not shown)>"

    def __reduce__(self) -> Any:
        raise TypeError("the model holds raw rows: pickle the results instead")
