"""Several daemons of one machine as one federation: who is asked, who is missing, who is another one."""

import logging
import threading
from contextlib import ExitStack

import pytest
from federation_sites import OPEN, design_of, federation_of, rows_of

from privinf.errors import AlignmentError, ArgumentError
from privinf.federation import Query, Reply, Site, SiteDaemon, SocketFederation, TrustedServer
from privinf.federation.sockets import RemoteSite
from privinf.noise import SimulationNoise

SIZES = {"north": 200, "south": 400}
SCORE = {"support": [0, 2], "beta": [0.9, -0.4], "columns": [0, 1], "clip": 1.5, "residual_clip": 0.8}
QUICK = {"timeout": 600.0, "patience": 0.01}


def served(folder, stack, **designs):
    """Start the daemons of the sites; return their sockets."""
    for seed, (name, size) in enumerate(SIZES.items()):
        site = Site(rows_of(size, seed), designs.get(name, design_of()), policy=OPEN)
        stack.enter_context(SiteDaemon(site, name, folder / name).started())
    return {name: folder / name for name in SIZES}


@pytest.fixture
def paths(tmp_path):
    with ExitStack() as stack:
        yield served(tmp_path, stack)


def score(federation, **options):
    server = TrustedServer(federation, noise=SimulationNoise(0), **options)
    return server.vector_sum("clipped_score", SCORE, mu=0.3, label="score").values


def test_the_same_numbers_as_in_one_process(paths):
    found = score(SocketFederation(paths, **QUICK))
    assert found.tobytes() == score(federation_of()).tobytes()


def test_replies_come_in_the_order_asked(paths, monkeypatch):
    federation, handle, south = SocketFederation(paths, **QUICK), Site.handle, threading.Event()

    def late(site, query, name):
        reply = handle(site, query, name)
        south.wait(600.0) if name == "north" else south.set()  # side by side, or never
        return reply

    monkeypatch.setattr(Site, "handle", late)
    assert federation.sites == ("north", "south")
    assert [reply.site for reply in federation.ask(Query("describe"))] == ["north", "south"]
    assert [reply.rows for reply in federation.ask(Query("describe"), ["south", "north"])] == [400, 200]
    assert federation.ask(Query("describe"), []) == []


def test_a_site_that_has_gone_is_left_out_and_logged(tmp_path, caplog):
    with ExitStack() as stack:
        paths = served(tmp_path, stack)
        federation = SocketFederation(paths, **QUICK)
    with SiteDaemon(Site(rows_of(200, 0), design_of(), policy=OPEN), "north", tmp_path / "north").started():
        caplog.set_level(logging.WARNING)
        assert [reply.site for reply in federation.ask(Query("describe"))] == ["north"]
        assert "the daemon of site 'south'" in caplog.text
        with pytest.raises(AlignmentError, match=r"site 'south'.* did not answer"):
            score(federation)
        assert score(federation, missing="continue").shape == (2,)


def test_who_is_not_there_or_other_than_named(paths, tmp_path):
    with pytest.raises(AlignmentError, match=r"site 'west' at .*west did not answer within.*it is running"):
        SocketFederation(paths | {"west": tmp_path / "west"}, **QUICK)
    with pytest.raises(AlignmentError, match=r"sites 'east' at .*, 'west' at .* they are running"):
        SocketFederation({name: tmp_path / name for name in ("east", "west")}, **QUICK)
    with pytest.raises(AlignmentError, match="site 'west': the site replied with the name of another site"):
        SocketFederation({"west": paths["north"]}, **QUICK)


def test_another_schema_is_named(tmp_path):
    with ExitStack() as stack:
        paths = served(tmp_path, stack, south=design_of(bound=3.0))
        with pytest.raises(
            AlignmentError, match="the bounds or levels of site 'south' differ from those of site 'north'"
        ):
            SocketFederation(paths, **QUICK)


def test_an_impostor_and_nonsense_are_named(paths, monkeypatch):
    federation, exchange = SocketFederation(paths, **QUICK), RemoteSite.exchange
    honest = RemoteSite(paths["north"]).handle(Query("describe"), "north")

    def another(remote, query, name, envelope):
        forged = Reply(site="north", sums=honest.sums, rows=1, facts=honest.facts), {}
        return forged if name == "south" else exchange(remote, query, name, envelope)

    monkeypatch.setattr(RemoteSite, "exchange", another)
    with pytest.raises(AlignmentError, match="site 'south': the site replied with the name of another site"):
        score(federation)


@pytest.mark.parametrize(
    "paths",
    [{}, ["north"], {"": "/x"}, {"a=b": "/x"}, {3: "/x"}, {"north": 3}, {"north": None}],
)
def test_bad_paths(paths):
    with pytest.raises(ArgumentError):
        SocketFederation(paths)


def test_bad_names_and_times(paths):
    for wrong in ({"timeout": 0.0}, {"patience": -1.0}):
        with pytest.raises(ArgumentError):
            SocketFederation(paths, **wrong)
    federation = SocketFederation(paths, **QUICK)
    with pytest.raises(ArgumentError, match="there is no site named 'west'"):
        federation.ask(Query("describe"), ["west"])
    assert repr(federation) == "<SocketFederation of 2 sites, no signatures>"
