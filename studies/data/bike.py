"""Bikes rented in Washington, D. C., in each of 17,379 hours of 2011 and 2012."""

from __future__ import annotations

from typing import Literal

import numpy as np

from privinf.datasets.wheel import Dataset, record
from privinf.schema import Numeric
from privinf.validation import check_choice
from studies.data.packed import Packed

DESCR = """\
Bikes rented from Capital Bikeshare in every hour of 2011 and 2012, with the weather (hour.csv, 17,379 hours).

season, yr, mnth, holiday, weekday, workingday and weathersit are codes; temp, atemp, hum and windspeed were
divided by public maxima, so that they lie in [0, 1]. Counts are bounded by 1,000 bikes an hour.

response="cnt": all bikes, on these 11 columns and the hour as its sine and cosine. response="registered":
bikes of registered users, on the 11 columns, the hour as a number, and casual, the other bikes. Both have 13
features and the error of least squares that Wu et al. print; only the first has no other count among the
features.
"""
SOURCE = (
    "Fanaee-T, H. and Gama, J. (2014), Event labeling combining ensemble detectors and background knowledge, "
    "Progress in Artificial Intelligence 2, 113-127; UCI Machine Learning Repository 275"
)
LICENCE = "CC BY 4.0"

Response = Literal["cnt", "registered"]
_TABLE = Packed("bike", SOURCE)
_UNIT = Numeric(0.0, 1.0)
_COUNT = Numeric(0.0, 1000.0, unit="bikes an hour")
_WAVE = Numeric(-1.0, 1.0)
_COMMON = {
    "season": Numeric(1.0, 4.0, unit="code"),
    "yr": _UNIT,
    "mnth": Numeric(1.0, 12.0, unit="month"),
    "holiday": _UNIT,
    "weekday": Numeric(0.0, 6.0, unit="day"),
    "workingday": _UNIT,
    "weathersit": Numeric(1.0, 4.0, unit="code"),
    "temp": _UNIT,
    "atemp": _UNIT,
    "hum": _UNIT,
    "windspeed": _UNIT,
}
_COLUMNS = {
    "cnt": {"cnt": _COUNT, **_COMMON, "hour_sin": _WAVE, "hour_cos": _WAVE},
    "registered": {"registered": _COUNT, **_COMMON, "hr": Numeric(0.0, 23.0, unit="hour"), "casual": _COUNT},
}


def load(*, response: Response = "cnt") -> Dataset:
    """Return the count of bikes and 13 features (n = 17379).

    Parameters
    ----------
    response : {"cnt", "registered"}

    Raises
    ------
    ArgumentError
        `response` is neither.
    NotAvailableError
        The file is not in the folder that PRIVINF_DATA names.
    """
    check_choice(response, Response, "response")
    table = _TABLE.read()
    angle = 2.0 * np.pi * table["hr"] / 24.0
    made = table.assign(hour_sin=np.sin(angle), hour_cos=np.cos(angle))
    texts = {"description": DESCR, "source": SOURCE, "licence": LICENCE}
    return record("bike", made, response, _COLUMNS[response], **texts)
