"""Models that earlier runs of a World have made, and that differ when a run uses them again."""

from __future__ import annotations

import pytest

from ddpnb.rules.diagnose import diagnose
from tests.rules.recordings import Rank, line, record

WEIGHT, BIAS, STEP, EDIT = "fc.weight", "fc.bias", line(9), line(2)
MADE = {"made": [1, 0]}


def used_again(*held, before=(), world=2, now=None, made=MADE, **first):
    """Ranks that use a model of run 1 again. ``held``: of each rank what is its own now.

    ``before``: for each end of an earlier run its number, its name, and of the ranks that changed something in it what
    was their own then, and their optimizer steps.
    """
    ranks = []
    for number in range(world):
        rank = Rank(number, world)
        rank._model((), line(3), {"wrapper": "DistributedDataParallel", "module": "Net", **made})
        for run, name, changed in before:
            if number in changed:
                odd, steps = changed[number]
                rank.sample("earlier", EDIT, turn=run, step=0, odd=odd, run=name, steps=float(steps))
        rank.drifts(held[number])
        rank.sample("updated", STEP, **first).trains(2, STEP)
        ranks.append(rank.finishes())
    return record(*ranks)


def only(recording):
    (found,) = (one for one in diagnose(recording).findings if one.severity == "error")
    assert found.code == "DDP405"
    return found


def ends(*runs):
    return [(number, name, changed) for number, (name, changed) in enumerate(runs, 1)]


TRAINED = "In[5]", {0: ({}, 20), 1: ({}, 20)}


def test_a_parameter_that_one_rank_has_edited_in_a_cell():
    """It said that the parameters were never the same, and advised to use DistributedDataParallel."""
    found = only(used_again({}, {WEIGHT: 9}, before=ends(TRAINED, ("In[6]", {1: ({WEIGHT: 9}, 0)}))))
    assert (found.culprits, found.waiting, found.certainty, found.tensors) == ((1,), (0,), "proven", (WEIGHT,))
    assert "Rank 1 holds parameters of Net that differ from the other replicas since In[6]: fc.weight." in found.summary
    assert found.evidence[:2] == (
        "When In[5] ended, all ranks held the same values.",
        "Rank 1 changed fc.weight in In[6], without an optimizer step; rank 0 did not.",
    )
    assert found.where == ((1, EDIT), (0, STEP))
    assert "DistributedDataParallel" not in found.remedy


def test_every_later_run_says_so_again():
    later = ("In[7]", {0: ({}, 10), 1: ({WEIGHT: 8}, 10)})
    found = only(used_again({}, {WEIGHT: 7}, before=ends(TRAINED, ("In[6]", {1: ({WEIGHT: 9}, 0)}), later)))
    assert "since In[6]" in found.summary and found.culprits == (1,)


def test_replicas_that_were_made_equal_again():
    again = ("In[7]", {1: ({}, 0)})
    recording = used_again({}, {}, before=ends(TRAINED, ("In[6]", {1: ({WEIGHT: 9}, 0)}), again))
    assert diagnose(recording).outcome == "ok"


def test_an_edit_that_one_rank_has_left_out():
    edited = ("In[6]", {rank: ({WEIGHT: 9}, 0) for rank in (0, 1, 3)})
    trained = "In[5]", {rank: ({}, 20) for rank in range(4)}
    held = [{WEIGHT: 9} if rank != 2 else {} for rank in range(4)]
    found = only(used_again(*held, before=ends(trained, edited), world=4))
    assert (found.culprits, found.certainty) == ((2,), "likely")


def test_steps_that_only_one_rank_has_made():
    found = only(used_again({}, {WEIGHT: 9}, before=ends(TRAINED, ("function tune", {1: ({WEIGHT: 9}, 3)}))))
    assert "Rank 1 changed fc.weight in function tune, in 3 optimizer steps; rank 0 did not." in found.evidence


def test_a_change_that_no_run_has_made():
    found = only(used_again({}, {WEIGHT: 9}, before=ends(TRAINED)))
    assert found.culprits == (1,) and "since the end of In[5]" in found.summary
    assert "Rank 1 changed fc.weight after it and before this run used the model; rank 0 did not." in found.evidence


def test_replicas_that_differed_when_the_first_run_ended():
    trained = "In[5]", {0: ({}, 20), 1: ({BIAS: 9}, 20)}
    found = only(used_again({}, {BIAS: 9}, before=ends(trained)))
    assert (found.culprits, found.sides) == ((), ((0,), (1,)))
    assert "differ since In[5] or earlier: fc.bias" in found.summary


def test_a_model_of_which_nothing_else_is_known():
    found = only(used_again({}, {WEIGHT: 9}))
    assert "when they are wrapped" not in found.summary
    assert "No earlier check of all ranks is recorded." in found.evidence[0]


def test_models_of_different_runs_are_no_replicas_of_each_other():
    one, other = used_again({}, {}), used_again({WEIGHT: 9}, {WEIGHT: 9}, made={"made": [3, 0]})
    mixed = record(world_size=2)
    mixed.ranks.update({0: one.ranks[0], 1: other.ranks[1]})
    assert diagnose(mixed).outcome == "ok"


@pytest.mark.parametrize("known", [True, False])
def test_a_model_that_the_script_itself_keeps_equal(known):
    """Without a wrapper: what it held when earlier cells ended is known all the same."""
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).adopts(**MADE)
        edited = {WEIGHT: 9} if number else {}
        if known:
            rank.sample("earlier", EDIT, turn=1, step=0, run="In[5]", steps=20.0)
            if number:
                rank.sample("earlier", EDIT, turn=2, step=0, odd=edited, run="In[6]", steps=0.0)
        ranks.append(rank.drifts(edited).trains(3, STEP).finishes())
    found = only(record(*ranks))
    assert ("since In[6]" in found.summary) is known
    assert ("never the same" in " ".join(found.evidence)) is not known
