"""The paper's algorithms: least squares without noise, what every iterate costs, sensitivities attained."""

import math

import numpy as np
import pytest

from privinf.errors import NotAvailableError, NotPositiveDefiniteError
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.lasso.rows import SparseUnits
from privinf.lasso.sums import SparseSums
from privinf.schema import Design
from studies.lasso import LassoDesign
from studies.paper.engine import (
    PaperBudget,
    PaperTuning,
    SparseVector,
    mean_square,
    paper_column,
    paper_debiased,
    paper_fit,
    paper_refit,
    positive_variance,
    precision_diagonal,
)
from studies.paper.machines import PaperSizes, multiplier_draws, paper_machine_fits
from studies.paper.statistics import PAPER_OPS

BOUND = 8.0
CLEAR = PaperTuning(
    iterations=200,
    step=0.5,
    residual_clip=math.inf,
    precision_clip=math.inf,
    column_bound=BOUND,
    norm_bound=10.0,
    precision_norm=10.0,
    form="residual",
)
NOISY = PaperTuning(
    iterations=7,
    step=0.5,
    residual_clip=2.0,
    precision_clip=3.0,
    column_bound=BOUND,
    norm_bound=1.5,
    precision_norm=2.0,
    form="residual",
)
PRICES = ("fit", "refit", "own", "precision", "variance", "squares", "score", "multiplier")


def with_form(tuning, form):
    return PaperTuning(**{name: getattr(tuning, name) for name in tuning.__slots__} | {"form": form})


def server_of(parts, rng=None):
    p = parts[0][1].shape[1]
    design = Design.from_arrays(
        [f"x{j}" for j in range(p)], bounds=[(-BOUND, BOUND)] * p, y_bounds=(-90.0, 90.0)
    )
    policy = SitePolicy(trusted_server=True, simulation=True).naming(PAPER_OPS)
    sites = {str(i): Site(part, design, policy=policy) for i, part in enumerate(parts)}
    server = TrustedServer(InProcessFederation(sites), rng=rng)
    units = SparseUnits(
        center=np.zeros(p),
        scale=np.ones(p),
        max_abs=np.full(p, BOUND),
        intercept=0.0,
        y_max_abs=5.0,
        y_limit=5.0,
        sized=set(),
    )
    pooled = SparseSums(server=server, units=units, n=server.nobs)
    return (
        server,
        pooled,
        {name: SparseSums(server=server, units=units, n=n, sites=(name,)) for name, n in server.rows.items()},
    )


@pytest.fixture(scope="module")
def sample():
    return LassoDesign(machines=1, n=2_000, p=20, sparsity=3, correlation=0.3).draw(4)


def ols(y, X):
    return np.linalg.lstsq(X, y, rcond=None)[0]


@pytest.mark.audit
@pytest.mark.parametrize("form", ["residual", "response"])
def test_without_noise_the_iterates_reach_least_squares_on_the_support(sample, form):
    _, sums, _ = server_of([(sample.y, sample.X)])
    found = paper_fit(sums, 3, math.inf, with_form(CLEAR, form))
    assert sorted(found.support) == [0, 1, 2]
    assert np.allclose(found.dense(20)[:3], ols(sample.y, sample.X[:, :3]), atol=1e-10)


@pytest.mark.audit
def test_iterates_stay_in_the_ball(sample):
    _, sums, _ = server_of([(sample.y, sample.X)])
    small = PaperTuning(**{name: getattr(CLEAR, name) for name in CLEAR.__slots__} | {"norm_bound": 0.3})
    assert np.linalg.norm(paper_fit(sums, 3, math.inf, small).values) == pytest.approx(0.3)


@pytest.mark.audit
def test_a_full_precision_column_solves_its_equation(sample):
    _, sums, _ = server_of([(sample.y, sample.X)])
    inverse = np.linalg.inv(sample.X.T @ sample.X / len(sample.y))
    found = paper_column(sums, 5, 20, math.inf, CLEAR)
    assert np.allclose(found.dense(20), inverse[5], atol=1e-9)


@pytest.mark.audit
def test_with_full_columns_the_debiased_coordinates_are_least_squares(sample):
    """b + G^-1 X'(y - Xb)/n is least squares whatever b is; without clips sigma^2 is the mean square."""
    _, sums, _ = server_of([(sample.y, sample.X)])
    fit = SparseVector([0, 9], np.array([0.4, -0.3]))
    targets = [0, 9, 14]
    columns = [paper_column(sums, j, 20, math.inf, CLEAR) for j in targets]
    budget = PaperBudget(**dict.fromkeys(PRICES, math.inf))
    square = mean_square(sums, fit, math.inf, CLEAR)
    residual = sample.y - sample.X[:, [0, 9]] @ fit.values
    assert square == pytest.approx(np.mean(residual**2), rel=1e-12)
    inverse = np.linalg.inv(sample.X.T @ sample.X / 2_000)
    plain = paper_debiased(sums, fit, columns, targets, square, budget, CLEAR)
    assert np.allclose(plain.params, ols(sample.y, sample.X)[targets], atol=1e-9)
    assert np.allclose(plain.sampling, square * np.diag(inverse)[targets] / 2_000)
    assert (plain.privacy == 0.0).all()
    robust = paper_debiased(sums, fit, columns, targets, square, budget, CLEAR, robust=True)
    scores = (sample.X @ inverse[:, targets]) * residual[:, None]
    assert np.allclose(robust.sampling, np.mean(scores**2, axis=0) / 2_000)


