"""Additions to errors of fits over sites: the charges so far, and how to resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath

from privinf.accounting import Ledger, LedgerEntry, PrivacyReport
from privinf.accounting.ledger import charged_since
from privinf.errors import (
    AlignmentError,
    BudgetExceededError,
    NotAvailableError,
    PrivinfError,
    SiteConnectionError,
    StorageError,
)
from privinf.federation.checkpoint import CHARGES_STAND, has_rounds
from privinf.validation import counted

# Errors in the middle of a fit that sites, the ways to them, and disks and limits of ledgers cause.
CAUSED_BY_OTHERS = (AlignmentError, BudgetExceededError, NotAvailableError, StorageError)
# How a message begins that a checkpoint has completed already.
CHARGES_STAND_START = CHARGES_STAND.partition(";")[0]
NOTHING = "This call has charged nothing to the ledger of the fit."
CHARGED = (
    "This call has charged {} to the ledger of the fit, in total epsilon {:.4g} at delta {:g} (total of the "
    "ledger: epsilon {:.4g}). These charges are kept."
)
RESUME = "Repeat the same call to resume from {} without paying again for the releases stored there."
NO_FOLDER = (
    "No release of this fit was saved, so a new call is charged in full again. If fit() is "
    "called with checkpoint=folder, repeating the call resumes the fit instead."
)
NO_RESUMING = "A fit of this kind cannot be resumed, so a new call is charged in full again."
REPEAT = "Repeat the call after the cause is corrected."


@contextmanager
def stating_charges(
    ledger: Ledger,
    *,
    delta: float | None = None,
    checkpoint: str | PathLike[str] | None = None,
    resumable: bool = True,
) -> Iterator[None]:
    """Add the charges so far, and how to resume, to errors that end a fit in its middle.

    Parameters
    ----------
    ledger : Ledger
        The fit's account.
    delta : float, optional
        The delta at which epsilon is stated.
    checkpoint : path, optional
        The folder in which the fit is stored.
    resumable : bool
        Whether the fit could be stored in a folder.

    Notes
    -----
    **Privacy.** Reads ledger lines, which are public.
    """
    before = len(ledger.entries)
    try:
        yield
        return
    except CAUSED_BY_OTHERS as problem:
        entries = charged_since(ledger, before)
        states_charges = CHARGES_STAND_START in str(problem)
        if states_charges or (not entries and not isinstance(problem, SiteConnectionError)):
            raise
        error = _with_charges(problem, ledger, entries, delta, checkpoint, resumable)
        cause = problem.__cause__
    raise error from cause


def _with_charges(
    problem: PrivinfError,
    ledger: Ledger,
    entries: Sequence[LedgerEntry],
    delta: float | None,
    checkpoint: str | PathLike[str] | None,
    resumable: bool,
) -> PrivinfError:
    """Return the same error with the charges and the way on in its text."""
    texts = [str(problem).rstrip("."), NOTHING.rstrip(".")]
    if entries:
        report = PrivacyReport.from_entries(entries, ledger=ledger, delta=delta)
        charged = CHARGED.format(
            counted(len(entries), "release"),
            report.epsilon(),
            report.default_delta,
            report.cumulative.epsilon(),
        )
        texts[1] = charged.rstrip(".")
    if checkpoint is not None and has_rounds(checkpoint):
        texts.append(RESUME.format(fspath(checkpoint)))
    elif entries:
        texts.append(NO_FOLDER if resumable else NO_RESUMING)
    else:
        texts.append(REPEAT)
    return type(problem)(". ".join(texts))
