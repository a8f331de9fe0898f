"""Small samples: t intervals hold their level with noise and without, where normal ones do not."""

import math

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

import privinf as pi

BETA, REPLICATIONS = np.array([1.0, 0.5, -0.5]), 300


def covered(n, epsilon, cov_type, model=pi.MomentOLS):
    """Return how often t and normal intervals cover, shape (2, 3), over unflagged fits, and their number."""
    kept = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([seed, n])
        X = rng.uniform(-1, 1, (n, 2))
        y = BETA[0] + X @ BETA[1:] + 0.5 * rng.standard_normal(n)
        noise = {} if math.isinf(epsilon) else {"delta": 1e-6, "rng": rng}
        asked = model(y, pi.add_constant(X), bounds=[(-1, 1)] * 2, y_bounds=(-4, 4))
        r = asked.fit(epsilon=epsilon, cov_type=cov_type, **noise)
        if r.identification.weak:
            continue
        error = np.abs(r.params.to_numpy() - BETA)
        half = np.diff(r.conf_int().to_numpy(), axis=1)[:, 0] / 2.0
        kept.append([error <= half, error <= -ndtri(0.025) * r.bse.to_numpy()])
    return np.mean(kept, axis=0), len(kept)


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.SteepDirectionWarning")
@pytest.mark.parametrize(("n", "epsilon"), [(10, math.inf), (20, math.inf), (40, 100.0)])
def test_t_intervals_hold_their_level(n, epsilon):
    (by_t, by_normal), kept = covered(n, epsilon, "nonrobust")
    assert kept > 0.9 * REPLICATIONS
    assert (by_t >= binom.ppf(0.001, kept, 0.95) / kept).all()
    assert (by_t <= binom.ppf(0.9995, kept, 0.95) / kept + (0.03 if epsilon < math.inf else 0.0)).all()
    assert (by_normal <= by_t).all()
    if n == 10:
        assert by_normal.mean() < 0.93
