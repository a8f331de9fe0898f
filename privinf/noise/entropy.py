"""Where random words come from, and comparisons of a uniform number that are never rounded.

Words come from the operating system (`SYSTEM`), or from the key stream of a secret key (`Keystream`), which
gives the same words whenever it is opened again.
"""

from __future__ import annotations

import decimal
import os
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privinf.errors import ArgumentError

Words = NDArray[np.uint64]

WORD = 64
KEY_BYTES = 32


class Entropy(Protocol):
    """Independent uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """Return so many words."""
        ...

    def word(self) -> int:
        """Return one word."""
        ...


class SystemEntropy:
    """Words from ``os.urandom``, fresh at every call: nothing is kept between calls."""

    __slots__ = ()

    def words(self, count: int) -> Words:
        """Return so many words."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def word(self) -> int:
        """Return one word."""
        return int.from_bytes(os.urandom(8), "little")

    def key(self) -> bytes:
        """Return a new secret key."""
        return os.urandom(KEY_BYTES)


SYSTEM = SystemEntropy()


class Keystream:
    """The words of one key's ChaCha20 key stream, from its beginning.

    Parameters
    ----------
    key : bytes
        32 bytes, secret, of one use alone: `privinf.noise.keys.NoiseKey.stream` makes them.

    Raises
    ------
    ArgumentError
        The key has another length.

    Notes
    -----
    **Privacy.** Its words are uniform and independent to whoever lacks the key, as long as ChaCha20 is a
    pseudorandom function. Not pickled and not shown.

    Examples
    --------
    >>> bool((Keystream(bytes(32)).words(4) == Keystream(bytes(32)).words(4)).all())
    True
    """

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        # Imported here: releases that need no key load no cipher.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise ArgumentError(f"the key of a stream must be {KEY_BYTES} bytes")
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> Words:
        """Return the next so many words."""
        stream = np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8")
        return stream.astype(np.uint64, copy=False)

    def word(self) -> int:
        """Return the next word."""
        return int.from_bytes(self._cipher.update(bytes(8)), "little")

    def __reduce__(self) -> Any:
        raise TypeError("a key stream is secret: it is not pickled")


def uniform_below(head: int, bits: int, scale: Fraction, exponent: Fraction, entropy: Entropy) -> bool:
    """Decide U < scale exp(-exponent) exactly, for a uniform U on [0, 1) whose first bits are known.

    Parameters
    ----------
    head, bits : int
        The first `bits` bits of U are those of `head`; the others are drawn as far as they matter.
    scale, exponent : Fraction
        Both nonnegative.
    entropy : Entropy
        Where they are drawn.

    Notes
    -----
    U lies in an interval of length 2^-bits. The right side is enclosed by decimals of growing precision;
    as long as the two intervals meet, 64 more bits are drawn. The answer is that of exact arithmetic.
    """
    while True:
        with decimal.localcontext(precise(bits // 3 + 24)) as context:
            value = Fraction((-quotient(exponent)).exp()) * scale
            # The rounded quotient moves the exponent by a relative 10^-prec at most.
            slack = value * (int(exponent) + 4) / 10 ** (context.prec - 1)
        if (head + 1) <= (value - slack) * 2**bits:
            return True
        if head >= (value + slack) * 2**bits:
            return False
        head, bits = head << WORD | entropy.word(), bits + WORD


def precise(digits: int) -> decimal.Context:
    """Return a decimal context of so many digits in which nothing over- or underflows."""
    return decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


def quotient(number: Fraction) -> Any:
    """Return a fraction as a decimal, rounded in the current context."""
    return decimal.Decimal(number.numerator) / decimal.Decimal(number.denominator)
