"""Results of ModulatedOLS: the common facade and the paper's variance and reconstruction formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.solve import Fit, build_results
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.modulation import theory
from privinf.modulation.equation import (
    feature_noise,
    modulation_noise_model,
    modulation_system,
    part_system,
)
from privinf.release_kinds import ModulationNoiseModel
from privinf.releases import Release
from privinf.results import Results
from privinf.schema.columns import each_formula, sub_design
from privinf.typing import ArrayLike, Floats
from privinf.validation import check_array


def regressions(release: Release, formula: str | Sequence[str], fit: Fit) -> Results | dict[str, Results]:
    """Return the regressions of formulas on released columns; see `ModulatedOLS.regress`."""
    return each_formula(formula, lambda text: _regression(release, text, fit))


def _regression(release: Release, formula: str, fit: Fit) -> Results:
    part = sub_design(release.design, formula)
    return build_results(
        Results,
        part_system(release, part.maps),
        release=release,
        ledger=None,
        reread=True,
        model="ModulatedRegression",
        method="modulated rows, some of the columns",
        fit=replace(fit, design=part.design),
        settings={"formula": formula},
    )


# Methods that evaluate the paper's formulas at what the release states.
FORMULAS = frozenset({"convergence_bound", "gradient_variance", "reconstruction_bound", "variance_bound"})


@error_boundaries
class ModulatedOLSResults(Results):
    """Results of a `ModulatedOLS` fit.

    Adds `gradient_variance`, `variance_bound`, `convergence_bound` and `reconstruction_bound` to
    `Results`. Gradients are those of ``mean (y - x'b)^2 / 2`` in scaled units; coefficients are in the user's
    units.
    """

    def _refused_methods(self) -> frozenset[str]:
        refused = super()._refused_methods()
        return refused | FORMULAS if self._context.release is None else refused

    def gradient_variance(self, beta: ArrayLike | None = None) -> float:
        """Return the variance of the corrected gradient at `beta` given the data (Theorem 8.1).

        Parameters
        ----------
        beta : array_like, shape (p,), optional
            User units, in the order of `params`; default: the estimate.

        Returns
        -------
        float, squared gradient units (scaled); the clean moments in it are corrected estimates.
        """
        system = self._client_average()
        b = self._scaled(beta)
        noise = feature_noise(self._source_release)
        response_noise = float(self._noise_model["response_scale"]) ** 2
        return theory.gradient_variance(
            b,
            second_moment=system.A,
            residual_cross=system.A @ b - system.g,
            residual_variance=max(system.residual_variance(b), 0.0),
            noise_cov=noise.cov,
            directions=noise.directions,
            cumulants=noise.cumulants,
            nobs=self.nobs,
            response_noise=response_noise,
        )

    def variance_bound(
        self, *, beta_norm: float, response_norm: float | None = None, alignment: float = 1.0
    ) -> float:
        """Return the largest variance of the corrected gradient over ||beta|| <= `beta_norm` (Corollary 9.1).

        Parameters
        ----------
        beta_norm : float
            B, scaled units.
        response_norm : float, optional
            M, bound of |y| in scaled units; default: the public bound of a protected response.
        alignment : float in [0, 1]
            Largest share of ||beta||^2 along the directions of the modulation. 1: any coefficients. 0:
            orthogonal to them, as the iterates of the iterative protocol are to those of their own round;
            with an unprotected response, this is the bound of the paper.

        Returns
        -------
        float
            In squared units of the gradient, scaled.

        Raises
        ------
        NotAvailableError
            There are public columns (their norm is not bounded by the schema), no bounds are declared at all
            (``adjacency="unit"`` needs none), or no bound of y is known.

        Notes
        -----
        The bound is for the noisiest message; the mean of a client's messages over rounds has a smaller
        variance. The noise of a protected response is part of it: see
        `privinf.modulation.theory.variance_bound`.
        """
        design = self._source_release.design
        if not design.private.all():
            raise NotAvailableError(
                "the variance bound needs a bound on the norm of each row, but columns sent without "
                "noise have no public bounds"
            )
        if not design.bounded:
            raise NotAvailableError(
                "the variance has no bound, because no bounds of the columns are declared: pass "
                "bounds= or radius= to the model"
            )
        if response_norm is None:
            if design.response_public:
                raise NotAvailableError(
                    "y is sent without noise and has no public bound: pass response_norm="
                )
            response_norm = design.y_norm
        return theory.variance_bound(
            beta_norm=beta_norm,
            feature_norm=design.norm,
            response_norm=response_norm,
            scale=max(self._noise_model["scales"]),
            contraction=self._noise_model["contraction"],
            amplitude=self._noise_model["amplitude"],
            dimension=int(design.private.sum()),
            nobs=self.nobs,
            directions=int(np.shape(self._source_release.arrays["directions"])[-2]),
            alignment=alignment,
            response_noise=float(self._noise_model["response_scale"]) ** 2,
        )

    def convergence_bound(self, *, distance: float, rounds: int, variance: float) -> float:
        """Return Theorem 9.2's bound (corrected) on the averaged iterate's excess risk.

        The smoothness is the largest eigenvalue of the corrected second moments.

        Parameters
        ----------
        distance : float
            ``||b_0 - b*||``, scaled units.
        rounds : int
            Number of steps.
        variance : float
            Of each gradient, 1/K included, scaled units.

        Returns
        -------
        float
            Bound on the excess risk, scaled units.
        """
        smoothness = float(np.linalg.eigvalsh(self._client_average().A)[-1])
        return theory.convergence_bound(
            smoothness=smoothness, distance=distance, rounds=rounds, variance=variance
        )

    def reconstruction_bound(
        self,
        *,
        phase: theory.Phase = "unknown",
        angles: ArrayLike | None = None,
        rounds: int | None = None,
    ) -> float:
        """Return a lower bound on an unbiased attacker's mean squared error per coordinate of x.

        Parameters
        ----------
        phase : {"unknown", "known"}
            Whether the attacker knows the phases (the paper's Theorem 6.3) or not.
        angles : array_like, shape (rounds, directions), optional
            Phases plus ``omega <x, v>`` of the attacked record, in radians, for ``phase="known"``: the bound
            (18) given these phases. Default: an average over phases (Corollary 6.4).
        rounds : int, optional
            Number of messages that the attacker has; default: all that were sent.

        Returns
        -------
        float
            In squared scaled units.

        Notes
        -----
        Scaled units. Where y is sent without protection, its information about x at the estimate is included.
        """
        system = self._client_average()
        scales = np.asarray(self._noise_model["scales"], dtype=np.float64)
        scales = scales if rounds is None else np.resize(scales, rounds)
        design = self._source_release.design
        b = self._scaled(None)
        variance = None
        if design.response_public:
            variance = max(system.residual_variance(b), np.finfo(float).tiny)
        return theory.reconstruction_bound(
            dimension=int(design.private.sum()),
            scales=scales,
            contraction=self._noise_model["contraction"],
            amplitude=self._noise_model["amplitude"],
            frequency=self._noise_model["frequency"],
            directions=int(np.shape(self._source_release.arrays["directions"])[-2]),
            phase=phase,
            angles=angles,
            beta_norm=float(np.linalg.norm(b[design.private])),
            error_variance=variance,
        )

    @property
    def _noise_model(self) -> ModulationNoiseModel:
        return modulation_noise_model(self._source_release)

    @property
    def _source_release(self) -> Any:
        if self.release is None:
            raise NotAvailableError(
                "the result has no release, because it was saved without one, but this attribute or method "
                "needs the release: load the release and fit again"
            )
        return self.release

    def _client_average(self) -> CorrectedLeastSquares:
        return modulation_system(self._source_release, "client-average")

    def _scaled(self, beta: Any) -> Floats:
        transform, shift = self._source_release.design.to_user
        user = check_array(self.params if beta is None else beta, "beta", ndim=1)
        if user.shape != shift.shape:
            raise ArgumentError(
                f"beta= must have {len(shift)} entries, one for each coefficient, got {len(user)}"
            )
        return np.asarray(np.linalg.solve(transform, user - shift), dtype=np.float64)
