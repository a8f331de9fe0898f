"""Fits in a ledger: formula, name and times beside each line, and the rest of the budget in fits."""

from __future__ import annotations

import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from support.disks import small_files

import privinf as pi
from privinf.accounting import Budget, GaussianLoss, Ledger
from privinf.accounting.files import LedgerFile
from privinf.accounting.journal import encoded, verified_lines
from privinf.accounting.ledger import FORMAT
from privinf.accounting.purposes import LONGEST_SUBJECT, charged_for
from privinf.errors import ArgumentError, BudgetExceededError, StorageError
from privinf.federation import InProcessFederation, Site, SitePolicy
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
    assert record.pop("purposes_sha256") == checksum({"purposes": purposes})
    assert [purpose["name"] for purpose in purposes] == ["first", ""]
    assert record.pop(SEAL) == checksum(record)


def test_ledgers_without_fits_load_and_are_listed_by_label(make_entry):
    ledger = Ledger(LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.2)), make_entry(GaussianLoss(0.2)))
    record = json.loads(ledger.to_json())
    del record["purposes"], record["purposes_sha256"], ledger
    old = Ledger.from_json(json.dumps(record))
    (fit,) = old.fits
    assert (fit.name, len(fit.entries)) == ("", 2)
    assert fit.subject == old.entries[0].label


def test_fits_print_as_a_table(make_entry):
    ledger = Ledger(Budget(epsilon=8.0, delta=1e-7))
    assert repr(ledger.fits) == "started (UTC)  releases  epsilon (delta=1e-07)  fit"
    ledger.named("a name").spend(make_entry(GaussianLoss(0.2)), make_entry(GaussianLoss(0.2)))
    with charged_for("OLS: y ~ x\x1b"):
        ledger.spend(make_entry(GaussianLoss(0.5)))
    fits = ledger.fits
    assert isinstance(fits, tuple)
    table = str(fits).splitlines()
    assert len(table) == 3
    assert table[1].split()[2:4] == ["2", f"{fits[0].loss.epsilon(1e-7):.4g}"]
    assert table[1].endswith("a name: " + fits[0].subject)
    assert table[2].endswith("OLS: y ~ x ")
    assert len({len(line) - len(line.split("  ")[-1]) for line in table}) == 1
    assert "<td>2</td>" in fits._repr_html_()
    assert repr(fits[0]) == f"<LedgerFit: {fits[0].day} UTC, {fits[0].title}, 2 releases>"
    again = pickle.loads(pickle.dumps(fits))
    assert (again, repr(again)) == (fits, repr(fits))


@pytest.mark.parametrize(
    "damage", [{"purposes": [{"fit": 1}]}, {"purposes": 3}, {"purposes": [{"fit": "a", "lines": [1]}]}]
)
def test_damaged_fits_are_refused(damage):
    record = json.loads(Ledger(LIMIT).to_json()) | damage
    with pytest.raises(StorageError, match="descriptions of the fits"):
        Ledger.from_json(json.dumps(record))
    del record["purposes_sha256"]  # as a text of an earlier version
    with pytest.raises(StorageError, match="description of the fits"):
        Ledger.from_json(json.dumps(record))


def described(make_entry):
    """Return the text of a ledger whose fits are described."""
    ledger = Ledger(LIMIT)
    with charged_for("OLS: y ~ x"):
        ledger.named("table 2").spend(make_entry(GaussianLoss(0.2)))
    return ledger.to_json()


@pytest.mark.parametrize(
    ("before", "after"),
    [("table 2", "table 3"), ("OLS: y ~ x", "OLS: y ~ z"), ('"purposes": [', '"purposes": [], "other": [')],
)
def test_changed_descriptions_of_fits_are_noticed(make_entry, before, after):
    text = described(make_entry)
    assert text.count(before) == 1
    with pytest.raises(StorageError):
        Ledger.from_json(text.replace(before, after))


def test_removed_descriptions_of_fits_are_noticed_or_the_entries_listed_by_label(make_entry):
    record = json.loads(described(make_entry))
    del record["purposes"]
    with pytest.raises(StorageError, match="delete the keys 'purposes' and 'purposes_sha256'"):
        Ledger.from_json(json.dumps(record))
    del record["purposes_sha256"]
    (fit,) = Ledger.from_json(json.dumps(record)).fits
    assert (fit.name, fit.subject) == ("", fit.entries[0].label)


def test_a_text_of_a_ledger_is_one_record(make_entry):
    text = described(make_entry)
    assert json.dumps(json.loads(text), indent=1) == text
    assert list(json.loads(text))[-2:] == ["purposes", "purposes_sha256"]


