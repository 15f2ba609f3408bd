"""What a script does to its process is undone when it ends: the next run finds the process as it was."""

from __future__ import annotations

import builtins

import pytest

from ddpnb.recorder.process.process_state import OwnBuiltins, restore_builtins

TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
"""
CLOSED = "import os\nfor number in (0, 1, 2): os.close(number)\n"  # gloo must not get these
MODULES = "import sys\nfor name in ('json', 'pickle', 'threading', 'logging'): sys.modules[name] = object()\n"
BUILTINS = "import builtins\nbuiltins.len = builtins.open = builtins.isinstance = lambda *given: 0\n"


def _said(log):
    """Without what gloo prints until torch 2.10."""
    return "\n".join(line for line in log.splitlines() if not line.startswith("[Gloo] "))


@pytest.mark.world
@pytest.mark.parametrize(
    ("lines", "outcomes"),
    [
        (CLOSED + TRAIN, {"ok"}),
        (MODULES + TRAIN, {"ok"}),
        (BUILTINS + TRAIN, {"ok", "crash"}),
        pytest.param(BUILTINS, {"ok"}, marks=pytest.mark.full),
    ],
    ids=["closed files", "modules", "builtins", "builtins alone"],
)
def test_the_next_run_finds_the_process_as_it_was(world, tmp_path, lines, outcomes):
    (tmp_path / "spoils.py").write_text(lines)
    (tmp_path / "healthy.py").write_text(TRAIN + "print('as ever')\n")
    run = world.run(tmp_path / "spoils.py", stream=None).wait(60)
    assert run.outcome in outcomes, f"{run.diagnosis} {run.log(0)}"
    assert world.run(lambda: len("seven  "), stream=None).wait(60).results == [7] * world.size
    run = world.run(tmp_path / "healthy.py", stream=None).wait(60)
    assert run.outcome == "ok" and [_said(run.log(rank)) for rank in range(world.size)] == ["as ever"] * world.size


def test_builtins_that_were_added_or_are_kept_stay(monkeypatch):
    before = dict(vars(builtins))
    monkeypatch.setattr(builtins, "translated", str, raising=False)
    monkeypatch.setattr(builtins, "aiter", None)
    monkeypatch.setattr(builtins, "vars", None)
    monkeypatch.delattr(builtins, "anext")
    restore_builtins(before, keep=("aiter",))
    assert (builtins.vars, builtins.anext, builtins.aiter, builtins.translated) == (
        before["vars"],
        before["anext"],
        None,
        str,
    )


def test_own_builtins_are_pythons_only_inside(monkeypatch):
    before = dict(vars(builtins))
    monkeypatch.setattr(builtins, "aiter", None)
    monkeypatch.setattr(builtins, "copyright", None)
    monkeypatch.delattr(builtins, "anext")
    with OwnBuiltins():
        inside = builtins.aiter, builtins.anext
        builtins.copyright = str  # a thread of the script, meanwhile
    assert inside == (before["aiter"], before["anext"])
    assert (builtins.aiter, builtins.copyright, hasattr(builtins, "anext")) == (None, str, False)


ALONE = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
from contextlib import nullcontext
from types import SimpleNamespace
from ddpnb.recorder.process import script
from ddpnb.recorder.process.process_state import like_a_process
folder, *names = sys.argv[1:]
release = SimpleNamespace(inside=nullcontext, convert_last=lambda error: error)
for name in names:
    with like_a_process(f"{folder}/{name}.log", folder, {}, [], nullcontext()):
        ended = script.run(script.script(f"{folder}/{name}", []), release)
    print(ended.ending["how"])
"""


def run_scripts(forked, folder, **scripts):
    """Scripts one after the other in one process, each as in a process of its own; the standard output of each."""
    for name, lines in scripts.items():
        (folder / name).write_text(lines)
    done = forked.run(ALONE, folder, *scripts)
    assert (done.returncode, done.stdout.split()) == (0, ["finished"] * len(scripts)), done.stderr
    return [(folder / f"{name}.log").read_text() for name in scripts]


PATCHES = """
import atexit, builtins, threading
plain = builtins.print

def only_when_forced(*values, force=False, **options):
    if force:
        plain(*values, **options)

builtins.print = only_when_forced
ended = threading.Event()

def goes_on():
    ended.wait(5)
    print("from a thread", force=True)

threading.Thread(target=goes_on).start()
atexit.register(lambda: print("at exit", force=True))
atexit.register(lambda: 1 / 0)
threading.Timer(0.5, ended.set).start()
"""


@pytest.mark.full
def test_threads_and_atexit_callbacks_find_the_builtins_of_their_script(tmp_path, forked):
    """As torchvision's ``setup_for_distributed`` replaces ``print``; the next script has Python's again."""
    first, second = run_scripts(forked, tmp_path, first=PATCHES, second="print('as ever')\n")
    assert "from a thread\n" in first and first.endswith("at exit\n") and "TypeError" not in first
    assert "Exception ignored in atexit callback" in first and "ZeroDivisionError" in first
    assert second == "as ever\n"


SETS_SIGNALS = """
import faulthandler, signal
signal.alarm(1)
signal.setitimer(signal.ITIMER_PROF, 0.5)
faulthandler.dump_traceback_later(1, exit=True)
for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, lambda *_: print("the first script"))
"""
LATER = """
import signal, time
for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGHUP, signal.SIGPROF):
    assert signal.getsignal(number) is signal.SIG_DFL, number
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
until = time.monotonic() + 1.5
while time.monotonic() < until:
    sum(range(1000))
print("as ever")
"""


@pytest.mark.full
def test_timers_and_signal_handlers_end_with_their_script(tmp_path, forked):
    """An alarm went off in the next script, or killed the idle engine."""
    assert run_scripts(forked, tmp_path, first=SETS_SIGNALS, second=LATER) == ["", "as ever\n"]
