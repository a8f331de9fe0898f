"""FederatedGLM with sites as the protected units: price, clip, intervals where they are right, refusals."""

import math

import numpy as np
import pytest
from scipy.special import expit

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.glm.plan import FitRequest
from privinf.glm.running import sums_of
from studies.simulation import binomial_limits

BETA = np.array([0.8, -0.5])
MU = pi.Budget(epsilon=2.0, delta=1e-6).mu


def model_of(sites, rows, seed=0, beta=BETA, **options):
    rng = np.random.default_rng([seed, sites])
    d = len(beta)
    X = rng.choice([-1.0, 1.0], (sites * rows, d))
    y = (rng.uniform(size=len(X)) < expit(X @ beta)).astype(float)
    parts = [(y[i::sites], X[i::sites]) for i in range(sites)]
    return pi.FederatedGLM.from_arrays(parts, bounds=[(-1, 1)] * d, family="binomial", **options)


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_a_site_pays_for_every_batch_of_every_epoch(trust, relation):
    model = model_of(12, 60, trust=trust)
    fit = model.fit(
        epsilon=2.0,
        delta=1e-6,
        unit="client",
        client_clip=9.0,
        relation=relation,
        optimizer=pi.DPSGD(epochs=3, batches=4, step=0.5),
        rng=0,
    )
    lines = fit.privacy.entries
    assert len(lines) == 12
    assert {(line.unit, line.relation, line.scope) for line in lines} == {("client", relation, ())}
    assert fit.privacy.mu == pytest.approx(MU, rel=1e-9)
    # 3 x 4 releases of a vector that one site can move by 2C
    moved = 18.0 if relation == "replace-one" else 9.0
    assert lines[0].noise["scale"] == pytest.approx(moved * math.sqrt(12) / MU, rel=1e-5)
    assert all(line.sensitivity.value == pytest.approx(moved, rel=1e-5) for line in lines)
    for site in model._rows.federation._sites.values():
        assert site.ledger.total().mu == pytest.approx(MU, rel=1e-9)
        assert {line.unit for line in site.ledger.entries} == {"client"}
    text = fit.summary().as_text()
    assert "client" in text
    assert fit.privacy.unit == fit.options["Protected unit"] == "client"
    with pytest.raises(NotAvailableError, match="no intervals"):
        fit.conf_int()


@pytest.mark.audit
@pytest.mark.parametrize(
    "optimizer",
    [
        pi.DPSGD(epochs=8, batches=1, step=3.0),
        pi.DPAdam(epochs=8, batches=1, step=0.2),
        pi.RandomSketch(epochs=12, batches=1, step=1.0, k=1),
        pi.DOME(epochs=8, batches=1, step=3.0, k=2, most_learned=1),
    ],
    ids=lambda option: type(option).__name__,
)
def test_every_optimizer_finds_the_coefficients_of_many_sites(optimizer):
    fit = model_of(100, 60).fit(
        epsilon=8.0, delta=1e-6, unit="client", client_clip=25.0, optimizer=optimizer, rng=0
    )
    assert fit.privacy.epsilon(1e-6) <= 8.0
    assert np.abs(fit.params - BETA).max() < 0.4


@pytest.mark.audit
def test_a_tight_clip_of_sites_biases_and_a_wide_one_costs_noise():
    fits = {
        clip: model_of(100, 60).fit(
            epsilon=8.0,
            delta=1e-6,
            unit="client",
            client_clip=clip,
            rng=0,
            optimizer=pi.DPSGD(epochs=8, batches=1, step=3.0, clip=1.0),
        )
        for clip in (0.05, 25.0, 2500.0)
    }
    errors = {clip: np.abs(fit.params - BETA).max() for clip, fit in fits.items()}
    assert errors[25.0] < 0.5 * errors[0.05]
    scales = [fit.privacy.entries[0].noise["scale"] for fit in fits.values()]
    # never more than the clips of all 60 records; with intervals, which take four fifths of the budget
    np.testing.assert_allclose(np.array(scales) / scales[0], [1.0, 500.0, 1200.0 * math.sqrt(5.0)], rtol=1e-6)


