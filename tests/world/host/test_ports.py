"""Where the ranks would meet: names and ports, with real sockets."""

from __future__ import annotations

import os
import socket

import pytest

from ddpnb.world.host import ports
from ddpnb.world.host.network import resolve
from ddpnb.world.host.ports import ephemeral, listeners, master_address, master_port

MINE = {"127.0.0.1", "192.0.2.7"}
NAMES = {"node-0": ["192.0.2.7"], "node-1": ["192.0.2.8"], "me": ["127.0.1.1"]}


def resolver(name):
    return (NAMES[name], "") if name in NAMES else ([], "Name or service not known")


@pytest.mark.parametrize(
    ("variables", "here", "state", "words"),
    [
        ({}, True, "ok", "not set"),
        ({"MASTER_ADDR": "node-0"}, True, "ok", "node-0 resolves to 192.0.2.7: this machine"),
        ({"MASTER_ADDR": "node-1"}, False, "ok", "another machine"),
        ({"MASTER_ADDR": "node-1", "RANK": "1"}, False, "ok", "another machine"),
        ({"MASTER_ADDR": "node-1", "RANK": "0"}, False, "warning", "rank 0 is here"),
        ({"MASTER_ADDR": "node-9"}, False, "warning", "does not resolve"),
        ({"MASTER_ADDR": "me", "SLURM_NNODES": "1"}, True, "ok", "this machine"),
        ({"MASTER_ADDR": "me", "SLURM_NNODES": "2"}, True, "warning", "each machine means itself"),
    ],
)
def test_the_address(variables, here, state, words):
    found, check = master_address(variables, MINE, resolver)
    assert (found, check.state) == (here, state) and words in check.told, check
    assert check.code == ("DDP104" if state == "warning" else "") and bool(check.todo) == (state == "warning")


def test_an_address_without_a_name():
    assert master_address({"MASTER_ADDR": "127.0.0.1"}, MINE, resolve)[1].told == "127.0.0.1: this machine"


@pytest.fixture
def taken():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_port_that_is_taken_is_named_with_the_process(taken):
    check = master_port({"MASTER_PORT": str(taken)}, None, here=True)
    assert (check.state, check.code) == ("warning", "DDP105")
    assert f"(PID {os.getpid()})" in check.told
    assert listeners(taken) == check.details["listeners"]


def test_one_that_is_free(taken):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    check = master_port({"MASTER_PORT": str(port)}, (32768, 60999), here=True)
    assert check.state == "ok" and f"{port} is free" in check.told and "a firewall" in check.told
    assert ("by chance" in check.told) == (32768 <= port <= 60999)


def test_that_of_another_machine_is_not_looked_for_here(taken):
    check = master_port({"MASTER_PORT": str(taken)}, None, here=False)
    assert check.state == "ok" and "on another machine" in check.told


@pytest.mark.parametrize("text", ["0", "70000", "x", "-1"])
def test_what_is_no_port(text):
    assert master_port({"MASTER_PORT": text}, None, here=True).code == "DDP101"


def test_few_ports():
    check = master_port({"MASTER_PORT": "1"}, (60000, 60099), here=False)
    assert (check.state, check.code) == ("warning", "DDP705")


def test_this_machine():
    assert [one.name for one in ports.checks({})] == ["MASTER_ADDR", "MASTER_PORT"]
    low, high = ephemeral()
    assert 0 < low < high < 65536
