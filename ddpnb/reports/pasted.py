"""What editors, terminals and issues make of a log: fences, tags, numbers of lines, indentation, wrapped lines, and headings."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

_FENCE = re.compile(r"\s{0,8}(?:>\s{0,2}){0,3}(?:`{3,8}|~{3,8})[\w-]{0,20}\s{0,4}$")
_TAG = re.compile(r"</?(?:details|summary|pre|code|blockquote)\b[^<>\n]{0,100}>")
_NUMBERED = re.compile(r"[ \t]{0,8}(\d{1,9})(?:[:|\t]|  ?(?=\[|Traceback|  File))")
_SAMPLE = 2000  # lines
_WIDTHS = (79, 80, 100, 120, 132, 140, 160, 180, 200, 240)  # of terminals, in characters
#: what a line begins with that is no rest of the line above
_BEGINS = re.compile(
    r"\s{2}|\[(?:rank|default|\d{1,6}[,\]]|[EWIF]\d|[EWI] )|[\[(<]?\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d|\(\w{1,60} pid=|> |Traceback |={5}|-{5}|"
    r"[A-Za-z_.]{1,80}(?:Error|Exception|Warning)\b|(?:INFO|WARN|ERROR|DEBUG|Process|Thread|During handling|The above) |\d{1,5}: "
)
_DIGIT = re.compile(r"\d")
_ALIKE = 6  # characters
_MOST_WRAPPED = 20_000  # lines
_RANK = re.compile(r"[Rr](?:ank|ANK)[ _:=#-]{0,2}\d")
_RANK_HEADING = re.compile(
    r"^(?P<mark>[ \t*#=>_:<\[(|`~-]{0,40})(?:(?:logs?|output|std(?:out|err)|stack|trace(?:back)?)(?: of| for| from)? )?"
    r"(?:global[ _-])?rank[ _:=#-]{0,2}(?P<rank>\d{1,6})(?:['\u2019]s)?(?: (?:logs?|output|std(?:out|err)|stack|trace(?:back)?))?"
    r"(?P<end>[ \t*#=<_:>\])|`~-]{0,40})$",
    re.IGNORECASE | re.MULTILINE,
)
_FILE_HEADING = re.compile(
    r"^(?:==> |-{2,40} |={2,40} |#{1,6} |\*\*|`)(?P<path>[\w./\\ -]{1,200}?\.(?:log|txt|out|err)(?:\.\d{1,4})?)[ *#=<:`-]{0,40}$",
    re.MULTILINE,
)


def without_markup(text: str) -> str:
    """Without the tags in which issues and pages show a log."""
    if "<h2>Rank " in text or not _TAG.search(text):
        return text
    return html.unescape(_TAG.sub("", text))


def lines_of(lines: list[str], *, fenced: bool) -> list[str]:
    """The lines as they were before they were pasted, numbered or wrapped.

    Args:
        lines: of a log.
        fenced: whether it has Markdown's fences.
    """
    if fenced:
        lines = ["" if _FENCE.match(line) else line for line in lines]
    return _joined(_without_numbers(lines))


def _without_numbers(lines: list[str]) -> list[str]:
    """Without numbers of lines (``cat -n``, ``grep -n``, an editor): nearly all lines have one, each one more than that before."""
    sample = [(_NUMBERED.match(line), line) for line in lines[:_SAMPLE] if line.strip()]
    numbers = [int(match[1]) for match, _ in sample if match]
    rising = sum(after == before + 1 for before, after in pairwise(numbers))
    if len(numbers) < 3 or len(numbers) < 0.9 * len(sample) or rising < 0.9 * (len(numbers) - 1):
        return lines
    return [_NUMBERED.sub("", line, count=1) for line in lines]


def _joined(lines: list[str]) -> list[str]:
    """Lines that a terminal wrapped, joined: they have its width, no line is longer, and the next one has no beginning of its own."""
    width = max(map(len, lines), default=0)
    if not 60 <= width <= 400:
        return lines
    longest = [number for number, line in enumerate(lines[:-1]) if len(line) == width]
    if len(longest) > _MOST_WRAPPED:
        return lines
    wrapped = {number for number in longest if _continues(lines[number], lines[number + 1])}
    if len(wrapped) < (1 if width in _WIDTHS else 2):
        return lines
    joined: list[str] = []
    for number, line in enumerate(lines):
        if number - 1 in wrapped:
            joined[-1] += line
        else:
            joined.append(line)
    return joined


def _continues(line: str, following: str) -> bool:
    alike = _DIGIT.sub("0", line[:_ALIKE]) == _DIGIT.sub("0", following[:_ALIKE])  # both have a prefix
    return bool(following.strip()) and len(set(line)) > 3 and not alike and not _BEGINS.match(following)


def dedented(lines: list[str], anchors: Sequence[tuple[int, int]]) -> bool:
    """Take off the indentation of blocks of lines, in place: of a list, a quotation, an answer.

    Args:
        lines: of a log.
        anchors: (the number of a line, the column at which it begins where nothing is put before it).

    Returns:
        Whether any line was changed.
    """
    columns = dict(anchors)
    done, changed = -1, False
    for number, column in anchors:
        before = lines[number][:column]
        if number <= done or not before or before.strip():
            continue
        first, last = _block(lines, number, before)
        done = last
        if any(
            lines[other][: columns[other]].strip(" \t") == "" and columns[other] < column
            for other in columns
            if first <= other <= last
        ):
            continue  # it is a part of what begins further left
        for other in range(first, last + 1):
            lines[other] = lines[other][column:]
        changed = True
    return changed


def _block(lines: Sequence[str], number: int, before: str) -> tuple[int, int]:
    def extent(numbers: Iterator[int]) -> int:
        last = number
        for other in numbers:
            if lines[other].startswith(before):
                last = other
            elif lines[other].strip():
                break
        return last

    return extent(iter(range(number - 1, -1, -1))), extent(iter(range(number + 1, len(lines))))


def headings(text: str, rank_of_path: Callable[[str], int | None]) -> list[tuple[int, int | None]]:
    """(where it begins, the rank) of headings above the logs of several ranks: ``==> rank1.log <==``, ``**Rank 1:**``.

    There are none where a rank has two, or nothing below its heading: then they are what ranks print.
    """
    found: list[tuple[int, int, int | None]] = []
    for word in _RANK.finditer(text):
        match = _RANK_HEADING.match(text, text.rfind("\n", 0, word.start()) + 1)
        if match is not None and (match["mark"].strip() or ":" in match["end"]):
            found.append((match.start(), match.end(), int(match["rank"])))
    found += [(match.start(), match.end(), rank_of_path(match["path"])) for match in _FILE_HEADING.finditer(text)]
    found.sort()
    ranks = [rank for *_, rank in found if rank is not None]
    ends = [start for start, _, _ in found[1:]] + [len(text)]
    filled = all(text[begin:end].strip() for (_, begin, _), end in zip(found, ends, strict=False))
    alone = len(ranks) == 1 and not text[: found[0][0]].strip()
    clear = filled and len(set(ranks)) == len(ranks) and (len(ranks) > 1 or alone)
    return [(start, rank) for start, _, rank in found] if clear else []
