"""Time to event: survival curves, log-rank tests and hazard ratios from one noisy release of counts."""

from privinf.attributes import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
