"""The line in the cell that opens a panel elsewhere, once, and says where it is."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from ddpnb.notebook.widgets.dock import Dock
from tests.notebook.widgets.standin import page_in, show

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def dock():
    return Dock(lambda: None, where="right", title="ddpnb: 4 ranks", panel="ddpnb-1", child="abc", number=1)


def test_a_page_without_the_extension_shows_it_there(chromium):
    with page_in(chromium) as page:
        show(page, dock())
        expect(page.get_by_role("status")).to_contain_text("Shown here: this page has no panels of ddpnb")
        assert page.evaluate("sent") == [{"action": "here", "values": {}}]


DRAW = "script.default.render({ model, el: document.getElementById('root') })"


def test_the_extension_is_asked_once_and_again_by_the_button(chromium):
    with page_in(chromium) as page:
        show(page, dock())
        page.evaluate(
            "document.getElementById('root').replaceChildren(); model.set('number', 2); window.asked = [];"
            "document.addEventListener('ddpnb:dock', (event) => { event.preventDefault(); asked.push(event.detail); event.detail.shown(); })"
        )
        page.evaluate(DRAW)
        said, again = page.get_by_role("status"), page.get_by_role("button", name="show it")
        expect(said).to_have_text("ddpnb: 4 ranks: in a panel (right).")
        expect(again).to_be_hidden()
        assert page.evaluate("asked.map(({ id, where, child, title }) => [id, where, child, title])") == [
            ["ddpnb-1", "right", "abc", "ddpnb: 4 ranks"]
        ]
        page.evaluate("document.getElementById('root').replaceChildren()")
        page.evaluate(DRAW)  # the cell is drawn again
        assert page.evaluate("asked.length") == 1
        again.click()
        assert page.evaluate("asked.length") == 2
        page.evaluate("asked[1].closed()")
        expect(again).to_be_visible()
