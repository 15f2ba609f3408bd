"""What inputs, losses, scales and used parameters say; and what they must not be taken for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ddpnb.rules.divergence import numbers, replicas
from tests.rules.recordings import Rank, Script, diagnose, group, line, record
from tests.rules.training import tensor

NAN, INF = math.nan, math.inf
WEIGHT, BIAS = "fc.weight", "fc.bias"
WRAPPED, STEP = line(3), line(9)


def ranks(make, world=4, wraps=True, **options):
    """``make(rank)`` says what each rank does with its model."""
    found = []
    for number in range(world):
        rank = Rank(number, world)
        make(rank.wraps(at=WRAPPED, **options) if wraps else rank.adopts(at=WRAPPED, **options))
        found.append(rank)
    return found


def recorded(make, world=4, script=None, **options):
    return record(*(rank.finishes() for rank in ranks(make, world, **options)), script=script)


def the_finding(recording, rules=numbers):
    (found,) = rules.find(recording)
    assert found.summary and found.remedy and found.evidence
    assert not set(found.culprits) & set(found.waiting)
    assert found.code in [one.code for one in diagnose(recording).findings]
    return found


def step(rank, at=STEP, forward=None, backward=None, steps=1):
    for _ in range(steps):
        rank.forward(at, **(forward or {})).backward(at, **(backward or {})).gradients(at).updated(at)
    return rank


def some(culprits, odd, usual=step):
    """The culprits do one thing, the others another."""
    return lambda rank: odd(rank) if rank.rank in culprits else usual(rank)


def others(culprits, world=4):
    return tuple(number for number in range(world) if number not in culprits)


def test_all_is_well():
    assert numbers.find(recorded(lambda rank: rank.trains(5, STEP))) == []


# -- DDP508 and DDP414: not a number


def test_a_loss_that_is_no_number_in_a_step_that_is_not_looked_at():
    """Then only the ranks where it is have told of it."""

    def make(rank):
        step(rank, steps=2)
        if rank.rank == 1:
            rank.backward(STEP, loss=NAN, turn=71)
        rank.backward(STEP, loss=NAN, turn=81)

    taken = recorded(make)
    gone_on = replace(taken, ranks={r: replace(one, forwards=82) for r, one in taken.ranks.items()})
    found = the_finding(gone_on)
    assert (found.code, found.culprits, found.waiting) == ("DDP414", (1,), (0, 2, 3))
    assert "backward 71" in found.summary
    assert numbers.find(taken) == []  # nobody knows whether the others have come so far


@pytest.mark.parametrize("culprits", [(0,), (2,), (0, 1, 3)], ids=str)
@pytest.mark.parametrize("loss", [NAN, INF, -INF])
def test_a_loss_that_is_no_number_on_some_ranks(culprits, loss):
    taken = recorded(
        some(culprits, lambda r: step(step(r, steps=2), backward={"loss": loss}), lambda r: step(r, steps=3))
    )
    found = the_finding(taken)
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP414",
        "error",
        culprits,
        others(culprits),
    )
    assert "backward 3" in found.summary
    assert ("NaN" if math.isnan(loss) else "infinite") in found.summary
    assert f"Rank {culprits[0]}: loss {loss}" in " ".join(found.evidence)
    assert dict(found.where)[culprits[0]] == STEP


@pytest.mark.parametrize("culprits", [(0,), (3,)], ids=str)
def test_a_batch_that_holds_no_numbers_is_the_reason_of_such_a_loss(culprits):
    bad = {"inputs_finite": 0.0}
    taken = recorded(
        some(culprits, lambda r: step(step(r), forward=bad, backward={**bad, "loss": NAN}), lambda r: step(r, steps=2))
    )
    found = the_finding(taken)
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP508",
        "error",
        culprits,
        others(culprits),
    )
    assert "2" in found.summary


def test_a_bad_batch_that_all_ranks_left_out_is_a_note():
    bad = {"inputs_finite": 0.0}

    def left_out(rank, facts):
        return step(step(rank).forward(STEP, **facts))

    taken = recorded(some((1,), lambda r: left_out(r, bad), lambda r: left_out(r, {})))
    found = the_finding(taken)
    assert (found.code, found.severity, found.culprits) == ("DDP508", "note", (1,))
    assert "No rank ran backward on it." in found.evidence
    assert "All ranks dealt with it alike: in forward 3 they hold the same finite parameters." in found.evidence


def test_a_bad_batch_whose_gradients_are_kept_for_the_next_step():
    bad = {"inputs_finite": 0.0}

    def accumulates(rank, facts):
        return step(step(rank).forward(STEP, **facts).backward(STEP))

    taken = recorded(some((1,), lambda r: accumulates(r, bad), lambda r: accumulates(r, {})))
    assert the_finding(taken).code == "DDP508"
    assert "No rank ran backward on it." not in the_finding(taken).evidence


def test_of_a_loss_and_a_later_batch_the_loss_is_the_reason():
    def make(rank):
        step(step(rank, steps=2), backward={"loss": NAN if rank.rank == 1 else 1.0})
        return rank.forward(STEP, inputs_finite=0.0 if rank.rank == 2 else 1.0)

    assert (the_finding(recorded(make)).code, the_finding(recorded(make)).culprits) == ("DDP414", (1,))


def test_inputs_that_were_only_looked_at_when_the_loss_was_bad():
    taken = recorded(some((1,), lambda r: step(r, backward={"inputs_finite": 0.0, "loss": NAN})))
    assert (the_finding(taken).code, the_finding(taken).culprits) == ("DDP508", (1,))


def test_the_line_of_a_loss_that_is_no_number():
    script = Script("""
        def main(rank):
            for batch in loader:
                if rank == 3:
                    batch = batch / batch.sum()   # divide
                loss = model(batch)   # step
    """)
    at = script.at("step")
    taken = recorded(some((3,), lambda r: step(r, at, backward={"loss": INF}), lambda r: step(r, at)), script=script)
    found = the_finding(taken)
    assert (found.code, dict(found.where)[3].line) == ("DDP414", script.line("step"))


def test_all_ranks_become_no_numbers_at_the_same_step():
    """A learning rate that is too high: nothing of it began on one rank."""
    assert numbers.find(recorded(lambda r: step(step(r), backward={"loss": NAN}))) == []
    assert numbers.find(recorded(lambda r: step(step(r), forward={"inputs_finite": 0.0}))) == []


def test_what_comes_after_all_ranks_are_bad_began_nowhere():
    taken = recorded(lambda r: step(step(r, backward={"loss": NAN}), backward={"loss": NAN if r.rank else 1.0}))
    assert numbers.find(taken) == []


def test_inputs_of_which_it_is_not_known():
    assert numbers.find(recorded(lambda r: step(r, forward={"inputs_finite": NAN}, backward={"loss": 0.0}))) == []


# -- DDP508: another structure


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_a_batch_of_another_structure(culprits):
    odd = {"inputs": "dict {ids: Tensor int64 2d}"}
    found = the_finding(recorded(some(culprits, lambda r: step(step(r), forward=odd), lambda r: step(r, steps=2))))
    assert (found.code, found.severity, found.culprits) == ("DDP508", "warning", culprits)
    assert "forward 2" in found.summary
    assert "previously Tensor float32 2d" in found.evidence[0]


def test_ranks_whose_inputs_are_always_of_their_own_kind():
    """Stages that are replicas all the same, or a rank with other data: not a bad sample."""
    assert numbers.find(recorded(lambda r: step(r, forward={"inputs": f"kind {r.rank}"}, steps=3))) == []


def test_all_ranks_go_over_to_another_structure():
    taken = recorded(lambda r: step(step(r), forward={"inputs": "Tensor float32 3d"}, steps=2))
    assert numbers.find(taken) == []


# -- DDP402: other parameters are used


@pytest.mark.parametrize("culprits", [(0,), (1,)], ids=str)
def test_a_branch_that_some_ranks_take(culprits):
    taken = recorded(
        some(culprits, lambda r: step(r, backward={"unused": ["a.weight", "c"]}), lambda r: step(r, backward={"unused": ["b.weight", "c"]}))
    )  # fmt: skip
    found = the_finding(taken)
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP402",
        "error",
        culprits,
        others(culprits),
    )
    assert set(found.tensors) == {"a.weight", "b.weight"}
    assert f"Rank {culprits[0]} does not use a.weight." in found.evidence


def test_one_rank_uses_all_of_them():
    taken = recorded(
        some((3,), lambda r: step(r, backward={"unused": []}), lambda r: step(r, backward={"unused": [BIAS]}))
    )
    found = the_finding(taken)
    assert (found.code, found.culprits, found.tensors) == ("DDP402", (3,), (BIAS,))


def test_all_ranks_leave_the_same_ones_out():
    assert numbers.find(recorded(lambda r: step(r, backward={"unused": [BIAS]}))) == []


def test_a_branch_that_all_take_together_and_leave_together():
    assert numbers.find(recorded(lambda r: step(step(r, backward={"unused": [BIAS]}), backward={"unused": []}))) == []


def test_a_rank_that_has_not_looked_for_unused_parameters():
    assert numbers.find(recorded(some((1,), step, lambda r: step(r, backward={"unused": [BIAS]})))) == []


# -- DDP409: another scale


@pytest.mark.parametrize("culprits", [(0,), (1,)], ids=str)
@pytest.mark.parametrize(
    ("odd", "usual"),
    [
        ({"graph": "scaled < MseLoss mean", "factors": (0.25,)}, {}),
        ({"factors": (4.0,), "graph": "scaled < MseLoss mean"}, {"factors": (1.0,), "graph": "scaled < MseLoss mean"}),
        ({"graph": "MseLoss sum"}, {"graph": "MseLoss mean"}),
        ({"graph": "Sum"}, {"graph": "Mean"}),
    ],
    ids=["scaled on one", "another factor", "another reduction", "sum"],
)
def test_a_loss_that_is_scaled_otherwise(culprits, odd, usual):
    taken = recorded(
        some(culprits, lambda r: step(r, backward=odd, steps=3), lambda r: step(r, backward=usual, steps=3))
    )
    found = the_finding(taken)
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP409",
        "error",
        culprits,
        others(culprits),
    )


def test_of_two_ranks_that_scale_differently_neither_is_named():
    odd = {"factors": (4.0,), "graph": "scaled < MseLoss mean"}
    taken = recorded(some((0,), lambda r: step(r, backward=odd, steps=2), lambda r: step(r, steps=2)), world=2)
    found = the_finding(taken)
    assert (found.code, found.culprits, found.sides) == ("DDP409", (), ((0,), (1,)))
    assert found.summary.startswith("Ranks 0 and 1 scale")


def test_factors_that_vary_from_step_to_step():
    """Divided by the number of tokens of each batch, which is another on each rank."""

    def tokens(rank):
        for turn in range(4):
            step(rank, backward={"factors": (1 / (10 + turn + rank.rank),), "graph": "scaled < NllLoss sum"})

    assert numbers.find(recorded(tokens)) == []


def test_a_factor_that_changes_on_all_ranks_alike():
    def warms_up(rank):
        for turn in range(4):
            step(rank, backward={"factors": (float(turn),), "graph": "scaled < MseLoss mean"})

    assert numbers.find(recorded(warms_up)) == []


def test_one_step_proves_no_setting():
    taken = recorded(some((1,), lambda r: step(r, backward={"factors": (4.0,)}), step))
    assert numbers.find(taken) == []


def test_another_loss_is_a_branch_not_a_scale():
    odd, usual = {"graph": "CrossEntropy"}, {"graph": "MseLoss mean"}
    taken = recorded(some((1,), lambda r: step(r, backward=odd, steps=3), lambda r: step(r, backward=usual, steps=3)))
    assert numbers.find(taken) == []


@pytest.mark.parametrize("norms", [(3.0, 4.0, 5.0, 6.0), (0.5, 0.5, 9.0, 0.5)], ids=str)
def test_gradients_that_are_clipped_by_norms_of_ones_own(norms):
    taken = recorded(lambda r: step(r).clips(norms[r.rank], line(12), max_norm=1.0))
    found = the_finding(taken)
    assert (found.code, found.severity, found.culprits, found.waiting) == ("DDP409", "error", (0, 1, 2, 3), ())
    assert dict(found.where) == dict.fromkeys(range(4), line(12))
    assert f"Rank 2: norm {norms[2]:g}." in found.evidence


@pytest.mark.parametrize(
    ("norms", "most"),
    [((3.0, 3.0, 3.0, 3.0), 1.0), ((0.1, 0.2, 0.3, 0.4), 1.0), ((NAN,) * 4, 1.0), ((3.0, 4.0, 5.0, 6.0), INF)],
    ids=["the same norm", "nothing is clipped", "not a number on all", "only measured"],
)
def test_norms_that_harm_nothing(norms, most):
    assert numbers.find(recorded(lambda r: step(r).clips(float(norms[r.rank]), max_norm=most))) == []


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_a_scaler_whose_scale_has_parted(culprits):
    taken = recorded(
        some(
            culprits,
            lambda r: step(r).scales(65536.0).scales(32768.0),
            lambda r: step(r).scales(65536.0).scales(65536.0),
        )
    )
    found = the_finding(taken, replicas)
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP409",
        "error",
        culprits,
        others(culprits),
    )
    assert "update 2" in found.summary
    assert f"Rank {culprits[0]}: scale 32768." in found.evidence


def test_scalers_that_begin_apart():
    """What they began with decides; that losses and norms differ then follows from it."""

    def scaled(rank):
        scale = 2.0 ** (14 - 4 * (rank.rank == 1))
        for _ in range(3):
            step(rank, backward={"factors": (scale,), "graph": "scaled < MseLoss mean"}).clips(scale)
            rank.scales(scale, line(3))
        return rank

    taken = recorded(scaled)
    found = the_finding(taken, replicas)
    assert (found.code, found.culprits, dict(found.where)[1]) == ("DDP409", (1,), line(3))
    assert numbers.find(taken) == []


@pytest.mark.parametrize("culprits", [(0,), (1, 2)], ids=str)
def test_a_scaler_that_was_restored_on_some_ranks(culprits):
    taken = recorded(
        some(culprits, lambda r: step(r.loads("scaler", line(21))).scales(1024.0), lambda r: step(r).scales(65536.0))
    )
    found = the_finding(taken, replicas)
    assert (found.code, found.culprits, found.waiting) == ("DDP605", culprits, others(culprits))
    assert found.where == tuple((number, line(21)) for number in culprits)


def test_a_scaler_that_was_restored_on_all_ranks():
    assert replicas.find(recorded(lambda r: step(r.loads("scaler")).scales(1024.0))) == []
    parted = recorded(
        some((1,), lambda r: step(r.loads("scaler")).scales(1.0), lambda r: step(r.loads("scaler")).scales(2.0))
    )
    assert (the_finding(parted, replicas).code, the_finding(parted, replicas).culprits) == ("DDP409", (1,))


def test_a_scale_that_changes_on_all_ranks():
    assert numbers.find(recorded(lambda r: step(r).scales(65536.0).scales(32768.0).scales(NAN))) == []


# -- DDP501: the same inputs


def batches(side, turns=3, loader=True, **facts):
    """Every turn has other batches; ranks of one ``side(rank)`` see the same ones."""

    def make(rank):
        if loader:
            rank.loader(line(5), loader=0)
        for turn in range(turns):
            step(rank, forward={"inputs_hash": float(1 + 100 * turn + side(rank.rank)), **facts})

    return make


@pytest.mark.parametrize(
    ("side", "culprits"),
    [(lambda r: 0, (0, 1, 2, 3)), (lambda r: r // 3, (0, 1, 2)), (lambda r: r and 7, (1, 2, 3))],
    ids=["all", "not rank 3", "not rank 0"],
)
def test_ranks_that_see_the_same_batches(side, culprits):
    found = the_finding(recorded(batches(side)))
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP501",
        "error",
        culprits,
        others(culprits),
    )
    assert dict(found.where)[culprits[0]] == STEP


def test_without_a_loader_or_with_few_turns_it_is_a_warning():
    assert the_finding(recorded(batches(lambda r: 0, loader=False))).severity == "warning"
    assert the_finding(recorded(batches(lambda r: 0, turns=2))).severity == "warning"


def test_batches_of_ones_own():
    assert numbers.find(recorded(batches(lambda r: r))) == []


def test_constant_inputs():
    """Somebody's dummy: it does not change from step to step."""

    def constant(rank):
        step(rank.loader(), forward={"inputs_hash": 5.0}, steps=6)

    assert numbers.find(recorded(constant)) == []


