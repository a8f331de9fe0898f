"""Tables in blocks: the same people in the same order from every file, and clear refusals of others."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import sys

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, SchemaError, StorageError
from privinf.mechanisms import sources
from privinf.mechanisms.blocks import RowBlocks, open_table, read_ids, read_roster, roster_digest

SCHEMA = pi.Schema({"age": (18.0, 90.0), "sex": pi.Factor(["f", "m"])})
SECRET = 98765432109


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 7)


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "patient": rng.permutation(np.arange(95, 145)),
            "age": rng.uniform(20.0, 80.0, 50),
            "sex": rng.choice(["f", "m"], 50),
            "unused": 1.0,
        }
    )


def written(frame, folder, form):
    """Return the path of the frame in one of several forms."""
    path = folder / f"rows{form}"
    if form.endswith("text.parquet"):
        frame.assign(patient=frame["patient"].astype(str)).to_parquet(path)
    elif form.endswith("categories.parquet"):
        frame.astype({"patient": "category", "sex": "category"}).to_parquet(path)
    elif form.endswith(".parquet"):
        frame.to_parquet(path)
    else:
        separator = "\t" if "tsv" in form else ";" if "semicolon" in form else ","
        frame.to_csv(path, index=False, sep=separator, encoding="utf-8-sig" if "bom" in form else "utf-8")
    return path


def collected(table):
    """Return the rows of all blocks in the plan's order, and the positions as they came."""
    frames, positions = [], []
    for position, block in table.blocks():
        own = np.arange(position, position + len(block)) if isinstance(position, int) else position
        frames.append(block.set_axis(own))
        positions.append(own)
    return pd.concat(frames).sort_index(), np.concatenate(positions)


FORMS = [
    ".csv",
    "_bom.csv",
    "_semicolon.csv",
    ".tsv",
    ".csv.gz",
    ".parquet",
    "_text.parquet",
    "_categories.parquet",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("increasing", [False, True])
def test_every_form_gives_the_same_rows_at_the_same_places(form, increasing, frame, tmp_path):
    if increasing:
        frame = frame.sort_values("patient")
    table = open_table(written(frame, tmp_path, form), SCHEMA, id="patient", n=50)
    assert isinstance(table, RowBlocks)
    assert (len(table), table.sorted) == (50, increasing)
    rows, positions = collected(table)
    expected = frame.sort_values("patient").reset_index(drop=True)
    assert sorted(positions) == list(range(50))
    np.testing.assert_allclose(rows["age"], expected["age"], rtol=1e-14)
    assert list(rows["sex"]) == list(expected["sex"])
    lines = "".join(f"{number}\n" for number in range(95, 145))
    assert table.ids_sha256 == hashlib.sha256(lines.encode()).hexdigest() == roster_digest(frame["patient"])


@pytest.mark.parametrize("form", [".csv", ".parquet"])
def test_release_is_the_same_from_any_file_and_from_the_sorted_frame(form, frame, tmp_path):
    mechanism = pi.RandomMixing(SCHEMA, k=9, seed=3, n=50)
    spend = {"epsilon": 1.0, "delta": 1e-6, "rng": 0}
    expected = mechanism.release(frame.sort_values("patient")[["age", "sex"]], **spend)
    table = open_table(written(frame, tmp_path, form), SCHEMA, id="patient")
    found = mechanism.release(table, **spend)
    for name in expected.arrays:
        np.testing.assert_array_equal(found.arrays[name], expected.arrays[name])
    rows = pi.GaussianRows(SCHEMA).release(table, **spend).arrays["rows"]
    by_hand = pi.GaussianRows(SCHEMA).release(frame.sort_values("patient"), **spend).arrays["rows"]
    np.testing.assert_array_equal(rows, by_hand)


@pytest.mark.parametrize("form", [".csv", ".parquet"])
def test_without_an_id_the_order_of_the_file_is_the_order(form, frame, tmp_path):
    table = open_table(written(frame, tmp_path, form), SCHEMA, n=50)
    rows, positions = collected(table)
    assert list(positions) == list(range(50))
    np.testing.assert_allclose(rows["age"], frame["age"], rtol=1e-14)
    assert table.ids_sha256 == ""
    with pytest.raises(SchemaError, match="name of the id column"):
        open_table(frame, SCHEMA, ids_sha256="0" * 64)


# ---- the order of ids


@pytest.mark.parametrize(
    ("ids", "ordered"),
    [
        ([10, 9, -3], ["-3", "9", "10"]),
        (["10", "9", "-3"], ["-3", "9", "10"]),
        (["010", "9", "10"], ["010", "10", "9"]),
        (["+1", "2"], ["+1", "2"]),
        ([" b", "a ", "Z"], ["Z", "a", "b"]),
        (["\U0001f600", "\uffee", "é", "z"], ["z", "é", "\uffee", "\U0001f600"]),
        ([2**64 - 1, 3], ["18446744073709551615", "3"]),
        ([*map(str, range(20)), "x"], [*sorted(map(str, range(20))), "x"]),
        (["x", *map(str, range(20))], [*sorted(map(str, range(20))), "x"]),
    ],
)
def test_ids_are_numbers_if_all_are_else_texts_by_code_point(ids, ordered, tmp_path):
    digest = hashlib.sha256("".join(f"{text}\n" for text in ordered).encode()).hexdigest()
    assert roster_digest(ids) == digest
    frame = pd.DataFrame({"patient": ids, "age": 20.0 + np.arange(len(ids)), "sex": "f"})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for data in (frame, tmp_path / "rows.csv", tmp_path / "rows.parquet"):
        table = open_table(data, SCHEMA, id="patient", ids_sha256=digest)
        rows, _ = collected(table)
        own = [str(ids[int(age) - 20]).strip() for age in rows["age"]]
        assert own == ordered


def test_sorted_texts_need_no_memory_even_where_a_block_looks_like_numbers():
    ids = sorted([*"ABCDEFGH", *(f"9{k}" for k in range(10, 40))])
    texts = pd.DataFrame({"patient": ["!", *ids], "age": 30.0, "sex": "f"})
    assert open_table(texts, SCHEMA, id="patient").sorted


# ---- refusals


def with_id(frame, value):
    ids = frame["patient"].astype(object)
    ids.iloc[20] = value
    return frame.assign(patient=ids)


@pytest.mark.parametrize("form", ["frame", ".csv", ".parquet"])
@pytest.mark.parametrize(
    ("value", "match"),
    [
        (None, "missing values"),
        ("", "missing values"),
        ("NA", "missing values"),
        (100, "1 row.s. repeat the id"),
        (SECRET, "the plan"),
    ],
)
def test_wrong_people_are_refused_without_showing_an_id(form, value, match, frame, tmp_path):
    assert frame["patient"].iloc[20] != 100
    digest = roster_digest(frame["patient"])
    bad = with_id(frame, value)
    if form == ".parquet":
        bad = bad.assign(patient=bad["patient"].map(lambda cell: cell if cell is None else str(cell)))
    data = bad if form == "frame" else written(bad, tmp_path, form)
    with pytest.raises(AlignmentError, match=match) as caught:
        open_table(data, SCHEMA, id="patient", n=50, ids_sha256=digest)
    assert str(SECRET) not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "ids", [np.arange(3.0), np.array([True, False, True]), pd.date_range("2020", periods=3)]
)
def test_ids_are_whole_numbers_or_texts(ids):
    with pytest.raises(AlignmentError, match="integers or texts"):
        read_ids(pd.Series(ids))


