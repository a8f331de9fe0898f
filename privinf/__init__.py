"""privinf: statistical inference from private data.

Estimators whose ``fit()`` returns coefficients, standard errors, intervals and tests that account for the
noise added for differential privacy, and a report of what the privacy costs.
"""

import lazy_loader

from privinf.version import __version__ as __version__

__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
# Named in full, not by *.
_ROOMS = {"audit", "datasets", "federation", "models", "plotting", "simulation", "stats"}
__all__ = sorted(set(_names) - _ROOMS - {"__version__"})
