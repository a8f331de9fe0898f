"""The estimators themselves, fitted to simulated people with simulated noise, and their intervals."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from privinf.errors import (
    ArgumentError,
    ChangedTargetWarning,
    LargeDeltaWarning,
    NotAvailableError,
    PrivinfError,
)
from privinf.glm.hazards.model import PHReg
from privinf.glm.model import GLM
from privinf.glm.named import OLS, Logit, Poisson
from privinf.glm.negative_binomial import NegativeBinomial
from privinf.glm.results import LOSSES
from privinf.inference.intervals import JointDistribution, joint_distribution
from privinf.iwp.model import IWPGLM
from privinf.lasso.model import DebiasedLasso
from privinf.mixing.model import DGMOLS, RMGMOLS
from privinf.modulation.model import ModulatedOLS
from privinf.moments.model import MomentOLS
from privinf.planning.people import LARGEST_STUDY, Case, event_of
from privinf.progress import step
from privinf.schema import Design, Schema
from privinf.schema.declared import Numeric
from privinf.typing import Floats, StudyFamily, TrustModel
from privinf.validation import check_choice, check_fraction, check_number, check_positive

if TYPE_CHECKING:
    import pandas as pd

MOST_KEPT = 2_000_000  # rows of simulated tables that a study keeps for its next case
FEWEST = 16  # fits of a prediction, at least
MOST_FITS = 48  # fits of a prediction, at most
SETTLED = 0.025  # relative standard error of a prediction at which its fits end
# Standard errors of the difference by which an estimator must have wider intervals than another one for its
# simulation to end: the comparison then needs no more of its fits.
CLEAR = 2.0
QUICK = 6  # fits of a prediction that only shows how widths change with people or budget
CLOSE = 0.5  # logarithm of a width relative to the target up to which such changes correct a prediction
STRAIGHT = 0.1  # the same up to which one correction is enough
MOST_CORRECTIONS = 3  # corrections before a search by full predictions alone
NEAR_TARGET = 0.005  # logarithm of a width relative to the target at which a search ends
ROUGHLY = 0.05  # the same of a search whose end is corrected
LARGEST_EXCESS = 4.0  # logarithm of a width relative to the target, at most, and of fits that are weak
SMALL = 20_000  # tables of so few rows cost little, their noise varies most: they have twice MOST_FITS
USABLE = 0.5  # share of fits with an interval to rely on, below which a study is not usable
EDGE = 0.9  # share of fits with an interval to rely on, below which it is at the edge
SITE = "site of planning"
PROTECTED_SDS = 4.0  # tighter bounds that are tried: number of sds on both sides of the mean
NOTABLE_CLIPPED = 0.001  # share of clipped values from which a change of bounds states it


Fit = Callable[[Case, Any, np.random.Generator], Any]


def _plain(model: Any, words: Callable[[Case], dict[str, Any]] = lambda case: {}) -> Fit:
    # A fit that can have no intervals is a cell of the table, with its reason.
    may_lack_intervals = issubclass(model, GLM) and not issubclass(model, NegativeBinomial)
    options = {"intervals": "optional"} if may_lack_intervals else {}

    def fit(case: Case, frame: Any, rng: np.random.Generator) -> Any:
        options_of_rows = _missing(case) | words(case)
        fitted_model = model.from_formula(case.formula, frame, schema=case.schema, **options_of_rows)
        return fitted_model.fit(**case.spending, **options, rng=rng)

    return fit


def _missing(case: Case) -> dict[str, Any]:
    """Return the handling of missing values of a fit to simulated rows, some of which may be incomplete."""
    return {"missing": "drop"} if case.people.guesses.complete < 1.0 else {}


def _hazard_options(case: Case) -> dict[str, Any]:
    """Return the options of Cox's regression: the status, and which of its levels is the event."""
    return {"status": case.people.status, "event": event_of(case.schema, case.people.status)}


def _rate_options(case: Case) -> dict[str, Any]:
    """Return the options of a regression of counts: the column of exposures, where the plan has one."""
    return {} if case.people.exposure is None else {"exposure": case.people.exposure}


