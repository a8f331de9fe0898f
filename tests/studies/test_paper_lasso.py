"""The paper's variant: least squares without noise, coverage where noise is small, spending, bad input."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import epsilon_to_rho, rho_to_epsilon
from privinf.errors import ArgumentError, BudgetExceededError, NotAvailableError, PrivinfError
from privinf.federation import TrustedServer
from studies.lasso import LassoDesign
from studies.paper.model import fit_paper
from studies.paper.results import multiplier_intervals
from studies.simulation import binomial_limits

DELTA = 1e-6
HETEROGENEOUS = {"heterogeneous": True, "sparsity": 5, "shared_sparsity": 3}


def entry_point(sample, *, scale=1.0, sites=None, ledger=None, rng=None, x_bound=4.0):
    rows = pi.DebiasedLasso(
        sample.y,
        sample.X * scale,
        x_bound=x_bound * scale,
        y_bounds=(-5.0, 5.0),
        x_scale=1.0 * scale,
        sites=sites,
    )._rows
    ledger = pi.Ledger() if ledger is None else ledger
    return rows, TrustedServer(rows.federation, ledger=ledger, rng=rng), ledger


def fitted(sample, *, scale=1.0, sites=None, ledger=None, rng=None, x_bound=4.0, **options):
    rows, server, ledger = entry_point(
        sample, scale=scale, sites=sites, ledger=ledger, rng=rng, x_bound=x_bound
    )
    given = {"epsilon": 8.0, "delta": DELTA, "sparsity": 3, "targets": (0, 2, 9)}
    return fit_paper(rows, server, ledger, **(given | options))


@pytest.fixture(scope="module")
def sample():
    return LassoDesign(machines=1, n=8_000, p=12, sparsity=3).draw(1)


@pytest.fixture(scope="module")
def parties():
    return LassoDesign(machines=3, n=4_000, p=12, sparsity=5, shared_sparsity=3).draw(2)


@pytest.mark.audit
@pytest.mark.parametrize("form", ["residual", "response"])
def test_without_noise_it_is_least_squares(sample, form):
    """The coefficients' bias is gone with full precision columns; sigma^2 is that of the sparse fit."""
    fit = fitted(sample, epsilon=math.inf, iterations=150, precision_sparsity=12, x_bound=8.0, form=form)
    slopes = np.linalg.lstsq(sample.X, sample.y, rcond=None)[0]
    assert np.allclose(fit.params, slopes[[0, 2, 9]], atol=1e-7)
    best = np.linalg.lstsq(sample.X[:, :3], sample.y, rcond=None)[0]
    assert np.allclose(fit.sparse_params, np.append(best, np.zeros(9)), atol=1e-7)
    square = np.mean((sample.y - sample.X[:, :3] @ best) ** 2)
    inverse = np.linalg.inv(sample.X.T @ sample.X)
    assert np.allclose(fit.bse, np.sqrt(square * np.diag(inverse)[[0, 2, 9]]), rtol=1e-6)
    assert fit.residual_scale == pytest.approx(math.sqrt(square))


@pytest.mark.audit
def test_without_noise_only_bounds_that_are_given_bind(sample):
    """By default the bound of the norm would be half the width of y_bounds, here below the norm itself."""
    rows = pi.DebiasedLasso(sample.y, sample.X, x_bound=8.0, y_bounds=(-0.5, 0.5), x_scale=1.0)._rows
    ledger = pi.Ledger()
    server = TrustedServer(rows.federation, ledger=ledger)
    given = {"epsilon": math.inf, "sparsity": 3, "targets": [0], "iterations": 150}
    free = fit_paper(rows, server, ledger, **given)
    y = np.clip(sample.y, -8.0, 8.0)  # cut at 16 times the width of y_bounds
    best = np.linalg.lstsq(sample.X[:, :3], y, rcond=None)[0]
    assert np.allclose(free.sparse_params[:3], best, atol=1e-7)
    assert np.linalg.norm(best) > 0.5
    bound = fit_paper(rows, server, ledger, **given, norm_bound=0.2)
    assert np.linalg.norm(bound.sparse_params) == pytest.approx(0.2)
    clipped = fit_paper(rows, server, ledger, **given, clip=0.1)
    assert clipped.residual_scale <= 0.1


