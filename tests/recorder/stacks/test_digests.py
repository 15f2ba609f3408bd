"""Digests: the same for the same bytes whatever they lie in, another for every change that training makes."""

from __future__ import annotations

import gc
import math
import random
import struct
import threading
import weakref
import zlib
from contextlib import nullcontext

import pytest
import torch

from ddpnb.recorder.stacks import digests
from ddpnb.recorder.stacks.digests import Digester, exact
from ddpnb.recording.replicas import TensorSpec
from ddpnb.recording.samples import CHUNK_WORDS, first_of, unit_names, units_of

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
]  # fmt: skip
pytestmark = pytest.mark.filterwarnings(
    "ignore:ComplexHalf", "ignore:.*nested tensors", "ignore:Sparse CSR", "ignore:.*uantiz"
)
NOT_PLAIN = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": lambda: torch.eye(3).to_sparse_csr(),
    "mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.quint8),
    "four bits": lambda: torch.empty(4, dtype=torch.float4_e2m1fn_x2),
    "subclass": lambda: torch.ones(3).as_subclass(type("Sharded", (torch.Tensor,), {})),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.strided),
    "empty": lambda: torch.ones(0, 3),
}


@pytest.fixture(params=["xxhash and numpy", "standard library"], autouse=True)
def environment(request, monkeypatch):
    """With what an environment may have besides torch, and without."""
    if request.param == "standard library":
        monkeypatch.setattr(digests, "np", None)
        monkeypatch.setattr(digests, "_quiet", nullcontext)
        monkeypatch.setattr(digests, "_hash_part", zlib.crc32)
        monkeypatch.setattr(digests, "_hash_whole", digests._of_whole)


def specs(tensors):
    return [
        TensorSpec(f"t{number}", tuple(t.shape), str(t.dtype).removeprefix("torch."))
        for number, t in enumerate(tensors)
    ]


def digest(tensors, log2=0, step=0, like=None):
    hashes, norms = Digester(specs(like or tensors)).digest(tensors, log2, step)
    assert len(hashes) == len(norms)
    count = len(hashes) // 4
    return list(struct.unpack(f"{count}I", hashes)), list(struct.unpack(f"{count}f", norms))


def hashes(tensors, **more):
    return digest(tensors, **more)[0]


def both(tensor):
    """The two digests that there are of a tensor: by parts and as a whole."""
    return (*hashes([tensor]), exact(tensor))


def some_bytes(dtype, elements, seed=0):
    return bytearray(random.Random(seed).randbytes(elements * dtype.itemsize))


def tensor_of(dtype, data):
    if dtype is torch.bool:
        data = bytes(byte & 1 for byte in data)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype)


# -- what makes no difference


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bytes_have_the_same_digest_and_every_bit_counts(dtype):
    elements = 7
    data = some_bytes(dtype, elements)
    known = both(tensor_of(dtype, data))
    assert known == both(tensor_of(dtype, data))
    assert 0 not in known
    for bit in range(0, len(data) * 8, 8 if dtype is torch.bool else 1):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        told = both(tensor_of(dtype, changed))
        assert told[0] != known[0], f"bit {bit}"
        assert told[1] != known[1], f"bit {bit}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_how_it_lies_in_memory_does_not_matter(dtype):
    square = tensor_of(dtype, some_bytes(dtype, 30)).reshape(5, 6)
    known = both(square)
    turned = square.t().contiguous().t()  # the same numbers, the other way round in memory
    assert not turned.is_contiguous()
    assert both(turned) == known
    wide = torch.empty(5, 12, dtype=dtype)
    wide[:, ::2] = square
    assert both(wide[:, ::2]) == known
    beginning = torch.empty(31, dtype=dtype)
    beginning[1:] = square.reshape(-1)
    assert both(beginning[1:].reshape(5, 6)) == known
    assert both(square.t()) != known


def test_channels_last():
    image = torch.randn(2, 3, 4, 5)
    assert both(image.to(memory_format=torch.channels_last)) == both(image)


