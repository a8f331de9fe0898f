"""Notes of a result, each with a rank by which a summary can choose; what imputed and clipped values do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from privinf.accounting import PrivacyReport
from privinf.errors import ArgumentError
from privinf.typing import NoteRank
from privinf.validation import check_choice

# Kind of the caution of results whose target is not the one of the rows as they are.
CHANGED_TARGET = "ChangedTarget"
IMPUTING = "impute-public"
IMPUTED_LABEL = "Missing values:"
IMPUTED_VALUE = "middle of bounds"
CLIPPED = "Target: the regression among rows clipped to the public bounds."
CLIPPED_COLUMNS = (
    "Target: the regression among rows whose private columns are {} public {}; {} is used as it is."
)
CLIPPED_RESPONSE = (
    "Target: the regression among rows whose response is clipped to its public bounds; no bounds are "
    "declared for the other columns, which are used as they are."
)
TARGET = "Target: the regression among rows"
CLIPPED_PAIRS = "Correlations are those among values clipped to their public bounds."
COMPLETED = (
    "Target: the regression among rows whose missing values are the middle of their public bounds, clipped "
    "to these bounds."
)
IMPUTED = (
    "missing values were replaced by the middle of their public bounds, or the first level of a factor "
    "(missing='impute-public'): estimates describe the completed data, and slopes of columns with missing "
    "values are biased, as a rule towards zero"
)
IMPUTED_SAMPLE = (
    "missing values were replaced by the middle of their public bounds, or the first level of a factor "
    "(missing='impute-public'): estimates and tests describe the completed data"
)

OUTSIDE = (
    "{} lie outside their public bounds and were put at the nearest one: coefficients are those of the "
    "clipped values; state wider bounds"
)
AT_AN_END = (
    "nearly all values of {} lie at one end of their public bounds, or beyond it, where they are clipped: "
    "check these bounds, and state others"
)

MAIN_NOTES = 4  # a summary prints no more notes than this, unless more must be read


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence or more about a result, and how much a reader needs it.

    Attributes
    ----------
    text : str
    rank : {"header", "must-read", "table", "detail"}
        "header": what the estimates are of, and whether they are protected. "must-read": what a reader must
        know before the numbers are used. "table": what the columns of the table are. "detail": the rest.
    kind : str
        Kind of the caution that says the same (`privinf.results.export`), such as "ChangedTarget"; empty
        where there is none.

    Notes
    -----
    **Privacy.** A function of releases and of public arguments.
    """

    text: str
    rank: NoteRank = "detail"
    kind: str = ""

    def __post_init__(self) -> None:
        check_choice(self.rank, NoteRank, "rank")
        if not isinstance(self.text, str) or not isinstance(self.kind, str):
            raise ArgumentError("a note is a text, and its kind is one")

    def __str__(self) -> str:
        return self.text


def ranked(notes: Iterable[str | Note]) -> tuple[Note, ...]:
    """Return notes as they are; a text without a rank is a detail."""
    return tuple(note if isinstance(note, Note) else Note(note) for note in notes)


def must_read(*texts: str) -> tuple[Note, ...]:
    """Return notes that a reader must know before the numbers are used."""
    return tuple(Note(text, "must-read") for text in texts)


def main_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return the notes that a summary prints unless it is asked for all of them.

    Those that must be read, however many they are, and then what explains the table, `MAIN_NOTES` in all. A
    header that says more than that values are clipped counts as must-read.
    """
    known = tuple(notes)
    first = [
        note for note in known if note.rank == "must-read" or (note.rank == "header" and note.text != CLIPPED)
    ]
    columns = [note for note in known if note.rank == "table"]
    return (*first, *columns[: max(MAIN_NOTES - len(first), 0)])


def sentence(text: str) -> str:
    """Return the text of a warning or caution as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def imputes(*known: Mapping[str, Any]) -> bool:
    """Whether settings, or the law of a release, say that missing values were imputed.

    They say it whenever the option was given, whatever the rows hold. Of releases and results of older
    versions nobody knows.
    """
    return any(one.get("missing") == IMPUTING for one in known)


def target_notes(report: PrivacyReport) -> tuple[Note, ...]:
    """Return whose coefficients results with noise are: those of rows clipped to their public bounds."""
    return () if math.isinf(report.epsilon()) else (Note(CLIPPED, "header"),)


def clipped_texts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what releases show of values outside their bounds: shares by name, and means at an end."""
    shares = dict(settings.get("clipped", {}))
    ends = settings.get("at_an_end", ())
    told = " and ".join(f"about {float(share):.0%} of the values of {name}" for name, share in shares.items())
    left = ", ".join(str(name) for name in ends if name not in shares)
    texts = [OUTSIDE.format(told)] if told else []
    return (*texts, *([AT_AN_END.format(left)] if left else []))


def with_imputation(notes: Iterable[str | Note]) -> tuple[Note, ...]:
    """Return the notes of a result of completed rows: its target, and what that does to estimates."""
    told = Note(COMPLETED, "header")
    must = Note(sentence(IMPUTED), "must-read", CHANGED_TARGET)
    others = (note for note in ranked(notes) if not note.text.startswith(TARGET) and note.text != must.text)
    return (told, must, *others)
