r"""Least squares by a second look: second moments, then scores in the coordinates that they make.

The first release is of second moments of z = (1, x) and y, and pays for the whole range of both. It gives a
pilot b and coordinates v = M z in which the rows are about white; in these the following releases pay for the
scale of the *residuals* e = y - z'b alone: tail counts of t = |v| |e| / s (once more where they stand far
out) choose a clip C, two layers of clipped scores S1 = sum q min(t, tau), S2 = sum q min((t - tau)+, C - tau)
(q = v sign(e)/|v|) and a Hessian H of them, the mean of psi v v' with psi = 1 below tau, w between tau and C,
0 beyond, give

.. math:: D = H^{-1} (S_1 + w S_2)/n, \qquad \hat\beta = b + s M' D .

The signed layer S2 stands for what lies beyond C too: w = 1 + .6 lambda, lambda the excess beyond C over that
in the layer, from the counts. So symmetric tails cost almost nothing and one-sided ones are corrected. H is
the derivative of the very scores that are summed: with the Gram matrix of all v in its place a direction that
few rows make up, whose scores are long, keeps a part of the pilot's error (a column that is 1 in 1% of rows
missed by 11 to 16% where H misses by 6 to 7%; `benchmarks/results/one_curator.md`). The noise of H multiplies
D alone, which is small:

.. math:: V = R [meat/n + \sigma_S^2 I + (\sigma_H^2/2)(|D|^2 I + D D')] R', \qquad R = s M' H^{-1},

sigma_S = 2C'/(n mu_S), C' = tau + w (C - tau), sigma_H = sqrt 2 C_H^2/(n mu_H); meat that of the clipped
scores. Up to 0.7 lambda of what the layer holds may be wrong: an interval allows for a bias of that size, B_j
= 0.7 lambda min(|(R S2)_j| + sd_2 |R_j|, (X(tau) - X(C)) |R_j|)/n.

Every release is chosen from earlier ones: fully adaptive composition of Gaussian mechanisms (Smith and
Thakurta 2022, arXiv 2210.17520), whose squared prices add up to mu^2 at most on every path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from privinf.accounting.shares import part_of_mu
from privinf.errors import ConvergenceError
from privinf.glm.queries import (
    LOWEST_THRESHOLD,
    MEAT,
    Counting,
    InitialEstimate,
    LeastSquaresQueries,
    PricedQuery,
)
from privinf.inference.identifiability import check_full_rank
from privinf.inference.noisy_variance import HIDDEN_SDS, is_hidden
from privinf.inference.one_step import OneStepScores, step_noise
from privinf.inference.tails import (
    ALLOWED,
    LOWER_THRESHOLD_RATIO,
    Clip,
    Tail,
    best_clip,
    shrunk,
    two_threshold_clip,
)
from privinf.typing import Flags, Floats
from privinf.wire import Labels, Statistics

SCALE = 0.03  # share of mu^2 for the scale of the residuals
COUNTS = 0.01  # share of mu^2 for counts of lengths before a Gram matrix
REGRAM = 0.12  # share of mu^2 for the second Gram matrix, where the first was weak
SCORE_COUNTS = 0.02  # share of mu^2 for counts before the score that improves the pilot
SCORE_ROUND = 0.08  # share of mu^2 for that score
HESSIAN = 0.06  # share of mu^2 for the last Hessian, where it identifies all coefficients well
HESSIAN_AGAIN = 0.12  # the same where the first Gram matrix was weak
# Strength that every coefficient should have with the last Hessian: 4 are needed (`OneStepScores`), noise
# moves a strength by about 1, and clipped rows are not in the Hessian.
AIM = 8.0
# The last Hessian costs up to this many times its share where a coefficient would have less strength than
# that; see benchmarks/results/lottery_division.md.
LARGEST_FACTOR = 2.0
LEAST_MOMENT = 0.1  # of the eigenvalues of whitened second moments, where strengths are predicted
TAIL = 0.14  # share of mu^2 for the tail counts that choose the clip; what is left is for both layers
WEAK = 3.5  # a first Gram matrix whose smallest eigenvalue is fewer times its floor is weak
COARSE = 0.2  # noise of the pilot, relative to the residuals' scale, above which it is improved
SCALE_CELLS = 18  # thresholds of the counts for the residuals' scale
SCALE_LEVEL = 0.7  # quantile of the residuals that is their scale
NORMAL_QUANTILE = 1.04  # that of |e| of a standard normal e, so that the scale is the sd of normal residuals
RESPONSE_WEIGHT = 0.87  # of y in the first release, relative to the radius of z
LONG = 3.0  # lengths are counted before a Gram matrix where the longest squared row passes this many times p
LAST_FLOOR = 0.5  # of the last Hessian's eigenvalues, relative to the operator norm of its noise
AT_FLOOR = 1e-6  # relative distance from the floor within which a stored Hessian's eigenvalue was floored
ROBUST = 2.0  # where target="robust" clips scores, in units of sqrt p
SMALLEST_TRACE = 1e-6  # of the last Hessian, where it is the divisor of a variance
MAX_STEPS = 100  # looks without noise
SMALLEST_STEP = 1e-10  # largest entry of a step, relative to 1 + the largest coefficient, that has converged


@dataclass(frozen=True, slots=True)
class FitMeasures:
    """Moments of the response and of the residuals, scaled units.

    Attributes
    ----------
    residual : float
        Mean squared residual at the coefficients; noise may make it negative.
    noise : float
        Sd of its noise.
    explained : float
        Mean square of the fitted values, about their mean where there is a constant, without what noise of
        the coefficients adds; at least 0.
    explained_noise : float
        Sd of its noise.
    """

    residual: float
    noise: float
    explained: float = 0.0
    explained_noise: float = 0.0

    def checked(self, limit: float) -> FitMeasures:
        """Return these measures, or hidden ones with this limit if the mean squared residual exceeds it.

        It does after a poor initial estimate, from which a step of clipped scores leads back only in part.
        """
        if self.residual <= limit + HIDDEN_SDS * self.noise:
            return self
        return replace(self, residual=0.0, noise=limit / HIDDEN_SDS)

    @property
    def residual_floor(self) -> float:
        """The mean squared residual, at least its limit where noise hides it."""
        return max(self.residual, HIDDEN_SDS * self.noise, 0.0)

    def visible(self) -> tuple[float | None, float | None]:
        """Return R-squared and the mean squared residual; None where noise hides the latter."""
        if is_hidden(self.residual, self.noise):
            return None, None
        total = self.explained + self.residual
        return self.explained / total if total > 0.0 else None, self.residual

    @property
    def rsquared_noise(self) -> float:
        """Sd of the noise of R-squared, by the delta method."""
        residual = self.residual_floor
        total = self.explained + residual
        if total <= 0.0:
            return 0.0
        return math.hypot(residual * self.explained_noise, self.explained * self.noise) / total**2


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TailPull:
    """What records beyond the clipping threshold may do to k coefficients.

    Attributes
    ----------
    largest_shift : ndarray, shape (k,)
        Shift if all of them moved the coefficient in one direction, in standard errors.
    allowed_bias : ndarray, shape (k,)
        Bias that the interval allows for, in standard errors.
    one_sided : ndarray, shape (k,)
        Share of them that may move it in one direction (`OneStepFit.one_sided`).
    one_sided_sds : ndarray, shape (k,)
        Sum of the scores just below the threshold along the coefficient, in sds of its noise.
    """

    largest_shift: Floats
    allowed_bias: Floats
    one_sided: Floats
    one_sided_sds: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class OneStepFit:
    """The last releases of a fit, in whitened coordinates, and what they say.

    Attributes
    ----------
    initial : InitialEstimate
    clip : Clip
    hessian : ndarray, shape (p, p)
        H, its eigenvalues floored: what the estimate inverts.
    released_hessian : ndarray, shape (p, p)
        H as it was released: what score tests use.
    strength : float
        Its smallest eigenvalue before that, over the operator norm of its noise.
    lower, upper : ndarray, shape (p,)
        S1/n and S2/n.
    meat : ndarray, shape (p, p)
        Of the clipped scores, shrunk.
    raw_meat : ndarray, shape (p, p)
        As it was released.
    score_sd, upper_sd, hessian_sd : float
        Sds of the noise of S1 + w S2, of S2 and of the diagonal of H, all over n.
    measures : FitMeasures
    n : int
    """

    initial: InitialEstimate
    clip: Clip
    hessian: Floats
    released_hessian: Floats
    strength: float
    lower: Floats
    upper: Floats
    meat: Floats
    raw_meat: Floats
    score_sd: float
    upper_sd: float
    hessian_sd: float
    measures: FitMeasures
    n: int

    @cached_property
    def step(self) -> Floats:
        """D = H^-1 (S1 + w S2)/n."""
        return np.asarray(np.linalg.solve(self.hessian, self.lower + self.clip.weight * self.upper))

    @cached_property
    def influence(self) -> Floats:
        """R = s M' H^-1, shape (p, p)."""
        return np.asarray(self.initial.unit * np.linalg.solve(self.hessian, self.initial.whitening).T)

    @property
    def params(self) -> Floats:
        """Coefficients, scaled units."""
        return np.asarray(self.initial.theta + self.initial.unit * self.initial.whitening.T @ self.step)

    @property
    def length(self) -> float:
        """Root mean square length of the last step, in its own standard errors."""
        noise = sum(step_noise(self.step, self.score_sd, self.hessian_sd).values())
        cov = np.linalg.solve(self.hessian, self.meat / self.n + noise)
        cov = np.linalg.solve(self.hessian, cov.T)
        return math.sqrt(max(float(self.step @ np.linalg.solve(cov, self.step)), 0.0) / len(self.step))

    def noise_terms(self, transform: Floats) -> dict[str, Floats]:
        """Return the terms of the covariance of ``transform @ params`` that the noise causes, (k, k) each."""
        R = transform @ self.influence
        terms = step_noise(self.step, self.score_sd, self.hessian_sd)
        return {name: R @ term @ R.T for name, term in terms.items()}

    def remainder(self, transform: Floats) -> Floats:
        """Return what noise N of the Hessian adds to ``transform @ params`` in second order, shape (k,).

        (H + N)^-1 S = D - H^-1 N D + H^-1 N H^-1 N D - ...: the covariance has the first order, and the mean
        of the second is H^-1 (sigma_H^2/2)(H^-1 + tr(H^-1) I) D, as E N M N = (sigma_H^2/2)(M + tr(M) I).
        """
        inverse = np.linalg.inv(self.hessian)
        spread = self.hessian_sd**2 / 2.0 * (inverse + np.trace(inverse) * np.eye(len(inverse)))
        return np.asarray(transform @ self.influence @ spread @ self.step)

    def covariance(self, transform: Floats) -> tuple[Floats, Floats]:
        """Return the covariance of ``transform @ params`` and the part of it that noise causes.

        The sampling part of a coefficient is the larger of the shrunk meat's and the raw one's (at most four
        times the shrunk one's).
        """
        R = transform @ self.influence
        shrunk, raw = (R @ meat @ R.T / self.n for meat in (self.meat, self.raw_meat))
        part = np.diag(shrunk)
        grown = np.sqrt(np.clip(np.diag(raw) / part, 1.0, 4.0))
        noise = np.asarray(sum(self.noise_terms(transform).values()))
        return shrunk * np.outer(grown, grown) + noise, noise

    def explained(self, ones: Floats | None) -> tuple[float, float]:
        """Return the mean square of the fitted values about their mean, and the sd of its noise.

        Noise of covariance V in the coefficients b adds ``tr(G V)`` to ``b'G b``, G the centred first Gram
        matrix, whose own noise of sd s adds an error of sd ``s |b|^2``.
        """
        gram = self.initial.gram
        b = self.params
        if ones is not None and (mass := float(ones @ gram @ ones)) > 0.0:
            pull = gram @ ones
            b = b - ones * float(pull @ b) / mass
            gram = gram - np.outer(pull, pull) / mass
        noise = np.asarray(sum(self.noise_terms(np.eye(len(b))).values()))
        spread = gram @ noise
        gram_sd = self.initial.edge / math.sqrt(2.0 * len(b))
        variance = 4.0 * float(b @ spread @ gram @ b) + 2.0 * float(np.trace(spread @ spread))
        variance = max(variance, 0.0) + (gram_sd * float(b @ b)) ** 2
        return max(float(b @ gram @ b) - max(float(np.trace(spread)), 0.0), 0.0), math.sqrt(variance)

    def bias(self, transform: Floats) -> Floats:
        """Return the bias that the intervals of ``transform @ params`` must allow, shape (k,)."""
        R = transform @ self.influence
        size = np.linalg.norm(R, axis=1)
        return self.clip.bias(R @ self.upper, self.upper_sd * size, size / self.n)

    def unclipped_shift(self, transform: Floats) -> Floats:
        """Return how much shorter ``transform @ params`` would step if all rows counted in H, shape (k,).

        R (G - H) D to first order, G the moments of v. A clipped row is in S, not in H: right of a long tail,
        but not where the initial estimate was off, so that the step takes the row back inside the clip.
        """
        return np.asarray(transform @ self.influence @ (self.initial.white - self.hessian) @ self.step)

    def largest_bias(self, transform: Floats) -> Floats:
        """Return X(C) |R_j| / n, the shift if all that counts see beyond C were along one R_j, shape (k,)."""
        return np.asarray(self.clip.beyond * np.linalg.norm(transform @ self.influence, axis=1) / self.n)

    def bias_along(self, transform: Floats, directions: Floats) -> Floats:
        """Return the largest ``X |R_j d| / n`` of some unit vectors d, shape (k,); 0 without any.

        It is the shift if all scores beyond C have the direction d (`privinf.glm.one_sided`), where X is X(C)
        and one sd of its noise.
        """
        along = np.abs(transform @ self.influence @ directions.T)
        excess = self.clip.beyond + self.clip.beyond_sd
        return np.asarray(excess * along.max(axis=1, initial=0.0) / self.n)

    def one_sided(self, transform: Floats) -> Floats:
        """Return the share of the N(C) records beyond C that may be along R_j and to one side, shape (k,).

        Each holds C - tau of the upper layer: R_j S2 is that share of N(C) (C - tau) |R_j|, where the layer's
        other records are even. Two sds of its noise are added.
        """
        R = transform @ self.influence
        size = np.linalg.norm(R, axis=1)
        all_of_them = self.clip.cut * (self.clip.high - self.clip.low) * size / self.n
        reached = np.abs(R @ self.upper) + 2.0 * self.upper_sd * size
        return np.asarray(np.minimum(reached, all_of_them) / np.maximum(all_of_them, 1e-300))

    def one_sided_sds(self, transform: Floats) -> Floats:
        """Return ``|R S2|`` in sds of its noise, shape (k,): large where its scores agree in sign.

        It is 0 without noise.
        """
        R = transform @ self.influence
        noise = self.upper_sd * np.linalg.norm(R, axis=1)
        ratios: Floats = np.divide(np.abs(R @ self.upper), noise, out=np.zeros(len(R)), where=noise > 0.0)
        return ratios

    def tail_pull(self, transform: Floats, bse: Floats) -> TailPull:
        """Return what clipped records may do to ``transform @ params``, whose standard errors are `bse`."""
        return TailPull(
            largest_shift=self.largest_bias(transform) / bse,
            allowed_bias=self.bias(transform) / bse,
            one_sided=self.one_sided(transform),
            one_sided_sds=self.one_sided_sds(transform),
        )

    def score_equation(
        self, to_scaled: Floats, noise_free: Flags, cov_type: str, directions: Floats
    ) -> OneStepScores:
        """Return the equation of score tests; `to_scaled` is from the fit's scaled units to the design's.

        To the noise of the scores it adds what the tail may hide, (0.7 lambda)^2 (S2 S2'/n^2 + sd_2^2 I), and
        (X(C)/n)^2 d d' for each unit vector d that the clipped scores may all have (`privinf.glm.one_sided`).
        """
        hidden = (ALLOWED * self.clip.ratio) ** 2
        flat = self.score_sd**2 + hidden * self.upper_sd**2
        noise_cov = flat * np.eye(len(self.lower)) + hidden * np.outer(self.upper, self.upper)
        noise_cov += (self.clip.beyond / self.n) ** 2 * directions.T @ directions
        return OneStepScores(
            to_scaled=to_scaled @ (self.initial.unit * self.initial.whitening.T),
            start=to_scaled @ self.initial.theta,
            mean=self.lower + self.clip.weight * self.upper,
            hessian=self.hessian,
            released_hessian=self.released_hessian,
            clean=self.meat,
            known=self.n * noise_cov,
            hessian_sd=self.hessian_sd,
            residual=self.measures.residual_floor,
            noise_free=noise_free,
            n=self.n,
            cov_type=cov_type,
        )


