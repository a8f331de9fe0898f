"""Corrected least squares on modulated features (paper 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import error_boundaries, refuses, warn
from privinf.errors import ArgumentError, NotAvailableError, UnprotectedResponseWarning
from privinf.fitting.covariances import check_records
from privinf.fitting.model import STATSMODELS, ReleaseModel, ReleaseModelOptions, to_file
from privinf.fitting.rows import WEIGHTS_BY_NAME, Limits
from privinf.fitting.solve import LAST_ITERATE, Fit, Reported, build_results, with_covariance
from privinf.mechanisms import Modulation
from privinf.mechanisms.rows import EACH_ROW, refuse_dropping
from privinf.modulation.equation import (
    Estimator,
    GradientRule,
    ModulationSettings,
    gradient_path,
    modulation_system,
    release_rounds,
    round_systems,
)
from privinf.modulation.results import ModulatedOLSResults, regressions
from privinf.releases import Release
from privinf.results import Results
from privinf.schema import Schema
from privinf.typing import (
    Adjacency,
    AnyPath,
    Bounds,
    Calibration,
    ColumnLike,
    ColumnsLike,
    CovWord,
    Imputation,
    Pair,
    ResponseMode,
    RngLike,
    SensitivityRule,
    SourceName,
    SpendingOptions,
    Stabilization,
    Table,
    Target,
)
from privinf.validation import check_choice, counted

ModulationMethod = Literal["one-shot", "iterative"]
UNPROTECTED_RESPONSE = (
    "{} is NOT protected: without y_bounds= it is sent unchanged, and epsilon covers only "
    "the other columns. Pass public bounds y_bounds=(low, high) to protect it, or "
    "response='public' to declare it public"
)

DEFAULT_STEP = 0.8  # c of the steps c / ||A_t||_op


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulationReleaseOptions(SpendingOptions):
    """Options of `ModulatedOLS.release`, which describes them."""

    method: ModulationMethod | None = "one-shot"
    rounds: int | None = None
    schedule: Sequence[float] | None = None
    step: float | None = None
    max_norm: float | None = None
    progress: bool | None = None

    def protocol(self) -> dict[str, Any]:
        """Return the options of the iterative protocol, by name."""
        return {name: getattr(self, name) for name in ("rounds", "schedule", "step", "max_norm")}

    def rule(self) -> GradientRule:
        """Return the step rule of the iterative protocol."""
        return GradientRule(DEFAULT_STEP if self.step is None else self.step, self.max_norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulationFitOptions(ModulationReleaseOptions):
    """Options of `ModulatedOLS.fit`, which describes them."""

    method: ModulationMethod | None = None
    estimator: Estimator | None = None
    stabilization: Stabilization = "none"
    ridge: float = 0.0
    fuller: float | None = None
    target: Target = "population"
    cov_type: CovWord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulationModelOptions(ReleaseModelOptions):
    """Arguments of the constructors of `ModulatedOLS`, which describe them."""

    response: ResponseMode | None = None
    contraction: float = 0.5
    amplitude: float = 0.1
    frequency: float = 1.0
    directions: int = 1
    sensitivity: SensitivityRule = "exact"
    adjacency: Adjacency = "bounded"
    response_share: float | None = None
    public_seed: int = 0

    def limits(self) -> Limits:
        """Return the public bounds of arrays; records at distance at most one need no bounds."""
        return Limits(
            bounds=self.bounds,
            radius=self.radius,
            y_bounds=self.y_bounds,
            public=self.public,
            unbounded=self.adjacency == "unit",
        )


@error_boundaries
class ModulatedOLS(ReleaseModel[ModulationModelOptions]):
    r"""Linear regression in the local model: every client sends one noisy, modulated vector of features.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response. Without `y_bounds` the response is NOT protected: it is released as it is, with a warning.
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula.
    radius : float, optional
        Radius of the ball onto which the private columns of each row are projected. If `bounds` is passed,
        the columns are scaled by the bounds before the projection.
    bounds : sequence of (low, high), mapping, or "data", optional
        Public bounds of the private columns, in the order of the columns or by name; values outside the
        bounds are clipped. Pass `bounds`, `radius` or both. Both are optional with ``adjacency="unit"``. With
        "data" the bounds are computed from the rows, with a warning, because the guarantee does not cover
        such bounds.
    y_bounds : (low, high) or "data", optional
        Public bounds of the response. With public bounds, noise is added to the response too, for a share of
        the budget. With "data" the bounds are computed from the rows, with a warning, because the guarantee
        does not cover such bounds.
    response : {"protected", "public"}, optional
        Protection of the response. With "public" the response is released as it is, without a warning. If
        `response` is "protected", noise is added to the response, and `y_bounds` is required. By default the
        response is protected if `y_bounds` is passed.
    public : sequence of column names or positions
        Columns that are public, in addition to the constant of `privinf.add_constant`. Public columns are not
        protected.
    contraction : float
        Contraction alpha of the paper, in [0, 1): features are multiplied by 1 - alpha.
    amplitude : float
        Size of the cosine modulation (lambda of the paper), at least 0, in scaled units.
    frequency : float
        Frequency of the cosine modulation (omega of the paper), at least 0.
    directions : int
        Number of orthonormal directions of the modulation (m of the paper), at most the number of private
        columns.
    sensitivity : {"exact", "lipschitz"}
        Bound of the sensitivity to which the noise is calibrated. The choice "exact" (default) is (1 -
        contraction) times the largest distance between two records. The choice "lipschitz" is the larger
        bound of the paper (Theorem 7.2).
    adjacency : {"bounded", "unit"}
        Pairs of records that the guarantee covers: any two records inside the bounds (default), or, as in the
        paper, two records at a distance of at most 1 ("unit", metric privacy).
    response_share : float, optional
        Share of the budget (in mu^2) for a protected response, in (0, 1). By default the share is computed
        from public numbers.
    public_seed : int
        Public seed of the directions of the modulation.
    missing : {"raise", "impute-public"}
        Handling of missing values: refuse them (default), or impute the middle of the public bounds.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if a column does not match its declaration, a bound that the sensitivity needs is missing or
        invalid, or an argument is invalid. Nothing was spent, and no error message contains a value of a row.

    Notes
    -----
    **Privacy.** The trust model is local: noise is added to each record before it is sent. Each `fit` or
    `release` reads every row once (in the iterative protocol once per round), and records its cost in the
    ledger. Neighboring tables differ in one record (replace-one).

    The estimate b solves ``mean x~ (y - x~'b) + S b = 0``, as in errors-in-variables regression (Fuller
    1987). Here x~ is g/(1-alpha), where g is the released vector of a record, and S is the known covariance
    of the noise in x~. The covariance of the estimate b is ``A^-1 Cov(psi) A^-T / n``, where A = mean x~x~' -
    S, and psi is the score of a record. In the iterative protocol the default estimator first averages the
    released vectors of each client. The last iterate, which the paper uses, has an optimization error and no
    intervals.

    References
    ----------
    Vepakomma et al. (2026), "Modulated learning for private and distributed regression with just a
    single sample per client device", Algorithms 1 to 4, section 5.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, (20_000, 2))
    >>> y = X @ [1.0, -1.0] + 0.1 * rng.standard_normal(20_000)
    >>> fit = pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(epsilon=20.0, delta=1e-6, rng=0)
    >>> fit.conf_int().shape
    (2, 2)
    """

    kind = "modulation"
    # Whether y would be sent unprotected by default.
    _response_unstated = False

    @refuses({"weights": WEIGHTS_BY_NAME}, NotAvailableError)
    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        radius: float | None = None,
        bounds: Bounds = None,
        y_bounds: Pair | str | None = None,
        response: ResponseMode | None = None,
        public: Sequence[str | int] = (),
        contraction: float = 0.5,
        amplitude: float = 0.1,
        frequency: float = 1.0,
        directions: int = 1,
        sensitivity: SensitivityRule = "exact",
        adjacency: Adjacency = "bounded",
        response_share: float | None = None,
        public_seed: int = 0,
        missing: Imputation = "raise",
        ledger: Ledger | None = None,
    ) -> None:
        check_response(response, y_bounds)
        options = ModulationModelOptions(
            radius=radius,
            bounds=bounds,
            y_bounds=y_bounds,
            response=response,
            public=public,
            contraction=contraction,
            amplitude=amplitude,
            frequency=frequency,
            directions=directions,
            sensitivity=sensitivity,
            adjacency=adjacency,
            response_share=response_share,
            public_seed=public_seed,
            missing=missing,
            ledger=ledger,
        )
        self._from_pair(y, X, options)
        self._response_unstated = response is None and self.mechanism.design.response_public

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        response: ResponseMode | None = None,
        radius: float | None = None,
        weights: str | None = None,
        contraction: float = 0.5,
        amplitude: float = 0.1,
        frequency: float = 1.0,
        directions: int = 1,
        sensitivity: SensitivityRule = "exact",
        adjacency: Adjacency = "bounded",
        response_share: float | None = None,
        public_seed: int = 0,
        missing: Imputation = "raise",
        ledger: Ledger | None = None,
        data_bounds: bool = False,
    ) -> Self:
        """Build the model from a formula, raw rows and their public schema.

        Parameters
        ----------
        formula : str
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated by the holder of
            the rows, and the bounds of its terms follow from the schema.
        data : DataFrame, or any other table with a fixed order of its rows
            Raw rows.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included.
        response : {"protected", "public"}, optional
            Whether noise is added to the response ("protected", default), or the response is released as it
            is ("public"). A response whose columns the schema declares public is always released as it is.
        radius : float, optional
            Radius of the ball onto which the private columns of each row, scaled by their bounds, are
            projected. By default rows are not projected.
        weights : str, optional
            Name of the column of observation weights. The schema must declare it public, with positive
            bounds.
        contraction : float
            Contraction alpha of the paper, in [0, 1): features are multiplied by 1 - alpha.
        amplitude : float
            Size of the cosine modulation (lambda of the paper), at least 0, in scaled units.
        frequency : float
            Frequency of the cosine modulation (omega of the paper), at least 0.
        directions : int
            Number of orthonormal directions of the modulation (m of the paper), at most the number of private
            columns.
        sensitivity : {"exact", "lipschitz"}
            Bound of the sensitivity to which the noise is calibrated. The choice "exact" (default) is (1 -
            contraction) times the largest distance between two records. The choice "lipschitz" is the larger
            bound of the paper (Theorem 7.2).
        adjacency : {"bounded", "unit"}
            Pairs of records that the guarantee covers: any two records inside the bounds (default), or, as in
            the paper, two records at a distance of at most 1 ("unit", metric privacy).
        response_share : float, optional
            Share of the budget (in mu^2) for a protected response, in (0, 1). By default the share is
            computed from public numbers.
        public_seed : int
            Public seed of the directions of the modulation.
        missing : {"raise", "impute-public"}
            Handling of missing values: refuse them (default), or impute the middle of the public bounds
            (for a factor, its first level).
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.
        data_bounds : bool
            Whether the bounds of the schema were computed from these rows. The guarantee does not cover such
            bounds, and the ledger states this.

        Returns
        -------
        ModulatedOLS
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, NotAvailableError
            Raised if the schema does not declare a column that the formula needs, or the data are a
            federation.
        """
        options = ModulationModelOptions(
            response=response,
            radius=radius,
            weights=weights,
            contraction=contraction,
            amplitude=amplitude,
            frequency=frequency,
            directions=directions,
            sensitivity=sensitivity,
            adjacency=adjacency,
            response_share=response_share,
            public_seed=public_seed,
            missing=missing,
            ledger=ledger,
            data_bounds=data_bounds,
        )
        return cls._from_formula(formula, data, schema, options)

    @classmethod
    def _mechanism(cls, source: Mapping[str, Any], options: ModulationModelOptions) -> Modulation:
        return Modulation(
            **source,
            response=options.response or "protected",
            radius=options.radius,
            response_share=options.response_share,
            missing=refuse_dropping(options.missing, EACH_ROW),
            weights=options.weights,
            public_seed=options.public_seed,
            data_bounds=options.data_bounds,
            contraction=options.contraction,
            amplitude=options.amplitude,
            frequency=options.frequency,
            directions=options.directions,
            sensitivity=options.sensitivity,
            adjacency=options.adjacency,
        )

    @refuses(STATSMODELS, NotAvailableError)
    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        method: ModulationMethod = "one-shot",
        rounds: int | None = None,
        schedule: Sequence[float] | None = None,
        step: float | None = None,
        max_norm: float | None = None,
        progress: bool | None = None,
        to: AnyPath | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> Release:
        """Release the rows once, or in the rounds of the iterative protocol.

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
        method : {"one-shot", "iterative"}, optional
            Protocol: one release of every record (default), or several adaptive releases ("iterative"), in
            which the directions are orthogonal to the current coefficients.
        rounds : int, optional
            Number T of rounds of the iterative protocol; default 10.
        schedule : sequence of float, optional
            Relative budgets (in mu^2) of the rounds of the iterative protocol. By default they are equal.
        step : float, optional
            Factor c of the step ``eta_t = c / ||A_t||_op`` of the iterative protocol; default 0.8.
        max_norm : float, optional
            Radius of the ball onto which the iterates of the iterative protocol are projected. By default
            they are not projected.
        progress : bool, optional
            Whether to show a progress bar over the rounds of the iterative protocol. By default the bar
            appears on a terminal only.
        to : path, optional
            Parquet file to which the released rows are written block by block. Everything else is written to
            ``<name>.json`` next to it. The rows and the noisy records then need not fit in memory. The JSON
            file is written last; a Parquet file without it is not a complete release. `load_release` reads
            both. The argument is only for ``method="one-shot"``.
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
            Release of kind "modulation".
        """
        options = ModulationReleaseOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            method=method,
            rounds=rounds,
            schedule=schedule,
            step=step,
            max_norm=max_norm,
            progress=progress,
            calibration=calibration,
            source=source,
        )
        spending = to_file(options, to)
        check_method(method, options.protocol())
        if self._rows is not None and self._response_unstated:
            warn(UNPROTECTED_RESPONSE.format(self.mechanism.design.response), UnprotectedResponseWarning)
        if method == "one-shot":
            return self._released(ledger, spending)
        if self._rows is None:
            return self._released(ledger, {})
        rule = options.rule()
        spending["ledger"] = self.ledger if ledger is None else check_ledger(ledger)
        round_count = 10 if rounds is None else rounds
        return release_rounds(
            self.mechanism, self._rows, rule, round_count, progress, {"schedule": schedule, **spending}
        )

    @refuses(STATSMODELS, NotAvailableError)
    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        method: ModulationMethod | None = None,
        rounds: int | None = None,
        schedule: Sequence[float] | None = None,
        estimator: Estimator | None = None,
        step: float | None = None,
        max_norm: float | None = None,
        stabilization: Stabilization = "none",
        ridge: float = 0.0,
        fuller: float | None = None,
        target: Target = "population",
        cov_type: CovWord | None = None,
        progress: bool | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
    ) -> ModulatedOLSResults:
        """Release the rows, unless the model was built from a release, and estimate the coefficients.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. With ``epsilon=inf`` the
            features are not modulated either.
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
        method : {"one-shot", "iterative"}, optional
            Protocol: one release of every record (default), or several adaptive releases ("iterative"), in
            which the directions are orthogonal to the current coefficients.
        rounds : int, optional
            Number T of rounds of the iterative protocol; default 10.
        schedule : sequence of float, optional
            Relative budgets (in mu^2) of the rounds of the iterative protocol. By default they are equal.
        estimator : {"client-average", "pooled", "last"}, optional
            Estimator for the iterative protocol. With "client-average" (default) the released vectors of each
            client are averaged over the rounds, with weights 1/sigma_t^2. The error of this estimator is
            about as large as the error of one release with the same total budget. With "pooled" the moments
            of the rounds are averaged, and scores are clustered by client. With "last" the estimate is the
            last iterate, as in the paper: it has an optimization error and no intervals.
        step : float, optional
            Factor c of the step ``eta_t = c / ||A_t||_op`` of the iterative protocol; default 0.8.
        max_norm : float, optional
            Radius of the ball onto which the iterates of the iterative protocol are projected. By default
            they are not projected.
        stabilization : {"none", "fuller", "ridge"}
            Correction of noisy second moments that are nearly singular: Fuller's modification (with the
            constant `fuller`) or a ridge penalty (`ridge`). The summary names the correction.
        ridge : float
            Ridge penalty, at least 0, in scaled units. With a penalty above 0 the coefficients are the ridge
            estimate. Intervals and tests are computed without the penalty unless ``target="penalized"``.
        fuller : float, optional
            Constant of Fuller's modification. The default is the number of coefficients plus 4.
        target : {"population", "sample", "penalized"}
            Coefficients for which intervals are computed: the coefficients of the population, the
            coefficients in these rows alone ("sample", with noise as the only error), or the ridge-penalized
            coefficients of the population.
        cov_type : {"HC0", "HC1", "cluster"}, optional
            Covariance of the coefficients: "HC0", or "cluster" if the schema has a unit. With "HC1" the
            sampling part of "HC0" is multiplied by n/(n - p).
        progress : bool, optional
            Whether to show a progress bar over the rounds of the iterative protocol. By default the bar
            appears on a terminal only.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.

        Returns
        -------
        ModulatedOLSResults
            Results with coefficients, covariance, tests, predictions and the privacy report.

        Notes
        -----
        **Privacy.** The cost is first recorded in the ledger of the model. The rows are then read, once per
        round.
        """
        options = ModulationFitOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            method=method,
            rounds=rounds,
            schedule=schedule,
            estimator=estimator,
            step=step,
            max_norm=max_norm,
            stabilization=stabilization,
            ridge=ridge,
            fuller=fuller,
            target=target,
            cov_type=cov_type,
            progress=progress,
            calibration=calibration,
            source=source,
        )
        corrections = Fit(stabilization=stabilization, ridge=ridge, fuller=fuller, target=target)
        chosen: Estimator = check_choice(estimator or "client-average", Estimator, "estimator")
        spending: dict[str, Any] = {**options.spending()}
        origin = self.mechanism if self._release is None else self._release
        covariance = check_records(options.cov_type, origin.design.schema)
        protocol = options.protocol()
        release = self._release_or_none(
            {**spending, "rounds": rounds, "schedule": schedule, "method": method}
        )
        if release is None:
            method = "one-shot" if method is None else method
            check_method(method, {**protocol, "estimator": estimator})
            if rounds == 1 and estimator is not None:
                raise ArgumentError(
                    "estimator= is for several rounds, but rounds=1 is a single release: leave estimator= out"
                )
            release = self.release(
                method=method,
                rounds=rounds,
                schedule=schedule,
                step=step,
                max_norm=max_norm,
                progress=progress,
                **spending,
            )
        iterative = release.arrays["features"].ndim == 3
        refuse_estimator(estimator, iterative=iterative)
        if self._release is not None:
            refuse_projection(protocol, estimator)
        results = self._solve(release, chosen if iterative else None, options.rule(), corrections)
        return with_covariance(results, covariance)

    def regress(
        self,
        formula: str | Sequence[str] | None = None,
        *,
        estimator: Estimator | None = None,
        stabilization: Stabilization = "none",
        ridge: float = 0.0,
        fuller: float | None = None,
        target: Target = "population",
    ) -> Results | dict[str, Results]:
        """Fit a linear regression among the released columns, at no further cost.

        Parameters
        ----------
        formula : str or sequence of str, optional
            Formula of the regression to fit. Its response may be any numeric column of the release. With
            several responses, such as ``"a + b ~ c"``, or with a list of formulas, the method returns a dict
            of results. The default is the regression for which the release was made, which is estimated by
            `fit`.
        estimator : {"client-average", "pooled", "last"}, optional
            Estimator for a release of the iterative protocol: "client-average", "pooled" or "last". Use
            `estimator` only without `formula`. With a formula the estimator is always "client-average".
        stabilization : {"none", "fuller", "ridge"}
            Correction of noisy second moments that are nearly singular: Fuller's modification (with the
            constant `fuller`) or a ridge penalty (`ridge`). The summary names the correction.
        ridge : float
            Ridge penalty, at least 0, in scaled units. With a penalty above 0 the coefficients are the ridge
            estimate. Intervals and tests are computed without the penalty unless ``target="penalized"``.
        fuller : float, optional
            Constant of Fuller's modification. The default is the number of coefficients plus 4.
        target : {"population", "sample", "penalized"}
            Coefficients for which intervals are computed: the coefficients of the population, the
            coefficients in these rows alone ("sample", with noise as the only error), or the ridge-penalized
            coefficients of the population.

        Returns
        -------
        Results, or dict of str to Results
            Results of the regression. For a formula with several responses the results are a dict by
            response, and for a list of formulas a dict by formula.

        Raises
        ------
        ArgumentError
            Raised if the model was not built from a release.
        NotAvailableError
            Raised if a term of the formula is not a linear combination of released columns.
        """
        if formula is None:
            return self.fit(
                estimator=estimator, stabilization=stabilization, ridge=ridge, fuller=fuller, target=target
            )
        if self._release is None:
            raise ArgumentError(
                "regress() needs a model that was built from a release: use "
                "from_release(model.release(...)).regress(formula)"
            )
        if estimator is not None:
            raise ArgumentError(
                "estimator= applies only to the regression that the release was made for, not to a new "
                "formula: leave the formula or estimator= out"
            )
        corrections = Fit(stabilization=stabilization, ridge=ridge, fuller=fuller, target=target)
        return regressions(self._release, formula, corrections)

    def _solve(
        self, release: Release, estimator: Estimator | None, rule: GradientRule, fit: Fit
    ) -> ModulatedOLSResults:
        method = "one-shot modulated release"
        options = {}
        if estimator is not None:
            method = f"iterative modulated release, {counted(len(release.arrays['features']), 'round')}"
            options = {"Estimator": estimator}
        point = None
        if estimator == "last":
            start = np.zeros(len(release.design.names))
            moments = [(system.A, system.g) for system in round_systems(release)]
            point = gradient_path(moments, start, step=rule.step, max_norm=rule.max_norm)[-1]
        moments_of: Estimator = "pooled" if estimator == "pooled" else "client-average"
        system = modulation_system(release, moments_of)
        average = modulation_system(release, "client-average") if estimator == "pooled" else None
        return build_results(
            ModulatedOLSResults,
            system,
            release=release,
            ledger=self.ledger,
            reread=self._release is not None,
            model=type(self).__name__,
            method=method,
            fit=fit,
            options=options,
            settings=ModulationSettings(moments=moments_of),
            reported=None if point is None else Reported(point, LAST_ITERATE),
            sampling_system=average,
        )


def check_method(method: ModulationMethod, options: Mapping[str, object]) -> None:
    """Refuse options of the iterative protocol where the method is one-shot."""
    check_choice(method, ModulationMethod, "method")
    used = [f"{name}=" for name, value in options.items() if value is not None]
    if method == "one-shot" and used:
        raise ArgumentError(f"{', '.join(used)} can be used only with method='iterative'")


def refuse_estimator(estimator: Estimator | None, *, iterative: bool) -> None:
    """Raise ArgumentError for an estimator of iterative releases that the release cannot have."""
    if not iterative and estimator is not None:
        raise ArgumentError(
            "estimator= applies only to releases with method='iterative', but this release has "
            "method='one-shot': leave estimator= out"
        )


def refuse_projection(protocol: Mapping[str, Any], estimator: Estimator | None) -> None:
    """Raise ArgumentError for options of the last iterate where an earlier release is averaged."""
    unused = [name for name in ("step", "max_norm") if protocol[name] is not None]
    if unused and estimator != "last":
        words = " and ".join(f"{name}=" for name in unused)
        raise ArgumentError(
            f"{words} can be used with an earlier release only if estimator='last': pass "
            f"estimator='last', or leave {words} out"
        )


def check_response(response: ResponseMode | None, y_bounds: object) -> None:
    """Refuse a response that is to be protected without bounds, or public with them."""
    if response is None:
        return
    protected = check_choice(response, ResponseMode, "response") == "protected"
    if protected and y_bounds is None:
        raise ArgumentError("response='protected' needs public bounds: pass y_bounds=(low, high)")
    if not protected and y_bounds is not None:
        raise ArgumentError(
            "response='public' sends y unchanged, but y_bounds= protects it: leave one of them out"
        )
