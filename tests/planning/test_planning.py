"""Plans of studies: made-up people, predicted widths beside fits of real rows, goals, refusals, command."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from click.testing import CliRunner
from scipy.stats import chi2, ncx2, norm
from scipy.stats import kurtosis as scipy_kurtosis

import privinf as pi
from privinf.cli import main
from privinf.errors import ArgumentError, LargeDeltaWarning, NotAvailableError, SchemaError
from privinf.glm import posterior_draws
from privinf.planning import study as study_module
from privinf.planning.people import StudyOptions, checked_case, floor_widths, population
from privinf.planning.study import Aim

SCHEMA = pi.Schema(
    {
        "wage": (0, 60),
        "educ": (0, 20),
        "exper": (0, 60),
        "female": [0, 1],
        "region": ["n", "s", "w"],
        "union": ["no", "yes"],
        "days": (0, 40),
    }
)
BOOK = pi.Guesses(
    means={"wage": 20, "educ": 13, "exper": 18, "union": 0.3},
    sds={"wage": 8, "educ": 3, "exper": 12},
    shares={"female": {1: 0.45}, "region": {"n": 0.5}},
    correlations={"educ": {"exper": -0.3, "female": 0.2}},
    rsquared=0.25,
)
LEVEL = {"epsilon": 2.0, "delta": 1e-6}
FORMULA = "wage ~ educ + exper + female"


def plan(n=4000, formula=FORMULA, **words):
    told = {"guesses": BOOK, "estimators": ["MomentOLS"], "progress": False} | LEVEL | words
    return pi.plan_study(SCHEMA, formula, n, **told)


# ---- people


def test_made_up_people_are_those_of_the_guesses():
    people = population(SCHEMA, "wage ~ educ + exper + female + C(region)", BOOK, "gaussian")
    rows = people.rows(100_000, np.random.default_rng(3))
    assert rows.educ.mean() == pytest.approx(13, abs=0.05)
    assert rows.exper.std() == pytest.approx(12, abs=0.15)
    assert rows.wage.mean() == pytest.approx(20, abs=0.2)
    assert rows.wage.std() == pytest.approx(8, rel=0.03)
    assert rows.educ.corr(rows.exper) == pytest.approx(-0.3, abs=0.02)
    assert rows.educ.corr(rows.female) == pytest.approx(0.2, abs=0.02)
    shares = rows.region.value_counts(normalize=True)
    assert shares[["n", "s", "w"]].to_list() == pytest.approx([0.5, 0.25, 0.25], abs=0.01)
    for name in ("wage", "educ", "exper"):
        assert SCHEMA[name].low <= rows[name].min() < rows[name].max() <= SCHEMA[name].high
    fit = sm.OLS(rows.wage, sm.add_constant(people.design.matrix(rows)[:, 1:])).fit()
    assert fit.rsquared == pytest.approx(0.25, abs=0.02)


def test_correlations_with_the_response_say_the_coefficients():
    book = pi.Guesses(
        means={"wage": 20},
        sds={"wage": 8, "educ": 3, "exper": 12},
        correlations={"wage": {"educ": 0.4, "exper": 0.1}, "educ": {"exper": -0.3}},
        kurtosis=0.0,
    )
    rows = population(SCHEMA, "wage ~ educ + exper", book, "gaussian").rows(100_000, np.random.default_rng(1))
    assert rows.corr().wage[["educ", "exper"]].to_list() == pytest.approx([0.4, 0.1], abs=0.02)


def test_counts_and_levels_have_their_rates():
    book = pi.Guesses(means={"days": 3.0, "union": 0.3}, coefficients={"female": 0.5})
    rng = np.random.default_rng(2)
    counts = population(SCHEMA, "days ~ female", book, "poisson").rows(50_000, rng)
    assert counts.days.mean() == pytest.approx(3.0, abs=0.05)
    assert counts.groupby("female").days.mean().pct_change()[1] == pytest.approx(np.expm1(0.5), abs=0.06)
    levels = population(SCHEMA, "union ~ female", book, "binomial").rows(50_000, rng)
    assert (levels.union == "yes").mean() == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("kurtosis", [0.0, 1.0, 3.0])
def test_residuals_have_the_guessed_kurtosis_although_they_are_bounded(kurtosis):
    """The law of a normal response would leave half of it out."""
    people = population(FAIR, "age ~ children + educ", replace(FAIR_BOOK, kurtosis=kurtosis), "gaussian")
    rows = people.rows(200_000, np.random.default_rng(4))
    error = rows.age - people.design.matrix(rows) @ people.slopes
    had = people.residuals.kurtosis
    assert (kurtosis < 2.5) is ("bounds allow" not in people.assumptions[-1])
    assert had == pytest.approx(min(kurtosis, 2.51), abs=0.01)
    assert scipy_kurtosis(error) == pytest.approx(had, abs=0.15)
    assert error.std() == pytest.approx(people.residuals.sd, rel=0.02)


def test_a_spread_and_a_kurtosis_are_in_the_residuals():
    book = pi.Guesses(means={"wage": 30}, residual_sd=2.0, kurtosis=3.0, spreads={"educ": 0.5})
    people = population(SCHEMA, "wage ~ educ", book, "gaussian")
    rows = people.rows(100_000, np.random.default_rng(4))
    error = rows.wage - people.design.matrix(rows) @ people.slopes
    assert error.std() == pytest.approx(2.0, rel=0.03)
    z = (rows.educ - rows.educ.mean()) / rows.educ.std()
    assert error[z > 1].std() / error[z < -1].std() > 2.0
    assert "multiplied by 1.65 for each sd of educ" in people.assumptions[-1]


# ---- widths


def fair(rng, n):
    rows = sm.datasets.fair.load_pandas().data
    return rows.iloc[rng.integers(len(rows), size=n)].reset_index(drop=True)


FAIR = pi.Schema({"age": (17, 43), "children": (0, 6), "educ": (9, 20)})
FAIR_BOOK = pi.Guesses(
    means={"age": 29.1, "children": 1.4, "educ": 14.2},
    sds={"age": 6.85, "children": 1.43, "educ": 2.18},
    correlations={"age": {"children": 0.67, "educ": 0.03}, "children": {"educ": -0.14}},
)


def fitted(name, n, level, fits):
    """Return the median widths of fits to rows of a table that the planner has never seen."""
    widths = []
    for number in range(fits):
        rng = np.random.default_rng([3, number])
        model = getattr(pi, name).from_formula("age ~ children + educ", fair(rng, n), schema=FAIR)
        ends = model.fit(**level, rng=rng).conf_int().loc[["children", "educ"]].to_numpy()
        widths.append(ends[:, 1] - ends[:, 0])
    return np.median(widths, axis=0)


@pytest.mark.audit
@pytest.mark.parametrize(("name", "n"), [("MomentOLS", 6000), ("OLS", 10_000)])
def test_predicted_widths_are_those_of_fits_to_a_real_table(name, n):
    """The measured ones of all estimators are in benchmarks/results/planner.md."""
    study = pi.plan_study(
        FAIR, "age ~ children + educ", n, guesses=FAIR_BOOK, estimators=[name], **LEVEL, progress=False
    )
    assert study.cells[0].verdict == "identified"
    assert study.cells[0].widths / fitted(name, n, LEVEL, 40) == pytest.approx(1.0, abs=0.1)


@pytest.mark.audit
def test_n_for_a_width_and_a_budget_for_it_are_right():
    study = pi.plan_study(
        FAIR,
        "age ~ children + educ",
        6000,
        guesses=FAIR_BOOK,
        estimators=["MomentOLS"],
        **LEVEL,
        progress=False,
    )
    target = 0.8 * study.cells[0].widths[0]
    n = study.n_for(coefficient="children", width=target)
    assert fitted("MomentOLS", n, LEVEL, 30)[0] == pytest.approx(target, rel=0.1)
    epsilon = study.budget_for(coefficient="children", width=target)
    assert epsilon > 2.0
    seen = fitted("MomentOLS", 6000, {"epsilon": epsilon, "delta": 1e-6}, 30)[0]
    assert seen == pytest.approx(target, rel=0.1)


@pytest.mark.audit
def test_weak_cells_are_said_and_have_no_width():
    study = plan(n=400, epsilon=0.3)
    cell = study.cells[0]
    assert cell.verdict == "weak"
    assert np.isnan(cell.widths).all()
    assert study.best is None
    assert "Study.changes()" in study.summary()
    rows = study.case.people.rows(400, np.random.default_rng(0))
    fit = pi.MomentOLS.from_formula(FORMULA, rows, schema=SCHEMA).fit(epsilon=0.3, delta=1e-6, rng=0)
    assert fit.identification.weak
    assert np.isnan(study.power(1.0)).all(axis=None)


def test_a_rare_level_is_named_before_anything_is_spent():
    shares = {"region": {"n": 0.66, "s": 0.33, "w": 0.01}}
    for formula in ("wage ~ educ + region", 'wage ~ C(region, Treatment("s")) + educ'):
        rare = plan(3000, formula, guesses=replace(BOOK, shares=BOOK.shares | shares)).summary()
        assert "few people have the level 'w' of 'region' (30 of 3,000 with these shares)" in rare
        assert "pi.Factor([...], other='n')" in rare
        assert "the level 's'" not in rare
    assert "few people" not in plan(3000, "wage ~ educ + region").summary()


def test_a_level_along_which_fits_do_not_converge_is_named(monkeypatch):
    monkeypatch.setattr(posterior_draws, "LONGEST_STEP2", {math.inf: 0.0})
    book = pi.Guesses(means={"days": 3.0}, shares={"region": {"n": 0.66, "s": 0.33, "w": 0.01}})
    options = {"family": "poisson", "estimators": ["Poisson"], "guesses": book, "epsilon": 1.0}
    study = plan(12_000, "days ~ female + region", **options)
    assert study.cells[0].causes == ("region[T.w]",)
    assert "few people have the level 'w' of 'region' (120 of 12,000 with these shares)" in study.summary()


def test_a_few_fits_without_intervals_have_no_cause_that_is_stated():
    clear, without = np.ones(2), np.full(2, np.nan)
    causes = study_module._main_causes
    assert causes(Counter({"a": 1}), [clear] * 19 + [without]) == ()
    assert causes(Counter({"a": 3, "b": 1}), [clear] * 8 + [without] * 4) == ("a",)


def test_without_noise_the_width_is_the_floor():
    study = plan(epsilon=np.inf, estimators=["OLS"])
    assert study.frame.times.to_list() == pytest.approx([1.0] * 3, abs=0.03)


@pytest.mark.audit
def test_the_same_seed_gives_the_same_plan():
    pd.testing.assert_frame_equal(plan(rng=5).frame, plan(rng=5).frame)


@pytest.mark.audit
def test_power_is_that_of_the_standard_error():
    study = plan(epsilon=4.0)
    se = study.frame.set_index("coefficient").se
    power = study.power({"female": 2.8016 * se["female"], "educ": 0.0})
    assert power.MomentOLS.to_list() == pytest.approx([0.8, 0.05], abs=0.01)


def test_a_large_delta_is_warned_of_once_by_the_plan_and_never_by_its_simulated_fits():
    with pytest.warns(LargeDeltaWarning, match="1/n = 0.0025") as seen:
        study = plan(400, delta=1 / 300)
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", LargeDeltaWarning)
        study.changes(coefficient="educ", width=0.5)


def test_joint_power_is_that_of_the_wald_test_of_a_term():
    study = plan(formula="wage ~ educ + C(region)")
    cell = study.cells[0]
    test = cell.joint[0]["C(region)"]
    assert test.covariance.shape == (2, 2)
    names = ["C(region)[T.s]", "C(region)[T.w]"]
    assert study.joint_power("C(region)", 0.0)["MomentOLS"] == pytest.approx(0.05, abs=1e-4)
    assert study.joint_power("C( region )", 50.0)["MomentOLS"] == pytest.approx(1.0, abs=1e-3)
    both = study.joint_power("C(region)", dict.fromkeys(names, 1.0))["MomentOLS"]
    assert both == study.joint_power("C(region)", 1.0)["MomentOLS"]
    assert 0.05 < study.joint_power("C(region)", {names[0]: 0.5})["MomentOLS"] < both
    assert study.joint_power("C(region)", {"s": 0.5}).equals(study.joint_power("C(region)", {names[0]: 0.5}))
    assert list(study.power({"w": 0.5}).index) == ["C(region)[T.w]"]
    with pytest.raises(ArgumentError, match="coefficient="):  # a factor with several coefficients
        study.power({"region": 0.5})
    distance = np.array([1.0, 1.0]) @ np.linalg.solve(test.covariance, [1.0, 1.0])
    expected = ncx2.sf(chi2.isf(0.05, 2), 2, distance)
    assert test.power(np.ones(2), 0.05) == pytest.approx(expected, abs=0.005)
    single = study.joint_power("educ", 0.2)["MomentOLS"]
    assert single == pytest.approx(study.power({"educ": 0.2})["MomentOLS"]["educ"], abs=0.01)
    with pytest.raises(ArgumentError, match="term="):
        study.joint_power("region", 1.0)
    with pytest.raises(ArgumentError, match="effect="):
        study.joint_power("C(region)", {"educ": 1.0})


def test_a_term_that_most_fits_identify_too_weakly_has_no_joint_power():
    study = plan(200, formula="wage ~ educ + C(region)", epsilon=0.05)
    assert math.isnan(study.joint_power("C(region)", 5.0)["MomentOLS"])


def test_standard_errors_that_vary_cost_power():
    """By hand: half of the fits have s = .5, half s = 1.5, and the effect is 2.8016."""
    widths = 3.91993 * np.array([[0.5], [1.5], [0.5], [1.5]])
    cell = study_module.Cell(
        name="OLS",
        names=("x",),
        widths=np.median(widths, axis=0),
        fit_widths=widths,
        error=0.0,
        identified=np.ones(1),
        fits=4,
        reason="",
    )
    by_hand = np.mean(norm.cdf(2.8016 / np.array([0.5, 1.5]) - 1.95996))
    assert cell.power(np.array([2.8016]), 0.05, [0]) == pytest.approx([by_hand], abs=1e-4)
    assert by_hand < 0.76  # and .8 at their mean


@pytest.mark.parametrize(("width", "n"), [(0.5, 16.0), (0.25, 64.0), (0.01, None), (1.0, 4.0)])
def test_the_people_of_the_planned_width_are_the_planned_ones(width, n):
    """The search also ends where the first width, or one at a limit, is exactly the target."""
    calls = []

    def width_of(people):
        calls.append(people)
        assert len(calls) < 50, "the search does not end"
        return 2.0 / math.sqrt(round(people, 9))

    aim = SimpleNamespace(case=None, target=width, width=width_of)
    people = Aim.crossing(aim, lambda case, t: t, 16.0, 4.0, 100.0)
    assert people == (None if n is None else pytest.approx(n, rel=0.02))


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_an_effect_that_all_made_up_fits_find_needs_the_fewest_people(few):
    study = plan(estimators=["OLS"], which=["educ"])
    assert 1 <= study.n_for(coefficient="educ", effect=1e6, power=0.8) <= study.case.n


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_the_people_of_a_power_find_the_effect():
    """Fits to made-up people find it so often, where noise is most of a standard error."""
    study = plan(estimators=["OLS"], which=["educ"])
    effect = float(study.case.people.slopes[study.case.people.design.names.index("educ")])
    n = study.n_for(coefficient="educ", effect=effect, power=0.8)
    found = 0
    for number in range(100):
        rng = np.random.default_rng([5, number])
        model = pi.OLS.from_formula(FORMULA, study.case.people.rows(n, rng), schema=SCHEMA)
        low, high = model.fit(**study.case.spending, rng=rng).conf_int().loc["educ"]
        found += low * high > 0
    assert found / 100 == pytest.approx(0.8, abs=0.1)


@pytest.mark.audit
def test_tighter_bounds_and_fewer_columns_are_tried(few):
    wide = pi.Schema({"wage": (0, 400), "educ": (0, 20), "exper": (0, 60)})
    book = pi.Guesses(means={"wage": 20, "educ": 13}, sds={"wage": 8, "educ": 3})
    study = pi.plan_study(
        wide, "wage ~ educ + exper", 20_000, guesses=book, estimators=["MomentOLS"], **LEVEL, progress=False
    )
    found = study.changes(coefficient="educ", width=0.6 * study.cells[0].widths[0]).set_index("change")
    bounds = next(name for name in found.index if name.startswith("bounds"))
    assert "wage (0, 5" in bounds
    assert found.does[bounds]
    assert not found.does["as planned"]
    assert found.width["without exper"] < found.width["as planned"]
    assert found.index[1].startswith("n = ")
    assert found.index[2].startswith("epsilon = ")


@pytest.mark.audit
def test_no_budget_beats_the_floor():
    with pytest.raises(NotAvailableError, match=r"no budget gives intervals of width .* with 4,000 people"):
        plan().budget_for(width=1e-3)


@pytest.mark.audit
def test_expressions_and_levels_as_responses():
    study = plan(formula="np.log(wage + 1) ~ educ + C(region)", estimators=["OLS"])
    assert study.case.which == ("C(region)[T.s]", "C(region)[T.w]", "educ")
    assert study.cells[0].verdict == "identified"
    chosen = {"family": "binomial", "estimators": ["Logit"], "guesses": pi.Guesses(means={"union": 0.3})}
    assert plan(formula="union ~ educ", **chosen).cells[0].verdict == "identified"


@pytest.mark.audit
def test_trusts_and_their_estimators(few):
    table = pi.advise(SCHEMA, FORMULA, 3000, guesses=BOOK, trust="local", progress=False, **LEVEL)
    assert set(table.estimator) == {"MomentOLS", "ModulatedOLS", "IWPGLM"}
    parties = {"a": ["educ", "exper"], "b": ["wage"]}
    own = plan(
        60_000, "wage ~ educ + exper", trust="per-party", parties=parties, estimators=["RMGMOLS"], epsilon=4
    )
    assert own.cells[0].verdict == "identified"
    derived = plan(60_000, "wage ~ I(educ**2)", trust="per-party", parties=parties, estimators=["RMGMOLS"])
    assert (derived.cells[0].verdict, "is not one of the released columns" in derived.cells[0].reason) == (
        "cannot",
        True,
    )
    cannot = plan(estimators=["DebiasedLasso"], epsilon=None, delta=None, mu=1.0).cells[0]
    assert (cannot.verdict, cannot.reason[:3]) == ("cannot", "mu=")


@pytest.mark.audit
def test_sums_of_sites_have_the_widths_of_one_curator():
    """What stands in place of a simulation of sites."""
    found = []
    for number in range(12):
        rng = np.random.default_rng([9, number])
        rows = fair(rng, 3000)
        sites = [
            (part.age, pi.add_constant(part[["children", "educ"]])) for part in (rows[:1000], rows[1000:])
        ]
        bounds = [(0, 6), (9, 20)]
        model = pi.MomentOLS.from_arrays(sites, bounds=bounds, y_bounds=(17, 43), trust="secure-sum")
        ends = model.fit(**LEVEL, rng=rng).conf_int().loc[["children", "educ"]].to_numpy()
        found.append(ends[:, 1] - ends[:, 0])
    study = pi.plan_study(
        FAIR,
        "age ~ children + educ",
        3000,
        guesses=FAIR_BOOK,
        trust="secure-sum",
        estimators=["MomentOLS"],
        **LEVEL,
        progress=False,
    )
    assert study.cells[0].widths / np.median(found, axis=0) == pytest.approx(1.0, abs=0.1)


@pytest.mark.audit
def test_the_plot_shows_every_estimator_and_the_floor(few):
    pytest.importorskip("matplotlib")
    ax = plan(estimators=["OLS", "MomentOLS"]).plot()
    labels = ax.get_legend_handles_labels()[1]
    assert labels == ["without privacy", "OLS", "MomentOLS"]


def test_the_number_of_people_needs_no_first_guess():
    """The search starts at the plan's n, which has a default; its answer is found to about 1%."""
    words = {"guesses": FAIR_BOOK, "estimators": ["MomentOLS"], "progress": False, **LEVEL}
    studies = [pi.plan_study(FAIR, "age ~ children", *n, **words) for n in ((), (20_000,))]
    assert [study.case.n for study in studies] == [10_000, 20_000]
    people = [study.n_for("children", width=0.6) for study in studies]
    assert people[0] == pytest.approx(people[1], rel=0.03)
    assert people[0] not in (10_000, 20_000)


