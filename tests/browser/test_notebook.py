"""The same widgets in Notebook 7, which the server of the lab serves too."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import LONG_MS, VIEWPORT, picture

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(600)]

SHOWN = """
import ddpnb
from ddpnb.recording.recording import RankRecord, Recording
ddpnb.show(Recording(2, {0: RankRecord(0), 1: RankRecord(1)}))
"""


def test_keys_that_are_pressed_in_the_dashboard_are_not_the_notebooks(lab, chromium):
    page = chromium.new_page(viewport=VIEWPORT)
    try:
        page.goto(f"{lab.url}/notebooks/{lab.write('classic.ipynb', SHOWN, '1')}")
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=LONG_MS)
        errors: list[str] = []  # from now on: as it loads, Notebook complains about itself
        page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        rank = page.get_by_role("group", name="rank board", exact=True).get_by_role("button", name="rank 0:")
        asks = page.locator(".jp-Dialog .jp-mod-accept")
        while not rank.is_visible():
            if asks.is_visible():  # for a kernel: it said idle before it had one
                asks.click()
            elif page.locator(".jp-InputPrompt").first.inner_text() == "[ ]:":  # ... before it takes a run
                lab.run_all(page)
            page.wait_for_timeout(500)
        for one in (rank, page.locator(".ddpnb summary").first):
            one.focus()
            for key in ("a", "b", "d", "d", "m", "x", "Escape"):
                page.keyboard.press(key)
            expect(one).to_be_focused()
        expect(page.locator(".jp-Cell")).to_have_count(2)
        picture(page, "notebook-7")
        assert not errors, errors
    finally:
        page.close()
