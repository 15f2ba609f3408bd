"""A wrapped model that one rank runs alone: the calls that this shifts, and those that only look like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import CallState
from ddpnb.recording.stacks import Frame
from tests.rules.recordings import TORCH_FRAME, Rank, asked, diagnose, line, record
from tests.rules.training import NET

FORWARD, BACKWARD, LOOK, END = line(20), line(21), line(30, "look"), line(40)
BUFFERS = (6,)
GRADIENTS = (30,)


def step(rank, forward=FORWARD):
    rank.calls("broadcast", forward, shape=BUFFERS, root=0).forward(forward)
    rank.calls("all_reduce", BACKWARD, shape=GRADIENTS).backward(BACKWARD)
    return rank.gradients(line(22)).updated(line(22))


def looks(rank):
    """A forward under no_grad: buffers are broadcast, and no sample is taken."""
    return rank.calls("broadcast", LOOK, shape=BUFFERS, root=0)


def steps(rank, count):
    for _ in range(count):
        step(rank)
    return rank


def begun(number, world):
    return Rank(number, world).wraps(*NET, at=line(3))


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("lone", [0, 1])
def test_what_stops_at_last_is_far_away(world, lone):
    ranks = []
    for number in range(world):
        rank = steps(begun(number, world), 2)
        if number == lone:
            looks(rank)
            step(rank).waits("broadcast", FORWARD, shape=BUFFERS, root=0)
        else:
            rank.calls("broadcast", FORWARD, shape=BUFFERS, root=0).forward(FORWARD)
            rank.waits("all_reduce", BACKWARD, shape=GRADIENTS)
        ranks.append(rank)
    found = diagnose(record(*ranks)).findings[0]
    assert (found.code, found.culprits) == ("DDP411", (lone,))
    assert found.where[0] == (lone, LOOK)


def test_it_stands_in_the_model_and_the_others_in_a_barrier():
    alone = steps(begun(0, 4), 2).waits("broadcast", LOOK, shape=BUFFERS, root=0)
    others = [steps(begun(number, 4), 2).waits("barrier", END) for number in (1, 2, 3)]
    found = diagnose(record(alone, *others)).findings[0]
    assert (found.code, found.culprits) == ("DDP411", (0,))


def test_it_has_begun_several_broadcasts_when_the_others_are_refused():
    alone = looks(steps(begun(0, 2), 2)).waits("broadcast", LOOK, shape=(1,), root=0)
    other = steps(begun(1, 2), 2).calls("barrier", END, state=CallState.FENCED)
    found = diagnose(record(alone, other.raises("CollectiveMismatch", "", END))).findings[0]
    assert (found.code, found.culprits) == ("DDP411", (0,))


def test_in_the_first_backward_it_trains_and_the_other_rank_averages_alone():
    averages = begun(0, 2).waits("all_reduce", LOOK, shape=(1,), idle=5.0)
    trains = begun(1, 2).forward(FORWARD).waits("all_reduce", BACKWARD, shape=GRADIENTS, idle=5.0)
    trains.backward(BACKWARD)
    autograd = Frame("/venv/lib/torch/autograd/__init__.py", 350, "backward", user=False)
    trains.has_stack(Frame(BACKWARD.file, BACKWARD.line, BACKWARD.function), autograd, TORCH_FRAME)
    found = diagnose(record(averages, trains)).findings[0]
    assert (found.code, found.culprits) != ("DDP411", (1,))
    assert not found.culprits


@pytest.mark.parametrize("busy", [None, 0, 1])
def test_it_met_the_next_steps_broadcast_and_nothing_stopped(busy):
    """A forward under no_grad leaves the buffers synchronised: the next training forward makes no broadcast.

    On a busy host a rank looks at every second step only.
    """
    alone = steps(begun(0, 2), 2)
    looks(alone).forward(FORWARD).calls("all_reduce", BACKWARD, shape=GRADIENTS).backward(BACKWARD)
    recording = record(steps(alone, 1).finishes(), steps(begun(1, 2), 4).finishes())
    if busy is not None:
        samples = tuple(sample for sample in recording.ranks[busy].samples if sample.step % 2 == 0)
        one = replace(recording.ranks[busy], samples=samples)
        recording = replace(recording, ranks={**recording.ranks, busy: one})
    found = diagnose(recording).findings[0]
    assert (found.code, found.culprits) == ("DDP411", (0,))


def test_another_line_for_the_same_forward():
    """One rank logs a step in another branch: it makes as many forwards as the others."""

    def make(number):
        rank = steps(begun(number, 2), 2)
        step(rank, LOOK if number == 0 else FORWARD)
        return steps(rank, 2).finishes()

    assert diagnose(record(make(0), make(1))).findings == ()


def test_another_line_for_the_same_backward():
    """A rank whose data is over goes on with a filler, of which the gradients are zero."""
    filled = line(24)
    ranks = [steps(begun(number, 2), 2) for number in range(2)]
    for number, rank in enumerate(ranks):
        backward = filled if number else BACKWARD
        rank.forward(FORWARD).calls("all_reduce", backward, shape=GRADIENTS).backward(backward)
        rank.gradients(line(25)).updated(line(25)).calls("all_reduce", END).finishes()
    assert diagnose(record(*ranks)).findings == ()


def test_calls_that_are_not_the_models():
    """An extra collective of the script's own is a missing one for the others."""
    extra = steps(begun(0, 2), 2).calls("all_gather", line(35), shape=(1,))
    step(extra).waits("barrier", END)
    other = step(steps(begun(1, 2), 2)).waits("barrier", END)
    assert not asked("DDP411", record(extra, other))


def test_nobody_wrapped_anything():
    ranks = [Rank(n, 2).calls("all_reduce", line(5 + n)).waits("all_reduce", line(9), idle=5.0) for n in range(2)]
    assert not asked("DDP411", record(*ranks))
    assert not asked("DDP411", record())


def test_a_gathered_state_is_no_forward():
    frames = (
        TORCH_FRAME,
        type(TORCH_FRAME)("/venv/torch/distributed/fsdp/_state.py", 5, "full_state_dict", user=False),
    )
    alone = Rank(0, 2).calls("reduce_scatter_tensor", line(5))
    alone.waits("all_gather_into_tensor", line(12)).has_stack(type(TORCH_FRAME)(line(12).file, 12, "save"), *frames)
    other = Rank(1, 2).calls("reduce_scatter_tensor", line(5)).waits("barrier", END)
    found = diagnose(record(alone, other)).findings[0]
    assert (found.code, found.sides) == ("DDP605", ((0,), (1,)))
