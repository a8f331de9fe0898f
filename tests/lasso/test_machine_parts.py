"""Parts of several parties: least squares per party without noise, recovery and coverage with it, prices."""

import math
from dataclasses import fields

import numpy as np
import pytest

import privinf as pi
from privinf.errors import (
    ArgumentError,
    BudgetExceededError,
    NotAvailableError,
    WeakIdentificationWarning,
)
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.lasso.heterogeneous.fit import site_fits
from privinf.lasso.heterogeneous.plan import (
    MeanPrices,
    SiteBudget,
    check_site_plan,
    extra_selections,
    interval_columns,
)
from privinf.lasso.results import DIVERGED_NOTE
from privinf.lasso.rows import SparseUnits
from privinf.lasso.sums import SparseSums
from privinf.schema import Design
from studies.lasso import LassoDesign
from studies.simulation import binomial_limits

SHARES = {
    "selection": 0.03,
    "refit": 0.05,
    "scales": 0.04,
    "own_selection": 0.18,
    "own_refit": 0.20,
    "neighbours": 0.05,
    "gram": 0.08,
    "slopes": 0.04,
    "score": 0.33,
}


def fitted(sample, rho, targets, rng, shared=3, own=2, means=None, **kind):
    p = sample.X.shape[1]
    design = Design.from_arrays([f"x{j}" for j in range(p)], bounds=[(-6.0, 6.0)] * p, y_bounds=(-80.0, 80.0))
    policy = SitePolicy(trusted_server=True, simulation=True)
    sites = {
        str(i): Site((y, X), design, policy=policy)
        for i, (y, X) in enumerate(sample.rows(i) for i in range(len(sample.params)))
    }
    server = TrustedServer(InProcessFederation(sites), rng=rng)
    units = SparseUnits(
        center=np.zeros(p),
        scale=np.ones(p),
        max_abs=np.full(p, 6.0),
        intercept=0.0,
        y_max_abs=5.0,
        y_limit=5.0,
        sized=set(),
    )
    parties = {
        name: SparseSums(server=server, units=units, n=len(site), sites=(name,))
        for name, site in sites.items()
    }
    budget = (
        rho
        if isinstance(rho, SiteBudget)
        else SiteBudget(**{name: share * rho for name, share in SHARES.items()})
    )
    found = site_fits(
        SparseSums(server=server, units=units, n=server.nobs),
        parties,
        targets,
        budget,
        means or MeanPrices(),
        shared_sparsity=shared,
        own_sparsity=own,
        **kind,
    )
    return found, server, units.scale


def test_without_noise_it_is_least_squares_of_each_party():
    sample = LassoDesign(machines=3, n=500, p=6, sparsity=4, shared_sparsity=3).draw(0)
    found, _, unit = fitted(sample, math.inf, range(6), None, own=1)
    for i in range(3):
        y, X = sample.rows(i)
        slopes = np.linalg.lstsq(X, y, rcond=None)[0]
        # Columns and slopes are pooled: the same up to the parties' differences in Sigma and P(|r| < R).
        assert np.abs(found.debiased[str(i)].params / unit - slopes).max() < 0.25 * 0.5 / math.sqrt(500)


def test_without_noise_every_party_has_a_constant_of_its_own():
    sample = LassoDesign(machines=3, n=500, p=8, sparsity=4, shared_sparsity=3).draw(0)
    place = np.repeat(np.arange(3), 500)
    y = sample.y + np.array([-2.0, 0.0, 3.0])[place]
    model = pi.DebiasedLasso(y, sample.X, x_bound=6.0, y_bounds=(-80.0, 80.0), sites=place)
    fit = model.fit(**request(epsilon=math.inf, sparsity=4, accounting="joint"))
    for i in range(3):
        own = y[place == i]
        X = np.column_stack([np.ones(500), sample.X[place == i]])
        slopes = np.linalg.lstsq(X, own, rcond=None)[0][1:]
        # Precision columns are pooled; without constants of the sites' own the error is six standard errors.
        assert np.abs(fit.site(i).params.to_numpy() - slopes).max() < 0.5 * 0.5 / math.sqrt(500)


