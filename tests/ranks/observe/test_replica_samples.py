"""Following the samples of a run as it goes on: what agrees is let go, what differs first stays. Real files."""

from __future__ import annotations

import json
import struct

import pytest

from ddpnb.ranks.observe.replica_samples import ReplicaSamples
from ddpnb.recorder.models.samples import SampleFile
from ddpnb.recording.replicas import UNWRAPPED, Model, model_of

MODEL = {
    "number": 0, "wrapper": "DistributedDataParallel", "module": "Net", "ranks": [0, 1],
    "tensors": [{"name": "w", "shape": [2], "dtype": "float32"}, {"name": "b", "shape": [1], "dtype": "float32"}],
}  # fmt: skip


class Run:
    """Two ranks that write, and the one that follows them."""

    def __init__(self, folder, number=1) -> None:
        self.folder, self.number = folder, number
        self.files = [SampleFile(str(folder / f"rank{rank}.samples")) for rank in range(2)]
        self.turns = [0, 0]
        for file in self.files:
            file.new_run(number)
        self.samples = ReplicaSamples(str(folder), [0, 1], number, lambda rank, text: {"names": ["sync", "training"]})

    def model(self, rank, model=MODEL, number=0) -> None:
        text = model if isinstance(model, str) else json.dumps(model)
        (self.folder / f"rank{rank}-run{self.number}-model{number}.json").write_text(text)

    def forward(self, rank, times=1, w=1, loss=0.0) -> None:
        for _ in range(times):
            turn = self.turns[rank] = self.turns[rank] + 1
            values, words = struct.pack("3d", 1, 1, loss), struct.pack("2I", w, 5)
            self.files[rank].write(0, "forward", turn, turn - 1, 0, 1, values, 0, words, struct.pack("2f", w, 5))

    def kept(self, rank=0):
        return [sample.turn for sample in self.samples.samples(rank)]


@pytest.fixture
def run(tmp_path):
    found = Run(tmp_path)
    for rank in range(2):
        found.model(rank)
    return found


def test_a_model_of_an_earlier_run_is_read_when_it_is_used(tmp_path):
    """Others were made before it, which this run does not use."""
    run = Run(tmp_path)
    for rank in range(2):
        run.model(rank, {**MODEL, "number": 3}, number=3)
        words = struct.pack("2I", 1, 5)
        run.files[rank].write(3, "updated", 1, 0, 0, 1, b"", 0, words, struct.pack("2f", 1, 5))
    assert run.samples.models(0) == ()
    run.samples.read()
    assert [model.number for model in run.samples.models(0)] == [3]
    (sample,) = run.samples.samples(1)
    assert list(sample.digests) == ["w", "b"]


def test_models_without_a_wrapper_are_numbered_apart(run):
    """One rank has trained a model by itself before: what is wrapped then has the same number on both."""
    run.model(0, {**MODEL, "number": UNWRAPPED, "wrapper": ""}, number=UNWRAPPED)
    assert [model.number for model in run.samples.models(0)] == [0, UNWRAPPED]
    assert [model.number for model in run.samples.models(1)] == [0]
    run.model(0, {**MODEL, "number": 1}, number=1)
    assert [model.number for model in run.samples.models(0)] == [0, 1, UNWRAPPED]


def test_samples_and_models_of_each_rank(run):
    run.forward(0)
    run.forward(1, w=2)
    run.samples.read()
    (sample,) = run.samples.samples(1)
    assert (sample.kind, sample.training) == ("forward", 1.0)
    assert {name: (digest.hash, digest.norm) for name, digest in sample.digests.items()} == {"w": (2, 2), "b": (5, 5)}
    assert run.samples.models(0) == (model_of(MODEL),)


def test_nothing_is_there_yet(tmp_path):
    follower = ReplicaSamples(str(tmp_path), [0, 1], 1, lambda *_: None)
    follower.read()
    assert follower.samples(0) == () and follower.models(0) == ()


def test_what_agrees_is_let_go_but_for_the_first_and_the_last(run):
    for _ in range(50):
        for rank in range(2):
            run.forward(rank, 10, loss=rank)  # each rank has its own inputs
        run.samples.read()
    assert run.kept() == run.kept(1) == [*range(1, 41), *range(493, 501)]


