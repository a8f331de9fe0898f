"""Budgets and ledgers: exact limits, scopes, threads, copies, files, and what an entry may hold."""

from __future__ import annotations

import copy
import gc
import json
import math
import os
import pickle
import subprocess
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
from support.forks import in_a_fork

import privinf as pi
from privinf.accounting import (
    ApproximateLoss,
    Budget,
    ConcentratedLoss,
    GaussianLoss,
    Ledger,
    LedgerEntry,
    ParallelTotal,
    PrivacyReport,
    PureLoss,
    Sensitivity,
    compose,
    gaussian_epsilon,
    gaussian_mu,
    pure_mu,
    pure_rho,
)
from privinf.accounting.calibration import exact
from privinf.errors import ArgumentError, BudgetExceededError, NotAvailableError, StorageError

# ---- budgets


def test_budget_currencies_and_conversion():
    assert (Budget(mu=0.3).currency, Budget(mu=0.3).limit) == ("mu2", Fraction(9, 100))
    assert (Budget(rho=0.1).currency, Budget(rho=0.1).limit) == ("rho", Fraction(1, 10))
    for budget in (Budget(epsilon=0.1, delta=0), Budget(epsilon=0.1, delta=0.0)):
        assert (budget.currency, budget.limit, budget.epsilon()) == ("pure", Fraction(1, 10), 0.1)
    budget = Budget(epsilon=2.0, delta=1e-6)
    assert budget.currency == "mu2"
    assert budget.mu == pytest.approx(gaussian_mu(2.0, 1e-6), rel=1e-12)
    assert budget.epsilon() == pytest.approx(2.0, rel=1e-10)
    assert Budget(rho=0.5).mu == 1.0
    assert Budget(mu=1.0).rho == 0.5
    assert Budget(mu=1.0).epsilon(1e-6) == gaussian_epsilon(1.0, 1e-6)
    with pytest.raises(ArgumentError, match="delta"):
        Budget(mu=1.0).epsilon()
    with pytest.raises(NotAvailableError):
        Budget(epsilon=1.0, delta=0).mu
    with pytest.raises(NotAvailableError):
        Budget(epsilon=1.0, delta=0).rho


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"epsilon": 1.0, "rho": 0.1},
        {"epsilon": 1.0},
        {"epsilon": 0.0, "delta": 0},
        {"epsilon": -1.0, "delta": 1e-6},
        {"epsilon": math.inf, "delta": 1e-6},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": -0.1},
        {"mu": math.nan},
        {"mu": 0.1, "delta": 1e-6},
        {"rho": "0.1"},
    ],
)
def test_bad_budgets_are_refused(arguments):
    with pytest.raises(ArgumentError):
        Budget(**arguments)


@pytest.mark.parametrize(
    "budget", [Budget(mu=0.3), Budget(rho=0.7), Budget(epsilon=0.1, delta=0), Budget(epsilon=1, delta=1e-5)]
)
@pytest.mark.parametrize("k", [1, 3, 7, 10])
def test_split_adds_up_exactly_and_round_trips(budget, k):
    parts = budget.split(k)
    assert len(parts) == k
    assert sum(part.limit for part in parts) == budget.limit
    for part in parts:
        assert Budget.from_dict(json.loads(json.dumps(part.to_dict()))) == part
    with pytest.raises(ArgumentError):
        budget.split(0)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"currency": "mu2", "limit": "x", "delta": None},
        {"currency": "eur", "limit": "1", "delta": None},
        {"currency": "mu2", "limit": "-1", "delta": None},
        {"currency": "mu2", "limit": "1/0", "delta": None},
    ],
)
def test_foreign_budget_records_are_refused(record):
    with pytest.raises(ArgumentError):
        Budget.from_dict(record)


# ---- limits


@pytest.mark.parametrize(
    ("budget", "loss"),
    [
        (Budget(rho=0.1), ConcentratedLoss(0.02)),
        (Budget(rho=0.3), ConcentratedLoss(0.1)),
        (Budget(epsilon=0.3, delta=0), PureLoss(0.1)),
        (Budget(epsilon=0.7, delta=0), PureLoss(0.1)),
        (Budget(mu=0.6), GaussianLoss(0.3)),
        (Budget(rho=0.125), GaussianLoss(0.1)),
    ],
)
def test_kth_of_k_equal_spends_is_accepted_and_the_next_refused(budget, loss, make_entry):
    ledger, k = Ledger(budget), round(float(budget.limit / budget.cost(loss)))
    for _ in range(k):
        ledger.spend(make_entry(loss))
    assert ledger.remaining().limit < budget.cost(loss)
    with pytest.raises(BudgetExceededError, match="nothing was recorded"):
        ledger.spend(make_entry(loss))
    assert len(ledger) == k


