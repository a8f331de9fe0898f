"""Progress bars of slow calls: shown after two seconds, and turned off by ``progress=False``.

A call opens the one bar of its work, and the work moves it by `step`, wherever it is done. Bars of calls
within that work stay hidden.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

from privinf.validation import check_flag

DELAY = 2.0  # seconds of work after which a bar is shown

_BAR: ContextVar[Any] = ContextVar("progress_bar", default=None)


@contextmanager
def progress_bar(
    progress: bool | None, description: str, *, total: int | None = None, unit: str = "step"
) -> Iterator[None]:
    """Show a bar for the work within the block, which `step` moves.

    Parameters
    ----------
    progress : bool or None
        True: show it. False: hide it, and all bars within. None: show it on a terminal and in a notebook.
    description : str
        Name of the work.
    total : int, optional
        Number of steps, if it is known.
    unit : str
        Name of a step.
    """
    hidden = None if "ipykernel" not in sys.modules else False
    if progress is not None:
        hidden = not check_flag(progress, "progress")
    if _BAR.get() is not None:
        hidden = True
    with tqdm(total=total, desc=description, unit=unit, delay=DELAY, leave=False, disable=hidden) as bar:
        token = _BAR.set(bar)
        try:
            yield
        finally:
            _BAR.reset(token)


def step(count: int = 1) -> None:
    """Move the bar of the running work, if there is one."""
    bar = _BAR.get()
    if bar is not None:
        bar.update(count)


def bars_are_hidden() -> bool:
    """Return whether the running work hides its bar, so that bars of reading stay hidden too."""
    bar = _BAR.get()
    return bar is not None and bool(bar.disable)
