"""`to_latex`, `to_html` and `to_word`: tables that go into a paper as they are."""

import html
import pickle
import re
import sys
import warnings
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.iolib.summary2 import summary_col

import privinf as pi
from privinf.accounting import PrivacyReport
from privinf.accounting.report import rounded_up
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.results import Results
from privinf.results.context import Context
from privinf.results.paper_table import RatioFrame, row_digits, spread_of
from privinf.results.rendering import latex

NAMES = ("Intercept", "age & sex", "log_income")


def assert_same_table(text, page):
    """Fail unless every cell and the note of an HTML table are in the LaTeX table, in the same order."""
    root = ET.fromstring(page)
    place = 0
    for cell in (*root.iter("th"), *root.iter("td")):
        assert latex(cell.text or "") in text
    for row in root.find("tbody").iter("tr"):
        line = " & ".join(latex(cell.text or "") for cell in row)
        place = text.index(line, place)


@pytest.fixture
def result(make_entry):
    estimate = Estimate(np.array([0.5, -2.0, 0.25]), np.diag([0.01, 0.04, 0.25]), NAMES, 1234)
    return Results(estimate, Context(report=PrivacyReport.from_entries([make_entry()], delta=1e-5)))


def test_latex_has_rules_escapes_and_a_note(result):
    text = result.to_latex(caption="Wages & more", label="tab:wages")
    for part in (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"age \& sex",
        r"log\_income",
        r"\label{tab:wages}",
    ):
        assert part in text
    assert r"\caption{Wages \& more}" in text
    assert "0.500 & 0.100" in text
    assert f"epsilon = {rounded_up(result.privacy.epsilon(1e-5), 4)}, delta = 1e-05" in text
    assert "n = 1,234" in text
    for environment in ("table", "threeparttable", "tabular", "tablenotes"):
        assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}") == 1


def test_tables_with_standard_errors_name_coefficients_with_a_possible_bias(make_entry, result):
    bias = np.array([0.0, 0.15, 0.2])  # standard errors 0.1, 0.2 and 0.5
    estimate = Estimate(np.array([0.5, -2.0, 0.25]), np.diag([0.01, 0.04, 0.25]), NAMES, 1234, bias=bias)
    biased = Results(estimate, Context(report=PrivacyReport.from_entries([make_entry()], delta=1e-5)))
    sentence = "allow for a possible bias of more than half a standard error"
    assert rf"Intervals and p-values of age \& sex {sentence}" in biased.to_latex()
    assert sentence not in biased.to_latex(cells="ci")
    table = pi.compare({"plain": result, "biased": biased})
    assert rf"Intervals and p-values of age \& sex in biased {sentence}" in table.to_latex()
    assert "age & sex in biased allow" in re.sub(r"\s+", " ", str(table))
    assert sentence not in pi.compare({"plain": result}).to_latex()


@pytest.fixture
def small(make_entry):
    """Return a fit with coefficients of very different sizes."""
    sizes = np.array([0.1, 0.0031, 4.2e-7])
    estimate = Estimate(np.array([0.5, -2.0, 1.5e-6]), np.diag(sizes**2), NAMES, 1234)
    return Results(estimate, Context(report=PrivacyReport.from_entries([make_entry()], delta=1e-5)))


def test_each_row_has_the_digits_that_its_error_needs(small):
    (body, _) = cells_of(small.to_latex())
    assert body[0] == ["Intercept", "0.500", "0.100"]
    assert body[1] == [r"age \& sex", "-2.0000", "0.0031"]
    assert body[2] == [r"log\_income", "0.00000150", "0.00000042"]
    (exact, _) = cells_of(small.to_latex(digits=3))
    assert exact[2] == [r"log\_income", "0.000", "0.000"]
    (intervals, _) = cells_of(small.to_latex(cells="ci"))
    low, high = small.conf_int().loc["log_income"]
    assert intervals[2] == [r"log\_income", "0.00000150", f"[{low:.8f}, {high:.8f}]"]
    assert "0.00000042" in small.to_html()


