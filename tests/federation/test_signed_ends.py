"""Signed questions and replies: who is believed, who is refused, and who notices a ledger that went back."""

import json
import pickle
import socket

import numpy as np
import pandas as pd
import pytest
from federation_sites import design_of, rows_of
from secure_sites import secure_query
from signed_sites import ANALYST, KEYS, LISTED, NAMES, QUICK, ROSTER, SCORE, World, asked, charged

import privinf as pi
from privinf.accounting.journal import Head
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, StorageError
from privinf.federation import (
    IdentityKey,
    InProcessFederation,
    Query,
    Roster,
    SecureServer,
    Site,
    SiteDaemon,
    SiteLedger,
    SitePolicy,
    SocketFederation,
    pinned_keys,
)
from privinf.federation.askers import ClientEnvelope, HeadMemory
from privinf.federation.envelope import MOST_HEADS, Envelope, SignedHead, SiteEnvelope
from privinf.federation.frames import frame, receive
from privinf.federation.secure.keys import signed_by
from privinf.federation.site_ledger import FileJournal

SIMULATED = {"simulation": True}
KNOWN = {"roster": ROSTER, "key": ANALYST}
STRANGER = IdentityKey(bytes([8]) * 32)


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path, **SIMULATED)
    yield found
    found.close()


@pytest.fixture
def closed(tmp_path):
    """Sites that answer one analyst."""
    found = World(tmp_path, **SIMULATED, analysts=LISTED)
    yield found
    found.close()


# ---- keys and rosters


def test_one_secret_has_two_keys(tmp_path):
    key, other = IdentityKey(), IdentityKey()
    key.save(tmp_path / "key")
    again = IdentityKey.load(tmp_path / "key")
    (tmp_path / "old").write_text(key.secret_bytes().hex())
    (tmp_path / "old").chmod(0o600)
    with pytest.raises(StorageError, match=r"no checksum.*privinf site key"):
        IdentityKey.load(tmp_path / "old")
    assert again.verifying == key.verifying
    assert key.verifying not in (key.public, other.verifying)
    signature = again.sign(b"text")
    assert signed_by(key.verifying, signature, b"text")
    for wrong in [
        (other.verifying, signature, b"text"),
        (key.verifying, signature, b"other"),
        (key.verifying, "0" * 128, b"text"),
        (key.verifying, "x", b"text"),
        ("", signature, b"text"),
        (key.verifying, signature.upper(), b"text"),
        (key.verifying, f" {signature}", b"text"),
    ]:
        assert not signed_by(*wrong)


# Points of small order of Edwards' curve, some written in a second way.
FIELD = 2**255 - 19
ORDER8 = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"
WEAK = [number.to_bytes(32, "little").hex() for number in (0, 1, FIELD - 1, FIELD, FIELD + 1, 1 + 2**255)]


@pytest.mark.parametrize("key", [*WEAK, ORDER8, "f" * 64, "02" + "0" * 62, "x", 3])
def test_no_verifying_key_by_which_anybody_signs(key):
    with pytest.raises(
        ArgumentError, match="the key to verify signatures of site 'south' must be a public Ed25519 key"
    ):
        Roster(dict(ROSTER.keys), dict(ROSTER.verifying) | {"south": key})
    with pytest.raises(ArgumentError, match="the key of analyst 'ada'"):
        SitePolicy(analysts=[{"name": "ada", "key": key}])


def test_rosters_of_two_versions():
    plain = Roster(dict(ROSTER.keys))
    assert (plain.signed, ROSTER.signed) == (False, True)
    for roster, version in ((plain, 1), (ROSTER, 2)):
        assert json.loads(roster.to_json())["version"] == version
        for again in (Roster.from_json(roster.to_json()), pickle.loads(pickle.dumps(roster))):
            assert (again.digest, again.verifying) == (roster.digest, roster.verifying)
    assert plain.digest != ROSTER.digest
    twice = dict(ROSTER.verifying) | {"south": ROSTER.verifying["north"]}
    for wrong in ({"north": ROSTER.verifying["north"]}, twice, [1]):
        with pytest.raises(ArgumentError):
            Roster(dict(ROSTER.keys), wrong)
    content = {"format": "privinf-roster", "version": 2, "keys": dict(ROSTER.keys), "verifying": {}}
    with pytest.raises(StorageError, match="a key to verify signatures is missing"):
        Roster.from_json(json.dumps(content))


# ---- replies


