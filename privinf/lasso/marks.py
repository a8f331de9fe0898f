"""What results say of their precision columns, of columns that may be missed, and of their scores' tail."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from privinf.inference.estimate import upper_quantile
from privinf.inference.tails import HEAVY, HEAVY_TAIL, Clip
from privinf.lasso.rows import LassoRows
from privinf.results.notes import sentence
from privinf.typing import Flags, Floats

EXPLAINED_NOTE = (
    "(R2 of x) is the share of a target that the other columns of its precision column explain, a noisy "
    "number: `explained_shares` has its interval."
)
EXHAUSTED = (
    "Not to be trusted for {}: even the smallest quarter of the neighbours explains a part of the target, so "
    "that more columns are likely correlated with it than could be picked. The coefficient takes over a part "
    "of the effect of every such column that was left out. Name fewer targets, spend more, or raise "
    "precision_sparsity=."
)
ASTRAY_COLUMN = (
    "Not to be trusted for {}: the regression on the neighbours did not get there, as the noise of their "
    "Gram matrix is as large as its smallest eigenvalue or the last step was still long. Name fewer targets, "
    "spend more, or lower precision_sparsity=."
)
HEAVY_COLUMN = (
    "Not to be trusted for {}: given its neighbours the target has a long tail (as rare levels have), which "
    "the clips of its regression on them cut: it takes over a part of the effects of neighbours that "
    "are not in the fit. Use logs or narrower bounds, or spend more."
)
MEAN_NOTE = (
    "Target: the mean. Scores were clipped at {:.3g} of their typical size, by noisy counts of their tail; "
    "about {:.2g}% of the records passed the clip and counted with its size (lambda {:.2f})."
)
ROBUST_NOTE = (
    "Target: robust. Every score is clipped about where it is best for normal errors: under errors that are "
    "skewed, with a size that goes along with columns, the coefficients are not those of the mean."
)
# The level of the test for missed columns; what is called seen is seen with the probability FOUND.
LEVEL = 0.05
FOUND = 0.8
NUMBERS = ("statistic", "pvalue", "seen_from", "correlation", "bias_in_errors")
WHOLE_NUMBERS = ("columns", "kept", "standing_out")
# So many kept columns that were seen by luck say that others of their size were not.
MANY_FADING = 3
FADING = (
    "Not to be trusted: sparsity is in doubt. {} of the {} columns that are kept have effects below {:.2g} "
    "standard errors, which are seen with a probability of less than {:.1g}: others of their size are likely "
    "to have been missed. "
)
EXHAUSTED_SEARCH = (
    "Not to be trusted: more columns matter than are kept. Outside the {} that are kept {} (z = {:.2f}, "
    "p = {:.2g} over {} columns), and more are likely to. Keep {} or more; if columns still stand out then, "
    "sparsity does not hold, and no choice of columns makes the intervals right."
)
FOUND_LATER = (
    "More columns matter than the {} that are kept: {} (z = {:.2f}, p = {:.2g} over {} columns) and joined "
    "the fit; then no other did. Intervals allow for it"
)
NOT_KEPT = " {} of the columns that were picked and not kept stand out, too, and are allowed for."
NOTHING_SEEN = (
    "Was a column missed? Of {} columns outside the fit {} stands out most: z = {:.2f}, p = {:.2g}. An "
    "effect of {:.2g} standard errors (without privacy) would have been seen with probability {:.1g}{}."
)
BIAS = (
    "; a smaller one, of a column whose correlation with a target is below {:.2g} given its precision "
    "column, moves an interval by up to {:.2g} standard errors"
)
NOT_LOOKED = "; correlations with targets were not looked for"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NeighbourMarks:
    """How well the precision columns of k targets are known.

    Attributes
    ----------
    picked : tuple of int, length k
        Neighbours of each target beside the columns of the fit.
    explained : ndarray, shape (k,)
        Share of the target's mean square that the other columns of its precision column explain.
    explained_sd : ndarray, shape (k,)
        Its noise.
    last : ndarray, shape (k,)
        Share that the smallest quarter of the picked neighbours explains beside the others.
    exhausted, unsettled, heavy : ndarray of bool, shape (k,)
        Whether that is material, beyond noise; the regression did not get there; its clips hide a tail.
    """

    picked: tuple[int, ...]
    explained: Floats
    explained_sd: Floats
    last: Floats
    exhausted: Flags
    unsettled: Flags
    heavy: Flags

    def only(self, clear: Flags) -> NeighbourMarks:
        """Return the marks of some of the targets."""
        return NeighbourMarks(
            picked=tuple(count for count, keep in zip(self.picked, clear, strict=True) if keep),
            explained=self.explained[clear],
            explained_sd=self.explained_sd[clear],
            last=self.last[clear],
            exhausted=self.exhausted[clear],
            unsettled=self.unsettled[clear],
            heavy=self.heavy[clear],
        )

    def warning(self, names: Sequence[str]) -> str | None:
        """Return what a reader of the intervals of these targets must know, if anything."""
        texts = []
        marks = (self.exhausted, EXHAUSTED), (self.unsettled, ASTRAY_COLUMN), (self.heavy, HEAVY_COLUMN)
        for marked, text in marks:
            if marked.any():
                texts.append(text.format(", ".join(np.array(names)[marked])))
        return " ".join(texts) or None

    def settings(self, names: Sequence[str]) -> dict[str, Any]:
        """Return everything as plain numbers and texts."""
        plain = {
            "neighbours": list(self.picked),
            "explained": self.explained.tolist(),
            "explained_sd": self.explained_sd.tolist(),
            "last": self.last.tolist(),
        }
        return plain | ({} if (warning := self.warning(names)) is None else {"warning": warning})


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedColumnTest:
    """Test that no column outside the fit has an effect.

    Attributes
    ----------
    column : str
        The column outside the fit that stood out most.
    statistic : float
        T, its size over its standard error.
    pvalue : float
        By Bonferroni over all columns outside the fit.
    columns : int
        Number of these.
    kept : int
        Columns that the fit keeps.
    standing_out : int
        Columns beside the kept ones that were seen to stand out: found here, or picked and not kept.
    found : tuple of str
        Those found here, which joined the fit: intervals allow for them.
    exhausted : bool
        Whether the last that was looked at still stood out, so that more are likely to: intervals come with a
        warning.
    seen_from : float
        Effect, in standard errors without privacy, that is seen with probability .8 (with all columns as
        targets: in their own standard errors).
    correlation : float
        Correlation with a target from which on a column is among its neighbours; 1 if it had none picked.
    bias : tuple of float
        What an effect just below `seen_from` of one column correlated just below `correlation` does to the
        coefficient of each target, user units.
    bias_in_errors : float
        The largest of these in standard errors of the target.
    faint : int
        Columns that a fit chose itself and that are below `seen_from`; three and more bring a warning.
    """

    column: str
    statistic: float
    pvalue: float
    columns: int
    kept: int
    standing_out: int
    found: tuple[str, ...]
    exhausted: bool
    seen_from: float
    correlation: float
    bias: tuple[float, ...]
    bias_in_errors: float
    faint: int = 0

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> MissedColumnTest:
        """Return the test that `settings` describe."""
        plain: dict[str, Any] = {name: float(settings[name]) for name in NUMBERS}
        plain |= {name: int(settings[name]) for name in WHOLE_NUMBERS}
        bias = tuple(float(value) for value in settings["bias"])
        found = tuple(str(name) for name in settings["found"])
        exhausted = bool(settings["exhausted"])
        plain["faint"] = int(settings.get("faint", 0))
        return cls(column=str(settings["column"]), bias=bias, found=found, exhausted=exhausted, **plain)

    def settings(self) -> dict[str, Any]:
        """Return everything as plain numbers and texts."""
        return asdict(self) | {"bias": list(self.bias), "found": list(self.found)}

    @property
    def rejects(self) -> bool:
        """Whether columns outside the fit matter, at the level of 5%."""
        return self.pvalue < LEVEL

    @property
    def doubtful(self) -> bool:
        """Whether more columns are likely to matter than were found: intervals come with a warning."""
        return self.exhausted or self.faint >= MANY_FADING

    @property
    def note(self) -> str:
        """What the summary says."""
        bias = BIAS.format(self.correlation, self.bias_in_errors) if self.correlation < 1.0 else NOT_LOOKED
        names = list(dict.fromkeys([*self.found, self.column] if self.exhausted else self.found))
        out = f"{', '.join(names)} stand{'s' * (len(names) < 2)} out"
        first = (self.statistic, self.pvalue, self.columns)
        if self.exhausted:
            return EXHAUSTED_SEARCH.format(self.kept, out, *first, self.kept + self.standing_out)
        kept = self.kept + len(self.found)
        doubt = FADING.format(self.faint, kept, self.seen_from, FOUND) * self.doubtful
        if self.found:
            return f"{doubt}{FOUND_LATER.format(self.kept, out, *first)}{bias}."
        dropped = NOT_KEPT.format(self.standing_out) * (self.standing_out > 0)
        seen = NOTHING_SEEN.format(*first[2:], self.column, *first[:2], self.seen_from, FOUND, bias)
        return f"{doubt}{seen}{dropped}"


@dataclass(frozen=True, slots=True)
class Suspects:
    """Columns outside a fit that were looked at, one after the other, and their statistics.

    Attributes
    ----------
    statistics : dict of int to float
        T of each, in order: all but the last stand out.
    columns : int
        Number of columns outside the fit.
    seen_from : float
        As in `MissedColumnTest`.
    further : float
        Price of all but the first, and of the fits with what was found, zCDP.
    """

    statistics: dict[int, float]
    columns: int
    seen_from: float
    further: float = 0.0

    @property
    def critical(self) -> float:
        """The statistic that rejects."""
        return critical_value(self.columns)

    @property
    def found(self) -> tuple[int, ...]:
        """Those that stand out."""
        return tuple(j for j, t in self.statistics.items() if t > self.critical)

    @property
    def exhausted(self) -> bool:
        """Whether the last of them still does."""
        return len(self.found) == len(self.statistics) > 0


def critical_value(columns: int) -> float:
    """Return the statistic from which on the test over so many columns rejects."""
    return upper_quantile(LEVEL / 2.0 / columns)


def test_without_targets(
    suspects: Suspects | None,
    rows: LassoRows,
    kept: Sequence[int],
    known: Mapping[int, float],
    automatic: bool,
) -> MissedColumnTest | None:
    """Return the test of a fit without any debiased target; None if no column outside it was looked at."""
    if suspects is None or not suspects.statistics:
        return None
    nothing = np.empty(0)
    return test_of(
        suspects,
        suspects.found,
        suspects.exhausted,
        rows,
        kept,
        known,
        (suspects.seen_from, 1.0),
        sampling=nothing,
        errors=nothing,
        unit=nothing,
        automatic=automatic,
    )


def test_of(
    suspects: Suspects,
    found: Sequence[int],
    exhausted: bool,
    rows: LassoRows,
    kept: Sequence[int],
    known: Mapping[int, float],
    sight: tuple[float, float],
    sampling: Floats,
    errors: Floats,
    unit: Floats,
    automatic: bool,
) -> MissedColumnTest:
    """Return the test in names and user units.

    Parameters
    ----------
    suspects : Suspects
    found : sequence of int
        Those that joined the fit.
    exhausted : bool
        Whether more are likely to matter.
    rows : LassoRows
    kept : sequence of int
        Kept columns, with or without those found.
    known : mapping of int to float
        Coefficients over their errors of all columns in the fit.
    sight : tuple of float
        From where on effects, and correlations with targets, are found.
    sampling, errors : ndarray, shape (k,)
        Standard errors of the targets: without privacy, and whole.
    unit : ndarray, shape (k,)
        What divides the targets' coefficients.
    automatic : bool
        Whether all kept columns stood out: a number that was asked for is filled up.
    """
    statistics, (seen, correlation), fixed = suspects.statistics, sight, {rows.constant, *found}
    column = max(statistics, key=lambda j: statistics[j])
    dropped = [t for j, t in known.items() if j not in fixed | {*kept}]
    bias = correlation * seen * sampling
    faint = [j for j in {*kept, *found} - {rows.constant} if known.get(j, math.inf) < suspects.seen_from]
    return MissedColumnTest(
        column=rows.names[column],
        statistic=statistics[column],
        pvalue=min(1.0, 2.0 * suspects.columns * float(ndtr(-statistics[column]))),
        columns=suspects.columns,
        kept=len({*kept} - fixed),
        standing_out=sum(int(t > suspects.critical) for t in [*dropped, *statistics.values()]),
        found=tuple(rows.names[j] for j in found),
        exhausted=bool(exhausted),
        seen_from=seen,
        correlation=correlation,
        bias=tuple(float(value) for value in bias / unit),
        bias_in_errors=float((bias / errors).max(initial=0.0)),
        faint=len(faint) if automatic else 0,
    )


@dataclass(frozen=True, slots=True)
class ScoreTail:
    """What noisy counts say of the scores' tail.

    Attributes
    ----------
    beyond : float
        Share of the records whose scores pass the clip, and count with its size.
    ratio : float
        lambda: what lies beyond the clip, over what the layer below it holds (`privinf.inference.tails`).
    """

    beyond: float
    ratio: float

    @classmethod
    def of(cls, clip: Clip, n: int) -> ScoreTail:
        """Return that of a clip of n scores."""
        return cls(clip.cut / n, clip.ratio)


def tail_notes(clip: Clip | None, n: int, targets: int) -> tuple[str, ...]:
    """Return what the summary says of the target and of scores beyond the clip."""
    if clip is None:
        return (ROBUST_NOTE,)
    tail = ScoreTail.of(clip, n)
    notes = [MEAN_NOTE.format(clip.high / math.sqrt(targets), 100.0 * tail.beyond, tail.ratio)]
    if tail.ratio > HEAVY:
        notes.append(sentence(HEAVY_TAIL.format(tail.ratio)))
    return tuple(notes)
