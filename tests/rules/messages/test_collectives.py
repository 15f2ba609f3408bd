from __future__ import annotations

import pytest

from ddpnb.rules.messages.explain import explain, explain_text
from tests.rules.messages.told import told

GLOO = "/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/"
PEER_GONE = (
    f"[{GLOO}pair.cc:553] Connection closed by peer [127.0.0.1]:12724. This is typically caused by a remote worker crashing. "
    "Check the logs of the remote worker before reporting an error. GLHF!"
)
PEER_RESET = f"[{GLOO}pair.cc:537] Read error [127.0.0.1]:23218: Connection reset by peer."
LATE = f"[{GLOO}unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete"
OPTIONS = (
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), requires_grad=false "
    "(default), pinned_memory=false (default), memory_format=(nullopt))"
)


def fingerprint(op: str, shape: str = "3", dtype: str = "Float", seq: int | None = 0) -> str:
    number = f"SequenceNumber={seq}, " if seq is not None else ""
    return f"CollectiveFingerPrint({number}OpType={op}, TensorShape=[{shape}], TensorDtypes={dtype}, {OPTIONS})"


def mismatch(one: str, other: str, differ: str = "", ranks: tuple[int, int] = (0, 1)) -> str:
    end = f"Collectives differ in the following aspects:  {differ}" if differ else ""
    return (
        f"Detected mismatch between collectives on ranks. Rank {ranks[0]} is running collective: {one}, but Rank {ranks[1]} is "
        f"running collective: {other}.{end}"
    )


# -- monitored_barrier


@pytest.mark.parametrize(
    ("message", "ranks"),
    [
        (f"[Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms\n Original exception: \n{LATE}", (1,)),
        ("[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 3000 ms", (1, 2)),
        ("[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 3000 ms", (1,)),
        ("[Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 3000 ms", (4, 5, 6, 7)),
    ],
)
def test_monitored_barrier_names_who_did_not_come(message, ranks):
    found = told(message)
    assert (found.code, found.culprits, found.missing) == ("DDP301", ranks, ranks)
    assert "within 3 s" in found.summary
    assert not found.evidence


def test_monitored_barrier_tells_a_dead_rank_from_a_late_one():
    found = told(f"[Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms\n Original exception: \n{PEER_RESET}")
    assert "the process ended" in found.evidence[0]


def test_monitored_barrier_on_the_others_blames_nobody_here():
    message = (
        "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please "
        f"check rank 0 logs for faulty rank.\n Original exception: \n{PEER_GONE}"
    )
    found = told(message)
    assert (found.code, found.culprits, found.missing) == ("DDP301", (), ())
    assert "rank 0" in found.remedy


def test_monitored_barrier_that_rank_0_leaves_waiting():
    found = told("Rank 0 timed out in monitoredBarrier after 2000 ms.\n Successfully processed ranks: 1, 3")
    assert found.evidence == ("Ranks 1 and 3 reached it.",)


# -- TORCH_DISTRIBUTED_DEBUG=DETAIL


@pytest.mark.parametrize(
    ("one", "other", "differ", "code", "words"),
    [
        (fingerprint("ALLREDUCE"), fingerprint("ALLGATHER"), " Op type: ALLREDUCEvs ALLGATHER", "DDP302", "allreduce and allgather"),
        (fingerprint("ALLREDUCE"), fingerprint("ALLREDUCE", "4"), " Tensor Tensor shapes: 3vs 4", "DDP303", "[3] and [4]"),
        (fingerprint("REDUCE", "2, 3"), fingerprint("REDUCE", "3, 2"), "", "DDP303", "[2, 3] and [3, 2]"),
        (fingerprint("ALLREDUCE", dtype="Long"), fingerprint("ALLREDUCE"), " Tensor Tensor dtypes: Longvs Float", "DDP304", "long and float"),
        (fingerprint("BROADCAST", seq=7), fingerprint("BROADCAST", seq=5), " Sequence number: 7vs 5", "DDP301", "#7 on rank 0, #5 on rank 1"),
        (fingerprint("BROADCAST"), fingerprint("BROADCAST"), " Tensor Tensor devices: cpuvs cuda", "DDP305", "devices"),
        (fingerprint("ALLREDUCE", seq=None), "REDUCE", "", "DDP302", "allreduce and reduce"),
        (fingerprint("ALLREDUCE"), "CollectiveFingerPrint(SequenceNumber=0OpType=BARRIER)", "", "DDP302", "allreduce and barrier"),
    ],
)  # fmt: skip
def test_fingerprints_say_in_what_two_ranks_differ(one, other, differ, code, words):
    found = told(mismatch(one, other, differ))
    assert found.code == code
    assert words in found.summary
    assert found.culprits is None
    assert [text.split(" calls ")[0] for text in found.evidence] == ["Rank 0", "Rank 1"]


