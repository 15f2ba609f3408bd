"""The magics in a real kernel, on real ranks: one kernel and one world for all of these tests."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field

import pytest
from jupyter_client.manager import KernelManager

from ddpnb.recording.protocol import FORK
from tests.conftest import alive

pytestmark = [pytest.mark.world, pytest.mark.filterwarnings("ignore")]


@dataclass
class Shown:
    """What a cell has shown in the end, and all that its displays have been on the way."""

    status: str = ""
    error: str = ""
    stream: str = ""
    displays: list[dict[str, str]] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join([self.stream, *(one.get("text/plain", "") for one in self.displays)])

    @property
    def html(self) -> str:
        return "".join(one.get("text/html", "") for one in self.displays)


class Notebook:
    """Runs cells in a kernel, and keeps displays up to date as a front end does."""

    def __init__(self, manager, client):
        self.manager = manager
        self.client = client
        self.by_id: dict[str, dict[str, str]] = {}
        self.cells = {}  # request -> takes what is shown below that cell

    def run(self, code, interrupt_at=None):
        shown = Shown()

        def take(message):
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                shown.stream += content["text"]
            elif kind == "error":
                shown.error = "\n".join(content["traceback"])
            elif kind in ("display_data", "execute_result", "update_display_data"):
                name = content.get("transient", {}).get("display_id", "")
                shown.history.append(content["data"].get("text/plain", ""))
                if kind == "update_display_data":
                    there = self.by_id.setdefault(name, {})
                    there.clear()
                    there.update(content["data"])
                else:
                    shown.displays.append(dict(content["data"]))
                    self.by_id[name] = shown.displays[-1]
                if interrupt_at is not None and interrupt_at in shown.history[-1]:
                    self.manager.interrupt_kernel()

        request = self.client.execute(code, allow_stdin=False, stop_on_error=False)
        self.cells[request] = take
        while True:
            message = self.client.get_iopub_msg(timeout=90)
            parent = message["parent_header"].get("msg_id")
            self.cells.get(parent, lambda _: None)(message)  # a thread writes below the cell that started it
            if parent == request and message["content"].get("execution_state") == "idle":
                break
        shown.status = self.client._recv_reply(request, timeout=90)["content"]["status"]
        return shown

    def ok(self, code):
        shown = self.run(code)
        assert shown.status == "ok", shown.error
        return shown

    def until(self, condition):
        """Run cells until it is so: what a thread of the kernel shows arrives with those of a cell."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            self.ok("import time; time.sleep(0.1)")


@pytest.fixture(scope="module")
def kernel():
    manager = KernelManager()
    manager.start_kernel(env={**os.environ, "OMP_NUM_THREADS": "1", "DDP_BACKEND": "gloo", FORK: "training"})
    client = manager.client()
    client.start_channels()
    pids = []
    try:
        client.wait_for_ready(timeout=60)
        notebook = Notebook(manager, client)
        notebook.ok("import ddpnb")
        refused = notebook.run("%ddp_status")
        assert "no World is running" in refused.error and "%ddp_launch 4" in refused.error
        launched = notebook.ok("%ddp_launch 3 --patience 30 --timeout 240")
        assert "World of 3 ranks" in launched.text
        told = notebook.ok("print(*world.pids())")
        pids = [int(one) for one in told.stream.split("\n")[-2].split()]
        yield notebook
        notebook.ok("%ddp_release")
        notebook.ok("%%ddp --no-wait\nwhile True:\n    pass")
        closed = notebook.ok("import time; time.sleep(0.5)\n%ddp_close\ntime.sleep(0.6)")
        assert not closed.stream, closed.stream  # whoever followed the cell ends with it, and quietly
        assert "no World" in notebook.run("%ddp_why").error
        assert "%px` not found" in notebook.run("%px 1").text
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
        manager.cleanup_resources()
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, pids))


