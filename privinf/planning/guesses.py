"""Guesses about people before any row is seen, and the resulting distributions of columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import beta, norm

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError
from privinf.schema import Schema
from privinf.schema.declared import Factor
from privinf.typing import Floats
from privinf.validation import check_fraction, check_number, check_positive, shown_name

KURTOSIS = 1.0  # excess kurtosis of residuals, about the median of 14 regressions (see `Guesses`)
CALIBRATION_PEOPLE = 20_000  # simulated people by which correlations of columns are matched
NORMAL_GRID = np.linspace(-6.0, 6.0, 1201)  # normal numbers at which quantiles of a column are tabulated
LONGEST_END = math.log(50.0)  # of a skewed column's distribution, in widths of the bounds
# Weight of the inverse gamma in a ratio of gamma variables; at 1 only an inverse gamma is left.
HEAVIEST = 0.97
MIDDLE_WEIGHT = 0.5  # this weight where the lower end is moved
NEAR = 0.03  # of a guessed correlation, its simulated one
CHECKED = {
    "means": check_number,
    "sds": check_positive,
    "coefficients": check_number,
    "spreads": check_number,
    "skews": check_number,
}


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """Guesses about the data for planning, made before any row is read, for example from an older study.

    Parameters
    ----------
    means : mapping of str to float
        Guessed means of numeric columns and of the response, by name. The mean of a 0/1 response is its share
        of ones. The default is the middle of the bounds.
    sds : mapping of str to float
        Guessed standard deviations of numeric columns and of the response, by name. The standard deviation of
        the response includes the part that the columns explain. The default is ``sqrt((mean - low)(high -
        mean)/3)``. For a mean in the middle of the bounds, the default is the standard deviation of a uniform
        distribution over the bounds.
    shares : mapping of str to mapping
        Guessed shares of the levels of factors. Levels without a guess share the rest equally.
    correlations : mapping of str to mapping of str to float
        Guessed correlations of numeric columns and of factors with two levels, such as ``{"age": {"income":
        0.4}}``; default 0. Correlations with a numeric response determine the coefficients: if you guess
        them, do not also guess `coefficients` or `rsquared`.
    coefficients : mapping of str to float
        Guessed coefficients by the names of the columns of the design matrix, in the units of the data (log
        odds for a 0/1 response, logarithms of hazard ratios for times until an event). Coefficients that are
        not named are 0. By default every column explains the same share of the variance, and all columns
        together explain `rsquared`.
    rsquared : float
        Guessed share of the variance of the response that the columns explain; default 0.2. For a 0/1
        response, this share uses the residual variance pi^2/3 on the logit scale. On the log scale, the
        residual variance is 1 / rate for counts and pi^2/6 for times until an event.
    residual_sd : float
        Guessed standard deviation of the residuals. It can be passed instead of `rsquared`, or instead of the
        standard deviation of the response.
    kurtosis : float
        Guessed excess kurtosis of the residuals, at least 0; default 1. In 14 regressions on three public
        surveys the excess kurtosis was between 0.1 and 3.2, with a median of about 1.
    spreads : mapping of str to float
        Guessed heteroskedasticity: the standard deviation of the residuals changes by the factor
        ``exp(spread)`` for each standard deviation of a column. The default is 0.
    skews : mapping of str to float
        Guessed skewness of numeric columns and of a numeric response, by name. An exponential distribution
        has the skewness 2. The default is the skewness of the beta distribution with this mean and standard
        deviation. With a guessed skewness of the response, its standard deviation is proportional to the
        distance of its mean from the bound at the short tail, as for lengths of stay and costs.
    alpha : float
        Guessed dispersion alpha of negative binomial counts, whose variance is ``mean + alpha mean^2``;
        default 1.
    survival : float
        Guessed share of people without the event at the end of the follow-up if nobody drops out, for times
        until an event; default 0.5.
    dropout : float
        Guessed share of the people without the event who are censored before the end of the follow-up;
        default 0.
    events : float
        Guessed share of all people whose event is observed, which can be passed instead of `dropout`. If an
        older study reports numbers of events, this share predicts widths better than `dropout`.
    complete : float
        Guessed share of rows without missing values; default 1. If it is below 1, the study plans fits with
        ``missing="drop"``, and values are missing completely at random.

    Raises
    ------
    ArgumentError
        Raised if a guess is not a number of the required type.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read. Guesses must come from other sources than the rows to be
    protected. Guesses that are computed from these rows would be a release that no ledger counts.

    Examples
    --------
    >>> import privinf as pi
    >>> pi.Guesses(means={"age": 44}, shares={"smoker": {"yes": 0.2}}, rsquared=0.3).rsquared
    0.3
    """

    means: Mapping[str, float] = field(default_factory=dict)
    sds: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, Mapping[Any, float]] = field(default_factory=dict)
    correlations: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    coefficients: Mapping[str, float] = field(default_factory=dict)
    rsquared: float | None = None
    residual_sd: float | None = None
    kurtosis: float = KURTOSIS
    spreads: Mapping[str, float] = field(default_factory=dict)
    skews: Mapping[str, float] = field(default_factory=dict)
    complete: float = 1.0
    alpha: float | None = None
    survival: float | None = None
    dropout: float | None = None
    events: float | None = None

    def __post_init__(self) -> None:
        for name in (*CHECKED, "shares", "correlations"):
            values = getattr(self, name)
            check = CHECKED.get(name, _check_mapping)
            for label, value in _check_mapping(values, f"guesses: {name}").items():
                check(value, f"guesses: {name} of {shown_name(label)}")
            object.__setattr__(self, name, MappingProxyType(dict(values)))
        check_number(self.kurtosis, "kurtosis", low=0.0)
        check_number(self.complete, "complete", low=0.0, high=1.0, open_low=True)
        if self.alpha is not None:
            check_number(self.alpha, "alpha", low=0.0)
        if self.survival is not None:
            check_fraction(self.survival, "survival")
        if self.events is not None:
            check_fraction(self.events, "events")
        if self.dropout is not None:
            check_number(self.dropout, "dropout", low=0.0, high=1.0, open_high=True)
        if self.rsquared is not None:
            check_number(self.rsquared, "rsquared", low=0.0, high=1.0, open_high=True)
        if self.residual_sd is not None:
            check_positive(self.residual_sd, "residual_sd")


def _check_mapping(value: Any, name: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name} must be a mapping of names to guesses, got {type(value).__name__}")
    return value


@dataclass(frozen=True, slots=True)
class ColumnDistribution:
    """The distribution of one column, as a function of a standard normal number.

    Attributes
    ----------
    name : str
    values : array, shape (1201,), or (k,)
        Quantiles of a number at `NORMAL_GRID`; levels of a factor.
    cuts : array, shape (k - 1,), or None
        Where the normal number passes from one level to the next; None for a number.
    description : str
        Assumptions.
    """

    name: str
    values: Any
    cuts: Floats | None
    description: str

    @property
    def levels(self) -> int:
        """How many levels a factor has; 0: a number."""
        return 0 if self.cuts is None else len(self.values)

    @property
    def shares(self) -> Floats:
        """Shares of the levels of a factor, in order; empty for a number."""
        if self.cuts is None:
            return np.empty(0)
        shares: Floats = np.diff(np.concatenate([[0.0], norm.cdf(self.cuts), [1.0]]))
        return shares

    def column(self, z: Floats) -> Any:
        """Return a column's values: numbers, or levels."""
        if self.cuts is None:
            return np.interp(z, NORMAL_GRID, self.values)
        levels = np.asarray(self.values)
        codes = np.searchsorted(self.cuts, z)
        return (
            levels[codes] if levels.dtype.kind in "if" else pd.Categorical(levels[codes], categories=levels)
        )

    def numbers(self, z: Floats) -> Floats:
        """Return the numbers behind a correlation: values, or positions of levels."""
        return np.asarray(self.column(z) if self.cuts is None else np.searchsorted(self.cuts, z), dtype=float)


