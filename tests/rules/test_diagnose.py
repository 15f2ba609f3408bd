from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from ddpnb.recording.calls import Call, CallState, Group, Signature
from ddpnb.recording.ending import Ending
from ddpnb.recording.events import Event, read
from ddpnb.recording.facts.patience import PATIENCE
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.rules import diagnose as module
from tests.rules.recordings import FILE, TORCH_FRAME, Rank, Script, diagnose, group, line, record

CLOSED = "[gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:4242"
LOADER = Frame("/venv/lib/torch/utils/data/dataloader.py", 1400, "_try_get_data", user=False)


def codes(found: Diagnosis) -> list[str]:
    return [one.code for one in found.findings]


def lost_peer(rank: int, world: int = 4) -> Rank:
    return (
        Rank(rank, world)
        .calls("all_reduce", line(5), state=CallState.FAILED)
        .raises("RuntimeError", CLOSED, line(5), TORCH_FRAME)
    )


# -- all is well


def test_a_run_that_ended_well():
    found = diagnose(record(*(Rank(rank).calls("all_reduce", line(5)).leaves_world().finishes() for rank in range(4))))
    assert (found.outcome, found.findings, found.settled) == ("ok", (), True)
    assert found.exit_codes == {0: 0, 1: 0, 2: 0, 3: 0}
    assert found.world_size == 4


@pytest.mark.parametrize(("idle", "settled"), [(0.5, False), (3.0, True)])
def test_ranks_that_all_stand_in_calls_of_another_kind(idle, settled):
    """Without the fence nothing stops them: no call raises, and each has made its own."""
    ranks = [
        Rank(0, 2).calls("all_reduce", line(9)).calls("barrier", line(11)).waits("all_reduce", line(9), idle=idle),
        Rank(1, 2).calls("all_reduce", line(9)).calls("barrier", line(11)).waits("barrier", line(11), idle=idle),
    ]
    found = diagnose(record(*ranks))
    assert (bool(found.errors), found.settled) == (True, settled)


def test_a_run_that_goes_on_is_not_settled():
    found = diagnose(record(Rank(0, 2).computes(), Rank(1, 2).finishes()))
    assert (found.outcome, found.findings, found.settled) == ("ok", (), False)
    assert found.exit_codes == {0: None, 1: 0}


def test_a_large_collective_that_all_are_in_is_at_work():
    found = diagnose(record(*(Rank(rank).waits("all_reduce", line(5), idle=1.0) for rank in range(4))))
    assert (found.outcome, found.findings, found.settled) == ("ok", (), False)


# -- what was not recorded


def test_an_error_says_what_was_not_recorded_of_the_ranks_that_it_names():
    found = diagnose(
        record(
            Rank(0, 2).calls("all_reduce", line(5)).waits("all_reduce", line(9), idle=60.0),
            Rank(1, 2).calls("all_reduce", line(5)).event("door detached").idles(60.0, line(9), waits_on="a lock"),
        )
    )
    (finding,) = found.findings
    (gap,) = [sentence for sentence in finding.evidence if "no longer monitored" in sentence]
    assert gap.startswith("Rank 1 is no longer monitored") and "may be blocked in one of them" in gap


def test_a_gap_of_a_rank_that_is_not_concerned_is_left_out():
    ranks = [Rank(rank).calls("all_reduce", line(5)).waits("all_reduce", line(9), idle=60.0) for rank in (0, 2)]
    crashed = Rank(1).calls("all_reduce", line(5)).raises("ValueError", "no", line(7))
    found = diagnose(record(ranks[0], crashed, ranks[1], Rank(3).event("door detached").finishes()))
    assert found.errors and not [
        s for f in found.findings if 3 not in f.concerned for s in f.evidence if "no longer monitored" in s
    ]


# -- late, but not wrong