# ---- refusals


@pytest.mark.parametrize(
    ("guesses", "said"),
    [
        ({"means": {"wage": 70}}, "between its bounds 0 and 60"),
        ({"sds": {"wage": 40}}, "must be at most"),
        ({"means": {"pay": 3}}, "'pay'"),
        (
            {"shares": {"region": {"x": 0.5}}},
            "a share of column 'region' for the level 'x', but the possible levels",
        ),
        ({"shares": {"region": {"n": 0.7, "s": 0.5}}}, "add up"),
        ({"shares": {"educ": {"n": 0.7}}}, "numeric column"),
        ({"correlations": {"educ": {"region": 0.2}}}, "more than two levels"),
        ({"correlations": {"educ": {"female": 0.99}}}, "is impossible with the other guesses"),
        ({"correlations": {"educ": {"wage": 0.2}}, "rsquared": 0.1}, "omit either these correlations"),
        ({"coefficients": {"educ": 50.0}}, "imply that the response has an sd"),
        ({"coefficients": {"educ": 1.0}, "rsquared": 0.2, "residual_sd": 1.0}, "omit one"),
        ({"spreads": {"region": 1.0}}, "a residual spread that changes with 'region'"),
    ],
)
def test_guesses_that_cannot_be_are_refused(guesses, said):
    with pytest.raises(ArgumentError, match=re.escape(said)):
        plan(formula="wage ~ educ + female + C(region)", guesses=pi.Guesses(**guesses))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"trust": "per-party"}, "needs parties="),
        ({"parties": {"a": ["wage"]}}, "parties= can be used only"),
        ({"epsilon": None}, "epsilon= with delta="),
        ({"source": "lattice"}, "source="),
        ({"which": ["region"]}, "which='region'"),
        ({"estimators": ["Logit"]}, "estimators='Logit'"),
        ({"estimators": []}, "estimators must not be empty"),
        ({"guess": BOOK}, "did you mean 'guesses'"),
        ({"family": "binomial", "estimators": None}, "response with bounds 0 and 1"),
        ({"n": 10**8}, "at most 5,000,000"),
    ],
)
def test_words_that_cannot_be_are_refused(words, said):
    with pytest.raises(ArgumentError, match=re.escape(said)):
        plan(**words)