def refuse_strange(
    subject: str, names: Iterable[str], names_known: Iterable[str], noun: str = "columns"
) -> None:
    """Raise ArgumentError for the first name that is not known; `subject` ends with a preposition."""
    for name in names:
        if name not in names_known:
            listed = ", ".join(sorted(names_known))
            raise ArgumentError(
                f"guesses= gives {subject} {shown_name(name)}, but the possible {noun} are: {listed}"
            )


def distribution_of(schema: Schema, name: str, guesses: Guesses) -> ColumnDistribution:
    """Return the distribution of a column (ArgumentError if the guesses about it are impossible)."""
    item = schema[name]
    if isinstance(item, Factor):
        if name in guesses.sds or name in guesses.means or name in guesses.skews:
            raise ArgumentError(
                f"guesses= gives a mean, sd or skewness for the categorical column {name!r}; give "
                "shares of its levels instead"
            )
        return _levels(name, item, guesses.shares.get(name))
    if name in guesses.shares:
        raise ArgumentError(
            f"guesses= gives shares of levels for the numeric column {name!r}; give its mean and sd instead"
        )
    mean, sd = moments_of(name, item.low, item.high, guesses)
    guessed_count = (name in guesses.means) + (name in guesses.sds)
    description = (
        "mean and sd from its bounds",
        "one of mean and sd guessed, the other from its bounds",
        "mean and sd guessed",
    )[guessed_count]
    width = item.high - item.low
    description = f"{name}: mean {mean:.4g}, sd {sd:.4g} ({description})"
    places = _beta_quantiles((mean - item.low) / width, sd / width)
    if name in guesses.skews:
        skewness = float(guesses.skews[name])
        places = _skewed_quantiles((mean - item.low) / width, sd / width, skewness)
        centre, spread, reached = _grid_moments(places)
        if abs(centre * width + item.low - mean) > 0.02 * sd or abs(spread * width / sd - 1.0) > 0.02:
            raise ArgumentError(
                f"the guessed skewness of {name!r} is impossible with its guessed mean, sd and bounds; "
                "omit one of these guesses"
            )
        room = (
            "guessed"
            if abs(reached - skewness) < 0.05
            else "the nearest value that the mean, sd and bounds allow"
        )
        description += f", skewness {reached:.2f} ({room})"
    return ColumnDistribution(name, item.low + width * places, None, description)


