r"""The paper's own algorithms for one population: thresholded gradient steps, precision columns, debiasing.

- Algorithm 2: beta_0 = 0 and, T times, ``beta <- P_C NoisyHT(beta - (eta/N) sum g)`` with NoisyHT the Laplace
  peeling of s entries and their values, lambda = eta B/N, and P_C the projection on ||.||_2 <= C. The sum of
  g is `paper_gradient`: form "residual", ``-x Pi_R(y - x'beta)``, B = 2 c_x R; form "response",
  ``x (x'beta - Pi_R(y))``, B = 2 c_x (R + c_x ||beta||_1).
- Algorithm 3: the same on ``w'Sigma^ w/2 - w_j``, gradient ``(1/N) sum x Pi_Rw(x'w) - e_j``, B = 2 c_x R_w.
- Equation 4.1: ``b_j = beta_j + (1/N) sum Pi_Rw(w_j'x) Pi_R(y - x'beta) + E_j``.
- Algorithm 4: sigma^2 = ``(1/N) sum Pi_R(y - x'beta)^2`` + Gaussian noise.
- Algorithm 6: intervals from the variance ``sigma^2 w_jj/N + Var(E_j)`` (for w_j'Sigma^ w_j, which is w_jj
  where w_j solves its equation), or from the released ``(1/N) sum Pi_Rw(w_j'x)^2 Pi_R(r)^2``.

A step of NoisyHT costs what its Laplace noises cost in zCDP, a T-th of the price; nothing here uses the
paper's (epsilon, delta) formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import numpy as np

from privinf.errors import NotAvailableError, NotPositiveDefiniteError
from privinf.lasso.precision import floored
from privinf.lasso.radii import UNCLIPPED, gram_norm
from privinf.lasso.sums import Score, Sites, SparseServer, SparseSums
from privinf.typing import Flags, Floats

Form = Literal["residual", "response"]


class PeelingServer(SparseServer, Protocol):
    """A server that thresholds a public vector plus a multiple of a sum."""

    def top_k(
        self,
        op: str,
        args: Mapping[str, Any],
        k: int,
        *,
        label: str,
        rho: float | None,
        values: bool,
        candidates: Flags | None = None,
        sites: Sites,
        method: Literal["gumbel", "laplace"] = "gumbel",
        offset: Floats | None = None,
        factor: float = 1.0,
    ) -> Any:
        """Release positions and values of the largest entries."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTuning:
    """Public constants of the algorithms, in the units of the sums.

    Attributes
    ----------
    iterations : int
        T, of Algorithms 2 and 3.
    step : float
        eta. The steps contract where the restricted eigenvalues of the columns lie below 2/eta.
    residual_clip, precision_clip : float
        R and R_w; infinite where nothing is noised.
    column_bound : float
        c_x.
    norm_bound, precision_norm : float
        C of coefficients, and of precision columns; infinite for no projection.
    form : {"residual", "response"}
        Of the gradient.
    """

    iterations: int
    step: float
    residual_clip: float
    precision_clip: float
    column_bound: float
    norm_bound: float
    precision_norm: float
    form: Form


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperBudget:
    """Prices in zCDP.

    Attributes
    ----------
    fit, refit, own : float
        All iterates of the common coefficients; all refits; all iterates of a party's own part.
    precision : float
        All iterates of one column.
    variance : float
        sigma^2.
    squares, score : float
        Robust variance and debiasing score of one coordinate.
    multiplier : float
        All multiplier draws.
    """

    fit: float
    refit: float
    own: float
    precision: float
    variance: float
    squares: float
    score: float
    multiplier: float


@dataclass(frozen=True, slots=True, eq=False)
class SparseVector:
    """A released sparse vector: distinct positions and their values."""

    support: list[int]
    values: Floats

    @classmethod
    def zero(cls) -> SparseVector:
        """Return the empty vector, where all iterations start."""
        return cls([], np.empty(0))

    def dense(self, size: int) -> Floats:
        """Return the vector of `size` entries."""
        full = np.zeros(size)
        full[self.support] = self.values
        return full

    def plus(self, other: SparseVector) -> SparseVector:
        """Return the sum, on the union of the positions."""
        union = list(dict.fromkeys([*self.support, *other.support]))
        size = 1 + max(union, default=-1)
        return SparseVector(union, (self.dense(size) + other.dense(size))[union])


