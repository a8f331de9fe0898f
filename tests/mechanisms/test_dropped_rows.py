"""Rows with missing values, dropped from every sum: the same bits from every kind of table."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import pushing
from support.tables import FURTHER_KINDS, KINDS, arrow, of_library, written

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.mechanisms import sources
from privinf.mechanisms.opened import OpenedRows
from privinf.mechanisms.passes import RowPasses
from privinf.mechanisms.rows import Rows, as_rows, encode
from privinf.schema import Design

SCHEMA = pi.Schema(
    {
        "y": (0, 10),
        "x": (-1, 1),
        "k": (0, 9),
        "g": pi.Factor(["u", "v", "w"], other="w"),
        "q": (1, 2),
        "unused": (0, 1),
    }
)
SPEND = {"epsilon": 20.0, "delta": 1e-6, "rng": 0}
FITS = {
    "MomentOLS": (pi.MomentOLS, "y ~ x + k", {}),
    "MomentOLS, HC0": (pi.MomentOLS, "y ~ x * k + C(g) + poly(q, 2)", {"cov_type": "HC0"}),
    "OLS": (pi.OLS, "y ~ x + C(g)", {}),
    "OLS, nonrobust": (pi.OLS, "y ~ np.exp(x) + k", {"cov_type": "nonrobust"}),
    "Logit": (pi.Logit, "I(y > 5) ~ x", {}),
    "Poisson": (pi.Poisson, "k ~ x + C(g)", {}),
}
# Sums of splines and interactions are not made in databases.
PUSHED = {"relation that sums"}


def with_nan(frame):
    """Return a polars frame whose gaps are nan, not null."""
    polars = of_library("polars")
    return polars.DataFrame(
        {
            name: [None if pd.isna(level) else level for level in frame[name]]
            if name == "g"
            else frame[name].to_numpy()
            for name in frame
        }
    )


SOURCES = {name: make for name, make in {**KINDS, **FURTHER_KINDS}.items() if name != "ibis table"} | {
    "polars DataFrame with nan": lambda frame, folder: with_nan(frame),
    "polars LazyFrame with nan": lambda frame, folder: with_nan(frame).lazy(),
    "Parquet file, small row groups": lambda frame, folder: small_groups(frame, folder / "groups.parquet"),
    "ibis table with gaps": lambda frame, folder: (
        of_library("ibis").duckdb.connect().create_table("held", arrow(frame))
    ),
}


def small_groups(frame, path):
    of_library("pyarrow.parquet").write_table(arrow(frame), path, row_group_size=13)
    return path


def table(n=300, *, share=0.1, seed=5):
    """Return rows with gaps in every column, and with more adjacent incomplete rows than a block has."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    frame = pd.DataFrame(
        {
            "y": 5 + 3 * x + rng.normal(0, 1.5, n),
            "x": x,
            "k": rng.integers(0, 10, n).astype(float),
            "g": rng.choice(["u", "v", "elsewhere"], n),
            "q": rng.uniform(1, 2, n),
            "unused": rng.uniform(size=n),
        }
    )
    for name in frame:
        frame.loc[rng.uniform(size=n) < share, name] = None if name == "g" else np.nan
    frame.loc[50:110, "x"] = np.nan
    return frame


def readable_again(data):
    handle = pi.open_rows(data, progress=False)
    return data if handle.repeatable else pi.open_rows(data, spool=True, progress=False)


def bits(fit):
    return hashlib.sha256(fit.params.to_numpy().tobytes() + fit.bse.to_numpy().tobytes()).hexdigest()


def fitted(name, data, **spend):
    model, formula, options = FITS[name]
    built = model.from_formula(formula, data, schema=SCHEMA, missing="drop")
    return built.fit(**(SPEND | options | spend))