def test_the_root_of_a_hang_says_after_which_checkpoint_each_rank_stopped():
    ranks = [
        Rank(0).passes(1, "Trainer ready", line(4)).passes(2, "first batch", line(8)).waits("all_reduce", line(9)),
        Rank(1).passes(1, "Trainer ready", line(4)).finishes(),
        *(Rank(n).passes(1, "Trainer ready", line(4)).passes(2, "first batch", line(8)).waits("all_reduce", line(9)) for n in (2, 3)),
    ]  # fmt: skip
    finding = diagnose(record(*ranks)).findings[0]
    assert finding.culprits == (1,)
    assert finding.evidence[-1] == (
        f"Rank 1 passed checkpoint 1 (Trainer ready) last, at {FILE}:4; "
        f"ranks 0, 2 and 3 passed checkpoint 2 (first batch) last, at {FILE}:8."
    )


def test_checkpoints_are_evidence_of_a_crash_too_but_not_of_what_is_well():
    passing = [Rank(n, 2).passes(1, "start", line(4)) for n in range(2)]
    crashed = diagnose(record(passing[0].raises("ValueError", "bad", line(5)), passing[1].finishes()))
    assert crashed.findings[0].evidence[-1] == f"Ranks 0 and 1 passed checkpoint 1 (start) last, at {FILE}:4."
    assert diagnose(record(*(Rank(n, 2).passes(1, "start").finishes() for n in range(2)))).findings == ()


def test_a_slow_rank_is_a_note():
    recording = record(
        *(Rank(r).waits("all_reduce", line(9), idle=3600.0) for r in (0, 1, 2)), Rank(3).computes(line(4))
    )
    found = diagnose(recording)
    assert (found.outcome, found.settled, found.errors) == ("ok", False, ())
    (note,) = found.findings
    assert (note.code, note.severity) == ("DDP315", "note")
    assert (note.culprits, note.waiting) == ((3,), (0, 1, 2))
    assert note.where == ((3, line(4)), (0, line(9)), (1, line(9)), (2, line(9)))


@pytest.mark.parametrize(
    "late",
    [
        lambda rank: rank.computes(line(4)),
        lambda rank: rank.idles(PATIENCE - 1, line(4), waits_on="a file"),
        lambda rank: rank.idles(120.0, line(4), wakes_in_s=2.0),
        lambda rank: rank.stops(1.0, line(4)),
        lambda rank: rank.issues("all_reduce", line(8), group=group(0, 1, ordinal=1)).computes(line(4)),
        lambda rank: rank.idles(2.0).has_stack(Frame(FILE, 4, "main"), LOADER),
        lambda rank: rank.is_gone(),
    ],
    ids=["computes", "writes a checkpoint", "sleeps", "stopped for a second", "overlaps", "loads data", "vanishing"],
)
def test_a_rank_that_may_still_come_is_never_an_error(late):
    found = diagnose(record(Rank(0, 2).waits("all_reduce", line(9)), late(Rank(1, 2))))
    assert found.errors == ()
    assert (found.outcome, found.settled) == ("ok", False)


def test_sub_groups_of_different_speed_are_well():
    recording = record(
        Rank(0).waits("all_reduce", line(5), group=group(0, 1)),
        Rank(1).computes(line(4)),
        *(Rank(r).calls("all_reduce", line(5), group=group(2, 3)).waits("barrier", line(6)) for r in (2, 3)),
    )
    found = diagnose(recording)
    assert (found.outcome, found.errors, found.settled) == ("ok", (), False)


def test_a_rank_in_a_wait_with_a_timeout_comes_back_by_itself():
    found = diagnose(record(Rank(0, 2).waits("all_reduce", line(5), timeout_ms=2000), Rank(1, 2).finishes()))
    assert (found.outcome, found.errors, found.settled) == ("ok", (), False)


# -- patience


@pytest.mark.parametrize(("patience", "error"), [(5.0, True), (PATIENCE, False)])
def test_patience_can_be_chosen(patience, error):
    recording = record(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).idles(8.0, line(4)))
    found = diagnose(recording, patience)
    assert (codes(found) == ["DDP313"]) is error
    assert found.settled is error
    assert (found.outcome == "hang") is error


