"""The reader of samples, over bytes packed by hand: nothing in them can be trusted."""

from __future__ import annotations

import math
import os
import random
import struct

import pytest

from ddpnb.recording import samples as layout
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.replicas import Model, TensorSpec
from ddpnb.recording.samples import KINDS, SampleReader, contents, tensor_name, unit_names, units_of, width_of
from ddpnb.recording.shared import FileBytes

MODELS = {0: Model(0, tensors=(TensorSpec("w", (2,)), TensorSpec("b", (1,))))}


class PackedFile:
    """A file of samples as a rank would have written it, field by field."""

    def __init__(self, run: int = 1) -> None:
        self.memory = bytearray(layout.FILE_SIZE)
        self.memory[:8] = layout.MAGIC
        self.written, self.began, self.run = 0, 0, run
        self.publish()

    def publish(self) -> None:
        layout.WRITTEN.pack_into(self.memory, layout.WRITTEN_AT, self.written, self.began, self.run)

    def row(self, data: bytes) -> None:
        at = layout.HEADER_SIZE + self.written % layout.RING_SIZE
        self.memory[at : at + len(data)] = data
        self.written += len(data)
        self.publish()

    def reader(self, strings=None) -> SampleReader:
        return SampleReader(self.memory, (strings or {}).get)


def row(
    kind=1, turn=1, step=0, log2=0, model=0, values=(), hashes=(), norms=None, site=0, names=0, length=None,
    stamp=layout.STAMP, units=None,
):  # fmt: skip
    norms = [0.0] * len(hashes) if norms is None else norms
    data = struct.pack(f"<{len(values)}d{len(hashes)}I{len(norms)}f", *values, *hashes, *norms)
    size = (layout.ROW_SIZE + len(data) + 7) & ~7 if length is None else length
    head = layout.ROW.pack(
        size, stamp, model, kind, log2, turn, step, site, names, 5, len(hashes) if units is None else units, len(values)
    )
    return (head.ljust(layout.ROW_SIZE, b"\0") + data).ljust(size if length is None else layout.ROW_SIZE, b"\0")


# -- parts of tensors


@pytest.mark.parametrize(
    ("dtype", "width"), [("float32", 4), ("float64", 8), ("bfloat16", 2), ("bool", 1), ("complex128", 16),
                         ("float8_e4m3fn", 1), ("what", 4)],
)  # fmt: skip
def test_widths(dtype, width):
    assert width_of(dtype) == width


