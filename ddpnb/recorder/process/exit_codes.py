"""The exit status that Python gives a process for what ``SystemExit`` carries."""

from __future__ import annotations


def exit_status(code: object) -> int:
    """The status of a process that ends with this code, as its parent sees it."""
    number = as_number(code)
    if number is None:
        return int(code is not None)
    # As a C long, which is -1 where it does not fit.
    return number & 0xFF if -(1 << 63) <= number < 1 << 63 else 0xFF


def as_number(code: object) -> int | None:
    """The code where it is an integer."""
    # Not isinstance(): an object may claim to be an integer.
    return int.__index__(code) if issubclass(type(code), int) else None  # type: ignore[arg-type]


def told(code: object) -> dict[str, int]:
    """What is written of the end of a program with this code: its status, and the code if the system keeps less of it."""
    number, status = as_number(code), exit_status(code)
    asked = {"asked": number} if number not in (None, status) and -(1 << 63) <= number < 1 << 63 else {}
    return {"code": status, **asked}