def test_proof_needs_no_patience():
    """A rank that has ended will not come, however short the others have waited."""
    found = diagnose(record(Rank(0, 2).waits("all_reduce", line(9), idle=0.0), Rank(1, 2).finishes()), 3600.0)
    assert (found.outcome, found.settled) == ("hang", True)


def test_a_long_sleep_is_blocked_elsewhere():
    recording = record(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).idles(12.0, line(4), wakes_in_s=3588.0))
    assert codes(diagnose(recording)) == ["DDP313"]


# -- all ranks idle, nobody waiting


def test_all_ranks_blocked_outside_of_collectives():
    found = diagnose(record(*(Rank(r).idles(3 * PATIENCE, line(4), waits_on="a socket") for r in range(3))))
    assert (found.outcome, codes(found), found.settled) == ("hang", ["DDP313"], True)
    assert found.findings[0].culprits == (0, 1, 2)
    assert found.findings[0].waiting == ()


def test_a_frozen_one_among_idle_ranks_is_the_culprit():
    recording = record(Rank(0, 2).idles(3 * PATIENCE, line(4)), Rank(1, 2).stops(3 * PATIENCE, line(6)))
    found = diagnose(recording)
    assert codes(found) == ["DDP314"]
    assert found.findings[0].culprits == (1,)


@pytest.mark.parametrize(
    "last",
    [
        lambda rank: rank.idles(2 * PATIENCE, line(4)),
        lambda rank: rank.computes(line(4)),
        lambda rank: rank.idles(60.0, line(4), wakes_in_s=5.0),
        lambda rank: rank.leaves_world().idles(60.0, line(4)),
        lambda rank: rank.absent().idles(60.0, line(4)),
        lambda rank: rank.is_gone(),
    ],
    ids=["not for so long", "computes", "sleeps", "has left the world", "never joined", "vanishing"],
)
def test_one_rank_that_may_go_on_keeps_idle_ranks_from_being_an_error(last):
    found = diagnose(record(Rank(0, 2).idles(60.0, line(4)), last(Rank(1, 2))))
    assert (found.outcome, found.errors, found.settled) == ("ok", (), False)


def before_init(rank, seconds, waits_on, **more):
    return Rank(rank, 2).absent().idles(seconds, line(4), waits_on=waits_on, **more)


@pytest.mark.parametrize("waits_on", ["a file lock on /cache/lock", "a child process", "sleep()"])
def test_all_ranks_stuck_before_the_start_up(waits_on):
    found = diagnose(record(*(before_init(r, PATIENCE, waits_on) for r in range(2))))
    assert (found.outcome, codes(found), found.settled) == ("hang", ["DDP313"], True)
    finding = found.findings[0]
    assert (finding.culprits, finding.waiting, finding.certainty) == ((0, 1), (), "timed")
    assert "Ranks 0 and 1 have not called init_process_group in this run." in finding.evidence
    assert "the other ranks" not in finding.remedy


@pytest.mark.parametrize(
    "last",
    [
        before_init(1, PATIENCE - 0.1, "sleep()"),
        before_init(1, 2 * PATIENCE, "a socket"),
        before_init(1, 2 * PATIENCE, "sleep()", wakes_in_s=PATIENCE),
        Rank(1, 2).absent().computes(line(4)),
        Rank(1, 2).absent().idles(3600.0, waits_on="sleep()"),
        Rank(1, 2).absent().has_stack(TORCH_FRAME).idles(3600.0, waits_on="sleep()"),
    ],
    ids=["not for so long", "may download", "will wake", "computes", "unknown", "runs nothing of the user"],
)
def test_a_rank_that_may_prepare_something_is_waited_for(last):
    found = diagnose(record(before_init(0, 3600.0, "sleep()"), last))
    assert (found.outcome, found.errors, found.settled) == ("ok", (), False)


