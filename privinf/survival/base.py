"""What survival curves and comparisons of groups share: facts of their release, notes, files and tables."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from privinf.accounting import PrivacyReport
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, LargeDeltaWarning, PrivinfError, StorageError
from privinf.results.export import caution_kind
from privinf.results.notes import CHANGED_TARGET, Note, negative_times_texts, sentence
from privinf.results.paper_table import ERRORS, PaperTable, PortablePaperTable, privacy_note
from privinf.results.rendering import PrivateSummary, SummaryColumn
from privinf.results.summary import large_delta, number
from privinf.storage.checksummed import save_text
from privinf.survival.storage import NO_RESULT, load_release, save_release
from privinf.typing import AnyPath
from privinf.wire import readable

if TYPE_CHECKING:
    from privinf.survival.release import SurvivalRelease

PaperRow = tuple[str, float, float, float, float]  # name, estimate, standard error, ends of the interval
OTHER_RESULT = "the file {} contains {}, not {}: load it with the class {}"


@error_boundaries
class ReleasedSurvival(PortablePaperTable):
    """A result that is computed from one release of a survival analysis, and nothing else.

    A class has ``release``, ``confidence_level``, `_notes`, `_view` and `_from_view`.
    """

    __slots__ = ()

    release: SurvivalRelease
    confidence_level: float

    @property
    def nobs(self) -> int:
        """Number of records, public; with ``missing="drop"`` the estimated number of complete records."""
        return self.release.nobs if self.complete is None else self.complete.rows

    @property
    def complete(self) -> CompleteRows | None:
        """The estimated number of complete rows, if rows with missing values were dropped; else None."""
        return self.release.complete

    @property
    def privacy(self) -> PrivacyReport:
        """Cost of the release; its `cumulative` is the cost of everything in the ledger."""
        return self.release.privacy

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts of the notes."""
        return tuple(note.text for note in self._notes)

    @property
    def _notes(self) -> tuple[Note, ...]:
        raise NotImplementedError

    def _summary_notes(self) -> list[Note | str]:
        """Return the notes of the summary, with the assumptions of the privacy guarantee."""
        return [
            *(
                Note(sentence(text), "must-read", caution_kind(LargeDeltaWarning))
                for text in large_delta(self.privacy, self.release.nobs)
            ),
            *self._notes,
            *(f"The privacy guarantee assumes: {readable(text)}." for text in self.privacy.assumptions),
        ]

    # ---- files

    def save(self, path: str | PathLike[str], *, key: bytes | None = None, overwrite: bool = False) -> None:
        """Write the result to one file, without pickle: its noisy counts, and the options of this result.

        Parameters
        ----------
        path : path
            File to write.
        key : bytes, optional
            Secret key for an HMAC, which detects all changes of the file. Without a key the file has a
            checksum, which detects accidental changes only.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            The file exists and `overwrite` is not True.
        NotAvailableError
            The release has no noise.

        Notes
        -----
        **Privacy.** The file contains the release, which is public, and nothing else. Its readers can compute
        every other result of the release.
        """
        save_release(self.release, self._view(), path, key=key, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str], *, key: bytes | None = None) -> Self:
        """Read a result that `save` wrote.

        Parameters
        ----------
        path : path
            File to read.
        key : bytes, optional
            Secret that the file was written with.

        Returns
        -------
        result
            The saved result.

        Raises
        ------
        StorageError
            The file is damaged, foreign, of a newer version, or written with another key.
        ArgumentError
            The file holds a result of the other class.
        """
        release, view = load_release(path, key=key)
        if view.get("class") != cls.__name__:
            other = next((name for name in RESULT_CLASSES if name == view.get("class")), "another object")
            raise ArgumentError(OTHER_RESULT.format(path, other, cls.__name__, other))
        try:
            return cls._from_view(release, view)
        except PrivinfError as problem:
            reason = str(problem)
        raise StorageError(NO_RESULT.format(path, reason))

    def _view(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def _from_view(cls, release: SurvivalRelease, view: dict[str, Any]) -> Self:
        raise NotImplementedError

    def report(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write an HTML report of the result: summary, plot, trade-off curve and ledger entries.

        The page contains no scripts and loads no other files.

        Parameters
        ----------
        path : path
            File to write.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if matplotlib is not installed (``privinf[plots]``).

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        from privinf.results.page import table_page

        result: Any = self  # its class has `title`, `plot` and notes of several ranks
        page = table_page(result.title, result.summary("all"), self.privacy, result.plot)
        save_text(path, page, overwrite=overwrite)

    # ---- tables for papers

    def _paper_table(self, digits: int | None) -> PaperTable:
        shown = shown_number if digits is None else f"{{:.{digits}f}}".format
        rows: list[tuple[str, ...]] = []
        for name, estimate, error, low, high in self._paper_rows():
            cells = ["-" if value != value else shown(value) for value in (estimate, error)]
            interval = "-" if low != low and high != high else f"[{shown(low)}, {shown(high)}]"
            rows.append((name, *cells, interval))
        records = (
            f"{self.nobs:,}" if self.complete is None else f"about {self.nobs:,} of {self.complete.of:,}"
        )
        note = [*self._paper_facts(), privacy_note(self.privacy, records), ERRORS]
        note += [item.text for item in self._notes if item.rank == "must-read"]
        heads = ["", "Estimate", "Std. error", f"{100 * self.confidence_level:g}% {self._interval_name}"]
        if (column := self._pvalue_column) is not None:
            heads.insert(3, "p-value")
            rows = [(*row[:3], cell, *row[3:]) for row, cell in zip(rows, column.cells, strict=True)]
        return PaperTable(header=tuple(heads), rows=rows, note=" ".join(note))

    @property
    def _interval_name(self) -> str:
        """What a table for a paper calls the intervals."""
        return "interval"

    @property
    def _pvalue_column(self) -> SummaryColumn | None:
        """The p-values of the rows with a note, of a result that tests each of them."""
        return None

    def _paper_rows(self) -> Sequence[PaperRow]:
        raise NotImplementedError

    def _paper_facts(self) -> list[str]:
        """Return the sentences of the note that come first."""
        return []

    # ---- the object

    def summary(self) -> PrivateSummary:
        """Return the summary."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()


RESULT_CLASSES = ("SurvivalResult", "LogRankResult", "HazardRatiosResult")


def shown_number(value: float) -> str:
    """Return a number for a summary: blank where there is none."""
    return "" if value != value else number(value)


def negative_times_notes(release: SurvivalRelease) -> tuple[Note, ...]:
    """Return the note on negative times, if their released number stands out of its noise."""
    texts = negative_times_texts(release.negative_times, release.nobs)
    return tuple(Note(sentence(text), "must-read", CHANGED_TARGET) for text in texts)
