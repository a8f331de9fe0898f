r"""Survival curves, log-rank tests and hazard ratios from noisy cells of events and censored records.

**Layout.** Public edges 0 < t_1 < ... < t_K cut time into K intervals. The cells of every group g are D_gk,
the events in interval k, and C_gk, the records censored there, k = 1, ..., K + 1; C_{g,K+1} are those still
followed at t_K. Arrays are D of shape (..., G, K) and C of shape (..., G, K + 1); leading axes are draws.
The release (`privinf.mechanisms.statistics.survival`) is, group by group, U D_g and U C_g, one after the
other, of G (2K + 1) numbers, and last the number of complete records where it is counted. U is upper
Toeplitz; its first row `root` is (f_0, ..., f_K). All entries have independent noise of one sd.

**Cells.** `CellEstimate` undoes U, and projects on the public total: the cells add up to n, or to the
number of complete records, which is released with the same noise. Noise of linear functionals j of the cells
is followed in the coordinates of the release: j'U^{-1} has it independent, and the projection takes their
part along the total away (`CellNoise`).

**Curve.** At risk are N_k = sum_{j >= k} (D_j + C_j). The denominator of the hazard is Y_k = N_k - C_k / 2
(actuarial), or N_k where the grid has every possible time (Kaplan-Meier). The hazards have the noise's
second order:

.. math:: q_k = D_k/Y_k + Cov(D_k, Y_k)/Y_k^2 - D_k Var(Y_k)/Y_k^3, \qquad L_k = -\sum_{i \le k} \log(1 - q_i)

An interval is used as long as N_k is above 5 sds of its noise and above 10, for it and all before it. Where
this stops before the last edge, the last such interval is not used either: its own events, noise included,
made the next N_k small, so that its L is 0.6 sds too high on average, and that of the edge before 0.1 or
less. The variance of the noise of L is v_k = j'Sigma j, with j = sum_{i <= k} (dD_i - q_i dY_i)/(Y_i (1 -
q_i)). In variances alone D is made nonnegative, by the mean of the running maximum and minimum of its sums.
Sampling has variance r_k L_k, r_k = sum w_i/((Y_i - w_i) Y_i) / sum w_i/Y_i, with w = D + 1/(2K).

**Intervals** accept L where (L_hat - L)^2 <= z^2 (v + r L). A band has the 0.95 quantile of the largest
|G_k|/sd_k in place of z, G normal with the covariance of noise and sampling, and is then made monotone. The
restricted mean is the area below the curve up to the last edge that is used.

**Quantiles.** Let a = -log(1 - p), and m the first edge at which the true L is at least a: the quantile is
in (t_{m-1}, t_m]. At an edge T_k = (L_hat_k - a)/(v_k + r_k a)^{1/2}. The interval is the hull of the j for
which "m = j" is not rejected. Below, it is rejected if T_j < -z, which contradicts L_j >= a, with level
alpha/2. Above, it is rejected if T_{j-1} > z_1, or if T_i > c for a checkpoint i < j. The checkpoints are
three edges: as the last edge that is used, but with N above 1.4, 2 and 3 times the bound. T_{j-1} has the
level 0.8 alpha/2, and the largest T_i of the checkpoints 0.2 alpha/2, by Bonferroni. If m = j, all L_i with
i < j are below a, since L rises: each T_i exceeds its bound with at most its level, and the levels add up
to alpha/2. Only the test of the true m can miss it, so the interval has level 1 - alpha. T_{j-1} alone
gives short intervals where every edge is known well, but no end where the last edge is not. There a
checkpoint gives an end if the curve has clearly passed 1 - p before.

**Log-rank.** E_gk = N_gk - (D_gk + C_gk)/2 (N_gk with a full grid), p_gk = th_g E_gk/R_k, R = sum th E, and
U_g = sum_k w_k (D_gk - D_k p_gk). No group is divided by. V = sum w^2 D_k (diag p - p p'), and the noise is
that of dU_g = sum w [dD_g - p_g dD - (D/R)(th_g dE_g - p_g sum th dE)]; the mean of its second order is
taken off. T = U'(V + V_noise)^{-1} U is chi-squared with G - 1 degrees of freedom. The hazard ratio of two
groups is every e^b with |U(b)| <= z (V(b) + V_noise(b))^{1/2}, th = (1, e^b).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy  # whose parts are loaded when they are used

from privinf.typing import Flags, Floats, Integers
from privinf.validation import SAME_TIME

LEAST_SDS = 5.0  # sds of noise that a number at risk must exceed
LEAST_AT_RISK = 10.0
BAND_DRAWS = 2000
JITTER = 1e-9  # added to variances of 1, so that rounding leaves correlations positive definite
LARGEST_HAZARD = 1.0 - 1e-9  # of one interval that is used
WIDEST_LOG_RATIO = 10.0  # log hazard ratios are searched up to here
RATIO_POINTS = 401
BISECTIONS = 50
# Checkpoints of a quantile's upper end, in multiples of the least number at risk; their share of its level.
CHECKPOINTS = (1.4, 2.0, 3.0)
CHECKPOINT_SHARE = 0.2

# ---- noise of the cells


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CellNoise:
    """Noise of projected cells, in the coordinates of their release.

    Attributes
    ----------
    scale : float
        Sd of the noise of every released number.
    root : ndarray, shape (K + 1,)
        First row of U.
    groups : int
    counted : float
        1 where the number of complete records is released, 0 where all are; of the pooled groups 1 / G; of a
        pair of groups more by the squared length of the total of the others.
    """

    scale: float
    root: Floats
    groups: int
    counted: float = 0.0

    @property
    def intervals(self) -> int:
        """Number of intervals, K."""
        return len(self.root) - 1

    @property
    def width(self) -> int:
        """Number of cells of one group."""
        return 2 * self.intervals + 1

    def whitened(self, of_D: Floats, of_C: Floats) -> Floats:
        """Return j'U^{-1} of functionals of the cells, shapes (..., G, K) and (..., G, K + 1).

        The last axis is that of the released numbers without the count.
        """
        parts = [scipy.signal.lfilter([1.0], self.root, part, axis=-1) for part in (of_D, of_C)]
        joined = np.concatenate(parts, axis=-1)
        return joined.reshape(*joined.shape[:-2], self.groups * self.width)

    @property
    def total(self) -> Floats:
        """The total of the cells in the coordinates of the release, shape (G (2K + 1),)."""
        ones = np.ones((self.groups, self.intervals)), np.ones((self.groups, self.intervals + 1))
        return self.whitened(*ones)

    @property
    def total_size(self) -> float:
        """Squared length of the functional that is known: the total, less the count where it is released."""
        total = self.total
        return float(total @ total) + self.counted

    def covariance(self, whitened: Floats) -> Floats:
        """Return the covariance of the noise of functionals (..., m, G (2K + 1)); shape (..., m, m)."""
        along = whitened @ self.total
        products = whitened @ np.swapaxes(whitened, -1, -2)
        projected = products - along[..., :, None] * along[..., None, :] / self.total_size
        return np.asarray(self.scale**2 * projected)

    def sizes(self, *, full_grid: bool) -> GroupNoise:
        """Return covariances of events and numbers at risk of one group."""
        unit = _unit_noise(self.root.tobytes(), self.groups, self.counted, full_grid)
        return unit.times(self.scale**2)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GroupNoise:
    """Covariances of D_k, Y_k and N_k of one group, and of D_k and E_k within and between groups.

    Attributes
    ----------
    DD, DY, YY : ndarray, shape (K, K)
        Of events and of denominators.
    NN : ndarray, shape (K,)
        Variances of the numbers at risk.
    pooled_NN : ndarray, shape (K,)
        Variances of the numbers at risk of all groups together.
    DE, EE : ndarray, shape (K,)
        Of events and exposures of one interval and one group.
    other_DE, other_EE : ndarray, shape (K,)
        The same of two groups, which the projection joins.
    """

    DD: Floats
    DY: Floats
    YY: Floats
    NN: Floats
    pooled_NN: Floats
    DE: Floats
    EE: Floats
    other_DE: Floats
    other_EE: Floats

    def times(self, factor: float) -> GroupNoise:
        """Return covariances times a factor."""
        return GroupNoise(**{name: factor * getattr(self, name) for name in self.__slots__})


@lru_cache(maxsize=8)
def _unit_noise(root: bytes, groups: int, counted: float, full_grid: bool) -> GroupNoise:
    """Return the covariances where the released numbers have noise of sd 1."""
    f = np.frombuffer(root)
    K = len(f) - 1
    group = CellNoise(scale=1.0, root=f, groups=1)
    size = groups * float(group.total @ group.total) + counted
    later = np.triu(np.ones((K, K + 1)))
    here = 0.5 * np.eye(K, K + 1)
    functionals = {
        "D": (np.eye(K), np.zeros((K, K + 1))),
        "N": (later[:, :K], later),
        "Y": (later[:, :K], later if full_grid else later - here),
        "E": (later[:, :K], later) if full_grid else (later[:, :K] - here[:, :K], later - here),
    }
    rows = {name: group.whitened(D[:, None], C[:, None]) for name, (D, C) in functionals.items()}
    along = {name: row @ group.total for name, row in rows.items()}

    def joint(first: str, second: str) -> Floats:
        own = rows[first] @ rows[second].T
        return np.asarray(own - np.outer(along[first], along[second]) / size)

    def within(first: str, second: str) -> Floats:
        own = np.einsum("kj,kj->k", rows[first], rows[second])
        return np.asarray(own + between(first, second))

    def between(first: str, second: str) -> Floats:
        return np.asarray(-along[first] * along[second] / size)

    return GroupNoise(
        DD=joint("D", "D"),
        DY=joint("D", "Y"),
        YY=joint("Y", "Y"),
        NN=within("N", "N"),
        pooled_NN=groups * within("N", "N") + groups * (groups - 1) * between("N", "N"),
        DE=within("D", "E"),
        EE=within("E", "E"),
        other_DE=between("D", "E"),
        other_EE=between("E", "E"),
    )


# ---- cells


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CellEstimate:
    """Estimated cells, and their noise.

    Attributes
    ----------
    D : ndarray, shape (..., G, K)
    C : ndarray, shape (..., G, K + 1)
    noise : CellNoise
    full_grid : bool
        Whether the grid has every possible time, so that Y_k = N_k.
    """

    D: Floats
    C: Floats
    noise: CellNoise
    full_grid: bool = False

    @classmethod
    def from_release(
        cls, values: Floats, noise: CellNoise, n: int, *, full_grid: bool = False
    ) -> CellEstimate:
        """Return the cells of a release, shape (..., G (2K + 1)) with the count last if it is released.

        They add up to n, or to the number of complete records.
        """
        size = noise.groups * noise.width
        sums = values[..., :size]
        total = noise.total
        known = values[..., size] if noise.counted else float(n)
        short = (known - sums @ total) / noise.total_size
        sums = sums + np.asarray(short)[..., None] * total
        parts = sums.reshape(*sums.shape[:-1], noise.groups, noise.width)
        D, C = (_undone(part, noise.root) for part in np.split(parts, [noise.intervals], axis=-1))
        return cls(D=D, C=C, noise=noise, full_grid=full_grid)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return self.noise.groups

    @property
    def at_risk(self) -> Floats:
        """N, numbers at risk at the start of each interval, shape (..., G, K)."""
        both = self.C + np.concatenate([self.D, np.zeros_like(self.C[..., :1])], axis=-1)
        return np.asarray(np.cumsum(both[..., ::-1], axis=-1)[..., ::-1][..., :-1])

    @property
    def exposed(self) -> Floats:
        """E, numbers exposed in each interval, shape (..., G, K): at risk, less half of those who leave."""
        N = self.at_risk
        return N if self.full_grid else N - 0.5 * (self.D + self.C[..., :-1])

    @property
    def total(self) -> Floats:
        """Number of records in all cells, shape (...)."""
        return np.asarray(self.D.sum(axis=(-1, -2)) + self.C.sum(axis=(-1, -2)))

    def pooled(self) -> CellEstimate:
        """Return the cells of all groups together; the noise is that of their sum."""
        if self.groups == 1:
            return self
        noise = CellNoise(
            scale=self.noise.scale * math.sqrt(self.groups),
            root=self.noise.root,
            groups=1,
            counted=self.noise.counted / self.groups,
        )
        return CellEstimate(
            D=self.D.sum(axis=-2, keepdims=True),
            C=self.C.sum(axis=-2, keepdims=True),
            noise=noise,
            full_grid=self.full_grid,
        )

    def pair(self, first: int, second: int) -> CellEstimate:
        """Return the cells of two groups; the total that is known stays that of all groups."""
        own = CellNoise(scale=self.noise.scale, root=self.noise.root, groups=2)
        noise = replace(own, counted=self.noise.total_size - own.total_size)
        places = [first, second]
        return CellEstimate(
            D=self.D[..., places, :], C=self.C[..., places, :], noise=noise, full_grid=self.full_grid
        )

    def curve(self, group: int = 0, *, summed: bool = False) -> Curve:
        """Return the curve of one group; `summed` hazards are those of Nelson and Aalen, sums of q."""
        return Curve.from_cells(
            self.D[..., group, :],
            self.C[..., group, :],
            self.at_risk[..., group, :],
            self.noise.sizes(full_grid=self.full_grid),
            full_grid=self.full_grid,
            summed=summed,
        )


def _undone(sums: Floats, root: Floats) -> Floats:
    """Return U^{-1} of the last axis."""
    return np.asarray(scipy.signal.lfilter([1.0], root, sums[..., ::-1], axis=-1)[..., ::-1])


def nonnegative(D: Floats) -> Floats:
    """Return events without negative numbers: the mean of running maximum and minimum of their sums."""
    sums = np.concatenate([np.zeros_like(D[..., :1]), np.cumsum(D, axis=-1)], axis=-1)
    highest = np.maximum.accumulate(sums, axis=-1)
    lowest = np.minimum.accumulate(sums[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(np.diff(0.5 * (highest + lowest), axis=-1))


# ---- curves


def _without_stop(good: Flags) -> Flags:
    """Return the intervals up to the one before the last good one; all of them if all are good."""
    following = np.concatenate([good[..., 1:], np.ones_like(good[..., :1])], axis=-1)
    both: Flags = np.logical_and(good, following)
    return both


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Curve:
    """Cumulated hazard of one group at the edges, with what its variance consists of.

    Attributes
    ----------
    hazard : ndarray, shape (..., K)
        L. Intervals that are not used have the value at the last interval that is used.
    noise : ndarray, shape (..., K, K)
        Covariance of the noise of L.
    ratio : ndarray, shape (..., K)
        r: sampling has variance r L.
    sampling : ndarray, shape (..., K)
        Variance of sampling of L, estimated; covariances are those of the earlier edge.
    used : ndarray of bool, shape (..., K)
        Whether an interval and all before it are used.
    margin : ndarray, shape (..., K)
        N in multiples of the least number at risk of an interval that is used.
    of_D, of_Y : ndarray, shape (..., K)
        Derivatives of the hazard of an interval in D_k and Y_k.
    """

    hazard: Floats
    noise: Floats
    ratio: Floats
    sampling: Floats
    used: Flags
    margin: Floats
    of_D: Floats
    of_Y: Floats

    @classmethod
    def from_cells(
        cls,
        D: Floats,
        C: Floats,
        N: Floats,
        noise: GroupNoise,
        *,
        full_grid: bool,
        summed: bool = False,
    ) -> Curve:
        """Return the curve of cells of one group, shapes (..., K), (..., K + 1) and (..., K).

        `summed` hazards are sums of q, in place of those of the product of 1 - q.
        """
        Y = N if full_grid else N - 0.5 * C[..., :-1]
        w = nonnegative(D) + 0.5 / D.shape[-1]
        enough = np.maximum(LEAST_SDS * np.sqrt(np.maximum(noise.NN, 0.0)), LEAST_AT_RISK)
        with np.errstate(all="ignore"):
            q = D / Y + np.diag(noise.DY) / Y**2 - D * np.diag(noise.YY) / Y**3
            good = (enough < N) & (w < Y) & (q < LARGEST_HAZARD)
        used = _without_stop(np.logical_and.accumulate(good, axis=-1))
        Y = np.where(used, Y, 1.0)
        w = np.where(used, w, 0.0)
        q = np.where(used, q, 0.0)
        smooth = np.minimum((w - np.where(used, 0.5 / D.shape[-1], 0.0)) / Y, LARGEST_HAZARD)
        survival = np.ones_like(smooth) if summed else 1.0 - smooth
        of_D = np.where(used, 1.0 / (Y * survival), 0.0)
        of_Y = -smooth * of_D
        moved = (
            of_D[..., :, None] * of_D[..., None, :] * noise.DD
            + of_D[..., :, None] * of_Y[..., None, :] * noise.DY
            + of_Y[..., :, None] * of_D[..., None, :] * noise.DY.T
            + of_Y[..., :, None] * of_Y[..., None, :] * noise.YY
        )
        hazards = np.cumsum(w / Y, axis=-1)
        sampling = np.cumsum(w / ((Y if summed else Y - w) * Y), axis=-1)
        return cls(
            hazard=np.cumsum(q if summed else -np.log1p(-q), axis=-1),
            noise=np.cumsum(np.cumsum(moved, axis=-1), axis=-2),
            ratio=sampling / np.maximum(hazards, 1e-300),
            sampling=sampling,
            used=used,
            margin=N / enough,
            of_D=of_D,
            of_Y=of_Y,
        )

    @property
    def last(self) -> Integers:
        """Number of intervals that are used, shape (...)."""
        return np.asarray(self.used.sum(axis=-1))

    @property
    def noise_variance(self) -> Floats:
        """v, the variance of the noise of L, shape (..., K)."""
        return np.maximum(np.diagonal(self.noise, axis1=-2, axis2=-1), 0.0)

    @property
    def variance(self) -> Floats:
        """Variance of L, noise and sampling, shape (..., K)."""
        return self.noise_variance + self.sampling

    def intervals(self, z: float | Floats) -> tuple[Floats, Floats]:
        """Return the ends of score intervals of L, shape (..., K); z is a number, or one a draw.

        From the first interval that is not used on, the lower end is that of the last edge before, and the
        upper one infinite.
        """
        low, high = score_ends(self.hazard, self.noise_variance, self.ratio, z)
        last = self.last[..., None]
        at_last = np.take_along_axis(low, np.maximum(last - 1, 0), axis=-1)
        low = np.where(self.used, low, np.where(last > 0, at_last, 0.0))
        return low, np.where(self.used, high, np.inf)

    def critical(self, level: float) -> Floats:
        """Return the quantile of the largest |G_k|/sd_k over the used edges, shape (...); 0 for none."""
        shape = self.used.shape
        K = shape[-1]
        draws = _normal_draws(K)
        earlier = np.minimum(np.arange(K)[:, None], np.arange(K)[None, :])
        covariances = self.noise + self.sampling[..., earlier]
        quantiles = np.empty(shape[:-1])
        for at in np.ndindex(shape[:-1]):
            keep = np.flatnonzero(self.used[at])
            if not len(keep):
                quantiles[at] = 0.0
                continue
            covariance = covariances[at][np.ix_(keep, keep)]
            sd = np.sqrt(np.diag(covariance))
            root = np.linalg.cholesky(covariance / np.outer(sd, sd) + JITTER * np.eye(len(keep)))
            largest = np.abs(draws[:, : len(keep)] @ root.T).max(axis=1)
            quantiles[at] = np.quantile(largest, level)
        return quantiles

    def band(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends of a simultaneous band of L, monotone, shape (..., K)."""
        low, high = self.intervals(self.critical(level))
        return (
            np.maximum.accumulate(low, axis=-1),
            np.minimum.accumulate(high[..., ::-1], axis=-1)[..., ::-1],
        )

    def quantile_edges(self, p: float, z: float) -> tuple[Integers, Integers]:
        """Return the edges that enclose the quantile of order p, by tests of edges, shape (...).

        0 is time 0, and k is t_k. The upper place is K + 1, for no end, where the last edge that is used
        is not rejected from above, and no checkpoint before it is clearly beyond; see the proof above.
        """
        target = -math.log1p(-p)
        K = self.used.shape[-1]
        sd = np.sqrt(self.noise_variance + self.ratio * target)
        last = self.last
        places = np.arange(1, K + 1)
        below = self.used & (self.hazard < target - z * sd)
        first = np.where(self.used & ~below, places, last[..., None] + 1).min(axis=-1)
        tail = float(scipy.special.ndtr(-z))
        clear = -scipy.special.ndtri(CHECKPOINT_SHARE * tail / len(CHECKPOINTS))
        passed = self._checkpoints & (self.hazard > target + clear * sd)
        end = np.where(passed, places, K + 1).min(axis=-1)  # no later edge can be the first beyond
        above = self.hazard > target - scipy.special.ndtri((1.0 - CHECKPOINT_SHARE) * tail) * sd
        open_edges = self.used & ~above & (places < end[..., None])
        not_above = np.where(open_edges, places, 0).max(axis=-1)
        no_end = (end > K) & ((not_above == last) | (last == 0))
        return first - 1, np.where(no_end, K + 1, not_above + 1)

    @property
    def _checkpoints(self) -> Flags:
        """The last edges at which the number at risk is far above what an interval needs, shape (..., K)."""
        marks = np.zeros_like(self.used)
        for multiple in CHECKPOINTS:
            many = _without_stop(np.logical_and.accumulate(self.margin > multiple, axis=-1)) & self.used
            marks |= many & ~np.concatenate([many[..., 1:], np.zeros_like(many[..., :1])], axis=-1)
        return marks

    def at(self, edges: Floats, times: Floats, *, steps: bool) -> CurvePoints:
        """Return the curve at times up to the last edge.

        Between two edges the hazard is taken as constant: L(t) = (1 - w) L_{k-1} + w L_k. With `steps` the
        curve changes at edges alone.

        Parameters
        ----------
        edges : ndarray, shape (K,)
        times : ndarray, shape (m,)
        steps : bool
        """
        weights = time_weights(edges, times, steps=steps)
        place, w = weights.edge, weights.share
        sampling = np.concatenate([np.zeros_like(self.sampling[..., :1]), self.sampling], axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            hazards = np.where(self.ratio > 0.0, self.sampling / self.ratio, 0.0)
        variance = sampling[..., place] + w**2 * (sampling[..., place + 1] - sampling[..., place])
        used = np.concatenate([np.ones_like(self.used[..., :1]), self.used], axis=-1)
        A = weights.matrix
        return CurvePoints(
            hazard=self.hazard @ A.T,
            noise=A @ self.noise @ A.T,
            ratio=variance / np.maximum(hazards @ A.T, 1e-300),
            sampling=variance,
            used=used[..., np.where(w > 0.0, place + 1, place)],
        )

    def restricted_mean(self, edges: Floats, until: float, *, steps: bool) -> tuple[Floats, Floats]:
        """Return the area below the curve up to a time, and its sd: by trapezoids, or by steps.

        Parameters
        ----------
        edges : ndarray, shape (K,)
        until : float
            A time up to the last edge; intervals that are not used count as the last one that is.
        steps : bool
            Whether the curve falls at edges alone.
        """
        times = np.append(edges[edges < until * (1.0 - SAME_TIME)], until)
        points = self.at(edges, times, steps=steps)
        widths = np.diff(np.concatenate([[0.0], times]))
        S = np.exp(-points.hazard)
        before = np.concatenate([np.ones_like(S[..., :1]), S[..., :-1]], axis=-1)
        area = (widths * (before if steps else 0.5 * (before + S))).sum(axis=-1)
        following = np.append(widths[1:], 0.0)
        weights = following if steps else 0.5 * (widths + following)
        slope = -weights * S
        earlier = np.minimum(np.arange(len(times))[:, None], np.arange(len(times))[None, :])
        covariance = points.noise + points.sampling[..., earlier]
        variance = np.einsum("...i,...ij,...j->...", slope, covariance, slope)
        return area, np.sqrt(np.maximum(variance, 0.0))


def score_ends(hazard: Floats, noise: Floats, ratio: Floats, z: float | Floats) -> tuple[Floats, Floats]:
    """Return the ends of score intervals of L, of noise variance v and sampling variance r L."""
    z2 = np.square(np.asarray(z, dtype=np.float64))[..., None]
    middle = hazard + 0.5 * z2 * ratio
    half = np.sqrt(np.maximum(z2 * (noise + ratio * hazard + 0.25 * z2 * ratio**2), 0.0))
    return np.maximum(middle - half, 0.0), np.maximum(middle + half, 0.0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CurvePoints:
    """Cumulated hazard of one group at any times, with what its variance consists of; as `Curve`.

    Attributes
    ----------
    hazard, ratio, sampling : ndarray, shape (..., m)
    noise : ndarray, shape (..., m, m)
    used : ndarray of bool, shape (..., m)
        Whether the interval of a time and all before it are used.
    """

    hazard: Floats
    noise: Floats
    ratio: Floats
    sampling: Floats
    used: Flags

    @property
    def noise_variance(self) -> Floats:
        """v, the variance of the noise of L, shape (..., m)."""
        return np.maximum(np.diagonal(self.noise, axis1=-2, axis2=-1), 0.0)

    @property
    def variance(self) -> Floats:
        """Variance of L, noise and sampling, shape (..., m)."""
        return self.noise_variance + self.sampling

    def intervals(self, z: float, least: Floats) -> tuple[Floats, Floats]:
        """Return the ends of score intervals of L; where a time is not used, `least` and infinity.

        `least`, shape (...), is the lower end at the last edge that is used.
        """
        low, high = score_ends(self.hazard, self.noise_variance, self.ratio, z)
        return np.where(self.used, low, least[..., None]), np.where(self.used, high, np.inf)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimeWeights:
    """Weights of the edges for the curve at other times.

    Attributes
    ----------
    edge : ndarray of int, shape (m,)
        Number of edges before a time.
    share : ndarray, shape (m,)
        w, the part of the interval that has passed.
    matrix : ndarray, shape (m, K)
        L at the times is ``matrix @ L``.
    """

    edge: Integers
    share: Floats
    matrix: Floats


def time_weights(edges: Floats, times: Floats, *, steps: bool) -> TimeWeights:
    """Return the weights of the edges for times up to the last edge."""
    edge = np.minimum(np.searchsorted(edges * (1.0 + SAME_TIME), times, side="left"), len(edges) - 1)
    starts = np.concatenate([[0.0], edges])[edge]
    share = np.clip((times - starts) / (edges[edge] - starts), 0.0, 1.0)
    share = np.where(share > 1.0 - 2.0 * SAME_TIME, 1.0, 0.0 if steps else share)
    matrix = np.zeros((len(times), len(edges) + 1))
    rows = np.arange(len(times))
    matrix[rows, edge] = 1.0 - share
    matrix[rows, edge + 1] = share
    return TimeWeights(edge=edge, share=share, matrix=matrix[:, 1:])


@lru_cache(maxsize=4)
def _normal_draws(size: int) -> Floats:
    """Return public normal numbers for quantiles of bands."""
    return np.random.default_rng(0).standard_normal((BAND_DRAWS, size))


# ---- differences of curves


def survival_difference(
    cells: CellEstimate, groups: tuple[int, int], edges: Floats, time: float, z: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return S of the second group less S of the first at a time, its sd, and the ends of its interval.

    The interval joins the score intervals (l, u) of the two survival rates (MOVER): its ends are below and
    above the difference by the root of x^2 + y^2 - 2 c x y, with x = S_2 - l_2 and y = u_1 - S_1 below, and
    x = u_2 - S_2 and y = S_1 - l_1 above. The correlation c is that of noise, which the total that is known
    joins. nan and -1 to 1 where a curve is not estimated.
    """
    curves = [cells.curve(group) for group in groups]
    row = time_weights(edges, np.array([time]), steps=cells.full_grid).matrix
    points = [curve.at(edges, np.array([time]), steps=cells.full_grid) for curve in curves]
    used = points[0].used[..., 0] & points[1].used[..., 0]
    S = [np.exp(-point.hazard[..., 0]) for point in points]
    variances = [point.variance[..., 0] for point in points]
    shared = _noise_covariance(cells, groups, curves, row[0])
    ends = [
        [np.exp(-end[..., 0]) for end in score_ends(point.hazard, point.noise_variance, point.ratio, z)]
        for point in points
    ]
    sds = [np.sqrt(np.maximum(variance, 0.0)) for variance in variances]
    c = np.clip(shared / np.maximum(sds[0] * sds[1], 1e-300), -1.0, 1.0)
    difference = S[1] - S[0]
    variance = (S[0] * sds[0]) ** 2 + (S[1] * sds[1]) ** 2 - 2.0 * S[0] * S[1] * shared

    def distance(x: Floats, y: Floats) -> Floats:
        return np.asarray(np.sqrt(np.maximum(x**2 + y**2 - 2.0 * c * x * y, 0.0)))

    low = difference - distance(S[1] - ends[1][1], ends[0][0] - S[0])
    high = difference + distance(ends[1][0] - S[1], S[0] - ends[0][1])
    sd = np.sqrt(np.maximum(variance, 0.0))
    return (
        np.where(used, difference, np.nan),
        np.where(used, sd, np.nan),
        np.where(used, np.maximum(low, -1.0), -1.0),
        np.where(used, np.minimum(high, 1.0), 1.0),
    )


def _noise_covariance(
    cells: CellEstimate, groups: tuple[int, int], curves: list[Curve], weights: Floats
) -> Floats:
    """Return the covariance of the noise of L of two groups, shape (...); L is ``weights @ L`` of edges."""
    passed = np.cumsum(weights[::-1])[::-1]  # share of an interval before the time
    shape = curves[0].hazard.shape[:-1]
    of_D = np.zeros((*shape, 2, cells.groups, cells.noise.intervals))
    of_C = np.zeros((*shape, 2, cells.groups, cells.noise.intervals + 1))
    for place, (group, curve) in enumerate(zip(groups, curves, strict=True)):
        of_Y = passed * curve.of_Y
        later = np.cumsum(of_Y, axis=-1)
        here = 0.0 if cells.full_grid else 0.5 * of_Y
        of_D[..., place, group, :] = passed * curve.of_D + later
        of_C[..., place, group, :-1] = later - here
        of_C[..., place, group, -1] = later[..., -1]
    return np.asarray(cells.noise.covariance(cells.noise.whitened(of_D, of_C))[..., 0, 1])


# ---- comparisons of groups


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogRankScore:
    """LogRankScore of a comparison of groups, U of all groups but the first, and its variances.

    Attributes
    ----------
    U : ndarray, shape (..., G - 1)
    sampling, noise : ndarray, shape (..., G - 1, G - 1)
    """

    U: Floats
    sampling: Floats
    noise: Floats

    @property
    def statistic(self) -> Floats:
        """T = U'(V + V_noise)^{-1} U, shape (...); nan where the variance is not positive definite."""
        variance = self.sampling + self.noise
        singular = ~(np.linalg.eigvalsh(variance)[..., 0] > 0.0)
        safe = np.where(singular[..., None, None], np.eye(variance.shape[-1]), variance)
        solved = np.linalg.solve(safe, self.U[..., None])[..., 0]
        return np.where(singular, np.nan, np.einsum("...g,...g->...", self.U, solved))


def log_rank(
    cells: CellEstimate,
    weights: Floats | None = None,
    ratio: Floats | float = 0.0,
    *,
    corrected: bool = True,
) -> LogRankScore:
    """Return the score of a log-rank test of groups.

    Parameters
    ----------
    cells : CellEstimate
    weights : ndarray, shape (..., K), optional
        Of intervals; default: 1.
    ratio : float or ndarray
        Log hazard ratio b of the second group that is tested; with more than two groups 0.
    corrected : bool
        Whether the mean of the noise's second order is taken off, which expected cells do not have.
    """
    D, E = cells.D, cells.exposed
    groups = cells.groups
    noise = cells.noise.sizes(full_grid=cells.full_grid)
    theta = np.ones((*np.shape(ratio), groups, 1))
    theta[..., 1, 0] = np.exp(ratio)
    events = D.sum(axis=-2)
    smooth = nonnegative(events)
    N = cells.at_risk.sum(axis=-2)
    enough = LEAST_SDS * np.sqrt(np.maximum(noise.pooled_NN, 0.0))
    used = np.logical_and.accumulate((enough < N) & (N > 1.0), axis=-1)
    w = np.where(used, 1.0 if weights is None else weights, 0.0)
    weighted = theta * E
    R = np.where(used, weighted.sum(axis=-2), 1.0)
    R = np.where(R > 0.0, R, 1.0)
    p = weighted / R[..., None, :]
    # mean of the second order of D th_g E_g / R
    of_DE = np.broadcast_to(
        theta * (noise.DE + (groups - 1) * noise.other_DE), np.broadcast_shapes(theta.shape, noise.DE.shape)
    )
    of_EE = theta * (theta * (noise.EE - noise.other_EE) + theta.sum(axis=-2, keepdims=True) * noise.other_EE)
    second = (
        of_DE / R[..., None, :]
        - events[..., None, :] * of_EE / R[..., None, :] ** 2
        - weighted * of_DE.sum(axis=-2, keepdims=True) / R[..., None, :] ** 2
        + events[..., None, :] * weighted * of_EE.sum(axis=-2, keepdims=True) / R[..., None, :] ** 3
    )
    moved = second if corrected else 0.0
    U = (w[..., None, :] * (D - events[..., None, :] * p + moved)).sum(axis=-1)
    share = np.clip(p, 0.0, 1.0)
    variance = w**2 * smooth
    if cells.full_grid:
        variance = variance * np.clip((R - smooth) / np.maximum(R - 1.0, 1e-12), 0.0, 1.0)
    outer = -np.einsum("...k,...gk,...hk->...gh", variance, share, share)
    index = np.arange(groups)
    outer[..., index, index] += np.einsum("...k,...gk->...g", variance, share)
    apart = np.eye(groups)[:, :, None] - p[..., :, None, :]  # (..., g', g, k)
    of_D = w[..., None, None, :] * apart
    of_E = -(w * smooth / R)[..., None, None, :] * theta[..., None, :, :] * apart
    later = np.cumsum(of_E, axis=-1)
    here = 0.0 if cells.full_grid else 0.5 * of_E
    of_C = np.concatenate([later - here, later[..., -1:]], axis=-1)
    whitened = cells.noise.whitened((of_D + later - here)[..., 1:, :, :], of_C[..., 1:, :, :])
    return LogRankScore(U=U[..., 1:], sampling=outer[..., 1:, 1:], noise=cells.noise.covariance(whitened))


def gehan_weights(cells: CellEstimate) -> Floats:
    """Return Gehan's weights: the share of the records that is exposed, shape (..., K)."""
    total = np.maximum(cells.total, 1.0)[..., None]
    return np.asarray(np.maximum(cells.exposed.sum(axis=-2), 0.0) / total)


def survival_weights(cells: CellEstimate, rho: float) -> Floats:
    """Return weights of Fleming and Harrington: S(t_{k-1})^rho of all groups together, shape (..., K)."""
    S = np.exp(-np.maximum.accumulate(np.maximum(cells.pooled().curve().hazard, 0.0), axis=-1))
    before = np.concatenate([np.ones_like(S[..., :1]), S[..., :-1]], axis=-1)
    return np.asarray(before**rho)


def log_hazard_ratio(
    cells: CellEstimate, z: float, weights: Floats | None = None
) -> tuple[float, float, float]:
    """Return the log hazard ratio of the second of two groups, and the ends of its interval.

    The interval has every b that the score does not reject; an end is infinite where nothing is rejected up
    to 10. The estimate is the root of the score; nan where it has none.
    """
    b = np.linspace(-WIDEST_LOG_RATIO, WIDEST_LOG_RATIO, RATIO_POINTS)

    def parts(at: Floats) -> tuple[Floats, Floats]:
        score = log_rank(cells, weights, at)
        return score.U[..., 0], np.sqrt(np.maximum((score.sampling + score.noise)[..., 0, 0], 0.0))

    U, sd = parts(b)
    accepted = np.flatnonzero(np.abs(U) <= z * sd)
    crossing = np.flatnonzero((U[:-1] > 0.0) & (U[1:] <= 0.0))

    def root(low: float, high: float, rejected_below: bool) -> float:
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            value, error = (part[0] for part in parts(np.array([middle])))
            if (abs(value) > z * error) == rejected_below:
                low = middle
            else:
                high = middle
        return 0.5 * (low + high)

    estimate = math.nan
    if len(crossing):
        low, high = float(b[crossing[0]]), float(b[crossing[0] + 1])
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if parts(np.array([middle]))[0][0] > 0.0 else (low, middle)
        estimate = 0.5 * (low + high)
    if not len(accepted):
        return estimate, estimate, estimate
    first, last = int(accepted[0]), int(accepted[-1])
    lower = -math.inf if first == 0 else root(float(b[first - 1]), float(b[first]), True)
    upper = math.inf if last == len(b) - 1 else root(float(b[last]), float(b[last + 1]), False)
    return estimate, lower, upper
