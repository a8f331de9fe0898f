r"""Parties whose coefficients share a part: u from all rows, v_i from party i's, intervals for each party.

1. u: columns picked and fitted on all rows, the parties' own parts being noise.
2. One Gram matrix of all columns on all rows, each clipped at c alone: any m of its columns form a matrix of
   l2 sensitivity sqrt 2 m c^2, so that what an interval uses of it has a price of its own.
3. v_i: columns picked on party i's residuals by clipped products with a small clip, nearly signs, which suits
   weak signals; clipped preconditioned steps on them, u held fixed.
4. Scores of single targets, clipped one by one, their slopes (averaged over parties) and variances; precision
   columns from the pooled Gram matrix, with the party's picked columns in them.

Sizes of residuals only set clips: they are the medians over the parties, each on a short grid around the
pooled one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privinf.engines.hard_thresholding import PRODUCT_CLIP, positions
from privinf.engines.sparse_sums import ONE_SD, SparseSums
from privinf.engines.sparse_sums import Score as JointScore
from privinf.inference.sparse.debiased import Debiased, ScoreRelease, debiased_coordinates, steadied
from privinf.inference.sparse.precision import column_noise_variance, floored, precision_columns
from privinf.inference.sparse.radii import clip_radii, norm_moments, relative_variance, residual_moments
from privinf.typing import Floats

SMALL_CLIP = 0.1
COLUMN_CLIP = 1.5
SHARED_STEPS = (0.2, 0.3, 0.5)
OWN_STEPS = (0.3, 0.7)
# Half octaves and quarters around the pooled scale.
GRID = 2.0 ** (np.arange(-9, 5) / 4.0)
_RESIDUALS = np.geomspace(0.2, 1.75, 24)


@dataclass(frozen=True, slots=True)
class MachineBudget:
    """Prices, zCDP, of what one interval uses: a party's rows pay for shared and own parts alike."""

    selection: float
    refit: float
    scales: float
    own_selection: float
    own_refit: float
    neighbours: float
    gram: float
    slopes: float
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class OwnFit:
    """One party's released fit: shared columns first, then its own."""

    support: list[int]
    beta: Floats
    kept: list[int]
    error_cov: Floats


@dataclass(frozen=True, slots=True, eq=False)
class MachineFits:
    """Everything released: the shared fit, and per party its fit, its debiased targets, its columns."""

    shared: list[int]
    shared_beta: Floats
    own: Mapping[str, OwnFit]
    debiased: Mapping[str, Debiased]
    columns: Mapping[str, Floats]
    gram: Floats
    scale: float


def machine_fits(
    pooled: SparseSums,
    parties: Mapping[str, SparseSums],
    targets: Sequence[int],
    budget: MachineBudget,
    *,
    shared_sparsity: int,
    own_sparsity: int,
    neighbours: int = 3,
    extra: tuple[int, int] = (1, 2),
) -> MachineFits:
    """Return the fits of all parties.

    Parameters
    ----------
    pooled : SparseSums
        Over all rows.
    parties : mapping of str to SparseSums
        Over each party's rows.
    targets : sequence of int
    budget : MachineBudget
    shared_sparsity, own_sparsity : int
    neighbours : int
    extra : (int, int)
        Columns picked too many, for the shared and the own parts.

    Notes
    -----
    **Privacy.** Prices are those of one interval: a release of m coordinates at once is charged m times the
    price of one, which is what the ledger shows.
    """
    p = len(pooled.units.scale)
    size = shared_sparsity + own_sparsity + sum(extra) + neighbours + 1
    looks = len(SHARED_STEPS) + 1
    gram, gram_sd = pooled.gram(
        range(p), math.inf, budget.gram * (p / size) ** 2, "Gram matrix of all columns", bound=COLUMN_CLIP
    )
    # Clipping shrinks the columns' sizes: back to the scale of the unclipped, were they normal.
    shrunk = norm_moments(COLUMN_CLIP, 1)[1] if math.isfinite(budget.gram) else 1.0
    gram, gram_sd = gram / shrunk, gram_sd / shrunk
    shared, beta, scale = _shared(pooled, gram, budget, looks, shared_sparsity, extra[0])
    own, scale = _own(parties, gram, shared, beta, scale, budget, own_sparsity, extra[1])
    near = _neighbours(pooled, targets, shared, neighbours, budget.neighbours)
    debiased, columns = _debiased(parties, gram, gram_sd, own, targets, near, scale, budget)
    return MachineFits(shared, beta, own, debiased, columns, gram, scale)


