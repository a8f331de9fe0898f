"""First-order private optimisers of FederatedGLM: price, limits without noise, losses, what is sent."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.glm.plan import FitRequest
from privinf.glm.running import sums_of

D, N = 4, 8000
BETA = np.array([1.0, -0.5, 0.0, 0.4])
SETTINGS = {
    "DPSGD": pi.DPSGD(step=2.0, clip=2.0),
    "DPAdam": pi.DPAdam(step=0.1, clip=2.0),
    "RandomSketch": pi.RandomSketch(k=2, step=1.0, clip=2.0, epochs=10),
    "DOME": pi.DOME(k=3, most_learned=1, step=1.0, clip=2.0, epochs=10),
    "DOME, centred": pi.DOME(k=3, most_learned=1, step=0.5, clip=2.0, epochs=10, centre=True),
}


def draw(n=N, d=D, beta=BETA, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return (rng.uniform(size=n) < expit(X @ beta)).astype(float), X


def model_of(y, X, sites=4, **options):
    parts = [(y[i::sites], X[i::sites]) for i in range(sites)]
    return pi.FederatedGLM.from_arrays(parts, bounds=[(-1, 1)] * X.shape[1], family="binomial", **options)


@pytest.mark.audit
@pytest.mark.parametrize("name", SETTINGS)
def test_without_noise_the_one_step_estimate_is_near_maximum_likelihood(name):
    y, X = draw()
    fit = model_of(y, X).fit(epsilon=np.inf, optimizer=SETTINGS[name])
    pooled = sm.GLM(y, X, family=sm.families.Binomial()).fit(cov_type="HC0")
    assert np.abs(fit.trace.iloc[-1] - pooled.params).max() < 0.25
    np.testing.assert_allclose(fit.params, pooled.params, atol=0.01)
    np.testing.assert_allclose(fit.bse, pooled.bse, rtol=0.03)


@pytest.mark.audit
@pytest.mark.parametrize("name", SETTINGS)
def test_with_noise_intervals_still_cover(name):
    y, X = draw()
    fit = model_of(y, X).fit(epsilon=3.0, delta=1e-6, optimizer=SETTINGS[name], rng=1)
    assert fit.privacy.epsilon(1e-6) == pytest.approx(3.0, rel=1e-5)
    assert (np.abs(fit.params - BETA) < 3.7 * fit.bse).all()
    assert name.partition(",")[0] in fit.method


@pytest.mark.audit
def test_rounds_that_end_far_from_the_solution_leave_no_intervals():
    y, X = draw(beta=4.0 * BETA)
    short, long = (
        model_of(y, X).fit(epsilon=4.0, delta=1e-6, optimizer=optimizer, rng=0)
        for optimizer in (pi.DPSGD(step=1e-3), pi.Newton())
    )
    assert "did not converge" in " ".join(short.summary().as_text().split())
    with pytest.raises(NotAvailableError, match="did not converge"):
        short.conf_int()
    assert (np.abs(long.params - 4.0 * BETA) < 4.0 * long.bse).all()


@pytest.mark.audit
@pytest.mark.parametrize("epochs", [1, 4])
def test_a_record_pays_once_an_epoch_whatever_the_number_of_batches(epochs):
    y, X = draw(2000)
    optimizer = pi.DPSGD(epochs=epochs, batches=7, clip=0.5)
    ledger = pi.Ledger(pi.Budget(epsilon=2.0, delta=1e-6))
    fit = model_of(y, X, ledger=ledger).fit(epsilon=2.0, delta=1e-6, optimizer=optimizer, rng=0)
    mu = pi.Budget(epsilon=2.0, delta=1e-6).mu
    assert fit.privacy.mu == pytest.approx(mu, rel=1e-9)
    gradients = [entry for entry in fit.privacy.entries if entry.label == "gradient"]
    assert len(gradients) == 7 * epochs
    # rho = E (2C)^2 / (2 sigma^2)
    sigma = gradients[0].noise["scale"]
    assert epochs * (2 * 0.5 / sigma) ** 2 == pytest.approx(0.2 * mu**2, rel=1e-6)
    assert len({entry.scope for entry in gradients}) == 7
    whole = sum(entry.loss.mu**2 for entry in gradients)
    assert whole == pytest.approx(7 * 0.2 * mu**2, rel=1e-9)


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_batches_stand_in_parallel_in_the_sites_own_ledgers(trust):
    y, X = draw(2000)
    model = model_of(y, X, trust=trust)
    for seed in (0, 5):
        fit = model.fit(
            epsilon=2.0, delta=1e-6, optimizer=pi.DPSGD(epochs=2, batches=3), rng=0, public_seed=seed
        )
    mu2 = pi.Budget(epsilon=2.0, delta=1e-6).mu ** 2
    for name, site in model._rows.federation._sites.items():
        # the second fit's batches cut across those of the first
        assert site.ledger.total().mu ** 2 == pytest.approx(2.0 * mu2, rel=1e-9)
        scopes = [entry.scope for entry in site.ledger.entries if entry.label == "gradient"]
        assert scopes.count((f"batch of 3 by seed 5 at {site.journal.place(name)}=2",)) == 2
        assert len(set(scopes)) == 6
    assert fit.privacy.cumulative.mu**2 == pytest.approx(2.0 * mu2, rel=1e-9)


@pytest.mark.audit
def test_beyond_the_dimension_rule_the_budget_goes_to_the_fit():
    d = 60
    beta = np.zeros(d)
    beta[:4] = 2.0 * BETA
    y, X = draw(20_000, d, beta)
    model = model_of(y, X)
    fit = model.fit(epsilon=2.0, delta=1e-6, intervals="optional", rng=0)
    assert "DPSGD" in fit.method
    assert {entry.label for entry in fit.privacy.entries} == {"gradient"}
    assert fit.privacy.epsilon(1e-6) == pytest.approx(2.0, rel=1e-5)
    with pytest.raises(NotAvailableError, match="no intervals"):
        fit.conf_int()
    assert "FederatedGLM" in fit.summary().as_text()

    def excess(params):
        linear = X @ np.asarray(params)
        return np.mean(np.logaddexp(0.0, linear) - expit(X @ beta) * linear)

    assert excess(fit.params) < excess(np.zeros(d)) - 0.3 * (excess(np.zeros(d)) - excess(beta))
    with pytest.raises(NotAvailableError, match="hide the Hessian"):
        model.fit(epsilon=2.0, delta=1e-6, optimizer=pi.Newton(), rng=0)
    assert "Newton" in model_of(*draw(40_000)).fit(epsilon=2.0, delta=1e-6, rng=0).method


@pytest.mark.audit
def test_what_is_sent_is_counted():
    d = 60
    y, X = draw(1000, d, np.zeros(d))
    model = model_of(y, X)
    sent = {
        name: model.fit(epsilon=1.0, delta=1e-6, optimizer=option, rng=0).communication
        for name, option in {
            "DPSGD": pi.DPSGD(epochs=1),
            "RandomSketch": pi.RandomSketch(k=6, epochs=1),
            "DOME": pi.DOME(k=6, most_learned=2, epochs=1),
        }.items()
    }
    assert (sent["DPSGD"]["floats_up"] == d).all()
    assert (sent["RandomSketch"]["floats_up"] == 6).all()
    assert (sent["DOME"]["bytes_up"] == 48).all()
    assert (sent["RandomSketch"]["floats_down"] == d).all()
    assert sent["DOME"]["floats_down"].max() == 3 * d


@pytest.mark.audit
def test_a_known_span_costs_k_of_d_in_the_released_gradient():
    """Lemma 3.1 on releases of the server: scores lie in a known space, clip and price are the same."""
    rng = np.random.default_rng(8)
    d, k, releases = 400, 80, 150
    basis = np.linalg.qr(rng.standard_normal((d, k)))[0]
    X = 0.4 * rng.standard_normal((200, k)) @ basis.T
    assert np.abs(X).max() < 1.0
    y = rng.integers(0, 2, 200).astype(float)
    model = model_of(y, X, sites=1)
    sums = sums_of(model._rows, model._trust, model.ledger, 0, FitRequest())
    theta, settings = np.zeros(d), {"clip": 10.0, "batches": 1, "batch": 0, "seed": 0}
    truth, _ = sums.batch(theta, math.inf, **settings)
    np.testing.assert_allclose(basis @ (basis.T @ truth), truth, atol=1e-12)
    full = sketched = 0.0
    for _ in range(releases):
        full += ((sums.batch(theta, 1.0, **settings)[0] - truth) ** 2).sum()
        inside = basis @ sums.batch(theta, 1.0, **settings, basis=basis)[0]
        sketched += ((inside - truth) ** 2).sum()
    assert full / releases == pytest.approx(d * (2 * 10.0 / 200) ** 2, rel=0.02)
    assert sketched / full == pytest.approx(k / d, rel=0.02)


@pytest.mark.audit
def test_public_seeds_fix_batches_and_probes():
    y, X = draw(2000)
    fits = [
        model_of(y, X).fit(epsilon=np.inf, optimizer=SETTINGS["DOME"], public_seed=seed).trace.iloc[1]
        for seed in (0, 0, 1)
    ]
    assert (fits[0] == fits[1]).all()
    assert (fits[0] != fits[2]).any()


@pytest.mark.audit
def test_variants_of_dome():
    assert (pi.DOME().centre, pi.DOME().precondition, pi.DOME().adam) == (False, False, False)
    paper = pi.DOME(variant="paper")
    assert (paper.centre, paper.precondition, paper.adam, paper.probes) == (True, True, True, "orthonormal")
    assert paper.average == 0.0
    assert not pi.DOME(variant="paper", centre=False).centre
    y, X = draw(3000)
    option = pi.DOME(variant="paper", k=3, most_learned=1, step=0.02, clip=2.0)
    fit = model_of(y, X).fit(epsilon=4.0, delta=1e-6, optimizer=option, rng=0)
    # theta, moments and basis
    assert fit.communication["floats_down"].max() == D * 4
    assert np.isfinite(fit.trace).all().all()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: pi.DPSGD(epochs=0),
        lambda: pi.DPSGD(batches=0),
        lambda: pi.DPSGD(step=0.0),
        lambda: pi.DPSGD(clip=math.inf),
        lambda: pi.DPSGD(average=1.0),
        lambda: pi.RandomSketch(k=0),
        lambda: pi.DOME(k=5),
        lambda: pi.DOME(energy=1.0),
        lambda: pi.DOME(variant="other"),
        lambda: pi.DOME(probes="other"),
        lambda: pi.DOME(centre=1),
    ],
)
def test_bad_options(wrong):
    with pytest.raises(ArgumentError):
        wrong()


def test_bad_requests_spend_nothing():
    y, X = draw(500)
    model = model_of(y, X)
    for options in ({"optimizer": "dome"}, {"optimizer": pi.DOME(k=9)}, {"public_seed": -1}):
        with pytest.raises(ArgumentError):
            model.fit(epsilon=1.0, delta=1e-6, rng=0, **options)
    assert len(model.ledger) == 0
