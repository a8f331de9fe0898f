"""privinf: statistical inference from private data.

Estimators whose ``fit()`` returns coefficients, standard errors, intervals and tests that account for the
noise added for differential privacy, and a report of what the privacy costs.
"""

from privinf.attributes import attach_names
from privinf.version import __version__ as __version__

_attribute, __dir__, _names = attach_names(__name__, __file__)
# Named in full, not by *.
_ROOMS = {"datasets", "federation", "models", "plotting", "stats", "survival"}
_IN_CHECKOUT = {"audit", "simulation"}  # modules of former versions that are in `studies` now
__all__ = sorted(set(_names) - _ROOMS - {"__version__"})


def __getattr__(name: str) -> object:
    """Return a public name, imported on first use."""
    if name in _IN_CHECKOUT:
        raise AttributeError(
            f"privinf.{name} is no longer part of the package: it is studies.{name} in a source checkout of "
            "privinf. See CHANGELOG.md under Removed."
        )
    return _attribute(name)
