"""Persons, machines and ids are told apart by value, in one type: columns of several types are refused."""

import datetime
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from support.tables import of_library

import privinf as pi
from privinf.errors import AlignmentError, ArgumentError, SchemaError
from privinf.federation import Site
from privinf.federation.local import in_process
from privinf.mechanisms.blocks import open_table, roster_digest
from privinf.mechanisms.labels import coded, label_column
from privinf.mechanisms.opened import split
from privinf.mechanisms.passes import ColumnPasses
from privinf.mechanisms.rows import Rows

SPEND = {"epsilon": 2.0, "delta": 1e-6, "rng": 0}
PERSONS = pi.Schema({"x": (-1, 1), "y": (-1, 1)}, unit="who", max_rows=2)


def column(*values):
    return pd.Series(list(values), dtype=object)


MIXED = {
    "numbers and texts": column(17, "17"),
    "bytes and texts": column(b"17", "17"),
    "numbers and truth values": column(True, 1),
    "dates and timestamps": column(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)),
    "timestamps and timestamps with a time zone": column(
        pd.Timestamp("2020", tz="UTC"), pd.Timestamp("2020")
    ),
}
ONE_TYPE = {
    "whole numbers": (pd.Series([1, 1, 2]), [0, 0, 1]),
    "numbers of many types": (column(1, 1.0, np.int64(1), Decimal(1), np.float32(1)), [0, 0, 0, 0, 0]),
    "truth values": (column(True, np.True_, False), [0, 0, 1]),
    "floats": (pd.Series([1.5, np.nan, 2.0]), [0, -1, 1]),
    "nullable": (pd.Series([1, None, 1], dtype="Int64"), [0, -1, 0]),
    "nullable floats": (pd.Series([1.5, None], dtype="Float64"), [0, -1]),
    "missing of many types": (column("a", pd.NA, None, np.nan, "a"), [0, -1, -1, -1, 0]),
    "zero bytes": (column("a\0x", "a\0y", "a", "a\0"), [0, 1, 2, 3]),
    "blanks": (column("a", " a", "b"), [0, 0, 1]),
    "categories": (pd.Series(pd.Categorical(["b", None, "a", "b"])), [0, -1, 1, 0]),
    "unused categories": (pd.Series(pd.Categorical([17, 17], categories=[17, "17"])), [0, 0]),
    "times": (column(pd.Timestamp("2020"), datetime.datetime(2020, 1, 1)), [0, 0]),
    "UUIDs": (column(UUID(int=1), UUID(int=1)), [0, 0]),
    "periods": (pd.Series(pd.period_range("2020", periods=2)), [0, 1]),
    "large whole numbers": (pd.Series([2**63, 2**63 + 1], dtype="uint64"), [0, 1]),
}


@pytest.mark.parametrize("name", ONE_TYPE)
def test_labels_of_one_type_are_told_apart_by_value(name):
    labels, codes = ONE_TYPE[name]
    assert coded(labels, "the column").tolist() == codes


@pytest.mark.parametrize("dtype", ["int64", "double", "string", "bool"])
def test_columns_of_arrow_types_are_labels(dtype):
    of_library("pyarrow")
    labels = pd.Series([1, None, 1, 0]).astype(object).map(str if dtype == "string" else lambda one: one)
    labels = pd.Series([None if one in (None, "nan") else one for one in labels]).astype(f"{dtype}[pyarrow]")
    assert coded(labels, "the column").tolist() == [0, -1, 0, 1]


@pytest.mark.parametrize("kinds", MIXED)
@pytest.mark.parametrize("form", ["objects", "categories"])
def test_labels_of_several_types_are_refused_by_their_types(kinds, form):
    labels = MIXED[kinds]
    if form == "categories":
        labels = (
            pd.Series(pd.Categorical.from_codes([0, 1], pd.Index(labels, dtype=object)))
            if (
                kinds != "numbers and truth values"  # which are equal, so no two categories
            )
            else labels
        )
    with pytest.raises(
        SchemaError, match=f"the column holds {kinds}, which are values of different types"
    ) as told:
        coded(labels, "the column")
    assert "17" not in str(told.value)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series([2.0**53, 1.0]),
        pd.Series([2.0**24], dtype="float32"),
        column(2.0**53, 1),
        column(np.inf),
        pd.Series([np.inf, 1.0]),
    ],
)
def test_floats_that_are_not_exact_are_refused(labels):
    with pytest.raises(SchemaError, match="too large to be exact"):
        coded(labels, "the column")


@pytest.mark.parametrize("labels", [column(object()), column((1, "17")), column([1]), column(1j)])
def test_what_has_no_value_of_its_own_is_no_label(labels):
    with pytest.raises(SchemaError, match="must hold labels"):
        coded(labels, "the column")


def test_a_whole_number_is_written_in_one_way():
    with pytest.raises(SchemaError, match="the same integer with and without a decimal point"):
        coded(column("17", "18", "17.0"), "the column")
    assert coded(column("17", "18.0"), "the column").tolist() == [0, 1]


# ---- persons


def people(ids):
    drawn = np.random.default_rng(0).uniform(-1, 1, (len(ids), 2))
    return pd.DataFrame(drawn, columns=["x", "y"]).assign(who=np.array(ids, dtype=object))


