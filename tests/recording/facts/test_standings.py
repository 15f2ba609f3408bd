from __future__ import annotations

import pytest

from ddpnb.recording.calls import NO_SITE, CallState
from ddpnb.recording.events.runs import LateWait
from ddpnb.recording.facts.standings import Standing, last_site, standings
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.stacks import UNRECORDED_WORK, Frame
from tests.rules.recordings import FILE, TORCH_FRAME, Rank, line, record

LOADER = Frame("/venv/lib/torch/utils/data/dataloader.py", 1400, "_try_get_data", user=False)
REDUCER = Frame("/venv/lib/torch/nn/parallel/distributed.py", 1600, "forward", user=False)
LOSS = Frame(FILE, 12, "main")


def standing(rank: Rank) -> Standing:
    return standings(record(rank))[rank.rank]


def test_every_rank_has_a_standing():
    found = standings(record(Rank(0).finishes(), Rank(1).computes(), Rank(2).waits("barrier")))
    assert {rank: one.state for rank, one in found.items()} == {
        0: RankState.ENDED,
        1: RankState.COMPUTING,
        2: RankState.WAITING,
    }


# -- in a call whose record was used again


@pytest.mark.parametrize("above", [(), (TORCH_FRAME,)])
def test_a_wait_for_an_old_call_is_no_wait_for_one_that_is_recorded(above):
    """Calls of other groups may be in flight: their members are not what the rank waits for."""
    rank = Rank(0).calls("barrier").issues("all_reduce", line(5)).issues("all_reduce", line(6))
    rank.phase(LateWait.TITLE, "open", line(9)).idles(60.0, line(9)).has_stack(Frame(FILE, 9, "main"), *above)
    found = standing(rank)
    assert (found.state, found.call, found.site) == (RankState.UNKNOWN, None, line(9))


def test_a_wait_for_an_old_call_accuses_nobody_where_no_other_is_in_flight():
    found = standing(Rank(0).calls("barrier").phase(LateWait.TITLE, "open", line(9)).idles(60.0, line(9)))
    assert (found.state, found.site) == (RankState.UNKNOWN, line(9))
    over = Rank(0).calls("barrier").phase(LateWait.TITLE, "done", line(9)).idles(60.0, line(9))
    assert standing(over).state is RankState.BLOCKED


# -- ended, unresponsive, gone


def test_a_rank_that_ended_in_a_call_has_ended():
    found = standing(Rank(0).waits("all_reduce", line(5)).raises("ValueError", "bad", line(9)))
    assert found.state is RankState.ENDED
    assert found.call is None
    assert found.site == line(9)


def test_a_stopped_process_is_unresponsive_even_in_a_call():
    assert standing(Rank(0).waits("all_reduce", line(5)).stops(3.0, line(5))).state is RankState.UNRESPONSIVE


def test_a_process_that_vanished_without_an_ending_is_unknown():
    assert standing(Rank(0).is_gone()).state is RankState.UNKNOWN


def test_an_idle_rank_is_elsewhere_and_frozen_if_it_does_not_answer():
    assert standing(Rank(0).idles(2.0, line(4))).state is RankState.BLOCKED
    assert standing(Rank(0).idles(2.0, answered=False)).state is RankState.UNRESPONSIVE
    assert standing(Rank(0).idles(2.0, line(4), answered=False, holds_lock=True)).state is RankState.UNRESPONSIVE
    assert standing(Rank(0).idles(2.0, line(4), answered=False)).state is RankState.BLOCKED  # py-spy shows its stack


def test_a_computing_rank_computes_even_if_it_does_not_answer():
    rank = Rank(0).computes(line(4))
    assert standing(rank).state is RankState.COMPUTING
    assert standing(rank).site == line(4)


# -- in a call


def test_a_rank_waits_where_its_main_thread_stands():
    """The call was begun at line 5 with async_op; the wait() is at line 8."""
    found = standing(Rank(0).waits("all_reduce", line(5)).has_stack(Frame(FILE, 8, "main"), TORCH_FRAME))
    assert found.state is RankState.WAITING
    assert found.call.title == "all_reduce #1"
    assert found.site == line(8)


