"""Why a test of statsmodels passes on our results or does not: one class a test, by what it asked for.

A test's class is the hardest of its causes, in the order of `CLASSES`: rows that no release holds come before
a gap that could be closed. A cause that `LENT` and `FAILED` do not know is "unexplained", and may not be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

CLASSES = {
    "wrong": "a number of ours differs from statsmodels', and from statsmodels' under our conventions",
    "unexplained": "fails for a cause that nobody has named",
    "rows": "asks for rows, or for what is made of single rows",
    "likelihood": "asks for a likelihood, which an estimating equation has not",
    "gap": "asks for a form, word or option that ours has not",
    "convention": "a number differs by a convention, and agrees under it",
    "rounding": "a number differs in its last digits, by more than a tolerance that is tighter still",
    "untouched": "fits none of the five models, or statsmodels skips it",
    "passes": "passes, and every number in it is ours",
}

ROWS = "rows, residuals or fitted values"
MODEL = "the model's own rows, and refits of them"
TO_FILE = (
    "removes rows from a result, or pickles them: ours holds none, and refuses to save a noise-free release"
)
EMPIRICAL = "empirical likelihood weighs every row"
OTHER_COV = "another covariance of the same fit, from the rows"
LIKELIHOOD = "log-likelihood, information criteria, likelihood ratios"
OPTIMIZER_NAMES = "names of statsmodels' optimizers"
SUMS_LENT = "is of the matrix of rows itself"
KEYWORDS = "keywords of tests and summaries"
SUMMARY2 = "summary2()"
COV_TYPES = "HC1, HAC and fixed-scale covariances"
USE_T = "fit(use_t=): ours takes t for least squares and z for likelihoods"
CODINGS = "sum coding in a formula"
NEW_ROWS = "new rows as bare lists or numbers, or without their column names"
NEW_OFFSET = "predict(offset=, exposure=)"
ODD_CONSTANT = (
    "a constant that the columns' names do not show (hasconst=, dummies of arrays, a constant last in WLS)"
)
BY_HAND = "the test sets the model's df_model by hand"
COLLINEAR = "collinear or too many columns: refused, where statsmodels takes a generalized inverse"
ALONE = "a constant alone: refused, means() are for that"
FAMILY = "families, links and weights that ours has not"
LABELS = "results.model has names alone: nobs, df_model, df_resid are of the result"
MARGINS = "get_margeff() takes the columns' means, or averages of the released Hessian"
LAYOUT = "words and layout of the summary are ours: they say what the noise did"
TEST_ROWS = "rows of a t_test are named by what they test, not c0, c1"
NO_WARNING = "a dict of new rows is taken without statsmodels' DeprecationWarning"
NAMED = "a predicted Series is called 'mean'"
PREDICTED = "names of the parts of a prediction"
T_OR_Z = "t quantiles for least squares whatever cov_type and family, where statsmodels takes z"
STOPS = "statsmodels' optimizer stops short of the root that ours finds (score .004 against 1e-14)"
CANCELS = "residual squares come from sums, and cancel to 1e-15 of the response's mean square"
DIGITS = "four decimals are asked of a number of 7e10, or eight of 60,000: equal to 1e-12"
UNCENTRED = (
    "Longley's columns without centring, since the constant of a WLS that is put last is a column like any "
    "other: equal to 1e-6, and with the constant first to 1e-10"
)
HALF = "7.75 is rounded to one decimal, whose last bit decides"
LAZY = "a lazy dict as a table"


@dataclass(frozen=True, slots=True)
class Cause:
    """A class and what it is about."""

    kind: str
    words: str


# (member, reason) of what was lent, as regular expressions, to its cause; the first that fits.
LENT: tuple[tuple[str, str, Cause], ...] = (
    ("fit", "is singular|not positive definite", Cause("gap", COLLINEAR)),
    ("fit", "besides the constant", Cause("gap", ALONE)),
    ("fit", "cov_type=", Cause("gap", COV_TYPES)),
    ("fit", r"fit\(use_t=\)", Cause("gap", USE_T)),
    ("fit", "family|weights|trials|several columns", Cause("gap", FAMILY)),
    ("from_formula", "treatment coding", Cause("gap", CODINGS)),
    ("df_model|rsquared.*|fvalue|f_pvalue|ess|mse_.*|k_constant", "by hand", Cause("gap", BY_HAND)),
    ("df_model|rsquared.*|fvalue|f_pvalue|ess|mse_.*|k_constant", "constants", Cause("gap", ODD_CONSTANT)),
    ("wald_test_terms|t_test_pairwise", "no terms", Cause("gap", CODINGS)),
    ("resid.*|wresid|fittedvalues|compare_lm_test|diagn", "", Cause("rows", ROWS)),
    (
        r"(predict|get_prediction)\(.*\)",
        "which a result does not contain|positional argument",
        Cause("rows", ROWS),
    ),
    (r"predict\((exposure=|offset=)+\)", "", Cause("gap", NEW_OFFSET)),
    (r"(predict|get_prediction)\(.*\)", "", Cause("gap", NEW_ROWS)),
    ("model.(nobs|df_model|df_resid|k_constant)", "", Cause("gap", LABELS)),
    ("model.*", "", Cause("rows", MODEL)),
    ("remove_data|_results|_cache|save.*", "", Cause("rows", TO_FILE)),
    ("el_test|conf_int_el", "", Cause("rows", EMPIRICAL)),
    ("get_robustcov_results|HC._se|_get_wald_nonlinear", "", Cause("rows", OTHER_COV)),
    ("eigenvals|condition_number|normalized_cov_params", "", Cause("rows", SUMS_LENT)),
    ("llf|aic|bic|info_criteria|compare_lr_test|llnull|.*deviance", "", Cause("likelihood", LIKELIHOOD)),
    ("mle_settings", "", Cause("likelihood", OPTIMIZER_NAMES)),
    ("summary2.*", "", Cause("gap", SUMMARY2)),
    (r"(wald_test|t_test|f_test|wald_test_terms|t_test_pairwise|summary)\(.*\)", "", Cause("gap", KEYWORDS)),
    ("centered_tss", "", Cause("gap", "centered_tss by that name: ess + ssr")),
)
CONVENTIONS = {"its optimizer stops short of the root": STOPS}
# Tests that fail with nothing else to show for it, as regular expressions.
FAILED: tuple[tuple[str, Cause], ...] = (
    ("test_pickle_wrapper", Cause("rows", TO_FILE)),
    (
        "Test(GenericPoisson|GenericLogit|GenericPoissonOffset|GenericGLMPoissonOffset)::test_",
        Cause("convention", STOPS),
    ),
    ("TestGenericGLM::test_ftest_pvalues|TestWLSPrediction::test_glm", Cause("convention", T_OR_Z)),
    ("TestPredict(OLS|GLM)::test_.d", Cause("gap", NO_WARNING)),
    ("test_prediction_results_mean_var_pred_mean", Cause("gap", PREDICTED)),
    ("test_norm_resid_zero_variance", Cause("rounding", CANCELS)),
    ("TestRTO::test_(ess|mse_resid|mse_total)|test_formula_predict$", Cause("rounding", DIGITS)),
    ("(WLS_OLS|WLS_equivalence)::test_", Cause("rounding", UNCENTRED)),
    ("test_summarycol_float_format", Cause("rounding", HALF)),
    ("summary", Cause("gap", LAYOUT)),
    ("test__repr_latex_", Cause("gap", LAYOUT)),
    ("TestDeltacovOLS::test_ttest", Cause("gap", TEST_ROWS)),
    ("test_deltacov_margeff", Cause("gap", MARGINS)),
    ("test_formula_(predict_series|missing_data)", Cause("gap", NAMED)),
    ("test_patsy_lazy_dict", Cause("gap", LAZY)),
)
# Numbers that differ, and are no wrong ones: (test, member) to its cause.
DIFFER: tuple[tuple[str, str, Cause], ...] = (
    ("test_norm_resid_zero_variance", "scale", Cause("rounding", CANCELS)),
)


def causes(name: str, seen: dict[str, Any]) -> Iterator[Cause]:
    """Yield every cause of what a test showed: its outcome, and the events of its results."""
    events, failed = seen["events"], seen["outcome"] == "failed"
    if seen["outcome"] == "skipped" or not (events or failed):
        yield Cause("untouched", CLASSES["untouched"])
        return
    for event in events:
        kind, member, reason = event.kind, event.member, event.reason
        if kind == "lent":
            yield next(
                (cause for at, why, cause in LENT if re.fullmatch(at, member) and re.search(why, reason)),
                Cause("unexplained", f"{member}: {reason}"),
            )
        elif kind == "convention":
            yield Cause("convention", CONVENTIONS.get(reason, T_OR_Z))
        elif kind == "wrong":
            yield next(
                (cause for test, at, cause in DIFFER if re.search(test, name) and at == member),
                Cause("wrong", member),
            )
    if failed:
        yield next(
            (cause for test, cause in FAILED if re.search(test, name)),
            Cause("unexplained", seen["message"][:200]),
        )


def classified(found: dict[str, dict[str, Any]]) -> dict[str, Cause]:
    """Return each test's class, with all that it is about in that class."""
    classes = {}
    for name, seen in found.items():
        all_of = dict.fromkeys(causes(name, seen))
        kind = next((kind for kind in CLASSES if any(one.kind == kind for one in all_of)), "passes")
        classes[name] = Cause(kind, "; ".join(sorted({one.words for one in all_of if one.kind == kind})))
    return classes
