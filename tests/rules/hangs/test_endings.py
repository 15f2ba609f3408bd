from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from ddpnb.recording.calls import NO_SITE, CallState
from ddpnb.recording.ending import Ending
from ddpnb.recording.facts.endings import is_consequence, is_fence_stop
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stops import failures
from ddpnb.recording.findings import Finding
from ddpnb.recording.stacks import Frame
from ddpnb.rules.hangs.endings import endings
from tests.rules.recordings import TORCH_FRAME, Rank, diagnose, line, record

CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:4242"
RESET = "Read error [127.0.0.1]:4242: Connection reset by peer"
TIMED_OUT = "[/pytorch/third_party/gloo/...] Timed out waiting 1800000ms for recv operation to complete"
NO_STORE = "Socket Timeout"
URLOPEN = Frame("/usr/lib/python3.11/urllib/request.py", 1351, "do_open", user=False)


def findings(*ranks: Rank) -> list[Finding]:
    snap = Snapshot(record(*ranks))
    return [endings(snap, stop).finding([]) for stop in failures(snap.recording, snap.standings, snap.waits)]


def lost_peer(rank: int, world: int = 4, message: str = CLOSED) -> Rank:
    return (
        Rank(rank, world)
        .calls("all_reduce", line(5), state=CallState.FAILED)
        .raises("RuntimeError", message, line(5), TORCH_FRAME)
    )


def diagnosed(*ranks: Rank):
    """With its exit codes: those of the processes."""
    diagnosis = diagnose(record(*ranks))
    return [(one.code, one.culprits) for one in diagnosis.errors], diagnosis.exit_codes


def lost_it_later() -> Rank:
    first = Rank(0, 2).joined().calls("all_reduce", line(5))
    return first.calls("all_reduce", line(6), state=CallState.FAILED).raises(
        "RuntimeError", CLOSED, line(6), TORCH_FRAME
    )


def left(rank: int) -> Rank:
    return Rank(rank, 2).joined().calls("all_reduce", line(5)).leaves_world()


def test_a_rank_that_left_its_group_before_the_launcher_ended_it_has_finished():
    found, exit_codes = diagnosed(lost_it_later(), left(1).passes(1, "later").passes(2, "later").dies(-signal.SIGTERM))
    assert [culprits for _, culprits in found] == [(1,)]
    assert "DDP311" not in dict(found)
    assert found == diagnosed(lost_it_later(), left(1).passes(1, "later").passes(2, "later").finishes())[0]
    assert exit_codes == {0: 1, 1: -signal.SIGTERM}


@pytest.mark.parametrize(
    "rank",
    [
        left(1).dies(-signal.SIGKILL),
        left(1).calls("all_reduce", line(6)).dies(-signal.SIGTERM),
        Rank(1, 2).joined().calls("all_reduce", line(5)).dies(-signal.SIGTERM),
    ],
    ids=["another signal", "has joined again", "has not left"],
)
def test_otherwise_the_signal_is_what_ended_it(rank):
    found, _ = diagnosed(lost_it_later(), rank)
    assert found[0] == ("DDP311", (1,))


def test_without_an_earlier_failure_the_signal_came_from_outside():
    waits_on = Rank(0, 2).joined().calls("all_reduce", line(5)).waits("all_reduce", line(6))
    found, _ = diagnosed(waits_on, left(1).dies(-signal.SIGTERM))
    assert found[0] == ("DDP311", (1,))


def timed_out(seconds: int) -> Rank:
    """Waited as long as its group's time-out, and raised."""
    rank = Rank(0, 2).joined(timeout_s=float(seconds)).calls("all_reduce", line(5))
    words = TIMED_OUT.replace("1800000", str(1000 * seconds))
    return rank.calls("all_reduce", line(6), state=CallState.FAILED).raises("RuntimeError", words, line(6), TORCH_FRAME)


def at_work(seconds: int, part: str | None = None) -> Rank:
    """Ended by the launcher after that; ``part``: it was compiling."""
    rank = Rank(1, 2).joined(timeout_s=float(seconds)).calls("all_reduce", line(5))
    if part is not None:
        rank.phase("compilation", "open", line(9, "forward"), compile_id="0/0", part=part)
    return rank.passes(1, "on").passes(2, "on").passes(3, "on").dies(-signal.SIGTERM)


@pytest.mark.parametrize(("seconds", "code"), [(6, "DDP317"), (600, "DDP301")])
def test_a_rank_that_a_launcher_ended_after_a_time_out_was_still_at_work(seconds, code):
    diagnosis = diagnose(record(timed_out(seconds), at_work(seconds)))
    assert [one.code for one in diagnosis.errors] == [code] and diagnosis.outcome == "crash"
    assert diagnosis.exit_codes == {0: 1, 1: -signal.SIGTERM}


