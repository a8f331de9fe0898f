"""One fit of benchmarks/lottery.py: intervals, flags of each coefficient, and facts that the release contains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from gauntlet_cells import Cell
from gauntlet_estimators import outcome_and_result
from gauntlet_truth import Reference
from lottery_lot import covers_without_privacy

import privinf.glm.results
import privinf.glm.running
from privinf.glm.posterior_draws import prior_influence
from privinf.results.summary import flags_of

Values = list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedFit:
    """One fit, coefficient by coefficient in the order of the reference.

    Attributes
    ----------
    covered, width, flagged, warned, refused, posterior
        As in `gauntlet_estimators.Outcome`.
    weak : list of int
        Whether the coefficient is flagged: ``weakly_identified`` lists it, or the fit has no interval.
    named : list of int
        Whether the summary's rows "Weak for" and "See notes for" name the coefficient, or name all.
    plain : list
        Whether an HC0 interval without privacy on the same rows covers the target.
    reach : list
        Distance from a column's noisy mean to its farther bound, in the column's noisy standard deviations.
    allowed : list
        Bias that the interval allows for, in standard errors.
    shift : list
        Bias if all records beyond the clipping threshold moved the coefficient in one direction, in standard
        errors; least squares only.
    noise : list
        Share of the variance that privacy noise causes.
    step : float, optional
        Root mean square length of the last Newton step in standard errors.
    far : float, optional
        Standard errors by which a wrong mean of outlying rows may move a logistic fit.
    dispersion : float, optional
        Of a Poisson fit, the variance of the counts over the model's.
    strength : list
        Strength of a score interval, or influence of the prior on a posterior's; None for other intervals.
    error : list
        Estimate minus target in standard errors.
    doubts : list
        Notes that must be read: the beginning of each, and the places of the coefficients that it names.
    """

    covered: list[int | None]
    width: Values
    flagged: str
    warned: str
    refused: str
    posterior: int
    weak: list[int]
    named: list[int]
    plain: list[int | None]
    reach: Values
    allowed: Values
    shift: Values
    noise: Values
    step: float | None
    far: float | None
    dispersion: float | None
    strength: Values
    error: Values
    doubts: list[list[Any]]


def observe(
    cell: Cell, name: str, frame: pd.DataFrame, rng: np.random.Generator, reference: Reference
) -> ObservedFit:
    """Fit, compare with the truth, and return the facts that the release contains."""
    p = len(reference.names)
    with fitted_parts() as parts:
        outcome, result = outcome_and_result(cell, name, frame, rng, reference)
    facts = parts[-1] if parts else {}
    of_release = {} if result is None else release_facts(result, facts)
    empty: Values = [None] * p
    return ObservedFit(
        covered=outcome.covered,
        width=outcome.width,
        flagged=outcome.flagged,
        warned=outcome.warned,
        refused=outcome.refused,
        posterior=outcome.posterior,
        weak=[1] * p if result is None else flagged_coefficients(result, reference.names),
        named=[1] * p if result is None else named_coefficients(result, reference.names),
        plain=covers_without_privacy(cell, frame, reference.target),
        strength=empty if result is None else strengths(result, p),
        error=empty if result is None else errors(result, reference),
        doubts=[] if result is None else doubts_of(result, reference.names),
        **{name: of_release.get(name, empty) for name in ("reach", "allowed", "shift", "noise")},
        **scalars(facts),
    )


def flagged_coefficients(result: Any, names: tuple[str, ...]) -> list[int]:
    """Return which coefficients are flagged."""
    weak = result.weakly_identified.index
    return [int(name in weak) for name in names]


def named_coefficients(result: Any, names: tuple[str, ...]) -> list[int]:
    """Return which coefficients the head of the summary flags; all where it names the whole fit."""
    flags = flags_of(result)
    named = {name for text in (flags.weak, flags.doubted) if text for name in text.split(", ")}
    return [int(name in named or not named <= set(names)) for name in names]


def strengths(result: Any, p: int) -> Values:
    """Return strengths of score intervals or influences of a prior, also of coefficients that are not weak."""
    inference = result._inference
    if inference.single is not None:
        return rounded(inference.single.strengths)
    if result.cov_type != "posterior":
        return [None] * p
    step = privinf.glm.results.restored(inference.settings["curved"])
    back = np.array(inference.settings["to_user"])
    return rounded(prior_influence(step, inference.scaled_draws, inference.constant, back))


def errors(result: Any, reference: Reference) -> Values:
    """Return how far estimates are from the target, in standard errors."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return rounded((result.params.to_numpy() - reference.target) / result.bse.to_numpy())


