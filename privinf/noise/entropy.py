"""Where random words come from, the secret keys of noise, and comparisons that are never rounded.

Words come from ChaCha20 key streams. Those of `SYSTEM` have keys of the operating system, forgotten after
use; a `Keystream` gives the same words whenever its key is opened again. From a `NoiseKey` the noise of every
query follows; the stream key of a query is

    HMAC-SHA256(key; "stream", query, roster, sum),

its arguments encoded so that different ones never have the same bytes. The **un-noised sum** is among them:
noise that has covered one sum never covers another one, so that no two answers can be subtracted to take it
off; **who answered** is among them, since sums over two rosters may be equal; and the **query**, with the
scale of its noise.
"""

from __future__ import annotations

import decimal
import hmac
import os
import threading
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privinf.errors import ArgumentError
from privinf.typing import Floats
from privinf.wire import Keys

Words = NDArray[np.uint64]

WORD = 64  # bits of a random word
KEY_BYTES = 32  # of a ChaCha20 key
RESEED = 1 << 20  # bytes of one key's stream


class Entropy(Protocol):
    """Independent uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """Return so many words."""

    def word(self) -> int:
        """Return one word."""


class SystemEntropy:
    """Words of ChaCha20 key streams whose keys the operating system draws.

    Notes
    -----
    **Privacy.** Each thread has a key of its own, of 256 bits from ``os.urandom``: a new one after a MiB of
    words and in every process, however it was forked (a hook detects ``os.fork``; other forks are detected by
    its process id). Nothing of it is kept in the object, which may be pickled and shared. The words are
    uniform and independent to anyone who cannot tell ChaCha20 from a random function: privacy is
    computational, not information-theoretic. A machine that is copied while it runs (a snapshot that is
    resumed twice) may give the same words twice until the MiB is over; so may the state of any generator, the
    system's own on older kernels too. Anyone who reads the memory of the process can recompute the MiB that
    its key is making.

    References
    ----------
    Nir and Langley (2018), RFC 8439: ChaCha20. Bernstein (2017), "Fast-key-erasure random-number generators".

    Examples
    --------
    >>> source = SystemEntropy()
    >>> bool((source.words(4) == source.words(4)).any())
    False
    """

    __slots__ = ()

    def words(self, count: int) -> Words:
        """Return so many words."""
        return np.frombuffer(system_bytes(8 * count), dtype=np.uint64)

    def word(self) -> int:
        """Return one word."""
        return int.from_bytes(system_bytes(8), "little")

    def key(self) -> bytes:
        """Return a new secret key, of the operating system's own bytes."""
        return os.urandom(KEY_BYTES)


SYSTEM = SystemEntropy()  # keys of the operating system, for noise that cannot be repeated


class Keystream:
    """The words of one key's ChaCha20 key stream, from its beginning.

    Parameters
    ----------
    key : bytes
        32 bytes, secret, of one use alone: `privinf.noise.entropy.NoiseKey.stream` makes them.

    Raises
    ------
    ArgumentError
        The key has another length.

    Notes
    -----
    **Privacy.** Its words are uniform and independent to anyone without the key, as long as ChaCha20 is a
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
            raise ArgumentError(f"the secret key of a noise generator must have {KEY_BYTES} bytes")
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> Words:
        """Return the next words."""
        stream = bytearray(8 * count)
        self.cover(memoryview(stream))
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)

    def word(self) -> int:
        """Return the next word."""
        return int.from_bytes(self._cipher.update(bytes(8)), "little")

    def cover(self, zeros: memoryview) -> None:
        """Put the next bytes of the stream where zeros are."""
        self._cipher.update_into(zeros, zeros)

    def __reduce__(self) -> Any:
        raise TypeError("a noise generator contains a secret key, so it cannot be pickled")


class _Streams(threading.local):
    """The key stream of each thread.

    Attributes
    ----------
    stream : Keystream or None
    process : int
        Id of the process that drew its key.
    remaining : int
        Bytes that it may still give.
    """

    def __init__(self) -> None:
        self.stream: Keystream | None = None
        self.process = 0
        self.remaining = 0

    def __reduce__(self) -> Any:
        raise TypeError("a noise generator contains a secret key, so it cannot be pickled")


_streams = _Streams()


def forget() -> None:
    """Let every thread draw a new key before its next word, as a process that was forked must."""
    global _streams
    _streams = _Streams()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)


def system_bytes(count: int) -> bytearray:
    """Return bytes of this thread's key stream, with new keys where they are due."""
    drawn = bytearray(count)
    rest = memoryview(drawn)
    mine = _streams
    while len(rest):
        if mine.stream is None or mine.remaining == 0 or mine.process != os.getpid():
            mine.stream = Keystream(SYSTEM.key())
            mine.process = os.getpid()
            mine.remaining = RESEED
        length = min(len(rest), mine.remaining)
        mine.remaining -= length
        mine.stream.cover(rest[:length])
        rest = rest[length:]
    return drawn


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
        head = head << WORD | entropy.word()
        bits = bits + WORD


