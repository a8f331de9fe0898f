"""The door to `studies`, which stand beside the package in its repository and are not in the wheel."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from privinf.errors import NotAvailableError


def studied(module: str, what: str) -> ModuleType:
    """Import a module of studies, which registers what it adds to the package.

    Parameters
    ----------
    module : str
        Its name below ``studies``.
    what : str
        What it is needed for, as the error names it.

    Raises
    ------
    NotAvailableError
        studies cannot be imported here.
    """
    name = f"studies.{module}"
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not name.startswith(missing.name):
            raise
        raise NotAvailableError(
            f"{what} is one of the studies in the repository of privinf, which are not in its wheel: put the "
            "root of the repository on Python's path (PYTHONPATH, or pip install -e of a clone)"
        ) from None
