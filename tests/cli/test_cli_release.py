"""``privinf release``: rows to a file, the ledger charged in between, and every refusal free of charge."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import Budget
from privinf.accounting.files import LedgerFile
from privinf.cli import pending
from privinf.cli import releases as releasing

SECRET = "4242424242"  # as in the fixture
LEDGER = ["--ledger", "a.ledger"]  # epsilon 50


def test_a_release_its_privacy_line_and_its_ledger(planned):
    result = planned.release("a", "a.csv", *LEDGER)
    assert result.exit_code == 0, result.output
    release, plan = pi.load_release("a.npz"), pi.MixingPlan.load("plan.json")
    assert (release.nobs, release.secure, release.noise_model["plan"]) == (3000, True, plan.digest)
    assert release.noise_model["ids_sha256"] == plan.ids_sha256
    assert "by the release of party a: epsilon 40 at delta 1e-06" in result.output
    assert f"epsilon {plan.check().epsilon:.4g}" in result.output
    assert "ledger a.ledger: 1 fit spent epsilon 40 of 50 at delta 1e-06" in result.output
    assert LedgerFile("a.ledger").entries == release.entries
    assert LedgerFile("a.ledger").budget == Budget(epsilon=50.0, delta=1e-6)


def test_the_file_does_not_depend_on_order_or_format_of_the_rows(planned):
    frame = pd.read_csv("a.csv")
    frame.sort_values("patient").to_parquet("sorted.parquet")
    for name in ("a.csv", "sorted.parquet"):
        assert planned.release("a", name, "--seed", "1", out=f"{name}.npz").exit_code == 0
    first, second = pi.load_release("a.csv.npz"), pi.load_release("sorted.parquet.npz")
    np.testing.assert_array_equal(first.arrays["rows"], second.arrays["rows"])
    np.testing.assert_array_equal(first.arrays["ones_row"], second.arrays["ones_row"])
    by_hand = pi.MixingPlan.load("plan.json").release("a", frame.sort_values("patient"), rng=1)
    np.testing.assert_array_equal(first.arrays["rows"], by_hand.arrays["rows"])
    assert not first.secure


def test_simulation_noise_is_stamped_and_quiet_is_quiet(planned):
    assert "SIMULATION NOISE: NOT PRIVATE" in planned.release("a", "a.csv", "--seed", "1").output
    result = planned.release("a", "a.csv", "--quiet", "--overwrite", *LEDGER)
    assert (result.exit_code, result.output) == (0, "")
    assert pi.load_release("a.npz").secure


def test_without_a_ledger_nothing_is_released(planned):
    before = planned.files()
    words = ("release", "--plan", "plan.json", "--party", "b", "--data", "b.parquet", "--out", "b.npz")
    planned.refused(planned.run(*words), "privinf ledger create study.ledger --epsilon ... --delta ...")
    planned.refused(planned.run(*words, "--ledger", "new"), "'privinf ledger create new --epsilon")
    assert planned.files() == before


def test_a_second_release_needs_the_budget(planned):
    assert planned.release("a", "a.csv", *LEDGER).exit_code == 0
    before, content = planned.files(), (planned.folder / "a.ledger").read_bytes()
    result = planned.release("a", "a.csv", "--ledger", "a.ledger", out="again.npz")
    planned.refused(result, "would exceed the limit", "nothing was recorded or released")
    assert planned.files() == before
    assert (planned.folder / "a.ledger").read_bytes() == content


def test_missing_values_are_refused_or_imputed_on_demand(planned):
    frame = pd.read_csv("a.csv")
    frame.loc[7, "age"] = np.nan
    frame.to_csv("gaps.csv", index=False)
    planned.refused(planned.release("a", "gaps.csv", *LEDGER), "column 'age' has missing values")
    assert len(LedgerFile("a.ledger")) == 0
    assert planned.release("a", "gaps.csv", "--missing", "impute-public").exit_code == 0


def spoiled(frame: pd.DataFrame, how: str) -> pd.DataFrame:
    """Return rows of clinic a with one mistake."""
    if how == "twice":
        return pd.concat([frame.iloc[:-1], frame.iloc[:1]])
    if how == "one missing":
        return frame.iloc[1:]
    if how == "one too many":
        return pd.concat([frame, frame.iloc[:1].assign(patient=int(SECRET))])
    if how == "another person":
        return frame.assign(patient=frame["patient"].replace(1000, int(SECRET)))
    if how == "no id":
        return frame.assign(patient=frame["patient"].astype(object).where(frame.index > 0, None))
    if how == "a column too few":
        return frame.drop(columns="age")
    if how == "text for a number":
        return frame.assign(age=frame["age"].astype(object).where(frame.index > 0, f"x{SECRET}"))
    if how == "unknown level":
        return frame.assign(sex=frame["sex"].where(frame.index > 0, SECRET))
    return frame.drop(columns="patient")


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ("twice", "1 row(s) repeat the id"),
        ("one missing", "2999 rows, but n=3000"),
        ("one too many", "3001 rows, but n=3000"),
        ("another person", "are not the ids of the plan"),
        ("no id", "missing values"),
        ("a column too few", "lacks the column 'age'"),
        ("text for a number", "column 'age' must hold numbers"),
        ("unknown level", "column 'sex' has values outside its declared levels"),
        ("no id column", "lacks the column 'patient'"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_wrong_rows_cost_nothing(how, word, ending, planned):
    bad = spoiled(pd.read_csv("a.csv"), how)
    if ending == "csv":
        bad.to_csv("bad.csv", index=False)
    else:
        mixed = {name: "string" for name in ("patient", "age") if name in bad and bad[name].dtype == object}
        bad.astype(mixed).to_parquet("bad.parquet")
    before = planned.files()
    planned.refused(planned.release("a", f"bad.{ending}", *LEDGER), word)
    assert planned.files() == before


def test_a_roster_tells_how_many_are_missing(planned):
    pd.read_csv("a.csv").iloc[5:].to_csv("bad.csv", index=False)
    result = planned.release("a", "bad.csv", "--roster", "ids.csv", *LEDGER)
    planned.refused(result, "5 of the roster's ids are missing")


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        (["--party", "d"], "no party 'd'"),
        (["--party", "b"], "lacks the column 'bmi'"),
        (["--data", "missing.csv"], "no such file"),
        (["--data", "plan.json"], "ends in .csv"),
        (["--plan", "a.csv"], "not valid JSON"),
        (["--ledger", "small.ledger"], "would exceed the limit"),
        (["--ledger", "a.csv"], "a.csv is damaged, or is not a ledger as 'privinf ledger create'"),
        (
            ["--ledger", "plan.json"],
            "plan.json is damaged, or is not a ledger as 'privinf ledger create'",
        ),
        (["--seed", "-1"], "nonnegative integer seed"),
        (["--out", "missing/a.npz"], "does not exist"),
        (["--out", "a.csv"], "--overwrite"),
        (["--out", "."], "directory"),
    ],
)
def test_wrong_options_cost_nothing(extra, word, planned):
    LedgerFile.create("small.ledger", Budget(epsilon=39.0, delta=1e-6))
    before = planned.files()
    planned.refused(planned.release("a", "a.csv", *extra), word)
    assert planned.files() == before


def test_a_plan_without_noise_is_no_release(study):
    assert study.plan("--n", "3000", "--k", "50", "--party-epsilon", "a=inf").exit_code == 0
    study.refused(study.release("a", "a.csv", *LEDGER), "epsilon=inf")
    assert len(LedgerFile("a.ledger")) == 0


def test_without_id_in_the_plan_the_order_counts(study):
    base = ["--column", "a:age:18:90", "--column", "b:bmi:15:60", "--epsilon", "1", "--delta", "1e-6"]
    assert study.run("plan", "new", *base, "--n", "3000", "--out", "plan.json").exit_code == 0
    assert study.release("a", "a.csv").exit_code == 0
    assert pi.load_release("a.npz").noise_model["ids_sha256"] == ""
    study.refused(study.release("b", "b.parquet", "--roster", "ids.csv"), "has no id column")


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program cleans up after it."""


