"""How the program of a plain process ends, as its files say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

_BEGIN = "import sys; from ddpnb.recorder.endings import Endings; e = Endings(sys.argv[1], 0); e.install()\n"


def run(folder, code):
    script = folder / "s.py"
    script.write_text(_BEGIN + code)
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, timeout=60, check=False)
    path = folder / "rank0.end.json"
    status = (folder / "rank0.status").read_bytes()
    return done, json.loads(path.read_text()) if path.exists() else None, status


@pytest.mark.parametrize(
    ("code", "how", "told", "status"),
    [
        ("", "finished", 0, 0),
        ("sys.exit(0)", "exited", 0, 0),
        ("sys.exit(3)", "exited", 3, 3),
        ("sys.exit('sorry')", "exited", 1, 1),
        ("raise SystemExit(300)", "finished", 0, 44),  # only the status tells
        ("raise ValueError('bad')", "raised", 1, 1),
        ("sys.excepthook = lambda *_: None; raise ValueError('bad')", "raised", 1, 1),
        ("try: sys.exit(2)\nexcept SystemExit: pass\nraise ValueError('bad')", "raised", 1, 1),
    ],
)
def test_endings(code, how, told, status, tmp_path):
    done, ending, written = run(tmp_path, code)
    assert (ending["how"], ending["code"], written) == (how, told, bytes([status]))
    assert done.returncode == status


@pytest.mark.parametrize(
    ("code", "status", "left"), [("os._exit(4)", 4, b"\4"), ("os.kill(os.getpid(), 9)", -signal.SIGKILL, b"")]
)
def test_who_ends_by_force_leaves_no_ending(code, status, left, tmp_path):
    done, ending, written = run(tmp_path, f"import os; {code}")
    assert (done.returncode, ending, written) == (status, None, left)


def test_an_exception_with_its_frames(tmp_path):
    done, ending, _ = run(tmp_path, "def f():\n    raise ValueError('bad')\nf()\n")
    assert (ending["exception"], ending["message"]) == ("ValueError", "bad")
    assert [frame["line"] for frame in ending["frames"] if frame["user"]] == [4, 3]
    assert done.stderr.count("Traceback") == 1


def test_where_exit_was_called(tmp_path):
    _, ending, _ = run(tmp_path, "def f():\n    sys.exit(5)\nf()\n")
    assert [frame["line"] for frame in ending["frames"] if frame["user"]] == [4, 3]


def test_a_forked_child_does_not_end_its_parent(tmp_path):
    _, ending, status = run(tmp_path, "import os\nif os.fork() == 0: sys.exit(7)\nos.wait()\n")
    assert (ending["how"], status) == ("finished", b"\0")


def test_an_exception_class_that_cannot_be_shown(tmp_path):
    code = "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E\n"
    _, ending, _ = run(tmp_path, code)
    assert (ending["how"], ending["exception"]) == ("raised", "E")


def test_a_crash_in_native_code_leaves_its_stack(tmp_path):
    run(tmp_path, "import ctypes; ctypes.string_at(0)\n")
    assert "Fatal Python error: Segmentation fault" in (tmp_path / "rank0.crash").read_text()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_exception_of_a_process_of_multiprocessing(method, tmp_path):
    """Its function's exception reaches no excepthook: multiprocessing prints it, and exits."""
    script = tmp_path / "s.py"
    script.write_text(f"""\
import multiprocessing, sys
from ddpnb.recorder.endings import Endings

def work(folder):
    Endings(folder, 0).install()
    raise ValueError("bad")

if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=work, args=(sys.argv[1],))
    process.start()
    process.join()
    sys.exit(process.exitcode)
""")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    ending = json.loads((tmp_path / "rank0.end.json").read_text())
    assert (ending["how"], ending["exception"], ending["message"], done.returncode) == (
        "raised",
        "ValueError",
        "bad",
        1,
    )
    assert [frame["line"] for frame in ending["frames"] if frame["user"]] == [6]
    assert done.stderr.count("ValueError: bad") == 1