def test_both_sides_of_a_mismatch_are_told_once():
    one, other = fingerprint("ALLREDUCE"), fingerprint("ALLGATHER")
    log = (
        f"[rank0]: RuntimeError: {mismatch(one, other)}\n[rank1]: RuntimeError: {mismatch(other, one, ranks=(1, 0))}\n"
    )
    assert len(explain_text(log)) == 1


def test_a_fingerprint_that_torch_reads_with_a_shift_is_not_believed():
    # Seen with 2.13: rank 1 stood in a barrier, and rank 0 was told REDUCE.
    other = "CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)"
    assert "reduce" not in told(mismatch(fingerprint("GATHER"), other)).summary


def test_the_words_of_torch_1_10():
    message = f"Detected mismatch between collectives on ranks. Rank 0 is running inconsistent collective: {fingerprint('BROADCAST', seq=None)}"
    found = told(message)
    assert found.code == "DDP302"
    assert "broadcast" in found.summary


# -- what a backend notices


def test_gloo_aborts_and_tells_how_many_bytes():
    log = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        f"  what():  [enforce fail at {GLOO}pair.cc:456] op.preamble.length <= op.nbytes. 16 vs 12. Received data size doesn't "
        "match expected size. Is there a distributed collective mismatch in your code?\n"
    )
    (found,) = explain_text(log)
    assert found.code == "DDP303"
    assert "16 bytes where 12" in found.summary


def test_nccl_notices_a_mismatch_around_a_rank():
    message = "Mismatched collective detected, please check your collective calls at and around rank 39. You can use NCCL_DEBUG"
    found = told(message)
    assert (found.code, found.culprits) == ("DDP302", (39,))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (LATE, "3 s in a collective"),
        (LATE.replace("3000ms for recv", "1800000ms for send"), "30 min in a collective"),
        (
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=1024, "
            "NumelOut=1024, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.",
            "600.031 s in allreduce #57",
        ),
        ("NCCL operation timed out", "Timed out in a collective"),
        ("[TC][rank=0][name=0] Operation timed out after 600012 ms", "600.012 s in a collective"),
    ],
)
def test_a_wait_that_ran_out_blames_another_unnamed(message, words):
    found = told(message)
    assert (found.code, found.culprits) == ("DDP301", ())
    assert words in found.summary


@pytest.mark.parametrize(
    "message",
    [
        PEER_GONE,
        PEER_RESET,
        "Connection reset by peer",
        "Broken pipe",
        "Socket Timeout",
        "NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.20.5\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        f"Got the following error when running the callback: RuntimeError: {PEER_RESET}\n\nAt:\n  default_hooks.py(31): <lambda>\n",
    ],
)
def test_the_words_of_a_rank_that_lost_a_peer_are_told_elsewhere(message):
    assert explain(message, "RuntimeError") is explain(message, "DistNetworkError") is None


# -- Join


def test_join_names_the_rank_that_ended_first():
    found = told("Rank 0 exhausted all inputs.")
    assert (found.code, found.culprits) == ("DDP308", (0,))
    found = told("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
    assert (found.code, found.culprits) == ("DDP308", ())
