"""Every line of a CSV file is a row, has as many fields as the first, and keeps its blanks and quotes."""

import gzip

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import AlignmentError, SchemaError, StorageError
from privinf.mechanisms import files
from privinf.mechanisms.files import file_source

SPEND = {"epsilon": 2.0, "delta": 1e-6, "rng": 0}
ONE = pi.Schema({"a": (0, 10)})


@pytest.fixture(params=[4, 7, 1 << 15])
def blocks_of(request, monkeypatch):
    monkeypatch.setattr(files, "BYTES", request.param)
    return request.param


def read(tmp_path, content, types="texts", name="t.csv"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    source = file_source(path)
    parts = list(source.read(source.columns, types))
    return pd.concat(parts).to_numpy(dtype=object, na_value=None).tolist() if parts else []


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"a\n1\n\n", ["1", None]),
        (b"a\n1\n", ["1"]),
        (b"a\n1", ["1"]),
        (b"a\n\n\n", [None, None]),
        (b"a\n\n1\n", [None, "1"]),
        (b"a\r\n1\r\n\r\n", ["1", None]),
        (b"a\r1\r\r2\r", ["1", None, "2"]),
        (b'a\n""\n"x"\n', [None, "x"]),
        (b"a\n1\n  \n2\n", ["1", "  ", "2"]),
        (b"\xef\xbb\xbfa\n1\n\n", ["1", None]),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_every_line_after_the_first_is_a_row(content, rows, name, tmp_path, blocks_of):
    assert read(tmp_path, content, name=name) == [[row] for row in rows]
    assert file_source(tmp_path / name).count() == len(rows)


def test_an_empty_line_is_a_missing_value_and_not_left_out(tmp_path):
    whole, gaps = tmp_path / "whole.csv", tmp_path / "gaps.csv"
    values = np.linspace(0, 10, 40).tolist()
    whole.write_text("\n".join(map(str, ["a", *values])) + "\n")
    gaps.write_text("\n".join(map(str, ["a", *values[:-1]])) + "\n\n")
    found = [
        pi.stats.mean("a", data=str(path), schema=ONE, missing="impute-public", **SPEND)
        for path in (whole, gaps)
    ]
    assert found[0].nobs == found[1].nobs == 40
    with pytest.raises(SchemaError, match="missing values"):
        pi.stats.mean("a", data=str(gaps), schema=ONE, **SPEND)


@pytest.mark.parametrize(
    ("content", "line", "few"),
    [
        (b"a,b\n1,2\n\n", 3, True),
        (b"a,b\n1,2\n3\n4,5\n", 3, True),
        (b"a,b\r\n1,2\r\n3\r\n", 3, True),
        (b"a,b\n1,2,3\n4\n", 2, False),
        (b"a,b\n4\n1,2,3\n", 2, True),
        (b"a,b\n1,2\n   \n", 3, True),
        (b'a,b\n"x",1\n"y"\n', 3, True),
        (b'a,b\n"x,1"\n', 2, True),
        (b'a,b\n"x,y",1\n"z,1"\n', 3, True),
        (b'a,b\n"x,y","1\n2"\n"z",3,4\n', 4, False),
        (b'a,b\n5" pipe,1\n3" pipe\n', 3, True),
        (b"a\n1\n2,98765\n", 3, False),
        (b"a,b\n1\rx\n", 2, True),
    ],
)
def test_a_line_with_too_few_or_too_many_fields_is_refused(content, line, few, tmp_path, blocks_of):
    with pytest.raises(
        StorageError, match=rf"near line {line} \(the line has too {'few' if few else 'many'}"
    ) as told:
        read(tmp_path, content)
    assert "98765" not in str(told.value)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'a,b\n"x,\n""y""",2\n"",3\n', [['x,\n"y"', "2"], [None, "3"]]),
        (b'a,b\n5" pipe,3" x\n"q,r",2', [['5" pipe', '3" x'], ["q,r", "2"]]),
        (b'a,b\n"x"y,2\n', [["xy", "2"]]),
        (b'a,b\n"x\r\ny",2\r\n', [["x\r\ny", "2"]]),
        (b'a;b\n"x;""";2\n', [['x;"', "2"]]),
        ('a,b\né,"ü,ü"\n'.encode(), [["é", "ü,ü"]]),
        (b'a,b\n"x,""",""",y"\n', [['x,"', '",y']]),
        (b"a, b\n x, y\n", [[" x", " y"]]),
    ],
)
def test_quotes_enclose_separators_and_ends_of_lines(content, rows, tmp_path, blocks_of):
    assert read(tmp_path, content) == rows


