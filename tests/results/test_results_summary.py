import csv
import io

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, PrivacyReport
from privinf.errors import ArgumentError, SteepDirectionWarning
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.estimate import Estimate
from privinf.inference.score_test import Identification
from privinf.results import Results
from privinf.results.context import Context
from privinf.results.notes import Note
from privinf.results.summary import number
from privinf.schema import Design

LONG = 'C(education, Treatment(reference="none at all"))[T.university degree & more_than_that]'


def made(report, names=("const", LONG, "x"), **context):
    p = len(names)
    estimate = Estimate(
        params=np.arange(p) - 0.5, cov=np.diag(np.arange(1.0, p + 1)), names=tuple(names), nobs=100
    )
    return Results(estimate, Context(report=report, **context))


@pytest.fixture
def report(make_entry):
    return PrivacyReport.from_entries(
        [make_entry(assumptions=("covers features only; y released in clear",))], delta=1e-5
    )


def weak_results(report):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (2000, 2))
    S = np.diag([25.0, 25.0])
    system = CorrectedLeastSquares(x + 5 * rng.standard_normal(x.shape), x[:, 0], S)
    design = Design.from_arrays(["x1", "x2"], bounds=[(-1, 1)] * 2)
    estimate = Estimate(
        params=np.array([1.0, 2.0]),
        cov=None,
        names=("x1", "x2"),
        nobs=2000,
        weak_reason="the noise is too strong",
    )
    found = Identification(statistic=0.3, threshold=2.0, weak=True, smallest_eigenvalue=0.1, noise_edge=0.3)
    return Results(
        estimate,
        Context(report=report, design=design, system=system, identification=found, model="ModulatedOLS"),
    )


def test_the_table_separates_the_two_errors(results):
    lines = results.summary().as_text().splitlines()
    header = next(line for line in lines if "std err" in line)
    assert header.split("  ") != []
    for word in ("coef", "std err", "(no noise)", "z", "P>|z|", "[0.025", "0.975]"):
        assert word in header
    row = next(line for line in lines if line.startswith("x1 ")).split()
    shown = [float(cell) for cell in row[1:]]
    low, high = results.conf_int().loc["x1"]
    expected = [
        results.params["x1"],
        results.bse["x1"],
        results.bse_sampling["x1"],
        results.tvalues["x1"],
        results.pvalues["x1"],
        low,
        high,
    ]
    np.testing.assert_allclose(shown, expected, atol=6e-4)


def test_blocks_and_notes(results):
    text = results.summary(alpha=0.1, title="A title", notes="all").as_text()
    assert text.splitlines()[0].strip() == "A title"
    for part in (
        "[0.05",
        "0.95]",
        "Dep. Variable:",
        "TestOLS",
        "least squares",
        "Stabilization:",
        "R-squared (corrected):",
        "Epsilon (delta=1e-05):",
        "mu (Gaussian DP):",
        "rho (zCDP):",
        "Trust model:",
        "replace-one",
        "lattice (secure)",
        "A footnote.",
        "n is public",
    ):
        assert part in text, part
    with pytest.raises(ArgumentError, match="alpha"):
        results.summary(alpha=0.0)
    with pytest.raises(ArgumentError, match="notes"):
        results.summary(notes="some")


def test_a_summary_prints_what_must_be_read_and_says_how_to_see_the_rest(results, report):
    text = results.summary().as_text()
    assert "A footnote." not in text
    assert "n is public" not in text
    assert text.splitlines()[-1] == '2 more notes: summary(notes="all")'
    assert "A footnote." in results.summary().plain_notes
    warned = made(report, notes=("A footnote.", *(Note(f"Warning {j}.", "must-read") for j in range(6))))
    text = warned.summary().as_text()
    assert [f"Warning {j}." in text for j in range(6)] == [True] * 4 + [False] * 2
    assert "std err includes" not in text
    assert text.splitlines()[-1] == '6 more notes, 2 of them important: summary(notes="all")'
    assert "more notes" not in results.summary(notes="all").as_text()


