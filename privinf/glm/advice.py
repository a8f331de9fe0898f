"""What the releases of a fit say about its intervals, and what would help: footnotes of the summary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from privinf.glm.curved import OneStepRelease
from privinf.glm.least_squares import OneStepFit
from privinf.glm.posterior_draws import PRIOR_CONSTANT, PRIOR_SLOPE, PosteriorDraws
from privinf.glm.questions import InitialEstimate
from privinf.glm.rows import GlmRows
from privinf.inference.estimate import Estimate
from privinf.inference.score_test import Identification
from privinf.inference.tails import HEAVY, HEAVY_TAIL
from privinf.results.effects import LEAST_STRENGTH
from privinf.results.notes import Note, must_read, ranked, sentence
from privinf.schema import Design, Schema
from privinf.schema.terms import Column, Contrast, Expression, Indicator, Piece, Plain
from privinf.typing import Flags, Floats

CHEAPER = (
    '; tighter bounds of the response cost less, and residual_clip="bounds" assumes nothing, at the price of '
    "noise for the whole range"
)
FAR_OUT = 0.5  # standard errors that a wrong mean of rows far out may move an estimate before a note says so
MISFIT_FAR_OUT = (
    "rows far out are weighted down at this budget. That changes nothing if the model's mean is right; if it "
    "is not, a coefficient may be some {:.1f} standard errors from that of the unweighted regression. More "
    "rows or budget weight less; so do tighter bounds, and a long-tailed column's logarithm"
)
DISPERSED = 20.0  # variance of the counts over their mean from which on a note says so
FEW_DECIDE = (
    "the counts vary {:.0f} times as much as a Poisson model's: a few records decide the coefficients, and "
    "what noisy counts do not see of them is missing. Give what they grow with as exposure=, or model a "
    "smaller range of the counts, or their logarithm"
)
CUT = (
    "About {:.0f} of {} records passed the clip of the scores and counted with its size; the intervals allow "
    "for a shift of up to {:.2f} standard errors of a coefficient from what lies beyond, which is taken to "
    "go on as the layer below the clip. If all that the counts show beyond lay to one side along a "
    "coefficient, it would be {:.1f}; what fewer than some {:.0f} records hold there may hide from the "
    "counts."
)
STEP = "The last step was {:.1f} of its own standard errors long (root mean square)."
FEW_RECORDS = (
    "some {1:.0f} records have the rarer value of {0}: if what counts see beyond the clip of the scores were "
    "all theirs, and to one side, its coefficient would be {2:.1f} standard errors off, and counts can hide "
    "{3:.0f} long scores more. Its interval holds if these records' errors are about as large to both sides; "
    'residual_clip="bounds" assumes nothing, more rows or budget see more'
)
FAR_START = (
    "the last step began far off: records beyond the clip tell so much of {} that it would be {:.0f} "
    "standard errors elsewhere if they counted in the Hessian. Tighter bounds of columns that reach far, "
    'their logarithms, or more budget start nearer; residual_clip="bounds" assumes nothing'
)
WIDE_FIT = 2.0  # standard error of the middle slope over that without noise, from which on a note says why
LONG_CLIP = 3.0  # clip in usual lengths of a score from which on long residuals are the cause, not the budget
COSTS = (
    "Noise makes the standard errors of slopes {:.1f} times as large (the middle one): scores are clipped at "
    "{:.1f} times their usual length. What costs most: {}."
)
TAIL_COSTS = (
    "a few large residuals, which scores keep (tighter bounds of the response {!r}, its logarithm, or "
    'target="robust" are narrower)'
)
BUDGET_COSTS = "the budget, small for {} coefficients and {} records (spend more, or use fewer columns)"
WEAK = "Identification is weak: the noise hides the direction of {}. {}"
CAUSES = {
    "level": "{0} is 1 in few records: merge it with another level, or leave it out.",
    "product": (
        "{0} is a product of columns, and {3} is not centered in it: write I(x - c) for that column x, with "
        "a public c in the middle of its values, or leave the product out."
    ),
    "centered product": (
        "{0} is a product whose values are small next to the bounds of its columns: state tighter public "
        "bounds of {3}, or leave the product out."
    ),
    "coding": "{0} has the same value in nearly all records: merge levels of {3}, or leave it out.",
    "bounds": "The bounds of {3} are wide relative to the values: state tighter public bounds.",
    "alike": "{0} goes along with other columns: leave one of them out.",
    "many": "{1} coefficients are many for {2} records at this budget: use fewer columns, or spend more.",
}
POSTERIOR_NOTE = (
    "Identification is weak: the Hessian is within its noise along {}. Coefficients and intervals are of a "
    "posterior, prior N(0, {:g}^2) on slopes in units in which columns are in [-1, 1] (constant: N(0, "
    "{:g}^2)), the Hessian integrated over its noise. {}"
)
OF_A_PRIOR = (
    "identification is weak: coefficients and intervals are of a posterior, with a prior of sd "
    f"{PRIOR_SLOPE:g} on slopes in units in which columns are in [-1, 1]. Where bounds are far wider than a "
    "column's values a slope may be larger, and intervals miss it without being wide; tighter bounds or more "
    "budget help, and score_test() and conf_int(method='score') have no prior"
)
DRAWN_NOTE = "Intervals are quantiles of draws of what the noise of score and Hessian leaves open."
WANDERED = (
    "the fit did not settle: the last step moved linear predictors by {:.1f} (root mean square), {:.1f} of "
    "its own standard errors, which leaves a remainder that intervals do not know of; most likely {}"
)
SEPARATES = (
    "a column or several separate the outcomes (nearly every one is told by the predictors, and slopes grow "
    "without end): leave {0} out, or merge levels"
)
FAR = (
    "the budget is small for {1} coefficients and {2} records: spend more, use fewer columns, tighter bounds"
)
ALIKE = 0.1  # smallest eigenvalue of the columns' normalised moments above which they are not alike
# Mean curvature over that of the mean response, below which predictors tell nearly every outcome.
TELLING = 0.35
NARROW = 0.05  # spread, in scaled units, below which bounds are called wide or levels rare
# Sds of its noise that the smallest eigenvalue of the last Hessian must have. Noise alone passes in one fit
# of 160; of real tables' intervals below it .76 held (a column beside its logarithm, in loose bounds).
CLEAR = 2.5
# Beside two or more indicators of one factor, or columns that may be: below it intervals of effects fell
# short (benchmarks/results/effects_reported.md).
WEAKEST_EFFECTS = LEAST_STRENGTH
# Standard errors by which the second order of the Hessian's noise may move a coefficient on average: beyond
# it intervals of a product of columns held .48 to .73 (benchmarks/results/rare_groups.md).
LARGEST_REMAINDER = 0.35
HIDDEN_SHARE = 0.5  # share of an indicator's rarer records that the counts may hide before a note says so
RARE = 0.15  # an indicator is rare if fewer rows than this share have its rarer value
# Standard errors that the records beyond the clip may move a rare indicator before a note says so.
FAR_MOVED = 1.0
# Standard errors from which on a step may have gone too far: on the gauntlet's cells there are 3.9 at most,
# and where a few large values of a column blinded the first release 14 to 100, and no interval held.
TOO_FAR = 4.0
NEAR_ENDS = 3.0  # sds of its noise within which a moment is taken to be that of a column of zeros and ones
NEAR_NONE = 2.0  # the same for the share of rows in which two columns are both 1: they exclude one another


def heavy_tail(ratio: float) -> str:
    """Return what to say of a tail that is mostly beyond the clip."""
    return HEAVY_TAIL.format(ratio) + CHEAPER


def notes_of(
    rows: GlmRows,
    look: OneStepFit,
    estimate: Estimate,
    strength: Identification,
    largest_shift: Floats,
    hidden: Sequence[str],
) -> tuple[Note, ...]:
    """Return the footnotes of least squares by a second look.

    `largest_shift` is the shift of each coefficient if all that counts see beyond the clip were along it,
    `hidden` what `few_records` and `far_start` say.
    """
    notes = list(must_read(*map(sentence, hidden)))
    if strength.weak:
        gram = look.pilot.gram
        column, cause = _cause(rows, np.linalg.eigh(gram)[1][:, 0], gram, look.pilot.edge)
        notes += must_read(WEAK.format(column.name, _advice(rows, column, cause)))
    if look.clip.ratio > HEAVY:
        notes += must_read(sentence(heavy_tail(look.clip.ratio)))
    if estimate.bias is not None:
        shift = float((estimate.bias / estimate.bse).max())
        worst = float((largest_shift / estimate.bse).max())
        notes.append(Note(CUT.format(look.clip.cut, rows.total, shift, worst, look.clip.hidden)))
    if look.score_sd > 0.0:
        notes += ranked([*_costs(rows, look, estimate), STEP.format(look.length)])
    return tuple(notes)


def _costs(rows: GlmRows, look: OneStepFit, estimate: Estimate) -> list[str]:
    """Return what makes a fit wide; nothing where it is not."""
    sampling = np.maximum(estimate.bse**2 - estimate.noise_bse**2, 1e-300)
    slopes = np.arange(rows.p) != (-1 if rows.design.constant is None else rows.design.constant)
    middle = float(np.median((estimate.bse / np.sqrt(sampling))[slopes])) if slopes.any() else 1.0
    if middle < WIDE_FIT:
        return []
    length = look.clip.high / math.sqrt(rows.p)
    cause = BUDGET_COSTS.format(rows.p, rows.total)
    cause = cause if length < LONG_CLIP else TAIL_COSTS.format(rows.design.response)
    return [COSTS.format(middle, length, cause)]


def curved_notes(rows: GlmRows, step: OneStepRelease, draws: PosteriorDraws) -> tuple[Note, ...]:
    """Return the footnotes of a curved fit."""
    strength = Note(STEP.format(math.sqrt(draws.length2)))
    note = Note(DRAWN_NOTE)
    if draws.weak:
        column, cause = _weakest(rows, step)
        advice = _advice(rows, column, cause)
        text = POSTERIOR_NOTE.format(column.name, PRIOR_SLOPE, PRIOR_CONSTANT, advice)
        note = Note(text, "must-read")
    return note, strength, *must_read(*map(sentence, misfits(step)))


def misfits(step: OneStepRelease) -> tuple[str, ...]:
    """Return what a curved fit says of a mean or a variance that may not be the model's."""
    far = step.far > FAR_OUT
    dispersed = step.dispersion > DISPERSED
    return (MISFIT_FAR_OUT.format(step.far),) * far + (FEW_DECIDE.format(step.dispersion),) * dispersed


