"""From modulated releases to estimating equations, scaled units, and descent by rounds (paper 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

import numpy as np
from tqdm import tqdm

from privinf.errors import ArgumentError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.mechanisms import Modulation, Rows
from privinf.mechanisms.local.modulation_map import orthonormal_directions
from privinf.modulation.theory import modulation_cumulants, modulation_noise_cov
from privinf.release_kinds import ModulationNoiseModel
from privinf.releases import Release
from privinf.schema import Design
from privinf.schema.columns import sub_design
from privinf.typing import Flags, Floats, Json
from privinf.validation import ReadRows, check_count, check_flag, check_positive

Estimator = Literal["client-average", "pooled", "last"]


def modulation_noise_model(release: Release) -> ModulationNoiseModel:
    """Return the noise model of a release of kind "modulation"."""
    return cast(ModulationNoiseModel, release.noise_model)


def _assemble(design: Design, private: Floats, public: Floats) -> Floats:
    """Return the full matrix (n, p) from rescaled private and raw public columns."""
    mask = design.private
    if mask.all():
        return private
    full = np.empty((len(public), len(mask)))
    full[:, mask] = private
    full[:, ~mask] = public
    return full


def _embed(matrix: Floats, mask: Flags, *, rows: bool) -> Floats:
    """Return (d, d) or (k, d) arrays widened to all p columns, public ones zero."""
    wide = np.zeros((len(mask) if rows else len(matrix), len(mask)))
    wide[np.ix_(mask if rows else np.ones(len(matrix), bool), mask)] = matrix
    return wide


@dataclass(frozen=True, slots=True)
class FeatureNoise:
    """Noise model in the rescaled features, on all p columns (zero for public ones).

    Attributes
    ----------
    cov : ndarray, shape (p, p)
    directions, cumulants : ndarrays, shapes (k, p) and (k,)
        Non-Gaussian components and their fourth cumulants.
    """

    cov: Floats
    directions: Floats
    cumulants: Floats

    @classmethod
    def from_cumulants(cls, mask: Flags, cov: Floats, directions: Floats, cumulants: Floats) -> FeatureNoise:
        """Return the distribution, widened from the d private columns to all p."""
        return cls(_embed(cov, mask, rows=True), _embed(directions, mask, rows=False), cumulants)


def round_system(
    design: Design,
    message: Floats,
    directions: Floats,
    public: Floats,
    response: Floats,
    *,
    scale: float,
    contraction: float,
    amplitude: float,
) -> CorrectedLeastSquares:
    """Return the system of one round: the server's view while the iterative protocol runs."""
    shape = {"contraction": contraction, "amplitude": amplitude}
    noise = FeatureNoise.from_cumulants(
        design.private,
        modulation_noise_cov(directions, scale=scale, **shape),
        directions,
        modulation_cumulants(directions, **shape),
    )
    return CorrectedLeastSquares(
        _assemble(design, message / (1.0 - contraction), public), response, noise.cov
    )


def round_systems(release: Release) -> list[CorrectedLeastSquares]:
    """Return the rounds' systems of an iterative release."""
    arrays = release.arrays
    noise_model = modulation_noise_model(release)
    rounds = zip(arrays["features"], arrays["directions"], noise_model["scales"], strict=True)
    return [
        round_system(
            release.design,
            features,
            directions,
            arrays["public"],
            arrays["response"],
            scale=scale,
            contraction=noise_model["contraction"],
            amplitude=noise_model["amplitude"],
        )
        for features, directions, scale in rounds
    ]


def round_weights(release: Release) -> Floats:
    """Return the rounds' weights in a client's average: proportional to 1/sigma_t^2, sum one."""
    scales = np.asarray(modulation_noise_model(release)["scales"], dtype=np.float64)
    if (scales == 0.0).any():
        return np.full(len(scales), 1.0 / len(scales))
    precision = scales**-2.0
    return np.asarray(precision / precision.sum())


