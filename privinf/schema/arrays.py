"""Designs of plain matrices, and the labelled column of ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from privinf.error_boundary import error_boundary
from privinf.errors import AlignmentError, ArgumentError, SchemaError, SensitivityError
from privinf.schema.declared import Numeric
from privinf.schema.intervals import Interval
from privinf.typing import Bounds, ColumnKind, ColumnsLike, Flags, Floats, Pair, Table
from privinf.validation import shown_name

if TYPE_CHECKING:
    import pandas as pd

CONSTANT = "const"
PUBLIC_MARK = "privinf_public"
UNBOUNDED = (-math.inf, math.inf)  # bounds of a column for which none are given
NO_BOUNDS = (
    "column {!r} has no public bounds: pass bounds= or radius=, or pass bounds='data' to use its smallest "
    "and largest values, which is not private"
)


def public_flags(names: Sequence[str], public: Iterable[str]) -> list[bool]:
    """Return for each name whether `public` declares it."""
    if isinstance(public, str):
        raise SchemaError("public= must be a list of column names, not one string")
    declared = set(public)
    if unknown := sorted(declared - set(names), key=str):
        raise SchemaError(
            f"public= names column {shown_name(unknown[0])}, which is not among the columns "
            f"{', '.join(names)}"
        )
    return [name in declared for name in names]


def aligned_bounds(
    names: Sequence[str], private: Sequence[bool], bounds: Bounds, radius: float | None
) -> list[tuple[float, float]]:
    """Return (low, high) of every column, infinite where there are no bounds.

    `bounds` is a sequence of pairs, one a private column or one a column, or a mapping by name.

    Raises
    ------
    SensitivityError
        If a private column has neither bounds nor a radius.
    SchemaError
        If the number of pairs fits nothing, a name is unknown or a pair is no pair of bounds.
    """
    hidden = [name for name, flag in zip(names, private, strict=True) if flag]
    if isinstance(bounds, str):
        raise ArgumentError(
            "bounds= must be a list of pairs (low, high); bounds='data' is only accepted by "
            "models, such as OLS"
        )
    if bounds is None:
        if hidden and radius is None:
            raise SensitivityError(NO_BOUNDS.format(hidden[0]))
        return [UNBOUNDED] * len(names)
    by_name = _by_name(names, hidden, bounds)
    if absent := [name for name in hidden if name not in by_name]:
        raise SensitivityError(f"column {absent[0]!r} has no public bounds: add it to bounds=")
    pairs = {name: checked_pair(name, pair) for name, pair in by_name.items()}
    return [(pairs[name].low, pairs[name].high) if name in pairs else UNBOUNDED for name in names]


def _by_name(names: Sequence[str], hidden: Sequence[str], bounds: Any) -> dict[str, Any]:
    if isinstance(bounds, Mapping):
        if unknown := [name for name in bounds if name not in names]:
            raise SchemaError(
                f"bounds= names column {shown_name(unknown[0])}, which is not among the columns "
                f"{', '.join(names)}"
            )
        return dict(bounds)
    try:
        pairs = list(bounds)
    except TypeError:
        raise SchemaError(
            "bounds= must be a list of pairs (low, high), or a dict from column names to such pairs"
        ) from None
    for aligned in (hidden, names):
        if len(pairs) == len(aligned):
            return dict(zip(aligned, pairs, strict=True))
    raise SchemaError(
        f"bounds= has {len(pairs)} entries; pass one pair (low, high) for each of the "
        f"{len(hidden)} private columns, or for each of all {len(names)} columns"
    )


def checked_pair(name: str, pair: Pair) -> Interval:
    """Return the bounds of column `name`.

    Raises SchemaError if `pair` is not two finite increasing numbers.
    """
    try:
        low, high = pair
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(
            f"column {shown_name(name)}: its bounds must be a pair of numbers (low, high)"
        ) from None
    try:
        return Numeric(low, high).interval
    except SchemaError as error:
        raise SchemaError(f"column {shown_name(name)}: {error}") from None


def stand_ins(names: Sequence[str], private: Flags, low: Floats, high: Floats) -> dict[str, float]:
    """Return what stands in for missing values of a matrix: middles of bounds, or 0, that of the ball."""
    values = {}
    for name, hidden, lower, upper in zip(names, private, low, high, strict=True):
        if math.isfinite(lower) and math.isfinite(upper):
            values[name] = Interval(float(lower), float(upper)).middle
        elif hidden:
            values[name] = 0.0
    return values


def made_up_rows(
    names: Sequence[str],
    low: Floats,
    high: Floats,
    *,
    reach: float,
    constant: int | None,
    response: str,
    y_bounds: Interval,
) -> pd.DataFrame:
    """Return three made-up public rows of a matrix and its response: low, middle and high of each.

    `reach` stands in for bounds that are infinite.
    """
    import pandas as pd

    lower = np.where(np.isfinite(low), low, -reach)
    upper = np.where(np.isfinite(high), high, reach)
    values = np.array([lower, 0.5 * lower + 0.5 * upper, upper])
    if constant is not None:
        values[:, constant] = 1.0
    frame = pd.DataFrame(values, columns=list(names))
    if response not in frame:
        frame[response] = [y_bounds.low, y_bounds.middle, y_bounds.high]
    return frame


def labelled(X: ColumnsLike | Table) -> Any:
    """Return a table of another library (polars, Arrow) as a frame; anything else as it is.

    Raises SchemaError for what is read in blocks: a query, a stream, a path.
    """
    table: Any = X
    kind = type(X)
    query = hasattr(kind, "to_pyarrow_batches")
    if hasattr(kind, "to_pandas") and hasattr(table, "columns") and not query:
        return table.to_pandas()
    arrow = hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "iloc")
    lazy = hasattr(kind, "collect_schema") or hasattr(kind, "to_batches")
    if query or arrow or lazy or isinstance(X, (str, PathLike)):
        source = "a path" if isinstance(X, (str, PathLike)) else kind.__name__
        raise SchemaError(
            f"X must be an array or a data frame, not {source}: to read columns from a table, use "
            "from_formula(formula, data, schema=...), or load the table as a data frame first"
        )
    return X


def check_same_labels(*columns: object) -> None:
    """Raise AlignmentError where pandas columns of one table label their rows differently.

    Other lengths are another error's. **Privacy.** No label is shown.
    """
    import pandas as pd

    indices = [column.index for column in columns if isinstance(column, (pd.Series, pd.DataFrame))]
    if any(len(index) == len(indices[0]) and not index.equals(indices[0]) for index in indices[1:]):
        raise AlignmentError(
            "the columns have different pandas indexes: sort them the same way, or pass "
            ".to_numpy() if their rows are already in the same order"
        )


def named_frame(table: Table) -> pd.DataFrame:
    """Return a table with names as a frame; SchemaError for anything else."""
    import pandas as pd

    frame = labelled(table)
    frame = pd.DataFrame(dict(frame)) if isinstance(frame, Mapping) else frame
    if not isinstance(frame, pd.DataFrame):
        raise SchemaError(f"the data must be a table with named columns, not {type(table).__name__}")
    return frame


def is_number_type(dtype: Any) -> bool:
    """Return whether columns of a pandas type hold real numbers, or truth values of whatever library."""
    import pandas as pd

    types = pd.api.types
    return types.is_bool_dtype(dtype) or (types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype))


def plain_numbers(column: Any) -> Any:
    """Return a pandas column of numbers or truth values, of whatever library, as an array; else as it is.

    Its missing values are nan.
    """
    import pandas as pd

    if (
        not isinstance(column, pd.Series)
        or isinstance(column.dtype, np.dtype)
        or not is_number_type(column.dtype)
    ):
        return column
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def kinds_of(table: Table) -> dict[str, ColumnKind]:
    """Return the kind of each column of a table with names, by its type alone; no value is looked at.

    Raises SchemaError if it is none, or a name is no text.
    """
    frame = named_frame(table)
    kinds: dict[str, ColumnKind] = {}
    for name, dtype in frame.dtypes.items():
        if not isinstance(name, str):
            raise SchemaError("column names must be strings")
        kinds[name] = "number" if is_number_type(dtype) else "levels"
    return kinds


@error_boundary
def add_constant(X: ColumnsLike, prepend: bool = True) -> pd.DataFrame:
    """Return `X` as a labelled frame with a public column of ones, ``const``.

    Parameters
    ----------
    X : DataFrame (of polars or Arrow too), or array of shape (n,) or (n, p)
        Array columns are called x1, x2, ...
    prepend : bool
        Put the constant first (default) or last.

    Returns
    -------
    DataFrame
        A copy of `X` with the constant.

    Raises
    ------
    SchemaError
        If there is a column ``const`` already, or `X` has another shape.

    Notes
    -----
    **Privacy.** The declaration that ``const`` is public travels in ``frame.attrs["privinf_public"]``;
    values are never looked at to find a constant.

    Examples
    --------
    >>> import numpy as np
    >>> frame = add_constant(np.array([[0.5, 1.0], [0.0, 2.0]]))
    >>> list(frame.columns), frame.attrs["privinf_public"]
    (['const', 'x1', 'x2'], ('const',))
    """
    import pandas as pd

    X = labelled(X)
    if isinstance(X, pd.DataFrame):
        frame = X.copy()
    else:
        array = np.asarray(X)
        if array.ndim not in (1, 2):
            raise SchemaError(f"X must have one or two dimensions, got shape {array.shape}")
        array = array[:, None] if array.ndim == 1 else array
        frame = pd.DataFrame(array, columns=[f"x{k + 1}" for k in range(array.shape[1])])
    if CONSTANT in frame.columns:
        raise SchemaError(f"X already has a column {CONSTANT!r}: declare it with public=[{CONSTANT!r}]")
    frame.insert(0 if prepend else frame.shape[1], CONSTANT, 1.0)
    frame.attrs[PUBLIC_MARK] = (*frame.attrs.get(PUBLIC_MARK, ()), CONSTANT)
    return frame