def unsettled_reason(rows: GlmRows, step: OneStepRelease, draws: PosteriorDraws) -> str:
    """Return why a curved fit has no intervals, and what would help."""
    text = FAR
    if rows.family == "binomial" and rows.design.constant is not None:
        rate = _rate(rows, step)
        text = SEPARATES if step.place.curvature < TELLING * max(rate * (1.0 - rate), 1e-12) else FAR
    cause = text.format(_largest(rows, draws), rows.p, rows.total)
    return WANDERED.format(draws.shift, math.sqrt(draws.length2), cause)


def _weakest(rows: GlmRows, step: OneStepRelease) -> tuple[Column, str]:
    """Return the column that is most of the weakest direction of the Hessian, and the likely cause."""
    direction = step.place.transform.T @ np.linalg.eigh(step.hessian.mean)[1][:, 0]
    column, cause = _cause(rows, direction, step.walk.second, 0.0)
    length = np.sqrt(np.diag(step.walk.second))
    apart = np.linalg.eigvalsh(step.walk.second / np.outer(length, length))[0]
    return column, "many" if cause == "alike" and apart > ALIKE else cause


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
    """Return the column that most of a direction is made of, and why it is weak, by scaled moments."""
    design = rows.design
    vector = direction.copy()
    if design.constant is not None:
        vector[design.constant] = 0.0
    place = int(np.argmax(np.abs(vector)))
    mean = 0.0 if design.constant is None else float(gram[design.constant, place])
    spread = float(gram[place, place]) - mean**2
    column = design.columns[place]
    cause = "many" if rows.p > 10 else "alike"
    if spread < max(NARROW, edge):
        cause = "level" if column.indicator else "product" if len(column.pieces) > 1 else "bounds"
        cause = cause if column.indicator or _bounded_pieces(column) else "coding"
    return column, cause


