"""The noise of a trusted server: its source, and the key and memory that bind noise to its query."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

import numpy as np

from privinf.accounting import GaussianLoss, LedgerEntry
from privinf.errors import ArgumentError, NotAvailableError, SensitivityError, StorageError
from privinf.federation.messages import Query
from privinf.federation.noise_memory import NoiseFile, NoiseMemory
from privinf.federation.noisy import SUM_TOO_LARGE
from privinf.federation.rounds import PlannedQuery, check_query_digest
from privinf.noise import NoiseSource, grid_step
from privinf.noise.lattice import LARGEST_STEP, LARGEST_SUM
from privinf.typing import Floats


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

    def remember(self, path: str | PathLike[str], *, begun: bool | None) -> bytes:
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

    def check_plan(self, planned: PlannedQuery) -> None:
        """Raise unless a plan is of this noise, and agrees with its own ledger line."""
        entry = planned.entry
        if planned.scale > 0.0 and (entry.secure, entry.source) != (self.secure, self.source.name):
            raise ArgumentError(
                "the release was planned with another noise source; pass the same rng= as before"
            )
        check_query_digest(planned)
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


def perturbed(total: Floats, scale: float, largest: float, source: NoiseSource) -> Floats:
    """Return a sum of entries up to `largest` with its noise; sums of many rows as integers of 62 digits."""
    step = grid_step(scale)
    if not source.secure or 2.0 * largest < step * LARGEST_STEP:
        return source.perturb(total, scale)
    steps = np.clip(np.rint(total / step), -LARGEST_SUM, LARGEST_SUM).astype(np.int64)
    return np.asarray(source.gaussian_steps(steps, scale / step) * step, dtype=np.float64)
