"""How the sentences of errors.toml are written: ``Timed out{? after {waited:seconds}}`` with the values of an error."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ddpnb.recording import phrases
from ddpnb.recording.messages.errors import xid_meaning
from ddpnb.texts import shortened

_LONGEST = 200_000
_OPTIONAL = re.compile(
    r"\{\?(?P<known>(?:[^{}|]|\{\{|\}\}|\{[^{}?]*\})*)(?:\|(?P<other>(?:[^{}|]|\{\{|\}\}|\{[^{}?]*\})*))?\}"
)
_FIELD = re.compile(r"(?<!\{)\{(\w+)[^{}]*\}")

Values = Mapping[str, Any]


def listing(items: Iterable[object], most: int = 6) -> str:
    """``a, b and c``; more than ``most`` are counted."""
    texts = [str(item)[:120] for item in items]
    if len(texts) > most:
        return f"{', '.join(texts[: most - 1])} and {len(texts) - most + 1} more"
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)


def size(number: float | str) -> str:
    """Bytes as a person reads them: ``3.6 PiB``."""
    number = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} PiB"


def seconds(milliseconds: str) -> str:
    """``8000`` is ``8 s``, ``1800000`` is ``30 min``."""
    number = int(milliseconds[:15]) / 1000
    if number >= 120 and number % 60 == 0:
        return f"{number / 60:.0f} min"
    return f"{number:g} s"


def numbers(value: str | Sequence[object]) -> tuple[int, ...]:
    """The numbers of a list such as ``1, 2 5``, in order, each once."""
    text = value[:_LONGEST] if isinstance(value, str) else " ".join(map(str, value))
    return tuple(sorted({int(digits) for digits in re.findall(r"\d{1,9}", text)}))


_WRITTEN: dict[str, Callable[[Any], str]] = {
    "seconds": seconds,
    "size": size,
    "ranks": lambda value: phrases.ranks(numbers(value)),
    "Ranks": lambda value: phrases.ranks(numbers(value), capital=True),
    "numbers": lambda value: phrases.ranks(numbers(value)).partition(" ")[2],
    "listing": listing,
    "listing4": lambda value: listing(value, 4),
    "sorted": lambda value: listing(sorted(value)),
    "lower": str.lower,
    "quoted": lambda value: repr(value.strip("'")),
    "headline": lambda value: shortened((value.splitlines() or [""])[0], 200).rstrip("."),
    "given": lambda _: "",  # it decides whether something is said
    "xid": lambda value: xid_meaning(int(value)),
    "+1": lambda value: str(int(value) + 1),
}


class _Formatter(string.Formatter):
    """``str.format``, in which a value that is not known is empty."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Values) -> Any:  # noqa: ARG002
        return kwargs.get(str(key), "")

    def format_field(self, value: Any, format_spec: str) -> str:
        if "|" in format_spec:
            one, _, several = format_spec.partition("|")
            return one if (value if isinstance(value, int) else len(numbers(value))) == 1 else several
        write = _WRITTEN[format_spec] if format_spec else str
        return write(value) if value != "" else ""


def sentence(template: str, values: Values) -> str:
    """The sentence, without what needs a value that is not known.

    Values are inserted once, at the end: text of strangers is no part of a template.
    """
    while part := _OPTIONAL.search(template):
        known = all(values.get(name) for name in _FIELD.findall(part["known"]))
        template = template[: part.start()] + (part["known"] if known else part["other"] or "") + template[part.end() :]
    return _Formatter().vformat(template, (), values)


def sentences(templates: Sequence[str], values: Values, most: int = 4) -> tuple[str, ...]:
    """Evidence: one that names a list with ``{name:each}`` is said of each of its items."""
    written: list[str] = []
    for template in templates:
        several = re.search(r"\{(\w+):each\}", template)
        items = list(values.get(several[1], ()))[:most] if several else []
        plain = template.replace(":each}", "}")
        written += (
            [sentence(plain, {**values, several[1]: item}) for item in items] if several else [sentence(plain, values)]
        )
    return tuple(filter(None, written))
