"""Shamir's sharing of 256-bit secrets: any `threshold` shares give the secret, fewer give nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from privinf.errors import ArgumentError

# The smallest prime above 2^256.
PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, threshold: int, shares: int) -> list[int]:
    """Return the shares at 1, 2, ..., `shares` of a random polynomial with the secret at 0.

    Raises
    ------
    ArgumentError
        The secret has not 32 bytes, or the threshold is not between 1 and `shares`.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= shares:
        raise ArgumentError("a secret of 32 bytes is split among at least as many as its threshold")
    powers = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [_value(powers, x) for x in range(1, shares + 1)]


def _value(powers: list[int], x: int) -> int:
    total = 0
    for power in reversed(powers):
        total = (total * x + power) % PRIME
    return total


def combine(shares: Mapping[int, int]) -> bytes:
    """Return the secret from shares by their positions (1, 2, ...).

    Raises
    ------
    ArgumentError
        A share or a position is out of range, or the shares do not give a secret of 32 bytes.
    """
    for x, y in shares.items():
        check_share(x, y)
    total = 0
    for x, y in shares.items():
        above = below = 1
        for other in shares:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        total += y * above * pow(below, -1, PRIME)
    total %= PRIME
    if total >= 2 ** (8 * SECRET_BYTES):
        raise ArgumentError("the shares do not belong together")
    return total.to_bytes(SECRET_BYTES, "big")


def check_share(x: int, y: int) -> None:
    """Raise ArgumentError unless a share and its position are in range."""
    if not 1 <= x < 2**32 or not 0 <= y < PRIME:
        raise ArgumentError("a share of a secret is out of range")


def read_share(content: bytes) -> int:
    """Return a share from its 33 bytes; ArgumentError if it is out of range."""
    share = int.from_bytes(content, "big")
    if len(content) != SHARE_BYTES:
        raise ArgumentError("a share of a secret is out of range")
    check_share(1, share)
    return share


def write_share(share: int) -> bytes:
    """Return a share as 33 bytes."""
    return share.to_bytes(SHARE_BYTES, "big")
