"""The error tree of privinf: every exception and warning that the package raises on purpose.

A message states what is wrong, in which column or argument, and what to do; it never contains a value
taken from a row.
"""

from __future__ import annotations


class PrivinfError(Exception):
    """Base class of the errors of privinf."""


class ArgumentError(PrivinfError, ValueError):
    """An argument is outside its range, of the wrong shape or not among the choices."""


class CallError(ArgumentError, TypeError):
    """A call lacks an argument, or passes one by position that must be named; it is a TypeError too."""


class UnforeseenError(ArgumentError):
    """An argument led to an exception of Python or of a library, whose text is not shown.

    Where the arguments are as documented, it is a defect of privinf.
    """


class SchemaError(PrivinfError, ValueError):
    """Data, formula and schema do not fit together, or a public bound is missing or wrong."""


class BudgetExceededError(PrivinfError):
    """A release would spend more than the limit; it was refused before any row was read."""


class UnchargedError(PrivinfError):
    """A release without a ledger line, whose cost is unknown, is refused."""


class SensitivityError(PrivinfError, ValueError):
    """No finite sensitivity follows from the declared bounds."""


class NotPositiveDefiniteError(PrivinfError, ValueError):
    """A matrix that must be positive definite is not (often because of too much noise)."""


class ConvergenceError(PrivinfError):
    """An iteration ended without meeting its tolerance."""


class AlignmentError(PrivinfError, ValueError):
    """Releases, parties or labels do not match."""


class SiteConnectionError(AlignmentError, ConnectionError):
    """A site or its connection did not answer; the message states which, the charges, and how to resume.

    It is a ConnectionError too. Its cause is the error of the connection, without its text.
    """


class StorageError(PrivinfError):
    """A file is corrupted, truncated, of another format or version, or failed its checksum."""


class FileMissingError(StorageError, FileNotFoundError):
    """A file does not exist; it is a FileNotFoundError too."""


class NotAvailableError(PrivinfError, AttributeError):
    """A quantity or an operation is not available; the message states the reason.

    It is an AttributeError too, so that ``hasattr(result, "llf")`` is False and tools that test for optional
    statistics (statsmodels' summary_col) work.
    """


class PrivinfWarning(UserWarning):
    """Base class of the warnings of privinf."""


class WeakIdentificationWarning(PrivinfWarning):
    """The signal is weak relative to the noise, so Wald intervals are not reliable."""


class SteepDirectionWarning(PrivinfWarning):
    """A weakly identified direction has a large slope, so Wald intervals miss mostly on one side."""


class DependentRowsWarning(PrivinfWarning):
    """Several rows belong to one unit, but standard errors assume independent rows."""


class HeavyTailWarning(PrivinfWarning):
    """Much of a sum lies in the extrapolated tail: intervals depend on the assumed shape of the tail."""


class MisfitWarning(PrivinfWarning):
    """The mean or the variance may differ from the model, because of outliers or a few large counts."""


class ChangedTargetWarning(PrivinfWarning):
    """Clipping changes the target of the coefficients: values of a column or a response are clipped."""


class LargeDeltaWarning(PrivinfWarning):
    """Delta is at least 1/n: publishing one record at random would satisfy the guarantee."""


class UnavailableColumnsWarning(PrivinfWarning):
    """Declared columns are absent or cannot be read, so the site does not offer them."""


class UnprotectedFilesWarning(PrivinfWarning):
    """The file system has no permissions: other accounts may be able to read or change keys and ledgers."""


class ExtrapolationWarning(PrivinfWarning):
    """New rows have values beyond the knots of a spline or beyond declared bounds."""


class UnprotectedResponseWarning(PrivinfWarning):
    """The response is sent unprotected: the privacy guarantee covers the other columns only."""


class DataDependentBoundsWarning(PrivinfWarning):
    """Bounds were taken from the rows themselves: the privacy guarantee does not cover these bounds."""