@pytest.mark.audit
def test_what_has_no_plan_says_why():
    several = pi.Schema({"wage": (0, 60), "educ": (0, 20)}, unit="person", max_rows=3)
    with pytest.raises(NotAvailableError, match="up to 3 rows for each 'person'"):
        pi.plan_study(several, "wage ~ educ", 100, **LEVEL)
    with pytest.raises(NotAvailableError, match="no estimator is available for family='poisson'"):
        pi.plan_study(
            SCHEMA, "days ~ educ", 100, family="poisson", trust="per-party", parties={"a": []}, **LEVEL
        )
    with pytest.raises(SchemaError):
        plan(formula="wage ~ height")
    with pytest.raises(ArgumentError, match="pass either width="):
        plan().n_for(width=1.0, effect=1.0)


# ---- the command and the page


@pytest.fixture
def few(monkeypatch):
    """Let three fits do, where numbers do not matter."""
    monkeypatch.setattr(study_module, "FEWEST", 3)
    monkeypatch.setattr(study_module, "MOST_FITS", 3)


@pytest.fixture
def run(tmp_path, monkeypatch, few):
    monkeypatch.chdir(tmp_path)
    SCHEMA.save("s.toml")
    Path("g.toml").write_text(
        "rsquared = 0.25\n[means]\nwage = 20\n[sds]\nwage = 8\n[shares.female]\n1 = 0.45\n"
    )
    base = ("study", "wage ~ educ + female", "--schema", "s.toml", "--epsilon", "2", "--delta", "1e-6")
    return lambda *words: CliRunner().invoke(main, [*base, *words], prog_name="privinf")