@pytest.mark.audit
def test_without_noise_it_is_near_the_default_variant(sample):
    ours = fitted(sample, epsilon=math.inf, iterations=150, x_bound=8.0)
    default = pi.DebiasedLasso(sample.y, sample.X, x_bound=8.0, y_bounds=(-9, 9)).fit(
        epsilon=math.inf, sparsity=3, targets=[0, 2, 9]
    )
    assert (np.abs(ours.params - default.params) < 0.5 * default.bse).all()
    assert np.allclose(ours.bse, default.bse, rtol=0.1)


PLAIN = {"shares": {"fit": 0.45, "precision": 0.45, "variance": 0.05, "score": 0.05}}
ROBUST = {
    "shares": {"fit": 0.25, "refit": 0.1, "precision": 0.45, "variance": 0.15, "score": 0.05},
    "refit": True,
    "variance": "robust",
}


@pytest.mark.audit
@pytest.mark.parametrize("options", [PLAIN, ROBUST], ids=["plain", "robust"])
def test_coverage_where_privacy_is_cheap(options):
    """Little is left of the coefficients' noise, and a third of the variance is that of the scores."""
    design = LassoDesign(machines=1, n=12_000, p=10, sparsity=2)
    hits, shares, targets = [], [], [0, 1, 6]
    for rep in range(30):
        sample = design.draw(200 + rep)
        fit = fitted(
            sample,
            rng=rep,
            epsilon=30.0,
            sparsity=2,
            targets=targets,
            precision_sparsity=3,
            clip=3.0,
            iterations=12,
            **options,
        )
        ends, truth = fit.conf_int().to_numpy(), sample.params[0][targets]
        hits += list((ends[:, 0] < truth) & (truth < ends[:, 1]))
        shares.append(float((fit.bse_privacy**2 / fit.bse**2).mean()))
    low, high = binomial_limits(0.95, len(hits), level=0.99)
    assert low <= np.mean(hits) <= high
    assert 0.25 < np.mean(shares) < 0.5


def test_joint_cost_is_the_budget_and_is_said(sample):
    fit = fitted(sample, rng=0, refit=True)
    assert 8.0 * (1 - 1e-6) < fit.privacy.epsilon(DELTA) <= 8.0
    text = " ".join(str(fit.summary()).split())
    assert fit.model.name == "DebiasedLasso"
    assert "as the paper states them" in text
    assert "cover less often than their level" in text
    parts = fit.bse_privacy**2 + fit.bse_sampling**2
    assert np.allclose(parts, fit.bse**2)
    labels = {entry.label for entry in fit.privacy.entries}
    for part in (
        "iterate of the coefficients",
        "iterate of a precision column",
        "Gram matrix of the refit",
        "cross products of the refit",
        "variance of the errors",
        "debiasing scores",
    ):
        assert part in labels, part


@pytest.mark.audit
def test_per_interval_counts_every_interval_in_the_ledger(sample):
    """One interval alone costs epsilon; columns and scores of the others come on top."""
    joint = fitted(sample, rng=0)
    shares = {"fit": 0.3, "precision": 0.4, "variance": 0.1, "score": 0.2}
    alone = fitted(sample, rng=0, accounting="per-interval", shares=shares)
    rho = joint.privacy.rho
    assert alone.privacy.rho == pytest.approx(rho * (0.4 + 3 * 0.6), rel=1e-8)
    single = fitted(sample, rng=0, accounting="per-interval", targets=[4])
    assert single.privacy.epsilon(DELTA) == pytest.approx(8.0, rel=1e-6)
    assert "is the joint epsilon" in " ".join(str(alone.summary()).split())


def test_units_of_the_columns_do_not_matter(sample):
    one, other = fitted(sample, rng=3), fitted(sample, rng=3, scale=16.0)
    assert np.allclose(one.params, 16.0 * other.params)
    assert np.allclose(one.bse, 16.0 * other.bse)
    assert np.allclose(one.sparse_params, 16.0 * other.sparse_params)


def test_selected_targets_secure_noise_and_pickle(sample):
    fit = fitted(sample, targets="selected", epsilon=30.0)
    assert tuple(fit.params.index) == fit.selected == ("x1", "x2", "x3")
    assert not fit.privacy.simulated
    again = pickle.loads(pickle.dumps(fit))
    assert again.params.equals(fit.params)
    assert again.selected == fit.selected


