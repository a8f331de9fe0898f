"""Notes of a summary on the intervals of a fit: weak coefficients, heavy tails, and remedies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from privinf.glm.column_moments import RARE, column_moments, has_two_values
from privinf.glm.curved import OneStepRelease
from privinf.glm.least_squares import OneStepFit, TailPull
from privinf.glm.posterior_draws import (
    LARGEST_PRIOR_BIAS,
    PRIOR_CONSTANT,
    PRIOR_SLOPE,
    PosteriorDraws,
    prior_bias,
)
from privinf.glm.queries import InitialEstimate
from privinf.glm.rare_reference import rare_references
from privinf.glm.rows import GlmRows
from privinf.inference.estimate import Estimate
from privinf.inference.score_test import Identification
from privinf.inference.tails import HEAVY, HEAVY_TAIL
from privinf.results.effects import LEAST_STRENGTH
from privinf.results.notes import OUTLYING_WEIGHTS, Note, must_read, ranked, sentence
from privinf.results.wald import NO_CONVERGENCE
from privinf.schema import Design, Schema
from privinf.schema.terms import Column, Contrast, Expression, Indicator, Piece, Plain
from privinf.typing import Flags, Floats

CHEAPER = '; residual_clip="bounds" assumes nothing about the tail'
FAR_OUT = 0.5  # standard errors that a wrong mean of outlying rows may move an estimate before a note says so
# Standard deviations of a column between its mean and its farther bound from which on outlying rows may move
# its coefficient: by `OneStepRelease.far` at this distance, in proportion beyond it. Chosen on the lottery
# (benchmarks/results/silent_cells.md).
FAR_COLUMN = 4.0
LONG_STEPS = (
    "the last step was long for {}: the intervals are longer, to allow for a bias of up to {:.2g} standard "
    "errors; if few rows have a level, merge it with another level (pi.Factor(other=...)), or use more rows "
    "or budget"
)
NOTABLE_STEP_BIAS = 1.0  # standard errors from which on a note names the coefficient
MISFIT_FAR_OUT = (
    f"{OUTLYING_WEIGHTS}: intervals of {{}} are valid if the logistic model also holds for these rows. The "
    "release does not show whether it does. If it does not, these estimates may differ from an unweighted "
    "regression by about {:.1f} standard errors. To reduce this difference, use more rows, more budget or {}"
)
TIGHTER = "tighter bounds"
# The same with bounds of columns, by the released moments.
WITHIN = "bounds within {:.0f} standard deviations of the mean ({})"
DISPERSED = 20.0  # variance of the counts over their mean from which on a note says so
FEW_DECIDE = (
    "the counts vary {:.0f} times as much as a {} model allows, so a few records may "
    "determine the coefficients, and the correction for clipped records may miss some of "
    "them; {}model a smaller range of the counts or their logarithm"
)
CUT = (
    "By noisy counts, about {:.0f} of {} records had scores longer than the clipping "
    "threshold; these scores were shortened to the threshold. The intervals allow for a "
    "bias of up to {:.2f} standard errors from this clipping. If all these records moved "
    "one coefficient in the same direction, the bias would be {:.1f} standard errors. The "
    "noisy counts may miss up to about {:.0f} such records."
)
STEP = (
    "The last Newton step changed the coefficients by {:.1f} standard errors (root mean square). A change by "
    "many standard errors usually means that the initial estimate was poor."
)
STEP_UNKNOWN = (
    "Convergence cannot be checked, because the covariance of the coefficients is singular, so the last "
    "Newton step has no standard errors to compare it with; use fewer columns or a larger budget."
)
FEW_RECORDS = (
    "few records (noisy estimate: {1:.0f}) have the rarer value of {0}. Clipping the scores of such "
    "records may shift the coefficient of {0} by up to {2:.1f} standard errors, and the noisy counts of "
    "clipped scores may be too low to show it; merge rare levels (pi.Factor(other=...)), or use more rows, "
    'budget or residual_clip="bounds"'
)
# The same of a numeric column, whose values are nearly all at one end of its bounds.
FEW_VALUES = (
    "nearly all values of {0} are close to one end of the bounds (about {1:.0f} records would be at the "
    "other end, if all were at an end). Clipping the scores of the other records may shift the "
    "coefficient of {0} by up to {2:.1f} standard errors, and the noisy counts of clipped scores may be "
    'too low to show it; use tighter bounds, logarithms, more rows, more budget or residual_clip="bounds"'
)
LONG_FIRST_STEP = (
    "the initial estimate was far from the solution, so clipping of scores may shift the coefficient of {!r} "
    "by about {:.0f} standard errors; {}"
)
FAR_RECORDS = (
    "a few records with extreme values in a column may shift {}, and noisy counts of large scores may be too "
    "low to show it; {}"
)
# Remedies of these two: no bounds can be tighter for an indicator.
NUMBERS_FIRST_STEP = (
    'use tighter bounds, logarithms of long-tailed columns, more budget or residual_clip="bounds"'
)
LEVEL_FIRST_STEP = (
    'merge rare levels (pi.Factor(other=...)), or use more rows, budget or residual_clip="bounds"'
)
FAR_NUMBERS = 'use tighter bounds, logarithms or residual_clip="bounds"'
FAR_LEVELS = 'merge rare levels, or use more rows or residual_clip="bounds"'
FAR_OF_BOTH = 'use tighter bounds, logarithms, merged levels or residual_clip="bounds"'
FAR_VALUES = (
    "the bounds of {} are more than {:.0f} standard deviations from the mean of the column, and {}. A few "
    "records with extreme values may therefore shift the coefficient by more than the interval allows; use "
    "tighter bounds or logarithms"
)
FAR_WEIGHTS = "the fit gives less weight to records near such bounds"
FAR_CLIPPED = "the fit clips large scores, most of which move the coefficient in the same direction"
MOST_NAMES = 4  # coefficients that a warning lists; of more, the first two
WIDE_FIT = 2.0  # standard error of the middle slope over that without noise, from which on a note says why
LONG_CLIP = 3.0  # clip in usual lengths of a score from which on long residuals are the cause, not the budget
COSTS = (
    "Noise makes the standard errors of the slopes {:.1f} times as large (median of the slopes). Scores are "
    "clipped at {:.1f} times their typical size. Main cause: {}."
)
TAIL_COSTS = (
    'a few large residuals (use tighter bounds of the response {!r}, its logarithm, or target="robust")'
)
BUDGET_COSTS = "a small budget for {} coefficients and {} records (spend more or use fewer columns)"
WEAK = "The noise hides mainly the coefficient of {}: {}"
CAUSES = {
    "level": (
        "few records have its rarer value, or the noise hides how many do, so merge it with another level, "
        "leave it out or spend more."
    ),
    "product": (
        "it is a product in which {3} is not centered, so write I(x - c) with a public c in the middle of "
        "the values, or leave the product out."
    ),
    "centered product": (
        "its values are small relative to the bounds of its columns, or the noise hides them, so declare "
        "tighter public bounds of {3}, leave the product out or spend more."
    ),
    "coding": (
        "it has the same value in nearly all records, or the noise hides how it varies, so merge levels of "
        "{3}, leave it out or spend more."
    ),
    "bounds": (
        "the bounds of {3} are wide relative to the values, or the noise hides how these vary, so declare "
        "tighter public bounds or spend more."
    ),
    "alike level": (
        "few records have its rarer value, or it is correlated with other columns, so merge it with another "
        "level, leave it out or spend more."
    ),
    "alike": (
        "it is correlated with other columns, or {1} coefficients are many for {2} records at this budget, "
        "so leave one of the columns out or spend more."
    ),
    "many": (
        "{1} coefficients are many for {2} records at this budget, or columns are correlated, so use fewer "
        "columns or spend more."
    ),
}
POSTERIOR_NOTE = (
    "Weak identification: coefficients and intervals come from a posterior with a normal prior (standard "
    "deviation {:g}) on slopes of columns scaled to [-1, 1]."
)
PRIOR_NOTE = (
    "The model is weakly identified, so its coefficients have normal priors; the prior of "
    "the constant has standard deviation {:g}. The posterior averages over the noise of "
    "the Hessian. Intervals can miss slopes that are large relative to their prior; "
    "score_test() and conf_int(method='score') use no prior."
)
OF_A_PRIOR = (
    "weak identification: coefficients and intervals come from a posterior with a normal prior (standard "
    f"deviation {PRIOR_SLOPE:g}) on slopes of columns scaled to [-1, 1]. Intervals can miss "
    "slopes that are large relative to this prior; score_test() and conf_int(method='score') use no prior"
)
DECIDED_BY_PRIOR = (
    "weak identification: the prior influences the coefficients {}. It is normal with standard deviation "
    f"{PRIOR_SLOPE:g} on slopes of columns scaled to [-1, 1], and intervals can miss slopes that are large "
    "relative to it; score_test() and conf_int(method='score') use no prior"
)
DRAWN_NOTE = (
    "Intervals are quantiles of simulated draws from the distribution of the coefficients "
    "given the noisy score and Hessian; they are not symmetric around the estimate."
)
DIVERGED = NO_CONVERGENCE + ", most likely because {}"
LAST_STEP = (
    "The last step moved linear predictors by {:.2f} (root mean square), and the coefficients by {:.1f} "
    "standard errors (root mean square), which is too far for intervals."
)
SEPARATES = "columns separate the outcomes; leave {0} out, or merge levels"
CLIPPED_OUTCOMES = (
    "values of the response {!r} other than 0 and 1 were clipped; the note on clipped values says how to "
    "declare them"
)
# Of rare levels whose coefficients are flagged in a logistic or count model, one level and several.
HIDDEN_LEVEL = (
    "weak identification: few records have the level {}, and the noise hides its coefficient (standard error "
    "{:.2g} on the scale of the {}); its interval may miss or be unbounded"
)
HIDDEN_LEVELS = (
    "weak identification: few records have the levels {}, and the noise hides their coefficients (standard "
    "errors up to {:.2g} on the scale of the {}); their intervals may miss or be unbounded"
)
HIDDEN_LEVEL_NOTE = (
    "Few records have the level {}, and the noise hides its coefficient.{} Merge it with another level "
    "(pi.Factor([...], other=...)), or use more records or budget."
)
HIDDEN_LEVELS_NOTE = (
    "Few records have the levels {}, and the noise hides their coefficients.{} Merge them with other levels "
    "(pi.Factor([...], other=...)), or use more records or budget."
)
# Where the fit converged only without these coefficients.
TOO_LONG_FOR_LEVEL = " The last step was too long for it, so its interval is unbounded."
TOO_LONG_FOR_LEVELS = " The last step was too long for them, so their intervals are unbounded."
# The same of a level that few records have, by the noisy moments, of a fit that did not converge.
FEW_OF_LEVEL = (
    "few records have the level {0}: merge it with another level (pi.Factor([...], other=...)), or use more "
    "records or budget"
)
MOVED_MOST = "The last step, which was too long, changed mainly the {} of {}."
# Smallest eigenvalue of the last Hessian, relative to the norm of its noise, below which a level that is most
# of its direction is a likely cause: in 23 fits with such a level that did not converge it was 1.2 to 3.1.
FAINT = 5.0
ALSO_MOVED = 0.5  # part of the largest change of linear predictors, above which a coefficient is named too
SMALL_BUDGET = (
    "the budget is small for {1} coefficients and {2} records; spend more, or use fewer "
    "columns or tighter bounds"
)
ALIKE = 0.1  # smallest eigenvalue of the columns' normalized moments above which they are not alike
# Mean curvature over that of the mean response, below which predictors determine nearly every outcome.
TELLING = 0.35
NARROW = 0.05  # spread, in scaled units, below which bounds are called wide or levels rare
# Sds of its noise that the smallest eigenvalue of the last Hessian must have. Noise alone passes in one fit
# of 160; of real tables' intervals below it .76 held (a column next to its logarithm, in loose bounds).
MIN_HESSIAN_SDS = 2.5
# Next to two or more indicators of one factor, or columns that may be: below it intervals of effects fell
# short (benchmarks/results/effects_reported.md).
WEAKEST_EFFECTS = LEAST_STRENGTH
# Standard errors by which the second order of the Hessian's noise may move a coefficient on average: beyond
# it intervals of a product of columns held .48 to .73 (benchmarks/results/rare_groups.md).
LARGEST_REMAINDER = 0.35
HIDDEN_SHARE = 0.5  # share of an indicator's rarer records that the counts may hide before a note says so
# Standard errors that clipped records may move a rare indicator before a note says so.
FAR_MOVED = 1.0
# A fit warns of it only if the interval allows for a bias of fewer standard errors than this, and if the
# scores just below the clipping threshold exceed so many sds of their noise along the coefficient. Other fits
# cover (benchmarks/results/rare_groups.md).
MOST_ALLOWED = 0.7
SHOWN_SDS = 1.0
# Standard errors from which on a step may have gone too far: on the gauntlet's cells there are 3.9 at most,
# and where a few large values of a column blinded the first release 14 to 100, and no interval held.
MAX_STEP_ERRORS = 4.0
# Standard deviations from a column's mean to its farther bound from which on the next two thresholds apply to
# its coefficient; chosen on the lottery (benchmarks/results/silent_cells.md).
FAR_BOUND = 10.0
ONE_SIDED_SDS = 2.5  # of the signed scores just below the clipping threshold, in sds of their noise
MOVED_ERRORS = 0.75  # standard errors that clipped rows would move the last step
NEAR_ENDS = 3.0  # sds of its noise within which a moment is taken to be that of a column of zeros and ones
NEAR_NONE = 2.0  # the same for the share of rows in which two columns are both 1: they exclude one another


def heavy_tail(ratio: float) -> Note:
    """Return the note on a tail that is mostly beyond the clipping threshold; no warning.

    Intervals allow for such a tail, so they cover more often than those of other fits
    (benchmarks/results/lottery.md).
    """
    return Note(sentence(HEAVY_TAIL.format(ratio) + CHEAPER), "table")


def notes_of(
    rows: GlmRows,
    one_step: OneStepFit,
    estimate: Estimate,
    strength: Identification,
    largest_shift: Floats,
    doubts: Sequence[Note],
    hidden: Flags,
) -> tuple[Note, ...]:
    """Return the notes of one-step least squares.

    `hidden` are the weakly identified coefficients where `strength` is weak, `largest_shift` is the bias of
    each coefficient in standard errors if the whole counted tail pulled it in one direction, and `doubts` are
    the notes of `few_records`, `long_first_step` and `far_records`.
    """
    notes = [replace(doubt, text=sentence(doubt.text)) for doubt in doubts]
    references = rare_references(rows.design.user, estimate.covariance)
    notes += [reference.note for reference in references]
    if strength.weak and _slopes(rows, hidden).any():
        gram = one_step.initial.gram
        direction = np.where(hidden, np.linalg.eigh(gram)[1][:, 0], 0.0)
        column, cause = _cause(rows, direction, gram, one_step.initial.edge)
        if not any(column.name in reference.names for reference in references):  # its note names the cause
            notes += must_read(WEAK.format(column.name, _advice(rows, column, cause)), columns=(column.name,))
    if one_step.clip.ratio > HEAVY:
        notes.append(heavy_tail(one_step.clip.ratio))
    if estimate.bias is not None:
        shift = float((estimate.bias / estimate.bse).max())
        worst = float(largest_shift.max())
        notes.append(Note(CUT.format(one_step.clip.cut, rows.total, shift, worst, one_step.clip.hidden)))
    if one_step.score_sd > 0.0:
        notes += ranked([*_costs(rows, one_step, estimate), step_text(one_step.length)])
    return tuple(notes)


def step_text(length: float) -> str:
    """Return the sentence about the last Newton step, `length` in standard errors."""
    return STEP.format(length) if math.isfinite(length) else STEP_UNKNOWN


def _costs(rows: GlmRows, one_step: OneStepFit, estimate: Estimate) -> list[str]:
    """Return the main cause of wide intervals; nothing where they are not wide."""
    sampling = np.maximum(estimate.bse**2 - estimate.noise_bse**2, 1e-300)
    slopes = np.arange(rows.p) != (-1 if rows.design.constant is None else rows.design.constant)
    middle = float(np.median((estimate.bse / np.sqrt(sampling))[slopes])) if slopes.any() else 1.0
    if middle < WIDE_FIT:
        return []
    length = one_step.clip.high / math.sqrt(rows.p)
    cause = BUDGET_COSTS.format(rows.p, rows.total)
    cause = cause if length < LONG_CLIP else TAIL_COSTS.format(rows.design.response)
    return [COSTS.format(middle, length, cause)]


def curved_notes(
    rows: GlmRows, step: OneStepRelease, draws: PosteriorDraws, *, has_intervals: bool = True
) -> tuple[Note, ...]:
    """Return the notes of a logistic or Poisson fit; one without intervals has none about these."""
    if not has_intervals and not draws.weak:
        length = math.sqrt(draws.length2)
        if draws.converged:
            return (Note(step_text(length)),)
        return (*unconverged_notes(rows, step, draws), Note(LAST_STEP.format(draws.shift, length)))
    step_length = Note(step_text(math.sqrt(draws.length2)))
    doubts = [
        note
        for text, names in misfits(rows, step, draws.weak)
        for note in must_read(sentence(text), columns=names)
    ]
    if not draws.weak:
        doubts += far_values(rows, step, {name for note in doubts for name in note.columns})
        return Note(DRAWN_NOTE), step_length, *doubts
    weak = must_read(POSTERIOR_NOTE.format(PRIOR_SLOPE))
    bias = prior_bias(step, draws.draws, rows.design.constant, rows.to_user)
    decided = bias > LARGEST_PRIOR_BIAS
    if _slopes(rows, decided).any():
        column, cause = _weakest(rows, step, decided)
        advice = WEAK.format(column.name, _advice(rows, column, cause))
        weak += must_read(advice, columns=(column.name,))
    return *weak, Note(PRIOR_NOTE.format(PRIOR_CONSTANT)), step_length, *doubts


def hidden_level_notes(errors: Mapping[str, float], converged: bool) -> tuple[Note, ...]:
    """Return the note on rare levels that the noise hides, by name with their standard errors.

    If the fit has not `converged` along their coefficients, these have unbounded intervals.
    """
    is_one = len(errors) == 1
    text = HIDDEN_LEVEL_NOTE if is_one else HIDDEN_LEVELS_NOTE
    unbounded = "" if converged else TOO_LONG_FOR_LEVEL if is_one else TOO_LONG_FOR_LEVELS
    return must_read(text.format(listed(tuple(errors)), unbounded), columns=tuple(errors))


def hidden_level_warning(errors: Mapping[str, float], scale: str) -> str:
    """Return the warning of the same on this scale of the coefficients."""
    text = HIDDEN_LEVEL if len(errors) == 1 else HIDDEN_LEVELS
    return text.format(", ".join(errors), max(errors.values()), scale)


def long_steps(names: Sequence[str], bias: Floats, bse: Floats) -> tuple[str, tuple[Note, ...]]:
    """Return the warning of coefficients whose last step may leave a notable bias, and its notes."""
    notable = bias > NOTABLE_STEP_BIAS * bse
    if not notable.any():
        return "", ()
    moved = tuple(name for name, is_moved in zip(names, notable, strict=True) if is_moved)
    text = LONG_STEPS.format(listed(moved), float((bias / bse).max()))
    return text, must_read(sentence(text), columns=moved)


def misfits(rows: GlmRows, step: OneStepRelease, weak: bool) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the warnings of a mean or a variance that may differ from the model's, each with coefficients.

    Outlying rows may move the constant, and coefficients of columns that reach far: their farther bound is
    `FAR_COLUMN` standard deviations from the mean, by the noisy second moments. A column with two values is
    exempt: its coefficient makes the mean right in both groups of rows. Where intervals are those of a
    posterior (`weak`), noise may hide how a column varies, and any coefficient may move. () stands for the
    fit as a whole.
    """
    warnings: list[tuple[str, tuple[str, ...]]] = []
    reach = column_reach(step.walk.second, rows.design.constant)
    shifts = step.far * np.where(reach > FAR_COLUMN, reach / FAR_COLUMN, float(weak))
    if not weak:
        declared = np.array([column.indicator for column in rows.design.columns])
        two_valued = declared | has_two_values(*column_moments(step.walk.second, rows.design.constant))
        shifts[two_valued] = 0.0
    if (shifts > FAR_OUT).any():
        moved = shifts > FAR_OUT
        if rows.design.constant is not None:
            moved[rows.design.constant] = True
        names = tuple(name for name, is_moved in zip(rows.design.names, moved, strict=True) if is_moved)
        remedy = _nearer_bounds(rows, step.walk.second, shifts > FAR_OUT)
        warnings.append((MISFIT_FAR_OUT.format(listed(names), float(shifts.max()), remedy), names))
    if step.dispersion > DISPERSED:
        name = "Poisson" if rows.family == "poisson" else "negative binomial"
        exposure = "" if rows.roles.exposure is not None else "pass exposure=, or "
        warnings.append((FEW_DECIDE.format(step.dispersion, name, exposure), ()))
    return tuple(warnings)


