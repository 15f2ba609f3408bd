"""Replicas that part in silence: which rule says so, whom it blames, which line it points to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.rules.divergence import replicas
from tests.rules.recordings import Rank, Script, diagnose, group, line, record
from tests.rules.training import NORMED, tensor

WEIGHT, BIAS, MEAN = "fc.weight", "fc.bias", "bn.running_mean"
WRAPPED, STEP = line(3), line(9)


def nothing(rank):
    return rank


def trained(
    odd, usual=nothing, culprits=(1,), world=4, *, before=2, after=2, script=None, tensors=(), at=STEP, **options
):
    """All ranks train, ``culprits`` do something odd in between and the others what is usual, and train on."""
    ranks = []
    for number in range(world):
        rank = Rank(number, world).wraps(*tensors, at=WRAPPED, **options).trains(before, at)
        (odd if number in culprits else usual)(rank)
        ranks.append(rank.trains(after, at).finishes())
    return record(*ranks, script=script)


def the_finding(recording):
    (found,) = replicas.find(recording)
    assert found.severity == "error"
    assert found.summary and found.remedy
    assert set(found.culprits) | set(found.waiting) <= set(recording.ranks)
    assert not set(found.culprits) & set(found.waiting)
    # It is the first thing that the diagnosis says, and the run is a divergence.
    told = diagnose(recording)
    assert (told.findings[0].code, told.outcome) == (found.code, "divergence")
    return found


def silent(recording):
    assert replicas.find(recording) == []
    return True


def step(rank, at=STEP, *, forward=None, gradients=None, updated=None, **facts):
    """One step of which some things are odd."""
    rank.forward(at, odd=forward).backward(at).gradients(at, odd=gradients, **facts)
    return rank.updated(at, odd=updated)


# -- all is well


def test_replicas_that_agree():
    silent(trained(nothing))


def test_a_model_on_one_rank_is_no_replica():
    silent(record(Rank(0, 2).wraps().trains(2), Rank(1, 2)))


def test_models_of_other_tensors_or_wrappers_are_no_replicas():
    silent(record(Rank(0, 2).wraps().trains(2), Rank(1, 2).wraps(tensor("other")).drifts({WEIGHT: 9}).trains(2)))
    silent(record(Rank(0, 2).wraps().trains(2), Rank(1, 2).wraps(wrapper="FSDP").drifts({WEIGHT: 9}).trains(2)))


def test_models_on_different_groups_are_no_replicas_of_each_other():
    """Two stages of a pipeline, each wrapped on a group of its own."""
    stages = group(0, 1), group(2, 3)
    ranks = [
        Rank(n).drifts({WEIGHT: 7 + n // 2}).wraps(group=stages[n // 2], at=WRAPPED).trains(3, STEP) for n in range(4)
    ]
    silent(record(*ranks))


def test_no_samples_at_all():
    silent(record(*(Rank(n, 2).wraps(state="open") for n in range(2))))


# -- DDP405: parameters that somebody changed

EDITED = Script("""
    def main(rank):
        model = DDP(Net())
        with torch.no_grad():
            if rank == 1:
                model.module.fc.weight.add_(noise)   # edit
        if rank == 0:
            print(model.module.fc.weight)
        for batch in loader:
            loss = model(batch)   # step
