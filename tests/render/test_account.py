from __future__ import annotations

import dataclasses
import os

import pytest

from ddpnb.recording.account import Account, Parts
from ddpnb.recording.calls import Site
from ddpnb.render import as_text
from ddpnb.render.account import TimeAccount, document, headline
from tests.render.accounts import EMPTY, HARDLY, USUAL, rank, straggler
from tests.render.test_card_html import HOSTILE, Page


def table(account: Account, width: int | None = None) -> str:
    return as_text.text(document(account), width=width)


def html(account: Account) -> str:
    return TimeAccount.of(account)._repr_html_()


TAGS = {"style", "div", "table", "thead", "tbody", "tr", "th", "td", "span", "i", "ul", "li"}


def changed(**more) -> Account:
    return dataclasses.replace(USUAL, **more)


@pytest.mark.parametrize(
    ("account", "says"),
    [
        (USUAL, "The ranks spent 40 % of the time waiting, mostly for rank 2 in /home/user/train.py:57."),
        (
            changed(pattern="turns"),
            "The ranks spent 40 % of the time waiting, for each other in turn in /home/user/train.py:57.",
        ),
        (
            changed(stragglers=(straggler(2, 0.5), straggler(1, 0.45), straggler(0, 0.05)), pattern="some"),
            "The ranks spent 40 % of the time waiting, mostly for ranks 1 and 2 in /home/user/train.py:57.",
        ),
        (
            changed(ranks=(rank(0, 5, 3, 0, 2), rank(1, 5, 3, 0, 2))),
            "The ranks spent 30 % of the time waiting, mostly for rank 2 in /home/user/train.py:57; 20 % went into data.",
        ),
        (HARDLY, "The ranks computed 93 % of the time and hardly waited for each other (1 %)."),
        (
            Account((rank(0, 5, 0, 0, 5), rank(1, 5, 0, 0, 5))),
            "The ranks spent 50 % of the time waiting for data and hardly waited for each other (0 %).",
        ),
        (
            Account((rank(0, 5, 0, 5, 0), rank(1, 5, 0, 5, 0))),
            "The ranks spent 50 % of the time communicating and hardly waited for each other (0 %).",
        ),
        (Account((rank(0, 5, 0, 0, 0),)), "The ranks computed 100 % of the time."),
        (
            changed(host_only=True),
            "The host of rank 2 issued its calls later than the others in /home/user/train.py:57.",
        ),
        (Account(host_only=True), "The hosts of all ranks issued their calls at the same time."),
        (EMPTY, "No collective, backward pass or optimizer step was recorded: there is nothing to report."),
    ],
)
def test_one_sentence_says_what_matters(account, says):
    assert headline(account) == says


def test_the_table_has_a_row_per_rank_and_one_for_all():
    lines = table(USUAL, width=100).splitlines()
    header = next(n for n, text in enumerate(lines) if text.split()[:2] == ["rank", "wall"])
    assert lines[header + 1].split() == [
        "0",
        "12.0",
        "s",
        "50",
        "%",
        "40",
        "%",
        "5",
        "%",
        "5",
        "%",
        "2.0",
        "s",
        "48",
        "%",
        "200",
    ]
    assert [text.split()[0] for text in lines[header + 1 : header + 6]] == ["0", "1", "2", "3", "all"]


def test_stragglers_steps_and_notes_are_said():
    text = " ".join(table(USUAL, width=100).split())
    assert "rank 2: the others waited 12.0 s in total (90 % of the waiting), in /home/user/train.py:57" in text
    assert "it was last at 180 collectives; it computes longer: 80 ms a step, the others 50 ms" in text
    assert "a step (median): compute 25 ms, waiting 20 ms, communication 2.5 ms, data 2.5 ms; 20 steps a second" in text
    assert "- A note." in text


@pytest.mark.parametrize("width", [40, 60, 100])
def test_sentences_keep_to_the_width(width):
    for line in table(USUAL, width=width).splitlines():
        assert len(line) <= width or line.lstrip().startswith(("rank  ", "0", "1", "2", "3", "all"))


def test_files_below_the_working_directory_are_named_from_there():
    inside = Site(os.path.join(os.getcwd(), "train.py"), 3, "main")
    account = changed(stragglers=(straggler(sites=((inside, 1.0),)),))
    assert "in train.py:3" in table(account)
    assert "in train.py:3" in Page(html(account)).text


def test_what_is_not_known_is_a_dash():
    account = Account((rank(0, 0, 0, 0, 0, utilisation=None, step=None, steps_per_s=None),))
    assert table(account).splitlines()[-1].split() == ["0", "12.0", "s", "-", "-", "-", "-", "2.0", "s", "-", "200"]


def test_of_many_ranks_the_stragglers_are_shown():
    account = Account(tuple(rank(n) for n in range(1000)), (straggler(777),), "one")
    shown = [text.split()[0] for text in table(account).splitlines() if text[:4].strip().isdigit()]
    assert len(shown) == 16
    assert "777" in shown
    assert "984 more ranks" in table(account)
    assert "984 more ranks" in Page(html(account)).text


def test_control_characters_of_a_rank_do_not_reach_the_terminal():
    evil = Site("/x/\x1b[2Jtrain\x07.py", 3, "main")
    account = changed(stragglers=(straggler(sites=((evil, 1.0),), because="\x1b]0;title\x07"),), notes=("\x9b31m",))
    text = table(account)
    assert not any(ord(char) < 32 and char != "\n" or 127 <= ord(char) < 160 for char in text)


# -- HTML


def test_the_page_is_whole_and_says_the_same():
    page = Page(html(USUAL))
    assert headline(USUAL) in page.text
    assert "it was last at 180 collectives" in page.text
    assert set(page.tags) <= TAGS
    assert ("aria-label", "compute 50 %, waiting 40 %, communication 5 %, data 5 %") in page.attributes
    assert page.tags.count("tr") == 6


@pytest.mark.parametrize("evil", HOSTILE.values(), ids=HOSTILE)
def test_everything_from_a_rank_is_escaped(evil):
    account = Account(
        (rank(0), rank(1)),
        (straggler(sites=((Site(evil, 3, evil), 1.0),), because=evil),),
        "one",
        notes=(evil,),
    )
    page = Page(html(account))
    assert set(page.tags) <= TAGS
    assert {name for name, _ in page.attributes} <= {
        "class",
        "style",
        "role",
        "aria-label",
        "aria-hidden",
        "tabindex",
        "title",
        "scope",
    }


@pytest.mark.parametrize("account", [EMPTY, HARDLY, Account((rank(0, 0, 0, 0, 0),)), Account(host_only=True)])
def test_odd_accounts_render(account):
    assert Page(html(account)).text
    assert table(account)


def test_in_a_notebook_it_shows_itself():
    shown = TimeAccount.of(USUAL)
    assert shown.notes == ("A note.",)
    assert "A note." in Page(shown._repr_html_()).text
    assert repr(shown) == str(shown) == table(shown)
    assert shown.headline == headline(USUAL)
    assert shown.parts == Parts(20.0, 16.0, 2.0, 2.0)
