"""Planning of studies before their data: predicted results, suitable estimators, and their assumptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from scipy.stats import norm

from privinf.accounting.budget import rounded_budget
from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.errors import ArgumentError, NotAvailableError
from privinf.glm.column_moments import RARE
from privinf.mechanisms.gaussian import warn_of_large_delta
from privinf.planning.guesses import Guesses
from privinf.planning.modulated import ModulationOptions, directions_frame
from privinf.planning.people import (
    FIRST_PEOPLE,
    LARGEST_STUDY,
    NOT_PLANNED,
    Case,
    StudyOptions,
    check_family,
    checked_case,
    floor_widths,
)
from privinf.planning.study import (
    ESTIMATORS,
    Aim,
    Cell,
    Goal,
    most_fits,
    named_coefficient,
    simulated,
    variants,
)
from privinf.plotting import FAINT, INK, name_rows, new_axes, quiet
from privinf.progress import progress_bar
from privinf.schema import Schema
from privinf.schema.formulas import term_name
from privinf.typing import Floats, PartyColumns, SensitivityRule, StudyFamily, TrustModel
from privinf.validation import check_choice, check_number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Guesses", "Study", "advise", "plan_study"]

SPARSE = "DebiasedLasso"
OF_RATES = ("Poisson", "NegativeBinomial")  # estimators that accept exposures
# Columns of a formula from which on a plan compares the lasso without being asked: the lasso is for many
# columns, few of which have an effect; with fewer columns other estimators have narrower intervals.
LASSO_COLUMNS = 20
FEW_COLUMNS = (
    "DebiasedLasso is not compared, because it is for many columns and the formula has {}; pass estimators= "
    "to compare it"
)
NO_PEOPLE = (
    "n was not passed, so the plan is for 10,000 people: pass n=, or call n_for(width=...) for the number of "
    "people that you need"
)
# Of levels of few people whose coefficients most fits identify too weakly, or for which fits do not converge.
RARE_LEVEL = (
    "few people have the level {level!r} of {column!r} ({count:,.0f} of {n:,} with these shares), which can "
    "widen the intervals of all coefficients, or cost them. Merge it with another level, for example by "
    "pi.Factor([...], other={other!r}), and plan again"
)


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Study:
    """Predicted widths of intervals, power and identification of a planned study.

    Attributes
    ----------
    case : planned case
        Formula, number of people, budget, trust model and confidence level of the plan.
    cells : tuple
        Predictions for each estimator: widths of intervals, a verdict and its reason.
    floor : ndarray, shape (coefficients,)
        Widths without privacy.
    remarks : tuple of str
        What the call left to defaults: the number of people, and estimators that are not compared.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read, and everything is computed from the schema, the guesses and
    simulated noise.
    """

    case: Case
    cells: tuple[Cell, ...]
    floor: Floats
    remarks: tuple[str, ...] = ()

    @property
    def frame(self) -> pd.DataFrame:
        """Table of the predictions, with one row per estimator and coefficient.

        The column ``width`` is the median width of the interval; it is nan if the coefficient will be weakly
        identified. ``se`` is the column ``width`` divided by twice the normal quantile. ``se_without_noise``
        is computed in the same way from the width without privacy. ``times`` is the width divided by the
        width without privacy. ``identified`` is the share of simulated fits in which the coefficient is not
        weakly identified. ``error`` is the largest relative standard error of the median widths of this
        estimator, and ``fits`` is the number of simulated fits. ``verdict`` is "identified", "nearly weak" or
        "weak", and it is "cannot" if the estimator cannot fit the model. ``reason`` is the message of a
        simulated fit without an interval; it is empty if every fit has intervals.
        """
        import pandas as pd

        frames = []
        for cell in self.cells:
            table: dict[str, Any] = {
                "estimator": cell.name,
                "coefficient": self.case.which,
                "width": cell.widths,
            }
            table |= {"se": cell.widths / self._unit, "se_without_noise": self.floor / self._unit}
            table |= {
                "times": cell.widths / self.floor,
                "identified": cell.identified,
                "verdict": cell.verdicts,
            }
            frames.append(
                pd.DataFrame(table | {"error": cell.error, "fits": cell.fits, "reason": cell.reason})
            )
        return pd.concat(frames, ignore_index=True)

    @property
    def best(self) -> str | None:
        """Name of the estimator with the narrowest intervals (geometric mean); None without widths.

        The best estimator identifies the most coefficients. If several estimators identify the same number of
        coefficients, the best of them has the narrowest intervals.
        """
        ranks = {cell.name: _rank(cell) for cell in self.cells if np.isfinite(cell.widths).any()}
        return min(ranks, key=lambda name: ranks[name]) if ranks else None

    def power(self, effect: float | Mapping[str, float]) -> pd.DataFrame:
        """Return the power of the two-sided test of each coefficient, for each estimator.

        Parameters
        ----------
        effect : float or mapping of str to float
            True coefficient under the alternative, in the units of the data: one number for all coefficients,
            or a mapping from names of coefficients to numbers. The name of a level, such as "Yes" for
            ``smoker[T.Yes]``, or of a factor with two levels, such as "smoker", can be used instead.

        Returns
        -------
        DataFrame
            Table of the power, with one row per coefficient and one column per estimator.

        Notes
        -----
        The power is the mean of ``Phi(e/s - z) + Phi(-e/s - z)`` over the simulated fits, where e is the true
        coefficient, s the standard error in a fit and z the normal quantile. A fit in which the coefficient
        is weakly identified counts as power 0. If the coefficient is weakly identified in most fits, the
        power is nan. `joint_power` is the power of the test of all levels of a factor.
        """
        import pandas as pd

        effects = effect if isinstance(effect, Mapping) else dict.fromkeys(self.case.which, effect)
        sizes = {self._named(name): abs(check_number(value, "effect")) for name, value in effects.items()}
        places = [self.case.which.index(name) for name in sizes]
        effect_sizes = np.array(list(sizes.values()))
        powers = {cell.name: cell.power(effect_sizes, self.case.alpha, places) for cell in self.cells}
        return pd.DataFrame(powers, index=list(sizes))

    def joint_power(self, term: str, effect: float | Mapping[str, float]) -> pd.Series[float]:
        """Return the power of the Wald test that all coefficients of a term are zero, for each estimator.

        Parameters
        ----------
        term : str
            Term of the formula, usually a factor, such as ``"C(region)"``. The test is that of
            ``result.wald_test_terms()``.
        effect : float or mapping of str to float
            True coefficients under the alternative, in the units of the data: one number for all coefficients
            of the term, or a mapping from their names, or from levels, to numbers. Coefficients that the
            mapping lacks are 0.

        Returns
        -------
        Series
            Power of the test at the planned number of people and budget, with one entry per estimator.

        Raises
        ------
        ArgumentError
            Raised if `term` is not a term of the formula, or `effect` names a coefficient of another term.

        Notes
        -----
        The power is the mean over the simulated fits of the probability that the test rejects, where the
        estimates are about normal with the covariance of the fit. A fit in which a coefficient of the term is
        weakly identified counts as power 0. If this happens in most fits, the power is nan.

        Planned power was compared with 400 simulated fits: 0.64 and 0.64 for `OLS`, 0.76 and 0.78 for
        `MomentOLS`, 0.96 and 0.97 for `Logit`. For `Poisson` at 6,000 people and epsilon 2 the planned power
        was 0.78 on average over 25 plans with different `rng`, with a standard deviation of 0.03, and 0.74 of
        400 simulated tests rejected. The estimates are assumed to be unbiased.

        **Privacy.** Costs nothing: no rows are read.
        """
        import pandas as pd

        terms = self.case.columns_by_term
        chosen = term_name(term) if isinstance(term, str) else term
        names = terms[str(check_choice(chosen, tuple(terms), "term"))]
        effects = effect if isinstance(effect, Mapping) else dict.fromkeys(names, effect)
        sizes = np.zeros(len(names))
        for name, value in effects.items():
            sizes[names.index(named_coefficient(name, names, "effect"))] = check_number(value, "effect")
        powers = {cell.name: cell.joint_power(chosen, sizes, self.case.alpha) for cell in self.cells}
        return pd.Series(powers, name="power", dtype=np.float64)

    def n_for(
        self,
        coefficient: str | None = None,
        *,
        width: float | None = None,
        effect: float | None = None,
        power: float = 0.8,
        estimator: str | None = None,
        progress: bool | None = None,
    ) -> int:
        """Return the number of people that is needed for a width of intervals or for a power.

        Parameters
        ----------
        coefficient : str, optional
            Name of the coefficient that must attain the width or the power. By default all coefficients of
            the plan must attain it.
        width : float, optional
            Target width of the interval, in the units of the data. Pass either `width` or `effect`.
        effect : float, optional
            True coefficient, in the units of the data. The two-sided test of zero must detect it with
            probability `power`.
        power : float
            Probability with which the test must detect `effect`.
        estimator : str, optional
            Name of the estimator. By default it is the estimator with the narrowest intervals, or the first
            estimator if no widths are predicted.
        progress : bool, optional
            Whether to show a progress bar of the simulated fits. By default the bar appears on a terminal
            only.

        Returns
        -------
        int
            Smallest number of people for which the predicted width or power attains the target at the planned
            budget. The number is at most 5,000,000, and it is accurate to about 1%. The search starts at the
            number of people in the plan, but the result does not depend on this start. The number includes
            rows that lack a value, if the guesses have `complete` below 1.

        Raises
        ------
        NotAvailableError
            Raised if even 5,000,000 people are not enough at this budget.

        Notes
        -----
        **Privacy.** Costs nothing: no rows are read.
        """
        goal = Goal(width=width, effect=effect, power=power, coefficient=coefficient, estimator=estimator)
        with progress_bar(progress, "people needed", unit="fit"):
            return self._people_for(self._aim(goal))

    def _people_for(self, aim: Aim) -> int:
        people = aim.people()
        if people is None:
            raise NotAvailableError(
                f"even {LARGEST_STUDY:,} people are not enough at this budget; Study.changes() shows "
                "whether other changes reach the target"
            )
        return people

    def budget_for(
        self,
        coefficient: str | None = None,
        *,
        width: float | None = None,
        effect: float | None = None,
        power: float = 0.8,
        estimator: str | None = None,
        progress: bool | None = None,
    ) -> float:
        """Return the budget that is needed for a width of intervals or for a power.

        Parameters
        ----------
        coefficient : str, optional
            Name of the coefficient that must attain the width or the power. By default all coefficients of
            the plan must attain it.
        width : float, optional
            Target width of the interval, in the units of the data. Pass either `width` or `effect`.
        effect : float, optional
            True coefficient, in the units of the data. The two-sided test of zero must detect it with
            probability `power`.
        power : float
            Probability with which the test must detect `effect`.
        estimator : str, optional
            Name of the estimator. By default it is the estimator with the narrowest intervals, or the first
            estimator if no widths are predicted.
        progress : bool, optional
            Whether to show a progress bar of the simulated fits. By default the bar appears on a terminal
            only.

        Returns
        -------
        float
            Smallest epsilon for the planned number of people, rounded up to four digits. It is mu or rho if
            the study was planned with mu or rho.

        Raises
        ------
        NotAvailableError
            Raised if no budget is large enough for this number of people.

        Notes
        -----
        **Privacy.** Costs nothing: no rows are read.
        """
        goal = Goal(width=width, effect=effect, power=power, coefficient=coefficient, estimator=estimator)
        with progress_bar(progress, "budget needed", unit="fit"):
            return self._budget_for(self._aim(goal))

    def _budget_for(self, aim: Aim) -> float:
        narrowest = max(self.floor[self.case.which.index(name)] for name in aim.case.which)
        if narrowest > aim.target:
            raise NotAvailableError(
                f"no budget gives intervals of width {aim.target:.4g} with {self.case.n:,} people, "
                f"because even without noise the width is {narrowest:.4g}; Study.n_for() returns the "
                "number of people needed"
            )
        level = aim.level()
        if level is None:
            raise NotAvailableError(
                f"no {self.case.word} up to 500 reaches the target with {aim.estimator}; "
                "Study.changes() shows whether other changes reach it"
            )
        return rounded_budget(level)

    def changes(
        self,
        coefficient: str | None = None,
        *,
        width: float | None = None,
        effect: float | None = None,
        power: float = 0.8,
        estimator: str | None = None,
        progress: bool | None = None,
    ) -> pd.DataFrame:
        """Return changes of the plan, with the predicted width and whether each change attains a target.

        Parameters
        ----------
        coefficient : str, optional
            Name of the coefficient that must attain the width or the power. By default all coefficients of
            the plan must attain it.
        width : float, optional
            Target width of the interval, in the units of the data. Pass either `width` or `effect`.
        effect : float, optional
            True coefficient, in the units of the data. The two-sided test of zero must detect it with
            probability `power`.
        power : float
            Probability with which the test must detect `effect`.
        estimator : str, optional
            Name of the estimator. By default it is the estimator with the narrowest intervals, or the first
            estimator if no widths are predicted.
        progress : bool, optional
            Whether to show a progress bar of the simulated fits. By default the bar appears on a terminal
            only.

        Returns
        -------
        DataFrame
            Table with the columns ``change``, ``width`` and ``does`` (whether the change attains the target).
            One row is the plan without changes. Every other row is the plan with one change: more people, a
            larger budget, bounds within four guessed standard deviations of the means, or the formula
            without one of its terms. Values outside such bounds are clipped, which changes the
            coefficients: the row names the columns of which, by the guesses, more than 0.1% of the values
            would be clipped. A term with a requested coefficient is never left out. The column ``width`` is
            the largest predicted width of the requested coefficients. If `effect` is passed, ``width``
            corresponds to the smallest predicted power.

        Notes
        -----
        **Privacy.** Costs nothing: no rows are read.
        """
        import pandas as pd

        goal = Goal(width=width, effect=effect, power=power, coefficient=coefficient, estimator=estimator)
        aim = self._aim(goal)
        with progress_bar(progress, "changes of the plan", unit="fit"):
            rows = [("as planned", aim.width(aim.case))]
            solvers: tuple[tuple[str, Callable[[Aim], float]], ...] = (
                ("n = {:,}", self._people_for),
                (self.case.word + " = {:.3g}", self._budget_for),
            )
            for text, solve in solvers:
                try:
                    rows.append((text.format(solve(aim)), aim.target))
                except NotAvailableError as error:
                    rows.append((str(error).split(";")[0], np.nan))
            rows += [(change, aim.width(case)) for change, case in variants(aim.case)]
        frame = pd.DataFrame(rows, columns=["change", "width"])
        return frame.assign(does=frame.width <= 1.0001 * aim.target)

    def directions(
        self,
        *,
        contraction: float = 0.5,
        amplitude: float = 0.1,
        frequency: float = 1.0,
        sensitivity: SensitivityRule = "exact",
    ) -> pd.DataFrame:
        """Return the predicted widths of `ModulatedOLS` by the number of modulation directions.

        Parameters
        ----------
        contraction : float in [0, 1)
            Contraction of a record toward the center (alpha of the paper).
        amplitude : float >= 0
            Size of the cosine modulation (lambda of the paper), in scaled units.
        frequency : float >= 0
            Frequency of the cosine modulation (omega of the paper).
        sensitivity : {"exact", "lipschitz"}
            Bound of the sensitivity to which the noise is calibrated, as in `ModulatedOLS`.

        Returns
        -------
        DataFrame
            Table with one row for each number of directions, from 1 to the number of private columns (at most
            12 rows). The column ``noise_sd`` is the standard deviation of the noise in the released vector of
            a client, in scaled units. ``times_one`` is the width divided by the width with one direction
            (geometric mean over the coefficients). The other columns are the widths for each coefficient.

        Raises
        ------
        NotAvailableError
            Raised if the study does not plan ``trust="local"`` with a numeric response, or its budget is
            infinite.

        Notes
        -----
        The covariance of the coefficients is ``A^-1 (M + N) A^-1 / n``. Here A is the second-moment matrix of
        the columns, and M is the second-moment matrix of the scores without noise. N is the contribution of
        the privacy noise and of the modulation, up to the fourth cumulants of the modulation. The moments are
        computed from 50,000 simulated people, and variances are averaged over 24 random sets of directions.
        With the exact sensitivity, the total noise variance of a released vector does not depend on the
        number of directions. Only the terms of fourth order in the amplitude depend on it. With the Lipschitz
        sensitivity of the paper, less noise is needed for more directions.

        **Privacy.** Costs nothing: no rows are read.
        """
        options = ModulationOptions(
            contraction=contraction, amplitude=amplitude, frequency=frequency, sensitivity=sensitivity
        )
        return directions_frame(self.case, options)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the predicted widths for each estimator, with the width without privacy as a line.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to plot on. By default a new figure is made.

        Returns
        -------
        matplotlib Axes
            The plot.
        """
        names = self.case.which
        cells = [cell for cell in self.cells if cell.verdict != "cannot"]
        ax = new_axes(ax, width=6.8, height=1.9 + 0.42 * len(names))
        rows = np.arange(len(names), dtype=float)
        widths = np.concatenate([self.floor, *(cell.widths for cell in cells)])
        edge = 1.6 * float(np.nanmax(widths)) if np.isfinite(widths).any() else 1.0
        ax.vlines(self.floor, rows - 0.34, rows + 0.34, color=INK, linewidth=1.6, label="without privacy")
        ax.axvline(edge, color=FAINT, linewidth=0.6)
        for place, cell in enumerate(cells):
            weak = np.isnan(cell.widths)
            at = rows + 0.5 * ((place + 0.5) / len(cells) - 0.5)
            label = f"{cell.name}{' (weak)' if weak.all() else ''}"
            color = f"C{place}"
            if not weak.all():
                ax.plot(cell.widths[~weak], at[~weak], "o", color=color, label=label)
            if weak.any():
                named = label if weak.all() else "_hidden"  # matplotlib leaves such labels out of legends
                ax.plot(np.full(weak.sum(), edge), at[weak], ">", color=color, label=named)
        ax.set_xscale("log")
        name_rows(ax, names)
        quiet(ax, grid="x")
        ax.set_xlabel(f"width of the {100 * (1 - self.case.alpha):g}% interval")
        ax.set_title(f"Planned: n = {self.case.n:,}, {self.case.budget}", loc="left")
        ax.legend(frameon=False, fontsize="small")
        return ax

    def summary(self) -> str:
        """Return the plan as text: predicted widths, a verdict for each estimator, and the assumptions.

        Returns
        -------
        str
            Text with a table of widths and the assumptions.
        """
        table = self.frame.drop(columns=["reason", "fits", "error", "verdict"])
        best = (
            (
                "no estimator has intervals for all coefficients in this plan; Study.changes() shows whether "
                "more people or a larger budget reach a given width"
            )
            if self.best is None
            else f"narrowest intervals: {self.best}"
        )
        return "\n".join(
            [
                f"Planned study: {self.case.formula}",
                f"n = {self.case.n:,}; {self.case.budget}; trust {self.case.trust}; "
                f"{100 * (1 - self.case.alpha):g}% intervals; computed from simulated rows, without any "
                "real data",
                "",
                table.to_string(index=False, float_format="{:.4g}".format, na_rep="-"),
                "",
                *(f"{cell.name}: {cell.described}{cell.reason and '; '}{cell.reason}" for cell in self.cells),
                best,
                *self._rare_levels,
                *self.remarks,
                "",
                "Assumptions",
                *(f"  {line}" for line in self.case.people.assumptions),
            ]
        )

    def __repr__(self) -> str:
        return self.summary()

    @property
    def _rare_levels(self) -> list[str]:
        """Sentences on levels of few people that are weak in most fits, or for which fits do not converge."""
        weak = {name for cell in self.cells for name in (*cell.weak, *cell.causes)}
        sentences = []
        for column in self.case.people.distributions:
            if not column.levels:
                continue
            common = column.values[int(np.argmax(column.shares))]
            for level, share in zip(column.values, column.shares, strict=True):
                term = re.compile(rf"(C\()?{re.escape(column.name)}\b.*\[T\.{re.escape(str(level))}\]")
                if share < RARE and any(map(term.fullmatch, weak)):
                    words = {"level": level, "column": column.name, "other": common}
                    sentences.append(RARE_LEVEL.format(**words, count=share * self.case.n, n=self.case.n))
        return sentences

    @property
    def _names(self) -> list[str]:
        """Estimators, the best one first."""
        return sorted((cell.name for cell in self.cells), key=lambda name: name != self.best)

    def _aim(self, goal: Goal) -> Aim:
        """Return the checked goal, with the fits of the plan."""
        return Aim.from_goal(self.case, self._names, goal).knowing(self.cells)

    @property
    def _unit(self) -> float:
        return float(2.0 * norm.isf(self.case.alpha / 2.0))

    def _named(self, name: object) -> str:
        return named_coefficient(name, self.case.which, "coefficient")


