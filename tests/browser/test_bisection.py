"""The bisection notebook and its guide by mouse: the pair of options that hangs is found, light and dark."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import of_docs, picture
from tests.browser.test_dashboard import check_access, of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
SEARCH_MS = 150_000
COMMAND = "recipe.py --num-workers 1 --amp --evaluate --checkpoint best.pt --log --teams"


def run_cells(page, count):
    """Run the first cells of the notebook, by mouse."""
    page.locator(".jp-Cell").first.click()
    for _ in range(count):
        page.get_by_role("button", name="Run this cell and advance").click()


def test_the_notebook_begins_by_mouse(lab, page):
    lab.open(page, "bisection.ipynb")
    run_cells(page, 4)
    form = of(page, "bisection")
    expect(form.get_by_label("failing command")).to_have_value(COMMAND)
    form.get_by_role("button", name="next").click()
    rows = form.get_by_role("table", name="what to vary").get_by_role("row")
    expect(rows).to_have_count(7)
    expect(rows.filter(has_text="--checkpoint")).to_contain_text("best.pt")
    form.get_by_label("start the ranks").select_option("fork")
    form.get_by_role("button", name="begin").click()
    form.get_by_role(
        "button", name="pause"
    ).click()  # tests/test_notebooks.py searches to the end, the next test by mouse
    first = page.get_by_role("table", name="probes").get_by_role("row").nth(1)
    expect(first).to_contain_text("fails DDP301", timeout=SEARCH_MS)
    expect(form.get_by_role("button", name="run to the end")).to_be_visible()
    check_access(page)
    picture(page, "bisection-notebook")


# In the light theme for `make pictures`: in the tests, the notebook is in that theme.
THEMES = ["Light", "Dark"] if "DDPNB_SCREENSHOTS" in os.environ else ["Dark"]


@pytest.mark.parametrize("theme", THEMES)
def test_pause_judge_undo_and_write_by_mouse(theme, lab, page):
    lab.open(page, lab.write("guide.ipynb", "import ddpnb\nddpnb.show()"), theme)
    lab.run_all(page)
    of(page, "launch").get_by_role("button", name="bisect").click()
    form = of(page, "bisection")
    form.get_by_label("failing command").fill("recipe.py --evaluate --checkpoint best.pt --log --teams")
    check_access(page)
    picture(page, f"bisection-asks-{theme}")
    form.get_by_role("button", name="next").click()
    form.get_by_label("vary --teams").uncheck()
    form.get_by_label("start the ranks").select_option("fork")
    check_access(page)
    picture(page, f"bisection-proposes-{theme}")
    form.get_by_role("button", name="begin").click()

    probe, table = of(page, "next probe"), page.get_by_role("table", name="probes")
    expect(probe.get_by_text("as given")).to_be_visible()
    form.get_by_role("button", name="pause").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text("fails DDP301")
    expect(probe.get_by_role("button", name="run this probe")).to_be_visible()
    probe.get_by_role("button", name="good").click()  # with none of them it works, as everybody knows
    expect(table.get_by_role("row")).to_have_count(3)
    form.get_by_role("button", name="undo").click()
    expect(table.get_by_role("row")).to_have_count(2)
    probe.get_by_role("button", name="run this probe").click()
    expect(table.get_by_role("row")).to_have_count(3)
    expect(form.get_by_role("button", name="run to the end")).to_be_visible()
    check_access(page)
    picture(page, f"bisection-paused-{theme}")
    form.get_by_role("button", name="run to the end").click()

    found = of(page, "what was found")
    expect(found).to_contain_text("It fails with --evaluate and --checkpoint=best.pt together.", timeout=SEARCH_MS)
    expect(found.get_by_role("article", name="DDP301")).to_contain_text("recipe.py:")
    causes = page.get_by_role("list", name="what may be the cause").get_by_role("listitem").filter(has_text="cause")
    expect(causes).to_have_count(2)
    box = page.locator(".jp-OutputArea-output").first.bounding_box()
    assert box is not None
    clip = {"x": box["x"] - 8, "y": box["y"] - 2, "width": box["width"] + 16, "height": box["height"] + 10}
    page.screenshot(path=of_docs(f"bisection-{theme.lower()}"), clip=clip)
    found.get_by_role("button", name="write repro.sh").click()
    expect(form).to_contain_text("Written: repro.sh")
    assert "recipe.py --evaluate --checkpoint best.pt --teams" in (lab.work / "repro.sh").read_text()
    check_access(page)
    picture(page, f"bisection-found-{theme}")


def test_what_cannot_begin_is_said_and_a_search_continues_after_a_restart(lab, page):
    lab.open(page, lab.write("again.ipynb", "import ddpnb\nddpnb.guide()"))
    lab.run_all(page)
    form = of(page, "bisection")
    form.get_by_label("failing command").fill("missing.py --amp")
    form.get_by_role("button", name="next").click()
    expect(form.get_by_role("alert")).to_contain_text("missing.py")
    form.get_by_label("failing command").fill("recipe.py --evaluate --checkpoint best.pt")
    form.get_by_role("button", name="next").click()
    form.get_by_label("vary --evaluate").uncheck()
    form.get_by_label("vary --checkpoint").uncheck()
    form.get_by_role("button", name="begin").click()
    expect(form.get_by_role("alert")).to_contain_text("nothing is chosen")
    form.get_by_label("vary --evaluate").check()
    form.get_by_role("button", name="begin").click()
    form.get_by_role("button", name="pause").click()
    table = page.get_by_role("table", name="probes")
    expect(table.get_by_role("row")).to_have_count(2)
    expect(form.get_by_role("button", name="run to the end")).to_be_visible()

    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_text("Restart Kernel and Run All Cells…", exact=True).click()
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    expect(form).to_contain_text("was interrupted after 1 probe")
    form.get_by_role("button", name="continue it").click()
    form.get_by_role("button", name="run to the end").click()
    expect(of(page, "what was found")).to_contain_text("It fails with --evaluate alone.", timeout=SEARCH_MS)
    assert not (lab.work / "ddpnb-bisect.json").exists()