def test_the_first_that_differ_stay_however_long_it_goes_on(run):
    for _ in range(30):
        for rank in range(2):
            run.forward(rank, 10, w=9 if rank and run.turns[rank] >= 100 else 1)
        run.samples.read()
    kept = [turn for turn in run.kept() if 40 < turn <= 292]
    assert kept[:2] == [100, 101]  # and what came just before
    assert 4 <= len(kept) <= 6
    digests = {rank: {s.turn: s.digests["w"].hash for s in run.samples.samples(rank)} for rank in range(2)}
    assert [(digests[0][turn], digests[1][turn]) for turn in (100, 101)] == [(1, 1), (1, 9)]


def test_digests_of_different_kinds_are_not_compared(run):
    """One rank's environment has xxhash, the other's has not."""
    run.model(0, {**MODEL, "hash": "xxh3"})
    run.model(1, {**MODEL, "hash": "crc32"})
    for rank in range(2):
        run.forward(rank, 300, w=1 + rank)
    run.samples.read()
    kept = run.kept()
    assert kept == [*range(1, 41), *range(293, 301)]  # no turn stays because it differs
    assert not any(sample.digests for rank in range(2) for sample in run.samples.samples(rank))
    assert all(sample.facts == {"sync": 1.0, "training": 1.0} for sample in run.samples.samples(0))


def test_a_difference_is_seen_wherever_the_looks_fall(run):
    """One rank is ahead of the other at every look."""
    run.forward(0, 37)
    for _ in range(40):
        for rank in range(2):
            run.forward(rank, 7, w=3 if rank == 0 and run.turns[0] >= 200 else 1)
        run.samples.read()
    hashes = {rank: {s.turn: s.digests["w"].hash for s in run.samples.samples(rank)} for rank in range(2)}
    both = sorted(set(hashes[0]) & set(hashes[1]))
    odd = [turn for turn in both if hashes[0][turn] != hashes[1][turn]]
    assert odd and 200 <= odd[0] <= 208 and odd[0] - 1 in both


def test_what_was_done_in_the_step_that_made_them_differ_stays_too(run):
    def gradients(rank, step):
        run.files[rank].write(
            0, "gradients", step, step - 1, 0, 1, b"", 0, struct.pack("2I", 1, 5), struct.pack("2f", 1, 5)
        )

    for _ in range(30):
        for rank in range(2):
            for _ in range(10):
                run.forward(rank, w=9 if rank and run.turns[rank] >= 100 else 1)
                gradients(rank, run.turns[rank])
        run.samples.read()
    kept = [s.step for s in run.samples.samples(0) if s.kind == "gradients" and 40 < s.turn <= 292]
    assert {99, 100} <= set(kept) and len(kept) <= 9  # forward 101 has made 100 steps


def test_a_rank_that_stopped_keeps_nobody_from_being_let_go(run):
    run.forward(1, 5)
    for _ in range(40):
        run.forward(0, 100)
        run.samples.read()
    assert run.kept(1) == [1, 2, 3, 4, 5]
    assert len(run.kept()) < 2200 and run.kept()[-1] == 4000


def test_another_run_is_not_ours(run):
    run.forward(0)
    for file in run.files:
        file.new_run(2)
    run.forward(0)
    run.samples.read()
    assert run.kept() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"ranks": 3}',
        '{"tensors": [7]}',
        "[" * 5000,
        '{"tensors": [{"shape": [1e999]}]}',
        '{"tensors": [{"shape": [1000000000000000]}]}',
    ],
)
def test_a_description_that_does_not_parse(run, text):
    run.model(0, text)
    run.model(0, MODEL | {"number": 1}, number=1)
    run.forward(0)
    run.forward(1)
    run.samples.read()
    first, second = run.samples.models(0)
    assert first == Model(0) and second.number == 1
    assert run.samples.samples(0)[0].digests == {}
    assert len(run.samples.samples(1)[0].digests) == 2


def test_a_folder_that_cannot_be_read_for_a_while(run):
    """As with a file system that fails, or no file descriptors left: what was read stays, the rest comes later."""
    (run.folder / "no folder").write_text("")
    link = run.folder / "link"
    follower = ReplicaSamples(str(link), [0], 1, lambda *_: None)
    for target, models in (
        ("no folder", ()),
        (".", (model_of(MODEL),)),
        ("no folder", (model_of(MODEL),)),
    ):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert follower.models(0) == models


def test_a_file_that_is_none(run):
    (run.folder / "rank1.samples").write_bytes(b"x" * 100)
    run.forward(0)
    run.samples.read()
    assert run.kept() == [1] and run.kept(1) == []
