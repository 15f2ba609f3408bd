"""The agent of a host with ranks of a prefixed job, and its launcher: both here, with a real connection and real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import zmq

from ddpnb.errors import WorldError
from ddpnb.ranks.jobs.job_processes import ended
from ddpnb.ranks.remote.job_hosts import JobHosts
from ddpnb.ranks.remote.job_ranks import JobOnHosts, attached
from ddpnb.ranks.remote.messages import way_to
from ddpnb.ranks.remote.mirror import JobMirror
from ddpnb.recorder.files import shared_files
from ddpnb.recorder.files.status_page import StatusPage
from ddpnb.recorder.inject import other_host
from ddpnb.recording import blackbox, protocol, status_file
from tests.waiting import until

START = "0123456789ab-0"
PLACE = protocol.place()
_RANK = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(99)"


class OtherHost:
    """An agent that runs here, in a folder of its own, with processes that say that they are ranks."""

    def __init__(self, folder, hosts):
        self.job = str(folder / "job")
        os.mkdir(self.job)
        self.hosts = hosts(self.job)
        base = folder / "other" / f"ddpnb-{os.geteuid()}"
        base.mkdir(parents=True)
        self.folder = str(base / "job-there")
        self.way = other_host.unpacked(self.hosts.variables[protocol.HOSTS]) | {"addresses": ["127.0.0.1"]}
        self.ranks = []

    def start(self, **way):
        """Start the agent, and wait until the launcher knows it; what it says."""
        said = other_host._start({**self.way, **way}, self.job, self.folder)
        if "why" not in said and isinstance(self.hosts, JobHosts):
            until(lambda: self.hosts.links)
        return said

    def rank(self, rank):
        """A process that is a rank there."""
        folder = os.path.join(self.folder, START)
        os.makedirs(folder, exist_ok=True)
        os.close(shared_files.create(os.path.join(folder, f"rank{rank}.box"), blackbox.BOX_SIZE))
        environment = {**os.environ, protocol.FOLDER: self.job}
        process = subprocess.Popen([sys.executable, "-c", _RANK], stdout=subprocess.PIPE, text=True, env=environment)
        self.ranks.append(process)
        open(os.path.join(self.folder, f"{protocol.JOINED}{process.pid}"), "w").close()
        who = {
            "pid": process.pid, "started": protocol.started(process.pid), "host": "beta", "place": PLACE,
            "start": START, "clock": [0, 0], "rank": rank, "size": 4, "local_size": 2, "device": "cpu",
            "visible_devices": "", "address": "", "directory": "/", "command": ["python"],
        }  # fmt: skip
        with open(os.path.join(folder, f"rank{rank}.json"), "w") as file:
            json.dump(who, file)
        return process

    def close(self):
        self.hosts.close(end=True)
        for process in self.ranks:
            process.kill()
            process.communicate()


@pytest.fixture
def other(tmp_path):
    made = OtherHost(tmp_path, JobHosts)
    yield made
    made.close()


@pytest.fixture
def elsewhere(monkeypatch):
    """For this process the ranks are elsewhere: its own place is not theirs."""
    monkeypatch.setattr(protocol, "place", lambda: "where the launcher is")


def test_a_launcher_with_several_addresses_has_one_link_to_each_host(other, elsewhere):
    other.start(addresses=["127.0.0.9", "127.0.0.1", "192.0.2.200", "127.0.0.5"])
    other.rank(2)
    ranks = JobOnHosts(os.path.join(other.job, START), other.hosts)
    until(lambda: ranks.found() and ranks.state(2))
    (link,) = other.hosts.links.values()
    assert link.look_anew(2)


def test_the_launcher_sees_ranks_through_the_agent(other, elsewhere):
    agent = other.start()
    assert abs(agent["ahead_ns"]) < 1e8  # one clock here
    first, second = other.rank(2), other.rank(3)
    ranks = JobOnHosts(os.path.join(other.job, START), other.hosts)
    until(lambda: len(ranks.found()) == 2 and all(ranks.state(rank) for rank in (2, 3)))
    assert {ranks.host_of(rank) for rank in (2, 3)} == {os.uname().nodename}
    assert ranks.pid(2) == first.pid and ranks.alive(2) and ranks.exit_status(2) is None
    view = ranks.outside()
    assert view.samples([2])[2].memory > 0
    assert view.connections([2, 3]) == {2: [], 3: []}
    assert not view.in_transit({2: []})

    box = os.path.join(other.folder, START, "rank2.box")
    with open(box, "r+b") as file:
        file.seek(5000)
        file.write(b"what rank 2 has done")
    mirrored = Path(other.job, START, "rank2.box")
    until(lambda: mirrored.exists() and b"what rank 2 has done" in mirrored.read_bytes()[:8192])

    second.send_signal(signal.SIGSTOP)
    until(lambda: ranks.stopped(3))
    second.kill()
    until(lambda: ranks.exit_status(3) == -signal.SIGKILL)  # nobody has waited for it yet
    assert not ranks.alive(3) and ranks.alive(2)


def test_another_process_asks_through_the_launcher(other, elsewhere):
    """As one that attaches to the job."""
    assert way_to(other.job) is None
    other.start()
    first = other.rank(2)
    folder = os.path.join(other.job, START)
    until(lambda: os.path.exists(os.path.join(folder, "rank2.json")))
    ranks = attached(folder)
    with contextlib.closing(ranks):
        until(lambda: ranks.found() and ranks.state(2))
        assert ranks.host_of(2) == os.uname().nodename
        assert (ranks.pid(2), ranks.alive(2), ranks.exit_status(2)) == (first.pid, True, None)
        assert ranks.outside().samples([2])[2].memory > 0
        assert ranks.outside().connections([2]) == {2: []}
        first.kill()
        until(lambda: other.hosts._left)  # with the last rank of its host the agent ends
        until(lambda: ranks.exit_status(2) == -signal.SIGKILL)
    with contextlib.closing(attached(folder)) as later:
        until(lambda: later.exit_status(2) == -signal.SIGKILL)


def ends(there, rank):
    """A rank says how it ends, and waits."""
    StatusPage(status_file.path_of(there, rank)).write({"how": "finished", "code": 0, "at_ns": 1})


def test_ranks_learn_that_their_ending_is_known(other, elsewhere):
    agent = other.start()
    processes = other.rank(2), other.rank(3)
    ranks = JobOnHosts(os.path.join(other.job, START), other.hosts)
    until(lambda: len(ranks.found()) == 2)
    there = os.path.join(other.folder, START)
    ends(there, 2)
    until(lambda: os.path.exists(os.path.join(there, "rank2.sent")))
    assert ended(os.path.join(other.job, START), 2)
    ends(there, 3)  # the last one of its host
    until(lambda: not os.path.exists(other.folder))
    assert ended(os.path.join(other.job, START), 3)
    assert ranks.alive(3) and psutil.pid_exists(agent["pid"])
    for process in processes:
        process.kill()
    until(lambda: [ranks.exit_status(rank) for rank in (2, 3)] == [-signal.SIGKILL] * 2)
    until(lambda: not psutil.pid_exists(agent["pid"]))
    assert not ranks.silent_hosts()


def a_rank_whose_ending_is_known(other):
    """The process of rank 2, which still lives, and the ranks as the launcher sees them."""
    process = other.rank(2)
    ranks = JobOnHosts(os.path.join(other.job, START), other.hosts)
    until(lambda: ranks.found() and ranks.state(2))
    ends(os.path.join(other.folder, START), 2)
    until(lambda: not os.path.exists(other.folder))
    return process, ranks


def test_a_scheduler_may_end_the_agent_with_the_last_rank(other, elsewhere):
    agent = other.start()
    process, ranks = a_rank_whose_ending_is_known(other)
    os.kill(agent["pid"], signal.SIGKILL)
    process.kill()
    until(lambda: ranks.exit_status(2) is not None)
    assert not ranks.silent_hosts()


def test_another_agent_takes_the_place_of_one_that_has_ended(other, elsewhere):
    first = other.start()
    process, ranks = a_rank_whose_ending_is_known(other)
    process.kill()
    second = other.start()  # for the next step of the job
    assert second["pid"] != first["pid"] and len(other.hosts.links) == 1
    other.rank(3)
    until(lambda: 3 in ranks.found() and ranks.state(3))
    assert ranks.alive(3) and not ranks.alive(2)


def test_the_end_of_the_job_ends_what_runs_there_and_leaves_nothing(other):
    agent = other.start()
    process = other.rank(2)
    until(lambda: os.path.exists(os.path.join(other.job, START, "rank2.json")))
    other.hosts.close(end=True)
    assert process.wait(60) == -signal.SIGKILL
    until(lambda: not psutil.pid_exists(agent["pid"]) and not os.path.exists(other.folder))


def test_ranks_that_are_left_running_keep_their_agent(other):
    agent = other.start()
    process = other.rank(2)
    until(lambda: os.path.exists(os.path.join(other.job, START, "rank2.json")))
    other.hosts.close(end=False)
    time.sleep(0.5)
    assert process.poll() is None and os.path.exists(other.folder)
    process.kill()
    process.wait()
    until(lambda: not psutil.pid_exists(agent["pid"]) and not os.path.exists(other.folder))


@pytest.mark.full
def test_the_agent_ends_with_its_launcher(tmp_path):
    code = (
        "import sys, time; from ddpnb.ranks.remote.job_hosts import JobHosts\n"
        "print(JobHosts(sys.argv[1]).variables['DDPNB_HOSTS'], flush=True); time.sleep(99)"
    )

    class Away:
        variables: dict[str, str]

        def __init__(self, job):
            self.process = subprocess.Popen([sys.executable, "-c", code, job], stdout=subprocess.PIPE, text=True)
            self.variables = {protocol.HOSTS: self.process.stdout.readline().strip()}

        def close(self, *, end):
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()

    other = OtherHost(tmp_path, Away)
    with contextlib.closing(other):
        agent = other.start()
        process = other.rank(2)
        other.hosts.close(end=True)
        time.sleep(1)
        assert process.poll() is None  # it is not ours to end
        process.kill()
        process.wait()
        until(lambda: not psutil.pid_exists(agent["pid"]) and not os.path.exists(other.folder), 30)


def test_who_has_other_keys_is_refused(other):
    public, secret = (key.decode() for key in zmq.curve_keypair())
    assert "does not answer" in other.start(public=public, secret=secret)["why"]
    assert not other.hosts.links and not os.path.exists(other.folder)


@pytest.mark.full
def test_a_launcher_that_is_not_reached_is_said(other):
    assert "does not answer (127.0.0.1:9)" in other.start(port=9)["why"]
    assert not os.path.exists(other.folder)


def test_no_connection_without_encryption(tmp_path, monkeypatch):
    monkeypatch.setattr(zmq, "has", lambda what: what != "curve")
    with pytest.raises(WorldError, match="cannot encrypt"):
        JobHosts(str(tmp_path))


def test_files_of_no_start_are_not_taken(tmp_path):
    mirror = JobMirror(str(tmp_path))
    with pytest.raises(ValueError, match="no start"):
        mirror.take({"starts": {}, "folders": {"../../etc": {"paged": [], "others": []}}})
    assert not list(tmp_path.iterdir())


def test_the_way_to_the_launcher_survives_any_shell():
    way = {"addresses": ["10.0.0.1"], "server": "a$b'c\"d\\e f"}
    text = other_host.packed(way)
    assert text.replace("-", "").replace("_", "").rstrip("=").isalnum()
    assert other_host.unpacked(text) == way