""")


@pytest.mark.parametrize("culprits", [(1,), (0,), (2, 3)], ids=str)
def test_parameters_that_were_edited(culprits):
    found = the_finding(trained(lambda r: r.drifts({WEIGHT: 9}), culprits=culprits))
    assert found.code == "DDP405"
    assert found.culprits == culprits
    assert found.waiting == tuple(n for n in range(4) if n not in culprits)
    assert found.tensors == (WEIGHT,)
    assert "forward 3" in found.summary
    assert dict(found.where) == dict.fromkeys(range(4), STEP)
    assert any(f"rank{'s' * (len(culprits) > 1)} {culprits[0]}"[:6] in text.lower() for text in found.evidence)
    assert any("without an optimizer step" in text for text in found.evidence)


def test_of_two_ranks_the_one_that_changed_its_own_is_to_blame_even_if_it_is_rank_0():
    for culprit in (0, 1):
        found = the_finding(trained(lambda r: r.drifts({BIAS: 9}), culprits=(culprit,), world=2))
        assert (found.code, found.culprits, found.waiting) == ("DDP405", (culprit,), (1 - culprit,))


def test_an_edit_that_most_ranks_made_alike_was_left_out_by_the_others():
    found = the_finding(trained(lambda r: r.drifts({WEIGHT: 9}), culprits=(0, 1, 2)))
    assert (found.code, found.culprits, found.waiting, found.certainty) == ("DDP405", (3,), (0, 1, 2), "likely")
    assert any("Ranks 0, 1 and 2 changed them between two checks" in text for text in found.evidence)


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_that_edit_now_and_then_the_one_that_left_it_out_is_named(culprit):
    """As a target network is updated: rank 0 or 1 does not do it after the first step, but after the second."""
    ranks = [Rank(number, 2).wraps(at=WRAPPED).trains(1, STEP) for number in range(2)]
    ranks[1 - culprit].drifts({WEIGHT: 9})
    for rank in ranks:
        rank.forward(STEP).backward(STEP).gradients(STEP).updated(STEP)
        rank.drifts({WEIGHT: 10 + rank.rank}).forward(STEP)
    found = the_finding(record(*(rank.finishes() for rank in ranks)))
    assert (found.code, found.culprits, found.waiting, found.certainty) == (
        "DDP405",
        (culprit,),
        (1 - culprit,),
        "likely",
    )
    assert f"At another time rank {culprit} does so too." in found.evidence


def test_no_line_is_named_that_was_not_observed():
    """The source shows where only rank 1 changes parameters, but nothing recorded that it ran that line."""
    found = the_finding(trained(lambda r: r.drifts({WEIGHT: 9}), script=EDITED, at=EDITED.at("step")))
    assert dict(found.where) == dict.fromkeys(range(4), EDITED.at("step"))
    assert not any(f":{EDITED.line('edit')}" in text for text in (*found.evidence, found.summary))
    assert (found.code, found.culprits) == ("DDP405", (1,))
    assert "Rank 1 changed them" in " ".join(found.evidence)


def test_all_ranks_edited_alike():
    silent(trained(lambda r: r.drifts({WEIGHT: 9, BIAS: 8}), culprits=(0, 1, 2, 3)))


def test_all_ranks_edited_each_in_its_own_way():
    found = the_finding(trained(lambda r: r.drifts({WEIGHT: 90 + r.rank}), culprits=(0, 1, 2, 3)))
    assert found.code == "DDP405"
    assert found.culprits == (0, 1, 2, 3)
    assert found.summary.startswith("Ranks 0-3 hold different parameters")  # there are no others


def test_ranks_that_part_for_a_moment_and_come_back_before_the_step_are_a_note():
    """As sharpness-aware steps do: each rank computes a forward at a point of its own, and returns."""

    def climbs(rank):
        rank.forward(STEP).backward(STEP)
        own = {WEIGHT: 90 + rank.rank, BIAS: 80 + rank.rank}
        rank.forward(STEP, odd=own).backward(STEP).gradients(STEP).updated(STEP)

    (found,) = replicas.find(trained(climbs, culprits=(0, 1, 2, 3)))
    assert (found.code, found.severity) == ("DDP405", "note")
    assert found.summary.startswith("Ranks 0-3 computed forward 4 with different parameters: ")
    assert found.summary.endswith("After optimizer step 3 they hold the same again.")
    assert "nothing is wrong" in found.remedy
    assert diagnose(trained(climbs, culprits=(0, 1, 2, 3))).outcome == "ok"


def test_parameters_that_change_without_any_optimizer_are_not_said_to_change_after_its_step():
    ranks = [Rank(n, 2).wraps(at=WRAPPED).forward(STEP).backward(STEP) for n in range(2)]
    for rank in ranks:
        rank.drifts({WEIGHT: 70 + rank.rank}).forward(STEP).finishes()
    found = the_finding(record(*ranks))
    assert "Ranks 0 and 1 changed them between two checks, without an optimizer step." in found.evidence


@pytest.mark.parametrize("looks", [(0,), ()], ids=["one rank's", "none"])
def test_a_look_at_one_rank_does_not_show_that_all_held_the_same(looks):
    ranks = [Rank(n, 2).wraps(at=WRAPPED, state="open") for n in range(2)]
    for rank in ranks:
        if rank.rank in looks:
            rank.sample("updated", STEP, step=3, turn=4)
        rank.sample("updated", STEP, step=64, turn=65, odd={WEIGHT: 9 + rank.rank}).finishes()
    (found,) = replicas.find(record(*ranks))
    assert found.code == "DDP405" and "since optimizer step 64 or earlier" in found.summary
    assert "No earlier check of all ranks is recorded" in found.evidence[0]
    assert "all ranks held the same" not in " ".join(found.evidence)


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_what_began_in_steps_that_were_not_looked_at(culprits):
    """Neither who changed it nor when is known: no optimizer is blamed."""
    ranks = []
    for number in range(4):
        rank = Rank(number).wraps(at=WRAPPED).trains(3, STEP)
        odd = {WEIGHT: 9} if number in culprits else {}
        rank.sample("updated", STEP, step=64, turn=65, odd=odd).sample("forward", STEP, step=64, turn=65, odd=odd)
        ranks.append(rank.finishes())
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits, found.tensors) == ("DDP405", culprits, (WEIGHT,))
    assert "steps 4 to 64" in found.summary and "not checked" in " ".join(found.evidence)


@pytest.mark.parametrize("looks", [(0,), (1,)], ids=str)
def test_that_gradients_agreed_is_only_said_where_both_sides_were_looked_at(looks):
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).wraps(at=WRAPPED).trains(3, STEP).forward(STEP).backward(STEP)
        if number in looks:
            rank.gradients(STEP, as_reduced=0.0)
        ranks.append(rank.updated(STEP, odd={WEIGHT: 9 + number}).finishes())
    assert the_finding(record(*ranks)).code == "DDP405"


def test_what_was_changed_just_before_a_step_that_is_looked_at():
    ranks = []
    for number in range(4):
        rank = Rank(number).wraps(at=WRAPPED).trains(3, STEP)
        odd = {WEIGHT: 9} if number == 1 else {}
        rank.sample("updated", STEP, step=64, turn=65).sample("forward", STEP, step=64, turn=65, odd=odd)
        ranks.append(rank.finishes())
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits) == ("DDP405", (1,))
    assert "Rank 1 changed them" in " ".join(found.evidence)


def test_a_state_from_memory_that_one_rank_loaded():
    """No file was read: its line is that of the load."""
    found = the_finding(trained(lambda r: r.loads("model", line(20)).drifts({WEIGHT: 9}), culprits=(2,)))
    assert (found.code, found.culprits, found.where) == ("DDP405", (2,), ((2, line(20)),))


def test_a_tie_keeps_the_places_where_it_was_seen():
    """Nobody loaded a state and nobody is to blame: that is no reason to leave the lines out."""
    ranks = [Rank(n, 2).wraps(at=WRAPPED).trains(1, STEP) for n in range(2)]
    for rank in ranks:  # what each held after the second step was not looked at
        rank.forward(STEP).backward(STEP).gradients(STEP).drifts({WEIGHT: 7 + rank.rank})
        rank.sample("forward", STEP, step=2, odd={WEIGHT: 7 + rank.rank}, sync=1.0).finishes()
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP405", (), ((0,), (1,)))
    assert dict(found.where) == {0: STEP, 1: STEP}


def test_wrapped_without_a_broadcast():
    ranks = [Rank(n).drifts({WEIGHT: 50 + n}).wraps(at=WRAPPED, init_sync=False).trains(2, STEP) for n in range(4)]
    found = the_finding(record(*(rank.finishes() for rank in ranks)))
    assert (found.code, found.culprits, found.sides) == ("DDP405", (), ((0,), (1,), (2,), (3,)))
    assert "init_sync=False" in found.summary
    assert found.where == tuple((n, WRAPPED) for n in range(4))


def test_wrapped_alike_without_a_broadcast():
    silent(trained(nothing, init_sync=False))


def test_parameters_that_the_wrapper_ignores():
    tensors = (tensor("fc.weight"), tensor("own.scale", ignored=True))
    taken = trained(lambda r: r.drifts({"own.scale": 70 + r.rank}), culprits=(0, 1, 2, 3), tensors=tensors)
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting, found.tensors) == ("DDP405", (0, 1, 2, 3), (), ("own.scale",))
    assert dict(found.where)[0] == STEP


def test_ignored_parameters_point_to_where_they_were_named():
    def makes(rank):
        rank.event("parameters ignored", line(2), names=["own.scale"], count=1)
        rank.drifts({"own.scale": 70 + rank.rank})

    tensors = (tensor("fc.weight"), tensor("own.scale", ignored=True))
    found = the_finding(trained(makes, culprits=(0, 1, 2, 3), tensors=tensors))
    assert dict(found.where) == dict.fromkeys(range(4), line(2))


def test_ignored_parameters_that_never_were_alike_are_meant_to_differ():
    tensors = (tensor("fc.weight"), tensor("expert.weight", ignored=True))
    ranks = [Rank(n).drifts({"expert.weight": 70 + n}).wraps(*tensors).trains(3) for n in range(4)]
    silent(record(*ranks))


def test_ignored_parameters_that_stay_alike():
    silent(trained(nothing, tensors=(tensor("fc.weight"), tensor("own.scale", ignored=True))))


# -- DDP601, DDP605: states that were loaded on some ranks


@pytest.mark.parametrize(
    ("loaders", "culprits"), [((0,), (0,)), ((3,), (3,)), ((0, 1, 2), (3,)), ((0, 2), (0, 2))], ids=str
)
def test_a_checkpoint_that_some_ranks_loaded_after_wrapping(loaders, culprits):
    """Where most loaded it, those that did not are named."""
    found = the_finding(
        trained(lambda r: r.reads_checkpoint(line(20)).loads("model", line(21)).drifts({WEIGHT: 9}), culprits=loaders)
    )
    assert (found.code, found.culprits, found.certainty) == ("DDP601", culprits, "likely")
    assert found.waiting == tuple(n for n in range(4) if n not in culprits)
    assert found.where == tuple((n, line(21)) for n in loaders)


@pytest.mark.parametrize("refused", [False, True], ids=["could not be read", "refused by the model"])
def test_a_checkpoint_that_one_rank_could_not_load(refused):
    """It swallowed the error: those that loaded are not to blame."""

    def fails(rank):
        rank.phase("load failed", "done", line(20), error="UnpicklingError: truncated")
        return rank.loads("model", line(20)) if refused else rank

    loads = lambda r: r.reads_checkpoint(line(20)).loads("model", line(21)).drifts({WEIGHT: 9})  # noqa: E731
    found = the_finding(trained(fails, loads, culprits=(2,)))
    assert (found.code, found.culprits, found.waiting) == ("DDP601", (2,), (0, 1, 3))
    assert found.where == ((2, line(20)),)
    assert "UnpicklingError" in found.evidence[0]


def test_a_checkpoint_that_only_one_rank_could_load():
    """A file that most ranks do not have, and are meant to continue without: the one that loaded it differs."""
    fails = lambda r: r.phase("load failed", "done", line(20), error="FileNotFoundError: items.pt")  # noqa: E731
    loads = lambda r: r.reads_checkpoint(line(20)).loads("model", line(21)).drifts({WEIGHT: 9})  # noqa: E731
    found = the_finding(trained(loads, fails, culprits=(2,)))
    assert (found.code, found.culprits, found.waiting, found.certainty) == ("DDP601", (2,), (0, 1, 3), "likely")
    assert found.where[0] == (2, line(21))


def test_a_checkpoint_that_all_ranks_loaded():
    silent(trained(lambda r: r.reads_checkpoint().loads().drifts({WEIGHT: 9}), culprits=(0, 1, 2, 3)))


def test_a_load_that_the_others_have_forgotten_is_not_missing():
    loads = lambda r: r.reads_checkpoint(line(20)).loads("model", line(21)).drifts({WEIGHT: 9})  # noqa: E731
    found = the_finding(trained(loads, lambda r: r.forgets_events(2), culprits=(2,)))
    assert (found.code, found.culprits) == ("DDP405", (2,))
    assert "Only" not in found.summary
    found = the_finding(
        trained(
            lambda r: step(r.loads("optimizer", line(21)), updated={WEIGHT: 9}).drifts({WEIGHT: 9}),
            lambda r: step(r.forgets_events(2)),
            (2,),
        )
    )
    assert (found.code, found.culprits) == ("DDP410", (2,))


def test_a_checkpoint_that_was_loaded_later_is_no_reason():
    taken = trained(lambda r: r.drifts({WEIGHT: 9}).trains(1, STEP).reads_checkpoint().loads(), lambda r: r.trains(1))
    assert the_finding(taken).code == "DDP405"


@pytest.mark.parametrize("culprits", [(0,), (1,)], ids=str)
def test_the_state_of_an_optimizer_on_one_rank(culprits):
    taken = trained(
        lambda r: step(r.loads("optimizer", line(21)), updated={WEIGHT: 9}).drifts({WEIGHT: 9}), step, culprits
    )
    found = the_finding(taken)
    assert (found.code, found.culprits) == ("DDP605", culprits)
    assert found.waiting == tuple(n for n in range(4) if n not in culprits)
    assert found.where == ((culprits[0], line(21)),)
    assert "optimizer step 3" in found.summary


def test_the_state_of_an_optimizer_on_all_ranks():
    silent(trained(lambda r: r.loads("optimizer"), culprits=(0, 1, 2, 3)))


# -- DDP406: buffers


def test_statistics_of_ones_own():
    found = the_finding(apart())
    assert (found.code, found.culprits, found.waiting, found.tensors) == ("DDP406", (0, 1, 2, 3), (), (MEAN,))
    assert found.where == tuple((n, WRAPPED) for n in range(4))
    assert "not to synchronise" in found.evidence[0]


def apart(told=False):
    """Every rank keeps statistics of its own batches; ``told``: what the wrapper says of synchronising them."""
    ranks = []
    for number in range(4):
        rank = Rank(number).wraps(*NORMED, at=WRAPPED).event("buffers synced", model=0, synced=told)
        for turn in range(3):
            rank.forward(STEP, odd={MEAN: 60 + number + turn}, buffers_synced=0.0).backward(STEP)
            rank.gradients(STEP).updated(STEP)
        ranks.append(rank.finishes())
    return record(*ranks)


def test_statistics_that_differ_right_after_no_sync_meet_again():
    """The forward after one under no_sync does not synchronise buffers, also where the wrapper does so."""

    def accumulates(rank):
        rank.forward(STEP, sync=0.0).backward(STEP)
        rank.forward(STEP, odd={MEAN: 60 + rank.rank}, buffers_synced=0.0).backward(STEP)
        return rank.gradients(STEP).updated(STEP)

    silent(trained(accumulates, accumulates, tensors=NORMED))
    silent(trained(accumulates, accumulates, before=0, tensors=NORMED))


def test_statistics_that_differ_in_the_first_forward_with_gradients():
    """Those before were made under torch.no_grad(): a generator that makes samples first."""

    def first(rank):
        rank.forward(STEP, odd={MEAN: 60 + rank.rank}, buffers_synced=0.0).backward(STEP)
        return rank.gradients(STEP).updated(STEP)

    silent(trained(first, first, before=0, tensors=NORMED))


@pytest.mark.parametrize(
    ("hook", "codes"),
    [
        ("torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook.post_localSGD_hook", []),
        ("torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook", ["DDP409"]),
    ],
)
def test_local_sgd_parts_by_design(hook, codes):
    def alone(rank):
        return step(rank.event("comm hook", hook=hook, state=""), gradients={WEIGHT: 70 + rank.rank})

    assert [found.code for found in replicas.find(trained(alone, alone))] == codes


def kept(moving, world=2):
    """Buffers of one's own that some ranks change before each forward."""
    ranks = []
    for number in range(world):
        rank = Rank(number, world).wraps(*NORMED, tensor("queue", buffer=True), at=WRAPPED)
        rank.event("buffers synced", model=0, synced=False)
        for turn in range(4):
            value = 60 + 10 * number + turn * (number in moving)
            rank.forward(STEP, odd={"queue": value}, buffers_synced=0.0).backward(STEP)
            rank.gradients(STEP).updated(STEP)
        ranks.append(rank.finishes())
    return record(*ranks)


