"""Real data with public schemas: nothing is downloaded.

From the statsmodels wheel (`NAMES`): ``load("fair")``, ``load("co2", features="lags")``,
``load("modechoice")``, ``load("randhie", response="fmde")``. From packages of the extra ``datasets``
(`INDEXED`): ``load("wage1")``, ``load("401ksubs", response="pira")``, ``load("diabetes")``,
``load("flights", features=["dep_delay", "origin"])`` and others. In a clone of the repository, from the
folder that the environment variable PRIVINF_DATA names (`PACKED`): ``load("insurance")``, ``load("bike")``,
``load("superconductor")``, ``load("gpu")``, ``load("song")``, ``load("acs_wages")``, ``load("acs_income")``,
``load("acs_coverage")``.
The bounds in every schema come from the codebook or from the subject, not from the rows (``index.toml`` names
one exception); a value outside is clipped by the model that uses the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from types import MappingProxyType

from privinf.datasets.index import TABLES, load_indexed
from privinf.datasets.wheel import WHEEL, Dataset
from privinf.error_boundary import error_boundary
from privinf.errors import ArgumentError
from privinf.registry import studied

INDEXED = tuple(sorted(TABLES))
NAMES = ("co2", "fair", "modechoice", "randhie")
PACKED = ("insurance", "bike", "superconductor", "gpu", "song", "acs_wages", "acs_income", "acs_coverage")
LOADERS: Mapping[str, Callable[..., Dataset]] = MappingProxyType(
    {**WHEEL, **{name: partial(load_indexed, name) for name in INDEXED}}
)


@error_boundary
def load(name: str, **options: str | int | Sequence[str] | None) -> Dataset:
    """Return a data set by name.

    Parameters
    ----------
    name : str
        One of `NAMES`, `INDEXED` or `PACKED`.
    **options
        Options of the loader of this data set; ``response=`` and ``features=`` where it is one of `INDEXED`.

    Returns
    -------
    Dataset
        The table with its schema, its formula and its source.

    Raises
    ------
    ArgumentError
        The name or an option is unknown.
    NotAvailableError
        The data set is one of `INDEXED` and its package is not installed: the error has the command. Or it is
        one of `PACKED` and ``studies`` is not on Python's path, or its file is not in the
        folder that PRIVINF_DATA names.

    Examples
    --------
    >>> from privinf.datasets import load
    >>> load("fair").formula
    'yrs_married ~ rate_marriage + age + children + religious + educ + occupation + occupation_husb + affairs'
    """
    names = NAMES + INDEXED + PACKED
    if name not in names:
        raise ArgumentError(f"there is no data set {name!r}; data sets are: {', '.join(names)}")
    loader: Callable[..., Dataset]
    loader = LOADERS[name] if name in LOADERS else studied(f"data.{name}", f"data set {name!r}").load
    accepted = list(signature(loader).parameters)
    if unknown := [option for option in options if option not in accepted]:
        raise ArgumentError(
            f"data set {name!r} has no option {unknown[0]!r}; its options are: "
            f"{', '.join(accepted) or 'none'}"
        )
    return loader(**options)


__all__ = ["INDEXED", "NAMES", "PACKED", "Dataset", "load"]
