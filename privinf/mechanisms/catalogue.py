"""The catalogue of statistics, by name, that a site may be queried for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from privinf.errors import ArgumentError, NotAvailableError
from privinf.mechanisms.statistics.curved import CURVED_OPS
from privinf.mechanisms.statistics.glm import GLM_OPS
from privinf.mechanisms.statistics.hazards import HAZARD_OPS
from privinf.mechanisms.statistics.layers import LAYER_OPS
from privinf.mechanisms.statistics.moments import MOMENT_OPS
from privinf.mechanisms.statistics.ops import SiteOp
from privinf.mechanisms.statistics.outside import OUTSIDE_OPS
from privinf.mechanisms.statistics.regression import SPARSE_OPS
from privinf.mechanisms.statistics.scores import FORM_OPS, SINGLE_OPS, VECTOR_OPS
from privinf.mechanisms.statistics.survival import SURVIVAL_OPS
from privinf.mechanisms.statistics.whitened import WHITENED_OPS
from privinf.registry import studied

SITE_OPS: dict[str, SiteOp] = (
    SINGLE_OPS
    | GLM_OPS
    | CURVED_OPS
    | HAZARD_OPS
    | VECTOR_OPS
    | MOMENT_OPS
    | FORM_OPS
    | SPARSE_OPS
    | WHITENED_OPS
    | LAYER_OPS
    | OUTSIDE_OPS
    | SURVIVAL_OPS
)

# The package's own statistics, without later registrations.
SHIPPED = frozenset(SITE_OPS)


def register(ops: Mapping[str, SiteOp]) -> None:
    """Add statistics of studies; no policy allows them that does not name them.

    Raises
    ------
    ArgumentError
        One has the name of a statistic of the package.
    """
    if duplicates := SHIPPED & ops.keys():
        raise ArgumentError(
            f"statistics of the package already have the name(s) {', '.join(map(repr, sorted(duplicates)))}: "
            "choose other names"
        )
    SITE_OPS.update(ops)


def look_up(names: Iterable[str]) -> None:
    """Import the statistics of studies, if they are here, where a holder names one that is not known."""
    if any(name not in SITE_OPS for name in names):
        with suppress(NotAvailableError):
            studied("paper.statistics", "a statistic that only the repository's studies use")
