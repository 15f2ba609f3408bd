"""JSON with comments and trailing commas, as editors keep their settings: a list in it is changed, all else stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])')
_SPACE = re.compile(r"\s*")
_INDENT = "    "
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class _Entry:
    """A value, and where its text begins and ends."""

    value: Any
    start: int
    end: int


def read(text: str) -> dict[str, Any]:
    """An object, perhaps with comments.

    Raises:
        ValueError: it is something else.
    """
    found = json.loads(_plain(text))
    if not isinstance(found, dict):
        raise ValueError("it is no object.")
    return cast("dict[str, Any]", found)


def with_entries(text: str, name: str, entries: Sequence[Any], replaced: Callable[[Any], bool]) -> str:
    """The text of an object with these entries at the end of one of its lists, which is added if there is none.

    Args:
        text: for which ``read`` works.
        name: of the list.
        entries: what JSON can hold; at least one.
        replaced: whether an entry that is there is left out.
    """
    fields = _fields(_plain(text))
    made = ",\n".join(_indented(entry, 2) for entry in entries)
    if name not in fields:
        close = _plain(text).rindex("}")
        return _appended(text, list(fields.values()), close, f'{_INDENT}"{name}": [\n{made}\n{_INDENT}]', "\n")
    for entry in reversed(_items(_plain(text), fields[name])):
        text = _without(text, entry) if replaced(entry.value) else text
    plain = _plain(text)
    whole = _fields(plain)[name]
    return _appended(text, _items(plain, whole), whole.end - 1, made, f"\n{_INDENT}")


def _plain(text: str) -> str:
    """The same text, as long, without comments and trailing commas."""
    return _blank(_LAST_COMMA, _blank(_COMMENT, text))


def _blank(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: match[1] or re.sub(r"\S", " ", match[0]), text)


def _skip(plain: str, at: int) -> int:
    match = _SPACE.match(plain, at)
    return match.end() if match is not None else at


def _fields(plain: str) -> dict[str, _Entry]:
    """The values of the object, by their names."""
    found: dict[str, _Entry] = {}
    at = _skip(plain, plain.index("{") + 1)
    while plain[at] != "}":
        name, at = _decode(plain, at)
        start = _skip(plain, plain.index(":", at) + 1)
        value, end = _decode(plain, start)
        found[name] = _Entry(value, start, end)
        at = _skip(plain, end)
        at = _skip(plain, at + 1) if plain[at] == "," else at
    return found


def _items(plain: str, of: _Entry) -> list[_Entry]:
    return list(_each(plain, of.start + 1))


def _each(plain: str, at: int) -> Iterator[_Entry]:
    at = _skip(plain, at)
    while plain[at] != "]":
        value, end = _decode(plain, at)
        yield _Entry(value, at, end)
        at = _skip(plain, end)
        at = _skip(plain, at + 1) if plain[at] == "," else at


def _without(text: str, entry: _Entry) -> str:
    """The text without this entry and its comma, and without its lines if nothing else is in them."""
    commas = _blank(_COMMENT, text)  # with the last comma too
    start, end = entry.start, _skip(commas, entry.end)
    end = end + 1 if commas[end] == "," else entry.end
    line, rest = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    if not text[line:start].strip() and not text[end:rest].strip():
        start, end = line, rest + 1
    return text[:start] + text[end:]


def _appended(text: str, known: Sequence[_Entry], close: int, made: str, after: str) -> str:
    """The text with more before the bracket at ``close``, behind what is known there."""
    last = known[-1].end if known else close
    comma = "," if known and "," not in _blank(_COMMENT, text)[last:close] else ""
    between = text[last:close].rstrip() if known else ""
    head = text[:last] if known else text[:close].rstrip()
    return f"{head}{comma}{between}\n{made}{after}{text[close:]}"


def _indented(value: Any, depth: int) -> str:
    return "\n".join(_INDENT * depth + line for line in json.dumps(value, indent=4).splitlines())