@pytest.mark.audit
def test_the_command_gives_what_python_gives(run):
    done = run(
        "--n",
        "3000",
        "--guesses",
        "g.toml",
        "--trust",
        "central",
        "--coefficient",
        "female",
        "--width",
        "2",
        "--json",
        "p.json",
        "--plot",
        "p.svg",
    )
    assert done.exit_code == 0, done.output
    book = pi.Guesses(means={"wage": 20}, sds={"wage": 8}, shares={"female": {1: 0.45}}, rsquared=0.25)
    ours = pi.plan_study(SCHEMA, "wage ~ educ + female", 3000, guesses=book, progress=False, **LEVEL)
    told = pd.DataFrame(json.loads(Path("p.json").read_text()))
    assert told.width.to_list() == pytest.approx(ours.frame.width.to_list(), rel=1e-9, nan_ok=True)
    assert "Changes of the plan that reach" in done.output
    assert Path("p.svg").stat().st_size > 1000


@pytest.mark.audit
def test_the_command_without_a_trust_is_advice(run):
    done = run("--n", "1000", "--quiet", "--json", "a.json")
    assert (done.exit_code, done.output) == (0, "")
    told = pd.DataFrame(json.loads(Path("a.json").read_text()))
    assert set(told.trust) == {"central", "server", "secure-sum", "local"}


