"""Sums made inside a database are those of blocks, to the bit, and so is what they refuse."""

import hashlib
import pickle
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import pushing, tables

import privinf as pi
from privinf.errors import (
    ArgumentError,
    BudgetExceededError,
    NotAvailableError,
    PrivinfError,
    SchemaError,
    StorageError,
)
from privinf.mechanisms import pushdown
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.distribution import OpenColumns
from privinf.mechanisms.passes import RowPasses
from privinf.mechanisms.pushdown.databases import DIALECTS, PushedSource, first_double, query
from privinf.mechanisms.pushdown.expressions import Expressions
from privinf.mechanisms.pushdown.queries import TableQuery
from privinf.mechanisms.rows import as_rows
from privinf.mechanisms.samples import ColumnBins, SampleQuery, SampleTotals
from privinf.mechanisms.statistics.gridded import ColumnGrid
from privinf.mechanisms.statistics.samples import COMPLETE_KINDS, SAMPLE_STATISTICS

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
CASES = range(30)
SCHEMA = pi.Schema({"y": (0, 10), "x": (-1, 2), "w": (-3, 1e7), "g": ["a'", "b", "c"], "k": [1, 2, 5]})


def late(cases):
    """Return cases that run in `make audit`."""
    return [pytest.param(case, marks=pytest.mark.audit) for case in cases]


@pytest.fixture(scope="module")
def database():
    return duckdb.connect()


@pytest.fixture(scope="module")
def server():
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if pushing.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        pushing.postgres(Path(name)) as where,
    ):
        connection = ibis.postgres.connect(**where)
        yield connection
        connection.disconnect()


def in_duckdb(database, case):
    database.execute(case.create(0))
    return pi.open_rows(database.sql("select * from held"), push_down=True)


def in_postgres(server, case):
    server.raw_sql(case.create(1)).connection.commit()
    return pi.open_rows(server.table("held"), push_down=True)


def table(n=500):
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "y": rng.normal(3, 3, n),
            "x": rng.normal(0, 1, n),
            "w": rng.integers(-5, 9, n),
            "g": rng.choice(["a'", "b", "c"], n),
            "k": rng.choice([1, 2, 5], n),
        }
    )


def of_table(database, frame):
    database.register("frame", frame)
    return pi.open_rows(database.sql("select * from frame"), push_down=True)


@pytest.mark.parametrize("seed", [*CASES[:3], *late(CASES[3:])])
def test_integers_of_duckdb_are_those_of_numpy(database, seed):
    case = pushing.random_case(seed)
    assert pushing.told(case, in_duckdb(database, case)) == pushing.told(case, case.arrow().to_pandas())


@pytest.mark.audit
def test_integers_of_postgres_are_those_of_numpy(server):
    for seed in CASES:
        case = pushing.random_case(seed)
        assert pushing.told(case, in_postgres(server, case)) == pushing.told(
            case, case.arrow().to_pandas()
        ), seed


@pytest.mark.parametrize("seed", [*CASES[:1], *late(CASES[1:])])
def test_integers_of_fits_in_duckdb_are_those_of_numpy(database, seed):
    case = pushing.random_case(seed)
    expected = pushing.told_of_fits(case, case.arrow().to_pandas())
    assert pushing.told_of_fits(case, in_duckdb(database, case)) == expected


@pytest.mark.audit
def test_integers_of_fits_in_postgres_are_those_of_numpy(server):
    for seed in CASES:
        case = pushing.random_case(seed)
        expected = pushing.told_of_fits(case, case.arrow().to_pandas())
        assert pushing.told_of_fits(case, in_postgres(server, case)) == expected, seed


