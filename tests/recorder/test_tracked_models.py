"""What is written of the models that are followed."""

from __future__ import annotations

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ddpnb.model.events.models import ModelNotDescribed


@pytest.mark.usefixtures("alone")
def test_without_room_for_a_description_the_watch_goes_on(watched, tmp_path, capsys):
    """All hooks of the replicas were taken away, and their traceback stood in the user's log."""
    (tmp_path / "rank0-run1-model0.json.part").mkdir()  # open() fails
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    assert watched.samples("forward")
    assert [event.number for event in watched.events(ModelNotDescribed)] == [0]
    assert "The replicas of Linear are not compared on this rank" in capsys.readouterr().err
