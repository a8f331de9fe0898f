"""Data sets: shapes, the R^2 that identifies the paper's tables, bounds that are not the rows'."""

from __future__ import annotations

import dataclasses
import socket

import numpy as np
import pytest
import statsmodels.api as sm

import privinf as pi
from privinf import datasets
from privinf.errors import ArgumentError

# name, options, n, d, R^2 of OLS on all rows (statsmodels, the packed tables of the paper's five tasks)
TASKS = [
    ("co2", {}, 2284, 7, 0.99863),
    ("co2", {"features": "lags"}, 2284, 7, 0.99930),
    ("fair", {}, 6366, 8, 0.8607),
    ("modechoice", {}, 840, 7, 0.9635),
    ("randhie", {}, 20190, 9, 0.4173),
    ("randhie", {"response": "fmde"}, 20190, 9, 0.4143),
]
IDS = [f"{name}{list(options.values())}" for name, options, *_ in TASKS]


@pytest.mark.parametrize(("name", "options", "n", "d", "rsquared"), TASKS, ids=IDS)
def test_tables_are_the_papers(name, options, n, d, rsquared):
    data = datasets.load(name, **options)
    assert data.X.shape == (n, d)
    assert np.isfinite(data.data.to_numpy()).all()
    assert sm.OLS(data.y, sm.add_constant(data.X)).fit().rsquared == pytest.approx(rsquared, abs=1.5e-3)


@pytest.mark.parametrize(("name", "options", "n", "d", "rsquared"), TASKS, ids=IDS)
def test_schema_covers_the_columns_and_nearly_all_rows(name, options, n, d, rsquared):
    data = datasets.load(name, **options)
    assert list(data.schema.columns) == list(data.data.columns)
    for column, values in data.data.items():
        bounds = data.schema.interval(column)
        assert ((values < bounds.low) | (values > bounds.high)).mean() < 0.01
    assert pi.Design.from_formula(data.formula, data.schema).names[1:] == tuple(data.features)


@pytest.mark.parametrize(("name", "options", "n", "d", "rsquared"), TASKS, ids=IDS)
def test_a_private_fit_runs_from_the_record(name, options, n, d, rsquared):
    data = datasets.load(name, **options)
    fit = pi.MomentOLS.from_formula(data.formula, data.data, schema=data.schema).fit(
        epsilon=4.0, delta=1e-6, rng=0
    )
    assert list(fit.params.index) == ["Intercept", *data.features]


def test_continuous_bounds_are_round_numbers_not_the_range_of_the_rows():
    continuous = {"fair": ["affairs"], "modechoice": ["gc", "ttme", "invc", "hinc"], "co2": ["co2"]}
    for name, columns in continuous.items():
        data = datasets.load(name)
        for column in columns:
            bounds = data.schema.interval(column)
            assert bounds.high == round(bounds.high)
            assert bounds.high != data.data[column].max()


def test_harmonics_are_those_of_the_date():
    data = datasets.load("co2")
    assert data.data["t"].iloc[[0, -1]].tolist() == [-1.0, 1.0]
    np.testing.assert_allclose(data.data["sin1"] ** 2 + data.data["cos1"] ** 2, 1.0, atol=1e-12)
    lags = datasets.load("co2", features="lags").data
    assert lags["lag3"].iloc[10] == lags["co2"].iloc[7]


def test_record_is_frozen_and_says_where_it_is_from():
    data = datasets.load("fair")
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.response = "age"
    assert "Fair" in data.source
    assert data.licence
    assert "codebook" in data.description
    assert repr(data) == "<Dataset fair: yrs_married on 8 features, 6366 rows>"


def test_loading_needs_no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a data set opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    for name in datasets.NAMES:
        datasets.load(name)


@pytest.mark.parametrize(
    ("name", "options"),
    [("iris", {}), ("co2", {"features": "x"}), ("randhie", {"response": "idp"}), ("fair", {"rows": 3})],
)
def test_unknown_names_and_options_are_refused(name, options):
    with pytest.raises(ArgumentError):
        datasets.load(name, **options)