STEPS = ("pending made", "pending on disk", "charged", "in its place")


def kill_at(monkeypatch, step):
    """Let the next release end at a step, as by a kill: no handler runs, locks are lost."""
    spend, place = LedgerFile.spend, pending._place

    def dying(*_, **__):
        raise Killed

    def then_dying(action):
        def done(*args, **options):
            action(*args, **options)
            raise Killed

        return done

    match step:
        case "pending made":
            monkeypatch.setattr(pending.os, "fsync", dying)
        case "pending on disk":
            monkeypatch.setattr(LedgerFile, "spend", dying, raising=False)
        case "charged":
            monkeypatch.setattr(LedgerFile, "spend", then_dying(spend), raising=False)
        case "in its place":
            monkeypatch.setattr(pending, "_place", then_dying(place))


def hidden(study):
    return [name for name in study.files() if name.endswith(".pending")]


@pytest.mark.parametrize("step", STEPS)
def test_a_release_goes_on_where_it_was_killed(planned, step):
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, step)
        with pytest.raises(Killed):
            planned.release("a", "a.csv", *LEDGER)
    (left,) = hidden(planned)
    assert (planned.folder / left).stat().st_mode & 0o777 == 0o600
    assert ("a.npz" in planned.files()) == (step == "in its place")
    known = pi.load_release("a.npz") if step == "in its place" else None
    result = planned.release("a", "a.csv", *LEDGER)
    assert result.exit_code == 0, result.output
    assert ("nothing was charged again" in result.output) == (step in ("charged", "in its place"))
    assert hidden(planned) == []
    release = pi.load_release("a.npz")
    assert LedgerFile("a.ledger").entries == release.entries
    assert len(release.entries) == 1
    assert known is None or known.entries == release.entries
    again = planned.release("a", "a.csv", *LEDGER)
    assert (again.exit_code, "already charged and written" in again.output) == (0, True)
    assert len(LedgerFile("a.ledger")) == 1


