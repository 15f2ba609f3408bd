import json

import pytest

from ddpnb.reports import ras
from ddpnb.reports.facts import CallSeen, Identity, Message, Progress, Speaker, Unknown, Waiting, WorldSize
from tests.ranks.nccl_ras import job
from tests.reports.reading import ANSI, of, read

_HEAD = (
    "NCCL version 2.26.2 compiled with CUDA 12.6\nCUDA runtime version 12060, driver version 12060\n\nJob summary\n===========\n\n"
    "  Nodes  Processes         GPUs  Processes     GPUs\n(total)   per node  per process    (total)  (total)\n"
    "      1          8            1          8        8\n\nCommunicators... (0.00s)\n=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         1         8         8         8   RUNNING  MISMATCH\n\nErrors\n======\n\n"
)
_COUNTS = (
    "Warnings\n========\n\n#0-0 (fa93daea854b060b) MISMATCH\n  Communicator ranks have different {} operation counts\n"
    "  6 ranks have launched up to operation 641\n  2 ranks have launched up to operation 640\n"
    "  Rank 3 -- GPU 3 managed by process 323 on node 10.1.1.4\n  Rank 5 -- GPU 5 managed by process 325 on node 10.1.1.4\n\n"
)


def test_counts_of_an_operation():
    for text in (_HEAD + _COUNTS.format("AllGather"), ANSI.format(_HEAD + _COUNTS.format("AllGather"))):
        facts = read(ras, text)
        assert of(WorldSize, facts) == [WorldSize(8)]
        assert of(Identity, facts) == [Identity(Speaker(3, 323, "10.1.1.4")), Identity(Speaker(5, 325, "10.1.1.4"))]
        assert {fact.speaker.rank: fact.enqueued for fact in of(Progress, facts)} == {
            rank: 640 if rank in (3, 5) else 641 for rank in range(8)
        }
        assert {(call.speaker.rank, call.seq, call.signature.op) for call in of(CallSeen, facts)} == {
            (rank, 641, "all_gather") for rank in (0, 1, 2, 4, 6, 7)
        }
        assert len(of(Unknown, facts)) == 1


def test_a_communicator_of_a_part_of_unequal_nodes_has_ranks_of_its_own():
    text = (
        "Job summary\n===========\n\n  Nodes  Processes         GPUs\n          per node  per process\n"
        "      1          8            1\n      1          2            1\n\n"
        "  Nodes  Processes         GPUs\n(total)    (total)      (total)\n      2         10           10\n\n"
        "    0         1         1         1         2         1   RUNNING  INCOMPLETE\n\n"
        "#0-0 (b339) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        "  Rank 1 -- GPU 0 managed by process 4711 on node 10.1.1.4\n"
    )
    facts = read(ras, text)
    assert of(WorldSize, facts) == [WorldSize(10)]
    assert [message.speaker.rank for message in of(Message, facts)] == [None]


def test_counts_of_all_operations_in_nccl_2_24():
    facts = read(ras, _HEAD + _COUNTS.format("collective"))
    assert {call.signature.op for call in of(CallSeen, facts)} == {"?"}
    assert {fact.enqueued for fact in of(Progress, facts)} == {640, 641}


def test_a_single_rank_that_is_behind():
    text = _COUNTS.format("AllReduce").partition("  2 ranks")[0] + (
        "  Rank 3 has launched up to operation 12 -- GPU 3 managed by process 323 on node n1\n"
        "  Rank 4 has not launched any operations -- GPU 4 managed by process 324 on node n1\n"
    )
    progress = {fact.speaker.rank: fact.enqueued for fact in of(Progress, read(ras, _HEAD + text))}
    assert (progress[3], progress[4], progress[0]) == (12, 0, 641)


def test_ranks_that_do_not_answer():
    text = (
        "INCOMPLETE\n  Missing communicator data from 1 job process\n  Process 3487 on node 10.1.1.4 managing GPU 5\n\n"
        "#0-0 (cf264af53edbe986) INCOMPLETE\n  Missing communicator data from 1 rank\n"
    )
    new = "  Rank 5 -- GPU 5 managed by process 3487 on node 10.1.1.4\n\nWarnings\n========\n\n"
    for more in ("  The missing rank: 5\n\n", new):
        (message,) = of(Message, read(ras, _HEAD + text + more))
        assert message.speaker.rank == 5
    facts = read(ras, _HEAD + text + new)
    assert of(Identity, facts) == [Identity(Speaker(5, 3487, "10.1.1.4"))]


