"""A study before its rows: made-up people go through the estimators themselves, and their intervals are counted."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm
from tqdm import tqdm

from privinf.doors import doors
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError
from privinf.glm.named import OLS, Logit, Poisson
from privinf.iwp.model import IWPGLM
from privinf.lasso.model import DebiasedLasso
from privinf.mixing.model import DGMOLS, RMGMOLS
from privinf.modulation.model import ModulatedOLS
from privinf.moments.model import MomentOLS
from privinf.planning.guesses import Population
from privinf.plotting import FAINT, INK, name_rows, new_axes, quiet
from privinf.schema import Schema
from privinf.schema.declared import Numeric
from privinf.typing import Family, Floats, PartyColumns
from privinf.validation import check_choice, check_fraction, check_positive, shown_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

StudyTrust = Literal["central", "server", "secure-sum", "local", "per-party"]
FEWEST, MOST, SETTLED = 16, 96, 0.02  # fits a prediction, and its relative standard error where they end
USABLE, EDGE = 0.5, 0.9  # shares of fits with an interval to rely on
MOST_ROWS = 5_000_000
SITE = "site of planning"
LEVELS = ("epsilon", "mu", "rho")
PROTECTED_SDS = 4.0  # bounds that `changes` tries: so many guessed sds on both sides of the mean


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One question to the simulation.

    Attributes
    ----------
    people : Population
        Who is made up.
    schema, formula
        What the fit is told: those of `people`, or tighter bounds and fewer terms.
    spending : dict
        Level words, as every ``fit`` takes them.
    which : tuple of str
        Coefficients that are planned for.
    seed : int
        Of rows and noise; the same for every question, so that answers differ by what was asked.
    """

    people: Population
    schema: Schema
    formula: str
    n: int
    spending: Mapping[str, float]
    trust: StudyTrust
    parties: PartyColumns | None
    which: tuple[str, ...]
    alpha: float
    seed: int


@dataclass(frozen=True, slots=True)
class Estimator:
    """What an estimator serves, how it is fitted to made-up rows, and what its intervals rest on."""

    families: tuple[Family, ...]
    trusts: tuple[StudyTrust, ...]
    fit: Callable[[Case, pd.DataFrame, np.random.Generator], Any]
    rests_on: str


def _plain(model: Any, **words: Any) -> Callable[[Case, Any, np.random.Generator], Any]:
    def fit(case: Case, frame: Any, rng: np.random.Generator) -> Any:
        made = model.from_formula(case.formula, frame, schema=case.schema, **words)
        return made.fit(**case.spending, rng=rng)

    return fit


def _moments(case: Case, frame: Any, rng: np.random.Generator) -> Any:
    return _plain(MomentOLS, trust="local" if case.trust == "local" else "central")(case, frame, rng)


def _examples(case: Case, frame: Any, rng: np.random.Generator) -> Any:
    loss = {"gaussian": "squared", "binomial": "logistic", "poisson": "poisson"}[case.people.family]
    return _plain(IWPGLM, loss=loss)(case, frame, rng)


def _lasso(case: Case, frame: Any, rng: np.random.Generator) -> Any:
    words: dict[str, Any] = {"family": case.people.family}
    if case.trust == "secure-sum":
        words |= {"trust": "secure-sum", "machines": SITE}
        frame = frame.assign(**{SITE: np.arange(len(frame)) % 2})
    made = DebiasedLasso.from_formula(case.formula, frame, schema=case.schema, **words)
    constant = case.people.design.constant
    slopes = np.delete(case.people.slopes, [] if constant is None else constant)
    sparsity = max(1, int(np.count_nonzero(slopes)))
    return made.fit(sparsity=sparsity, targets=list(case.which), **case.spending, rng=rng)


def _parties(model: Any) -> Callable[[Case, Any, np.random.Generator], Any]:
    def fit(case: Case, frame: Any, rng: np.random.Generator) -> Any:
        return _plain(model, parties=case.parties)(case, frame, rng)

    return fit


