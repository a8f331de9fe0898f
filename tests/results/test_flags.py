"""What a summary, a page and a table for a paper state about flagged fits, and fits without intervals."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from statsmodels.iolib.summary2 import summary_col

import privinf as pi
from privinf.errors import MisfitWarning, NotAvailableError
from privinf.glm import advice, posterior_draws
from privinf.glm.advice import DRAWN_NOTE
from privinf.planning import Study
from privinf.results.notes import COMPLETE_ROWS, COMPLETE_TARGET
from privinf.results.page import page_of
from privinf.results.summary import Flags, flags_of

SPENT = {"epsilon": 4.0, "delta": 1e-6, "rng": 0}


def words_of(text):
    return " ".join(str(text).split())


def patients(n=4000):
    """Return rows with an income that reaches far, a column that does not, and days of observation."""
    rng = np.random.default_rng(3)
    income = np.clip(rng.lognormal(1.0, 1.0, n), 0.0, 200.0)
    x = rng.uniform(-1.0, 1.0, n)
    days = rng.uniform(0.5, 2.0, n)
    chance = 1.0 / (1.0 + np.exp(1.5 - 0.2 * np.sqrt(income) - 0.5 * x))
    return pd.DataFrame(
        {
            "income": income,
            "x": x,
            "days": days,
            "sick": (rng.random(n) < chance).astype(float),
            "visits": np.minimum(rng.poisson(days * np.exp(0.5 * x)), 20).astype(float),
        }
    )


SCHEMA = pi.Schema(
    {"income": (0, 200), "x": (-1, 1), "days": (0.5, 2.0), "sick": (0, 1), "visits": (0, 20), "y": (-3, 3)}
)


# ---- fits that did not converge


@pytest.fixture
def unconverged(monkeypatch):
    """A fit whose last step is too long by a stricter rule."""
    monkeypatch.setattr(posterior_draws, "LONGEST_STEP2", {math.inf: 0.0})
    return pi.Logit.from_formula("sick ~ x", patients(), schema=SCHEMA).fit(**SPENT)


def test_a_fit_that_did_not_converge_is_not_called_weak(unconverged):
    summary = unconverged.summary()
    assert summary.plain_facts["Convergence"] == "NOT CONVERGED (see notes)"
    assert "Weak for" not in summary.plain_facts
    assert "(weak)" not in page_of(unconverged)
    first, second, third = (note.text for note in summary.ranked_notes if note.rank in ("must-read", "table"))
    assert first.startswith("The fit did not converge, most likely because the budget is small for 2")
    assert "spend more" in first
    notes = (first, second, third)
    assert any("no intervals" in note for note in notes)
    assert "The last step, which was too long, changed mainly the coefficient of x." in notes


@pytest.mark.parametrize(("model", "response"), [("Logit", "sick"), ("Poisson", "visits")])
def test_a_level_of_few_records_is_named_if_a_fit_did_not_converge_along_it(monkeypatch, model, response):
    monkeypatch.setattr(posterior_draws, "LONGEST_STEP2", {math.inf: 0.0})
    table = patients(20_000)
    groups = np.random.default_rng(3).choice(["a", "b", "rare"], len(table), p=[0.6, 0.39, 0.01])
    schema = pi.Schema({"x": (-1, 1), "sick": (0, 1), "visits": (0, 20), "g": ["a", "b", "rare"]})
    made = getattr(pi, model).from_formula(f"{response} ~ x + C(g)", table.assign(g=groups), schema=schema)
    fit = made.fit(epsilon=1.0, delta=1e-6, rng=0)
    assert not fit._inference.converged
    printed = [note for note in fit.summary().ranked_notes if note.rank == "must-read"]
    reason = "The fit did not converge, most likely because few records have the level C(g)[T.rare]: merge it"
    assert printed[0].text.startswith(reason)
    assert "pi.Factor([...], other=...)" in printed[0].text
    assert "changed mainly the coefficient of C(g)[T.rare]." in " ".join(note.text for note in printed)
    assert all(len(note.text.split()) <= 35 for note in printed)


def test_a_level_is_named_too_if_the_hessian_is_smallest_along_it(monkeypatch):
    monkeypatch.setattr(posterior_draws, "LONGEST_STEP2", {math.inf: 0.0})
    monkeypatch.setattr(advice, "_predictor_moves", lambda rows, step: np.array([0.0, 0.1, 0.1, 1.0]))
    monkeypatch.setattr(advice, "_predictor_sizes", lambda rows, step, move: np.array([0.0, 0.1, 1.0, 0.1]))
    monkeypatch.setattr(advice, "PRIOR_SLOPE", math.inf)
    table = patients(20_000)
    groups = np.random.default_rng(3).choice(["a", "b", "rare"], len(table), p=[0.6, 0.39, 0.01])
    schema = pi.Schema({"x": (-1, 1), "sick": (0, 1), "g": ["a", "b", "rare"]})
    model = pi.Logit.from_formula("sick ~ x + C(g)", table.assign(g=groups), schema=schema)
    reasons = []
    for faint in (math.inf, 0.0):
        monkeypatch.setattr(advice, "FAINT", faint)
        reasons.append(model.fit(epsilon=1.0, delta=1e-6, rng=0).estimate.weak_reason)
    assert "few records have the level C(g)[T.rare]" in reasons[0]
    assert "the budget is small for 4 coefficients" in reasons[1]


def test_a_fit_without_intervals_has_no_note_about_them(unconverged):
    notes = unconverged.summary(notes="all").plain_notes
    assert DRAWN_NOTE not in notes
    assert any(note.startswith("The last step moved linear predictors by 0.") for note in notes)
    text = unconverged.to_latex()
    assert "Standard errors and intervals are not available: the fit did not converge" in text
    assert "include the privacy noise" not in text


def test_errors_of_a_fit_that_did_not_converge_name_this_reason(unconverged):
    for ask in (unconverged.conf_int, lambda: unconverged.conf_int(method="score"), unconverged.score_test):
        with pytest.raises(NotAvailableError, match=r"the fit did not converge.*spend more") as refused:
            ask()
        assert "records=False" not in str(refused.value)
    assert "call result.conf_int" not in words_of(unconverged.summary(notes="all"))


def test_it_survives_a_file(unconverged, tmp_path):
    unconverged.save(tmp_path / "fit.npz")
    assert str(pi.load_results(tmp_path / "fit.npz").summary()) == str(unconverged.summary())


# ---- doubts of notes


@pytest.fixture(scope="module")
def misfit():
    return pi.Logit.from_formula("sick ~ income + x", patients(), schema=SCHEMA).fit(**SPENT)


@pytest.mark.filterwarnings("ignore::privinf.errors.MisfitWarning")
def test_a_misfit_is_no_weak_identification(misfit):
    assert misfit.weakly_identified.empty
    assert not misfit.tidy().weak.any()
    facts = misfit.summary().plain_facts
    assert "Weak for" not in facts
    assert facts["See notes for"] == "Intercept, income"
    assert facts["Wald intervals"] == "see the notes"
    renamed = misfit.summary(xname=["constant", "money", "x"]).plain_facts
    assert renamed["See notes for"] == "constant, money"
    page = misfit.to_html()
    paper = misfit.to_latex()
    assert "The summary has notes on: Intercept, income." in paper
    assert "Weakly identified" not in paper + page
    several = pi.compare({"first": misfit}).to_latex()
    assert "The summary of first has notes on Intercept, income." in several
    assert "Weakly identified" not in several


@pytest.mark.filterwarnings("ignore::privinf.errors.MisfitWarning")
def test_a_page_marks_doubted_coefficients(misfit):
    pytest.importorskip("matplotlib")

    page = page_of(misfit)
    assert "income (see notes)" in page
    assert "(weak)" not in page
    assert ">x<" in page


def test_flags_of_both_kinds_are_two_rows(misfit, monkeypatch):
    from privinf.errors import WeakIdentificationWarning

    inference = type(misfit._inference)
    both = [*misfit._inference.other_warnings, (WeakIdentificationWarning, "weak: all of it")]
    monkeypatch.setattr(inference, "other_warnings", both)
    flags = flags_of(misfit)
    assert flags == Flags(
        weak="intervals of all coefficients (see notes)",
        doubted="Intercept, income",
        columns=("Intercept", "income"),
        marks=dict.fromkeys(("Intercept", "income", "x"), "\u2020"),
        weighted=True,
    )
    monkeypatch.setattr(inference, "other_warnings", [(MisfitWarning, "the whole fit")])
    assert flags_of(misfit) == Flags(
        doubted="all coefficients", marks=dict.fromkeys(("Intercept", "income", "x"), "\u2021")
    )


@pytest.mark.filterwarnings("ignore::privinf.errors.MisfitWarning")
def test_every_table_marks_the_p_values_and_stars_of_flagged_coefficients(misfit):
    text = str(misfit.summary())
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert all("\u2021" in lines[name] for name in ("Intercept", "income"))
    assert "\u2021" not in lines["x"]
    assert "\u2021 not weak, but see the notes" in text
    assert "\u2020" not in text  # the mark of weak coefficients
    assert "\u2021" in misfit.summary(slim=True, xname=["constant", "money", "x"]).as_html()
    paper = misfit.to_latex(stars=True)
    assert paper.count(r"\textdaggerdbl{}") == 3
    assert (
        r"\textdaggerdbl{} not weakly identified, but possibly biased by the lower weight of outlying"
        in paper
    )
    several = pi.compare({"first": misfit})
    assert several.to_latex(stars=True).count(r"\textdaggerdbl{}") == 3
    assert str(several.summary()).count("\u2021") == 3
    row = next(line for line in str(summary_col([misfit], stars=True)).splitlines() if "Flagged" in line)
    assert row.split() == ["Flagged", "Intercept,", "income"]


def test_a_clean_fit_has_no_marks():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 5000)
    fit = pi.MomentOLS(x + 0.3 * rng.normal(size=5000), x, bounds=[(-1, 1)], y_bounds=(-2, 2)).fit(**SPENT)
    assert not {"\u2020", "\u2021"} & set(str(fit.summary()))
    assert "textdagger" not in fit.to_latex(stars=True) + pi.compare([fit]).to_latex(stars=True)
    assert "Flagged" not in str(summary_col([fit]))


# ---- marginal effects


def test_a_warning_of_effects_does_not_name_the_constant(misfit):
    one, other = (type(misfit)(misfit.estimate, misfit._context) for _ in range(2))  # each warns once
    with pytest.warns(MisfitWarning, match=r"get_margeff\(\): .* intervals of income are valid if"):
        one.get_margeff("mean")
    with pytest.warns(MisfitWarning, match="intervals of Intercept, income are valid if"):
        other.conf_int()


@pytest.mark.filterwarnings("ignore::privinf.errors.MisfitWarning")
def test_tables_of_effects_and_ratios_repeat_flags_and_cautions(misfit):
    effects = misfit.get_margeff("mean")
    summary = effects.summary()
    assert summary.plain_facts["See notes for"] == "income"
    text = str(summary)
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert "\u2021" in lines["income"]
    assert "\u2021" not in lines["x"]
    assert "\u2021 not weak, but see the notes" in text
    assert "intervals of income are valid if the logistic model also holds for these rows" in words_of(text)
    assert effects.flags.to_dict() == {"income": "\u2021", "x": ""}
    assert effects.summary_frame().shape == (2, 6)
    paper, odds = effects.to_latex(), misfit.odds_ratios().to_latex()
    for table in (paper, odds):
        assert "Cautions: Misfit." in table
        assert "not weakly identified, but possibly biased by the lower weight of outlying rows" in table
        assert re.search(r"income & -?[0-9.]+\\textdaggerdbl", table)
        assert not re.search(r"\bx & -?[0-9.]+\\textdagger", table)
    assert "See notes for: income." in paper
    assert "The summary has notes on: Intercept, income." in odds


def test_effects_of_a_clean_fit_have_no_flags():
    fit = pi.Logit.from_formula("sick ~ x", patients(), schema=SCHEMA).fit(**SPENT)
    effects = fit.get_margeff("mean")
    assert "\u2020" not in str(effects.summary())
    assert set(effects.flags) == {""}
    assert effects.summary_frame().shape[1] == 6
    assert "textdagger" not in effects.to_latex() + fit.odds_ratios().to_latex()


@pytest.mark.filterwarnings("ignore")
def test_effects_state_their_exposure_and_offset():
    model = pi.Poisson.from_formula("visits ~ x", patients(), schema=SCHEMA, exposure="days")
    fit = model.fit(**SPENT, margins=True)
    places = {
        ("mean", "dydx"): "days = 1",
        ("zero", "dydx"): "days = 1",
        ("overall", "dydx"): "days, mean over records",
        ("overall", "eydx"): "days, at any value",
        ("mean", "eyex"): "days, at any value",
    }
    for (at, method), place in places.items():
        assert fit.get_margeff(at, method).summary().plain_facts["Exposure"] == place
    shifted = pi.Logit.from_formula("sick ~ x", patients(), schema=SCHEMA, offset="days").fit(**SPENT)
    facts = shifted.get_margeff("mean", "eydx").summary().plain_facts
    assert facts["Offset"] == "days = 0"
    assert "Exposure" not in facts


# ---- means


def test_means_have_no_response():
    release = pi.Moments(SCHEMA, columns=["x", "days"]).release(patients(), **SPENT)
    means = release.means()
    for summary in (means.summary(), means.summary(slim=True)):
        assert "Dep. Variable" not in summary.plain_facts
        assert summary.plain_facts["Model"] == "Means"
        assert not {"R-squared (corrected)", "Residual variance"} & set(summary.plain_facts)
    assert means.summary(slim=True).plain_facts["Privacy"] == "NOT PRIVATE"
    assert means.model.title == "Means"
    assert means.glance().response.item() == ""
    assert release.regress("x ~ days").model.title == "MomentOLS: x"
    assert list(pi.compare([means, release.regress("x ~ days")]).results) == ["Means", "x"]


# ---- numbers of complete rows


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("noise", [True, False])
def test_without_noise_the_number_of_complete_rows_is_exact(noise):
    rows = patients()
    rows.loc[:99, "x"] = math.nan
    spent = SPENT if noise else SPENT | {"epsilon": math.inf}
    fit = pi.OLS.from_formula("income ~ x", rows, schema=SCHEMA, missing="drop").fit(**spent)
    release = pi.Moments(SCHEMA, columns=["x", "days"], missing="drop").release(rows, **spent)
    test = pi.stats.ttest_1samp(rows.x, 0.0, bounds=(-1, 1), missing="drop", **spent)
    texts = [words_of(one) for one in (fit.summary(), release.means().summary(), release.corr(), test)]
    for text in texts:
        assert ("(95% interval" in text) == noise
        assert ("(est.)" in text) == noise
        assert ("3,900 of 4,000 rows are complete, and the estimates describe these rows" in text) != noise
    assert ("about" in fit.to_latex()) == noise
    assert "given the columns" not in texts[1]
    assert "given the columns" in words_of(fit.summary(notes="all"))


def test_files_of_earlier_versions_have_the_notes_of_this_one():
    rows = patients()
    rows.loc[:99, "x"] = math.nan
    for epsilon in (4.0, math.inf):
        release = pi.Moments(SCHEMA, columns=["x", "days"], missing="drop").release(
            rows, **SPENT | {"epsilon": epsilon}
        )
        context = release.means()._context
        earlier = [
            COMPLETE_ROWS.format(context.complete.rows, context.complete.of, *context.complete.interval),
            COMPLETE_TARGET,
        ]
        loaded = replace(context, notes=(*earlier, "another note"))
        notes = [note.text for note in loaded.ranked]
        assert notes[:2] == [note.text for note in context.ranked[:2]]
        assert notes[2:] == ["another note"]


# ---- plans


def test_n_for_states_which_rows_it_counts():
    assert "The number includes rows that lack a value" in words_of(Study.n_for.__doc__)


@pytest.mark.audit
def test_numbers_of_people_include_incomplete_rows():
    plans = [
        pi.plan_study(
            SCHEMA,
            "y ~ x",
            4000,
            guesses=pi.Guesses(rsquared=0.2, complete=share),
            estimators=["MomentOLS"],
            epsilon=4.0,
            delta=1e-6,
            progress=False,
        )
        for share in (1.0, 0.5)
    ]
    target = 0.8 * float(plans[0].cells[0].widths[-1])
    complete, all_people = (plan.n_for(coefficient="x", width=target, progress=False) for plan in plans)
    assert 1.6 < all_people / complete < 2.6