def floored(matrix: Floats, edge: float) -> tuple[Floats, Floats]:
    """Return the eigenvalues, at least `edge`, and the eigenvectors of a symmetric matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values, max(edge, 1e-14 * float(values[-1]))), vectors


def release_initial_estimate(queries: LeastSquaresQueries) -> tuple[InitialEstimate, Floats]:
    """Return the initial estimate of a release of second moments, its scale still 1, and these moments.

    Raises NotPositiveDefiniteError where there is no noise and columns repeat one another.
    """
    reach = queries.reachable
    p = queries.p
    weight = RESPONSE_WEIGHT * reach.radius
    moments, sd = queries.moments(weight)
    queries.detect_values_at_ends(moments, sd, weight)
    gram = moments[:p, :p]
    cross = moments[:p, p]
    if math.isinf(queries.mu):
        check_full_rank(gram, queries.rows.design.names)
    edge = sd * math.sqrt(2.0 * p)
    values, vectors = floored(gram, edge)
    theta = vectors @ ((vectors.T @ cross) / values)
    whitening = (vectors / np.sqrt(values)) @ vectors.T
    noise = sd * math.sqrt((theta @ theta + weight**-2) / 2.0) * math.sqrt(float((1.0 / values).sum()))
    longest = min(reach.radius**2 / float(values[0]), reach.longest2(whitening))
    smallest = float(np.linalg.eigvalsh(gram)[0])
    white = whitening @ gram @ whitening
    return InitialEstimate(
        theta=theta,
        whitening=whitening,
        longest=longest,
        unit=1.0,
        noise=noise,
        smallest=smallest,
        edge=edge,
        gram=gram,
        residuals=None,
        white=white,
    ), moments


def scale_initial_estimate(queries: LeastSquaresQueries, initial: InitialEstimate) -> InitialEstimate:
    """Return the initial estimate with the scale of its residuals."""
    counting = Counting(top=queries.residual(initial.theta), cells=SCALE_CELLS)
    tail = queries.tail(initial, "residual", SCALE, counting)
    return replace(initial, unit=quantile_of(tail, SCALE_LEVEL) / NORMAL_QUANTILE, residuals=tail)


def gram_clip(queries: LeastSquaresQueries, initial: InitialEstimate, share: float) -> float:
    """Return the norm at which rows v enter a matrix of this price: by counts, where the longest is long."""
    if math.isinf(queries.mu) or initial.longest <= LONG * queries.p:
        return math.sqrt(initial.longest)
    tail = queries.tail(
        initial, "length", COUNTS, Counting(top=initial.longest, lowest=LOWEST_THRESHOLD * queries.p)
    )
    mu = queries.mu * math.sqrt(share)
    return math.sqrt(best_clip(tail, lambda c: queries.p * (c / mu) ** 2 + tail.excess(c) ** 2))


def rewhiten(queries: LeastSquaresQueries, initial: InitialEstimate) -> InitialEstimate:
    """Return the initial estimate in coordinates made of a Gram matrix of its coordinates."""
    args = initial.args({"clip": gram_clip(queries, initial, REGRAM)})
    gram, sd = queries.matrix(Statistics.WHITENED_GRAM, REGRAM, Labels.SECOND_GRAM, args)
    values, vectors = floored(gram, sd * math.sqrt(2.0 * queries.p))
    root = (vectors / np.sqrt(values)) @ vectors.T
    whitening = root @ initial.whitening
    longest = min(initial.longest / float(values[0]), queries.reachable.longest2(whitening))
    return replace(initial, whitening=whitening, longest=longest, white=root @ gram @ root)


def refine_initial_estimate(queries: LeastSquaresQueries, initial: InitialEstimate) -> InitialEstimate:
    """Return the initial estimate moved by one round of clipped scores."""
    counting = queries.of_scores(initial, coarse=True)
    tail = queries.tail(initial, "score", SCORE_COUNTS, counting)
    mu = queries.mu * math.sqrt(SCORE_ROUND)
    clip = best_clip(tail, lambda c: queries.p * (2.0 * c / mu) ** 2 + (0.5 * tail.excess(c)) ** 2)
    args = queries.args(initial, {"low": 0.0, "high": clip})
    release = queries.vector(Statistics.WHITENED_SCORE, SCORE_ROUND, Labels.FIRST_SCORE, args)
    moved = initial.unit * initial.whitening.T @ release.values / queries.n
    return replace(initial, theta=initial.theta + moved)


def chosen_clip(
    queries: LeastSquaresQueries, initial: InitialEstimate, hessian: float, more: float
) -> tuple[Clip, float]:
    """Return the clip of the scores, and the share of mu^2 that both layers get.

    `more` is what the Hessian costs above its usual share. The clip is the one without it: a clip for the
    noisier scores would be lower, and hide more of the errors of a group of few records.
    """
    options = queries.options
    p = queries.p
    counting = queries.of_scores(initial, coarse=False)
    tail = None
    high = counting.top
    if options.target == "robust":
        high = min(ROBUST * math.sqrt(p), high)
    elif options.rule == "auto" and not math.isinf(queries.mu):
        tail = queries.tail(initial, "score", TAIL, counting)
    rest = 1.0 - queries.spent - hessian - MEAT
    if tail is None:
        return Clip(low=LOWER_THRESHOLD_RATIO * high, high=high, ratio=0.0, weight=1.0, between=0.0), rest
    return two_threshold_clip(tail, p, queries.mu * math.sqrt(rest + more)), rest


def expected_strengths(initial: InitialEstimate, sd: float) -> Floats:
    """Return about the strengths of the coefficients with a last Hessian whose noise has this sd, shape (p,).

    A strength is ``t'Gt / (sd |t|^2)`` with ``t = G^-1 c``, c the coefficient in whitened coordinates
    (`privinf.inference.coefficient_sets`). The second moments G of v that were released replace the Hessian.
    """
    values, vectors = np.linalg.eigh(initial.white)
    values = np.maximum(values, LEAST_MOMENT)
    directions = vectors @ ((vectors.T @ initial.whitening) / values[:, None])
    curvatures = np.sum(initial.whitening * directions, axis=0)
    return np.asarray(curvatures / (sd * np.sum(directions**2, axis=0)))


def hessian_factor(
    queries: LeastSquaresQueries, initial: InitialEstimate, norm: float, share: float
) -> float:
    """Return how many times this share of mu^2 the last Hessian gets; its rows are clipped at this norm.

    It is 1 where all coefficients would have a strength of `AIM`, and no more than `LARGEST_FACTOR`.
    """
    if math.isinf(queries.mu):
        return 1.0
    sd = math.sqrt(2.0) * norm**2 / (queries.n * part_of_mu(queries.mu, share))
    weakest = float(expected_strengths(initial, sd).min())
    return min(max((AIM / weakest) ** 2, 1.0), LARGEST_FACTOR)


def fit_one_step(
    queries: LeastSquaresQueries, initial: InitialEstimate, moments: Floats, *, rewhitened: bool
) -> OneStepFit:
    """Release the counts, the Hessian, both layers and the meat, and return what they say."""
    n, p = queries.n, queries.p
    price = HESSIAN_AGAIN if rewhitened else HESSIAN
    norm = gram_clip(queries, initial, price)
    more = price * (hessian_factor(queries, initial, norm, price) - 1.0)
    price += more
    clip, share = chosen_clip(queries, initial, price, more)
    layer_args = queries.args(initial, {"low": clip.low, "high": clip.high, "weight": clip.weight})
    low, high = clip.shares()
    last: tuple[PricedQuery, float] = (Statistics.WHITENED_MEAT, MEAT, Labels.MEAT, layer_args), 0.0
    if not queries.options.robust:
        last = queries.squares(initial)
    releases = queries.together(
        [
            (Statistics.WHITENED_HESSIAN, price, Labels.HESSIAN, {**layer_args, "clip": norm}),
            (
                Statistics.WHITENED_SCORE,
                share * low,
                Labels.SCORES,
                queries.args(initial, {"low": 0.0, "high": clip.low}),
            ),
            (
                Statistics.WHITENED_SCORE,
                share * high,
                Labels.SCORES_ABOVE,
                queries.args(initial, {"low": clip.low, "high": clip.high}),
            ),
            last[0],
        ]
    )
    hessian, hessian_sd = queries.mean_matrix(releases[0])
    lower, upper = releases[1:3]
    edge = hessian_sd * math.sqrt(2.0 * p)
    values, vectors = floored(hessian, LAST_FLOOR * edge)
    scores = lower.values + clip.weight * upper.values
    step = vectors @ ((vectors.T @ scores) / values) / n
    score_sd = math.hypot(float(lower.scale), clip.weight * float(upper.scale)) / n
    meat, meat_sd, measures = last_moments(
        queries, initial, moments, (releases[3], last[1]), (hessian, step), (hessian_sd, score_sd)
    )
    strength = float(np.linalg.eigvalsh(hessian)[0]) / edge if edge > 0.0 else math.inf
    one_step = OneStepFit(
        initial=initial,
        clip=clip,
        hessian=(vectors * values) @ vectors.T,
        released_hessian=hessian,
        strength=strength,
        lower=lower.values / n,
        upper=upper.values / n,
        meat=shrunk(meat, meat_sd),
        raw_meat=meat,
        score_sd=score_sd,
        upper_sd=float(upper.scale) / n,
        hessian_sd=hessian_sd,
        measures=measures,
        n=n,
    )
    explained, explained_noise = one_step.explained(queries.ones)
    return replace(one_step, measures=replace(measures, explained=explained, explained_noise=explained_noise))


def last_moments(
    queries: LeastSquaresQueries,
    initial: InitialEstimate,
    moments: Floats,
    last: tuple[Any, float],
    solved: tuple[Floats, Floats],
    sds: tuple[float, float],
) -> tuple[Floats, float, FitMeasures]:
    """Return the meat of the clipped scores, the sd of its noise, and mean squares.

    `last` is the release of the meat, or of squared residuals with the sum of what lies beyond their clip;
    `solved` are the Hessian and the step, and `sds` those of the noise of the Hessian's diagonal and of the
    scores. The meat and the squares are of residuals at the initial estimate, so ``step'H step`` is taken off
    their mean square. Its noise is that of ``tr(meat)/tr(H)`` to first order in both traces, or that of the
    squares less ``step'H step``. The mean square of the meat is weighted by the squared lengths of the rows,
    for which ``step'H step`` is only about right: all of it is added to the sd.

    Where errors are taken to have equal variance, the meat is s2 H, s2 the mean of (clipped) squares of
    residuals at the initial estimate, less what the step takes of it.
    """
    p = queries.p
    hessian, step = solved
    hessian_sd, score_sd = sds
    theta = initial.theta + initial.unit * initial.whitening.T @ step
    if queries.options.robust:
        meat, sd = queries.mean_matrix(last[0])
        size = max(float(np.trace(hessian)), SMALLEST_TRACE)
        ratio = float(np.trace(meat)) / size
        moved = max(float(step @ hessian @ step), 0.0)
        residual = initial.unit**2 * (ratio - moved)
        noise = initial.unit**2 * math.hypot(math.sqrt(p) * math.hypot(sd, ratio * hessian_sd) / size, moved)
    else:
        squares = (float(last[0].values[0]) + last[1]) / queries.n
        residual = squares - initial.unit**2 * float(step @ hessian @ step)
        length = float(np.linalg.norm(step))
        of_step = initial.unit**2 * length * math.hypot(2.0 * score_sd, length * hessian_sd)
        noise = math.hypot(float(last[0].scale) / queries.n, of_step)
        sd = 0.0
    if math.isinf(queries.mu):
        ends = np.append(-theta, 1.0)
        residual = max(float(ends @ moments @ ends), 0.0)
        noise = 0.0
    measures = FitMeasures(residual, noise)
    if not queries.options.robust:
        freed = queries.n / max(queries.n - p, 1)
        meat = freed * measures.residual_floor / initial.unit**2 * hessian
    return meat, sd, measures


def fit_least_squares(queries: LeastSquaresQueries) -> OneStepFit:
    """Make all releases of a fit and return the last ones.

    Notes
    -----
    **Privacy.** Reads every row once a release; the squared prices add up to mu^2 at most.
    """
    if queries.options.adapt_bounds:
        queries.reweight_by_tighter_bounds()
    initial, moments = release_initial_estimate(queries)
    if math.isinf(queries.mu):
        initial = scale_initial_estimate(queries, initial) if queries.options.target == "robust" else initial
        return _converged(queries, initial, moments)
    limit = response_limit(queries, moments, initial.edge / math.sqrt(2.0 * queries.p))
    initial = scale_initial_estimate(queries, initial)
    is_weak = initial.strength <= WEAK
    if is_weak:
        initial = rewhiten(queries, initial)
    has_own_clip = queries.options.target == "robust" or queries.options.rule is None
    if is_weak or has_own_clip or initial.noise > COARSE * initial.unit:
        initial = refine_initial_estimate(queries, initial)
    one_step = fit_one_step(queries, initial, moments, rewhitened=is_weak)
    return replace(one_step, measures=one_step.measures.checked(limit))


def response_limit(queries: LeastSquaresQueries, moments: Floats, sd: float) -> float:
    """Return the mean square of the response about its mean, plus two sds of its noise.

    Least squares leaves residuals of no larger mean square. `sd` is that of the noise of the diagonal of the
    moments, where the response has its weight of the first release.
    """
    p = queries.p
    total = float(moments[p, p])
    size = (RESPONSE_WEIGHT * queries.reachable.radius) ** -2
    ones = queries.ones
    if ones is not None and (mass := float(ones @ moments[:p, :p] @ ones)) > 0.0:
        mean = float(ones @ moments[:p, p]) / mass
        total -= mean**2 * mass
        size += mean**2 * float(ones @ ones)
    return max(total, 0.0) + HIDDEN_SDS * sd * size


def _converged(queries: LeastSquaresQueries, initial: InitialEstimate, moments: Floats) -> OneStepFit:
    """Return the last look of a fit without noise: looks until the coefficients stay.

    Raises
    ------
    ConvergenceError
        They do not.
    """
    for _ in range(MAX_STEPS):
        one_step = fit_one_step(queries, initial, moments, rewhitened=False)
        if float(np.abs(one_step.step).max()) <= SMALLEST_STEP * (1.0 + float(np.abs(one_step.params).max())):
            return one_step
        initial = replace(initial, theta=one_step.params)
    raise ConvergenceError(
        "Newton's method finds no root of the clipped scores: use a larger clipping threshold"
    )


def quantile_of(tail: Tail, level: float) -> float:
    """Return the smallest t that at most ``1 - level`` of the terms pass, geometrically inside a cell."""
    target = (1.0 - level) * tail.rows
    above = np.flatnonzero(tail.counts > target)
    if not len(above):
        return float(tail.thresholds[0])
    place = int(above[-1])
    if place == len(tail.counts) - 1:
        factor = (tail.counts[place] / target) ** (1.0 / tail.alpha)
        return float(min(tail.thresholds[place] * factor, max(tail.top, tail.thresholds[place])))
    low = tail.thresholds[place]
    high = tail.thresholds[place + 1]
    share = (tail.counts[place] - target) / (tail.counts[place] - tail.counts[place + 1])
    return float(low * (high / low) ** share)


def stored_scores(release: object, settings: Mapping[str, Any]) -> OneStepScores | None:
    """Return the scores that settings of a result hold; None for fits of other engines."""
    return OneStepScores.from_dict(settings["scores"]) if "scores" in settings else None


def lacks_released_hessian(system: OneStepScores) -> bool:
    """Return whether score tests use a floored Hessian: in a file of an earlier version, of a weak fit."""
    floor = LAST_FLOOR * system.hessian_sd * math.sqrt(2.0 * len(system.start))
    smallest = float(np.linalg.eigvalsh(system.hessian)[0])
    return system.released_hessian is None and 0.0 < smallest <= floor * (1.0 + AT_FLOOR)