@pytest.mark.parametrize(
    ("accounting", "spread", "largest"), [("joint", 0.2, 0.25), ("per-interval", 0.0, 0.5)]
)
def test_without_noise_regressions_of_each_site_give_its_least_squares(accounting, spread, largest):
    """Columns have means of their own at each site, and under one budget also sizes of their own."""
    sample = LassoDesign(machines=3, n=500, p=8, sparsity=4, shared_sparsity=3).draw(0)
    rng = np.random.default_rng(1)
    sizes = np.exp(spread * rng.standard_normal((3, 8)))
    X = (sample.X * sizes[sample.machines]) + rng.standard_normal((3, 8))[sample.machines]
    y = sample.y + np.array([-2.0, 0.0, 3.0])[sample.machines]
    model = pi.DebiasedLasso(y, X, x_bound=12.0, y_bounds=(-80.0, 80.0), sites=sample.machines)
    options = {"epsilon": math.inf, "sparsity": 4, "accounting": accounting, "precision": "machine"}
    fit = model.fit(**request(**options))
    for i in range(3):
        own = sample.machines == i
        with_constant = np.column_stack([np.ones(500), X[own]])
        slopes, residual, _, _ = np.linalg.lstsq(with_constant, y[own])
        errors = np.sqrt(residual / 500 * np.diag(np.linalg.inv(with_constant.T @ with_constant)))
        # Slopes of scores are averages over targets, so that estimates are within a part of the last step.
        distance = (fit.site(i).params.to_numpy() - slopes[1:]) / errors[1:]
        assert np.abs(distance).max() < largest


def test_many_columns_with_noisy_means_leave_intervals_their_level():
    """With 300 means released, products of their errors and of the residuals' means biased the scores."""
    design = LassoDesign(machines=4, n=3_000, p=300, sparsity=4, shared_sparsity=3)
    shares = []
    for seed in range(4):
        sample = design.draw(seed)
        place = np.repeat(np.arange(4), 3_000)
        y = sample.y + np.linspace(-0.5, 0.5, 4)[place]
        model = pi.DebiasedLasso(y, sample.X, x_bound=3.5, y_bounds=(-8.0, 8.0), sites=place)
        targets = list(range(40))
        fit = model.fit(**request(epsilon=1.0, sparsity=4, targets=targets, rng=seed))
        for i, truth in enumerate(sample.params):
            low, high = fit.site(i).conf_int().to_numpy().T
            shares.append(((low <= truth[targets]) & (truth[targets] <= high)).mean())
    assert np.mean(shares) > 0.93


@pytest.fixture(scope="module")
def strong():
    design = LassoDesign(machines=4, n=6_000, p=30, sparsity=5, shared_sparsity=3)
    return [(sample := design.draw(rep), *fitted(sample, 0.2, range(30), rep)) for rep in range(6)]


def test_parts_are_found(strong):
    for sample, found, _, unit in strong:
        assert sorted(found.shared) == [0, 1, 2]
        for i, truth in enumerate(sample.params):
            fit = found.fits[str(i)]
            kept = [fit.support[k] for k in fit.kept_positions]
            assert sorted(kept) == np.flatnonzero(truth).tolist()
            assert np.abs(fit.beta[fit.kept_positions] / unit[kept] - truth[kept]).max() < 0.1


def test_intervals_cover_at_every_party(strong):
    """Each interval has a noise of its own; what they share moves the variance of the mean little."""
    shares = []
    for sample, found, _, unit in strong:
        hits = []
        for i, truth in enumerate(sample.params):
            one = found.debiased[str(i)]
            hits.append(np.abs(one.params / unit - truth) < 1.96 * np.sqrt(one.variance) / unit)
        shares.append(np.mean(hits))
    low, high = binomial_limits(0.95, 6 * 4 * 30, level=0.999)
    assert low <= np.mean(shares) <= high


