"""Mechanisms: the only room that sees raw rows. Rows go in, a `Release` comes out."""

from privinf.mechanisms.blocks import RowBlocks, open_table
from privinf.mechanisms.gaussian import noisy_scalar
from privinf.mechanisms.local.examples import LocalExamples
from privinf.mechanisms.local.modulation import Modulation, ModulationSession
from privinf.mechanisms.local.responses import RandomizedResponse
from privinf.mechanisms.mixing.party import PartyPlan
from privinf.mechanisms.mixing.plan import MixingPlan
from privinf.mechanisms.mixing.release import GaussianRows, RandomMixing
from privinf.mechanisms.moments import Moments
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.selection import NoisyTopK, TopK, private_max

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
