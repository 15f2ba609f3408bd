import time

import pytest

from ddpnb.recording.calls import CallState
from ddpnb.reports import watchdog
from ddpnb.reports.facts import CallSeen, GroupName, Members, Message, Progress, Speaker, Unknown, Waiting, WorldSize
from tests.reports.reading import ANSI, NOISE, of, read


def timeout(rank, *, seq=57, work="NumelIn=1024, NumelOut=1024, ", op="ALLREDUCE", prefix="", number="SeqNum={seq}, "):
    return (
        f"{prefix}[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL({number.format(seq=seq)}OpType={op}, "
        f"{work}Timeout(ms)=1800000) ran for 1800501 milliseconds before timing out.\n"
    )


@pytest.mark.parametrize(
    ("text", "group"),
    [
        (
            timeout(3, work="TensorShape=[1024], ", prefix="[E ProcessGroupNCCL.cpp:821] "),
            GroupName(rank=3),
        ),  # 1.13, 2.0
        (timeout(3, work="", prefix="[E ProcessGroupNCCL.cpp:458] "), GroupName(rank=3)),
        (timeout(3, prefix="[rank3]:[E ProcessGroupNCCL.cpp:523] "), GroupName(rank=3)),  # 2.2
        (
            timeout(3, prefix="[rank3]:[E1123 01:02:03.000000001 ProcessGroupNCCL.cpp:607] ")
            + "[rank3]:[E1123 x ProcessGroupNCCL.cpp:1664] [PG 0 Rank 3] Exception (either an error or timeout) detected by "
            "watchdog at work: 57, last enqueued NCCL work: 60, last completed NCCL work: 56.\n",
            GroupName("", "default_pg", 3),
        ),
        (
            timeout(3, prefix="[rank3]:[E1123 01:02:03.000000001 ProcessGroupNCCL.cpp:632] ")
            + "[rank3]:[E1123 x ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank 3]  failure detected by watchdog "
            "at work sequence id: 57 PG status: last enqueued work: 60, last completed work: 56\n",
            GroupName("", "default_pg", 3),
        ),
        (
            "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG 0 Rank 3] Process group "
            "watchdog thread terminated with exception: " + timeout(3),
            GroupName("", "default_pg", 3),
        ),
    ],
)
def test_the_call_that_timed_out_in_all_versions(text, group):
    for shown in (text, NOISE + text + NOISE, "".join(ANSI.format(line) + "\n" for line in text.splitlines())):
        (call,) = of(CallSeen, read(watchdog, shown))
        assert (call.speaker.rank, call.group, call.seq, call.signature.op) == (3, group, 57, "all_reduce")
        assert (call.state, call.waited_s, call.timeout_s) == (CallState.WAITING, 1800.501, 1800)
        assert call.signature.shapes in (((1024,),), ())


def test_versions_without_numbers():
    (call,) = of(CallSeen, read(watchdog, timeout(1, number="")))
    assert (call.seq, call.signature.op) == (0, "all_reduce")


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("_ALLGATHER_BASE", "all_gather_into_tensor"),
        ("_REDUCE_SCATTER_BASE", "reduce_scatter_tensor"),
        ("ALLTOALL_BASE", "all_to_all_single"),
        ("BROADCAST", "broadcast"),
        ("BARRIER", "barrier"),
        ("UNKNOWN", "?"),
    ],
)
def test_operations(name, op):
    assert of(CallSeen, read(watchdog, timeout(1, op=name)))[0].signature.op == op


def test_a_subgroup_has_ranks_of_its_own():
    text = (
        timeout(1, prefix="[rank5]:[E318 x.cpp:616] ")
        + (
            "[rank5]:[E318 x.cpp:1785] [PG ID 2 PG GUID 9(mesh_tp) Rank 1] Exception (either an error or timeout) detected by watchdog "
            "at work: 57, last enqueued NCCL work: 60, last completed NCCL work: 56.\n"
            "[rank5]:[E318 x.cpp:1834] [PG ID 2 PG GUID 9(mesh_tp) Rank 1] Timeout at NCCL work: 57, last enqueued NCCL work: 60, last "
            "completed NCCL work: 56.\n"
            "[rank5]:[E318 x.cpp:1834] [PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal due to a collective timeout from "
            "this local rank. Last enqueued NCCL work: 7, last completed NCCL work: 7.\n"
            "  what():  [PG ID 2 PG GUID 9(mesh_tp) Rank 1] Process group watchdog thread terminated with exception: "
        )
        + timeout(1)
    )
    facts = read(watchdog, text)
    (call,) = of(CallSeen, facts)
    assert (call.speaker, call.group) == (Speaker(5), GroupName("9", "mesh_tp", 1))
    assert of(Progress, facts) == [
        Progress(Speaker(5), GroupName("9", "mesh_tp", 1), 60, -1, 56),
        Progress(Speaker(5), GroupName("", "default_pg", 5), 7, -1, 7),
    ]


