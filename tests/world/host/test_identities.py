"""The names of this machine, its user and the machines of a job."""

from __future__ import annotations

import os
import socket

from ddpnb.world.host.identities import names


def test_this_machine():
    hosts, users, homes = names({"HOME": "/home/ann", "USER": "ann", "SLURM_JOB_NODELIST": "gpu[1-2]", "HOSTNAME": ""})
    assert {socket.gethostname(), "gpu[1-2]"} <= hosts and "ann" in users
    assert {"/home/ann", os.path.expanduser("~")} <= homes
    assert "" not in hosts | users | homes
