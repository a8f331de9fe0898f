"""Made-up people: guesses become rows, with a response that follows the columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit

from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.model import spending_of
from privinf.mechanisms.gaussian import WORDS, total_mu
from privinf.planning.guesses import (
    PILOT,
    ColumnLaw,
    Guesses,
    drawn,
    law_of,
    moments_of,
    of_response,
    refuse_strange,
    residual_of,
    root_of,
)  # fmt: skip
from privinf.schema import Design, Schema
from privinf.schema.declared import Factor, Numeric
from privinf.typing import Family, Floats, PartyColumns, SpendingWords
from privinf.validation import check_choice, check_count, check_fraction, check_words

RSQUARED = 0.2
StudyTrust = Literal["central", "server", "secure-sum", "local", "per-party"]
LARGEST_STUDY = 5_000_000
LEVEL_WORDS = ("epsilon", "mu", "rho")
NOT_PLANNED = {
    "source": "is for secure noise: a plan makes noise up, from rng",
    "calibration": "is not planned for: fits calibrate exactly",
}
MOST_PLANNED = 20
NO_PARTIES = (
    "trust='per-party' needs parties=, the columns of each, the response's among them; others need none"
)
RESPONSE_COLUMN = "response"
CLUSTERED = (
    "up to {} rows of one {!r}: how alike they are would have to be guessed too; plan with max_rows=1, and "
    "read the answer as one about people, not rows"
)


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Made-up people, from whom any number of rows can be drawn.

    Attributes
    ----------
    schema, formula
        What a fit is told; a response that is an expression has become a column of its own.
    design : Design
        Of this formula.
    guesses : Guesses
    laws : tuple of ColumnLaw
        Of the columns that the formula reads.
    root : array, shape (k, k)
        Of the correlations of the normal numbers behind the columns.
    slopes : array, shape (p,)
        Of the design's columns, user units.
    residual_sd : float
        Of a numeric response; nan otherwise.
    told : tuple of str
        What was taken for granted, a line each.

    Notes
    -----
    Columns are beta laws on their bounds with the guessed mean and sd (two points at the bounds where the sd
    allows no other), joined by normal numbers whose correlations are found so that the columns have the
    guessed ones. A numeric response has the mean ``x'b`` and a beta law around it, of the residual sd as far
    as its bounds leave room; for the kurtosis k its variance is divided by a chi-square over its degrees of
    freedom less 2, 4 + 6/k of them, which would make a normal law Student's t.
    """

    schema: Schema
    formula: str
    design: Design
    family: Family
    guesses: Guesses
    laws: tuple[ColumnLaw, ...]
    root: Floats
    slopes: Floats
    residual_sd: float
    told: tuple[str, ...]

    def rows(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Return `n` made-up rows: the columns that the formula reads, the response, and a unit a row."""
        frame = drawn(self.laws, self.root, n, rng)
        item = self.schema[self.design.response]
        mean = _inverse_link(self.design.matrix(frame) @ self.slopes, self.family)
        frame[self.design.response] = _response(self, item, frame, mean, rng)
        if self.schema.unit is not None:
            frame[self.schema.unit] = np.arange(n)
        return frame


def population(schema: Schema, formula: str, guesses: Guesses, family: Family) -> Population:
    """Return the people that guesses describe.

    Raises
    ------
    ArgumentError
        A guess names nothing of schema or formula, lies outside of the bounds, or contradicts another one.
    NotAvailableError
        People have several rows each.
    SchemaError
        The schema does not serve the formula.
    """
    if schema.max_rows > 1:
        raise NotAvailableError(CLUSTERED.format(schema.max_rows, schema.unit))
    schema, formula = _with_response(schema, formula)
    design = schema.design(formula)
    inputs = [name for name in design.inputs if name != design.response]
    known = {*schema.columns, design.response}
    pairs = [*guesses.correlations, *(b for each in guesses.correlations.values() for b in each)]
    for what, names in (("mean", guesses.means), ("sd", guesses.sds), ("shares", guesses.shares),
                        ("correlation", pairs)):  # fmt: skip
        refuse_strange(what, names, known)  # a code book serves many formulas
    refuse_strange("coefficient", guesses.coefficients, design.names)
    laws = tuple(law_of(schema, name, guesses) for name in inputs)
    refuse_strange("spread by a number", guesses.spreads, [law.name for law in laws if law.cuts is None])
    root = root_of(laws, guesses)
    X = design.matrix(drawn(laws, root, PILOT, np.random.default_rng(0)))
    slopes, residual_sd, told = _slopes(X, design, schema, guesses, family)
    lines = (*(law.told for law in laws), *told)
    return Population(schema, formula, design, family, guesses, laws, root, slopes, residual_sd, lines)


def _with_response(schema: Schema, formula: str) -> tuple[Schema, str]:
    """Return a schema and a formula whose response is a column; an expression becomes one, of its bounds."""
    design = schema.design(formula)
    bounds, name = design.outcome.bounds, RESPONSE_COLUMN
    if design.response in schema:
        return schema, formula
    if bounds is None:
        raise NotAvailableError(
            f"the response {design.response!r} is made of public columns: declare a column of it"
        )
    while name in schema:
        name += "_"
    return schema.fill({name: Numeric(bounds.low, bounds.high)}), f"{name} ~ {formula.split('~', 1)[1]}"


def _slopes(
    X: Floats, design: Design, schema: Schema, guesses: Guesses, family: Family
) -> tuple[Floats, float, list[str]]:
    """Return coefficients, the residual sd of a numeric response, and what was taken for granted."""
    mean, sd, lines = _outcome(design, schema, guesses, family)
    numeric = family == "gaussian"
    own = sd if numeric else math.pi / math.sqrt(3.0) if family == "binomial" else mean**-0.5
    told = of_response(guesses, design, family)
    if told or guesses.coefficients:
        slopes = np.array([float(guesses.coefficients.get(name, 0.0)) for name in design.names])
        if told:
            places = [design.names.index(name) for name in told]
            sizes = X[:, places].std(axis=0)
            cov = np.atleast_2d(np.cov(X[:, places].T))
            slopes[places] = np.linalg.solve(cov, sizes * sd * list(told.values()))
        spread = float(np.std(X @ slopes))
        own = residual_of(spread, sd, guesses) if numeric else own
        lines.append(f"coefficients: from {'correlations' if told else 'guesses'}, all others 0")
    else:
        share = RSQUARED if guesses.rsquared is None else guesses.rsquared
        slopes = np.array([1.0 / size if size > 0.0 else 0.0 for size in X.std(axis=0)])
        own = guesses.residual_sd or sd * math.sqrt(1.0 - share) if numeric else own
        slopes *= own * math.sqrt(share / (1.0 - share)) / (float(np.std(X @ slopes)) or 1.0)
        given = "guessed" if guesses.rsquared is not None else "nothing guessed"
        lines.append(f"R2 {share:.3g} ({given}), every column with the same share of it")
    if design.constant is not None and "Intercept" not in guesses.coefficients:
        slopes[design.constant] = _constant(X @ slopes, mean, family)
    if numeric:
        by = ", ".join(f"times {math.exp(one):.3g} per sd of {name}" for name, one in guesses.spreads.items())
        lines.append(f"residuals: sd {own:.4g}, excess kurtosis {guesses.kurtosis:.3g}{by and ', '}{by}")
    return slopes, own if numeric else math.nan, lines


def _outcome(
    design: Design, schema: Schema, guesses: Guesses, family: Family
) -> tuple[float, float, list[str]]:
    """Return mean and sd of the response, and what was taken for granted of them."""
    name, item = design.response, schema[design.response]
    coded = isinstance(item, Factor) and item.categorical
    low, high = (0.0, 1.0) if coded else (item.interval.low, item.interval.high)
    if family == "binomial" and (low, high) != (0.0, 1.0):
        raise ArgumentError(f"family='binomial' needs a response of 0 and 1, and {name!r} has other bounds")
    if name in guesses.shares:
        raise ArgumentError(
            f"{name!r} is the response: guess its mean (of two levels: the second one's share)"
        )
    if family != "gaussian" and name in guesses.sds:
        raise ArgumentError(f"the sd of {name!r} follows from its mean where family={family!r}")
    mean, sd = moments_of(name, low, high, guesses)
    line = f"{name}: mean {mean:.4g} ({'guessed' if name in guesses.means else 'middle of its bounds'})"
    if family == "poisson" and mean <= 0.0:
        raise ArgumentError(f"the guessed mean of {name!r} must be positive where family='poisson'")
    if family == "gaussian":
        line += f", sd {sd:.4g} ({'guessed' if name in guesses.sds else 'from its bounds'})"
    return mean, sd, [line]


def _inverse_link(predictor: Floats, family: Family) -> Floats:
    if family == "gaussian":
        return predictor
    found: Floats = expit(predictor) if family == "binomial" else np.exp(np.minimum(predictor, 20.0))
    return found


def _constant(predictor: Floats, mean: float, family: Family) -> float:
    """Return the intercept that gives the response its mean."""
    if family == "gaussian":
        return mean - float(np.mean(predictor))
    reach = 40.0 + float(np.max(np.abs(predictor)))
    return float(brentq(lambda c: np.mean(_inverse_link(c + predictor, family)) - mean, -reach, reach))


def _response(
    people: Population, item: Any, frame: pd.DataFrame, mean: Floats, rng: np.random.Generator
) -> Any:
    """Return responses of these means."""
    if isinstance(item, Factor) and item.categorical:
        return pd.Categorical(
            np.asarray(item.levels)[(rng.random(len(mean)) < mean).astype(int)], item.levels
        )
    low, high = item.interval.low, item.interval.high
    if people.family == "binomial":
        return (rng.random(len(mean)) < mean).astype(float)
    if people.family == "poisson":
        return np.minimum(rng.poisson(mean).astype(float), high)
    place = np.clip((mean - low) / (high - low), 1e-4, 1.0 - 1e-4)
    sds = _residual_sds(people, frame, rng) / (high - low)
    size = np.maximum(place * (1.0 - place) / sds**2 - 1.0, 0.01)
    values = low + (high - low) * rng.beta(place * size, (1.0 - place) * size)
    if isinstance(item, Factor):
        levels = np.sort(np.asarray(item.levels, dtype=np.float64))
        if len(levels) == 2:
            return levels[(rng.random(len(mean)) < place).astype(int)]
        return levels[np.argmin(np.abs(values[:, None] - levels), axis=1)]
    return values


def _residual_sds(people: Population, frame: pd.DataFrame, rng: np.random.Generator) -> Floats:
    """Return each row's residual sd: of the guessed mean square, kurtosis and spreads."""
    logs = np.zeros(len(frame))
    for name, value in people.guesses.spreads.items():
        column = frame[name].to_numpy(dtype=np.float64)
        logs += value * (column - column.mean()) / (column.std() or 1.0)
    sds: Floats = people.residual_sd * np.exp(logs) / math.sqrt(float(np.mean(np.exp(2.0 * logs))))
    if people.guesses.kurtosis == 0.0:
        return sds
    df = 4.0 + 6.0 / people.guesses.kurtosis
    return sds * np.sqrt((df - 2.0) / rng.chisquare(df, len(sds)))


# ---- the question


class StudyWords(SpendingWords, total=False):
    """Words of a plan; see `plan_study`."""

    guesses: Guesses | None
    family: Family
    trust: StudyTrust | None
    parties: PartyColumns | None
    estimators: Sequence[str] | None
    which: Sequence[str] | None
    alpha: float
    progress: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One question to the simulation.

    Attributes
    ----------
    people : Population
        Who is made up.
    schema, formula
        What the fit is told: those of `people`, or tighter bounds and fewer terms.
    spending : mapping
        Words of a level, as every ``fit`` takes them.
    which : tuple of str
        Coefficients that are planned for.
    seed : int
        Of rows and noise: the same for every question, so that answers differ by what was asked.
    """

    people: Population
    schema: Schema
    formula: str
    n: int
    spending: Mapping[str, Any]
    trust: StudyTrust
    parties: PartyColumns | None
    which: tuple[str, ...]
    alpha: float
    seed: int

    @property
    def word(self) -> str:
        """Which of epsilon, mu and rho says what is spent."""
        return next(name for name in LEVEL_WORDS if name in self.spending)

    @property
    def budget(self) -> str:
        """What is spent, in words."""
        return ", ".join(f"{name} {value:g}" for name, value in self.spending.items())


def question(schema: Schema, formula: str, n: int, words: StudyWords) -> Case:
    """Return the checked question."""
    check_words(words, (*StudyWords.__annotations__, *WORDS))
    if not isinstance(schema, Schema):
        raise ArgumentError(f"schema must be a privinf.Schema, got {type(schema).__name__}")
    if check_count(n, "n", least=5) > LARGEST_STUDY:
        raise ArgumentError(f"n={n} is more than {LARGEST_STUDY:,}, to which made-up rows go: plan for these")
    family = check_choice(words.get("family", "gaussian"), Family, "family")
    trust = check_choice(words.get("trust") or "central", StudyTrust, "trust")
    parties, guesses = words.get("parties"), words.get("guesses") or Guesses()
    if (trust == "per-party") != (parties is not None):
        raise ArgumentError(NO_PARTIES)
    if not isinstance(guesses, Guesses):
        raise ArgumentError(f"guesses must be privinf.Guesses, got {type(guesses).__name__}")
    spending: Any = spending_of({name: words.get(name) for name in WORDS}, NOT_PLANNED)
    seed = check_count(spending.pop("rng", 0), "rng", least=0)
    total_mu(spending)
    alpha, people = (
        check_fraction(words.get("alpha", 0.05), "alpha"),
        population(schema, formula, guesses, family),
    )
    names, constant, which = people.design.names, people.design.constant, words.get("which")
    if which is None:
        which = [name for place, name in enumerate(names) if place != constant][:MOST_PLANNED]
    planned = tuple(dict.fromkeys(check_choice(name, names, "which") for name in which))
    if not planned:
        raise ArgumentError(f"which names no coefficient; there are {', '.join(names)}")
    return Case(people, people.schema, people.formula, n, spending, trust, parties, planned, alpha, seed)
