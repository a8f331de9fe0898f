r"""Restricted eigenvalues (Algorithm 5) and the noise variance (Algorithm 4): means of clipped squares.

Eigenvalues are those of S = mean x x', columns in units of their typical sizes. Only columns whose sizes were
released should take part: in declared units one with a generous bound makes a small eigenvalue. n_1 public
random unit vectors v_k with s nonzero entries each are tried; the largest (smallest) mean Pi_A(v_k'x)^2 is
selected with noise and released with noise. One record moves a mean by A^2/N. The selected vectors are
feasible points of the two extremal problems: up to noise, the largest restricted eigenvalue is at least, and
the smallest at most, the released number. The paper's Lemma 4.2 closes the gap with a covering of the sphere,
exponentially many vectors. With s = 5, among 29 of 100 columns of an AR(0.5) design, 400 vectors gave 0.66
and 1.75, where the values for all columns are 0.36 and 2.26.

The noise variance is the mean of Pi_R(y - x'b)^2, one record moving it by R^2/N.

Clipping shrinks both. For a normal variable of variance h the mean clipped square is ``h B2(A / sqrt h)``
(B2 of `privinf.lasso.radii`), increasing in h: h is solved for. Where v'x or the residuals are not
normal the correction is right only for the part inside the clips: heavy tails stay undercounted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.optimize import brentq

from privinf.errors import NotAvailableError
from privinf.lasso.fit import SparseFit
from privinf.lasso.radii import UNCLIPPED, residual_moments
from privinf.lasso.sums import SparseSums
from privinf.typing import Floats
from privinf.wire import Labels, Statistics

FORM_CLIP = 3.0  # where v'x is clipped, in standard deviations of normal columns
RESIDUAL_CLIP = 2.5  # where residuals are clipped for their variance, in units of their scale
VECTORS = 400  # n_1, random sparse directions that are tried, by default
SATURATED = 0.95  # share of the squared clip above which clipped squares do not show the variance


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictedEigenvalues:
    """Extreme mean squares over random sparse unit vectors.

    Attributes
    ----------
    smallest, largest : float
        Corrected for the clipping.
    smallest_sd, largest_sd : float
        Sd of the noise of each value.
    selection_scale : float
        Scale of the Gumbel noise of the selections: a selected value is within
        ``selection_scale * log(vectors)`` of the extreme on average.
    sparsity, vectors, columns : int
        Nonzero entries of a vector, number of vectors, number of columns among which they are.
    """

    smallest: float
    largest: float
    smallest_sd: float
    largest_sd: float
    selection_scale: float
    sparsity: int
    vectors: int
    columns: int

    @property
    def ratio(self) -> float:
        """Largest over smallest (NotAvailableError where the noise leaves the smallest no sign)."""
        if not self.smallest > 2.0 * self.smallest_sd:
            raise NotAvailableError(
                "the noise hides the smallest restricted eigenvalue: give the eigenvalues a larger share of "
                "the budget with extra_shares="
            )
        return max(1.0, self.largest / self.smallest)


@dataclass(frozen=True, slots=True)
class NoiseVariance:
    """Variance of the errors of the regression.

    Attributes
    ----------
    value : float
    noise_sd : float
        Sd of what the noise of the release adds; the sampling error is not in it.
    clip : float
        R, units of the response.
    """

    value: float
    noise_sd: float
    clip: float


def sparse_directions(p: int, sparsity: int, vectors: int, public_seed: int) -> Floats:
    """Return random unit vectors with `sparsity` nonzero entries, shape (p, vectors): public.

    Supports are uniform; on its support a vector is uniform on the sphere.
    """
    rng = np.random.default_rng(public_seed)
    directions = np.zeros((p, vectors))
    for column in range(vectors):
        values = rng.standard_normal(sparsity)
        directions[rng.choice(p, sparsity, replace=False), column] = values / np.linalg.norm(values)
    return directions


def normal_variance(square: float, clip: float) -> tuple[float, float]:
    """Return the variance of a normal variable with this mean square clipped at `clip`, and its derivative.

    Parameters
    ----------
    square : float
        Mean of Pi_clip(z)^2.
    clip : float
        Infinite: nothing was clipped.

    Raises
    ------
    NotAvailableError
        The mean is nearly that of a variable that is always clipped.

    Examples
    --------
    >>> round(normal_variance(0.516, 1.0)[0], 2)
    1.0
    """
    if math.isinf(clip) or square <= 0.0:
        return square, 1.0
    if square >= SATURATED * clip**2:
        raise NotAvailableError(
            "nearly all values were clipped before they were squared, so their mean square cannot be "
            "estimated: fit without this option"
        )

    def excess(log: float) -> float:
        return math.exp(log) * residual_moments(clip * math.exp(-log / 2.0))[1] - square

    variance = math.exp(float(brentq(excess, math.log(square) - 1e-9, math.log(clip**2) + 20.0)))
    # d/dh [h B2(A / sqrt h)] = B1 - 2 a phi(a), the mean square of the normal inside a = A / sqrt h.
    end = clip / math.sqrt(variance)
    inside = residual_moments(end)[0] - 2.0 * end * math.exp(-0.5 * end**2) / math.sqrt(2.0 * math.pi)
    return variance, 1.0 / inside


def restricted_eigenvalues(
    sums: SparseSums,
    sparsity: int,
    rho: float,
    *,
    columns: Sequence[int] | None = None,
    vectors: int = VECTORS,
    public_seed: int = 0,
) -> RestrictedEigenvalues:
    """Release the extreme mean squares over random sparse directions.

    Parameters
    ----------
    sums : SparseSums
    sparsity : int
        s.
    rho : float
        Price, zCDP: half for each extreme, of which half for the selection.
    columns : sequence of int, optional
        Columns that vectors may use; default: all.
    vectors : int
        n_1.
    public_seed : int

    Raises
    ------
    NotAvailableError
        The clip is too small for a value.

    Notes
    -----
    **Privacy.** Spends `rho`.
    """
    among = np.arange(len(sums.units.scale)) if columns is None else np.asarray(columns)
    size = min(sparsity, len(among))
    clip = FORM_CLIP if math.isfinite(rho) else math.inf
    args = sums.args(
        (),
        np.empty(0),
        columns=among,
        clip=min(clip, UNCLIPPED),
        transform=sparse_directions(len(among), size, vectors, public_seed),
    )
    ends = []
    server = cast(Any, sums.server)
    for sign, name in ((-1.0, "smallest"), (1.0, "largest")):
        top = server.top_k(
            Statistics.QUADRATIC_FORMS,
            args,
            1,
            label=Labels.RESTRICTED_EIGENVALUE.format(name=name),
            rho=rho / 2.0,
            values=True,
            candidates=None,
            sites=sums.sites,
            absolute=False,
            factor=sign / sums.n,
        )
        value, slope = normal_variance(sign * float(top.values[0]), clip)
        ends.append((value, slope * float(top.values_sd), float(top.scale)))
    (smallest, smallest_sd, selection), (largest, largest_sd, _) = ends
    return RestrictedEigenvalues(
        smallest=smallest,
        largest=largest,
        smallest_sd=smallest_sd,
        largest_sd=largest_sd,
        selection_scale=selection,
        sparsity=size,
        vectors=vectors,
        columns=len(among),
    )


def noise_variance(sums: SparseSums, fit: SparseFit, rho: float) -> NoiseVariance:
    """Release the variance of the errors of a sparse regression.

    Raises
    ------
    NotAvailableError
        Nothing is left after the correction for the noise of the coefficients.

    Notes
    -----
    **Privacy.** Spends `rho`.

    Residuals are those of all selected columns. The noise of their m coefficients adds about m t^2 to the
    mean square, t the noise in whitened coordinates, and fitting them takes the share m/N away: both are
    undone.
    """
    private = math.isfinite(rho)
    clip = RESIDUAL_CLIP * fit.scale if private else math.inf
    noisy = sums.server.vector_sum(
        Statistics.SQUARED_RESIDUALS,
        sums.args(fit.selected, fit.selected_beta, residual_clip=min(clip, UNCLIPPED)),
        label=Labels.NOISE_VARIANCE,
        rho=rho,
        sites=sums.sites,
    )
    selections = len(fit.selected)
    square, slope = normal_variance(float(np.squeeze(noisy.mean)), clip)
    freedom = 1.0 - selections / sums.n
    value = (square - selections * fit.step_sd**2) / freedom
    if not value > 0.0:
        raise NotAvailableError(
            "the noise hides the variance of the errors: give its release a larger share of the budget with "
            "extra_shares="
        )
    return NoiseVariance(value, slope * float(noisy.mean_sd) / freedom, clip)