def test_expanded_conjugated_negated_and_trained():
    row = torch.randn(1, 4)
    assert both(row.expand(3, 4)) == both(row.expand(3, 4).contiguous())
    numbers = torch.randn(5, dtype=torch.complex64)
    assert both(numbers.conj()) == both(numbers.conj().resolve_conj()) != both(numbers)
    assert both(numbers.conj().imag) == both(-numbers.imag)
    trained = torch.nn.Parameter(row.clone())
    assert both(trained) == both(row)
    assert both(trained * 1.0) == both(row)


def test_one_number_and_none():
    assert both(torch.tensor(3.5)) == both(torch.tensor([3.5]))
    assert exact(torch.ones(0)) == 0
    assert digest([torch.ones(0), torch.tensor(2.0), torch.ones(4, 0)]) == (hashes([torch.tensor(2.0)]), [2.0])
    assert digest([]) == ([], [])


def test_neighbours_and_types_do_not_matter():
    """Each part's digest is its own, whatever else is digested with it."""
    tensors = [tensor_of(dtype, some_bytes(dtype, 3 + n, n)) for n, dtype in enumerate(DTYPES * 3)]
    random.Random(1).shuffle(tensors)
    together = hashes(tensors)
    assert together == [one for tensor in tensors for one in hashes([tensor])]
    others = [torch.ones_like(t) if n % 2 else t for n, t in enumerate(tensors)]
    assert hashes(others)[::2] == together[::2]


def test_threads_do_not_matter():
    tensors = [torch.randn(300, 700), torch.randn(5), torch.randn(200_000, dtype=torch.float64)]
    before, told = torch.get_num_threads(), []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            told.append((Digester(specs(tensors)).digest(tensors, 0, 0), [exact(tensor) for tensor in tensors]))
    finally:
        torch.set_num_threads(before)
    assert told[0] == told[1]


def test_two_threads_at_once():
    """The control channel may digest while the training does."""
    tensors = [torch.randn(400_000) for _ in range(4)]
    known, seen = [exact(tensor) for tensor in tensors], []

    def look(tensor):
        seen.append([exact(tensor) for _ in range(30)])

    looking = [threading.Thread(target=look, args=(tensor,)) for tensor in tensors]
    for thread in looking:
        thread.start()
    for thread in looking:
        thread.join()
    assert sorted(one[0] for one in seen) == sorted(known)
    assert all(len(set(one)) == 1 for one in seen)


def test_the_tensors_stay_as_they_are():
    tensor = torch.randn(5000)
    before = tensor.clone()
    both(tensor)
    assert torch.equal(tensor, before)
    assert tensor._version == 0


# -- what makes a difference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [2, 64, 1024, CHUNK_WORDS, 3 * CHUNK_WORDS])
def test_changes_that_training_makes(dtype, size):
    """Regular changes touch every word alike, and could cancel each other in a sum."""
    torch.manual_seed(size)
    values = torch.randn(size).to(dtype)
    for start in (values, torch.ones(size, dtype=dtype), torch.arange(size).to(dtype) + 1):
        two, rounded = start.clone(), start.clone()
        two[0], two[-1] = -two[0], -two[-1]
        integers = rounded.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
        integers[0] += 1
        integers[-1] += 1
        made = [start, -start, 2 * start, start / 2, 4 * start, -2 * start, start - 1, start.flip(0), two, rounded]
        different = {tensor.view(torch.uint8).numpy().tobytes(): tensor for tensor in made}.values()
        assert len(different) > 7
        told = [both(tensor) for tensor in different]
        assert len({one[:-1] for one in told}) == len(told)  # all parts together
        assert len({one[-1] for one in told}) == len(told)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64, torch.float32, torch.bfloat16], ids=str)
def test_exchanged_elements(dtype):
    """Rows of zeros and ones in another order."""
    size = 256
    table = torch.zeros(size, size)
    table[torch.arange(size), torch.arange(size)] = 1
    known = both(table.to(dtype))
    for one, other in ((0, 1), (0, 128), (3, 255), (64, 192)):
        table[[one, other]] = table[[other, one]]
        told = both(table.to(dtype))
        assert told[-1] != known[-1]
        assert told[:-1] != known[:-1]
        table[[one, other]] = table[[other, one]]


def test_halves_of_words_do_not_stand_for_each_other():
    numbers = torch.tensor([0x0001, 0x10000, 1 << 31, 0x80008000, 0x8000], dtype=torch.int64).to(torch.uint32)
    assert len({both(number.reshape(1)) for number in numbers}) == len(numbers)


