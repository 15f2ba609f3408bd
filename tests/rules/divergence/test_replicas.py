"""Replicas that part in silence: which rule says so, whom it blames, which line it points to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.rules.divergence.replicas import replicas
from ddpnb.rules.rule import findings_of
from tests.rules.recordings import Rank, Script, diagnose, group, line, record
from tests.rules.training import NORMED, tensor

WEIGHT, BIAS, MEAN = "fc.weight", "fc.bias", "bn.running_mean"
WRAPPED, STEP = line(3), line(9)
ALL = (0, 1, 2, 3)
QUEUE = (*NORMED, tensor("queue", buffer=True))


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


def each(make, world=2, script=None):
    """``make(rank)`` is all that each rank does."""
    ranks = [Rank(number, world) for number in range(world)]
    for rank in ranks:
        make(rank)
    return record(*(rank.finishes() for rank in ranks), script=script)


def found_in(recording):
    return list(findings_of(recording, replicas))


def the_finding(recording):
    (found,) = found_in(recording)
    assert found.severity == "error"
    assert found.summary and found.remedy
    assert set(found.culprits) | set(found.waiting) <= set(recording.ranks)
    assert not set(found.culprits) & set(found.waiting)
    # It is the first thing that the diagnosis says, and the run is a divergence.
    told = diagnose(recording)
    assert (told.findings[0].code, told.outcome) == (found.code, "divergence")
    return found


def check(recording, code, culprits, said=(), not_said=(), at=None, **fields):
    """The finding has this code and these culprits, the other ranks wait, and its words and places are these."""
    found = the_finding(recording)
    assert (found.code, found.culprits) == (code, culprits)
    sides = fields.get("sides", ())
    assert found.sides == sides
    assert found.waiting == (() if sides else tuple(rank for rank in sorted(recording.ranks) if rank not in culprits))
    for name, value in fields.items():
        assert getattr(found, name) == value
    text = " ".join((found.summary, *found.evidence, found.remedy))
    assert [part for part in said if part not in text] == [part for part in not_said if part in text] == []
    if at is not None:
        assert dict(found.where) == at
    return found


def step(rank, at=STEP, *, forward=None, gradients=None, updated=None, **facts):
    """One step of which some things are odd."""
    rank.forward(at, odd=forward).backward(at).gradients(at, odd=gradients, **facts)
    return rank.updated(at, odd=updated)


def drifts(value=9, name=WEIGHT):
    return lambda rank: rank.drifts({name: value})


def past(rank, gradients=None, **facts):
    """A step that does not go through the wrapper."""
    return rank.backward(STEP).gradients(STEP, odd=gradients or {WEIGHT: 80 + rank.rank}, **facts).updated(STEP)


def deferred(rank, at=STEP):
    """A step without synchronisation."""
    rank.forward(at, sync=0.0).backward(at)
    return rank.gradients(at, odd={WEIGHT: 80 + rank.rank}).updated(at)


def accumulates(rank, batches, at=STEP):
    for number in range(batches):
        rank.forward(at, sync=float(number == batches - 1), buffers_synced=0.0).backward(at)
    return rank.gradients(at).updated(at)


def unsynced(rank):
    """Statistics after a forward under no_sync, which are synchronised one forward later."""
    rank.forward(STEP, odd={MEAN: 60 + rank.rank}, buffers_synced=0.0).backward(STEP)
    return rank.gradients(STEP).updated(STEP)


def reads(rank):
    """Loads a checkpoint from a file."""
    return rank.reads_checkpoint(line(20)).loads("model", line(21)).drifts({WEIGHT: 9})


def restores(rank):
    """Takes a step with a state of the optimizer that it has loaded."""
    return step(rank.loads("optimizer", line(21)), updated={WEIGHT: 9}).drifts({WEIGHT: 9})


def fails_to_load(rank):
    return rank.phase("load failed", "done", line(20), error="UnpicklingError: truncated")


def warms_up(rank):
    for rate in (0.01, 0.02, float("nan"), float("inf")):
        step(rank, lr=rate)


def buffered(value, turns=3, told=False, name="queue"):
    """Forwards that do not synchronise buffers; ``value(rank, turn)`` is what one of them holds."""

    def make(rank):
        rank.wraps(*QUEUE, at=WRAPPED).event("buffers synced", model=0, synced=told)
        for turn in range(turns):
            rank.forward(STEP, odd={name: value(rank.rank, turn)}, buffers_synced=0.0).backward(STEP)
            rank.gradients(STEP).updated(STEP)

    return make


def owns(ignored):
    return (tensor(WEIGHT), tensor("own", ignored=True, **ignored))


# -- all is well

SILENT = {
    "replicas that agree": lambda: trained(nothing),
    "a model on one rank": lambda: record(Rank(0, 2).wraps().trains(2), Rank(1, 2)),
    "models of other tensors": lambda: record(
        Rank(0, 2).wraps().trains(2), Rank(1, 2).wraps(tensor("other")).drifts({WEIGHT: 9}).trains(2)
    ),
    "models of other wrappers": lambda: record(
        Rank(0, 2).wraps().trains(2), Rank(1, 2).wraps(wrapper="FSDP").drifts({WEIGHT: 9}).trains(2)
    ),
    "stages of a pipeline": lambda: each(
        lambda r: r.drifts({WEIGHT: 7 + r.rank // 2}).wraps(group=group(*((0, 1) if r.rank < 2 else (2, 3)))).trains(3), 4
    ),
    "no samples": lambda: each(lambda r: r.wraps(state="open")),
    "all ranks edited alike": lambda: trained(lambda r: r.drifts({WEIGHT: 9, BIAS: 8}), culprits=ALL),
    "alike without a broadcast": lambda: trained(nothing, init_sync=False),
    "ignored, never alike": lambda: each(lambda r: r.drifts({"own": 70 + r.rank}).wraps(*owns({})).trains(3), 4),
    "ignored, always alike": lambda: trained(nothing, tensors=owns({})),
    "ignored buffers": lambda: each(
        lambda r: r.wraps(*owns({"buffer": True})).trains(2).drifts({"own": 70 + r.rank}).trains(2)
    ),
    "ignored, without gradients": lambda: each(
        lambda r: step(step(r.wraps(*owns({})), gradients={"own": 0}).drifts({"own": 70 + r.rank}), gradients={"own": 0})
    ),
    "all loaded a checkpoint": lambda: trained(reads, culprits=ALL),
    "all restored the optimizer": lambda: trained(lambda r: r.loads("optimizer"), culprits=ALL),
    "statistics right after no_sync": lambda: trained(
        lambda r: unsynced(r.forward(STEP, sync=0.0).backward(STEP)), culprits=ALL, tensors=NORMED
    ),
    "statistics of the first forward": lambda: trained(unsynced, culprits=ALL, before=0, tensors=NORMED),
    "buffers that agree": lambda: trained(
        lambda r: r.event("buffers synced", model=0, synced=False), culprits=ALL, tensors=NORMED
    ),
    "local SGD": lambda: trained(
        lambda r: step(
            r.event("comm hook", hook="ddp_comm_hooks.post_localSGD_hook.post_localSGD_hook", state=""),
            gradients={WEIGHT: 70 + r.rank},
        ),
        culprits=ALL,
    ),
    "averaged by hand past the wrapper": lambda: trained(lambda r: past(r, gradients={WEIGHT: 5}), culprits=ALL),
    "a step without a backward": lambda: trained(lambda r: r.gradients().updated(), culprits=ALL),
    "all accumulate alike": lambda: trained(lambda r: accumulates(accumulates(r, 4), 4), culprits=ALL),
    "averaged by hand under no_sync": lambda: trained(
        lambda r: r.forward(sync=0.0).backward().gradients().updated(), culprits=ALL
    ),
    "other numbers of micro-batches": lambda: each(
        lambda r: accumulates(accumulates(r.wraps(), 3 + r.rank), 3 + r.rank)
    ),
    "gradients that nobody has": lambda: trained(lambda r: step(r, gradients={BIAS: 0}), culprits=ALL),
    "settings that change alike": lambda: trained(warms_up, culprits=ALL),
    "a step that all leave out": lambda: trained(lambda r: r.forward(STEP).backward(STEP), culprits=ALL),
}  # fmt: skip


@pytest.mark.parametrize("case", SILENT)
def test_nothing_is_said_of(case):
    assert found_in(SILENT[case]()) == []


# -- one rank does something odd: which code, who, and what must be said

ODD = {
    "parameters that were edited": (
        lambda who: trained(drifts(), culprits=who), "DDP405", {"said": ["forward 3", "without an optimizer step"]},
    ),
    "steps that were not checked": (
        lambda who: each(
            lambda r: r.wraps(at=WRAPPED).trains(3, STEP)
            .sample("updated", STEP, step=64, turn=65, odd={WEIGHT: 9} if r.rank in who else {}), 4
        ),
        "DDP405", {"said": ["steps 4 to 64", "not checked"]},
    ),
    "edited just before a check": (
        lambda who: each(
            lambda r: r.wraps(at=WRAPPED).trains(3, STEP).sample("updated", STEP, step=64, turn=65)
            .sample("forward", STEP, step=64, turn=65, odd={WEIGHT: 9} if r.rank in who else {}), 4
        ),
        "DDP405", {"said": ["changed them"]},
    ),
    "a checkpoint that some loaded": (lambda who: trained(reads, culprits=who), "DDP601", {"certainty": "likely"}),
    "a checkpoint that the others loaded": (
        lambda who: trained(nothing, reads, culprits=who), "DDP601", {"certainty": "likely"},
    ),
    "a checkpoint that could not be read": (
        lambda who: trained(fails_to_load, reads, culprits=who), "DDP601", {"said": ["UnpicklingError"]},
    ),
    "a checkpoint that was refused": (
        lambda who: trained(lambda r: fails_to_load(r).loads("model", line(20)), reads, culprits=who), "DDP601", {},
    ),
    "a checkpoint that only some could load": (
        lambda who: trained(reads, fails_to_load, culprits=who), "DDP601", {"certainty": "likely"},
    ),
    "loads that the others have forgotten": (
        lambda who: trained(reads, lambda r: r.forgets_events(2), culprits=who), "DDP405", {"not_said": ["Only"]},
    ),
    "a checkpoint that was loaded later": (
        lambda who: trained(lambda r: reads(r.drifts({WEIGHT: 9}).trains(1, STEP)), lambda r: r.trains(1), who), "DDP405", {},
    ),
    "a state of the optimizer": (
        lambda who: trained(restores, step, who), "DDP605", {"said": ["optimizer step 3"], "certainty": "likely"},
    ),
    "a state that the others have forgotten": (
        lambda who: trained(restores, lambda r: step(r.forgets_events(2)), who), "DDP410", {},
    ),
    "a buffer that is set": (
        lambda who: trained(drifts(5, "queue"), culprits=who, tensors=QUEUE), "DDP406", {"tensors": ("queue",)},
    ),
    "past the wrapper": (lambda who: trained(past, step, who), "DDP407", {"said": ["optimizer step 3"]}),
    "no synchronisation": (lambda who: trained(deferred, step, who), "DDP408", {"said": ["forward 3"]}),
    "gradients that were changed": (
        lambda who: trained(lambda r: step(r, gradients={WEIGHT: 9}, updated={WEIGHT: 8}), step, who),
        "DDP409", {"said": ["modified", "optimizer step 3"], "tensors": (WEIGHT,)},
    ),
    "gradients that are not there": (
        lambda who: trained(lambda r: step(r, gradients={BIAS: 0}), step, who),
        "DDP409", {"said": ["of Net that the other ranks have", "no gradient"], "not_said": ["modified", "clip"]},
    ),
    "a rate": (lambda who: trained(lambda r: step(r, lr=0.2), step, who), "DDP410", {"said": ["lr"]}),
    "an optimizer": (lambda who: trained(lambda r: step(r, optimizer="Adam"), step, who), "DDP410", {"said": ["optimizer"]}),
    "a setting of a group": (
        lambda who: trained(lambda r: step(r, **{"group 1: weight_decay": 0.3}), step, who), "DDP410", {},
    ),
    "a state of its own": (
        lambda who: trained(lambda r: step(r, updated={WEIGHT: 9}).drifts({WEIGHT: 9}), step, who), "DDP410", {"said": ["step 3"]},
    ),
    "a step that is left out": (
        lambda who: trained(lambda r: r.forward(STEP).backward(STEP), step, who, after=4),
        "DDP410", {"said": ["number of optimizer steps"]},
    ),
    "a step that is left out, where the next forward is not looked at": (
        lambda who: each(
            lambda r: (
                (passes := r.wraps(at=WRAPPED).trains(2, STEP).forward(STEP).backward(STEP)) and r.rank in who
                and passes.forward(STEP).backward(STEP),
                r.gradients(STEP, odd={WEIGHT: 9} if r.rank in who else {}),
                r.updated(STEP, odd={WEIGHT: 8} if r.rank in who else {}),
            ), 4
        ),
        "DDP410", {"said": ["optimizer step 3", "another number of backward passes", "2 backward passes"]},
    ),
    "a step that is left out among those that were not checked": (
        lambda who: each(
            lambda r: r.wraps(at=WRAPPED).trains(3 if r.rank in who else 4, STEP)
            .sample("updated", STEP, step=64, turn=65, odd={WEIGHT: 9} if r.rank in who else {}), 4
        ),
        "DDP405", {"said": ["not checked", "optimizer steps in all", "Step the optimizer on all ranks"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("who", [(0,), (2,)], ids=str)
@pytest.mark.parametrize("case", ODD)
def test_the_rank_that_does_something_odd_is_named(case, who):
    make, code, expected = ODD[case]
    check(make(who), code, who, **expected)


def test_those_without_gradients_are_named_be_they_the_majority():
    check(trained(lambda r: step(r, gradients={BIAS: 0}), step, (0, 2, 3)), "DDP409", (0, 2, 3))


def test_where_most_loaded_a_checkpoint_the_others_are_named_at_the_lines_of_those():
    check(trained(reads, culprits=(0, 1, 2)), "DDP601", (3,), at=dict.fromkeys((0, 1, 2), line(21)))


def test_the_lines_of_loads():
    check(trained(reads, culprits=(2,)), "DDP601", (2,), at={2: line(21)})
    check(trained(restores, step, (2,)), "DDP605", (2,), at={2: line(21)})
    check(
        trained(lambda r: r.loads("model", line(20)).drifts({WEIGHT: 9}), culprits=(2,)),
        "DDP405",
        (2,),
        at={2: line(20)},
    )


# -- DDP405


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_that_changed_its_own_is_to_blame(culprit):
    check(trained(drifts(name=BIAS), culprits=(culprit,), world=2), "DDP405", (culprit,))


def test_an_edit_that_most_ranks_made_alike_was_left_out_by_the_others():
    said = ["Ranks 0, 1 and 2 changed them between two checks"]
    check(trained(drifts(), culprits=(0, 1, 2)), "DDP405", (3,), said, certainty="likely")


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_that_edit_now_and_then_the_one_that_left_it_out_is_named(culprit):
    """As a target network is updated: rank 0 or 1 does not do it after the first step, but after the second."""

    def make(rank):
        rank.wraps(at=WRAPPED).trains(1, STEP).drifts({} if rank.rank == culprit else {WEIGHT: 9})
        step(rank).drifts({WEIGHT: 10 + rank.rank}).forward(STEP)

    said = [f"At another time rank {culprit} does so too."]
    check(each(make), "DDP405", (culprit,), said, certainty="likely")


def test_no_line_is_named_that_was_not_observed():
    """The source shows where only rank 1 changes parameters, but nothing recorded that it ran that line."""
    script = Script("""
        def main(rank):
            model = DDP(Net())
            if rank == 1:
                model.module.fc.weight.add_(noise)   # edit
            for batch in loader:
                loss = model(batch)   # step
    """)
    at = script.at("step")
    not_said = [f":{script.line('edit')}"]
    check(trained(drifts(), script=script, at=at), "DDP405", (1,), (), not_said, at=dict.fromkeys(ALL, at))


def test_all_ranks_edited_each_in_its_own_way():
    said = ["Ranks 0-3 hold different parameters"]
    check(trained(lambda r: r.drifts({WEIGHT: 90 + r.rank}), culprits=ALL), "DDP405", ALL, said)


def test_ranks_that_part_for_a_moment_and_come_back_before_the_step_are_a_note():
    """As sharpness-aware steps do: each rank computes a forward at a point of its own, and returns."""

    def climbs(rank):
        rank.forward(STEP).backward(STEP)
        step(rank, forward={WEIGHT: 90 + rank.rank, BIAS: 80 + rank.rank})

    recording = trained(climbs, culprits=ALL)
    (found,) = found_in(recording)
    assert (found.code, found.severity, diagnose(recording).outcome) == ("DDP405", "note", "ok")
    assert "forward 4" in found.summary and "After optimizer step 3 they hold the same again." in found.summary


def test_parameters_that_change_without_any_optimizer():
    make = lambda r: r.wraps().forward(STEP).backward(STEP).drifts({WEIGHT: 70 + r.rank}).forward(STEP)  # noqa: E731
    check(each(make), "DDP405", (0, 1), ["between two checks, without an optimizer step."])


@pytest.mark.parametrize("looks", [(0,), ()], ids=["one rank's", "none"])
def test_a_look_at_one_rank_does_not_show_that_all_held_the_same(looks):
    def make(rank):
        rank.wraps(at=WRAPPED, state="open")
        if rank.rank in looks:
            rank.sample("updated", STEP, step=3, turn=4)
        rank.sample("updated", STEP, step=64, turn=65, odd={WEIGHT: 9 + rank.rank})

    said = ["since optimizer step 64 or earlier", "No earlier check of all ranks is recorded"]
    check(each(make), "DDP405", (), said, ["all ranks held the same"], sides=((0,), (1,)))


@pytest.mark.parametrize("looks", [0, 1])
def test_that_gradients_agreed_is_only_said_where_both_sides_were_looked_at(looks):
    def make(rank):
        rank.wraps(at=WRAPPED).trains(3, STEP).forward(STEP).backward(STEP)
        if rank.rank == looks:
            rank.gradients(STEP, as_reduced=0.0)
        rank.updated(STEP, odd={WEIGHT: 9 + rank.rank})

    check(each(make), "DDP405", (), sides=((0,), (1,)))


def test_a_tie_keeps_the_places_where_it_was_seen():
    def make(rank):  # what each held after the second step was not looked at
        rank.wraps(at=WRAPPED).trains(1, STEP).forward(STEP).backward(STEP).gradients(STEP)
        rank.drifts({WEIGHT: 7 + rank.rank}).sample("forward", STEP, step=2, sync=1.0)

    check(each(make), "DDP405", (), sides=((0,), (1,)), at={0: STEP, 1: STEP})


def test_wrapped_without_a_broadcast():
    make = lambda r: r.drifts({WEIGHT: 50 + r.rank}).wraps(at=WRAPPED, init_sync=False).trains(2, STEP)  # noqa: E731
    check(each(make), "DDP405", (), ["init_sync=False"], sides=((0,), (1,)), at={0: WRAPPED, 1: WRAPPED})


@pytest.mark.parametrize("named", [False, True])
def test_parameters_that_the_wrapper_ignores(named):
    def makes(rank):
        if named:
            rank.event("parameters ignored", line(2), names=["own"], count=1)
        rank.drifts({"own": 70 + rank.rank})

    at = dict.fromkeys(ALL, line(2) if named else STEP)
    check(trained(makes, culprits=ALL, tensors=owns({})), "DDP405", ALL, tensors=("own",), at=at)


# -- DDP406: buffers


def test_statistics_of_ones_own():
    own = buffered(lambda rank, turn: 60 + rank + turn, name=MEAN)
    check(each(own, 4), "DDP406", ALL, ["not to synchronise"], tensors=(MEAN,), at=dict.fromkeys(ALL, WRAPPED))


@pytest.mark.parametrize(("moving", "culprits"), [((0,), (0,)), ((1,), (1,)), ((0, 1), ()), ((), ())], ids=str)
def test_of_two_ranks_the_one_that_keeps_changing_its_buffers_is_named(moving, culprits):
    own = buffered(lambda rank, turn: 60 + 10 * rank + turn * (rank in moving), 4)
    check(each(own), "DDP406", culprits, tensors=("queue",), sides=() if culprits else ((0,), (1,)))


def test_buffers_that_all_ranks_go_on_changing_together_tell_nothing_of_who_parted():
    own = buffered(lambda rank, turn: 60 + turn + 100 * (rank == 1 and turn > 2), 6)
    check(each(own), "DDP406", (), sides=((0,), (1,)), tensors=("queue",))


# -- DDP407, DDP408: gradients that are not synchronised


def test_all_ranks_go_past_the_wrapper():
    check(trained(past, culprits=ALL, before=0, after=0), "DDP407", ALL, tensors=(WEIGHT,))


def test_the_line_that_was_seen_to_go_past_the_wrapper():
    seen = {"file": "/home/user/model.py", "line": 44, "function": "fit"}
    ((rank, site),) = the_finding(trained(lambda r: past(r, bypass_site=seen), step)).where
    assert (rank, site.to_json()) == (1, seen)


@pytest.mark.parametrize("lines", [(7,), (7, 8)], ids=str)
def test_a_rank_that_does_not_synchronise_is_pointed_to_its_only_no_sync(lines):
    def enters(rank):
        for number in lines:
            rank.event("no_sync entered", line(number), model=0)
        deferred(rank)

    at = {**dict.fromkeys(ALL, STEP), **({2: line(7)} if len(lines) == 1 else {})}
    check(trained(enters, step, (2,)), "DDP408", (2,), at=at)


SET = "require_backward_grad_sync = False"


@pytest.mark.parametrize(
    ("ways", "state", "remedy"),
    [
        (["no_sync()"], "is under no_sync", "Enter no_sync()"),
        ([SET], f"has {SET}", f"Set {SET}"),
        ([], "does not synchronise", "Turn the synchronisation off"),
        (["no_sync()", SET], "does not synchronise", "Turn the synchronisation off"),
    ],
)
def test_a_card_names_how_the_synchronisation_was_turned_off(ways, state, remedy):
    def turned_off(rank):
        for number, way in enumerate(ways):
            rank.event("no_sync entered", line(7 + number), model=0, way=way)
        deferred(rank)

    said = [f"Rank 2: forward 3 {state}.", f"{remedy} on all ranks"]
    check(trained(turned_off, step, (2,)), "DDP408", (2,), said)
    found = the_finding(trained(turned_off, culprits=ALL, before=0, after=0))
    assert "no_sync" not in found.remedy + "".join(found.evidence) or ways == ["no_sync()"]
    assert "require_backward" in found.remedy or ways != [SET]


def test_nobody_synchronises_before_a_step():
    """The test for the last micro-batch is never true."""

    def never(rank):
        rank.event("no_sync entered", line(7), model=0).forward(STEP, sync=0.0).backward(STEP)
        deferred(rank)

    taken = trained(never, culprits=ALL, before=0, after=0)
    said = [f"The optimizer steps at {STEP}."]
    check(taken, "DDP408", ALL, said, tensors=(WEIGHT,), at=dict.fromkeys(ALL, line(7)))


def window(rank, batches):
    for _ in range(batches):
        rank.forward(STEP).backward(STEP)
    return rank.gradients(STEP).updated(STEP)


@pytest.mark.parametrize("steps", [0, 1])
def test_steps_after_other_numbers_of_batches_need_a_step_before(steps):
    def make(rank):
        rank.wraps(at=WRAPPED)
        for batches in (*[3] * steps, 2 + rank.rank):
            window(rank, batches)

    check(each(make), "DDP408", (0,) if steps else (), sides=() if steps else ((0,), (1,)))


def test_of_more_ranks_the_one_that_steps_after_other_numbers_of_batches():
    check(each(lambda r: window(r.wraps(), 2 + (r.rank == 3)), 4), "DDP408", (3,))


def test_the_rank_that_ends_its_first_window_first_is_not_named():
    def make(rank):
        rank.wraps(at=WRAPPED)
        for turn in range(3):
            rank.forward(STEP, sync=float(turn == 2 and rank.rank == 1)).backward(STEP)

    check(each(make), "DDP408", (), sides=((0,), (1,)))


def test_as_many_synchronised_but_on_one_rank_not_the_last():
    """Its later gradients stay its own."""

    def make(rank):
        rank.wraps(at=WRAPPED)
        for last in (False, True):
            rank.forward(STEP, sync=float(last == (rank.rank == 0))).backward(STEP)
        rank.gradients(STEP, odd={WEIGHT: 80 + rank.rank}).updated(STEP, odd={WEIGHT: 90 + rank.rank})

    check(each(make), "DDP408", (), sides=((0,), (1,)))


# -- while ranks still run: those that are behind may do what the others have done


def seen(make, *late, world=3):
    """Ranks that run on: ``make(rank)`` is what each has done so far, those in ``late`` are still before that."""
    ranks = [Rank(number, world).wraps(at=WRAPPED) for number in range(world)]
    for rank in ranks:
        (nothing if rank.rank in late else make)(rank)
    return record(*ranks)


def told(recording):
    return [(one.code, one.certainty, one.culprits) for one in findings_of(recording, replicas)]


def budget(rank, *, stepped=True):
    """Rank 0 reaches its budget of tokens in the first forward, the others in the second."""
    for last in (True,) if rank.rank == 0 else (False, True):
        rank.forward(STEP, sync=float(last)).backward(STEP)
        if not stepped:
            return rank
    return rank.gradients(STEP).updated(STEP)


def test_ranks_that_accumulate_up_to_a_budget_synchronise_as_often_by_their_step():
    assert told(seen(budget)) == []
    assert told(seen(lambda rank: budget(rank, stepped=rank.rank == 0))) == []  # rank 0 is the first at its step
    assert told(seen(lambda rank: budget(rank, stepped=False))) == []


def test_a_rank_that_ended_without_its_step_does_not_synchronise_with_the_others():
    make = lambda rank: budget(rank, stepped=False).finishes()  # noqa: E731
    assert told(seen(make)) == [("DDP408", "proven", (0,))]


def test_what_is_not_synchronised_so_far_may_be_averaged_later():
    """As in local SGD, before its first average."""
    assert told(seen(deferred)) == [("DDP408", "likely", (0, 1, 2))]
    assert told(seen(lambda rank: deferred(rank).finishes())) == [("DDP408", "proven", (0, 1, 2))]
    assert told(seen(lambda rank: deferred(rank).finishes() if rank.rank else deferred(rank))) == [
        ("DDP408", "proven", (0, 1, 2))  # the others have ended: nothing can be averaged
    ]
    assert told(seen(lambda rank: deferred(step(rank)))) == [("DDP408", "proven", (0, 1, 2))]  # others are synchronised


def test_a_rank_that_comes_to_its_step_later_may_go_past_the_wrapper_too():
    def by_hand(rank):
        return rank.backward(STEP).gradients(STEP, forwards=0.0).updated(STEP)

    assert told(seen(by_hand)) == told(seen(by_hand, 2)) == []  # they agree: the script averages
    assert told(seen(lambda rank: by_hand(rank) if rank.rank else step(rank), 2)) == [("DDP407", "proven", (1,))]


def test_ranks_that_take_other_numbers_of_forwards_to_their_first_step():
    def ahead(rank):
        return rank.gradients(STEP).updated(STEP).forward(STEP)

    def make(rank):
        rank.forward(STEP).backward(STEP)
        return rank.forward(STEP) if rank.rank else ahead(rank)

    assert told(seen(make)) == []
    assert told(seen(lambda rank: make(rank).finishes())) == [("DDP410", "proven", (0,))]


def test_ranks_that_part_before_a_step_may_come_back_in_it():
    """As in a sharpness-aware step."""

    def away(rank):
        return step(rank).sample("forward", STEP, odd={WEIGHT: 70} if rank.rank == 1 else {}, sync=1.0)

    assert told(seen(away)) == [("DDP405", "likely", (1,))]
    assert told(seen(lambda rank: away(rank).finishes())) == [("DDP405", "proven", (1,))]


# -- DDP409: gradients that differ when the optimizer takes them


def test_gradients_whose_reduction_was_never_finished_differ_for_that_reason():
    """DDP says so itself, in the next forward."""
    taken = trained(lambda r: step(r, gradients={WEIGHT: 9 + r.rank}), culprits=ALL, after=0)
    assert the_finding(taken).code == "DDP409"
    message = (
        "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates "
        "that your module has parameters that were not used in producing loss."
    )
    ending = record(Rank(0).raises("RuntimeError", message, STEP)).ranks[0].ending
    raised = {rank: replace(one, ending=ending) for rank, one in taken.ranks.items()}
    assert [one.code for one in diagnose(replace(taken, ranks=raised)).errors] == ["DDP401"]


KEPT = {"as_reduced": 1.0, "as_left": 1.0}
CLIPPED = {"as_reduced": 0.0, "as_left": 1.0}
SCALED = {"as_reduced": 0.0, "as_left": 0.0}


def edits(facts):
    """One step with gradients of the rank's own, of which is recorded what happened to them since the synchronisation."""
    return lambda rank: step(rank, gradients={BIAS: 9} if facts is SCALED else None, **facts)


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("usual", [KEPT, CLIPPED], ids=["kept", "clipped"])
def test_of_two_ranks_the_one_that_changed_synchronised_gradients_is_named(culprit, usual):
    said = [
        f"Rank {culprit} modified the gradients of Net after synchronisation, before",
        f"changed on rank {culprit}; rank {1 - culprit} did not",
    ]
    check(trained(edits(SCALED), edits(usual), (culprit,), world=2), "DDP409", (culprit,), said)