def _lasso(case: Case, frame: Any, rng: np.random.Generator) -> Any:
    words: dict[str, Any] = {"family": case.people.family, **_missing(case)}
    if case.trust == "secure-sum":
        words |= {"trust": "secure-sum", "sites": SITE}
        frame = frame.assign(**{SITE: np.arange(len(frame)) % 2})
    matter = np.count_nonzero(case.people.slopes) - (case.people.design.constant is not None)
    fit_options: dict[str, Any] = {
        "sparsity": max(1, int(matter)),
        "targets": list(case.which),
        **case.spending,
    }
    fitted_model = DebiasedLasso.from_formula(case.formula, frame, schema=case.schema, **words)
    return fitted_model.fit(**fit_options, rng=rng)


@dataclass(frozen=True, slots=True)
class Estimator:
    """Scope of an estimator, its fit to simulated rows, and the assumptions of its intervals."""

    families: tuple[StudyFamily, ...]
    trusts: tuple[TrustModel, ...]
    fit: Fit
    rests_on: str


# Trusts under which noisy sums are released.
SUMS: tuple[TrustModel, ...] = ("central", "server", "secure-sum")
# How MomentOLS is fitted, by the study's trust.
OF_MOMENTS = _plain(MomentOLS, lambda case: {"trust": "local" if case.trust == "local" else "central"})
# How IWPGLM is fitted, by the family of the response.
OF_EXAMPLES = _plain(IWPGLM, lambda case: {"loss": LOSSES[case.people.family]})
OF_NUMBERS: tuple[StudyFamily, ...] = ("gaussian",)  # family of a numeric response
ESTIMATORS: Mapping[str, Estimator] = {
    "OLS": Estimator(
        OF_NUMBERS,
        SUMS,
        _plain(OLS),
        "the noise grows with the residuals; one release serves one formula only",
    ),
    "MomentOLS": Estimator(
        OF_NUMBERS, (*SUMS, "local"), OF_MOMENTS, "one release serves any regression on its columns"
    ),
    "DebiasedLasso": Estimator(
        ("gaussian", "binomial"), SUMS, _lasso, "assumes that only a few of many columns have an effect"
    ),
    "Logit": Estimator(("binomial",), SUMS, _plain(Logit), "assumes that the logistic model is correct"),
    "Poisson": Estimator(
        ("poisson", "negative-binomial"),
        SUMS,
        _plain(Poisson, _rate_options),
        "assumes that the model of the mean count is correct",
    ),
    "NegativeBinomial": Estimator(
        ("negative-binomial",),
        SUMS,
        _plain(NegativeBinomial, _rate_options),
        "assumes that the model of the mean count is correct",
    ),
    "PHReg": Estimator(
        ("hazards",),
        SUMS,
        _plain(PHReg, _hazard_options),
        "assumes proportional hazards and linear effects",
    ),
    "ModulatedOLS": Estimator(
        OF_NUMBERS, ("local",), _plain(ModulatedOLS), "each person adds noise to their own row"
    ),
    "IWPGLM": Estimator(
        ("gaussian", "binomial", "poisson"),
        ("local",),
        OF_EXAMPLES,
        "each person adds noise to their own features and label; one release serves many models",
    ),
    "RMGMOLS": Estimator(
        OF_NUMBERS,
        ("per-party",),
        _plain(RMGMOLS, lambda case: {"parties": case.parties}),
        "each party spends the budget on one release of k noisy random sums over people",
    ),
    "DGMOLS": Estimator(
        OF_NUMBERS,
        ("per-party",),
        _plain(DGMOLS, lambda case: {"parties": case.parties}),
        "each party spends the budget on one release of all its rows with noise",
    ),
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JointTest:
    """Wald test of one simulated fit that all k coefficients of a term of the formula are zero.

    Attributes
    ----------
    covariance : ndarray, shape (k, k)
    distribution : JointDistribution
    """

    covariance: Floats
    distribution: JointDistribution

    def power(self, effects: Floats, alpha: float) -> float:
        """Return the power at these true coefficients, of which the estimates are about normal."""
        distance = float(effects @ np.linalg.solve(self.covariance, effects))
        return self.distribution.power(distance, alpha)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Cell:
    """Results of the simulation of one estimator.

    Attributes
    ----------
    names : tuple of str
        Coefficients that are planned for.
    widths : array, shape (coefficients,)
        Median widths of intervals; nan where most fits have none to rely on.
    fit_widths : array, shape (fits, coefficients)
        The widths that they are medians of; nan where a fit has none to rely on.
    error : float
        The largest relative standard error of a median.
    identified : array, shape (coefficients,)
        Share of fits in which the coefficient is not weakly identified; nan where the estimator cannot fit
        the case.
    reason : str
        Why there is no interval, in the words of a fit that had none.
    causes : tuple of str
        Coefficients that the notes of most fits without intervals name.
    joint : tuple of dict of str to JointTest
        Tests of the terms of the formula, a dict per fit; without the terms that a fit identifies too weakly.
    """

    name: str
    names: tuple[str, ...]
    widths: Floats
    fit_widths: Floats
    error: float
    identified: Floats
    fits: int
    reason: str
    causes: tuple[str, ...] = ()
    joint: tuple[Mapping[str, JointTest], ...] = ()

    def joint_power(self, term: str, effects: Floats, alpha: float) -> float:
        """Return the power of the Wald test of a term; nan where most fits identify it too weakly.

        As in `power`, a fit that identifies a coefficient of the term too weakly counts as one that does not
        detect the effect.
        """
        tests = [tests[term] for tests in self.joint if term in tests]
        if not tests or len(tests) < USABLE * len(self.joint):
            return math.nan
        return sum(test.power(effects, alpha) for test in tests) / len(self.joint)

    def power(self, effects: Floats, alpha: float, places: Sequence[int]) -> Floats:
        r"""Return the power of two-sided tests of these effects; nan where most fits are weak.

        Given its standard error s an estimate is about normal, and s varies between fits where noise is
        most of it: the power is the mean over fits of ``Phi(e/s - z) + Phi(-e/s - z)``, which is less than
        at the median s, since Phi is concave where powers are large. A fit that identifies the coefficient
        too weakly counts as one that does not detect its effect.
        """
        z = float(norm.isf(alpha / 2.0))
        powers = np.full(len(places), np.nan)
        for j, place in enumerate(places):
            widths = self.fit_widths[:, place]
            if math.isfinite(self.widths[place]):
                ratios = effects[j] / (widths[np.isfinite(widths)] / (2.0 * z))
                found = norm.cdf(ratios - z) + norm.cdf(-ratios - z)
                powers[j] = np.sum(found) / len(widths)
        return powers

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Predicted verdict of each coefficient."""
        return tuple(map(_verdict, self.identified))

    @property
    def weak(self) -> tuple[str, ...]:
        """Names of the coefficients that most fits identify too weakly."""
        return tuple(
            name for name, verdict in zip(self.names, self.verdicts, strict=True) if verdict == "weak"
        )

    @property
    def verdict(self) -> str:
        """Predicted verdict of a fit: that of the worst coefficient, or "partly weak" where others differ."""
        if self.weak and len(self.weak) < len(self.names):
            return "partly weak"
        return _verdict(float(np.min(self.identified)))

    @property
    def described(self) -> str:
        """The verdict, with the names of weak coefficients where others are not weak."""
        return f"weak for: {', '.join(self.weak)}" if self.verdict == "partly weak" else self.verdict


def _verdict(identified: float) -> str:
    """Return the verdict on a coefficient of which this share of fits has an interval to rely on."""
    if math.isnan(identified):
        return "cannot"
    edge = "identified" if identified >= EDGE else "nearly weak"
    return edge if identified >= USABLE else "weak"


def most_fits(case: Case) -> int:
    """Return the largest number of simulated fits of one estimator."""
    if case.fits is not None:
        return case.fits
    return MOST_FITS if case.n > SMALL else 2 * MOST_FITS


class Tables:
    """Simulated rows of one study, which all cases of as many people share, up to `MOST_KEPT` rows.

    Widths and joint tests of fits to them are kept too, by case, estimator and number of the table.
    """

    def __init__(self) -> None:
        self._frames: dict[tuple[int, int], pd.DataFrame] = {}
        self._rows = 0
        self._schemas: dict[int, Schema] = {}
        self.widths: dict[tuple[object, ...], Floats] = {}
        self.joint: dict[tuple[object, ...], Mapping[str, JointTest]] = {}

    def key(self, case: Case, name: str, number: int) -> tuple[object, ...]:
        """Return the key of a fit among `widths`."""
        self._schemas[id(case.schema)] = case.schema  # kept, so that no other schema has its id
        spending = tuple(sorted(case.spending.items()))
        return name, number, case.n, spending, case.formula, id(case.schema), case.which

    def rows(self, case: Case, number: int, rng: np.random.Generator) -> pd.DataFrame:
        """Return the table of this number, drawn by `rng` if it is new."""
        key = case.n, number
        if key not in self._frames:
            frame = case.people.rows(case.n, rng)
            if self._rows + case.n > MOST_KEPT:
                return frame
            self._frames[key] = frame
            self._rows += case.n
        return self._frames[key]


def simulated(
    case: Case, names: Sequence[str], tables: Tables | None = None, *, first: int = 0, quick: bool = False
) -> tuple[Cell, ...]:
    """Return results of each estimator on simulated rows and noise, over `FEWEST` fits or more.

    Each fit is a step of the progress bar. Fits of the same number have the same rows and noise in all cases,
    as far as their sizes agree; `first` is the place of the first estimator in the plan, by which its noise
    is drawn. A `quick` prediction has `QUICK` fits.
    """
    tables = tables or Tables()
    none = np.full(len(case.which), np.nan)
    fits: dict[str, list[Floats]] = {name: [] for name in names}
    joint: dict[str, list[Mapping[str, JointTest]]] = {name: [] for name in names}
    causes: dict[str, Counter[str]] = {name: Counter() for name in names}
    cannot: dict[str, str] = {}
    reasons: dict[str, str] = {}
    active = list(names)
    terms = case.columns_by_term
    seeds = np.random.SeedSequence(case.seed).spawn(QUICK if quick else most_fits(case))
    for number, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        frame = None
        noise = dict(zip(names, rng.spawn(first + len(names))[first:], strict=True))
        for name in active:
            step()
            result: Any = None
            key = tables.key(case, name, number)
            if key in tables.widths:
                fits[name].append(tables.widths[key])
                joint[name].append(tables.joint.get(key, {}))
                continue
            frame = tables.rows(case, number, rng) if frame is None else frame
            try:
                result = _fitted(case, name, frame, noise[name])
                tables.widths[key] = _widths(case, result)
                tables.joint[key] = _joint_tests(terms, result)
                fits[name].append(tables.widths[key])
                joint[name].append(tables.joint[key])
            except NotAvailableError as error:
                fits[name].append(none)
                joint[name].append({})
                causes[name].update(_causes(result))
                if name not in reasons and not _noise_is_why(case, name, frame, str(error)):
                    cannot[name] = str(error)
                reasons[name] = str(error)
            except PrivinfError as error:
                cannot[name] = str(error)
        active = [name for name in active if name not in cannot and not _settled(fits[name])]
        if number + 1 >= FEWEST and len(names) > 1:
            wider = _clearly_wider({name: fits[name] for name in names if name not in cannot})
            active = [name for name in active if name not in wider]
        if not active:
            break
    return tuple(
        replace(
            _cell(name, case, fits[name], cannot.get(name), reasons.get(name, "")),
            joint=tuple(joint[name]),
            causes=_main_causes(causes[name], fits[name]),
        )
        for name in names
    )


def _fitted(case: Case, name: str, frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    """Return an estimator's fit to simulated rows.

    `plan_study` itself warns of a delta that is too large. That simulated values are outside the bounds says
    nothing of the data.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeDeltaWarning)
        warnings.simplefilter("ignore", ChangedTargetWarning)
        return ESTIMATORS[name].fit(case, frame, rng)


