"""Weekly CO2 at Mauna Loa, 1958 to 2001, with features made of the date or of the past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from privinf.datasets.record import Dataset, record, wheel_table
from privinf.schema import Numeric
from privinf.validation import check_choice

if TYPE_CHECKING:
    import pandas as pd

DESCR = """\
Weekly mean CO2 concentration at Mauna Loa, March 1958 to December 2001: 2,284 weeks. The 59 weeks without a
measurement are interpolated linearly.

features="harmonic": t, t^2, t^3 with t running from -1 (first week) to 1 (last), and sine and cosine of one
and two cycles a year. features="lags": the concentrations of the seven weeks before; the first weeks, which
have no such past, are filled with the first concentration. Concentrations are bounded by 300 and 400 ppm:
ice cores and spot measurements put the air of those decades well inside.
"""
SOURCE = (
    "Keeling, C. D. and Whorf, T. P. (2004), Atmospheric CO2 concentrations derived from flask air samples "
    "at sites in the SIO network, CDIAC; statsmodels.datasets.co2"
)
LICENCE = "public domain"

Features = Literal["harmonic", "lags"]
_CONCENTRATION = Numeric(300.0, 400.0, unit="ppm")
_LAGS = 7


def load(*, features: Features = "harmonic") -> Dataset:
    """Return co2 and 7 features (n = 2284).

    Parameters
    ----------
    features : {"harmonic", "lags"}

    Raises
    ------
    ArgumentError
        `features` is neither.

    Examples
    --------
    >>> load(features="harmonic").features
    ['t', 't2', 't3', 'sin1', 'cos1', 'sin2', 'cos2']
    """
    check_choice(features, Features, "features")
    co2 = wheel_table("co2")["co2"].interpolate()
    made = _harmonics(co2) if features == "harmonic" else _lags(co2)
    bounds = Numeric(-1.0, 1.0) if features == "harmonic" else _CONCENTRATION
    columns = {"co2": _CONCENTRATION, **dict.fromkeys(made.columns, bounds)}
    made.insert(0, "co2", co2)
    return record("co2", made, "co2", columns, description=DESCR, source=SOURCE, licence=LICENCE)


def _harmonics(co2: pd.Series) -> pd.DataFrame:
    import pandas as pd

    dates = pd.DatetimeIndex(co2.index)
    t = np.linspace(-1.0, 1.0, len(co2))
    year = 2.0 * np.pi * (dates.year + (dates.day_of_year - 1) / 365.25).to_numpy()
    waves = {"sin1": np.sin(year), "cos1": np.cos(year), "sin2": np.sin(2 * year), "cos2": np.cos(2 * year)}
    return pd.DataFrame({"t": t, "t2": t**2, "t3": t**3, **waves}, index=dates)


def _lags(co2: pd.Series) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({f"lag{k}": co2.shift(k).bfill() for k in range(1, _LAGS + 1)})
