"""Time to event: survival curves, log-rank tests and hazard ratios from one noisy release of counts."""

from privinf.attributes import attach_names

_COX = "use privinf.PHReg, which is Cox regression"
_CURVES = "use KaplanMeier; its result has curves, medians, restricted means and log-rank tests"
_TEST = "use logrank, or KaplanMeier(..., by=).fit(...).logrank()"
# Names of lifelines, statsmodels and R that users may expect here.
_INSTEAD = {
    **dict.fromkeys(("CoxPHFitter", "PHReg", "coxph", "Cox"), _COX),
    **dict.fromkeys(("KaplanMeierFitter", "SurvfuncRight", "survfit", "Surv"), _CURVES),
    **dict.fromkeys(("logrank_test", "multivariate_logrank_test", "survdiff"), _TEST),
    "NelsonAalenFitter": "use NelsonAalen",
    "pairwise_logrank_test": "use logrank(...).pairwise()",
    "median_survival_times": "use KaplanMeier(...).fit(...).median()",
    "restricted_mean_survival_time": "use KaplanMeier(...).fit(...).restricted_mean(until)",
}
__getattr__, __dir__, __all__ = attach_names(__name__, __file__, _INSTEAD)
