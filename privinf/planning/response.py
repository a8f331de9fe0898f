"""The response of simulated people: coefficients by the guesses, and the distribution of residuals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import chi2

from privinf.errors import ArgumentError
from privinf.planning.guesses import (
    KURTOSIS,
    NORMAL_GRID,
    Guesses,
    moments_of,
    refuse_strange,
    skewed_errors,
)
from privinf.schema import Design, Schema
from privinf.schema.declared import Factor
from privinf.typing import Floats, StudyFamily

LARGEST_MIX = 0.5  # one over the fewest degrees of freedom of the mixing chi-square
TWO_LEVELS = "yes or no; family='binomial' plans a logistic regression"
MAYBE_TWO_LEVELS = "if it is yes or no, declare the levels [0, 1] instead, or pass family='binomial'"
USUAL_ALPHA = 1.0  # dispersion of negative binomial counts that is not guessed
USUAL_SURVIVAL = 0.5  # share without the event at the end of the follow-up that is not guessed
LARGEST_LOG_HAZARD = 20.0  # logarithm of a cumulated hazard beyond which it grows no further


def of_response(guesses: Guesses, design: Design, family: StudyFamily) -> dict[str, float]:
    """Return the guessed correlations of design columns with the response."""
    correlations = dict(guesses.correlations.get(design.response, {}))
    correlations |= {
        a: partners[design.response]
        for a, partners in guesses.correlations.items()
        if design.response in partners
    }
    correlations = {name: value for name, value in correlations.items() if name in design.inputs}
    if correlations and (family != "gaussian" or guesses.coefficients or guesses.rsquared is not None):
        raise ArgumentError(
            f"guesses= gives correlations with the numeric response {design.response!r}, which "
            "already determine its coefficients and R-squared; omit either these correlations, or "
            "coefficients and rsquared"
        )
    refuse_strange("a correlation with the response for", correlations, design.names)
    return correlations


def residual_of(spread: float, sd: float, guesses: Guesses) -> float:
    """Return the residual sd where coefficients are given, whose predictor has the sd `spread`."""
    share = guesses.rsquared
    residual_sd = guesses.residual_sd
    if share is not None and residual_sd is not None:
        raise ArgumentError(
            "guesses= gives coefficients, rsquared and residual_sd, but two of them determine the "
            "third; omit one of them"
        )
    if residual_sd is not None:
        return residual_sd
    if share and spread:
        return spread * math.sqrt((1.0 - share) / share)
    if spread >= sd:
        raise ArgumentError(
            f"the guessed coefficients imply that the response has an sd of at least {spread:.4g}, "
            f"which is above its sd {sd:.4g}; guess a larger sd of the response, or guess "
            "residual_sd"
        )
    return math.sqrt(sd**2 - spread**2)


def outcome_of(
    design: Design, schema: Schema, guesses: Guesses, family: StudyFamily
) -> tuple[float, float, list[str]]:
    """Return mean and sd of the response, and the assumptions about them."""
    name = design.response
    item = schema[design.response]
    coded = isinstance(item, Factor) and item.categorical
    low, high = (0.0, 1.0) if coded else (item.interval.low, item.interval.high)
    if family == "binomial" and (low, high) != (0.0, 1.0):
        raise ArgumentError(
            f"family='binomial' needs a response with bounds 0 and 1; the bounds of {name!r} differ"
        )
    if name in guesses.shares:
        raise ArgumentError(
            f"guesses= gives shares for the response {name!r}; give its mean instead (for a "
            "response with two levels, the share of the second level)"
        )
    two_levels = family == "gaussian" and has_two_levels(item)
    if name in guesses.skews and (family != "gaussian" or two_levels):
        raise ArgumentError(
            f"guesses= gives a skewness for the response {name!r}, but its mean determines its distribution; "
            "omit the skewness"
        )
    if family != "gaussian" and name in guesses.sds:
        raise ArgumentError(
            f"guesses= gives an sd for the response {name!r}, but with family={family!r} its mean "
            "determines its sd; omit the sd"
        )
    if two_levels and (name in guesses.sds or guesses.residual_sd is not None or guesses.spreads):
        raise ArgumentError(
            f"guesses= gives a spread of the response {name!r} or of its residuals, but it has two levels, "
            "and its mean determines the spread; omit the sd of the response, residual_sd and spreads"
        )
    mean, sd = moments_of(name, low, high, guesses)
    if two_levels:
        sd = math.sqrt(max((mean - low) * (high - mean), 0.0))
    line = f"{name}: mean {mean:.4g} ({'guessed' if name in guesses.means else 'middle of its bounds'})"
    if family in ("poisson", "negative-binomial") and mean <= 0.0:
        raise ArgumentError(f"the guessed mean of {name!r} must be positive if family={family!r}")
    if family == "negative-binomial":
        line += f", dispersion {dispersion_of(guesses):.3g} ({'not ' * (guesses.alpha is None)}guessed)"
    elif guesses.alpha is not None:
        raise ArgumentError(
            "guesses= gives alpha, the dispersion of negative binomial counts, but the family is "
            f"{family!r}; omit alpha"
        )
    if two_levels:
        line += f", {TWO_LEVELS}"
    elif family == "gaussian":
        line += f", sd {sd:.4g} ({'guessed' if name in guesses.sds else 'from its bounds'})"
        if (low, high) == (0.0, 1.0) and name not in guesses.sds:
            line += f"; {MAYBE_TWO_LEVELS}"
    return mean, sd, [line]


def has_two_levels(item: object) -> bool:
    """Return whether a response is yes or no by its declaration."""
    return isinstance(item, Factor) and len(item.levels) == 2


def dispersion_of(guesses: Guesses) -> float:
    """Return the dispersion of negative binomial counts."""
    return USUAL_ALPHA if guesses.alpha is None else guesses.alpha


def survival_of(design: Design, guesses: Guesses, family: StudyFamily) -> float:
    """Return the share without the event at the end of the follow-up; nan of other responses than times."""
    if family != "hazards":
        if not (guesses.survival is guesses.dropout is guesses.events is None):
            raise ArgumentError(
                "guesses= gives survival, dropout or events, which times until an event have; omit them, or "
                "pass family='hazards'"
            )
        return math.nan
    name = design.response
    for kind, values in (
        ("a mean", guesses.means),
        ("an sd", guesses.sds),
        ("a skewness", guesses.skews),
        ("shares", guesses.shares),
    ):
        if name in values:
            raise ArgumentError(
                f"guesses= gives {kind} for the time {name!r}; give survival= and events= instead, the "
                "share without the event at the end of the follow-up and the share of observed events"
            )
    if guesses.residual_sd is not None or guesses.spreads or guesses.alpha is not None:
        raise ArgumentError(
            "guesses= gives residual_sd, spreads or alpha, which times until an event do not have; omit them"
        )
    if guesses.events is not None and guesses.dropout is not None:
        raise ArgumentError(
            "guesses= gives dropout and events, but one determines the other; omit one of them"
        )
    survival = USUAL_SURVIVAL if guesses.survival is None else guesses.survival
    if guesses.events is not None and guesses.events > 1.0 - survival:
        raise ArgumentError(
            f"the guessed share of events must be at most {1.0 - survival:.3g}, the share of people with the "
            "event at the end of the follow-up if nobody drops out; guess a smaller share or a lower survival"
        )
    return survival


def dropout_of(predictor: Floats, guesses: Guesses) -> float:
    """Return the share of people without the event who are censored before the end of the follow-up.

    With exponential times, a person whose hazard cumulates to h over the follow-up, and that of dropout to l,
    has an observed event with probability ``h / (h + l) (1 - exp(-h - l))``; l gives the guessed mean.

    Parameters
    ----------
    predictor : ndarray
        Logarithms of h of simulated people.
    guesses : Guesses
    """
    if guesses.events is None:
        return 0.0 if guesses.dropout is None else guesses.dropout
    h = np.exp(np.minimum(predictor, LARGEST_LOG_HAZARD))

    def excess(leaving: float) -> float:
        return float(np.mean(h / (h + leaving) * -np.expm1(-h - leaving))) - float(guesses.events or 0.0)

    if excess(0.0) <= 0.0:
        return 0.0
    most = 1.0
    while excess(most) > 0.0:
        most *= 2.0
    return -math.expm1(-float(brentq(excess, 0.0, most)))


def times_assumption(name: str, horizon: float, survival: float, dropout: float, guesses: Guesses) -> str:
    """Return the assumption on times until an event, in words."""
    text = (
        f"{name}: exponential, {survival:.0%} without the event at {horizon:g} "
        f"({'not ' * (guesses.survival is None)}guessed), "
    )
    if guesses.events is None:
        return text + f"dropout {dropout:.0%} ({'not ' * (guesses.dropout is None)}guessed)"
    return text + f"{guesses.events:.1%} with an observed event (guessed), and so a dropout of {dropout:.0%}"


def event_times(
    predictor: Floats, dropout: float, horizon: float, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return times and statuses (1 for an event) of people with these logarithms of cumulated hazards.

    Times until the event and until dropout are exponential. `predictor` is the logarithm of the hazard that
    is cumulated over the follow-up, which ends at `horizon`.
    """
    n = len(predictor)
    hazard = np.exp(np.minimum(predictor, LARGEST_LOG_HAZARD)) / horizon
    failure = rng.exponential(size=n) / hazard
    leaving = -math.log1p(-dropout) / horizon
    end = rng.exponential(size=n)
    end = np.minimum(end / leaving, horizon) if leaving > 0.0 else np.full(n, horizon)
    return np.minimum(failure, end), np.asarray(failure <= end, dtype=np.float64)


