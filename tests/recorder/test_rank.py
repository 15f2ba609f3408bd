"""A rank as a process: what its forks may not do."""

from __future__ import annotations

import json
import subprocess
import sys

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


def test_a_forked_child_does_not_collect_what_its_parent_has_left(tmp_path):
    """A model of an earlier run: its group would wait for threads which the child does not have."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "collected by the parent"), done.stderr


RUNS = """
import os, sys
from ddpnb.recorder.rank import Rank
folder, script = sys.argv[1:]
order = {"run": 1, "fence": "off", "log": f"{folder}/log", "directory": folder, "environment": {}, "holds": [],
         "faults": [], "outcome": f"{folder}/outcome.json", "script": script, "arguments": []}
Rank(folder, 0).run(order, None)
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


def test_ctrl_c_while_threads_of_a_script_are_joined_does_not_lose_its_ending(tmp_path):
    (tmp_path / "train.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, "-c", RUNS, str(tmp_path), "train.py"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ending = json.loads((tmp_path / "outcome.json").read_text())
    assert (ending["how"], ending["code"]) == ("exited", 3)
