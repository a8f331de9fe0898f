"""The declaration of a status: which level of its column is the event."""

from __future__ import annotations

from privinf.errors import ArgumentError, SchemaError
from privinf.schema import Factor, Numeric
from privinf.typing import Label
from privinf.validation import shown, shown_name

TEXT_LEVELS = (
    "the status {} has the text levels {} and {}, which do not state that the second is the event: pass "
    "event={}, or a status that is 0 or 1. A column of groups is not a status; {}"
)


def check_event(declared: Factor | Numeric, name: str, event: Label | None, groups: str) -> None:
    """Raise unless the declaration of a status, with `event`, states which value is the event.

    Parameters
    ----------
    declared : Factor or Numeric
        Factor of two levels, of which the second is the event, or a column of 0 and 1.
    name : str
        Name of the status.
    event : label, optional
        Level that is the event; needed where levels are texts, such as ``"dead"``.
    groups : str
        Where groups are passed, for a caller who named their column.

    Raises
    ------
    SchemaError
        The levels are texts and no event is named, or the event is the first level.
    ArgumentError
        `event` is not a level.

    Notes
    -----
    **Privacy.** Reads the declaration alone, no rows.
    """
    if not isinstance(declared, Factor):
        if event is not None and event != 1:
            raise ArgumentError(
                f"event= must be a level of the status {shown_name(name)}, which is 1 for the event: leave "
                "event= out"
            )
        return
    first, second = declared.levels
    if event is None:
        if not (_is_code(first) and _is_code(second)):
            raise SchemaError(
                TEXT_LEVELS.format(shown_name(name), shown(first), shown(second), shown(second), groups)
            )
        return
    if event == second:
        return
    if event == first:
        raise SchemaError(
            f"event={shown(event)} is the first level of the status {shown_name(name)}: declare it as the "
            f"second, pi.Factor([{shown(second)}, {shown(first)}])"
        )
    raise ArgumentError(
        f"event= must be a level of the status {shown_name(name)}, {shown(first)} or {shown(second)}"
    )


def _is_code(level: Label) -> bool:
    """Return whether a level is a number, or a text that is one."""
    if not isinstance(level, str):
        return True
    try:
        float(level)
    except ValueError:
        return False
    return True
