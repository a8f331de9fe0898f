"""Flower's messages over a grid in this process: the same numbers as without Flower, and what goes wrong."""

import json
import pickle
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from federation_sites import OPEN, design_of, federation_of, rows_of

import privinf as pi
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, StorageError
from privinf.federation import (
    IdentityKey,
    InProcessFederation,
    Query,
    RemoteSite,
    Reply,
    SecureServer,
    Site,
    SiteDaemon,
    SitePolicy,
    TrustedServer,
    flower,
    pinned_keys,
)
from privinf.federation.flower import FlowerFederation, client_app, daemon_of, packed, server_app, unpacked
from privinf.federation.messages import NO_QUERY
from privinf.noise import SimulationNoise

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from local_grid import LocalGrid, act_as_runner, carried

SIZES = {"north": 200, "south": 400}
SCORE = {"support": [0, 2], "beta": [0.9, -0.4], "columns": [0, 1], "clip": 1.5, "residual_clip": 0.8}
FAST = {"timeout": 0.3}  # grids of this process answer before the waiting begins, on any machine


@pytest.fixture(autouse=True)
def runner(monkeypatch):
    act_as_runner(monkeypatch)


def sites_of(policy=OPEN, names=SIZES, **options):
    return {
        name: Site(rows_of(SIZES[name], list(SIZES).index(name)), design_of(), policy=policy, **options)
        for name in names
    }


def grid_of(sites=None, **options):
    sites = sites_of() if sites is None else sites
    app = client_app(lambda config: (config["site"], sites[config["site"]]))
    return LocalGrid(app, [{"site": name} for name in reversed(sites)], **options)


def fitted(federation):
    server = TrustedServer(federation, noise=SimulationNoise(0))
    found = [
        server.vector_sum("clipped_score", SCORE, mu=0.3, label="score").values,
        server.gram({"columns": [0, 1, 2], "bound": 1.0}, mu=0.5, label="gram").values,
        server.top_k("clipped_products", {"bound": 0.5}, 2, rho=0.2, label="top").values,
    ]
    return np.concatenate([values.ravel() for values in found]), server


def test_the_same_numbers_and_charges_as_without_flower():
    sites = sites_of()
    federation = FlowerFederation(grid_of(sites), ["north", "south"])
    assert federation.sites == ("north", "south")
    found, server = fitted(federation)
    expected, reference = fitted(federation_of())
    assert found.tobytes() == expected.tobytes()
    assert server.ledger.total().rho == reference.ledger.total().rho
    assert [len(site.ledger) for site in sites.values()] == [len(server.ledger)] * 2


@pytest.mark.audit
def test_a_model_fits_over_flower_as_it_is():
    rng = np.random.default_rng(1)
    schema = pi.Schema({"y": (-4.0, 4.0)} | {f"x{j}": (-1.0, 1.0) for j in range(6)})
    tables = {}
    for name, n in SIZES.items():
        X = rng.uniform(-1.0, 1.0, (n, 6))
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(6)])
        tables[name] = frame.assign(y=2.0 * X[:, 0] - X[:, 3] + rng.normal(0.0, 0.5, n))
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(6))

    def params(federate):
        sites = {name: Site(table, schema, policy=OPEN) for name, table in tables.items()}
        model = pi.DebiasedLasso.from_formula(formula, federate(sites), schema=schema)
        return model.fit(epsilon=5.0, delta=1e-5, sparsity=2, rng=0).params

    over = params(lambda sites: FlowerFederation(grid_of(sites), list(SIZES)))
    pd.testing.assert_series_equal(over, params(InProcessFederation), rtol=0.0, atol=0.0)
    assert over.notna().all()


def test_secure_sums_travel_too():
    keys, roster = pinned_keys(SIZES)
    policy = SitePolicy(secure_sums=True)
    rows = {name: rows_of(n, seed) for seed, (name, n) in enumerate(SIZES.items())}
    sites = {
        name: Site(rows[name], design_of(), policy=policy, key=keys[name], roster=roster) for name in SIZES
    }
    server = SecureServer(FlowerFederation(grid_of(sites), list(SIZES)))
    found = server.vector_sum("clipped_score", SCORE, mu=300.0, label="score")
    exact = fitted_score(federation_of())
    np.testing.assert_allclose(found.values, exact, atol=6.0 * found.scale)
    assert 0.0 < found.scale < 0.01


def fitted_score(federation):
    server = TrustedServer(federation, noise=SimulationNoise(0))
    return server.vector_sum("clipped_score", SCORE, rho=np.inf, label="score").values


