"""Inference by scores, which holds its level however strong the noise is: tests, sets and their hulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.linear_scores import LinearScores
from privinf.inference.score_sets import ScoreSet, restricted_score_test, score_sets
from privinf.inference.score_test import ScoreTestResult, score_test
from privinf.registry import MODELS
from privinf.results.constraints import (
    ConstraintLike,
    Constraints,
    check_independent,
    describes_restrictions,
    linear_constraints,
)
from privinf.results.context import index_of
from privinf.results.wald import Inference
from privinf.schema import Design
from privinf.typing import ArrayLike, Flags, Floats, IntervalMethod
from privinf.validation import check_array, check_choice, check_fraction

NEVER_KEPT = (
    "{} does not release one. For its targets the score test equals the Wald test: use "
    "wald_test(), conf_int() or simultaneous()"
)
LEFT_OUT = (
    "this result contains none: its fit released only coefficients or named targets, or it "
    "was saved with records=False"
)


@dataclass(frozen=True, eq=False)
class ScoreTests:
    """Score tests of a model's coefficients, the sets of values that they do not reject, and intervals.

    A method whose estimating equation is not `LinearScores` extends it: `available`, `slopes_test`,
    `restricted_test`, `all_sets` and `score_sets_are_quick`.

    Attributes
    ----------
    inference : Inference
    known_sets : dict of float to tuple of ScoreSet
        The sets that were computed, by alpha.
    """

    inference: Inference
    known_sets: dict[float, tuple[ScoreSet, ...]] = field(default_factory=dict)

    @property
    def available(self) -> bool:
        """Whether the equation that scores are computed from is there."""
        return self.inference.context.system is not None and self.inference.context.design is not None

    def score_sets_are_quick(self, alpha: float) -> bool:
        """Return whether score intervals of this level are computed already, or in well below a second.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        bool
            True if the intervals take well below a second.
        """
        return True

    def score_test(self, beta0: ConstraintLike | None = None) -> ScoreTestResult:
        """Test slopes without assuming that the noise is weak.

        Parameters
        ----------
        beta0 : str, list of str, mapping, (R, q), or array, optional
            Restrictions in any form that `wald_test` reads, ``"x1 = x2"``, ``["x1", "x2"]``, ``{"x1":
            0.5}``, of which the other coefficients are solved under the null; or an array of all private
            slopes in the user's units, public columns concentrated out (Anderson-Rubin form). Default: the
            global null that every slope but the constant is zero.

        Returns
        -------
        object
            ``.statistic``, ``.pvalue`` and ``.df``.

        Notes
        -----
        Restrictions: `privinf.inference.score_sets`, which without noise is the Lagrange multiplier
        test of statsmodels (of curved models, Logit, Poisson and PHReg, the score is moved along the Hessian
        of the fit, and without noise it is their Wald test).

        Without an argument it tests what `fvalue` tests, that every slope is zero. Its statistic is a
        chi-square, the sum over its ``df`` restrictions, and `fvalue` is a mean over them: compare
        ``statistic / df`` with F. They still differ a little, since the score test takes the variance of the
        scores where the slopes are zero, and F that of the estimate, which divides by a noisy Hessian.

        It needs the covariance of the scores. With ``cov_type="nonrobust"`` (`MomentOLS` on totals) that
        assumes equal error variance: where the variance goes with the columns, a test at 5% rejected a true
        hypothesis in 0.19 to 0.38 of samples (benchmarks/results/hc0_real.md). ``cov_type="HC0"`` does not.
        """
        if beta0 is None or not describes_restrictions(beta0):
            return self._with_bias(self.slopes_test(cast("ArrayLike | None", beta0)), None)
        constraints = check_independent(linear_constraints(beta0, self.inference.names))
        return self._with_bias(self.restricted_test(constraints), constraints.R)

    def _with_bias(self, result: ScoreTestResult, R: Floats | None) -> ScoreTestResult:
        """Return a result with the largest possible bias of the rows of R b, by default of any slope."""
        estimate = self.inference.estimate
        if estimate.bias is None or estimate.cov is None:
            return result
        if R is None:
            design = self.inference.context.design
            constant = None if design is None else design.constant
            R = np.eye(len(estimate.bias))
            R = R if constant is None else np.delete(R, constant, axis=0)
        errors = np.sqrt(np.einsum("ij,jk,ik->i", R, estimate.cov, R))
        return replace(result, bias=float(np.max(np.abs(R) @ estimate.bias / errors)))

    def sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        """Return the score sets of all coefficients; each level is computed once."""
        if alpha not in self.known_sets:
            self.known_sets[alpha] = self.all_sets(check_fraction(alpha, "alpha"))
        return self.known_sets[alpha]

    def score_set(self, name: str, alpha: float = 0.05) -> ScoreSet:
        """Return the values of one coefficient that the score test does not reject.

        Parameters
        ----------
        name : str
            Name of the coefficient.
        alpha : float
            Level of the test.

        Returns
        -------
        object
            ``.pieces``, the intervals that the set consists of, and ``.hull``, their convex hull.
        """
        return self.sets(alpha)[self.inference.position(name)]

    def intervals(self, alpha: float) -> pd.DataFrame:
        """Return the convex hulls of the score sets, one row per coefficient."""
        hulls = [score_set.hull for score_set in self.sets(alpha)]
        return pd.DataFrame(np.array(hulls, dtype=np.float64), list(self.inference.names))

    def conf_int(
        self,
        alpha: float = 0.05,
        method: IntervalMethod = "wald",
        cols: Sequence[str | int] | None = None,
    ) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1.

        In a weakly identified fit of least squares, each is the score interval of its coefficient alone. It
        holds whatever the noise does to other coefficients, and is infinite where the noise hides its own.

        Parameters
        ----------
        alpha : float
            Between 0 and 1.
        method : {"wald", "score"}
            "score" inverts the joint score test of all coefficients, which holds its level however strong the
            noise is: intervals hold for all coefficients simultaneously and are conservative, the convex
            hulls of `score_set`. They are unbounded where the release does not limit the coefficient.
        cols : sequence of names or positions, optional
            Coefficients to return; default: all.

        Returns
        -------
        DataFrame
            One row per coefficient.

        Warns
        -----
        WeakIdentificationWarning
            Some coefficients are weakly identified (`weakly_identified`).
        """
        if check_choice(method, IntervalMethod, "method") == "wald":
            table = pd.DataFrame(self.inference.interval(alpha), index_of(self.inference.names))
        else:
            table = self.intervals(alpha)
        return table if cols is None else table.iloc[[self.inference.position(column) for column in cols]]

    def slopes_test(self, beta0: ArrayLike | None) -> ScoreTestResult:
        """Return the score test of private slopes `beta0` in user units; None: that every slope is zero."""
        system, design = self._equation
        if self.inference.context.absorbed:
            return self._reported_test(beta0)
        if beta0 is None:
            return self._test_of_zero_slopes
        null = _private_slopes(beta0, design)
        return replace(_slopes_test(system, design.private, design.scaled_slopes(null)), null=null)

    @cached_property
    def _test_of_zero_slopes(self) -> ScoreTestResult:
        """The test that every slope is zero."""
        system, design = self._equation
        tested = np.ones(len(design.names), dtype=bool)
        if design.constant is not None:
            tested[design.constant] = False
        if not tested.any():
            raise NotAvailableError("the model has no slope to test")
        return _slopes_test(system, tested, np.zeros(int(tested.sum())))

    def restricted_test(self, restrictions: Constraints) -> ScoreTestResult:
        """Return the score test of ``R b = q`` in user units."""
        system, design = self._equation
        transform, shift = design.to_user
        R = restrictions.R @ np.eye(len(design.names))[self._places]
        test = restricted_score_test(system, R @ transform, restrictions.q - R @ shift)
        return replace(test, null=restrictions.q)

    def all_sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        """Return the score sets of all p coefficients in user units.

        Notes
        -----
        A slope in user units is a multiple of the scaled one. The constant of centered columns is not: its
        set comes from the system with the centring undone.
        """
        system, design = self._equation
        transform, shift = design.to_user
        factors = np.diag(transform)
        uncentred: Any = Uncentred(system, transform / factors[:, None])
        sets = _sets(uncentred, self._places, alpha, design.private)
        return tuple(
            scaled.mapped(float(factors[place]), float(shift[place]))
            for scaled, place in zip(sets, self._places, strict=True)
        )

    def _reported_test(self, beta0: ArrayLike | None) -> ScoreTestResult:
        """Return the test of all coefficients that are reported, where others are absorbed."""
        names = self.inference.context.reported
        null = np.zeros(len(names)) if beta0 is None else check_array(beta0, "beta0", ndim=1)
        if null.shape != (len(names),):
            raise ArgumentError(
                f"beta0= must contain {len(names)} values, one for each coefficient ({', '.join(names)})"
            )
        return self.restricted_test(Constraints(np.eye(len(names)), null, names))

    @property
    def _places(self) -> list[int]:
        """Places of the reported coefficients in the design."""
        context = self.inference.context
        names = () if context.design is None else context.design.names
        return [names.index(name) for name in context.reported]

    @property
    def _equation(self) -> tuple[LinearScores, Design]:
        """The estimating equation and the design of its coefficients."""
        context = self.inference.context
        if context.system is None or context.design is None:
            if reason := self.inference.no_scores:
                raise NotAvailableError(
                    f"score tests and score intervals are not available for this fit: {reason}"
                )
            stored = MODELS.get(context.model)
            never_kept = stored is not None and not stored.has_equation
            raise NotAvailableError(
                "score tests and score intervals need a released estimating equation, but "
                + (NEVER_KEPT if never_kept else LEFT_OUT).format(context.model)
            )
        return context.system, context.design


