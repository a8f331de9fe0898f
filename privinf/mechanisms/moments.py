"""Release of second moments by the Gaussian mechanism (MomentOLS), at one curator or by every record.

A curator's totals are the statistics of queries to sites (`privinf.mechanisms.statistics.moments`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from privinf.accounting import GaussianLoss, Ledger, split_mu
from privinf.accounting.purposes import charged_for
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import (
    ArgumentError,
    NotAvailableError,
    SchemaError,
    SensitivityError,
)
from privinf.mechanisms.gaussian import (
    Line,
    Spending,
    after_the_charge,
    assumed,
    check_room,
    max_rows,
    noisy_total,
    unit_name,
    warn_of_large_delta,
)
from privinf.mechanisms.passes import OwnSum, RowPasses, encoded_blocks, refuse_public
from privinf.mechanisms.residual_plan import MomentScale, ResidualPlan
from privinf.mechanisms.rows import (
    BLOCK,
    EACH_ROW,
    EncodedRows,
    PublicSizes,
    Rows,
    as_rows,
    imputing,
    refuse_dropping,
    weight_bound,
)
from privinf.mechanisms.statistics.block import SMALLEST
from privinf.mechanisms.statistics.moments import MomentLayout, default_response_weight
from privinf.mechanisms.sums import BLOCK_ROWS
from privinf.noise import NoiseSource
from privinf.notebook import html_table
from privinf.releases import Release, rows_target, write_rows
from privinf.schema import Design, Schema
from privinf.schema.design import resolve_design
from privinf.schema.geometry import check_magnitudes
from privinf.schema.table import SCHEMA_FIRST, check_schema
from privinf.typing import (
    AnyPath,
    Calibration,
    Flags,
    Floats,
    Missing,
    MomentsCov,
    RngLike,
    SourceName,
    SpendingOptions,
    Trust,
)
from privinf.validation import check_choice, check_cov_type, check_flag, check_fraction, check_positive
from privinf.wire import Derivations, Labels, Mechanisms, Statistics

ROBUST_SHARE = 0.25  # share of mu^2 for the second release, of residuals, by default (robust_share=)
# A call that is right, for the error about a missing formula.
MOMENTS_EXAMPLE = (
    "Moments(schema, 'y ~ x1 + x2') for one regression, or Moments(schema, columns=['y', "
    "'x1', 'x2']) for many regressions from the same release"
)
# The ledger of a mechanism is an argument of its release, as its budget is.
LEDGER_OF_RELEASE = "belongs to the release: pass ledger= to the method release(), as the budget"
NOT_OF_SITES = (
    "pi.Moments releases the moments of one table and cannot query sites. For rows at several sites, fit "
    "each regression with pi.MomentOLS.from_formula(formula, federation, schema=schema)"
)


@error_boundaries
class Moments:
    """Mechanism of `MomentOLS`, which releases the second moments of the rows with noise.

    Parameters
    ----------
    schema : Schema or Design
        Public description of the columns. If you pass a `Schema`, also pass `formula`. The response must have
        public bounds, because it is protected together with the features.
    formula : str, optional
        Model formula, such as ``"y ~ a + b"``.
    columns : sequence of str, optional
        Terms to use instead of a formula, such as ``["a", "b", "C(g)", "a:b", "I(a**2)"]``. The second
        moments of these terms and of a constant are released once. The release then serves every regression
        among the terms, by its methods ``regress``, ``iv``, ``corr``, ``partial_corr`` and ``means``.
    trust : {"central", "local"}
        Who is trusted with the rows. With "central" (default) a trusted curator releases one noisy total.
        With "local", noise is added to the second moments of each record.
    response_weight : float, optional
        Public weight c of the response relative to the features. By default the largest weighted response is
        0.87 times as large as the largest norm of the features. If `columns` is passed there is no response,
        and every column has the weight 1.
    radius : float, optional
        Radius of the ball onto which each row is projected, in scaled units. The replace-one sensitivity of a
        projected row is 2 * radius.
    missing : {"raise", "impute-public", "drop"}
        Whether missing values are refused, replaced by the middle of the bounds (for a factor, by its first
        level), or handled by dropping the rows that lack a value. A dropped row adds zero to every sum, so
        that the number of dropped rows stays private. If `columns` is passed, a row is dropped if it lacks a
        value of any of these columns.
    weights : str, optional
        Name of the column of observation weights. It must be declared public, with positive bounds. With
        ``trust="central"`` the sensitivity is multiplied by the upper bound of the weights.
    data_bounds : bool
        Whether the bounds were computed from the data. If True, the privacy report states that the bounds are
        not public.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if a column does not match its declaration, a bound that the sensitivity needs is missing or
        invalid, or an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one). The release satisfies Gaussian
    differential privacy with parameter mu (mu-GDP), where mu is the sensitivity divided by the standard
    deviation of the noise. If a unit has several rows, the sensitivity of the total is multiplied by
    max_rows, and the sensitivity of a local release by sqrt(max_rows). Public columns are equal in
    neighboring tables.

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> schema = pi.Schema({"y": (0.0, 10.0), "x": (-1.0, 1.0)})
    >>> rows = pd.DataFrame({"x": np.linspace(-1, 1, 50), "y": np.linspace(2, 8, 50)})
    >>> release = pi.Moments(schema, "y ~ x", trust="central").release(rows, epsilon=2.0, delta=1e-6)
    >>> release.arrays["moments"].shape
    (5,)
    >>> release = pi.Moments(schema, columns=["y", "x"]).release(rows, epsilon=2.0, delta=1e-6)
    >>> release.regress("y ~ x").names, release.regress("x ~ y").names
    (('Intercept', 'x'), ('Intercept', 'y'))
    """

    kind = "moments"

    @refuses({"schema": SCHEMA_FIRST.format("Moments"), "ledger": LEDGER_OF_RELEASE})
    def __init__(
        self,
        schema: Schema | Design,
        formula: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        trust: Trust = "central",
        response_weight: float | None = None,
        radius: float | None = None,
        missing: Missing = "raise",
        weights: str | None = None,
        data_bounds: bool = False,
    ) -> None:
        if columns is None:
            design = resolve_design(
                schema, formula, response="protected", radius=radius, example=MOMENTS_EXAMPLE
            )
            self.design = design.conditioned()
        else:
            if response_weight is not None:
                raise ArgumentError(
                    "response_weight= needs a formula, because columns= does not define a response: pass a "
                    "formula, or leave response_weight= out"
                )
            self.design = _design_of_columns(schema, formula, columns, radius)
            response_weight = 1.0
        if self.design.response_public:
            raise SchemaError(
                f"MomentOLS also protects the response, but {self.design.response!r} has no public "
                "bounds: pass y_bounds=, or declare the column in the schema"
            )
        check_magnitudes(self.design.names, self.design.low, self.design.high, self.design.outcome)
        self.trust: Trust = check_choice(trust, ("central", "local"), "trust")
        self.missing: Missing = check_choice(missing, Missing, "missing")
        self.data_bounds = check_flag(data_bounds, "data_bounds")
        self.weight_bound = weight_bound(self.design, weights)
        self.weights = weights
        self.layout = moment_layout(self.design, self.missing)
        if not self.design.private.any():
            raise SensitivityError(
                "every column is declared public, so there is nothing to protect: declare at least "
                "one private column"
                if columns is None
                else "a regression needs at least two columns: add another column to columns="
            )
        if self.missing == "drop":
            self._check_dropping(weights)
        if response_weight is not None:
            check_positive(response_weight, "response_weight")
        self.response_weight = response_weight

    def _check_dropping(self, weights: str | None) -> None:
        """Refuse what cannot be combined with dropped rows; see `privinf.completeness`."""
        if self.trust == "local":
            refuse_dropping(self.missing, EACH_ROW)
        refuse_dropping_of(self.design, weights)

    def __repr__(self) -> str:
        return f"<Moments of {self.design.response} and {len(self.design.names)} columns, trust {self.trust}>"

    def _repr_html_(self) -> str:
        bounds = zip(self.design.names, self.design.low, self.design.high, strict=True)
        rows = [(name, f"{low:g}", f"{high:g}") for name, low, high in bounds]
        return html_table(("column", "low", "high"), rows, repr(self).strip("<>"))

    def release(
        self,
        rows: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        cov_type: MomentsCov | None = None,
        robust_share: float | None = None,
        to: AnyPath | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> Release:
        """Release the second moments of the rows, and residual moments if `cov_type` needs them.

        Parameters
        ----------
        rows : table, pair (y, X), or Rows
            Raw rows: a data frame of any library, a mapping of arrays, the path of a file, or a pair of
            arrays.
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
        cov_type : {"nonrobust", "HC0", "cluster"}, optional
            Covariance that the release must support. With "nonrobust" (default) and ``trust="central"`` no
            residual moments are released. With "HC0" the share `robust_share` of mu^2 is spent on
            ``sum clip(e, E)^2 x x'``, where e are the residuals of a fit to the first release, clipped at E.
            With "cluster" this share is spent on ``sum s s'`` over the units of the schema. Here s belongs to
            one unit: it is the sum of the products e x over the rows of the unit, with the clipped residual e
            and the features x, and is shrunk to a norm of at most C. The l2 sensitivity of ``sum s s'`` is
            therefore sqrt 2 C^2 for any number of rows per unit. A release with ``trust="local"`` always
            supports "HC0" and "cluster", at no further cost.
        robust_share : float, optional
            Share of the budget (in mu^2) for the residual moments of ``cov_type="HC0"`` or "cluster"; default
            0.25. With ``trust="local"``, no residual moments are released.
        to : path, optional
            Parquet file to which the released rows are written block by block. Everything else is written to
            ``<name>.json`` next to it. The rows and the noisy records then need not fit in memory. The JSON
            file is written last; a Parquet file without it is not a complete release. `load_release` reads
            both. The argument is only for ``trust="local"``.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.
        ledger : Ledger, optional
            Budget ledger that records the cost of the release. If the release would exceed the limit of the
            ledger, it is refused before any row is read. The cost is recorded in the ledger before anything
            is released.

        Returns
        -------
        Release
            Release of kind "moments".

        Warns
        -----
        LargeDeltaWarning
            Issued if the trust model is "central", and delta is 1/n or larger.
        """
        options = SpendingOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            calibration=calibration,
            source=source,
        )
        robust, units = self._wants_residuals(cov_type)
        if robust_share is not None and not robust:
            raise ArgumentError(
                "robust_share= can be used only with cov_type='HC0' or cov_type='cluster', and with "
                "trust='central': leave it out"
            )
        share = check_fraction(ROBUST_SHARE if robust_share is None else robust_share, "robust_share")
        budget = Spending.from_options(options.spending(), ledger)
        if to is not None and self.trust != "local":
            raise ArgumentError(
                "to= is available only with trust='local', for releases of rows: leave it out and "
                "write this release with its method save()"
            )
        shares = [1.0 - share, share] if robust else [1.0]
        parts = split_mu(budget.mu, shares)
        # A limit is on mu alone, so the refusal needs neither rows nor the public columns.
        budget.ledger.check([GaussianLoss(part) for part in parts])
        if hasattr(rows, "ask") and hasattr(rows, "sites"):
            raise NotAvailableError(NOT_OF_SITES)
        checked_rows = as_rows(rows, self.missing)
        if (checked_rows.missing == "drop") != (self.missing == "drop"):
            raise ArgumentError(
                f"the rows have missing={checked_rows.missing!r}, and the mechanism has "
                f"missing={self.missing!r}: pass missing='drop' to both, or to none"
            )
        with charged_for(f"{type(self).__name__}: {self._subject}"):
            if self.trust == "local":
                return self._release_records(checked_rows, budget, parts[0], to)
            return self._release_sums(checked_rows, budget, parts, units)

    @property
    def _subject(self) -> str:
        """What a ledger says about the release: the formula, or the columns."""
        design = self.design
        constant = None if design.constant is None else design.names[design.constant]
        columns = [name for name in (*design.names, design.response) if name != constant]
        return design.formula or ", ".join(columns)

    def _release_sums(self, rows: Rows, budget: Spending, parts: Sequence[float], units: int) -> Release:
        """Release the sum of all records' moments, and with a second part of mu the residual moments."""
        passes = RowPasses(self.design, rows, self.weights, passes=len(parts), together=units > 0)
        public_bounds, q2 = passes.public_sizes()
        weight = self.response_weight or default_response_weight(self._norm, self.design.y_norm, q2)
        queries = self._queries(weight, public_bounds, q2, robust=len(parts) > 1, units=units)
        lines = [self._line(query, part) for query, part in zip(queries, parts, strict=True)]
        scales, entries = zip(*(line.calibrated(budget.source) for line in lines), strict=True)
        sums = queries[0].over(passes, exact=scales[0] > 0.0)
        warn_of_large_delta(budget.delta, passes.n)
        for query, scale in zip(queries, scales, strict=True):
            largest_count = passes.n if "unit_norm" in query.args else passes.n / max_rows(self.design)
            check_room(largest_count * query.record_sensitivity.bound, scale, budget.source)
        recorded = budget.ledger.spend(*entries)
        arrays = {"moments": noisy_total(sums, scales[0], budget.source), "public_moments": sums.public}
        noise_model = _noise_model(self.trust, weight, scales[0], budget) | imputing(rows.missing)
        if len(parts) > 1:
            plan = residual_plan(
                self.design,
                noise_model,
                self.layout.matrix(arrays["moments"], arrays["public_moments"]),
                passes.n,
                public_norm2=q2,
                residual_noise=scales[1],
                units=units,
            )
            unit = plan.largest if noise_model["noise_free"] else plan.bound
            query = self._residual_query(queries[1], plan, unit, units)
            residual_sums = after_the_charge(partial(query.over, passes, exact=scales[1] > 0.0))
            arrays["residual_moments"] = noisy_total(residual_sums, scales[1], budget.source) * unit**2
            noise_model |= _residual_noise_model(noise_model, plan, unit, scales[1], units)
        return Release(
            kind="moments",
            arrays=arrays,
            noise_model=noise_model,
            design=self.design,
            entries=recorded,
            nobs=passes.n,
        )

    def _residual_query(self, query: OwnSum, plan: ResidualPlan, unit: float, units: int) -> OwnSum:
        """Return the query of residual moments as the first release decides, in units of their bound."""
        args: dict[str, Any] = {
            "response_factor": 1.0 / (unit * self.design.y_scale),
            "coefficients": plan.coefficients / unit,
        }
        if units:
            args["residual_clip"] = plan.residual / unit
        return replace(query, args={**query.args, **args})

    @property
    def _norm(self) -> float:
        """Largest norm of a row's noised columns: the constant is one of them where rows are dropped."""
        return moment_norm(self.design, self.missing)

    def _release_records(self, rows: Rows, budget: Spending, mu: float, to: AnyPath | None) -> Release:
        """Release every record's moments with noise of its own: in memory, or to a file in blocks."""
        target = rows_target(to, noise_free=math.isinf(mu))
        blocks = encoded_blocks(self.design, rows, self.weights, whole=target is None)
        sizes = PublicSizes(np.zeros(self.layout.public), 0.0)
        q2 = 0.0
        for block in blocks:
            sizes = sizes.joined(PublicSizes.from_array(block.public))
            q2 = max(q2, float(np.einsum("ij,ij->i", block.public, block.public).max(initial=0.0)))
        weight = self.response_weight or default_response_weight(self.design.norm, self.design.y_norm, q2)
        (query,) = self._queries(weight, np.full(self.layout.public, math.sqrt(q2)), q2, robust=False)
        scale, entry = self._line(query, mu).calibrated(budget.source)
        recorded = budget.ledger.spend(entry)
        noise_model = _noise_model(self.trust, weight, scale, budget) | imputing(rows.missing)

        def block_arrays(block: EncodedRows) -> dict[str, Any]:
            sizes.check(block.public)  # which the scale of the noise counts on
            return self._noisy_records(block, weight, scale, budget.source)

        release = Release(
            kind="moments",
            arrays={},
            noise_model=noise_model,
            design=self.design,
            entries=recorded,
            nobs=blocks.n,
        )
        return write_rows(target, release, map(block_arrays, blocks))

    def _noisy_records(
        self, encoded: EncodedRows, weight: float, scale: float, source: NoiseSource
    ) -> dict[str, Any]:
        """Return the noisy moments of every record, and the public values next to them."""
        rows, columns, factors = self.layout.pairs()
        n = len(encoded.response)
        moments = np.empty((n, len(rows)))
        for start in range(0, n, BLOCK):
            part = slice(start, start + BLOCK)
            y = weight * encoded.response[part]
            z = np.column_stack([encoded.public[part], encoded.private[part], y])
            block = z[:, rows] * (z[:, columns] * factors)
            moments[part] = block if scale == 0.0 else source.perturb(block, scale)
        return {"moments": moments, "public": encoded.public, **encoded.beside}

    def _wants_residuals(self, cov_type: MomentsCov | None) -> tuple[bool, int]:
        """Return whether residual moments are requested, and the rows per unit (0: a row is a unit)."""
        if cov_type is not None:
            check_cov_type(cov_type, MomentsCov)
        units = max_rows(self.design) if cov_type == "cluster" else 0
        if cov_type == "cluster" and unit_name(self.design) == "record":
            raise SchemaError(
                "cov_type='cluster' needs a schema that declares the privacy unit: Schema(..., unit=, "
                "max_rows=)"
            )
        if self.trust == "local" and cov_type == "nonrobust":
            raise ArgumentError(
                'cov_type="nonrobust" is available only with trust="central": with trust="local", use '
                'cov_type="HC0"'
            )
        if self.trust == "local" or cov_type in (None, "nonrobust"):
            return False, 0
        if not can_cluster(units):
            raise NotAvailableError(
                f"cov_type='cluster' is available for at most {BLOCK_ROWS} rows per privacy unit: "
                "declare a smaller max_rows="
            )
        return True, units if units > 1 else 0

    def _queries(
        self, weight: float, public_bounds: Floats, q2: float, *, robust: bool, units: int = 0
    ) -> list[OwnSum]:
        """Return the queries of the statistics in scaled units; local records each have weight 1."""
        design = self.design
        private = moment_columns(self.design, self.missing)
        args: dict[str, Any] = {
            "norm": self._norm,
            "center": design.center[private],
            "scale": design.scale[private],
            "intercept": design.y_center,
            "public": self.layout.public,
            "public_norm2": q2,
            "public_reach": np.maximum(public_bounds, SMALLEST),
        }
        if self.trust == "central":
            args |= {"max_rows": max_rows(design), "weight_bound": self.weight_bound}
        total = args | {"response_factor": weight / design.y_scale, "response_bound": weight * design.y_norm}
        queries = [OwnSum.from_statistic(Statistics.MOMENTS_TOTAL, Labels.MOMENTS, total, self.layout)]
        if robust:
            # In units of their clipping bound, which the first release decides.
            residual = {"response_factor": 1.0, "coefficients": np.zeros(self.layout.size - 1)}
            args |= residual | {"residual_clip": 1.0}
            label = Labels.RESIDUAL_MOMENTS
            if units:
                args["unit_norm"] = 1.0
                label = Labels.RESIDUAL_MOMENTS_OF_UNITS.format(unit=unit_name(self.design))
            queries.append(OwnSum.from_statistic(Statistics.MOMENTS_RESIDUAL, label, args, self.layout))
        return queries

    def _line(self, query: OwnSum, mu: float) -> Line:
        # A unit's rows are adjacent in local releases; in a total they add up, and it is rounded once.
        rows_per_unit = max_rows(self.design)
        local = self.trust == "local"
        return Line(
            label=query.label,
            mechanism=Mechanisms.GAUSSIAN,
            sensitivity=query.record_sensitivity.l2 * (math.sqrt(rows_per_unit) if local else 1.0),
            derivation=Derivations.RECORD_MOMENTS.format(label=query.label),
            dimension=query.record_sensitivity.size * (rows_per_unit if local else 1),
            mu=mu,
            # No entry of one record passes the sensitivity; totals are checked by `check_room`.
            largest=query.record_sensitivity.l2 if local else 0.0,
            unit=unit_name(self.design),
            trust=self.trust,
            assumptions=assumed(self.design, data_bounds=self.data_bounds, placed=local),
        )