def test_the_same_numbers_as_without_signatures(world):
    seeded = asked(world.federation(roster=ROSTER), rng=3)
    assert seeded.tobytes() == asked(world.federation(), rng=3).tobytes()
    assert "replies checked" in repr(world.federation(**KNOWN))


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ({"roster": Roster(dict(ROSTER.keys))}, "no keys to verify"),
        ({"roster": pinned_keys(NAMES[:2])[1]}, "roster= does not list site 'west'"),
        ({"roster": ROSTER.to_json()}, "roster= must be a Roster"),
        ({"roster": "roster.json"}, r"read a file .* with Roster\.from_json"),
        ({"key": "ada.key"}, r"load a file with IdentityKey\.load"),
        ({"key": ANALYST.verifying}, "key= must be an IdentityKey"),
        ({"heads": "heads.json"}, "needs roster="),
    ],
)
def test_what_no_reply_can_be_checked_by(world, ends, told):
    with pytest.raises(ArgumentError, match=told):
        world.federation(**ends)


def replaced(world, name, **options):
    """Put another site at the socket of a site."""
    world.down(name)
    policy = SitePolicy(secure_sums=True, simulation=True)
    site = Site(rows_of(60, 0), design_of(), policy=policy, **options)
    return SiteDaemon(site, name, world.folder / f"{name}.sock", timeout=600.0).started()


FORGED = IdentityKey(bytes([7]) * 32)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "key": FORGED,
            "roster": Roster(
                dict(ROSTER.keys) | {"south": FORGED.public},
                dict(ROSTER.verifying) | {"south": FORGED.verifying},
            ),
        },
        {"key": KEYS["south"], "roster": Roster(dict(ROSTER.keys))},
        {"key": KEYS["west"], "roster": ROSTER},
    ],
    ids=["no key", "another key", "a roster of version 1", "another site's key"],
)
def test_an_impostor_is_named(world, options):
    before = world.federation(roster=ROSTER)
    with replaced(world, "south", **options):
        with pytest.raises(AlignmentError, match="site 'south': the reply is not signed with"):
            world.federation(roster=ROSTER)
        with pytest.raises(AlignmentError, match="site 'south': the reply is not signed with"):
            asked(before)


def test_another_pinned_roster_is_named(world):
    other = IdentityKey()
    more = Roster(dict(ROSTER.keys) | {"x": other.public}, dict(ROSTER.verifying) | {"x": other.verifying})
    with pytest.raises(AlignmentError, match="site 'north' has a list of public keys"):
        world.federation(roster=more)


# ---- analysts


def test_a_listed_analyst_is_answered(closed):
    assert asked(closed.federation(**KNOWN)).shape == (4,)
    assert asked(closed.federation(key=ANALYST)).shape == (4,)
    assert [charged(name, closed) for name in NAMES] == [2] * 3


@pytest.mark.parametrize("key", [None, IdentityKey()], ids=["unsigned", "another key"])
def test_others_are_not(closed, key):
    with pytest.raises(NotAvailableError, match="site 'north': the site answers only queries"):
        closed.federation(roster=ROSTER, key=key)
    assert [charged(name, closed) for name in NAMES] == [0] * 3


def test_a_body_is_not_read_before_its_envelope(closed):
    """The header alone is sent: the refusal comes all the same."""
    header = frame(Query("describe").pack(), to="north")[:2]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(closed.folder / "north.sock"))
        connection.sendall(b"".join(header))
        told, message = receive(connection, 600.0, 1 << 20)
    assert (told, "signed by an analyst in its policy" in message[0]) == ({}, True)


def test_sites_of_one_process_that_list_analysts_answer_nothing():
    site = Site(rows_of(60, 0), design_of(), policy=SitePolicy(analysts=LISTED))
    with pytest.raises(NotAvailableError, match="site 'north': the site answers only queries"):
        SecureServer(InProcessFederation({"north": site}))
    assert "signed by an analyst in its policy" in site.handle(Query("describe"), "north").error


@pytest.mark.parametrize(
    "wrong",
    [
        [{"name": "ada"}],
        ["ada"],
        "ada",
        [LISTED[0] | {"limit": {"mu": 1.0}}],
        [*LISTED, *LISTED],
        [LISTED[0] | {"budget": 1.0}],
        [LISTED[0] | {"budget": {"mu": -1.0}}],
        [LISTED[0] | {"budget": {}}],
        [*LISTED, {"name": "bob", "key": ANALYST.verifying}],
        [{"name": "", "key": ANALYST.verifying}],
        {},
    ],
)
def test_lists_that_are_none(wrong):
    with pytest.raises(ArgumentError):
        SitePolicy(analysts=wrong)


