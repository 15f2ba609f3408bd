"""The agent of a World and its launcher: both here, with a real connection; the agent starts a process that is no engine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from types import SimpleNamespace

import psutil
import pytest

from ddpnb.errors import WorldError
from ddpnb.ranks.remote import bootstrap
from ddpnb.ranks.remote.world_agents import WorldAgents
from tests.waiting import until


class Here:
    """As ``Hosts``: one host, whose engine is this process."""

    address = "127.0.0.1"

    def __init__(self):
        self.all = [SimpleNamespace(name="beta", cpus=())]
        self.removes = True

    def start_agents(self, order, names, deadline):
        """The agent does not see the folders of the launcher: it makes its own, here at the same place."""
        given = {**order(self.all[0]), "token": "is nowhere"}
        for folder in given["folders"] if self.removes else ():
            shutil.rmtree(folder)
        pid = bootstrap.start(given)
        for folder in given["folders"]:
            open(os.path.join(folder, order(self.all[0])["token"]), "w").close()
        return dict.fromkeys(names, pid)

    def ask_after(self, _host, pid):
        return SimpleNamespace(ready=lambda: True, get=lambda _timeout: bootstrap.exit_status(pid))


@pytest.fixture
def folders(tmp_path):
    """Those of a world."""
    made = [tmp_path / f"ddpnb-{os.geteuid()}" / f"ddpnb-1-{name}" for name in ("memory", "output")]
    for folder in made:
        folder.mkdir(parents=True)
    made[0].parent.chmod(0o700)
    return list(map(str, made))


@pytest.fixture
def agents(folders, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    started = WorldAgents(Here(), folders, {"registration": 1})
    yield started
    started.close(end=True)


def start(agents):
    agents.start(["beta"], time.monotonic() + 30)
    return agents.links["beta"], agents._pids["beta"]


def test_an_agent_answers_and_leaves_nothing(agents, folders, tmp_path):
    link, pid = start(agents)
    assert abs(link.ahead_ns) < 1e8  # one clock here
    assert all(map(os.path.isdir, folders))
    assert link.request("missing", [str(tmp_path), "/nowhere"]) == ["/nowhere"]
    port = link.request("reserve")
    with socket.socket() as taken, pytest.raises(OSError):
        taken.bind(("127.0.0.1", port))
    link.request("free", port)
    link.request("put", os.path.join(folders[1], "cell1.py"), "x = 1\n")
    assert link.look_anew(5) and not agents.late()
    with pytest.raises(WorldError, match=r"refused \(nonsense\)"):
        link.request("nonsense")
    agents.close(end=True)
    until(lambda: not psutil.pid_exists(pid))
    assert not any(map(os.path.exists, folders))
    assert not [entry for entry in os.scandir(tmp_path / f"ddpnb-{os.geteuid()}") if "ddpnb-" in entry.name]


def test_a_request_that_is_repeated_is_done_once(agents):
    link, _ = start(agents)
    message = {"kind": "request", "number": 7, "verb": "reserve", "given": []}
    first, again = [link._send(message).result(10)["content"] for _ in range(2)]
    assert first == again != link.request("reserve")


def test_a_process_is_started_and_ended(agents, folders):
    link, _ = start(agents)
    link.mirror.starts[0] = 1
    environment = {"DDPNB_FOLDER": folders[0], "RANK": "0", "PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"}
    pid = link.request("start", 0, environment, {}, "/", 1)  # it ends at once: it has no library
    until(lambda: (link.state(pid) or {}).get("exit") is not None)
    assert "encodings" in link.request("log", 0)
    link.request("kill", 0)
    until(lambda: os.path.exists(os.path.join(folders[0], "rank0.box")))


def test_an_agent_that_was_killed_is_known_and_replaced(agents):
    link, pid = start(agents)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not agents.late() and link.ended)
    assert "SIGKILL" in link.ended
    with pytest.raises(WorldError, match="the agent on host beta"):
        link.request("missing", [])
    other, again = start(agents)
    assert again != pid and other is not link and other.mirror is link.mirror
    assert other.request("missing", []) == []


def test_an_agent_that_cannot_make_its_folders_says_why(agents):
    agents._hosts.removes = False
    with pytest.raises(RuntimeError, match="exists"):
        start(agents)
    assert not agents.links