@pytest.mark.parametrize("text", ["a\nb", "a\0"])
def test_ids_are_texts_of_one_line(text):
    with pytest.raises(AlignmentError, match="one line"):
        roster_digest([text, "b"])
    with pytest.raises(AlignmentError, match="Unicode"):
        roster_digest(pd.Series(["\ud800"], dtype=object))


def test_roster_says_how_many_are_missing_or_too_many(frame, tmp_path):
    roster = pd.DataFrame({"patient": range(90, 143)}).astype(str)
    with pytest.raises(
        AlignmentError, match=r"5 of the roster's ids are missing, and 2 ids are not in the roster"
    ):
        open_table(frame, SCHEMA, id="patient", roster=roster)
    frame[["patient"]].to_csv(tmp_path / "ids.csv", index=False)
    assert len(open_table(frame, SCHEMA, id="patient", roster=tmp_path / "ids.csv")) == 50
    assert read_roster(tmp_path / "ids.csv", "patient") == (50, roster_digest(frame["patient"]))
    with pytest.raises(AlignmentError, match="50 rows, but n=49"):
        open_table(frame, SCHEMA, id="patient", n=49)


@pytest.mark.parametrize("form", ["frame", ".csv", ".parquet"])
def test_columns_are_there_once(form, frame, tmp_path):
    data = frame if form == "frame" else written(frame, tmp_path, form)
    with pytest.raises(SchemaError, match="lacks the column 'bmi'"):
        open_table(data, pi.Schema({"age": (0, 1), "bmi": (0, 1)}))
    with pytest.raises(SchemaError, match="lacks the column 'person'"):
        open_table(data, SCHEMA, id="person")