def _sets(system: Any, places: list[int], alpha: float, private: Flags) -> tuple[ScoreSet, ...]:
    """Return the score sets of some coefficients, those of slopes with one degree of freedom a slope.

    Where rows with missing values are dropped, the constant carries noise. The statistic is then minimized
    over it, as in `_slopes_test`, which costs no degree of freedom.
    """
    noisy = private | ~system.noise_free
    df = int(private.sum())
    if int(noisy.sum()) == df:
        return score_sets(system, places, alpha=alpha, tested=noisy)
    law = system.distribution
    level = law.pvalue(law.critical(df, alpha), int(noisy.sum()))
    slopes = dict(zip(places, score_sets(system, places, alpha=level, tested=noisy), strict=True))
    sets = {
        place: replace(found, level=1.0 - alpha, df=df) for place, found in slopes.items() if private[place]
    }
    others = [place for place in places if not private[place]]
    sets |= zip(others, score_sets(system, others, alpha=alpha, tested=noisy), strict=True)
    return tuple(sets[place] for place in places)


def _slopes_test(system: LinearScores, tested: Flags, values: Floats) -> ScoreTestResult:
    """Return the score test of some coefficients; the others are minimized over where they carry noise.

    The constant carries noise where rows with missing values are dropped.
    """
    if not (~tested & ~system.noise_free).any():
        return score_test(system, values, tested=tested)
    return restricted_score_test(system, np.eye(len(tested))[tested], values)