# -- what is not there, or is something else


def test_none_and_other_sizes_have_nothing():
    tensors = [torch.randn(4), torch.randn(3, 3), torch.randn(2, dtype=torch.float64), torch.tensor([1, 2])]
    known, norms = digest(tensors)
    for odd in (None, torch.randn(5), torch.randn(3, 4), torch.randn(1), torch.tensor(1.0)):
        for place in range(len(tensors)):
            given = [odd if n == place else tensor for n, tensor in enumerate(tensors)]
            hashes, told = digest(given, like=tensors)
            assert hashes == [0 if n == place else one for n, one in enumerate(known)]
            assert math.isnan(told[place])
            assert [t for n, t in enumerate(told[:2]) if n != place] == [
                t for n, t in enumerate(norms[:2]) if n != place
            ]
    assert digest([None] * 4, like=tensors)[0] == [0, 0, 0, 0]


def test_another_type_has_nothing():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    like = specs(list(model.parameters()))
    assert 0 not in hashes(list(model.parameters()))
    told = Digester(like).digest(list(model.half().parameters()), 0, 0)[0]
    assert told == bytes(16)


def test_what_has_no_memory_is_left_alone():
    tensors = [torch.ones(3), torch.empty(3, device="meta")]
    digester = Digester([TensorSpec("a", (3,), "float32"), TensorSpec("b", (3,), "float32", "meta")])
    first, second = struct.unpack("2I", digester.digest(tensors, 0, 0)[0])
    assert [first, second] == [*hashes(tensors[:1]), 0]
    assert exact(tensors[1]) == 0


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_bytes_that_are_not_its_own_are_left_alone(name):
    odd = NOT_PLAIN[name]()
    tensors = [torch.randn(3), torch.randn(3), torch.randn(3)]
    assert exact(odd) == 0
    assert hashes([tensors[0], odd, tensors[2]], like=tensors)[1] == 0
    assert hashes([tensors[0], odd, tensors[2]], like=tensors)[::2] == hashes(tensors)[::2]
    assert hashes([odd] * 3, like=tensors) == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["quint8", "bits16", "float4_e2m1fn_x2", "int3", "nonsense", ""])
def test_types_that_cannot_be_read_have_nothing(dtype):
    known = TensorSpec("a", (3,), "float32")
    digester = Digester([known, TensorSpec("b", (3,), dtype), known])
    told = struct.unpack("3I", digester.digest([torch.ones(3)] * 3, 0, 0)[0])
    assert told == (told[0], 0, told[0])
    assert told[0]


def test_fewer_tensors_than_specs():
    """Gradients belong to the parameters, which come first; buffers come after."""
    tensors = [torch.randn(4), torch.randn(CHUNK_WORDS + 1), torch.randn(3)]
    digester = Digester(specs(tensors))
    assert [digester.parts_of(n) for n in range(4)] == [0, 1, 3, 4]
    whole = digester.digest(tensors, 0, 0)
    assert digester.digest(tensors[:2], 0, 0) == (whole[0][:12], whole[1][:12])


# -- parts and slices


def test_large_tensors_are_cut_in_parts():
    words = CHUNK_WORDS
    tensors = [
        torch.randn(2 * words + 5),
        torch.randn(words, dtype=torch.float64),
        torch.ones(4 * words, dtype=torch.uint8),
    ]
    tensors += [torch.randn(words, dtype=torch.complex128), torch.ones(2 * words + 1, dtype=torch.int16)]
    parts = units_of(specs(tensors))
    assert [index for index, _, _ in parts] == [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 4]
    assert parts[:3] == [(0, 0, words), (0, words, 2 * words), (0, 2 * words, 2 * words + 5)]
    assert unit_names(specs(tensors))[:3] == [
        f"t0[0:{words}]",
        f"t0[{words}:{2 * words}]",
        f"t0[{2 * words}:{2 * words + 5}]",
    ]
    assert unit_names(specs(tensors))[5] == "t2"
    known = hashes(tensors)
    assert known == [one for index, first, end in parts for one in hashes([tensors[index].view(-1)[first:end].clone()])]
    tensors[0][words] += 1
    tensors[3][-1] += 1
    assert [n for n, (a, b) in enumerate(zip(known, hashes(tensors))) if a != b] == [1, 9]


