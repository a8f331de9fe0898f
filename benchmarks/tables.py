"""What the long benchmarks share: limits, replications on two processes, checkpoints, tables in Markdown."""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from types import ModuleType

import pandas as pd

from studies.simulation import binomial_limits, replicate

RESULTS = Path(__file__).parent / "results"
TESTS = Path(__file__).resolve().parents[1] / "tests"

# Name of a cell, number of its draw, fits of that draw.
Job = tuple[str, int, int]


def limits(p: float, n: int, cells: int) -> tuple[float, float]:
    """Return 99% binomial limits of a share, jointly over `cells` cells."""
    return binomial_limits(p, n, 1.0 - 0.01 / cells)


def monte_carlo(
    function: Callable[..., dict], replications: int, seed: int, label: str, *, progress: bool = True
) -> pd.DataFrame:
    """Return one row per replication, on two processes."""
    print(f"{label}: {replications} replications", flush=True)
    return replicate(function, replications, seed, processes=2, progress=progress)


def checkpointed(path: Path, jobs: Sequence[Job], function: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    """Run jobs that are not yet stored on two processes, store each when it ends, and return all stored.

    A job that fails stops nothing: the others are stored first, then its error is raised.
    """
    stored = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["cell", "draw"])
    have = stored.groupby(["cell", "draw"]).size()
    left = [job for job in jobs if have.get(job[:2], 0) < job[2]]
    if not left:
        return stored
    print(f"{path.name}: {len(left)} of {len(jobs)} draws to do", flush=True)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(function, *job): job for job in left}
        failed = []
        for done in as_completed(running):
            cell, draw, _ = running[done]
            if done.exception():
                failed.append(done)
                continue
            stored = stored[(stored["cell"] != cell) | (stored["draw"] != draw)]
            stored = pd.concat([stored, done.result()] if len(stored) else [done.result()])
            stored = stored.sort_values(["cell", "draw", "replication"])
            path.parent.mkdir(exist_ok=True)
            stored.to_csv(path, index=False, float_format="%.7g")
            print(f"{time.strftime('%H:%M:%S')} {cell} {draw}: {len(stored)} fits stored", flush=True)
    for done in failed:
        done.result()
    return pd.read_csv(path)


def load(path: Path, name: str) -> ModuleType:
    """Return a file of this project as a module; tests find `support` beside them."""
    if TESTS in path.resolve().parents and str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def cell(value: object) -> str:
    """Return a number with four significant digits, anything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_table(
    path: Path,
    title: str,
    command: str,
    rows: Sequence[dict] | pd.DataFrame,
    seconds: float,
    note: str = "",
    *,
    growing: bool = False,
) -> None:
    """Write one table with the command that made it and the seconds that it took, and print it.

    Of a `growing` table, written anew after each row, only the last row is printed.
    """
    path.parent.mkdir(exist_ok=True)
    table = pd.DataFrame(rows)
    lines = [f"# {title}", "", f"Made by `python {command}` in {seconds:.0f} s.", ""]
    if note:
        lines += [note, ""]
    header = "| " + " | ".join(table.columns) + " |"
    rule = "|" + "---|" * len(table.columns)
    body = ["| " + " | ".join(cell(v) for v in row) + " |" for row in table.itertuples(index=False)]
    path.write_text("\n".join([*lines, header, rule, *body]) + "\n")
    print("\n".join([f"\n{title}", header, rule, *body[-1 if growing else 0 :]]), flush=True)