def test_constant_inputs_on_some_ranks_and_others_on_others():
    """Three digests in all, but none of them ever changes."""

    def constant(rank):
        step(rank.loader(), forward={"inputs_hash": (5.0, 5.0, 6.0, 7.0)[rank.rank]}, steps=6)

    assert numbers.find(recorded(constant)) == []


def test_inputs_that_alternate_between_two():
    def alternates(rank):
        for turn in range(8):
            step(rank, forward={"inputs_hash": float(1 + turn % 2)})

    assert numbers.find(recorded(alternates)) == []


def test_one_turn_alike_is_a_coincidence():
    def once(rank):
        step(rank, forward={"inputs_hash": 5.0})
        step(rank, steps=3)

    assert numbers.find(recorded(once)) == []
    assert numbers.find(recorded(batches(lambda r: 0, turns=1))) == []


def test_evaluation_may_see_the_same_batches_everywhere():
    assert numbers.find(recorded(batches(lambda r: 0, training=0.0))) == []


def test_inputs_that_were_not_digested():
    assert numbers.find(recorded(batches(lambda r: 0, inputs_hash=0.0))) == []


# -- models that are no replicas of each other


def apart(rank, turn):
    return {WEIGHT: 1000 * turn + rank.rank, BIAS: 1000 * turn + 500 + rank.rank}


