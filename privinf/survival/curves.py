"""Survival curves with intervals, bands, quantiles and restricted means, all from one release."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError
from privinf.inference.estimate import upper_quantile
from privinf.inference.survival import (
    CellEstimate,
    Curve,
    nonnegative,
    survival_difference,
    time_weights,
)
from privinf.results.export import PortableCurves
from privinf.results.notes import MISSING_LABEL, Note, all_events_notes, complete_sample_notes
from privinf.results.rendering import PrivateSummary, UnavailableOfCurves
from privinf.results.summary import (
    ESTIMATED_OBSERVATIONS,
    NOT_PRIVATE,
    OBSERVATIONS,
    privacy_facts,
)
from privinf.survival.base import PaperRow, ReleasedSurvival, negative_times_notes, shown_number
from privinf.survival.comparison import (
    ONE_GROUP,
    LogRankResult,
    compared,
    group_pairs,
    level_names,
    pair_quantile,
)
from privinf.survival.release import SurvivalRelease
from privinf.typing import ArrayLike, Floats, LogRankWeights, SummaryNotes
from privinf.validation import SAME_TIME, check_array, check_choice, check_flag, check_fraction, check_number

if TYPE_CHECKING:
    import pandas as pd

CurveKind = Literal["survival", "hazard"]
TITLES: dict[CurveKind, str] = {"survival": "Kaplan-Meier Curve", "hazard": "Nelson-Aalen Curve"}
INTERVALS_NOTE = (
    "std err and intervals allow for sampling and for the privacy noise. Each interval holds by itself; the "
    "bands of .table hold at all times together."
)
MEDIAN_NOTE = (
    "The interval of a median comes from tests at the edges of the grid, so it can differ from the times at "
    "which the intervals of the curve cross 0.5."
)
SHOWN_NOTE = (
    "Curves and numbers at risk are shown monotone and without negative numbers; intervals belong to the "
    "estimates before that."
)
VISIBLE_NOISE = 1e-6  # relative to the largest standard error of a number at risk
COUNTS_NOTE = (
    "Numbers at risk and of events are estimates: {}their noise has standard errors of {:.3g} "
    "to {:.3g} for a number at risk, and of {:.3g} to {:.3g} for the events of an interval. So small numbers "
    "are mostly noise."
)
ACTUARIAL_NOTE = (
    "Events are known by intervals of the public grid: a record that is censored in an interval counts as at "
    "risk for half of it. Pass discrete=True if the grid has every time that can occur."
)
ENDS_NOTE = (
    "In {} the numbers at risk are known well enough up to {:g}. Later the curve is not estimated, and its "
    "limits are those that a falling curve must keep."
)
FINER = " An earlier public horizon= makes the grid finer where the curve is estimated."
HORIZON_NOTE = (
    "About {:.0%} of the records are still at risk at {:g}, the end of the follow-up. What happens to them "
    "later is not used: all results describe the time up to {:g}."
)
# Arguments of other packages.
ALWAYS_DRAWN = "a plot always shows the bands; plot the columns of curves.table for another figure"
COUNTS_DRAWN = (
    "a plot always shows the numbers at risk below the curves, and no single censored record, because a "
    "release contains none"
)
OTHER_LEVEL = "call the method of curves.intervals(0.9), the same curves with intervals of another level"
JOINT_CURVES = (
    "bands of curves.table hold at all times jointly, and curves.difference(time, simultaneous=True) "
    "compares groups"
)
STILL_AT_RISK = 0.05  # share of the records at risk at the end of the follow-up from which a note is printed
EARLY = 0.5  # part of the follow-up below which a note names an earlier horizon as the remedy
CLEAR_SDS = 3.0  # and sds of its noise that their number exceeds
SHOWN_TIMES = 4  # at which the summary prints the curve
FEWEST_SHOWN = 2  # of them that have an estimate, if the grid allows it


class TimeEstimate(NamedTuple):
    """A time, or another number, with its interval."""

    estimate: float
    low: float
    high: float


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SurvivalResult(ReleasedSurvival, PortableCurves, UnavailableOfCurves):
    """Survival curves or cumulative hazards of groups, with intervals, from one noisy release.

    Attributes
    ----------
    release : release
        Released noisy counts from which the result is computed.
    kind : {"survival", "hazard"}
        Whether the table and the plot show survival curves or cumulative hazards.
    confidence_level : float
        Confidence level of the intervals and of the bands.
    cautions : tuple of (category, text)
        Warnings about the curves.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    release: SurvivalRelease
    kind: CurveKind = "survival"
    confidence_level: float = 0.95
    cautions: tuple[tuple[type[Warning], str], ...] = ()
    _cells: CellEstimate = field(init=False)
    _curves: tuple[Curve, ...] = field(init=False)
    _foreign_arguments: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("ci_show", "ci_alpha", "ci_force_lines"), ALWAYS_DRAWN),
        **dict.fromkeys(("at_risk_counts", "show_censors"), COUNTS_DRAWN),
        "alpha": OTHER_LEVEL,
        "confidence_level": OTHER_LEVEL,
        "simultaneous": JOINT_CURVES,
    }

    def __post_init__(self) -> None:
        cells = self.release.cells
        summed = self.kind == "hazard" and self.release.discrete
        object.__setattr__(self, "_cells", cells)
        curves = tuple(cells.curve(place, summed=summed) for place in range(cells.groups))
        object.__setattr__(self, "_curves", curves)

    # ---- what it is

    @property
    def title(self) -> str:
        """Title of the summary."""
        return TITLES[self.kind]

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups; "all" if there are no groups."""
        return self.release.groups

    @property
    def times(self) -> Floats:
        """Public edges of the time grid, shape (K,)."""
        return self.release.edges

    @property
    def last_times(self) -> dict[str, float]:
        """Last time up to which the curve of each group can be estimated; 0 if there is no such time."""
        return {
            group: float(self.times[last - 1]) if (last := int(self._curves[place].last)) else 0.0
            for place, group in enumerate(self.groups)
        }

    @property
    def _z(self) -> float:
        return upper_quantile((1.0 - self.confidence_level) / 2.0)

    # ---- curves

    @property
    def table(self) -> pd.DataFrame:
        """Table of the curves: estimates, standard errors, intervals, bands, numbers at risk and of events.

        Returns
        -------
        DataFrame
            The table has one row per time, and for several groups one row per group and time. At times at
            which the curve cannot be estimated, the estimate is nan, and the interval contains all values
            that a decreasing curve can have.
        """
        import pandas as pd

        low, high = level_names(self.confidence_level)
        names = ["survival" if self.kind == "survival" else "cumulated hazard", "std err", low, high]
        names += ["band low", "band high", "at risk", "events"]
        parts = {}
        for place, group in enumerate(self.groups):
            index = pd.Index(self.times, name=self.release.names[0])
            parts[group] = pd.DataFrame(np.column_stack(self._columns(place)), index, names)
        if len(parts) == 1:
            return parts[self.groups[0]]
        return pd.concat(parts, names=[self.release.names[2]])

    def _columns(self, place: int) -> list[Floats]:
        """Return the columns of the table of one group."""
        curve = self._curves[place]
        hazard = _falling(curve)
        intervals = curve.intervals(self._z)
        band = curve.band(self.confidence_level)
        se = np.where(curve.used, np.sqrt(curve.variance), np.nan)
        at_risk = np.minimum.accumulate(np.clip(self._cells.at_risk[place], 0.0, self.release.nobs))
        events = nonnegative(self._cells.D[place])
        counts = [np.rint(at_risk), np.rint(np.maximum(events, 0.0))]
        if self.kind == "hazard":
            return [hazard, se, *intervals, *band, *counts]
        S = np.exp(-hazard)
        ends = [np.exp(-end) for end in (*intervals[::-1], *band[::-1])]
        return [S, S * se, *ends, *counts]

    def tidy(self) -> pd.DataFrame:
        """Return a table with one row per group and time, as ``broom::tidy`` does for a survival curve.

        The columns are ``group``, ``time``, ``estimate``, ``std_error``, ``conf_low``, ``conf_high``,
        ``band_low``, ``band_high``, ``n_risk`` and ``n_event``.

        Returns
        -------
        DataFrame
            Table with one row per group and time.
        """
        import pandas as pd

        names = ["estimate", "std_error", "conf_low", "conf_high", "band_low", "band_high"]
        names += ["n_risk", "n_event"]
        parts = []
        for place, group in enumerate(self.groups):
            part = pd.DataFrame(np.column_stack(self._columns(place)), columns=names)
            part.insert(0, "time", self.times)
            part.insert(0, "group", group)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    @property
    def count_noise(self) -> pd.DataFrame:
        """Standard errors that the noise causes in the numbers ``at risk`` and of ``events`` of each group.

        The table has one row per time; all groups have the same noise. The numbers of `table` and `at_risk`
        are rounded and made monotone after the noise.
        """
        import pandas as pd

        noise = self._cells.noise.sizes(full_grid=self.release.discrete)
        index = pd.Index(self.times, name=self.release.names[0])
        columns = {"at risk": np.sqrt(noise.NN), "events": np.sqrt(np.diag(noise.DD))}
        return pd.DataFrame(columns, index)

    def at_risk(self, times: Any = None) -> pd.DataFrame:
        """Return the estimated numbers at risk, decreasing in time and rounded, with one column per group.

        `count_noise` has the standard errors of their noise.

        Parameters
        ----------
        times : sequence of float, optional
            Times at which the numbers at risk are returned. A time stands for the interval of the grid that
            begins at this time or contains it. The default is time 0 and four to six edges of the grid.

        Returns
        -------
        DataFrame
            Table of the numbers at risk, whose index has the times.
        """
        import pandas as pd

        chosen = self._risk_times() if times is None else np.atleast_1d(np.asarray(times, dtype=np.float64))
        places = chosen * (1.0 + SAME_TIME)  # a time that differs from an edge by rounding is at it
        index = np.minimum(np.searchsorted(self.times, places, side="right"), len(self.times) - 1)
        columns = {group: self._columns(place)[6][index] for place, group in enumerate(self.groups)}
        beyond = places >= self.times[-1]
        frame = pd.DataFrame(columns, index=pd.Index(chosen, name=self.release.names[0]))
        if beyond.any():
            still = np.clip(np.rint(self._cells.C[:, -1]), 0.0, None)
            frame.loc[beyond] = np.minimum(still, frame.loc[beyond])
        return frame.astype(np.int64)

    def _risk_times(self) -> Floats:
        K = len(self.times)
        parts = next((parts for parts in (4, 5, 6, 3) if K % parts == 0), 5)
        step = max(K // parts, 1)
        return np.concatenate([[0.0], self.times[step - 1 :: step]])

    # ---- numbers of a curve

    def quantile(self, p: float = 0.5) -> pd.DataFrame:
        """Return the time at which a share p of each group has had the event, with an interval.

        Parameters
        ----------
        p : float
            Order p of the quantile, between 0 and 1; 0.5 is the median survival time.

        Returns
        -------
        DataFrame
            Table with one row per group: the estimate and the ends of its interval. The estimate is nan if
            the curve does not decrease to ``1 - p``. The interval comes from tests of the edges of the grid.
            Its upper end is infinite if no edge is significantly later than the quantile.
        """
        order = check_fraction(p, "p")
        return self._frame([self._quantile(place, order) for place in range(len(self.groups))])

    def median(self) -> pd.DataFrame:
        """Return the median survival time of each group with its interval.

        Returns
        -------
        DataFrame
            Table with one row per group: the estimate and the ends of its interval.
        """
        return self.quantile(0.5)

    def _quantile(self, place: int, p: float) -> TimeEstimate:
        curve = self._curves[place]
        first, last = curve.quantile_edges(p, self._z)
        places = np.concatenate([[0.0], self.times, [math.inf]])
        low, high = float(places[int(first)]), float(places[int(last)])
        hazard = _falling(curve)[curve.used]
        target = -math.log1p(-p)
        estimate = math.nan
        if len(hazard) and hazard[-1] >= target:
            at = int(np.argmax(hazard >= target))
            if self.release.discrete:
                estimate = float(self.times[at])
            else:
                before = hazard[at - 1] if at else 0.0
                start = places[at]
                share = (target - before) / max(hazard[at] - before, 1e-300)
                estimate = float(start + share * (self.times[at] - start))
            estimate = min(max(estimate, low), high)
        return TimeEstimate(estimate, low, high)

    def restricted_mean(self, until: float | None = None) -> pd.DataFrame:
        """Return the restricted mean time to the event, in which times after ``until`` count as ``until``.

        Parameters
        ----------
        until : float, optional
            Public time at which the time to the event is cut off. The default is the last time up to which
            the curves of all groups can be estimated.

        Returns
        -------
        DataFrame
            Table with one row per group: the estimate, its standard error, the ends of the interval, and the
            time ``until``.

        Raises
        ------
        ArgumentError
            Raised if the time is not positive, or is later than the last time up to which all curves can be
            estimated.
        """
        last = min(self.last_times.values())
        end = last if until is None else check_number(until, "until")
        if not 0.0 < end <= last * (1.0 + SAME_TIME):
            raise ArgumentError(
                f"until= must be a positive time up to {last:g}, the last time up to which all curves are "
                "estimated"
            )
        end = min(end, last)
        frame = self._frame([self._mean(place, end) for place in range(len(self.groups))])
        frame.insert(1, "std err", [self._mean_and_sd(place, end)[1] for place in range(len(self.groups))])
        frame["until"] = end
        return frame

    def _mean_and_sd(self, place: int, until: float) -> tuple[float, float]:
        curve = self._curves[place]
        mean, sd = curve.restricted_mean(self.times, until, steps=self.release.discrete)
        return float(mean), float(sd)

    def _mean(self, place: int, until: float) -> TimeEstimate:
        mean, sd = self._mean_and_sd(place, until)
        half = self._z * sd
        return TimeEstimate(mean, max(mean - half, 0.0), min(mean + half, until))

    # ---- the curves at single times

    def at(self, times: float | ArrayLike) -> pd.DataFrame:
        """Return the survival probability, or the cumulative hazard, at given times, with intervals.

        Parameters
        ----------
        times : float or sequence of float
            Times between 0 and the horizon. The hazard is assumed to be constant between two edges of the
            time grid. With ``discrete=True`` the curve changes only at edges.

        Returns
        -------
        DataFrame
            Table with one row per time, and for several groups one row per group and time. The columns are
            the estimate, its standard error and the ends of the interval, which holds for each time
            separately. At times at which the curve cannot be estimated, the estimate is nan, and the interval
            contains all values that a decreasing curve can have.

        Raises
        ------
        ArgumentError
            Raised if a time is negative or later than the horizon.
        """
        import pandas as pd

        chosen = _checked_times(times, self.times)
        low, high = level_names(self.confidence_level)
        names = ["survival" if self.kind == "survival" else "cumulated hazard", "std err", low, high]
        parts = {}
        for place, group in enumerate(self.groups):
            index = pd.Index(chosen, name=self.release.names[0])
            parts[group] = pd.DataFrame(np.column_stack(self._columns_at(place, chosen)), index, names)
        if len(parts) == 1:
            return parts[self.groups[0]]
        return pd.concat(parts, names=[self.release.names[2]])

    def _columns_at(self, place: int, times: Floats) -> list[Floats]:
        """Return estimate, standard error and ends of one group at times."""
        curve = self._curves[place]
        steps = self.release.discrete
        points = curve.at(self.times, times, steps=steps)
        shown = time_weights(self.times, times, steps=steps).matrix @ np.nan_to_num(_falling(curve))
        hazard = np.where(points.used, shown, np.nan)
        low, high = points.intervals(self._z, curve.intervals(self._z)[0][..., -1])
        se = np.where(points.used, np.sqrt(points.variance), np.nan)
        if self.kind == "hazard":
            return [hazard, se, low, high]
        S = np.exp(-hazard)
        return [S, S * se, np.exp(-high), np.exp(-low)]

    def difference(self, time: float, *, simultaneous: bool = True) -> pd.DataFrame:
        """Return the differences of survival probabilities between groups at a time, with intervals.

        Parameters
        ----------
        time : float
            Time at which groups are compared, between 0 and the horizon.
        simultaneous : bool
            Whether the intervals of all pairs of groups hold jointly (by Bonferroni's inequality).

        Returns
        -------
        DataFrame
            Table with one row per pair of groups, labeled "b - a": the estimate, its standard error and the
            ends of its interval. The interval is computed from the intervals of both groups. The estimate is
            nan if one of the two curves cannot be estimated at this time.

        Raises
        ------
        ArgumentError
            Raised if there is only one group, or the time is not between 0 and the horizon.
        """
        import pandas as pd

        check_flag(simultaneous, "simultaneous")
        if len(self.groups) < 2:
            raise ArgumentError(ONE_GROUP)
        at = float(_checked_times(check_number(time, "time"), self.times)[0])
        pairs = group_pairs(len(self.groups))
        z = pair_quantile(self.confidence_level, len(pairs) if simultaneous else 1)
        rows = [survival_difference(self._cells, pair, self.times, at, z) for pair in pairs]
        names = [f"{self.groups[second]} - {self.groups[first]}" for first, second in pairs]
        low, high = level_names(self.confidence_level)
        return pd.DataFrame(np.array(rows, dtype=np.float64), names, ["estimate", "std err", low, high])

    def _frame(self, estimates: list[TimeEstimate]) -> pd.DataFrame:
        import pandas as pd

        low, high = level_names(self.confidence_level)
        return pd.DataFrame(estimates, index=list(self.groups)).set_axis(["estimate", low, high], axis=1)

    # ---- other views of the same release

    def intervals(self, confidence_level: float) -> SurvivalResult:
        """Return the same curves with intervals and bands of another confidence level, at no further cost.

        Parameters
        ----------
        confidence_level : float
            Level, between 0 and 1.

        Returns
        -------
        SurvivalResult
            The same curves with the new intervals.
        """
        return self._as(confidence_level=check_fraction(confidence_level, "confidence_level"))

    def nelson_aalen(self) -> SurvivalResult:
        """Return the cumulative hazards from the same release, at no further cost.

        Returns
        -------
        SurvivalResult
            The same curves with the new intervals.
        """
        return self._as(kind="hazard")

    def kaplan_meier(self) -> SurvivalResult:
        """Return the survival curves from the same release, at no further cost.

        Returns
        -------
        SurvivalResult
            The same curves with the new intervals.
        """
        return self._as(kind="survival")

    def _as(self, **changes: Any) -> SurvivalResult:
        return replace(self, **changes)

    def logrank(self, weights: LogRankWeights = "logrank", *, exponent: float = 1.0) -> LogRankResult:
        """Log-rank test that all groups have the same hazard, from the same release at no further cost.

        Parameters
        ----------
        weights : {"logrank", "fleming-harrington", "gehan"}
            Weights of the time intervals in the test: 1, ``S(t)**exponent``, or the share of the records that
            are at risk.
        exponent : float
            Exponent of "fleming-harrington".

        Returns
        -------
        LogRankResult
            Result with the statistic and the p-value, and for two groups the hazard ratio with its interval.

        Raises
        ------
        ArgumentError
            Raised if there is one group only.
        """
        result = compared(self.release, weights, exponent, self.confidence_level)
        return replace(result, cautions=self.cautions)

    # ---- summary

    def summary(self, notes: SummaryNotes = "main") -> PrivateSummary:
        """Return a summary with medians, restricted means, the curve at a few times, and the privacy cost.

        Parameters
        ----------
        notes : {"main", "all"}
            Notes below the table. With "main" the summary prints at most four notes: warnings and
            explanations of the table. With "all" it prints every note and the assumptions of the privacy
            guarantee.

        Returns
        -------
        Summary of statsmodels
            Summary, which prints as text. Its methods ``as_text``, ``as_html``, ``as_latex`` and ``as_csv``
            return other formats.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        check_choice(notes, SummaryNotes, "notes")
        return PrivateSummary(
            title=f"{self.title} Results",
            top=_facts(self),
            header=["estimate", "std err", *level_names(self.confidence_level)],
            rows=[(name, *map(shown_number, numbers)) for name, *numbers in self._paper_rows()],
            tests=([], []),
            privacy=privacy_facts(self.privacy),
            notes=self._summary_notes(),
            printed=notes,
        )

    @property
    def _notes(self) -> tuple[Note, ...]:
        early = [
            Note(_ends_text(group, last, float(self.times[-1])), "must-read")
            for group, last in self.last_times.items()
            if last < self.times[-1]
        ]
        detail = [] if self.release.discrete else [Note(ACTUARIAL_NOTE)]
        shown = [Note(SHOWN_NOTE), Note(_counts_note(self), "table")] if self.release.scale > 0.0 else []
        return (
            *complete_sample_notes(self.complete),
            *negative_times_notes(self.release),
            *early,
            *all_events_notes(float(self._cells.D.sum()), self.nobs),
            Note(f"{INTERVALS_NOTE} {MEDIAN_NOTE}" if self.kind == "survival" else INTERVALS_NOTE, "table"),
            *_horizon_notes(self._cells, self.nobs, float(self.times[-1])),
            *shown,
            *detail,
        )

    def _paper_rows(self) -> list[PaperRow]:
        return [row for place in range(len(self.groups)) for row in _group_rows(self, place)]

    # ---- files

    def _view(self) -> dict[str, Any]:
        return {"class": type(self).__name__, "kind": self.kind, "confidence_level": self.confidence_level}

    @classmethod
    def _from_view(cls, release: SurvivalRelease, view: dict[str, Any]) -> Self:
        level = check_fraction(view.get("confidence_level"), "confidence_level")
        kind = check_choice(view.get("kind"), CurveKind, "kind")
        return cls(release=release, kind=kind, confidence_level=level)

    def __repr__(self) -> str:
        size = f"{len(self.groups)} groups" if len(self.groups) > 1 else "one curve"
        return f"<{self.title}: {size}, {len(self.times)} times, {self.nobs} records>"


def _facts(result: SurvivalResult) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the two columns of the header."""
    release = result.release
    target = "survival" if result.kind == "survival" else "cumulated hazard"
    grid = "every time" if release.discrete else "intervals"
    left = [("Target:", f"{target} up to {result.times[-1]:g}"), ("Time:", release.names[0])]
    left.append(("Status:", release.names[1]))
    if len(release.names) > 2:
        left.append(("Groups:", release.names[2]))
    if result.privacy.stamp:
        left.append(("Privacy:", NOT_PRIVATE))
    label = OBSERVATIONS if result.complete is None else ESTIMATED_OBSERVATIONS
    right = [(label, f"{result.nobs:d}"), ("Grid:", f"{len(result.times)} {grid}")]
    estimated = min(result.last_times.values())
    if estimated < result.times[-1]:
        right.append(("Estimated up to:", f"{estimated:g}"))
    if release.sites > 1:
        right.append(("Sites:", str(release.sites)))
    if result.complete is not None:
        right.append((MISSING_LABEL, "rows dropped"))
    return left, right


def _counts_note(result: SurvivalResult) -> str:
    """Return the note on the noise of the numbers at risk and of the events."""
    at_risk, events = result.count_noise["at risk"], result.count_noise["events"]
    known = at_risk <= VISIBLE_NOISE * at_risk.max()  # all are at risk at the start, up to rounding
    where = "" if len(result.groups) == 1 else "in each group "
    return COUNTS_NOTE.format(where, at_risk[~known].min(), at_risk.max(), events.min(), events.max())


def _ends_text(group: str, last: float, end: float) -> str:
    """Return the note on the last time at which the curve of a group is estimated."""
    text = ENDS_NOTE.format("the data" if group == "all" else f"group {group}", last)
    return text + FINER if last < EARLY * end else text


def _horizon_notes(cells: CellEstimate, n: int, end: float) -> tuple[Note, ...]:
    """Return the note on records that are followed beyond the end of the follow-up."""
    beyond = cells.C[:, -1]
    sd = cells.noise.scale * math.sqrt(2.0 * len(beyond))  # a cell has at most sqrt 2 times the scale
    count = float(beyond.sum())
    if count < max(STILL_AT_RISK * n, CLEAR_SDS * sd):
        return ()
    return (Note(HORIZON_NOTE.format(min(count / n, 1.0), end, end), "table"),)


def _falling(curve: Curve) -> Floats:
    """Return the cumulated hazard made monotone, as it is shown; nan where it is not estimated."""
    return np.where(curve.used, np.maximum.accumulate(np.maximum(curve.hazard, 0.0)), np.nan)


def _checked_times(times: Any, edges: Floats) -> Floats:
    """Return times of the grid; ArgumentError for others."""
    chosen = check_array([times] if np.ndim(times) == 0 else times, "times", ndim=1)
    end = float(edges[-1])
    if len(chosen) and (chosen.min() < 0.0 or chosen.max() > end * (1.0 + SAME_TIME)):
        raise ArgumentError(f"times= must be from 0 to {end:g}, the public end of the follow-up")
    return np.minimum(chosen, end)


def _shown_edges(count: int, last: int) -> list[int]:
    """Return the positions of edges that a summary prints: up to the last edge with an estimate, if any.

    They divide the grid into equal parts, and these parts into halves until at least two of the edges have an
    estimate.
    """
    step = max(count // SHOWN_TIMES, 1)
    while True:
        edges = np.arange(count - 1, -1, -step)[::-1][-max(count // step, 1) :]
        estimated = edges[edges < last]
        if last == 0 or step == 1 or len(estimated) >= FEWEST_SHOWN:
            return [int(at) for at in (estimated if len(estimated) else edges)[-SHOWN_TIMES:]]
        step //= 2


def _group_rows(result: SurvivalResult, place: int) -> list[PaperRow]:
    """Return median, restricted mean and the curve at a few edges of one group."""
    group = result.groups[place]
    prefix = "" if group == "all" else f"{group}: "
    rows: list[PaperRow] = []
    if result.kind == "survival":
        median = result._quantile(place, 0.5)
        rows.append((f"{prefix}median", median.estimate, math.nan, median.low, median.high))
    last = min(result.last_times.values())
    if result.kind == "survival" and last > 0.0:
        mean = result._mean(place, last)
        sd = result._mean_and_sd(place, last)[1]
        rows.append((f"{prefix}restricted mean ({last:g})", mean.estimate, sd, mean.low, mean.high))
    columns = np.column_stack(result._columns(place)[:4])
    name = "survival" if result.kind == "survival" else "hazard"
    for at in _shown_edges(len(result.times), max(int(curve.last) for curve in result._curves)):
        estimate, se, low, high = columns[at].tolist()
        rows.append((f"{prefix}{name} at {result.times[at]:g}", estimate, se, low, high))
    return rows
