"""Argument checks: each returns the normalized value or raises an error that states the remedy."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import Decimal
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from privinf.errors import ArgumentError, PrivinfError
from privinf.typing import Floats, RngLike

LONGEST_SHOWN = 80  # characters of an argument that a message quotes
# Names of columns that a message lists.
MOST_LISTED = 10
READ_ROWS = 1 << 16  # rows in memory at the same time, of those that are read on demand

SAME_TIME = 1e-9  # relative difference of two times, or of a time and an edge of a grid, that are one


def even_parts(rows: int, limit: int) -> Iterator[slice]:
    """Cut rows into the fewest, most even parts of at most `limit`."""
    size = max(-(-rows // max(-(-rows // limit), 1)), 1)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


class ReadRows:
    """Rows, or a column of them, that are read where they are wanted: slices of it are arrays.

    Parameters
    ----------
    shape : tuple of int
    read_part : callable (start, stop) -> ndarray
        Rows ``start .. stop - 1``.
    dtype : dtype
    """

    __slots__ = ("_read_part", "dtype", "shape")

    def __init__(
        self, shape: tuple[int, ...], read_part: Callable[[int, int], Any], dtype: DTypeLike = float
    ) -> None:
        self.shape = shape
        self._read_part = read_part
        self.dtype = np.dtype(dtype)

    @classmethod
    def from_function(cls, function: Callable[..., Floats], width: int, *arrays: Floats) -> ReadRows:
        """Return a function of blocks of arrays, shape (rows, width)."""
        shape = (len(arrays[0]), width)
        return cls(shape, lambda start, stop: function(*(array[start:stop] for array in arrays)))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        if not isinstance(rows, slice):
            return np.asarray(self)[rows]
        start, stop, step = rows.indices(len(self))
        if stop - start <= READ_ROWS:
            return self._read_part(start, max(start, stop))[::step]
        parts = (self._read_part(at, min(at + READ_ROWS, stop)) for at in range(start, stop, READ_ROWS))
        ahead = range(start, stop, READ_ROWS)
        return np.concatenate(
            [part[(start - at) % step :: step] for at, part in zip(ahead, parts, strict=True)]
        )

    def __iter__(self) -> Iterator[Any]:
        """Yield blocks of rows."""
        for start in range(0, len(self), READ_ROWS):
            yield self[start : start + READ_ROWS]

    def __matmul__(self, other: Floats) -> Floats:
        return np.concatenate([part @ other for part in self])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self[:], dtype=dtype)


def shown(value: object) -> str:
    """Return an argument for a message: a short number or text unchanged, of all else the type.

    An argument in the wrong place can be the caller's table.
    """
    if value is None or isinstance(value, (bool, int, float, str, np.bool_, np.integer, np.floating)):
        text = repr(value) if not isinstance(value, int) or abs(value) < 2**64 else ""
        if 0 < len(text) <= LONGEST_SHOWN:
            return text
    return type(value).__name__


def shown_name(value: object) -> str:
    """Return an unknown name for a message: a short text unchanged, of all else the type."""
    return shown(value) if isinstance(value, str) else type(value).__name__


def listed(names: Iterable[str], limit: int = MOST_LISTED) -> str:
    """Return names in one line; a long list is cut and followed by the number of further names."""
    words = list(names)
    hidden = len(words) - limit
    return ", ".join(words) if hidden <= 1 else f"{', '.join(words[:limit])} and {hidden:,} more"


def columns_phrase(names: Iterable[str]) -> str:
    """Return "the column 'a'" or "the columns 'a', 'b'" for a message."""
    words = list(names)
    return f"the column{'s' * (len(words) != 1)} {listed(map(repr, words))}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the part of a message about valid names near an unknown one: the closest, or the first."""
    words = list(names)
    alike = name.strip().casefold()
    near = [word for word in words if word.strip().casefold() == alike] or get_close_matches(name, words, 3)
    if not near:
        return f"known columns: {listed(words)}"
    hint = f"did you mean {' or '.join(map(repr, near))}?"
    return f"{hint} known columns: {listed(words)}" if len(words) <= MOST_LISTED else hint


def spelling_alone(absent: Iterable[str], present: Iterable[object]) -> str:
    """Return the part of a message about names that differ only by blanks or capitals; "" without any."""
    by_word = {name.strip().casefold(): name for name in absent}
    near = [
        (name, by_word[name.strip().casefold()])
        for name in present
        if isinstance(name, str) and name.strip().casefold() in by_word
    ]
    notes = [
        f"its column {name!r} differs from {declared!r} only by "
        + ("blanks" if name.strip() == declared.strip() else "capital letters or blanks")
        for name, declared in near
    ]
    return f"; {listed(notes)}: rename it, or declare the name exactly as it is in the data" if notes else ""


def counted(number: int, noun: str) -> str:
    """Return ``1 round``, ``2 rounds``."""
    return f"{number} {noun}" + "s" * (number != 1)


