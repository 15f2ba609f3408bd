"""The controller of ipyparallel, as a process of a world."""

from __future__ import annotations

import socket

import pytest
import zmq

from ddpnb.ranks.engines import controller


def test_a_reserved_port_is_there_for_zeromq_alone(monkeypatch):
    """Between the search for a free port and its use, any other process might take it."""
    reserved: list[socket.socket] = []
    monkeypatch.setattr(controller, "_reserved", reserved)
    ports = controller.reserve_ports(3)
    try:
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", ports[0]))
        with zmq.Context() as context, context.socket(zmq.ROUTER) as listens:
            listens.bind(f"tcp://127.0.0.1:{ports[0]}")
            assert len(set(ports)) == 3
    finally:
        for kept in reserved:
            kept.close()


def test_the_controller_reserves_its_ports(monkeypatch):
    for owner, name in [
        (controller.app, "Process"),
        (controller.app, "Hub"),
        (controller.heartmonitor, "HeartMonitor"),
        (controller.app.util, "select_random_ports"),
    ]:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    used = []
    monkeypatch.setattr(controller.app, "main", lambda: used.append(controller.app.util.select_random_ports))
    controller.main()
    assert used == [controller.reserve_ports]
