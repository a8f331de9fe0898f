"""Every script of the `make verify` targets at its smallest scale, to its end, in a copy of the tree.

``python benchmarks/small.py [WORD ...]`` (`make verify-smallest`): with words only commands that hold one of them.
Pages and fits of the repository stay as they are. What ends with an error fails the run; so few draws prove nothing, and
a script that says so by its exit status has ended.

The draws are seeded, so that the few numbers are the same again as long as the code computes the same:
``results/smallest.json`` has a digest of every column of the small pages, and a column with other numbers fails the run.
Then make the page again by its own command, or see by a longer run that it still holds, and store the new numbers by
``--save``. Columns of times, and those whose noise has no seed (``--save`` runs every command twice), are not compared.
On a processor with other last bits a digest can differ without a reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from shutil import copyfile

ROOT = Path(__file__).resolve().parents[1]
TARGET = re.compile(r"^(verify[\w-]*):.*\n((?:\t.*\n)+)", re.MULTILINE)
COMMAND = re.compile(r"^\t\$\(BIN\)/python ((?:benchmarks|tests)/\S+\.py)(.*)$", re.MULTILINE)
# Tests, other tools that need the network, and this.
NOT_HERE = ("verify-quick", "verify-peers", "verify-smallest")
LONGEST = 3600  # seconds
STORED = ROOT / "benchmarks" / "results" / "smallest.json"
PASSING = re.compile(r"\b(?:m?s|us|seconds?|times?|processor|memory|load|[MG]i?B)\b", re.IGNORECASE)
NUMBER = re.compile(r"-?\d[\d,.]*(?:e[+-]?\d+)?|nan|inf|True|False")
Digests = dict[str, list[str]]  # of each page, a digest of each column of its tables
# Words, and constants of scripts that have no word for it.
SCALE: dict[str, tuple[str, str]] = {
    "audits": ("", "LOCAL, CENTRAL, RESPONSES, WHOLE = 3_000, 200, 20_000, 40"),
    "test_accounting_oracle": ("", "CASES = 4"),
    "calibrate_identification": ("", "REPLICATIONS, SHARE = 100, 0.02"),
    "verify": ("--scale 0.002", ""),
    "small_samples": ("2", ""),
    "tuning": ("", "SPLITS, SINGLE = range(1), (1.0, 10.0)"),
    "one_curator": ("--replications 4", ""),
    "one_or_many": ("1", "N, FITS = 4_000, (1, 2)"),
    "one_release": ("--replications 20", ""),
    "formulas": ("", "FITS = 2"),
    "effects": ("", "FITS, HARDER_FITS, DRAWS, TOTAL_DRAWS = 2, 2, 20, 20"),
    "effects_reported": ("", "FITS, HAND_FITS = 2, 2"),
    "far_group": ("2", ""),
    "rare_groups": ("2", ""),
    "loose_bounds": ("2", ""),
    "logistic": ("--replications 2", ""),
    "proportional_hazards": ("2 --fresh", ""),
    "hazard_tables": ("1 --only mixed", ""),
    "hazard_layers": ("1", ""),
    "hazard_targets": ("1", ""),
    "hazard_target_tests": ("1", "LAW_FITS, MORE_FITS = 1, 1"),
    "hazard_scores": ("2", ""),
    "hazard_plans": ("2", "BIG = 4_000"),
    "margins": ("--fits 2", ""),
    "negative_binomial": ("--fits 2 --only 0.5", ""),
    "clipping": ("--draws 100 --fits 2", ""),
    "score_tests": ("--draws 10 --fits 10", ""),
    "find_bounds": ("2", ""),
    "bought_fits": ("2", ""),
    "quantiles": ("10", ""),
    "counts": ("10", ""),
    "tests_size": ("", "DRAWS = 20"),
    "missing": ("1 --few", ""),
    "missing_real": ("1", ""),
    "missing_lasso": ("1", ""),
    "missing_stats": ("", "DRAWS, TOLD = 4, 2"),
    "survival": (
        "--fits 2",
        "DRAWS, RATIOS, COMPARED, FITS, HEAPED_FITS, PROTOTYPE_RATIO_DRAWS = 10, 4, 1, 4, 2, 2",
    ),
    "tests_published": ("", "DRAWS = 10"),
    "statsmodels_tests": ("", ""),
    "planner": ("--fits 2", ""),
    "audits_mixing": ("", "MANY, AGAIN, FITS = 1_000, 300, 40"),
    "verify_mixing": ("--scale 0.002", ""),
    "simultaneous": ("--fits 4", ""),
    "mixing_speed": ("", "N, OTHER_K = 30_000, (100,)"),
    "release_memory": ("--scale 0.002", ""),
    "audits_examples": ("", "DRAWS, PEOPLE = 20_000, 2_000"),
    "verify_examples": ("--scale 0.002", ""),
    "laplace_examples": ("2", "SIZES, CELLS, END = (2_000,), [(1, 4.0, 2_000), (2, 8.0, 2_000)], []"),
    "audits_lasso": ("--scale 0.02", ""),
    "top_k": ("", "REPEATS = 4"),
    "verify_lasso": ("--scale 0.004", ""),
    "lasso_paper": ("--scale 0.01", ""),
    "sparse_mean": ("--scale 0.1", ""),
    "lasso_agreement": ("--fits 2", ""),
    "lasso_gauntlet": ("--replications 1", ""),
    "secure_sum": ("", "ROUNDS = 2"),
    "verify_moments_federated": ("--replications 2", ""),
    "verify_federated": ("--replications 2", ""),
    "lasso_secure": ("--scale 0.004", ""),
    "lasso_secure_logistic": ("2", "COMPARED = 1"),
    "verify_dome": ("--scale 0.01", ""),
    "hostile_frames": ("--count 1000 --replies 200", ""),
    "identity_attacks": ("--count 20 --totals 10", ""),
    "flower_tls": ("", ""),
    "release_kills": ("--kills 2", ""),
    "ledger_kills": ("--share 0.002", ""),
    "ledger_attacks": ("--tries 40", ""),
    "hospitals": ("", ""),
    "verify_hc0": ("--replications 4", ""),
    "verify_settled": ("--replications 4", ""),
    "last_bits": ("--tries 2000 --keep 4", ""),
    "replay": ("--drawn 1", ""),
    "redraws": ("", "REPEATS, RESTARTS = 40, 4"),
    "fuzz_files": ("--each 2 --typed 2", ""),
    "fuzz_queries": ("--count 200", ""),
    "fuzz_arguments": ("--calls 100", ""),
    "fuzz_rows": ("--runs 80", ""),
}


def commands(makefile: str) -> list[tuple[str, str]]:
    """Return script and words of every command of the targets; vignettes have `vignettes/quick.py`, other tools the network."""
    parts = [text for name, text in TARGET.findall(makefile) if name not in NOT_HERE]
    return [(script, words.strip()) for part in parts for script, words in COMMAND.findall(part)]


def smallest(script: str, words: str) -> list[str]:
    """Return the words of a script's smallest run."""
    kept = words.replace("$(FRESH)", "--fresh").partition("#")[0].split()
    if "--report" in kept:
        return kept
    few: list[str] = []
    for word in kept:
        if not word.isdigit():
            few.append(word)
        elif few and few[-1].startswith("--"):  # the option whose number this is
            few.pop()
    return [*few, *SCALE[Path(script).stem][0].split()]