def error_text(error: Exception) -> str:
    """Return the part of an exception that a message may state: our own text, a missing key, or nothing."""
    if isinstance(error, PrivinfError):
        return str(error)
    if isinstance(error, KeyError) and error.args:
        return f"{shown(error.args[0])} is missing"
    return "one of its fields has a value of the wrong type"


def real_number(value: object) -> float | None:
    """Return one real number as a float, infinity if it is too large for one; None for all else."""
    if type(value) is float:  # most values: a check by abstract classes takes ten times as long
        return value
    if not isinstance(value, (numbers.Real, Decimal)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]
    except (TypeError, ValueError):
        return None


def check_choice(value: object, choices: object, name: str) -> Any:
    """Return `value` if it is one of `choices` (a ``Literal`` or a sequence), else raise ArgumentError."""
    allowed = getattr(choices, "__args__", None) or tuple(cast(Iterable[object], choices))
    if not isinstance(value, (str, int, float, type(None))) or value not in allowed:
        raise ArgumentError(f"{name}={shown(value)} is not one of {', '.join(map(repr, allowed))}")
    return value


LEVERAGE = (
    "is not available, because it needs the leverage and residual of every row, which no release "
    "contains: pass cov_type='HC1'"
)
ORDER = (
    "is not available, because it needs the order of the rows, which no release contains: pass "
    "cov_type='HC0', or declare the rows that belong together by unit= in the schema"
)
OTHER_COVARIANCES = {
    "HC1": (
        "is not available here: pass cov_type='HC0', whose sampling part times the public "
        "factor n/(n - p) equals that of HC1"
    ),
    **dict.fromkeys(("HC2", "HC3"), LEVERAGE),
    **dict.fromkeys(("HAC", "hac-panel", "hac-groupsum"), ORDER),
    "fixed scale": "is not available, as it assumes a known residual variance: pass cov_type='nonrobust'",
    "cluster": (
        "is only available if the schema declares a unit: declare the column that identifies "
        "the cluster by Schema(..., unit=, max_rows=). To estimate an effect of each cluster, "
        "write C(cluster) in the formula"
    ),
}


def check_cov_type(value: object, choices: object) -> Any:
    """Return `value` if it is one of `choices`, else raise ArgumentError, for those of statsmodels why."""
    allowed: tuple[object, ...] = getattr(choices, "__args__", None) or tuple(cast(Iterable[object], choices))
    if isinstance(value, str) and value not in allowed and (reason := OTHER_COVARIANCES.get(value)):
        raise ArgumentError(f"cov_type={value!r} {reason}")
    return check_choice(value, choices, "cov_type")


def check_number(
    value: object,
    name: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    infinite: bool = False,
) -> float:
    """Return `value` as a float inside the stated interval; nan is never accepted."""
    number = None if isinstance(value, (bool, np.bool_)) else real_number(value)
    if number is None:
        raise ArgumentError(f"{name} must be a number, got {type(value).__name__}")
    below = number <= low if open_low else number < low
    above = number >= high if open_high else number > high
    if math.isnan(number) or (math.isinf(number) and not infinite) or below or above:
        opening = "(" if open_low else "["
        closing = ")" if open_high else "]"
        raise ArgumentError(f"{name}={shown(value)} must lie in {opening}{low:g}, {high:g}{closing}")
    return number


def check_positive(value: object, name: str, *, infinite: bool = False) -> float:
    """Return `value` as a float > 0 (infinity only where `infinite`)."""
    return check_number(value, name, low=0.0, open_low=True, infinite=infinite)


def check_fraction(value: object, name: str) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    return check_number(value, name, low=0.0, high=1.0, open_low=True, open_high=True)


USUAL_DELTA = 1e-6  # that messages suggest, or less where n is large
DELTA_MISSING = (
    "delta= is missing: Gaussian noise needs it in addition to epsilon=. A common choice "
    "is delta={:g}, and delta should be at most 1/n{}{}"
)
NO_PURE = (
    "delta=0 means pure epsilon, which Gaussian noise cannot provide. A common choice is "
    "delta={:g}, and delta should be at most 1/n{}{}"
)


def _delta_text(text: str, n: int | None, pure: str) -> str:
    """Return a message about delta that names a value; `n` records, where their number is known."""
    usual = USUAL_DELTA if n is None else min(USUAL_DELTA, 10.0 ** (math.floor(-math.log10(n)) - 1))
    one_record = "" if n is None else f" = {1.0 / n:.3g}"
    return text.format(usual, one_record, f". {pure}" if pure else "")


def delta_missing(n: int | None = None, pure: str = "") -> str:
    """Return the remedy where epsilon was named without delta.

    Parameters
    ----------
    n : int, optional
        Number of records, where it is known.
    pure : str
        How pure epsilon is requested, where the mechanism has it.
    """
    return _delta_text(DELTA_MISSING, n, pure)


def is_zero(delta: object) -> bool:
    """Return whether a delta of 0 was named, which requests pure epsilon."""
    return isinstance(delta, numbers.Real) and not isinstance(delta, (bool, np.bool_)) and delta == 0


