"""Reading columns of raw rows: types checked against the declaration; errors never show a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError, SchemaError
from privinf.schema import splines
from privinf.schema.arrays import is_number_type, labelled
from privinf.schema.declared import DAYS, Factor, Level, Numeric, date_number
from privinf.schema.intervals import Ranged
from privinf.schema.splines import Basis
from privinf.schema.table import Schema
from privinf.typing import ColumnsLike, Flags, Floats, Integers, Missing, Names, Table
from privinf.validation import check_choice, columns_phrase, nearest, spelling_alone

# What pandas may find in a column of objects that is read as numbers.
_NUMERIC_OBJECTS = ("floating", "integer", "mixed-integer-float", "boolean", "decimal", "empty")

FEW_LEVELS = 16  # levels up to which a column is compared with each of them
DOUBLE_BYTES = 8  # bytes of a double
WHOLE_DOUBLES = 2.0**53  # size below which doubles hold every integer

MISSING_VALUES = (
    "column {!r} has missing values. Pass missing='drop' where it is available (on the command line: "
    "--missing), or remove the rows in which it is missing (the number of remaining rows then counts as "
    "public), or pass missing='impute-public', with which estimates are usually biased"
)
INFINITE = (
    "column {!r} has infinite values; replace these values first, or remove their rows. The number of "
    "remaining rows then counts as public"
)
NOT_NUMBERS = (
    "column {0!r} must hold numbers, as the schema declares: convert texts by pd.to_numeric(table[{0!r}]), "
    "and in files write values like 1234.5, with a decimal point and no other symbols"
)
NOT_DATES = (
    "column {!r} must hold dates, as the schema declares. Convert it by "
    "pd.to_datetime(table[{!r}], format=...), write dates as 2013-07-01 in files, or declare "
    "numeric bounds (low, high) for a column of numbers"
)
OUTSIDE_LEVELS = (
    "column {!r} has values outside its declared levels; declare all levels, or declare "
    "bounds (low, high) if the column is a number. The owner of the data can list the "
    "undeclared values with schema.undeclared_levels(table)"
)
# The same where the levels are 0 and 1, as functions that count records read the bounds (0, 1).
OUTSIDE_ZERO_ONE = (
    "column {!r} has values outside its declared levels 0 and 1 (bounds (0, 1) mean these two levels here): "
    "declare the two values of the column as levels, as in [1, 2]; the second level counts as 1"
)
BLANKS_IN_LEVELS = (
    "column {!r} has values that differ from its declared level {!r} only by blanks: remove the "
    "blanks from the data (.str.strip() in pandas, no blanks around separators in CSV), or "
    "declare levels with blanks"
)
CASE_OF_LEVELS = (
    "column {!r} has values that differ from its declared level {!r} only by upper and lower case: use one "
    "spelling in the data (.str.capitalize() or .str.lower() in pandas) and in the schema"
)
TEXTS_FOR_NUMBERS = (
    "column {0!r} contains texts, but its declared levels are numbers: convert the column by "
    "pd.to_numeric(table[{0!r}]), or declare the levels as texts, with quotes"
)
NUMBERS_FOR_TEXTS = (
    "column {0!r} contains numbers, but its declared levels are texts: declare the levels as numbers, "
    "without quotes, or convert the column by table[{0!r}].astype(str)"
)
NO_DECLARED_LEVEL = (
    "column {!r} contains none of its declared levels: check that the data and the "
    "declared levels have the same type"
)


class Reader:
    """Columns of a table, each read and checked once.

    Parameters
    ----------
    table : DataFrame, mapping of arrays, or an object with ``to_pandas``
        The raw rows.
    schema : Schema, optional
        Declarations; without it every column is numeric and its bounds come from `middles`.
    missing : {"raise", "impute-public", "drop"}
        Whether a missing value is refused, or replaced by the middle of the bounds or the first level. With
        "drop" it is replaced too, and `complete` tells the rows without replaced values.
    middles : mapping
        Stand-in for missing values of columns that `schema` does not declare.
    seen : set of str, optional
        Where `table` is a part of one: factors whose declared levels were met are added, and no part is
        refused for holding other levels alone.

    Notes
    -----
    **Privacy.** Holds raw rows; never outlives the call that made it. Errors name columns only.
    """

    __slots__ = (
        "_absent",
        "_bases",
        "_codes",
        "_frame",
        "_middles",
        "_missing",
        "_numbers",
        "_schema",
        "_seen_levels",
    )

    def __init__(
        self,
        table: Table,
        schema: Schema | None,
        missing: Missing = "raise",
        middles: Mapping[str, float] | None = None,
        seen_levels: set[str] | None = None,
    ) -> None:
        self._missing: Missing = check_choice(missing, Missing, "missing")
        self._frame = as_frame(table)
        self._schema = schema
        self._middles = middles or {}
        self._seen_levels = seen_levels
        self._numbers: dict[str, Floats] = {}
        self._codes: dict[str, Integers] = {}
        self._bases: dict[tuple[str, Basis], Floats] = {}
        self._absent: dict[str, Flags] = {}

    def __len__(self) -> int:
        return len(self._frame)

    @property
    def drops(self) -> bool:
        """Whether rows with missing values are to be dropped."""
        return self._missing == "drop"

    def require(self, names: tuple[str, ...]) -> None:
        """Raise SchemaError unless every column is there exactly once."""
        absent = [name for name in names if name not in self._frame.columns]
        if absent:
            near = spelling_alone(absent, self._frame.columns)
            declared = {} if self._schema is None else self._schema.columns
            if declared and not near and absent[0] not in declared:
                near = f"; {absent[0]!r} is not in the schema either: {nearest(absent[0], declared)}"
            raise SchemaError(f"the data lack {columns_phrase(absent)}{near}")
        if self._frame.columns.is_unique:
            return
        twice = [name for name in names if int((self._frame.columns == name).sum()) > 1]
        if twice:
            raise SchemaError(f"the data have more than one column named {', '.join(twice)}")

    def open(self, names: Iterable[str]) -> None:
        """Read and check columns; nothing that is computed from them afterwards can fail.

        Raises SchemaError if a column is absent or there twice, has missing values (where they are not
        imputed), infinities, texts for numbers or undeclared levels. For the holder: it depends on the rows.
        """
        listed = tuple(names)
        self.require(listed)
        for name in listed:
            if isinstance(self._declared(name), Factor):
                self.codes(name)
            else:
                self.number(name)

    def keep(self) -> None:
        """Copy the columns that were read, so that later writes into the table do not change them."""
        self._numbers = {name: np.array(values) for name, values in self._numbers.items()}
        self._bases = {}

    def defects(self, names: Iterable[str]) -> dict[str, str]:
        """Return the defects of the columns that cannot be opened, by name; for the holder."""
        defects = {}
        for name in names:
            try:
                self.open((name,))
            except SchemaError as error:
                defects[name] = str(error)
        return defects

    def complete(self, names: Iterable[str]) -> Flags | None:
        """Return which rows have a value in every one of some columns that were read; None where all have.

        Notes
        -----
        **Privacy.** With ``missing="drop"`` the number of complete rows is private.
        """
        gaps = [self._absent[name] for name in names if name in self._absent]
        return ~np.logical_or.reduce(gaps) if gaps else None

    def number(self, name: str) -> Floats:
        """Return a column as numbers, finite."""
        if name not in self._numbers:
            self._numbers[name] = self._read_number(name)
        return self._numbers[name]

    def ranged(self, name: str) -> Ranged:
        """Return a declared column as numbers inside its declared bounds."""
        assert self._schema is not None
        return Ranged.from_values(self.number(name), self._schema.interval(name))

    def codes(self, name: str) -> Integers:
        """Return a factor column as positions in its declared levels."""
        if name not in self._codes:
            self._codes[name] = self._read_codes(name)
        return self._codes[name]

    def indicator(self, name: str, level: Level) -> Floats:
        """Return one where a factor column has `level`, zero elsewhere."""
        codes = self.codes(name)
        declared = self._declared(name)
        assert isinstance(declared, Factor)
        return np.asarray(codes == declared.levels.index(level), dtype=np.float64)

    def weights(self, name: str, weights: Mapping[Level, float]) -> Floats:
        """Return the weight of the level that a factor column has."""
        declared = self._declared(name)
        assert isinstance(declared, Factor)
        return np.array([weights[level] for level in declared.levels]).take(self.codes(name))

    def basis(self, name: str, basis: Basis) -> Floats:
        """Return a spline basis of a column, shape (n, basis.size)."""
        key = (name, basis)
        if key not in self._bases:
            with np.errstate(all="ignore"):
                # Of one design after the other, only the last basis is kept: they are as large as the data.
                self._bases = {key: splines.values(basis, self.number(name))}
        return self._bases[key]

    def check_types(self, names: Iterable[str]) -> None:
        """Raise SchemaError where a factor's values are texts and its levels are not, or the reverse."""
        for name in names:
            declared = self._declared(name)
            if isinstance(declared, Factor) and name in self._frame.columns:
                message = _other_type(self._frame[name], name, declared)
                if message:
                    raise SchemaError(message)

    def _declared(self, name: str) -> Numeric | Factor | None:
        return self._schema[name] if self._schema is not None and name in self._schema else None

    def _read_number(self, name: str) -> Floats:
        self.require((name,))
        declared = self._declared(name)
        if isinstance(declared, Factor):
            return np.array([float(level) for level in declared.levels]).take(self.codes(name))
        dates = isinstance(declared, Numeric) and declared.unit == DAYS
        values = _as_floats(self._frame[name], name, dates)
        codes = () if declared is None else declared.coded_gaps
        if not codes and np.isfinite(values).all():
            return values
        gaps = np.isnan(values)
        if codes:
            gaps |= np.isin(values, codes)
        if gaps.any():
            values = np.where(gaps, self._stand_in(name, declared), values)
            self._absent[name] = gaps
        if not np.isfinite(values).all():
            raise SchemaError(INFINITE.format(name))
        return values

    def _stand_in(self, name: str, declared: Numeric | None) -> float:
        self._refuse_missing(name)
        if declared is not None:
            return declared.interval.middle
        if self._missing == "drop":
            return 0.0
        if name not in self._middles:
            raise SchemaError(
                f"column {name!r} has missing values, which cannot be imputed without declared bounds: "
                "declare its bounds, or replace these values first"
            )
        return self._middles[name]

    def _refuse_missing(self, name: str) -> None:
        if self._missing == "raise":
            raise SchemaError(MISSING_VALUES.format(name))

    def _read_codes(self, name: str) -> Integers:
        self.require((name,))
        declared = self._declared(name)
        if not isinstance(declared, Factor):
            raise SchemaError(f"column {name!r} has no declared levels")
        column = self._frame[name]
        gaps = column.isna().to_numpy()
        codes = _level_codes(column, declared.levels)
        if declared.missing_codes:
            gaps = gaps | (_level_codes(column, declared.missing_codes) >= 0)
        if gaps.any():
            self._refuse_missing(name)
            codes = np.where(gaps, 0, codes)
            self._absent[name] = gaps
        if declared.other is not None:
            if (codes >= 0).any():
                names_met = {name} if self._seen_levels is None else self._seen_levels
                names_met.add(name)
            elif len(codes) and self._seen_levels is None:
                raise SchemaError(_near_levels(column, name, declared) or NO_DECLARED_LEVEL.format(name))
            codes = np.where(codes < 0, declared.levels.index(declared.other), codes)
        if (codes < 0).any():
            raise SchemaError(
                _near_levels(column[codes < 0], name, declared)
                or _other_type(column, name, declared)
                or outside_levels(name, declared)
            )
        return codes


