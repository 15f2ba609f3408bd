"""The dashboard in JupyterLab: launch, step, break, understand, release, fix; by mouse, by keyboard, light and dark."""

from __future__ import annotations

import sys

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import LONG_MS, boxes, check_access, of, picture, unfold

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(600)]


def test_a_tab_that_lies_behind_another_says_so(lab, page):
    launch = """
import time, ddpnb
world = ddpnb.launch(2, quiet=True)
def until(unseen, end=90):
    end += time.monotonic()
    while dashboard.head.unseen is not unseen and time.monotonic() < end:
        time.sleep(0.1)
    print("unseen" if dashboard.head.unseen else "seen", "in time" if time.monotonic() < end else "too late")
"""
    # All in one cell: JupyterLab takes cells out of the page from which the run of a later one has scrolled away.
    behind = """
dashboard = ddpnb.show(world)
display(dashboard)
until(False)
print("now hide it")
until(True)
until(False)
world.close()
print("closed")
"""
    lab.open(page, lab.write("behind.ipynb", launch, behind))
    page.get_by_role("button", name="New Launcher").last.click()
    ours = page.get_by_role("tab", name="behind.ipynb")
    ours.click()
    lab.run_all(page)
    last = page.locator(".jp-Cell").last
    expect(last).to_contain_text("now hide it", timeout=LONG_MS)
    page.get_by_role("tab", name="Launcher").click()
    expect(last).to_contain_text("unseen in time", timeout=LONG_MS)
    ours.click()
    expect(last).to_contain_text("seen in time\nnow hide it\nunseen in time\nseen in time\nclosed", timeout=LONG_MS)


@pytest.mark.parametrize("theme", ["Light"])  # the dark one: test_job, test_bisection
def test_launch_step_break_understand_and_fix_by_mouse(lab, page, theme):
    lab.open(page, lab.write("dashboard.ipynb", "import ddpnb\nddpnb.show()"), theme)
    lab.run_all(page)
    launch = of(page, "launch")
    launch.get_by_label("ranks", exact=True).select_option("2")
    launch.get_by_role("button", name="launch").click()
    expect(launch.get_by_text("starting 2 ranks")).to_be_visible()
    expect(of(page, "world").get_by_text("idle", exact=True)).to_be_visible(timeout=LONG_MS)

    unfold(page, "Start-up")
    start = of(page, "start-up of the ranks")
    start.get_by_role("button", name="begin start-up").click()
    start.get_by_label("0", exact=True).check()
    for step in ("environment", "device", "store"):
        row = start.get_by_role("row", name=step)
        start.get_by_role("button", name="step these ranks").click()
        expect(row.get_by_role("cell").first).to_contain_text("waits: 1" if step == "store" else "ms")
    expect(of(page, "world").get_by_text("starting up")).to_be_visible()
    check_access(page)
    start.get_by_role("button", name="run to the end").click()
    expect(start.get_by_text("all steps are done")).to_be_visible()
    picture(page, f"start-up-{theme}")
    unfold(page, "Start-up")

    unfold(page, "Run")
    runs = of(page, "what to run")
    runs.get_by_role("button", name="browse").click()
    chooser = runs.get_by_role("group", name="choose a script")
    chooser.get_by_role("button", name="..", exact=True).click()
    chooser.get_by_role("button", name=f"{lab.work.name}/").click()
    chooser.get_by_role("button", name="train.py", exact=True).scroll_into_view_if_needed()
    picture(page, f"chooser-{theme}")
    check_access(page)
    chooser.get_by_role("button", name="train.py", exact=True).click()
    expect(chooser).not_to_be_visible()
    expect(runs.get_by_label("script", exact=True)).to_have_value("train.py")
    runs.get_by_role("button", name="run", exact=True).click()
    card = page.get_by_role("article", name="DDP301")
    expect(card).to_be_visible(timeout=LONG_MS)
    expect(card).to_contain_text("Rank 1 never calls the all_reduce")
    board = of(page, "rank board")
    expect(board.get_by_role("button", name="rank 1:").get_by_text("DDP301")).to_be_visible()
    expect(board.get_by_role("button", name="rank 0:")).to_contain_text("waiting")
    panel = of(page, "rank panel")
    expect(panel.get_by_role("table", name="variables of")).to_be_visible()
    picture(page, f"dashboard-{theme}")
    check_access(page)
    if board.get_by_role("button", name="rank 0:").get_attribute("aria-pressed") == "false":
        board.get_by_role("button", name="rank 0:").click()
    expect(page.get_by_role("table", name="last calls of rank 0")).to_contain_text("all_reduce")

    of(page, "world").get_by_role("button", name="release").click()
    expect(board.get_by_role("button", name="rank 0:")).to_contain_text("idlelast run: ")  # as the head says, too
    expect(of(page, "world").get_by_role("status").first).to_contain_text("idle")
    expect(of(page, "world").get_by_role("status").first).to_contain_text("last run: hang")
    expect(of(page, "diagnosis").get_by_text("Last run (")).to_be_visible()
    of(page, "world").get_by_role("button", name="restart").click()  # nothing is taken from ranks that only raised
    expect(of(page, "world")).to_contain_text("No rank is dead, stopped or in a run", timeout=LONG_MS)
    runs.get_by_label("arguments").fill("--fixed")
    runs.get_by_role("button", name="run", exact=True).click()
    expect(of(page, "world").get_by_role("status").first).to_contain_text("last run: OK", timeout=LONG_MS)
    expect(card).not_to_be_visible()

    unfold(page, "Inject faults")
    faults = of(page, "faults")
    faults.get_by_label("fault", exact=True).select_option("skip")
    faults.get_by_label("call", exact=True).select_option("all_reduce")
    faults.get_by_role("button", name="inject").click()
    runs.get_by_label("or a pitfall", exact=True).select_option("bad-batch-skipped")
    expect(faults.get_by_role("list", name="armed faults")).to_contain_text("skip")
    runs.get_by_role("button", name="run fixed").click()
    expect(page.get_by_role("article").first).to_be_visible(timeout=LONG_MS)
    of(page, "world").get_by_role("button", name="release").click()
    runs.get_by_role("button", name="run fixed").click()
    expect(of(page, "world").get_by_role("status").first).to_contain_text("last run: OK", timeout=LONG_MS)
    for title in ("Hold and step", "Stacks", "Replicas", "Training curves", "Output"):
        unfold(page, title)
    expect(of(page, "training curves").get_by_role("img", name="loss, memory and use of each rank")).to_be_visible()
    expect(of(page, "replicas").get_by_text("replicas").last).to_be_visible()
    check_access(page)
    picture(page, f"parts-{theme}")


