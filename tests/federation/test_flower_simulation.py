"""One run of Flower's simulation engine: its own processes carry the questions, sites sit behind sockets."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from federation_sites import OPEN, design_of, federation_of, rows_of

from privinf.federation import Site, TrustedServer
from privinf.federation.daemon import RemoteSite, SiteDaemon
from privinf.federation.flower import client_app, server_app
from privinf.noise import SimulationNoise

pytest.importorskip("ray")

SIZES = {"north": 200, "south": 400, "west": 300}
SCORE = {"support": [0, 2], "beta": [0.9, -0.4], "columns": [0, 1], "clip": 1.5, "residual_clip": 0.8}
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def fitted(federation):
    server = TrustedServer(federation, noise=SimulationNoise(0))
    found = [
        server.vector_sum("clipped_score", SCORE, mu=0.3, label="score").values,
        server.gram({"columns": [0, 1, 2], "bound": 1.0}, mu=0.5, label="gram").values,
        server.top_k("clipped_products", {"bound": 0.5}, 2, rho=0.2, label="top").values,
    ]
    return np.concatenate([values.ravel() for values in found])


def simulated(folder):
    """Run three sites and the analysis; print what it found."""
    from flwr.simulation import run_simulation

    names, found = list(SIZES), {}

    def reach(config):
        name = names[config["partition-id"]]
        return name, RemoteSite(f"{folder}/{name}")

    def analysis(federation, config):
        found["numbers"] = fitted(federation).tolist()

    run_simulation(
        server_app(analysis, names, timeout=60.0, patience=60.0),
        client_app(reach),
        num_supernodes=len(names),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    print(json.dumps(found["numbers"]))


def test_the_same_numbers_as_in_this_process(tmp_path):
    """Flower's processes are children of another one, which can be given up."""
    sites = {
        name: Site(rows_of(n, seed), design_of(), policy=OPEN) for seed, (name, n) in enumerate(SIZES.items())
    }
    daemons = [SiteDaemon(site, name, tmp_path / name).started() for name, site in sites.items()]
    try:
        ended = subprocess.run(
            [sys.executable, __file__, str(tmp_path)],
            env=os.environ | QUIET | {"FLWR_HOME": str(tmp_path / "home")},
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=150.0,
            check=False,
        )
    finally:
        for daemon in daemons:
            daemon.stop()
    assert ended.returncode == 0, ended.stderr[-2000:]
    numbers = json.loads(ended.stdout.splitlines()[-1])
    np.testing.assert_allclose(numbers, fitted(federation_of(sizes=tuple(SIZES.values()))), rtol=1e-8)
    assert [len(site.ledger) for site in sites.values()] == [4] * 3


if __name__ == "__main__":
    simulated(sys.argv[1])