@pytest.mark.audit
def test_a_query_that_is_off_in_one_step_is_caught(database, monkeypatch):
    """Mutants: a place of a table, a sign, a floor, an end of a step."""
    cases = [case for case in map(pushing.random_case, CASES) if case.missing != "raise"][:5]
    expected = [pushing.told_of_fits(case, case.arrow().to_pandas()) for case in cases]

    def differ():
        pairs = zip(cases, expected, strict=True)
        return any(pushing.told_of_fits(case, in_duckdb(database, case)) != one for case, one in pairs)

    assert not differ()
    above = replace(DIALECTS["duckdb"], table="(CAST('[{0}]' AS DOUBLE[]))[{1}]")
    parts = {
        "copysign": lambda self, a, b: self.absolute(a),
        "floor": lambda self, a: self.node(("ROUND(", a, ")"), a.low, a.high, whole=a),
        "less_equal": lambda self, a, b: self.less(a, b),
    }
    with monkeypatch.context() as patch:
        patch.setitem(DIALECTS, "duckdb", above)
        assert differ()
    for name, wrong in parts.items():
        with monkeypatch.context() as patch:
            patch.setattr(Expressions, name, wrong)
            assert differ(), name


def test_random_tables_are_summed_and_refused_in_every_way():
    found = [pushing.told(case, case.arrow().to_pandas()) for case in map(pushing.random_case, CASES)]
    refused = {one[1] for one in found if isinstance(one, tuple)}
    assert sum(isinstance(one, list) for one in found) >= 10
    for why in ("missing", "infinite", "outside its declared levels"):
        assert any(why in one for one in refused), why


@pytest.mark.audit
def test_a_clamp_by_least_and_a_dropped_branch_of_nan_are_caught(database, monkeypatch):
    """Mutants: nan is the largest number to DuckDB, so both put a missing value at the upper end."""

    cases = [case for case in map(pushing.random_case, CASES) if case.missing != "raise"][:3]
    expected = [pushing.told(case, case.arrow().to_pandas()) for case in cases]

    def differ():
        return [pushing.told(case, in_duckdb(database, case)) for case in cases] != expected

    assert not differ()
    with monkeypatch.context() as patch:
        patch.setattr(TableQuery, "_gaps", lambda self, value, instead: [])
        assert differ()

    def least(self, name, grid, low, high):
        _, *ends = original(self, name, grid, low, high)
        value, number = self._value(name), self.dialect.number
        inner = f"least(greatest({value}, {number(low)}), {number(high)})"
        return f"FLOOR({inner} * {number(grid.factor[0])} + {number(grid.shift[0])})", *ends

    original = TableQuery._of_number
    with monkeypatch.context() as patch:
        patch.setattr(TableQuery, "_of_number", least)
        assert differ()


@pytest.mark.audit
@pytest.mark.parametrize("cov_type", ["nonrobust", "HC0"])
@pytest.mark.parametrize("formula", ["y ~ x + g", "y ~ 0 + x + w", "k ~ x + C(g, Sum)", "y ~ g*C(k) + k"])
def test_a_release_has_the_digest_of_blocks(database, formula, cov_type):
    frame = table()

    def digest(data):
        release = pi.Moments(SCHEMA, formula).release(data, mu=1.0, rng=5, cov_type=cov_type)
        parts = (array.tobytes() for _, array in sorted(release.arrays.items()))
        return hashlib.sha256(b"".join(parts)).hexdigest()

    assert digest(of_table(database, frame)) == digest(frame)


@pytest.mark.audit
def test_a_model_takes_a_table_of_a_database(database):
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    frame = table()
    held = ibis.duckdb.connect().create_table("held", tables.arrow(frame))
    fits = [
        pi.MomentOLS.from_formula("y ~ x + g", data, schema=SCHEMA).fit(epsilon=1.0, delta=1e-6, rng=2)
        for data in (
            frame,
            pi.open_rows(held, push_down=True),
            pi.open_rows(held.filter(ibis._.y > -1e9), push_down=True),
        )
    ]
    for fit in fits[1:]:
        assert fit.params.equals(fits[0].params)
        assert fit.bse.equals(fits[0].bse)


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
@pytest.mark.parametrize(("model", "response"), [("OLS", "y"), ("Logit", "b"), ("Poisson", "c")])
def test_a_fit_by_queries_is_that_of_blocks(database, model, response):
    frame = table(2000)
    frame["b"] = (frame["y"] > 3.0).astype(int)
    frame["c"] = frame["w"].clip(lower=0)
    schema = SCHEMA.fill({"b": (0, 1), "c": (0, 9)})
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    held = ibis.duckdb.connect().create_table("held", tables.arrow(frame))
    for spent in ({}, {"cov_type": "nonrobust"}):
        fits = [
            getattr(pi, model)
            .from_formula(f"{response} ~ x + g + C(k)", data, schema=schema)
            .fit(mu=3.0, rng=4, **spent)
            for data in (pi.open_rows(held), pi.open_rows(held, push_down=True), of_table(database, frame))
        ]
        for fit in fits[1:]:
            assert fit.params.equals(fits[0].params)
            assert fit.bse.equals(fits[0].bse)
    assert "Passes over the table" in str(fits[1].summary())


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
@pytest.mark.parametrize("role", ["offset", "exposure", "weights"])
def test_columns_without_coefficients_go_down_too(database, role):
    frame = table(1500)
    frame["c"] = frame["w"].clip(lower=0)
    frame["o"] = 1.0 + (np.arange(1500) % 7) / 7.0
    schema = SCHEMA.fill({"c": (0, 9), "o": pi.Numeric(1, 2, public=True)})
    fits = [
        pi.Poisson.from_formula("c ~ x", data, schema=schema, **{role: "o"}).fit(mu=3.0, rng=4)
        for data in (frame, of_table(database, frame))
    ]
    assert fits[1].params.equals(fits[0].params)
    assert fits[1].bse.equals(fits[0].bse)


