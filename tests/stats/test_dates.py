"""Dates in tables of `pi.stats`: histograms and descriptions show them, and edges can be dates."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError

SPENDING = {"epsilon": np.inf}


@pytest.fixture(scope="module")
def admitted():
    days = np.random.default_rng(0).integers(0, 731, 900)
    table = pd.DataFrame({"admitted": pd.Timestamp("2024-01-01") + pd.to_timedelta(days, "D"), "age": 40.0})
    return table, pi.Schema({"admitted": ("2024-01-01", "2026-01-01"), "age": (0, 90)})


def test_edges_can_be_dates(admitted):
    table, schema = admitted
    edges = ["2024-01-01", "2025-01-01", "2026-01-01"]
    for bins in (
        edges,
        pd.to_datetime(edges),
        np.array(edges, dtype="datetime64[D]"),
        [datetime.date.fromisoformat(edge) for edge in edges],
    ):
        r = pi.stats.histogram("admitted", bins, data=table, schema=schema, **SPENDING)
        assert list(r.table.index) == ["[2024-01-01, 2025-01-01)", "[2025-01-01, 2026-01-01]"]
        counts = (table["admitted"] < "2025-01-01").sum(), (table["admitted"] >= "2025-01-01").sum()
        assert tuple(r.table.iloc[:, 0]) == counts
        array = pi.stats.histogram(table["admitted"], bins, **SPENDING)
        assert list(array.table.index) == list(r.table.index)


def test_a_number_of_bins_makes_whole_days(admitted):
    table, schema = admitted
    r = pi.stats.histogram("admitted", 8, data=table, schema=schema, **SPENDING)
    assert r.table.index[0] == "[2024-01-01, 2024-04-01)"
    assert r.table.index[-1] == "[2025-10-02, 2026-01-01]"
    days = [date.date() for date in table["admitted"]]
    assert r.table.iloc[0, 0] == sum(day < datetime.date(2024, 4, 1) for day in days)


def test_open_bins_and_edges_inside_the_bounds(admitted):
    table, schema = admitted
    r = pi.stats.histogram(
        "admitted", [-np.inf, pd.Timestamp("2025-01-01"), np.inf], data=table, schema=schema, **SPENDING
    )
    assert list(r.table.index) == ["(-inf, 2025-01-01)", "[2025-01-01, inf)"]
    with pytest.raises(ArgumentError, match="start the edges at 2024-01-01 or below"):
        pi.stats.histogram(
            "admitted", ["2024-02-01", "2025-01-01", "2026-01-01"], data=table, schema=schema, **SPENDING
        )


def test_a_description_shows_dates(admitted):
    table, schema = admitted
    r = pi.stats.describe(table, schema=schema, **SPENDING)
    text = repr(r)
    mean = table["admitted"].mean().strftime("%Y-%m-%d")
    assert mean in text
    assert f"{table['admitted'].std().days}" in text
    assert " days" in text
    assert r.dates == ("admitted",)
    assert r.table.loc["mean", "admitted"] > 19_000
    assert mean in r._repr_html_()
    assert mean in r.to_latex()


def test_tables_for_papers_show_dates_and_deviations_in_days(admitted):
    table, schema = admitted
    lines = pi.stats.describe(table, columns=["admitted"], schema=schema, **SPENDING).to_latex().splitlines()
    mean = next(line for line in lines if "admitted, mean" in line)
    deviation = next(line for line in lines if "admitted, std (days)" in line)
    assert table["admitted"].mean().strftime("%Y-%m-%d") in mean
    assert float(deviation.split("&")[1]) == pytest.approx(
        table["admitted"].std() / pd.Timedelta("1D"), abs=0.1
    )


def test_a_crosstab_of_three_columns_names_counts():
    data = pd.DataFrame({"a": ["x", "y"] * 50, "b": [0, 1] * 50, "c": [0, 1] * 50})
    schema = pi.Schema({"a": ["x", "y"], "b": (0, 1), "c": (0, 1)})
    with pytest.raises(ArgumentError, match=r"name all of them in pi.stats.counts"):
        pi.stats.crosstab("a", ["b", "c"], data=data, schema=schema, mu=1.0)
