from .association import chi2_contingency as chi2_contingency
from .association import pearsonr as pearsonr
from .base import StatResult as StatResult
from .comparisons import GroupsResult as GroupsResult
from .comparisons import anova_oneway as anova_oneway
from .comparisons import ttest_ind as ttest_ind
from .describe import Description as Description
from .describe import describe as describe
from .means import MeanResult as MeanResult
from .means import mean as mean
from .means import ttest_1samp as ttest_1samp
from .proportions import proportion_confint as proportion_confint
from .proportions import proportions_ztest as proportions_ztest
from .quantiles import QuantileResult as QuantileResult
from .quantiles import quantile as quantile
from .ranks import kruskal as kruskal
from .ranks import mannwhitneyu as mannwhitneyu
from .ranks import wilcoxon as wilcoxon

__all__ = [
    "Description",
    "GroupsResult",
    "MeanResult",
    "QuantileResult",
    "StatResult",
    "anova_oneway",
    "chi2_contingency",
    "describe",
    "kruskal",
    "mannwhitneyu",
    "mean",
    "pearsonr",
    "proportion_confint",
    "proportions_ztest",
    "quantile",
    "ttest_1samp",
    "ttest_ind",
    "wilcoxon",
]