def _noise_is_why(case: Case, name: str, frame: pd.DataFrame, reason: str) -> bool:
    """Whether an estimator without an interval for this reason would have one without noise."""
    clear = replace(case, spending={"epsilon": math.inf, "delta": 1e-6})
    try:
        _widths(clear, _fitted(clear, name, frame, np.random.default_rng(0)))
    except PrivinfError as error:
        return str(error) != reason
    return True


# Why a fit has intervals of some coefficients alone (`DebiasedLasso`, hidden targets).
UNRELIABLE = "have no reliable intervals (weak identification, or no finite interval)"
NO_INTERVAL = (
    "some simulated fits have no interval for at least one of the coefficients in which=: pass fewer "
    "coefficients, or a larger budget"
)


def _widths(case: Case, result: Any) -> Floats:
    """Return the widths of a fit's intervals, nan of coefficients that are weakly identified.

    NotAvailableError where there are none, or not of every coefficient.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        intervals = result.conf_int(case.alpha)
    if not set(case.which) <= set(intervals.index):
        raise NotAvailableError(NO_INTERVAL)
    ends = intervals.loc[list(case.which)].to_numpy(dtype=np.float64)
    weak = np.isin(case.which, list(result.weakly_identified.index))
    return np.where(weak | ~np.isfinite(ends).all(axis=1), np.nan, ends[:, 1] - ends[:, 0])


def _joint_tests(terms: Mapping[str, list[str]], result: Any) -> dict[str, JointTest]:
    """Return the Wald tests of the terms of which a fit identifies every coefficient."""
    estimate = result.estimate
    if estimate.cov is None:
        return {}
    weak = set(result.weakly_identified.index)
    tests = {}
    for term, names in terms.items():
        if weak.isdisjoint(names) and set(names) <= set(estimate.names):
            R = np.eye(len(estimate.names))[[estimate.names.index(name) for name in names]]
            covariance = R @ estimate.cov @ R.T
            if np.linalg.eigvalsh(covariance)[0] > 0.0:
                tests[term] = JointTest(covariance=covariance, distribution=joint_distribution(estimate, R))
    return tests


def _causes(result: Any) -> set[str]:
    """Return the coefficients that the notes of a fit without intervals name."""
    return set() if result is None else {name for note in result._context.ranked for name in note.columns}


def _main_causes(causes: Mapping[str, int], fits: Sequence[Floats]) -> tuple[str, ...]:
    """Return the coefficients that are named in most of the fits without any interval.

    They are a cause to be stated only where such fits are more than a few.
    """
    without = sum(bool(np.isnan(widths).all()) for widths in fits)
    if without <= (1.0 - EDGE) * len(fits):
        return ()
    return tuple(name for name, count in causes.items() if count > without / 2)


def _identified(widths: Floats) -> Floats:
    """Return the share of fits in which each coefficient has an interval to rely on."""
    return np.asarray(np.isfinite(widths).mean(axis=0))


def _error(widths: Floats) -> float:
    """Return the largest relative standard error of the medians of columns that most fits have."""
    columns = [column[np.isfinite(column)] for column in widths.T[_identified(widths) >= USABLE]]
    return max(1.2533 * float(np.std(np.log(column), ddof=1)) / math.sqrt(len(column)) for column in columns)


def _settled(fits: list[Floats]) -> bool:
    if len(fits) < FEWEST:
        return False
    widths = np.array(fits)
    return bool((_identified(widths) < USABLE).all()) or _error(widths) <= SETTLED


def _clearly_wider(fits: Mapping[str, list[Floats]]) -> set[str]:
    """Return the estimators whose intervals are wider than another one's by `CLEAR` standard errors.

    Widths are compared by their mean logarithm over coefficients; both estimators must identify all of them.
    """
    levels: dict[str, tuple[float, float]] = {}
    for name, widths_of_fits in fits.items():
        widths = np.array(widths_of_fits)
        rows = np.log(widths[np.isfinite(widths).all(axis=1)]).mean(axis=1)
        if len(rows) >= max(2, USABLE * len(widths)):
            error = 1.2533 * float(np.std(rows, ddof=1)) / math.sqrt(len(rows))
            levels[name] = float(np.median(rows)), error
    return {
        name
        for name, (level, error) in levels.items()
        if any(level - other > CLEAR * math.hypot(error, its_error) for other, its_error in levels.values())
    }


def _cell(name: str, case: Case, fits: list[Floats], cannot: str | None, reason: str) -> Cell:
    none = np.full(len(case.which), np.nan)
    widths = np.array(fits) if cannot is None else none[None][:0]
    identified = none if cannot is not None else _identified(widths)
    is_weak = ~(identified >= USABLE)
    shares = identified[~is_weak] if cannot is None and not is_weak.all() else identified
    remark = cannot or ""
    if cannot is None and is_weak.all():
        remark = reason or f"most simulated fits {UNRELIABLE}"
    elif cannot is None and (worst := 1.0 - float(shares.min())) > 1.0 - EDGE:
        remark = f"{worst:.0%} of the simulated fits {UNRELIABLE}"
    medians = [np.nan if hidden else np.nanmedian(widths[:, j]) for j, hidden in enumerate(is_weak)]
    return Cell(
        name=name,
        names=case.which,
        widths=np.array(medians),
        fit_widths=widths,
        error=math.nan if is_weak.all() else _error(widths),
        identified=identified,
        fits=len(fits),
        reason=remark,
    )


def named_coefficient(name: object, names: Sequence[str], argument: str) -> str:
    """Return the coefficient of this name; a level or a factor with two levels also names its coefficient.

    ArgumentError if no coefficient, or more than one, has the name.
    """
    if isinstance(name, str) and name not in names:
        short = [
            full
            for full in names
            if full.endswith((f"[T.{name}]", f"[{name}]"))
            or ("[" in full and full.partition("[")[0] in (name, f"C({name})"))
        ]
        if len(short) == 1:
            return short[0]
    return str(check_choice(name, tuple(names), argument))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Goal of a study: a width of the interval, or the power to detect an effect.

    Attributes
    ----------
    width : float or None
        Width of the interval, user units.
    effect : float or None
        Coefficient that the test against zero detects with probability `power`.
    power : float
        Probability of detection.
    coefficient : str or None
        Name of a coefficient; None: all that are planned for.
    estimator : str or None
        None: the best, or the first one if no estimator has a predicted width.
    """

    width: float | None = None
    effect: float | None = None
    power: float = 0.8
    coefficient: str | None = None
    estimator: str | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Aim:
    """A width, or a power, that one estimator should attain for the coefficients of a case.

    A power is sought as the `target` width of intervals that, all of one width, had it. The estimator has
    this `place` in the plan, `tables` are rows that its cases share, and a `quick` aim predicts by few fits.
    """

    estimator: str
    target: float
    case: Case
    effect: float | None = None
    place: int = 0
    quick: bool = False
    tables: Tables = field(default_factory=Tables)

    @classmethod
    def from_goal(cls, case: Case, names: Sequence[str], goal: Goal) -> Aim:
        """Return a checked goal; the first of `names` (estimators) is the default."""
        width = goal.width
        effect = goal.effect
        coefficient = goal.coefficient
        if (width is None) == (effect is None):
            raise ArgumentError(
                "pass either width= (the target width of the interval) or effect= (the coefficient "
                "that the test should detect), and not both, as in n_for('x', width=0.5)"
            )
        if effect is not None:
            size = abs(check_number(effect, "effect"))
            width = _width_of(size, check_fraction(goal.power, "power"), case.alpha)
        chosen = check_choice(goal.estimator or names[0], names, "estimator")
        planned = (
            case.which
            if coefficient is None
            else (named_coefficient(coefficient, case.which, "coefficient"),)
        )
        return cls(
            estimator=chosen,
            target=check_positive(width, "width or effect"),
            case=replace(case, which=planned),
            effect=None if effect is None else size,
        )

    def knowing(self, cells: Sequence[Cell]) -> Aim:
        """Return the same aim, which does not repeat the fits of the plan's simulation.

        `DebiasedLasso` divides its budget among the coefficients that are planned for, so that its fits are
        those of the same ones only.
        """
        place, cell = next((k, cell) for k, cell in enumerate(cells) if cell.name == self.estimator)
        if self.estimator != "DebiasedLasso" or cell.names == self.case.which:
            places = [cell.names.index(name) for name in self.case.which]
            for number, widths in enumerate(cell.fit_widths):
                if np.isfinite(widths).all():
                    self.tables.widths[self.tables.key(self.case, self.estimator, number)] = widths[places]
        return replace(self, place=place)

    def width(self, case: Case) -> float:
        """Return the largest predicted width, or that of intervals of this power; nan where fits are weak."""
        cells = simulated(case, [self.estimator], self.tables, first=self.place, quick=self.quick)
        return self.width_in(cells[0])

    def width_in(self, cell: Cell) -> float:
        """Return the width of `width` from the results of a simulation."""
        places = [cell.names.index(name) for name in self.case.which]
        if self.effect is None:
            return float(np.max(cell.widths[places]))
        powers = cell.power(np.full(len(places), self.effect), self.case.alpha, places)
        return _width_of(self.effect, float(np.min(powers)), self.case.alpha)

    def sought(
        self, moved: Callable[[Case, float], Case], start: float, smallest: float, largest: float
    ) -> float | None:
        """Return the n or the level at which the predicted width is the target; None beyond `largest`.

        Few fits show where the width is about the target. A prediction there corrects the target of these
        same fits, which share rows and noise, and they show how far to go on.
        """
        few = WidthCurve(replace(self, quick=True), moved, smallest, largest)
        full = WidthCurve(self, moved, smallest, largest)
        near = few.crossing(self.target, start, ROUGHLY)
        for _ in range(MOST_CORRECTIONS):
            if near is None:
                break
            away = _excess(full.width(near), self.target)
            if abs(away) <= SETTLED / 2.0:
                return near
            shown = few.width(near)
            if abs(away) > CLOSE or not shown > 0.0:  # few fits have misled, or all detect the effect
                break
            near = few.crossing(shown * math.exp(-away), near)
            if near is not None and abs(away) <= STRAIGHT:
                return near
        return full.crossing(self.target, start if near is None else near)

    def crossing(
        self, moved: Callable[[Case, float], Case], start: float, smallest: float, largest: float
    ) -> float | None:
        """Return what `sought` does, by predictions of this aim alone."""
        return WidthCurve(self, moved, smallest, largest).crossing(self.target, start)

    def people(self) -> int | None:
        """Return the n that does."""
        fewest = max(20, 4 * len(self.case.people.design.names))
        people = self.sought(lambda case, n: replace(case, n=round(n)), self.case.n, fewest, LARGEST_STUDY)
        return None if people is None else round(people)

    def level(self) -> float | None:
        """Return the epsilon, mu or rho that does."""
        word = self.case.word
        spending = self.case.spending
        start = min(max(float(spending[word]), 0.01), 500.0)
        return self.sought(lambda case, t: replace(case, spending={**spending, word: t}), start, 0.01, 500.0)


