"""Generalised cost of 840 travel alternatives between Sydney, Canberra and Melbourne, 1987."""

from __future__ import annotations

from privinf.datasets.record import Dataset, record, wheel_table
from privinf.schema import Numeric

DESCR = """\
Choice of travel mode, 1987: 210 travellers, four alternatives each, 840 rows (Greene and Hensher, 1997).

gc, the generalised cost, is in-vehicle cost plus the value of the travel time. mode is coded 1 (air),
2 (train), 3 (bus), 4 (car); choice is 0 or 1. The bounds are round numbers that journeys between these
cities, incomes and travelling groups of 1987 keep: waits up to 2 hours, fares up to 250 dollars, journeys up
to a day, incomes up to 100 thousand dollars, groups up to 6.

The identifier `individual` is dropped, as the paper has it, which makes every row a client. A traveller has
four rows with the same income and group size: a claim for one row is not a claim for one traveller.
"""
SOURCE = (
    "Greene, W. H. and Hensher, D. (1997), Multinomial logit and discrete choice models; "
    "statsmodels.datasets.modechoice"
)
LICENCE = "public domain"

_COLUMNS = {
    "gc": Numeric(0.0, 300.0, unit="dollars"),
    "mode": Numeric(1.0, 4.0, unit="code"),
    "choice": Numeric(0.0, 1.0),
    "ttme": Numeric(0.0, 120.0, unit="minutes"),
    "invc": Numeric(0.0, 250.0, unit="dollars"),
    "invt": Numeric(0.0, 1440.0, unit="minutes"),
    "hinc": Numeric(0.0, 100.0, unit="1000 dollars"),
    "psize": Numeric(1.0, 6.0),
}


def load() -> Dataset:
    """Return gc and the 7 other columns (n = 840).

    Examples
    --------
    >>> load()
    <Dataset modechoice: gc on 7 features, 840 rows>
    """
    texts = {"description": DESCR, "source": SOURCE, "licence": LICENCE}
    return record("modechoice", wheel_table("modechoice"), "gc", _COLUMNS, **texts)