def test_a_fit_charges_after_its_first_query_and_stops_at_the_limit(database):
    data, ledger = of_table(database, table()), pi.Ledger(pi.Budget(mu=0.5))
    model = pi.OLS.from_formula("y ~ x", data, schema=SCHEMA, ledger=ledger)
    with pytest.raises(BudgetExceededError):
        model.fit(mu=0.6)
    assert not ledger.entries
    assert model.fit(mu=0.4).nobs == 500
    with pytest.raises(BudgetExceededError):
        model.fit(mu=0.4)


def test_what_is_wrong_in_a_table_is_told_before_a_charge(database):
    frame, ledger = table(), pi.Ledger()
    frame.loc[3, "x"] = np.inf
    with pytest.raises(SchemaError, match="infinite"):
        pi.OLS.from_formula("y ~ x", of_table(database, frame), schema=SCHEMA, ledger=ledger).fit(mu=1.0)
    assert not ledger.entries


NOT_FINITE = ["NULL", "CAST('nan' AS {})", "CAST('inf' AS {})", "CAST('-inf' AS {})"]


def not_finite(engine, value, where, run):
    """Make a table of 60 rows, of which one has this value in a column."""
    double = DIALECTS[engine].double
    run(f"DROP TABLE IF EXISTS held; CREATE TABLE held (y {double}, x {double}, w {double})")
    for place in range(60):
        row = [str(place % 7), str(place % 5 - 2), str(place % 3 * 1e6)]
        if place == 17:
            row["yxw".index(where)] = value.format(double)
        run(f"INSERT INTO held VALUES ({', '.join(row)})")


@pytest.mark.audit
@pytest.mark.parametrize("engine", ["duckdb", "postgres"])
def test_a_number_that_is_not_finite_leaves_no_sum(request, database, engine):
    """One query has the sums and what is wrong: it is told whatever the value, the column and its bounds."""
    schema = pi.Schema({"y": (0, 10), "x": (-1, 1), "w": (-3, 1e7)})
    ledger, model = pi.Ledger(), pi.Moments(schema, "y ~ x + w")
    if engine == "duckdb":
        run, table = database.execute, lambda: database.sql("select * from held")
    else:
        held = request.getfixturevalue("server")
        run, table = lambda text: held.raw_sql(text).connection.commit(), lambda: held.table("held")
    for where in "yxw":
        for value, words in zip(NOT_FINITE, ["missing"] * 2 + ["infinite"] * 2, strict=True):
            not_finite(engine, value, where, run)
            with pytest.raises(SchemaError, match=rf"'{where}' .*{words}|{words}.*'{where}'"):
                model.release(pi.open_rows(table(), push_down=True), mu=0.5, ledger=ledger)
    assert not ledger.entries
    not_finite(engine, "1.0", "x", run)
    model.release(pi.open_rows(table(), push_down=True), mu=0.5, ledger=ledger)
    assert len(ledger.entries) == 1


