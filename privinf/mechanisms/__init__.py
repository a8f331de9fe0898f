"""Mechanisms: the only room that sees raw rows. Rows go in, a `Release` comes out."""

from privinf.mechanisms.modulation import Modulation, ModulationSession
from privinf.mechanisms.moments import Moments
from privinf.mechanisms.randomized_response import RandomizedResponse
from privinf.mechanisms.rows import Rows

__all__ = ["Modulation", "ModulationSession", "Moments", "RandomizedResponse", "Rows"]