def test_a_file_notices_changed_descriptions_and_lists_lines_without_one_by_label(tmp_path, make_entry):
    path = tmp_path / "study.ledger"
    with charged_for("OLS: y ~ x"):
        LedgerFile(path, LIMIT).named("table 2").spend(make_entry(GaussianLoss(0.2)))
    text = path.read_text()
    path.write_text(text.replace("table 2", "table 3"))
    with pytest.raises(StorageError, match="is damaged"):
        LedgerFile(path)
    header, charge = text.splitlines()
    tag, _, content = charge.partition(" ")
    line = json.loads(content)
    assert line.pop("private")["purposes"][0]["name"] == "table 2"
    path.write_text(f"{header}\n{tag} {json.dumps(line, sort_keys=True)}\n")
    ledger = LedgerFile(path)
    assert [(fit.name, fit.subject) for fit in ledger.fits] == [("", ledger.entries[0].label)]
    assert float(ledger.remaining().limit) == pytest.approx(1.0 - 0.2**2)


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


def test_fits_in_threads_have_their_own_lines(rows, schema):
    """Each thread starts without a fit, and a fit in one thread does not describe charges of another."""
    ledger = Ledger()
    formulas = [f"y ~ x + I(x**{power})" for power in (2, 3, 4)]
    start = threading.Barrier(len(formulas))

    def fit(formula):
        model = pi.OLS.from_formula(formula, rows, schema=schema, ledger=ledger.named(formula[-2]))
        start.wait(60.0)
        return {entry.id for entry in model.fit(mu=0.3, rng=0).privacy.entries}

    with charged_for("outer"), ThreadPoolExecutor(len(formulas)) as pool:
        lines = dict(zip(formulas, pool.map(fit, formulas), strict=True))
    assert {listed.subject: {entry.id for entry in listed.entries} for listed in ledger.fits} == {
        f"OLS: {formula}": lines[formula] for formula in formulas
    }
    assert [listed.name for listed in ledger.fits] == [listed.subject[-2] for listed in ledger.fits]


@pytest.mark.parametrize("model", ["OLS", "MomentOLS over sites", "DebiasedLasso", "Logit"])
def test_reports_leave_out_charges_that_others_make_during_the_fit(
    monkeypatch, rows, schema, make_entry, model
):
    ledger = Ledger()
    spend = Ledger.spend
    foreign = set()

    def spend_with_others(handle, *entries):
        other = threading.Thread(target=lambda: foreign.update(e.id for e in spend(ledger, make_entry())))
        other.start()
        other.join()
        return spend(handle, *entries)

    monkeypatch.setattr(Ledger, "spend", spend_with_others)
    data, formula, options, words = rows, "y ~ x", {}, {"mu": 1.0, "rng": 0}
    if model == "MomentOLS over sites":
        policy = SitePolicy(trusted_server=True, simulation=True)
        data = InProcessFederation({"north": Site(rows, schema, policy=policy)})
        options = {"trust": "server"}
        words |= {"cov_type": "HC0"}
    elif model == "DebiasedLasso":
        words = {"rho": 0.5, "rng": 0, "sparsity": 1}
    elif model == "Logit":
        data, formula = rows.assign(hit=(rows.y > 0.0) + 0.0), "hit ~ x"
        schema = pi.Schema({"x": (-1, 1), "hit": (0, 1)})
    named = getattr(pi, model.split()[0])
    fit = named.from_formula(formula, data, schema=schema, ledger=ledger, **options).fit(**words)
    own = {entry.id for entry in fit.privacy.entries}
    assert foreign
    assert own == {entry.id for entry in ledger.entries} - foreign


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_fit_that_reads_its_rows_in_threads_is_one_fit(tmp_path, rows, schema, kind):
    path = tmp_path / f"rows.{kind}"
    rows.to_csv(path, index=False) if kind == "csv" else rows.to_parquet(path, row_group_size=500)
    ledger = Ledger()
    for model in (pi.OLS, pi.MomentOLS):
        model.from_formula("y ~ x", path, schema=schema, ledger=ledger).fit(mu=0.3, rng=0)
    assert [subject for _, subject, _ in titles(ledger)] == ["OLS: y ~ x", "MomentOLS: y ~ x"]


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


HALF = "\ud83d"  # half of a character, which JSON can write and UTF-8 cannot


