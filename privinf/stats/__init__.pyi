from .association import chi2_contingency as chi2_contingency
from .association import pearsonr as pearsonr
from .base import StatResult as StatResult
from .comparisons import GroupsResult as GroupsResult
from .comparisons import PairsResult as PairsResult
from .comparisons import anova_oneway as anova_oneway
from .comparisons import ttest_ind as ttest_ind
from .counts import CountsResult as CountsResult
from .counts import SharesResult as SharesResult
from .counts import counts as counts
from .counts import crosstab as crosstab
from .counts import histogram as histogram
from .describe import Description as Description
from .describe import describe as describe
from .means import MeanResult as MeanResult
from .means import mean as mean
from .means import ttest_1samp as ttest_1samp
from .planning import GroupPlans as GroupPlans
from .planning import SamplePlan as SamplePlan
from .planning import plan_counts as plan_counts
from .planning import plan_difference as plan_difference
from .planning import plan_mean as plan_mean
from .planning import plan_proportion as plan_proportion
from .proportions import proportion_confint as proportion_confint
from .proportions import proportions_ztest as proportions_ztest
from .quantiles import GroupQuantilesResult as GroupQuantilesResult
from .quantiles import QuantileResult as QuantileResult
from .quantiles import median as median
from .quantiles import quantile as quantile
from .ranks import kruskal as kruskal
from .ranks import mannwhitneyu as mannwhitneyu
from .ranks import wilcoxon as wilcoxon
from .totals import SumsResult as SumsResult
from .totals import sum as sum

__all__ = [
    "CountsResult",
    "Description",
    "GroupPlans",
    "GroupQuantilesResult",
    "GroupsResult",
    "MeanResult",
    "PairsResult",
    "QuantileResult",
    "SamplePlan",
    "SharesResult",
    "StatResult",
    "SumsResult",
    "anova_oneway",
    "chi2_contingency",
    "counts",
    "crosstab",
    "describe",
    "histogram",
    "kruskal",
    "mannwhitneyu",
    "mean",
    "median",
    "pearsonr",
    "plan_counts",
    "plan_difference",
    "plan_mean",
    "plan_proportion",
    "proportion_confint",
    "proportions_ztest",
    "quantile",
    "sum",
    "ttest_1samp",
    "ttest_ind",
    "wilcoxon",
]
