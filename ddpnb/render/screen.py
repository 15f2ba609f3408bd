"""What a terminal would show of a text: progress bars write over their lines, and move the cursor to those above."""

from __future__ import annotations

import re

from ddpnb.texts import printable

_CONTROL = re.compile(
    r"\x1b\[([0-9;?]{0,40})([A-Za-z])|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[=>78()]?B?|[\r\n\b]"
)
_WRITES_OVER = re.compile(r"[\x1b\b]|\r(?!\n)")
_WIDEST = 10_000  # columns


def as_seen(text: str) -> str:
    r"""The last state of lines that were written over; no colours, no control characters.

    Example:
        >>> as_seen("10%\r 20%\r100%\n")
        '100%\n'
    """
    if _WRITES_OVER.search(text) is None:
        return printable(text)
    lines, row, column, end = [""], 0, 0, 0
    for match in _CONTROL.finditer(text):
        if match.start() > end:
            column = _put(lines, row, column, text[end : match.start()])
        end = match.end()
        control = match[0]
        if control == "\n":
            row, column = row + 1, 0
            if row == len(lines):
                lines.append("")
        elif control == "\r":
            column = 0
        elif control == "\b":
            column = max(0, column - 1)
        elif match[2]:
            row, column = _move(lines, row, column, match[2], match[1])
    _put(lines, row, column, text[end:])
    return printable("\n".join(line.rstrip(" ") if line.isspace() else line for line in lines))


def _put(lines: list[str], row: int, column: int, text: str) -> int:
    line = lines[row]
    if column > len(line):
        line = line.ljust(column)
    lines[row] = line[:column] + text + line[column + len(text) :]
    return column + len(text)


def _move(lines: list[str], row: int, column: int, action: str, given: str) -> tuple[int, int]:
    first = given.partition(";")[0]
    count = min(int(first), _WIDEST) if first.isdecimal() else 0
    steps = count or 1
    if action in "AF":
        row = max(0, row - steps)
    elif action in "BE":
        row = min(len(lines) - 1, row + steps)
    elif action == "C":
        column = min(_WIDEST, column + steps)
    elif action == "D":
        column = max(0, column - steps)
    elif action == "G":
        column = steps - 1
    elif action == "K":
        line = lines[row]
        lines[row] = {0: line[:column], 1: " " * column + line[column:]}.get(count, "")
    elif action == "J" and count == 0:
        lines[row] = lines[row][:column]
        del lines[row + 1 :]
    return row, 0 if action in "EF" else column
