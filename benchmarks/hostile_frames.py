"""A daemon among hostile callers: ``python benchmarks/hostile_frames.py`` (tests/privacy/frame_fuzzer.py).

A daemon in a process of its own holds 1e5 rows of ten columns. Thirty-two callers at once send it frames that
no caller of good will sends, twenty-four as fast as they can, eight slowly or not at all, while an honest one
asks questions about rows and waits for the answers. Measured are the honest caller's longest wait beyond the
longest without the others, the growth of the daemon's memory, exceptions that it did not foresee, and what
was charged. Then malformed replies, at an analyst (tests/privacy/reply_fuzzer.py).
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "privacy"))

import frame_fuzzer  # noqa: E402
import reply_fuzzer  # noqa: E402

from privinf.federation import Query, RemoteSite, SiteDaemon  # noqa: E402

TARGET = ROOT / "benchmarks" / "results" / "hostile_frames.md"
ROWS, FAST, SLOW = 100_000, 24, 8
AT_ONCE = 8  # callers in one process
LONGEST_DELAY, MOST_GROWTH = 2.0, 50.0  # seconds, MB


def daemon(path: str) -> None:
    """Hold the site; a line on stdin asks for memory (MB), ledger lines, and events so far."""
    events: Counter[str] = Counter()

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            events[json.loads(record.getMessage())["event"]] += 1

    log = logging.getLogger("privinf.federation.daemon")
    log.addHandler(Counting())
    log.setLevel(logging.INFO)
    threading.excepthook = lambda _: events.update(["thread"])  # type: ignore[assignment]
    site = frame_fuzzer.site_of(ROWS)
    with SiteDaemon(site, frame_fuzzer.NAME, path).started():
        print("up", flush=True)
        for _ in sys.stdin:
            told = {"memory": _memory(), "charged": len(site.ledger), "events": dict(events)}
            print(json.dumps(told), flush=True)


def _memory() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3


def caller(path: str, count: int, seed: int, slow: bool) -> None:
    """Send frames from so many threads at once: fast ones end, slow ones send a part, and nothing more."""
    kept = frame_fuzzer.framed(frame_fuzzer.question(0))
    sent: Counter[str] = Counter()

    def one(number: int) -> None:
        rng, mine = np.random.default_rng([seed, number]), 0
        while slow or mine < count:
            kind, content = frame_fuzzer.hostile(rng, kept)
            mine += 1
            sent[kind] += 1
            if slow:
                frame_fuzzer.put(path, content[: int(rng.integers(len(content) + 1))], 20.0, wait=8.0)
            else:
                frame_fuzzer.put(path, content)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(sent), flush=True)


def told(process: Any) -> dict[str, Any]:
    """Ask the daemon's process how it is."""
    process.stdin.write("\n")
    process.stdin.flush()
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def honest(remote: RemoteSite, numbers: Any, until: Any = None) -> list[float]:
    """Ask one question after another; return the seconds that each took."""
    found = []
    for number in numbers:
        start = time.monotonic()
        reply = remote.handle(frame_fuzzer.question(number), frame_fuzzer.NAME)
        found.append(time.monotonic() - start)
        assert not reply.error, reply.error
        if until is not None and until():
            break
    return found


def measure(count: int, seed: int) -> dict[str, Any]:
    """Run all callers against one daemon."""
    this = [sys.executable, __file__]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s"
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
        server = subprocess.Popen([*this, "--daemon", path], stdin=subprocess.PIPE, **pipes)
        callers: list[Any] = []
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "up\n"
            remote = RemoteSite(path, timeout=600.0)
            assert not remote.handle(
                Query("design", args={"design": frame_fuzzer.DESIGN.to_dict()}), "north"
            ).error
            unloaded = honest(remote, range(50))
            before = told(server)
            for number in range((FAST + SLOW) // AT_ONCE):
                share = [path, "--count", str(count // FAST), "--seed", str(seed + number)]
                more = ["--slow"] if number >= FAST // AT_ONCE else []
                callers.append(subprocess.Popen([*this, "--caller", *share, *more], **pipes))
            busy = callers[: FAST // AT_ONCE]
            loaded = honest(remote, range(50, 10**6), lambda: all(one.poll() is not None for one in busy))
            after = told(server)
            sent = sum((Counter(json.loads(one.stdout.read())) for one in busy), Counter[str]())
        finally:
            for one in callers:
                one.kill()
                one.wait()
            server.kill()
            server.wait()
    return {"unloaded": unloaded, "loaded": loaded, "before": before, "after": after, "sent": sent}


def main() -> None:
    """Run, write the page, and fail if a limit is passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--replies", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--daemon")
    parser.add_argument("--caller")
    parser.add_argument("--slow", action="store_true")
    asked = parser.parse_args()
    if asked.daemon:
        return daemon(asked.daemon)
    if asked.caller:
        return caller(asked.caller, asked.count, asked.seed, asked.slow)
    start = time.monotonic()
    found, replies = measure(asked.count, asked.seed), reply_fuzzer.fuzz(asked.replies, asked.seed)
    seconds = time.monotonic() - start
    unloaded, loaded, events = found["unloaded"], found["loaded"], found["after"]["events"]
    delay = max(loaded) - max(unloaded)
    growth = found["after"]["memory"] - found["before"]["memory"]
    charged = found["after"]["charged"] - len(unloaded) - len(loaded)
    foreign = events.get("failed", 0) + events.get("thread", 0)
    wrong = len(replies.foreign), len(replies.used), len(replies.unnamed)
    lines = [
        "# Hostile frames and replies",
        "",
        f"Made by `python benchmarks/hostile_frames.py --count {asked.count} --replies {asked.replies}` in "
        f"{seconds:.0f} s, seed {asked.seed}. At the same time, {FAST} callers",
        f"send frames as fast as they can, {SLOW} callers send slowly or not at all, and an honest caller sends queries about {ROWS} "
        f"rows of {len(frame_fuzzer.COLUMNS)} columns.",
        "",
        "| what | limit | measured |",
        "|---|---|---|",
        f"| hostile frames, of the fast callers | | {sum(found['sent'].values())} |",
        f"| honest query without them, median and longest of {len(unloaded)} | "
        f"| {np.median(unloaded):.3f} s, {max(unloaded):.3f} s |",
        f"| among them, median and longest of {len(loaded)} | | {np.median(loaded):.3f} s, {max(loaded):.3f} s |",
        f"| largest delay | {LONGEST_DELAY:g} s | {delay:.2f} s |",
        f"| growth of the daemon's highest memory | {MOST_GROWTH:g} MB | {growth:.0f} MB |",
        f"| exceptions that the daemon did not foresee | 0 | {foreign} |",
        f"| charges by hostile frames | 0 | {charged} |",
        f"| malformed replies: foreign exceptions, used in silence, site not named | 0, 0, 0 of {asked.replies} "
        f"| {wrong[0]}, {wrong[1]}, {wrong[2]} |",
        "",
        "| frames | sent |",
        "|---|---|",
        *(f"| {kind} | {found['sent'][kind]} |" for kind in frame_fuzzer.KINDS),
    ]
    TARGET.write_text("\n".join(lines) + "\n")
    print(TARGET.read_text(), *replies.foreign[:5], *replies.used[:5], *replies.unnamed[:5], events, sep="\n")
    good = delay <= LONGEST_DELAY and growth <= MOST_GROWTH and not any((foreign, charged, *wrong))
    sys.exit(not good)


if __name__ == "__main__":
    main()
