"""Purposes of charges: the fit or statistic that a ledger line was made for, kept beside the line.

People who read a ledger see the purpose next to the line. No digest, tag, price or noise depends on it, and
ledgers without purposes load as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from uuid import uuid4

from privinf.accounting.budget import DEFAULT_DELTA
from privinf.accounting.composition import ParallelTotal, Total
from privinf.accounting.entries import LedgerEntry
from privinf.accounting.scopes import total_of
from privinf.error_boundary import error_boundaries
from privinf.errors import StorageError
from privinf.notebook import html_table
from privinf.validation import counted
from privinf.wire import readable

PURPOSES = "purposes"  # field of a stored ledger, and of the private part of a journal's line
PURPOSES_SEAL = "purposes_sha256"  # field of a stored ledger: checksum of its purposes
LONGEST_SUBJECT = 200  # characters of a subject that are kept: a formula of many columns is longer
LONGEST_NAME = 200  # characters of a name: every line of the fit is stored with it
STATED = "stated"  # field of the private part of a line of a site's ledger: text that the asker states


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """The fit or statistic that a charge was made for.

    Attributes
    ----------
    fit : str
        Id that all charges of one call share.
    subject : str
        The model and its formula, or the statistic.
    name : str
        Name that the user gave by ``Ledger.named``; empty without one.
    """

    fit: str
    subject: str
    name: str = ""


_CURRENT: ContextVar[Purpose | None] = ContextVar("purpose", default=None)


@contextmanager
def charged_for(subject: str) -> Iterator[None]:
    """Record charges within the block as those of one fit; an outer block takes precedence.

    With an empty subject, the labels of the lines describe the fit.
    """
    if _CURRENT.get() is not None:
        yield
        return
    token = _CURRENT.set(Purpose(fit=str(uuid4()), subject=shortened(subject)))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def running_fit() -> Purpose | None:
    """Return the purpose of the fit that runs in this thread; None outside of `charged_for`."""
    return _CURRENT.get()


def purpose_of(entries: Sequence[LedgerEntry], name: str) -> Purpose:
    """Return the purpose of a charge: that of the running fit, else the labels of its own lines."""
    current = _CURRENT.get()
    if current is not None:
        return Purpose(fit=current.fit, subject=current.subject, name=name)
    return Purpose(fit=str(uuid4()), subject=shortened(labels_of(entries)), name=name)


def shortened(subject: str) -> str:
    """Return a subject on one line, cut where it is too long; "?" replaces what is not a character."""
    line = " ".join(subject.encode(errors="replace").decode().split())
    return line if len(line) <= LONGEST_SUBJECT else f"{line[: LONGEST_SUBJECT - 3]}..."


def stated_text(text: str) -> str:
    """Return a text of another party as it may be stored and printed.

    It has one line of printable characters, is cut where it is too long, and contains no double quotes, so
    that a reader sees where the quoted text ends.
    """
    return shortened(printable(text[: 2 * LONGEST_SUBJECT]).replace('"', "'"))


def labels_of(entries: Iterable[LedgerEntry]) -> str:
    """Return the labels of lines, each once."""
    return ", ".join(dict.fromkeys(readable(entry.label) for entry in entries))


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LedgerFit:
    """All charges of one fit in a ledger; made by `Ledger.fits`.

    Attributes
    ----------
    subject : str
        The model and its formula, or the statistic.
    name : str
        Name that the user gave by `Ledger.named`; empty without one.
    entries : tuple of LedgerEntry
        Ledger lines of the fit, in order.

    Notes
    -----
    **Privacy.** Ledger lines, formulas and names are public.
    """

    subject: str
    name: str
    entries: tuple[LedgerEntry, ...]

    @property
    def started(self) -> datetime:
        """Time of the first charge."""
        return min(datetime.fromisoformat(entry.time) for entry in self.entries)

    @property
    def ended(self) -> datetime:
        """Time of the last charge."""
        return max(datetime.fromisoformat(entry.time) for entry in self.entries)

    @property
    def loss(self) -> Total | ParallelTotal:
        """Joint privacy loss of the fit."""
        return total_of((entry.scope, entry.loss) for entry in self.entries)

    @property
    def title(self) -> str:
        """Name and subject in one text."""
        return title_of(self.name, self.subject)

    @property
    def day(self) -> str:
        """Time of the first charge in UTC, to the minute."""
        return f"{self.started.astimezone(UTC):%Y-%m-%d %H:%M}"

    def __repr__(self) -> str:
        return (
            f"<LedgerFit: {self.day} UTC, {printable(self.title)}, {counted(len(self.entries), 'release')}>"
        )


def title_of(name: str, subject: str) -> str:
    """Return the name of a fit and its subject in one text; either may be empty."""
    return ": ".join(part for part in (name, subject) if part)


def counted_fits(releases: Sequence[int]) -> str:
    """Return how many fits there are, by the releases of each, as in "1 fit (12 releases)"."""
    text = counted(len(releases), "fit")
    return text if sum(releases) == len(releases) else f"{text} ({counted(sum(releases), 'release')})"


def printable(title: str) -> str:
    """Return a title, chosen by a caller, without signs that cannot be printed."""
    return "".join(sign if sign.isprintable() else " " for sign in title)


class LedgerFits(tuple[LedgerFit, ...]):
    """The fits of a ledger, in order: a tuple that prints as a table.

    `delta` is that of the epsilons in the table.
    """

    delta: float

    @property
    def counted(self) -> str:
        """Number of fits, and of their releases where a fit has several."""
        return counted_fits([len(fit.entries) for fit in self])

    def __new__(cls, fits: Iterable[LedgerFit] = (), delta: float = DEFAULT_DELTA) -> Self:
        """Return the fits as a tuple."""
        listed = super().__new__(cls, fits)
        listed.delta = delta
        return listed

    @property
    def _cells(self) -> list[tuple[str, str, str, str]]:
        return [
            (
                fit.day,
                f"{len(fit.entries)}",
                f"{fit.loss.epsilon(self.delta):.4g}",
                printable(fit.title),
            )
            for fit in self
        ]

    @property
    def _header(self) -> tuple[str, str, str, str]:
        return "started (UTC)", "releases", f"epsilon (delta={self.delta:g})", "fit"

    def __repr__(self) -> str:
        lines = [self._header, *self._cells]
        first, second, third = (max(len(line[place]) for line in lines) for place in range(3))
        return "\n".join(
            f"{time:<{first}}  {releases:>{second}}  {epsilon:>{third}}  {title}"
            for time, releases, epsilon, title in lines
        )

    def _repr_html_(self) -> str:
        return html_table(self._header, self._cells)


def fits_of(
    entries: Iterable[LedgerEntry], purposes: Mapping[str, Purpose], delta: float | None = None
) -> LedgerFits:
    """Return lines by fit, in the order of the first line; lines without a purpose by their label."""
    grouped: dict[tuple[str, str], list[LedgerEntry]] = {}
    for entry in entries:
        purpose = purposes.get(entry.id)
        key = ("", entry.label) if purpose is None else (purpose.fit, "")
        grouped.setdefault(key, []).append(entry)
    fits = []
    for lines in grouped.values():
        purpose = purposes.get(lines[0].id)
        subject = "" if purpose is None else purpose.subject
        name = "" if purpose is None else purpose.name
        subject = subject or shortened(labels_of(lines))
        fits.append(LedgerFit(subject=subject, name=name, entries=tuple(lines)))
    return LedgerFits(fits, delta or DEFAULT_DELTA)


def stored_purposes(purposes: Mapping[str, Purpose], identities: Iterable[str]) -> list[dict[str, Any]]:
    """Return the purposes of some lines for JSON, each with the ids of its lines."""
    grouped: dict[Purpose, list[str]] = {}
    for identity in identities:
        if identity in purposes:
            grouped.setdefault(purposes[identity], []).append(identity)
    return [
        {"fit": purpose.fit, "subject": purpose.subject, "name": purpose.name, "lines": lines}
        for purpose, lines in grouped.items()
    ]


def read_purposes(records: Any) -> dict[str, Purpose]:
    """Return the purpose of each line, from the result of `stored_purposes` (StorageError if it is none)."""
    purposes: dict[str, Purpose] = {}
    try:
        for record in records:
            purpose = Purpose(**{name: record[name] for name in ("fit", "subject", "name")})
            texts = (purpose.fit, purpose.subject, purpose.name, *record["lines"])
            if not all(isinstance(text, str) for text in texts):
                raise TypeError
            purposes |= dict.fromkeys(record["lines"], purpose)
    except (KeyError, TypeError):
        raise StorageError(
            "the description of the fits in a ledger is damaged; restore the latest copy of the ledger"
        ) from None
    return purposes
