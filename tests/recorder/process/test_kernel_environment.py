"""An environment without what a notebook's kernel has set."""

from __future__ import annotations

from ddpnb.recorder.process.kernel_environment import without_kernel

KERNEL = {"JPY_PARENT_PID": "7", "MPLBACKEND": "module://matplotlib_inline.backend_inline", "TERM": "xterm-color"}


def test_nothing_of_the_kernel_stays():
    assert without_kernel({**KERNEL, "PATH": "/bin", "PAGER": "cat"}) == {"PATH": "/bin"}


def test_what_the_user_has_set_stays():
    assert without_kernel({**KERNEL, "MPLBACKEND": "agg", "TERM": "xterm"}) == {"MPLBACKEND": "agg", "TERM": "xterm"}


def test_a_terminal_keeps_its_own():
    assert without_kernel({"TERM": "xterm-color", "PAGER": "cat"}) == {"TERM": "xterm-color", "PAGER": "cat"}
