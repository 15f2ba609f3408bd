"""Which addresses reach a listener."""

from __future__ import annotations

import socket

from ddpnb.ranks.remote import addresses


def test_a_listener_is_known_by_its_word():
    with addresses.Listener() as listener:
        assert addresses.reached(["127.0.0.1"], listener.port, listener.word) == [["127.0.0.1", "127.0.0.1"]]
        assert addresses.reached(["127.0.0.1"], listener.port, "another word") == []
    assert addresses.reached(["127.0.0.1"], listener.port, listener.word) == []


def test_a_listener_that_says_nothing_is_none():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert addresses.reached(["127.0.0.1"], silent.getsockname()[1], "word") == []


def test_the_loopback_comes_first():
    own = addresses.own_addresses()
    first = next(iter(own))
    assert first.startswith("127.") and own[first] == "lo"


def test_the_address_that_all_reach():
    assert (
        addresses.common([[["10.0.0.1", "10.0.0.2"]], [["192.168.0.1", "192.168.0.3"], ["10.0.0.1", "10.0.0.3"]]])
        == "10.0.0.1"
    )
    assert (
        addresses.common([[["10.0.0.1", ""], ["127.0.0.1", ""]], [["127.0.0.1", ""], ["10.0.0.1", ""]]]) == "127.0.0.1"
    )
    assert addresses.common([[["10.0.0.1", ""]], []]) == ""
