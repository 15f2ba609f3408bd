"""How soon the board shows what a rank does, and what being watched costs the ranks: ``python -m benchmarks.board``.

JupyterLab and Chromium as a user has them, four ranks, the dashboard of a live world. A rank notes the wall clock
before it goes into a collective that the others come to late; the page notes when its tile says so. Then the same
training is run without a dashboard, with one in sight, and with one in a tab behind another, in turns.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.binder import lab
from benchmarks.face import FLAGS
from benchmarks.rows import Goal, Row
from benchmarks.show import alone

RANKS, CHANGES, TURNS, STEPS = 4, 20, 4, 300
MODES = ("alone", "in sight", "hidden")
LAUNCH = """
import ddpnb
world = ddpnb.launch({ranks}, quiet=True)
dashboard = ddpnb.show(world)
place = display(dashboard, display_id=True)
"""
WAITS = """
def waits(path):
    import time
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    for _ in range(CHANGES):
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
TRAIN = """
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
    for step in range(STEPS + 50):
        if step == 50:
            began = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return (time.perf_counter() - began) / STEPS

import json, os, psutil

def cpu(names):
    found = 0.0
    for process in psutil.process_iter(["name", "cpu_times"]):
        if (process.pid == os.getpid()) if names is None else names in process.info["name"]:
            found += sum(process.info["cpu_times"][:2])
    return found

times, kernel, browser = [{name: [] for name in MODES} for _ in range(3)]
for mode in ORDER:
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


def board(quick: bool = False) -> Iterator[Row]:
    """the board of a live world in JupyterLab"""
    ranks, changes, turns, steps = (2, 2, 1, 20) if quick else (RANKS, CHANGES, TURNS, STEPS)
    order = [mode for turn in range(turns) for mode in MODES[:: 1 if turn % 2 else -1]]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        work = Path(folder) / "binder"
        shutil.copytree(Path(__file__).parents[1] / "binder", work)
        noted, turn = Path(folder) / "noted", Path(folder) / "turn"
        values = {
            "CHANGES": changes,
            "STEPS": steps,
            "MODES": MODES,
            "ORDER": order,
            "PATH": str(noted),
            "TURN": str(turn),
        }
        written = [LAUNCH.replace("{ranks}", str(ranks)), WAITS, "dashboard.stop()" + TRAIN]
        for name, value in values.items():
            written = [re.sub(rf"\b{name}\b", lambda _, value=value: repr(value), cell) for cell in written]
        (work.parent / "board.ipynb").write_text(notebook(written))
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
            for _ in order:
                take_turn(page, turn)
            result = page.locator(".jp-OutputArea-output", has_text="TIMES")
            result.wait_for(state="attached", timeout=600_000)
            times, of_kernel, of_browser = json.loads(result.last.text_content().partition("TIMES")[2])
            seen = page.evaluate("window.seen")
            browser.close()
        reported = [float(line) * 1e3 for line in noted.read_text().split()]
    late = [
        (at - when) / 1e3
        for when, end in zip(reported, [*reported[1:], float("inf")], strict=True)
        for at in [min((one for one in seen if when <= one < end), default=None)]
        if at
    ]
    note = f"{len(reported) - len(late)} of {len(reported)} not told apart from the wait before; at most {max(late, default=0) * 1e3:.0f} ms"
    what = f"from a change on a rank to the board, {ranks} ranks"
    yield Row("board", what, tuple(late), goal=Goal(0.3, "median"), note=note)
    for mode, goal in (("in sight", 1.01), ("hidden", 1.0)):
        kernel, pages = (
            statistics.median(one[mode]) - statistics.median(one["alone"]) for one in (of_kernel, of_browser)
        )
        note = f"the kernel uses {kernel:.1%} of a core more, the browser {pages:.1%}"
        yield Row(
            "board", f"a step with the dashboard {mode}, {ranks} ranks", tuple(times[mode]), peer="no dashboard",
            theirs=tuple(times["alone"]), goal=Goal(goal) if mode == "in sight" else None, note=note,
        )  # fmt: skip


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
    alone("board", board)