def moments_of(name: str, low: float, high: float, guesses: Guesses) -> tuple[float, float]:
    """Return mean and sd of a column within its bounds."""
    mean = float(guesses.means.get(name, 0.5 * (low + high)))
    if not low < mean < high:
        raise ArgumentError(f"the guessed mean of {name!r} must be between its bounds {low:g} and {high:g}")
    largest_sd = math.sqrt((mean - low) * (high - mean))
    sd = float(guesses.sds.get(name, largest_sd / math.sqrt(3.0)))
    if sd > 1.02 * largest_sd:
        raise ArgumentError(
            f"the guessed sd of {name!r} must be at most {largest_sd:.4g}, the largest possible with mean "
            f"{mean:g} and bounds {low:g} and {high:g}"
        )
    return mean, sd


def _beta_quantiles(mean: float, sd: float) -> Floats:
    """Return quantiles at `NORMAL_GRID` of the beta distribution on [0, 1] with this mean and sd."""
    size = mean * (1.0 - mean) / sd**2 - 1.0
    if size < 0.02:  # two points
        return np.where(norm.cdf(NORMAL_GRID) > 1.0 - mean, 1.0, 0.0)
    quantiles: Floats = beta.ppf(norm.cdf(NORMAL_GRID), mean * size, (1.0 - mean) * size)
    return quantiles


def _grid_moments(values: Floats) -> tuple[float, float, float]:
    """Return mean, sd and skewness of a distribution by its quantiles at `NORMAL_GRID`."""
    weights = norm.pdf(NORMAL_GRID)
    weights = weights / weights.sum()
    mean = float(weights @ values)
    sd = math.sqrt(float(weights @ (values - mean) ** 2)) or 1.0
    return mean, sd, float(weights @ (values - mean) ** 3) / sd**3


