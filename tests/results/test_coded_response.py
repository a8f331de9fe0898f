"""Which level of a text response counts as 1: summaries, margins, predictions, tables and files state it."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.stats.anova import anova_lm

import privinf as pi
from privinf.errors import NotAvailableError

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"x": RNG.uniform(0, 1, 6000), "g": RNG.choice(["a", "b", "c"], 6000)})
ROWS["died"] = np.where(RNG.random(6000) < 0.3 + 0.3 * ROWS.x, "yes", "no")
ROWS["dead"] = (ROWS.died == "yes") * 1
SCHEMA = pi.Schema({"x": (0, 1), "g": ["a", "b", "c"], "died": ["no", "yes"], "dead": (0, 1)})
SPEND = {"epsilon": 20.0, "delta": 1e-6, "rng": 0}
CODED = "died, 1 = 'yes'"


def logit(formula="died ~ x + C(g)", **options):
    return pi.Logit.from_formula(formula, ROWS, schema=SCHEMA).fit(**SPEND, **options)


MODELS = {
    "Logit": logit,
    "targets": lambda: logit(targets=["x"]),
    "MomentOLS": lambda: pi.MomentOLS.from_formula("died ~ x", ROWS, schema=SCHEMA).fit(**SPEND),
    "lasso": lambda: pi.DebiasedLasso.from_formula(
        "died ~ x + C(g)", ROWS, schema=SCHEMA, family="binomial"
    ).fit(**SPEND),
    "IWPGLM": lambda: pi.IWPGLM.from_formula("died ~ x", ROWS[:2000], schema=SCHEMA, loss="logistic").fit(
        **SPEND
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_summary_states_the_level_that_counts_as_1(name, tmp_path):
    fit = MODELS[name]()
    assert fit.model.endog_names == "died"
    assert fit.model.response_level == "yes"
    for slim in (False, True):
        assert fit.summary(slim=slim).plain_facts["Response"] == CODED
    assert fit.summary(yname="deaths").plain_facts["Response"] == "deaths, 1 = 'yes'"
    assert fit.glance().response_level[0] == "yes"
    assert fit.to_dict()["facts"]["Response"] == CODED
    fit.save(tmp_path / "fit.npz")
    loaded = pi.Results.load(tmp_path / "fit.npz")
    assert (loaded.model.endog_names, loaded.model.response_level) == ("died", "yes")


def test_a_numeric_response_has_no_such_row():
    fit = logit("dead ~ x")
    assert "Response" not in fit.summary().plain_facts
    assert fit.glance().response_level[0] is None
    assert fit.get_prediction({"x": [0.5]}).quantity == "the mean of dead"


def test_margins_predictions_and_tables_state_it():
    fit = logit()
    effects = fit.get_margeff("mean")
    assert effects.summary().plain_facts["Response"] == CODED
    assert "marginal effects on the probability of died = 'yes', at the mean" in effects.to_latex()
    prediction = fit.get_prediction({"x": [0.1, 0.9], "g": ["a", "b"]})
    assert repr(prediction).startswith("Predictions of the probability of died = 'yes'\n")
    assert pickle.loads(pickle.dumps(prediction)).quantity == prediction.quantity
    for table in (fit.to_latex(), fit.to_html(), fit.odds_ratios().to_latex()):
        assert "Response: died, 1 =" in table


def test_a_comparison_states_scales_and_privacy():
    linear = pi.MomentOLS.from_formula("dead ~ x + C(g)", ROWS, schema=SCHEMA).fit(**SPEND)
    table = pi.compare([linear, logit()])
    for text in (str(table), table.to_latex()):
        flat = " ".join(text.split())
        assert "log odds" in flat
        assert "coefficients on different scales cannot be compared" in flat
        assert "Response of died: died, 1 = 'yes'." in flat
        assert "hold for the unit of privacy record and the neighboring relation replace-one" in flat
    alike = pi.compare([logit(), logit("died ~ x")])
    assert "log odds" not in str(alike)
    assert "unit of privacy" in alike.to_latex()


def test_scales_of_results_of_statsmodels_are_known():
    import statsmodels.api as sm

    fits = {
        "log odds": smf.logit("dead ~ x", ROWS).fit(disp=0),
        "mean": smf.ols("dead ~ x", ROWS).fit(),
        "log mean": smf.glm("dead ~ x", ROWS, family=sm.families.Poisson()).fit(),
        "private": logit("dead ~ x"),
    }
    line = next(line for line in str(pi.compare(fits)).splitlines() if line.startswith("scale"))
    assert line.split() == ["scale", "log", "odds", "mean", "log", "mean", "log", "odds"]


def test_anova_lm_ends_with_what_to_call():
    fit = pi.MomentOLS.from_formula("dead ~ x + C(g)", ROWS, schema=SCHEMA).fit(**SPEND)
    for typ in (1, 2, 3):
        with pytest.raises(NotAvailableError, match=r"wald_test_terms\(\)"):
            anova_lm(fit, typ=typ)
    smaller = pi.MomentOLS.from_formula("dead ~ x", ROWS, schema=SCHEMA).fit(**SPEND)
    unprotected = smf.ols("dead ~ x", ROWS).fit()
    for fits in ((smaller, fit), (unprotected, fit), (smaller, unprotected)):
        for options in ({}, {"scale": 1.0}):
            with pytest.raises(NotAvailableError, match=r"ignore the noise.*wald_test_terms\(\)"):
                anova_lm(*fits, **options)
    assert fit.ssr == pytest.approx(fit.scale * fit.nobs, rel=0.1)
    assert not any(hasattr(fit.model, name) for name in ("endog", "exog"))
    assert copy.deepcopy(fit.model) == fit.model == pickle.loads(pickle.dumps(fit.model))