def test_rows_of_a_comparison_have_the_digits_of_their_smallest_error(small, result):
    table = pi.compare({"small": small, "large": result})
    body = cells_of(table.to_latex())[0]
    assert body[4:] == [[r"log\_income", "0.00000150", "0.25000000"], ["", "(0.00000042)", "(0.50000000)"]]
    assert body[0] == ["Intercept", "0.500", "0.500"]
    assert cells_of(table.to_latex(digits=2))[0][4][1:] == ["0.00", "0.25"]
    printed = str(table)
    assert re.search(r"Intercept +0\.5000 +0\.5000", printed)
    assert re.search(r"log_income +0\.00000150 +0\.25000000", printed)
    assert "(0.00000042)" in printed
    assert "0.00000150" not in str(table.summary("%.4f"))


def test_ratios_have_the_digits_of_their_intervals():
    frame = RatioFrame(
        [[1.00002, 1.00001, 1.00003], [2.0, 1.0, 4.0]], ["a", "b"], ["odds ratio", "low", "high"]
    )
    for name, value in (("paper_head", "95% interval"), ("paper_note", ""), ("paper_marks", {})):
        object.__setattr__(frame, name, value)
    (body, _) = cells_of(frame.to_latex())
    assert body == [["a", "1.000020", "[1.000010, 1.000030]"], ["b", "2.000", "[1.000, 4.000]"]]
    assert cells_of(frame.to_latex(digits=2))[0][0] == ["a", "1.00", "[1.00, 1.00]"]


def test_digits_follow_the_error_the_interval_its_finite_end_or_the_estimate():
    inf, nan = np.inf, np.nan
    assert spread_of(5.0, 0.2, 1.0, 2.0) == 0.2
    assert spread_of(5.0, nan, 4.0, 6.5) == 1.25
    assert spread_of(5.0, nan, -inf, 5.5) == 0.5
    assert spread_of(5.0, nan, 2.0, inf) == 3.0
    assert spread_of(-5.0, nan, -inf, inf) == 5.0
    assert np.isnan(spread_of(0.0))
    assert row_digits([nan], None) == row_digits([], None) == row_digits([70.0], None) == 3
    assert row_digits([0.02, 0.0009], None) == 5
    assert row_digits([0.00099999], None) == row_digits([0.001], None) == 4  # 0.0010
    assert row_digits([1e-300], None) == 15
    assert row_digits([1e-300], 2) == 2


def test_stars_follow_the_pvalues(result):
    rows = ET.fromstring(result.to_html(stars=True)).findall("tbody/tr")
    stars = [row[1].text.count("*") for row in rows]
    expected = [sum(p < level for level in (0.1, 0.05, 0.01)) for p in result.pvalues]
    assert stars == expected == [3, 3, 0]
    assert "*" not in result.to_html()


def test_stars_have_the_levels_of_summary_col(result):
    """Both are made of the same p-values, so that a table and statsmodels' one must not differ in stars."""
    text = str(summary_col([result], stars=True))
    for name, p in result.pvalues.items():
        stars = sum(p < level for level in (0.1, 0.05, 0.01))
        line = next(line for line in text.splitlines() if line.startswith(name))
        assert line.count("*") == stars
    assert "* p<.1, ** p<.05, ***p<.01" in text
    assert "* p < 0.1, ** p < 0.05, *** p < 0.01." in html.unescape(result.to_html(stars=True))