SUMS: tuple[StudyTrust, ...] = ("central", "server", "secure-sum")
ESTIMATORS: Mapping[str, Estimator] = {
    "OLS": Estimator(
        ("gaussian",), SUMS, _plain(OLS),
        "noise of residual size, not of range size; errors of any variance; one formula a budget",
    ),
    "MomentOLS": Estimator(
        ("gaussian",), (*SUMS, "local"), _moments,
        "one release answers every regression among the columns; of totals: errors of equal variance",
    ),
    "DebiasedLasso": Estimator(
        ("gaussian", "binomial"), SUMS, _lasso, "few of many columns matter; noise is for these few",
    ),
    "Logit": Estimator(("binomial",), SUMS, _plain(Logit), "the logistic model is right"),
    "Poisson": Estimator(("poisson",), SUMS, _plain(Poisson), "the mean of the counts is right"),
    "ModulatedOLS": Estimator(
        ("gaussian",), ("local",), _plain(ModulatedOLS), "each person's row leaves with noise of its own, once",
    ),
    "IWPGLM": Estimator(
        ("gaussian", "binomial", "poisson"), ("local",), _examples,
        "each person sends features and label with noise; one release, many models",
    ),
    "RMGMOLS": Estimator(
        ("gaussian",), ("per-party",), _parties(RMGMOLS), "k random sums of people; every party spends the budget",
    ),
    "DGMOLS": Estimator(
        ("gaussian",), ("per-party",), _parties(DGMOLS), "every row with noise; every party spends the budget",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """What the simulation found of one estimator.

    Attributes
    ----------
    widths : array, shape (coefficients,)
        Median widths of intervals; nan where most fits have none to rely on.
    error : float
        The largest relative standard error of a median.
    identified : float
        Share of fits that are not marked weak; nan where the estimator cannot do what was asked.
    fits : int
    reason : str
        Why there is no interval, in the words of a fit that had none.
    """

    name: str
    widths: Floats
    error: float
    identified: float
    fits: int
    reason: str

    @property
    def verdict(self) -> str:
        """What a fit will say of itself."""
        if math.isnan(self.identified):
            return "cannot"
        if self.identified < USABLE:
            return "weak"
        return "identified" if self.identified >= EDGE else "at the edge of weak"


def simulated(case: Case, names: Sequence[str], progress: bool | None = False) -> tuple[Cell, ...]:
    """Return what each estimator gives on made-up rows and simulated noise; `FEWEST` to `MOST` fits each."""
    found: dict[str, list[Floats | None]] = {name: [] for name in names}
    cannot: dict[str, str] = {}
    reasons: dict[str, str] = {}
    active = list(names)
    disabled = None if progress is None else not progress
    with tqdm(total=FEWEST * len(active), disable=disabled, desc="fits", leave=False) as bar:
        for number, seed in enumerate(np.random.SeedSequence(case.seed).spawn(MOST)):
            rng = np.random.default_rng(seed)
            frame = case.people.rows(case.n, rng)
            for name in active:
                try:
                    found[name].append(_widths(case, ESTIMATORS[name].fit(case, frame, rng.spawn(1)[0])))
                except NotAvailableError as error:
                    found[name].append(None)
                    if name not in reasons and not _noise_is_why(case, name, frame):
                        cannot[name] = str(error)
                    reasons[name] = str(error)
                except PrivinfError as error:
                    cannot[name] = str(error)
                bar.update()
            active = [name for name in active if name not in cannot and not _settled(found[name])]
            if not active:
                break
            if number + 1 >= FEWEST:
                bar.total += len(active)
    return tuple(_cell(name, case, found[name], cannot.get(name), reasons.get(name, "")) for name in names)


def _noise_is_why(case: Case, name: str, frame: pd.DataFrame) -> bool:
    """Whether an estimator without an interval would have one without noise."""
    clear = replace(case, spending={"epsilon": math.inf, "delta": 1e-6})
    try:
        return _widths(clear, ESTIMATORS[name].fit(clear, frame, np.random.default_rng(0))) is not None
    except PrivinfError:
        return False


def _widths(case: Case, result: Any) -> Floats | None:
    """Return the widths of a fit's intervals, or None where it is marked weak."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = result.conf_int(case.alpha).loc[list(case.which)].to_numpy(dtype=np.float64)
    try:
        weak = result.identification.weak
    except NotAvailableError:
        weak = False
    widths: Floats = ends[:, 1] - ends[:, 0]
    return None if weak or result.cov_type == "posterior" or not np.isfinite(widths).all() else widths


def _error(kept: Floats) -> float:
    """Return the largest relative standard error of the medians of columns."""
    return float(1.2533 * np.std(np.log(kept), axis=0, ddof=1).max() / math.sqrt(len(kept)))


def _settled(fits: list[Floats | None]) -> bool:
    kept = [widths for widths in fits if widths is not None]
    if len(fits) < FEWEST:
        return False
    return len(kept) < USABLE * len(fits) or _error(np.array(kept)) <= SETTLED


def _cell(name: str, case: Case, fits: list[Floats | None], cannot: str | None, reason: str) -> Cell:
    kept = np.array([widths for widths in fits if widths is not None])
    none = np.full(len(case.which), np.nan)
    if cannot is not None:
        return Cell(name, none, math.nan, math.nan, len(fits), cannot)
    share = len(kept) / len(fits)
    if share < USABLE:
        return Cell(name, none, math.nan, share, len(fits), reason or "most fits are marked weak")
    told = "" if share >= EDGE else f"{1.0 - share:.0%} of fits are marked weak"
    return Cell(name, np.median(kept, axis=0), _error(kept), share, len(fits), told)


def floor_widths(case: Case) -> Floats:
    """Return the widths without privacy: maximum likelihood with HC0 errors, the median of three tables."""
    import statsmodels.api as sm

    design = case.schema.design(case.formula)
    places = [design.names.index(name) for name in case.which]
    if case.n <= 2 * len(design.names):
        return np.full(len(places), np.nan)
    families = {"gaussian": sm.families.Gaussian, "binomial": sm.families.Binomial, "poisson": sm.families.Poisson}
    found = []
    for seed in np.random.SeedSequence(case.seed).spawn(3):
        frame = case.people.rows(case.n, np.random.default_rng(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = sm.GLM(design.response_values(frame), design.matrix(frame), families[case.people.family]())
            found.append(model.fit(cov_type="HC0").bse[places])
    widths: Floats = 2.0 * norm.isf(case.alpha / 2.0) * np.median(found, axis=0)
    return widths


@doors
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Study:
    """What a study will find, before a row is seen; made by `privinf.plan_study`.

    Attributes
    ----------
    case : Case
        What was asked.
    cells : tuple of Cell
        What each estimator gave.
    floor : array, shape (coefficients,)
        Widths without privacy.

    Notes
    -----
    **Privacy.** No rows: everything follows from schema, guesses and noise that is made up as well.
    """

    case: Case
    cells: tuple[Cell, ...]
    floor: Floats

    @property
    def frame(self) -> pd.DataFrame:
        """One row per estimator and coefficient.

        ``width`` (median; nan where fits will be marked weak), ``se`` and ``se_without_noise`` (widths over
        twice the normal quantile), ``times`` (width over that without privacy), ``identified`` (share of
        fits that are not marked weak), ``verdict``, ``error`` (relative, of the simulation), ``fits``,
        ``reason``.
        """
        import pandas as pd

        unit = 2.0 * norm.isf(self.case.alpha / 2.0)
        rows = [
            (cell.name, name, width, width / unit, low / unit, width / low, cell.identified, cell.verdict,
             cell.error, cell.fits, cell.reason)
            for cell in self.cells
            for name, width, low in zip(self.case.which, cell.widths, self.floor, strict=True)
        ]  # fmt: skip
        columns = ["estimator", "coefficient", "width", "se", "se_without_noise", "times", "identified",
                   "verdict", "error", "fits", "reason"]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)

    @property
    def best(self) -> str | None:
        """The estimator of the narrowest intervals (geometric mean); None where all will be weak."""
        sizes = {cell.name: float(np.mean(np.log(cell.widths))) for cell in self.cells}
        known = {name: size for name, size in sizes.items() if not math.isnan(size)}
        return min(known, key=lambda name: known[name]) if known else None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was guessed, and what was taken where nothing was guessed."""
        return self.case.people.told

    def power(self, effect: float | Mapping[str, float]) -> pd.DataFrame:
        """Return the power of the two-sided test of each coefficient against zero.

        Parameters
        ----------
        effect : float or mapping of str to float
            The true coefficient, user units; one for all, or by name.

        Notes
        -----
        ``Phi(e/s - z) + Phi(-e/s - z)``, s the standard error of the median width; nan where fits are weak.
        """
        import pandas as pd

        effects = effect if isinstance(effect, Mapping) else dict.fromkeys(self.case.which, effect)
        names = [self._name(name) for name in effects]
        z = norm.isf(self.case.alpha / 2.0)
        found = {}
        for cell in self.cells:
            se = dict(zip(self.case.which, cell.widths / (2.0 * z), strict=True))
            ratios = np.array([abs(check_number_of(effects[name])) / se[name] for name in names])
            found[cell.name] = norm.cdf(ratios - z) + norm.cdf(-ratios - z)
        return pd.DataFrame(found, index=names)

    def n_for(
        self,
        coefficient: str | None = None,
        *,
        width: float | None = None,
        effect: float | None = None,
        power: float = 0.8,
        estimator: str | None = None,
    ) -> int:
        """Return how many people give an interval of this width, or a test of this power.

        Parameters
        ----------
        coefficient : str, optional
            Default: all that are planned for must do.
        width : float
            Of the interval, user units; or instead `effect`.
        effect : float
            A coefficient that the test is to find, with probability `power`.
        estimator : str, optional
            Default: `best`, or the first one where all are weak.

        Raises
        ------
        ArgumentError
            Neither `width` nor `effect` is given, or both are.
        NotAvailableError
            5,000,000 people do not do.
        """
        asked = self._asked(coefficient, width, effect, power, estimator)
        fewest = max(20, 4 * len(self.case.people.design.names))
        found = asked.crossing(lambda case, t: replace(case, n=round(math.exp(t))), self.case.n, fewest, MOST_ROWS)
        if found is None:
            raise NotAvailableError(f"{MOST_ROWS:,} people do not do at this budget; see changes()")
        return round(found)

    def budget_for(
        self,
        coefficient: str | None = None,
        *,
        width: float | None = None,
        effect: float | None = None,
        power: float = 0.8,
        estimator: str | None = None,
    ) -> float:
        """Return the epsilon (mu, rho: the word of the plan) that does; arguments as for `n_for`.

        Raises
        ------
        NotAvailableError
            No budget does at this n: the width without privacy is larger.
        """
        asked = self._asked(coefficient, width, effect, power, estimator)
        least = max(self.floor[self.case.which.index(name)] for name in asked.case.which)
        if least > asked.target:
            raise NotAvailableError(
                f"no budget gives {self.case.n:,} people a width of {asked.target:.4g}: without any noise it is "
                f"{least:.4g}; n_for says how many people it takes"
            )
        word = next(name for name in LEVELS if name in self.case.spending)
        start = min(max(self.case.spending[word], 0.01), 500.0)
        found = asked.crossing(
            lambda case, t: replace(case, spending={**case.spending, word: math.exp(t)}), start, 0.01, 500.0
        )
        if found is None:
            raise NotAvailableError(f"no {word} up to 500 does with {asked.estimator}; see changes()")
        return found

    def changes(
        self,
        coefficient: str | None = None,
        *,
        width: float | None = None,
        effect: float | None = None,
        power: float = 0.8,
        estimator: str | None = None,
    ) -> pd.DataFrame:
        """Return what would make it do, each predicted anew; arguments as for `n_for`.

        Returns
        -------
        DataFrame
            ``change``, ``width`` (the largest of the coefficients asked for), ``does``: more people, a larger
            budget, bounds within four guessed sds of the means, and the formula without each other term.
        """
        import pandas as pd

        asked = self._asked(coefficient, width, effect, power, estimator)
        rows: list[tuple[str, float]] = [("as planned", asked.width(asked.case))]
        for told, solve in (("n = {:,}", self.n_for), ("{1} = {0:.3g}", self.budget_for)):
            word = next(name for name in LEVELS if name in self.case.spending)
            try:
                found = solve(coefficient, width=width, effect=effect, power=power, estimator=asked.estimator)
                rows.append((told.format(found, word), asked.target))
            except NotAvailableError as error:
                rows.append((str(error).split(";")[0], math.nan))
        rows += [(change, asked.width(case)) for change, case in _variants(asked.case)]
        frame = pd.DataFrame(rows, columns=["change", "width"])
        return frame.assign(does=frame.width <= 1.0001 * asked.target)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot predicted widths by estimator, a line for the width without privacy; weak ones stand right."""
        names = list(self.case.which)
        ax = new_axes(ax, width=6.8, height=1.9 + 0.42 * len(names))
        rows = np.arange(len(names), dtype=float)
        known = np.concatenate([self.floor, *(cell.widths for cell in self.cells)])
        edge = 1.6 * float(np.nanmax(known)) if np.isfinite(known).any() else 1.0
        ax.vlines(self.floor, rows - 0.34, rows + 0.34, color=INK, linewidth=1.6, label="without privacy")
        for place, cell in enumerate(self.cells):
            if cell.verdict == "cannot":
                continue
            shift = 0.5 * ((place + 0.5) / len(self.cells) - 0.5)
            weak = np.isnan(cell.widths)
            label = f"{cell.name}{' (weak)' if weak.all() else ''}"
            at = np.where(weak, edge, cell.widths)
            ax.plot(at, rows + shift, ">" if weak.all() else "o", color=f"C{place}", label=label)
        ax.set_xscale("log")
        ax.axvline(edge, color=FAINT, linewidth=0.6)
        name_rows(ax, names)
        quiet(ax, grid="x")
        ax.set_xlabel(f"width of the {100 * (1 - self.case.alpha):g}% interval")
        ax.set_title(f"Planned: {self.case.formula}, n = {self.case.n:,}, {_budget(self.case)}", loc="left")
        ax.legend(frameon=False, fontsize="small")
        return ax

    def summary(self) -> str:
        """Return the plan as text: widths, what fits will say of themselves, and what was taken for granted."""
        table = self.frame.drop(columns=["reason", "fits", "error", "verdict"])
        lines = [
            f"Planned study: {self.case.formula}",
            f"n = {self.case.n:,}; {_budget(self.case)}; trust {self.case.trust}; "
            f"{100 * (1 - self.case.alpha):g}% intervals; made-up rows, no row was read",
            "",
            table.to_string(index=False, float_format="{:.4g}".format, na_rep="-"),
            "",
        ]
        lines += [f"{cell.name}: {cell.verdict}{cell.reason and ': '}{cell.reason}" for cell in self.cells]
        best = "no estimator is identified: see changes()" if self.best is None else f"narrowest: {self.best}"
        return "\n".join([*lines, best, "", "Taken for granted", *(f"  {line}" for line in self.assumptions)])

    def __repr__(self) -> str:
        return self.summary()

    def _name(self, name: object) -> str:
        if name not in self.case.which:
            raise ArgumentError(f"{shown_name(name)} is none of the coefficients: {', '.join(self.case.which)}")
        return str(name)

    def _asked(
        self,
        coefficient: str | None,
        width: float | None,
        effect: float | None,
        power: float,
        estimator: str | None,
    ) -> Asked:
        if (width is None) == (effect is None):
            raise ArgumentError("give width=, of the interval, or effect=, which a test is to find; one of them")
        z = norm.isf(self.case.alpha / 2.0)
        if width is None:
            reach = z + norm.ppf(check_fraction(power, "power"))
            if reach <= 0.0:
                raise ArgumentError("power must be above half of alpha")
            width = 2.0 * z * abs(check_number_of(effect)) / reach
        names = [cell.name for cell in self.cells]
        chosen = check_choice(estimator or self.best or names[0], names, "estimator")
        which = self.case.which if coefficient is None else (self._name(coefficient),)
        return Asked(chosen, check_positive(width, "width"), replace(self.case, which=which))


def check_number_of(effect: object) -> float:
    """Return an effect other than zero (else ArgumentError)."""
    number = check_positive(abs(effect) if isinstance(effect, (int, float)) else effect, "effect")
    return float(number)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A width that one estimator is to reach for the coefficients of a case."""

    estimator: str
    target: float
    case: Case

    def width(self, case: Case) -> float:
        """Return the largest predicted width; nan where fits will be weak."""
        return float(np.max(simulated(case, [self.estimator])[0].widths))

    def crossing(
        self, moved: Callable[[Case, float], Case], start: float, least: float, most: float
    ) -> float | None:
        """Return the n or the level at which the predicted width is the target; None beyond `most`.

        On a logarithmic scale, where widths fall about linearly: steps until the target is passed, then
        Brent's method on the same seeds to a hundredth.
        """

        def excess(t: float) -> float:
            width = self.width(moved(self.case, t))
            return 4.0 if math.isnan(width) else min(math.log(width / self.target), 4.0)

        low, high = math.log(least), math.log(most)
        here = min(max(math.log(start), low), high)
        value = excess(here)
        while True:
            step = math.copysign(max(abs(value), 0.25), value)
            there = min(max(here + step, low), high)
            if there == here:
                return math.exp(here) if value <= 0.0 else None
            next_value = excess(there)
            if (next_value > 0.0) != (value > 0.0):
                return math.exp(brentq(excess, here, there, xtol=0.01, rtol=0.01))
            here, value = there, next_value


def _variants(case: Case) -> list[tuple[str, Case]]:
    """Return tighter bounds, and the formula without each term that is not asked about."""
    import patsy

    found = []
    tighter = {}
    sample = case.people.rows(20_000, np.random.default_rng(case.seed))
    for name in dict.fromkeys((*case.people.design.inputs, case.people.design.response)):
        item = case.schema[name]
        if isinstance(item, Numeric):
            mean, sd = float(sample[name].mean()), float(sample[name].std())
            low = max(item.low, mean - PROTECTED_SDS * sd)
            high = min(item.high, mean + PROTECTED_SDS * sd)
            if high - low < 0.8 * (item.high - item.low):
                tighter[name] = replace(item, low=low, high=high)
    if tighter:
        told = ", ".join(f"{name} ({item.low:.4g}, {item.high:.4g})" for name, item in tighter.items())
        found.append((f"bounds: {told}", replace(case, schema=case.schema.fill(tighter))))
    left = case.formula.split("~", 1)[0].strip()
    terms = patsy.ModelDesc.from_formula(case.formula).rhs_termlist
    for term in (term for term in terms if term.factors):
        rest = patsy.ModelDesc([], [one for one in terms if one is not term]).describe().removeprefix("~").strip()
        formula = f"{left} ~ {rest}"
        if rest in ("1", "0", "") or not set(case.which) <= set(case.schema.design(formula).names):
            continue
        found.append((f"without {term.name()}", replace(case, formula=formula)))
    return found


def _budget(case: Case) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in case.spending.items())
