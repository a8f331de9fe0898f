from .blocks import RowBlocks as RowBlocks
from .blocks import open_table as open_table
from .gaussian import noisy_scalar as noisy_scalar
from .local.examples import LocalExamples as LocalExamples
from .local.modulation import Modulation as Modulation
from .local.modulation import ModulationSession as ModulationSession
from .local.responses import RandomizedResponse as RandomizedResponse
from .mixing.party import PartyPlan as PartyPlan
from .mixing.plan import MixingPlan as MixingPlan
from .mixing.release import GaussianRows as GaussianRows
from .mixing.release import RandomMixing as RandomMixing
from .moments import Moments as Moments
from .rows import Rows as Rows
from .selection import NoisyTopK as NoisyTopK
from .selection import TopK as TopK
from .selection import private_max as private_max

__all__ = [
    "GaussianRows",
    "LocalExamples",
    "MixingPlan",
    "Modulation",
    "ModulationSession",
    "Moments",
    "NoisyTopK",
    "PartyPlan",
    "RandomMixing",
    "RandomizedResponse",
    "RowBlocks",
    "Rows",
    "TopK",
    "noisy_scalar",
    "open_table",
    "private_max",
]