# ---- rows with missing values, which are dropped


def can_cluster(max_rows: int) -> bool:
    """Return whether residual moments can be summed by unit if a unit has up to `max_rows` rows."""
    return max_rows <= BLOCK_ROWS


def moment_columns(design: Design, missing: Missing) -> Flags:
    """Return which columns of a design are noised: its private ones, and with dropped rows the constant."""
    return np.ones(len(design.columns), dtype=bool) if missing == "drop" else design.private


def refuse_dropping_of(design: Design, weights: str | None = None) -> None:
    """Raise NotAvailableError for designs that rows cannot be dropped of.

    They have public columns, no constant, or a radius.
    """
    refuse_public(design, weights)
    if design.radius is not None:
        raise NotAvailableError(
            "missing='drop' cannot be combined with radius=: pass bounds for every column, and leave "
            "radius= out"
        )


def moment_layout(design: Design, missing: Missing) -> MomentLayout:
    """Return which entries of zz' a release of a design holds."""
    noised = moment_columns(design, missing)
    return MomentLayout(int((~noised).sum()), int(noised.sum()))


def moment_norm(design: Design, missing: Missing) -> float:
    """Return the largest norm of the noised columns of a row, scaled units."""
    return math.hypot(design.norm, 1.0) if missing == "drop" else design.norm


