"""Models: releases in, results out."""

from privinf.glm.results import FederatedGLMResults
from privinf.iwp.model import IWPGLM
from privinf.iwp.results import IWPGLMResults
from privinf.iwp.solving import example_system
from privinf.lasso.results import LassoResults
from privinf.mixing.joined import join
from privinf.mixing.model import BGMOLS, DGMOLS, RMGMOLS
from privinf.mixing.results import MixingResults, rebuilt_system
from privinf.modulation.equation import modulation_system
from privinf.modulation.model import ModulatedOLS
from privinf.modulation.results import ModulatedOLSResults
from privinf.moments.model import MomentOLS, moment_system
from privinf.releases import register_task
from privinf.results import Results, register_model

__all__ = [
    "BGMOLS",
    "DGMOLS",
    "IWPGLM",
    "RMGMOLS",
    "FederatedGLMResults",
    "IWPGLMResults",
    "LassoResults",
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
register_model("IWPGLM", results=IWPGLMResults, system=example_system)
register_model("FederatedGLM", results=FederatedGLMResults, system=lambda release, settings: None)
register_model(
    "DebiasedLasso",
    results=LassoResults,
    system=lambda release, settings: None,
    studies={"debiased lasso, the paper's algorithms": "paper.results"},
)
for _model in (RMGMOLS, DGMOLS, BGMOLS):
    register_model(_model.__name__, results=MixingResults, system=rebuilt_system)

register_task("modulation", "regress", lambda release, **how: ModulatedOLS.from_release(release).fit(**how))
register_task("moments", "regress", lambda release, **how: MomentOLS.from_release(release).fit(**how))
for _model in (RMGMOLS, DGMOLS):
    register_task(
        f"joined {_model.method}",
        "regress",
        lambda release, formula, _model=_model, **how: _model.from_release(release).regress(formula, **how),
    )
register_task(
    "local-examples",
    "regress",
    lambda release, loss="squared", **how: IWPGLM.from_release(release, loss=loss).fit(**how),
)
register_task(
    "local-examples",
    "classify",
    lambda release, loss="logistic", **how: IWPGLM.from_release(release, loss=loss).fit(**how),
)
