"""Members of a class that hand a call on to a component of its objects, with the component's own help."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from privinf.error_boundary import passes_calls_on

P = ParamSpec("P")
R = TypeVar("R")


def delegated(component: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls the component's method of the same name: its signature, help and numbers.

    Parameters
    ----------
    component : str
        Attribute of the object that holds the component.
    method : callable
        Method of the component's class.
    """
    name = method.__name__

    @wraps(method)
    def hand_on(self: Any, /, *args: P.args, **options: P.kwargs) -> R:
        return getattr(getattr(self, component), name)(*args, **options)  # type: ignore[no-any-return]

    hand_on.__qualname__ = f"Results.{name}"
    passes_calls_on(cast("FunctionType", hand_on).__code__)
    return hand_on
