"""Which lines hold code."""

from __future__ import annotations

from ddpnb.recording.source.code_lines import code_lines


def test_blank_lines_and_comments_hold_none():
    assert code_lines("# a\n\nx = 1\n\ndef f():\n    # b\n    return [\n        1,\n    ]\n") == {3, 5, 7, 8}


def test_a_file_that_does_not_compile():
    assert code_lines("def f(:\n") is None
    assert code_lines("return 1\n") is None
    assert code_lines("\0") is None
    assert code_lines("(" * 100_000) is None
