"""Holds: the collectives before which a rank stops."""

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


@dataclass(frozen=True, slots=True)
class Hold:
    """Stop before a call that matches all conditions; without any condition, before every call.

    Args:
        before: operations, as findings name them (``all_reduce``, ``broadcast``, ``send`` ...).
        seq: the call's number in its group, from 1.
        site: where the call is: ``train.py``, ``train.py:91``, or the name of a function.
        group: label, local name or members (``0,2``) of a process group.
        when: an expression, evaluated in the user's frame that makes the call: ``"step == 5"``.
        parted: stop at the first call after the ranks of its group parted. Of the other conditions, only ``group`` goes with it.
    """

    before: tuple[str, ...] = ()
    seq: int | None = None
    site: str = ""
    group: str = ""
    when: str = ""
    parted: bool = False

    def __post_init__(self) -> None:
        for op in self.before:
            check_operation(op)
        if self.seq is not None:
            arguments.whole("seq", self.seq, 1)
        for name, value in (("site", self.site), ("group", self.group), ("when", self.when)):
            arguments.text(name, value)
        if self.when:
            check_expression(self.when)
        if self.parted and (self.before or self.seq is not None or self.site or self.when):
            raise UsageError(
                "parted=True stops at the first call after ranks parted, whichever that is.",
                "Give no operation, seq, site or when with it; group and ranks limit who is compared.",
            )

    @property
    def anything(self) -> bool:
        return not (self.before or self.seq or self.site or self.group or self.when or self.parted)

    def __str__(self) -> str:
        if self.parted:
            return "where ranks part" + (f" in group {self.group}" if self.group else "")
        parts = ["before " + (" or ".join(self.before) if self.before else "every call")]
        parts += [f"#{self.seq}"] if self.seq else []
        parts += [f"at {self.site}"] if self.site else []
        parts += [f"in group {self.group}"] if self.group else []
        parts += [f"when {self.when}"] if self.when else []
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
