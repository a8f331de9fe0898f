"""The whole protocol of ledgers and accounts, one check a method, over every kind of ledger that there is."""

import copy
import json
import pickle
from fractions import Fraction

import pytest

from privinf.accounting import Budget, GaussianLoss, Ledger, PrivacyReport
from privinf.accounting.files import LedgerFile
from privinf.accounting.ledger import Account, account_of, ledger_of
from privinf.accounting.purposes import charged_for
from privinf.cli.pending import StagedLedger
from privinf.errors import ArgumentError, BudgetExceededError, NotAvailableError

LIMIT = Budget(mu=1.0)
PART = ("analyst", "fit")

KINDS = {
    "memory": lambda path, budget: Ledger(budget, "patient"),
    "file": lambda path, budget: LedgerFile(path, budget, "patient"),
    "staged for a file": lambda path, budget: StagedLedger(LedgerFile(path, budget, "patient")),
    "staged for a memory": lambda path, budget: StagedLedger(Ledger(budget, "patient")),
}


class Bench:
    """A fresh ledger of one kind, and entries to spend."""

    def __init__(self, kind, path, make_entry):
        self.kind = kind
        self.ledger = KINDS[kind](path, LIMIT)
        self.account = account_of(self.ledger)[0]
        self.entry = make_entry

    @property
    def staged(self):
        return isinstance(self.ledger, StagedLedger)

    def spent(self, *mus):
        """Spend entries of these prices; return them as recorded."""
        return self.ledger.spend(*(self.entry(GaussianLoss(mu)) for mu in mus))


# ---- the entry points


def check_budget(bench):
    assert bench.ledger.budget == bench.ledger.scope("second").budget == LIMIT


def check_name(bench):
    assert bench.ledger.name == bench.ledger.scope("second").name == "patient"


def check_entries(bench):
    first = bench.spent(0.1, 0.2)
    second = bench.ledger.scope("second").spend(bench.entry(GaussianLoss(0.3)))
    assert bench.ledger.entries == first + second
    assert bench.ledger.scope("second").entries == second
    assert bench.ledger.scope("third").entries == ()


def check_spend(bench):
    (line,) = bench.spent(0.6)
    with pytest.raises(ArgumentError, match="already in the ledger"):
        bench.ledger.spend(line)
    with pytest.raises(BudgetExceededError, match=r"'features' would exceed the limit of one patient"):
        bench.spent(0.81)
    with pytest.raises(BudgetExceededError):
        bench.spent(0.5, 0.7)
    with pytest.raises(ArgumentError, match="under different neighboring relations"):
        bench.ledger.spend(bench.entry(GaussianLoss(0.1), relation="zero-out"))
    with pytest.raises(ArgumentError, match="must be a sequence of LedgerEntry"):
        bench.ledger.spend("line")
    assert bench.ledger.entries == (line,)
    bench.spent(0.8)


def check_find(bench):
    entry, other = bench.entry(), bench.entry()
    assert bench.ledger.find(entry) is None
    bench.ledger.spend(entry)
    assert bench.ledger.find(entry) == entry
    assert bench.ledger.find(other) is None
    assert bench.ledger.find(bench.entry(GaussianLoss(0.4), id=entry.id, time=entry.time)) is None
    second = bench.ledger.scope("north", disjoint="site")
    assert second.find(entry) is None
    second.spend(other)
    assert second.find(other) == other.within(("site=north",))
    assert bench.ledger.find(other) is None
    assert bench.ledger.scope("south", disjoint="site").find(other) is None


def check_number_fit(bench):
    first, second, third, rest = bench.spent(0.1, 0.1, 0.1, 0.1)
    assert bench.ledger.number_fit([bench.entry()]) is None
    assert bench.ledger.number_fit([]) is None
    assert bench.ledger.number_fit([second]) is None  # the first belongs to no fit
    assert bench.ledger.number_fit([first]) == 2
    assert bench.ledger.number_fit([second]) == 1
    assert bench.ledger.scope("second").number_fit([third, rest]) == 3
    assert PrivacyReport.from_entries([rest], bench.ledger).fit == 3


