"""What ranks and files give: names of variables, functions, threads, groups; and values that make no sense."""

from __future__ import annotations

MAX_NAME = 200  # characters
#: what decoding JSON raises that came from a rank or a file, and may be anything
UNDECODABLE = (TypeError, ValueError, LookupError, OverflowError, AttributeError, RecursionError)


def one_line(text: str) -> str:
    """Text without anything that would drive a terminal or break a line: a name may hold any character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def given_name(value: object) -> str:
    """A name that came from a rank or a file, which may be anything."""
    return one_line(str(value)[:MAX_NAME])
