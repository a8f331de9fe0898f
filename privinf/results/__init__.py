"""Results: everything that is derived from an estimate, and how it is shown, compared and stored."""

from __future__ import annotations

from os import PathLike

from privinf.doors import door
from privinf.results.base import Results
from privinf.results.comparison import Comparison, compare
from privinf.results.context import Context
from privinf.results.storage import register_model

__all__ = ["Comparison", "Context", "Results", "compare", "load_results", "register_model"]


@door
def load_results(path: str | PathLike[str], *, key: bytes | None = None) -> Results:
    """Read a result that `Results.save` wrote.

    Raises
    ------
    StorageError
        The file is damaged, foreign, of a newer version, or written with another key.
    """
    return Results.load(path, key=key)
