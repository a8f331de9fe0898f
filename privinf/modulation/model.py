"""Corrected least squares on modulated features (paper 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

from privinf.accounting import Ledger
from privinf.doors import doors
from privinf.errors import ArgumentError
from privinf.fitting.model import ReleaseModel, array_design, refuse_weights
from privinf.fitting.solve import LAST_ITERATE, Fit, Reported, build_results
from privinf.mechanisms import Modulation, Rows
from privinf.mechanisms.local.modulation_map import orthonormal_directions
from privinf.modulation.equation import (
    Estimator,
    gradient_path,
    gradient_step,
    modulation_system,
    round_system,
    round_systems,
)
from privinf.modulation.results import ModulatedOLSResults
from privinf.releases import Release
from privinf.typing import Adjacency, Calibration, Missing, RngLike, SensitivityRule, Stabilization, Target
from privinf.validation import check_choice, check_count, check_positive

ModulationMethod = Literal["one-shot", "iterative"]


@dataclass(frozen=True, slots=True)
class GradientRule:
    """The server's rule in the iterative protocol: ``eta_t = step / ||A_t||_op``, then projection."""

    step: float = 0.8
    max_norm: float | None = None

    def __post_init__(self) -> None:
        check_positive(self.step, "step")
        if self.max_norm is not None:
            check_positive(self.max_norm, "max_norm")