def test_a_rank_that_did_not_change_its_gradients_is_no_culprit_because_most_did():
    check(trained(edits(SCALED), edits(KEPT), (0, 1), world=3), "DDP409", (0, 1))


@pytest.mark.parametrize("facts", [SCALED, {"as_reduced": -1.0, "as_left": -1.0}], ids=["all did", "not recorded"])
def test_of_two_ranks_that_changed_their_gradients_neither_is_named(facts):
    taken = trained(lambda r: step(r, gradients={BIAS: 9 + r.rank}, **facts), culprits=(0, 1), world=2)
    found = check(taken, "DDP409", (), sides=((0,), (1,)))
    assert any("or were not synchronised" in text for text in found.evidence) == (facts is not SCALED)


def scaled(culprit, init=8.0):
    """The scale of one of two scalers is another after the first update; ``init``: as they were made."""

    def make(rank):
        made = init if isinstance(init, float) else init[rank.rank]
        rank.wraps(at=WRAPPED).event("scaler made", line(5), number=1, init_scale=made)
        step(rank).scales(made / (1 + (rank.rank == culprit)), STEP, made=1.0)

    return each(make)


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_whose_scale_has_changed_since_the_scaler_was_made(culprit):
    check(scaled(culprit), "DDP409", (culprit,), at={0: STEP, 1: STEP})


