"""Comparisons of groups by the log-rank test and its family, and the hazard ratio of two groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy as np
from scipy.stats import chi2

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import upper_quantile
from privinf.inference.survival import (
    CellEstimate,
    LogRankScore,
    gehan_weights,
    log_hazard_ratio,
    log_rank,
    survival_weights,
)
from privinf.results.export import PortableTest
from privinf.results.notes import MISSING_LABEL, Note, all_events_notes, complete_sample_notes
from privinf.results.rendering import (
    SEVERAL_PAIRS,
    PrivateSummary,
    SummaryColumn,
    UnavailableOfLogRank,
    shown_pvalue,
)
from privinf.results.summary import (
    ESTIMATED_OBSERVATIONS,
    NOT_PRIVATE,
    OBSERVATIONS,
    number,
    privacy_facts,
)
from privinf.survival.base import PaperRow, ReleasedSurvival, negative_times_notes, shown_number
from privinf.survival.release import SurvivalRelease
from privinf.typing import Alternative, Floats, LogRankWeights, SummaryNotes
from privinf.validation import check_choice, check_flag, check_fraction, check_number

if TYPE_CHECKING:
    import pandas as pd

ONE_GROUP = "a comparison needs at least two groups: pass by="
TEST_NOTE = (
    "The test allows for sampling and for the privacy noise: under the null hypothesis its rate of "
    "rejection is its level, whatever the noise."
)
RATIO_NOTE = (
    "The hazard ratio is that of {second} to {first}. Its interval has every ratio that the test does not "
    "reject; it assumes proportional hazards up to {end:g}."
)
UP_TO_NOTE = (
    "Up to time {:g}, the test uses all times at which enough records of all groups together are at risk. "
    "The curve of a single group can end earlier."
)
RATIO_ERROR = "The standard error of the hazard ratio is that of its logarithm."
UNBOUNDED_NOTE = "An end of the interval of the hazard ratio is unbounded, because the noise hides the ratio."
PAIRS_NOTE = "Hazard ratios and tests of all pairs of groups are in .pairwise(), at no further cost."
NO_RATIO = "Weights other than those of the log-rank test have no hazard ratio: use weights='logrank'."
EXPECTED_NOTE = (
    "observed - expected compares the events of a group with those expected if all hazards were equal, with "
    "the weights of the test."
)
PAIR_RATIOS = (
    "The hazard ratio of a row is that of its first group to its second. Its interval has every ratio that "
    "the test does not reject; it assumes proportional hazards up to {end:g}."
)
JOINT_RATIOS = (
    "The intervals hold jointly (Bonferroni), and the p-values are adjusted for the number of pairs (Holm)."
)
SEPARATE_RATIOS = (
    "Each interval and p-value holds separately: among many pairs some differ by chance "
    "(simultaneous=True allows for that)."
)
TEST_NAMES: dict[LogRankWeights, str] = {
    "logrank": "Log-Rank Test",
    "fleming-harrington": "Fleming-Harrington Test",
    "gehan": "Gehan Test",
}


class ComparisonRow(NamedTuple):
    """A line of a comparison's table."""

    name: str
    estimate: float
    bse: float
    low: float
    high: float


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class LogRankResult(ReleasedSurvival, PortableTest, UnavailableOfLogRank):
    """Result of a log-rank test, with the hazard ratio of two groups, from one noisy release.

    Attributes
    ----------
    title : str
        Title of the summary.
    release : release
        Released noisy counts from which the result is computed.
    statistic : float
        Chi-squared statistic.
    df : float
        Degrees of freedom of the test: the number of groups minus 1.
    pvalue : float
        p-value.
    rows : tuple
        Estimates with standard errors and intervals. For two groups and the weights of the log-rank test,
        there is one estimate, the hazard ratio. The standard error is for the logarithm of the hazard ratio,
        and is computed from the length of the interval. For three or more groups, or for other weights, the
        estimates are the observed minus the expected numbers of events in each group. Their standard errors
        assume equal hazards.
    effects : mapping of str to float
        Observed minus expected numbers of events in each group, if `rows` has the hazard ratio.
    weights : {"logrank", "fleming-harrington", "gehan"}
        Weights of the test.
    exponent : float
        Exponent of the weights "fleming-harrington".
    confidence_level : float
        Level of the intervals.
    null : str
        Null hypothesis.
    alternative : {"two-sided"}
        Alternative.
    cautions : tuple of (category, text)
        Warnings about the test.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    title: str
    release: SurvivalRelease
    rows: tuple[ComparisonRow, ...]
    weights: LogRankWeights
    statistic: float
    pvalue: float
    df: float
    exponent: float = 1.0
    confidence_level: float = 0.95
    null: str = "equal hazards"
    alternative: Alternative = "two-sided"
    effects: Mapping[str, float] = field(default_factory=dict)
    cautions: tuple[tuple[type[Warning], str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "effects", dict(self.effects))

    @property
    def hazard_ratio(self) -> ComparisonRow:
        """Hazard ratio of the second group to the first group, with its interval.

        Raises
        ------
        ArgumentError
            Raised if there are more than two groups, or the weights are not the weights of the log-rank test.
        """
        if len(self.release.groups) != 2 or self.weights != "logrank":
            raise ArgumentError(
                "hazard_ratio needs two groups and weights='logrank': .pairwise() of a test with "
                "weights='logrank' has the hazard ratios of all pairs of groups"
            )
        return self.rows[0]

    def pairwise(
        self, confidence_level: float | None = None, *, simultaneous: bool = True
    ) -> HazardRatiosResult:
        """Return the hazard ratio and the log-rank test of every pair of groups.

        Parameters
        ----------
        confidence_level : float, optional
            Confidence level of the intervals, between 0 and 1. The default is the level of this result.
        simultaneous : bool
            Whether the intervals of all pairs hold jointly (by Bonferroni's inequality) and the p-values are
            adjusted for the number of pairs (by Holm's method). With two groups this option has no effect.

        Returns
        -------
        HazardRatiosResult
            One row per pair of groups, labeled "b to a". The attribute ``pvalues`` has the p-value of the
            hypothesis that both groups have the same hazard, and ``table`` has everything in one data frame.

        Raises
        ------
        ArgumentError
            Raised if the weights are not the weights of the log-rank test.
        """
        if self.weights != "logrank":
            raise ArgumentError("pairwise() has hazard ratios, which need weights='logrank'")
        level = self.confidence_level if confidence_level is None else confidence_level
        ratios = hazard_ratios(self.release, level, simultaneous=simultaneous)
        return replace(ratios, cautions=self.cautions)

    @property
    def table(self) -> pd.DataFrame:
        """Estimates, standard errors and intervals."""
        return estimates_table(self.rows, self.confidence_level)

    @property
    def _notes(self) -> tuple[Note, ...]:
        notes = [*complete_sample_notes(self.complete), *negative_times_notes(self.release)]
        if self.rows[0].name.startswith("hazard ratio"):
            first, second = self.release.groups
            end = float(self.release.edges[-1])
            if math.isinf(self.rows[0].high) or self.rows[0].low == 0.0:
                notes.append(Note(UNBOUNDED_NOTE, "must-read"))
            text = RATIO_NOTE.format(first=first, second=second, end=end)
            notes.append(Note(f"{text} {RATIO_ERROR}", "table"))
        elif len(self.release.groups) == 2:
            notes.append(Note(NO_RATIO))
        elif self.weights == "logrank":
            notes.append(Note(PAIRS_NOTE, "table"))
        notes += all_events_notes(float(self.release.cells.D.sum()), self.nobs)
        notes += [Note(EXPECTED_NOTE, "table")]
        notes += [Note(UP_TO_NOTE.format(float(self.release.edges[-1])), "table"), Note(TEST_NOTE)]
        return tuple(notes)

    def summary(self, notes: SummaryNotes = "main") -> PrivateSummary:
        """Return a summary with the test, the hazard ratio of two groups, and the privacy cost.

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
        label = OBSERVATIONS if self.complete is None else ESTIMATED_OBSERVATIONS
        left = [("Null:", self.null), ("Groups:", self.release.names[2]), (label, f"{self.nobs:d}")]
        if self.privacy.stamp:
            left.append(("Privacy:", NOT_PRIVATE))
        right = [
            ("Statistic:", number(self.statistic)),
            ("Df:", f"{self.df:.0f}"),
            ("P-value:", shown_pvalue(self.pvalue)),
            ("Up to time:", f"{self.release.edges[-1]:g}"),
        ]
        if self.complete is not None:
            right.append((MISSING_LABEL, "rows dropped"))
        return PrivateSummary(
            title=f"{self.title} Results",
            top=(left, right),
            header=["estimate", "std err", *level_names(self.confidence_level)],
            rows=[(row.name, *map(shown_number, row[1:])) for row in self.rows],
            tests=([(f"{name}:", number(size)) for name, size in self.effects.items()], []),
            privacy=privacy_facts(self.privacy),
            notes=self._summary_notes(),
            printed=notes,
        )

    # ---- tables for papers, and files

    def _paper_rows(self) -> list[PaperRow]:
        return [(row.name, row.estimate, row.bse, row.low, row.high) for row in self.rows]

    def _paper_facts(self) -> list[str]:
        test = f"statistic = {number(self.statistic)} (df = {self.df:.0f}), p = {shown_pvalue(self.pvalue)}"
        effects = [f"{name}: {number(size)}." for name, size in self.effects.items()]
        errors = [RATIO_ERROR] if self.rows[0].name.startswith("hazard ratio") else []
        return [f"{self.title} of {self.null}: {test}.", *errors, *effects]

    def _view(self) -> dict[str, Any]:
        words = ("weights", "exponent", "confidence_level")
        return {"class": type(self).__name__} | {word: getattr(self, word) for word in words}

    @classmethod
    def _from_view(cls, release: SurvivalRelease, view: dict[str, Any]) -> Self:
        level = check_fraction(view.get("confidence_level"), "confidence_level")
        weights = check_choice(view.get("weights"), LogRankWeights, "weights")
        exponent = check_number(view.get("exponent"), "exponent", low=0.0)
        return cast("Self", compared(release, weights, exponent, level))

    def __repr__(self) -> str:
        return (
            f"<{self.title}: statistic={number(self.statistic)}, pvalue={self.pvalue:.4g}, "
            f"{len(self.release.groups)} groups, {self.nobs} records>"
        )


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class HazardRatiosResult(ReleasedSurvival, PortableTest):
    """Hazard ratios of all pairs of groups with their log-rank tests, from one noisy release.

    Attributes
    ----------
    release : release
        Released noisy counts from which the result is computed.
    rows : tuple
        Hazard ratios with intervals, one per pair. The standard error is for the logarithm of the ratio, and
        is computed from the length of the interval. The estimate is nan if the noise is too large to estimate
        the hazard ratio.
    pair_pvalues : tuple of float
        p-values of equal hazards, one per row.
    confidence_level : float
        Level of the intervals.
    simultaneous : bool
        Whether the intervals hold jointly (by Bonferroni's inequality) and the p-values are adjusted for the
        number of pairs (by Holm's method).
    null : str
        Empty: each row has a null hypothesis of its own.
    alternative : {"two-sided"}
        Alternative.
    cautions : tuple of (category, text)
        Warnings about the ratios.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    release: SurvivalRelease
    rows: tuple[ComparisonRow, ...]
    pair_pvalues: tuple[float, ...]
    confidence_level: float = 0.95
    simultaneous: bool = True
    null: str = ""
    alternative: Alternative = "two-sided"
    cautions: tuple[tuple[type[Warning], str], ...] = ()

    @property
    def title(self) -> str:
        """Title of the summary."""
        return "Simultaneous Hazard Ratios" if self.simultaneous else "Hazard Ratios"

    @property
    def effects(self) -> dict[str, float]:
        """Effect sizes in addition to the hazard ratios: none."""
        return {}

    @property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p-values of equal hazards, by the name of the pair."""
        import pandas as pd

        return pd.Series(self.pair_pvalues, [row.name for row in self.rows], name="pvalue")

    @property
    def pvalue(self) -> float:
        """p-value of equal hazards, if there is only one pair.

        Raises
        ------
        NotAvailableError
            Raised if there are several pairs, whose p-values are in `pvalues`.
        """
        if len(self.pair_pvalues) != 1:
            raise NotAvailableError(SEVERAL_PAIRS.format(len(self.pair_pvalues)))
        return self.pair_pvalues[0]

    @property
    def table(self) -> pd.DataFrame:
        """Hazard ratios, standard errors of their logarithms, p-values and intervals."""
        table = estimates_table(self.rows, self.confidence_level)
        table.insert(2, "pvalue", self.pair_pvalues)
        return table

    def tidy(self) -> pd.DataFrame:
        """Return a table with one row per pair, which also has the column ``p_value``.

        Returns
        -------
        DataFrame
            One row per pair.
        """
        frame = super(HazardRatiosResult, self).tidy()
        frame.insert(3, "p_value", self.pair_pvalues)
        return frame

    @property
    def _notes(self) -> tuple[Note, ...]:
        notes = [*complete_sample_notes(self.complete), *negative_times_notes(self.release)]
        if any(math.isinf(row.high) or row.low == 0.0 for row in self.rows):
            notes.append(Note(UNBOUNDED_NOTE, "must-read"))
        notes += all_events_notes(float(self.release.cells.D.sum()), self.nobs)
        ratios = PAIR_RATIOS.format(end=float(self.release.edges[-1]))
        return (*notes, Note(f"{ratios} {RATIO_ERROR}", "table"), Note(TEST_NOTE))

    @property
    def _pvalue_column(self) -> SummaryColumn:
        cells = [shown_pvalue(pvalue, digits=3) for pvalue in self.pair_pvalues]
        return SummaryColumn(name="P>chi2", cells=cells, place=2, note=self._jointly)

    @property
    def _jointly(self) -> str:
        """Whether intervals and p-values of all pairs hold together, as a sentence."""
        return JOINT_RATIOS if self.simultaneous else SEPARATE_RATIOS

    @property
    def _interval_name(self) -> str:
        return "joint interval" if self.simultaneous else "interval"

    def summary(self, notes: SummaryNotes = "main") -> PrivateSummary:
        """Return a summary with the ratio, the p-value and the interval of each pair.

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
        label = OBSERVATIONS if self.complete is None else ESTIMATED_OBSERVATIONS
        left = [("Groups:", self.release.names[2]), (label, f"{self.nobs:d}")]
        left += [("Privacy:", NOT_PRIVATE)] if self.privacy.stamp else []
        right = [("Pairs:", f"{len(self.rows)}"), ("Up to time:", f"{self.release.edges[-1]:g}")]
        right += [] if self.complete is None else [(MISSING_LABEL, "rows dropped")]
        summary = PrivateSummary(
            title=f"{self.title} Results",
            top=(left, right),
            header=["estimate", "std err", *level_names(self.confidence_level)],
            rows=[(row.name, *map(shown_number, row[1:])) for row in self.rows],
            tests=([], []),
            privacy=privacy_facts(self.privacy),
            notes=self._summary_notes(),
            printed=notes,
        )
        return summary.with_column(self._pvalue_column)

    # ---- tables for papers, and files

    def _paper_rows(self) -> list[PaperRow]:
        return [(row.name, row.estimate, row.bse, row.low, row.high) for row in self.rows]

    def _paper_facts(self) -> list[str]:
        return [self._jointly, RATIO_ERROR]

    def _view(self) -> dict[str, Any]:
        words = ("confidence_level", "simultaneous")
        return {"class": type(self).__name__} | {word: getattr(self, word) for word in words}

    @classmethod
    def _from_view(cls, release: SurvivalRelease, view: dict[str, Any]) -> Self:
        ratios = hazard_ratios(release, view.get("confidence_level"), simultaneous=view.get("simultaneous"))
        return cast("Self", ratios)

    def __repr__(self) -> str:
        size = f"{len(self.rows)} pairs of {len(self.release.groups)} groups"
        return f"<{self.title}: {size}, {self.nobs} records>"


def hazard_ratios(
    release: SurvivalRelease, confidence_level: Any, *, simultaneous: Any
) -> HazardRatiosResult:
    """Return the hazard ratios of all pairs of groups of a release.

    Raises
    ------
    ArgumentError
        There is one group, or an option is invalid.
    """
    level = check_fraction(confidence_level, "confidence_level")
    jointly = check_flag(simultaneous, "simultaneous")
    groups = release.groups
    if len(groups) < 2:
        raise ArgumentError(ONE_GROUP)
    pairs = group_pairs(len(groups))
    z = pair_quantile(level, len(pairs) if jointly else 1)
    cells = [release.cells.pair(*pair) for pair in pairs]
    ratios = np.array([log_hazard_ratio(pair, z) for pair in cells])
    pvalues = chi2.sf(np.array([float(log_rank(pair).statistic) for pair in cells]), 1.0)
    names = [f"{groups[second]} to {groups[first]}" for first, second in pairs]
    with np.errstate(over="ignore"):
        estimates, low, high = np.exp(ratios).T
    errors = (ratios[:, 2] - ratios[:, 1]) / (2.0 * z)
    numbers = np.column_stack([estimates, errors, low, high]).tolist()
    return HazardRatiosResult(
        release=release,
        rows=tuple(ComparisonRow(name, *row) for name, row in zip(names, numbers, strict=True)),
        pair_pvalues=tuple((holm(pvalues) if jointly else pvalues).tolist()),
        confidence_level=level,
        simultaneous=jointly,
    )


def estimates_table(rows: Sequence[ComparisonRow], level: float) -> pd.DataFrame:
    """Return estimates, standard errors and intervals as a data frame."""
    import pandas as pd

    columns = ["estimate", "std err", *level_names(level)]
    return pd.DataFrame([row[1:] for row in rows], [row.name for row in rows], columns)


def compared(
    release: SurvivalRelease, weights: LogRankWeights, exponent: float, confidence_level: float
) -> LogRankResult:
    """Return the comparison of the groups of a release.

    Raises
    ------
    ArgumentError
        There is one group, or the weights are none.
    """
    check_choice(weights, LogRankWeights, "weights")
    check_number(exponent, "exponent", low=0.0)
    if len(release.groups) < 2:
        raise ArgumentError(ONE_GROUP)
    cells = release.cells
    numbers = _weights(cells, weights, exponent)
    score = log_rank(cells, numbers)
    statistic = float(score.statistic)
    df = len(release.groups) - 1.0
    z = upper_quantile((1.0 - confidence_level) / 2.0)
    rows = []
    effects = {}
    if df == 1.0 and weights == "logrank":
        b, low, high = log_hazard_ratio(cells, z)
        sd = (high - low) / (2.0 * z)
        name = f"hazard ratio, {release.groups[1]} to {release.groups[0]}"
        rows.append(ComparisonRow(name, *(math.exp(b), sd, math.exp(low), math.exp(high))))
    U = np.concatenate([[-score.U.sum()], score.U])
    names = [f"{group}: observed - expected" for group in release.groups]
    if rows:
        effects = dict(zip(names, U.tolist(), strict=True))
    else:
        pairs = zip(names, U.tolist(), _sds(score), strict=True)
        rows = [ComparisonRow(*pair, math.nan, math.nan) for pair in pairs]
    return LogRankResult(
        title=TEST_NAMES[weights],
        release=release,
        rows=tuple(rows),
        weights=weights,
        exponent=exponent,
        statistic=statistic,
        pvalue=float(chi2.sf(statistic, df)),
        df=df,
        confidence_level=confidence_level,
        effects=effects,
    )


def _sds(score: LogRankScore) -> list[float]:
    """Return the standard errors of observed minus expected events of all groups, if hazards are equal."""
    variance = score.sampling + score.noise
    others = np.sqrt(np.maximum(np.diag(variance), 0.0))
    return [math.sqrt(max(float(variance.sum()), 0.0)), *others.tolist()]


def _weights(cells: CellEstimate, weights: LogRankWeights, exponent: float) -> Floats | None:
    if weights == "gehan":
        return gehan_weights(cells)
    return survival_weights(cells, exponent) if weights == "fleming-harrington" else None


def group_pairs(groups: int) -> list[tuple[int, int]]:
    """Return all pairs of groups, the earlier one first."""
    return list(combinations(range(groups), 2))


def pair_quantile(level: float, pairs: int) -> float:
    """Return the normal quantile of intervals that hold jointly for a number of pairs, by Bonferroni."""
    return upper_quantile((1.0 - level) / (2.0 * pairs))


def holm(pvalues: Floats) -> Floats:
    """Return p-values adjusted by Holm's method; nan stays nan, and counts as a test."""
    order = np.argsort(pvalues)  # nan last
    adjusted = np.empty_like(pvalues)
    adjusted[order] = np.maximum.accumulate(np.arange(len(order), 0, -1) * pvalues[order])
    return np.minimum(adjusted, 1.0)


def level_names(level: float) -> tuple[str, str]:
    """Return the heads of an interval's columns."""
    tail = (1.0 - level) / 2.0
    return f"[{tail:.4g}", f"{1.0 - tail:.4g}]"
