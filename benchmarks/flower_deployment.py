"""A Flower deployment on loopback, offline: TLS, a key for every node, a daemon for every site's rows.

For scripts: `deployment` starts everything in a temporary folder and stops it by its process ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from privinf.accounting import Budget
from privinf.errors import AlignmentError
from privinf.federation import IdentityKey, Query, RemoteSite, Roster, SiteLedger
from privinf.schema import Schema

APP = Path(__file__).parent / "flower_app"
BIN = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
}


@dataclass(frozen=True)
class Study:
    """Rows by site, and what their holders agreed on."""

    tables: Mapping[str, pd.DataFrame]
    schema: Schema
    policy: Mapping[str, Any]
    epsilon: float
    delta: float

    @property
    def names(self) -> list[str]:
        """Names of the sites."""
        return list(self.tables)


# ---- keys


def make_keys(folder: Path, names: Sequence[str]) -> None:
    """Make the authority, the server's certificate and a key for every node."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    for words in (
        [
            "req",
            "-x509",
            *curve,
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
            "-subj",
            "/CN=lab CA",
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        ],
        ["req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost"],
        [
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            "ext",
            "-out",
            "server.pem",
        ],
    ):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    for name in names:
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
        return RemoteSite(path).handle(Query("describe"), name).rows > 0
    except AlignmentError:
        return False


# ---- the deployment


def start_sites(started: Started, folder: Path, study: Study) -> None:
    """Start the daemons that hold the rows, each with its key and the roster of all."""
    keys = {name: IdentityKey() for name in study.names}
    for name, key in keys.items():
        study.tables[name].to_csv(folder / f"{name}.csv", index=False)
        key.save(folder / f"{name}.key")
        limit = Budget(epsilon=float(study.epsilon), delta=float(study.delta))
        SiteLedger(folder / f"{name}.ledger", limit).close()
    (folder / "roster.json").write_text(Roster({name: key.public for name, key in keys.items()}).to_json())
    (folder / "schema.json").write_text(json.dumps(study.schema.to_dict()))
    (folder / "policy.json").write_text(json.dumps(study.policy))
    for name in study.names:
        started.start(
            f"daemon-{name}",
            sys.executable,
            "-m",
            "privinf",
            "site",
            "serve",
            "--name",
            name,
            "--data",
            f"{name}.csv",
            "--schema",
            "schema.json",
            "--policy",
            "policy.json",
            "--ledger",
            f"{name}.ledger",
            "--key",
            f"{name}.key",
            "--roster",
            "roster.json",
            "--socket",
            f"{name}.sock",
        )
    for name in study.names:
        wait_for(f"daemon of {name}", lambda name=name: described(folder / f"{name}.sock", name), 300.0)


def start_flower(started: Started, folder: Path, names: Sequence[str], strangers: Sequence[str]) -> None:
    """Start the SuperLink, register the keys of the sites' nodes, and start these and the strangers."""
    port = free_port()
    started.start(
        "superlink",
        BIN / "flower-superlink",
        "--ssl-ca-certfile",
        "ca.crt",
        "--ssl-certfile",
        "server.pem",
        "--ssl-keyfile",
        "server.key",
        "--enable-supernode-auth",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--disable-runtime-dependency-installation",
    )
    wait_for("superlink", lambda: answers(port), 180.0)
    (folder / "analyst").mkdir()
    (folder / "analyst" / "config.toml").write_text(
        f'[superlink.tls]\naddress = "127.0.0.1:{port}"\nroot-certificates = "{folder}/ca.crt"\n'
    )
    for name in names:
        flwr(folder, "supernode", "register", f"node-{name}.pub", "tls")
    for name in (*names, *strangers):
        started.start(
            f"node-{name}",
            BIN / "flower-supernode",
            "--root-certificates",
            "ca.crt",
            "--superlink",
            f"127.0.0.1:{port}",
            "--auth-supernode-private-key",
            f"node-{name}",
            "--port",
            free_port(),
            "--node-config",
            f'site="{name}" socket="{folder}/{name}.sock"',
        )


def flwr(folder: Path, *words: str) -> str:
    """Run Flower's command line as the analyst."""
    env = os.environ | QUIET | {"FLWR_HOME": str(folder / "analyst")}
    command = [str(BIN / "flwr"), *words]
    ended = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    if ended.returncode:
        raise SystemExit(f"flwr {' '.join(words)} failed:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def start_run(folder: Path, **config: Any) -> Path:
    """Start a run of the app; return the file to which it writes."""
    out = folder / f"{config['analysis']}-{config['trust']}.json"
    # JSON's texts and numbers are TOML's too
    words = " ".join(f"{name}={json.dumps(value)}" for name, value in (config | {"out": str(out)}).items())
    flwr(folder, "run", str(APP), "tls", "--run-config", words)
    return out


def entries_of(folder: Path, name: str) -> tuple[Any, ...]:
    """Return the lines of a site's ledger, once its daemon has ended."""
    with SiteLedger(folder / f"{name}.ledger") as ledger:
        return ledger.entries


@contextlib.contextmanager
def deployment(study: Study, strangers: Sequence[str] = ()) -> Iterator[tuple[Path, Started]]:
    """Start everything in a temporary folder, and stop it; strangers are nodes whose keys nobody registered."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with tempfile.TemporaryDirectory(prefix="pv") as made:
        folder = Path(made).resolve()
        started = Started(folder)
        try:
            make_keys(folder, [*study.names, *strangers])
            start_sites(started, folder, study)
            start_flower(started, folder, study.names, strangers)
            yield folder, started
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            started.end_all()
