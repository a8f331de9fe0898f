"""A sparse mean from one sign of each machine: inversion, intervals, saturation, refusals."""

import math

import numpy as np
import pytest
from scipy.stats import beta as beta_law
from scipy.stats import binom, norm

import privinf as pi
from privinf.errors import AlignmentError, ArgumentError, SchemaError, WeakIdentificationWarning
from privinf.lasso.sparse_mean import (
    SignCounts,
    exact_limits,
    expected_square,
    minimax_rate,
    sign_estimate,
    sparse_mean,
)
from studies.simulation import binomial_limits

pytestmark = pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
LIE = 1.0 / (1.0 + math.e)


def counts_of(mu, m, sizes, rng, lie=LIE):
    """Draw answers straight from their law: row means are N(mu, 1/n)."""
    p = len(mu)
    coordinates = rng.permutation(np.arange(m) % p)
    n = np.asarray(sizes)[rng.integers(len(sizes), size=m)]
    signs = rng.standard_normal(m) < np.sqrt(n) * mu[coordinates]
    answers = signs ^ (rng.random(m) < lie)
    return SignCounts.from_answers(coordinates, answers.astype(np.int64), n, p, lie)


@pytest.mark.parametrize("sizes", [[4], [1, 4, 25]])
def test_inverse_is_the_inverse(sizes):
    counts = counts_of(np.zeros(30), 900, sizes, np.random.default_rng(0))
    mu = np.linspace(-0.8, 0.8, 30)
    curve = (counts.weights * norm.cdf(mu[:, None] * np.sqrt(counts.sizes))).sum(axis=1)
    np.testing.assert_allclose(counts.inverse(curve), mu, atol=1e-10)
    step = 1e-6
    ahead = (counts.weights * norm.cdf((mu + step)[:, None] * np.sqrt(counts.sizes))).sum(axis=1)
    np.testing.assert_allclose(counts.slope(mu), (ahead - curve) / step, rtol=1e-5)
    for end, limit in [(0.0, -np.inf), (-0.3, -np.inf), (1.0, np.inf), (1.4, np.inf)]:
        assert (counts.inverse(np.full(30, end)) == limit).all()


def test_formula_of_one_size():
    counts = SignCounts.from_answers(np.zeros(100, int), np.repeat([1, 0], [58, 42]), np.full(100, 9), 1, LIE)
    q = (2 * 0.58 - 1) / (1 - 2 * LIE)
    mu = norm.ppf((1 + q) / 2) / 3
    found = sign_estimate(counts)
    assert found.params[0] == pytest.approx(mu)
    derivative = (1 - 2 * LIE) * 3 * norm.pdf(3 * mu)
    assert found.bse[0] == pytest.approx(math.sqrt(0.58 * 0.42 / 100) / derivative)
    low, high = exact_limits(counts, 0.1)[0]
    ends = [beta_law.ppf(0.05, 58, 43), beta_law.ppf(0.95, 59, 42)]
    expected = [norm.ppf((end - LIE) / (1 - 2 * LIE)) / 3 for end in ends]
    np.testing.assert_allclose([low, high], expected, rtol=1e-9)


@pytest.mark.audit
@pytest.mark.parametrize("sizes", [[4], [1, 16]])
@pytest.mark.parametrize("machines_each", [20, 400])
def test_exact_intervals_cover_at_least_their_level(sizes, machines_each):
    """From null to far beyond saturation; never below the level, by binomial limits over all cells."""
    mu = np.array([0.0, 0.1, -0.3, 0.6, -1.0, 2.0])
    rng, runs = np.random.default_rng(1), 600
    hits = np.zeros((runs, len(mu)))
    for run in range(runs):
        limits = exact_limits(counts_of(mu, machines_each * len(mu), sizes, rng), 0.05)
        hits[run] = (limits[:, 0] <= mu) & (mu <= limits[:, 1])
    assert (hits.mean(axis=0) >= binomial_limits(0.95, runs, 1 - 0.01 / len(mu))[0]).all()
    assert hits[:, :3].mean() < 0.99  # and they are not wide for nothing