HANG = "import ddpnb\nworld = ddpnb.launch(2, quiet=True)\nworld.run('train.py', stream=None).wait()\nddpnb.show(world)"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python reports lines from 3.12 on")
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_source_with_the_ranks_that_ran_its_lines(lab, page, theme):
    side = theme == "Dark"  # once in the side panel, shown twice
    again = "ddpnb.show(world, where='right')"
    cells = [HANG.replace("ddpnb.show(world)", again), again] if side else [HANG]
    lab.open(page, lab.write("source.ipynb", *cells), theme)
    lab.run_all(page)
    card = page.get_by_role("article", name="DDP301")
    expect(card).to_be_visible(timeout=LONG_MS)
    card.get_by_role("button", name="explain").click()
    expect(card.get_by_role("group", name="page of DDP301")).to_contain_text("See also")
    check_access(page)
    picture(page, f"explained-{theme}")
    card.get_by_role("button", name="close").click()
    expect(card.get_by_role("group", name="page of DDP301")).to_have_count(0)
    card.get_by_role("button", name="show the pitfall").click()
    expect(card.get_by_text("what to look at")).to_be_visible()
    head, report = of(page, "world"), of(page, "report")
    if side:
        head, report = head.first, report.first
    head.get_by_role("button", name="copy report").click()
    expect(report.get_by_label("report", exact=True)).to_contain_text("### DDP301 collective-missing (error)")
    expect(
        report.get_by_role("status").filter(has_text="opied").or_(report.get_by_text("select the text"))
    ).to_be_visible()
    check_access(page)
    picture(page, f"report-{theme}")
    head.get_by_role("button", name="save").click()
    expect(head.get_by_text('ddpnb.load("hang')).to_be_visible()
    expect(head.get_by_role("button", name="download hang")).to_be_visible()
    head.get_by_role("button", name="export").click()
    expect(head.get_by_text("torchrun --nproc-per-node 2 repro.py")).to_be_visible()
    report.get_by_role("button", name="close").click()
    card.get_by_role("button", name="close").click()
    if side:
        expect(page.get_by_text("ddpnb: 2 ranks: in a panel (right).")).to_have_count(2, timeout=LONG_MS)
        expect(page.locator(".ddpnb-docked")).to_have_count(1)
    unfold(page, "Source")
    source = of(page, "executed lines")
    table = source.get_by_role("table", name="executed lines of train.py")
    alone = table.get_by_role("row", name="only rank 1").filter(has_text="return")
    expect(alone).to_be_visible()
    expect(alone.get_by_role("img", name="did not run")).to_have_count(1)
    assert alone.get_by_role("link").get_attribute("href").startswith("train.py#line=")
    table.scroll_into_view_if_needed()
    check_access(page)
    picture(page, f"source-{theme}")
    source.get_by_label("part of the run").select_option("-2")
    expect(source.get_by_text("ranks 0 and 1 ran the same lines")).to_be_visible()
    source.get_by_label("part of the run").select_option("run")
    expect(alone).to_be_visible()
    source.get_by_role("button", name="all lines").click()
    expect(table.get_by_role("row", name='if __name__ == "__main__"')).to_be_visible()
    check_access(page)
    picture(page, f"source-whole-{theme}")

    unfold(page, "Training curves")
    curves = of(page, "training curves")
    expect(curves.get_by_role("img", name="loss, memory and use of each rank")).to_be_visible()
    curves.get_by_role("button", name="draw again").scroll_into_view_if_needed()
    picture(page, f"curves-{theme}")
    unfold(page, "Training curves")

    panel = of(page, "rank panel")
    expect(panel.locator("option[value='model.module.weight']")).to_have_count(1)
    panel.get_by_label("expression", exact=True).fill("model.module.weight")
    panel.get_by_role("button", name="watch", exact=True).click()
    panel.get_by_role("button", name="model.module.weight", exact=True).click()
    rows = panel.get_by_role("table", name="model.module.weight on each rank")
    expect(rows.get_by_role("img", name="finite elements in 24 bins")).to_have_count(1)
    rows.scroll_into_view_if_needed()
    check_access(page)
    picture(page, f"tensor-{theme}")
    panel.get_by_label("expression", exact=True).fill("model.module.wieght(")
    panel.get_by_label("expression", exact=True).press("Enter")
    expect(panel.get_by_role("alert")).to_be_visible()
    picture(page, f"tensor-refused-{theme}")

    alone.get_by_role("link").click()
    expect(source.locator(".viewer [aria-current]")).to_contain_text("return")
    source.get_by_role("button", name="open in the editor").click()
    expect(page.locator("#jp-main-statusbar")).to_contain_text("Ln 41, Col 19")  # to its end it is selected
    expect(page.locator(".jp-FileEditor .cm-line").filter(has_text="return").first).to_be_in_viewport()


