"""Records of jobs on several hosts, while they hang and after they were killed."""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys

import psutil
import pytest

import ddpnb
from ddpnb.cli import main
from ddpnb.errors import UsageError
from ddpnb.ranks.observe import records
from ddpnb.ranks.observe.recorded_host import host_in
from ddpnb.recording import blackbox, protocol
from ddpnb.rules.diagnose import diagnose
from tests.cli import commands
from tests.ranks.observe import cluster

pytestmark = pytest.mark.world

_HANG = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(5):
    if step == 3 and rank == 3:
        time.sleep(600)
    dist.all_reduce(torch.ones(4))
"""
_LINE = 1 + _HANG[: _HANG.index("time.sleep")].count("\n")


def named(recording):
    diagnosis = diagnose(recording)
    assert diagnosis.outcome == "hang", diagnosis
    first = diagnosis.findings[0]
    assert first.collective.seq == 4
    assert (first.culprits, first.waiting) == ((3,), (0, 1, 2))
    return first


@pytest.fixture(scope="module")
def hung(tmp_path_factory):
    """A job that hangs on two hosts, until all ranks have written their stacks; and what was seen of it while it hung."""
    folder = tmp_path_factory.mktemp("cluster")
    process = cluster.start(folder, _HANG)
    try:
        cluster.wait_for(process, lambda: len(cluster.files(folder, "rank*.stacks.json")) == 4)
        yield folder, process, cluster.read(folder / "records")
    finally:
        cluster.end(process)


@pytest.mark.full
def test_a_hang_is_named_while_the_job_runs(hung):
    folder, _, seen = hung
    finding = named(seen)
    assert (3, _LINE) in [(rank, site.line) for rank, site in finding.where]
    assert [bool(seen.ranks[rank].process.memory) for rank in range(4)] == [True, True, False, False]
    assert "Ranks 2 and 3 ran on another host" in " ".join(seen.report.unknown)
    hosts = sorted(path.name for path in (folder / "records").iterdir())
    assert hosts == sorted([f"host-{os.uname().nodename}", "host-node_2"])


@pytest.mark.full
def test_times_of_all_hosts_are_those_of_one_clock(hung):
    _, _, seen = hung
    calls = [seen.ranks[rank].calls[0].entered_ns for rank in range(4)]
    assert max(calls) - min(calls) < 60e9 < cluster.AHEAD_NS
    assert all(abs(call - seen.taken_ns) < 120e9 for call in calls)


@pytest.mark.full
def test_a_hang_is_named_after_the_job_was_killed(hung):
    folder, process, _ = hung
    _, said = cluster.end(process)
    assert (
        said.splitlines()[0]
        == f"ddpnb: recording. What the ranks do, now or later: ddpnb diagnose {folder / 'records'}"
    )
    seen = cluster.read(folder / "records")
    assert (3, _LINE) in [(rank, site.line) for rank, site in named(seen).where]
    assert seen.ranks[3].main_stack.innermost_user.locals["step"] == "3"
    assert "Ranks 0 and 1 were killed" in " ".join(seen.report.unknown)
    named(ddpnb.load(folder / "records"))
    saved, verdict = folder / "hang.ddpnb", folder / "v.json"
    assert main(["diagnose", "--save", str(saved), "--json", str(verdict), str(folder / "records")]) == 3
    assert json.loads(verdict.read_text())["findings"][0]["culprits"] == [3]
    named(ddpnb.load(saved))
    with pytest.raises(UsageError, match="cannot be loaded together"):
        ddpnb.load([folder / "records", saved])
    # The folder of one host alone, elsewhere: the ranks of the other are missing in it.
    copy = folder / "copy"
    shutil.copytree(folder / "records", copy, ignore=shutil.ignore_patterns("*.sock", "host-node_2"))
    half = cluster.read(copy)
    assert half.world_size == 4
    assert "Ranks 2 and 3 of 4 have left no records" in " ".join(half.report.unknown)
    assert diagnose(half).outcome == "hang"
    # A rank that had ended long before the others.
    early = next(path for path in copy.glob("host-*/*/rank1.box"))
    with open(early, "r+b") as box:
        for at in (blackbox.ALIVE_AT, blackbox.PROGRESS_AT + 8):
            box.seek(at)
            box.write(struct.pack("<Q", 1))
    ended = cluster.read(copy)
    assert (ended.ranks[0].ending, ended.ranks[1].ending.how) == (None, "died")
    assert "Rank 1 gave its last sign of life" in " ".join(ended.report.unknown)
    # A pipe is never opened: nobody writes it.
    early.with_name("rank1.end.json").unlink(missing_ok=True)
    os.mkfifo(early.with_name("rank1.end.json"))
    assert not records.is_records(copy)


@pytest.mark.full
def test_process_ids_of_another_host_are_not_looked_up(hung):
    folder, *_ = hung
    for name, own in (("rank2.json", False), ("rank1.json", True)):
        path = cluster.files(folder, name)[0]
        text = path.read_text()
        who = json.loads(text)
        me = psutil.Process().pid
        path.write_text(json.dumps(who | {"pid": me, "started": protocol.started(me)}))
        try:
            host = host_in(str(path.parent))
            assert (who["rank"] in host.alive) is own, name
        finally:
            path.write_text(text)


def test_a_folder_of_something_else_is_not_taken_for_records(tmp_path):
    (tmp_path / "rank0.json").write_text("{}")
    assert not records.is_records(tmp_path)
    assert not records.is_records(tmp_path / "missing")
    (tmp_path / "rank0.box").write_bytes(b"")
    with pytest.raises(UsageError, match="no records of ranks"):
        cluster.read(tmp_path)


_TWICE = """
import socket
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, turn, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(4))
    if turn == 0 and rank == 1:
        raise ValueError("a bad record")
    dist.barrier()
    dist.destroy_process_group()

for turn in range(2):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        mp.start_processes(work, (turn, port), 2, start_method="fork")
    except Exception as error:
        print(type(error).__name__)
print(sys.stdin.read())
sys.exit(7)
"""


@pytest.mark.full
def test_of_several_starts_the_last_that_did_not_end_well_is_read(tmp_path):
    (tmp_path / "train.py").write_text(_TWICE)
    done = commands.ddpnb("run", "--record", "--", sys.executable, "train.py", cwd=tmp_path, input="typed")
    assert (done.returncode, done.stdout) == (7, "ProcessRaisedException\ntyped\n"), done.stderr
    (folder,) = tmp_path.glob("ddpnb-record-*")
    seen = cluster.read(folder)
    diagnosis = diagnose(seen)
    assert (diagnosis.outcome, diagnosis.findings[0].code, diagnosis.findings[0].culprits) == ("crash", "DDP312", (1,))
    assert "has started 2 process groups: this is the last that did not end well." in seen.report.unknown[0]
    well = seen.report.unknown[0].rpartition(": ")[2].rstrip(".")
    assert cluster.read(well).report is None
    assert diagnose(cluster.read(well)).outcome == "ok"
