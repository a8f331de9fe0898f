"""Every public member of a results object can be touched: it has words, and gives a value or a reason."""

import inspect

import numpy as np
import pytest

import privinf as pi
from privinf.results.rendering import Withheld

WITHHELD = {name for name in vars(Withheld) if not name.startswith("_")}
SQUARES = {"centered_tss", "ssr", "ess", "mse_resid", "mse_model", "mse_total"}


def score_tests_are_consistent(results):
    """Restrictions in all forms are one test; those of all slopes are the default test."""
    slopes = [name for name in results.names if name != "Intercept"]
    one = results.score_test(f"{slopes[0]} = {slopes[1]}")
    assert one.df == 1
    assert 0.0 <= one.pvalue <= 1.0
    R = np.zeros((1, len(results.names)))
    R[0, [results.names.index(name) for name in slopes[:2]]] = 1.0, -1.0
    for same in (R, (R, 0.0), (2.0 * R, [0.0]), [f"{slopes[0]} - {slopes[1]}"]):
        assert results.score_test(same).statistic == pytest.approx(one.statistic, rel=1e-6)
    some = results.score_test(slopes[:2])
    assert some.df == 2
    values = results.score_test({slopes[0]: 0.3, slopes[1]: -0.1})
    assert values.null.tolist() == [0.3, -0.1]
    every, default = results.score_test(slopes), results.score_test()
    assert every.df == default.df
    assert every.statistic == pytest.approx(default.statistic, rel=1e-5)
    for wrong in ("nothing = 0", ["a", "2 * a"], np.zeros((1, len(results.names))), "a ~ b"):
        with pytest.raises(pi.errors.ArgumentError):
            results.score_test(wrong)


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
