"""Releases of a fit kept in a folder, so that a stopped fit goes on without asking or paying again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from privinf.accounting import Ledger, LedgerEntry, Loss
from privinf.accounting.scopes import total_of
from privinf.errors import PrivinfError, StorageError
from privinf.federation import NoisyGram, NoisySum, Query, TrustedServer
from privinf.federation.planned import PlannedQuery
from privinf.federation.server_noise import NoiseFile, digest_in_folder
from privinf.schema import Design
from privinf.storage.checksummed import reads
from privinf.storage.folders import OTHER_FIT, SealedFolder
from privinf.typing import Floats
from privinf.validation import check_array, check_count, check_number, check_positive
from privinf.wire import Places, plan_text

KEY_FILE = "noise.key"
ROWS_FILE = "rows.key"
HEADS_FILE = "heads.json"
RESERVATION = "reservation.npz"
OURS = re.compile(r"\d{5}(-asked)?\.npz")  # names of the files of a fit
CHARGES_STAND = (
    "Charges made so far are kept; when all files are in {} and it can be written, repeat the call to resume "
    "without paying again"
)
# What rounding of the prices may leave over: the ledger itself is exact.
SPENT = 1.0 - 1e-9


class FitFolder:
    """The folder of one fit: its queries and releases, and the secret key of a trusted server's noise.

    Parameters
    ----------
    path : path
    fit : str
        Identity of the fit: a digest of its public settings.
    keyed : bool
        Whether a trusted server draws the noise, whose key is in the folder.

    Raises
    ------
    StorageError
        A file is damaged or of another fit, or the key is gone; or another account can write to the folder,
        or can have read, changed or planted a file in it.

    Notes
    -----
    **Privacy.** With ``keyed`` the folder is a secret, see `NoiseFile`: it and its files are made for their
    owner alone, and the files have an HMAC under the key. Files with other names are left alone. A key that
    is found is used only where a query or a release in the folder, of this very fit, has its HMAC; where
    no query was made yet, the fit makes its own.
    """

    def __init__(self, *, path: Path, fit: str, keyed: bool) -> None:
        self.files = SealedFolder(path=path, identity=fit)
        self.keyed = keyed
        # Whether this run has begun the fit and has charged nothing: a refusal then leaves no files.
        self._only_begun = False
        self._lines: list[LedgerEntry] = []
        names = self.files.names(OURS)
        if names and (keyed or self.files.has(KEY_FILE)):
            self.files.seal = self._stored_seal()
        for name in names:
            self._lines.append(_lines_of(path / name, self.files.read(name)[0])[-1])

    def _stored_seal(self) -> bytes:
        """Return the key of the files' HMAC, which follows from the stored key of the noise."""
        return NoiseFile(self.files.path / KEY_FILE).key.seal()

    def begin(self, server: TrustedServer) -> None:
        """Make the folder if it is not there, and let a server take up its noise key.

        Raises
        ------
        StorageError
            Another run is at work in the folder, it is of other rows of the caller's, or it cannot be made;
            or another account can write to it, or can have read, changed or planted a file in it.
        """
        files = self.files
        files.take()
        has_rounds = bool(files.names(OURS))
        reserved = None if has_rounds else self._reserved_before(server)
        server.bind(files.path / ROWS_FILE, begun=has_rounds)
        if self.keyed:
            files.seal = server.remember(files.path / KEY_FILE, begun=has_rounds)
        if reserved is not None:
            files.write(RESERVATION, reserved, {})
        if server.heads is not None and not server.heads.has_file:
            server.heads.keep_in(files.path / HEADS_FILE)
        self._only_begun = not has_rounds and reserved is None

    @property
    def only_begun(self) -> bool:
        """Whether this run has made all files of the fit, and nothing can have been charged for it."""
        return self._only_begun

    @contextmanager
    def charging(self, ledger: Ledger) -> Iterator[None]:
        """Keep the files if the block, which makes a release, may have charged it.

        Releases are recorded in the fit's own ledger before any site is queried. A refusal without a new line
        in the ledger has therefore charged nothing. An error about a file proves nothing: it may be that of
        the ledger.
        """
        only_begun, before = self._only_begun, len(ledger.entries)
        self._only_begun = False
        try:
            yield
        except StorageError:
            raise
        except PrivinfError:
            self._only_begun = only_begun and len(ledger.entries) == before
            raise

    def discard(self) -> None:
        """Remove the files of a fit that was refused before its first charge."""
        for name in (*self.files.names(OURS), RESERVATION, KEY_FILE, ROWS_FILE):
            if self.files.has(name):
                self.files.remove(name)
        self._only_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.files.release()

    def unspent(self, mu: float, ledger: Ledger) -> float:
        """Return the part of a fit's cost `mu` that its own complete lines in a ledger do not cover."""
        if math.isinf(mu):
            return mu
        standing = {entry.id: entry for entry in ledger.entries}
        # A run that was killed between two files has left a query beside its release: one line, in both.
        own = {line.id: line for line in self._lines}
        # A line is itself wherever in the ledger it was filed.
        pairs = ((standing[id_], line) for id_, line in own.items() if id_ in standing)
        entries = [entry for entry, line in pairs if replace(entry, scope=()) == replace(line, scope=())]
        if not entries:
            return mu
        rest = mu**2 - total_of((entry.scope, entry.loss) for entry in entries).mu ** 2
        return math.sqrt(rest) * SPENT if rest > mu**2 * (1.0 - SPENT) else 0.0

    def reservation(self) -> tuple[str, int]:
        """Return the name of the fit's reservation and the number of this run, counted from 0; count the run.

        Raises StorageError if the fit has releases and no reservation.
        """
        if self.files.has(RESERVATION):
            name, run = _named(self.files.read(RESERVATION)[0])
            run += 1
        elif self._lines:
            raise StorageError(
                f"the file {self.files.path / RESERVATION} is missing, or the fit was begun by a version of "
                "privinf that did not write it; restore the file, or start the fit again in an empty folder"
            )
        else:
            name = str(uuid4())
            run = 0
        self.files.write(RESERVATION, {"name": name, "run": run}, {})
        return name, run

    def _reserved_before(self, server: TrustedServer) -> dict[str, Any] | None:
        """Return the reservation of a run that was stopped before its first query, None if it made none.

        The key under which its file was written is about to be replaced. Without a query in the folder
        nothing was charged on it: that of another fit is ended at the sites, and its file removed.
        StorageError if noise was drawn under the key in the folder: files are missing.
        """
        files = self.files
        header: dict[str, Any] | None = None
        if files.has(KEY_FILE) and len(NoiseFile(files.path / KEY_FILE)):
            raise StorageError(OTHER_FIT.format(files.path / KEY_FILE))
        if files.has(RESERVATION):
            files.seal = self._stored_seal() if files.has(KEY_FILE) else None
            header, _ = files.read_of_any(RESERVATION)
            files.seal = None
            is_own = files.owns(header)
            if not is_own:
                name, run = _named(header)
                server.give_back(2 * run + 2, name)
            if self.keyed or not is_own:
                files.remove(RESERVATION)
            header = header if is_own else None
        if not self.keyed and files.has(KEY_FILE):  # of another fit, whose server would have drawn the noise
            files.remove(KEY_FILE)
        return header