@doors
class ModulatedOLS(ReleaseModel):
    r"""Linear regression from one noisy modulated feature vector per client (local privacy).

    Parameters
    ----------
    y : array_like, shape (n,)
        Response; sent in clear unless `y_bounds` are given.
    X : array_like or DataFrame, shape (n, p)
        Features, used as they are: add a constant with `privinf.add_constant`, or use a formula.
    radius : float, optional
        Project each row's private part into the ball of this radius (after scaling, with `bounds`).
    bounds : sequence of (low, high), mapping, or "data", optional
        Public bounds of the private columns. "data" takes them from the rows: a leak, with a warning.
    y_bounds : (low, high) or "data", optional
        Public bounds of the response; it is then noised too, with its own share of the budget.
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
    >>> fit = pi.ModulatedOLS(y, X, radius=1.0).fit(epsilon=20.0, delta=1e-6, rng=0)
    >>> fit.conf_int().shape
    (2, 2)
    """

    kind = "modulation"
    mechanism_class = Modulation

    def __init__(
        self,
        y: Any,
        X: Any,
        *,
        radius: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        public: Any = (),
        contraction: float = 0.5,
        amplitude: float = 0.1,
        frequency: float = 1.0,
        directions: int = 1,
        sensitivity: SensitivityRule = "exact",
        adjacency: Adjacency = "bounded",
        response_share: float | None = None,
        missing: Missing = "raise",
        public_seed: int = 0,
        weights: Any = None,
        ledger: Ledger | None = None,
    ) -> None:
        refuse_weights(weights)
        design, features, response, from_data = array_design(
            y,
            X,
            bounds=bounds,
            radius=radius,
            y_bounds=y_bounds,
            public=public,
            unbounded=adjacency == "unit",
        )
        mechanism = Modulation(
            design,
            contraction=contraction,
            amplitude=amplitude,
            frequency=frequency,
            directions=directions,
            sensitivity=sensitivity,
            adjacency=adjacency,
            response_share=response_share,
            missing=missing,
            public_seed=public_seed,
            data_bounds=from_data,
        )
        self._bind(mechanism, Rows(features, response, missing), ledger)

    def release(
        self,
        *,
        method: ModulationMethod = "one-shot",
        rounds: int | None = None,
        schedule: Any = None,
        step: float | None = None,
        max_norm: float | None = None,
        progress: bool | None = None,
        **spending: Any,
    ) -> Release:
        """Release the rows: once, or in the rounds of the iterative protocol (see `fit`).

        ``**spending`` are ``epsilon, delta, mu, rho, calibration, rng, source`` of `Modulation.release`.
        """
        protocol = {"rounds": rounds, "schedule": schedule, "step": step, "max_norm": max_norm}
        check_method(method, protocol)
        if method == "one-shot":
            return super().release(**spending)
        if self._rows is None:
            return super().release()
        rule = GradientRule(0.8 if step is None else step, max_norm)
        return self._iterate(10 if rounds is None else rounds, schedule, rule, progress, spending)

    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        method: ModulationMethod | None = None,
        rounds: int | None = None,
        schedule: Any = None,
        estimator: Estimator | None = None,
        step: float | None = None,
        max_norm: float | None = None,
        stabilization: Stabilization = "none",
        ridge: float = 0.0,
        fuller: float | None = None,
        target: Target = "population",
        calibration: Calibration | None = None,
        rng: RngLike = None,
        source: str | None = None,
        progress: bool | None = None,
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

        Returns
        -------
        ModulatedOLSResults

        Notes
        -----
        **Privacy.** Reads the rows once a round; charges the model's ledger before that.
        """
        how = Fit(stabilization, ridge, fuller, target)
        chosen: Estimator = check_choice(estimator or "client-average", Estimator, "estimator")
        spending = {
            "epsilon": epsilon, "delta": delta, "mu": mu, "rho": rho,
            "rng": rng, "calibration": calibration, "source": source,
        }  # fmt: skip
        protocol = {"rounds": rounds, "schedule": schedule, "step": step, "max_norm": max_norm}
        release = self._given_release({**spending, "rounds": rounds, "schedule": schedule, "method": method})
        if release is None:
            given: dict[str, Any] = {name: value for name, value in spending.items() if value is not None}
            method = "one-shot" if method is None else method
            check_method(method, protocol | {"estimator": estimator})
            release = self.release(method=method, **protocol, progress=progress, **given)
        iterative = release.arrays["features"].ndim == 3
        if not iterative and estimator is not None:
            raise ArgumentError("estimator= belongs to iterative releases; this one is one-shot")
        unused = [name for name in ("step", "max_norm") if protocol[name] is not None]
        if self._release is not None and unused and estimator != "last":
            raise ArgumentError(f"{', '.join(unused)}: on a finished release only with estimator='last'")
        return self._solve(
            release, chosen if iterative else None,
            GradientRule(0.8 if step is None else step, max_norm),
            how,
        )  # fmt: skip

    def _iterate(
        self, rounds: int, schedule: Any, rule: GradientRule, progress: bool | None, spending: dict[str, Any]
    ) -> Release:
        """Run server and holders: directions orthogonal to the iterate, one message a round."""
        mechanism: Modulation = self.mechanism
        count = mechanism.map.directions
        if count >= mechanism.columns and mechanism.map.amplitude > 0.0:
            raise ArgumentError(
                f"directions={count} must be fewer than the {mechanism.columns} private column(s) in the "
                "iterative protocol, which keeps them orthogonal to the coefficients"
            )
        session = mechanism.open(
            self._rows,
            rounds=check_count(rounds, "rounds"),
            schedule=schedule,
            ledger=self.ledger,
            **spending,
        )
        public = np.random.default_rng(mechanism.public_seed)
        private = mechanism.design.private
        beta = np.zeros(len(private))
        hidden = None if progress is None else not progress
        for index in tqdm(range(rounds), desc="modulated rounds", disable=hidden):
            above = beta[private] if count < mechanism.columns else None
            directions = orthonormal_directions(public, count, mechanism.columns, orthogonal_to=above)
            message = session.send(directions)
            system = round_system(
                mechanism.design,
                message,
                directions,
                session.public,
                session.response,
                scale=session.scales[index],
                contraction=mechanism.map.contraction,
                amplitude=session.amplitude,
            )
            beta = gradient_step(beta, system.A, system.g, step=rule.step, max_norm=rule.max_norm)
        return session.release()

    def _solve(
        self, release: Release, estimator: Estimator | None, rule: GradientRule, fit: Fit
    ) -> ModulatedOLSResults:
        method, options = "one-shot modulated release", {}
        if estimator is not None:
            method = f"iterative modulated release, {len(release.arrays['features'])} rounds"
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
            model=type(self).__name__,
            method=method,
            fit=fit,
            options=options,
            settings={"moments": moments_of},
            reported=None if point is None else Reported(point, LAST_ITERATE),
            sampling_system=average,
        )


def check_method(method: ModulationMethod, given: Mapping[str, object]) -> None:
    """Refuse options of the iterative protocol where the method is one-shot."""
    check_choice(method, ModulationMethod, "method")
    used = [name for name, value in given.items() if value is not None]
    if method == "one-shot" and used:
        raise ArgumentError(f"{', '.join(used)}: only with method='iterative'")