@dataclass(frozen=True)
class Uncentred:
    """A linear system in coefficients ``c = T b``, with the interface of `LinearScores` for score sets.

    Attributes
    ----------
    system : LinearScores
    T : ndarray, shape (p, p)
        Invertible; adds noisy columns' coefficients to the constant's, so that noise-free columns stay so.

    Notes
    -----
    ``psi(c) = T^-T psi(T^-1 c)``: the scores of the regression on ``T^-T x``.
    """

    system: LinearScores
    T: Floats

    @property
    def n(self) -> int:
        """Number of records."""
        return self.system.n

    @property
    def noise_free(self) -> Any:
        """Columns without noise."""
        return self.system.noise_free

    @property
    def cov_type(self) -> str:
        """Kind of covariance."""
        return self.system.cov_type

    @property
    def distribution(self) -> Any:
        """Distribution of the score statistic."""
        return self.system.distribution

    @cached_property
    def A(self) -> Floats:
        """Minus the derivative of psi."""
        return np.asarray(self._inverse.T @ self.system.A @ self._inverse, dtype=np.float64)

    @cached_property
    def g(self) -> Floats:
        """Psi at zero."""
        return np.asarray(self._inverse.T @ self.system.g, dtype=np.float64)

    def tensor(self) -> Floats:
        """Return C with ``null_meat(c) = sum_kl w_k w_l C_kl``, w = (c, 1)."""
        p = len(self.T)
        lift = np.eye(p + 1)
        lift[:p, :p] = inverse = self._inverse
        tensor = np.einsum(
            "ki,lj,klab,ac,bd->ijcd", lift, lift, self.system.tensor(), inverse, inverse, optimize=True
        )
        return np.asarray(tensor, dtype=np.float64)

    @cached_property
    def _inverse(self) -> Floats:
        return np.asarray(np.linalg.inv(self.T), dtype=np.float64)


def _private_slopes(beta0: Any, design: Design) -> Floats:
    names = list(design.private_names)
    if isinstance(beta0, pd.Series):
        if sorted(map(str, beta0.index)) != sorted(names):
            raise ArgumentError(
                "beta0= must have one value for each private column, labeled by the names of these columns: "
                f"{', '.join(names)}"
            )
        beta0 = beta0[names]
    values = check_array(beta0, "beta0", ndim=1)
    if values.shape != (len(names),):
        raise ArgumentError(
            f"beta0= must contain {len(names)} values, one for each private column "
            f"({', '.join(names)}), got {len(values)}"
        )
    return values
