"""Schemas as TOML: what is written is read back, bought bounds stay bought, and mistakes are named."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError, SchemaError, StorageError
from privinf.storage.checksummed import unreadable

COLUMNS = {
    "age": (18, 90),
    "sex": ["f", "m"],
    "day": (datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)),
    "rank": pi.Factor([1, 2, 3], other=3, public=True),
    "weight": pi.Numeric(0, 200, unit="kg", center=0.0, scale=2.0),
    'we"ird\x7f é': (0, 1),
    "smokes": pi.Factor([False, True], other=False),
}


def test_what_is_saved_is_loaded(tmp_path):
    path = tmp_path / "s.toml"
    for schema in (pi.Schema(COLUMNS), pi.Schema(COLUMNS, unit="id", max_rows=3)):
        schema.save(path, overwrite=True)
        assert pi.load_schema(path) == schema
    with pytest.raises(ArgumentError, match="already exists"):
        pi.Schema(COLUMNS).save(path)
    blank = pi.Schema.from_frame_names({"x": [1.0], "g": ["a"]})
    blank.save(path, overwrite=True)
    assert pi.load_schema(path) == blank
    assert pi.load_schema(path).blank == ("x", "g")


def test_people_may_write_dates_and_short_tables(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('[columns]\nday = {low = 2020-01-01, high = 2021-01-01}\ng = {levels = ["a", "b"]}\n')
    assert pi.load_schema(path) == pi.Schema({"day": COLUMNS["day"], "g": ["a", "b"]})


def test_bought_bounds_stay_bought_until_they_are_changed(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "s.toml"
    rows = pd.DataFrame({"age": rng.uniform(20, 70, 9000), "town": rng.choice(["a", "b"], 9000)})
    found = pi.find_bounds(rows, ["age", "town"], epsilon=0.5, delta=1e-6, rng=0)
    found.save(path)
    read = pi.load_schema(path)
    assert repr(read) == repr(found)
    assert read.notes(["age", "town"]) == found.notes(["age", "town"]) != ()
    text = path.read_text()
    path.write_text(text.replace(f"low = {found['age'].low!r}\n", "low = 18.0\n", 1))
    changed = pi.load_schema(path)
    assert changed["age"].low == 18.0
    assert list(changed.clips.index) == ["town"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[columns.age]\nlow = 1\n", "column 'age' has no bounds and no levels: write low"),
        ("[columns.age]\nlow = 1\nhigh = 0\n", "column 'age': bounds"),
        ('[columns.age]\nlow = ""\nhigh = 3\n', "column 'age'"),
        (
            "[columns.age]\nlow = 1\nhigh = 2\nmiddle = 3\n",
            "'middle' is not a valid key; the valid keys are low, high",
        ),
        ("[columns.g]\nlevels = [1]\n", "column 'g': a factor needs at least two levels"),
        ('[columns.g]\nlevels = "ab"\n', "column 'g': levels must be a list"),
        ("[age]\nlow = 1\nhigh = 2\n", r"write \[columns.age\]"),
        ("columns = 3\n", "declares no columns"),
        ("unit = 3\n[columns.age]\nlow = 1\nhigh = 2\n", "unit= must be the name"),
        ("age,wage\n4242,3\n", r"not valid TOML \(at line 1, column 4\)"),
        ("[columns.age]\nlow = 1\nhigh = 2\n[bought]\nclips = 3\n", "does not describe a schema"),
    ],
)
def test_what_is_no_schema_is_named(text, words, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises((SchemaError, StorageError), match=words) as caught:
        pi.load_schema(path)
    assert "4242" not in str(caught.value)


def test_a_file_that_is_missing_or_no_text(tmp_path):
    with pytest.raises(StorageError, match="does not exist"):
        pi.load_schema(tmp_path / "none.toml")
    with pytest.raises(StorageError, match="is a folder; pass the path of a file"):
        pi.load_schema(tmp_path)
    refused = unreadable(tmp_path / "s.toml", PermissionError(13, "Permission denied"))
    assert "this account is not allowed to read" in str(refused)
    (tmp_path / "s.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(StorageError, match="UTF-8"):
        pi.load_schema(tmp_path / "s.toml")