def copied(folder: Path) -> None:
    """Copy the tree, and give constants their small values where a script would run."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copyfile(ROOT / name, folder / name)
    for script in {script for script, _ in commands((ROOT / "Makefile").read_text(encoding="utf-8"))}:
        path, constants = folder / script, SCALE[Path(script).stem][1]
        text = path.read_text(encoding="utf-8")
        path.write_text(
            text.replace("\nif __name__ ==", f"\n{constants}\n\nif __name__ =="), encoding="utf-8"
        )


def columns(page: str) -> list[str]:
    """Return a digest of the numbers in each column of a page's tables; "-" where the heading says that they are times."""
    found: list[str] = []
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        lines = [line.strip().strip("|").replace("\\|", "/").split("|") for line in table.splitlines()]
        for heading, _, *cells in zip(*lines, strict=False):
            numbers = " ".join(NUMBER.findall(" ".join(cells)))
            digest = hashlib.sha256(numbers.encode()).hexdigest()[:8]
            found.append("-" if PASSING.search(heading) else digest)
    return found


def pages(folder: Path, since: float) -> Digests:
    """Return the digests of pages of results that were written since then."""
    written = (folder / "benchmarks" / "results").glob("*.md")
    return {page.name: columns(page.read_text()) for page in sorted(written) if page.stat().st_mtime >= since}


