"""Fair (1978): years married and seven other answers of 6,366 women."""

from __future__ import annotations

from privinf.datasets.record import Dataset, record, wheel_table
from privinf.schema import Numeric

DESCR = """\
Answers of 6,366 married women to a questionnaire of Redbook magazine, 1974 (Fair, 1978).

All columns but the last are codes, and the codebook lists them, so the bounds are known beforehand:
rate_marriage 1 (very poor) to 5 (very good); age 17.5 (under 20) to 42 (40 or over); yrs_married 0.5 (less
than 1) to 23 (more than 10, oldest child 18 or over); children 0 to 5.5 (five or more); religious 1 (not)
to 4 (strongly); educ 9 (grade school) to 20 (advanced degree); occupation and occupation_husb 1 (student)
to 6 (professional with advanced degree). affairs is a rate, encounters a year, which has no greatest code:
it is bounded by 10, and larger values are clipped.
"""
SOURCE = (
    "Fair, R. C. (1978), A theory of extramarital affairs, Journal of Political Economy 86, 45-61; "
    "statsmodels.datasets.fair"
)
LICENCE = "distributed with statsmodels with permission of the author"

_COLUMNS = {
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


def load() -> Dataset:
    """Return yrs_married and the 8 other columns (n = 6366).

    Examples
    --------
    >>> load()
    <Dataset fair: yrs_married on 8 features, 6366 rows>
    """
    texts = {"description": DESCR, "source": SOURCE, "licence": LICENCE}
    return record("fair", wheel_table("fair"), "yrs_married", _COLUMNS, **texts)
