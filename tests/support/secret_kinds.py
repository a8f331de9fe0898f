"""Every kind of secret file: how it is made and used; and attacks by keys that somebody else has planted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import privinf as pi
from privinf.accounting import Budget, Ledger
from privinf.accounting.journal import Anchor
from privinf.cli.deployment import node_key, private_text
from privinf.cli.holders import _node
from privinf.errors import StorageError
from privinf.federation import IdentityKey, SiteLedger
from privinf.federation.askers import HeadMemory
from privinf.federation.server_noise import NoiseFile
from privinf.federation.site_ledger import read_site_ledger
from privinf.noise import LatticeNoise, NoiseKey
from privinf.storage.checksummed import checksummed_json

# The secret of a key that somebody has planted.
PLANTED = bytes(range(32))
OTHER = 12345  # the number of an account that is not the caller's
LIMIT = Budget(mu=100.0)
MU = 1.0
BOUNDS = [(-1.0, 1.0)] * 2


def rows(seed: int = 0) -> tuple[Any, Any]:
    """Return a response and columns of a small table."""
    X = np.random.default_rng(seed).uniform(-1.0, 1.0, (200, 2))
    return (X[:, 0] + X[:, 1] > 0.2).astype(float), X


def fit(folder: Path, seed: int = 0, ledger: Ledger | None = None) -> Any:
    """Fit a model to these rows, with a checkpoint."""
    model = pi.GLM(*rows(seed), bounds=BOUNDS, family="binomial", ledger=ledger)
    return model.fit(mu=MU, optimizer=pi.DPSGD(epochs=1, batches=2, step=1.0), checkpoint=folder)


@dataclass(frozen=True, kw_only=True)
class SecretFile:
    """A kind of secret file.

    Attributes
    ----------
    kind : str
        "key" or "ledger".
    make : callable
        Makes everything in an empty folder, and returns where the secret file is.
    use : callable
        Opens the file as the package does.
    """

    kind: str
    make: Callable[[Path], Path]
    use: Callable[[Path], object]


def _of_fit(name: str, kind: str = "key") -> SecretFile:
    def make(folder: Path) -> Path:
        fit(folder / "fit")
        return folder / "fit" / name

    return SecretFile(kind=kind, make=make, use=lambda path: fit(path.parent))


def _anchor_of(path: Path) -> Path:
    place = path.parent.parent / "anchors" / path.name
    place.parent.mkdir(exist_ok=True, mode=0o700)
    return place


def _inner(folder: Path) -> Path:
    inner = folder / "inner"
    inner.mkdir(mode=0o700, exist_ok=True)
    return inner


def _made_anchor(folder: Path) -> Path:
    return _anchor_of(_made_ledger(folder))


def _made_ledger(folder: Path) -> Path:
    path = _inner(folder) / "study.ledger"
    pi.LedgerFile.create(path, LIMIT, anchor=_anchor_of(path))
    return path


def _made_site_ledger(folder: Path) -> Path:
    path = _inner(folder) / "site.ledger"
    SiteLedger(path, LIMIT, anchor=_anchor_of(path)).close()
    return path


def _made_key(folder: Path) -> Path:
    path = _inner(folder) / "north.key"
    IdentityKey().save(path)
    return path


def _made_node_key(folder: Path) -> Path:
    path = _inner(folder) / "node.key"
    private_text(path, node_key()[0])
    return path


def _used_node_key(path: Path) -> None:
    site = {"node_key": path.name, "name": "north", "socket": str(path.parent / "none")}
    with _node(path.parent, site, {"authority": "", "address": "127.0.0.1:1"}):
        pass


def _made_noise_key(folder: Path) -> Path:
    path = _inner(folder) / "server.key"
    NoiseFile(path, NoiseKey(), secure=True).commit("question", ("north",), np.zeros(1))
    return path


def _made_heads(folder: Path) -> Path:
    path = _inner(folder) / "heads.json"
    path.write_text(checksummed_json({"format": "privinf-heads", "version": 1, "heads": {}}))
    path.chmod(0o600)
    return path


def _used_anchor(path: Path) -> object:
    return len(pi.LedgerFile(path.parent.parent / "inner" / path.name, anchor=path))


SECRETS = {
    "noise.key of a fit": _of_fit("noise.key"),
    "rows.key of a fit": _of_fit("rows.key"),
    "release of a fit": _of_fit("00000.npz", "ledger"),
    "noise key of a server": SecretFile(
        kind="key",
        make=_made_noise_key,
        use=lambda path: NoiseFile(path, NoiseKey(), secure=True),
    ),
    "noise key that is written to": SecretFile(
        kind="key",
        make=_made_noise_key,
        use=lambda path: NoiseFile(path).commit("another", ("north",), np.zeros(1)),
    ),
    "identity key": SecretFile(kind="key", make=_made_key, use=IdentityKey.load),
    "node key": SecretFile(kind="key", make=_made_node_key, use=_used_node_key),
    "ledger": SecretFile(
        kind="ledger",
        make=_made_ledger,
        use=lambda path: len(pi.LedgerFile(path, anchor=_anchor_of(path))),
    ),
    "site's ledger": SecretFile(
        kind="ledger",
        make=_made_site_ledger,
        use=lambda path: SiteLedger.open(path, anchor=_anchor_of(path)).close(),
    ),
    "site's ledger that is looked at": SecretFile(
        kind="ledger", make=_made_site_ledger, use=read_site_ledger
    ),
    "anchor": SecretFile(kind="ledger", make=_made_anchor, use=_used_anchor),
    "anchor that is read": SecretFile(
        kind="ledger",
        make=_made_anchor,
        use=lambda path: Anchor.for_journal(
            (path.parent.parent / "inner" / path.name).resolve(), path
        ).read(),
    ),
    "heads of ledgers": SecretFile(kind="ledger", make=_made_heads, use=HeadMemory),
}

# ---- what can be wrong with a file, and what the message says and advises


def mode_too_open(path: Path, kind: str) -> None:
    path.chmod(0o620 if kind == "ledger" else 0o640)


def symbolic_link(path: Path, kind: str) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def dangling_link(path: Path, kind: str) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def hard_link(path: Path, kind: str) -> None:
    os.link(path, path.with_name("second"))


def pipe(path: Path, kind: str) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def directory(path: Path, kind: str) -> None:
    path.unlink()
    path.mkdir(0o700)


def other_owner(path: Path, kind: str) -> None:
    os.chown(path, OTHER, -1)


def open_folder(path: Path, kind: str) -> None:
    path.parent.chmod(0o757)


def sticky_folder(path: Path, kind: str) -> None:
    path.parent.chmod(0o1777)


def folder_of_a_group(path: Path, kind: str) -> None:
    os.chown(path.parent, -1, OTHER)
    path.parent.chmod(0o770)


def folder_of_another(path: Path, kind: str) -> None:
    os.chown(path.parent, OTHER, -1)


FAULTS = {
    mode_too_open: (r"accessible to other accounts \(mode 6[24]0\)", "chmod 600 {path}"),
    symbolic_link: ("symbolic link", "rm {path}"),
    dangling_link: ("symbolic link", "rm {path}"),
    hard_link: ("one of 2 hard links", "cp -p {path}"),
    pipe: ("not a regular file", "pass the path of a file"),
    directory: ("not a regular file", "pass the path of a file"),
    other_owner: (f"belongs to account {OTHER}", "chown [0-9]+ {path}"),
    open_folder: (r"other accounts can change the folder .*\(mode 757\)", "chmod go-w {folder}"),
    sticky_folder: (r"other accounts can change the folder .*\(mode 1777\)", "mkdir -m 700"),
    folder_of_a_group: (r"other accounts can change the folder .*\(mode 770\)", "chmod go-w {folder}"),
    folder_of_another: (f"belongs to account {OTHER}", "mkdir -m 700"),
}
GIVEN_AWAY = {other_owner, folder_of_a_group, folder_of_another}


def safe_against_all(folder: Path) -> list[str]:
    """Return what can be wrong with an identity key, and with a ledger, and is not refused."""
    found = []
    for name in ("identity key", "ledger"):
        for spoil in FAULTS:
            if spoil in GIVEN_AWAY and os.geteuid():
                continue
            secret, place = SECRETS[name], folder / name / spoil.__name__
            place.mkdir(parents=True, mode=0o700)
            path = secret.make(place)
            spoil(path, secret.kind)
            try:
                secret.use(path)
            except StorageError:
                continue
            found.append(f"{name}: {spoil.__name__}")
    return found


# ---- attacks: what a planter has who knows the key


def planted_key(path: Path, mode: int) -> None:
    """Write the file of a key that its planter knows, under which nothing was drawn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    NoiseFile(path, NoiseKey(PLANTED), secure=True)
    path.chmod(mode)


def refits_under_a_planted_key(folder: Path, *, linked: bool) -> list[str]:
    """Plant a key where a fit will keep its own; return what its planter then learns of the rows.

    Parameters
    ----------
    folder : Path
        Empty.
    linked : bool
        Whether the key is behind a link, and open to others, as is the folder of the fit.
    """
    victim = folder / "fit"
    victim.mkdir()
    if linked:
        planted_key(folder / "key", 0o666)
        (victim / "noise.key").symlink_to(folder / "key")
        victim.chmod(0o777)
    else:
        planted_key(victim / "noise.key", 0o600)
    try:
        released = fit(victim).params.to_numpy()
    except StorageError:
        return []
    found = []
    with patch.object(LatticeNoise, "new_key", lambda source: NoiseKey(PLANTED)):
        for seed in (0, 1):  # the tables that the planter tries; the first one is that of the victim
            if np.array_equal(fit(folder / str(seed), seed).params.to_numpy(), released):
                found.append(f"the planter's table {seed} gives the released coefficients to the bit")
    return found