@pytest.fixture
def notebook(kernel):
    """Ranks that are free, with a fresh process group."""
    kernel.ok("%ddp_heal")
    kernel.ok("%ddp_release --rebuild")
    kernel.ok(
        "%%ddp\nimport os, time, torch, torch.distributed as dist\nrank = dist.get_rank()\n"
        "def sums(n):\n    for step in range(n):\n        dist.all_reduce(torch.ones(1))\n    return n"
    )
    return kernel


HANG = "%%ddp\nif rank != 1:\n    dist.all_reduce(torch.ones(1))"


def test_equal_output_is_folded_and_different_output_is_not(notebook):
    shown = notebook.ok("%%ddp\nx = torch.ones(1)\ndist.all_reduce(x)\nx")
    assert shown.text.strip() == "ranks 0, 1 and 2:\ntensor([3.])"
    shown = notebook.ok("%%ddp --ranks 0,2\nprint('<b>', 'odd' if rank else 'even')")
    assert shown.text.strip() == "rank 0:\n<b> even\nrank 2:\n<b> odd"
    assert "&lt;b&gt; odd" in shown.html and "<b>" not in shown.html
    assert notebook.ok("%%ddp\ny = 1").text.strip() == ""
    assert "<Run" in notebook.ok("_ddp").text


@pytest.mark.full
def test_a_function_of_the_notebook_sees_what_cells_have_made_and_leaves_its_own(notebook):
    notebook.ok("%%ddp\nmodel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\ncount = 10")
    notebook.ok("import torch, torch.distributed as dist\nrate = 0.5")
    notebook.ok(
        "def train_step():\n    global count\n    count += 1\n    model(torch.ones(1, 2)).sum().backward()\n"
        "    return count * rate, dist.get_world_size(), rank"
    )
    run = "world.run(train_step, stream=None).wait(60).results"
    assert notebook.ok(run).text.strip() == "[(5.5, 3, 0), (5.5, 3, 1), (5.5, 3, 2)]"
    assert notebook.ok(run).text.strip() == "[(6.0, 3, 0), (6.0, 3, 1), (6.0, 3, 2)]"
    assert notebook.ok("%%ddp\ncount, rate").text.strip() == "ranks 0, 1 and 2:\n(12, 0.5)"


@pytest.mark.full
def test_a_cell_displays_as_in_a_notebook(notebook):
    shown = notebook.ok(
        "%%ddp\nimport matplotlib.pyplot as plt\nfrom IPython.display import HTML, Markdown\nprint('a')\n"
        "bar = display(HTML('<i>0</i>'), display_id=True)\nfor step in range(3):\n    bar.update(HTML(f'<i>{step}</i>'))\n"
        "display(Markdown(f'**{rank % 2}**'))\nplt.plot([1, 2])\nplt.show()\nprint('b')\nHTML('<b>last</b>')"
    )
    outputs = [one for one in shown.displays if one["text/plain"]]
    told = [one.get("text/markdown") or ("image/png" in one and "figure") or one["text/html"] for one in outputs]
    told = [one["text/plain"] if "ddpnb-cell" in text else text for one, text in zip(outputs, told, strict=True)]
    assert told == [
        "ranks 0, 1 and 2:\na", "<i>2</i>", "ranks 0 and 2:", "**0**", "rank 1:", "**1**", "ranks 0, 1 and 2:", "figure",
        "b", "<b>last</b>",
    ]  # fmt: skip
    bars = notebook.ok("%%ddp\nfrom tqdm.auto import tqdm\nfor _ in tqdm(range(9)): time.sleep(0.05)")
    assert bars.text.strip().startswith("ranks 0, 1 and 2 (times of rank 0):\n100%|") and "\n" not in bars.text[50:]
    bars = notebook.ok("%%ddp\nfrom rich.progress import track\nfor _ in track(range(9)): time.sleep(0.1)")
    assert "100%" in bars.text and any(" 100%" not in one for one in bars.history)  # it was drawn as it went
    asked = notebook.run("%%ddp\ninput('name? ')")
    assert "EOFError: input() cannot be answered: ranks have no keyboard" in asked.text


