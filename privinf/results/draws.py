"""Draws of the coefficients for xarray and ArviZ."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from privinf.errors import NotAvailableError
from privinf.typing import Floats, Names

if TYPE_CHECKING:
    import xarray as xr


def draws_dataset(draws: Floats, names: Names, **attributes: Any) -> xr.Dataset:
    """Return draws of shape (draws, p) as Dataset with dims (chain, draw, coefficient).

    Raises
    ------
    NotAvailableError
        xarray is not installed.
    """
    try:
        import xarray as xr
    except ImportError:
        raise NotAvailableError("draws need xarray: pip install 'privinf[arviz]'") from None
    coords = {"chain": [0], "draw": np.arange(len(draws)), "coefficient": list(names)}
    values = np.asarray(draws, dtype=np.float64)[None]
    return xr.Dataset({"params": (("chain", "draw", "coefficient"), values)}, coords, attributes)


def to_arviz(dataset: xr.Dataset, group: str = "posterior") -> Any:
    """Return ArviZ's container of the draws: InferenceData before version 1, DataTree from then on.

    The group is called "posterior" because ArviZ's functions look there; the draws are from a sampling
    distribution, as the attributes say. Pass probabilities explicitly: ArviZ's defaults changed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces version 1 on import
            import arviz as az
    except ImportError:
        raise NotAvailableError("to_arviz needs ArviZ: pip install 'privinf[arviz]'") from None
    if int(az.__version__.partition(".")[0]) >= 1:
        import xarray as xr

        return xr.DataTree.from_dict({group: dataset})
    container: Any = az.InferenceData
    return container(**{group: dataset})