def doubts_of(result: Any, names: tuple[str, ...]) -> list[list[Any]]:
    """Return the beginnings of notes that must be read, with the places of coefficients that they name."""
    return [
        [note.text[:40], [names.index(name) for name in note.columns if name in names]]
        for note in result._context.ranked
        if note.rank == "must-read"
    ]


def release_facts(result: Any, facts: dict[str, Any]) -> dict[str, Values]:
    """Return facts on single coefficients that the release contains."""
    known = {"reach": rounded(reaches(gram_of(result, facts)))}
    estimate = result.estimate
    if estimate.cov is None:
        return known
    if estimate.bias is not None:
        known["allowed"] = rounded(estimate.bias / estimate.bse)
    if "largest_shift" in facts:
        known["shift"] = rounded(facts["largest_shift"])
    if estimate.noise_cov is not None:
        known["noise"] = rounded(np.diag(estimate.noise_cov) / estimate.bse**2)
    return known


def scalars(facts: dict[str, Any]) -> dict[str, float | None]:
    """Return facts on the fit as a whole."""
    if "draws" in facts:
        values = (math.sqrt(facts["draws"].length2), facts["step"].far, facts["step"].dispersion)
    else:
        values = (facts["one_step"].length if "one_step" in facts else math.nan, math.nan, math.nan)
    return dict(zip(("step", "far", "dispersion"), rounded(values), strict=True))


@contextmanager
def fitted_parts() -> Iterator[list[dict[str, Any]]]:
    """Collect the arguments of the functions that write a fit's notes: releases that a result does not return."""
    parts: list[dict[str, Any]] = []
    places = [
        (privinf.glm.results, "notes_of", ("rows", "one_step", "estimate", "strength", "largest_shift")),
        (privinf.glm.running, "curved_notes", ("rows", "step", "draws")),
    ]
    originals = [getattr(module, function) for module, function, _ in places]
    for (module, function, names), original in zip(places, originals, strict=True):
        setattr(module, function, collecting(original, names, parts))
    try:
        yield parts
    finally:
        for (module, function, _), original in zip(places, originals, strict=True):
            setattr(module, function, original)


def collecting(original: Any, names: tuple[str, ...], parts: list[dict[str, Any]]) -> Callable[..., Any]:
    """Return a function that collects its first arguments by name and calls the original."""

    def collected(*args: Any, **options: Any) -> Any:
        parts.append(dict(zip(names, args, strict=False)))
        return original(*args, **options)

    return collected


def gram_of(result: Any, facts: dict[str, Any]) -> np.ndarray:
    """Return noisy second moments of the scaled columns, the constant first."""
    if "one_step" in facts:
        return np.asarray(facts["one_step"].initial.gram)
    if "step" in facts:
        return np.asarray(facts["step"].walk.second)
    return np.asarray(result._context.system.A)


def reaches(gram: np.ndarray) -> np.ndarray:
    """Return how many standard deviations a column's farther bound is from its mean; nan for the constant."""
    mean = gram[0] / gram[0, 0]
    variance = np.diag(gram) / gram[0, 0] - mean**2
    distance = 1.0 + np.abs(mean)
    reach = np.full(len(gram), np.inf)
    known = variance > 0.0
    reach[known] = distance[known] / np.sqrt(variance[known])
    reach[0] = np.nan
    return reach


def rounded(values: Any) -> Values:
    """Return numbers for JSON; None for nan, and 1e9 (or -1e9) for what is larger or infinite."""
    return [
        None if math.isnan(value) else float(f"{min(max(value, -1e9), 1e9):.4g}")
        for value in map(float, values)
    ]