def sealed(query, site="north", key=ANALYST):
    return ClientEnvelope([], key=key).envelope_for(query, site)


@pytest.mark.parametrize(
    "change",
    [
        {"site": "south"},
        {"digest": "0" * 64},
        {"session": "s"},
        {"sequence": "7"},
        {"nonce": "0" * 32},
        {"analyst": STRANGER.verifying},
        {"signature": "0" * 128},
        {"signature": ""},
        {"analyst": ""},
        {"head north": SignedHead.by(KEYS["north"], "north", Head(1, "0" * 64)).text},
        {"more": "x"},
        {"sequence": "x"},
        {"nonce": ""},
        {"head north": "x"},
    ],
    ids=lambda change: "=".join(*change.items())[:24],
)
def test_every_field_of_a_question_is_bound(closed, change):
    query = secure_query(closed.federation(**KNOWN))
    fields = sealed(query).fields
    reply, _ = closed.remote("north").exchange(query, "north", fields | change)
    assert reply.error
    assert charged("north", closed) == 0
    assert not closed.remote("north").exchange(query, "north", fields)[0].error
    assert charged("north", closed) == 1


def test_an_envelope_serves_for_one_question_and_one_site(closed):
    federation = closed.federation(**KNOWN)
    query = secure_query(federation)
    other = secure_query(federation, mu=2.0)
    for name, fields, told in [
        ("north", sealed(query).fields, "does not match the checksum"),
        ("south", sealed(other).fields, "is addressed to another site"),
        ("north", sealed(other, "").fields, "does not match the checksum"),
    ]:
        assert told in closed.remote(name).exchange(other, name, fields)[0].error
    assert charged("north", closed) == charged("south", closed) == 0


def test_a_question_asked_again_has_the_same_bytes_and_the_present_head(world):
    query = secure_query(world.federation(roster=ROSTER))
    end = ClientEnvelope(NAMES, roster=ROSTER)
    found = []
    for at in range(2):
        envelope = end.envelope_for(query, "north")
        reply, fields = world.remote("north").exchange(query, "north", envelope.fields)
        assert not end.checked(envelope, reply, fields).error
        found.append((reply.pack(), fields))
        if at == 0:
            asked(world.federation())
    assert found[0][0][0] == found[1][0][0]
    np.testing.assert_array_equal(found[0][0][1]["masked"], found[1][0][1]["masked"])
    counts = [int(fields["head north"].split()[0]) for _, fields in found]
    assert counts[0] < counts[1]


# ---- heads: who notices that a ledger went back


def both(world, name):
    return world.ledger(name), world.anchor(name)


@pytest.mark.audit
@pytest.mark.parametrize(
    ("back", "noticed"),
    [
        (("ledger",), "anchor"),
        (("ledger", "anchor"), "peers"),
        (("ledger", "anchor", "peers"), "asker"),
        (("ledger", "anchor", "peers", "asker"), ""),
    ],
    ids=lambda part: "+".join(part) if isinstance(part, tuple) else part or "nobody",
)
def test_who_notices_a_ledger_that_was_put_back(world, tmp_path, back, noticed):
    """One witness more is put back each time: with all of them nothing is left to notice it by."""
    memory = tmp_path / "heads.json"
    asked(world.federation(roster=ROSTER, heads=memory))
    for name in NAMES:
        world.down(name)
    files = [world.ledger("north")]
    files += [world.anchor("north")] if "anchor" in back else []
    files += [path for name in NAMES[1:] for path in both(world, name)] if "peers" in back else []
    files += [memory] if "asker" in back else []
    put_back = world.kept(*files)
    for name in NAMES:
        world.up(name)
    asked(world.federation(roster=ROSTER, heads=memory))
    for name in NAMES:
        world.down(name)
    put_back()
    if noticed == "anchor":
        with pytest.raises(StorageError, match="has lost entries"):
            world.up("north")
        return
    for name in NAMES:
        world.up(name)
    before = charged("north", world)
    ends = {"roster": ROSTER} | ({} if noticed == "peers" else {"heads": memory})

    def again():
        asked(world.federation(**ends))

    if noticed:
        with pytest.raises(StorageError, match=r"site 'north': the site's ledger lacks entries"):
            again()
    else:
        again()
    assert charged("north", world) - before == (0 if noticed else 1)


