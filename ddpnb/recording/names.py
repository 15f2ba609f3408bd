"""Untrusted input of ranks and files: names of variables, functions, threads and groups, and invalid values."""

from __future__ import annotations

import re

from ddpnb.texts import printable

_RESUMED = re.compile(
    r"(?:torch_dynamo_resume_in_)+(.+?)(?:_at_\d+)+"
)  # what torch.compile makes of the rest of a function
MAX_NAME = 200  # characters
#: what decoding JSON raises that came from a rank or a file, and may be anything
UNDECODABLE = (TypeError, ValueError, LookupError, OverflowError, AttributeError, RecursionError)


def one_line(text: str) -> str:
    """Text without control characters and line breaks: a name may contain any character."""
    return printable(text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text))


def given_name(value: object) -> str:
    """A name from a rank or a file; the value may be anything."""
    return one_line(str(value)[:MAX_NAME])


def function_name(value: object) -> str:
    """The name of a function from a rank or a file, as the user's source has it."""
    name = given_name(value)
    resumed = _RESUMED.fullmatch(name)
    return resumed[1] if resumed else name
