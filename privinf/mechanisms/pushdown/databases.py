"""Tables whose sums are computed in their database, and dialects of databases.

Expressions are texts of SQL. Every condition has the same answer where nan is larger than all numbers and
equal to itself (DuckDB, PostgreSQL, Snowflake, Spark) and where it compares with nothing (BigQuery, Trino);
SQL Server has none. Constants are texts that are cast, as digits alone can be decimals to a database.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, StorageError
from privinf.mechanisms.sources import Source, Types
from privinf.schema.declared import Level
from privinf.typing import Table

LEAVE_OUT = "To read the rows instead, a part at a time, leave push_down=True out"
LARGEST_DOUBLE = sys.float_info.max
# Expressions of SQL with their names.
Layer: TypeAlias = list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """SQL dialect of one database.

    Attributes
    ----------
    double, whole, text : str
        Types of doubles, of integers of 64 bits, and of texts.
    nan : str
        Condition that the double ``{}`` is not a number.
    same : str
        Condition that the texts ``{0}`` and ``{1}`` are the same, byte by byte, whatever their collation.
    factor : str
        The double ``{}``, an integer below 10^7 in size, as a factor of products that are summed.
    total : str
        Sum of the integers ``{}``, exact up to 10^28.
    sums : int
        How many a query returns: PostgreSQL has 1,664 columns at most.
    table : str
        Number of the list of doubles ``{0}`` at the place ``{1}``, which begins at 0; without it, CASE.
    quotes : str
        Quotes before and after a name; the second one is doubled inside.
    fence : str
        What keeps a layer of a query from being copied into every use of its columns.
    escaped : bool
        Whether a backslash in a text means something else.
    checked : bool
        Whether tests run it, so that privinf does.
    """

    double: str = "DOUBLE"
    whole: str = "BIGINT"
    text: str = "VARCHAR"
    nan: str = "{} = CAST('NaN' AS DOUBLE)"
    same: str = "{0} = {1}"
    factor: str = "CAST({} AS BIGINT)"
    total: str = "SUM(CAST({} AS DECIMAL(38, 0)))"
    sums: int = 1_500
    table: str = ""
    quotes: str = '""'
    fence: str = ""
    escaped: bool = False
    checked: bool = False

    def name(self, name: str) -> str:
        """Return a column's name in quotes."""
        start, end = self.quotes[0], self.quotes[1]
        return start + name.replace(end, 2 * end) + end

    def number(self, value: float) -> str:
        """Return the very double, finite."""
        return f"CAST('{float(value)!r}' AS {self.double})"

    def literal(self, text: str) -> str:
        """Return a text."""
        if self.escaped:
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return "'" + text.replace("'", "''") + "'"

    def as_double(self, column: str, kind: str) -> str:
        """Return a column as doubles; a decimal by its digits, so that it becomes the nearest one."""
        between = {"truth": "INTEGER", "decimal": self.text}
        if kind in between:
            column = f"CAST({column} AS {between[kind]})"
        return self.double_of(column)

    def double_of(self, value: str) -> str:
        """Return an integer, or a text of digits, as a double."""
        return f"CAST({value} AS {self.double})"

    @property
    def top(self) -> str:
        """The largest double."""
        return self.number(LARGEST_DOUBLE)

    def times(self, value: str, factor: float) -> str:
        """Return value x factor, 0 where that is too small for a double: there some databases fail."""
        product = f"{value} * {self.number(factor)}"
        if factor >= 1.0:
            return product
        smallest = first_double(lambda number: number * factor > 0.0, 0.0)
        tiny = f"{value} < {self.number(smallest)} AND {value} > {self.number(-smallest)}"
        return case([(tiny, self.number(0.0))], product)

    def is_level(self, column: str, kind: str, level: Level) -> str:
        """Return the condition that a column, of texts or of doubles, holds a level."""
        if kind == "text":
            return self.same.format(f"CAST({column} AS {self.text})", self.literal(str(level)))
        return f"{column} = {self.number(float(level))}"

    def integer(self, value: str) -> str:
        """Return a double that is an integer as one."""
        return f"CAST({value} AS {self.whole})"