def tab_to(page: Page, name: str) -> None:
    """Go on with the tabulator until the element of this name has the focus."""
    for _ in range(150):
        page.keyboard.press("Tab")
        told = page.evaluate(
            "(() => { const one = document.activeElement; return one.closest('.ddpnb') ? "
            "(one.getAttribute('aria-label') || one.closest('label')?.firstChild.textContent || one.textContent) : '' })()"
        )
        if told and told.strip().startswith(name):
            return
    raise AssertionError(f"{name} cannot be reached by keyboard")


def test_by_keyboard_alone(lab, page):
    lab.open(page, lab.write("keys.ipynb", "import ddpnb\nddpnb.show()"))
    page.keyboard.press("Control+Enter")
    expect(of(page, "launch")).to_be_visible()
    tab_to(page, "ranks")
    page.keyboard.type("2")
    tab_to(page, "launch")
    page.keyboard.press("Enter")
    expect(of(page, "world").get_by_text("idle", exact=True)).to_be_visible(timeout=LONG_MS)
    expect(page.get_by_role("button", name="rank 1:")).to_be_visible()
    assert page.get_by_role("button", name="rank 2:").count() == 0
    tab_to(page, "rank 0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="rank 1:")).to_have_attribute("aria-pressed", "true")
    tab_to(page, "Run")
    page.keyboard.press("Enter")
    tab_to(page, "script")
    page.keyboard.type("train.py")
    tab_to(page, "run")
    page.keyboard.press("Space")
    expect(page.get_by_role("article", name="DDP301")).to_be_visible(timeout=LONG_MS)
    while page.evaluate("document.activeElement.textContent.trim()") != "release":
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="rank 0:")).to_contain_text("last run: ")
    assert page.locator(".jp-Cell").count() == 1  # none of the keys was the notebook's


