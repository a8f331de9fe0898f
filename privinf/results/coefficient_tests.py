r"""Score tests of one coefficient each, which replace normal inference in a weakly identified fit.

What a weak direction of the released moments does to one coefficient passes through that coefficient's own
influence row. So a coefficient can have a valid interval although other coefficients have none. A coefficient
is called weakly identified if the slope of its score is below `least_strength` sds of its noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privinf.errors import NotPositiveDefiniteError
from privinf.inference.coefficient_sets import CoefficientScores, contrast_scores
from privinf.inference.estimate import Estimate
from privinf.inference.linear_scores import CHI_SQUARE, ScoreDistribution
from privinf.inference.one_step import OneStepScores
from privinf.inference.solution import WEAK_GRAM
from privinf.results.context import Context
from privinf.schema import Design
from privinf.typing import Flags, Floats
from privinf.validation import check_fraction


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CoefficientTests:
    """Score statistics of the p coefficients, one degree of freedom each, in the user's units.

    Attributes
    ----------
    scores : tuple of p CoefficientScores
    hidden : ndarray of bool, shape (p,)
        Coefficients that are weakly identified.
    moved : bool
        Whether the estimates differ from the roots of the equation: they invert a floored Hessian.
    distribution : ScoreDistribution
    """

    scores: tuple[CoefficientScores, ...]
    hidden: Flags
    moved: bool
    distribution: ScoreDistribution = CHI_SQUARE

    @property
    def strengths(self) -> Floats:
        """Slopes of the scores along the coefficients, in sds of their noise."""
        return np.array([score.strength for score in self.scores])

    @property
    def roots(self) -> Floats:
        """Roots of the equation."""
        return np.array([score.root for score in self.scores])

    @property
    def standard_errors(self) -> Floats:
        """Standard errors of the roots."""
        return np.array([score.standard_error for score in self.scores])

    def statistics(self) -> Floats:
        """Return the statistics of the hypotheses that single coefficients are zero: chi-square, 1 df."""
        return np.array([score.statistic(0.0) for score in self.scores])

    def pvalues(self) -> Floats:
        """Return the p-values of zero coefficients."""
        return np.array([self.distribution.pvalue(statistic, 1) for statistic in self.statistics()])

    def interval(self, alpha: float) -> Floats:
        """Return the hulls of the score sets, shape (p, 2); ends may be infinite."""
        critical = self.distribution.critical(1, check_fraction(alpha, "alpha"))
        pieces = [score.pieces(critical) for score in self.scores]
        return np.array([(ends[0][0], ends[-1][1]) for ends in pieces])


def coefficient_tests(estimate: Estimate, context: Context) -> CoefficientTests | None:
    """Return the tests of a weakly identified fit, or None.

    None: the fit is not weakly identified, its equation has no validated tests of single coefficients, or its
    estimates are not those of the equation.
    """
    strength = context.identification
    design = context.design
    system = context.system
    if strength is None or not strength.weak or design is None or context.target != "population":
        return None
    if getattr(system, "least_strength", None) is None:
        return None
    if estimate.cov is None and estimate.weak_reason != WEAK_GRAM:
        return None
    names = design.names
    return tests_of(system, design, [names.index(name) for name in context.reported])


def tests_of(system: Any, design: Design, places: list[int]) -> CoefficientTests | None:
    """Return the tests of the coefficients at these places of a design; None where A is singular."""
    transform, shift = design.to_user
    try:
        scores = contrast_scores(system, transform)
    except NotPositiveDefiniteError:
        return None
    hidden = np.array([score.strength < system.least_strength for score in scores])
    hidden = with_constant(hidden, design)
    moved = isinstance(system, OneStepScores)
    return CoefficientTests(
        scores=tuple(replace(scores[j], root=scores[j].root + float(shift[j])) for j in places),
        hidden=hidden[places],
        moved=moved,
        distribution=system.distribution,
    )


def with_constant(hidden: Flags, design: Design) -> Flags:
    """Return the flags with that of the constant: it is weakly identified if a centered column is.

    Columns are centered at the middle of their bounds, and the constant in the user's units contains the
    middle of each times its slope. Indicators are exempt: few records decide their slope, and these hardly
    move the constant.
    """
    constant = design.constant
    if constant is None:
        return hidden
    transform, _ = design.to_user
    numbers = np.array([not column.indicator for column in design.columns])
    centered = (transform[constant] != 0.0) & (np.arange(len(hidden)) != constant)
    flags = hidden.copy()
    flags[constant] |= bool((hidden & numbers & centered).any())
    return flags
