"""A site behind a socket: the same answers as in this process, and nothing for whoever asks otherwise."""

import contextlib
import errno
import grp
import json
import logging
import os
import pickle
import socket
import socketserver
import struct
import threading
import time
from unittest.mock import Mock

import numpy as np
import pytest
from federation_sites import OPEN, design_of, federation_of, rows_of

from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, StorageError
from privinf.federation import Query, RemoteSite, Site, SiteDaemon, TrustedServer, frames
from privinf.federation.daemon import LARGEST_QUERY, MOST_OF_ONE, REFUSALS, Caller, ConnectionLimits
from privinf.federation.frames import HEAD, MAGIC, MOST_HEADER, frame, read_header, receive, unframe
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


def unframed(content):
    """Return what a frame says."""
    _, head, _ = HEAD.unpack(content[: HEAD.size])
    stop = HEAD.size + head
    header = read_header(content[HEAD.size : stop], len(content) - stop)
    return dict(header.fields), unframe(header, content[stop:])


def ask(daemon, *parts):
    """Send bytes to a daemon and return its reply, None if it hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(600.0)
        connection.connect(str(daemon.path))
        with contextlib.suppress(BrokenPipeError):  # it may hang up before it has read all
            connection.sendall(b"".join(parts))
        found = b""
        with contextlib.suppress(ConnectionResetError):  # it may leave what it refuses unread
            while part := connection.recv(1 << 16):
                found += part
    if not found:
        return None
    return unframed(found)


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
        assert (
            "ArgumentError"
            in remote.handle(Query("column_sums", args={"columns": np.empty(0)}), "other").error
        )


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
    header, (text, arrays) = unframed(b"".join(frame(("text", ARRAYS), to="north")))
    assert (header, text, list(arrays)) == ({"to": "north"}, "text", list(ARRAYS))
    for name, array in ARRAYS.items():
        assert (arrays[name].shape, arrays[name].dtype) == (array.shape, array.dtype.newbyteorder("="))
        np.testing.assert_array_equal(arrays[name], array)


DESCRIBE = Query("describe").pack()[0]


def framed(arrays=(), body=b"", text=DESCRIBE, magic=MAGIC, **changes):
    """Return a frame; what differs from a good header is given by name, None for what it lacks."""
    content = text.encode()
    header = {"to": "north", "text": len(content), "arrays": arrays} | changes
    head = json.dumps({name: value for name, value in header.items() if value is not None}).encode()
    return raw(head, body + content, magic)


def raw(head, body=b"", magic=MAGIC):
    return HEAD.pack(magic, len(head), len(body)), head, body


ONE = np.array([1.0]).tobytes()
WITH_ARGS = '{"op": "describe", "args": {}, "charges": []}'
FOREIGN = {
    "another magic": framed(magic=b"privinf1"),
    "a pickle": raw(pickle.dumps({"op": "describe"})),
    "no JSON": raw(b"{"),
    "no text at all": raw(b"\xff\xfe"),
    "a list": raw(b"[]"),
    "nested without end": raw(b"[" * 60_000),
    "nested text": framed(text="[" * 100_000),
    "more values than a question has": framed(text="[" + "{}," * 200_000 + "{}]"),
    "a header without end": raw(b" " * (MOST_HEADER + 1)),
    "a long number": raw(b'{"to": "north", "arrays": [], "text": ' + b"9" * 50_000 + b"}"),
    "no site": framed(to=None),
    "a number as a site": framed(to=1),
    "more in the header": framed(more="x"),
    "a long text in the header": framed(more="x" * 2000),
    "no length of the text": framed(text="", **{"arrays": None}),
    "a negative length of the text": raw(b'{"to": "north", "arrays": [], "text": -1}'),
    "a flag as length of the text": raw(b'{"to": "north", "arrays": [], "text": true}', b"x"),
    "a text that is none": raw(b'{"to": "north", "arrays": [], "text": 2}', b"\xff\xff"),
    "no query": framed(text="{}"),
    "a reply": framed(text='{"site": "north", "rows": 1, "facts": {}, "error": ""}'),
    "wrong types": framed(text='{"op": "describe", "args": 3, "charges": 4}'),
    "wrong sequence": framed(text='{"op": "describe", "args": {}, "charges": [], "sequence": -1}'),
    "objects": framed([["a", "|O", [1]]], ONE),
    "texts": framed([["a", "<U2", [1]]], ONE),
    "complex": framed([["a", "<c16", [1]]], ONE * 2),
    "not finite": framed([["a", "<f8", [1]]], np.array([np.nan]).tobytes(), text=WITH_ARGS),
    "a flag of two": framed([["a", "|b1", [8]]], b"\2" * 8, text=WITH_ARGS),
    "too long": framed([["a", "<f8", [1]]], ONE * 2),
    "too short": framed([["a", "<f8", [2]]], ONE),
    "negative length": framed([["a", "<f8", [-1]]], ONE),
    "a flag as length": framed([["a", "<f8", [True]]], ONE),
    "no lengths": framed([["a", "<f8", "1"]], ONE),
    "the same name twice": framed([["a", "<f8", [1]]] * 2, ONE * 2),
    "a list as name": framed([[["a"], "<f8", [1]]], ONE),
    "a long name": framed([["a" * 2000, "<f8", [1]]], ONE),
    "unhashable kind": framed([["a", ["<f8"], [1]]], ONE),
    "too many dimensions": framed([["a", "<f8", [1] * 99]], ONE),
    "lengths whose product has a million digits": framed([["a", "<f8", [10**300] * 8]], ONE),
    "lengths that are zero and huge": framed([["a", "<f8", [0, 2**62, 2**62]]]),
    "too many arrays": framed([[f"a{k}", "<f8", [1]] for k in range(65)], ONE * 65),
    "a mapping of arrays": framed({"a": ["<f8", [1]]}, ONE),
}


@pytest.mark.parametrize("parts", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_question_is_refused_before_the_site_sees_it(daemon, monkeypatch, parts):
    monkeypatch.setattr(Site, "handle", lambda *a: pytest.fail("the site was asked"))
    _, (text, arrays) = ask(daemon, *parts)
    told = json.loads(text)
    assert told["error"].startswith("StorageError: ")
    assert told["site"] == "north"
    assert arrays["sums"].size == 0
    monkeypatch.undo()
    assert RemoteSite(daemon.path).handle(Query("describe"), "north").rows == 200


def test_a_question_as_it_should_be_is_answered(daemon):
    """The frame that the refused ones above are spoiled versions of."""
    _, (text, _) = ask(daemon, *framed())
    assert json.loads(text)["facts"]["trusted_server"] is True


def test_a_question_to_another_site_is_refused(daemon):
    reply = RemoteSite(daemon.path).handle(Query("describe"), "south")
    start = "ArgumentError: the message was sent to site 'south', but another site received it"
    assert reply.error.startswith(start)


def test_too_large_a_question_is_not_even_read(tmp_path):
    with SiteDaemon(site_of(), "north", tmp_path / "n", largest=10_000).started() as daemon:
        _, (text, _) = ask(daemon, HEAD.pack(MAGIC, 10, 2**62))
        assert "larger than 10000 bytes" in json.loads(text)["error"]
        _, (text, _) = ask(daemon, HEAD.pack(MAGIC, 2**32 - 1, 0))
        assert "header of the message is larger" in json.loads(text)["error"]


@pytest.mark.audit
def test_who_is_slow_or_breaks_off_does_not_hold_up_the_others(impatient):
    daemon = impatient
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as slow:
        slow.connect(str(daemon.path))
        slow.sendall(b"priv")
        assert RemoteSite(daemon.path).handle(Query("describe"), "north").rows == 200
        assert slow.recv(100) == b""  # hung up on after a second
    assert ask(daemon, struct.pack(">8s", MAGIC)) is None  # hung up on after a second
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as rude:
        rude.connect(str(daemon.path))
        rude.sendall(b"".join(framed()))
    assert RemoteSite(daemon.path).handle(Query("describe"), "north").rows == 200


def test_idle_callers_tie_up_nobody(daemon):
    """More than one account may have; the daemon's patience is ten minutes."""
    with contextlib.ExitStack() as stack:
        idle = []
        for _ in range(2 * MOST_OF_ONE):
            idle.append(stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)))
            idle[-1].connect(str(daemon.path))
        assert RemoteSite(daemon.path).handle(Query("describe"), "north").rows == 200
        assert idle[0].recv(1) == b""  # the first gave way


