"""The ring of samples: written by a rank, read by anybody, also by who comes late."""

from __future__ import annotations

import os
import struct
import threading

import pytest

from ddpnb.recorder.models.samples import SampleFile
from ddpnb.recording import samples as layout
from ddpnb.recording.calls import Site
from ddpnb.recording.replicas import Model, TensorSpec
from ddpnb.recording.samples import SampleReader, contents

STRINGS = {
    1: {"file": "train.py", "line": 7, "function": "main"},
    2: {"names": ["a", "b"], "inputs": "(float32[2d])"},
}
MODELS = {3: Model(3, tensors=(TensorSpec("w", (2, 2)), TensorSpec("b", (2,)), TensorSpec("n", (1,), buffer=True)))}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "rank0.samples")


@pytest.fixture
def file(path):
    found = SampleFile(path)
    found.new_run(1)
    return found


def words(*numbers):
    return struct.pack(f"{len(numbers)}I", *numbers)


def floats(*numbers):
    return struct.pack(f"{len(numbers)}f", *numbers)


class Reader(SampleReader):
    """Follows the file as it grows."""

    def __init__(self, file):
        super().__init__(file._memory, STRINGS.get)

    def turns(self, run=1):
        return [contents(row)[0][2] for row in self.new_rows(run)]


def test_a_row_comes_back_as_it_was_written(file):
    file.write(3, "forward", 5, 4, 1, 2, struct.pack("2d", 1.5, -2), 0, words(9, 8, 7), floats(1, 0.5, float("nan")))
    reader = Reader(file)
    (row,) = reader.new_rows(1)
    sample = reader.decode(row, MODELS)
    assert (sample.model, sample.kind, sample.turn, sample.step) == (3, "forward", 5, 4)
    assert sample.site == Site("train.py", 7, "main")
    assert sample.facts == {"a": 1.5, "b": -2.0, "inputs": "(float32[2d])"}
    assert {n: (d.hash, d.norm) for n, d in sample.digests.items()} == {"w": (9, 1.0), "b": (8, 0.5), "n": (7, None)}
    assert sample.at_ns > 0


@pytest.mark.parametrize(("step", "names"), [(5, ["w", "n"]), (4, ["b"])])
def test_a_slice_belongs_to_the_tensors_of_its_step(file, step, names):
    file.write(3, "updated", 1, step, 0, 0, b"", 1, words(*range(1, len(names) + 1)), floats(*[0] * len(names)))
    reader = Reader(file)
    assert list(reader.decode(reader.new_rows(1)[0], MODELS).digests) == names


def test_rows_are_given_once(file):
    reader = Reader(file)
    for turn in (1, 2):
        file.write(0, "forward", turn, 0, 0, 0)
    assert reader.turns() == [1, 2]
    assert reader.turns() == []
    file.write(0, "forward", 3, 0, 0, 0)
    assert reader.turns() == [3]


def test_another_run(file):
    reader = Reader(file)
    file.write(0, "forward", 1, 0, 0, 0)
    file.new_run(2)
    file.write(0, "forward", 9, 0, 0, 0)
    assert reader.turns(1) == []
    assert reader.turns(2) == [9]
    assert not reader.lost


def test_a_reader_that_keeps_up_misses_nothing_in_many_rounds(file):
    reader, seen, turn = Reader(file), [], 0
    sizes = [0, 1, 7, 100, 3000, 99_999]
    while file._written < 3 * layout.RING_SIZE:
        for size in sizes:
            turn += 1
            file.write(0, "forward", turn, turn, 0, 0, b"", 0, words(*[turn] * size), floats(*[turn] * size))
        seen += reader.turns()
    assert seen == list(range(1, turn + 1))
    assert not reader.lost


def test_a_reader_that_comes_late_knows_it_and_goes_on(file):
    reader = Reader(file)
    file.write(0, "forward", 1, 0, 0, 0)
    assert reader.turns() == [1]
    big = bytes(4 * 100_000)
    for turn in range(2, 40):
        file.write(0, "forward", turn, 0, 0, 0, b"", 0, big, big)
    assert reader.turns() == [] and reader.lost
    file.write(0, "forward", 40, 0, 0, 0)
    assert reader.turns() == [40]


def test_a_row_that_is_too_long_is_left_out(file):
    file.write(0, "forward", 1, 0, 0, 0, bytes(layout.RING_SIZE))
    file.write(0, "forward", 2, 0, 0, 0)
    assert Reader(file).turns() == [2]


def test_writers_in_several_threads(file):
    def write(thread):
        for turn in range(500):
            file.write(thread, "backward", turn, 0, 0, 0, struct.pack("d", turn))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = [contents(row)[0] for row in Reader(file).new_rows(1)]
    assert sorted(keys) == sorted((thread, "backward", turn) for thread in range(4) for turn in range(500))


def test_the_file_is_private_and_a_fresh_one_for_each_process(path, file):
    assert os.stat(path).st_mode & 0o777 == 0o600
    file.write(0, "forward", 1, 0, 0, 0)
    reader = Reader(file)
    other = SampleFile(path)
    other.new_run(1)
    other.write(0, "forward", 2, 0, 0, 0)
    assert reader.turns() == [1]  # what the process before has written stays for who reads it
    assert Reader(other).turns() == [2]
