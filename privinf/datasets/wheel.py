"""A `Dataset`, and those of the statsmodels wheel: each has a public schema and texts that belong to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from privinf.schema import Numeric, Schema
from privinf.validation import check_choice

if TYPE_CHECKING:
    import pandas as pd

WheelTable = Literal["co2", "fair", "modechoice", "randhie"]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Dataset:
    """Data set with a schema, for a private regression of one column on all others.

    Attributes
    ----------
    name : str
        Name of the data set.
    data : DataFrame, shape (n, d + 1)
        Rows as float64, or text where a column has levels of text; no missing values. The columns are those
        of `schema`, in its order.
    response : str
        Name of the response.
    schema : Schema
        Public bounds from the codebook, never from the rows.
    description, source, licence : str
        Description of the data, their source and their licence.
    """

    name: str
    data: pd.DataFrame
    response: str
    schema: Schema
    description: str
    source: str
    licence: str

    @property
    def features(self) -> list[str]:
        """Names of the d other columns."""
        return [name for name in self.data.columns if name != self.response]

    @property
    def X(self) -> pd.DataFrame:
        """The features, shape (n, d), without a constant."""
        return self.data[self.features]

    @property
    def y(self) -> pd.Series:
        """The response, shape (n,)."""
        return self.data[self.response]

    @property
    def formula(self) -> str:
        """The response on every feature, with an intercept."""
        return f"{self.response} ~ {' + '.join(self.features)}"

    def __repr__(self) -> str:
        n, columns = self.data.shape
        return f"<Dataset {self.name}: {self.response} on {columns - 1} features, {n} rows>"


def wheel_table(name: WheelTable) -> pd.DataFrame:
    """Return a table of the statsmodels wheel."""
    data: pd.DataFrame = import_module(f"statsmodels.datasets.{name}").load_pandas().data
    return data


def record(name: str, data: pd.DataFrame, response: str, columns: Mapping[str, Any], **texts: str) -> Dataset:
    """Return the record of `data`, cut to the declared columns and put in their order."""
    return Dataset(
        name=name,
        data=data[list(columns)].astype("float64"),
        response=response,
        schema=Schema(columns),
        **texts,
    )


CO2_TEXTS = {
    "description": """\
Weekly mean CO2 concentration at Mauna Loa, March 1958 to December 2001, 2,284 weeks. The 59 weeks without a
measurement are interpolated linearly.

features="harmonic" gives t, t^2 and t^3, where t increases from -1 (first week) to 1 (last week), and sine
and cosine terms of one and two cycles a year.

features="lags" gives the concentrations of the seven preceding weeks. Lags before the first week are filled
with the first concentration.

Concentrations are bounded by 300 and 400 ppm. Ice cores and single measurements show that the air of those
decades was well inside these bounds.
""",
    "source": (
        "Keeling, C. D. and Whorf, T. P. (2004), Atmospheric CO2 concentrations derived from flask air "
        "samples at sites in the SIO network, CDIAC; statsmodels.datasets.co2"
    ),
    "licence": "public domain",
}
Features = Literal["harmonic", "lags"]
CO2_BOUNDS = Numeric(300.0, 400.0, unit="ppm")  # from ice cores and spot measurements, see the description
CO2_LAGS = 7  # weeks before, as features


def load_co2(*, features: Features = "harmonic") -> Dataset:
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
    >>> load_co2(features="harmonic").features
    ['t', 't2', 't3', 'sin1', 'cos1', 'sin2', 'cos2']
    """
    check_choice(features, Features, "features")
    co2 = wheel_table("co2")["co2"].interpolate()
    table = _harmonics(co2) if features == "harmonic" else _lags(co2)
    bounds = Numeric(-1.0, 1.0) if features == "harmonic" else CO2_BOUNDS
    columns = {"co2": CO2_BOUNDS, **dict.fromkeys(table.columns, bounds)}
    table.insert(0, "co2", co2)
    return record("co2", table, "co2", columns, **CO2_TEXTS)


def _harmonics(co2: pd.Series) -> pd.DataFrame:
    import pandas as pd

    dates = pd.DatetimeIndex(co2.index)
    t = np.linspace(-1.0, 1.0, len(co2))
    year = 2.0 * np.pi * (dates.year + (dates.day_of_year - 1) / 365.25).to_numpy()
    waves = {"sin1": np.sin(year), "cos1": np.cos(year), "sin2": np.sin(2 * year), "cos2": np.cos(2 * year)}
    return pd.DataFrame({"t": t, "t2": t**2, "t3": t**3, **waves}, index=dates)


def _lags(co2: pd.Series) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({f"lag{k}": co2.shift(k).bfill() for k in range(1, CO2_LAGS + 1)})


FAIR_TEXTS = {
    "description": """\
Answers of 6,366 married women to a questionnaire of Redbook magazine in 1974 (Fair, 1978).

All columns but the last are codes. Their bounds are known in advance, because the codebook lists the codes:
* rate_marriage: 1 (very poor) to 5 (very good)
* age: 17.5 (under 20) to 42 (40 or over)
* yrs_married: 0.5 (less than 1) to 23 (more than 10, oldest child 18 or over)
* children: 0 to 5.5 (five or more)
* religious: 1 (not) to 4 (strongly)
* educ: 9 (grade school) to 20 (advanced degree)
* occupation and occupation_husb: 1 (student) to 6 (professional with advanced degree)

affairs is the number of encounters a year. Its largest value is not known in advance, so it is bounded by 10,
and larger values are clipped.
""",
    "source": (
        "Fair, R. C. (1978), A theory of extramarital affairs, Journal of Political Economy 86, 45-61; "
        "statsmodels.datasets.fair"
    ),
    "licence": "distributed with statsmodels with permission of the author",
}
FAIR_COLUMNS = {
    "yrs_married": Numeric(0.5, 23.0, unit="years"),
    "rate_marriage": Numeric(1.0, 5.0, unit="code"),
    "age": Numeric(17.5, 42.0, unit="years"),
    "children": Numeric(0.0, 5.5),
    "religious": Numeric(1.0, 4.0, unit="code"),
    "educ": Numeric(9.0, 20.0, unit="years"),
    "occupation": Numeric(1.0, 6.0, unit="code"),
    "occupation_husb": Numeric(1.0, 6.0, unit="code"),
    "affairs": Numeric(0.0, 10.0, unit="per year"),
}


