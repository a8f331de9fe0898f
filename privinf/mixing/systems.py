"""From the releases of several parties to an estimating equation, a plain estimate and a shrunk one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from privinf.errors import NotAvailableError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.estimate import is_positive_definite
from privinf.mechanisms.mixing.theory import guessed_variances
from privinf.mixing.equation import MixedLeastSquares
from privinf.mixing.shrinkage import shrunk_slopes
from privinf.releases import Release
from privinf.typing import Floats

MixingSystem = MixedLeastSquares | CorrectedLeastSquares


def mixing_system(release: Release, *, population: bool = True) -> MixingSystem:
    """Return the estimating equation of a regression release, scaled units, in the design's column order.

    `population` says whose coefficients score tests of mixed rows are about; for single rows with noise the
    population's in any case.
    """
    arrays, law, design = release.arrays, release.law, release.design
    noise = np.asarray(law["noise"])
    if law["method"] == "gaussian-rows":
        return CorrectedLeastSquares(
            arrays["features"], arrays["response"], np.diag(noise), y_noise_var=law["y_noise"]
        )
    top = arrays.get("ones_response")
    return MixedLeastSquares(
        arrays["features"], arrays["response"], noise, y_noise=law["y_noise"], n=release.nobs,
        share=law["share"], constant=design.constant, ones_row=arrays.get("ones_row"),
        ones_response=None if top is None else float(top[0]), population=population,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainFit:
    """Least squares on the released rows as if they had no noise (the paper's RMGM and BGM).

    Attributes
    ----------
    params : ndarray, shape (p,)
        Scaled units.
    bias : ndarray, shape (p,), or None
        What the noise does to it, estimated from the release: plain less de-biased limit; None where the
        release does not identify the coefficients.
    """

    params: Floats
    bias: Floats | None


def plain_fit(system: MixingSystem, *, ridge: float = 0.0) -> PlainFit:
    """Return plain least squares on the released rows, with its estimated bias.

    Notes
    -----
    The plain Gram matrix is A + G, G what the noise adds to it. So plain least squares solves
    ``(A + G + ridge I) w = g`` and differs from the solution b of ``A b = g`` by
    ``-(A + G + ridge I)^-1 (G + ridge I) b``. The ridge leaves noise-free columns alone.
    """
    added = noise_gram(system) + ridge * np.diag((~system.noise_free).astype(np.float64))
    gram = system.A + added
    params = np.asarray(np.linalg.lstsq(gram, system.g, rcond=None)[0], dtype=np.float64)
    if not is_positive_definite(system.A):
        return PlainFit(params, None)
    bias = -np.linalg.solve(gram, added @ np.linalg.solve(system.A, system.g))
    return PlainFit(params, np.asarray(bias, dtype=np.float64))


def noise_gram(system: MixingSystem) -> Floats:
    """Return what the noise adds to the Gram matrix of the released rows, shape (p, p)."""
    if isinstance(system, CorrectedLeastSquares):
        return system.noise_cov
    return system.gram_noise()[0]


def shrunk_params(release: Release) -> Floats:
    """Return the coefficients of the prediction rule, scaled units; see `shrunk_slopes`.

    Raises
    ------
    NotAvailableError
        The release has single rows, or no all-ones row, from which column means come.
    """
    arrays, law, design = release.arrays, release.law, release.design
    if "ones_row" not in arrays or design.constant is None:
        raise NotAvailableError(
            "shrink=True predicts from centred mixed rows: it needs RMGMOLS with intercept=True and a "
            "regression with a constant"
        )
    constant, slopes = design.constant, design.private
    weight = float(arrays["ones_row"][constant])
    means, mean = arrays["ones_row"][slopes] / weight, float(arrays["ones_response"][0]) / weight
    c = arrays["features"][:, constant]
    bounds = guessed_variances(design)
    fit = shrunk_slopes(
        arrays["features"][:, slopes] - np.outer(c, means),
        arrays["response"] - c * mean,
        np.asarray(law["noise"])[slopes],
        law["y_noise"],
        kept=(1.0 - law["share"]) * release.nobs,
        signal_bounds=3.0 * bounds,
        label_variance_bound=(design.y_diameter / 2.0) ** 2,
    )
    params = np.empty(len(slopes))
    params[slopes] = fit.slopes
    params[constant] = mean - means @ fit.slopes
    return params


def public_normals(release: Release) -> Floats:
    """Return one standard normal a released row, from the release's own SHA-256: public and reproducible.

    It is a function of noisy numbers that carry far more than 64 bits of noise, so it is as good as
    independent of them for a test.
    """
    digest = hashlib.sha256()
    for name in ("features", "response"):
        digest.update(np.ascontiguousarray(release.arrays[name], dtype="<f8").tobytes())
    key = int.from_bytes(digest.digest()[:16], "little")
    generator = np.random.Generator(np.random.Philox(key=key))
    return generator.standard_normal(len(release.arrays["response"]))
