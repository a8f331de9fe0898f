"""The error tree of privinf: every exception and warning that the package raises on purpose.

A message states what is wrong, in which column or argument, and what to do; it never contains a value
taken from a row.
"""

from __future__ import annotations


class PrivinfError(Exception):
    """Base of every error that privinf raises on purpose."""


class ArgumentError(PrivinfError, ValueError):
    """An argument is outside its range, of the wrong shape or not among the choices."""


class UnforeseenError(ArgumentError):
    """An argument led to an exception of Python or of a library, whose text is not shown.

    Where the arguments are as documented, it is a defect of privinf.
    """


class SchemaError(PrivinfError, ValueError):
    """Data, formula and schema do not fit together, or a public bound is missing or wrong."""


class BudgetExceededError(PrivinfError):
    """A release would spend more than the limit; it was refused before any row was read."""


class UnchargedError(PrivinfError):
    """A release has no ledger line that states its cost: it is refused, rather than reported as free."""


class SensitivityError(PrivinfError, ValueError):
    """No finite sensitivity follows from the declared bounds."""


class NotPositiveDefiniteError(PrivinfError, ValueError):
    """A matrix that must be positive definite is not (often because of too much noise)."""


class ConvergenceError(PrivinfError):
    """An iteration ended without meeting its tolerance."""


class AlignmentError(PrivinfError, ValueError):
    """Releases, parties or labels that should belong together do not."""


class SiteConnectionError(AlignmentError, ConnectionError):
    """A site or its connection did not answer; the message states which, the charges, and how to resume.

    It is a ConnectionError too. Its cause is the error of the connection, without its text.
    """


class StorageError(PrivinfError):
    """A file is corrupted, truncated, of another format or version, or failed its checksum."""


class FileMissingError(StorageError, FileNotFoundError):
    """There is no file where one was named; it is a FileNotFoundError too."""


class NotAvailableError(PrivinfError, AttributeError):
    """A quantity that this result cannot offer; the message is the reason.

    It is an AttributeError too, so that ``hasattr(result, "llf")`` is False and tools that probe for
    optional statistics (statsmodels' summary_col) carry on.
    """


class PrivinfWarning(UserWarning):
    """Base of every warning of privinf."""


class WeakIdentificationWarning(PrivinfWarning):
    """The noise leaves so little signal that Wald intervals should not be trusted."""


class SteepDirectionWarning(PrivinfWarning):
    """A direction that the noise nearly hides has a steep slope: Wald intervals err on one side."""


class DependentRowsWarning(PrivinfWarning):
    """Several rows belong to one unit, and standard errors take rows as independent."""


class HeavyTailWarning(PrivinfWarning):
    """Much of a sum lies in the extrapolated tail: intervals depend on the assumed shape of the tail."""


class MisfitWarning(PrivinfWarning):
    """The mean or the variance may not be the model's: rows far out, or a few large counts, would decide."""


class ChangedTargetWarning(PrivinfWarning):
    """Clips give coefficients another target: bounds cut a column, or a response of two values is clipped."""


class LargeDeltaWarning(PrivinfWarning):
    """Delta is at least 1/n: publishing one record at random would satisfy the guarantee."""


class UnavailableColumnsWarning(PrivinfWarning):
    """Declared columns are absent or cannot be read: a site offers none of them from then on."""


class UnprotectedFilesWarning(PrivinfWarning):
    """The file system has no permissions: other accounts may be able to read or change keys and ledgers."""


class ExtrapolationWarning(PrivinfWarning):
    """New rows hold values that the fit could not see: beyond a spline's knots, or beyond declared bounds."""


class UnprotectedResponseWarning(PrivinfWarning):
    """The response is sent in clear: the privacy guarantee covers the other columns alone."""


class DataDependentBoundsWarning(PrivinfWarning):
    """Bounds were taken from the rows themselves: the privacy guarantee does not cover that leak."""
