from .base import Results as Results
from .base import load_results as load_results
from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .context import Context as Context
from .storage import register_model as register_model
from .variance import VarianceFormula as VarianceFormula

__all__ = [
    "Comparison",
    "Context",
    "Results",
    "VarianceFormula",
    "compare",
    "load_results",
    "register_model",
]
