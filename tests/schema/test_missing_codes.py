"""Codes of missing values (-9, 999) count as missing values, however the rows are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import SchemaError
from privinf.schema.reading import Reader

SPENDING = {"epsilon": 2.0, "delta": 1e-6, "rng": 3}
N = 3000
# No value of a row may depend on how gaps are written: one table has codes, the other has NaN.
CODED = pi.Schema(
    {
        "los": (0, 30),
        "sbp": pi.Numeric(80, 220, missing_codes=[-9, 150.25]),
        "region": pi.Factor(["a", "b", "c"], other="c", missing_codes=["9"]),
        "sex": pi.Factor([1, 2], missing_codes=[7, 9]),
        "smoker": pi.Numeric(0, 1, missing_codes=[8]),
    }
)
PLAIN = pi.Schema({name: replace(item, missing_codes=()) for name, item in CODED.columns.items()})


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    draw = np.random.default_rng(1)
    sbp = np.round(draw.normal(140, 15, N))
    frame = pd.DataFrame(
        {
            "los": np.round(np.clip(draw.normal(8, 3, N) + 0.05 * (sbp - 140), 0, 30), 1),
            "sbp": sbp,
            "region": draw.choice(["a", "b", "c", "d"], N),
            "sex": draw.choice([1.0, 2.0], N),
            "smoker": draw.choice([0.0, 1.0], N),
        }
    )
    gaps = frame.copy()
    coded = frame.copy()
    for name, code in {"sbp": -9.0, "region": "9", "sex": 9.0, "smoker": 8.0}.items():
        rows = draw.random(N) < 0.06
        gaps.loc[rows, name] = np.nan if name != "region" else None
        coded.loc[rows, name] = code
    rows = draw.random(N) < 0.02  # a code inside the bounds
    gaps.loc[rows, "sbp"] = np.nan
    coded.loc[rows, "sbp"] = 150.25
    return coded, gaps


def regression(data: object, schema: pi.Schema, model: str = "OLS", **options: object) -> pd.Series:
    fit = getattr(pi, model).from_formula(
        "los ~ sbp + C(region) + C(sex) + smoker", data, schema=schema, missing="drop", **options
    )
    return fit.fit(**SPENDING).params


@pytest.mark.parametrize("model", ["OLS", "MomentOLS"])
def test_a_fit_of_codes_is_the_fit_of_missing_values(model):
    coded, gaps = tables()
    pd.testing.assert_series_equal(regression(coded, CODED, model), regression(gaps, PLAIN, model))


def test_codes_are_missing_values_where_numbers_are_read_without_a_frame(tmp_path):
    coded, gaps = tables()
    coded[["los", "sbp"]].to_parquet(tmp_path / "rows.parquet")
    fits = [
        pi.OLS.from_formula("los ~ sbp", data, schema=schema, missing="drop").fit(**SPENDING).params
        for data, schema in ((tmp_path / "rows.parquet", CODED), (gaps, PLAIN))
    ]
    pd.testing.assert_series_equal(*fits)


def test_codes_in_a_csv_file(tmp_path):
    coded, gaps = tables()
    coded.to_csv(tmp_path / "rows.csv", index=False)
    pd.testing.assert_series_equal(regression(tmp_path / "rows.csv", CODED), regression(gaps, PLAIN))


def test_codes_in_a_database():
    duckdb = pytest.importorskip("duckdb")
    coded, gaps = tables()
    connection = duckdb.connect()
    connection.register("coded_rows", coded)
    data = pi.open_rows(connection.sql("SELECT * FROM coded_rows"), push_down=True)
    pd.testing.assert_series_equal(regression(data, CODED, "MomentOLS"), regression(gaps, PLAIN, "MomentOLS"))


@pytest.mark.parametrize(
    "call",
    [
        lambda d, s: pi.stats.mean("sbp", data=d, schema=s, missing="drop", **SPENDING),
        lambda d, s: pi.stats.mean("sbp", by="region", data=d, schema=s, missing="drop", **SPENDING),
        lambda d, s: pi.stats.mean("sbp", clip="auto", data=d, schema=s, missing="drop", **SPENDING),
        lambda d, s: pi.stats.median("sbp", data=d, schema=s, missing="drop", **SPENDING),
        lambda d, s: pi.stats.crosstab("smoker", "region", data=d, schema=s, missing="drop", **SPENDING),
        lambda d, s: pi.stats.ttest_ind("sbp", "sex", data=d, schema=s, missing="drop", **SPENDING),
    ],
)
def test_statistics_of_codes_are_those_of_missing_values(call):
    coded, gaps = tables()
    assert repr(call(coded, CODED)) == repr(call(gaps, PLAIN))


def test_codes_are_refused_as_missing_values_by_default():
    coded, _ = tables()
    with pytest.raises(SchemaError, match=r"column 'sbp' has missing values. Pass missing='drop'"):
        pi.OLS.from_formula("los ~ sbp", coded, schema=CODED).fit(**SPENDING)


def test_codes_of_survival_times_and_of_a_label():
    draw = np.random.default_rng(2)
    data = pd.DataFrame(
        {
            "time": draw.exponential(5, 2000).round(3) + 0.01,
            "died": draw.integers(0, 2, 2000).astype(float),
            "x": draw.random(2000),
        }
    )
    data.loc[:50, "died"] = np.nan
    schemas = [
        pi.Schema({"time": (0, 30), "died": pi.Factor([0, 1], missing_codes=codes), "x": (0, 1)})
        for codes in ([], [9])
    ]
    frames = data, data.fillna({"died": 9.0})
    curves = [
        pi.survival.KaplanMeier("time", "died", data=frame, schema=schema, missing="drop").fit(**SPENDING)
        for frame, schema in zip(frames, schemas, strict=True)
    ]
    pd.testing.assert_frame_equal(curves[0].table, curves[1].table)
    labels = [
        pi.IWPGLM.from_formula("died ~ x", frame, schema=schema, missing="impute-public")
        .fit(epsilon=8, delta=1e-6, rng=1)
        .params
        for frame, schema in zip(frames, schemas, strict=True)
    ]
    pd.testing.assert_series_equal(*labels)


def test_codes_of_dates_and_of_single_precision():
    schema = pi.Schema(
        {
            "admitted": pi.Numeric(17000, 20000, unit="days since 1970-01-01", missing_codes=["1900-01-01"]),
            "x": pi.Numeric(0, 1, missing_codes=[-9.99]),
        }
    )
    table = pd.DataFrame(
        {
            "admitted": pd.to_datetime(["2020-01-01", "1900-01-01"]),
            "x": np.array([-9.99, 0.5], dtype=np.float32),
        }
    )
    reader = Reader(table, schema, "drop")
    reader.open(("admitted", "x"))
    assert reader.complete(("admitted",)).tolist() == [True, False]
    assert reader.complete(("x",)).tolist() == [False, True]


def test_weights_with_codes_are_refused():
    schema = pi.Schema({"y": (0, 1), "x": (0, 1), "w": pi.Numeric(1, 2, public=True, missing_codes=[9])})
    draw = np.random.default_rng(0)
    data = pd.DataFrame({"y": draw.random(99), "x": draw.random(99), "w": [9.0, *[1.5] * 98]})
    with pytest.raises(SchemaError, match="weights column 'w' has missing"):
        pi.MomentOLS.from_formula("y ~ x", data, schema=schema, weights="w").fit(mu=1, rng=0)


def test_a_schema_file_keeps_codes(tmp_path):
    CODED.save(tmp_path / "schema.toml")
    text = (tmp_path / "schema.toml").read_text()
    assert pi.load_schema(tmp_path / "schema.toml") == CODED
    assert pi.Schema.from_dict(CODED.to_dict()) == CODED != PLAIN
    assert "missing_codes = [" in text
    (tmp_path / "dated.toml").write_text(
        "[columns.admitted]\nlow = 2020-01-01\nhigh = 2024-01-01\nmissing_codes = [1900-01-01]\n"
    )
    assert pi.load_schema(tmp_path / "dated.toml")["admitted"].missing_codes == (-25567.0,)


def test_a_schema_without_codes_has_the_digest_that_it_had():
    assert "missing_codes" not in str(PLAIN.to_dict())


def test_a_schema_shows_codes_and_does_not_list_them_as_undeclared():
    assert "[80, 220], missing: -9, 150.25" in repr(CODED)
    assert "(3 levels, others count as c), missing: 9" in repr(CODED)
    coded, _ = tables()
    assert CODED.undeclared_levels(coded) == {}  # "d" counts as "c", by other=
    strict = pi.Schema({"region": pi.Factor(["a", "b", "c"], missing_codes=CODED["region"].missing_codes)})
    assert strict.undeclared_levels(coded) == {"region": ["d"]}


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: pi.Numeric(0, 1, missing_codes=-9), r"must be a list, such as \[-9\]"),
        (lambda: pi.Numeric(0, 1, missing_codes="-9"), r"must be a list, such as \[-9\]"),
        (lambda: pi.Numeric(0, 1, missing_codes=["-9"]), "each of missing_codes= must be a number"),
        (lambda: pi.Numeric(0, 1, missing_codes=[np.nan]), "must be a finite number"),
        (lambda: pi.Factor([1, 2], missing_codes=["9"]), "must have the type of the levels"),
        (lambda: pi.Factor([1, 2], missing_codes=[2]), "2 is a level and one of missing_codes="),
    ],
)
def test_codes_that_cannot_be_any(declare, message):
    with pytest.raises(SchemaError, match=message):
        declare()


def test_simulated_rows_of_a_schema_have_no_codes():
    schema = pi.Schema(
        {"a": pi.Numeric(0, 99, missing_codes=[99]), "b": pi.Numeric(0, 2, missing_codes=[0, 1, 2])}
    )
    frame = schema.frame()
    reader = Reader(frame, schema)
    reader.open(("a", "b"))
    assert set(frame["a"]) == {0.0, 49.5}
    assert set(frame["b"]) == {0.6}


@pytest.mark.filterwarnings("ignore::privinf.errors.HeavyTailWarning")
def test_a_clip_of_dates_and_of_number_levels():
    draw = np.random.default_rng(4)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 700, 4000), "D")
    data = pd.DataFrame({"admitted": days, "score": draw.integers(1, 6, 4000)})
    schema = pi.Schema({"admitted": ("2020-01-01", "2030-01-01"), "score": [1, 2, 3, 4, 5]})
    for name, mean in {"admitted": 20_073.0, "score": 3.0}.items():
        result = pi.stats.mean(name, clip="auto", data=data, schema=schema, **SPENDING)
        assert abs(result.estimate - mean) < 10.0
