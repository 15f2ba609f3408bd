"""How the program of a plain process ends, as its files say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from ddpnb.ranks.observe.rank_progress import RankProgress
from ddpnb.recording import status_file

_BEGIN = (
    "import os, sys; from ddpnb.recorder.process.endings import Endings; e = Endings(sys.argv[1], 0); e.install()\n"
)
_IN_A_CHILD = """\
import multiprocessing, os, sys
from ddpnb.recorder.process.endings import Endings

class Own(SystemExit): pass

def work(folder):
    Endings(folder, 0).install()
    {code}

if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=work, args=(sys.argv[1],))
    process.start()
    process.join()
    print(process.exitcode)
"""
full = pytest.mark.full


def run(folder, code, begin=_BEGIN):
    script = folder / "s.py"
    script.write_text(begin + code)
    done = subprocess.run(
        [sys.executable, script, folder],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    path = folder / "rank0.end.json"
    return done, json.loads(path.read_text()) if path.exists() else None, status_file.read(folder, 0)


def read(folder, status):
    """The ending as a launcher sees it that knows the exit status of the process."""
    ending = RankProgress(str(folder), 0, str(folder / "rank0.end.json"), "").ending(status, with_process=True)
    return ending.how, str(ending)


THREAD = "import threading; t = threading.Thread(target=lambda: {}); t.start(); t.join()"
HANDLER = "import atexit; atexit.register(lambda: {})"
#: what the program does, its exit status, how that is told
ENDS = [
    ("", 0, "finished", "finished"),
    ("sys.exit(0)", 0, "exited", "finished"),
    ("sys.exit(3)", 3, "exited", "exited with status 3"),
    ("sys.exit('sorry')", 1, "exited", "exited with status 1"),
    ("sys.exit(-1)", 255, "exited", "exited with status 255, which is what the system keeps of -1"),
    ("sys.exit(256)", 0, "exited", "exited with status 0, which is what the system keeps of 256"),
    ("raise SystemExit(3)", 3, "exited", "exited with status 3"),
    ("raise SystemExit('sorry')", 1, "exited", "exited with status 1"),
    ("raise SystemExit(300)", 44, "exited", "exited with status 44, which is what the system keeps of 300"),
    ("raise SystemExit", 0, "finished", "finished"),
    ("os._exit(4)", 4, "died", "exited with status 4"),
    ("os._exit(0)", 0, "died", "exited with status 0"),
    ("os.kill(os.getpid(), 9)", -signal.SIGKILL, "died", "killed (SIGKILL)"),
    ("os.abort()", -signal.SIGABRT, "died", "killed (SIGABRT)"),
    ("raise ValueError('bad')", 1, "raised", "ValueError: bad"),
    ("sys.excepthook = lambda *_: None; raise ValueError('bad')", 1, "raised", "ValueError: bad"),
    ("try: sys.exit(2)\nexcept SystemExit: pass\nraise ValueError('bad')", 1, "raised", "ValueError: bad"),
    ("try: sys.exit(2)\nexcept SystemExit: pass", 0, "finished", "finished"),
    (THREAD.format("sys.exit(5)"), 0, "finished", "finished"),
    (HANDLER.format("os._exit(6)"), 6, "died", "exited with status 6"),
    *(
        pytest.param(*row, marks=full)
        for row in [
            ("sys.exit(None)", 0, "exited", "finished"),
            ("sys.exit(True)", 1, "exited", "exited with status 1"),
            ("sys.exit(2.0)", 1, "exited", "exited with status 1"),
            ("sys.exit(2**40)", 0, "exited", f"exited with status 0, which is what the system keeps of {2**40}"),
            ("sys.exit(10**5000)", 255, "exited", "exited with status 255"),
            ("raise SystemExit(256)", 0, "exited", "exited with status 0, which is what the system keeps of 256"),
            ("raise SystemExit(-1)", 255, "exited", "exited with status 255, which is what the system keeps of -1"),
            ("raise SystemExit(None)", 0, "finished", "finished"),
            ("raise SystemExit(True)", 1, "exited", "exited with status 1"),
            ("raise SystemExit(object())", 1, "exited", "exited with status 1"),
            ("raise SystemExit(1, 2)", 1, "exited", "exited with status 1"),
            ("class Own(SystemExit): pass\nraise Own(7)", 7, "exited", "exited with status 7"),
            ("exit(8)", 8, "exited", "exited with status 8"),
            ("import argparse; argparse.ArgumentParser().parse_args()", 2, "exited", "exited with status 2"),
            (THREAD.format("os._exit(5)"), 5, "died", "exited with status 5"),
            (THREAD.format("1 / 0"), 0, "finished", "finished"),
            (HANDLER.format("1 / 0"), 0, "finished", "finished"),
            (HANDLER.format("sys.exit(3)"), 0, "finished", "finished"),
            (HANDLER.format("os._exit(6)") + "; raise ValueError('bad')", 6, "raised", "ValueError: bad"),
            ("sys.stdout = open('/dev/full', 'w'); print('x')", 120, "exited", "exited with status 120"),
            ("os.execv('/bin/sh', ['sh', '-c', 'exit 9'])", 9, "died", "exited with status 9"),
            ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, "died", "killed (SIGSEGV)"),
            ("import faulthandler; faulthandler._sigabrt()", -signal.SIGABRT, "died", "killed (SIGABRT)"),
            ("os.kill(os.getpid(), 15)", -signal.SIGTERM, "died", "killed (SIGTERM)"),
            ("raise KeyboardInterrupt", -signal.SIGINT, "raised", "KeyboardInterrupt"),
        ]
    ),
]


@pytest.mark.parametrize(("code", "status", "how", "words"), ENDS)
def test_endings(code, status, how, words, tmp_path):
    done, _, left = run(tmp_path, code)
    assert (done.returncode, *read(tmp_path, done.returncode)) == (status, how, words)
    if status >= 0 and "exec" not in code:
        assert left.status == status
        assert read(tmp_path, left.status) == (how, words)


@pytest.mark.parametrize(
    ("method", "code", "status", "how", "words"),
    [
        ("fork", "raise SystemExit(3)", 3, "exited", "exited with status 3"),
        *(
            pytest.param(method, *row, marks=full)
            for method in ("fork", "spawn", "forkserver")
            for row in [
                ("pass", 0, "finished", "finished"),
                ("sys.exit(3)", 3, "exited", "exited with status 3"),
                ("raise Own('sorry')", 1, "exited", "exited with status 1"),
                ("os._exit(4)", 4, "died", "exited with status 4"),
                ("os.kill(os.getpid(), 9)", -signal.SIGKILL, "died", "killed (SIGKILL)"),
            ]
        ),
    ],
)
def test_the_end_of_a_process_of_multiprocessing(method, code, status, how, words, tmp_path):
    done, _, left = run(tmp_path, "", begin=_IN_A_CHILD.format(method=method, code=code))
    assert (int(done.stdout), *read(tmp_path, status)) == (status, how, words)
    assert left.status == (status if status >= 0 else None)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f():\n    raise ValueError('b' * 5000)\nf()\n", "ValueError: " + "b" * 1000),
        ("def f():\n    sys.exit(3)\nf()\n", "exited with status 3"),
    ],
)
def test_where_nothing_can_be_written_any_more(code, words, tmp_path):
    full = "import resource\n\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # Python ignores the signal\n"
    done, ending, left = run(tmp_path, full + code)
    assert (done.returncode, ending) == (left.status, None)
    assert read(tmp_path, left.status)[1] == words
    assert [frame["line"] for frame in left.ending["frames"] if frame["user"]] == [7, 6]


def test_a_program_that_closes_all_descriptors_keeps_its_own_files(tmp_path):
    code = (
        "os.closerange(3, 256)\nkept = [open(sys.argv[1] + f'/kept{i}', 'w') for i in range(8)]\nraise SystemExit(3)\n"
    )
    _, _, left = run(tmp_path, code)
    assert left.status == 3
    assert [(tmp_path / f"kept{i}").read_bytes() for i in range(8)] == [b""] * 8


def test_while_its_process_lives_an_ending_is_not_the_last_word(tmp_path):
    run(tmp_path, "raise SystemExit(3)")
    rank = RankProgress(str(tmp_path), 0, str(tmp_path / "rank0.end.json"), "")
    assert (str(rank.ending(None, with_process=True)), rank.is_over, rank.is_exiting) == ("finished", False, True)
    assert str(rank.ending(3, with_process=True)) == "exited with status 3"
    assert (rank.is_over, rank.is_exiting) == (True, False)


def test_what_an_earlier_version_has_left(tmp_path):
    (tmp_path / "rank0.status").write_bytes(b"\7")
    assert status_file.read(str(tmp_path), 0).status == 7


@pytest.mark.parametrize(
    "data", [b"", b"ab", b"ddpnbEN1", b"x" * 4096, b"ddpnbEN1" + b"\xff" * 4088, b"ddpnbEN1" + b"\1" * 4088]
)
def test_what_is_no_ending_is_none(data, tmp_path):
    (tmp_path / "rank0.status").write_bytes(data)
    assert status_file.read(str(tmp_path), 0).ending is None


def test_an_exception_with_its_frames(tmp_path):
    done, ending, _ = run(tmp_path, "def f():\n    raise ValueError('bad')\nf()\n")
    assert (ending["exception"], ending["message"]) == ("ValueError", "bad")
    assert [frame["line"] for frame in ending["frames"] if frame["user"]] == [4, 3]
    assert done.stderr.count("Traceback") == 1


def test_where_exit_was_called(tmp_path):
    _, ending, _ = run(tmp_path, "def f():\n    sys.exit(5)\nf()\n")
    assert [frame["line"] for frame in ending["frames"] if frame["user"]] == [4, 3]


def test_what_it_replaces_is_pickled_by_its_name(tmp_path):
    """As for multiprocessing's Process(target=sys.exit), started by spawn."""
    code = "import pickle, sys, traceback\nfor f in (sys.exit, os._exit, traceback.print_exc): assert pickle.loads(pickle.dumps(f)) is f"
    done, *_ = run(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_a_forked_child_does_not_end_its_parent(tmp_path):
    code = "if os.fork() == 0: sys.exit(7)\nos.wait()\nprint(open(sys.argv[1] + '/rank0.status', 'rb').read()[8:12])\n"
    done, ending, left = run(tmp_path, code)
    assert done.stdout == f"{status_file.STATUS.pack(status_file.NO_STATUS)}\n"
    assert (ending["how"], left.status, left.ending["how"]) == ("finished", 0, "finished")


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
from ddpnb.recorder.process.endings import Endings

def work(folder):
    Endings(folder, 0).install()
    raise ValueError("bad")

if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=work, args=(sys.argv[1],))
    process.start()
    process.join()
    sys.exit(process.exitcode)
""")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=240, check=False)
    ending = json.loads((tmp_path / "rank0.end.json").read_text())
    assert (ending["how"], ending["exception"], ending["message"], done.returncode) == (
        "raised",
        "ValueError",
        "bad",
        1,
    )
    assert [frame["line"] for frame in ending["frames"] if frame["user"]] == [6]
    assert done.stderr.count("ValueError: bad") == 1
