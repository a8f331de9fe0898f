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

import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import compose
from privinf.errors import AlignmentError
from privinf.federation import IdentityKey, InProcessFederation, Query, Roster, Site, SiteLedger, SitePolicy
from privinf.federation.daemon import RemoteSite

HERE = Path(__file__).parent
TARGET = HERE / "results" / "flower_tls.md"
APP = HERE / "flower_app"
sys.path.insert(0, str(APP))

from pvapp import analysis  # noqa: E402

ROWS, TRUTH = 4000, np.array([0.3, 0.8, -0.5])
LOST = "west"
PATIENCE = 600.0
REFUSED = "Exit Code: 305"  # what Flower says of a key that is not registered
POLICY = {"trusted_server": True, "secure_sums": True, "simulation": True}
BIN = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
}


def table(name: str) -> pd.DataFrame:
    """Return the made-up rows of a site."""
    rng = np.random.default_rng(analysis.SITES.index(name))
    x = rng.uniform(-1.0, 1.0, (ROWS, 2))
    y = TRUTH[0] + x @ TRUTH[1:] + rng.normal(0.0, 0.5, ROWS)
    return pd.DataFrame({"y": y, "x1": x[:, 0], "x2": x[:, 1]})


# ---- keys


def make_keys(folder: Path) -> None:
    """Make the authority, the server's certificate and a key for every node."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    for words in (
        ["req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=lab CA", "-addext",
         "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"],
        ["req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost"],
        ["x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
         "-days", "30", "-extfile", "ext", "-out", "server.pem"],
    ):  # fmt: skip
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    for name in (*analysis.SITES, "stranger"):
        words = ["-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", f"node-{name}"]
        subprocess.run(["ssh-keygen", *words], cwd=folder, check=True, capture_output=True)


# ---- processes


class Started:
    """Processes that this script started, each in a group of its own, with their logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: object) -> subprocess.Popen[bytes]:
        """Start a process."""
        home = self.folder / f"home-{name}"
        home.mkdir(exist_ok=True)
        env = os.environ | QUIET | {"FLWR_HOME": str(home)}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                list(map(str, words)),
                cwd=self.folder,
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.running[name]

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a process and what it started, hard after ten seconds."""
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end_all(self) -> None:
        """End them all, the last first."""
        for name in reversed(list(self.running)):
            self.end(name)


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: str, ready: Any, seconds: float) -> None:
    """Return when `ready` says so; give up after a time."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(0.25)


def answers(port: int) -> bool:
    """Return whether somebody listens at a port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def described(path: Path, name: str) -> bool:
    """Return whether a site's daemon answers."""
    try:
        return RemoteSite(path).handle(Query("describe"), name).rows == ROWS
    except AlignmentError:
        return False


# ---- the deployment


def start_sites(started: Started, folder: Path) -> None:
    """Start the daemons that hold the rows, each with its key and the roster of all."""
    for name in analysis.SITES:
        table(name).to_csv(folder / f"{name}.csv", index=False)
        IdentityKey().save(folder / f"{name}.key")
    roster = Roster({name: IdentityKey.load(folder / f"{name}.key").public for name in analysis.SITES})
    (folder / "roster.json").write_text(roster.to_json())
    (folder / "schema.json").write_text(json.dumps(analysis.SCHEMA.to_dict()))
    (folder / "policy.json").write_text(json.dumps(POLICY))
    for name in analysis.SITES:
        started.start(
            f"daemon-{name}", sys.executable, "-m", "privinf", "site", "serve", "--name", name, "--data",
            f"{name}.csv", "--schema", "schema.json", "--policy", "policy.json", "--ledger", f"{name}.ledger",
            "--budget-epsilon", 50, "--budget-delta", 1e-6, "--key", f"{name}.key", "--roster", "roster.json",
            "--socket", f"{name}.sock",
        )  # fmt: skip
    for name in analysis.SITES:
        wait_for(f"daemon of {name}", lambda name=name: described(folder / f"{name}.sock", name), 60.0)


def start_flower(started: Started, folder: Path) -> None:
    """Start the SuperLink, register the nodes' keys and start the nodes."""
    port = free_port()
    started.start(
        "superlink", BIN / "flower-superlink", "--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem",
        "--ssl-keyfile", "server.key", "--enable-supernode-auth", "--host", "127.0.0.1", "--port", port,
        "--disable-runtime-dependency-installation",
    )  # fmt: skip
    wait_for("superlink", lambda: answers(port), 90.0)
    (folder / "analyst").mkdir()
    (folder / "analyst" / "config.toml").write_text(
        f'[superlink.tls]\naddress = "127.0.0.1:{port}"\nroot-certificates = "{folder}/ca.crt"\n'
    )
    for name in analysis.SITES:
        flwr(folder, "supernode", "register", f"node-{name}.pub", "tls")
    for name in (*analysis.SITES, "stranger"):
        started.start(
            f"node-{name}", BIN / "flower-supernode", "--root-certificates", "ca.crt", "--superlink",
            f"127.0.0.1:{port}", "--auth-supernode-private-key", f"node-{name}", "--port", free_port(),
            "--node-config", f'site="{name}" socket="{folder}/{name}.sock"',
        )  # fmt: skip