@pytest.mark.parametrize("seconds", [6, 600])
def test_it_was_compiling(seconds):
    diagnosis = diagnose(record(timed_out(seconds), at_work(seconds, "lazy backward")))
    (finding,) = diagnosis.errors
    assert (finding.code, finding.culprits, finding.waiting, diagnosis.outcome) == ("DDP317", (1,), (0,), "crash")
    assert finding.where == ((1, line(9, "forward")), (0, line(6)))
    assert "was compiling the backward of forward (" in finding.summary
    assert finding.evidence[0].startswith("Rank 1 has been compiling the backward of forward (")


def test_a_rank_that_was_ended_in_another_call_skipped_that_of_the_time_out():
    other = Rank(1, 2).joined(timeout_s=6.0).calls("all_reduce", line(5)).passes(1, "on").passes(2, "on")
    found, _ = diagnosed(timed_out(6), other.waits("barrier", line(8)).passes(3, "on").dies(-signal.SIGTERM))
    assert found[0][0] in ("DDP301", "DDP302")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "backend='mine' raised:\nValueError: no kernel\n\nSet TORCH_LOGS",
            "backend='mine' raised: ValueError: no kernel",
        ),
        ("no kernel\nmore", "no kernel"),
        ("see below:", "see below:"),
        ("", "ValueError"),
    ],
)
def test_a_first_line_that_announces_the_next_one(message, said):
    (found,) = findings(Rank(0, 2).waits("all_reduce", line(5)), Rank(1, 2).raises("ValueError", message, line(6)))
    assert f"{said.rstrip(':')}" in found.summary and "\n" not in found.summary and "more" not in found.summary


# -- the words of a rank that lost a peer


def failed(exception: str, message: str, state: CallState = CallState.FAILED, *frames: Frame) -> Rank:
    return Rank(0).calls("all_reduce", line(5), state=state).raises(exception, message, line(5), *frames)


@pytest.mark.parametrize(
    "rank",
    [
        *(lost_peer(0, message=message) for message in (CLOSED, RESET, TIMED_OUT, "Broken pipe")),
        *(  # DDP leaves its calls in flight when it loses a peer
            failed("RuntimeError", CLOSED, state, TORCH_FRAME)
            for state in (CallState.ISSUED, CallState.WAITING, CallState.REFUSED)
        ),
        Rank(0).absent().phase("init_process_group", "failed").raises("TimeoutError", NO_STORE, line(3)),
        # The network's own exceptions need no call.
        *(Rank(0).raises(name, CLOSED, line(3)) for name in ("DistNetworkError", "DistStoreError", "DistBackendError")),
    ],
)
def test_an_exception_about_a_peer_is_a_consequence(rank):
    assert is_consequence(rank.record)


@pytest.mark.parametrize(
    "rank",
    [
        failed("RuntimeError", "The size of tensor a (3) must match the size of tensor b (4)"),
        failed("RuntimeError", "CUDA out of memory"),
        failed("ValueError", CLOSED),
        failed("KeyError", "'peer'"),
        failed("DistNetworkError", "The server socket has failed to listen: code: -98, name: EADDRINUSE, timeout"),
        failed("DistBackendError", "NCCL WARN Duplicate GPU detected"),
        # The user's own connection was lost, or timed out with a call in flight: nothing of torch is in the traceback.
        Rank(0).calls("all_reduce", line(5)).raises("ConnectionResetError", RESET, line(9), URLOPEN),
        Rank(0).issues("all_reduce", line(5)).raises("TimeoutError", "timed out", line(9), URLOPEN),
        Rank(0).calls("all_reduce", state=CallState.FAILED).finishes(),
        Rank(0).calls("all_reduce", state=CallState.FAILED).exits(1),
        Rank(0).calls("all_reduce", state=CallState.FAILED).dies(-9),
        Rank(0).waits("all_reduce"),
    ],
)
def test_what_concerns_the_rank_itself_is_no_consequence(rank):
    assert not is_consequence(rank.record)


def test_a_stop_at_the_fence():
    assert is_fence_stop(Ending("raised", 1, "CollectiveMismatch", "collective mismatch"))
    assert not is_fence_stop(Ending("raised", 1, "ValueError", "CollectiveMismatch"))
    assert not is_fence_stop(None)


# -- findings


def test_ranks_that_ended_well_are_no_finding():
    assert findings(Rank(0).finishes(), Rank(1).exits(0), Rank(2).computes()) == []


