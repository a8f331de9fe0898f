"""Made-up people: guesses of a code book become laws of columns within their bounds, and these become rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import beta, norm

from privinf.doors import doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.schema import Design, Schema
from privinf.schema.declared import Factor, Numeric
from privinf.typing import Family, Floats
from privinf.validation import check_fraction, check_number, check_positive, shown_name

if TYPE_CHECKING:
    import pandas as pd

NOTHING: Mapping[str, float] = MappingProxyType({})
NO_SHARES: Mapping[str, float | Mapping[str, float]] = MappingProxyType({})
NO_PAIRS: Mapping[str, Mapping[str, float]] = MappingProxyType({})
RSQUARED, KURTOSIS = 0.2, 1.0
PILOT = 20_000
GRID = np.linspace(-6.0, 6.0, 1201)
# How far a correlation of made-up rows may stay from the one that was guessed.
NEAR = 0.03
RESPONSE = "response"


@doors
@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """What is thought of people before any row is seen, as a code book or an older study has it.

    Parameters
    ----------
    means : mapping of str to float
        Means of numeric columns; of the response too: of counts its rate, of a 0/1 response its share of
        ones. Default: the middle of the bounds.
    sds : mapping of str to float
        Standard deviations of numeric columns, and of the response, whose sd holds what the columns explain.
        Default: ``sqrt((mean - low)(high - mean)/3)``, which in the middle is that of a uniform law.
    shares : mapping of str to float or mapping
        Prevalence of levels: a number is the share of a factor's second level, where it has two; else level
        to share. Levels that are not named share what is left.
    correlations : mapping of str to mapping of str to float
        ``{"age": {"income": 0.4}}``, of numeric columns and factors of two levels; default 0. Those with the
        response are instead of coefficients, which follow from them.
    coefficients : mapping of str to float
        By the names of design columns, user units (log odds for a 0/1 response); those not named are 0.
        Default: every column explains as much as any other, so that all of them explain `rsquared`.
    rsquared : float
        Share of the response's variance that the columns explain, default .2. For a 0/1 response and counts
        it is the share of the linear predictor in its variance and that of the logistic law, pi^2/3, or one
        over the rate.
    residual_sd : float
        Instead of the response's sd, or of `rsquared`.
    kurtosis : float
        Excess kurtosis of the residuals, at least 0; default 1, about the median of 14 regressions on three
        public surveys, which had .1 to 3.2.
    spreads : mapping of str to float
        How the residual sd changes with a column: by the factor ``exp(spread)`` for each sd of it; default 0.

    Raises
    ------
    ArgumentError
        A guess is no number of its kind, or more is given than can hold together.

    Notes
    -----
    **Privacy.** No rows. Guesses taken from the rows that are to be protected are a release that nobody
    accounted for: take them from elsewhere.

    Examples
    --------
    >>> Guesses(means={"age": 44}, shares={"smoker": 0.2}, rsquared=0.3).rsquared
    0.3
    """

    means: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    sds: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    shares: Mapping[str, float | Mapping[str, float]] = field(default_factory=lambda: NO_SHARES)
    correlations: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: NO_PAIRS)
    coefficients: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    rsquared: float | None = None
    residual_sd: float | None = None
    kurtosis: float = KURTOSIS
    spreads: Mapping[str, float] = field(default_factory=lambda: NOTHING)

    def __post_init__(self) -> None:
        for name in ("means", "sds", "shares", "correlations", "coefficients", "spreads"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise ArgumentError(f"guesses: {name} must map names to guesses, got {type(given).__name__}")
            object.__setattr__(self, name, MappingProxyType(dict(given)))
        for label, number in self.means.items():
            check_number(number, f"the guessed mean of {shown_name(label)}")
        for label, number in self.sds.items():
            check_positive(number, f"the guessed sd of {shown_name(label)}")
        for label, number in self.coefficients.items():
            check_number(number, f"the guessed coefficient of {shown_name(label)}")
        for label, number in self.spreads.items():
            check_number(number, f"the guessed spread by {shown_name(label)}", low=-3.0, high=3.0)
        check_number(self.kurtosis, "kurtosis", low=0.0)
        if self.rsquared is not None:
            check_number(self.rsquared, "rsquared", low=0.0, high=1.0, open_high=True)
        if self.residual_sd is not None:
            check_positive(self.residual_sd, "residual_sd")
        if self.coefficients and self.rsquared is not None and self.residual_sd is not None:
            raise ArgumentError(
                "guesses: coefficients, rsquared and residual_sd: any two of them say the third; leave one out"
            )


@dataclass(frozen=True, slots=True)
class Law:
    """The law of one column, as a function of a standard normal number.

    Attributes
    ----------
    name : str
    values : array, shape (1201,), or tuple of k levels
        Quantiles of a number at `GRID`; levels of a factor.
    cuts : array, shape (k - 1,)
        Where the normal number passes from one level to the next; empty for a number.
    told : str
        What was taken for granted.
    """

    name: str
    values: Floats | tuple[object, ...]
    cuts: Floats
    told: str

    def codes(self, z: Floats) -> Floats:
        """Return numbers, or places of levels."""
        if isinstance(self.values, tuple):
            return np.searchsorted(self.cuts, z).astype(np.float64)
        return np.interp(z, GRID, self.values)

    def column(self, z: Floats) -> pd.Series[object]:
        """Return the values of a column."""
        import pandas as pd

        codes = self.codes(z)
        if not isinstance(self.values, tuple):
            return pd.Series(codes, name=self.name)
        if all(isinstance(level, (int, float)) and not isinstance(level, bool) for level in self.values):
            return pd.Series(np.asarray(self.values)[codes.astype(int)], name=self.name)
        return pd.Series(pd.Categorical.from_codes(codes.astype(int), list(self.values)), name=self.name)

    def numbers(self, z: Floats) -> Floats:
        """Return what a correlation is about: numbers, numeric levels, or 0 and 1."""
        codes = self.codes(z)
        if isinstance(self.values, tuple) and isinstance(self.values[0], (int, float)):
            return np.asarray(self.values, dtype=np.float64)[codes.astype(int)]
        return codes


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Made-up people, from whom any number of rows can be drawn.

    Attributes
    ----------
    schema, formula
        What a fit is told; a response that is an expression has become a column of its own.
    design : Design
        Of this formula.
    family : Family
    laws : tuple of Law
    root : array, shape (k, k)
        Of the correlations of the normal numbers behind the columns.
    slopes : array, shape (p,)
        Of the design's columns, user units.
    residual_sd : float
        Of a numeric response; nan otherwise.
    kurtosis, spreads
        As guessed.
    told : tuple of str
        What was taken for granted, a line each.

    Notes
    -----
    Columns are beta laws on their bounds with the guessed mean and sd (two points at the bounds where the sd
    allows no other), joined by normal numbers whose correlations are found so that the columns have the
    guessed ones. A numeric response has the mean ``x'b`` and is a beta law around it, of the residual sd as far
    as its bounds leave room; for the kurtosis k the variance is divided by a chi-square over its mean, of
    4 + 6/k degrees of freedom, which would make a normal law Student's t.
    """

    schema: Schema
    formula: str
    design: Design
    family: Family
    laws: tuple[Law, ...]
    root: Floats
    slopes: Floats
    residual_sd: float
    kurtosis: float
    spreads: Mapping[str, float]
    told: tuple[str, ...]

    def rows(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Return `n` made-up rows: the columns that the formula reads, the response, and a unit a row."""
        frame = _drawn(self.laws, self.root, n, rng)
        mean = self.design.matrix(frame) @ self.slopes
        frame[self.design.response] = _response(self, frame, mean, rng)
        if self.schema.unit is not None:
            frame[self.schema.unit] = np.arange(n)
        return frame


def population(schema: Schema, formula: str, guesses: Guesses, family: Family) -> Population:
    """Return the people that guesses describe.

    Raises
    ------
    ArgumentError
        A guess names nothing of the formula, lies outside of the bounds, or contradicts another one.
    NotAvailableError
        People have several rows each.
    SchemaError
        The schema does not serve the formula.
    """
    if schema.max_rows > 1:
        raise NotAvailableError(
            f"up to {schema.max_rows} rows of one {schema.unit!r}: how alike they are would have to be "
            "guessed too; plan with max_rows=1, and read the answer as one about people, not rows"
        )
    schema, formula = _with_response(schema, formula)
    design = schema.design(formula)
    inputs = [name for name in design.inputs if name != design.response]
    _check_names(guesses, {*schema.columns, design.response}, design)
    laws = tuple(_law(schema, name, guesses) for name in inputs)
    root = _root(laws, guesses)
    pilot = _drawn(laws, root, PILOT, np.random.default_rng(0))
    slopes, sd, told = _slopes(design.matrix(pilot), design, schema, guesses, family)
    lines = (*(law.told for law in laws), *told)
    if family == "gaussian":
        lines += (f"residuals: sd {sd:.4g}, excess kurtosis {guesses.kurtosis:.3g}, {_spread_line(guesses)}",)
    return Population(
        schema, formula, design, family, laws, root, slopes, sd, guesses.kurtosis, guesses.spreads, lines
    )


def _spread_line(guesses: Guesses) -> str:
    by = ", ".join(f"times {math.exp(value):.3g} for each sd of {name}" for name, value in guesses.spreads.items())
    return by or "the same in every row"


def _with_response(schema: Schema, formula: str) -> tuple[Schema, str]:
    """Return a schema and a formula whose response is a column; an expression becomes one, of its bounds."""
    design = schema.design(formula)
    if design.response in schema:
        return schema, formula
    bounds, name = design.outcome.bounds, RESPONSE
    if bounds is None:
        raise NotAvailableError(
            f"the response {design.response!r} is made of public columns: declare it as a column of its own"
        )
    while name in schema:
        name += "_"
    made = schema.fill({name: Numeric(bounds.low, bounds.high)})
    return made, f"{name} ~ {formula.split('~', 1)[1]}"


def _check_names(guesses: Guesses, known: set[str], design: Design) -> None:
    """Refuse guesses of what is neither declared nor in the formula; one code book serves many formulas."""
    pairs = [*guesses.correlations, *(b for each in guesses.correlations.values() for b in each)]
    named = {"mean": guesses.means, "sd": guesses.sds, "shares": guesses.shares, "correlation": pairs,
             "spread": guesses.spreads}  # fmt: skip
    for what, names in named.items():
        _refuse_strange(what, names, known)
    _refuse_strange("coefficient", guesses.coefficients, set(design.names))


def _refuse_strange(what: str, names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"guesses: {what} of {shown_name(name)}: there is no such name; there are "
                f"{', '.join(sorted(known))}"
            )


# ---- columns


def _law(schema: Schema, name: str, guesses: Guesses) -> Law:
    item = schema[name]
    if isinstance(item, Factor):
        return _levels(name, item, guesses)
    if name in guesses.shares:
        raise ArgumentError(f"column {name!r} is a number: guess its mean and sd, not shares of levels")
    mean, sd = _moments(name, item.low, item.high, guesses)
    guessed = "guessed" if name in guesses.means and name in guesses.sds else "nothing guessed, from its bounds"
    if (name in guesses.means) != (name in guesses.sds):
        guessed = "one of them guessed, the other from its bounds"
    width = item.high - item.low
    return Law(
        name,
        item.low + width * _beta_quantiles((mean - item.low) / width, sd / width),
        np.empty(0),
        f"{name}: mean {mean:.4g}, sd {sd:.4g} ({guessed})",
    )


def _moments(name: str, low: float, high: float, guesses: Guesses) -> tuple[float, float]:
    """Return mean and sd of a column within its bounds."""
    mean = float(guesses.means.get(name, 0.5 * (low + high)))
    if not low < mean < high:
        raise ArgumentError(f"the guessed mean of {name!r} must lie between its bounds {low:g} and {high:g}")
    most = math.sqrt((mean - low) * (high - mean))
    sd = float(guesses.sds.get(name, most / math.sqrt(3.0)))
    if sd > 1.02 * most:
        raise ArgumentError(
            f"no column between {low:g} and {high:g} has the mean {mean:g} and the guessed sd {sd:g} of "
            f"{name!r}: the largest is {most:.4g}"
        )
    return mean, sd


def _beta_quantiles(mean: float, sd: float) -> Floats:
    """Return quantiles at `GRID` of the beta law on [0, 1] with this mean and sd."""
    size = mean * (1.0 - mean) / sd**2 - 1.0
    if size < 0.02:  # two points
        return np.where(norm.cdf(GRID) > 1.0 - mean, 1.0, 0.0)
    found: Floats = beta.ppf(norm.cdf(GRID), mean * size, (1.0 - mean) * size)
    return found


def _levels(name: str, item: Factor, guesses: Guesses) -> Law:
    """Return the law of a factor, in the order of its levels."""
    if name in guesses.sds:
        raise ArgumentError(f"column {name!r} has levels: guess their shares, not an sd")
    k = len(item.levels)
    given = guesses.shares.get(name)
    if given is None and name in guesses.means:
        if k != 2 or item.categorical:
            raise ArgumentError(f"column {name!r} has levels: guess their shares, not a mean")
        low, high = (float(level) for level in item.levels)
        given = (float(guesses.means[name]) - low) / (high - low)
    told = "nothing guessed, equal" if given is None else "guessed"
    if not isinstance(given, Mapping):
        if given is not None and k != 2:
            raise ArgumentError(f"column {name!r} has {k} levels: guess a share for each of them, by name")
        given = {} if given is None else {str(item.levels[1]): check_fraction(given, f"the share of {name!r}")}
    texts = [str(level) for level in item.levels]
    named = {str(level): check_fraction(share, f"a share of {name!r}") for level, share in given.items()}
    _refuse_strange(f"share in {name!r}", named, set(texts))
    left, free = 1.0 - sum(named.values()), k - len(named)
    if left < -1e-9 or (free == 0 and abs(left) > 1e-6) or (free and left <= 0.0):
        raise ArgumentError(f"the guessed shares of {name!r} do not add up to one")
    shares = np.array([named.get(text, left / max(free, 1)) for text in texts])
    listed = ", ".join(f"{text} {share:.3g}" for text, share in zip(texts, shares, strict=True))
    cuts: Floats = norm.ppf(np.minimum(np.cumsum(shares)[:-1], 1.0))
    return Law(name, tuple(item.levels), cuts, f"{name}: {listed} ({told})")


def _drawn(laws: tuple[Law, ...], root: Floats, n: int, rng: np.random.Generator) -> pd.DataFrame:
    import pandas as pd

    z = rng.standard_normal((n, len(laws))) @ root.T
    return pd.DataFrame({law.name: law.column(z[:, place]) for place, law in enumerate(laws)}, index=range(n))


def _root(laws: tuple[Law, ...], guesses: Guesses) -> Floats:
    """Return a root of the correlations behind the columns that give the columns the guessed ones."""
    k, places = len(laws), {law.name: place for place, law in enumerate(laws)}
    wanted = np.eye(k)
    for a, others in guesses.correlations.items():
        for b, value in others.items():
            limit = {"low": -1.0, "high": 1.0, "open_low": True, "open_high": True}
            if a not in places or b not in places:
                continue  # a column that this formula does not read
            number = check_number(value, f"the guessed correlation of {a!r} and {b!r}", **limit)
            for name in (a, b):
                law = laws[places[name]]
                if isinstance(law.values, tuple) and len(law.values) > 2 and isinstance(law.values[0], str):
                    raise ArgumentError(f"column {name!r} has no correlation: it has {len(law.values)} levels")
            if a == b:
                raise ArgumentError(f"the correlation of {a!r} with itself is 1")
            wanted[places[a], places[b]] = wanted[places[b], places[a]] = number
    if (wanted == np.eye(k)).all():
        return wanted
    z, asked = np.random.default_rng(1).standard_normal((PILOT, k)), wanted - np.eye(k) != 0.0
    latent = wanted.copy()
    for _ in range(12):
        root = _psd_root(latent)
        moved = z @ root.T
        found = np.corrcoef([law.numbers(moved[:, place]) for place, law in enumerate(laws)])
        gap = np.where(asked, wanted - found, 0.0)
        latent = np.clip(latent + gap, -0.999, 0.999)
        np.fill_diagonal(latent, 1.0)
    a, b = np.unravel_index(np.argmax(np.abs(gap)), gap.shape)
    if abs(gap[a, b]) > NEAR:
        raise ArgumentError(
            f"the guessed correlation of {laws[a].name!r} and {laws[b].name!r} cannot be had beside the other "
            f"guesses: it reaches {found[a, b]:.2f}"
        )
    return root


def _psd_root(matrix: Floats) -> Floats:
    """Return a root of the correlation matrix next to a symmetric matrix."""
    values, vectors = np.linalg.eigh(matrix)
    root: Floats = vectors * np.sqrt(np.maximum(values, 1e-9))
    return root / np.linalg.norm(root, axis=1, keepdims=True)


# ---- the response


def _slopes(
    X: Floats, design: Design, schema: Schema, guesses: Guesses, family: Family
) -> tuple[Floats, float, list[str]]:
    """Return coefficients, the residual sd of a numeric response, and what was taken for granted."""
    mean, sd, lines = _outcome(design, schema, guesses, family)
    rest = np.arange(X.shape[1]) != (-1 if design.constant is None else design.constant)
    own = sd if family == "gaussian" else math.pi / math.sqrt(3.0) if family == "binomial" else mean**-0.5
    told = _of_response(guesses, design.response)
    if told:
        slopes = _correlated(X, design, schema, told, (mean, sd), family)
        lines.append(f"coefficients: from correlations with {design.response}; of columns without one 0")
    elif guesses.coefficients:
        slopes = np.array([float(guesses.coefficients.get(name, 0.0)) for name in design.names])
        lines.append("coefficients: those guessed, all others 0")
    else:
        share = RSQUARED if guesses.rsquared is None else guesses.rsquared
        sizes = X.std(axis=0)
        slopes = np.where(rest & (sizes > 0.0), 1.0 / np.where(sizes > 0.0, sizes, 1.0), 0.0)
        if family == "gaussian":
            own = guesses.residual_sd or sd * math.sqrt(1.0 - share)
        slopes *= own * math.sqrt(share / (1.0 - share)) / (float(np.std(X @ slopes)) or 1.0)
        given = "guessed" if guesses.rsquared is not None else "nothing guessed"
        lines.append(f"R2 {share:.3g} ({given}), every column with the same share of it")
    if family == "gaussian" and (told or guesses.coefficients):
        own = _residual(float(np.std(X[:, rest] @ slopes[rest])), sd, guesses)
    if design.constant is not None and "Intercept" not in guesses.coefficients:
        slopes[design.constant] = _constant(X @ slopes, mean, family)
    return slopes, own if family == "gaussian" else math.nan, lines


def _of_response(guesses: Guesses, response: str) -> dict[str, float]:
    """Return the guessed correlations with the response, by column."""
    found = dict(guesses.correlations.get(response, {}))
    found |= {name: others[response] for name, others in guesses.correlations.items() if response in others}
    for name, value in found.items():
        check_number(value, f"the guessed correlation of {name!r} and {response!r}", low=-1.0, high=1.0)
    if found and (guesses.coefficients or guesses.rsquared is not None):
        raise ArgumentError(
            f"guesses: correlations with {response!r} say the coefficients and R2: leave those out, or these"
        )
    return found


def _correlated(
    X: Floats,
    design: Design,
    schema: Schema,
    told: Mapping[str, float],
    moments: tuple[float, float],
    family: Family,
) -> Floats:
    """Return the coefficients of columns with these correlations to a response of this mean and sd.

    They solve ``cov(x, g(c + x'b)) = r sd(x) sd(y)``, g the inverse link, c the intercept that gives the mean:
    by steps of least squares with the mean slope of g, of which a linear model needs one.
    """
    places, wanted = [], []
    for name in (name for name in told if name in design.inputs):
        item = schema[name]
        label = f"{name}[T.{item.levels[-1]}]" if isinstance(item, Factor) and item.categorical else name
        if label not in design.names:
            raise ArgumentError(f"the formula has no plain column {label!r}: guess coefficients, not correlations")
        places.append(design.names.index(label))
        wanted.append(told[name] * float(X[:, places[-1]].std()) * moments[1])
    slopes, centred = np.zeros(X.shape[1]), X[:, places] - X[:, places].mean(axis=0)
    gram = centred.T @ centred / len(X)
    for _ in range(1 if family == "gaussian" else 30):
        predictor = X @ slopes
        mean, steepness = predictor, 1.0
        if family != "gaussian":
            mean = _inverse_link(_constant(predictor, moments[0], family) + predictor, family)
            steepness = float(np.mean(mean * (1.0 - mean) if family == "binomial" else mean))
        gap = np.array(wanted) - centred.T @ mean / len(X)
        slopes[places] += np.linalg.solve(gram, gap) / steepness
    if family != "gaussian" and not np.all(np.abs(gap) <= 0.01 * centred.std(axis=0) * moments[1]):
        raise ArgumentError(f"no model has the guessed correlations with {design.response!r}")
    return slopes


def _inverse_link(predictor: Floats, family: Family) -> Floats:
    found: Floats = expit(predictor) if family == "binomial" else np.exp(np.minimum(predictor, 20.0))
    return found


def _outcome(
    design: Design, schema: Schema, guesses: Guesses, family: Family
) -> tuple[float, float, list[str]]:
    """Return mean and sd of the response, and what was taken for granted of them."""
    name, item = design.response, schema[design.response]
    if isinstance(item, Factor) and item.categorical:
        low, high = 0.0, 1.0  # its second level
    else:
        low, high = item.interval.low, item.interval.high
    share = guesses.shares.get(name)
    if isinstance(share, Mapping):
        raise ArgumentError(f"the response {name!r}: guess the share of its second level, one number")
    if family == "binomial" and (low, high) != (0.0, 1.0):
        raise ArgumentError(f"family='binomial' needs a response of 0 and 1, and {name!r} has other bounds")
    if share is not None:
        mean = low + (high - low) * check_fraction(share, f"the share of {name!r}")
        guesses = Guesses(means={name: mean}, sds={k: v for k, v in guesses.sds.items() if k == name})
        guessed = True
    else:
        guessed = name in guesses.means
    if family != "gaussian" and name in guesses.sds:
        raise ArgumentError(f"the sd of {name!r} follows from its mean where family={family!r}")
    mean, sd = _moments(name, low, high, guesses)
    if family != "gaussian":
        if mean <= 0.0:
            raise ArgumentError(f"the guessed mean of {name!r} must be positive where family={family!r}")
        sd = math.sqrt(mean * (1.0 - mean) if family == "binomial" else mean)
    line = f"{name}: mean {mean:.4g} ({'guessed' if guessed else 'middle of its bounds'})"
    if family == "gaussian":
        line += f", sd {sd:.4g} ({'guessed' if name in guesses.sds else 'from its bounds'})"
    return mean, sd, [line]


def _residual(spread: float, sd: float, guesses: Guesses) -> float:
    """Return the residual sd where coefficients are given, whose predictor has the sd `spread`."""
    if guesses.residual_sd is not None:
        return guesses.residual_sd
    if guesses.rsquared is not None:
        if guesses.rsquared == 0.0 or spread == 0.0:
            raise ArgumentError("rsquared beside coefficients says the residual sd, unless one of them is zero")
        return spread * math.sqrt((1.0 - guesses.rsquared) / guesses.rsquared)
    if spread >= sd:
        raise ArgumentError(
            f"the guessed effects alone give the response an sd of {spread:.4g}, and it has {sd:.4g}: guess its "
            "sd, or residual_sd"
        )
    return math.sqrt(sd**2 - spread**2)


def _constant(predictor: Floats, mean: float, family: Family) -> float:
    """Return the intercept that gives the response its mean."""
    if family == "gaussian":
        return mean - float(np.mean(predictor))
    if family == "poisson":
        return math.log(mean / float(np.mean(np.exp(predictor))))
    reach = 40.0 + float(np.max(np.abs(predictor)))
    return float(brentq(lambda c: float(np.mean(expit(c + predictor))) - mean, -reach, reach))


def _response(people: Population, frame: pd.DataFrame, mean: Floats, rng: np.random.Generator) -> object:
    """Return responses with these means (linear predictors, where there is a link)."""
    import pandas as pd

    item = people.schema[people.design.response]
    if isinstance(item, Factor) and item.categorical:
        share = _inverse_link(mean, "binomial") if people.family == "binomial" else np.clip(mean, 0.0, 1.0)
        return pd.Categorical.from_codes((rng.random(len(mean)) < share).astype(int), list(item.levels))
    low, high = item.interval.low, item.interval.high
    if people.family == "binomial":
        return (rng.random(len(mean)) < _inverse_link(mean, "binomial")).astype(float)
    if people.family == "poisson":
        return np.minimum(rng.poisson(_inverse_link(mean, "poisson")).astype(float), high)
    width = high - low
    place = np.clip((mean - low) / width, 1e-4, 1.0 - 1e-4)
    room = place * (1.0 - place)
    size = np.maximum(room / (_residual_sds(people, frame, rng) / width) ** 2 - 1.0, 0.01)
    drawn = rng.beta(place * size, (1.0 - place) * size)
    if isinstance(item, Factor):
        levels = np.sort(np.asarray(item.levels, dtype=np.float64))
        if len(levels) == 2:
            return np.where(rng.random(len(mean)) < place, levels[1], levels[0])
        return levels[np.argmin(np.abs(low + width * drawn[:, None] - levels), axis=1)]
    return low + width * drawn


def _residual_sds(people: Population, frame: pd.DataFrame, rng: np.random.Generator) -> Floats:
    """Return each row's residual sd: of the guessed mean square, kurtosis and spreads."""
    logs = np.zeros(len(frame))
    for name, value in people.spreads.items():
        column = frame[name].to_numpy(dtype=np.float64)
        logs += value * (column - column.mean()) / (column.std() or 1.0)
    sds = people.residual_sd * np.exp(logs) / math.sqrt(float(np.mean(np.exp(2.0 * logs))))
    if people.kurtosis == 0.0:
        return sds
    df = 4.0 + 6.0 / people.kurtosis
    return sds * np.sqrt((df - 2.0) / rng.chisquare(df, len(sds)))
