"""What statsmodels' results have, and a result without rows has not: each says why when asked."""

from __future__ import annotations

from typing import Any

from privinf.errors import NotAvailableError

ROWS_STAY = (
    "the rows stayed with their owners, and a residual or a fitted value is a statement about one of them; "
    "predict(new_rows) works for rows at hand"
)
NO_LIKELIHOOD = (
    "the estimate solves a corrected estimating equation and has no likelihood; compare nested models by "
    "wald_test or score_test"
)
ONE_RECORD = "the influence of a single person is what the noise protects"
OTHER_COVARIANCE = (
    "another covariance is another sum over the rows, released with noise of its own: choose cov_type= when "
    "fitting"
)
NO_ROWS_HERE = "a result holds no rows that could be removed; save(records=False) leaves the release out"
NO_OPTIMIZER = (
    "no optimizer of a likelihood ran: what was released is all there is, and `identification` and the notes "
    "say whether it was enough"
)
NO_GRAM = (
    "second moments of the columns are released with noise, or not at all, and such numbers of them would be "
    "about the noise: `identification` says how far the columns stand clear of it; see cov_params() too"
)
NO_EFFECTS = (
    "of a linear mean the marginal effects are the coefficients; Logit, Poisson and GLM have get_margeff()"
)


def unavailable(name: str, reason: str) -> Any:
    """Return a property that raises NotAvailableError with the reason (so that hasattr is False)."""

    def raise_reason(self: object) -> Any:
        raise NotAvailableError(f"{name} is not available: {reason}")

    raise_reason.__name__ = name
    return property(raise_reason, doc=f"Not available: {reason}.")


class Withheld:
    """What statsmodels' results have, and a result without rows has not: each says why when asked."""

    resid = unavailable("resid", ROWS_STAY)
    wresid = unavailable("wresid", ROWS_STAY)
    resid_pearson = unavailable("resid_pearson", ROWS_STAY)
    resid_response = unavailable("resid_response", ROWS_STAY)
    resid_deviance = unavailable("resid_deviance", ROWS_STAY)
    fittedvalues = unavailable("fittedvalues", ROWS_STAY)
    compare_lm_test = unavailable("compare_lm_test", ROWS_STAY)
    get_influence = unavailable("get_influence", ONE_RECORD)
    outlier_test = unavailable("outlier_test", ONE_RECORD)
    llf = unavailable("llf", NO_LIKELIHOOD)
    aic = unavailable("aic", NO_LIKELIHOOD)
    bic = unavailable("bic", NO_LIKELIHOOD)
    info_criteria = unavailable("info_criteria", NO_LIKELIHOOD)
    deviance = unavailable("deviance", NO_LIKELIHOOD)
    null_deviance = unavailable("null_deviance", NO_LIKELIHOOD)
    llnull = unavailable("llnull", NO_LIKELIHOOD)
    prsquared = unavailable("prsquared", NO_LIKELIHOOD)
    compare_lr_test = unavailable("compare_lr_test", NO_LIKELIHOOD)
    get_robustcov_results = unavailable("get_robustcov_results", OTHER_COVARIANCE)
    remove_data = unavailable("remove_data", NO_ROWS_HERE)
    resid_working = unavailable("resid_working", ROWS_STAY)
    pearson_chi2 = unavailable("pearson_chi2", ROWS_STAY)
    pred_table = unavailable("pred_table", ROWS_STAY)
    plot_partial_residuals = unavailable("plot_partial_residuals", ROWS_STAY)
    plot_added_variable = unavailable("plot_added_variable", ROWS_STAY)
    el_test = unavailable("el_test", ROWS_STAY)
    llr = unavailable("llr", NO_LIKELIHOOD)
    llr_pvalue = unavailable("llr_pvalue", NO_LIKELIHOOD)
    mle_retvals = unavailable("mle_retvals", NO_OPTIMIZER)
    converged = unavailable("converged", NO_OPTIMIZER)
    condition_number = unavailable("condition_number", NO_GRAM)
    eigenvals = unavailable("eigenvals", NO_GRAM)
    normalized_cov_params = unavailable("normalized_cov_params", NO_GRAM)
    uncentered_tss = unavailable("uncentered_tss", NO_GRAM)
    get_margeff = unavailable("get_margeff", NO_EFFECTS)
    HC0_se = unavailable("HC0_se", OTHER_COVARIANCE)
    cov_HC0 = unavailable("cov_HC0", OTHER_COVARIANCE)
    HC1_se = unavailable("HC1_se", OTHER_COVARIANCE)
    cov_HC1 = unavailable("cov_HC1", OTHER_COVARIANCE)
    HC2_se = unavailable("HC2_se", OTHER_COVARIANCE)
    cov_HC2 = unavailable("cov_HC2", OTHER_COVARIANCE)
    HC3_se = unavailable("HC3_se", OTHER_COVARIANCE)
    cov_HC3 = unavailable("cov_HC3", OTHER_COVARIANCE)
