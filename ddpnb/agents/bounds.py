"""Answers as JSON of bounded size, without control characters and without what looks like a secret."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, cast

from ddpnb.agents.answers import Answer
from ddpnb.errors import UsageError
from ddpnb.recording.secrets import Secrets
from ddpnb.texts import printable, shortened

LONGEST = 8_000  # characters of an answer as JSON: about 2,000 tokens
_LIMITS = (
    (100, 4000),
    (50, 1500),
    (32, 1000),
    (24, 600),
    (16, 400),
    (10, 300),
    (6, 200),
    (4, 120),
    (3, 60),
)  # entries of a list, characters of a text
_NAMED = 8  # places that were cut


def bounded(answer: Answer) -> dict[str, Any]:
    """The answer as JSON, cut in few steps to what fits; ``left_out`` says what was cut.

    Args:
        answer: of a tool.

    Returns:
        A dictionary of at most ``LONGEST`` characters as JSON.

    Raises:
        UsageError: it cannot be cut to that.
    """
    secrets = Secrets(os.environ)
    for entries, characters in _LIMITS:
        cut = _Cut(entries, characters)
        with suppress(_TooLongError):
            # Secrets are looked for in what is shown alone: in all that ranks say that may take minutes.
            shown = secrets.masked(cut.value(answer, ""))
            shown["left_out"] = [*shown["left_out"], *list(dict.fromkeys(cut.left_out))[:_NAMED]]
            if len(compact(shown)) <= LONGEST:
                return shown
    raise UsageError("the answer is too long.", "Ask for fewer ranks, or for one variable.")


def compact(shown: Mapping[str, Any]) -> str:
    """An answer as it is sent, without spaces that a reader would pay for."""
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


class _TooLongError(Exception):
    """What is cut to these limits would still be too long."""


class _Cut:
    """Cuts lists and texts to a limit, and notes where."""

    def __init__(self, entries: int, characters: int) -> None:
        self._entries, self._characters = entries, characters
        self._length = 0
        self.left_out: list[str] = []

    def value(self, given: Any, path: str) -> Any:
        """What JSON can hold, cut. ``path`` is where it is in the answer."""
        if isinstance(given, str):
            return self._text(given, path)
        if is_dataclass(given):
            return {
                one.name: self.value(getattr(given, one.name), f"{path}.{one.name}".lstrip("."))
                for one in fields(given)
            }
        if isinstance(given, Mapping):
            pairs = list(cast("Mapping[Any, Any]", given).items())
            kept = self._kept(pairs, path) if len(pairs) > self._entries else pairs
            # A key may be a name of the program's, and where something was cut is no data of the program.
            return {
                self._key(key): self.value(one, f"{path}[{key if isinstance(key, int) else '*'}]") for key, one in kept
            }
        if isinstance(given, Sequence):
            items = cast("Sequence[Any]", given)
            return [self.value(one, f"{path}[{at}]") for at, one in enumerate(self._kept(items, path))]
        return given

    def _kept(self, items: Sequence[Any], path: str) -> Sequence[Any]:
        if len(items) > self._entries:
            self.left_out.append(f"{path}: the first {self._entries} of {len(items)} are shown")
        return items[: self._entries]

    def _text(self, given: str, path: str) -> str:
        if len(given) > self._characters:
            self.left_out.append(f"{path}: {self._characters} of {len(given)} characters are shown")
        shown = shortened(printable(given[: 2 * self._characters]).replace("\t", "    "), self._characters)
        self._length += len(shown)
        if self._length > LONGEST:
            raise _TooLongError
        return shown

    @staticmethod
    def _key(key: Any) -> Any:
        return shortened(printable(key), 120) if isinstance(key, str) else key