@pytest.mark.audit
@pytest.mark.parametrize("accounting", ["joint", "per-interval"])
def test_parties(parties, accounting):
    labels = np.array(["north", "south", "west"])[parties.machines]
    fit = fitted(
        parties,
        sites=labels,
        rng=0,
        epsilon=100.0,
        targets=range(12),
        accounting=accounting,
        multiplier_draws=3,
        clip=3.0,
        **HETEROGENEOUS,
    )
    assert fit.labels == ("north", "south", "west")
    assert np.flatnonzero(fit.shared_params).tolist() == [0, 1, 2]
    for i, label in enumerate(fit.labels):
        one = fit.site(label)
        assert one.nobs == 4_000
        assert {f"x{j + 1}" for j in np.flatnonzero(parties.params[i])} <= set(one.selected)
        assert (np.abs(one.params - parties.params[i]) < 5.0 * one.bse).all()
        simultaneous = multiplier_intervals(one, 0.1)
        middle = simultaneous.mean(axis=1)
        assert np.allclose(middle, one.params)
        assert list(simultaneous.index) == list(one.params.index)
    if accounting == "joint":
        assert fit.privacy.epsilon(DELTA) == pytest.approx(100.0, rel=1e-6)
        assert fit.interval_epsilon < 100.0
    else:
        assert fit.interval_epsilon == pytest.approx(100.0, rel=1e-6)
        assert fit.privacy.epsilon(DELTA) > 100.0
    assert fit.interval_epsilon < fit.privacy.epsilon(DELTA)


@pytest.mark.audit
def test_multiplier_intervals_cover_all_coordinates_without_noise():
    """Six coordinates at once; 50 draws put the quantile near its place."""
    design = LassoDesign(machines=2, n=600, p=6, sparsity=3, shared_sparsity=2, correlation=0.2)
    hits = []
    for rep in range(15):
        sample = design.draw(rep)
        fit = fitted(
            sample,
            sites=sample.machines,
            epsilon=math.inf,
            iterations=12,
            targets=range(6),
            precision_sparsity=6,
            multiplier_draws=50,
            public_seed=1_000 * rep,
            x_bound=8.0,
            heterogeneous=True,
            sparsity=5,
            shared_sparsity=2,
        )
        for i in range(2):
            ends = multiplier_intervals(fit.site(i), 0.2).to_numpy()
            hits.append(((ends[:, 0] < sample.params[i]) & (sample.params[i] < ends[:, 1])).all())
    low, high = binomial_limits(0.8, len(hits), level=0.99)
    assert low <= np.mean(hits) <= high


def test_without_multiplier_draws_there_are_no_such_intervals(parties):
    fit = fitted(parties, sites=parties.machines, rng=0, epsilon=60.0, **HETEROGENEOUS)
    with pytest.raises(NotAvailableError, match="multiplier_draws"):
        multiplier_intervals(fit.site(0))


def test_a_limit_is_on_the_joint_cost(sample):
    rho = epsilon_to_rho(8.0, DELTA)
    ledger = pi.Ledger(pi.Budget(rho=rho))
    with pytest.raises(BudgetExceededError):
        fitted(sample, ledger=ledger, rng=0, accounting="per-interval")
    assert len(ledger.entries) == 0
    fitted(sample, ledger=ledger, rng=0)
    assert rho * (1.0 - 1e-9) < ledger.total().rho <= rho


