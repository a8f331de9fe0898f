"""Models: from releases to results. All model names in one place, each imported on first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("privinf", __file__)
