"""Real data with public schemas: no download.

From the statsmodels wheel (`NAMES`): ``load("fair")``, ``load("co2", features="lags")``,
``load("modechoice")``, ``load("randhie", response="fmde")``. In a clone of the repository, from the
folder that the environment variable PRIVINF_DATA names (`PACKED`): ``load("insurance")``, ``load("bike")``,
``load("superconductor")``, ``load("gpu")``, ``load("song")``, ``load("acs_wages")``, ``load("acs_income")``,
``load("acs_coverage")``.
The bounds in every schema come from the codebook or from the subject, never from the rows; a value outside
is clipped by the model that uses the schema.
"""

from __future__ import annotations

from privinf.datasets.wheel import LOADERS, Dataset
from privinf.doors import door
from privinf.errors import ArgumentError
from privinf.fitting.registry import studied

NAMES = ("co2", "fair", "modechoice", "randhie")
PACKED = ("insurance", "bike", "superconductor", "gpu", "song", "acs_wages", "acs_income", "acs_coverage")


@door
def load(name: str, **options: str | int | None) -> Dataset:
    """Return a data set by name.

    Parameters
    ----------
    name : str
        One of `NAMES` or `PACKED`.
    **options
        Of that data set's own ``load``.

    Raises
    ------
    ArgumentError
        The name or an option is unknown.
    NotAvailableError
        The data set is one of `PACKED` and ``studies`` is not on Python's path, or its file is not in the
        folder that PRIVINF_DATA names.

    Examples
    --------
    >>> load("fair").formula
    'yrs_married ~ rate_marriage + age + children + religious + educ + occupation + occupation_husb + affairs'
    """
    if name not in NAMES + PACKED:
        raise ArgumentError(f"no data set {name!r}; there are {', '.join(NAMES + PACKED)}")
    if name in LOADERS:
        return LOADERS[name](**options)
    dataset: Dataset = studied(f"data.{name}", f"data set {name!r}").load(**options)
    return dataset


__all__ = ["NAMES", "PACKED", "Dataset", "load"]