def flwr(folder: Path, *words: str) -> str:
    """Run Flower's command line as the analyst."""
    env = os.environ | QUIET | {"FLWR_HOME": str(folder / "analyst")}
    command = [str(BIN / "flwr"), *words]
    ended = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    if ended.returncode:
        raise SystemExit(f"flwr {' '.join(words)} failed:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def run(folder: Path, trust: str) -> Path:
    """Start a run; return the file to which it writes its steps."""
    out = folder / f"{trust}.json"
    flwr(folder, "run", str(APP), "tls", "--run-config", f'trust="{trust}" out="{out}"')
    return out


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
    sites = {name: Site(table(name), analysis.SCHEMA, policy=policy) for name in analysis.SITES}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        analysis.fit(InProcessFederation(sites), {"trust": "trusted", "out": str(out)})
        return record(out)["steps"]


def ledgers(folder: Path, before: dict[str, int]) -> dict[str, float]:
    """Return mu of what each site was charged after its first `before` lines."""
    found = {}
    for name in analysis.SITES:
        with SiteLedger(folder / f"{name}.ledger") as ledger:
            found[name] = compose([entry.loss for entry in ledger.entries[before[name] :]]).mu
    return found


@contextlib.contextmanager
def deployment() -> Iterator[tuple[Path, Started]]:
    """Start everything in a temporary folder, and stop it."""
    with tempfile.TemporaryDirectory(prefix="pv") as made:
        folder = Path(made).resolve()
        started = Started(folder)
        try:
            make_keys(folder)
            start_sites(started, folder)
            start_flower(started, folder)
            yield folder, started
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            started.end_all()


def main() -> None:
    """Run both analyses and write the page."""
    begun = time.time()
    length = analysis.ROUNDS + 1
    with deployment() as (folder, started):
        ready = time.time() - begun
        trusted = run(folder, "trusted")
        wait_for("the trusted run", lambda: steps(trusted) == length, PATIENCE)
        first = record(trusted)
        alike = max(
            float(np.max(np.abs(np.subtract(one["values"], other["values"]))))
            for one, other in zip(first["steps"], reference(), strict=True)
        )
        secure = run(folder, "secure-sum")
        wait_for("the middle of the secure run", lambda: steps(secure) >= 3, PATIENCE)
        started.end(f"node-{LOST}", signal.SIGKILL)
        started.end(f"daemon-{LOST}", signal.SIGKILL)
        killed = time.time()
        wait_for("the secure run", lambda: steps(secure) == length, PATIENCE)
        after = time.time() - killed
        second = record(secure)
        stranger = started.running["node-stranger"].poll(), (folder / "node-stranger.log").read_text()
        started.end_all()
        charged = ledgers(folder, dict.fromkeys(analysis.SITES, first["releases"]))
    report(first, second, alike, charged, stranger, ready, after, time.time() - begun)


def report(
    first: dict[str, Any], second: dict[str, Any], alike: float, charged: dict[str, float],
    stranger: tuple[int | None, str], ready: float, after: float, total: float,
) -> None:  # fmt: skip
    """Print and write the table; fail if a target was missed."""
    error = float(np.max(np.abs(np.array(second["steps"][-1]["values"]) - TRUTH)))
    kept = [name for name in analysis.SITES if name != LOST]
    stood = max(abs(charged[name] / second["mu"] - 1.0) for name in kept)
    last = second["steps"][-1]["sites"]
    length = len(first["steps"])
    lines = [
        ("start of 3 daemons, SuperLink, 3 nodes", f"{ready:.0f} s", "", True),
        ("node with an unregistered key", f"ended with code {stranger[0]}", "refused",
         stranger[0] not in (None, 0) and REFUSED in stranger[1]),
        (f"trusted run, {length} releases", f"{first['steps'][-1]['at']:.0f} s", "", True),
        ("its numbers against those in one process: largest difference", f"{alike:.1e}", "<= 1e-8", alike <= 1e-8),
        (f"secure run, {length} releases and one lost", f"{second['steps'][-1]['at']:.0f} s", "", True),
        (f"end of it after {LOST!r} was killed (-9) at release 3", f"{after:.0f} s", "<= 600 s", after <= PATIENCE),
        ("sites of its last release", ", ".join(last), ", ".join(kept), list(last) == kept),
        ("largest error of its coefficients", f"{error:.3f}", "< 0.1", error < 0.1),
        ("sites that answered all: mu in their ledgers against the report", f"{stood:.1e}", "equal", stood < 1e-9),
        (f"mu of {LOST!r} and of the report", f"{charged[LOST]:.4f}, {second['mu']:.4f}", "<",
         charged[LOST] < second["mu"]),
        ("all of it", f"{total:.0f} s", "", True),
    ]  # fmt: skip
    text = "# Federation over Flower with TLS and node keys\n\nMade by `python benchmarks/flower_tls.py`: "
    text += f"{len(analysis.SITES)} sites of {ROWS} rows on one machine, {os.cpu_count()} cores.\n\n"
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