def test_what_needs_rows_is_refused_before_a_charge(database, tmp_path):
    data, ledger = of_table(database, table()), pi.Ledger()
    ols = pi.OLS.from_formula("y ~ x", data, schema=SCHEMA, ledger=ledger)

    def refused(reason, make):
        with pytest.raises(NotAvailableError, match=reason):
            make()
        assert not ledger.entries

    def fit(formula, schema=SCHEMA, model=pi.MomentOLS, **options):
        spent = {"mu": 1.0} if "epsilon" not in options else {"epsilon": options.pop("epsilon")}
        return lambda: model.from_formula(formula, data, schema=schema, ledger=ledger, **options).fit(**spent)

    for model in (pi.OLS, pi.Poisson):
        refused("a fit without noise sums", fit("y ~ x", model=model, epsilon=np.inf))
        refused("leave push_down", fit("y ~ x + np.log(w + 10)", model=model))
    refused("adapt_bounds=", lambda: ols.fit(mu=1.0, adapt_bounds=True))
    refused("needs the rows", lambda: ols.fit(mu=1.0, checkpoint=str(tmp_path / "fit")))
    refused("No intervals", lambda: ols.fit(mu=1e-4))
    refused("too few rows, or too small a budget", lambda: ols.fit(mu=1e-4, intervals="optional"))
    for term in ("np.log(w + 10)", "x:w", "x:g", "I(x**2)"):
        refused("leave push_down", fit(f"y ~ {term}"))
    refused("or adds no noise", fit("y ~ x", epsilon=np.inf))
    times = pi.survival.KaplanMeier(
        "w", "y", data=data, schema=pi.Schema({"w": (0, 9), "y": (0, 1)}), ledger=ledger
    )
    refused("counts records by interval of time", lambda: times.fit(mu=1.0))
    public = SCHEMA.fill({"w": pi.Numeric(1, 9, public=True)})
    refused("needs the rows", fit("y ~ x + w", public))
    refused("observation weights", fit("y ~ x", public, weights="w"))
    refused("needs the rows", fit("y ~ x", pi.Schema({"y": (0, 10), "x": (-1, 2)}, unit="g", max_rows=400)))


def test_what_a_query_is_not_made_for_is_refused(database):
    """A radius far below the bounds, whose rows are shrunk first; more sums than a query returns."""
    data = of_table(database, table())
    with pytest.raises(NotAvailableError, match="16 times as wide as radius="):
        pi.Moments(SCHEMA, "y ~ x", radius=0.01).release(data, mu=1.0)
    names = [f"x{place}" for place in range(60)]
    schema = pi.Schema(dict.fromkeys(names, (-1, 1)))
    model = pi.Moments(schema, f"x0 ~ {' + '.join(names[1:])}")

    def run(layers, by):
        assert len(layers[-1]) == 1 + 60 + 60 * 61 // 2 + 60
        return [[100, *[0] * (len(layers[-1]) - 1)]]

    kinds = dict.fromkeys(names, "number")
    source = PushedSource("the table", kinds, DIALECTS["duckdb"], run)
    model.release(source, mu=1.0, cov_type="nonrobust")
    source = PushedSource("the table", kinds, DIALECTS["postgres"], run)
    with pytest.raises(NotAvailableError, match="sums, which are too many"):
        model.release(source, mu=1.0, cov_type="nonrobust")


def test_doors_refuse_what_has_no_database():
    with pytest.raises(ArgumentError, match="DuckDB relation or an ibis table"):
        pi.open_rows(table(), push_down=True)
    with pytest.raises(ArgumentError, match="spool= and progress="):
        pi.open_rows(table(), push_down=True, spool=True)
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    with pytest.raises(NotAvailableError, match="only for DuckDB and PostgreSQL"):
        pi.open_rows(ibis.polars.connect().create_table("held", tables.arrow(table())), push_down=True)


def test_a_query_that_fails_quotes_no_row(database):
    frame = table().astype({"x": object})
    frame["x"] = frame["x"].astype(str)
    frame.loc[7, "x"] = "4711.secret"
    database.register("frame", frame)
    data = pi.open_rows(database.sql("select y, cast(x as double) as x from frame"), push_down=True)
    with pytest.raises(StorageError, match="could not compute the sums") as caught:
        pi.MomentOLS.from_formula("y ~ x", data, schema=SCHEMA).fit(mu=1.0)
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_sums_are_not_pickled_and_not_shown(database):
    data = of_table(database, table())
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(data)
    assert "rows not shown" in repr(data)


