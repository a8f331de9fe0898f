"""Common part of released objects: ledger lines, their cost, and whether the noise is private."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Self

from privinf.accounting.composition import ParallelTotal, Total
from privinf.accounting.entries import LedgerEntry, stamp_of
from privinf.accounting.report import PrivacyReport
from privinf.accounting.scopes import total_of
from privinf.error_boundary import error_boundaries
from privinf.errors import UnchargedError


class Released:
    """Mixin of released objects, which contain their ledger lines.

    Subclasses have a field `entries`.

    Attributes
    ----------
    entries : tuple of LedgerEntry
        Ledger lines of the release, as recorded.

    Raises
    ------
    UnchargedError
        The object has no ledger line, so its cost would be reported as zero.

    Notes
    -----
    **Privacy.** The members of this mixin are functions of the ledger lines, which are public. Every output
    of a mechanism is such an object, so that no noisy number exists without its ledger line. A release
    without noise has a line of infinite loss.
    """

    __slots__ = ()

    entries: tuple[LedgerEntry, ...]

    def __post_init__(self) -> None:
        check_charged(self.entries, type(self).__name__)

    @property
    def loss(self) -> Total | ParallelTotal:
        """Total privacy loss of the ledger lines of this release."""
        return total_of((entry.scope, entry.loss) for entry in self.entries)

    @property
    def secure(self) -> bool:
        """Whether every line was made with secure noise."""
        return bool(self.entries) and all(entry.secure for entry in self.entries)

    @property
    def reporting_delta(self) -> float | None:
        """Delta at which `privacy` states epsilon; None if the caller gave none."""
        return None

    @property
    def privacy(self) -> PrivacyReport:
        """Privacy report on these lines alone; its `cumulative` covers the ledger."""
        return PrivacyReport.from_entries(self.entries, delta=self.reporting_delta, subject="release")

    @property
    def stamp(self) -> str:
        """Reason why the object is not private; empty where all noise was secure."""
        return stamp_of(self.entries)


@error_boundaries
class ReleasedNumber(float, Released):
    """Released number: a float with its ledger lines.

    Parameters
    ----------
    value : float
        The released value.
    entries : iterable of LedgerEntry
        Ledger lines of the release, as recorded.
    scale : float
        Standard deviation of its noise; 0 without noise, nan where the noise has no simple distribution.
    delta : float, optional
        Delta at which its report states epsilon.

    Notes
    -----
    A released number behaves as a float in arithmetic, numpy, ``round``, ``format`` and ``json``. The results
    of these operations are plain numbers without ledger lines: keep the released number, or its `privacy`.

    **Privacy.** The number was released and is public.

    Examples
    --------
    >>> from privinf.mechanisms import noisy_scalar
    >>> noisy_scalar(3.0, 0.001, mu=1.0, rng=0)
    <released 3.0..., noise sd 0.001, SIMULATION NOISE: NOT PRIVATE>
    """

    __slots__ = ("_delta", "entries", "scale")

    scale: float
    _delta: float | None

    def __new__(
        cls, value: float, entries: Iterable[LedgerEntry], scale: float, delta: float | None = None
    ) -> Self:
        """Make the number."""
        number = super().__new__(cls, value)
        object.__setattr__(number, "entries", tuple(entries))
        object.__setattr__(number, "scale", float(scale))
        check_charged(number.entries, cls.__name__)
        object.__setattr__(number, "_delta", delta)
        return number

    @property
    def reporting_delta(self) -> float | None:
        """Delta at which `privacy` states epsilon; None if the caller gave none."""
        return self._delta

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a released number cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a released number cannot be changed")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (float(self), self.entries, self.scale, self._delta)

    def __str__(self) -> str:
        return float.__repr__(self)

    def __repr__(self) -> str:
        sd = "" if math.isnan(self.scale) else f", noise sd {self.scale:.6g}"
        return f"<released {self}{sd}{appended(self.stamp)}>"


def check_charged(entries: Sequence[LedgerEntry], noun: str) -> None:
    """Raise UnchargedError for a release without ledger lines, which would state epsilon 0."""
    if not entries:
        raise UnchargedError(
            f"this {noun} has no entry in its ledger, so its privacy loss is unknown and nothing is "
            "released. Pass ledger= as a privinf.Ledger, which records every charge. If the ledger is a "
            "file, check with 'privinf ledger show' that it is not damaged"
        )


def appended(stamp: str) -> str:
    """Return a stamp as the end of a one-line description: nothing, or itself after a comma."""
    return f", {stamp}" if stamp else ""
