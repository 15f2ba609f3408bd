"""The hosts of a Client, before anything is launched."""

from __future__ import annotations

import pytest

import ddpnb
from ddpnb.errors import UsageError
from ddpnb.ranks.remote import hosts


def test_hosts_have_the_order_of_a_scheduler():
    names = ["node10", "node9", "gpu-2b", "gpu-2a", "10", "a"]
    assert sorted(names, key=hosts._natural) == ["10", "a", "gpu-2a", "gpu-2b", "node9", "node10"]


@pytest.mark.parametrize("client", [4, "slurm", object()])
def test_what_is_no_client_is_refused(client):
    with pytest.raises(UsageError, match=r"hosts must be a connected ipyparallel\.Client"):
        ddpnb.launch(2, hosts=client)


@pytest.mark.parametrize("given", [{"devices": [0]}, {"port": 29500}, {"fork": True}])
def test_what_is_for_one_machine_is_refused(given):
    with pytest.raises(UsageError, match="for ranks on this machine"):
        ddpnb.launch(2, hosts=object(), **given)