def _shared(
    pooled: SparseSums, gram: Floats, budget: MachineBudget, looks: int, sparsity: int, extra: int
) -> tuple[list[int], Floats, float]:
    p = len(gram)
    look = budget.scales * 0.4 / looks
    scale = pooled.residual_scale((), np.empty(0), look, "scale of the response")
    support = pooled.pick(
        (), np.empty(0), PRODUCT_CLIP * scale, min(sparsity + extra, p), np.ones(p, dtype=bool),
        budget.selection, "selection of the shared part",
    )  # fmt: skip
    root, beta = _root(gram, support), np.zeros(len(support))
    for share in SHARED_STEPS:
        beta, _ = _step(pooled, [], np.empty(0), support, beta, root, scale, share * budget.refit)
        scale = pooled.residual_scale(support, beta, look, "scale of residuals")
    kept = np.sort(np.argsort(-np.abs(beta), kind="stable")[:sparsity])
    return [support[i] for i in kept], beta[kept], scale


def _own(
    parties: Mapping[str, SparseSums],
    gram: Floats,
    shared: list[int],
    beta: Floats,
    scale: float,
    budget: MachineBudget,
    sparsity: int,
    extra: int,
) -> tuple[dict[str, OwnFit], float]:
    """Return every party's fit; the parties go through the steps together, to share residual scales."""
    p = len(gram)
    allowed = np.ones(p, dtype=bool)
    allowed[shared] = False
    count = min(sparsity + extra, int(allowed.sum()))
    chosen = {
        name: sums.pick(
            shared, beta, SMALL_CLIP * scale, count, allowed, budget.own_selection, "selection of own parts"
        )
        for name, sums in parties.items()
    }
    roots = {name: _root(gram, support) for name, support in chosen.items()}
    own = {name: np.zeros(count) for name in parties}
    spread: dict[str, float] = {}
    for share in OWN_STEPS:
        for name, sums in parties.items():
            own[name], spread[name] = _step(
                sums, shared, beta, chosen[name], own[name], roots[name], scale, share * budget.own_refit
            )
        look = budget.scales * 0.6 / len(OWN_STEPS)
        scale = float(
            np.median(
                [
                    _near_scale(sums, shared + chosen[name], np.append(beta, own[name]), scale, look)
                    for name, sums in parties.items()
                ]
            )
        )
    fits = {}
    for name in parties:
        kept = np.sort(np.argsort(-np.abs(own[name]), kind="stable")[:sparsity])
        cov = np.zeros((len(shared) + count,) * 2)
        cov[len(shared) :, len(shared) :] = spread[name] * roots[name] @ roots[name].T
        fits[name] = OwnFit(
            shared + chosen[name],
            np.append(beta, own[name]),
            [*range(len(shared)), *(len(shared) + kept).tolist()],
            cov,
        )
    return fits, scale


def _near_scale(sums: SparseSums, support: list[int], beta: Floats, scale: float, rho: float) -> float:
    return float(
        sums.server.histogram_quantile(
            sums.args(support, beta, edges=scale * GRID), level=ONE_SD, label="scale of residuals", rho=rho,
            sites=sums.sites,
        )
    )  # fmt: skip


def _root(gram: Floats, support: Sequence[int]) -> Floats:
    part = floored(gram[np.ix_(support, support)])
    return np.asarray(np.linalg.inv(np.linalg.cholesky(part)).T)


def _step(
    sums: SparseSums,
    held: list[int],
    held_beta: Floats,
    support: list[int],
    beta: Floats,
    root: Floats,
    scale: float,
    rho: float,
) -> tuple[Floats, float]:
    """Return one clipped step on `support`, and the variance of its end point in whitened coordinates."""
    k = len(support)
    norm, bound = _step_radii(k, sums.n, rho)
    score = JointScore(support, root, norm, bound * scale, [*held, *support], np.append(held_beta, beta))
    mean, noise = sums.score(score, rho, "step of the refit")
    slope = norm_moments(norm, k)[0] * residual_moments(bound)[0]
    square = norm_moments(norm, k)[1] * residual_moments(bound)[1]
    variance = (square * scale**2 / sums.n + noise**2) / slope**2
    return np.asarray(beta + root @ mean / slope), float(variance)


