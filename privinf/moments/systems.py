"""From a release of second moments to its estimating equation, and to what a summary says of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from privinf.mechanisms.moments import MomentLayout
from privinf.moments.equation import NoisyTotals
from privinf.moments.records import NoisyRecordMoments
from privinf.releases import Release
from privinf.typing import CovType

# Robust errors were measured where residuals beyond seven sds and more were left out, see
# benchmarks/results/hc0_real.md; at three they are too small on skewed responses.
MEASURED_MULTIPLE = 5.0


def caveats(release: Release, system: NoisyTotals | NoisyRecordMoments) -> dict[str, Any]:
    """Return ``clipped_at``, in sds, where residuals were clipped so tightly that robust errors may be wrong.

    Empty where the public bounds keep residuals inside the clip, and where it is wide enough.
    """
    law = release.law
    if not isinstance(system, NoisyTotals) or "residual_moments" not in release.arrays:
        return {}
    bound = float(law["residual_bound"])
    b = np.asarray(np.linalg.lstsq(system.A, system.g, rcond=None)[0], dtype=np.float64)
    variance = system.residual_variance(b)
    if bound >= law.get("residual_largest", math.inf) or bound**2 >= MEASURED_MULTIPLE**2 * variance:
        return {}
    return {"clipped_at": bound / math.sqrt(variance)}


def described(release: Release) -> dict[str, str]:
    """Return the lines of a summary that tell of a federation."""
    told = {"sites": "Sites", "max_colluding": "Colluding sites allowed for"}
    return {text: str(release.law[name]) for name, text in told.items() if release.law.get(name)}


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
