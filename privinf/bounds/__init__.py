"""Bounds and levels that are bought with privacy, and schemas as files that remember it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
