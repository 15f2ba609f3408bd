"""Files of a reported hang: a path that is typed, and files that are added to what was read."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NOTEBOOKS, drop, of

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(600)]


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
