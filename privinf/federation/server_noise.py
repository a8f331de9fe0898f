"""The noise of a trusted server: its source, its key, and a commitment to the sum noised for each query.

A sum itself is never kept: its commitment is an HMAC under the key, which distinguishes it from others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privinf.accounting import GaussianLoss, LedgerEntry
from privinf.errors import ArgumentError, NotAvailableError, SensitivityError, StorageError
from privinf.federation.messages import Query
from privinf.federation.planned import SUM_TOO_LARGE, PlannedQuery, verified_digest
from privinf.noise import NoiseKey, NoiseSource, grid_step
from privinf.noise.lattice import LARGEST_STEP, LARGEST_SUM
from privinf.storage.folders import SealedLines
from privinf.typing import Floats
from privinf.validation import in_digits
from privinf.wire import Formats, Places

FORMAT = Formats.NOISE_KEY
KEY_FILE_VERSION = 1  # of the file of a noise key
# How messages call the file.
THE_FILE = "the file {}, the secret key from which a fit's noise is drawn,"


def digest_in_folder(query: Query, words: str) -> str:
    """Return the digest of a query in a fit's folder, of its arguments in six digits.

    The linear algebra of the resuming machine can give other last bits in results of earlier
    releases; all else that distinguishes fits, design and settings, is in the folder's own digest, to the bit
    (`fit_digest`).

    Parameters
    ----------
    query : Query
    words : str
        Label, price and terms.

    Notes
    -----
    **Privacy.** Of public queries; stored answers are read back and never computed again.
    """
    rounded = {name: in_digits(value) for name, value in query.args.items()}
    digest = Query(query.op, args=rounded).digest
    return hashlib.sha256(Places.KNOWN_AS.format(digest=digest, words=words).encode()).hexdigest()


class ServerNoise:
    """A noise source, with the memory of the queries that it was drawn for.

    Parameters
    ----------
    source : NoiseSource
        OpenDP's cannot be keyed: it has no memory, and its noise cannot be drawn again.

    Notes
    -----
    **Privacy.** Secret, as the key in its memory is.
    """

    def __init__(self, source: NoiseSource) -> None:
        key = source.new_key()
        self.source = source
        self.memory = None if key is None else NoiseMemory(key, secure=source.secure)

    @property
    def secure(self) -> bool:
        """Whether the noise is secure."""
        return self.source.secure

    def remember(self, path: str | os.PathLike[str], *, begun: bool | None) -> bytes:
        """Keep key and answers in a secret file from now on; errors as for `TrustedServer.remember`."""
        if self.memory is None:
            raise ArgumentError(
                "a secret key file can be used only with the default noise source, because noise from OpenDP "
                "cannot be drawn again: omit rng="
            )
        if len(self.memory):
            raise ArgumentError(
                "call remember(), which sets the secret key file of the noise, before the server's "
                "first release"
            )
        self.memory = NoiseFile(path, self.memory.key, secure=self.secure, begun=begun)
        return self.memory.key.seal()

    def marked(self, entry: LedgerEntry) -> LedgerEntry:
        """Return a ledger line with the fingerprint of the key of its noise."""
        return entry if self.memory is None else self.memory.marked(entry)

    def check_plan(self, planned: PlannedQuery) -> str:
        """Return the digest of a planned query; raise unless it is of this noise, and of its ledger line."""
        entry = planned.entry
        if planned.scale > 0.0 and (entry.secure, entry.source) != (self.secure, self.source.name):
            raise ArgumentError(
                "the release was planned with another noise source; pass the same rng= as before"
            )
        query_digest = verified_digest(planned)
        if (entry.noise.get("scale"), entry.loss) != (planned.scale, GaussianLoss(planned.mu)):
            raise ArgumentError(
                "the noise of the planned release differs from the noise that its ledger entry states; "
                "plan the release again"
            )
        if planned.scale > 0.0 and entry.noise != self.marked(entry).noise:
            raise StorageError(
                "the secret key from which this planned release draws its noise was deleted or "
                "replaced; restore the key file, or make a new release, which is charged again"
            )
        return query_digest

    def check_repeatable(self) -> None:
        """Raise NotAvailableError where the noise of a charged release cannot be drawn again."""
        if self.memory is None:
            raise NotAvailableError(
                "this release was already charged, but its noise comes from OpenDP and cannot be drawn "
                "again; plan a new release, which is charged again"
            )

    def fits(self, query_digest: str, sites: Sequence[str], total: Floats) -> bool:
        """Return whether a query has no noise yet, or was answered by these sites with this sum."""
        return self.memory is None or self.memory.fits(query_digest, sites, total)

    def source_for(self, query: Query, query_digest: str, sites: Sequence[str], total: Floats) -> NoiseSource:
        """Return the noise of one query, which is remembered first."""
        if self.memory is None:
            return self.source
        return self.source.at(self.memory.stream(query, query_digest, sites, total))

    def check_room(self, largest: float, scale: float, limit: float = LARGEST_STEP) -> None:
        """Raise SensitivityError where secure noise is too small for a sum of entries up to `largest`."""
        if scale > 0.0 and self.secure and 2.0 * largest / grid_step(scale) >= limit:
            raise SensitivityError(SUM_TOO_LARGE)


class NoiseMemory:
    """A server's key and its answers, for as long as it lives.

    Parameters
    ----------
    key : NoiseKey
    secure : bool
        Whether it is that of secure noise, not of a seed.

    Notes
    -----
    **Privacy.** Secret, as the key is. Not pickled.
    """

    def __init__(self, key: NoiseKey, *, secure: bool) -> None:
        self.key = key
        self.secure = secure
        self._answers: dict[str, str] = {}

    def fits(self, query_digest: str, roster: Sequence[str], total: Floats) -> bool:
        """Return whether a query is new, or was answered before by these sites with this sum."""
        commitment = self.key.commitment(query_digest, roster, total)
        return self._answers.get(query_digest, commitment) == commitment

    def commit(self, query_digest: str, roster: Sequence[str], total: Floats) -> None:
        """Commit to an answer before its noise is drawn.

        Raises
        ------
        NotAvailableError
            The query was answered before with another sum.
        """
        if not self.fits(query_digest, roster, total):
            raise NotAvailableError(
                "the noise of this query was already used for other sites or for another sum, so it "
                "cannot be used again; send a new query"
            )
        if query_digest not in self._answers:
            self.remember(query_digest, self.key.commitment(query_digest, roster, total))

    def remember(self, query_digest: str, answer: str) -> None:
        """Remember the commitment to an answer."""
        self._write({"question": query_digest, "answer": answer})
        self._answers[query_digest] = answer

    def stream(self, query: Query, query_digest: str, roster: Sequence[str], total: Floats) -> bytes:
        """Return the stream key of an answer, which is remembered first (NotAvailableError as above)."""
        self.commit(query_digest, roster, total)
        if self.secure:
            return self.key.stream(query_digest, roster, total)
        return self.seeded(query.op, query.sequence)

    def seeded(self, purpose: str, sequence: int) -> bytes:
        """Return the stream key of simulation at one place of a session.

        Last bits of sums differ between machines: seeded noise does not depend on them.
        """
        return self.key.stream(Places.STREAM.format(what=purpose, position=sequence), (), np.empty(0))

    def marked(self, entry: LedgerEntry) -> LedgerEntry:
        """Return a line with the fingerprint of the key of its noise, if it has any noise."""
        if float(entry.noise["scale"]) == 0.0:
            return entry
        return entry.filed(entry.id, entry.scope, {**entry.noise, "key": self.key.fingerprint})

    def _write(self, line: Mapping[str, str]) -> None:
        """Make an answer outlive the process: nothing to do in memory."""

    def __len__(self) -> int:
        return len(self._answers)

    def __reduce__(self) -> Any:
        raise TypeError("a server's noise memory holds its secret key and cannot be pickled")


class NoiseFile(NoiseMemory):
    """A server's key and its answers in a secret file, one line of JSON each.

    Parameters
    ----------
    path : path
        Made if it is not there, for its owner alone (mode 0600).
    key : NoiseKey, optional
        Of a file that is made. None: the file must be there, and is used as it is.
    secure : bool, optional
        Whether the key is that of secure noise; None reads it from the file.
    begun : bool, optional
        Whether other files show that noise was drawn, or planned, under the key that is there. True: that
        key is used. False: the file gets `key` instead, and is refused if noise was drawn under its own. By
        default the lines of the file decide: without any it gets `key`.

    Raises
    ------
    StorageError
        The file is damaged, cannot be read or written, or is missing and `key` is None; another account can
        have read, changed or planted it; noise of another fit was drawn under its key.
    ArgumentError
        Its key is that of another kind of noise.

    Notes
    -----
    **Privacy.** Who reads the file can test guesses of every un-noised sum that it was used for: protect it
    as you protect the rows. An answer is on the disk before its noise is drawn. Every line has an HMAC under
    the key; a last line that is not whole was never answered, and is taken away. A key that was found is
    used only if noise was drawn under it: the first noise is drawn under a key that this process has made,
    so that nobody can plant one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: NoiseKey | None = None,
        *,
        secure: bool | None = None,
        begun: bool | None = None,
    ) -> None:
        self.path = Path(path)
        memory = self._load(None if begun is False else secure) if os.path.lexists(self.path) else None
        if memory is None and (key is None or secure is None or begun):
            raise StorageError(
                f"{THE_FILE.format(self.path)} is missing; "
                "restore it, or start the fit again in an empty folder"
            )
        if memory is not None and len(memory) and begun is False:
            raise StorageError(
                f"{THE_FILE.format(self.path)} belongs to "
                "another fit, or the other files of its fit are missing; use a separate folder for "
                "each fit"
            )
        used = memory is not None and (key is None or begun or (begun is None and len(memory) > 0))
        if not used and key is not None and secure is not None:
            header = {
                "format": FORMAT,
                "version": KEY_FILE_VERSION,
                "key": key.secret_bytes().hex(),
                "secure": secure,
            }
            try:
                SealedLines.create(self.path, header, key.seal())
            except OSError as problem:
                raise StorageError(
                    f"{THE_FILE.format(self.path)} cannot be created ({problem.strerror}); check its folder, "
                    "the permissions and the disk's free space"
                ) from None
            memory = self._load(secure)
        assert memory is not None
        super().__init__(memory.key, secure=memory.secure)
        self._answers = memory._answers

    def _load(self, secure: bool | None) -> NoiseMemory:
        """Return the contents of the file (errors as for the class)."""
        self._file = SealedLines(self.path, lambda secret: NoiseKey(bytes.fromhex(secret)).seal())
        memory = _memory_of(self._file)
        if memory is None:
            raise StorageError(
                f"{THE_FILE.format(self.path)} is damaged, "
                "or this version of privinf cannot read it; restore it, or start the fit again in an "
                "empty folder"
            )
        if secure is not None and memory.secure is not secure:
            raise ArgumentError(
                f"{THE_FILE.format(self.path)} was made with "
                "another noise source; pass the same rng= as before"
            )
        return memory

    def _write(self, line: Mapping[str, str]) -> None:
        try:
            self._file.append(line)
        except OSError as problem:
            raise StorageError(
                f"{THE_FILE.format(self.path)} cannot be written ({problem.strerror}); check the disk's free "
                "space"
            ) from None


