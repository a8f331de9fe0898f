"""Schema: public columns, bounds, levels and units; formula -> frozen design. Never fitted on data."""

from privinf.schema.arrays import add_constant
from privinf.schema.declared import Factor, Numeric
from privinf.schema.design import Design
from privinf.schema.intervals import Interval
from privinf.schema.table import Schema
from privinf.schema.terms import Response
from privinf.typing import ResponseMode

__all__ = ["Design", "Factor", "Interval", "Numeric", "Response", "ResponseMode", "Schema", "add_constant"]
