"""Jobs that were started without the recorder, found by the environment of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest

from ddpnb.errors import UsageError, WorldError
from ddpnb.ranks import py_spy
from ddpnb.ranks.jobs.found_job import FoundJob
from ddpnb.ranks.jobs.search import job_of
from ddpnb.ranks.jobs.unrecorded import _launch, unrecorded_jobs, unrecorded_jobs_of
from ddpnb.ranks.jobs.unrecorded_processes import UnrecordedProcesses
from ddpnb.recording import protocol
from ddpnb.recording.verbs import Hold, Snapshot
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the environment of processes in /proc")

SLEEP = "import time; time.sleep(120)"
WORKER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"


def environment(rank, size=2, port="29500", **more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DDPNB_")}
    given = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {**clean, **{name: str(value) for name, value in {**given, **more}.items()}}


def own_port(number=0):
    """No other job on this host has it: no store listens there."""
    return f"{os.getpid()}{number}"


@contextmanager
def launcher(*ranks, code=SLEEP, shell=False):
    """A process that starts one process with each of these environments; gives its process ID when all run."""
    command = ["/bin/sh", "-c", f'"{sys.executable}" -c "{code}"; true'] if shell else [sys.executable, "-c", code]
    start = (
        f"import subprocess, time\nfor one in {list(ranks)!r}: subprocess.Popen({command!r}, env=one)\ntime.sleep(120)"
    )
    bare = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    process = subprocess.Popen([sys.executable, "-c", start], start_new_session=True, env=bare)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def children(pid):
    return [child.pid for child in psutil.Process(pid).children()]


def jobs_below(pid, ranks=2):
    """The jobs of a launcher, once they have so many ranks in all."""

    def complete():
        try:
            jobs = unrecorded_jobs_of(pid)
        except UsageError:
            return []
        return jobs if sum(len(job.ranks) for job in jobs) == ranks else []

    return until(complete)


def test_the_ranks_of_a_launcher():
    port = own_port()
    with launcher(environment(0, port=port), environment(1, port=port)) as pid:
        (job,) = jobs_below(pid)
        assert sorted(job.ranks) == [0, 1] and (job.size, job.recorded, job.ended) == (2, False, ())
        assert job_of(pid) == job_of(job.ranks[1]) == job_of(job.target) == job
        assert job in unrecorded_jobs()
        assert "ranks 0 and 1 of 2" in str(job) and str(job).endswith("(not recorded)")


def test_children_of_ranks_are_no_ranks():
    port = own_port()
    with launcher(environment(0, port=port), environment(1, port=port), code=WORKER) as pid:
        (job,) = jobs_below(pid)
        worker = until(lambda: children(job.ranks[0]))[0]
        (same,) = unrecorded_jobs_of(worker)
        assert same.ranks == job.ranks


def test_a_shell_that_starts_python_is_no_rank():
    port = own_port()
    with launcher(environment(0, port=port), environment(1, port=port), shell=True) as pid:
        (job,) = jobs_below(pid)
        assert all(
            os.path.basename(os.readlink(f"/proc/{rank}/exe")).startswith("python") for rank in job.ranks.values()
        )


def test_a_launcher_with_the_rank_of_its_node():
    """As in the pods of a cluster: the launcher has RANK and WORLD_SIZE too."""
    port = own_port()
    inner = [environment(rank, port=port) for rank in (0, 1)]
    code = f"import subprocess, sys, time\nfor one in {inner!r}: subprocess.Popen([sys.executable, '-c', {SLEEP!r}], env=one)\ntime.sleep(120)"
    with launcher(environment(0, 1, port=port, LOCAL_RANK=""), code=code) as pid:
        (job,) = jobs_below(pid)
        assert (sorted(job.ranks), job.size) == ([0, 1], 2)


def test_a_rank_that_starts_a_job_of_its_own():
    inner = environment(0, 1, port=own_port(1))
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}], env={inner!r})"
    with launcher(environment(0, port=own_port()), code=code) as pid:
        outer, own = sorted(jobs_below(pid), key=lambda job: -job.size)
        assert (outer.size, own.size) == (2, 1) and outer.ranks != own.ranks
        assert (job_of(own.ranks[0]), job_of(outer.ranks[0])) == (own, outer)


def test_jobs_are_not_mixed():
    one, other = own_port(1), own_port(2)
    with launcher(environment(0, port=one), environment(1, port=one), environment(0, port=other)) as pid:
        jobs = jobs_below(pid, 3)
        assert sorted(sorted(job.ranks) for job in jobs) == [[0], [0, 1]]
        with pytest.raises(UsageError, match="has started 2 jobs") as refused:
            job_of(pid)
        assert all(str(job) in refused.value.hint for job in jobs)
        assert job_of(jobs[0].ranks[0]) == jobs[0]


def test_two_jobs_at_one_address_are_told_apart_by_their_launchers():
    port = own_port()
    ranks = environment(0, port=port), environment(1, port=port)
    with launcher(*ranks) as one, launcher(*ranks) as other:
        (first,), (second,) = jobs_below(one), jobs_below(other)
        assert not {*first.ranks.values()} & {*second.ranks.values()}


def test_a_rank_of_this_host_that_is_not_there_has_ended():
    with launcher(environment(1, 4, port=own_port(), LOCAL_RANK=1, LOCAL_WORLD_SIZE=2)) as pid:
        (job,) = jobs_below(pid, 1)
        assert job.ended == (0,)  # ranks 2 and 3 are on another host


def test_processes_of_ddpnb_are_not_listed():
    port = own_port()
    with launcher(environment(0, port=port, **{protocol.FOLDER: "/x"}), environment(1, port=port)) as pid:
        (job,) = jobs_below(pid, 1)
        assert list(job.ranks) == [1]


@pytest.mark.parametrize("rank", ["x", "-1", "7", ""])
def test_a_rank_that_is_none(rank):
    with launcher(environment(rank, port=own_port())) as pid:
        until(lambda: children(pid))
        with pytest.raises(UsageError, match="no process there has RANK and WORLD_SIZE"):
            job_of(pid)


def test_processes_without_a_rank_in_their_environment_are_listed():
    bare = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    with launcher(bare, bare) as pid:
        pids = until(lambda: len(children(pid)) == 2 and children(pid))
        until(lambda: all(any(stack.frames for stack in py_spy.py_spy_stacks(child)) for child in pids))
        with pytest.raises(UsageError, match="no process there has RANK") as refused:
            job_of(pid)
    assert "mp.spawn" in refused.value.hint and "ddpnb run -- python" in refused.value.hint
    assert all(f"{child}: <module>" in refused.value.hint for child in pids)


def test_what_is_no_python_process():
    process = subprocess.Popen(["sleep", "60"])
    try:
        with pytest.raises(UsageError, match="it is no Python process"):
            job_of(process.pid)
    finally:
        process.kill()
        process.wait(60)
    with pytest.raises(UsageError, match="there is no process"):
        job_of(process.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user for a moment")
def test_a_process_of_another_user():
    os.seteuid(65534)
    try:
        with pytest.raises(UsageError, match="belongs to another user"):
            job_of(os.getppid())
    finally:
        os.seteuid(0)


# -- their stacks


@contextmanager
def attached():
    port = own_port()
    code = "import time\ndef rest(step):\n    time.sleep(120)\nrest(7)"
    with launcher(environment(0, port=port), environment(1, port=port), code=code) as pid:
        (job,) = jobs_below(pid)
        until(lambda: all(any(s.frames for s in py_spy.py_spy_stacks(rank)) for rank in job.ranks.values()))
        yield job, UnrecordedProcesses(job)


@pytest.mark.full
def test_stacks_with_variables():
    with attached() as (job, processes):
        time.sleep(1.0)
        answers = processes.ask([0, 1], Snapshot(), 1.0)
        for rank in (0, 1):
            main = answers[rank].stacks[0]
            assert main["main"] and main["frames"][-1]["function"] == "rest"
            assert main["frames"][-1]["locals"] == {"step": "7"}
            assert answers[rank].waits_on == "sleep()"
        again = processes.ask([0], Snapshot(), 1.0)
        assert again[0].stacks is answers[0].stacks  # it is too early to read it again
        assert again[0].age_s > answers[0].age_s >= 0
        time.sleep(5.5)
        (later,) = processes.ask([0], Snapshot(), 1.0).values()
        assert later.stacks is not answers[0].stacks
        assert replace(later, age_s=0.0) == replace(answers[0], age_s=0.0)  # its main thread has not run
        assert processes.pid(0) == job.ranks[0] and processes.alive(0) and processes.exit_status(0) is None


def test_a_rank_that_ends():
    with attached() as (job, processes):
        os.kill(job.ranks[1], signal.SIGKILL)
        until(lambda: not processes.alive(1))
        assert processes.exit_status(1) in (-9, -254)
        assert processes.exit_status(0) is None
        time.sleep(1.5)
        assert list(processes.ask([0, 1], Snapshot(), 1.0)) == [0]


def test_other_requests_name_the_prefix():
    job = FoundJob("", {0: os.getpid()}, 1, launch=("torchrun", "--nproc-per-node", "2", "my train.py"))
    with pytest.raises(WorldError, match="started without ddpnb") as refused:
        UnrecordedProcesses(job).ask([0], Hold(), 1.0)
    assert "ddpnb run -- torchrun --nproc-per-node 2 'my train.py'" in refused.value.hint


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (["/v/bin/python3", "/v/bin/torchrun", "-n", "2", "a.py"], "torchrun -n 2 a.py"),
        (["torchrun", "a.py"], "torchrun a.py"),
        (["python", "/v/bin/accelerate", "launch", "a.py"], "accelerate launch a.py"),
        (["python", "-m", "torch.distributed.run", "a.py"], "python -m torch.distributed.run a.py"),
        (["/bin/bash"], "<the command that starts the job>"),
        ([], "<the command that starts the job>"),
    ],
)
def test_the_launch_command_as_it_is_typed(command, typed):
    assert FoundJob("", {0: 1}, 1, launch=_launch(tuple(command))).prefixed == f"ddpnb run -- {typed}"
