"""Decorators of everything public: only errors of the tree leave, with nothing attached to them.

A caught exception of numpy, pandas or Python can hold a value of a row in its text, and Python keeps it in
``__context__`` of any exception raised meanwhile, ``from None`` or not. An error boundary catches
every exception that leaves a public function and raises it again outside of ``except``: errors of the tree
bare, all others as an error of the tree without their text.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import FrozenInstanceError
from difflib import get_close_matches
from types import CodeType, FunctionType
from typing import NoReturn, ParamSpec, TypeVar, cast

from numpy.linalg import LinAlgError

from privinf.errors import (
    ArgumentError,
    CallError,
    FileMissingError,
    NotAvailableError,
    NotPositiveDefiniteError,
    PrivinfError,
    SiteConnectionError,
    StorageError,
    UnforeseenError,
)

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep  # folder of the package's own code
# Of a disk without room: for all, for this account, or for a file of this size.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
POSITIONAL = "*"  # in place of a keyword in `refuses`: arguments by position
# What required arguments are, for callers who leave them out.
ARGUMENTS = {
    "schema": "the public bounds and levels of the columns, for example "
    'schema=pi.Schema({"age": (18, 95), "sex": ["female", "male"]})',
    "bounds": "the public bounds of the columns, for example bounds=[(18, 95), (0, 1)]",
    "y_bounds": "the public bounds of the response, for example y_bounds=(0, 25)",
    "status": "the name of the column that marks events, for example status='death'",
}
# By an argument: names that it has in other packages, and what to pass here.
EQUIVALENTS = {
    "confidence_level": (("alpha", "level", "conf_level", "ci", "confidence"), "such as 0.95"),
    "alpha": (
        ("confidence_level", "level", "conf_level", "ci", "confidence"),
        "which is one minus the confidence level, such as 0.05",
    ),
    "rng": (("seed", "random_state"), "but a seed makes a simulation, which is not private"),
    "missing": (("nan_policy", "na_action", "na_rm", "dropna", "skipna"), 'such as missing="drop"'),
    "time": (("durations", "duration", "duration_col"), "the times or the name of their column"),
    "status": (("event_observed", "event_col"), "the status or the name of its column"),
    "data": (("df", "frame", "table"), "the table with the columns that are passed by name"),
}
_PASSING = (PrivinfError, Warning, MemoryError)  # exceptions that pass a boundary unchanged


def error_boundary(function: Callable[P, R]) -> Callable[P, R]:
    """Return the same function within a boundary: no exception that leaves it can hold a value of a row.

    Parameters
    ----------
    function : callable
        A public function or method.

    Returns
    -------
    callable
        It lets pass, with ``__context__`` and ``__cause__`` None (but the number of an error of a connection,
        `bare`, as the cause of a SiteConnectionError): errors of the tree, warnings that filters
        turned into errors, MemoryError, and objects that are not an Exception (KeyboardInterrupt). For a call
        that does not fit the signature, a keyword that the function does not have becomes an ArgumentError
        that names the closest that it has, and so does an argument that is passed twice; missing arguments
        and too many by position become a CallError, which is a TypeError too, and states the remedy. Every
        other exception becomes an error of the tree that names the function; its traceback, which shows code,
        is kept.

    Notes
    -----
    **Privacy.** The text of a foreign exception is dropped, never shown: numpy's and pandas' quote values.

    Examples
    --------
    >>> from privinf.errors import ArgumentError
    >>> @error_boundary
    ... def root(rows):
    ...     return [float(row) ** 0.5 for row in rows]
    >>> try:
    ...     root(["a diagnosis"])
    ... except ArgumentError as error:
    ...     print("diagnosis" in str(error), error.__context__)
    False None
    """
    if has_error_boundary(function):
        return function
    # Names that the copy below finds in its closure.
    plain = cast(FunctionType, function)
    settled = _settled

    @functools.wraps(plain)
    def call_within_boundary(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return plain(*args, **kwargs)  # type: ignore[no-any-return]
        except BaseException as error:
            raised = settled(error, plain, kwargs, args)
        try:
            raise raised
        finally:
            del raised  # an exception and its own frame would keep each other, and the rows, alive

    # The copy counts as defined where the function is: doctest would skip it otherwise.
    wrapper = cast(FunctionType, call_within_boundary)
    guarded = FunctionType(wrapper.__code__, plain.__globals__, plain.__name__, None, wrapper.__closure__)
    return cast(Callable[P, R], functools.wraps(plain)(guarded))


def error_boundaries(kind: C) -> C:
    """Put a class's own constructor and public (class, static) methods within error boundaries.

    Properties take no argument and stay as they are; so do methods that begin with an underscore.
    """
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in ("__new__", "__init__", "__call__", "__getitem__"):
            continue
        if isinstance(member, FunctionType):
            setattr(kind, name, error_boundary(member))
        elif isinstance(member, (classmethod, staticmethod)) and isinstance(member.__func__, FunctionType):
            setattr(kind, name, type(member)(error_boundary(member.__func__)))
    if getattr(vars(kind).get("__dataclass_params__"), "frozen", False):
        # Those of a frozen dataclass with slots end with an error of super() for names that are not fields.
        kind.__setattr__ = _refuse_assignment  # type: ignore[assignment,method-assign]
        kind.__delattr__ = _refuse_deletion  # type: ignore[assignment,method-assign]
    return kind


def _refuse_assignment(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"{type(self).__name__} cannot be changed, so {name!r} cannot be assigned")


def _refuse_deletion(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"{type(self).__name__} cannot be changed, so {name!r} cannot be deleted")


def refuses(
    reasons: Mapping[str, str], error: type[PrivinfError] = ArgumentError
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register explanations for keywords that a function does not have, or that callers pass twice.

    Parameters
    ----------
    reasons : mapping of str to str
        By name of a keyword that callers may expect: why the function does not have it, or what to do where
        its place is taken by another argument. The error boundary raises ``error(f"{name}= {reason}")``. The
        reason by the name `POSITIONAL` is that against arguments by position.
    error : type
        Kind of the error.

    Returns
    -------
    callable
        A decorator that returns the same function.
    """

    def marked(function: Callable[P, R]) -> Callable[P, R]:
        before = vars(function).get("refusals", {})
        vars(function)["refusals"] = before | {name: (error, text) for name, text in reasons.items()}
        return function

    return marked


