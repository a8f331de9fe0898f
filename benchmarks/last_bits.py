"""The search for last bits, in full: ``python benchmarks/last_bits.py``.

Every whitelisted function and power, and every pair of nested ones: at the evaluator, whether any of the
candidates leaves the interval that its bounds imply even before it is put inside; then the worst of each
through every entry point of a holder, on two neighbouring tables (tests/privacy/ulp_search.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import zlib
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from privinf.federation import Query, RemoteSite, Site, SiteDaemon, SitePolicy
from privinf.schema import Design, Interval, expressions

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "privacy"))

from ulp_search import DOMAIN, ENTRY_POINTS, HIGH, LOW, SCHEMA, Candidate, chains, differing, search, written  # noqa: E402

TARGET = ROOT / "benchmarks" / "results" / "last_bits.md"
POLICY = SitePolicy(trusted_server=True, new_designs=100_000)

HEAD = """# The search for last bits

Made by `python benchmarks/last_bits.py` in {seconds:.0f} s, numpy {numpy}, seed 1. {steps} functions and powers
and {pairs} nested pairs of them. *Evaluator*: formulas for which the value of some row is outside the interval that follows from the bounds, before it is moved into the interval. *Doors*: formulas that make a reply without a charge differ between two neighboring tables, of the {keep} of each on which numpy passes Python's functions by most (behind the daemon:
tables that differ in all of these rows at once).

| where | candidates | differing |
|---|---|---|
"""


def outside(chain: tuple[str, ...], tries: int, rng: np.random.Generator) -> int:
    """Return how many of so many random upper bounds are passed by a row at that bound."""
    source, k = written(chain, "x"), rng.uniform(*DOMAIN, tries)
    with np.errstate(all="ignore"):
        rows = expressions.values(source, lambda _: k)
    passed = 0
    for value, row in zip(k.tolist(), rows.tolist(), strict=True):
        try:
            claimed = expressions.interval(source, lambda _, top=value: Interval(DOMAIN[0] - 0.125, top))
        except ValueError:
            continue
        passed += not claimed.low <= row <= claimed.high
    return passed


def through_daemons(candidates: list[Candidate], folder: Path) -> int:
    """Return how many designs a daemon answers differently if it holds all rows searched for, and none."""
    at = np.array([one.at for one in candidates])
    y = np.linspace(-1.0, 1.0, len(at))
    replies = []
    for side, x in (("there", at), ("elsewhere", np.where(at > HIGH / 2, LOW, HIGH))):
        site = Site(pd.DataFrame({"x": x, "y": y}), SCHEMA, policy=POLICY)
        with SiteDaemon(site, "north", folder / side).started() as daemon:
            remote = RemoteSite(daemon.path)
            replies.append([_reply(remote, one) for one in candidates])
    return sum(first != second for first, second in zip(*replies, strict=True))


def _reply(remote: RemoteSite, candidate: Candidate) -> str:
    try:
        design = Design.from_formula(f"y ~ I({candidate.formula})", SCHEMA)
    except ValueError as error:
        return str(error)
    return remote.handle(Query("design", args={"design": design.to_dict()}), "north").pack()[0]


def of_chain(job: tuple[tuple[str, ...], int, int]) -> Counter[str]:
    """Return how many candidates of one chain were tried, and differed, by place."""
    chain, tries, keep = job
    rng = np.random.default_rng([1, zlib.crc32("/".join(chain).encode())])
    found: Counter[str] = Counter({"evaluator tried": tries, "evaluator": outside(chain, tries, rng)})
    candidates = search(chain, tries, keep, rng)
    found.update(name for name, _ in differing(candidates))
    with tempfile.TemporaryDirectory() as folder:
        found["daemon"] += through_daemons(candidates, Path(folder))
    found.update({f"{name} tried": len(candidates) for name in (*ENTRY_POINTS, "daemon")})
    return found


def main() -> None:
    """Run the search and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=100_000)
    parser.add_argument("--keep", type=int, default=200)
    options = parser.parse_args()
    start, total = time.perf_counter(), Counter[str]()
    jobs = [(chain, options.tries, options.keep) for chain in chains()]
    with ProcessPoolExecutor(2) as pool:
        for found in tqdm(pool.map(of_chain, jobs), total=len(jobs)):
            total.update(found)
    alone = sum(len(chain) == 1 for chain, *_ in jobs)
    text = HEAD.format(
        seconds=time.perf_counter() - start,
        numpy=np.__version__,
        steps=alone,
        pairs=len(jobs) - alone,
        keep=options.keep,
    )
    for name in ("evaluator", *ENTRY_POINTS, "daemon"):
        text += f"| {name} | {total[f'{name} tried']:,} | {total[name]} |\n"
    TARGET.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