def test_text_is_deterministic_and_at_most_100_columns(report):
    wide = made(report, method="a very long description of a method that does not fit into one column at all")
    text = str(wide.summary())
    assert text == str(wide.summary())
    assert max(map(len, text.splitlines())) <= 100
    assert "..." in text  # the name is shortened in text only
    assert "more_than_that]" in text
    words = text.replace("\n", " ").split()
    assert all(word in words for word in ["does", "not", "fit", "into", "one", "column", "at", "all"])


def test_simulation_and_no_noise_are_stamped(make_entry):
    simulated = PrivacyReport.from_entries([make_entry(secure=False)])
    text = str(made(simulated).summary())
    assert "Privacy:" in text.partition("coef")[0]
    assert text.count("NOT PRIVATE") == 2
    assert str(made(simulated).summary(notes="all")).count("SIMULATION NOISE: NOT PRIVATE") == 2
    clear = PrivacyReport.from_entries([make_entry(secure=False, mu=float("inf"))])
    text = str(made(clear).summary())
    assert "NO NOISE: NOT PRIVATE" in text
    assert "SIMULATION" not in text
    assert "NOT PRIVATE" not in str(made(PrivacyReport.from_entries([make_entry()])).summary())


def test_the_whole_ledger_is_shown_beside_this_fit(make_entry):
    ledger = Ledger()
    entries = [ledger.spend(make_entry())[0] for _ in range(3)]
    report = PrivacyReport.from_entries(entries[:1], ledger, delta=1e-5)
    text = str(made(report).summary())
    assert f"{report.epsilon(1e-5):.4g}" in text
    assert f"{report.cumulative.epsilon(1e-5):.4g}" in text


def test_weak_identification_shows_score_intervals_and_the_reason(report):
    weak = weak_results(report)
    text = str(weak.summary())
    assert "the noise is too strong" in text
    assert "std err " not in text.split("[1]")[0]
    assert weak.summary().plain_facts["Weak for"] == "all coefficients"
    assert "Weak below:" in text
    assert "inf" in next(line for line in text.splitlines() if line.startswith("x1"))
    assert "chi2(2)" in text


def test_flagged_wald_intervals_are_shown_with_a_warning(report):
    found = Identification(statistic=0.3, threshold=2.0, weak=True, smallest_eigenvalue=0.1, noise_edge=0.3)
    text = str(made(report, identification=found).summary())
    assert "Weak identification" in text
    assert "std err" in text
    facts = made(report, identification=found).summary().plain_facts
    assert facts["Weak for"] == "intervals of all coefficients (see notes)"
    assert facts["Wald intervals"] == "flagged as weak"


def test_a_steep_direction_is_a_note_and_a_named_warning(report):
    found = Identification(
        statistic=4.0, threshold=2.0, weak=False, smallest_eigenvalue=0.1, noise_edge=0.3, stretch=0.2
    )
    result = made(report, identification=found)
    text = " ".join(str(result.summary()).split())
    assert "together with its standard error (ratio 0.2)" in text
    facts = result.summary().plain_facts
    assert facts["See notes for"] == "all coefficients"
    assert facts["Wald intervals"] == "see the notes"
    assert "Weak for" not in facts
    assert "not flagged" not in text
    for asked in (result.conf_int, lambda: result.t_test("x = 0"), lambda: result.wald_test("x = 0")):
        with pytest.warns(SteepDirectionWarning, match="one side"):
            asked()


def test_html_escapes_and_latex_escapes(report):
    summary = made(report, names=("a<b>&c", "x_1", "y^2")).summary()
    html = summary.as_html()
    assert "a&lt;b&gt;&amp;c" in html
    assert "<b>" not in html.replace("<tbody>", "")
    assert html.count("<table") == html.count("</table>") >= 3
    latex = summary.as_latex()
    assert r"a\textless{}b\textgreater{}\&c" in latex
    assert r"x\_1" in latex
    assert r"y\textasciicircum{}2" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") >= 3


