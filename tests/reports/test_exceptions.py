import time

from ddpnb.reports import exceptions
from ddpnb.reports.facts import NOBODY, Ended, Speaker, Waiting
from tests.reports.reading import NOISE, every, of, read
from tests.reports.test_launchers import row, table


def trace(error, line=10, prefix=""):
    lines = [
        "Traceback (most recent call last):",
        f'  File "/home/u/train.py", line {line}, in main',
        "    step()",
        error,
    ]
    return [f"{prefix}{text}\n" for text in lines]


def test_interleaved_ranks():
    pairs = zip(trace("KeyError: 'k'", 10, "[rank1]: "), trace("ValueError: bad", 12, "[rank0]: "))
    facts = read(exceptions, NOISE + "".join(line for pair in pairs for line in pair) + NOISE)
    ended = {fact.speaker.rank: fact.ending for fact in of(Ended, facts)}
    assert (ended[1].exception, ended[1].message, ended[1].frames[0].line) == ("KeyError", "'k'", 10)
    assert (ended[0].exception, ended[0].message, ended[0].frames[0].line) == ("ValueError", "bad", 12)
    assert ended[0].traceback.startswith("Traceback")


def test_the_last_exception_of_a_rank_ended_it():
    text = "".join([*trace("KeyError: 'caught'", prefix="[rank1]: "), *trace("ValueError: fatal", prefix="[rank1]: ")])
    (ended,) = of(Ended, read(exceptions, text))
    assert ended.ending.exception == "ValueError"


def test_exceptions_that_were_raised_from_others_are_one():
    text = "".join(
        [
            *trace("OSError: first", prefix="[rank1]: "),
            "[rank1]: \n[rank1]: The above exception was the direct cause of the following exception:\n[rank1]: \n",
            *trace("RuntimeError: second", prefix="[rank1]: "),
        ]
    )
    (ended,) = of(Ended, read(exceptions, text))
    assert (ended.ending.exception, "OSError: first" in ended.ending.traceback) == ("RuntimeError", True)


def test_an_interrupt_while_a_failed_call_was_handled_was_in_that_call():
    """Ctrl-C reaches a rank in gloo only when its call has failed, as another rank is gone."""
    torch = "/venv/lib/python3.11/site-packages/torch/distributed"
    lines = [
        "Traceback (most recent call last):",
        f'  File "{torch}/c10d_logger.py", line 83, in wrapper',
        "    return func(*args, **kwargs)",
        f'  File "{torch}/distributed_c10d.py", line 3252, in all_reduce',
        "    work.wait()",
        "RuntimeError: Connection closed by peer [127.0.0.1]:13013",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "/home/u/train.py", line 29, in average',
        "    dist.all_reduce(total)",
        f'  File "{torch}/c10d_logger.py", line 85, in wrapper',
        "    message = describe(func)",
        f'  File "{torch}/c10d_logger.py", line 40, in describe',
        "    def describe(func):",
        "KeyboardInterrupt",
    ]
    (ended,) = of(Ended, read(exceptions, "".join(f"[rank0]: {line}\n" for line in lines)))
    assert ended.ending.exception == "KeyboardInterrupt"
    assert [frame.function for frame in ended.ending.frames] == ["average", "wrapper", "all_reduce"]


def test_mp_spawn():
    text = (
        'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\n    mp.spawn(f)\n'
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with the following error:\n"
    ) + "".join(trace("ValueError: bad"))
    (ended,) = of(Ended, read(exceptions, text))
    assert (ended.speaker, ended.ending.message) == (Speaker(2), "bad")


def test_exceptions_of_unknown_ranks_are_messages():
    (ended,) = of(Ended, read(exceptions, NOISE + "".join(trace("ValueError: bad")) + NOISE))
    assert ended.speaker == NOBODY
    assert "line 10, in main" in ended.ending.traceback
    assert ended.ending.message.startswith("bad")


def test_the_launcher_says_which_ranks_raised():
    text = "".join(trace("ValueError: bad 1")) + NOISE + table(row(1, 0, -15, 25), root=row(0, 1, 1, 26))
    assert {fact.speaker.rank for fact in of(Ended, every(text)) if fact.ending.how == "raised"} == {1}
    twice = "".join(trace("ValueError: bad 1") + trace("ValueError: bad 2"))
    text = twice + table(row(1, 0, -15, 25), row(2, 2, 1, 27), root=row(0, 1, 1, 26))
    assert {fact.speaker.rank for fact in of(Ended, every(text)) if fact.ending.how == "raised"} == {1, 2}
    text = twice + table(row(1, 0, -15, 25), root=row(0, 1, 1, 26))
    assert {fact.speaker for fact in of(Ended, every(text)) if fact.ending.how == "raised"} == {NOBODY}


def test_the_message_says_which_rank_was_aborted():
    text = "".join(trace("RuntimeError: NCCL communicator was aborted on rank 3.  Original reason for failure was: x"))
    assert [fact.speaker for fact in of(Ended, every(text))] == [Speaker(3)]


def test_the_launcher_repeats_what_ranks_raise():
    text = "".join(trace("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED"))
    assert not read(exceptions, text)
    assert not read(exceptions, "Traceback (most recent call last):\nException: \n")


def test_ray_names_processes():
    text = "".join(trace("ValueError: bad", prefix="(RayTrainWorker pid=615, ip=10.0.0.6) "))
    (ended,) = of(Ended, read(exceptions, text))
    assert ended.speaker == Speaker(None, 615, "10.0.0.6")


def test_errors_without_a_traceback():
    (ended,) = of(Ended, every("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. \n"))
    assert "DataLoader worker" in ended.ending.message


def test_much_noise_takes_no_time():
    text = NOISE * 100_000 + "".join(trace("ValueError: bad", prefix="[rank1]: ")) * 500
    start = time.process_time()
    assert of(Ended, read(exceptions, text))
    assert time.process_time() - start < 10


def test_a_message_may_name_the_rank():
    npu = "RuntimeError: npuSynchronizeDevice error code is 507048\n[ERROR] 2025-06-25 (PID:13075, Device:0, RankID:8) ERR00100 x"
    for prefix, error, rank in (
        ("(train pid=84) ", npu.replace("\n", "\n(train pid=84) "), 8),
        ("", npu, 8),
        ("", "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.", 3),
    ):
        (said,) = of((Ended, Waiting), read(exceptions, "".join(trace(error, prefix=prefix))))
        assert said.speaker == Speaker(rank)
        assert isinstance(said, Waiting) == ("npu" in error)  # a time-out of the device's backend
    both = "".join(
        line for rank in (1, 2) for line in trace(f"RuntimeError: NCCL communicator was aborted on rank {rank}.")
    )
    assert {fact.speaker.rank for fact in of(Ended, read(exceptions, both))} == {1, 2}
