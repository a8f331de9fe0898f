"""Least squares from noisy second moments: protects features and response together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.accounting.purposes import charged_for
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.fitting import rows
from privinf.fitting.covariances import check_release_covariance, requested_covariance
from privinf.fitting.model import (
    SITES_ELSEWHERE,
    SITES_NOISE,
    SITES_NOW,
    STATSMODELS,
    Model,
    ReleaseModel,
    ReleaseModelOptions,
    to_file,
)
from privinf.fitting.solve import Fit, build_results, with_covariance
from privinf.mechanisms import Moments
from privinf.moments import equation, records
from privinf.releases import Release
from privinf.results import Results
from privinf.schema import Schema
from privinf.schema.design import formula_text
from privinf.typing import (
    AnyPath,
    Bounds,
    Calibration,
    ColumnLike,
    ColumnsLike,
    CovWord,
    Missing,
    Pair,
    RngLike,
    SitePairs,
    SourceName,
    SpendingOptions,
    Stabilization,
    Table,
    Target,
    Trust,
)
from privinf.validation import check_count

__all__ = ["MomentOLS", "moment_system"]
ONE_PLACE: Mapping[Trust, str] = {"server": rows.NEEDS_SITES, "secure-sum": rows.NEEDS_SITES}
SEVERAL: Mapping[Trust, str] = {
    "central": rows.AT_SITES,
    "local": "is not available with several sites, which release sums of their records",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentReleaseOptions(SpendingOptions):
    """Options of `MomentOLS.release`, which describes them."""

    cov_type: CovWord | None = None
    robust_share: float | None = None
    max_colluding: int = 0
    checkpoint: AnyPath | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentFitOptions(MomentReleaseOptions):
    """Options of `MomentOLS.fit`, which describes them."""

    stabilization: Stabilization = "none"
    ridge: float = 0.0
    fuller: float | None = None
    target: Target = "population"


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentModelOptions(ReleaseModelOptions):
    """Arguments of the constructors of `MomentOLS`, which describe them; `effects` are the formula's."""

    trust: Trust | None = None
    response_weight: float | None = None
    effects: tuple[str, ...] = ()

    def with_trust(self, *, alone: bool) -> MomentModelOptions:
        """Return the options with the trust of rows in one place, or of several sites."""
        default: Trust = "central" if alone else "secure-sum"
        return replace(self, trust=rows.check_trust(self.trust, default, ONE_PLACE if alone else SEVERAL))

    def read(self, formula: str, schema: Schema) -> tuple[str, MomentModelOptions]:
        """Return the formula without its ``| factor``, and the options with these effects."""
        if not isinstance(formula, str) or "|" not in formula:
            return formula, self
        from privinf.schema.calls import absorbed

        formula, effects = absorbed(formula, schema)
        return formula, replace(self, effects=effects)


