"""Three sites over a real Flower deployment on loopback: ``python benchmarks/flower_tls.py`` (a few minutes).

TLS, a key for every node, a daemon for every site's rows; offline, telemetry off. The same regression runs
first with a trusted server (numbers compared with those in one process), then by secure sums, in the middle
of which one site is killed (-9). Everything is started by this script, and stopped by its process ids.
Writes benchmarks/results/flower_tls.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from flower_deployment import APP, Study, deployment, entries_of, start_run, wait_for

from privinf.accounting import compose
from privinf.federation import InProcessFederation, Site, SitePolicy

TARGET = Path(__file__).parent / "results" / "flower_tls.md"
sys.path.insert(0, str(APP))

from pvapp import scoring  # noqa: E402

SITES, STRANGER = ["east", "north", "west"], "stranger"
ROWS, TRUTH = 4000, np.array([0.3, 0.8, -0.5])
LOST = "west"
PATIENCE = 600.0
REFUSED = "Exit Code: 305"  # what Flower says of a key that is not registered
POLICY = {"trusted_server": True, "secure_sums": True, "simulation": True}


def table(name: str) -> pd.DataFrame:
    """Return the made-up rows of a site."""
    rng = np.random.default_rng(SITES.index(name))
    x = rng.uniform(-1.0, 1.0, (ROWS, 2))
    y = TRUTH[0] + x @ TRUTH[1:] + rng.normal(0.0, 0.5, ROWS)
    return pd.DataFrame({"y": y, "x1": x[:, 0], "x2": x[:, 1]})


def record(path: Path) -> dict[str, Any]:
    """Return what a run has written so far."""
    return json.loads(path.read_text()) if path.exists() else {"steps": [], "mu": 0.0, "releases": 0}


def steps(path: Path) -> int:
    """Return how many steps a run has made."""
    return len(record(path)["steps"])


# ---- what is shown


def reference() -> list[dict[str, Any]]:
    """Return the steps of the trusted run with all sites in this process."""
    policy = SitePolicy(**POLICY)
    sites = {name: Site(table(name), scoring.SCHEMA, policy=policy) for name in SITES}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        scoring.fit(InProcessFederation(sites), {"trust": "server", "out": str(out)})
        return record(out)["steps"]


def ledgers(folder: Path, before: int) -> dict[str, float]:
    """Return mu of what each site was charged after its first lines."""
    return {name: compose([entry.loss for entry in entries_of(folder, name)[before:]]).mu for name in SITES}


def main() -> None:
    """Run both analyses and write the page."""
    begun = time.time()
    length = scoring.ROUNDS + 1
    study = Study({name: table(name) for name in SITES}, scoring.SCHEMA, POLICY, 50.0, 1e-6)
    asked = {"analysis": "scoring", "sites": ",".join(SITES)}
    with deployment(study, [STRANGER]) as (folder, started):
        ready = time.time() - begun
        trusted = start_run(folder, trust="server", **asked)
        wait_for("the trusted run", lambda: steps(trusted) == length, PATIENCE)
        first = record(trusted)
        alike = max(
            float(np.max(np.abs(np.subtract(one["values"], other["values"]))))
            for one, other in zip(first["steps"], reference(), strict=True)
        )
        secure = start_run(folder, trust="secure-sum", **asked)
        wait_for("the middle of the secure run", lambda: steps(secure) >= 3, PATIENCE)
        started.end(f"node-{LOST}", signal.SIGKILL)
        started.end(f"daemon-{LOST}", signal.SIGKILL)
        killed = time.time()
        wait_for("the secure run", lambda: steps(secure) == length, PATIENCE)
        after = time.time() - killed
        second = record(secure)
        stranger = started.running[f"node-{STRANGER}"].poll(), (folder / f"node-{STRANGER}.log").read_text()
        started.end_all()
        charged = ledgers(folder, first["releases"])
    report(first, second, alike, charged, stranger, ready, after, time.time() - begun)


def report(
    first: dict[str, Any],
    second: dict[str, Any],
    alike: float,
    charged: dict[str, float],
    stranger: tuple[int | None, str],
    ready: float,
    after: float,
    total: float,
) -> None:
    """Print and write the table; fail if a target was missed."""
    error = float(np.max(np.abs(np.array(second["steps"][-1]["values"]) - TRUTH)))
    kept = [name for name in SITES if name != LOST]
    stood = max(abs(charged[name] / second["mu"] - 1.0) for name in kept)
    last = second["steps"][-1]["sites"]
    length = len(first["steps"])
    lines = [
        ("start of 3 daemons, SuperLink, 3 nodes", f"{ready:.0f} s", "", True),
        (
            "node with an unregistered key",
            f"ended with code {stranger[0]}",
            "refused",
            stranger[0] not in (None, 0) and REFUSED in stranger[1],
        ),
        (f"trusted run, {length} releases", f"{first['steps'][-1]['at']:.0f} s", "", True),
        (
            "its numbers against those in one process: largest difference",
            f"{alike:.1e}",
            "<= 1e-8",
            alike <= 1e-8,
        ),
        (f"secure run, {length} releases and one lost", f"{second['steps'][-1]['at']:.0f} s", "", True),
        (
            f"end of it after {LOST!r} was killed (-9) at release 3",
            f"{after:.0f} s",
            "<= 600 s",
            after <= PATIENCE,
        ),
        ("sites of its last release", ", ".join(last), ", ".join(kept), list(last) == kept),
        ("largest error of its coefficients", f"{error:.3f}", "< 0.1", error < 0.1),
        (
            "sites that answered all: mu in their ledgers against the report",
            f"{stood:.1e}",
            "equal",
            stood < 1e-9,
        ),
        (
            f"mu of {LOST!r} and of the report",
            f"{charged[LOST]:.4f}, {second['mu']:.4f}",
            "<",
            charged[LOST] < second["mu"],
        ),
        ("all of it", f"{total:.0f} s", "", True),
    ]
    text = "# Federation over Flower with TLS and node keys\n\nMade by `python benchmarks/flower_tls.py`: "
    text += f"{len(SITES)} sites of {ROWS} rows on one machine, {os.cpu_count()} cores.\n\n"
    text += "| what | found | target | verdict |\n|---|---|---|---|\n"
    for what, found, target, good in lines:
        verdict = "" if not target else "met" if good else "MISSED"
        text += f"| {what} | {found} | {target} | {verdict} |\n"
    print(text)
    TARGET.write_text(text, encoding="utf-8")
    if "MISSED" in text:
        raise SystemExit("a target was missed")


if __name__ == "__main__":
    main()
