"""Tests and estimates without a regression, in scipy's and statsmodels' words, one noisy release each."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
