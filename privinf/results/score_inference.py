"""Inference by scores, which holds its level however strong the noise is: tests, sets and their hulls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pandas as pd

from privinf.inference.score_sets import ScoreSet
from privinf.inference.score_test import ScoreTestResult
from privinf.results.constraints import (
    ConstraintLike,
    Constraints,
    check_independent,
    describes_restrictions,
    linear_constraints,
)
from privinf.results.wald import Inference
from privinf.typing import ArrayLike
from privinf.validation import check_fraction


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreTests:
    """Score tests of a model's coefficients and the sets of values that they do not reject.

    Attributes
    ----------
    inference : Inference
    slopes_test : callable
        The model's test of all slopes, given their values, or None for the global null.
    restricted_test : callable
        The model's test of restrictions.
    all_sets : callable
        The model's score sets of all coefficients, given alpha.
    """

    inference: Inference
    slopes_test: Callable[[ArrayLike | None], ScoreTestResult]
    restricted_test: Callable[[Constraints], ScoreTestResult]
    all_sets: Callable[[float], tuple[ScoreSet, ...]]
    known_sets: dict[float, tuple[ScoreSet, ...]] = field(default_factory=dict)

    def test(self, beta0: ConstraintLike | None) -> ScoreTestResult:
        """Return the score test of slopes or restrictions; see `Results.score_test`."""
        if beta0 is None or not describes_restrictions(beta0):
            return self.slopes_test(cast("ArrayLike | None", beta0))
        return self.restricted_test(check_independent(linear_constraints(beta0, self.inference.names)))

    def sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        """Return the score sets of all coefficients; each level is computed once."""
        if alpha not in self.known_sets:
            self.known_sets[alpha] = self.all_sets(check_fraction(alpha, "alpha"))
        return self.known_sets[alpha]

    def score_set(self, name: str, alpha: float = 0.05) -> ScoreSet:
        """Return the values of one coefficient that the score test does not reject: pieces and hull."""
        return self.sets(alpha)[self.inference.position(name)]

    def intervals(self, alpha: float) -> pd.DataFrame:
        """Return the convex hulls of the score sets, one row a coefficient."""
        hulls = [found.hull for found in self.sets(alpha)]
        return pd.DataFrame(np.array(hulls, dtype=np.float64), list(self.inference.names))
