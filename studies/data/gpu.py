"""Running time of a matrix product on a GPU under 241,600 settings of its kernel."""

from __future__ import annotations

from privinf.datasets.wheel import Dataset, record
from privinf.schema import Numeric
from studies.data.packed import Packed

DESCR = """\
Running time of the product of two 2048 x 2048 matrices by an OpenCL kernel, under all 241,600 feasible
settings of its 14 parameters. milliseconds is the mean of four runs, bounded by 4,000.

The parameters are what the experimenters set, so their ranges are public: tile sizes MWG, NWG (16 to 128)
and KWG (16, 32), work-group sizes MDIMC, NDIMC, MDIMA, NDIMB (8 to 32), unrolling KWI (2, 8), vector widths
VWM, VWN (1 to 8), and four switches.
"""
SOURCE = (
    "Ballester-Ripoll, R., Paredes, E. G. and Pajarola, R. (2019), Sobol tensor trains for global "
    "sensitivity analysis, Reliability Engineering and System Safety 183, 311-322; UCI Machine Learning "
    "Repository 440"
)
LICENCE = "CC BY 4.0"

_TABLE = Packed("gpu", SOURCE)
_RUNS = ["Run1", "Run2", "Run3", "Run4"]
_TILE = Numeric(16.0, 128.0)
_GROUP = Numeric(8.0, 32.0)
_WIDTH = Numeric(1.0, 8.0)
_SWITCH = Numeric(0.0, 1.0)
_COLUMNS = {
    "milliseconds": Numeric(0.0, 4000.0, unit="ms"),
    "MWG": _TILE,
    "NWG": _TILE,
    "KWG": Numeric(16.0, 32.0),
    "MDIMC": _GROUP,
    "NDIMC": _GROUP,
    "MDIMA": _GROUP,
    "NDIMB": _GROUP,
    "KWI": Numeric(2.0, 8.0),
    "VWM": _WIDTH,
    "VWN": _WIDTH,
    "STRM": _SWITCH,
    "STRN": _SWITCH,
    "SA": _SWITCH,
    "SB": _SWITCH,
}


def load() -> Dataset:
    """Return milliseconds and 14 features (n = 241600).

    Raises
    ------
    NotAvailableError
        The file is not in the folder that PRIVINF_DATA names.
    """
    table = _TABLE.read()
    made = table.assign(milliseconds=table[_RUNS].mean(axis=1) / 100.0)  # stored in hundredths
    texts = {"description": DESCR, "source": SOURCE, "licence": LICENCE}
    return record("gpu", made, "milliseconds", _COLUMNS, **texts)
