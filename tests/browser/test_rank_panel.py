"""By mouse alone: stop a rank at a line in the middle of a step, see why its value differs, step, and let all continue."""

from __future__ import annotations

import sys

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import LONG_MS, check_access, of, picture, unfold
from tests.stepped import LINE, SCRIPT, THEN, WHEN, numbers, plain

pytestmark = [
    pytest.mark.browser,
    pytest.mark.full,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(sys.version_info < (3, 12), reason="Python stops at single lines from 3.12 on"),
]
CELLS = "import ddpnb\nworld = ddpnb.launch(2, quiet=True)\nworld.run('stepped.py', stream=None)\nddpnb.show(world{})"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The numbers of the training without a debugger."""
    return plain(tmp_path_factory.mktemp("plain") / "job")


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_a_rank_is_stopped_at_a_line_stepped_and_released_by_mouse(lab, page, theme, undisturbed):
    side = theme == "Dark"
    (lab.work / "stepped.py").write_text(SCRIPT)
    for name in ("go", "numbers0", "numbers1"):
        (lab.work / name).unlink(missing_ok=True)
    lab.open(page, lab.write("stepped.ipynb", CELLS.format(", where='right'" if side else "")), theme)
    page.set_viewport_size({"width": 1000, "height": 700} if side else {"width": 1400, "height": 1400})
    lab.run_all(page)
    board, panel = of(page, "rank board"), of(page, "rank panel")
    board.get_by_role("button", name="rank 1:").click(timeout=4 * LONG_MS)  # a kernel, torch and the ranks start first
    expect(panel.get_by_role("list", name="call stack of rank 1")).to_be_visible(timeout=LONG_MS)
    expect(panel.get_by_role("button", name="over")).to_have_attribute("aria-disabled", "true")
    expect(panel.get_by_role("button", name="over")).to_have_attribute("title", "step to the next line of this function (F10). Not now: not held: rank 1; hold stops at the next collective.")  # fmt: skip

    margin = panel.get_by_role("button", name=f"hold rank 1 at line {LINE}")
    margin.click(button="right")
    expect(panel.get_by_label("when", exact=True)).to_be_focused()
    picture(page, f"rank-panel-form-{theme}")
    panel.get_by_label("when", exact=True).fill(WHEN)
    panel.get_by_role("button", name="hold", exact=True).last.click()
    remove = panel.get_by_role("button", name=f"remove the hold at line {LINE}")
    expect(remove).to_have_attribute("data-mark", "armed if")
    (lab.work / "go").touch()
    current = panel.locator("tr[aria-current]").first
    expect(current).to_contain_text("loss = model(batch).mean() * scale", timeout=LONG_MS)
    expect(board.get_by_role("button", name="rank 1:")).to_contain_text(f"line {LINE} of stepped.py")
    expect(board.get_by_role("button", name="rank 0:")).to_contain_text("waiting")  # in its next collective
    expect(remove).to_have_attribute("data-mark", "held if")

    panel.get_by_label("only what differs between ranks").check()
    differs = panel.get_by_role("table", name="variables of step")
    expect(differs.get_by_role("row").filter(has_text="scale")).to_contain_text("2.0")
    expect(differs.get_by_role("row").filter(has_text="number")).to_have_count(0)
    panel.get_by_label("only what differs between ranks").uncheck()
    expect(differs.get_by_role("row").filter(has_text="number")).to_contain_text("7")
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
    expect(current).to_contain_text(THEN[0])
    for line in THEN[1:]:
        page.keyboard.press("F10")
        expect(current).to_contain_text(line)
    expect(panel.get_by_role("button", name="over")).to_be_focused()
    assert panel.evaluate(tops) == before  # nothing moves when an answer comes
    panel.get_by_label("beside it").select_option("0")
    expect(panel.get_by_role("list", name="call stack of rank 0")).to_be_visible()
    expect(panel.get_by_role("row").filter(has_text="scale * 10")).to_contain_text("20.0")  # it stays over steps
    check_access(page)
    panel.locator(".columns").scroll_into_view_if_needed()
    picture(page, f"rank-panel-two-{theme}")

    unfold(page, "Hold and step")
    held = of(page, "hold and step").get_by_role("list", name="armed holds").get_by_role("listitem")
    expect(held).to_contain_text(f"stepped.py:{LINE} when {WHEN} on rank 1: armed")
    held.get_by_role("button", name="disable").click()
    expect(held).to_contain_text("disabled")
    expect(remove.first).to_have_attribute("data-mark", "off if")
    held.scroll_into_view_if_needed()
    picture(page, f"rank-panel-holds-{theme}")
    remove.first.click()
    expect(held).to_have_count(0)
    expect(margin.first).to_have_attribute("aria-pressed", "false")
    panel.get_by_label("buttons and holds act on").select_option("all")
    panel.get_by_role("button", name="over").focus()
    page.keyboard.press("F5")
    expect(of(page, "world").get_by_role("status").first).to_contain_text("last run: OK", timeout=LONG_MS)
    assert page.get_by_role("button", name="rank 1:").count() == 1  # F5 has not loaded the page again
    assert numbers(lab.work) == undisturbed
