"""Files of three clinics, and the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from privinf.accounting import Budget
from privinf.accounting.files import LedgerFile
from privinf.cli import main

PEOPLE = 3000
SECRET = "4242424242"


@dataclass
class Study:
    """A folder with the files of a study, and what one types there."""

    folder: Path
    run: Callable[..., Any]

    def plan(self, *extra: str, out: str = "plan.json") -> Any:
        columns = ["a:sex:f|m", "a:age:18:90", "b:bmi:15:60", "c:glucose:50:250"]
        options = [text for column in columns for text in ("--column", column)]
        budget = ["--epsilon", "40", "--delta", "1e-6"]
        return self.run("plan", "new", *options, *budget, "--id", "patient", "--out", out, *extra)

    def release(self, party: str, data: str, *extra: str, plan: str = "plan.json", out: str = "") -> Any:
        where = ["--plan", plan, "--party", party, "--data", data, "--out", out or f"{party}.npz"]
        account = [] if "--ledger" in extra else ["--ledger", f"{party}.free"]
        return self.run("release", *where, *account, *extra)

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    def refused(self, result: Any, *words: str) -> None:
        """Check a refusal: code 2, one line that says these words, no traceback, no value of a row."""
        assert result.exit_code == 2, result.output
        assert isinstance(result.exception, SystemExit)
        for word in words:
            assert word in " ".join(result.output.split()), result.output
        assert "Traceback" not in result.output
        assert SECRET not in result.output


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    people = pd.DataFrame({"patient": rng.permutation(np.arange(1000, 1000 + PEOPLE))})
    age, bmi = rng.uniform(20, 85, PEOPLE), 15 + 45 * rng.beta(2, 4, PEOPLE)
    glucose = 70 + 0.5 * age + 1.5 * bmi + rng.normal(0, 5, PEOPLE)
    people.assign(age=age, sex=rng.choice(["f", "m"], PEOPLE)).to_csv("a.csv", index=False)
    people.assign(patient=people["patient"].astype(str), bmi=bmi).iloc[::-1].to_parquet("b.parquet")
    people.assign(glucose=glucose).sort_values("patient").to_parquet("c.parquet")
    people.to_csv("ids.csv", index=False)

    for party in "abcd":  # limits that no test reaches
        LedgerFile.create(f"{party}.free", Budget(mu=1e3))
    LedgerFile.create("a.ledger", Budget(epsilon=50.0, delta=1e-6))

    def run(*words: str) -> Any:
        return CliRunner().invoke(main, list(words), prog_name="privinf")

    return Study(tmp_path, run)


@pytest.fixture
def planned(study):
    assert study.plan("--roster", "ids.csv", "--seed", "3").exit_code == 0
    return study


@pytest.fixture
def released(planned):
    for party, data in (("a", "a.csv"), ("b", "b.parquet"), ("c", "c.parquet")):
        assert planned.release(party, data, "--quiet").exit_code == 0
    return planned