def _nearer_bounds(rows: GlmRows, second: Floats, chosen: Flags) -> str:
    """Return the remedy for far bounds: by the released moments, bounds at `FAR_COLUMN` standard deviations.

    Only numbers that are columns of the formula as they are have such bounds, and not more than `MOST_NAMES`.
    """
    design = rows.design
    mean, variance = column_moments(second, design.constant)
    texts = []
    for j in np.flatnonzero(chosen & (variance > 0.0)):
        column = design.columns[j]
        if j == design.constant or column.indicator or not column.plain:
            continue
        ends = mean[j] + FAR_COLUMN * math.sqrt(variance[j]) * np.array([-1.0, 1.0])
        low, high = (
            rows.center[j] + rows.scale[j] * np.clip(ends, *(end[j] for end in rows.limits))
        ).tolist()
        texts.append(f"{column.name}: about {low:.3g} to {high:.3g}")
    return WITHIN.format(FAR_COLUMN, ", ".join(texts[:MOST_NAMES])) if texts else TIGHTER


def far_values(rows: GlmRows, step: OneStepRelease, named: Collection[str]) -> tuple[Note, ...]:
    """Return the warning of coefficients that a few records with extreme values of a column may determine.

    Their column reaches `FAR_BOUND` standard deviations and has more than two values. A logistic fit gives
    records near such bounds less weight. A count model clips their scores, and its coefficients are named
    where the scores just below the clipping threshold have one sign, as in `far_records`. Coefficients in
    `named` have another warning already. Intervals of a posterior have none of these warnings, because noise
    may hide how a column varies.
    """
    reach = column_reach(step.walk.second, rows.design.constant)
    declared = np.array([column.indicator for column in rows.design.columns])
    two_valued = declared | has_two_values(*column_moments(step.walk.second, rows.design.constant))
    pulled = (reach > FAR_BOUND) & ~two_valued
    if step.hidden is None:
        pulled &= step.far > 0.0
    else:
        pulled &= step.hidden.one_sided_sds(step.influence(rows.to_user)) > ONE_SIDED_SDS
    names = tuple(
        name for name, is_far in zip(rows.design.names, pulled, strict=True) if is_far and name not in named
    )
    if not names:
        return ()
    reason = FAR_WEIGHTS if step.hidden is None else FAR_CLIPPED
    return must_read(sentence(FAR_VALUES.format(listed(names), FAR_BOUND, reason)), columns=names)


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence: all of few, the first ones of many."""
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    first = names[: MOST_NAMES - 2]
    return f"{', '.join(first)} and {len(names) - len(first)} others"


def column_reach(second: Floats, constant: int | None) -> Floats:
    """Return the distance from a column's mean to its farther bound, in its standard deviations, shape (p,).

    Parameters
    ----------
    second : ndarray, shape (p, p)
        Noisy second moments of columns in [-1, 1]. Without a constant, distances are from zero.
    constant : int or None
        Its place; its own distance is 0.
    """
    mean = np.zeros(len(second)) if constant is None else second[constant] / second[constant, constant]
    size = 1.0 if constant is None else second[constant, constant]
    variance = np.diag(second) / size - mean**2
    reach = (1.0 + np.abs(mean)) / np.sqrt(np.maximum(variance, 1e-300))
    if constant is not None:
        reach[constant] = 0.0
    return np.asarray(reach)


def nonconvergence_reason(
    rows: GlmRows, step: OneStepRelease, draws: PosteriorDraws, clipped: Collection[str] = ()
) -> str:
    """Return why a logistic or Poisson fit has no intervals, and a remedy.

    `clipped` are the columns of which noisy counts found values outside their bounds.
    """
    if rows.family == "binomial" and rows.design.response in clipped:
        return DIVERGED.format(CLIPPED_OUTCOMES.format(rows.design.response))
    text = SMALL_BUDGET
    if rows.family == "binomial" and rows.design.constant is not None:
        rate = _rate(rows, step)
        text = SEPARATES if step.place.curvature < TELLING * max(rate * (1.0 - rate), 1e-12) else SMALL_BUDGET
    named = _largest(rows, draws)
    if text == SMALL_BUDGET and (level := rare_level(rows, step, draws)):
        text, named = FEW_OF_LEVEL, level
    return DIVERGED.format(text.format(named, rows.p, rows.total))


def rare_level(rows: GlmRows, step: OneStepRelease, draws: PosteriorDraws) -> str:
    """Return the level of few records along which a fit did not converge; empty where there is none.

    Its indicator has its rarer value in a share below `RARE` by the released moments. Its coefficient is the
    one along which the last step moved linear predictors most, or is larger than `PRIOR_SLOPE`, or is most of
    the direction in which the Hessian is smallest and not far above its noise (`FAINT`).
    """
    mean, _ = column_moments(step.walk.second, rows.design.constant)
    low, high = rows.limits
    share = (mean - low) / np.where(high > low, high - low, 1.0)
    declared = np.array([column.indicator for column in rows.design.columns])
    rare = _slopes(rows, declared & (np.minimum(share, 1.0 - share) < RARE))
    sizes = _predictor_moves(rows, step)
    values, vectors = np.linalg.eigh(step.hessian.mean)
    faintest = _predictor_sizes(rows, step, vectors[:, 0])
    is_faint = (faintest == faintest.max()) & (values[0] < FAINT * step.hessian.floor)
    rare &= (sizes == sizes.max()) | (np.abs(draws.params) > PRIOR_SLOPE) | is_faint
    if not rare.any():
        return ""
    return rows.design.names[int(np.argmax(np.where(rare, np.abs(draws.params), -1.0)))]


def unconverged_notes(rows: GlmRows, step: OneStepRelease, draws: PosteriorDraws) -> tuple[Note, ...]:
    """Return the note on the coefficients that the last step of a fit changed most, if it has slopes.

    The measure is the change times the standard deviation of the column, by the released moments. `columns`
    of the note are these coefficients, or only the level of few records that `nonconvergence_reason` names.
    """
    sizes = _predictor_moves(rows, step)
    order = np.argsort(-sizes, kind="stable")
    moved = tuple(rows.design.names[j] for j in order if sizes[j] > ALSO_MOVED * sizes.max())
    if not moved:
        return ()
    text = MOVED_MOST.format("coefficients" if len(moved) > 1 else "coefficient", listed(moved))
    level = rare_level(rows, step, draws)
    return must_read(text, columns=(level,) if level else moved)


def _predictor_moves(rows: GlmRows, step: OneStepRelease) -> Floats:
    """Return by how much each coefficient's part of the last step moves linear predictors, shape (p,)."""
    values, vectors = step.hessian.floored()
    return _predictor_sizes(rows, step, vectors @ ((vectors.T @ step.score.mean) / values))


