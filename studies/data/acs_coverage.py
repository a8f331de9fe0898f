"""Who has public health insurance, by age, schooling, income and sex: folktables' ACSPublicCoverage task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privinf.datasets.wheel import Dataset, record
from privinf.schema import Factor, Numeric
from studies.data.acs import LICENCE, SOURCE, SURVEYS, Survey, persons

if TYPE_CHECKING:
    import pandas as pd

DESCR = f"""\
Public health coverage (covered, 0 or 1) by age, schooling (codes 1 to 24), personal income in a year and sex
(female, 0 or 1), of people under 65 with an income of at most 30,000 dollars: the filter of folktables'
ACSPublicCoverage.

{SURVEYS}
Ranges are the codebook's and the filter's; the few losses (0.2% of the incomes) are clipped at 0.
"""

_COLUMNS = {
    "covered": Factor((0, 1)),
    "age": Numeric(15.0, 64.0, unit="years"),
    "schooling": Numeric(1.0, 24.0),
    "income": Numeric(0.0, 30_000.0, unit="dollars"),
    "female": Numeric(0.0, 1.0),
}


def load(*, survey: Survey = "2024") -> Dataset:
    """Return covered and four features (2024: n = 368955).

    Parameters
    ----------
    survey : {"2024", "2018-small", "2018"}
        "2018": six large states, from the Census Bureau's own files.

    Raises
    ------
    ArgumentError
        The survey is unknown.
    NotAvailableError
        The files are not in the folder that PRIVINF_DATA names.
    """
    texts = {"description": DESCR, "source": SOURCE, "licence": LICENCE}
    return record("acs_coverage", _design(persons(survey)), "covered", _COLUMNS, **texts)


def _design(table: pd.DataFrame) -> pd.DataFrame:
    """Return the response and the features of the people in the task."""
    import pandas as pd

    kept = table[(table["AGEP"] < 65) & (table["PINCP"] <= 30_000)]
    made = {
        "covered": np.where(kept["PUBCOV"] == 1, 1.0, 0.0),
        "age": kept["AGEP"].to_numpy(),
        "schooling": kept["SCHL"].to_numpy(),
        "income": kept["PINCP"].to_numpy(),
        "female": np.where(kept["SEX"] == 2, 1.0, 0.0),
    }
    return pd.DataFrame(made)