def test_the_command_plans_hazard_ratios(tmp_path):
    bounds = {"years": (0, 5), "died": (0, 1), "age": (40, 90)}
    text = "".join(f"[columns.{name}]\nlow = {low}\nhigh = {high}\n" for name, (low, high) in bounds.items())
    (tmp_path / "schema.toml").write_text(text)
    (tmp_path / "guesses.toml").write_text("survival = 0.6\nevents = 0.3\n[coefficients]\nage = 0.04\n")
    words = [
        "study",
        "years ~ age",
        "--n",
        "2000",
        "--family",
        "hazards",
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
    ]
    words += ["--schema", str(tmp_path / "schema.toml"), "--guesses", str(tmp_path / "guesses.toml")]
    done = CliRunner().invoke(main, [*words, "--status", "died", "--trust", "central"])
    assert done.exit_code == 0, done.output
    assert "PHReg" in done.output
    assert "30.0% with an observed event" in done.output
    assert "needs status=" in " ".join(CliRunner().invoke(main, words).output.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--width", "1"), "pass --trust"),
        (("--trust", "central", "--coefficient", "educ"), "need a target"),
        (("--trust", "central", "--plot", "p.txt"), "must be a file name that ends in"),
        (("--trust", "per-party", "--party", "a"), "must have the form NAME=COLUMN"),
        (("--trust", "per-party"), "needs parties="),
    ],
)
def test_the_command_refuses_in_one_line(run, words, said):
    done = run("--n", "1000", *words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


@pytest.mark.audit
@pytest.mark.parametrize(("skew", "mean", "sd"), [(1.7, 1.49, 1.46), (0.4, 2.0, 1.0), (-0.5, 5.0, 1.5)])
def test_columns_have_the_guessed_skewness(skew, mean, sd):
    from scipy.stats import skew as skewness

    book = pi.Guesses(means={"lab": mean}, sds={"lab": sd}, skews={"lab": skew})
    study = pi.plan_study(
        pi.Schema({"lab": (0, 8), "y": (0, 1)}),
        "y ~ lab",
        500,
        guesses=book,
        estimators=["MomentOLS"],
        epsilon=4,
        delta=1e-6,
    )
    lab = study.case.people.rows(100_000, np.random.default_rng(0)).lab
    assert lab.mean() == pytest.approx(mean, abs=0.02)
    assert lab.std() == pytest.approx(sd, abs=0.02)
    assert skewness(lab) == pytest.approx(skew, abs=0.06)
    assert any("skewness" in line and "(guessed)" in line for line in study.case.people.assumptions)


@pytest.mark.parametrize(
    ("skew", "mean", "sd"),
    [(3.0, 4.7, 3.6), (2.0, 5.0, 5.1), (1.0, 4.7, 3.6), (5.0, 5.0, 8.0), (-3.0, 85.0, 3.6)],
)
def test_a_response_has_the_guessed_skewness(skew, mean, sd):
    from scipy.stats import skew as skewness

    schema = pi.Schema({"los": (0, 90), "age": (18, 100)})
    book = pi.Guesses(means={"los": mean}, sds={"los": sd}, skews={"los": skew}, rsquared=0.05)
    people = population(schema, "los ~ age", book, "gaussian")
    rows = people.rows(200_000, np.random.default_rng(0))
    assert rows.los.between(0, 90).all()
    assert rows.los.mean() == pytest.approx(mean, rel=0.03)
    assert rows.los.std() == pytest.approx(sd, rel=0.04)
    assert skewness(rows.los) == pytest.approx(people.residuals.skewness, rel=0.06)
    assert people.residuals.skewness == pytest.approx(skew, rel=0.15)  # bounds cut the longest tails
    assert np.corrcoef(rows.los, rows.age)[0, 1] ** 2 == pytest.approx(0.05, abs=0.01)
    assert f"(guessed {skew:g})" in people.assumptions[-1]


def test_the_tails_of_a_skewed_response_are_guessed_once():
    schema = pi.Schema({"los": (0, 90), "age": (18, 100), "sick": [0, 1]})
    plain = population(schema, "los ~ age", pi.Guesses(means={"los": 5}, sds={"los": 4}), "gaussian")
    assert "skewness" in plain.assumptions[-1]
    assert "skews={'los': 3}" in plain.assumptions[-1]
    for book in ({"kurtosis": 3.0}, {"spreads": {"age": 0.1}}):
        guesses = pi.Guesses(means={"los": 5}, sds={"los": 4}, skews={"los": 3}, **book)
        with pytest.raises(ArgumentError, match="omit kurtosis and spreads"):
            population(schema, "los ~ age", guesses, "gaussian")
    for name, family in (("sick", "binomial"), ("sick", "gaussian"), ("los", "poisson")):
        with pytest.raises(ArgumentError, match="a skewness for the response"):
            population(schema, f"{name} ~ age", pi.Guesses(means={"los": 5}, skews={name: 3}), family)


@pytest.mark.parametrize("book", [{"skews": {"no": 1.0}}, {"sds": {"lab": 3.6}, "skews": {"lab": 0.2}}])
def test_a_skewness_that_cannot_be_is_refused(book):
    schema, guesses = pi.Schema({"lab": (0, 8), "y": (0, 1)}), pi.Guesses(**book)
    with pytest.raises(ArgumentError, match="skewness"):
        pi.plan_study(schema, "y ~ lab", 500, guesses=guesses, epsilon=1, delta=1e-6)


def test_a_fit_without_an_interval_of_every_coefficient_counts_as_one_without_any():
    class Partial:
        weakly_identified = pd.Series(dtype=float)

        def conf_int(self, alpha):
            return pd.DataFrame([[0.0, 1.0]], index=["a"])

    class Wanted:
        alpha, which = 0.05, ("a",)

    assert study_module._widths(Wanted, Partial()) == [1.0]
    Wanted.which = ("a", "b")  # of which the noise hides one
    with pytest.raises(NotAvailableError, match="no interval for at least one"):
        study_module._widths(Wanted, Partial())


@pytest.mark.parametrize("levels", [[0, 1], ["no", "yes"]])
def test_a_response_with_two_levels_is_planned_as_yes_or_no(levels):
    schema = pi.Schema({"age": (20, 70), "sick": levels})
    guesses = pi.Guesses(means={"sick": 0.2}, rsquared=0.1)
    study = pi.plan_study(
        schema, "sick ~ age", 3000, guesses=guesses, epsilon=4, delta=1e-6, estimators=["MomentOLS"]
    )
    rows = study.case.people.rows(50_000, np.random.default_rng(0))
    assert set(rows.sick.unique()) <= set(levels)
    sick = (rows.sick == levels[1]).astype(float)
    assert sick.mean() == pytest.approx(0.2, abs=0.01)
    assert np.corrcoef(sick, rows.age)[0, 1] ** 2 == pytest.approx(0.1, abs=0.02)
    assert "yes or no" in str(study)
    assert "residuals" not in str(study)
    with pytest.raises(ArgumentError, match="its mean determines the spread"):
        pi.plan_study(schema, "sick ~ age", 3000, guesses=pi.Guesses(residual_sd=0.3), mu=1.0)


def test_a_response_with_bounds_0_and_1_names_the_levels_and_the_family():
    schema = pi.Schema({"age": (20, 70), "sick": (0, 1)})
    study = pi.plan_study(schema, "sick ~ age", 3000, epsilon=4, delta=1e-6, estimators=["MomentOLS"])
    assert "declare the levels [0, 1] instead, or pass family='binomial'" in str(study)


# ---- times until an event

TIMES = pi.Schema({"years": (0, 5), "died": (0, 1), "age": (40, 90), "treated": [0, 1]})
PATIENTS = pi.Guesses(
    means={"age": 65},
    sds={"age": 12},
    survival=0.6,
    dropout=0.2,
    coefficients={"treated": math.log(0.7), "age": 0.04},
)
HAZARDS = {"family": "hazards", "status": "died", "progress": False}


def test_people_with_times_have_the_guessed_survival_and_dropout():
    people = population(TIMES, "years ~ age + treated", PATIENTS, "hazards", "died")
    rows = people.rows(200_000, np.random.default_rng(0))
    assert rows.years.between(0.0, 5.0).all()
    assert set(rows.died) == {0.0, 1.0}
    no_dropout = replace(people, dropout=0.0).rows(200_000, np.random.default_rng(0))
    assert 1.0 - no_dropout.died.mean() == pytest.approx(0.6, abs=0.005)
    at_risk = people.rows(200_000, np.random.default_rng(1))
    censored = (at_risk.died == 0.0) & (at_risk.years < 5.0)
    assert 0.1 < censored.sum() / (at_risk.died == 0.0).sum() < 0.25
    assert any(
        "exponential, 60% without the event at 5 (guessed), dropout 20%" in a for a in people.assumptions
    )


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # by noise, in one fit of 60
def test_planned_widths_of_hazard_ratios_are_those_of_fits():
    study = pi.plan_study(TIMES, "years ~ age + treated", 4_000, guesses=PATIENTS, **HAZARDS, **LEVEL)
    assert study.best == "PHReg"
    frame = study.frame.set_index("coefficient")
    rows = population(TIMES, "years ~ age + treated", PATIENTS, "hazards", "died").rows
    fits = [
        pi.PHReg.from_formula(
            "years ~ age + treated", rows(4_000, np.random.default_rng(seed)), status="died", schema=TIMES
        ).fit(**LEVEL, rng=seed)
        for seed in range(100, 124)
    ]
    widths = np.median([np.ptp(fit.conf_int().loc[list(frame.index)], axis=1) for fit in fits], axis=0)
    np.testing.assert_allclose(frame.width, widths, rtol=0.08)
    assert ((frame.times > 1.02) & (frame.times < 1.5)).all()
    assert study.power({"treated": math.log(0.7)}).loc["treated", "PHReg"] > 0.9


@pytest.mark.audit
def test_people_and_budget_for_a_hazard_ratio():
    study = pi.plan_study(TIMES, "years ~ age + treated", 3_000, guesses=PATIENTS, **HAZARDS, **LEVEL)
    people = study.n_for("treated", width=0.4, progress=False)
    again = pi.plan_study(TIMES, "years ~ age + treated", people, guesses=PATIENTS, **HAZARDS, **LEVEL)
    # A predicted width has a relative standard error of up to 2.5%; last bits of the processor move it too.
    assert again.frame.set_index("coefficient").loc["treated", "width"] == pytest.approx(0.4, rel=0.06)
    changes = study.changes("treated", width=0.4, progress=False)
    assert not changes.change.str.contains("years").any()  # the follow-up is no bound to tighten


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"status": None}, ArgumentError, "needs status="),
        ({"status": "dead"}, ArgumentError, "the schema declares"),
        ({"status": "age"}, SchemaError, "bounds"),
        ({"family": "gaussian"}, ArgumentError, "only with family='hazards'"),
        ({"formula": "years ~ 0 + age"}, SchemaError, "baseline"),
        ({"guesses": pi.Guesses(means={"years": 2})}, ArgumentError, "survival="),
        ({"guesses": pi.Guesses(coefficients={"Intercept": 2})}, ArgumentError, "Intercept"),
        ({"guesses": pi.Guesses(alpha=2)}, ArgumentError, "alpha"),
        ({"trust": "local"}, NotAvailableError, "no estimator"),
    ],
)
def test_plans_of_times_that_do_not_fit_are_refused(change, error, said):
    options = {"formula": "years ~ age", **HAZARDS, **LEVEL} | change
    with pytest.raises(error, match=said):
        pi.plan_study(TIMES, options.pop("formula"), 500, **options)


