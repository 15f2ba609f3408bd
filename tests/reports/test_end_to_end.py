"""Whole reports, from text to finding: code, ranks, operation and number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddpnb.cli import main
from ddpnb.rules.diagnose import diagnose
from ddpnb.world.loading import load

OLD_WATCHDOG = """\
Epoch 3:  41%|####      | 812/1980 [10:12<14:40,  1.33it/s]
[E ProcessGroupNCCL.cpp:821] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1812, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802710 milliseconds before timing out.
[E ProcessGroupNCCL.cpp:821] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1812, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802801 milliseconds before timing out.
[E ProcessGroupNCCL.cpp:821] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1812, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802899 milliseconds before timing out.
[E ProcessGroupNCCL.cpp:461] To avoid data inconsistency, we are taking the entire process down.
ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -6) local_rank: 0 (pid: 1020) of binary: /opt/conda/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
train.py FAILED
------------------------------------------------------
Failures:
[1]:
  time      : 2023-04-18_11:31:21
  host      : gpu-node-1
  rank      : 2 (local_rank: 2)
  exitcode  : -6 (pid: 1022)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 1022
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2023-04-18_11:31:21
  host      : gpu-node-1
  rank      : 0 (local_rank: 0)
  exitcode  : -6 (pid: 1020)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 1020
======================================================
"""
ANOTHER_OPERATION = "".join(
    f"[rank{rank}]:[E613 12:11:08.123456789 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
    f"WorkNCCL(SeqNum=41273, OpType={op}, NumelIn={sizes[0]}, NumelOut={sizes[1]}, Timeout(ms)=600000) ran for 600031 milliseconds "
    "before timing out.\n"
    for rank, op, sizes in (
        (1, "_ALLGATHER_BASE", (2097152, 16777216)),
        (5, "_REDUCE_SCATTER_BASE", (16777216, 2097152)),
        (0, "_ALLGATHER_BASE", (2097152, 16777216)),
    )
)
OUT_OF_MEMORY = (
    "".join(
        f"[rank{rank}]:[E1105 03:02:07.950115220 ProcessGroupNCCL.cpp:616] [Rank {rank - 4}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=911, OpType=ALLREDUCE, NumelIn=33554432, NumelOut=33554432, Timeout(ms)=600000) ran for 600077 "
        f"milliseconds before timing out.\n[rank{rank}]:[E1105 03:02:07.950350211 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID "
        f"11(mesh_tp) Rank {rank - 4}] Exception (either an error or timeout) detected by watchdog at work: 911, last enqueued NCCL "
        "work: 911, last completed NCCL work: 910.\n"
        for rank in (4, 6, 7)
    )
    + """\
[rank5]: Traceback (most recent call last):
[rank5]:   File "/workspace/train.py", line 211, in <module>
[rank5]:     main()
[rank5]:   File "/workspace/train.py", line 96, in main
[rank5]:     out = model(batch["x"].cuda())
[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 5 has a total capacity of 79.10 GiB of which 1.21 GiB is free.
"""
)
DESYNC = """\
[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=30000) ran for 30011 milliseconds before timing out.
[rank1]:[E ProcessGroupNCCL.cpp:1100]  Rank 1
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t   - [1] joined but didn't finish collective #57 (count from 1)
\t   - [0] finished collective #56, but didn't join collective #57 (count from 1)
"""
PY_SPY = """\
Process 4711: python -u train.py --rank 0
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2806)
    wrapper (torch/distributed/c10d_logger.py:83)
    train (/home/me/train.py:44)

Process 4712: python -u train.py --rank 1
Python v3.11.7 (/usr/bin/python3.11)

Thread 4712 (idle): "MainThread"
    acquire (filelock/_api.py:344)
    load (/home/me/data.py:12)
"""
NCCL = """\
node1:100:130 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xabc - Init COMPLETE
node1:101:131 [1] NCCL INFO ncclCommInitRank comm 0x66d0 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1c000 commId 0xabc - Init COMPLETE
node1:100:100 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f recvbuff 0x7f count 1024 datatype 7 op 0 root 0 comm 0x55d0 [nranks=2] stream 0x1
node1:101:101 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f recvbuff 0x7f count 1024 datatype 7 op 2 root 0 comm 0x66d0 [nranks=2] stream 0x1
"""
OTHER_CALL = (
    NCCL
    + """\
