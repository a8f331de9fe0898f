"""Kills at a site and at an analyst, and full disks: ``python benchmarks/ledger_kills.py [--share S]``.

At the site: a daemon in a process of its own is asked one new question, masked or plain, and gets SIGKILL at a
random instant of its life, or as it enters a call of the system that changes the disk. Then its ledger is
opened and the same question asked again. Counted are answers without a charge, second charges, other answers
than before, and ledgers that do not open. At the analyst: a fit with a checkpoint over three daemons is killed
in the same two ways, and repeated; sites must have been charged as often as by a fit that nobody killed. Full
disks are limits on the size of files (RLIMIT_FSIZE). Writes benchmarks/results/ledger_kills.md, unless the
share is below .02.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from release_kills import deadly, ended

import privinf as pi
from privinf.accounting import Budget
from privinf.errors import PrivinfError
from privinf.federation import (
    InProcessFederation,
    Query,
    RemoteSite,
    SecureServer,
    Site,
    SiteDaemon,
    SiteLedger,
    SitePolicy,
    SocketFederation,
    TrustedServer,
    pinned_keys,
)
from privinf.federation.site_ledger import read_site_ledger

TARGET = Path(__file__).parent / "results" / "ledger_kills.md"
AT_SITE, AT_ANALYST, FULL_DISKS, AGAIN = 1_000, 300, 200, 40
LEAST_SHARE = 0.02  # of a run that writes the page
NAMES = ("north", "south", "west")
KEYS, ROSTER = pinned_keys(NAMES)
SCHEMA = pi.Schema({"y": (0.0, 1.0), "u": (-1.0, 1.0), "v": (-1.0, 1.0)})
POLICY = SitePolicy(trusted_server=True, secure_sums=True)
SUMS = {"columns": [1, 2], "bound": 2.0}
MOST_CALLS = 60  # of a fit, about
CALLS = ("fsync", "replace", "unlink", "open", "write", "ftruncate")


def rows_of(name: str) -> pd.DataFrame:
    """Return made-up rows of a site."""
    rng = np.random.default_rng(NAMES.index(name))
    u, v = rng.uniform(-1, 1, (2, 300))
    hit = rng.uniform(size=300) < 1.0 / (1.0 + np.exp(-u + 0.5 * v))
    return pd.DataFrame({"y": hit.astype(float), "u": u, "v": v})


def site_of(name: str, folder: Path | None = None) -> Site:
    """Return a site, with its ledger in a folder."""
    ledger = None
    if folder is not None:
        ledger = SiteLedger(folder / f"{name}.ledger", Budget(mu=1e4), anchor=folder / "anchors" / name)
    return Site(
        rows_of(name),
        pi.Design.from_formula("y ~ u + v", SCHEMA),
        policy=POLICY,
        ledger=ledger,
        key=KEYS[name],
        roster=ROSTER,
    )


class Asked(BaseException):
    """Stops a server once its question is known."""


class Stopping:
    """A federation that keeps the question about rows that it is asked, and does not ask it."""

    def __init__(self, inner: InProcessFederation) -> None:
        self.inner, self.sites = inner, inner.sites

    def ask(self, query: Query, sites: Any = None) -> Any:
        """Ask what is no question about rows."""
        if query.charges:
            self.query = query
            raise Asked
        return self.inner.ask(query, sites)


def questions(count: int) -> list[Query]:
    """Return questions of servers, each of a session of its own: masked, plain, and so on."""
    federation, found = InProcessFederation({name: site_of(name) for name in NAMES}), []
    for number in range(count):
        stopping = Stopping(federation)
        server = (SecureServer, TrustedServer)[number % 2](stopping)
        with suppress(Asked):
            server.vector_sum("column_sums", SUMS, mu=0.1, label="sums")
        found.append(stopping.query)
    return found


def child_of(work: Callable[[], None], call: int | None = None) -> int:
    """Start some work in a child of this process; it dies before its call of this number."""
    child = os.fork()
    if child:
        return child
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        if call is not None:
            left = [call]
            for name in CALLS:
                setattr(os, name, deadly(getattr(os, name), left))
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


def killed_after(child: int, seconds: float) -> None:
    """Send SIGKILL to a child after some time, while this process goes on."""

    def kill(*_: Any) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))


def serve(folder: Path) -> None:
    """Be the daemon of north."""
    SiteDaemon(site_of("north", folder), "north", folder / "s").serve()


def answer_of(folder: Path, query: Query, child: int) -> Any:
    """Ask the daemon until it answers or is dead; return its reply, None if there was none."""
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with suppress(PrivinfError):
            return RemoteSite(folder / "s", timeout=30.0).handle(query, "north")
        time.sleep(0.001)
    return None


def content(reply: Any) -> bytes:
    """Return what a site said, of whichever kind of sum."""
    return bytes(reply.masked.tobytes() + reply.sums.tobytes())


def charges(folder: Path, query: Query) -> int:
    """Return how often a question stands charged in the ledger's file."""
    told = (folder / "north.ledger").read_bytes() if (folder / "north.ledger").exists() else b""
    return sum(b'"charge"' in line and query.digest.encode() in line for line in told.splitlines())