def test_a_subgroup_that_no_line_names():
    (call,) = of(CallSeen, read(watchdog, timeout(1, prefix="[rank5]:[E318 x.cpp:616] ")))
    assert (call.speaker, call.group) == (Speaker(5), GroupName("?", rank=1))


def _in_group(rank, place, op="ALLREDUCE", work="NumelIn=8, NumelOut=8, "):
    return timeout(place, op=op, work=work, prefix=f"[rank{rank}]:[E x.cpp:1] ") + (
        f"[rank{rank}]:[E x.cpp:2] [PG ID 2 PG GUID 9(mesh_tp) Rank {place}]  failure detected by watchdog at work sequence id: 57 PG "
        "status: last enqueued work: 57, last completed work: 56\n"
    )


def test_the_members_of_a_group_are_inferred_from_places_at_equal_distances():
    facts = read(watchdog, _in_group(4, 0) + _in_group(6, 2) + _in_group(7, 3))
    assert [fact.group.ranks for fact in of(Members, facts)] == [(4, 5, 6, 7)]
    assert len(of(Unknown, facts)) == 1
    gather = {"op": "_ALLGATHER_BASE", "work": "NumelIn=8, NumelOut=32, "}
    facts = read(watchdog, _in_group(1, 0, **gather) + _in_group(9, 1, **gather))
    assert [fact.group.ranks for fact in of(Members, facts)] == [(1, 9, 17, 25)]


@pytest.mark.parametrize(
    "places", [((4, 0),), ((4, 0), (5, 1)), ((4, 0), (6, 1), (7, 3)), ((7, 0), (4, 2)), ((0, 2), (1, 3))]
)
def test_members_that_cannot_be_inferred(places):
    assert not of(Members, read(watchdog, "".join(_in_group(rank, place) for rank, place in places)))


def test_groups_of_two_digits_and_of_two_dimensions():
    text = "".join(
        timeout(n, seq=seq, prefix="[rank7]:[E x.cpp:1] ")
        + f"[rank7]:[E x.cpp:2] [PG ID {pg} PG GUID {guid}(mesh_{pg}) Rank {n}]  failure detected by watchdog at work sequence id: "
        f"{seq} PG status: last enqueued work: {seq}, last completed work: {seq - 1}\n"
        for n, seq, pg, guid in ((1, 10, 3, 33), (3, 20, 4, 44))
    )
    calls = of(CallSeen, read(watchdog, text))
    assert [(call.group.name, call.group.rank, call.seq) for call in calls] == [("33", 1, 10), ("44", 3, 20)]


def test_interleaved_ranks():
    text = "".join(timeout(rank, prefix=f"[rank{rank}]:[E x.cpp:1] ") for rank in (0, 2, 3)) + "".join(
        f"[rank{rank}]:[E x] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 57 PG "
        "status: last enqueued work: 60, last completed work: 56\n"
        for rank in (3, 0, 2)
    )
    assert [call.speaker.rank for call in of(CallSeen, read(watchdog, text))] == [0, 2, 3]
    assert {fact.speaker.rank for fact in of(Progress, read(watchdog, text))} == {0, 2, 3}


@pytest.mark.parametrize("width", range(73, 160, 3))
def test_status_lines_that_a_terminal_wrapped(width):
    line = (
        "[rank6]:[E429 13:55:49.384372190 x.cpp:1743] [PG ID 2 PG GUID 9(mesh_tp) Rank 1] Received a dump signal due to a collective "
        "timeout from this local rank and we will try our best to dump the debug info. Last enqueued NCCL work: 60, last completed "
        "NCCL work: 56."
    )
    wrapped = "\n".join(line[at : at + width].ljust(width) for at in range(0, len(line), width))
    found = of(Progress, read(watchdog, wrapped))
    assert found in ([], [Progress(Speaker(6), GroupName("9", "mesh_tp", 1), 60, -1, 56)])


def test_the_names_of_groups_in_torch_2_4():
    text = "[rank7]:[E909 x] [PG 3 (mesh_tp) Rank 2] Timeout at NCCL work: 7, last enqueued NCCL work: 9, last completed NCCL work: 6."
    assert of(Progress, read(watchdog, text)) == [Progress(Speaker(7), GroupName("3", "mesh_tp", 2), 9, -1, 6)]


