"""Communication hooks that differ between ranks."""

from __future__ import annotations

import pytest

from ddpnb.rules.divergence import ddp_setup
from tests.rules.divergence.setups import WRAPPED, others, recorded, some, the_finding, wraps
from tests.rules.recordings import Rank, Script, group, line, record

COMPRESSION = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook"


@pytest.mark.parametrize("culprits", [(0,), (3,)], ids=str)
@pytest.mark.parametrize(
    ("odd", "usual"),
    [
        (lambda r: r.hooks(COMPRESSION, line(5)), lambda r: r),
        (lambda r: r, lambda r: r.hooks(COMPRESSION, line(5))),
        (lambda r: r.hooks(COMPRESSION, line(5)), lambda r: r.hooks("allreduce_hook", line(5))),
        (
            lambda r: r.hooks("powerSGD_hook", line(5), state="PowerSGDState"),
            lambda r: r.hooks("powerSGD_hook", line(5)),
        ),
    ],
    ids=["one alone", "all but one", "another", "another state"],
)
def test_hooks_that_differ(culprits, odd, usual):
    found = the_finding(recorded(some(culprits, lambda r: odd(wraps()(r)), lambda r: usual(wraps()(r)))))
    assert (found.code, found.culprits, found.waiting) == ("DDP416", culprits, others(culprits))
    assert dict(found.where).keys() == {0, 1, 2, 3}
    assert set(dict(found.where).values()) <= {line(5), WRAPPED}
    assert len(found.evidence) == 4


def test_the_same_hook_on_all_ranks():
    assert ddp_setup.find(recorded(lambda r: wraps()(r).hooks(COMPRESSION, line(5)))) == []


def test_a_rank_without_a_model_needs_no_hook():
    ranks = [Rank(n, 3).wraps(group=group(0, 1)).hooks(COMPRESSION) for n in (0, 1)]
    assert ddp_setup.find(record(*ranks, Rank(2, 3))) == []
    assert ddp_setup.find(record(ranks[0], Rank(1, 3), Rank(2, 3))) == []


def test_a_hook_that_a_rank_has_forgotten_is_not_missing():
    """Its box keeps the last events: the hook was registered long ago."""
    make = some((2,), lambda r: wraps()(r).forgets_events(3), lambda r: wraps()(r).hooks(COMPRESSION, line(5)))
    assert ddp_setup.find(recorded(make)) == []


@pytest.mark.parametrize("special", [0, 1])
def test_of_two_hooks_neither_is_the_odd_one(special):
    script = Script(f"""
        if dist.get_rank() == {special}:
            model.register_comm_hook(None, own)   # special
        else:
            model.register_comm_hook(None, usual)   # usual
    """)

    def make(rank):
        odd = rank.rank == special
        at = script.at("special" if odd else "usual")
        return wraps()(rank).event("comm hook", at, hook="own" if odd else "usual", state="", settings={})

    found = the_finding(recorded(make, world=2, script=script))
    assert (found.code, found.culprits, found.sides) == ("DDP416", (), ((0,), (1,)))
    assert dict(found.where) == {special: script.at("special"), 1 - special: script.at("usual")}


def hooked(one, **settings):
    return wraps()(one).event("comm hook", line(5), hook="train.hook", state="NoneType", settings=settings)


def test_one_hook_with_other_settings():
    taken = recorded(
        some((3,), lambda r: hooked(r, dtype="torch.bfloat16"), lambda r: hooked(r, dtype="torch.float16"))
    )
    found = the_finding(taken)
    assert (found.code, found.culprits) == ("DDP416", (3,))
    assert "dtype=torch.bfloat16" in " ".join(found.evidence)


def test_settings_of_a_hook_that_are_each_ranks_own():
    assert ddp_setup.find(recorded(lambda r: hooked(r, rank=str(r.rank), log_path=f"/tmp/{r.rank}"))) == []


def test_hooks_of_models_that_are_not_reduced_together():
    """As with torchft, where each rank has a group of its own, and its hook the state of its replica."""

    def of(**more):
        ranks = [Rank(rank, 2).wraps(**{name: make(rank) for name, make in more.items()}) for rank in range(2)]
        hooks = [one.event("comm hook", line(5), hook="train.hook", settings={"step": str(one.rank)}) for one in ranks]
        return [found.code for found in ddp_setup.find(record(*hooks))]

    assert of(group=group) == []
    assert of() == ["DDP416"]
