"""Models: releases in, results out. Names of the towers in one place, each imported when it is asked for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("privinf", __file__)