def has_missing_codes(table: pd.DataFrame, names: Iterable[str], schema: Schema) -> Flags:
    """Return the rows of a table without blanks in which a column has one of its codes of missing values."""
    coded = np.zeros(len(table), dtype=bool)
    for name in names:
        if name not in schema:
            continue
        declared = schema[name]
        if isinstance(declared, Factor) and declared.missing_codes:
            coded |= _level_codes(table[name], declared.missing_codes) >= 0
        elif isinstance(declared, Numeric) and declared.missing_codes:
            coded |= np.isin(_as_floats(table[name], name, declared.unit == DAYS), declared.coded_gaps)
    return coded


def outside_levels(name: str, declared: Factor) -> str:
    """Return the error about values of a factor that are not among its levels."""
    form = OUTSIDE_ZERO_ONE if list(declared.levels) == [0, 1] else OUTSIDE_LEVELS
    return form.format(name)


def as_frame(table: Table) -> pd.DataFrame:
    """Return `table` as a DataFrame with one column per variable.

    Raises SchemaError if it is not a table, or its columns differ in length.
    """
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, Mapping):
        columns = {name: _one_dimensional(name, value) for name, value in table.items()}
        if len({len(value) for value in columns.values()}) > 1:
            raise SchemaError(
                "the columns of the data differ in length: each must have one value for every row"
            )
        return pd.DataFrame(columns)
    if hasattr(table, "to_pandas"):
        return as_frame(table.to_pandas())
    raise SchemaError(f"the data must be a table with named columns, not {type(table).__name__}")


