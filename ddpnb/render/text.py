"""The diagnosis as plain text: a paragraph per finding, wrapped, coloured only on a terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

from ddpnb.model import phrases
from ddpnb.model.findings import Diagnosis, Finding
from ddpnb.render.palette import ANSI

HEADLINES = {
    "ok": "ok: the script completed on all ranks",
    "hang": "hang: the ranks cannot continue",
    "crash": "crash: a rank failed",
    "divergence": "divergence: completed, but the ranks diverged",
    "interrupted": "interrupted: the script was still running",
}
_FINDINGS = 16  # written out in full
# A cell's file in the folder of the world:
_CELL = re.compile(r"(?<![\w./-])/[\w./-]*/ddpnb-\d+-\w+/(?:(In\[\d+\])\.py|(?=cell\d+\.py))")
_STORIES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "pitfalls", "")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


def printable(text: str) -> str:
    """Text from a rank without control characters: it must not drive the reader's terminal."""
    shown = text.replace("\r", "").encode("utf-8", "replace").decode()  # lone surrogates of odd file names
    return _CONTROL.sub("�", shown)


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour: on a capable terminal, unless NO_COLOR is set (no-color.org)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def relative(text: str) -> str:
    """Shorten paths: below the working directory to relative ones, cells to their names, pitfalls to the path
    inside the package.
    """
    here = os.getcwd()
    text = _CELL.sub(r"\1", text).replace(_STORIES, "pitfalls" + os.sep)
    return text.replace(here + os.sep, "") if len(here) > 1 else text


def diagnosis(found: Diagnosis, *, colour: bool = False, width: int | None = None) -> str:
    """The whole diagnosis; ends without a newline."""
    width = width or min(100, shutil.get_terminal_size((100, 24)).columns)
    role = "ok" if found.outcome == "ok" else "error"
    headline = HEADLINES[found.outcome]
    seconds = found.timing.get("diagnosis_s")
    if found.outcome == "hang" and seconds is not None:
        headline += f", detected {seconds:.1f} s after the last progress"
    if not found.settled and found.outcome == "ok":
        headline = "running: no problems found so far"
    parts = [_paint(f"ddpnb: {headline}", colour, ANSI[role], ANSI["bold"])]
    parts += [finding(one, colour=colour, width=width) for one in found.findings[:_FINDINGS]]
    if len(found.findings) > _FINDINGS:
        parts.append(textwrap.fill(_more(found.findings[_FINDINGS:]), width))
    return relative(printable("\n\n".join(parts)) if not colour else "\n\n".join(parts))


def finding(one: Finding, *, colour: bool = False, width: int = 100) -> str:
    """One finding: summary, evidence, lines, fix."""

    def wrapped(text: str, first: str, rest: str) -> str:
        return textwrap.fill(
            relative(printable(text)), width, initial_indent=first, subsequent_indent=rest,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip

    title = wrapped(one.summary, "", "")
    lines = [_paint(title, colour, ANSI["bold"])]
    lines[0] += _paint(f"  [{one.code} {one.name}]", colour, ANSI[one.severity])
    lines += [wrapped(text, "  - ", "    ") for text in one.evidence]
    places = [f"rank {rank}: {site}" for rank, site in one.where[:8]]
    if places:
        more = f", and {len(one.where) - 8} more" if len(one.where) > 8 else ""
        lines.append(wrapped("where: " + ", ".join(places) + more, "  ", "    "))
    if one.remedy:
        lines.append(wrapped("Fix: " + one.remedy, "  ", "    "))
    return "\n".join(lines)


def _more(findings: Sequence[Finding]) -> str:
    """The findings that are not written out, by name."""
    culprits: dict[str, set[int]] = {}
    for one in findings:
        culprits.setdefault(f"{one.code} {one.name}", set()).update(one.culprits or one.concerned)
    told = ", ".join(f"{name} ({phrases.ranks(ranks)})" for name, ranks in culprits.items())
    return f"And {len(findings)} more: {told}."


def _paint(text: str, colour: bool, *codes: str) -> str:
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if colour else text


def show(found: Diagnosis, stream: TextIO | None = None) -> None:
    """Print the diagnosis, coloured if the stream is a terminal."""
    out: TextIO = sys.stderr if stream is None else stream
    print(diagnosis(found, colour=wants_colour(out)), file=out, flush=True)
