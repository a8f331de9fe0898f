"""Release year of 4,680 songs from 90 features of their timbre: a small part of the Million Song Dataset."""

from __future__ import annotations

import numpy as np

from privinf.datasets.wheel import Dataset, record
from privinf.schema import Numeric
from privinf.validation import check_count
from studies.data.packed import Packed

DESCR = """\
Release year of songs and 90 features of their sound: the means of 12 timbre coefficients over the segments of
a song, and 78 entries of their covariance matrix.

**Not YearPredictionMSD** (515,345 songs): 4,680 songs of the Million Song Dataset, with 90 columns made in
another way. Its 78 entries are the first 13 - i of each row i of the covariance matrix, not the upper
triangle, so six are variances and 36 repeat another column: 54 columns are distinct.

rows= draws that many rows from them with replacement and is called "song stand-in": it has the larger file's
shape and the small one's second moments, and its distinct rows are still the 4,680.

Bounds: years 1922 to 2011 (the span of the Million Song Dataset). Timbre has no natural scale, so its bounds
are round and wide: means in [-400, 400], the first, loudness, in [0, 60]; variances in [0, 30000];
covariances in [-10000, 10000].
"""
SOURCE = (
    "Bertin-Mahieux, T., Ellis, D. P. W., Whitman, B. and Lamere, P. (2011), The Million Song Dataset, "
    "ISMIR; UCI Machine Learning Repository 203 has the larger table"
)
LICENCE = "CC BY 4.0 (UCI's terms)"

_TABLE = Packed("song_subset", SOURCE)
_LOUDNESS = "timbre_avg1"
_VARIANCES = tuple(f"timbre_cov{number}" for number in (13, 26, 38, 49, 59, 68))


def load(*, rows: int | None = None, seed: int = 0) -> Dataset:
    """Return year and 90 features of 4680 songs, or a stand-in of the larger file.

    Parameters
    ----------
    rows : int, optional
        Draw this many rows with replacement: the stand-in.
    seed : int
        Of that draw.

    Raises
    ------
    NotAvailableError
        The file is not in the folder that PRIVINF_DATA names.
    """
    table = _TABLE.read()
    name = "song"
    if rows is not None:
        drawn = np.random.default_rng(seed).integers(0, len(table), check_count(rows, "rows"))
        table = table.iloc[drawn].reset_index(drop=True)
        name = "song stand-in"
    columns = {column: _bounds(column) for column in table.columns}
    return record(name, table, "year", columns, description=DESCR, source=SOURCE, licence=LICENCE)


def _bounds(column: str) -> Numeric:
    if column == "year":
        return Numeric(1922.0, 2011.0, unit="year")
    if column == _LOUDNESS:
        return Numeric(0.0, 60.0)
    if column in _VARIANCES:
        return Numeric(0.0, 30_000.0)
    return Numeric(-400.0, 400.0) if column.startswith("timbre_avg") else Numeric(-10_000.0, 10_000.0)