def fit_digest(design: Design, model: Mapping[str, Any], *settings: object) -> str:
    """Return the identity of a fit: its design, its model's arguments, its public settings."""
    content = {Places.OF_MODEL.format(name=name): value for name, value in model.items()}
    content |= {Places.OF_SETTING.format(position=at): plan_text(value) for at, value in enumerate(settings)}
    return Query(Places.FIT, args=content, design=design.digest).digest


def has_rounds(path: str | PathLike[str]) -> bool:
    """Return whether a folder has a query or a release of a fit."""
    return any(OURS.fullmatch(place.name) for place in Path(path).glob("*"))


def _named(header: Mapping[str, Any]) -> tuple[str, int]:
    """Return the name in the file of a reservation, and the number of its run."""
    return str(header["name"]), check_count(header["run"], "run", least=0)


class CheckpointedServer:
    """A server whose queries and releases are written to a folder, from which a stopped fit resumes.

    Parameters
    ----------
    server : TrustedServer
    folder : FitFolder
        Made if absent. It belongs to one fit: its queries must be those of the fit.

    Raises
    ------
    ArgumentError
        The server's noise cannot be keyed, or is of another kind than the folder's.
    StorageError
        A file is damaged, or belongs to another fit.

    Notes
    -----
    **Privacy.** Holds queries, releases and ledger lines, which are public, and the key of a trusted
    server's noise, which is secret. A release that is read back costs nothing new: its line is put into the
    ledger where it is missing there. A round that was under way is repeated with the identical query: sites
    that have charged it answer at no charge, and its line is in the ledger once. Whatever is deleted or
    brought back, the same query has the same answer: the noise of a trusted server belongs to its
    query, and in a secure sum the sites send what they sent before. Only sites that fall silent for good
    make it dearer: without them the sum is another one, with a charge of its own.
    """

    def __init__(self, server: TrustedServer, folder: FitFolder) -> None:
        self._server = server
        self._folder = folder
        self._files = folder.files
        folder.begin(server)
        self.entries: list[LedgerEntry] = []
        self._query_count = 0
        self._price: Sequence[Loss] = ()
        self._position = 0

    @property
    def ledger(self) -> Ledger:
        """The account of the next release."""
        return self._server.ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self._server.ledger = ledger

    @contextmanager
    def reserving(self, losses: Sequence[Loss]) -> Iterator[None]:
        """Reserve the cost of the fit before its first query that the folder does not answer.

        The name of the reservation is in the folder, so that a fit that was stopped goes on under it: only
        a complete one returns its unused amount, and one that was refused before its first charge. The latter
        leaves no files, unless a site may still hold an amount. Errors as for `TrustedServer.reserving`.
        """
        self._price = losses
        try:
            yield
        except PrivinfError:
            if self._folder.only_begun and self._server.give_back(self._position + 1):
                self._folder.discard()
            raise
        self._server.give_back(self._position + 1)

    def _reserve(self) -> None:
        """Reserve once in this run."""
        name, run = self._folder.reservation()
        if self._price:
            self._position = 2 * run + 1
            self._server.reserve(self._price, name, self._position)
        self._price = ()

    def vector_sum(self, op: str, args: Mapping[str, Any], *, label: str, mu: float | None) -> NoisySum:
        """Return a release, from the folder if it is there; as for the server."""
        name, under_way = (f"{self._query_count:05d}{kind}.npz" for kind in ("", "-asked"))
        self._query_count += 1
        digest = digest_in_folder(
            Query(op, args=args),
            Places.QUESTION_OF_FIT.format(label=label, mu=mu, terms=self._server.terms),
        )
        if self._files.has(name):
            self._server.skip()
            return self._stored_release(name, digest, self._server.shape(op, args))
        with self._lasting():
            self._reserve()
            if self._files.has(under_way):
                planned = _planned(self._files, under_way, digest)
            else:
                planned = self._server.planned(op, args, label=label, mu=mu)
                _write_plan(self._files, under_way, digest, planned)
            with self._folder.charging(self.ledger):
                noisy = self._server.release(planned)
            self.entries += noisy.entries
            _write_release(self._files, name, digest, noisy)
            self._files.remove(under_way)
        return noisy

    @contextmanager
    def _lasting(self) -> Iterator[None]:
        """Add the charges, and how to resume, to an error about a file that cannot be written."""
        before = len(self.ledger.entries)
        try:
            yield
            return
        except StorageError as problem:
            if not self.entries and len(self.ledger.entries) == before:
                raise
            error = StorageError(f"{problem}. {CHARGES_STAND.format(self._files.path)}")
        raise error

    def gram(self, args: Mapping[str, Any], *, label: str, op: str, mu: float | None) -> NoisyGram:
        """Return a symmetric release, from the folder if it is there; as for the server."""
        return NoisyGram.from_sum(self.vector_sum(op, args, label=label, mu=mu))

    def _stored_release(self, name: str, digest: str, shape: tuple[int, ...]) -> NoisySum:
        header, arrays = _of_query(self._files, name, digest)
        entries = _lines_of(self._files.path / name, header)
        noisy = _released(header, arrays, entries, shape)
        for entry in entries:
            # The current ledger files it under its own scope.
            line = replace(entry, scope=())
            if self.ledger.find(line) is None:
                self.ledger.spend(line)
        self.entries += entries
        return noisy


