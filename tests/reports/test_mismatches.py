import pytest

from ddpnb.reports import mismatches
from ddpnb.reports.facts import CallSeen, Message, Speaker, Unknown, Waiting, WorldSize
from tests.reports.reading import NOISE, of, read

_DEVICE = (
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), requires_grad=false (default), "
    "pinned_memory=false (default), memory_format=(nullopt)))"
)


def mismatch(first, second, ranks=(0, 1)):
    return (
        f"RuntimeError: Detected mismatch between collectives on ranks. Rank {ranks[0]} is running collective: {first}, but Rank "
        f"{ranks[1]} is running collective: {second}.Collectives differ in the following aspects: \t Op type: xvs y\n"
    )


def fingerprint(op, shape="10, 2", dtype="Float", seq="SequenceNumber=57, "):
    return f"CollectiveFingerPrint({seq}OpType={op}, TensorShape=[{shape}], TensorDtypes={dtype}, {_DEVICE}"


@pytest.mark.parametrize(("seq", "number"), [("SequenceNumber=57, ", 57), ("", 0)])
@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_the_calls_of_both_ranks(seq, number, prefix):
    text = mismatch(fingerprint("ALLREDUCE", seq=seq), fingerprint("BROADCAST", "3", "Long", seq))
    for shown in (prefix + text, NOISE + prefix + text + NOISE, prefix + text.replace(" Rank 1 is", "\nRank 1 is")):
        first, second = of(CallSeen, read(mismatches, shown))
        assert (first.speaker.rank, first.seq, first.signature.op) == (0, number, "all_reduce")
        assert (first.signature.shapes, first.signature.dtypes) == (((10, 2),), ("float32",))
        assert (second.speaker.rank, second.seq, second.signature.op) == (1, number, "broadcast")
        assert (second.signature.shapes, second.signature.dtypes) == (((3,),), ("int64",))


def test_a_fingerprint_that_torch_misreads():
    text = mismatch(fingerprint("ALLREDUCE"), "CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)", (1, 7))
    facts = read(mismatches, text)
    assert not of(CallSeen, facts)
    assert "Rank 7" in of(Message, facts)[0].text


@pytest.mark.parametrize(
    ("text", "speaker", "function", "missing", "timeout_s"),
    [
        ("RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms", 0, "monitored_barrier", (1, 3), 30),
        ("[rank2]: RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
         "rank 0. Please check rank 0 logs for faulty rank.", 2, "monitored_barrier", (), 0),
        ("torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 3/4 clients joined.", None,
         "init_process_group", (), 301),
        ("[rank1]: torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu//0/3", 1,
         "init_process_group", (3,), 300),
        ("RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1 "
         "(world_size=4, worker_count=3, timeout=0:30:00)", 2, "init_process_group", (), 1800),
    ],
)  # fmt: skip
def test_who_waits_for_whom(text, speaker, function, missing, timeout_s):
    facts = read(mismatches, NOISE + text + "\n" + NOISE)
    (waiting,) = of(Waiting, facts)
    assert (waiting.speaker.rank, waiting.function, waiting.missing, waiting.timeout_s) == (
        speaker,
        function,
        missing,
        timeout_s,
    )
    (message,) = of(Message, facts)
    assert message.speaker == Speaker(speaker)


def test_the_world_size():
    facts = read(mismatches, "Timed out after 301 seconds waiting for clients. 3/4 clients joined.\n")
    assert of(WorldSize, facts) == [WorldSize(4)]


def _announced(rank, seq, op="ALLREDUCE"):
    return f"[I ProcessGroupWrapper.cpp:562] [Rank {rank}] Running collective: {fingerprint(op, seq=f'SequenceNumber={seq}, ')}\n"


def test_calls_that_each_rank_announces():
    text = "".join(_announced(rank, seq) for seq in range(1, 9) for rank in range(2)) + _announced(1, 9, "BROADCAST")
    last = {call.speaker.rank: (call.seq, call.signature.op) for call in of(CallSeen, read(mismatches, text))}
    assert last == {0: (8, "all_reduce"), 1: (9, "broadcast")}


def test_announcements_of_several_groups_cannot_be_told_apart():
    facts = read(mismatches, _announced(0, 7) + _announced(0, 2))
    assert not of(CallSeen, facts)
    assert of(Unknown, facts)


def test_hostile_text():
    assert not of(CallSeen, read(mismatches, ("Detected mismatch between collectives on ranks" + "(" * 50) * 20_000))
    read(mismatches, "wait timeout after " * 100_000)


def test_sizes_that_gloo_sees_without_a_traceback():
    line = "  what():  [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:4] op.preamble.length <= op.nbytes. 16 vs 12\n"
    text = f"[rank3]:terminate called after throwing an instance of 'gloo::EnforceNotMet'\n[rank3]:{line}"
    (message,) = of(Message, read(mismatches, NOISE + text))
    assert message.speaker.rank == 3 and "16 vs 12" in message.text


def test_an_attempt_to_connect_that_failed_may_have_been_repeated():
    line = "[W socket.cpp:601] [c10d] The client socket has failed to connect to node-3:29500 (errno: 113 - No route to host).\n"
    (said,) = [fact for fact in read(mismatches, line * 40 + "step 1: loss 2.0\n" * 20) if isinstance(fact, Unknown)]
    assert "Whether a process reached node-3:29500" in said.text and "(No route to host)" in said.text