class WidthCurve:
    """Predicted widths by n or level, each predicted once."""

    def __init__(
        self, aim: Aim, moved: Callable[[Case, float], Case], smallest: float, largest: float
    ) -> None:
        self._aim = aim
        self._moved = moved
        self._ends = math.log(smallest), math.log(largest)
        self._widths: dict[float, float] = {}

    def width(self, place: float) -> float:
        """Return the width at an n or a level."""
        return self._width(math.log(place))

    def _width(self, t: float) -> float:
        if t not in self._widths:
            self._widths[t] = self._aim.width(self._moved(self._aim.case, math.exp(t)))
        return self._widths[t]

    def crossing(self, target: float, start: float, tolerance: float = NEAR_TARGET) -> float | None:
        """Return the n or the level at which the width is the target; None beyond the largest one.

        On a logarithmic scale, where widths fall about linearly: steps until the target is passed, then
        chords on the same seeds, to a hundredth or to the tolerance of the logarithm of the width.
        """
        low, high = self._ends
        current = min(max(math.log(start), low), high)
        value = _excess(self._width(current), target)
        length = abs(value)
        while abs(value) > tolerance:
            length = min(max(length, 0.25), 4.0)
            following_point = min(max(current + math.copysign(length, value), low), high)
            if following_point == current:
                return math.exp(current) if value <= 0.0 else None
            between = [
                t for t in self._widths if min(current, following_point) < t < max(current, following_point)
            ]
            if between:  # a width that is known is nearer
                following_point = min(between, key=lambda t: abs(t - current))
            following = _excess(self._width(following_point), target)
            if (following > 0.0) != (value > 0.0):
                ends = (current, value), (following_point, following)
                return math.exp(self._root(target, *ends, tolerance))
            fallen = (abs(value) - abs(following)) / abs(following_point - current)
            length = 1.1 * abs(following) / fallen if fallen > 0.0 else abs(following)
            current = following_point
            value = following
        return math.exp(current)

    def _root(
        self, target: float, one: tuple[float, float], other: tuple[float, float], tolerance: float
    ) -> float:
        """Return where the width is the target between two places: Illinois method, or halves."""
        (a, at_a), (b, at_b) = one, other
        while abs(b - a) > 0.01 and at_a != at_b:
            weak = max(at_a, at_b) == LARGEST_EXCESS
            middle = (a + b) / 2.0 if weak else b - at_b * (b - a) / (at_b - at_a)
            value = _excess(self._width(middle), target)
            if abs(value) <= tolerance:
                return middle
            if (value > 0.0) == (at_b > 0.0):
                at_a /= 2.0  # the other end would stay for ever
            else:
                a, at_a = b, at_b
            b, at_b = middle, value
        return a if abs(at_a) < abs(at_b) else b