def test_the_sites_may_be_daemons(tmp_path):
    sites = sites_of()
    with (
        SiteDaemon(sites["north"], "north", tmp_path / "north").started(),
        SiteDaemon(sites["south"], "south", tmp_path / "south").started(),
    ):
        configs = [{"site": name, "socket": str(tmp_path / name)} for name in sites]
        found, _ = fitted(FlowerFederation(LocalGrid(client_app(), configs), list(SIZES)))
    assert found.tobytes() == fitted(federation_of())[0].tobytes()


ARRAYS = {
    "flags": np.array([True, False]),
    "steps": np.arange(6).reshape(2, 3),
    "words": np.array([2**64 - 1], dtype=np.uint64),
    "numbers": np.array([[0.1], [-2.5e-17]]),
    "scalar": np.array(1.5),
    "nothing": np.empty((0, 3)),
}


def test_records_carry_every_kind_of_array_exactly():
    sent = Message(packed(("text", ARRAYS)), 10, "query.privinf")
    text, arrays = unpacked(carried(sent).content)
    assert (text, set(arrays)) == ("text", set(ARRAYS))
    for name, array in ARRAYS.items():
        assert (arrays[name].shape, arrays[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(arrays[name], array)
    assert packed(("text", {}))["arrays"] == ArrayRecord({})


def test_a_message_lives_as_long_as_its_answer_is_waited_for():
    grid = grid_of()
    FlowerFederation(grid, list(SIZES), timeout=7.0).ask(Query("describe"), ["south"])
    *_, last = grid.asked
    assert (last.dst_node_id, last.ttl, last.message_type) == (10, 7.0, "query.privinf")
    assert all(sent.ttl <= 120.0 for sent in grid.asked)


def test_nodes_that_are_no_site_of_the_analysis_are_left_alone():
    grid = grid_of()
    federation = FlowerFederation(grid, ["south"])
    assert [reply.rows for reply in federation.ask(Query("describe"))] == [400]
    with pytest.raises(ArgumentError, match="there is no site named 'north'"):
        federation.ask(Query("describe"), ["north"])
    assert {sent.dst_node_id for sent in grid.asked[2:]} == {10}


def test_a_site_that_falls_silent():
    grid = grid_of()
    federation = FlowerFederation(grid, list(SIZES), **FAST)
    server = TrustedServer(federation, noise=SimulationNoise(0), missing="continue")
    grid.silent = {10}
    started = time.monotonic()
    found = server.vector_sum("clipped_score", SCORE, mu=0.3, label="score")
    assert time.monotonic() - started >= 0.3
    assert found.sites == server.sites == ("north",)
    before = len(grid.asked)
    server.vector_sum("clipped_score", SCORE, mu=0.3, label="score")
    assert {sent.dst_node_id for sent in grid.asked[before:]} == {11}  # it is not waited for again
    strict = FlowerFederation(grid_of(), list(SIZES), **FAST)
    server = TrustedServer(strict, noise=SimulationNoise(0))
    strict._grid.broken = {10}
    with pytest.raises(AlignmentError, match=r"site 'south'.* did not answer"):
        server.vector_sum("clipped_score", SCORE, mu=0.3, label="score")


def test_a_late_answer_is_not_taken_for_another():
    """What arrives after its time belongs to no question any more."""
    grid = grid_of()
    federation = FlowerFederation(grid, list(SIZES), **FAST)
    pull, kept = grid.pull_messages, {}

    def late(names):
        found = pull(names)
        for message in found:
            kept[message.metadata.reply_to_message_id] = message
        return []

    grid.pull_messages = late
    assert federation.ask(Query("describe")) == []
    grid.pull_messages = lambda names: [*kept.values(), *pull(names)]
    assert [reply.site for reply in federation.ask(Query("describe"))] == ["north", "south"]


def test_an_answer_from_another_node_is_not_taken():
    grid = grid_of()
    federation = FlowerFederation(grid, list(SIZES), **FAST)
    pull = grid.pull_messages

    def forged(names):
        found = pull(names)
        for message in found:
            message.metadata.__dict__["_src_node_id"] = 11
        return found

    grid.pull_messages = forged
    assert [reply.site for reply in federation.ask(Query("describe"))] == ["north"]


def test_a_site_that_is_not_there():
    for options in ({"silent": {10}}, {"broken": {10}}):
        with pytest.raises(AlignmentError, match=r"site 'south' did not answer within 0\.3 seconds"):
            FlowerFederation(grid_of(**options), list(SIZES), patience=0.3)


def test_a_site_that_comes_later():
    grid = grid_of(broken={10})
    look = grid.get_node_ids

    def get_node_ids():
        if len(grid.asked) > 5:
            grid.broken = set()
        return look()

    grid.get_node_ids = get_node_ids
    assert FlowerFederation(grid, list(SIZES)).sites == ("north", "south")
    assert [sent.dst_node_id for sent in grid.asked].count(11) == 1  # who has answered is not asked again


def test_two_nodes_of_one_name():
    sites = sites_of()
    app = client_app(lambda config: ("north", sites["north"]))
    with pytest.raises(AlignmentError, match="two Flower nodes have the same site name, 'north'"):
        FlowerFederation(LocalGrid(app, [{}, {}]), ["north", "south"], **FAST)


def test_sites_with_other_columns():
    sites = sites_of()
    sites["south"] = Site(rows_of(20, 1), design_of(bound=1.0), policy=OPEN)
    with pytest.raises(AlignmentError, match="the bounds or levels of site 'south' differ"):
        FlowerFederation(grid_of(sites), list(SIZES))


class Spoiling:
    """A site whose answers are spoiled on the way."""

    def __init__(self, spoil):
        self.site, self.spoil = sites_of()["north"], spoil

    def handle(self, query, name):
        reply = self.site.handle(query, name)
        return reply if query.op == "describe" else self.spoil(reply)


def fail(reply):
    raise ValueError(f"bad value {rows_of(200, 0)[0][0]}")


def refuse(reply):
    raise NotAvailableError("not today")


def test_what_a_site_may_do_wrong():
    def asked(spoil):
        site = Spoiling(spoil)
        federation = FlowerFederation(grid_of({"north": site}), ["north"], **FAST)
        server = TrustedServer(federation, noise=SimulationNoise(0))
        server.vector_sum("clipped_score", SCORE, mu=0.3, label="score")

    asked(lambda reply: reply)
    with pytest.raises(AlignmentError, match="site 'north': the site replied with the name of another site"):
        asked(lambda reply: Reply(site="south", sums=reply.sums, rows=reply.rows))
    with pytest.raises(StorageError, match="site 'north': the site's message is not a valid reply"):
        asked(lambda reply: Query("describe"))
    for spoil in (fail, refuse):
        with pytest.raises(AlignmentError, match=r"site 'north'.* did not answer"):
            asked(spoil)


@pytest.mark.parametrize(
    ("spoil", "told"), [(fail, "ValueError"), (refuse, "NotAvailableError: not today")], ids=["own", "other"]
)
def test_errors_on_the_way_tell_no_value(spoil, told):
    grid = grid_of({"north": Spoiling(spoil)})
    sent = Message(packed(Query("design", args={"design": {}}).pack()), 10, "query.privinf")
    (name,) = grid.push_messages([sent])
    assert grid.replies[name].error.reason == told


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"message": ConfigRecord({"text": 3}), "arrays": ArrayRecord({})}),
        RecordDict({"message": ConfigRecord({"text": "{}"}), "arrays": ArrayRecord({})}),
        RecordDict({"message": ConfigRecord({"text": "[" * 100_000}), "arrays": ArrayRecord({})}),
        RecordDict({"message": ConfigRecord({"text": "x"}), "arrays": ConfigRecord({"a": 1})}),
    ],
    ids=["nothing", "a number", "no query", "nested", "no arrays"],
)
def test_what_is_no_question_does_not_reach_the_site(monkeypatch, content):
    grid = grid_of()
    monkeypatch.setattr(Site, "handle", lambda *a: pytest.fail("the site was asked"))
    (name,) = grid.push_messages([Message(content, 10, "query.privinf")])
    reply = Reply.unpack(*unpacked(grid.replies[name].content))
    assert (reply.site, reply.error) == ("south", f"StorageError: {NO_QUERY}")


