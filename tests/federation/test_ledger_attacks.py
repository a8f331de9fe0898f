"""A site's ledger against whoever can write its folder: files put back, cut, deleted, replaced or doubled."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from privinf.accounting import Budget, GaussianLoss, LedgerEntry, journal
from privinf.accounting.journal import Head
from privinf.errors import FileMissingError, StorageError
from privinf.federation import InProcessFederation, Query, Site, SiteLedger, SitePolicy, TrustedServer
from privinf.federation.askers import ClientEnvelope
from privinf.federation.site_ledger import FileJournal
from privinf.schema import Design

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import ledger_attacks


@pytest.fixture
def make_entry():
    def make(loss):
        return LedgerEntry(
            mechanism="gaussian",
            label="x",
            unit="record",
            relation="replace-one",
            trust="central",
            loss=loss,
            source="lattice",
            secure=True,
        )

    return make


@pytest.fixture
def place(tmp_path):
    (tmp_path / "site").mkdir()
    return tmp_path / "site" / "north.ledger"


def opened(place, budget=None):
    return SiteLedger(place, budget, anchor=place.parent.parent / "anchors" / "north.json")


def spent(place, make_entry, count, budget=None):
    with opened(place, budget) as ledger:
        for _ in range(count):
            ledger.spend(make_entry(GaussianLoss(0.1)))
        return ledger.head


def test_heads_are_those_of_the_own_chain(place, make_entry):
    first = spent(place, make_entry, 2)
    later = spent(place, make_entry, 1)
    assert (first.count, later.count) == (3, 4)
    with opened(place) as ledger:
        assert ledger.head == later
        assert ledger.knows(first)
        assert ledger.knows(later)
        for foreign in (Head(3, later.tag), Head(0, ""), Head(-1, later.tag), Head(5, "0" * 64)):
            assert not ledger.knows(foreign)


def cuts_that_open(place, make_entry):
    """Return how many truncations open: at every end of a line, beside it, and at every eleventh byte."""
    spent(place, make_entry, 3, Budget(mu=1.0))
    whole, opens = place.read_bytes(), 0
    ends = [place for place, byte in enumerate(whole[:-1]) if byte == 10]
    beside = {end + step for end in ends for step in (0, 1, 2)}
    for length in sorted({*range(0, len(whole), 11), *beside, len(whole) - 1}):
        place.write_bytes(whole[:length])
        try:
            opened(place).close()
            opens += 1
        except StorageError:
            pass
    return opens


def test_no_truncation_opens(place, make_entry):
    assert cuts_that_open(place, make_entry) == 0


def test_without_the_anchor_every_cut_at_a_line_opens(place, make_entry, monkeypatch):
    monkeypatch.setattr(journal.OpenJournal, "_after_anchor", lambda *words, **torn: False)
    assert cuts_that_open(place, make_entry) > 0


def test_an_older_copy_is_refused_and_so_is_a_new_ledger(place, make_entry):
    spent(place, make_entry, 1, Budget(mu=1.0))
    older = place.read_bytes()
    spent(place, make_entry, 2)
    place.write_bytes(older)
    with pytest.raises(StorageError, match="lost entries"):
        opened(place)
    place.unlink()
    for budget in (None, Budget(mu=1.0)):
        with pytest.raises(StorageError, match="was removed"):
            opened(place, budget)
    with SiteLedger(place.with_name("other"), Budget(mu=1.0)):
        pass
    shutil.copy(place.with_name("other"), place)
    with pytest.raises(StorageError, match="replaced by another"):
        opened(place)


def test_an_older_anchor_is_noticed_if_it_is_alone(place, make_entry):
    spent(place, make_entry, 1, Budget(mu=1.0))
    anchor = place.parent.parent / "anchors" / "north.json"
    older = anchor.read_bytes()
    spent(place, make_entry, 2)
    anchor.write_bytes(older)
    with pytest.raises(StorageError, match="older than the ledger"):
        opened(place)
    anchor.unlink()
    with pytest.raises(StorageError, match="privinf ledger anchor"):
        opened(place)


def test_a_line_that_the_anchor_did_not_reach_stays_charged(place, make_entry, monkeypatch):
    spent(place, make_entry, 1, Budget(mu=1.0))
    with monkeypatch.context() as killed:
        killed.setattr(journal.Anchor, "record", lambda *words: (_ for _ in ()).throw(KeyboardInterrupt))
        ledger = opened(place)
        with pytest.raises(KeyboardInterrupt):
            ledger.spend(make_entry(GaussianLoss(0.1)))
        ledger.close()
    for _ in range(2):
        with opened(place) as ledger:
            assert len(ledger) == 2


def altered(content):
    """Return lines in which one charge is another, each as it could be written without the secret."""
    return content.replace(b'"0.1"', b'"0.2"').replace(b"0.1", b"0.2")


def test_lines_are_chained(place, make_entry):
    spent(place, make_entry, 3, Budget(mu=1.0))
    whole = place.read_bytes()
    lines = whole.splitlines(keepends=True)
    swapped = b"".join([lines[0], lines[2], lines[1], lines[3]])
    for content in (altered(whole), swapped, b"".join([*lines[:2], lines[3]]), whole + lines[-1]):
        assert content != whole
        place.write_bytes(content)
        with pytest.raises(StorageError):
            opened(place)


def attack_gone(place, older):
    place.unlink()


def attack_replaced(place, older):
    place.unlink()
    place.write_bytes(older)


def attack_renamed(place, older):
    copy = place.with_name("copy")
    copy.write_bytes(older)
    os.replace(copy, place)


def attack_cut(place, older):
    place.write_bytes(older)


def attack_same_size(place, older):
    content = place.read_bytes()
    with open(place, "r+b") as stream:
        stream.seek(len(content) - 3)
        stream.write(b"?")


def attack_hard_link(place, older):
    os.link(place, place.with_name("second"))


LIVE = [attack_gone, attack_replaced, attack_renamed, attack_cut, attack_same_size, attack_hard_link]


@pytest.mark.parametrize("attack", LIVE)
def test_a_living_site_answers_no_more(place, make_entry, attack):
    spent(place, make_entry, 1, Budget(mu=1.0))
    older = place.read_bytes()
    with opened(place) as ledger:
        ledger.spend(make_entry(GaussianLoss(0.1)))
        design = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
        site = Site((np.zeros(2), np.zeros((2, 1))), design, ledger=ledger)
        assert not site.handle(Query("describe"), "north").error
        attack(place, older)
        assert "nothing is charged and no query is answered" in site.handle(Query("describe"), "north").error
        with pytest.raises(StorageError):
            ledger.spend(make_entry(GaussianLoss(0.1)))


def test_a_ledger_is_opened_once_by_any_name(place, make_entry):
    spent(place, make_entry, 1, Budget(mu=1.0))
    second = place.with_name("second")
    with opened(place):
        second.symlink_to(place)
        with pytest.raises(StorageError, match="symbolic link"):
            SiteLedger(second)
        second.unlink()
        with pytest.raises(StorageError, match="in use by another process"):
            opened(place)
        os.link(place, second)
        for path in (place, second):
            with pytest.raises(StorageError, match="hard links"):
                opened(path)
    second.unlink()
    shutil.copy(place, second)
    with pytest.raises(StorageError, match="may be an old copy"):
        SiteLedger(second)
    opened(place).close()


def test_opening_makes_none(place):
    with pytest.raises(FileMissingError, match="privinf ledger create"):
        SiteLedger.open(place)
    assert not place.exists()


def test_a_ledger_killed_while_it_was_made_is_made_again(place, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(journal, "_write", lambda *words: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            opened(place, Budget(mu=1.0))
    with opened(place, Budget(mu=1.0)) as ledger:
        assert ledger.head.count == 1


@pytest.fixture
def quietly(monkeypatch):
    monkeypatch.setattr(logging.getLogger("privinf.federation.envelope"), "disabled", True)


@pytest.mark.audit
def test_attacks_of_every_kind_are_noticed(quietly):
    """All of them: benchmarks/ledger_attacks.py."""
    seen, unnoticed = ledger_attacks.attack(150)
    assert not unnoticed
    assert sum(seen.values()) == 150
    kinds = {kind for kind, _ in seen}
    assert kinds == {one.__name__.replace("_", " ") for one in ledger_attacks.ATTACKS} | {"LedgerFile"}


@pytest.mark.audit
def test_mutant_anchors_remember_nothing(quietly, monkeypatch):
    monkeypatch.setattr(journal.OpenJournal, "_after_anchor", lambda *words, **torn: False)
    assert any("LedgerFile" in told for told in ledger_attacks.attack(60)[1])


@pytest.mark.audit
def test_mutant_neither_asker_nor_site_compares_heads(quietly, monkeypatch):
    monkeypatch.setattr(ClientEnvelope, "_heads_for", lambda end, site: {})
    monkeypatch.setattr(ClientEnvelope, "_check", lambda *words: None)
    monkeypatch.setattr(FileJournal, "knows", lambda journal, head: True)
    assert any("rollback" in told for told in ledger_attacks.attack(60)[1])


HOSTILE = {
    "session": lambda header: header | {"session": "\ud83d"},
    "reservation": lambda header: header | {"reservation": "\ud83d"},
    "position": lambda header: header | {"sequence": 10**300},
    "label": lambda header: header | {"charges": [header["charges"][0] | {"label": "\ud83d"}]},
    "noise": lambda header: (
        header
        | {
            "charges": [
                header["charges"][0] | {"noise": header["charges"][0]["noise"] | {"sites": 10**300}},
            ]
        }
    ),
}


@pytest.mark.parametrize("part", HOSTILE)
def test_no_query_makes_the_ledger_of_a_site_unreadable(place, part):
    design = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-1, 1))
    rows = np.zeros(20), np.zeros((20, 1))
    with opened(place, Budget(mu=9.0)) as ledger:
        site = Site(rows, design, policy=SitePolicy(trusted_server=True), ledger=ledger)
        server = TrustedServer(InProcessFederation({"north": site}))
        query = server.planned("squared_residuals", {"residual_clip": 1.0}, mu=1.0, label="sums").query
        text, arrays = query.pack()
        hostile = json.dumps(HOSTILE[part](json.loads(text)))
        with suppress(StorageError):  # no query of this package
            assert site.handle(Query.unpack(hostile, arrays), "north").error
        assert site.handle(query, "north").error == ""
    with opened(place) as ledger:
        assert len(ledger) == 1