def test_a_rank_that_raised_while_others_wait_for_it():
    (found,) = findings(
        Rank(0, 3).calls("barrier", line(4)).waits("all_reduce", line(5)),
        Rank(1, 3).calls("barrier", line(4)).raises("ValueError", "bad record\nin file x", line(9)),
        Rank(2, 3).calls("barrier", line(4)).waits("all_reduce", line(5)),
    )
    assert (found.code, found.name) == ("DDP312", "rank-raised")
    assert found.culprits == (1,)
    assert found.collective.op == "all_reduce"
    assert found.where[0] == (1, line(9))
    assert "ValueError: bad record" in found.summary
    assert "in file x" not in found.summary


def test_a_rank_that_raised_before_its_first_call():
    (found,) = findings(
        Rank(0, 3).waits("all_reduce", line(5)), Rank(1, 3).raises("ValueError", "bad"), Rank(2, 3).waits("all_reduce")
    )
    assert (found.culprits, found.waiting) == ((1,), (0, 2))
    assert found.where == ((0, line(5)),)


@pytest.mark.parametrize(
    ("code", "words"),
    [(-9, ("SIGKILL", "memory")), (-11, ("SIGSEGV", "native code")), (-6, ("SIGABRT",)), (7, ("status 7",))],
)
def test_a_process_that_is_gone(code, words):
    (found,) = findings(Rank(0, 2).waits("barrier", line(5)), Rank(1, 2).calls("all_gather", line(3)).dies(code))
    assert (found.code, found.name, found.culprits) == ("DDP311", "rank-dead", (1,))
    text = " ".join((found.summary, *found.evidence, found.remedy))
    assert all(word in text for word in words)
    assert "all_gather #1" in text


def test_a_signal_without_a_name_is_given_by_its_number():
    (found,) = findings(Rank(0).dies(-250))
    assert "signal 250" in found.summary


@pytest.mark.parametrize(
    ("code", "at", "asked", "what"),
    [
        (3, line(9), None, "called sys.exit(3)"),
        (255, line(9), -1, "called sys.exit(-1)"),
        (3, NO_SITE, None, "exited with status 3"),
        (255, NO_SITE, -1, "exited with status 255, which is what the system keeps of -1"),
    ],
)
def test_a_rank_that_left_with_a_status(code, at, asked, what):
    (found,) = findings(Rank(0, 2).waits("barrier", line(5)), Rank(1, 2).exits(code, at, asked))
    assert (found.code, found.summary) == ("DDP312", f"Rank 1 {what}; rank 0 waits for it.")


def test_where_nobody_waits_the_log_says_why_a_rank_exited():
    (found,) = findings(*(Rank(rank, 2).exits(3) for rank in range(2)))
    assert found.remedy == "Look at the end of this rank's log."


def test_ranks_that_lost_a_peer_are_waiting_ranks_not_culprits():
    (found,) = findings(
        lost_peer(0, 3), Rank(1, 3).raises("ValueError", "bad", line(9)), Rank(2, 3).waits("all_reduce", line(5))
    )
    assert found.culprits == (1,)
    assert found.waiting == (0, 2)
    assert any("secondary failure" in text for text in found.evidence)


def test_lost_peers_alone_are_no_root_cause():
    assert findings(lost_peer(0, 2), lost_peer(1, 2)) == []


def test_a_stop_at_the_fence_is_told_by_the_mismatch():
    assert findings(Rank(0).raises("CollectiveMismatch", "collective mismatch", line(5))) == []


def test_the_same_failure_on_several_ranks_is_one_finding():
    (found,) = findings(*(Rank(r).raises("ValueError", f"bad batch {r}", line(9)) for r in range(4)))
    assert found.culprits == (0, 1, 2, 3)
    assert found.waiting == ()


def test_the_earliest_of_several_failures_comes_first():
    late = Rank(0, 2).calls("barrier").calls("barrier").raises("KeyError", "'x'", line(12))
    early = Rank(1, 2).raises("ValueError", "bad", line(9))
    assert [found.culprits for found in findings(late, early)] == [(1,), (0,)]


def test_an_exception_without_words_or_frames():
    (found,) = findings(Rank(0).raises("AssertionError"))
    assert found.summary == "Rank 0 raised AssertionError."
    assert found.where == ()
    blank = findings(Rank(0).raises("AssertionError", "\n \n"))
    assert blank[0].summary == "Rank 0 raised AssertionError."


def test_an_endless_message_is_cut():
    (found,) = findings(Rank(0).raises("ValueError", "x" * 100_000))
    assert len(found.summary) < 400


def handled(rank, exception, handler=line(40), raised=line(12)):
    place = {"file": raised.file, "line": raised.line, "function": raised.function}
    return rank.event("exception handled", handler, exception=exception, raised=place)


