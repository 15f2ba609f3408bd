"""Parts of a program that a bisection can leave out."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, TypeVar, overload

from ddpnb.errors import UsageError
from ddpnb.recorder.process.user_modules import forget_loaded

_Function = TypeVar("_Function", bound=Callable[..., Any])

_off: set[str] = set()  # on this rank, during a probe


class Component:
    """A function that can be left out: a call to it then returns None. Made by ``component``."""

    def __init__(self, function: Callable[..., Any], name: str, requires: tuple[str, ...]) -> None:
        functools.update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", name)
        self.function, self.name, self.requires = function, name, requires

    def __call__(self, *args: Any, **more: Any) -> Any:
        return None if self.name in _off else self.function(*args, **more)

    def __reduce__(self) -> Any:
        module = sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(module, self.__name__, None) is self:
            return self.__name__  # a rank imports it
        return Component, (self.function, self.name, self.requires)

    def __repr__(self) -> str:
        return f"<component {self.name}>"


@overload
def component(function: _Function) -> _Function: ...
@overload
def component(*, name: str = "", requires: Sequence[str] = ()) -> Callable[[_Function], _Function]: ...
def component(function: Any = None, *, name: str = "", requires: Sequence[str] = ()) -> Any:
    """Mark a function as a part of a program that ``ddpnb.bisect`` can leave out; a call to it then returns None.

    Outside of a bisection it is called as if it were not marked.

    Args:
        function: to be marked.
        name: of the component; by default that of the function.
        requires: names of components that must be there for this one to run.

    Returns:
        The function, marked.

    Raises:
        UsageError: it is not a function, or a component already.

    Example:
        >>> @ddpnb.component
        ... def evaluate(model): ...
        >>> @ddpnb.component(requires=["evaluate"])
        ... def save_best(model): ...
    """
    if function is None:
        return functools.partial(component, name=name, requires=requires)
    if isinstance(function, Component) or not callable(function):
        raise UsageError(f"{function!r:.80} cannot be a component.", "Mark a function, once.")
    return Component(function, name or getattr(function, "__name__", "?"), tuple(requires))


def called_components(function: Callable[..., Any]) -> list[Component]:
    """The components that a function names, also by way of other functions of its module, in the order of the text."""
    found: list[Component] = []
    seen: set[int] = set()

    def look(one: Any) -> None:
        inner = one.function if isinstance(one, Component) else one
        code = getattr(inner, "__code__", None)
        if code is None or id(code) in seen:
            return
        seen.add(id(code))
        names = getattr(inner, "__globals__", {})
        for name in names_in(code):
            named = names.get(name)
            if isinstance(named, Component) and named not in found and named is not function:
                found.append(named)
            if isinstance(named, Component) or getattr(named, "__globals__", None) is names:
                look(named)

    look(function)
    return found


def names_in(code: CodeType) -> Iterator[str]:
    """The names that a function and those inside it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


class Selected:
    """What a rank runs in a probe: a function without some of its components, or some functions in order.

    Args:
        target: that calls components; None: the components themselves are called.
        components: in order.
        on: names of those that are not left out.
        args: for the target.
        fresh: the next run begins with the user's modules imported again.
        environment: variables to set in the meantime.
    """

    def __init__(
        self,
        target: Callable[..., Any] | None,
        components: Sequence[Component],
        on: Collection[str],
        args: tuple[Any, ...] = (),
        *,
        fresh: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._fresh, self._environment = fresh, dict(environment or {})
        self.__name__ = getattr(target, "__name__", "components")
        self._target, self._components, self._on, self._args = target, tuple(components), frozenset(on), args

    def __call__(self) -> Any:
        _off.clear()
        _off.update(one.name for one in self._components if one.name not in self._on)
        os.environ.update(self._environment)
        try:
            if self._target is not None:
                return self._target(*self._args)
            for one in self._components:
                one()
        finally:
            _off.clear()
            for name in self._environment:
                os.environ.pop(name, None)
            if self._fresh:
                forget_loaded()
        return None