def test_texts_are_compared_byte_by_byte(database):
    database.execute("drop table if exists held; create table held (y double, g varchar collate nocase)")
    database.execute("insert into held values (1, 'a'), (2, 'A'), (3, 'b')")
    schema = pi.Schema({"y": (0, 10), "g": ["a", "b"]})
    for push_down in (True, False):
        data = database.sql("select * from held")
        data = pi.open_rows(data, push_down=True) if push_down else data
        message = "outside its declared levels" if push_down else "only by upper and lower case"
        with pytest.raises(SchemaError, match=message):
            pi.MomentOLS.from_formula("y ~ g", data, schema=schema).fit(mu=1.0)


def test_an_empty_table_is_refused(database):
    with pytest.raises(pi.errors.AlignmentError, match="the table has no rows"):
        pi.MomentOLS.from_formula("y ~ x", of_table(database, table(0)), schema=SCHEMA).fit(mu=1.0)


# ---- means, tests and distributions

SAMPLES = (
    SampleQuery(kind="one sample", values=("x",)),
    SampleQuery(kind="groups", values=("w",), by=("g",)),
    SampleQuery(kind="cells", values=(), by=("g", "k")),
    SampleQuery(kind="cells", values=(), by=("g", "x"), bins=(ColumnBins(name="x", cuts=(0.0, 1.0)),)),
    SampleQuery(kind="pairs", values=("x", "y")),
)


def cuts_of(declared):
    """Return cuts between the bounds of a column, and beyond them."""
    inner = np.linspace(declared.low, declared.high, 9)
    return tuple(np.unique(np.concatenate([inner, [0.0, 5e-324, 1e300]])).tolist())


def told_of_samples(case, data):
    """Return the un-noised integers of sums over samples, and counts of cells, or how they are refused."""
    numbers = [name for name in case.schema.columns if name.startswith("x")]
    queries = [
        SampleQuery(kind="one sample", values=(numbers[0],)),
        SampleQuery(kind="groups", values=(numbers[-1],), by=("g",)),
        SampleQuery(kind="cells", values=(), by=("g", "k")),
        SampleQuery(kind="pairs", values=(numbers[0], numbers[-1])),
        *(
            SampleQuery(
                kind="cells",
                by=("k", name, "g"),
                bins=(ColumnBins(name=name, cuts=cuts_of(case.schema[name])),),
            )
            for name in numbers
        ),
    ]
    if case.missing == "drop":
        queries = [replace(sample, kind=COMPLETE_KINDS[sample.kind]) for sample in queries]
    found = []
    for sample in queries:
        weighted = SAMPLE_STATISTICS[sample.kind].l2
        try:
            sums, n = SampleTotals(case.schema, sample).over(
                as_rows(data, case.missing), weighted, exact=True
            )
            found.append((sums._total.integers().tolist(), n))
        except PrivinfError as problem:
            found.append((type(problem).__name__, str(problem)))
    for name in numbers:
        low, high = case.schema[name].low, case.schema[name].high
        edges = np.unique(np.concatenate([np.linspace(low, high, 40), [0.0, 5e-324, 1e300]]))
        try:
            held = OpenColumns(as_rows(data, case.missing), [name], schema=case.schema)
            found.append((held.cells({name: edges})[name].counts.tolist(), held.n))
        except PrivinfError as problem:
            found.append((type(problem).__name__, str(problem)))
    return found


@pytest.mark.audit
@pytest.mark.parametrize("seed", CASES)
def test_sums_of_samples_in_duckdb_are_those_of_numpy(database, seed):
    case = pushing.random_case(seed)
    expected = told_of_samples(case, case.arrow().to_pandas())
    assert told_of_samples(case, in_duckdb(database, case)) == expected


def dropping(case):
    """Return a case whose rows with missing values are dropped, and its answers for complete rows."""
    return replace(case, missing="drop")