node1:100:100 [0] NCCL INFO AllReduce: opCount 1 sendbuff 0x7f recvbuff 0x7f count 1024 datatype 7 op 2 root 0 comm 0x55d0 [nranks=2] stream 0x1
node1:101:101 [1] NCCL INFO Broadcast: opCount 1 sendbuff 0x7f recvbuff 0x7f count 1024 datatype 7 op 0 root 0 comm 0x66d0 [nranks=2] stream 0x1
"""
)
CHECKPOINTS = """\
[2024-05-01 12:00:03.001][+3.2s][R0/2][LR0][4711] CHECKPOINT 9: about to start logger
[2024-05-01 12:00:03.002][+3.2s][R1/2][LR1][4712] CHECKPOINT 9: about to start logger
[2024-05-01 12:00:04.001][+4.2s][R0/2][LR0][4711] CHECKPOINT 10: about to wrap model
"""
CUT = "".join(
    f"[{line}] [rank{rank}]:[E321 02:07:08.40 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=466, NumelOut=466, Timeout(ms)=600000) ran for 600060 milliseconds before timing "
    "out.\n"
    for line, rank in ((80746, 0), (80747, 4), (80750, 2))
) + (
    "[80748] [rank0]:[E321 02:07:08.46 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 0] Exception (either an error or timeout) detected by "
    "watchdog at work: 15, last enqueued NCCL work: 17, last completed NCCL work: 14.\n"
    "[80749] [rank3]:[E321 02:07:08.46 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 3] Exception (either an error or timeout) detected by "
    "watchdog at work: 15, last enqueued NCCL work: 17, last completed NCCL work: 14.\n"
)
WRAPPED = "".join(
    f"[rank{rank}]:[E424 01:11:21.16 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, "
    "OpTy\npe=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out.\n"
    for rank in (1, 2, 3)
)
STUCK = (
    "[rank6]:[E429 13:55:49.38 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 6] ProcessGroupNCCL's watchdog got stuck "
    "for 480 seconds without making progress in monitoring enqueued collectives.\n"
)
LOST = (
    "node3:2211:2398 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.4<54321> with error 12, opcode 0\n"
    "[rank9]:[E ProcessGroupNCCL.cpp:1182] [Rank 9] NCCL watchdog thread terminated with exception: NCCL error: remote process exited "
    "or there was a network error, NCCL version 2.18.3\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
)
LOCAL = "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 3 (pid: 8123) of binary: /usr/bin/python\n"
LAUNCHED = "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.\n"
NO_START = """\
h03:45006:45006 [0] NCCL INFO AllReduce: opCount 28c sendbuff 0x7f recvbuff 0x7f count 99 datatype 7 op 0 root 0 comm 0x55 [nranks=4] stream 0x1
h03:45012:45012 [2] NCCL INFO AllGather: opCount 28c sendbuff 0x7f recvbuff 0x7f count 59 datatype 0 op 0 root 0 comm 0x66 [nranks=4] stream 0x1
"""
BARRIER = """\
[rank1]:[E ProcessGroupGloo.cpp:144] Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.
[rank0]: RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 30000 ms
"""
GLOO = """\
Traceback (most recent call last):
  File "train.py", line 61, in <module>
    dist.barrier()
RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete
"""
FINGERPRINTS = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running collective: CollectiveFingerPrint("
    "SequenceNumber=77, OpType=ALLREDUCE, TensorShape=[1024], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float "
    "(default), device=cuda)), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=77, OpType=BROADCAST, "
    "TensorShape=[1024], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)).\n"
)
KILLED = (
    "[12345.678999] Out of memory: Killed process 4711 (python) total-vm:123456kB, anon-rss:99999kB, file-rss:0kB\n"
)
SLURM = "srun: error: node2: task 5: Killed\nslurmstepd: error: Detected 1 oom_kill event in StepId=123.0.\n"
XID = "[Tue May 14 10:20:11 2024] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
WORKER = "RuntimeError: DataLoader worker (pid(s) 2155) exited unexpectedly\n"
CRASH = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f1 (most recent call first):\n  File "/home/u/train.py", line 12 in step\n'
STORE = (
    "[rank0]: torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 3/4 clients joined.\n"
)
ADDRESS = "[E socket.cpp:957] [c10d] The client socket has timed out after 60000ms while trying to connect to (node0, 29500).\n"

REPORTS = {
    "old watchdog": (OLD_WATCHDOG, "hang", "DDP301", (1,), "all_reduce", 1812),
    "another operation": (ANOTHER_OPERATION, "hang", "DDP302", (5,), "all_gather_into_tensor", 41273),
    "out of memory": (OUT_OF_MEMORY, "crash", "DDP205", (5,), "all_reduce", 911),
    "desync": (DESYNC, "hang", "DDP301", (0,), "all_reduce", 57),
    "py-spy": (PY_SPY, "hang", "DDP313", (1,), None, 0),
    "nccl": (NCCL, "hang", "DDP305", (), "all_reduce", 1),
    "another call of nccl": (OTHER_CALL.replace("op 2", "op 0"), "hang", "DDP302", (), "all_reduce", 2),
    "checkpoints": (CHECKPOINTS, "hang", "DDP313", (1,), None, 0),
    "gloo": (GLOO, "hang", "DDP301", (), None, 0),
    "fingerprints": (FINGERPRINTS, "hang", "DDP302", (), "broadcast", 77),
    "lost connection": (LOST, "crash", "DDP311", (), None, 0),
    "local rank": (LOCAL, "crash", "DDP311", (), None, 0),
    "launched process": (LAUNCHED, "crash", "DDP311", (), None, 0),
    "nccl without its start": (NO_START, "hang", "DDP302", (), "all_reduce", 653),
    "monitored barrier": (BARRIER, "hang", "DDP301", (2,), None, 0),
    "cut before the group of some": (CUT, "hang", "DDP318", (), "all_reduce", 15),
    "wrapped within words": (WRAPPED, "hang", "DDP301", (0,), "broadcast", 4),
    "stuck watchdog": (STUCK, "crash", "DDP314", (6,), None, 0),
    "killed": (KILLED, "crash", "DDP706", (), None, 0),
    "slurm": (SLURM, "crash", "DDP706", (5,), None, 0),
    "xid": (XID, "crash", "DDP206", (), None, 0),
    "worker": (WORKER, "crash", "DDP505", (), None, 0),
    "crash": (CRASH, "crash", "DDP311", (), None, 0),
    "store": (STORE, "hang", "DDP102", (), None, 0),
    "address": (ADDRESS, "hang", "DDP104", (), None, 0),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report(tmp_path, name):
    text, outcome, code, culprits, op, seq = REPORTS[name]
    (tmp_path / "job.log").write_text(text)
    told = diagnose(load(tmp_path / "job.log"))
    first = told.errors[0]
    assert (told.outcome, first.code, first.culprits) == (outcome, code, culprits)
    call = first.collective
    assert (call.op if call is not None else None, call.seq if call is not None else 0) == (op, seq)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_with_colours_and_windows_line_ends(tmp_path, name):
    text, _, code, culprits, _, _ = REPORTS[name]
    odd = "".join(f"\x1b[31m{line}\x1b[0m\r\n" for line in text.splitlines())
    (tmp_path / "job.log").write_text(odd)
    first = diagnose(load(tmp_path / "job.log")).errors[0]
    assert (first.code, first.culprits) == (code, culprits)


def test_the_example_of_the_documentation(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    page = (Path(__file__).parents[2] / "docs" / "reported-hangs.md").read_text()
    log, output = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[:2]
    (tmp_path / "watchdog.log").write_text(log)
    assert main(["diagnose", "watchdog.log"]) == 3
    assert capsys.readouterr().err == output