@pytest.mark.parametrize(("moving", "culprits"), [((0,), (0,)), ((1,), (1,)), ((0, 1), ()), ((), ())], ids=str)
def test_of_two_ranks_the_one_that_keeps_changing_its_buffers_is_named(moving, culprits):
    found = the_finding(kept(moving))
    assert (found.code, found.culprits, found.tensors) == ("DDP406", culprits, ("queue",))
    assert found.sides == (() if culprits else ((0,), (1,)))


def test_buffers_that_all_ranks_go_on_changing_together_tell_nothing_of_who_parted():
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).wraps(*NORMED, tensor("codes", buffer=True), at=WRAPPED)
        rank.event("buffers synced", model=0, synced=False)
        for turn in range(6):
            value = 60 + turn + 100 * (number == 1 and turn > 2)
            rank.forward(STEP, odd={"codes": value}, buffers_synced=0.0).backward(STEP)
            rank.gradients(STEP).updated(STEP)
        ranks.append(rank.finishes())
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP406", (), ((0,), (1,)))
    assert found.tensors == ("codes",)


@pytest.mark.parametrize("culprit", [0, 2])
def test_a_buffer_that_one_rank_sets_after_the_broadcast(culprit):
    tensors = (*NORMED, tensor("queue", buffer=True))
    found = the_finding(trained(lambda r: r.drifts({"queue": 5}), culprits=(culprit,), tensors=tensors))
    assert (found.code, found.culprits, found.tensors) == ("DDP406", (culprit,), ("queue",))
    assert found.waiting == tuple(n for n in range(4) if n != culprit)


