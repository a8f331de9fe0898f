"""Reports and plans: the joint total, both directions, what a reader is told."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from privinf.accounting import (
    ApproximateLoss,
    Budget,
    ConcentratedLoss,
    GaussianLoss,
    Ledger,
    PrivacyReport,
    PureLoss,
    compose,
    gaussian_mu,
    plan,
)
from privinf.accounting.report import joint_report
from privinf.errors import ArgumentError, NotAvailableError

LOSSES = (GaussianLoss(0.3), PureLoss(0.8), GaussianLoss(0.2))


@pytest.fixture
def report(make_entry):
    ledger = Ledger(Budget(epsilon=9.0, delta=1e-5))
    ledger.spend(make_entry(GaussianLoss(0.7)))
    return PrivacyReport.from_entries(ledger.spend(*map(make_entry, LOSSES)), ledger)


def test_totals_are_joint_and_cumulative(report):
    fit, everything = compose(LOSSES), compose([*LOSSES, GaussianLoss(0.7)])
    assert report.epsilon(1e-5) == fit.epsilon(1e-5) == report.epsilon()
    assert report.delta(1.0) == fit.delta(1.0)
    assert (report.mu, report.rho) == (fit.mu, fit.rho)
    cumulative = report.cumulative
    assert cumulative.epsilon(1e-6) == everything.epsilon(1e-6)
    assert cumulative.mu == pytest.approx(everything.mu, rel=1e-15)
    assert len(cumulative.releases) == 4
    assert cumulative.cumulative == cumulative


def test_a_report_does_not_change_when_the_ledger_goes_on(make_entry):
    ledger = Ledger()
    report = PrivacyReport.from_entries(ledger.spend(make_entry()), ledger)
    ledger.spend(make_entry())
    assert len(report.cumulative.entries) == 1


def test_releases_have_one_row_each(report):
    frame = report.releases
    expected = (
        "label mechanism unit relation trust sensitivity norm noise_scale mu rho epsilon source secure scope"
    )
    assert list(frame.columns) == expected.split()
    assert len(frame) == 3
    assert list(frame["mu"])[::2] == [0.3, 0.2]
    assert list(frame["noise_scale"]) == [4.0] * 3
    assert frame["epsilon"][1] == pytest.approx(0.8, abs=1e-4)
    assert frame["secure"].all()


def test_undefined_figures_are_nan_in_tables_and_reasons_in_attributes(make_entry):
    report = PrivacyReport.from_entries([make_entry(ApproximateLoss(1.0, 1e-7), sensitivity=None, noise={})])
    assert report.releases[["mu", "rho", "sensitivity", "noise_scale"]].isna().all(axis=None)
    with pytest.raises(NotAvailableError, match="only an"):
        report.mu
    assert report.to_frame().loc[["mu", "rho"]].isna().all(axis=None)
    assert "not available" in str(report)
    concentrated = PrivacyReport.from_entries([make_entry(ConcentratedLoss(0.1))])
    assert concentrated.rho == 0.1
    assert not hasattr(concentrated, "mu")


def test_scopes_count_in_reports(make_entry):
    ledger = Ledger()
    entries = [ledger.scope(s, disjoint="site").spend(make_entry(GaussianLoss(0.4)))[0] for s in "ABC"]
    assert PrivacyReport.from_entries(entries, ledger).mu == 0.4


def test_text_says_what_a_statistician_needs(report):
    text = str(report)
    for part in (
        f"{report.epsilon():.4g} at delta = 1e-05",
        f"{report.mu:.4g}",
        f"{report.rho:.4g}",
        "replace-one",
        "record",
        "local",
        "lattice (secure)",
        "n is public",
        "power of at most ",
        "Ledger at the end of this fit",
        str(report.budget),
    ):
        assert part in text
    assert "NOT PRIVATE" not in text
    assert max(map(len, text.splitlines())) <= 100
    power = float(text.split("power of at most ")[1].split("%")[0])
    assert 5.0 < power < 100.0


def test_equal_releases_that_follow_one_another_are_one_line(make_entry):
    step, last = partial(make_entry, GaussianLoss(0.1), label="step"), make_entry(label="last")
    report = PrivacyReport.from_entries([*(step() for _ in range(100)), last, step()])
    lines = [
        line.strip().split("  ")[0] for line in str(report).splitlines() if "step" in line or "last" in line
    ]
    assert lines == ["step, 100 times", "last", "step"]
    assert report._repr_html_().count(">step") == 2
    assert len(report.releases) == 102


def test_stamps(make_entry):
    seeded = PrivacyReport.from_entries([make_entry(), make_entry(secure=False, source="simulation")])
    assert (seeded.secure, seeded.simulated) == (False, True)
    assert "SIMULATION NOISE: NOT PRIVATE" in str(seeded)
    assert "SIMULATION NOISE: NOT PRIVATE" in seeded._repr_html_()
    clear = PrivacyReport.from_entries([make_entry(GaussianLoss(math.inf), secure=False, source="none")])
    assert "NO NOISE: NOT PRIVATE" in str(clear)
    assert (clear.epsilon(), clear.mu, clear.rho) == (math.inf, math.inf, math.inf)
    nothing = PrivacyReport.from_entries([])
    assert (nothing.epsilon(), nothing.unit, nothing.simulated) == (0.0, "nothing released", False)
    assert "NOT PRIVATE" not in str(nothing)
    assert len(nothing.releases) == 0


def test_html_is_escaped(make_entry):
    page = PrivacyReport.from_entries([make_entry(label="<script>", assumptions=("a < b",))])._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a &lt; b" in page


def test_a_report_states_whether_anyone_chose_its_delta(make_entry):
    entry = make_entry()
    report = PrivacyReport.from_entries([entry])
    assert report.delta_is_default
    assert PrivacyReport.from_dict(report.to_dict()).delta_is_default
    assert report.cumulative.delta_is_default
    assert not PrivacyReport.from_entries([entry], delta=1e-6).delta_is_default
    limited = Ledger(Budget(epsilon=1, delta=1e-9))
    assert not PrivacyReport.from_entries([entry], limited).delta_is_default
    assert "delta_is_default" not in PrivacyReport.from_entries([entry], limited).to_dict()
    assert PrivacyReport.from_entries([entry], nobs=5_000_000).default_delta == 1e-7
    assert PrivacyReport.from_entries([entry], nobs=100).default_delta == 1e-6


def test_budgets_and_reports_are_readable_in_a_list(make_entry):
    assert repr({"a": Budget(epsilon=1, delta=1e-6)}).startswith("{'a': <Budget: epsilon <= 1 at delta 1e-06")
    report = PrivacyReport.from_entries([make_entry()])
    assert repr(report).startswith("<PrivacyReport: epsilon ")
    assert "1 release" in repr(report)


def test_default_delta_and_its_limits(make_entry):
    assert PrivacyReport.from_entries([make_entry()]).default_delta == 1e-6
    assert (
        PrivacyReport.from_entries([make_entry()], Ledger(Budget(epsilon=1, delta=1e-9))).default_delta
        == 1e-9
    )
    assert PrivacyReport.from_entries([make_entry()], delta=1e-4).default_delta == 1e-4
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ArgumentError, match="delta"):
            PrivacyReport.from_entries([make_entry()], delta=delta)
        with pytest.raises(ArgumentError, match="delta"):
            PrivacyReport.from_entries([make_entry()]).epsilon(delta)
    with pytest.raises(ArgumentError, match="entries"):
        PrivacyReport.from_entries([GaussianLoss(1.0)])


def test_round_trips(report, make_entry):
    back = PrivacyReport.from_dict(json.loads(json.dumps(report.to_dict(), allow_nan=False)))
    assert back == report == pickle.loads(pickle.dumps(report))
    assert str(back) == str(report)
    alone = PrivacyReport.from_entries([make_entry()])
    assert PrivacyReport.from_dict(alone.to_dict()) == alone
    for record in ({}, {"entries": 3}, report.to_dict() | {"fit": ["unknown"]}):
        with pytest.raises(ArgumentError):
            PrivacyReport.from_dict(record)


def test_plan_costs_what_the_releases_will_cost(make_entry):
    planned = plan(
        [
            {"mechanism": "gaussian", "mu": 0.3, "times": 5, "label": "rounds"},
            {"mechanism": "gaussian", "rho": 0.02},
            {"mechanism": "gaussian", "epsilon": 0.5},
            {"mechanism": "gaussian", "sensitivity": 2.0, "scale": 8.0},
            {"mechanism": "randomized_response", "epsilon": 1.0},
            make_entry(GaussianLoss(0.1)),
            PureLoss(0.1),
        ],
        delta=1e-6,
    )
    losses = [GaussianLoss(0.3)] * 5 + [GaussianLoss(0.2), GaussianLoss(gaussian_mu(0.5, 1e-6))]
    losses += [GaussianLoss(0.25), PureLoss(1.0), GaussianLoss(0.1), PureLoss(0.1)]
    total = compose(losses)
    assert planned.epsilon() == planned.epsilon(1e-6) == pytest.approx(total.epsilon(1e-6), rel=1e-12)
    assert planned.delta(1.0) == pytest.approx(total.delta(1.0), rel=1e-12)
    assert (planned.mu, planned.rho) == (pytest.approx(total.mu), pytest.approx(total.rho))
    assert list(planned.frame["times"]) == [5, 1, 1, 1, 1, 1, 1]
    assert planned.frame["mu"][0] == pytest.approx(0.3 * math.sqrt(5))
    assert f"epsilon {total.epsilon(1e-6):.4g}" in str(planned)
    other = plan(
        [{"mechanism": "external", "epsilon": 1.0, "delta": 1e-8}, ConcentratedLoss(0.1)], delta=1e-5
    )
    assert other.epsilon() == compose([ApproximateLoss(1.0, 1e-8), ConcentratedLoss(0.1)]).epsilon(1e-5)


@pytest.mark.parametrize(
    "release",
    [
        {},
        {"mechanism": "laplace", "epsilon": 1.0},
        {"mechanism": "gaussian"},
        {"mechanism": "gaussian", "mu": 0.1, "sigma": 3.0},
        {"mechanism": "gaussian", "sensitivity": 1.0},
        {"mechanism": "gaussian", "sensitivity": 1.0, "scale": 0.0},
        {"mechanism": "gaussian", "mu": 0.1, "times": 0},
        {"mechanism": "randomized_response", "rho": 1.0},
        {"mechanism": "external", "epsilon": 1.0},
        {"mechanism": "concentrated", "rho": -1.0},
        "gaussian",
        3.0,
    ],
)
def test_bad_plans_are_refused(release):
    with pytest.raises(ArgumentError):
        plan([release], delta=1e-6)


def test_plan_arguments():
    with pytest.raises(ArgumentError, match="sequence"):
        plan(GaussianLoss(1.0), delta=1e-6)
    with pytest.raises(ArgumentError, match="delta"):
        plan([GaussianLoss(1.0)], delta=0.0)


def test_importing_the_package_does_not_load_the_oracle():
    code = (
        "import sys, privinf.accounting\n"
        "print([m for m in ('dp_accounting', 'opendp', 'matplotlib', 'arviz', 'xarray') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def in_year(ledger, year, make_entry, mu):
    lines = ledger.scope(year, disjoint="year").spend(make_entry(GaussianLoss(mu)))
    return PrivacyReport.from_entries(lines, ledger)


def test_only_scopes_of_one_ledger_compose_in_parallel(make_entry):
    one, other = Ledger(), Ledger()
    first = in_year(one, "2020", make_entry, 0.3)
    second = in_year(one, "2021", make_entry, 0.4)
    foreign = in_year(other, "2021", make_entry, 0.4)
    assert joint_report([first, second]).mu == pytest.approx(0.4)
    assert joint_report([second, first, second]).mu == pytest.approx(0.4)
    for reports in ([first, foreign], [foreign, first], [first, second, foreign]):
        most = max(report.mu for report in reports if report is not foreign)
        assert joint_report(reports).mu == pytest.approx(np.hypot(most, 0.4))
    saved = [PrivacyReport.from_dict(report.to_dict()) for report in (first, second, foreign)]
    assert joint_report(saved).mu == pytest.approx(np.hypot(0.4, 0.4))


def test_releases_of_another_ledger_are_no_disjoint_part(make_entry):
    one, other = Ledger(), Ledger()
    (earlier,) = other.scope("2020", disjoint="year").spend(make_entry(GaussianLoss(0.4)))
    lines = one.scope("2021", disjoint="year").spend(
        make_entry(GaussianLoss(0.2)), make_entry(GaussianLoss(0.2))
    )
    report = PrivacyReport.from_entries((earlier, *lines), one)
    together = np.sqrt(0.4**2 + 2 * 0.2**2)
    for read in (report, PrivacyReport.from_dict(report.to_dict())):
        assert read.mu == pytest.approx(together)
        assert read.cumulative.mu == pytest.approx(together)
        assert joint_report([read]).mu == pytest.approx(together)
    # The other ledger is known from another report, and its scopes are disjoint there.
    known = in_year(other, "2022", make_entry, 0.3)
    assert joint_report([report, known]).mu == pytest.approx(together)
    assert joint_report([known, report]).mu == pytest.approx(together)


def test_parties_with_ledgers_of_their_own_are_no_disjoint_parts(make_entry):
    """Each party has a ledger, in which it names groups of the same people as it likes."""
    lines = []
    for name, year in (("clinic", "2020"), ("registry", "2021")):
        lines += Ledger().scope(year, disjoint="year").spend(make_entry(GaussianLoss(0.3), party=name))
    together = PrivacyReport.from_entries(lines)
    assert together.mu == pytest.approx(np.hypot(0.3, 0.3))
    assert joint_report([together, together]).mu == pytest.approx(np.hypot(0.3, 0.3))
    own = Ledger()
    own.spend(make_entry(GaussianLoss(0.3)))
    for report in (PrivacyReport.from_entries(lines, own), PrivacyReport.from_entries(lines, own).cumulative):
        assert report.mu == pytest.approx(0.3 * np.sqrt(len(report.entries)))


def test_the_report_of_a_party_knows_which_releases_were_charged_elsewhere(make_entry):
    one, other = Ledger(), Ledger()
    lines = one.scope("2020", disjoint="year").spend(make_entry(GaussianLoss(0.3), party="clinic"))
    lines += other.scope("2021", disjoint="year").spend(make_entry(GaussianLoss(0.3), party="clinic"))
    report = PrivacyReport.from_entries(lines, one)
    assert report.party("clinic").elsewhere == 1
    assert report.party("clinic").mu == pytest.approx(report.mu) == pytest.approx(np.hypot(0.3, 0.3))
    assert report.parties.loc["clinic", "mu"] == pytest.approx(report.mu)