def _excess(width: float, target: float) -> float:
    """Return the logarithm of a width relative to the target, at most 4, as for a width that is nan."""
    # A power of 1 in all simulated fits is that of intervals without width.
    if math.isnan(width):
        return LARGEST_EXCESS
    return min(math.log(max(width / target, math.exp(-LARGEST_EXCESS))), LARGEST_EXCESS)


def _width_of(effect: float, power: float, alpha: float) -> float:
    """Return the width of intervals that find an effect with this power, less the share on the wrong side."""
    z = float(norm.isf(alpha / 2.0))
    return 2.0 * z * effect / max(z + float(norm.ppf(power)), 1e-9)


def variants(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield tighter bounds, and the formula without each term that has none of the requested coefficients."""
    import patsy

    sample = case.people.rows(20_000, np.random.default_rng(case.seed))
    tighter = {}
    clipped = {}
    varied = dict.fromkeys((*case.people.design.inputs, case.people.design.response))
    if case.people.status is not None:  # another bound of the time is another follow-up
        varied.pop(case.people.design.response)
    for name in varied:
        item = case.schema[name]
        if isinstance(item, Numeric):
            mean = float(sample[name].mean())
            half_range = PROTECTED_SDS * float(sample[name].std())
            low = max(item.low, mean - half_range)
            high = min(item.high, mean + half_range)
            if high - low < 0.8 * (item.high - item.low):
                tighter[name] = replace(item, low=low, high=high)
                clipped[name] = float(((sample[name] < low) | (sample[name] > high)).mean())
    if tighter:
        listed = ", ".join(f"{name} ({item.low:.4g}, {item.high:.4g})" for name, item in tighter.items())
        shares = [f"{share:.1%} of {name}" for name, share in clipped.items() if share >= NOTABLE_CLIPPED]
        warned = f" (clips {', '.join(shares)})" if shares else ""
        yield f"bounds: {listed}{warned}", replace(case, schema=case.schema.fill(tighter))
    response = case.formula.split("~", 1)[0].strip()
    terms = patsy.ModelDesc.from_formula(case.formula).rhs_termlist
    for term in (term for term in terms if term.factors):
        rest = (
            patsy.ModelDesc([], [other_term for other_term in terms if other_term is not term])
            .describe()
            .removeprefix("~")
            .strip()
        )
        if rest in ("1", "0", "-1", ""):
            continue
        formula = f"{response} ~ {rest}"
        if set(case.which) <= set(Design.from_formula(formula, case.schema).names):
            yield f"without {term.name()}", replace(case, formula=formula)
