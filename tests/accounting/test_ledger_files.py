"""Ledger files: what is spent is on the disk, and processes started together cannot overspend."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from fractions import Fraction

import pytest
from support.disks import small_files

from privinf.accounting import Budget, GaussianLoss, Ledger
from privinf.accounting.files import LedgerFile
from privinf.errors import ArgumentError, BudgetExceededError, StorageError
from privinf.federation import SiteLedger
from privinf.mechanisms.gaussian import Spending

LIMIT = Budget(mu=1.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "clinic.ledger"


def files(path):
    return sorted(item.name for item in path.parent.iterdir())


def test_the_first_spend_makes_the_file_and_every_door_reads_it(path, make_entry):
    ledger = LedgerFile(path, LIMIT, name="patient")
    ledger.check([GaussianLoss(0.6)])
    assert (len(ledger), files(path)) == (0, [])
    (recorded,) = ledger.spend(make_entry(GaussianLoss(0.6)))
    assert files(path) == ["clinic.ledger"]
    assert path.stat().st_mode & 0o077 == 0
    other = LedgerFile(path)
    assert other.entries == ledger.entries == (recorded,)
    assert (other.budget, other.name) == (LIMIT, "patient")
    other.scope("fold 1").spend(make_entry(GaussianLoss(0.8)))
    assert [entry.scope for entry in ledger.entries] == [(), ("fold 1",)]
    assert ledger.remaining().limit == 0
    assert ledger.total().mu == pytest.approx(1.0)
    text = LedgerFile(path, LIMIT).to_json()
    assert Ledger.from_json(text).entries == ledger.entries


def test_it_is_the_ledger_of_a_release(path):
    ledger = LedgerFile(path, LIMIT)
    spending = Spending.from_options({"mu": 0.5, "rng": 0}, ledger)
    assert spending.ledger is ledger


def test_a_refusal_leaves_the_file_as_it_was(path, make_entry):
    ledger = LedgerFile(path, LIMIT)
    with pytest.raises(BudgetExceededError, match="nothing was recorded or released"):
        ledger.spend(make_entry(GaussianLoss(1.1)))
    assert not path.exists()
    ledger.spend(make_entry(GaussianLoss(0.8)))
    before = path.read_bytes()
    for entry_point in (ledger, LedgerFile(path), LedgerFile(path).scope("fold 1")):
        with pytest.raises(BudgetExceededError):
            entry_point.spend(make_entry(GaussianLoss(0.1)), make_entry(GaussianLoss(0.6)))
        with pytest.raises(BudgetExceededError):
            entry_point.check([GaussianLoss(0.61)])
    assert path.read_bytes() == before
    with pytest.raises(ArgumentError, match="already in the ledger"):
        ledger.spend(ledger.entries[0])


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_spend_that_cannot_be_written_is_none(path, make_entry, monkeypatch, call):
    ledger = LedgerFile(path, LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.6)))
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StorageError, match=r"No space left on device.*nothing was recorded"):
            ledger.spend(make_entry(GaussianLoss(0.1)))
    if path.read_bytes() != before:  # not taken back: the next to open it does
        assert len(LedgerFile(path)) == 1
    assert path.read_bytes() == before
    assert files(path) == ["clinic.ledger"]
    ledger.spend(make_entry(GaussianLoss(0.8)))
    assert len(LedgerFile(path)) == 2


def test_a_full_disk_records_a_spend_whole_or_not_at_all(path, make_entry):
    ledger = LedgerFile(path, LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.1)))
    refused = taken = 0
    for more in range(0, 1600, 61):
        before = path.read_bytes()
        try:
            with small_files(len(before) + more):
                ledger.spend(make_entry(GaussianLoss(0.01)))
            taken += 1
        except StorageError as problem:
            refused += "File too large" in str(problem) and "nothing was recorded" in str(problem)
            assert path.read_bytes() == before
        assert len(ledger) == len(LedgerFile(path)) == taken + 1
        assert files(path) == ["clinic.ledger"]
    assert refused > 3 < taken
    assert refused + taken == len(range(0, 1600, 61))


def test_limits_are_set_once(path, tmp_path, make_entry):
    with pytest.raises(StorageError, match="pass budget="):
        LedgerFile(path)
    with pytest.raises(StorageError, match="not a folder"):
        LedgerFile(tmp_path / "missing" / "clinic.ledger", LIMIT)
    early = LedgerFile(path, Budget(mu=2.0))
    LedgerFile(path, LIMIT).spend(make_entry(GaussianLoss(0.5)))
    with pytest.raises(StorageError, match="cannot be changed"):
        LedgerFile(path, Budget(mu=1.5))
    with pytest.raises(StorageError, match="cannot be changed"):
        early.spend(make_entry(GaussianLoss(1.5)))
    with pytest.raises(ArgumentError, match="Budget or None"):
        LedgerFile(path, 1.0)
    with pytest.raises(ArgumentError, match="name"):
        LedgerFile(path, LIMIT, name=" ")


def test_two_ledgers_opened_before_the_file_are_one_account(path, make_entry):
    first, second = LedgerFile(path, LIMIT), LedgerFile(path, LIMIT)
    first.spend(make_entry(GaussianLoss(0.8)))
    with pytest.raises(BudgetExceededError):
        second.spend(make_entry(GaussianLoss(0.8)))
    second.spend(make_entry(GaussianLoss(0.6)))
    assert len(first) == len(second) == 2


def test_damaged_foreign_and_vanished_files(path, make_entry):
    ledger = LedgerFile(path, LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.8)))
    good = path.read_text()
    lines = good.splitlines(keepends=True)
    doubled, changed = lines[0] + lines[1] * 2, good.replace("0.8", "0.7")
    others = ("", good[:-20], good[:-1], "{}", lines[0], lines[1], doubled, changed)
    for text in others:
        assert text != good
        path.write_text(text)
        with pytest.raises(StorageError):
            LedgerFile(path)
        with pytest.raises(StorageError):
            ledger.spend(make_entry(GaussianLoss(0.1)))
        assert path.read_text() == text
    path.write_bytes(b"\xff")
    with pytest.raises(StorageError, match=r"lost entries|damaged"):
        ledger.check([GaussianLoss(0.1)])
    path.unlink()
    with pytest.raises(StorageError, match="was removed"):
        ledger.spend(make_entry(GaussianLoss(0.1)))
    for budget in (None, LIMIT):
        with pytest.raises(StorageError, match="was removed"):
            LedgerFile(path, budget)


def test_an_older_copy_is_refused_and_by_a_living_process_even_with_its_anchor(path, make_entry, tmp_path):
    anchor = tmp_path / "anchors" / "a"
    (tmp_path / "place").mkdir()
    place = tmp_path / "place" / "clinic.ledger"
    ledger = LedgerFile(place, LIMIT, anchor=anchor)
    ledger.spend(make_entry(GaussianLoss(0.1)))
    older = place.read_bytes(), anchor.read_bytes()
    ledger.spend(make_entry(GaussianLoss(0.1)))
    latest = place.read_bytes(), anchor.read_bytes()
    place.write_bytes(older[0])
    with pytest.raises(StorageError, match="lost entries that were charged"):
        LedgerFile(place, anchor=anchor)
    anchor.write_bytes(older[1])
    with pytest.raises(StorageError, match="entries that this process had read"):
        ledger.spend(make_entry(GaussianLoss(0.1)))
    assert len(LedgerFile(place, anchor=anchor)) == 1  # what nobody remembers: docs/explain/trust.md
    place.write_bytes(latest[0])
    anchor.write_bytes(latest[1])
    ledger.spend(make_entry(GaussianLoss(0.1)))
    os.link(place, tmp_path / "place" / "second")
    for entry_point in (place, tmp_path / "place" / "second"):
        with pytest.raises(StorageError, match="hard links"):
            LedgerFile(entry_point, anchor=anchor)
    (tmp_path / "place" / "second").unlink()
    place.rename(tmp_path / "place" / "moved")
    with pytest.raises(StorageError, match="privinf ledger anchor"):
        LedgerFile(tmp_path / "place" / "moved")


def test_a_ledger_of_version_1_is_refused(path, make_entry):
    former = Ledger(LIMIT, name="patient")
    former.spend(make_entry(GaussianLoss(0.6)))
    path.write_text(former.to_json())
    with pytest.raises(StorageError, match=r"has version 1.*privinf ledger create.*lower its limit"):
        LedgerFile(path)
    assert path.read_text() == former.to_json()


def test_pickles_copies_and_texts_are_doors_to_the_file(path, make_entry):
    ledger = LedgerFile(path, LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.8)))
    entry_points = [
        pickle.loads(pickle.dumps(ledger)),
        pickle.loads(pickle.dumps(ledger.scope("fold 1"))),
        Ledger.from_json(ledger.to_json()),
    ]
    for entry_point in entry_points:
        with pytest.raises(BudgetExceededError):
            entry_point.spend(make_entry(GaussianLoss(0.8)))
        entry_point.spend(make_entry(GaussianLoss(0.1)))
    assert len(LedgerFile(path)) == 4
    assert ledger.entries[2].scope == ("fold 1",)


def test_what_another_copy_of_the_account_spent_is_merged_into_the_file(path, make_entry):
    ledger = LedgerFile(path, LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.1)))
    record = json.loads(ledger.to_json())
    other = make_entry(GaussianLoss(0.8))
    record["entries"].append(other.to_dict())
    record["spent"] = str(Fraction(1, 100) + Fraction(64, 100))
    del record["sha256"]
    for _ in range(2):
        Ledger.from_json(json.dumps(record))
        assert LedgerFile(path).entries[1:] == (other,)


def test_threads_spend_the_limit_and_no_more(path, make_entry):
    ledgers = [LedgerFile(path, LIMIT) for _ in range(4)]
    refused = []

    def work(ledger):
        for _ in range(5):
            try:
                ledger.spend(make_entry(GaussianLoss(0.5)))
            except BudgetExceededError:
                refused.append(1)

    threads = [threading.Thread(target=work, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 16
    assert len(LedgerFile(path)) == 4
    assert LedgerFile(path).remaining().limit == Fraction(0)


RACER = """
import sys, time
from pathlib import Path
from privinf.accounting import Budget, GaussianLoss, LedgerEntry
from privinf.accounting.files import LedgerFile
from privinf.errors import BudgetExceededError
folder, me = Path(sys.argv[1]), sys.argv[2]
ledger = LedgerFile(folder / "clinic.ledger", Budget(mu=1.0))
loss = GaussianLoss(0.8)
entry = LedgerEntry(mechanism="gaussian", label="x", unit="person", relation="replace-one", trust="local",
                    loss=loss, source="lattice", secure=True)