def test_the_ledger_counts_every_coordinate(strong):
    """Prices of one interval times how many were released; parties are disjoint."""
    _, _, server, _ = strong[0]
    rho = 0.2
    joint = server.ledger.total().rho
    size = 3 + 2 + 3 + 3 + 1
    many = [1.0, 1.0, 0.65 + 0.35 * 30 / size, 1.0, 1.0, 30, (30 / size) ** 2, 0.4 + 0.6 * 30, 30]
    wanted = rho * sum(share * times for share, times in zip(SHARES.values(), many, strict=True))
    assert joint == pytest.approx(wanted, rel=1e-6)


def test_an_interval_with_its_own_budget_pays_for_every_mean_that_it_uses():
    """A record can have all of its shrunk length in the columns of one interval."""
    common = {"sparsity": 15, "shared_sparsity": 8, "neighbors": 3, "shares": None, "targets": 60, "p": 800}
    plan = check_site_plan(0.0137, centered=True, rows=[4_000] * 15, accounting="per-interval", **common)
    columns = interval_columns(8, 7, extra_selections(7), 3)
    assert plan.means.score_columns == 0.0
    one = plan.means.columns * columns / 800 + plan.means.response + plan.means.residuals
    one += plan.means.forms / 60
    budget = sum(getattr(plan.budget, field.name) for field in fields(plan.budget))
    assert one + budget == pytest.approx(plan.interval) == pytest.approx(0.0137)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize(
    ("machine", "centered"), [(True, True), (True, False), (False, False), (False, True)]
)
def test_a_joint_plan_costs_its_budget_and_others_what_they_say(joint, machine, centered):
    design = LassoDesign(machines=2, n=3_000, p=12, sparsity=3, shared_sparsity=2)
    targets = [0, 5, 7]
    plan = check_site_plan(
        0.5,
        sparsity=3,
        shared_sparsity=2,
        neighbors=3,
        shares=None,
        targets=3,
        p=12,
        rows=[3_000, 3_000],
        accounting="joint" if joint else "per-interval",
        precision="machine" if machine else "pooled",
        centered=centered,
    )
    options = {"shared": 2, "own": 1, "joint": joint, "own_precision": machine, "means": plan.means}
    found, server, _ = fitted(design.draw(0), plan.budget, targets, 1, **options)
    before = plan.means.columns + plan.means.response  # released before the fits
    assert server.ledger.total().rho == pytest.approx(plan.joint - before, rel=1e-9)
    labels = [entry.label for entry in server.ledger.entries]
    assert ("means of columns at one site" in labels) is (machine and centered)
    assert plan.joint == 0.5 if joint else plan.joint > 0.5
    assert plan.interval == pytest.approx(0.5) if not joint else plan.interval < 0.5
    assert set(found.debiased) == {"0", "1"}
    for i, truth in enumerate(design.draw(0).params):
        one = found.debiased[str(i)]
        assert (np.abs(one.params - truth[targets]) < 5.0 * np.sqrt(one.variance) + 0.03).all()


def request(**changes):
    given = {
        "epsilon": 4.0,
        "delta": 1e-5,
        "sparsity": 5,
        "shared_sparsity": 3,
        "heterogeneous": True,
        "accounting": "per-interval",
        "targets": "all",
        "rng": 0,
    }
    return given | changes


@pytest.fixture(scope="module")
def model():
    sample = LassoDesign(machines=3, n=4_000, p=24, sparsity=5, shared_sparsity=3).draw(1)
    labels = np.array(["north", "south", "west"])[sample.machines]
    fitting = pi.DebiasedLasso(sample.y, sample.X, x_bound=3.5, y_bounds=(-5, 5), sites=labels)
    return fitting, sample


@pytest.mark.audit
def test_results_by_party_and_the_joint_cost(model):
    fitting, sample = model
    before = len(fitting.ledger.entries)
    fit = fitting.fit(**request())
    assert fit.labels == ("north", "south", "west")
    assert np.flatnonzero(fit.shared_params).tolist() == [0, 1, 2]
    for i, label in enumerate(fit.labels):
        one = fit.site(label)
        assert one.nobs == 4_000
        assert {f"x{j + 1}" for j in np.flatnonzero(sample.params[i])} == set(one.selected)
        assert (np.abs(one.params - sample.params[i]) < 4.5 * one.bse).all()
        assert 2.5 < one.simultaneous(0.05, rng=0).critical_value < 3.6
    assert fit.privacy.epsilon(1e-5) > 4.0 == fit.interval_epsilon
    assert "Joint epsilon" in str(one.summary())
    table = fit.to_frame()
    assert table.index.tolist() == ["north", "south", "west"]
    assert (table["narrowest"] <= table["widest"]).all()
    assert (table["selected"] == 5).all()
    text = str(fit.summary())
    assert "north" in text
    assert "Joint epsilon" in text
    assert "x1, x2, x3" in text
    assert len(fit.privacy.entries) == len(fitting.ledger.entries) - before
    with pytest.raises(ArgumentError, match="unknown site"):
        fit.site("east")