def test_scalers_that_were_made_with_different_scales():
    said = ["Rank 1: made with scale 5."]
    check(scaled(2, (4.0, 5.0)), "DDP409", (), said, sides=((0,), (1,)), at={0: line(5), 1: line(5)})


# -- DDP410: optimizers that differ


def test_of_two_ranks_whose_settings_always_differed_neither_is_named():
    found = check(
        trained(lambda r: step(r, lr=0.2), step, (0,), world=2, before=0),
        "DDP410",
        (),
        ["Ranks 0 and 1 use different values of lr at optimizer step 1"],
        sides=((0,), (1,)),
        at={0: STEP, 1: STEP},
    )
    assert found.evidence[-1] == "No recorded fact tells which side is at fault: rank 0 or rank 1."


def test_a_step_that_one_rank_left_out_as_long_as_it_ran():
    """All earlier looks after a step agree, and it makes as many forwards: an adversary that is held back."""

    def make(rank):
        rank.wraps(at=WRAPPED).trains(3, STEP).forward(STEP).backward(STEP)
        if rank.rank == 0:
            rank.gradients(STEP).updated(STEP)
        rank.forward(STEP, odd={WEIGHT: 90 + rank.rank}).backward(STEP)

    check(each(make), "DDP410", (1,))


def test_three_edits_of_five_are_no_minority():
    """Two ranks that agree by chance are no majority either."""
    value = {0: 9, 1: 9, 2: 8, 3: 7, 4: 6}
    taken = trained(lambda r: step(r, updated={WEIGHT: value[r.rank]}), culprits=range(5), world=5)
    check(taken, "DDP410", (), sides=((0, 1), (2,), (3,), (4,)))


