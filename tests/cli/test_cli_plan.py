"""``privinf plan``: columns from options and files, open numbers chosen, mistakes refused."""

from __future__ import annotations

import json

import pytest

import privinf as pi
from privinf.mechanisms.blocks import roster_digest


def test_a_plan_from_options_and_roster(study):
    result = study.plan("--roster", "ids.csv", "--party-epsilon", "c=20", "--label", "glucose")
    assert result.exit_code == 0, result.output
    plan = pi.MixingPlan.load("plan.json")
    assert (plan.n, plan.id, plan.ids_sha256) == (3000, "patient", roster_digest(range(1000, 4000)))
    assert {name: party.epsilon for name, party in plan.parties.items()} == {"a": 40.0, "b": 40.0, "c": 20.0}
    assert plan.parties["a"].schema == pi.Schema({"age": (18, 90), "sex": pi.Factor(["f", "m"])})
    assert f"digest of the plan: {plan.digest}" in result.output
    assert "identified" in result.output
    assert "must be those in the --roster file" in result.output
    again = study.run("plan", "check", "plan.json")
    assert again.exit_code == 0
    assert again.output.strip() in result.output


def test_options_reach_the_plan(study):
    options = ["--n", "5000", "--k", "77", "--kind", "signs", "--seed", "9", "--no-intercept"]
    assert study.plan(*options, "--diameter", "largest", "--calibration", "classic").exit_code == 0
    plan = pi.MixingPlan.load("plan.json")
    assert (plan.n, plan.k, plan.kind, plan.seed, plan.intercept) == (5000, 77, "signs", 9, False)
    assert (plan.diameter, plan.calibration, plan.ids_sha256) == ("largest", "classic", None)
    assert study.plan("--n", "5000", "--method", "gaussian-rows", out="rows.json").exit_code == 0
    assert pi.MixingPlan.load("rows.json").method == "gaussian-rows"
    assert study.plan("--n", "5000", "--rsquared", "0.2", out="low.json").exit_code == 0
    assert study.plan("--n", "5000", "--rsquared", "0.9", out="high.json").exit_code == 0
    assert pi.MixingPlan.load("low.json").k != pi.MixingPlan.load("high.json").k
    seeds = {pi.MixingPlan.load(name).seed for name in ("rows.json", "low.json", "high.json")}
    assert len(seeds) == 3


CSV = "party,column,low,high,levels\na,age,18,90,\na,sex,,,f|m\nb,bmi,15,60,\n"
JSON = {"a": {"age": [18, 90], "sex": ["f", "m"]}, "b": {"bmi": {"low": 15, "high": 60}}}


@pytest.mark.parametrize(
    ("name", "text"),
    [("c.csv", CSV), ("c.csv", CSV.replace(",", " , ") + "\n,,,,\n"), ("c.json", json.dumps(JSON))],
)
def test_columns_from_a_file(name, text, study):
    (study.folder / name).write_text(text)
    base = ["plan", "new", "--n", "3000", "--epsilon", "1", "--delta", "1e-6", "--columns", name]
    result = study.run(*base, "--column", "c:glucose:50:250", "--out", "plan.json")
    assert result.exit_code == 0, result.output
    plan = pi.MixingPlan.load("plan.json")
    expected = {"a": {"age": (18, 90), "sex": pi.Factor(["f", "m"])}, "b": {"bmi": (15, 60)}}
    expected["c"] = {"glucose": (50, 250)}
    assert {name: party.schema for name, party in plan.parties.items()} == {
        name: pi.Schema(columns) for name, columns in expected.items()
    }
    assert "no id column" in result.output


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("c.csv", "party,name,low,high\na,age,1,2\n", "must be the header"),
        ("c.csv", "party,column,low,high\na,age,1,\n", "line 2: the bounds low and high must be numbers"),
        ("c.csv", "party,column,low,high\na,age,2,1\n", "line 2: bounds (2, 1) must be increasing"),
        (
            "c.csv",
            "party,column,low,high,levels\na,age,1,2,x|y\n",
            "either both 'low' and 'high', or 'levels'",
        ),
        ("c.csv", "party,column,low,high,levels\na,sex,,,f\n", "at least two levels"),
        ("c.csv", "party,column,low,high\n,age,1,2\n", "fill in both the party and the column"),
        ("c.csv", "party,column,low,high\na,age,1,2\na,age,1,2\n", "declared twice"),
        ("c.csv", "party,column,low,high\na,age,1,2\nb,age,1,2\n", "belongs to party 'a' and to 'b'"),
        ("c.csv", "party,column\n", "the plan has no columns"),
        ("c.csv", "age,low,high\n\x00", "must be the header"),
        ("c.json", "{", "not valid JSON (line 1)"),
        ("c.json", "[]", 'must have the form {"party"'),
        ("c.json", '{"a": {"age": 3}}', "column 'age': the file must have the form {"),
        ("c.json", '{"a": {"age": [true, 3]}}', "all strings, all numbers or all booleans"),
    ],
)
def test_bad_column_files_are_refused(name, text, word, study):
    (study.folder / name).write_text(text)
    base = ["plan", "new", "--n", "3000", "--epsilon", "1", "--delta", "1e-6", "--columns", name]
    study.refused(study.run(*base, "--out", "plan.json"), word)
    assert "plan.json" not in study.files()


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ([], "--n, or --roster"),
        (["--n", "0"], "n=0"),
        (["--n", "3000", "--k", "4000"], "at most n=3000"),
        (["--n", "3000", "--k", "2"], "too few for"),
        (["--n", "3000", "--k", "many"], "an integer, auto or paper"),
        (["--n", "3000", "--roster", "ids.csv", "--n", "2999"], "differs from the number of people"),
        (["--n", "3000", "--column", "a:x"], "PARTY:COLUMN:LOW:HIGH"),
        (["--n", "3000", "--column", "a:patient:0:1"], "id column"),
        (["--n", "3000", "--column", "b:x:0:y"], "must be numbers"),
        (["--n", "3000", "--party-epsilon", "z=1"], "PARTY=EPSILON"),
        (["--n", "3000", "--party-epsilon", "a=x"], "must be a number"),
        (["--n", "3000", "--epsilon", "-1"], "epsilon"),
        (["--n", "3000", "--seed", "-1"], "seed"),
        (["--n", "3000", "--kind", "fast"], "countsketch"),
        (["--n", "3000", "--label", "height"], "not a released column"),
        (["--n", "3000", "--roster", "a.npz"], "does not exist"),
        (["--n", "3000", "--roster", "b.parquet", "--id", "person"], "lacks the column 'person'"),
        (["--n", "3000", "--out", "missing/plan.json"], "does not exist"),
        (["--n", "3000", "--out", "a.csv"], "--overwrite"),
    ],
)
def test_bad_plans_are_refused_and_nothing_is_written(extra, word, study):
    before = study.files()
    study.refused(study.plan(*extra), word)
    assert study.files() == before


def test_a_roster_needs_the_id_and_plans_are_overwritten_on_demand(planned):
    base = ["--column", "a:x:0:1", "--epsilon", "1", "--delta", "1e-6", "--out", "plan.json"]
    planned.refused(planned.run("plan", "new", *base, "--roster", "ids.csv", "--overwrite"), "--id")
    assert pi.MixingPlan.load("plan.json").seed == 3
    assert planned.run("plan", "new", *base, "--n", "100", "--seed", "4", "--overwrite").exit_code == 0
    assert pi.MixingPlan.load("plan.json").seed == 4


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "privinf-mixing-plan", "version": 9}'])
def test_plan_check_of_something_else(text, study):
    (study.folder / "plan.json").write_text(text)
    study.refused(study.run("plan", "check", "plan.json"), "Error:")
    study.refused(study.run("plan", "check", "a.csv"), "not valid JSON")
    study.refused(study.run("plan", "check", "missing.json"), "does not exist")


def test_a_hopeless_plan_says_so(study):
    base = ["--column", "a:x:0:1", "--column", "b:y:0:1", "--n", "500", "--epsilon", "0.1", "--delta", "1e-6"]
    result = study.run("plan", "new", *base, "--out", "plan.json")
    assert result.exit_code == 0
    assert "NOT IDENTIFIED" in result.output