def named_rows(exog: ColumnsLike, names: Names) -> ColumnsLike:
    """Return new rows that have names as a frame, and anything else as it is.

    A mapping may mix columns with single values, which hold for all rows; a Series labelled by the columns
    that are wanted is one row, another one is a column.
    """
    exog = labelled(exog)
    if isinstance(exog, pd.Series):
        row = set(exog.index) >= set(names) and len(names) > 0
        return exog.to_frame().T.infer_objects() if row else exog.to_frame()
    if not isinstance(exog, Mapping):
        return exog
    columns: dict[Any, Any] = {
        name: value.array if isinstance(value, pd.Series) else value for name, value in exog.items()
    }
    sizes = {len(value) for value in columns.values() if np.ndim(value) > 0}
    if len(sizes) > 1:
        raise ArgumentError("the columns of the new rows differ in length")
    return pd.DataFrame(columns, index=pd.RangeIndex(next(iter(sizes), 1)))


def require_columns(table: pd.DataFrame, names: Names) -> None:
    """Raise SchemaError unless new rows have every column that is wanted exactly once."""
    absent = [name for name in names if name not in table.columns]
    if absent:
        near = spelling_alone(absent, table.columns)
        raise SchemaError(f"the new rows lack {columns_phrase(absent)}{near}")
    if not table.columns.is_unique:
        twice = [name for name in names if int((table.columns == name).sum()) > 1]
        if twice:
            raise SchemaError(f"the new rows have more than one column named {', '.join(twice)}")