def test_the_stacks_of_ranks_that_are_stuck_before_the_start_up():
    wait = Frame("/venv/lib/site-packages/torch/utils/file_baton.py", 49, "wait", user=False)

    def stuck(rank, at):
        frames = Frame(FILE, 9, "<module>"), Frame(FILE, at, "build"), wait
        return before_init(rank, PATIENCE, "sleep()").has_stack(*frames)

    text = f"<module> ({FILE}:9) > build ({FILE}:4) > wait (torch/utils/file_baton.py:49)"
    assert f"Stack of ranks 0 and 1: {text}." in diagnose(record(stuck(0, 4), stuck(1, 4))).findings[0].evidence
    found = diagnose(record(stuck(0, 4), stuck(1, 5))).findings[0].evidence
    assert [one.partition(":")[0] for one in found if "Stack" in one] == ["Stack of rank 0", "Stack of rank 1"]


def test_a_download_before_the_start_up_may_take_longer():
    assert codes(diagnose(record(*(before_init(r, 3 * PATIENCE, "a socket") for r in range(2))))) == ["DDP313"]


def test_a_world_of_one_may_idle():
    assert diagnose(record(Rank(0, 1).idles(3600.0, line(4)))).findings == ()


def test_an_ended_rank_does_not_hide_that_the_others_idle():
    recording = record(Rank(0, 2).idles(60.0, line(4)), Rank(1, 2).leaves_world().finishes())
    found = diagnose(recording)
    assert codes(found) == ["DDP313"]
    assert found.findings[0].culprits == (0,)


# -- crash


def test_a_crash_is_the_root_and_lost_connections_are_consequences():
    recording = record(
        lost_peer(0), lost_peer(1), Rank(2).calls("barrier", group=group(2, 3)).raises("ValueError", "bad", line(7)),
        lost_peer(3),
    )  # fmt: skip
    found = diagnose(recording)
    assert found.outcome == "crash"
    assert codes(found) == ["DDP312"]
    assert (found.findings[0].culprits, found.findings[0].waiting) == ((2,), (0, 1, 3))
    assert found.settled
    assert found.exit_codes == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_crash_is_told_while_the_others_still_wait():
    recording = record(Rank(0, 2).waits("all_reduce", line(5)), Rank(1, 2).raises("ValueError", "bad", line(7)))
    found = diagnose(recording)
    assert (found.outcome, codes(found), found.settled) == ("crash", ["DDP312"], True)


def test_a_killed_process_and_those_that_lost_it():
    found = diagnose(record(lost_peer(0, 2), Rank(1, 2).calls("all_reduce", line(5)).dies(-9)))
    assert (found.outcome, codes(found)) == ("crash", ["DDP311"])
    assert found.findings[0].culprits == (1,)
    assert found.exit_codes == {0: 1, 1: -9}


def test_lost_connections_after_a_rank_left_early_name_that_rank():
    found = diagnose(record(lost_peer(0), lost_peer(1), Rank(2).finishes(), lost_peer(3)))
    assert codes(found)[0] in ("DDP301", "DDP308")
    assert found.findings[0].culprits == (2,)
    assert found.findings[0].waiting == (0, 1, 3)


def test_time_outs_while_one_rank_was_blocked_name_that_rank():
    """The others gave up before our patience was over."""
    found = diagnose(record(lost_peer(0, 3), Rank(1, 3).idles(4.0, line(8)), lost_peer(2, 3)))
    assert codes(found)[0] == "DDP313"
    assert found.findings[0].culprits == (1,)


