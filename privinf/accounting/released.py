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
    """Base class of released objects, which contain the ledger entries of their release.

    Subclasses have a field `entries`.

    Attributes
    ----------
    entries : tuple of LedgerEntry
        Ledger entries of the release, as they were recorded.

    Raises
    ------
    UnchargedError
        Raised if there are no ledger entries, so the cost of the object would be reported as zero.

    Notes
    -----
    **Privacy.** Costs nothing: all attributes are computed from the ledger entries, which are public. Every
    output of a mechanism is such an object, so every released number has the ledger entries of its release. A
    release without noise has an entry with infinite loss.
    """

    __slots__ = ()

    entries: tuple[LedgerEntry, ...]

    def __post_init__(self) -> None:
        check_charged(self.entries, type(self).__name__)

    @property
    def loss(self) -> Total | ParallelTotal:
        """Joint privacy loss of the ledger entries of this release."""
        return total_of((entry.scope, entry.loss) for entry in self.entries)

    @property
    def secure(self) -> bool:
        """Whether the noise of all ledger entries is secure."""
        return bool(self.entries) and all(entry.secure for entry in self.entries)

    @property
    def reporting_delta(self) -> float | None:
        """Delta at which `privacy` states epsilon; None if no delta was passed."""
        return None

    @property
    def privacy(self) -> PrivacyReport:
        """Privacy report on this release; its `cumulative` is the report on all releases in the ledger.

        Without a delta, epsilon is stated at 1e-6, or at 1/(2n) if that is smaller and n is public.
        """
        nobs = getattr(self, "nobs", None)
        return PrivacyReport.from_entries(
            self.entries, delta=self.reporting_delta, nobs=nobs, subject="release"
        )

    @property
    def stamp(self) -> str:
        """Reason why the object is not private, such as NOT PRIVATE; empty if all noise was secure."""
        return stamp_of(self.entries)


@error_boundaries
class ReleasedNumber(float, Released):
    """Released number: a float with the ledger entries of its release.

    Parameters
    ----------
    value : float
        The released value.
    entries : iterable of LedgerEntry
        Ledger entries of the release, as they were recorded.
    scale : float
        Standard deviation of the noise of the number; 0 without noise, and nan if it is not known.
    delta : float, optional
        Delta at which the privacy report of the number states epsilon.

    Notes
    -----
    A released number behaves like a float in arithmetic, in numpy, and in ``round``, ``format`` and ``json``.
    The results of these operations are plain numbers without ledger entries, so keep the released number or
    its attribute `privacy`.

    **Privacy.** Costs nothing: the number was released and is public.

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
        """Delta at which `privacy` states epsilon; None if no delta was passed."""
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
