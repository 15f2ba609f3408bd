"""Titles of cards: what sentences lose when they are long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.render import as_text, card
from ddpnb.render.document import Title
from ddpnb.render.titles import title
from ddpnb.rules.rule import MOST_WORDS
from tests.render.findings import USUAL

LONG = {
    "Ranks 1, 3, 5 and 7 never call the all_reduce that ranks 0, 2, 4 and 6 are blocked in: they finished.": "Ranks 1, 3, 5 and 7 never call the all_reduce that 4 ranks are blocked in: they finished.",
    "Ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and 90 more never call the all_reduce that ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 90 more are blocked in: they finished.": "100 ranks never call the all_reduce that 100 ranks are blocked in: they finished.",
    "Rank 3 never calls the all_reduce that ranks 0-2, 4, 5, 6, 8 and 9-11 are blocked in at train.py:9 in main: it finished.": "Rank 3 never calls the all_reduce that 10 ranks are blocked in at train.py:9: it finished.",
    "Ranks 0 and 1 are blocked in different calls: all_reduce at /home/user/train.py:3 in main on rank 0, barrier at /home/user/train.py:5 in main on rank 1.": "Ranks 0 and 1 are blocked in different calls: all_reduce on rank 0, barrier on rank 1.",
    "Rank 2 failed to load the checkpoint and continued without it; rank 0 loaded it into Net: the replicas differ since forward 3.": "Rank 2 failed to load the checkpoint and continued without it; rank 0 loaded it into Net.",
}


@pytest.mark.parametrize("sentence", LONG)
def test_what_is_long_loses_what_is_said_below(sentence):
    assert title(sentence) == LONG[sentence] and len(LONG[sentence].split()) <= MOST_WORDS


@pytest.mark.parametrize("sentence", ["", "Something.", USUAL.summary, "A word at train.py:3 in main: it ended."])
def test_what_is_short_stays(sentence):
    assert title(sentence) == sentence


@pytest.mark.parametrize(
    "sentence", ["word " * 500, "a: " * 300, "ranks 1, 2 " * 90, "x; " * 40 + "é" * 90_000, "ranks " + "1, " * 50_000]
)
def test_whatever_is_said_it_is_short(sentence):
    assert len(title(sentence).split()) <= MOST_WORDS


def test_a_card_says_in_full_what_its_title_leaves_out():
    sentence = next(iter(LONG))
    head, *rest = card.document(replace(USUAL, summary=sentence)).blocks
    assert isinstance(head, Title) and as_text.words(head.parts) == LONG[sentence]
    assert as_text.text(*rest, width=400).count(sentence) == 1
    assert USUAL.evidence[0] in as_text.text(*rest, width=400)
