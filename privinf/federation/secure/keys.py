"""Participants: identity keys of sites and analysts, and the roster of public keys that all pin.

An identity has two keys of one secret: X25519 for the masks of secure sums, Ed25519 for signatures.
"""

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

from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import ArgumentError, StorageError
from privinf.secret_files import open_secret
from privinf.storage.checksummed import checksummed_json, parse_json, read_bytes, reads, verified_record
from privinf.validation import check_path
from privinf.wire import Formats, Keys

SITE_KEY_BYTES = 32  # of an identity's secret, as both X25519 and Ed25519 need
FIELD = 2**255 - 19  # size of Curve25519's field: a public key is a number below it
# The d of Edwards' curve x^2 (d y^2 + 1) = y^2 - 1, on which Ed25519 keys are points.
EDWARDS = -121665 * pow(121666, -1, FIELD) % FIELD
KEY = "an identity key"  # what messages call its file
# Purpose of the derived signing key.
SIGNING = Keys.SIGNING


@cache
def primitives(name: str) -> Any:
    """Return a module of the package cryptography, loaded when it is first needed."""
    return import_module(f"cryptography.{name}")


@error_boundaries
class IdentityKey:
    """Secret key of a site or of an analyst, which is made once by its owner and never sent.

    Parameters
    ----------
    secret : bytes, optional
        The 32 bytes of an existing key. By default a new key is drawn from the random source of the operating
        system.

    Attributes
    ----------
    public : str
        Public X25519 key for the masks of secure sums, as 64 hexadecimal digits.
    verifying : str
        Public Ed25519 key by which signatures are checked, as 64 hexadecimal digits.

    Raises
    ------
    ArgumentError
        Raised if `secret` is not 32 bytes.

    Notes
    -----
    **Privacy.** A person who has the key can remove the masks of all sums that the site has sent, and can
    sign messages in the name of the owner. Therefore protect the file of the key as you protect the rows. The
    key is not printed, and it cannot be pickled.

    The secret Ed25519 key is derived from the 32 bytes of the secret key by HKDF-SHA256.

    Examples
    --------
    >>> from privinf.federation import IdentityKey
    >>> from privinf.federation.secure.keys import signed_by
    >>> north, south = IdentityKey(), IdentityKey()
    >>> north.shared(south.public) == south.shared(north.public)
    True
    >>> signature = north.sign(b"twelve rows")
    >>> signed_by(north.verifying, signature, b"twelve rows"), signed_by(south.verifying, signature, b"")
    (True, False)
    """

    __slots__ = ("_secret", "_signing", "public")

    def __init__(self, secret: bytes | None = None) -> None:
        x25519 = primitives("hazmat.primitives.asymmetric.x25519")
        if secret is None:
            self._secret = x25519.X25519PrivateKey.generate()
        elif isinstance(secret, bytes) and len(secret) == SITE_KEY_BYTES:
            self._secret = x25519.X25519PrivateKey.from_private_bytes(secret)
        else:
            raise ArgumentError(f"secret= must be a bytes object of length {SITE_KEY_BYTES}")
        self.public: str = self._secret.public_key().public_bytes_raw().hex()
        self._signing: Any = None  # made when it is first needed: sites of one process sign nothing

    @property
    def verifying(self) -> str:
        """Public Ed25519 key, which is used to check signatures."""
        return str(self._signer().public_key().public_bytes_raw().hex())

    def sign(self, message: bytes) -> str:
        """Sign a message with the Ed25519 key.

        Parameters
        ----------
        message : bytes
            The message.

        Returns
        -------
        str
            128 hexadecimal digits.
        """
        return str(self._signer().sign(message).hex())

    def _signer(self) -> Any:
        if self._signing is None:
            hkdf = primitives("hazmat.primitives.kdf.hkdf")
            hashes = primitives("hazmat.primitives.hashes")
            derived = hkdf.HKDF(hashes.SHA256(), SITE_KEY_BYTES, salt=None, info=SIGNING)
            ed25519 = primitives("hazmat.primitives.asymmetric.ed25519")
            secret = derived.derive(self.secret_bytes())
            self._signing = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
        return self._signing

    def shared(self, public: str) -> bytes:
        """Return the secret that this key shares with the owner of a public X25519 key.

        Parameters
        ----------
        public : str
            The public key, in hexadecimal.

        Returns
        -------
        bytes
            The shared secret.

        Raises
        ------
        ArgumentError
            Raised if the text is not a valid public key.
        """
        x25519 = primitives("hazmat.primitives.asymmetric.x25519")
        try:
            public_key = x25519.X25519PublicKey.from_public_bytes(bytes.fromhex(public))
            return bytes(self._secret.exchange(public_key))
        except (TypeError, ValueError):
            raise ArgumentError("public= must be a public X25519 key, a text of hexadecimal digits") from None

    def secret_bytes(self) -> bytes:
        """Return the secret key itself.

        Returns
        -------
        bytes
            32 bytes.

        Notes
        -----
        **Privacy.** The result is secret: anyone who knows it can answer in the name of the site.
        """
        return bytes(self._secret.private_bytes_raw())

    def save(self, path: str | PathLike[str]) -> None:
        """Write the secret key to a new file, which only its owner may read.

        Parameters
        ----------
        path : path
            The new file.

        Raises
        ------
        StorageError
            Raised if the file exists or cannot be created, or other accounts may write to its folder.
        """
        try:
            handle = open_secret(check_path(path), KEY, "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            raise StorageError(
                f"the file {path} already exists, and identity keys are never replaced; choose another path"
            ) from None
        except OSError as problem:
            if isinstance(problem, StorageError):
                raise
            raise StorageError(
                f"the key file {path} cannot be created ({problem.strerror or type(problem).__name__})"
            ) from None
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(f"{self.secret_bytes().hex()}\n{_seal(self.secret_bytes())}\n")
            stream.flush()
            os.fsync(stream.fileno())

    @classmethod
    @reads(KEY)
    def load(cls, path: str | PathLike[str]) -> IdentityKey:
        """Read a secret key from a file that `save` wrote.

        Parameters
        ----------
        path : path
            The file must belong to the account of the process, have mode 0600 and no second hard link, and
            must not be a symbolic link. Other accounts must not have write access to the folder of the file.
            For a file that does not satisfy these conditions, such as a secret that Kubernetes mounts, use
            `from_bytes`.

        Returns
        -------
        IdentityKey
            The key.

        Raises
        ------
        StorageError
            Raised if the file was not written by `save`, or is damaged. The error is also raised if another
            account could have read, changed or replaced the file. The message contains the command that
            repairs the permissions.

        Notes
        -----
        **Privacy.** A key that other accounts may read or write is refused.
        """
        return cls._parsed(read_bytes(path, KEY, secret="key"), str(path))

    @classmethod
    @reads(KEY)
    def from_bytes(cls, content: bytes) -> IdentityKey:
        """Read a secret key from the content of a file that `save` wrote.

        Use `from_bytes` for files that `load` refuses, such as secrets that Kubernetes mounts as symbolic
        links owned by root: ``IdentityKey.from_bytes(Path("/run/secrets/north.key").read_bytes())``.

        Parameters
        ----------
        content : bytes
            Content of the file: one line with the secret key, and one line with its checksum.

        Returns
        -------
        IdentityKey
            The key.

        Raises
        ------
        StorageError
            Raised if the content is not the content of a file that `save` wrote, or is damaged.

        Notes
        -----
        **Privacy.** The function does not check whether other accounts can read the secret key; this is the
        responsibility of the caller.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from privinf.federation import IdentityKey
        >>> key = IdentityKey()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     key.save(f"{folder}/north.key")
        ...     mounted = IdentityKey.from_bytes(Path(folder, "north.key").read_bytes())
        >>> mounted.public == key.public
        True
        """
        if not isinstance(content, bytes):
            raise ArgumentError("content= must be the bytes of a key file")
        return cls._parsed(content, "the content")

    @classmethod
    def _parsed(cls, content: bytes, place: str) -> IdentityKey:
        """Return the key in the content of a file."""
        lines = content.decode("ascii", errors="replace").splitlines()
        if len(lines) not in (1, 2) or len(lines[0]) != 2 * SITE_KEY_BYTES or not _is_hex(lines[0]):
            raise StorageError(
                f"{place} is not the key file of a site or an analyst; use a file that 'privinf site key' or "
                "'privinf analyst key' made"
            )
        if len(lines) == 1:
            raise StorageError(
                f"{place} has no checksum in its second line. It is incomplete, or was made by another "
                "version of privinf; use the original file, or make a new key with 'privinf site key'"
            )
        secret = bytes.fromhex(lines[0])
        if lines[1] != _seal(secret):
            raise StorageError(
                f"{place} is damaged, because the key does not match its checksum; use an intact copy"
            )
        return cls(secret)

    def __repr__(self) -> str:
        return f"<IdentityKey with public key {self.public[:8]}..., secret not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("an identity key is secret and cannot be pickled; its owner can save it to a file")