def kind_of(column: pd.Series[Any]) -> str:
    """Return the kind of a column, by its type; "" where it is not known."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if (isinstance(dtype, np.dtype) and dtype.kind in "biu") or pd.api.types.is_bool_dtype(dtype):
        return "numbers"
    if pd.api.types.is_numeric_dtype(dtype):
        return "" if pd.isna(column.iloc[0]) and column.isna().all() else "numbers"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "dates"
    if not pd.api.types.is_object_dtype(dtype) and not pd.api.types.is_string_dtype(dtype):
        return str(dtype)
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    return {"empty": "", "string": "texts", "boolean": "numbers", "decimal": "numbers"}.get(
        inferred, inferred
    )


def _one_dimensional(name: object, value: Any) -> Any:
    try:
        values = value if hasattr(value, "ndim") else pd.Series(value).array
    except OverflowError:  # pandas 2 on integers that no double holds
        raise SchemaError(NOT_NUMBERS.format(name)) from None
    if values.ndim != 1:
        raise SchemaError(f"column {name!r} must have one dimension")
    return values.array if isinstance(values, pd.Series) else values


def _as_floats(column: pd.Series, name: str, dates: bool = False) -> Floats:
    if dates:
        return _as_days(column, name)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if not is_number_type(column.dtype):
        objects = column.dtype == object
        if not objects or pd.api.types.infer_dtype(column, skipna=True) not in _NUMERIC_OBJECTS:
            raise SchemaError(NOT_NUMBERS.format(name))
    try:
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(NOT_NUMBERS.format(name)) from None


def _as_days(column: pd.Series, name: str) -> Floats:
    """Return a column of dates in days since 1970-01-01; SchemaError for numbers, which may have any unit."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        plain = column.dt.tz_convert("UTC").dt.tz_localize(None) if column.dt.tz is not None else column
        moments = plain.to_numpy(dtype="datetime64[us]")
        return np.where(
            np.isnat(moments), np.nan, (moments - np.datetime64(0, "us")) / np.timedelta64(1, "D")
        )
    gaps = column.isna().to_numpy()
    days = [
        np.nan if gap else date_number(value.strip() if isinstance(value, str) else value)
        for gap, value in zip(gaps, column, strict=True)
    ]
    if None in days:
        raise SchemaError(NOT_DATES.format(name, name))
    return np.array(days, dtype=np.float64)


