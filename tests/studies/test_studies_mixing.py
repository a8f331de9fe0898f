"""Paper 5's design, and releases drawn from sums over people against real ones."""

import math

import numpy as np
import pytest
from scipy import stats

import privinf as pi
from privinf.errors import ArgumentError
from privinf.inference.solution import solve
from privinf.mechanisms.mixing.matrix import MixingMatrix
from privinf.mixing.equation import MixedLeastSquares
from studies.mixing import (
    MIXING_PARTIES,
    PeopleSums,
    mixed_rows_limit,
    mixing_design,
    mixing_sums,
    mixing_sums_limit,
    noisy_rows_gram,
)

NOISE = np.append(np.full(10, 4.0), 1.0)
LEAST = 0.01 / 20  # of a p-value: 1% jointly over what one test compares


def table(sample):
    return np.column_stack([np.ones(len(sample.y)), sample.X, sample.y])


def sums_of(sample):
    Z = table(sample)
    return PeopleSums(len(Z), Z.T @ Z, sample.slopes.to_numpy())


def test_design_is_the_papers():
    sample = mixing_design(50_000, 1, residual=0.2)
    assert (sample.X.abs() <= 1.0).all(axis=None)
    assert (sample.slopes.abs() <= 0.1).all()
    rest = sample.y - sample.X.to_numpy() @ sample.slopes.to_numpy()
    assert 0.19 < abs(rest).max() <= 0.2
    assert stats.kstest(rest / 0.4 + 0.5, "uniform").pvalue > 0.001
    np.testing.assert_allclose(np.cov(sample.X.T), np.eye(10) / 3.0, atol=0.01)
    clean = mixing_design(100, 1)
    np.testing.assert_allclose(clean.y, clean.X.to_numpy() @ clean.slopes.to_numpy(), atol=1e-15)
    held = [item for items in MIXING_PARTIES.values() for item in items]
    assert sorted(map(len, MIXING_PARTIES.values())) == [1, 2, 2, 2, 2, 2]
    assert held == [*range(10), "y"]


@pytest.mark.parametrize("n", [1, 500, 8192, 20_000])
def test_sums_are_those_of_the_design(n):
    """The same random numbers, drawn as a table and drawn block by block."""
    sample, sums = mixing_design(n, 3, residual=0.2), mixing_sums(n, 3, residual=0.2)
    np.testing.assert_array_equal(sums.slopes, sample.slopes)
    np.testing.assert_allclose(sums.gram, sums_of(sample).gram, rtol=1e-9, atol=1e-9 * n)


def test_sums_in_the_limit_have_the_mean_and_covariance_of_the_design():
    """Of all sums of (1, x, e) over 400 people: e is y with slopes taken out."""
    draws, n, places = 1_500, 400, np.triu_indices(12)
    exact, limit = np.empty((draws, 78)), np.empty((draws, 78))
    for rows, draw in ((exact, mixing_sums), (limit, mixing_sums_limit)):
        for i in range(draws):
            sums = draw(n, i, residual=0.5)
            lift = np.eye(12)
            lift[-1, 1:-1] = -sums.slopes
            rows[i] = (lift @ sums.gram @ lift.T)[places]
    sd = exact.std(axis=0) + 1e-9
    assert (abs(exact.mean(axis=0) - limit.mean(axis=0)) / sd).max() < 5.0 * math.sqrt(2.0 / draws)
    assert (limit.std(axis=0)[1:] / sd[1:]).min() > 0.9
    assert (limit.std(axis=0)[1:] / sd[1:]).max() < 1.1
    assert abs(np.corrcoef(limit[:, 1:].T) - np.eye(77)).max() < 0.15
    assert abs(np.corrcoef(exact[:, 1:].T) - np.eye(77)).max() < 0.15
    assert (limit[:, 0] == n).all()


