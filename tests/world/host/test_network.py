"""Which interface gloo and NCCL take, on machines with several; and this machine."""

from __future__ import annotations

import socket
import time

import pytest

from ddpnb.world.host import network
from ddpnb.world.host.network import Interface, gloo, host_name, links, nccl, nccl_interfaces, resolve

LO = Interface("lo", True, ("127.0.0.1", "::1"))
ETH = Interface("eth0", True, ("192.0.2.7", "2001:db8::7"))
ENS = Interface("ens5", True, ("198.51.100.7",))
IB = Interface("ib0", True, ("203.0.113.7",))
DOCKER = Interface("docker0", True, ("172.17.0.1",))
DOWN = Interface("eth1", False, ("192.0.2.8",))
SIX = Interface("six0", True, ("2001:db8::9",))


def names(asked, known, family=""):
    return [one.name for one in nccl_interfaces(asked, family, known)]


@pytest.mark.parametrize(
    ("asked", "known", "chosen"),
    [
        ("", [LO, ETH, IB], ["ib0"]),
        ("", [LO, DOCKER, ETH, ENS], ["eth0", "ens5"]),
        ("", [LO, DOCKER], ["docker0"]),
        ("", [LO], ["lo"]),
        ("", [DOWN, LO], ["lo"]),
        ("", [], []),
        ("eth", [LO, ETH, ENS], ["eth0"]),
        ("e", [LO, ETH, ENS], ["eth0", "ens5"]),
        ("=eth0", [LO, ETH, ENS], ["eth0"]),
        ("=eth", [LO, ETH], []),
        ("^docker,lo", [LO, DOCKER, ETH], ["eth0"]),
        ("^=eth0", [LO, ETH, ENS], ["lo", "ens5"]),
        ("eth0:1234", [LO, ETH], ["eth0"]),
        ("eth1", [LO, DOWN], []),
        ("ib0,ens5", [ENS, IB], ["ens5", "ib0"]),
    ],
)
def test_what_nccl_takes(asked, known, chosen):
    assert names(asked, known) == chosen


def test_the_family_that_nccl_is_given():
    assert names("", [LO, ETH, SIX], "AF_INET") == ["eth0"]
    assert names("", [LO, ENS, SIX], "AF_INET6") == ["six0"]


def test_the_check_of_nccl():
    assert nccl({}, [LO, ETH, ENS]).told == "would use eth0 (192.0.2.7); others that match: ens5"
    assert (
        nccl({"NCCL_SOCKET_IFNAME": "=ens5"}, [LO, ETH, ENS]).told
        == "would use ens5 (198.51.100.7), as NCCL_SOCKET_IFNAME says"
    )
    missing = nccl({"NCCL_SOCKET_IFNAME": "ib"}, [LO, ETH])
    assert (missing.state, missing.code) == (
        "warning",
        "DDP110",
    ) and missing.todo == "Set NCCL_SOCKET_IFNAME to one of: eth0."
    assert nccl({}, [LO, DOCKER]).code == "DDP110"


def test_what_gloo_takes_by_the_host_name():
    mine = gloo({}, "node", ["127.0.0.1"], [LO, ETH], several=False)
    assert (mine.state, mine.told) == ("ok", "uses lo (127.0.0.1), to which the host name resolves")
    assert gloo({}, "node", ["127.0.0.1"], [LO, ETH], several=True).code == "DDP110"


def test_a_host_name_that_means_another_machine():
    found = gloo({}, "node", ["192.0.2.77"], [LO, ETH], several=False)
    assert (found.state, found.code) == ("warning", "DDP110") and "uses the loopback" in found.told


@pytest.mark.parametrize(
    ("asked", "state", "words"),
    [
        ("eth0", "ok", "uses eth0 (192.0.2.7)"),
        ("eth0,ens5", "ok", "uses eth0 (192.0.2.7), ens5 (198.51.100.7)"),
        ("ib0", "warning", "no interface ib0"),
        ("eth1", "warning", "eth1 is down"),
        ("eth", "warning", "no interface eth with"),
    ],
)
def test_what_gloo_is_given(asked, state, words):
    found = gloo({"GLOO_SOCKET_IFNAME": asked}, "node", ["127.0.0.1"], [LO, ETH, ENS, DOWN], several=True)
    assert found.state == state and words in found.told and found.code == ("DDP110" if state == "warning" else "")


@pytest.mark.parametrize(
    ("addresses", "several", "state", "words"),
    [
        (["192.0.2.7"], True, "ok", "node resolves to 192.0.2.7"),
        (["127.0.1.1"], False, "ok", "right on one machine, wrong for several"),
        (["127.0.1.1"], True, "warning", "the other machines cannot reach it"),
        (["192.0.2.99"], False, "warning", "not an address of this machine"),
        ([], False, "warning", "does not resolve (Name or service not known)"),
    ],
)
def test_the_host_name(addresses, several, state, words):
    found = host_name("node", addresses, "Name or service not known", [LO, ETH], several=several)
    assert found.state == state and words in found.told and bool(found.todo) == (state == "warning")


def test_interfaces_are_listed_with_those_that_are_down():
    found = links([LO, ETH, DOWN, Interface("wg0", True, ())])
    assert found.told == "lo (127.0.0.1), eth0 (192.0.2.7); down: eth1; without an address: wg0; IPv6"
    assert links([DOWN]).state == "warning"


def test_names():
    assert resolve("127.0.0.1") == (["127.0.0.1"], "")
    addresses, trouble = resolve("no-such-name.invalid")
    assert addresses == [] and trouble
    assert resolve("x" * 300)[1]


def test_a_name_server_that_hangs(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(1.0) or [])
    assert resolve("node", timeout=0.1) == ([], "no answer within 0.1 s")


def test_this_machine():
    found = network.checks({})
    assert [one.name for one in found] == ["loopback", "interfaces", "host name", "gloo", "NCCL"]
    assert {one.section for one in found} == {"network"}
    assert any("127.0.0.1" in one.addresses for one in network.interfaces())
