"""Break one thing in a module: its source with one piece of text replaced, put in the place of the original.

The code object of the one function that changes is exchanged, so that every name under which the function was
imported is broken alike.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A piece of text in one function of a module, and what is to stand there instead."""

    module: str
    function: str
    old: str
    new: str

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Break the function for a while.

        Raises
        ------
        AssertionError
            The text does not stand in the function exactly once: the code has changed, look again.
        """
        module = importlib.import_module(f"privinf.{self.module}")
        function = _plain(_found(module, self.function))
        whole = inspect.getsource(module)
        part = inspect.getsource(function)
        places = list(re.finditer(_laid_out(self.old), part))
        assert len(places) == 1, f"{self.function} holds {self.old!r} {len(places)} times"
        assert whole.count(part) == 1, self.function
        new = (
            self.new.lstrip() if self.old[:1].isspace() else self.new
        )  # blanks before it stay where they are
        broken = part[: places[0].start()] + new + part[places[0].end() :]
        changed = compile(whole.replace(part, broken), module.__file__ or "", "exec")
        (code,) = (code for code in _codes(changed) if code.co_qualname == function.__qualname__)
        original = function.__code__
        assert code.co_freevars == original.co_freevars
        caches = [thing for thing in vars(module).values() if hasattr(thing, "cache_clear")]
        try:
            function.__code__ = code
            _forget(caches)
            yield
        finally:
            function.__code__ = original
            _forget(caches)


def _laid_out(text: str) -> str:
    """Return a pattern of a text however the formatter breaks its lines."""
    words = re.findall(r"""\w+|"[^"]*"|'[^']*'|\S""", text)
    return r"\s*".join((r",?\s*" if word in (")", "]", "}") else "") + re.escape(word) for word in words)


def _found(module: types.ModuleType, path: str) -> Any:
    owner: Any = module
    for name in path.split("."):
        owner = inspect.getattr_static(owner, name)
    return owner


def _plain(thing: Any) -> types.FunctionType:
    """Return the function under a decorator."""
    if isinstance(thing, property):
        thing = thing.fget
    elif isinstance(thing, (classmethod, staticmethod)):
        thing = thing.__func__
    elif isinstance(thing, functools.cached_property):
        thing = thing.func
    function = inspect.unwrap(thing)
    assert isinstance(function, types.FunctionType)
    return function


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _forget(caches: list[Any]) -> None:
    for cached in caches:
        cached.cache_clear()