def test_a_guessed_share_of_events_determines_the_dropout():
    book = replace(PATIENTS, dropout=None, events=0.25)
    people = population(TIMES, "years ~ age + treated", book, "hazards", "died")
    rows = people.rows(200_000, np.random.default_rng(0))
    assert rows.died.mean() == pytest.approx(0.25, abs=0.005)
    with pytest.raises(ArgumentError, match=r"at most 0\.4"):
        population(TIMES, "years ~ age", pi.Guesses(survival=0.6, events=0.5), "hazards", "died")
    with pytest.raises(ArgumentError, match="omit one"):
        population(TIMES, "years ~ age", pi.Guesses(dropout=0.1, events=0.2), "hazards", "died")


def test_guesses_of_times_are_refused_elsewhere():
    with pytest.raises(ArgumentError, match="family='hazards'"):
        plan(guesses=replace(BOOK, survival=0.4))
    with pytest.raises(ArgumentError, match="survival"):
        pi.Guesses(survival=1.2)
    with pytest.raises(ArgumentError, match="dropout"):
        pi.Guesses(dropout=1.0)


def test_a_status_with_labels_is_planned():
    schema = pi.Schema({"years": (0, 5), "status": ["alive", "dead"], "age": (40, 90)})
    study = pi.plan_study(schema, "years ~ age", 2_000, family="hazards", status="status", **LEVEL)
    assert study.cells[0].verdict == "identified"


