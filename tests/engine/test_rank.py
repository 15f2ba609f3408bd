"""A rank as a process: what its forks may not do."""

from __future__ import annotations

import subprocess
import sys

FORKS = """
import gc, os, sys
from ddpnb.engine.rank import Rank

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
