"""Raw rows at their holder, and their encoding: matrix, affine map, clipping, projection.

Everything here is a function of one record at a time and of public numbers, so the sensitivities that
`Design` states hold for whatever rows arrive; nothing is counted, measured or reported about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from privinf.error_boundary import error_boundaries
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, SchemaError
from privinf.mechanisms.labels import coded
from privinf.mechanisms.sources import are_paths, no_rows
from privinf.schema import Design, Factor, Numeric, Schema
from privinf.schema.arrays import check_same_labels
from privinf.schema.declared import DAYS
from privinf.schema.reading import NO_DECLARED_LEVEL, Reader
from privinf.typing import Flags, Floats, Imputation, Integers, Missing, Table
from privinf.validation import check_choice, counted

Values = TypeVar("Values", Floats, Integers, Flags)

BLOCK = 1 << 13  # rows a block: a dozen columns of it stay in the cache
# Tables that are in memory; others are sources, read block by block.
IN_MEMORY = (np.ndarray, pd.DataFrame, list, tuple)
MESSAGES = "a release with one message per row"
ALIGNED = "a release that is joined with releases of other parties"
EACH_PARTY = "columns at several parties, because no party knows which values the others lack"
EACH_ROW = "releases of one message per row, because a message of zeros would show which rows have gaps"
NO_COUNT = (
    "missing='drop' needs a model with a constant, whose noisy sum estimates the number of complete rows: "
    "add a constant to the model"
)
ROWS_BEYOND = (
    "the table has changed since it was first read: some values of public columns are larger "
    "than the maximum of the first reading. Start again with a table that nobody writes to"
)


@error_boundaries
@dataclass(frozen=True, slots=True, repr=False)
class Rows:
    """Raw rows of a holder, which are never a part of a release.

    Attributes
    ----------
    features : DataFrame, ndarray of shape (n, p), or any other table
        Columns of the features. With a formula, these are all columns of the table.
        Tables that are not data frames are read when they are needed, by the method `opened`.
    response : ndarray of shape (n,) or None
        Response. If the response is None, it is computed from `features` by the formula.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them, impute the middle of the public bounds (for a factor, its
        first level), or drop the rows that lack a value of the regression from every sum.
    ordered : bool
        Whether rows have fixed positions. Rows of database queries and of streams have no fixed positions. If
        incomplete rows are dropped, the complete rows have no fixed positions either.
    """

    features: Any
    response: Any = None
    missing: Missing = "raise"
    ordered: bool = True

    def __post_init__(self) -> None:
        check_choice(self.missing, Missing, "missing")
        if self.response is not None:
            check_same_labels(self.features, self.response)
        if not isinstance(self.features, IN_MEMORY) or are_paths(self.features):
            from privinf.mechanisms.tables import source_of

            source = source_of(self.features)
            frame = source.in_memory()
            object.__setattr__(self, "features", source if frame is None else frame)
            object.__setattr__(self, "ordered", self.ordered and source.ordered)
        if self.missing == "drop":
            object.__setattr__(self, "ordered", False)

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory, as a data frame or as arrays."""
        return isinstance(self.features, IN_MEMORY)

    def refuse_once(self, by_places: str = "") -> None:
        """Raise an error if the rows are a stream, which can be read only once.

        Parameters
        ----------
        by_places : str
            Name of the option that needs fixed positions of the rows, for the error message.

        Raises
        ------
        NotAvailableError
            Raised if the rows are a stream, which can be read only once.
        """
        if not isinstance(self.features, IN_MEMORY) and not self.features.repeatable:
            from privinf.mechanisms.arrow import read_once

            raise read_once(self.features.name, by_places)

    def refuse_empty(self) -> None:
        """Raise AlignmentError if there are no rows in memory."""
        if self.in_memory and len(self) == 0:
            raise no_rows()

    def opened(self, columns: Iterable[str] | None = None, schema: Schema | None = None) -> Rows:
        """Read some columns, or all columns, of the rows into memory.

        Parameters
        ----------
        columns : iterable of str, optional
            Names of the columns to read; by default all columns.
        schema : Schema, optional
            Types of the columns.

        Returns
        -------
        Rows
            The rows in memory. Streams are not read.
        """
        if isinstance(self.features, IN_MEMORY):
            self.refuse_empty()
            return self
        from privinf.mechanisms.reading import collected

        frame = collected(self.features, None if columns is None else list(columns), schema or "guessed")
        if not self.features.repeatable:
            object.__setattr__(self, "features", frame)
        return replace(self, features=frame)

    def copied(self, columns: Sequence[str]) -> Rows:
        """Return the rows; a data frame is replaced by a copy of the named columns.

        A table with a unit must be copied. Without a copy, the data frame could change after the check, and a
        person could then have more rows than the check counted.

        Parameters
        ----------
        columns : sequence of str
            Columns to copy.

        Returns
        -------
        Rows
            The rows.
        """
        if not isinstance(self.features, pd.DataFrame):
            return self
        present = [name for name in columns if name in self.features.columns]
        return replace(self, features=self.features[present].copy())

    def __len__(self) -> int:
        if not isinstance(self.features, IN_MEMORY) and self.features.repeatable:
            return int(self.features.count())
        features = self.features if isinstance(self.features, IN_MEMORY) else self.opened().features
        return int(np.shape(features)[0])

    def __repr__(self) -> str:
        if isinstance(self.features, IN_MEMORY):
            return f"Rows({len(self)} rows, not shown)"
        return f"Rows(of {self.features.name}, not shown)"

    def __reduce__(self) -> Any:
        raise TypeError("raw rows cannot be pickled: pickle the release or the result instead")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class EncodedRows:
    """Rows in scaled units, inside their public bounds.

    Attributes
    ----------
    private : ndarray, shape (n, d)
    public : ndarray, shape (n, q)
        Declared-public columns, user units.
    response : ndarray, shape (n,)
        Scaled and clipped where it is protected, as it is where it is public.
    groups : ndarray of int64, shape (n,), or None
        Code of the unit (person) to which each row belongs.
    weights : ndarray, shape (n,), or None
        Public observation weights, inside their declared bounds.
    """

    private: Floats
    public: Floats
    response: Floats
    groups: Integers | None = None
    weights: Floats | None = None

    @property
    def beside(self) -> dict[str, Any]:
        """Groups and weights, where there are any, as a release has them next to its numbers."""
        arrays = {"groups": self.groups, "weights": self.weights}
        return {name: array for name, array in arrays.items() if array is not None}

    def __reduce__(self) -> Any:
        raise TypeError("encoded rows cannot be pickled: pickle the release or the result instead")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class DesignRows:
    """Rows in memory as a design reads them, in user units.

    Attributes
    ----------
    matrix : ndarray, shape (n, p)
    response : ndarray, shape (n,)
    weights : ndarray, shape (n,), or None
        Public observation weights, inside their declared bounds.
    complete : ndarray of bool, or None
        Which of the rows that were read these are, where others were dropped; None: all.
    """

    matrix: Floats
    response: Floats
    weights: Floats | None = None
    complete: Flags | None = None

    def select(self, values: Values) -> Values:
        """Return the values of these rows, from values of all rows that were read."""
        return values if self.complete is None else values[self.complete]

    def __reduce__(self) -> Any:
        raise TypeError("raw rows cannot be pickled: pickle the release or the result instead")