def test_a_ledger_that_went_back_and_grew_again_is_noticed(world):
    """Its count is no lower: only its own chain tells."""
    federation = world.federation(roster=ROSTER)
    world.down("north")
    put_back = world.kept(*both(world, "north"))
    world.up("north")
    asked(federation)
    world.down("north")
    put_back()
    world.up("north")
    for _ in range(3):
        asked(world.federation())
    with pytest.raises(StorageError, match="site 'north': the site's ledger lacks entries"):
        asked(federation)


def test_a_resumed_fit_notices_a_ledger_that_went_back_and_grew_again(world, tmp_path):
    """The sites have shown their heads to the new process before it reads the file of the fit's folder."""
    before = world.federation(roster=ROSTER)
    before.heads.keep_in(tmp_path / "heads.json")
    world.down("north")
    put_back = world.kept(*both(world, "north"))
    world.up("north")
    asked(before)
    world.down("north")
    put_back()
    world.up("north")
    for _ in range(3):
        asked(world.federation())
    resumed = world.federation(roster=ROSTER)
    server = SecureServer(resumed)
    resumed.heads.keep_in(tmp_path / "heads.json")
    with pytest.raises(StorageError, match="site 'north': the site's ledger lacks entries"):
        server.vector_sum("clipped_score", SCORE, mu=1.0, label="s")


def test_mutant_no_site_looks_for_the_head_that_it_is_told(world, monkeypatch):
    monkeypatch.setattr(FileJournal, "knows", lambda journal, head: True)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_ledger_that_went_back_and_grew_again_is_noticed(world)


def test_mutant_no_asker_compares_heads(monkeypatch):
    monkeypatch.setattr(ClientEnvelope, "_heads_for", lambda end, site: {})
    with pytest.raises(AssertionError):
        test_a_site_that_lies_about_its_head_is_refused_by_the_asker()


def test_a_site_that_lies_about_its_head_is_refused_by_the_asker():
    """The site's own look is left out: the asker compares counts, and tags of one count."""
    end, query = ClientEnvelope(NAMES, roster=ROSTER), Query("describe")
    heads = iter([(5, "a"), (4, "a"), (5, "b"), (None, ""), (5, "a"), (6, "c")])
    told = []
    for count, letter in heads:
        envelope = end.envelope_for(query, "north")
        site = Site(rows_of(60, 0), design_of(), key=KEYS["north"], roster=ROSTER)
        head = None if count is None else Head(count, letter * 64)
        journal = type("Showing", (), {"head": head, "peers": {}, "knows": lambda *_: True})()
        site_end = SiteEnvelope(Shown(site, journal), "north")
        told.append(end.checked(envelope, *site_end.answer(envelope, query)).error)
    assert [bool(error) for error in told] == [False, True, True, True, False, False]
    assert "lacks entries that it had before" in told[1]


class Shown:
    """A site with another journal."""

    def __init__(self, site, journal):
        self.site, self.journal, self.keys, self.analysts = site, journal, site.keys, site.analysts
        self.handle, self.refused = site.handle, site.refused


def test_heads_that_nobody_signed_are_not_kept(world):
    """A caller cannot make a site refuse, or remember, by heads that he invents."""
    invented = [
        SignedHead(Head(10**9, "0" * 64), "0" * 128),
        SignedHead.by(FORGED, "south", Head(10**9, "0" * 64)),
        SignedHead.by(KEYS["west"], "south", Head(10**9, "0" * 64)),
        SignedHead.by(KEYS["south"], "west", Head(10**9, "0" * 64)),
    ]
    query, lines = Query("describe"), world.ledger("north").read_bytes()
    for name in ("south", "north", "nobody"):
        for head in invented:
            asked_one = ClientEnvelope(NAMES, roster=ROSTER).envelope_for(query, "north")
            fields = asked_one.fields | {f"head {name}": head.text}
            assert "not" in world.remote("north").exchange(query, "north", fields)[0].error
    assert world.ledger("north").read_bytes() == lines