def test_a_column_there_twice_is_refused(frame, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("age,sex,age\n20,f,21\n")
    with pytest.raises(SchemaError, match="several columns with the same name, age"):
        open_table(path, SCHEMA)


def test_csv_is_read_as_the_schema_declares(tmp_path):
    schema = pi.Schema(
        {
            "code": pi.Factor(["01", "NA", "1"]),
            "level": pi.Factor([1, 2]),
            "ok": pi.Factor([False, True]),
            "x": (0.0, 1.0),
        }
    )
    path = tmp_path / "rows.csv"
    path.write_text("code,level,ok,x\n01,1,True,0.5\nNA, 2,False,1e-1\n1,1,True,1\n")
    block = next(open_table(path, schema).blocks())[1]
    matrix = pi.GaussianRows(schema).release(block, epsilon=np.inf, delta=1e-6).arrays["rows"]
    np.testing.assert_array_equal(matrix[:, :2], [[0, 0], [1, 0], [0, 1]])
    np.testing.assert_array_equal(matrix[:, 2:], [[0, 1, 0.5], [1, 0, 0.1], [0, 1, 1]])


@pytest.mark.parametrize(
    "text", [f"age,sex\n{SECRET},f\n", "age,sex\n,f\n", "age,sex\ninf,f\n", f"age,sex\n30,{SECRET}\n"]
)
def test_errors_of_the_rows_hold_no_value(text, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text.replace(str(SECRET), f"x{SECRET}"))
    with pytest.raises(SchemaError) as caught:
        pi.GaussianRows(SCHEMA).release(open_table(path, SCHEMA), epsilon=1.0, delta=1e-6)
    assert str(SECRET) not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"age,sex\n30,f\n31,f,1,2\n",
        b"age,sex\n" + b"30,f,98765\n" * 3,
        b"age,sex\n30,\xff98765\n",
        b'age,sex\n30,"98765\n',
    ],
)
def test_damaged_csv_is_a_clear_error(content, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises((StorageError, SchemaError)) as caught:
        list(open_table(path, SCHEMA).blocks())
    assert "98765" not in str(caught.value)


def test_damaged_files_and_unknown_endings(frame, tmp_path, monkeypatch):
    path = written(frame, tmp_path, ".parquet")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(StorageError, match="cannot be read as Parquet"):
        open_table(path, SCHEMA)
    squeezed = tmp_path / "rows.csv.gz"
    squeezed.write_bytes(gzip.compress(b"age,sex\n" + os.urandom(5000).hex().encode())[:-100])
    with pytest.raises(StorageError, match="cannot be read as CSV"):
        open_table(squeezed, SCHEMA)
    with pytest.raises(StorageError, match="no such file"):
        open_table(tmp_path / "other.csv", SCHEMA)
    frame.to_csv(tmp_path / "rows.txt")
    with pytest.raises(StorageError, match=r"ends in \.csv"):
        open_table(tmp_path / "rows.txt", SCHEMA)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NotAvailableError, match="pyarrow"):
        open_table(path, SCHEMA)


@pytest.mark.parametrize("rows", [40, 60])
def test_a_file_that_changes_under_way_is_refused(rows, frame, tmp_path):
    path = written(frame, tmp_path, ".csv")
    table = open_table(path, SCHEMA, id="patient")
    pd.concat([frame, frame]).iloc[:rows].to_csv(path, index=False)
    with pytest.raises(AlignmentError, match="changed while it was read"):
        list(table.blocks())


def test_rows_stay(frame):
    table = open_table(frame, SCHEMA, id="patient")
    assert repr(table) == "TableRows(50 rows of the data frame, not shown)"
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(table)
    with pytest.raises(ArgumentError, match="must be a Schema"):
        open_table(frame, ["age"])


def test_an_index_of_a_parquet_file_is_a_column(tmp_path):
    """pandas writes a named index as a column, and would make it an index again."""
    frame = pd.DataFrame({"patient": [3, 1, 2], "age": [30.0, 40.0, 50.0]}).set_index("patient")
    frame.to_parquet(tmp_path / "indexed.parquet")
    table = open_table(tmp_path / "indexed.parquet", pi.Schema({"age": (18.0, 90.0)}), id="patient", n=3)
    ((position, block),) = table.blocks()
    assert position.tolist() == [2, 0, 1]
    assert block["age"].tolist() == [30.0, 40.0, 50.0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_list_of_files_and_a_pattern_are_tables(tmp_path, suffix):
    frame = pd.DataFrame({"y": np.linspace(0, 1, 900), "x": np.cos(np.arange(900.0))})
    schema = pi.Schema({"y": (0, 1), "x": (-1, 1)})
    paths = [tmp_path / f"{year}.{suffix}" for year in (2024, 2025, 2026)]
    for place, path in enumerate(paths):
        part = frame.iloc[300 * place : 300 * place + 300]
        part.to_csv(path, index=False) if suffix == "csv" else part.to_parquet(path)
    tables = [frame, paths, list(map(str, paths)), f"{tmp_path}/202?.{suffix}", tmp_path]
    fits = [pi.MomentOLS.from_formula("y ~ x", data, schema=schema).fit(mu=1.0, rng=1) for data in tables]
    assert all(fit.params.equals(fits[0].params) for fit in fits)
    with pytest.raises(StorageError, match="no file matches this pattern"):
        pi.MomentOLS.from_formula("y ~ x", f"{tmp_path}/19*.{suffix}", schema=schema).fit(mu=1.0)
    with pytest.raises(StorageError, match="there is no such file"):
        pi.MomentOLS.from_formula("y ~ x", [*paths, tmp_path / f"1.{suffix}"], schema=schema).fit(mu=1.0)


def test_a_list_of_files_of_two_kinds_is_refused(tmp_path):
    frame = pd.DataFrame({"y": [0.0, 1.0], "x": [0.0, 1.0]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "b.parquet")
    with pytest.raises(StorageError, match="use files of one kind only"):
        pi.open_rows([tmp_path / "a.csv", tmp_path / "b.parquet"])