def precise(digits: int) -> decimal.Context:
    """Return a decimal context of a precision in which nothing over- or underflows."""
    return decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


def quotient(number: Fraction) -> Any:
    """Return a fraction as a decimal, rounded in the current context."""
    return decimal.Decimal(number.numerator) / decimal.Decimal(number.denominator)


class NoiseKey:
    """Secret key of the noise of one server.

    Parameters
    ----------
    secret : bytes, optional
        32 bytes of an existing key; by default new ones from the operating system.

    Attributes
    ----------
    fingerprint : str
        Public: 16 hexadecimal digits that identify the key in ledger lines.

    Raises
    ------
    ArgumentError
        `secret` is not 32 bytes.

    Notes
    -----
    **Privacy.** To anyone without the key, the streams of different (query, roster, sum) are independent and
    uniform, as long as HMAC-SHA256 and ChaCha20 are pseudorandom functions. Anyone who has the key can test
    guesses of a sum against its release: protect it as you protect the rows. The key is not printed, and it
    cannot be pickled.

    Examples
    --------
    >>> import numpy as np
    >>> from privinf.noise import NoiseKey
    >>> key = NoiseKey(bytes(32))
    >>> one, other = (key.stream("question", ("north",), np.array([total])) for total in (1.0, 2.0))
    >>> one != other, one == key.stream("question", ("north",), np.array([1.0]))
    (True, True)
    """

    __slots__ = ("_secret", "fingerprint")

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = SYSTEM.key() if secret is None else secret
        if not isinstance(self._secret, bytes) or len(self._secret) != KEY_BYTES:
            raise ArgumentError(f"the secret key from which noise is drawn must have {KEY_BYTES} bytes")
        self.fingerprint = self._code("fingerprint").hex()[:16]

    def stream(self, query_digest: str, roster: Sequence[str], total: Floats) -> bytes:
        """Return the stream key of one query, its sites and their un-noised sum.

        Parameters
        ----------
        query_digest : str
            Digest of everything public that the release follows from.
        roster : sequence of str
            In any order.
        total : ndarray
            The un-noised sum.
        """
        return self._code("stream", *_sum_parts(query_digest, roster, total))

    def commitment(self, query_digest: str, roster: Sequence[str], total: Floats) -> str:
        """Return a code that distinguishes answers to a query, and reveals nothing without the key."""
        return self._code("answer", *_sum_parts(query_digest, roster, total)).hex()

    def seal(self) -> bytes:
        """Return the key of checksums over the files next to this one."""
        return self._code("seal")

    def secret_bytes(self) -> bytes:
        """Return the secret itself."""
        return self._secret

    def _code(self, purpose: str, *parts: bytes) -> bytes:
        fields = (Keys.NOISE, purpose.encode(), *parts)
        message = b"".join(len(part).to_bytes(8, "little") + part for part in fields)
        return hmac.digest(self._secret, message, "sha256")

    def __repr__(self) -> str:
        return f"<NoiseKey {self.fingerprint}, secret not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("a NoiseKey is secret, so it cannot be pickled")


def _sum_parts(query_digest: str, roster: Sequence[str], total: Floats) -> list[bytes]:
    # Zero has two signs; a sum has one meaning.
    numbers = (np.asarray(total, dtype=np.float64) + 0.0).astype("<f8")
    names = sorted(roster)
    return [
        query_digest.encode(),
        len(names).to_bytes(8, "little"),
        *(name.encode() for name in names),
        repr(numbers.shape).encode(),
        numbers.tobytes(),
    ]
