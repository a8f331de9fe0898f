"""Members of a class that hand a call on to a component of its objects, with the component's own help."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from privinf.error_boundary import passes_calls_on

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Delegated(Protocol[P, R_co]):
    """A method by the signature that the component's method has without ``self``."""

    def __get__(self, instance: Any, owner: Any = None, /) -> Callable[P, R_co]: ...


def delegated(component: str, method: Callable[Concatenate[Any, P], R]) -> Delegated[P, R]:
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
    return cast("Delegated[P, R]", hand_on)