BAD = [
    ({"targets": ()}, ArgumentError, "at least one"),
    ({"targets": (1, 1)}, ArgumentError, "each once"),
    ({"targets": (12,)}, ArgumentError, "12 columns"),
    ({"targets": "all"}, ArgumentError, "'selected' or a list"),
    ({"sparsity": 13}, ArgumentError, "larger than"),
    ({"precision_sparsity": 13}, ArgumentError, "larger than"),
    ({"precision_sparsity": 0}, ArgumentError, "precision_sparsity"),
    ({"shared_sparsity": 2}, ArgumentError, "belongs to"),
    ({"multiplier_draws": 5}, ArgumentError, "belongs to"),
    ({"heterogeneous": True}, ArgumentError, "needs shared_sparsity"),
    ({"heterogeneous": True, "shared_sparsity": 3}, ArgumentError, "must be less"),
    ({"heterogeneous": True, "shared_sparsity": 2, "targets": "selected"}, ArgumentError, "list of targets"),
    ({"iterations": 0}, ArgumentError, "iterations"),
    ({"clip": -1.0}, ArgumentError, "clip"),
    ({"precision_clip": 0.0}, ArgumentError, "precision_clip"),
    ({"step": 0.0}, ArgumentError, "step"),
    ({"norm_bound": 0.0}, ArgumentError, "norm_bound"),
    ({"form": "other"}, ArgumentError, "form"),
    ({"variance": "hc1"}, ArgumentError, "variance"),
    ({"accounting": "none"}, ArgumentError, "accounting"),
    ({"epsilon": 0.0}, ArgumentError, "epsilon"),
    ({"delta": 1.0}, ArgumentError, "delta"),
    ({"shares": {"score": 1.0}}, ArgumentError, "shares must map"),
    ({"shares": {"fit": 0.5, "precision": 0.5, "variance": 0.5, "score": 0.5}}, ArgumentError, "sum to"),
]


@pytest.mark.parametrize(("changes", "kind", "match"), BAD)
def test_bad_requests_spend_nothing(sample, changes, kind, match):
    ledger = pi.Ledger()
    with pytest.raises(kind, match=match):
        fitted(sample, ledger=ledger, rng=0, **changes)
    assert len(ledger.entries) == 0


def test_a_constant_and_a_foreign_ledger_are_refused(sample):
    X = pd.DataFrame(sample.X, columns=[f"x{j}" for j in range(12)]).assign(const=1.0)
    rows = pi.DebiasedLasso(sample.y, X, x_bound=4.0, y_bounds=(-5.0, 5.0))._rows
    ledger = pi.Ledger()
    with pytest.raises(NotAvailableError, match="no constant"):
        fit_paper(
            rows, TrustedServer(rows.federation, ledger=ledger), ledger, epsilon=1.0, delta=DELTA, sparsity=2
        )
    rows, server, _ = entry_point(sample)
    with pytest.raises(ArgumentError, match="must charge the ledger"):
        fit_paper(rows, server, pi.Ledger(), epsilon=1.0, delta=DELTA, sparsity=2)


def test_noise_that_leaves_nothing_is_said_and_stays_charged(sample):
    ledger = pi.Ledger()
    with pytest.raises(PrivinfError):
        fitted(
            sample,
            ledger=ledger,
            rng=0,
            epsilon=0.002,
            shares={
                "fit": 0.997,
                "precision": 0.001,
                "variance": 0.001,
                "score": 0.001,
            },
        )
    assert ledger.total().rho > 0.0


@pytest.mark.audit
def test_what_one_interval_uses(parties):
    """Of a joint budget: shared parts, and a k-th of what the k intervals split."""
    shares = {"fit": 0.2, "own": 0.2, "precision": 0.3, "variance": 0.1, "score": 0.2}
    fit = fitted(
        parties,
        sites=parties.machines,
        rng=0,
        epsilon=60.0,
        targets=range(4),
        shares=shares,
        **HETEROGENEOUS,
    )
    wanted = rho_to_epsilon(fit.privacy.rho * (0.5 + 0.5 / 4), DELTA)
    assert fit.interval_epsilon == pytest.approx(wanted, rel=1e-6)


def test_terms_of_the_paper_s_variance_add_up(parties):
    fit = fitted(parties, sites=parties.machines, rng=0, epsilon=60.0, **HETEROGENEOUS)
    for result in (fit, fit.site(0)):
        formula = result.variance_formula
        assert list(formula.variances) == ["sampling", "score noise"]
        assert np.allclose(formula.variances.sum(axis=1), result.bse**2, rtol=1e-9)
        assert np.allclose(formula.variances["score noise"], result.bse_privacy**2)
        assert "sigma^2 w_jj" in formula.equation
        assert "Algorithm 6" in formula.equation
    sites = np.array([site for site, _ in fit.pairs])
    assert (fit.estimate.cov[sites[:, None] != sites] == 0.0).all()
    assert "all terms are independent" in fit.variance_formula.equation
    with pytest.raises(NotAvailableError, match="paper's variant do not compare"):
        fit.differs
    assert 0.0 <= fit.agreement().pvalue <= 1.0
