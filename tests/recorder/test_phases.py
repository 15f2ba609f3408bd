"""Stores that a script makes itself, in a process of its own: torch's class is the real one."""

from __future__ import annotations

import json

SCRIPT = """
import json, os, sys, tempfile
import torch.distributed as dist
from ddpnb.model.blackbox import BoxReader
from ddpnb.model.events.startup import StoreMade, StoreOpened
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.door import Door
from ddpnb.recorder.phases import Phases

folder = tempfile.mkdtemp()
box = BlackBox(os.path.join(folder, "rank0.box"), 0)
door = Door(box, folder)
door.open()
phases = Phases(box, door)
original = dist.TCPStore.__init__
phases.install()

class Own(dist.TCPStore):
    pass

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
store.set("key", "value")
other = Own("127.0.0.1", store.port, 1, False)
try:
    dist.TCPStore(3)
except TypeError as error:
    print("ddpnb" in str(error), file=sys.stderr)
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
dist.destroy_process_group()
events = BoxReader(box.memory).events()
made = [(e.host, e.port, e.is_master, e.state) for e in events if isinstance(e, StoreMade)]
phases.remove()
print(json.dumps([made, store.port, other.get("key").decode(), sum(isinstance(e, StoreOpened) for e in events) > 0]))
sys.stdout.flush()
os._exit(0)
"""


def test_stores_of_the_script(forked):
    done = forked.run(SCRIPT)
    made, port, value, met = json.loads(done.stdout.splitlines()[-1])
    assert made == [["127.0.0.1", 0, True, "done"], ["127.0.0.1", port, False, "done"], ["3", 0, False, "failed"]]
    assert (value, met) == ("value", True)
    assert "was disabled" not in done.stderr, done.stderr
