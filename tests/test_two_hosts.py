"""The simulated hosts are what they claim to be, and nothing of them is left."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import ipyparallel
import pytest

from tests.conftest import alive
from tests.simulated_hosts import ROOT, Network, missing, wait_until
from tests.two_hosts import two_hosts

pytestmark = [pytest.mark.world, pytest.mark.skipif(bool(missing()), reason=missing())]


def links() -> set[str]:
    done = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True)
    return {entry["ifname"] for entry in json.loads(done.stdout)}


def where():
    """What an engine sees of its host."""
    import os
    import socket
    import time
    from pathlib import Path

    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return socket.gethostname(), os.getpid(), time.monotonic(), boot, os.listdir("/dev/shm")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with two_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.mark.full
def test_engines_see_hosts_of_their_own(hosts):
    alpha, beta = hosts.client[:].apply_sync(where)
    if alpha[0] != hosts.names[0]:
        alpha, beta = beta, alpha
    assert [alpha[0], beta[0]] == hosts.names
    assert max(alpha[1], beta[1]) < 100  # a process ID of a host that has just started
    here = time.monotonic()
    assert alpha[2] - here > 3600 and beta[2] - alpha[2] > 3600
    assert len({alpha[3], beta[3], Path("/proc/sys/kernel/random/boot_id").read_text()}) == 3
    assert alpha[4] == beta[4] == []


def test_files_of_a_host_are_its_own_but_for_the_shared_folder(hosts):
    alpha, beta = hosts.names
    (hosts.shared / "note").write_text("for all")
    for folder in ("/tmp", "/dev/shm"):
        hosts.run(alpha, "touch", f"{folder}/own-{alpha}")
        assert f"own-{alpha}" in hosts.run(alpha, "ls", folder).stdout
        assert f"own-{alpha}" not in hosts.run(beta, "ls", folder).stdout
        assert not os.path.exists(f"{folder}/own-{alpha}")
        hosts.run(alpha, "rm", f"{folder}/own-{alpha}")
    for name in hosts.names:
        assert hosts.run(name, "cat", hosts.shared / "note").stdout == "for all"
        source = hosts.run(name, sys.executable, "-c", "import ddpnb; print(ddpnb.__file__)").stdout
        assert source.strip() == f"{ROOT}/ddpnb/__init__.py"


def test_all_reach_each_other(hosts):
    ask = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 20).recv(9).decode())"
    with socket.create_server((hosts.address, 0)) as server:
        for name in hosts.names:
            with hosts.popen(name, sys.executable, "-c", ask, *server.getsockname(), stdout=subprocess.PIPE) as process:
                server.settimeout(30)
                connection, peer = server.accept()
                with connection:
                    connection.send(b"from here")
                    assert process.communicate(timeout=240)[0] == b"from here\n"
                assert peer[0] == hosts.hosts[name].address
    alpha, beta = hosts.names
    assert hosts.run(alpha, "getent", "hosts", beta).stdout.split() == [hosts.hosts[beta].address, beta]


def test_a_cut_link_drops_what_is_sent_until_it_is_restored(hosts):
    name = hosts.names[1]
    (engine,) = hosts.ids(name)
    (other,) = hosts.ids(hosts.names[0])
    hosts.cut(name)
    lost = hosts.client[engine].apply_async(where)
    assert hosts.client[other].apply_async(where).get(30)[0] == hosts.names[0]  # sent later, and back
    with pytest.raises(TimeoutError):
        lost.get(1)
    hosts.restore(name)
    assert lost.get(60)[0] == name
    assert sorted(hosts.client.ids) == sorted([engine, other])


def test_processes_without_a_parent_are_waited_for(hosts):
    name = hosts.names[0]
    before = set(hosts.pids(name))
    hosts.run(name, "bash", "-c", "(sleep 0.2 &) ; exit 0")
    wait_until("no process of the command is left", lambda: set(hosts.pids(name)) == before)


@pytest.mark.parametrize("resolved", [True, pytest.param(False, marks=pytest.mark.full)])
def test_nothing_is_left(tmp_path, resolved):
    before = links()
    network = Network(tmp_path, resolved=resolved)
    try:
        name = network.names[0]
        assert network.run(name, "getent", "hosts", name).stdout.startswith("10." if resolved else "127.0.1.1")
        process = network.popen(name, "sleep", "1000")
        wait_until("it runs on the host", lambda: network.pids(name))
        pids = [*network.pids(name), *(host.init for host in network.hosts.values())]
        assert len(links()) == len(before) + 1
    finally:
        network.close()
    assert not any(map(alive, pids)) and links() == before
    process.wait(30)


@pytest.mark.full
def test_a_host_dies_at_once(tmp_path):
    with two_hosts(tmp_path) as hosts:
        name = hosts.names[1]
        pids = hosts.pids(name)
        assert pids
        hosts.kill(name)
        assert not any(map(alive, pids)) and not hosts.pids(name)
        (engine,) = hosts.ids(hosts.names[0])
        assert hosts.client[engine].apply_async(where).get(30)[0] == hosts.names[0]


@pytest.mark.full
def test_nothing_is_left_of_a_test_run_that_was_killed(tmp_path):
    before = links()
    program = (
        "import sys, time; from pathlib import Path; from tests.two_hosts import TwoHosts\n"
        "hosts = TwoHosts(Path(sys.argv[1])); print(*[p for n in hosts.names for p in hosts.pids(n)], flush=True)\n"
        "time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, cwd=ROOT) as run:
        pids = [int(pid) for pid in run.stdout.readline().split()]
        run.kill()
    assert pids
    wait_until("all processes end", lambda: not any(map(alive, pids)))
    wait_until("the links are removed", lambda: links() == before)


@pytest.mark.full
def test_an_unencrypted_controller_is_one(tmp_path):
    with two_hosts(tmp_path, encrypted=False) as hosts:
        client = json.loads(Path(hosts.connection_file("client")).read_text())
        assert not client["curve_serverkey"] and client["interface"].endswith(hosts.address)
        assert isinstance(hosts.client, ipyparallel.Client) and len(hosts.client.ids) == 2
