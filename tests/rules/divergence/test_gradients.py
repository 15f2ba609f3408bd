"""Gradients that differ: clipped to other norms (DDP409), of parameters that were frozen when the model was wrapped (DDP415)."""

from __future__ import annotations

from tests.rules.divergence.test_replicas import STEP, WEIGHT, step, the_finding
from tests.rules.recordings import Rank, Script, line, record
from tests.rules.training import tensor

FROZEN = (tensor(WEIGHT, trains=False), tensor("fc.bias"))
SCRIPT = Script("""
    def main():
        freeze(net.body)                    # freeze
        model = DDP(net)                    # wrap
        for epoch in range(2):              # loop
            schedule(epoch)                 # schedule
            train()                         # train

    def schedule(epoch):
        for p in net.body.parameters():
            p.requires_grad = epoch > 0     # set

    def unfreeze():
        net.body.requires_grad_(True)       # other
""")


def trained(rank, *, marks="loop schedule schedule:set train", own=None, world=4):
    made = Rank(rank, world).runs(SCRIPT, "freeze unfreeze:other wrap")
    made.wraps(*FROZEN, at=SCRIPT.at("wrap")).runs(SCRIPT, "loop train").trains(2, STEP).runs(SCRIPT, marks)
    own = 50 + rank if own is None else own  # 0: it has no gradient
    return step(made, gradients={WEIGHT: own}, updated={WEIGHT: 60 + own}).runs(SCRIPT, "unfreeze:other").finishes()


def test_all_ranks_unfroze_them():
    found = the_finding(record(*(trained(rank) for rank in range(4)), script=SCRIPT))
    assert (found.code, found.culprits, found.tensors) == ("DDP415", (0, 1, 2, 3), (WEIGHT,))
    assert found.where[:4] == tuple((rank, SCRIPT.at("set", "schedule")) for rank in range(4))
    assert f"After it was wrapped, ranks 0-3 ran {SCRIPT.at('set', 'schedule')}." in found.evidence


def test_one_rank_unfroze_them():
    ranks = (trained(rank, own=50 if rank == 2 else 0) for rank in range(4))
    found = the_finding(record(*ranks, script=SCRIPT))
    assert (found.code, found.culprits) == ("DDP415", (2,))
    assert found.where[0] == (2, SCRIPT.at("set", "schedule"))


def test_no_line_that_did_so_was_recorded():
    """A library may have done it; what ran before the model was wrapped, or later than that, did not."""
    found = the_finding(record(*(trained(rank, marks="loop train") for rank in range(4)), script=SCRIPT))
    assert found.code == "DDP415"
    assert {site for _, site in found.where} == {STEP}
    assert "After it was wrapped" not in str(found.evidence)


def test_norms_that_each_rank_chooses_for_clipping_are_named():
    ranks = [Rank(number, 3).wraps().trains(2, STEP) for number in range(3)]
    for number, rank in enumerate(ranks):
        rank.forward(STEP).backward(STEP).clips(5.0, line(12), max_norm=1.0 + number)
        rank.gradients(STEP, odd={WEIGHT: 70 + number}).updated(STEP, odd={WEIGHT: 80 + number})
    found = the_finding(record(*(rank.finishes() for rank in ranks)))
    assert (found.code, found.culprits, found.sides) == ("DDP409", (), ((0,), (1,), (2,)))
    assert found.where[:3] == tuple((rank, line(12)) for rank in range(3))
    assert f"Rank 1 clips to a norm of 2 at {line(12)} in main." in found.evidence
