"""Logs from their text to the finding."""

import pytest

from ddpnb.reports import formats, logs, together
from ddpnb.rules.diagnose import diagnose
from tests.reports.reading import NOISE
from tests.reports.test_exceptions import trace
from tests.reports.test_launchers import row, table
from tests.reports.test_mismatches import _announced, fingerprint, mismatch
from tests.reports.test_nccl import call, init
from tests.reports.test_ras import _COUNTS, _HEAD
from tests.reports.test_watchdog import _in_group, timeout


def default(rank, seq=57, op="ALLREDUCE", elements=1024):
    work = f"NumelIn={elements}, NumelOut={elements}, "
    return timeout(
        rank, seq=seq, op=op, work=work, prefix=f"[rank{rank}]:[E1123 01:02:03.4 ProcessGroupNCCL.cpp:632] "
    ) + (
        f"[rank{rank}]:[E x] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG "
        f"status: last enqueued work: {seq}, last completed work: {seq - 1}\n"
    )


def behind(rank, seq=56):
    return (
        f"[rank{rank}]:[E x] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from rank 0. "
        f"Last enqueued NCCL work: {seq}, last completed NCCL work: {seq}.\n"
    )


def starts(ranks, size):
    return "".join(init(rank, size, "START") for rank in ranks)


def enqueued(last):
    """Three ranks; the operation of each in the last call, None where it is missing."""
    text = "".join(init(rank, 3) for rank in range(3))
    text += "".join(call(rank, count, ranks=3) for count in range(57) for rank in range(3))
    return text + "".join(call(rank, 57, op, ranks=3) for rank, op in enumerate(last) if op)


@pytest.mark.parametrize(
    ("text", "code", "culprits"),
    [
        (default(0) + default(2) + default(3) + behind(1), "DDP301", (1,)),
        (default(0) + default(2) + default(3), "DDP301", (1,)),
        (default(0) + default(1, op="BROADCAST"), "DDP302", ()),
        (default(0) + default(1, elements=1000), "DDP303", ()),
        (default(0) + default(1), "DDP318", ()),
        (default(0) + default(2) + "".join(trace("KeyError: 'k'", prefix="[rank1]: ")), "DDP312", (1,)),
        ("".join(trace("KeyError: 'k'")) + default(0) + default(2) + table(root=row(0, 1, 1, 26)), "DDP312", (1,)),
        (default(0) + table(root=row(0, 1, -9, 26)), "DDP311", (1,)),
        ("Out of memory: Killed process 26 (python)\n" + default(0) + table(root=row(0, 1, -9, 26)), "DDP706", (1,)),
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=26, GPU has fallen off the bus.\n" + table(root=row(0, 1, -6, 26)),
            "DDP206",
            (1,),
        ),
        ("srun: error: n1: task 3: Out Of Memory\nsrun: error: n1: tasks 0-2: Terminated\n", "DDP706", (3,)),
        (_in_group(4, 0) + _in_group(6, 2) + _in_group(7, 3), "DDP301", (5,)),
        (mismatch(fingerprint("ALLREDUCE"), fingerprint("BROADCAST")), "DDP302", ()),
        (
            "".join(_announced(rank, seq) for seq in range(1, 9) for rank in (0, 1, 2) if (rank, seq) != (1, 8)),
            "DDP301",
            (1,),
        ),
        (enqueued(("AllReduce", "AllReduce", "AllGather")), "DDP302", (2,)),
        (enqueued(("AllReduce", None, "AllReduce")), "DDP301", (1,)),
        (starts((0, 1, 3), 4), "DDP301", (2,)),
        (_HEAD + _COUNTS.format("AllGather"), "DDP301", (3, 5)),
        ("RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms\n", "DDP301", (1, 3)),
        (
            "".join(
                trace("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", prefix="[rank1]: ")
            ),
            "DDP205",
            (1,),
        ),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. \n", "DDP505", ()),
    ],
)
def test_the_finding(text, code, culprits):
    found = formats.facts_of(logs.read("train.log", NOISE + text + NOISE))
    first = diagnose(together.recording(found)).findings[0]
    assert (first.type.code, first.culprits) == (code, culprits)


def test_one_log_for_each_rank():
    found = [
        each
        for rank in (0, 2)
        for each in formats.facts_of(logs.read(f"rank{rank}.log", default(rank).replace(f"[rank{rank}]:", "")))
    ]
    found += formats.facts_of(logs.read("rank1.log", "".join(trace("KeyError: 'k'"))))
    first = diagnose(together.recording(found)).findings[0]
    assert (first.type.code, first.culprits, first.waiting) == ("DDP312", (1,), (0, 2))