# -- what a finding must withstand


def test_the_finding_of_each_model_is_its_own():
    def make(rank):
        rank.wraps(at=WRAPPED).wraps(*NORMED, module="Critic", at=line(4))
        rank.trains(2, STEP).trains(2, STEP, model=1).drifts({"bn.weight": 9} if rank.rank == 1 else {})
        rank.trains(1, STEP).trains(1, STEP, model=1)

    check(each(make, 3), "DDP405", (1,), ["Critic"], tensors=("bn.weight",))


def test_a_rank_without_samples_is_left_out():
    taken = trained(drifts())
    poor = {**taken.ranks, 3: replace(taken.ranks[3], samples=())}
    (found,) = found_in(replace(taken, ranks=poor))
    assert (found.code, found.culprits, found.waiting) == ("DDP405", (1,), (0, 2))


def test_many_tensors_are_cut_short():
    tensors = tuple(tensor(f"layer{n}.weight") for n in range(60))
    found = the_finding(trained(lambda r: r.drifts({t.name: 9 for t in tensors}), tensors=tensors))
    assert len(found.tensors) == 20
    assert all(len(text) < 300 for text in (found.summary, *found.evidence))


def test_a_finding_knows_when_each_rank_was_where_it_shows():
    recording = each(lambda r: r.wraps().trains(2, STEP).drifts({WEIGHT: 9} if r.rank == 1 else {}).forward(STEP), 3)
    (finding,) = found_in(recording)
    assert finding.moments == tuple((rank, own.samples[-1].at_ns) for rank, own in recording.ranks.items())
    assert "moments" not in finding.to_json()