def test_a_plan_states_what_its_call_left_to_defaults():
    default = pi.plan_study(SCHEMA, FORMULA, guesses=BOOK, mu=1.0, estimators=["MomentOLS"])
    assert "n was not passed, so the plan is for 10,000 people" in str(default)
    chosen = pi.plan_study(SCHEMA, FORMULA, 10_000, guesses=BOOK, mu=1.0, estimators=["MomentOLS"])
    assert "n was not passed" not in str(chosen)


def test_the_lasso_is_compared_only_with_many_columns():
    few = pi.plan_study(SCHEMA, FORMULA, 2000, guesses=BOOK, mu=1.0)
    assert "DebiasedLasso" not in [cell.name for cell in few.cells]
    assert "DebiasedLasso is not compared" in str(few)
    named = pi.plan_study(SCHEMA, FORMULA, 2000, guesses=BOOK, mu=1.0, estimators=["DebiasedLasso"])
    assert [cell.name for cell in named.cells] == ["DebiasedLasso"]


def test_a_formula_without_slopes_names_the_plan_of_a_mean():
    with pytest.raises(ArgumentError, match=r"pi\.stats\.plan_mean"):
        pi.plan_study(SCHEMA, f"{FORMULA.split('~')[0]} ~ 1", 1000, mu=1.0)


