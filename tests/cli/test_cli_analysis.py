"""``privinf join`` and ``privinf fit``: what belongs together is joined, and regressed on."""

from __future__ import annotations

import numpy as np
import pytest

import privinf as pi
from privinf.releases import load_release


@pytest.fixture
def joined(released):
    assert released.run("join", "a.npz", "b.npz", "c.npz", "--out", "joined.npz").exit_code == 0
    return released


def test_join_prints_what_is_known_about_one_person(released):
    plan = pi.MixingPlan.load("plan.json")
    result = released.run("join", "a.npz", "b.npz", "c.npz", "--plan", "plan.json", "--out", "joined.npz")
    assert result.exit_code == 0, result.output
    assert f"{plan.check().epsilon:.4g} at delta = 1e-06" in result.output
    assert "Each party alone" in result.output
    joined = load_release("joined.npz")
    assert list(joined.design.private_names) == ["sex[T.m]", "age", "bmi", "glucose"]
    parts = [load_release(f"{party}.npz").arrays["rows"] for party in "abc"]
    np.testing.assert_array_equal(joined.arrays["rows"], np.hstack(parts))
    assert joined.noise_model["ids_sha256"] == plan.ids_sha256


def test_fit_from_files_and_from_the_joined_file_is_one_fit(joined):
    formula = "glucose ~ age + bmi + sex"
    separate = joined.run("fit", formula, "a.npz", "b.npz", "c.npz")
    together = joined.run("fit", formula, "joined.npz")
    assert separate.exit_code == together.exit_code == 0
    expected = pi.RMGMOLS.from_release(load_release("joined.npz")).regress(formula)
    assert separate.output == together.output == expected.summary().as_text() + "\n"
    for name, slope in {"age": 0.5, "bmi": 1.5, "sex[T.m]": 0.0}.items():
        assert abs(expected.params[name] - slope) < 4 * expected.bse[name]
    assert expected.bse["age"] < 0.1


@pytest.mark.audit
@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (".html", ["<!doctype html>", "<title>bmi ~ age</title>", "Epsilon, b alone:", "</html>"]),
        (".txt", ["RMGMOLS Results", "Epsilon, b alone:"]),
        (".csv", ["RMGMOLS Results", "Dep. Variable:,bmi"]),
        (".tex", [r"\begin{tabular}", "bmi"]),
    ],
)
def test_summaries_in_every_form(ending, words, joined):
    result = joined.run("fit", "bmi ~ age", "joined.npz", "--summary", f"out{ending}")
    assert result.exit_code == 0, result.output
    text = (joined.folder / f"out{ending}").read_text(encoding="utf-8")
    for word in words:
        assert word in text
    joined.refused(joined.run("fit", "bmi ~ age", "joined.npz", "--summary", f"out{ending}"), "--overwrite")
    again = joined.run("fit", "age ~ bmi", "joined.npz", "--summary", f"out{ending}", "--overwrite")
    assert again.exit_code == 0
    assert (joined.folder / f"out{ending}").read_text(encoding="utf-8") != text


@pytest.mark.audit
def test_options_of_the_fit(joined):
    model = pi.RMGMOLS.from_release(load_release("joined.npz"))
    for options, made in [
        (["--plain"], model.regress("glucose ~ age + bmi", debias=False).summary()),
        (["--shrink"], model.regress("glucose ~ age + bmi", shrink=True).summary()),
        (["--target", "sample"], model.regress("glucose ~ age + bmi", target="sample").summary()),
        (["--alpha", "0.2"], model.regress("glucose ~ age + bmi").summary(alpha=0.2)),
    ]:
        result = joined.run("fit", "glucose ~ age + bmi", "joined.npz", *options)
        assert (result.exit_code, result.output) == (0, made.as_text() + "\n")


def test_single_rows_are_fitted_by_their_own_models(study):
    base = ["--column", "a:age:18:90", "--column", "b:bmi:15:60", "--epsilon", "80", "--delta", "1e-6"]
    where = ["--n", "3000", "--id", "patient", "--method", "gaussian-rows", "--out", "plan.json"]
    assert study.run("plan", "new", *base, *where).exit_code == 0
    for party, data in (("a", "a.csv"), ("b", "b.parquet")):
        assert study.release(party, data).exit_code == 0
    assert "DGMOLS Results" in study.run("fit", "bmi ~ age - 1", "a.npz", "b.npz").output
    assert "BGMOLS Results" in study.run("fit", "bmi ~ age - 1", "a.npz", "b.npz", "--plain").output


