"""The panel of a rank: what it shows of a moment, what is chosen in it, and its keys, search and margin in a page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from ddpnb.notebook.widgets.rank_panel import RankPanel
from ddpnb.notebook.widgets.view import module
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.stacks import Frame
from ddpnb.render.answers import Answer
from ddpnb.render.margin import Mark, named
from ddpnb.render.views.frame_variables import Row, SideBySide
from tests.notebook.widgets.standin import load, page_in, show
from tests.render.rank_panels import SCRIPT, moment, panel
from tests.render.reading import HOSTILE, Reading, harmless
from tests.rules.recordings import FILE, Rank, record

FORWARD, REDUCE, STEP = map(SCRIPT.line, ("forward", "reduce", "step"))


def seen(found):
    return Reading(found.html)


def sends(found, action):
    return [values for name, values in seen(found).actions if name == action]


def current(found):
    """The text of the rows that are called current, without the list of frames."""
    return [part.split("</tr>")[0] for part in found.html.split('<tr class="parts" aria-current="true">')[1:]]


# -- a moment


def test_nothing_is_shown_until_a_rank_is_chosen_and_again_when_it_is_closed():
    found = panel()
    assert "Rank 1" in seen(found).text
    found.take("rank", {"rank": "1"})
    assert found.html == "" and found.chosen is None
    found.take("rank", {"rank": "0"})
    found.take("rank close", {})
    assert found.html == ""


def test_stack_source_and_variables_of_a_rank_stand_with_its_last_calls():
    found = panel()
    shown = seen(found)
    assert {"call stack of rank 1", "variables of step on each rank", "last calls of rank 1"} <= shown.labels
    assert [values["number"] for values in sends(found, "frame")] == ["0", "1"]
    (row,) = current(found)
    assert f">{FORWARD}<" in row and "loss = model(batch)" in row and ">1 <" in row
    assert "0, 2 and 3" in shown.text  # the others, in the margin of the same file
    assert "2 of 3 variables" not in shown.text and "1 of 3 variables differs." in shown.text
    assert "took" in shown.text and "ms" in shown.text
    assert found.text.startswith(f"rank 1: computing at {FILE}:{FORWARD} in step")


def test_another_frame_has_its_own_line_and_variables():
    found = panel()
    found.take("frame", {"rank": "1", "number": "1"})
    assert f">{STEP}<" in current(found)[0] and "variables of main on each rank" in seen(found).labels
    found.show_recording(moment())  # a later moment in the same functions
    assert "variables of main on each rank" in seen(found).labels
    found.show_recording(moment(function="another"))
    assert "variables of another on each rank" in seen(found).labels


def test_two_ranks_stand_side_by_side_each_with_its_line():
    found = panel()
    found.take("rank beside", {"beside": "0"})
    assert {"call stack of rank 1", "call stack of rank 0", "last calls of rank 0"} <= seen(found).labels
    assert [f">{line}<" in row for line, row in zip((FORWARD, REDUCE), current(found), strict=True)] == [True, True]
    assert "wrapper distributed/distributed_c10d.py:3000" in seen(found).text  # of a library, between the user's
    found.take("rank beside", {"beside": ""})
    assert "call stack of rank 0" not in seen(found).labels


def test_the_columns_of_the_chosen_ranks_come_first_and_what_is_the_same_can_be_left_out():
    found = panel()
    found.take("rank beside", {"beside": "3"})
    text = seen(found).text
    assert text.index("steprank 1rank 3rank 0rank 2") > 0 and "same" in text
    found.take("rank differing", {"differing": "1"})
    assert "same" not in seen(found).text and "loss" in seen(found).text
    found.take("rank differing", {})
    assert "same" in seen(found).text


def test_what_is_open_stays_open_and_shows_a_container_a_tensor_or_why_not():
    found = panel()
    assert {values["path"] for values in sends(found, "open")} == {"loss", "cfg"}
    for path in ("loss", "cfg"):
        found.take("open", {"path": path})
    inside = SideBySide("step", dict.fromkeys(range(4), NO_SITE), (Row("['lr']", {0: "0.1", 1: "0.2"}, 4),), {}, "cfg")
    found.show_values({"cfg": inside, "loss": "It could not be read."}, None)
    assert "['lr']" in seen(found).text and "It could not be read." in seen(found).text
    found.show_recording(moment())
    assert "['lr']" in seen(found).text
    found.take("open", {"path": "cfg"})
    assert "['lr']" not in seen(found).text


def test_watched_expressions_are_written_as_variables_and_can_be_removed():
    found = panel()
    values = SideBySide("step", dict.fromkeys(range(4), NO_SITE), (Row("loss.item()", {0: "0.5", 1: "0.7"}, 4),), {})
    found.show_values({}, values)
    assert "watched expressions on each rank" in seen(found).labels
    assert sends(found, "unwatch") == [{"action": "unwatch", "path": "loss.item()"}]
    assert "loss.item(): rank 0 0.5, rank 1 0.7" in found.text


def test_steps_need_a_held_rank_and_keep_the_focus_without_one():
    steps = [one for one in seen(panel()).all("button") if one.get("aria-keyshortcuts")]
    assert {one["aria-keyshortcuts"]: one["data-action"] for one in steps} == {
        "F5": "rank resume",
        "F10": "rank over",
        "F11": "rank into",
        "Shift+F11": "rank out",
    }
    assert all(one.get("aria-disabled") == "true" and "disabled" not in one for one in steps)
    held = [one for one in seen(panel(held=True)).all("button") if one.get("aria-keyshortcuts")]
    assert not any("aria-disabled" in one for one in held)


def test_a_click_in_the_margin_says_whom_it_holds_and_an_armed_line_is_pressed():
    found = panel(marks={(FILE, REDUCE): Mark(), ("/other.py", FORWARD): Mark()})
    by_line = {int(values["line"]): values for values in sends(found, "arm")}
    assert by_line[FORWARD]["file"] == named(FILE)
    assert f"hold rank 1 at line {FORWARD}" in seen(found).labels
    assert f"remove the hold at line {REDUCE}" in seen(found).labels
    found.take("rank whom", {"whom": "all"})
    assert f"hold all ranks at line {FORWARD}" in seen(found).labels


def test_a_mark_in_the_margin_says_the_state_and_the_conditions_of_a_hold():
    marks = {(FILE, REDUCE): Mark(held=(0, 2)), (FILE, FORWARD): Mark(on=False, when="step == 5", count=3)}
    known = {one["data-line"]: one for one in seen(panel(marks=marks)).all("button") if one.get("data-mark")}
    assert known[str(REDUCE)]["data-mark"] == "held" and "holds ranks 0 and 2" in known[str(REDUCE)]["title"]
    off = known[str(FORWARD)]
    assert off["data-mark"] == "off if" and "(disabled when step == 5 from time 3 on)" in off["title"]
    assert all("right click" in one["title"] for one in known.values())


def test_the_conditions_of_a_hold_stand_in_a_form_below_its_line():
    found = panel(marks={(FILE, REDUCE): Mark(when="step == 5", count=3)})
    line = {"file": named(FILE), "line": str(REDUCE)}
    found.take("arm edit", line)
    assert {"when", "from time", f"hold of rank 1 at line {REDUCE}"} <= seen(found).labels
    fields = {one["name"]: one["value"] for one in seen(found).all("input") if one.get("name") in ("when", "count")}
    assert fields == {"when": "step == 5", "count": "3"}
    sent = [name for name, values in seen(found).actions if values.items() >= line.items()]
    assert sent == ["arm", "arm with", "arm switch", "arm", "arm close"]
    for action in ("arm edit", "arm close"):
        found.take("arm edit", line) if action == "arm close" else None
        found.take(action, line)
        assert not sends(found, "arm close")
    found.take("arm edit", {"file": "other", "line": "1"})
    assert found.edited == ("", 0)


def test_a_step_that_is_not_possible_says_why():
    def titles(**controls):
        return {one["title"] for one in seen(panel(**controls)).all("button") if one.get("aria-disabled")}

    assert titles(held=True) == set() and len(titles()) == 5
    assert all("Not now: not held: rank 1; hold stops" in title for title in titles())
    assert all("no longer followed" in title for title in titles(alive=False, held=True))


def test_it_says_that_the_rank_has_moved_since_unless_an_answer_stands_there():
    assert "Rank 1 has moved since: this is where it was." in seen(panel(moved=True)).text
    answered = panel(moved=True, answer=Answer(said="Armed: hold at train.py:2 on rank 1."))
    assert "has moved" not in seen(answered).text and "Armed: hold" in seen(answered).text


def test_a_recording_has_no_buttons_for_live_ranks():
    found = RankPanel(moment())
    found.choose(1)
    assert {name for name, _ in seen(found).actions} == {"rank close", "frame"}


def test_a_rank_without_a_stack_shows_the_variables_of_the_others():
    ranks = [Rank(0, 2).has_stack(Frame(FILE, REDUCE, "step", locals={"loss": "1"})), Rank(1, 2).finishes()]
    found = panel(record(*ranks, script=SCRIPT))
    assert "It is not in a function of yours" in seen(found).text
    assert "variables of step on each rank" in seen(found).labels and "rank 1: ended" in seen(found).text


def test_a_text_that_is_not_recorded_says_so():
    assert "is not recorded" in seen(panel(replace(moment(), sources={}))).text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_ranks_say_is_text(text):
    found = panel(moment(path=text[:3000], function=text[:200], same=text[:400]))
    found.show_values({}, SideBySide(text, dict.fromkeys(range(4), NO_SITE), (Row(text[:400], {0: text}, 4),), {}))
    harmless(found.html, 400_000)


@pytest.mark.parametrize(
    ("action", "values"),
    [
        ("rank", {"rank": "99"}), ("rank", {"rank": "x"}), ("rank beside", {"beside": "-1"}), ("open", {}),
        ("frame", {"rank": "1", "number": "99999999"}), ("frame", {"rank": "7", "number": "0"}),
        ("frame", {"rank": "1", "number": "99"}), ("rank whom", {"whom": "nobody"}), ("open", {"path": "x" * 4000}),
    ],
)  # fmt: skip
def test_what_the_page_sends_may_be_anything(action, values):
    found = panel()
    assert found.take(action, values)
    Reading(found.html)
    assert not found.take("something else", values)


# -- in a page


@pytest.mark.browser
def test_the_keys_of_a_debugger_press_its_buttons_in_fields_too_and_never_reach_the_page(chromium):
    with page_in(chromium) as page:
        show(page, panel(held=True))
        page.evaluate("document.addEventListener('keydown', (event) => (window.last = event.defaultPrevented), true)")
        page.get_by_text("1 of 3 variables").click()  # the focus is in the panel
        for key in ("F10", "F11", "Shift+F11", "F5", "Control+F10"):
            page.keyboard.press(key)
        page.get_by_label("search variables").focus()
        page.keyboard.press("F10")
        page.keyboard.press("F9")
        sent = [(one["action"], one["values"].get("line")) for one in page.evaluate("sent")]
        steps = ["rank over", "rank into", "rank out", "rank resume", "rank over"]
        assert sent == [*((one, None) for one in steps), ("arm", str(FORWARD))]


@pytest.mark.browser
def test_a_step_that_is_not_possible_is_not_sent_and_the_page_is_not_loaded_again(chromium):
    with page_in(chromium) as page:
        show(page, panel())
        page.evaluate("window.kept = true")
        page.get_by_role("button", name="resume").focus()
        page.keyboard.press("F5")
        page.get_by_role("button", name="over").click(force=True)
        assert page.evaluate("sent") == [] and page.evaluate("window.kept")
        expect(page.get_by_role("button", name="over")).to_be_focused()


@pytest.mark.browser
def test_the_margin_asks_for_conditions_by_mouse_and_by_keyboard(chromium):
    line = {"file": named(FILE), "line": str(FORWARD)}
    with page_in(chromium) as page:
        shown = panel()
        show(page, shown)
        button = page.get_by_role("button", name=f"hold rank 1 at line {FORWARD}", exact=True)
        button.click()
        button.click(button="right")
        button.click(modifiers=["Shift"])
        button.click(modifiers=["Alt"])
        button.focus()
        page.keyboard.press("Shift+F9")
        page.get_by_label("search variables").focus()
        page.keyboard.press("Shift+F9")  # of the current line
        sent = [(one["action"], {name: one["values"][name] for name in line}) for one in page.evaluate("sent")]
        assert sent == [("arm", line), *[("arm edit", line)] * 5]
        shown.take("arm edit", line)
        page.evaluate("(html) => model.set('html', html)", shown.html)
        expect(page.get_by_label("when", exact=True)).to_be_focused()
        page.keyboard.type("step == 5")
        page.keyboard.press("Enter")
        last = page.evaluate("sent").pop()
        assert (
            last["action"] == "arm with"
            and last["values"].items() >= {**line, "when": "step == 5", "count": "1"}.items()
        )
        page.keyboard.press("Escape")
        assert page.evaluate("sent").pop()["action"] == "arm close"
        shown.take("arm close", {})
        page.evaluate("(html) => model.set('html', html)", shown.html)
        expect(button).to_be_focused()


@pytest.mark.browser
def test_a_search_leaves_the_variables_that_contain_the_words(chromium):
    with page_in(chromium) as page:
        shown = panel()
        show(page, shown)
        rows = page.get_by_role("table", name="variables of step").locator("tbody tr:visible")
        assert rows.count() == 4
        page.get_by_label("search variables").fill("cfg")
        expect(rows).to_have_count(1)
        shown.take("open", {"path": "cfg"})
        inside = SideBySide(
            "step", dict.fromkeys(range(4), NO_SITE), (Row("['lr']", {0: "0.1", 1: "0.2"}, 4),), {}, "cfg"
        )
        shown.show_values({"cfg": inside}, None)
        page.evaluate("(html) => model.set('html', html)", shown.html)
        expect(rows).to_have_count(2)  # what is inside stays with it, and what was typed stays too


@pytest.mark.browser
def test_what_is_inside_a_variable_that_a_search_finds_stays_with_it(chromium):
    words = ["loss", "cfg", "lr 0.1", "more", "deep"]
    rows = [{"depth": depth, "words": one} for depth, one in zip((0, 0, 1, 1, 2), words, strict=True)]
    asked = {"": [0, 1, 2, 3, 4], "lr": [1, 2], "cfg": [1, 2, 3, 4], "LOSS": [0], "deep": [1, 3, 4], "x": []}
    with page_in(chromium) as page:
        load(page, module("rank.js"))
        found = page.evaluate("([rows, texts]) => texts.map((text) => script.searched(rows, text))", [rows, [*asked]])
    assert [[number for number, shown in enumerate(one) if shown] for one in found] == [*asked.values()]


@pytest.mark.browser
def test_the_current_line_is_in_view_and_nothing_moves_when_an_answer_comes(chromium):
    with page_in(chromium) as page:
        show(page, panel(moment(before=150), held=True))
        line = page.get_by_role("row", name="loss = model(batch)")
        expect(line).to_be_in_viewport()
        assert page.locator(".listing").evaluate("listing => listing.scrollTop") > 500
        before = page.locator(".listing").bounding_box()
        answered = panel(moment(before=150), held=True, answer=Answer(("stepping",)))
        page.evaluate("(html) => model.set('html', html)", answered.html)
        expect(page.get_by_text("stepping")).to_be_visible()
        assert page.locator(".listing").bounding_box() == before