def has_error_boundary(function: object) -> bool:
    """Return whether a function is within an error boundary already."""
    return getattr(function, "__code__", None) is _CODE


def warn(message: str, category: type[Warning]) -> None:
    """Warn, and point at the line outside of the package that called into it."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level = level + 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level + 1)


def outer_module() -> str:
    """Return the name of the module outside of the package that called into it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def _settled(
    error: BaseException, function: FunctionType, keywords: Iterable[str], others: Sequence[object]
) -> BaseException:
    """Return the exception that a boundary raises in place of `error`.

    `keywords` are those of the call, and `others` are its arguments by position.
    """
    trace = None if error.__traceback__ is None else error.__traceback__.tb_next
    misfit = _misfit(error)
    passes = isinstance(error, _PASSING) or not isinstance(error, Exception) or misfit
    raised = error if passes else _translated(error, _owner(function, others))
    if misfit:
        raised = (
            _unknown_option(function, keywords, others)
            or _passed_twice(error, function, keywords, others)
            or _by_position(error, function, others)
            or _unfitting(function, keywords, others)
            or error
        )
    cause = raised.__cause__ if isinstance(raised, SiteConnectionError) else None
    raised.__cause__ = cause if is_bare(cause) else None
    raised.__context__ = None
    return raised.with_traceback(trace)