@pytest.mark.parametrize(
    "end",
    [
        lambda rank: rank.raises("RuntimeError", CLOSED, line(5), TORCH_FRAME),
        lambda rank: rank.raises("DistNetworkError", CLOSED, line(5)),
        lambda rank: rank.raises("TimeoutError", "timed out", line(5)),
        lambda rank: rank.raises("ValueError", "bad", line(5)),
        lambda rank: rank.raises("SystemError"),
        lambda rank: rank.exits(1),
        lambda rank: rank.dies(-11),
        lambda rank: rank.dies(0),
    ],
    ids=["lost", "network", "time-out", "raised", "no words", "exit", "signal", "os._exit(0)"],
)
@pytest.mark.parametrize("state", [CallState.ISSUED, CallState.FAILED, CallState.COMPLETED])
def test_every_rank_that_failed_alike_is_told_of(end, state):
    """However the last words read: a crash without a finding helps nobody."""
    found = diagnose(record(*(end(Rank(rank, 2).calls("all_reduce", line(5), state=state)) for rank in range(2))))
    if found.outcome != "ok":
        assert found.errors


# -- mismatches


def mismatch(state: CallState, *others: Rank) -> Recording:
    return record(
        Rank(0, 2 + len(others)).calls("all_reduce", line(5), state=state).raises("CollectiveMismatch", "unlike", line(5)),
        Rank(1, 2 + len(others)).calls("all_reduce", line(5), shape=(9,), state=state).raises("CollectiveMismatch", "unlike", line(5)),
        *others,
    )  # fmt: skip


def test_a_stop_at_the_fence_is_a_hang_that_was_spared():
    found = diagnose(mismatch(CallState.FENCED))
    assert (found.outcome, codes(found), found.settled) == ("hang", ["DDP303"], True)
    assert found.exit_codes == {0: 1, 1: 1}


def test_a_mismatch_comes_before_what_follows_from_it():
    found = diagnose(mismatch(CallState.FENCED, lost_peer(2, 3)))
    assert codes(found) == ["DDP303"]
    assert found.outcome == "hang"


def test_a_mismatch_that_went_through_is_a_divergence():
    found = diagnose(
        record(
            Rank(0, 2).calls("all_reduce", line(5), reduce_op="sum").finishes(),
            Rank(1, 2).calls("all_reduce", line(5), reduce_op="max").finishes(),
        )
    )
    assert (found.outcome, codes(found), found.settled) == ("divergence", ["DDP305"], True)


def test_a_crash_comes_before_a_mismatch_that_went_through():
    found = diagnose(
        record(
            Rank(0, 2).calls("all_reduce", line(5), reduce_op="sum").finishes(),
            Rank(1, 2).calls("all_reduce", line(5), reduce_op="max").raises("ValueError", "bad", line(8)),
        )
    )
    assert codes(found) == ["DDP312", "DDP305"]
    assert found.outcome == "crash"


def test_a_mismatch_that_aborted_the_backend_explains_the_crash():
    recording = record(
        Rank(0, 2).calls("all_reduce", line(5), shape=(4,), state=CallState.WAITING).dies(-6),
        Rank(1, 2).calls("all_reduce", line(5), shape=(9,), state=CallState.WAITING).dies(-6),
    )
    found = diagnose(recording)
    assert (found.outcome, codes(found)) == ("crash", ["DDP303"])


# -- a hang


def test_a_hang_is_told_while_a_rank_beside_it_computes():
    recording = record(
        Rank(0, 3).waits("barrier", line(5), group=group(0, 1)), Rank(1, 3).finishes(), Rank(2, 3).computes()
    )
    found = diagnose(recording)
    assert (found.outcome, found.settled) == ("hang", True)
    assert found.exit_codes == {0: None, 1: 0, 2: None}


def test_a_hang_hides_no_straggler_note_behind_itself():
    recording = record(Rank(0, 3).waits("all_reduce", line(5)), Rank(1, 3).finishes(), Rank(2, 3).computes(line(3)))
    assert all(one.severity == "error" for one in diagnose(recording).findings)


# -- recordings with holes


def test_no_ranks_at_all():
    assert diagnose(record()).findings == ()


def test_a_world_of_which_nothing_is_known_did_not_end_well():
    assert not diagnose(record(world_size=4)).settled