def test_while_a_cell_runs(lab, page):
    """A cell that waits for the ranks blocks neither what is shown nor what is pressed."""
    name = lab.write(
        "busy.ipynb",
        "import ddpnb\nworld = ddpnb.launch(2, quiet=True)\nddpnb.show(world)",
        "import time\nrun = world.run('train.py', '--fixed', '--steps', '100000', stream=None)\ntime.sleep(300)",
    )
    lab.open(page, name)
    lab.run_all(page)
    head = of(page, "world")
    expect(head.get_by_text("running")).to_be_visible(timeout=LONG_MS)
    steady = boxes(head)
    assert len(steady) == 11
    head.get_by_role("button", name="hold").click()
    # Not both may be: a rank that was in a call already waits there for the other.
    expect(of(page, "rank board").get_by_role("button", name="rank").filter(has_text="held").first).to_be_visible()
    assert boxes(head) == steady
    head.get_by_role("button", name="step 1").click()
    assert boxes(head) == steady
    head.get_by_role("button", name="release").click()
    expect(head.get_by_role("status").first).to_contain_text("last run: released")
    expect(head.get_by_role("status").last).to_contain_text("released")  # what it did, beside the button
    assert boxes(head) == steady


AFTER_A_RELEASE = """
import time, ddpnb

def hang():
    import torch, torch.distributed as dist
    dist.recv(torch.ones(4), src=1 - dist.get_rank())

def train():
    import torch, torch.distributed as dist
    rank, tensor, other = dist.get_rank(), torch.ones(4), dist.new_group()
    time.sleep(1.5)  # so that a page has been given the run before these calls
    if rank == 0:
        works = [dist.broadcast(tensor.clone(), 1, async_op=True) for _ in range(3)]
    time.sleep(1.5 * rank)  # and these calls before any that all make
    for _ in range(20):
        time.sleep(0.2 * rank)
        dist.all_reduce(tensor, group=other)

world = ddpnb.launch(2, quiet=True)
world.init().run()
ddpnb.show(world)
"""
RUNS = """
world.run(hang, stream=None).wait()
world.release()
time.sleep(1)
world.rebuild()
run = world.run(train, stream=None).wait()
"""


def test_the_time_line_shows_what_comes_after_a_release(lab, page):
    """In the run after it rank 0 issues broadcasts that rank 1 never makes, then both go on in another group."""
    lab.open(page, lab.write("again.ipynb", AFTER_A_RELEASE, RUNS, "print('both', 'runs are over')"))
    lab.run_all(page)
    line = of(page, "time line")
    follow = line.get_by_role("button", name="follow")
    expect(follow).to_have_attribute("aria-pressed", "true", timeout=LONG_MS)
    expect(page.get_by_text("both runs are over")).to_be_visible(timeout=LONG_MS)
    expect(follow).to_have_attribute("aria-pressed", "false")  # all calls of the run are there
    canvas, said = line.locator("canvas"), line.get_by_role("status").last
    chosen = line.get_by_role("region", name="what was chosen")  # beside the lanes
    canvas.focus()
    for rank in range(2):
        page.keyboard.press("End")
        expect(said).to_contain_text(f"rank {rank}: all_reduce #")
        expect(chosen).to_contain_text("all_reduce")
        page.keyboard.press("ArrowDown")
    line.get_by_role("button", name="show all").click()
    canvas.focus()
    page.keyboard.press("Home")
    for _ in range(20):  # the calls of the start-up
        if "recv from 0" in said.inner_text():
            break
        page.keyboard.press("ArrowRight")
    expect(said).to_contain_text("rank 1: recv from 0")  # the run before is there, too
    page.keyboard.press("Enter")
    expect(chosen).to_contain_text("recv from 0")
    picture(page, "after-a-release")