def _skewed_quantiles(mean: float, sd: float, skew: float) -> Floats:
    """Return quantiles of a distribution on [0, 1] with this mean, sd and, as far as there is room, skewness.

    A beta distribution whose upper end lies beyond 1, and that is put at 1 there: the farther the end, the
    longer the tail, toward a gamma distribution's. Mean and sd of the beta distribution are moved until
    those at the bound are the guessed ones. A distribution of less skewness than the beta distribution on [0,
    1] is the mirror image of one of more.
    """
    if skew >= _grid_moments(_beta_quantiles(mean, sd))[2]:
        return _long_tailed(mean, sd, skew)
    mirrored: Floats = 1.0 - _long_tailed(1.0 - mean, sd, -skew)[::-1]
    return mirrored


def _long_tailed(mean: float, sd: float, skew: float) -> Floats:
    """Return these quantiles where the skewness is that of the beta distribution on [0, 1], or more."""

    def quantiles_to(log_end: float) -> Floats:
        end = math.exp(log_end)
        centre = mean
        spread = sd
        for _ in range(8):
            quantiles = np.minimum(end * _beta_quantiles(centre / end, spread / end), 1.0)
            reached_mean, sized, _ = _grid_moments(quantiles)
            centre = centre + mean - reached_mean
            spread = spread * sd / sized
        return quantiles

    def short(log_end: float) -> float:
        return _grid_moments(quantiles_to(log_end))[2] - skew

    if short(LONGEST_END) <= 0.0:
        return _heavy_tailed(mean, sd, skew)
    return quantiles_to(float(brentq(short, 0.0, LONGEST_END, xtol=1e-2)) if short(0.0) < 0.0 else 0.0)


def _heavy_tailed(mean: float, sd: float, skew: float) -> Floats:
    """Return these quantiles where the skewness is that of a gamma distribution on [0, inf), or more.

    A ratio of two gamma variables, which is put at 1 beyond 1: from a gamma to almost an inverse gamma
    distribution. If even that has too little skewness, the lower end moves up from 0.
    """
    below = norm.cdf(-NORMAL_GRID)

    def quantiles_of(weight: float, low: float) -> Floats:
        centre = mean - low
        spread = sd
        for _ in range(10):
            excess = 2.0 * (spread / centre) ** 2 + 1.0
            b = (2.0 + 2.0 / (excess - 1.0)) / weight
            a = (b - 1.0) / (excess * (1.0 / weight - 1.0))
            share = np.maximum(beta.ppf(below, b, a), 1e-12)
            quantiles = np.minimum(low + centre * (b - 1.0) / a * (1.0 - share) / share, 1.0)
            reached_mean, sized, _ = _grid_moments(quantiles)
            centre = max(centre + mean - reached_mean, 0.05 * (mean - low))
            spread = spread * sd / sized
        return quantiles

    def short(weight: float, low: float) -> float:
        return _grid_moments(quantiles_of(weight, low))[2] - skew

    lightest = 0.01
    if short(lightest, 0.0) >= 0.0:
        return quantiles_of(lightest, 0.0)
    if short(HEAVIEST, 0.0) >= 0.0:
        return quantiles_of(float(brentq(short, lightest, HEAVIEST, args=(0.0,), xtol=1e-3)), 0.0)
    highest = 0.99 * mean
    if short(MIDDLE_WEIGHT, highest) <= 0.0 or short(MIDDLE_WEIGHT, 0.0) >= 0.0:
        return quantiles_of(HEAVIEST, 0.0)
    low = float(brentq(lambda end: short(MIDDLE_WEIGHT, end), 0.0, highest, xtol=1e-4))
    return quantiles_of(MIDDLE_WEIGHT, low)