def at_the_site(kills: int, seed: int = 0) -> Counter[str]:
    """Kill a daemon so often; return what was seen."""
    seen: Counter[str] = Counter()
    rng, asked = np.random.default_rng(seed), questions(kills)
    longest, most = 0.0, 30
    for number, query in enumerate(asked):
        if number % AGAIN == 0:
            folder = Path(tempfile.mkdtemp(prefix="kills"))
            site_of("north", folder).ledger.close()
            begun = time.perf_counter()
            probe = child_of(partial(serve, folder))
            answer_of(folder, questions(1)[0], probe)
            longest = max(longest, 1.2 * (time.perf_counter() - begun))
            os.kill(probe, signal.SIGKILL)
            ended(probe)
        by_call = number % 2 == 1
        child = child_of(partial(serve, folder), int(rng.integers(most)) if by_call else None)
        if not by_call:
            killed_after(child, rng.uniform(0.0, longest))
        reply = answer_of(folder, query, child)
        if by_call:
            os.kill(child, signal.SIGKILL)  # if it has not died of its call
        ended(child)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        seen["kills"] += 1
        judge(folder, query, reply, seen)
    return seen


def judge(folder: Path, query: Query, reply: Any, seen: Counter[str]) -> None:
    """Look at what a killed daemon left, and ask its site once more."""
    answered, before = reply is not None and not reply.error, charges(folder, query)
    seen["answered"] += answered
    seen["charged, no answer"] += bool(before) and not answered
    seen["answer without a charge"] += answered and not before
    try:
        site = site_of("north", folder)
    except PrivinfError:
        seen["ledger that does not open"] += 1
        return
    again = site.handle(query, "north")
    site.ledger.close()  # type: ignore[attr-defined]
    seen["charged twice"] += charges(folder, query) != 1
    seen["no answer to the question again"] += bool(again.error)
    if answered:
        seen["another answer than before"] += content(again) != content(reply)


def full_disks(tries: int, seed: int = 1) -> Counter[str]:
    """Let files of a site grow by a few bytes at most, and ask it; then without the limit."""
    seen: Counter[str] = Counter()
    rng, asked = np.random.default_rng(seed), questions(tries)
    folder = Path(tempfile.mkdtemp(prefix="full"))
    site_of("north", folder).ledger.close()
    for query in asked:
        room = (folder / "north.ledger").stat().st_size + int(rng.integers(0, 3000))

        def limited(query: Query = query, room: int = room) -> None:
            soft = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            site = site_of("north", folder)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, soft))
            os._exit(3 if site.handle(query, "north").error else 4)

        code = ended(child_of(limited))
        seen["full disks"] += 1
        seen["full before the answer"] += code == 3
        seen["answer without a charge"] += code == 4 and not charges(folder, query)
        try:
            site = site_of("north", folder)
        except PrivinfError:
            seen["ledger that does not open"] += 1
            continue
        seen["no answer to the question again"] += bool(site.handle(query, "north").error)
        site.ledger.close()  # type: ignore[attr-defined]
        seen["charged twice"] += charges(folder, query) != 1
    return seen


def serve_all(folder: Path) -> None:
    """Be the daemons of all sites."""
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(SiteDaemon(site_of(name, folder), name, folder / name).started())
        signal.pause()