def _predictor_sizes(rows: GlmRows, step: OneStepRelease, move: Floats) -> Floats:
    """Return by how much each coefficient's part of a move in whitened units moves linear predictors."""
    _, variance = column_moments(step.walk.second, rows.design.constant)
    return np.asarray(np.abs(step.place.transform.T @ move) * np.sqrt(variance))


def _slopes(rows: GlmRows, flags: Flags) -> Flags:
    """Return flags of coefficients without that of the constant."""
    constant = -1 if rows.design.constant is None else rows.design.constant
    return np.asarray(flags & (np.arange(rows.p) != constant))


def _weakest(rows: GlmRows, step: OneStepRelease, among: Flags) -> tuple[Column, str]:
    """Return the column, one `among` some, that is most of the Hessian's weakest direction, and a cause."""
    direction = step.place.transform.T @ np.linalg.eigh(step.hessian.mean)[1][:, 0]
    column, cause = _cause(rows, np.where(among, direction, 0.0), step.walk.second, 0.0)
    length = np.sqrt(np.diag(step.walk.second))
    apart = np.linalg.eigvalsh(step.walk.second / np.outer(length, length))[0]
    is_many = cause == "alike" and apart > ALIKE
    return column, "many" if is_many else cause


def _largest(rows: GlmRows, draws: PosteriorDraws) -> str:
    """Return the column with the largest slope, scaled units."""
    slopes = np.abs(draws.params)
    if rows.design.constant is not None:
        slopes[rows.design.constant] = 0.0
    return rows.design.names[int(np.argmax(slopes))]