ONE, TWO = gaussian_mu(1.0, 1e-6), gaussian_mu(2.0, 1e-6)


@pytest.mark.parametrize(
    ("budget", "loss", "told"),
    [
        (
            Budget(epsilon=1.0, delta=1e-6),
            GaussianLoss(TWO),
            f"epsilon <= 1 at delta 1e-06 (mu <= {ONE:.6g}): the cost is epsilon 2 at delta 1e-06 "
            f"(mu {TWO:.6g}), but only epsilon 1 at delta 1e-06 (mu {ONE:.6g}) is left",
        ),
        (
            Budget(rho=0.02),
            ConcentratedLoss(0.03),
            "epsilon <= 0.899935 at delta 1e-06 (rho <= 0.02): the cost is epsilon 1.11817 at delta 1e-06 "
            "(rho 0.03), but only epsilon 0.899935 at delta 1e-06 (rho 0.02) is left",
        ),
        (
            Budget(epsilon=0.5, delta=0),
            PureLoss(0.7),
            "epsilon <= 0.5 (pure): the cost is epsilon 0.7 (pure), but only epsilon 0.5",
        ),
    ],
)
def test_a_limit_is_refused_in_epsilon_first(budget, loss, told, make_entry):
    with pytest.raises(BudgetExceededError) as caught:
        Ledger(budget).spend(make_entry(loss))
    assert told in str(caught.value)


@pytest.mark.parametrize("k", [2, 3, 7, 10, 49])
@pytest.mark.parametrize("budget", [Budget(mu=0.3), Budget(rho=0.01), Budget(epsilon=3.0, delta=1e-6)])
def test_children_of_a_split_fill_the_parent(budget, k, make_entry):
    ledger = Ledger(budget)
    for child in budget.split(k):
        Ledger(child).spend(make_entry(GaussianLoss(child.mu)))
        ledger.spend(make_entry(GaussianLoss(child.mu)))
    assert float(ledger.remaining().limit) <= 1e-11 * float(budget.limit)


@pytest.mark.parametrize(
    ("epsilon", "delta", "k"), [(1.0, 1e-6, 3), (4.0, 1e-5, 10), (0.1, 1e-9, 7), (16.0, 1e-5, 100)]
)
def test_spends_calibrated_to_the_same_pair_fit(epsilon, delta, k, make_entry):
    ledger = Ledger(Budget(epsilon=epsilon, delta=delta))
    for _ in range(k):
        ledger.spend(make_entry(GaussianLoss(gaussian_mu(epsilon, delta) / math.sqrt(k))))
    with pytest.raises(BudgetExceededError):
        ledger.spend(make_entry(GaussianLoss(1e-5)))


def test_costs_in_each_currency():
    mu2, rho, pure = Budget(mu=3.0), Budget(rho=3.0), Budget(epsilon=3.0, delta=0)
    assert mu2.cost(PureLoss(1.0)) == exact(pure_mu(1.0)) ** 2
    assert float(mu2.cost(PureLoss(1.0))) == pytest.approx(1.232035**2, rel=1e-6)
    assert rho.cost(PureLoss(1.0)) == exact(pure_rho(1.0))
    assert rho.cost(GaussianLoss(1.0)) == Fraction(1, 2)
    for budget, loss, reason in [
        (pure, GaussianLoss(0.1), "a Gaussian release does not satisfy"),
        (pure, ConcentratedLoss(0.1), "any limit in pure epsilon"),
        (mu2, ConcentratedLoss(0.1), "does not imply"),
        (mu2, ApproximateLoss(0.1, 1e-9), "reveal everything"),
        (rho, ApproximateLoss(0.1, 1e-9), "reveal everything"),
        (pure, ApproximateLoss(0.1, 1e-9), "reveal everything"),
        (mu2, GaussianLoss(math.inf), "without noise"),
        (rho, PureLoss(math.inf), "without noise"),
        (pure, PureLoss(math.inf), "without noise"),
    ]:
        with pytest.raises(BudgetExceededError, match=reason):
            budget.cost(loss)


