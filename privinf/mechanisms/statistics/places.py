"""Holding every pass over a holder's rows to the first one, where a price depends on the places of rows.

Batches are drawn by the places of records, and the releases of different batches compose in parallel: a
record pays for its own batch alone. That is right only if a record is in the same batch in every pass. So the
first pass keeps a digest of the rows of every batch, in their order, and each later pass over a batch must
read the same rows. The release is then a function of the table that the first pass read. Only the rows
of the requested batch are hashed again.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np

from privinf.errors import AlignmentError
from privinf.typing import Floats, Integers

# Arrays of fewer bytes, which others can write into, are copied; larger ones are held to a digest.
COPIED_BYTES = 1 << 26
# Most batches that have a digest each: with more, one digest is of all rows, in every pass.
MOST_BATCHES = 1 << 12
DIGEST_KEY_BYTES = 32  # of the digests' key, which no other process knows
DIGEST_BYTES = 32  # of a batch
ROWS_MOVED = (
    "the rows of the table, or their order, have changed since the table was first read. "
    "Batches depend on the row order, so nothing more is released. Start again with a "
    "table that nobody writes to"
)


class BatchDigests:
    """Digests of the rows of every batch, as the first pass over a table read them.

    Notes
    -----
    **Privacy.** Digests are functions of raw rows, under a key that is thrown away with them: they stay in
    the process of the holder, is neither pickled nor shown.
    """

    __slots__ = ("_first", "_key")

    def __init__(self) -> None:
        self._key = secrets.token_bytes(DIGEST_KEY_BYTES)
        self._first: dict[str, dict[int, bytes]] = {}

    def batch(self, partition: str, batches: int, number: int) -> BatchPass:
        """Return the part of the rows in one pass: a batch of a partition."""
        return BatchPass(self, partition, batches, number)

    def hasher(self) -> Any:
        """Return an empty keyed hash."""
        return hashlib.blake2b(key=self._key, digest_size=DIGEST_BYTES)

    def first(self, partition: str) -> dict[int, bytes] | None:
        """Return the digests of a partition's batches; None before its first pass has ended."""
        return self._first.get(partition)

    def keep(self, partition: str, digests: dict[int, bytes]) -> None:
        """Keep the digests of the first pass."""
        self._first[partition] = digests

    def __repr__(self) -> str:
        return "<BatchDigests, not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("digests of raw rows cannot be pickled: pickle the release or the result instead")


class BatchPass:
    """One pass over all rows for one batch: its rows are selected and hashed, and compared at the end.

    Made by `BatchDigests.batch`. Blocks come in the order of the rows, each once, of any size.

    Notes
    -----
    **Privacy.** The hashes are of the same copy of the rows that is summed.
    """

    __slots__ = ("_digests", "_first_digests", "_hashers", "_number", "_partition", "_together")

    def __init__(self, digests: BatchDigests, partition: str, batches: int, number: int) -> None:
        self._digests = digests
        self._partition = partition
        self._number = number
        self._first_digests = digests.first(partition)
        self._together = batches > MOST_BATCHES
        self._hashers: dict[int, tuple[Any, Any]] = {}

    def rows(self, codes: Integers, features: Floats, response: Floats) -> tuple[Floats, Floats]:
        """Return the rows (m, p) of the batch, and their responses, from a block of rows.

        Parameters
        ----------
        codes : ndarray of int, shape (rows,)
            Number of the batch of each row.
        features : ndarray, shape (rows, p)
        response : ndarray, shape (rows,)
        """
        if self._together:
            features = np.array(features)
            response = np.array(response)
            self._hash(0, features, response)
        chosen = codes == self._number
        batch = features[chosen], response[chosen]
        if not self._together:
            self._hash(self._number, *batch)
            if self._first_digests is None:
                self._hash_others(codes, features, response)
        return batch

    def _hash_others(self, codes: Integers, features: Floats, response: Floats) -> None:
        order = np.argsort(codes, kind="stable")
        numbers, starts = np.unique(codes[order], return_index=True)
        for number, places in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            if number != self._number:
                self._hash(number, features[places], response[places])

    def _hash(self, number: int, features: Floats, response: Floats) -> None:
        """Add rows to the hashes of a batch, row after row, whatever the blocks they come in."""
        if not len(response):
            return
        if number not in self._hashers:
            self._hashers[number] = self._digests.hasher(), self._digests.hasher()
        for hasher, values in zip(self._hashers[number], (features, response), strict=True):
            hasher.update(np.ascontiguousarray(values))

    def check(self) -> None:
        """Keep the digests of a first pass; else raise AlignmentError unless the batch has the same rows."""
        digests = {
            number: b"".join(hasher.digest() for hasher in hashers)
            for number, hashers in self._hashers.items()
        }
        if self._first_digests is None:
            self._digests.keep(self._partition, digests)
            return
        number = 0 if self._together else self._number
        if digests.get(number) != self._first_digests.get(number):
            raise AlignmentError(ROWS_MOVED)

    def __reduce__(self) -> Any:
        raise TypeError("digests of raw rows cannot be pickled: pickle the release or the result instead")