@pytest.mark.parametrize("content", [b"a,b\nx\0y,2\n", b'a,b\n1,"\xff"\n', b'a,b\n"x,1\n2,3\n', b"", b"\n\n"])
def test_what_is_no_text_of_lines_is_refused(content, tmp_path, blocks_of):
    with pytest.raises(StorageError, match="cannot be read as CSV"):
        read(tmp_path, content)


def test_lines_are_counted_as_the_csv_module_does(tmp_path, monkeypatch):
    import csv
    import io

    rng = np.random.default_rng(0)
    pieces = ["x", ",", '"', "\n", "\r\n", '""', ',"', '",', "\r"]
    for draw in range(1000):
        monkeypatch.setattr(files, "BYTES", int(rng.integers(1, 9)))
        text = "".join(rng.choice(pieces, int(rng.integers(1, 14))))
        records = list(csv.reader(io.StringIO("a,b\n" + text, newline="")))
        checked = files.CheckedLines(io.BytesIO(b"a,b\n" + text.encode()), ",", 2)
        wrong = any(len(record) != 2 for record in records)
        try:
            for _ in checked:
                pass
            refused = False
        except ValueError:
            refused = True
        assert refused == wrong, (draw, text)


def test_a_quote_without_its_partner_does_not_hold_the_rest_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 12)
    with pytest.raises(
        StorageError, match=r"near line 2 \(the line is too long, or an opening quotation mark"
    ):
        read(tmp_path, b'a,b\n"x,1\n' + b"y,2\n" * 20_000)


# ---- blanks


def fit_of(tmp_path, text, schema, formula="y ~ x"):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return pi.MomentOLS.from_formula(formula, str(path), schema=schema).fit(**SPEND)


ROWS = "".join(f"{k / 10}, {k % 7}\n" for k in range(60))


def test_a_column_that_differs_by_blanks_is_named_with_the_remedy(tmp_path):
    schema = pi.Schema({"x": (0, 6), "y": (0, 7)})
    with pytest.raises(SchemaError, match=r"its column ' y' differs from 'y' only by blanks: rename it"):
        fit_of(tmp_path, "x, y\n" + ROWS, schema)
    with pytest.raises(SchemaError, match=r"its column 'x ' differs from 'x' only by blanks: rename it"):
        pi.MomentOLS.from_formula(
            "y ~ x", pd.DataFrame({"x ": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}), schema=schema
        ).fit(**SPEND)
    assert fit_of(tmp_path, "x,y\n" + ROWS, schema).nobs == 60  # beside numbers blanks mean nothing
    blank = pi.Schema({"x": (0, 6), " y": (0, 7)})
    assert fit_of(tmp_path, "x, y\n" + ROWS, blank, "Q(' y') ~ x").nobs == 60


def test_blanks_beside_missing_numbers_and_dates(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,d\n 1, 2020-01-02\n NA, 2020-01-03\n ,2020-01-04\n")
    schema = pi.Schema({"x": (0, 2), "d": ("2020-01-01", "2020-01-31")})
    frame = next(file_source(path).read(["x", "d"], schema))
    assert frame["x"].isna().tolist() == [False, True, True]
    from privinf.schema.reading import Reader

    assert Reader(frame, schema, "impute-public").number("d").tolist() == [18263, 18264, 18265]


@pytest.mark.parametrize("form", ["csv", "frame", "categorical"])
def test_a_level_that_differs_by_blanks_is_named_with_the_remedy(form, tmp_path):
    schema = pi.Schema({"g": ["a", "b"], "y": (0, 7)})
    frame = pd.DataFrame({"g": ["a", " a", "b"] * 10, "y": 1.0})
    if form == "csv":
        frame.to_csv(tmp_path / "t.csv", index=False)
        data = str(tmp_path / "t.csv")
    else:
        data = frame.astype({"g": "category"}) if form == "categorical" else frame
    with pytest.raises(SchemaError, match="differ from its declared level 'a' only by blanks"):
        pi.MomentOLS.from_formula("y ~ g", data, schema=schema).fit(**SPEND)
    both = pi.Schema({"g": ["a", " a", "b"], "y": (0, 7)})
    fit = pi.MomentOLS.from_formula("y ~ g", data, schema=both).fit(**SPEND)
    assert list(fit.params.index) == ["Intercept", "g[T. a]", "g[T.b]"]


# ---- tables without rows


@pytest.mark.parametrize("text", ["x,y\n", "x,y"])
def test_a_file_of_names_alone_has_no_rows(text, tmp_path):
    with pytest.raises(AlignmentError, match=r"t\.csv: the table has no rows"):
        fit_of(tmp_path, text, pi.Schema({"x": (0, 6), "y": (0, 7)}))