def test_what_was_displayed_before_a_hang_is_there(notebook):
    shown = notebook.run("%%ddp\nfrom IPython.display import HTML\ndisplay(HTML('<b>step 3</b>'))\n" + HANG[6:])
    assert "<b>step 3</b>" in [one["text/html"] for one in shown.displays]
    assert "DDP301" in shown.text


@pytest.mark.full
def test_ten_thousand_lines_are_kept_and_more_say_where_they_are(notebook):
    shown = notebook.ok("%%ddp\nfor line in range(10_000):\n    print('line', line)")
    assert "line 0\nline 1\n" in shown.html and "line 9999" in shown.html and "not shown" not in shown.html
    shown = notebook.ok("%%ddp\nfor line in range(300_000):\n    print('line', line)")
    path = shown.html.partition("full output: ")[2].partition("]")[0]
    notebook.ok("%%ddp\n1")  # the next run does not remove it
    notebook.ok("import gc; gc.collect()")
    with open(path) as file:
        assert sum(1 for _ in file) == 300_000


def test_a_cell_on_some_ranks(notebook):
    notebook.ok("%%ddp\nz = rank")
    shown = notebook.ok("%%ddp_rank 1-2\nz += 10\nz")
    assert shown.text.strip() == "rank 1:\n11\nrank 2:\n12"
    assert notebook.ok("%%ddp_rank 0\nz").text.strip() == "rank 0:\n0"


@pytest.mark.full
def test_a_long_cell_shows_what_has_come(notebook):
    shown = notebook.ok("%%ddp\nfor i in range(6):\n    print(i, flush=True)\n    time.sleep(0.3)")
    assert len(shown.displays) == 1 and 3 < len(shown.history) < 12
    assert shown.text.strip() == "ranks 0, 1 and 2:\n0\n1\n2\n3\n4\n5"


def test_an_exception_stops_the_notebook(notebook):
    shown = notebook.run("%%ddp\nprint('before')\nif rank > 0:\n    raise ValueError('not <here>')")
    assert shown.status == "error" and shown.error.startswith("CellFailed: crash: Ranks 1 and 2 raised ValueError")
    assert "ranks 0, 1 and 2:\nbefore\n" in shown.text
    assert (
        shown.text.count("Traceback (most recent call last)") == 1 and "ranks 1 and 2 raised ValueError:" in shown.text
    )
    assert "DDP312" in shown.html and "<here>" not in shown.html
    assert "following.py" not in shown.text + shown.error
    assert notebook.run("%%ddp --keep-going\n1 / 0").status == "ok"


def test_a_hang_is_named_and_released(notebook):
    pids = notebook.ok("world.pids()").text
    shown = notebook.run(HANG)
    assert shown.status == "error" and shown.error.startswith("CellFailed: hang: Rank 1 never calls")
    assert "DDP301" in shown.text and "%ddp_release" in shown.text
    assert "waits in all_reduce" in notebook.ok("%ddp_status").text
    assert "DDP301" in notebook.ok("%ddp_why").text
    assert "rank" in notebook.ok("%ddp_diff").text
    assert "still in run" in notebook.run("%%ddp\n1").error
    told = notebook.ok("%ddp_release --rebuild").text
    assert "Ranks 0 and 2 are released" in told and "created again on ranks 0, 1 and 2 (gloo)" in told
    assert notebook.ok("%%ddp\nsums(2)").text.strip() == "ranks 0, 1 and 2:\n2"
    assert notebook.ok("world.pids()").text == pids


