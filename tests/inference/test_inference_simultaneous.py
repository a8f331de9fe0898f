import numpy as np
import pytest
from scipy.stats import binomtest, norm

from privinf.errors import ArgumentError
from privinf.inference.simultaneous import gaussian_max_t, multiplier_max_t

EQUICORRELATED = 0.5 * np.eye(6) + 0.5


def test_one_quantity_is_exactly_normal():
    found = gaussian_max_t([2.0], [[4.0]], draws=200, rng=0)
    assert found.critical_value == pytest.approx(norm.isf(0.025), rel=1e-12)
    assert found.single_step[0] == pytest.approx(2 * norm.sf(2.0), rel=1e-12)
    assert found.step_down[0] == pytest.approx(2 * norm.sf(2.0), rel=1e-12)


def test_independent_quantities_have_sidak_values():
    found = gaussian_max_t(np.linspace(0.5, 3.0, 5), np.diag([1.0, 4, 9, 16, 25]), draws=100_000, rng=1)
    assert 2 * norm.sf(found.critical_value) == pytest.approx(1 - 0.95 ** (1 / 5), rel=0.03)
    sidak = 1 - (1 - 2 * norm.sf(np.linspace(0.5, 3.0, 5))) ** 5
    np.testing.assert_allclose(found.single_step, sidak, atol=4 * 0.5 / np.sqrt(100_000))


def test_singular_correlation():
    # Two quantities and their difference, one of them twice: rank 2 of 4.
    contrasts = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [1.0, 0.0]])
    found = gaussian_max_t([1.0, 2.0, 0.3, 1.0], contrasts @ contrasts.T, draws=50_000, rng=2)
    rng = np.random.default_rng(3)
    z = rng.standard_normal((200_000, 2)) @ contrasts.T / np.linalg.norm(contrasts, axis=1)
    exceed = np.mean(np.abs(z).max(axis=1) > found.critical_value)
    assert exceed == pytest.approx(0.05, abs=4 * np.sqrt(0.0475 * (1 / 50_000 + 1 / 200_000)))
    copies = gaussian_max_t([1.0, 1.0, 1.0], np.ones((3, 3)), draws=50_000, rng=2)
    assert copies.critical_value == pytest.approx(norm.isf(0.025), abs=0.03)


def test_tiny_p_values_survive():
    found = gaussian_max_t([30.0, 20.0, 0.1], EQUICORRELATED[:3, :3], draws=1000, rng=0)
    assert 0.0 < found.single_step[0] < 1e-190
    assert found.single_step[0] <= 3 * 2 * norm.sf(30.0)
    assert found.step_down[2] == pytest.approx(2 * norm.sf(0.1), rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_step_down_is_monotone_and_never_above_single_step(seed):
    rng = np.random.default_rng(seed)
    statistics = rng.standard_normal(6) * 2
    influence = rng.multivariate_normal(np.zeros(6), EQUICORRELATED, 300)
    for found in (
        gaussian_max_t(statistics, EQUICORRELATED, draws=2000, rng=seed),
        multiplier_max_t(statistics, influence, draws=999, rng=seed),
    ):
        order = np.argsort(-np.abs(statistics))
        assert (np.diff(found.step_down[order]) >= 0).all()
        assert (np.diff(found.single_step[order]) >= 0).all()
        assert (found.step_down <= found.single_step).all()
        assert found.step_down[order[0]] == found.single_step[order[0]]
        assert (found.step_down < found.single_step).any()


def test_p_values_and_critical_value_agree():
    grid = np.linspace(1.5, 3.5, 6)
    found = gaussian_max_t(grid, EQUICORRELATED, draws=40_000, rng=5)
    assert ((found.single_step < 0.05) == (grid > found.critical_value)).all()


def test_multiplier_and_gaussian_agree_on_gaussian_influences():
    influence = np.random.default_rng(6).multivariate_normal(np.zeros(6), EQUICORRELATED, 3000)
    one = gaussian_max_t(np.zeros(6), np.cov(influence.T), draws=50_000, rng=7).critical_value
    for multipliers in ("rademacher", "gaussian"):
        two = multiplier_max_t(np.zeros(6), influence, draws=9_999, multipliers=multipliers, rng=8)
        assert two.critical_value == pytest.approx(one, abs=0.05)


@pytest.mark.parametrize("method", ["gaussian", "multiplier"])
def test_joint_coverage(method):
    rng = np.random.default_rng(9)
    root = np.linalg.cholesky(EQUICORRELATED)
    covered = 0
    for _ in range(300):
        x = rng.standard_normal((200, 6)) @ root.T
        bse = x.std(axis=0) / np.sqrt(200)
        t = x.mean(axis=0) / bse
        if method == "gaussian":
            found = gaussian_max_t(t, np.cov(x.T, bias=True) / 200, draws=2000, rng=rng)
        else:
            found = multiplier_max_t(t, x, draws=999, rng=rng)
        covered += np.abs(t).max() <= found.critical_value
    assert binomtest(covered, 300, 0.95).pvalue > 0.001


def test_step_down_controls_false_rejections_and_gains_power():
    rng = np.random.default_rng(11)
    root = np.linalg.cholesky(EQUICORRELATED)
    means = np.array([6.0, 5.0, 5.0, 2.6, 0.0, 0.0])
    false, gain = 0, 0
    for _ in range(300):
        t = means + root @ rng.standard_normal(6)
        found = gaussian_max_t(t, EQUICORRELATED, draws=2000, rng=rng)
        false += (found.step_down[4:] < 0.05).any()
        gain += int(found.step_down[3] < 0.05) - int(found.single_step[3] < 0.05)
    assert binomtest(false, 300, 0.05, alternative="greater").pvalue > 0.001
    assert gain > 0


def test_bad_arguments():
    with pytest.raises(ArgumentError, match=r"quantity 1 .* has no sampling error"):
        gaussian_max_t([1.0, 1.0], np.diag([1.0, 0.0]))
    with pytest.raises(ArgumentError, match="negative eigenvalue"):
        gaussian_max_t([1.0, 1.0], [[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ArgumentError, match="must have one row"):
        gaussian_max_t([1.0], np.eye(2))
    with pytest.raises(ArgumentError, match="too few"):
        gaussian_max_t([1.0], np.eye(1), draws=10)
    with pytest.raises(ArgumentError, match="one entry for each of the 3 columns of influence=, got 2"):
        multiplier_max_t([1.0, 1.0], np.ones((4, 3)))
