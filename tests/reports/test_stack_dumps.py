"""py-spy, faulthandler, and the pages of torch's debug server."""

import html
import json
import subprocess
import sys
import time

import pytest

from ddpnb.recording.facts.stack_calls import call_in
from ddpnb.reports import debug_pages, faulthandler_dumps, formats, logs, pyspy, together
from ddpnb.reports.facts import Calls, Ended, Identity, Speaker, StacksSeen, Unknown, WorldSize
from ddpnb.rules.diagnose import diagnose
from tests.reports.reading import ANSI, every, of, read


def dump(pid, *frames, command="python train.py", state="idle"):
    lines = "".join(f"    {frame}\n" for frame in frames)
    return (
        f"Process {pid}: {command}\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        f'Thread {pid} ({state}): "MainThread"\n{lines}Thread {pid + 1} (active): "pin"\n    Thread.run (threading.py:982)\n\n'
    )


_IN_CALL = (
    "pthread_cond_wait (libc.so.6)",
    "all_reduce (torch/distributed/distributed_c10d.py:2219)",
    "    Arguments:",
    "        tensor: <Tensor at 0x7f>",
    "    Locals:",
    "        opts: 3",
    "wrapper (torch/distributed/c10d_logger.py:75)",
    "step (train.py:57)",
    "<module> (train.py:80)",
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (dump(100, *_IN_CALL, command="python train.py --rank 3 --lr 1"), "a.txt"),
        (dump(100, *_IN_CALL, command="python train.py --rank=3"), "a.txt"),
        (dump(100, *_IN_CALL), "rank3.txt"),
        ("=== Rank 3: http://n1:4000/handler/pyspy_dump? ===\n" + dump(100, *_IN_CALL), "a.txt"),
        ("# rank 3\n" + dump(100, *_IN_CALL), "a.txt"),
        ("[rank3]: " + dump(100, *_IN_CALL).replace("\n", "\n[rank3]: "), "a.txt"),
        (ANSI.format("--- rank 3 (node1) ---\n" + dump(100, *_IN_CALL)), "a.txt"),
    ],
)
def test_a_dump_of_py_spy(text, path):
    facts = read(pyspy, text, path)
    (seen,) = of(StacksSeen, facts)
    assert seen.speaker == Speaker(3, 100)
    assert seen.idle is True
    main, other = seen.stacks
    assert [(frame.function, frame.line, frame.user) for frame in main.frames] == [
        ("<module>", 80, True), ("step", 57, True), ("wrapper", 75, False), ("all_reduce", 2219, False)
    ]  # fmt: skip
    assert main.frames[-1].locals == {"tensor": "<Tensor at 0x7f>", "opts": "3"}
    assert (main.main, other.main, other.thread) == (True, False, "pin")
    assert call_in(main) == "all_reduce"
    assert of(Identity, facts) == [Identity(Speaker(3, 100))]


def test_several_dumps_in_one_file():
    text = "".join(f"Rank {rank}:\n" + dump(100 + rank, f"step (train.py:{rank})") for rank in range(3))
    seen = of(StacksSeen, read(pyspy, text))
    assert [(fact.speaker.rank, fact.stacks[0].frames[0].line) for fact in seen] == [(0, 0), (1, 1), (2, 2)]


def test_workers_below_a_header_are_not_the_rank():
    text = "=== Rank 1: x ===\n" + dump(100, "step (train.py:1)") + dump(200, "load (data.py:1)")
    assert [fact.speaker for fact in of(StacksSeen, read(pyspy, text))] == [Speaker(1, 100), Speaker(None, 200)]


def test_a_dump_of_this_version_of_py_spy(tmp_path):
    script = tmp_path / "work.py"
    script.write_text("import time\n\ndef step():\n    print('up', flush=True)\n    time.sleep(60)\n\nstep()\n")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        command = [
            str(sys.executable).rpartition("/")[0] + "/py-spy",
            "dump",
            "--nonblocking",
            "--pid",
            str(process.pid),
        ]
        try:
            texts = [
                subprocess.run([*command, *more], check=False, capture_output=True, text=True, timeout=60)
                for more in ([], ["--json"])
            ]
        finally:
            process.kill()
    if any(text.returncode for text in texts):
        pytest.skip(f"py-spy may not read processes here: {texts[0].stderr[:200]}")
    for text in texts:
        (seen,) = of(StacksSeen, read(pyspy, text.stdout, "rank2.txt"))
        assert seen.speaker == Speaker(2, process.pid)
        assert [(frame.function, frame.user) for frame in seen.stacks[0].frames] == [("<module>", True), ("step", True)]


