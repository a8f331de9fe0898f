"""High-dimensional linear regression over parties that trust a server: sparse fit, debiased intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd

from privinf.accounting import ConcentratedLoss, Ledger, PrivacyReport
from privinf.engines.debiasing import DebiasedFit, debias
from privinf.engines.hard_thresholding import SparseFit, sparse_fit
from privinf.engines.sparse_sums import SparseSums, Units
from privinf.errors import ArgumentError, NotAvailableError, SchemaError, SensitivityError
from privinf.federation import Federation, InProcessFederation, Query, Site, SitePolicy, TrustedServer
from privinf.inference.estimate import Estimate
from privinf.inference.sparse.joint import joint_covariance
from privinf.mechanisms.modulation import resolve_design
from privinf.mechanisms.rows import Rows
from privinf.models.debiased_lasso_machines import (
    MachineResults,
    check_machine_plan,
    fit_machines,
    joint_loss,
    machine_results,
)
from privinf.models.debiased_lasso_plan import Accounting, LassoPlan, Targets, check_plan
from privinf.models.debiased_lasso_results import LassoResults
from privinf.schema import Design, Schema
from privinf.typing import Flags, Floats, RngLike
from privinf.validation import check_array, check_choice, check_positive

# Columns are taken to have a third of their half-width as standard deviation until more is released.
TYPICAL = 3.0
# The response's declared bounds say how large it typically gets; only far outside of them is it cut.
RESPONSE_ROOM = 16.0
ONE_PARTY = "all"


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
        features, names = _matrix(X)
        response = _response(y, len(features))
        labels = [(ONE_PARTY, None)] if machines is None else _groups(machines, len(features))
        parts = {
            label: Rows(features, response) if rows is None else Rows(features[rows], response[rows])
            for label, rows in labels
        }
        design = _design(names, x_bound, bounds, y_bounds)
        self._bind(design, _federation(design, parts), y_bounds, x_scale, ledger, list(parts))

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
        given = dict(parties) if isinstance(parties, Mapping) else dict(enumerate(parties))
        if not given:
            raise ArgumentError("parties must hold at least one pair (y, X)")
        parts: dict[Any, Rows] = {}
        columns: dict[Any, list[str]] = {}
        for label, (y, X) in given.items():
            features, columns[label] = _matrix(X)
            parts[label] = Rows(features, _response(y, len(features)))
        first = next(iter(columns))
        for label, names in columns.items():
            if names != columns[first]:
                raise ArgumentError(f"party {label!r} has other columns than party {first!r}")
        design = _design(columns[first], x_bound, bounds, y_bounds)
        model = cls.__new__(cls)
        model._bind(design, _federation(design, parts), y_bounds, x_scale, ledger, list(parts))
        return model

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
        design = resolve_design(schema, formula, response="protected", radius=None)
        if design.y_low is None or design.y_high is None:
            raise SchemaError(f"the schema declares no bounds of the response {design.response!r}")
        if hasattr(data, "ask"):
            if machines is not None:
                raise ArgumentError("machines= names a column of a data frame; a federation has its sites")
            federation = data
        else:
            labels = None if machines is None else data[machines]
            groups = [(ONE_PARTY, slice(None))] if labels is None else _groups(labels, len(data))
            federation = _federation(design, {label: Rows(data.iloc[rows]) for label, rows in groups})
        model = cls.__new__(cls)
        model._bind(design, federation, (design.y_low, design.y_high), x_scale, ledger)
        return model

    def _bind(
        self,
        design: Design,
        federation: Federation,
        y_bounds: tuple[float, float],
        x_scale: Any,
        ledger: Ledger | None,
        labels: Sequence[Any] | None = None,
    ) -> None:
        self._design, self._federation, self._constant = design, federation, design.constant
        self._y_bounds = float(y_bounds[0]), float(y_bounds[1])
        bounded = np.isfinite(design.low)
        low, high = np.where(bounded, design.low, -1.0), np.where(bounded, design.high, 1.0)
        self._center, self._half = (low + high) / 2.0, (high - low) / 2.0
        if self._constant is not None:
            bounded = bounded & (np.arange(len(low)) != self._constant)
            self._center[self._constant], self._half[self._constant] = 0.0, 1.0
        self._scale = self._scales(x_scale, bounded)
        self._labels = dict(zip(federation.sites, labels or federation.sites, strict=True))
        self._n = {reply.site: reply.rows for reply in federation.ask(Query("describe"))}
        self.ledger = Ledger() if ledger is None else ledger

    def _scales(self, x_scale: Any, bounded: Flags) -> Floats:
        """Return the declared typical sizes of the columns; the constant is its own unit."""
        p = len(self._half)
        if x_scale is None:
            return np.where(bounded, self._half / TYPICAL, 1.0)
        scale = np.asarray(x_scale, dtype=np.float64)
        scale = check_array(np.full(p, scale) if scale.ndim == 0 else scale, "x_scale", ndim=1)
        if len(scale) != p or not (scale > 0.0).all():
            raise ArgumentError(f"x_scale must be positive: one number, or {p} of them")
        return np.where(bounded, scale, 1.0)

    def fit(
        self,
        *,
        epsilon: float,
        delta: float | None = None,
        sparsity: int,
        targets: Targets = "selected",
        precision_sparsity: int = 4,
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
        sparsity : int
            Columns kept.
        targets : sequence of names or positions, "selected", or "all"
            Whose intervals are wanted. All of them share a joint budget: name few. "selected": the columns
            that the fit keeps (homogeneous); "all": every column (heterogeneous).
        precision_sparsity : int
            Neighbours in each precision column, beside the columns that were picked.
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
            own_selection and own_refit); they sum to one.
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
        self._check_accounting(heterogeneous, shared_sparsity, accounting, targets)
        plan = check_plan(
            epsilon=epsilon, delta=delta, sparsity=sparsity,
            targets=range(len(self._design.names)) if heterogeneous and targets == "all" else targets,
            precision_sparsity=precision_sparsity, shares=None if heterogeneous else shares,
            names=self._design.names, constant=self._constant, n=sum(self._n.values()),
        )  # fmt: skip
        if heterogeneous:
            return self._fit_machines(plan, epsilon, shared_sparsity, shares, rng)
        self.ledger.check(ConcentratedLoss(plan.rho))
        before = len(self.ledger.entries)
        design = None if self._design.schema is None else self._design
        server = TrustedServer(self._federation, ledger=self.ledger, rng=rng, design=design)
        sums = SparseSums(server, self._units(), server.nobs)
        always = () if self._constant is None else (self._constant,)
        fit = sparse_fit(sums, plan.sparsity, plan.shares.thresholding(plan.rho), always=always)
        kept = sorted(j for j in fit.support if j not in always)
        chosen = kept if plan.targets is None else list(plan.targets)
        debiased = debias(
            sums, fit, chosen, plan.shares.debiasing(plan.rho),
            neighbours=plan.neighbours, excluded=always,
        )  # fmt: skip
        report = PrivacyReport.of(self.ledger.entries[before:], ledger=self.ledger, delta=plan.delta)
        return self._results(plan, sums, fit, chosen, debiased, report)

    def _check_accounting(
        self, heterogeneous: bool, shared_sparsity: int | None, accounting: Accounting, targets: Any
    ) -> None:
        per_interval = check_choice(accounting, Accounting, "accounting") == "per-interval"
        if heterogeneous != per_interval:
            raise NotAvailableError(
                "heterogeneous fits are offered with accounting='per-interval', others with "
                "accounting='joint': precision columns for every party under one joint budget are not"
            )
        if not heterogeneous and shared_sparsity is not None:
            raise ArgumentError("shared_sparsity= belongs to heterogeneous=True")
        if heterogeneous and self._constant is not None:
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
            shares=shares, targets=len(targets), p=len(self._design.names),
        )  # fmt: skip
        self.ledger.check(joint_loss(own))
        before = len(self.ledger.entries)
        design = None if self._design.schema is None else self._design
        server = TrustedServer(self._federation, ledger=self.ledger, rng=rng, design=design)
        units = self._units()
        fits = fit_machines(server, units, own, targets)
        report = PrivacyReport.of(self.ledger.entries[before:], ledger=self.ledger, delta=plan.delta)
        return machine_results(
            fits, units, targets, self._design.names, self._labels, self._n, report, epsilon
        )

    def _units(self) -> Units:
        low, high = self._y_bounds
        return Units(
            self._center,
            self._scale.copy(),
            self._half / self._scale,
            (low + high) / 2.0,
            (high - low) / 2.0,
            set() if self._constant is None else {self._constant},
        )

    def _results(
        self,
        plan: LassoPlan,
        sums: SparseSums,
        fit: SparseFit,
        chosen: list[int],
        debiased: DebiasedFit,
        report: PrivacyReport,
    ) -> LassoResults:
        found, names, unit = debiased.found, self._design.names, sums.units.scale[chosen]
        back = np.outer(unit, unit)
        sampling = joint_covariance(debiased.correlation, found.sampling, np.zeros(len(chosen))) / back
        estimate = Estimate(
            found.params / unit,
            debiased.cov / back,
            tuple(names[j] for j in chosen),
            sums.n,
            noise_cov=np.diag(found.privacy) / back,
            cov_type="HC0",
        )
        values = fit.beta / sums.units.scale[fit.support]
        if self._constant is not None:
            # In the user's units the constant takes up the centres of the other columns.
            at = fit.support.index(self._constant)
            values[at] += sums.units.intercept - values @ sums.units.center[fit.support]
        order = np.argsort(fit.support)
        sparse = {
            "columns": list(names),
            "positions": [fit.support[i] for i in order],
            "values": [float(values[i]) for i in order],
            "scale": fit.scale,
        }
        options = {"Sparsity": str(plan.sparsity), "Parties": str(len(self._n))}
        return LassoResults(
            estimate,
            report=report,
            sampling_cov=sampling,
            model=type(self).__name__,
            method="debiased lasso, trusted server",
            options=options,
            settings={"sparse": sparse},
        )

    def __repr__(self) -> str:
        size = f"{sum(self._n.values())} rows x {len(self._design.names)} columns"
        return f"<{type(self).__name__}: {size}, {len(self._n)} parties (rows not shown)>"

    def __reduce__(self) -> Any:
        raise TypeError("the model holds raw rows: pickle the results instead")


def _design(names: list[str], x_bound: float | None, bounds: Any, y_bounds: Any) -> Design:
    """Return the design of the array doors: the response's bounds wide enough never to cut it."""
    if y_bounds is None:
        raise SchemaError("the response is protected too: pass its public bounds, y_bounds=(low, high)")
    if (x_bound is None) == (bounds is None):
        raise SensitivityError("give the columns' public bounds: either x_bound= or bounds=")
    public = ["const"] if "const" in names else []
    if x_bound is not None:
        reach = check_positive(x_bound, "x_bound")
        bounds = [(-reach, reach)] * (len(names) - len(public))
    low, high = (float(end) for end in y_bounds)
    room = (RESPONSE_ROOM - 1.0) / 2.0 * (high - low)
    return Design.from_arrays(names, bounds=bounds, public=public, y_bounds=(low - room, high + room))


