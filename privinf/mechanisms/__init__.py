"""Mechanisms: the only room that sees raw rows. Rows go in, a `Release` comes out."""

from privinf.mechanisms.local_examples import LocalExamples
from privinf.mechanisms.mixing_plan import MixingPlan
from privinf.mechanisms.modulation import Modulation, ModulationSession
from privinf.mechanisms.moments import Moments
from privinf.mechanisms.noisy_scalar import noisy_scalar
from privinf.mechanisms.noisy_top_k import NoisyTopK, TopK, private_max
from privinf.mechanisms.party_plan import PartyPlan
from privinf.mechanisms.random_mixing import GaussianRows, RandomMixing
from privinf.mechanisms.randomized_response import RandomizedResponse
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.tables import RowBlocks, open_table

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
