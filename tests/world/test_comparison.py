"""What a comparison says, and of whom it asks what. Answers of ranks by hand, and a run that is over."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from ddpnb.errors import WorldError
from ddpnb.recording import verbs
from ddpnb.world import comparison
from ddpnb.world.comparison import Comparison, TensorDifference, compare, of_recording
from tests.rules.recordings import Rank, record


class Ranks:
    """Ranks that answer on the control channel: a model each, trained at their own pace."""

    def __init__(self, *tensors: dict[str, list[float]], pace: float = 1.0, models: int = 1) -> None:
        self.tensors = tensors
        self.pace = pace  # forwards that a rank makes from one question to the next
        self.models = models
        self.hashes: tuple[str, ...] = ()
        self.wrapped_twice = False
        self.of_optimizer = ()  # the names of the tensors by which its optimizer knows the model
        self.asked: list[str] = []
        self.turn = [10.0 + rank for rank in range(len(tensors))]
        self.wanted: dict[tuple[int, int], int] = {}
        self.traced: dict[tuple[int, int], verbs.Model] = {}

    def ask(self, ranks, request, _timeout):
        self.asked.append(request.VERB)
        for rank in range(len(self.turn)):
            self.turn[rank] += self.pace
            for model in range(self.models):
                if int(self.turn[rank]) >= self.wanted.get((rank, model), 1 << 60):
                    turn = max(self.wanted.pop((rank, model)), int(self.turn[rank] - self.pace) + 1)
                    self.traced[rank, model] = replace(self._held(rank, model), turn=turn, done=True)
        return {rank: getattr(self, request.VERB)(rank, request) for rank in ranks if self.tensors[rank]}

    def _held(self, rank, model):
        own = 0 if self.wrapped_twice else model
        told = [[name, hash((*v, own)), sum(x * x for x in v) ** 0.5] for name, v in self.tensors[rank].items()]
        if model and self.of_optimizer:
            told = [[f"module.{name}", *rest] for name, *rest in told if name in self.of_optimizer]
        return verbs.Model(
            model=model,
            hash=self.hashes[rank] if self.hashes else "",
            step=3,
            forwards=int(self.turn[rank]),
            tensors=told,
            buffers=("mean",),
        )

    def compare(self, rank, _request):
        return verbs.Models(models=tuple(self._held(rank, model) for model in range(self.models)))

    def values(self, rank, request):
        data = self.tensors[rank].get(request.tensor, [])
        return verbs.Elements(values=struct.pack(f"{len(data)}f", *data))

    def trace(self, rank, request):
        for model, turn in request.turns.items():
            self.wanted[rank, int(model)] = turn
            self.traced.pop((rank, int(model)), None)
        return verbs.Done()

    def traces(self, rank, _request):
        return verbs.Traced(models={str(model): row for (r, model), row in self.traced.items() if r == rank})


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(comparison.time, "sleep", lambda _: None)


SAME = {"w": [1.0, 2.0], "b": [3.0]}
ODD = {"w": [1.0, 2.25], "b": [3.0]}


def test_replicas_that_agree():
    ranks = Ranks(SAME, SAME)
    found = compare(ranks, [0, 1])
    assert found and found.equal and found.compared == 2 and found.steps == {0: 3, 1: 3}
    assert str(found) == "replicas are identical: 2 tensors"


def test_a_tensor_that_differs():
    ranks = Ranks(SAME, SAME, ODD, SAME)
    found = compare(ranks, [0, 1, 2, 3])
    (one,) = found.differences
    assert (one.name, one.sides, one.largest) == ("w", ((0, 1, 3), (2,)), 0.25)
    assert str(one) == (
        "w: ranks 0, 1 and 3 | rank 2; largest difference 0.25; norm 2.23607 on 0, 2.23607 on 1, 2.46221 on 2, 2.23607 on 3"
    )
    assert not found and "1 of 2 tensors differ" in str(found)


@pytest.mark.parametrize("names", [("w", "b"), ("w",)])
def test_a_wrapper_and_its_inner_module_are_counted_once(names):
    ranks = Ranks(SAME, ODD, models=2)
    ranks.wrapped_twice, ranks.of_optimizer = True, names
    assert str(compare(ranks, [0, 1])).startswith("1 of 2 tensors differ\n  w: rank 0 | rank 1;")


def test_digests_of_different_kinds_are_not_compared():
    ranks = Ranks(SAME, ODD)
    ranks.hashes = "xxh3", "crc32"
    found = compare(ranks, [0, 1], trace=True)
    assert found.equal
    assert found.compared == 0
    assert "Install xxhash" in str(found)
    ranks.hashes = "crc32", "crc32"
    assert not compare(ranks, [0, 1])


def test_a_tensor_that_one_rank_lacks():
    ranks = Ranks(SAME, {"w": [1.0, 2.0]})
    (one,) = compare(ranks, [0, 1]).differences
    assert (one.name, one.sides, one.largest) == ("b", ((0,), (1,)), None)


def test_nothing_to_compare():
    ranks = Ranks(SAME, models=0)
    found = compare(ranks, [0], trace=True, moving=True)
    assert str(found) == "no replicas to compare" and ranks.asked == ["compare"]


def test_a_rank_that_does_not_answer():
    ranks = Ranks(SAME, {})
    with pytest.raises(WorldError, match="rank 1 did not answer"):
        compare(ranks, [0, 1])


def test_ranks_that_stand_still_are_not_waited_for():
    ranks = Ranks(SAME, SAME, pace=0)
    found = compare(ranks, [0, 1], trace=True)
    assert "trace" not in ranks.asked
    assert any("needs a run in progress" in note for note in found.notes)


@pytest.mark.parametrize("pace", [0.4, 1, 7, 40])
@pytest.mark.parametrize("models", [1, 3])
def test_ranks_that_train_are_compared_in_a_forward_that_all_make(pace, models):
    ranks = Ranks(SAME, SAME, ODD, pace=pace, models=models)
    found = compare(ranks, [0, 1, 2], moving=True)
    for model in range(models):
        assert len({ranks.traced[rank, model].turn for rank in range(3)}) == 1
    assert [(one.model, one.name) for one in found.differences] == [(model, "w") for model in range(models)]
    assert found.differences[0].largest is None  # the values have changed since


def test_a_model_that_was_wrapped_twice_is_told_of_once():
    ranks = Ranks(SAME, ODD, models=2)
    found = compare(ranks, [0, 1])
    assert [found.label(one) for one in found.differences] == ["w of model 0", "w of model 1"]
    ranks.wrapped_twice = True
    found = compare(ranks, [0, 1])
    assert [found.label(one) for one in found.differences] == ["w"] and found.compared == 2


def test_buffers_at_rest_may_differ():
    ranks = Ranks({**SAME, "mean": [1.0]}, {**SAME, "mean": [2.0]})
    found = compare(ranks, [0, 1])
    assert [one.name for one in found.differences] == ["mean"]
    assert any("buffers may differ" in note for note in found.notes)


def test_the_first_module_that_differs():
    ranks = Ranks(SAME, SAME, SAME)
    calls = [["a", "Linear", 1], ["b", "ReLU", 2], ["(model)", "Net", 2]]
    odd = [["a", "Linear", 1], ["b", "ReLU", 3], ["(model)", "Net", 3]]
    who = 0
    real = ranks.traces
    ranks.traces = lambda rank, request: verbs.Traced(
        models={
            model: replace(row, modules=odd if rank == who else calls)
            for model, row in real(rank, request).models.items()
        }
    )
    found = compare(ranks, [0, 1, 2], trace=True, moving=True)
    assert found.first_module == "b (ReLU): ranks 1 and 2 | rank 0"  # the largest side first
    who = 1
    found = compare(ranks, [0, 1, 2], trace=True, moving=True)
    assert found.first_module == "b (ReLU): ranks 0 and 2 | rank 1"
    odd[0][0] = "c"
    found = compare(ranks, [0, 1, 2], trace=True, moving=True)
    assert found.first_module == "the ranks run different modules: a, c"
    odd[:] = calls
    found = compare(ranks, [0, 1, 2], trace=True, moving=True)
    assert found.first_module == "" and found.notes[0] == "no module's output differed."


def test_a_run_that_is_over_is_compared_by_its_last_samples():
    ranks = [Rank(number, 2).wraps().trains(2) for number in range(2)]
    ranks[1].forward(odd={"fc.weight": 9})
    ranks[0].forward()
    found = of_recording(record(*ranks))
    assert not found.exact and [(one.name, one.sides) for one in found.differences] == [("fc.weight", ((0,), (1,)))]
    assert "(according to the last samples of the run)" in str(found)
    assert of_recording(record(*(Rank(number, 2).wraps().trains(2) for number in range(2)))).equal


def test_a_gradient_is_called_so():
    one = TensorDifference(0, "w", ((0,), (1,)), gradient=True)
    assert str(one).startswith("gradient of w: ") and Comparison((one,), 1).label(one) == "gradient of w"


def test_a_fault_that_was_injected_is_named():
    ranks = [Rank(number, 3) for number in range(3)]
    for number in (1, 2):
        for _ in range(2):
            ranks[number].phase("fault", "done", fault="perturb parameter after 3 steps")
    assert comparison.injected(record(*ranks)) == ("injected on ranks 1 and 2: perturb parameter after 3 steps",)
    assert comparison.injected(record(ranks[0])) == ()


def test_many_differences_are_cut_short():
    many = tuple(TensorDifference(0, f"t{number}", ((0,), (1,))) for number in range(20))
    text = str(Comparison(many, 30, notes=("a note",)))
    assert "20 of 30 tensors differ" in text and "and 8 more" in text and "note: a note" in text


def test_names_from_a_rank_are_escaped():
    found = Comparison((TensorDifference(0, "<script>\x1b[31m", ((0,), (1,))),), 1)
    assert "<script>" not in found._repr_html_() and "\x1b" not in str(found)
