"""Public names of a package, imported on first use, with a hint for a name that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os.path import dirname, join
from typing import Any

import lazy_loader  # type: ignore[import-untyped]


def attach_names(
    package: str, file: str, instead: Mapping[str, str] | None = None, parts: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package with a stub file next to `file`.

    Parameters
    ----------
    package, file : str
        ``__name__`` and ``__file__`` of the package.
    instead : mapping of str to str, optional
        By name of another package that users may expect: what to use.
    parts : sequence of str
        Packages of this package whose own names users may look for here.
    """
    attribute, names_of, names = lazy_loader.attach_stub(package, file)

    def get_attribute(name: str) -> Any:
        if name.startswith("_") or name in names or name in names_of():
            return attribute(name)
        stubs = {f"{package}.{part}": join(dirname(file), part, "__init__.py") for part in parts}
        hint = _hint(name, names, instead or {}, stubs)
        raise AttributeError(f"{package} has no attribute {name!r}{hint}")

    return get_attribute, names_of, names


def _hint(name: str, names: list[str], instead: Mapping[str, str], parts: Mapping[str, str]) -> str:
    """Return what to use instead of a name; `parts` are the files of packages that may have it."""
    from difflib import get_close_matches  # only for an error

    if name in instead:
        return f": {instead[name]}"
    for part, file in parts.items():
        if name in lazy_loader.attach_stub(part, file)[2]:
            return f": use {part}.{name}"
    by_word = {known.casefold(): known for known in names}
    near = get_close_matches(name.casefold(), by_word, 2)
    return f"; did you mean {' or '.join(repr(by_word[word]) for word in near)}?" if near else ""
