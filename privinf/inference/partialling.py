"""Concentrating out noise-free columns: from all coefficients to those under test (Frisch, Waugh, Lovell)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.typing import Flags, Floats


@dataclass(frozen=True, slots=True)
class Concentrated:
    """How the coefficients under test determine everything else.

    Attributes
    ----------
    projection : (k, p) array
        P, with ``P psi`` the scores of the kept columns after concentration.
    lift : (p + 1, k + 1) array
        From (b kept, 1) to (b, 1): the other coefficients solve their own rows of psibar exactly.
    """

    projection: Floats
    lift: Floats

    def coefficients(self, kept: Floats) -> Floats:
        """Return all p coefficients at the given kept ones."""
        values: Floats = (self.lift @ np.append(kept, 1.0))[:-1]
        return values


def kept_columns(kept: ArrayLike | None, noise_free: Flags) -> Flags:
    """Return the mask of the columns under test: by default, and always at least, those with noise.

    Raises
    ------
    ArgumentError
        If a column with noise is left out: only noise-free columns can be concentrated out exactly.
    """
    if kept is None:
        mask: Flags = ~noise_free
    else:
        mask = np.asarray(kept)
        if mask.dtype != np.bool_ or mask.shape != noise_free.shape:
            raise ArgumentError(f"the mask of tested columns must be {noise_free.shape[0]} booleans")
    if (~mask & ~noise_free).any():
        raise ArgumentError("every column that was released with noise must be among the tested columns")
    if not mask.any():
        raise ArgumentError("no column is left to test: name the noise-free columns to be tested")
    return mask


def concentrate(gram: Floats, g: Floats, kept: Flags) -> Concentrated:
    """Return the maps that concentrate the columns outside `kept` out of ``psibar(b) = g - A b``.

    Notes
    -----
    ``P = [I, -A_xz A_zz^-1]`` and ``b_z = A_zz^-1 (g_z - A_zx b_x)``. A_zz is free of noise, so this is
    never weak; the noise in A_xz multiplies psi_z, which is zero at b_z: an error of second order.
    """
    p, k = gram.shape[0], int(kept.sum())
    projection = np.eye(p)[kept]
    lift = np.zeros((p + 1, k + 1))
    lift[np.append(kept, True)] = np.eye(k + 1)
    if k < p:
        others = np.column_stack([gram[np.ix_(~kept, kept)], g[~kept]])
        solved = np.linalg.lstsq(gram[np.ix_(~kept, ~kept)], others, rcond=None)[0]
        projection[:, ~kept] = -solved[:, :-1].T
        lift[np.append(~kept, False)] = np.column_stack([-solved[:, :-1], solved[:, -1]])
    return Concentrated(projection, lift)


def partialled(gram: Floats, kept: Flags) -> Floats:
    """Return ``A_xx - A_xz A_zz^-1 A_zx`` of a symmetric matrix, shape (k, k)."""
    reduced = concentrate(gram, np.zeros(gram.shape[0]), kept).projection @ gram[:, kept]
    return (reduced + reduced.T) / 2
