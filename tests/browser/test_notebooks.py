"""Every notebook of the project once, with the mouse alone, and the life of a dashboard.

`make test` takes the tour; `make test-all` runs all notebooks, and those that have a form to the end.
"""

from __future__ import annotations

import json
import os
import time

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import (
    LONG_MS,
    NOTEBOOKS,
    check_access,
    drop,
    of,
    of_docs,
    picture,
    run_cells,
    run_to_the_end,
    unfold,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
PICTURES = "DDPNB_SCREENSHOTS" in os.environ  # `make pictures` takes them in both themes
DARK = ["Light", "Dark"] if PICTURES else ["Dark"]


@pytest.fixture
def to_the_end(request):
    """Whether what takes long is done too: the cells of a notebook that follow its form."""
    return request.config.getoption("--full")


def photograph(page: Page, name: str, top: Locator, end: Locator | None = None) -> None:
    """A picture for the docs, from the top of an element to the end of it or of another one."""
    begin, until = top.bounding_box(), (end or top).bounding_box()
    assert begin and until
    x, y = begin["x"] - 12, begin["y"] - 4  # less above: there is the cell
    size = {"width": begin["width"] + 24, "height": until["y"] + until["height"] + 12 - y}
    page.screenshot(path=of_docs(name), clip={"x": x, "y": y, **size})


def test_the_tour(lab, page):
    """As somebody takes it who has never seen it."""
    lab.open(page, "tour.ipynb")
    expect(page.locator(".lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)  # nothing was done yet
    board = of(page, "rank board")

    def look(cell: str) -> None:
        if cell == "run-code":
            card = page.get_by_role("article", name="DDP301").last
            expect(card).to_contain_text("Rank 1 never calls the all_reduce", timeout=LONG_MS)
            expect(board.get_by_role("button", name="rank 1:")).to_contain_text("DDP301")
            expect(board.get_by_role("button", name="rank 0:")).to_contain_text("waiting")

    run_to_the_end(page, "tour", after=look)
    expect(page.locator(".jp-OutputArea-output", has_text="'ok'")).to_be_visible()
    expect(board.get_by_role("button", name="rank 1:")).to_contain_text("last run: ")
    page.keyboard.press("Control+s")
    expect(page.locator(".lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)
    assert "Rank 1 never calls the all_reduce" in (lab.work / "tour.ipynb").read_text()


HANG = (
    "import ddpnb\nworld = ddpnb.launch(4, quiet=True)\nddpnb.show(world)",
    'run = world.run("train.py", "--steps", "20", stream=None)\nrun.wait()',
)


@pytest.mark.skipif(not PICTURES, reason="`make pictures` takes them")
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_pictures_of_the_hang_of_the_tour(lab, page, theme):
    page.set_viewport_size({"width": 1250, "height": 2400})
    lab.open(page, lab.write("pictures.ipynb", *HANG), theme)
    run_cells(page, 2)
    card = page.get_by_role("article", name="DDP301").first
    expect(card).to_be_visible(timeout=LONG_MS)
    expect(of(page, "rank board").get_by_role("button", name="rank 0:")).to_contain_text("waiting")
    of(page, "rank panel").get_by_role("button", name="close", exact=True).click()
    photograph(page, f"tour-{theme.lower()}", of(page, "world"), of(page, "time line"))
    photograph(page, f"fork-{theme.lower()}", card)


@pytest.mark.full
@pytest.mark.parametrize("notebook", ["startup", "pitfalls", "ranks"])
def test_cell_by_cell(lab, page, notebook):
    lab.open(page, f"{notebook}.ipynb")
    run_to_the_end(page, notebook)


def re_enact(page, recording, theme):
    """On live ranks, which are released: tests/notebook/test_recorded.py does it without a browser."""
    recording.get_by_role("button", name="re-enact").click()
    result = of(page, "re-enactment")
    expect(result).to_contain_text("4 live ranks give the finding of the recording", timeout=LONG_MS)
    result.get_by_text("The script that the live ranks run").click()
    expect(result).to_contain_text("group_desc='task_b'")
    world = of(page, "world")
    expect(world.get_by_text("detected after")).to_be_visible()
    check_access(page)
    world.scroll_into_view_if_needed()
    picture(page, f"report-re-enacted-{theme}")
    world.get_by_role("button", name="release").click()
    live = of(page, "rank board").last.get_by_role("button", name="rank 0:")
    expect(live).to_contain_text("last run: ", timeout=LONG_MS)  # it was released


@pytest.mark.full
@pytest.mark.parametrize("theme", DARK)
def test_a_reported_hang(lab, page, theme, to_the_end):
    """Drop its files, read the diagnosis, re-enact it, release it, export it."""
    lab.open(page, "reported-hang.ipynb", theme)
    run_cells(page, 4)
    files = of(page, "files of a report")
    expect(files).to_contain_text("Drop its logs")
    drop(page, noise_bin=bytes(range(256)) * 6000)  # more than one part
    expect(files.get_by_role("alert")).to_contain_text("noise.bin")
    check_access(page)
    files.get_by_label("folder").set_input_files(NOTEBOOKS / "reports" / "flight-recorder")
    recording = of(page, "recording")
    expect(recording).to_contain_text("Read 4 files such as flight-recorder/trace_rank_0.pickle")
    card = page.get_by_role("article", name="DDP306").first
    expect(card).to_contain_text("multitask.py:29")
    check_access(page)
    picture(page, f"report-read-{theme}")

    if to_the_end:
        re_enact(page, recording, theme)
    recording.get_by_label("script").fill("train.py")
    recording.get_by_role("button", name="export").click()
    expect(recording.get_by_role("alert")).to_contain_text("Give another name")
    recording.get_by_label("script").fill("exported.py")
    recording.get_by_role("button", name="export").click()
    expect(recording).to_contain_text("torchrun --nproc-per-node 4 exported.py")
    assert (lab.work / "exported.py").read_text().startswith("# -*- coding: ascii -*-\n# Re-enacts recorded calls.")
    if to_the_end:
        recording.get_by_role("button", name="end the live ranks").click()
        expect(recording).to_contain_text("The live ranks are ended.", timeout=LONG_MS)
        expect(of(page, "world")).to_have_count(0)
        run_to_the_end(page, "reported-hang", first=4)


@pytest.mark.full
@pytest.mark.parametrize("theme", DARK)
def test_a_bisection(lab, page, theme, to_the_end):
    """The guide: pause, judge, undo, continue; the pair of options that hangs is found."""
    page.set_viewport_size({"width": 1250, "height": 2000})  # the picture shows all of it
    lab.open(page, "bisection.ipynb", theme)
    run_cells(page, 4)
    form = of(page, "bisection")
    asked = form.get_by_label("failing command")
    expect(asked).to_have_value(
        "recipe.py --num-workers 1 --amp --evaluate --checkpoint best.pt --log --teams", timeout=LONG_MS
    )
    asked.fill("recipe.py --evaluate --checkpoint best.pt --log --teams")  # the last cells search in all
    check_access(page)
    picture(page, f"bisection-asks-{theme}")
    form.get_by_role("button", name="next").click()
    rows = form.get_by_role("table", name="what to vary").get_by_role("row")
    expect(rows).to_have_count(5)
    expect(rows.filter(has_text="--checkpoint")).to_contain_text("best.pt")
    form.get_by_label("vary --teams").uncheck()
    form.get_by_label("start the ranks").select_option("fork")
    check_access(page)
    picture(page, f"bisection-proposes-{theme}")
    form.get_by_role("button", name="begin").click()

    probe, table = of(page, "next probe"), page.get_by_role("table", name="probes")
    expect(probe.get_by_text("as given")).to_be_visible()
    form.get_by_role("button", name="pause").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text("fails DDP301", timeout=LONG_MS)
    expect(probe.get_by_role("button", name="run this probe")).to_be_visible()
    probe.get_by_role("button", name="good").click()  # with none of them it works, as everybody knows
    expect(table.get_by_role("row")).to_have_count(3)
    form.get_by_role("button", name="undo").click()
    expect(table.get_by_role("row")).to_have_count(2)
    probe.get_by_role("button", name="run this probe").click()
    expect(table.get_by_role("row")).to_have_count(3, timeout=LONG_MS)
    expect(form.get_by_role("button", name="run to the end")).to_be_visible()
    check_access(page)
    picture(page, f"bisection-paused-{theme}")
    form.get_by_role("button", name="run to the end").click()

    found = of(page, "what was found")
    expect(found).to_contain_text("It fails with --evaluate and --checkpoint=best.pt together.", timeout=2 * LONG_MS)
    expect(found.get_by_role("article", name="DDP301")).to_contain_text("recipe.py:")
    causes = page.get_by_role("list", name="what may be the cause").get_by_role("listitem").filter(has_text="cause")
    expect(causes).to_have_count(2)
    photograph(page, f"bisection-{theme.lower()}", page.locator(".jp-OutputArea-output").first)
    found.get_by_role("button", name="write repro.sh").click()
    expect(found).to_contain_text("Written: repro.sh")
    assert "recipe.py --evaluate --checkpoint best.pt --teams" in (lab.work / "repro.sh").read_text()
    check_access(page)
    picture(page, f"bisection-found-{theme}")
    if to_the_end:
        run_to_the_end(page, "bisection", first=4)


SAVED = "the last state of the dashboard"


@pytest.mark.full
def test_the_life_of_a_dashboard(lab, page, complaints, to_the_end):
    """It launches ranks, shows their hang, is still live when the page is loaded again, and outlives its kernel."""
    name = lab.write("dashboard.ipynb", "import ddpnb\nddpnb.show()")
    lab.open(page, name)
    # Whether what is saved is ever seen beside the widget:
    page.evaluate(
        """(label) => {
      window.seen = 0;
      setInterval(() => {
        const saved = document.querySelector(`[aria-label="${label}"]`);
        if (saved?.checkVisibility({ visibilityProperty: true })) window.seen += 1;
      }, 16);
    }""",
        SAVED,
    )
    lab.run_all(page)
    launch, head, board = of(page, "launch"), of(page, "world"), of(page, "rank board")
    launch.get_by_label("ranks", exact=True).select_option("2")
    launch.get_by_role("button", name="launch").click()
    expect(head.get_by_text("idle", exact=True)).to_be_visible(timeout=LONG_MS)
    marked = page.evaluate_handle("() => document.querySelector('.ddpnb canvas')")
    unfold(page, "Run")
    runs = of(page, "what to run")
    runs.get_by_label("script", exact=True).fill("train.py")
    runs.get_by_role("button", name="run", exact=True).click()
    card = page.get_by_role("article", name="DDP301")
    expect(card).to_contain_text("Rank 1 never calls the all_reduce", timeout=LONG_MS)
    saved = page.locator(f'[aria-label="{SAVED}"]')
    expect(saved).to_contain_text("DDP301", timeout=LONG_MS)
    expect(saved).to_be_hidden()
    assert page.evaluate("() => window.seen") == 0
    assert marked.evaluate("canvas => canvas.isConnected"), "the widget was not made again"
    check_access(page)
    picture(page, "dashboard-of-life")
    card.get_by_text("DDP301").first.click()  # its part has had the focus, then a control within it
    card.locator("a, button, summary").first.focus()
    page.keyboard.press("Control+s")
    content, deadline = "", time.monotonic() + 60  # before JupyterLab saves by itself
    while "DDP301" not in content and time.monotonic() < deadline:
        page.wait_for_timeout(300)
        content = (lab.work / name).read_text()
    assert "DDP301" in content
    first = json.loads(content)["cells"][0]["outputs"]
    assert [min(one["data"]) for one in first] == ["application/vnd.jupyter.widget-view+json", "text/html"]
    html = "".join(first[1]["data"]["text/html"])
    assert "<script" not in html and len(html) < 200_000

    page.reload()
    expect(board.get_by_role("button", name="rank 0:")).to_contain_text("waiting", timeout=LONG_MS)
    expect(saved).to_be_hidden()
    head.get_by_role("button", name="release").click()
    expect(board.get_by_role("button", name="rank 0:")).to_contain_text("idlelast run: ", timeout=LONG_MS)
    expect(head.get_by_role("status").first).to_contain_text("last run: hang")
    expect(saved).to_contain_text("idle, last run: hang")  # JupyterLab has forgotten its display id

    page.goto("about:blank")
    lab.end_kernels()
    (lab.work / "copied.ipynb").write_text(content.replace('"name": "python3"', '"name": "nowhere"'))
    opened = [("Light", name), ("Dark", "copied.ipynb")]
    for theme, book in opened if to_the_end else opened[:1]:
        lab.use(theme)
        page.goto(f"{lab.url}/lab/tree/{book}?reset")
        shown = page.locator(".jp-OutputArea", has_text="DDP301").first
        expect(shown.get_by_text("DDP301 collective-missing")).to_be_visible(timeout=LONG_MS)
        drawn = shown.get_by_role("img", name="The time line")
        assert drawn.evaluate("image => image.decode().then(() => image.naturalWidth)") > 500
        if book == name:  # of a copy the page drops the styles
            expect(shown.get_by_text("widget")).to_be_hidden()
        picture(page, f"saved-{theme}")
    complaints.clear()  # of a widget whose kernel is gone