@pytest.mark.audit
def test_heads_are_kept_in_the_folder_of_a_fit(tmp_path):
    rng = np.random.default_rng(0)
    schema = pi.Schema({"y": (-2.0, 2.0), "x": (-1.0, 1.0)})
    (tmp_path / "anchors").mkdir()
    ledgers, daemons = [], []
    for at, name in enumerate(NAMES):
        x = rng.uniform(-1, 1, 400)
        ledger = SiteLedger(tmp_path / f"{name}.ledger", anchor=tmp_path / "anchors" / name)
        rows = pd.DataFrame({"x": x, "y": 0.5 * x + rng.normal(0, 0.3, 400).clip(-1, 1)})
        site = Site(
            rows, schema, policy=SitePolicy(secure_sums=True), key=KEYS[name], roster=ROSTER, ledger=ledger
        )
        ledgers.append(ledger)
        daemons.append(SiteDaemon(site, name, tmp_path / f"{at}", timeout=600.0).started())
    federation = SocketFederation(
        {name: tmp_path / f"{at}" for at, name in enumerate(NAMES)}, **QUICK, roster=ROSTER
    )
    model = pi.FederatedGLM.from_formula(
        "y ~ x", federation, schema=schema, trust="secure-sum", family="gaussian"
    )
    model.fit(epsilon=4.0, delta=1e-6, checkpoint=tmp_path / "fit")
    kept = HeadMemory(tmp_path / "fit" / "heads.json")
    for daemon, ledger, name in zip(daemons, ledgers, NAMES, strict=True):
        daemon.stop()
        shown = kept.highest_head(ROSTER.verifying[name])
        assert shown is not None
        assert ledger.knows(shown.head)
        ledger.close()


def test_the_memory_of_heads(tmp_path):
    memory = HeadMemory(tmp_path / "heads.json")
    owner = ROSTER.verifying["north"]
    first, later, other = (
        SignedHead.by(KEYS["north"], "north", Head(count, letter * 64))
        for count, letter in ((3, "a"), (4, "b"), (4, "c"))
    )
    assert memory.learn("north", owner, later)
    assert memory.learn("north", owner, first)
    assert not memory.learn("north", owner, other)
    memory.save()
    assert HeadMemory(tmp_path / "heads.json").highest_head(owner) == later
    beside = HeadMemory(tmp_path / "heads.json")
    south = SignedHead.by(KEYS["south"], "south", Head(1, "d" * 64))
    beside.learn("south", ROSTER.verifying["south"], south)
    beside.save()
    newest = SignedHead.by(KEYS["north"], "north", Head(9, "e" * 64))
    memory.learn("north", owner, newest)
    memory.save()
    both_of = HeadMemory(tmp_path / "heads.json")
    assert (both_of.highest_head(owner), both_of.highest_head(ROSTER.verifying["south"])) == (newest, south)
    text = (tmp_path / "heads.json").read_text()
    content = json.loads(text)
    del content["sha256"]
    content["heads"][owner]["head"] = f"10 {'a' * 64} {'0' * 128}"
    for wrong in (json.dumps(content), text[:-9], "[]", "{}", text.replace('"version": 1', '"version": 2')):
        (tmp_path / "heads.json").write_text(wrong)
        with pytest.raises(StorageError):
            HeadMemory(tmp_path / "heads.json")
    (tmp_path / "file").write_text("")
    unwritable = HeadMemory(tmp_path / "file" / "heads.json")
    unwritable.learn("north", owner, first)
    with pytest.raises(StorageError, match="cannot be written"):
        unwritable.save()


def test_two_processes_of_one_file_that_a_site_has_shown_two_ledgers_notice_it(tmp_path):
    owner, path = ROSTER.verifying["north"], tmp_path / "heads.json"
    memories = [HeadMemory(path) for _ in range(2)]
    for memory, letter in zip(memories, "ab", strict=True):
        assert memory.learn("north", owner, SignedHead.by(KEYS["north"], "north", Head(4, letter * 64)))
    memories[0].save()
    before = path.read_bytes()
    with pytest.raises(StorageError, match="site 'north' has shown two different ledgers"):
        memories[1].save()
    assert path.read_bytes() == before


def test_of_many_sites_each_question_tells_some(monkeypatch):
    names = [f"s{at:03d}" for at in range(MOST_HEADS + 20)]
    head = SignedHead.by(KEYS["north"], "x", Head(1, "0" * 64))
    many = Roster.__new__(Roster)
    object.__setattr__(many, "keys", dict.fromkeys(names, ""))
    object.__setattr__(many, "verifying", {name: name for name in names})
    end = ClientEnvelope([], roster=many)
    for name in names:
        end.memory.learn(name, name, head)
    told = [end.envelope_for(Query("describe"), name).heads for name in names]
    assert all(
        len(heads) == MOST_HEADS + 1 and name in heads for name, heads in zip(names, told, strict=True)
    )
    assert all(sum(name in heads for heads in told) == MOST_HEADS + 1 for name in names)
    sent = frame(
        Query("describe").pack(), to=names[0], **end.envelope_for(Query("describe"), names[0]).fields
    )
    assert len(sent[1]) < 1 << 16
    with pytest.raises(StorageError, match="more than"):
        Envelope.from_fields(end.envelope_for(Query("describe"), "s000").fields | {"head more": head.text})
