"""Whether a text is a part of what the ranks wrote: then the absence of a rank says nothing."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,16}[@-~]")
_FEW = 2000  # characters of a line of a watchdog
_REPEATED = re.compile(r"\[repeated \d{1,9}x across cluster\]")
_OMITTED = re.compile(
    r"^[ \t>|]{0,8}(?:\.{3,}|…|\[(?:\.{3}|…)\]|\(\.{3}\)|<?-{0,3} ?snip ?-{0,3}>?|[\[(<]?(?:output |log |lines? )?(?:truncated|omitted|skipped)[\])>]?"
    r"|\W{0,6}\d{1,9} (?:more )?(?:lines?|messages?)(?: were| are)? (?:omitted|hidden|skipped|truncated|not shown|suppressed)[^\n]{0,40})[ \t]{0,8}$",
    re.MULTILINE | re.IGNORECASE,
)
_NUMBERED = re.compile(r"\s{0,4}\[?(?!1\b)\d{2,9}[\]:|]?\s{1,4}\[(?:rank|default)\d")
_CAUGHT = re.compile(r"Watchdog\s{1,3}caught\s{1,3}collective\s{1,3}operation\s{1,3}timeout")
_WHOLE = re.compile(r"millisecondsbeforetim|timedout")
_TAIL = re.compile(
    r"(?![^\n]{0,400}Work\w{0,8}CL)[^\n\[]{0,300}(?:milliseconds before timing out|NumelOut=\d|Timeout\(ms\)=\d)"
)


def excerpt(raw: str) -> str:
    r"""How it is seen that a text is a part; empty where it is not.

    Args:
        raw: the text, with its prefixes.

    Example:
        >>> excerpt("[rank0]: step 1\n...\n[rank1]: step 1\n")
        'lines are left out'
    """
    raw = _COLOUR.sub("", raw) if "\x1b" in raw else raw
    if _REPEATED.search(raw):
        return "Ray shows one of several equal lines"
    if _OMITTED.search(raw):
        return "lines are left out"
    if _TAIL.match(raw):
        return "it begins within a line"
    if _NUMBERED.match(raw):
        return "its lines have numbers, and it does not begin with the first"
    if any(_is_cut(raw, match.end()) for match in _CAUGHT.finditer(raw)):
        return "lines are cut"
    return ""


def _is_cut(raw: str, end: int) -> bool:
    """Whether the description of a call is not complete, also where a terminal has wrapped it."""
    after = _CAUGHT.search(raw, end)
    rest = raw[end : min(end + _FEW, after.start() if after else len(raw))]
    return _WHOLE.search(re.sub(r"\s", "", rest)) is None