def skewed_errors(name: str, mean: float, sd: float, skew: float) -> Floats:
    """Return quantiles at `NORMAL_GRID` of a positive variable with mean 1.

    Parameters
    ----------
    name : str
        The response that is this variable times its mean.
    mean : float
        Mean of the response as a share of its bounds; 1/`mean` is the largest value of the variable.
    sd, skew : float
        Standard deviation and skewness of the variable.
    """
    quantiles = _skewed_quantiles(mean, sd * mean, skew) / mean
    centre, spread, _ = _grid_moments(quantiles)
    if abs(centre - 1.0) > 0.02 * sd or abs(spread / sd - 1.0) > 0.02:
        raise ArgumentError(
            f"the guessed skewness of {name!r} is impossible with its guessed mean, sd and bounds; "
            "omit one of these guesses"
        )
    return quantiles


def _levels(name: str, item: Factor, guessed: Mapping[Any, float] | None) -> ColumnDistribution:
    """Return the distribution of a factor, in the order of its levels."""
    texts = [str(level) for level in item.levels]
    named = {
        str(level): check_fraction(share, f"a share of {name!r}") for level, share in (guessed or {}).items()
    }
    refuse_strange(f"a share of column {name!r} for the level", named, texts, "levels")
    rest = 1.0 - sum(named.values())
    free = len(texts) - len(named)
    if (free and rest <= 0.0) or (not free and abs(rest) > 1e-6):
        raise ArgumentError(f"the guessed shares of the levels of {name!r} must add up to 1")
    shares = [named.get(text, rest / max(free, 1)) for text in texts]
    listed = ", ".join(f"{text} {share:.3g}" for text, share in zip(texts, shares, strict=True))
    cuts: Floats = norm.ppf(np.minimum(np.cumsum(shares)[:-1], 1.0))
    return ColumnDistribution(
        name,
        item.levels,
        cuts,
        f"levels of {name}: {listed} (shares {'guessed' if guessed else 'not guessed'})",
    )


def drawn(
    distributions: tuple[ColumnDistribution, ...], root: Floats, n: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Return `n` rows of columns, joined by normal numbers of this root of a correlation matrix."""
    z = rng.standard_normal((n, len(distributions))) @ root.T
    return pd.DataFrame(
        {
            distribution.name: distribution.column(z[:, place])
            for place, distribution in enumerate(distributions)
        },
        index=range(n),
    )


def root_of(distributions: tuple[ColumnDistribution, ...], guesses: Guesses) -> Floats:
    """Return a root of the correlations behind the columns that gives the columns the guessed ones."""
    places = {distribution.name: place for place, distribution in enumerate(distributions)}
    target = np.eye(len(distributions))
    for a, partners in guesses.correlations.items():
        for b, value in partners.items():
            check_number(value, f"the guessed correlation of {a!r} and {b!r}", low=-0.999, high=0.999)
            if a in places and b in places and a != b:
                target[places[a], places[b]] = target[places[b], places[a]] = value
                if max(distributions[places[a]].levels, distributions[places[b]].levels) > 2:
                    raise ArgumentError(
                        f"guesses= gives a correlation of {a!r} and {b!r}, but correlations are not "
                        "available "
                        "for a column with more than two levels; omit this correlation"
                    )
    latent = target.copy()
    is_guessed = target != 0.0
    z = np.random.default_rng(1).standard_normal((CALIBRATION_PEOPLE, len(distributions)))
    root = target
    gap = np.zeros_like(target)
    for _ in range(12 if np.any(target != np.eye(len(distributions))) else 0):
        values, vectors = np.linalg.eigh(latent)
        root = vectors * np.sqrt(np.maximum(values, 1e-9))
        root /= np.linalg.norm(root, axis=1, keepdims=True)
        moved = z @ root.T
        reached = np.corrcoef(
            [distribution.numbers(moved[:, place]) for place, distribution in enumerate(distributions)]
        )
        gap = np.where(is_guessed, target - reached, 0.0)
        latent = np.clip(latent + gap, -0.999, 0.999)
        np.fill_diagonal(latent, 1.0)
    for row, column in np.argwhere(np.abs(gap) > NEAR):
        first, second = distributions[row].name, distributions[column].name
        raise ArgumentError(
            f"the guessed correlation of {first!r} and {second!r} is impossible with the other "
            "guesses; the nearest possible correlation is "
            f"{target[row, column] - gap[row, column]:.2f}"
        )
    return root
