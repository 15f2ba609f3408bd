"""``ddpnb.explain``: explains a code, an exception, a log or a finding."""

from __future__ import annotations

import math
import os
import re
import traceback
from dataclasses import dataclass

from ddpnb import pitfalls
from ddpnb.errors import UsageError
from ddpnb.recording import arguments, phrases
from ddpnb.recording.files import similar
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.messages.explain import explain_text
from ddpnb.recording.messages.explained import Explained
from ddpnb.render import as_text, pages
from ddpnb.render.document import Block
from ddpnb.render.shown import Shown
from ddpnb.rules import catalogue
from ddpnb.rules.catalogue import Page
from ddpnb.rules.finding_types import type_of

_LONGEST = 4 << 20  # bytes of a log that are read, from its end
_FEW = 6  # words at most of a text that is searched in the catalogue if it is not an error
_PAGES = 3  # that are shown in full below what a log says
# Messages of gloo, NCCL and torchrun on a rank whose peer closed the connection.
_LOST = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|ncclRemoteError|remote process exited|Connection was likely closed"
)
_ERROR = re.compile(r"Error|Exception|Traceback|:\s")
_FENCE = re.compile(r"collective mismatch at seq \d{1,12}, group [^\n]{1,2000}")
_CALLED = re.compile(r"rank \d{1,9} called (\w{1,60})\(([^)\n]{0,500})\)")
_TENSOR = re.compile(r"(\w{1,20}) (\[[\d, ]{0,200}\])")


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Shown):
    """The result of ``explain``. It displays itself: HTML in a notebook, text in a terminal.

    ``findings`` are what an error or a log says, the most telling first; ``pages`` those of the
    catalogue; ``note`` what else there is to say, above all when nothing was recognised.
    """

    _label = "explanation"

    findings: tuple[Finding, ...] = ()
    pages: tuple[Page, ...] = ()
    note: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*(finding.code for finding in self.findings), *(page.code for page in self.pages)]))

    def __bool__(self) -> bool:
        """Whether there is something to explain."""
        return bool(self.codes)

    def text(self, *, colour: bool = False, width: int | None = None) -> str:
        """As plain text, wrapped; ends without a newline."""
        return as_text.text(*self._document(), colour=colour, width=width)

    def _document(self) -> list[Block]:
        return pages.document(self.findings, self.pages, self.note, self._pitfalls)

    @property
    def _pitfalls(self) -> str:
        """The pitfalls that show the findings of these pages."""
        names = [pitfall.name for page in self.pages for pitfall in pitfalls.all_of(page.code)]
        return f"See it: ddpnb pitfalls run {' | '.join(names[:6])}" if names else ""


def explain(what: str | int | BaseException | Finding | Diagnosis) -> Explanation:
    """Explain a finding, an error or a text, as ``ddpnb.explain`` does.

    Raises:
        UsageError: there is no such code, or it is nothing that can be explained.
    """
    if isinstance(what, bool) or not isinstance(what, (str, int, BaseException, Finding, Diagnosis)):
        raise UsageError(
            f"cannot explain a {type(what).__name__}.", 'Give a code ("DDP301"), an exception, or the text of an error.'
        )
    if isinstance(what, Finding):
        return of_findings((what,))
    if isinstance(what, Diagnosis):
        return of_findings(what.findings) if what.findings else Explanation(note="It contains no findings.")
    if isinstance(what, BaseException):
        return of_text("".join(traceback.format_exception(what)))
    if isinstance(what, int) and not 0 <= what < 1000:
        raise UsageError(f"there is no finding {arguments.short(what)}.", "All codes: ddpnb explain")
    code = catalogue.resolve(what)
    if code is not None:
        return Explanation(pages=(catalogue.page(code),))
    if isinstance(what, int) or catalogue.looks_like_code(what):
        raise unknown(str(what))
    explanation = of_text(what)
    if explanation or len(what.split()) > _FEW or _ERROR.search(what):
        return explanation
    return _of_words(what) or explanation


