"""The file errors.toml, read where it is first needed, and its patterns."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_PART = re.compile(r"\(\?&(\w+)\)")

XID = re.compile(r"NVRM: Xid \(PCI:([\w:.]{1,20})\): (\d{1,4})")
PROGRAMS = (13, 31)  # Xids for which the program is the likely cause, not the device


@cache
def data() -> dict[str, Any]:
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("ddpnb.recording.messages").joinpath("errors.toml").read_text(encoding="utf-8"))


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, in which ``(?&name)`` stands for a part of the file."""
    while _PART.search(pattern):
        pattern = _PART.sub(lambda part: data()["parts"][part[1]], pattern)
    return re.compile(pattern)


def xid_meaning(number: int) -> str:
    """What NVIDIA's driver means by an Xid."""
    return data()["xids"].get(str(number), "see NVIDIA's list of Xid errors")


def is_consequence_text(text: str, *, certain: bool = False) -> bool:
    """Whether an error is that of a rank that lost a peer: it follows from the failure of another rank.

    Args:
        text: the message.
        certain: only in a backend's own words; else also in words that others use, such as "timed out".
    """
    return compiled(data()["consequences"]["certain" if certain else "likely"]).search(text) is not None