def _rate(rows: GlmRows, step: OneStepRelease) -> float:
    """Return about the mean response: that at the mean predictor, half of it from each end."""
    second = step.walk.second
    constant = rows.design.constant
    eta = float(second[constant] @ step.place.theta)
    return 1.0 / (1.0 + math.exp(-max(min(eta, 30.0), -30.0)))


def _cause(rows: GlmRows, direction: Floats, gram: Floats, edge: float) -> tuple[Column, str]:
    """Return the column with the largest part in a direction, and why it is weak, by scaled moments."""
    design = rows.design
    vector = direction.copy()
    if design.constant is not None:
        vector[design.constant] = 0.0
    place = int(np.argmax(np.abs(vector)))
    mean = 0.0 if design.constant is None else float(gram[design.constant, place])
    spread = float(gram[place, place]) - mean**2
    column = design.columns[place]
    cause = "many" if rows.p > 10 else "alike level" if column.indicator else "alike"
    if spread < max(NARROW, edge):
        cause = "level" if column.indicator else "product" if len(column.pieces) > 1 else "bounds"
        cause = cause if column.indicator or _bounded_pieces(column) else "coding"
    return column, cause


def _advice(rows: GlmRows, column: Column, cause: str) -> str:
    """Return the advice for a weak column: for a product, to center the columns that are not centered."""
    columns = list(column.inputs)
    if cause == "product":
        columns = uncentered(column, rows.design.schema)
        cause = "product" if columns else "centered product"
        columns = columns or [name for piece in _bounded_pieces(column) for name in piece.inputs]
    named = " and ".join(map(repr, dict.fromkeys(columns))) or repr(column.name)
    return CAUSES[cause].format(column.name, rows.p, rows.total, named)