def test_ratios_effects_and_descriptions_are_tables_for_papers():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.uniform(20, 70, 9000), "sex": rng.choice(["f", "m"], 9000)})
    rows["sick"] = (rng.uniform(size=9000) < 1.0 / (1.0 + np.exp(3.0 - 0.03 * rows.age))).astype(int)
    schema = pi.Schema({"age": (20, 70), "sex": ["f", "m"], "sick": (0, 1)})
    fit = pi.Logit.from_formula("sick ~ age + sex", rows, schema=schema).fit(mu=1.0, rng=0)
    odds = fit.odds_ratios(0.1)
    text = odds.to_latex(digits=2, caption="Odds", label="tab:odds")
    ratio, low, high = odds.loc["age"]
    assert f"age & {ratio:.2f} & [{low:.2f}, {high:.2f}]" in text
    assert "odds ratio & 90\\% interval" in text
    assert type(pickle.loads(pickle.dumps(odds)).copy()) is pd.DataFrame
    margins = fit.get_margeff("mean")
    description = pi.stats.describe(rows, schema=schema, mu=1.0, rng=0, confidence_level=0.9)
    effects, described = margins.to_latex(alpha=0.1, digits=4), description.to_latex()
    assert_same_table(effects, margins.to_html(alpha=0.1, digits=4))
    assert_same_table(described, description.to_html())
    effect, error = margins.summary_frame().loc["age"].iloc[:2]
    assert 0.0001 < error < 0.00095  # three digits would show one of them
    assert f"age & {effect:.5f} & {error:.5f} & [" in margins.to_latex()
    slope, error = margins.summary_frame().loc["age"].iloc[:2]
    assert f"age & {slope:.4f} & {error:.4f} & [" in effects
    assert "at the mean of the columns" in effects
    assert f"age, mean & {description.table.loc['mean', 'age']:.2f} & [" in described
    assert "sex, share of f & " in described
    for table in (text, effects, described):
        assert "90\\% interval" in table
        assert "NOT PRIVATE" in table
        assert "Differential privacy: epsilon" in table
    for wrong in (odds, margins, description):
        with pytest.raises(ArgumentError, match="digits"):
            wrong.to_latex(digits=16)


def test_intervals_are_those_of_conf_int(result):
    rows = ET.fromstring(result.to_html(cells="ci", alpha=0.1, digits=4)).findall("tbody/tr")
    ends = [[float(end) for end in re.findall(r"-?[\d.]+", row[2].text)] for row in rows]
    np.testing.assert_allclose(ends, result.conf_int(0.1).to_numpy(), atol=5.1e-5)
    assert "90% interval" in result.to_html(cells="ci", alpha=0.1)


def test_a_weak_result_has_score_intervals_and_what_is_not_private_says_so():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (200, 2))
    y = np.clip(X[:, 0] + 0.1 * rng.standard_normal(200), -1.0, 1.0)
    model = pi.MomentOLS(y, X, bounds=[(-1.0, 1.0)] * 2, y_bounds=(-1.0, 1.0))
    fits = [model.fit(epsilon=0.05, delta=1e-6, rng=seed) for seed in range(10)]
    weak = next(fit for fit in fits if fit.estimate.cov is None)
    text = weak.to_html(stars=True)
    assert "95% interval" in text
    assert "NOT PRIVATE" in text
    assert "*" not in text.partition("<tfoot>")[0]
    assert "Weakly identified: x1, x2." in text