def first_double(holds: Callable[[float], bool], start: float) -> float:
    """Return the first double from `start` on of which something holds, as of all after it; else the largest.

    It is found by halving the doubles, which are ordered as their bits are.
    """
    below = _place(start) - 1
    last = _place(LARGEST_DOUBLE)
    while last - below > 1:
        middle = (below + last) // 2
        below, last = (below, middle) if holds(_double(middle)) else (middle, last)
    return _double(last)


def _place(number: float) -> int:
    """Return which double a number is, counted from 0."""
    bits: int = struct.unpack("<q", struct.pack("<d", abs(number)))[0]
    return int(math.copysign(1.0, number)) * bits


def _double(place: int) -> float:
    (number,) = struct.unpack("<d", struct.pack("<q", abs(place)))
    return math.copysign(number, place)


def case(branches: Sequence[tuple[str, str]], otherwise: str) -> str:
    """Return the value of the first condition that holds."""
    if not branches:
        return otherwise
    branch_texts = " ".join(f"WHEN {test} THEN {value}" for test, value in branches)
    return f"CASE {branch_texts} ELSE {otherwise} END"


def count(condition: str) -> str:
    """Return how many rows meet a condition; those for which it is unknown do not."""
    return f"SUM(CASE WHEN {condition} THEN 1 ELSE 0 END)"


DIALECTS: dict[str, Dialect] = {
    "duckdb": Dialect(
        nan="isnan({})",
        same="encode({0}) = encode({1})",
        total="SUM({})",
        factor="CAST(CAST({} AS BIGINT) AS DECIMAL(7, 0))",  # no product overflows: twice as fast
        sums=25_000,
        table="(CAST('[{0}]' AS DOUBLE[]))[{1} + 1]",
        checked=True,
    ),
    "postgres": Dialect(
        double="DOUBLE PRECISION",
        text="TEXT",
        nan="{} = CAST('NaN' AS DOUBLE PRECISION)",
        same='{0} COLLATE "C" = {1}',
        total="SUM({})",
        fence=" OFFSET 0",
        checked=True,
        table="(CAST('{{{0}}}' AS DOUBLE PRECISION[]))[{1} + 1]",
    ),
    "bigquery": Dialect(
        double="FLOAT64",
        whole="INT64",
        text="STRING",
        nan="IS_NAN({})",
        factor="CAST({} AS INT64)",
        total="SUM(CAST({} AS NUMERIC))",
        quotes="``",
        escaped=True,
    ),
    "snowflake": Dialect(same="COLLATE({0}, '') = {1}", escaped=True),
    "spark": Dialect(text="STRING", nan="isnan({})", quotes="``", escaped=True),
    "trino": Dialect(nan="is_nan({})"),
    "tsql": Dialect(
        double="FLOAT(53)",
        text="NVARCHAR(MAX)",
        nan="1 = 0",
        quotes="[]",
        same="{0} + N'.' COLLATE Latin1_General_BIN2 = N{1} + N'.'",
    ),
}


def named(prefix: str, texts: Sequence[str]) -> Layer:
    """Return expressions with numbered names."""
    return [f"{text} AS {prefix}{place}" for place, text in enumerate(texts)]


class PushedSource(Source):
    """A table whose sums are made in its database, and whose rows are not read.

    Parameters
    ----------
    name : str
    kinds : mapping of str to str
        Kinds of its columns: "number", "decimal", "truth", "text" or others.
    dialect : Dialect
    ask : callable (layers, by) -> sequence of sequences
        Runs a query and returns its rows: one, or one for each value of the column `by`.

    Notes
    -----
    **Privacy.** `ask` returns sums without noise over records, which never leave the mechanisms.
    """

    __slots__ = ("_ask", "dialect", "kinds", "name")

    ordered = False
    pushes = True

    def __init__(
        self,
        name: str,
        kinds: Mapping[str, str],
        dialect: Dialect,
        ask: Callable[[Sequence[Layer], str], Any],
    ) -> None:
        self.name: str = name
        self.kinds = kinds
        self.dialect = dialect
        self._ask = ask

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        return list(self.kinds)

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Raise NotAvailableError: rows stay where they are."""
        raise NotAvailableError(
            f"this method needs the rows of {self.name}, but push_down=True computes only sums in "
            f"the database. {LEAVE_OUT}"
        )

    def state(self) -> object:
        """Return None: nothing of it is seen before it is summed."""
        return None

    def totals(self, layers: Sequence[Layer]) -> list[int]:
        """Return the numbers of a query's one row; errors as for `grouped`."""
        return self.grouped(layers, "")[0]

    def grouped(self, layers: Sequence[Layer], by: str) -> list[list[int]]:
        """Return the numbers of a query's rows; StorageError, without the database's text, if it fails."""
        try:
            rows = self._ask(layers, by)
            return [[0 if value is None else int(value) for value in row] for row in rows]
        except (PrivinfError, MemoryError):
            raise
        except Exception:  # of any database: its text can show values
            pass
        raise StorageError(
            f"the database could not compute the sums over {self.name}. The reason is not shown, because it "
            "can contain values of rows; to see it, run a query over its columns without privinf"
        )

    def __repr__(self) -> str:
        return f"<{self.name}, summed in its database: {len(self.kinds)} columns, rows not shown>"