@error_boundaries
@dataclass(frozen=True, slots=True)
class Roster:
    """Names and public keys of the sites of a federation, on which all sites agree in advance.

    Parameters
    ----------
    keys : mapping of str to str
        Public X25519 key (64 hexadecimal digits) of each site, by its name. There must be at least two sites,
        with different keys.
    verifying : mapping of str to str, optional
        Public Ed25519 key of each site, by its name. Sites sign their replies with the corresponding secret
        keys, and the public keys verify the signatures. The file of a roster with these keys has the format
        version 2. Without these keys (format version 1) secure sums are available, but replies are not
        signed.

    Attributes
    ----------
    digest : str
        SHA-256 digest of the names and keys, in hexadecimal.

    Raises
    ------
    ArgumentError
        Raised if a name or a key is invalid, or a key occurs twice.

    Notes
    -----
    **Privacy.** A roster is public. Every site stores the roster, so a dishonest server cannot pretend to be
    a site. Queries contain no keys, so nobody can add a site to the federation, or add a site twice.

    Examples
    --------
    >>> from privinf.federation import pinned_keys
    >>> keys, roster = pinned_keys(["north", "south"])
    >>> roster.keys["north"] == keys["north"].public, roster.signed
    (True, True)
    """

    keys: Mapping[str, str] = field(hash=False)
    verifying: Mapping[str, str] = field(default_factory=dict, hash=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.keys, Mapping) or len(self.keys) < 2:
            raise ArgumentError("a roster (the list of the sites' public keys) needs at least two sites")
        for name, key in self.keys.items():
            check_name(name, "a site's name")
            if not _is_key(key):
                raise ArgumentError(
                    f"the public key of site {name!r} must be a text of {2 * SITE_KEY_BYTES} hexadecimal "
                    "digits"
                )
            if not _shares(key):
                raise ArgumentError(f"the key of site {name!r} is not a valid public X25519 key")
        if not isinstance(self.verifying, Mapping) or (
            self.verifying and self.verifying.keys() != self.keys.keys()
        ):
            raise ArgumentError(
                "verifying= must be omitted, or must map each site in keys=, and no other site, to the key "
                "with which its signatures are verified"
            )
        for name, key in self.verifying.items():
            check_verifying(key, f"the key to verify signatures of site {name!r}")
        for kind, keys in (("keys", self.keys), ("verifying", self.verifying)):
            if len(set(keys.values())) < len(keys):
                raise ArgumentError(
                    "the roster (the list of the sites' public keys) has the same key twice; every site "
                    "needs its own key"
                )
            object.__setattr__(self, kind, MappingProxyType(dict(sorted(keys.items()))))
        content = json.dumps([dict(self.keys), dict(self.verifying)] if self.signed else dict(self.keys))
        object.__setattr__(self, "digest", hashlib.sha256(content.encode()).hexdigest())

    @property
    def signed(self) -> bool:
        """Whether the roster has Ed25519 keys, which are needed to check the signatures of replies."""
        return bool(self.verifying)

    def to_json(self) -> str:
        """Return the roster as JSON text with a checksum, to store at every site.

        Returns
        -------
        str
            For `from_json`.
        """
        content: dict[str, Any] = {"format": Formats.ROSTER, "version": 1, "keys": dict(self.keys)}
        if self.signed:
            content |= {"version": 2, "verifying": dict(self.verifying)}
        return checksummed_json(content, indent=1)

    @classmethod
    @reads("a roster")
    def from_json(cls, text: str) -> Roster:
        """Make the object from JSON text that `to_json` returned.

        Parameters
        ----------
        text : str
            Result of `to_json`.

        Returns
        -------
        Roster
            The same roster.

        Raises
        ------
        StorageError
            Raised if the text is not a roster, or its checksum does not match.
        """
        content = parse_json(text, "the text of the roster")
        second = isinstance(content, dict) and "verifying" in content
        fields = ("format", "version", "keys", *(["verifying"] if second else []))
        record = verified_record(content, "a roster", fields)
        if (record["format"], record["version"]) != (Formats.ROSTER, 2 if second else 1):
            raise StorageError(
                "the text is not a roster (list of the sites' public keys) in a format that this "
                "version of privinf reads"
            )
        if second and not record["verifying"]:
            raise StorageError(
                "the text is not a valid roster (list of the sites' public keys), because a key to "
                "verify signatures is missing for at least one site"
            )
        try:
            return cls(record["keys"], record.get("verifying", {}))
        except ArgumentError as problem:
            raise StorageError(
                f"the text is not a valid roster (list of the sites' public keys): {problem}"
            ) from None

    def __len__(self) -> int:
        return len(self.keys)

    def __reduce__(self) -> tuple[Any, ...]:
        return Roster, (dict(self.keys), dict(self.verifying))


