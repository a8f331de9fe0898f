"""Models: releases in, results out."""

from privinf.models.joined import join
from privinf.models.mixing_ols import BGMOLS, DGMOLS, RMGMOLS
from privinf.models.mixing_results import MixingResults, rebuilt_system
from privinf.models.modulated_ols import ModulatedOLS
from privinf.models.modulation_results import ModulatedOLSResults
from privinf.models.modulation_systems import modulation_system
from privinf.models.moment_ols import MomentOLS, moment_system
from privinf.results import Results, register_model

__all__ = [
    "BGMOLS",
    "DGMOLS",
    "RMGMOLS",
    "MixingResults",
    "ModulatedOLS",
    "ModulatedOLSResults",
    "MomentOLS",
    "join",
]

register_model(
    "ModulatedOLS",
    results=ModulatedOLSResults,
    system=lambda release, settings: modulation_system(release, settings["moments"]),
)
register_model("MomentOLS", results=Results, system=lambda release, settings: moment_system(release))
for _model in (RMGMOLS, DGMOLS, BGMOLS):
    register_model(_model.__name__, results=MixingResults, system=rebuilt_system)
