"""Partialling out noise-free columns from second moments (Frisch, Waugh and Lovell)."""

from __future__ import annotations

import numpy as np

from privinf.typing import Flags, Floats


def projection(gram: Floats, kept: Flags) -> Floats:
    """Return P, shape (k, p), so that P psi is psi of the kept columns with the others concentrated out.

    ``P = [I, -A_xz A_zz^+]`` in the order of the columns.
    """
    p = gram.shape[0]
    matrix = np.eye(p)[kept]
    if not kept.all():
        inner = gram[np.ix_(~kept, ~kept)]
        matrix[:, ~kept] = -np.linalg.lstsq(inner, gram[np.ix_(~kept, kept)], rcond=None)[0].T
    return matrix


def partialled(gram: Floats, kept: Flags) -> Floats:
    """Return ``A_xx - A_xz A_zz^+ A_zx`` of a symmetric matrix, shape (k, k)."""
    P = projection(gram, kept)
    reduced = P @ gram[:, kept]
    return (reduced + reduced.T) / 2