@error_boundary
def pinned_keys(names: Iterable[str], *, signed: bool = True) -> tuple[dict[str, IdentityKey], Roster]:
    """Make the keys of all sites, and the roster of these keys, for simulations in one process.

    Parameters
    ----------
    names : iterable of str
        Names of the sites.
    signed : bool
        Whether the roster also has Ed25519 keys, for sites that sign their replies.

    Returns
    -------
    tuple (dict of IdentityKey, Roster)
        The secret key of each site, by the name of the site, and the roster of all sites.

    Notes
    -----
    **Privacy.** Real sites must each make their own `IdentityKey`, and then agree on a roster.
    """
    keys = {name: IdentityKey() for name in names}
    verifying = {name: key.verifying for name, key in keys.items()} if signed else {}
    return keys, Roster({name: key.public for name, key in keys.items()}, verifying)


def signed_by(verifying: str, signature: str, message: bytes) -> bool:
    """Return whether a signature of a message, both public, is by the owner of a verifying key."""
    ed25519 = primitives("hazmat.primitives.asymmetric.ed25519")
    exceptions = primitives("exceptions")
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(verifying))
        key.verify(bytes.fromhex(signature), message)
    except (exceptions.InvalidSignature, ValueError):
        return False
    return _is_hex(signature)


def check_name(name: object, subject: str) -> None:
    """Raise ArgumentError unless a name is a non-empty text that commands can be given."""
    if not isinstance(name, str) or not name.strip() or "=" in name:
        raise ArgumentError(f"{subject} must be a non-empty string without '='")


