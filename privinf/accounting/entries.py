"""LedgerEntry: one release in one line, with nothing in it that depends on the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import numpy as np

from privinf.accounting.losses import INTACT_FILE, Loss, json_number, loss_from_dict
from privinf.accounting.scopes import Scope, check_scope
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError
from privinf.storage.checksummed import MOST_DIGITS
from privinf.typing import Relation, TrustModel
from privinf.validation import check_choice, check_number, error_text, is_unicode, shown

NO_NOISE = "NO NOISE: NOT PRIVATE"
SIMULATION = "SIMULATION NOISE: NOT PRIVATE"

_NOISE_END = 10 ** (MOST_DIGITS - 1)  # an integer with its sign can be read back from a file
# Words in the name of a noise term that speak of a draw, a seed or a value of the data.
_FORBIDDEN = frozenset(
    {
        "seed",
        "rng",
        "state",
        "draw",
        "draws",
        "sample",
        "samples",
        "value",
        "values",
        "statistic",
        "count",
        "counts",
    }
)


@error_boundaries
@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Sensitivity: largest change of a released statistic if one unit is replaced.

    Parameters
    ----------
    norm : str
        Norm of the change, such as "l2", "l1", "linf", or "discrete" for randomized response.
    value : float
        Value of the sensitivity, at least 0. Infinity is allowed only for a release without noise.
    derivation : str
        How the sensitivity was derived, such as "diameter of a ball of radius 1".

    Raises
    ------
    ArgumentError
        Raised if `value` is negative or nan, or if a text is empty.
    """

    norm: str
    value: float
    derivation: str

    def __post_init__(self) -> None:
        _check_text(self.norm, "sensitivity.norm")
        _check_text(self.derivation, "sensitivity.derivation")
        value = check_number(self.value, "sensitivity.value", low=0.0, infinite=True)
        object.__setattr__(self, "value", value)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            Numbers and texts.
        """
        return {"norm": self.norm, "value": json_number(self.value), "derivation": self.derivation}


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """Ledger entry of one release: mechanism, unit of privacy, noise and privacy loss.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism, such as "gaussian" or "randomized response".
    label : str
        Label of the release, such as "features" or "second moments".
    unit : str
        Unit of privacy, such as "record" or "person".
    relation : {"replace-one", "metric", "zero-out"}
        Neighboring relation of the guarantee. The number of records is always public, so there is no
        add/remove relation. Under "zero-out" a unit is replaced by a unit that contributes nothing, which is
        a weaker guarantee than "replace-one".
    trust : {"central", "server", "secure-sum", "local", "per-party"}
        Trust model, that is, who sees the raw rows.
    loss : Loss
        Privacy loss of the release.
    source : str
        Name of the noise source.
    secure : bool
        Whether the noise is secure. False for simulation noise (from a seed) and for releases without noise.
    sensitivity : Sensitivity, optional
        Sensitivity of the released statistic; None for a mechanism whose guarantee is taken from the
        literature.
    noise : mapping, optional
        Public noise model, such as ``{"law": "discrete gaussian", "scale": 2.1, "grid": 2**-19}``. Its values
        are numbers, texts or booleans.
    assumptions : sequence of str
        Assumptions of the guarantee, such as "n is public" or "covers features only; y released in clear".
    scope : sequence of str
        Names of the scopes of the release. The ledger adds its own scope as a prefix (see
        :meth:`Ledger.scope`).
    party : str
        Name of the party that made the release, if several parties hold different columns of the same units.
    id, time : str
        Identifier and time of the entry. By default they are a random UUID and the present time in UTC (ISO
        8601).

    Raises
    ------
    ArgumentError
        Raised if a field is out of range, if an add/remove relation is requested, or if `noise` contains
        anything other than the noise model, such as an array or a seed.

    Notes
    -----
    **Privacy.** Ledger entries are meant to be published, so every field must be computed from public
    parameters.

    Examples
    --------
    >>> import privinf as pi
    >>> from privinf.accounting import GaussianLoss, Sensitivity
    >>> entry = pi.LedgerEntry(
    ...     mechanism="gaussian", label="features", unit="record", relation="replace-one", trust="local",
    ...     sensitivity=Sensitivity(norm="l2", value=2.0, derivation="diameter of a ball of radius 1"),
    ...     noise={"law": "discrete gaussian", "scale": 4.0, "grid": 2.0**-18},
    ...     loss=GaussianLoss(0.5), source="lattice", secure=True, assumptions=("n is public",))
    >>> pi.LedgerEntry.from_dict(entry.to_dict()) == entry
    True
    """

    mechanism: str
    label: str
    unit: str
    relation: Relation
    trust: TrustModel
    loss: Loss
    source: str
    secure: bool
    sensitivity: Sensitivity | None = None
    noise: Mapping[str, Any] = field(default_factory=dict, hash=False)
    assumptions: tuple[str, ...] = ()
    scope: Scope = ()
    party: str = ""
    id: str = field(default_factory=lambda: str(uuid4()))
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def __post_init__(self) -> None:
        for name in ("mechanism", "label", "unit", "source", "id"):
            _check_text(getattr(self, name), f"{name}=")
        if not isinstance(self.party, str) or not is_unicode(self.party):
            raise ArgumentError("party= must be a string of Unicode characters")
        check_relation(self.relation)
        check_choice(self.trust, TrustModel, "trust")
        if not isinstance(self.loss, Loss):
            raise ArgumentError(
                "loss= must be a privacy loss object, such as GaussianLoss(mu=1.0), got "
                f"{type(self.loss).__name__}"
            )
        if not isinstance(self.secure, (bool, np.bool_)):
            raise ArgumentError("secure= must be True or False")
        if not (self.sensitivity is None or isinstance(self.sensitivity, Sensitivity)):
            raise ArgumentError("sensitivity= must be a Sensitivity object or None")
        if isinstance(self.assumptions, str):
            raise ArgumentError("assumptions= must be a sequence of strings, not one string")
        for assumption in self.assumptions:
            _check_text(assumption, "each assumption in assumptions=")
        _check_time(self.time)
        object.__setattr__(self, "secure", bool(self.secure))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))
        object.__setattr__(self, "scope", check_scope(self.scope))
        object.__setattr__(self, "noise", MappingProxyType(_check_noise(self.noise)))

    def within(self, scope: Scope) -> LedgerEntry:
        """Return a copy of the entry that is nested in `scope`.

        Parameters
        ----------
        scope : tuple of str
            Names of the outer scopes, from the outermost to the innermost.

        Returns
        -------
        LedgerEntry
            The copy. The original entry is unchanged.
        """
        return self.filed(self.id, scope + self.scope) if scope else self

    def filed(self, identity: str, scope: Scope, noise: Mapping[str, Any] | None = None) -> LedgerEntry:
        """Return a copy of the entry with a different id or scope, or with more terms of the noise model.

        Parameters
        ----------
        identity : str
            Identifier of the copy.
        scope : tuple of str
            Names of the parts of the ledger that the entry belongs to (see `Ledger.scope`), from the
            outermost to the innermost, such as the site and then the analysis.
        noise : mapping, optional
            Noise model of the copy; by default it is unchanged.

        Returns
        -------
        LedgerEntry
            The copy. The original entry is unchanged.
        """
        _check_text(identity, "id")
        entry = object.__new__(LedgerEntry)
        for name in _FIELDS:
            object.__setattr__(entry, name, getattr(self, name))
        object.__setattr__(entry, "id", identity)
        object.__setattr__(entry, "scope", check_scope(scope))
        if noise is not None:
            object.__setattr__(entry, "noise", MappingProxyType(_check_noise(noise)))
        return entry

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            For `from_dict`.
        """
        sensitivity = self.sensitivity
        return {
            "id": self.id,
            "time": self.time,
            "mechanism": self.mechanism,
            "label": self.label,
            "unit": self.unit,
            "relation": self.relation,
            "trust": self.trust,
            "sensitivity": None if sensitivity is None else sensitivity.to_dict(),
            "noise": {name: json_number(value) for name, value in self.noise.items()},
            "loss": self.loss.to_dict(),
            "scope": list(self.scope),
            "party": self.party,
            "source": self.source,
            "secure": self.secure,
            "assumptions": list(self.assumptions),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> LedgerEntry:
        """Make the object from a dictionary that `to_dict` returned.

        Parameters
        ----------
        record : mapping
            Result of `to_dict`.

        Returns
        -------
        LedgerEntry
            The same entry.

        Raises
        ------
        ArgumentError
            Raised if the dictionary does not describe a ledger entry.
        """
        try:
            fields = dict(record)
            fields["loss"] = loss_from_dict(fields["loss"])
            if fields["sensitivity"] is not None:
                sensitivity = dict(fields["sensitivity"])
                fields["sensitivity"] = Sensitivity(**sensitivity | {"value": float(sensitivity["value"])})
            fields["noise"] = {
                name: math.inf if value == "inf" else value for name, value in fields["noise"].items()
            }
            return cls(**fields)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            reason = error_text(error).removesuffix(INTACT_FILE)
            raise ArgumentError(f"a stored ledger entry is not valid ({reason}){INTACT_FILE}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by record, since the read-only view of the noise model cannot be pickled."""
        return LedgerEntry.from_dict, (self.to_dict(),)


_FIELDS = tuple(field.name for field in fields(LedgerEntry))  # of a line, in the order in which it is written


def stamp_of(entries: Iterable[LedgerEntry]) -> str:
    """Return the stamp for every result of these releases; empty if all noise was secure."""
    lines = tuple(entries)
    amounts = (getattr(entry.loss, name, 0.0) for entry in lines for name in ("mu", "rho", "epsilon"))
    if any(math.isinf(amount) for amount in amounts):
        return NO_NOISE
    return "" if all(entry.secure for entry in lines) else SIMULATION


def check_relation(relation: object) -> Relation:
    """Return a neighboring relation; n is public throughout, so add/remove is refused with the reason."""
    words = str(relation).lower()
    if "add" in words or "remove" in words:
        raise ArgumentError(
            f"relation={shown(relation)} is not supported, because the number of records is public; "
            "use relation='replace-one', for which the sensitivity is twice the largest norm of a "
            "record"
        )
    checked: Relation = check_choice(relation, Relation, "relation")
    return checked


def check_joined(relations: Iterable[str]) -> None:
    """Raise ArgumentError if zero-out losses would be added to losses under another relation.

    A unit that is replaced by another one costs twice the mu that a zero-out line states.
    """
    names = sorted(set(relations))
    if "zero-out" in names and len(names) > 1:
        raise ArgumentError(
            "one ledger cannot add privacy losses under different neighboring relations "
            f"({' and '.join(names)}); use a separate ledger for each relation"
        )


def check_units(first: str, entries: Iterable[LedgerEntry]) -> None:
    """Raise ArgumentError for lines about other units than a limit was first charged for.

    A record is part of any unit, and what releases about records cost a unit of several rows is not known. A
    limit of a site, charged for sites as wholes ("client") or for records, is one of records.
    """
    if units := [entry.unit for entry in entries if first not in ("record", "client", entry.unit)]:
        raise ArgumentError(
            f"the limit of this ledger is for one {first}, but this release protects one "
            f"{units[0]}, and its cost cannot be converted; use a separate ledger for this release"
        )


def _check_text(value: Any, name: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"{name} must be a non-empty string")
    if not is_unicode(value):
        raise ArgumentError(f"{name} must contain only Unicode characters, because it is stored in files")


def _check_time(value: str) -> None:
    try:
        aware = datetime.fromisoformat(value).tzinfo is not None and value.isascii()
    except (TypeError, ValueError):
        aware = False
    if not aware:
        raise ArgumentError(
            "time= must be an ISO 8601 string with a time zone, such as '2026-01-31T12:00:00+00:00'"
        )


def _check_noise(noise: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(noise, Mapping):
        raise ArgumentError(
            "noise= must be a mapping that describes the distribution of the noise, such as its scale"
        )
    checked: dict[str, Any] = {}
    for name, value in noise.items():
        _check_text(name, "each key of noise=")
        if _forbidden(name):
            raise ArgumentError(
                "noise= must describe only the public distribution of the noise, not the noise itself; "
                f"remove the entry noise[{name!r}]"
            )
        plain = value.item() if isinstance(value, np.generic) else value
        if not isinstance(plain, (str, bool, int, float)) or plain != plain:
            raise ArgumentError(f"noise[{name!r}] must be a number, a string or a boolean")
        if isinstance(plain, str) and not is_unicode(plain):
            raise ArgumentError(f"noise[{name!r}] must contain only Unicode characters")
        if isinstance(plain, int) and abs(plain) >= _NOISE_END:
            raise ArgumentError(f"noise[{name!r}] must be smaller than 1e{MOST_DIGITS - 1}")
        if name == "scale" and isinstance(plain, (str, bool)):
            raise ArgumentError("noise['scale'] must be a number")
        checked[name] = plain
    return checked


@lru_cache(maxsize=256)
def _forbidden(name: str) -> bool:
    """Return whether a name refers to data-dependent content."""
    return bool(_FORBIDDEN & set(name.lower().replace("-", "_").replace(" ", "_").split("_")))