def pushed_source(data: Table) -> PushedSource:
    """Return the source of a DuckDB relation, or of an ibis table in DuckDB or PostgreSQL.

    Raises ArgumentError for anything else, NotAvailableError for a database that no test runs.
    """
    kinds = {(base.__module__.partition(".")[0].lstrip("_"), base.__name__) for base in type(data).__mro__}
    if ("duckdb", "DuckDBPyRelation") in kinds:
        return _relation(data)
    if ("ibis", "Table") in kinds:
        return _ibis(data)
    raise ArgumentError(
        "push_down=True needs a DuckDB relation or an ibis table, because the database computes the sums"
    )


def _relation(data: Any) -> PushedSource:
    def ask(layers: Sequence[Layer], by: str) -> Any:
        relation = data
        for layer in layers[:-1]:
            relation = relation.project(", ".join(layer))
        return relation.aggregate(", ".join(layers[-1]), by).fetchall()

    kinds = {name: _duckdb_kind(str(kind)) for name, kind in zip(data.columns, data.dtypes, strict=True)}
    return PushedSource("the DuckDB relation", kinds, DIALECTS["duckdb"], ask)


def _duckdb_kind(kind: str) -> str:
    if kind in ("DOUBLE", "FLOAT") or kind.removeprefix("U").endswith(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
    ):
        return "number"
    start = kind.partition("(")[0]
    return {
        "HUGEINT": "decimal",
        "UHUGEINT": "decimal",
        "DECIMAL": "decimal",
        "BOOLEAN": "truth",
        "VARCHAR": "text",
        "ENUM": "text",
    }.get(start, "other")


def _ibis(data: Any) -> PushedSource:
    database = data.get_backend()
    dialect = DIALECTS.get(database.name)
    if dialect is None or not dialect.checked:
        raise NotAvailableError(
            f"push_down=True is available only for DuckDB and PostgreSQL, not for {database.name}. "
            f"{LEAVE_OUT}"
        )

    def ask(layers: Sequence[Layer], by: str) -> Any:
        cursor = database.raw_sql(query(dialect, database.compile(data), layers, by))
        rows = cursor.fetchall()
        if database.name == "postgres":
            cursor.connection.rollback()
        return rows

    kinds = {name: _ibis_kind(kind) for name, kind in data.schema().items()}
    return PushedSource("the ibis table", kinds, dialect, ask)


def _ibis_kind(kind: Any) -> str:
    tests = {"truth": "boolean", "decimal": "decimal", "number": "numeric", "text": "string"}
    return next((name for name, test in tests.items() if getattr(kind, f"is_{test}")()), "other")


def query(dialect: Dialect, table: str, layers: Sequence[Layer], by: str = "") -> str:
    """Return the text of a query over a table or a subquery in brackets; `by` groups rows."""
    text = f"({table})"
    fence = ""
    for depth, layer in enumerate(layers):
        if by and depth == len(layers) - 1:
            fence = f" GROUP BY {by}"
        text = f"(SELECT {', '.join(layer)} FROM {text} AS t{depth}{fence})"
        fence = dialect.fence
    return text[1:-1]


def unfit(reason: str) -> NotAvailableError:
    """Return the error for requests without a database query."""
    return NotAvailableError(
        f"push_down=True cannot compute these sums in a database, since {reason}. {LEAVE_OUT}"
    )
