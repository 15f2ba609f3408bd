"""Whether a signal came to one process, or to all of its group."""

from __future__ import annotations

import json
import subprocess
import sys

_CODE = """
import json, os, signal
from ddpnb.ranks.jobs.group_witness import GroupWitness, is_in_group
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: None)
witness = GroupWitness()
found = []
for send, to in ((os.kill, os.getpid()), (os.killpg, os.getpgrp()), (os.kill, os.getpid()), (os.killpg, os.getpgrp())):
    send(to, signal.SIGTERM)
    found.append(witness.came_to_all(signal.SIGTERM))
found.append(witness.came_to_all(signal.SIGINT))
pid = witness._process.pid
witness.close()
witness.close()
print(json.dumps([found, is_in_group(os.getpid()), is_in_group(os.getppid()), os.path.exists(f"/proc/{pid}")]))
"""


def test_each_signal_is_told_apart():
    done = subprocess.run(
        [sys.executable, "-c", _CODE],
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
        check=True,
        start_new_session=True,
    )
    assert json.loads(done.stdout) == [[False, True, False, True, False], True, False, False]


def test_without_one_a_signal_is_passed_on():
    code = """
import os
os.environ["PATH"] = "/nowhere"
from ddpnb.ranks.jobs.group_witness import GroupWitness
witness = GroupWitness()
print(witness.came_to_all(15))
witness.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == "False\n"