@error_boundary
@refuses(NOT_PLANNED)
def plan_study(
    schema: Schema,
    formula: str,
    n: int | None = None,
    *,
    guesses: Guesses | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: int | None = None,
    family: StudyFamily = "gaussian",
    status: str | None = None,
    exposure: str | None = None,
    trust: TrustModel | None = None,
    parties: PartyColumns | None = None,
    estimators: Sequence[str] | None = None,
    which: Sequence[str] | None = None,
    alpha: float = 0.05,
    fits: int | None = None,
    progress: bool | None = None,
) -> Study:
    """Predict widths of intervals, power and identification of a regression before any row is read.

    Parameters
    ----------
    schema : Schema
        Public bounds and levels of the columns, as the study will declare them.
    formula : str
        Formula of the regression.
    n : int
        Number of people in the study, from 5 to 5,000,000; default 10,000, which the plan then states. Leave
        `n` out if you want to compute it with `Study.n_for`.
    guesses : Guesses, optional
        Guessed means, standard deviations, shares, correlations and R^2. Quantities without a guess are
        computed from the bounds, and the result prints them.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. Budget of the planned fit.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise is
        Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : int, optional
        Seed of the simulated rows and of the simulated noise; default 0.
    family : {"gaussian", "binomial", "poisson", "negative-binomial", "hazards"}
        Distribution of the response. The choice "binomial" means logistic regression. The choice "hazards"
        means Cox's regression of times until an event (`PHReg`), whose coefficients are logarithms of hazard
        ratios.
    status : str, optional
        Name of the column with the status, for ``family="hazards"``: 1 if the time ended with the event, and
        0 if it was censored.
    exposure : str, optional
        Name of the column with the exposure of each person, such as the years at risk, for
        ``family="poisson"`` and ``family="negative-binomial"``. The schema declares the column with a lower
        bound above 0. The coefficients are then logarithms of rate ratios.
    trust : {"central", "server", "secure-sum", "local", "per-party"}, optional
        Trust model, that is, who has access to raw rows: one curator ("central"), a server of several sites
        ("server"), each site alone ("secure-sum"), nobody ("local"), or parties that hold different columns
        of the same people ("per-party"). The default is one curator.
    parties : mapping of str to sequence of str, optional
        Columns of each party, for ``trust="per-party"``.
    estimators : sequence of str, optional
        Names of the estimators. By default all estimators that support the family and the trust model are
        compared, `DebiasedLasso` only if the formula has at least 20 columns.
    which : sequence of str, optional
        Names of the coefficients to plan for. By default they are all slopes, or the first 20 slopes if there
        are more.
    alpha : float
        One minus the confidence level of the intervals.
    fits : int, optional
        Largest number of simulated fits of each estimator, at least 4. By default it is 48, or 96 with at
        most 20,000 people. With a smaller number, such as 8, the plan is quicker and its widths are less
        accurate: the column ``error`` of `Study.frame` states their standard error.
    progress : bool, optional
        Whether to show a progress bar of the simulated fits. By default the bar appears on a terminal only.

    Returns
    -------
    Study
        Study with the predicted widths, power and identification for every estimator, and with methods that
        compute the number of people or the budget for a target width.

    Raises
    ------
    ArgumentError, SchemaError
        Raised if an argument, a guess or the formula is invalid.
    NotAvailableError
        Raised if no estimator supports this family under this trust model, or people have several rows each.

    Warns
    -----
    LargeDeltaWarning
        Warns if `delta` is at least 1/n.

    Notes
    -----
    To plan a log-rank test of two groups, use `privinf.survival.plan_logrank`.

    With `exposure`, the mean count of person i is ``t_i exp(x_i'b)`` at the exposure t_i, whose distribution
    follows from its bounds and from the guesses, as that of other columns. The guessed mean of the response
    is the mean count per person. Without privacy and without overdispersion, the covariance of b is
    ``(sum_i t_i exp(x_i'b) x_i x_i')^{-1}``. For two groups with expected numbers of events E_1 and E_2, the
    standard error of the logarithm of their rate ratio is therefore ``sqrt(1/E_1 + 1/E_2)``.

    **Privacy.** Costs nothing: no rows are read. The schema and the guesses must be public.

    The widths are predicted by simulation, because some quantities in the formula of the covariance are known
    only after a fit. These quantities are the residuals after noisy clipping, the number of mixed rows, and
    the columns for which the noise is too large. Each estimator is fitted 16 to 48 times to simulated rows
    with simulated noise: up to 96 times with at most 20,000 people, and at most `fits` times. The simulation
    stops early when the relative standard error of each median width is at most 2.5%. The simulation of an
    estimator also stops if its intervals are wider, by at least two standard errors, than the intervals of
    another estimator. The median widths are reported. Weakly identified fits do not count for the median
    width. If most fits are weakly identified, no width is predicted. Sums over sites have the same noise as
    the sums of one curator, and are simulated in the same way. The exception is `DebiasedLasso`, for which
    fits with secure sums are simulated separately.

    Examples
    --------
    >>> import privinf as pi
    >>> schema = pi.Schema({"wage": (0, 60), "educ": (0, 20), "female": [0, 1]})
    >>> known = pi.Guesses(means={"wage": 20, "educ": 13}, sds={"wage": 8, "educ": 3}, rsquared=0.2)
    >>> study = pi.plan_study(schema, "wage ~ educ + female", 8000, guesses=known, epsilon=1, delta=1e-6,
    ...                       estimators=["MomentOLS"])
    >>> study.cells[0].verdict
    'identified'
    """
    options = StudyOptions(
        guesses=guesses,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        rho=rho,
        rng=rng,
        family=family,
        status=status,
        exposure=exposure,
        trust=trust,
        parties=parties,
        estimators=estimators,
        which=which,
        alpha=alpha,
        fits=fits,
        progress=progress,
    )
    study = _planned(schema, formula, FIRST_PEOPLE if n is None else n, options)
    if n is not None:
        warn_of_large_delta(options.delta, n)
    return study if n is not None else replace(study, remarks=(NO_PEOPLE, *study.remarks))


