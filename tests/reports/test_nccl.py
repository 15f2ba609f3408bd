import time

import pytest

from ddpnb.recording.calls import CallState
from ddpnb.recording.messages.explain import explain
from ddpnb.reports import nccl
from ddpnb.reports.facts import CallSeen, Identity, Members, Message, Speaker, Unknown, Waiting, WorldSize
from tests.reports.reading import NOISE, of, read


def who(rank):
    return f"node{rank // 2}:{100 + rank}:{200 + rank} [{rank % 2}]"


def init(rank, ranks, state="COMPLETE", more="commId 0xabc ", name="ncclCommInitRank ", address="0x55"):
    return (
        f"{who(rank)} NCCL INFO {name}comm {address}{rank} rank {rank} nranks {ranks} cudaDev {rank % 2} busId 1000 {more}- Init "
        f"{state}\n"
    )


def call(rank, count, op="AllReduce", ranks=4, elements=1024, root=0, address="0x55", dtype=7, reduce=0):
    return (
        f"{who(rank)} NCCL INFO {op}: opCount {count:x} sendbuff 0x7f recvbuff (nil) count {elements} datatype {dtype} op {reduce} root "
        f"{root} comm {address}{rank} [nranks={ranks}] stream 0x5e\n"
    )


def test_the_last_operations_of_each_rank():
    text = "".join(init(rank, 4) for rank in range(4))
    text += "".join(call(rank, count) for count in range(0x39) for rank in range(4))
    text += "".join(call(rank, 0x39, "Broadcast" if rank == 2 else "AllReduce", root=1) for rank in range(4))
    facts = read(nccl, NOISE + text)
    assert of(WorldSize, facts) == [WorldSize(4)]
    assert of(Identity, facts)[3] == Identity(Speaker(3, 103, "node1"))
    last = {fact.speaker.rank: fact for fact in of(CallSeen, facts)}
    assert {rank: (fact.seq, fact.signature.op) for rank, fact in last.items()} == {
        0: (58, "all_reduce"), 1: (58, "all_reduce"), 2: (58, "broadcast"), 3: (58, "all_reduce")
    }  # fmt: skip
    assert last[0].state is CallState.ISSUED
    assert last[0].group.name == ""
    signature = last[0].signature
    assert (signature.shapes, signature.dtypes, signature.reduce_op, signature.root) == (
        ((1024,),),
        ("float32",),
        "sum",
        None,
    )
    assert (last[2].signature.root, last[2].signature.reduce_op) == (1, None)
    assert len(of(Unknown, facts)) == 1


@pytest.mark.parametrize(
    ("state", "more", "name"),
    [
        ("COMPLETE", "", ""),
        ("COMPLETE", "nvmlDev 1 commId 0xabc ", "ncclCommInitRankConfig "),
        ("START", "nvmlDev 1 commId 0xabc ", "[Rank 1] ncclCommInitRank "),
    ],
)
def test_versions_of_the_start(state, more, name):
    facts = read(nccl, "".join(init(rank, 2, state, more, name) for rank in range(2)))
    assert {fact.speaker.rank for fact in of(Identity, facts)} == {0, 1}


def test_communicators_that_were_split():
    text = "".join(init(rank, 4) for rank in range(4))
    for rank in range(4):
        text += (
            f"{who(rank)} NCCL INFO ncclCommSplit comm 0x66{rank} rank {rank % 2} nranks 2 cudaDev 0 nvmlDev 0 busId 1 parent "
            f"0x55{rank} splitCount 1 color {rank // 2} key {rank % 2} - Init COMPLETE\n"
        )
        text += call(rank, 0, address="0x66", ranks=2)
    facts = read(nccl, text)
    assert sorted(fact.group.ranks for fact in of(Members, facts)) == [(0, 1), (0, 1, 2, 3), (2, 3)]
    assert {(fact.speaker.rank, fact.group.rank, fact.group.ranks) for fact in of(CallSeen, facts)} == {
        (0, 0, (0, 1)), (1, 1, (0, 1)), (2, 0, (2, 3)), (3, 1, (2, 3))
    }  # fmt: skip


def test_operations_that_were_launched_together_are_one_call():
    text = "".join(init(rank, 2) for rank in range(2))
    text += "".join(call(0, 0, "Broadcast", 2, root=root) for root in range(2)) + call(0, 1, ranks=2)
    calls = of(CallSeen, read(nccl, text))
    assert [(fact.seq, fact.signature.op, fact.signature.root) for fact in calls] == [
        (1, "broadcast", None),
        (2, "all_reduce", None),
    ]


def test_point_to_point():
    text = "".join(init(rank, 4) for rank in range(4)) + call(1, 2, "Send", root=3)
    (fact,) = of(CallSeen, read(nccl, text))
    assert (fact.seq, fact.signature.op, fact.peer, fact.speaker.rank) == (0, "send", 3, 1)


def test_ranks_that_wait_while_a_communicator_is_created():
    text = "".join(init(rank, 4, "START") for rank in (0, 1, 3))
    assert [fact.speaker.rank for fact in of(Waiting, read(nccl, text))] == [0, 1, 3]


def test_the_end_of_a_log_has_no_start():
    text = "".join(f"n1:{100 + rank}:7 [{rank}]" + call(rank, 5).partition("]")[2] for rank in range(4))
    facts = read(nccl, text)
    assert {fact.speaker.rank: fact.seq for fact in of(CallSeen, facts)} == {0: 6, 1: 6, 2: 6, 3: 6}
    assert any("GPU" in fact.text for fact in of(Unknown, facts))


