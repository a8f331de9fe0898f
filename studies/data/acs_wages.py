"""Log wages of 640,002 workers of the American Community Survey 2024, on 90 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privinf.datasets.wheel import Dataset, record
from privinf.errors import ArgumentError
from privinf.schema import Numeric
from privinf.validation import check_count
from studies.data.packed import Packed

if TYPE_CHECKING:
    import pandas as pd

DESCR = """\
Log of a year's wages of people of 17 to 80 who worked, American Community Survey 2024, one-year file, the ten
largest states other than California and Texas.

90 columns: age and its square, hours a week, weeks a year, female, hispanic, and indicators of all but the
first code of schooling, marital status, race, citizenship, English, class of worker, military service, way to
work, state, disability and industry (first digit of its code; 0 where it has three). Codes and ranges are the
codebook's. Wages are top-coded below a million dollars; the log is bounded by those of 100 and 1,000,000
dollars, and smaller wages are clipped.

It is used as a stand-in of YearPredictionMSD's shape (rows=515345), with other contents.
"""
SOURCE = "US Census Bureau, American Community Survey 2024, 1-year public use microdata sample"
LICENCE = "US Census public data"

_TABLE = Packed("acs2024_wages", SOURCE)
_CODES = {
    "SCHL": range(1, 25),
    "MAR": range(1, 6),
    "RAC1P": range(1, 10),
    "CIT": range(1, 6),
    "ENG": range(5),
    "COW": range(1, 9),
    "MIL": range(1, 5),
    "JWTRNS": range(13),
    "STATE": (12, 13, 17, 26, 34, 36, 37, 39, 42, 51),
    "DIS": range(1, 3),
    "IND": range(10),
}
_INDICATOR = Numeric(0.0, 1.0)
_COLUMNS = {
    "log_wage": Numeric(float(np.log(100.0)), float(np.log(1e6))),
    "age": Numeric(17.0, 80.0, unit="years"),
    "age2": Numeric(17.0**2, 80.0**2, unit="years^2"),
    "hours": Numeric(1.0, 99.0, unit="hours a week"),
    "weeks": Numeric(1.0, 52.0, unit="weeks a year"),
    "female": _INDICATOR,
    "hispanic": _INDICATOR,
    **{f"{name}_{code}": _INDICATOR for name, codes in _CODES.items() for code in codes[1:]},
}


def load(*, rows: int | None = None, seed: int = 0) -> Dataset:
    """Return log_wage and 90 features (n = 640002, or `rows` of them).

    Parameters
    ----------
    rows : int, optional
        Draw this many rows without replacement.
    seed : int
        Of that draw.

    Raises
    ------
    ArgumentError
        `rows` is more than there are.
    NotAvailableError
        The file is not in the folder that PRIVINF_DATA names.
    """
    table = _TABLE.read()
    if rows is not None:
        if check_count(rows, "rows") > len(table):
            raise ArgumentError(f"rows={rows}: there are {len(table)}")
        drawn = np.random.default_rng(seed).permutation(len(table))[:rows]
        table = table.iloc[drawn].reset_index(drop=True)
    texts = {"description": DESCR, "source": SOURCE, "licence": LICENCE}
    return record("acs_wages", _design(table), "log_wage", _COLUMNS, **texts)


def people() -> pd.DataFrame:
    """Return all 20 columns of the 640,002 people as the survey codes them, missing codes 0.

    Raises
    ------
    NotAvailableError
        The file is not in the folder that PRIVINF_DATA names.
    """
    return _TABLE.read()


def _design(table: pd.DataFrame) -> pd.DataFrame:
    """Return the 90 columns and the log wage."""
    import pandas as pd

    age = table["AGEP"].astype("float64")
    made = {
        "log_wage": np.log(table["WAGP"]),
        "age": age,
        "age2": age**2,
        "hours": table["WKHP"],
        "weeks": table["WKWN"],
        "female": table["SEX"] == 2,
        "hispanic": table["HISP"] > 1,
    }
    coded = table.assign(IND=table["INDP"] // 1000)
    for name, codes in _CODES.items():
        made |= {f"{name}_{code}": coded[name] == code for code in codes[1:]}
    return pd.DataFrame(made)
