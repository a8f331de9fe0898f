"""Every public member of a results object can be touched: it has words, and gives a value or a reason."""

import inspect

import pytest

import privinf as pi
from privinf.results.context import Withheld

WITHHELD = {name for name in vars(Withheld) if not name.startswith("_")}
SQUARES = {"ssr", "ess", "mse_resid", "mse_model", "mse_total"}


def touch_all(results, refused):
    """Touch every public member; those of `refused` must say why they have no value."""
    for member in dir(type(results)):
        if member.startswith("_"):
            continue
        attribute = inspect.getattr_static(type(results), member)
        told = inspect.getdoc(getattr(type(results), member, None))
        assert told or isinstance(attribute, property), member
        if isinstance(attribute, property) or type(attribute).__name__ == "cached_property":
            if member in refused:
                with pytest.raises(pi.errors.NotAvailableError, match=r"\w+ \w+"):
                    getattr(results, member)
            else:
                getattr(results, member)
