"""Attacks on identity and totals that lie: ``python benchmarks/identity_attacks.py``.

First the attacks of tests/privacy/identity_fuzzer.py, over sockets. Then one of three sites adds a number to
its masked sum: beyond what rows and noise can be the round must be void, charged, and said; what is within
cannot be told from a true sum, and is counted apart. Last what signatures cost: a question to a daemon with
and without them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "privacy"))

import identity_fuzzer  # noqa: E402

from privinf.accounting import Ledger  # noqa: E402
from privinf.errors import AlignmentError  # noqa: E402
from privinf.federation import (  # noqa: E402
    InProcessFederation,
    Query,
    RemoteSite,
    Reply,
    SecureServer,
    Site,
    SiteDaemon,
    SitePolicy,
    pinned_keys,
)
from privinf.federation.askers import ClientEnvelope  # noqa: E402
from privinf.federation.secure.site import NOISE_SDS  # noqa: E402
from privinf.mechanisms.catalogue import SITE_OPS  # noqa: E402

TARGET = ROOT / "benchmarks" / "results" / "identity_attacks.md"
NAMES, ROWS, MU = ("north", "south", "west"), 60, 1.0


class Lying:
    """Sites of this process; one adds a number to the first entry of its masked sum."""

    def __init__(self, inner: InProcessFederation) -> None:
        self.inner, self.amount = inner, 0.0

    @property
    def sites(self) -> tuple[str, ...]:
        """Names."""
        return self.inner.sites

    def ask(self, query: Query, sites: Sequence[str] | None = None) -> list[Reply]:
        """Ask, and lie."""
        replies = self.inner.ask(query, sites)
        if not query.masking:
            return replies
        words = replies[1].masked.copy()
        words[0] = (int(words[0]) + round(self.amount / query.masking["grid"])) % 2**64
        return [replies[0], replace(replies[1], masked=words), *replies[2:]]


def totals(count: int, seed: int) -> tuple[Counter[str], float, float]:
    """Lie so many times; return what came of it, the range in the statistic's units, the largest error."""
    rng = np.random.default_rng(seed)
    keys, roster = pinned_keys(NAMES, signed=False)
    rows = rng.uniform(-1.0, 1.0, (ROWS, 3))
    sites = {
        name: Site(
            (rows[:, 0], rows[:, 1:]),
            identity_fuzzer.DESIGN,
            policy=SitePolicy(secure_sums=True),
            key=keys[name],
            roster=roster,
        )
        for name in NAMES
    }
    lying, args = Lying(InProcessFederation(sites)), identity_fuzzer.ARGS
    record_sensitivity = SITE_OPS["clipped_score"].record_sensitivity({**args, "bits": 40}, 2, ROWS)
    true = SecureServer(lying).vector_sum("clipped_score", args, mu=1e3, label="s").values[0]
    found, far = Counter[str](), 0.0
    sd = SecureServer(lying).planned("clipped_score", args, mu=MU, label="s").scale * len(NAMES) ** 0.5
    most = len(NAMES) * ROWS * record_sensitivity.bound + NOISE_SDS * sd
    for _ in range(count):
        lying.amount = float(rng.choice([-1, 1]) * most * 10 ** rng.uniform(-2, 3))
        ledger = Ledger()
        try:
            value = (
                SecureServer(lying, ledger=ledger)
                .vector_sum("clipped_score", args, mu=MU, label="s")
                .values[0]
            )
        except AlignmentError as problem:
            told = "is invalid" in str(problem) and len(ledger) == 1
            found["void, charged and said" if told else "another error"] += 1
            continue
        beyond = abs(true + lying.amount) > most + 10 * sd
        found["out of range, believed" if beyond else "in range, believed"] += 1
        far = max(far, abs(float(value) - true))
    return found, most, far


def costs(count: int, folder: Path) -> tuple[float, float, float]:
    """Return milliseconds of a question about the columns: without envelopes, with them, in process."""
    keys, roster = pinned_keys(NAMES)
    key = keys["north"]
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (ROWS, 3))
    site = Site((rows[:, 0], rows[:, 1:]), identity_fuzzer.DESIGN, key=key, roster=roster)
    end, query = ClientEnvelope(NAMES, roster=roster, key=keys["west"]), Query("describe")
    with SiteDaemon(site, "north", folder / "s").started():
        remote = RemoteSite(folder / "s", timeout=600.0)

        def signed() -> None:
            asked = end.envelope_for(query, "north")
            assert not end.checked(asked, *remote.exchange(query, "north", asked.fields)).error

        ways: list[Callable[[], Any]] = [
            lambda: remote.handle(query, "north"),
            signed,
            lambda: site.handle(query, "north"),
        ]
        seconds: list[list[float]] = [[] for _ in ways]
        for _ in range(count):
            for way, taken in zip(ways, seconds, strict=True):
                begun = time.perf_counter()
                way()
                taken.append(time.perf_counter() - begun)
    plain, both, here = (1e3 * statistics.median(taken) for taken in seconds)
    return plain, both, here


def main() -> None:
    """Run, write the page, and fail if an attack went through."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_060)
    parser.add_argument("--totals", type=int, default=500)
    parser.add_argument("--seed", type=int, default=19)
    asked = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = identity_fuzzer.attack(Path(folder), asked.count, asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        plain, both, here = costs(500, Path(folder))
    lies, most, far = totals(asked.totals, asked.seed)
    seconds = time.monotonic() - begun
    tried = sum(found.refused.values())
    lines = [
        "# Attacks on identity, and totals that lie",
        "",
        f"Made by `python benchmarks/identity_attacks.py --count {asked.count} --totals {asked.totals}` in "
        f"{seconds:.0f} s, seed {asked.seed}.",
        "Three sites behind sockets, with keys, a roster of version 2 and one listed analyst; attacks by kind below.",
        "",
        "| what | limit | measured |",
        "|---|---|---|",
        f"| attacks refused (replies: the site named; questions: nothing charged) | all of {asked.count - found.repeated} | {tried} |",
        f"| attacks that went through, or charged anything | 0 | {len(found.through)} |",
        f"| honest questions repeated by others: the same bytes, no charge | | {found.repeated} |",
        f"| totals out of range (beyond {most:.0f}): void, charged, said | all | {lies['void, charged and said']} |",
        f"| totals out of range that were believed; other errors | 0; 0 | {lies['out of range, believed']}; {lies['another error']} |",
        f"| totals in range, which nobody can tell from true ones | | {lies['in range, believed']} |",
        f"| largest error of these, against the bound of twice the range | {2 * most:.0f} | {far:.0f} |",
        f"| a question to a daemon, median: without envelopes, with signatures both ways | | {plain:.2f} ms, {both:.2f} ms |",
        f"| the same in process, where nothing is signed | | {here:.3f} ms |",
        "",
        "| attack | refused |",
        "|---|---|",
        *(f"| {kind.replace('_', ' ')} | {found.refused[kind]} |" for kind in identity_fuzzer.KINDS[:-1]),
    ]
    TARGET.write_text("\n".join(lines) + "\n")
    print(TARGET.read_text(), *found.through[:10], lies, sep="\n")
    bad = found.through or lies["out of range, believed"] or lies["another error"]
    sys.exit(bool(bad) or tried + found.repeated != asked.count)


if __name__ == "__main__":
    main()