@pytest.mark.parametrize("seed", [*CASES[:4], *late(CASES[4:])])
def test_sums_of_complete_samples_in_duckdb_are_those_of_numpy(database, seed):
    case = dropping(pushing.random_case(seed))
    expected = told_of_samples(case, case.arrow().to_pandas())
    assert told_of_samples(case, in_duckdb(database, case)) == expected


@pytest.mark.audit
def test_a_dropped_row_that_is_off_is_caught(database, monkeypatch):
    """Mutants: a row that adds its entries though it lacks a value, and one that is in no cell."""
    cases = [
        dropping(case)
        for case in map(pushing.random_case, CASES)
        if any(None in v for v in case.columns.values())
    ][:3]
    expected = [told_of_samples(case, case.arrow().to_pandas()) for case in cases]

    def differ():
        return [told_of_samples(case, in_duckdb(database, case)) for case in cases] != expected

    assert not differ()
    held = TableQuery.where_complete
    for wrong in (lambda self, text, gap: text, lambda self, text, gap: held(self, text, 0)):
        with monkeypatch.context() as patch:
            patch.setattr(TableQuery, "where_complete", wrong)
            assert differ()


@pytest.mark.audit
def test_sums_of_samples_in_postgres_are_those_of_numpy(server):
    for seed in CASES:
        case = pushing.random_case(seed)
        expected = told_of_samples(case, case.arrow().to_pandas())
        assert told_of_samples(case, in_postgres(server, case)) == expected, seed


def test_a_cell_or_a_step_that_is_off_is_caught(database, monkeypatch):
    """Mutants: gaps in no level, an edge in the cell above it, the ends of steps not held."""
    cases = [case for case in map(pushing.random_case, CASES) if case.missing != "raise"][:3]
    expected = [told_of_samples(case, case.arrow().to_pandas()) for case in cases]

    def differ():
        return [told_of_samples(case, in_duckdb(database, case)) for case in cases] != expected

    assert not differ()
    held, cases_of = TableQuery._level_test, TableQuery._cases
    mutants = {
        (TableQuery, "_level_test"): lambda self, name, place: held(self, name, max(place, 1)),
        (TableQuery, "_cases"): lambda self, value, low, high, inside, gap, below, above: cases_of(
            self, value, low, high, inside, gap, above, above
        ),
        (TableQuery, "_gaps"): lambda self, value, instead: [],
        (pushdown, "_ladder"): lambda dialect, edges, start=0: "0",
    }
    for (owner, name), wrong in mutants.items():
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, wrong)
            assert differ(), name