@pytest.mark.parametrize(
    "wrong", [{"cells": "both"}, {"stars": 1}, {"alpha": 2.0}, {"digits": -1}, {"digits": 16}], ids=str
)
def test_invalid_arguments_are_named(result, wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        result.to_latex(**wrong)


def cells_of(text):
    """Return the cells of a LaTeX table by row, without its head, and those of the facts."""
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    lines = [part.strip().splitlines() for part in body.split(r"\midrule")]
    parts = [[line[:-3].split(" & ") for line in part] for part in lines]
    return parts if len(parts) > 1 else (*parts, [])


def test_a_comparison_has_a_column_per_fit(result):
    rows = pd.DataFrame({"log_income": np.linspace(-1.0, 1.0, 40)})
    rows["y"] = rows.log_income + np.tile([0.3, -0.3], 20)
    public = smf.ols("y ~ log_income", rows).fit()
    table = pi.compare({"a_1": result, "public": public})
    text = table.to_latex(stars=True, digits=2, caption="Both", label="tab:both")
    assert r" & a\_1 & public \\" in text
    body, facts = cells_of(text)
    assert body[:2] == [["Intercept", "0.50***", f"{public.params.iloc[0]:.2f}"], ["", "(0.10)", "(0.05)"]]
    assert body[2:4] == [[r"age \& sex", "-2.00***", ""], ["", "(0.20)", ""]]
    assert body[4] == [r"log\_income", "0.25", f"{public.params['log_income']:.2f}***"]
    assert dict((fact[0], fact[1:]) for fact in facts)["N"] == ["1234", "40"]
    assert dict((fact[0], fact[1:]) for fact in facts)["epsilon"][1] == "inf"
    ends = cells_of(table.to_latex(cells="ci", alpha=0.1))[0]
    for place, fit in ((1, result), (2, public)):
        low, high = fit.conf_int(0.1).loc["log_income"]
        assert ends[5][place] == f"[{low:.3f}, {high:.3f}]"
    assert "90\\% intervals" in table.to_latex(cells="ci", alpha=0.1)
    for wrong in ({"cells": "both"}, {"stars": 1}, {"alpha": 2.0}, {"digits": 16}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            table.to_latex(**wrong)


def test_a_comparison_in_html_has_the_cells_of_the_latex_table(result):
    table = pi.compare({"a & b": result, "again": result})
    for options in ({}, {"cells": "ci", "alpha": 0.1, "digits": 2}, {"stars": True}):
        page = ET.fromstring(table.to_html(caption="Wages & more", **options))
        rows = [["".join(cell.itertext()) for cell in row] for row in page.findall("tbody/tr")]
        body, facts = cells_of(table.to_latex(**options))
        plain = [
            [html.unescape(cell).replace(r"\&", "&").replace(r"\_", "_") for cell in row] for row in body
        ]
        assert rows[: len(body)] == plain
        assert [row[0] for row in rows[len(body) :]] == [fact[0] for fact in facts]
        assert page.find("caption").text == "Wages & more"
        assert [head.text for head in page.findall("thead/tr/th")][1:] == ["a & b", "again"]
        note = page.find("tfoot/tr/td").text
        assert "hold for the unit of privacy" in note
        assert "together spent epsilon" in note
    with pytest.raises(ArgumentError, match="digits"):
        table.to_html(digits=16)
    with pytest.raises(ArgumentError, match="no path"):
        table.to_html("table.html")


def test_a_comparison_notes_budget_weakness_and_missing_errors():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (200, 2))
    y = np.clip(X[:, 0] + 0.1 * rng.standard_normal(200), -1.0, 1.0)
    model = pi.MomentOLS(y, X, bounds=[(-1.0, 1.0)] * 2, y_bounds=(-1.0, 1.0))
    fits = [model.fit(epsilon=0.05, delta=1e-6, rng=seed) for seed in range(10)]
    weak = next(fit for fit in fits if fit.estimate.cov is None)
    good = model.fit(epsilon=50.0, delta=1e-6, rng=0)
    table = pi.compare({"weak": weak, "good": good})
    text = table.to_latex(stars=True)
    body, facts = cells_of(text)
    assert [line[1] for line in body[1::2]] == ["[-inf, inf]"] * 2
    assert all(line[2].startswith("(") for line in body[1::2])
    assert ["noise", "SIMULATION NOISE: NOT PRIVATE", "SIMULATION NOISE: NOT PRIVATE"] in facts
    assert "Weakly identified in weak: x1, x2." in text
    assert f"together spent epsilon {rounded_up(table.total.epsilon(), 4)} at delta 1e-06" in text
    assert [line[1] for line in cells_of(table.to_latex(cells="ci"))[0][1::2]] == ["[-inf, inf]"] * 2


def test_a_test_is_a_table_with_its_statistic_in_the_note():
    rng = np.random.default_rng(0)
    x, g = rng.uniform(0.0, 10.0, 500), np.resize(["a_1", "b"], 500)
    test = pi.stats.anova_oneway(x, g, levels=["a_1", "b"], bounds=(0, 10), epsilon=2.0, delta=1e-6, rng=0)
    text = test.to_latex(caption="Means", label="tab:means", digits=2)
    assert r" & Estimate & Std. error & 95\% interval \\" in text
    name, estimate, error, low, high = test.rows[0]
    assert cells_of(text)[0][0] == [r"a\_1", f"{estimate:.2f}", f"{error:.2f}", f"[{low:.2f}, {high:.2f}]"]
    assert name == "a_1"
    assert f"statistic = {test.statistic:.4f} (df = 1.0, " in text
    assert f"p = {test.pvalue:.4g}." in text
    assert f"epsilon = {rounded_up(test.privacy.epsilon(), 4)}, delta = 1e-06" in text
    assert "n = 500" in text
    assert "NOT PRIVATE" in text
    page = test.to_html(caption="Means & more", digits=2)
    assert "<caption>Means &amp; more</caption>" in page
    assert_same_table(text, page)
    assert_same_table(test.pairwise().to_latex(), test.pairwise().to_html())
    for method in (test.to_latex, test.to_html):
        with pytest.raises(ArgumentError, match="digits"):
            method(digits=16)
        with pytest.raises(ArgumentError, match="no path"):
            method("table.txt")


def test_a_table_of_counts_has_one_decimal_and_its_target():
    g = np.resize(["a", "b", "c"], 300)
    counts = pi.stats.counts(g, levels=["a", "b", "c"], epsilon=1.0, delta=1e-6, rng=0)
    text = counts.to_latex()
    estimate = counts.rows[0].estimate
    assert cells_of(text)[0][0][:2] == ["a", f"{estimate:.1f}"]
    assert "The counts are those of this table" in text
    assert "H0" not in text
    assert ".." not in text


def test_a_path_is_refused_with_the_remedy(result):
    odds = pd.DataFrame({"odds ratio": [1.0], "low": [0.5], "high": [2.0]}, ["x"])
    for method in (result.to_latex, result.to_html, pi.compare([result]).to_latex, RatioFrame(odds).to_latex):
        with pytest.raises(ArgumentError, match=r"no path.*write_text\(result.to_latex\(\)\)"):
            method("x.tex")
        with pytest.raises(ArgumentError, match=r"buf= is not an option.*write_text"):
            method(buf="x.tex")


def test_tables_of_coefficients_refuse_odds_ratios(result):
    for table in (result, pi.compare([result])):
        with pytest.raises(NotAvailableError, match=r"odds_ratios\(\).*pandas.concat"):
            table.to_latex(cells="or")


@pytest.mark.filterwarnings("ignore")
def test_intervals_of_score_tests_replace_standard_errors():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (2000, 2))
    y = np.clip(X[:, 0] + 0.5 * rng.standard_normal(2000), -3.0, 3.0)
    model = pi.MomentOLS(y, X, bounds=[(-1.0, 1.0), (-50.0, 50.0)], y_bounds=(-3.0, 3.0))
    fit = model.fit(epsilon=1.0, delta=1e-6, rng=0)
    assert fit._inference.single is not None
    text = fit.to_latex()
    assert text == fit.to_latex(cells="ci")
    low, high = fit.conf_int().iloc[0]
    assert f"[{low:.3f}, {high:.3f}]" in text
    assert "Std. error" not in text
    assert "from a score test of each coefficient replace the standard errors" in text
    note = " ".join(str(fit.summary(notes="all")).split())
    assert "so z is not coef / std err" in note.replace("So z", "so z")
    table = pi.compare([fit])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        str(table), table.to_latex()
    assert f"[{low:.3f}, {high:.3f}]" in table.to_latex()
    assert f"[{low:.4f}, {high:.4f}]" in str(table)
    for one in (table.to_latex(), " ".join(str(table).split())):
        assert "intervals from score tests" in one