# Kinds of each way of reading, which are compared in every run; the others in audits.
FEW = ("polars DataFrame with nan", "Parquet file, small row groups", "CSV file", "relation that sums")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kinds", [FEW, pytest.param(tuple(SOURCES), marks=pytest.mark.audit)], ids=["few", "all"]
)
@pytest.mark.parametrize("name", FITS)
def test_every_kind_of_table_gives_the_same_bits(name, kinds, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    frame = table()
    expected = bits(fitted(name, frame))
    compared = 0
    for number, (kind, make) in enumerate((kind, SOURCES[kind]) for kind in kinds):
        (folder := tmp_path / str(number)).mkdir()
        try:
            data = readable_again(make(frame, folder))
        except pytest.skip.Exception:
            continue
        if kind in PUSHED and name in ("MomentOLS, HC0", "OLS, nonrobust", "Logit"):
            with pytest.raises(NotAvailableError, match="push_down=True cannot compute"):
                fitted(name, data)
            continue
        assert bits(fitted(name, data)) == expected, kind
        compared += 1
    assert compared >= (2 if kinds == FEW else 12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_without_noise_a_fit_is_that_of_complete_rows(name):
    model, formula, options = FITS[name]
    frame = table()
    used = [column for column in frame if column in formula]
    complete = frame.dropna(subset=used)
    fit = fitted(name, frame, epsilon=np.inf)
    expected = model.from_formula(formula, complete, schema=SCHEMA).fit(
        epsilon=np.inf, delta=1e-6, rng=0, **options
    )
    np.testing.assert_allclose(fit.params, expected.params, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(fit.bse, expected.bse, rtol=1e-6)
    assert fit.nobs == expected.nobs == len(complete) < len(frame.dropna(subset=used[:1]))
    assert fit.df_resid == expected.df_resid
    if hasattr(expected, "rsquared") and model is not pi.Logit and model is not pi.Poisson:
        assert fit.rsquared == pytest.approx(expected.rsquared, rel=1e-9)


def test_columns_outside_the_formula_may_lack_values():
    frame = table(share=0.0)
    frame.loc[::2, "unused"] = np.nan
    frame.loc[1::2, "g"] = None
    gaps = fitted("MomentOLS", frame)
    assert bits(gaps) == bits(fitted("MomentOLS", table(share=0.0)))


def test_clusters_of_persons_some_of_whose_rows_lack_values():
    frame = table(share=0.0).assign(person=np.arange(300) // 3)
    frame.loc[:1, "x"] = np.nan
    schema = pi.Schema(SCHEMA.columns, unit="person", max_rows=3)
    complete = frame.dropna(subset=["x"])
    assert set(complete.groupby("person").size()) == {1, 2, 3}
    assert complete["person"].nunique() < 90
    for kind in ("HC0", "cluster"):
        fits = [
            pi.MomentOLS.from_formula("y ~ x + k", rows, schema=schema, missing=missing).fit(
                epsilon=np.inf, cov_type=kind
            )
            for rows, missing in ((frame, "drop"), (complete, "raise"))
        ]
        np.testing.assert_allclose(*(fit.params for fit in fits), rtol=1e-9)
        np.testing.assert_allclose(*(fit.bse for fit in fits), rtol=1e-6)


# ---- integers


def complete_of(case):
    """Return the rows of a case that lack nothing."""
    lists = list(case.columns.values())
    rows = [row for row in zip(*lists, strict=True) if not any(absent(value) for value in row)]
    return replace(case, columns=dict(zip(case.columns, map(list, zip(*rows, strict=True)), strict=True)))


def absent(value):
    return value is None or value != value


def cases(number):
    """Return random tables with gaps whose rows are dropped, and the same tables without these rows.

    All columns are of the regression.
    """
    found = []
    for seed in range(200):
        case = pushing.random_case(seed)
        gaps = any(absent(value) for values in case.columns.values() for value in values)
        names = [f"C({name})" if name in "gk" else name for name in case.columns if name != "x0"]
        if not gaps or not case.columns["x0"]:
            continue
        case = replace(case, formula=f"x0 ~ {' + '.join(names)}", radius=None, missing="drop")
        left = complete_of(case) if any(not any(map(absent, row)) for row in rows_of(case)) else None
        if left is not None and len(left.columns["x0"]) > 12:
            found.append((case, replace(left, missing="raise")))
        if len(found) == number:
            break
    return found


def rows_of(case):
    return zip(*case.columns.values(), strict=True)


@pytest.mark.parametrize("number", [4, pytest.param(25, marks=pytest.mark.audit)])
def test_integers_are_those_of_complete_rows(number):
    tried = cases(number)
    assert len(tried) == number
    for case, left in tried:
        dropped = pushing.told_of_fits(case, case.arrow().to_pandas())
        assert isinstance(dropped, list), dropped
        assert dropped == pushing.told_of_fits(left, left.arrow().to_pandas()), case.seed


@pytest.mark.parametrize("number", [3, pytest.param(25, marks=pytest.mark.audit)])
def test_integers_of_a_database_are_those_of_numpy(number):
    database = of_library("duckdb").connect()
    for case, _ in cases(number):
        database.execute(case.create(0))
        data = pi.open_rows(database.sql("select * from held"), push_down=True)
        frame = case.arrow().to_pandas()
        assert pushing.told(case, data) == pushing.told(case, frame), case.seed
        assert isinstance(pushing.told(case, frame), list)
        assert pushing.told_of_fits(case, data) == pushing.told_of_fits(case, frame), case.seed


@pytest.mark.audit
def test_integers_of_postgres_are_those_of_numpy():
    ibis = of_library("ibis")
    of_library("psycopg")
    if pushing.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        pushing.postgres(Path(name)) as where,
    ):
        connection = ibis.postgres.connect(**where)
        for case, _ in cases(15):
            connection.raw_sql(case.create(1)).connection.commit()
            data = pi.open_rows(connection.table("held"), push_down=True)
            frame = case.arrow().to_pandas()
            assert pushing.told(case, data) == pushing.told(case, frame), case.seed
            assert pushing.told_of_fits(case, data) == pushing.told_of_fits(case, frame), case.seed
        connection.disconnect()


# ---- column types

TYPED = pi.Schema(
    {
        "y": (0, 10),
        "x": (-1, 1),
        "when": ("2020-01-01", "2021-01-01"),
        "g": pi.Factor(["u", "v"]),
        "o": pi.Factor(["u", "v", "else"], other="else"),
        "n": pi.Factor([1, 2]),
        "t": (0, 1),
    }
)
COLUMNS = {
    "floats": ("x", np.nan, lambda values: pd.Series(values, dtype=float)),
    "objects with None": ("x", None, lambda values: pd.Series(values, dtype=object)),
    "objects with pd.NA": ("x", pd.NA, lambda values: pd.Series(values, dtype=object)),
    "decimals with nan": ("x", Decimal("NaN"), lambda values: pd.Series(values, dtype=object)),
    "decimals with None": ("x", None, lambda values: pd.Series(values, dtype=object)),
    "Float64": ("x", pd.NA, lambda values: pd.Series(values, dtype="Float64")),
    "Float32": ("x", pd.NA, lambda values: pd.Series(values, dtype="Float32")),
    "boolean": ("t", pd.NA, lambda values: pd.Series(values, dtype="boolean")),
    "objects of booleans": ("t", None, lambda values: pd.Series(values, dtype=object)),
    "dates": ("when", pd.NaT, lambda values: pd.Series(pd.to_datetime(values))),
    "dates with a zone": ("when", pd.NaT, lambda values: pd.Series(pd.to_datetime(values, utc=True))),
    "dates as texts": ("when", None, lambda values: pd.Series(values, dtype=object)),
    "levels": ("g", None, lambda values: pd.Series(values, dtype=object)),
    "levels, nan": ("g", np.nan, lambda values: pd.Series(values, dtype=object)),
    "string": ("g", pd.NA, lambda values: pd.Series(values, dtype="string")),
    "category": ("g", None, lambda values: pd.Series(values, dtype="category")),
    "other levels": ("o", None, lambda values: pd.Series(values, dtype=object)),
    "levels of numbers": ("n", np.nan, lambda values: pd.Series(values, dtype=float)),
    "levels of Int64": ("n", pd.NA, lambda values: pd.Series(values, dtype="Int64")),
}
VALUES = {
    "x": lambda rng: float(rng.uniform(-1, 1)),
    "t": lambda rng: bool(rng.random() < 0.5),
    "when": lambda rng: f"2020-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}",
    "g": lambda rng: str(rng.choice(["u", "v"])),
    "o": lambda rng: str(rng.choice(["u", "v", "elsewhere"])),
    "n": lambda rng: int(rng.integers(1, 3)),
}


def typed(kind, n=60):
    """Return a response and a column of a type, one row in three without a value."""
    name, gap, column = COLUMNS[kind]
    rng = np.random.default_rng(2)
    y = rng.uniform(0, 10, n)
    values = [VALUES[name](rng) for _ in range(n)]
    if kind.startswith("decimals"):
        values = [Decimal(repr(value)) for value in values]
    values = [gap if place % 3 == 1 else value for place, value in enumerate(values)]
    return pd.DataFrame({"y": y, name: column(values)})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", COLUMNS)
def test_gaps_of_every_column_type_are_seen_alike(kind):
    frame = typed(kind)
    complete = frame[np.arange(len(frame)) % 3 != 1].reset_index(drop=True)
    name = COLUMNS[kind][0]
    formula = f"y ~ C({name})" if name in ("g", "o", "n") else f"y ~ {name}"
    fits = [
        pi.MomentOLS.from_formula(formula, rows, schema=TYPED, missing=missing).fit(epsilon=np.inf)
        for rows, missing in ((frame, "drop"), (complete, "raise"))
    ]
    assert [fit.nobs for fit in fits] == [40, 40]
    np.testing.assert_allclose(*(fit.params for fit in fits), rtol=1e-9, atol=1e-11)
    design = Design.from_formula(formula, TYPED)
    for schema in (TYPED, design):
        opened = OpenedRows(Rows(frame, missing="drop"), schema)
        expected = OpenedRows(Rows(complete), schema)
        assert len(opened) == 60
        np.testing.assert_array_equal(opened.matrix(design), expected.matrix(design))
        np.testing.assert_array_equal(opened.response(design), expected.response(design))


# ---- arrays

BOX = {"x1": (-1, 1), "x2": (-1, 1)}


def arrays(n=80):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))])
    y = X @ [0.2, 0.4, -0.3] + rng.normal(0, 0.1, n)
    X[::7, 1] = np.nan
    y[3::11] = np.nan
    return y, X, ~(np.isnan(X).any(axis=1) | np.isnan(y))


