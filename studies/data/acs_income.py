"""Who earns above 50,000 dollars, by age, schooling, hours and sex: the ACSIncome task of folktables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from privinf.datasets.wheel import Dataset, record
from privinf.schema import Factor, Numeric
from privinf.validation import check_choice
from studies.data.acs import LICENCE, SOURCE, SURVEYS, Survey, persons

if TYPE_CHECKING:
    import pandas as pd

Response = Literal["over_50k", "income"]

DESCR = f"""\
Personal income in a year above 50,000 dollars (over_50k, 0 or 1) or in dollars (income), by age, schooling
(codes 1 to 24), usual hours worked a week and sex (female, 0 or 1), of people older than 16 with some hours
of work and an income above 100 dollars: the filter of folktables' ACSIncome.

{SURVEYS}
Ranges are the codebook's; incomes are clipped at 250,000 dollars by the models that take them in dollars
(3% of them in 2024).
"""

_FEATURES = {
    "age": Numeric(17.0, 99.0, unit="years"),
    "schooling": Numeric(1.0, 24.0),
    "hours": Numeric(1.0, 99.0, unit="hours a week"),
    "female": Numeric(0.0, 1.0),
}
_RESPONSES = {"over_50k": Factor((0, 1)), "income": Numeric(0.0, 250_000.0, unit="dollars")}


def load(*, response: Response = "over_50k", survey: Survey = "2024") -> Dataset:
    """Return the response and four features (2024: n = 676221).

    Parameters
    ----------
    response : {"over_50k", "income"}
    survey : {"2024", "2018-small", "2018"}
        "2018": the paper's six states, from the Census Bureau's own files.

    Raises
    ------
    ArgumentError
        An option is unknown.
    NotAvailableError
        The files are not in the folder that PRIVINF_DATA names.
    """
    check_choice(response, Response, "response")
    columns = {response: _RESPONSES[response], **_FEATURES}
    texts = {"description": DESCR, "source": SOURCE, "licence": LICENCE}
    return record("acs_income", _design(persons(survey)), response, columns, **texts)


def _design(table: pd.DataFrame) -> pd.DataFrame:
    """Return both responses and the features of the people in the task."""
    import pandas as pd

    inside = (table["AGEP"] > 16) & (table["PINCP"] > 100) & (table["WKHP"] > 0) & (table["PWGTP"] >= 1)
    kept = table[inside]
    made = {
        "over_50k": np.where(kept["PINCP"] > 50_000, 1.0, 0.0),
        "income": kept["PINCP"].to_numpy(),
        "age": kept["AGEP"].to_numpy(),
        "schooling": kept["SCHL"].to_numpy(),
        "hours": kept["WKHP"].to_numpy(),
        "female": np.where(kept["SEX"] == 2, 1.0, 0.0),
    }
    return pd.DataFrame(made)