def inverse_link(predictor: Floats, family: StudyFamily) -> Floats:
    """Return the means of responses; of times, the shares without the event at the end of the follow-up."""
    if family == "gaussian":
        return predictor
    if family == "hazards":
        return np.asarray(np.exp(-np.exp(np.minimum(predictor, LARGEST_LOG_HAZARD))))
    means: Floats = expit(predictor) if family == "binomial" else np.exp(np.minimum(predictor, 20.0))
    return means


def constant_for(predictor: Floats, mean: float, family: StudyFamily) -> float:
    """Return the intercept that gives the response its mean."""
    if family == "gaussian":
        return mean - float(np.mean(predictor))
    end = 40.0 + float(np.max(np.abs(predictor)))
    return float(brentq(lambda c: np.mean(inverse_link(c + predictor, family)) - mean, -end, end))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ResidualDistribution:
    r"""The residuals of a numeric response: beta distributions around the means, with mixed variances.

    Attributes
    ----------
    sd : float
        Guessed, user units.
    spreads : mapping of str to float
    factor : float
        Of the sds, so that the mean square is the guessed one although bounds cut single variances.
    mix : float
        One over the degrees of freedom of the chi-square that divides a variance; 0: none does.
    kurtosis, skewness : float
        Attained values for the residuals.

    Notes
    -----
    A response of mean m (as a share of its bounds) has a beta distribution of precision nu: variance
    ``m(1 - m)/(1 + nu)``, excess kurtosis ``6[(1 - 2m)^2 (1 + nu) - m(1 - m)(2 + nu)] / [m(1 - m)(2 + nu)(3 +
    nu)]``. Its sd is ``factor s sqrt(g)``, s that of the row (`row_sds`) and 1/g a chi-square over its
    degrees of freedom; no variance can pass m(1 - m)/1.01. Factor and mix solve two equations, the mean
    variance and the fourth moment of e/s, over simulated people: bounded distributions have shorter tails
    than a normal one, and the degrees of freedom at which a normal distribution would have the guessed
    kurtosis leave half of it out.
    """

    sd: float
    spreads: Mapping[str, float]
    factor: float = 1.0
    mix: float = 0.0
    kurtosis: float = 0.0
    skewness: float = 0.0

    def row_sds(self, frame: pd.DataFrame) -> Floats:
        """Return each row's sd before it is mixed."""
        logs = np.zeros(len(frame))
        for name, value in self.spreads.items():
            column = frame[name].to_numpy(dtype=np.float64)
            logs += value * (column - column.mean()) / (column.std() or 1.0)
        sds: Floats = self.sd * np.exp(logs) / math.sqrt(float(np.mean(np.exp(2.0 * logs))))
        return sds

    def precisions(
        self, frame: pd.DataFrame, places: Floats, width: float, rng: np.random.Generator
    ) -> Floats:
        """Return nu of each row; `places` are the means, and `width` that of the bounds."""
        variances = (self.row_sds(frame) * self.factor / width) ** 2
        if self.mix > 0.0:
            variances = variances / (self.mix * rng.chisquare(1.0 / self.mix, len(variances)))
        return _precision(places, variances)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SkewedResponse:
    r"""A numeric response of a guessed skewness: its distance from a bound is its mean times a variable.

    Attributes
    ----------
    sd : float
        Guessed standard deviation of the residuals, user units.
    skewness : float
        Attained value for the response.
    quantiles : array, shape (1201,)
        Of the variable, which has mean 1, at `NORMAL_GRID`.
    mirrored : bool
        Whether distances are those from the upper bound, for a negative skewness.

    Notes
    -----
    With the distance m of a mean from the bound, a variable e of standard deviation s and third central
    moment t, the residuals have the mean variance ``s^2 E[m^2]``, and the response the third central moment
    ``t E[m^3] + 3 s^2 E[(m - E m) m^2] + E[(m - E m)^3]``. These two equations give s and t.
    """

    sd: float
    skewness: float
    quantiles: Floats
    mirrored: bool

    def responses(self, mean: Floats, low: float, high: float, rng: np.random.Generator) -> Floats:
        """Return responses of these means within the bounds."""
        errors = np.interp(rng.standard_normal(len(mean)), NORMAL_GRID, self.quantiles)
        return self._values(mean, errors, low, high)

    def attained(self, mean: Floats, low: float, high: float) -> float:
        """Return the skewness of the responses of people with these means, which the bounds cut."""
        means = np.quantile(mean, (np.arange(100) + 0.5) / 100.0)[:, None]
        values = self._values(means, self.quantiles, low, high)
        weights = np.exp(-0.5 * NORMAL_GRID**2)
        weights = np.broadcast_to(weights / (100.0 * weights.sum()), values.shape)
        centred = values - np.sum(weights * values)
        return float(np.sum(weights * centred**3) / np.sum(weights * centred**2) ** 1.5)

    def _values(self, mean: Floats, errors: Floats, low: float, high: float) -> Floats:
        distances = np.maximum((high - mean) if self.mirrored else (mean - low), 0.0) * errors
        values: Floats = np.clip(high - distances if self.mirrored else low + distances, low, high)
        return values