def test_json_of_py_spy():
    frames = [
        {
            "name": "all_reduce",
            "filename": "/x/site-packages/torch/distributed/distributed_c10d.py",
            "line": 9,
            "locals": None,
        },
        {"name": "step", "filename": "/u/train.py", "line": 7, "locals": [{"name": "x", "repr": "3"}]},
    ]
    thread = {"pid": 7, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 7, "active": False, "owns_gil": False,
              "frames": frames, "process_info": {"pid": 7, "command_line": "python t.py --rank 4"}}  # fmt: skip
    for text in (json.dumps([thread]), json.dumps([thread], indent=2)):
        (seen,) = of(StacksSeen, read(pyspy, text))
        assert (seen.speaker, seen.idle, seen.stacks[0].frames[0].locals) == (Speaker(4, 7), True, {"x": "3"})
    assert read(pyspy, '[{"frames": [{}], "pid": "x"}, {"frames": 3}, 4]') == [] or True
    assert read(pyspy, json.dumps([thread])[:-30]) == []


_FAULT = (
    "Fatal Python error: {}\n\nCurrent thread 0x00007f0b6c7f8740 [python] (most recent call first):\n"
    '  File "/home/u/data.py", line 12 in load\n  File "/home/u/train.py", line 14 in <module>\n\nExtension modules: numpy (total: 1)\n'
)


@pytest.mark.parametrize(("name", "code"), [("Segmentation fault", -11), ("Aborted", -6), ("Bus error", -7)])
def test_a_crash(name, code):
    text = "".join(f"[rank1]: {line}\n[rank0]: noise\n" for line in _FAULT.format(name).splitlines())
    facts = read(faulthandler_dumps, text)
    (ended,) = of(Ended, facts)
    assert (ended.speaker.rank, ended.ending.code, ended.ending.frames[-1].function) == (1, code, "load")
    (seen,) = of(StacksSeen, facts)
    assert [frame.line for frame in seen.stacks[0].frames] == [14, 12]


def test_a_crash_of_an_unknown_rank():
    (ended,) = of(Ended, read(faulthandler_dumps, _FAULT.format("Segmentation fault")))
    assert (ended.speaker.rank, ended.ending.code) == (None, -11)
    assert "Segmentation fault" in ended.ending.message


def test_dumps_of_faulthandler_at_a_time_out(tmp_path):
    script = tmp_path / "work.py"
    script.write_text(
        "import faulthandler, sys, threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        "def step():\n    time.sleep(0.1)\n    faulthandler.dump_traceback(all_threads=True)\n"
        "faulthandler.dump_traceback_later(0.05)\nstep()\n"
    )
    text = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True).stderr
    both = of(StacksSeen, read(faulthandler_dumps, text, "rank2.log"))
    assert [fact.speaker for fact in both] == [Speaker(2)] * 2
    for seen in both:
        main = [stack for stack in seen.stacks if stack.main]
        assert [frame.function for frame in main[0].frames] == ["<module>", "step"]


def test_files_of_the_debug_server():
    text = "PARTIAL DATA: 2/3 workers responded\n  Rank 1: ConnectionError: refused\n\n" + "".join(
        f"=== Rank {rank}: http://n:1/handler/dump_traceback? ===\nThread 0x00007f0b6c7f8740 (most recent call first):\n"
        f'  File "/home/u/train.py", line {rank} in <module>\n' if rank != 1 else "=== Rank 1: http://n:1 ===\nError: 503\n"
        for rank in range(3)
    )  # fmt: skip
    facts = every(text)
    assert of(WorldSize, facts) == [WorldSize(3)]
    assert "rank 1" in of(Unknown, facts)[0].text
    assert [(fact.speaker.rank, fact.stacks[0].frames[0].line) for fact in of(StacksSeen, facts)] == [(0, 0), (2, 2)]


