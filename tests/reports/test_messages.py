import pytest

from ddpnb.reports import messages
from ddpnb.reports.facts import Ended, Message, Speaker
from tests.reports.reading import NOISE, every, of, read


@pytest.mark.parametrize(
    "line",
    [
        "[  123.4] Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
        "Out of memory: Kill process 4711 (python3.11) score 900 or sacrifice child",
        "kernel: Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,task_memcg=/x,task=python,pid=4711,uid=0",
    ],
)
def test_processes_that_the_kernel_killed(line):
    (ended,) = of(Ended, read(messages, NOISE + line + "\n" + NOISE))
    assert (ended.speaker, ended.ending.code, ended.ending.how) == (Speaker(None, 4711), -9, "died")
    assert (ended.ending.message, ended.at.number) == (line, 3)


@pytest.mark.parametrize(
    ("line", "pid"),
    [
        ("[1.2] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off the bus.", 4711),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, DBE", 0),
        ("NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: New row marked for remapping", 0),
    ],
)
def test_errors_of_gpus(line, pid):
    (message,) = of(Message, read(messages, line))
    assert (message.speaker.pid, "NVRM: Xid" in message.text) == (pid, True)


def test_a_gpu_that_is_lost_when_the_driver_is_loaded():
    text = (
        "[ 18.1] NVRM: The NVIDIA GPU 0000:3b:00.0\n         NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "         NVRM: fallen off the bus and is not responding to commands.\n"
    )
    (message,) = of(Message, every(NOISE + text))
    assert message.text.startswith("NVRM: fallen off the bus")


def test_memory_errors_that_a_logger_wrote():
    text = (
        "[rank2]: ERROR CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB\n" * 3
    )
    (message,) = of(Message, every(text))
    assert message.speaker.rank == 2


@pytest.mark.parametrize("prefix", ["[rank2]: ", ""])
def test_a_memory_error_with_its_traceback_is_said_once(prefix):
    text = (
        f'{prefix}Traceback (most recent call last):\n{prefix}  File "t.py", line 1, in f\n{prefix}    x\n'
        f"{prefix}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    facts = every(text)
    assert not of(Message, facts)
    assert [fact.ending.exception for fact in of(Ended, facts)] == ["OutOfMemoryError"]
