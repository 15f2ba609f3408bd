"""Probes whose ranks are forked, all from one process with torch: each is as one that has a process of its own for that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ddpnb.ranks import devices, forks
from ddpnb.ranks.forks import ForkServers
from ddpnb.ranks.jobs.injection import injected
from ddpnb.ranks.jobs.spawned import Program
from ddpnb.studies.bisection.command import Request
from ddpnb.studies.bisection.probing import CommandProber
from ddpnb.studies.bisection.space import Probe
from ddpnb.studies.bisection.varied import Trying
from ddpnb.world.plain_run import PlainRun
from tests.conftest import alive, processes_below
from tests.waiting import until

WITHIN_S = 240.0
SCRIPT = """
import json, os, random, sys
import torch, torch.distributed as dist
import mine

dist.init_process_group("gloo")
total = torch.ones(1) * dist.get_rank()
dist.all_reduce(total)
facts = {
    "arguments": sys.argv[1:], "mine": mine.value, "seen": hasattr(torch, "left_behind"), "sum": total.item(),
    "directory": os.getcwd(), "ranks": [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")],
    "mark": os.environ.get("MARK"), "threads": [os.environ["OMP_NUM_THREADS"], torch.get_num_threads()],
    "random": [random.random(), torch.rand(1).item()], "pid": os.getpid(), "parent": os.getppid(),
}
torch.left_behind = os.environ["LEFT_BEHIND"] = "yes"
with open(f"{sys.argv[1]}.{dist.get_rank()}.json", "w") as file:
    json.dump(facts, file)
dist.destroy_process_group()
if "fail" in sys.argv:
    raise ValueError("as asked")
if "parent dies" in sys.argv and facts["ranks"][0] == "0":
    os.kill(os.getppid(), 9)
"""
WAITS = """
import os, time
if os.environ["RANK"] == "0":
    attempt = sum(name.startswith("attempt") for name in os.listdir())
    open(f"attempt{attempt}", "w").close()
    time.sleep(0 if attempt else 1000)
"""
ORPHAN = """
import os, time
if not os.fork():  # as a data loader does, in a session of its own
    os.setsid()
    with open(f"orphan{os.environ['RANK']}", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)
while not os.path.exists(f"orphan{os.environ['RANK']}") or not open(f"orphan{os.environ['RANK']}").read():
    time.sleep(0.01)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("value = 1\n")
    for name, text in {"train": SCRIPT, "waits": WAITS, "orphan": ORPHAN}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def of_all_tests():
    """The name of the test is no reason to import torch again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forks, "_OF_A_RUN", forks._OF_A_RUN | {"PYTEST_CURRENT_TEST"})
        yield


def forking():
    """A prober with two forked ranks; nothing of it is left at the end."""
    threads, others = set(threading.enumerate()), processes_below()
    made = CommandProber(Request(("train.py",), fork=True, backend="gloo", patience=3.0))
    yield made
    processes = processes_below() - others
    made._fork_servers.close()
    assert not [process for process in processes if alive(process.pid)]
    assert until(lambda: not [one for one in set(threading.enumerate()) - threads if one.name.startswith("ddpnb fork")])


@pytest.fixture(scope="module")
def shared():
    yield from forking()


@pytest.fixture
def prober(shared, folder):
    """The same for many tests."""
    shared.directory = str(folder)
    return shared


@pytest.fixture
def own(folder):
    """One for this test."""
    yield from forking()


def sources(prober):
    return [server.pid for server in prober._fork_servers._servers.values()]


def tried(prober, *command, **environment):
    prober.trying = lambda _: Trying(command, environment)
    return prober.run(Probe())


def run(prober, *arguments, **environment):
    ran = tried(prober, "train.py", *arguments, **environment)
    return ran, [json.loads(Path(f"{arguments[0]}.{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.world
def test_each_probe_begins_in_the_same_state(prober, folder):
    ran, first = run(prober, "a")
    assert ran.ran and not ran.failures, ran
    (source,) = sources(prober)
    (folder / "mine.py").write_text("value = 2  # of another commit\n")
    ran, failed = run(prober, "b", "fail")
    assert [failure["code"] for failure in ran.failures] == ["DDP312"] and "as asked" in ran.reason
    ran, last = run(prober, "c")
    assert ran.ran and not ran.failures, ran
    assert sources(prober) == [source]
    for rank in (0, 1):
        assert [found[rank]["mine"] for found in (first, failed, last)] == [1, 2, 2]
        for found in (first[rank], failed[rank], last[rank]):
            assert (found["seen"], found["sum"], found["directory"]) == (False, 1.0, str(folder))
            assert found["ranks"] == [str(rank), str(rank), "2"] and found["threads"] == ["1", 1]
            assert "LEFT_BEHIND" not in os.environ and found["parent"] == source
    randoms = [tuple(found[rank]["random"]) for found in (first, failed, last) for rank in (0, 1)]
    assert len(set(randoms)) == 6 and len({one["pid"] for found in (first, failed, last) for one in found}) == 6


@pytest.mark.full
@pytest.mark.world
def test_another_environment_is_not_shared(own):
    assert run(own, "a", MARK="1", OMP_NUM_THREADS="2")[1][0]["mark"] == "1"
    assert run(own, "b", MARK="2")[1][1]["mark"] == "2"
    assert run(own, "c", MARK="1", OMP_NUM_THREADS="2")[1][1]["threads"][0] == "2"
    kept = sources(own)
    assert len(kept) == 2
    assert run(own, "d", MARK="3")[1][0]["mark"] == "3"
    assert len(sources(own)) == 2 and not alive(kept[0]) and alive(kept[1])  # the one that was used last


@pytest.mark.full
@pytest.mark.world
def test_a_probe_that_ends_the_process_from_which_it_is_forked_says_nothing_and_the_next_one_does(prober):
    ran, _ = run(prober, "a", "parent dies")
    assert not ran.ran and ran.reason == "the process that forks the ranks died"
    ran, _ = run(prober, "b")
    assert ran.ran and not ran.failures and len(sources(prober)) == 1


@pytest.mark.full
@pytest.mark.world
def test_a_probe_runs_again_where_the_process_that_all_share_has_died(prober, folder):
    """It says nothing of the program."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(tried(prober, "waits.py")))
    thread.start()
    assert until((folder / "attempt0").exists)
    (source,) = sources(prober)
    os.kill(source, signal.SIGKILL)
    thread.join(WITHIN_S)
    (ran,) = answers
    assert ran.ran and not ran.failures and (folder / "attempt1").exists(), ran
    assert source not in sources(prober)


@pytest.mark.world
def test_what_a_rank_has_forked_ends_with_the_probe(prober, folder):
    ran = tried(prober, "orphan.py")
    assert ran.ran
    orphans = [int((folder / f"orphan{rank}").read_text()) for rank in (0, 1)]
    assert until(lambda: not any(map(alive, orphans)))


@pytest.mark.full
@pytest.mark.world
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.full)])
def test_it_ends_when_it_is_not_used(own, monkeypatch, again):
    monkeypatch.setattr(forks, "_IDLE_S", 0.5)
    run(own, "a")
    (source,) = sources(own)
    assert until(lambda: not alive(source))
    if again:
        assert run(own, "b")[0].ran and sources(own) != [source]