def test_buffers_that_agree_without_being_synchronised():
    told = trained(lambda r: r.event("buffers synced", model=0, synced=False), culprits=(0, 1, 2, 3), tensors=NORMED)
    silent(told)


# -- DDP407: past the wrapper


def past(rank, at=STEP, gradients=None, **facts):
    """A step that does not go through the wrapper."""
    return rank.backward(at).gradients(at, odd=gradients or {WEIGHT: 80 + rank.rank}, **facts).updated(at)


@pytest.mark.parametrize("culprits", [(0,), (1, 2)], ids=str)
def test_some_ranks_go_past_the_wrapper(culprits):
    found = the_finding(trained(past, step, culprits))
    assert (found.code, found.culprits) == ("DDP407", culprits)
    assert found.waiting == tuple(n for n in range(4) if n not in culprits)
    assert "optimizer step 3" in found.evidence[0]


def test_all_ranks_go_past_the_wrapper():
    found = the_finding(trained(past, culprits=(0, 1, 2, 3), before=0, after=0))
    assert (found.code, found.culprits, found.waiting, found.tensors) == ("DDP407", (0, 1, 2, 3), (), (WEIGHT,))


def test_the_line_that_was_seen_to_go_past_the_wrapper():
    seen = {"file": "/home/user/model.py", "line": 44, "function": "fit"}
    found = the_finding(trained(lambda r: past(r, bypass_site=seen), step))
    ((rank, site),) = found.where
    assert (rank, site.file, site.line, site.function) == (1, "/home/user/model.py", 44, "fit")


def test_gradients_that_all_ranks_average_by_hand():
    """The module itself is used, and yet the gradients agree: that is somebody's own way."""
    silent(trained(lambda r: past(r, gradients={WEIGHT: 5}), culprits=(0, 1, 2, 3)))


def test_a_step_without_any_backward_goes_past_nothing():
    silent(trained(lambda r: r.gradients().updated(), culprits=(0, 1, 2, 3)))


# -- DDP408: backward passes that do not synchronise

DEFERRED = Script("""
    def main(rank):
        for batch in loader:
            loss = model(batch)   # step
            if rank == 2:
                with model.no_sync():   # defer
                    loss.backward()
""")


def deferred(rank, at=STEP):
    rank.forward(at, sync=0.0).backward(at)
    return rank.gradients(at, odd={WEIGHT: 80 + rank.rank}).updated(at)


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_some_ranks_do_not_synchronise(culprits):
    found = the_finding(trained(deferred, step, culprits))
    assert (found.code, found.culprits) == ("DDP408", culprits)
    assert "forward 3" in found.summary
    assert len(found.evidence) >= 2


def test_a_rank_that_does_not_synchronise_is_pointed_to_its_no_sync():
    def enters(rank):
        deferred(rank.event("no_sync entered", line(7), model=0))

    found = the_finding(trained(enters, step, (2,)))
    assert dict(found.where) == {2: line(7), **dict.fromkeys((0, 1, 3), STEP)}


