r"""Means of groups from noisy counts, sums and squares; no count is divided by where the noise may rule it.

In units in which values are in [-1, 1], N_g, S_g = sum u and P_g = sum (1 - u^2) are released of every group,
each with noise of sd a (of P: b). Counts are projected on the public n, which leaves them a^2 (I - 11'/k).

**Equal means.** With m = sum S/n the scores A_g = S_g - m N_g have, where all means are equal, mean 0 and
    Cov A = H diag(R + a^2) H' + m^2 a^2 (I - 11'/k),  H = I - (N/n) 1',
    R_g = N_g - P_g - S_g^2/N_g the sum of squares about the group's mean (about m where N_g < 6 a).
    A' Cov^- A becomes Welch's F, its 1/(N_g - 1) replaced by one over R's degrees of freedom, noise included.
    The noises of A_g and R_g have the covariance c = -m (3 + m^2) a^2; R_g - c A_g/V_g, where V_g = R_g +
    a^2 (1 + m^2), has none, as if values had been centered at m. Without it 16 skewed groups rejected 6.5%.
**A difference D** (Fieller). f(D) = (N_h S_g - N_g S_h - D N_g N_h)/n has mean 0 and, to first order,
    variance [N_h^2 (R_g + a^2) + N_g^2 (R_h + a^2)]/n^2 + a^2 (x^2 + y^2 - (x + y)^2/k), where its
    derivatives by the counts are x = -(S_h + D N_h)/n and y = (S_g - D N_g)/n. The interval is where f(D)^2
    is at most t^2 times it. Where the noise hides a group, it is the full range of the public bounds. A mean,
    likewise, from S_g - mu N_g.
**Contrasts** of more groups combine the means' intervals (Zou and Donner's MOVER); simultaneous intervals of
    all pairs take the quantile of the largest |f|/sd over these pairs in simulated releases.

**Rows without a value** (`missing="drop"`) are one more group, of which only the count is used. Counts are
    projected on the public n, which leaves them a^2 (I - 11'/(k + 1)), and n above is the projected number of
    complete rows, sum N_g. In the test H applies to the noise of the counts as to that of the sums: Cov A is
    H diag(R + a^2 (1 + m^2)) H' less m^2 a^2 hh'/(k + 1), h = H 1. That term is neglected, which makes the
    test conservative; it is 0 for groups of equal sizes.

**Values clipped at limits from noisy counts** (`clip="auto"` of means). Clipping has moved the sum of all
    values by at most B above and C below (`MeanClip`), so that it has moved that of any group by a c within
    [-C, B]. The interval of a mean holds every m that S + c - m N does not reject for some such c: from the
    lower end at c = -C to the upper one at c = B. Within one difference the extremes are S_g + B, S_h - C and
    S_g - C, S_h + B, as the two tails are bounded separately. A p-value is the largest one over c. A contrast
    combines the intervals for c = 0, whose errors are independent, and adds what clipping may have cut. That
    is not random, so it adds linearly: each tail may lie in the group that moves the contrast most.

Simulated releases have normal values of the released counts, means and spreads, and noise of the release's
distribution. With Laplace noise p-values are the larger ones of these releases and of the distribution above,
and intervals the wider ones. They are functions of the release: the same release has the same p-value.

References
----------
Welch (1951), "On the comparison of several mean values". Fieller (1954), "Some problems in interval
estimation". Zou and Donner (2008), "Construction of confidence limits about effect measures".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats as distributions

from privinf.errors import ArgumentError, ChangedTargetWarning
from privinf.inference.noisy_variance import NoisyVariance, StandardizedMean, is_hidden
from privinf.inference.quantiles import MeanClip
from privinf.mechanisms.samples import SampleSums
from privinf.results.notes import Note
from privinf.stats import base
from privinf.stats.quantiles import CoreClip
from privinf.stats.values_at_bounds import Cautions, values_at_bounds
from privinf.typing import Flags, Floats, Integers, Label
from privinf.validation import check_array

MIN_COUNT_SDS = 6.0  # a group whose count is fewer sds of its noise has its squares about the common mean
# How far below 0 a noisy sum of squares may count, in squared sds of the noise: cut at 0 its mean would be
# too large.
BELOW = 0.1
FIRST = np.array([0])  # of two samples, as positions of a contrast
SECOND = np.array([1])  # of two samples, likewise
SIMULATED = 9999  # simulated releases of equal means
LEAST_RANK = 1.0 / (SIMULATED + 1.0)  # smallest p-value that they can give
STREAM = 10  # seed of these releases: the same release has the same p-value
# Quantiles of Student's distribution with hardly any degrees of freedom are as good as this one, whose
# square is a number.
LARGEST_QUANTILE = 1e60


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTails:
    """How much of the sum of any group clipping may have cut at either limit, and the public bounds."""

    below: float
    above: float
    low: float
    high: float

    @classmethod
    def from_clip(cls, clip: MeanClip, middle: float, half: float) -> CutTails:
        """Return them in units in which the limits of clipping are -1 and 1."""
        low = clip.low - clip.rest[0]
        high = clip.high + clip.rest[1]
        return cls(
            below=clip.below / half,
            above=clip.above / half,
            low=(low - middle) / half,
            high=(high - middle) / half,
        )

    @property
    def range(self) -> float:
        """The largest difference between two means within the public bounds."""
        return self.high - self.low


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupModel:
    """Released sums (..., k) of k groups, units of u, counts projected; any number of releases side by side.

    `a` is the sd of the noise of counts and sums, `b` that of P; `laplace` is whether it is Laplace noise.
    `n` is the number of records, and `gaps`, of shape (..., 1), how many of them have no value: None where
    that is impossible. With `tails` means are those of the values before they were clipped.
    """

    N: Floats
    S: Floats
    P: Floats
    n: int
    a: float
    b: float
    laplace: bool = False
    gaps: Floats | None = None
    tails: CutTails | None = None

    @classmethod
    def from_sums(
        cls,
        N: Floats,
        S: Floats,
        P: Floats,
        n: int,
        noise: tuple[float, float],
        *,
        laplace: bool = False,
        gaps: Floats | None = None,
    ) -> GroupModel:
        """Return the distribution of released sums, whose noise has these sds."""
        a, b = noise
        laplace = laplace and a > 0.0
        total = N.sum(axis=-1, keepdims=True)
        if gaps is None:
            return cls(N=N + (n - total) / N.shape[-1], S=S, P=P, n=n, a=a, b=b, laplace=laplace)
        excess = (n - total - gaps) / (N.shape[-1] + 1)
        return cls(N=N + excess, S=S, P=P, n=n, a=a, b=b, laplace=laplace, gaps=gaps + excess)

    @classmethod
    def released(cls, release: SampleSums, clip: CoreClip | MeanClip | None = None) -> GroupModel:
        """Return the distribution of one release; of the values before a `MeanClip`."""
        noise = float(release.scale[0]), float(release.scale[2])
        N, S, P = release.sums.T
        if release.complete is None:
            model = cls.from_sums(N, S, P, release.nobs, noise, laplace=release.noise == "laplace")
        else:
            model = cls.from_sums(N[:-1], S[:-1], P[:-1], release.nobs, noise, gaps=N[-1:])
        if not isinstance(clip, MeanClip):
            return model
        return replace(
            model, tails=CutTails.from_clip(clip, float(release.middle[0]), float(release.half[0]))
        )

    def present(self) -> GroupModel:
        """Return the groups that have records, which is known only without noise."""
        nonempty = (self.N > 0.0) | (self.a > 0.0)
        return replace(self, N=self.N[nonempty], S=self.S[nonempty], P=self.P[nonempty])

    # ---- counts

    @property
    def complete(self) -> Floats | int:
        """Number of records with a value: all, or of shape (..., 1), at least one, what the gaps leave."""
        return self.n if self.gaps is None else np.maximum(self.n - self.gaps, 1.0)

    @property
    def counts(self) -> int:
        """How many counts add up to the number of records."""
        return int(self.N.shape[-1]) + (self.gaps is not None)

    # ---- spreads

    @property
    def common(self) -> Floats:
        """The mean of all records, shape (..., 1)."""
        return np.asarray(self.S.sum(axis=-1, keepdims=True) / self.complete)

    @property
    def alone(self) -> Flags:
        """Groups of fewer than two records, which have no spread; known only without noise."""
        return (self.N < 2.0) & (self.a == 0.0)

    @property
    def means(self) -> Floats:
        """Means of the groups, inside [-1, 1]; the common one where a count is hidden, shape (..., k)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(self.a < self.N, self.S / self.N, self.common)
        return np.clip(means, -1.0, 1.0)

    def squares(self) -> tuple[Floats, Floats]:
        """Return R N/(N - 1), for Welch's variances without noise, and R's noise variance, shape (..., k)."""
        above_noise = MIN_COUNT_SDS * self.a < self.N
        m = self.common
        a2 = self.a**2
        at = np.where(above_noise, self.S / np.where(above_noise, self.N, 1.0), m)
        about = self.N - self.P - 2.0 * m * self.S + m**2 * self.N
        within = self.N - self.P - (self.S**2 - a2 * (1.0 + m**2)) / np.where(above_noise, self.N, 1.0)
        noise = a2 * ((1.0 + at**2) ** 2 + 4.0 * at**2) + self.b**2
        within = within * (self.N / np.where(above_noise, np.maximum(self.N - 1.0, 1.0), 1.0))
        return np.maximum(np.where(above_noise, within, about), -BELOW * a2), noise

    # ---- tests and sets

    def equal_means(self) -> tuple[Floats, Floats]:
        """Return Welch's F and its second degrees of freedom; the first are k - 1."""
        k = self.N.shape[-1]
        m = self.common
        a2 = self.a**2
        R, noise = self.squares()
        A = self.S - m * self.N
        V = R + a2 * (1.0 + m**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            c = -m * (3.0 + m**2) * a2
            R = np.maximum(R - np.where(V > 0.0, c / V * A, 0.0), -BELOW * a2)
            noise = noise - np.where(V > 0.0, c**2 / V, 0.0)
            V = np.maximum(R + a2 * (1.0 + m**2), 1e-12)
            df = 2.0 * V**2 / (2.0 * R**2 / np.maximum(self.N - 1.0, 1.0) + np.maximum(noise, 0.0))
        shared = m**2 * a2
        alone, rest = (R + a2, shared) if self.gaps is None else (R + a2 + shared, 0.0 * shared)
        T = _quadratic_form(A, self.N / self.complete, alone, rest)
        w = self.N**2 / V
        short = ((1.0 - w / w.sum(axis=-1, keepdims=True)) ** 2 / df).sum(axis=-1)
        with np.errstate(divide="ignore"):
            df = (k * k - 1.0) / (3.0 * np.asarray(short))
        return T / (k - 1) / (1.0 + 2.0 * (k - 2) / (k * k - 1.0) * short), df

    def anova(self) -> tuple[float, float, float]:
        """Return F, its second degrees of freedom and its p-value; nan where nothing can be compared."""
        if self.N.shape[-1] < 2 or self.alone.any():
            return math.nan, math.nan, math.nan
        F, df = (float(value) for value in self.equal_means())
        pvalue = float(distributions.f.sf(F, self.N.shape[-1] - 1, df))
        if self.laplace:
            pvalue = max(pvalue, rank(self.simulate(equal=True).equal_means()[0], F))
        return F, df, pvalue

    def differences(
        self, first: Integers, second: Integers, at: Floats | float = 0.0
    ) -> tuple[Floats, Floats]:
        """Return t of the differences of pairs of groups being `at`, and degrees of freedom.

        With `tails` it is the t nearest to 0 over all that clipping may have cut.
        """
        alpha, beta, v0, q, df = self._scores(first, second)
        variance = v0 + q[0] + q[1] * at + q[2] * np.square(at)
        score = alpha - beta * at
        down, up = self._cuts(first, second)
        score = np.where(score > 0.0, np.maximum(score - down, 0.0), np.minimum(score + up, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return score / np.sqrt(np.maximum(variance, 0.0)), df

    def difference_sets(self, first: Integers, second: Integers, t: Floats) -> tuple[Floats, Floats]:
        """Return the ends of the differences that a two-sided test at quantile `t` does not reject."""
        down, up = self._cuts(first, second)
        limit = 2.0 if self.tails is None else self.tails.range
        low = self._difference_sets(first, second, t, limit, shift=-down)[0]
        return low, self._difference_sets(first, second, t, limit, shift=up)[1]

    def _cuts(self, g: Integers, h: Integers) -> tuple[Floats, Floats]:
        """Return how far clipping may have moved f(D) up, and down."""
        if self.tails is None:
            return np.zeros(np.shape(g)), np.zeros(np.shape(g))
        Ng, Nh = (np.maximum(self.N[..., at], 0.0) / self.n for at in (g, h))
        below, above = self.tails.below, self.tails.above
        return Nh * below + Ng * above, Nh * above + Ng * below

    def _difference_sets(
        self, first: Integers, second: Integers, t: Floats, limit: float, *, shift: Floats | float = 0.0
    ) -> tuple[Floats, Floats]:
        """Return the ends of the set of differences for scores that are moved by `shift`."""
        alpha, beta, v0, q, _ = self._scores(first, second)
        alpha = alpha + shift
        t = np.minimum(t, LARGEST_QUANTILE)
        with np.errstate(invalid="ignore"):  # quantile 0 of groups without two rows, whose beta is 0
            least = alpha**2 - t**2 * (v0 + q[0])
        return quadratic_set(beta**2 - t**2 * q[2], -2.0 * alpha * beta - t**2 * q[1], least, limit)

    def sds(self, first: Integers, second: Integers) -> Floats:
        """Return standard errors of differences: half of the set of one sd, which noise may make wide."""
        low, high = self._difference_sets(first, second, np.ones(len(first)), 4.0)
        return np.minimum((high - low) / 2.0, 2.0)

    def pairs(
        self, first: Integers, second: Integers, level: float, *, jointly: bool
    ) -> tuple[Floats, Floats]:
        """Return quantiles of |t| for pairs of groups, and two-sided p-values of no difference.

        `jointly`: of the largest |t| over all pairs, in simulated releases. A p-value is below ``1 - level``
        where the interval at this quantile excludes 0.
        """
        t, df = self.differences(first, second)
        size = np.where(np.isnan(t), 0.0, np.abs(t))
        if jointly or self.laplace:
            drawn = np.abs(
                self.simulate().differences(first, second, self.means[first] - self.means[second])[0]
            )
            drawn = np.broadcast_to(drawn.max(axis=-1, keepdims=True), drawn.shape) if jointly else drawn
            simulated = np.quantile(drawn, level, axis=0, method="higher")
            ranks = np.array([rank(drawn[:, place], size[place]) for place in range(len(size))])
            if jointly:
                return simulated, ranks
        quantiles = np.asarray(distributions.t.isf((1.0 - level) / 2.0, df))
        pvalues = np.asarray(2.0 * distributions.t.sf(size, df))
        if not self.laplace:
            return quantiles, pvalues
        return np.maximum(quantiles, simulated), np.maximum(pvalues, ranks)

    def first_difference(self, level: float) -> tuple[tuple[float, float], float]:
        """Return the interval of the first mean less the second, and its standard error."""
        (low,), (high,) = self.difference_sets(FIRST, SECOND, self.first_quantile(level))
        return (float(low), float(high)), float(self.sds(FIRST, SECOND)[0])

    def first_quantile(self, level: float) -> Floats:
        """Return the quantile of |t| of the first mean less the second, shape (1,)."""
        quantile = np.asarray(distributions.t.isf((1.0 - level) / 2.0, self.differences(FIRST, SECOND)[1]))
        if self.laplace:
            drawn = np.abs(self.simulate().differences(FIRST, SECOND, self.means[0] - self.means[1])[0])
            quantile = np.maximum(quantile, np.quantile(drawn, level, method="higher"))
        return quantile

    def mean_sets(self, level: float, *, sampling: bool = True) -> tuple[Floats, Floats]:
        """Return the ends of the groups' means, shape (..., k); without `sampling` of this table's means."""
        quantiles = self._mean_quantiles(level) if sampling else self._table_quantiles(level)
        if self.tails is None:
            return self._mean_sets_at(quantiles, 1.0, sampling=sampling)
        tails = self.tails
        limit = max(abs(tails.low), abs(tails.high))
        low = self._mean_sets_at(quantiles, limit, sampling=sampling, shift=-tails.below)[0]
        high = self._mean_sets_at(quantiles, limit, sampling=sampling, shift=tails.above)[1]
        return np.maximum(low, tails.low), np.minimum(high, tails.high)

    def unlimited_sets(self, level: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the ends of the means of clipped values, and how far clipping may move each down and up.

        With `tails` no bounds limit these sets: they are infinite where the noise hides a group.
        """
        if self.tails is None:
            low, high = self.mean_sets(level)
            return low, high, np.zeros(low.shape), np.zeros(low.shape)
        quantiles = self._mean_quantiles(level)
        low, high = self._mean_sets_at(quantiles, math.inf, sampling=True)
        lowest = self._mean_sets_at(quantiles, math.inf, sampling=True, shift=-self.tails.below)[0]
        highest = self._mean_sets_at(quantiles, math.inf, sampling=True, shift=self.tails.above)[1]
        with np.errstate(invalid="ignore"):  # infinite ends, which nothing moves
            return low, high, np.nan_to_num(low - lowest), np.nan_to_num(highest - high)

    def _mean_quantiles(self, level: float) -> Floats:
        """Return the quantiles of |S - m N| over its sd, sampling and noise together."""
        (R, noise), a2 = self.squares(), self.a**2
        R = np.where(self.alone, np.inf, R)
        df = _degrees(R + a2, 2.0 * R**2 / np.maximum(self.N - 1.0, 1.0) + noise)
        t = np.asarray(distributions.t.isf((1.0 - level) / 2.0, df))
        if self.laplace:
            simulated = self.simulate()
            share = a2 * (1.0 - 1.0 / self.counts)
            sd = np.sqrt(np.maximum(simulated.squares()[0] + a2 + share * self.means**2, 1e-12))
            drawn = np.abs(simulated.S - self.means * simulated.N) / sd
            t = np.maximum(t, np.quantile(drawn, level, axis=0, method="higher"))
        return np.asarray(np.minimum(t, LARGEST_QUANTILE))

    def _table_quantiles(self, level: float) -> Floats:
        """Return the quantile of |S - m N| over its sd, where it has the noise of S less m times that of N.

        Of Laplace numbers added up, none has a longer tail than one alone with the same variance.
        """
        t = float(distributions.norm.isf((1.0 - level) / 2.0))
        return np.asarray(max(t, -math.log(1.0 - level) / math.sqrt(2.0)) if self.laplace else t)

    def _mean_sets_at(
        self, t: Floats, limit: float, *, sampling: bool, shift: float = 0.0
    ) -> tuple[Floats, Floats]:
        """Return the ends of the means m at which S + shift - m N is at most `t` of its sds from 0."""
        S = self.S + shift
        a2 = self.a**2
        share = a2 * (1.0 - 1.0 / self.counts)
        R = np.where(self.alone, np.inf, self.squares()[0]) if sampling else 0.0
        return quadratic_set(self.N**2 - t**2 * share, -2.0 * S * self.N, S**2 - t**2 * (R + a2), limit)

    def mean_sds(self, *, sampling: bool = True) -> Floats:
        """Return standard errors of the groups' means: half of the set of one sd, which noise may make wide.

        Without noise they are sd/sqrt N; the quantile of Student's distribution is in the intervals alone.
        """
        low, high = self._mean_sets_at(np.ones(()), 2.0, sampling=sampling)
        return np.minimum((high - low) / 2.0, 1.0)

    def _scores(
        self, g: Integers, h: Integers
    ) -> tuple[Floats, Floats, Floats, tuple[Floats, Floats, Floats], Floats]:
        """Return f(D) = alpha - beta D, its variance v0 + q0 + q1 D + q2 D^2, and degrees of freedom."""
        (R, noise), n, k, a2 = self.squares(), self.n, self.counts, self.a**2
        N = np.maximum(self.N, 0.0)
        R = np.where(self.alone, np.inf, R)
        Ng, Nh, Sg, Sh = (array[..., at] for array in (N, self.S) for at in (g, h))
        spread = 2.0 * R**2 / np.maximum(self.N - 1.0, 1.0) + noise
        pairs = ((Nh, g), (Ng, h))
        with np.errstate(invalid="ignore"):  # 0 times infinity, of two groups without two rows: infinite
            parts = [_infinite(weight**2 * (R[..., at] + a2) / n**2) for weight, at in pairs]
            scatter = sum(_infinite(weight**4 * spread[..., at] / n**4) for weight, at in pairs)
        x0 = -Sh / n
        x1 = -Nh / n
        y0 = Sg / n
        y1 = -Ng / n
        q = (
            a2 * (x0**2 + y0**2 - (x0 + y0) ** 2 / k),
            2.0 * a2 * (x0 * x1 + y0 * y1 - (x0 + y0) * (x1 + y1) / k),
            a2 * (x1**2 + y1**2 - (x1 + y1) ** 2 / k),
        )
        v0 = parts[0] + parts[1]
        return (Nh * Sg - Ng * Sh) / n, Ng * Nh / n, v0, q, _degrees(v0 + q[0], np.asarray(scatter))

    # ---- simulated releases

    def simulate(self, draws: int = SIMULATED, *, equal: bool = False, stream: int = STREAM) -> GroupModel:
        """Return releases of normal values of these counts, means (or one mean, if `equal`) and spreads."""
        rng = np.random.default_rng(stream)
        size = (draws, *self.N.shape)
        N = np.maximum(self.N, 2.0)
        N = N * (self.complete / N.sum(axis=-1, keepdims=True))
        mean = np.broadcast_to(np.clip(self.common, -1.0, 1.0), N.shape) if equal else self.means
        variance = np.clip(self.squares()[0] / N, 0.0, 1.0)
        S = N * mean + np.sqrt(N * variance) * rng.standard_normal(size)
        squares = variance * rng.chisquare(np.maximum(N - 1.0, 1.0), size) + S**2 / N
        draw = rng.laplace if self.laplace else rng.normal
        unit = math.sqrt(2.0) if self.laplace else 1.0
        noises = [draw(0.0, sd / unit, size) for sd in (self.a, self.a, self.b)]
        gaps = None
        if self.gaps is not None:
            gaps = self.n - self.complete + draw(0.0, self.a / unit, (*size[:-1], 1))
        return GroupModel.from_sums(
            N + noises[0], S + noises[1], N - squares + noises[2], self.n, (self.a, self.b), gaps=gaps
        )


def _quadratic_form(A: Floats, p: Floats, d: Floats, s: Floats) -> Floats:
    """Return A' Cov^- A, Cov = H diag(d) H' + s (I - 11'/k), H = I - p 1', of A that add up to 0.

    Cov is diag(d + s) - p d' - d p' + (sum d) p p' - (s/k) 11'. It takes 1 to 0, so that (s/k + t) 11' added
    to it, t > 0, changes nothing. The rest is a diagonal and columns U = (p, d, 1), with the middle
    C of inverse [[0, -1, 0], [-1, -sum d, 0], [0, 0, 1/t]]: A'WA - r'(C^-1 + U'WU)^-1 r, r = U'WA.
    """
    d = np.maximum(d, 1e-9 * d.max(axis=-1, keepdims=True) + 1e-12)
    w = 1.0 / (d + s)
    U = np.stack([p, d, np.ones_like(p)], axis=-1)
    weighted = U * w[..., None]
    middle = np.swapaxes(U, -1, -2) @ weighted
    middle[..., 0, 1] -= 1.0
    middle[..., 1, 0] -= 1.0
    middle[..., 1, 1] -= d.sum(axis=-1)
    middle[..., 2, 2] *= 2.0
    r = np.einsum("...ij,...i->...j", weighted, A)
    with np.errstate(invalid="ignore"):
        explained = (r * np.linalg.solve(middle, r[..., None])[..., 0]).sum(axis=-1)
    return np.asarray((A * A * w).sum(axis=-1) - explained)


def _infinite(variances: Floats) -> Floats:
    """Return variances, infinite where they are not numbers."""
    return np.where(np.isnan(variances), np.inf, variances)


def _degrees(variance: Floats, scatter: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(scatter > 0.0, np.minimum(2.0 * variance**2 / scatter, 1e15), 1e15)


def rank(simulated: Floats, statistic: float) -> float:
    """Return the share of simulated statistics that are as large, the found one among them."""
    return float((1.0 + np.count_nonzero(simulated >= statistic)) / (SIMULATED + 1.0))


def quadratic_set(A: Floats, B: Floats, C: Floats, limit: float) -> tuple[Floats, Floats]:
    """Return the ends of {x: A x^2 + B x + C <= 0} inside [-limit, limit]; all of it where A <= 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = np.sqrt(np.maximum(B**2 - 4.0 * A * C, 0.0))
        low = (-B - root) / (2.0 * A)
        high = (-B + root) / (2.0 * A)
    bounded = (A > 0.0) & ~np.isnan(root)
    return (
        np.where(bounded, np.clip(low, -limit, limit), -limit),
        np.where(bounded, np.clip(high, -limit, limit), limit),
    )


# ---- results


def welch(model: GroupModel) -> tuple[float, float, float]:
    """Return t of the first two groups, its degrees of freedom and the p-value of one side, by |t|."""
    if model.alone.any():
        return math.nan, math.nan, math.nan
    pair = np.array([0]), np.array([1])
    (t,), (df,) = model.differences(*pair)
    tail = float(distributions.t.sf(abs(t), df))
    if model.laplace:
        drawn = model.simulate(equal=True).differences(*pair)[0][:, 0]
        tail = max(tail, rank(np.abs(drawn), abs(float(t))) / 2.0)
    return float(t), float(df), tail


def contrast_set(model: GroupModel, c: Floats, level: float) -> tuple[float, float]:
    """Return the ends of a contrast: errors of means as a root sum of squares, and what clipping may move.

    A contrast with a group that the noise hides has the full range of the bounds where means are those of
    values before they were clipped, as the difference of a pair.
    """
    estimate = float(c @ model.means)
    span = 0.5 * (2.0 if model.tails is None else model.tails.range) * float(np.abs(c).sum())
    low, high, down, up = model.unlimited_sets(level)
    sides = []
    for lower, upper, fall, rise in ((low, high, down, up), (high, low, up, down)):
        end = np.where(c > 0.0, lower, np.where(c < 0.0, upper, model.means))
        moves = np.abs(c) * np.where(c > 0.0, fall, rise)
        cut = float(moves[c > 0.0].max() + moves[c < 0.0].max())
        sides.append(math.sqrt(float(((c * (end - model.means)) ** 2).sum())) + cut)
    return max(estimate - sides[0], -span), min(estimate + sides[1], span)


def contrast_weights(weights: Sequence[float] | Mapping[Label, float], groups: tuple[Any, ...]) -> Floats:
    """Return one weight a group, which add up to 0 (else ArgumentError)."""
    if isinstance(weights, Mapping):
        if unknown := [level for level in weights if level not in groups]:
            raise ArgumentError(
                f"the contrast names levels that are not declared: {', '.join(map(repr, unknown))}; "
                f"the declared levels are {', '.join(map(repr, groups))}"
            )
        weights = [weights.get(level, 0.0) for level in groups]
    c = check_array(weights, "weights", ndim=1)
    if len(c) != len(groups) or not c.any() or abs(float(c.sum())) > 1e-9 * float(np.abs(c).sum()):
        raise ArgumentError(
            f"a contrast must have one weight for each of the {len(groups)} groups, and the "
            "weights must add up to 0"
        )
    return c


def clip_cautions(release: SampleSums, clip: CoreClip | None) -> Cautions:
    """Return cautions of values beyond a clip; without one, of groups whose values seem to be at a bound."""
    if clip is not None:
        return ((ChangedTargetWarning, clip.caution()),) * clip.matters()
    return groups_at_bounds(release)[0]


def groups_at_bounds(release: SampleSums) -> tuple[Cautions, tuple[Note, ...]]:
    """Return cautions, and notes without a warning, of groups whose values seem to be at a bound.

    Counts that the noise hides give none, nor do shares of a level.
    """
    value = release.query.values[0]
    if value in dict(release.ones):
        return (), ()
    model = GroupModel.released(release)
    counts = np.maximum(model.N, 1.0)
    sds = np.where(6.0 * model.a < model.N, math.sqrt(2.0) * model.a / counts, 1.0)
    groups = release.levels[0] if len(release.levels) == 1 else base.cell_names(release)
    return values_at_bounds(value, groups, model.S / counts, sds, release.ends_of(0))


def score_interval(count: Floats, n: int, sd: float | Floats, level: float) -> tuple[Floats, Floats]:
    """Return the ends of the shares that the score test does not reject, inside [0, 1]."""
    z2 = distributions.norm.isf((1.0 - level) / 2.0) ** 2
    p = count / n
    low, high = quadratic_set(
        np.full(np.shape(p), 1.0 + z2 / n), -(2.0 * p + z2 / n), p**2 - z2 * (sd / n) ** 2, 2.0
    )
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def row_share_sets(
    x: Floats, possible: Flags, sd: float, parts: int | None, quantile: float, *, sampling: bool
) -> tuple[Floats, Floats]:
    """Return the ends of the shares p of cells within their rows: x - p N has mean 0 (Fieller), shape (r, c).

    N is the sum of a row's c possible cells. The noise of x - p N has the variance
    ``s^2 [(1 - p)^2 + (c - 1) p^2]``, less ``s^2 (1 - c p)^2/parts`` for counts that are conditioned on their
    public total. Sampling adds N p (1 - p). The set is [0, 1] where the noise hides N.

    Parameters
    ----------
    x : ndarray
        Noisy counts; 0 where a cell cannot occur.
    possible : ndarray of bool
        Cells that can occur.
    sd : float
        Of the noise of one count, before conditioning.
    parts : int, optional
        How many counts add up to the public total; None where they are not conditioned on it.
    quantile : float
        Largest size of x - p N in its standard deviations.
    sampling : bool
        Whether the target is the population, from which the records are a sample.
    """
    N = x.sum(axis=1, keepdims=True)
    c = possible.sum(axis=1, keepdims=True).astype(np.float64)
    q2 = quantile**2
    noise = q2 * sd**2
    shared = 0.0 if parts is None else 1.0 / parts
    drawn = q2 * np.maximum(N, 0.0) if sampling else np.zeros(N.shape)
    square = N**2 + drawn - noise * (c - shared * c**2)
    linear = -2.0 * x * N - drawn + noise * (2.0 - 2.0 * shared * c)
    constant = x**2 - noise * (1.0 - shared)
    # in p - 1/2, of which the limits are -1/2 and 1/2
    low, high = quadratic_set(square, linear + square, constant + 0.5 * linear + 0.25 * square, 0.5)
    return np.where(possible, 0.5 + low, 0.0), np.where(possible, 0.5 + high, 0.0)


def complete_share_intervals(
    x: Floats, cells: Integers | int, complete: float, sd: float, parts: int, level: float
) -> tuple[Floats, Floats]:
    """Return the ends of shares p among complete records: x - p N has mean 0, and noise of both.

    Parameters
    ----------
    x : ndarray
        Noisy sums of this many `cells`.
    cells : int or ndarray of int
    complete : float
        N, the noisy number of complete records.
    sd : float
        Of the noise of one count, before all counts were conditioned on their public total.
    parts : int
        How many counts add up to this total, that of rows without a value among them.
    level : float
    """
    z2 = float(distributions.norm.isf((1.0 - level) / 2.0)) ** 2
    s2 = sd**2
    of_complete = s2 * (1.0 - 1.0 / parts)
    if z2 * of_complete >= complete**2:
        return np.zeros(len(x)), np.ones(len(x))
    low, high = quadratic_set(
        np.full(len(x), complete**2 + z2 * (complete - of_complete)),
        -2.0 * x * complete - z2 * (complete - 2.0 * s2 * cells / parts),
        x**2 - z2 * s2 * cells * (1.0 - cells / parts),
        2.0,
    )
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def standardized_difference(model: GroupModel, level: float) -> tuple[float, tuple[float, float]]:
    """Return Cohen's d of the first two groups and its interval; nan where it has no divisor.

    The divisor is the root of the mean of their variances. With values u in [-1, 1] of mean m and
    variance V the sampling variance of V is at most ``(1 + |m|)^2 V/N``. The noise of a group's mean and
    of its variance have the covariance ``-m (3 + m^2 - V) a^2/N^2``.
    """
    if model.alone[:2].any():
        return math.nan, (-math.inf, math.inf)
    R, noise = (array[:2] for array in model.squares())
    N, m = np.maximum(model.N[:2], 2.0), model.means[:2]
    V = R / N
    shared = -m * (3.0 + m**2 - V) * model.a**2 / N**2
    ratio = StandardizedMean(
        mean=float(m[0] - m[1]),
        sd=float(model.sds(FIRST, SECOND)[0]),
        variance=NoisyVariance(estimate=float(V.mean()), noise=math.sqrt(float((noise / N**2).sum())) / 2.0),
        fourth=float(((1.0 + np.abs(m)) ** 2 / N).max()) / 2.0,
        covariance=float(shared[0] - shared[1]) / 2.0,
    )
    return ratio.estimate, ratio.interval(float(model.first_quantile(level)[0]))


def explained_shares(model: GroupModel) -> tuple[dict[str, float], float]:
    """Return eta squared and omega squared without what noise adds, nan if hidden, and the noise's sd.

    With ``A = S - m N``, whose noise has the variance ``v = a^2 (1 + m^2)``, the square between groups B,
    the sum of ``(A^2 - v)/N``, has noise of variance ``4 (A^2 - v) v + 2 v^2`` over N^2, with 5 v^2 for
    Laplace noise, and that of the noise of N. The total square has the noise of P and of m. The noise
    hides both numbers where either square is below two sds of its noise: eta squared would be 0, or far
    too large, by chance.
    """
    k = len(model.N)
    m = model.common
    N = np.maximum(model.N, 1.0)
    v = model.a**2 * (1.0 + m**2)
    clean = (model.S - m * model.N) ** 2 - v
    n = float(np.max(model.complete))
    total = float((model.N - model.P).sum() - n * m[0] ** 2)
    between = float((clean / N).sum())
    own = 4.0 * np.maximum(clean, 0.0) * v + (5.0 if model.laplace else 2.0) * v**2
    noise = math.sqrt(float(((own + (clean * model.a / N) ** 2) / N**2).sum()))
    total_noise = math.sqrt(k * (model.b**2 + 4.0 * float(m[0]) ** 2 * model.a**2))
    if total <= 0.0 or is_hidden(total, total_noise) or (noise > 0.0 and is_hidden(between, noise)):
        return {"eta squared": math.nan, "omega squared": math.nan}, math.nan
    sd = math.hypot(noise, between / total * total_noise) / total
    between = min(max(between, 0.0), total)
    within = (total - between) / max(n - k, 1.0)
    omega = (between - (k - 1) * within) / (total + within)
    return {"eta squared": between / total, "omega squared": max(omega, 0.0)}, sd
