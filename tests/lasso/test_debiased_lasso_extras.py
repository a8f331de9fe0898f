"""Extras of the debiased lasso: requests, prices, joint coverage by both methods, what results say."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import PrivacyReport
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import TrustedServer
from privinf.lasso.debiasing import debias, debias_all
from privinf.lasso.extras import EXTRA_SHARES, Extras, ExtrasPlan, check_extras, run_extras
from privinf.lasso.fit import center_response, sparse_fit
from privinf.lasso.plan import DebiasingPrices, LassoOptions, SparseFitPrices, check_plan
from privinf.lasso.results import LassoResults
from privinf.lasso.results.building import FittedTargets, linear_results
from privinf.lasso.sums import SparseSums
from studies.simulation import binomial_limits

P, N, TARGETS = 12, 3_000, [1, 4, 8]
BETA = np.zeros(P)
BETA[[1, 6]] = 0.6, -0.4
ALL = {"restricted_eigenvalues": True, "noise_variance": True, "bias_bound": True, "bootstrap_draws": 59}


def draw(seed, n=N):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P))
    X[:, 1:] = 0.5 * X[:, :-1] + math.sqrt(0.75) * X[:, 1:]
    return X @ BETA + 0.5 * rng.standard_normal(n), X


def fitted(seed=0, rho=3.0, targets=TARGETS, rng=0, scale=1.0, n=N, bound=5.0, **options):
    """Return the results of a fit with extras, the steps of `DebiasedLasso.fit` one by one."""
    y, X = draw(seed, n)
    rows = pi.DebiasedLasso(y, X * scale, x_bound=bound * scale, y_bounds=(-6, 6))._rows
    every = targets == "all"
    plan = check_plan(
        LassoOptions(sparsity=2, targets=targets), rho=rho, delta=1e-5, names=rows.names, constant=None
    )
    asked = check_extras(**options)
    plan = replace(plan, rho=asked.basic(rho))
    ledger = pi.Ledger()
    server = TrustedServer(rows.federation, ledger=ledger, rng=rng)
    sums = SparseSums(server=server, units=rows.units(), n=n)
    if not every:
        center_response(sums, plan.response_price)
    sums.centered = not every
    fit = sparse_fit(sums, plan.sparsity, plan.shares.sparse_fit(plan.rho, all_targets=every))
    chosen = sorted(fit.support) if plan.targets is None else list(plan.targets)
    prices = plan.shares.debiasing(plan.rho, all_targets=every)
    if every:
        found = debias_all(sums, fit, prices)
    else:
        found = debias(sums, fit, chosen, prices, neighbors=plan.neighbors)
    extras = run_extras(sums, fit, found, asked, rho)
    report = PrivacyReport.from_entries(server.ledger.entries, ledger=ledger, delta=1e-5)
    joint = FittedTargets(fit=fit, targets=chosen, debiased=found, debiased_targets=chosen)
    return linear_results(rows, plan, sums, joint, report, extras, "robust" if every else "mean")


@pytest.fixture(scope="module")
def full():
    return fitted(rho=30.0, **ALL)


def test_what_needs_which_and_what_it_takes():
    assert check_extras() == ExtrasPlan()
    assert check_extras().share == 0.0
    assert check_extras().basic(2.0) == 2.0
    bound = check_extras(bias_bound=True)
    assert bound.eigenvalues
    assert bound.share == EXTRA_SHARES["eigenvalues"] == 0.05
    everything = check_extras(**ALL)
    assert everything.share == pytest.approx(0.05 + 0.03 + 0.15)
    assert everything.basic(1.0) == pytest.approx(0.77)
    assert everything.basic(math.inf) == math.inf
    own = check_extras(bootstrap_draws=20, extra_shares={"bootstrap": 0.4})
    assert own.share == 0.4


@pytest.mark.parametrize(
    "wrong",
    [
        {"bootstrap_draws": 19},
        {"bootstrap_draws": 50.0},
        {"bootstrap_multipliers": "normal"},
        {"extra_shares": {"bootstrap": 0.2}},
        {"bias_bound": True, "extra_shares": {"noise_variance": 0.1}},
        {"noise_variance": True, "extra_shares": {"noise_variance": 1.0}},
        {"noise_variance": True, "extra_shares": {"noise_variance": 0.0}},
        {"noise_variance": True, "extra_shares": [0.1]},
        {"public_seed": -1},
        {
            "noise_variance": True,
            "bootstrap_draws": 30,
            "extra_shares": {"noise_variance": 0.5, "bootstrap": 0.5},
        },
    ],
)
def test_wrong_requests(wrong):
    with pytest.raises(ArgumentError):
        check_extras(**wrong)


def test_the_price_of_everything_is_the_budget():
    result = fitted(rho=5.0, rng=None, **ALL)
    # No column is left outside fit and targets: the test for missed ones costs nothing.
    assert result.privacy.rho == pytest.approx(5.0 * (1.0 - 0.77 * 0.05), rel=1e-6)
    assert result.privacy.rho <= 5.0
    assert not result.privacy.simulated
    parts = {"bootstrap": 0.15, "restricted eigenvalue": 0.05, "noise variance": 0.03}
    for word, share in parts.items():
        spent = [entry.loss for entry in result.privacy.entries if word in entry.label]
        assert pi.accounting.compose(spent).rho == pytest.approx(5.0 * share, rel=1e-6)


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore:.*not reliable:privinf.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("rho", [math.inf, 2.0])
def test_joint_coverage_by_simulation_and_by_the_private_bootstrap(rho):
    """59 draws: the 57th is the 95% point, exactly so where no noise is corrected for."""
    reps, hits = 60, {"simulation": [], "private-bootstrap": []}
    rejected = []
    for rep in range(reps):
        result = fitted(1_000 + rep, rho, rng=rep, n=1_500, bootstrap_draws=59, public_seed=rep)
        for method, found in hits.items():
            ends = result.simultaneous(0.05, method=method, draws=2_000, rng=rep).conf_int().to_numpy()
            found.append(((ends[:, 0] <= BETA[TARGETS]) & (BETA[TARGETS] <= ends[:, 1])).all())
        rejected.append(result.max_test(BETA[TARGETS], alpha=0.2, rng=rep).pvalue <= 0.2)
    low, high = binomial_limits(0.95, reps, level=0.999)
    assert low <= np.mean(hits["simulation"]) <= high
    assert low <= np.mean(hits["private-bootstrap"])
    if math.isinf(rho):
        assert np.mean(hits["private-bootstrap"]) <= high
    else:
        assert np.mean(hits["private-bootstrap"]) >= np.mean(hits["simulation"])
    low, high = binomial_limits(0.2, reps, level=0.999)
    assert low <= np.mean(rejected) <= high


def test_joint_inference_from_released_draws(full):
    free = full.simultaneous(0.05, rng=0)
    assert free.method == "gaussian"
    assert full.simultaneous(0.05, method="gaussian", rng=0).critical_value == free.critical_value
    joint = full.simultaneous(0.05, method="private-bootstrap")
    assert joint.critical_value > free.critical_value
    assert (joint.pvalues == joint.max_t.single_step).all()
    widths = np.diff(joint.conf_int().to_numpy(), axis=1)[:, 0]
    bias = 0.0 if full.estimate.bias is None else full.estimate.bias
    assert np.allclose(widths, 2.0 * (joint.critical_value * full.bse + bias))
    assert (joint.reject == (joint.tvalues.abs() > joint.critical_value)).all()
    one = full.simultaneous(0.05, "x2 = 0.6", method="private-bootstrap")
    assert one.critical_value == joint.critical_value
    assert one.tvalues.iloc[0] == pytest.approx((full.params["x2"] - 0.6) / full.bse["x2"])
    assert one.pvalues.iloc[0] > joint.pvalues["x2"]
    with pytest.raises(NotAvailableError, match="simulation"):
        full.simultaneous(0.05, "x2 = x5", method="private-bootstrap")
    with pytest.raises(ArgumentError):
        full.simultaneous(method="bootstrap")
    with pytest.raises(NotAvailableError, match="bootstrap_draws"):
        full.simultaneous(0.001, method="private-bootstrap")


@pytest.mark.parametrize("method", ["simulation", "private-bootstrap"])
def test_the_max_test(full, method):
    test = full.max_test(method=method, rng=0)
    assert test.statistic == full.tvalues.abs().max()
    assert test.rejected == ("x2",)
    assert test.pvalue <= 0.05
    assert test.statistic > test.critical_value
    true = full.max_test(BETA[TARGETS], method=method, rng=0)
    assert true.pvalue > 0.001
    assert true.statistic == pytest.approx(((full.params - BETA[TARGETS]).abs() / full.bse).max())
    part = full.max_test(0.0, ["x5", "x9"], method=method, rng=0)
    assert part.statistic == full.tvalues[["x5", "x9"]].abs().max()
    assert (part.pvalue <= 0.05) == bool(part.rejected)
    for wrong in ({"which": ["x99"]}, {"which": []}, {"b0": [0.0, 1.0]}):
        with pytest.raises(ArgumentError):
            full.max_test(**wrong)


def test_noise_variance_and_eigenvalues(full):
    variance = full.noise_variance
    assert abs(variance.value - 0.25) < 4.0 * math.hypot(variance.noise_sd, 0.25 * math.sqrt(2.2 / N))
    found = full.restricted_eigenvalues
    values = np.linalg.eigvalsh(0.5 ** np.abs(np.subtract.outer(np.arange(P), np.arange(P))))
    room = 4.0 * found.largest_sd + 4.0 * found.selection_scale + 0.1
    assert values[0] - room < found.smallest < 1.0 < found.largest < values[-1] + room
    assert found.sparsity == 2


def test_eigenvalues_do_not_depend_on_how_generous_the_bounds_are(full):
    wide = fitted(rho=30.0, bound=15.0, rng=1, **ALL).restricted_eigenvalues
    assert wide.smallest == pytest.approx(full.restricted_eigenvalues.smallest, rel=0.4)


def test_the_bias_bound(full):
    assert (full.bias_bound > 0.0).all()
    assert list(full.bias_bound.index) == list(full.params.index)
    plain, wide = full.conf_int(0.1), full.conf_int(0.1, bias_bound=True)
    assert np.allclose(plain[0] - wide[0], full.bias_bound)
    assert np.allclose(wide[1] - plain[1], full.bias_bound)
    text = str(full.summary())
    assert "(bias bound)" in text
    assert "worst-case bound" in text
    assert f"{full.bias_bound['x2']:.4f}" in text or f"{full.bias_bound['x2']:.2e}" in text
    for render in ("as_html", "as_latex", "as_csv"):
        assert "bias bound" in getattr(full.summary(), render)()
    assert "bias bound" not in str(fitted().summary())


def test_units_of_the_columns(full):
    other = fitted(rho=30.0, scale=4.0, **ALL)
    assert np.allclose(other.bias_bound, full.bias_bound / 4.0)
    assert other.noise_variance.value == pytest.approx(full.noise_variance.value)
    assert other.restricted_eigenvalues.largest == pytest.approx(full.restricted_eigenvalues.largest)
    assert other.simultaneous(method="private-bootstrap").critical_value == pytest.approx(
        full.simultaneous(method="private-bootstrap").critical_value
    )


def test_without_noise_there_is_no_slack_and_no_correction():
    result = fitted(rho=math.inf, **ALL)
    assert (result.bias_bound == 0.0).all()
    assert result.noise_variance.noise_sd == 0.0
    assert result.restricted_eigenvalues.smallest_sd == 0.0
    y, X = draw(0)
    squares = np.linalg.lstsq(X, y, rcond=None)[1][0] / (N - P)
    assert result.noise_variance.value == pytest.approx(squares, rel=0.01)
    joint = result.simultaneous(method="private-bootstrap")
    assert 1.8 < joint.critical_value < 3.2


@pytest.mark.audit
@pytest.mark.parametrize(
    ("ask", "option"),
    [
        (lambda r: r.restricted_eigenvalues, "restricted_eigenvalues=True"),
        (lambda r: r.noise_variance, "noise_variance=True"),
        (lambda r: r.bias_bound, "bias_bound=True"),
        (lambda r: r.conf_int(bias_bound=True), "bias_bound=True"),
        (lambda r: r.simultaneous(method="private-bootstrap"), "bootstrap_draws="),
        (lambda r: r.max_test(method="private-bootstrap"), "bootstrap_draws="),
    ],
)
def test_what_was_not_released_says_how_to_ask(ask, option):
    with pytest.raises(NotAvailableError, match=option):
        ask(fitted())


@pytest.mark.audit
def test_an_extra_that_the_noise_hides_does_not_take_the_fit_with_it():
    tiny = dict.fromkeys(("eigenvalues", "noise_variance", "bootstrap"), 1e-9)
    results = [fitted(rho=2.0, rng=seed, extra_shares=tiny, **ALL) for seed in range(8)]
    for result in results:
        assert result.privacy.rho == pytest.approx(2.0 * 0.95, rel=1e-6)
        assert (result.bse > 0.0).all()
        assert "DebiasedLasso" in str(result.summary())
    asked = [
        lambda r: r.bias_bound,
        lambda r: r.noise_variance,
        lambda r: r.simultaneous(method="private-bootstrap"),
    ]
    for ask in asked:
        reasons = []
        for result in results:
            try:
                ask(result)
            except NotAvailableError as reason:
                reasons.append(str(reason))
        assert reasons
        assert not any("did not release" in reason for reason in reasons)


def test_results_with_extras_travel(full, tmp_path):
    full.save(tmp_path / "fit")
    for again in (pickle.loads(pickle.dumps(full)), LassoResults.load(tmp_path / "fit")):
        assert again.noise_variance == full.noise_variance
        assert again.restricted_eigenvalues == full.restricted_eigenvalues
        assert again.bias_bound.equals(full.bias_bound)
        assert again.simultaneous(method="private-bootstrap").critical_value == (
            full.simultaneous(method="private-bootstrap").critical_value
        )
    clean = fitted(rho=math.inf, **ALL)
    clean.save(tmp_path / "clean", records=False)
    assert LassoResults.load(tmp_path / "clean").noise_variance == clean.noise_variance
    with pytest.raises(ValueError, match="read-only"):
        full.bias_bound.to_numpy()[0] = 1.0


def test_every_column_as_a_target():
    result = fitted(rho=60.0, targets="all", n=6_000, **ALL)
    assert len(result.bias_bound) == P
    assert (result.bias_bound > 0.0).all()
    clean = fitted(rho=math.inf, targets="all", bootstrap_draws=2_000)
    free = clean.simultaneous(0.1, rng=0).critical_value
    assert clean.simultaneous(0.1, method="private-bootstrap").critical_value == pytest.approx(free, rel=0.06)


@pytest.mark.parametrize("every", [False, True])
def test_scores_are_standardised_before_they_are_clipped(every):
    y, X = draw(2)
    rows = pi.DebiasedLasso(y, X, x_bound=6.0, y_bounds=(-6, 6))._rows
    sums = SparseSums(server=TrustedServer(rows.federation), units=rows.units(), n=N)
    fit = sparse_fit(
        sums, 2, SparseFitPrices(**dict.fromkeys(("selection", "refit", "scales", "sizes"), math.inf))
    )
    budget = DebiasingPrices(
        neighbors=math.inf, gram=math.inf, sizes=math.inf, slopes=math.inf, score=math.inf
    )
    targets = list(range(P)) if every else TARGETS
    found = debias_all(sums, fit, budget) if every else debias(sums, fit, targets, budget)
    forms = X[:, found.union] / sums.units.scale[found.union] @ found.columns
    assert np.allclose((forms**2).mean(axis=0), 1.0, atol=0.12 if every else 1e-6)


@pytest.mark.audit
def test_selected_targets_carry_a_note():
    selected = fitted(targets="selected")
    assert "selected on the same rows" in " ".join(selected.notes)
    assert "selected on" in str(selected.summary())
    clipped, size, target = fitted().notes
    assert "the privacy noise leaves it between" in size
    assert clipped.startswith("Target: the regression on values clipped")
    assert target.startswith("Target: the mean")


def test_empty_extras_leave_nothing():
    assert Extras().settings(np.ones(3)) == {}
