"""What may go wrong while something is shown: it is said, and nothing of it gets into the page."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import LONG_MS, VIEWPORT

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(600)]

ODD = r"""
from dataclasses import replace
import ddpnb
from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack

BAD = "<img src=x onerror='window.got=1'><script>window.got=1</script>"
frame = Frame(BAD + ".py", 3, BAD, True, {BAD: BAD * 20000, "loss": "1"})
def rank(n, state):
    call = Call(0, Group((0, 1), label=BAD), 1, Signature(BAD, ((4,),), (BAD,)), Site(BAD, 3, BAD), state, entered_ns=10**9 * (n + 1))
    return RankRecord(n, 100 + n, (call,), stacks=(Stack(BAD, (frame,), main=True),), process=Process("idle", 9.0, waits_on=BAD), output=BAD)
odd = Recording(2, {0: rank(0, CallState.WAITING), 1: replace(rank(1, CallState.WAITING), ending=Ending("raised", 1, BAD, BAD * 1000))}, taken_ns=10**10)
ddpnb.show(odd)
"""


def test_names_with_markup_and_empty_recordings(lab, page):
    name = lab.write(
        "odd.ipynb",
        ODD,
        "ddpnb.show(Recording(2, {0: RankRecord(0), 1: RankRecord(1)}))",
        "ddpnb.show(Recording(0, {}))",
    )
    lab.open(page, name)
    lab.run_all(page)
    expect(page.get_by_role("group", name="rank board", exact=True)).to_have_count(3)
    expect(page.get_by_text("no collective recorded").locator("visible=true")).to_have_count(2)
    expect(page.get_by_text("No ranks.")).to_be_visible()
    for part in page.locator(".ddpnb details.part > summary").all():
        part.click()
    board = page.get_by_role("group", name="rank board", exact=True).first
    expect(board.get_by_role("button", name="rank 0:")).to_contain_text("<img src=x")
    assert page.locator(".ddpnb img:not([src^='data:image/png']), .ddpnb script").count() == 0
    assert page.evaluate("window.got") is None


LATE = """
from ddpnb.notebook.widgets.fragment import Fragment
class Late(Fragment):
    _esm = "await new Promise((done) => setTimeout(done, 3000));" + Fragment._esm
late = Late("<p>at first</p>", label="late")
late
"""


def test_a_widget_whose_script_loads_for_more_than_two_seconds(lab, page):
    """anywidget then drops all messages of its model."""
    lab.open(page, lab.write("late.ipynb", LATE, "late.html = '<p>before it was there</p>'"))
    lab.run_all(page)
    shown = page.get_by_role("group", name="late", exact=True)
    expect(shown).to_contain_text("before it was there")
    page.locator(".jp-Cell").last.locator(".cm-content").fill("late.html = '<p>afterwards</p>'")
    page.keyboard.press("Control+Enter")
    expect(shown).to_contain_text("afterwards")


def test_one_world_in_two_notebooks_and_a_widget_shown_twice(lab, page, chromium):
    first = lab.write(
        "first.ipynb", "import ddpnb\nworld = ddpnb.launch(2, quiet=True)\nboard = ddpnb.show(world)\nboard", "board"
    )
    lab.open(page, first)
    lab.run_all(page)
    expect(page.get_by_text("idle", exact=True).first).to_be_visible(timeout=LONG_MS)
    heads = page.get_by_role("group", name="world", exact=True)
    expect(heads).to_have_count(2)
    # a second notebook of the same kernel
    session = next(one for one in lab.ask("sessions") if one["path"] == first)
    second = lab.write("second.ipynb", "ddpnb.show(world)")
    lab.ask(
        "sessions",
        "POST",
        {"path": second, "name": second, "type": "notebook", "kernel": {"id": session["kernel"]["id"]}},
    )
    other = chromium.new_page(viewport=VIEWPORT)
    try:
        lab.open(other, second)
        lab.run_all(other)
        there = other.get_by_role("group", name="what to run", exact=True)
        other.locator(".ddpnb details.part > summary", has_text="Run").click()
        there.get_by_label("script").fill("train.py")
        there.get_by_role("button", name="run", exact=True).click()
        expect(other.get_by_role("article", name="DDP301")).to_be_visible(timeout=LONG_MS)
        expect(page.get_by_role("article", name="DDP301")).to_have_count(2)  # in both views of the first
        heads.last.get_by_role("button", name="release").click()
        expect(other.get_by_role("button", name="rank 0:")).to_contain_text("last run: ")
    finally:
        other.close()


def test_ranks_that_die_and_a_kernel_that_is_restarted(lab, page):
    name = lab.write(
        "dies.ipynb",
        "import ddpnb, os, signal\nworld = ddpnb.launch(2, quiet=True)\nddpnb.show(world)",
        "os.kill(world.pids()[1], signal.SIGKILL)",
    )
    lab.open(page, name)
    lab.run_all(page)
    expect(page.get_by_role("button", name="rank 1:")).to_contain_text("dead", timeout=LONG_MS)
    page.get_by_role("group", name="world", exact=True).get_by_role("button", name="restart").click()
    expect(page.get_by_role("button", name="rank 1:")).to_contain_text("idle", timeout=LONG_MS)
    kernel = next(one for one in lab.ask("sessions") if one["path"] == name)["kernel"]["id"]
    lab.ask(f"kernels/{kernel}/restart", "POST", {})
    expect(page.get_by_role("alert").filter(has_text="Run the notebook again")).to_have_count(1, timeout=LONG_MS)
    head = page.get_by_role("group", name="world", exact=True)
    expect(head.get_by_role("button", name="save", exact=True)).to_be_disabled()
    expect(head.get_by_role("button", disabled=False)).to_have_count(1)  # the keys
    expect(page.get_by_role("button", name="rank 1:")).to_be_visible()  # the last that was known
