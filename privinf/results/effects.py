"""Effects of factors that a result leaves out: fitted with everything else, and then not reported.

With the columns x that are reported and the indicators d of the absorbed factors, the coefficients of x in
the regression on both are those of the regression on what d leaves of x (Frisch, Waugh and Lovell):
partialling d out of the released moments, noise and all, gives the same numbers and the same covariance as
solving for everything and leaving the coefficients of d out, as is done here. Whether the noise
leaves enough of x within the levels is judged from the whole system, as for any result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from privinf.errors import NotAvailableError, SchemaError
from privinf.results.base import Results
from privinf.schema import Design

# Beyond it, the distribution of the noise of second moments, an array of p^4 numbers, would fill the memory.
MOST_COLUMNS = 120
# Edges of the noise's spectrum by which a column must stand clear of it within the levels: below it 95%
# intervals of columns that are correlated with the effects covered .76 (benchmarks/results/effects.md).
LEAST_STRENGTH = 0.6
NOTHING_LEFT = (
    "the formula has no column besides the absorbed effects of {}: write at least one column before the |"
)
ResultsT = TypeVar("ResultsT", bound=Results)


def check_effects(design: Design, effects: Sequence[str], *, limit: int | None = None) -> None:
    """Raise unless a design has other columns in addition to its effects, and at most `limit` columns.

    Raises
    ------
    SchemaError
        There is nothing but effects.
    NotAvailableError
        There are too many levels.
    """
    if effects and not reported_places(design.names, design, effects):
        raise SchemaError(NOTHING_LEFT.format(" + ".join(effects)))
    if effects and limit is not None and len(design.names) > limit:
        raise NotAvailableError(
            f"{len(design.names)} columns, including the levels of {' + '.join(effects)}, are more "
            f"than the limit of {limit} for second moments: pool levels with Factor(levels, other=), "
            "or fit pi.OLS"
        )


def reported_places(names: Sequence[str], design: Design, effects: Sequence[str]) -> list[int]:
    """Return the places of the coefficients that are neither effects nor the constant, which is one too."""
    constant = None if design.constant is None else design.names[design.constant]
    terms = design.terms
    return [j for j, name in enumerate(names) if name != constant and terms[name] not in effects]


def absorbing(result: ResultsT, effects: Sequence[str]) -> ResultsT:
    """Return a result without the coefficients of these terms and the constant; itself where there are none.

    Parameters
    ----------
    result : Results
        Of p coefficients.
    effects : sequence of str
        Terms of its design, ``C(firm)``.
    """
    context = result._context
    names = result.names
    if not effects or context.design is None:
        return result
    places = reported_places(names, context.design, effects)
    absorbed = [name for j, name in enumerate(names) if j not in places]
    sampling = context.sampling_cov
    point = context.point
    strength = context.identification
    if strength is not None and strength.threshold < LEAST_STRENGTH:
        weak = strength.statistic < LEAST_STRENGTH
        strength = replace(strength, threshold=LEAST_STRENGTH, weak=weak)
    return result._with(
        result.estimate.transformed(np.eye(len(names))[places], names=[names[j] for j in places]),
        replace(
            context,
            sampling_cov=None if sampling is None else sampling[np.ix_(places, places)],
            point=None if point is None else point[places],
            identification=strength,
            settings={**context.settings, "absorbed": absorbed},
            options={**context.options, "Absorbed": f"{' + '.join(effects)} ({len(absorbed)} coefficients)"},
        ),
    )