def test_a_limit_is_on_the_joint_cost(model):
    _, sample = model
    ledger = pi.Ledger(pi.Budget(epsilon=6.0, delta=1e-5))
    fitting = pi.DebiasedLasso(
        sample.y, sample.X, x_bound=3.5, y_bounds=(-5, 5), sites=sample.machines, ledger=ledger
    )
    with pytest.raises(BudgetExceededError):
        fitting.fit(**request())
    assert len(ledger.entries) == 0


@pytest.mark.parametrize(
    ("changes", "kind", "match"),
    [
        ({"heterogeneous": False}, NotAvailableError, "per-interval"),
        ({"heterogeneous": False, "accounting": "joint", "targets": [0]}, ArgumentError, "shared_sparsity"),
        ({"shared_sparsity": None}, ArgumentError, "requires shared_sparsity"),
        ({"shared_sparsity": 5}, ArgumentError, "must be less"),
        ({"targets": "selected"}, ArgumentError, "targets='all'"),
        ({"shares": {"score": 1.0}}, ArgumentError, "shares= must be a mapping"),
        ({"sparsity": 23}, ArgumentError, "too large"),
    ],
)
def test_bad_requests_spend_nothing(model, changes, kind, match):
    fitting, _ = model
    before = len(fitting.ledger.entries)
    with pytest.raises(kind, match=match):
        fitting.fit(**request(**changes))
    assert len(fitting.ledger.entries) == before


@pytest.mark.audit
def test_steps_that_went_astray_are_marked_at_every_party():
    """Equal correlations of .5 under a small joint budget: .69 of such intervals held, in 12 fits."""
    design = LassoDesign(machines=4, n=2_000, p=50, sparsity=6, shared_sparsity=3, features="equicorrelated")
    sample = design.draw(1)
    model = pi.DebiasedLasso(sample.y, sample.X, x_bound=4.0, y_bounds=(-5.0, 5.0), sites=sample.machines)
    options = {"sparsity": 6, "shared_sparsity": 3, "heterogeneous": True, "targets": [0, 1, 49], "rng": 1}
    lost = model.fit(epsilon=1.0, delta=0.5 / len(sample.y), **options)
    for label in lost.labels:
        with pytest.warns(WeakIdentificationWarning, match="did not converge"):
            lost.site(label).conf_int()
        assert DIVERGED_NOTE in lost.site(label).notes
    exact = model.fit(epsilon=math.inf, **options)
    assert all(DIVERGED_NOTE not in one.notes for one in exact.results.values())


@pytest.mark.parametrize(
    ("sparsity", "shared", "remedy"),
    [
        (4, 2, "pass at most sparsity=3, with which the fit selects 6 columns$"),
        (6, 5, "pass a smaller shared_sparsity= or more columns$"),
    ],
)
def test_a_sparsity_that_leaves_no_extra_columns_is_refused_with_the_largest(sparsity, shared, remedy):
    words = {"neighbors": 2, "shares": None, "targets": 1, "p": 6, "rows": [100, 100]}
    with pytest.raises(ArgumentError, match=rf"sparsity={sparsity} is too large for 6 columns.*{remedy}"):
        check_site_plan(1.0, sparsity=sparsity, shared_sparsity=shared, **words)
    if "sparsity=3" in remedy:
        assert check_site_plan(1.0, sparsity=3, shared_sparsity=shared, **words).own_sparsity == 1


