"""Results: everything that is derived from an estimate, and how it is shown, compared and stored."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
