"""Texts that are too long are cut after a word."""

from __future__ import annotations

import pytest

from ddpnb.texts import did_you_mean, shortened

MESSAGE = "mat1 and mat2 shapes cannot be multiplied (4x10 and 12x1)"


@pytest.mark.parametrize(
    ("text", "longest", "shown"),
    [
        (MESSAGE, len(MESSAGE), MESSAGE),
        (MESSAGE, 24, "mat1 and mat2 shapes..."),
        (MESSAGE, 23, "mat1 and mat2 shapes..."),
        (MESSAGE, 22, "mat1 and mat2..."),
        ("shapes, sizes", 10, "shapes..."),
        ("one\ntwo three", 11, "one\ntwo..."),
        ("x" * 30, 10, "xxxxxxx..."),
        ("a " + "x" * 30, 10, "a xxxxx..."),
        ("", 10, ""),
    ],
)
def test_a_text_is_cut_after_a_word(text, longest, shown):
    assert shortened(text, longest) == shown


@pytest.mark.parametrize("longest", range(4, len(MESSAGE) + 2))
def test_what_is_left_is_never_longer_than_asked_for(longest):
    shown = shortened(MESSAGE, longest)
    assert len(shown) <= longest
    assert MESSAGE.startswith(shown.removesuffix("..."))


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("rnu", "Did you mean run?"),
        ("Dianose", "Did you mean diagnose?"),
        ("expalin", "Did you mean explain?"),
        ("frobnicate", ""),
        ("", ""),
    ],
)
def test_what_is_spelled_almost_so_is_named(word, says):
    assert did_you_mean(word, ("run", "scan", "diagnose", "explain", "export")) == says


def test_of_names_that_are_as_close_all_are_named_and_cannot_drive_a_terminal():
    assert did_you_mean("hang3.py", ("hang1.py", "hang\x1b.py")) == "Did you mean hang1.py or hang\ufffd.py?"