def check_delta(value: object, *, n: int | None = None, pure: str = "") -> float:
    """Return a delta beside an epsilon, in (0, 1); ArgumentError, with a value to name, for 0 and None."""
    if value is None:
        raise ArgumentError(delta_missing(n, pure))
    if is_zero(value):
        raise ArgumentError(_delta_text(NO_PURE, n, pure))
    return check_fraction(value, "delta")


def reporting_delta(epsilon: float | None, delta: float | None, n: int) -> float:
    """Return the delta at which a fit of Gaussian releases is reported.

    It is the one that was named. With `mu` or `rho`, and without noise, none is needed, and it is 1/(2n).

    Raises
    ------
    ArgumentError
        There is a finite epsilon without a delta, or it is outside (0, 1).
    """
    if epsilon is not None and not (isinstance(epsilon, numbers.Real) and math.isinf(epsilon)):
        return check_delta(delta, n=n)
    return 0.5 / n if delta is None else check_fraction(delta, "delta")


def check_count(value: object, name: str, *, least: int = 1) -> int:
    """Return `value` as an int >= `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ArgumentError(f"{name} must be a whole number, got {shown(value)}")
    if value < least:
        raise ArgumentError(f"{name}={shown(value)} must be at least {least}")
    return int(value)


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text: a half of a character (a lone surrogate) has no code."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_array(value: ArrayLike, name: str, *, ndim: int, finite: bool = True, copy: bool = True) -> Floats:
    """Return `value` as a float64 array of `ndim` dimensions, finite unless stated otherwise.

    Without `copy` it is `value` itself where it can be: rows, which are only read, may fill the memory.
    `ReadRows` pass unchanged, since their constructor has checked that they are finite.
    """
    if isinstance(value, ReadRows) and value.ndim == ndim:
        return cast(Floats, value)
    try:
        raw = np.asarray(value)
        if raw.dtype == np.float64:
            array = raw.astype(np.float64, copy=copy)
        else:
            casting: Literal["unsafe", "no"] = "unsafe" if raw.dtype.kind in "biufO" else "no"
            with np.errstate(over="ignore"):
                array = raw.astype(np.float64, casting=casting, copy=copy)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name} must be numeric") from None
    if array.ndim != ndim:
        raise ArgumentError(f"{name} must have {counted(ndim, 'dimension')}, got shape {array.shape}")
    # The ends are nan if any entry is, and take no array of flags.
    if finite and not (math.isfinite(array.min(initial=0.0)) and math.isfinite(array.max(initial=0.0))):
        raise ArgumentError(f"{name} has nan or infinite entries")
    return array


def kept_array(value: ArrayLike, name: str, *, ndim: int) -> Floats:
    """Return `value` as `check_array` does, read-only; it is copied only where others may write in it."""
    reusable = isinstance(value, np.ndarray) and value.base is None and not value.flags.writeable
    array = check_array(value, name, ndim=ndim, copy=not reusable)
    array.flags.writeable = False
    return array


def check_flag(value: object, name: str) -> bool:
    """Return True or False, and nothing that merely counts as one."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{name} must be True or False, got {type(value).__name__}")
    return bool(value)


def check_path(value: object, name: str = "path") -> Path:
    """Return the path of a file or folder."""
    if not isinstance(value, (str, PathLike)) or not str(value) or "\0" in str(value):
        raise ArgumentError(
            f"{name} must be a path (a nonempty string or path object without zero bytes), got {shown(value)}"
        )
    return Path(value)


def check_vacant(value: object, overwrite: object = False) -> Path:
    """Return the path of a file to be written; ArgumentError if one is there and may not be replaced."""
    path = check_path(value)
    if not check_flag(overwrite, "overwrite") and path.exists():
        raise ArgumentError(
            f"{path} already exists: choose another name, or pass overwrite=True to replace it"
        )
    return path


def as_generator(rng: RngLike, name: str = "rng") -> np.random.Generator:
    """Return a numpy Generator from None (fresh entropy), a seed >= 0 or a Generator."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None:
        return np.random.default_rng()
    if isinstance(rng, (bool, np.bool_)) or not isinstance(rng, (int, np.integer)) or rng < 0:
        raise ArgumentError(
            f"{name} must be None, a nonnegative integer seed or a numpy Generator, got {shown(rng)}"
        )
    return np.random.default_rng(int(rng))


def check_words(keywords: Iterable[str], words: Collection[str]) -> None:
    """Raise ArgumentError for a keyword that is not among `words`, such as a misspelled one."""
    for name in keywords:
        if name not in words:
            near = get_close_matches(name, words, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"its options are {', '.join(words)}"
            raise ArgumentError(f"{name!r} is not an option of this call: {hint}")


def in_digits(value: object, digits: int = 6) -> Any:
    """Return a number or an array rounded to digits of its largest entry; other objects unchanged.

    What two machines compute alike but for their last bits becomes the same.
    """
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return value
    if (largest := float(np.abs(array).max(initial=0.0, where=np.isfinite(array)))) == 0.0:
        return value
    rounded = (
        np.rint(array / largest * 10.0**digits) / 10.0**digits * float(f"{largest:.{digits - 1}e}") + 0.0
    )
    return rounded if array.ndim else float(rounded)