def test_later_calls_of_a_rank_were_enqueued():
    text = "".join(timeout(0, seq=seq, prefix="[E x.cpp:458] ") for seq in (59, 57, 60)) + timeout(
        1, prefix="[E x.cpp:458] "
    )
    states = {(call.speaker.rank, call.seq): call.state for call in of(CallSeen, read(watchdog, text))}
    waiting = CallState.WAITING
    assert states == {(0, 59): CallState.ISSUED, (0, 57): waiting, (0, 60): CallState.ISSUED, (1, 57): waiting}


@pytest.mark.parametrize("width", range(73, 160, 3))
def test_lines_that_a_terminal_wrapped(width):
    line = timeout(2, prefix="[rank2]:[E424 01:11:21 x.cpp:629] ").strip()
    wrapped = "\n".join(line[at : at + width] for at in range(0, len(line), width))
    (call,) = of(CallSeen, read(watchdog, wrapped))
    assert (call.seq, call.signature.op, call.signature.shapes, call.waited_s) == (
        57,
        "all_reduce",
        ((1024,),),
        1800.501,
    )


def test_a_rank_that_is_behind_says_how_far_it_came():
    text = (
        "[rank1]:[E709 x] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective timeout from rank 0 and "
        "we will try our best to dump the debug info. Last enqueued NCCL work: 56, last completed NCCL work: -1.This is most "
    )
    (progress,) = of(Progress, read(watchdog, text))
    assert progress == Progress(Speaker(1), GroupName("", "default_pg", 1), 56, -1, 0)


def test_the_stack_of_the_call():
    text = timeout(3, prefix="[rank3]:[E x] ") + (
        "[rank3]:[E x] Stack trace of the failed collective: \n"
        "#0 all_reduce from /x/site-packages/torch/distributed/distributed_c10d.py:3174\n#1 step from /home/u/train.py:57\n"
        "#2 <module> from /home/u/train.py:90\n\n"
    )
    (call,) = of(CallSeen, read(watchdog, text))
    assert (call.site.file, call.site.line, call.site.function) == ("/home/u/train.py", 57, "step")
    assert call.stack is not None
    assert [frame.line for frame in call.stack.frames] == [90, 57, 3174]


def test_errors_that_are_no_time_outs():
    text = (
        "[E x.cpp:1182] [Rank 4] NCCL watchdog thread terminated with exception: NCCL error: remote process exited or there was a "
        "network error, NCCL version 2.18.1\nncclRemoteError: A call failed\nException raised from checkForNCCLErrors\n"
        "[rank6]:[F x] [PG ID 0 PG GUID 0(default_pg) Rank 6] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making\n"
    )
    first, second = of(Message, read(watchdog, text))
    assert (first.speaker.rank, second.speaker.rank) == (4, 6)
    assert "ncclRemoteError" in first.text
    assert "checkForNCCLErrors" not in first.text


def test_what_a_watchdog_says_otherwise_is_no_call():
    assert not of(
        CallSeen, read(watchdog, "INFO Work WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=1) was enqueued\n")
    )
    assert not read(watchdog, "WorkNCCL(" * 1000 + "last enqueued work: x" + NOISE)


@pytest.mark.parametrize(
    "text",
    [
        "WorkNCCL(" * 200_000,
        "[PG ID " * 500_000,
        "last enqueued work: " * 200_000,
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" + "1" * 1_000_000,
        "Stack trace of the failed collective:\n" * 20_000,
    ],
)
def test_hostile_lines_take_no_time(text):
    start = time.process_time()
    read(watchdog, text)
    assert time.process_time() - start < 10


def test_many_ranks_take_no_time():
    text = "".join(timeout(rank, prefix=f"[rank{rank}]:[E x.cpp:1] ") for rank in range(4096)) * 2
    start = time.process_time()
    assert len(of(CallSeen, read(watchdog, text))) == 4096
    assert time.process_time() - start < 10


_GATHER = (
    "[rank{0}]:[E1112 23:34:28.6 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
    "OpType=_ALLGATHER_BASE, NumelIn=5, NumelOut=20, Timeout(ms)=1000) ran for 1004 milliseconds before timing out.\n"
)
_STATUS_OF = (
    "[rank{0}]:[E1112 23:34:28.7 ProcessGroupNCCL.cpp:1785] [PG ID {1} PG GUID {1}{2} Rank {0}] Exception (either an error or timeout) "
    "detected by watchdog at work: 9, last enqueued NCCL work: 9, last completed NCCL work: 8.\n"
)


