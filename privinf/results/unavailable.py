"""Members that statisticians look for and that a private result cannot have: each says why."""

from __future__ import annotations

from typing import Any

from privinf.errors import NotAvailableError

ROWS_STAY = (
    "the rows stayed with their owners, and a residual or a fitted value is a statement about one of them; "
    "predict(new_rows) works for rows at hand"
)
NO_LIKELIHOOD = (
    "the estimate solves a corrected estimating equation and has no likelihood; compare nested models by "
    "wald_test or score_test"
)
ONE_RECORD = "the influence of a single person is what the noise protects"


def unavailable(name: str, reason: str) -> Any:
    """Return a property that raises NotAvailableError with the reason (so that hasattr is False)."""

    def raise_reason(self: object) -> Any:
        raise NotAvailableError(f"{name} is not available: {reason}")

    raise_reason.__name__ = name
    return property(raise_reason, doc=f"Not available: {reason}.")
