"""A job that hangs in a terminal is opened, stepped and released from a notebook, by mouse."""

from __future__ import annotations

import textwrap

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import picture
from tests.browser.test_dashboard import LONG_MS, check_access, of
from tests.cli.commands import assert_all_ended, begin
from tests.cli.jobs import TORCHRUN, end, wait_for_job

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
_SCRIPT = """
    import time
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    for step in range(1_000_000):
        loss = torch.ones(4)
        if not (step == 20 and dist.get_rank() == 1):
            dist.all_reduce(loss)
        time.sleep(0.05)
        dist.barrier()
"""


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_a_job_is_opened_stepped_and_released(theme, lab, page, tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(_SCRIPT))
    process = begin("run", "--keep", "--fence", "off", "--", *TORCHRUN, "train.py", cwd=tmp_path)
    try:
        found = wait_for_job(process)
        lab.open(page, lab.write("job.ipynb", "import ddpnb\nddpnb.show()"), theme)
        lab.run_all(page)
        launch = of(page, "launch")
        row = launch.get_by_role("listitem").filter(has=page.locator(f"[data-folder='{found.folder}']"))
        expect(row).to_contain_text("ranks 0 and 1 of 2")
        check_access(page)
        picture(page, f"jobs-{theme}")
        launch.locator(f"[data-folder='{found.folder}']").click()
        card = page.get_by_role("article", name="DDP301")
        expect(card).to_contain_text("train.py:10", timeout=LONG_MS)
        board = of(page, "rank board")
        expect(board.get_by_role("button", name="rank 0")).to_contain_text("waiting")
        expect(of(page, "variables of all ranks").get_by_role("table")).to_be_visible()
        expect(of(page, "job").get_by_role("button", name="restart")).to_have_count(0)  # it has its own launcher
        check_access(page)
        picture(page, f"job-{theme}")
        of(page, "job").get_by_role("button", name="release").click()
        expect(board.get_by_role("button", name="rank 0")).to_contain_text("failed", timeout=LONG_MS)
        process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 3
    assert_all_ended(process, list(found.ranks.values()))
