"""How soon the board shows what a rank does, and what being watched costs the ranks: ``python -m benchmarks.board``.

JupyterLab and Chromium as a user has them, four ranks, the dashboard of a live world. A rank notes the wall clock
before it goes into a collective that the others come to late; the page notes when its tile says so. Then the same
training is run without a dashboard, with one in sight, and with one in a tab behind another, in turns.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.binder import lab
from benchmarks.face import FLAGS

RANKS, CHANGES, TURNS, STEPS = 4, 20, 8, 300
MODES = ("alone", "in sight", "hidden")
LAUNCH = f"""
import ddpnb
world = ddpnb.launch({RANKS}, quiet=True)
dashboard = ddpnb.show(world)
place = display(dashboard, display_id=True)
"""
WAITS = f"""
def waits(path):
    import time
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    for _ in range({CHANGES}):
        if dist.get_rank():
            time.sleep(1.5)
        else:
            with open(path, "a") as file:
                print(time.time(), file=file)
        dist.all_reduce(torch.ones(4))
        dist.barrier()
        end = time.perf_counter() + 0.6  # computing, on all ranks
        while time.perf_counter() < end:
            pass
print(world.run(waits, PATH, stream=None).wait().outcome)
"""
TRAIN = f"""
import time

def train():
    import time
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.ones(64, 256)
    for step in range({STEPS} + 50):
        if step == 50:
            began = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return (time.perf_counter() - began) / {STEPS}

import json, os, psutil

def cpu(names):
    found = 0.0
    for process in psutil.process_iter(["name", "cpu_times"]):
        if (process.pid == os.getpid()) if names is None else names in process.info["name"]:
            found += sum(process.info["cpu_times"][:2])
    return found

times, kernel, browser = [{{name: [] for name in {MODES}}} for _ in range(3)]
for mode in {[mode for turn in range(TURNS) for mode in MODES[:: 1 if turn % 2 else -1]]}:
    board = ddpnb.show(world) if mode != "alone" else None
    place.update(board if board is not None else "no dashboard")
    with open(TURN, "w") as file:
        print(mode, end="", file=file)
    while os.path.exists(TURN):  # until the page shows it, or hides it
        time.sleep(0.05)
    began, before = time.perf_counter(), [cpu(None), cpu("chrom")]
    times[mode].append(max(world.run(train, stream=None).wait().results))
    seconds = time.perf_counter() - began
    kernel[mode].append((cpu(None) - before[0]) / seconds)
    browser[mode].append((cpu("chrom") - before[1]) / seconds)
    if board is not None:
        board.stop()
print("TIMES", json.dumps([times, kernel, browser]))
"""
# When the tile of rank 0 begins to say that it waits.
SEEN = """() => {
  window.seen = [];
  let before = false;
  new MutationObserver(() => {
    const tile = document.querySelector('.ddpnb [data-key=rank0] .state');
    const now = !!tile && tile.textContent.includes('waiting');
    if (now && !before) requestAnimationFrame(() => window.seen.push(Date.now()));
    before = now;
  }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
}"""


def notebook(cells: list[str]) -> str:
    made = [{"cell_type": "code", "id": f"cell{n}", "metadata": {}, "execution_count": None, "outputs": [], "source": text} for n, text in enumerate(cells)]  # fmt: skip
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return json.dumps({"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        work = Path(folder) / "binder"
        shutil.copytree(Path(__file__).parents[1] / "binder", work)
        noted, turn = Path(folder) / "noted", Path(folder) / "turn"
        (work.parent / "board.ipynb").write_text(
            notebook(
                [
                    LAUNCH,
                    WAITS.replace("PATH", repr(str(noted))),
                    "dashboard.stop()" + TRAIN.replace("TURN", repr(str(turn))),
                ]
            )
        )
        with lab(work.parent) as server:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            page = browser.new_page(viewport={"width": 1250, "height": 2000})
            page.goto(f"http://127.0.0.1:{server.port}/lab/tree/board.ipynb?reset")
            page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=90_000)
            page.get_by_role("button", name="New Launcher").last.click()
            page.get_by_role("tab", name="board.ipynb").click()
            page.evaluate(SEEN)
            page.locator(".jp-Cell").first.click()
            for _ in range(3):
                page.get_by_role("button", name="Run this cell and advance").click()
            for _ in range(len(MODES) * TURNS):
                take_turn(page, turn)
            result = page.locator(".jp-OutputArea-output", has_text="TIMES")
            result.wait_for(state="attached", timeout=600_000)
            times, of_kernel, of_browser = json.loads(result.last.text_content().partition("TIMES")[2])
            seen = page.evaluate("window.seen")
            browser.close()
        told = [float(line) * 1e3 for line in noted.read_text().split()]
    nexts = [*told[1:], float("inf")]
    late = [
        at - when
        for when, end in zip(told, nexts, strict=True)
        for at in [min((one for one in seen if when <= one < end), default=None)]
        if at
    ]
    unseen = len(told) - len(late)
    print(
        f"{RANKS} ranks: a change is on the board after {statistics.median(late):.0f} ms (median of {len(late)}), at most {max(late):.0f} ms"
    )
    print(
        f"  {unseen} of {len(told)} were not told apart from the wait before: what a rank did in between was not shown"
    )
    for mode in MODES:
        step, kernel, pages = (statistics.median(one[mode]) for one in (times, of_kernel, of_browser))
        print(
            f"dashboard {mode:9}: a step takes {step * 1e3:.2f} ms, x{step / statistics.median(times['alone']):.3f}; "
            f"the kernel uses {kernel:.2%} of a core, the browser {pages:.2%}"
        )
    print(f"  (medians of {TURNS})")


def take_turn(page: Page, turn: Path) -> None:
    """Show the notebook, or another tab, as the kernel asks; it waits for that."""
    deadline = time.monotonic() + 300
    while not turn.exists() or not turn.read_text():
        if time.monotonic() > deadline:
            raise TimeoutError("the kernel did not begin its next turn")
        page.wait_for_timeout(50)
    page.get_by_role("tab", name="Launcher" if turn.read_text() == "hidden" else "board.ipynb").click()
    page.wait_for_timeout(1000)
    turn.unlink()


if __name__ == "__main__":
    main()
