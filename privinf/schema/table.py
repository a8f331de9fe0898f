"""Schema: the public facts about a table, fixed before any row is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, SchemaError
from privinf.notebook import html_table
from privinf.schema.arrays import kinds_of, named_frame
from privinf.schema.declared import (
    DAYS,
    Blank,
    Declaration,
    Factor,
    Level,
    Numeric,
    as_dates,
    as_declaration,
)
from privinf.schema.intervals import Interval
from privinf.storage.checksummed import save_text
from privinf.typing import AnyPath, Floats, Json, Table
from privinf.typing import ResponseMode as ResponseMode
from privinf.validation import check_count, listed, nearest, shown

if TYPE_CHECKING:
    import pandas as pd
# Of the keyword schema= of a mechanism, where another argument, such as rows, is passed first.
SCHEMA_FIRST = (
    "is the first argument, but another one was passed in its place. Pass the rows to release(), as in "
    "{}(schema, 'y ~ x').release(rows, epsilon=1, delta=1e-6)"
)
HEADER = ("column", "bounds or levels", "sent", "unit")  # of a schema as it is printed


@error_boundaries
@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Schema:
    """Public description of a table: columns, their bounds or levels, public columns and the unit of privacy.

    Parameters
    ----------
    columns : mapping
        Declaration of each column by its name: a tuple ``(low, high)`` of two numbers, a list of levels, a
        `Numeric` or a `Factor`.
    public : sequence of str
        Names of the columns that are public and therefore not protected, as with ``public=True`` in their
        declaration.
    unit : str, optional
        Column that identifies the person (or firm, or household), if a person may have several rows.
    max_rows : int
        Largest number of rows of one unit. The number is public, and the sensitivity grows with it.

    Raises
    ------
    SchemaError
        Raised if a bound, a list of levels or a name is invalid, if `public` names a column that is not
        declared, or if `max_rows` is above 1 without `unit`.

    Notes
    -----
    **Privacy.** A schema is not estimated from data. Everything in a schema is public, and must be chosen
    without looking at the rows that it describes.

    Examples
    --------
    >>> import privinf as pi
    >>> columns = {"wage": (0, 200), "age": (18, 90), "region": ["north", "south"]}
    >>> schema = pi.Schema(columns, public=["region"])
    >>> schema.interval("age").high, schema.public
    (90.0, ('region',))
    """

    columns: Mapping[str, Declaration]
    public: tuple[str, ...] = ()
    unit: str | None = None
    max_rows: int = 1

    def __init__(
        self,
        columns: Mapping[str, Any],
        *,
        public: Iterable[str] = (),
        unit: str | None = None,
        max_rows: int = 1,
    ) -> None:
        if not isinstance(columns, Mapping):
            raise SchemaError("columns= must be a dict from column names to bounds or levels")
        if not columns:
            raise SchemaError("a schema needs at least one column")
        declared = {_name(name): as_declaration(name, value) for name, value in columns.items()}
        for name in _names(public, "public"):
            item = declared.get(name)
            if isinstance(item, Blank):
                raise SchemaError(f"public column {name!r} has blank bounds or levels: fill them in")
            if item is None:
                raise SchemaError(
                    f"public= names column {name!r}, which is not declared; {nearest(name, declared)}"
                )
            declared[name] = replace(item, public=True)
        if unit is not None and (not isinstance(unit, str) or unit in declared):
            raise SchemaError(
                "unit= must be the name of the column that identifies the privacy unit of each row, "
                "such as the person, and this column must not be among the declared columns"
            )
        try:
            max_rows = check_count(max_rows, "max_rows")
        except ArgumentError as error:
            raise SchemaError(str(error)) from None
        if max_rows > 1 and unit is None:
            raise SchemaError(
                "max_rows= needs unit=, the name of the column that identifies the privacy unit of "
                "each row, such as the person"
            )
        object.__setattr__(self, "columns", MappingProxyType(declared))
        object.__setattr__(self, "public", tuple(name for name, item in declared.items() if item.public))
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "max_rows", max_rows)

    def __getitem__(self, name: str) -> Declaration:
        if not isinstance(name, str) or name not in self.columns:
            close = nearest(name, self.columns) if isinstance(name, str) else "names are text"
            raise SchemaError(f"column {shown(name)} is not in the schema; {close}")
        declaration = self.columns[name]
        if isinstance(declaration, Blank):
            noun = "bounds" if declaration.kind == "number" else "levels"
            value = "(low, high)" if declaration.kind == "number" else "[...]"
            raise SchemaError(
                f"column {name!r} has blank {noun}: declare them with "
                f"schema.fill({{{name!r}: {value}}}), or estimate them privately with pi.find_bounds. "
                f"Columns with blanks: {listed(map(repr, self.blank))}"
            )
        return declaration

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Raise for a name that a schema does not have; for `design`, with its replacement."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name == "design":
                message += "; use privinf.Design.from_formula(formula, schema)"
            raise AttributeError(message, name=name, obj=self)

    @property
    def blank(self) -> tuple[str, ...]:
        """Names of the columns that have no declared bounds or levels yet."""
        return tuple(name for name, item in self.columns.items() if isinstance(item, Blank))

    def fill(self, columns: Mapping[str, Any] | Schema) -> Schema:
        """Return a copy of the schema in which some declarations are new or changed.

        Parameters
        ----------
        columns : mapping or Schema
            New declarations by the name of the column. They replace earlier declarations of the same columns.

        Returns
        -------
        Schema
            The copy. The original schema is unchanged.

        Examples
        --------
        >>> import privinf as pi
        >>> schema = pi.Schema.from_frame_names({"age": [31.0, 45.0], "region": ["north", "south"]})
        >>> schema.blank, schema.fill({"age": (18, 90)}).blank
        (('age', 'region'), ('region',))
        """
        declared = columns.columns if isinstance(columns, Schema) else columns
        if not isinstance(declared, Mapping):
            raise SchemaError("columns= must be a dict from column names to bounds or levels, or a Schema")
        filled = self._bought(Schema({**self.columns, **declared}, unit=self.unit, max_rows=self.max_rows))
        return columns._bought(filled) if isinstance(columns, Schema) else filled

    def _bought(self, schema: Schema) -> Schema:
        """Return a schema that keeps the record of released bounds that it still has."""
        return schema

    @classmethod
    def from_frame_names(cls, table: Table, *, unit: str | None = None, max_rows: int = 1) -> Schema:
        """Make a schema with the columns of a table and blank declarations, which `fill` replaces.

        The function reads the names and types of the columns, which are assumed to be public, and no values.
        Boolean columns count as numbers. A column whose declaration is blank cannot be used before `fill`
        declares it. The column that `unit` names is not in the schema.

        Parameters
        ----------
        table : table
            Table: a data frame of any library, a mapping of arrays, or the path of a file.
        unit : str, optional
            Name of the column that identifies the unit of each row. This column is not declared.
        max_rows : int
            Largest number of rows of one unit.

        Returns
        -------
        Schema
            The schema, in which all declarations are blank.
        """
        kinds = {name: kind for name, kind in kinds_of(table).items() if name != unit}
        blank = {name: Blank(kind) for name, kind in kinds.items()}
        return Schema(blank, unit=unit, max_rows=max_rows)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def interval(self, name: str) -> Interval:
        """Return the bounds of a numeric column, or the smallest and the largest level if levels are numbers.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        Interval
            The bounds.

        Raises
        ------
        SchemaError
            Raised if the column is unknown, or if its levels are not numbers.
        """
        item = self[name]
        try:
            return item.interval
        except SchemaError as error:
            raise SchemaError(f"column {name!r}: {error}") from None

    def notes(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the notes about released bounds for a fit; a schema of declared bounds has none.

        Parameters
        ----------
        names : iterable of str
            Names of the columns of the data that a fit uses.

        Returns
        -------
        tuple of str
            Notes about released bounds; empty for declared bounds.
        """
        return ()

    def expected_outside(self) -> Mapping[str, float]:
        """Return the shares of values outside their bounds that the releases of the bounds allow for.

        Returns
        -------
        mapping
            Upper limits by column; empty for declared bounds.
        """
        return {}

    def shifts(
        self, columns: Mapping[str, tuple[str, ...]], outcome: Iterable[str], params: Floats, bse: Floats
    ) -> tuple[str, ...]:
        """Return the warnings of a fit that values outside released bounds may have moved its coefficients.

        Parameters
        ----------
        columns : mapping of str to tuple of str
            For each coefficient, the columns of the data that determine the coefficient's column of the
            design matrix.
        outcome : iterable of str
            Columns of the data from which the response is computed.
        params : ndarray, shape (p,)
            Coefficients.
        bse : ndarray, shape (p,)
            Standard errors.

        Returns
        -------
        tuple of str
            Notes about released bounds; empty for declared bounds.
        """
        return ()

    def frame(self, names: Iterable[str] | None = None) -> pd.DataFrame:
        """Return simulated rows with the bounds and middles of numeric columns and all levels of factors.

        Parameters
        ----------
        names : iterable of str, optional
            Names of the columns of the simulated rows; by default all columns.

        Returns
        -------
        DataFrame
            The rows.
        """
        import pandas as pd

        chosen = list(self.columns) if names is None else list(names)
        items = {name: self[name] for name in chosen}
        rows = max([3, *(len(item.levels) for item in items.values() if isinstance(item, Factor))])
        return pd.DataFrame({name: _made_up(item, rows) for name, item in items.items()}, index=range(rows))

    def undeclared_levels(self, table: Table) -> dict[str, list[Level]]:
        """Find the values of factors that are not declared levels (for the holder of the rows only).

        Parameters
        ----------
        table : DataFrame, mapping of arrays, or table with ``to_pandas``
            Raw rows. Columns that the schema declares as numbers are not read, and columns that are absent
            are skipped. Columns with a level `other` are left out too, because the schema declares that other
            values count as this level.

        Returns
        -------
        dict of str to list
            Undeclared values by the name of the column. Each value is listed once, in order of appearance.
            Missing values do not count.

        Raises
        ------
        SchemaError
            Raised if the argument is not a table.

        Notes
        -----
        **Privacy.** The result contains values of rows without noise, and no ledger records it. Only the
        holder of the rows may see the result. The error messages of fits name the column, and never a value.

        Examples
        --------
        >>> import privinf as pi
        >>> schema = pi.Schema({"region": ["north", "south"]})
        >>> schema.undeclared_levels({"region": ["north", "South", "south", "South"]})
        {'region': ['South']}
        """
        frame = named_frame(table)
        undeclared: dict[str, list[Level]] = {}
        for name, item in self.columns.items():
            if isinstance(item, Factor) and item.other is None and name in frame.columns:
                strange = other_values(frame[name], item)
                undeclared |= {name: strange} if strange else {}
        return undeclared

    def in_days(self) -> Schema:
        """Return a copy of the schema in which dates are numbers of days since 1970-01-01.

        Returns
        -------
        Schema
            The copy. The original schema is unchanged.
        """
        dated = {
            name: replace(item, unit="")
            for name, item in self.columns.items()
            if isinstance(item, Numeric) and item.unit == DAYS
        }
        return self.fill(dated) if dated else self

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON; `from_dict` is its exact inverse.

        Returns
        -------
        dict
            For `from_dict`.
        """
        columns = {name: item.to_dict() for name, item in self.columns.items()}
        return {"columns": columns, "unit": self.unit, "max_rows": self.max_rows}

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the schema to a TOML file, which people can read and edit; `privinf.load_schema` reads it.

        Parameters
        ----------
        path : path
            The file.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if the file exists and `overwrite` is not True.
        StorageError
            Raised if the file cannot be written.
        """
        from privinf.schema.files import schema_text

        save_text(path, schema_text(self.to_dict(), self._bought_for()), overwrite=overwrite)

    def _bought_for(self) -> Json:
        """Return the record of released bounds for a file; none for declared ones."""
        return {}

    @classmethod
    def from_dict(cls, content: Json) -> Schema:
        """Make a schema from a dictionary that `to_dict` returned.

        Parameters
        ----------
        content : mapping
            Result of `to_dict`.

        Returns
        -------
        Schema
            The same schema.

        Raises
        ------
        SchemaError
            Raised if the dictionary does not describe a schema.
        """
        try:
            columns = {
                name: Blank(**item)
                if "kind" in item
                else Factor(**item)
                if "levels" in item
                else Numeric(**item)
                for name, item in content["columns"].items()
            }
            return cls(columns, unit=content["unit"], max_rows=content["max_rows"])
        except (ArgumentError, KeyError, TypeError, AttributeError):
            raise SchemaError(
                "the stored content does not describe a schema, or is damaged: use an intact copy"
            ) from None

    @property
    def digest(self) -> str:
        """SHA-256 digest of the schema as JSON, in hexadecimal; the order of columns does not matter."""
        return canonical_digest(self.to_dict())

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        cells = [HEADER, *self._cells()]
        widths = [max(len(row[k]) for row in cells) for k in range(4)]
        if not any(item.unit for item in self.columns.values()):
            widths.pop()  # of the empty column of units
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) for row in cells
        ]
        if self.unit is not None:
            lines.append(f"one unit: {self.unit!r}, at most {self.max_rows} row(s)")
        return "\n".join(["Schema", *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        limit = "" if self.unit is None else f"one unit: {self.unit!r}, at most {self.max_rows} row(s)"
        return html_table(HEADER, self._cells(), limit)

    def _cells(self) -> list[tuple[str, str, str, str]]:
        """Return a line for each column, as `HEADER` names its cells."""
        return [
            (name, _domain(item), "in clear" if item.public else "noised", item.unit)
            for name, item in self.columns.items()
        ]


def check_schema(schema: object, expected: str = "a privinf.Schema") -> Schema:
    """Return a schema; ArgumentError for anything else, with a remedy for a dict and for a table."""
    if isinstance(schema, Schema):
        return schema
    remedy = ""
    if isinstance(schema, Mapping):
        remedy = ": write privinf.Schema({...})"
    elif hasattr(schema, "columns") or hasattr(schema, "__arrow_c_stream__"):
        remedy = (
            ". Rows declare no public bounds: declare the columns in a privinf.Schema({...}), and pass the "
            "rows to release(), or to the model"
        )
    raise ArgumentError(f"schema= must be {expected}, got {type(schema).__name__}{remedy}")


def declared_levels(schema: Schema, column: str) -> tuple[Level, ...]:
    """Return the levels of a column.

    Raises SchemaError if it is not declared with levels.
    """
    item = schema[column]
    if not isinstance(item, Factor):
        yes_no = (item.low, item.high) == (0.0, 1.0)
        remedy = (
            ": declare it as [0, 1] instead of the bounds (0, 1), or use it without C()" if yes_no else ""
        )
        raise SchemaError(
            f"column {column!r} must be declared with levels, as levels = [...], to be used as a factor"
            f"{remedy}"
        )
    return item.levels


def require_number(schema: Schema, name: str) -> None:
    """Raise SchemaError if a column's levels are not numbers."""
    if schema[name].categorical:
        raise SchemaError(
            f"column {name!r} has levels that are not numbers; use it by itself or as C({name})"
        )


def canonical_digest(content: Json) -> str:
    """Return the SHA-256 of `content` as JSON with sorted keys, in hexadecimal."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def other_values(column: pd.Series[Any], declared: Factor) -> list[Level]:
    """Return the values of a column that are neither declared levels nor missing codes, each once."""
    values = column.dropna()
    return list(values[~values.isin([*declared.levels, *declared.missing_codes])].drop_duplicates())


def _made_up(item: Declaration, rows: int) -> Any:
    import pandas as pd

    if isinstance(item, Numeric):
        ends = [item.low, item.interval.middle, item.high, 0.7 * item.low + 0.3 * item.high]
        values = np.resize([value for value in ends[:3] if value not in item.coded_gaps] or ends[3:], rows)
        return as_dates(values) if item.unit == DAYS else values
    cycled = [item.levels[row % len(item.levels)] for row in range(rows)]
    return pd.Categorical(cycled, categories=list(item.levels)) if item.categorical else np.asarray(cycled)


def _domain(item: Declaration | Blank) -> str:
    if isinstance(item, Blank):
        return "blank bounds" if item.kind == "number" else "blank levels"
    if isinstance(item, Numeric):
        return f"[{item.low:g}, {item.high:g}]{_codes(item)}"
    levels = ", ".join(map(str, item.levels[:6])) + (", ..." if len(item.levels) > 6 else "")
    remark = "" if item.other is None else f", others count as {item.other}"
    return f"{{{levels}}} ({len(item.levels)} levels{remark}){_codes(item)}"


def _codes(item: Declaration) -> str:
    """Return a remark about the codes of missing values; "" without any."""
    codes = [f"{code:g}" if isinstance(code, float) else str(code) for code in item.missing_codes]
    return f", missing: {', '.join(codes)}" if codes else ""


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise SchemaError("column names must be non-empty strings")
    return name


def _names(names: Iterable[str], argument: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise SchemaError(f"{argument}= must be a list of column names, not one string")
    checked = tuple(_name(name) for name in names)
    if len(set(checked)) != len(checked):
        raise SchemaError(f"{argument}= must not name a column twice")
    return checked
