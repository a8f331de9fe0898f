"""Critical temperature of 21,257 superconductors from 81 features of their formulas."""

from __future__ import annotations

import math

from privinf.datasets.wheel import Dataset, record
from privinf.schema import Numeric
from studies.data.packed import Packed

DESCR = """\
Critical temperature of superconductors and 81 features of the chemical formula: the number of elements, and
ten summaries of each of eight properties of the elements in it.

**Rebuilt, not the original file**: all 81 features were computed again, by their definitions, from the
SuperCon formulas that the UCI table was made of: 21,257 of its 21,263 rows, of which about one in twenty may
be another row of SuperCon with the same temperature. Rows that could be compared agree to 1e-5.

The bounds are the ranges of each property over the chemical elements: means lie in the range, ranges below
its width, standard deviations below half of it, entropies below the log of ten elements. The temperature is
bounded by 200 kelvin. Values outside are clipped.
"""
SOURCE = (
    "Hamidieh, K. (2018), A data-driven statistical model for predicting the critical temperature of a "
    "superconductor, Computational Materials Science 154, 346-354; UCI Machine Learning Repository 464"
)
LICENCE = "CC BY 4.0"

_TABLE = Packed("superconductor", SOURCE)
# Public ranges over the elements, hydrogen to bismuth: name in the columns, least, largest.
_PROPERTIES = (
    ("atomic_mass", 1.0, 209.0),
    ("fie", 375.0, 1680.0),
    ("atomic_radius", 40.0, 300.0),
    ("Density", 0.0, 22_600.0),
    ("ElectronAffinity", 0.0, 350.0),
    ("FusionHeat", 0.0, 105.0),
    ("ThermalConductivity", 0.0, 430.0),
    ("Valence", 1.0, 7.0),
)
_ELEMENTS = 10  # of one compound, at most


def load() -> Dataset:
    """Return critical_temp and 81 features (n = 21257).

    Raises
    ------
    NotAvailableError
        The file is not in the folder that PRIVINF_DATA names.
    """
    columns = {
        "critical_temp": Numeric(0.0, 200.0, unit="K"),
        "number_of_elements": Numeric(1.0, float(_ELEMENTS)),
    }
    for name, low, high in _PROPERTIES:
        columns |= _summaries(name, low, high)
    texts = {"description": DESCR, "source": SOURCE, "licence": LICENCE}
    return record("superconductor", _TABLE.read(), "critical_temp", columns, **texts)


def _summaries(name: str, low: float, high: float) -> dict[str, Numeric]:
    """Return the bounds of the ten summaries of one property."""
    limits = {
        "mean": Numeric(low, high),
        "gmean": Numeric(low, high),
        "entropy": Numeric(0.0, math.log(_ELEMENTS)),
        "range": Numeric(0.0, high - low),
        "std": Numeric(0.0, (high - low) / 2.0),
    }
    return {
        f"{weight}{summary}_{name}": bounds for summary, bounds in limits.items() for weight in ("", "wtd_")
    }