@reads("a release of a fit")
def _released(
    header: Mapping[str, Any],
    arrays: Mapping[str, Floats],
    entries: tuple[LedgerEntry, ...],
    shape: tuple[int, ...],
) -> NoisySum:
    values = check_array(arrays["values"], "values", ndim=len(shape))
    scale = check_number(header["scale"], "scale", low=0.0)
    mu = check_positive(float(header["mu"]), "mu", infinite=True)
    if values.shape != shape or not all(isinstance(site, str) for site in header["sites"]):
        raise StorageError(
            "the stored release has arrays of another shape than this fit needs; use a separate "
            "checkpoint folder for each fit"
        )
    rows = check_count(header["rows"], "rows")
    return NoisySum(
        values=values, rows=rows, sites=tuple(header["sites"]), scale=scale, mu=mu, entries=entries
    )


def _write_release(files: SealedFolder, name: str, digest: str, released: NoisySum) -> None:
    header = {
        "question": digest,
        "rows": released.rows,
        "sites": list(released.sites),
        "scale": released.scale,
        "mu": str(released.mu),
        "entries": [entry.to_dict() for entry in released.entries],
    }
    files.write(name, header, {"values": released.values})


def _write_plan(files: SealedFolder, name: str, digest: str, planned: PlannedQuery) -> None:
    text, arrays = planned.query.pack()
    header = {
        "question": digest,
        "query": text,
        "asked": list(planned.sites),
        "scale": planned.scale,
        "mu": str(planned.mu),
        "entries": [planned.entry.to_dict()],
    }
    files.write(name, header, {f"arg/{name}": array for name, array in arrays.items()})


