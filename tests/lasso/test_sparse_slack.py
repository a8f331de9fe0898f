"""The slack of the privacy errors: it bounds w'Zd as often as it says, and is of its order."""

import numpy as np
import pytest

from privinf.errors import ArgumentError
from privinf.lasso.extras import privacy_slack
from privinf.lasso.precision import column_noise_variance
from studies.simulation import binomial_limits

GRAM_SD, STEP_SD, SAMPLING, REPS = 0.03, 0.02, 0.015, 4_000


def isometric_noise(rng, size):
    upper = np.triu(rng.standard_normal((size, size)), 1) * np.sqrt(0.5)
    return GRAM_SD * (upper + upper.T + np.diag(rng.standard_normal(size)))


def simulate(decay, selected=5, members=8, seed=0):
    """Return draws of |w'Zd| and of |Zw| |d|, d the noise alone, the released variance, the ratio."""
    rng = np.random.default_rng(seed)
    gram = decay ** np.abs(np.subtract.outer(np.arange(members), np.arange(members)))
    w = np.linalg.inv(gram)[:, -1]
    inverse = np.linalg.inv(gram[:selected, :selected])
    root = np.linalg.cholesky(inverse)
    moved, products = np.empty(REPS), np.empty(REPS)
    for rep in range(REPS):
        shift = isometric_noise(rng, members) @ w
        error = STEP_SD * root @ rng.standard_normal(selected)
        moved[rep] = abs(shift[:selected] @ error)
        products[rep] = np.linalg.norm(shift) * np.linalg.norm(error)
    total = (STEP_SD**2 + SAMPLING**2) * inverse
    column = column_noise_variance(w[:, None], GRAM_SD, np.arange(selected), total)
    values = np.linalg.eigvalsh(gram)
    return moved, products, column, values[-1] / values[0]


@pytest.mark.audit
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("eta", [0.01, 0.3])
def test_it_bounds_the_product_of_norms(decay, eta):
    moved, products, column, ratio = simulate(decay)
    share = STEP_SD**2 / (STEP_SD**2 + SAMPLING**2)
    bound = privacy_slack(column, np.array([8]), 5, share, ratio, eta=eta)[0]
    assert np.mean(moved <= bound) >= binomial_limits(1.0 - eta, REPS)[0]
    assert np.mean(products <= bound / ratio) >= binomial_limits(1.0 - eta, REPS)[0]
    # Of the order of what it bounds: the root mean square before the concentration, within its inequality.
    typical = np.sqrt(9.0 * share * column[0])
    size = np.sqrt(np.mean(products**2))
    c = np.sqrt(np.log(2.0 / eta))
    room = (1.0 + 2.0 * c / 3.0) * (1.0 + c / np.sqrt(max(0.5, 2.5 / ratio)))
    assert bound == pytest.approx(ratio * typical * room)
    assert size <= typical * (1.0 + 4.0 / np.sqrt(REPS))
    assert typical <= np.sqrt(2.0) * size


def test_it_scales_with_both_noises_and_vanishes_without():
    column, members = np.array([1e-4, 4e-4]), np.array([6, 6])
    base = privacy_slack(column, members, 4, 0.25, 2.0)
    assert base[1] == pytest.approx(2.0 * base[0])
    assert privacy_slack(column, members, 4, 1.0, 2.0) == pytest.approx(2.0 * base)
    assert (privacy_slack(column, members, 4, 0.25, 3.0) > 1.5 * base).all()
    assert (privacy_slack(column, members, 4, 0.0, 2.0) == 0.0).all()
    assert (privacy_slack(np.zeros(2), members, 4, 1.0, 2.0) == 0.0).all()
    assert (privacy_slack(column, members, 4, 0.25, 2.0, eta=0.001) > base).all()


@pytest.mark.parametrize(
    "change",
    [
        {"ratio": 0.9},
        {"privacy_share": 1.1},
        {"members": np.array([0])},
        {"column": np.array([-1.0])},
        {"eta": 0.0},
        {"selected": -1},
        {"members": np.array([3, 3])},
    ],
)
def test_bad_input(change):
    good = {
        "column": np.array([1e-4]),
        "members": np.array([3]),
        "selected": 3,
        "privacy_share": 0.5,
        "ratio": 1.5,
    }
    privacy_slack(**good)
    with pytest.raises(ArgumentError):
        privacy_slack(**(good | change))
