"""A process on another host than its launcher finds its folder without one, or only records."""

from __future__ import annotations

import os
import threading
import time

import pytest

from ddpnb.ranks.remote.job_hosts import JobHosts
from ddpnb.recorder.files import clock
from ddpnb.recorder.inject import other_host
from ddpnb.recording import protocol


@pytest.fixture
def job(tmp_path):
    """The folder of a job where its launcher is."""
    path = tmp_path / "ddpnb-7-job"
    path.mkdir()
    return str(path)


@pytest.fixture
def away(monkeypatch, tmp_path, job):
    """Makes this process one on another host than the launcher of a job."""
    monkeypatch.setenv("DDPNB_SHM", str(tmp_path))
    for name in (protocol.RECORD, protocol.CLOCK, protocol.FENCE, protocol.PARENT):
        monkeypatch.setenv(name, "")  # so that it is as before in the end
    monkeypatch.setenv(protocol.FOLDER, job)
    monkeypatch.setenv(protocol.JOB, job)

    def go(way):
        here = {"boot": "another", "directory": str(tmp_path), "addresses": ["127.0.0.1"]}
        monkeypatch.setenv(protocol.HOSTS, other_host.packed({**way, **here, **go.more}))

    go.more = {}
    yield go
    clock.set_ahead_ns(0)


def way_of(hosts):
    return other_host.unpacked(hosts.variables[protocol.HOSTS])


def test_ranks_record_alone_where_the_launcher_is_not_reached(away, job, tmp_path, capsys):
    hosts = JobHosts(job)
    away.more = {"addresses": []}
    away(way_of(hosts))
    hosts.close(end=False)
    other_host.join()
    assert os.environ[protocol.RECORD] == "1" and os.environ[protocol.FENCE] == "off"
    alone = str(tmp_path / "ddpnb-record-ddpnb-7-job")
    assert os.environ[protocol.JOB] == alone
    assert protocol.job_folder(os.environ) == os.path.join(alone, protocol.host_folder(protocol.host()))
    said = capsys.readouterr().err
    assert "not watched, only recorded: its launcher does not answer (no address)" in said and alone in said

    os.environ |= {protocol.RECORD: "", protocol.JOB: job}  # the next rank
    other_host.join()
    assert os.environ[protocol.JOB] == alone
    assert not capsys.readouterr().err


def test_ranks_of_a_host_share_one_agent(away, job):
    hosts = JobHosts(job)
    try:
        away(way_of(hosts))
        threads = [threading.Thread(target=other_host.join) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        folder = other_host.folder_of(job)
        assert os.environ[protocol.JOB] == folder
        deadline = time.monotonic() + 240
        while not hosts.links and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(hosts.links) == 1
        assert protocol.lives(os.environ[protocol.PARENT])
        assert abs(int(os.environ[protocol.CLOCK])) < 1e8  # one clock here
        assert {"agent.json", f"joined-{os.getpid()}"} <= set(os.listdir(folder))
        assert not os.path.exists(other_host.lock_of(folder))
    finally:
        hosts.close(end=False)
        os.unlink(os.path.join(folder, f"joined-{os.getpid()}"))  # this process lives on


def test_on_the_launchers_host_nothing_changes(monkeypatch, tmp_path):
    way = {"boot": protocol.boot(), "directory": str(tmp_path)}
    monkeypatch.setenv(protocol.HOSTS, other_host.packed(way))
    monkeypatch.setenv(protocol.FOLDER, str(tmp_path))
    before = dict(os.environ)
    other_host.join()
    assert dict(os.environ) == before