TWICE = people([*([17, 17, "17", "17"]), *np.repeat(np.arange(100, 130), 2).tolist()])
ENTRY_POINTS = {
    "Site": lambda data: Site(Rows(data), PERSONS),
    "MomentOLS": lambda data: pi.MomentOLS.from_formula("y ~ x", data, schema=PERSONS).fit(**SPEND),
    "Moments": lambda data: pi.Moments(PERSONS, "y ~ x").release(data, **SPEND),
    "columns": lambda data: ColumnPasses(Rows(data), ["x"], PERSONS, unit="who", max_rows=2),
    "opened rows": lambda data: pi.MomentOLS.from_formula("y ~ x", pi.open_rows(data), schema=PERSONS).fit(
        **SPEND
    ),
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_a_person_in_two_types_is_refused_where_the_table_is_opened(entry_point):
    with pytest.raises(SchemaError, match="the unit column 'who' holds numbers and texts") as told:
        ENTRY_POINTS[entry_point](TWICE)
    assert "17" not in str(told.value)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("ids", [[17, 17.0, np.int64(17)], ["17", " 17", "17"], [b"17"] * 3])
def test_rows_of_a_person_count_together_however_their_id_is_written(ids, entry_point):
    with pytest.raises((AlignmentError, SchemaError), match="more than max_rows=2"):
        ENTRY_POINTS[entry_point](
            people([*ids, *([type(ids[0])(1)] if not isinstance(ids[0], bytes) else [b"1"]) * 2])
        )


def test_dask_partitions_of_two_types_are_refused():
    dask = of_library("dask.dataframe")
    parts = [TWICE[:2].astype({"who": "int64"}), TWICE[2:].assign(who=TWICE["who"][2:].map(str))]
    data = dask.concat([dask.from_pandas(part, npartitions=1) for part in parts])
    with pytest.raises(SchemaError, match=r"holds numbers and texts|holds numbers at first and texts"):
        ENTRY_POINTS["MomentOLS"](data)


# ---- machines


LABELS = {
    "zero bytes": ["a\0x", "a\0y", "a"],
    "zero bytes at the end": ["a", "a\0", "a\0\0"],
    "numbers of two types": [1, 2.0, 3],
}
FORMS = {
    "list": list,
    "objects": lambda labels: np.array(labels, dtype=object),
    "series": lambda labels: pd.Series(labels, dtype=object),
    "categories": lambda labels: pd.Series(pd.Categorical(labels)),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("form", FORMS)
def test_every_row_is_at_one_machine(name, form):
    labels = FORMS[form](LABELS[name] * 1000)
    frame = people(range(3000))
    rows = Rows(frame[["x"]].to_numpy(), frame["y"].to_numpy())
    design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-1, 1))
    parts = split(rows, labels, design)
    assert [len(part) for part in parts.values()] == [1000] * 3
    assert len(in_process(design, parts).sites) == 3


@pytest.mark.parametrize(
    ("labels", "error", "why"),
    [
        ([1, "1"], SchemaError, "sites= holds numbers and texts"),
        (["a", None], SchemaError, "sites= has missing values"),
        ([1.0, np.nan], SchemaError, "sites= has missing values"),
        (["a"], ArgumentError, "one label for each"),
    ],
)
def test_machines_are_named_in_one_type(labels, error, why):
    design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-1, 1))
    rows = Rows(np.zeros((2, 1)), np.zeros(2))
    with pytest.raises(error, match=why):
        split(rows, labels, design)


def test_sites_of_one_name_are_refused():
    design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-1, 1))
    rows = Rows(np.zeros((2, 1)), np.zeros(2))
    with pytest.raises(ArgumentError, match="labels with the same text"):
        in_process(design, {1: rows, "1": rows})


def test_a_list_keeps_its_labels():
    assert label_column(["a", "a\0"]).tolist() == ["a", "a\0"]


# ---- ids of parties


@pytest.mark.parametrize("ids", [[10, "10"], ["9", 10], [np.int64(9), "10"]])
def test_a_roster_holds_ids_of_one_type(ids):
    with pytest.raises(AlignmentError, match="integers in some rows and texts in others"):
        roster_digest(ids)
    frame = pd.DataFrame({"id": np.array(ids, dtype=object), "x": 0.0})
    with pytest.raises(AlignmentError, match="integers in some rows and texts in others"):
        open_table(frame, pi.Schema({"x": (-1, 1)}), id="id")


def test_blocks_of_a_roster_hold_ids_of_one_type(monkeypatch):
    monkeypatch.setattr("privinf.mechanisms.sources.ROWS", 2)
    frame = pd.DataFrame({"id": np.array([1, 2, "3", "4"], dtype=object), "x": 0.0})
    with pytest.raises(AlignmentError, match="integers in some rows and texts in others"):
        open_table(frame, pi.Schema({"x": (-1, 1)}), id="id")


def test_ids_of_one_type_have_one_digest():
    assert roster_digest([9, np.int64(10)]) == roster_digest(["10", "9 "]) == roster_digest(np.array([9, 10]))