@error_boundaries
class MomentOLS(ReleaseModel[MomentModelOptions]):
    r"""Linear regression from noisy second moments.

    For the rows of several sites, use `from_arrays`, or pass a federation to `from_formula`. Secure sums
    reveal only the noisy total. By default the noise of secure sums is as large as the noise of one trusted
    curator.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response.
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula.
    bounds : sequence of (low, high), mapping, or "data", optional
        Public bounds of the private columns, in the order of the columns or by name; values outside the
        bounds are clipped. Pass `bounds`, `radius` or both. With "data" the bounds are computed from the
        rows, with a warning, because the guarantee does not cover such bounds.
    radius : float, optional
        Radius of the ball onto which the private columns of each row are projected. If `bounds` is passed,
        the columns are scaled by the bounds before the projection.
    y_bounds : (low, high) or "data"
        Public bounds of the response, to which noise is added too; values outside the bounds are clipped.
        With "data" the bounds are computed from the rows, with a warning, because the guarantee does not
        cover such bounds.
    public : sequence of column names or positions
        Columns that are public, in addition to the constant of `privinf.add_constant`. Public columns are not
        protected.
    trust : {"central", "local"}, optional
        Who is trusted with the rows. With "central" (default) a trusted curator adds one noise matrix to the
        total. With "local", noise is added to the second moments of each record.
    response_weight : float, optional
        Public weight c of the response relative to the features in the released second moments. By default
        the largest weighted response is 0.87 times as large as the largest norm of the features.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
        every row that lacks a value of the model. A dropped row adds zero to every sum, so that the number of
        dropped rows stays private.
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
    **Privacy.** Neighboring tables differ in one record, with its features and its response (replace-one).
    The second moments zz' of all variables are released once, with Gaussian noise, where z consists of the
    public columns, the features x and the weighted response c y. The trust assumptions of secure sums are
    documented in `privinf.federation.SecureServer`.

    The noise in the second moments A and g has mean zero, so the estimate ``b = A^-1 g`` needs no correction
    for bias. With ``trust="central"`` or sums over sites, the covariance is ``A^-1 (s^2 A/n + V_noise)
    A^-1``, where s^2 is the residual variance with the divisor n - p. This covariance assumes that all errors
    have the same variance. The option ``cov_type="HC0"`` does not assume equal variances, but it spends a
    part of the budget on a second release, of residual moments. In this second release, residuals are clipped
    at 20 standard deviations, or at a smaller multiple if the noise would be too large. With
    ``trust="local"`` the covariance is the sandwich of the scores ``g_i - A_i b`` of the records. If values
    of the response are clipped, the fit estimates the regression on clipped values.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> y = X @ [0.5, -0.3] + 0.3 * rng.standard_normal(5000)
    >>> fit = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2)).fit(epsilon=1.0, delta=1e-6, rng=0)
    >>> bool((abs(fit.params - [0.5, -0.3]) < 5 * fit.bse).all())
    True
    """

    kind = "moments"
    _effects: tuple[str, ...] = ()

    @refuses({"weights": rows.WEIGHTS_BY_NAME}, NotAvailableError)
    @refuses(SITES_ELSEWHERE)
    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        bounds: Bounds = None,
        radius: float | None = None,
        y_bounds: Pair | str | None = None,
        public: Sequence[str | int] = (),
        trust: Trust | None = None,
        response_weight: float | None = None,
        missing: Missing = "raise",
        ledger: Ledger | None = None,
    ) -> None:
        if y_bounds is None:
            raise SchemaError(rows.PROTECTED)
        options = MomentModelOptions(
            bounds=bounds,
            radius=radius,
            y_bounds=y_bounds,
            public=public,
            trust=trust,
            response_weight=response_weight,
            missing=missing,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    @refuses({"parties": SITES_NOW})
    def from_arrays(
        cls,
        sites: SitePairs,
        *,
        bounds: Bounds = None,
        radius: float | None = None,
        y_bounds: Pair | None = None,
        trust: Trust | None = None,
        response_weight: float | None = None,
        missing: Missing = "raise",
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from one pair (y, X) per site; all columns except ``const`` are protected.

        Parameters
        ----------
        sites : sequence or mapping of (y, X)
            Response and features of every site: a mapping from labels of sites to pairs, or a sequence, whose
            sites are numbered from 0. The sites are simulated in this process; for real sites pass a
            federation to `from_formula`.
        bounds : sequence of (low, high), or mapping, optional
            Public bounds of every column except the constant, in the order of the columns or by name; values
            outside the bounds are clipped. Pass `bounds`, `radius` or both.
        radius : float, optional
            Radius of the ball onto which the private columns of each row are projected. If `bounds` is
            passed, the columns are scaled by the bounds before the projection.
        y_bounds : (low, high)
            Public bounds of the response; values outside the bounds are clipped.
        trust : {"secure-sum", "server"}, optional
            With "secure-sum" (default) the sites add the noise themselves and mask their sums, so that only
            the noisy total is revealed; this mode needs the optional dependencies ``privinf[federation]``.
            With "server" the sites send sums without noise to a server that all of them trust.
        response_weight : float, optional
            Public weight c of the response relative to the features in the released second moments. By
            default the largest weighted response is 0.87 times as large as the largest norm of the features.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        MomentOLS
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            Raised if a column does not match its declaration, a bound is missing or invalid, or an argument
            is invalid. The message names the site whose rows cause the error.

        Examples
        --------
        >>> import numpy as np, privinf as pi
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (5000, 2))
        >>> y = X @ [0.5, -0.3] + 0.3 * rng.standard_normal(5000)
        >>> sites = [(y[:2000], X[:2000]), (y[2000:], X[2000:])]
        >>> model = pi.MomentOLS.from_arrays(sites, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2))
        >>> fit = model.fit(epsilon=1.0, delta=1e-6, rng=0)
        >>> bool((abs(fit.params - [0.5, -0.3]) < 5 * fit.bse).all())
        True
        """
        options = MomentModelOptions(
            bounds=bounds,
            radius=radius,
            y_bounds=y_bounds,
            trust=trust,
            response_weight=response_weight,
            missing=missing,
            ledger=ledger,
        )
        return cls._from_sites(sites, options)

    @classmethod
    @refuses(SITES_ELSEWHERE)
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        trust: Trust | None = None,
        response_weight: float | None = None,
        radius: float | None = None,
        weights: str | None = None,
        missing: Missing = "raise",
        ledger: Ledger | None = None,
        data_bounds: bool = False,
    ) -> Self:
        """Build the model from a formula and a table, or a federation whose sites hold the rows.

        Parameters
        ----------
        formula : str
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated by the holder of
            the rows, and the bounds of its terms follow from the schema. A formula such as ``"y ~ x | firm +
            year"`` absorbs the effects of factors: the effects are fitted, but the results contain neither
            these effects nor the constant.
        data : DataFrame, any other table, or Federation
            Table with the raw rows, or a federation of sites that hold the rows. The sites of a federation
            must have the same schema, and policies that allow the trust model.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included.
        trust : {"central", "local", "secure-sum", "server"}, optional
            Who is trusted with the rows. A table accepts "central" and "local". With "central" (default for a
            table) a trusted curator adds one noise matrix to the total. With "local", noise is added to the
            second moments of each record. A federation accepts "secure-sum" and "server". With "secure-sum"
            (default for a federation) the sites add the noise themselves and mask their sums. With "server"
            the sites send sums without noise to a server that they trust.
        response_weight : float, optional
            Public weight c of the response relative to the features in the released second moments. By
            default the largest weighted response is 0.87 times as large as the largest norm of the features.
        radius : float, optional
            Radius of the ball onto which the private columns of each row, scaled by their bounds, are
            projected. By default rows are not projected.
        weights : str, optional
            Name of the column of observation weights. The schema must declare it public, with positive
            bounds. A federation does not accept weights.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private. In a federation each site chooses its own handling, by the
            argument `missing` of its `Rows`.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.
        data_bounds : bool
            Whether the bounds of the schema were computed from these rows. The guarantee does not cover such
            bounds, and the ledger states this.

        Returns
        -------
        MomentOLS
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, NotAvailableError
            Raised if the schema does not declare a column that the formula needs. The error is also raised if
            `weights` is passed with a federation, because a federation protects all columns, including those
            that the schema declares public.
        """
        options = MomentModelOptions(
            trust=trust,
            response_weight=response_weight,
            radius=radius,
            weights=weights,
            missing=missing,
            ledger=ledger,
            data_bounds=data_bounds,
        )
        return cls._from_formula(formula, data, schema, options)

    @classmethod
    def _from_formula(cls, formula: str, data: Table, schema: Schema, options: MomentModelOptions) -> Self:
        if not rows.is_federation(data):
            return super()._from_formula(formula, data, schema, options)
        from privinf.moments.federated import closed

        rows.refuse_weights(options.weights)
        options = options.with_trust(alone=False)
        formula, options = options.read(formula, schema)
        model_rows = rows.rows_of_formula(
            formula, data, schema, radius=options.radius, missing=options.missing
        )
        return cls._of(closed(model_rows, schema), options)

    @classmethod
    def _mechanism(cls, source: Mapping[str, Any], options: MomentModelOptions) -> Moments:
        return Moments(
            **source,
            trust=options.trust or "central",
            response_weight=options.response_weight,
            radius=options.radius,
            missing=options.missing,
            weights=options.weights,
            data_bounds=options.data_bounds,
        )

    def _set_rows(self, model_rows: rows.ModelRows, options: MomentModelOptions) -> None:
        if options.trust not in ("secure-sum", "server"):
            super()._set_rows(model_rows, options)
            return
        from privinf.moments.federated import FederatedMoments

        self.mechanism = FederatedMoments(
            model_rows.placed(options.trust), trust=options.trust, response_weight=options.response_weight
        )
        self._leave_out(options.effects)
        Model._set_rows(self, None, options)

    def _set_mechanism(
        self, mechanism: Moments, model_rows: rows.ModelRows, options: MomentModelOptions
    ) -> None:
        super()._set_mechanism(mechanism, model_rows, options)
        self._leave_out(options.effects)

    def _leave_out(self, effects: tuple[str, ...]) -> None:
        if effects:
            from privinf.results.effects import MOST_COLUMNS, check_effects

            check_effects(self.mechanism.design, effects, limit=MOST_COLUMNS)
        self._effects = effects

    @property
    def _federated(self) -> bool:
        return self.mechanism is not None and not isinstance(self.mechanism, Moments)

    @refuses(STATSMODELS, NotAvailableError)
    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        cov_type: CovWord | None = None,
        robust_share: float | None = None,
        max_colluding: int = 0,
        checkpoint: AnyPath | None = None,
        to: AnyPath | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> Release:
        """Release the second moments of the rows, and residual moments if `cov_type` needs them.

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
        cov_type : {"nonrobust", "HC0", "HC1", "cluster"}, optional
            Covariance of the coefficients. With "nonrobust" intervals and score tests assume that all errors
            have the same variance. With "HC0", no equal variances are assumed, and the share `robust_share`
            of mu^2 is spent on a second release, of residual moments. With "HC1" the sampling part of "HC0"
            is multiplied by n/(n - p). With "cluster", rows are clustered by the unit of the schema, at the
            same cost as "HC0"; this choice is only for one table, and not for several sites. The default is
            "cluster" for one table in which a unit can have several rows, and else "nonrobust". With
            ``trust="local"`` the covariance is always the sandwich, at no further cost.
        robust_share : float, optional
            Share of the budget (in mu^2) for the residual moments of ``cov_type="HC0"`` or "cluster"; default
            0.25. With ``trust="local"``, no residual moments are released.
        max_colluding : int
            Number of sites that may collude with the server in secure sums. The noise of this number of sites
            does not count toward the guarantee.
        checkpoint : path, optional
            Folder in which a fit over a federation stores every query and every release. Use a new folder for
            each fit. If the fit is interrupted, the same call with the same folder continues the fit and pays
            for no release twice. With ``trust="server"`` the folder contains the secret key of the noise, so
            protect the folder as you protect the rows.
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
            is released. The default is the ledger of the model.

        Returns
        -------
        Release
            Release of kind "moments".

        Raises
        ------
        ArgumentError, NotAvailableError
            Raised if an option does not match the model, or if the model was built from a release; nothing
            was spent.
        BudgetExceededError
            Raised if the release would exceed the limit of the ledger; nothing was spent.
        """
        options = MomentReleaseOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            cov_type=cov_type,
            robust_share=robust_share,
            max_colluding=max_colluding,
            checkpoint=checkpoint,
            calibration=calibration,
            source=source,
        )
        call_options = to_file(options, to)
        for option in [option for option in ("source", "to") if self._federated and option in call_options]:
            raise ArgumentError(f"{option}= {SITES_NOISE}")
        rounds = {"cov_type": options.cov_type, "robust_share": options.robust_share}
        if (mechanism := self.mechanism) is not None:
            schema = mechanism.design.schema
            cov_type = equation.default_covariance(schema, mechanism.trust) if cov_type is None else cov_type
            rounds["cov_type"] = equation.release_covariance_kind(cov_type, schema, mechanism.trust)
        call_options |= {name: value for name, value in rounds.items() if value is not None}
        account = self.ledger if ledger is None else check_ledger(ledger)
        round_options = {"max_colluding": options.max_colluding, "checkpoint": options.checkpoint}
        if self._federated:
            with charged_for(f"{type(self).__name__}: {formula_text(self.mechanism.design)}"):
                return self.mechanism.release(ledger=account, **round_options, **call_options)  # type: ignore[no-any-return]
        for name in [name for name, value in round_options.items() if value not in (None, 0)]:
            raise ArgumentError(f"{name}= can only be passed for a federation")
        return self._released(account, call_options)

    @refuses(STATSMODELS, NotAvailableError)
    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        cov_type: CovWord | None = None,
        robust_share: float | None = None,
        stabilization: Stabilization = "none",
        ridge: float = 0.0,
        fuller: float | None = None,
        target: Target = "population",
        max_colluding: int = 0,
        checkpoint: AnyPath | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
    ) -> Results:
        """Release the rows, unless the model was built from a release, and estimate the coefficients.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. Without noise the fit is
            ordinary least squares.
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
        cov_type : {"nonrobust", "HC0", "HC1", "cluster"}, optional
            Covariance of the coefficients. With "nonrobust" intervals and score tests assume that all errors
            have the same variance. With "HC0", no equal variances are assumed, and the share `robust_share`
            of mu^2 is spent on a second release, of residual moments. With "HC1" the sampling part of "HC0"
            is multiplied by n/(n - p). With "cluster", rows are clustered by the unit of the schema, at the
            same cost as "HC0"; this choice is only for one table, and not for several sites. The default is
            "cluster" for one table in which a unit can have several rows, and else "nonrobust". With
            ``trust="local"`` the covariance is always the sandwich, at no further cost.
        robust_share : float, optional
            Share of the budget (in mu^2) for the residual moments of ``cov_type="HC0"`` or "cluster"; default
            0.25. With ``trust="local"``, no residual moments are released.
        stabilization : {"none", "fuller", "ridge"}
            Correction of noisy second moments that are nearly singular: Fuller's modification (with the
            constant `fuller`) or a ridge penalty (`ridge`). The summary names the correction. The choice
            "fuller" is not available for `MomentOLS`.
        ridge : float
            Ridge penalty, at least 0, in scaled units. With a penalty above 0 the coefficients are the ridge
            estimate. Intervals and tests are computed without the penalty unless ``target="penalized"``.
        fuller : float, optional
            Constant of Fuller's modification. The default is the number of coefficients plus 4.
        target : {"population", "sample", "penalized"}
            Coefficients for which intervals are computed: the coefficients of the population, the
            coefficients in these rows alone ("sample", with noise as the only error), or the ridge-penalized
            coefficients of the population.
        max_colluding : int
            Number of sites that may collude with the server in secure sums. The noise of this number of sites
            does not count toward the guarantee.
        checkpoint : path, optional
            Folder in which a fit over a federation stores every query and every release. Use a new folder for
            each fit. If the fit is interrupted, the same call with the same folder continues the fit and pays
            for no release twice. With ``trust="server"`` the folder contains the secret key of the noise, so
            protect the folder as you protect the rows.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.

        Returns
        -------
        Results
            Results with coefficients, covariance, tests, predictions and the privacy report.
        """
        options = MomentFitOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            cov_type=cov_type,
            robust_share=robust_share,
            stabilization=stabilization,
            ridge=ridge,
            fuller=fuller,
            target=target,
            max_colluding=max_colluding,
            checkpoint=checkpoint,
            calibration=calibration,
            source=source,
        )
        return self._fitted(options)

    def _fitted(self, options: MomentFitOptions) -> Results:
        """Return the estimate of the release of the rows, or of the model's own."""
        fit_options = Fit(
            stabilization=options.stabilization,
            ridge=options.ridge,
            fuller=options.fuller,
            target=options.target,
        )
        if options.stabilization == "fuller":
            raise NotAvailableError(equation.FULLER_REASON)
        colluding_limit = check_count(options.max_colluding, "max_colluding", least=0) or None
        rounds = {
            "robust_share": options.robust_share,
            "max_colluding": colluding_limit,
            "checkpoint": options.checkpoint,
        }
        call_options: dict[str, Any] = {**options.spending()}
        call_options |= {name: value for name, value in rounds.items() if value is not None}
        release = self._release_or_none(call_options)
        if release is None:
            release = self.release(cov_type=options.cov_type, **call_options)
        equation.check_stabilization(release, fit_options)
        schema = release.design.schema
        covariance = requested_covariance(options.cov_type, schema)
        check_release_covariance(covariance, equation.release_cov_type(release), schema)
        system = moment_system(release)
        results = build_results(
            Results,
            system,
            release=release,
            ledger=self.ledger,
            reread=self._release is not None,
            model=type(self).__name__,
            method=equation.METHOD,
            fit=fit_options,
            options=equation.described(release),
            settings=equation.completeness(release)
            | equation.caveats(release, system)
            | equation.at_ends(release, system, release.design),
        )
        results = with_covariance(
            results._noted(equation.advice_of(results, system, release.design)), covariance
        )
        return equation.without(results, self._effects) if self._effects else results

    def __repr__(self) -> str:
        if self._federated:
            return f"<{type(self).__name__}: {self.mechanism!r} (rows not shown)>"
        return super().__repr__()


def moment_system(release: Release, part: equation.MomentMap | None = None) -> records.MomentSystem:
    """Return the estimating equation of a moment release, scaled units: of its design, or of a part of it."""
    local = release.noise_model["trust"] == "local"
    return records.record_system(release, part) if local else equation.total_system(release, part)
