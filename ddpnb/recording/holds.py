"""Holds: the collectives and the lines before which a rank stops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.calls import check_operation
from ddpnb.recording.codec import JSON, written

NEEDS_3_12 = "Only Python 3.12 and later tell in which iteration of a loop a rank is: parted=True needs one of them."
LINES_NEED_3_12 = (
    "Only Python 3.12 and later stop at single lines: holds at lines and steps over them need one of them."
)

#: how ``step`` lets a held rank continue; ``line`` is another word for ``over``
HOW = ("collective", "over", "into", "out", "line", "iteration")
_PLACE = re.compile(r"(?:(?P<file>[^:]*[^:\s]):)?(?:(?P<line>[1-9]\d{0,8})|(?P<function>[^\W\d][\w.]*)\(\))")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file (``src/train.py:40``), or the entry of a function (``train_step()``, ``model.py:Net.forward()``).

    Args:
        file: a path or the end of one; empty: any file. Of packages only where it names a folder: ``nn/modules/linear.py``.
        line: its number; 0: the entry of ``function``.
        function: its name, also with that of its class.
    """

    file: str = ""
    line: int = 0
    function: str = ""

    @classmethod
    def read(cls, text: str) -> Place:
        """What a user wrote.

        Raises:
            UsageError: it is no place.
        """
        arguments.text("line", text)
        match = _PLACE.fullmatch(text.strip())
        if match is None or not (match["file"] or match["function"]):
            raise UsageError(
                f"{arguments.short(text)} is not a place in a program.",
                'Write a file and the number of a line, or a function: "train.py:40", "train_step()".',
            )
        return cls(match["file"] or "", int(match["line"] or 0), match["function"] or "")

    def is_of(self, file: str) -> bool:
        """Whether it may be in this file."""
        return not self.file or file == self.file or file.endswith("/" + self.file.removeprefix("./"))

    @property
    def in_libraries(self) -> bool:
        """Whether it may be in an installed package: many of these have a utils.py, and a forward()."""
        return "/" in self.file

    def is_entry_of(self, qualname: str) -> bool:
        """Whether it is the entry of the function with this qualified name."""
        name = qualname.replace("<locals>.", "")
        return bool(self.function) and (name == self.function or name.endswith("." + self.function))


def is_place(text: str) -> bool:
    """Whether a text is a place in a program, rather than an operation."""
    return _PLACE.fullmatch(text.strip()) is not None


@dataclass(frozen=True, slots=True)
class Hold:
    """Stop before a call or a line that matches all conditions; without any condition, before every call.

    Args:
        before: operations, as findings name them (``all_reduce``, ``broadcast``, ``send`` ...).
        seq: the call's number in its group, from 1.
        site: where the call is: ``train.py``, ``train.py:91``, or the name of a function.
        group: label, local name or members (``0,2``) of a process group.
        when: an expression, evaluated in the user's frame that makes the call: ``"step == 5"``.
        parted: stop at the first call after the ranks of its group parted. Of the other conditions, only ``group`` goes with it.
        line: stop before this line, or at the entry of this function: see ``Place``. ``when``, ``count`` and ``differs`` go with it.
        count: stop from the ``count``-th time on.
        exception: stop where an exception leaves the user's code, which nothing in it has handled.
        differs: an expression; stop where its value is not the same on all ranks.
    """

    before: tuple[str, ...] = ()
    seq: int | None = None
    site: str = ""
    group: str = ""
    when: str = ""
    parted: bool = False
    line: str = ""
    count: int = 1
    exception: bool = False
    differs: str = ""

    def __post_init__(self) -> None:
        for op in self.before:
            check_operation(op)
        if self.seq is not None:
            arguments.whole("seq", self.seq, 1)
        arguments.whole("count", self.count, 1)
        for name, value in (("site", self.site), ("group", self.group), ("when", self.when), ("differs", self.differs)):
            arguments.text(name, value)
        for expression in filter(None, (self.when, self.differs)):
            check_expression(expression)
        if self.line:
            Place.read(self.line)
        self._check_together()

    def _check_together(self) -> None:
        """Refuse conditions that do not go together."""
        of_call = bool(self.before or self.seq is not None or self.site)
        others = self.line or self.exception or self.differs or self.count != 1
        if self.parted and (of_call or self.when or others):
            raise UsageError(
                "parted=True stops at the first call after ranks parted, whichever that is.",
                "Give no operation, seq, site or when with it; group and ranks limit who is compared.",
            )
        if self.exception and (of_call or self.group or self.when or self.line or self.differs or self.count != 1):
            raise UsageError(
                "exception=True stops where an exception leaves the program, whatever it was doing.",
                "Give no other condition with it; ranks limits where it stops.",
            )
        if self.line and (of_call or self.group):
            raise UsageError(
                f"A hold at a line ({self.line}) stops before the line, not before a collective.",
                "Of the conditions, when, count and differs go with a line; site is the place of a collective.",
            )

    @property
    def anything(self) -> bool:
        return not (self.before or self.seq or self.site or self.group or self.when or self.parted or self.has_more)

    @property
    def has_more(self) -> bool:
        """Whether it has a condition beside those of a call."""
        return bool(self.line or self.exception or self.differs or self.count != 1)

    @property
    def at_lines(self) -> bool:
        """Whether it stops elsewhere than before a call, which Python must report."""
        return bool(self.line or self.exception)

    def __str__(self) -> str:
        if self.exception:
            return "at an exception that is not handled"
        if self.parted:
            return "where ranks part" + (f" in group {self.group}" if self.group else "")
        if self.line:
            parts = [f"at {self.line}"]
        else:
            parts = ["before " + (" or ".join(self.before) if self.before else "every call")]
        parts += [f"#{self.seq}"] if self.seq else []
        parts += [f"at {self.site}"] if self.site else []
        parts += [f"in group {self.group}"] if self.group else []
        parts += [f"when {self.when}"] if self.when else []
        parts += [f"where {self.differs} differs between ranks"] if self.differs else []
        parts += [f"from time {self.count} on"] if self.count > 1 else []
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return written(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Hold:
        return JSON.read(cls, value)


def check_expression(text: str) -> None:
    """Refuse text that is not an expression.

    Raises:
        UsageError: with Python's error message.
    """
    arguments.text("expression", text)
    try:
        compile(text, "<expression>", "eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise UsageError(
            f"{arguments.short(text)} is not a valid expression: {getattr(error, 'msg', None) or error}.",
            "Use world.execute() to run statements.",
        ) from None


def site_fits(pattern: str, file: str, line: int, function: str) -> bool:
    """Whether a place matches ``train.py``, ``src/train.py:91`` or ``main``."""
    path, _, number = pattern.rpartition(":") if re.search(r":\d+$", pattern) else (pattern, "", "")
    if number and int(number) != line:
        return False
    return file == path or file.endswith("/" + path) or (not number and function == path)