def with_other_means(design, seed, spread):
    """Draw sites whose columns have means of their own, and constants too."""
    sample = design.draw(seed)
    rng = np.random.default_rng([7, seed])
    sites = len(sample.params)
    means = spread * rng.standard_normal((sites, design.p))
    constants = np.einsum("ij,ij->i", means, sample.params) + 0.5 * rng.standard_normal(sites)
    y = sample.y + constants[sample.machines]
    model = pi.DebiasedLasso(
        y, sample.X + means[sample.machines], x_bound=4.5, y_bounds=(-6.0, 6.0), sites=sample.machines
    )
    return model, sample.params


def shares_covered(design, seeds, spread, **options):
    """Return the coverage of fits, and whether each notes that means of columns differ."""
    shares = []
    noted = []
    for seed in seeds:
        model, params = with_other_means(design, seed, spread)
        fit = model.fit(**request(rng=seed, **options))
        targets = options.get("targets", range(design.p))
        for site, truth in enumerate(params):
            low, high = fit.site(site).conf_int().to_numpy().T
            shares.append(((low <= truth[list(targets)]) & (truth[list(targets)] <= high)).mean())
        notes = [str(note) for site in range(len(params)) for note in fit.site(site).notes]
        noted.append(any("differ from the means of all sites" in note for note in notes))
    return float(np.mean(shares)), noted


SIX_SITES = LassoDesign(machines=6, n=4_000, p=60, sparsity=6, shared_sparsity=3)


@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
def test_means_of_columns_that_differ_between_sites_leave_intervals_their_level():
    """Without released means of the forms coverage was 0.70: residual means times such means were a bias."""
    shares, noted = shares_covered(SIX_SITES, range(2), 0.2, epsilon=0.8, delta=2e-5, sparsity=6)
    assert shares > 0.92
    shares, noted = shares_covered(SIX_SITES, range(1), 0.5, epsilon=0.8, delta=2e-5, sparsity=6)
    assert shares > 0.75  # it was 0.51
    assert all(noted)


@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
@pytest.mark.parametrize(("spread", "noted"), [(0.0, False), (0.5, False), (1.0, True)])
def test_regressions_of_each_site_note_large_differences_of_means(spread, noted):
    model, _ = with_other_means(SIX_SITES, 1, spread)
    options = {"accounting": "joint", "delta": 2e-5, "targets": [0, 1, 2, 3, *range(5, 60, 6)], "sparsity": 6}
    fit = model.fit(**request(rng=1, precision="machine", **options))
    for site in range(SIX_SITES.machines):
        texts = [str(note) for note in fit.site(site).notes]
        assert any("differ from the means of all sites" in text for text in texts) is noted


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
@pytest.mark.parametrize(
    ("accounting", "epsilon", "targets", "least"),
    [("joint", 4.0, [0, 1, 2, 3, *range(5, 60, 6)], 0.88), ("per-interval", 0.8, list(range(60)), 0.84)],
)
def test_large_differences_of_means_are_noted_and_cost_little_coverage(accounting, epsilon, targets, least):
    options = {"accounting": accounting, "epsilon": epsilon, "delta": 2e-5, "targets": targets, "sparsity": 6}
    shares, noted = shares_covered(SIX_SITES, range(12), 0.5, **options)
    assert shares > least
    assert np.mean(noted) >= 0.9
    shares, noted = shares_covered(SIX_SITES, range(8), 0.0, **options)
    assert shares > 0.93
    assert not any(noted)


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("spread", [0.0, 0.2, 0.5])
@pytest.mark.parametrize(
    ("accounting", "epsilon", "targets"),
    [("joint", 4.0, [0, 1, 2, 3, *range(5, 60, 6)]), ("per-interval", 0.8, list(range(60)))],
)
def test_regressions_of_each_site_keep_their_level_where_means_differ(accounting, epsilon, targets, spread):
    """Coverage was 0.84 and 0.71 at 0.5 standard deviations with columns about the means of all rows."""
    options = {"accounting": accounting, "epsilon": epsilon, "delta": 2e-5, "targets": targets, "sparsity": 6}
    shares, _ = shares_covered(SIX_SITES, range(4), spread, precision="machine", **options)
    assert shares > 0.92