def test_refusal_comes_before_any_row_is_read(make_entry):
    class Rows:
        reads = 0

        def __array__(self, *args, **kwargs):
            Rows.reads += 1
            return np.zeros(3)

    def release(rows, ledger, mu):
        ledger.spend(make_entry(GaussianLoss(mu)))
        return np.asarray(rows)

    ledger = Ledger(Budget(mu=0.5))
    with pytest.raises(BudgetExceededError, match="nothing was recorded"):
        release(Rows(), ledger, 0.6)
    assert (Rows.reads, len(ledger), ledger.total().mu) == (0, 0, 0.0)
    release(Rows(), ledger, 0.5)
    assert (Rows.reads, len(ledger)) == (1, 1)


def test_check_refuses_without_recording(make_entry):
    ledger = Ledger(Budget(mu=1.0))
    ledger.check(GaussianLoss(1.0))
    ledger.check([GaussianLoss(0.6), GaussianLoss(0.8)])
    with pytest.raises(BudgetExceededError):
        ledger.check([GaussianLoss(0.6), GaussianLoss(0.8), GaussianLoss(1e-9)])
    with pytest.raises(ArgumentError):
        ledger.check([1.0])
    assert len(ledger) == 0
    assert ledger.remaining() == Budget(mu=1.0)
    ledger.spend(make_entry(GaussianLoss(1.0)))
    Ledger().check([GaussianLoss(math.inf)])


def test_several_entries_are_spent_together_or_not_at_all(make_entry):
    ledger = Ledger(Budget(mu=1.0))
    with pytest.raises(BudgetExceededError, match="'x', 'y'"):
        ledger.spend(make_entry(GaussianLoss(0.8), label="x"), make_entry(GaussianLoss(0.8), label="y"))
    with pytest.raises(BudgetExceededError):
        ledger.spend(make_entry(GaussianLoss(0.8)), make_entry(ApproximateLoss(0.1, 1e-9)))
    assert (len(ledger), ledger.remaining()) == (0, Budget(mu=1.0))
    recorded = ledger.spend(make_entry(GaussianLoss(0.6)), make_entry(GaussianLoss(0.8)))
    assert ledger.entries == recorded


def test_one_entry_is_one_release(make_entry):
    ledger, entry = Ledger(), make_entry()
    ledger.spend(entry)
    with pytest.raises(ArgumentError, match="already in the ledger"):
        ledger.spend(entry)
    other = make_entry()
    with pytest.raises(ArgumentError, match="already in the ledger"):
        ledger.spend(other, other)
    with pytest.raises(ArgumentError, match="LedgerEntry"):
        ledger.spend(GaussianLoss(1.0))
    assert ledger.entries == (entry,)


def test_threads_cannot_spend_twice(make_entry):
    ledger = Ledger(Budget(rho=1.0))
    entries = [make_entry(ConcentratedLoss(0.01), label=str(k)) for k in range(400)]
    barrier, accepted = threading.Barrier(8), []

    def spend(mine):
        barrier.wait()
        for entry in mine:
            try:
                ledger.spend(entry)
                accepted.append(entry)
            except BudgetExceededError:
                pass

    threads = [threading.Thread(target=spend, args=(entries[k::8],)) for k in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # without the lock this makes updates get lost
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(accepted) == len(ledger) == 100
    assert ledger.remaining().limit == 0


# ---- copies and files


def test_copies_share_the_account(make_entry):
    ledger = Ledger(Budget(mu=1.0))
    early = [copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))]
    frozen, text = pickle.dumps(ledger), ledger.to_json()
    ledger.spend(make_entry(GaussianLoss(0.8)))
    for other in [*early, pickle.loads(frozen), Ledger.from_json(text)]:
        assert len(other) == 1
        with pytest.raises(BudgetExceededError):
            other.spend(make_entry(GaussianLoss(0.7)))


