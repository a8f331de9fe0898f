"""Mechanisms: the only room that sees raw rows. Rows go in, a `Release` comes out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
