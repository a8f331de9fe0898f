"""Tests and estimates without a regression, in scipy's and statsmodels' words, one noisy release each."""

from privinf.attributes import attach_names

_TABLE = "use chi2_contingency, which tests the independence of two factors"
_NO_RANK_CORRELATION = "there is no rank correlation; pearsonr has the linear correlation of two columns"
# Names of scipy, statsmodels and numpy that users may expect here.
_INSTEAD = {
    "std": "use describe, whose table has standard deviations with intervals",
    "var": "use describe, whose table has standard deviations with intervals",
    "percentile": "use quantile",
    "quantiles": "use quantile",
    "f_oneway": "use anova_oneway",
    "oneway": "use anova_oneway",
    "tukey_hsd": "use anova_oneway(...).pairwise()",
    "ttest_rel": "use ttest_1samp for one column of differences",
    "ranksums": "use mannwhitneyu",
    "spearmanr": _NO_RANK_CORRELATION,
    "kendalltau": _NO_RANK_CORRELATION,
    "fisher_exact": _TABLE,
    "chisquare": _TABLE,
    "corr": "use pearsonr for two columns, or privinf.Moments(...).release(...).corr() for several",
    "linregress": "use privinf.OLS",
}
__getattr__, __dir__, __all__ = attach_names(__name__, __file__, _INSTEAD)