def _step_radii(k: int, n: int, rho: float) -> tuple[float, float]:
    """Return C = sqrt k and the R that minimises the variance of a step."""
    if math.isinf(rho):
        return math.inf, math.inf
    norm = math.sqrt(k)
    return norm, float(min(_RESIDUALS, key=lambda bound: relative_variance(norm, bound, k, n, rho)))


def _neighbours(
    pooled: SparseSums, targets: Sequence[int], shared: list[int], count: int, rho: float
) -> list[list[int]]:
    allowed = np.ones((len(targets), len(pooled.units.scale)), dtype=bool)
    allowed[:, shared] = False
    allowed[np.arange(len(targets)), list(targets)] = False
    count = min(count, int(allowed.sum(axis=1).min()))
    if count == 0:
        return [[] for _ in targets]
    return pooled.neighbours(targets, count, allowed, rho * len(targets))


def _debiased(
    parties: Mapping[str, SparseSums],
    gram: Floats,
    gram_sd: float,
    own: Mapping[str, OwnFit],
    targets: Sequence[int],
    near: list[list[int]],
    scale: float,
    budget: MachineBudget,
) -> tuple[dict[str, Debiased], dict[str, Floats]]:
    k = len(targets)
    released: dict[str, ScoreRelease] = {}
    columns: dict[str, Floats] = {}
    noise: dict[str, Floats] = {}
    units = []
    for name, sums in parties.items():
        fit = own[name]
        columns[name], noise[name] = _columns(gram, gram_sd, fit, targets, near)
        unit = np.sqrt(columns[name][list(targets), np.arange(k)])
        units.append(unit)
        radii = clip_radii(1, sums.n, budget.score)
        score = JointScore(
            range(len(gram)), columns[name] / unit, radii.norm, radii.residual * scale, fit.support, fit.beta
        )
        mean, mean_sd = sums.single("paper_scores", score, budget.score * k, "debiasing scores")
        slope, slope_sd = sums.single(
            "single_slopes", score, budget.slopes / 2.0 * k, "slopes of the scores", targets
        )
        square, square_sd = sums.single(
            "paper_variances", score, budget.slopes / 2.0 * k, "variances of the scores"
        )
        released[name] = ScoreRelease(mean, slope, steadied(square, square_sd), mean_sd, slope_sd, sums.n)
    slope = np.mean([one.slope for one in released.values()], axis=0)
    slope_sd = math.sqrt(sum(one.slope_sd**2 for one in released.values())) / len(released)
    # Slopes of standardised scores in standardised columns are equal in one design.
    unit = np.mean(units, axis=0)
    slope = steadied(slope * unit, slope_sd * math.sqrt(float(np.mean(unit**2)))) / unit
    found = {}
    for name, one in released.items():
        start = np.zeros(len(gram))
        start[own[name].support] = own[name].beta
        common = ScoreRelease(one.score, slope, one.square, one.score_sd, slope_sd, one.n)
        found[name] = debiased_coordinates(start[list(targets)], common, noise[name])
    return found, columns


def _columns(
    gram: Floats, gram_sd: float, fit: OwnFit, targets: Sequence[int], near: list[list[int]]
) -> tuple[Floats, Floats]:
    """Return precision columns on all columns, shape (p, k), and the variance that their noise causes."""
    columns, noise = np.zeros((len(gram), len(targets))), np.empty(len(targets))
    for place, (target, chosen) in enumerate(zip(targets, near, strict=True)):
        members = list(dict.fromkeys([target, *fit.support, *chosen]))
        part = floored(gram[np.ix_(members, members)])
        w = precision_columns(part, [range(len(members))])
        columns[members, place] = w[:, 0]
        others = np.array([i for i, j in enumerate(fit.support) if j != target], dtype=int)
        at = positions([fit.support[i] for i in others], members)
        noise[place] = column_noise_variance(w, gram_sd, at, fit.error_cov[np.ix_(others, others)])[0]
    return columns, noise
