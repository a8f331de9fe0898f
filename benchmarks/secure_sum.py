"""Time, memory and noise of secure sums: ``python benchmarks/secure_sum.py`` (about two minutes).

All sites live in one process on one core; times are wall times, and processor times of this process, which do
not depend on what else the machine does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import resource
import sys
import time
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from privinf.federation import (
    InProcessFederation,
    SecureServer,
    Site,
    SitePolicy,
    pinned_keys,
)
from privinf.federation.secure.masking import PairKeys, degree
from privinf.schema import Design
from studies.simulation import binomial_limits

TARGET = Path(__file__).parent / "results" / "secure_sum.md"
WIDTH, ROUNDS, ROWS = 100, 10, 20
SUMS = {"columns": np.arange(WIDTH), "bound": 1.0}

HEAD = """# Secure sums

Made by `python benchmarks/secure_sum.py`. All sites in one process on one core; "cpu" is processor time of the process.

## 20 sites, without the noise sampler

"masks" is the time for the masks of all sites and the sum of the masked words, with masks for all pairs and five
queries; the shared secrets of pairs (X25519) are computed once per site and listed separately. "whole sum" is the time
from the server's query to its answer, with the checks, ledgers and {rows} rows of all sites. Each number is the worst of
five. "error" is the difference between the unmasked sum and the sum of the integers.

{masks}

## {rounds} rounds of {width} numbers with secure noise

A tenth of the sites counts as colluding. "first" is the round in which the secrets of pairs are computed. Every site
checks, charges, reads {rows} rows, draws noise, masks, and stores what it sent. The peak is the memory of the process
with all sites.
"inside quartiles": share of the {errors:,} errors of the sums within the quartiles of the noise that is stated, 99.9%
limits about .5. Allowed for all rounds: 60 s of processor time, 2 GB. Load average when it ran: {load}, on {cores}
cores: wall times are those of a busy machine.

{scaling}

n k, the number of masks, is n (n - 1) up to 50 sites, then grows at most like n log n (k takes the smallest even number for
which the sites that do not collude stay connected but for 2^-100). A site's own cost is that of k masks.
"""


def masks(size: int) -> tuple[str, bool]:
    """Return a row: seconds for twenty sites' masks."""
    names = tuple(f"s{i:02d}" for i in range(20))
    keys, roster = pinned_keys(names)
    pairs = {name: PairKeys(keys[name], roster) for name in names}
    values = {name: np.random.default_rng(i).integers(-(2**40), 2**40, size) for i, name in enumerate(names)}
    start = time.process_time()
    for name in names:
        pairs[name].masked(np.zeros(1, dtype=np.uint64), name, names, 0, "00" * 32)
    first, times, exact = time.process_time() - start, [], True
    for repeat in range(5):
        start = time.process_time()
        total = np.zeros(size, dtype=np.uint64)
        for name in names:
            words = values[name].view(np.uint64)
            total += pairs[name].masked(words, name, names, 0, f"{repeat + 1:064x}")
        times.append(time.process_time() - start)
        exact &= np.array_equal(total.view(np.int64), sum(values.values()))
    whole, limit = whole_sum(size), 0.1 if size <= 100 else 0.2
    met = max(*times, whole) <= limit and exact
    row = f"| {size:,} | {first:.3f} | {max(times):.4f} | {whole:.4f} | {'exact' if exact else 'WRONG'} |"
    return f"{row} {limit} | {'met' if met else 'NOT MET'} |", met


def whole_sum(size: int) -> float:
    """Return the most seconds of a sum over twenty sites from question to answer, without noise."""
    server = SecureServer(federation_of(20, size, simulation=True))
    times = []
    for _ in range(6):
        start = time.process_time()
        server.vector_sum(
            "column_sums", {"columns": np.arange(size), "bound": 1.0}, mu=math.inf, label="sums"
        )
        times.append(time.process_time() - start)
    return max(times[1:])


def rows_of(site: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a site's made-up response and columns."""
    rng = np.random.default_rng(site)
    return rng.uniform(-1, 1, ROWS), rng.uniform(-1, 1, (ROWS, width))


def federation_of(count: int, width: int = WIDTH, *, simulation: bool = False) -> InProcessFederation:
    """Return so many sites with a few made-up rows each."""
    keys, roster = pinned_keys(f"s{i:04d}" for i in range(count))
    policy = SitePolicy(secure_sums=True, simulation=simulation)
    names = [f"x{j}" for j in range(width)]
    design = Design.from_arrays(names, bounds=[(-1.0, 1.0)] * width, y_bounds=(-1.0, 1.0))
    sites = {}
    for i, name in enumerate(keys):
        sites[name] = Site(rows_of(i, width), design, policy=policy, key=keys[name], roster=roster)
    return InProcessFederation(sites)


def scaling(count: int) -> tuple[str, bool]:
    """Return a row: rounds of a federation of so many sites."""
    federation = federation_of(count)
    server = SecureServer(federation, max_colluding=count // 10)
    exact = sum(rows_of(i, WIDTH)[1].sum(axis=0) for i in range(count))
    walls, cpus, z = [], [], []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        found = server.vector_sum("column_sums", SUMS, mu=1.0, label="sums")
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        z.append((found.values - exact) / found.scale)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    k = degree(count, count // 10)
    first, steady = cpus[0] - float(np.mean(cpus[1:])), float(np.mean(cpus[1:]))
    inside = np.mean(np.abs(z) < ndtri(0.75))
    low, high = binomial_limits(0.5, np.size(z), 0.999)
    met = first + ROUNDS * steady <= 60.0 and peak < 2.0 and low <= inside <= high
    row = (
        f"| {count:,} | {k} | {count * k:,} | {cpus[0]:.2f} | {steady:.3f} | {1e3 * steady / count:.2f} "
        f"| {1e6 * steady / (count * k):.1f} | {1e6 * steady / (count * math.log2(count)):.0f} "
        f"| {sum(cpus):.1f} | {sum(walls):.1f} | {peak:.2f} | {inside:.3f} | {'met' if met else 'NOT MET'} |"
    )
    return row, met


def main() -> int:
    """Write the page; return how many limits were not met."""
    first = [masks(size) for size in (100, 10_000)]
    rows = [scaling(count) for count in (50, 200, 1000)]
    tables = {
        "masks": "\n".join(
            [
                "| numbers | X25519, cpu s | masks, cpu s | whole sum, cpu s | error | allowed s | verdict |",
                "|---|" + "---|" * 6,
            ]
            + [row for row, _ in first]
        ),
        "scaling": "\n".join(
            [
                "| sites n | k | n k | first, cpu s | round, cpu s | a site, ms | a mask, us | per n log2 n, us "
                "| all rounds, cpu s | wall s | peak GB | inside quartiles | verdict |",
                "|---|" + "---|" * 12,
            ]
            + [row for row, _ in rows]
        ),
    }
    page = HEAD.format(
        rounds=ROUNDS,
        width=WIDTH,
        rows=ROWS,
        errors=ROUNDS * WIDTH,
        load=f"{os.getloadavg()[0]:.1f}",
        cores=os.cpu_count(),
        **tables,
    )
    TARGET.write_text(page)
    print(TARGET.read_text())
    return sum(not met for _, met in first + rows)


if __name__ == "__main__":
    sys.exit(main())
