"""Tables and correlations: scipy's without noise, honest with it."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.stats.association import PairModel, TableModel, cramers_v, table_model

RNG = np.random.default_rng(6)
A = RNG.choice(["p", "q", "r"], 600, p=[0.5, 0.3, 0.2])
B = np.where(RNG.uniform(size=600) < 0.15, A == "p", RNG.uniform(size=600) < 0.4)
LEVELS = (["p", "q", "r"], [False, True])
U = RNG.normal(size=500)
V = 0.4 * U + RNG.normal(size=500)
BOUNDS = ((-6, 6), (-7, 7))


def test_a_table_without_noise_is_pearsons():
    r = pi.stats.chi2_contingency(A, B, levels=LEVELS, epsilon=math.inf)
    table = pd.crosstab(A, B)
    theirs = scipy_stats.chi2_contingency(table, correction=False)
    assert r.statistic == pytest.approx(theirs.statistic)
    assert r.df == theirs.dof
    assert r.pvalue == pytest.approx(theirs.pvalue, abs=0.01)
    assert r.effects["Cramer's V"] == pytest.approx(scipy_stats.contingency.association(table))
    assert r.table["estimate"].to_numpy() == pytest.approx(table.to_numpy().ravel() / 600)


@pytest.mark.audit
@pytest.mark.parametrize(
    ("rows", "columns"), [([0.5, 0.5], [0.3, 0.7]), ([0.6, 0.3, 0.1], [0.55, 0.4, 0.04, 0.01])]
)
def test_made_up_tables_hold_their_level(rows, columns):
    """At the null, 2,000 releases with noise that swamps a margin, side by side: 99.9% limits."""
    rng, n, sd = np.random.default_rng(8), 500, math.sqrt(2.0) / 0.237
    cells = rng.multinomial(n, np.outer(rows, columns).ravel(), size=2000)
    law = TableModel.from_counts((cells + rng.normal(0, sd, cells.shape)).reshape(2000, len(rows), -1), n, sd)
    rank = 1 + (law.simulate(99).independence()[0] >= law.independence()[0]).sum(axis=0)
    assert 0.034 <= np.mean(rank <= 5) <= 0.066


@pytest.mark.parametrize("shape", [(2, 2), (2, 5), (4, 3), (3, 3)])
@pytest.mark.parametrize("sd", [0.0, 6.0])
def test_the_statistic_is_the_quadratic_form_that_is_stated(shape, sd):
    rng, n = np.random.default_rng(1), 300
    X = rng.multinomial(n, np.full(math.prod(shape), 1.0 / math.prod(shape))).reshape(shape)
    X = X + sd * rng.standard_normal(shape)
    if sd > 0.0:
        X[-1] -= 100.0  # a margin that is raised
    law = TableModel.from_counts(X, n, sd)
    p, q = law.margins()
    E = (law.X - n * np.outer(p, q)).ravel()
    M = [np.eye(len(one)) - np.outer(one, np.ones(len(one))) for one in (p, q)]
    multinomial = np.kron(*(np.diag(one) - np.outer(one, one) for one in (p, q)))
    V = np.linalg.pinv(n * multinomial + sd**2 * np.kron(M[0] @ M[0].T, M[1] @ M[1].T), rcond=1e-10)
    T, sign = law.independence()
    pearson = float(law.squared_association())
    assert pytest.approx(E @ V @ E, rel=1e-6) == T
    assert sign == np.sign(E[0])
    inverse = np.linalg.pinv(multinomial, rcond=1e-10)
    noise = sd**2 * np.trace(inverse @ np.kron(M[0] @ M[0].T, M[1] @ M[1].T))
    assert pearson == pytest.approx((E @ inverse @ E - noise) / n**2, rel=1e-6)


def v_of(shares):
    independent = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    return math.sqrt(((shares - independent) ** 2 / independent).sum() / (min(shares.shape) - 1))


ASSOCIATED = 0.85 * np.outer([0.6, 0.35, 0.05], [0.5, 0.3, 0.2]) + 0.15 * np.diag([0.6, 0.35, 0.05])


@pytest.mark.parametrize("sd", [0.0, 6.0, 14.0])
def test_intervals_of_cramers_v_cover_it(sd):
    """40 tables with the noise of no budget limit, epsilon 1 and epsilon 0.5; 99.9% limit."""
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(40):
        X = rng.multinomial(2000, ASSOCIATED.ravel()).reshape(3, 3) + sd * rng.standard_normal((3, 3))
        size, (low, high) = cramers_v(TableModel.from_counts(X, 2000, sd), 0.95)
        assert 0.0 <= low <= size <= high <= 1.0
        covered += low <= v_of(ASSOCIATED) <= high
    assert covered >= 33


@pytest.mark.audit
@pytest.mark.parametrize("sd", [0.0, 6.0, 14.0])
@pytest.mark.parametrize("rows", [2, 3, 5])
def test_coverage_of_cramers_v(rows, sd):
    shares = {
        2: np.array([[0.48, 0.02], [0.465, 0.035]]),
        3: ASSOCIATED,
        5: np.full((5, 4), 0.04) + 0.05 * np.eye(5, 4),
    }[rows]
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(150):
        X = rng.multinomial(2000, shares.ravel()).reshape(shares.shape)
        X = X + sd * rng.standard_normal(shares.shape)
        low, high = cramers_v(TableModel.from_counts(X, 2000, sd), 0.95)[1]
        covered += low <= v_of(shares) <= high
    assert covered / 150 >= 0.88


def test_intervals_of_cramers_v_at_the_ends():
    rng = np.random.default_rng(6)
    independent = rng.multinomial(2000, np.full(9, 1 / 9)).reshape(3, 3) + 6.0 * rng.standard_normal((3, 3))
    assert cramers_v(TableModel.from_counts(independent, 2000, 6.0), 0.95)[1][0] == 0.0
    perfect = np.diag([800.0, 600.0, 600.0]) + 6.0 * rng.standard_normal((3, 3))
    size, (low, high) = cramers_v(TableModel.from_counts(perfect, 2000, 6.0), 0.95)
    assert high == 1.0
    assert 0.9 < low <= size
    drowned = TableModel.from_counts(300.0 * rng.standard_normal((3, 3)), 200, 300.0)
    low, high = cramers_v(drowned, 0.95)[1]
    assert (low, high) == (0.0, 1.0)
    level = TableModel.from_counts(np.full((2, 2), 500.0), 2000, 0.0)
    assert cramers_v(level, 0.95) == (0.0, (0.0, 1.0))


def test_cramers_v_has_its_interval_in_every_result():
    r = pi.stats.chi2_contingency(A, B, levels=LEVELS, epsilon=2.0, delta=1e-6, rng=0)
    low, high = r.effect_intervals["Cramer's V"]
    assert low <= r.effects["Cramer's V"] <= high
    assert "interval: not available" not in " ".join(str(r).split())
    again = pi.stats.chi2_contingency(A, B, levels=LEVELS, epsilon=2.0, delta=1e-6, rng=0)
    assert again.effect_intervals["Cramer's V"] == (low, high)
    missing = pi.stats.chi2_contingency(
        "a",
        "b",
        {"a": A, "b": B},
        schema=pi.Schema({"a": LEVELS[0], "b": LEVELS[1]}),
        missing="drop",
        mu=1.0,
        rng=0,
    )
    low, high = missing.effect_intervals["Cramer's V"]
    assert 0.0 <= low <= missing.effects["Cramer's V"] <= high <= 1.0


def test_tables_side_by_side_are_each_what_one_alone_is():
    rng, n, sd = np.random.default_rng(2), 400, 4.0
    X = 400 / 6 + 12.0 * rng.standard_normal((5, 2, 3))
    law = TableModel.from_counts(X, n, sd)
    for at, one in enumerate(X):
        alone, beside = TableModel.from_counts(one, n, sd), TableModel.from_counts(one[None], n, sd)
        assert law.independence()[0][at] == pytest.approx(alone.independence()[0], rel=1e-12)
        assert np.array_equal(alone.simulate(50).X, beside.simulate(50).X[:, 0])
    r = pi.stats.chi2_contingency(A, B, levels=LEVELS, mu=0.5, rng=0)
    told = table_model(r.release)
    many = TableModel.from_counts(told.X[None], told.n, told.sd)
    above = (many.simulate().independence()[0] >= many.independence()[0]).sum(axis=0)
    assert r.pvalue == pytest.approx((1 + above[0]) / 10_000, rel=1e-12)
    made = law.simulate(50)
    assert made.X.shape == (50, 5, 2, 3)
    assert len(np.unique(made.X)) == made.X.size


def test_the_covariance_of_a_table_is_the_one_stated():
    rng, n, sd, draws = np.random.default_rng(0), 2000, 9.0, 4000
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.4])
    cells = rng.multinomial(n, np.outer(p, q).ravel(), size=draws) + rng.normal(0, sd, (draws, 6))
    T = TableModel.from_counts(cells.reshape(draws, 3, 2), n, sd).independence()[0]
    assert T.mean() == pytest.approx(2.0, abs=0.12)


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_a_correlation_without_noise_is_pearsons(alternative):
    r = pi.stats.pearsonr(U, V, bounds=BOUNDS, alternative=alternative, epsilon=math.inf)
    theirs = scipy_stats.pearsonr(U, V, alternative=alternative)
    assert r.estimate == pytest.approx(theirs.statistic)
    assert r.pvalue == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    if alternative == "two-sided":
        assert r.rows[0][3:] == pytest.approx(tuple(theirs.confidence_interval()), abs=0.01)


@pytest.mark.audit
def test_size_and_coverage_of_correlations():
    rng, n, draws, mu = np.random.default_rng(3), 2000, 400, 0.237
    scale = 2.0 * math.sqrt(1.49) / mu
    sds = np.array([scale / 0.7, scale / 0.7, scale / 1.35, scale / 1.35, scale])
    for rho in (0.0, 0.5):
        u = 0.3 * rng.standard_normal((draws, n))
        v = rho * u + math.sqrt(1 - rho**2) * 0.3 * rng.standard_normal((draws, n))
        u, v = np.clip(u, -1, 1), np.clip(v, -1, 1)
        sums = np.stack([x.sum(axis=1) for x in (u, v, u * u, v * v, u * v)], axis=-1)
        noisy = sums + sds * rng.standard_normal(sums.shape)
        laws = [PairModel.from_sums(one, n, *sds[[0, 2, 4]]) for one in noisy]
        ends = np.array([law.interval(0.95) for law in laws])
        assert 0.92 <= np.mean((ends[:, 0] <= rho) & (rho <= ends[:, 1])) <= 0.98
        if rho == 0.0:
            rejected = [2 * scipy_stats.t.sf(abs(law.zero()), n - 2) < 0.05 for law in laws]
            assert 0.02 <= np.mean(rejected) <= 0.08


def test_a_hidden_variance_is_said():
    r = pi.stats.pearsonr(U, V, bounds=((-600, 600), (-700, 700)), mu=0.5, rng=0)
    assert r.rows[0][3:] == (-1.0, 1.0)
    assert "At least one of the two variances cannot be distinguished" in str(r.summary())


def test_columns_of_tables_and_what_is_wrong():
    frame = pd.DataFrame({"a": A, "b": B.astype(float), "u": np.resize(U, 600), "v": np.resize(V, 600)})
    schema = pi.Schema({"a": ["p", "q", "r"], "b": (0, 1), "u": (-6, 6), "v": (-7, 7)})
    table = pi.stats.chi2_contingency("a", "b", data=frame, schema=schema, epsilon=1.0, delta=1e-6, rng=0)
    assert list(table.table.index)[:2] == ["p, 0", "p, 1"]
    ledger = pi.Ledger()
    both = pi.stats.pearsonr(
        "u", "v", data=frame, schema=schema, epsilon=1.0, delta=1e-6, ledger=ledger, rng=0
    )
    assert both.release.noise == "gaussian"
    assert both.privacy.epsilon(1e-6) == pytest.approx(1.0)
    with pytest.raises(SchemaError, match="counts and groups need levels"):
        pi.stats.chi2_contingency("a", "u", data=frame, schema=schema, mu=0.1, ledger=ledger)
    with pytest.raises(ArgumentError, match="pair"):
        pi.stats.pearsonr(U, V, bounds=((0, 1),), mu=0.1, ledger=ledger)
    with pytest.raises(NotAvailableError, match="a budget in epsilon="):
        pi.stats.pearsonr(U, V, bounds=BOUNDS, mu=0.1, noise="laplace", ledger=ledger)
    assert len(ledger) == 1


def test_a_correlation_asked_in_epsilon_takes_laplace_noise_and_is_twice_as_sharp():
    words = {"bounds": BOUNDS, "epsilon": 4.0, "delta": 1e-6}
    widths = {
        noise: np.median(
            [
                np.ptp(pi.stats.pearsonr(U, V, noise=noise, rng=seed, **words).rows[0][3:])
                for seed in range(15)
            ]
        )
        for noise in ("auto", "gaussian")
    }
    assert pi.stats.pearsonr(U, V, **words, rng=0).release.noise == "laplace"
    assert widths["auto"] < 0.75 * widths["gaussian"]


@pytest.mark.audit
def test_size_and_coverage_of_correlations_with_laplace_noise():
    """1,500 releases of 400 pairs at epsilon 4: rejected at most 7% of none, covered at least 93%."""
    rng, n, scale = np.random.default_rng(0), 400, 2.88 / 4.0
    sds = math.sqrt(2.0) * scale / np.array([0.4, 0.4, 0.5, 0.5, 1.0])
    u = np.clip(rng.standard_normal((1500, n, 2)) / 4.0, -1.0, 1.0)
    clean = np.concatenate([u.sum(axis=1), (u * u).sum(axis=1), u.prod(axis=2).sum(axis=1)[:, None]], axis=1)
    noisy = clean + rng.laplace(size=clean.shape) * sds / math.sqrt(2.0)
    found = [PairModel.from_sums(one, n, *sds[[0, 2, 4]], laplace=True) for one in noisy]
    assert np.mean([law.pvalue("two-sided") < 0.05 for law in found]) <= 0.07
    ends = np.array([law.interval(0.95) for law in found[:300]])
    assert np.mean((ends[:, 0] <= 0.0) & (ends[:, 1] >= 0.0)) >= 0.93
