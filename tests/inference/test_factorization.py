"""Factors of many small symmetric matrices against numpy's solver and eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest

from privinf.inference.factorization import exceeds, solved


def matrices(n: int, p: int, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal((n, p, p))
    return np.eye(p) + 0.4 / np.sqrt(p) * (noise + noise.transpose(0, 2, 1))


@pytest.mark.parametrize("p", [1, 2, 3, 7, 24])
def test_solutions_and_decisions_agree_with_lapack(p: int) -> None:
    drawn = matrices(400, p, p)
    kept = drawn.copy()
    vectors = np.random.default_rng(1).standard_normal((400, p))
    smallest = np.linalg.eigvalsh(drawn)[:, 0]
    for low in (0.0, 0.1, float(np.median(smallest))):
        clear = np.abs(smallest - low) > 1e-12
        assert np.array_equal(exceeds(drawn, low)[clear], (smallest > low)[clear])
    definite = smallest > 0.05
    assert definite.sum() > 20
    solutions = solved(drawn[definite], vectors[definite])
    expected = np.linalg.solve(drawn[definite], vectors[definite][..., None])[..., 0]
    assert np.allclose(solutions, expected, rtol=1e-11, atol=1e-13)
    assert np.array_equal(drawn, kept), "the matrices are not written to"


def test_singular_matrices_exceed_nothing() -> None:
    singular = np.stack([np.zeros((2, 2)), np.ones((2, 2)), np.full((2, 2), np.nan), np.eye(2)])
    assert exceeds(singular, 0.0).tolist() == [False, False, False, True]
