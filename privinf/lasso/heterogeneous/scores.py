r"""Debiased coordinates of every site: scores clipped as products, one target at a time.

An interval uses its own target's score, slope and variance, and one number that is an average over targets:

- the variance is released for every site and target, and used as it is, within its public limits: next to a
  score it costs nothing;
- the slope in units of 1 / sqrt(w_jj) is nearly the same for all targets and sites, B being in units of the
  site's residuals. Its average over targets moves little with a record, and is cheap. Sites and targets
  depart from its mean over sites as far as their own releases are above the noise: a target whose
  errors' size depends on it has a slope of its own.

Where incomplete rows are dropped, a site's numbers are means over its estimated number of complete rows.
Slopes that are averaged over sites do not have the error of that number which the site's score has, so
the sds of slopes include it (`privinf.lasso.sums`).

**Covariances between sites.** Sites have no row in common, and each site's score, its variance and their
noise are the site's own: the sampling and score terms of two sites are independent. Slopes and the Gram
matrix are shared, and the errors that they cause are correlated between sites. With the step
s_i = score_i / kappa_i of target j at site i:

- the noise e of the slopes moves b_i by ``-s_i e_i / kappa_i``. The average slope and a target's departure
  from it are means over all sites, so that ``Cov(b_i, b_k) = s_i s_k Cov(e_i, e_k) / (kappa_i kappa_k)``,
  where Cov(e_i, e_k) is the variance of the average, less for a site whose own average stands out of the
  noise, plus the variance of the departure (`_slopes`);
- with pooled nodewise regressions all sites have the same noise Z of the Gram matrix and the same error d_u
  of the shared coefficients: ``Cov(b_i, b_k) = E (w_i' Z d_u) (w_k' Z d_u)``, where w_i is the regression
  with the columns of site i. The errors of the sites' own coefficients are independent.

**Means.** A fit has no constant. The released means of columns have noise d, and residuals have a mean r_i at
site i, which holds the site's own constant and what d does to its fit. The score of target j at site i then
has the bias ``r_i w_j'd``. Residuals are therefore centered at a mean that is released for each site before
the scores (and, at half of the price, before the site's own columns are selected). A mean within its noise is
shrunk. Let e_i^2 be the square of what is left: the variance of the noise and the square of what was taken
for noise. The product has mean zero and variance ``e_i^2 sum_k w_jk^2 Var(d_k)``, which is part of the
variance of the score, and is shrunk by the clipped slope as the score is. Without this step intervals of a
site covered 0.78 instead of 0.96 (800 columns, 15 sites of 4,000 rows, epsilon 0.8 for each interval).

If the means of columns differ between sites, the form w_j'x has a mean of its own at each site, and e_i times
this mean is a bias. Means of forms are therefore released at every site too, and are subtracted in the score:
`privinf.lasso.heterogeneous.means`. The products of what is left of both means are counted. Without these
means coverage was 0.70 instead of 0.95 where the means of columns differed by 0.2 standard deviations, and
0.51 instead of 0.88 for 0.5 (60 columns, six sites of 4,000 rows, epsilon 0.8 for each interval). Nodewise
regressions of each site use columns that are centered at their means there
(`privinf.lasso.heterogeneous.own_columns`).

With nodewise regressions of each site, only the first is left. A target's slope also differs from the
average slope because of the shape of its column. This error counts as independent between sites: it is a
bound, not an error that varies with the rows. Counted as shared, it made tests of equality reject too often,
in 0.125 of 120 fits at 5% (six sites, columns with a common correlation of 0.2), where pooled intervals
covered 0.996.

All other terms that sites share are products of two errors: the noise of the sizes of columns, and of the
shared selection. They are left out of covariances, as of variances. Errors of different
targets at different sites are taken to be independent, like the noise of different targets of one site.

For each target these are covariances of variables that exist, and the variances at one site are at least
theirs. The matrix of all sites and targets is therefore positive definite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privinf.lasso.debiasing import COLUMN_NOISE, SLOPE_NOISE, Debiased, debiased_coordinates
from privinf.lasso.heterogeneous.centering import CenteredSite
from privinf.lasso.heterogeneous.means import form_means
from privinf.lasso.heterogeneous.site_effects import SharedPart, SiteEffects
from privinf.lasso.precision import (
    Correlations,
    correlation_columns,
    entry_noise_covariance,
    score_correlation,
    standing_out,
)
from privinf.lasso.radii import UNCLIPPED, product_radius
from privinf.lasso.scores import ScoreRelease, slopes_above_noise, within_limits
from privinf.lasso.sums import Score, SparseSums
from privinf.mechanisms.statistics.scores import SQUARE_WEIGHT
from privinf.typing import Flags, Floats

MEAN_SHARE = 0.4  # share of the slopes' price for their averages over targets; the rest is for single targets
SLOPE_CLIP = 4.0  # clip of a single u_j x_j sqrt(w_jj), whose mean is 1
AVERAGE_SPREAD = 7.0  # averages of these over k targets are clipped at 1 + this / sqrt k
# Sd of a target's slope relative to the average slope, from columns that are not normal and from the noise of
# sizes and of nodewise regressions.
SLOPE_SPREAD = 0.08
LEAST_SLOPE = 0.5  # least slope of a site or target, relative to the average
MOST_NOISE = 0.24  # largest sd of a slope's noise, relative to the slope


@dataclass(frozen=True, slots=True)
class ScorePrices:
    """Prices in zCDP of one target's score with its variance, of its slope, and of the average slope."""

    score: float
    slope: float
    average: float

    @classmethod
    def from_prices(cls, slopes: float, score: float) -> ScorePrices:
        """Return the prices from those of the slopes and of the score."""
        return cls(score, (1.0 - MEAN_SHARE) * slopes, MEAN_SHARE * slopes)

    @property
    def weights(self) -> tuple[float, float]:
        """Weights of slope and average next to a score that one record moves by 2, themselves by 3/2."""
        return 4.0 / 3.0 * math.sqrt(self.slope / self.score), 4.0 / 3.0 * math.sqrt(
            self.average / self.score
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Released:
    """One site's releases, slopes in units of 1 / unit."""

    score: Floats
    score_sd: float
    square: Floats
    slope: Floats
    slope_sd: Floats
    average: float
    average_sd: float
    unit: Floats


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SiteScores:
    """Debiased targets of m sites.

    Attributes
    ----------
    targets : dict of str to list of int
        By site: targets that have a slope.
    debiased : dict of str to Debiased or None
        By site; None where the noise hides the slopes of all targets of a site.
    differs : dict of str to float
        Standardized difference of a site's slopes from the others'.
    spreads : dict of str to float
        Standard deviation over columns of the differences of a site's means.
    between : dict of str to ndarray, shape (k, m, m)
        By name of a term of the variance: covariances between the errors of a target at two sites. The
        diagonals are zero, because variances are those of `debiased`.
    """

    targets: dict[str, list[int]]
    debiased: dict[str, Debiased | None]
    differs: dict[str, float]
    spreads: dict[str, float]
    between: dict[str, Floats]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Slopes:
    """Slopes of k targets at m sites in units of 1 / unit.

    Attributes
    ----------
    values, sds : list of ndarray, shape (k,)
        By site, with the sds of their noise.
    hidden : list of ndarray of bool, shape (k,)
        Which are far below the average.
    noise : ndarray, shape (k, m, m)
        Covariance of the noise between sites.
    """

    values: list[Floats]
    sds: list[Floats]
    hidden: list[Flags]
    noise: Floats


def site_scores(
    sites: Mapping[str, CenteredSite],
    grams: Mapping[str, Correlations],
    fits: Mapping[str, SiteEffects],
    shared: SharedPart,
    targets: Sequence[int],
    near: Mapping[str, Sequence[Sequence[int]]],
    prices: ScorePrices,
    form_price: float,
    *,
    joint: bool,
    own_precision: bool,
) -> SiteScores:
    """Return every site's debiased targets.

    Targets whose slope is far below the average are left out: products of columns with rare large values
    are nearly all clipped, and the remaining slope is noise.

    Parameters
    ----------
    sites : mapping of str to CenteredSite
    grams : mapping of str to Correlations
    fits : mapping of str to SiteEffects
    shared : SharedPart
    targets : sequence of k ints
    near : mapping of str to k sequences of int
        Neighbors of the targets.
    prices : ScorePrices
    form_price : float
        Of the means of the forms of all targets; at 0 none are released.
    joint : bool
        Whether one budget pays for all targets.
    own_precision : bool
        Whether nodewise regressions are each site's own.

    Notes
    -----
    **Privacy.** Spends the prices of k targets and of one average at every site, and `form_price`.
    """
    columns: dict[str, Floats] = {}
    noise = {}
    released = {}
    for name in sites:
        fit = fits[name]
        columns[name], noise[name] = correlation_columns(
            grams[name], fit.support, fit.error_cov, targets, near[name]
        )
    units = {name: np.sqrt(of_site[list(targets), range(len(targets))]) for name, of_site in columns.items()}
    forms = {name: columns[name] / units[name] for name in sites}
    means = form_means(sites, forms, form_price, joint=joint, own_precision=own_precision)
    for name, site in sites.items():
        offsets = means.offsets[name]
        released[name] = _release(site.sums, columns[name], offsets, fits[name], targets, prices)
        noise[name] += np.square(units[name]) * means.between[name] * fits[name].error_square
    slopes = _slopes(list(released.values()))
    debiased: dict[str, Debiased | None] = {}
    targets_above_noise = {}
    steps = np.zeros((len(sites), len(targets)))
    for place, (name, release) in enumerate(released.items()):
        start = np.zeros(len(columns[name]))
        start[fits[name].support] = fits[name].beta
        at = np.flatnonzero(~slopes.hidden[place])
        unit = release.unit[at]
        sums = sites[name].sums
        slope = slopes.values[place][at]
        score = ScoreRelease(
            score=release.score[at],
            slope=slope / unit,
            square=release.square[at],
            score_sd=release.score_sd,
            slope_sd=np.hypot(slopes.sds[place][at], slope * sums.count_error) / unit,
            n=sums.n,
        ).with_noise(slope * sites[name].residual_sd * np.sqrt(means.left[name][at]))
        above_noise = slopes_above_noise(score)
        score = score.only(above_noise)
        at = at[above_noise]
        unit = unit[above_noise]
        targets_above_noise[name] = [targets[int(i)] for i in at]
        debiased[name] = None
        if len(at):
            steps[place, at] = score.score / score.slope
            uncertain = _slope_variance(steps[place, at], unit * fits[name].scale)
            debiased[name] = debiased_coordinates(
                start[targets_above_noise[name]],
                score,
                noise[name][at] + uncertain,
                score_correlation(columns[name][:, at], grams[name].values),
            )
    sizes = [site.sums.n for site in sites.values()]
    differs = dict(zip(sites, _differences(list(released.values()), sizes), strict=True))
    relative = steps / np.array(slopes.values)
    between = {
        SLOPE_NOISE: np.einsum("ij,kj,jik->jik", relative, relative, slopes.noise),
        COLUMN_NOISE: _shared_column_noise(list(columns.values()), grams, shared, targets),
    }
    for covariances in between.values():
        covariances[:, range(len(sites)), range(len(sites))] = 0.0
    return SiteScores(
        targets=targets_above_noise,
        debiased=debiased,
        differs=differs,
        spreads=means.spreads,
        between=between,
    )


def _shared_column_noise(
    columns: Sequence[Floats],
    grams: Mapping[str, Correlations],
    shared: SharedPart,
    targets: Sequence[int],
) -> Floats:
    """Return covariances between sites by the noise of one Gram matrix, (k, m, m); else zero.

    `columns` are the nodewise regressions of the k targets at every site, each of shape (p, k).
    """
    first, *others = grams.values()
    between = np.zeros((len(targets), len(columns), len(columns)))
    if any(gram is not first for gram in others):
        return between
    support = np.array(shared.support, dtype=np.int64)
    for place, target in enumerate(targets):
        rest = np.flatnonzero(support != target)
        regressions = np.array([of_site[:, place] for of_site in columns])
        cov = shared.cov[np.ix_(rest, rest)]
        between[place] = entry_noise_covariance(regressions, first.variances, support[rest], cov)
    return between


def _slope_variance(step: Floats, size: Floats) -> Floats:
    """Return the variance of steps s / kappa of targets due to slopes that differ from the average.

    Where step = t x size is not small against the residuals the mean score has a curve: of signs it is
    ``2/pi atan t``, short of its slope times t by the share t^2 / 3. In that and in how slopes differ between
    targets the step counts as wrong.
    """
    return np.asarray(step**2 * (SLOPE_SPREAD**2 + (step / size) ** 4 / 9.0))


def _differences(released: Sequence[_Released], sizes: Sequence[int]) -> list[float]:
    """Return, for every site, the larger of two standard normal numbers: its average slope and its slopes.

    ``w_j' Sigma_i e_j`` is the same for all sites i of one design. Each is set against the mean of all, in
    units of the noise and of sampling (a product ``u_j x_j`` has a variance of about 2).
    """
    sites = len(released)
    if sites < 2:
        return [0.0] * sites
    room = 1.0 - 1.0 / sites
    average = np.array([release.average for release in released])
    slopes = np.array([release.slope for release in released])
    largest = []
    for release, size, mean, row in zip(released, sizes, average, slopes, strict=True):
        k = len(row)
        alone = (mean - average.mean()) / math.sqrt(room * (release.average_sd**2 + 2.0 / (k * size)))
        squares = (row - slopes.mean(axis=0)) ** 2 / (room * (release.slope_sd**2 + 2.0 / size))
        together = (float(squares.sum()) - k) / math.sqrt(2.0 * k)
        largest.append(max(abs(float(alone)), together))
    return largest


def _release(
    sums: SparseSums,
    columns: Floats,
    offsets: Floats,
    fit: SiteEffects,
    targets: Sequence[int],
    prices: ScorePrices,
) -> _Released:
    k = len(targets)
    noiseless = math.isinf(prices.score)
    used = np.flatnonzero(columns.any(axis=1))
    unit = np.sqrt(columns[list(targets), np.arange(k)])
    radius = product_radius(sums.n, prices.score).bound
    bound = UNCLIPPED if noiseless else radius * fit.scale
    slope_clip, average_clip = (UNCLIPPED, UNCLIPPED) if noiseless else (SLOPE_CLIP, average_bound(k))
    # In one vector the noise has one size: weights give its parts their prices.
    slope_weight, average_weight = (1.0, 1.0) if noiseless else prices.weights
    score = Score(
        columns=used.tolist(),
        transform=columns[used] / unit,
        norm=math.inf,
        residual=bound,
        support=fit.support,
        beta=fit.beta,
    )
    mean, sd = sums.target_scores(
        score,
        targets,
        k * (prices.score + prices.slope) + prices.average,
        weights=unit,
        offsets=offsets,
        slope_clip=slope_clip,
        slope_weight=slope_weight,
        average_clip=average_clip,
        average_weight=average_weight,
    )
    slope_unit = slope_clip / slope_weight
    average_unit = average_clip / average_weight
    square = mean[k : 2 * k] * bound**2 / SQUARE_WEIGHT
    if not noiseless:
        square = within_limits(square, radius, fit.scale)
    slope = mean[2 * k : 3 * k] * slope_unit * unit
    average = float(mean[3 * k]) * average_unit
    return _Released(
        score=mean[:k] * bound,
        score_sd=sd * bound,
        square=square,
        slope=slope,
        slope_sd=np.hypot(sd * slope_unit * unit, slope * sums.count_error),
        average=average,
        average_sd=sums.with_count(sd * average_unit, average),
        unit=unit,
    )


def average_bound(k: int) -> float:
    """Return the clip of a record's average slope over k targets, which is about 1."""
    return min(SLOPE_CLIP, 1.0 + AVERAGE_SPREAD / math.sqrt(k))


def _slopes(released: Sequence[_Released]) -> _Slopes:
    """Return every site's slopes, with the noise that sites share."""
    sites = len(released)
    averages = np.array([release.average for release in released])
    average_sds = np.array([release.average_sd for release in released])
    average = float(np.mean(averages))
    average_sd = math.sqrt(sum(release.average_sd**2 for release in released)) / sites
    slope = np.mean([release.slope for release in released], axis=0)
    slope_sd = np.sqrt(sum(release.slope_sd**2 for release in released)) / sites
    apart = standing_out(slope - average, slope_sd) if len(slope) > 1 else np.zeros(1)
    departure_sd = np.where(apart != 0.0, slope_sd, 0.0)
    weights = np.full((sites, sites), 1.0 / sites)  # of the sites' averages in the slopes of a site
    slopes = []
    sds = []
    hidden = []
    used = []
    for place, release in enumerate(released):
        deviation = float(standing_out(np.array([release.average - average]), release.average_sd)[0])
        slope_of_site = np.maximum(average + deviation + apart, LEAST_SLOPE * average)
        hidden.append(average + deviation + apart < LEAST_SLOPE * average)
        if deviation:
            weights[place] = np.eye(sites)[place]
        sd = np.sqrt(departure_sd**2 + (release.average_sd if deviation else average_sd) ** 2)
        slopes.append(slope_of_site)
        # Only an average that the noise hides leaves no slopes.
        sds.append(np.minimum(sd, MOST_NOISE * slope_of_site) if average > average_sd / MOST_NOISE else sd)
        used.append(np.divide(sds[-1], sd, out=np.ones_like(sd), where=sd > 0.0))
    shares = np.array(used).T
    noise = (weights * average_sds**2) @ weights.T + np.square(departure_sd)[:, None, None]
    noise *= shares[:, :, None] * shares[:, None, :]
    return _Slopes(values=slopes, sds=sds, hidden=hidden, noise=noise)
