import numpy as np
import pytest
from scipy.stats import binomtest, norm

from privinf.errors import ArgumentError
from privinf.inference import bootstrap as bs

CORRELATED = np.array([[1.0, 0.6, 0.2], [0.6, 2.0, -0.3], [0.2, -0.3, 0.5]])


@pytest.fixture(scope="module")
def influence():
    return np.random.default_rng(0).multivariate_normal(np.zeros(3), CORRELATED, 4000)


@pytest.mark.parametrize("multipliers", ["rademacher", "gaussian"])
def test_multiplier_covariance_is_the_sandwich(influence, multipliers):
    found = bs.multiplier_bootstrap(np.arange(3.0), influence, draws=4000, multipliers=multipliers, rng=1)
    centred = influence - influence.mean(0)
    sandwich = centred.T @ centred / len(influence) ** 2
    # The mean of 4,000 squares has relative sd sqrt(2 / 4000) = .022.
    np.testing.assert_allclose(np.diag(found.cov), np.diag(sandwich), rtol=4 * np.sqrt(2 / 4000))
    np.testing.assert_allclose(found.bse, np.sqrt(np.diag(sandwich)), rtol=1e-12)
    correlation = np.corrcoef(found.draws.T)
    spread = np.sqrt(np.diag(sandwich))
    np.testing.assert_allclose(correlation, sandwich / np.outer(spread, spread), atol=4 / np.sqrt(4000))


@pytest.mark.parametrize("block", [1, 1000, 1 << 22])
def test_rademacher_sums_in_blocks_of_any_size(block, monkeypatch):
    monkeypatch.setattr(bs, "BLOCK", block)
    values = np.column_stack([np.ones(1001), np.arange(1001.0)])
    sums = bs.multiplier_sums(values, draws=500, multipliers="rademacher", rng=np.random.default_rng(3))
    assert set(np.unique(sums[:, 0] % 2)) == {1.0}  # a sum of 1,001 signs is odd
    np.testing.assert_allclose((sums**2).mean(axis=0), (values**2).sum(axis=0), rtol=4 * np.sqrt(2 / 500))
    np.testing.assert_allclose(sums.mean(axis=0), 0.0, atol=4 * np.sqrt((values**2).sum(axis=0) / 500).max())


def test_pivots_are_studentised_by_their_own_replicate():
    influence = np.random.default_rng(0).standard_exponential((30, 1)) - 1.0
    centred = influence - influence.mean()
    found = bs.multiplier_bootstrap([5.0], influence, draws=50, rng=4)
    for draw, pivot in zip(found.draws[:, 0] - 5.0, found.pivots[:, 0], strict=True):
        # w_i^2 = 1, so the replicate's standard error needs only the sum of squares and its own shift.
        spread = np.sqrt((np.mean(centred**2) - draw**2) / 30)
        assert pivot == pytest.approx(draw / spread, rel=1e-9)


def test_groups_share_a_multiplier(influence):
    groups = np.repeat(np.arange(400), 10)
    shared = np.repeat(np.random.default_rng(5).standard_normal((400, 2)), 10, axis=0)
    clustered = bs.multiplier_bootstrap(np.zeros(2), shared, groups=groups, draws=2000, rng=6)
    plain = bs.multiplier_bootstrap(np.zeros(2), shared, draws=2000, rng=6)
    np.testing.assert_allclose(clustered.bse, np.sqrt(10) * plain.bse, rtol=1e-10)
    sums = (shared - shared.mean(0)).reshape(400, 10, 2).sum(axis=1)
    np.testing.assert_allclose(clustered.bse, np.sqrt((sums**2).sum(0)) / 4000, rtol=1e-12)
    with pytest.raises(ArgumentError, match="groups= must have"):
        bs.multiplier_bootstrap(np.zeros(2), shared, groups=groups[:-1])


def pairs_of_least_squares(X, y):
    def resolve(weights):
        gram = X.T @ (weights[:, None] * X)
        beta = np.linalg.solve(gram, X.T @ (weights * y))
        scores = X * (y - X @ beta)[:, None]
        half = np.linalg.solve(gram, (scores * np.sqrt(weights)[:, None]).T)
        return beta, np.sqrt((half**2).sum(axis=1))

    return resolve