# -- ties


def without(recording, rank, kind, *turns):
    """The recording without some samples of one rank."""
    own = recording.ranks[rank]
    samples = tuple(one for one in own.samples if one.kind != kind or one.turn not in turns)
    return replace(recording, ranks={**recording.ranks, rank: replace(own, samples=samples)})


def wraps_and_scales(rank):
    rank.wraps(at=WRAPPED)
    for turn in range(3):
        step(rank).scales(8.0 if turn == 2 and rank.rank else 4.0, STEP)


def takes_another_rate(rank):
    rank.wraps(at=WRAPPED)
    for turn in range(3):
        step(rank, lr=0.2 if turn == 2 and rank.rank else 0.1)


@pytest.mark.parametrize(
    ("train", "kind", "code"),
    [
        (takes_another_rate, "gradients", "DDP410"),
        (wraps_and_scales, "scale", "DDP409"),
        (buffered(lambda rank, turn: 70 if turn == 2 and rank else 60), "forward", "DDP406"),
        (lambda r: (deferred if r.rank else step)(r.wraps(at=WRAPPED).trains(2, STEP)), "forward", "DDP408"),
        (
            lambda r: r.wraps().trains(2, STEP).drifts({WEIGHT: 9} if r.rank else {}).trains(1, STEP),
            ("updated", "forward"),
            "DDP405",
        ),
    ],
    ids=["lr", "scale", "buffer", "no_sync", "parameters"],
)
def test_in_a_tie_the_rank_that_changed_is_blamed_only_if_the_others_past_is_recorded(train, kind, code):
    whole = each(train)
    check(whole, code, (1,), ["rank 0 did not"])
    for one in kind if isinstance(kind, tuple) else (kind,):
        whole = without(whole, 0, one, *((2, 3) if one == "updated" else (1, 2)))
    check(whole, code, (), (), ["past", "did not"], sides=((0,), (1,)))