@pytest.mark.audit
def test_without_noise_newton_is_maximum_likelihood_whatever_the_unit():
    model = model_of(30, 40)
    fits = [model.fit(epsilon=np.inf, unit=unit) for unit in ("record", "client")]
    np.testing.assert_allclose(fits[1].params, fits[0].params, atol=1e-10)
    np.testing.assert_allclose(fits[1].bse, fits[0].bse, rtol=1e-10)


@pytest.mark.audit
def test_a_clip_that_cannot_bind_changes_nothing_and_one_that_can_takes_the_intervals():
    model = model_of(200, 2)
    wide, plain = (
        model.fit(epsilon=4.0, delta=1e-6, unit="client", client_clip=clip, rng=0)
        for clip in (2.0 * math.sqrt(2.0), None)
    )
    np.testing.assert_allclose(wide.params, plain.params)
    np.testing.assert_allclose(wide.bse, plain.bse)
    tight = model.fit(epsilon=8.0, delta=1e-6, unit="client", client_clip=2.0, rng=0)
    assert "Newton" in tight.method
    assert not any("final" in line.label for line in tight.privacy.entries)
    assert tight.privacy.epsilon(1e-6) == pytest.approx(8.0, rel=1e-5)
    with pytest.raises(NotAvailableError, match="client_clip= may shrink"):
        tight.conf_int()


@pytest.mark.audit
def test_intervals_of_protected_sites_cover():
    count, inside = 12, []
    for seed in range(count):
        model = model_of(150, 4, seed)
        fit = model.fit(epsilon=6.0, delta=1e-6, unit="client", rng=seed)
        inside.append(np.abs(fit.params - BETA) < 1.959964 * fit.bse)
    low, high = binomial_limits(0.95, 2 * count)
    assert low <= np.mean(inside) <= high
    # four rows a site: four times the noise of a record
    record = model.fit(epsilon=6.0, delta=1e-6, optimizer=pi.Newton(), rng=seed)
    assert (fit.bse_privacy / record.bse_privacy).mean() == pytest.approx(4.0, rel=0.25)


def test_sites_of_unequal_size_count_as_the_largest():
    model = model_of(20, 30)
    fit = model.fit(
        epsilon=2.0, delta=1e-6, unit="client", client_clip=5.0, optimizer=pi.DPSGD(batches=1), rng=0
    )
    assert fit.privacy.unit == "client"
    rng = np.random.default_rng(0)
    parts = [(rng.integers(0, 2, n).astype(float), rng.uniform(-1, 1, (n, 1))) for n in (3, 50, 7)]
    uneven = pi.FederatedGLM.from_arrays(parts, bounds=[(-1, 1)], family="binomial")
    clients = uneven._rows.clients("client", None)
    sums = sums_of(uneven._rows, uneven._trust, uneven.ledger, 0, FitRequest(), clients=clients)
    sums.score(np.zeros(1), 1.0)
    (line,) = uneven.ledger.entries
    # scores of one bounded column reach from -1/2 to 1/2 at 0
    assert line.sensitivity.value == pytest.approx(50.0, rel=0.02)
    assert "50 records of one site" in line.sensitivity.derivation


def test_bad_requests_about_units():
    model = model_of(10, 20)
    for wrong, reason in (
        ({"unit": "household"}, "unit"),
        ({"client_clip": 1.0}, "client_clip= can be used only with"),
        ({"unit": "client", "client_clip": -1.0}, "client_clip"),
        ({"unit": "client", "optimizer": pi.DPSGD()}, "requires client_clip="),
        ({"unit": "client"}, "requires client_clip="),
    ):
        with pytest.raises(ArgumentError, match=reason):
            model.fit(epsilon=1.0, delta=1e-6, rng=0, **wrong)
    with pytest.raises(NotAvailableError, match="hide the Hessian"):
        model.fit(epsilon=1.0, delta=1e-6, rng=0, unit="client", optimizer=pi.Newton())
    assert len(model.ledger) == 0
