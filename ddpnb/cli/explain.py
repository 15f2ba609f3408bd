"""``ddpnb explain``: pages of the catalogue, and explanations of errors."""

from __future__ import annotations

import argparse
import sys

from ddpnb.cli import show
from ddpnb.errors import UsageError
from ddpnb.render import pages
from ddpnb.render.explanation import Explanation, explain, unknown
from ddpnb.render.terminal import wants_colour
from ddpnb.rules import catalogue
from ddpnb.world import explaining

HELP = "explain a finding (DDP301) or an error text, and how to fix it"
STATUS_UNKNOWN = 1
_CHUNK, _LONGEST = 1 << 20, 32 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb explain [CODE... | WORDS... | - | --file LOG]"
    parser.epilog = (
        "ddpnb explain                    all codes\n"
        "ddpnb explain DDP301 ddp401 502  pages of these findings, or of their names\n"
        "ddpnb explain barrier hang       the pages that match these words best\n"
        "ddpnb explain --file train.log   what happened in a log, with such pages\n"
        "torchrun ... 2>&1 | ddpnb explain -\n\n"
        "exit status: 0 explained; 1 no known error in the text; 2 no such code, or\nusage error"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--file",
        metavar="LOG",
        help="explain what happened in this log, of all ranks together (also compressed, an archive, or a folder)",
    )
    parser.add_argument("what", nargs="*", metavar="CODE", help="codes, names or words; - reads standard input")


def run(arguments: argparse.Namespace) -> int:
    """Print what is asked for; returns the exit status."""
    what: list[str] = arguments.what
    file: str | None = arguments.file
    if file is not None or what == ["-"]:
        if file is not None and what:
            raise UsageError("--file cannot be combined with codes or words.", "Give one or the other.")
        if file is None or file == "-":
            return _show(explaining.of_bytes(_standard_input()))
        return _show(explaining.of_log(file))
    if not what:
        show(pages.listing(colour=wants_colour(sys.stdout)) + "\n\nddpnb explain CODE prints the page of a finding.")
        return 0
    codes = [catalogue.resolve(word) for word in what]
    if all(code is not None for code in codes):
        shown = tuple(catalogue.page(code) for code in dict.fromkeys(codes) if code is not None)
        return _show(Explanation(pages=shown))
    wrong = next((word for word in what if catalogue.looks_like_code(word) and catalogue.resolve(word) is None), None)
    if wrong is None and len(what) == 1 and "-" in what[0] and catalogue.nearest(what[0]):  # a name, not quite
        wrong = what[0]
    if wrong is not None:
        raise unknown(wrong)
    return _words(" ".join(what))


def _words(words: str) -> int:
    """The pages that match; the text of an error is explained."""
    code = catalogue.resolve(words)
    explanation = Explanation(pages=(catalogue.page(code),)) if code is not None else explain(words)
    if explanation.findings or code is not None:
        return _show(explanation)
    matching = catalogue.search(words)
    if not matching:
        raise unknown(words)
    best = pages.matches(matching, colour=wants_colour(sys.stdout))
    show(f"{best}\n\nddpnb explain {matching[0].code} prints the page of the first match.")
    return 0


def _show(explanation: Explanation) -> int:
    show(explanation.text(colour=wants_colour(sys.stdout)))
    return 0 if explanation else STATUS_UNKNOWN


def _standard_input() -> bytes:
    """The end of standard input, of bounded size."""
    if sys.stdin.isatty():
        print("ddpnb: paste the error, then press Ctrl-D", file=sys.stderr)
    kept = b""
    while chunk := sys.stdin.buffer.read(_CHUNK):
        kept = (kept + chunk)[-_LONGEST:]
    return kept
