"""Least squares from noisy second moments: protects features and response together."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from privinf.accounting import Ledger
from privinf.errors import ArgumentError, SchemaError
from privinf.inference.corrected_scores import NoisyRecordMoments, NoisyTotals
from privinf.inference.solution import Stabilization, Target
from privinf.mechanisms import Moments, Rows
from privinf.mechanisms.moments import CovType, MomentLayout, Trust
from privinf.models.base import ReleaseModel, array_design, refuse_weights
from privinf.models.fitting import Fit, build_results
from privinf.releases import Release
from privinf.results import Results
from privinf.typing import Calibration, Missing, RngLike

CovChoice = Literal["nonrobust", "HC0"]


class MomentOLS(ReleaseModel):
    r"""Linear regression from second moments with Gaussian noise.

    Parameters
    ----------
    y : array_like, shape (n,)
    X : array_like or DataFrame, shape (n, p)
        Used as it is: add a constant with `privinf.add_constant`, or use a formula.
    bounds, radius
        Public bounds of the private columns, the ball, or both (as for `ModulatedOLS`).
    y_bounds : (low, high) or "data"
        Public bounds of the response; needed, since this release protects y too.
    public : sequence of column names or positions
    trust : {"central", "local"}
        "central": a trusted curator adds one noise matrix to the total; "local": each record adds its own.
    response_weight : float, optional
        Public weight of y against x in the release; the default spends the sensitivity well.
    missing, weights, ledger
        As for `ModulatedOLS`.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one of one record (features and response together), one Gaussian release of the
    isometric entries of zz', z = (public, x, c y); see `privinf.mechanisms.moments`.

    The noise enters linearly, so ``b = A^-1 g`` needs no bias correction. Central: covariance
    ``A^-1 (s^2 A/n + V_noise) A^-1``, homoskedastic unless ``cov_type="HC0"`` buys the residual moments;
    local: sandwich of the per-record scores ``g_i - A_i b``. Clipping y changes the target to the
    regression among clipped values.

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
    mechanism_class = Moments

    def __init__(
        self,
        y: Any,
        X: Any,
        *,
        bounds: Any = None,
        radius: float | None = None,
        y_bounds: Any = None,
        public: Any = (),
        trust: Trust = "central",
        response_weight: float | None = None,
        missing: Missing = "raise",
        weights: Any = None,
        ledger: Ledger | None = None,
    ) -> None:
        refuse_weights(weights)
        if y_bounds is None:
            raise SchemaError(
                "MomentOLS protects the response too: pass its public bounds, y_bounds=(low, high)"
            )
        design, features, response, from_data = array_design(
            y, X, bounds=bounds, radius=radius, y_bounds=y_bounds, public=public
        )
        mechanism = Moments(
            design, trust=trust, response_weight=response_weight, missing=missing, data_bounds=from_data
        )
        self._bind(mechanism, Rows(features, response, missing), ledger)

    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        cov_type: CovChoice | None = None,
        robust_share: float | None = None,
        stabilization: Stabilization = "none",
        ridge: float = 0.0,
        fuller: float | None = None,
        target: Target = "population",
        calibration: Calibration | None = None,
        rng: RngLike = None,
        source: str | None = None,
    ) -> Results:
        """Release (unless built from a release) and estimate.

        Parameters
        ----------
        epsilon, delta, mu, rho : float
            What may be spent; ``epsilon=inf`` is ordinary least squares.
        cov_type : {"nonrobust", "HC0"}
            Central: "nonrobust" (default, homoskedastic) or "HC0", which spends `robust_share` (default
            .25) of mu^2 on residual moments. Local: always the sandwich, "HC0".
        stabilization, ridge, fuller, target, calibration, rng, source
            As for `ModulatedOLS.fit`.

        Returns
        -------
        Results
        """
        how = Fit(stabilization, ridge, fuller, target)
        spending = {
            "epsilon": epsilon, "delta": delta, "mu": mu, "rho": rho, "robust_share": robust_share,
            "rng": rng, "calibration": calibration, "source": source,
        }  # fmt: skip
        release = self._given_release(spending)
        if release is None:
            given: dict[str, Any] = {name: value for name, value in spending.items() if value is not None}
            if cov_type is not None:
                given["cov_type"] = cov_type
            release = self.release(**given)
        elif cov_type is not None and cov_type != release_cov_type(release):
            raise ArgumentError(
                f"cov_type={cov_type!r}: this release was made for cov_type={release_cov_type(release)!r}"
            )
        trust = "trusted curator" if release.law["trust"] == "central" else "each record noises its own"
        return build_results(
            Results,
            moment_system(release),
            release=release,
            ledger=self.ledger,
            model=type(self).__name__,
            method=f"second moments, {trust}",
            fit=how,
        )


def release_cov_type(release: Release) -> CovType:
    """Return the covariance that a moment release supports."""
    robust = release.law["trust"] == "local" or "residual_moments" in release.arrays
    return "HC0" if robust else "nonrobust"


def moment_system(release: Release) -> NoisyTotals | NoisyRecordMoments:
    """Return the estimating equation of a moment release, scaled units, in the design's column order.

    The release orders z as (public, private, c y); the equation is brought back to the design's order.
    """
    design, arrays, law = release.design, release.arrays, release.law
    layout = MomentLayout(int((~design.private).sum()), int(design.private.sum()))
    order = np.argsort(np.concatenate([np.flatnonzero(~design.private), np.flatnonzero(design.private)]))
    if law["trust"] == "local":
        return NoisyRecordMoments(
            arrays["moments"], public=arrays["public"], private=layout.private, order=order,
            weight=law["response_weight"], scale=law["scale"],
            groups=arrays.get("groups"), weights=arrays.get("weights"),
        )  # fmt: skip
    residual = None
    if "residual_moments" in arrays:
        size = layout.size - 1
        rows, columns = np.triu_indices(size)
        residual = np.zeros((size, size))
        residual[rows, columns] = arrays["residual_moments"] / np.where(rows == columns, 1.0, np.sqrt(2.0))
        residual[columns, rows] = residual[rows, columns]
        residual = residual / release.nobs
    return NoisyTotals(
        layout.matrix(arrays["moments"], arrays["public_moments"]) / release.nobs,
        n=release.nobs, public=layout.public, order=order, weight=law["response_weight"],
        scale=law["scale"], residual_moments=residual,
    )  # fmt: skip
