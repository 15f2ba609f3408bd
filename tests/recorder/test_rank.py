"""A rank as a process: what its forks may not do."""

from __future__ import annotations

import json

import pytest

FORKS = """
import gc, os, sys
from ddpnb.recorder.rank import Rank

class Garbage:
    def __del__(self):
        os.write(1, b"collected by " + (b"the child" if os.getpid() != parent else b"the parent"))

parent = os.getpid()
rank = Rank(sys.argv[1], 0)
gc.disable()
one = Garbage()
one.itself = one
del one
if os.fork() == 0:
    gc.collect()
    os._exit(0)
os.wait()
gc.collect()
os._exit(0)
"""


@pytest.mark.full
def test_a_forked_child_does_not_collect_what_its_parent_has_left(tmp_path, forked):
    """A model of an earlier run: its group would wait for threads which the child does not have."""
    done = forked.run(FORKS, tmp_path)
    assert (done.returncode, done.stdout) == (0, "collected by the parent"), done.stderr


RUNS = """
import gc, os, sys
from ddpnb.recorder.rank import Rank
folder, script = sys.argv[1:]
order = {"run": 1, "fence": "off", "log": f"{folder}/log", "directory": folder, "environment": {}, "holds": [], "unhurried": False,
         "faults": [], "outcome": f"{folder}/outcome.json", "script": script, "arguments": []}
Rank(folder, 0).run(order, None)
gc.collect()
os._exit(0)
"""
INTERRUPTED = """
import os, signal, sys, threading, time

def interrupt():
    frame = None
    while frame is None or frame.f_code.co_name != "_own_atexit":
        frame = frame.f_back if frame else sys._current_frames()[threading.main_thread().ident]
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)

threading.Thread(target=interrupt).start()
sys.exit(3)
"""


LEAVES_GARBAGE = """
import os, sys, time, types

OUTCOME, ORDER = os.path.abspath("outcome.json"), os.path.abspath("order")

class Loader:
    def __init__(self):
        self.me = self

    def __del__(self):
        deadline = time.monotonic() + 240
        while not os.path.exists(OUTCOME) and time.monotonic() < deadline:
            time.sleep(0.01)
        with open(ORDER, "w") as file:
            file.write("ending first" if os.path.exists(OUTCOME) else "finalizer first")

for number in range(5000):  # to list them is enough for a collection
    sys.modules[f"library{number}"] = types.ModuleType("library")
Loader()
"""


def run_script(forked, folder, text):
    """Run this script as an engine does, in a process of its own; how it ended."""
    (folder / "train.py").write_text(text)
    done = forked.run(RUNS, folder, "train.py")
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "outcome.json").read_text())


def test_the_ending_is_written_before_garbage_of_the_script_is_collected(tmp_path, forked):
    """The finalizer of a data loader waits for its workers, for seconds: the rank would look blocked."""
    assert run_script(forked, tmp_path, LEAVES_GARBAGE)["how"] == "finished"
    assert (tmp_path / "order").read_text() == "ending first"


def test_ctrl_c_while_threads_of_a_script_are_joined_does_not_lose_its_ending(tmp_path, forked):
    ending = run_script(forked, tmp_path, INTERRUPTED)
    assert (ending["how"], ending["code"]) == ("exited", 3)