def released(n, rng, kind, *, k, share, noise):
    """Rows of real mixing with Gaussian noise, for one table."""
    sample = mixing_design(n, rng, residual=0.2)
    matrix = MixingMatrix(kind, n=n, k=k, seed=int(rng.integers(2**63)))
    mixer = matrix.mixer(12)
    mixer.update(table(sample), 0)
    rows = math.sqrt(1.0 - share) * matrix.scale * mixer.total()
    top = math.sqrt(share) * table(sample).sum(axis=0)
    rows[:, 1:] += np.sqrt(noise) * rng.standard_normal((k, 11))
    top[1:] += np.sqrt(noise) * rng.standard_normal(11)
    return rows, top, sample.slopes.to_numpy()


def drawn(n, rng, *, k, share, noise):
    sums = mixing_sums(n, rng, residual=0.2)
    found = mixed_rows_limit(sums, k=k, noise=noise, share=share, rng=rng)
    return found.rows, found.ones_row, sums.slopes


def summaries(rows, top, slopes, *, n, share, noise):
    """What inference makes of a release, and raw moments of it."""
    system = MixedLeastSquares(
        rows[:, :-1],
        rows[:, -1],
        np.append(0.0, noise[:-1]),
        y_noise=noise[-1],
        n=n,
        share=share,
        constant=0,
        ones_row=top[:-1],
        ones_response=top[-1],
    )
    error = np.linalg.solve(system.A, system.g) - np.append(0.0, slopes)
    test = system.exact_score_test(np.append(0.0, slopes), np.zeros(len(rows)))
    return [
        error[0],
        error[1],
        np.linalg.norm(error[1:]),
        test[1],
        np.linalg.eigvalsh(system.A)[0],
        rows[:, 0] @ rows[:, 0],
        rows[:, 0] @ rows[:, -1],
        (rows[:, 1] ** 4).mean(),
        top[-1],
    ]


@pytest.mark.audit
@pytest.mark.parametrize("kind", ["signs", "hadamard", "countsketch"])
def test_limit_has_the_law_of_real_mixing(kind):
    n, k, share, reps = 10_000, 40, 0.05, 200
    rng = np.random.default_rng(8)
    options = {"k": k, "share": share, "noise": NOISE}
    after = {"n": n, "share": share, "noise": NOISE}
    real = np.array([summaries(*released(n, rng, kind, **options), **after) for _ in range(reps)])
    limit = np.array([summaries(*drawn(n, rng, **options), **after) for _ in range(reps)])
    same = [stats.ks_2samp(a, b).pvalue for a, b in zip(real.T, limit.T, strict=True)]
    assert min(same) > LEAST
    wrong = np.array([summaries(*drawn(n, rng, k=k, share=0.3, noise=NOISE), **after) for _ in range(100)])
    assert stats.ks_2samp(real[:, 5], wrong[:, 5]).pvalue < LEAST


