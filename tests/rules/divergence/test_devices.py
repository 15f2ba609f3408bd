"""Models of which a part is on another device."""

from __future__ import annotations

import pytest

from tests.rules.divergence.setups import WRAPPED, recorded, some, wraps
from tests.rules.recordings import asked
from tests.rules.training import tensor


def on(*devices):
    return wraps(*(tensor(f"layer.{n}", device=device) for n, device in enumerate(devices)))


@pytest.mark.parametrize("culprits", [(2,), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize(
    ("devices", "elsewhere", "named"),
    [
        (("cuda:0", "cuda:0", "cpu"), "cpu", ("layer.2",)),
        (("cpu", "cpu", "meta"), "meta", ("layer.2",)),
        (("meta", "meta", "cpu"), "meta", ("layer.0", "layer.1")),  # what has no values is wrong, be it most of it
        (("meta", "meta"), "meta", ("layer.0", "layer.1")),
    ],
)
def test_a_part_of_the_model_stayed_elsewhere(culprits, devices, elsewhere, named):
    (one,) = asked("DDP202", recorded(some(culprits, on(*devices), on("cpu", "cpu", "cpu"))))
    assert (one.severity, one.culprits, one.waiting, one.tensors) == ("error", culprits, (), named)
    assert one.where == tuple((number, WRAPPED) for number in culprits) and elsewhere in one.summary


@pytest.mark.parametrize("make", [on("cuda:0", "cuda:1"), lambda rank: on(f"cuda:{rank.rank}")(rank)])
def test_devices_that_are_meant(make):
    assert asked("DDP202", recorded(make)) == []