def check_check(bench):
    bench.spent(0.6)
    bench.ledger.check(GaussianLoss(0.8))
    bench.ledger.check([GaussianLoss(0.4), GaussianLoss(0.4)], ["fold"])
    for losses in (GaussianLoss(0.81), [GaussianLoss(0.6)] * 2):
        with pytest.raises(BudgetExceededError, match="these releases"):
            bench.ledger.check(losses)
        with pytest.raises(BudgetExceededError, match="these releases"):
            bench.ledger.scope("second").check(losses)
    with pytest.raises(ArgumentError, match="privacy loss objects"):
        bench.ledger.check([0.5])
    assert len(bench.ledger) == 1


def check_scope(bench):
    """Scopes charge the same account: beside the limit, in parallel, and not past what is staged."""
    for site in ("north", "south"):
        bench.ledger.scope(site, disjoint="site").spend(bench.entry(GaussianLoss(0.8)))
    assert [entry.scope for entry in bench.ledger.entries] == [("site=north",), ("site=south",)]
    bench.ledger.scope("south", disjoint="site").scope("fold").spend(bench.entry(GaussianLoss(0.6)))
    with pytest.raises(BudgetExceededError):
        bench.ledger.scope("south", disjoint="site").spend(bench.entry(GaussianLoss(0.1)))
    bench.ledger.scope("north", disjoint="site").check(GaussianLoss(0.6))
    if bench.staged:
        assert len(bench.ledger.real) == 0
        assert bench.ledger.lines == bench.ledger.entries
    with pytest.raises(ArgumentError):
        bench.ledger.scope("a=b")


def check_total(bench):
    assert bench.ledger.total().mu == 0.0
    bench.spent(0.6)
    bench.ledger.scope("second").spend(bench.entry(GaussianLoss(0.8)))
    assert bench.ledger.total().mu == pytest.approx(1.0)
    assert bench.ledger.scope("second").total().mu == pytest.approx(0.8)


def check_remaining(bench):
    assert bench.ledger.remaining().limit == 1
    bench.spent(0.6)
    assert bench.ledger.remaining().limit == Fraction(64, 100)
    bench.ledger.scope("north", disjoint="site").spend(bench.entry(GaussianLoss(0.8)))
    assert bench.ledger.remaining().limit == 0
    assert bench.ledger.scope("south", disjoint="site").remaining().limit == Fraction(64, 100)


def check_fits(bench):
    """Every kind lists its lines by fit, with the name of the handle; a copy keeps what it does not know."""
    with charged_for("OLS: y ~ x"):
        named = bench.ledger.named("first")
        named.spend(bench.entry(GaussianLoss(0.1)))
        named.scope("second").spend(bench.entry(GaussianLoss(0.1)))
    bench.spent(0.2, 0.2)
    fits = bench.ledger.fits
    assert [(fit.name, fit.subject, len(fit.entries)) for fit in fits] == [
        ("first", "OLS: y ~ x", 2),
        ("", "features", 2),
    ]
    assert [fit.name for fit in bench.ledger.scope("second").fits] == ["first"]
    assert set(bench.account.purposes()) == {entry.id for entry in bench.ledger.entries}
    stored = bench.account.stored_purposes()
    assert [(record["name"], len(record["lines"])) for record in stored] == [("first", 2), ("", 2)]


def check_count_more(bench):
    assert bench.ledger.count_more() is None
    bench.spent(0.4, 0.2)
    assert bench.ledger.count_more() == 4


def check_to_json(bench):
    bench.spent(0.6)
    if bench.staged:
        with pytest.raises(NotAvailableError, match="not charged yet"):
            bench.ledger.to_json()
        return
    record = json.loads(bench.ledger.to_json())
    assert [entry["id"] for entry in record["entries"]] == [entry.id for entry in bench.ledger.entries]
    assert record["spent"] == str(Fraction(36, 100))
    assert record["name"] == "patient"


def check_from_json(bench):
    """A text of the real account opens the same account."""
    real = bench.ledger.real if bench.staged else bench.ledger
    (line,) = real.spend(bench.entry(GaussianLoss(0.6)))
    for resume in (False, True):
        loaded = type(bench.ledger).from_json(real.to_json(), resume=resume)
        assert loaded.entries == bench.ledger.entries == (line,)
        assert account_of(loaded)[0] is account_of(real)[0]
    (more,) = loaded.spend(bench.entry(GaussianLoss(0.1)))
    assert bench.ledger.find(more) == more


