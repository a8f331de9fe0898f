from . import datasets as datasets
from . import errors as errors
from . import federation as federation
from . import models as models
from . import plotting as plotting
from . import stats as stats
from . import survival as survival
from .accounting.budget import Budget as Budget
from .accounting.entries import LedgerEntry as LedgerEntry
from .accounting.files import LedgerFile as LedgerFile
from .accounting.ledger import Ledger as Ledger
from .accounting.planning import plan as plan
from .accounting.report import PrivacyReport as PrivacyReport
from .bounds.finding import find_bounds as find_bounds
from .bounds.found import FoundSchema as FoundSchema
from .bounds.found import load_schema as load_schema
from .glm.dome.optimizers import DOME as DOME
from .glm.dome.optimizers import DPSGD as DPSGD
from .glm.dome.optimizers import DPAdam as DPAdam
from .glm.dome.optimizers import RandomSketch as RandomSketch
from .glm.hazards.model import PHReg as PHReg
from .glm.model import GLM as GLM
from .glm.model import FederatedGLM as FederatedGLM
from .glm.named import OLS as OLS
from .glm.named import Logit as Logit
from .glm.named import Poisson as Poisson
from .glm.negative_binomial import NegativeBinomial as NegativeBinomial
from .glm.newton import Newton as Newton
from .iwp.model import IWPGLM as IWPGLM
from .lasso.model import DebiasedLasso as DebiasedLasso
from .lasso.sparse_mean import sparse_mean as sparse_mean
from .mechanisms.blocks import open_table as open_table
from .mechanisms.local.examples import LocalExamples as LocalExamples
from .mechanisms.local.modulation import Modulation as Modulation
from .mechanisms.mixing.party import PartyPlan as PartyPlan
from .mechanisms.mixing.plan import MixingPlan as MixingPlan
from .mechanisms.mixing.release import GaussianRows as GaussianRows
from .mechanisms.mixing.release import RandomMixing as RandomMixing
from .mechanisms.moments import Moments as Moments
from .mechanisms.reading import open_rows as open_rows
from .mixing.joined import join as join
from .mixing.model import BGMOLS as BGMOLS
from .mixing.model import DGMOLS as DGMOLS
from .mixing.model import RMGMOLS as RMGMOLS
from .modulation.model import ModulatedOLS as ModulatedOLS
from .moments.model import MomentOLS as MomentOLS
from .planning import Guesses as Guesses
from .planning import Study as Study
from .planning import advise as advise
from .planning import plan_study as plan_study
from .releases import Release as Release
from .releases import load_release as load_release
from .results.base import Results as Results
from .results.base import load_results as load_results
from .results.comparison import compare as compare
from .schema.arrays import add_constant as add_constant
from .schema.declared import Factor as Factor
from .schema.declared import Numeric as Numeric
from .schema.design import Design as Design
from .schema.table import Schema as Schema
from .version import __version__ as __version__

__all__ = [
    "BGMOLS",
    "DGMOLS",
    "DOME",
    "DPSGD",
    "GLM",
    "IWPGLM",
    "OLS",
    "RMGMOLS",
    "Budget",
    "DPAdam",
    "DebiasedLasso",
    "Design",
    "Factor",
    "FederatedGLM",
    "FoundSchema",
    "GaussianRows",
    "Guesses",
    "Ledger",
    "LedgerEntry",
    "LedgerFile",
    "LocalExamples",
    "Logit",
    "MixingPlan",
    "ModulatedOLS",
    "Modulation",
    "MomentOLS",
    "Moments",
    "NegativeBinomial",
    "Newton",
    "Numeric",
    "PHReg",
    "PartyPlan",
    "Poisson",
    "PrivacyReport",
    "RandomMixing",
    "RandomSketch",
    "Release",
    "Results",
    "Schema",
    "Study",
    "add_constant",
    "advise",
    "compare",
    "errors",
    "find_bounds",
    "join",
    "load_release",
    "load_results",
    "load_schema",
    "open_rows",
    "open_table",
    "plan",
    "plan_study",
    "sparse_mean",
]
