"""Kills of ``privinf release`` at random: ``python benchmarks/release_kills.py [--kills N]`` (two minutes).

Every try starts the command in a process of its own and sends it SIGKILL: at a random instant of its time, or
as it enters one of the calls that change the disk. Then the same command runs undisturbed. Counted are files
without a charge, second charges, and charges without a file. Writes benchmarks/results/release_kills.md,
unless other than 300 kills are wanted.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi
from privinf.accounting import Budget
from privinf.accounting.files import LedgerFile
from privinf.accounting.journal import Anchor
from privinf.cli import main as command_line

TARGET = Path(__file__).parent / "results" / "release_kills.md"
KILLS, PEOPLE = 300, 3000
NAME = "moments"
CALLS = ("fsync", "replace", "unlink", "open", "fdatasync", "rename")
WORDS = [
    "release",
    "--schema",
    "schema.json",
    "--data",
    "rows.csv",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--ledger",
    "study.ledger",
    "--out",
    f"{NAME}.npz",
    "--quiet",
]


def prepare(folder: Path) -> None:
    """Write the rows and the schema of a study."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"y": rng.uniform(0, 10, PEOPLE), "x": rng.uniform(-1, 1, PEOPLE)})
    rows.to_csv(folder / "rows.csv", index=False)
    schema = pi.Schema({"y": (0.0, 10.0), "x": (-1.0, 1.0)})
    (folder / "schema.json").write_text(json.dumps(schema.to_dict()))


def command(folder: Path, call: int | None = None) -> None:
    """Run the command in this process, and end the process; die before the call of this number."""
    os.chdir(folder)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    if call is not None:
        left = [call]
        for name in CALLS:
            setattr(os, name, deadly(getattr(os, name), left))
    try:
        command_line(WORDS, standalone_mode=True)
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    except BaseException:
        os._exit(1)
    os._exit(0)


def deadly(action: Any, left: list[int]) -> Any:
    """Return a call of the system that kills the process when enough calls were made."""

    def counted(*args: Any, **options: Any) -> Any:
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return action(*args, **options)

    return counted


def started(folder: Path, call: int | None = None) -> int:
    """Start the command in a child of this process, which has imported all."""
    child = os.fork()
    if not child:
        command(folder, call)
    return child


def ended(child: int) -> int:
    """Wait for a child; return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fresh(folder: Path) -> None:
    """Remove what a try left, and make the ledger anew."""
    for path in folder.iterdir():
        if path.name not in ("rows.csv", "schema.json"):
            path.unlink()
    account = folder / "study.ledger"
    Anchor.for_journal(account.resolve()).path.unlink(missing_ok=True)
    LedgerFile.create(account, Budget(epsilon=1.5, delta=1e-6))


def duration(folder: Path) -> float:
    """Return how long the command takes undisturbed."""
    times = []
    for _ in range(3):
        fresh(folder)
        begun = time.perf_counter()
        if code := ended(started(folder)):
            raise SystemExit(f"the command itself ends with code {code}")
        times.append(time.perf_counter() - begun)
    return max(times)


def calls(folder: Path) -> int:
    """Return how many calls that change the disk the command makes, or look up a file."""
    number = 1
    while True:
        fresh(folder)
        if ended(started(folder, number)) == 0:
            return number
        number += 1


def attack(kills: int = KILLS, seed: int = 0) -> Counter[str]:
    """Kill the command so often; return what was seen."""
    seen: Counter[str] = Counter()
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        folder = Path(made)
        prepare(folder)
        longest, most = duration(folder), calls(folder)
        while seen["kills"] < kills:
            fresh(folder)
            by_call = seen["kills"] % 2 == 1
            child = started(folder, int(rng.integers(most)) if by_call else None)
            if not by_call:
                time.sleep(rng.uniform(0.0, longest))
                os.kill(child, signal.SIGKILL)
            if ended(child) == -signal.SIGKILL:
                seen["kills"] += 1
                seen += judged(folder)
    return seen


def judged(folder: Path) -> Counter[str]:
    """Return what a killed command left, and what the same command makes of it."""
    seen: Counter[str] = Counter()
    out, account = folder / f"{NAME}.npz", folder / "study.ledger"
    charged = len(LedgerFile(account))
    kept = out.read_bytes() if out.exists() else None
    pending = [path for path in folder.iterdir() if path.name.endswith(".pending")]
    seen["file without a charge"] += kept is not None and not charged
    seen["killed after the charge"] += charged > 0
    seen["killed with a pending file"] += bool(pending)
    seen["pending file that others may read"] += any(path.stat().st_mode & 0o077 for path in pending)
    seen["uncharged pending file that can be read"] += not charged and any(
        b"manifest" in path.read_bytes() for path in pending
    )
    code = ended(started(folder))
    entries = LedgerFile(account).entries
    seen["charged twice"] += len(entries) > 1
    lost = code != 0 or not out.exists() or pi.load_release(out).entries != entries
    seen["charge without its file"] += lost
    seen["file that changed"] += kept is not None and out.exists() and out.read_bytes() != kept
    seen["left over"] += any(path.name.endswith(".pending") for path in folder.iterdir())
    return seen


BAD = (
    "file without a charge",
    "charged twice",
    "charge without its file",
    "file that changed",
    "left over",
    "pending file that others may read",
    "uncharged pending file that can be read",
)


def main() -> None:
    """Kill, count, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=KILLS)
    kills = parser.parse_args().kills
    begun = time.time()
    seen = attack(kills)
    text = (
        "# Kills of `privinf release`\n\nMade by `python benchmarks/release_kills.py`: one table, one ledger "
    )
    text += "whose limit holds one release; every second kill is at a random time, and the others are at a random "
    text += "system call that writes to the disk.\nAfter each kill, the same command runs without a disturbance.\n\n"
    text += "| what | found | target |\n|---|---|---|\n"
    text += f"| kills (SIGKILL) | {seen['kills']} | {kills} |\n"
    for name in ("killed after the charge", "killed with a pending file"):
        text += f"| {name} | {seen[name]} | |\n"
    for name in BAD:
        text += f"| {name} | {seen[name]} | 0 |\n"
    print(text, f"{time.time() - begun:.0f} s")
    if kills == KILLS:
        TARGET.write_text(text, encoding="utf-8")
    if any(seen[name] for name in BAD):
        raise SystemExit("a target was missed")


if __name__ == "__main__":
    main()