def feature_noise(release: Release, estimator: Estimator = "client-average") -> FeatureNoise:
    r"""Return the noise model in the features that `estimator` works with, scaled units.

    Notes
    -----
    One round: ``S = [sigma^2 I + lambda^2/(2m) P_V] / (1-alpha)^2``. With round weights w_t the client
    average has ``sum_t w_t^2 S_t`` and fourth cumulants w_t^4 k_t along each round's directions; the
    pooled moments subtract ``sum_t w_t S_t``.
    """
    noise_model = modulation_noise_model(release)
    shape = {"contraction": noise_model["contraction"], "amplitude": noise_model["amplitude"]}
    directions = _rounds(release, "directions")
    weights = round_weights(release)
    power = 1 if estimator == "pooled" else 2
    scales = zip(weights, directions, noise_model["scales"], strict=True)
    cov = sum(w**power * modulation_noise_cov(v, scale=s, **shape) for w, v, s in scales)
    cumulants = [
        (1.0 if estimator == "pooled" else w**4) * modulation_cumulants(v, **shape)
        for w, v in zip(weights, directions, strict=True)
    ]
    return FeatureNoise.from_cumulants(
        release.design.private, np.asarray(cov), np.concatenate(list(directions)), np.concatenate(cumulants)
    )


class ModulationSettings(TypedDict):
    """Settings of results: the moments of the estimating equation."""

    moments: Estimator


def rebuilt_system(release: Release, settings: ModulationSettings) -> CorrectedLeastSquares:
    """Return the estimating equation of stored results."""
    return modulation_system(release, settings["moments"])


def rebuilt_part(release: Release, settings: Json) -> CorrectedLeastSquares:
    """Return the estimating equation of stored results of a formula."""
    return part_system(release, sub_design(release.design, settings["formula"]).maps)


def modulation_system(release: Release, estimator: Estimator = "client-average") -> CorrectedLeastSquares:
    """Return the estimating equation of a modulation release, scaled units.

    "client-average" (and one-shot releases) average each client's messages before forming moments;
    "pooled" stacks the rounds and clusters the scores by client: with nT scores taken as
    independent, nominal 95% intervals would cover 74%.
    """
    arrays = release.arrays
    noise_model = modulation_noise_model(release)
    design = release.design
    noise = feature_noise(release, estimator)
    columns = {name: np.asarray(arrays[name]) for name in ("response", "groups", "weights") if name in arrays}
    response = columns["response"]
    groups = columns.get("groups")
    public_columns = columns.get("weights")
    common: dict[str, Any] = {
        "y_noise_var": noise_model["response_scale"] ** 2,
        "fourth_directions": noise.directions,
        "fourth_cumulants": noise.cumulants,
    }
    if estimator == "pooled":
        features = _rounds(release, "features")
        weights = round_weights(release)
        rounds, n, _ = features.shape
        stacked = features.reshape(rounds * n, -1)
        clients = np.arange(n) if groups is None else groups
        return CorrectedLeastSquares(
            _assemble(
                design, stacked / (1.0 - noise_model["contraction"]), np.tile(arrays["public"], (rounds, 1))
            ),
            np.tile(response, rounds),
            noise.cov,
            groups=np.tile(clients, rounds),
            weights=np.repeat(weights * rounds, n)
            * (1.0 if public_columns is None else np.tile(public_columns, rounds)),
            shared_response_noise=True,
            **common,
        )
    return CorrectedLeastSquares(
        averaged_rows(release), response, noise.cov, groups=groups, weights=public_columns, **common
    )


def averaged_rows(release: Release) -> Floats:
    """Return the columns of the design, shape (n, p), each client's messages averaged over the rounds."""
    design = release.design
    arrays = release.arrays
    keep = 1.0 - modulation_noise_model(release)["contraction"]
    if isinstance(messages := arrays["features"], ReadRows):
        width = len(design.private)
        public = arrays["public"]
        rows = ReadRows.from_function(
            lambda x, public_columns: _assemble(design, x / keep, public_columns), width, messages, public
        )
        return cast(Floats, rows)
    features = _rounds(release, "features")
    weights = round_weights(release)
    mean = features[0] / keep if len(features) == 1 else np.tensordot(weights / keep, features, axes=1)
    return _assemble(design, mean, release.arrays["public"])