def _federation(design: Design, parts: Mapping[Any, Rows]) -> InProcessFederation:
    """Return the parties' rows as sites of this process."""
    policy = SitePolicy(trusted_server=True, simulation=True)
    return InProcessFederation(
        {str(label): Site(rows, design, policy=policy) for label, rows in parts.items()}
    )


def _matrix(X: Any) -> tuple[Floats, list[str]]:
    if isinstance(X, pd.DataFrame):
        if any(not isinstance(name, str) for name in X.columns):
            raise SchemaError("X has column labels that are not strings: rename them")
        return check_array(X.to_numpy(), "X", ndim=2), [str(name) for name in X.columns]
    features = check_array(X, "X", ndim=2)
    return features, [f"x{j + 1}" for j in range(features.shape[1])]


def _response(y: Any, rows: int) -> Floats:
    found = check_array(np.asarray(y), "y", ndim=1)
    if len(found) != rows:
        raise ArgumentError(f"y has {len(found)} rows and X has {rows}")
    if rows == 0:
        raise ArgumentError("a party needs at least one row")
    return found


def _groups(machines: Any, rows: int) -> list[tuple[Any, Any]]:
    """Return the rows of every label, as slices where they stand together."""
    labels = np.asarray(machines)
    if labels.shape != (rows,):
        raise ArgumentError(f"machines must hold one label for each of the {rows} rows")
    found: list[tuple[Any, Any]] = []
    for label in pd.unique(labels):
        at = np.flatnonzero(labels == label)
        together = at[-1] - at[0] + 1 == len(at)
        found.append((label.item() if hasattr(label, "item") else label,
                      slice(int(at[0]), int(at[-1]) + 1) if together else at))  # fmt: skip
    return found