def unreadable_charges(make_entry):
    """Return charges whose line could not be read back from a file."""
    return [
        lambda ledger: ledger.named(f"table {HALF}").spend(make_entry()),
        lambda ledger: ledger.scope(f"part {HALF}").spend(make_entry()),
        lambda ledger: ledger.spend(make_entry(label=f"mean of {HALF}")),
        lambda ledger: ledger.spend(make_entry(party=HALF)),
        lambda ledger: ledger.spend(make_entry(time=f"2026-01-31{HALF}12:00:00+00:00")),
        lambda ledger: ledger.spend(make_entry(noise={"law": HALF})),
        lambda ledger: ledger.spend(make_entry(noise={"grid": 10**300})),
    ]


@pytest.mark.parametrize("number", range(7))
def test_a_charge_that_no_file_can_hold_is_refused(tmp_path, make_entry, number):
    path = tmp_path / "study.ledger"
    ledger = LedgerFile(path, LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.1)))
    with pytest.raises(ArgumentError):
        unreadable_charges(make_entry)[number](ledger)
    assert len(LedgerFile(path)) == 1


def test_a_line_that_cannot_be_read_back_is_not_written(tmp_path, make_entry):
    path = tmp_path / "study.ledger"
    ledger = LedgerFile(path, LIMIT)
    ledger.spend(make_entry(GaussianLoss(0.1)))
    account = ledger._account
    for line in ({"charge": [], "note": HALF}, {"charge": [], "note": 10**300}):
        with account._opened(making=True) as (chain, _), pytest.raises(StorageError, match="a new line"):
            chain.append(line)
    assert len(LedgerFile(path)) == 1
    with pytest.raises(ArgumentError, match="Unicode"):
        Ledger(LIMIT, HALF)


def test_a_name_is_short_and_a_subject_has_only_characters(tmp_path, make_entry):
    ledger = LedgerFile(tmp_path / "study.ledger", LIMIT)
    with pytest.raises(ArgumentError, match="at most 200 characters"):
        ledger.named("x" * 201)
    with charged_for(f"OLS: y ~ {HALF}\n\x1b[2J"):
        ledger.named("größe 表 2").spend(make_entry(GaussianLoss(0.1)))
    (fit,) = LedgerFile(tmp_path / "study.ledger").fits
    assert (fit.name, fit.subject) == ("größe 表 2", "OLS: y ~ ? \x1b[2J")


@pytest.mark.parametrize("model", ["OLS", "DebiasedLasso"])
def test_a_fit_that_ends_at_a_full_disk_states_its_charges(tmp_path, monkeypatch, rows, schema, model):
    ledger = LedgerFile(tmp_path / "study.ledger", Budget(rho=2.0))
    ledger.spend()
    spend = Ledger.spend

    def full(handle, *entries):
        if len(ledger) < 2:
            return spend(handle, *entries)
        with small_files(10):
            return spend(handle, *entries)

    monkeypatch.setattr(Ledger, "spend", full)
    words = {"mu": 1.0} if model == "OLS" else {"rho": 0.5, "sparsity": 1}
    with pytest.raises(StorageError, match="charged 2 releases to the ledger of the fit") as caught:
        getattr(pi, model).from_formula("y ~ x", rows, schema=schema, ledger=ledger).fit(rng=0, **words)
    assert "These charges are kept. " in str(caught.value)
    assert len(LedgerFile(tmp_path / "study.ledger")) == 2


def test_refusals_and_summaries_say_why_epsilons_do_not_add_up():
    ledger = pi.Ledger(pi.Budget(epsilon=4.0, delta=4e-6))
    rows = pd.DataFrame({"x": np.linspace(0.0, 1.0, 500), "g": np.resize(["a", "b"], 500)})
    options = {"schema": pi.Schema({"x": (0, 1), "g": ["a", "b"]}), "delta": 1e-6, "rng": 0, "ledger": ledger}
    with pytest.raises(BudgetExceededError) as first:
        pi.stats.mean("x", data=rows, epsilon=9.0, **options)
    assert "add up" not in str(first.value)
    pi.stats.mean("x", by="g", data=rows, epsilon=1.0, **options)
    assert [fit.subject for fit in ledger.fits] == ["mean of x by g"]
    with pytest.raises(BudgetExceededError, match=r"left \(costs add up in squares of mu, not in epsilon\);"):
        pi.stats.mean("x", data=rows, epsilon=9.0, **options)
    model = pi.OLS.from_formula("x ~ C(g)", rows, schema=options["schema"], ledger=ledger)
    notes = str(model.fit(epsilon=1.0, delta=1e-6, rng=0).summary(notes="all"))
    assert "Epsilon, whole ledger, is at delta=1e-06" in " ".join(notes.split())
    assert pi.Budget(rho=0.5).adding == "costs add up in rho, not in epsilon"
