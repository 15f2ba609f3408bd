"""Names that ranks give: of variables, functions, threads, groups."""

from __future__ import annotations

MAX_NAME = 200  # characters


def one_line(text: str) -> str:
    """Text without anything that would drive a terminal or break a line: a name may hold any character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def given_name(value: object) -> str:
    """A name that came from a rank or a file, which may be anything."""
    return one_line(str(value)[:MAX_NAME])
