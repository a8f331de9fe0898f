"""Simulated people: guesses become rows, with a response that follows the columns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, SchemaError
from privinf.glm.hazards.model import PHReg
from privinf.glm.hazards.rows import NO_CONSTANT, event_column, with_status
from privinf.mechanisms.gaussian import total_mu
from privinf.planning.guesses import (
    CALIBRATION_PEOPLE,
    ColumnDistribution,
    Guesses,
    distribution_of,
    drawn,
    refuse_strange,
    root_of,
)
from privinf.planning.response import (
    ResidualDistribution,
    SkewedResponse,
    constant_for,
    dispersion_of,
    dropout_of,
    event_times,
    has_two_levels,
    inverse_link,
    of_response,
    outcome_of,
    residual_distribution,
    residual_of,
    skewed_response,
    survival_of,
    times_assumption,
)
from privinf.schema import Design, Schema
from privinf.schema.declared import Factor, Numeric
from privinf.schema.formulas import terms_by_column
from privinf.schema.table import check_schema
from privinf.typing import Floats, PartyColumns, SpendingOptions, StudyFamily, TrustModel
from privinf.validation import check_choice, check_count, check_fraction

RSQUARED = 0.2  # of the response, where none is guessed
LARGEST_STUDY = 5_000_000  # simulated rows of a study
FIRST_PEOPLE = 10_000  # people of a plan whose n is not passed
LEVEL_WORDS = ("epsilon", "mu", "rho")  # arguments that state a level of privacy
NOT_PLANNED = {
    "source": "is not available in a planned study, whose noise is simulated from rng=",
    "calibration": 'is not available in a planned study, which always uses calibration="exact"',
}
LEAST_FITS = 4  # simulated fits, below which a plan cannot state the error of its widths
MOST_PLANNED = 20  # coefficients whose intervals are predicted, the first ones
# Family of models that are planned, by the names that statsmodels and this package have for the models.
FAMILIES_OF_MODELS = {
    **dict.fromkeys(("logit", "logistic", "bernoulli"), "binomial"),
    **dict.fromkeys(("ols", "linear", "normal"), "gaussian"),
    **dict.fromkeys(("negativebinomial", "negbin", "nb"), "negative-binomial"),
    **dict.fromkeys(("cox", "phreg", "survival"), "hazards"),
}
NO_PARTIES = (
    "trust='per-party' needs parties=: pass a mapping of each party to its columns, in which one party "
    "has the response"
)
NOT_PER_PARTY = (
    "parties= can be used only with trust='per-party': pass this trust model too, or leave parties= out"
)
NO_SLOPES = (
    "the formula has only a constant, so there is no slope to plan for: plan the mean of a column by "
    "pi.stats.plan_mean(), or a share by pi.stats.plan_proportion()"
)
RESPONSE_COLUMN = "response"
CONSTANT_TERM = "Intercept"  # patsy's name of the constant
NO_STATUS = (
    "family='hazards' needs status=: pass the name of the column that is 1 if the time ends with the event "
    "and 0 if it is censored"
)
SKEW_NOT_GUESSED = (
    "skewness {:.1f} (not guessed: if the response has a longer tail, as costs and lengths of stay have, "
    "pass its skewness, such as skews={{{!r}: 3}}, because intervals of OLS can be 1.6 times as wide)"
)
NOT_HAZARDS = "status= can be used only with family='hazards'"
NOT_COUNTS = "exposure= can be used only with family='poisson' or family='negative-binomial'"
NO_EXPOSURE = (
    "exposure= must be the name of a numeric column that the schema declares, with a lower bound above 0, "
    "such as the years at risk of each person"
)
EXPOSURE_IS_TERM = "the column {!r} is passed as exposure=, so it cannot also be the response or in a term"
CLUSTERED = (
    "a study with up to {} rows for each {!r} cannot be planned, because the correlation "
    "of these rows is unknown; plan with max_rows=1 and n= the number of people"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Population:
    """Simulated people, from whom any number of rows can be drawn.

    Attributes
    ----------
    schema, formula
        Schema of the fit; a response that is an expression has become a column of its own.
    design : Design
        Of this formula.
    guesses : Guesses
    distributions : tuple of ColumnDistribution
        Of the columns that the formula reads.
    root : array, shape (k, k)
        Of the correlations of the normal numbers behind the columns.
    slopes : array, shape (p,)
        Of the design's columns, user units.
    residuals : ResidualDistribution, SkewedResponse or None
        Of a numeric response.
    assumptions : tuple of str
        Assumptions, a line each.
    status : str or None
        Column of the status of times until an event.
    dropout : float
        Share of the people without the event whose times are censored before the end of the follow-up.
    exposure : str or None
        Column of the exposures t of counts, whose means are ``t exp(x'b)``.

    Notes
    -----
    Columns are beta distributions on their bounds with the guessed mean and sd (two points at the bounds
    where the sd allows no other; where a skewness is guessed, with another end), joined by normal numbers
    whose correlations are found so that the columns have the guessed ones. A
    numeric response has the mean ``x'b`` and a `ResidualDistribution` around it. Times until an event and
    until dropout are exponential; ``x'b`` is the logarithm of the hazard cumulated over the follow-up.
    """

    schema: Schema
    formula: str
    design: Design
    family: StudyFamily
    guesses: Guesses
    distributions: tuple[ColumnDistribution, ...]
    root: Floats
    slopes: Floats
    residuals: ResidualDistribution | SkewedResponse | None
    assumptions: tuple[str, ...]
    status: str | None = None
    dropout: float = 0.0
    exposure: str | None = None

    def rows(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Return `n` simulated rows: the columns that the formula reads, the response, and a unit a row."""
        frame = drawn(self.distributions, self.root, n, rng)
        item = self.schema[self.design.response]
        predictor = self.design.matrix(frame) @ self.slopes + log_exposure(frame, self.exposure)
        if self.status is None:
            response = _response(self, item, frame, inverse_link(predictor, self.family), rng)
        else:
            response, event = event_times(predictor, self.dropout, item.interval.high, rng)
            frame[self.status] = _status(self.schema[self.status], event)
        if self.guesses.complete < 1.0:
            response = pd.Series(response).mask(rng.random(n) >= self.guesses.complete)
        frame[self.design.response] = response
        if self.schema.unit is not None:
            frame[self.schema.unit] = np.arange(n)
        return frame


def log_exposure(frame: pd.DataFrame, exposure: str | None) -> Floats:
    """Return the logarithm of the exposure of each simulated row; 0 without exposures."""
    return np.zeros(len(frame)) if exposure is None else np.log(frame[exposure].to_numpy(dtype=np.float64))


def population(
    schema: Schema,
    formula: str,
    guesses: Guesses,
    family: StudyFamily,
    status: str | None = None,
    exposure: str | None = None,
) -> Population:
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
    schema, formula = _with_response(schema.in_days(), formula)
    design = Design.from_formula(formula, schema)
    inputs = [name for name in design.inputs if name != design.response]
    if exposure is not None:
        _check_exposure(schema, exposure, [*inputs, design.response], family)
        inputs.append(exposure)
    names_known = {*schema.columns, design.response}
    pairs = [*guesses.correlations, *(b for partners in guesses.correlations.values() for b in partners)]
    for subject, names in (
        ("a mean for", guesses.means),
        ("an sd for", guesses.sds),
        ("a skewness for", guesses.skews),
        ("shares for", guesses.shares),
        ("a correlation for", pairs),
    ):
        refuse_strange(subject, names, names_known)  # a code book serves many formulas
    names_fitted = [name for j, name in enumerate(design.names) if status is None or j != design.constant]
    refuse_strange("a coefficient for", guesses.coefficients, names_fitted, "coefficients")
    distributions = tuple(distribution_of(schema, name, guesses) for name in inputs)
    refuse_strange(
        "a residual spread that changes with",
        guesses.spreads,
        [distribution.name for distribution in distributions if distribution.cuts is None],
        "numeric columns of the formula",
    )
    root = root_of(distributions, guesses)
    frame = drawn(distributions, root, CALIBRATION_PEOPLE, np.random.default_rng(0))
    X = design.matrix(frame)
    survival = survival_of(design, guesses, family)
    offset = log_exposure(frame, exposure)
    slopes, residual_sd, assumptions = _slopes(X, design, schema, guesses, family, survival, offset)
    dropout = 0.0
    if status is not None:
        dropout = dropout_of(X @ slopes, guesses)
        horizon = schema[design.response].interval.high
        assumptions.insert(0, times_assumption(design.response, horizon, survival, dropout, guesses))
    residuals: ResidualDistribution | SkewedResponse | None = None
    if family == "gaussian" and not has_two_levels(schema[design.response]):
        mean = X @ slopes
        places, width = _places(mean, schema[design.response])
        if design.response in guesses.skews:
            low, high = schema[design.response].interval.low, schema[design.response].interval.high
            residuals = skewed_response(design.response, residual_sd, guesses, mean, low, high)
            assumptions.append(_skewness_assumption(residuals, design.response, guesses))
        else:
            residuals = residual_distribution(residual_sd, guesses, frame, places, width)
            assumptions.append(_residual_assumption(residuals, design.response, guesses))
    if exposure is not None:
        rate = float(np.mean(np.exp(X @ slopes + offset)) / np.mean(np.exp(offset)))
        assumptions.append(f"rate: {rate:.4g} of {design.response} per unit of {exposure}")
    if guesses.complete < 1.0:
        assumptions.append(f"{guesses.complete:.0%} of the rows are complete, at random")
    lines = (*(distribution.description for distribution in distributions), *assumptions)
    return Population(
        schema=schema,
        formula=formula,
        design=design,
        family=family,
        guesses=guesses,
        distributions=distributions,
        root=root,
        slopes=slopes,
        residuals=residuals,
        assumptions=lines,
        status=status,
        dropout=dropout,
        exposure=exposure,
    )


def _check_exposure(schema: Schema, exposure: str, used: Sequence[str], family: StudyFamily) -> None:
    """Raise ArgumentError unless a column serves as the exposures of counts."""
    if family not in ("poisson", "negative-binomial"):
        raise ArgumentError(NOT_COUNTS)
    item = schema[exposure] if isinstance(exposure, str) and exposure in schema else None
    if not isinstance(item, Numeric) or not item.low > 0.0:
        raise ArgumentError(NO_EXPOSURE)
    if exposure in used:
        raise ArgumentError(EXPOSURE_IS_TERM.format(exposure))


def _check_status(schema: Schema, formula: str, status: str | None, family: StudyFamily) -> None:
    """Raise ArgumentError or SchemaError unless the status serves the formula and the family."""
    if (status is None) != (family != "hazards"):
        raise ArgumentError(NO_STATUS if status is None else NOT_HAZARDS)
    if status is None:
        return
    if not isinstance(status, str) or status not in schema:
        raise ArgumentError("status= must be the name of a column that the schema declares")
    design = Design.from_formula(with_status(formula, status, schema, event_of(schema, status)), schema)
    event_column(design, status)
    if design.constant is None:
        raise SchemaError(NO_CONSTANT)


def event_of(schema: Schema, status: str | None) -> Any:
    """Return the level of a status that is the event, the second of a factor; None of other columns."""
    if status is None or status not in schema:
        return None
    declared = schema[status]
    return declared.levels[1] if isinstance(declared, Factor) and len(declared.levels) == 2 else None


def _status(item: Any, event: Floats) -> Any:
    """Return the status column of events: 1 and 0, or the levels of a factor."""
    if not isinstance(item, Factor):
        return event
    values = np.asarray(item.levels)[event.astype(int)]
    return pd.Categorical(values, item.levels) if item.categorical else values


def _places(mean: Floats, item: Any) -> tuple[Floats, float]:
    """Return the means of a numeric response as shares of its bounds, and the width of these."""
    coded = isinstance(item, Factor) and item.categorical
    low, high = (0.0, 1.0) if coded else (item.interval.low, item.interval.high)
    return np.clip((mean - low) / (high - low), 1e-4, 1.0 - 1e-4), high - low


def _skewness_assumption(response: SkewedResponse, name: str, guesses: Guesses) -> str:
    end = "upper" if response.mirrored else "lower"
    return (
        f"{name}: skewness {response.skewness:.3g} (guessed {guesses.skews[name]:g}), residual sd "
        f"{response.sd:.4g}, proportional to the distance of the mean from the {end} bound"
    )


def _residual_assumption(residuals: ResidualDistribution, name: str, guesses: Guesses) -> str:
    by = ", ".join(
        f"multiplied by {math.exp(log_ratio):.3g} for each sd of {name}"
        for name, log_ratio in guesses.spreads.items()
    )
    room = (
        ""
        if abs(residuals.kurtosis - guesses.kurtosis) < 0.05
        else " (the nearest value that the bounds allow)"
    )
    text = f"residuals: sd {residuals.sd:.4g}, excess kurtosis {round(residuals.kurtosis, 2) + 0.0:.3g}{room}"
    return f"{text}{by and ', '}{by}, {SKEW_NOT_GUESSED.format(residuals.skewness + 0.0, name)}"


def _with_response(schema: Schema, formula: str) -> tuple[Schema, str]:
    """Return a schema and a formula whose response is a column; an expression becomes one, of its bounds."""
    design = Design.from_formula(formula, schema)
    bounds = design.outcome.bounds
    name = RESPONSE_COLUMN
    if design.response in schema:
        return schema, formula
    if bounds is None:
        raise NotAvailableError(
            f"the response {design.response!r} is computed from columns that are all public; "
            "declare the response itself as a column in the schema"
        )
    while name in schema:
        name += "_"
    return schema.fill({name: Numeric(bounds.low, bounds.high)}), f"{name} ~ {formula.split('~', 1)[1]}"


def _slopes(
    X: Floats,
    design: Design,
    schema: Schema,
    guesses: Guesses,
    family: StudyFamily,
    survival: float,
    offset: Floats,
) -> tuple[Floats, float, list[str]]:
    """Return coefficients, the residual sd of a numeric response, and the assumptions."""
    numeric = family == "gaussian"
    if family == "hazards":
        mean = survival
        sd = math.pi / math.sqrt(6.0)
        lines: list[str] = []
    else:
        mean, sd, lines = outcome_of(design, schema, guesses, family)
    residual_sd = sd if numeric or family == "hazards" else mean**-0.5
    if family == "binomial":
        residual_sd = math.pi / math.sqrt(3.0)
    if family == "negative-binomial":
        residual_sd = math.sqrt(1.0 / mean + dispersion_of(guesses))
    correlations = of_response(guesses, design, family)
    if correlations or guesses.coefficients:
        slopes = np.array([float(guesses.coefficients.get(name, 0.0)) for name in design.names])
        if correlations:
            places = [design.names.index(name) for name in correlations]
            sizes = X[:, places].std(axis=0)
            cov = np.atleast_2d(np.cov(X[:, places].T))
            slopes[places] = np.linalg.solve(cov, sizes * sd * list(correlations.values()))
        spread = float(np.std(X @ slopes))
        residual_sd = residual_of(spread, sd, guesses) if numeric else residual_sd
        lines.append(
            f"coefficients: from the guessed {'correlations' if correlations else 'coefficients'}; "
            "all other coefficients are 0"
        )
    else:
        share = RSQUARED if guesses.rsquared is None else guesses.rsquared
        slopes = np.array([1.0 / size if size > 0.0 else 0.0 for size in X.std(axis=0)])
        residual_sd = guesses.residual_sd or sd * math.sqrt(1.0 - share) if numeric else residual_sd
        slopes *= residual_sd * math.sqrt(share / (1.0 - share)) / (float(np.std(X @ slopes)) or 1.0)
        source = "guessed" if guesses.rsquared is not None else "not guessed"
        lines.append(f"R-squared {share:.3g} ({source}), divided equally among the columns")
    if design.constant is not None and "Intercept" not in guesses.coefficients:
        slopes[design.constant] = constant_for(X @ slopes + offset, mean, family)
    return slopes, residual_sd if numeric else math.nan, lines


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
    if people.family == "negative-binomial" and (alpha := dispersion_of(people.guesses)) > 0.0:
        mean = mean * rng.gamma(1.0 / alpha, alpha, len(mean))
    if people.family in ("poisson", "negative-binomial"):
        return np.minimum(rng.poisson(mean).astype(float), high)
    place, width = _places(mean, item)
    if has_two_levels(item):
        levels = np.sort(np.asarray(item.levels, dtype=np.float64))
        return levels[(rng.random(len(mean)) < place).astype(int)]
    if isinstance(people.residuals, SkewedResponse):
        values = people.residuals.responses(mean, low, high, rng)
        return _nearest_level(item, values) if isinstance(item, Factor) else values
    assert people.residuals is not None
    size = people.residuals.precisions(frame, place, width, rng)
    values = low + (high - low) * rng.beta(place * size, (1.0 - place) * size)
    return _nearest_level(item, values) if isinstance(item, Factor) else values


def _nearest_level(item: Factor, values: Floats) -> Floats:
    """Return the levels of a numeric factor that are nearest to these values."""
    levels: Floats = np.sort(np.asarray(item.levels, dtype=np.float64))
    nearest: Floats = levels[np.argmin(np.abs(values[:, None] - levels), axis=1)]
    return nearest


# ---- cases


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StudyOptions:
    """Options of `plan_study`, which describes them."""

    guesses: Guesses | None = None
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    rho: float | None = None
    rng: int | None = None
    family: StudyFamily = "gaussian"
    status: str | None = None
    exposure: str | None = None
    trust: TrustModel | None = None
    parties: PartyColumns | None = None
    estimators: Sequence[str] | None = None
    which: Sequence[str] | None = None
    alpha: float = 0.05
    fits: int | None = None
    progress: bool | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Case:
    """One case of the simulation.

    Attributes
    ----------
    people : Population
        Simulated people.
    schema, formula
        Schema and formula of the fit: those of `people`, or tighter bounds and fewer terms.
    spending : mapping
        Words of a level, as every ``fit`` takes them.
    which : tuple of str
        Coefficients that are planned for.
    seed : int
        Seed of rows and noise: the same for every case, so that results differ only by the case.
    fits : int or None
        Largest number of simulated fits of an estimator; None for the default.
    """

    people: Population
    schema: Schema
    formula: str
    n: int
    spending: Mapping[str, Any]
    trust: TrustModel
    parties: PartyColumns | None
    which: tuple[str, ...]
    alpha: float
    seed: int
    fits: int | None = None

    @property
    def word(self) -> str:
        """The stated one of epsilon, mu and rho."""
        return next(name for name in LEVEL_WORDS if name in self.spending)

    @property
    def columns_by_term(self) -> dict[str, list[str]]:
        """Names of the columns of each term of the formula, without the constant."""
        grouped: dict[str, list[str]] = {}
        for column, term in terms_by_column(self.formula, self.schema).items():
            if term != CONSTANT_TERM:
                grouped.setdefault(term, []).append(column)
        return grouped

    @property
    def budget(self) -> str:
        """The budget in words."""
        return ", ".join(f"{name} {value:g}" for name, value in self.spending.items())


def check_family(family: Any) -> Any:
    """Return a family of planned studies; ArgumentError, which translates names of models, for others."""
    if isinstance(family, str) and (meant := FAMILIES_OF_MODELS.get(family.lower())) is not None:
        raise ArgumentError(f"family={family!r} is the name of a model: pass family={meant!r}")
    return check_choice(family, StudyFamily, "family")


def checked_case(schema: Schema, formula: str, n: int, options: StudyOptions) -> Case:
    """Return the case of checked arguments."""
    check_schema(schema)
    if check_count(n, "n", least=5) > LARGEST_STUDY:
        raise ArgumentError(
            f"n={n} must be at most {LARGEST_STUDY:,}, because each person is a simulated row; pass "
            "a smaller n"
        )
    family = check_family(options.family)
    trust = check_choice(options.trust or "central", TrustModel, "trust")
    parties = options.parties
    guesses = options.guesses or Guesses()
    if (trust == "per-party") != (parties is not None):
        raise ArgumentError(NO_PARTIES if parties is None else NOT_PER_PARTY)
    if not isinstance(guesses, Guesses):
        raise ArgumentError(f"guesses= must be a privinf.Guesses object, got {type(guesses).__name__}")
    budget = SpendingOptions(epsilon=options.epsilon, delta=options.delta, mu=options.mu, rho=options.rho)
    spending = budget.spending()
    seed = check_count(0 if options.rng is None else options.rng, "rng", least=0)
    total_mu(spending)
    alpha = check_fraction(options.alpha, "alpha")
    fits = None if options.fits is None else check_count(options.fits, "fits", least=LEAST_FITS)
    _check_status(schema, formula, options.status, family)
    people = population(schema, formula, guesses, family, options.status, options.exposure)
    names = people.design.names
    constant = people.design.constant
    names_planned = options.which
    if names_planned is None:
        names_planned = [name for place, name in enumerate(names) if place != constant][:MOST_PLANNED]
    planned = tuple(dict.fromkeys(check_choice(name, names, "which") for name in names_planned))
    if not planned and options.which is None:
        raise ArgumentError(NO_SLOPES)
    if not planned:
        raise ArgumentError(
            f"which= must list at least one coefficient; the coefficients are {', '.join(names)}"
        )
    return Case(
        people=people,
        schema=people.schema,
        formula=people.formula,
        n=n,
        spending=spending,
        trust=trust,
        parties=parties,
        which=planned,
        alpha=alpha,
        seed=seed,
        fits=fits,
    )


def floor_widths(case: Case) -> Floats:
    """Return the widths without privacy: maximum likelihood with HC0 errors, the median of three tables."""
    if case.people.status is not None:
        return _floor_of_hazards(case, case.people.status)
    import statsmodels.api as sm

    design = Design.from_formula(case.formula, case.schema)
    places = [design.names.index(name) for name in case.which]
    if case.n <= 2 * len(design.names):
        return np.full(len(places), np.nan)
    kind = {"gaussian": sm.families.Gaussian, "binomial": sm.families.Binomial}
    family = kind.get(case.people.family, sm.families.Poisson)
    standard_errors = []
    for seed in np.random.SeedSequence(case.seed).spawn(3):
        frame = case.people.rows(case.n, np.random.default_rng(seed))
        frame = frame[frame[design.response].notna()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            used = family()
            if case.people.family == "negative-binomial":
                used = sm.families.NegativeBinomial(alpha=dispersion_of(case.people.guesses))
            offset = log_exposure(frame, case.people.exposure)
            model = sm.GLM(design.response_values(frame), design.matrix(frame), used, offset=offset)
            standard_errors.append(model.fit(cov_type="HC0").bse[places])
    widths: Floats = 2.0 * norm.isf(case.alpha / 2.0) * np.median(standard_errors, axis=0)
    return widths


def _floor_of_hazards(case: Case, status: str) -> Floats:
    """Return the widths without privacy of logarithms of hazard ratios; nan where there is no finite fit."""
    widths = np.full((3, len(case.which)), np.nan)
    for place, seed in enumerate(np.random.SeedSequence(case.seed).spawn(3)):
        frame = case.people.rows(case.n, np.random.default_rng(seed))
        frame = frame[frame[case.people.design.response].notna()]
        try:
            event = event_of(case.schema, status)
            model = PHReg.from_formula(case.formula, frame, status=status, event=event, schema=case.schema)
            fit = model.fit(mu=math.inf)
        except PrivinfError:
            continue
        widths[place] = 2.0 * norm.isf(case.alpha / 2.0) * fit.bse[list(case.which)]
    return np.asarray(np.median(widths, axis=0))
