"""The file fuzzer in full: ``python benchmarks/fuzz_files.py``.

At least 5,000 damaged files of every kind that the package writes or reads, through the public functions, by
fits that go on and at the command line (tests/privacy/file_corpus.py, file_damage.py,
file_checkpoints.py, file_commands.py).
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
from tqdm import tqdm

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "privacy")]

from file_checkpoints import attempt, stages  # noqa: E402
from file_commands import COMMANDS, Study  # noqa: E402
from file_corpus import corpus  # noqa: E402
from file_damage import LIMIT, Verdict, damage, judge  # noqa: E402

TARGET = ROOT / "benchmarks" / "results" / "fuzz_files.md"
OUTCOMES = ("refused", "same", "earlier", "other")

HEAD = """# Damaged files

Made by `python benchmarks/fuzz_files.py` in {seconds:.0f} s: {files} damaged files, the slowest read in
{slowest:.2f} s (limit {limit:g} s), under a limit of 6 GB of memory. Half of the damage is plain (bits, digits, cuts, blocks, members of archives, bombs).
The other half is *resealed*: a structured change with all checksums computed again. *Refused* means an error of the
package without a context, or exit code 2 and an unchanged folder at the command line. *Same* means the content of the
undamaged file. *Earlier* means a site's ledger without its last lines. *Other* means another content, from damage that
was resealed or that concerned a file without a checksum; the package uses this content. *Failed* means a foreign
exception or warning, another number after plain damage or in spite of a key, or more than
{limit:g} s.

| file | {outcomes} | failed |
|---|{bars}---|
"""


def fuzzed_files(times: int) -> dict[str, list[Verdict]]:
    """Return the verdicts on `times` damaged files of each kind."""
    found: dict[str, list[Verdict]] = {}
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as place:
        for kind in tqdm(corpus(Path(made)), desc="files"):
            rng = np.random.default_rng([1, zlib.crc32(kind.name.encode())])
            found[kind.name] = [timed(judge, kind, damage(kind, rng), Path(place)) for _ in range(times)]
    return found


def fuzzed_commands(times: int) -> dict[str, list[Verdict]]:
    """Return the verdicts on `times` attempts at each command, with one of its files damaged."""
    found: dict[str, list[Verdict]] = {}
    with tempfile.TemporaryDirectory() as made:
        study = Study(Path(made))
        for command in tqdm(COMMANDS, desc="commands"):
            verb = " ".join(word for word in command.words.split()[:2] if word.isalpha())
            rng = np.random.default_rng([1, zlib.crc32((command.words + command.file).encode())])
            name = f"`privinf {verb}`, {command.file}"
            found[name] = [timed(study.attempt, command, rng)[1] for _ in range(times)]
    return found


def fuzzed_checkpoints(times: int) -> dict[str, list[Verdict]]:
    """Return the verdicts on `times` fits that go on from a folder in which one file is damaged."""
    found: dict[str, list[Verdict]] = {}
    with tempfile.TemporaryDirectory() as made:
        for stage in tqdm(stages(Path(made)), desc="checkpoints"):
            rng, place = np.random.default_rng([1, zlib.crc32(stage.name.encode())]), Path(made) / "fit"
            name = f"checkpoint: {stage.name}"
            found[name] = [timed(attempt, stage, rng, place)[1] for _ in range(times)]
    return found


SLOWEST = [0.0]


def timed(function, *given):
    """Return what a function returns, and note how long it took."""
    begun = time.perf_counter()
    found = function(*given)
    SLOWEST.append(time.perf_counter() - begun)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=160, help="damaged files of each kind")
    parser.add_argument("--typed", type=int, default=60, help="damaged files of each command and checkpoint")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    begun = time.perf_counter()
    found = fuzzed_files(options.each) | fuzzed_checkpoints(options.typed) | fuzzed_commands(options.typed)
    lines, failed = [], []
    for name, verdicts in found.items():
        counts = Counter(verdict.outcome for verdict in verdicts)
        bad = [verdict for verdict in verdicts if verdict.failed]
        lines.append(f"| {name} | {' | '.join(str(counts[one]) for one in OUTCOMES)} | {len(bad)} |")
        failed += [(name, verdict) for verdict in bad]
    head = HEAD.format(
        seconds=time.perf_counter() - begun,
        files=sum(map(len, found.values())),
        slowest=max(SLOWEST),
        limit=LIMIT,
        outcomes=" | ".join(OUTCOMES),
        bars="---|" * len(OUTCOMES),
    )
    TARGET.write_text(head + "\n".join(lines) + "\n")
    print(TARGET.read_text())
    for name, verdict in failed:
        print(name, verdict)
    if failed or sum(map(len, found.values())) < 5000:
        sys.exit(1)


if __name__ == "__main__":
    main()