KEPT = {
    "arrays": lambda y, X: (y, X),
    "lists": lambda y, X: (y.tolist(), X.tolist()),
    "lists with None": lambda y, X: [
        pd.DataFrame(a).astype(object).where(lambda f: f.notna(), None).to_numpy().squeeze().tolist()
        for a in (y, X)
    ],
    "columns": lambda y, X: (pd.Series(y), pd.DataFrame(X, columns=["const", "x1", "x2"])),
    "nullable columns": lambda y, X: (
        pd.Series(y).astype("Float64"),
        pd.DataFrame(X, columns=["const", "x1", "x2"]).astype("Float64"),
    ),
    "columns of objects": lambda y, X: (
        pd.Series(y).astype(object).where(pd.notna(y), None),
        pd.DataFrame(X, columns=["const", "x1", "x2"]),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KEPT)
def test_arrays_of_every_kind(kind):
    y, X, complete = arrays()
    kept = tuple(KEPT[kind](y, X))
    design = Design.from_arrays(["const", "x1", "x2"], bounds=BOX, public=["const"], y_bounds=(-1, 1))
    mechanism = pi.Moments(design, missing="drop")
    totals = [
        mechanism.release(rows, epsilon=np.inf).arrays["moments"]
        for rows in (kept, (y[complete], X[complete]))
    ]
    np.testing.assert_array_equal(*totals)
    opened = OpenedRows(Rows(kept[1], kept[0], "drop"), design)
    assert (len(opened), len(opened.matrix(design))) == (80, complete.sum())
    np.testing.assert_array_equal(opened.matrix(design), X[complete])
    np.testing.assert_array_equal(opened.response(design), y[complete])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [pi.OLS, pi.MomentOLS])
