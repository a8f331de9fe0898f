"""``privinf ledger`` for sites: made once, shown, moved with a word of its holder's, and never begun anew."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from privinf.accounting import Budget, GaussianLoss, LedgerEntry
from privinf.accounting.files import LedgerFile
from privinf.accounting.purposes import charged_for
from privinf.cli import main
from privinf.errors import StorageError
from privinf.federation import SiteLedger


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def typed(*words, code=0):
        result = CliRunner().invoke(main, ["ledger", *words], prog_name="privinf")
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    return typed


def entry():
    return LedgerEntry(
        mechanism="gaussian",
        label="sums",
        unit="record",
        relation="replace-one",
        trust="central",
        loss=GaussianLoss(0.5),
        source="lattice",
        secure=True,
    )


def test_a_sites_ledger_is_made_shown_and_moved(run, tmp_path):
    assert "the ledger a.ledger was created" in run(
        "create", "--site", "a.ledger", "--epsilon", "4", "--delta", "1e-6"
    )
    with SiteLedger("a.ledger") as ledger:
        ledger.spend(entry())
        told = json.loads(run("show", "a.ledger", "--json"))  # while it is open
    assert (told["releases"], told["delta"], told["by_label"]["sums"]["releases"]) == (1, 1e-6, 1)
    assert 0 < told["epsilon"] < 4
    assert told["stamp"] == ""
    assert "left: " in (shown := run("show", "a.ledger"))
    assert "1 fit; the budget protects each record" in shown
    (tmp_path / "a.ledger").rename("b.ledger")
    assert "was removed" in run("create", "--site", "a.ledger", "--epsilon", "4", "--delta", "1e-6", code=2)
    with pytest.raises(StorageError, match="privinf ledger anchor"):
        SiteLedger("b.ledger")
    assert "ledger with 3 lines" in run("anchor", "b.ledger")
    with SiteLedger.open("b.ledger") as ledger:
        assert len(ledger) == 1


def test_an_older_copy_is_not_anchored(run, tmp_path):
    run("create", "--site", "a.ledger", "--mu", "2")
    older = (tmp_path / "a.ledger").read_bytes()
    with SiteLedger("a.ledger") as ledger:
        ledger.spend(entry())
    (tmp_path / "a.ledger").write_bytes(older)
    assert "of the 2 lines" in run("anchor", "a.ledger", code=2)
    assert "--site" in run("create", "c.ledger", "--mu", "2", "--anchor", "d", code=2)


def test_a_ledger_of_one_curator_is_shown_too(run):
    run("create", "l.json", "--epsilon", "2", "--delta", "1e-6")
    assert "0 fits; the budget protects each person" in run("show", "l.json")
    assert Budget(epsilon=2.0, delta=1e-6).delta == json.loads(run("show", "l.json", "--json"))["delta"]


def test_the_ledger_of_a_curator_is_shown_by_fit(run):
    run("create", "study.ledger", "--mu", "1")
    ledger = LedgerFile("study.ledger")
    with charged_for("OLS: wage ~ age"):
        ledger.named("table\x1b[2J 2").spend(entry(), replace(entry(), id="another"))
    facts = json.loads(run("show", "study.ledger", "--json"))
    (fit,) = facts["fits"]
    assert (fit["subject"], fit["releases"], facts["more"]) == ("OLS: wage ~ age", 2, 1)
    shown = run("show", "study.ledger")
    assert "UTC table [2J 2: OLS: wage ~ age: epsilon" in shown
    assert " in 2 releases" in shown
    assert "1 fit (2 releases); the budget" in shown
    assert "(about 1 more like the last fit)" in shown
    ledger.spend(replace(entry(), id="third"))
    ledger.spend(replace(entry(), id="fourth", loss=GaussianLoss(0.5)))
    assert "(less than the last fit cost)" in run("show", "study.ledger")


def test_a_sites_ledger_is_shown_by_fit(run):
    with SiteLedger("a.ledger", Budget(mu=2.0)) as ledger:
        with charged_for("checks of the holder"):
            ledger.spend(entry())
        note = {"digest": "d", "session": "s", "sequence": 1, "analyst": "kim", "reservation": "r"}
        ledger.journal._spend((replace(entry(), id="query"),), None, note)
        subjects = [fit.subject for fit in ledger.fits]
        assert subjects == ["checks of the holder", "fit by analyst kim"]
    fits = json.loads(run("show", "a.ledger", "--json"))["fits"]
    assert [fit["subject"] for fit in fits] == subjects


def test_a_ledger_of_the_other_kind_is_named(run, tmp_path):
    run("create", "one.ledger", "--mu", "2")
    run("create", "--site", "site.ledger", "--mu", "2")
    with pytest.raises(StorageError, match=r"site.ledger is the ledger of a site; pass a ledger that was"):
        LedgerFile(tmp_path / "site.ledger")
    assert "one.ledger is not the ledger of a site" in run("free", "one.ledger", "--all", code=2)


def test_a_damaged_anchor_is_named_with_its_remedy(run, tmp_path):
    run("create", "a.ledger", "--mu", "2")
    ledger = LedgerFile(tmp_path / "a.ledger")
    ledger.spend(entry())
    anchor = ledger._account.anchor.path
    whole = anchor.read_bytes()
    for content in (b"", b"\xff", whole[:-9], whole.replace(b'"count": 2', b'"count": 1')):
        anchor.write_bytes(content)
        told = run("show", "a.ledger", code=2)
        assert "is damaged; restore its latest copy" in told
        assert told == run("anchor", "a.ledger", code=2)
    anchor.unlink()
    assert "may be an old copy" in run("show", "a.ledger", code=2)
    run("anchor", "a.ledger")
    assert "1 fit;" in run("show", "a.ledger")


def test_a_sites_ledger_that_was_cut_is_not_shown(run, tmp_path):
    run("create", "--site", "a.ledger", "--mu", "2")
    path = tmp_path / "a.ledger"
    with SiteLedger(path) as ledger:
        ledger.spend(entry())
        older = path.read_bytes()
        ledger.spend(entry())
    whole = path.read_bytes()
    for cut in (older, whole[:-1], older + b"torn"):
        path.write_bytes(cut)
        assert "has lost entries that were charged" in run("show", "a.ledger", code=2)
    path.write_bytes(whole + b"torn")  # a line that is being written
    assert "2 fits;" in run("show", "a.ledger")
    path.rename("b.ledger")
    assert "2 fits;" in run("show", "b.ledger")