def uncentered(column: Column, schema: Schema | None) -> list[str]:
    """Return the numeric columns of a product whose public bounds do not have zero between them."""
    if schema is None:
        return []
    bounds = (
        (piece, piece.interval(schema)) for piece in column.pieces if isinstance(piece, Plain | Expression)
    )
    return [name for piece, ends in bounds if not ends.low < 0.0 < ends.high for name in piece.inputs]


def _bounded_pieces(column: Column) -> list[Piece]:
    """Return the pieces that depend on public bounds of a number, not on levels of a factor."""
    return [piece for piece in column.pieces if not isinstance(piece, Indicator | Contrast)]


def indicators(initial: InitialEstimate, low: Floats, constant: int | None) -> Flags:
    """Return which columns appear to be indicators by the first Gram matrix, shape (p,).

    Next to a constant bounds are -1 and 1: all values are at an end where E z^2 = 1. Without one, columns
    from 0 up may be.
    """
    if constant is None:
        return np.asarray(low >= 0.0)
    sd = initial.edge / math.sqrt(2.0 * len(initial.gram))
    near_ends = np.abs(np.diag(initial.gram) - 1.0) <= NEAR_ENDS * sd
    near_ends[constant] = False
    return np.asarray(near_ends)


def exclusive(initial: InitialEstimate, low: Floats, constant: int | None) -> bool:
    """Return whether two columns appear to be indicators that exclude each other.

    By the first Gram matrix G, whose diagonal has noise of this sd, others of sd/sqrt 2. Next to a constant
    E z z' + E z + E z' + 1, four times the share of rows in which both are 1, is 0. Without one, columns from
    0 up exclude each other if E z z' is 0.
    Independent columns that are 1 in few rows cannot be distinguished from these.
    """
    gram = initial.gram
    sd = initial.edge / math.sqrt(2.0 * len(initial.gram))
    joint = gram
    noise = sd / math.sqrt(2.0)
    candidates = indicators(initial, low, constant)
    if constant is not None:
        mean = gram[constant]
        joint = (gram + mean[:, None] + mean + 1.0) / 4.0
        noise = sd * math.sqrt(1.5) / 4.0
    pairs = np.triu(np.outer(candidates, candidates), 1)
    return bool((joint[pairs] <= NEAR_NONE * noise).any())


