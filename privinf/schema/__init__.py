"""Schema: public columns, bounds, levels and units; formula -> frozen design. Never fitted on data."""

from privinf.schema.declared import Factor, Numeric, Schema
from privinf.schema.design import Design, Response, add_constant
from privinf.schema.intervals import Interval

__all__ = ["Design", "Factor", "Interval", "Numeric", "Response", "Schema", "add_constant"]