def paper_fit(
    sums: SparseSums,
    sparsity: int,
    rho: float,
    tuning: PaperTuning,
    *,
    held: SparseVector | None = None,
    label: str = "iterate of the coefficients",
) -> SparseVector:
    """Return the last iterate of Algorithm 2.

    Parameters
    ----------
    sums : SparseSums
    sparsity : int
        Entries that NoisyHT keeps.
    rho : float
        Price of all iterates together.
    tuning : PaperTuning
    held : SparseVector, optional
        Coefficients held fixed: the response is what they leave of it (Algorithm 8's second stage).
    label : str
        For the ledger.

    Notes
    -----
    **Privacy.** T releases of price rho/T each, replace-one.
    """
    held = SparseVector.zero() if held is None else held
    found = SparseVector.zero()
    for _ in range(tuning.iterations):
        whole = held.plus(found)
        args = sums.args(
            whole.support,
            whole.values,
            column_bound=tuning.column_bound,
            residual_clip=min(tuning.residual_clip, UNCLIPPED),
            form=tuning.form,
        )
        start = found.dense(len(sums.units.scale))
        price = rho / tuning.iterations
        found = _thresholded(
            sums, "paper_gradient", args, start, sparsity, tuning.step, tuning.norm_bound, price, label
        )
    return found


def paper_column(
    sums: SparseSums, target: int, sparsity: int, rho: float, tuning: PaperTuning
) -> SparseVector:
    """Return the last iterate of Algorithm 3: a sparse column of the precision matrix.

    Notes
    -----
    **Privacy.** T releases of price rho/T each, replace-one.
    """
    found = SparseVector.zero()
    for _ in range(tuning.iterations):
        args = sums.args(
            (),
            np.empty(0),
            column_bound=tuning.column_bound,
            clip=min(tuning.precision_clip, UNCLIPPED),
            columns=np.asarray(found.support, dtype=np.int64),
            weights=found.values,
        )
        start = found.dense(len(sums.units.scale))
        start[target] += tuning.step
        found = _thresholded(
            sums,
            "precision_gradient",
            args,
            start,
            sparsity,
            tuning.step,
            tuning.precision_norm,
            rho / tuning.iterations,
            "iterate of a precision column",
        )
    return found


def _thresholded(
    sums: SparseSums,
    op: str,
    args: dict[str, Any],
    start: Floats,
    k: int,
    step: float,
    norm: float,
    rho: float,
    label: str,
) -> SparseVector:
    """Return NoisyHT of ``start - (step/n) sum``, projected on the ball of radius `norm`."""
    found = cast(PeelingServer, sums.server).top_k(
        op,
        args,
        k,
        rho=rho,
        values=True,
        method="laplace",
        offset=start,
        factor=-step / sums.n,
        label=label,
        sites=sums.sites,
    )
    length = float(np.linalg.norm(found.values))
    values = found.values * (1.0 if length <= norm else norm / length)
    return SparseVector([int(j) for j in found.support], np.asarray(values))


def paper_refit(
    sums: SparseSums,
    fit: SparseVector,
    rho: float,
    tuning: PaperTuning,
    *,
    held: SparseVector | None = None,
) -> SparseVector:
    """Return least squares on the support of a fit, from a noisy Gram matrix and noisy cross products.

    ``beta + G~^-1 mean[a Pi_R(y - x'beta)]``, a = x_S shrunk as in the Gram matrix: without clips and noise
    this is ``(X_S'X_S)^-1 X_S'y``, and the clips bias it less than they bias that.

    Notes
    -----
    **Privacy.** Two Gaussian releases of half of `rho` each.
    """
    whole = fit if held is None else held.plus(fit)
    size = len(fit.support)
    norm = gram_norm(size, rho)
    gram, _ = sums.gram(fit.support, norm, rho / 2.0, "Gram matrix of the refit")
    if not np.trace(gram) > 0.0:
        raise NotPositiveDefiniteError("the noisy Gram matrix has no positive trace: spend more on it")
    score = Score(
        columns=fit.support,
        transform=np.eye(size),
        norm=norm,
        residual=tuning.residual_clip,
        support=whole.support,
        beta=whole.values,
    )
    mean, _ = sums.score(score, rho / 2.0, "cross products of the refit")
    return SparseVector(fit.support, np.asarray(fit.values + np.linalg.solve(floored(gram), mean)))