def test_what_is_found_names_the_cell_and_the_line_that_the_notebook_shows(notebook):
    """A function of a notebook is in no file: the ranks get its lines all the same."""
    defined = notebook.ok("def alone(n):\n    if rank_of() != 1:\n        reduce(n)\n\nprint(len(In) - 1)")
    cell = f"In[{defined.stream.strip()}]"
    notebook.ok(
        "def rank_of():\n    import torch.distributed as dist\n    return dist.get_rank()\n"
        "def reduce(n):\n    import torch, torch.distributed as dist\n    dist.all_reduce(torch.ones(n))"
    )
    notebook.ok("run = world.run(alone, 3, stream=None).wait(30)")
    told = notebook.ok("run.diagnosis").text
    recorded = sys.version_info >= (3, 12)  # which lines ran; else only the source tells
    decided = (
        "Ranks part at a decision: {}:2 in alone" if recorded else "Possible cause: {}:2: `if rank_of() != 1` decides"
    )
    assert decided.format(cell) in " ".join(told.split()), told
    notebook.ok("%ddp_release --rebuild")
    shown = notebook.run("%%ddp\nif rank == 1:\n    raise ValueError('here')\nsums(1)")
    count = notebook.ok("print(len(In) - 2)").stream.strip()
    assert f"In[{count}]:3" in shown.text and "ipykernel" not in told + shown.text, shown.text


@pytest.mark.full
def test_an_interrupt_releases_the_ranks(notebook):
    shown = notebook.run(
        "%%ddp\nprint('begun', flush=True)\nif rank == 0:\n    dist.all_reduce(torch.ones(1))\nwhile True:\n    rank * 1.0",
        interrupt_at="waits in all_reduce",
    )
    assert shown.status == "error" and "Interrupted: Ranks 0, 1 and 2 are released" in shown.error
    assert "After 3 s: " in "\n".join(shown.history) and "begun" in shown.text
    again = notebook.ok("%%ddp_rank 0,1,2\nsums(7)").text
    assert "The process group was created again" in again and "ranks 0, 1 and 2:\n7" in again
    slept = notebook.run("%%ddp\ntime.sleep(60)", interrupt_at="After 3 s")
    assert slept.status == "error" and "the process group can be used as before" in slept.error
    notebook.ok("%%ddp\ndef doubled(x):\n    return 2 * x")
    notebook.ok("%ddp_hold doubled() --ranks 1")
    held = notebook.run(
        "%%ddp\ndoubled(1)\nwhile rank != 1:\n    rank * 1.0", interrupt_at="rank 1: held before the line"
    )
    assert held.status == "error" and "Interrupted: Ranks 0, 1 and 2 are released" in held.error
    assert notebook.ok("%%ddp\nsums(7)").text.strip() == "ranks 0, 1 and 2:\n7"


def test_px_means_the_same_ranks_in_their_order(notebook):
    notebook.ok("%%px\nimport os\nmine = os.getpid(), rank")
    shown = notebook.ok(
        "view = get_ipython().magics_manager.magics['line']['px'].__self__.view\n"
        "print([(pid, n) for n, pid in enumerate(world.pids())] == view['mine'], len(view))"
    )
    assert "True 3" in shown.stream
    assert notebook.ok("%%ddp\nmine[1] == rank").text.strip() == "ranks 0, 1 and 2:\nTrue"


def test_hold_step_and_resume(notebook):
    assert "all_reduce #4 when step" in notebook.ok("%ddp_hold all_reduce #4 --when 'step >= 0'").text
    shown = notebook.ok("%%ddp\nsums(9)")
    assert "ranks 0, 1 and 2: held before all_reduce #4" in shown.text and "%ddp_step" in shown.text
    assert "≠" not in notebook.ok("%ddp_diff").text
    assert notebook.ok("%ddp_step 2").text.count("held before all_reduce #6") == 3
    assert "waits in all_reduce #6" in notebook.ok("%ddp_step --ranks 1").text
    assert "finished" in notebook.ok("%ddp_resume\n").text
    notebook.until(lambda: shown.text.strip() == "ranks 0, 1 and 2:\n9")


def test_a_cell_that_is_not_waited_for(notebook):
    shown = notebook.ok("%%ddp --no-wait\nfor i in range(4):\n    print(i, flush=True)\n    time.sleep(0.3)")
    assert not shown.displays
    assert "no problems found so far" in notebook.ok("%ddp_why").text
    notebook.until(lambda: "ranks 0, 1 and 2:\n0\n1\n2\n3" in shown.history)  # below the cell that started it


