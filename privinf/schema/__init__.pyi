from .arrays import add_constant as add_constant
from .declared import Factor as Factor
from .declared import Numeric as Numeric
from .design import Design as Design
from .intervals import Interval as Interval
from .table import ResponseMode as ResponseMode
from .table import Schema as Schema
from .terms import Response as Response

__all__ = ["Design", "Factor", "Interval", "Numeric", "Response", "ResponseMode", "Schema", "add_constant"]
