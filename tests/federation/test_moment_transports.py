"""Second moments by secure sums over Flower: the same fit, the same charges as in one process."""

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.federation import InProcessFederation, Site, SitePolicy, pinned_keys
from privinf.mechanisms.rows import Rows

pytest.importorskip("flwr")

from local_grid import LocalGrid, act_as_runner

from privinf.federation.flower import FlowerFederation, client_app

NAMES = ("north", "south", "west")
SCHEMA = pi.Schema({"y": (-4.0, 4.0), "a": (-1.0, 1.0), "b": (0.0, 50.0), "g": ["u", "v"]})
FORMULA = "y ~ a + b + C(g)"
KEYS, ROSTER = pinned_keys(NAMES)


def sites_of():
    rng = np.random.default_rng(2)
    policy = SitePolicy(secure_sums=True, simulation=True)
    sites = {}
    for name in NAMES:
        a, b, g = rng.uniform(-1, 1, 300), rng.uniform(0, 50, 300), rng.choice(["u", "v"], 300)
        y = 0.5 * a + 0.02 * b + 0.3 * (g == "v") + rng.normal(0.0, 0.4, 300)
        rows = Rows(pd.DataFrame({"y": y, "a": a, "b": b, "g": g}))
        sites[name] = Site(rows, SCHEMA, policy=policy, key=KEYS[name], roster=ROSTER)
    return sites


def fitted(federation):
    model = pi.MomentOLS.from_formula(FORMULA, federation, schema=SCHEMA, trust="secure-sum")
    return model.fit(mu=4.0, cov_type="HC0", max_colluding=1, rng=7)


def test_the_same_fit_over_flower_as_without(monkeypatch):
    act_as_runner(monkeypatch)
    sites = sites_of()
    app = client_app(lambda config: (config["site"], sites[config["site"]]))
    grid = LocalGrid(app, [{"site": name} for name in reversed(NAMES)])
    found, expected = fitted(FlowerFederation(grid, list(NAMES))), fitted(InProcessFederation(sites_of()))
    assert found.params.to_numpy().tobytes() == expected.params.to_numpy().tobytes()
    assert found.bse.to_numpy().tobytes() == expected.bse.to_numpy().tobytes()
    charged = [entry.loss for entry in found.privacy.entries]
    assert len(charged) == 2
    for site in sites.values():
        assert [entry.loss for entry in site.ledger.entries] == charged