def test_exact_coverage_summed_over_the_binomial():
    """Without simulation: the probability of covering, for every mean, is at least the level."""
    asked = 60
    counts = SignCounts.from_answers(
        np.repeat(np.arange(asked + 1), asked),
        np.concatenate([np.arange(asked) < hits for hits in range(asked + 1)]).astype(np.int64),
        np.full(asked * (asked + 1), 4),
        asked + 1,
        LIE,
    )
    limits = exact_limits(counts, 0.05)
    for mu in np.linspace(-1.5, 1.5, 61):
        answer = LIE + (1 - 2 * LIE) * norm.cdf(2 * mu)
        covering = (limits[:, 0] <= mu) & (mu <= limits[:, 1])
        assert binom.pmf(np.arange(asked + 1), asked, answer)[covering].sum() >= 0.95


@pytest.mark.audit
@pytest.mark.parametrize("sizes", [[4], [2, 9]])
def test_delta_intervals_and_their_errors_with_many_machines(sizes):
    mu = np.array([0.0, 0.1, -0.2, 0.3])
    rng, runs = np.random.default_rng(2), 800
    estimates = [sign_estimate(counts_of(mu, 4 * 3000, sizes, rng)) for _ in range(runs)]
    params = np.array([one.params for one in estimates])
    bse = np.array([one.bse for one in estimates])
    hits = np.abs(params - mu) <= 1.96 * bse
    low, high = binomial_limits(0.95, hits.size, 0.999)
    assert low <= hits.mean() <= high
    spread = norm.isf(1e-4) * math.sqrt(0.5 / runs)
    np.testing.assert_allclose(params.std(axis=0) / bse.mean(axis=0), 1.0, atol=spread)


def design(seed, *, m=4000, n=4, p=10, s=3, size=0.5):
    mu = np.zeros(p)
    mu[:s] = size
    return mu, np.random.default_rng(seed).normal(mu, 1.0, (m, n, p))


def test_through_the_door():
    mu, rows = design(0)
    found = sparse_mean(rows, epsilon=1.0, sparsity=3, rng=0, public_seed=0)
    assert found.selected.tolist() == [0, 1, 2]
    assert found.sparse_params[3:].eq(0.0).all()
    np.testing.assert_array_equal(found.sparse_params[:3], found.params[:3])
    limits = found.conf_int(0.001)
    assert ((limits[0] <= mu) & (mu <= limits[1])).all()
    assert found.privacy.epsilon(1e-9) == pytest.approx(1.0)
    assert (found.privacy.unit, found.privacy.trust) == ("machine", "local")
    assert found.nobs == 16_000
    assert found.asked.sum() == 4000
    assert found.rate == minimax_rate(n=4, machines=4000, p=10, sparsity=3, epsilon=1.0)
    assert found.rate == pytest.approx(min(3 / 4, 3 * 10 / 16_000))
    frame = found.summary_frame()
    assert frame["selected"].tolist() == [True] * 3 + [False] * 7
    delta = found.conf_int(0.05, "delta")
    np.testing.assert_allclose((delta[1] - delta[0]) / 2, norm.isf(0.025) * found.bse)


def test_scale_names_and_mappings():
    _, rows = design(1, p=4)
    plain = sparse_mean(rows, epsilon=2.0, sparsity=1, rng=0, public_seed=0)
    machines = {f"m{k}": 10.0 * one for k, one in enumerate(rows)}
    scaled = sparse_mean(
        machines, epsilon=2.0, sparsity=1, scale=10.0, names=list("abcd"), rng=0, public_seed=0
    )
    np.testing.assert_allclose(scaled.params, 10.0 * plain.params.to_numpy())
    np.testing.assert_allclose(scaled.conf_int(), 10.0 * plain.conf_int().to_numpy())
    assert scaled.rate == pytest.approx(100.0 * plain.rate)
    assert scaled.params.index.tolist() == list("abcd")


