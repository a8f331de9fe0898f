"""A walk over everything that an object holds or shows, in search of values of raw rows."""

from __future__ import annotations

import functools
import pickle
import re
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.typing import Floats

DEPTH = 16
SHORTEST = 6  # rows below which equality with an undistinctive column may be chance
DIGITS = 8  # significant digits from which a number in a text counts
_NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
_FOREIGN = {"numpy", "pandas", "scipy", "statsmodels", "matplotlib", "builtins", "datetime", "uuid"}


@dataclass(frozen=True, slots=True)
class Leak:
    """A place at which raw values are held or shown.

    Attributes
    ----------
    path : str
        Such as ``result.release.arrays['features']``; it holds no value.
    kind : str
        "values", "column", "text", "pickle".
    count : int
        Number of raw values there.
    """

    path: str
    kind: str
    count: int


class _Sought:
    """Raw values in the forms in which they are looked for."""

    def __init__(self, raw: Any, exempt: Iterable[Any]) -> None:
        allowed = [column for item in exempt for column in _columns(item)]
        self._allowed = [column for column in allowed if column.dtype.kind == "f"]
        open_values = np.unique(np.concatenate([np.empty(0), *(c.ravel() for c in self._allowed)]))
        columns = _columns(raw)
        numbers = [column for column in columns if column.dtype.kind == "f"]
        values = np.unique(np.concatenate([np.empty(0), *(c.ravel() for c in numbers)]))
        values = values[np.isfinite(values)]
        # Few-digit numbers (codes, ages, bounds) are met by chance: they count as whole columns only.
        values = values[values != np.round(values, 4)]
        self.values: Floats = values[~np.isin(values, open_values)]
        self._single = np.unique(self.values.astype(np.float32)).astype(np.float64)
        self._columns = [c for c in numbers if len(c) >= SHORTEST and len(np.unique(c)) > 1]
        self._columns = [c for c in self._columns if not any(_same(c, a) for a in self._allowed)]
        words = {str(w) for c in columns if c.dtype.kind == "U" for w in c if len(str(w)) >= 4}
        self.words = words - {str(w) for c in allowed if c.dtype.kind == "U" for w in c}

    def in_array(self, array: np.ndarray[Any, Any]) -> Iterator[tuple[str, int]]:
        if array.dtype.kind in "US":
            for word in np.unique(array):
                yield from self.in_text(word.decode("latin-1") if isinstance(word, bytes) else str(word))
            return
        if array.dtype.kind == "c":
            yield from self.in_array(np.stack([array.real, array.imag]))
            return
        if array.dtype.kind not in "fiub" or array.size == 0:
            return
        known = self._single if array.dtype.itemsize == 4 and array.dtype.kind == "f" else self.values
        flat = array.astype(np.float64)
        hits = int(np.isin(flat, known).sum())
        if hits:
            yield "values", hits
            return
        for axis in range(flat.ndim):
            for line in np.moveaxis(flat, axis, -1).reshape(-1, flat.shape[axis]):
                if any(_same(line, column) for column in self._columns):
                    yield "column", len(line)
                    return

    def in_text(self, text: str) -> Iterator[tuple[str, int]]:
        found = sum(word in text for word in self.words)
        found += sum(self._shown(token) for token in _NUMBER.findall(text))
        if found:
            yield "text", found

    def _shown(self, token: str) -> bool:
        mantissa = re.split("[eE]", token)[0]
        digits = len(mantissa.lstrip("+-").replace(".", "").lstrip("0"))
        if not self.values.size:
            return False
        number = float(token)
        nearest = self.values[np.abs(self.values - number).argmin()]
        if digits < DIGITS:
            return bool(nearest == number and digits > 4)
        return bool(abs(nearest - number) <= 0.5000001 * 10.0 ** (1 - digits) * abs(nearest))

    def in_bytes(self, stream: bytes) -> Iterator[tuple[str, int]]:
        found = 0
        for order in ("<f8", ">f8"):
            bits = np.sort(self.values.astype(order).view(order.replace("f", "u")).astype(np.uint64))
            for offset in range(min(8, len(stream))):
                count = (len(stream) - offset) // 8
                words = np.frombuffer(stream, order.replace("f", "u"), count, offset)
                found += int(np.isin(words.astype(np.uint64), bits).sum())
        found += sum(word.encode() in stream for word in self.words)
        if found:
            yield "pickle", found


def find_raw_values(obj: Any, raw: Any, exempt: Iterable[Any] = (), *, pickled: bool = True) -> list[Leak]:
    """Return the places at which `obj` holds or shows a value of the raw rows.

    Parameters
    ----------
    obj : object
        A result, a release, a report, an exception, a text, ...
    raw : array, Series, DataFrame, mapping, or sequence of them
        Raw rows, in every form in which they must not appear (user units, scaled units). A number with more
        than four decimals counts wherever it stands alone; codes and other short numbers, which may be met
        by chance, count as a whole column of at least six rows; words of four letters or more count
        anywhere.
    exempt : iterable of the same
        What may appear: declared-public columns, a response sent in clear, declared levels.
    pickled : bool
        Search the bytes of the pickle too (an object that refuses to be pickled passes).

    Returns
    -------
    list of Leak
        Empty where nothing was found.

    Notes
    -----
    The walk goes through attributes, public and private, slots, what public properties return (and the
    text of what they raise), mappings, sequences, sets, arrays and the arrays they are views of, Series,
    DataFrames and their ``attrs``, closures, exceptions with their causes, ``repr`` and ``str``.
    """
    sought = _Sought(raw, exempt)
    found: dict[tuple[str, str], Leak] = {}
    for path, value in _walk(obj, type(obj).__name__, {}, 0):
        inside = sought.in_array(value) if isinstance(value, np.ndarray) else sought.in_text(value)
        for kind, count in inside:
            found.setdefault((path, kind), Leak(path, kind, count))
    if pickled:
        try:
            stream = pickle.dumps(obj)
        except Exception:
            stream = b""
        for kind, count in sought.in_bytes(stream):
            found[type(obj).__name__, kind] = Leak(type(obj).__name__, kind, count)
    return list(found.values())


