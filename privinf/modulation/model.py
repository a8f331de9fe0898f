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
    r"""Linear regression from one noisy modulated feature vector per client (local privacy).

    Parameters
    ----------
    y : array_like, shape (n,)
        Response. Without `y_bounds` the response is NOT protected: it is sent as it is, with a warning.
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula.
    radius : float, optional
        Project the private part of each row onto the ball of this radius. If there are `bounds`, the part is
        scaled by the bounds before the projection.
    bounds : sequence of (low, high), mapping, or "data", optional
        Public bounds of the private columns, in the order of the columns or by name; values outside the
        bounds are clipped. Pass `bounds`, `radius` or both, unless ``adjacency="unit"``. With "data" the
        bounds are computed from the rows, with a warning, because the guarantee does not cover such bounds.
    y_bounds : (low, high) or "data", optional
        Public bounds of the response; it is then noised too, with its own share of the budget. With "data"
        the bounds are computed from the rows, with a warning, because the guarantee does not cover such
        bounds.
    response : {"protected", "public"}, optional
        "public" states that the response may be seen as it is, and silences the warning; "protected" needs
        `y_bounds`. Default: protected where there are `y_bounds`.
    public : sequence of column names or positions
        Columns that are public, in addition to the constant of `privinf.add_constant`: they are not
        protected.
    contraction : float
        alpha of the paper, in [0, 1): features are multiplied by 1 - alpha.
    amplitude : float
        lambda of the paper, at least 0: size of the cosine modulation, in scaled units.
    frequency : float
        omega of the paper, at least 0: frequency of the modulation.
    directions : int
        m of the paper: number of orthonormal directions of the modulation, at most the number of private
        columns.
    sensitivity : {"exact", "lipschitz"}
        "exact" (default) is (1 - contraction) times the distance between records. "lipschitz" is the larger
        bound of the paper (Theorem 7.2).
    adjacency : {"bounded", "unit"}
        Pairs of records that are neighbors: any two inside the bounds (default), or, as in the paper, two at
        a distance of at most one.
    response_share : float, optional
        Share of mu^2 for a protected response, in (0, 1). Default: planned from public numbers.
    public_seed : int
        Seed of the public directions.
    missing : {"raise", "impute-public"}
        Handling of missing values: refuse them (default), or impute the middle of the public bounds.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        A column does not match its declaration, a bound that the sensitivity needs is missing or invalid, or
        an argument is invalid. No budget was spent, and no message contains a value of a row.

    Notes
    -----
    **Privacy.** The model is local: each record adds its own noise. Each `fit` or `release` reads every row
    once, in the iterative protocol once per round, and adds its lines to the ledger. Neighboring tables
    differ in one record (replace-one).

    The estimate b solves ``mean x~ (y - x~'b) + S b = 0``. Here x~ is g/(1-alpha) with the message g of a
    record, and S is the known covariance of the noise in x~. With A = mean x~x~' - S and the score psi of a
    record, the covariance of b is ``A^-1 Cov(psi) A^-T / n`` (errors in variables, Fuller 1987). In the
    iterative protocol the default estimator averages each client's messages before forming moments; the
    paper's last iterate has an optimization error and no intervals.

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
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated where the rows
            are, and its bounds follow from the schema.
        data : DataFrame, or any other table with a fixed order of its rows
            Raw rows.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included.
        response : {"protected", "public"}, optional
            Whether the response is noised too (default), or sent as it is. If the schema declares the columns
            of the response public, the response is sent as it is, whatever this option is.
        radius : float, optional
            Project the private part of each row, scaled by its bounds, onto the ball of this radius. Default:
            no projection.
        weights : str, optional
            Name of a column of observation weights, which the schema declares public with positive bounds.
        contraction : float
            alpha of the paper, in [0, 1): features are multiplied by 1 - alpha.
        amplitude : float
            lambda of the paper, at least 0: size of the cosine modulation, in scaled units.
        frequency : float
            omega of the paper, at least 0: frequency of the modulation.
        directions : int
            m of the paper: number of orthonormal directions of the modulation, at most the number of private
            columns.
        sensitivity : {"exact", "lipschitz"}
            "exact" (default) is (1 - contraction) times the distance between records. "lipschitz" is the
            larger bound of the paper (Theorem 7.2).
        adjacency : {"bounded", "unit"}
            Pairs of records that are neighbors: any two inside the bounds (default), or, as in the paper, two
            at a distance of at most one.
        response_share : float, optional
            Share of mu^2 for a protected response, in (0, 1). Default: planned from public numbers.
        public_seed : int
            Seed of the public directions.
        missing : {"raise", "impute-public"}
            Handling of missing values: refuse them (default), or impute the middle of the public bounds
            (for a factor, its first level).
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.
        data_bounds : bool
            Whether the bounds of the schema were taken from these rows. No guarantee covers such bounds, and
            the ledger then states this.

        Returns
        -------
        ModulatedOLS
            The model. Building it releases nothing and costs nothing.

        Raises
        ------
        SchemaError, NotAvailableError
            If the schema does not declare a column that the formula needs, or the data are a federation.
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
        """Release the rows: once, or in the rounds of the iterative protocol.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Give exactly one
            of `epsilon`, `mu` and `rho`. ``epsilon=inf`` adds no noise.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta wherever the
            noise is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        rng : None, int or Generator, optional
            None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not
            private; the results are marked as such.
        method : {"one-shot", "iterative"}, optional
            One release (default), or `rounds` adaptive releases, whose directions are orthogonal to the
            current coefficients.
        rounds : int, optional
            Number of rounds T of the iterative protocol; default 10.
        schedule : sequence of float, optional
            Relative mu^2 of the rounds of the iterative protocol; default: equal.
        step : float, optional
            c of the step ``eta_t = c / ||A_t||_op`` of the iterative protocol; default 0.8.
        max_norm : float, optional
            Radius to which the iterates of the iterative protocol are projected; default: none.
        progress : bool, optional
            Whether to show a progress bar over the rounds of the iterative protocol; default: on a terminal
            only.
        to : path, optional
            Parquet file to which a release of rows is written block by block, with everything else in
            ``<name>.json`` next to it. Neither rows nor messages then need to fit in memory. The JSON is
            written last; without it the file is not a release. `load_release` reads both. Only for
            ``method="one-shot"``.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of secure noise: privinf's own (default), or OpenDP's.
        ledger : Ledger, optional
            Budget ledger. If its limit would be exceeded, the ledger refuses the release before any row is
            read. The cost is recorded in the ledger before anything is released. The default is the ledger of
            the model.

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
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Give exactly one
            of `epsilon`, `mu` and `rho`. ``epsilon=inf`` adds no noise. Without noise there is no modulation
            either.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta wherever the
            noise is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        rng : None, int or Generator, optional
            None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not
            private; the results are marked as such.
        method : {"one-shot", "iterative"}, optional
            One release (default), or `rounds` adaptive releases, whose directions are orthogonal to the
            current coefficients.
        rounds : int, optional
            Number of rounds T of the iterative protocol; default 10.
        schedule : sequence of float, optional
            Relative mu^2 of the rounds of the iterative protocol; default: equal.
        estimator : {"client-average", "pooled", "last"}, optional
            For the iterative protocol. "client-average" (default) averages the messages of a client, weighted
            by 1/sigma_t^2, before forming moments; the error is about as large as the error of one release of
            the same total budget. "pooled" solves the mean of the moments of the rounds, with scores
            clustered by client. "last" is the last iterate of the paper: it keeps an optimization error and
            has no intervals.
        step : float, optional
            c of the step ``eta_t = c / ||A_t||_op`` of the iterative protocol; default 0.8.
        max_norm : float, optional
            Radius to which the iterates of the iterative protocol are projected; default: none.
        stabilization : {"none", "fuller", "ridge"}
            Correction of noisy second moments that are near singular: Fuller's modification (constant
            `fuller`) or a ridge penalty (`ridge`). The summary names the correction.
        ridge : float
            Ridge penalty, at least 0, in scaled units. With a ridge penalty the coefficients are the ridge
            estimate. Intervals and tests come from the unpenalized moments unless ``target="penalized"``.
        fuller : float, optional
            Constant of Fuller's modification; default: the number of coefficients plus 4.
        target : {"population", "sample", "penalized"}
            Coefficients that intervals cover: those of the population, those of these rows alone (noise is
            then the only error), or the ridge-penalized coefficients.
        cov_type : {"HC0", "HC1", "cluster"}, optional
            Covariance of the coefficients: "HC0", or "cluster" where the schema has a unit. "HC1" is "HC0"
            with its sampling part multiplied by n/(n - p).
        progress : bool, optional
            Whether to show a progress bar over the rounds of the iterative protocol; default: on a terminal
            only.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of secure noise: privinf's own (default), or OpenDP's.

        Returns
        -------
        ModulatedOLSResults
            Coefficients, covariance, tests, prediction and the privacy report.

        Notes
        -----
        **Privacy.** The model's ledger is charged first. After the charge the rows are read, once per round.
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
        """Fit a linear regression among released columns, at no further cost.

        Parameters
        ----------
        formula : str or sequence of str, optional
            Formula of the regression to fit; its response may be any numeric column of the release.
            ``"a + b ~ c"``, or a list of formulas, gives a dict of results. Default: the regression that the
            release was made for, by `fit`.
        estimator : {"client-average", "pooled", "last"}, optional
            Estimator of the regression that the release was made for (see `fit`). Use `estimator` only
            without `formula`: with a formula the messages of a client in several rounds are averaged.
        stabilization : {"none", "fuller", "ridge"}
            Correction of noisy second moments that are near singular: Fuller's modification (constant
            `fuller`) or a ridge penalty (`ridge`). The summary names the correction.
        ridge : float
            Ridge penalty, at least 0, in scaled units. With a ridge penalty the coefficients are the ridge
            estimate. Intervals and tests come from the unpenalized moments unless ``target="penalized"``.
        fuller : float, optional
            Constant of Fuller's modification; default: the number of coefficients plus 4.
        target : {"population", "sample", "penalized"}
            Coefficients that intervals cover: those of the population, those of these rows alone (noise is
            then the only error), or the ridge-penalized coefficients.

        Returns
        -------
        Results, or dict of str to Results
            A dict by response if a formula has several responses, and a dict by formula for a list of
            formulas.

        Raises
        ------
        ArgumentError
            The model was not built from a release.
        NotAvailableError
            A column of the formula is not a sum of released columns.
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
