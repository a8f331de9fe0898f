"""Who may take part in secure sums: a site's identity key, and the roster of public keys that sites pin."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from os import PathLike
from types import MappingProxyType
from typing import Any

from privinf.doors import door, doors
from privinf.errors import ArgumentError, StorageError
from privinf.sealed import parse_json, read_bytes, reads, sealed_json, unsealed

SITE_KEY_BYTES = 32
# Of Curve25519's field: a public key is a number below it.
FIELD = 2**255 - 19


@cache
def primitives(name: str) -> Any:
    """Return a module of the package cryptography, loaded when it is first needed."""
    return import_module(f"cryptography.{name}")


@doors
class IdentityKey:
    """A site's static X25519 key: made once at the site, never sent.

    Parameters
    ----------
    secret : bytes, optional
        32 bytes of a key that exists; by default a new one from the operating system's entropy.

    Attributes
    ----------
    public : str
        The public key, 64 hexadecimal digits: what goes into the `Roster`.

    Raises
    ------
    ArgumentError
        `secret` is not 32 bytes.

    Notes
    -----
    **Privacy.** Who has it can take off the masks of all sums that the site ever sent: protect its file as
    you protect the rows. Not shown and not pickled.

    Examples
    --------
    >>> north, south = IdentityKey(), IdentityKey()
    >>> north.shared(south.public) == south.shared(north.public)
    True
    """

    __slots__ = ("_secret", "public")

    def __init__(self, secret: bytes | None = None) -> None:
        x25519 = primitives("hazmat.primitives.asymmetric.x25519")
        if secret is None:
            self._secret = x25519.X25519PrivateKey.generate()
        elif isinstance(secret, bytes) and len(secret) == SITE_KEY_BYTES:
            self._secret = x25519.X25519PrivateKey.from_private_bytes(secret)
        else:
            raise ArgumentError(f"secret must be {SITE_KEY_BYTES} bytes")
        self.public: str = self._secret.public_key().public_bytes_raw().hex()

    def shared(self, public: str) -> bytes:
        """Return the secret shared with the owner of a public key.

        Raises
        ------
        ArgumentError
            The text is not a public key.
        """
        x25519 = primitives("hazmat.primitives.asymmetric.x25519")
        try:
            other = x25519.X25519PublicKey.from_public_bytes(bytes.fromhex(public))
            return bytes(self._secret.exchange(other))
        except (TypeError, ValueError):
            raise ArgumentError("a public key is not one of X25519") from None

    def secret_bytes(self) -> bytes:
        """Return the secret key itself, 32 bytes."""
        return bytes(self._secret.private_bytes_raw())

    def save(self, path: str | PathLike[str]) -> None:
        """Write the secret to a new file that only its owner may read; StorageError if it exists."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise StorageError(f"there is a file at {path}: an identity key is never replaced") from None
        except OSError as problem:
            raise StorageError(
                f"{path} cannot be made ({problem.strerror or type(problem).__name__})"
            ) from None
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(f"{self.secret_bytes().hex()}\n{_seal(self.secret_bytes())}\n")
            stream.flush()
            os.fsync(stream.fileno())

    @classmethod
    @reads("an identity key")
    def load(cls, path: str | PathLike[str]) -> IdentityKey:
        """Read what `save` wrote; StorageError if it is not that, or damaged.

        A file of an earlier version has no second line, the checksum, and is read as it is.
        """
        lines = read_bytes(path, "an identity key").decode("ascii", errors="replace").splitlines()
        if len(lines) not in (1, 2) or len(lines[0]) != 2 * SITE_KEY_BYTES or not _is_hex(lines[0]):
            raise StorageError(f"{path} holds no identity key")
        secret = bytes.fromhex(lines[0])
        if len(lines) == 2 and lines[1] != _seal(secret):
            raise StorageError(f"{path} is damaged: the key does not match its checksum")
        return cls(secret)

    def __repr__(self) -> str:
        return f"<IdentityKey with public key {self.public[:8]}..., secret not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("an identity key is not pickled: save it at the site")


