"""Entries to spend."""

from __future__ import annotations

from typing import Any

import pytest

from privinf.accounting import GaussianLoss, LedgerEntry, Sensitivity


@pytest.fixture
def make_entry():
    def make(loss=None, **changes: Any) -> LedgerEntry:
        fields: dict[str, Any] = {
            "mechanism": "gaussian",
            "label": "features",
            "unit": "record",
            "relation": "replace-one",
            "trust": "local",
            "sensitivity": Sensitivity(norm="l2", value=2.0, derivation="diameter of a ball of radius 1"),
            "noise": {"law": "discrete gaussian", "scale": 4.0, "grid": 2.0**-18},
            "loss": GaussianLoss(0.5) if loss is None else loss,
            "source": "lattice",
            "secure": True,
            "assumptions": ("n is public",),
        }
        return LedgerEntry(**fields | changes)

    return make