def test_what_handlers_of_some_ranks_caught_before():
    """What all of them caught, such as a missing optional package, explains nothing."""
    ranks = [handled(Rank(number, 2), "ImportError", line(2)) for number in range(2)]
    handled(ranks[1], "IndexError")
    for rank in ranks:
        rank.raises("ZeroDivisionError", "division by zero", line(33))
    (found,) = diagnose(record(*ranks)).findings
    assert (found.code, found.culprits) == ("DDP312", (0, 1))
    assert found.evidence[1:] == (f"Before, rank 1 handled IndexError at {line(40)}, raised at {line(12)}.",)
    assert "follow from it" not in found.remedy  # no rank waits for another


def test_a_refused_call_that_the_script_caught():
    """What it raised later follows from that: the calls that did not match come first."""
    ranks = [Rank(number, 2).calls("all_reduce", line(18)) for number in range(2)]
    handled(ranks[1], "IndexError").calls("barrier", line(34), state=CallState.REFUSED)
    ranks[0].calls("all_reduce", line(18), state=CallState.REFUSED)
    handled(ranks[0], "CollectiveMismatch")
    for rank in ranks:
        rank.raises("ZeroDivisionError", "division by zero", line(33))
    found = diagnose(record(*ranks)).findings
    assert "DDP312" not in [one.code for one in found]
    assert found[0].collective.op in ("all_reduce", "barrier")


@pytest.mark.parametrize(
    ("timeout_s", "device", "code", "found"),
    [
        (0.001, "npu", -signal.SIGABRT, ("DDP301", (1,))),
        (0.001, "cpu", -signal.SIGABRT, ("DDP311", (0,))),
        (0.001, "npu", -signal.SIGSEGV, ("DDP311", (0,))),
        (60.0, "npu", -signal.SIGABRT, ("DDP311", (0,))),
        (None, "npu", -signal.SIGABRT, ("DDP311", (0,))),
    ],
)
def test_a_rank_that_a_watchdog_ends_for_a_time_out_waited_for_another_one(timeout_s, device, code, found):
    """NCCL's aborts the process: that is no crash in native code."""
    own = (
        Rank(0, 2).joined(timeout_s=timeout_s).calls("all_reduce", line(5)).issues("all_reduce", line(6), device=device)
    )
    other = Rank(1, 2).joined(timeout_s=timeout_s).calls("all_reduce", line(5))
    errors, _ = diagnosed(
        own.calls("all_reduce", line(7), state=CallState.ISSUED, device=device).dies(code), other.finishes()
    )
    assert errors[0] == found


def test_a_rank_that_a_launcher_ends_after_a_watchdog_ended_another_one_is_no_root():
    own = Rank(0, 2).joined(timeout_s=0.001).calls("all_reduce", line(5)).issues("all_reduce", line(6), device="npu")
    own = own.calls("all_reduce", line(7), state=CallState.ISSUED, device="npu").dies(-signal.SIGABRT)
    other = Rank(1, 2).joined(timeout_s=0.001).calls("all_reduce", line(5))
    for _ in range(20):
        other.passes(1, "later")
    errors, _ = diagnosed(own, other.dies(-signal.SIGTERM))
    assert errors[0] == ("DDP301", (1,))


@pytest.mark.parametrize(("later_s", "codes"), [(1.5, ["DDP312"]), (0.2, ["DDP312", "DDP311"])])
def test_ranks_that_a_launcher_ends_after_a_failure_are_named_beside_it(later_s, codes):
    """Where it is not known which came first they have a finding of their own: the failure may follow from their end."""
    others = [Rank(rank, 3).calls("barrier", line(4)).dies(-signal.SIGTERM) for rank in (1, 2)]
    taken = record(Rank(0, 3).raises("KeyError", "'a'", line(5)), *others)
    at_ns = taken.ranks[0].ending.at_ns + int(later_s * 1e9)
    then = {rank: replace(taken.ranks[rank], ending=replace(taken.ranks[rank].ending, at_ns=at_ns)) for rank in (1, 2)}
    found = diagnose(replace(taken, ranks={**taken.ranks, **then})).findings
    assert [one.code for one in found] == codes and found[0].culprits == (0,)
    assert ("Ranks 1 and 2 were ended (SIGTERM) after that." in found[0].evidence) == (len(codes) == 1)


def test_of_messages_that_differ_the_title_names_none():
    (one,) = findings(*(Rank(rank, 3).raises("KeyError", f"'a{rank}'", line(5)) for rank in range(3)))
    assert one.summary == "Ranks 0, 1 and 2 raised KeyError." and "raised KeyError: 'a2'" in " ".join(one.evidence)
    (one,) = findings(*(Rank(rank, 3).raises("KeyError", "'a'", line(5)) for rank in range(3)))
    assert one.summary == "Ranks 0, 1 and 2 raised KeyError: 'a'."


def test_a_script_that_python_cannot_read():
    (one,) = findings(*(Rank(rank, 2).raises("SyntaxError", "invalid syntax", line(5)) for rank in range(2)))
    assert one.remedy.startswith("Correct that line")
