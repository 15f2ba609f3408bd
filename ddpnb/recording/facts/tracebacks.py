"""Tracebacks that ranks and their workers printed or passed on."""

from __future__ import annotations

import re

from ddpnb.recording.calls import NO_SITE, Site

_FRAME = re.compile(r'^ {1,8}File "(.{1,400})", line (\d{1,7}), in (.{1,200})$', re.MULTILINE)
_LIBRARY = re.compile(r"/(site-packages|dist-packages|lib/python\d|ddpnb/recorder/)|^<")


def user_line(traceback: str) -> Site:
    """The innermost line of the user's code in a traceback."""
    frames = [found for found in _FRAME.finditer(traceback) if not _LIBRARY.search(found[1])]
    return Site(frames[-1][1], int(frames[-1][2]), frames[-1][3]) if frames else NO_SITE


def error_line(traceback: str) -> str:
    """The exception of a traceback, in the first line of its message; empty where it was cut before that."""
    frames = list(_FRAME.finditer(traceback))
    after = traceback[frames[-1].end() :].splitlines() if frames else []
    return next((line for line in after if line and not line.startswith(" ")), "")
