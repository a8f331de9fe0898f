"""Empirical checks of privacy claims: lower bounds on the loss, and sensitivities.

An audit draws a mechanism on a pair of neighbours and proves, with confidence 99.9%, a lower bound on its
loss. It fails if the bound is above the claim, and is blind if the bound is far below the mechanism's
exact loss on that pair (then it would not have seen a fault either).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
