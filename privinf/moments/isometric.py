r"""Isometric entries of z z', z = (public, private, c y), as linear scores.

The entries above the diagonal count sqrt 2, so that noise of equal sd s on them is isotropic in the
Frobenius norm. A moment vector lists the upper triangle row by row, less the public x public block,
which is exact. The estimating function is linear in it: ``psi = sum_k w_k L_k m`` at w = (b, 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.typing import Flags, Floats, Integers
from privinf.validation import check_count, check_positive

FULLER_REASON = (
    "Fuller's modification shrinks the noise covariance that corrected least squares subtracts; noisy second "
    "moments subtract none: use stabilization='ridge'"
)


@dataclass(frozen=True, slots=True)
class MomentMap:
    """From the moments of z to those of a regression of y on the columns in a chosen order.

    Attributes
    ----------
    public, size : int
        Leading public entries of z, and its length.
    order : (size - 1,) array
        Column j of the regression is entry ``order[j]`` of z.
    weight : float
        c.
    """

    public: int
    size: int
    order: Integers
    weight: float

    @classmethod
    def checked(cls, *, public: int, size: int, order: ArrayLike | None, weight: float) -> MomentMap:
        """Return the map, or raise ArgumentError for arguments that do not fit together."""
        check_count(public, "public", least=0)
        if public > size - 2:
            raise ArgumentError(
                f"z of length {size} needs a private column beside {public} public ones and y"
            )
        columns = np.arange(size - 1) if order is None else np.asarray(order, dtype=np.int64)
        if not np.array_equal(np.sort(columns), np.arange(size - 1)):
            raise ArgumentError(f"order must be a permutation of the {size - 1} columns")
        return cls(public, size, columns, check_positive(weight, "weight"))

    @property
    def noise_free(self) -> Flags:
        """Which columns are public, in the regression's order."""
        return self.order < self.public

    def pairs(self) -> tuple[Integers, Integers, Floats]:
        """Return rows, columns and factors of all isometric entries: the noisy ones, then the public."""
        rows, columns = np.triu_indices(self.size)
        first = np.argsort(columns < self.public, kind="stable")
        rows, columns = rows[first], columns[first]
        return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))

    @property
    def noisy(self) -> int:
        """How many isometric entries carry noise."""
        return self.size * (self.size + 1) // 2 - self.public * (self.public + 1) // 2

    def quadratic_form(self, W: Floats) -> Floats:
        """Return Q with ``w'Qw = mean (y - x'b)^2`` at w = (b, 1): [[A, -g], [-g', yy]]."""
        J = np.zeros((self.size, self.size))
        J[self.order, np.arange(self.size - 1)] = -1.0
        J[-1, -1] = 1.0 / self.weight
        form: Floats = J.T @ W @ J
        return form

    def loadings(self) -> Floats:
        """Return L, shape (p+1, p, m), with ``psi = sum_k w_k L_k m``."""
        rows, columns, factors = self.pairs()
        entry: Floats = np.zeros((self.size, self.size, rows.shape[0]))
        index = np.arange(rows.shape[0])
        entry[rows, columns, index] = 1.0 / factors
        entry[columns, rows, index] = 1.0 / factors
        loadings: Floats = entry[np.append(self.order, self.size - 1)][:, self.order]
        loadings[:-1] *= -1.0
        loadings[-1] /= self.weight
        return loadings

    def noise_tensor(self, variance: float) -> Floats:
        """Return K with ``Cov(noise of psi) = sum_kl w_k w_l K_kl`` for iid noise on the noisy entries.

        Where every entry is noisy this is ``(s^2/2)[(|b|^2 + c^-2) I + b b']``.
        """
        L = self.loadings()[:, :, : self.noisy]
        tensor: Floats = variance * np.einsum("kam,lbm->klab", L, L, optimize=True)
        return tensor


def positive_part(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix; the matrix itself where it is one already."""
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= 0.0:
        return matrix
    nearest: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return nearest


def spectral_edge(noise_free: Flags, sd: float) -> float:
    """Return ``sqrt(2 d) sd``: about the largest eigenvalue of the noise in d private columns of A."""
    return float(np.sqrt(2.0 * np.count_nonzero(~noise_free)) * sd)
