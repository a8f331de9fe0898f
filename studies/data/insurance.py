"""Medical charges of 1,338 insured people (Lantz): simulated for a textbook from census demographics."""

from __future__ import annotations

from typing import Literal

from privinf.datasets.wheel import Dataset, record
from privinf.schema import Numeric
from privinf.validation import check_choice
from studies.data.packed import Packed

DESCR = """\
A year's medical charges of 1,338 beneficiaries of a health plan, made by Lantz for "Machine Learning with R".

age is 18 to 64 (the plan ends at 65), children 0 to 5 (as coded), sex and smoker are indicators (male,
yes). bmi is bounded by 15 and 55, charges by 0 and 75,000 dollars; values outside are clipped.

regions="indicators" has one column for each of the four regions: they add up to one, so a regression has
either them or an intercept (Wu et al. have d = 9 thus). regions="treatment" leaves out the northeast.
"""
SOURCE = (
    "Lantz, B. (2019), Machine Learning with R, 3rd edition, insurance.csv; "
    "github.com/stedy/Machine-Learning-with-R-datasets"
)
LICENCE = "none stated by the book; Database Contents License in the copy at Kaggle"

Regions = Literal["indicators", "treatment"]
_TABLE = Packed("insurance", SOURCE)
_REGIONS = ("northeast", "northwest", "southeast", "southwest")
_INDICATOR = Numeric(0.0, 1.0)
_COLUMNS = {
    "charges": Numeric(0.0, 75_000.0, unit="dollars"),
    "age": Numeric(18.0, 64.0, unit="years"),
    "bmi": Numeric(15.0, 55.0, unit="kg/m2"),
    "children": Numeric(0.0, 5.0),
    "sex": _INDICATOR,
    "smoker": _INDICATOR,
}


def load(*, regions: Regions = "indicators") -> Dataset:
    """Return charges and 9 or 8 features (n = 1338).

    Parameters
    ----------
    regions : {"indicators", "treatment"}

    Raises
    ------
    ArgumentError
        `regions` is neither.
    NotAvailableError
        The file is not in the folder that PRIVINF_DATA names.
    """
    check_choice(regions, Regions, "regions")
    kept = _REGIONS if regions == "indicators" else _REGIONS[1:]
    table = _TABLE.read()
    made = table.assign(
        sex=table["sex"] == "male",
        smoker=table["smoker"] == "yes",
        **{region: table["region"] == region for region in kept},
    )
    columns = {**_COLUMNS, **dict.fromkeys(kept, _INDICATOR)}
    return record("insurance", made, "charges", columns, description=DESCR, source=SOURCE, licence=LICENCE)