def _json(counts, missing=()):
    ranks = [
        {"rank": rank, "host": "n1", "pid": 100 + rank, "status": {"init_state": 0, "async_error": 0}, "collective_counts": {
            "Broadcast": 2, "AllReduce": count}}
        for rank, count in counts.items()
    ]  # fmt: skip
    absent = [{"rank": rank, "host": "n1", "pid": 100 + rank, "status": {"unresponsive": True}} for rank in missing]
    comm = {"hash": "0xae94", "size": len(ranks) + len(absent), "ranks": ranks, "missing_ranks": absent}
    return json.dumps({"nccl_version": "2.29.1", "communicators_count": 1, "communicators": [comm]}, indent=2)


def test_json():
    facts = read(ras, _json({0: 57, 1: 57, 2: 56}))
    assert {fact.speaker.rank: fact.enqueued for fact in of(Progress, facts)} == {0: 59, 1: 59, 2: 58}
    assert {(call.speaker.rank, call.seq, call.signature.op) for call in of(CallSeen, facts)} == {
        (0, 59, "all_reduce"), (1, 59, "all_reduce")
    }  # fmt: skip
    assert of(WorldSize, facts) == [WorldSize(3)]


def test_json_with_missing_ranks():
    facts = read(ras, "$ ncclras -f json\n" + _json({0: 57, 1: 57}, (2,)))
    assert [fact.speaker for fact in of(Message, facts)] == [Speaker(2, 102, "n1")]
    assert not of(CallSeen, facts)


def test_the_comma_that_nccl_2_28_9_leaves_out():
    whole = job({0: 57, 1: 57}, (2, 3))
    broken = whole.replace('"nvml_dev": 2,', '"nvml_dev": 2').replace('"nvml_dev": 3,', '"nvml_dev": 3')
    assert broken != whole
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(broken)
    assert read(ras, broken) == read(ras, whole)
    assert [fact.speaker.rank for fact in of(Message, read(ras, broken))] == [2, 3]


def test_states_of_ranks_in_json():
    whole = json.loads(job({0: 0, 1: 0, 2: 0}, (3, 4)))
    (communicator,) = whole["communicators"]
    for rank, name, value in ((0, "init_state", 7), (1, "async_error", 6), (2, "abort_flag", True)):
        communicator["ranks"][rank]["status"][name] = value
    communicator["missing_ranks"][0]["status"] = {"unresponsive": False, "considered_dead": False}
    communicator["missing_ranks"][1] |= {"pid": -1, "host": "unknown"}
    facts = read(ras, json.dumps(whole))
    assert [(fact.speaker.rank, fact.text) for fact in of(Message, facts)] == [
        (4, "NCCL RAS: rank 4 does not answer: its process is stopped, has ended, or its machine is unreachable."),
        (1, "NCCL RAS: rank 1 reported Remote process error (NCCL error 6)."),
        (2, "NCCL RAS: rank 2 reported that its communicator was aborted."),
    ]
    assert [(fact.speaker.rank, fact.function, fact.missing) for fact in of(Waiting, facts)] == [
        (0, "ncclCommInitRank", (3, 4))
    ]
    assert [fact.speaker.rank for fact in of(Identity, facts)] == [0, 1, 2, 3]


def test_communicators_of_parts_of_a_job_have_ranks_of_their_own():
    """The largest communicator was taken for that of all ranks: here rank 0 was two processes."""
    first, other = (json.loads(job({0: 5, 1: 4}, pids=pids)) for pids in ((11, 12), (13, 14)))
    other["communicators"][0]["hash"] = "0x2"
    first["communicators"] += other["communicators"]
    facts = read(ras, json.dumps(first))
    assert of(WorldSize, facts) == [WorldSize(4)] and not of(Identity, facts)
    assert {fact.speaker for fact in of(CallSeen, facts)} == {
        Speaker(None, 11, "10.0.0.1"), Speaker(None, 13, "10.0.0.1")
    }  # fmt: skip


def test_counts_that_do_not_change():
    first, later = job({0: 57, 1: 56}), job({0: 58, 1: 56})
    assert ras.unchanged(first, first) and not ras.unchanged(first, later)
    assert not ras.unchanged("", "") and not ras.unchanged(first, "")
    text = _HEAD + _COUNTS.format("AllGather")
    assert ras.unchanged(text, text) and not ras.unchanged(text, text.replace("641", "642"))


def test_a_job_without_differences():
    facts = read(ras, _HEAD)
    assert of(WorldSize, facts) == [WorldSize(8)]
    assert not of(CallSeen, facts)


def test_damaged_texts():
    assert read(ras, '{"communicators": [{"ranks": [{}]}]}') == []
    assert read(ras, _json({0: 1})[:-40]) == []
    assert read(ras, "#0-0 (ab) MISMATCH\n" * 1000 + "  30 ranks have launched up to operation 1\n")
    assert read(ras, "INCOMPLETE") == []
