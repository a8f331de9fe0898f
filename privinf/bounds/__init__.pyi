from .finding import find_bounds as find_bounds
from .found import FoundSchema as FoundSchema
from .found import load_schema as load_schema

__all__ = ["FoundSchema", "find_bounds", "load_schema"]