@pytest.mark.audit
@pytest.mark.parametrize(
    ("change", "word"),
    [
        (["--seed", "4"], "did not use the same seed"),
        (["--k", "60"], "did not use the same k"),
        (["--kind", "signs", "--k", "70"], "did not use the same k"),
        (["--epsilon", "41"], "did not use the same"),
    ],
)
def test_releases_of_other_plans_are_not_joined(change, word, released):
    defaults = ["--roster", "ids.csv", "--seed", "3"]
    assert released.plan(*defaults, *change, out="other.json").exit_code == 0
    assert released.release("b", "b.parquet", plan="other.json", out="b2.npz").exit_code == 0
    before = released.files()
    released.refused(released.run("join", "a.npz", "b2.npz", "c.npz", "--out", "joined.npz"), word)
    released.refused(released.run("fit", "bmi ~ age", "a.npz", "b2.npz"), word)
    assert released.files() == before


def test_other_people_are_seen_at_the_join(study):
    assert study.plan("--n", "3000", "--seed", "3").exit_code == 0
    text = (study.folder / "a.csv").read_text().replace("\n1000,", "\n999,")
    (study.folder / "other.csv").write_text(text)
    assert study.release("a", "other.csv").exit_code == 0
    assert study.release("b", "b.parquet").exit_code == 0
    study.refused(study.run("join", "a.npz", "b.npz", "--out", "joined.npz"), "did not use the same ids")


def test_the_plan_is_insisted_on(released):
    assert released.plan("--roster", "ids.csv", "--seed", "4", out="other.json").exit_code == 0
    files = ["a.npz", "b.npz", "--out", "joined.npz"]
    released.refused(released.run("join", *files, "--plan", "other.json"), "a plan that differs")
    released.refused(released.run("join", *files, "--plan", "plan.json"), "releases were not passed: 'c'")
    assert "joined.npz" not in released.files()


@pytest.mark.audit
@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "a plan", "a joined file beside"])
def test_damaged_and_foreign_files(how, joined):
    good = (joined.folder / "b.npz").read_bytes()
    middle = len(good) // 2
    content = {
        "cut": good[:-40],
        "flipped": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
        "empty": b"",
        "a plan": (joined.folder / "plan.json").read_bytes(),
        "a joined file beside": (joined.folder / "joined.npz").read_bytes(),
    }[how]
    (joined.folder / "b.npz").write_bytes(content)
    joined.refused(joined.run("join", "a.npz", "b.npz", "c.npz", "--out", "other.npz"), "Error:")
    joined.refused(joined.run("fit", "bmi ~ age", "a.npz", "b.npz", "c.npz"), "Error:")
    assert "other.npz" not in joined.files()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["join", "a.npz", "a.npz", "--out", "x.npz"], "two releases of party 'a'"),
        (["join", "--out", "x.npz"], "Missing argument"),
        (["join", "a.npz", "missing.npz", "--out", "x.npz"], "does not exist"),
        (["join", "a.npz", "b.npz", "--out", "c.npz"], "--overwrite"),
        (["fit", "bmi ~ height", "joined.npz"], "height"),
        (["fit", "bmi ~ age * glucose", "joined.npz"], "not one of the released columns"),
        (["fit", "bmi", "joined.npz"], "Error:"),
        (["fit", "bmi ~ age", "joined.npz", "--plain", "--shrink"], "choose one"),
        (["fit", "bmi ~ age", "joined.npz", "--plain", "--target", "sample"], "no"),
        (["fit", "bmi ~ age", "joined.npz", "--alpha", "2"], "alpha"),
        (["fit", "bmi ~ age", "joined.npz", "--summary", "out.pdf"], "must be a file name that ends in"),
        (["fit", "bmi ~ age", "joined.npz", "--summary", "missing/out.txt"], "does not exist"),
        (["fly"], "No such command"),
    ],
)
def test_mistakes_of_the_analyst(words, answer, joined):
    before = joined.files()
    joined.refused(joined.run(*words), answer)
    assert joined.files() == before


def test_every_command_has_help(study):
    for words in ([], ["plan"], ["plan", "new"], ["plan", "check"], ["release"], ["join"], ["fit"]):
        result = study.run(*words, "--help")
        assert result.exit_code == 0
        assert "Usage: privinf" in result.output
    assert pi.__version__ in study.run("--version").output
