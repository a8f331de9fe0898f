"""A site behind a socket: the same answers as in this process, and nothing for whoever asks otherwise."""

import contextlib
import grp
import json
import os
import pickle
import socket
import struct
import threading
import time

import numpy as np
import pytest
from federation_sites import OPEN, design_of, federation_of, rows_of

from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, StorageError
from privinf.federation import Query, Site, TrustedServer
from privinf.federation.daemon import HEAD, MAGIC, RemoteSite, SiteDaemon, frame, receive, unframe
from privinf.noise import SimulationNoise

SIZES = {"north": 200, "south": 400}
SCORE = {"support": [0, 2], "beta": [0.9, -0.4], "columns": [0, 1], "clip": 1.5, "residual_clip": 0.8}


class Doors:
    """The sites behind these sockets as a federation."""

    def __init__(self, paths):
        self.remote = {name: RemoteSite(path, timeout=600.0) for name, path in paths.items()}

    @property
    def sites(self):
        return tuple(self.remote)

    def ask(self, query, sites=None):
        return [self.remote[name].handle(query, name) for name in sites or self.sites]


def site_of(name="north", **options):
    seed = list(SIZES).index(name)
    return Site(rows_of(SIZES[name], seed), design_of(), policy=OPEN, **options)


@pytest.fixture
def daemon(tmp_path):
    with SiteDaemon(site_of(), "north", tmp_path / "north.sock", timeout=600.0).started() as found:
        yield found


@pytest.fixture
def impatient(tmp_path):
    with SiteDaemon(site_of(), "north", tmp_path / "north.sock", timeout=1.0).started() as found:
        yield found


