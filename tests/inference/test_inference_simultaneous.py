import numpy as np
import pytest
from scipy.stats import binomtest, norm
from statsmodels.stats.multitest import multipletests

from privinf.errors import ArgumentError
from privinf.inference.intervals import moved_tails
from privinf.inference.simultaneous import drawn_max_t, gaussian_max_t, multiplier_max_t

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


# ---- biases


def biased_pvalues(statistics, bias, df=np.inf):
    return np.minimum(moved_tails(np.abs(statistics), bias, df), 1.0)


@pytest.mark.parametrize("df", [np.inf, 7.0])
def test_one_quantity_with_a_bias_is_exactly_pointwise(df):
    bias = np.array([1.3])
    found = gaussian_max_t([2.4], [[4.0]], draws=200, df=df, bias=bias, rng=0)
    expected = biased_pvalues(np.array([2.4]), bias, df)
    assert found.single_step == pytest.approx(expected, rel=1e-12)
    assert found.step_down == pytest.approx(expected, rel=1e-12)
    assert found.level == pytest.approx(0.05, rel=1e-12)


@pytest.mark.parametrize("df", [np.inf, 5.0])
@pytest.mark.parametrize("seed", range(4))
def test_with_a_bias_single_step_is_at_most_bonferroni_and_step_down_at_most_holm(seed, df):
    rng = np.random.default_rng(seed)
    influence = rng.standard_normal((40, 6)) @ rng.standard_normal((6, 6))
    bias = rng.exponential(1.0, 6) * (rng.random(6) < 0.7)
    statistics = 3.0 * rng.standard_normal(6)
    pointwise = biased_pvalues(statistics, bias, df)
    found = [gaussian_max_t(statistics, np.cov(influence.T), draws=2_000, df=df, bias=bias, rng=seed)]
    if np.isinf(df):
        found.append(multiplier_max_t(statistics, influence, draws=999, bias=bias, rng=seed))
        found.append(drawn_max_t(statistics, rng.standard_normal((999, 6)), bias=bias))
    for joint in found:
        assert (joint.single_step <= multipletests(pointwise, method="bonferroni")[1]).all()
        assert (joint.step_down <= multipletests(pointwise, method="holm")[1] + 1e-15).all()
        assert (pointwise <= joint.step_down).all()
        assert (joint.step_down <= joint.single_step).all()
        assert 0.05 / 6 <= joint.level <= 0.05
        rejected = joint.single_step <= 0.05
        assert (rejected == (pointwise <= joint.level)).all()


def test_a_bias_of_nothing_changes_nothing_but_the_bound():
    statistics = np.linspace(0.5, 3.0, 6)
    plain = gaussian_max_t(statistics, EQUICORRELATED, draws=50_000, rng=3)
    zero = gaussian_max_t(statistics, EQUICORRELATED, draws=50_000, bias=np.zeros(6), rng=3)
    np.testing.assert_allclose(zero.single_step, plain.single_step, atol=1e-4)
    np.testing.assert_allclose(zero.step_down, plain.step_down, atol=1e-4)
    assert zero.critical_value == pytest.approx(plain.critical_value, abs=1e-3)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.98])
def test_with_a_bias_the_joint_level_holds_at_its_worst(correlation):
    """The chance of a false rejection is largest at a corner of the biases; all corners are tried."""
    bias = np.array([0.0, 0.4, 1.0, 3.0])
    cov = (1.0 - correlation) * np.eye(4) + correlation
    level = gaussian_max_t(np.zeros(4), cov, draws=100_000, bias=bias, rng=1).level
    z = np.random.default_rng(2).standard_normal((100_000, 4)) @ np.linalg.cholesky(cov).T
    rates = [
        (biased_pvalues(z + signs * bias, bias) <= level).any(axis=1).mean()
        for signs in np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T[:, [0, 0, 1, 2]]
    ]
    assert max(rates) <= 0.05 + 4.0 * np.sqrt(0.0475 * 2e-5)
    assert max(rates) > 0.025