def check_verifying(key: object, subject: str) -> None:
    """Raise ArgumentError unless a key is one of Ed25519, of which no signature holds for anybody."""
    if not _is_key(key) or not _verifies(str(key)):
        raise ArgumentError(
            f"{subject} must be a public Ed25519 key, {2 * SITE_KEY_BYTES} hexadecimal digits"
        )


def _seal(secret: bytes) -> str:
    """Return the checksum of a key, which its file holds."""
    return hashlib.sha256(Keys.IDENTITY + secret).hexdigest()


def _verifies(key: str) -> bool:
    """Return whether this is a canonically encoded point of Edwards' curve, not of small order.

    With one of small order a signature that holds for every message can be written down. Its image on
    Montgomery's curve, u = (1 + y) / (1 - y), has the same order.
    """
    y = int.from_bytes(bytes.fromhex(key), "little") & ~(1 << 255)
    if y in (0, 1) or y >= FIELD - 1:
        return False
    square = (y * y - 1) * (EDWARDS * y * y + 1) % FIELD
    u = (1 + y) * pow(1 - y, -1, FIELD) % FIELD
    return pow(square, FIELD // 2, FIELD) == 1 and _shares(u.to_bytes(SITE_KEY_BYTES, "little").hex())


def _shares(key: str) -> bool:
    """Return whether this public key gives a shared secret: canonically encoded, not of small order.

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


def _is_key(key: object) -> bool:
    return isinstance(key, str) and len(key) == 2 * SITE_KEY_BYTES and _is_hex(key)


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)
