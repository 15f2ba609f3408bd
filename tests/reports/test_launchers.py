import pytest

from ddpnb.recording.ending import UNKNOWN_STATUS, Ending
from ddpnb.reports import launchers
from ddpnb.reports.facts import Ended, Identity, Message, Speaker, WorldSize
from tests.reports.reading import ANSI, NOISE, of, read


def row(number, rank, code, pid, what="To enable traceback see: https://pytorch.org/docs", pad=True):
    name = (lambda word: word.ljust(10)) if pad else (lambda word: word)
    signal_name = " (SIGABRT)" if code == -6 else ""
    return (
        f"[{number}]:\n  {name('time')}: 2024-05-01_12:00:00\n  {name('host')}: node1.cluster\n  {name('rank')}: {rank} (local_rank: "
        f"{rank})\n  {name('exitcode')}: {code} (pid: {pid}){signal_name}\n  error_file: <N/A>\n  {name('traceback')}: {what}\n"
    )


def table(*others, root, title="train.py FAILED"):
    line = "=" * 60
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{line}\n{title}\n{'-' * 60}\nFailures:\n{''.join(others) or '  <NO_OTHER_FAILURES>'}\n{'-' * 60}\n"
        f"Root Cause (first observed failure):\n{root}{line}\n"
    )


def test_the_table_of_torchrun():
    text = table(row(1, 0, -15, 25), row(2, 2, -6, 27, "Signal 6 (SIGABRT) received by PID 27"), root=row(0, 1, 1, 26))
    for shown in (text, NOISE + text + text, ANSI.format(text), text.replace("\n", "\r\n")):
        facts = read(launchers, shown)
        ended = {fact.speaker.rank: (fact.ending.code, fact.ending.how, fact.root) for fact in of(Ended, facts)}
        assert ended == {0: (-15, "died", False), 1: (1, "exited", True), 2: (-6, "died", False)}
        assert of(Identity, facts)[0] == Identity(Speaker(0, 25, "node1.cluster"))


@pytest.mark.parametrize(
    "behind", ["All distributed processes registered. Starting with 3 processes", "Epoch 0:   7%|7  | 88/1250"]
)
def test_processes_of_lightning_that_have_met_are_not_missing(behind):
    waits = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/3\n"
    assert of(Message, read(launchers, waits)) and not read(launchers, waits + behind)


def test_the_table_of_old_versions_has_no_columns():
    (ended,) = of(Ended, read(launchers, table(root=row(0, 3, -9, 27, pad=False))))
    assert (ended.speaker, ended.ending.code, ended.root) == (Speaker(3, 27, "node1.cluster"), -9, True)


def test_the_traceback_of_an_error_file():
    trace = (
        'Traceback (most recent call last):\n    File "/x/errors/__init__.py", line 348, in wrapper\n      return f()\n'
        '    File "/home/u/train.py", line 7, in main\n      boom()\n  ValueError: boom\n  '
    )
    (ended,) = of(Ended, read(launchers, table(root=row(0, 1, 1, 26, trace))))
    assert (ended.ending.how, ended.ending.exception, ended.ending.message) == ("raised", "ValueError", "boom")
    assert ended.ending.innermost_user is not None
    assert ended.ending.innermost_user.line == 7


@pytest.mark.parametrize(
    ("text", "speaker", "code"),
    [
        (
            "E0501 api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 27) of binary: /usr/bin/python",
            Speaker(None, 27),
            1,
        ),
        (
            "ERROR:torch.distributed.elastic.x.api:failed (exitcode: -9) local_rank: 2 (pid: 27) of binary: x",
            Speaker(None, 27),
            -9,
        ),
        ("W0501 Sending process 28 closing signal SIGTERM", Speaker(None, 28), -15),
        ("W0227 [x.py:766] Closing process 28 via signal SIGTERM", Speaker(None, 28), -15),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV",
            Speaker(1),
            -11,
        ),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with exit code 3", Speaker(2), 3),
        (
            "[rank: 1] Child process with PID 31 terminated with code -9. Forcefully terminating all other processes",
            Speaker(1, 31),
            -9,
        ),
        ("srun: error: node7: task 3: Killed", Speaker(3, 0, "node7"), -9),
        ("srun: error: node7: task 3: Exited with exit code 1", Speaker(3, 0, "node7"), 1),
        ("srun: error: node7: task 3: Exited with exit code 137", Speaker(3, 0, "node7"), -9),
        ("srun: error: node7: task 3: Out Of Memory", Speaker(3, 0, "node7"), -9),
        ("/var/spool/slurm_script: line 28:  8156 Killed                  python3 main.py", Speaker(None, 8156), -9),
        (
            "mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).",
            Speaker(3, 0, "n1"),
            -9,
        ),
        ("mpirun noticed that process rank 3 with PID 77 on node n1 exited on signal 11", Speaker(3, 77, "n1"), -11),
    ],
)
def test_lines_of_launchers(text, speaker, code):
    (ended,) = of(Ended, read(launchers, NOISE + text + "\n"))
    assert (ended.speaker, ended.ending.code) == (speaker, code)


