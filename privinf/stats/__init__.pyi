from .base import StatResult as StatResult
from .comparisons import GroupsResult as GroupsResult
from .comparisons import anova_oneway as anova_oneway
from .comparisons import ttest_ind as ttest_ind
from .means import MeanResult as MeanResult
from .means import mean as mean
from .means import ttest_1samp as ttest_1samp

__all__ = ["GroupsResult", "MeanResult", "StatResult", "anova_oneway", "mean", "ttest_1samp", "ttest_ind"]