def identified(rows: GlmRows, one_step: OneStepFit, bse: Floats) -> Identification:
    """Return whether the last Hessian was more than noise in every direction.

    Its smallest eigenvalue over the edge of its noise, sd sqrt(2 p). The first Gram matrix may well be noise
    in some direction: the last one mends that, unless it is noise itself. Where a term has two or more
    indicators, or columns look so, the threshold is at least that of absorbed effects, the same
    fit. And what second order of the Hessian's noise adds must be short of the standard errors `bse`: it goes
    with the inverse square of the eigenvalue, which gives a threshold too.
    """
    edge = one_step.hessian_sd * math.sqrt(2.0 * rows.p)
    smallest = one_step.strength * edge if edge > 0.0 else 1.0
    effects = exclusive(one_step.initial, rows.limits[0], rows.design.constant)
    effects = effects or most_indicators(rows.design) > 1
    threshold = max(MIN_HESSIAN_SDS / math.sqrt(2.0 * rows.p), WEAKEST_EFFECTS * effects)
    remainder = np.abs(one_step.remainder(rows.response_units[1] * rows.to_user)) / bse
    if (times := float(remainder.max()) / LARGEST_REMAINDER) > 1.0:
        threshold = max(threshold, one_step.strength * math.sqrt(times))
    return Identification(
        statistic=one_step.strength,
        threshold=threshold,
        weak=one_step.strength < threshold,
        smallest_eigenvalue=smallest,
        noise_edge=edge,
    )


