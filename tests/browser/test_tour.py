"""The tour as somebody takes it who has never seen it: with the mouse alone, cell by cell. No cell fails."""

from __future__ import annotations

import json
import os

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NOTEBOOKS, of_docs

CELLS = json.loads((NOTEBOOKS / "tour.ipynb").read_text())["cells"]


def of(page: Page, label: str):
    return page.get_by_role("group", name=label, exact=True)


def keep_dashboard(page: Page, theme: str) -> None:
    """A picture of what the README shows: from the head of the dashboard to the end of its time line."""
    of(page, "world").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    top, end = of(page, "world").bounding_box(), of(page, "time line").bounding_box()
    assert top and end
    clip = {
        "x": top["x"] - 12,
        "y": top["y"] - 12,
        "width": top["width"] + 24,
        "height": end["y"] + end["height"] - top["y"] + 24,
    }
    page.screenshot(path=of_docs(f"tour-{theme.lower()}"), clip=clip)


@pytest.mark.browser
@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme", ["Light", "Dark"] if os.environ.get("DDPNB_SCREENSHOTS") else ["Light"])
def test_every_cell_with_the_mouse(lab, page, theme):
    page.set_viewport_size({"width": 1250, "height": 2400})
    lab.open(page, "tour.ipynb", theme)
    page.locator(".jp-Cell").first.click()
    told = {}
    for number, cell in enumerate(CELLS):
        page.get_by_role("button", name="Run this cell and advance").click()
        if cell["cell_type"] != "code":
            continue
        expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=90_000)
        if "--steps" in "".join(cell["source"]) and not told:
            told["hang"] = number
            expect(page.get_by_role("article", name="DDP301").last).to_contain_text(
                "Rank 1 never calls the all_reduce", timeout=60_000
            )
            expect(of(page, "rank board").get_by_role("button", name="rank 1:")).to_contain_text("DDP301")
            expect(of(page, "rank board").get_by_role("button", name="rank 0:")).to_contain_text(
                "waiting", timeout=30_000
            )
            keep_dashboard(page, theme)
    assert told
    expect(page.locator(".jp-OutputArea-output", has_text="'ok'").last).to_be_visible(timeout=60_000)
    for kind in ("stderr", "error"):
        assert page.locator(f".jp-RenderedText[data-mime-type='application/vnd.jupyter.{kind}']").count() == 0
