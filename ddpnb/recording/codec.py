"""The codec of dataclasses: what is read from JSON becomes what the types of the fields say, or is refused.

What is read comes from ranks and files and is not trusted: a reader raises one of ``UNDECODABLE`` for what it does not read. Formats
differ in how they write an object, and in what becomes of a part that is wrong: each is a sub-class. Standard library only.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import IntEnum
from functools import cache, partial
from typing import Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.names import given_name, one_line

Reader = Callable[[Any, int], Any]  # of a value, and how deep it is inside objects

_LONGEST, _TEXT = 400, 16 << 10  # characters of a name, and of a text
_INTEGERS = range(-(1 << 63), 1 << 64)
NUMERALS = range(-(1 << 63), 1 << 63)
#: fields that are shown as they are: no control characters
NAMES = frozenset({"function", "name", "label", "axes", "at", "op", "thread", "unseen"})


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """The type of each field that the constructor takes."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


@cache
def optional(hint: Any) -> Any:
    """The type beside None, where a hint is of that form; else None."""
    if get_origin(hint) not in (Union, types.UnionType):
        return None
    (other,) = (one for one in get_args(hint) if one is not types.NoneType)
    return other


class Codec:
    """Reads values by their types."""

    #: what reads a value of these types
    PLAIN: ClassVar[Mapping[Any, Reader]] = {}

    def __init__(self) -> None:
        self._readers: dict[Any, Reader] = {}

    def read(self, hint: Any, value: Any) -> Any:
        """The value as this type."""
        return self.reader(hint)(value, 0)

    def reader(self, hint: Any) -> Reader:
        """What reads a value of this type."""
        found = self._readers.get(hint)
        if found is None:
            found = self._readers[hint] = self._made(hint)
        return found

    def _made(self, hint: Any) -> Reader:
        if hint in self.PLAIN:
            return self.PLAIN[hint]
        if (other := optional(hint)) is not None:
            return partial(_optional, self.reader(other))
        origin, inner = get_origin(hint), get_args(hint)
        if origin is tuple and inner[1:] != (...,):
            return partial(_row, [self.reader(one) for one in inner])
        if origin is tuple:
            return partial(self.several, self.reader(inner[0]))
        if origin is Mapping:
            return partial(self.mapping, self.reader(inner[0]), self.reader(inner[1]))
        if origin is Literal:
            return lambda value, _: inner[inner.index(value)]
        if isinstance(hint, type) and issubclass(hint, IntEnum):
            return lambda value, _: hint(integer(value))
        known = cast("Any", hint)
        return partial(self.object, known) if is_dataclass(known) else _anything

    def named(self, name: str, hint: Any) -> Reader:
        """What reads the field with this name."""
        read = self.reader(hint)
        return (lambda value, depth: given_name(read(value, depth))) if name in NAMES and hint is str else read

    def several(self, read: Reader, value: Any, depth: int) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError("not a list")
        return tuple([read(one, depth) for one in cast("Sequence[Any]", value)])

    def mapping(self, key: Reader, read: Reader, value: Any, depth: int) -> dict[Any, Any]:
        return {key(name, depth): read(one, depth) for name, one in object_in(value).items()}

    def object(self, kind: Any, value: Any, depth: int) -> Any:
        raise NotImplementedError


class Json(Codec):
    """Objects as ranks write them, by the names of their fields; one that is missing has its default. Texts are bounded."""

    def __init__(self) -> None:
        super().__init__()
        self._fields: dict[Any, dict[str, Reader]] = {}

    def named(self, name: str, hint: Any) -> Reader:
        read = self.reader(hint)
        return (lambda value, depth: one_line(read(value, depth)[:_LONGEST])) if name in NAMES and hint is str else read

    def fields(self, kind: Any) -> dict[str, Reader]:
        """What reads each field of a class."""
        if (known := self._fields.get(kind)) is None:
            known = self._fields[kind] = {name: self.named(name, hint) for name, hint in hints_of(kind).items()}
        return known

    def object(self, kind: Any, value: Any, depth: int) -> Any:
        given = object_in(value)
        return kind(**{name: read(given[name], depth) for name, read in self.fields(kind).items() if name in given})


class Whole(Json):
    """Objects as ``written`` writes them, with all their fields; a key that is an integer is a text in JSON."""

    def object(self, kind: Any, value: Any, depth: int) -> Any:
        given = object_in(value)
        return kind(**{name: read(given[name], depth) for name, read in self.fields(kind).items()})

    def mapping(self, key: Reader, read: Reader, value: Any, depth: int) -> dict[Any, Any]:
        convert = int if key is integer else text
        return {convert(name): read(one, depth) for name, one in object_in(value).items()}


def object_in(value: Any) -> Mapping[Any, Any]:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.40} is not an object")
    return cast("Mapping[Any, Any]", value)


def _optional(read: Reader, value: Any, depth: int) -> Any:
    return None if value is None else read(value, depth)


def _row(readers: Sequence[Reader], value: Any, depth: int) -> tuple[Any, ...]:
    return tuple(read(one, depth) for read, one in zip(readers, value, strict=True))


def _anything(value: Any, _depth: int) -> Any:
    return value


def integer(value: Any, _depth: int = 0) -> int:
    if type(value) is not int or value not in _INTEGERS:
        raise TypeError(f"{value!r:.40} is not an integer")
    return value


def numeral(value: Any, _depth: int = 0) -> int:
    """An integer, also one that was written as a text: a size of torch that stands for any."""
    number = int(value) if type(value) is str and len(value) <= 20 else value
    if type(number) is not int or number not in NUMERALS:
        raise ValueError("not an integer")
    return number


def number(value: Any, _depth: int = 0) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r:.40} is not a number")
    return float(value)


def text(value: Any, _depth: int = 0) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def flag(value: Any, _depth: int = 0) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def _site(value: Any, _depth: int) -> Site:
    return NO_SITE if value is None else Site(text(value["file"]), integer(value["line"]), text(value["function"]))


STRICT: Mapping[Any, Reader] = {int: integer, float: number, str: text, bool: flag}
Json.PLAIN = {
    **STRICT,
    int: numeral,
    str: lambda value, _: text(value)[:_TEXT],
    Site: lambda value, _: Site.from_json(dict(value)),
}
Whole.PLAIN = {**STRICT, Site: _site}
JSON, WHOLE = Json(), Whole()


def changed(value: Any, change: Callable[[str], str]) -> Any:
    """A value with other texts; of a place only the file changes, of a mapping not the keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Site):
        return value if value == NO_SITE else replace(value, file=change(value.file))
    if isinstance(value, tuple):
        return tuple([changed(one, change) for one in cast("tuple[Any, ...]", value)])
    if isinstance(value, Mapping):
        return {key: changed(one, change) for key, one in cast("Mapping[Any, Any]", value).items()}
    return (
        type(value)(**{name: changed(getattr(value, name), change) for name in hints_of(type(value))})
        if is_dataclass(value)
        else value
    )


def written(value: Any) -> Any:
    """A value as ``Whole`` reads it; ``NO_SITE`` as None."""
    if isinstance(value, Site):
        return None if value == NO_SITE else {"file": value.file, "line": value.line, "function": value.function}
    if is_dataclass(value):
        return {name: written(getattr(value, name)) for name in hints_of(type(value))}
    if isinstance(value, Mapping):
        return {str(key): written(one) for key, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (tuple, list)):
        return [written(one) for one in cast("tuple[Any, ...]", value)]
    return int(value) if isinstance(value, IntEnum) else value