def complete_rows_of(
    design: Design, noise_model: Mapping[str, Any], moments: Floats, n: int
) -> CompleteRows | None:
    """Return the estimated number of complete rows of a release; None where no rows are dropped.

    `moments` are the released sums of zz', in which the constant is a column like the others.
    """
    if noise_model.get("missing") != "drop":
        return None
    assert design.constant is not None  # refused without one
    total = float(moments[design.constant, design.constant])
    return CompleteRows.from_sum(total, noise_model["scale"], n, len(design.columns))


def residual_plan(
    design: Design,
    noise_model: Mapping[str, Any],
    moments: Floats,
    n: int,
    *,
    public_norm2: float,
    residual_noise: float,
    units: int = 0,
) -> ResidualPlan:
    """Return which residuals a second release is about, from the released sums of zz' over n rows.

    `residual_noise` is the sd of the noise of the sums of residual moments that are clipped at 1.
    """
    complete = complete_rows_of(design, noise_model, moments, n)
    n = n if complete is None else complete.rows
    missing: Missing = noise_model.get("missing", "raise")
    scale = MomentScale(
        weight=noise_model["response_weight"],
        x_norm=moment_norm(design, missing),
        y_norm=design.y_norm,
        public=moment_layout(design, missing).public,
        public_norm2=public_norm2,
        n=n,
        noise=noise_model["scale"] / n,
        residual_noise=residual_noise / n,
        units=units,
    )
    return ResidualPlan.from_moments(moments / n, scale)


def _residual_noise_model(
    noise_model: Mapping[str, Any], plan: ResidualPlan, unit: float, scale: float, units: int
) -> dict[str, Any]:
    """Return the entries of a noise model about residual moments, whose sums have noise `scale` in units."""
    of_units = {"units": units} if units else {}
    return of_units | {
        "residual_bound": math.inf if noise_model["noise_free"] else unit,
        "residual_scale": scale * unit**2,
        "residual_largest": plan.largest,
    }


def _design_of_columns(
    schema: Schema | Design, formula: str | None, columns: Sequence[str], radius: float | None
) -> Design:
    from privinf.schema.columns import columns_design

    if not isinstance(schema, Design):
        check_schema(schema)
    if formula is not None or not isinstance(schema, Schema):
        raise ArgumentError(
            "columns= needs a Schema and cannot be combined with a formula: pass either columns= or a formula"
        )
    return columns_design(schema, columns, radius=radius)


def _noise_model(trust: Trust, weight: float, scale: float, budget: Spending) -> dict[str, Any]:
    return {
        "trust": trust,
        "response_weight": weight,
        "scale": scale,
        "delta": budget.delta,
        "noise_free": math.isinf(budget.mu),
    }