def skewed_response(
    name: str, sd: float, guesses: Guesses, mean: Floats, low: float, high: float
) -> SkewedResponse:
    """Return the response of a guessed skewness; `mean` are means of simulated people.

    Raises
    ------
    ArgumentError
        The skewness is impossible with the other guesses, or `kurtosis` or `spreads` are guessed too.
    """
    if guesses.spreads or guesses.kurtosis != KURTOSIS:
        raise ArgumentError(
            f"guesses= gives a skewness for the response {name!r}, which determines its tails and spreads; "
            "omit kurtosis and spreads, or omit the skewness"
        )
    skew = float(guesses.skews[name])
    mirrored = skew < 0.0
    m = np.maximum((high - mean) if mirrored else (mean - low), 1e-4 * (high - low))
    centred = m - m.mean()
    squares = float(np.mean(m**2))
    variance = sd**2 / squares
    total = (float(np.mean(centred**2)) + sd**2) ** 1.5
    rest = 3.0 * variance * float(np.mean(centred * m**2)) + float(np.mean(centred**3))
    cubes = float(np.mean(m**3))
    wanted = (abs(skew) * total - rest) / cubes / variance**1.5
    quantiles = skewed_errors(name, float(m.mean()) / (high - low), math.sqrt(variance), wanted)
    response = SkewedResponse(sd=sd, skewness=0.0, quantiles=quantiles, mirrored=mirrored)
    return replace(response, skewness=response.attained(mean, low, high))


