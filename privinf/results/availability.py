"""Available attributes of a result, as listed by ``dir(result)`` and by completion in IPython or Jupyter."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

from privinf.errors import NotAvailableError, PrivinfError
from privinf.results.cautions import warned_once

# Methods that need the covariance of the coefficients, whatever they are called with.
NEED_COVARIANCE = frozenset(
    {
        "compare_f_test",
        "cov_params",
        "delta_method",
        "draws",
        "f_test",
        "get_prediction",
        "simultaneous",
        "t_test",
        "t_test_pairwise",
        "to_arviz",
        "wald_test",
        "wald_test_terms",
    }
)
# Methods that evaluate the estimating equation at values other than the estimate.
NEED_EQUATION = frozenset({"score_set", "score_test"})
# Methods that need new rows as columns of the design.
NEED_DESIGN = frozenset({"get_prediction", "predict"})


def available(
    result: Any, names: Iterable[str], refused: Collection[str], probes: Mapping[str, str]
) -> list[str]:
    """Return those of the names that a result has.

    Parameters
    ----------
    result : Results
    names : iterable of str
        Attributes of the object and its class.
    refused : collection of str
        Methods that raise NotAvailableError whatever their arguments.
    probes : mapping of str to str
        Properties that take long: an attribute each that is not available where the property is not.
    """
    return [name for name in names if name not in refused and _is_there(result, name, probes.get(name, name))]


def _is_there(result: Any, name: str, probe: str) -> bool:
    """Return whether an attribute is a method, or a property that does not raise NotAvailableError."""
    member = inspect.getattr_static(type(result), name, None)
    if name.startswith("_") or not isinstance(member, (property, cached_property)):
        return True
    with warned_once(result), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            getattr(result, probe)
        except NotAvailableError:
            return False
        except PrivinfError:  # the attribute exists, and explains the problem itself
            return True
    return True