@pytest.mark.parametrize(
    ("ways", "state", "remedy"),
    [
        (["no_sync()"], "is under no_sync", "Enter no_sync() on all ranks"),
        (
            ["require_backward_grad_sync = False"],
            "has require_backward_grad_sync = False",
            "Set require_backward_grad_sync = False on all ranks",
        ),
        ([], "does not synchronise", "Turn the synchronisation off on all ranks"),
        (
            ["no_sync()", "require_backward_grad_sync = False"],
            "does not synchronise",
            "Turn the synchronisation off on all ranks",
        ),
    ],
)
def test_a_card_names_how_the_synchronisation_was_turned_off(ways, state, remedy):
    def turned_off(rank):
        for number, way in enumerate(ways):
            rank.event("no_sync entered", line(7 + number), model=0, way=way)
        deferred(rank)

    found = the_finding(trained(turned_off, step, (2,)))
    assert f"Rank 2: forward 3 {state}." in found.evidence
    assert found.remedy.startswith(remedy)
    found = the_finding(trained(turned_off, culprits=(0, 1, 2, 3), before=0, after=0))
    assert "no_sync" not in found.remedy + "".join(found.evidence) or ways == ["no_sync()"]
    assert "require_backward" in found.remedy or ways != ["require_backward_grad_sync = False"]


def test_of_two_lines_that_enter_no_sync_it_is_not_known_which_one_it_was():
    def enters(rank):
        deferred(rank.event("no_sync entered", line(7), model=0).event("no_sync entered", line(8), model=0))

    assert dict(the_finding(trained(enters, step, (2,))).where)[2] == STEP


def test_each_rank_is_pointed_to_its_own_forward():
    at = DEFERRED.at("step")
    found = the_finding(trained(lambda r: deferred(r, at), lambda r: step(r, at), (2,), script=DEFERRED))
    assert dict(found.where) == dict.fromkeys(range(4), at)


def accumulates(rank, batches, at=STEP):
    for number in range(batches):
        rank.forward(at, sync=float(number == batches - 1), buffers_synced=0.0).backward(at)
    return rank.gradients(at).updated(at)


def test_all_ranks_accumulate_alike():
    silent(trained(lambda r: accumulates(accumulates(r, 4), 4), culprits=(0, 1, 2, 3)))


def test_steps_after_other_numbers_of_batches():
    """Every forward synchronises; one rank steps after one of them, the others after two."""

    def after(rank, batches):
        for _ in range(2 // batches):
            for _ in range(batches):
                rank.forward(STEP).backward(STEP)
            rank.gradients(STEP, odd={WEIGHT: 80 + batches}).updated(STEP)
        return rank

    taken = trained(lambda r: after(after(r, 1), 1), lambda r: after(after(r, 2), 2), (3,), before=0, after=0)
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting) == ("DDP408", (3,), (0, 1, 2))


def test_nobody_synchronises_before_a_step():
    """The test for the last micro-batch is never true."""

    def never(rank):
        rank.event("no_sync entered", line(7), model=0)
        for _ in range(2):
            rank.forward(STEP, sync=0.0).backward(STEP)
        return rank.gradients(STEP, odd={WEIGHT: 80 + rank.rank}).updated(STEP, odd={WEIGHT: 90 + rank.rank})

    found = the_finding(trained(never, culprits=(0, 1, 2, 3), before=0, after=0))
    assert (found.code, found.culprits, found.waiting) == ("DDP408", (0, 1, 2, 3), ())
    assert found.tensors == (WEIGHT,)
    assert found.where == tuple((rank, line(7)) for rank in range(4))
    assert f"The optimizer steps at {STEP}." in found.evidence


def test_nobody_synchronises_by_the_wrapper_but_the_gradients_agree():
    """They are averaged by hand under no_sync."""
    silent(trained(lambda r: r.forward(sync=0.0).backward().gradients().updated(), culprits=(0, 1, 2, 3)))


# -- DDP409: gradients that differ when the optimizer takes them


@pytest.mark.parametrize("culprits", [(0,), (1,), (0, 1, 2)], ids=str)
def test_gradients_that_were_changed_after_they_were_synchronised(culprits):
    found = the_finding(trained(lambda r: step(r, gradients={WEIGHT: 9}, updated={WEIGHT: 8}), step, culprits))
    assert found.code == "DDP409"
    assert found.culprits == (culprits if len(culprits) == 1 else (3,))
    assert found.tensors == (WEIGHT,)
    assert "optimizer step 3" in found.summary


def test_gradients_that_are_not_there_on_some_ranks():
    """Those without one are to blame, be they the majority."""
    found = the_finding(trained(lambda r: step(r, gradients={BIAS: 0}), step, (0, 2, 3)))
    assert (found.code, found.culprits, found.waiting) == ("DDP409", (0, 2, 3), (1,))
    assert any("no gradient" in text for text in found.evidence)
    assert found.summary.startswith("Ranks 0, 2 and 3 lack gradients of Net")
    assert "modified" not in found.summary and "clip" not in found.remedy


def test_gradients_whose_reduction_was_never_finished_differ_for_that_reason():
    """DDP says so itself, in the next forward."""
    taken = trained(lambda r: step(r, gradients={WEIGHT: 9 + r.rank}), culprits=range(4), after=0)
    assert the_finding(taken).code == "DDP409"
    message = (
        "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates "
        "that your module has parameters that were not used in producing loss."
    )
    ending = record(Rank(0).raises("RuntimeError", message, STEP)).ranks[0].ending
    raised = {rank: replace(one, ending=ending) for rank, one in taken.ranks.items()}
    assert [one.code for one in diagnose(replace(taken, ranks=raised)).errors] == ["DDP401"]


def test_gradients_that_nobody_has():
    silent(trained(lambda r: step(r, gradients={BIAS: 0}), culprits=(0, 1, 2, 3)))


def edits(rank, **facts):
    """One step with gradients of the rank's own, of which is recorded what happened to them since the synchronisation."""
    return step(rank, gradients={BIAS: 9} if facts["as_left"] == 0.0 else None, **facts)