@pytest.mark.parametrize("named", [True, False], ids=["in the app", "in the configuration"])
def test_an_analysis_as_a_server_app(named):
    seen = {}

    def analysis(federation, config):
        seen["numbers"], _ = fitted(federation)
        seen["config"] = config

    given = {"rho": 0.5} if named else {"sites": "north, south"}
    app = server_app(analysis, list(SIZES) if named else None, timeout=300.0)
    app(grid_of(), Context(1, 0, {}, RecordDict(), given))
    assert seen["config"] == given
    assert seen["numbers"].tobytes() == fitted(federation_of())[0].tobytes()


@pytest.mark.parametrize("config", [{}, {"sites": " "}, {"sites": 3}])
def test_a_run_that_names_no_sites(config):
    app = server_app(lambda *_: pytest.fail("it ran"))
    with pytest.raises(ArgumentError, match='sites="north,south"'):
        app(grid_of(), Context(1, 0, {}, RecordDict(), config))


def test_the_nodes_configuration(tmp_path):
    name, site = daemon_of({"site": "north", "socket": "/run/north"})
    assert (name, type(site)) == ("north", RemoteSite)
    for config in ({}, {"site": "north"}, {"site": 3, "socket": "x"}):
        with pytest.raises(ArgumentError, match="socket"):
            daemon_of(config)
    with pytest.raises(ArgumentError, match="timeout"):
        daemon_of({"site": "north", "socket": "x", "timeout": "long"})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.bind(str(tmp_path / "s"))
        deaf.listen()
        with pytest.raises(AlignmentError, match=r"did not answer.*(timed out|no reply within)"):
            daemon_of({"site": "north", "socket": str(tmp_path / "s"), "timeout": 0.2})[1].handle(
                Query("describe"), "north"
            )


