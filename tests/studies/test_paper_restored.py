"""Paper 2's algorithms as restored: the engine's iterates without noise, and the noise that they say."""

import math
from dataclasses import replace

import numpy as np
import pytest

import privinf as pi
from privinf.federation import TrustedServer
from privinf.lasso.extras import sparse_directions
from studies.lasso import LassoDesign
from studies.paper.model import fit_paper
from studies.paper.restored import (
    bootstrap_quantile,
    coefficients,
    constants,
    debiased,
    error_variance,
    noisy_ht,
    precision_columns,
    restricted_eigenvalues,
    slack,
)

N, P, S = 4_000, 12, 3
CLEAR = constants(N, epsilon=1.0, delta=1e-5, error_sd=0.5, noise=0.0, score_noise=0.0, rounds=9)


@pytest.fixture(scope="module")
def sample():
    return LassoDesign(machines=1, n=N, p=P, sparsity=S).draw(3)


@pytest.mark.parametrize("form", ["response", "residual"])
def test_without_noise_it_is_the_engine(sample, form):
    """The same sparse fit, columns and coordinates as `fit_paper` with the same clips."""
    c = replace(CLEAR, form=form, norm_bound=0.9)
    rng, targets = np.random.default_rng(0), np.array([0, 2, 9])
    X = np.clip(sample.X, -c.column_bound, c.column_bound)
    beta = coefficients(X, sample.y, S, c, rng)
    columns = precision_columns(X, targets, 4, c, rng)
    variance = np.mean(np.clip(sample.y - X @ beta, -c.clip, c.clip) ** 2)
    mine = debiased(X, sample.y, beta, targets, columns, float(variance), c, rng)
    rows = pi.DebiasedLasso(sample.y, sample.X, x_bound=c.column_bound, y_bounds=(-5, 5), x_scale=1.0)._rows
    ledger = pi.Ledger()
    fit = fit_paper(
        rows,
        TrustedServer(rows.federation, ledger=ledger),
        ledger,
        epsilon=math.inf,
        sparsity=S,
        targets=targets.tolist(),
        precision_sparsity=4,
        iterations=c.rounds,
        clip=c.clip,
        step=c.step,
        norm_bound=c.norm_bound,
        precision_clip=c.precision_clip,
        form=form,
    )
    assert np.allclose(fit.sparse_params, beta, atol=1e-7)
    assert np.allclose(fit.params, mine.params, atol=1e-7)
    assert np.allclose(fit.bse, mine.bse, rtol=1e-6)


def test_a_gram_matrix_stands_for_the_rows(sample):
    X = np.clip(sample.X, -3.5, 3.5)
    rows = coefficients(X, sample.y, S, CLEAR, np.random.default_rng(0))
    gram = coefficients(X, sample.y, S, CLEAR, np.random.default_rng(0), gram=X.T @ X / N)
    assert np.allclose(rows, gram)


def test_noise_has_the_scale_of_the_formulas():
    """b = 2 lambda sqrt(3 s log(T/delta)) T / epsilon; a step that is alone has neither T."""
    c = constants(60_000, epsilon=0.8, delta=1e-5, error_sd=0.5)
    assert (c.rounds, c.step) == (12, 0.5)
    reach = 3.5 * (c.clip + 3.5 * math.sqrt(8))
    wanted = 2.0 * reach / 60_000 * math.sqrt(24.0 * math.log(12 / 1e-5)) * 12 / 0.8
    assert c.fit_scale(60_000, 8) == pytest.approx(wanted)
    one = replace(c, split=False, form="residual")
    wanted = 2.0 * 3.5 * c.clip / 60_000 * math.sqrt(24.0 * math.log(1e5)) / 0.8
    assert one.fit_scale(60_000, 8) == pytest.approx(wanted)
    assert slack(2.0, 15, 5, 60_000, 4_000, c) == pytest.approx(
        30.0 * c.fit_scale(4_000, 15) * c.column_scale(60_000, 5)
    )
    drawn = noisy_ht(np.full((4_000, 3), 50.0), 3, 2.0, np.random.default_rng(0)) - 50.0
    assert drawn.std() == pytest.approx(2.0 * math.sqrt(2.0), rel=0.03)


def test_eigenvalues_variance_and_bootstrap(sample):
    rng, X = np.random.default_rng(1), np.clip(sample.X, -3.5, 3.5)
    directions = sparse_directions(P, S, 50, 0)
    values = (np.clip(X @ directions, -CLEAR.precision_clip, CLEAR.precision_clip) ** 2).mean(axis=0)
    assert restricted_eigenvalues(X, directions, CLEAR, rng) == pytest.approx(
        (values.min(), values.max(), 0.0)
    )
    beta = coefficients(X, sample.y, S, replace(CLEAR, norm_bound=2.0, form="residual"), rng)
    assert error_variance(X, sample.y, beta, CLEAR, rng) == pytest.approx(0.25, rel=0.1)
    scores = rng.standard_normal((1_000, 4))
    quantile, b = bootstrap_quantile(scores, 400, 0.05, CLEAR, rng)
    assert b == 0.0
    assert quantile == pytest.approx(2.49, abs=0.25)  # of the largest of four
    _, b = bootstrap_quantile(scores, 400, 0.05, replace(CLEAR, noise=1.0), rng)
    assert b > 1_000.0