@pytest.mark.audit
def test_limit_has_the_law_of_the_public_door():
    """RMGMOLS on 10,000 people and the limit with its plan's noise, rows and share: the same errors."""
    n, reps, rng = 10_000, 50, np.random.default_rng(4)
    names, real, limit = [f"x{j}" for j in range(1, 11)], [], []
    for _ in range(reps):
        sample = mixing_design(n, rng, residual=0.2)
        model = pi.RMGMOLS(
            sample.y, sample.X, parties=MIXING_PARTIES, bounds=[(-1, 1)] * 10, y_bounds=(-1, 1), k=100
        )
        r = model.fit(epsilon=10.0, delta=1e-5, rng=rng)
        error = r.params[names].to_numpy() - sample.slopes.to_numpy()
        real.append([np.linalg.norm(error), r.params["const"], r.bse["x1"]])
        noise = np.append(np.asarray(r.release.noise_model["noise"])[1:], r.release.noise_model["y_noise"])
        share = r.release.noise_model["share"]
        rows, top, slopes = drawn(n, rng, k=100, share=share, noise=noise)
        system = MixedLeastSquares(
            rows[:, :-1],
            rows[:, -1],
            np.append(0.0, noise[:-1]),
            y_noise=noise[-1],
            n=n,
            share=share,
            constant=0,
            ones_row=top[:-1],
            ones_response=top[-1],
        )
        solution = solve(system)
        limit.append(
            [np.linalg.norm(solution.params[1:] - slopes), solution.params[0], math.sqrt(solution.cov[1, 1])]
        )
    for a, b in zip(np.array(real).T, np.array(limit).T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > LEAST


@pytest.mark.audit
@pytest.mark.parametrize("residual", [0.0, 0.2])
def test_gram_of_noisy_rows_has_its_law(residual):
    """Entries, smallest eigenvalue and de-biased slope: drawn from the sums, and from all rows."""
    n, reps, rng = 300, 600, np.random.default_rng(6)
    sample = mixing_design(n, rng, residual=residual)
    sums, D = sums_of(sample), table(sample)[:, 1:]

    def marks(gram):
        slopes = np.linalg.solve(gram[:-1, :-1], gram[:-1, -1])
        return [gram[0, 0], gram[0, 1], gram[2, -1], gram[-1, -1], np.linalg.eigvalsh(gram)[0], slopes[4]]

    noisy = (D + np.sqrt(NOISE) * rng.standard_normal(D.shape) for _ in range(reps))
    real = np.array([marks(rows.T @ rows) for rows in noisy])
    fast = np.array([marks(noisy_rows_gram(sums, noise=NOISE, rng=rng)) for _ in range(reps)])
    for a, b in zip(real.T, fast.T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > LEAST
    expected = D.T @ D + n * np.diag(NOISE)
    draws = np.array([noisy_rows_gram(sums, noise=NOISE, rng=rng) for _ in range(4000)])
    assert (abs(draws.mean(axis=0) - expected) < 5 * draws.std(axis=0) / math.sqrt(4000)).all()


def test_without_noise_the_gram_is_that_of_the_rows():
    sums = mixing_sums(500, 2)
    np.testing.assert_allclose(
        noisy_rows_gram(sums, noise=np.zeros(11), rng=0), sums.gram[1:, 1:], rtol=1e-9, atol=1e-9
    )


@pytest.mark.audit
def test_moments_of_the_limit():
    """Covariance (1 - a) Z'Z/k + noise a row; the all-ones row is sqrt(a) Z'1 + noise; c has no noise."""
    rng, share, reps = np.random.default_rng(9), 0.3, 4000
    sums = mixing_sums(400, rng, residual=0.2)
    drawn = [mixed_rows_limit(sums, k=4, noise=NOISE, share=share, rng=rng) for _ in range(reps)]
    products = np.array([np.outer(one.rows[2], one.rows[2]) for one in drawn])
    expected = (1 - share) * sums.gram / 4 + np.diag(np.append(0.0, NOISE))
    assert (abs(products.mean(axis=0) - expected) < 5 * products.std(axis=0) / math.sqrt(reps)).all()
    top = np.array([one.ones_row for one in drawn])
    scale = np.append(0.0, np.sqrt(NOISE))
    assert (
        abs(top.mean(axis=0) - math.sqrt(share) * sums.gram[0]) <= 1e-9 + 5 * scale / math.sqrt(reps)
    ).all()
    np.testing.assert_allclose(top.std(axis=0)[1:], scale[1:], rtol=5 / math.sqrt(2 * reps))


def test_seeded_draws_repeat():
    sums = mixing_sums(500, 2)
    one, two = (mixed_rows_limit(sums, k=5, noise=NOISE, share=0.1, rng=3) for _ in range(2))
    np.testing.assert_array_equal(one.rows, two.rows)
    assert one.ones_row[0] == pytest.approx(math.sqrt(0.1) * 500)


@pytest.mark.parametrize("noise", [np.ones(10), -np.ones(11), np.ones((11, 1))])
def test_bad_noise_is_refused(noise):
    sums = mixing_sums(500, 2)
    with pytest.raises(ArgumentError):
        mixed_rows_limit(sums, k=5, noise=noise)
    with pytest.raises(ArgumentError):
        noisy_rows_gram(sums, noise=noise)


def test_other_bad_arguments_are_refused():
    with pytest.raises(ArgumentError):
        mixing_design(0)
    with pytest.raises(ArgumentError):
        mixing_sums(10, residual=-0.1)
    with pytest.raises(ArgumentError):
        mixed_rows_limit(mixing_sums(500, 2), k=5, noise=NOISE, share=1.0)
    with pytest.raises(ArgumentError, match="too few"):
        noisy_rows_gram(mixing_sums(11, 2), noise=NOISE)