def test_bodies_that_do_not_come_take_the_room_of_nobody(daemon):
    """Slow writers announce more than the daemon holds for all; a question with a body comes through."""
    head = [["a", "<f8", [LARGEST_QUERY // 8 - 100]]]
    parts = framed(head)
    size = len(parts[2]) + head[0][2][0] * 8
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            slow = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            slow.connect(str(daemon.path))
            slow.sendall(HEAD.pack(MAGIC, len(parts[1]), size) + parts[1] + bytes(1000))
        large = Query("column_sums", args={"columns": np.arange(100_000), "bound": 1.0})
        assert RemoteSite(daemon.path).handle(large, "north").error.startswith("NotAvailableError")


def test_accounts_take_turns():
    callers, order = ConnectionLimits(), []
    first, second = (socket.socketpair() for _ in range(2))
    ends = [(first[0], 1)] * 3 + [(second[0], 2)]
    present = [Caller(connection=connection, uid=uid) for connection, uid in ends]
    assert all(map(callers.enter, present))
    entered = threading.Event()

    def answered(number):
        with callers.turn(present[number]):
            order.append(number)
            if number == 0:
                entered.wait(600.0)

    threads = []
    for number in range(4):
        threads.append(threading.Thread(target=answered, args=(number,)))
        threads[-1].start()
        while sum(map(len, callers._waiting.values())) + len(order) <= number:
            time.sleep(0.001)
    entered.set()
    for thread in threads:
        thread.join()
    for end in (*first, *second):
        end.close()
    assert order == [0, 1, 3, 2] or order == [0, 3, 1, 2]


def test_only_accounts_on_the_list_are_heard(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    uid = os.getuid()
    with SiteDaemon(site_of(), "north", tmp_path / "n", allow_uids=[uid]).started() as daemon:
        assert RemoteSite(daemon.path).handle(Query("describe"), "north").rows == 200
    with SiteDaemon(site_of(), "north", tmp_path / "n", allow_uids=[uid + 1]).started() as daemon:
        assert ask(daemon) is None
        with pytest.raises(AlignmentError, match="did not answer"):
            RemoteSite(daemon.path).handle(Query("describe"), "north")
    assert json.loads(caplog.messages[-1]) | {"time": 0} == {
        "time": 0,
        "site": "north",
        "event": "account not in allow_uids",
        "uid": uid,
    }
    for wrong in ("me", [-1], [True], 3):
        with pytest.raises(ArgumentError, match="allow_uids"):
            SiteDaemon(site_of(), "north", tmp_path / "n", allow_uids=wrong)


INJECTED = '\n{"event": "answered"}\r\x1b[2J\u2028' + "x" * 5000


def test_nothing_can_be_written_into_the_log(daemon, caplog):
    caplog.set_level(logging.INFO)
    remote = RemoteSite(daemon.path)
    remote.handle(Query(INJECTED, session=INJECTED), "north")
    ask(daemon, *framed(text=json.dumps({INJECTED: 1})))
    ask(daemon, *framed(to=INJECTED[:900]))
    ask(daemon, *framed(**{INJECTED[:900]: "x"}))
    assert len(caplog.messages) == 4
    for line in caplog.messages:
        assert line.isascii()
        assert line.isprintable()
        assert len(line) < 1000
        assert json.loads(line)["event"] != "answered"


def test_refusals_do_not_fill_the_disk(daemon, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3 * REFUSALS):
        ask(daemon, *framed(to="x"))
    assert len(caplog.messages) <= 2 * REFUSALS + 2  # a minute may begin meanwhile


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


def test_an_answer_under_way_arrives_before_the_daemon_ends(tmp_path, monkeypatch):
    entered, handle, send, sent, replies = threading.Event(), Site.handle, frames.send, [], []

    def handled_slowly(site, query, name):
        entered.set()
        time.sleep(1.0)
        return handle(site, query, name)

    def sent_slowly(*args, **fields):
        time.sleep(0.3)
        send(*args, **fields)
        sent.append(args)

    monkeypatch.setattr(Site, "handle", handled_slowly)
    monkeypatch.setattr("privinf.federation.daemon.send", sent_slowly)
    with SiteDaemon(site_of(), "north", tmp_path / "n").started() as daemon:
        remote = RemoteSite(daemon.path)
        caller = threading.Thread(target=lambda: replies.append(remote.handle(Query("describe"), "north")))
        caller.start()
        assert entered.wait(600.0)
    assert len(sent) == 1  # the daemon's process may end now
    caller.join()
    assert [reply.rows for reply in replies] == [200]


@pytest.mark.parametrize(
    "failing",
    [(socketserver.ThreadingMixIn, "process_request", RuntimeError), (socket.socket, "accept", OSError)],
    ids=["no more threads", "no more descriptors"],
)
def test_a_connection_that_cannot_be_served_does_not_end_the_daemon(daemon, monkeypatch, caplog, failing):
    caplog.set_level(logging.INFO)
    owner, name, error = failing
    method, calls = getattr(owner, name), []

    def once(*args):
        calls.append(args)
        if len(calls) == 1:
            raise error("nothing left")
        return method(*args)

    monkeypatch.setattr(owner, name, once)
    if name == "process_request":
        assert ask(daemon, *framed()) is None
    assert RemoteSite(daemon.path).handle(Query("describe"), "north").rows == 200
    events = [json.loads(line)["event"] for line in caplog.messages]
    assert events == ["failed" if name == "process_request" else "no connection can be accepted", "answered"]
    assert len(calls) == 2


def test_nobody_there_or_nobody_answering(tmp_path):
    remote = RemoteSite(tmp_path / "nobody")
    with pytest.raises(AlignmentError, match="daemon of site 'north'"):
        remote.handle(Query("describe"), "north")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen()
        with pytest.raises(AlignmentError, match=r"timed out|no reply within"):
            RemoteSite(tmp_path / "deaf", timeout=0.2).handle(Query("describe"), "north")
    with pytest.raises(ArgumentError, match="timeout"):
        RemoteSite(tmp_path / "deaf", timeout=0.0)


def test_only_the_account_itself_may_open_the_socket(daemon, tmp_path):
    assert daemon.path.stat().st_mode & 0o777 == 0o600
    group = os.stat(tmp_path).st_gid
    shared = SiteDaemon(site_of(), "north", tmp_path / "s", group=grp.getgrgid(group).gr_name)
    with shared:
        assert shared.path.stat().st_mode & 0o777 == 0o660
    with pytest.raises(ArgumentError, match="no group 'no such group'; pass an existing group"):
        SiteDaemon(site_of(), "north", tmp_path / "t", group="no such group")


def test_nobody_connects_before_the_permissions_are_set(tmp_path, monkeypatch):
    chmod, modes = os.chmod, []

    def watched(path, mode):
        with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
            early.connect(str(path))
        modes.append(mode)
        chmod(path, mode)

    monkeypatch.setattr(os, "chmod", watched)
    with SiteDaemon(site_of(), "north", tmp_path / "n"):
        assert modes == [0o600]


def test_a_link_in_the_place_of_a_socket_is_not_followed(daemon, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "dead"))
    (tmp_path / "file").write_text("rows")
    refused = {
        "file": "a file has this path",
        "nothing": "a file has this path",
        "north.sock": "another daemon",
    }
    for name in (*refused, "dead"):
        (tmp_path / f"to {name}").symlink_to(tmp_path / name)
    for name, reason in refused.items():
        with pytest.raises(ArgumentError, match=reason):
            SiteDaemon(site_of(), "north", tmp_path / f"to {name}")
    with SiteDaemon(site_of(), "north", tmp_path / "to dead") as other:
        assert not other.path.is_symlink()
    assert (tmp_path / "file").read_text() == "rows"
    assert (tmp_path / "dead").exists()


def test_places_for_a_socket(daemon, tmp_path):
    (tmp_path / "file").write_text("rows")
    with pytest.raises(ArgumentError, match="because another daemon uses it"):
        SiteDaemon(site_of(), "north", daemon.path)
    with pytest.raises(ArgumentError, match="cannot be created, because a file has this path"):
        SiteDaemon(site_of(), "north", tmp_path / "file")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "chmod", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
        with pytest.raises(ArgumentError, match=r"\(Permission denied\); check its folder"):
            SiteDaemon(site_of(), "north", tmp_path / "new")
    assert (tmp_path / "file").read_text() == "rows"
    with pytest.raises(ArgumentError, match="at most"):
        SiteDaemon(site_of(), "north", tmp_path / ("x" * 120))
    with pytest.raises(ArgumentError, match="does not exist"):
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


def test_a_daemon_that_dies_in_mid_question_is_told_at_once(tmp_path):
    """It was asked again until the whole time was over: a caller waited for a site that was gone."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def hang_up():
            connection, _ = listening.accept()
            connection.recv(1)  # the rest is unread, so that the caller sees a reset
            listening.close()
            connection.close()

        dying = threading.Thread(target=hang_up)
        dying.start()
        begun = time.monotonic()
        with pytest.raises(AlignmentError, match="did not answer"):
            RemoteSite(path, timeout=60.0).handle(Query("describe"), "north")
        dying.join()
    assert time.monotonic() - begun < 30.0
