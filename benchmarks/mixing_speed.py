"""Speed and memory of the three mixing matrices: ``python benchmarks/mixing_speed.py`` (about three minutes).

Times are the best of several repetitions, all methods in turn, one thread, blocks of 65,536 records held in
memory; random bits included. Peak memory is that of a fresh process that makes the records and mixes them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from privinf.mechanisms.mixing.matrix import MixingMatrix

TARGET = Path(__file__).parent / "results" / "mixing_speed.md"
KINDS = ("signs", "hadamard", "countsketch")
N, WIDTH, K, BLOCK = 3_000_000, 11, 500, 2**16
OTHER_K = (100, 2000, 10_000)
AGAINST_DENSE = {"countsketch": 8.0, "hadamard": 3.0}
AGAINST_NAIVE = {"countsketch": 40.0, "hadamard": 10.0}
MOST_MEGABYTES = 500.0

HEAD = """# Mixing: time and memory of the three kinds

Made by `python benchmarks/mixing_speed.py`: n = {n:,} records, p = {p} columns of integers, blocks of {block:,}
records, one thread; best of {repetitions} (naive: one run). "naive" is `rng.choice([-1.0, 1.0], (k, m)) @ block`;
"signs" is our dense matrix: bits from Philox words, unpacked a cache at a time, one matrix product.
"peak" is the largest resident memory of a fresh process, its {data:.0f} MB of records and the imports included.

"""


def records(n: int = N) -> np.ndarray:
    """Return made-up records on an integer grid, shape (n, WIDTH)."""
    rng, data = np.random.default_rng(0), np.empty((n, WIDTH))
    for start in range(0, n, BLOCK):
        part = data[start : start + BLOCK]
        part[:] = rng.integers(-(2**20), 2**20, size=part.shape)
    return data


def mix(kind: str, data: np.ndarray, k: int, order: np.ndarray | None = None) -> np.ndarray:
    """Return the mixed rows, unscaled."""
    mixer = MixingMatrix(kind, n=len(data), k=k, seed=0).mixer(WIDTH)
    for start in range(0, len(data), BLOCK):
        if order is None:
            mixer.update(data[start : start + BLOCK], start)
        else:
            mixer.update(data[start : start + BLOCK], order[start : start + BLOCK])
    return mixer.total()


def naive(data: np.ndarray, k: int, size: int = 4096) -> np.ndarray:
    """Return rows mixed as one writes it first."""
    rng, total = np.random.default_rng(0), np.zeros((k, WIDTH))
    for start in range(0, len(data), size):
        block = data[start : start + size]
        total += rng.choice([-1.0, 1.0], size=(k, len(block))) @ block
    return total


def best(functions: dict, repetitions: int) -> dict[str, float]:
    """Return the shortest wall time of each function, run in turn."""
    times = dict.fromkeys(functions, float("inf"))
    for _ in range(repetitions):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def kinds(data: np.ndarray, k: int, order: np.ndarray | None = None) -> dict:
    """Return one function a kind."""
    return {kind: (lambda kind=kind: mix(kind, data, k, order)) for kind in KINDS}


def peak_megabytes(kind: str) -> float:
    """Return the peak resident memory of a process that makes the records and mixes them.

    To be called while this process is small: on Linux a child's peak starts at its parent's size.
    """
    command = [sys.executable, __file__, "--peak", kind]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main_table(data: np.ndarray, peaks: dict[str, float], repetitions: int) -> tuple[list[str], int]:
    """Return the table at k = 500 with its targets, and how many targets are missed."""
    times = best(kinds(data, K), repetitions) | best({"naive": lambda: naive(data, K)}, 1)
    lines = [f"## k = {K}, records in order", ""]
    lines += [
        "| kind | seconds | against signs | target | against naive | target | peak, MB | target | verdict |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    missed = 0
    for kind in (*KINDS, "naive"):
        dense, slow = times["signs"] / times[kind], times["naive"] / times[kind]
        cells = [kind, f"{times[kind]:.3f}", f"{dense:.1f}", "", f"{slow:.1f}", "", "", "", ""]
        if kind != "naive":
            peak = peaks[kind]
            low, naive_low = AGAINST_DENSE.get(kind, 0.0), AGAINST_NAIVE.get(kind, 0.0)
            met = dense >= low and slow >= naive_low and peak < MOST_MEGABYTES
            missed += not met
            wanted = [f">= {value:g}" if value else "" for value in (low, naive_low)]
            cells[3], cells[5], cells[6] = wanted[0], wanted[1], f"{peak:.0f}"
            cells[7], cells[8] = f"< {MOST_MEGABYTES:.0f}", "met" if met else "MISSED"
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""], missed


def other_tables(data: np.ndarray) -> list[str]:
    """Return times at other k, and for records in random order."""
    lines = ["## Other k, and records in random order (seconds)", ""]
    lines += ["| k | order | " + " | ".join(KINDS) + " |", "|---|---|" + "---|" * len(KINDS)]
    shuffled = np.random.default_rng(1).permutation(len(data))
    for k, order in [(k, None) for k in OTHER_K] + [(K, shuffled)]:
        times = best(kinds(data, k, order), 2)
        word = "as planned" if order is None else "random"
        lines.append(f"| {k:,} | {word} | " + " | ".join(f"{times[kind]:.3f}" for kind in KINDS) + " |")
        print(lines[-1], flush=True)
    return lines


def main(repetitions: int = 5) -> int:
    """Measure everything and write the report; return the number of missed targets."""
    peaks = {kind: peak_megabytes(kind) for kind in KINDS}
    data = records()
    lines, missed = main_table(data, peaks, repetitions)
    print("\n".join(lines), flush=True)
    lines += other_tables(data)
    head = HEAD.format(n=N, p=WIDTH, block=BLOCK, repetitions=repetitions, data=data.nbytes / 1e6)
    TARGET.write_text(head + "\n".join(lines) + "\n")
    return missed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        mix(sys.argv[2], records(), K)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
        sys.exit(0)
    sys.exit(main())