def test_prefixes_name_the_rank():
    text = "".join(f"[rank{rank + 4}]: " + call(rank, 5, ranks=8) for rank in range(4))
    assert [fact.speaker.rank for fact in of(CallSeen, read(nccl, text))] == [4, 5, 6, 7]


def test_rccl_names_global_ranks():
    text = call(1, 5).strip() + " task 0 globalrank 9\n"
    (fact,) = of(CallSeen, read(nccl, text))
    assert fact.speaker.rank == 9


def test_a_line_in_the_line_of_another_process():
    text = "".join(init(rank, 2) for rank in range(2)) + f"{who(0)} NCCL INFO " + call(1, 3, ranks=2)
    (fact,) = of(CallSeen, read(nccl, text))
    assert fact.speaker.rank == 1


def test_warnings_that_mean_an_error():
    text = (
        f"{who(1)} misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n"
        f"{who(1)} init.cc:1 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n"
    )
    (message,) = of(Message, read(nccl, text))
    assert "Duplicate" in message.text


def test_calls_that_failed_without_a_reason_blame_no_rank():
    text = "".join(
        f"{who(1)} ib.cc:1 NCCL WARN {warning}\n"
        for warning in (
            "Call to connect returned Connection refused, retrying",
            "NET/IB : Got completion from peer 10.1.1.4<4711> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
            "socketProgressOpt: Call to recv from 10.1.1.4<4711> failed : Broken pipe",
            "Cuda failure 'peer access is not supported between these two devices'",
            "Cuda failure 710 'device-side assert triggered'",
            "Cuda failure 700 'an illegal memory access was encountered'",
        )
    )
    messages = of(Message, read(nccl, text))
    assert [message.speaker for message in messages] == [Speaker()] * 3
    assert [message.text.split()[2] for message in messages] == ["NET/IB", "socketProgressOpt:", "Cuda"]


def test_sizes_that_do_not_match_in_the_network():
    line = "NCCL WARN NET/IB : req 0/1 tag 0 peer 10.1.1.4<4711> collective mismatch error, local size 4096 remote size 1024"
    (message,) = of(Message, read(nccl, f"{who(1)} net_ib.cc:1 {line}\n"))
    assert message.text == line


def test_without_operations_it_says_what_to_set():
    assert "NCCL_DEBUG_SUBSYS" in of(Unknown, read(nccl, init(0, 1)))[0].text


@pytest.mark.full
def test_hostile_and_long_logs_take_no_time():
    start = time.process_time()
    read(nccl, "NCCL INFO AllReduce: opCount " * 100_000 + "a.b-" * 500_000)
    text = "".join(init(rank, 4) for rank in range(4))
    text += "".join(call(rank, count) for count in range(20_000) for rank in range(4))
    facts = read(nccl, text)
    assert len(of(CallSeen, facts)) == 4 * 1024
    assert time.process_time() - start < 10


# -- diagnostics (NCCL 2.31)

HEALTHY = (
    "node042:12345 NCCL DIAG === RAS Diagnostics ===\n"
    "node042:12345 NCCL DIAG [OK]   GPU inventory: 8x NVIDIA H100 per node consistent across 8 ranks in comm 0x1234\n"
    "node042:12345 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 8 ranks in comm 0x1234\n"
    "node042:12345 NCCL DIAG RAS diagnostics completed in 12.3 ms across 8 RAS peers\n"
)
LINK = (
    "NCCL DIAG [INFO] p2p: write mismatch srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=3 dstCudaDev=3 dstNvmlDev=3 path=NVL "
    "handle=cuMem expected=0x0000000000000001 got=0x0000000000000002 verify=0x0000000000000002; check the link"
)
ECC = "node042:12345 NCCL DIAG [INFO] ECC: uncorrected volatile errors on rank(s) {1,5} (worst=2) across 8 ranks in comm 0x1234"
NVLINK = "node042:12345 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {2} across 8 ranks in comm 0x1234"
SETTING = "node042:12345 NCCL DIAG [INFO] NCCL environment: NCCL_DEBUG=INFO on rank(s) {0,1,2,3}"


def test_diagnostics_without_a_problem():
    facts = read(nccl, HEALTHY)
    assert [type(fact) for fact in facts] == [Unknown] and "2 checks" in facts[0].text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (LINK, "ranks 0 and 3 of a communicator"),
        (ECC, "errors on ranks 1,5 of"),
        (NVLINK, "inactive link(s) on ranks 2 of"),
    ],
)
def test_diagnostics_of_broken_devices(line, words):
    (message,) = of(Message, read(nccl, f"{HEALTHY}{line}\n{line}\n"))
    found = explain(message.text)
    assert found.code == "DDP206" and words in found.summary


def test_diagnostics_of_differences_are_no_errors():
    facts = read(nccl, f"{SETTING}\nNCCL DIAG [INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification\n")
    assert not of(Message, facts)
    assert [fact.text.partition(": NCCL")[0] for fact in of(Unknown, facts)] == ["What this means for the job"] * 2
    assert len(read(nccl, "".join(f"NCCL DIAG [INFO] x: {n}\n" for n in range(5000)))) == 20