def on_its_own(rank, *, together=False, **facts):
    """Training by hand: averaged gradients, or a model of this rank alone."""
    for turn in range(4):
        odd = None if together else apart(rank, turn)
        rank.backward(STEP, **facts).clips(2.0 + rank.rank, STEP).scales(2.0**rank.rank, STEP)
        rank.gradients(STEP, odd=odd).updated(STEP, odd=odd)
    return rank


def test_independent_models_that_are_trained_by_hand():
    """Each rank has a model, a scale and a norm of its own: a search, not a replica."""
    factors = lambda r: on_its_own(r, factors=(1.0 + r.rank,), graph="scaled < MseLoss mean")  # noqa: E731
    assert numbers.find(recorded(factors, wraps=False)) == []
    diverges = lambda r: on_its_own(r, loss=NAN if r.rank == 2 else 0.5 + r.rank)  # noqa: E731
    assert numbers.find(recorded(diverges, wraps=False)) == []


def test_replicas_whose_gradients_are_averaged_by_hand():
    found = numbers.find(recorded(lambda r: on_its_own(r, together=True), wraps=False))
    assert [(one.code, one.culprits) for one in found] == [("DDP409", (0, 1, 2, 3))]


def test_models_on_different_groups():
    def stages(rank):
        pair = group(0, 1) if rank.rank < 2 else group(2, 3)
        rank.wraps(at=WRAPPED, group=pair)
        step(
            rank, forward={"inputs_hash": 5.0 + rank.rank // 2}, backward={"factors": (1.0 + rank.rank // 2,)}, steps=3
        )
        return rank.clips(3.0 + rank.rank // 2).scales(1.0 + rank.rank // 2)

    assert numbers.find(record(*(stages(Rank(number)).finishes() for number in range(4)))) == []


def test_models_of_other_tensors():
    taken = record(*(step(Rank(n, 2).wraps(tensor(f"t{n}")), backward={"loss": NAN if n else 1.0}) for n in range(2)))
    assert numbers.find(taken) == []


# -- DDP503: parts of the data that overlap


def shards(first, turns=6, repeated=False):
    """Every rank sees ``turns`` of twelve batches, from ``first(rank)`` on."""

    def make(rank):
        for turn in range(turns):
            value = (first(rank.rank) + turn) % 12
            step(rank, forward={"inputs_hash": float(1 + (value % 2 if repeated else value))})
        return rank

    return recorded(make, world=2)


def test_shards_that_overlap():
    found = the_finding(shards(lambda rank: 3 * rank))
    assert (found.code, found.culprits) == ("DDP503", (0, 1))
    assert "3 batches" in found.summary


@pytest.mark.parametrize(
    "taken",
    [shards(lambda rank: 6 * rank), shards(lambda rank: 4 * rank), shards(lambda rank: 3 * rank, repeated=True)],
    ids=["they do not", "two may be alike by chance", "batches come again"],
)
def test_shards_that_do_not_overlap(taken):
    assert [one.code for one in numbers.find(taken) if one.code == "DDP503"] == []


# -- DDP414: the gradient that comes back


def arrives(rank, arrived, norm):
    step(rank).forward(STEP).backward(line(12)).gradients(line(13), arrived_finite=arrived)
    last = rank._samples[-1]
    rank._samples[-1] = replace(last, digests={name: replace(one, norm=norm) for name, one in last.digests.items()})
    return rank.updated(STEP)


def test_a_gradient_that_is_no_number_although_losses_are():
    taken = recorded(some((2,), lambda r: arrives(r, 0.0, None), lambda r: arrives(r, 1.0, None)))
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting) == ("DDP414", (2,), (0, 1, 3))
    assert dict(found.where)[2] == line(12)


def test_a_gradient_that_nobody_used():
    """A GradScaler left that step out on all ranks; the next one is finite."""
    assert numbers.find(recorded(some((2,), lambda r: arrives(r, 0.0, 1.5), lambda r: arrives(r, 1.0, 1.5)))) == []


def test_averaged_gradients_that_are_no_number_although_all_that_is_seen_of_each_rank_is():
    taken = recorded(lambda rank: arrives(arrives(rank, 1.0, 1.5), 1.0, None))
    found = the_finding(taken)
    assert (found.code, found.culprits, found.severity) == ("DDP414", (), "warning")
    assert "averaged gradients" in found.summary


def test_micro_batches_in_other_numbers_may_be_scaled_by_them():
    """Rank 1 makes three of a third: each rank's losses have the same weight in an optimizer step."""

    def accumulates(rank, parts):
        for _ in range(3):
            for _ in range(parts):
                rank.forward(STEP).backward(STEP, factors=(1 / parts,))
            rank.gradients(STEP).updated(STEP)
        return rank

    assert numbers.find(recorded(lambda rank: accumulates(rank, 3 if rank.rank == 1 else 1))) == []
    uneven = recorded(
        lambda rank: accumulates(rank, 3) if rank.rank == 1 else step(rank, backward={"factors": (0.5,)}, steps=3)
    )
    assert the_finding(uneven).code == "DDP409"


@pytest.mark.parametrize("culprits", [(1,), (0, 2)])
def test_losses_of_a_model_that_is_not_looked_at(culprits):
    """Before its first optimizer step a model without a wrapper is not known, and a sharded one never is."""

    def make(rank):
        if rank.rank in culprits:
            rank.event("loss not finite", STEP, loss="nan", backward=1)
        elif rank.rank == 3:  # by then it has come to all
            rank.event("loss not finite", STEP, loss="nan", backward=2)
        step(rank, steps=2)

    found = the_finding(recorded(make))
    assert (found.code, found.culprits, found.waiting) == ("DDP414", culprits, others(culprits))
    assert found.summary.startswith("Since backward 1 the loss is NaN on rank")


def test_losses_that_are_not_finite_on_all_ranks_or_with_a_scaler():
    everywhere = recorded(lambda rank: step(rank.event("loss not finite", STEP, loss="inf", backward=1)))
    scaled = recorded(
        lambda rank: step(rank.event("scaler made").event("loss not finite", STEP, loss="inf", backward=1 + rank.rank))
    )
    assert numbers.find(everywhere) == numbers.find(scaled) == []
