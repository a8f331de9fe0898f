"""``variant="paper"`` of the debiased lasso: the paper's own algorithms, for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from privinf.accounting import ConcentratedLoss, Ledger, PrivacyReport, rho_to_epsilon
from privinf.errors import ArgumentError
from privinf.federation import TrustedServer
from privinf.federation.local import LocalSites
from privinf.lasso.heterogeneous.results import SiteResults
from privinf.lasso.plan import Accounting
from privinf.lasso.results import LassoResults
from privinf.lasso.rows import LassoRows, SparseUnits
from privinf.lasso.sums import SparseSums
from privinf.validation import check_count
from studies.paper.engine import (
    Form,
    mean_square,
    paper_column,
    paper_debiased,
    paper_fit,
    paper_refit,
    positive_variance,
)
from studies.paper.machines import PaperSizes, paper_machine_fits
from studies.paper.plan import PaperPlan, Variance, check_paper_plan
from studies.paper.results import Described, paper_machine_results, paper_results
from studies.paper.statistics import PAPER_OPS


def fit_paper(
    rows: LassoRows,
    server: TrustedServer,
    ledger: Ledger,
    *,
    epsilon: float,
    delta: float | None = None,
    sparsity: int,
    targets: Sequence[int] | Literal["selected"] = "selected",
    precision_sparsity: int | None = None,
    heterogeneous: bool = False,
    shared_sparsity: int | None = None,
    accounting: Accounting = "joint",
    iterations: int | None = None,
    clip: float | None = None,
    refit: bool = False,
    step: float | None = None,
    norm_bound: float | None = None,
    precision_clip: float | None = None,
    form: Form = "residual",
    variance: Variance = "paper",
    multiplier_draws: int = 0,
    public_seed: int = 0,
    shares: Mapping[str, float] | None = None,
) -> LassoResults | SiteResults:
    r"""Fit by Algorithms 2 to 4 and 6, or by 8 to 10 where parties have parts of their own.

    Parameters
    ----------
    rows : LassoRows
        Without a constant: columns and response are centred at the middle of their bounds.
    server : TrustedServer
        Over `rows.federation`, charging `ledger`. Policies of sites must name the statistics, `PAPER_OPS`;
        where the rows are the caller's own they do from here on.
    ledger : Ledger
    epsilon, delta : float
        The joint budget of everything released, or with ``accounting="per-interval"`` that of one interval.
        A finite epsilon needs `delta`.
    sparsity : int
        Entries of the coefficients, s; in a heterogeneous fit s0 = `shared_sparsity` of u and s - s0 of v_i.
    targets : sequence of positions, or "selected"
        "selected", homogeneous only: the columns that the fit keeps.
    precision_sparsity : int, optional
        Entries of a precision column, its own included; default 5, at most p.
    heterogeneous, shared_sparsity, accounting
        As for `DebiasedLasso.fit`; here every combination is offered.
    iterations : int, optional
        T of Algorithms 2 and 3; default log N, rounded up. Every iterate gets a T-th of the price: at small
        budgets fewer are better, such as 4 with ``refit=True``.
    clip : float, optional
        R, for the response and residuals, in units of the response. Default ``sd sqrt(2 log N)``, at most
        half the width of `y_bounds`, with a sixth of that width for the sd, which is not known. The paper
        takes the sd of the errors.
    refit : bool
        Whether the last iterate is replaced by a private least squares fit on its support; the paper does
        not.
    step : float, optional
        eta; default 1/2, for columns in units of their declared standard deviations. The steps contract
        where the restricted eigenvalues of the columns in these units lie below 2/eta.
    norm_bound : float, optional
        C: bound of the norm of the coefficients of columns in these units; default half the width of
        `y_bounds`.
    precision_clip : float, optional
        R_w, and the bound of the norm of a precision column, in these units; default ``sqrt(2 log N)``.
    form : {"residual", "response"}
        Of the gradient: the clipped residual, or the paper's, which clips the response and has a sensitivity
        that grows with the coefficients.
    variance : {"paper", "robust"}
        ``sigma^2 w_jj``, or the released mean of ``Pi_Rw(w_j'x)^2 Pi_R(r)^2``, which holds where errors
        depend on features and takes half of the share "variance".
    multiplier_draws : int
        q of Algorithm 10; the draws are kept for `multiplier_intervals`. Heterogeneous only.
    public_seed : int
        Of the public random signs of Algorithm 10.
    shares : mapping, optional
        All of fit, precision, variance and score; refit, own (heterogeneous) and multiplier where these are
        asked for. They sum to one.

    Raises
    ------
    ArgumentError, NotAvailableError
        The request is wrong; nothing was spent.
    BudgetExceededError
        The ledger's limit would be passed by the joint cost; nothing was spent.
    NotAvailableError, NotPositiveDefiniteError
        The noise leaves no estimate; what was released stays charged.

    Notes
    -----
    **Privacy.** Replace-one of one record, central model. NoisyHT costs what its Laplace noises cost in
    zCDP, not what the paper's formula says. The report has the joint cost of everything released.

    Every bound is public. Without noise nothing is clipped or projected unless a bound is given.

    References
    ----------
    "Differentially private federated learning: servers trustworthiness, estimation, and statistical
    inference", Algorithms 1 to 4, 6 and 8 to 10.

    Examples
    --------
    >>> import numpy as np
    >>> from privinf import DebiasedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20_000, 10))
    >>> y = X[:, 0] - X[:, 5] + 0.5 * rng.standard_normal(20_000)
    >>> model = DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-6, 6), x_scale=1.0)
    >>> rows, ledger = model._rows, Ledger()
    >>> server = TrustedServer(rows.federation, ledger=ledger, rng=0)
    >>> fit = fit_paper(rows, server, ledger, epsilon=20.0, delta=1e-5, sparsity=2, targets=[0, 5, 9])
    >>> fit.selected, bool((abs(fit.params - [1.0, -1.0, 0.0]) < 4 * fit.bse).all())
    (('x1', 'x6'), True)
    """
    if isinstance(rows.federation, LocalSites):
        rows.federation.allow(PAPER_OPS)
    plan = check_paper_plan(
        rows,
        epsilon=epsilon,
        delta=delta,
        sparsity=sparsity,
        targets=targets,
        precision_sparsity=precision_sparsity,
        heterogeneous=heterogeneous,
        shared_sparsity=shared_sparsity,
        accounting=accounting,
        iterations=iterations,
        clip=clip,
        refit=refit,
        step=step,
        norm_bound=norm_bound,
        precision_clip=precision_clip,
        form=form,
        variance=variance,
        multiplier_draws=multiplier_draws,
        shares=shares,
    )
    if server.ledger is not ledger:
        raise ArgumentError("the server must charge the ledger that is passed: TrustedServer(ledger=ledger)")
    ledger.check(ConcentratedLoss(plan.joint))
    units = rows.units()
    before = len(ledger.entries)
    if heterogeneous:
        seed = check_count(public_seed, "public_seed", least=0)
        return _fit_machines(rows, server, ledger, units, plan, seed)
    sums = SparseSums(server=server, units=units, n=server.nobs)
    fit = paper_fit(sums, plan.sparsity, plan.budget.fit, plan.tuning)
    if plan.refit:
        fit = paper_refit(sums, fit, plan.budget.refit, plan.tuning)
    chosen = sorted(fit.support) if plan.targets is None else list(plan.targets)
    columns = [
        paper_column(sums, j, plan.precision_sparsity, plan.budget.precision, plan.tuning) for j in chosen
    ]
    square = positive_variance(mean_square(sums, fit, plan.budget.variance, plan.tuning))
    debiased = paper_debiased(
        sums, fit, columns, chosen, square, plan.budget, plan.tuning, robust=plan.robust
    )
    report = PrivacyReport.from_entries(ledger.entries[before:], ledger=ledger, delta=plan.delta)
    described = _described(rows, units, plan, report)
    return paper_results(described, sums.n, fit, columns, chosen, square, debiased)


def _fit_machines(
    rows: LassoRows, server: TrustedServer, ledger: Ledger, units: SparseUnits, plan: PaperPlan, seed: int
) -> SiteResults:
    before = len(ledger.entries)
    assert plan.targets is not None
    parties = {
        name: SparseSums(server=server, units=units, n=size, sites=(name,))
        for name, size in server.rows.items()
    }
    sizes = PaperSizes(plan.sparsity, plan.own_sparsity, plan.precision_sparsity, plan.draws)
    fits = paper_machine_fits(
        SparseSums(server=server, units=units, n=server.nobs),
        parties,
        plan.targets,
        sizes,
        plan.budget,
        plan.tuning,
        refit=plan.refit,
        robust=plan.robust,
        public_seed=seed,
    )
    report = PrivacyReport.from_entries(ledger.entries[before:], ledger=ledger, delta=plan.delta)
    described = _described(rows, units, plan, report)
    return paper_machine_results(described, fits, plan.targets, rows.labels, server.rows)


def _described(rows: LassoRows, units: SparseUnits, plan: PaperPlan, report: PrivacyReport) -> Described:
    options = {
        "Sparsity": str(plan.sparsity + plan.own_sparsity),
        "Parties": str(len(rows.rows)),
        "Accounting": plan.accounting.replace("-", " "),
        "Iterations": str(plan.tuning.iterations),
        "Variance": "released squares" if plan.robust else "sigma^2 w_jj",
    }
    interval = rho_to_epsilon(plan.interval, plan.delta)
    return Described(
        names=rows.names,
        response=rows.design.response,
        units=units,
        report=report,
        options=options,
        interval_epsilon=interval,
        per_interval=plan.accounting == "per-interval",
        robust=plan.robust,
    )
