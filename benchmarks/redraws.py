"""Repeats and restarts in full: ``python benchmarks/redraws.py`` (about a minute and a half).

A question is repeated at a trusted server, and fits are started again from folders in which questions were
brought back and answers deleted at random; the audits are those of tests/privacy/test_redraws.py. A mutant is
the same with one thing broken, and must be found.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "privacy"))

import redraws  # noqa: E402

from privinf.accounting.ledger import MemoryAccount  # noqa: E402
from privinf.federation.server_noise import NoiseMemory  # noqa: E402
from privinf.noise import LatticeNoise, NoiseKey  # noqa: E402

TARGET = ROOT / "benchmarks" / "results" / "redraws.md"
REPEATS, RESTARTS = 4000, 60

HEAD = """# Redraws

Made by `python benchmarks/redraws.py` in {seconds:.0f} s. Every row must have one distinct answer and as many ledger lines as the first answer. Only new ledgers are charged again for the same answer. Every mutant must be detected.

| audit | repeats | distinct answers | ledger lines | verdict |
|---|---|---|---|---|
"""

true_stream = NoiseKey.stream


def without(which: str) -> Callable[..., bytes]:
    """Return `NoiseKey.stream` with one argument left out."""
    nothing = {"query_digest": "", "roster": (), "total": np.empty(0)}

    def stream(self: NoiseKey, query_digest: str, roster: tuple[str, ...], total: object) -> bytes:
        told = {"query_digest": query_digest, "roster": roster, "total": total}
        return true_stream(self, **told | {which: nothing[which]})

    return stream


def restarted(trust: str, new_ledger: bool) -> tuple[int, str, bool]:
    """Return distinct estimates, lines in words, and whether both are right."""
    with tempfile.TemporaryDirectory() as folder:
        estimates, first, ledger = redraws.restarts(
            RESTARTS, Path(folder), trust=trust, new_ledger=new_ledger, seed=1
        )
    own = len(first.privacy.entries)
    lines = f"{own}" if new_ledger else f"{len(ledger)}, {own} of them the first fit's"
    return len(estimates), lines, len(estimates) == 1


def main() -> None:
    """Run all audits and write the table."""
    start, lines, wrong = time.perf_counter(), [], 0

    def add(*cells: object, good: bool) -> None:
        nonlocal wrong
        wrong += not good
        lines.append(f"| {' | '.join(map(str, cells))} | {'passed' if good else 'FAILED'} |")

    for name, rng in (("secure", None), ("seeded", 3)):
        answers, spent = redraws.repeats(REPEATS, rng)
        add(f"one question, {name} noise", REPEATS, len(answers), spent, good=len(answers) == spent == 1)
    for trust in ("server", "secure-sum"):
        for new_ledger in (False, True):
            words = "new ledgers" if new_ledger else "one ledger"
            distinct, spent, good = restarted(trust, new_ledger)
            add(f'restarts of a fit, trust="{trust}", {words}', RESTARTS, distinct, spent, good=good)
    shared = redraws.shared_noise(NoiseKey())
    add("pairs of answers that share noise, of 5", 5, len(shared), "", good=not shared)
    for which in ("query_digest", "roster", "total"):
        with patch.object(NoiseKey, "stream", without(which)):
            shared = redraws.shared_noise(NoiseKey())
        add(
            f"mutant: stream key without the {which}",
            5,
            f"shared by {', '.join(shared)}",
            "",
            good=bool(shared),
        )
    with patch.object(LatticeNoise, "at", lambda self, stream: LatticeNoise()):
        answers, spent = redraws.repeats(100)
    add("mutant: noise of the moment", 100, len(answers), spent, good=len(answers) > 1)
    with patch.object(MemoryAccount, "holds", lambda self, entry: False):
        refused = redraws.refused_repeat()
    add("mutant: a line is never looked up", 2, refused, "", good=bool(refused))
    with patch.object(NoiseMemory, "fits", lambda *_: True):
        changed = redraws.answers_of_changed_rows()
    add("mutant: answers are not remembered, rows changed", 2, changed, 1, good=changed == 2)
    changed = redraws.answers_of_changed_rows()
    add("the same, remembered", 2, changed, 1, good=changed == 1)
    TARGET.write_text(HEAD.format(seconds=time.perf_counter() - start) + "\n".join(lines) + "\n")
    print(TARGET.read_text())
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