def alike(one: Digests, other: Digests) -> Digests:
    """Return the columns that are the same in two runs, and "-" in place of others."""
    return {
        name: [digest if digest == again else "-" for digest, again in zip(found, other[name], strict=True)]
        for name, found in one.items()
        if len(found) == len(other.get(name, []))
    }


def differing(stored: Digests, found: Digests) -> list[str]:
    """Return a line for each stored page that has other numbers or other columns now."""
    lines = []
    for name in found.keys() & stored.keys():
        pairs = list(zip(stored[name], found[name], strict=False))
        other = [str(k) for k, pair in enumerate(pairs, 1) if "-" not in pair and pair[0] != pair[1]]
        if len(stored[name]) != len(found[name]):
            lines.append(f"{name}: {len(found[name])} columns, not {len(stored[name])}")
        elif other:
            lines.append(f"{name}: other numbers in column {', '.join(other)}")
    return sorted(lines)


def run(folder: Path, script: str, words: list[str]) -> bool:
    """Run a script, say how it ended, and return whether it did."""
    began, path = time.time(), os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, script, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        error = process.communicate(timeout=LONGEST)[1]
        raised = any(sign in error for sign in ("Traceback (most recent", "usage:"))
        broken = process.returncode < 0 or (process.returncode > 0 and raised)
        said = "FAILED" if broken else f"ended with {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the processes that it has started
        broken, said, error = True, "FAILED: still running", ""
    print(f"{script} {' '.join(words)}: {said} after {time.time() - began:.0f} s", flush=True)
    if broken:
        print(error[-2000:], flush=True)
    return not broken


def main(words: list[str]) -> int:
    """Run the commands; the number of those that failed, and of pages with other numbers, is the exit status."""
    save, words = "--save" in words, [word for word in words if word != "--save"]
    asked = [
        (script, smallest(script, more))
        for script, more in commands((ROOT / "Makefile").read_text(encoding="utf-8"))
        if not words or any(word in f"{script} {more}" for word in words)
    ]
    rounds, ended = [], []
    for _ in range(1 + save):
        with tempfile.TemporaryDirectory(prefix="smallest-") as made:
            copied(Path(made))
            since = time.time()
            ended += [run(Path(made), script, more) for script, more in asked]
            rounds.append(pages(Path(made), since))
    stored: Digests = json.loads(STORED.read_text()) if STORED.exists() else {}
    other = differing(stored, rounds[0])
    compared = len(stored.keys() & rounds[0].keys())
    print("\n".join([*other, f"{len(other)} of {compared} stored pages have other numbers"]))
    print(f"{sum(ended)} of {len(ended)} runs came to their end")
    if save:
        kept = sorted((stored | alike(*rounds)).items())
        lines = [f"  {json.dumps(name)}: {json.dumps(digests)}" for name, digests in kept]
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return len(ended) - sum(ended) + (0 if save else len(other))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
