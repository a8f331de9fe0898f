"""The bundle that `flwr run` sends: its two apps over a grid in this process."""

import json
import tomllib
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from glm_sites import FORMULA, NAMES, SCHEMA, model_of, sites_of

from privinf.errors import AlignmentError
from privinf.federation import InProcessFederation, SiteDaemon, pinned_keys

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict
from local_grid import LocalGrid, act_as_runner

APP = Path(__file__).parents[2] / "benchmarks" / "flower_app"
THREE = NAMES[:3]
SUMS = ("glm", "curved", "whitened")  # of questions about rows


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a run of the bundle over three daemons: what it writes for its configuration."""
    act_as_runner(monkeypatch)
    monkeypatch.syspath_prepend(APP)
    from pvapp import client_app, server_app

    defaults = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_dict()))
    configs = [{"site": name, "socket": str(tmp_path / name)} for name in THREE]
    with ExitStack() as stack:
        for name, site in sites_of(THREE).items():
            stack.enter_context(SiteDaemon(site, name, tmp_path / name).started())

        def found(**changes):
            own = {
                "sites": ",".join(THREE),
                "schema": str(tmp_path / "schema.json"),
                "formula": FORMULA,
                "epsilon": 8.0,
                "delta": 1e-5,
                "seed": 0,
                "out": str(tmp_path / "out.json"),
            }
            assert own.keys() <= defaults.keys()
            grid = LocalGrid(client_app.app, configs)
            server_app.app(grid, Context(1, 0, {}, RecordDict(), defaults | own | changes))
            return json.loads((tmp_path / "out.json").read_text())

        yield found


def test_a_model_named_in_the_configuration(run):
    found = run()
    expected = model_of(InProcessFederation(sites_of(THREE)), "secure-sum").fit(
        epsilon=8.0, delta=1e-5, rng=0
    )
    np.testing.assert_allclose(found["params"], expected.params, rtol=1e-8)
    np.testing.assert_allclose(found["bse"], expected.bse, rtol=1e-8)
    assert (found["names"], found["mu"]) == (list(expected.names), expected.privacy.mu)
    sums = [step["op"] for step in found["steps"] if step["op"].startswith(SUMS)]
    assert len(sums) == len(expected.privacy.entries)
    assert all(step["up"] > 0 and step["down"] > 0 for step in found["steps"])


@pytest.mark.audit
def test_a_second_run_with_the_same_checkpoint_asks_for_nothing_again(run, tmp_path):
    first = run(checkpoint=str(tmp_path / "fit"))
    again = run(checkpoint=str(tmp_path / "fit"))
    assert (again["params"], again["mu"]) == (first["params"], first["mu"])
    assert any(step["op"].startswith(SUMS) for step in first["steps"])
    assert not any(step["op"].startswith(SUMS) for step in again["steps"])


def test_what_goes_wrong_is_written_too(run):
    assert run(epsilon=-1.0)["error"].startswith("ArgumentError: epsilon")
    assert run(schema="no.json", formula="y ~ w")["error"].startswith("StorageError")


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize("model", ["MomentOLS", "FederatedGLM", "DebiasedLasso"])
def test_every_model_from_a_toml(run, tmp_path, model):
    text = f'model = "{model}"\nformula = "{FORMULA}"\nepsilon = 8.0\ndelta = 1e-5\nseed = 0\nout = "fit"\n'
    lasso = 'trust = "secure-sum"\n[options]\nmax_sparsity = 2\ntargets = ["u"]\n'
    (tmp_path / "fit.toml").write_text(text + lasso * (model == "DebiasedLasso"))
    words = {"analysis": "plan", "plan": str(tmp_path / "fit.toml"), "told": str(tmp_path / "out.json")}
    found = run(**words, simulation=True)
    assert found.get("error") is None
    assert all(np.isfinite(found["params"]))
    assert 7.0 < found["spent"]["epsilon"] < 8.0 + 1e-6
    refused = run(**words)
    assert "--simulation" in refused["error"]


def test_replies_are_checked_by_the_roster_that_the_configuration_names(run, tmp_path):
    (tmp_path / "roster.json").write_text(pinned_keys(THREE)[1].to_json())  # of others than those who answer
    words = {"roster": str(tmp_path / "roster.json"), "heads": str(tmp_path / "heads.json")}
    with pytest.raises(AlignmentError, match="is not signed with the site's key"):
        run(**words)
    told = json.loads((tmp_path / "out.json").read_text())["error"]
    assert any(f"site {name!r}" in told for name in THREE)
