"""The privacy statement for a paper."""

from __future__ import annotations

import pickle
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import ApproximateLoss, GaussianLoss, PureLoss
from privinf.accounting.report import PrivacyReport, rounded_up
from privinf.errors import NotAvailableError
from privinf.results.paper_table import privacy_note
from privinf.wire import Assumptions

SCHEMA = pi.Schema({"y": (0, 10), "x": (0, 1), "t": (0.5, 3)})
ROWS = pd.DataFrame({"y": np.arange(4000) % 10, "x": np.linspace(0, 1, 4000), "t": np.linspace(0.5, 3, 4000)})


def test_the_statement_has_the_total_of_the_ledger():
    ledger = pi.Ledger(pi.Budget(epsilon=3.0, delta=1e-6))
    model = pi.OLS.from_formula("y ~ x", ROWS, schema=SCHEMA, ledger=ledger)
    first, second = model.fit(mu=0.2), model.fit(mu=0.3)
    text = second.privacy.statement()
    total = second.privacy.cumulative
    assert f"({rounded_up(total.epsilon(), 4)}, 1e-06)-differential privacy for replacing one record" in text
    assert f"composed over all {len(total.entries)} releases that the ledger had when this fit" in text
    assert "a curator was trusted" in text
    assert text.count("number of records is public") == 1
    assert rounded_up(total.epsilon(), 4) in second.to_latex()
    text = "releases together that the ledger had when this fit ended: epsilon"
    model.fit(mu=0.4)  # of which the table of an earlier fit says nothing
    assert text not in first.to_latex()
    assert f"All {len(total.entries)} {text}" in second.to_latex()


def test_the_statement_of_one_fit_says_that_it_covers_this_fit_alone():
    result = pi.OLS.from_formula("y ~ x", ROWS, schema=SCHEMA).fit(epsilon=1.0, delta=1e-6)
    assert "other releases about the same data add to it" in result.privacy.statement()
    seeded = pi.OLS.from_formula("y ~ x", ROWS, schema=SCHEMA).fit(epsilon=1.0, delta=1e-6, rng=1)
    with pytest.raises(NotAvailableError, match="not all private"):
        seeded.privacy.statement()


def test_a_ledger_names_an_exposure_apart():
    ledger = pi.Ledger(pi.Budget(epsilon=3.0, delta=1e-6))
    options = {"schema": SCHEMA, "exposure": "t", "ledger": ledger}
    pi.Poisson.from_formula("y ~ x", ROWS, **options).fit(epsilon=1.0, delta=1e-6)
    assert [fit.subject for fit in ledger.fits] == ["Poisson: y ~ x, exposure=t"]


def test_a_pickle_of_a_table_keeps_privacy_and_warnings():
    with pytest.warns(pi.errors.LargeDeltaWarning):
        result = pi.stats.mean("x", data=ROWS, schema=SCHEMA, epsilon=1.0, delta=1e-3)
    copy = pickle.loads(pickle.dumps(result))
    assert str(copy) == str(result)
    assert copy.privacy == result.privacy
    assert copy.cautions == result.cautions
    assert "delta" in str(copy)


def line(loss=None, **fields):
    given = {
        "mechanism": "gaussian",
        "label": "moments",
        "unit": "record",
        "relation": "replace-one",
        "trust": "central",
        "loss": GaussianLoss(0.25) if loss is None else loss,
        "source": "lattice",
        "secure": True,
    }
    return pi.LedgerEntry(**given | fields)


def statement(*entries, **options):
    return PrivacyReport.from_entries(entries, **options).statement()


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([line(), line(relation="metric")], "metric privacy"),
        ([line(), line(assumptions=[Assumptions.DATA_BOUNDS])], "bounds were taken from the data"),
        ([line(), line(assumptions=[Assumptions.CLEAR_RESPONSE])], "the response was released without noise"),
        ([line(), line(unit="id")], r"different units \(record, id\)"),
        ([line(), line(trust="local")], r"different trust models \(central, local\)"),
        ([line(ApproximateLoss(0.1, 1e-3))], "epsilon is infinite at delta = 1e-06"),
    ],
)
def test_guarantees_that_the_sentences_do_not_fit_are_refused(entries, reason):
    with pytest.raises(NotAvailableError, match=f"{reason}.*template.*docs/howto/report.md"):
        statement(*entries)
    ledger = pi.Ledger()
    ledger.spend(*entries)
    with pytest.raises(NotAvailableError, match=reason):
        PrivacyReport.from_entries([entries[0]], ledger).statement()