KEPT = {"as_reduced": 1.0, "as_left": 1.0}
CLIPPED = {"as_reduced": 0.0, "as_left": 1.0}
SCALED = {"as_reduced": 0.0, "as_left": 0.0}


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("usual", [KEPT, CLIPPED], ids=["kept", "clipped"])
def test_of_two_ranks_the_one_that_changed_synchronised_gradients_is_named(culprit, usual):
    found = the_finding(trained(lambda r: edits(r, **SCALED), lambda r: edits(r, **usual), (culprit,), world=2))
    assert (found.code, found.culprits, found.waiting, found.sides) == ("DDP409", (culprit,), (1 - culprit,), ())
    assert found.summary.startswith(f"Rank {culprit} modified the gradients of Net after synchronisation, before")
    assert any(f"changed on rank {culprit}; rank {1 - culprit} did not" in text for text in found.evidence)


def test_a_rank_that_did_not_change_its_gradients_is_no_culprit_because_most_did():
    found = the_finding(trained(lambda r: edits(r, **SCALED), lambda r: edits(r, **KEPT), (0, 1), world=3))
    assert (found.code, found.culprits, found.waiting) == ("DDP409", (0, 1), (2,))


@pytest.mark.parametrize("facts", [SCALED, {"as_reduced": -1.0, "as_left": -1.0}], ids=["all did", "not recorded"])
def test_of_two_ranks_that_changed_their_gradients_neither_is_named(facts):
    def odd(rank):
        step(rank, gradients={BIAS: 9 + rank.rank}, **facts)

    found = the_finding(trained(odd, culprits=(0, 1), world=2))
    assert (found.code, found.culprits, found.sides) == ("DDP409", (), ((0,), (1,)))
    assert ("or did not synchronise them" in found.summary) == (facts is not SCALED)


# -- DDP410: optimizers that differ


@pytest.mark.parametrize("culprits", [(0,), (3,)], ids=str)
@pytest.mark.parametrize("setting", [{"lr": 0.2}, {"optimizer": "Adam"}, {"group 1: weight_decay": 0.3}], ids=str)
def test_settings_that_differ(culprits, setting):
    found = the_finding(trained(lambda r: step(r, **setting), step, culprits))
    assert (found.code, found.culprits) == ("DDP410", culprits)
    assert found.waiting == tuple(n for n in range(4) if n not in culprits)
    assert next(iter(setting)) in found.summary


def test_of_two_ranks_the_one_whose_setting_has_changed_is_named():
    found = the_finding(trained(lambda r: step(r, lr=0.2), step, (0,), world=2))
    assert (found.code, found.culprits, found.sides) == ("DDP410", (0,), ())
    assert "Rank 0 uses a different lr" in found.summary
    assert any("changed there compared with its own past" in text for text in found.evidence)


def test_of_two_ranks_whose_settings_always_differed_neither_is_named():
    taken = trained(lambda r: step(r, lr=0.2), step, (0,), world=2, before=0)
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting, found.sides) == ("DDP410", (), (), ((0,), (1,)))
    assert found.summary.startswith("Ranks 0 and 1 use different values of lr at optimizer step 1")
    assert dict(found.where) == {0: STEP, 1: STEP}
    assert found.evidence[-1] == "No recorded fact tells which side is at fault: rank 0 or rank 1."


def test_settings_that_change_on_all_ranks_alike():
    def warms_up(rank):
        for rate in (0.01, 0.02, float("nan"), float("inf")):
            step(rank, lr=rate)

    silent(trained(warms_up, culprits=(0, 1, 2, 3)))


def test_an_optimizer_with_a_state_of_its_own():
    found = the_finding(trained(lambda r: step(r, updated={WEIGHT: 9}).drifts({WEIGHT: 9}), step, (0,)))
    assert (found.code, found.culprits, found.waiting, found.tensors) == ("DDP410", (0,), (1, 2, 3), (WEIGHT,))
    assert "step 3" in found.summary


def test_a_step_that_one_rank_leaves_out():
    """One step after each forward, but for once."""
    taken = trained(lambda r: r.forward(STEP).backward(STEP), step, (2,), after=4)
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting) == ("DDP410", (2,), (0, 1, 3))
    assert "number of optimizer steps" in found.summary


def test_a_step_that_all_ranks_leave_out():
    silent(trained(lambda r: r.forward(STEP).backward(STEP), culprits=(0, 1, 2, 3)))


# -- without a wrapper


def test_steps_that_agreed_and_were_let_go_are_counted_too():
    """Of steps in which all ranks agreed only the first and the last are kept."""
    recording = by_hand(lambda r: r.drifts({WEIGHT: 9}), (1,))
    ranks = {
        rank: replace(record, samples=tuple(replace(s, turn=s.turn + 997 * (s.turn > 1)) for s in record.samples))
        for rank, record in recording.ranks.items()
    }
    found = the_finding(replace(recording, ranks=ranks))
    assert "step 1000" in found.summary
    assert found.evidence[0].startswith("After 999 optimizer steps all ranks held the same")


def test_steps_between_two_looks_are_not_said_to_agree():
    """The last look before the difference was after the third step, not after the 127th."""
    ranks = [Rank(n, 2).adopts(at=WRAPPED).trains(3, STEP) for n in range(2)]
    for rank in ranks:
        rank.sample("updated", STEP, odd={WEIGHT: 5 + rank.rank}, turn=128, step=128).finishes()
    found = the_finding(record(*ranks))
    assert "since one of the optimizer steps 4 to 128" in found.summary
    assert found.evidence[0].startswith("After 3 optimizer steps all ranks held the same")
    assert "not checked" in found.evidence[0]


def by_hand(change=nothing, culprits=(), *, world=3, apart=False, steps=4, **options):
    """Models that nobody wrapped; ``apart``: each rank trains one of its own."""
    ranks = []
    for number in range(world):
        rank = Rank(number, world).adopts(at=WRAPPED, **options)
        for turn in range(steps):
            own = {WEIGHT: 100 * (turn + 1) + number, BIAS: 7} if apart else None
            if turn == steps // 2 and number in culprits:
                change(rank)
            rank.backward(STEP).gradients(STEP, odd=own).updated(STEP, odd=own)
        ranks.append(rank.finishes())
    return record(*ranks)


def test_replicas_by_hand_that_agree():
    silent(by_hand())


@pytest.mark.parametrize("culprit", [0, 1])
def test_replicas_by_hand_that_part(culprit):
    found = the_finding(by_hand(lambda r: r.drifts({WEIGHT: 9}), (culprit,)))
    assert (found.code, found.culprits, found.tensors) == ("DDP405", (culprit,), (WEIGHT,))
    assert found.waiting == tuple(n for n in range(3) if n != culprit)
    assert "2 optimizer steps" in found.evidence[0]


