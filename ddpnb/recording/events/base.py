"""What all events have in common: the envelope, and the form in a black box and in a file (a title, and facts as JSON).

A rank writes the fields of an event that are not at their defaults. What is read back is not trusted: a fact of the
wrong type gives the default of its field, and an unknown title an ``Unknown``. Nothing here raises.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from typing import (
    Any,
    ClassVar,
    Literal,
    NewType,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_type_hints,
)

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.codec import NUMERALS, Codec, Reader, numeral, object_in
from ddpnb.recording.names import UNDECODABLE

EventState = Literal["open", "done", "failed"]
T = TypeVar("T")
LongText = NewType("LongText", str)

_LONGEST, _LONGER = 4000, 4 << 20  # characters of a text, and of a long one
_DEEPEST = 6  # of facts inside facts
_ENVELOPE = frozenset({"site", "state", "began_ns", "ended_ns"})
_PLACE = frozenset({"file", "line", "function", "via"})


def fact(key: str, default: Any) -> Any:
    """A field whose fact has another name."""
    return field(default=default, metadata={"key": key})


def rest() -> Any:
    """A field for all other facts."""
    return field(default_factory=dict[str, Any], metadata={"rest": True})


class Facts:
    """Fields that can be written as facts and read back; a sub-class is declared with ``record`` or ``event``.

    What ``dataclass`` would compile for each of them stands here once: a rank imports all of them when it starts.
    """

    def __init__(self, **values: Any) -> None:
        own, given = self.__dict__, len(values)
        for name, default, make in _defaults(type(self)):
            if name in values:
                own[name], given = values[name], given - 1
            else:
                own[name] = default if make is None else make()
        if given:
            raise TypeError(f"{type(self).__name__} has no field {min(values.keys() - own.keys())!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def facts(self) -> dict[str, Any]:
        """The fields that are not at their defaults, as JSON."""
        found: dict[str, Any] = {}
        for known in fields_of(type(self)):
            value = getattr(self, known.name)
            if value != known.default and (written := _json(value)) != known.written:
                found.update(value if known.rest else {known.key: written})
        return found

    @classmethod
    def read(cls, facts: Mapping[str, Any], depth: int = 0, **envelope: Any) -> Self:
        """Read it; a fact of the wrong type is left at its default."""
        for known in fields_of(cls):
            with suppress(*UNDECODABLE):
                if known.rest:
                    others = {k: v for k, v in facts.items() if k not in _keys(cls)}
                    envelope[known.name] = known.convert(others, depth)
                elif known.key in facts:
                    envelope[known.name] = known.convert(facts[known.key], depth)
        return cls(**envelope)

    @classmethod
    def exactly(cls, facts: Any) -> Self:
        """Read what is as ``facts`` writes it.

        Raises:
            ValueError: it is not; a fact is not declared, or has another type.
        """
        if not isinstance(facts, Mapping):
            raise ValueError("no facts")
        given = cast("Mapping[str, Any]", facts)
        found = cls.read(given)
        written = {known.key: _json(getattr(found, known.name)) for known in fields_of(cls)}
        wrong = [str(key)[:80] for key in given if key not in written or written[key] != given[key]]
        if wrong:
            raise ValueError(", ".join(wrong[:4]))
        return found


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(kind: type[T]) -> type[T]:
    """Declare a class of facts: a frozen dataclass."""
    kind.__doc__ = kind.__doc__ or kind.__name__  # else dataclass spells out the signature, for nobody
    return dataclass(init=False, repr=False, eq=False, kw_only=True)(kind)


@record
class Event(Facts):
    """Something that a rank did, other than a collective.

    ``site`` is the user's line; ``NO_SITE`` when none was recorded. An event that takes time is ``open`` until it is
    ``done`` or ``failed``; any other is ``done`` as soon as it begins.
    """

    TITLE: ClassVar[str] = ""

    site: Site = NO_SITE
    state: EventState = "done"
    began_ns: int = 0
    ended_ns: int = 0

    @property
    def title(self) -> str:
        """What it is called in a black box and on a card."""
        return self.TITLE


@record
class Attempt(Event):
    """A call that may fail; ``error``: why it did."""

    error: str = ""


@record
class Unknown(Event):
    """An event of another version of ddpnb, or one whose title was not recorded."""

    named: str = "?"
    details: Mapping[str, Any] = rest()

    @property
    def title(self) -> str:
        return self.named


KINDS: dict[str, type[Event]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event(title: str) -> Callable[[type[T]], type[T]]:
    """Declare a kind of event: a frozen dataclass, known by its title."""

    def declare(kind: type[T]) -> type[T]:
        made: Any = record(kind)
        made.TITLE = title
        KINDS[title] = made
        return made

    return declare


def read(
    title: str, facts: Mapping[str, Any], state: EventState = "done", began_ns: int = 0, ended_ns: int = 0
) -> Event:
    """The event with this title and these facts, which come from a black box or a file."""
    site = Site.from_json(dict(facts)) if "file" in facts else NO_SITE
    envelope: dict[str, Any] = {"site": site, "state": state, "began_ns": began_ns, "ended_ns": ended_ns}
    kind = KINDS.get(title)
    return Unknown.read(facts, named=title, **envelope) if kind is None else kind.read(facts, **envelope)


def written(event: Event) -> dict[str, Any]:
    """The facts of an event, with its place."""
    return {**event.facts(), **event.site.to_json()}


# -- from and to JSON, by the type of a field


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    key: str
    default: Any
    written: Any  # of the default
    rest: bool  # it holds all other facts
    convert: Reader


@cache
def fields_of(kind: type[Facts]) -> tuple[_Known, ...]:
    hints = get_type_hints(kind)

    def known(of: Field[Any]) -> _Known:
        default = of.default if of.default_factory is MISSING else of.default_factory()
        key = of.metadata.get("key", of.name)
        return _Known(of.name, key, default, _json(default), "rest" in of.metadata, _FACTS.reader(hints[of.name]))

    mine = cast("tuple[Field[Any], ...]", fields(kind))  # type: ignore[arg-type]
    return tuple(known(of) for of in mine if of.name not in _ENVELOPE and of.name != "named")


@cache
def _defaults(kind: type[Facts]) -> tuple[tuple[str, Any, Callable[[], Any] | None], ...]:
    """The name of each field, its default, and what makes one for each instance."""
    mine = cast("tuple[Field[Any], ...]", fields(kind))  # type: ignore[arg-type]
    return tuple((of.name, of.default, None if of.default_factory is MISSING else of.default_factory) for of in mine)


@cache
def _keys(kind: type[Facts]) -> frozenset[str]:
    return _PLACE.union(known.key for known in fields_of(kind))


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_json(one) for one in cast("tuple[Any, ...]", value)]
    if type(value) is dict:
        return {key: _json(one) for key, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.facts() if isinstance(value, Facts) else value


def _number(value: Any, _depth: int) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("not a number")
    return float(value)


def _text(value: Any, _depth: int) -> str:
    if type(value) is not str:
        raise TypeError("not a text")
    return value[:_LONGEST]


def _long_text(value: Any, _depth: int) -> str:
    if type(value) is not str:
        raise TypeError("not a text")
    return value[:_LONGER]


def _bytes(value: Any, _depth: int) -> bytes:
    return base64.b64decode(value, validate=True)


def _flag(value: Any, _depth: int) -> bool:
    if type(value) not in (bool, int):
        raise TypeError("neither true nor false")
    return bool(value)


class _Facts(Codec):
    """Of several, and of a mapping, what is wrong is left out."""

    PLAIN: ClassVar[Mapping[Any, Reader]] = {
        int: numeral,
        float: _number,
        str: _text,
        bool: _flag,
        LongText: _long_text,
        bytes: _bytes,
    }

    def several(self, read: Reader, value: Any, depth: int) -> tuple[Any, ...]:
        if read is numeral and type(value) is list:  # ranks may be many
            numbers = cast("list[Any]", value)
            if set(map(type, numbers)) == {int} and min(numbers) in NUMERALS and max(numbers) in NUMERALS:
                return tuple(numbers)
        if not isinstance(value, (list, tuple)):
            raise TypeError("not a list")
        found: list[Any] = []
        for one in cast("list[Any]", value):
            with suppress(*UNDECODABLE):
                found.append(read(one, depth))
        return tuple(found)

    def mapping(self, key: Reader, read: Reader, value: Any, depth: int) -> dict[str, Any]:  # noqa: ARG002
        found: dict[str, Any] = {}
        for name, one in object_in(value).items():
            with suppress(*UNDECODABLE):
                found[str(name)] = read(one, depth)
        return found

    def object(self, kind: type[Facts], value: Any, depth: int) -> Any:
        if depth >= _DEEPEST:
            raise TypeError("facts are too deep")
        return kind.read(object_in(value), depth + 1)


_FACTS = _Facts()