@pytest.mark.audit
def test_a_pickle_carries_what_was_spent_to_another_process(make_entry, tmp_path):
    ledger = Ledger(Budget(mu=1.0))
    ledger.scope("A", disjoint="site").spend(make_entry(GaussianLoss(0.8)))
    (tmp_path / "ledger.pickle").write_bytes(pickle.dumps(ledger))
    code = (
        "import pickle, sys; from privinf.accounting import *\n"
        "ledger = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(len(ledger), ledger.remaining().limit, ledger.scope('B', disjoint='site').remaining().limit)"
    )
    code += (
        "\nfrom privinf.errors import ArgumentError\n"
        "try:\n    ledger.spend(ledger.entries[0])\n"
        "except ArgumentError as error:\n    print('resume=True' in str(error))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "ledger.pickle")]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.split() == ["1", "9/25", "1", "True"]


@pytest.mark.parametrize("way", ["pickle", "text", "scope", "model"])
def test_a_loaded_ledger_whose_account_is_gone_is_read_only(way, make_entry):
    ledger = Ledger(Budget(mu=1.0))
    spent = ledger.spend(make_entry(GaussianLoss(0.8)))
    frozen, text = pickle.dumps(ledger.scope("fold 1") if way == "scope" else ledger), ledger.to_json()
    del ledger
    gc.collect()
    back = Ledger.from_json(text) if way in ("text", "model") else pickle.loads(frozen)
    assert "read-only" in repr(back)
    assert back.entries == (() if way == "scope" else spent)
    assert back.remaining().limit == Fraction(9, 25)
    assert back.to_json() == text
    assert (
        PrivacyReport.from_entries(spent, back).cumulative.mu
        == PrivacyReport.from_entries((), back).cumulative.mu
        == 0.8
    )
    cheap = make_entry(GaussianLoss(0.1))
    if way == "model":
        model = pi.MomentOLS([1.0, 2.0], [[0.5], [0.6]], bounds=[(0, 1)], y_bounds=(0, 3), ledger=back)
        with pytest.raises(ArgumentError, match="resume=True"):
            model.fit(mu=0.1)
    for refused in (
        lambda: back.spend(cheap),
        lambda: back.check(cheap.loss),
        lambda: copy.copy(back).spend(cheap),
    ):
        with pytest.raises(ArgumentError, match=r"from_json\(text, resume=True\)|LedgerFile"):
            refused()
    for other in (
        copy.deepcopy(back),
        back.scope("x"),
        pickle.loads(pickle.dumps(back)),
        Ledger.from_json(text),
    ):
        with pytest.raises(ArgumentError, match="LedgerFile"):
            other.spend(cheap)
    assert Ledger.from_json(text, resume=True).spend(cheap) == (cheap,)
    back.spend(make_entry(GaussianLoss(0.1)))  # one account: the holder's word holds for all its entry points
    with pytest.raises(BudgetExceededError):
        back.spend(make_entry(GaussianLoss(0.6)))


def test_a_loaded_ledger_joins_its_living_account(make_entry):
    ledger = Ledger(Budget(mu=1.0))
    back = pickle.loads(pickle.dumps(ledger))
    back.spend(make_entry(GaussianLoss(0.8)))
    assert len(ledger) == 1
    assert "read-only" not in repr(back)


def test_json_round_trip_and_merge(make_entry):
    ledger = Ledger(Budget(epsilon=3.0, delta=1e-6), name="patient")
    ledger.spend(
        make_entry(GaussianLoss(0.1)), make_entry(PureLoss(0.2), noise={"law": "none", "scale": math.inf})
    )
    ledger.scope("B", disjoint="site").spend(make_entry(GaussianLoss(0.1)))
    text, entries, total, left = ledger.to_json(), ledger.entries, ledger.total(), ledger.remaining()
    del ledger
    gc.collect()
    back = Ledger.from_json(text)
    assert (back.entries, back.total(), back.remaining(), back.name) == (entries, total, left, "patient")
    assert back.to_json() == text
    later = json.loads(text)
    del later["sha256"]
    extra = make_entry(GaussianLoss(0.2))
    later["entries"].append(extra.to_dict())
    later["spent"] = str(Fraction(later["spent"]) + Fraction(4, 100))
    Ledger.from_json(json.dumps(later))  # the account is alive: what the other copy spent is added to it
    assert extra in back.entries
    assert back.remaining().limit == left.limit - Fraction(4, 100)


@pytest.mark.parametrize(
    "damage", ["truncate", "format", "version", "entries", "spent", "budget", "loss", "list"]
)
def test_damaged_files_give_a_clear_error(damage, make_entry):
    ledger = Ledger(Budget(mu=1.0))
    ledger.spend(make_entry())
    record = json.loads(ledger.to_json())
    del record["sha256"]  # by somebody who can write a checksum
    del ledger
    gc.collect()
    if damage == "format":
        record["format"] = "other"
    elif damage == "version":
        record["version"] = 99
    elif damage == "entries":
        record["entries"] = []
    elif damage == "spent":
        record["spent"] = "0"
    elif damage == "budget":
        del record["budget"]
    elif damage == "loss":
        record["entries"][0]["loss"] = {"kind": "approximate", "epsilon": 1.0, "delta": 1e-6}
    text = json.dumps([record] if damage == "list" else record)
    with pytest.raises(StorageError):
        Ledger.from_json(text[:-20] if damage == "truncate" else text)


def test_a_damaged_ledger_states_why_it_cannot_be_opened(make_entry):
    ledger = Ledger(Budget(mu=1.0))
    ledger.spend(make_entry(GaussianLoss(0.5)))
    record = json.loads(ledger.to_json())
    del record["sha256"]
    (entry,) = record["entries"]
    other = entry | {"loss": {"kind": "approximate", "epsilon": 1.0, "delta": 1e-6}}
    for change, reason in (
        ({"version": 99}, "this version of privinf cannot read the text as a ledger"),
        ({"entries": [other]}, "one of its entries has no finite cost under its limit"),
        ({"spent": "0"}, "the sum of the privacy losses of its entries differs from the recorded total"),
    ):
        with pytest.raises(StorageError, match=reason):
            Ledger.from_json(json.dumps(record | change))


# ---- scopes


def test_sequential_scopes_add_and_disjoint_scopes_take_the_maximum(make_entry):
    ledger = Ledger(Budget(mu=1.0))
    ledger.spend(make_entry(GaussianLoss(0.6)))
    a, b = ledger.scope("A", disjoint="site"), ledger.scope("B", disjoint="site")
    a.spend(make_entry(GaussianLoss(0.8)))
    b.spend(make_entry(GaussianLoss(0.5)))
    assert ledger.total().mu == pytest.approx(1.0, rel=1e-15)
    assert ledger.remaining().limit == 0
    assert a.remaining().limit == 0
    assert b.remaining().limit == Fraction(64 - 25, 100)
    b.spend(make_entry(GaussianLoss(0.6)))  # 0.61 <= 0.64: covered by A's price
    with pytest.raises(BudgetExceededError):
        b.spend(make_entry(GaussianLoss(0.2)))
    with pytest.raises(BudgetExceededError):
        ledger.scope("later").spend(make_entry(GaussianLoss(0.01)))
    assert [entry.scope for entry in ledger.entries] == [(), ("site=A",), ("site=B",), ("site=B",)]
    assert (len(a), len(b)) == (1, 2)
    assert b.total().mu == pytest.approx(math.sqrt(0.61))


def test_plain_scopes_are_only_labels(make_entry):
    ledger = Ledger(Budget(mu=1.0))
    ledger.scope("round 1").spend(make_entry(GaussianLoss(0.6)))
    ledger.scope("round 2").spend(make_entry(GaussianLoss(0.8)))
    assert ledger.total().mu == pytest.approx(1.0)
    assert ledger.remaining().limit == 0


def test_nested_partitions(make_entry):
    ledger = Ledger(Budget(rho=1.0))
    for site, folds in {"A": (0.1, 0.3), "B": (0.2, 0.2)}.items():
        entry_point = ledger.scope(site, disjoint="site")
        entry_point.spend(make_entry(ConcentratedLoss(0.1)))
        for k, rho in enumerate(folds):
            entry_point.scope(f"fold {k}", disjoint="fold").spend(make_entry(ConcentratedLoss(rho)))
    assert ledger.remaining().limit == 1 - (Fraction(1, 10) + Fraction(3, 10))
    assert ledger.total().rho == pytest.approx(0.4)
    fold = ledger.scope("A", disjoint="site").scope("fold 0", disjoint="fold")
    assert fold.remaining().limit == Fraction(6, 10) + Fraction(2, 10)
    fold.check(ConcentratedLoss(0.8))
    with pytest.raises(BudgetExceededError):
        fold.check(ConcentratedLoss(0.81))
    with pytest.raises(BudgetExceededError):
        ledger.check(ConcentratedLoss(0.81), scope=("site=A", "fold=fold 0"))


def test_two_partitions_of_the_same_units_add_up(make_entry):
    ledger = Ledger(Budget(mu=1.0))
    ledger.scope("A", disjoint="site").spend(make_entry(GaussianLoss(0.6)))
    ledger.scope("A", disjoint="age").spend(make_entry(GaussianLoss(0.8)))
    assert ledger.remaining().limit == 0


def test_parallel_scopes_of_different_kinds_keep_both_curves(make_entry):
    ledger, shared = Ledger(), GaussianLoss(0.2)
    ledger.spend(make_entry(shared))
    ledger.scope("A", disjoint="site").spend(make_entry(GaussianLoss(1.0)))
    ledger.scope("B", disjoint="site").spend(make_entry(PureLoss(2.0)))
    total = ledger.total()
    assert isinstance(total, ParallelTotal)
    worlds = [compose([shared, GaussianLoss(1.0)]), compose([shared, PureLoss(2.0)])]
    for delta in (1e-9, 0.01, 0.3):
        assert total.epsilon(delta) == max(world.epsilon(delta) for world in worlds)
    assert total.delta(1.0) == max(world.delta(1.0) for world in worlds)
    assert (total.mu, total.rho) == (worlds[1].mu, worlds[1].rho)


def test_many_incomparable_classes_are_bounded_together(make_entry):
    ledger = Ledger()
    for k in range(100):
        losses = [GaussianLoss(0.01 * (k + 1)), PureLoss(2.0 - 0.01 * k)]
        ledger.scope(str(k), disjoint="site").spend(*map(make_entry, losses))
    total = ledger.total()
    assert (total.mu2, total.pure) == (1.0, (2.0,))


@pytest.mark.parametrize("name", ["", " ", "a=b", None])
def test_bad_scope_names_are_refused(name):
    with pytest.raises(ArgumentError, match="scope"):
        Ledger().scope(name)
    with pytest.raises(ArgumentError, match="scope"):
        Ledger().scope("A", disjoint=name or "")


# ---- entries


@pytest.mark.parametrize("relation", ["add-remove", "add_or_remove", "ADD/REMOVE"])
def test_add_remove_is_refused_because_n_is_public(relation, make_entry):
    with pytest.raises(ArgumentError, match="number of records is public"):
        make_entry(relation=relation)


def test_zero_out_losses_are_kept_apart(make_entry):
    ledger = Ledger()
    ledger.spend(make_entry(relation="zero-out"))
    ledger.spend(make_entry(relation="zero-out"))
    for other in ("replace-one", "metric"):
        with pytest.raises(ArgumentError, match="under different neighboring relations"):
            ledger.spend(make_entry(relation=other))
        mixed = Ledger()
        mixed.spend(make_entry(relation=other))
        with pytest.raises(ArgumentError, match="under different neighboring relations"):
            mixed.spend(make_entry(relation="zero-out"))
        with pytest.raises(ArgumentError, match="under different neighboring relations"):
            PrivacyReport.from_entries([make_entry(relation=other), make_entry(relation="zero-out")])
    assert len(ledger) == 2
    with pytest.raises(ArgumentError, match="under different neighboring relations"):
        Ledger.from_json(ledger.to_json()).spend(make_entry())
    text = str(PrivacyReport.from_entries(ledger.entries, ledger=ledger))
    assert "neighbors         zero-out" in text
    assert "one that contributes nothing" in text
    assert "two values" not in text


@pytest.mark.parametrize(
    "noise",
    [
        {"seed": 3},
        {"rng seed": 3},
        {"true_count": 10},
        {"first draw": 0.3},
        {"scale": np.ones(3)},
        {"scale": [1.0]},
        {"scale": math.nan},
        {"scale": None},
        {3: 1.0},
        [("scale", 1.0)],
    ],
)
def test_an_entry_holds_nothing_but_the_law(noise, make_entry):
    with pytest.raises(ArgumentError):
        make_entry(noise=noise)


@pytest.mark.parametrize(
    "change",
    [
        {"label": ""},
        {"mechanism": None},
        {"relation": "neighbour"},
        {"trust": "nobody"},
        {"loss": 0.5},
        {"secure": "yes"},
        {"sensitivity": 2.0},
        {"assumptions": "n is public"},
        {"assumptions": (1,)},
        {"scope": "site=A"},
        {"scope": ("a=",)},
        {"time": "yesterday"},
        {"time": "2024-01-01T00:00:00"},
    ],
)
def test_bad_entries_are_refused(change, make_entry):
    with pytest.raises(ArgumentError):
        make_entry(**{"loss": GaussianLoss(0.1)} | change)


def test_entries_are_frozen_hashable_and_round_trip(make_entry):
    entry = make_entry(noise={"law": "none", "scale": np.float64(math.inf), "dimension": np.int64(3)})
    assert LedgerEntry.from_dict(json.loads(json.dumps(entry.to_dict(), allow_nan=False))) == entry
    assert pickle.loads(pickle.dumps(entry)) == copy.deepcopy(entry) == entry
    assert len({entry, make_entry()}) == 2
    with pytest.raises(TypeError):
        entry.noise["scale"] = 1.0
    with pytest.raises(AttributeError):
        entry.label = "other"
    with pytest.raises(ArgumentError):
        LedgerEntry.from_dict({"label": "x"})
    unknown = make_entry(sensitivity=None)
    assert LedgerEntry.from_dict(unknown.to_dict()) == unknown
    for value in (-1.0, math.nan):
        with pytest.raises(ArgumentError):
            Sensitivity(norm="l2", value=value, derivation="x")


def test_ledger_arguments():
    for arguments in ({"budget": 1.0}, {"name": ""}):
        with pytest.raises(ArgumentError):
            Ledger(**arguments)
    assert Ledger().remaining() is None
    assert bool(Ledger())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_limit_is_spent_in_one_process_of_a_fork(tmp_path, make_entry):
    limit = Budget(mu=1.0)
    ledgers = [Ledger(limit), Ledger(), pi.LedgerFile(tmp_path / "l", limit, anchor=tmp_path / "at" / "a")]

    def spent(ledger):
        try:
            ledger.spend(make_entry(loss=GaussianLoss(0.8)))
            return b"spent"
        except (ArgumentError, BudgetExceededError) as refusal:
            return type(refusal).__name__.encode()

    in_child = [in_a_fork(lambda ledger=ledger: spent(ledger)) for ledger in ledgers]
    assert in_child == [b"ArgumentError", b"spent", b"spent"]
    assert [spent(ledger) for ledger in ledgers] == [b"spent", b"spent", b"BudgetExceededError"]

    def resumed():
        return spent(Ledger.from_json(ledgers[0].to_json(), resume=True))

    assert in_a_fork(resumed) == b"BudgetExceededError"  # by the holder's word it goes on; the limit holds


@pytest.mark.parametrize("kind", ["memory", "file", "loaded"])
def test_a_limit_of_persons_is_not_charged_by_records(kind, make_entry, tmp_path):
    """A person of four rows pays four times the mu of a release about records, or less: nobody knows."""

    def entry(unit):
        return make_entry(loss=GaussianLoss(0.5), unit=unit)

    def ledger(name):
        where = {"anchor": tmp_path / "at" / name}
        return (
            pi.LedgerFile(tmp_path / name, Budget(mu=1.0), **where)
            if kind == "file"
            else Ledger(Budget(mu=1.0))
        )

    persons, records = ledger("persons"), ledger("records")
    persons.spend(entry("person"))
    if kind == "loaded":
        text = persons.to_json()
        del persons
        gc.collect()
        persons = Ledger.from_json(text, resume=True)
    for unit in ("record", "client"):
        with pytest.raises(ArgumentError, match=f"is for one person, but this release protects one {unit}"):
            persons.spend(entry(unit))
    with pytest.raises(ArgumentError, match="cannot be converted"):
        ledger("both").spend(entry("person"), entry("record"))
    persons.spend(entry("person"))
    records.spend(entry("record"), entry("person"))  # a record is part of a person: its limit holds
    assert persons.total().mu == records.total().mu == pytest.approx(math.sqrt(0.5))
    free = Ledger()
    report = PrivacyReport.from_entries(free.spend(entry("person"), entry("record")), free)
    assert any("totals are per record" in text for text in report.assumptions)
    assert "totals are per record" in str(report)
    alone = PrivacyReport.from_entries(free.spend(entry("person")), free)
    assert not any("totals are per record" in text for text in alone.assumptions)
