"""The models that stored files and releases refer to by name; each is imported on first use.

The floor must not import a tower, and neither may the package import `studies`, which stand beside it in its
repository. A file or a release names its model, though: this table and `studied` map names to modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any

from privinf.errors import NotAvailableError

NOTHING: Mapping[str, Any] = MappingProxyType({})  # no further words or studies


@dataclass(frozen=True, slots=True)
class StoredModel:
    """Where the results of one model come back from.

    Attributes
    ----------
    results : str
        ``"module:attribute"`` of the class.
    system : str or None
        Of the function ``(release, settings)`` that makes the estimating equation again, of the release or of
        the ``scores`` among the settings. None: the class makes it from the settings, or there is none.
    has_equation : bool
        Whether fits have an estimating equation, for score tests.
    studies : mapping of str to str
        Methods of studies: how the method's name begins, and the module of studies that made the results.
    """

    results: str
    system: str | None = None
    has_equation: bool = True
    studies: Mapping[str, str] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class Task:
    """Model and method behind a release's ``regress`` or ``classify``.

    Attributes
    ----------
    model : str
        ``"module:attribute"`` of a class with ``from_release``.
    words : mapping
        Arguments that ``from_release`` takes, with their defaults.
    method : str
        The model's method that gets all other arguments.
    """

    model: str
    words: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    method: str = "fit"


# Of all generalized linear models.
_GLM = StoredModel("privinf.glm.results:GLMResults", "privinf.glm.least_squares:stored_scores")
# Of all models of mixed rows.
_MIXED = StoredModel("privinf.mixing.results:MixingResults", "privinf.mixing.results:rebuilt_system")
# Method of studies that makes results of the debiased lasso.
_PAPER_LASSO = {"debiased lasso, the paper's algorithms": "paper.results"}
MODELS: Mapping[str, StoredModel] = {
    "ModulatedOLS": StoredModel(
        "privinf.modulation.results:ModulatedOLSResults", "privinf.modulation.equation:rebuilt_system"
    ),
    "ModulatedRegression": StoredModel(
        "privinf.results.base:Results", "privinf.modulation.equation:rebuilt_part"
    ),
    "MomentOLS": StoredModel("privinf.results.base:Results", "privinf.moments.analyses:stored_system"),
    "TwoStageLeastSquares": StoredModel("privinf.moments.iv:IVResults", "privinf.moments.analyses:stored_iv"),
    "IWPGLM": StoredModel("privinf.iwp.results:IWPGLMResults", "privinf.iwp.solving:example_system"),
    **dict.fromkeys(("OLS", "Logit", "Poisson", "GLM"), _GLM),
    "NegativeBinomial": replace(_GLM, results="privinf.glm.results:NegativeBinomialResults"),
    "FederatedGLM": replace(_GLM, results="privinf.glm.results:FederatedGLMResults"),
    "PHReg": StoredModel("privinf.glm.hazards.results:PHRegResults"),
    "DebiasedLasso": StoredModel(
        "privinf.lasso.results:LassoResults", has_equation=False, studies=_PAPER_LASSO
    ),
    "DebiasedLasso by site": StoredModel(
        "privinf.lasso.heterogeneous.results:SiteResults", has_equation=False, studies=_PAPER_LASSO
    ),
    "RMGMOLS": _MIXED,
    "DGMOLS": _MIXED,
    "BGMOLS": _MIXED,
}

TASKS: Mapping[tuple[str, str], Task] = {
    ("modulation", "regress"): Task("privinf.modulation.model:ModulatedOLS", method="regress"),
    **{
        ("moments", name): Task("privinf.moments.analyses:Analyses", method=name)
        for name in ("regress", "iv", "means", "corr", "partial_corr")
    },
    ("joined random-mixing", "regress"): Task("privinf.mixing.model:RMGMOLS", method="regress"),
    ("joined gaussian-rows", "regress"): Task("privinf.mixing.model:DGMOLS", method="regress"),
    ("local-examples", "regress"): Task("privinf.iwp.model:IWPGLM", {"loss": "squared"}),
    ("local-examples", "classify"): Task("privinf.iwp.model:IWPGLM", {"loss": "logistic"}),
}


def named(place: str) -> Any:
    """Return the attribute that ``"module:attribute"`` names."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def studied(module: str, role: str) -> ModuleType:
    """Import a module of studies, which registers its additions to the package.

    Parameters
    ----------
    module : str
        Its name below ``studies``.
    what : str
        Purpose of the module, as the error names it.

    Raises
    ------
    NotAvailableError
        studies cannot be imported here.
    """
    name = f"studies.{module}"
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not name.startswith(missing.name):
            raise
        raise NotAvailableError(
            f"{role} is in the studies of privinf's repository, and the installed package does not "
            "include them: add the root of a clone to PYTHONPATH, or run pip install -e there"
        ) from None
