"""RAND Health Insurance Experiment: 20,190 person-years."""

from __future__ import annotations

import math
from typing import Literal

from privinf.datasets.record import Dataset, record, wheel_table
from privinf.schema import Numeric
from privinf.validation import check_choice

DESCR = """\
RAND Health Insurance Experiment, 20,190 person-years (Cameron and Trivedi, 2005).

lncoins = ln(coinsurance + 1), coinsurance in percent, so at most ln 101. fmde = ln(max(1, MDE / (.01
coinsurance))): the maximum expenditure was 1,000 dollars and the least positive coinsurance 25%, so at most
ln 4000. lpi = ln(max(1, participation incentive)), bounded by 7.5 (about 1,800 dollars a year). idp,
physlm, hlthg, hlthf and hlthp are indicators; missing values of physlm were replaced, before publication,
by shares in [0, 1]. disea is an index of chronic diseases, bounded by 60; mdvis, visits to a doctor in a
year, is bounded by 52, one a week. Larger values are clipped.

People were followed for three or five years, so a person has several rows; the identifier is not in the
table. A claim for one row is not a claim for one person.
"""
SOURCE = (
    "RAND Corporation; Cameron, A. C. and Trivedi, P. K. (2005), Microeconometrics; "
    "statsmodels.datasets.randhie"
)
LICENCE = "public domain"

ResponseName = Literal["lncoins", "fmde"]
_INDICATOR = Numeric(0.0, 1.0)
_COLUMNS = {
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


def load(*, response: ResponseName = "lncoins") -> Dataset:
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
    >>> load(response="fmde")
    <Dataset randhie: fmde on 9 features, 20190 rows>
    """
    check_choice(response, ResponseName, "response")
    columns = {response: _COLUMNS[response], **_COLUMNS}
    return record(
        "randhie",
        wheel_table("randhie"),
        response,
        columns,
        description=DESCR,
        source=SOURCE,
        licence=LICENCE,
    )
