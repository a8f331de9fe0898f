"""Pairwise masks modulo 2^64 that cancel in the sum over a roster, and the cost of a masked sum.

Sites u and v that are joined in the graph share the mask m_uv = ChaCha20(HKDF(X25519(sk_u, pk_v), info)), a
vector of uniform 64-bit words; the one whose name sorts later adds it and the other takes it away. `info` is
the SHA-256 of the **whole** query (statistic, arguments, roster, position in the session, charges): no two
queries share a mask, and sites with different queries get a sum of uniform garbage.

Up to `COMPLETE` sites the graph is complete. Beyond, it is a circle in a pseudorandom order on which
everybody is joined to the m nearest on each side (a Harary graph of degree k = 2m, as in Bell et al.).
Anyone who sees all messages and knows c sites' keys learns the sum over every connected component of the
other sites, and nothing else. These fall apart only if m consecutive sites of the circle are all among the c,
so

    P(not connected) <= n c (c-1)...(c-m+1) / (n (n-1)...(n-m+1)),

and `degree` takes the smallest m that makes it at most 2^-100. The order is fixed by the SHA-256 of the
pinned roster and the names that take part. So small a probability makes it infeasible to search, by trial
of keys or of rosters with faked drop-outs, for a graph that cuts a site off. Drop-outs need no further
degree: a sum that lacks a site is not unmasked; the graph is drawn again for the sites that are left. The c
sites must have been chosen without regard to the graph; `degree` never counts with fewer than a tenth of all.

`plan_sum` determines, before any query, the noise of the sites, the grid, and the cost of the sum.

References
----------
Bell, Bonawitz, Gascon, Lepoint and Raykova (2020), "Secure single-server aggregation with (poly)logarithmic
overhead". Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning".
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privinf.accounting import ConcentratedLoss, GaussianLoss, LedgerEntry, Loss, Sensitivity
from privinf.errors import ArgumentError, SensitivityError
from privinf.federation.planned import assumed
from privinf.federation.secure.keys import IdentityKey, Roster, primitives
from privinf.mechanisms.gaussian import FLOAT_SLACK
from privinf.mechanisms.statistics.ops import RecordSensitivity
from privinf.noise.source import GRID_BITS
from privinf.typing import SumRelation
from privinf.wire import Assumptions, Derivations, Keys, Mechanisms, NoiseLaws, NoiseSources, Norms

Words: TypeAlias = NDArray[np.uint64]

COMPLETE = 50  # sites up to which every two of them share a mask
FAILURE_BITS = 100  # the chance that some site's neighbors all collude is at most 2^-100
PURPOSE = Keys.MASKED_SUM


def degree(sites: int, colluding: int) -> int:
    """Return how many others each of `sites` shares a mask with, against `colluding` sites and the server.

    Examples
    --------
    >>> degree(50, 5), degree(200, 20), degree(1000, 100)
    (49, 42, 64)
    """
    if sites <= COMPLETE:
        return sites - 1
    colluding = max(colluding, sites // 10)
    log2_bound = math.log2(sites)
    for side in range(1, sites // 2):
        if colluding < side:
            return 2 * side
        log2_bound += math.log2((colluding - side + 1) / (sites - side + 1))
        if log2_bound <= -FAILURE_BITS:
            return 2 * side
    return sites - 1


def neighbours(name: str, roster: tuple[str, ...], pinned: str, colluding: int) -> tuple[str, ...]:
    """Return whom a site shares masks with, among a sorted roster; `pinned` is the pinned roster's digest."""
    k = degree(len(roster), colluding)
    if k == len(roster) - 1:
        return tuple(peer for peer in roster if peer != name)
    circle, position = _circle(roster, pinned)
    start = position[name]
    steps = (step for side in range(1, k // 2 + 1) for step in (-side, side))
    return tuple(circle[(start + step) % len(circle)] for step in steps)


@lru_cache(maxsize=16)
def _circle(roster: tuple[str, ...], pinned: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the sites in their pseudorandom order, and the position of each."""
    seed = hashlib.sha256("\0".join((pinned, *roster)).encode()).digest()
    circle = tuple(sorted(roster, key=lambda name: hashlib.sha256(seed + name.encode()).digest()))
    return circle, {name: place for place, name in enumerate(circle)}


def extract(shared: bytes) -> bytes:
    """Return the pseudorandom key of a shared secret: HKDF-Extract with SHA-256 and no salt (RFC 5869)."""
    return hmac.digest(bytes(32), shared, "sha256")


def expand(key: bytes, info: bytes) -> bytes:
    """Return 32 bytes of HKDF-Expand with SHA-256 (RFC 5869)."""
    return hmac.digest(key, info + b"\x01", "sha256")


def stream(key: bytes, size: int) -> Words:
    """Return `size` uniform words: the ChaCha20 key stream of a key that is used for nothing else."""
    ciphers = primitives("hazmat.primitives.ciphers")
    encryptor = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * size)), dtype="<u8").astype(np.uint64, copy=False)


def apply_masks(values: Words, name: str, keys: Iterable[tuple[str, bytes]]) -> Words:
    """Return values plus the masks shared with others, given by name and mask key, modulo 2^64."""
    masked = values.copy()
    for peer, key in keys:
        mask = stream(key, values.size)
        masked += mask if name > peer else -mask
    return masked


class PairKeys:
    """The secrets that a site shares with the others of its pinned roster, each computed once.

    Parameters
    ----------
    key : IdentityKey
    roster : Roster

    Notes
    -----
    **Privacy.** As secret as the identity key. Not pickled.
    """

    __slots__ = ("_pairs", "key", "roster")

    def __init__(self, key: IdentityKey | None, roster: Roster | None) -> None:
        if not isinstance(key, IdentityKey) or not isinstance(roster, Roster):
            raise ArgumentError(
                "secure sums need both key=IdentityKey(...), the site's secret key, and "
                "roster=Roster(...), the public keys of all sites"
            )
        self.key = key
        self.roster = roster
        self._pairs: dict[str, bytes] = {}

    def owns(self, name: str) -> bool:
        """Return whether the roster names this key's owner so, by both keys where it has both."""
        verifying = self.roster.verifying.get(name, "")
        return self.roster.keys.get(name) == self.key.public and verifying in ("", self.key.verifying)

    def pair(self, peer: str, info: bytes) -> bytes:
        """Return a key for one purpose that only this site and `peer` can derive."""
        if peer not in self._pairs:
            self._pairs[peer] = extract(self.key.shared(self.roster.keys[peer]))
        return expand(self._pairs[peer], info)

    def masked(self, values: Words, name: str, roster: tuple[str, ...], colluding: int, digest: str) -> Words:
        """Return a site's words under its masks for the query of this digest."""
        info = PURPOSE + bytes.fromhex(digest)
        peers = neighbours(name, roster, self.roster.digest, colluding)
        return apply_masks(values, name, ((peer, self.pair(peer, info)) for peer in peers))

    def __repr__(self) -> str:
        return f"<PairKeys with {len(self.roster)} sites, not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("secrets shared by two sites cannot be pickled")


# Times by which the grid may raise a sensitivity before the release is refused as too large for its budget.
LARGEST_GROWTH = 2.0**10


@dataclass(frozen=True, slots=True)
class SumPlan:
    """A secure sum's noise and its ledger line.

    Attributes
    ----------
    grid : float
        Unit of the integers, a power of two.
    site_scale : float
        Sd of the noise of one site; 0 without noise.
    entry : LedgerEntry
    """

    grid: float
    site_scale: float
    entry: LedgerEntry


def plan_sum(
    record_sensitivity: RecordSensitivity,
    mu: float,
    *,
    label: str,
    op: str,
    sites: int,
    colluding: int,
    rows: int,
    grid_bits: int = GRID_BITS,
    secure: bool = True,
    relation: SumRelation = "replace-one",
    seeded: bool = False,
) -> SumPlan:
    """Return the noise that the sites less the colluding ones must add for a price of `mu`.

    Parameters
    ----------
    mu : float
        With infinity no noise is added.
    label, op : str
        For the ledger.
    rows : int
        Of the largest site; 1 where sites are the units.
    grid_bits : int
        The noise of one site spans 2^grid_bits to twice as many steps.
    secure : bool
        False for simulation noise.
    seeded : bool
        Whether records have public random numbers, or batches, by their places.

    Raises
    ------
    ArgumentError
        No honest site is left.
    SensitivityError
        The grid's own share of the sensitivity would outgrow the budget.
    """
    carriers = sites - colluding
    moved = record_sensitivity.sensitivity(relation)
    if carriers < 1:
        raise ArgumentError(
            f"max_colluding={colluding} must be less than the number of sites, which is {sites}"
        )
    if math.isinf(mu):
        largest = 4.0 * sites * (rows * record_sensitivity.bound) / 2.0**63
        grid = math.ldexp(1.0, math.frexp(largest)[1])
        site_scale = 0.0
        total = moved
        loss: Loss = GaussianLoss(mu)
    else:
        grid, site_scale, total = solve_grid(moved, record_sensitivity.size, mu, carriers, grid_bits)
        loss = GaussianLoss(mu) if grid_bits >= GRID_BITS else ConcentratedLoss(mu * mu / 2.0)
    secure = secure and site_scale > 0.0
    source = NoiseSources.LATTICE if secure else NoiseSources.NONE
    if not secure and site_scale > 0.0:
        source = NoiseSources.SIMULATION
    entry = LedgerEntry(
        mechanism=Mechanisms.GAUSSIAN,
        label=label,
        unit=record_sensitivity.unit,
        relation=relation,
        trust="secure-sum",
        sensitivity=Sensitivity(
            norm=Norms.L2,
            value=total,
            derivation=Derivations.OF_MASKED_STATISTIC.format(
                op=op, derivation=record_sensitivity.derivation
            ),
        ),
        noise={
            "law": NoiseLaws.NONE if site_scale == 0.0 else NoiseLaws.DISCRETE_GAUSSIAN,
            "scale": site_scale * math.sqrt(carriers),
            "grid": grid,
            "sites": sites,
            "colluding": colluding,
            "threshold": sites,  # number of sites that must answer: all; digests of queries contain this key
        },
        loss=loss,
        source=source,
        secure=secure,
        assumptions=(
            *assumed(record_sensitivity, relation, sites=sites, seeded=seeded),
            Assumptions.HONEST_SITES,
            Assumptions.UNIFORM_MASKS,
        ),
    )
    return SumPlan(grid, site_scale, entry)


def solve_grid(
    moved: float, size: int, mu: float, carriers: int, grid_bits: int
) -> tuple[float, float, float]:
    """Return (grid, sd of one site's noise, sensitivity with the grid's share) for a price of `mu`."""
    sensitivity = total = moved * (1.0 + FLOAT_SLACK)
    for _ in range(64):
        scale = total / (mu * math.sqrt(carriers)) * (1.0 + 2.0**-50)
        grid = math.ldexp(1.0, math.frexp(scale)[1] - 1 - grid_bits)
        enough = sensitivity + grid * math.sqrt(size)
        if enough <= total:
            return grid, scale, total
        total = enough * (1.0 + 2.0**-50)
        if total > LARGEST_GROWTH * sensitivity:
            break
    raise SensitivityError(
        f"the budget mu={mu:g} is too small to release {size} numbers as a secure sum; spend "
        "more, or release fewer numbers"
    )