MODECHOICE_TEXTS = {
    "description": """\
Choice of travel mode in 1987 (Greene and Hensher, 1997). Each of 210 travelers had four alternatives, which
gives 840 rows.

mode is coded 1 (air), 2 (train), 3 (bus), 4 (car). choice is 1 for the chosen alternative and 0 for others.
The generalized cost gc is the in-vehicle cost plus the value of the travel time. The bounds are round
numbers: waits (ttme) up to 2 hours, fares (invc) up to 250 dollars, travel times (invt) up to a day, incomes
(hinc) up to 100 thousand dollars, and group sizes (psize) up to 6.

The column `individual` is removed, as in the paper on modulated learning (docs/papers.md), so every row
counts as one client. A traveler has four rows with the same income and group size, so a privacy guarantee
for one row is not a guarantee for one traveler.
""",
    "source": (
        "Greene, W. H. and Hensher, D. (1997), Multinomial logit and discrete choice models; "
        "statsmodels.datasets.modechoice"
    ),
    "licence": "public domain",
}
MODECHOICE_COLUMNS = {
    "gc": Numeric(0.0, 300.0, unit="dollars"),
    "mode": Numeric(1.0, 4.0, unit="code"),
    "choice": Numeric(0.0, 1.0),
    "ttme": Numeric(0.0, 120.0, unit="minutes"),
    "invc": Numeric(0.0, 250.0, unit="dollars"),
    "invt": Numeric(0.0, 1440.0, unit="minutes"),
    "hinc": Numeric(0.0, 100.0, unit="1000 dollars"),
    "psize": Numeric(1.0, 6.0),
}


RANDHIE_TEXTS = {
    "description": """\
RAND Health Insurance Experiment, 20,190 person-years (Cameron and Trivedi, 2005).

* lncoins = ln(coinsurance + 1), with coinsurance in percent, so at most ln 101.
* fmde = ln(max(1, MDE / (0.01 coinsurance))), with MDE the maximum expenditure in dollars. MDE was at
  most 1,000 and positive coinsurance at least 25, so fmde is at most ln 4000.
* lpi = ln(max(1, participation incentive)), bounded by 7.5 (about 1,800 dollars a year).
* disea is an index of chronic diseases, bounded by 60.
* mdvis is the number of visits to a doctor in a year, bounded by 52 (one a week).
* idp, physlm, hlthg, hlthf and hlthp are indicators. Missing values of physlm were replaced by shares between
  0 and 1 before the data were published.

Values outside the bounds are clipped. People were observed for three or five years, so a person has several
rows, and the table has no identifier of persons. A privacy guarantee for one row is not a guarantee for one
person.
""",
    "source": (
        "RAND Corporation; Cameron, A. C. and Trivedi, P. K. (2005), Microeconometrics; "
        "statsmodels.datasets.randhie"
    ),
    "licence": "public domain",
}
ResponseName = Literal["lncoins", "fmde"]
_INDICATOR = Numeric(0.0, 1.0)  # bounds of a column of zeros and ones
RANDHIE_COLUMNS = {
    "lncoins": Numeric(0.0, math.log(101.0)),
    "fmde": Numeric(0.0, math.log(4000.0)),
    "mdvis": Numeric(0.0, 52.0, unit="visits a year"),
    "idp": _INDICATOR,
    "lpi": Numeric(0.0, 7.5),
    "physlm": _INDICATOR,
    "disea": Numeric(0.0, 60.0),
    "hlthg": _INDICATOR,
    "hlthf": _INDICATOR,
    "hlthp": _INDICATOR,
}


def load_randhie(*, response: ResponseName = "lncoins") -> Dataset:
    """Return lncoins or fmde and the 9 other columns (n = 20190).

    Parameters
    ----------
    response : {"lncoins", "fmde"}

    Raises
    ------
    ArgumentError
        `response` is neither.

    Examples
    --------
    >>> load_randhie(response="fmde")
    <Dataset randhie: fmde on 9 features, 20190 rows>
    """
    check_choice(response, ResponseName, "response")
    columns = {response: RANDHIE_COLUMNS[response], **RANDHIE_COLUMNS}
    return record("randhie", wheel_table("randhie"), response, columns, **RANDHIE_TEXTS)


WHEEL: Mapping[str, Callable[..., Dataset]] = MappingProxyType(
    {
        "co2": load_co2,
        "fair": lambda: record("fair", wheel_table("fair"), "yrs_married", FAIR_COLUMNS, **FAIR_TEXTS),
        "modechoice": lambda: record(
            "modechoice", wheel_table("modechoice"), "gc", MODECHOICE_COLUMNS, **MODECHOICE_TEXTS
        ),
        "randhie": load_randhie,
    }
)