def most_indicators(design: Design) -> int:
    """Return how many treatment indicators the largest term has; in arrays, terms follow from names."""
    coded = [name for name in design.names if "[T." in name]
    term_of = {} if design.formula is None or not coded else design.terms
    terms = Counter(term_of.get(name, name.partition("[T.")[0]) for name in coded)
    return max(terms.values(), default=0)


def few_records(rows: GlmRows, one_step: OneStepFit, pull: TailPull) -> tuple[Note, ...]:
    """Return the notes on indicators whose rarer value few records have: to read, or details.

    Large errors of such records are long scores that pull the coefficient in one direction, and the scores
    just below the clipping threshold, from which the tail is extrapolated, mostly belong to other records. So
    an indicator is named where the counts may miss half of its records, or where the counted tail would move
    its coefficient far, times the share that may pull in one direction. No release can rule this out. The
    second case is a detail where the interval allows for much of it already, or where no direction shows.
    A numeric column with other bounds than 0 and 1 may only look like an indicator, so it has its own text.
    """
    constant = rows.design.constant
    clip = one_step.clip
    if constant is None or clip.ratio == 0.0:
        return ()
    share = np.maximum(1.0 - np.abs(one_step.initial.gram[constant]), 0.0) / 2.0
    records = one_step.n * share
    named = indicators(one_step.initial, rows.limits[0], constant)
    hidden = clip.hidden > HIDDEN_SHARE * records
    moved = (share < RARE) & (pull.largest_shift * pull.one_sided > FAR_MOVED)
    doubtful = hidden | (moved & (pull.allowed_bias < MOST_ALLOWED) & (pull.one_sided_sds > SHOWN_SDS))
    notes: list[Note] = []
    two_valued = declared_two_valued(rows.design)
    for chosen, rank in ((named & doubtful, "must-read"), (named & moved & ~doubtful, "detail")):
        for alike, form in ((chosen & two_valued, FEW_RECORDS), (chosen & ~two_valued, FEW_VALUES)):
            if alike.any():
                names = tuple(rows.design.names[j] for j in np.flatnonzero(alike))
                quoted = ", ".join(map(repr, names))
                text = form.format(quoted, records[alike].min(), pull.largest_shift[alike].max())
                notes += must_read(text, columns=names) if rank == "must-read" else [Note(text)]
    return tuple(notes)