def bare(problem: OSError) -> OSError:
    """Return an error of the system as its kind and number alone: no text, no file, no traceback."""
    kind = next(base for base in type(problem).__mro__ if base.__module__ == "builtins")
    builtin = type(problem).__module__ == "builtins"  # others, such as TLS, have numbers of their own
    number = problem.errno if builtin and isinstance(problem.errno, int) else None
    copy: OSError = kind() if number is None else kind(number, os.strerror(number))
    return copy


def is_bare(error: BaseException | None) -> bool:
    """Return whether an error is one that `bare` could have made."""
    if not isinstance(error, OSError) or type(error).__module__ != "builtins":
        return False
    number = error.errno
    expected = () if number is None else (number, os.strerror(number))
    clean = error.__traceback__ is None and error.__cause__ is None and error.__context__ is None
    return clean and error.args == expected and error.filename is None and not vars(error)


def _class_of(function: FunctionType, others: Sequence[object]) -> type | None:
    """Return the class of which a method was called, the caller's own and not one that it inherits from."""
    first = next(iter(inspect.signature(function).parameters), "")
    if first not in ("self", "cls") or not others:
        return None
    return others[0] if isinstance(others[0], type) else type(others[0])


def _owner(function: FunctionType, others: Sequence[object]) -> str:
    """Return the name of a function, or of a method with the class of which it was called."""
    kind = _class_of(function, others)
    if kind is None:
        return function.__qualname__.removesuffix(".__init__")
    public = next((base.__name__ for base in kind.__mro__ if not base.__name__.startswith("_")), "object")
    return public if function.__name__ == "__init__" else f"{public}.{function.__name__}"


def _unknown_option(
    function: FunctionType, keywords: Iterable[str], others: Sequence[object]
) -> PrivinfError | None:
    """Return the error for a keyword that the function does not have: its reason, or the closest name.

    Reasons are those of `refuses`, then arguments of the function that have this name in other packages
    (`EQUIVALENTS`), then the `_foreign_arguments` of the class of a method: a mapping from names to remedies.
    """
    places = inspect.signature(function).parameters.values()
    options = [place.name for place in places if place.name not in ("self", "cls")]
    name = next((name for name in keywords if name not in options), None)
    if name is None or any(place.kind == place.VAR_KEYWORD for place in places):
        return None
    refusals = vars(function).get("refusals", {})
    if name in refusals:
        error, reason = refusals[name]
        return cast(PrivinfError, error(f"{name}= {reason}"))
    near = get_close_matches(name, options, 3)
    hint = f"its arguments are {', '.join(options)}" if options else "it has no arguments"
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    hint = _remedy(name, options, _class_of(function, others)) or hint
    return ArgumentError(f"{name!r} is not an argument of {_owner(function, others)}: {hint}")


def _remedy(name: str, options: Sequence[str], kind: type | None) -> str:
    """Return what to do instead of an argument of other packages; empty for any other name."""
    for option, (foreign, meaning) in EQUIVALENTS.items():
        if name in foreign and option in options:
            return f"pass {option}=, {meaning}"
    for base in () if kind is None else kind.__mro__:
        if name in (remedies := vars(base).get("_foreign_arguments", {})):
            return str(remedies[name])
    return ""


def _passed_twice(
    error: BaseException, function: FunctionType, keywords: Iterable[str], others: Sequence[object]
) -> PrivinfError | None:
    """Return the error for an argument passed by position and by name; Python's own text names it."""
    text = str(error)
    name = next((name for name in keywords if text.endswith(f"multiple values for argument {name!r}")), None)
    if name is None:
        return None
    if name in (refusals := vars(function).get("refusals", {})):
        kind, reason = refusals[name]
        return cast(PrivinfError, kind(f"{name}= {reason}"))
    owner = _owner(function, others)
    return ArgumentError(f"{name}= was passed to {owner} twice, by position and by name: pass it once")


