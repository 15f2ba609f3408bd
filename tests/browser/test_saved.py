"""A dashboard whose notebook is saved: live in the page that runs it, and its last state in one without a kernel."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import READY_MS, picture
from tests.browser.test_dashboard import of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

SHOW = """
import ddpnb, torch, torch.distributed as dist
world = ddpnb.launch(2, quiet=True)
ddpnb.show(world)
"""
HANG = """
def train():
    dist.init_process_group("gloo")
    for step in range(8 - 3 * dist.get_rank()):
        dist.all_reduce(torch.ones(4))
world.run(train).wait(60).outcome
"""
SAVED = "the last state of the dashboard"


def test_the_last_state_stays_when_the_kernel_is_gone(lab, page, chromium):
    name = lab.write("saved.ipynb", SHOW, HANG)
    lab.open(page, name, "Light")
    # Whether what is saved is ever seen beside the widget:
    page.evaluate("""() => {
      window.seen = 0;
      const look = () => {
        const saved = document.querySelector('[aria-label="the last state of the dashboard"]');
        if (saved?.checkVisibility({ visibilityProperty: true })) window.seen += 1;
        requestAnimationFrame(look);
      };
      look();
    }""")
    lab.run_all(page)
    expect(of(page, "world").get_by_text("detected after")).to_be_visible(timeout=READY_MS)
    marked = page.evaluate_handle("() => document.querySelector('.ddpnb canvas')")
    saved = page.locator(f'[aria-label="{SAVED}"]')
    expect(saved).to_contain_text("DDP308", timeout=READY_MS)
    expect(saved).to_be_hidden()
    assert page.evaluate("() => window.seen") == 0
    assert marked.evaluate("canvas => canvas.isConnected"), "the widget was not made again"
    picture(page, "saved-live")
    page.keyboard.press("Control+s")
    content = ""
    while "DDP308" not in content:
        page.wait_for_timeout(300)
        content = (lab.work / name).read_text()
    first = json.loads(content)["cells"][0]["outputs"]
    assert [min(one["data"]) for one in first] == ["application/vnd.jupyter.widget-view+json", "text/html"]
    html = "".join(first[1]["data"]["text/html"])
    assert "<script" not in html and len(html) < 200_000

    page.goto("about:blank")  # a page that loses its kernel says so in the console
    for session in lab.ask("sessions"):
        lab.ask(f"sessions/{session['id']}", "DELETE")
    (lab.work / "copied.ipynb").write_text(content.replace('"name": "python3"', '"name": "nowhere"'))
    reopened = chromium.new_page(viewport={"width": 1250, "height": 1400})  # its console names the model that is gone
    try:
        for theme, book in (("Light", name), ("Dark", "copied.ipynb")):
            wanted = json.dumps({"theme": f"JupyterLab {theme}"})
            (lab.settings / "themes.jupyterlab-settings").write_text(wanted)
            reopened.goto(f"{lab.url}/lab/tree/{book}?reset")
            shown = reopened.locator(".jp-OutputArea", has_text="uneven-iterations").first
            expect(shown.get_by_text("DDP308 uneven-iterations")).to_be_visible(timeout=READY_MS)
            drawn = shown.get_by_role("img", name="The time line")
            assert drawn.evaluate("image => image.decode().then(() => image.naturalWidth)") > 500
            if book == name:  # of a copy the page drops the styles
                expect(shown.get_by_text("widget")).to_be_hidden()
            picture(reopened, f"saved-{theme}")
    finally:
        reopened.close()