def test_the_refit_without_noise_is_least_squares_on_the_support(sample):
    _, sums, _ = server_of([(sample.y, sample.X)])
    start = SparseVector([2, 0, 7], np.array([0.1, 0.9, 0.0]))
    found = paper_refit(sums, start, math.inf, CLEAR)
    assert found.support == [2, 0, 7]
    assert np.allclose(found.values, ols(sample.y, sample.X[:, [2, 0, 7]]), atol=1e-10)
    held = SparseVector([1], np.array([0.5]))
    rest = paper_refit(sums, start, math.inf, CLEAR, held=held)
    assert np.allclose(rest.values, ols(sample.y - 0.5 * sample.X[:, 1], sample.X[:, [2, 0, 7]]), atol=1e-10)


@pytest.mark.parametrize("secure", [False, True])
def test_prices_of_iterates_sum_to_the_budget(sample, secure):
    server, sums, _ = server_of([(sample.y, sample.X)], rng=None if secure else 0)
    paper_fit(sums, 3, 0.05, NOISY)
    spent = server.ledger.total().rho
    assert 0.05 * (1.0 - 1e-9) < spent <= 0.05 * (1.0 + 1e-12)
    assert len(server.ledger.entries) == 2 * NOISY.iterations
    paper_column(sums, 4, 5, 0.02, NOISY)
    assert server.ledger.total().rho == pytest.approx(0.07, rel=1e-9)
    paper_refit(sums, SparseVector([0, 3], np.ones(2)), 0.01, NOISY)
    mean_square(sums, SparseVector.zero(), 0.004, NOISY)
    assert server.ledger.total().rho == pytest.approx(0.084, rel=1e-9)


def totals(record, op, args):
    """The un-noised sum over rows of zeros and one record."""
    y, x = record
    X = np.zeros((5, len(x)))
    X[0] = x
    server, sums, _ = server_of([(np.append(y, np.zeros(4)), X)])
    return server.vector_sum(op, sums.args((), np.empty(0)) | args, label="clear", rho=math.inf).values


@pytest.mark.parametrize("form", ["residual", "response"])
def test_the_sensitivity_of_an_iterate_is_attained(sample, form):
    """A record far outside all clips, and its mirror image in y, move the first entry by lambda N / eta."""
    tuning = with_form(NOISY, form)
    server, sums, _ = server_of([(sample.y, sample.X)], rng=1)
    first = paper_fit(sums, 3, 0.05, tuning)
    entries = [entry for entry in server.ledger.entries if entry.mechanism == "laplace peeling"]
    scaled = [entry.sensitivity.value * sums.n / tuning.step for entry in entries]
    x = np.full(20, 100.0)
    args = {"column_bound": BOUND, "residual_clip": tuning.residual_clip, "form": form}
    apart = totals((80.0, x), "paper_gradient", args) - totals((-80.0, x), "paper_gradient", args)
    assert np.abs(apart).max() == pytest.approx(2.0 * BOUND * 2.0)
    assert scaled[0] == pytest.approx(np.abs(apart).max(), rel=1e-6)
    assert np.linalg.norm(first.values) <= tuning.norm_bound + 1e-12
    if form == "residual":
        assert np.allclose(scaled, scaled[0], rtol=1e-6)
    else:
        # The released coefficients' own sum of sizes, which is at most sqrt(s) C.
        assert max(scaled[1:]) > scaled[0]
        assert max(scaled) <= 2.0 * BOUND * (2.0 + BOUND * math.sqrt(3.0) * 1.5) * (1.0 + 1e-6)


def test_the_sensitivities_of_columns_and_scores_are_attained(sample):
    server, sums, _ = server_of([(sample.y, sample.X)], rng=1)
    columns = [paper_column(sums, j, 1, 50.0, NOISY) for j in (2, 3)]
    entry = next(entry for entry in server.ledger.entries if entry.mechanism == "laplace peeling")
    assert entry.sensitivity.value * sums.n / NOISY.step == pytest.approx(2.0 * BOUND * 3.0, rel=1e-6)
    budget = PaperBudget(**dict.fromkeys(PRICES, 0.01))
    paper_debiased(sums, SparseVector.zero(), columns, (2, 3), 1.0, budget, NOISY, robust=True)
    score, squares = server.ledger.entries[-2:]
    args = {"columns": np.array([2, 3]), "transform": np.eye(2), "clip": 3.0, "residual_clip": 2.0}
    x = np.full(20, 100.0)
    apart = totals((80.0, x), "paper_scores", args) - totals((-80.0, x), "paper_scores", args)
    assert score.sensitivity.value == pytest.approx(np.linalg.norm(apart), rel=1e-6)
    apart = totals((80.0, x), "paper_variances", args) - totals((80.0, 0 * x), "paper_variances", args)
    assert squares.sensitivity.value == pytest.approx(np.linalg.norm(apart), rel=1e-6)
    # Two coordinates cost twice the price of one.
    assert [one.loss.mu**2 / 2.0 for one in (score, squares)] == pytest.approx([0.02, 0.02], rel=1e-9)