def test_csv_survives_commas_in_names(report):
    summary = made(report, names=('C(g, Treatment("a"))[T.b]', "x")).summary()
    rows = list(csv.reader(io.StringIO(summary.as_csv())))
    row = next(row for row in rows if row[0].startswith("C(g"))
    assert row[0] == 'C(g, Treatment("a"))[T.b]'
    assert len(row) == 8


@pytest.mark.parametrize("name", ["=1+1", "+1+1", "-1+1", "@SUM(1)", " =1", "\t=1", "\uff1d1", "-", "+x"])
def test_no_name_is_a_formula_of_a_spreadsheet(report, name):
    summary = made(report, names=(name, "-x", "y-1")).summary()
    cells = [cell for row in csv.reader(io.StringIO(summary.as_csv(), newline="")) for cell in row]
    assert {f"'{name}".replace("\t", " "), "'-x", "y-1", "-0.5000"} <= set(cells)
    with_signs = [cell for cell in cells if cell.lstrip()[:1] in tuple("=+-@\uff1d")]
    assert all(float(cell) < 0.0 or float(cell) > 0.0 for cell in with_signs if cell)


def test_no_name_writes_a_line_or_a_colour_of_its_own(report):
    names = ("x\nEpsilon: 0.1", "\x1b[2J", "\u202ey\r=1")
    for render in ("as_text", "as_csv"):
        plain, odd = (getattr(made(report, names=of).summary(), render)() for of in (("a", "b", "c"), names))
        assert len(odd.splitlines()) == len(plain.splitlines())
        assert all(one.isprintable() for one in odd.replace("\n", ""))


def test_statsmodels_conveniences(results):
    summary = results.summary()
    assert str(summary) == summary.as_text() == str(results)
    assert summary.as_html() == summary._repr_html_() == results._repr_html_()
    assert len(summary.tables) >= 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (1.23456, "1.2346"),
        (-99999.0, "-99999.0000"),
        (1e-4, "1.00e-04"),
        (1e7, "1e+07"),
        (float("inf"), "inf"),
        (-float("inf"), "-inf"),
        (float("nan"), "nan"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_pure_epsilon_reports(make_entry):
    from privinf.accounting import ConcentratedLoss

    entry = LedgerEntry(
        mechanism="other",
        label="a",
        unit="record",
        relation="replace-one",
        trust="central",
        loss=ConcentratedLoss(0.1),
        source="lattice",
        secure=True,
    )
    assert "not available" in str(made(PrivacyReport.from_entries([entry])).summary())
    assert GaussianLoss(1.0).mu == 1.0


def test_the_score_statistic_stands_beside_what_f_is_compared_with():
    """Issue 38: 67.1 beside F = 15.93 of the same hypothesis; one is a sum over the slopes, one a mean."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 4))
    y = X @ [0.3, -0.2, 0.1, 0.0] + 0.5 * rng.standard_normal(2000)
    r = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 4, y_bounds=(-3, 3)).fit(epsilon=2.0, delta=1e-6, rng=0)
    test, facts = r.score_test(), r.to_dict()["facts"]
    assert test.df == 4
    assert float(facts["Per df, as F"]) == pytest.approx(test.statistic / 4, abs=1e-3)
    assert test.statistic / 4 == pytest.approx(r.fvalue, rel=0.2)
    assert test.statistic > 3 * r.fvalue
    one = pi.MomentOLS(y, X[:, :1], bounds=[(-1, 1)], y_bounds=(-3, 3)).fit(epsilon=2.0, delta=1e-6, rng=0)
    assert "Per df, as F" not in one.to_dict()["facts"]  # of one slope there is nothing to divide by
