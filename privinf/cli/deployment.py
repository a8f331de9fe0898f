"""Parts of a federation: bundles, certificates, and the programs of Flower that carry its messages."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import tomli_w

from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, StorageError
from privinf.federation.envelope import Analyst
from privinf.secret_files import open_secret
from privinf.storage.checksummed import parse_json, read_text, save_text, verified_record
from privinf.wire import Formats

BUNDLE = Formats.SITE_BUNDLE
FEDERATION = Formats.FEDERATION
# Of the file that a site gives to the federation.
BUNDLE_FIELDS = ("format", "version", "name", "public", "verifying", "node", "socket", "schema")
# Of the file that all sites get.
FEDERATION_FIELDS = ("format", "version", "sites", "roster", "schema", "address", "authority", "analysts")
EPSILON_WORD = re.compile(r"[0-9]+(\.[0-9]+)?")
KIT_VERSION = 2  # of both; the first had no verifying keys and no analysts
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
SITE_NAME = re.compile("[A-Za-z0-9_-]{1,64}")  # of a site, which is also the name of files
SITE_NAME_RULE = "a site's name must have 1 to 64 characters, each a letter, a digit, - or _"
POLL_SECONDS = 0.25  # seconds between two checks of a process
PAUSE = 3.0  # seconds before a process that ended is started again
TAGGED = "superlink.privinf"


# ---- files


def read_bundle(path: Path) -> dict[str, Any]:
    """Return a site's public name, keys, socket and schema (StorageError if they are invalid)."""
    content = _record(path, "a site's bundle", BUNDLE, BUNDLE_FIELDS)
    for field in ("name", "public", "verifying", "node", "socket"):
        if not isinstance(content[field], str):
            raise StorageError(f"{path}: {field} must be a string")
    if not SITE_NAME.fullmatch(content["name"]):
        raise StorageError(f"{path}: {SITE_NAME_RULE}")
    return content


def read_federation(path: Path) -> dict[str, Any]:
    """Return the shared data of a federation's sites (StorageError if the file is invalid)."""
    return _record(path, "a federation", FEDERATION, FEDERATION_FIELDS)


def analysts_of(words: Iterable[str], delta: float | None = None) -> list[dict[str, Any]]:
    """Return analysts given as NAME=KEY, as policies list them; with `delta` a budget may follow, :EPSILON.

    Raises ArgumentError if they are none.
    """
    analysts: list[dict[str, Any]] = []
    for word in words:
        name, sign, key = word.partition("=")
        key, limited, epsilon = key.strip().lower().partition(":")
        if not sign or (limited and (delta is None or not EPSILON_WORD.fullmatch(epsilon))):
            form = "NAME=KEY" if delta is None else "NAME=KEY or NAME=KEY:EPSILON"
            raise ArgumentError(
                f"--analyst {word} must be {form}, with a public key made by 'privinf analyst key'"
            )
        budget = {"budget": {"epsilon": float(epsilon), "delta": delta}} if limited else {}
        analysts.append({"name": name, "key": key, **budget})
    Analyst.listed(analysts)
    return analysts


def _record(path: Path, noun: str, format: str, fields: tuple[str, ...]) -> dict[str, Any]:
    content = verified_record(parse_json(read_text(path, noun), str(path)), noun, fields)
    if (content["format"], content["version"]) != (format, KIT_VERSION):
        raise StorageError(
            f"{path} is not {noun} in a format that this version of privinf reads; "
            "use an intact copy, or make it again with this version"
        )
    return content


def private_text(path: Path, text: str) -> None:
    """Write a new file that only its owner may read."""
    handle = open_secret(path.absolute(), "a secret key", "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with open(handle, "w", encoding="ascii") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


# ---- certificates


def node_key() -> tuple[str, str]:
    """Return a new key of a Flower node, secret and public, as OpenSSH writes them."""
    key = _ec().generate_private_key(_ec().SECP384R1())
    forms = _forms()
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    secret = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption())
    return secret.decode(), public.decode()