def test_what_noise_hides_is_refused():
    with pytest.raises(NotAvailableError, match="variance of the errors"):
        positive_variance(-0.1)
    column = SparseVector([1, 2], np.array([0.2, -0.3]))
    with pytest.raises(NotPositiveDefiniteError, match="entry of its own"):
        precision_diagonal([column], [2])
    with pytest.raises(NotPositiveDefiniteError, match="entry of its own"):
        precision_diagonal([column], [0])


def test_sparse_vectors_add_on_the_union():
    found = SparseVector([4, 1], np.array([1.0, 2.0])).plus(SparseVector([1, 0], np.array([3.0, -1.0])))
    assert found.support == [4, 1, 0]
    assert found.dense(6).tolist() == [-1.0, 5.0, 0.0, 0.0, 1.0, 0.0]
    assert SparseVector.zero().plus(SparseVector.zero()).support == []


@pytest.mark.audit
def test_parties_without_noise_are_least_squares_each():
    sample = LassoDesign(machines=3, n=800, p=10, sparsity=4, shared_sparsity=3, correlation=0.3).draw(0)
    _, pooled, parties = server_of([sample.rows(i) for i in range(3)])
    found = paper_machine_fits(
        pooled,
        parties,
        [0, 5],
        PaperSizes(3, 10, 10, 0),
        PaperBudget(**dict.fromkeys(PRICES, math.inf)),
        CLEAR,
    )
    assert sorted(found.shared.support) == [0, 1, 2]
    squares = []
    for i in range(3):
        y, X = sample.rows(i)
        own = ols(y, X)
        assert np.allclose(found.own[str(i)].dense(10), own, atol=1e-8)
        assert np.allclose(found.debiased[str(i)].params, own[[0, 5]], atol=1e-8)
        squares.append(np.mean((y - X @ own) ** 2))
    assert found.variance == pytest.approx(np.mean(squares))
    inverse = np.linalg.inv(sample.X.T @ sample.X / 2_400)
    assert found.debiased["1"].sampling == pytest.approx(np.mean(squares) * np.diag(inverse)[[0, 5]] / 800)


def test_parties_pay_for_their_own_rows_alone():
    sample = LassoDesign(machines=3, n=800, p=10, sparsity=4, shared_sparsity=3).draw(0)
    server, pooled, parties = server_of([sample.rows(i) for i in range(3)], rng=0)
    prices = PaperBudget(
        fit=0.3, refit=0.2, own=0.4, precision=5.0, variance=0.1, squares=0.05, score=0.2, multiplier=0.6
    )
    paper_machine_fits(
        pooled, parties, [0, 5], PaperSizes(3, 1, 2, 4), prices, NOISY, refit=True, robust=True
    )
    joint = 0.3 + 0.2 + 0.4 + 0.1 + 0.6 + 2 * (5.0 + 0.05 + 0.2)
    assert server.ledger.total().rho == pytest.approx(joint, rel=1e-9)
    draws = [entry for entry in server.ledger.entries if entry.label.startswith("multiplier draws")]
    picks = [entry for entry in draws if entry.mechanism == "laplace peeling"]
    wanted = 2.0 * NOISY.precision_clip * NOISY.residual_clip / math.sqrt(800)
    assert picks[0].sensitivity.value == pytest.approx(wanted, rel=1e-6)


@pytest.mark.audit
def test_multiplier_draws_are_the_largest_score_of_random_signs(sample):
    """Without noise their quantiles are those of the largest of two independent normals."""
    _, sums, _ = server_of([(sample.y, sample.X)])
    columns = [SparseVector([10], np.ones(1)), SparseVector([18], np.ones(1))]
    fit = paper_fit(sums, 3, math.inf, CLEAR)
    draws = multiplier_draws(sums, fit, columns, 2_000, math.inf, CLEAR, 3)
    assert draws.shape == (2_000,)
    residual = sample.y - sample.X[:, fit.support] @ fit.values
    sizes = np.sqrt(np.mean((sample.X[:, [10, 18]] * residual[:, None]) ** 2, axis=0))
    normals = np.abs(np.random.default_rng(0).standard_normal((200_000, 2)) * sizes).max(axis=1)
    cut = np.quantile(normals, 0.9)
    # 2,000 draws below the 90% point: five standard errors of a share.
    assert abs(np.mean(draws < cut) - 0.9) < 5.0 * math.sqrt(0.09 / 2_000)
    assert multiplier_draws(sums, fit, columns, 0, math.inf, CLEAR, 3).size == 0
