"""Jobs that were started without ddpnb: stacks of real ranks, and dumps of a flight recorder that is played by a process."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

import ddpnb
from ddpnb.cli import main
from ddpnb.errors import UsageError
from ddpnb.rules.diagnose import diagnose
from ddpnb.world import unprefixed
from tests.cli.jobs import STARTS, end, wait_for_job, write
from tests.ranks.nccl_ras import Server
from tests.ranks.nccl_ras import job as answer
from tests.reports import dumps

pytestmark = pytest.mark.world

# Reads the pipes as torch's thread does, and writes the dumps: NCCL cannot run here.
_RECORDER = """
import contextlib, os, shutil, sys, time
stem = sys.argv[1]
pipes = []
for rank in range(2):
    os.mkfifo(f"{stem}{rank}.pipe")
    pipes.append(os.open(f"{stem}{rank}.pipe", os.O_RDONLY | os.O_NONBLOCK))
print("reads", flush=True)
while True:
    for rank, pipe in enumerate(pipes):
        with contextlib.suppress(BlockingIOError):  # it is open for writing, and nothing is written yet
            if os.read(pipe, 128) == b"1\\n":
                shutil.copyfile(f"whole{rank}", f"{stem}dump_{rank}")
    time.sleep(0.05)
"""


def hangs(process, job):
    """What the stacks of a job say, once they say that it hangs; before, the ranks may still begin."""
    deadline = time.monotonic() + 240
    while True:
        recording = unprefixed.read([process.pid, *job.ranks.values()], 1.0)
        diagnosis = diagnose(recording, 1.0)
        if diagnosis.outcome == "hang" or time.monotonic() > deadline:
            return recording, diagnosis


@pytest.fixture(scope="module")
def service():
    """In the place of NCCL's RAS service, which gives no answer at first."""
    with Server("") as server:
        yield server


@pytest.fixture(scope="module")
def hung(tmp_path_factory, service):
    """A launcher of two ranks, of which one sleeps, and the job."""
    folder = write(tmp_path_factory.mktemp("job"))
    stem = folder / "nccl_"
    environment = {
        **os.environ,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "nccl_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{stem}dump_",
        "NCCL_RAS_ADDR": service.address,
    }
    process = subprocess.Popen(
        [*STARTS, "train.py", "sleep"], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        job = wait_for_job(process)
        hangs(process, job)
        yield folder, process, job
    finally:
        end(process)


def test_stacks_alone(hung):
    _, process, job = hung
    recording, diagnosis = hangs(process, job)
    assert recording.report is None
    assert (diagnosis.outcome, diagnosis.findings[0].culprits) == ("hang", (1,))
    with pytest.raises(UsageError, match="there is no process"):
        unprefixed.read([process.pid, 1 << 30], 1.0)


def test_what_nccl_counts_is_joined_with_the_stacks(hung, service, capsys, monkeypatch):
    folder, _, job = hung
    pids = [job.ranks[0], job.ranks[1]]
    monkeypatch.setattr(service, "_status", [answer({0: 4, 1: 3}, pids=pids)])
    saved = folder / "counted.ddpnb"
    assert main(["attach", "--patience", "1", "--save", str(saved), str(pids[0])]) == 3
    said = capsys.readouterr().out
    assert f"NCCL RAS: NCCL 2.30.7 answers at {service.address} for 2 ranks" in said
    recording = ddpnb.load(saved)
    finding = diagnose(recording).findings[0]
    assert (finding.culprits, finding.collective.op, finding.collective.seq) == ((1,), "all_reduce", 4)
    assert recording.ranks[1].main_stack.innermost_user.line == 15
    assert [source.format for source in recording.report.sources] == ["stacks read by py-spy", "NCCL RAS output"]


def test_counts_that_race_say_nothing(hung, service, monkeypatch):
    _, process, job = hung
    pids = [job.ranks[0], job.ranks[1]]
    monkeypatch.setattr(service, "_status", [answer({0: 4, 1: 3}, pids=pids), answer({0: 6, 1: 5}, pids=pids)])
    assert unprefixed.read([process.pid], 1.0).report is None


def test_dumps_of_flight_recorders_are_asked_for_and_joined(hung):
    folder, process, _ = hung
    before = [dumps.call(number, number + 1) for number in range(3)]
    stands = dumps.call(3, 4, state="started")
    for rank, entries in enumerate([[*before, stands], before]):
        (folder / f"whole{rank}").write_bytes(
            pickle.dumps(dumps.dump(entries, config={"0": ("default_pg", [0, 1])}), 2)
        )
    recorder = subprocess.Popen(
        [sys.executable, "-c", _RECORDER, "nccl_"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        assert recorder.stdout.readline() == "reads\n"
        saved = folder / "hang.ddpnb"
        assert main(["diagnose", "--patience", "1", "--save", str(saved), "--pid", str(process.pid)]) == 3
    finally:
        recorder.send_signal(signal.SIGKILL)
        recorder.communicate(timeout=240)
    recording = ddpnb.load(saved)
    assert all((folder / f"nccl_dump_{rank}").stat().st_mtime > time.time() - 60 for rank in range(2))
    finding = diagnose(recording).findings[0]
    assert (finding.culprits, finding.collective.op, finding.collective.seq) == ((1,), "all_reduce", 4)
    assert recording.ranks[1].main_stack.innermost_user.line == 15
    assert [source.format for source in recording.report.sources][0] == "stacks read by py-spy"
