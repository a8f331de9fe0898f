"""Fits in a ledger: formula, name and times beside each line, and the rest of the budget in fits."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import Budget, GaussianLoss, Ledger
from privinf.accounting.files import LedgerFile
from privinf.accounting.journal import encoded, verified_lines
from privinf.accounting.ledger import FORMAT
from privinf.accounting.purposes import LONGEST_SUBJECT, charged_for
from privinf.errors import ArgumentError, StorageError
from privinf.storage.checksummed import SEAL, checksum

LIMIT = Budget(mu=1.0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 3000)})
    return frame.assign(y=(0.5 * frame.x + rng.normal(0, 0.3, 3000)).clip(-2, 2))


@pytest.fixture(scope="module")
def schema():
    return pi.Schema({"x": (-1, 1), "y": (-2, 2)})


def titles(ledger):
    return [(fit.name, fit.subject, len(fit.entries)) for fit in ledger.fits]


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_lines_are_listed_by_fit(tmp_path, rows, schema, kind):
    ledger = Ledger(LIMIT) if kind == "memory" else LedgerFile(tmp_path / "study.ledger", LIMIT)
    named = ledger.named(" table\n2 ")
    fit = pi.OLS.from_formula("y ~ x", rows, schema=schema, ledger=named).fit(mu=0.3, rng=0)
    pi.stats.mean("x", data=rows, schema=schema, mu=0.1, rng=0, ledger=ledger)
    pi.stats.quantile("x", 0.5, data=rows, schema=schema, mu=0.1, rng=0, ledger=ledger)
    pi.MomentOLS.from_formula("y ~ x", rows, schema=schema, ledger=ledger).fit(mu=0.3, rng=0)
    first, second, third, fourth = titles(ledger)
    assert first == ("table 2", "OLS: y ~ x", len(fit.privacy.entries))
    assert second[:2] == ("", "mean of x, clipping threshold") or second[1].startswith("mean")
    assert third[2] == 2
    assert fourth[:2] == ("", "MomentOLS: y ~ x")
    listed = ledger.fits[0]
    assert listed.title == "table 2: OLS: y ~ x"
    assert listed.started <= listed.ended
    assert listed.loss.mu == pytest.approx(fit.privacy.mu)
    assert ledger.count_more() == int(ledger.remaining().limit / LIMIT.cost(GaussianLoss(0.3)))
    assert "table 2: OLS: y ~ x" in ledger._repr_html_()


@pytest.mark.parametrize("kind", ["text", "pickle", "file"])
def test_fits_survive_storage_and_are_under_no_checksum(tmp_path, make_entry, kind):
    path = tmp_path / "study.ledger"
    ledger = LedgerFile(path, LIMIT) if kind == "file" else Ledger(LIMIT)
    with charged_for("OLS: y ~ x"):
        ledger.named("first").spend(make_entry(GaussianLoss(0.2)))
        ledger.named("first").spend(make_entry(GaussianLoss(0.2)))
    ledger.spend(make_entry(GaussianLoss(0.1)))
    before = titles(ledger)
    assert before[0] == ("first", "OLS: y ~ x", 2)
    if kind == "file":
        lines, tags = verified_lines(path.read_bytes(), path, FORMAT)
        secret, plain = lines[0]["secret"], [dict(line) for line in lines]
        assert all("private" in line for line in plain[1:])
        without = [line | {"private": {}} for line in plain[1:]]
        assert [encoded(secret, tag, line)[1] for tag, line in zip(tags, without, strict=False)] == tags[1:]
        assert titles(LedgerFile(path)) == before
        return
    text = ledger.to_json()
    copied = pickle.dumps(ledger)
    del ledger
    loaded = Ledger.from_json(text) if kind == "text" else pickle.loads(copied)
    assert titles(loaded) == before
    record = json.loads(text)
    purposes = record.pop("purposes")
    assert [purpose["name"] for purpose in purposes] == ["first", ""]
    assert record.pop(SEAL) == checksum(record)


def test_ledgers_without_fits_load_and_are_listed_by_label(make_entry):
    ledger = Ledger(LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.2)), make_entry(GaussianLoss(0.2)))
    record = json.loads(ledger.to_json())
    del record["purposes"], ledger
    old = Ledger.from_json(json.dumps(record))
    (fit,) = old.fits
    assert (fit.name, len(fit.entries)) == ("", 2)
    assert fit.subject == old.entries[0].label


@pytest.mark.parametrize(
    "damage", [{"purposes": [{"fit": 1}]}, {"purposes": 3}, {"purposes": [{"fit": "a", "lines": [1]}]}]
)
def test_damaged_fits_are_refused(damage):
    record = json.loads(Ledger(LIMIT).to_json()) | damage
    with pytest.raises(StorageError, match="description of the fits"):
        Ledger.from_json(json.dumps(record))


def test_the_rest_is_stated_in_fits_like_the_last(make_entry):
    ledger = Ledger(LIMIT)
    assert ledger.count_more() is None
    ledger.spend(make_entry(GaussianLoss(0.5)))
    assert ledger.count_more() == 3
    for name in ("north", "south"):
        ledger.scope(name, disjoint="site").spend(make_entry(GaussianLoss(0.8)))
    assert ledger.count_more() == 0
    unlimited = Ledger()
    unlimited.spend(make_entry(GaussianLoss(0.5)))
    assert unlimited.count_more() is None


def test_the_outer_fit_takes_precedence_and_subjects_are_short(make_entry):
    ledger = Ledger()
    with charged_for("x " * 500), charged_for("inner"):
        ledger.spend(make_entry(GaussianLoss(0.5)))
    (fit,) = ledger.fits
    assert len(fit.subject) == LONGEST_SUBJECT
    assert fit.subject.endswith("...")


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_copy_of_a_named_ledger_has_its_name(tmp_path, make_entry, kind):
    ledger = Ledger(LIMIT) if kind == "memory" else LedgerFile(tmp_path / "study.ledger", LIMIT)
    named = ledger.scope("part").named("table 2")
    pickle.loads(pickle.dumps(named)).spend(make_entry(GaussianLoss(0.1)))
    assert [fit.name for fit in ledger.fits] == ["table 2"]
    assert ledger.entries[0].scope == ("part",)


def test_a_name_is_a_text():
    ledger = Ledger()
    for name in ("", "  ", 3):
        with pytest.raises(ArgumentError, match="non-empty string"):
            ledger.named(name)
    assert ledger.named("a").scope("fold 1").named("b")._fit_name == "b"
    assert ledger.named("a").scope("fold 1")._fit_name == "a"


def test_a_fit_that_is_given_a_name_is_told_where_names_go(rows, schema):
    with pytest.raises(pi.errors.NotAvailableError, match=r"ledger\.named"):
        pi.OLS.from_formula("y ~ x", rows, schema=schema).fit(mu=1.0, name="table 2")
