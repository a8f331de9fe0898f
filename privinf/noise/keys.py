r"""A secret key from which the noise of every question follows.

The stream key of a question is

    HMAC-SHA256(key; "stream", question, roster, sum),

its arguments encoded so that different ones never have the same bytes. The **un-noised sum** is among them:
noise that has covered one sum never covers another one, so that no two answers can be subtracted to take it
off; **who answered** is among them, since sums over two rosters may be equal; and the **question**, with the
scale of its noise.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

import numpy as np

from privinf.errors import ArgumentError
from privinf.noise.entropy import KEY_BYTES, SYSTEM
from privinf.typing import Floats


class NoiseKey:
    """The secret of one server's noise.

    Parameters
    ----------
    secret : bytes, optional
        32 bytes of a key that exists; by default new ones from the operating system.

    Attributes
    ----------
    fingerprint : str
        Public: 16 hexadecimal digits that tell one key from another, for ledger lines.

    Raises
    ------
    ArgumentError
        `secret` is not 32 bytes.

    Notes
    -----
    **Privacy.** To whoever lacks the key, the streams of different (question, roster, sum) are independent
    and uniform, as long as HMAC-SHA256 and ChaCha20 are pseudorandom functions. Whoever has the key can
    test guesses of a sum against its release: protect it as you protect the rows. Not shown and not pickled.

    Examples
    --------
    >>> key = NoiseKey(bytes(32))
    >>> one, other = (key.stream("question", ("north",), np.array([total])) for total in (1.0, 2.0))
    >>> one != other, one == key.stream("question", ("north",), np.array([1.0]))
    (True, True)
    """

    __slots__ = ("_secret", "fingerprint")

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = SYSTEM.key() if secret is None else secret
        if not isinstance(self._secret, bytes) or len(self._secret) != KEY_BYTES:
            raise ArgumentError(f"the secret of a noise key must be {KEY_BYTES} bytes")
        self.fingerprint = self._code("fingerprint").hex()[:16]

    def stream(self, question: str, roster: Sequence[str], total: Floats) -> bytes:
        """Return the stream key of one question, those who answered it, and their un-noised sum.

        Parameters
        ----------
        question : str
            Digest of everything public that the release follows from.
        roster : sequence of str
            In any order.
        total : ndarray
        """
        return self._code("stream", *_told(question, roster, total))

    def commitment(self, question: str, roster: Sequence[str], total: Floats) -> str:
        """Return what tells one answer to a question from another one, and nothing without the key."""
        return self._code("answer", *_told(question, roster, total)).hex()

    def seal(self) -> bytes:
        """Return the key of checksums over files that stand beside this one."""
        return self._code("seal")

    def secret_bytes(self) -> bytes:
        """Return the secret itself."""
        return self._secret

    def _code(self, purpose: str, *parts: bytes) -> bytes:
        told = (b"privinf noise 1", purpose.encode(), *parts)
        message = b"".join(len(part).to_bytes(8, "little") + part for part in told)
        return hmac.digest(self._secret, message, "sha256")

    def __repr__(self) -> str:
        return f"<NoiseKey {self.fingerprint}, secret not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("a noise key is secret: it is not pickled")


def _told(question: str, roster: Sequence[str], total: Floats) -> list[bytes]:
    # Zero has two signs; a sum has one meaning.
    numbers = (np.asarray(total, dtype=np.float64) + 0.0).astype("<f8")
    names = sorted(roster)
    return [
        question.encode(), len(names).to_bytes(8, "little"), *(name.encode() for name in names),
        repr(numbers.shape).encode(), numbers.tobytes(),
    ]  # fmt: skip