def _planned(schema: Schema, formula: str, n: int, options: StudyOptions) -> Study:
    """Return the study of the estimators that serve its family and trust."""
    case = checked_case(schema, formula, n, options)
    serve = _serving(case.people.family, case.trust, case.people.exposure)
    chosen = options.estimators
    if not serve:
        raise NotAvailableError(
            f"no estimator is available for family={case.people.family!r} with trust={case.trust!r}"
            f"{' and exposure=' if case.people.exposure is not None else ''}"
        )
    columns = len(case.people.design.names) - (case.people.design.constant is not None)
    remarks: tuple[str, ...] = ()
    if chosen is None and columns < LASSO_COLUMNS and serve != [SPARSE]:
        if SPARSE in serve:
            remarks = (FEW_COLUMNS.format(columns),)
        serve = [name for name in serve if name != SPARSE]
    names = list(
        dict.fromkeys(
            serve if chosen is None else (check_choice(name, serve, "estimators") for name in chosen)
        )
    )
    if not names:
        raise ArgumentError(
            "estimators must not be empty; omit estimators= to compare all available estimators"
        )
    total = len(names) * most_fits(case)
    with progress_bar(options.progress, "at most", total=total, unit="fit"):
        return Study(case, simulated(case, names), floor_widths(case), remarks)


