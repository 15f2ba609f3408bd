"""A job that runs and then hangs in a terminal is opened, stepped and released from a notebook, by mouse."""

from __future__ import annotations

import re
import textwrap

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import LONG_MS, boxes, check_access, of, picture, unfold
from tests.cli.commands import assert_all_ended, begin
from tests.cli.jobs import TORCHRUN, end, wait_for_job

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(600)]
_SCRIPT = """
    import os
    import time
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    for step in range(1_000_000):
        loss = torch.ones(4)
        if dist.get_rank() != 1 or not os.path.exists("bad-batch"):
            dist.all_reduce(loss)
        time.sleep(0.05)
        dist.barrier()
"""


def values_of(page, expression):
    """The values of this expression on ranks 0 and 1."""
    part = of(page, "hold and step")
    part.get_by_label("expression, in each rank's current frame").fill(expression)
    part.get_by_role("button", name="evaluate").click()
    told = part.get_by_role("status").filter(has_text=expression)
    expect(told).to_be_visible()
    values = [int(value) for _, value in re.findall(r"^rank (\d): (\d+)\s*$", told.inner_text(), re.MULTILINE)]
    assert len(values) == 2, told.inner_text()
    return values


def held_at(board, ranks):
    """The number of the call before which the ranks are held: one that was in it already waits there for the other."""
    held = board.get_by_role("button", name="rank").filter(has_text="held").first
    expect(held).to_be_visible()
    call = int(re.search(r"#(\d+)", held.inner_text())[1])
    for rank in ranks:
        expect(rank).to_have_attribute("aria-label", re.compile(rf"(held|waiting) .*#{call} "))
    return call


@pytest.mark.parametrize("theme", ["Dark"])
def test_a_job_is_opened_stepped_and_released(theme, lab, page, tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(_SCRIPT))
    process = begin("run", "--keep", "--fence", "off", "--", *TORCHRUN, "train.py", cwd=tmp_path)
    try:
        found = wait_for_job(process)
        lab.open(page, lab.write("job.ipynb", "import ddpnb\nddpnb.show()"), theme)
        lab.run_all(page)
        launch = of(page, "launch")
        row = launch.get_by_role("listitem").filter(has=page.locator(f"[data-target='{found.folder}']"))
        expect(row).to_contain_text("ranks 0 and 1 of 2")
        check_access(page)
        picture(page, f"jobs-{theme}")
        launch.locator(f"[data-target='{found.folder}']").click()
        head, board = of(page, "job"), of(page, "rank board")
        expect(head.get_by_text("running")).to_be_visible()
        head.get_by_role("button", name="hold").click()
        ranks = [board.get_by_role("button", name=f"rank {rank}:") for rank in (0, 1)]
        before_all = boxes(head)
        call = held_at(board, ranks)
        assert boxes(head) == before_all
        head.get_by_role("button", name="step 1").click()
        for rank in ranks:
            expect(rank).to_have_attribute("aria-label", re.compile(rf"held .*#{call + 1} "))
        unfold(page, "Hold and step")
        before = values_of(page, "step + 0")
        form = of(page, "hold and step")
        steady = boxes(form)
        form.get_by_label("calls").fill("4")  # an all_reduce and a barrier in each iteration
        form.get_by_role("button", name="step", exact=True).click()
        for rank in ranks:
            expect(rank).to_have_attribute("aria-label", re.compile(rf"held .*#{call + 5} "))
        assert boxes(head) == before_all  # neither buttons nor forms have moved since the run was held
        assert boxes(form) == steady
        assert values_of(page, "step + 1000") == [value + 1002 for value in before]
        check_access(page)
        picture(page, f"job-held-{theme}")
        (tmp_path / "bad-batch").touch()
        head.get_by_role("button", name="resume").click()
        card = page.get_by_role("article", name="DDP301")
        expect(card).to_contain_text("train.py:11", timeout=LONG_MS)
        expect(board.get_by_role("button", name="rank 0:")).to_contain_text("waiting")
        expect(of(page, "rank panel").get_by_role("table", name="variables of")).to_be_visible()
        expect(head.get_by_role("button", name="restart")).to_have_count(0)  # it has its own launcher
        check_access(page)
        picture(page, f"job-{theme}")
        head.get_by_role("button", name="release").click()
        expect(board.get_by_role("button", name="rank 0:")).to_contain_text("failed", timeout=LONG_MS)
        process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 3
    assert_all_ended(process, list(found.ranks.values()))