def test_fits_with_such_guarantees_are_refused():
    y, X = np.linspace(-1, 1, 500), np.linspace(-1, 1, 1000).reshape(500, 2)
    with pytest.raises(NotAvailableError, match="metric privacy"):
        pi.ModulatedOLS(y, X, adjacency="unit", y_bounds=(-3, 3)).fit(
            epsilon=30.0, delta=1e-6
        ).privacy.statement()
    bounded = pi.IWPGLM.from_formula(
        "b ~ x",
        ROWS.assign(b=np.arange(4000) % 2),
        schema=pi.Schema({"b": (0, 1), "x": (0, 1)}),
        data_bounds=True,
    )
    with pytest.raises(NotAvailableError, match="taken from the data"):
        bounded.fit(epsilon=2.0, delta=1e-6).privacy.statement()
    with pytest.raises(NotAvailableError, match="without noise"):
        pi.ModulatedOLS(y, X, radius=2.0, response="public").fit(epsilon=30.0, delta=1e-6).privacy.statement()


def test_releases_of_another_ledger_are_named_in_statement_and_table():
    one, other = pi.Ledger(pi.Budget(epsilon=3.0, delta=1e-6)), pi.Ledger()
    (foreign,) = other.spend(line())
    mine, later = one.spend(line(), line())
    report = PrivacyReport.from_entries([foreign, mine], one)
    text = report.statement()
    assert "composed over 3 releases: the releases that the ledger had" in text
    assert "including 1 release that was charged to another ledger; other releases of that ledger" in text
    note = privacy_note(report, "10")
    assert (
        "All 3 releases together that the ledger had when this fit ended, including 1 release that was"
        in note
    )
    assert note.endswith("Other releases of that ledger add to it.")
    assert "another ledger" not in privacy_note(PrivacyReport.from_entries([later], one), "10")


def test_the_statement_of_a_party_is_about_its_releases():
    entries = [line(party=name, trust="per-party", unit="person") for name in "AB"]
    report = PrivacyReport.from_entries(entries)
    assert report.statement().startswith("The estimates satisfy")
    for alone in (report.party("A"), report.party("A").cumulative):
        assert alone.statement().startswith("The releases of party A satisfy")
        assert "1 release of this party; other releases about the same data, including" in alone.statement()


def test_the_statement_says_what_trust_the_guarantee_needs():
    text = statement(line(trust="local"))
    assert "needs no trusted curator if each record is noised by its own holder" in text
    assert "nobody was trusted" not in text


def test_the_statement_names_no_version():
    assert "Software: privinf, secure noise." in statement(line())
    assert pi.__version__ not in statement(line())


def test_units_numbers_and_assumptions_are_sentences():
    text = statement(line(unit="id", assumptions=["one", "two"]), line(unit="id", assumptions=["two"]))
    assert "for replacing all rows of one id, for 2 releases;" in text
    assert text.count("The guarantee assumes: one; two.") == text.count("assumes") == 1
    assert "replacing all rows of one site" in statement(line(unit="client"))
    assert "replacing one record by a contribution of zero" in statement(line(relation="zero-out"))
    ledger = pi.Ledger(pi.Budget(epsilon=3.0, delta=1e-6))
    report = PrivacyReport.from_entries(ledger.spend(line()), ledger)
    assert "for the only release that the ledger had when this fit ended" in report.statement()
    parts = pi.Ledger(pi.Budget(epsilon=3.0, delta=1e-6))
    entries = parts.scope("2020", disjoint="year").spend(line())
    assert "disjoint parts of the ledger" in PrivacyReport.from_entries(entries, parts).statement()


def test_pure_releases_have_a_delta_of_zero():
    assert "(1, 0)-differential privacy" in statement(line(PureLoss(1.0)))
    assert "(0.4, 0)-differential privacy" in statement(line(PureLoss(0.3)), line(PureLoss(0.1)))
    assert ", 1e-06)-differential privacy" in statement(line(PureLoss(1.0)), line())


@pytest.mark.parametrize("value", [1.06149, 1.0001, 0.99991, 12345.1, 3.0, 1e-6, 1.2345678e-7, 0.1, 2.0**-20])
@pytest.mark.parametrize("digits", [4, 6])
def test_figures_are_never_rounded_down(value, digits):
    text = rounded_up(value, digits)
    assert Fraction(text) >= Fraction(repr(value))
    assert float(text) == pytest.approx(value, rel=10.0 ** (1 - digits))


def test_the_figures_of_a_statement_are_rounded_up():
    report = PrivacyReport.from_entries([line(GaussianLoss(0.2871))], delta=1.2345678e-7)
    epsilon, delta = re.search(r"satisfy \((.*), (.*)\)-differential", report.statement()).groups()
    assert float(epsilon) >= report.epsilon()
    assert delta == "1.23457e-07"
