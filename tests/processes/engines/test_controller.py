"""The controller of ipyparallel, as a process of a world."""

from __future__ import annotations

import errno
import os
import sys

import pytest
import zmq

from ddpnb.processes.engines import controller


@pytest.mark.parametrize(("number", "starts"), [(errno.EADDRINUSE, 3), (errno.EACCES, 0)])
def test_a_port_that_was_taken_meanwhile_is_looked_for_again(monkeypatch, number, starts):
    """Between the search for a free port and its use, any other process may take it."""
    started = []

    def fails():
        raise zmq.ZMQError(number)

    monkeypatch.setenv("DDPNB_CONTROLLER_TRIED", "")
    for name in ("Process", "Hub"):
        monkeypatch.setattr(controller.app, name, getattr(controller.app, name))
    monkeypatch.setattr(controller.heartmonitor, "HeartMonitor", controller.heartmonitor.HeartMonitor)
    monkeypatch.setattr(controller.app, "main", fails)

    def begins_again(path, arguments):
        started.append((path, arguments))
        controller.main()

    monkeypatch.setattr(os, "execv", begins_again)
    with pytest.raises(zmq.ZMQError):
        controller.main()
    assert started == [(sys.executable, [sys.executable, *sys.orig_argv[1:]])] * starts