def _near_levels(undeclared: pd.Series, name: str, declared: Factor) -> str:
    """Return the error about a value that is a declared level but for blanks around it, or for its case."""
    levels = [level for level in declared.levels if isinstance(level, str)]
    texts = [value.strip() for value in undeclared.astype(object) if isinstance(value, str)] if levels else []
    stripped = {level.strip(): level for level in levels}
    folded = {level.strip().casefold(): level for level in levels}
    for text in texts:
        if text in stripped:
            return BLANKS_IN_LEVELS.format(name, stripped[text])
    for text in texts:
        if text.casefold() in folded:
            return CASE_OF_LEVELS.format(name, folded[text.casefold()])
    return ""


def _other_type(column: pd.Series, name: str, declared: Factor) -> str:
    """Return the error about a column of texts whose levels are numbers, or the reverse; "" for others."""
    texts = isinstance(declared.levels[0], str)
    if not texts and kind_of(column) == "texts":
        return TEXTS_FOR_NUMBERS.format(name)
    return NUMBERS_FOR_TEXTS.format(name) if texts and kind_of(column) == "numbers" else ""


def _level_numbers(column: pd.Series, levels: tuple[Level, ...]) -> list[float] | None:
    """Return a few levels as doubles, if these and a column's numbers are equal where their values are."""
    dtype = column.dtype
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf" or dtype.itemsize > DOUBLE_BYTES:
        return None
    if len(levels) > FEW_LEVELS or any(isinstance(level, str) for level in levels):
        return None
    numbers = [float(level) for level in levels]
    return numbers if max(map(abs, numbers)) < WHOLE_DOUBLES else None


def _level_codes(column: pd.Series, declared: tuple[Level, ...]) -> Integers:
    """Return the position of each value in a list of levels; -1 for other values."""
    if (numbers := _level_numbers(column, declared)) is not None:
        values = column.to_numpy(dtype=np.float64)
        codes = np.full(len(values), -1, dtype=np.int64)
        for code, number in enumerate(numbers):
            codes[values == number] = code
        return codes
    levels = pd.Index(list(declared), dtype=object)
    if isinstance(column.dtype, pd.CategoricalDtype):
        categories = pd.Index(column.cat.categories, dtype=object)
        lookup = np.append(levels.get_indexer(categories), -1)
        return np.asarray(lookup[column.cat.codes.to_numpy()], dtype=np.int64)
    try:
        return np.asarray(levels.get_indexer(pd.Index(column, dtype=object)), dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.full(len(column), -1, dtype=np.int64)