def test_a_rank_of_which_nothing_is_known_has_not_ended():
    found = diagnose(record(Rank(0).finishes(), Rank(1).finishes(), Rank(2).finishes(), world_size=4))
    assert (found.findings, found.settled) == ((), False)


def test_a_wait_for_a_rank_of_which_nothing_is_known_is_never_called_well():
    """Its box may merely be lost: nothing is proven, neither that it will come nor that it will not."""
    found = diagnose(record(*(Rank(rank).waits("all_reduce", line(5)) for rank in range(3)), world_size=4))
    assert not (found.outcome == "ok" and found.settled)


def test_a_ring_that_has_forgotten_the_beginning():
    """The slowest is 5000 calls behind the fastest; their rings have no call in common."""
    ranks = [Rank(0, 2), Rank(1, 2)]
    for seq in range(9000, 9010):
        ranks[0].calls("all_reduce", line(5), seq=seq, number=seq)
    for seq in range(4000, 4010):
        ranks[1].calls("all_reduce", line(5), seq=seq, number=seq)
    found = diagnose(record(ranks[0].waits("all_reduce", line(5), seq=9010), ranks[1].computes(line(4))))
    assert codes(found) == ["DDP315"]
    assert found.findings[0].culprits == (1,)


@pytest.mark.parametrize("members", [Group(()), Group((5, 6)), Group((0,)), Group((0, 0, 1))], ids=str)
@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "gather", "recv", "recv_any_source", "?"])
def test_a_group_that_cannot_be_never_raises(members, op):
    found = diagnose(record(Rank(0, 2).waits(op, line(5), group=members, root=3, peer=1), Rank(1, 2).finishes()))
    assert found.world_size == 2


def test_an_operation_that_nobody_knows_is_a_collective_like_others():
    found = diagnose(record(Rank(0, 2).waits("permute_everything", line(5)), Rank(1, 2).finishes()))
    assert (found.outcome, codes(found)) == ("hang", ["DDP301"])
    assert "permute_everything" in found.findings[0].summary


OPS = ("all_reduce", "broadcast", "reduce", "barrier", "all_to_all_single", "send", "recv", "recv_any_source", "?", "")
SOURCE = Script(
    """
    def main(rank):
        for step in range(9):
            if rank == step:
                one()
                return
            other()
        while True:
            third()
    """
)


