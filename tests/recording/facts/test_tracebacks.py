"""The user's line in a traceback."""

from __future__ import annotations

import pytest

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.facts.tracebacks import error_line, user_line


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (["/home/user/a.py", "/home/user/b.py"], Site("/home/user/b.py", 2, "f2")),
        (["/home/user/a.py", "/venv/lib/python3.13/site-packages/x.py"], Site("/home/user/a.py", 1, "f1")),
        (
            ["/home/user/a.py", "<frozen importlib>", "/opt/ddpnb/recorder/events/hooks.py"],
            Site("/home/user/a.py", 1, "f1"),
        ),
        (["/usr/lib/python3.13/json.py"], NO_SITE),
        ([], NO_SITE),
    ],
)
def test_the_innermost_line_of_the_user(files, line):
    frames = "".join(f'  File "{file}", line {n}, in f{n}\n    g()\n' for n, file in enumerate(files, 1))
    assert user_line(f"Traceback (most recent call last):\n{frames}ValueError: no\n") == line


@pytest.mark.parametrize(
    ("end", "line"),
    [("    g()\n    ~^^\nValueError: no\nhint: yes\n", "ValueError: no"), ("    g()\n", ""), ("", "")],
    ids=["a message of two lines", "cut", "nothing"],
)
def test_the_first_line_of_the_exception(end, line):
    assert error_line(f'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n{end}') == line
