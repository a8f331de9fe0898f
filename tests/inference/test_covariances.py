"""Covariances are one table: name -> class. Words, messages and what a release must be made for follow it."""

from typing import get_args

import numpy as np
import pytest

import privinf as pi
from privinf.errors import ArgumentError, SchemaError
from privinf.fitting.covariances import check_release_covariance, requested_covariance
from privinf.inference.covariances import (
    COVARIANCES,
    Covariance,
    sampling_kind,
    takes_rows_as_independent,
)
from privinf.typing import CovWord

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (400, 2))
Y = X @ [0.5, 0.0] + 0.3 * RNG.standard_normal(400)
MODEL = {"bounds": [(-1, 1)] * 2, "y_bounds": (-2, 2)}


def test_the_words_of_a_fit_are_the_names_of_the_table():
    assert tuple(COVARIANCES) == get_args(CovWord)
    assert [kind.name for kind in COVARIANCES.values()] == list(COVARIANCES)
    assert all(kind.release in COVARIANCES for kind in COVARIANCES.values())


def test_an_unknown_name_lists_the_table():
    with pytest.raises(ArgumentError) as error:
        requested_covariance("robust", None)
    assert str(error.value).endswith(", ".join(map(repr, COVARIANCES)))
    with pytest.raises(ArgumentError, match="leverage and residual of every row"):
        requested_covariance("HC3", None)
    assert requested_covariance("HC1", None) is COVARIANCES["HC1"]


def test_clusters_need_a_unit_and_of_one_row_each_are_hc0():
    with pytest.raises(SchemaError, match="unit"):
        requested_covariance("cluster", None)
    bounds = {"a": (0, 1)}
    one, more = (pi.Schema(bounds, unit="id", max_rows=rows) for rows in (1, 3))
    assert requested_covariance("cluster", one) is COVARIANCES["HC0"]
    assert requested_covariance("cluster", more) is COVARIANCES["cluster"]
    with pytest.raises(ArgumentError, match="several rows have the same value of 'id'"):
        check_release_covariance(COVARIANCES["HC1"], "cluster", more)
    check_release_covariance(Covariance, "cluster", more)


@pytest.mark.parametrize("name", ["nonrobust", "HC0", "HC1"])
def test_a_release_serves_the_covariances_of_its_kind_alone(name):
    for made in ("nonrobust", "HC0"):
        if COVARIANCES[name].release == made:
            check_release_covariance(COVARIANCES[name], made, None)
        else:
            with pytest.raises(
                ArgumentError,
                match=f"'{name}' is not available, because this release was made for cov_type='{made}'",
            ):
                check_release_covariance(COVARIANCES[name], made, None)


def test_the_small_sample_factor_is_on_what_the_noise_does_not_cause():
    fits = {
        name: pi.OLS(Y, X, **MODEL).fit(epsilon=np.inf, cov_type=name) for name in ("HC0", "HC1", "nonrobust")
    }
    ratio = fits["HC1"].cov_params().to_numpy() / fits["HC0"].cov_params().to_numpy()
    np.testing.assert_allclose(ratio, 400 / 398, rtol=1e-9)
    np.testing.assert_allclose(fits["HC1"].bse_sampling, fits["HC0"].bse_sampling * (400 / 398) ** 0.5)
    assert {name: fit.cov_type for name, fit in fits.items()} == {name: name for name in fits}


def test_names_that_no_fit_asks_for_are_no_covariance_of_rows():
    for name in ("none", "posterior", "mixed rows", "noise only", "given"):
        assert sampling_kind(name) == "heteroskedastic"
        assert not takes_rows_as_independent(name)
    assert sampling_kind("nonrobust") == "homoskedastic"
    assert [name for name in COVARIANCES if takes_rows_as_independent(name)] == ["nonrobust", "HC0", "HC1"]
