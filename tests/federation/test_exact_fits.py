"""Every federated model without noise, on every transport: statsmodels' pooled fit, to eight digits.

`DebiasedLasso` has no counterpart in statsmodels: its reference is itself, on one table with all rows.
"""

from contextlib import ExitStack

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.federation import (
    InProcessFederation,
    Site,
    SiteDaemon,
    SitePolicy,
    SocketFederation,
    pinned_keys,
)
from privinf.federation.flower import FlowerFederation, client_app

NAMES = ("north", "south", "west")
SCHEMA = pi.Schema({"y": (-4, 4), "hit": (0, 1), "count": (0, 12), "u": (-1, 1), "v": (0, 2), "w": (-1, 1)})
RIGHT = "u + v + w"
KEYS, ROSTER = pinned_keys(NAMES)
OPEN = SitePolicy(trusted_server=True, secure_sums=True, simulation=True)


def table():
    rng = np.random.default_rng(5)
    u, v, w = rng.uniform(-1, 1, 900), rng.uniform(0, 2, 900), rng.uniform(-1, 1, 900)
    line = u - 0.5 * v
    return pd.DataFrame(
        {
            "y": np.clip(0.5 + line + rng.normal(0, 0.5, 900), -4, 4),
            "u": u,
            "v": v,
            "w": w,
            "hit": (rng.uniform(size=900) < 1.0 / (1.0 + np.exp(-0.3 - line))).astype(float),
            "count": np.minimum(rng.poisson(np.exp(0.4 + 0.5 * line)), 12).astype(float),
        }
    )


def sites_of(policy=OPEN):
    parts = dict(zip(NAMES, np.split(np.arange(900), [200, 500]), strict=True))
    return {
        name: Site(table().iloc[parts[name]], SCHEMA, policy=policy, key=KEYS[name], roster=ROSTER)
        for name in NAMES
    }


def glm(response, family):
    def fitted(federation, trust):
        model = pi.FederatedGLM.from_formula(
            f"{response} ~ {RIGHT}", federation, schema=SCHEMA, family=family, trust=trust
        )
        return model.fit(epsilon=np.inf)

    def pooled(trust):
        families = {
            name: getattr(sm.families, name.title())() for name in ("gaussian", "binomial", "poisson")
        }
        model = sm.GLM.from_formula(f"{response} ~ {RIGHT}", table(), family=families[family])
        return model.fit(cov_type="HC0", tol=1e-14, maxiter=100)

    return fitted, pooled


def moments(cov_type):
    def fitted(federation, trust):
        model = pi.MomentOLS.from_formula(f"y ~ {RIGHT}", federation, schema=SCHEMA, trust=trust)
        return model.fit(epsilon=np.inf, cov_type=cov_type)

    def pooled(trust):
        return sm.OLS.from_formula(f"y ~ {RIGHT}", table()).fit(cov_type=cov_type)

    return fitted, pooled


def lasso():
    def fitted(federation, trust):
        model = pi.DebiasedLasso.from_formula(f"y ~ {RIGHT}", federation, schema=SCHEMA, trust=trust)
        return model.fit(epsilon=np.inf, sparsity=2, targets=["u", "w"])

    def pooled(trust):
        whole = Site(table(), SCHEMA, policy=OPEN, key=KEYS["north"], roster=ROSTER)
        if trust == "server":
            return fitted(InProcessFederation({"north": whole}), trust)
        return fitted(InProcessFederation(sites_of()), trust)

    return fitted, pooled


MODELS = {
    "MomentOLS, HC0": moments("HC0"),
    "MomentOLS, nonrobust": moments("nonrobust"),
    "FederatedGLM, gaussian": glm("y", "gaussian"),
    "FederatedGLM, binomial": glm("hit", "binomial"),
    "FederatedGLM, poisson": glm("count", "poisson"),
    "DebiasedLasso": lasso(),
}


@pytest.fixture(scope="module")
def sockets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sockets")
    with ExitStack() as stack:
        for name, site in sites_of().items():
            stack.enter_context(SiteDaemon(site, name, folder / name).started())
        yield {name: folder / name for name in NAMES}


@pytest.fixture(params=["sockets", "Flower"])
def federation(request, sockets, monkeypatch):
    if request.param == "sockets":
        return SocketFederation(sockets, timeout=600.0)
    pytest.importorskip("flwr")
    from local_grid import LocalGrid, act_as_runner

    act_as_runner(monkeypatch)
    configs = [{"site": name, "socket": str(sockets[name]), "timeout": 600.0} for name in reversed(NAMES)]
    return FlowerFederation(LocalGrid(client_app(), configs), NAMES)


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize("name", MODELS)
def test_without_noise_it_is_the_pooled_fit(federation, name, trust):
    fitted, pooled = MODELS[name]
    found, expected = fitted(federation, trust), pooled(trust)
    np.testing.assert_allclose(found.params.to_numpy(), expected.params.to_numpy(), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.bse.to_numpy(), expected.bse.to_numpy(), rtol=1e-8)
    assert "NOT PRIVATE" in str(found.summary())


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("OLS", {"epsilon": np.inf}),
        ("OLS", {"mu": 1.0, "rng": 0}),
        ("MomentOLS", {"mu": 1.0, "rng": 0}),
        ("DebiasedLasso", {"epsilon": np.inf, "sparsity": 2, "targets": ["u"]}),
    ],
)
def test_a_fit_without_secure_noise_is_refused_before_its_ledger_is_charged(tmp_path, model, trust, options):
    sites = sites_of(SitePolicy(trusted_server=True, secure_sums=True))
    ledger = pi.Ledger()
    fitted = getattr(pi, model).from_formula(
        f"y ~ {RIGHT}", InProcessFederation(sites), schema=SCHEMA, trust=trust, ledger=ledger
    )
    for folder in ({}, {"checkpoint": tmp_path / "fit"}) if model == "OLS" else ({},):
        with pytest.raises(NotAvailableError, match=r"site '\w+': .*policy does not allow releases without"):
            fitted.fit(**options, **folder)
    assert len(ledger) == 0
    assert [len(site.ledger) for site in sites.values()] == [0, 0, 0]
    assert [len(site.journal.reservations) for site in sites.values()] == [0, 0, 0]


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_only_where_the_policy_allows_simulation(trust, tmp_path):
    closed = sites_of(SitePolicy(trusted_server=True, secure_sums=True))
    with ExitStack() as stack:
        for name, site in closed.items():
            stack.enter_context(SiteDaemon(site, name, tmp_path / name).started())
        federation = SocketFederation({name: tmp_path / name for name in NAMES})
        for fitted, _ in MODELS.values():
            with pytest.raises(
                NotAvailableError,
                match=r"site '\w+': .*policy does not allow releases without noise",
            ):
                fitted(federation, trust)
    assert [len(site.ledger) for site in closed.values()] == [0, 0, 0]