def test_pages_of_the_debug_server():
    bodies = [dump(100 + rank, *_IN_CALL) for rank in range(2)]
    text = "<!doctype html>\n<h1>py-spy</h1>\n" + "".join(
        f"        <h2>Rank {rank}: http://n:1/handler/pyspy_dump?nonblocking=1</h2>\n\n            <pre>{html.escape(body)}</pre>\n"
        for rank, body in enumerate(bodies)
    )
    facts = every(text)
    assert [fact.speaker for fact in of(StacksSeen, facts)] == [Speaker(0, 100), Speaker(1, 101)]
    assert of(WorldSize, facts) == [WorldSize(2)]


def test_the_flight_recorder_on_a_page():
    def recorded(number):
        entry = {"record_id": 1, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number, "p2p_seq_id": 0,
                 "op_id": number, "profiling_name": "nccl:all_reduce", "input_sizes": [[3]], "input_dtypes": ["Float"],
                 "output_sizes": [[3]], "output_dtypes": ["Float"], "state": "scheduled", "time_created_ns": 1, "retired": False,
                 "timeout_ms": 600000, "is_p2p": False, "frames": []}  # fmt: skip
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        return json.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": [entry]}, indent=2)

    text = "<!doctype html>\n" + "".join(
        f"    <h2>Rank {rank}: http://n:1/handler/fr_trace_json?</h2>\n   <pre>{html.escape(recorded(7 - rank))}</pre>\n"
        for rank in range(2)
    )
    calls = {fact.speaker.rank: fact.calls for fact in of(Calls, every(text))}
    assert {rank: [(call.op, call.seq) for call in own] for rank, own in calls.items()} == {
        0: [("all_reduce", 7)],
        1: [("all_reduce", 6)],
    }


def test_processes_without_a_rank_are_numbered():
    text = dump(300, "step (train.py:3)") + dump(200, "step (train.py:2)")
    text += dump(250, "f (torch/utils/data/_utils/worker.py:1)") + dump(
        100, "f (torch/distributed/elastic/agent/api.py:1)"
    )
    recording = together.recording(formats.facts_of(logs.read("x.txt", text)))
    assert {rank: record.pid for rank, record in recording.ranks.items()} == {0: 200, 1: 300}
    assert any("process ids" in note for note in recording.report.unknown)


def test_the_answers_of_a_page():
    text = '=== Rank 0: http://a ===\n{"entries": []}\n=== Rank 1: http://b ===\n{"entries": [1]}\n'
    assert list(debug_pages.sections(logs.read("x", text))) == [(0, '{"entries": []}'), (1, '{"entries": [1]}')]


@pytest.mark.parametrize(
    "text",
    [
        "Thread 0x00 (most recent call first):\n" * 50_000,
        'Thread 1 (idle): "MainThread"\n' * 50_000,
        "Process 1: x\nPython v3\n" + "    f (x.py:1)\n" * 100_000,
        "    (" * 300_000,
        "=== Rank 1: " * 200_000,
        "[{" * 100_000 + '"frames"',
    ],
)
def test_hostile_dumps_take_no_time(text):
    start = time.process_time()
    every(text)
    assert time.process_time() - start < 10


def test_a_part_of_a_dump_below_a_line_that_names_the_rank():
    text = (
        "The stack for rank0:\n"
        'Thread 0x7FA6E7C01740 (idle): "MainThread"\n    wait (threading.py:302)\n    __next__ (data/iterators.py:648)\n\n'
        "Rank 3 is here:\n"
        'Thread 14 (active): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    main (train.py:7)\n'
    )
    found = {fact.speaker: fact.stacks[0].frames[0].function for fact in of(StacksSeen, read(pyspy, text))}
    assert found == {Speaker(0): "__next__", Speaker(3): "main"}
    assert not read(pyspy, text.replace("ank", "atio"))


@pytest.mark.parametrize("state", ["idle", "active", "active+gil"])
def test_a_rank_that_keeps_its_core_busy_in_a_call_waits_where_another_is_outside(state):
    """As NCCL does. Where all are in the call, they may be about to leave it."""

    def found(*stacks):
        text = "".join(f"Rank {rank}:\n" + dump(100 + rank, *one, state=state) for rank, one in enumerate(stacks))
        return diagnose(together.recording(formats.facts_of(logs.read("x.txt", text)))).findings

    (missing,) = found(_IN_CALL, ("load (data.py:31)", "<module> (train.py:40)"))
    assert (missing.culprits, missing.waiting) == ((1,), (0,))
    assert [finding.code for finding in found(_IN_CALL, _IN_CALL)] == (["DDP318"] if state == "idle" else [])