@doors
@dataclass(frozen=True, slots=True)
class Roster:
    """The sites of a federation and their public keys, agreed outside of it and pinned at every site.

    Parameters
    ----------
    keys : mapping of str to str
        Public key (64 hexadecimal digits) by site; at least two, all different.

    Attributes
    ----------
    digest : str
        SHA-256 of names and keys, in hexadecimal.

    Raises
    ------
    ArgumentError
        A name or a key is not one, or a key stands twice.

    Notes
    -----
    **Privacy.** Public. That it is pinned is what keeps an active server out: no key ever travels with a
    query, so nobody can put himself, or one site twice, among the others.

    Examples
    --------
    >>> keys, roster = pinned_keys(["north", "south"])
    >>> roster.keys["north"] == keys["north"].public
    True
    """

    keys: Mapping[str, str] = field(hash=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.keys, Mapping) or len(self.keys) < 2:
            raise ArgumentError("a roster needs at least two sites with their public keys")
        for name, key in self.keys.items():
            if not isinstance(name, str) or not name.strip() or "=" in name:
                raise ArgumentError("a site's name is a non-empty text without '='")
            if not (isinstance(key, str) and len(key) == 2 * SITE_KEY_BYTES and _is_hex(key)):
                raise ArgumentError(
                    f"the key of site {name!r} must be {2 * SITE_KEY_BYTES} hexadecimal digits"
                )
            if not _shares(key):
                raise ArgumentError(f"the key of site {name!r} is no public key: no secret goes with it")
        if len(set(self.keys.values())) < len(self.keys):
            raise ArgumentError("a key stands twice in the roster: every site has its own")
        ordered = dict(sorted(self.keys.items()))
        object.__setattr__(self, "keys", MappingProxyType(ordered))
        object.__setattr__(self, "digest", hashlib.sha256(json.dumps(ordered).encode()).hexdigest())

    def to_json(self) -> str:
        """Return the roster as JSON text with its checksum: a file that every site keeps."""
        return sealed_json({"format": "privinf-roster", "version": 1, "keys": dict(self.keys)}, indent=1)

    @classmethod
    @reads("a roster")
    def from_json(cls, text: str) -> Roster:
        """Read back what `to_json` wrote; StorageError if it is not that."""
        record = unsealed(
            parse_json(text, "the text is not a roster: it"), "a roster", ("format", "version", "keys")
        )
        if (record.get("format"), record.get("version")) != ("privinf-roster", 1):
            raise StorageError("the text is not a roster of a version that this privinf reads")
        try:
            return cls(record.get("keys"))  # type: ignore[arg-type]
        except ArgumentError as problem:
            raise StorageError(f"the text is not a roster: {problem}") from None

    def __len__(self) -> int:
        return len(self.keys)

    def __reduce__(self) -> tuple[Any, ...]:
        return Roster, (dict(self.keys),)


@door
def pinned_keys(names: Iterable[str]) -> tuple[dict[str, IdentityKey], Roster]:
    """Return new keys for all sites and their roster: for sites that live in one process.

    Notes
    -----
    **Privacy.** Real sites each make their own `IdentityKey` and agree on the roster.
    """
    keys = {name: IdentityKey() for name in names}
    return keys, Roster({name: key.public for name, key in keys.items()})


def _seal(secret: bytes) -> str:
    """Return the checksum of a key, which its file holds."""
    return hashlib.sha256(b"privinf identity key" + secret).hexdigest()


def _shares(key: str) -> bool:
    """Say whether a secret shared with this public key is one: written in one way, of no small order.

    A point of small order gives zero with whatever secret it is multiplied, and the exchange refuses it.
    """
    public = bytes.fromhex(key)
    if int.from_bytes(public, "little") >= FIELD:
        return False
    x25519 = primitives("hazmat.primitives.asymmetric.x25519")
    try:
        probe = x25519.X25519PrivateKey.from_private_bytes(bytes(range(SITE_KEY_BYTES)))
        probe.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)
