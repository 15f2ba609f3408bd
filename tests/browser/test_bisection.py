"""The guide of a bisection: what cannot begin is said, and a search continues after a restart of the kernel."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import LONG_MS, of

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(600)]


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
    expect(of(page, "what was found")).to_contain_text("It fails with --evaluate alone.", timeout=LONG_MS)
    assert not (lab.work / "ddpnb-bisect.json").exists()
