"""Labelled tables and columns: frames of any library, kinds of columns, the labelled column of ones."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from privinf.error_boundary import error_boundary
from privinf.errors import AlignmentError, SchemaError
from privinf.typing import ColumnKind, ColumnsLike, Table

if TYPE_CHECKING:
    import pandas as pd

CONSTANT = "const"
PUBLIC_MARK = "privinf_public"
NO_BOUNDS = (
    "column {!r} has no public bounds: pass bounds= or radius=, or pass bounds='data' to use its smallest "
    "and largest values, which is not private"
)


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
    """Return the kind of each column of a table with names, by its type alone; no value is read.

    Raises SchemaError if it is not a table, or a name is not a string.
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
    """Return `X` as a DataFrame with a public column of ones, ``const``.

    Parameters
    ----------
    X : DataFrame (of polars or Arrow too), or array of shape (n,) or (n, p)
        Features. The columns of an array get the names x1, x2, and so on.
    prepend : bool
        Whether the constant is the first column (default) or the last.

    Returns
    -------
    DataFrame
        A copy of `X` with the constant.

    Raises
    ------
    SchemaError
        Raised if `X` already has a column ``const``, or has neither one nor two dimensions.

    Notes
    -----
    **Privacy.** The attribute ``frame.attrs["privinf_public"]`` of the returned frame declares that ``const``
    is public. privinf never reads values to find a constant.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> frame = pi.add_constant(np.array([[0.5, 1.0], [0.0, 2.0]]))
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