def test_what_is_inferred_of_groups_that_a_log_does_not_name_is_said():
    named = read(watchdog, _GATHER.format(0) + _STATUS_OF.format(0, 0, "(default_pg)"))
    assert of(WorldSize, named) == [WorldSize(4)] and not of(Unknown, named)
    unnamed = read(watchdog, _GATHER.format(0))
    assert of(WorldSize, unnamed) == [WorldSize(4)]
    assert "names no group for calls of 4 ranks" in of(Unknown, unnamed)[0].text
    adopted = read(watchdog, _GATHER.format(0) + _STATUS_OF.format(0, 3, "") + _GATHER.format(2))
    assert {call.group.name for call in of(CallSeen, adopted)} == {"3"}
    assert any("others made the same call" in one.text for one in of(Unknown, adopted))


def test_a_call_of_the_default_group_stays_there_beside_the_same_of_another():
    text = _GATHER.format(0) + _STATUS_OF.format(0, 3, "") + _GATHER.format(2) + _STATUS_OF.format(2, 0, "(default_pg)")
    assert {call.speaker.rank: call.group.name for call in of(CallSeen, read(watchdog, text))} == {0: "3", 2: ""}


def test_sizes_of_coalesced_calls_are_not_compared():
    """Of several calls the size is that of one, and of point-to-point alone it is -1, written as unsigned."""
    none = f"NumelIn={2**64 - 1}, NumelOut={2**64 - 1}, "
    for work in (none, "NumelIn=56320, NumelOut=450560, "):
        (call,) = of(CallSeen, read(watchdog, timeout(3, op="COALESCED", work=work)))
        assert (call.signature.op, call.signature.shapes, call.seq) == ("coalesced", (), 57)


def test_ranks_whose_call_the_log_does_not_show():
    failed = "[rank4]:[E602 x.cpp:684] [Rank 4] Some NCCL operations have failed or timed out. Due to the asynchronous nature\n"
    dump = "[rank0]:[E x] [PG ID 0 PG GUID 0 Rank 0] Received a dump signal due to a collective timeout from  rank 13 and we will\n"
    assert of(Waiting, read(watchdog, failed + dump)) == [Waiting(Speaker(4), "call"), Waiting(Speaker(13), "call")]
    cut = "[rank4]:[E x] [PG ID 1 PG GUID 1 Rank 4] Process group watchdog thread terminated with exception: [Rank 4] Watchdog"
    assert not of(Message, read(watchdog, failed + cut))
    assert not of(Waiting, read(watchdog, timeout(4, prefix="[rank4]:[E x] ") + failed))


@pytest.mark.parametrize(
    "message",
    [
        "[Rank 1] Some NCCL operations have failed or timed out. Due to the asynchronous nature\n",
        "[Rank 1] To avoid data inconsistency, we are taking the entire process down.\n",
        "[PG ID 4 PG GUID 20(mesh_tp) Rank 1] Received a dump signal due to a collective timeout from this local rank and we\n",
    ],
)
def test_the_rank_in_brackets_is_that_in_the_group(message):
    """The prefix of the line names the rank of the process: another with the rank in brackets need not occur."""
    before = "[rank8]:[E602 x.cpp:684] [Rank 0] Some NCCL operations have failed or timed out. Due to\n"
    found = of(Waiting, read(watchdog, before + "[rank9]:[E602 x.cpp:684] " + message))
    assert found == [Waiting(Speaker(8), "call"), Waiting(Speaker(9), "call")]
    assert of(Waiting, read(watchdog, "[E602 x.cpp:684] " + message)) in ([], [Waiting(Speaker(1), "call")])


def test_a_rank_that_lost_the_store():
    text = (
        '[rank1]:[W1229 22:06:38.480 x.cpp:1662] [PG ID 0 PG GUID 0 Rank 1] Failed to check the "should dump" flag on TCPStore, '
        "(maybe TCPStore server has shut down too early), with error: Broken pipe\n"
    )
    assert of(Waiting, read(watchdog, text + text)) == [Waiting(Speaker(1), "store")]


NCCL2 = (
    "[E1126 06:05:00.123456789 WorkNCCL.cpp:303] [TC][rank={rank}][name={name}] Operation timed out after 600012 ms\n"
)
ENDS = "[TC][rank=1][name=0] Aborting process on rank 1 due to timeout - timeout watchdog detected operation timeout\n"


def test_nccl2_names_no_call():
    """Texts of torch 2.14.1 and 2.15: the rank in brackets is global in the default group alone."""
    assert of(Waiting, read(watchdog, NCCL2.format(rank=3, name=0))) == [Waiting(Speaker(3), "call")]
    assert of(Waiting, read(watchdog, NCCL2.format(rank=3, name=7))) == []
    named = "[rank5]:" + NCCL2.format(rank=3, name=7) + "[rank5]:[E x] " + ENDS
    assert of(Waiting, read(watchdog, named)) == [Waiting(Speaker(5), "call")]