def _advice(rows: GlmRows, column: Column, cause: str) -> str:
    """Return what helps a weak column: of a product, the centering of columns that are not centered yet."""
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


def indicators(pilot: InitialEstimate, low: Floats, constant: int | None) -> Flags:
    """Return which columns look like zeros and ones by the first Gram matrix, shape (p,).

    Beside a constant bounds are -1 and 1: all values are at an end where E z^2 = 1. Without one, columns from
    0 up may be.
    """
    if constant is None:
        return np.asarray(low >= 0.0)
    sd = pilot.edge / math.sqrt(2.0 * len(pilot.gram))
    near_ends = np.abs(np.diag(pilot.gram) - 1.0) <= NEAR_ENDS * sd
    near_ends[constant] = False
    return np.asarray(near_ends)


def exclusive(pilot: InitialEstimate, low: Floats, constant: int | None) -> bool:
    """Return whether two columns look like zeros and ones of which at most one is 1 in a row.

    By the first Gram matrix G, whose diagonal has noise of this sd, others of sd/sqrt 2. Beside a constant
    E z z' + E z + E z' + 1, four times the share of rows in which both are 1, is 0. Without one, columns from
    0 up exclude each other if E z z' is 0.
    Independent columns that are 1 in few rows look alike.
    """
    gram = pilot.gram
    sd = pilot.edge / math.sqrt(2.0 * len(pilot.gram))
    joint = gram
    noise = sd / math.sqrt(2.0)
    candidates = indicators(pilot, low, constant)
    if constant is not None:
        mean = gram[constant]
        joint = (gram + mean[:, None] + mean + 1.0) / 4.0
        noise = sd * math.sqrt(1.5) / 4.0
    pairs = np.triu(np.outer(candidates, candidates), 1)
    return bool((joint[pairs] <= NEAR_NONE * noise).any())