def ask(daemon, *parts):
    """Send bytes to a daemon and return its reply, None if it hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(600.0)
        connection.connect(str(daemon.path))
        connection.sendall(b"".join(parts))
        found = b""
        with contextlib.suppress(ConnectionResetError):  # it may leave what it refuses unread
            while part := connection.recv(1 << 16):
                found += part
    if not found:
        return None
    _, head, _ = HEAD.unpack(found[: HEAD.size])
    stop = HEAD.size + head
    return unframe(found[HEAD.size : stop], found[stop:])


def fitted(federation):
    server = TrustedServer(federation, noise=SimulationNoise(0))
    found = [
        server.vector_sum("clipped_score", SCORE, mu=0.3, label="score").values,
        server.gram({"columns": [0, 1, 2], "bound": 1.0}, mu=0.5, label="gram").values,
        server.top_k("clipped_products", {"bound": 0.5}, 2, rho=0.2, label="top").values,
    ]
    return np.concatenate([values.ravel() for values in found]), server


def test_the_same_numbers_and_charges_as_in_this_process(tmp_path):
    sites = {name: site_of(name) for name in SIZES}
    with (
        SiteDaemon(sites["north"], "north", tmp_path / "n").started() as north,
        SiteDaemon(sites["south"], "south", tmp_path / "s").started() as south,
    ):
        found, server = fitted(Doors({"north": north.path, "south": south.path}))
    expected, reference = fitted(federation_of())
    assert found.tobytes() == expected.tobytes()
    assert server.ledger.total().rho == reference.ledger.total().rho
    assert [len(site.ledger) for site in sites.values()] == [len(server.ledger)] * 2


def test_an_empty_array_at_the_end_is_no_reason_to_write_to_who_has_hung_up(daemon):
    remote = RemoteSite(daemon.path)
    for _ in range(50):
        assert "ArgumentError" in remote.handle(Query("column_sums", {"columns": np.empty(0)}), "other").error


def test_refusals_of_the_site_arrive_as_such(tmp_path):
    closed = Site(rows_of(50, 0), design_of())
    with SiteDaemon(closed, "north", tmp_path / "n").started() as daemon:
        server = TrustedServer(Doors({"north": daemon.path}))
        with pytest.raises(NotAvailableError, match=r"site 'north'.*trusted_server"):
            server.vector_sum("clipped_score", SCORE, mu=0.3, label="score")


ARRAYS = {
    "flags": np.array([True, False]),
    "steps": np.arange(6).reshape(2, 3),
    "words": np.array([2**64 - 1], dtype=np.uint64),
    "numbers": np.array([[0.1], [-2.5e-17]]),
    "scalar": np.array(1.5),
    "nothing": np.empty((0, 3)),
    "strided": np.arange(10.0)[::2],
    "big": np.arange(3, dtype=">f8"),
}


def test_frames_carry_every_kind_of_array_exactly():
    _, head, *body = frame(("text", ARRAYS), to="north")
    header, (text, arrays) = unframe(head, b"".join(body))
    assert (header, text, list(arrays)) == ({"to": "north"}, "text", list(ARRAYS))
    for name, array in ARRAYS.items():
        assert (arrays[name].shape, arrays[name].dtype) == (array.shape, array.dtype.newbyteorder("="))
        np.testing.assert_array_equal(arrays[name], array)


def head_of(**changes):
    header = {"to": "north", "text": Query("describe").pack()[0], "arrays": []} | changes
    return json.dumps({name: value for name, value in header.items() if value is not None}).encode()


def framed(head, body=b"", magic=MAGIC):
    return HEAD.pack(magic, len(head), len(body)), head, body


ONE = np.array([1.0]).tobytes()
FOREIGN = {
    "another magic": framed(head_of(), magic=b"privinf0"),
    "a pickle": framed(pickle.dumps({"op": "describe"})),
    "no JSON": framed(b"{"),
    "a list": framed(b"[]"),
    "nested without end": framed(b"[" * 100_000),
    "nested text": framed(head_of(text="[" * 100_000)),
    "no site": framed(head_of(to=None)),
    "a number as a site": framed(head_of(to=1)),
    "more in the header": framed(head_of(more="x")),
    "no text": framed(head_of(text=None)),
    "no query": framed(head_of(text="{}")),
    "a reply": framed(head_of(text='{"site": "north", "rows": 1, "facts": {}, "error": ""}')),
    "wrong types": framed(head_of(text='{"op": "describe", "args": 3, "charges": 4}')),
    "wrong sequence": framed(head_of(text='{"op": "describe", "args": {}, "charges": [], "sequence": -1}')),
    "objects": framed(head_of(arrays=[["a", "|O", [1]]]), ONE),
    "texts": framed(head_of(arrays=[["a", "<U2", [1]]]), ONE),
    "complex": framed(head_of(arrays=[["a", "<c16", [1]]]), ONE * 2),
    "not finite": framed(
        head_of(arrays=[["a", "<f8", [1]]], text='{"op": "describe", "args": {}, "charges": []}'),
        np.array([np.nan]).tobytes(),
    ),
    "a flag of two": framed(head_of(arrays=[["a", "|b1", [8]]]), b"\2" * 8),
    "too long": framed(head_of(arrays=[["a", "<f8", [1]]]), ONE * 2),
    "too short": framed(head_of(arrays=[["a", "<f8", [2]]]), ONE),
    "negative length": framed(head_of(arrays=[["a", "<f8", [-1]]]), ONE),
    "a flag as length": framed(head_of(arrays=[["a", "<f8", [True]]]), ONE),
    "no lengths": framed(head_of(arrays=[["a", "<f8", "1"]]), ONE),
    "the same name twice": framed(head_of(arrays=[["a", "<f8", [1]]] * 2), ONE * 2),
    "a list as name": framed(head_of(arrays=[[["a"], "<f8", [1]]]), ONE),
    "unhashable kind": framed(head_of(arrays=[["a", ["<f8"], [1]]]), ONE),
    "too many dimensions": framed(head_of(arrays=[["a", "<f8", [1] * 99]]), ONE),
}


@pytest.mark.parametrize("parts", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_question_is_refused_before_the_site_sees_it(daemon, monkeypatch, parts):
    monkeypatch.setattr(Site, "handle", lambda *a: pytest.fail("the site was asked"))
    _, (text, arrays) = ask(daemon, *parts)
    told = json.loads(text)
    assert told["error"].startswith("StorageError: the message ")
    assert told["site"] == "north"
    assert arrays["sums"].size == 0
    monkeypatch.undo()
    assert RemoteSite(daemon.path).handle(Query("describe"), "north").rows == 200


def test_a_question_as_it_should_be_is_answered(daemon):
    """The frame that the refused ones above are spoiled versions of."""
    _, (text, _) = ask(daemon, *framed(head_of()))
    assert json.loads(text)["facts"]["trusted_server"] is True


def test_a_question_to_another_site_is_refused(daemon):
    reply = RemoteSite(daemon.path).handle(Query("describe"), "south")
    assert reply.error == "ArgumentError: this is not the site 'south'"


def test_too_large_a_question_is_not_even_read(tmp_path):
    with SiteDaemon(site_of(), "north", tmp_path / "n", largest=10_000).started() as daemon:
        _, (text, _) = ask(daemon, HEAD.pack(MAGIC, 10, 2**62))
        assert "larger than 10000 bytes" in json.loads(text)["error"]
        _, (text, _) = ask(daemon, HEAD.pack(MAGIC, 2**32 - 1, 0))
        assert "larger than 10000 bytes" in json.loads(text)["error"]


def test_who_is_slow_or_breaks_off_does_not_hold_up_the_others(impatient):
    daemon = impatient
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as slow:
        slow.connect(str(daemon.path))
        slow.sendall(b"priv")
        started = time.monotonic()
        assert RemoteSite(daemon.path).handle(Query("describe"), "north").rows == 200
        assert time.monotonic() - started > 0.5  # the daemon's patience is a second
    assert ask(daemon, struct.pack(">8s", MAGIC)) is None  # hung up on after a second
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as rude:
        rude.connect(str(daemon.path))
        rude.sendall(b"".join(framed(head_of())))
    assert RemoteSite(daemon.path).handle(Query("describe"), "north").rows == 200


def test_one_question_at_a_time(daemon, monkeypatch):
    inside, most, handle = [], [], Site.handle

    def slowly(site, query, name):
        inside.append(query)
        most.append(len(inside))
        time.sleep(0.05)
        inside.remove(query)
        return handle(site, query, name)

    monkeypatch.setattr(Site, "handle", slowly)
    replies = []

    def one():
        replies.append(RemoteSite(daemon.path).handle(Query("describe"), "north"))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [reply.rows for reply in replies] == [200] * 6
    assert max(most) == 1


def test_nobody_there_or_nobody_answering(tmp_path):
    remote = RemoteSite(tmp_path / "nobody")
    with pytest.raises(AlignmentError, match="no answer from the daemon of site 'north'"):
        remote.handle(Query("describe"), "north")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen()
        with pytest.raises(AlignmentError, match=r"timed out|too late"):
            RemoteSite(tmp_path / "deaf", timeout=0.2).handle(Query("describe"), "north")
    with pytest.raises(ArgumentError, match="timeout"):
        RemoteSite(tmp_path / "deaf", timeout=0.0)


def test_only_the_account_itself_may_open_the_socket(daemon, tmp_path):
    assert daemon.path.stat().st_mode & 0o777 == 0o600
    group = os.stat(tmp_path).st_gid
    shared = SiteDaemon(site_of(), "north", tmp_path / "s", group=grp.getgrgid(group).gr_name)
    with shared:
        assert shared.path.stat().st_mode & 0o777 == 0o660
    with pytest.raises(ArgumentError, match="no socket can be put"):
        SiteDaemon(site_of(), "north", tmp_path / "t", group="no such group")


def test_places_for_a_socket(daemon, tmp_path):
    (tmp_path / "file").write_text("rows")
    with pytest.raises(ArgumentError, match="another daemon is there"):
        SiteDaemon(site_of(), "north", daemon.path)
    with pytest.raises(ArgumentError, match="no socket can be put"):
        SiteDaemon(site_of(), "north", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "rows"
    with pytest.raises(ArgumentError, match="at most"):
        SiteDaemon(site_of(), "north", tmp_path / ("x" * 120))
    with pytest.raises(ArgumentError, match="no folder"):
        SiteDaemon(site_of(), "north", tmp_path / "no" / "where")
    for wrong in ({"timeout": 0.0}, {"largest": 0}):
        with pytest.raises(ArgumentError):
            SiteDaemon(site_of(), "north", tmp_path / "w", **wrong)
    with pytest.raises(ArgumentError, match="name"):
        SiteDaemon(site_of(), " ", tmp_path / "w")
    with pytest.raises(ArgumentError, match="must be a Site"):
        SiteDaemon(rows_of(5, 0), "north", tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_a_dead_daemons_socket_is_replaced_and_a_successors_is_not_removed(tmp_path):
    path = tmp_path / "n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    first = SiteDaemon(site_of(), "north", path)
    path.unlink()
    with SiteDaemon(site_of(), "north", path).started():
        with first:
            pass
        assert RemoteSite(path).handle(Query("describe"), "north").rows == 200
    assert not path.exists()


def test_what_comes_back_must_be_an_answer(tmp_path):
    def answer(listening):
        connection, _ = listening.accept()
        with connection:
            receive(connection, 5.0, 1 << 16)
            connection.sendall(b"x" * 100)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        thread = threading.Thread(target=answer, args=(listening,))
        thread.start()
        with pytest.raises(StorageError):
            RemoteSite(tmp_path / "s").handle(Query("describe"), "north")
        thread.join()


def test_a_daemon_is_not_pickled_and_shows_no_rows(daemon):
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(daemon)
    assert repr(daemon) == f"<SiteDaemon of site 'north' at {daemon.path}>"