def check_copies(bench):
    """Copies are the same handle; pickles join the same account, or are refused where nothing is charged."""
    bench.spent(0.6)
    for same in (copy.copy(bench.ledger), copy.deepcopy(bench.ledger)):
        assert same is bench.ledger
    if bench.staged:
        with pytest.raises(NotAvailableError, match="not charged yet"):
            pickle.dumps(bench.ledger)
        return
    loaded = pickle.loads(pickle.dumps(bench.ledger.scope("second")))
    loaded.spend(bench.entry(GaussianLoss(0.1)))
    assert [entry.scope for entry in bench.ledger.entries] == [(), ("second",)]


def check_len(bench):
    assert (len(bench.ledger), bool(bench.ledger)) == (0, True)
    bench.spent(0.1, 0.1)
    assert (len(bench.ledger), len(bench.ledger.scope("second"))) == (2, 0)


def check_repr(bench):
    bench.spent(0.1)
    text = repr(bench.ledger.scope("second"))
    assert text == f"<Ledger of one patient, second: 0 fits, {LIMIT}>"
    kind = type(bench.ledger).__name__
    assert repr(bench.ledger) == f"<{kind} of one patient: 1 fit, {LIMIT}>"


# ---- the accounts behind them


def check_snapshot(bench):
    lines = bench.spent(0.1, 0.2)
    assert bench.account.snapshot() == lines


def check_holds(bench):
    entry = bench.entry()
    assert not bench.account.holds(entry)
    bench.ledger.spend(entry)
    assert bench.account.holds(entry)
    assert not bench.account.holds(entry.within(("second",)))


def check_record(bench):
    bench.account.hold(PART, [GaussianLoss(0.5)], "a fit")
    entry = bench.entry(GaussianLoss(0.3))
    bench.account.record((entry,), PART)
    bench.account.free(PART)
    assert bench.ledger.entries == (entry,)
    assert bench.ledger.remaining().limit == Fraction(91, 100)


def check_hold(bench):
    """What would exceed the limit is refused; only an account in one memory holds what is not."""
    bench.spent(0.6)
    with pytest.raises(BudgetExceededError, match="a fit would exceed the limit"):
        bench.account.hold(PART, [GaussianLoss(0.81)], "a fit")
    bench.account.hold(PART, [GaussianLoss(0.8)], "a fit")
    if bench.kind == "memory":
        with pytest.raises(BudgetExceededError, match="reserved"):
            bench.spent(0.1)
    else:
        bench.spent(0.1)


def check_free(bench):
    bench.account.free(PART)
    bench.account.hold(PART, [GaussianLoss(1.0)], "a fit")
    bench.account.free(PART)
    bench.spent(1.0)


def check_absorb(bench):
    """What another copy recorded are facts: taken once, past the limit, and seen by every reading."""
    (line,) = (
        bench.spent(0.6) if not bench.staged else bench.ledger.real.spend(bench.entry(GaussianLoss(0.6)))
    )
    other = bench.entry(GaussianLoss(2.0))
    for _ in range(2):
        bench.account.absorb([line, other])
    assert bench.ledger.entries == (line, other)
    assert bench.ledger.find(other) == other
    assert bench.ledger.remaining().limit == 0
    with pytest.raises(BudgetExceededError):
        bench.ledger.check(GaussianLoss(0.1))


def check_resume(bench):
    """A ledger that can only be read says so, whatever is staged for it, until its holder's word."""
    real = bench.ledger.real if bench.staged else bench.ledger
    loaded = account_of(real)[0]
    if not loaded.shared:
        loaded.read_only = True
        assert repr(bench.ledger).endswith("read-only>")
        with pytest.raises(ArgumentError, match="this ledger is a copy"):
            bench.spent(0.1)
    bench.account.resume()
    bench.spent(0.1)
    assert not bench.account.read_only


def check_reopened(bench):
    bench.spent(0.6)
    if bench.staged:
        with pytest.raises(NotAvailableError, match="not charged yet"):
            bench.account.reopened(())
        return
    function, arguments = bench.account.reopened(("second",))
    assert function(*arguments).remaining().limit == Fraction(64, 100)