def residual_distribution(
    sd: float, guesses: Guesses, frame: pd.DataFrame, places: Floats, width: float
) -> ResidualDistribution:
    """Return the distribution of residuals that have the guessed sd and kurtosis, as far as bounds allow."""
    plain = ResidualDistribution(sd=sd, spreads=guesses.spreads)
    variances = (plain.row_sds(frame) / width) ** 2
    u = (np.random.default_rng(2).permutation(len(places)) + 0.5) / len(places)

    def factor_of(spread: Floats) -> float:
        def excess(log: float) -> float:
            nu = _precision(places, variances * spread * math.exp(2.0 * log))
            return float(np.mean(places * (1.0 - places) / (1.0 + nu)) - np.mean(variances))

        low, high = -3.0, 3.0
        return math.exp(brentq(excess, low, high, xtol=1e-4) if excess(high) > 0.0 else high)

    def with_mix(mix: float) -> ResidualDistribution:
        spread = 1.0 / (mix * chi2.ppf(u, 1.0 / mix)) if mix > 0.0 else np.ones_like(u)
        factor = factor_of(spread)
        nu = _precision(places, variances * spread * factor**2)
        squares, fourths = _moments_of(places, nu)
        ratio = float(np.mean(fourths / variances**2) / np.mean(squares / variances) ** 2)
        skews = 2.0 * (1.0 - 2.0 * places) * np.sqrt((1.0 + nu) / (places * (1.0 - places))) / (2.0 + nu)
        return ResidualDistribution(
            sd=sd,
            spreads=guesses.spreads,
            factor=factor,
            mix=mix,
            kurtosis=ratio - 3.0,
            skewness=float(np.mean(skews * squares**1.5) / np.mean(squares) ** 1.5),
        )

    def short(mix: float) -> float:
        return with_mix(mix).kurtosis - guesses.kurtosis

    if short(0.0) >= 0.0:
        return with_mix(0.0)
    return with_mix(brentq(short, 0.0, LARGEST_MIX, xtol=1e-3) if short(LARGEST_MIX) > 0.0 else LARGEST_MIX)


def _precision(places: Floats, variances: Floats) -> Floats:
    precision: Floats = np.maximum(places * (1.0 - places) / variances - 1.0, 0.01)
    return precision


def _moments_of(places: Floats, nu: Floats) -> tuple[Floats, Floats]:
    """Return variance and fourth central moment of beta distributions."""
    product = places * (1.0 - places)
    squares = product / (1.0 + nu)
    excess = 6.0 * ((1.0 - 4.0 * product) * (1.0 + nu) - product * (2.0 + nu))
    return squares, squares**2 * (3.0 + excess / (product * (2.0 + nu) * (3.0 + nu)))