@pytest.mark.audit
def test_kills_at_random_instants():
    script = Path(__file__).parents[2] / "benchmarks" / "release_kills.py"
    ended = subprocess.run(
        [sys.executable, script, "--kills", "8"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| charged twice | 0 | 0 |" in ended.stdout


def test_a_pending_file_that_was_never_charged_cannot_be_read(planned):
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, "pending on disk")
        with pytest.raises(Killed):
            planned.release("a", "a.csv", *LEDGER)
    (left,) = hidden(planned)
    content = (planned.folder / left).read_bytes()
    assert b"manifest" not in content
    assert b"npy" not in content
    (planned.folder / "stolen.npz").write_bytes(content)
    with pytest.raises(pi.errors.StorageError):
        pi.load_release("stolen.npz")


def test_what_was_begun_by_other_arguments_is_not_taken_for_this(planned):
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, "charged")
        with pytest.raises(Killed):
            planned.release("a", "a.csv", *LEDGER)
    planned.refused(planned.release("a", "a.csv", "--seed", "1", *LEDGER), "with other arguments")
    # another ledger neither finishes nor deletes it
    assert planned.release("a", "a.csv", out="b.npz").exit_code == 0
    assert planned.release("a", "a.csv", *LEDGER).exit_code == 0
    assert len(LedgerFile("a.ledger")) == 1


def test_two_commands_to_one_file_do_not_take_each_others_pending_file(planned):
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, "pending on disk")
        with pytest.raises(Killed):
            planned.release("a", "a.csv", *LEDGER)
    (left,) = hidden(planned)
    with open(planned.folder / left, "rb") as stream:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX)
        planned.refused(planned.release("a", "a.csv", *LEDGER), "another process is writing")
    assert hidden(planned) == [left]


@pytest.mark.audit
def test_a_full_disk_charges_nothing(planned):
    run = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14)); "
    run += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    run += "from privinf.cli import main; main(sys.argv[1:])"
    words = ["release", "--plan", "plan.json", "--party", "a", "--data", "a.csv", "--out", "a.npz", *LEDGER]
    ended = subprocess.run([sys.executable, "-c", run, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "File too large" in ended.stderr
    assert "Nothing was charged" in ended.stderr
    assert "a.npz" not in planned.files()
    assert len(LedgerFile("a.ledger")) == 0
    assert hidden(planned) == []


def test_a_disk_that_fills_after_the_charge_is_waited_for(planned, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pending, "_place", full)
        planned.refused(planned.release("a", "a.csv", *LEDGER), "No space left", "without a second charge")
    assert "a.npz" not in planned.files()
    assert planned.release("a", "a.csv", *LEDGER).exit_code == 0
    assert len(LedgerFile("a.ledger")) == 1
    assert pi.load_release("a.npz").entries == LedgerFile("a.ledger").entries


def test_our_own_mistakes_show_no_text(planned, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError(f"about {SECRET}")

    monkeypatch.setattr(releasing, "open_table", broken)
    result = planned.release("a", "a.csv")
    assert result.exit_code == 1
    assert "RuntimeError at test_cli_release.py:" in result.output
    assert SECRET not in result.output


@pytest.mark.audit
def test_of_two_releases_started_together_one_is_refused(planned):
    def start(out: str) -> subprocess.Popen[str]:
        where = ["--plan", "plan.json", "--party", "a", "--data", "a.csv", "--out", out]
        command = [sys.executable, "-m", "privinf", "release", *where, *LEDGER]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    ended = []
    for process in [start("one.npz"), start("two.npz")]:
        out, err = process.communicate(timeout=600)
        ended.append((process.returncode, out, err))
    (won, lost) = sorted(ended)
    assert (won[0], lost[0]) == (0, 2)
    assert "release of party a" in won[1]
    assert (lost[1], lost[2].count("\n")) == ("", 1)
    assert lost[2].startswith("Error: ")
    assert "would exceed the limit" in lost[2]
    assert len({"one.npz", "two.npz"} & planned.files()) == 1
    assert len(LedgerFile("a.ledger")) == 1
    assert not [name for name in planned.files() if name.endswith(".tmp")]
