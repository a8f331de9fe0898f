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
from privinf.federation.rounds import PlannedSum
from privinf.typing import Floats


class CheckpointedServer:
    """A server whose questions and releases are written down, and taken up by the fit that goes on.

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
    **Privacy.** Holds questions, releases and ledger lines, which are public. A release that is read back
    costs nothing new: its line is put into the ledger where it is missing there. A round that was under way
    is asked again in the very same words: sites that have charged it answer at no charge, and its line is
    in the ledger once. A trusted server draws new noise for it, the first was seen by nobody; in a secure
    sum the sites send what they sent before. Only sites that fall silent for good make it dearer: without
    them the sum is another one, with fresh masks and a charge of its own.
    """

    def __init__(self, server: TrustedServer, folder: str | os.PathLike[str]) -> None:
        self._server, self._folder = server, Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._whole, self._known = server.ledger, {entry.id for entry in server.ledger.entries}
        self.entries: list[LedgerEntry] = []
        self._asked = 0

    @staticmethod
    def begun(folder: str | os.PathLike[str] | None) -> bool:
        """Return whether a fit has left anything there."""
        return folder is not None and any(Path(folder).glob("*.npz"))

    @property
    def ledger(self) -> Ledger:
        """The account of the next release."""
        return self._server.ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self._server.ledger = ledger

    def vector_sum(self, op: str, args: Mapping[str, Any], *, label: str, mu: float | None) -> NoisySum:
        """Return a release, from the folder if it is there; as for the server."""
        path, under_way = (self._folder / f"{self._asked:05d}{kind}.npz" for kind in ("", "-asked"))
        self._asked += 1
        words = f"{Query(op, args).digest} {label} {mu!r} {self._server.terms}"
        question = hashlib.sha256(words.encode()).hexdigest()
        if path.exists():
            return self._read(path, question)
        planned = _planned(under_way, question) if under_way.exists() else None
        if planned is None:
            planned = self._server.planned(op, args, label=label, mu=mu)
            _write_plan(under_way, question, planned)
        charged, before = planned.entry.id in self._known, len(self._whole.entries)
        found = self._server.release(planned, charged=charged)
        old = tuple(entry for entry in self._whole.entries[:before] if entry.id == planned.entry.id)
        new = (*old, *self._whole.entries[before:])
        self.entries += new
        _write_release(path, question, found, new)
        under_way.unlink()
        return found

    def gram(self, args: Mapping[str, Any], *, label: str, op: str, mu: float | None) -> NoisyGram:
        """Return a symmetric release, from the folder if it is there; as for the server."""
        return NoisyGram.of(self.vector_sum(op, args, label=label, mu=mu))

    def _read(self, path: Path, question: str) -> NoisySum:
        header, arrays = _read_file(path, question)
        try:
            entries = [LedgerEntry.from_dict(record) for record in header["entries"]]
            rows, sites, scale, mu = (header[name] for name in ("rows", "sites", "scale", "mu"))
            found = NoisySum(arrays["values"], rows, tuple(sites), scale, float(mu), tuple(entries))
        except (KeyError, TypeError, ValueError) as problem:
            raise _damaged(path, problem) from None
        for entry in entries:
            if entry.id not in self._known:
                # The door of the moment files it where it belongs.
                self.ledger.spend(replace(entry, scope=()))
        self.entries += entries
        return found


def _write_release(path: Path, question: str, found: NoisySum, entries: tuple[LedgerEntry, ...]) -> None:
    header = {
        "question": question, "rows": found.rows, "sites": list(found.sites), "scale": found.scale,
        "mu": str(found.mu), "entries": [entry.to_dict() for entry in entries],
    }  # fmt: skip
    _write_file(path, header, {"values": found.values})


def _write_plan(path: Path, question: str, planned: PlannedSum) -> None:
    text, arrays = planned.query.pack()
    header = {
        "question": question, "query": text, "asked": list(planned.asked), "scale": planned.scale,
        "mu": str(planned.mu),
    }  # fmt: skip
    _write_file(path, header, {f"arg {name}": array for name, array in arrays.items()})


def _planned(path: Path, question: str) -> PlannedSum:
    header, arrays = _read_file(path, question)
    try:
        args = {name.removeprefix("arg "): array for name, array in arrays.items()}
        query = Query.unpack(header["query"], args)
        return PlannedSum(query, tuple(header["asked"]), header["scale"], float(header["mu"]))
    except (KeyError, TypeError, ValueError) as problem:
        raise _damaged(path, problem) from None


def _read_file(path: Path, question: str) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return a file's header and arrays, if it is about this question."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            arrays = {name: stored[name] for name in stored.files if name != "header"}
        told = header["question"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise _damaged(path, problem) from None
    if told != question:
        raise StorageError(f"{path} is of another fit: give every fit a folder of its own")
    return header, arrays


def _damaged(path: Path, problem: Exception) -> StorageError:
    return StorageError(f"{path} is not a stored release ({type(problem).__name__})")


def _write_file(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Floats]) -> None:
    """Write one file; it is there as a whole, on the disk, or not at all."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
