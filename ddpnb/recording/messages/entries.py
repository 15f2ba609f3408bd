"""The entries of errors.toml, which says how to write one: whether an error is one of them, and what it means then."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from typing import Any

from ddpnb.recording.messages import computed
from ddpnb.recording.messages.errors import compiled, data
from ddpnb.recording.messages.explained import Explained, Raised, blamed
from ddpnb.recording.messages.sentences import Values, numbers, sentence, sentences

_MOST = 64  # values of one kind in a message
_INHERITED = ("code", "summary", "remedy", "evidence", "culprits", "missing", "tensors", "source", "process", "signal")


@cache
def entries() -> tuple[Entry, ...]:
    return tuple(Entry.of(table) for table in data()["error"])


@cache
def words() -> tuple[str, ...]:
    """Words of the lines of a log that are errors without an exception: the kernel's, the backend's, the workers'."""
    return tuple(dict.fromkeys(text for entry in entries() for leaf in entry.all for text in leaf.logged))


def _several(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@dataclass(frozen=True, eq=False)
class Entry:
    """An error, or a case of one: its conditions, as far as they are its own, and its sentences."""

    code: str = ""
    summary: str = ""
    remedy: str = ""
    evidence: tuple[str, ...] = ()
    culprits: tuple[str, ...] | None = None
    missing: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    holds: Values = field(default_factory=dict[str, str])
    source: str = ""
    process: str = ""
    signal: str = ""
    versions: str = ""
    logged: tuple[str, ...] = ()
    pattern: tuple[str, ...] = ()
    exception: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    not_calls: tuple[str, ...] = ()
    detail: tuple[str, ...] = ()
    line: str = ""
    unless: str = ""
    cause_of: str = ""
    compute: str = ""
    greater: tuple[str, ...] = ()
    each: Values = field(default_factory=dict[str, str])
    values: Values = field(default_factory=dict[str, str])
    when: Values = field(default_factory=dict[str, str])
    case: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, table: dict[str, Any]) -> Entry:
        """An entry of the file. An unknown word is a TypeError."""
        inherited = {name: table[name] for name in _INHERITED if name in table}
        cases = tuple(cls.of({**inherited, **case}) for case in table.get("case", ()))
        known: dict[str, Any] = {**table, "case": cases}
        for name in (
            "evidence",
            "culprits",
            "missing",
            "tensors",
            "logged",
            "pattern",
            "exception",
            "through",
            "calls",
            "not_calls",
            "detail",
            "greater",
        ):
            if name in known:
                known[name] = _several(known[name])
        return cls(**known)

    @property
    def all(self) -> Iterator[Entry]:
        yield self
        for case in self.case:
            yield from case.all

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(compiled, self.pattern))

    def explanation(self, raised: Raised, values: Values) -> tuple[Entry, Explained] | None:
        """What the error means, and the case that it is; None if it is not this one."""
        if self.exception and raised.exception not in self.exception:
            return None
        match = self._match(raised) if self.pattern else None
        if self.pattern and match is None:
            return None
        known = self._known(raised, {**values, **self.values, **(_named(match) if match else {})})
        if known is None:
            return None
        if self.case:
            return next((found for case in self.case if (found := case.explanation(raised, known)) is not None), None)
        return self, self._explained(known)

    def _match(self, raised: Raised) -> re.Match[str] | None:
        match = _first(self._patterns, raised.text)
        if match is None and self.cause_of and compiled(self.cause_of).search(raised.text):
            return _first(self._patterns, raised.traceback)
        return match

    def _known(self, raised: Raised, values: dict[str, Any]) -> dict[str, Any] | None:
        """The values with those of this entry; None where another condition does not hold."""
        text = raised.text
        if self.unless and compiled(self.unless).search(text):
            return None
        if not all(raised.passes(compiled(pattern)) for pattern in self.through):
            return None
        if (self.calls and not raised.calls(*self.calls)) or (self.not_calls and raised.calls(*self.not_calls)):
            return None
        if self.line:
            match = next(filter(None, map(compiled(self.line).search, raised.lines)), None)
            if match is None:
                return None
            values.update(_named(match))
        for pattern in self.detail:
            if match := compiled(pattern).search(text):
                values.update(_named(match))
        for name, pattern in self.each.items():
            values[name] = tuple(match[1] for match in islice(compiled(pattern).finditer(text), _MOST))
            if not values[name]:
                return None
        if self.greater and int(values[self.greater[0]]) <= int(values[self.greater[1]]):
            return None
        if self.compute:
            more = getattr(computed, self.compute)(raised, values)
            if more is None:
                return None
            values.update(more)
        return values if all(values.get(name) == value for name, value in self.when.items()) else None

    def _explained(self, values: dict[str, Any]) -> Explained:
        culprits = _ranks(self.culprits or (), values)
        values["culprits"] = culprits
        holds = {int(values[rank]): str(values[what]) for rank, what in self.holds.items()}
        return Explained(
            self.code,
            sentence(self.summary, values),
            sentence(self.remedy, values),
            sentences(self.evidence, values),
            culprits if culprits or self.culprits == () else None,
            _ranks(self.missing, values),
            tuple(name for key in self.tensors for name in _several(values.get(key) or [])),
            values.get("hint"),
            holds,
            blamed({next(iter(holds)): Explained(self.code, "", holds=holds)}).sides if holds else (),
            int(values.get(self.process) or 0),
            self.signal,
        )


def _first(patterns: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    for pattern in patterns:
        if match := pattern.search(text):
            return match
    return None


def _named(match: re.Match[str]) -> dict[str, str]:
    return {name: value.strip() for name, value in match.groupdict().items() if value is not None}


def _ranks(names: Iterable[str], values: Values) -> tuple[int, ...]:
    return numbers([number for name in names for number in numbers(values.get(name, ""))])


def explanation(raised: Raised) -> tuple[Entry, Explained] | None:
    """What an error means, by the first entry that it is."""
    if not raised.text and not raised.exception:
        return None
    values = {"text": raised.text}
    return next((found for entry in entries() if (found := entry.explanation(raised, values)) is not None), None)
