"""What a script sets for its process is put back; each in a process of its own."""

from __future__ import annotations

import pytest

CHANGES = """
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.set_grad_enabled(False)
torch.autograd.set_detect_anomaly(True)
torch.set_float32_matmul_precision("medium")
torch.use_deterministic_algorithms(True, warn_only=True)
torch.multiprocessing.set_sharing_strategy("file_system")
multiprocessing.set_start_method("spawn")
logging.basicConfig(level=logging.ERROR)
logging.disable(logging.CRITICAL)
gc.disable()
gc.set_threshold(7)
sys.setrecursionlimit(5000)
sys.setswitchinterval(1.0)
socket.setdefaulttimeout(3.0)
sys.unraisablehook = print
threading.excepthook = print
os.umask(0o77)
""".strip().splitlines()

PROGRAM = """
import gc, logging, multiprocessing, os, socket, sys, threading, torch
from ddpnb.recorder.process.settings import Settings, _SETTINGS
settings = Settings()
before = [read() for read, _ in _SETTINGS], list(logging.root.handlers)
exec(sys.argv[1])
changed = [read() for read, _ in _SETTINGS], list(logging.root.handlers)
settings.restore()
after = [read() for read, _ in _SETTINGS], list(logging.root.handlers)
assert after == before, (before, after)
print(sum(one != two for one, two in zip(before[0], changed[0])), len(before[0]))
multiprocessing.set_start_method("spawn")  # as the next script does
"""


@pytest.mark.full
def test_all_are_put_back(forked):
    done = forked.run(PROGRAM, "\n".join(CHANGES))
    assert done.returncode == 0, done.stderr
    changed, known = done.stdout.split()
    assert changed == known


@pytest.mark.world
def test_a_script_begins_with_those_of_a_plain_process_and_a_function_with_those_of_cells(world, tmp_path):
    sets, finds = tmp_path / "sets.py", tmp_path / "finds.py"
    head = "import gc, logging, multiprocessing, os, socket, sys, threading, torch\n"
    sets.write_text(head + "\n".join(CHANGES))
    finds.write_text(
        head + "multiprocessing.set_start_method('spawn')\nlogging.basicConfig(format='%(message)s!', level=20)\n"
        "logging.info('shown')\nassert torch.ones(1).dtype == torch.float32 and torch.is_grad_enabled()\n"
    )
    for script in (sets, finds, sets, finds):
        run = world.run(script, stream=None).wait(60)
        assert run.outcome == "ok", f"{run.diagnosis}\n{run.log(0)}"
    assert run.log(0).strip() == "shown!"
    cell = "import torch\ntorch.set_default_dtype(torch.float64)"
    assert world.execute(cell, stream=None).wait(60).outcome == "ok"
    assert world.run(lambda: str(torch_dtype()), stream=None).wait(60).results == ["torch.float64"] * 4
    assert world.run(finds, stream=None).wait(60).outcome == "ok"


def torch_dtype():
    import torch

    return torch.get_default_dtype()