def test_gradients_are_averaged_but_the_parameters_never_were_the_same():
    ranks = [Rank(n, 3).drifts({WEIGHT: 30 + n}).adopts().trains(4, STEP).finishes() for n in range(3)]
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP405", (), ((0,), (1,), (2,)))
    assert "never the same" in found.evidence[0]


def test_another_setting_by_hand():
    ranks = [Rank(n, 3).adopts().trains(3, STEP) for n in range(3)]
    for rank in ranks:
        rank.backward(STEP).gradients(STEP, lr=0.3 if rank.rank == 2 else 0.1).updated(STEP).finishes()
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits) == ("DDP410", (2,))


def test_every_rank_trains_a_model_of_its_own():
    silent(by_hand(apart=True))


def test_models_of_ones_own_that_begin_alike():
    """The same seed, other data, no communication: the first step parts them, and they are no replicas."""
    ranks = [Rank(n, 2).adopts() for n in range(2)]
    for turn in range(3):
        for rank in ranks:
            own = {WEIGHT: 100 * turn + rank.rank}
            rank.backward().gradients(odd=own).updated(odd=own)
    silent(record(*ranks))


def test_models_of_ones_own_with_settings_of_their_own():
    """A search for the best learning rate, one on each rank."""
    ranks = [Rank(n, 2).adopts() for n in range(2)]
    for turn in range(3):
        for rank in ranks:
            own = {WEIGHT: 100 * turn + rank.rank}
            rank.backward().gradients(odd=own, lr=0.1 * (1 + rank.rank)).updated(odd=own)
    silent(record(*ranks))


def test_the_same_losses_on_all_ranks_prove_nothing():
    """Equal gradients of equal data: nobody averaged them."""
    ranks = [Rank(n, 2).drifts({WEIGHT: 30 + n}).adopts() for n in range(2)]
    for _ in range(3):
        for rank in ranks:
            rank.backward(loss=0.5).gradients().updated()
    silent(record(*ranks))


def test_what_a_sharded_model_leaves_unsharded():
    ranks = [Rank(n, 2).adopts(sharded=True) for n in range(2)]
    for turn in range(3):
        for rank in ranks:
            own = {WEIGHT: 100 * turn + rank.rank}
            rank.backward(STEP).gradients(STEP, odd=own).updated(STEP, odd=own)
    found = the_finding(record(*(rank.finishes() for rank in ranks)))
    assert (found.code, found.culprits, found.sides) == ("DDP405", (), ((0,), (1,)))
    assert "sharded" in found.evidence[0]


# -- what a finding must withstand


def test_the_finding_of_each_model_is_its_own():
    ranks = [Rank(n, 3).wraps(at=WRAPPED).wraps(*NORMED, module="Critic", at=line(4)) for n in range(3)]
    for rank in ranks:
        rank.trains(2, STEP).trains(2, STEP, model=1)
    ranks[1].drifts({"bn.weight": 9})
    for rank in ranks:
        rank.trains(1, STEP).trains(1, STEP, model=1)
    (found,) = replicas.find(record(*ranks))
    assert (found.code, found.culprits, found.tensors) == ("DDP405", (1,), ("bn.weight",))
    assert "Critic" in found.summary


def test_a_rank_without_samples_is_left_out():
    taken = trained(lambda r: r.drifts({WEIGHT: 9}))
    poor = {**taken.ranks, 3: replace(taken.ranks[3], samples=())}
    (found,) = replicas.find(replace(taken, ranks=poor))
    assert (found.code, found.culprits, found.waiting) == ("DDP405", (1,), (0, 2))


def test_many_tensors_are_cut_short():
    tensors = tuple(tensor(f"layer{n}.weight") for n in range(60))
    found = the_finding(trained(lambda r: r.drifts({t.name: 9 for t in tensors}), tensors=tensors))
    assert len(found.tensors) == 20
    assert len(found.summary) < 300
    assert all(len(text) < 300 for text in found.evidence)


# -- DDP415: trained although it was frozen when it was wrapped


FROZEN = (tensor(WEIGHT, trains=False), tensor("fc.bias"))


def test_parameters_that_were_unfrozen_after_wrapping():
    taken = record(
        *(
            step(
                Rank(n, 4).wraps(*FROZEN, at=WRAPPED).trains(2, STEP),
                gradients={WEIGHT: 50 + n},
                updated={WEIGHT: 60 + n},
            ).finishes()
            for n in range(4)
        )
    )
    found = the_finding(taken)
    assert (found.code, found.culprits, found.tensors) == ("DDP415", (0, 1, 2, 3), (WEIGHT,))


def test_parameters_that_were_unfrozen_on_one_rank():
    def make(n):
        own = 50 if n == 2 else 0  # 0: it has no gradient
        return step(
            Rank(n, 4).wraps(*FROZEN, at=WRAPPED).trains(2, STEP), gradients={WEIGHT: own}, updated={WEIGHT: 60 + own}
        )

    found = the_finding(record(*(make(n).finishes() for n in range(4))))
    assert (found.code, found.culprits) == ("DDP415", (2,))


# -- sentence and JSON name the same ranks


def without(recording, rank, kind, *turns):
    """The recording without some samples of one rank."""
    own = recording.ranks[rank]
    samples = tuple(one for one in own.samples if one.kind != kind or one.turn not in turns)
    return replace(recording, ranks={**recording.ranks, rank: replace(own, samples=samples)})


def wraps_and_scales(rank):
    rank.wraps(at=WRAPPED)
    for turn in range(3):
        step(rank).scales(8.0 if turn == 2 and rank.rank else 4.0, STEP)
    return rank.finishes()


def scaled(rank, init, scale):
    """Makes a scaler, trains, and its scale is this after the first update."""
    rank.wraps(at=WRAPPED).event("scaler made", line(5), number=1, init_scale=init)
    return step(rank).scales(scale, STEP, made=1.0).finishes()


def test_of_two_ranks_the_one_whose_scale_has_changed_since_the_scaler_was_made():
    for culprit in (0, 1):
        ranks = (scaled(Rank(n, 2), 8.0, 4.0 if n == culprit else 8.0) for n in (0, 1))
        found = the_finding(record(*ranks))
        assert (found.code, found.culprits, dict(found.where)) == ("DDP409", (culprit,), {0: STEP, 1: STEP})


