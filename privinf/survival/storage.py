"""Curves and comparisons in one file, without pickle: the release, and how it is looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from privinf.accounting import PrivacyReport
from privinf.errors import NotAvailableError, PrivinfError, StorageError
from privinf.mechanisms.statistics.survival import LEAST_INTERVALS, MOST_INTERVALS
from privinf.storage.checksummed import reads
from privinf.storage.containers import read_container, write_container
from privinf.survival.release import SurvivalRelease
from privinf.typing import Missing, Trust
from privinf.validation import (
    check_array,
    check_choice,
    check_count,
    check_flag,
    check_positive,
    check_vacant,
)
from privinf.wire import Formats

FORMAT = Formats.SURVIVAL
VERSION = 1  # of the file
NOT_PRIVATE = (
    "a release made with epsilon=inf contains the counts without noise and must not be saved: make it with a "
    "finite epsilon"
)
NO_RESULT = "{} is damaged, or is not a saved survival result ({}); use an intact copy"


def save_release(
    release: SurvivalRelease,
    view: Mapping[str, Any],
    path: str | PathLike[str],
    *,
    key: bytes | None = None,
    overwrite: bool = False,
) -> None:
    """Write a release and the options of a result that is computed from it to one file.

    Raises
    ------
    NotAvailableError
        The release has no noise.
    """
    if not release.scale > 0.0 or math.isinf(release.privacy.epsilon()):
        raise NotAvailableError(NOT_PRIVATE)
    target = check_vacant(path, overwrite)
    header = {
        "view": dict(view),
        "scale": release.scale,
        "discrete": release.discrete,
        "groups": list(release.groups),
        "names": list(release.names),
        "nobs": release.nobs,
        "sites": release.sites,
        "trust": release.trust,
        "missing": release.missing,
        "report": release.recorded.to_dict(),
    }
    arrays = {"values": release.values, "edges": release.edges}
    write_container(target, arrays, header, format=FORMAT, version=VERSION, key=key)


def load_release(
    path: str | PathLike[str], *, key: bytes | None = None
) -> tuple[SurvivalRelease, dict[str, Any]]:
    """Return the release and the options that `save_release` wrote.

    Raises
    ------
    StorageError
        The file is damaged, foreign, of a newer version, or does not describe a release.
    """
    arrays, header = read_container(path, format=FORMAT, version=VERSION, key=key)
    try:
        return _from_parts(arrays, header)
    except StorageError:
        raise
    except PrivinfError as problem:
        reason = str(problem)
    raise StorageError(NO_RESULT.format(path, reason))


@reads("a survival result")
def _from_parts(
    arrays: Mapping[str, np.ndarray[Any, Any]], header: Mapping[str, Any]
) -> tuple[SurvivalRelease, dict[str, Any]]:
    groups, names = (_texts(header[name], name) for name in ("groups", "names"))
    edges = check_array(arrays["edges"], "edges", ndim=1)
    values = check_array(arrays["values"], "values", ndim=1)
    missing = check_choice(header["missing"], Missing, "missing")
    size = len(groups) * (2 * len(edges) + 1) + (missing == "drop")
    rising = len(edges) > 0 and edges[0] > 0.0 and bool((np.diff(edges) > 0.0).all())
    # Files of earlier versions lack the number of negative times.
    sizes = {size, size + 1} if len(edges) >= LEAST_INTERVALS else {size}
    if not rising or len(edges) > MOST_INTERVALS or len(values) not in sizes:
        raise StorageError("the file is damaged: its counts do not fit its grid")
    if not groups or len(names) != 2 + (len(groups) > 1) or len(set(groups)) < len(groups):
        raise StorageError("the file is damaged: its groups do not fit its columns")
    recorded = PrivacyReport.from_dict(header["report"])
    release = SurvivalRelease(
        values=values,
        scale=check_positive(header["scale"], "scale"),
        edges=edges,
        discrete=check_flag(header["discrete"], "discrete"),
        groups=groups,
        names=names,
        nobs=check_count(header["nobs"], "nobs", least=2),
        sites=check_count(header["sites"], "sites"),
        trust=check_choice(header["trust"], Trust, "trust"),
        missing=missing,
        entries=tuple(recorded.entries),
        recorded=recorded,
    )
    if not isinstance(header["view"], dict):
        raise StorageError("the file is damaged: it does not state its result")
    return release, header["view"]


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise StorageError(f"the file is damaged: its {name} are not texts")
    return tuple(value)