ledger.check([loss])
(folder / f"ready {me}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
try:
    ledger.spend(entry)
except BudgetExceededError:
    sys.exit(2)
"""


@pytest.mark.audit
def test_of_processes_started_together_one_is_refused(path):
    command = [sys.executable, "-c", RACER, str(path.parent)]
    racers = [subprocess.Popen([*command, str(me)], stderr=subprocess.PIPE, text=True) for me in range(3)]
    while len(list(path.parent.glob("ready *"))) < 3 and all(racer.poll() is None for racer in racers):
        time.sleep(0.01)
    (path.parent / "go").touch()
    ended = [(racer.communicate(timeout=600)[1], racer.returncode) for racer in racers]
    assert sorted(ended) == [("", 0), ("", 2), ("", 2)]
    assert len(LedgerFile(path)) == 1


def test_a_renamed_folder_is_named_and_may_come_back(path, make_entry, tmp_path):
    place = tmp_path / "study" / "clinic.ledger"
    place.parent.mkdir(mode=0o700)
    ledger = LedgerFile(place, LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.1)))
    place.parent.rename(tmp_path / "moved")
    for use in (lambda: ledger.spend(make_entry()), lambda: len(ledger), lambda: LedgerFile(place, LIMIT)):
        with pytest.raises(StorageError, match="was removed; restore its latest copy"):
            use()
    with pytest.raises(StorageError, match="privinf ledger anchor"):
        LedgerFile(tmp_path / "moved" / "clinic.ledger")
    (tmp_path / "moved").rename(place.parent)
    ledger.spend(make_entry(GaussianLoss(0.1)))
    assert len(LedgerFile(place)) == 2


@pytest.mark.parametrize("use", [LedgerFile.create, LedgerFile, SiteLedger])
def test_a_path_that_no_anchor_can_record_is_refused(tmp_path, use):
    for half in (b"\xff", b"\xed\xa0\xbd"):
        with pytest.raises(StorageError, match="must contain only Unicode characters"):
            use(tmp_path / os.fsdecode(half), LIMIT)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_ledger_and_nobody_is_told_to_remove_it(tmp_path):
    with pytest.raises(StorageError, match="is not a regular file") as caught:
        LedgerFile(tmp_path, LIMIT)
    assert "rm " not in str(caught.value)


def test_an_anchor_that_cannot_be_made_is_named(path):
    with pytest.raises(StorageError, match=r"or the file /dev/null/anchor that records .* cannot be created"):
        LedgerFile.create(path, LIMIT, anchor="/dev/null/anchor")
    assert not path.exists()
