"""The response of a design: protected inside public bounds, or sent in clear."""

from __future__ import annotations

from dataclasses import dataclass

from privinf.doors import doors
from privinf.errors import SchemaError
from privinf.schema.intervals import Interval
from privinf.schema.table import Schema
from privinf.schema.terms import Column


@doors
@dataclass(frozen=True, slots=True)
class Response:
    """The response of a design.

    Attributes
    ----------
    column : Column
        What it is made of.
    public : bool
        Sent in clear; then it has no bounds.
    bounds : Interval or None
        Public bounds in user units; None where `public`.

    Raises
    ------
    SchemaError
        If a protected response has no bounds, or only one possible value.
    """

    column: Column
    public: bool
    bounds: Interval | None

    def __post_init__(self) -> None:
        if self.public != (self.bounds is None):
            raise SchemaError("a response has bounds if and only if it is protected")
        if self.bounds is not None and not self.bounds.low < self.bounds.high:
            raise SchemaError(f"response {self.column.name!r} is constant over the declared bounds")

    @classmethod
    def declared(cls, schema: Schema, column: Column, *, public: bool) -> Response:
        """Return the response with bounds from the schema.

        Raises
        ------
        SchemaError
            If it is to be protected and a column that it is made of is not declared.
        """
        unknown = [name for name in column.inputs if name not in schema]
        if not public and unknown:
            raise SchemaError(
                f"response column {unknown[0]!r} is not in the schema: declare its bounds, or ask for "
                "response='public' to send it in clear"
            )
        if public or all(schema[name].public for name in column.inputs):
            return cls(column, True, None)
        return cls(column, False, column.interval(schema))

    def affine(self, *, centred: bool) -> tuple[float, float]:
        """Return centre and scale: middle and half range, or 0 and the largest size; 0 and 1 in clear."""
        if self.bounds is None:
            return 0.0, 1.0
        if not centred:
            return 0.0, self.bounds.reach
        return self.bounds.middle, 0.5 * (self.bounds.high - self.bounds.low)