def _by_position(
    error: BaseException, function: FunctionType, others: Sequence[object]
) -> PrivinfError | None:
    """Return the error for a positional argument of a function that has a reason against these."""
    refusals = vars(function).get("refusals", {})
    if POSITIONAL not in refusals or "positional argument" not in str(error):
        return None
    kind, reason = refusals[POSITIONAL]
    return cast(PrivinfError, kind(f"{_owner(function, others)}() {reason}"))


def _unfitting(
    function: FunctionType, keywords: Iterable[str], others: Sequence[object]
) -> PrivinfError | None:
    """Return the error for a call without a required argument, or with too many by position."""
    owner = _owner(function, others)
    by_position = len(others)
    places = list(inspect.signature(function).parameters.values())
    ordered = [
        place for place in places if place.kind in (place.POSITIONAL_ONLY, place.POSITIONAL_OR_KEYWORD)
    ]
    passed = {*keywords, *(place.name for place in ordered[:by_position])}
    named = [place for place in places if place.kind == place.KEYWORD_ONLY]
    missing = [
        place.name
        for place in (*ordered, *named)
        if place.default is place.empty and place.name not in passed
    ]
    takes_any = any(place.kind == place.VAR_POSITIONAL for place in places)
    if by_position > len(ordered) and not takes_any:
        accepted = [place.name for place in ordered if place.name not in ("self", "cls")]
        by_place = f"only {', '.join(accepted)} by position" if accepted else "no arguments by position"
        options = [f"{place.name}=" for place in named]
        remedy = f": pass the others by name ({', '.join(options)})" if options else ""
        if {"epsilon", "delta"} <= {place.name for place in named}:
            remedy = ": pass the budget by name, for example epsilon=1.0, delta=1e-6"
        return CallError(f"{owner}() accepts {by_place}{remedy}")
    if not missing:
        return None
    meanings = [f"{name}= ({ARGUMENTS[name]})" if name in ARGUMENTS else f"{name}=" for name in missing]
    return CallError(f"{owner}() needs {' and '.join(meanings)}")


def _misfit(error: BaseException) -> bool:
    """Return whether Python itself refused the call: the innermost frame is then the boundary's own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return isinstance(error, TypeError) and trace is not None and trace.tb_frame.f_code in _RELAYS


def _translated(error: BaseException, owner: str) -> PrivinfError:
    """Return an error of the tree in place of a foreign one, without its text; `owner` names the function."""
    if isinstance(error, FileNotFoundError):
        return FileMissingError(f"there is no {error.filename or 'such file or folder'}: check the path")
    if isinstance(error, OSError):
        reason = "cannot be used" if error.errno is None else os.strerror(error.errno)
        do = "free some room" if error.errno in FULL else "check the path, its folder and the permissions"
        return StorageError(f"{error.filename or owner}: {reason}; {do}")
    if isinstance(error, ImportError):
        return NotAvailableError(
            f"{owner} needs {error.name or 'a package'}, which is not installed: install it"
        )
    if isinstance(error, LinAlgError):
        return NotPositiveDefiniteError(
            f"{owner}: a matrix could not be inverted or decomposed. Columns may be constant or collinear, "
            "or the noise may be too large; use fewer columns or a larger privacy budget"
        )
    return UnforeseenError(
        f"{owner} cannot use an argument of this type, shape or content: compare your arguments "
        f"with help({owner}). The original error is not shown, because it may contain a value "
        "of a row"
    )


# Code that every decorated function has: `has_error_boundary` recognizes a function by it.
_CODE = next(
    part
    for part in error_boundary.__code__.co_consts
    if inspect.iscode(part) and part.co_name == "call_within_boundary"
)
# Code of functions that pass a call on unchanged: a TypeError raised there means that the call does not fit.
_RELAYS = {_CODE}


def passes_calls_on(code: CodeType) -> None:
    """Register the code of a wrapper within a boundary that passes calls on unchanged."""
    _RELAYS.add(code)
