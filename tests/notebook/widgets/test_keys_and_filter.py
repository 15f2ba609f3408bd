"""Keys that act within a panel, and the filter of many ranks, in a page without Jupyter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import ddpnb
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.parts import Card
from ddpnb.notebook.widgets.view import module
from ddpnb.render import board, controls, faults, lesson
from ddpnb.render.views.board import tiles
from tests.notebook.widgets.standin import load, page_in, show
from tests.rules.recordings import Rank, Script, record

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
SCRIPT = Script("""
def main(rank):
    all_reduce(x)   # reduce
    barrier()       # last
""")


def many(size=64, late=37):
    """A Recording in which one rank is still in the call before that of the others."""
    ranks = []
    for number in range(size):
        rank = Rank(number, size).calls("all_reduce", SCRIPT.at("reduce"))
        ranks.append(rank.computes() if number == late else rank.waits("barrier", SCRIPT.at("last")))
    return record(*ranks, script=SCRIPT)


def part():
    shown = tiles(many())
    head = controls.head(controls.Head("world", "64 ranks", "running", in_run=True))
    return Fragment(head + board.board(shown, chosen=None), label="rank board")


def visible(page):
    return [one.get_attribute("data-ranks") for one in page.locator(".tile:visible").all()]


def test_many_ranks_are_filtered_by_keyboard_and_keep_their_width(chromium):
    with page_in(chromium) as page:
        show(page, part())
        first = page.locator(".tile").first
        width = first.bounding_box()["width"]
        page.locator("[data-stop]").first.focus()
        page.keyboard.press("/")
        field = page.get_by_label("ranks or words")
        expect(field).to_be_focused()
        for typed, ranks in (
            ("0-2, 37", ["0", "1", "2", "37"]),
            ("62-", ["62", "63"]),
            ("barrier", None),
            ("nothing", []),
        ):
            field.fill(typed)
            expected = [str(rank) for rank in range(64) if rank != 37] if ranks is None else ranks
            assert visible(page) == expected, typed
        field.fill("37")
        assert page.locator(".tile:visible").bounding_box()["width"] == width
        expect(page.locator("[data-filtered]")).to_have_text("1 of 64 tiles")
        field.fill("")
        page.get_by_label("state").select_option("waiting")
        assert len(visible(page)) == 63
        page.get_by_label("state").focus()
        page.keyboard.press("Tab")  # to the first of those that are shown
        page.keyboard.press("End")
        expect(page.locator("[data-ranks='63'] [data-stop]")).to_be_focused()
        page.evaluate("model.set('html', model.get('html').replace('64 ranks', '64 ranks '))")  # an update
        assert len(visible(page)) == 63


def test_keys_press_the_buttons_that_name_them_and_never_act_in_a_field(chromium):
    with page_in(chromium) as page:
        show(page, part())
        stop = page.locator("[data-stop]").first
        stop.focus()
        for key in ("h", "w", "s", "Control+h", "Alt+w", "q"):  # there is no button to step now
            page.keyboard.press(key)
        assert [one["action"] for one in page.evaluate("sent")] == ["hold", "why"]
        page.get_by_label("ranks or words").fill("")
        page.keyboard.type("hwx?")
        page.get_by_label("state").focus()
        page.keyboard.press("w")
        assert len(page.evaluate("sent")) == 2 and page.locator("dialog").count() == 0
        page.get_by_label("ranks or words").fill("")
        stop.focus()
        page.keyboard.press("o")
        asked = page.evaluate("sent[2]")
        assert (asked["action"], asked["values"]["line"]) == ("place", str(SCRIPT.at("last").line))


def test_the_keys_are_shown_and_closed_by_keyboard(chromium):
    with page_in(chromium) as page:
        show(page, part())
        stop = page.locator("[data-stop]").first
        stop.focus()
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="keyboard shortcuts")
        for words in ("diagnose all ranks now", "stop every rank before its next collective", "filter the ranks"):
            expect(dialog).to_contain_text(words)
        page.keyboard.press("h")
        assert page.evaluate("sent") == []  # beneath the dialog nothing acts
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(stop).to_be_focused()
        page.get_by_role("button", name="keyboard shortcuts").click()
        dialog.get_by_role("button", name="close").click()
        expect(dialog).to_have_count(0)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("3", [3]), ("0-2", [0, 1, 2]), ("6-", [6, 7]), (" 1 , 5-6 ", [1, 5, 6]), ("9", []), ("-", []), ("-3", [])],
)
def test_numbers_ask_for_ranks(chromium, text, ranks):
    with page_in(chromium) as page:
        load(page, module("filter.js"))
        found = page.evaluate(
            "(text) => [...Array(8).keys()].filter((rank) => script.wanted(text)({ ranks: [[rank, rank]], words: 'x' }))",
            text,
        )
        assert found == ranks


def test_a_list_is_narrowed_to_what_was_typed(chromium):
    with page_in(chromium) as page:
        show(page, Fragment(faults.faults("skip", 2), label="faults"))
        search, select = page.get_by_label("search: fault"), page.get_by_label("fault", exact=True)
        every = select.locator("option").count()
        search.fill("nan loss")
        assert select.locator("option:not([hidden])").count() < every
        expect(select).to_have_value("nan loss")
        expect(page.locator("[data-narrowed]")).to_have_text(re.compile(rf"^\d+ of {every}$"))
        search.press("Enter")
        search.fill("")
        assert select.locator("option:not([hidden])").count() == every
        expect(select).to_have_value("nan loss")
        actions = [one["action"] for one in page.evaluate("window.sent ?? []")]
        assert "inject" not in actions


def test_code_is_copied_without_the_numbers_of_its_lines(chromium):
    with page_in(chromium) as page:
        show(page, Fragment(lesson.numbered("first\nsecond", "code"), label="lesson"))
        page.evaluate(
            "navigator.clipboard ? (navigator.clipboard.writeText = (text) => Promise.resolve((window.copied = text))) : Object.defineProperty(navigator, 'clipboard', { value: { writeText: (text) => Promise.resolve((window.copied = text)) } })"
        )
        page.get_by_role("button", name="copy").click()
        expect(page.get_by_role("button", name="copied")).to_be_visible()
        assert page.evaluate("window.copied") == "first\nsecond"


ALIGNED = """() => {
    const near = (one, other) => Math.abs(one - other) < 1.5, wrong = [];
    for (const row of document.querySelectorAll("form.row, form > .row")) {
        const parts = [...row.children].filter((one) => ["LABEL", "FIELDSET", "BUTTON"].includes(one.nodeName));
        const boxes = parts.map((part) => {
            const control = part.querySelector("label, select, input:not([type=checkbox])") ?? part, box = control.getBoundingClientRect();
            const words = part.nodeName === "LABEL" && !part.matches(".beside") ? part : part.querySelector("legend");
            return { name: part.textContent, bottom: part.getBoundingClientRect().bottom, middle: (box.top + box.bottom) / 2, words: words?.getBoundingClientRect().top };
        });
        boxes.slice(1).forEach((one, k) => {
            const before = boxes[k];
            if (Math.abs(one.bottom - before.bottom) > 20) return; // another line
            if (!near(one.middle, before.middle) || (one.words && before.words && !near(one.words, before.words))) wrong.push([before, one]);
        });
    }
    return wrong;
}"""


@pytest.mark.parametrize("width", [1000, 420])
def test_fields_boxes_and_buttons_of_a_line_stand_on_one(chromium, width):
    with page_in(chromium) as page:
        show(page, Fragment(controls.hold(4, [], enabled=True) + faults.faults("skip", 4), label="forms"))
        page.evaluate("(width) => { document.body.style.width = `${width}px`; }", width)
        assert page.locator("form").count() == 4
        assert page.evaluate(ALIGNED) == []


def test_in_a_side_panel_the_code_of_a_card_has_the_room(chromium):
    """22 characters of it are seen; the margin has numbers alone."""
    recording = ddpnb.load(Path(__file__).parents[2] / "recordings" / "tour.ddpnb")
    with page_in(chromium) as page:
        show(page, Card(ddpnb.diagnose(recording)))
        page.evaluate("document.body.style.width = '280px'")
        seen = """table => {
            const code = table.querySelector("td.code code"), until = table.closest(".scroll").getBoundingClientRect().right;
            const letter = code.getBoundingClientRect().width / code.textContent.length;
            return (until - code.getBoundingClientRect().left) / letter;
        }"""
        assert page.locator("table.fork").first.evaluate(seen) > 22
        assert page.locator("table.fork .roomy").first.bounding_box()["width"] > 0, "it is read aloud"