def _serving(family: StudyFamily, trust: TrustModel, exposure: str | None = None) -> list[str]:
    """Return the names of the estimators of a family under a trust model, with exposures if there are any."""
    return [
        name
        for name, estimator in ESTIMATORS.items()
        if family in estimator.families
        and trust in estimator.trusts
        and (exposure is None or name in OF_RATES)
    ]


@error_boundary
@refuses(NOT_PLANNED)
def advise(
    schema: Schema,
    formula: str,
    n: int,
    *,
    guesses: Guesses | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: int | None = None,
    family: StudyFamily = "gaussian",
    status: str | None = None,
    exposure: str | None = None,
    trust: TrustModel | None = None,
    parties: PartyColumns | None = None,
    estimators: Sequence[str] | None = None,
    which: Sequence[str] | None = None,
    alpha: float = 0.05,
    fits: int | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Compare the estimators for a formula, under one trust model or under all trust models.

    Parameters
    ----------
    schema : Schema
        Public bounds and levels of the columns, as the study will declare them.
    formula : str
        Formula of the regression.
    n : int
        Number of people in the study, from 5 to 5,000,000.
    guesses : Guesses, optional
        Guessed means, standard deviations, shares, correlations and R^2. Quantities without a guess are
        computed from the bounds, and the result prints them.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. Budget of the planned fit.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise is
        Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : int, optional
        Seed of the simulated rows and of the simulated noise; default 0.
    family : {"gaussian", "binomial", "poisson", "negative-binomial", "hazards"}
        Distribution of the response. The choice "binomial" means logistic regression. The choice "hazards"
        means Cox's regression of times until an event (`PHReg`), whose coefficients are logarithms of hazard
        ratios.
    status : str, optional
        Name of the column with the status, for ``family="hazards"``: 1 if the time ended with the event, and
        0 if it was censored.
    exposure : str, optional
        Name of the column with the exposure of each person, such as the years at risk, for
        ``family="poisson"`` and ``family="negative-binomial"``. The schema declares the column with a lower
        bound above 0. The coefficients are then logarithms of rate ratios.
    trust : {"central", "server", "secure-sum", "local", "per-party"}, optional
        Trust model, that is, who has access to raw rows: one curator ("central"), a server of several sites
        ("server"), each site alone ("secure-sum"), nobody ("local"), or parties that hold different columns
        of the same people ("per-party"). By default all trust models with an estimator are compared, but
        "per-party" only if `parties` is passed.
    parties : mapping of str to sequence of str, optional
        Columns of each party, for ``trust="per-party"``.
    estimators : sequence of str, optional
        Names of the estimators. By default all estimators that support the family and the trust model are
        compared.
    which : sequence of str, optional
        Names of the coefficients to plan for. By default they are all slopes, or the first 20 slopes if there
        are more.
    alpha : float
        One minus the confidence level of the intervals.
    fits : int, optional
        Largest number of simulated fits of each estimator, at least 4. By default it is 48, or 96 with at
        most 20,000 people. With a smaller number, such as 8, the plan is quicker and its widths are less
        accurate: the column ``error`` of `Study.frame` states their standard error.
    progress : bool, optional
        Whether to show a progress bar of the simulated fits. By default the bar appears on a terminal only.

    Returns
    -------
    DataFrame
        Table with one row per trust model and estimator. Within a trust model, the estimator with the
        narrowest intervals comes first. The column ``width`` is the median width of the intervals over the
        coefficients. ``times`` is the width divided by the width without privacy (geometric mean over the
        coefficients). ``best`` states whether the estimator is the best for its trust model. The other
        columns are ``verdict`` and ``reason``.

    Raises
    ------
    ArgumentError
        Raised if a number is out of range, a name is unknown, or no estimator supports the family and the
        trust model.
    SchemaError
        Raised if the formula names a column that the schema does not declare.
    NotAvailableError
        Raised if an estimator cannot fit this formula.

    Warns
    -----
    LargeDeltaWarning
        Warns if `delta` is at least 1/n.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read, and everything is computed from the schema, the guesses and
    simulated noise.
    """
    options = StudyOptions(
        guesses=guesses,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        rho=rho,
        rng=rng,
        family=family,
        status=status,
        exposure=exposure,
        trust=trust,
        parties=parties,
        estimators=estimators,
        which=which,
        alpha=alpha,
        fits=fits,
        progress=progress,
    )
    import pandas as pd

    check_family(family)
    warn_of_large_delta(delta, n)
    kinds = [
        kind
        for kind in get_args(TrustModel)
        if _serving(family, kind, exposure) and (kind != "per-party" or parties)
    ]
    rows = []
    for kind in kinds if trust is None else [trust]:
        for_trust = replace(options, trust=kind, parties=parties if kind == "per-party" or trust else None)
        study = _planned(schema, formula, n, for_trust)
        for cell in sorted(study.cells, key=_order):
            known = np.isfinite(cell.widths)
            width, times = np.nan, np.nan
            if known.any():
                width = float(np.median(cell.widths[known]))
                times = float(np.exp(np.mean(np.log(cell.widths[known] / study.floor[known]))))
            reason = f"{cell.reason}{cell.reason and '; '}{ESTIMATORS[cell.name].rests_on}"
            best = cell.name == study.best
            rows.append((kind, cell.name, width, times, best, cell.described, reason))
    columns = ["trust", "estimator", "width", "times", "best", "verdict", "reason"]
    return pd.DataFrame(rows, columns=columns)


def _rank(cell: Cell) -> tuple[int, float]:
    """Return how many coefficients are weak, and the mean log width of the others."""
    known = np.isfinite(cell.widths)
    return int((~known).sum()), float(np.mean(np.log(cell.widths[known])))


def _order(cell: Cell) -> tuple[int, float]:
    """Return how many coefficients are weak, and the mean width of the others."""
    known = np.isfinite(cell.widths)
    return int((~known).sum()), float(np.mean(cell.widths[known])) if known.any() else 0.0
