"""A site's ledger on disk: what was charged and sent outlives the process, and nothing is sent before it."""

import itertools
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federation_sites import design_of, rows_of
from secure_sites import SCORE, secure_federation, secure_query

from privinf.accounting import Budget, GaussianLoss, LedgerEntry
from privinf.errors import BudgetExceededError, NotAvailableError, StorageError
from privinf.federation import Reply, SecureServer, Site, SiteLedger, SitePolicy, TrustedServer
from privinf.federation.local import InProcessFederation


def on_disk(tmp_path, **options):
    return SiteLedger(tmp_path / "north.ledger", **options)


def reopened(site, ledger):
    """Return the site as it is after a restart of its process."""
    site.ledger.close()
    again = Site(rows_of(60, 0), design_of(), policy=site.policy, ledger=ledger())
    again._pairs = site._pairs
    return again


def federation_on(tmp_path, **options):
    return secure_federation(ledgers={"north": on_disk(tmp_path, **options)})


def test_a_restart_gives_the_same_bytes_and_charges_nothing(tmp_path):
    federation = federation_on(tmp_path, budget=Budget(mu=1.2))
    query = secure_query(federation)
    first = federation._sites["north"].handle(query, "north")
    assert first.masked.size == 4
    site = reopened(federation._sites["north"], lambda: on_disk(tmp_path))
    second = site.handle(query, "north")
    assert second.masked.tobytes() == first.masked.tobytes()
    assert len(site.ledger) == 1
    assert site.ledger.budget == Budget(mu=1.2)
    later = secure_query(secure_federation(), args=SCORE | {"clip": 1.0})
    assert "public keys at this site" in site.handle(later, "north").error
    federation = InProcessFederation(federation._sites | {"north": site})
    with pytest.raises(BudgetExceededError, match="'north'"):
        SecureServer(federation).vector_sum("clipped_score", SCORE, mu=1.0, label="s")
    assert len(site.ledger) == 1
    site.ledger.close()


def test_lines_of_sums_with_self_masks_are_still_read(tmp_path):
    """Such sums are made no longer; what they cost stays on the account."""
    query = secure_query(secure_federation())
    stated = LedgerEntry.from_dict(query.charges[0])
    entry = replace(stated, noise={**stated.noise, "threshold": 2})
    terms = {"kind": "shared", "threshold": 2}
    shared = replace(query, charges=(entry.to_dict(),), masking={**query.masking, **terms})
    facts = {"boxes": {"south": "AAAA"}, "public": "00" * 32, "commitment": "00" * 32}
    with on_disk(tmp_path) as ledger:
        ledger.journal.begin(shared, shared.digest, (entry,))
        ledger.journal.keep(shared.digest, Reply(site="north", sums=np.empty(0), rows=60, facts=facts))
    federation = federation_on(tmp_path)
    site = federation._sites["north"]
    assert site.ledger.total().mu == 1.0
    assert site.ledger.entries == (entry,)
    assert "does not have secure sums of kind 'shared'" in site.handle(shared, "north").error
    for op in ("mask", "confirm", "unmask"):
        later = replace(shared, op=op, masking={"sum": shared.digest})
        assert f"there is no statistic named '{op}'" in site.handle(later, "north").error
    assert len(site.ledger) == 1
    site.ledger.close()


def test_a_position_stays_passed_after_a_restart(tmp_path):
    federation = federation_on(tmp_path)
    server = SecureServer(federation)
    server.vector_sum("clipped_score", SCORE, mu=0.5, label="s")
    site = reopened(federation._sites["north"], lambda: on_disk(tmp_path))
    other = SecureServer(InProcessFederation(federation._sites | {"north": site}))
    other._rounds.session, other._rounds.sequence = server._rounds.session, server._rounds.sequence - 1
    with pytest.raises(NotAvailableError, match=r"site 'north'.*sequence number"):
        other.vector_sum("clipped_score", SCORE | {"clip": 1.0}, mu=0.5, label="s")
    site.ledger.close()


def test_the_charge_is_on_disk_before_rows_are_read_and_the_reply_before_it_is_sent(tmp_path, monkeypatch):
    federation = federation_on(tmp_path)
    query = secure_query(federation)
    site = federation._sites["north"]
    seen = []

    def watched(self, *args, **options):
        seen.append((tmp_path / "north.ledger").read_text().count(query.digest))
        return original(self, *args, **options)

    original = Site._placed
    monkeypatch.setattr(Site, "_placed", watched)
    site.handle(query, "north")
    assert seen == [1]
    assert (tmp_path / "north.ledger").read_text().count(query.digest) == 2
    site.ledger.close()


