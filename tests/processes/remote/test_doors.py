"""Which addresses reach a door."""

from __future__ import annotations

import socket

from ddpnb.processes.remote import doors


def test_a_door_is_known_by_its_word():
    with doors.Door() as door:
        assert doors.reached(["127.0.0.1"], door.port, door.word) == [["127.0.0.1", "127.0.0.1"]]
        assert doors.reached(["127.0.0.1"], door.port, "another word") == []
    assert doors.reached(["127.0.0.1"], door.port, door.word) == []


def test_a_door_that_says_nothing_is_none():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert doors.reached(["127.0.0.1"], silent.getsockname()[1], "word") == []


def test_the_loopback_comes_first():
    own = doors.own_addresses()
    assert own[0].startswith("127.") and len(own) == len(set(own))
    assert doors.interface_of(own[0]) == "lo"
    assert doors.interface_of("192.0.2.1") == ""


def test_the_address_that_all_reach():
    assert (
        doors.common([[["10.0.0.1", "10.0.0.2"]], [["192.168.0.1", "192.168.0.3"], ["10.0.0.1", "10.0.0.3"]]])
        == "10.0.0.1"
    )
    assert doors.common([[["10.0.0.1", ""], ["127.0.0.1", ""]], [["127.0.0.1", ""], ["10.0.0.1", ""]]]) == "127.0.0.1"
    assert doors.common([[["10.0.0.1", ""]], []]) == ""