def any_record(dice: random.Random, rank: int, world: int) -> RankRecord:
    """Whatever a box may hold, likely or not."""

    def site():
        return line(dice.randrange(12), dice.choice(("main", "step", "?")))

    def members():
        return Group(tuple(dice.sample(range(world + 2), dice.randrange(world + 1))), dice.randrange(2))

    def call(number: int) -> Call:
        op = dice.choice(OPS)
        splits = tuple(dice.randrange(3) for _ in range(dice.randrange(4)))
        described = Signature(
            op, *dice.choice(((((4,),), ("float32",)), ((), ()), (((4,), (2, 3)), ("int64",)))),
            root=dice.choice((None, 0, 1, -1, 99)), in_splits=dice.choice((None, splits)),
            out_splits=dice.choice((None, splits)), agreed=dice.choice((op, "", "x")), device=dice.choice(("cpu", "cuda")),
        )  # fmt: skip
        return Call(
            number, members(), dice.randrange(4), described, site(), dice.choice(list(CallState)), dice.randrange(2),
            dice.randrange(-1, world + 1), dice.randrange(2), dice.randrange(99), timeout_ms=dice.choice((0, 0, 5)),
        )  # fmt: skip

    def event() -> Event:
        facts = dice.choice(
            (
                {},
                {"ranks": [0, 1], "name": "1"},
                {"ranks": [], "local": True},
                {"world_size": dice.choice((None, "x", 3, "2", 0))},
                {"file": FILE, "line": 3, "function": "main", "ranks": [world, rank]},
            )
        )
        name = dice.choice(("init_process_group", "new_group", "destroy_process_group", "model wrapped", "?"))
        return read(name, facts, dice.choice(("open", "done", "failed")))

    def frames() -> tuple[Frame, ...]:
        return tuple(Frame(FILE, dice.randrange(12), "main", dice.random() < 0.7) for _ in range(dice.randrange(3)))

    process = Process(
        dice.choice(("computing", "idle", "stopped", "gone", "unknown")), dice.choice((0.0, 5.0, 50.0)),
        dice.choice((None, 1.0, 1e6)), "a lock", dice.random() < 0.5, dice.choice((0.0, 9.0)),
    )  # fmt: skip
    ending = Ending(
        dice.choice(("finished", "raised", "exited", "died")), dice.choice((0, 1, -9, -250)),
        dice.choice(("ValueError", "RuntimeError", "CollectiveMismatch", "")),
        dice.choice(("", CLOSED, "bad\nline")), frames(), at_ns=dice.randrange(99),
    )  # fmt: skip
    return RankRecord(
        rank, 1, tuple(map(call, range(dice.randrange(7)))), tuple(event() for _ in range(dice.randrange(4))),
        tuple(Stack("t", frames(), thread, main=thread == 1) for thread in range(dice.randrange(3))), process,
        dice.choice((None, ending)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(300))
def test_no_recording_makes_the_diagnosis_raise_or_contradict_itself(seed):
    dice = random.Random(seed)
    world = dice.randrange(1, 5)
    present = [rank for rank in range(world) if dice.random() < 0.9]
    ranks = {rank: any_record(dice, rank, world) for rank in present}
    found = diagnose(Recording(world, ranks, {FILE: dice.choice((SOURCE.text, "", "def f(:"))}))

    assert json.loads(json.dumps(found.to_json())) == found.to_json()
    assert (found.outcome == "ok") <= (not found.errors)
    assert (found.outcome == "divergence") <= bool(found.errors)
    assert all(one.summary and (one.remedy or one.severity == "note") for one in found.findings)
    assert all(set(one.culprits).isdisjoint(one.waiting) for one in found.findings)


def test_a_line_that_is_named_in_a_tie_is_not_named_again():
    """A call that nobody waits for, at the line at which the ranks disagree, is the same mistake."""
    script = Script("""
        def main():
            work = dist.all_reduce(x, async_op=True)   # call
            print(x)
            work.wait()
    """)
    at = script.at("call")
    ranks = [Rank(n, 2).calls("all_reduce", at).calls("all_reduce", at) for n in (0, 1)]
    assert codes(diagnose(record(*(rank.finishes() for rank in ranks), script=script))) == ["DDP316"]
    ranks = [Rank(n, 2).calls("all_reduce", at, shape=(n + 1,), state=CallState.FENCED) for n in (0, 1)]
    found = diagnose(record(*ranks, script=script))
    assert (codes(found), found.findings[0].sides) == (["DDP303"], ((0,), (1,)))


# -- in a mesh


def test_an_error_names_groups_and_ranks_by_their_place_in_the_mesh():
    members = replace(group(2, 3, label="mesh_tp"), axes="tp", at="dp=1")
    ranks = [Rank(rank).finishes() for rank in (0, 1)]
    for rank in (2, 3):
        one = Rank(rank).phase("device mesh", "done", names=["dp", "tp"], shape=[2, 2], coordinate=[1, rank - 2])
        ranks.append(one.finishes() if rank == 3 else one.waits("all_reduce", line(5), group=members))
    (found,) = diagnose(record(*ranks)).errors
    text = "\n".join((found.summary, *found.evidence))
    assert found.culprits == (3,) and "In the mesh, rank 3 is at dp=1, tp=1." in found.evidence
    assert "mesh_tp (dp=1) with ranks 2 and 3" in text
    told = found.to_json()["collective"]
    assert (told["group"], told["mesh"]) == ("mesh_tp", {"axes": "tp", "at": "dp=1"})


# -- in communication that ddpnb does not see

MANAGED = (Frame(FILE, 7, "main"), Frame(FILE, 3, "allreduce", unseen="Managed (a group in Python)"))
LOCK = Frame("/lib/python3.13/threading.py", 359, "wait", user=False)


def managed(rank: int, idle: float) -> Rank:
    return Rank(rank, 2).idles(idle, line(7), waits_on="a lock").has_stack(*MANAGED, LOCK)


def test_ranks_that_are_all_in_a_group_in_python_are_no_hang():
    """As in any collective that all have called; who asks is told."""
    found = diagnose(record(managed(0, 40.0), managed(1, 40.0)), 10.0)
    (note,) = found.findings
    assert (found.outcome, found.settled, note.severity, note.certainty) == ("ok", False, "note", "likely")
    assert note.summary.startswith(
        "Ranks 0 and 1 are blocked in allreduce of Managed (a group in Python), which ddpnb does not see"
    )
    assert "Ranks 0 and 1 wait for a lock in the kernel." in note.evidence


def test_a_rank_in_a_group_in_python_for_which_another_waits():
    ranks = record(Rank(0, 2).waits("barrier", line(5)), managed(1, 12.0))
    assert not [one for one in module.diagnose(ranks, 20.0).findings if one.severity != "note"]
    found = module.diagnose(ranks, 10.0)
    (warning,) = found.findings
    assert (found.outcome, warning.code, warning.culprits, warning.waiting) == ("ok", "DDP313", (1,), (0,))
    assert (warning.severity, warning.certainty, warning.unproven) == ("warning", "likely", True)
    assert "outside any collective" not in "".join((warning.summary, *warning.evidence))
    assert any(text.startswith("Rank 0 is blocked in barrier") for text in warning.evidence)
    assert diagnose(ranks, 10.0).outcome == "hang"


def test_who_is_blocked_elsewhere_comes_before_who_waits_in_a_group_in_python():
    locked = Rank(2, 3).idles(40.0, line(8), waits_on="a file lock on /data/lock")
    ranks = [Rank(rank, 3).idles(40.0, line(7)).has_stack(*MANAGED, LOCK) for rank in (0, 1)]
    (found,) = diagnose(record(*ranks, locked), 10.0).errors
    assert found.culprits == (2,)
    assert found.summary.startswith("Rank 2 is blocked outside any collective, waiting for a file lock")
    assert (
        "Rank 0 is blocked in allreduce of Managed (a group in Python), which ddpnb does not see" in found.evidence[-2]
    )


def test_a_wait_that_may_be_in_a_library_says_so():
    def rank_1(waits_on=""):
        rank = Rank(1, 2).idles(12.0, line(8), waits_on=waits_on).has_loaded("mpi4py", "NVSHMEM")
        return diagnose(record(Rank(0, 2).waits("barrier", line(5)), rank), 10.0).errors[0]

    found = rank_1()
    assert found.summary.startswith("Rank 1 is blocked outside any collective that ddpnb sees at")
    assert (
        "On rank 1 mpi4py, NVSHMEM are loaded, whose communication ddpnb does not see: this wait may be in it."
        in found.evidence
    )
    assert found.certainty == "timed"
    locked = rank_1("a file lock on /data/lock")
    assert "ddpnb sees" not in locked.summary and not any("mpi4py" in text for text in locked.evidence)


def test_ranks_in_different_communication_that_ddpnb_does_not_see():
    other = Frame("/venv/lib/vllm/pynccl.py", 30, "all_reduce", user=False, unseen="pynccl of vllm")
    ranks = [managed(0, 40.0), Rank(1, 2).idles(40.0, line(7)).has_stack(Frame(FILE, 7, "main"), other)]
    (note,) = diagnose(record(*ranks), 10.0).findings
    assert note.summary.startswith("Ranks 0 and 1 are blocked in communication that ddpnb does not see")