def test_large_tensors_are_cut_in_parts_that_cover_them():
    words = layout.CHUNK_WORDS
    tensors = [TensorSpec("a", (3,)), TensorSpec("b", (2, words)), TensorSpec("c", (words + 1,), "float64"),
               TensorSpec("none", (0, 5)), TensorSpec("scalar", ())]  # fmt: skip
    units = units_of(tensors)
    assert units == [(0, 0, 3), (1, 0, words), (1, words, 2 * words), (2, 0, words // 2), (2, words // 2, words),
                     (2, words, words + 1), (4, 0, 1)]  # fmt: skip
    names = unit_names(tensors)
    assert names[:2] == ["a", f"b[0:{words}]"] and names[-1] == "scalar"
    assert [tensor_name(name) for name in names] == ["a", "b", "b", "c", "c", "c", "scalar"]


# -- rows


def test_a_row():
    file = PackedFile()
    file.row(row(values=(1.0, 2.0), hashes=(7, 8), norms=(3.0, math.nan), site=1, names=2, turn=4, step=3))
    reader = file.reader({1: {"file": "a.py", "line": 3, "function": "f"}, 2: {"names": ["sync"], "inputs": "x"}})
    sample = reader.decode(reader.new_rows(1)[0], MODELS)
    assert (sample.kind, sample.turn, sample.step, sample.site.line) == ("forward", 4, 3, 3)
    assert sample.facts == {"sync": 1.0, "inputs": "x"}
    assert [(n, d.hash, d.norm) for n, d in sample.digests.items()] == [("w", 7, 3.0), ("b", 8, None)]


def test_the_place_of_a_bypass():
    reader = PackedFile().reader({1: {"names": ["bypass"]}, 9: {"file": "b.py", "line": 2}})
    assert reader.decode(row(3, names=1, values=(9.0,)), MODELS).facts["bypass_site"] == {"file": "b.py", "line": 2}


@pytest.mark.parametrize(
    "strings",
    [{}, {1: 7}, {1: [1]}, {1: {"names": [None, {}]}}, {1: {"names": ["a"] * 50}}, {1: {"names": 7}}],
    ids=str,
)
def test_strings_that_make_no_sense(strings):
    reader = PackedFile().reader(strings)
    sample = reader.decode(row(names=1, site=1, values=(1.0, 2.0)), MODELS)
    assert sample is not None
    assert sample.site == NO_SITE


def test_a_model_that_nobody_described_has_no_digests():
    assert PackedFile().reader().decode(row(hashes=(1, 2), model=5), MODELS).digests == {}


@pytest.mark.parametrize(
    "data",
    [b"", bytes(20), row(kind=len(KINDS)), row(kind=0), row(units=10**6), row(values=(1.0,))[: layout.ROW_SIZE]],
    ids=["empty", "short", "kind", "no kind", "more digests than bytes", "cut"],
)
def test_a_row_that_makes_no_sense_is_none(data):
    assert PackedFile().reader().decode(data, MODELS) is None


@pytest.mark.parametrize("log2", [12, 31, 255])
def test_slices_of_any_number(log2):
    sample = PackedFile().reader().decode(row(log2=log2, step=1 << 30, hashes=(1,)), MODELS)
    assert len(sample.digests) <= 1


def test_what_should_be_alike_on_all_ranks():
    same = row(1, values=(1.0, 1.0, 0.5), hashes=(1, 2))
    assert contents(same)[0] == (0, "forward", 1)
    assert contents(same) == contents(row(1, values=(1.0, 1.0, 0.7), hashes=(1, 2), site=4, names=5, norms=(1, 2)))
    for other in (row(1, values=(0.0, 1.0, 0.5), hashes=(1, 2)), row(1, values=(1.0, 1.0, 0.5), hashes=(1, 3)),
                  row(1, values=(1.0, 1.0, 0.5), hashes=(1, 2), step=1)):  # fmt: skip
        assert contents(other)[1] != contents(same)[1]
    loss = row(4, values=(1.0, 0.5))
    assert contents(loss)[1] == contents(row(4, values=(1.0, 0.7)))[1]  # each rank has its own
    hyper = row(2, values=(1, 1, 1, 0, 0, 0.1))
    assert contents(hyper)[1] != contents(row(2, values=(1, 1, 1, 0, 0, 0.2)))[1]
    assert contents(hyper)[1] == contents(row(2, values=(2, 1, 1, 0, 0, 0.1)))[1]


# -- files


@pytest.mark.parametrize("memory", [b"", layout.MAGIC, bytes(layout.FILE_SIZE), b"x" * layout.FILE_SIZE], ids=len)
def test_what_is_no_file_of_samples_is_refused(memory):
    with pytest.raises(ValueError, match="not a file of samples"):
        SampleReader(memory, {}.get)


@pytest.mark.parametrize("odd", [{"stamp": 1}, {"length": 4}, {"length": 1 << 31}, {"length": layout.RING_SIZE}])
def test_a_torn_row_ends_the_look_and_the_next_rows_are_read(odd):
    file = PackedFile()
    file.row(row(turn=1))
    file.row(row(turn=2, **odd))
    reader = file.reader()
    assert [contents(one)[0][2] for one in reader.new_rows(1)] == [1]
    assert reader.lost
    file.row(row(turn=3))
    assert [contents(one)[0][2] for one in reader.new_rows(1)] == [3]


@pytest.mark.parametrize("written", [1 << 40, (1 << 64) - 1])
def test_a_count_that_cannot_be(written):
    file = PackedFile()
    file.row(row())
    file.written = written
    file.publish()
    reader = file.reader()
    assert reader.new_rows(1) == []
    assert reader.lost


@pytest.mark.parametrize("seed", range(4))
def test_garbage_never_raises(seed):
    memory = bytearray(random.Random(seed).randbytes(layout.FILE_SIZE))
    memory[:8] = layout.MAGIC
    layout.WRITTEN.pack_into(memory, layout.WRITTEN_AT, 4096, 0, 1)
    assert SampleReader(memory, {}.get).new_rows(1) == []


@pytest.mark.parametrize("seed", range(20))
def test_changed_bytes_never_raise(seed):
    dice, file = random.Random(seed), PackedFile()
    for turn in range(20):
        file.row(row(dice.randrange(1, 7), turn, values=(1.0, 2.0), hashes=(1, 2), names=1, site=1))
    for _ in range(30):
        file.memory[layout.HEADER_SIZE + dice.randrange(file.written)] = dice.randrange(256)
    reader = file.reader({1: {"names": ["a", "bypass"]}})
    for one in reader.new_rows(1):
        contents(one)
        reader.decode(one, MODELS)


@pytest.mark.parametrize("seed", range(40))
def test_a_file_that_is_damaged_anywhere_never_raises_and_ends(seed):
    dice, file = random.Random(seed), PackedFile()
    for turn in range(200):
        file.row(row(dice.randrange(1, 7), turn, values=(math.nan, math.inf), hashes=(1, 2), names=1, site=1))
    reader = file.reader({1: {"names": ["a", "bypass"]}})
    for _ in range(6):
        for _ in range(dice.choice((1, 20))):
            at = dice.randrange(8, 40) if dice.random() < 0.5 else layout.HEADER_SIZE + dice.randrange(file.written)
            file.memory[at] = dice.choice((0, 255, dice.randrange(256)))
        run = layout.WRITTEN.unpack_from(file.memory, layout.WRITTEN_AT)[2]
        for one in reader.new_rows(run):
            contents(one)
            reader.decode(one, MODELS)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300])
def test_a_bypass_at_a_place_that_cannot_be(value):
    reader = PackedFile().reader({1: {"names": ["bypass"]}})
    assert "bypass_site" not in reader.decode(row(3, names=1, values=(value,)), MODELS).facts


def test_a_ring_of_tiny_rows_ends_the_look():
    file = PackedFile()
    tiny = struct.pack("<II", 8, layout.STAMP)
    file.memory[layout.HEADER_SIZE :] = tiny * (layout.RING_SIZE // 8)
    file.written = layout.RING_SIZE
    file.publish()
    reader = file.reader()
    assert reader.new_rows(1) == []
    assert reader.lost


@pytest.mark.parametrize("size", [0, 20, layout.HEADER_SIZE + 60])
def test_a_file_that_is_cut_short_while_it_is_read_kills_nobody(tmp_path, size):
    file, path = PackedFile(), tmp_path / "rank0.samples"
    for turn in range(5):
        file.row(row(turn=turn))
    path.write_bytes(file.memory)
    reader = SampleReader(FileBytes(str(path)), {}.get)
    os.truncate(path, size)
    assert len(reader.new_rows(1)) <= 5
