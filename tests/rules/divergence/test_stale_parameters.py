"""Parameters that the wrapper or the optimizer does not follow."""

from __future__ import annotations

import pytest

from tests.rules.divergence.setups import STEP, WRAPPED, found_in, others, recorded, some, the_finding, wraps
from tests.rules.recordings import Rank, Script, line, record
from tests.rules.training import NET, NORMED


@pytest.mark.parametrize("culprits", [(1,), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize(
    "facts",
    [
        {"copies": True, "strangers": 2, "missing": ["fc.weight", "fc.bias"]},
        {"strangers": 1, "missing": ["fc.bias"]},
    ],
    ids=["a copy of the model", "a head that was replaced"],
)
def test_an_optimizer_that_holds_stale_tensors(culprits, facts):
    make = some(culprits, lambda r: wraps()(r).optimizes(line(7), **facts), lambda r: wraps()(r).optimizes(line(7)))
    taken = record(*(make(Rank(number)).forward(STEP).backward(STEP).finishes() for number in range(4)))
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting) == ("DDP410", culprits, others(culprits))
    assert found.where == tuple((number, line(7)) for number in culprits)
    assert found.tensors == tuple(facts["missing"])


@pytest.mark.parametrize(("backwards", "codes"), [(2, []), (3, ["DDP410"])])
def test_an_optimizer_that_holds_nothing_of_what_is_trained(backwards, codes):
    """A head was exchanged after the optimizer had been made of the old one alone."""

    def make(number):
        rank = wraps()(Rank(number)).optimizes(line(7), strangers=2, missing=["fc.weight", "fc.bias"])
        for _ in range(backwards):
            rank.forward(STEP).backward(STEP)
        return rank.finishes()

    assert [found.code for found in found_in(record(*map(make, range(4))))] == codes


NOTHING = {"strangers": 2, "missing": ["fc.weight", "fc.bias"]}


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        ([{**NOTHING, "idle": 2}], ["DDP410"]),
        ([{**NOTHING, "idle": 0}], []),
        ([{**NOTHING, "idle": 2, "number": 3}, {**NOTHING, "idle": 0, "number": 3}], []),
        ([{**NOTHING, "idle": 2, "number": 3}, {**NOTHING, "idle": 0, "number": 4}], ["DDP410"]),
        ([{**NOTHING, "copies": True, "idle": 0}], []),
        ([{"parameters": 3, "strangers": 2, "missing": ["fc.bias"], "idle": 0}], []),
        ([{"parameters": 3, "strangers": 2, "missing": ["fc.bias"], "idle": 1}], ["DDP410"]),
    ],
    ids=[
        "stale",
        "of another model",
        "state made first",
        "of two, one is stale",
        "a copy that trains",
        "both",
        "a head",
    ],
)
def test_parameters_of_another_model_have_gradients(facts, codes):
    """The wrapped model's gradients go to another one, or to nobody: its optimizer is not at fault, nothing diverges."""

    def make(number):
        rank = wraps()(Rank(number))
        for one in facts:
            rank.optimizes(line(7), **one)
        for _ in range(3):
            rank.forward(STEP).backward(STEP)
        return rank.finishes()

    assert [found.code for found in found_in(record(*map(make, range(4))))] == codes


def test_an_optimizer_of_another_model_of_the_same_shapes():
    """A teacher, or what was trained before: the wrapped model has an optimizer of its own."""
    copies = {"copies": True, "strangers": 2, "missing": ["fc.weight", "fc.bias"]}
    assert found_in(recorded(lambda r: wraps()(r).optimizes(line(7), **copies))) == []


def test_an_optimizer_of_a_part_of_the_model():
    """A frozen body, or groups for two optimizers: what it does not hold is not stale."""
    assert found_in(recorded(lambda r: wraps()(r).optimizes(parameters=1, missing=["fc.bias"]))) == []


def test_an_optimizer_that_also_holds_others():
    """The parameters of a loss, say."""
    assert found_in(recorded(lambda r: wraps()(r).optimizes(parameters=3, strangers=1))) == []


def test_two_models_with_an_optimizer_each():
    """To the generator everything in the discriminator's optimizer is strange, and the other way round."""
    names = [one.name for one in NET]

    def make(rank):
        wraps(module="Critic")(wraps(module="Generator")(rank))
        for mine in (0, 1):
            rank.optimizes(model=mine).optimizes(model=1 - mine, strangers=2, missing=names)
        return rank

    assert found_in(recorded(make)) == []


def test_two_optimizers_of_one_model_one_of_which_also_holds_others():
    def make(rank):
        rank = wraps()(rank).optimizes(parameters=2, strangers=1, missing=["fc.bias"])
        return rank.optimizes(parameters=1, missing=["fc.weight"])

    assert found_in(recorded(make)) == []


@pytest.mark.parametrize("culprits", [(0,), (0, 1, 2, 3)], ids=str)
def test_parameters_that_came_into_the_model_after_wrapping(culprits):
    script = Script("""
        model = DDP(net)   # wrapped
        net.head = Linear(4, 4)
        for batch in loader:
            loss = model(batch)   # step
    """)
    at = script.at("step")
    taken = recorded(some(culprits, lambda r: wraps()(r).replaces("head.weight", at=at), wraps()), script=script)
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting) == ("DDP405", culprits, others(culprits))
    assert found.tensors == ("head.weight",)
    assert {site for _, site in found.where} == {WRAPPED}  # both places were observed: it was wrapped too early
    assert any(f":{script.line('step')}" in text for text in found.evidence)


def test_the_place_of_replaced_parameters_is_where_their_own_model_was_wrapped():
    def make(rank):
        rank.wraps(at=line(4)).wraps(*NORMED, module="Critic", at=line(5))
        return rank.replaces("head.weight", at=STEP, model=0)

    assert {site for _, site in the_finding(recorded(make)).where} == {line(4)}
