"""Releases of a fit kept in a folder, so that a stopped fit goes on without asking or paying again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privinf.accounting import Ledger, LedgerEntry
from privinf.errors import StorageError
from privinf.federation import NoisyGram, NoisySum, Query, TrustedServer


class CheckpointedServer:
    """A server whose releases are written down, one file each, and read back by the fit that goes on.

    Parameters
    ----------
    server : TrustedServer
    folder : path
        Made if it is not there. Of one fit: the questions in it must be those that the fit asks.

    Raises
    ------
    StorageError
        A file is damaged, or belongs to another fit.

    Notes
    -----
    **Privacy.** Holds releases and ledger lines, which are public. A release that is read back costs nothing
    new: its line is put into the ledger where it is missing there. A round that was charged and not written
    down when the fit stopped is asked, and charged, again.
    """

    def __init__(self, server: TrustedServer, folder: str | os.PathLike[str]) -> None:
        self._server, self._folder = server, Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._whole, self._known = server.ledger, {entry.id for entry in server.ledger.entries}
        self.entries: list[LedgerEntry] = []
        self._asked = 0

    @property
    def ledger(self) -> Ledger:
        """The account of the next release."""
        return self._server.ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self._server.ledger = ledger

    def vector_sum(self, op: str, args: Mapping[str, Any], *, label: str, mu: float | None) -> NoisySum:
        """Return a release, from the folder if it is there; as for the server."""
        found: NoisySum = self._release("sum", op, args, label, mu)
        return found

    def gram(self, args: Mapping[str, Any], *, label: str, op: str, mu: float | None) -> NoisyGram:
        """Return a symmetric release, from the folder if it is there; as for the server."""
        found: NoisyGram = self._release("gram", op, args, label, mu)
        return found

    def _release(self, kind: str, op: str, args: Mapping[str, Any], label: str, mu: float | None) -> Any:
        path = self._folder / f"{self._asked:05d}.npz"
        self._asked += 1
        asked = f"{Query(op, args).digest} {label} {mu!r} {self._server.relation}"
        question = hashlib.sha256(asked.encode()).hexdigest()
        if path.exists():
            return self._read(path, kind, question)
        before = len(self._whole.entries)
        if kind == "sum":
            found: NoisySum | NoisyGram = self._server.vector_sum(op, args, label=label, mu=mu)
        else:
            found = self._server.gram(args, label=label, op=op, mu=mu)
        new = self._whole.entries[before:]
        self.entries += new
        _write(path, kind, question, found, new)
        return found

    def _read(self, path: Path, kind: str, question: str) -> NoisySum | NoisyGram:
        try:
            with np.load(path, allow_pickle=False) as stored:
                values, header = stored["values"], json.loads(str(stored["header"]))
            entries = [LedgerEntry.from_dict(record) for record in header["entries"]]
            told = [header[name] for name in ("question", "kind", "rows", "sites", "scale", "mu")]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise StorageError(f"{path} is not a stored release ({type(problem).__name__})") from None
        if told[:2] != [question, kind]:
            raise StorageError(f"{path} is of another fit: give every fit a folder of its own")
        for entry in entries:
            if entry.id not in self._known:
                # The door of the moment files it where it belongs.
                self.ledger.spend(replace(entry, scope=()))
        self.entries += entries
        rows, sites, scale, mu = told[2:]
        return (NoisySum if kind == "sum" else NoisyGram)(values, rows, tuple(sites), scale, float(mu))


def _write(path: Path, kind: str, question: str, found: Any, entries: tuple[LedgerEntry, ...]) -> None:
    """Write one release; the file is there as a whole, on the disk, or not at all."""
    header = {
        "question": question, "kind": kind, "rows": found.rows, "sites": list(found.sites),
        "scale": found.scale, "mu": str(found.mu), "entries": [entry.to_dict() for entry in entries],
    }  # fmt: skip
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, values=found.values, header=np.array(json.dumps(header)))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
