"""A tensor by rank, from answers of ranks by hand: who is equal, where two differ, and what is said of those without one."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch

from ddpnb.errors import UsageError
from ddpnb.recorder.models.tensor_values import Reading
from ddpnb.recording import verbs
from ddpnb.recording.tensors import PIECE
from ddpnb.render import as_html
from ddpnb.render import tensors as shown
from ddpnb.world import tensors
from tests.render.reading import Reading as Page


class Ranks:
    """Ranks that hold a tensor each; None: the process is dead, a text: an error, ...: no answer."""

    def __init__(self, *held):
        self.held = held
        self.size = len(held)
        self.lock = threading.RLock()
        self.last_monitor = None
        self.change = {}
        self.processes = SimpleNamespace(
            alive=lambda rank: held[rank] is not None, stopped=lambda _: False, check_connection=lambda: None
        )

    def opened(self):
        return self.lock

    def alive(self):
        return [rank for rank, held in enumerate(self.held) if held is not None]

    def chosen(self, ranks):
        return tuple(self.alive() if ranks is None else ranks)

    def ask(self, ranks, request, _timeout=0):
        return {rank: self.answer(rank, request) for rank in ranks if self.held[rank] is not ...}

    def answer(self, rank, request):
        held = self.held[rank]
        if isinstance(held, str):
            return request.ANSWER(error=held)
        if isinstance(request, verbs.Tensors):
            return verbs.Names(names=("w", f"only {rank}", "x\n"))
        reading = Reading(held.detach(), float("inf"))
        if isinstance(request, verbs.Histogram):
            return verbs.Counts(counts=tuple(reading.counts(request.low, request.high, 24)))
        if isinstance(request, verbs.Pieces):
            pieces = tuple(verbs.Piece(code=code, values=held) for code, held in reading.values(request.numbers))
            return verbs.PiecesRead(pieces=pieces)
        numbers, digests = reading.facts()
        facts = {"where": "train.py:4, main", "dtype": str(held.dtype)[6:], "shape": list(held.shape), "device": "cpu"}
        facts |= {"requires_grad": False, "elements": held.numel(), **numbers, **self.change.get(rank, {})}
        return verbs.TensorRead(numbers=facts, digests=digests)


def read(*held, **change):
    ranks = Ranks(*held)
    ranks.change = change.get("change", {})
    return tensors.tensor(ranks, "w", 0, None, 5.0)


def test_equal_tensors():
    found = read(torch.ones(3), torch.ones(3))
    assert found.equal and found.sides == ((0, 1),) and not found.differences
    assert "equal on ranks 0 and 1, byte for byte" in str(found)


def test_where_two_ranks_differ():
    a = torch.arange(3.0 * PIECE).reshape(3, PIECE)
    b = a.clone()
    b[1, 7] += 0.5
    b[2, 9] -= 2.0
    b[2, 0] = float("nan")
    found = read(a, b, a)
    assert found.sides == ((0, 2), (1,)) and not found.equal
    (one,) = found.differences
    assert (one.ranks, one.elements, one.compared, one.largest, one.first) == ((0, 1), 3, 3 * PIECE, 2.0, (1, 7))
    assert one.values == (PIECE + 7.0, PIECE + 7.5)
    assert found.ranks[1].nans == 1 and sum(found.ranks[1].counts) == 3 * PIECE - 1
    assert "3 of 98,304 elements differ, the first at [1, 7] (32775 and 32775.5); largest difference 2." in " ".join(
        str(found).split()
    )
    html = as_html.html(*shown.document(found))
    assert "differs: ranks 0 and 2 | rank 1" in Page(html).text and html.count('<svg class="histogram"') == 3


def test_many_ranks_have_few_rows():
    found = read(*(torch.full((2,), float(rank == 40)) for rank in range(48)))
    assert found.sides[1] == (40,)
    page = Page(as_html.html(*shown.document(found))).text
    assert "32 of 48 ranks shown, those that differ first" in page and "≠ 40" in page


def test_more_parts_differ_than_are_compared(monkeypatch):
    monkeypatch.setattr(tensors, "_PIECES", 2)
    (one,) = read(torch.zeros(4 * PIECE), torch.ones(4 * PIECE)).differences
    assert one.elements == 2 * PIECE and one.more
    assert "at least 65,536 of 131,072 elements differ" in str(read(torch.zeros(4 * PIECE), torch.ones(4 * PIECE)))


def test_bits_that_differ_and_values_that_do_not():
    (one,) = read(torch.tensor([0.0, float("nan")]), torch.tensor([-0.0, float("nan")])).differences
    assert one.elements == 0
    assert "no element differs in value" in str(read(torch.tensor([0.0]), torch.tensor([-0.0])))


def test_other_shapes_and_types():
    found = read(torch.ones(2), torch.ones(3), torch.ones(2, dtype=torch.float64))
    assert [len(side) for side in found.sides] == [1, 1, 1]
    assert [one.ranks for one in found.differences] == [(0, 2)]  # compared by value
    assert "Values of different shapes are not compared" in str(found)
    assert "float32 [2] on cpu (rank 0); float32 [3] on cpu (rank 1); float64 [2] on cpu (rank 2)" in str(found)


def test_ranks_without_one_are_named():
    found = read(torch.ones(1), None, "there is no variable w", ...)
    assert list(found.ranks) == [0] and not found.equal
    assert found.errors == {1: "its process is dead", 2: "there is no variable w", 3: "it did not answer: unresponsive"}
    with pytest.raises(UsageError, match=r"'w' could not be read. ranks 0 and 1: there is no variable w"):
        read("there is no variable w", "there is no variable w.")


@pytest.mark.parametrize("name", ["f(x)", "x + 1", "", " ", None, 3, "a b", "x" * 500])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(UsageError):
        tensors.tensor(Ranks(torch.ones(1)), name, 0, None, 5.0)


def test_a_rank_may_say_anything():
    for change in ({"shape": "?"}, {"looked_at": None}, {"low": "x"}):
        found = read(torch.ones(1), torch.ones(1), change={1: change})
        assert found.errors == {1: "its answer is invalid"}, change
    odd = read(torch.ones(1), torch.ones(1), change={1: {"where": "<script>\x1b[31m", "dtype": "<b>"}})
    assert "<script>" not in odd._repr_html_() and "\x1b" not in str(odd)
    assert tensors.names(Ranks(torch.ones(1), torch.ones(1)), 0) == ("w", "x�", "only 0", "only 1")
    for counts in (verbs.Counts(counts=(1, -1) * 12), verbs.Counts(counts=(3,)), None):
        assert tensors._counts(counts) == ()
    for code, values, valid in (("u", b"?", False), ("f", b"???", False), ("f", bytes(4), True)):
        pieces = verbs.PiecesRead(pieces=(verbs.Piece(code=code, values=values),))
        assert (tensors._values(pieces, 1) is not None) is valid and tensors._values(pieces, 2) is None


def test_ranks_at_different_steps_and_parts_of_a_large_tensor():
    found = read(torch.ones(2), torch.zeros(2), change={0: {"step": 3}, 1: {"step": 4, "looked_at": 1}})
    assert any("different numbers of optimizer steps (3 on 0, 4 on 1)" in note for note in found.notes)
    assert any("1 of 2 elements were read" in note for note in found.notes)