def test_of_many_forwards_not_all_are_looked_at():
    taken = SILENT["other numbers of micro-batches"]()
    assert found_in(without(without(taken, 0, "forward", 3), 1, "forward", 8)) == []


TIES = {
    "lr": lambda r: step(r, lr=0.2),
    "gradients": lambda r: step(r, gradients={WEIGHT: 9}, updated={WEIGHT: 8}),
    "update": lambda r: step(r, updated={WEIGHT: 8}),
    "no_sync": deferred,
}


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("change", TIES.values(), ids=list(TIES))
def test_of_two_ranks_no_condition_in_the_source_decides(change, before, culprit):
    script = Script("""
        def main(rank, world):
            for step in range(9):
                if rank == 0:
                    optimizer.param_groups[0]["lr"] = grad.mul_(0.5)   # change
                loss = model(x)   # step
    """)
    found = the_finding(trained(change, step, (culprit,), world=2, before=before, script=script))
    assert found.culprits in ((), (culprit,))
    named = f"ank {culprit} " in found.summary and f"ank {1 - culprit} " not in found.summary
    assert named == (found.culprits == (culprit,)), found.summary
    assert {site.line for _, site in found.where} == {STEP.line}


# -- without a wrapper


def by_hand(change=nothing, culprits=(), *, world=3, steps=4, **options):
    """Models that nobody wrapped, and that stay equal."""

    def make(rank):
        rank.adopts(at=WRAPPED, **options)
        for turn in range(steps):
            if turn == steps // 2 and rank.rank in culprits:
                change(rank)
            rank.backward(STEP).gradients(STEP).updated(STEP)

    return each(make, world)