def unknown(code: str) -> UsageError:
    """The error for an unknown code, with similar ones."""
    near = [f"{similar} {catalogue.page(similar).name}" for similar in catalogue.nearest(code)]
    hint = f"Did you mean {' or '.join(filter(None, (', '.join(near[:-1]), near[-1])))}? " if near else ""
    return UsageError(f"there is no finding {code[:40]!r}.", f"{hint}All codes: ddpnb explain")


def of_text(text: str) -> Explanation:
    """Explain a message, a traceback or a log."""
    findings = [_finding(explained) for explained in explain_text(text)] or _of_fence(text)
    if findings:
        return of_findings(tuple(findings))
    if _LOST.search(text):
        return Explanation(
            pages=(catalogue.page("DDP311"),),
            note="This rank lost the connection to another rank (secondary failure). The cause is in the output of the rank that "
            "ended first: it died (DDP311), raised an exception (DDP312) or left its loop earlier (DDP308).",
        )
    return Explanation(
        note="No distributed-training error is recognised here. If a run hangs or its ranks disagree, run it under ddpnb: "
        "ddpnb run -n 2 train.py. If the error is in your own code, see the traceback."
    )


def _of_words(words: str) -> Explanation | None:
    best = catalogue.search(words, 3)
    names = ", ".join(f"{page.code} {page.name}" for page in best)
    return Explanation(pages=best[:1], note=f"Closest pages: {names}.") if best else None


def read_log(path: str | os.PathLike[str]) -> str:
    """The end of a log, as text.

    Raises:
        UsageError: it does not exist or cannot be read.
    """
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LONGEST))
            return file.read(_LONGEST).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(
            f"cannot read {os.fspath(path)!r}: {reason}.", similar(path, "Give the path of a log file.")
        ) from None


# -- findings


def of_findings(findings: tuple[Finding, ...], note: str = "") -> Explanation:
    """Findings, with the page of each code once, and what else there is to say."""
    known = [code for code in dict.fromkeys(finding.code for finding in findings) if code in catalogue.pages()]
    rest = known[_PAGES:]
    more = f"More pages: ddpnb explain {' '.join(rest[:20])}" if rest else ""
    notes = " ".join(filter(None, (note, more)))
    return Explanation(findings, tuple(catalogue.page(code) for code in known[:_PAGES]), notes)


def _finding(explained: Explained) -> Finding:
    tensors = explained.tensors
    names = ", ".join(tensors[:8]) + (" ..." if len(tensors) > 8 else "")
    named = not tensors or tensors[0] in " ".join((explained.summary, *explained.evidence))
    return Finding(
        type_of(explained.code),
        explained.summary,
        explained.culprits or (),
        evidence=(
            *explained.evidence,
            *(() if named else (f"Parameters: {names}.",)),
            *phrases.undecided(explained.sides),
        ),
        remedy=explained.remedy,
        severity="error",
        tensors=tensors,
        sides=explained.sides,
        hint=explained.hint,
    )


def _of_fence(text: str) -> list[Finding]:
    """Explain an error of the fence: its message contains both calls."""
    stop = _FENCE.search(text)
    calls = _CALLED.findall(stop[0]) if stop is not None else []
    if stop is None or len(calls) < 2:
        return []
    (op, arguments), (other_op, others) = calls[0], next((call for call in calls[1:] if call != calls[0]), calls[1])
    mine, theirs = _TENSOR.findall(arguments), _TENSOR.findall(others)
    if op != other_op:
        code = "DDP302"
    elif [_elements(shape) for _, shape in mine] != [_elements(shape) for _, shape in theirs]:
        code = "DDP303"
    else:
        code = "DDP304" if [dtype for dtype, _ in mine] != [dtype for dtype, _ in theirs] else "DDP305"
    summary = stop[0].rstrip(".")
    remedy = "Issue the same collective on all ranks; see the page of this finding."
    return [Finding(type_of(code), f"{summary[0].upper()}{summary[1:]}.", remedy=remedy)]


def _elements(shape: str) -> int:
    return math.prod(map(int, re.findall(r"\d{1,18}", shape)))
