"""Whether sites describe the same columns, and what to say if they do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privinf.errors import AlignmentError


def check_alike(descriptions: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise AlignmentError, naming a site, unless all have the same version, columns and bounds.

    Parameters
    ----------
    descriptions : mapping
        `Site.description` by site.
    """
    names = list(descriptions)
    first = descriptions[names[0]]
    for name in names[1:]:
        other = descriptions[name]
        versions = [one.get("version", "unknown") for one in (other, first)]
        if versions[0] != versions[1]:
            raise AlignmentError(
                f"site {name!r} runs privinf {versions[0]}, site {names[0]!r} {versions[1]}: install the same"
            )
        # A digest leaves out bounds whose last bit may depend on the platform.
        for part, told in (("schema", "schema"), ("digest", "design")):
            if first[part] != other[part]:
                what = _difference(first[told], other[told])
                raise AlignmentError(f"site {name!r} has {what} than site {names[0]!r}")


def lasting(description: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a site's description without the design of its last question, if its schema can take others.

    A site that was started again has none, and may yet be one of those that go on with a fit.
    """
    return description if description["schema"] is None else {**description, "design": None, "digest": ""}


def _difference(first: Any, other: Any) -> str:
    """Say in what two descriptions differ."""
    if first is None or other is None:
        return "another kind of schema"
    columns = [_names(one["columns"]) for one in (first, other)]
    if columns[0] != columns[1]:
        return "other columns"
    return "other bounds or levels"


def _names(columns: Any) -> list[Any]:
    if isinstance(columns, Mapping):
        return sorted(columns)
    return list(columns)