@pytest.mark.full
def test_inject_and_heal(notebook):
    table = notebook.ok("%ddp_inject")
    assert "other shape" in table.text and "<table" in table.html
    assert "expected finding DDP303" in notebook.ok("%ddp_inject other shape op=all_reduce --ranks 1").text
    shown = notebook.run("%%ddp\nsums(3)")
    assert shown.status == "error" and "DDP303" in shown.text
    notebook.ok("%ddp_release --rebuild")
    notebook.ok("%ddp_inject raise message='on purpose' --ranks 2 --keep")
    assert "InjectedFault" in notebook.run("%%ddp\nsums(1)").text
    notebook.ok("%ddp_heal")
    notebook.ok("%ddp_release --rebuild")
    assert notebook.ok("%%ddp\nsums(3)").text.strip() == "ranks 0, 1 and 2:\n3"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("%ddp_hold allreduce", "Did you mean 'all_reduce'"),
        ("%ddp_hold #1 --seq 2", "give the sequence number once"),
        ("%ddp_inject skipp", "Did you mean 'skip'"),
        ("%ddp_inject delay hours=2", "It takes: seconds"),
        ("%ddp_step", "not held"),
        ("%ddp_step 0 --ranks 1", "at least 1 collective"),
        ("%ddp_resume --ranks 7", "no rank 7"),
        ("%ddp_restart 9", "no rank 9"),
        ("%%ddp --ranks 0,x\n1", "is not a list of ranks"),
        ("%%ddp\na b", "invalid Python syntax"),
        ("%%ddp_rank\n1", "required: RANKS"),
        ("%ddp_launch --fence no", "choose from"),
    ],
)
def test_wrong_use_says_what_to_do(kernel, wrong, told):
    shown = kernel.run(wrong)
    assert shown.status == "error" and told in shown.error, shown.error
    assert 'File "' not in shown.error and len(shown.error.splitlines()) <= 3


@pytest.mark.full
def test_a_rank_that_died_is_replaced(notebook):
    shown = notebook.run("%%ddp --keep-going\nif rank == 2:\n    os.kill(os.getpid(), 9)\nsums(1)")
    assert shown.status == "ok" and "DDP311" in shown.text
    assert "rank 2 is dead" in notebook.run("%ddp_hold --ranks 2").error
    notebook.ok("%ddp_release")
    told = notebook.ok("%ddp_restart").text
    assert "Rank 2 has a new process" in told and "Ranks 0 and 1 keep" in told
    assert (
        "ranks 0, 1 and 2:"
        in notebook.ok("%%ddp\nimport torch, torch.distributed as dist\ndist.all_reduce(torch.ones(1))\n7").text
    )
    shown = notebook.ok("%px 1 + 1")  # not of the engine that is gone
    assert shown.text.count("2") >= 3 and not shown.error


def test_what_stands_behind_a_magic_is_completed(kernel):
    for line, word in (("%ddp_hold all_re", "all_reduce"), ("%ddp_inject other_sh", "other_shape")):
        assert word in kernel.client.complete(line, reply=True, timeout=30)["content"]["matches"]


@pytest.mark.full
def test_variables_of_the_ranks_are_completed_where_one_is_stopped(notebook, kernel):
    notebook.ok("%%ddp\nimport argparse\nonly_on_ranks = argparse.Namespace(learning_rate=1)")

    def completed(cell):
        return kernel.client.complete(cell, reply=True, timeout=30)["content"]["matches"]

    assert "only_on_ranks" in completed("%%ddp\nprint(only_on")
    assert "only_on_ranks.learning_rate" in completed("%%ddp\nonly_on_ranks.lear")
    assert not [one for one in completed("only_on") if "only_on_ranks" in one]  # a cell of the notebook itself
    pid = int(notebook.ok("print(world._ranks.processes.pid(1))").stream)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert "only_on_ranks" in completed("%%ddp\nprint(only_on")  # by the others: this one cannot answer
    finally:
        os.kill(pid, signal.SIGCONT)
