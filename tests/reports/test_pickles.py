"""Nothing of a dump is executed, memory and time are bounded, and nothing is left behind."""

from __future__ import annotations

import contextlib
import copyreg
import os
import pickle
import random
import resource
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ddpnb.errors import UsageError
from ddpnb.reports.dumps import processes
from ddpnb.reports.pickles import loads
from tests.conftest import alive
from tests.reports.dumps import call, calls, dump, facts

MARK = "executed"


def children(process: int | str = "self") -> set[int]:
    """Those of all threads: a process belongs to the thread that started it."""
    found = [path.read_text().split() for path in Path(f"/proc/{process}/task").glob("*/children")]
    return {int(pid) for pids in found for pid in pids}


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = children()
    yield
    assert not Path(MARK).exists()
    assert children() <= before


def refused(content: bytes, tmp_path: Path) -> UsageError:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        facts(path)
    assert str(path) in str(raised.value)
    return raised.value


COMMAND = f"touch {MARK}"


class Reduces:
    def __reduce__(self):
        return os.system, (COMMAND,)


class Builds:
    def __reduce__(self):
        return bytearray, (), {"x": 1}


def short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


EXECUTING = {
    "GLOBAL, REDUCE": f"cos\nsystem\n(S'{COMMAND}'\ntR.".encode(),
    "GLOBAL, REDUCE of protocol 2": f"\x80\x02cos\nsystem\nX{chr(len(COMMAND))}\0\0\0{COMMAND}\x85R.".encode("latin1"),
    "STACK_GLOBAL": b"\x80\x04" + short("os") + short("system") + b"\x93" + short(COMMAND) + b"\x85R.",
    "STACK_GLOBAL from the memo": b"\x80\x04"
    + short("system")
    + b"\x940"
    + short("os")
    + b"\x94h\x00\x93"
    + short(COMMAND)
    + b"\x85R.",
    "INST": f"(S'{COMMAND}'\nios\nsystem\n.".encode(),
    "OBJ": f"(cos\nsystem\nS'{COMMAND}'\no.".encode(),
    "NEWOBJ": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "NEWOBJ_EX": b"\x80\x04" + short("builtins") + short("object") + b"\x93)}\x92.",
    "BUILD": b"\x80\x02ctypes\nSimpleNamespace\n)\x81}X\x01\x00\x00\x00aK\x01sb.",
    "PERSID": b"Pposix.system\n.",
    "BINPERSID": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "EXT1": b"\x80\x02\x82\xf0(X\x01\x00\x00\x00atR.",
    "EXT2": b"\x80\x02\x83\xf0\x00.",
    "EXT4": b"\x80\x02\x84\xf0\x00\x00\x00.",
    "getattr": b"\x80\x04" + short("builtins") + short("getattr") + b"\x93.",
    "a module of ours": b"\x80\x04" + short("ddpnb.reports.pickles") + short("loads") + b"\x93.",
    "inside a dump": pickle.dumps({"version": "2.10", "entries": [{"profiling_name": Reduces()}]}, 2),
    "behind a dump": pickle.dumps({"version": "2.10", "entries": [call(0, 1)], "pg_config": {"0": Reduces()}}, 5),
    "REDUCE of text": b"\x80\x02X\x01\x00\x00\x00a)R.",
    "OBJ of text": b"(X\x01\x00\x00\x00ao.",
    "NEWOBJ of text": b"\x80\x02X\x01\x00\x00\x00a)\x81.",
    "BUILD of a dictionary": b"\x80\x02}}X\x01\x00\x00\x00aK\x01sb.",
    "BUILD of a list": b"\x80\x02]X\x01\x00\x00\x00ab.",
    "a class": pickle.dumps({"entries": [Builds()]}, 4),
}


@pytest.mark.parametrize("content", EXECUTING.values(), ids=EXECUTING.keys())
def test_nothing_is_executed(content, tmp_path):
    copyreg.add_extension("os", "system", 240)
    try:
        error = refused(content, tmp_path)
    finally:
        copyreg.remove_extension("os", "system", 240)
        copyreg.clear_extension_cache()
    if b"system" in content and b"memo" not in content and b"\x8c" not in content and b"Ppos" not in content:
        assert "system" in str(error)


def test_the_error_names_what_is_asked_for(tmp_path):
    assert "names posix.system" in str(refused(EXECUTING["inside a dump"], tmp_path))


def test_one_that_asks_to_execute_something_stops_all(tmp_path):
    """A damaged dump among others is noted; this one is refused."""
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump([call(0, 1)])))
    (tmp_path / "nccl_trace_rank_1").write_bytes(EXECUTING["INST"])
    with pytest.raises(UsageError, match="names os.system"):
        facts(tmp_path)