def mean_square(sums: SparseSums, fit: SparseVector, rho: float, tuning: PaperTuning) -> float:
    """Return Algorithm 4's mean clipped square of the residuals, noised: it may not be positive.

    Notes
    -----
    **Privacy.** One Gaussian release of a sum of sensitivity R^2.
    """
    bound = min(tuning.residual_clip, UNCLIPPED)
    found = sums.server.vector_sum(
        "squared_residuals",
        sums.args(fit.support, fit.values, residual_clip=bound),
        label="variance of the errors",
        rho=rho,
        sites=sums.sites,
    )
    return float(found.mean[0])


def positive_variance(variance: float) -> float:
    """Return a released variance, or raise NotAvailableError where it is not positive."""
    if not variance > 0.0:
        raise NotAvailableError(
            "the noise hides the variance of the errors: spend more, move budget to it with shares=, or "
            "lower clip="
        )
    return variance


def precision_diagonal(columns: Sequence[SparseVector], targets: Sequence[int]) -> Floats:
    """Return the precisions among the targets, shape (k, k), symmetrised.

    Raises
    ------
    NotPositiveDefiniteError
        A column's own entry is not positive.
    """
    size = 1 + max([*targets, *(j for column in columns for j in column.support)])
    square = np.array([column.dense(size)[list(targets)] for column in columns])
    if not (np.diag(square) > 0.0).all():
        raise NotPositiveDefiniteError(
            "the noise leaves a precision column without a positive entry of its own: name fewer targets, "
            "spend more, or lower precision_clip="
        )
    return np.asarray((square + square.T) / 2.0)


def paper_score(fit: SparseVector, columns: Sequence[SparseVector], tuning: PaperTuning) -> Score:
    """Return the scores of equation 4.1, each clipped by itself."""
    union = list(dict.fromkeys(j for column in columns for j in column.support))
    size = 1 + max(union)
    transform = np.column_stack([column.dense(size)[union] for column in columns])
    return Score(
        columns=union,
        transform=transform,
        norm=tuning.precision_clip,
        residual=tuning.residual_clip,
        support=fit.support,
        beta=fit.values,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PaperCoordinates:
    """Debiased coordinates by the paper's equations, and the two parts of their variances, of shape (k,)."""

    params: Floats
    sampling: Floats
    privacy: Floats


def paper_debiased(
    sums: SparseSums,
    fit: SparseVector,
    columns: Sequence[SparseVector],
    targets: Sequence[int],
    variance: float,
    budget: PaperBudget,
    tuning: PaperTuning,
    *,
    robust: bool = False,
) -> PaperCoordinates:
    """Return the debiased coordinates of equation 4.1 with the variances of Algorithm 6.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseVector
    columns : sequence of k SparseVector
    targets : sequence of k int
    variance : float
        Released variance of the errors.
    budget : PaperBudget
        Prices of one coordinate: k coordinates at once cost k times as much.
    tuning : PaperTuning
    robust : bool
        Release the sampling variances instead of sigma^2 w_jj.

    Raises
    ------
    NotAvailableError
        The noise leaves a robust variance without a sign.

    Notes
    -----
    **Privacy.** The scores, l2 sensitivity 2 R_w R sqrt k, and their squares, R_w^2 R^2 sqrt k, if asked.
    """
    k = len(targets)
    score = paper_score(fit, columns, tuning)
    mean, noise = sums.score(score, k * budget.score, "debiasing scores", "paper_scores")
    if robust:
        square, _ = sums.score(score, k * budget.squares, "variances of the scores", "paper_variances")
        sampling = np.array([positive_variance(float(one)) for one in square]) / sums.n
    else:
        sampling = variance * np.diag(precision_diagonal(columns, targets)) / sums.n
    start = fit.dense(len(sums.units.scale))[list(targets)]
    return PaperCoordinates(params=start + mean, sampling=np.asarray(sampling), privacy=np.full(k, noise**2))