def _columns(raw: Any) -> list[np.ndarray[Any, Any]]:
    """Return raw data as one-dimensional arrays of floats or of words."""
    if isinstance(raw, (pd.DataFrame, Mapping)):
        return [column for name in raw for column in _columns(raw[name])]
    if isinstance(raw, (list, tuple)) and any(np.ndim(item) for item in raw):
        return [column for item in raw for column in _columns(item)]
    array = np.atleast_1d(np.asarray(raw))
    if array.ndim > 1:
        return [column for line in np.moveaxis(array, -1, 0) for column in _columns(line)]
    try:
        return [array.astype(np.float64)]
    except (TypeError, ValueError):
        return [array.astype(str)]


def _same(line: Floats, column: Floats) -> bool:
    return len(line) == len(column) and bool(np.array_equal(np.sort(line), np.sort(column)))


def _walk(obj: Any, path: str, seen: dict[int, Any], depth: int) -> Iterator[tuple[str, Any]]:
    """Yield (path, array or text) for everything that can be reached."""
    if isinstance(obj, str):
        yield path, obj
        return
    if isinstance(obj, bytes):
        yield path, obj.decode("latin-1")
        return
    if isinstance(obj, (int, float, complex, np.generic)) and not isinstance(obj, (bool, np.bool_)):
        array = np.asarray(obj)
        if array.dtype.kind in "fiucUS":
            yield path, np.atleast_1d(array)
        return
    skipped = (bool, np.bool_, type, types.ModuleType, types.BuiltinFunctionType)
    if obj is None or isinstance(obj, skipped) or depth > DEPTH or id(obj) in seen:
        return
    seen[id(obj)] = obj  # kept alive, so that no id is used twice
    if isinstance(obj, np.ndarray) and obj.dtype != object:
        yield path, obj
    for name, value in _parts(obj):
        if isinstance(name, str) and name.startswith("['"):
            yield f"{path}.key", name
        yield from _walk(value, f"{path}{name}", seen, depth + 1)


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield (suffix of the path, part) of a container or an object."""
    if isinstance(obj, np.ndarray):
        if obj.dtype == object:
            yield from ((f"[{i}]", item) for i, item in enumerate(obj.ravel()))
        if isinstance(obj.base, np.ndarray):
            yield ".base", obj.base
    elif isinstance(obj, pd.DataFrame):
        yield from ((f"[column {i}]", obj.iloc[:, i].to_numpy()) for i in range(obj.shape[1]))
        yield from ((".index", obj.index), (".columns", obj.columns), (".attrs", dict(obj.attrs)))
    elif isinstance(obj, pd.Series):
        yield from ((".values", obj.to_numpy()), (".index", obj.index), (".name", obj.name))
        yield ".attrs", dict(obj.attrs)
    elif isinstance(obj, pd.Index):
        yield from ((".values", obj.to_numpy()), (".names", list(obj.names)))
    elif isinstance(obj, Mapping):
        for key, value in obj.items():
            yield f"[{key!r}]", value
            yield ".key", key
    elif isinstance(obj, (list, tuple, Set)):
        numbers = [item for item in obj if isinstance(item, (int, float))]
        if len(numbers) >= SHORTEST:
            yield "[numbers]", np.array(numbers, dtype=np.float64)
        yield from ((f"[{i}]", item) for i, item in enumerate(obj))
        yield from ((f".{name}", value) for name, value in getattr(obj, "__dict__", {}).items())
    elif isinstance(obj, functools.partial):
        yield from ((".func", obj.func), (".args", obj.args), (".keywords", obj.keywords))
    elif isinstance(obj, types.MethodType):
        yield from ((".__self__", obj.__self__), (".__func__", obj.__func__))
    elif isinstance(obj, types.FunctionType):
        yield from ((".defaults", obj.__defaults__), (".kwdefaults", obj.__kwdefaults__))
        yield ".closure", [_cell(cell) for cell in obj.__closure__ or ()]
    else:
        yield from _members(obj)


def _members(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, BaseException):
        yield from ((".args", obj.args), (".__cause__", obj.__cause__), (".__context__", obj.__context__))
        yield ".__notes__", getattr(obj, "__notes__", None)
    state = dict(getattr(obj, "__dict__", {}))
    for kind in type(obj).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(obj, name):
                state.setdefault(name, getattr(obj, name))
    yield from ((f".{name}", value) for name, value in state.items())
    if type(obj).__module__.split(".")[0] in _FOREIGN:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in dir(type(obj)):
            if name.startswith("_") or name in state or callable(getattr(type(obj), name, None)):
                continue
            try:
                yield f".{name}", getattr(obj, name)
            except Exception as error:  # whoever reads the attribute sees its text
                yield f".{name}", str(error)
        for show in (repr, str):
            try:
                yield f".{show.__name__}()", show(obj)
            except Exception as error:
                yield f".{show.__name__}()", str(error)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
