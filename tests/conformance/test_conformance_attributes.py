"""``dir(result)`` lists what a result has: nothing that only raises, and all that works."""

import time
import warnings
from operator import attrgetter

import numpy as np
import pytest
from conformance.members import KINDS_OF_FIT, WITHHELD, fits_of
from conformance.test_conformance_weak import CALLS

import privinf as pi
from privinf.errors import NotAvailableError, PrivinfError
from privinf.results import Results

EVERY = pytest.mark.parametrize("name", KINDS_OF_FIT)
# Further methods that some results refuse, whatever they are called with.
REFUSING = CALLS | {
    # It is the Wald test of the columns that the other fit leaves out.
    "compare_f_test": lambda r: r.wald_test(np.eye(len(r.names))),
    "cov_params": lambda r: r.cov_params(),
    "score_test": lambda r: r.score_test(),
    "score_set": lambda r: r.score_set(r.names[0]),
    "target_test": lambda r: r.target_test(),
    "predict": lambda r: r.predict(np.ones((1, len(r.names))), transform=False),
    "predict_sparse": lambda r: r.predict_sparse(np.ones((1, len(r.sparse_params))), transform=False),
    "explained_shares": lambda r: r.explained_shares(),
    "gradient_variance": lambda r: r.gradient_variance(),
    "variance_bound": lambda r: r.variance_bound(beta_norm=1.0),
    "convergence_bound": lambda r: r.convergence_bound(distance=1.0, rounds=1, variance=1.0),
    "reconstruction_bound": lambda r: r.reconstruction_bound(),
}


def results_of(name):
    return [result for result in fits_of(name)[0] if isinstance(result, Results)]


def reads(result, name):
    """Return whether an attribute is there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            getattr(result, name)
        except NotAvailableError:
            return False
        except PrivinfError:
            return True
    return True


def split(result):
    """Return the attributes that are listed and those of the class that are not."""
    listed = {name for name in dir(result) if not name.startswith("_")}
    every = {name for name in object.__dir__(result) if not name.startswith("_")}
    assert listed <= every
    return listed, every - listed


@EVERY
def test_what_is_listed_is_there_and_what_is_there_is_listed(name):
    for result in results_of(name):
        listed, absent = split(result)
        assert [one for one in listed if not reads(result, one)] == []
        assert absent >= {one for one in WITHHELD if not hasattr(result, one)}
        assert {"params", "nobs", "privacy", "summary", "conf_int", "tidy", "save", "to_dict"} <= listed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for one in absent:
                ask = REFUSING[one] if reads(result, one) else attrgetter(one)
                with pytest.raises(NotAvailableError, match=r"\w+ \w+"):
                    ask(result)


@EVERY
def test_a_result_that_was_stored_without_its_release_lists_less(name, tmp_path):
    for place, result in enumerate(results_of(name)):
        path = tmp_path / str(place)
        result.save(path, records=False)
        listed, absent = split(stored := pi.load_results(path))
        assert [one for one in listed if not reads(stored, one)] == []
        assert listed <= split(result)[0] | {"release"}
        for one in absent & {"score_test", "gradient_variance"}:
            with pytest.raises(NotAvailableError):
                REFUSING[one](stored)


def test_dir_warns_of_nothing_and_lists_private_names_too():
    result = results_of("OLS central")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names = dir(result)
    assert {"__class__", "_estimate", "_context"} <= set(names)
    assert names == sorted(names)
    assert "aic" not in names
    assert "resid" not in names
    assert "odds_ratios" not in names
    assert "odds_ratios" in dir(results_of("Logit central")[0])


def test_a_tab_does_not_wait():
    for name in ("OLS central", "IWPGLM counts", "MomentOLS local"):
        result = results_of(name)[0]
        dir(result)
        start = time.perf_counter()
        dir(result)
        assert time.perf_counter() - start < 0.5