def declared_two_valued(design: Design) -> Flags:
    """Return which columns are indicators of levels, or numbers with bounds 0 and 1, shape (p,)."""
    indicator = np.array([column.indicator for column in design.columns])
    return np.asarray(indicator | ((design.low == 0.0) & (design.high == 1.0)))


def long_first_step(rows: GlmRows, one_step: OneStepFit, shift: Floats, bse: Floats) -> tuple[Note, ...]:
    """Return the warning of a last step that went too far; `shift` is `OneStepFit.unclipped_shift`."""
    moved = np.abs(shift) / bse
    worst = int(np.argmax(moved))
    name = rows.design.names[worst]
    if moved[worst] <= MAX_STEP_ERRORS:
        return ()
    remedy = LEVEL_FIRST_STEP if rows.design.columns[worst].indicator else NUMBERS_FIRST_STEP
    return must_read(LONG_FIRST_STEP.format(name, moved[worst], remedy), columns=(name,))


def far_records(
    rows: GlmRows, one_step: OneStepFit, one_sided_sds: Floats, shift: Floats, bse: Floats
) -> tuple[Note, ...]:
    """Return the warning of coefficients that a few records far out in a column may determine.

    Such records may miss the line to one side, beyond the range of the counts. So a coefficient is named if
    its column reaches far, and either the scores just below the clipping threshold have one sign along it
    (`OneStepFit.one_sided_sds`) or clipping moves its last step (`shift` is `OneStepFit.unclipped_shift`).
    """
    reach = column_reach(one_step.initial.gram, rows.design.constant)
    if rows.design.constant is not None:
        reach[rows.design.constant] = reach.max()
    pulled = (one_sided_sds > ONE_SIDED_SDS) | (np.abs(shift) / bse > MOVED_ERRORS)
    places = np.flatnonzero(pulled & (reach > FAR_BOUND))
    names = tuple(rows.design.names[j] for j in places)
    if not names:
        return ()
    are_levels = {rows.design.columns[j].indicator for j in places if j != rows.design.constant}
    remedy = FAR_OF_BOTH if len(are_levels) > 1 else FAR_LEVELS if True in are_levels else FAR_NUMBERS
    return must_read(FAR_RECORDS.format(listed(names), remedy), columns=names)
