"""``privinf survival``: curves and a log-rank test of a table of rows, from one charge."""

from __future__ import annotations

import html
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import privinf as pi
from privinf.cli import main

SCHEMA = """
[columns.months]
low = 0
high = 60

[columns.state]
levels = ["alive", "dead"]

[columns.arm]
levels = ["control", "treated"]
"""
BUDGET = ("--epsilon", "1", "--delta", "1e-6")


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """Return a function that runs the command on a trial's table."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    arm = rng.choice(["control", "treated"], 3000)
    death = rng.exponential(np.where(arm == "treated", 40.0, 25.0))
    leaves = rng.uniform(12.0, 90.0, 3000)
    rows = {
        "months": np.minimum(death, leaves),
        "state": np.where(death <= leaves, "dead", "alive"),
        "arm": arm,
    }
    pd.DataFrame(rows).to_csv("trial.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    pi.LedgerFile.create(tmp_path / "study.ledger", pi.Budget(epsilon=2.0, delta=1e-6))

    def run(*words):
        words = ("survival", "months", "state", "trial.csv", "--schema", "schema.toml", *words)
        words += () if "--event" in words else ("--event", "dead")
        return CliRunner().invoke(main, words)

    return run


def test_one_release_serves_curves_and_a_test(trial, tmp_path):
    files = ("--out", "c.npz", "--json", "c.json", "--summary", "c.html")
    result = trial(
        "--by",
        "arm",
        "--at",
        "12",
        "--at",
        "24",
        *BUDGET,
        "--ledger",
        "study.ledger",
        "--name",
        "figure",
        *files,
    )
    assert result.exit_code == 0, result.output
    for text in ("control: median", "hazard ratio, treated to control", "24.0", "written: c.npz"):
        assert text in result.output
    assert "1 fit spent epsilon 1 of 2" in result.output
    ledger = pi.LedgerFile(tmp_path / "study.ledger")
    assert len(ledger) == 1
    saved = pi.survival.SurvivalResult.load("c.npz")
    assert saved.summary().as_text() in result.output
    assert len(json.loads((tmp_path / "c.json").read_text())["estimates"]) == 128
    assert "Log-Rank Test" in (tmp_path / "c.html").read_text()


def test_the_command_is_the_model(trial):
    result = trial("--seed", "3", *BUDGET, "--grid", "30", "--horizon", "48", "--alpha", "0.1")
    schema = pi.Schema({"months": (0, 60), "state": ["alive", "dead"]})
    words = {"event": "dead", "data": "trial.csv", "schema": schema}
    model = pi.survival.KaplanMeier("months", "state", **words, grid=30, horizon=48)
    expected = model.fit(epsilon=1.0, delta=1e-6, rng=3, confidence_level=0.9)
    assert expected.summary().as_text() in result.output
    assert "without --ledger" in result.output
    whole = trial("--seed", "3", *BUDGET, "--grid", "60", "--every-time", "--quiet", "--out", "w.npz")
    assert whole.exit_code == 0
    assert whole.output == ""
    assert pi.survival.SurvivalResult.load("w.npz").release.discrete


def test_every_time_needs_the_number_of_times(trial):
    """The default of 64 intervals would put events of whole months at times that are none."""
    refused = trial("--seed", "3", *BUDGET, "--every-time")
    assert refused.exit_code != 0
    assert "pass --grid 60" in " ".join(refused.output.split())


def test_a_plot_is_written(trial, tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    assert trial("--by", "arm", *BUDGET, "--plot", "c.png").exit_code == 0
    assert (tmp_path / "c.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--weights", "gehan"), "--by"),
        (("--plot", "c.gif"), ".png"),
        (("--summary", "c.doc"), ".html"),
        (("--out", "c.csv"), ".npz"),
        (("--name", "figure"), "--ledger"),
        (("--at", "70"), "--at"),
        (("--horizon", "90"), "horizon"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_charge(trial, tmp_path, words, text):
    ledger = () if "--name" in words else ("--ledger", "study.ledger")
    result = trial(*BUDGET, *ledger, *words)
    assert result.exit_code == 2
    assert text in result.output
    assert len(pi.LedgerFile(tmp_path / "study.ledger")) == 0


def test_saved_curves_become_a_page(trial, tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    assert trial("--by", "arm", *BUDGET, "--out", "c.npz").exit_code == 0
    done = CliRunner().invoke(main, ("report", "c.npz", "--html", "c.html"))
    assert done.exit_code == 0, done.output
    page = (tmp_path / "c.html").read_text()
    assert "control: median" in page
    assert "Trade-off curve" in page
    pi.survival.SurvivalResult.load("c.npz").logrank().save("test.npz")
    assert CliRunner().invoke(main, ("report", "test.npz", "--html", "t.html")).exit_code == 0
    assert "Log-Rank Test" in (tmp_path / "t.html").read_text()
    stated = CliRunner().invoke(main, ("report", "c.npz", "--statement"))
    assert stated.exit_code == 0, stated.output
    assert "-differential privacy for replacing one record" in stated.output
    assert " ".join(stated.output.split()) in html.unescape(" ".join(page.split()))
    neither = CliRunner().invoke(main, ("report", "c.npz"))
    assert neither.exit_code == 2
    assert "pass --html with the file to write, or --statement" in neither.output
    refused = CliRunner().invoke(main, ("report", "c.npz", "--html", "d.html", "--alpha", "0.1"))
    assert refused.exit_code == 2
    assert "has its own confidence level" in refused.output