def _planned(files: SealedFolder, name: str, digest: str) -> PlannedQuery:
    header, arrays = _of_query(files, name, digest)
    try:
        return _unpacked(header, arrays)
    except PrivinfError:
        raise _damaged(files.path / name) from None


@reads("a planned release")
def _unpacked(header: Mapping[str, Any], arrays: Mapping[str, Floats]) -> PlannedQuery:
    args = {name.removeprefix("arg/"): array for name, array in arrays.items()}
    query = Query.unpack(header["query"], args)
    mu = check_positive(float(header["mu"]), "mu", infinite=True)
    return PlannedQuery(query, tuple(header["asked"]), check_number(header["scale"], "scale", low=0.0), mu)


def _of_query(files: SealedFolder, name: str, digest: str) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return a file's header and arrays if they belong to this query."""
    header, arrays = files.read(name)
    if header.get("question") != digest:
        raise StorageError(OTHER_FIT.format(files.path / name))
    return header, arrays


def _lines_of(path: Path, header: Mapping[str, Any]) -> tuple[LedgerEntry, ...]:
    """Return the ledger lines of a release; the last one is that of its answer."""
    try:
        lines = tuple(LedgerEntry.from_dict(record) for record in header["entries"])
    except (KeyError, TypeError, ValueError, PrivinfError):
        lines = ()
    if not lines:
        raise _damaged(path)
    return lines


def _damaged(path: Path) -> StorageError:
    return StorageError(f"the stored release {path} is damaged, or was written by another version of privinf")