# ---- rates

RATES = pi.Schema({"visits": (0, 30), "years": (0.1, 5), "treated": [0, 1], "age": (40, 90)})
FOLLOWED = pi.Guesses(
    means={"visits": 1.2, "years": 3}, sds={"years": 1}, coefficients={"treated": math.log(0.8)}
)


def test_the_width_of_a_rate_ratio_without_noise_is_that_of_its_numbers_of_events():
    """The standard error of a log rate ratio is sqrt(1/E_1 + 1/E_2), whatever the exposures."""
    words = {"guesses": FOLLOWED, "family": "poisson", "exposure": "years"}
    case = checked_case(RATES, "visits ~ treated", 8000, StudyOptions(mu=1.0, **words))
    frame = case.people.rows(200_000, np.random.default_rng(1))
    groups = frame.groupby("treated")[["visits", "years"]].sum()
    rates = groups["visits"] / groups["years"]
    assert rates[1] / rates[0] == pytest.approx(0.8, rel=0.02)
    assert frame["visits"].mean() == pytest.approx(1.2, rel=0.02)
    assert frame["years"].mean() == pytest.approx(3.0, rel=0.02)
    events = groups["visits"] * 8000 / len(frame)
    expected = 2.0 * norm.isf(0.025) * math.sqrt((1.0 / events).sum())
    assert floor_widths(case) == pytest.approx([expected], rel=0.03)
    (rate,) = [line for line in case.people.assumptions if line.startswith("rate: ")]
    assert float(rate.split()[1]) == pytest.approx(groups["visits"].sum() / groups["years"].sum(), rel=0.02)


def test_a_planned_width_of_a_rate_ratio_is_that_of_fits():
    words = {"family": "poisson", "exposure": "years", "epsilon": 4.0, "delta": 1e-6, "progress": False}
    study = pi.plan_study(RATES, "visits ~ treated", 6000, guesses=FOLLOWED, **words)
    assert [cell.name for cell in study.cells] == ["Poisson"]
    widths = []
    for seed in range(12):
        frame = study.case.people.rows(6000, np.random.default_rng(seed + 50))
        model = pi.Poisson.from_formula("visits ~ treated", frame, schema=RATES, exposure="years")
        low, high = model.fit(epsilon=4.0, delta=1e-6, rng=seed).conf_int().loc["treated"]
        widths.append(high - low)
    assert study.cells[0].widths[0] == pytest.approx(np.median(widths), rel=0.06)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"family": "binomial", "exposure": "years"}, ArgumentError, "only with family='poisson'"),
        ({"exposure": "age_"}, ArgumentError, "a numeric column that the schema declares"),
        ({"exposure": "treated"}, ArgumentError, "lower bound above 0"),
        ({"exposure": "age"}, ArgumentError, "cannot also be the response or in a term"),
        ({"exposure": "years", "trust": "local"}, NotAvailableError, "trust='local' and exposure="),
    ],
    ids=["family", "unknown", "zero", "term", "trust"],
)
def test_exposures_that_cannot_be_planned_are_refused(words, error, message):
    words = {"family": "poisson", "guesses": FOLLOWED, "mu": 1.0} | words
    with pytest.raises(error, match=message):
        pi.plan_study(RATES, "visits ~ age + treated", 6000, **words)


def test_a_plan_of_few_fits_is_the_beginning_of_a_longer_one():
    words = {"guesses": FOLLOWED, "family": "poisson", "epsilon": 1.0, "delta": 1e-6, "progress": False}
    few, more = (
        pi.plan_study(RATES, "visits ~ treated", 3000, fits=fits, **words).cells[0] for fits in (4, 6)
    )
    assert (few.fits, more.fits) == (4, 6)
    np.testing.assert_array_equal(few.fit_widths, more.fit_widths[:4])
    assert few.error > 0.0
    for wrong in (3, 4.5):
        with pytest.raises(ArgumentError, match="fits"):
            pi.plan_study(RATES, "visits ~ treated", 3000, fits=wrong, **words)
