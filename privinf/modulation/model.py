"""Corrected least squares on modulated features (paper 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self, Unpack

import numpy as np

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import doors, warn
from privinf.errors import ArgumentError, UnprotectedResponseWarning
from privinf.fitting.covariances import check_records
from privinf.fitting.model import RELEASE_WORDS, FitWords, ReleaseModel, spending_of
from privinf.fitting.rows import Limits, refuse_weights, rows_of_arrays
from privinf.fitting.solve import LAST_ITERATE, Fit, Reported, build_results, with_covariance
from privinf.mechanisms import Modulation
from privinf.modulation.equation import (
    Estimator,
    FormulaOptions,
    GradientRule,
    ModulationOptions,
    ModulationSettings,
    gradient_path,
    modulation_system,
    release_rounds,
    round_systems,
)
from privinf.modulation.results import ModulatedOLSResults, PartOptions, regressions
from privinf.releases import Release
from privinf.results import Results
from privinf.schema import Schema
from privinf.typing import (
    AnyPath,
    Bounds,
    ColumnLike,
    ColumnsLike,
    Missing,
    Pair,
    ResponseMode,
    SpendingWords,
    Stabilization,
    Table,
    Target,
)
from privinf.validation import check_choice, check_words, counted

ModulationMethod = Literal["one-shot", "iterative"]
IN_CLEAR = (
    "{} is NOT protected: without y_bounds= it is sent as it is, and epsilon covers the other columns "
    "alone. Pass y_bounds=(low, high), public bounds, to protect it, or response='public' to state that it "
    "may be seen"
)


@doors
class ModulatedOLS(ReleaseModel):
    r"""Linear regression from one noisy modulated feature vector per client (local privacy).

    Parameters
    ----------
    y : array_like, shape (n,)
        Response. Without `y_bounds` it is NOT protected: it is sent as it is, with a warning.
    X : array_like or DataFrame, shape (n, p)
        Features, used as they are: add a constant with `privinf.add_constant`, or use a formula.
    radius : float, optional
        Project each row's private part into the ball of this radius (after scaling, with `bounds`).
    bounds : sequence of (low, high), mapping, or "data", optional
        Public bounds of the private columns. "data" takes them from the rows: a leak, with a warning.
    y_bounds : (low, high) or "data", optional
        Public bounds of the response; it is then noised too, with its own share of the budget.
    response : {"protected", "public"}, optional
        "public" states that the response may be seen as it is, and silences the warning; "protected" needs
        `y_bounds`. Through `from_formula` the response is protected unless this says "public", or the schema
        declares its columns public.
    public : sequence of column names or positions
        Columns sent in clear, beyond what `privinf.add_constant` declares.
    contraction, amplitude, frequency, directions
        alpha, lambda, omega and m of the paper.
    sensitivity : {"exact", "lipschitz"}
        "exact" uses that the modulation is independent of x; "lipschitz" is the paper's Theorem 7.2.
    adjacency : {"bounded", "unit"}
        Protect any two records inside the bounds, or (the paper) records at distance at most one.
    response_share : float, optional
        Share of mu^2 for a protected response.
    public_seed : int
        Of the directions.
    missing : {"raise", "impute-public"}
    weights : None
        Only through `from_formula`, where a schema can declare them (NotAvailableError says so).
    ledger : Ledger, optional
        Default: one of the model's own, cumulative over its fits and releases.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Before any budget is spent; no message holds a value of a row.

    Notes
    -----
    **Privacy.** Local; each `fit` or `release` reads every row once (once a round) and adds its lines to
    the ledger; replace-one of one record.

    Solves ``mean x~ (y - x~'b) + S b = 0`` with x~ = g/(1-alpha) and S the known covariance of the noise in
    it; covariance ``A^-1 Cov(psi) A^-T / n`` with A = mean x~x~' - S (errors in variables, Fuller 1987).
    In the iterative protocol the default estimator averages each client's messages before forming
    moments; the paper's last iterate keeps an optimisation error and gets no intervals.

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
    mechanism_class = Modulation
    # Whether y would be sent as it is without anybody having said so.
    _response_unstated = False

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
        missing: Missing = "raise",
        weights: None = None,
        ledger: Ledger | None = None,
        **options: Unpack[ModulationOptions],
    ) -> None:
        refuse_weights(weights)
        check_words(options, ModulationOptions.__annotations__)
        unbounded = options.get("adjacency") == "unit"
        check_response(response, y_bounds)
        limits = Limits(bounds=bounds, radius=radius, y_bounds=y_bounds, public=public, unbounded=unbounded)
        arrays = rows_of_arrays(y, X, limits, missing=missing)
        self._bind(
            Modulation(arrays.design, missing=missing, data_bounds=arrays.data_bounds, **options),
            arrays,
            ledger,
        )
        self._response_unstated = response is None and arrays.design.response_public

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        missing: Missing = "raise",
        ledger: Ledger | None = None,
        **options: Unpack[FormulaOptions],
    ) -> Self:
        """Build the model from a formula, raw rows and their public schema.

        Parameters
        ----------
        formula : str
            Evaluated on raw rows at the holder; its bounds follow from the schema.
        data : DataFrame, or any other table with a fixed order of its rows
        schema : Schema
        missing : {"raise", "impute-public"}
        ledger : Ledger, optional
        response : {"protected", "public"}
            Whether the response is noised too.
        weights : str, optional
            A column of observation weights that the schema declares public with positive bounds.
        radius, contraction, amplitude, frequency, directions, sensitivity, adjacency, response_share
            As for the class; so is public_seed.

        Raises
        ------
        SchemaError, NotAvailableError
            The schema does not declare what the formula needs; the data are a federation.
        """
        check_words(options, FormulaOptions.__annotations__)
        return cls._of_table(formula, data, schema, missing, ledger, options)

    def release(
        self,
        *,
        method: ModulationMethod = "one-shot",
        rounds: int | None = None,
        schedule: Sequence[float] | None = None,
        step: float | None = None,
        max_norm: float | None = None,
        progress: bool | None = None,
        to: AnyPath | None = None,
        ledger: Ledger | None = None,
        **spending: Unpack[SpendingWords],
    ) -> Release:
        """Release the rows: once, or in the rounds of the iterative protocol.

        Parameters
        ----------
        method, rounds, schedule, step, max_norm, progress
            As for `fit`.
        to, ledger
            A file (see `Modulation.release`); a ledger instead of the model's own.
        epsilon, delta, mu, rho, calibration, rng, source
            As for `fit`.
        """
        given = spending_of({**spending, "to": to}, words=RELEASE_WORDS)
        check_method(method, {"rounds": rounds, "schedule": schedule, "step": step, "max_norm": max_norm})
        if self._rows is not None and self._response_unstated:
            warn(IN_CLEAR.format(self.mechanism.design.response), UnprotectedResponseWarning)
        if method == "one-shot":
            return self._released(ledger, given)
        if self._rows is None:
            return self._released(ledger, {})
        rule = GradientRule(0.8 if step is None else step, max_norm)
        given["ledger"] = self.ledger if ledger is None else check_ledger(ledger)
        many = 10 if rounds is None else rounds
        return release_rounds(
            self.mechanism, self._rows, rule, many, progress, {"schedule": schedule, **given}
        )

    def fit(
        self,
        *,
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
        progress: bool | None = None,
        **words: Unpack[FitWords],
    ) -> ModulatedOLSResults:
        """Release (unless built from a release) and estimate.

        Parameters
        ----------
        epsilon, delta, mu, rho : float
            What may be spent; ``epsilon=inf`` switches noise and modulation off.
        method : {"one-shot", "iterative"}
            One release, or `rounds` adaptive ones with directions orthogonal to the current coefficients.
        rounds : int
            T, default 10. `schedule` : relative mu^2 of the rounds (default equal).
        estimator : {"client-average", "pooled", "last"}
            Iterative only. "client-average" (default) averages a client's messages, weighted by 1/sigma_t^2,
            before forming moments: as good as one release of the same total budget. "pooled" solves the
            mean of the rounds' moments, scores clustered by client. "last" is the paper's last iterate: it
            keeps an optimisation error and has no intervals.
        step, max_norm : float
            c of ``eta_t = c / ||A_t||_op`` (default 0.8) and the radius to which iterates are projected.
        cov_type : {"HC0", "HC1", "cluster"}
            "HC0", where the schema has a unit "cluster"; "HC1" is "HC0", its sampling part times n/(n - p).
        stabilization : {"none", "fuller", "ridge"}
            Fuller's modification (constant `fuller`, default d + 4), or `ridge`. Named in the summary.
        ridge : float
            gamma >= 0 of section 5, scaled units. `params` are then the ridge estimate; intervals and
            tests come from the unpenalised moments unless ``target="penalized"``.
        target : {"population", "sample", "penalized"}
            Whose coefficient the intervals are for: the population's, this finite population's (noise
            alone is the error), or the ridge-penalised one.
        calibration : {"exact", "classic"}
        rng : None, int or Generator
            A seed makes simulation noise, stamped on every summary; None is secure noise.
        source : {"lattice", "opendp"}
        progress : bool, optional
            Progress bar over the rounds of the iterative protocol; default: on a terminal only.

        Notes
        -----
        **Privacy.** Reads the rows once a round; charges the model's ledger before that.
        """
        how = Fit(stabilization=stabilization, ridge=ridge, fuller=fuller, target=target)
        chosen: Estimator = check_choice(estimator or "client-average", Estimator, "estimator")
        given = spending_of(words, words=FitWords.__annotations__)
        held = self.mechanism if self._release is None else self._release
        covariance = check_records(given.pop("cov_type", None), held.design.schema)
        protocol = {"rounds": rounds, "schedule": schedule, "step": step, "max_norm": max_norm}
        release = self._given_release({**given, "rounds": rounds, "schedule": schedule, "method": method})
        if release is None:
            method = "one-shot" if method is None else method
            check_method(method, {**protocol, "estimator": estimator})
            if rounds == 1 and estimator is not None:
                raise ArgumentError("estimator= is for several rounds: rounds=1 is one release")
            release = self.release(
                method=method,
                rounds=rounds,
                schedule=schedule,
                step=step,
                max_norm=max_norm,
                progress=progress,
                **given,
            )
        iterative = release.arrays["features"].ndim == 3
        if not iterative and estimator is not None:
            raise ArgumentError("estimator= belongs to iterative releases; this one is one-shot")
        unused = [name for name in ("step", "max_norm") if protocol[name] is not None]
        if self._release is not None and unused and estimator != "last":
            raise ArgumentError(f"{', '.join(unused)}: on a finished release only with estimator='last'")
        found = self._solve(
            release, chosen if iterative else None, GradientRule(0.8 if step is None else step, max_norm), how
        )
        return with_covariance(found, covariance)

    def regress(
        self, formula: str | Sequence[str] | None = None, **options: Unpack[PartOptions]
    ) -> Results | dict[str, Results]:
        """Fit least squares of any released number on sums of released columns; free, as often as wanted.

        Parameters
        ----------
        formula : str or sequence of str, optional
            ``"a + b ~ c"``, or a list, gives a dict of results. Default: the release's own, by `fit`.
        stabilization, ridge, fuller, target
            As for `fit`. A client's messages of several rounds are averaged.

        Raises ArgumentError without a release, NotAvailableError where a column is no sum of released ones.
        """
        check_words(options, PartOptions.__annotations__)
        if formula is None:
            return self.fit(**options)
        if self._release is None:
            raise ArgumentError("regress() reads a release: model.release(...).regress(formula)")
        return regressions(self._release, formula, options)

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
    used = [name for name, value in options.items() if value is not None]
    if method == "one-shot" and used:
        raise ArgumentError(f"{', '.join(used)}: only with method='iterative'")


def check_response(response: ResponseMode | None, y_bounds: object) -> None:
    """Refuse a response that is to be protected without bounds, or public with them."""
    if response is None:
        return
    protected = check_choice(response, ResponseMode, "response") == "protected"
    if protected and y_bounds is None:
        raise ArgumentError("response='protected' needs public bounds: pass y_bounds=(low, high)")
    if not protected and y_bounds is not None:
        raise ArgumentError(
            "response='public' sends y as it is, and y_bounds= protects it: leave one of them out"
        )
