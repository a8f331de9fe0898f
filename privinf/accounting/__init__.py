"""Privacy accounting: losses, exact composition, calibration, budgets, ledgers and reports.

This room reads no rows. Losses (:mod:`.losses`) add up exactly (:mod:`.composition`); calibration turns a
promised level into the mu of a Gaussian release; a :class:`Ledger` records every release, refuses those that
would pass its :class:`Budget`, and a :class:`PrivacyReport` states the final guarantee.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
