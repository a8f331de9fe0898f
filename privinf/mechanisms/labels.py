"""Labels of rows: the person or the site of each row. They have one type and are compared by value.

A person whose id is the number 17 in one row and the text "17" in another would be two persons, so that
columns of several types are refused. Numbers are one type: 17, 17.0 and Decimal(17) are one id. Texts are
compared as they are, but for blanks around them; never as texts of one width, which end at a zero byte.
"""

from __future__ import annotations

import datetime
import math
import numbers
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd

from privinf.errors import SchemaError
from privinf.typing import Integers

# Texts that mean a missing value, in ids as in other columns of a CSV file.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")
NUMBERS = "numbers"
TRUTHS = "truth values"
TEXTS = "texts"
BYTES = "bytes"
DATES = "dates"
TIMES = "timestamps"
ZONED = "timestamps with a time zone"
# Whole numbers that floats represent exactly, by the size of the float in bytes.
EXACT = {2: 1 << 11, 4: 1 << 24, 8: 1 << 53}
_KINDS_OF_TYPES: Mapping[type, str] = {
    datetime.time: "times of day",
    datetime.timedelta: "durations",
    np.datetime64: "numpy dates",
    np.timedelta64: "numpy durations",
    pd.Period: "periods",
    UUID: "UUIDs",
}
_WHOLE_FLOAT = re.compile(r"([+-]?\d+)\.0*")


def coded(column: pd.Series[Any], name: str) -> Integers:
    """Return a column of labels as codes 0, 1, ..., as they first come, shape (n,); -1 where one is missing.

    Parameters
    ----------
    column : Series
    name : str
        What messages call it.

    Raises
    ------
    SchemaError
        It holds labels of several types, numbers that are not exact, or objects that are not labels. The
        message names types, and no value.
    """
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _of_categories(column, name)
    if isinstance(dtype, np.dtype) and dtype.kind in "iubf":
        values = column.to_numpy()
        if dtype.kind == "f":
            _check_exact(values, EXACT.get(dtype.itemsize, EXACT[8]), name)
        return np.asarray(pd.factorize(values)[0], dtype=np.int64)
    if pd.api.types.is_float_dtype(dtype):
        return coded(pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan)), name)
    return _of_objects(column.to_numpy(dtype=object), name)


def mixed(kinds: Iterable[str], name: str) -> SchemaError:
    """Return the error of labels of several types."""
    return SchemaError(
        f"{name} holds {' and '.join(sorted(kinds))}, which are values of different types. One label in two "
        "types would be counted as two labels: read the whole column as one type, for example as text with "
        "pd.read_csv(..., dtype={...: str})"
    )


def _of_categories(column: pd.Series[Any], name: str) -> Integers:
    """Return the codes of a categorical column, by its used categories."""
    codes = np.asarray(column.cat.codes, dtype=np.int64)
    present = codes >= 0
    used = np.unique(codes[present])
    lookup = np.zeros(len(column.cat.categories), dtype=np.int64)
    lookup[used] = coded(pd.Series(column.cat.categories.take(used)), name)  # two can differ by blanks alone
    codes[present] = pd.factorize(lookup[codes[present]])[0]
    return codes


def _of_objects(values: Any, name: str) -> Integers:
    """Return the codes of Python objects, by their values."""
    gaps = np.asarray(pd.isna(values), dtype=bool)
    labels = values[~gaps].tolist()
    kinds = {_kind(python_type, name) for python_type in set(map(type, labels))}
    if TIMES in kinds:
        kinds = (kinds - {TIMES}) | {_zone(value) for value in labels if isinstance(value, datetime.datetime)}
    if len(kinds) > 1:
        raise mixed(kinds, name)
    make = _VALUES.get(next(iter(kinds), ""))
    keys = labels if make is None else [make(value, name) for value in labels]
    numbered: dict[Any, int] = {}
    codes = np.full(len(values), -1, dtype=np.int64)
    codes[~gaps] = [numbered.setdefault(key, len(numbered)) for key in keys]
    if kinds == {TEXTS}:
        check_spelling(numbered, name)
    return codes


def _kind(python_type: type, name: str) -> str:
    """Return the kind of labels of a type; SchemaError for a type that has no labels."""
    if issubclass(python_type, (bool, np.bool_)):
        return TRUTHS
    if issubclass(python_type, str):
        return TEXTS
    if issubclass(python_type, bytes):
        return BYTES
    if issubclass(python_type, (numbers.Real, Decimal)) and not issubclass(python_type, np.timedelta64):
        return NUMBERS
    if issubclass(python_type, datetime.datetime):
        return TIMES
    if issubclass(python_type, datetime.date):
        return DATES
    for base, kind in _KINDS_OF_TYPES.items():
        if issubclass(python_type, base):
            return kind
    raise SchemaError(
        f"{name} must hold labels (texts or numbers), but some of its values have the Python type "
        f"{python_type.__name__}: convert these values to texts or numbers"
    )


def _zone(moment: datetime.datetime) -> str:
    return TIMES if moment.tzinfo is None else ZONED


def _number(value: Any, name: str) -> int | float:
    """Return a number as a whole one where it is one."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, (float, np.floating)):
        _check_exact(np.array([value]), EXACT.get(np.asarray(value).dtype.itemsize, EXACT[8]), name)
    elif not math.isfinite(value):
        raise _inexact(name)
    return int(value) if value == math.floor(value) else float(value)


_VALUES: Mapping[str, Callable[[Any, str], Any]] = {
    NUMBERS: _number,
    TEXTS: lambda value, name: value.strip(),
    BYTES: lambda value, name: bytes(value).strip(),
}


def _check_exact(values: Any, limit: int, name: str) -> None:
    """Refuse floats so large that two whole numbers can have become one, and infinite ones."""
    with np.errstate(invalid="ignore"):
        if (np.abs(values) >= limit).any():
            raise _inexact(name)


def _inexact(name: str) -> SchemaError:
    return SchemaError(
        f"{name} holds floating-point numbers that are too large to be exact, so two different "
        "labels may be equal: read the column as integers or as texts"
    )


def check_spelling(texts: Collection[str], name: str) -> None:
    """Refuse texts of which one spells a whole number as 17 and another one as 17.0."""
    for text in texts:
        if text.endswith((".", "0")) and (match := _WHOLE_FLOAT.fullmatch(text)) and match[1] in texts:
            raise SchemaError(
                f"{name} holds the same integer with and without a decimal point, such as 17.0 and 17. "
                "They would be counted as two labels: write all integers without a decimal point"
            )


def label_column(labels: Any) -> pd.Series[Any]:
    """Return labels, one a row, as a column that holds each as it is."""
    if isinstance(labels, pd.Series):
        return labels.reset_index(drop=True)
    if isinstance(labels, Sequence) and not isinstance(labels, (str, bytes)):
        column = np.empty(len(labels), dtype=object)
        for place, label in enumerate(labels):
            column[place] = label
        return pd.Series(column)
    array = np.asarray(labels) if not hasattr(labels, "ndim") else labels
    return pd.Series(array if array.ndim == 1 else [], dtype=None if array.ndim == 1 else object)
