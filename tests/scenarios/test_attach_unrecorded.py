"""Attach to real jobs that were started without ddpnb, by torchrun or another launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager

import psutil
import pytest

import ddpnb
from ddpnb.cli import main
from ddpnb.errors import WorldError
from tests.cli import jobs
from tests.rules.recordings import Script

pytestmark = pytest.mark.world

SCRIPT = Script("""
import os, queue, sys, time, torch, torch.distributed as dist

def rest():
    queue.Queue().get()  # rest

def skip(rank):
    if rank == 0:
        dist.barrier()  # barrier
    rest()  # behind

def cross(rank):
    groups = dist.new_group([0, 1]), dist.new_group([0, 1])
    step = 7 + rank
    dist.all_reduce(torch.ones(4), group=groups[rank])  # cross

def train(rank):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200))
    while True:
        model(torch.ones(200, 200)).sum().backward()

if sys.argv[1] == "early":
    open("ready" + os.environ["RANK"], "w").close()
    if os.environ["RANK"] == "1":
        sys.exit()
def wait(rank):
    while True:
        if rank == 1:
            time.sleep(0.7)  # an environment, a slow disk: both ranks are idle nearly all the time
        dist.all_reduce(torch.ones(4))

dist.init_process_group("gloo")  # init
open(f"ready{dist.get_rank()}", "w").close()
globals()[sys.argv[1]](dist.get_rank())
""")
_START_S = 240.0
_PATIENCE_S = 3.0


@contextmanager
def job(folder, mode, launcher=jobs.STARTS):
    """A job of two ranks that have made their process group; gives the process ID of the launcher."""
    jobs.write(folder)
    (folder / "train.py").write_text(SCRIPT.text)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DDPNB_", "PYTEST"))}
    command = [*launcher, "train.py", mode]
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=clean, stdout=output, stderr=output, start_new_session=True)
    family = [process.pid]
    try:
        deadline = time.monotonic() + _START_S
        while not all((folder / f"ready{rank}").exists() for rank in (0, 1)):
            assert process.poll() is None and time.monotonic() < deadline, (folder / "output").read_text()
            time.sleep(0.1)
        family += [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        yield process.pid
        assert process.poll() is None, (folder / "output").read_text()
    finally:
        for pid in family:  # torchrun starts each rank in a session of its own
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait(20)


def lines(finding):
    return {rank: site.line for rank, site in finding.where}


@pytest.mark.full
def test_the_command_says_which_rank_is_past_the_call(tmp_path, capsys):
    with job(tmp_path, "skip", jobs.TORCHRUN) as pid:
        assert main(["attach"]) == 0
        listed = capsys.readouterr().out
        (rank,) = [
            line.split()[0]
            for line in listed.splitlines()
            if line.endswith("(not recorded)") and "train.py skip" in line
        ]
        saved, written = str(tmp_path / "a.ddpnb"), str(tmp_path / "a.json")
        status = main(["attach", "--patience", str(_PATIENCE_S), "--stacks", "--json", written, "--save", saved, rank])
        shown = capsys.readouterr()
        assert status == 3, shown
        assert "not recorded" in shown.err and "DDP301" in shown.err + shown.out and "barrier" in shown.out
        assert main(["attach", "--release", "--patience", str(_PATIENCE_S), str(pid)]) == 1
        refused = capsys.readouterr().err
        assert (
            "started without ddpnb" in refused
            and "ddpnb run --" in refused
            and "--nproc-per-node 2 train.py skip" in refused
        )
    (finding,) = json.loads((tmp_path / "a.json").read_text())["findings"]
    assert (finding["code"], finding["certainty"], finding["culprits"]) == ("DDP301", "likely", [1])
    # The innermost line of the user, and the one of the call.
    assert [place["line"] for place in finding["where"]] == [SCRIPT.line("rest"), SCRIPT.line("barrier")]
    assert ddpnb.diagnose(ddpnb.load(saved), patience=_PATIENCE_S).findings[0].code == "DDP301"


@pytest.mark.full
def test_the_same_line_in_different_groups(tmp_path):
    with job(tmp_path, "cross") as pid, ddpnb.attach(pid, patience=_PATIENCE_S) as attached:
        assert attached.run.wait(60).outcome == "hang"
        (finding,) = attached.diagnosis.findings
        assert (finding.code, finding.certainty, finding.waiting) == ("DDP318", "likely", (0, 1))
        assert lines(finding) == {0: SCRIPT.line("cross"), 1: SCRIPT.line("cross")}
        assert "step is 7 on rank 0, 8 on rank 1." in finding.evidence
        assert attached.diff().differing["step"] == {0: "7", 1: "8"}
        assert [one.state for one in attached.status().ranks] == ["waiting", "waiting"]
        assert not attached.recorded and "not recorded" in repr(attached)
        assert attached.snapshot().ranks[1].main_stack.innermost_user.locals["rank"] == "1"
        attached.save(tmp_path / "a.ddpnb")
        for refused in (
            attached.hold, attached.step, attached.resume, attached.heal, attached.release, attached.compare,
            lambda: attached.inject("skip", ranks=1), lambda: attached.evaluate("step"),
        ):  # fmt: skip
            with pytest.raises(WorldError, match="started without ddpnb") as error:
                refused()
            assert "ddpnb run -- " in error.value.hint
        panel = ddpnb.show(attached)
        try:
            deadline = time.monotonic() + 240
            while "all_reduce  " not in panel.text and time.monotonic() < deadline:
                time.sleep(0.1)
            assert "all_reduce  " in panel.text and "DDP318" in panel.text and "not recorded" in panel.text
        finally:
            panel.stop()


@pytest.mark.full
def test_a_rank_that_ended_before_start_up(tmp_path):
    with job(tmp_path, "early", jobs.TORCHRUN) as pid:
        ranks = {int(psutil.Process(child).environ()["RANK"]): child for child in children(pid)}
        psutil.wait_procs([psutil.Process(child) for rank, child in ranks.items() if rank == 1], 60)
        with ddpnb.attach(ranks[0], patience=_PATIENCE_S) as attached:
            (finding,) = attached.run.wait(60).diagnosis.findings
            assert (finding.code, finding.certainty, finding.culprits) == ("DDP102", "likely", (1,))
            assert lines(finding) == {0: SCRIPT.line("init")}
            assert attached.diagnosis.exit_codes == {0: None, 1: None}


@pytest.mark.full
@pytest.mark.parametrize("mode", [pytest.param("train", marks=pytest.mark.full), "wait"])
def test_a_healthy_job(mode, tmp_path):
    with job(tmp_path, mode) as pid, ddpnb.attach(pid, patience=_PATIENCE_S) as attached:
        assert not attached.run.wait(3 * _PATIENCE_S).done
        assert (attached.diagnosis.outcome, attached.diagnosis.errors) == ("ok", ())


def children(pid):
    return [child.pid for child in psutil.Process(pid).children()]
