"""A rank in this process: its box, its door and the watch of its replicas, on a real group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

import pytest
import torch.distributed as dist

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.events.hooks import put_in_place
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.models import replicas, sampling
from ddpnb.recorder.models.replicas import Replicas
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events import Event
from ddpnb.recording.events.runs import HooksDetached
from ddpnb.recording.replicas import Model, Sample, model_of
from ddpnb.recording.samples import SampleReader

E = TypeVar("E", bound=Event)


class Clock:
    """What looks at models cost, and hence which steps are looked at, does not depend on how busy this machine is."""

    now = 0.0

    def perf_counter(self) -> float:
        self.now += 1e-5
        return self.now


class WatchedRank:
    """The watch of the replicas of rank 0, and what somebody else on the host reads of it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.box = BlackBox(str(folder / "rank0.box"), 0)
        self.door = Door(self.box, str(folder))
        self.replicas = Replicas(self.box, self.door, str(folder), 0)
        self.run = 0
        self.begin(1)
        put_in_place(self.replicas)

    def begin(self, run: int) -> None:
        self.run = run
        self.replicas.new_run()
        self.replicas.begin(run)

    @property
    def models(self) -> list[Model]:
        files = sorted(self.folder.glob(f"rank0-run{self.run}-model*.json"))
        return [model_of(json.loads(file.read_text())) for file in files]

    def samples(self, *kinds: str) -> list[Sample]:
        """What was written so far, of these kinds or of all."""
        assert not self.events(HooksDetached)
        reader = SampleReader((self.folder / "rank0.samples").read_bytes(), BoxReader(self.box.memory).string)
        models = {model.number: model for model in self.models}
        found = [reader.decode(row, models) for row in reader.new_rows(self.run)]
        assert None not in found
        return [sample for sample in found if sample is not None and (not kinds or sample.kind in kinds)]

    def events(self, kind: type[E]) -> list[E]:
        return [event for event in BoxReader(self.box.memory).events() if isinstance(event, kind)]


@pytest.fixture
def alone(tmp_path_factory):
    """A gloo group of one rank: this process."""
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def of_two(tmp_path_factory):
    """Rank 0 of two, of which the other is imagined: what it would send never comes."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture
def watched(tmp_path, monkeypatch):
    clock = Clock()
    for module in (replicas, sampling):
        monkeypatch.setattr(module, "time", clock)
    rank = WatchedRank(tmp_path, clock)
    yield rank
    rank.replicas.remove()