def a_fit():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.uniform(20, 70, 9000), "sex": rng.choice(["f", "m"], 9000)})
    rows["sick"] = (rng.uniform(size=9000) < 1.0 / (1.0 + np.exp(3.0 - 0.03 * rows.age))).astype(int)
    schema = pi.Schema({"age": (20, 70), "sex": ["f", "m"], "sick": (0, 1)})
    return pi.Logit.from_formula("sick ~ age + sex", rows, schema=schema).fit(mu=0.3, rng=0), rows, schema


@pytest.fixture(scope="module")
def exported():
    """Return results of all kinds that are tables for papers, by name."""
    fit, rows, schema = a_fit()
    words = {"schema": schema, "mu": 1.0, "rng": 0}
    times = rows.assign(time=np.linspace(0.0, 10.0, len(rows)), died=rows.sick)
    survival = pi.Schema({"time": (0, 10), "died": (0, 1), "sex": ["f", "m"]})
    curves = pi.survival.KaplanMeier("time", "died", by="sex", data=times, schema=survival)
    return {
        "fit": fit,
        "ratios": fit.odds_ratios(),
        "effects": fit.get_margeff("mean"),
        "comparison": pi.compare({"a": fit, "b": fit}),
        "test": pi.stats.ttest_ind("age ~ sex", rows, **words),
        "description": pi.stats.describe(rows, **words),
        "curves": curves.fit(mu=1.0, rng=0),
    }


