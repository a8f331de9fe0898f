"""Score tests and score sets of a result: from the system's units to the user's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.linear_scores import LinearScores
from privinf.inference.score_sets import ScoreSet, score_sets
from privinf.inference.score_test import ScoreTestResult
from privinf.inference.score_test import score_test as test_system
from privinf.results.context import Context
from privinf.schema import Design
from privinf.typing import ColumnLike, Floats
from privinf.validation import check_array


def score_test(context: Context, beta0: ColumnLike | None) -> ScoreTestResult:
    """Return the score test of private slopes `beta0` in user units; see `Results.score_test`."""
    system, design = _parts(context)
    if beta0 is None:
        tested = np.ones(len(design.names), dtype=bool)
        if design.constant is not None:
            tested[design.constant] = False
        if not tested.any():
            raise NotAvailableError("the model has no slope to test")
        return test_system(system, tested=tested)
    null = _private_slopes(beta0, design)
    found = test_system(system, design.scaled_slopes(null), tested=design.private)
    return replace(found, null=null)


def all_score_sets(context: Context, alpha: float) -> tuple[ScoreSet, ...]:
    """Return the score sets of all p coefficients in user units.

    Notes
    -----
    A slope in user units is a multiple of the scaled one. The constant of centred columns is not: its
    set comes from the system with the centring undone.
    """
    system, design = _parts(context)
    transform, shift = design.to_user
    factors = np.diag(transform)
    moved: Any = Uncentred(system, transform / factors[:, None])
    found = score_sets(moved, alpha=alpha, tested=design.private)
    return tuple(s.mapped(float(f), float(c)) for s, f, c in zip(found, factors, shift, strict=True))


@dataclass(frozen=True)
class Uncentred:
    """A linear system in coefficients ``c = T b``: what score sets ask of a `LinearScores`.

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
    def law(self) -> Any:
        """Law of the score statistic."""
        return self.system.law

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
        moved = np.einsum(
            "ki,lj,klab,ac,bd->ijcd", lift, lift, self.system.tensor(), inverse, inverse, optimize=True
        )
        return np.asarray(moved, dtype=np.float64)

    @cached_property
    def _inverse(self) -> Floats:
        return np.asarray(np.linalg.inv(self.T), dtype=np.float64)


def _parts(context: Context) -> tuple[LinearScores, Design]:
    if context.system is None or context.design is None:
        raise NotAvailableError(
            "score tests and score intervals rest on the released estimating equation, and this result was "
            "stored or made without one"
        )
    return context.system, context.design


def _private_slopes(beta0: Any, design: Design) -> Floats:
    names = list(design.private_names)
    if isinstance(beta0, pd.Series):
        if sorted(map(str, beta0.index)) != sorted(names):
            raise ArgumentError(f"beta0 must be labelled by the private columns: {', '.join(names)}")
        beta0 = beta0[names]
    values = check_array(beta0, "beta0", ndim=1)
    if values.shape != (len(names),):
        raise ArgumentError(
            f"beta0 must hold {len(names)} private slopes ({', '.join(names)}), got {len(values)}"
        )
    return values
