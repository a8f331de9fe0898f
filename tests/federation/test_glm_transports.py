"""Regressions over eight sites: pooled maximum likelihood, and the same numbers on every transport."""

from contextlib import ExitStack

import numpy as np
import pytest
from glm_sites import NAMES, TRUSTS, Doors, fits_of, model_of, pooled, sites_of

import privinf as pi
from privinf.federation import InProcessFederation, SiteDaemon
from privinf.federation.flower import FlowerFederation, client_app


@pytest.fixture(scope="module")
def in_process():
    return fits_of(InProcessFederation(sites_of()))


def check_same(found, expected):
    assert found.keys() == expected.keys()
    for fit, numbers in expected.items():
        np.testing.assert_allclose(found[fit], numbers, rtol=1e-8, err_msg=fit)


@pytest.mark.audit
@pytest.mark.parametrize("trust", TRUSTS)
def test_without_noise_it_is_pooled_maximum_likelihood(in_process, trust):
    np.testing.assert_allclose(in_process[f"{trust}, exact"][:6], pooled(), rtol=0.0, atol=1e-6)


@pytest.mark.audit
def test_the_same_over_sockets(in_process, tmp_path):
    sites = sites_of()
    with ExitStack() as stack:
        for name, site in sites.items():
            stack.enter_context(SiteDaemon(site, name, tmp_path / name).started())
        check_same(fits_of(Doors(tmp_path)), in_process)


@pytest.mark.audit
@pytest.mark.parametrize("daemons", [False, True], ids=["sites at the nodes", "daemons"])
def test_the_same_over_flowers_messages(in_process, tmp_path, monkeypatch, daemons):
    pytest.importorskip("flwr")
    from local_grid import LocalGrid, act_as_runner

    act_as_runner(monkeypatch)
    sites = sites_of()
    with ExitStack() as stack:
        if daemons:
            for name, site in sites.items():
                stack.enter_context(SiteDaemon(site, name, tmp_path / name).started())
        app = client_app(None if daemons else lambda config: (config["site"], sites[config["site"]]))
        configs = [{"site": name, "socket": str(tmp_path / name)} for name in reversed(NAMES)]
        check_same(fits_of(FlowerFederation(LocalGrid(app, configs), NAMES)), in_process)


@pytest.mark.parametrize("trust", TRUSTS)
def test_every_site_pays_what_the_report_says(trust):
    sites = sites_of()
    model = model_of(InProcessFederation(sites), trust)
    fit = model.fit(epsilon=8.0, delta=1e-5, optimizer=pi.Newton(rounds=1), rng=0)
    asked = [entry.label for entry in fit.privacy.entries]
    for site in sites.values():
        assert [entry.label for entry in site.ledger.entries] == asked
        assert site.ledger.total().mu == pytest.approx(fit.privacy.mu, rel=1e-12)
