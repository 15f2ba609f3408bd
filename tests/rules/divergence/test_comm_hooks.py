"""Communication hooks that differ between ranks."""

from __future__ import annotations

import pytest

from ddpnb.recording.phrases import besides
from tests.rules.divergence.setups import STEP, WRAPPED, recorded, some, wraps
from tests.rules.recordings import Rank, asked, group, line, record

HOOK = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook"


def hooked(hook="train.hook", state="", **settings):
    return lambda rank: wraps()(rank).event("comm hook", line(5), hook=hook, state=state, settings=settings)


def found(make, **more):
    return asked("DDP416", recorded(make, **more))


@pytest.mark.parametrize("culprits", [(0,), (3,)], ids=str)
@pytest.mark.parametrize(
    ("odd", "usual", "told"),
    [
        (hooked(HOOK), wraps(), "default_hooks.fp16_compress_hook."),
        (wraps(), hooked(HOOK), "no hook."),
        (hooked(HOOK), hooked("allreduce_hook"), "fp16_compress_hook."),
        (hooked(state="PowerSGDState"), hooked(), "train.hook"),
        (hooked(dtype="torch.bfloat16"), hooked(dtype="torch.float16"), "dtype=torch.bfloat16"),
    ],
    ids=["one alone", "all but one", "another", "another state", "other settings"],
)
def test_hooks_that_differ(culprits, odd, usual, told):
    (one,) = found(some(culprits, odd, usual))
    assert (one.severity, one.culprits, one.waiting) == ("error", culprits, besides(range(4), culprits))
    assert told in one.evidence[culprits[0]] and len(one.evidence) == 4
    assert dict(one.where).keys() == {0, 1, 2, 3} and set(dict(one.where).values()) <= {line(5), WRAPPED}


def test_of_two_hooks_neither_is_the_odd_one():
    (one,) = found(some((1,), hooked("own"), hooked("usual")), world=2)
    assert (one.culprits, one.sides) == ((), ((0,), (1,)))
    assert one.summary.endswith("usual on rank 0, own on rank 1.")


@pytest.mark.parametrize(
    "make",
    [
        hooked(HOOK),
        some((2,), lambda r: wraps()(r).forgets_events(3), hooked(HOOK)),  # it may have been registered long ago
        lambda r: hooked(rank=str(r.rank), log_path=f"/tmp/{r.rank}")(r),
    ],
    ids=["the same", "forgotten", "settings of each rank"],
)
def test_hooks_that_are_alike(make):
    assert found(make) == []


def test_a_rank_without_a_model_needs_no_hook():
    ranks = [Rank(n, 3).wraps(group=group(0, 1)).hooks(HOOK) for n in (0, 1)]
    assert asked("DDP416", record(*ranks, Rank(2, 3))) == asked("DDP416", record(ranks[0], Rank(1, 3))) == []


@pytest.mark.parametrize("together", [True, False])
def test_hooks_of_models_that_are_not_reduced_together(together):
    """As with torchft, where each rank has a group of its own, and its hook the state of its replica."""
    ranks = [Rank(n, 2).wraps(**({} if together else {"group": group(n)})) for n in range(2)]
    hooks = [one.event("comm hook", line(5), hook="train.hook", settings={"step": str(one.rank)}) for one in ranks]
    assert len(asked("DDP416", record(*hooks))) == together


@pytest.mark.parametrize(
    ("make", "differs"),
    [
        (lambda rank: rank, False),
        (lambda rank: rank.forward(STEP), False),
        (lambda rank: rank.forward(STEP).calls("broadcast", STEP), False),  # of buffers
        (lambda rank: rank.forward(STEP).calls("all_reduce", STEP), True),
        (lambda rank: rank.trains(1, STEP), True),
        (lambda rank: rank.finishes(), True),
    ],
    ids=["wrapped", "forward", "buffers", "in backward", "stepped", "ended"],
)
def test_a_rank_may_register_its_hook_until_its_first_backward_pass(make, differs):
    late = make(Rank(0, 2).wraps(at=WRAPPED))
    assert len(asked("DDP416", record(late, Rank(1, 2).wraps(at=WRAPPED).hooks(HOOK)))) == differs


@pytest.mark.parametrize(("undecided", "culprits", "sides"), [(True, (), ((1, 2), (0,))), (False, (0,), ())])
def test_a_rank_that_has_not_decided_may_be_on_either_side(undecided, culprits, sides):
    ranks = [Rank(n).wraps(at=WRAPPED) for n in range(4)]
    ranks[0].trains(1, STEP)
    for rank in ranks[1:3] if undecided else ranks[1:]:
        rank.hooks(HOOK)
    (one,) = asked("DDP416", record(*ranks))
    assert (one.culprits, one.sides) == (culprits, sides)