def test_a_rank_without_stacks_waits_where_its_call_was_made():
    found = standing(Rank(0).calls("barrier", line(5), state=CallState.WAITING))
    assert (found.state, found.site) == (RankState.WAITING, line(5))


def test_a_call_that_has_only_entered_the_backend_holds_the_rank():
    assert standing(Rank(0).calls("barrier", line(5), state=CallState.ENTERED)).state is RankState.WAITING


def test_of_several_waits_the_last_one_counts():
    found = standing(Rank(0).issues("all_reduce", line(4)).waits("all_reduce", line(5)))
    assert found.call.seq == 2


def test_a_waiting_thread_holds_an_idle_main_thread():
    rank = Rank(0).calls("all_reduce", line(5), state=CallState.WAITING, thread=9)
    assert standing(rank.idles(1.0, line(30))).state is RankState.WAITING
    assert standing(rank.computes(line(30))).state is RankState.COMPUTING


def test_an_issued_call_does_not_hold_a_rank_that_computes():
    assert standing(Rank(0).issues("all_reduce", line(5)).computes(line(6))).state is RankState.COMPUTING


def test_an_idle_rank_inside_ddp_waits_for_its_first_bucket():
    rank = Rank(0).issues("all_reduce", line(5)).issues("all_reduce", line(5)).idles(1.0).has_stack(LOSS, REDUCER)
    assert standing(rank).state is RankState.WAITING
    assert standing(rank).call.seq == 1


def test_an_idle_rank_inside_the_data_loader_does_not_wait_for_a_call():
    rank = Rank(0).issues("all_reduce", line(5)).idles(1.0).has_stack(LOSS, LOADER)
    assert standing(rank).state is RankState.BLOCKED


def test_an_idle_rank_in_its_own_line_does_not_wait_for_an_issued_call():
    assert standing(Rank(0).issues("all_reduce", line(5)).idles(1.0, line(6))).state is RankState.BLOCKED


@pytest.mark.parametrize(("still", "state"), [(0.5, RankState.BLOCKED), (5.0, RankState.WAITING)])
def test_on_a_gpu_a_rank_that_stands_still_waits_for_what_is_in_flight(still, state):
    rank = Rank(0).issues("all_reduce", line(5), device="cuda").idles(1.0, line(6), still_s=still)
    assert standing(rank).state is state


@pytest.mark.parametrize(
    "state", [CallState.COMPLETED, CallState.FAILED, CallState.FENCED, CallState.REFUSED, CallState.DROPPED]
)
def test_a_call_that_is_over_holds_nobody(state):
    assert standing(Rank(0).calls("all_reduce", line(5), state=state).idles(1.0, line(6))).state is RankState.BLOCKED


# -- start-up


def test_a_rank_in_init_process_group_is_starting():
    found = standing(Rank(0).starts(line(3)))
    assert (found.state, found.site, found.event.title) == (RankState.STARTING, line(3), "init_process_group")


def test_a_rank_in_new_group_is_making_a_group():
    found = standing(Rank(0).makes_group([0, 1], line(4), state="open"))
    assert (found.state, found.site) == (RankState.CREATING_GROUP, line(4))


def test_a_rank_that_computes_within_start_up_is_no_waiting_rank():
    assert standing(Rank(0).starts(line(3)).computes(line(3))).state is RankState.COMPUTING


def test_a_model_being_wrapped_is_nothing_to_wait_in():
    rank = Rank(0).phase("model wrapped", "open").idles(1.0, line(6))
    assert standing(rank).state is RankState.BLOCKED


# -- patience


@pytest.mark.parametrize(("idle", "expired"), [(9.9, False), (10.0, True), (3600.0, True)])
def test_patience_with_a_rank_elsewhere(idle, expired):
    assert standing(Rank(0).idles(idle, line(4))).expired(10.0) is expired


