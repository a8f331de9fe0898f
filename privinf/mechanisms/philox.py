"""Public random words by address: Philox4x64-10, keyed by (seed, domain), read at any word.

Word t of a stream is word t mod 4 of the cipher's output at counter 1 + t // 4, which is word t of
``numpy.random.Philox(key=[seed, domain]).random_raw``: a function of (seed, domain, t) alone, whatever was
read before, on every platform. Public randomness only: noise never comes from here.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privinf.typing import Integers

Words: TypeAlias = NDArray[np.uint64]

# Salmon, Moraes, Dror and Shaw (2011), Parallel random numbers: as easy as 1, 2, 3.
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)  # of two words of the counter in a round
_INCREMENTS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # of the key's words between rounds
_ROUNDS = 10  # of the cipher
_MASK64 = 2**64 - 1  # Python's integers modulo 2^64
_LOW32 = np.uint64(2**32 - 1)  # mask of a word's lower half
_HALF = np.uint64(32)  # binary digits of half a word

# Reading a run and picking from it costs about a twelfth of the vectorised cipher a word.
_SPARSE = 12


def words_run(seed: int, domain: int, start: int, count: int) -> Words:
    """Return words ``start .. start + count - 1`` of a stream."""
    first, skipped = divmod(start, 4)
    key = np.array([seed, domain], dtype=np.uint64)
    return np.random.Philox(key=key, counter=first).random_raw(skipped + count)[skipped:]


def words_of(seed: int, domain: int, units: Integers, per: int = 1) -> Words:
    """Return the words of some units, where unit u owns words ``u per .. (u + 1) per - 1``.

    Parameters
    ----------
    units : int64 array (m,)
        Strictly increasing.
    per : int
        Words that one unit owns; 1 or a multiple of 4.

    Returns
    -------
    uint64 array (m, per)
    """
    if not units.size:
        return np.empty((0, per), dtype=np.uint64)
    first = int(units[0])
    span = int(units[-1]) - first + 1
    if span <= _SPARSE * units.size:
        run = words_run(seed, domain, first * per, span * per).reshape(span, per)
        return run if span == units.size else run[units - first]
    if per == 1:
        blocks = cipher_blocks(seed, domain, (units // 4 + 1).astype(np.uint64))
        return np.take_along_axis(blocks, units[:, None] % 4, axis=1)
    blocks_per_unit = per // 4
    counters = (units[:, None] * blocks_per_unit + np.arange(1, blocks_per_unit + 1)).ravel()
    return cipher_blocks(seed, domain, counters.astype(np.uint64)).reshape(units.size, per)


def cipher_blocks(seed: int, domain: int, counters: Words) -> Words:
    """Return the four output words at each counter, shape (m, 4)."""
    key = [seed, domain]
    zero = np.zeros_like(counters)
    state = [counters, zero, zero, zero]
    for _ in range(_ROUNDS):
        high0, low0 = _product(_MULTIPLIERS[0], state[0])
        high1, low1 = _product(_MULTIPLIERS[1], state[2])
        state = [high1 ^ state[1] ^ np.uint64(key[0]), low1, high0 ^ state[3] ^ np.uint64(key[1]), low0]
        key = [(word + step) & _MASK64 for word, step in zip(key, _INCREMENTS, strict=True)]
    return np.stack(state, axis=1)


def _product(constant: int, words: Words) -> tuple[Words, Words]:
    """Return the high and the low word of the 128-bit product of `constant` and each word."""
    c1 = np.uint64(constant >> 32)
    c0 = np.uint64(constant & 0xFFFFFFFF)
    w1 = words >> _HALF
    w0 = words & _LOW32
    middle = c1 * w0 + ((c0 * w0) >> _HALF)
    cross = c0 * w1 + (middle & _LOW32)
    return c1 * w1 + (middle >> _HALF) + (cross >> _HALF), np.uint64(constant) * words