def test_pairs_bootstrap_of_least_squares_has_sandwich_errors():
    rng = np.random.default_rng(7)
    X = np.column_stack([np.ones(800), rng.standard_normal(800)])
    y = X @ [1.0, 2.0] + np.abs(X[:, 1]) * rng.standard_normal(800)
    resolve = pairs_of_least_squares(X, y)
    beta, error = resolve(np.ones(800))
    found = bs.pairs_bootstrap(beta, error, resolve, n=800, draws=1500, rng=8)
    np.testing.assert_allclose(np.sqrt(np.diag(found.cov)), error, rtol=0.08)
    assert found.failed == 0
    for kind in ("percentile", "studentized"):
        low, high = found.conf_int(0.1, kind=kind).T
        np.testing.assert_allclose((high - low) / error, 2 * norm.isf(0.05), rtol=0.12)


def test_pairs_bootstrap_refuses_singular_moments():
    with pytest.raises(ArgumentError, match="20 of 20 resamples have no estimate"):
        bs.pairs_bootstrap([0.0], [1.0], pairs_of_least_squares(np.zeros((5, 1)), np.ones(5)), n=5, draws=20)


def test_pairs_bootstrap_refuses_few_records():
    x, y = np.vander(np.arange(8.0) / 8.0, 3), np.arange(8.0) % 3
    with pytest.raises(ArgumentError, match=r"at least 9 units .*for 3 coefficients, and there are 8"):
        bs.pairs_bootstrap(np.zeros(3), np.ones(3), pairs_of_least_squares(x, y), n=8, draws=20)


def test_parametric_bootstrap_keeps_linear_dependence():
    direction = np.array([[1.0, 2.0, -1.0]])
    found = bs.parametric_bootstrap(np.ones(3), direction.T @ direction, draws=500, rng=9)
    np.testing.assert_allclose(found.draws - 1.0, (found.draws[:, :1] - 1.0) * direction, atol=1e-9)
    with pytest.raises(ArgumentError, match="negative eigenvalue"):
        bs.parametric_bootstrap(np.ones(2), np.array([[1.0, 2.0], [2.0, 1.0]]))


@pytest.mark.audit
def test_studentised_intervals_cover_a_skewed_mean_better_than_percentile_ones():
    rng = np.random.default_rng(10)
    hits = {"percentile": 0, "studentized": 0}
    for _ in range(400):
        x = rng.standard_exponential(25)
        found = bs.pairs_bootstrap(
            [x.mean()],
            [x.std() / 5],
            lambda w, x=x: (
                np.array([np.average(x, weights=w)]),
                np.array([np.sqrt(np.average((x - np.average(x, weights=w)) ** 2, weights=w) / 25)]),
            ),
            n=25,
            draws=199,
            rng=rng,
        )
        for kind in hits:
            low, high = found.conf_int(0.05, kind=kind)[0]
            hits[kind] += low <= 1.0 <= high
    assert binomtest(hits["studentized"], 400, 0.95).pvalue > 0.001
    assert binomtest(hits["percentile"], 400, 0.95, alternative="less").pvalue < 0.01


@pytest.mark.audit
@pytest.mark.parametrize("kind", ["studentized", "percentile"])
def test_few_draws_of_the_right_law_cover_at_the_level(kind):
    """39 draws and a new one are in any order: the new one is the smallest or the largest in 2 of 40."""
    rng, hits = np.random.default_rng(11), 0
    for _ in range(4000):
        draws, new = rng.standard_normal((39, 1)), rng.standard_normal()
        low, high = bs.BootstrapDraws(params=np.zeros(1), bse=np.ones(1), draws=draws, pivots=draws).conf_int(
            0.05, kind
        )[0]
        hits += low <= new <= high
    assert binomtest(hits, 4000, 0.95).pvalue > 0.001


def test_bad_arguments(influence):
    found = bs.parametric_bootstrap(np.zeros(1), np.eye(1), draws=19, rng=0)
    with pytest.raises(ArgumentError, match="too few"):
        found.conf_int(0.05)
    with pytest.raises(ArgumentError, match="'percentile', 'studentized'"):
        found.conf_int(0.2, kind="basic")
    with pytest.raises(ArgumentError, match="multipliers"):
        bs.multiplier_bootstrap(np.zeros(3), influence, multipliers="mammen")
    with pytest.raises(ArgumentError, match="draws"):
        bs.multiplier_bootstrap(np.zeros(3), influence, draws=0)
