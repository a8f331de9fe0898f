from .comparison import HazardRatiosResult as HazardRatiosResult
from .comparison import LogRankResult as LogRankResult
from .curves import SurvivalResult as SurvivalResult
from .model import KaplanMeier as KaplanMeier
from .model import NelsonAalen as NelsonAalen
from .model import logrank as logrank
from .planning import LogRankPlan as LogRankPlan
from .planning import plan_logrank as plan_logrank

__all__ = [
    "HazardRatiosResult",
    "KaplanMeier",
    "LogRankPlan",
    "LogRankResult",
    "NelsonAalen",
    "SurvivalResult",
    "logrank",
    "plan_logrank",
]