def own_model(rank, *, differs=lambda rank, turn: 100 * turn + rank, steps=3, **facts):
    """Each rank trains a model of its own."""
    rank.adopts(sharded=facts.pop("sharded", False))
    for turn in range(steps):
        own = {WEIGHT: differs(rank.rank, turn)}
        rank.backward(STEP).gradients(STEP, odd=own, **facts).updated(STEP, odd=own)


def same_losses(rank):
    """Equal gradients of equal data: nobody averaged them."""
    rank.drifts({WEIGHT: 30 + rank.rank}).adopts()
    for _ in range(3):
        rank.backward(loss=0.5).gradients().updated()


@pytest.mark.parametrize(
    "make",
    [
        by_hand,
        lambda: each(own_model),
        lambda: each(lambda r: own_model(r, lr=0.1 * (1 + r.rank))),
        lambda: each(same_losses),
    ],
    ids=["they agree", "models of their own", "a search for a rate", "the same losses"],
)
def test_models_without_a_wrapper_that_are_no_replicas_or_agree(make):
    assert found_in(make()) == []


@pytest.mark.parametrize("culprit", [0, 1])
def test_replicas_by_hand_that_part(culprit):
    said = ["After 2 optimizer steps all ranks held the same"]
    check(by_hand(drifts(), (culprit,)), "DDP405", (culprit,), said, tensors=(WEIGHT,), certainty="likely")


def test_gradients_are_averaged_but_the_parameters_never_were_the_same():
    make = lambda r: r.drifts({WEIGHT: 30 + r.rank}).adopts().trains(4, STEP)  # noqa: E731
    check(each(make), "DDP405", (), ["never the same"], sides=((0,), (1,)))


def test_another_setting_by_hand():
    make = lambda r: r.adopts().trains(3, STEP).backward(STEP).gradients(STEP, lr=0.1 + r.rank // 2).updated(STEP)  # noqa: E731
    check(each(make, 3), "DDP410", (2,))


def test_steps_between_two_looks_are_not_said_to_agree():
    """The last look before the difference was after the third step, not after the 127th."""
    make = lambda r: r.adopts().trains(3, STEP).sample("updated", STEP, odd={WEIGHT: 5 + r.rank}, turn=128, step=128)  # noqa: E731
    said = ["one of the optimizer steps 4 to 128", "After 3 optimizer steps all ranks held the same", "not checked"]
    check(each(make), "DDP405", (), said, sides=((0,), (1,)))


def test_what_a_sharded_model_leaves_unsharded():
    check(each(lambda r: own_model(r, sharded=True)), "DDP405", (), ["sharded"], sides=((0,), (1,)))