def test_models_of_arrays_drop_rows(model):
    y, X, complete = arrays()
    frame = pd.DataFrame(X, columns=["const", "x1", "x2"])
    options = {"bounds": BOX, "y_bounds": (-1, 1)} | ({"public": ["const"]} if model is pi.MomentOLS else {})
    fits = [
        model(pd.Series(y)[flags], frame[flags], missing=missing, **options).fit(epsilon=np.inf)
        for flags, missing in ((np.full(80, True), "drop"), (complete, "raise"))
    ]
    np.testing.assert_allclose(*(fit.params for fit in fits), rtol=1e-9)
    np.testing.assert_allclose(*(fit.bse for fit in fits), rtol=1e-6)
    assert [fit.nobs for fit in fits] == [complete.sum()] * 2


# ---- tables that lack much


@pytest.mark.parametrize("kind", ["frame", "Parquet", "DuckDB", "site"])
@pytest.mark.parametrize("left", [0, 1, 300])
def test_sums_of_tables_with_no_one_or_all_rows_complete(kind, left, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    frame = table(share=0.0).assign(x=lambda rows: rows.x.fillna(0.5))
    frame.loc[frame.index >= left, ["x", "g"]] = np.nan, None
    design = Design.from_formula("y ~ x + C(g)", SCHEMA)
    if kind == "site":
        opened = OpenedRows(Rows(frame, missing="drop"), SCHEMA)
        assert (len(opened), len(opened.matrix(design)), len(opened.response(design))) == (300, left, left)
        return
    data = {
        "frame": lambda: frame,
        "Parquet": lambda: written(frame, tmp_path / "t.parquet"),
        "DuckDB": lambda: FURTHER_KINDS["relation that sums"](frame, tmp_path),
    }[kind]()
    mechanism = pi.Moments(SCHEMA, "y ~ x + C(g)", missing="drop")
    release = mechanism.release(data, mu=1e6, rng=0)
    assert release.nobs == 300
    assert release.arrays["moments"][0] == pytest.approx(left, abs=1e-3)
    if left == 0:
        assert np.abs(release.arrays["moments"]).max() < 1e-3
    passes = RowPasses(design, as_rows(data, "drop"))
    assert passes.n == 300


def test_values_of_incomplete_rows_are_checked_as_others_are(tmp_path):
    """A defect is reported whichever row has it, so that every kind of table refuses the same ones."""
    frame = table(share=0.0)
    frame.loc[7, ["x", "y"]] = np.nan, np.inf
    for data in (
        frame,
        written(frame, tmp_path / "t.parquet"),
        FURTHER_KINDS["relation that sums"](frame, tmp_path),
    ):
        with pytest.raises(SchemaError, match="'y' has infinite values"):
            pi.Moments(SCHEMA, "y ~ x", missing="drop").release(data, **SPEND)
    assert "y" in OpenedRows(Rows(frame, missing="drop"), SCHEMA).defects


SPOILT = {
    "infinite": [(7, "x", np.inf)],
    "undeclared": [(7, "g", "elsewhere")],
    "undeclared, and blanks": [(7, "g", "elsewhere"), (90, "g", " u")],
    "two columns": [(7, "g", "elsewhere"), (90, "x", np.inf)],
    "a text": [(7, "x", "0.5")],
    "a truth value": [(7, "x", True)],
    "a large integer": [(7, "x", 10**400)],
}
GAPS = {"none": [], "first": [7], "second": [90], "another": [3], "all": list(range(120))}


def refusal(call):
    try:
        call()
    except (SchemaError, ArgumentError) as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


@pytest.mark.parametrize("kind", ["frame", "Parquet", "CSV", "DuckDB", "site"])
@pytest.mark.parametrize("defect", SPOILT)
def test_no_message_depends_on_which_rows_are_complete(kind, defect, tmp_path):
    """Neither what is refused nor the text tells whether the row with the defect lacks another value."""
    schema = pi.Schema(SCHEMA.columns | {"g": ["u", "v", "w"]})
    design = Design.from_formula("y ~ x + q + C(g)", schema)
    refusals = {}
    for name, gaps in GAPS.items():
        frame = table(120, share=0.0).assign(g=list("uvw") * 40, x=0.5)
        for row, column, value in SPOILT[defect]:
            frame[column] = frame[column].astype(object)
            frame.loc[row, column] = value
        frame.loc[gaps, "q"] = np.nan
        if kind in ("Parquet", "DuckDB") and defect.startswith("a "):
            pytest.skip("columns of these files have one type")
        if kind != "frame" and kind != "site":
            frame = frame.infer_objects()
        data = {
            "frame": lambda frame=frame: frame,
            "Parquet": lambda frame=frame: written(frame, tmp_path / "t.parquet"),
            "CSV": lambda frame=frame: KINDS["CSV file"](frame, tmp_path),
            "DuckDB": lambda frame=frame: FURTHER_KINDS["relation that sums"](frame, tmp_path),
            "site": lambda frame=frame: frame,
        }[kind]()
        if kind == "site":
            refusals[name] = refusal(lambda data=data: OpenedRows(Rows(data, missing="drop"), design))
        else:
            mechanism = pi.Moments(design, missing="drop")
            refusals[name] = refusal(lambda data=data, of=mechanism: of.release(data, **SPEND))
    assert refusals["none"] != "accepted" or (kind, defect) == ("CSV", "a text")
    assert len(set(refusals.values())) == 1, refusals


ARRAY_DEFECTS = {
    "infinite": lambda X, y: X.__setitem__((7, 1), np.inf),
    "infinite response": lambda X, y: y.__setitem__(7, np.inf),
    "both": lambda X, y: (X.__setitem__((7, 1), np.inf), y.__setitem__(50, np.inf)),
    "constant": lambda X, y: X.__setitem__((7, 0), 2.0),
    "a text": lambda X, y: X.__setitem__((7, 1), "0.5"),
    "a text in the response": lambda X, y: y.__setitem__(7, "high"),
    "a truth value": lambda X, y: X.__setitem__((7, 1), True),
    "two dimensions": None,
}


@pytest.mark.parametrize("defect", ARRAY_DEFECTS)
@pytest.mark.parametrize("framed", [False, True], ids=["array", "frame"])
def test_no_message_about_arrays_depends_on_which_rows_are_complete(framed, defect):
    design = Design.from_arrays(["const", "x1", "x2"], bounds=BOX, public=["const"], y_bounds=(-1, 1))
    refusals, of_sites = {}, {}
    for name, gaps in {"none": [], "first": [7], "second": [50], "all": list(range(80))}.items():
        X, y = np.full((80, 3), 0.5), np.zeros(80)
        X[:, 0] = 1.0
        if defect.startswith("a "):
            X, y = X.astype(object), y.astype(object)
        if defect == "two dimensions":
            y = y[:, None]
        else:
            ARRAY_DEFECTS[defect](X, y)
        X[gaps, 2] = np.nan
        rows = pd.DataFrame(X, columns=["const", "x1", "x2"]) if framed else X
        mechanism = pi.Moments(design, missing="drop")
        refusals[name] = refusal(lambda rows=rows, y=y, of=mechanism: of.release((y, rows), **SPEND))
        of_sites[name] = refusal(lambda rows=rows, y=y: OpenedRows(Rows(rows, y, "drop"), design))
    assert "accepted" not in refusals.values()
    assert len(set(refusals.values())) == len(set(of_sites.values())) == 1, (refusals, of_sites)


def with_marks(values, mark):
    """Return numbers as objects, with a mark in the place of nan."""
    objects = values.astype(object)
    objects[np.isnan(values)] = mark
    return objects


ARRAY_KINDS = {
    "lists with None": lambda values: with_marks(values, None).tolist(),
    "lists with NA": lambda values: with_marks(values, pd.NA).tolist(),
    "objects with NA": lambda values: with_marks(values, pd.NA),
}


@pytest.mark.parametrize("kind", ARRAY_KINDS)
def test_lists_and_objects_are_read_whichever_mark_their_gaps_have(kind):
    design = Design.from_arrays(["const", "x1", "x2"], bounds=BOX, public=["const"], y_bounds=(-1, 1))
    y, X, complete = arrays()
    released = pi.Moments(design, missing="drop").release((y, X), **SPEND).arrays["moments"]
    other = ARRAY_KINDS[kind](y), ARRAY_KINDS[kind](X)
    of_kind = pi.Moments(design, missing="drop").release(other, **SPEND).arrays["moments"]
    np.testing.assert_array_equal(of_kind, released)
    for flags in (complete, np.full(len(y), True)):
        rows = Rows(ARRAY_KINDS[kind](X[flags]), ARRAY_KINDS[kind](y[flags]), "drop")
        np.testing.assert_array_equal(OpenedRows(rows, design).matrix(design), X[complete])


# ---- refusals


def test_what_needs_every_row_refuses_to_drop_some():
    frame = table()
    rows = Rows(frame, missing="drop")
    assert not rows.ordered
    design = Design.from_formula("y ~ x", SCHEMA)
    with pytest.raises(NotAvailableError, match="one message per row"):
        encode(design, rows)
    with pytest.raises(ArgumentError, match="is for sums over rows"):
        design.released(frame, missing="drop")
    with pytest.raises(ArgumentError, match="is for sums over rows"):
        design.response_values(frame, missing="drop")
    with pytest.raises(ArgumentError, match="pass missing='drop' to both"):
        pi.Moments(SCHEMA, "y ~ x").release(rows, **SPEND)
    with pytest.raises(ArgumentError, match="pass missing='drop' to both"):
        pi.Moments(SCHEMA, "y ~ x", missing="drop").release(Rows(frame), **SPEND)