@pytest.mark.audit
def test_tests_over_a_database_are_those_over_its_rows(database):
    frame = table(3000)
    frame["b"] = (frame["y"] > 3.0).astype(int)
    schema, spend = SCHEMA.fill({"b": (0, 1)}), {"mu": 1.0, "rng": 3}
    asked = [
        lambda **k: pi.stats.mean("x", **k),
        lambda **k: pi.stats.ttest_1samp("x", 0.0, clip="auto", **k),
        lambda **k: pi.stats.anova_oneway("y", "g", **k),
        lambda **k: pi.stats.proportion_confint("b", **k),
        lambda **k: pi.stats.chi2_contingency("g", "k", **k),
        lambda **k: pi.stats.pearsonr("x", "y", **k),
        lambda **k: pi.stats.quantile("w", [0.25, 0.5], **k),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for test in asked:
            told = [
                str(test(data=data, schema=schema, **spend))
                for data in (
                    frame,
                    of_table(database, frame),
                    pi.open_rows(database.sql("select * from frame")),
                )
            ]
            assert told[0] == told[1] == told[2]
        found = [pi.find_bounds(data, ["x", "y"], **spend) for data in (frame, of_table(database, frame))]
    assert found[0] == found[1]
    ledger = pi.Ledger()
    for refused in (
        lambda data: pi.stats.wilcoxon("x", data=data, schema=schema, mu=1.0, ledger=ledger),
        lambda data: pi.stats.mean("x", data=data, schema=schema, epsilon=np.inf, ledger=ledger),
        lambda data: pi.find_bounds(data, ["g"], epsilon=1.0, delta=1e-6, ledger=ledger),
    ):
        with pytest.raises(NotAvailableError, match="leave push_down"):
            refused(of_table(database, frame))
    assert not ledger.entries


@pytest.mark.audit
@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_queries_are_of_their_dialect(name):
    """Compiled, and run in DuckDB and PostgreSQL alone: texts that parse, without LEAST or GREATEST."""
    sqlglot = pytest.importorskip("sqlglot", reason="sqlglot is not installed")
    asked, kinds = (
        [],
        {"y": "number", "x": "decimal", "w": "number", "g": "text", "k": "number", "b": "truth"},
    )

    class Stop(Exception):
        pass

    def run(layers, by):
        asked.append((layers, by))
        raise Stop

    def parsed():
        text = query(DIALECTS[name], "SELECT * FROM held", *asked.pop())
        (tree,) = sqlglot.parse(text, read=name)
        used = {type(node).__name__ for node in tree.walk()}
        assert not used & {"Least", "Greatest", "Ln", "Exp", "Pow", "Command"}
        return used | {"wide" for wide in ("DECIMAL", "NUMERIC") if wide in text}

    source = PushedSource("the table", kinds, DIALECTS[name], run)
    schema = SCHEMA.fill({"b": [True, False]})
    model = pi.Moments(schema, "y ~ x + w + g:b", radius=0.9)
    passes = RowPasses(model.design, as_rows(source))
    reach, q2 = passes.public_sizes()
    for one in model._queries(1.0, reach, q2, robust=True):
        with pytest.raises(StorageError):
            one.over(passes, exact=True)
        assert {"Case", "Floor", "Sum"} <= parsed()
    passes = RowPasses(model.design, as_rows(source), stream=1)
    for fit in ("whitened.meat", "whitened.counts", "curved.step"):
        args = pushing.fit_args(fit, model.design, np.random.default_rng(3)) | {"bits": 20}
        with pytest.raises(StorageError):
            passes.push([(SITE_OPS[fit], args)])
        assert {"Case", "Floor", "Sum"} <= parsed()
    for sample in SAMPLES:
        with pytest.raises(StorageError):
            SampleTotals(schema, sample).over(as_rows(source), SAMPLE_STATISTICS[sample.kind].l2, exact=True)
        assert {"Case", "Sum", "Group"} <= parsed()
    with pytest.raises(StorageError):
        OpenColumns(source, ["x"], schema=schema).cells({"x": np.linspace(-1.0, 1.0, 40)})
    assert {"Case", "Count", "Group"} <= parsed()


def test_products_too_small_for_a_double_are_known():
    for factor in (0.9, 0.3, 1e-5, 2.0**-30, 7e-200):
        least = first_double(lambda number, factor=factor: number * factor > 0.0, 0.0)
        assert least * factor > 0.0 == np.nextafter(least, 0.0) * factor


BEYOND = [
    (21327.2, 22030.9, -0.0127, 100.0, 1e-3),
    (-3.27766, -3.27762, 0.0, 100.0, 1e-3),
    (-0.0832, 3573.72, -1208.3, 1e-4, 1e-3),
    (-2.83, 7836.9, 3917.0, 0.01, 1.0),
    (-1e25, 1e25, 0.0, 1e-3, 1.0),
    (0.3, 0.7, 0.5, 0.2, 1e9),
    (-1.0, 1.0, 0.0, 1.0, 1.0),
]


@pytest.mark.parametrize("drawn", BEYOND)
def test_bounds_beyond_a_grid_are_those_of_numpy_at_once(database, drawn):
    low, high, center, scale, norm = drawn
    grid = ColumnGrid.from_bounds(*(np.array([one]) for one in (low, high, center, scale)), norm)
    middle = 0.5 * low + 0.5 * high
    x = np.array([low, high, middle, 0.0, -1.0, 1e9, -1e9, np.nextafter(low, -9e9), np.nextafter(high, 9e9)])
    table_query = TableQuery(of_table(database, pd.DataFrame({"x": x})), None, ["x"], "raise")
    text, least, most = table_query.sample_steps("x", grid, (low, high))
    found = database.sql(f"select cast({text} as bigint) from (select x as _v0 from frame)").fetchall()
    expected = grid.put(np.clip(x, low, high)[:, None], np.empty((len(x), 1)), finite=True)[:, 0]
    assert [one for (one,) in found] == expected.tolist()
    assert (least, most) == (expected.min(), expected.max())