def identified(rows: GlmRows, look: OneStepFit, bse: Floats) -> Identification:
    """Return whether the last Hessian was more than noise in every direction.

    Its smallest eigenvalue over the edge of its noise, sd sqrt(2 p). The first Gram matrix may well be noise
    in some direction: the last one mends that, unless it is noise itself. Where a term has two or more
    indicators, or columns look so, the threshold is at least that of absorbed effects, the same
    fit. And what second order of the Hessian's noise adds must be short of the standard errors `bse`: it goes
    with the inverse square of the eigenvalue, which gives a threshold too.
    """
    edge = look.hessian_sd * math.sqrt(2.0 * rows.p)
    smallest = look.strength * edge if edge > 0.0 else 1.0
    effects = exclusive(look.pilot, rows.limits[0], rows.design.constant)
    effects = effects or most_indicators(rows.design) > 1
    threshold = max(CLEAR / math.sqrt(2.0 * rows.p), WEAKEST_EFFECTS * effects)
    remainder = np.abs(look.remainder(rows.response_units[1] * rows.to_user)) / bse
    if (times := float(remainder.max()) / LARGEST_REMAINDER) > 1.0:
        threshold = max(threshold, look.strength * math.sqrt(times))
    return Identification(
        statistic=look.strength,
        threshold=threshold,
        weak=look.strength < threshold,
        smallest_eigenvalue=smallest,
        noise_edge=edge,
    )


def most_indicators(design: Design) -> int:
    """Return how many treatment indicators the term with most of them has; of arrays, by their names."""
    term_of = {} if design.formula is None else design.terms
    coded = [name for name in design.names if "[T." in name]
    terms = Counter(term_of.get(name, name.partition("[T.")[0]) for name in coded)
    return max(terms.values(), default=0)


def few_records(
    rows: GlmRows, look: OneStepFit, largest_shift: Floats, sided: Floats, bse: Floats
) -> list[str]:
    """Return what to say of indicators whose rarer value few records have, one text each.

    Large errors of such records are long scores, all to one side of the coefficient, and the layer below the
    clip, which stands for what lies beyond it, is mostly of other records. So a group whose errors may be
    larger, and of one sign, is told where the counts may hide half of its records, or where what they see
    beyond the clip (`largest_shift` if all of it is the group's) would move the coefficient far, as much of
    it as the layer shows to be to one side (`sided`). That its errors are not so, no release says.
    """
    constant = rows.design.constant
    clip = look.clip
    if constant is None or clip.ratio == 0.0:
        return []
    texts = []
    for j in np.flatnonzero(indicators(look.pilot, rows.limits[0], constant)):
        share = max(1.0 - abs(float(look.pilot.gram[constant, j])), 0.0) / 2.0
        moved = float(largest_shift[j] / bse[j])
        records = look.n * share
        if clip.hidden > HIDDEN_SHARE * records or (share < RARE and moved * sided[j] > FAR_MOVED):
            texts.append(FEW_RECORDS.format(rows.design.names[j], records, moved, clip.hidden))
    return texts


def far_start(rows: GlmRows, look: OneStepFit, shift: Floats, bse: Floats) -> list[str]:
    """Return what to say of a last step that went too far; `shift` is `OneStepFit.unclipped_shift`."""
    moved = np.abs(shift) / bse
    worst = int(np.argmax(moved))
    return [FAR_START.format(rows.design.names[worst], moved[worst])] if moved[worst] > TOO_FAR else []