TABLES = ("fit", "ratios", "effects", "comparison", "test", "description", "curves")


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_the_same_in_latex_html_and_word(exported, name, tmp_path):
    docx = pytest.importorskip("docx", reason="the extra privinf[tables] is not installed")
    pytest.importorskip("maketables", reason="the extra privinf[tables] is not installed")
    result, path = exported[name], tmp_path / "table.docx"
    page = ET.fromstring(result.to_html(caption="Wages & more", digits=2))
    if name not in ("comparison",):
        assert_same_table(result.to_latex(digits=2), ET.tostring(page, encoding="unicode"))
    result.to_word(path, caption="Wages & more", digits=2)
    document = docx.Document(str(path))
    (table,) = document.tables
    cells = [[cell.text for cell in row.cells] for row in table.rows]
    heads = [head.text or "" for head in page.findall("thead/tr/th")]
    rows = [["".join(cell.itertext()) for cell in row] for row in page.findall("tbody/tr")]
    assert cells[:-1] == [heads, *rows]
    assert cells[-1][0] == page.find("tfoot/tr/td").text
    assert "NOT PRIVATE" in cells[-1][0] or name == "comparison"
    assert any("Wages & more" in paragraph.text for paragraph in document.paragraphs)
    with pytest.raises(ArgumentError, match="overwrite"):
        result.to_word(path)
    result.to_word(path, overwrite=True)


def test_ratios_in_html_have_flags_and_cautions(exported):
    fit = exported["fit"]
    odds = fit.odds_ratios()
    object.__setattr__(odds, "paper_marks", {"age": "\u2020"})
    page = ET.fromstring(odds.to_html(digits=2))
    rows = {row[0].text: row[1].text for row in page.findall("tbody/tr")}
    assert rows["age"] == f"{odds.loc['age'].iloc[0]:.2f}\u2020"
    assert [name for name, cell in rows.items() if "\u2020" in cell] == ["age"]
    assert page.find("tfoot/tr/td").text == odds.paper_note
    assert "NOT PRIVATE" in odds.paper_note
    with pytest.raises(ArgumentError, match="no path"):
        odds.to_html("table.html")


@pytest.mark.parametrize("name", TABLES)
def test_word_needs_maketables_and_a_name_that_word_opens(exported, name, tmp_path, monkeypatch):
    with pytest.raises(ArgumentError, match=r"must end with \.docx"):
        exported[name].to_word(tmp_path / "table.doc")
    with pytest.raises(ArgumentError, match="digits"):
        exported[name].to_word(tmp_path / "table.docx", digits=16)
    monkeypatch.setitem(sys.modules, "maketables", None)
    with pytest.raises(NotAvailableError, match=r"privinf\[tables\]"):
        exported[name].to_word(tmp_path / "table.docx")
    assert not list(tmp_path.iterdir())


def test_names_that_comparisons_and_effects_lack_have_remedies(exported):
    expected = {
        "comparison": {
            "to_docx": r"to_word\(path\)",
            "to_csv": r"params\.to_csv\(path\)",
            "to_excel": "DataFrames",
            "to_frame": "DataFrames",
            "to_dataframe": "DataFrames",
            "to_parquet": "DataFrames",
            "to_markdown": r"params\.to_markdown",
            "to_maketables": r"ETable\(\[a",
            "tidy": r"fit\.tidy\(\)",
            "glance": r"fit\.glance\(\)",
            "conf_int": r"fit\.conf_int\(\)",
            "odds_ratios": r"fit\.odds_ratios\(\)",
            "to_dict": r"fit\.to_dict\(\)",
            "to_json": r"fit\.to_dict\(\)",
            "plot": r"pi\.plotting\.several\(table\.results\)",
            "save": r"save\(path\)",
        },
        "effects": {
            "to_docx": r"to_word\(path\)",
            **dict.fromkeys(
                ("to_csv", "to_excel", "to_frame", "to_dataframe", "to_markdown", "tidy"), "summary_frame"
            ),
        },
        "fit": {"to_docx": r"to_word\(path\)"},
        "test": {"to_docx": r"to_word\(path\)"},
    }
    for kind, names in expected.items():
        result = exported[kind]
        for name, remedy in names.items():
            with pytest.raises(NotAvailableError, match=f"{name} is not available: .*{remedy}"):
                getattr(result, name)
            assert not hasattr(result, name)
