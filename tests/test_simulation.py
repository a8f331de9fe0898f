"""The Monte Carlo harness: seeds, processes, limits."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import binom

from privinf.errors import ArgumentError
from studies.simulation import Workers, binomial_limits, rates, replicate


def interval_of_a_mean(seed):
    x = np.random.default_rng(seed).standard_normal(50)
    half = 1.959964 / np.sqrt(50)
    return {"mean": x.mean(), "hit": abs(x.mean()) < half, "never": False}


def test_every_replication_has_its_own_reproducible_seed():
    frame = replicate(interval_of_a_mean, 20, seed=3, progress=False)
    assert frame["mean"].nunique() == 20
    assert frame.equals(replicate(interval_of_a_mean, 20, seed=3, progress=False))
    assert not frame.equals(replicate(interval_of_a_mean, 20, seed=4, progress=False))
    # a longer run begins with the shorter one
    assert replicate(interval_of_a_mean, 30, seed=3, progress=False).iloc[:20].equals(frame)


def process_of(seed):
    return {"process": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"]}


def refused(seed):
    raise KeyError("a study's own error")


@pytest.fixture(scope="module")
def workers():
    with Workers(2) as started:
        yield started


@pytest.mark.audit
def test_any_number_of_processes_gives_the_same_rows(workers):
    one = replicate(interval_of_a_mean, 50, seed=5, progress=False)
    for processes in (workers, workers, 1, 3):
        assert one.equals(replicate(interval_of_a_mean, 50, seed=5, progress=False, processes=processes))
    with pytest.raises(ArgumentError):
        replicate(interval_of_a_mean, 9, seed=5, progress=False, processes=0)
    with pytest.raises(ArgumentError):
        Workers(1000)


@pytest.mark.audit
def test_workers_are_started_once_and_have_one_thread(workers, monkeypatch):
    before = dict(os.environ)
    runs = [replicate(process_of, 64, seed=0, progress=False, processes=workers) for _ in range(2)]
    assert set(runs[0]["process"]) | set(runs[1]["process"]) <= set(workers._pool._processes)
    assert len(workers._pool._processes) == 2
    assert os.getpid() not in set(runs[0]["process"])
    assert {thread for run in runs for thread in run["threads"]} == {"1"}
    assert dict(os.environ) == before
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(workers)


@pytest.mark.audit
def test_what_cannot_be_imported_is_refused_and_errors_are_the_study_s_own(workers):
    with pytest.raises(ArgumentError, match="must be a module's function"):
        replicate(lambda seed: {}, 3, seed=0, progress=False, processes=workers)
    with pytest.raises(KeyError, match="own error"):
        replicate(refused, 3, seed=0, progress=False, processes=workers)
    assert len(replicate(process_of, 3, seed=0, progress=False, processes=workers)) == 3


@pytest.mark.audit
def test_a_script_without_a_guard_is_told_so(tmp_path):
    script = tmp_path / "study.py"
    script.write_text(
        "from studies.simulation import replicate\n"
        "def one(seed): return {}\n"
        "replicate(one, 4, seed=0, progress=False, processes=2)\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    told = "privinf.errors.ArgumentError: a worker process"  # Python may warn of its own after it
    assert any(line.startswith(told) for line in run.stderr.splitlines())


def test_a_right_interval_is_inside_and_a_wrong_one_outside():
    frame = replicate(interval_of_a_mean, 2000, seed=1, progress=False)
    low, high = binomial_limits(0.95, 2000, 0.999)
    assert low <= frame["hit"].mean() <= high
    low, high = binomial_limits(0.92, 2000, 0.999)
    assert not low <= frame["hit"].mean() <= high


@pytest.mark.parametrize(("p", "n"), [(0.95, 500), (0.05, 10_000), (0.5, 7), (0.0, 10), (1.0, 10)])
def test_limits_hold_the_level_and_no_narrower_ones_do(p, n):
    low, high = (round(v * n) for v in binomial_limits(p, n, 0.99))
    inside = binom.cdf(high, n, p) - binom.cdf(low - 1, n, p)
    assert inside >= 0.99 - 1e-12
    if 0.0 < p < 1.0:
        # one step in from either end leaves more than the tail outside
        assert binom.cdf(low, n, p) > 0.005
        assert binom.sf(high - 1, n, p) > 0.005


def test_rates_have_clopper_pearson_intervals():
    frame = replicate(interval_of_a_mean, 400, seed=2, progress=False)
    table = rates(frame, ["hit", "never"], level=0.95)
    hits = int(frame["hit"].sum())
    low, high = table.loc["hit", ["low", "high"]]
    assert binom.sf(hits - 1, 400, low) == pytest.approx(0.025)
    assert binom.cdf(hits, 400, high) == pytest.approx(0.025)
    assert table.loc["never", ["rate", "low"]].tolist() == [0.0, 0.0]
    assert table.loc["never", "high"] == pytest.approx(1 - 0.025 ** (1 / 400))
    assert rates(frame.assign(hit=np.nan), ["hit"])["rate"].isna().all()


@pytest.mark.audit
@pytest.mark.parametrize("arguments", [(1.2, 10, 0.9), (0.5, 0, 0.9), (0.5, 10, 1.0)])
def test_bad_limits_are_refused(arguments):
    with pytest.raises(ArgumentError):
        binomial_limits(*arguments)