def check_to_dict(bench):
    bench.spent(0.6)
    if bench.staged:
        with pytest.raises(NotAvailableError, match="not charged yet"):
            bench.account.to_dict()
        return
    record = bench.account.to_dict()
    assert (record["id"], record["budget"]) == (bench.account.identity, LIMIT.to_dict())
    assert len(record["entries"]) == 1


LEDGER = {
    "budget": check_budget,
    "name": check_name,
    "entries": check_entries,
    "spend": check_spend,
    "find": check_find,
    "number_fit": check_number_fit,
    "check": check_check,
    "scope": check_scope,
    "total": check_total,
    "remaining": check_remaining,
    "fits": check_fits,
    "named": check_fits,
    "count_more": check_count_more,
    "to_json": check_to_json,
    "from_json": check_from_json,
    "__copy__": check_copies,
    "__deepcopy__": check_copies,
    "__reduce__": check_copies,
    "__len__": check_len,
    "__bool__": check_len,
    "__repr__": check_repr,
}
ACCOUNT = {
    "snapshot": check_snapshot,
    "purposes": check_fits,
    "stored_purposes": check_fits,
    "holds": check_holds,
    "record": check_record,
    "check": check_check,
    "hold": check_hold,
    "free": check_free,
    "number_fit": check_number_fit,
    "resume": check_resume,
    "remaining": check_remaining,
    "absorb": check_absorb,
    "reopened": check_reopened,
    "to_dict": check_to_dict,
}
CASES = sorted({(check.__name__.removeprefix("check_"), check) for check in (LEDGER | ACCOUNT).values()})


@pytest.mark.parametrize("check", [check for _, check in CASES], ids=[name for name, _ in CASES])
@pytest.mark.parametrize("kind", KINDS)
def test_every_method_of_every_kind_of_ledger(kind, check, tmp_path, make_entry):
    check(Bench(kind, tmp_path / "clinic.ledger", make_entry))


def test_no_method_of_the_protocol_is_left_out():
    own = {"__init__", "__module__", "__doc__", "__slots__", "__static_attributes__", "__firstlineno__"}
    assert {name for name in vars(Ledger) if not name.startswith("_") or name.endswith("__")} - own == set(
        LEDGER
    )
    assert Account.__abstractmethods__ == set(ACCOUNT)


def test_what_is_staged_counts_beside_reservations_of_the_real_account(make_entry):
    real = Ledger(LIMIT)
    account_of(real)[0].hold(PART, [GaussianLoss(0.6)], "a fit")
    staged = StagedLedger(real)
    assert staged.remaining().limit == Fraction(64, 100)
    staged.spend(make_entry(GaussianLoss(0.4)))
    assert staged.remaining().limit == Fraction(48, 100)
    with pytest.raises(BudgetExceededError, match="reserved"):
        staged.spend(make_entry(GaussianLoss(0.7)))
    assert len(real) == 0


def test_lines_staged_through_a_scope_are_filed_in_it(make_entry):
    real = Ledger(LIMIT)
    staged = StagedLedger(real.scope("second"))
    (line,) = staged.spend(make_entry())
    assert line.scope == ("second",)
    assert staged.lines == staged.entries == (line,)
    assert staged.find(line.filed(line.id, ())) == line
    ledger_of(account_of(real)[0]).spend(*staged.lines)
    assert real.entries == (line,)


def test_two_ledgers_of_a_file_number_fits_by_its_lines(tmp_path, make_entry):
    path = tmp_path / "clinic.ledger"
    first, other = LedgerFile(path, LIMIT), LedgerFile(path, LIMIT)
    (line,) = first.spend(make_entry(GaussianLoss(0.1)))
    assert first.number_fit([line]) == 1
    (later,) = other.spend(make_entry(GaussianLoss(0.1)))
    assert other.number_fit([later]) is None  # what stands before it is of no fit that it knows
    assert first.number_fit([later]) == 2


def test_a_text_of_a_file_that_another_made_first_opens_it(tmp_path, make_entry):
    early = LedgerFile(tmp_path / "clinic.ledger", LIMIT, "patient")
    made = LedgerFile.create(tmp_path / "clinic.ledger", LIMIT, "person")
    text = made.to_json()
    del made
    assert len(early) == 0
    assert early.name == "person"
    Ledger.from_json(text).spend(make_entry(GaussianLoss(0.6)))
    assert len(early) == 1