def test_signed_ends(tmp_path):
    """The same sum through nodes whose replies are checked; an impostor's node is named."""
    analyst = IdentityKey()
    listed = SitePolicy(
        secure_sums=True, simulation=True, analysts=[{"name": "ada", "key": analyst.verifying}]
    )
    keys, roster = pinned_keys(SIZES)

    def signed(policy, **others):
        return {
            name: Site(
                rows_of(n, seed),
                design_of(),
                policy=policy,
                **({"key": keys[name], "roster": roster} | others.get(name, {})),
            )
            for seed, (name, n) in enumerate(SIZES.items())
        }

    def score(sites, **ends):
        server = SecureServer(FlowerFederation(grid_of(sites), list(SIZES), **FAST, **ends), rng=0)
        return server.vector_sum("clipped_score", SCORE, mu=0.3, label="score").values

    ends = {"roster": roster, "key": analyst, "heads": tmp_path / "heads.json"}
    found = score(signed(listed), **ends)
    assert found.tobytes() == score(signed(replace(listed, analysts=()))).tobytes()
    with pytest.raises(NotAvailableError, match="signed by an analyst in its policy"):
        score(signed(listed), roster=roster)
    forged, other = pinned_keys(SIZES)
    impostor = {"south": {"key": forged["south"], "roster": other}}
    with pytest.raises(AlignmentError, match="site 'south': the reply is not signed with"):
        score(signed(listed, **impostor), **ends)


def test_a_signed_site_behind_its_daemon(tmp_path):
    """Flower's node passes envelopes on, both ways."""
    keys, roster = pinned_keys(SIZES)
    policy = SitePolicy(trusted_server=True, simulation=True)
    with ExitStack() as stack:
        remote = {}
        for seed, (name, n) in enumerate(SIZES.items()):
            site = Site(rows_of(n, seed), design_of(), policy=policy, key=keys[name], roster=roster)
            stack.enter_context(SiteDaemon(site, name, tmp_path / name).started())
            remote[name] = RemoteSite(tmp_path / name, timeout=600.0)
        federation = FlowerFederation(grid_of(remote), list(SIZES), **FAST, roster=roster)
        assert [reply.rows for reply in federation.ask(Query("describe"))] == list(SIZES.values())


def test_arguments():
    grid = grid_of()
    for wrong in ("north", [], ["north", "north"], [1]):
        with pytest.raises(ArgumentError, match="sites"):
            FlowerFederation(grid, wrong)
    for wrong in ("timeout", "patience", "poll"):
        with pytest.raises(ArgumentError, match=wrong):
            FlowerFederation(grid, ["north"], **{wrong: 0.0})
    federation = FlowerFederation(grid, ["north"])
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(federation)
    assert repr(federation) == "<FlowerFederation of 1 sites, no signatures>"
    assert json.loads(federation.ask(Query("describe"))[0].pack()[0])["site"] == "north"


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr.clientapp", None)
    with pytest.raises(NotAvailableError, match=r"privinf\[flower\]"):
        client_app()
    assert flower.engine("app") is sys.modules["flwr.app"]


@pytest.mark.audit
def test_one_module_loads_flwr_and_does_so_late():
    """The command line starts Flower's programs, and imports none of it."""
    package = Path(pi.__file__).parent
    loads = re.compile(r"import_module\(f?[\"']flwr|^\s*(import|from) flwr", re.MULTILINE)
    loading = [path.name for path in package.rglob("*.py") if loads.search(path.read_text(encoding="utf-8"))]
    assert loading == ["flower.py"]
    look = "import sys, privinf.federation.flower; sys.exit('flwr' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0