@pytest.mark.parametrize("call", range(6))  # three of a line: the ledger, its anchor, the anchor's folder
def test_nothing_is_sent_that_is_not_on_disk(tmp_path, monkeypatch, call):
    federation = federation_on(tmp_path)
    query = secure_query(federation)
    site = federation._sites["north"]
    calls = itertools.count()

    def failing(handle):
        if next(calls) == call:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", failing)
    reply = site.handle(query, "north")
    assert reply.masked.size == 0
    assert "StorageError" in reply.error
    assert "No space left" in reply.error
    assert "closed" in site.handle(query, "north").error


def test_a_crash_between_charge_and_reply_is_not_charged_again(tmp_path, monkeypatch):
    federation = federation_on(tmp_path)
    query = secure_query(federation)
    site = federation._sites["north"]

    def crash(self, *_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Site, "_placed", crash)
        with pytest.raises(KeyboardInterrupt):
            site.handle(query, "north")
    site = reopened(site, lambda: on_disk(tmp_path))
    assert len(site.ledger) == 1
    assert site.handle(query, "north").masked.size == 4
    assert len(site.ledger) == 1
    site.ledger.close()


def test_a_torn_last_line_is_dropped_and_other_damage_is_told(tmp_path):
    federation = federation_on(tmp_path)
    SecureServer(federation).vector_sum("clipped_score", SCORE, mu=0.5, label="s")
    federation._sites["north"].ledger.close()
    path = tmp_path / "north.ledger"
    path.write_bytes(path.read_bytes() + b"0123 torn")
    with on_disk(tmp_path) as ledger:
        assert len(ledger) == 1
        ledger.spend(entry_of(0.1))
    with on_disk(tmp_path) as ledger:
        assert [entry.loss.mu for entry in ledger.entries] == [0.5, 0.1]
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) == 5
    for damaged in (
        whole[:-1],
        whole[:-20],
        whole[:40] + b"x" + whole[41:],
        b"".join([*lines[1:]]),
        b"",
        b"something else",
    ):
        path.write_bytes(damaged)
        with pytest.raises(StorageError):
            on_disk(tmp_path)
        assert path.read_bytes() == damaged


def entry_of(mu):
    return LedgerEntry(
        mechanism="gaussian",
        label="x",
        unit="record",
        relation="replace-one",
        trust="central",
        loss=GaussianLoss(mu),
        source="lattice",
        secure=True,
    )


def test_one_owner_and_one_limit(tmp_path):
    with on_disk(tmp_path, budget=Budget(mu=1.0), name="person") as ledger:
        with pytest.raises(StorageError, match="in use by another process"):
            on_disk(tmp_path)
        with pytest.raises(TypeError):
            pickle.dumps(ledger)
        with pytest.raises(TypeError):
            pickle.dumps(ledger.scope("x"))
        ledger.scope("x").spend(entry_of(0.6))
        with pytest.raises(BudgetExceededError):
            ledger.spend(entry_of(0.9))
    with pytest.raises(StorageError, match="a limit that differs"):
        on_disk(tmp_path, budget=Budget(mu=2.0))
    with on_disk(tmp_path, budget=Budget(mu=1.0)) as ledger:
        assert (len(ledger), ledger.name) == (1, "person")
        assert ledger.entries[0].scope == ("x",)
    with pytest.raises(StorageError, match="closed"):
        ledger.spend(entry_of(0.1))
    with pytest.raises(StorageError):
        SiteLedger(tmp_path / "no folder" / "x")
    assert sorted(os.listdir(tmp_path)) == ["north.ledger"]


def test_it_serves_a_trusted_server_too_and_holds_no_un_noised_sum(tmp_path):
    ledger = on_disk(tmp_path)
    site = Site(rows_of(60, 0), design_of(), policy=SitePolicy(trusted_server=True), ledger=ledger)
    federation = InProcessFederation({"north": site})
    TrustedServer(federation).vector_sum("column_sums", {"columns": [0], "bound": 2.0}, mu=1.0, label="s")
    assert len(ledger) == 1
    assert "sums" not in (tmp_path / "north.ledger").read_text().replace("column_sums", "")
    ledger.close()
    with on_disk(tmp_path) as again:
        assert len(again) == 1
        assert again.total().mu == 1.0


def test_the_lock_goes_with_the_process(tmp_path):
    ledger = on_disk(tmp_path)
    ledger.close()
    ledger.close()
    on_disk(tmp_path).close()


@pytest.mark.audit
def test_kills_at_a_site_and_an_analyst_and_full_disks():
    script = Path(__file__).parents[2] / "benchmarks" / "ledger_kills.py"
    ended = subprocess.run(
        [sys.executable, script, "--share", "0.005"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| site | charged twice | 0 | 0 |" in ended.stdout
    assert "| analyst | charged twice | 0 | 0 |" in ended.stdout
