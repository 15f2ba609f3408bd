"""The notebook of a reported hang by mouse: drop its files, read the diagnosis, re-enact it, step, export."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NOTEBOOKS, picture
from tests.browser.test_bisection import run_cells
from tests.browser.test_dashboard import check_access, of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
LONG_MS = 60_000
THEMES = ["Light", "Dark"] if "DDPNB_SCREENSHOTS" in os.environ else ["Dark"]

DROP = """(area, files) => {
  const transfer = new DataTransfer();
  for (const [name, content] of files)
    transfer.items.add(new File([Uint8Array.from(atob(content), (one) => one.charCodeAt(0))], name));
  for (const type of ["dragenter", "dragover", "drop"])
    area.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


def drop(page: Page, **files: bytes) -> None:
    """Drop files onto the page, as from a file manager."""
    given = [[name.replace("_", "."), base64.b64encode(content).decode()] for name, content in files.items()]
    of(page, "files of a report").locator(".drop").evaluate(DROP, given)


@pytest.mark.parametrize("theme", THEMES)
def test_the_notebook_by_mouse(theme, lab, page):
    lab.open(page, "reported-hang.ipynb", theme)
    run_cells(page, 4)
    files = of(page, "files of a report")
    expect(files).to_contain_text("Drop its logs")
    drop(page, noise_bin=bytes(range(256)) * 6000)  # more than one part
    expect(files.get_by_role("alert")).to_contain_text("noise.bin")
    check_access(page)
    folder: Path = NOTEBOOKS / "reports" / "flight-recorder"
    files.get_by_label("folder").set_input_files(folder)
    recording = of(page, "recording")
    expect(recording).to_contain_text("Read 4 files such as flight-recorder/trace_rank_0.pickle")
    card = page.get_by_role("article", name="DDP306").first
    expect(card).to_contain_text("multitask.py:29")
    check_access(page)
    picture(page, f"report-read-{theme}")

    recording.get_by_role("button", name="re-enact").click()
    result = of(page, "re-enactment")
    expect(result).to_contain_text("4 live ranks give the finding of the recording", timeout=LONG_MS)
    result.get_by_text("The script that the live ranks run").click()
    expect(result).to_contain_text('group_desc="task_b"')
    world = of(page, "world")
    expect(world.get_by_text("detected after")).to_be_visible()
    check_access(page)
    world.scroll_into_view_if_needed()
    picture(page, f"report-re-enacted-{theme}")
    world.get_by_role("button", name="release").click()
    live = of(page, "rank board").last.get_by_role("button", name="rank 0:")
    expect(live).to_contain_text("last run: ", timeout=LONG_MS)  # it was released

    recording.get_by_label("script").fill("train.py")
    recording.get_by_role("button", name="export").click()
    expect(recording.get_by_role("alert")).to_contain_text("Give another name")
    recording.get_by_label("script").fill("exported.py")
    recording.get_by_role("button", name="export").click()
    expect(recording).to_contain_text("torchrun --nproc-per-node 4 exported.py")
    assert (lab.work / "exported.py").read_text().startswith("# Re-enacts the calls of")
    recording.get_by_role("button", name="end the live ranks").click()
    expect(recording).to_contain_text("The live ranks are ended.")
    expect(world).to_have_count(0)


def test_a_path_is_read_and_files_are_added(lab, page):
    lab.open(page, lab.write("report.ipynb", "import ddpnb\nddpnb.show()"))
    lab.run_all(page)
    files, recording = of(page, "files of a report"), of(page, "recording")
    files.get_by_label("path").fill("none.log")
    files.get_by_role("button", name="read").click()
    expect(files.get_by_role("alert")).to_contain_text("No such file")
    files.get_by_label("path").fill("reports/stacks/job.log")
    files.get_by_label("path").press("Enter")
    expect(recording).to_contain_text("numbered checkpoints of a script")
    drop(page, stacks_txt=(NOTEBOOKS / "reports" / "stacks" / "py-spy.txt").read_bytes())
    expect(page.get_by_role("article", name="DDP313")).to_contain_text("count_words.py:45")
    expect(recording).to_contain_text("stacks.txt (py-spy dump)")