def certificates(hosts: list[str], days: int) -> tuple[str, str, str, str]:
    """Return an authority's key and certificate, and a server's that it signed, as PEM.

    Parameters
    ----------
    hosts : list of str
        Names and addresses at which the server is reached.
    days : int
        How long both certificates hold.
    """
    x509 = import_module("cryptography.x509")
    oid = import_module("cryptography.x509.oid")
    authority, server = (_ec().generate_private_key(_ec().SECP256R1()) for _ in range(2))

    def named(text: str) -> Any:
        return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, text)])

    def unsigned(subject: str, key: Any) -> Any:
        now = datetime.now(UTC) - timedelta(minutes=5)  # clocks differ
        builder = (
            x509.CertificateBuilder().subject_name(named(subject)).issuer_name(named("privinf federation"))
        )
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now).not_valid_after(now + timedelta(days=days))

    sha256 = import_module("cryptography.hazmat.primitives.hashes").SHA256()
    usage = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    names = [_alternative(x509, host) for host in hosts]
    subject_id = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    root = (
        unsigned("privinf federation", authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage | {"key_cert_sign": True, "crl_sign": True}), critical=True)
        .add_extension(subject_id, critical=False)
        .sign(authority, sha256)
    )
    leaf = (
        unsigned(hosts[0], server)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(by, critical=False)
        .sign(authority, sha256)
    )
    return _secret(authority), _pem(root), _secret(server), _pem(leaf)


def days_left(pem: str) -> float:
    """Return how many days a certificate still holds; negative after its end."""
    certificate = import_module("cryptography.x509").load_pem_x509_certificate(pem.encode())
    return float((certificate.not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1))


def _alternative(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _secret(key: Any) -> str:
    forms = _forms()
    plain = forms.PrivateFormat.PKCS8, forms.NoEncryption()
    return str(key.private_bytes(forms.Encoding.PEM, *plain).decode())


def _pem(certificate: Any) -> str:
    return str(certificate.public_bytes(_forms().Encoding.PEM).decode())


def _ec() -> Any:
    return import_module("cryptography.hazmat.primitives.asymmetric.ec")


def _forms() -> Any:
    return import_module("cryptography.hazmat.primitives.serialization")


# ---- processes of Flower


def executable(name: str) -> str:
    """Return where a program of Flower is, next to this Python or on the path (NotAvailableError if not)."""
    neighbour = Path(sys.executable).parent / name
    path = str(neighbour) if neighbour.exists() else shutil.which(name)
    if path is None:
        raise NotAvailableError(f"the program {name} is not installed; run pip install 'privinf[flower]'")
    return path


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs: no telemetry, a folder of their own."""
    home.mkdir(mode=0o700, exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": path}


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process and its children; kill them after ten seconds."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signal_number)
            process.wait(10.0)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait()


def flwr(folder: Path, record: Mapping[str, Any], *words: str) -> None:
    """Run Flower's command line against the federation's server (AlignmentError if it fails)."""
    home = folder.absolute() / ".analyst"
    env = environment(home)
    port = record["address"].rpartition(":")[2]
    section: dict[str, Any] = {"address": f"127.0.0.1:{port}"}
    section["root-certificates"] = str(folder.absolute() / "ca.crt")
    for name in reversed(TAGGED.split(".")):
        section = {name: section}
    save_text(home / "config.toml", tomli_w.dumps(section), overwrite=True)
    command = [executable("flwr"), *words[:-1], words[-1].partition(".")[2]]
    ended = subprocess.run(
        command, cwd=home, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    if ended.returncode:
        last = (ended.stdout + ended.stderr).strip().splitlines()[-3:]
        raise AlignmentError(f"Flower's command flwr {words[0]} failed: {' '.join(last)}")


def reachable(address: str) -> bool:
    """Return whether somebody listens at an address, host:port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 1.0):
            return True
    except OSError:
        return False


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stopped_by_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping
