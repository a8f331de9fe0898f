"""The command line of one curator: schema, ledger, fit of rows, release of one table, configuration."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import privinf as pi

SCHEMA = """
[columns.wage]
low = 0
high = 50
[columns.age]
low = 18
high = 90
[columns.sex]
levels = ["f", "m"]
"""
SPEND = ("--epsilon", "2", "--delta", "1e-6")
FIT = ("fit", "wage ~ age", "rows.csv", "--schema", "s.toml", *SPEND, "--ledger", "l.json")


@pytest.fixture
def desk(study):
    rng = np.random.default_rng(1)
    age, sex = rng.uniform(20, 85, 4000), rng.choice(["f", "m"], 4000)
    wage = 5 + 0.2 * age + (sex == "m") + rng.normal(0, 2, 4000)
    frame = pd.DataFrame({"wage": wage, "age": age, "sex": sex, "extra": 1})
    frame.to_parquet("rows.parquet")
    frame.to_csv("rows.csv", index=False)
    (study.folder / "s.toml").write_text(SCHEMA)
    made = study.run("ledger", "create", "l.json", "--epsilon", "2.5", "--delta", "1e-6")
    assert made.exit_code == 0, made.output
    return study


def fit(desk, *words, formula="wage ~ age + sex", data="rows.parquet", spend=SPEND):
    return desk.run("fit", formula, data, "--schema", "s.toml", *spend, *words)


def test_a_fit_of_rows_is_charged_written_and_refused_at_the_limit(desk):
    files = ("--ledger", "l.json", "--out", "r.npz", "--json", "r.json", "--summary", "r.html")
    done = fit(desk, *files)
    assert done.exit_code == 0, done.output
    result, ledger = pi.load_results("r.npz"), pi.LedgerFile("l.json")
    assert result.model.name == "OLS"
    assert result.privacy.secure
    assert abs(result.params["age"] - 0.2) < 5 * result.bse["age"]
    assert json.loads((desk.folder / "r.json").read_text())["fit"]["nobs"] == 4000
    assert "of 2.5 at delta 1e-06" in done.output
    spent = len(ledger)
    assert spent > 0
    desk.refused(fit(desk, *files), "r.npz already exists", "--overwrite")
    desk.refused(fit(desk, "--ledger", "l.json"), "would exceed the limit of one person, epsilon <= 2.5")
    assert len(pi.LedgerFile("l.json")) == spent


@pytest.mark.parametrize("model", ["ols", "moments"])
@pytest.mark.parametrize("data", ["rows.parquet", "rows.csv"])
def test_models_and_files_give_what_python_gives(model, data, desk):
    done = fit(desk, "--model", model, "--seed", "3", "--out", "r.npz", "--quiet", data=data)
    assert (done.exit_code, done.output) == (0, "")
    kind = {"ols": pi.OLS, "moments": pi.MomentOLS}[model]
    rows, schema = pd.read_parquet("rows.parquet"), pi.load_schema("s.toml")
    ours = kind.from_formula("wage ~ age + sex", rows, schema=schema).fit(epsilon=2.0, delta=1e-6, rng=3)
    pd.testing.assert_series_equal(pi.load_results("r.npz").params, ours.params)


def test_a_logistic_fit_with_its_words(desk):
    rows = pd.read_parquet("rows.parquet")
    rows.assign(high=rows.wage > 15, wage=rows.wage / 50).to_parquet("rows.parquet")
    (desk.folder / "s.toml").write_text(SCHEMA + "[columns.high]\nlow = 0\nhigh = 1\n")
    done = fit(desk, "--model", "logit", "--out", "r.npz", formula="high ~ age")
    assert done.exit_code == 0, done.output
    assert pi.load_results("r.npz").params["age"] > 0


def test_one_release_of_a_table_serves_many_fits(desk):
    words = ("release", "--schema", "s.toml", "--data", "rows.csv", *SPEND, "--ledger", "l.json")
    done = desk.run(*words, "--out", "m.npz", "--quiet")
    assert (done.exit_code, done.output) == (0, "")
    for formula in ("wage ~ age + sex", "age ~ wage"):
        fitted = desk.run("fit", formula, "m.npz", "--out", "r.npz", "--overwrite")
        assert fitted.exit_code == 0, fitted.output
        expected = pi.load_release("m.npz").regress(formula)
        pd.testing.assert_series_equal(pi.load_results("r.npz").params, expected.params)
    desk.refused(desk.run(*words, "--out", "n.npz"), "would exceed the limit")
    assert "n.npz" not in desk.files()
    more = ("--term", "wage", "--term", "age", "--out", "n.npz")
    desk.refused(desk.run(*words[:-2], *more), "privinf ledger create")
    desk.run("ledger", "create", "more.json", "--mu", "9")
    assert desk.run(*words[:-1], "more.json", *more).exit_code == 0
    assert "second moments of wage, age" in desk.run("ledger", "show", "more.json").output
    assert "second moments of all columns of the schema" in desk.run("ledger", "show", "l.json").output
    desk.refused(desk.run("fit", "wage ~ sex", "n.npz"), "sex")


def test_a_check_asks_for_what_the_formula_needs(desk):
    """A file of many columns is suggested as a whole; those that no formula names may stay blank."""
    (desk.folder / "b.toml").write_text(SCHEMA + '[columns.extra]\nlow = ""\nhigh = ""\n')
    words = ("schema", "check", "b.toml", "--data", "rows.csv")
    done = desk.run(*words, "--formula", "wage ~ age")
    assert done.exit_code == 0
    assert "cannot be used until they are declared: 'extra'" in done.output
    desk.refused(desk.run(*words, "--formula", "wage ~ extra"), "column 'extra' has blank bounds")
    desk.refused(desk.run(*words), "fill in the bounds or levels of 'extra'")


def test_undeclared_levels_are_listed_for_the_holder(desk):
    pd.DataFrame({"g": ["a", "B", "b", "B"], "x": [1.0, 2.0, 3.0, 4.0]}).to_csv("levels.csv", index=False)
    pi.Schema({"g": ["a", "b"], "x": (0, 5)}).save("levels.toml")
    words = ("schema", "check", "levels.toml")
    done = desk.run(*words, "--data", "levels.csv", "--undeclared")
    assert "values of the column 'g' that the schema does not declare: 'B'" in done.output
    assert "'B'" not in desk.run(*words, "--data", "levels.csv").output
    desk.refused(desk.run(*words, "--undeclared"), "--undeclared needs --data")


MIXED = """age,months,arm,site,visit,dose
71 y,12.5,A,n,2020-01-01,1
70,"12,5",New,m,2020-13-01,x
200,3,A,zz,2020-02-02,2
,inf,B,n,2020-02-03,2
"""


def test_values_that_are_no_numbers_are_listed_with_those_of_all_columns(desk):
    Path("mixed.csv").write_text(MIXED)
    columns = {"age": (18, 90), "months": (0, 60), "arm": ["A", "B"], "dose": [1, 2]}
    columns |= {"site": pi.Factor(["n", "m"], other="m"), "visit": ("2020-01-01", "2020-12-31")}
    pi.Schema(columns).save("mixed.toml")
    words = ("schema", "check", "mixed.toml", "--data", "mixed.csv")
    done = desk.run(*words, "--undeclared")
    assert done.exit_code != 0
    for line in (
        "only the person who holds the rows may see them",
        "1 value of the column 'age' is not a finite number: '71 y'",
        "2 values of the column 'months' are not finite numbers: '12,5', 'inf'",
        "1 value of the column 'visit' is not a date such as 2013-07-01: '2020-13-01'",
        "values of the column 'arm' that the schema does not declare: 'New'",
        "values of the column 'dose' that the schema does not declare: 'x'",
        "values of the column 'site' that count as 'm', as the schema declares by other: 'zz'",
        "50.00% of the values of 'age' are outside its bounds",
        "missing values are in the column 'age'",
        "the columns 'age', 'months', 'visit' must hold numbers or dates",
    ):
        assert line in done.output
    public = desk.run(*words)
    assert "in the columns 'age', 'months', 'dose', but the schema declares numbers" in public.output
    assert not any(value in public.output for value in ("71 y", "12,5", "New", "zz", "2020-13-01"))


def test_undeclared_values_are_listed_while_other_columns_are_blank(desk):
    pd.DataFrame({"x": [1.0, -9.0], "z": 1.0}).to_csv("part.csv", index=False)
    text = '[columns.x]\nlow = 0\nhigh = 5\n[columns.z]\nlow = ""\nhigh = ""\n'
    Path("part.toml").write_text(text)
    done = desk.run("schema", "check", "part.toml", "--data", "part.csv", "--undeclared").output
    assert "50.00% of the values of 'x' are outside" in done
    assert "cannot be used until they are declared: 'z'" in done


def test_missing_values_are_named_for_the_holder_alone(desk):
    pd.DataFrame({"g": ["a", None, "b", "b"], "x": [1.0, 2.0, np.nan, 4.0], "z": 1.0}).to_csv(
        "gaps.csv", index=False
    )
    pi.Schema({"g": ["a", "b"], "x": (0, 5), "z": (0, 5)}).save("gaps.toml")
    words = ("schema", "check", "gaps.toml", "--data")
    done = desk.run(*words, "gaps.csv", "--undeclared")
    assert "missing values are in the columns 'g', 'x': a fit" in done.output
    assert "--missing drop" in done.output
    public = desk.run(*words, "gaps.csv").output
    assert "not checked: missing values" in public
    pd.DataFrame({"g": ["a", "b"], "x": [1.0, 2.0], "z": 1.0}).to_csv("full.csv", index=False)
    assert desk.run(*words, "full.csv").output == public.replace("gaps.csv", "full.csv")
    assert "no column has missing values" in desk.run(*words, "full.csv", "--undeclared").output


def test_average_marginal_effects_from_the_shell(desk):
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.0, 1.0, 6000)
    y = rng.random(6000) < 1.0 / (1.0 + np.exp(-x))
    pd.DataFrame({"x": x, "y": y.astype(float)}).to_csv("logit.csv", index=False)
    pi.Schema({"x": (-1, 1), "y": (0, 1)}).save("logit.toml")
    words = ("logit.csv", "--schema", "logit.toml", *SPEND)
    files = ("--out", "margins.npz", "--summary", "margins.tex")
    done = desk.run("fit", "y ~ x", *words, "--model", "logit", "--margins", *files)
    assert done.exit_code == 0, done.output
    effects = pi.load_results("margins.npz").get_margeff()
    assert effects.margeff[0] == pytest.approx(0.22, abs=0.05)
    assert effects.summary().as_text() in done.output
    assert effects.summary().as_latex() in (desk.folder / "margins.tex").read_text()
    spend = ("--ledger", "l.json", "--margins")
    desk.refused(desk.run("fit", "y ~ x", *words, *spend), "--margins is available only for --model logit")
    desk.refused(desk.run("fit", "y ~ x - 1", *words, "--model", "logit", *spend), "require a model with a")
    desk.refused(desk.run("fit", "y ~ x", "margins.npz", "--margins"), "--margins is only for a fit")
    assert len(pi.LedgerFile("l.json")) == 0


def test_coxs_regression_from_the_shell(desk):
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.0, 1.0, 6000)
    time = rng.exponential(size=6000) / (0.5 * np.exp(x))
    died = np.where(time <= 2.0, "yes", "no")
    pd.DataFrame({"x": x, "time": np.minimum(time, 2.0), "died": died}).to_csv("times.csv", index=False)
    pi.Schema({"x": (-1, 1), "time": (0, 2), "died": ["no", "yes"]}).save("times.toml")
    words = ("fit", "time ~ x", "times.csv", "--schema", "times.toml", *SPEND)
    model = ("--model", "phreg", "--status", "died", "--event", "yes", "--missing", "drop")
    done = desk.run(*words, *model, "--horizon", "1.5", "--out", "times.npz")
    assert done.exit_code == 0, done.output
    fit = pi.load_results("times.npz")
    assert fit.params["x"] == pytest.approx(1.0, abs=0.2)
    assert str(fit.summary()) in done.output
    assert "follow-up to 1.5" in fit.target
    spend = ("--ledger", "l.json")
    desk.refused(desk.run(*words, *spend, "--status", "died"), "--status is only for --model phreg")
    desk.refused(desk.run(*words, *spend, "--model", "phreg"), "needs --status")
    desk.refused(desk.run(*words, *spend, *model, "--cov-type", "HC0"), "always robust")
    desk.refused(desk.run(*words, *spend, *model, "--offset", "x"), "every record counts once")
    desk.refused(desk.run(*words, *spend, *model, "--margins"), "hazard ratios")
    assert len(pi.LedgerFile("l.json")) == 0


def test_a_check_knows_dates(desk):
    pd.DataFrame({"day": ["2020-01-05", "2020-03-04"], "y": [1.0, 2.0]}).to_csv("days.csv", index=False)
    (desk.folder / "d.toml").write_text(
        "[columns.day]\nlow = 2020-01-01\nhigh = 2021-01-01\n[columns.y]\nlow = 0\nhigh = 3\n"
    )
    done = desk.run("schema", "check", "d.toml", "--formula", "y ~ day", "--data", "days.csv")
    assert done.exit_code == 0, done.output


def test_a_reader_that_has_gone_is_no_refusal(desk, monkeypatch):
    def gone(*_, **__):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("privinf.cli.schemas.click.echo", gone)
    ended = desk.run("schema", "check", "s.toml")
    assert (ended.exit_code, "Broken pipe" in ended.output) == (1, False)


def test_a_suggested_schema_is_blank_or_bought(desk):
    done = desk.run("schema", "suggest", "rows.csv", "--column", "wage", "--column", "sex", "--out", "n.toml")
    assert "fill in the bounds or levels of 'wage', 'sex'" in done.output
    assert pi.load_schema("n.toml").blank == ("wage", "sex")
    desk.refused(desk.run("schema", "check", "n.toml"), "fill in the bounds or levels of 'wage', 'sex'")
    bought = desk.run(
        "schema",
        "suggest",
        "rows.csv",
        "--out",
        "b.toml",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--ledger",
        "l.json",
        "--missing-code",
        "age=999",
    )
    assert bought.exit_code == 0, bought.output
    assert "fill in the bounds or levels of 'sex'" in bought.output
    schema = pi.load_schema("b.toml")
    assert schema["age"].missing_codes == (999.0,)
    assert isinstance(schema, pi.FoundSchema)
    assert 10 < schema["age"].low < 30
    assert len(pi.LedgerFile("l.json")) > 0
    # A blank column that a fit does not need is in nobody's way.
    done = desk.run("fit", "wage ~ age", "rows.csv", "--schema", "b.toml", *SPEND)
    assert done.exit_code == 0, done.output


def test_a_schema_is_checked_against_formula_and_table(desk):
    done = desk.run("schema", "check", "s.toml", "--formula", "wage ~ C(sex) * age", "--data", "rows.csv")
    assert done.exit_code == 0, done.output
    assert "C(sex)[T.m]:age" in done.output
    assert "rows.csv has all 3 columns" in done.output
    desk.refused(desk.run("schema", "check", "s.toml", "--formula", "wage ~ size"), "size")
    (desk.folder / "t.toml").write_text(SCHEMA.replace('levels = ["f", "m"]', "low = 0\nhigh = 1"))
    desk.refused(
        desk.run("schema", "check", "t.toml", "--data", "rows.csv"), "text or dates are in the column 'sex'"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fit", "wage ~ age", "rows.csv"), "privinf schema suggest rows.csv"),
        (("fit", "wage ~ age", "rows.csv", "--schema", "s.toml"), "pass --epsilon"),
        (
            ("fit", "wage ~ age", "rows.csv", "rows.csv", "--schema", "s.toml", *SPEND),
            "one table of rows",
        ),
        (
            ("fit", "wage ~ age", "rows.csv", "--schema", "s.toml", *SPEND, "--shrink"),
            "--shrink can be used only with releases",
        ),
        (
            ("fit", "wage ~ age", "rows.csv", "--schema", "s.toml", *SPEND, "--ledger", "no"),
            "privinf ledger create no",
        ),
        (("fit", "wage ~ pay", "rows.csv", "--schema", "s.toml", *SPEND, "--ledger", "l.json"), "pay"),
        (("fit", "wage ~ age", "rows.csv", "--epsilon", "1"), "pass --schema"),
        (("release", "--data", "rows.csv", "--out", "o.npz"), "pass either --plan and --party, or --schema"),
        (
            (
                "release",
                "--schema",
                "s.toml",
                "--party",
                "a",
                "--data",
                "rows.csv",
                "--out",
                "o.npz",
                "--ledger",
                "l.json",
            ),
            "--party can be used only with --plan",
        ),
        (("ledger", "create", "l.json", "--epsilon", "1", "--delta", "1e-6"), "exists; choose another name"),
        ((*FIT, "--alpha", "2"), "--alpha=2.0 must lie in (0, 1)"),
        ((*FIT, "--alpha", "nan"), "--alpha=nan must lie in (0, 1)"),
        ((*FIT, "--json", "r.html", "--summary", "./r.html"), "--json and --summary name the same file"),
        ((*FIT, "--name", "x" * 201), "at most 200 characters"),
        ((*FIT, "--name", "table \udcff"), "only Unicode characters"),  # as bytes that are no UTF-8 arrive
        (
            ("release", *FIT[3:], "--data", "rows.csv", "--out", "r.txt"),
            "must be a file name that ends in .npz",
        ),
        (("ledger", "create", "k.json", "--epsilon", "1"), "needs --delta"),
        (("schema", "suggest", "rows.csv", "--out", "n.toml", "--delta", "1e-6"), "pass --epsilon too"),
        (("schema", "suggest", "rows.csv", "--out", "n.toml", "--clip", "0"), "pass --epsilon too"),
        (
            ("schema", "suggest", "rows.csv", "--out", "n.toml", "--missing-code", "age=-9"),
            "pass --epsilon too",
        ),
        (
            ("schema", "suggest", "rows.csv", "--out", "n.toml", *SPEND, "--missing-code", "agee=-9"),
            "must be the name of a column, an equals sign and a code",
        ),
        (
            ("schema", "suggest", "rows.csv", "--out", "n.toml", *SPEND, "--missing-code", "age=none"),
            "the column has numbers, so its codes must be numbers",
        ),
        (
            ("fit", "wage ~ age", "rows.csv", "--schema", "s.toml", *SPEND, "--target", "sample"),
            "--target is available only for",
        ),
        (("fit", "wage ~ age", "rows.csv", "--seed", "0"), "pass --schema"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_spent(words, said, desk):
    before = desk.files()
    desk.refused(desk.run(*words), said)
    assert desk.files() - {"l.json.lock"} == before - {"l.json.lock"}
    assert len(pi.LedgerFile("l.json")) == 0


def test_a_command_without_overwrite_does_not_advise_it(desk):
    done = desk.run("ledger", "create", "l.json", "--epsilon", "1", "--delta", "1e-6")
    desk.refused(done, "already exists")
    assert "--overwrite" not in done.output


def test_options_come_from_a_file_and_what_is_typed_wins(desk):
    (desk.folder / "c.toml").write_text('[fit]\nschema = "s.toml"\nepsilon = 2\ndelta = 1e-6\nseed = 1\n')
    words = ("fit", "wage ~ age", "rows.csv", "--out", "r.npz", "--overwrite")
    assert desk.run("--config", "c.toml", *words).exit_code == 0
    assert pi.load_results("r.npz").privacy.epsilon() == pytest.approx(2.0, rel=1e-6)
    assert desk.run("--config", "c.toml", *words, "--epsilon", "1").exit_code == 0
    assert pi.load_results("r.npz").privacy.epsilon() == pytest.approx(1.0, rel=1e-6)
    (desk.folder / "c.toml").write_text("[fit]\nepsilom = 2\n")
    desk.refused(desk.run("--config", "c.toml", *words), "has no option 'epsilom'")
    (desk.folder / "c.toml").write_text("[fits]\nepsilon = 2\n")
    desk.refused(desk.run("--config", "c.toml", *words), "[fits] is not named after a command")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell, study):
    done = study.run("completion", shell)
    assert done.exit_code == 0
    assert "_PRIVINF_COMPLETE" in done.output


def test_values_outside_the_bounds_are_listed_for_the_holder_alone(desk):
    pd.DataFrame({"x": [1.0, 2.0, -9.0, 4.0], "z": [1, 2, 99, 99], "y": [1.0, 2.0, 3.0, 4.0]}).to_csv(
        "codes.csv", index=False
    )
    schema = {"x": (0, 5), "z": pi.Factor([1, 2], missing_codes=[99]), "y": (0, 5)}
    pi.Schema(schema).save("codes.toml")
    words = ("schema", "check", "codes.toml", "--data", "codes.csv")
    done = desk.run(*words, "--undeclared").output
    assert "25.00% of the values of 'x' are outside its bounds" in done
    assert "missing_codes = [-9]" in done
    assert "'y' are outside" not in done
    assert "missing values are in the column 'z'" in done
    assert "values outside the bounds or levels, because both are private" in desk.run(*words).output
    pi.Schema(schema | {"x": pi.Numeric(0, 5, missing_codes=[-9])}).save("declared.toml")
    done = desk.run("schema", "check", "declared.toml", *words[3:], "--undeclared").output
    assert "no value of a numeric column is outside its bounds" in done
    assert "missing values are in the columns 'x', 'z'" in done