@pytest.mark.parametrize(("wakes", "expired"), [(0.1, False), (15.0, False), (3600.0, True)])
def test_a_sleeper_that_will_wake_soon_is_waited_for(wakes, expired):
    assert standing(Rank(0).idles(60.0, line(4), wakes_in_s=wakes)).expired(10.0) is expired


def test_patience_with_a_stopped_rank():
    assert not standing(Rank(0).stops(9.0)).expired(10.0)
    assert standing(Rank(0).stops(11.0)).expired(10.0)


def test_a_rank_that_waits_in_a_call_never_expires():
    """Whether its wait can end is a matter of proof, not of patience."""
    assert not standing(Rank(0).waits("all_reduce", idle=3600.0)).expired(10.0)


# -- the last line of the user's code


def test_the_last_site_of_an_exception_is_the_innermost_frame_of_the_user():
    rank = Rank(0).calls("barrier", line(2)).raises("RuntimeError", "x", line(9), TORCH_FRAME)
    assert last_site(rank.record) == line(9)


def test_the_last_site_without_frames_is_that_of_the_last_call():
    assert last_site(Rank(0).calls("barrier", line(2)).calls("barrier", line(4)).dies(-9).record) == line(4)


def test_the_last_site_without_calls_is_that_of_a_phase():
    assert last_site(Rank(0).makes_group([0], line(3)).finishes().record) == line(3)


def test_nothing_known_is_no_site():
    assert last_site(Rank(0).record) == NO_SITE


# -- in communication that does not pass the door


UNSEEN = Frame("/venv/lib/vllm/pynccl.py", 30, "all_reduce", user=False, unseen="pynccl of vllm")


def test_a_rank_in_a_library_waits_there_and_not_in_a_call_that_it_has_begun():
    rank = Rank(0).issues("all_reduce", line(5), device="cuda").idles(9.0, line(8), still_s=9.0)
    assert standing(rank).call.seq == 1
    found = standing(rank.has_stack(Frame(FILE, 8, "main"), UNSEEN))
    assert (found.state, found.call, found.function) == (RankState.WAITING, None, "all_reduce of pynccl of vllm")
    assert found.elsewhere and found.expired(5.0) and not found.expired(10.0)


def test_a_wait_for_several_calls_together_is_one_for_these():
    """The Work of a coalescing manager has no record of its own."""
    work = Frame(
        "/venv/lib/ddpnb/recorder/collectives/waits.py", 70, "watched_wait", user=False, unseen=UNRECORDED_WORK
    )
    rank = Rank(0).idles(9.0, line(8), still_s=9.0).has_stack(Frame(FILE, 8, "main"), work)
    assert standing(rank).function == "wait of a Work that is not recorded"
    assert standing(rank.issues("send", line(5), peer=1, device="cuda")).call.op == "send"


def test_a_rank_that_computes_in_a_library_computes():
    assert standing(Rank(0).computes(line(8)).has_stack(LOSS, UNSEEN)).state is RankState.COMPUTING


def test_a_group_in_python_that_waits_in_a_recorded_call_waits_for_that():
    group = Frame(FILE, 3, "allreduce", unseen="Managed (a group in Python)")
    found = standing(Rank(0).waits("all_reduce", line(3)).has_stack(LOSS, group, TORCH_FRAME))
    assert (found.state, found.call.seq, found.function) == (RankState.WAITING, 1, "")


@pytest.mark.parametrize("device", ["cuda", "xpu", "npu", "privateuseone"])
def test_a_host_that_stands_still_with_a_call_on_any_device_waits_for_it(device):
    rank = Rank(0).issues("all_reduce", line(5), device=device).idles(40.0, line(8), still_s=40.0)
    assert (standing(rank).state, standing(rank).call.seq) == (RankState.WAITING, 1)
    for other in ("cpu", "meta"):
        issued = Rank(0).issues("all_reduce", line(5), device=other).idles(40.0, line(8), still_s=40.0)
        assert standing(issued).state is RankState.BLOCKED
