"""Person files of the American Community Survey: the packed ones, or the Census Bureau's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from privinf.errors import NotAvailableError
from privinf.validation import check_choice
from studies.data.packed import VARIABLE, Packed

if TYPE_CHECKING:
    import pandas as pd

Survey = Literal["2024", "2018-small", "2018"]

SOURCE = "US Census Bureau, American Community Survey, 1-year public use microdata sample, person records"
LICENCE = "US Census public data"
URL = "https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/"
ORIGINAL = "acs2018"
# California, Florida, Illinois, New York, Pennsylvania, Texas: their 668,859 incomes are the paper's.
STATES = ("06", "12", "17", "36", "42", "48")
# Files of these states.
ARCHIVES = tuple(f"csv_p{state}.zip" for state in ("ca", "fl", "il", "ny", "pa", "tx"))

SURVEYS = """\
survey="2024" (the default) is the one-year file of 2024 of the ten largest states but California and Texas,
and "2018-small" that of 2018 of fourteen small states: stand-ins of the paper's data, which are the files of
2018 of California, Florida, Illinois, New York, Pennsylvania and Texas. survey="2018" reads those originals,
the files psam_p06.csv, psam_p12.csv, ... as the Census Bureau has them, from the folder acs2018 in that of
PRIVINF_DATA.
"""

_PACKED = {
    "2024": Packed("acs2024_10states", SOURCE),
    "2018-small": Packed("acs2018_small_states", SOURCE),
}
_COLUMNS = ["AGEP", "SCHL", "WKHP", "PINCP", "SEX", "PUBCOV", "PWGTP"]


def persons(survey: Survey) -> pd.DataFrame:
    """Return AGEP, SCHL, WKHP, PINCP, SEX, PUBCOV and PWGTP of all persons of a survey.

    Missing codes are 0, as in the packed files; missing incomes (children's) are left out.

    Raises
    ------
    ArgumentError
        The survey is unknown.
    NotAvailableError
        Its files are not in the folder that PRIVINF_DATA names.
    """
    check_choice(survey, Survey, "survey")
    if survey in _PACKED:
        return _PACKED[survey].read()[_COLUMNS]
    import pandas as pd

    tables = [pd.read_csv(path, usecols=_COLUMNS) for path in _originals()]
    table = pd.concat(tables, ignore_index=True)[_COLUMNS]
    return table[table["PINCP"].notna()].fillna(0).reset_index(drop=True)


def _originals() -> list[Path]:
    folder = os.environ.get(VARIABLE)
    paths = [Path(folder or "") / ORIGINAL / f"psam_p{state}.csv" for state in STATES]
    missing = [
        (path.name, archive)
        for path, archive in zip(paths, ARCHIVES, strict=True)
        if not (folder and path.is_file())
    ]
    if missing:
        files, archives = (", ".join(names) for names in zip(*missing, strict=True))
        raise NotAvailableError(
            f"survey='2018': {VARIABLE} names {folder or 'no folder'}, where {ORIGINAL} has no {files}: "
            f"download {archives} from {URL} and unpack them there (source: {SOURCE})"
        )
    return paths
