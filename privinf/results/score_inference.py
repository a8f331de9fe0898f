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

    def score_test(self, beta0: ConstraintLike | None = None) -> ScoreTestResult:
        """Test slopes without assuming that the noise is weak.

        Parameters
        ----------
        beta0 : str, list of str, mapping, (R, q), or array, optional
            Restrictions as for `wald_test`, ``"x1 = x2"``, ``["x1", "x2"]``, ``{"x1": 0.5}``, of which the
            other coefficients are solved under the null; or an array of all private slopes in the user's
            units, public columns concentrated out (Anderson-Rubin form). Default: the global null that every
            slope but the constant is zero.

        Returns
        -------
        ScoreTestResult : statistic, pvalue, df

        Notes
        -----
        Restrictions: `privinf.inference.score_sets`, which without noise is the Lagrange multiplier
        test of statsmodels (of curved models, Logit and Poisson, the score is moved along the Hessian of the
        fit, and without noise it is their Wald test).

        Without an argument it tests what `fvalue` tests, that every slope is zero. Its statistic is a
        chi-square, the sum over its ``df`` restrictions, and `fvalue` is a mean over them: compare
        ``statistic / df`` with F. They still differ a little, since the score test takes the variance of the
        scores where the slopes are zero, and F that of the estimate, which divides by a noisy Hessian.

        It needs the covariance of the scores. With ``cov_type="nonrobust"`` (`MomentOLS` on totals) that
        assumes equal error variance: where the variance goes with the columns, a test at 5% rejected a true
        hypothesis in .19 to .38 of samples (benchmarks/results/hc0_real.md). ``cov_type="HC0"`` does not.
        """
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