LAUGHS = b"\x80\x02]q\x00(K\x01K\x02e" + b"".join(b"]q%c(%be" % (n, (b"h%c" % (n - 1)) * 10) for n in range(1, 40))
BOMBS = {
    "LONG_BINPUT": b"\x80\x02]r\xff\xff\xff\x7f.",
    "LONG_BINPUT to the end": b"\x80\x02]r\xff\xff\xff\xff.",
    "BINBYTES8": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"a.",
    "BINUNICODE8": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"a.",
    "BYTEARRAY8": b"\x80\x05\x96" + struct.pack("<Q", 1 << 36) + b"a.",
    "BYTEARRAY8 without end": b"\x80\x05\x96" + b"\xff" * 8 + b"a.",
    "FRAME": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"}.",
    "LONG4": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "LONG with many digits": b"L" + b"9" * 1_000_000 + b"L\n.",
    "deep lists": b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b".",
    "deep tuples": b"\x80\x02)" + b"\x85" * 500_000 + b".",
    "many objects": b"\x80\x02(" + b"}" * 4_000_000 + b"l.",
    "many sets": b"\x80\x04(" + b"\x8f" * 8_000_000 + b"l.",
    "laughs as sizes": LAUGHS
    + b"0}(X\x07\x00\x00\x00entries](}(X\x0e\x00\x00\x00profiling_nameX\x01\x00\x00\x00aX\x0b\x00\x00\x00input_sizesh\x27ueu.",
    "laughs as entries": LAUGHS + b"0}X\x07\x00\x00\x00entriesh\x27s.",
    "laughs as groups": LAUGHS + b"0}X\x09\x00\x00\x00pg_config}X\x01\x00\x00\x000h\x27ss.",
    "no container": pickle.dumps("text"),
    "nothing": b"\x80\x02N.",
    "an empty dictionary": b"\x80\x02}.",
    "no entries of ours": pickle.dumps({"entries": [{"state": "a"}, 3]}),
}


@pytest.mark.parametrize(
    "content",
    [pytest.param(b, marks=[pytest.mark.full] * (name == "laughs as sizes"), id=name) for name, b in BOMBS.items()],
)
def test_memory_and_time_are_bounded(content, tmp_path):
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(content)
    with contextlib.suppress(UsageError):
        calls(path)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 << 20  # KiB


SMALL = pickle.dumps({"entries": [{"profiling_name": "nccl:send 0->1", "retired": False}]}, 2)


def test_every_truncation(tmp_path):
    """One file for each length; only the whole one is a dump."""
    paths = [tmp_path / f"rank{length}" for length in range(1, len(SMALL))]
    for length, path in enumerate(paths, 1):
        path.write_bytes(SMALL[:length])
    for path in paths[:2]:
        with pytest.raises(UsageError):
            facts(path)
    readings = dict(processes.read_files([str(path) for path in paths]))
    assert len(readings) == len(paths)
    assert all("cut off or damaged" in reading.refused for reading in readings.values())
    (tmp_path / "rank0").write_bytes(SMALL)
    assert calls(tmp_path / "rank0")[0][0].op == "send"


def test_noise(tmp_path):
    """Each byte of a dump replaced, and files of random bytes: read or refused."""
    source = random.Random(7)
    contents = [SMALL[:place] + source.randbytes(1) + SMALL[place + 1 :] for place in range(len(SMALL))]
    contents += [b"\x80" + bytes([n % 6]) + source.randbytes(200) for n in range(300)]
    paths = []
    for number, content in enumerate(contents):
        (tmp_path / f"rank{number}").write_bytes(content)
        paths.append(str(tmp_path / f"rank{number}"))
    readings = dict(processes.read_files(paths))
    assert len(readings) == len(paths)
    assert all(reading.refused or reading.columns for reading in readings.values())


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read(protocol):
    held = {"a": [1, 2.5, None, True, (1, "x")], "b": {"c": -(1 << 70)}}
    held |= {"bytes": b"b"} if protocol > 2 else {}
    held |= {"sets": [{1}, frozenset({2})]} if protocol > 3 else {}
    held |= {"array": bytearray(b"c")} if protocol > 4 else {}
    assert loads(pickle.dumps(held, protocol)) == held


def test_processes_end_with_the_caller(tmp_path):
    """A caller that is killed in the middle leaves no process, and needs no guard of its main module."""
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(dump([call(n, n + 1) for n in range(3000)])))
    script = tmp_path / "unguarded.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {os.path.dirname(os.path.dirname(os.path.dirname(__file__)))!r})
        from ddpnb.reports.dumps import processes
        print("main", flush=True)
        for _ in processes.read_files([{str(path)!r}] * 100_000):
            print("read", flush=True)
        """)
    )
    caller = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "main\n"
        assert caller.stdout.readline() == "read\n"
        readers = children(caller.pid)
        assert readers
        caller.send_signal(signal.SIGKILL)
    finally:
        caller.kill()
        caller.wait()
        caller.stdout.close()
    deadline = time.process_time() + 30
    while any(map(alive, readers)) and time.process_time() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in readers if alive(pid)]


def test_an_abandoned_reading_leaves_no_process(tmp_path):
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(dump([call(n, n + 1) for n in range(3000)])))
    readings = processes.read_files([str(path)] * 1000)
    next(readings)
    readings.close()


@pytest.mark.full
def test_a_reader_that_was_killed_is_replaced(tmp_path):
    """Only the file that it was reading is lost."""
    bomb, good = tmp_path / "rank0", tmp_path / "rank1"
    bomb.write_bytes(BOMBS["laughs as sizes"])
    good.write_bytes(pickle.dumps(dump([call(0, 1)])))
    readings = dict(processes.read_files([str(good), str(bomb), str(good)]))
    assert [bool(readings[place].columns) for place in range(3)] == [True, False, True]


def test_no_interpreter(tmp_path, monkeypatch):
    (tmp_path / "rank0").write_bytes(SMALL)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(UsageError, match="could not be started"):
        facts(tmp_path / "rank0")