@pytest.mark.full
@pytest.mark.world
def test_it_dies_with_the_process_that_probes(folder):
    text = (
        "import os, time\n"
        "from tests.ranks.test_forks import CommandProber, Probe, Request, sources\n"
        "prober = CommandProber(Request(('train.py', 'a'), fork=True, backend='gloo'))\n"
        "assert prober.run(Probe()).ran\n"
        "print(*sources(prober), flush=True)\n"
        "time.sleep(1000)\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(":")}
    with subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            source = int(process.stdout.readline())
            assert alive(source)
        finally:
            process.kill()
    assert until(lambda: not alive(source))


class Server:
    """Stands in for a process that has torch."""

    def __init__(self, imports, environment, folder, log, *, directory, idle_s):
        given = {name: value for name, value in environment.items() if name not in ("DDPNB_JOB", "DDPNB_PARENT")}
        self.environment, self.directory = given, directory
        self.is_idle, self.running, self.stopped = True, True, False

    def stop(self):
        self.stopped = True


@pytest.fixture
def server(monkeypatch):
    """Gives the process for a run with these variables in a folder."""
    monkeypatch.setattr(forks, "ForkServer", Server)
    made = ForkServers()

    def begin(directory="/work", **environment):
        return made.server(environment, directory)

    yield begin
    left = list(made._servers.values())
    made.close()
    assert all(one.stopped for one in left)


def test_which_runs_share_a_process(server):
    first = server(MARK="1", RANK="0", WORLD_SIZE="2", MASTER_PORT="1", DDPNB_FOLDER="a")
    assert server("/elsewhere", MARK="1", RANK="1", WORLD_SIZE="3", MASTER_PORT="2", DDPNB_FOLDER="b") is first
    assert first.environment == {"MARK": "1"} and first.directory == "/"
    second = server(MARK="2")
    assert second is not first and server(MARK="1") is first
    third = server(MARK="3")
    assert (second.stopped, first.stopped) == (True, False)  # that was not used for longest
    first.is_idle = third.is_idle = False  # they have ranks that run
    assert server(MARK="4") not in (first, third) and not first.stopped and not third.stopped


def test_a_relative_entry_of_the_python_path_is_that_of_its_folder(server):
    first, second = (server(folder, PYTHONPATH="/opt/mine:src") for folder in ("/one", "/two"))
    assert (first.directory, second.directory) == ("/one", "/two") and first is not second
    assert server("/one", PYTHONPATH="/opt/mine") is server("/two", PYTHONPATH="/opt/mine")


def test_a_process_that_has_ended_is_replaced(server):
    first = server()
    first.running = False
    assert server() is not first and first.stopped


@pytest.mark.full
@pytest.mark.world
def test_relative_entries_of_the_python_path_are_not_shared_between_folders(folder, tmp_path):
    """A commit is checked out in a folder of its own: what it has there is not imported for another one."""
    servers = ForkServers()
    (tmp_path / "other").mkdir()

    def start(directory, **more):
        environment = injected({**os.environ, **more}, str(tmp_path), "raise")
        server = servers.server(environment, str(directory))
        server.ready.result(WITHIN_S)
        return server

    try:
        for directory in (tmp_path, tmp_path / "other"):
            assert start(directory, PYTHONPATH=f"/opt/mine{os.pathsep}src").process.args[0] == sys.executable
        assert [place for _, place, _ in servers._servers] == [str(tmp_path), str(tmp_path / "other")]
        for directory in (tmp_path, tmp_path / "other"):
            start(directory, PYTHONPATH="/opt/mine")
        assert [place for _, place, _ in servers._servers] == [str(tmp_path / "other"), "/"]
    finally:
        servers.close()


@pytest.mark.world
@pytest.mark.full
@pytest.mark.parametrize("program", ["starts a thread", "cannot import torch"])
def test_where_nothing_can_be_forked(folder, monkeypatch, capsys, program):
    """Ranks start in new interpreters; where they could not start there either, their output says why."""
    (folder / "site").mkdir()
    line = (
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
        if program == "starts a thread"
        else "sys.modules['torch._C'] = None"
    )
    (folder / "site" / "sitecustomize.py").write_text(
        f"import sys, threading, time\nif 'forks' in sys.argv:\n    {line}\n"
    )
    path = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    plan = devices.plan(2, "gloo")
    with PlainRun(plan, Program("train.py", ("a",)), fork=True, fence="raise", patience=3.0, stream=None) as job:
        job.run.wait(2 * WITHIN_S)
        output, outcome = job.run.log(0), job.run.outcome
        statuses = [job.processes.exit_status(rank) for rank in (0, 1)]
    if program == "starts a thread":
        assert outcome == "ok", output
        assert capsys.readouterr().err.count("warning: ranks cannot be forked: an import has started 1 thread") == 1
        assert json.loads(Path("a.0.json").read_text())["parent"] == os.getpid()
    else:
        assert outcome == "crash" and statuses == [1, 1]
        assert "the process that forks the ranks exited with status 1" in output and "Error" in output
