"""High-dimensional linear regression over parties that trust a server: sparse fit, debiased intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from privinf.accounting import ConcentratedLoss, Ledger, PrivacyReport
from privinf.engines.debiasing import debias
from privinf.engines.debiasing_all import debias_all
from privinf.engines.hard_thresholding import sparse_fit
from privinf.engines.sparse_sums import SparseSums
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import TrustedServer
from privinf.inference.normal import upper_quantile
from privinf.models.debiased_lasso_machines import (
    MachineResults,
    check_machine_plan,
    fit_machines,
    joint_loss,
    machine_results,
)
from privinf.models.debiased_lasso_plan import Accounting, Center, LassoPlan, Targets, check_plan
from privinf.models.debiased_lasso_results import LassoResults, lasso_results
from privinf.models.debiased_lasso_rows import LassoRows, rows_of_arrays, rows_of_formula, rows_of_parties
from privinf.schema import Schema
from privinf.typing import RngLike
from privinf.validation import check_choice

# Chance that sparsity="auto" keeps a column that matters not.
FALSE_PICKS = 0.05


class DebiasedLasso:
    r"""Sparse linear regression with debiased intervals, by a trusted server over one or more parties.

    Parameters
    ----------
    y : array_like, shape (n,)
    X : array_like or DataFrame, shape (n, p)
        Used as it is: a column of ones named ``const`` (`privinf.add_constant`) is fitted without being
        selected or debiased. Without one, columns and response are centred at the middle of their bounds.
    x_bound : float, optional
        Every column lies in [-x_bound, x_bound]; values outside are clipped.
    bounds : sequence of (low, high), or mapping, optional
        Instead of `x_bound`: one pair a column, or pairs by name.
    y_bounds : (low, high)
        Public bounds of the response: the grid on which sizes of residuals are released.
    x_scale : float or array_like of p, optional
        Public guesses of the columns' standard deviations, for ranking columns; default: a third of the
        half-width. Sizes of columns that matter are released.
    machines : array_like, shape (n,), optional
        Party of every row.
    ledger : Ledger, optional

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one of one record, central model: parties send un-noised sums to a server that they
    trust, and everything that leaves it is noised. The report counts everything that a fit released.
    The response is not cut at `y_bounds` but at 16 times their width: every sum clips its own residuals, so
    its sensitivity does not depend on them, and cutting y would bias the coefficients.

    With the noisy sparse fit b0 and the precision column w_j of target j, the debiased coordinate is
    ``b_j = b0_j + s_j / kappa_j`` (see `privinf.inference.sparse.debiased` for s, kappa and the variance).
    The design departs from the paper's constants: one joint clip of the scores, clipped products for
    selection, a preconditioned refit, released slopes; it needs a fifth of their interval length.

    References
    ----------
    "Federated learning with differential privacy: estimation and inference", Algorithms 2-6.

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
        y: Any,
        X: Any,
        *,
        x_bound: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        x_scale: Any = None,
        machines: Any = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._rows = rows_of_arrays(y, X, x_bound, bounds, y_bounds, x_scale, machines)
        self.ledger = Ledger() if ledger is None else ledger

    @classmethod
    def from_arrays(
        cls,
        parties: Sequence[tuple[Any, Any]] | Mapping[str, tuple[Any, Any]],
        *,
        x_bound: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        x_scale: Any = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from one pair (y, X) a party, by label or numbered from 0.

        Raises
        ------
        ArgumentError
            There is no party, one has no rows, or they differ in their columns.
        """
        return cls._over(rows_of_parties(parties, x_bound, bounds, y_bounds, x_scale), ledger)

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Any,
        *,
        schema: Schema,
        machines: str | None = None,
        x_scale: Any = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a formula and raw rows, or from a federation whose sites hold them.

        Parameters
        ----------
        formula : str
            Its constant is fitted without being selected or debiased.
        data : DataFrame or Federation
            A federation's sites must trust the server and have the same schema.
        schema : Schema
            Bounds of columns and response; here the response is cut at its bounds by the sites.
        machines : str, optional
            Column of a data frame that names the party of every row.
        x_scale, ledger
            As for the class.

        Raises
        ------
        SchemaError
            The formula needs columns or bounds that the schema does not declare.
        """
        return cls._over(rows_of_formula(formula, data, schema, machines, x_scale), ledger)

    @classmethod
    def _over(cls, rows: LassoRows, ledger: Ledger | None) -> Self:
        model = cls.__new__(cls)
        model._rows, model.ledger = rows, Ledger() if ledger is None else ledger
        return model

    def fit(
        self,
        *,
        epsilon: float,
        delta: float | None = None,
        sparsity: int | Literal["auto"],
        max_sparsity: int | None = None,
        targets: Targets = "selected",
        precision_sparsity: int | None = None,
        iterations: int | None = None,
        clip: float | None = None,
        center: Center = "declared",
        heterogeneous: bool = False,
        shared_sparsity: int | None = None,
        accounting: Accounting = "joint",
        shares: Mapping[str, float] | None = None,
        rng: RngLike = None,
    ) -> LassoResults | MachineResults:
        """Fit the sparse model and debias the targets.

        Parameters
        ----------
        epsilon, delta : float
            The joint budget of everything released; ``epsilon=inf`` is the non-private debiased estimate,
            least squares where the columns are few. `delta` is 1/(2n) by default.
        sparsity : int or "auto"
            Columns kept. "auto": of `max_sparsity` columns those that differ from zero at 5% by
            Bonferroni's rule over all p, noise included. It costs nothing beside the picking of
            `max_sparsity` columns, which share the budget of the selection.
        max_sparsity : int, optional
        targets : sequence of names or positions, "selected", or "all"
            Whose intervals are wanted. All of them share a joint budget: name few. "selected": the columns
            that the fit keeps (homogeneous); "all": every column (heterogeneous).
        precision_sparsity : int
            Neighbours in each precision column, beside the columns that were picked; 4 by default, none for
            all columns.
        iterations : int, optional
            Blocks in which columns are picked, each on the residuals of the last fit; 3 by default.
        clip : float, optional
            Where residuals and products are clipped in selection and refit, in multiples of the residuals'
            released scale; 1.5 by default.
        center : {"declared", "released"}
            Centre columns and response at the middle of their bounds, or at means that are released for a
            share of the budget (``means``, .04): better where a column's mean is far from the middle, such as
            a rare level, and where there is no constant.
        heterogeneous : bool
            Whether parties have parts of their own: coefficients u + v_i, u with `shared_sparsity` and v_i
            with ``sparsity - shared_sparsity`` nonzero entries. Results come by party, `MachineResults`.
        shared_sparsity : int, optional
        accounting : {"joint", "per-interval"}
            "per-interval", for heterogeneous fits, gives every interval the whole budget for what it uses
            (u, v_i, its precision column, sizes, score), as the paper does. That is not a joint guarantee:
            ledgers, limits and reports always have the joint cost.
        shares : mapping, optional
            All of selection, refit, scales, neighbours, gram, slopes and score (heterogeneous: also
            own_selection and own_refit), and means if they are released; they sum to one.
        rng : None, int or Generator
            Seeds simulation noise; None: secure noise.

        Raises
        ------
        ArgumentError
            The request is wrong; nothing was spent.
        BudgetExceededError
            The ledger's limit would be passed; nothing was spent.
        NotAvailableError, NotPositiveDefiniteError
            The noise leaves no estimate; what was released stays charged.
        """
        plain = not isinstance(sparsity, str) and iterations is None and clip is None and center == "declared"
        self._check_accounting(heterogeneous, shared_sparsity, accounting, targets, plain)
        names = self._rows.names
        every = isinstance(targets, str) and targets == "all"
        plan = check_plan(
            epsilon=epsilon, delta=delta, sparsity=sparsity, max_sparsity=max_sparsity,
            targets=range(len(names)) if heterogeneous and every else targets,
            precision_sparsity=precision_sparsity, iterations=iterations, clip=clip, center=center,
            shares=None if heterogeneous else shares, names=names, constant=self._rows.constant,
            n=self._rows.total,
        )  # fmt: skip
        if heterogeneous:
            return self._fit_machines(plan, epsilon, shared_sparsity, shares, rng)
        self.ledger.check(ConcentratedLoss(plan.rho))
        before = len(self.ledger.entries)
        server = self._server(rng)
        sums = SparseSums(server, self._rows.units(), server.nobs)
        always = () if self._rows.constant is None else (self._rows.constant,)
        if "means" in plan.extras:
            sums.center(plan.price("means"), always)
        fit = sparse_fit(
            sums, plan.sparsity, plan.shares.thresholding(plan.rho), blocks=plan.blocks, clip=plan.clip,
            threshold=upper_quantile(FALSE_PICKS / 2.0 / len(names)) if plan.automatic else 0.0,
            always=always,
        )  # fmt: skip
        kept = sorted(j for j in fit.support if j not in always)
        chosen = kept if plan.targets is None else list(plan.targets)
        if not chosen:
            raise NotAvailableError("no column stands out of the noise: name the targets")
        prices = plan.shares.debiasing(plan.rho)
        if plan.every:
            debiased = debias_all(sums, fit, prices)
        else:
            debiased = debias(sums, fit, chosen, prices, neighbours=plan.neighbours, excluded=always)
        report = PrivacyReport.of(self.ledger.entries[before:], ledger=self.ledger, delta=plan.delta)
        return lasso_results(self._rows, plan.sparsity, sums, fit, chosen, debiased, report)

    def _check_accounting(
        self,
        heterogeneous: bool,
        shared_sparsity: int | None,
        accounting: Accounting,
        targets: Any,
        plain: bool,
    ) -> None:
        per_interval = check_choice(accounting, Accounting, "accounting") == "per-interval"
        if heterogeneous != per_interval:
            raise NotAvailableError(
                "heterogeneous fits are offered with accounting='per-interval', others with "
                "accounting='joint': precision columns for every party under one joint budget are not"
            )
        if heterogeneous and not plain:
            raise NotAvailableError(
                "heterogeneous fits need sparsity= as a number, and have no iterations=, clip= or center="
            )
        if not heterogeneous and shared_sparsity is not None:
            raise ArgumentError("shared_sparsity= belongs to heterogeneous=True")
        if heterogeneous and self._rows.constant is not None:
            raise NotAvailableError("heterogeneous fits have no constant: columns and response are centred")
        if heterogeneous and isinstance(targets, str) and targets == "selected":
            raise ArgumentError("heterogeneous fits need targets='all' or a list of columns")

    def _fit_machines(
        self,
        plan: LassoPlan,
        epsilon: float,
        shared_sparsity: int | None,
        shares: Mapping[str, float] | None,
        rng: RngLike,
    ) -> MachineResults:
        targets = () if plan.targets is None else plan.targets
        own = check_machine_plan(
            plan.rho, sparsity=plan.sparsity, shared_sparsity=shared_sparsity, neighbours=plan.neighbours,
            shares=shares, targets=len(targets), p=len(self._rows.names),
        )  # fmt: skip
        self.ledger.check(joint_loss(own))
        before = len(self.ledger.entries)
        server = self._server(rng)
        units = self._rows.units()
        fits = fit_machines(server, units, own, targets)
        report = PrivacyReport.of(self.ledger.entries[before:], ledger=self.ledger, delta=plan.delta)
        return machine_results(
            fits, units, targets, self._rows.names, self._rows.labels, self._rows.rows, report, epsilon
        )

    def _server(self, rng: RngLike) -> TrustedServer:
        design = None if self._rows.design.schema is None else self._rows.design
        return TrustedServer(self._rows.federation, ledger=self.ledger, rng=rng, design=design)

    def __repr__(self) -> str:
        size = f"{self._rows.total} rows x {len(self._rows.names)} columns"
        return f"<{type(self).__name__}: {size}, {len(self._rows.rows)} parties (rows not shown)>"

    def __reduce__(self) -> Any:
        raise TypeError("the model holds raw rows: pickle the results instead")
