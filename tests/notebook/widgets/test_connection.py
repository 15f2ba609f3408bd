"""A panel that is not fed any more says so once, and what to do; and the focus stays in it, in a page without Jupyter."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.render import controls
from tests.notebook.widgets.standin import page_in, show

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
RESTARTED = """() => {
  const none = { connect: () => {}, disconnect: () => {} };
  model.widget_manager = { context: { sessionContext: {
    statusChanged: { connect: (slot) => (window.status_ = slot), disconnect: () => {} }, kernelChanged: none } } };
  end();
  document.getElementById("root").replaceChildren();
  window.end = script.default.render({ model, el: document.getElementById("root") });
}"""


def html(**state):
    return controls.head(controls.Head("world", "2 ranks", "hang", in_run=True, ran=True, **state))


def shown(page: Page, *, live: bool = True) -> None:
    """The head of a panel, on a clock that the test moves."""
    page.clock.install()
    show(page, Fragment(html() + "<p>what was found</p>", label="world", on_seen=lambda: None, live=live))


def sent(page: Page) -> list[str]:
    return [one["action"] for one in page.evaluate("sent") if one["action"] != "seen"]


def test_one_banner_says_since_when_and_reconnects(chromium):
    with page_in(chromium, service_workers="block") as page:
        shown(page)
        banner, why = page.get_by_role("alert"), page.get_by_role("button", name="why")
        page.clock.run_for(5000)
        expect(banner).to_have_count(0)
        page.clock.run_for(5000)
        expect(banner).to_have_count(1)
        expect(banner).to_contain_text("Not updated since")
        expect(why).to_be_disabled()
        expect(page.get_by_role("button", name="keyboard shortcuts")).to_be_enabled()
        assert set(sent(page)) == {"reconnect"}  # without a click too
        before = len(sent(page))
        page.get_by_role("button", name="reconnect").click()
        assert set(sent(page)[before:]) == {"reconnect"}
        page.clock.run_for(3000)
        expect(banner).to_contain_text("run the cell that shows this dashboard again")
        page.evaluate("model.tell({ kind: 'beat' })")
        expect(banner).to_have_count(0)
        expect(why).to_be_enabled()
        expect(page.get_by_role("button", name="step 1")).to_be_disabled()  # as Python says


def test_the_end_of_the_kernel_is_said_at_once_and_nothing_helps_but_to_run_again(chromium):
    with page_in(chromium, service_workers="block") as page:
        shown(page)
        page.evaluate(RESTARTED)
        page.evaluate("status_(null, 'busy')")
        expect(page.get_by_role("alert")).to_have_count(0)
        page.evaluate("status_(null, 'restarting'); status_(null, 'idle')")
        expect(page.get_by_role("alert")).to_contain_text("Run the notebook again")
        page.clock.run_for(500)
        expect(page.get_by_role("button", name="why")).to_be_disabled()
        expect(page.get_by_role("button", name="reconnect")).to_have_count(0)


def test_what_is_known_to_be_the_last_state_is_not_missed(chromium):
    with page_in(chromium, service_workers="block") as page:
        shown(page, live=False)
        page.clock.run_for(20_000)
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_role("button", name="why")).to_be_enabled()
        assert not sent(page)


def test_a_click_on_any_text_takes_the_focus_and_an_action_leaves_it(chromium):
    with page_in(chromium) as page:
        part = Fragment(html() + "<p>what was found</p>", label="world")
        show(page, part)
        page.evaluate("document.addEventListener('keydown', ({ key }) => (window.heard = key))")
        page.get_by_text("what was found").click()
        page.keyboard.press("x")
        assert sent(page) == ["release"] and page.evaluate("window.heard") is None
        release = page.get_by_role("button", name="release")
        release.focus()
        page.evaluate("(html) => model.set('html', html)", html(busy=("releasing",)))
        page.keyboard.press("w")
        assert sent(page) == ["release", "why"]
        page.evaluate("(html) => model.set('html', html)", html().replace(' data-action="release"', " disabled"))
        expect(release).to_be_focused()
        expect(release).to_have_attribute("aria-disabled", "true")
        page.keyboard.press("Enter")
        assert sent(page) == ["release", "why"]
        page.evaluate("(html) => model.set('html', html)", html())
        expect(release).to_be_focused()
        expect(release).to_be_enabled()
        page.evaluate("model.set('html', '<p>nothing</p>')")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "world"
