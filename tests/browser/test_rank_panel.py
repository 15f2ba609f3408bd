"""By mouse alone: stop a rank at a line in the middle of a step, see why its value differs, step, and let all continue."""

from __future__ import annotations

import sys

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import LONG_MS, check_access, of, picture

pytestmark = [
    pytest.mark.browser,
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.version_info < (3, 12), reason="Python stops at single lines from 3.12 on"),
]
SCRIPT = """import os
import time

import torch
import torch.distributed as dist


def step(model, optimizer, rank, number):
    batch = torch.ones(4) * (number + 1)
    scale = 2.0 if rank == 1 else 1.0
    loss = model(batch).mean() * scale
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    number = 0
    while not os.path.exists("enough") or number < 20:
        loss = step(model, optimizer, rank, min(number, 19))
        number += 1
        time.sleep(0.02)
    print("done", flush=True)


main()
"""
LINE = 1 + SCRIPT.splitlines().index("    loss = model(batch).mean() * scale")
CELLS = "import ddpnb\nworld = ddpnb.launch(2, quiet=True)\nworld.run('stepped.py', stream=None)\nddpnb.show(world{})"


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_a_rank_is_stopped_at_a_line_stepped_and_released_by_mouse(lab, page, theme):
    side = theme == "Dark"
    (lab.work / "stepped.py").write_text(SCRIPT)
    (lab.work / "enough").unlink(missing_ok=True)
    lab.open(page, lab.write("stepped.ipynb", CELLS.format(", where='right'" if side else "")), theme)
    page.set_viewport_size({"width": 1000, "height": 700} if side else {"width": 1250, "height": 1400})
    lab.run_all(page)
    board, panel = of(page, "rank board"), of(page, "rank panel")
    board.get_by_role("button", name="rank 1:").click(timeout=LONG_MS)
    expect(panel.get_by_role("list", name="call stack of rank 1")).to_be_visible()

    panel.get_by_role(
        "button", name="hold", exact=True
    ).click()  # it may be anywhere: at its next call it shows the step
    step = panel.get_by_role("button", name="step …").or_(panel.get_by_role("button", name="step stepped.py"))
    step.first.click()
    panel.get_by_role("button", name=f"hold rank 1 at line {LINE}").click()
    expect(panel.get_by_role("button", name=f"remove the hold at line {LINE}")).to_have_attribute(
        "aria-pressed", "true"
    )
    panel.get_by_role("button", name="resume").click()
    current = panel.locator("tr[aria-current]").first
    expect(current).to_contain_text("loss = model(batch).mean() * scale")
    expect(board.get_by_role("button", name="rank 1:")).to_contain_text(f"line {LINE} of stepped.py")
    expect(board.get_by_role("button", name="rank 0:")).to_contain_text("waiting")  # in its next collective

    panel.get_by_label("only what differs between ranks").check()
    differs = panel.get_by_role("table", name="variables of step")
    expect(differs.get_by_role("row").filter(has_text="scale")).to_contain_text("2.0")
    expect(differs.get_by_role("row").filter(has_text="batch")).to_have_count(0)
    panel.get_by_label("only what differs between ranks").uncheck()
    panel.get_by_role("button", name="batch", exact=True).click()
    expect(panel.get_by_role("img", name="finite elements in").first).to_be_visible()
    panel.get_by_label("expression", exact=True).fill("scale * 10")
    panel.get_by_role("button", name="watch", exact=True).click()
    expect(panel.get_by_role("row").filter(has_text="scale * 10")).to_contain_text("20.0")
    check_access(page)
    picture(page, f"rank-panel-{theme}")

    tops = "panel => panel.querySelector('.listing').getBoundingClientRect().top - panel.getBoundingClientRect().top"
    before = panel.evaluate(tops)
    panel.get_by_role("button", name="over").click()
    expect(current).to_contain_text("loss.backward()")
    page.keyboard.press("F10")
    expect(current).to_contain_text("optimizer.step()")
    page.keyboard.press("F10")
    expect(current).to_contain_text("optimizer.zero_grad()")
    assert panel.evaluate(tops) == before  # nothing moves when an answer comes
    panel.get_by_label("beside it").select_option("0")
    expect(panel.get_by_role("list", name="call stack of rank 0")).to_be_visible()
    expect(panel.get_by_role("row").filter(has_text="scale * 10")).to_contain_text("20.0")  # it stays over steps
    check_access(page)
    panel.locator(".columns").scroll_into_view_if_needed()
    picture(page, f"rank-panel-two-{theme}")

    (lab.work / "enough").touch()
    panel.get_by_role("button", name=f"remove the hold at line {LINE}").first.click()
    expect(panel.get_by_role("button", name=f"hold rank 1 at line {LINE}").first).to_have_attribute(
        "aria-pressed", "false"
    )
    panel.get_by_label("buttons and holds act on").select_option("all")
    panel.get_by_role("button", name="over").focus()
    page.keyboard.press("F5")
    expect(of(page, "world").get_by_role("status").first).to_contain_text("last run: OK", timeout=LONG_MS)
    assert page.get_by_role("button", name="rank 1:").count() == 1  # F5 has not loaded the page again