def test_the_first_task_that_srun_names_is_the_root():
    text = "srun: error: n1: task 2: Exited with exit code 1\nsrun: error: n1: tasks 0-1,3: Killed\n"
    ended = of(Ended, read(launchers, text))
    assert [(fact.speaker.rank, fact.root) for fact in ended] == [(2, True), (0, False), (1, False), (3, False)]


def test_tasks_of_srun_that_are_launchers_are_no_ranks():
    text = "torchrun --nnodes 2\nsrun: error: n1: task 1: Exited with exit code 1\n"
    assert not of(Ended, read(launchers, text))
    assert "task 1" in of(Message, read(launchers, text))[0].text


@pytest.mark.parametrize("word", ["oom_kill event in StepId=1.0", "oom-kill event(s) in StepId=1.batch cgroup"])
def test_slurm_out_of_memory(word):
    (message,) = of(Message, read(launchers, f"slurmstepd: error: Detected 1 {word}. Some of your processes may\n"))
    assert message.text.startswith("slurmstepd")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("  global_ranks=[0, 1]\n  role_world_sizes=[4, 4]\n  global_world_sizes=[4, 4]\n", 4),
        ("local_rank 0 world_size=8\n", 8),
        ("[INFO] dist_world_size=16 local_rank\n", 16),
    ],
)
def test_the_world_size(text, size):
    assert of(WorldSize, read(launchers, text)) == [WorldSize(size)]


def test_sizes_that_contradict_each_other_are_none():
    assert not of(WorldSize, read(launchers, "world_size=8\nworld_size=4 local_rank\n"))


def test_a_normal_end():
    assert launchers._ending(0) == Ending("finished")


@pytest.mark.full
def test_hostile_tables():
    assert read(launchers, "rank : 1 (local_rank: 1)\n exitcode : " * 20_000) == []
    assert len(of(Ended, read(launchers, "srun: error: n: tasks 0-999999: Killed\n"))) <= 100_001


def test_a_table_whose_rows_are_one_line():
    text = "".join(
        f"[{number}]: time : 2024-05-01_12:00:00 host : algo-2 rank : {rank} (local_rank: {rank}) exitcode : -6 (pid: {20 + rank}) "
        f"error_file: <N/A> traceback : Signal 6 (SIGABRT) received by PID {20 + rank}\n"
        for number, rank in enumerate((2, 3))
    )
    ended = {fact.speaker: fact.ending.code for fact in of(Ended, read(launchers, text))}
    assert ended == {Speaker(2, 22, "algo-2"): -6, Speaker(3, 23, "algo-2"): -6}


def test_processes_of_actors_workers_and_deepspeed():
    ray = (
        "(raylet) A worker died or was killed. Worker IP address: 10.0.0.5 Worker port: 10258 Worker PID: 833 Worker exit type: "
        "SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits.\n"
        "ray.exceptions.ActorDiedError: The actor died.\n\tclass_name: W\n\tactor_id: 5a61\n\tpid: 834\n\tname: W_0:1\n"
        "\tnamespace: n\n\tip: 10.0.0.6\n"
    )
    others = (
        "ERROR 05-01 12:00:00 utils.py:120] Worker VllmWorkerProcess pid 198 died, exit code: -6\n"
        "[ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py', '--local_rank=0'] exits with return code = -9\n"
    )
    ended = {fact.speaker: (fact.ending.how, fact.ending.code) for fact in of(Ended, read(launchers, ray + others))}
    assert ended == {
        Speaker(None, 833, "10.0.0.5"): ("ended", UNKNOWN_STATUS),
        Speaker(None, 834, "10.0.0.6"): ("ended", UNKNOWN_STATUS),
        Speaker(None, 198): ("died", -6),
        Speaker(): ("died", -9),
    }
