"""Programs that do what no training should: the command ends in time, says what is true, and leaves nothing."""

from __future__ import annotations

import pytest

from ddpnb.errors import DdpnbError
from tests.torture.harness import DEADLINE_S, shows_ours
from tests.torture.worlds import Pair

pytestmark = [pytest.mark.torture, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pairs():
    shared = Pair()
    yield shared
    shared.close()


TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(4))
"""
#: name: (lines before a short training, lines after it, exit statuses that are right)
PROGRAMS = {
    "exits at import": ("import os; os._exit(7)", "", {7}),
    "exits on one rank": ("import os\nif os.environ['RANK'] == '1': os._exit(7)", "", {7}),
    "exits with an object": ("import sys; sys.exit(object())", "", {1}),
    "exits with a huge number": ("import sys; sys.exit(2**70)", "", None),
    "raises what cannot be shown": (
        "class Odd(Exception):\n    def __str__(self): raise RuntimeError('no')\n    __repr__ = __str__\nraise Odd()", "", {1},
    ),
    "raises BaseException": ("raise BaseException('odd')", "", {1}),
    "raises a very long message": ("raise ValueError('x' * 10**7)", "", {1}),
    "recurses": ("def deeper(): deeper()\ndeeper()", "", {1}),
    "aborts": ("import os; os.abort()", "", {134}),
    "segmentation fault": ("import ctypes; ctypes.string_at(0)", "", {139}),
    "closes all files": ("import os; os.closerange(3, 4096)", "", None),
    "closes its streams": ("import os; os.close(0); os.close(1); os.close(2)", "", {0}),
    "kills its parent": ("import os, signal; os.kill(os.getppid(), signal.SIGTERM)\nimport time; time.sleep(20)", "", {143}),
    "kills its group": ("import os, signal; os.killpg(0, signal.SIGKILL)", "", {137}),
    "patches time": ("import time\ntime.time = time.monotonic = time.perf_counter = lambda: 0.0\ntime.sleep = lambda s: None", "", {0}),
    "prints 100 MB": ("", "for _ in range(100): print('x' * 1_000_000)", {0}),
    "prints many lines": ("", "for n in range(200_000): print(n)", {0}),
    "prints bytes that are no text": ("", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)", {0}),
    "prints escape sequences": ("", "print('\\033]0;owned\\007 \\033[31mred')", {0}),
    "deletes its directory": ("import os, shutil; os.makedirs('gone', exist_ok=True); os.chdir('gone'); shutil.rmtree('../gone', ignore_errors=True)", "", {0}),
    "changes to the root": ("import os; os.chdir('/')", "", {0}),
    "few files": ("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))", "", None),
    "small files": ("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))", "print('x' * 100_000)", None),
    "replaces modules": ("import sys\nfor name in ('json', 'pickle', 'threading', 'logging'): sys.modules[name] = object()", "", {0}),
    "replaces builtins": ("import builtins\nbuiltins.len = builtins.open = lambda *given: 0", "", None),
    "blocks signals": ("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))", "", {0}),
    "ignores signals": ("import signal\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)", "", {0}),
    "forks twice": ("import os, time\nif os.fork() == 0:\n    if os.fork() == 0: time.sleep(3)\n    os._exit(0)", "", {0}),
    "forks children that stay": ("import os, time\nfor _ in range(10):\n    if os.fork() == 0:\n        time.sleep(600)", "", None),
    "leaves its session": ("import os, subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(10)'], start_new_session=True)", "", {0}),
    "many threads": ("import threading, time\nfor _ in range(200): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", "", {0}),
    "a thread that stays": ("import threading, time; threading.Thread(target=time.sleep, args=(3,)).start()", "", {0}),
    "traces": ("import sys; sys.settrace(lambda *given: None); sys.setprofile(lambda *given: None)", "", {0}),
    "no recursion": ("import sys; sys.setrecursionlimit(60)", "", None),
    "executes another program": ("import os; os.execv('/bin/true', ['true'])", "", None),
    "clears its environment": ("import os; os.environ.clear()", "", None),
    "collects while it ends": ("import atexit, gc; atexit.register(gc.collect); gc.disable()", "", {0}),
    "raises while it ends": ("import atexit\n@atexit.register\ndef _(): raise ValueError('late')", "", {0}),  # Python prints that it is ignored
    "uses up memory": ("import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33)); x = bytearray(1 << 34)", "", {1}),
    "uses up descriptors": (
        "", "import os, resource, sys\nresource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\nsys.kept = []\nwhile True: sys.kept.append(os.dup(2))", None,
    ),
    "names with escapes": ("globals()['\\033[31m<b>' * 50] = 1\nraise KeyError('\\033]0;owned\\007<script>')", "", {1}),
    "a syntax error": ("def (", "", {1}),
    "null bytes": ("x = '\0'", "", {1}),
    "a file that is no text": ("# \udcff\udcfe", "", None),
    "empty": (None, "", {0}),
}  # fmt: skip
#: those that need a launcher of their own, or show how it ends
COMMANDS = {
    "exits on one rank", "raises what cannot be shown", "kills its parent", "kills its group", "prints 100 MB",
    "closes its streams", "patches time", "names with escapes", "prints escape sequences", "forks children that stay",
}  # fmt: skip
CHEAP = {"exits on one rank", "raises what cannot be shown"}


def write(path, name):
    before, after, statuses = PROGRAMS[name]
    text = "" if before is None else f"{before}\n{TRAIN}\n{after}\n"
    path.write_bytes(text.encode(errors="surrogateescape"))
    return statuses


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.world] if name in CHEAP else []) for name in sorted(COMMANDS)]
)
def test_a_hostile_program(command, tmp_path, name):
    statuses = write(tmp_path / "program.py", name)
    started = command("run", "-n", "2", "--patience", "5", "--end-after-patience", "program.py")
    status, said = started.end(), started.said
    assert (status in statuses) if statuses is not None else (0 <= status < 256), said[-4000:]
    assert name != "names with escapes" or ("\033" not in said and "\007" not in said)  # output is a program's own
    started.left_nothing()


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "kills its parent"])
def test_a_hostile_program_in_a_world_that_lives_on(pairs, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    statuses = write(tmp_path / "program.py", name)
    with pairs.lend(restart=False) as world:  # the next run is a healthy one in the same processes
        if statuses is None:  # it may have spoiled the process itself: that is said, and fresh ones work
            try:
                run = world.run("program.py", stream=None).wait(DEADLINE_S)
                said = str(run.diagnosis)
                if name == "replaces builtins" and not run.done:
                    # Without len(), threads of the rank's kernel now and then spin: it computes, and no verdict is due.
                    assert run.diagnosis.errors and "computing" in {rank.state for rank in world.status().ranks}, said
                    world.restart([0, 1])
                    return
                assert run.done and run.outcome in ("ok", "crash", "hang"), run
                assert (run.outcome == "ok") == (run.exit_status == 0) == (not run.diagnosis.errors), said
            except DdpnbError as error:
                said = str(error)
                assert "run" in said or "rank" in said
            assert "\033" not in said and not shows_ours(said), said
            world.restart([0, 1])
            return
        run = world.run("program.py", stream=None).wait(DEADLINE_S)
        said = str(run.diagnosis)
        assert run.done and run.exit_status in statuses, said
        assert "\033" not in said and not shows_ours(said)


@pytest.mark.parametrize("module", ["queue", "psutil", "zmq", "typing"])
def test_modules_of_the_same_name(command, tmp_path, module):
    """A file in the working directory is not imported by the processes of ddpnb itself."""
    imported = tmp_path / "imported"
    (tmp_path / f"{module}.py").write_text(f"open({str(imported)!r}, 'w').close()\nraise SystemExit(9)\n")
    (tmp_path / "program.py").write_text("print('fine')\n")
    # ``python -m ddpnb`` itself has the working directory on its path; the command ``ddpnb`` has not.
    started = command("run", "-n", "1", "program.py", PYTHONSAFEPATH="1")
    assert started.end() == 0 and not imported.exists(), started.said
    started.left_nothing()