def test_parts_of_what_lies_in_pieces():
    for tensor in (torch.randn(300, 400).t(), torch.randn(200, 9, 20, 5).to(memory_format=torch.channels_last)):
        assert not tensor.is_contiguous()
        assert len(hashes([tensor])) > 5
        assert digest([tensor]) == digest([tensor.contiguous()])
        assert hashes([tensor, tensor], log2=2, step=3) == hashes([tensor.contiguous()] * 2, log2=2, step=3)
    spread = torch.randn(3 * CHUNK_WORDS)[::2]
    assert digest([spread]) == digest([spread.clone()])


def test_a_slice_of_every_step():
    torch.manual_seed(0)
    tensors = [torch.randn(size) for size in (3, CHUNK_WORDS * 3, 1, 70, CHUNK_WORDS + 1, 9)]
    tensors += [torch.arange(10), torch.randn(7, dtype=torch.bfloat16)]
    digester = Digester(specs(tensors))
    whole, norms = digest(tensors)
    for log2 in range(6):
        for step in range(40):
            chosen = [i for i in range(len(whole)) if i % 2**log2 == first_of(step, log2)]
            told, of_norms = digester.digest(tensors, log2, step)
            assert list(struct.unpack(f"{len(told) // 4}I", told)) == [whole[i] for i in chosen]
            found = struct.unpack(f"{len(told) // 4}f", of_norms)
            assert [x for x in found if x == x] == [norms[i] for i in chosen if norms[i] == norms[i]]
    assert digester.digest(tensors, 12, 4000) == (b"", b"")


def test_what_lies_elsewhere_the_next_time():
    """Where a tensor lay is remembered; the tensor is not held, nor is its place trusted."""
    tensor = torch.nn.Parameter(torch.randn(3, 50))
    digester = Digester(specs([tensor]))
    known = digester.digest([tensor], 0, 0)
    assert digester.digest([tensor], 0, 1) == known
    address = tensor.data_ptr()
    for other in (tensor.detach().clone(), tensor.detach().t().contiguous().t()):
        tensor.data = other
        assert digester.digest([tensor], 0, 0) == known
    with torch.no_grad():
        tensor += 1
    assert digester.digest([tensor], 0, 0) == digest_of([tensor]) != known
    gone = weakref.ref(tensor)
    del tensor, other
    gc.collect()
    assert gone() is None
    for _ in range(50):  # sooner or later at the same address
        again = torch.randn(3, 50)
        assert digester.digest([again], 0, 0) == digest_of([again])
        assert digester.digest([again[:2]], 0, 0)[0] == bytes(4)  # it begins at the same place
        assert digester.digest([again.view(torch.int32)], 0, 0)[0] == bytes(4)
        if again.data_ptr() == address:
            break


def digest_of(tensors):
    return Digester(specs(tensors)).digest(tensors, 0, 0)


def test_norms():
    tensors = [torch.tensor([3.0, 4.0]), torch.full((CHUNK_WORDS + 16,), 0.5), torch.ones(4, dtype=torch.float64)]
    tensors += [
        torch.tensor([1.0, math.nan]),
        torch.tensor([math.inf, 1.0]),
        torch.full((3,), 3e38),
        torch.ones(3).half(),
    ]
    found = digest(tensors)[1]
    assert found[:3] == pytest.approx([5.0, 0.5 * math.sqrt(CHUNK_WORDS), 2.0])
    assert math.isnan(found[3])  # cheap for one type only
    assert math.isnan(found[4])
    assert found[5] == found[6] == math.inf
    assert math.isnan(found[7])


# -- all of a tensor


def test_exact_sees_blocks_that_change_places():
    block = 4 * CHUNK_WORDS
    tensor = torch.randn(3 * block + 17)
    known = exact(tensor)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        other = tensor.clone()
        other[first * block : (first + 1) * block] = tensor[second * block : (second + 1) * block]
        other[second * block : (second + 1) * block] = tensor[first * block : (first + 1) * block]
        assert exact(other) != known
    for place in (0, block - 1, block, 2 * block + 3, 3 * block + 16):
        other = tensor.clone()
        other.view(torch.int32)[place] ^= 1
        assert exact(other) != known
    assert exact(tensor[:-1]) != known
