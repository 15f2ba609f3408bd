"""What a rank tells the doctor: versions of this process, and calls as long as time allows."""

from __future__ import annotations

import pytest
import torch

from ddpnb.recorder.process import measuring


def test_the_versions_of_this_process():
    found = measuring.software()
    assert found["torch"] == torch.__version__ and "gloo" in found["backends"]
    assert len(found["git"]) <= 12 and found["devices"] == torch.cuda.device_count()
    assert ("unusable" in found) == bool(torch.version.cuda and not found["devices"])
    assert not found["newer"]


@pytest.mark.parametrize(("number", "version"), [(91002, "9.10.2"), (90100, "9.1.0"), (8907, "8.9.7"), (8500, "8.5.0")])
def test_versions_of_cudnn(number, version):
    assert measuring._dotted(number) == version


@pytest.mark.parametrize(("seconds", "calls"), [(1e-9, 202), (0.1, 12), (50.0, 5)])
def test_all_ranks_make_the_calls_that_fit_for_the_slowest(seconds, calls):
    made = []
    taken = measuring._series(lambda: made.append(1), torch.device("cpu"), lambda _: seconds, 1.0)
    assert len(made) == calls == len(taken) + 2


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are several GPUs")
def test_one_gpu_has_no_peers():
    assert measuring.peers() == {}
