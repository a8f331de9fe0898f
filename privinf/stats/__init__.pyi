from .means import MeanResult as MeanResult
from .means import mean as mean
from .means import ttest_1samp as ttest_1samp

__all__ = ["MeanResult", "mean", "ttest_1samp"]