def fit(folder: Path, checkpoint: Path, kind: int) -> None:
    """Fit a model over the daemons, and write what it says."""
    federation = SocketFederation({name: folder / name for name in NAMES}, timeout=600.0, patience=60.0)
    spend: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6, "checkpoint": checkpoint}
    trust = ("secure-sum", "server")[kind // 2 % 2]
    if kind % 2:
        glm = pi.FederatedGLM.from_formula(
            "y ~ u + v",
            federation,
            schema=SCHEMA,
            family="binomial",
            trust=trust,  # type: ignore[arg-type]
        )
        found: Any = glm.fit(**spend, optimizer=pi.Newton(rounds=1))
    else:
        moments = pi.MomentOLS.from_formula("y ~ u + v", federation, schema=SCHEMA, trust=trust)  # type: ignore[arg-type]
        found = moments.fit(**spend, cov_type="HC0")
    told = {"params": list(found.params), "lines": len(found.privacy.entries)}
    (checkpoint.parent / f"{checkpoint.name}.json").write_text(json.dumps(told))


def at_the_analyst(kills: int, seed: int = 2) -> Counter[str]:
    """Kill fits so often; return what was seen."""
    seen: Counter[str] = Counter()
    rng, folder = np.random.default_rng(seed), Path(tempfile.mkdtemp(prefix="fits"))
    daemons = child_of(lambda: serve_all(folder))
    try:
        usual: dict[int, tuple[float, int, int]] = {}
        for number in count():
            if seen["kills"] >= kills:
                break
            kind = number % 4
            if kind not in usual:
                usual[kind] = undisturbed(folder, kind)
            longest, lines, most = usual[kind]
            checkpoint = folder / f"fit{number}"
            before = lines_of(folder)
            by_call = number // 4 % 2 == 1
            child = child_of(
                partial(fit, folder, checkpoint, kind), int(rng.integers(most)) if by_call else None
            )
            if not by_call:
                killed_after(child, rng.uniform(0.0, longest))
            code = ended(child)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            seen["kills"] += code == -signal.SIGKILL
            seen["fits that ended before"] += code == 0
            after = lines_of(folder)
            seen["killed between charges"] += any(
                0 < a - b < lines for a, b in zip(after, before, strict=True)
            )
            if ended(child_of(partial(fit, folder, checkpoint, kind))):
                seen["fit that does not go on"] += 1
                continue
            told = json.loads((folder / f"{checkpoint.name}.json").read_text())
            spent = [now - then for now, then in zip(lines_of(folder), before, strict=True)]
            seen["charged twice"] += any(one > lines for one in spent)
            seen["answer without a charge"] += any(one < lines for one in spent) or told["lines"] != lines
    finally:
        os.kill(daemons, signal.SIGKILL)
        ended(daemons)
    return seen


def undisturbed(folder: Path, kind: int) -> tuple[float, int, int]:
    """Return the time of a fit that nobody kills, its charges at a site, and a number of its calls."""
    before, begun = lines_of(folder)[0], time.perf_counter()
    if code := ended(child_of(lambda: fit(folder, folder / f"usual{kind}", kind))):
        raise SystemExit(f"the fit itself ends with code {code}")
    return time.perf_counter() - begun, lines_of(folder)[0] - before, MOST_CALLS


def lines_of(folder: Path) -> list[int]:
    """Return how many charges the ledgers have."""
    while not all((folder / f"{name}.ledger").exists() for name in NAMES):
        time.sleep(0.01)
    while True:
        with suppress(PrivinfError):  # a ledger that is just being made
            return [len(read_site_ledger(folder / f"{name}.ledger").ledger) for name in NAMES]


BAD = (
    "answer without a charge",
    "charged twice",
    "another answer than before",
    "ledger that does not open",
    "no answer to the question again",
    "fit that does not go on",
)


def main() -> None:
    """Kill, count, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=1.0, help="share of the kills")
    share = parser.parse_args().share
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        tempfile.tempdir = made
        parts = {
            "site": at_the_site(max(2, round(share * AT_SITE))),
            "full disk": full_disks(max(2, round(share * FULL_DISKS))),
            "analyst": at_the_analyst(max(4, round(share * AT_ANALYST))),
        }
        tempfile.tempdir = None
    lines = [
        "# Kills at a site and at an analyst, and full disks",
        "",
        f"Made by `python benchmarks/ledger_kills.py --share {share:g}` in {time.monotonic() - begun:.0f} s. Every second kill is at a random time, and the others are at a random system call that writes to the disk."
        " "
        "After each kill, the same query or the same fit is repeated without a disturbance.",
        "",
        "| where | what | found | target |",
        "|---|---|---|---|",
    ]
    for where, seen in parts.items():
        lines += [
            f"| {where} | {what} | {count} | {'0' if what in BAD else ''} |" for what, count in seen.items()
        ]
    text = "\n".join(lines) + "\n"
    if share >= LEAST_SHARE:
        TARGET.write_text(text)
    print(text)
    sys.exit(any(seen[what] for seen in parts.values() for what in BAD))


if __name__ == "__main__":
    main()