@pytest.mark.audit
@pytest.mark.parametrize("size", [0.0, 0.5])
def test_joint_intervals_cover_the_selected_as_well(size):
    """Marginal intervals of the largest of null coordinates fail more often than 5%; joint ones do not."""
    runs, marginal, joint = 150, [], []
    for seed in range(runs):
        mu, rows = design(seed, m=2000, n=1, p=40, s=2, size=size)
        found = sparse_mean(rows, epsilon=3.0, sparsity=2, rng=seed, public_seed=seed)
        for hits, limits in ((marginal, found.conf_int()), (joint, found.conf_int(joint=True))):
            inside = (limits[0] <= mu) & (mu <= limits[1])
            hits.append(inside[found.selected])
    least = binomial_limits(0.95, runs, 0.999)[0]
    assert np.mean([hit.all() for hit in joint]) >= least
    if size == 0.0:
        assert np.mean(marginal) < binomial_limits(0.95, 2 * runs, 0.999)[0]


@pytest.mark.audit
def test_error_is_that_of_the_formula_and_linear_in_p():
    """Squared error of null coordinates, over s of them, against s (p/m) coth^2(eps/2) pi/(2 n)."""
    for p in (5, 20):
        errors = []
        for seed in range(40):
            _, rows = design(seed, m=3000, n=2, p=p, s=0)
            found = sparse_mean(rows, epsilon=1.0, sparsity=1, rng=seed, public_seed=seed)
            errors.append(found.params.to_numpy() ** 2)
        errors = np.ravel(errors)
        stated = p / 3000 / math.tanh(0.5) ** 2 * math.pi / 4
        assert found.error == pytest.approx(stated)
        assert abs(errors.mean() / stated - 1) < norm.isf(1e-4) * errors.std() / stated / math.sqrt(
            errors.size
        )


@pytest.mark.parametrize("mu", [0.0, 0.35, -0.8])
def test_errors_of_signals_and_nulls_have_a_forecast_each(mu):
    """80 machines of four rows: signals err half as much again as nulls; near the end they are held."""
    asked, lie = 80, 1.0 / (1.0 + math.e)
    chance = lie + (1.0 - 2.0 * lie) * norm.cdf(2.0 * mu)
    hits = np.random.default_rng(0).binomial(asked, chance, 20_000)
    every = np.full(20_000, asked)
    drawn = SignCounts(hits=hits, asked=every, sizes=np.array([4.0]), weights=np.ones((20_000, 1)), lie=lie)
    square = (sign_estimate(drawn).params - mu) ** 2
    one = SignCounts(hits=hits[:1], asked=every[:1], sizes=np.array([4.0]), weights=np.ones((1, 1)), lie=lie)
    stated = expected_square(one, mu, 0)
    assert abs(square.mean() - stated) < norm.isf(1e-4) * square.std() / math.sqrt(square.size)


def test_the_forecast_is_in_the_units_of_the_rows():
    _, rows = design(1, p=4)
    plain = sparse_mean(rows, epsilon=2.0, sparsity=1, rng=0, public_seed=0)
    scaled = sparse_mean(10.0 * rows, epsilon=2.0, sparsity=1, scale=10.0, rng=0, public_seed=0)
    assert scaled.expected_square(5.0) == pytest.approx(100.0 * plain.expected_square(0.5))
    assert plain.expected_square() == pytest.approx(plain.error, rel=0.05)  # a thousand machines: first order
    assert plain.expected_square(0.35) > 1.3 * plain.error


def test_saturation_is_said_and_unbounded():
    _, rows = design(3, size=3.0)
    with pytest.warns(WeakIdentificationWarning, match="3 coordinate"):
        found = sparse_mean(rows, epsilon=2.0, sparsity=3, rng=0, public_seed=0)
    assert found.saturated.tolist() == [True] * 3 + [False] * 7
    assert (found.params[:3] <= 1.0 + 1e-12).all()  # at most 2 / sqrt(4)
    assert np.isinf(found.bse[:3]).all()
    for method in ("exact", "delta"):
        limits = found.conf_int(0.05, method)
        assert (limits.loc[:2, 1] >= 3.0).all()
    assert (found.conf_int().loc[:2, 0] > 0.5).all()


def test_fewer_machines_than_coordinates():
    _, rows = design(4, m=6, p=10)
    with pytest.warns(WeakIdentificationWarning, match=r"in 4 coordinate\(s\), no site released a sign"):
        found = sparse_mean(rows, epsilon=1.0, sparsity=10, rng=0, public_seed=0)
    unknown = found.asked == 0
    assert found.params[unknown].isna().all()
    assert found.params[~unknown].notna().all()
    assert found.sparse_params.notna().all()
    for method in ("exact", "delta"):
        limits = found.conf_int(0.05, method)[unknown]
        assert np.isneginf(limits[0]).all()
        assert np.isposinf(limits[1]).all()


def test_in_clear():
    mu, rows = design(5)
    found = sparse_mean(rows, epsilon=math.inf, sparsity=3, rng=0, public_seed=0)
    share = [(rows.mean(axis=1)[:, j] >= 0).mean() for j in range(10)]
    assert np.abs(found.counts.shares() - share).max() < norm.isf(1e-5) * 0.5 / math.sqrt(400)
    assert found.rate == 0.0
    assert math.isinf(found.privacy.epsilon(1e-6))
    assert found.selected.tolist() == np.flatnonzero(mu).tolist()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sparsity": 0}, ArgumentError, "sparsity"),
        ({"sparsity": 11}, ArgumentError, "sparsity=11"),
        ({"epsilon": -1.0}, ArgumentError, "epsilon"),
        ({"scale": 0.0}, ArgumentError, "scale"),
        ({"names": ["a"]}, AlignmentError, "names"),
        ({"names": ["a"] * 10}, AlignmentError, "names"),
        ({"samples_by_machine": []}, ArgumentError, "array"),
        ({"samples_by_machine": [np.ones((2, 10)), np.ones((2, 9))]}, AlignmentError, "columns"),
        ({"samples_by_machine": [np.full((2, 10), np.nan)]}, SchemaError, "site 0"),
        ({"rng": 0, "source": "opendp"}, ArgumentError, "source"),
    ],
)
def test_bad_input_spends_nothing(change, error, message):
    ledger = pi.Ledger()
    given = {"samples_by_machine": design(0, m=20)[1], "epsilon": 1.0, "sparsity": 2, "ledger": ledger}
    with pytest.raises(error, match=message):
        sparse_mean(**given | change)
    assert len(ledger) == 0


def test_intervals_refuse_what_they_do_not_know():
    found = sparse_mean(design(0, m=50)[1], epsilon=1.0, sparsity=2, rng=0, public_seed=0)
    with pytest.raises(ArgumentError, match="method"):
        found.conf_int(0.05, "wald")
    with pytest.raises(ArgumentError, match="alpha"):
        found.conf_int(1.0)


def test_the_summary_shows_selected_coordinates_with_joint_intervals():
    rows = np.random.default_rng(0).normal([0.4, 0.0, 0.0, 3.0], 1.0, (3000, 4, 4))
    with pytest.warns(WeakIdentificationWarning):
        fit = pi.sparse_mean(rows, epsilon=1.0, sparsity=2, rng=0, public_seed=0)
    summary, joint = fit.summary(), fit.conf_int(joint=True)
    text = str(summary)
    assert text == str(fit)
    assert fit._repr_html_().startswith("<")
    lines = [line.split() for line in text.splitlines()]
    (row,) = [line for line in lines if line[:1] == ["0"]]
    assert [float(value) for value in row[3:5]] == pytest.approx(joint.loc[0].to_list(), abs=5e-5)
    assert row[5] == str(fit.asked[0])
    assert ["1"] not in [line[:1] for line in lines]
    assert "The signs of 3 are saturated" in text
    assert "NOT PRIVATE" in text
    assert summary.plain_facts["Unit of privacy"] == "machine"
    assert len(fit.summary(notes="all").plain_notes) == len(summary.plain_notes)
    assert "[0.05" in str(fit.summary(alpha=0.1))