def part_system(release: Release, maps: Floats) -> CorrectedLeastSquares:
    """Return the equation of a regression on sums of released columns, each client's messages averaged.

    Parameters
    ----------
    release : Release
    maps : ndarray, shape (k + 1, p + 1)
        Columns and, last, the response of the regression as sums of the p released columns and response.

    Notes
    -----
    Where the response is a released column, its noise goes with that of the others along the directions of
    the modulation: the covariance of the two is subtracted too.
    """
    arrays = release.arrays
    noise_model = modulation_noise_model(release)
    noise = feature_noise(release)
    S = np.zeros((maps.shape[1],) * 2)
    S[:-1, :-1] = noise.cov
    S[-1, -1] = noise_model["response_scale"] ** 2
    directions = noise.directions @ maps[:, :-1].T
    rows = np.column_stack([averaged_rows(release), arrays["response"]]) @ maps.T
    S = maps @ S @ maps.T
    return CorrectedLeastSquares(
        rows[:, :-1],
        rows[:, -1],
        S[:-1, :-1],
        y_noise_var=S[-1, -1],
        y_noise_cross=S[:-1, -1],
        fourth_directions=directions[:, :-1],
        fourth_cumulants=noise.cumulants,
        fourth_response=directions[:, -1],
        groups=arrays.get("groups"),
        weights=arrays.get("weights"),
    )


def _rounds(release: Release, name: str) -> Floats:
    """Return an array of the release with a leading axis of rounds."""
    array = release.arrays[name]
    one_shot = release.arrays["features"].ndim == 2
    return np.asarray(array)[None] if one_shot else np.asarray(array)


@dataclass(frozen=True, slots=True)
class GradientRule:
    """The server's rule in the iterative protocol: ``eta_t = step / ||A_t||_op``, then projection."""

    step: float = 0.8
    max_norm: float | None = None

    def __post_init__(self) -> None:
        check_positive(self.step, "step")
        if self.max_norm is not None:
            check_positive(self.max_norm, "max_norm")


def gradient_step(
    coefficients: Floats, gram: Floats, cross: Floats, *, step: float, max_norm: float | None
) -> Floats:
    """Return the next iterate: ``b - eta (A b - g)`` with ``eta = step / ||A||_op``, then projected.

    Parameters
    ----------
    coefficients : ndarray, shape (p,)
    gram, cross : ndarrays, shapes (p, p) and (p,)
        Corrected moments A and g of this round's release.
    step : float
        c of the paper (its Table 2).
    max_norm : float or None
        Radius of the ball to which the iterate is projected; None: no projection.

    Notes
    -----
    **Privacy.** Reads released moments only.
    """
    rate = step / max(float(np.linalg.norm(gram, 2)), np.finfo(float).tiny)
    moved = coefficients - rate * (gram @ coefficients - cross)
    if max_norm is None:
        return moved
    return moved / max(1.0, float(np.linalg.norm(moved)) / max_norm)


def gradient_path(
    moments: Iterable[tuple[Floats, Floats]], start: Floats, *, step: float, max_norm: float | None
) -> Floats:
    """Return all iterates, shape (T + 1, p), for the rounds' moments (A_t, g_t)."""
    path = [np.asarray(start, dtype=np.float64)]
    for gram, cross in moments:
        path.append(gradient_step(path[-1], gram, cross, step=step, max_norm=max_norm))
    return np.stack(path)


def release_rounds(
    mechanism: Modulation,
    rows: Rows,
    rule: GradientRule,
    rounds: int,
    progress: bool | None,
    terms: Mapping[str, Any],
) -> Release:
    """Run server and holders: directions orthogonal to the iterate, one message per round.

    `terms` are those of `Modulation.open`: the schedule, the budget and the noise source.
    """
    count = mechanism.map.directions
    if count >= mechanism.columns and mechanism.map.amplitude > 0.0:
        raise ArgumentError(
            f"directions={count} is too large for method='iterative': it must be smaller than the "
            f"number of private columns, {mechanism.columns}"
        )
    hidden = None if progress is None else not check_flag(progress, "progress")
    session = mechanism.open(rows, rounds=check_count(rounds, "rounds"), **terms)
    public = np.random.default_rng(mechanism.public_seed)
    design = mechanism.design
    private = mechanism.design.private
    beta = np.zeros(len(private))
    for index in tqdm(range(rounds), desc="modulated rounds", disable=hidden):
        above = beta[private] if count < mechanism.columns else None
        directions = orthonormal_directions(public, count, mechanism.columns, orthogonal_to=above)
        message = session.send(directions)
        system = round_system(
            design,
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
