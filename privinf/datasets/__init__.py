"""Real data with public schemas, from the statsmodels wheel: no download.

``load("fair")``, ``load("co2", features="lags")``, ``load("modechoice")``,
``load("randhie", response="fmde")``. The bounds in every schema come from the codebook or from the subject,
never from the rows; a value outside is clipped by the model that uses the schema.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from privinf.datasets.record import Dataset
from privinf.errors import ArgumentError

NAMES = ("co2", "fair", "modechoice", "randhie")


def load(name: str, **options: Any) -> Dataset:
    """Return a data set by name.

    Parameters
    ----------
    name : {"co2", "fair", "modechoice", "randhie"}
    **options
        Of that data set's own ``load``.

    Raises
    ------
    ArgumentError
        The name or an option is unknown.

    Examples
    --------
    >>> load("fair").formula
    'yrs_married ~ rate_marriage + age + children + religious + educ + occupation + occupation_husb + affairs'
    """
    if name not in NAMES:
        raise ArgumentError(f"no data set {name!r}; there are {', '.join(NAMES)}")
    found: Dataset = import_module(f"privinf.datasets.{name}").load(**options)
    return found


__all__ = ["NAMES", "Dataset", "load"]
