"""A curator's own table answers its own questions: a trusted server without sites and messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.doors import doors
from privinf.errors import SensitivityError
from privinf.federation.noisy import NoisyGram, NoisySum
from privinf.federation.rounds import Args, assumed
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.gaussian import Line
from privinf.mechanisms.statistics.block import SiteBlock, exact_bits
from privinf.noise import get_source, grid_step
from privinf.noise.lattice import LARGEST_STEP
from privinf.typing import RngLike, SumRelation


@doors
class Curator:
    """Sums over one holder's own rows, with noise; one ledger line each.

    Parameters
    ----------
    rows : SiteBlock
    name : str
        Of the place that the rows are at, as releases tell it.
    ledger : Ledger, optional
    rng : int or Generator, optional
        Seeds simulation noise: the same numbers as those of a `TrustedServer` of one site with this seed.
    relation : {"replace-one", "zero-out"}

    Notes
    -----
    **Privacy.** As `TrustedServer`: a release is charged before a row is read, and what leaves is noised. It
    lives for one fit, asks each question once, and keeps no key: its secure noise is fresh.
    """

    def __init__(
        self,
        rows: SiteBlock,
        *,
        name: str,
        ledger: Ledger | None = None,
        rng: RngLike = None,
        relation: SumRelation = "replace-one",
    ) -> None:
        self._block, self._name, self._relation = rows, name, relation
        self._noise = get_source(rng)
        self._key = None if self._noise.secure else self._noise.new_key()
        self._asked = 0
        self.ledger = check_ledger(ledger)

    @property
    def nobs(self) -> int:
        """Number of rows."""
        return len(self._block)

    def vector_sum(self, op: str, args: Args, *, label: str, mu: float) -> NoisySum:
        """Release the sum of a statistic over all rows with Gaussian noise of one sd on every entry.

        Parameters
        ----------
        op, args, label, mu
            As for `TrustedServer.vector_sum`.
        """
        statistic, n = SITE_OPS[op], self.nobs
        reach = statistic.reach(args, self._block.features.shape[1], n)
        line = Line(
            label=label, mechanism="gaussian", sensitivity=reach.sensitivity(self._relation),
            derivation=f"{op}: {reach.derivation}", dimension=reach.size, mu=mu, unit=reach.unit,
            trust="central", relation=self._relation, assumptions=(assumed(reach, self._relation),),
        )  # fmt: skip
        scale, entry = line.calibrated(self._noise)
        exact = scale > 0.0 and self._noise.secure
        if exact and 2.0 * n * reach.bound / grid_step(scale) >= LARGEST_STEP:
            raise SensitivityError("the sum is too large against the noise for its fixed-point grid")
        lines = self.ledger.spend(entry)
        self._asked += 1
        total = statistic.total(self._block, {**args, "bits": exact_bits(n) if exact else 0}, reach)
        if scale > 0.0:
            total = self._source(op).perturb(total, scale)
        return NoisySum(total, n, (self._name,), scale, mu, lines)

    def gram(self, args: Args, *, label: str, op: str, mu: float) -> NoisyGram:
        """Release a symmetric matrix through its isometric entries."""
        return NoisyGram.of(self.vector_sum(op, args, label=label, mu=mu))

    def _source(self, op: str) -> Any:
        """Return the noise of a question: fresh, or, of a seed, that of its place in the session."""
        if self._key is None:
            return self._noise
        return self._noise.at(self._key.stream(f"{op} {self._asked}", (), np.empty(0)))

    def __reduce__(self) -> Any:
        raise TypeError("a curator holds raw rows: pickle its releases")

    def __repr__(self) -> str:
        return f"<Curator of {self.nobs} rows, not shown>"