class Placed(Protocol):
    """A holder of rows that knows whether they have positions of their own."""

    @property
    def ordered(self) -> bool:
        """Whether they have."""


def as_rows(rows: Table, missing: Missing = "raise") -> Rows:
    """Return `rows` as `Rows`: a frame (formula designs), a pair (y, X), or `Rows` itself."""
    if isinstance(rows, Rows):
        return rows
    features, response = rows[::-1] if isinstance(rows, tuple) and len(rows) == 2 else (rows, None)
    return Rows(features, response, missing)


def outer_ends(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return bounds moved outwards by 2^-20 of half the range: values beyond them count as outside."""
    with np.errstate(over="ignore", invalid="ignore"):
        step = (high / 2.0 - low / 2.0) * 2.0**-20
        step = np.where(np.isfinite(step), step, 0.0)
        return low - step, high + step


def inputs_outside(design: Design, reader: Reader) -> Flags | None:
    """Return such marks of `Design.clipped_inputs`, shape (n, m); None where there are none."""
    if design.schema is None or not design.clipped_inputs:
        return None
    bounds = {name: design.schema.interval(name) for name in design.clipped_inputs}
    ends = outer_ends(*np.array([[one.low, one.high] for one in bounds.values()], dtype=np.float64).T)
    columns = zip(map(reader.number, bounds), *ends, strict=True)
    return np.stack([(values < low) | (values > high) for values, low, high in columns], axis=1)


def imputing(missing: Missing) -> dict[str, Any]:
    """Return the option's entries of a noise model or a site's description; none by default."""
    return {} if missing == "raise" else {"missing": missing}


def refuse_unordered(rows: Placed, subject: str) -> None:
    """Raise ArgumentError if rows have no places of their own, by which `subject` goes."""
    if not rows.ordered:
        raise ArgumentError(
            f"{subject} depends on the order of the rows. The row order of a query or stream can "
            "reveal values, and so can the places of complete rows: pass a data frame or table in memory, or "
            "the path of a file, without missing='drop'"
        )


def project_ball(x: Floats, radius: float) -> Floats:
    """Return the rows of `x` (n, d) projected into the ball of `radius`, in place."""
    with np.errstate(over="ignore"):
        for start in range(0, len(x), BLOCK):
            block = x[start : start + BLOCK]
            norms = np.sqrt(np.einsum("ij,ij->i", block, block))
            block *= np.minimum(1.0, radius / np.maximum(norms, radius))[:, None]
    return x


def encode(
    design: Design, rows: Rows, weights: str | None = None, *, seen_levels: set[str] | None = None
) -> EncodedRows:
    """Return the rows in scaled units, clipped to the public bounds and projected into the ball.

    `weights` names the column of observation weights (see `weight_bound`). With `seen_levels` the rows
    are a part of a table (see `privinf.schema.reading.Reader`): they need not be enough for a fit.

    Raises
    ------
    SchemaError
        A column is missing, has nan (with ``missing="raise"``), infinities or undeclared levels, or the
        declared constant is not all ones. The message names the column and holds no value.
    AlignmentError
        Lengths differ, there are fewer rows than coefficients, or a unit has more rows than declared.

    Notes
    -----
    **Privacy.** Reads every row, one at a time; the result never leaves the mechanisms.
    """
    refuse_dropping(rows.missing, EACH_ROW)
    rows = rows.opened(needed(design, weights), design.schema)
    response = response_of(design, rows, seen_levels)
    matrix = design.released(rows.features, missing=rows.missing, seen_levels=seen_levels)
    n = len(matrix)
    if len(response) != n:
        raise AlignmentError(
            f"the response has {len(response)} rows and the features have {n}: pass the same rows in both"
        )
    if seen_levels is None:
        check_enough(n, design)
    check_constant(design, matrix)
    return EncodedRows(
        private=scale_private(design, matrix),
        public=np.ascontiguousarray(matrix[:, ~design.private]),
        response=scaled_response(design, response),
        groups=unit_codes(design.schema, rows),
        weights=observation_weights(design, rows, weights),
    )


def check_enough(n: int, design: Design) -> None:
    """Raise AlignmentError for fewer rows than coefficients."""
    if n < (p := len(design.columns)):
        raise AlignmentError(
            f"{n} rows are too few to estimate {p} coefficients: use at least as many rows as coefficients"
        )


def needed(design: Design, weights: str | None = None) -> list[str]:
    """Return the columns of a table that a design, its response, its unit and weights are read from."""
    extra = [weights, None if design.schema is None else design.schema.unit]
    named = (*design.outcome.column.inputs, *design.inputs, *(name for name in extra if name is not None))
    return list(dict.fromkeys(named))


def response_of(design: Design, rows: Rows, seen_levels: set[str] | None = None) -> Floats:
    """Return the response, shape (n,), in user units; SchemaError where it does not fit the design.

    A response next to the table is nan where it is missing and incomplete rows are dropped.
    """
    if rows.response is None:
        return design.response_values(rows.features, missing=rows.missing, seen_levels=seen_levels)
    try:
        y = np.asarray(rows.response, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(f"response {design.response!r} is not numeric: convert it to numbers") from None
    if y.ndim != 1:
        raise ArgumentError(f"response {design.response!r} must have one dimension, got {y.ndim} dimensions")
    if np.isfinite(y.sum()) or np.isfinite(y).all():  # sums are quicker, and can overflow
        return y
    absent = np.isnan(y)
    if absent.any() and rows.missing != "drop":
        if rows.missing == "raise" or design.response_public:
            remedy = last = ""
            if not design.response_public:
                remedy = "pass missing='drop' where it is available, or "
                last = ", or pass missing='impute-public', with which estimates are usually biased"
            raise SchemaError(
                f"response {design.response!r} has missing values: {remedy}remove the rows in which it is "
                f"missing (the number of remaining rows then counts as public){last}"
            )
        bounds = design.outcome.bounds
        assert bounds is not None  # a protected response has bounds
        y = np.where(absent, bounds.middle, y)
    if np.isinf(y).any():
        raise SchemaError(f"response {design.response!r} has infinite values")
    return y


def scale_private(design: Design, matrix: Floats) -> Floats:
    """Return the private columns of a matrix in scaled units, clipped and projected, in place maybe."""
    has_public = not design.private.all()
    return in_units(design, np.ascontiguousarray(matrix[:, design.private]) if has_public else matrix)


def in_units(design: Design, x: Floats) -> Floats:
    """Return the same of private columns alone, in place."""
    units = design.center, design.scale, design.scaled_low, design.scaled_high
    center, scale, low, high = (row[design.private] for row in units)
    for start in range(0, len(x), BLOCK):
        block = x[start : start + BLOCK]
        with np.errstate(over="ignore"):  # far outside its bounds: infinite here, then clipped
            if center.any():
                block -= center
            if (scale != 1.0).any():
                block /= scale
        if np.isfinite(low).any() or np.isfinite(high).any():
            np.clip(block, low, high, out=block)
    if design.radius is not None and np.isfinite(design.radius):
        project_ball(x, design.radius)
    return x


def scaled_response(design: Design, y: Floats) -> Floats:
    """Return a protected response in scaled units inside its bounds, and a public one as it is."""
    if design.response_public:
        return np.array(y, dtype=np.float64)
    return (np.clip(y, design.y_low, design.y_high) - design.y_center) / design.y_scale


def read_rows(
    design: Design, rows: Rows, weights: str | None = None, *, seen_levels: set[str] | None = None
) -> DesignRows:
    """Return rows in memory as a design reads them, without the incomplete ones where these are dropped.

    Every value is checked before a row is dropped, so that neither the refusal of a table nor its message
    depends on which rows are complete. `seen_levels` is as for `privinf.schema.reading.Reader`: a missing
    level counts as declared.

    Raises
    ------
    SchemaError, ArgumentError
        A value of any row does not fit the design. The message holds no value.

    Notes
    -----
    **Privacy.** How many rows are complete is private: the result never leaves the mechanisms.
    """
    if rows.missing == "drop":
        return _complete_rows(design, rows, seen_levels)
    matrix = design.released(rows.features, missing=rows.missing, seen_levels=seen_levels)
    check_constant(design, matrix)
    return DesignRows(
        matrix=matrix,
        response=response_of(design, rows, seen_levels),
        weights=observation_weights(design, rows, weights),
    )


def _complete_rows(design: Design, rows: Rows, seen_levels: set[str] | None) -> DesignRows:
    """Return the complete rows; all are checked first, with stand-ins for their missing values."""
    table = rows.features
    if rows.response is not None and design.reading.is_matrix(table) and np.isfinite(table).all():
        check_constant(design, table)
        return _present(table, response_of(design, rows), None)
    reader = design.reading.open(table, "drop", seen_levels)
    reader.open(design.inputs)
    matrix = design.reading.evaluate(reader)
    if design.constant is not None:
        present = reader.complete(design.columns[design.constant].inputs)
        check_constant(design, matrix if present is None else matrix[present])
    if rows.response is not None:
        return _present(matrix, response_of(design, rows), reader.complete(design.inputs))
    outcome = design.outcome.column.inputs
    reader.open(outcome)
    response = design.reading.evaluate_response(reader)
    return _present(matrix, response, reader.complete((*design.inputs, *outcome)))


def _present(matrix: Floats, response: Floats, complete: Flags | None) -> DesignRows:
    """Return the rows that are complete, None being all, and have a response, which may be nan."""
    absent = np.isnan(response)
    if absent.any():
        complete = ~absent if complete is None else complete & ~absent
    if complete is None:
        return DesignRows(matrix=matrix, response=response)
    by_column = matrix.flags.f_contiguous  # stays so in memory: it is read column by column
    selected = matrix.T.compress(complete, axis=1).T if by_column else matrix[complete]
    return DesignRows(matrix=selected, response=response[complete], complete=complete)


def gaps_as_nan(rows: Rows) -> Rows:
    """Return rows whose lists and columns are arrays, with nan where a column of numbers has no value.

    Other values stay as they are, and are refused where they are read.
    """
    response = None if rows.response is None else _gaps_as_nan(rows.response)
    return replace(rows, features=_gaps_as_nan(rows.features), response=response)


def _gaps_as_nan(values: Any) -> Any:
    if isinstance(values, pd.DataFrame):
        return values
    try:
        array = values if isinstance(values, (np.ndarray, pd.Series)) else np.array(values, dtype=object)
        column = isinstance(array, pd.Series) or (array.dtype == object and array.ndim == 1)
        return pd.Series(array).to_numpy(dtype=np.float64, na_value=np.nan) if column else array
    except (TypeError, ValueError, OverflowError):
        return values


def check_constant(design: Design, matrix: Floats) -> None:
    """Raise SchemaError unless the declared constant is one in every row of a design matrix."""
    if design.constant is not None and not np.all(matrix[:, design.constant] == 1.0):
        raise SchemaError(
            f"column {design.names[design.constant]!r} is declared as the constant but is not all ones: set "
            "it to 1 in every row"
        )


def once_complete(missing: Missing) -> Missing:
    """Return the handling of missing values of rows among which incomplete ones were dropped already."""
    return "raise" if missing == "drop" else missing


def refuse_dropping(missing: Missing, subject: str, instead: str = "") -> Imputation:
    """Return the handling of missing values; NotAvailableError where rows cannot be dropped.

    `subject` states what is refused and why, `instead` the nearest statistic that is available.
    """
    if missing == "drop":
        remedies = f"{instead}, or use" if instead else "Use"
        raise NotAvailableError(
            f"missing='drop' is not available for {subject}. {remedies} missing='impute-public', or remove "
            "the rows with missing values. The number of remaining rows then counts as public"
        )
    return missing


def weight_bound(design: Design, weights: str | None) -> float:
    """Return the public upper bound of the observation weights; 1 without weights.

    Raises
    ------
    NotAvailableError
        The weights are not a declared-public column with positive bounds.
    """
    if weights is None:
        return 1.0
    declared = None
    if isinstance(weights, str) and design.schema is not None and weights in design.schema:
        declared = design.schema[weights]
    if not isinstance(declared, Numeric) or not declared.public or declared.low <= 0.0:
        raise NotAvailableError(
            "observation weights must be bounded and public: pass weights= as the name of a column "
            "that the schema declares as Numeric(low, high, public=True) with positive bounds"
        )
    return declared.high


def observation_weights(design: Design, rows: Rows, weights: str | None) -> Floats | None:
    """Return weights inside their bounds, shape (n,), or None; SchemaError where they are not numbers."""
    if weights is None:
        return None
    if not isinstance(rows.features, pd.DataFrame) or weights not in rows.features:
        raise SchemaError(f"the weights column {weights!r} is not among the data's columns")
    try:
        values = rows.features[weights].to_numpy(dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(f"the weights column {weights!r} is not numeric") from None
    assert design.schema is not None
    declared = design.schema[weights]
    assert isinstance(declared, Numeric)
    if not np.isfinite(values).all() or np.isin(values, declared.coded_gaps).any():
        raise SchemaError(f"the weights column {weights!r} has missing or infinite values")
    bounds = design.schema.interval(weights)
    return np.asarray(np.clip(values, bounds.low, bounds.high), dtype=np.float64)


def unit_codes(schema: Schema | None, rows: Rows) -> Integers | None:
    """Return the code of the unit of each row, shape (n,); None where the schema names no unit.

    Raises
    ------
    SchemaError
        The unit's column is absent, holds no labels, or labels of several types (see `labels.coded`).
    AlignmentError
        A unit has more rows than the schema declares.
    """
    if schema is None or schema.unit is None:
        return None
    unit = schema.unit
    if not isinstance(rows.features, pd.DataFrame) or unit not in rows.features:
        raise SchemaError(f"the unit column {unit!r} (unit= of the schema) is not among the data's columns")
    codes = coded(rows.features[unit], f"the unit column {unit!r}")
    if (codes < 0).any():
        raise SchemaError(f"the unit column {unit!r} has missing values")
    if np.bincount(codes).max(initial=0) > schema.max_rows:
        raise AlignmentError(
            f"one value of the unit column {unit!r} (unit= of the schema) has more than "
            f"max_rows={schema.max_rows} rows: raise max_rows=, or ask the holder of the data to keep at "
            f"most {counted(schema.max_rows, 'row')} of each value"
        )
    return codes


def check_levels(schema: Schema | None, names: Iterable[str], seen_levels: set[str]) -> None:
    """Raise SchemaError for a factor of whose declared levels no part of the table had any."""
    declarations = {} if schema is None else schema.columns
    for name in names:
        declared = declarations.get(name)
        if isinstance(declared, Factor) and declared.other is not None and name not in seen_levels:
            raise SchemaError(NO_DECLARED_LEVEL.format(name))


def numeric_names(design: Design) -> list[str] | None:
    """Return response and private columns where each is a column of numbers as it is; None elsewhere."""
    schema = design.schema
    columns = [design.outcome.column]
    columns += [column for column, private in zip(design.columns, design.private, strict=True) if private]
    alone = int((~design.private).sum()) == (design.constant is not None) == 1
    if schema is None or not alone or not all(column.plain for column in columns):
        return None
    names = [column.inputs[0] for column in columns]
    declared = [schema[name] for name in names if name in schema]
    numbers = [
        column
        for column in declared
        if isinstance(column, Numeric) and column.unit != DAYS and not column.missing_codes
    ]
    return names if len(numbers) == len(set(names)) == len(names) else None


# ---- sizes of public columns


@dataclass(frozen=True, slots=True)
class PublicSizes:
    """Largest absolute value of each public column, and largest squared norm of a row of them.

    A sensitivity that counts on those of a first pass over rows holds for no row beyond them, and later
    passes are held to them. Rows may come in any order, and others below them may come too: what a query
    gives need not be the same rows in every pass.

    Norms are added up column by column, so that equal rows have equal norms in every block.

    Attributes
    ----------
    columns : ndarray, shape (k,)
    norm2 : float
    """

    columns: Floats
    norm2: float

    @classmethod
    def from_array(cls, public: Floats) -> PublicSizes:
        """Return the sizes of some rows, shape (n, k)."""
        norms = np.zeros(len(public))
        for column in public.T:
            norms += column * column
        return cls(np.abs(public).max(axis=0, initial=0.0), float(norms.max(initial=0.0)))

    def joined(self, other: PublicSizes) -> PublicSizes:
        """Return the sizes of the rows of both."""
        return PublicSizes(np.maximum(self.columns, other.columns), max(self.norm2, other.norm2))

    def check(self, public: Floats) -> None:
        """Raise AlignmentError if one of some rows, shape (n, k), is larger."""
        sizes = PublicSizes.from_array(public)
        if sizes.norm2 > self.norm2 or (sizes.columns > self.columns).any():
            raise AlignmentError(ROWS_BEYOND)
