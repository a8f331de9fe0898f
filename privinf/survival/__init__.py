"""Time to event: survival curves, log-rank tests and hazard ratios from one noisy release of counts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