def _memory_of(file: SealedLines) -> NoiseMemory | None:
    """Return the key and the answers in a file, None if it is damaged or of another version."""
    header = file.header
    try:
        if header is None or (header["format"], header["version"]) != (FORMAT, KEY_FILE_VERSION):
            return None
        memory = NoiseMemory(NoiseKey(bytes.fromhex(header["key"])), secure=header["secure"])
        memory._answers = {line["question"]: line["answer"] for line in file.lines}
    except (KeyError, TypeError):
        return None
    return memory if len(memory) == len(file.lines) else None


def bind_rows(path: Path, digest: Callable[[bytes], str], *, begun: bool) -> None:
    """Keep in a secret file which rows, in which order, a fit is of; `digest` makes theirs under a key.

    A file of a fit that has not `begun` is replaced: nothing was drawn from the rows that it is of.

    Raises
    ------
    StorageError
        The file is of other rows, is damaged, or cannot be written; it is missing though the fit has begun;
        or another account could have read, changed or planted it.
    """
    is_there = os.path.lexists(path)
    if begun and not is_there:
        raise StorageError(
            f"the file {path}, which holds a checksum of the fit's rows and their order, is missing; restore "
            "it, or start the fit again in an empty folder"
        )
    if not begun and is_there:
        NoiseFile(path)  # refuses one that is not safe
        path.unlink()
    memory = NoiseFile(path, NoiseKey(), secure=True)
    answer = digest(memory.key.seal())
    if memory._answers.get("rows", answer) != answer:
        raise StorageError(
            f"the checkpoint folder {path.parent} belongs to a fit with other rows, or with these "
            "rows in another order; pass the same rows as before, or a new folder"
        )
    if not len(memory):
        memory.remember("rows", answer)


def perturbed(total: Floats, scale: float, largest: float, source: NoiseSource) -> Floats:
    """Return a sum of entries up to `largest` with its noise; sums of many rows as integers of 62 digits."""
    step = grid_step(scale)
    if not source.secure or 2.0 * largest < step * LARGEST_STEP:
        return source.perturb(total, scale)
    steps = np.clip(np.rint(total / step), -LARGEST_SUM, LARGEST_SUM).astype(np.int64)
    return np.asarray(source.gaussian_steps(steps, scale / step) * step, dtype=np.float64)
