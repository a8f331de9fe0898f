from .glm.hazards.results import PHRegResults as PHRegResults
from .glm.results import FederatedGLMResults as FederatedGLMResults
from .glm.results import GLMResults as GLMResults
from .glm.results import NegativeBinomialResults as NegativeBinomialResults
from .iwp.model import IWPGLM as IWPGLM
from .iwp.results import IWPGLMResults as IWPGLMResults
from .lasso.results import LassoResults as LassoResults
from .mixing.joined import join as join
from .mixing.model import BGMOLS as BGMOLS
from .mixing.model import DGMOLS as DGMOLS
from .mixing.model import RMGMOLS as RMGMOLS
from .mixing.results import MixingResults as MixingResults
from .modulation.model import ModulatedOLS as ModulatedOLS
from .modulation.results import ModulatedOLSResults as ModulatedOLSResults
from .moments.model import MomentOLS as MomentOLS

__all__ = [
    "BGMOLS",
    "DGMOLS",
    "IWPGLM",
    "RMGMOLS",
    "FederatedGLMResults",
    "GLMResults",
    "IWPGLMResults",
    "LassoResults",
    "MixingResults",
    "ModulatedOLS",
    "ModulatedOLSResults",
    "MomentOLS",
    "NegativeBinomialResults",
    "PHRegResults",
    "join",
]
