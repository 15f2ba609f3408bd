"""A part of a page that Python renders."""

from __future__ import annotations

import pytest

from ddpnb.notebook.widgets.fragment import Fragment


def page_sends(widget, content):
    widget._handle_custom_msg(content, [])


def test_it_shows_html_and_says_the_same_in_words():
    part = Fragment("<p>one</p>", "one", "a part", title="Part")
    assert (part.html, part.text, part.label, part.title) == ("<p>one</p>", "one", "a part", "Part")
    part.show("<p>two</p>", "two")
    assert (part.html, part.text) == ("<p>two</p>", "two")


def test_what_has_not_changed_is_not_sent():
    part = Fragment("<p>one</p>")
    changes = []
    part.observe(changes.append, "html")
    part.show("<p>one</p>", "other words")
    assert not changes and part.text == "other words"
    part.show("<p>two</p>")
    assert len(changes) == 1 and part.text == ""


def test_when_it_is_opened_somebody_is_told_and_no_action_is_taken():
    opened, heard = [], []
    part = Fragment(folds=True, on_action=lambda *told: heard.append(told), on_unfolded=lambda: opened.append(1))
    page_sends(part, {"action": "unfolded", "values": {}})
    assert opened == [1] and not heard
    page_sends(part, {"action": "run"})
    assert heard == [("run", {})]


@pytest.mark.parametrize("content", [{"action": "unfolded"}, {"action": "other"}, None, "unfolded", 3])
def test_nobody_need_listen(content):
    page_sends(Fragment(folds=True), content)


def test_it_is_unseen_once_every_page_that_showed_it_is_gone():
    seen = []
    part = Fragment(on_seen=lambda: seen.append(1))
    assert part.watched and not part.unseen  # no page yet: it may be read as text

    def says(page, here):
        page_sends(part, {"action": "seen", "values": {"page": page, "here": here}})
        return part.unseen

    assert not says("a", "1") and not says("b", "1")
    assert not says("a", "") and says("b", "")
    assert not says("b", "1") and len(seen) == 3
    for number in range(300):  # a page that never says goodbye
        says(str(number), "1")
    assert len(part._pages) <= 101


def test_whether_an_unwatched_one_is_seen_is_not_followed():
    part = Fragment()
    page_sends(part, {"action": "seen", "values": {"page": "a", "here": ""}})
    assert not part.watched and not part.unseen


def test_to_unfold_is_told_to_all_views_each_time():
    part = Fragment(folds=True)
    part.unfold()
    part.unfold()
    assert part.unfolded == 2
    part.fold()
    assert part.unfolded < 0
    part.unfold()
    assert part.unfolded == 3


def test_its_text_is_in_the_mime_bundle_and_stays_true():
    part = Fragment("<p>one</p>", "one")
    part.show("<p>two</p>", "two")
    assert part._repr_mimebundle_()[0]["text/plain"] == "two"


def test_traits_are_what_the_page_sees():
    state = Fragment("<p></p>", "words", "a label", title="T", folds=True, live=True).get_state()
    assert {name: state[name] for name in ("html", "label", "title", "folds", "unfolded", "live")} == {
        "html": "<p></p>",
        "label": "a label",
        "title": "T",
        "folds": True,
        "unfolded": 0,
        "live": True,
    }
