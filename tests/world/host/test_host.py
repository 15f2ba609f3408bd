"""All checks of this machine, and one that fails itself."""

from __future__ import annotations

import json

from ddpnb.recording.checks import SECTIONS
from ddpnb.world.host import host, network


def test_this_machine():
    found = host.checks(2)
    order = [SECTIONS.index(one.section) for one in found]
    assert order == sorted(order)
    names = [one.name for one in found]
    assert {
        "system",
        "variables",
        "cores",
        "memory",
        "/dev/shm",
        "open files",
        "disk",
        "host name",
        "gloo",
        "MASTER_PORT",
    } <= {*names}
    json.dumps([dict(one.details) for one in found])


def test_a_check_that_fails_is_unknown(monkeypatch):
    def fails(_):
        raise RuntimeError("odd system")

    monkeypatch.setattr(network, "checks", fails)
    found = {one.name: one for one in host.checks(2)}
    assert (found["network"].state, found["network"].told) == ("unknown", "this check failed: RuntimeError: odd system")
    assert "MASTER_PORT" in found
