"""One run of Flower's simulation engine: its own processes carry the questions, sites sit behind sockets."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from glm_sites import NAMES, fits_of, sites_of

from privinf.federation import InProcessFederation, RemoteSite, SiteDaemon
from privinf.federation.flower import client_app, server_app

pytest.importorskip("ray")

FITS = ("private", "moments")  # the other transports repeat the fit without noise too
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def simulated(folder):
    """Run eight nodes and the fits over them; print what they found."""
    from flwr.simulation import run_simulation

    found = {}

    def reach(config):
        name = NAMES[config["partition-id"]]
        return name, RemoteSite(f"{folder}/{name}")

    def analysis(federation, config):
        found.update(fits_of(federation, FITS))

    run_simulation(
        server_app(analysis, NAMES, timeout=600.0, patience=600.0, poll=0.02),
        client_app(reach),
        num_supernodes=len(NAMES),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    print(json.dumps(found))


@pytest.mark.audit
def test_the_same_numbers_as_in_this_process(tmp_path):
    """Flower's processes are children of another one, which can be given up."""
    sites = sites_of()
    with ExitStack() as stack:
        for name, site in sites.items():
            stack.enter_context(SiteDaemon(site, name, tmp_path / name).started())
        ended = subprocess.run(
            [sys.executable, __file__, str(tmp_path)],
            env=os.environ | QUIET | {"FLWR_HOME": str(tmp_path / "home")},
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=1800.0,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    expected = fits_of(InProcessFederation(sites_of()), FITS)
    assert found.keys() == expected.keys()
    for fit, numbers in expected.items():
        np.testing.assert_allclose(found[fit], numbers, rtol=1e-8, err_msg=fit)
    assert len({len(site.ledger) for site in sites.values()}) == 1


if __name__ == "__main__":
    simulated(sys.argv[1])