def test_scalers_that_were_made_with_different_scales():
    found = the_finding(record(*(scaled(Rank(n, 2), 4.0 + n, 4.0 + n) for n in (0, 1))))
    assert (found.code, found.culprits, found.sides) == ("DDP409", (), ((0,), (1,)))
    assert dict(found.where) == {0: line(5), 1: line(5)}
    assert "Rank 1: made with scale 5." in found.evidence


def sets_its_buffer(rank):
    rank.wraps(*NORMED, tensor("queue", buffer=True), at=WRAPPED).event("buffers synced", model=0, synced=False)
    for turn in range(3):
        rank.forward(STEP, odd={"queue": 70 if turn == 2 and rank.rank else 60}, buffers_synced=0.0).backward(STEP)
        rank.gradients(STEP).updated(STEP)
    return rank.finishes()


def takes_another_rate(rank):
    rank.wraps(at=WRAPPED)
    for turn in range(3):
        step(rank, lr=0.2 if turn == 2 and rank.rank else 0.1)
    return rank.finishes()


def stops_to_synchronise(rank):
    rank.wraps(at=WRAPPED).trains(2, STEP)
    (deferred if rank.rank else step)(rank)
    return rank.finishes()


def edits_its_parameters(rank):
    rank.wraps(at=WRAPPED).trains(2, STEP)
    return rank.drifts({WEIGHT: 9} if rank.rank else {}).trains(1, STEP).finishes()


@pytest.mark.parametrize(
    ("train", "kind", "code"),
    [
        (takes_another_rate, "gradients", "DDP410"),
        (wraps_and_scales, "scale", "DDP409"),
        (sets_its_buffer, "forward", "DDP406"),
        (stops_to_synchronise, "forward", "DDP408"),
        (edits_its_parameters, ("updated", "forward"), "DDP405"),
    ],
    ids=["lr", "scale", "buffer", "no_sync", "parameters"],
)
def test_in_a_tie_the_rank_that_changed_is_blamed_only_if_the_others_past_is_recorded(train, kind, code):
    whole = record(*(train(Rank(n, 2)) for n in range(2)))
    found = the_finding(whole)
    assert (found.code, found.culprits, found.sides) == (code, (1,), ())
    assert "rank 0 did not" in " ".join(found.evidence)
    part = whole
    for one in kind if isinstance(kind, tuple) else (kind,):
        part = without(part, 0, one, *((2, 3) if one == "updated" else (1, 2)))
    found = the_finding(part)
    assert (found.code, found.culprits, found.sides) == (code, (), ((0,), (1,)))
    assert not any("past" in text or "did not" in text for text in found.evidence)


def test_other_numbers_of_micro_batches_to_the_same_steps_are_legal():
    """Up to a budget of tokens, one accumulates over two and one over three; each step follows one synchronised backward."""
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).wraps(at=WRAPPED)
        ranks.append(accumulates(accumulates(rank, 3 + number), 3 + number).finishes())
    taken = record(*ranks)
    silent(taken)
    silent(without(without(taken, 0, "forward", 3), 1, "forward", 8))  # of many forwards not all are looked at


def test_a_step_that_one_rank_left_out_as_long_as_it_ran():
    """All earlier looks after a step agree, and it makes as many forwards: an adversary that is held back."""
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).wraps(at=WRAPPED)
        for _ in range(3):
            rank.forward(STEP).backward(STEP).gradients(STEP).updated(STEP)
        rank.forward(STEP).backward(STEP)
        if number == 0:
            rank.gradients(STEP).updated(STEP)
        ranks.append(rank.forward(STEP, odd={WEIGHT: 90 + number}).backward(STEP).finishes())
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP410", (1,), ())


def test_as_many_synchronised_but_on_one_rank_not_the_last():
    """Its later gradients stay its own."""
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).wraps(at=WRAPPED)
        for last in (False, True):
            rank.forward(STEP, sync=float(last == (number == 0))).backward(STEP)
        ranks.append(
            rank.gradients(STEP, odd={WEIGHT: 80 + number}).updated(STEP, odd={WEIGHT: 90 + number}).finishes()
        )
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP408", (), ((0,), (1,)))


@pytest.mark.parametrize("steps", [0, 1])
def test_steps_after_other_numbers_of_batches_need_a_step_before(steps):
    def window(rank, batches):
        for _ in range(batches):
            rank.forward(STEP).backward(STEP)
        return rank.gradients(STEP).updated(STEP)

    ranks = [Rank(n, 2).wraps(at=WRAPPED) for n in range(2)]
    for rank in ranks:
        for _ in range(steps):
            window(rank, 3)
        window(rank, 2 + rank.rank).finishes()
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits) == ("DDP408", (0,) if steps else ())


def test_three_edits_of_five_are_no_minority():
    """Two ranks that agree by chance are no majority either."""
    value = {0: 9, 1: 9, 2: 8, 3: 7, 4: 6}
    taken = trained(lambda r: step(r, updated={WEIGHT: value[r.rank]}), culprits=range(5), world=5)
    found = the_finding(taken)
    assert (found.code, found.culprits, found.sides) == ("DDP410", (), ((0, 1), (2,), (3,), (4,)))


TIES = {
    "lr": lambda r: step(r, lr=0.2),
    "gradients": lambda r: step(r, gradients={WEIGHT: 9}, updated={WEIGHT: 8}),
    "update": lambda r: step(r, updated={WEIGHT: 8}),
    "no_sync": deferred,
}


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("change", TIES.values(), ids=list(TIES))
@pytest.mark.parametrize("condition", ["rank == 0", "rank != 0", "os.environ['LOCAL_RANK'] == '0'"])
def test_of_two_ranks_no_condition_in_the_source_decides(change, condition, before, culprit):
    script = Script(f"""
        def main(rank, world):
            for step in range(9):
                if {condition}:
                    optimizer.param_groups[0]["lr"] = grad.mul_(0.5)   # change
                loss = model(x)   # step
    """)
    taken = trained(change, step, (culprit,), world=2, before=before, script=script)
    found = the_finding(taken)
    assert found.culprits in ((), (culprit,))
    named = f"ank {culprit} " in found.summary and f"ank {1 - culprit} " not in found.summary
    assert named == (found.culprits == (culprit,)), found.summary
    assert {site.line for _, site in found.where} == {STEP.line}
