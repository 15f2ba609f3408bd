"""The dashboard of a recording of 2,048 ranks: groups of ranks, and not thousands of rows."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from ddpnb.recording.calls import Group
from ddpnb.recording.recording import Recording
from tests.browser.conftest import check_access, of, picture
from tests.rules.recordings import FILE, Rank, line

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(600)]
RANKS, CULPRIT, BEHIND = 2048, 1717, 100
SOURCE = "def main():\n    for step in range(9):\n        dist.all_reduce(loss)\n    dist.barrier()\n"


def recorded():
    """One rank has finished early, another waits in the barrier behind the loop, all others in the loop."""
    world = Group(tuple(range(RANKS)), label="default_pg")

    def rank(number):
        one = Rank(number, RANKS)
        for _ in range(4):
            one.calls("all_reduce", line(3), group=world)
        if number == CULPRIT:
            return one.finishes()
        op, at = ("barrier", 4) if number == BEHIND else ("all_reduce", 3)
        return one.waits(op, line(at), group=world)

    ranks = {number: rank(number).record for number in range(RANKS)}
    return Recording(RANKS, ranks, {FILE: SOURCE}, taken_ns=10**10, host={"cores": RANKS})


def test_ranks_are_shown_in_groups(lab, page):
    recorded().save(lab.work / "many.ddpnb")
    lab.open(page, lab.write("many.ipynb", "import ddpnb\nddpnb.show(ddpnb.load('many.ddpnb'))"))
    lab.run_all(page)
    board = of(page, "rank board")
    expect(board.locator(".tile").first).to_be_visible()
    assert board.locator(".tile").count() <= 4
    expect(board).to_contain_text(f"{RANKS - 2} ranks")
    expect(board.locator(f"[data-ranks='{CULPRIT}']")).to_contain_text("ended")
    time_line = of(page, "time line")
    expect(time_line).to_contain_text(f"of {RANKS} ranks: the most relevant")
    assert page.locator("tr").count() < 200
    assert page.locator("*").count() < 6000
    check_access(page)
    picture(page, "many-ranks")
